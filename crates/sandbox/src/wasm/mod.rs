//! The tier `wasm`: one module, which can reach nothing but the workspace.
//!
//! ```text
//!   executor: Module::check ──memfd──▶ init ──fork──▶ supervisor ──fork──▶ Landlock, seccomp ─▶ compile ─▶ run
//!   (parses only)                      (a wall of the tier namespace,      (engine.rs)          (wasi.rs: what a
//!                                       or of confined)                                          module may ask)
//! ```
//!
//! The module is hostile, and so is whatever compiles and runs it: the engine is never in the executor. It runs
//! where a program would run, behind the same walls, in a view that holds the workspace and no system at all, and
//! under rules of its own that let it start nothing. A fault of the engine is a way into an empty room.

#[cfg(feature = "wasm")]
pub(crate) mod engine;
#[cfg(feature = "wasm")]
mod errno;
#[cfg(feature = "wasm")]
pub(crate) mod files;
#[cfg(feature = "wasm")]
mod folders;
#[cfg(feature = "wasm")]
mod limiter;
#[cfg(feature = "wasm")]
mod memory;
mod module;
#[cfg(feature = "wasm")]
mod wasi;

use serde::{Deserialize, Serialize};

pub use module::{BadModule, Module};

/// Whether this program was built with the engine.
pub(crate) const BUILT: bool = cfg!(feature = "wasm");

/// A bound of a module that struck, in the word of the process that ran it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Struck {
    /// It executed as many instructions as it may.
    Fuel,
    /// Its deadline passed.
    Time,
    /// It asked for more memory than it may have.
    Memory,
}

impl Struck {
    /// The byte by which it is told, and the signal that a program would have died of.
    pub(crate) fn code(self) -> (u8, i32) {
        match self {
            Struck::Fuel => (b'f', libc::SIGXCPU),
            Struck::Time => (b't', libc::SIGALRM),
            Struck::Memory => (b'm', libc::SIGKILL),
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Struck> {
        [Struck::Fuel, Struck::Time, Struck::Memory].into_iter().find(|s| s.code().0 == byte)
    }
}

/// What was seen of the engine before a module came: a module of ours was run to see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Proven {
    /// Its name and version.
    pub(crate) engine: String,
    /// An endless loop ended when its fuel did.
    pub(crate) fuel: bool,
    /// An endless loop ended at its deadline.
    pub(crate) deadline: bool,
    /// Memory beyond the bound was refused.
    pub(crate) memory: bool,
    /// Nothing but the workspace can be opened by the process that runs it.
    pub(crate) closed: bool,
    /// That process can start nothing.
    pub(crate) alone: bool,
    /// Why it does not work, where it does not.
    pub(crate) problem: String,
}
