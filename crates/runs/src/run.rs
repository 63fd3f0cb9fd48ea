//! Skeleton of a run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::{Grant, StopReason};
use sandbox::{Cancel, Ended, FileOp, Host, Outcome, Report};
use serde::Serialize;

use crate::Event;

/// What a run starts from.
pub struct Opening<'a> {
    /// What it may do.
    pub grant: &'a Grant,
    /// The folder of all runs (`data/runs`).
    pub store: &'a Path,
    /// The folder or file to work on; none starts with an empty workspace.
    pub source: Option<&'a Path>,
    /// Values of `grant.secrets`, handed in by the only reader of the environment. Masked in every record.
    pub secrets: Vec<(String, String)>,
    /// Values that must never appear in a record though they are not handed in (the model key).
    pub mask: Vec<(String, String)>,
    /// More for `meta.json`: digests of Guild and deployment, the model probe, the task.
    pub meta: serde_json::Map<String, serde_json::Value>,
    /// Told how the import goes: files and bytes so far, and in all where known.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// An open run: sandbox started, record begun.
pub struct Run {}

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
}

/// A file call that ended: the guest's answer, parsed and bounded.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// Call number in the run, from 1.
    pub call: u32,
    /// `Ok` with the answer object of the operation, or the guest's error kind and message.
    pub answer: Result<serde_json::Value, (String, String)>,
    /// Raw bytes of a `Read`.
    #[serde(skip)]
    pub bytes: Vec<u8>,
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
    /// Files added, changed, deleted.
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
    /// Where the run is.
    pub dir: PathBuf,
}

/// What changed in the workspace.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Paths of files that are new.
    pub added: Vec<String>,
    /// Paths of files that differ in content or mode.
    pub changed: Vec<String>,
    /// Paths of files that are gone.
    pub deleted: Vec<String>,
    /// Entries that were not taken, with the reason.
    pub refused: Vec<String>,
}

/// Why a run cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The sandbox was refused or lost.
    #[error(transparent)]
    Sandbox(#[from] sandbox::SandboxError),
    /// The source cannot be taken in.
    #[error("cannot take in {path}: {reason}")]
    Import {
        /// Which entry.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file of the run cannot be written or read.
    #[error("cannot {doing} {path}")]
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

impl Run {
    /// Imports the source, starts the sandbox and begins the record.
    ///
    /// # Errors
    /// As [`RunError`] says; the run folder then holds a complete record of the refusal.
    pub async fn open(_host: &Host, _opening: Opening<'_>) -> Result<Run, RunError> {
        Ok(Run {})
    }

    /// The run's id.
    pub fn id(&self) -> &str {
        ""
    }

    /// What really holds.
    pub fn report(&self) -> Report {
        Report { tier: policy::Tier::Namespace, engine: String::new(), layers: Vec::new(), start_ms: 0 }
    }

    /// Appends an event; secrets are masked, texts bounded.
    ///
    /// # Errors
    /// [`RunError::Io`]: a run whose record cannot be written must end.
    pub fn record(&self, _event: Event) -> Result<(), RunError> {
        Ok(())
    }

    /// Keeps a text as an artifact (masked) and says its hash.
    ///
    /// # Errors
    /// [`RunError::Io`].
    pub fn artifact(&self, _bytes: &[u8]) -> Result<String, RunError> {
        Ok(String::new())
    }

    /// Runs a program in the sandbox: recorded before it starts and after it ended.
    ///
    /// # Errors
    /// [`RunError`] when the sandbox is lost or the record cannot be written.
    pub async fn execute(&self, _call: ProgramCall, _cancel: &Cancel) -> Result<Executed, RunError> {
        Err(RunError::Import { path: PathBuf::new(), reason: String::new() })
    }

    /// Does a file operation in the sandbox: recorded like a program.
    ///
    /// # Errors
    /// [`RunError`] when the sandbox is lost or the record cannot be written.
    pub async fn file(&self, _call: FileCall, _cancel: &Cancel) -> Result<Done, RunError> {
        Err(RunError::Import { path: PathBuf::new(), reason: String::new() })
    }

    /// The number that the next call will carry, taken; for calls that are refused and never reach the sandbox.
    pub fn next_call(&self) -> u32 {
        0
    }

    /// Destroys the sandbox, collects the changes, writes `changes.patch` and `result.json`, ends the record.
    ///
    /// # Errors
    /// [`RunError::Io`].
    pub async fn finish(
        self,
        _stop: StopReason,
        _summary: &str,
        _tokens: u64,
    ) -> Result<RunResult, RunError> {
        Err(RunError::Import { path: PathBuf::new(), reason: String::new() })
    }
}
