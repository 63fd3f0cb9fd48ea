//! `edit_file`: one exact place of a file, or an error that shows the real lines.

use std::time::Duration;

use policy::Tool;
use runs::{Change, FileOp, To, Was, sha256};
use serde::Deserialize;
use serde_json::{Value, json};
use similar::TextDiff;

use super::matching::{self, Found};
use super::read_file::is_binary;
use super::{Said, Tools, guest_error, inner};
use crate::{BenchError, Workbench};

/// Its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    pub(crate) path: String,
    pub(crate) old: String,
    pub(crate) new: String,
    #[serde(default)]
    pub(crate) all: bool,
}

pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1},
            "old": {"type": "string", "minLength": 1},
            "new": {"type": "string"},
            "all": {"type": "boolean"},
        },
        "required": ["path", "old", "new"],
        "additionalProperties": false,
    })
}

impl Args {
    pub(crate) async fn run<W: Workbench>(&self, tools: &Tools<'_, W>) -> Result<Said, BenchError> {
        let op = FileOp::Read { path: inner(&self.path), offset: 0, limit: tools.read_limit() };
        let read = tools.file(Tool::EditFile, op, Vec::new()).await?;
        let said = |text: String| Ok(Said { text, last_call: read.call });
        let size = match &read.answer {
            Err(error) => return said(guest_error(&self.path, error)),
            Ok(answer) => answer.get("size").and_then(Value::as_u64).unwrap_or_default(),
        };
        if size > read.bytes.len() as u64 {
            return said(format!("error: {} ({size} bytes) is too large for edit_file", self.name()));
        }
        let Some(before) = std::str::from_utf8(&read.bytes).ok().filter(|_| !is_binary(&read.bytes)) else {
            return said(format!("error: {} is not a text file", self.name()));
        };
        let (after, told) = match self.edit(before, &read.shown) {
            Ok(edited) => edited,
            Err(problem) => return said(problem),
        };
        // Only if it still is what was read: a program may have written to it meanwhile.
        let was = Was::Same { sha256: sha256(&read.bytes), bytes: size };
        let to = To::Content { bytes: None, executable: None };
        let op = FileOp::Change { changes: vec![Change { path: inner(&self.path), was, to }] };
        let write = tools.file(Tool::EditFile, op, after.into_bytes()).await?;
        let text = match &write.answer {
            Err(error) => guest_error(&self.path, error),
            Ok(_) => told,
        };
        Ok(Said { text, last_call: write.call })
    }

    /// The new text and what to say, or the problem. Only `shown`, which is masked, is ever said.
    fn edit(&self, before: &str, shown: &str) -> Result<(String, String), String> {
        if self.old.is_empty() {
            return Err("error: `old` is empty; use write_file to create a file".to_owned());
        }
        if self.old == self.new {
            return Err("error: `old` and `new` are identical; nothing to change".to_owned());
        }
        let (after, kind) = match matching::find(before, &self.old, self.all) {
            Found::Exact(places) => (self.replaced(before, &places, &self.new), "exact"),
            Found::Loose(place) => {
                let new = matching::with_line_end(&before[place.clone()], &self.new);
                (self.replaced(before, &[place], &new), "whitespace-tolerant")
            }
            Found::Ambiguous(lines) => {
                let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
                return Err(format!(
                    "error: `old` occurs {} times in {} (lines {}); give more surrounding lines, or all = true",
                    lines.len(),
                    self.name(),
                    lines.join(", ")
                ));
            }
            Found::Nowhere => {
                return Err(format!(
                    "error: `old` is not in {}, nothing was changed. Copy `old` from its real lines:\n{}",
                    self.name(),
                    crate::text::clean(&matching::nearest(shown, &self.old))
                ));
            }
        };
        if after == before {
            return Err("error: the edit changes nothing".to_owned());
        }
        let told = self.told(before, &after, kind, before == shown);
        Ok((after, told))
    }

    fn replaced(&self, before: &str, places: &[std::ops::Range<usize>], new: &str) -> String {
        let (mut after, mut from) = (String::with_capacity(before.len() + new.len()), 0);
        for place in places {
            after.push_str(&before[from..place.start]);
            after.push_str(new);
            from = place.end;
        }
        after.push_str(&before[from..]);
        after
    }

    /// Where it was, and the change: in its lines when nothing in them is masked, in the model's words otherwise.
    fn told(&self, before: &str, after: &str, kind: &str, plain: bool) -> String {
        let diff = lines(before, after);
        let (mut first, mut last) = (usize::MAX, 0);
        for op in diff.ops() {
            if op.tag() != similar::DiffTag::Equal {
                first = first.min(op.new_range().start + 1);
                last = last.max(op.new_range().end);
            }
        }
        let text = if plain {
            diff.unified_diff().context_radius(1).to_string()
        } else {
            lines(&self.old, &self.new).unified_diff().to_string()
        };
        format!(
            "edited {} ({kind} match, lines {first}-{})\n{}",
            self.name(),
            last.max(first),
            crate::text::bound(crate::text::clean(&text).trim_end(), 1500)
        )
    }

    fn name(&self) -> String {
        crate::text::label(&self.path, 200)
    }
}

/// The difference by lines, in bounded time whatever the texts are.
fn lines<'a>(before: &'a str, after: &'a str) -> TextDiff<'a, 'a, str> {
    TextDiff::configure().timeout(Duration::from_millis(300)).diff_lines(before, after)
}
