//! The end of a record whose run could not write one: its executor was killed, or the machine went down.
//!
//! Nothing is guessed. What stands in whole lines stays; half a line behind them, which no reader would take for
//! an event, is taken off; a call that began and has no end is said to be unknown.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, SystemTime};

use policy::StopReason;
use serde_json::{Map, Value, json};

use super::read::{self, Lines};
use super::write::{NOTHING_BEFORE, Writer};
use super::{Prepared, Record, artifact, json as read_json};
use crate::beneath::Folder;
use crate::manifest::sha256;
use crate::mask::Mask;
use crate::{RunError, RunId, UnknownCall};

/// Ends the record of a run that nobody works on any more, and says in a sentence what is known. The caller has
/// seen that what is there holds.
///
/// # Errors
/// [`RunError::Io`]; trying again later is safe.
pub(crate) fn end(dir: &Path, id: &RunId) -> Result<String, RunError> {
    let run = Folder::open(dir).map_err(RunError::io("open", dir))?;
    artifact::remove_halves(dir).map_err(RunError::io("clear up in", dir))?;
    let known = Known::of(&run);
    let record = match known.lines {
        0 => again(dir, id, &run)?,
        // What stands there is masked already.
        _ => known.record(dir, Mask::new([]), u64::MAX)?,
    };
    let said = known.said();
    let chain_head = match &known.ended {
        // Its run may have been killed before that line was on the disk.
        Some(_) => record.ended(),
        None => record.end(StopReason::Interrupted, &said, None)?,
    };
    let meta = read_json(&run, "meta.json").unwrap_or_default();
    let interrupted = || StopReason::Interrupted.as_str().to_owned();
    let stop = known.ended.as_ref().map_or_else(interrupted, |end| end.stop.clone());
    record.result(&json!({
        "run_id": id.as_str(),
        "stop": stop,
        "summary": said,
        "sandbox": known.sandbox.as_ref().or(meta.get("sandbox")),
        "changes": null,
        "calls": known.calls,
        "tokens": known.tokens,
        "duration_ms": null,
        "chain_head": chain_head,
        "last_exit": null,
        "dir": dir,
        "resumed": known.resumed,
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
    Record::begin_in(Prepared::new(dir)?, id, Mask::new([]), u64::MAX, Value::Object(meta), None)
}

/// What whole lines say.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
    head: String,
    /// Bytes of half a line behind them.
    pub(crate) cut: usize,
    /// Version of the first line.
    pub(crate) version: u64,
    /// What was taken in, as an artifact.
    pub(crate) manifest: Option<String>,
    /// Calls that began.
    pub(crate) begun: u64,
    /// Calls that ended.
    pub(crate) calls: u64,
    /// Those of them that the sandbox carried out.
    pub(crate) done: u32,
    /// Calls that began and of which the model was told nothing yet.
    pub(crate) open: Vec<UnknownCall>,
    pub(crate) tokens: u64,
    /// Whether the changes were collected.
    collected: bool,
    /// How often it was resumed.
    pub(crate) resumed: u32,
    /// The sandbox of the last time.
    sandbox: Option<Value>,
    /// The start of the machine it last ran under.
    pub(crate) boot: Option<String>,
    /// The run's wall clock up to the last line.
    wall: Wall,
    /// The last line, when it ends the run.
    pub(crate) ended: Option<End>,
}

/// The last line of a run that ended.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) stop: String,
    detail: String,
}

impl End {
    /// Whether only somebody who cleared up ended it.
    pub(crate) fn is_interruption(&self) -> bool {
        self.stop == StopReason::Interrupted.as_str()
    }
}

/// How long somebody worked on the run.
#[derive(Debug, Default)]
struct Wall {
    before: Duration,
    began: Option<SystemTime>,
    last: Option<SystemTime>,
}

impl Wall {
    fn used(&self) -> Duration {
        let now = self.began.zip(self.last).and_then(|(began, last)| last.duration_since(began).ok());
        self.before + now.unwrap_or_default()
    }

    fn line(&mut self, at: Option<SystemTime>, begins: bool) {
        if begins {
            *self = Wall { before: self.used(), began: at, last: at };
        }
        self.last = at.or(self.last);
    }
}

impl Known {
    pub(crate) fn of(run: &Folder) -> Known {
        let mut known = Known {
            lines: 0,
            bytes: 0,
            head: NOTHING_BEFORE.to_owned(),
            cut: 0,
            version: 0,
            manifest: None,
            begun: 0,
            calls: 0,
            done: 0,
            open: Vec::new(),
            tokens: 0,
            collected: false,
            resumed: 0,
            sandbox: None,
            boot: None,
            wall: Wall::default(),
            ended: None,
        };
        for line in Lines::open(run).into_iter().flatten().flatten() {
            match line.end {
                read::End::Newline => known.line(&line.bytes),
                read::End::File | read::End::Bound => known.cut = line.bytes.len(),
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
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let kind = event["type"].as_str().unwrap_or_default();
        match kind {
            "run_start" => {
                self.version = number("v");
                self.manifest = event["manifest_artifact"].as_str().map(str::to_owned);
            }
            "tool_start" => {
                self.begun += 1;
                self.open.push(UnknownCall { call: number("call"), tool: text("tool"), ended: false });
            }
            "tool_end" => {
                self.calls += 1;
                self.done += u32::from(event["outcome"]["error"].is_null());
                for open in self.open.iter_mut().filter(|open| open.call == number("call")) {
                    open.ended = true;
                }
            }
            // Whatever comes next, the model has been told.
            "tool_result" | "request" | "role_end" => self.open.clear(),
            "response" => {
                self.tokens = self
                    .tokens
                    .saturating_add(number("prompt_tokens"))
                    .saturating_add(number("completion_tokens"));
            }
            "collect" => self.collected = true,
            "resume" => {
                self.resumed += 1;
                self.collected = false;
                self.ended = None;
                self.sandbox = Some(event["sandbox"].clone());
                self.boot = Some(text("boot"));
            }
            "run_end" => self.ended = Some(End { stop: text("stop"), detail: text("detail") }),
            _ => {}
        }
        // Whoever cleared up may have come days later.
        if !self.ended.as_ref().is_some_and(End::is_interruption) {
            let at = event["ts"].as_str().and_then(|ts| humantime::parse_rfc3339(ts).ok());
            self.wall.line(at, matches!(kind, "run_start" | "resume"));
        }
    }

    /// The run's wall clock that was used.
    pub(crate) fn used(&self) -> Duration {
        self.wall.used()
    }

    /// Goes on behind the last whole line; half a line there is taken off.
    pub(crate) fn record(&self, dir: &Path, mask: Mask, largest: u64) -> Result<Record, RunError> {
        let writer = Writer::reopen(dir, self.lines, self.head.clone(), self.bytes)?;
        Ok(Record::behind(dir, writer, mask, largest))
    }

    fn said(&self) -> String {
        match &self.ended {
            Some(end) if end.is_interruption() => return end.detail.clone(),
            Some(_) => {
                return "the executor ended before it wrote the result; the changes are told in the record only"
                    .to_owned();
            }
            None => {}
        }
        let mut said = if self.lines == 0 {
            "the executor ended before a line of the record was saved: what the run did is not known"
                .to_owned()
        } else {
            format!("the executor ended before the run did: {} calls had ended", self.calls)
        };
        for UnknownCall { call, tool, .. } in self.open.iter().filter(|open| !open.ended) {
            said.push_str(&format!("; call {call} ({tool}) had begun, and how it ended is not known"));
        }
        if self.cut > 0 {
            said.push_str(&format!("; {} bytes of an unfinished line were taken off", self.cut));
        }
        said.push_str(if self.collected {
            "; the changes had been collected"
        } else {
            "; no changes were collected, `workspace` is as the guest left it"
        });
        said
    }
}
