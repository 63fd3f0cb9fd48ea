//! The files of a Guild, as its loader has read them: this crate opens none.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::RoleName;

/// The texts and digests behind a Guild's paths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GuildFiles {
    /// The prompt of each role.
    pub prompts: BTreeMap<RoleName, PromptText>,
    /// The tools of the Guild's own, by name.
    pub tools: BTreeMap<String, ToolFiles>,
    /// What else lies in its folder, and nothing names: paths as they may be shown, with the digest of each, or what it
    /// is instead of a file.
    pub others: BTreeMap<String, String>,
}

/// A prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptText {
    /// The whole text.
    pub text: String,
    /// SHA-256 of it, in hexadecimal digits.
    pub digest: String,
    /// Whether characters are in it that nobody sees, or that turn the text around.
    pub hidden: bool,
}

/// What is behind a tool of the Guild's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolFiles {
    /// Its line for the model.
    pub description: String,
    /// The schema of its arguments.
    pub schema: Value,
    /// SHA-256 of its module, in hexadecimal digits.
    pub module: String,
    /// Whether characters are in the description that nobody sees, or that turn the text around.
    pub hidden: bool,
}
