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

/// What one run may take of the way out, all destinations together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Connections at the same time.
    pub open: u32,
    /// Connections over the whole run.
    pub connections: u32,
    /// Bytes that go out, over the whole run.
    pub up: u64,
    /// Bytes that come in, over the whole run.
    pub down: u64,
    /// Bytes in a second, each way; as fast as it goes when none.
    pub rate: Option<u64>,
    /// A connection without a byte in either direction ends after this.
    pub idle: Duration,
    /// The longest that a connection lasts.
    pub lifetime: Duration,
}

/// What all runs of a deployment may take at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ceiling {
    /// Runs with a sandbox.
    pub sandboxes: u32,
    /// Bytes: their `limits.memory` together, and for each that may be a machine what one has for itself.
    pub memory: u64,
    /// Their `limits.cores` together.
    pub cores: u32,
}

impl Default for Traffic {
    fn default() -> Self {
        Traffic {
            open: 256,
            connections: 20_000,
            up: 256 << 20,
            down: 4 << 30,
            rate: None,
            idle: Duration::from_secs(120),
            lifetime: Duration::from_secs(15 * 60),
        }
    }
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
