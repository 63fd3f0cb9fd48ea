//! A difference as a person reads it: however long a line is, what is changed in it is shown.
//!
//! A prompt may be one line of sixty thousand characters. What is the same on both sides may be left out of it, and it is
//! said how much; what is not the same never is. What is said by us begins with `~`, and a line that goes on with `>`: no
//! line of the difference begins so, whatever a prompt holds.

/// Characters of one line.
const MOST: usize = 200;
/// Characters that are the same, shown before and behind what is not.
const AROUND: usize = 60;

/// The lines of a difference in the form of `diff -u`.
pub(crate) fn lines(diff: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = diff.lines().peekable();
    while let Some(line) = rest.next() {
        if !line.starts_with(['-', '+']) {
            out.extend(same(line));
            continue;
        }
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut next = Some(line);
        while let Some(line) = next.take() {
            // What is taken out stands before what takes its place.
            match line.strip_prefix('-') {
                Some(text) => before.push(text),
                None => after.push(line.strip_prefix('+').unwrap_or(line)),
            }
            next = rest.next_if(|line| line.starts_with('+') || (after.is_empty() && line.starts_with('-')));
        }
        let paired = before.len() == after.len();
        let pair = |n: usize, of: &[&str]| {
            of.get(n).filter(|_| paired).map_or((0, 0), |_| ends(before[n], after[n]))
        };
        for (n, text) in before.iter().enumerate() {
            out.extend(changed('-', text, pair(n, &after)));
        }
        for (n, text) in after.iter().enumerate() {
            out.extend(changed('+', text, pair(n, &before)));
        }
    }
    out
}

/// One text in the place of another.
pub(crate) fn exchanged(was: &str, now: &str) -> Vec<String> {
    let side =
        |sign: char, text: &str| text.lines().map(|line| format!("{sign}{line}\n")).collect::<String>();
    lines(&(side('-', was) + &side('+', now)))
}

/// A line that is the same on both sides.
fn same(line: &str) -> Vec<String> {
    let all = line.chars().count();
    if all <= MOST {
        return vec![line.to_owned()];
    }
    vec![line.chars().take(MOST).collect(), note(all - MOST, "behind this")]
}

/// Characters that two lines have in common at their beginning, and at their end.
fn ends(before: &str, after: &str) -> (usize, usize) {
    let alike = |pair: &(char, char)| pair.0 == pair.1;
    let head = before.chars().zip(after.chars()).take_while(alike).count();
    let most = before.chars().count().min(after.chars().count()) - head;
    let tail = before.chars().rev().zip(after.chars().rev()).take(most).take_while(alike).count();
    (head, tail)
}

fn changed(sign: char, text: &str, (head, tail): (usize, usize)) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let (from, to) = if chars.len() <= MOST {
        (0, chars.len())
    } else {
        (head.saturating_sub(AROUND), chars.len() - tail.saturating_sub(AROUND))
    };
    let mut out = Vec::new();
    if from > 0 {
        out.push(note(from, "before this"));
    }
    let shown = chars.get(from..to).unwrap_or_default();
    let mut sign = sign;
    for piece in shown.chunks(MOST) {
        out.push(std::iter::once(sign).chain(piece.iter().copied()).collect());
        sign = '>';
    }
    if shown.is_empty() {
        out.push(sign.to_string());
    }
    if to < chars.len() {
        out.push(note(chars.len() - to, "behind this"));
    }
    out
}

fn note(many: usize, at: &str) -> String {
    format!("~ {many} characters {at} are the same on both sides")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_in_a_long_line_is_shown_wherever_it_is() {
        let long = "a ".repeat(30_000);
        for at in [0, 500, 30_000, 60_000] {
            let (head, tail) = long.split_at(at);
            let diff = format!("@@ -1 +1 @@\n-{head}keep{tail}\n+{head}SEND{tail}\n");
            let shown = lines(&diff);
            assert!(shown.iter().any(|line| line.starts_with('-') && line.contains("keep")), "{at}");
            assert!(shown.iter().any(|line| line.starts_with('+') && line.contains("SEND")), "{at}");
            assert!(shown.len() < 10 && shown.iter().all(|line| line.len() < 300), "{shown:#?}");
            let left_out: usize = shown
                .iter()
                .filter_map(|line| line.strip_prefix("~ ")?.split(' ').next()?.parse::<usize>().ok())
                .sum();
            assert!(left_out > 2 * 59_000, "{shown:#?}");
        }
    }

    #[test]
    fn what_is_new_is_shown_whole_and_nobody_imitates_what_we_say() {
        let new = "x".repeat(450) + "END";
        let shown =
            lines(&format!(" same\n+{new}\n+~ 5 characters before this are the same on both sides\n"));
        assert_eq!(shown.len(), 5, "{shown:#?}");
        let text: String = shown[1..4].iter().map(|line| &line[1..]).collect();
        assert_eq!(text, new);
        assert!(shown[2].starts_with('>') && shown[4].starts_with("+~"), "{shown:#?}");
        // More lines come than go: none of them is taken for another's.
        let shown = lines(&format!("-a\n+{new}\n+b\n"));
        assert!(shown.concat().contains("END"));
    }

    #[test]
    fn a_short_difference_stays_as_it_is() {
        let diff = "@@ -1,2 +1,2 @@\n a\n-b\n+c\n-\n+\n d\n";
        assert_eq!(lines(diff).join("\n") + "\n", diff);
        assert_eq!(exchanged("a", "b"), ["-a", "+b"]);
        assert_eq!(exchanged("", "b"), ["+b"]);
    }
}
