//! Where a text occurs in a file: exactly, or up to white space at the ends of its lines; never by likeness.

use std::ops::Range;

/// A file of so many lines is shown whole: a model that guessed has not read it.
const WHOLE: usize = 30;
/// Comparisons of lines that are worth their time; a hostile pair of texts could ask for billions.
const MAX_WORK: usize = 20_000_000;

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// These bytes, one place or all.
    Exact(Vec<Range<usize>>),
    /// One place that differs only in white space at the ends of lines.
    Loose(Range<usize>),
    /// More than one place; their lines, from 1.
    Ambiguous(Vec<usize>),
    /// No place.
    Nowhere,
}

pub(super) fn find(text: &str, old: &str, all: bool) -> Found {
    let exact: Vec<Range<usize>> = text.match_indices(old).map(|(at, _)| at..at + old.len()).collect();
    match exact.len() {
        0 => {}
        1 => return Found::Exact(exact),
        _ if all => return Found::Exact(exact),
        _ => return Found::Ambiguous(exact.iter().map(|r| line_of(text, r.start)).collect()),
    }
    let mut loose = loose_places(text, old);
    match loose.len() {
        0 => Found::Nowhere,
        1 => Found::Loose(loose.remove(0)),
        _ => Found::Ambiguous(loose.iter().map(|r| line_of(text, r.start)).collect()),
    }
}

/// The replacement ends with a line feed when the replaced lines did, and its lines end as theirs.
pub(super) fn with_line_end(replaced: &str, new: &str) -> String {
    if replaced.contains("\r\n") && !new.contains('\r') {
        return with_line_end(&replaced.replace("\r\n", "\n"), new).replace('\n', "\r\n");
    }
    if replaced.ends_with('\n') && !new.is_empty() && !new.ends_with('\n') {
        format!("{new}\n")
    } else {
        new.to_owned()
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

fn lines(text: &str) -> Vec<(Range<usize>, &str)> {
    let mut at = 0;
    text.split_inclusive('\n')
        .map(|line| {
            let range = at..at + line.len();
            at = range.end;
            (range, line.trim())
        })
        .collect()
}

/// Runs of whole lines that equal those of `old` when both are trimmed.
fn loose_places(text: &str, old: &str) -> Vec<Range<usize>> {
    let wanted: Vec<&str> = old.trim_matches('\n').lines().map(str::trim).collect();
    if wanted.iter().all(|l| l.is_empty()) {
        return Vec::new();
    }
    let have = lines(text);
    if have.len().saturating_mul(wanted.len()) > MAX_WORK {
        return Vec::new();
    }
    have.windows(wanted.len())
        .filter(|w| w.iter().zip(&wanted).all(|((_, line), want)| line == want))
        .map(|w| w[0].0.start..w[w.len() - 1].0.end)
        .collect()
}

/// The lines around the one that has most words in common with the first telling line of `old`.
pub(crate) fn nearest(text: &str, old: &str) -> String {
    let words = |s: &str| -> Vec<String> {
        s.split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|w| !w.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let wanted = old.lines().map(words).find(|w| !w.is_empty()).unwrap_or_default();
    let wanted = &wanted[..wanted.len().min(20)];
    let have: Vec<&str> = text.lines().collect();
    let score = |line: &str| words(line).iter().filter(|w| wanted.contains(w)).count();
    if have.len() <= WHOLE {
        return numbered(&have, 0);
    }
    let best = (0..have.len()).max_by_key(|i| (score(have[*i]), usize::MAX - i)).unwrap_or(0);
    let from = best.saturating_sub(2);
    let to = (best + 4).min(have.len());
    numbered(&have[from..to], from)
}

fn numbered(lines: &[&str], skipped: usize) -> String {
    let rows: Vec<String> = lines
        .iter()
        .enumerate()
        .map(|(i, line)| format!("{:>5}  {}", skipped + i + 1, line.chars().take(300).collect::<String>()))
        .collect();
    if rows.is_empty() { "(the file is empty)".to_owned() } else { rows.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "def add(a, b):\n    return a - b\n\ndef sub(a, b):\n    return a - b\n";

    #[test]
    fn one_exact_place_is_taken() {
        assert!(matches!(find(TEXT, "def add(a, b):", false), Found::Exact(p) if p == vec![0..14; 1]));
    }

    #[test]
    fn two_places_are_told_with_their_lines_unless_all_are_wanted() {
        assert_eq!(find(TEXT, "return a - b", false), Found::Ambiguous(vec![2, 5]));
        assert!(matches!(find(TEXT, "return a - b", true), Found::Exact(p) if p.len() == 2));
    }

    #[test]
    fn indentation_may_differ_when_the_place_is_the_only_one() {
        assert!(
            matches!(find(TEXT, "def add(a, b):\n  return a - b", false), Found::Loose(r) if r == (0..32))
        );
        assert!(matches!(find(TEXT, "  return a - b", false), Found::Ambiguous(_)));
    }

    #[test]
    fn a_similar_line_is_shown_and_never_taken() {
        assert_eq!(find(TEXT, "def sub(x, b):", false), Found::Nowhere);
        let shown = nearest(TEXT, "def sub(x, b):");
        assert!(shown.contains("    4  def sub(a, b):"), "{shown}");
    }
}
