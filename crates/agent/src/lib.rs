//! Obeys a Guild: role tree, turns, tools, budgets. Names no role in code.
//!
//! ```text
//!   load ──▶ Guild, prompts        probe ──▶ what the model server really does
//!                 └──────────┬──────────────────┘
//!                          drive ── Turn::next ──▶ ask the model │ run a tool │ refuse │ end
//!                            ▲                          │
//!                            └──── answer, result ──────┘
//! ```
//!
//! A turn (`turn.rs`) is a pure state machine: it decides everything and does nothing. [`drive()`] does the I/O it
//! asks for, through a [`Workbench`], which in earnest is the one door of `runs`.

mod action;
mod arguments;
mod bench;
mod drive;
mod guard;
mod guild;
mod history;
mod model;
mod past;
mod patch;
mod path;
mod reader;
mod role;
mod strict;
mod text;
mod tools;
mod turn;

pub use action::action_schema;
pub use bench::{BenchError, Workbench};
pub use drive::{Drive, drive, go_on, rehearse};
pub use guild::{LoadedGuild, OwnTool, load, load_all, load_to_compare, prompt_diff, prompt_diffs};
pub use model::client::{Client, Exchange, Timing};
pub use model::probe::{Finding, ModelProbe, ProbeError, ServerKind, probe};
pub use model::wire::{Answer, Arguments, Finish, RawCall, Usage};
pub use model::{Model, ModelError};
pub use past::Past;
pub use strict::{JsonFault, parse as parse_json};
pub use tools::finish::Status;
