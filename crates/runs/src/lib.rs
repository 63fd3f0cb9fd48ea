//! One run: its copy of the workspace, its record, and the only door to a sandbox.
//!
//! ```text
//!   Run::open ── import ── plan ── start ── execute/file … ── finish ── collect ── destroy ── result.json
//! ```
//!
//! Nothing runs that is not in the record first, and the record lies outside everything a tool can write.

mod event;
mod run;

pub use event::{Channel, Event};
pub use run::{Done, Executed, FileCall, Opening, ProgramCall, Run, RunError, RunResult, Summary};
// The parts of the sandbox that callers above this door may name; they cannot drive one.
pub use sandbox::{Cancel, Ended, FileOp, Host, Layer, LayerState, Outcome, Report, Stream, helper_main};
