//! The name of a branch, checked before it is ever part of a path.

use std::fmt;
use std::str::FromStr;

/// Characters a name may have.
const LONGEST: usize = 64;

/// The name of a branch: lower-case letters, digits, `-` and `_`, at most 64, starting with a letter or a digit.
///
/// Nothing else becomes one, nor does what looks like a key: names are shown. There is no other way to a branch's folder. No dot, no slash and no capital is
/// among its characters, so no two names are one folder anywhere, and none leads out of `branches/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchId(String);

/// A text that is no branch's name. It is not repeated: whoever wrote it knows it, and it may be anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the name of a branch: lower-case letters, digits, `-` and `_` are expected, at most {LONGEST}, a letter or a \
     digit first"
)]
pub struct BadBranchId;

impl BranchId {
    /// Reads a name; anything else is refused, never repaired.
    ///
    /// # Errors
    /// [`BadBranchId`].
    pub fn parse(text: &str) -> Result<BranchId, BadBranchId> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let ok = text.len() <= LONGEST
            && text.bytes().next().is_some_and(plain)
            && text.bytes().all(|b| plain(b) || b == b'-' || b == b'_')
            && !policy::narrower::has_key(text);
        if ok { Ok(BranchId(text.to_owned())) } else { Err(BadBranchId) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BranchId {
    type Err = BadBranchId;

    fn from_str(text: &str) -> Result<BranchId, BadBranchId> {
        BranchId::parse(text)
    }
}

impl fmt::Display for BranchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w9_nothing_that_could_lead_elsewhere_is_a_name() {
        let long = "a".repeat(65);
        let bad = [
            "../baseline",
            "sk-abcdefghijklmnop",
            "..",
            ".",
            "",
            "/",
            "/etc",
            "a/b",
            "a/../b",
            "a\\b",
            ".hidden",
            "a.b",
            "-x",
            "--json",
            "_x",
            "a\0",
            "\0",
            "a b",
            " a",
            "a ",
            "a\n",
            "Baseline",
            "A",
            "é",
            "а",
            "ａ",
            "a\u{202e}b",
            "a\u{200b}",
            "~",
            "$x",
            "a;b",
            "%2e%2e",
            "history\u{0}",
            long.as_str(),
        ];
        for text in bad {
            assert_eq!(BranchId::parse(text), Err(BadBranchId), "{text:?}");
        }
    }

    #[test]
    fn plain_names_are_names() {
        for text in ["a", "0", "2026-11-30-shorter_prompt", "baseline", "a-", &"a".repeat(64)] {
            assert_eq!(BranchId::parse(text).unwrap().as_str(), text);
        }
    }
}
