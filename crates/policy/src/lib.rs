//! What is allowed: checked values and judgements, nothing else.
//!
//! A deployment (the operator's `oubliette.toml`) and a Guild (data that anyone may have edited) come in as
//! text and leave as checked types. A [`Grant`] is the deployment narrowed by the Guild; whatever runs, runs
//! under a grant. This crate does no I/O, reads no clock and is never async, so that the launcher and the
//! Foundry's gate cannot disagree about what a file means.
//!
//! ```text
//! oubliette.toml ──parse──▶ Deployment ─┐
//!                                       ├──Grant::new──▶ Grant ──tool, program──▶ Decision
//! guild.toml ──────parse──▶ Guild ──────┘
//! ```
//!
//! What may change in a Guild is judged here too: [`narrower`] says whether one is wider than another.
//!
//! Both files take the same way: [`schema`] is generated from the types, [`check_shape`] holds the file against
//! it, and every fault of a file is told at once, with its [`Place`] and a stable [`Code`]. Nothing in a
//! message repeats a value that may be a key.

mod address;
mod budget;
mod command;
mod date;
mod decision;
mod deployment;
mod document;
mod fault;
mod forms;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod grant;
mod guild;
mod host;
mod kind;
mod limits;
mod name;
pub mod narrower;
mod network;
mod quoted;
pub mod room;
mod schema;
mod shape;
mod shown;
mod spelling;
mod stop;
mod tier;
mod tool;
mod unit;
mod value;
mod waivers;

pub use address::AddressKind;
pub use budget::Budget;
pub use date::Date;
pub use decision::{Decision, Verdict};
pub use deployment::{Deployment, Isolation, Model, Records, Rootfs, Shell};
pub use document::Places;
pub use fault::{Code, Fault, Faults, Place};
pub use forms::{FormAt, Forms, header_secrets, is_too_short_to_hide};
pub use grant::{Grant, RoleGrant};
pub use guild::{Generation, Guild, LimitKey, OwnTool, Role};
pub use host::{Host, HostName, Target};
pub use kind::{SchemaKind, UnknownKind, schema};
pub use limits::{CallLimits, Ceiling, Limits, Traffic};
pub use name::{EnvName, GuildPath, RoleName};
pub use network::{Destination, Header, HeaderName, HostRule};
pub use quoted::{BadQuoted, from_quotes, quoted, unquoted};
pub use shape::{ShapeError, check_shape};
pub use shown::{looks_like_key, shown};
pub use stop::{StopReason, StoppedBy};
pub use tier::{Acceptance, BelowFloor, Surroundings, Tier, TierChoice};
pub use tool::{Power, Tool};
pub use waivers::{Waiver, Waivers};
