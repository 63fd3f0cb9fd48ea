//! `agent`: another role of the same Guild, asked in a fresh conversation.

use policy::RoleName;
use serde::Deserialize;
use serde_json::{Value, json};

/// Its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    pub(crate) role: String,
    pub(crate) task: String,
}

pub(crate) fn schema(agents: &[RoleName]) -> Value {
    let names: Vec<&str> = agents.iter().map(RoleName::as_str).collect();
    let role =
        if names.is_empty() { json!({"type": "string"}) } else { json!({"type": "string", "enum": names}) };
    json!({
        "type": "object",
        "properties": {"role": role, "task": {"type": "string", "minLength": 1}},
        "required": ["role", "task"],
        "additionalProperties": false,
    })
}
