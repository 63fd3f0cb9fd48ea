//! One call into a running sandbox, and how it ended.

use std::time::Duration;

use policy::StoppedBy;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{FileOp, Module};

/// What the guest is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Start a program. `argv[0]` is looked up in the guest's `PATH`.
    Exec {
        /// The argument vector, never empty.
        argv: Vec<String>,
        /// Additions to the guest's own clean environment.
        env: Vec<(String, String)>,
        /// Folder beneath the workspace, relative or under `/workspace`.
        cwd: Option<String>,
        /// Whether it gets a terminal of its own: all it prints comes as standard output then, and its input is typed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        terminal: bool,
    },
    /// A file operation beneath the workspace; the answer comes as output.
    File(FileOp),
    /// Run the module that the sandbox was started with (tier `wasm`, and nothing else there).
    Module(ModuleCall),
}

/// One run of a sandbox's module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleCall {
    /// Digest of the module, for the record: which one runs was said when the sandbox was started.
    pub sha256: String,
    /// Arguments, the name first.
    pub args: Vec<String>,
    /// Variables, beside those of the sandbox; a module has no others.
    pub env: Vec<(String, String)>,
    /// Instructions it may execute, about; more end it as `cpu`.
    pub fuel: u64,
    /// Wall clock in milliseconds, compiling included, after which it is ended from inside.
    pub deadline_ms: u64,
}

/// Instructions that a second of processor time buys a module: about what a processor of today executes.
const FUEL_OF_A_SECOND: u64 = 1_000_000_000;

impl ModuleCall {
    /// A call of a module with nothing but arguments, within these bounds.
    pub fn new(module: &Module, args: Vec<String>, cpu: Duration, timeout: Duration) -> ModuleCall {
        ModuleCall {
            sha256: module.sha256().to_owned(),
            args,
            env: Vec::new(),
            fuel: cpu.as_secs().max(1).saturating_mul(FUEL_OF_A_SECOND),
            deadline_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// A call with its bounds.
#[derive(Clone, Debug)]
pub struct Call {
    /// What to do.
    pub job: Job,
    /// Bytes for the standard input; end-of-file follows.
    pub stdin: Vec<u8>,
    /// Wall clock.
    pub timeout: Duration,
    /// Bytes that may be printed, both streams together; more ends the call.
    pub output: u64,
    /// What everything it starts may take together.
    pub bounds: CallBounds,
}

/// What everything that a call starts may take together, grandchildren and what lives on beside later calls among it.
/// Where there is none, the sandbox's own bound holds alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallBounds {
    /// Processor time.
    pub cpu: Option<Duration>,
    /// Bytes of memory that its processes hold.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u32>,
    /// Bytes by which the workspace may grow.
    pub disk: Option<u64>,
}

/// Which stream a piece of output came on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How the process itself ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// With this exit status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It was never started, for this `errno`.
    NotStarted(i32),
    /// Not known: the sandbox went away first.
    Unknown,
}

/// What a call used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Microseconds in user mode, children included.
    pub user_us: u64,
    /// Microseconds in the kernel, children included.
    pub system_us: u64,
    /// Largest resident set of one process, KiB.
    pub max_rss_kib: u64,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// How the process ended.
    pub ended: Ended,
    /// What ended it: from exit causes, counters and our own timers, never from text.
    pub stopped_by: StoppedBy,
    /// What it used.
    pub usage: Usage,
    /// Wall clock, milliseconds.
    pub duration_ms: u64,
    /// Bytes it printed on standard output, before any cut.
    pub stdout_bytes: u64,
    /// Bytes it printed on standard error, before any cut.
    pub stderr_bytes: u64,
    /// Processes it left running on purpose (they had let go of both output streams).
    pub background: u32,
    /// The bound that ended what earlier calls had left running, if one did since the call before: not this call's
    /// own doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leftovers: Option<StoppedBy>,
}

impl Outcome {
    /// Of a call that was not begun, because a bound of the sandbox was passed before.
    pub(crate) fn never(stopped_by: StoppedBy) -> Outcome {
        Outcome {
            ended: Ended::NotStarted(libc::EDQUOT),
            stopped_by,
            usage: Usage::default(),
            duration_ms: 0,
            stdout_bytes: 0,
            stderr_bytes: 0,
            background: 0,
            leftovers: None,
        }
    }
}

/// A way to say "stop" to everything under it, once.
#[derive(Clone, Debug)]
pub struct Cancel(watch::Receiver<bool>);

impl Cancel {
    /// A signal and the hand that gives it: send `true` to cancel.
    pub fn new() -> (watch::Sender<bool>, Cancel) {
        let (tx, rx) = watch::channel(false);
        (tx, Cancel(rx))
    }

    /// Whether it has been given.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when it is given; never, when nobody can give it any more.
    pub async fn cancelled(&self) {
        let mut rx = self.0.clone();
        if rx.wait_for(|given| *given).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
