//! `finish`: the role's own last word. It proves nothing.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a role claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The task is done.
    Done,
    /// It could not be done.
    Failed,
}

/// Its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    pub(crate) status: Status,
    pub(crate) summary: String,
    #[serde(default)]
    pub(crate) artifacts: Vec<String>,
}

pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["done", "failed"]},
            "summary": {"type": "string"},
            "artifacts": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["status", "summary"],
        "additionalProperties": false,
    })
}

impl Args {
    /// The summary as it may be shown, with the named artifacts.
    pub(crate) fn said(&self) -> String {
        let mut text = crate::text::bound(&crate::text::clean(&self.summary), 4000);
        if !self.artifacts.is_empty() {
            let names: Vec<String> =
                self.artifacts.iter().take(20).map(|a| crate::text::label(a, 120)).collect();
            text.push_str(&format!("\nartifacts: {}", names.join(", ")));
        }
        text
    }
}
