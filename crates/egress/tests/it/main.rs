//! The way out, with servers on loopback behind addresses that they do not have.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agree;
mod caps;
mod cases;
mod fetch;
mod header;
mod hostile;
mod names;
mod progress;
mod protocols;
mod rig;
mod tunnels;
