//! A text as somebody may have it before him in the end: without what nobody sees, and with its escapes read.
//!
//! Whoever looks for something in a text of others looks for it in each of these forms. What is shown of it is cleaned
//! on the way, or is in quotes of some kind; neither may make something of it that was not looked for.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

/// Escapes of escapes that are read: a text in quotes in a text in quotes.
const DEEPEST: usize = 3;

/// Whether `holds` says so of the text in any of its forms.
pub(super) fn in_any_form(text: &str, holds: &dyn Fn(&str) -> bool) -> bool {
    let mut text = Cow::Borrowed(text);
    for _ in 0..DEEPEST {
        if seen(&text, holds) {
            return true;
        }
        match unescaped(&text) {
            Some(next) => text = Cow::Owned(next),
            None => return false,
        }
    }
    seen(&text, holds)
}

fn seen(text: &str, holds: &dyn Fn(&str) -> bool) -> bool {
    let unseen = |c: char| !c.is_ascii() || (c.is_control() && !matches!(c, '\n' | '\t'));
    if holds(text) {
        return true;
    }
    if !text.contains(unseen) {
        return false;
    }
    // What is not seen may stand within a word, or end one.
    let either = |text: &str| holds(&text.replace(unseen, "")) || holds(&text.replace(unseen, " "));
    let begins = |c: char| c == '\u{1b}' || ('\u{80}'..='\u{9f}').contains(&c);
    either(text)
        || (text.contains(begins) && ["", " "].into_iter().any(|put| either(&without_sequences(text, put))))
}

/// With `put` in place of what drives a terminal: a cleaned text is without it, so what stood around it comes together.
fn without_sequences(text: &str, put: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next_if(|c| matches!(c, '[' | ']' | 'P' | '_' | '^' | 'X')) {
                Some('[') => control_sequence(&mut chars),
                Some(_) => control_string(&mut chars),
                None => {
                    while chars.next_if(|c| (' '..='/').contains(c)).is_some() {}
                    chars.next_if(|c| ('0'..='~').contains(c));
                }
            },
            '\u{9b}' => control_sequence(&mut chars),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => control_string(&mut chars),
            c => {
                out.push(c);
                continue;
            }
        }
        out.push_str(put);
    }
    out
}

fn control_sequence(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| (' '..='?').contains(c)).is_some() {}
    chars.next_if(|c| ('@'..='~').contains(c));
}

fn control_string(chars: &mut Peekable<Chars<'_>>) {
    while let Some(c) = chars.next_if(|c| *c != '\n') {
        match c {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' => {
                chars.next_if(|c| *c == '\\');
                return;
            }
            _ => {}
        }
    }
}

/// The text with every escape read that JSON, TOML, quoted names and addresses have; none where there is none.
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut any) = (text, false);
    while let Some(at) = rest.find(['\\', '%']) {
        let (head, tail) = rest.split_at(at);
        out.push_str(head);
        let (read, len) = one(tail).unwrap_or((tail.chars().next(), 1));
        any |= len > 1;
        out.extend(read);
        rest = tail.get(len..).unwrap_or_default();
    }
    out.push_str(rest);
    any.then_some(out)
}

/// What the escape at the beginning stands for, if for anything, and its bytes; none where there is no escape.
fn one(text: &str) -> Option<(Option<char>, usize)> {
    let number = |from: usize, to: usize, radix: u32| {
        let digits = text.get(from..to).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
        let c = u32::from_str_radix(digits, radix).ok().map(char::from_u32);
        // Half of a pair is nothing that anybody sees.
        c.map(|c| (c, to))
    };
    let mut bytes = text.bytes();
    if bytes.next() == Some(b'%') {
        return number(1, 3, 16);
    }
    match bytes.next()? {
        b'n' => Some((Some('\n'), 2)),
        b't' => Some((Some('\t'), 2)),
        b'r' => Some((Some('\r'), 2)),
        b'b' => Some((Some('\u{8}'), 2)),
        b'f' => Some((Some('\u{c}'), 2)),
        // The line goes on.
        b'\n' => Some((None, 2)),
        b @ (b'\\' | b'"' | b'\'' | b'/' | b'`') => Some((Some(char::from(b)), 2)),
        b'x' => number(2, 4, 16),
        b'u' if text.as_bytes().get(2) == Some(&b'{') => {
            let end = text.bytes().take(12).position(|b| b == b'}')?;
            number(3, end, 16).map(|(c, end)| (c, end + 1))
        }
        b'u' => number(2, 6, 16),
        b'U' => number(2, 10, 16),
        b'0'..=b'3' => number(1, 4, 8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_every_kind_are_read() {
        for (text, read) in [
            (r"a\nb\tc\\d\u0073\x6b\155%41\U0000002d\u{2e}", "a\nb\tc\\dskmA-."),
            ("go\\\nes on", "goes on"),
            (r"\ud83d\ude00", ""),
        ] {
            assert_eq!(unescaped(text).as_deref(), Some(read), "{text}");
        }
        for text in ["plain", r"\d\s", "100% and 5%", r"\u12", r"\x", "\\", "%", r"\u{}", r"\9", "\\é"] {
            assert_eq!(unescaped(text).as_deref().unwrap_or(text), text);
        }
    }

    #[test]
    fn a_text_in_quotes_in_quotes_is_read() {
        let holds = |text: &str| text.contains("a\nb");
        assert!(
            in_any_form("a\nb", &holds) && in_any_form(r"a\nb", &holds) && in_any_form(r"a\\\\nb", &holds)
        );
        assert!(in_any_form("a\u{1b}[31m\u{200b}\nb", &holds) && !in_any_form("a b", &holds));
    }
}
