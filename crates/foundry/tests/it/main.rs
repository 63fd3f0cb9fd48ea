//! The Foundry from outside, with attacks that are only said to have been made: those are shown where sandboxes are.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod copied;
mod ended;
mod gate;
mod kill;
mod odd;
mod promote;
mod race;
mod rig;
