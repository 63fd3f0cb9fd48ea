//! Checked names.

use serde::Serialize;

/// The name of a role: letters, digits, `_` and `-`, at most 64, starting with a letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RoleName(String);

/// The name of an environment variable, never a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct EnvName(String);

/// A relative path that stays in the Guild folder: no `..`, no root, no empty part, no control character.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct GuildPath(String);

macro_rules! text {
    ($($name:ident),*) => {$(
        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}
text!(RoleName, EnvName, GuildPath);

impl RoleName {
    /// Checks a name.
    pub fn new(text: &str) -> Option<RoleName> {
        let mut chars = text.chars();
        let first = chars.next()?;
        let ok = first.is_ascii_alphabetic()
            && text.len() <= 64
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        ok.then(|| RoleName(text.to_owned()))
    }
}

impl EnvName {
    /// Checks a name: letters, digits and `_`, at most 128, not starting with a digit.
    pub fn new(text: &str) -> Option<EnvName> {
        let first = text.chars().next()?;
        let ok = !first.is_ascii_digit()
            && text.len() <= 128
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        ok.then(|| EnvName(text.to_owned()))
    }
}

impl GuildPath {
    /// Checks a path.
    pub fn new(text: &str) -> Option<GuildPath> {
        let ok = !text.is_empty()
            && text.len() <= 512
            && !text.chars().any(|c| c.is_control() || c == '\\')
            && text.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        ok.then(|| GuildPath(text.to_owned()))
    }
}
