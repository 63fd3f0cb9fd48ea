//! Values that must never appear in a record, whatever form they take.

use serde_json::Value;

/// Values shorter than this are not masked: they would tear ordinary text apart.
const SHORTEST: usize = 4;
/// Base 64 fragments shorter than this say too little to be looked for.
const SHORTEST_CODED: usize = 5;

/// Every form of every secret, and what is put in its place.
#[derive(Clone, Debug)]
pub struct Mask {
    /// Longest first.
    forms: Vec<Form>,
    starts: Box<[bool; 256]>,
    longest: usize,
}

#[derive(Clone)]
struct Form {
    find: Vec<u8>,
    put: Vec<u8>,
}

impl std::fmt::Debug for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.put))
    }
}

/// Masks a stream piece by piece; a value that lies across two pieces is found too.
#[derive(Debug)]
pub(crate) struct MaskStream {
    mask: Mask,
    held: Vec<u8>,
}

impl Mask {
    /// Masks these values, by name. Of values with several lines each longer line is masked as well.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a str)>) -> Mask {
        let mut forms = Vec::new();
        for (name, value) in secrets {
            let name: String =
                name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
            let put = format!("[masked:{name}]").into_bytes();
            let lines = value.lines().filter(|l| l.trim().len() >= 8);
            for value in [value, value.trim()].into_iter().chain(lines) {
                for find in forms_of(value) {
                    if !forms.iter().any(|f: &Form| f.find == find) {
                        forms.push(Form { find, put: put.clone() });
                    }
                }
            }
        }
        forms.sort_by_key(|f| std::cmp::Reverse(f.find.len()));
        let mut starts = Box::new([false; 256]);
        for first in forms.iter().filter_map(|f| f.find.first()) {
            starts[usize::from(*first)] = true;
        }
        let longest = forms.first().map_or(0, |f| f.find.len());
        Mask { forms, starts, longest }
    }

    /// The bytes with every secret replaced by `[masked:NAME]`.
    pub fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        self.pass(bytes, bytes.len(), &mut out);
        out
    }

    /// The text with every secret replaced by `[masked:NAME]`.
    pub fn text(&self, text: &str) -> String {
        if self.forms.is_empty() {
            return text.to_owned();
        }
        String::from_utf8_lossy(&self.bytes(text.as_bytes())).into_owned()
    }

    /// The same for every text in a value, keys included.
    pub(crate) fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => Value::Array(items.into_iter().map(|v| self.value(v)).collect()),
            Value::Object(map) => {
                Value::Object(map.into_iter().map(|(k, v)| (self.text(&k), self.value(v))).collect())
            }
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
        }
    }

    pub(crate) fn stream(&self) -> MaskStream {
        MaskStream { mask: self.clone(), held: Vec::new() }
    }

    /// Looks at every start below `until` and says where it stopped (a match may reach past it).
    fn pass(&self, bytes: &[u8], until: usize, out: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while at < until {
            let first = bytes[at];
            let found = if self.starts[usize::from(first)] {
                self.forms.iter().find(|f| bytes[at..].starts_with(&f.find))
            } else {
                None
            };
            if let Some(form) = found {
                out.extend_from_slice(&form.put);
                at += form.find.len();
            } else {
                out.push(first);
                at += 1;
            }
        }
        at
    }
}

impl MaskStream {
    /// Takes a piece and gives back what can be told so far.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        if self.mask.forms.is_empty() {
            return piece.to_vec();
        }
        self.held.extend_from_slice(piece);
        let until = (self.held.len() + 1).saturating_sub(self.mask.longest);
        let mut out = Vec::with_capacity(until);
        let at = self.mask.pass(&self.held, until, &mut out);
        self.held.drain(..at);
        out
    }

    /// The rest.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        self.mask.bytes(&held)
    }
}

fn forms_of(value: &str) -> Vec<Vec<u8>> {
    let raw = value.as_bytes();
    if raw.len() < SHORTEST {
        return Vec::new();
    }
    let mut forms = vec![raw.to_vec()];
    // As it stands inside a JSON text, once and twice encoded.
    let mut text = value.to_owned();
    for _ in 0..2 {
        text = serde_json::to_string(&text).map(|t| t[1..t.len() - 1].to_owned()).unwrap_or(text);
        forms.push(text.clone().into_bytes());
    }
    let hex: String = raw.iter().map(|b| format!("{b:02x}")).collect();
    forms.push(hex.to_ascii_uppercase().into_bytes());
    forms.push(hex.into_bytes());
    for alphabet in [STANDARD, URL] {
        forms.extend(
            (0..3).map(|shift| base64_core(raw, shift, alphabet)).filter(|c| c.len() >= SHORTEST_CODED),
        );
    }
    forms
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mask() -> Mask {
        Mask::new([("KEY", "s3cr\"et-value")])
    }

    #[test]
    fn r58_every_form_is_masked() {
        let m = mask();
        assert_eq!(m.text("a s3cr\"et-value b"), "a [masked:KEY] b");
        assert_eq!(m.text(r#"{"k":"s3cr\"et-value"}"#), r#"{"k":"[masked:KEY]"}"#);
        assert_eq!(m.text(r#"s3cr\\\"et-value"#), "[masked:KEY]");
        // base64 of `s3cr"et-value`, and of it behind one and two other bytes.
        for coded in ["czNjciJldC12YWx1ZQ==", "eHMzY3IiZXQtdmFsdWU=", "eHhzM2NyImV0LXZhbHVl"] {
            assert!(m.text(coded).contains("[masked:KEY]"), "{coded}");
        }
        assert!(m.text("733363722265742d76616c7565").contains("[masked:KEY]"));
    }

    #[test]
    fn r58_a_value_across_two_pieces_is_masked() {
        for split in 0..17 {
            let text = b"x s3cr\"et-value y";
            let mut s = mask().stream();
            let mut out = s.push(&text[..split]);
            out.extend(s.push(&text[split..]));
            out.extend(s.end());
            assert_eq!(out, b"x [masked:KEY] y", "split at {split}");
        }
    }

    #[test]
    fn short_values_are_left_alone() {
        assert_eq!(Mask::new([("K", "abc")]).text("abc"), "abc");
    }

    #[test]
    fn lines_of_a_long_value_are_masked_alone() {
        let m = Mask::new([("PEM", "-----BEGIN-----\nAAAABBBBCCCC\n")]);
        assert_eq!(m.text("  AAAABBBBCCCC"), "  [masked:PEM]");
    }
}
