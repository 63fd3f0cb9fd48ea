//! Why a run or a call ended: closed lists.

use serde::{Deserialize, Serialize};

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The entry role called `finish`.
    Finished,
    /// The entry role answered in prose and stayed with it.
    ImplicitFinish,
    /// `budget.steps` is spent.
    StepLimit,
    /// `budget.tokens` is spent.
    TokenLimit,
    /// `budget.wall` is spent.
    WallLimit,
    /// `budget.tool_calls` is spent.
    ToolCallLimit,
    /// `budget.depth` is reached.
    DepthLimit,
    /// The same call with the same result too often.
    LoopDetected,
    /// Too many unreadable answers in a row.
    FormatErrors,
    /// The conversation no longer fits the model's window.
    ContextExhausted,
    /// The model server cannot be reached or keeps failing.
    EndpointUnavailable,
    /// The model server answers, but not in the protocol.
    EndpointProtocol,
    /// The sandbox could not be started or was lost.
    SandboxError,
    /// The user ended it.
    Cancelled,
    /// The executor ended before the run did; written later, by whoever cleared up.
    Interrupted,
}

/// What ended a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoppedBy {
    /// It exited by itself.
    Exit,
    /// A signal that was none of our bounds.
    Signal,
    /// `call.timeout`, or the sandbox's wall clock.
    Timeout,
    /// `limits.memory`, or `call.memory`.
    Memory,
    /// `limits.processes`, or `call.processes`.
    Processes,
    /// `limits.disk`, or `call.disk`.
    Disk,
    /// `call.flood`.
    Output,
    /// `limits.cpu`, or `call.cpu`.
    Cpu,
    /// Refused before it ran.
    Denied,
    /// The user ended it.
    Cancelled,
    /// The sandbox went away under it.
    SandboxLost,
}

impl StopReason {
    /// The name used in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            StopReason::Finished => "finished",
            StopReason::ImplicitFinish => "implicit_finish",
            StopReason::StepLimit => "step_limit",
            StopReason::TokenLimit => "token_limit",
            StopReason::WallLimit => "wall_limit",
            StopReason::ToolCallLimit => "tool_call_limit",
            StopReason::DepthLimit => "depth_limit",
            StopReason::LoopDetected => "loop_detected",
            StopReason::FormatErrors => "format_errors",
            StopReason::ContextExhausted => "context_exhausted",
            StopReason::EndpointUnavailable => "endpoint_unavailable",
            StopReason::EndpointProtocol => "endpoint_protocol",
            StopReason::SandboxError => "sandbox_error",
            StopReason::Cancelled => "cancelled",
            StopReason::Interrupted => "interrupted",
        }
    }

    /// Whether the cause lies outside the Guild: such a run is never scored against it.
    pub fn is_infrastructure(self) -> bool {
        matches!(
            self,
            StopReason::EndpointUnavailable
                | StopReason::EndpointProtocol
                | StopReason::SandboxError
                | StopReason::Cancelled
                | StopReason::Interrupted
        )
    }
}

impl StoppedBy {
    /// The name used in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            StoppedBy::Exit => "exit",
            StoppedBy::Signal => "signal",
            StoppedBy::Timeout => "timeout",
            StoppedBy::Memory => "memory",
            StoppedBy::Processes => "processes",
            StoppedBy::Disk => "disk",
            StoppedBy::Output => "output",
            StoppedBy::Cpu => "cpu",
            StoppedBy::Denied => "denied",
            StoppedBy::Cancelled => "cancelled",
            StoppedBy::SandboxLost => "sandbox_lost",
        }
    }
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::fmt::Display for StoppedBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
