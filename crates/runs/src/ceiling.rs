//! Room for one more sandbox: all runs of a data folder, of whatever process, under one ceiling.
//!
//! ```text
//!   ceiling/seat-N: taken ── {run, waits} ── oldest of those that wait, and there is room ─▶ {run, holds} ── run ends
//!         ▲                                                                                                     │
//!         └───────────────────────────────────── free, for the next ◀───────────────────────────────────────────┘
//! ```
//!
//! A seat is taken while the process it speaks for holds a lock on its file, and after it the forker until its guests
//! are gone. The kernel lets go of the lock however those end, and what a free seat says counts nothing. Files stay
//! for the next run: to make one and to remove one costs a run more than all else here. Ids of runs sort by time:
//! first come, first served. Who waits and looks no more (it was stopped) is passed over until it does.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use policy::{Ceiling, Limits, TierChoice};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use sandbox::SandboxError;
use serde::{Deserialize, Serialize};

use crate::quote::in_text;
use crate::{RunError, RunId};

const SEAT: &str = "seat-";
/// More seats than any ceiling has room for, waiting included.
const SEATS: u32 = 1 << 16;
/// How long nobody looks who waits.
const LOOK: Duration = Duration::from_millis(100);
/// What a seat says is filled up to this length, so that it can be written over in place.
const LENGTH: usize = 256;
/// Who waits and has not looked for this long holds up nobody.
const PASSED: Duration = Duration::from_secs(2);
/// How soon one looks again who met somebody looking.
const SOON: Duration = Duration::from_millis(2);
/// What lies there and is no file is not waited for, and leads nowhere.
const FLAGS: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();

/// Told to somebody who waits for room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    memory: u64,
    cores: u32,
    /// What of the memory is a machine's own.
    machine: u64,
}

impl Share {
    /// Of as many sandboxes at once, each with these limits: the run's, of this tier, and those of its tools, which are
    /// no machines.
    pub(crate) fn of(tier: TierChoice, limits: &Limits, at_once: u32) -> Share {
        let machine = sandbox::beyond_limits(tier);
        Share {
            memory: limits.memory.saturating_mul(u64::from(at_once)).saturating_add(machine),
            cores: limits.cores.saturating_mul(at_once),
            machine,
        }
    }

    /// Told at once, before anything waits: alone under the ceiling it would find no room either.
    fn check(&self, ceiling: &Ceiling) -> Result<(), SandboxError> {
        if self.memory <= ceiling.memory && self.cores <= ceiling.cores {
            return Ok(());
        }
        let mib = |bytes: u64| bytes >> 20;
        let (of_machine, other) = match self.machine {
            0 => (String::new(), ""),
            machine => {
                let beside = "a machine has for itself beside `limits.memory`";
                (format!(", {} MiB of which {beside}", mib(machine)), ", or name a tier that is no machine")
            }
        };
        Err(SandboxError::Refused {
            reason: format!(
                "it takes {} MiB{of_machine}, and {} cores with all its sandboxes at once, and the ceiling of {} MiB and \
                 {} cores never has room for that",
                mib(self.memory),
                self.cores,
                mib(ceiling.memory),
                ceiling.cores
            ),
            remedy: format!(
                "raise `ceiling.memory` and `ceiling.cores`, or lower `limits.memory` and `limits.cores`{other}"
            ),
        })
    }
}

/// What a seat says.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Taken {
    run: String,
    /// It has its room; otherwise it waits for it.
    holds: bool,
    memory: u64,
    cores: u32,
}

/// A run's place under the ceiling, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    /// Held for its lock.
    file: File,
    seat: PathBuf,
    taken: Taken,
    /// How long it took to get it.
    pub(crate) waited: Duration,
}

