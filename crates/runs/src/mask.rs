//! Values that must never appear in a record, whatever form they take.

use std::sync::Arc;

use policy::{FormAt, Forms};
use serde_json::Value;

/// Every form of every secret, and what is put in its place.
#[derive(Clone, Debug)]
pub struct Mask {
    forms: Forms,
    /// For each value.
    put: Arc<[Vec<u8>]>,
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
        let (mut values, mut put) = (Vec::new(), Vec::new());
        for (name, value) in secrets {
            let name: String =
                name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
            let lines = value.lines().filter(|l| l.trim().len() >= 8);
            for value in [value, value.trim()].into_iter().chain(lines) {
                values.push(value);
                put.push(format!("[masked:{name}]").into_bytes());
            }
        }
        Mask { forms: Forms::new(values), put: put.into() }
    }

    /// The bytes with every secret replaced by `[masked:NAME]`.
    pub fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        self.pass(bytes, false, &mut out);
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

    /// Looks at every start, and says where it stopped because a value may begin there.
    fn pass(&self, bytes: &[u8], more: bool, out: &mut Vec<u8>) -> usize {
        let mut at = 0;
        loop {
            let plain = self.forms.before(&bytes[at..]);
            out.extend_from_slice(&bytes[at..at + plain]);
            at += plain;
            if at == bytes.len() {
                break;
            }
            match self.forms.at(&bytes[at..], more) {
                FormAt::Nothing => {
                    out.push(bytes[at]);
                    at += 1;
                }
                FormAt::Maybe => break,
                FormAt::Value { which, length } => {
                    out.extend_from_slice(&self.put[which]);
                    at += length;
                }
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
        let mut out = Vec::with_capacity(self.held.len());
        let at = self.mask.pass(&self.held, true, &mut out);
        self.held.drain(..at);
        out
    }

    /// The rest.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        self.mask.bytes(&held)
    }
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
