//! `read_artifact`: the full text of a result that was shortened.

use serde::Deserialize;
use serde_json::{Value, json};

use super::read_file;
use crate::{BenchError, Workbench};

/// Its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    pub(crate) id: String,
    /// First line, from 1.
    pub(crate) offset: Option<u64>,
    /// Lines at most.
    pub(crate) limit: Option<u64>,
}

pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "minLength": 1},
            "offset": {"type": "integer", "minimum": 0},
            "limit": {"type": "integer", "minimum": 1},
        },
        "required": ["id"],
        "additionalProperties": false,
    })
}

impl Args {
    /// Reads it from what this run has kept. Nothing happens in a sandbox: artifacts are not in it.
    pub(crate) fn run<W: Workbench>(&self, bench: &W, to_model: usize) -> Result<String, BenchError> {
        let id = self.id.trim();
        let Some(text) = bench.kept(id)? else {
            return Ok(format!(
                "error: this run has no artifact {}; its id stands where a result was shortened",
                crate::text::label(id, 80)
            ));
        };
        let name = format!("artifact {}", id.get(..12).unwrap_or(id));
        Ok(read_file::lines(&name, &text, (self.offset, self.limit), "", to_model))
    }
}
