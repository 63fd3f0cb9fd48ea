//! What a run may spend.

use std::time::Duration;

use serde::Serialize;

/// Spending bounds of a run; a role may have lower ones of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// Model turns.
    pub steps: u32,
    /// Tool calls, refused ones included.
    pub tool_calls: u32,
    /// Prompt plus completion tokens as the server counts them.
    pub tokens: u64,
    /// Wall clock of the run.
    pub wall: Duration,
    /// Nested `agent` calls.
    pub depth: u32,
    /// The same call with the same result, this many times, ends the run.
    pub repeats: u32,
    /// Unreadable answers in a row.
    pub format_errors: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            steps: 60,
            tool_calls: 100,
            tokens: 400_000,
            wall: Duration::from_secs(15 * 60),
            depth: 4,
            repeats: 4,
            format_errors: 5,
        }
    }
}
