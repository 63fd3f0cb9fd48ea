//! Room for one more sandbox: all runs of a data folder, of whatever process, under one ceiling.
//!
//! ```text
//!   ceiling/<run>.waits ── oldest of those that wait, and there is room ─▶ ceiling/<run>.holds ── run ends ─▶ gone
//! ```
//!
//! Each file is locked by the process it speaks for. The kernel lets go of the lock however that process ends, so
//! what a killed one held is free at once, and its file is taken away by whoever looks next. Ids of runs sort by
//! time: first come, first served.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use policy::{Ceiling, Limits};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use sandbox::SandboxError;
use serde::{Deserialize, Serialize};

use crate::{RunError, RunId};

const WAITS: &str = "waits";
const HOLDS: &str = "holds";
/// How long nobody looks who waits.
const LOOK: Duration = Duration::from_millis(100);
/// What a file here may hold.
const LARGEST: u64 = 4 << 10;
const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits().cast_signed();

/// Told to somebody who waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Runs that came before and wait as well.
    pub before: usize,
    /// Runs that have a sandbox now.
    pub running: u32,
    /// Bytes that they may take.
    pub memory: u64,
    /// Cores that they may take.
    pub cores: u32,
}

/// What one run takes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Share {
    memory: u64,
    cores: u32,
}

/// A run's place under the ceiling, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    /// Held for its lock.
    _file: File,
    path: PathBuf,
    /// How long it took to get it.
    pub(crate) waited: Duration,
}

impl Drop for Place {
    fn drop(&mut self) {
        if fs::remove_file(&self.path).is_err() {
            // Unlocked it counts no more, and the next who looks takes it away.
        }
    }
}

