//! Texts from a sandbox, made fit to be shown: they must not drive a terminal or hide what they say.

/// Valid UTF-8 without escape sequences or control characters; newlines and tabs stay, characters that reorder
/// or hide text become visible (`<U+202E>`).
pub fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => escape(&mut chars),
            '\u{9b}' => control_sequence(&mut chars),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => control_string(&mut chars),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => {}
            c if is_invisible(c) => out.push_str(&format!("<U+{:04X}>", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Valid UTF-8 in which everything that could drive a terminal, turn text around or hide in it stands as a mark
/// (`<U+001B>`): for who has to see that it is there. Newlines and tabs stay.
pub fn marked(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if c.is_control() || is_invisible(c) || is_hidden(c) => {
                out.push_str(&format!("<U+{:04X}>", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}

/// A JSON text with the same values, in which everything that could drive a terminal, turn text around or hide in it
/// stands as an escape (`\\u202e`).
pub fn in_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && (c.is_control() || is_invisible(c) || is_hidden(c)) {
            // Only inside a string can one stand.
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Characters that reorder text or that a reader cannot see, while a model can.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}' | '\u{2029}' | '\u{2060}' | '\u{feff}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// More that cannot be seen. Some scripts and pictures are written with these, so they are not marked wherever they
/// stand; who is asked to take a change over hears of them.
pub(crate) fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{00ad}' | '\u{034f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}' | '\u{200c}'
            | '\u{3164}' | '\u{ffa0}'
            | '\u{2061}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0100}'..='\u{e01ef}'
    )
}

/// At most `limit` bytes, cut on a character boundary.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn escape(chars: &mut Chars<'_>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            control_sequence(chars);
        }
        Some(']' | 'P' | '_' | '^' | 'X') => {
            chars.next();
            control_string(chars);
        }
        _ => {
            while chars.next_if(|c| (' '..='/').contains(c)).is_some() {}
            chars.next_if(|c| ('0'..='~').contains(c));
        }
    }
}

fn control_sequence(chars: &mut Chars<'_>) {
    while chars.next_if(|c| (' '..='?').contains(c)).is_some() {}
    chars.next_if(|c| ('@'..='~').contains(c));
}

/// Ends at BEL, at ST, or at the end of the line: an unfinished one must not swallow the rest of the text.
fn control_string(chars: &mut Chars<'_>) {
    while let Some(c) = chars.next_if(|c| *c != '\n') {
        match c {
            '\x07' | '\u{9c}' => return,
            '\x1b' => {
                chars.next_if(|c| *c == '\\');
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r33_control_sequences_are_gone() {
        assert_eq!(clean(b"a\x1b[31mred\x1b[0m\x1b]0;title\x07b\x1b(Bc\x08\x7fd\r\n\te"), "aredbcd\n\te");
        assert_eq!(clean("x\u{9b}1my\u{9d}0;t\u{9c}z".as_bytes()), "xyz");
    }

    #[test]
    fn r33_an_unfinished_sequence_hides_one_line_at_most() {
        assert_eq!(clean(b"\x1b]0;never ended\nseen"), "\nseen");
        assert_eq!(clean(b"\x1b"), "");
        assert_eq!(clean(b"\x1b["), "");
    }

    #[test]
    fn reordering_and_hidden_characters_are_shown() {
        assert_eq!(clean("a\u{202e}b\u{e0041}".as_bytes()), "a<U+202E>b<U+E0041>");
    }

    #[test]
    fn r33_who_has_to_see_what_is_hidden_sees_it() {
        let hidden = "a\x1b[2J\u{9b}\r\u{202e}\u{200c}\tb\n".as_bytes();
        assert_eq!(marked(hidden), "a<U+001B>[2J<U+009B><U+000D><U+202E><U+200C>\tb\n");
    }

    #[test]
    fn r33_json_for_a_terminal_has_the_same_values() {
        let odd = "a\x7f\u{9b}\u{202e}\u{e0041}\u{200d}\n\x1bé";
        let text = in_json(&serde_json::to_string_pretty(&[odd]).unwrap());
        assert!(
            !text.chars().any(|c| c != '\n' && (c.is_control() || is_invisible(c) || is_hidden(c))),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), [odd]);
    }

    #[test]
    fn what_is_not_utf8_is_replaced() {
        assert_eq!(clean(b"a\xffb"), "a\u{fffd}b");
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        assert_eq!(cut("aé", 2), "a");
    }
}
