//! JSON Schemas of the files, generated from the types that read them.

/// A kind of file that has a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaKind {
    /// `oubliette.toml`.
    Deployment,
    /// `guild.toml`.
    Guild,
}

/// The schema of a kind of file.
pub fn schema(_kind: SchemaKind) -> serde_json::Value {
    serde_json::Value::Null
}
