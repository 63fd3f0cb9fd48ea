//! One file per command.

pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod guild;
pub(crate) mod prove;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schema;

/// The forker, told where this user keeps what is made once and used again, and who hears of it.
fn host(quiet: bool) -> anyhow::Result<::runs::Host> {
    let host = ::runs::Host::start()?;
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
