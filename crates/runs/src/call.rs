//! What a run is opened with, what goes in and what comes out.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use policy::{Grant, StopReason};
use sandbox::{Cancel, Ended, FileOp, Module, Outcome, Report};
use serde::Serialize;

use egress::Granted;

use crate::ceiling::Waiting;
use crate::import::History;
use crate::quote::in_text;

/// Somebody who looks on while a run goes.
pub type Watch = Arc<dyn Fn(&serde_json::Value) + Send + Sync>;

/// What a run starts from.
pub struct Opening<'a> {
    /// What it may do.
    pub grant: &'a Grant,
    /// The folder of all runs (`data/runs`).
    pub store: &'a Path,
    /// The folder or file to work on; none starts with an empty workspace.
    pub source: Option<&'a Path>,
    /// What of its git history comes in, if it is a repository.
    pub history: History,
    /// What runs in the tier `wasm`, which runs nothing else; no other tier takes one.
    pub module: Option<&'a Code>,
    /// Tools of the Guild's own that a role has, by name: each call runs in a sandbox of its own.
    pub tools: &'a [(String, Module)],
    /// Values of `grant.secrets`, handed in by the only reader of the environment. Masked in every record.
    pub secrets: Vec<(String, String)>,
    /// Values that must never appear in a record though they are not handed in (the model key).
    pub mask: Vec<(String, String)>,
    /// Destinations that may be reached, those of `grant.network`, with the values of their headers; the values go into
    /// no sandbox, and `mask` has them too.
    pub granted: Vec<Granted>,
    /// More for `meta.json`: digests of Guild and deployment, the model probe, the task.
    pub meta: serde_json::Map<String, serde_json::Value>,
    /// Told how the import goes: files and bytes so far. Says whether to go on.
    pub progress: &'a (dyn Fn(u64, u64) -> bool + Sync),
    /// Told again and again while there is no room under the ceiling. Says whether to go on.
    pub waiting: &'a (dyn Fn(&Waiting) -> bool + Sync),
    /// Ends the start of its sandbox, however far that is.
    pub cancel: &'a Cancel,
    /// Told every event after it was written, as it was written.
    pub watch: Option<Watch>,
}

/// A program call of the model, or of `exec`.
#[derive(Clone, Debug)]
pub struct ProgramCall {
    /// Which tool asks (`run_shell`, `run_command`, `exec`).
    pub tool: String,
    /// The argument vector.
    pub argv: Vec<String>,
    /// Folder beneath the workspace.
    pub cwd: Option<String>,
    /// Standard input.
    pub stdin: Vec<u8>,
    /// Whether it gets a terminal of its own, which the tier `confined` has not.
    pub terminal: bool,
    /// Wall clock; the grant's bound when none or longer.
    pub timeout: Option<Duration>,
}

/// Where a module is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// A file of the host, as the user names it.
    Host(PathBuf),
    /// A file of the workspace's copy.
    Workspace(String),
}

/// A call of a module.
#[derive(Clone, Debug)]
pub struct ModuleUse {
    /// Which tool asks.
    pub tool: String,
    /// Arguments, the name first.
    pub args: Vec<String>,
    /// Standard input.
    pub stdin: Vec<u8>,
    /// Wall clock; the grant's bound when none or longer.
    pub timeout: Option<Duration>,
}

/// A file call of the model.
#[derive(Clone, Debug)]
pub struct FileCall {
    /// Which tool asks.
    pub tool: String,
    /// The operation.
    pub op: FileOp,
    /// Content, for a write.
    pub content: Vec<u8>,
}

/// A program call that ended.
#[derive(Clone, Debug, Serialize)]
pub struct Executed {
    /// Call number in the run, from 1.
    pub call: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// What may be shown: head and tail, valid UTF-8, without control sequences, secrets masked.
    pub stdout: String,
    /// The same for standard error.
    pub stderr: String,
    /// Whether anything was left out of the two texts.
    pub truncated: bool,
    /// Artifact of the full standard output, up to `call.output` bytes, when it was shortened.
    pub stdout_artifact: Option<String>,
    /// The same for standard error.
    pub stderr_artifact: Option<String>,
    /// What was asked of the network meanwhile and refused: clean sentences that say what would be needed.
    pub refused: Vec<String>,
}

