//! Test tools: a scripted model server, a guard over the host's files, declared abilities. Never shipped.

mod bubblewrap;
mod model;
mod mutate;
mod tree;

pub use bubblewrap::{bubblewrap, give_to_bubblewrap};
pub use model::{Given, Reply, Script, ScriptedModel, Seen, given};
pub use mutate::mutated;
pub use tree::Tree;
