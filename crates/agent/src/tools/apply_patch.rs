//! `apply_patch`: several files at once, all or nothing.

use std::collections::BTreeSet;

use policy::{Decision, Tool};
use runs::{Change, FileOp, To, Was, sha256};
use serde::Deserialize;
use serde_json::{Value, json};

use super::matching::nearest;
use super::read_file::is_binary;
use super::{Said, Tools, guest_error, inner};
use crate::patch::{FilePatch, Kind, apply, parse};
use crate::{BenchError, Workbench};

/// Bytes of all new contents together: what one call can carry.
const MOST: usize = 1_900_000;
/// Characters of real lines that are shown of one file.
const SHOWN: usize = 1500;

/// Its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    pub(crate) patch: String,
}

pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"patch": {"type": "string", "minLength": 1}},
        "required": ["patch"],
        "additionalProperties": false,
    })
}

/// What is to be done, as it grows.
#[derive(Default)]
struct Plan {
    changes: Vec<Change>,
    contents: Vec<u8>,
    told: Vec<String>,
    problems: Vec<String>,
    last_call: u32,
}

impl Args {
    /// Whether it can be read at all.
    pub(crate) fn check(&self) -> Result<(), String> {
        let files = parse(&self.patch)?;
        let mut seen = BTreeSet::new();
        for path in files.iter().flat_map(paths) {
            let name = policy::unquoted(path).map_err(|e| e.to_string())?;
            if name.contains(&0) || name.len() > crate::arguments::MAX_PATH {
                return Err("a path in it is none".to_owned());
            }
            // By what they say; two names of one file are met when it is written.
            let parts: Vec<&[u8]> =
                name.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
            if !seen.insert(parts.join(&b'/')) {
                return Err(format!("{} is named twice", crate::text::label(path, 200)));
            }
        }
        Ok(())
    }

    pub(crate) fn judge(&self) -> Decision {
        let files = parse(&self.patch).unwrap_or_default();
        let refusal = files.iter().flat_map(paths).find_map(|path| crate::path::inside(path).err());
        refusal.unwrap_or_else(|| Decision::allow(crate::path::RULE))
    }

    pub(crate) async fn run<W: Workbench>(&self, tools: &Tools<'_, W>) -> Result<Said, BenchError> {
        let mut plan = Plan::default();
        for file in parse(&self.patch).unwrap_or_default() {
            plan.add(tools, file).await?;
        }
        if plan.contents.len() > MOST {
            plan.problems
                .push(format!("the new contents are more than {MOST} bytes; patch fewer files at once"));
        }
        if !plan.problems.is_empty() {
            let text =
                format!("error: the patch does not fit, no file was changed\n{}", plan.problems.join("\n"));
            return Ok(Said { text, last_call: plan.last_call });
        }
        let op = FileOp::Change { changes: plan.changes };
        let done = tools.file(Tool::ApplyPatch, op, plan.contents).await?;
        let text = match &done.answer {
            Err(error) => format!("{}; no file was changed", guest_error("the patch", error)),
            Ok(_) => plan.told.join("\n"),
        };
        Ok(Said { text, last_call: done.call })
    }
}

/// Every path that a file's patch names.
fn paths(file: &FilePatch) -> impl Iterator<Item = &str> {
    let to = match &file.kind {
        Kind::Update { to, .. } => to.as_deref(),
        Kind::Create { .. } | Kind::Delete { .. } => None,
    };
    std::iter::once(file.path.as_str()).chain(to)
}

