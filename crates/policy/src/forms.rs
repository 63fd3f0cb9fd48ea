//! Secret values as they come back: in whatever spelling programs give a text on its way.
//!
//! A value is looked for as it is, in hexadecimal and in base 64 behind any other bytes; and each of these with any of its
//! characters escaped as JSON, URLs and HTML do it, once or twice over, in any mixture. Who wants to hide a value has
//! endless other spellings: this finds what is repeated, not what is smuggled.

use std::fmt;
use std::sync::Arc;

/// What begins a spelling that is not the byte itself.
const ESCAPES: [u8; 5] = *b"%\\&+=";
/// Values shorter than this are not looked for: they would tear ordinary text apart.
const SHORTEST: usize = 4;
/// Base 64 fragments shorter than this say too little.
const SHORTEST_CODED: usize = 5;

/// Every form of some values. Cheap to clone; shows none of them.
#[derive(Clone)]
pub struct Forms {
    inner: Arc<Inner>,
}

struct Inner {
    needles: Vec<Needle>,
    /// Bytes that a form begins with.
    starts: [bool; 256],
    /// Of each byte that occurs its spellings, other than itself.
    spellings: Vec<Vec<Vec<u8>>>,
}

struct Needle {
    which: usize,
    bytes: Vec<u8>,
}

/// What a text begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormAt {
    /// No value.
    Nothing,
    /// What may become a value, or a longer one, with more text.
    Maybe,
    /// A value.
    Value {
        /// Which one, counted from 0.
        which: usize,
        /// Bytes of the text that it takes.
        length: usize,
    },
}

impl Forms {
    /// The forms of these values.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Forms {
        let mut needles: Vec<Needle> = Vec::new();
        for (which, value) in values.into_iter().enumerate() {
            for bytes in codes(value) {
                if !needles.iter().any(|needle| needle.bytes == bytes) {
                    needles.push(Needle { which, bytes });
                }
            }
        }
        let mut spellings = vec![Vec::new(); 256];
        for byte in needles.iter().flat_map(|needle| &needle.bytes) {
            let of: &mut Vec<Vec<u8>> = &mut spellings[usize::from(*byte)];
            if of.is_empty() {
                *of = spelt(*byte);
            }
        }
        let mut starts = [false; 256];
        for first in needles.iter().filter_map(|needle| needle.bytes.first()) {
            starts[usize::from(*first)] = true;
            for spelling in &spellings[usize::from(*first)] {
                starts[usize::from(spelling[0])] = true;
            }
        }
        Forms { inner: Arc::new(Inner { needles, starts, spellings }) }
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.inner.needles.is_empty()
    }

    /// How many bytes of the text pass before a value may begin.
    pub fn before(&self, text: &[u8]) -> usize {
        text.iter().position(|byte| self.inner.starts[usize::from(*byte)]).unwrap_or(text.len())
    }

    /// The longest value that the text begins with; `more` says that the text may go on.
    pub fn at(&self, text: &[u8], more: bool) -> FormAt {
        let starts = text.first().is_some_and(|first| self.inner.starts[usize::from(*first)]);
        if !starts {
            return FormAt::Nothing;
        }
        let mut best: Option<(usize, usize)> = None;
        for needle in &self.inner.needles {
            let (length, open) = self.length(&needle.bytes, text);
            if open && more {
                return FormAt::Maybe;
            }
            if let Some(length) = length
                && best.is_none_or(|(_, longest)| length > longest)
            {
                best = Some((needle.which, length));
            }
        }
        best.map_or(FormAt::Nothing, |(which, length)| FormAt::Value { which, length })
    }

    /// How much of the text spells these bytes, and whether more text could.
    fn length(&self, bytes: &[u8], text: &[u8]) -> (Option<usize>, bool) {
        let same =
            bytes.iter().zip(text).take_while(|(byte, is)| byte == is && !ESCAPES.contains(byte)).count();
        match (bytes.get(same), text.get(same)) {
            (None, _) => return (Some(same), false),
            (Some(_), None) => return (None, true),
            (Some(byte), Some(is)) if !ESCAPES.contains(byte) && !ESCAPES.contains(is) => {
                return (None, false);
            }
            (Some(_), Some(_)) => {}
        }
        // From here on a byte may be spelt in two ways, so that there are two places where it may end.
        let (mut ends, mut open) = (vec![same], false);
        for byte in &bytes[same..] {
            let mut next = Vec::new();
            for at in ends {
                let rest = &text[at..];
                match rest.first() {
                    None => open = true,
                    Some(first) if first == byte => next.push(at + 1),
                    Some(_) => {}
                }
                for spelling in &self.inner.spellings[usize::from(*byte)] {
                    let common = spelling.len().min(rest.len());
                    if common > 0 && spelling[..common].eq_ignore_ascii_case(&rest[..common]) {
                        if common == spelling.len() {
                            next.push(at + common);
                        } else {
                            open = true;
                        }
                    }
                }
            }
            next.sort_unstable();
            next.dedup();
            ends = next;
            if ends.is_empty() {
                return (None, open);
            }
        }
        (ends.last().copied(), open)
    }
}

