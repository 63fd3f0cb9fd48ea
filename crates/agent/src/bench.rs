//! The place where tools do their work: the one door of `runs`, or a stand-in for tests.

use std::time::Duration;

use runs::{Cancel, Done, Event, Executed, FileCall, ModuleUse, Page, ProgramCall, Run, RunError};

/// Why work cannot go on. The text is for the operator, never for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BenchError {
    /// The sandbox is gone.
    #[error("{reason}")]
    Lost {
        /// How that was seen.
        reason: String,
    },
    /// The record cannot be written; nothing may run unrecorded.
    #[error("{reason}")]
    Record {
        /// What failed.
        reason: String,
    },
    /// The user ended it.
    #[error("cancelled")]
    Cancelled,
}

/// What a role needs of a run.
pub trait Workbench {
    /// Runs a program in the sandbox.
    fn execute(
        &self,
        call: ProgramCall,
        cancel: &Cancel,
    ) -> impl Future<Output = Result<Executed, BenchError>>;

    /// Runs a tool of the Guild's own, in a sandbox of its own.
    fn tool(&self, call: ModuleUse, cancel: &Cancel) -> impl Future<Output = Result<Executed, BenchError>>;

    /// Does a file operation in the sandbox.
    fn file(&self, call: FileCall, cancel: &Cancel) -> impl Future<Output = Result<Done, BenchError>>;

    /// Gets the text at a URL, if that is granted.
    fn fetch(
        &self,
        url: &str,
        timeout: Duration,
        cancel: &Cancel,
    ) -> impl Future<Output = Result<Page, BenchError>>;

    /// Appends an event to the record.
    ///
    /// # Errors
    /// [`BenchError::Record`].
    fn record(&self, event: Event) -> Result<(), BenchError>;

    /// Keeps a text and says its hash.
    ///
    /// # Errors
    /// [`BenchError::Record`].
    fn artifact(&self, bytes: &[u8]) -> Result<String, BenchError>;

    /// An artifact of this run as it may be shown; none of another name.
    ///
    /// # Errors
    /// [`BenchError::Record`].
    fn kept(&self, id: &str) -> Result<Option<String>, BenchError>;

    /// Takes the number of a call that never reaches the sandbox.
    fn next_call(&self) -> u32;
}

impl Workbench for Run {
    async fn execute(&self, call: ProgramCall, cancel: &Cancel) -> Result<Executed, BenchError> {
        Ok(Run::execute(self, call, cancel).await?)
    }

    async fn tool(&self, call: ModuleUse, cancel: &Cancel) -> Result<Executed, BenchError> {
        Ok(Run::tool(self, call, cancel).await?)
    }

    async fn file(&self, call: FileCall, cancel: &Cancel) -> Result<Done, BenchError> {
        Ok(Run::file(self, call, cancel).await?)
    }

    async fn fetch(&self, url: &str, timeout: Duration, cancel: &Cancel) -> Result<Page, BenchError> {
        Ok(Run::fetch(self, url, timeout, cancel).await?)
    }

    fn record(&self, event: Event) -> Result<(), BenchError> {
        Ok(Run::record(self, event)?)
    }

    fn artifact(&self, bytes: &[u8]) -> Result<String, BenchError> {
        Ok(Run::artifact(self, bytes)?)
    }

    fn kept(&self, id: &str) -> Result<Option<String>, BenchError> {
        Ok(Run::kept(self, id)?)
    }

    fn next_call(&self) -> u32 {
        Run::next_call(self)
    }
}

impl From<RunError> for BenchError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Cancelled => BenchError::Cancelled,
            RunError::Sandbox(e) => BenchError::Lost { reason: e.to_string() },
            e @ (RunError::Import { .. } | RunError::Module { .. } | RunError::Io { .. }) => {
                BenchError::Record { reason: e.to_string() }
            }
        }
    }
}

/// A bench where nothing is done: whoever comes to it is at the end of the record.
#[derive(Debug, Default)]
pub(crate) struct Rehearsal {
    calls: std::sync::atomic::AtomicU32,
}

impl Workbench for Rehearsal {
    async fn execute(&self, _: ProgramCall, _: &Cancel) -> Result<Executed, BenchError> {
        Err(BenchError::Cancelled)
    }

    async fn tool(&self, _: ModuleUse, _: &Cancel) -> Result<Executed, BenchError> {
        Err(BenchError::Cancelled)
    }

    async fn file(&self, _: FileCall, _: &Cancel) -> Result<Done, BenchError> {
        Err(BenchError::Cancelled)
    }

    async fn fetch(&self, _: &str, _: Duration, _: &Cancel) -> Result<Page, BenchError> {
        Err(BenchError::Cancelled)
    }

    fn record(&self, _: Event) -> Result<(), BenchError> {
        Err(BenchError::Cancelled)
    }

    fn artifact(&self, _: &[u8]) -> Result<String, BenchError> {
        Err(BenchError::Cancelled)
    }

    fn kept(&self, _: &str) -> Result<Option<String>, BenchError> {
        Err(BenchError::Cancelled)
    }

    fn next_call(&self) -> u32 {
        self.calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1
    }
}
