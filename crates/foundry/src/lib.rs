//! Improves a Guild without ever letting it do more.
//!
//! ```text
//!   branches/<id>/guild ─ copy, digest ─▶ the rules: no wider? ─▶ the attacks, as every role ─▶ gate.json
//!                                              └ no: nothing of it ever ran                         │
//!   baseline ◀─ exchange, whole or not at all ◀─ the same branch, baseline, deployment, gate ◀──────┘
//!      └─▶ history ─▶ the way back
//! ```
//!
//! A branch is data, whoever wrote it: its name becomes a path only as a [`BranchId`], its folder is opened by
//! descriptor and never through a link, what is judged is a private copy, and before the rules had their say nothing of
//! it is run, filled in, or read outside its folder.

mod arena;
mod branch_id;
mod exchange;
mod gate;
mod hypothesis;
mod judge;
mod list;
mod promote;
mod record;
mod refusal;
mod scripted;
mod store;
mod tree;

pub use arena::{Ceiling, Sandboxes, attacks_digest};
pub use branch_id::{BadBranchId, BranchId};
pub use exchange::{Act, Kept, Step, Told};
pub use gate::Arena;
pub use hypothesis::{Hypothesis, ToolChange};
pub use judge::Terms;
pub use list::{Full, Listed, Listing};
pub use promote::Standing;
pub use record::{Asked, Attacks, ByWaivers, GateRecord, GateVerdict, Row, RowVerdict};
pub use refusal::{Blame, FoundryError, Refusal};
pub use scripted::{Reply, Scripted};
pub use store::Foundry;
