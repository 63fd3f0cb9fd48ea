//! File names as text, and back: what a tool prints of a name is what it takes for that name.
//!
//! ```text
//!   plain name            itself                 src/main.rs   ..foo   a b   naïve.txt   back\slash
//!   anything else         in quotes, as git      "new\nline"   "\377\376"   "\"quoted\""
//! ```
//!
//! A text that begins with a quotation mark is always the second form, every other text stands for itself. So each
//! name has a printed form, each text means one name at most, and no byte is lost.

use std::borrow::Cow;

/// A text in quotes that stands for no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a name in quotes takes the escapes \\\" \\\\ \\n \\t \\r and three octal digits, and ends with its quote"
)]
pub struct BadQuoted;

/// A name or path as text.
pub fn quoted(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if is_plain(text) => Cow::Borrowed(text),
        _ => Cow::Owned(in_quotes(name)),
    }
}

/// The name or path that a text stands for.
///
/// # Errors
/// [`BadQuoted`] when it begins with a quotation mark and is not in quotes.
pub fn unquoted(text: &str) -> Result<Cow<'_, [u8]>, BadQuoted> {
    match text.strip_prefix('"') {
        None => Ok(Cow::Borrowed(text.as_bytes())),
        Some(rest) => match from_quotes(rest) {
            Some((name, "")) => Ok(Cow::Owned(name)),
            Some(_) | None => Err(BadQuoted),
        },
    }
}

/// Reads a name in quotes that stands at the beginning of a text, its first quotation mark taken off: the name, and
/// what follows it.
pub fn from_quotes(rest: &str) -> Option<(Vec<u8>, &str)> {
    let mut name = Vec::new();
    let mut bytes = rest.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some((name, &rest[at + 1..])),
            b'\\' => name.push(match bytes.next()?.1 {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'a' => 7,
                b'b' => 8,
                b'v' => 11,
                b'f' => 12,
                same @ (b'"' | b'\\') => same,
                first @ b'0'..=b'3' => {
                    let digit = |b: u8| (b'0'..=b'7').contains(&b).then(|| b - b'0');
                    let (second, third) = (digit(bytes.next()?.1)?, digit(bytes.next()?.1)?);
                    (first - b'0') * 64 + second * 8 + third
                }
                _ => return None,
            }),
            other => name.push(other),
        }
    }
    None
}

fn is_plain(text: &str) -> bool {
    !text.starts_with('"')
        && !text.starts_with(char::is_whitespace)
        && !text.ends_with(char::is_whitespace)
        && !text.chars().any(|c| c.is_control() || misleads(c))
}

/// Characters that a reader cannot see, or that reorder what he sees.
fn misleads(c: char) -> bool {
    matches!(
        c,
        '\u{200b}'..='\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fffd}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

fn in_quotes(name: &[u8]) -> String {
    let mut out = String::from('"');
    for byte in name {
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'\r' => out.push_str("\\r"),
            0x20..=0x7e => out.push(char::from(*byte)),
            _ => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_themselves() {
        for name in ["a", "..foo", "a b", "naïve.txt", "back\\slash", "it's", "a\"b", "src/main.rs", "-x", ""]
        {
            assert_eq!(quoted(name.as_bytes()), name);
            assert_eq!(unquoted(name).unwrap().as_ref(), name.as_bytes());
        }
    }

    #[test]
    fn every_other_name_is_in_quotes_and_comes_back() {
        for (name, text) in [
            (&b"new\nline"[..], r#""new\nline""#),
            (b"\xff\xfe", r#""\377\376""#),
            (b"\"q\"", r#""\"q\"""#),
            (b" lead", r#"" lead""#),
            ("x\u{202e}y".as_bytes(), r#""x\342\200\256y""#),
            (b"\\\n", r#""\\\n""#),
        ] {
            assert_eq!(quoted(name), text);
            assert_eq!(unquoted(text).unwrap().as_ref(), name);
        }
    }

    #[test]
    fn each_name_of_up_to_two_bytes_comes_back_and_no_two_look_alike() {
        let mut seen = std::collections::BTreeSet::new();
        let names =
            (0..=255_u8).flat_map(|a| std::iter::once(vec![a]).chain((0..=255_u8).map(move |b| vec![a, b])));
        for name in names {
            let text = quoted(&name).into_owned();
            assert_eq!(unquoted(&text).unwrap().as_ref(), name);
            assert!(seen.insert(text));
        }
    }

    #[test]
    fn what_is_not_well_quoted_stands_for_nothing() {
        for text in ["\"", "\"a", "\"a\"b", r#""\x41""#, r#""\8""#, r#""\77""#, r#""\400""#, r#""\"#] {
            assert_eq!(unquoted(text), Err(BadQuoted), "{text}");
        }
    }
}
