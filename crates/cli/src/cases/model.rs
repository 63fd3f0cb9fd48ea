//! The model of a row: it waits for our word, so that the host can be looked at between two calls.

pub(super) use foundry::{Reply, Scripted as Model};
