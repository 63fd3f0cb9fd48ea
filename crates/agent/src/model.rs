//! The model server: its wire, its quirks, and what a probe has seen of it.

pub(crate) mod client;
mod exchange;
pub(crate) mod probe;
pub(crate) mod wire;

use client::Client;
use probe::ModelProbe;

/// A server that has been probed.
#[derive(Debug)]
pub struct Model {
    /// How to reach it.
    pub client: Client,
    /// What it really does.
    pub probe: ModelProbe,
}

/// Why there is no usable answer. No text here ever holds the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The address in the deployment cannot be used.
    #[error("the model address {url} cannot be used: {reason}")]
    Address {
        /// As written in the deployment.
        url: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// It cannot be reached, does not answer in time, or keeps failing.
    #[error("the model server at {at} is not available: {reason}")]
    Unavailable {
        /// Host and port.
        at: String,
        /// What was seen.
        reason: String,
    },
    /// It answers, but not in the protocol.
    #[error("the model server at {at} does not speak the protocol: {reason}")]
    Protocol {
        /// Host and port.
        at: String,
        /// What was seen.
        reason: String,
    },
    /// The conversation does not fit its window.
    #[error("the conversation does not fit the model's window")]
    ContextOverflow {
        /// The window, when the server says it.
        n_ctx: Option<u64>,
    },
    /// The user ended it.
    #[error("cancelled")]
    Cancelled,
}
