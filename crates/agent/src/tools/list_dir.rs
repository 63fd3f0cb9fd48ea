//! `list_dir`: names in a folder.

use policy::Tool;
use runs::FileOp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{PATH, Said, Tools, guest_error, inner};
use crate::{BenchError, Workbench};

/// Entries that are shown.
const LIMIT: u32 = 200;

/// Its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    pub(crate) path: Option<String>,
    pub(crate) limit: Option<u64>,
}

pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}},
        "required": [],
        "additionalProperties": false,
    })
}

impl Args {
    pub(crate) async fn run<W: Workbench>(&self, tools: &Tools<'_, W>) -> Result<Said, BenchError> {
        let path = self.path.as_deref().unwrap_or(".");
        let op = FileOp::List { path: inner(path), limit: super::at_most(self.limit, LIMIT) };
        let done = tools.file(Tool::ListDir, op, Vec::new()).await?;
        let text = match &done.answer {
            Err(error) => guest_error(path, error),
            Ok(answer) => show(answer),
        };
        Ok(Said { text, last_call: done.call })
    }
}

fn show(answer: &Value) -> String {
    let empty = Vec::new();
    let entries = answer.get("entries").and_then(Value::as_array).unwrap_or(&empty);
    let rows: Vec<String> = entries
        .iter()
        .take(usize::try_from(LIMIT).unwrap_or(usize::MAX))
        .map(|e| {
            let name = crate::text::label(e.get("name").and_then(Value::as_str).unwrap_or("?"), PATH);
            let size = e.get("size").and_then(Value::as_u64).unwrap_or_default();
            match e.get("kind").and_then(Value::as_str) {
                Some("dir") => format!("{name}/"),
                Some("file") => format!("{name}  {size} bytes"),
                Some("link") => format!("{name}  link"),
                _ => format!("{name}  other"),
            }
        })
        .collect();
    let more = answer.get("more").and_then(Value::as_u64).unwrap_or_default();
    match (rows.is_empty(), more) {
        (true, _) => "the folder is empty".to_owned(),
        (false, 0) => rows.join("\n"),
        (false, more) => format!("{}\n({more} more)", rows.join("\n")),
    }
}