impl Plan {
    async fn add<W: Workbench>(&mut self, tools: &Tools<'_, W>, file: FilePatch) -> Result<(), BenchError> {
        let name = crate::text::label(&file.path, 200);
        match &file.kind {
            Kind::Create { text, executable } => {
                self.write(&file.path, Was::Absent, text, Some(*executable));
                self.told.push(format!("{name}: created, {} lines", text.lines().count()));
            }
            Kind::Delete { hunks } if hunks.is_empty() => {
                self.remove(&file.path, Was::Any);
                self.told.push(format!("{name}: deleted"));
            }
            Kind::Delete { hunks } => {
                let Some(read) = self.read(tools, &file.path).await? else { return Ok(()) };
                match apply(&read.text, hunks) {
                    Ok((after, _)) if after.is_empty() => {
                        self.remove(&file.path, read.was);
                        self.told.push(format!("{name}: deleted"));
                    }
                    Ok(_) | Err(_) => self.problems.push(format!(
                        "{name}: the file holds other lines than the patch removes; read it first"
                    )),
                }
            }
            Kind::Update { hunks, to, executable } => {
                let Some(read) = self.read(tools, &file.path).await? else { return Ok(()) };
                let (after, fits) = match apply(&read.text, hunks) {
                    Ok(applied) => applied,
                    Err(miss) => {
                        let near = miss.wanted.map(|wanted| {
                            let near = crate::text::clean(&nearest(&read.shown, &wanted));
                            format!(". Its real lines:\n{}", crate::text::bound(&near, SHOWN))
                        });
                        let (hunk, of, why) = (miss.hunk, hunks.len(), miss.why);
                        let near = near.unwrap_or_default();
                        self.problems
                            .push(format!("{name}: change {hunk} of {of} does not fit: {why}{near}"));
                        return Ok(());
                    }
                };
                let fits: Vec<String> = fits.iter().map(|fit| fit.told()).collect();
                let fits = if fits.is_empty() { String::new() } else { format!(" ({})", fits.join("; ")) };
                match to {
                    None => {
                        self.write(&file.path, read.was, &after, *executable);
                        self.told.push(format!("{name}: changed{fits}"));
                    }
                    Some(to) => {
                        self.write(to, Was::Absent, &after, Some(executable.unwrap_or(read.executable)));
                        self.remove(&file.path, read.was);
                        self.told.push(format!("{name}: moved to {}{fits}", crate::text::label(to, 200)));
                    }
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, path: &str, was: Was, text: &str, executable: Option<bool>) {
        let to = To::Content { bytes: Some(text.len() as u64), executable };
        self.contents.extend_from_slice(text.as_bytes());
        self.changes.push(Change { path: inner(path), was, to });
    }

    fn remove(&mut self, path: &str, was: Was) {
        self.changes.push(Change { path: inner(path), was, to: To::Gone });
    }

    /// The text of a file; a problem where it has none.
    async fn read<W: Workbench>(
        &mut self,
        tools: &Tools<'_, W>,
        path: &str,
    ) -> Result<Option<Read>, BenchError> {
        let op = FileOp::Read { path: inner(path), offset: 0, limit: tools.read_limit() };
        let read = tools.file(Tool::ApplyPatch, op, Vec::new()).await?;
        self.last_call = read.call;
        let name = crate::text::label(path, 200);
        let answer = match &read.answer {
            Ok(answer) => answer,
            Err(error) => {
                self.problems.push(guest_error(path, error));
                return Ok(None);
            }
        };
        let size = answer.get("size").and_then(Value::as_u64).unwrap_or_default();
        if size > read.bytes.len() as u64 {
            self.problems.push(format!("{name}: {size} bytes are too many for a patch"));
            return Ok(None);
        }
        let was = Was::Same { sha256: sha256(&read.bytes), bytes: read.bytes.len() as u64 };
        let executable = answer.get("executable").and_then(Value::as_bool).unwrap_or_default();
        match String::from_utf8(read.bytes) {
            Ok(text) if !is_binary(text.as_bytes()) => {
                Ok(Some(Read { text, shown: read.shown, was, executable }))
            }
            _ => {
                self.problems.push(format!("{name}: it is not a text file"));
                Ok(None)
            }
        }
    }
}

/// A file as it was read.
struct Read {
    text: String,
    /// The same, masked.
    shown: String,
    was: Was,
    executable: bool,
}
