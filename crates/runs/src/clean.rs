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
            c if is_unseen(c) => out.push_str(&format!("<U+{:04X}>", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Whether a person who looks at a text does not see all of it. Ends of lines of another system hide nothing, nor does
/// what people write with: a space of another width, what joins a picture or says how it is drawn (U+200D, U+FE0F, U+FE0E),
/// what joins two letters or keeps them apart where a script has that, and a mark of direction at a letter that has one.
/// What turns whole texts around is always told.
pub fn hides(text: &str) -> bool {
    let mut before = '\n';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        let harmless = match c {
            '\n' | '\t' => true,
            '\r' => next == Some('\n'),
            '\u{a0}' | '\u{202f}' | '\u{3000}' => true,
            '\u{fe0e}' => is_picture(before),
            '\u{200c}' | '\u{200d}' if next.is_some_and(|next| joins(before, next)) => true,
            '\u{200e}' | '\u{200f}' => {
                let ordinary = |c: char| runs_left(c) || matches!(c, ' ' | '\n');
                let next = next.unwrap_or('\n');
                (runs_left(before) && ordinary(next)) || (ordinary(before) && runs_left(next))
            }
            '\u{fe0f}' => is_picture(before) || matches!(before, '0'..='9' | '#' | '*'),
            '\u{200d}' => (is_picture(before) || before == '\u{fe0f}') && next.is_some_and(is_picture),
            c => !is_unseen(c),
        };
        if !harmless {
            return true;
        }
        before = c;
    }
    false
}

/// A JSON text with the same values, in which everything that could drive a terminal, turn text around or hide in it
/// stands as an escape (`\\u202e`).
pub fn in_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && is_unseen(c) {
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

/// Everything of which a reader sees nothing, or something else than is there.
fn is_unseen(c: char) -> bool {
    // Most of what anybody writes.
    if (' '..='~').contains(&c) {
        return false;
    }
    c.is_control() || is_invisible(c) || is_hidden(c) || is_blank(c) || is_nothing(c)
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

/// More that cannot be seen: what Unicode says is to be ignored where it is not known (`Default_Ignorable_Code_Point`),
/// and controls of a format. Some scripts and pictures are written with these, so they are not marked wherever they
/// stand; who is asked to take a change over hears of them.
pub(crate) fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{00ad}' | '\u{034f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{200c}' | '\u{3164}' | '\u{ffa0}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2061}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0e}'
            | '\u{fff0}'..='\u{fffc}'
            | '\u{1d159}'
            | '\u{13430}'..='\u{1345f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0080}'..='\u{e0fff}'
    ) || is_private(c)
}

/// What is whatever somebody's font says, and what will never be a character.
fn is_private(c: char) -> bool {
    matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fdd0}'..='\u{fdef}' | '\u{f0000}'..='\u{10ffff}')
        || u32::from(c) & 0xfffe == 0xfffe
}

/// What joins pictures, and is everywhere where they are.
fn is_nothing(c: char) -> bool {
    matches!(c, '\u{200d}' | '\u{fe0f}')
}

/// What looks like a space, or like none, and is no space.
fn is_blank(c: char) -> bool {
    matches!(
        c,
        '\u{00a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{2800}' | '\u{3000}'
    )
}

/// Whether a script joins these two, or keeps them apart, by a character of its own.
fn joins(before: char, after: char) -> bool {
    let indic = |c: char| matches!(c, '\u{900}'..='\u{dff}');
    (is_arabic(before) && is_arabic(after)) || (indic(before) && indic(after))
}

/// Whether it is of a script that is written from right to left.
fn runs_left(c: char) -> bool {
    matches!(c, '\u{5d0}'..='\u{5f4}' | '\u{fb1d}'..='\u{fb4f}') || is_arabic(c)
}

fn is_arabic(c: char) -> bool {
    matches!(
        c,
        '\u{620}'..='\u{6ff}' | '\u{750}'..='\u{77f}' | '\u{8a0}'..='\u{8ff}' | '\u{fb50}'..='\u{fdcf}'
            | '\u{fdf0}'..='\u{fdff}'
            | '\u{fe70}'..='\u{fefc}'
    )
}

