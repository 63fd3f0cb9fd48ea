//! `write_file`: a whole file, created or replaced.

use policy::Tool;
use runs::FileOp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Said, Tools, guest_error, inner};
use crate::{BenchError, Workbench};

/// Its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    pub(crate) path: String,
    pub(crate) content: String,
}

pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"path": {"type": "string", "minLength": 1}, "content": {"type": "string"}},
        "required": ["path", "content"],
        "additionalProperties": false,
    })
}

impl Args {
    pub(crate) async fn run<W: Workbench>(&self, tools: &Tools<'_, W>) -> Result<Said, BenchError> {
        let op = FileOp::Write { path: inner(&self.path) };
        let done = tools.file(Tool::WriteFile, op, self.content.clone().into_bytes()).await?;
        let text = match &done.answer {
            Err(error) => guest_error(&self.path, error),
            Ok(answer) => {
                let created = answer.get("created").and_then(Value::as_bool).unwrap_or_default();
                let what = if created { "created" } else { "replaced" };
                format!("{what} {} ({} bytes)", crate::text::label(&self.path, 200), self.content.len())
            }
        };
        Ok(Said { text, last_call: done.call })
    }
}