/// Waits until there is room for this share. `told` hears of each change while it waits, and says whether to go on.
///
/// # Errors
/// [`RunError::Cancelled`] when it does not go on; [`RunError::Sandbox`] when there is never room; [`RunError::Io`].
pub(crate) async fn enter(
    store: &Path,
    id: &RunId,
    ceiling: &Ceiling,
    share: Share,
    told: &(dyn Fn(&Waiting) -> bool + Sync),
) -> Result<Place, RunError> {
    let began = Instant::now();
    let folder = store.parent().unwrap_or(store).join("ceiling");
    let failed = |source| RunError::Io { doing: "find room with", path: folder.clone(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
    share.check(ceiling)?;
    let (mut place, mut last, mut asked) = (None, Waiting::default(), began);
    loop {
        let looked = match alone(&folder).map_err(failed)? {
            Some(_alone) => Some(look(&folder, id, ceiling, share, &mut place).map_err(failed)?),
            None => None,
        };
        let again = match looked {
            Some(Look::Room(place)) => return Ok(Place { waited: began.elapsed(), ..place }),
            Some(Look::Full(seen)) => {
                last = seen;
                LOOK
            }
            // A look takes no time, unless who looks is stopped in the middle of it.
            None if asked.elapsed() < LOOK => {
                tokio::time::sleep(SOON).await;
                continue;
            }
            None => SOON,
        };
        if !told(&last) {
            return Err(RunError::Cancelled);
        }
        tokio::time::sleep(again).await;
        asked = Instant::now();
    }
}

/// Who looks is alone while it looks; none while somebody else does.
fn alone(folder: &Path) -> io::Result<Option<File>> {
    let lock = made(&folder.join("lock"))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn made(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().write(true).create(true).truncate(false).mode(0o600))
}

fn open(path: &Path, how: &mut OpenOptions) -> io::Result<File> {
    let is_none = || io::Error::other(format!("{} is no file: remove it", in_text(path)));
    match how.custom_flags(FLAGS).open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(is_none()),
        Err(_) if fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_file()) => Err(is_none()),
        Err(e) => Err(e),
    }
}

/// What came of looking.
enum Look {
    Room(Place),
    Full(Waiting),
}

/// Only while nobody else looks. Takes the room if there is some and nobody came before; otherwise says how it stands, and waits in `place`.
fn look(
    folder: &Path,
    id: &RunId,
    ceiling: &Ceiling,
    share: Share,
    place: &mut Option<Place>,
) -> io::Result<Look> {
    let mut mine = match place.take() {
        Some(mine) => mine,
        None => take_seat(folder, id, share)?,
    };
    let mut seen = Waiting::default();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_seat =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(SEAT.as_bytes()));
        if !is_seat || path == mine.seat {
            continue;
        }
        let Some(other) = said(&path)? else { continue };
        if other.holds {
            seen.running = seen.running.saturating_add(1);
            seen.memory = seen.memory.saturating_add(other.memory);
            seen.cores = seen.cores.saturating_add(other.cores);
        } else if other.run < mine.taken.run {
            seen.before += 1;
        }
    }
    let fits = seen.running < ceiling.sandboxes
        && seen.memory.saturating_add(share.memory) <= ceiling.memory
        && seen.cores.saturating_add(share.cores) <= ceiling.cores;
    mine.taken.holds = seen.before == 0 && fits;
    mine.say()?;
    Ok(if mine.taken.holds {
        Look::Room(mine)
    } else {
        *place = Some(mine);
        Look::Full(seen)
    })
}

/// The first seat that is free.
fn take_seat(folder: &Path, id: &RunId, share: Share) -> io::Result<Place> {
    for number in 0..SEATS {
        let seat = folder.join(format!("{SEAT}{number}"));
        let file = made(&seat)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let Share { memory, cores, machine: _ } = share;
                let taken = Taken { run: id.to_string(), holds: false, memory, cores };
                return Ok(Place { file, seat, taken, waited: Duration::ZERO });
            }
            Err(Errno::WOULDBLOCK) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(io::Error::other("every seat is taken"))
}

impl Place {
    /// Its lock once more, for who is to keep it beyond this process.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// Only while nobody else looks; when it was written says when this one has looked.
    fn say(&self) -> io::Result<()> {
        let text = serde_json::to_string(&self.taken)?;
        self.file.write_all_at(format!("{text:<LENGTH$}").as_bytes(), 0)
    }
}

