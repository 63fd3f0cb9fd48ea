//! Ctrl-C, SIGTERM and a terminal that goes away: the first asks for an orderly end, the second ends at once. A terminal
//! that goes away is told twice, by its shell and by the kernel: that is never a second signal.

use runs::Cancel;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens on a thread of its own, so that a long import hears it too.
///
/// The second signal ends the process with 130; the forker then kills and removes everything.
pub(crate) fn cancel() -> anyhow::Result<Cancel> {
    let (give, cancel) = Cancel::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    // Heard from here on, not from whenever the thread gets its turn.
    let (mut interrupt, mut terminate, mut hangup) = {
        let _inside = runtime.enter();
        let hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, hangup)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            for second in [false, true] {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => break,
                        _ = terminate.recv() => break,
                        () = hung_up(&mut hangup) => if !second { break },
                    }
                }
                if second {
                    #[expect(clippy::exit, reason = "asked twice; the forker cleans up")]
                    std::process::exit(130);
                }
                // Where nobody listens any more the run is over, and its end may still take its time.
                give.send_replace(true);
            }
        });
    })?;
    Ok(cancel)
}

async fn hung_up(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether whoever started this wants it to outlive the terminal (`nohup`).
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The first bit is that of the first signal, which is this one.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
