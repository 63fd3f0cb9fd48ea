//! The kinds of file, and their schemas: printed for editors, kept in `docs/schema`, used to check a file.

use serde_json::Value;

use crate::{deployment, guild, waivers};

/// A kind of file that has a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaKind {
    /// `oubliette.toml`.
    Deployment,
    /// `guild.toml`.
    Guild,
    /// `foundry.toml`.
    Foundry,
}

/// A word that names no kind of file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no schema of that name; the kinds are `deployment`, `guild` and `foundry`")]
pub struct UnknownKind;

impl SchemaKind {
    /// Every kind.
    pub const ALL: [SchemaKind; 3] = [SchemaKind::Deployment, SchemaKind::Guild, SchemaKind::Foundry];

    /// The name used on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            SchemaKind::Deployment => "deployment",
            SchemaKind::Guild => "guild",
            SchemaKind::Foundry => "foundry",
        }
    }
}

impl std::fmt::Display for SchemaKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for SchemaKind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        SchemaKind::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownKind)
    }
}

/// The schema of a kind of file.
pub fn schema(kind: SchemaKind) -> Value {
    match kind {
        SchemaKind::Deployment => deployment::SCHEMA.clone(),
        SchemaKind::Guild => guild::KEYS.clone(),
        SchemaKind::Foundry => waivers::KEYS.clone(),
    }
}
