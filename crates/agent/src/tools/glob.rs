//! `glob`: paths that match a pattern, in all folders.

use policy::Tool;
use runs::FileOp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{PATH, Said, Tools, guest_error, inner, left_out};
use crate::{BenchError, Workbench};

/// Paths that are shown.
const LIMIT: u32 = 200;

/// Its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    pub(crate) pattern: String,
    pub(crate) path: Option<String>,
    pub(crate) limit: Option<u64>,
    #[serde(default)]
    pub(crate) ignored: bool,
}

pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "minLength": 1},
            "path": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1},
            "ignored": {"type": "boolean"},
        },
        "required": ["pattern"],
        "additionalProperties": false,
    })
}

impl Args {
    pub(crate) async fn run<W: Workbench>(&self, tools: &Tools<'_, W>) -> Result<Said, BenchError> {
        let path = self.path.as_deref().unwrap_or(".");
        let op = FileOp::Glob {
            pattern: self.pattern.clone(),
            path: inner(path),
            limit: super::at_most(self.limit, LIMIT),
            ignored: self.ignored,
        };
        let done = tools.file(Tool::Glob, op, Vec::new()).await?;
        let text = match &done.answer {
            Err(error) => guest_error(path, error),
            Ok(answer) => show(answer),
        };
        Ok(Said { text, last_call: done.call })
    }
}

fn show(answer: &Value) -> String {
    let empty = Vec::new();
    let paths = answer.get("paths").and_then(Value::as_array).unwrap_or(&empty);
    let rows: Vec<String> = paths
        .iter()
        .take(usize::try_from(LIMIT).unwrap_or(usize::MAX))
        .map(|path| crate::text::label(path.as_str().unwrap_or("?"), PATH))
        .collect();
    let rows = if rows.is_empty() { "no path matches".to_owned() } else { rows.join("\n") };
    format!("{rows}{}", left_out(answer))
}
