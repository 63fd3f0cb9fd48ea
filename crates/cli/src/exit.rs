//! Exit codes: a public table.

use std::process::ExitCode;

use foundry::{Blame, FoundryError};
use policy::{Faults, StopReason, StoppedBy};
use runs::{ApplyError, ResumeError, RunError, SandboxError, StoreError};

/// What an exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: done.
    Done,
    /// 1: the work failed; `exec` passes on the guest's own code instead.
    Failed,
    /// 2: usage or configuration.
    Usage,
    /// 3: refused by policy or floor.
    Refused,
    /// 4: stopped by a limit or a budget.
    Limit,
    /// 5: infrastructure: the sandbox, the model server, the disk, or the user's own Ctrl-C.
    Infrastructure,
}

/// A message with the code it ends with.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Exit {
    fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Refused => 3,
            Exit::Limit => 4,
            Exit::Infrastructure => 5,
        }
    }

    /// The code of an error, by what it is.
    pub(crate) fn of(e: &anyhow::Error) -> Exit {
        if let Some(ended) = e.downcast_ref::<Ended>() {
            return ended.exit;
        }
        if let Some(faults) = e.downcast_ref::<Faults>() {
            // A Guild that asks for more is refused; a file that is wrong is a matter of configuration.
            let excess = faults.iter().all(|f| f.code == policy::Code::Exceeds);
            return if excess { Exit::Refused } else { Exit::Usage };
        }
        let run = match e.downcast_ref::<FoundryError>() {
            Some(FoundryError::Run(run)) => Some(run),
            Some(other) => {
                return match other.blame() {
                    Blame::Input => Exit::Usage,
                    Blame::Rules => Exit::Refused,
                    Blame::Machine => Exit::Infrastructure,
                };
            }
            None => e.downcast_ref::<RunError>(),
        };
        match run {
            Some(RunError::Sandbox(SandboxError::Refused { .. })) => return Exit::Refused,
            Some(RunError::Import { .. } | RunError::Module { .. }) => return Exit::Usage,
            Some(RunError::Sandbox(_) | RunError::Cancelled | RunError::Io { .. }) => {
                return Exit::Infrastructure;
            }
            None => {}
        }
        let apply = match e.downcast_ref::<ApplyError>() {
            Some(ApplyError::Running { .. } | ApplyError::Where { .. }) => return Exit::Usage,
            Some(ApplyError::Broken { .. } | ApplyError::Cannot { .. } | ApplyError::Changed { .. }) => {
                return Exit::Refused;
            }
            Some(
                ApplyError::Cancelled
                | ApplyError::Stuck { .. }
                | ApplyError::Git { .. }
                | ApplyError::Io { .. },
            ) => {
                return Exit::Infrastructure;
            }
            Some(ApplyError::Store(store)) => Some(store),
            None => None,
        };
        let store = match e.downcast_ref::<ResumeError>() {
            Some(ResumeError::Running { .. } | ResumeError::Over { .. }) => return Exit::Usage,
            Some(ResumeError::Broken { .. } | ResumeError::Cannot { .. }) => return Exit::Refused,
            Some(ResumeError::Store(store)) => Some(store),
            None => apply.or_else(|| e.downcast_ref::<StoreError>()),
        };
        match store {
            Some(StoreError::BadId(_) | StoreError::Unknown { .. }) => Exit::Usage,
            Some(StoreError::Io { .. }) | None => Exit::Infrastructure,
        }
    }

    /// The code of a run.
    pub(crate) fn of_run(stop: StopReason, claimed_failure: bool) -> Exit {
        match stop {
            StopReason::Finished | StopReason::ImplicitFinish if claimed_failure => Exit::Failed,
            StopReason::Finished | StopReason::ImplicitFinish => Exit::Done,
            StopReason::StepLimit
            | StopReason::TokenLimit
            | StopReason::WallLimit
            | StopReason::ToolCallLimit
            | StopReason::DepthLimit
            | StopReason::LoopDetected
            | StopReason::FormatErrors
            | StopReason::ContextExhausted => Exit::Limit,
            StopReason::EndpointUnavailable
            | StopReason::EndpointProtocol
            | StopReason::SandboxError
            | StopReason::Cancelled
            | StopReason::Interrupted => Exit::Infrastructure,
        }
    }

    /// The code of one execution: the guest's own where it ended by itself.
    pub(crate) fn of_exec(outcome: &runs::Outcome) -> ExitCode {
        match outcome.stopped_by {
            StoppedBy::Exit | StoppedBy::Signal => match outcome.ended {
                runs::Ended::Exit(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
                // As a shell says it.
                runs::Ended::Signal(signal) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(255)),
                runs::Ended::NotStarted(_) | runs::Ended::Unknown => Exit::Infrastructure.into(),
            },
            StoppedBy::Timeout
            | StoppedBy::Memory
            | StoppedBy::Processes
            | StoppedBy::Disk
            | StoppedBy::Output
            | StoppedBy::Cpu => Exit::Limit.into(),
            StoppedBy::Denied => Exit::Refused.into(),
            StoppedBy::Cancelled | StoppedBy::SandboxLost => Exit::Infrastructure.into(),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// An error of usage or configuration.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Ended { exit: Exit::Usage, message: message.into() }.into()
}