/// Characters that a picture is made of.
fn is_picture(c: char) -> bool {
    matches!(
        c,
        '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{3030}' | '\u{303d}' | '\u{3297}'
            | '\u{3299}'
            | '\u{2190}'..='\u{21ff}'
            | '\u{2300}'..='\u{23ff}'
            | '\u{2460}'..='\u{24ff}'
            | '\u{25a0}'..='\u{27bf}'
            | '\u{2900}'..='\u{297f}'
            | '\u{2b00}'..='\u{2bff}'
            | '\u{1f000}'..='\u{1faff}'
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
        assert!(!text.chars().any(|c| c != '\n' && is_unseen(c)), "{text}");
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

    /// Default_Ignorable_Code_Point of Unicode 16, formats, private use, what is no character, and what is no space.
    #[test]
    fn everything_that_is_written_and_not_seen_is_marked() {
        let ranges = [
            (0xad, 0xad),
            (0x34f, 0x34f),
            (0x61c, 0x61c),
            (0x115f, 0x1160),
            (0x17b4, 0x17b5),
            (0x180b, 0x180f),
            (0x2000, 0x200f),
            (0x2028, 0x202f),
            (0x205f, 0x206f),
            (0x2800, 0x2800),
            (0x3164, 0x3164),
            (0xe000, 0xf8ff),
            (0xfdd0, 0xfdef),
            (0xfe00, 0xfe0f),
            (0xfeff, 0xfeff),
            (0xffa0, 0xffa0),
            (0xfff0, 0xfffc),
            (0x1_d159, 0x1_d159),
            (0xfffe, 0xffff),
            (0x1_bca0, 0x1_bca3),
            (0x1_d173, 0x1_d17a),
            (0x1_fffe, 0x1_ffff),
            (0xe_0000, 0xe_0fff),
            (0xf_0000, 0x10_ffff),
            (0x80, 0x9f),
            (0x7f, 0x7f),
        ];
        for c in ranges.into_iter().flat_map(|(from, to)| from..=to).filter_map(char::from_u32) {
            let text = format!("a{c}b");
            let mark = format!("a<U+{:04X}>b", u32::from(c));
            assert_eq!(marked(text.as_bytes()), mark);
            // A space is one, of whatever width.
            assert_eq!(hides(&text), c != '\u{202f}', "{mark}");
            let json = in_json(&serde_json::to_string(&text).unwrap());
            assert!(json.is_ascii() && serde_json::from_str::<String>(&json).unwrap() == text, "{json}");
        }
    }

    #[test]
    fn what_people_write_is_not_hidden_and_pictures_are_shown() {
        for text in [
            "naïve — „ja“ 你好 שלום ελ",
            "a\r\nb\tc",
            "10\u{a0}km, 1\u{202f}000 «\u{a0}oui\u{a0}» \u{3000}日本",
            "\u{645}\u{6cc}\u{200c}\u{62e}\u{648}\u{627}\u{647}\u{645} \u{915}\u{94d}\u{200d}\u{937} \u{915}\u{94d}\u{200c}\u{937}",
            "\u{5e9}\u{5dc}\u{5d5}\u{5dd}\u{200f} \u{200e}\u{5d0}\u{200f}\u{5d1}\u{200f}",
            "\u{2194}\u{fe0e} \u{2764}\u{fe0e}",
            "\u{1f469}\u{200d}\u{1f4bb} \u{2764}\u{fe0f} 1\u{fe0f}\u{20e3}",
        ] {
            assert!(!hides(text), "{text}");
        }
        assert_eq!(marked("\u{1f600} ok".as_bytes()), "\u{1f600} ok");
        assert_eq!(marked("\u{2764}\u{fe0f}".as_bytes()), "\u{2764}<U+FE0F>");
        assert!(
            hides("\u{645}\u{200c}\u{200c}\u{6cc}")
                && hides("\u{645}\u{200d}\u{915}")
                && hides("\u{645}\u{200c}a")
                && hides("\u{645}\u{200c}")
                && hides("a\u{200f}\u{5d0}")
                && hides("\u{5d0}\u{200f}\u{200f}\u{5d1}")
                && hides("\u{5d0}\u{202e}\u{5d1}")
                && hides("a \u{200f} b")
                && hides("a\u{fe0e}")
        );
        // Marked they are all the same.
        assert_eq!(marked("1\u{a0}\u{645}\u{200c}\u{6cc}".as_bytes()), "1<U+00A0>\u{645}<U+200C>\u{6cc}");
        assert!(
            hides("a\u{200d}b") && hides("a\u{fe0f}") && hides("\u{2764}\u{fe0f}\u{fe0f}") && hides("a\rb")
        );
    }
}
