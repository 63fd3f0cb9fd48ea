//! `search`: lines that match a linear-time pattern.

use policy::Tool;
use runs::FileOp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{PATH, Said, Tools, guest_error, inner, left_out};
use crate::{BenchError, Workbench};

/// Matches that are shown.
const LIMIT: u32 = 100;

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
        let op = FileOp::Search {
            pattern: self.pattern.clone(),
            path: inner(path),
            limit: super::at_most(self.limit, LIMIT),
            ignored: self.ignored,
        };
        let done = tools.file(Tool::Search, op, Vec::new()).await?;
        let text = match &done.answer {
            Err(error) => guest_error(path, error),
            Ok(answer) => show(answer),
        };
        Ok(Said { text, last_call: done.call })
    }
}

fn show(answer: &Value) -> String {
    let empty = Vec::new();
    let matches = answer.get("matches").and_then(Value::as_array).unwrap_or(&empty);
    let rows: Vec<String> = matches
        .iter()
        .take(usize::try_from(LIMIT).unwrap_or(usize::MAX))
        .map(|m| {
            let text =
                |k: &str, max| crate::text::label(m.get(k).and_then(Value::as_str).unwrap_or("?"), max);
            let line = m.get("line").and_then(Value::as_u64).unwrap_or_default();
            format!("{}:{line}: {}", text("path", PATH), text("text", 300))
        })
        .collect();
    let files = answer.get("files").and_then(Value::as_u64).unwrap_or_default();
    let rows = if rows.is_empty() { format!("no match in {files} files") } else { rows.join("\n") };
    format!("{rows}{}", left_out(answer))
}
