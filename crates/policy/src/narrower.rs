//! Is a Guild no wider than another? The vector of what it can do, its order, and what is told of a difference.
//!
//! Whoever changes a Guild may make it better, never wider. So what a Guild can do is made one value, a
//! [`Capability`]: each part of it has an order of its own (fewer tools, a lower bound, a longer list of refused
//! commands), and a Guild is narrower than another when it is so in every part.
//!
//! ```text
//! Deployment ─┐
//! Guild ──────┼─ Capability::of ─▶ vector ─┐
//! GuildFiles ─┘                            ├─ compare ─▶ Findings ─ Review::of (waivers) ─▶ refused, or not
//!                        vector of the old ┘
//! ```
//!
//! Every type that comes in is taken apart field by field where it is read, and never with `..` (a test holds that), and
//! the bounds that a Guild may lower are a closed list: a new key does not compile before somebody has said which way
//! it widens. What moves no part of the vector (a prompt, a description, a temperature)
//! is listed all the same, as behaviour. Nothing here reads a file or a clock.

mod alias;
mod behaviour;
mod bound;
mod capability;
mod claim;
mod code;
mod commands;
mod compare;
mod disguise;
mod finding;
mod given;
mod hosts;
mod order;
mod parameters;
mod plain;
mod quotes;
mod rank;
mod reach;
mod review;

pub use capability::Capability;
pub use code::{Code, Severity, UnknownCode};
pub use compare::{compare, inspect};
pub use finding::{Finding, MAX_FINDINGS};
pub use given::{GuildFiles, PromptText, ToolFiles};
pub(crate) use quotes::holds_key;
pub use quotes::{any_text, begins_key, has_key};
pub use review::{MAX_ROLES, Review, Reviewed, RoleChange, RolePowers, Waived};
