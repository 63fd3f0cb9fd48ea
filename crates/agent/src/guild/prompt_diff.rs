//! What is different between two prompts, line by line, for who reviews them.

use std::time::Duration;

use policy::narrower::has_key;
use similar::TextDiff;

/// After this the difference is no longer searched for the shortest, only for a right one.
const PATIENCE: Duration = Duration::from_millis(300);
/// Lines around a change.
const AROUND: usize = 3;

/// The difference by lines, in the form of `diff -u` without a head. What nobody would see, or what turns a line
/// around, stands as a mark (`<U+202E>`); nothing for equal texts.
pub fn prompt_diff(before: &str, after: &str) -> String {
    let (before, after) = (visible(before), visible(after));
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(&before, &after);
    diff.unified_diff().context_radius(AROUND).missing_newline_hint(false).to_string()
}

/// A text of which all is seen, ends of lines of another system too, since those may be all that is different; but
/// for keys: a report goes further than the Guild does.
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for line in text.split_inclusive('\n') {
        inside |= line.contains("-----BEGIN");
        if inside || has_key(line) {
            out.push_str("(what looks like a key is not shown)\n");
        } else {
            out.push_str(&runs::marked(line.as_bytes()));
        }
        inside &= !line.contains("-----END");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_seen_in_the_difference() {
        let diff = prompt_diff("You fix code.\nStay.\n", "You fix\u{200b} code.\u{202e}\nStay.\n");
        assert!(diff.contains("-You fix code.\n+You fix<U+200B> code.<U+202E>\n Stay.\n"), "{diff}");
        assert_eq!(prompt_diff("a", "a"), "");
        assert!(prompt_diff("a\n", "a\r\n").contains("+a<U+000D>"));
    }

    #[test]
    fn r59_a_key_in_a_prompt_is_not_repeated() {
        let secret =
            "a\nsk-abcdefghijklmnop\n-----BEGIN PRIVATE KEY-----\nMIIEabc\n-----END PRIVATE KEY-----\nb\n";
        for (before, after) in [("", secret), (secret, "")] {
            let diff = prompt_diff(before, after);
            assert!(!diff.contains("abc") && diff.contains("not shown") && diff.contains("b\n"), "{diff}");
        }
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
        assert!(!prompt_diff(&lines(1), &lines(2)).is_empty());
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}
