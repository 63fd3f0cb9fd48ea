//! Runs commands in one single-use box and reports what really held.
//!
//! ```text
//!            Plan ──ready──▶ Ready ──start──▶ Running ──destroy──▶ Report
//!          (what is       (probed, above    (init answers,       (what each layer
//!           wanted)        the floor)        calls run)           really enforced)
//! ```
//!
//! The library never forks in a threaded process: [`helper_main`] must be called first thing in `main`, and
//! [`Host::start`] before any thread or runtime exists.

mod call;
mod plan;
mod report;

pub use call::{Call, Cancel, Ended, FileOp, Job, Outcome, Stream, Usage};
pub use plan::{Host, Plan, Ready, Running, SandboxError, helper_main};
pub use report::{Layer, LayerState, Report};