/// Waits until there is room for as many sandboxes at once, each with these limits. `told` hears of each change
/// while it waits, and says whether to go on.
///
/// # Errors
/// [`RunError::Cancelled`] when it does not go on; [`RunError::Sandbox`] when there is never room; [`RunError::Io`].
pub(crate) async fn enter(
    store: &Path,
    id: &RunId,
    ceiling: &Ceiling,
    (limits, at_once): (&Limits, u32),
    told: &(dyn Fn(&Waiting) -> bool + Sync),
) -> Result<Place, RunError> {
    let began = Instant::now();
    let folder = store.parent().unwrap_or(store).join("ceiling");
    let failed = |source| RunError::Io { doing: "find room with", path: folder.clone(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
    let share = Share {
        memory: limits.memory.saturating_mul(u64::from(at_once)),
        cores: limits.cores.saturating_mul(at_once),
    };
    if share.memory > ceiling.memory || share.cores > ceiling.cores {
        return Err(never(at_once).into());
    }
    let mut place = register(&folder, id, share).map_err(failed)?;
    loop {
        match place.look(&folder, ceiling, share).map_err(failed)? {
            None => {
                place.waited = began.elapsed();
                return Ok(place);
            }
            Some(seen) if told(&seen) => tokio::time::sleep(LOOK).await,
            Some(_) => return Err(RunError::Cancelled),
        }
    }
}

/// Alone under the ceiling, one sandbox has room: a deployment that gives none is refused when it is read.
fn never(at_once: u32) -> SandboxError {
    SandboxError::Refused {
        reason: format!("it has {at_once} sandboxes at once, which the ceiling never has room for"),
        remedy: "raise `ceiling.memory` and `ceiling.cores`, or lower `limits.memory` and `limits.cores`"
            .to_owned(),
    }
}

/// Who looks is alone while it looks.
fn alone(folder: &Path) -> io::Result<File> {
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(NOFOLLOW)
        .open(folder.join("lock"))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

fn register(folder: &Path, id: &RunId, share: Share) -> io::Result<Place> {
    let _alone = alone(folder)?;
    let path = folder.join(format!("{id}.{WAITS}"));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let place = |file| Place { _file: file, path, waited: Duration::ZERO };
    let written = serde_json::to_vec(&share).map_err(io::Error::other).and_then(|t| file.write_all(&t));
    // Made first: a file that could not be filled is taken away again.
    let place = place(file);
    written.map(|()| place)
}

impl Place {
    /// Takes the room if there is some and nobody came before; otherwise says how it stands.
    fn look(&mut self, folder: &Path, ceiling: &Ceiling, share: Share) -> io::Result<Option<Waiting>> {
        let _alone = alone(folder)?;
        let mut seen = Waiting { before: 0, running: 0, memory: 0, cores: 0 };
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let Some(state) = state(&path) else { continue };
            if path == self.path {
                continue;
            }
            let Some(other) = living(&path)? else { continue };
            if state == HOLDS {
                seen.running = seen.running.saturating_add(1);
                seen.memory = seen.memory.saturating_add(other.memory);
                seen.cores = seen.cores.saturating_add(other.cores);
            } else if path.file_stem() < self.path.file_stem() {
                seen.before += 1;
            }
        }
        let fits = seen.running < ceiling.sandboxes
            && seen.memory.saturating_add(share.memory) <= ceiling.memory
            && seen.cores.saturating_add(share.cores) <= ceiling.cores;
        if seen.before > 0 || !fits {
            return Ok(Some(seen));
        }
        let held = self.path.with_extension(HOLDS);
        fs::rename(&self.path, &held)?;
        self.path = held;
        Ok(None)
    }
}

/// Whether a file is one of ours.
fn state(path: &Path) -> Option<&'static str> {
    RunId::parse(path.file_stem()?.to_str()?).ok()?;
    [WAITS, HOLDS].into_iter().find(|state| path.extension().is_some_and(|e| e == *state))
}

/// What a living process takes; the file of a dead one is taken away.
fn living(path: &Path) -> io::Result<Option<Share>> {
    let file = match OpenOptions::new().read(true).custom_flags(NOFOLLOW).open(path) {
        // It ended just now.
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => {}
        Err(e) => return Err(e.into()),
        Ok(()) => {
            match fs::remove_file(path) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                Ok(()) | Err(_) => {}
            }
            return Ok(None);
        }
    }
    let mut text = Vec::new();
    file.take(LARGEST).read_to_end(&mut text)?;
    // A file that says nothing takes nothing but its place.
    Ok(Some(serde_json::from_slice(&text).unwrap_or(Share { memory: 0, cores: 0 })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    struct Data(tempfile::TempDir);

    impl Data {
        fn new() -> Data {
            Data(tempfile::tempdir().unwrap())
        }

        fn store(&self) -> PathBuf {
            self.0.path().join("runs")
        }

        fn enter(&self, id: &RunId, ceiling: &Ceiling) -> Result<Place, RunError> {
            // Who has to wait goes away again.
            wait(enter(&self.store(), id, ceiling, (&Limits::default(), 1), &|_| false))
        }

        fn files(&self) -> Vec<String> {
            let names = fs::read_dir(self.0.path().join("ceiling")).unwrap();
            let mut names: Vec<String> = names
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .filter(|n| n != "lock")
                .collect();
            names.sort();
            names
        }
    }

    fn wait<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    fn ids<const N: usize>() -> [RunId; N] {
        let mut ids: Vec<RunId> = (0..N).map(|_| RunId::new().unwrap()).collect();
        ids.sort();
        ids.try_into().unwrap()
    }

    fn two() -> Ceiling {
        Ceiling { sandboxes: 2, ..Ceiling::default() }
    }

    #[test]
    fn as_many_as_allowed_find_room_and_the_next_does_not() {
        let (data, [a, b, c]) = (Data::new(), ids());
        let first = data.enter(&a, &two()).unwrap();
        let _second = data.enter(&b, &two()).unwrap();
        assert!(matches!(data.enter(&c, &two()), Err(RunError::Cancelled)));
        drop(first);
        data.enter(&c, &two()).unwrap();
    }

    #[test]
    fn memory_and_cores_count_as_well() {
        let usual = Limits::default();
        for ceiling in [
            Ceiling { memory: usual.memory * 2 - 1, ..Ceiling::default() },
            Ceiling { cores: usual.cores * 2 - 1, ..Ceiling::default() },
        ] {
            let (data, [a, b]) = (Data::new(), ids());
            let _first = data.enter(&a, &ceiling).unwrap();
            assert!(matches!(data.enter(&b, &ceiling), Err(RunError::Cancelled)), "{ceiling:?}");
        }
    }

    /// A run whose Guild has tools of its own has a second sandbox, with the same bounds, during each call of one.
    #[test]
    fn a_run_with_two_sandboxes_at_once_takes_the_room_of_two() {
        let usual = Limits::default();
        let ceiling = Ceiling { memory: usual.memory * 3 - 1, ..Ceiling::default() };
        let (data, [a, b, _]) = (Data::new(), ids());
        let enter = |ceiling: &Ceiling| wait(enter(&data.store(), &a, ceiling, (&usual, 2), &|_| false));
        let first = enter(&ceiling).unwrap();
        assert!(matches!(data.enter(&b, &ceiling), Err(RunError::Cancelled)));
        drop(first);
        // What would never fit does not wait for ever.
        let small = Ceiling { memory: usual.memory * 2 - 1, ..Ceiling::default() };
        assert!(matches!(enter(&small), Err(RunError::Sandbox(SandboxError::Refused { .. }))));
        assert!(data.files().is_empty());
    }

    /// The oldest that waits is served first, also when a younger one would fit.
    #[test]
    fn nobody_overtakes() {
        let (data, [a, b, c]) = (Data::new(), ids());
        let _first = data.enter(&a, &two()).unwrap();
        let folder = data.0.path().join("ceiling");
        let waits = register(&folder, &b, Share { memory: 1 << 40, cores: 1 }).unwrap();
        assert!(matches!(data.enter(&c, &two()), Err(RunError::Cancelled)));
        drop(waits);
        data.enter(&c, &two()).unwrap();
    }

    #[test]
    fn who_waits_hears_why_and_gets_the_room_when_it_is_free() {
        let (data, [a, b]) = (Data::new(), ids());
        let one = Ceiling { sandboxes: 1, ..Ceiling::default() };
        let first = Mutex::new(Some(data.enter(&a, &one).unwrap()));
        let heard = Mutex::new(Vec::new());
        let told = |seen: &Waiting| {
            heard.lock().unwrap().push(*seen);
            drop(first.lock().unwrap().take());
            true
        };
        let place = wait(enter(&data.store(), &b, &one, (&Limits::default(), 1), &told)).unwrap();
        let heard = heard.into_inner().unwrap();
        assert_eq!(heard, [Waiting { before: 0, running: 1, memory: 2 << 30, cores: 2 }]);
        assert!(place.waited >= LOOK);
    }

    /// A file without a lock is of a process that is gone.
    #[test]
    fn what_a_killed_one_held_is_free_at_once() {
        let (data, [a, b, c]) = (Data::new(), ids());
        drop(data.enter(&a, &two()).unwrap());
        let folder = data.0.path().join("ceiling");
        for name in [format!("{a}.{HOLDS}"), format!("{b}.{WAITS}")] {
            fs::write(folder.join(name), r#"{"memory":1099511627776,"cores":99}"#).unwrap();
        }
        let _place = data.enter(&c, &two()).unwrap();
        assert_eq!(data.files(), [format!("{c}.{HOLDS}")]);
    }

    #[test]
    fn nothing_is_left_of_who_went_away() {
        let (data, [a, b]) = (Data::new(), ids());
        let one = Ceiling { sandboxes: 1, ..Ceiling::default() };
        let first = data.enter(&a, &one).unwrap();
        assert!(data.enter(&b, &one).is_err());
        assert_eq!(data.files(), [format!("{a}.{HOLDS}")]);
        drop(first);
        assert!(data.files().is_empty());
    }
}
