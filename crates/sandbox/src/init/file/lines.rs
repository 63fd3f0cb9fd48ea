//! Lines of a text that match a pattern, in time linear in the text.
//!
//! The pattern is asked of everything that is left at once, so that literals in it are found at the speed of memory. The
//! first place where any match *ends* is in no later line than the first line that matches by itself; that line is then
//! asked alone, and the search goes on behind it. So each byte is read twice at most, whatever the pattern.

use std::ops::Range;

use memchr::{memchr, memchr_iter, memrchr};
use regex::bytes::{Regex, RegexBuilder};

use super::Refusal;

/// A pattern that is asked of lines.
pub(super) struct Pattern {
    regex: Regex,
    /// Ends of lines are to it what ends of a text are.
    whole: bool,
}

/// A line: its number, from 1, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) bytes: Range<usize>,
}

impl Pattern {
    pub(super) fn new(pattern: &str) -> Result<Pattern, Refusal> {
        let regex = RegexBuilder::new(pattern)
            .multi_line(true)
            .size_limit(1 << 20)
            .dfa_size_limit(4 << 20)
            .build()
            .map_err(|e| Refusal { kind: "pattern", message: problem(&e) })?;
        // `\A`, `\z` and a switched-off `m` speak of the text, which for us is one line.
        let whole = !pattern.contains("\\A") && !pattern.contains("\\z") && !off(pattern);
        Ok(Pattern { regex, whole })
    }

    /// The first lines that match, `most` of them, and how many there are.
    pub(super) fn lines(&self, text: &[u8], most: usize) -> (Vec<Line>, u64) {
        let (mut found, mut count) = (Vec::new(), 0);
        let (mut at, mut numbered, mut number) = (0, 0, 1);
        while at < text.len() {
            let within = if self.whole {
                match self.regex.shortest_match_at(text, at) {
                    None => break,
                    // The last byte of it, if it has one.
                    Some(end) => end.saturating_sub(1).max(at),
                }
            } else {
                at
            };
            if within >= text.len() {
                break;
            }
            let start = memrchr(b'\n', &text[at..within]).map_or(at, |n| at + n + 1);
            let end = memchr(b'\n', &text[within..]).map_or(text.len(), |n| within + n);
            if self.regex.is_match(&text[start..end]) {
                count += 1;
                if found.len() < most {
                    number += newlines(&text[numbered..start]);
                    numbered = start;
                    found.push(Line { number, bytes: start..end });
                }
            }
            at = end + 1;
        }
        (found, count)
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    u64::try_from(memchr_iter(b'\n', bytes).count()).unwrap_or(u64::MAX)
}

/// Whether flags are switched off anywhere in it.
fn off(pattern: &str) -> bool {
    pattern.match_indices("(?").any(|(at, _)| {
        let flags = pattern[at + 2..].split([')', ':']).next().unwrap_or_default();
        flags.contains('-')
    })
}

fn problem(e: &regex::Error) -> String {
    match e {
        regex::Error::CompiledTooBig(_) => "the pattern is too large".to_owned(),
        other => {
            // The last line of a syntax error says what is wrong; the ones above draw the pattern.
            let text = other.to_string();
            let last = text.lines().last().unwrap_or("not a pattern").trim().to_owned();
            format!("not a valid pattern: {}", last.trim_start_matches("error: "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Line by line, as slow as it is simple.
    fn simply(pattern: &str, text: &[u8]) -> Vec<u64> {
        let regex = RegexBuilder::new(pattern).multi_line(true).build().unwrap();
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        (1..).zip(text.split(|b| *b == b'\n')).filter(|(_, l)| regex.is_match(l)).map(|(n, _)| n).collect()
    }

    #[test]
    fn the_same_lines_are_found_as_one_by_one() {
        let texts =
            ["", "\n", "a\n", "a\nb\n\nab\n b a\nfoo bar\n", "x\n\n\ny", "é\na b\nb a\nAB\n", "aaa\r\nb\r\n"];
        let patterns = [
            "a", "^a", "a$", "^$", "", "b*", "[^x]+", r"\s+", r"a\s*b", "a|^b", "(?s).*", "(?s)a.b",
            r"\ba\b", r"\Aa", r"a\z", "(?-m:^)a", "(?i)AB", r"a\nb", ".", r"\n", "x*$", r"\r$",
        ];
        for text in texts {
            for pattern in patterns {
                let (lines, count) = Pattern::new(pattern).unwrap().lines(text.as_bytes(), 100);
                let numbers: Vec<u64> = lines.iter().map(|l| l.number).collect();
                let wanted = if text.is_empty() { Vec::new() } else { simply(pattern, text.as_bytes()) };
                assert_eq!(numbers, wanted, "{pattern:?} in {text:?}");
                assert_eq!(count, u64::try_from(wanted.len()).unwrap());
            }
        }
    }

    /// A search that began anew in each line with what it had not finished would need hours.
    #[test]
    fn r13_no_pattern_makes_a_search_slower_than_the_text_is_long() {
        let text = b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n".repeat(30_000);
        let began = std::time::Instant::now();
        for pattern in ["[^z]+z", "(a+)+$b", "(?s).*b", "[^z]+", r"(\w|\s)*q", "a*a*a*a*a*b"] {
            Pattern::new(pattern).unwrap().lines(&text, 10);
        }
        assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    }
}
