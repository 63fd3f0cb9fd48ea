//! What is different between two prompts, line by line, for who reviews them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use policy::RoleName;
use policy::narrower::{begins_key, has_key};
use similar::TextDiff;

use super::LoadedGuild;

/// What all prompts together may take to be compared; the others are told whole.
const ALTOGETHER: Duration = Duration::from_secs(2);
/// After this the difference is no longer searched for the shortest, only for a right one.
const PATIENCE: Duration = Duration::from_millis(300);
/// Lines around a change.
const AROUND: usize = 3;

/// What is different in the prompts of two Guilds, by the place of each: of roles that came or went, all of it.
pub fn prompt_diffs(old: &LoadedGuild, new: &LoadedGuild) -> BTreeMap<String, String> {
    let roles: BTreeSet<&RoleName> = old.prompts.keys().chain(new.prompts.keys()).collect();
    let text = |guild: &LoadedGuild, role: &RoleName| guild.prompts.get(role).cloned().unwrap_or_default();
    let until = Instant::now() + ALTOGETHER;
    let left = || until.saturating_duration_since(Instant::now());
    let both = roles.into_iter().map(|role| (role, text(old, role), text(new, role)));
    both.filter(|(_, before, after)| before != after)
        .map(|(role, before, after)| (format!("roles.{role}.prompt"), prompt_diff(&before, &after, left())))
        .collect()
}

/// The difference by lines, in the form of `diff -u` without a head. What nobody would see, or what turns a line
/// around, stands as a mark (`<U+202E>`); nothing for equal texts. Where no time is `left` both texts are told whole, and
/// that they are: no line of a text begins as that one does.
pub fn prompt_diff(before: &str, after: &str, left: Duration) -> String {
    if left.is_zero() && before != after {
        return whole(&visible(before), &visible(after));
    }
    let (before, after) = (visible(before), visible(after));
    let diff = TextDiff::configure().timeout(PATIENCE.min(left)).diff_lines(&before, &after);
    diff.unified_diff().context_radius(AROUND).missing_newline_hint(true).to_string()
}

fn whole(before: &str, after: &str) -> String {
    let mut out = "~ too many changes to compare line by line: both texts are whole\n".to_owned();
    for (sign, text) in [('-', before), ('+', after)] {
        for line in text.split_inclusive('\n') {
            out.push(sign);
            out.push_str(line);
            if !line.ends_with('\n') {
                out.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    out
}

/// A text of which all is seen, ends of lines of another system too, since those may be all that is different; but
/// for keys: a report goes further than the Guild does.
fn visible(text: &str) -> String {
    // Nor has a line one then: a prompt may have many.
    if !has_key(text) {
        return runs::marked(text.as_bytes());
    }
    let (mut out, mut left) = (String::with_capacity(text.len()), String::new());
    let mut inside = false;
    for line in text.split_inclusive('\n') {
        inside |= begins_key(line);
        if inside || has_key(line) {
            out.push_str("(what looks like a key is not shown)\n");
            left.push('\n');
        } else {
            left.push_str(line);
            out.push_str(&runs::marked(line.as_bytes()));
        }
        inside &= !line.contains("-----END");
    }
    // One that no line has by itself: which lines it is made of, nobody can say of every kind.
    if has_key(&left) {
        return format!(
            "(what looks like a key goes over several lines: none of {} is shown)\n",
            text.lines().count()
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_seen_in_the_difference() {
        let diff = prompt_diff("You fix code.\nStay.\n", "You fix\u{200b} code.\u{202e}\nStay.\n", PATIENCE);
        assert!(diff.contains("-You fix code.\n+You fix<U+200B> code.<U+202E>\n Stay.\n"), "{diff}");
        assert_eq!(prompt_diff("a", "a", PATIENCE), "");
        assert!(prompt_diff("a\n", "a\r\n", PATIENCE).contains("+a<U+000D>"));
        // Nor is a line's end that is missing the same as one.
        assert!(prompt_diff("a\n", "a", PATIENCE).contains("No newline"));
    }

    #[test]
    fn r59_a_key_in_a_prompt_is_not_repeated() {
        let secret =
            "a\nsk-abcdefghijklmnop\n-----BEGIN PRIVATE KEY-----\nMIIEabc\n-----END PRIVATE KEY-----\nb\n";
        for (before, after) in [("", secret), (secret, "")] {
            let diff = prompt_diff(before, after, PATIENCE);
            assert!(!diff.contains("abc") && diff.contains("not shown") && diff.contains("b\n"), "{diff}");
        }
    }

    #[test]
    fn r59_a_key_of_several_lines_is_not_repeated() {
        let end = "-----END PRIVATE KEY-----";
        for secret in [
            "Authorization: Bearer\nabcdefgh01234567\n".to_owned(),
            "a\nbEARER\r\n \n\tabcdefgh01234567\nb".to_owned(),
            "Bearer \\\nabcdefgh01234567\n".to_owned(),
            "sk-12\\\nabcdefgh\n".to_owned(),
            format!("-----BE\u{200b}GIN PRIVATE KEY-----\nMIIEabc\n{end}\n"),
            format!("\\u002d----BEGIN PRIVATE KEY-----\nMIIEabc\n{end}\n"),
            format!("-----BE\\\nGIN PRIVATE KEY-----\nMIIEabc\n{end}\n"),
        ] {
            for (before, after) in [("x\n", secret.as_str()), (&secret, "x\n")] {
                for left in [PATIENCE, Duration::ZERO] {
                    let diff = prompt_diff(before, after, left);
                    assert!(!diff.contains("abc") && diff.contains("looks like a key"), "{diff}");
                }
            }
        }
    }

    #[test]
    fn where_no_time_is_left_all_is_told() {
        let told = prompt_diff("a\nb\u{200b}\n", "a\nc", Duration::ZERO);
        assert!(told.starts_with("~ too many changes"), "{told}");
        let all = "-a\n-b<U+200B>\n+a\n+c\n\\ No newline at end of file\n";
        assert!(told.ends_with(all), "{told}");
        assert_eq!(prompt_diff("a", "a", Duration::ZERO), "");
    }

    #[test]
    fn a_hostile_pair_is_compared_in_time() {
        let lines = |state: u64| -> String {
            let mut state = state;
            let line = |_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if state >> 63 == 0 { "a\n" } else { "b\n" }
            };
            (0..32_000).map(line).collect()
        };
        let began = std::time::Instant::now();
        assert!(!prompt_diff(&lines(1), &lines(2), PATIENCE).is_empty());
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}
