//! One file per command.

pub(crate) mod apply;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod export;
pub(crate) mod foundry;
pub(crate) mod guild;
pub(crate) mod guild_diff;
pub(crate) mod prove;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schema;
mod terms;

use std::ffi::OsStr;
use std::io;

use ::runs::Host;

/// What became of starting the forker, where the first word on the command line asked for one.
pub(crate) type Forked = Option<io::Result<Host>>;

/// Whether a command of this name starts sandboxes.
pub(crate) fn has_sandboxes(name: &OsStr) -> bool {
    ["run", "exec", "doctor", "prove"].iter().any(|command| name == *command)
}

/// The forker, told where this user keeps what is made once and used again, and who hears of it.
fn host(forked: Forked, quiet: bool) -> anyhow::Result<Host> {
    let host = forked.unwrap_or_else(Host::start)?;
    if !quiet {
        host.hear(|what| crate::render::note(&format!("oubliette: {what}")));
    }
    if let Some(folder) = crate::deploy::cache() {
        host.keep_in(folder);
    }
    Ok(host)
}

/// The runtime of a command: one thread, because a run is one conversation.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
