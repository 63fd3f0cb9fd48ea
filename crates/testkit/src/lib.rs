//! Test tools: a scripted model server, a guard over the host's files, declared abilities. Never shipped.

mod model;
mod tree;

pub use model::{Reply, Script, ScriptedModel, Seen};
pub use tree::Tree;
