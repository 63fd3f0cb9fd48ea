//! Runs commands in one single-use box and reports what really held.
//!
//! ```text
//!            Plan ──ready──▶ Ready ──start──▶ Running ──destroy──▶ Report
//!          (what is       (launched and      (calls run)         (what each layer
//!           wanted)        measured: init                         really enforced)
//!                          answered, no guest
//!                          code has run)
//! ```
//!
//! Who is who:
//!
//! ```text
//!   executor ──socket──▶ forker ──clone──▶ inside: view, walls ──▶ init (PID 1) ──▶ supervisor ──▶ program
//!      ▲                                                              │
//!      └───────────────────── channel: framed, two pipes ─────────────┘
//! ```
//!
//! A virtual machine's init is a process of the guest's kernel; the channel is its serial port (see `machine`).
//!
//! The library never forks in a threaded process: [`helper_main`] must be called first thing in `main`, and
//! [`Host::fork`] or [`Host::start`] before any other thread exists.

mod call;
mod cgroup;
mod channel;
mod clock;
mod confined;
mod disk;
mod doors;
mod engine;
mod engine_memory;
mod file_op;
mod filter;
mod forker;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod growth;
mod gvisor;
mod host;
mod init;
mod inside;
mod launch;
mod machine;
mod message;
mod plan;
mod problem;
mod promise;
mod ready;
mod remedy;
mod report;
mod rules;
mod running;
mod sessions;
mod sys;
mod table;
mod view;
mod wasm;
mod weight;
mod wire;

pub use call::{Call, CallBounds, Cancel, Ended, Job, ModuleCall, Outcome, Stream, Usage};
pub use confined::PRIVATE;
pub use doors::{Asked, Doors, GuestStream, Knock, Missed, Name};
pub use file_op::{Change, FileOp, To, Was};
pub use host::{Host, helper_main};
pub use machine::beyond_limits;
#[doc(hidden)]
pub use machine::in_place_of_a_monitor;
pub use plan::{Plan, SandboxError, TierProbe, find_runsc, guest_owner, probe};
pub use ready::Ready;
pub use report::{Layer, LayerState, Report};
pub use running::Running;
pub use wasm::{BadModule, Module};
