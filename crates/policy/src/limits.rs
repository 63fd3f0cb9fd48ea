//! Bounds of a sandbox and of a single call.

use std::time::Duration;

use serde::Serialize;

/// Hard bounds of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Life of the sandbox, wall clock.
    pub wall: Duration,
    /// Processor time of all processes together, user plus system, the dead among them.
    pub cpu: Duration,
    /// Processors that may be busy at the same time.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u32,
    /// Bytes in the workspace, all files together.
    pub disk: u64,
    /// Bytes in `/tmp` and `/dev/shm`.
    pub tmp: u64,
    /// Files in the workspace, folders among them.
    pub files: u64,
}

/// Bounds of one tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallLimits {
    /// Wall clock; everything the call started is killed when it strikes.
    pub timeout: Duration,
    /// Processor time of everything the call started together; `Limits::cpu` alone when none.
    pub cpu: Option<Duration>,
    /// Bytes that everything the call started holds together; `Limits::memory` alone when none.
    pub memory: Option<u64>,
    /// Processes and threads of the call; `Limits::processes` alone when none.
    pub processes: Option<u32>,
    /// Bytes by which the call may make the workspace grow; `Limits::disk` alone when none.
    pub disk: Option<u64>,
    /// Bytes of output kept as an artifact; what is printed beyond is counted, and its end is shown.
    pub output: u64,
    /// Bytes that may be printed at all; more ends the call.
    pub flood: u64,
    /// Characters of a result shown to the model.
    pub to_model: usize,
}

/// What all runs of a deployment may take at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ceiling {
    /// Runs with a sandbox.
    pub sandboxes: u32,
    /// Bytes: their `limits.memory` together.
    pub memory: u64,
    /// Their `limits.cores` together.
    pub cores: u32,
}

impl Default for Ceiling {
    fn default() -> Self {
        Ceiling { sandboxes: 8, memory: 16 << 30, cores: 16 }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            wall: Duration::from_secs(15 * 60),
            cpu: Duration::from_secs(10 * 60),
            cores: 2,
            memory: 2 << 30,
            processes: 256,
            disk: 1 << 30,
            tmp: 256 << 20,
            files: 50_000,
        }
    }
}

impl Default for CallLimits {
    fn default() -> Self {
        CallLimits {
            timeout: Duration::from_secs(60),
            cpu: None,
            memory: None,
            processes: None,
            disk: None,
            output: 1 << 20,
            flood: 4 << 30,
            to_model: 10_000,
        }
    }
}