/// A file call that ended: the guest's answer, parsed and bounded.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// Call number in the run, from 1.
    pub call: u32,
    /// `Ok` with the answer object of the operation, or the guest's error kind and message.
    pub answer: Result<serde_json::Value, (String, String)>,
    /// Raw bytes of a `Read`: for writing them back, never for showing them.
    #[serde(skip)]
    pub bytes: Vec<u8>,
    /// The same as it may be shown: valid UTF-8, without control sequences, secrets masked.
    #[serde(skip)]
    pub shown: String,
}

/// What the user gets: `result.json`.
#[derive(Clone, Debug, Serialize)]
pub struct RunResult {
    /// The run.
    pub run_id: String,
    /// Why it ended.
    pub stop: StopReason,
    /// The role's own word, bounded and cleaned; proves nothing.
    pub summary: String,
    /// The sandbox as it really was.
    pub sandbox: Option<Report>,
    /// Files added, changed, deleted, renamed.
    pub changes: Summary,
    /// Tool calls carried out.
    pub calls: u32,
    /// Tokens, as the server counts them.
    pub tokens: u64,
    /// Milliseconds.
    pub duration_ms: u64,
    /// Hash of the last line of the record.
    pub chain_head: String,
    /// How the last program call ended; `exec` passes it on.
    pub last_exit: Option<Ended>,
    /// How often the run went on after it had been interrupted.
    pub resumed: u32,
    /// Where the run is.
    pub dir: PathBuf,
}

/// What changed in the workspace. The lists are bounded, since a guest chooses how many names there are and how
/// long they are; `counts` and the patch are not.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// How many there are in all.
    pub counts: Counts,
    /// Paths of files that are new.
    pub added: Vec<String>,
    /// Paths of files that differ in content or mode.
    pub changed: Vec<String>,
    /// Paths of files that are gone.
    pub deleted: Vec<String>,
    /// Files that have another path; in none of the lists above.
    pub renamed: Vec<Renamed>,
    /// Entries that were not taken, with the reason.
    pub refused: Vec<String>,
    /// Changes among the above whose content is not in the patch.
    pub apart: Vec<Apart>,
}

/// Files in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// New ones.
    pub added: u64,
    /// Those that differ.
    pub changed: u64,
    /// Those that are gone.
    pub deleted: u64,
    /// Those that have another path.
    pub renamed: u64,
}

impl Summary {
    /// Names of one list that are kept, and bytes of them.
    const MOST: usize = 10_000;
    const MOST_BYTES: usize = 4 << 20;

    /// The same with lists that a record can hold.
    pub(crate) fn bounded(mut self) -> Summary {
        for list in [&mut self.added, &mut self.changed, &mut self.deleted, &mut self.refused] {
            bound(list, String::len);
        }
        bound(&mut self.renamed, |renamed| renamed.from.len() + renamed.to.len());
        bound(&mut self.apart, |apart| apart.path.len());
        self
    }
}

fn bound<T>(list: &mut Vec<T>, length: impl Fn(&T) -> usize) {
    let mut bytes = 0;
    let fits = list.iter().take(Summary::MOST).take_while(|item| {
        bytes += length(item);
        bytes <= Summary::MOST_BYTES
    });
    list.truncate(fits.count());
}

/// A file that has another path: with the same content, or with at least half of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Renamed {
    /// Where it was.
    pub from: String,
    /// Where it is.
    pub to: String,
    /// Percent of it that are the same; 100 where nothing else has changed.
    pub same: u8,
}

/// A change that cannot stand in the patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Apart {
    /// Which file.
    pub path: String,
    /// Why (`binary`, `too large to compare`, ...).
    pub why: &'static str,
    /// Its new content, where it is not too large to be kept.
    pub artifact: Option<String>,
}

/// Why a run cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The sandbox was refused or lost.
    #[error(transparent)]
    Sandbox(#[from] sandbox::SandboxError),
    /// The source cannot be taken in.
    #[error("cannot take in {}: {reason}", in_text(path))]
    Import {
        /// Which entry.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// What was to run is no module that can.
    #[error("`{}` cannot be run as a module: {reason}", crate::clean(name.as_bytes()))]
    Module {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// The user ended it before it was open.
    #[error("cancelled")]
    Cancelled,
    /// A file of the run cannot be written or read.
    #[error("cannot {doing} {}", in_text(path))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: std::io::Error,
    },
}

impl RunError {
    /// For `map_err`: what was being done to which file.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> RunError {
        move |source| RunError::Io { doing, path: path.to_owned(), source }
    }

    /// The whole chain of causes in one sentence, for a record.
    pub(crate) fn told(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(e) = cause {
            text.push_str(&format!(": {e}"));
            cause = e.source();
        }
        text
    }
}
