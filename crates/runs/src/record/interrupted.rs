//! The end of a record whose run could not write one: its executor was killed, or the machine went down.
//!
//! Nothing is guessed. What stands in whole lines stays; half a line behind them, which no reader would take for
//! an event, is taken off; a call that began and has no end is said to be unknown.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use policy::StopReason;
use serde_json::{Map, Value, json};

use super::read::{End, Lines};
use super::write::{NOTHING_BEFORE, Writer};
use super::{Prepared, Record, artifact, json as read_json};
use crate::beneath::Folder;
use crate::manifest::sha256;
use crate::mask::Mask;
use crate::{RunError, RunId};

/// Ends the record of a run that nobody works on any more, and says in a sentence what is known. The caller has
/// seen that what is there holds.
///
/// # Errors
/// [`RunError::Io`]; trying again later is safe.
pub(crate) fn end(dir: &Path, id: &RunId) -> Result<String, RunError> {
    let run = Folder::open(dir).map_err(RunError::io("open", dir))?;
    artifact::remove_halves(dir).map_err(RunError::io("clear up in", dir))?;
    let known = Known::of(&run);
    let record = if known.lines == 0 { again(dir, id, &run)? } else { known.reopen(dir)? };
    let said = known.said();
    let chain_head = match &known.ended {
        // Its run may have been killed before that line was on the disk.
        Some(_) => record.ended(),
        None => record.end(StopReason::Interrupted, &said, None)?,
    };
    let meta = read_json(&run, "meta.json").unwrap_or_default();
    let stop = known.ended.clone().unwrap_or_else(|| json!(StopReason::Interrupted));
    record.result(&json!({
        "run_id": id.as_str(),
        "stop": stop,
        "summary": said,
        "sandbox": meta.get("sandbox"),
        "changes": null,
        "calls": known.calls,
        "tokens": known.tokens,
        "duration_ms": null,
        "chain_head": chain_head,
        "last_exit": null,
        "dir": dir,
    }))?;
    Ok(said)
}

/// A run without a line: killed before it wrote one, or the machine went down before one was on the disk. What it
/// knew by then is kept, and so are artifacts, which may be on the disk before the line that names them.
fn again(dir: &Path, id: &RunId, run: &Folder) -> Result<Record, RunError> {
    let mut meta = match read_json(run, "meta.json") {
        Ok(Value::Object(meta)) => meta,
        Ok(_) | Err(_) => Map::new(),
    };
    meta.insert("run_id".to_owned(), id.as_str().into());
    meta.insert("interrupted".to_owned(), "no line of the record was saved".into());
    let lines = dir.join("events.jsonl");
    match fs::remove_file(&lines) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(RunError::io("remove", &lines)(e)),
        Ok(()) | Err(_) => {}
    }
    if run.folder(Path::new("artifacts")).is_err() {
        artifact::create_folder(dir)?;
    }
    Record::begin_in(Prepared::beside(dir)?, id, Mask::new([]), u64::MAX, Value::Object(meta))
}

/// What whole lines say.
struct Known {
    lines: u64,
    bytes: u64,
    head: String,
    /// Bytes of half a line behind them.
    cut: usize,
    /// Calls that ended.
    calls: u64,
    /// The call that began and has no end.
    open: Option<(u64, String)>,
    tokens: u64,
    /// Why the run ended, when only `result.json` is missing.
    ended: Option<Value>,
}

impl Known {
    fn of(run: &Folder) -> Known {
        let mut known = Known {
            lines: 0,
            bytes: 0,
            head: NOTHING_BEFORE.to_owned(),
            cut: 0,
            calls: 0,
            open: None,
            tokens: 0,
            ended: None,
        };
        for line in Lines::open(run).into_iter().flatten().flatten() {
            match line.end {
                End::Newline => known.line(&line.bytes),
                End::File | End::Bound => known.cut = line.bytes.len(),
            }
        }
        known
    }

    fn line(&mut self, bytes: &[u8]) {
        self.lines += 1;
        self.bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX).saturating_add(1);
        self.head = sha256(bytes);
        let event: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let number = |key: &str| event[key].as_u64().unwrap_or_default();
        match event["type"].as_str() {
            Some("tool_start") => {
                self.open = Some((number("call"), event["tool"].as_str().unwrap_or_default().to_owned()));
            }
            Some("tool_end") => {
                self.calls += 1;
                self.open = None;
            }
            Some("response") => {
                self.tokens = self
                    .tokens
                    .saturating_add(number("prompt_tokens"))
                    .saturating_add(number("completion_tokens"));
            }
            Some("run_end") => self.ended = Some(event["stop"].clone()),
            _ => {}
        }
    }

    fn reopen(&self, dir: &Path) -> Result<Record, RunError> {
        let writer = Writer::reopen(dir, self.lines, self.head.clone(), self.bytes)?;
        Ok(Record::over(dir, writer))
    }

    fn said(&self) -> String {
        if self.ended.is_some() {
            return "the executor ended before it wrote the result; the changes are told in the record only"
                .to_owned();
        }
        let mut said = if self.lines == 0 {
            "the executor ended before a line of the record was saved: what the run did is not known"
                .to_owned()
        } else {
            format!("the executor ended before the run did: {} calls had ended", self.calls)
        };
        if let Some((call, tool)) = &self.open {
            said.push_str(&format!("; call {call} ({tool}) had begun, and how it ended is not known"));
        }
        if self.cut > 0 {
            said.push_str(&format!("; {} bytes of an unfinished line were taken off", self.cut));
        }
        said.push_str("; no changes were collected, `workspace` is as the guest left it");
        said
    }
}