impl fmt::Debug for Forms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// The value of a header, and each part of it that is a secret by itself: what follows the scheme, and where that is
/// `Basic`, the name with its password, and the password; where that is empty, the name.
pub fn header_secrets(value: &str) -> Vec<String> {
    let mut parts = parts(value);
    parts.retain(|part| part.len() >= SHORTEST || part == value);
    parts
}

/// Whether a part of a header's value that is a secret by itself is too short to be looked for.
pub fn is_too_short_to_hide(value: &str) -> bool {
    parts(value).iter().any(|part| part.len() < SHORTEST)
}

fn parts(value: &str) -> Vec<String> {
    let mut parts = vec![value.to_owned()];
    if let Some((scheme, rest)) = value.split_once(' ') {
        let rest = rest.trim();
        parts.push(rest.to_owned());
        if scheme.eq_ignore_ascii_case("basic")
            && let Some(login) = decoded(rest).and_then(|bytes| String::from_utf8(bytes).ok())
        {
            let secret =
                |(name, password): (&str, &str)| if password.is_empty() { name } else { password }.to_owned();
            parts.extend(login.split_once(':').map(secret));
            parts.push(login);
        }
    }
    parts
}

/// A value in each code that changes all of it.
fn codes(value: &str) -> Vec<Vec<u8>> {
    let raw = value.as_bytes();
    if raw.len() < SHORTEST {
        return Vec::new();
    }
    let hex: String = raw.iter().map(|b| format!("{b:02x}")).collect();
    let mut codes = vec![raw.to_vec(), hex.to_ascii_uppercase().into_bytes(), hex.into_bytes()];
    if !value.is_ascii() {
        // As JSON of programs that write ASCII only.
        let escaped = |c: char| -> String {
            if c.is_ascii() {
                return c.to_string();
            }
            c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
        };
        let lower: String = value.chars().map(escaped).collect();
        codes.push(lower.into_bytes());
    }
    for alphabet in [STANDARD, URL] {
        codes.extend(
            (0..3).map(|shift| base64_core(raw, shift, alphabet)).filter(|c| c.len() >= SHORTEST_CODED),
        );
    }
    codes
}

