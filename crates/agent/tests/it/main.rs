//! Behaviour of the agent against a scripted model server and a workbench without a sandbox.

#![expect(clippy::unwrap_used, reason = "a test may fail; so may what it stands on")]

mod agents;
mod arguments;
mod bench;
mod bounds;
mod channels;
mod context;
mod endpoint;
mod files;
mod guild;
mod history;
mod probing;
mod resume;
mod rig;
mod roles;
mod secrets;
