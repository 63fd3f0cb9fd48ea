//! Test tools: a scripted model server, a guard over the host's files, declared abilities. Never shipped.

mod tree;

pub use tree::Tree;