/// What a seat says that a living process has taken; none as well where that one waits and does not look.
fn said(seat: &Path) -> io::Result<Option<Taken>> {
    let file = match open(seat, OpenOptions::new().read(true)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => {}
        Err(e) => return Err(e.into()),
        Ok(()) => return Ok(None),
    }
    // With a clock that was set back nobody is late.
    let late = file.metadata()?.modified()?.elapsed().is_ok_and(|since| since >= PASSED);
    let mut text = Vec::new();
    file.take(u64::try_from(LENGTH).unwrap_or(0)).read_to_end(&mut text)?;
    // One that says nothing takes nothing but its place.
    let nothing = Taken { run: String::new(), holds: true, memory: 0, cores: 0 };
    let taken = serde_json::from_slice(&text).unwrap_or(nothing);
    Ok((taken.holds || !late).then_some(taken))
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
            wait(enter(&self.store(), id, ceiling, usual(1), &|_| false))
        }

        /// Seats that somebody has, and seats there are.
        fn seats(&self) -> (usize, usize) {
            let names = fs::read_dir(self.0.path().join("ceiling")).unwrap();
            let seats: Vec<PathBuf> =
                names.map(|e| e.unwrap().path()).filter(|path| !path.ends_with("lock")).collect();
            (seats.iter().filter(|seat| said(seat).unwrap().is_some()).count(), seats.len())
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

    fn usual(at_once: u32) -> Share {
        Share::of(TierChoice::Namespace, &Limits::default(), at_once)
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
        let one = Limits::default().memory;
        let ceiling = Ceiling { memory: one * 3 - 1, ..Ceiling::default() };
        let (data, [a, b, _]) = (Data::new(), ids());
        let enter = |ceiling: &Ceiling| wait(enter(&data.store(), &a, ceiling, usual(2), &|_| false));
        let first = enter(&ceiling).unwrap();
        assert!(matches!(data.enter(&b, &ceiling), Err(RunError::Cancelled)));
        drop(first);
        // What would never fit does not wait for ever.
        let small = Ceiling { memory: one * 2 - 1, ..Ceiling::default() };
        assert!(matches!(enter(&small), Err(RunError::Sandbox(SandboxError::Refused { .. }))));
        assert_eq!(data.seats().0, 0);
    }

    /// The group of a machine bounds its guest's memory, its kernel's and its monitor's together: so much is taken.
    #[test]
    fn a_machine_takes_what_it_has_for_itself_as_well() {
        let usual = Limits::default();
        let share = |tier, at_once| Share::of(tier, &usual, at_once).memory;
        let own = (192 + 384) << 20;
        assert_eq!(share(TierChoice::Microvm, 1), usual.memory + own);
        // The other one is of a tool, which is never a machine.
        assert_eq!(share(TierChoice::Microvm, 2), usual.memory * 2 + own);
        for tier in [TierChoice::Confined, TierChoice::Namespace, TierChoice::Gvisor, TierChoice::Wasm] {
            assert_eq!(share(tier, 1), usual.memory, "{tier:?}");
        }
        // Two machines where without what is theirs two would fit: the second waits.
        let (data, [a, b]) = (Data::new(), ids());
        let ceiling = Ceiling { memory: usual.memory * 2 + own, ..Ceiling::default() };
        let enter = |id, ceiling: &Ceiling| {
            let machine = Share::of(TierChoice::Microvm, &usual, 1);
            wait(enter(&data.store(), id, ceiling, machine, &|_| false))
        };
        let first = enter(&a, &ceiling).unwrap();
        assert!(matches!(enter(&b, &ceiling), Err(RunError::Cancelled)));
        drop(first);
        // One that would never fit does not wait, and is told what is a machine's own.
        let told = enter(&a, &Ceiling { memory: usual.memory + own - 1, ..Ceiling::default() }).unwrap_err();
        assert!(matches!(told, RunError::Sandbox(SandboxError::Refused { .. })));
        let told = told.told();
        assert!(told.contains("it takes 2624 MiB, 576 MiB of which a machine has for itself"), "{told}");
        assert!(told.contains("name a tier that is no machine"), "{told}");
    }

    /// The oldest that waits is served first, also when a younger one would fit.
    #[test]
    fn nobody_overtakes() {
        let (data, [a, b, c]) = (Data::new(), ids());
        let _first = data.enter(&a, &two()).unwrap();
        let folder = data.0.path().join("ceiling");
        let mut waits = None;
        let looked =
            look(&folder, &b, &two(), Share { memory: 1 << 40, cores: 1, machine: 0 }, &mut waits).unwrap();
        assert!(matches!(looked, Look::Full(_)) && waits.is_some());
        assert!(matches!(data.enter(&c, &two()), Err(RunError::Cancelled)));
        drop(waits);
        data.enter(&c, &two()).unwrap();
    }

    /// Ctrl-Z: its lock stays, and it looks no more until it goes on; then it is first again.
    #[test]
    fn who_waits_and_is_stopped_is_passed_over_until_it_goes_on() {
        let (data, [a, b, c, d]) = (Data::new(), ids());
        let one = Ceiling { sandboxes: 1, ..Ceiling::default() };
        let first = data.enter(&a, &one).unwrap();
        let folder = data.0.path().join("ceiling");
        let (mut waits, share) = (None, Share { memory: 1, cores: 1, machine: 0 });
        look(&folder, &b, &one, share, &mut waits).unwrap();
        let ago = |file: &File| file.set_modified(std::time::SystemTime::now() - PASSED).unwrap();
        ago(&waits.as_ref().unwrap().file);
        // Who has its room has it however long it says nothing.
        ago(&first.file);
        assert!(matches!(data.enter(&c, &one), Err(RunError::Cancelled)));
        drop(first);
        let third = data.enter(&c, &one).unwrap();
        assert!(matches!(look(&folder, &b, &one, share, &mut waits).unwrap(), Look::Full(_)));
        drop(third);
        assert!(matches!(data.enter(&d, &one), Err(RunError::Cancelled)));
        assert!(matches!(look(&folder, &b, &one, share, &mut waits).unwrap(), Look::Room(_)));
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
        let place = wait(enter(&data.store(), &b, &one, usual(1), &told)).unwrap();
        let heard = heard.into_inner().unwrap();
        assert_eq!(heard, [Waiting { before: 0, running: 1, memory: 2 << 30, cores: 2 }]);
        assert!(place.waited >= LOOK);
    }

    /// A seat without a lock is of a process that is gone.
    #[test]
    fn what_a_killed_one_held_is_free_at_once() {
        let (data, [a, b, c]) = (Data::new(), ids());
        drop(data.enter(&a, &two()).unwrap());
        for (number, (run, holds)) in [(&a, true), (&b, false)].iter().enumerate() {
            let taken = Taken { run: run.to_string(), holds: *holds, memory: 1 << 40, cores: 99 };
            let seat = data.0.path().join(format!("ceiling/{SEAT}{number}"));
            fs::write(seat, serde_json::to_string(&taken).unwrap()).unwrap();
        }
        let _place = data.enter(&c, &two()).unwrap();
        assert_eq!(data.seats(), (1, 2));
    }

    #[test]
    fn a_seat_is_taken_again_and_nothing_is_left_of_who_went_away() {
        let (data, [a, b]) = (Data::new(), ids());
        let one = Ceiling { sandboxes: 1, ..Ceiling::default() };
        let first = data.enter(&a, &one).unwrap();
        assert!(data.enter(&b, &one).is_err());
        assert_eq!(data.seats(), (1, 2));
        drop(first);
        assert_eq!(data.seats(), (0, 2));
        let _again = data.enter(&b, &one).unwrap();
        assert_eq!(data.seats(), (1, 2));
    }

    /// A FIFO would hold whoever opens it until somebody else does, and a link would lead elsewhere.
    #[test]
    fn what_is_no_file_is_named_and_hangs_nobody() {
        for name in ["lock", "seat-0", "seat-7"] {
            let (data, [a]) = (Data::new(), ids());
            fs::create_dir(data.0.path().join("ceiling")).unwrap();
            let path = data.0.path().join("ceiling").join(name);
            let refused = || data.enter(&a, &two()).unwrap_err().told();
            let fifo = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, 0o600.into(), 0).unwrap();
            assert!(refused().contains(&format!("{name} is no file")), "{}", refused());
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink("/dev/null", &path).unwrap();
            assert!(refused().contains(&format!("{name} is no file")), "{}", refused());
        }
    }

    /// Whoever looks may be stopped in the middle of it.
    #[test]
    fn who_cannot_look_is_asked_all_the_same_whether_to_go_on() {
        let (data, [a]) = (Data::new(), ids());
        let folder = data.0.path().join("ceiling");
        fs::create_dir(&folder).unwrap();
        let looks = alone(&folder).unwrap();
        assert!(looks.is_some() && alone(&folder).unwrap().is_none());
        assert!(matches!(data.enter(&a, &two()), Err(RunError::Cancelled)));
        drop(looks);
        data.enter(&a, &two()).unwrap();
    }

    /// What a seat says is never longer than what is read of it, and is never a mixture of two texts.
    #[test]
    fn the_longest_text_of_a_seat_fits() {
        let taken =
            Taken { run: RunId::new().unwrap().to_string(), holds: false, memory: u64::MAX, cores: u32::MAX };
        assert!(serde_json::to_string(&taken).unwrap().len() < LENGTH);
    }
}
