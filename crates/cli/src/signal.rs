//! Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends at once.

use runs::Cancel;
use tokio::signal::unix::{SignalKind, signal};

/// Listens on a thread of its own, so that a long import hears it too.
///
/// The second signal ends the process with 130; the forker then kills and removes everything.
pub(crate) fn cancel() -> anyhow::Result<Cancel> {
    let (give, cancel) = Cancel::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    // Heard from here on, not from whenever the thread gets its turn.
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            for second in [false, true] {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if second {
                    #[expect(clippy::exit, reason = "asked twice; the forker cleans up")]
                    std::process::exit(130);
                }
                // Nobody listens any more when this fails: the run is over.
                if give.send(true).is_err() {
                    return;
                }
            }
        });
    })?;
    Ok(cancel)
}
