//! One file per command.

pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod guild;
pub(crate) mod prove;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schema;

/// The runtime of a command: one thread, because a run is one conversation.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
