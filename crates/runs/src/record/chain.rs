//! Whether a record is what its run wrote.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;

use policy::StopReason;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::VERSION;
use super::read::{End, Lines, small};
use super::write::NOTHING_BEFORE;
use crate::RunId;
use crate::beneath::Folder;
use crate::manifest::{hex, sha256};

/// How a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// Complete, and everything holds.
    Whole,
    /// What is there holds, but the end is missing: the run goes on, or its executor was killed.
    Incomplete,
    /// Written by a newer version: readable, not judged.
    Newer,
    /// Something was changed, dropped, added or put in another order.
    Broken,
}

/// One thing that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Line of `events.jsonl`, from 1, where one can be named.
    pub line: Option<u64>,
    /// A stable code (`chain`, `sequence`, `meta-digest`, ...).
    pub code: &'static str,
    /// A sentence.
    pub message: String,
}

/// The outcome of a verification.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// The run.
    pub run_id: String,
    /// How it stands.
    pub standing: Standing,
    /// Lines that were read.
    pub events: u64,
    /// How often the run went on after it had been interrupted.
    pub resumed: u64,
    /// Hash of the last line.
    pub head: Option<String>,
    /// Everything that does not hold.
    pub findings: Vec<Finding>,
    /// Remarks that are no faults.
    pub notes: Vec<String>,
    /// `meta.json` is missing or cut, as after a loss of power: it can be told apart from one that was changed.
    pub meta_lost: bool,
    /// How it stands beside that.
    #[serde(skip)]
    pub(crate) beside_meta: Standing,
}

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The chain, `meta.json` and `result.json`.
    Chain,
    /// Every artifact and the patch too.
    All,
}

const MOST_FINDINGS: usize = 200;
const INTERRUPTED: &str = StopReason::Interrupted.as_str();

impl Checked {
    /// Looks at the record of `id` in the run's folder.
    pub(crate) fn of(run: &Folder, id: &RunId, depth: Depth) -> Checked {
        let checked = Checked {
            run_id: id.to_string(),
            standing: Standing::Whole,
            events: 0,
            resumed: 0,
            head: None,
            findings: Vec::new(),
            notes: Vec::new(),
            meta_lost: false,
            beside_meta: Standing::Whole,
        };
        let mut check = Check {
            run,
            depth,
            named: BTreeSet::new(),
            ended: None,
            patch: None,
            before: NOTHING_BEFORE.to_owned(),
            checked,
        };
        check.lines();
        check.patch();
        check.result();
        check.leftovers();
        check.checked
    }
}

struct Check<'a> {
    run: &'a Folder,
    depth: Depth,
    /// Artifacts named so far.
    named: BTreeSet<String>,
    /// Why it ended, when the last line says so.
    ended: Option<String>,
    /// The newest line that tells of `changes.patch`, and what it says.
    patch: Option<(u64, String)>,
    /// Hash of the line before.
    before: String,
    checked: Checked,
}