/// How a byte is written that is not written as itself; letters in either case.
fn spelt(byte: u8) -> Vec<Vec<u8>> {
    let mut all = vec![
        format!("%{byte:02x}"),
        format!("%25{byte:02x}"),
        format!("\\u{byte:04x}"),
        format!("\\\\u{byte:04x}"),
        format!("\\x{byte:02x}"),
        format!("\\\\x{byte:02x}"),
    ];
    let references = [
        format!("#{byte};"),
        format!("#{byte:03};"),
        format!("#x{byte:x};"),
        format!("#x{byte:02x};"),
        format!("#x{byte:04x};"),
    ];
    let named = match byte {
        b'&' => Some("amp;"),
        b'<' => Some("lt;"),
        b'>' => Some("gt;"),
        b'"' => Some("quot;"),
        b'\'' => Some("apos;"),
        _ => None,
    };
    for reference in references.iter().map(String::as_str).chain(named) {
        all.push(format!("&{reference}"));
        all.push(format!("&amp;{reference}"));
    }
    let escape = match byte {
        b'"' | b'\'' | b'/' => Some(char::from(byte)),
        b'\n' => Some('n'),
        b'\r' => Some('r'),
        b'\t' => Some('t'),
        _ => None,
    };
    if let Some(escape) = escape {
        all.extend(["\\", "\\\\", "\\\\\\"].map(|before| format!("{before}{escape}")));
    }
    match byte {
        b'\\' => all.extend(["\\\\".to_owned(), "\\\\\\\\".to_owned()]),
        b' ' => all.push("+".to_owned()),
        b'=' => all.push("=3d".to_owned()),
        _ => {}
    }
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(String::into_bytes).collect()
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The characters of base 64 that depend on `raw` alone when `shift` bytes stand before it.
fn base64_core(raw: &[u8], shift: usize, alphabet: &[u8; 64]) -> Vec<u8> {
    let bit = |i: usize| -> usize {
        let byte = raw.get(i / 8).copied().unwrap_or(0);
        usize::from((byte >> (7 - i % 8)) & 1)
    };
    let first = (6 - (shift * 8) % 6) % 6;
    let whole = (raw.len() * 8).saturating_sub(first) / 6;
    (0..whole).map(|n| alphabet[(0..6).fold(0, |v, k| (v << 1) | bit(first + n * 6 + k))]).collect()
}

/// The bytes of a text in base 64, of either alphabet.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0_u32);
    for byte in text.trim_end_matches('=').bytes() {
        let value = [STANDARD, URL].iter().find_map(|all| all.iter().position(|b| *b == byte))?;
        held = (held << 6 | u32::try_from(value).ok()?) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(forms: &Forms, text: &str) -> bool {
        let found = forms.at(text.as_bytes(), false);
        found == FormAt::Value { which: 0, length: text.len() }
    }

    #[test]
    fn r58_a_value_is_found_in_every_usual_spelling() {
        let forms = Forms::new(["s3cr\"et/a+b=<&'x>\\ y"]);
        for text in [
            "s3cr\"et/a+b=<&'x>\\ y",
            r#"s3cr\"et/a+b=<&'x>\\ y"#,
            r#"s3cr\"et\/a+b=<&'x>\\ y"#,
            r#"s3cr\\\"et\\/a+b=<&'x>\\\\ y"#,
            r#"s3cr\"et/a+b=\u003c\u0026'x\u003e\\ y"#,
            r#"s3cr\u0022et\u002Fa\u002Bb\u003D\u003C\u0026\u0027x\u003E\u005C y"#,
            "s3cr%22et%2Fa%2Bb%3D%3C%26%27x%3E%5C%20y",
            "s3cr%22et%2fa%2bb%3d%3c%26'x%3e%5c+y",
            "s3cr%2522et%252Fa%252Bb%253D%253C%2526%2527x%253E%255C%2520y",
            "s3cr&quot;et/a+b=&lt;&amp;&#39;x&gt;\\ y",
            "s3cr&#34;et&#x2F;a&#43;b&#x3D;&lt;&amp;&#039;x&gt;\\ y",
            "s3cr&amp;quot;et/a+b=&amp;lt;&amp;amp;&amp;#39;x&amp;gt;\\ y",
            "%73%33%63%72%22%65%74%2f%61%2b%62%3d%3c%26%27%78%3e%5c%20%79",
            "733363722265742f612b623d3c2627783e5c2079",
            "733363722265742F612B623D3C2627783E5C2079",
        ] {
            assert!(whole(&forms, text), "{text}");
        }
        // Base 64, and that in turn in a URL and in JSON.
        let forms = Forms::new(["??>>swordfish??"]);
        for text in [
            "Pz8+PnN3b3JkZmlzaD8/",
            "Pz8-PnN3b3JkZmlzaD8_",
            "Pz8%2BPnN3b3JkZmlzaD8%2F",
            "Pz8+PnN3b3JkZmlzaD8\\/",
        ] {
            assert!(whole(&forms, text), "{text}");
        }
        assert!(whole(&Forms::new(["schl\u{fc}ssel"]), "schl\\u00fcssel"));
    }

    #[test]
    fn what_is_only_like_a_value_is_left() {
        let forms = Forms::new(["swordfish", "Bearer swordfish"]);
        for text in ["", "swordfis", "swordFish", "Bearer", "%73wordfis", "%7", "x swordfish"] {
            assert_eq!(forms.at(text.as_bytes(), false), FormAt::Nothing, "{text}");
        }
        assert_eq!(Forms::new(["abc"]).at(b"abc", false), FormAt::Nothing);
        assert!(!format!("{forms:?}").contains("fish"));
    }

    #[test]
    fn a_text_that_may_go_on_is_told_from_one_that_cannot() {
        let forms = Forms::new(["swordfish", "swordfish and more"]);
        for (text, at) in [
            ("swordf", FormAt::Maybe),
            ("swordf%6", FormAt::Maybe),
            ("%", FormAt::Maybe),
            ("&am", FormAt::Maybe),
            ("swordfish", FormAt::Maybe),
            ("swordfish and", FormAt::Maybe),
            ("swordfish or", FormAt::Value { which: 0, length: 9 }),
            ("swordfish and more", FormAt::Value { which: 1, length: 18 }),
            ("%6", FormAt::Nothing),
            ("a", FormAt::Nothing),
        ] {
            let found = forms.at(text.as_bytes(), true);
            // `%6` may still become a letter of a code in hexadecimal.
            assert!(found == at || (text == "%6" && found == FormAt::Maybe), "{text} {found:?}");
        }
    }

    #[test]
    fn r58_the_parts_of_a_header_that_are_secrets_by_themselves() {
        assert_eq!(header_secrets("swordfish"), ["swordfish"]);
        assert_eq!(header_secrets("Bearer swordfish"), ["Bearer swordfish", "swordfish"]);
        assert_eq!(
            header_secrets("Basic dXNlcjpwYXNzd29yZA=="),
            ["Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA==", "password", "user:password"]
        );
        // A key as the name, without a password.
        assert_eq!(
            header_secrets("Basic c2tfbGl2ZV94Og=="),
            ["Basic c2tfbGl2ZV94Og==", "c2tfbGl2ZV94Og==", "sk_live_x", "sk_live_x:"]
        );
        assert_eq!(header_secrets("basic !"), ["basic !"]);
    }

    #[test]
    fn r58_a_value_with_a_part_that_could_not_be_found_is_told_from_others() {
        for (value, short) in [
            ("a", true),
            ("abc", true),
            ("abcd", false),
            ("Bearer abc", true),
            ("Bearer abcd", false),
            ("Basic dXNlcjpwdw==", true),      // user:pw
            ("Basic dTpwYXNz", false),         // u:pass
            ("Basic c2tfbGl2ZV94Og==", false), // sk_live_x:
            ("Basic c2s6", true),              // sk:
        ] {
            assert_eq!(is_too_short_to_hide(value), short, "{value}");
        }
    }
}
