//! JSON Schemas of the files, generated from the types that read them.
//!
//! The same schema is printed for editors, kept in `docs/schema` and used to check a file.

use std::sync::LazyLock;

use serde_json::Value;

use crate::deployment::RawDeployment;
use crate::guild::RawGuild;

/// A kind of file that has a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaKind {
    /// `oubliette.toml`.
    Deployment,
    /// `guild.toml`.
    Guild,
}

/// A word that names no kind of file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no schema of that name; the kinds are `deployment` and `guild`")]
pub struct UnknownKind;

impl SchemaKind {
    /// Every kind.
    pub const ALL: [SchemaKind; 2] = [SchemaKind::Deployment, SchemaKind::Guild];

    /// The name used on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            SchemaKind::Deployment => "deployment",
            SchemaKind::Guild => "guild",
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
    generated(kind).clone()
}

/// The schema of a kind of file, made once.
pub(crate) fn generated(kind: SchemaKind) -> &'static Value {
    static DEPLOYMENT: LazyLock<Value> = LazyLock::new(|| without_null(schemars::schema_for!(RawDeployment)));
    static GUILD: LazyLock<Value> = LazyLock::new(|| without_null(schemars::schema_for!(RawGuild)));
    match kind {
        SchemaKind::Deployment => &DEPLOYMENT,
        SchemaKind::Guild => &GUILD,
    }
}

/// TOML has no null: a key that may be left out is just not required. What a type says of `Option` is dropped.
fn without_null(schema: schemars::Schema) -> Value {
    let mut value = schema.to_value();
    drop_null(&mut value);
    value
}

fn drop_null(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if let Some(Value::Array(types)) = members.get_mut("type") {
                types.retain(|t| t != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    members.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(branches)) = members.get_mut("anyOf") {
                branches.retain(|b| b.get("type").is_none_or(|t| t != "null"));
                if let [Value::Object(only)] = branches.as_slice() {
                    let only = only.clone();
                    members.shift_remove("anyOf");
                    members.extend(only);
                }
            }
            members.values_mut().for_each(drop_null);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