impl Check<'_> {
    fn lines(&mut self) {
        let lines = match Lines::open(self.run) {
            Ok(lines) => lines,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return self.incomplete(None, "no-record", "there is no `events.jsonl`");
            }
            Err(e) => return self.broken(None, "unreadable", &format!("`events.jsonl`: {e}")),
        };
        for line in lines {
            let number = self.checked.events + 1;
            match line {
                Err(e) => return self.broken(Some(number), "unreadable", &e.to_string()),
                Ok(line) => match line.end {
                    End::Bound => {
                        return self.broken(Some(number), "too-long", "the line is longer than any may be");
                    }
                    End::File => {
                        return self.incomplete(Some(number), "cut-line", "the last line is not finished");
                    }
                    End::Newline => {
                        self.line(number, &line.bytes);
                        self.before = sha256(&line.bytes);
                        self.checked.events = number;
                        self.checked.head = Some(self.before.clone());
                    }
                },
            }
        }
        if self.checked.events == 0 {
            self.incomplete(None, "empty", "the record has no line");
        } else if self.ended.is_none() {
            self.incomplete(None, "no-end", "the record has no `run_end`");
        }
    }

    /// A run that went on compared its workspace once more, and wrote another patch.
    fn patch(&mut self) {
        if let Some((number, patch)) = self.patch.take() {
            self.hash_of(Some(number), "changes.patch", &patch, "patch");
        }
    }

    fn line(&mut self, number: u64, bytes: &[u8]) {
        let at = Some(number);
        let Ok(Value::Object(event)) = serde_json::from_slice::<Value>(bytes) else {
            return self.broken(at, "not-json", "the line is no JSON object");
        };
        match event.get("v").and_then(Value::as_u64) {
            Some(1..=VERSION) => {}
            Some(newer) if newer > VERSION => {
                self.found(
                    Standing::Newer,
                    at,
                    "newer",
                    &format!("written by version {newer} of the record"),
                );
            }
            _ => self.broken(at, "version", "the line says no version"),
        }
        if event.get("seq").and_then(Value::as_u64) != Some(number) {
            self.broken(at, "sequence", &format!("the line does not say `seq` {number}"));
        }
        if event.get("prev").and_then(Value::as_str) != Some(self.before.as_str()) {
            self.broken(at, "chain", "`prev` is not the hash of the line before: one of the two was changed");
        }
        let text = |key: &str| event.get(key).and_then(Value::as_str);
        let kind = text("type").unwrap_or("");
        // Only what was cut off goes on, and only by saying so.
        let resumed = kind == "resume" && self.ended.as_deref().is_none_or(|stop| stop == INTERRUPTED);
        if self.ended.is_some() && !resumed {
            self.broken(at, "after-end", "a line stands behind `run_end`");
        }
        if (number == 1) != (kind == "run_start") {
            self.broken(at, "start", "`run_start` must be the first line and no other");
        }
        match kind {
            "run_start" => {
                self.start(at, text("run_id"), text("meta_sha256"));
                self.artifacts(at, event.get("manifest_artifact"));
            }
            "run_end" => self.ended = Some(text("stop").unwrap_or("").to_owned()),
            "resume" => {
                self.checked.resumed += 1;
                self.ended = None;
                self.patch = None;
            }
            "collect" => {
                self.patch = Some((number, text("patch_sha256").unwrap_or("").to_owned()));
                for key in ["artifacts", "changes_artifact", "base_artifact"] {
                    self.artifacts(at, event.get(key));
                }
            }
            "tool_result" => self.artifacts(at, event.get("text_artifact")),
            "request" | "response" => self.artifacts(at, event.get("body_sha256")),
            "tool_start" => self.artifacts(at, event.get("stdin_artifact")),
            "tool_end" => self.artifacts(at, event.get("artifacts")),
            _ => {}
        }
    }

    fn start(&mut self, at: Option<u64>, id: Option<&str>, digest: Option<&str>) {
        if id != Some(self.checked.run_id.as_str()) {
            self.broken(at, "run-id", "the record is of another run");
        }
        match small(self.run, "meta.json") {
            Ok(meta) if Some(sha256(&meta).as_str()) == digest => {}
            Ok(meta) if is_cut(&meta) => self.meta_lost(at, "is cut"),
            Err(e) if e.kind() == ErrorKind::NotFound => self.meta_lost(at, "is missing"),
            Ok(_) => self.broken(at, "meta-digest", "`meta.json` is not what it was when the run started"),
            Err(e) => self.broken(at, "meta-digest", &format!("`meta.json`: {e}")),
        }
    }

    /// What was lost is no change of somebody's, but what the run was is not known any more: it never counts as whole.
    fn meta_lost(&mut self, at: Option<u64>, how: &str) {
        let before = self.checked.beside_meta;
        let message = format!("`meta.json` {how}, as after a loss of power: what the run was is not known");
        self.broken(at, "meta-lost", &message);
        (self.checked.beside_meta, self.checked.meta_lost) = (before, true);
    }

    /// One hash or a list of them.
    fn artifacts(&mut self, at: Option<u64>, value: Option<&Value>) {
        match value {
            Some(Value::Array(ids)) => {
                for id in ids {
                    self.artifacts(at, Some(id));
                }
            }
            Some(Value::String(id)) => {
                let shape = id.len() == 64 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                if !shape {
                    self.broken(at, "artifact", "an artifact is named that can be none");
                } else if self.named.insert(id.clone()) {
                    self.hash_of(at, &format!("artifacts/{id}"), id, "artifact");
                }
            }
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {}
        }
    }

    fn hash_of(&mut self, at: Option<u64>, name: &str, expected: &str, code: &'static str) {
        if self.depth == Depth::Chain {
            return;
        }
        match digest_of(self.run, Path::new(name)) {
            Ok(sum) if sum == expected => {}
            Ok(_) => self.broken(at, code, &format!("`{name}` does not hold what the record says")),
            Err(e) => self.broken(at, code, &format!("`{name}`: {e}")),
        }
    }

    fn result(&mut self) {
        let result = match small(self.run, "result.json") {
            Ok(bytes) => serde_json::from_slice::<Value>(&bytes),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return self.incomplete(None, "no-result", "there is no `result.json`");
            }
            Err(e) => return self.broken(None, "unreadable", &format!("`result.json`: {e}")),
        };
        let Ok(result) = result else {
            return self.broken(None, "result", "`result.json` is no JSON");
        };
        let said = result.get("chain_head").and_then(Value::as_str);
        if said != self.checked.head.as_deref() {
            self.broken(None, "head", "`result.json` names another last line than the record has");
        }
    }

    /// Artifacts that nobody named are no fault: a run may have been killed between the file and its line.
    fn leftovers(&mut self) {
        let Ok(folder) = self.run.folder(Path::new("artifacts")) else { return };
        let Ok((names, _)) = folder.names(100_000) else { return };
        let unnamed = names.iter().filter(|n| !n.to_str().is_some_and(|n| self.named.contains(n))).count();
        if unnamed > 0 && self.standing() != Standing::Newer {
            self.checked.notes.push(format!("{unnamed} files in `artifacts` are named by no event"));
        }
    }

    fn standing(&self) -> Standing {
        self.checked.standing
    }

    fn broken(&mut self, line: Option<u64>, code: &'static str, message: &str) {
        self.found(Standing::Broken, line, code, message);
    }

    fn incomplete(&mut self, line: Option<u64>, code: &'static str, message: &str) {
        self.found(Standing::Incomplete, line, code, message);
    }

    fn found(&mut self, standing: Standing, line: Option<u64>, code: &'static str, message: &str) {
        self.checked.standing = self.checked.standing.max(standing);
        self.checked.beside_meta = self.checked.beside_meta.max(standing);
        if self.checked.findings.len() < MOST_FINDINGS {
            self.checked.findings.push(Finding { line, code, message: message.to_owned() });
        }
    }
}

/// A file whose end, or all of it, never came to the disk.
fn is_cut(text: &[u8]) -> bool {
    text.iter().all(|byte| *byte == 0)
        || serde_json::from_slice::<Value>(text).is_err_and(|fault| fault.is_eof())
}

fn digest_of(run: &Folder, path: &Path) -> io::Result<String> {
    let mut file = run.file(path)?;
    let mut sum = Sha256::new();
    io::copy(&mut file, &mut Sink(&mut sum))?;
    Ok(hex(&sum.finalize()))
}

struct Sink<'a>(&'a mut Sha256);

impl io::Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
