//! `read_file`: numbered lines of a text file.

use policy::Tool;
use runs::FileOp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Said, Tools, guest_error, inner};
use crate::{BenchError, Workbench};

/// Bytes that are read of a file.
pub(super) const MAX_BYTES: u64 = 1 << 20;
/// Lines shown when the model does not say how many.
const LINES: u64 = 2000;
/// Characters of a line that are shown.
const LINE: usize = 2000;

/// Its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    pub(crate) path: String,
    /// First line, from 1.
    pub(crate) offset: Option<u64>,
    /// Lines at most.
    pub(crate) limit: Option<u64>,
}

pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1},
            "offset": {"type": "integer", "minimum": 0},
            "limit": {"type": "integer", "minimum": 1},
        },
        "required": ["path"],
        "additionalProperties": false,
    })
}

impl Args {
    pub(crate) async fn run<W: Workbench>(&self, tools: &Tools<'_, W>) -> Result<Said, BenchError> {
        let op = FileOp::Read { path: inner(&self.path), offset: 0, limit: tools.read_limit() };
        let done = tools.file(Tool::ReadFile, op, Vec::new()).await?;
        let text = match &done.answer {
            Err(error) => guest_error(&self.path, error),
            Ok(answer) => {
                let size = answer.get("size").and_then(Value::as_u64).unwrap_or_default();
                self.show(&done.bytes, &done.shown, size, tools.grant.call.to_model)
            }
        };
        Ok(Said { text, last_call: done.call })
    }

    /// Whole lines up to the bound, so that a cut never falls where the model cannot see it.
    fn show(&self, bytes: &[u8], shown: &str, size: u64, max: usize) -> String {
        if is_binary(bytes) {
            return format!("{} is a binary file of {size} bytes; read_file shows text only", self.name());
        }
        let read = bytes.len() as u64;
        let beyond =
            if size > read { format!(" of the first {read} bytes, {size} in all") } else { String::new() };
        lines(&self.name(), shown, (self.offset, self.limit), &beyond, max)
    }

    fn name(&self) -> String {
        crate::text::label(&self.path, 200)
    }
}

/// Numbered lines of a text, from `offset` on and so many as are wanted, as far as there is room.
pub(super) fn lines(
    name: &str,
    text: &str,
    (offset, limit): (Option<u64>, Option<u64>),
    beyond: &str,
    max: usize,
) -> String {
    if text.is_empty() {
        return format!("{name} is empty");
    }
    let text = crate::text::clean(text);
    let lines: Vec<&str> = text.lines().collect();
    let total = lines.len();
    let first = usize::try_from(offset.unwrap_or(1).max(1)).unwrap_or(usize::MAX);
    let limit = usize::try_from(limit.unwrap_or(LINES)).unwrap_or(usize::MAX);
    if first > total {
        return format!("{name} has {total} lines; offset {first} is past its end");
    }
    let room = max.saturating_sub(200);
    let (mut body, mut used, mut last) = (String::new(), 0, first - 1);
    for (at, line) in lines.iter().enumerate().skip(first - 1).take(limit) {
        let shown: String = line.chars().take(LINE.min(room)).collect();
        let cut = if shown.len() < line.len() { "…" } else { "" };
        let row = format!("{:>5}  {shown}{cut}\n", at + 1);
        used += row.chars().count();
        if used > room && last >= first {
            break;
        }
        body.push_str(&row);
        last = at + 1;
    }
    let more = if last < total { format!("; continue with offset {}", last + 1) } else { String::new() };
    format!("{name}: lines {first}-{last} of {total}{beyond}{more}\n{body}").trim_end().to_owned()
}

/// A zero byte early on, as other tools judge it.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(8192).any(|b| *b == 0)
}
