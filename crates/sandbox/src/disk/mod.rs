//! The sums of what a guest may take on the host's disk, watched from outside.
//!
//! ```text
//!   a call begins ──▶ watch: every 25 ms what the file system has left; where that might be too much, and now and
//!   then in any case, a look at the whole tree ──▶ over the bound, and more than before ──▶ the calls are struck
//! ```
//!
//! No quota of the kernel is asked for. Those of projects (ext4, xfs) must have been switched on when the file
//! system was made or mounted, and only root may set them. An image of a fixed size needs root, a loop device and a
//! mount on the host, would have to be copied back, and has the kernel read a file system that a guest has written.
//! Memory is no place for a workspace. A watch holds on every file system and for every user; what is written
//! between two looks is beyond the bound, and the report says so.
//!
//! A call that has a bound of its own is struck alone, for what the workspace has grown by since it began. Who wrote what
//! cannot be seen: what earlier calls left running goes first here too, and where several calls run at once, what they
//! write counts for each.
//!
//! A guest that is over its bound can still take things away: a call is struck only when there is more than there
//! was when the last one was struck. As long as it is over, its calls can write no byte into any file.

mod open;
mod tree;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use tokio::sync::{oneshot, watch};

use crate::growth::{Growth, Guest};
use tree::{Counted, Look, Taken};

/// What the file system has left is asked this often.
pub(crate) const EVERY: Duration = Duration::from_millis(25);
/// The tree is looked at this often at least, for others may free what the guest takes; less often where a look
/// costs more than one in [`SHARE`] of that.
pub(crate) const AT_LEAST: Duration = Duration::from_millis(250);
/// See [`AT_LEAST`].
pub(crate) const SHARE: u32 = 20;
/// A tree that takes no longer than this is looked at after each call.
const CHEAP: Duration = Duration::from_millis(2);
/// How long what is swept away may take to be gone on a busy machine, and the part of its bound, or the bytes where that is
/// less, that it may still add, before what is added counts as somebody else's.
const SWEEP: Duration = Duration::from_secs(5);
/// See [`SWEEP`].
const PART: u64 = 4;
/// See [`SWEEP`].
const ADDED: u64 = 64 << 20;
/// Between two strikes.
const AGAIN: Duration = Duration::from_millis(500);
/// A file system goes on taking for what was written before: ext4 makes its lists of extents when it writes out, 4 KiB
/// for about 260 blocks that lie apart. No guest is struck for that part of what it may have, or for [`LISTS`] bytes.
const OWN: u64 = 128;
/// See [`OWN`].
const LISTS: u64 = 64 << 10;
/// Looks in a row that could not see everything, after which a tree counts as too large.
const BLIND: u32 = 3;
/// A look takes no more of a processor, and four times that on a busy machine: a guest may make it as slow as it likes. The
/// one after a late one may take twice as much, up to [`DOUBLED`] times.
const LONGEST: Duration = Duration::from_secs(1);
/// See [`LONGEST`].
const DOUBLED: u32 = 3;
/// While looks are late, what others write on that disk is not taken for the guest's for so long after the last whole one.
const TRUST: Duration = Duration::from_secs(20);

/// When a look ends, done or not.
pub(crate) struct Till<'a> {
    began: Instant,
    used: Duration,
    most: Duration,
    stop: &'a AtomicBool,
}

impl<'a> Till<'a> {
    fn after(most: Duration, stop: &'a AtomicBool) -> Till<'a> {
        Till { began: Instant::now(), used: processor(), most, stop }
    }

    #[cfg(test)]
    fn some_time(stop: &'a AtomicBool) -> Till<'a> {
        Till::after(LONGEST, stop)
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.is_late()
    }

    fn is_late(&self) -> bool {
        let wall = self.began.elapsed();
        wall >= self.most && (wall >= self.most * 4 || processor().saturating_sub(self.used) >= self.most)
    }
}

/// What this thread has had of a processor.
fn processor() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// A folder and its bounds.
#[derive(Debug)]
pub(crate) struct Place {
    folder: OwnedFd,
    name: PathBuf,
    bytes: u64,
    files: u64,
    /// See [`Place::given`].
    given: Option<u64>,
}

impl Place {
    /// Opens it; no link is followed at its end.
    pub(crate) fn open(name: &Path, bytes: u64, files: u64) -> io::Result<Place> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(name, flags, Mode::empty())?;
        Ok(Place { folder, name: name.to_owned(), bytes, files, given: None })
    }

    /// What was put into it takes that much more than its sizes tell; seen by the first look, before any call, where none
    /// is said. What a guest has been in must not be asked: it could be given what it left.
    pub(crate) fn given(self, given: Option<u64>) -> Place {
        Place { given, ..self }
    }
}

/// The watch over one sandbox; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Disk {
    orders: Option<Sender<Order>>,
    /// What the first look finds, until the first call begins.
    first: Mutex<Option<oneshot::Receiver<bool>>>,
    strikes: Strikes,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    /// Nothing of a guest has run yet: the first look; the answer is whether the sandbox's bound is passed already.
    Begin { answer: oneshot::Sender<bool> },
    /// A call begins, which may add so much; the answer is whether the sandbox's bound is passed already.
    Enter { id: u32, most: Option<u64>, answer: oneshot::Sender<bool> },
    /// A call is over.
    Leave { id: u32, struck: bool, background: bool, answer: oneshot::Sender<Filled> },
}

/// The calls that are struck and not over yet.
pub(crate) type Strikes = watch::Receiver<BTreeSet<u32>>;

/// What a call that was not struck in time had done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Filled {
    #[default]
    No,
    /// The workspace was taken beyond the sandbox's bound while it ran.
    Now,
    /// It took more than it may itself, and nobody else was there.
    ByIt,
}

impl Disk {
    /// Begins, for the sandbox of this first process; `sweep` ends what earlier calls left running.
    pub(crate) fn watch(places: Vec<Place>, first: i32, sweep: Box<dyn Fn() + Send>) -> io::Result<Disk> {
        let (orders, taken) = channel();
        let (strike, strikes) = watch::channel(BTreeSet::new());
        let stop = Arc::new(AtomicBool::new(false));
        let watcher = Watcher::new(places, first, sweep, (strike, Arc::clone(&stop)));
        let thread =
            std::thread::Builder::new().name("disk".to_owned()).spawn(move || watcher.serve(&taken))?;
        Ok(Disk { orders: Some(orders), first: Mutex::default(), strikes, stop, thread: Some(thread) })
    }

    /// Has the first look taken while others have something to do yet; otherwise the first call waits for it. Nothing of a
    /// guest may have run, and nothing may be put into the workspace from outside any more.
    pub(crate) fn begin(&self) {
        let (answer, found) = oneshot::channel();
        if self.orders.as_ref().is_some_and(|orders| orders.send(Order::Begin { answer }).is_ok()) {
            *self.first.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        }
    }

    /// A call begins, which may add `most`; whether the workspace is beyond the sandbox's bound. None when nobody
    /// watches any more.
    pub(crate) async fn enter(&self, id: u32, most: Option<u64>) -> Option<bool> {
        let (answer, answered) = oneshot::channel();
        self.orders.as_ref()?.send(Order::Enter { id, most, answer }).ok()?;
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        match first {
            // Nothing has changed since: what was found then is what would be told now.
            Some(found) if most.is_none() => found.await.ok(),
            Some(_) | None => answered.await.ok(),
        }
    }

    /// It is over; whether a bound was passed meanwhile, and nothing was struck in time.
    pub(crate) async fn leave(&self, id: u32, struck: bool, background: bool) -> Filled {
        let (answer, answered) = oneshot::channel();
        let sent = self.orders.as_ref().map(|o| o.send(Order::Leave { id, struck, background, answer }));
        match sent {
            Some(Ok(())) => answered.await.unwrap_or_default(),
            Some(Err(_)) | None => Filled::No,
        }
    }

    /// Hears which calls are struck.
    pub(crate) fn strikes(&self) -> Strikes {
        self.strikes.clone()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.orders = None;
        // Folders it has opened are as they were when it has ended.
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl Taken {
    /// More than this counts as more.
    fn most(self) -> u64 {
        self.bytes.saturating_add(LISTS.max(self.bytes / OWN))
    }
}

/// What a file system has left.
#[derive(Clone, Copy, Debug, Default)]
struct Free {
    bytes: u64,
    files: u64,
}

struct Watcher {
    strike: watch::Sender<BTreeSet<u32>>,
    sweep: Box<dyn Fn() + Send>,
    first: i32,
    stop: Arc<AtomicBool>,
    places: Vec<Place>,
    /// What is allowed now: the bound, or what there was when it was struck.
    levels: Vec<Taken>,
    /// What there was at the last look, and what was free then.
    seen: Vec<Taken>,
    free: Vec<Free>,
    begun: bool,
    looked: Instant,
    /// What that look took, and what of it the trees did.
    cost: Duration,
    tree: Duration,
    blind: u32,
    /// The last look ended before it was done.
    late: bool,
    /// See [`LONGEST`].
    longest: Duration,
    /// Since when no look has seen everything, while somebody ran.
    since: Instant,
    full: bool,
    /// It was so when the last call began, or others filled it since: that one is not told for it.
    found_full: bool,
    calls: Growth,
    /// Earlier calls may have left something running.
    left: bool,
    /// When something was swept away, and what there was then.
    swept: Option<(Instant, Taken)>,
    struck: Option<Instant>,
}

impl Watcher {
    fn new(
        places: Vec<Place>,
        first: i32,
        sweep: Box<dyn Fn() + Send>,
        (strike, stop): (watch::Sender<BTreeSet<u32>>, Arc<AtomicBool>),
    ) -> Watcher {
        Watcher {
            strike,
            sweep,
            first,
            stop,
            levels: places.iter().map(|p| Taken { bytes: p.bytes, files: p.files, sizes: 0 }).collect(),
            seen: vec![Taken::default(); places.len()],
            free: vec![Free::default(); places.len()],
            places,
            begun: false,
            looked: Instant::now(),
            cost: Duration::ZERO,
            tree: Duration::ZERO,
            blind: 0,
            late: false,
            longest: LONGEST,
            since: Instant::now(),
            full: false,
            found_full: false,
            calls: Growth::default(),
            left: false,
            swept: None,
            struck: None,
        }
    }

    fn serve(mut self, orders: &Receiver<Order>) {
        loop {
            let order = if !self.calls.is_idle() || self.left || self.swept.is_some() {
                match orders.recv_timeout(EVERY) {
                    Err(RecvTimeoutError::Timeout) => None,
                    Ok(order) => Some(order),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            } else {
                match orders.recv() {
                    Ok(order) => Some(order),
                    Err(_) => return,
                }
            };
            // Who asked may have given up.
            match order {
                None => self.tick(),
                Some(Order::Begin { answer }) => {
                    self.begin();
                    answer.send(self.full).ok();
                }
                Some(Order::Enter { id, most, answer }) => drop(answer.send(self.enter(id, most))),
                Some(Order::Leave { id, struck, background, answer }) => {
                    answer.send(self.leave(id, struck, background)).ok();
                }
            }
        }
    }

    fn begin(&mut self) {
        self.begun = true;
        self.look_whole();
        // What was there before is no guest's doing: an import counts bytes as sizes tell them.
        for (place, seen) in self.places.iter_mut().zip(&self.seen) {
            let given = place.given.unwrap_or(seen.bytes.saturating_sub(seen.sizes));
            place.bytes = place.bytes.saturating_add(given);
        }
        self.settle(false);
    }

    fn enter(&mut self, id: u32, most: Option<u64>) -> bool {
        if !self.begun {
            self.begin();
        } else if most.is_some() || self.blind > 0 {
            // What was added while nobody could count is nobody's who begins now.
            let unsure = self.blind > 0 && self.calls.is_idle();
            self.look_whole();
            self.settle(unsure);
        } else if self.full {
            self.look();
            self.settle(false);
        }
        if self.calls.is_idle() {
            self.since = Instant::now();
        }
        // What nobody could count is not this one's.
        let now = if self.blind > 0 { self.workspace_at_most() } else { self.workspace() };
        self.calls.enter(id, most, now, self.left);
        self.found_full = self.full;
        self.full
    }

    /// Bytes in the workspace at the last look.
    fn workspace(&self) -> u64 {
        self.seen.first().map_or(0, |seen| seen.bytes)
    }

    fn leave(&mut self, id: u32, struck: bool, background: bool) -> Filled {
        let call = self.calls.take(id);
        let bounded = call.as_ref().is_some_and(Guest::is_bounded) || self.calls.is_bounded();
        self.left |= background;
        let mut filled = Filled::No;
        let look = struck || bounded || self.full || self.tree <= CHEAP || self.may_be_over();
        if look {
            self.look();
            if self.blind > 0 && self.late {
                self.look();
            }
        }
        let over = self.calls.leave(call, self.workspace(), background);
        if look {
            if !self.found_full && (self.is_over() || self.is_full()) {
                filled = Filled::Now;
            }
            if over && self.blind == 0 {
                filled = Filled::ByIt;
            }
            // Who else could have done it is still there, and is struck when it does more.
            self.settle(self.calls.is_idle());
        }
        self.strike.send_if_modified(|struck| struck.remove(&id));
        filled
    }

    /// What is allowed from now on: less when something was taken away, more only where all is done that can be.
    fn settle(&mut self, more: bool) {
        self.full = self.is_full();
        for ((place, level), seen) in self.places.iter().zip(&mut self.levels).zip(&self.seen) {
            let bytes = if more { seen.bytes } else { seen.bytes.min(level.bytes) };
            let files = if more { seen.files } else { seen.files.min(level.files) };
            level.bytes = bytes.max(place.bytes);
            level.files = files.max(place.files);
        }
    }

    fn tick(&mut self) {
        let since = self.looked.elapsed();
        if self.is_distrusted() {
            // Nobody knows, and another look would find out no more.
            if self.sandbox_may_be(false) {
                return self.strike();
            }
            if let Some(over) = self.calls.over(self.workspace_at_most()) {
                return self.strike_these(over);
            }
        }
        let late = self.blind > 0 && self.late;
        let due = since >= AT_LEAST.max(self.cost * if late { 1 } else { SHARE });
        let soon = since >= EVERY.max(self.cost) && (self.swept.is_some() || self.may_be_over());
        if !due && !soon {
            return;
        }
        let before = self.sum();
        self.look();
        if let Some((at, then)) = self.swept {
            let now = self.sum();
            let still = now.bytes <= before.bytes && now.files <= before.files;
            if still && at.elapsed() >= AT_LEAST {
                // Whoever did it is gone, and what is there now is allowed.
                self.swept = None;
                self.calls.swept(self.workspace());
                return self.settle(true);
            }
            let bound = self.places.first().map_or(0, |place| place.bytes);
            let most = (self.calls.least().map_or(bound, |least| least.min(bound)) / PART).max(ADDED);
            if (still || at.elapsed() < SWEEP) && now.bytes <= then.bytes.saturating_add(most) {
                return;
            }
            self.swept = None;
        }
        if self.is_over() {
            // What is moved about during a look may have been seen twice.
            self.look();
        }
        if self.is_over() {
            self.strike();
        } else if self.blind == 0 {
            self.settle(false);
            if let Some(over) = self.calls.over(self.workspace()) {
                self.strike_these(over);
            }
        }
    }

    fn strike(&mut self) {
        self.strike_these(self.calls.all());
    }

    fn strike_these(&mut self, calls: Vec<u32>) {
        if std::mem::take(&mut self.left) || self.calls.is_idle() {
            // Who lives on beyond its call goes first: the one that runs may have written nothing.
            (self.sweep)();
            self.found_full = true;
            self.swept = Some((Instant::now(), self.sum()));
        } else if self.struck.is_none_or(|at| at.elapsed() >= AGAIN) {
            self.struck = Some(Instant::now());
            self.strike.send_modify(|struck| struck.extend(calls));
        }
    }

    /// What there was everywhere at the last look.
    fn sum(&self) -> Taken {
        self.seen.iter().fold(Taken::default(), |sum, seen| Taken {
            bytes: sum.bytes.saturating_add(seen.bytes),
            files: sum.files.saturating_add(seen.files),
            sizes: 0,
        })
    }

    /// Whether nothing more fits. What was written up to its bound by one file is as full as what is beyond.
    fn is_full(&self) -> bool {
        let full = |(seen, place): (&Taken, &Place)| seen.bytes >= place.bytes || seen.files > place.files;
        self.seen.iter().zip(&self.places).any(full)
    }

    fn is_over(&self) -> bool {
        let over = |(seen, level): (&Taken, &Taken)| seen.bytes > level.most() || seen.files > level.files;
        // Who makes a look slow has not thereby taken anything.
        let blind = self.is_distrusted() && self.sandbox_may_be(false);
        blind || (self.blind >= BLIND && !self.late) || self.seen.iter().zip(&self.levels).any(over)
    }

    /// Whether what the file system has lost counts as the guest's, since no look can see everything.
    fn is_distrusted(&self) -> bool {
        self.blind > 0 && (!self.late || self.since.elapsed() >= TRUST)
    }

    /// Whether what the file system has lost since the last look would fill it, or be more than a call may add, had the
    /// guest taken it.
    fn may_be_over(&self) -> bool {
        self.sandbox_may_be(true)
            || (self.calls.is_bounded() && self.calls.over(self.workspace_at_most()).is_some())
    }

    /// What is in the workspace if all that the file system has lost since the last look has gone into it.
    fn workspace_at_most(&self) -> u64 {
        let lost = self.places.first().zip(self.free.first());
        let lost = lost.map_or(0, |(place, then)| then.bytes.saturating_sub(free(place).bytes));
        self.workspace().saturating_add(lost)
    }

    /// Whether the sandbox's bound might be reached, or passed by so much that it counts.
    fn sandbox_may_be(&self, reached: bool) -> bool {
        self.places.iter().enumerate().any(|(at, place)| {
            let (now, then, level) = (free(place), self.free[at], self.levels[at]);
            let bytes = self.seen[at].bytes.saturating_add(then.bytes.saturating_sub(now.bytes));
            let files = self.seen[at].files.saturating_add(then.files.saturating_sub(now.files));
            let over = if reached { bytes >= level.bytes } else { bytes > level.most() };
            over || files > level.files
        })
    }

    fn till<'a>(&self, stop: &'a AtomicBool) -> Till<'a> {
        Till::after(self.longest * 2_u32.pow(self.blind.min(DOUBLED)), stop)
    }

    /// Looks until one has seen everything, as long as a longer one may.
    fn look_whole(&mut self) {
        for _ in 0..=DOUBLED {
            self.look();
            if self.blind == 0 || !self.late {
                return;
            }
        }
    }

    /// A look at everything. Where it could not see all, what was seen before still counts, and so does what the file
    /// system has lost since.
    fn look(&mut self) {
        let began = Instant::now();
        let stop = Arc::clone(&self.stop);
        let till = self.till(&stop);
        let mut counted = Counted::new();
        let mut whole = true;
        let (mut seen, mut left) = (Vec::new(), Vec::new());
        for (place, level) in self.places.iter().zip(&self.levels) {
            left.push(free(place));
            let most = level.files.saturating_mul(4).saturating_add(100_000);
            let look = Look::at(place.folder.as_fd(), most, &mut counted, &till);
            whole &= look.whole;
            seen.push(look.taken);
        }
        self.tree = began.elapsed();
        // Before the first call there is nobody who could hold anything.
        if let (true, Some(place)) = (!self.calls.is_idle() || self.left || self.full, self.places.first())
            && let Ok(stat) = rustix::fs::fstat(&place.folder)
        {
            let (found, all) = open::nameless(self.first, stat.st_dev, &mut counted, &till);
            whole &= all;
            for nameless in found {
                let owner = self.places.iter().rposition(|p| Path::new(&nameless.was).starts_with(&p.name));
                let seen = &mut seen[owner.unwrap_or(0)];
                seen.bytes = seen.bytes.saturating_add(nameless.taken.bytes);
                seen.files += nameless.taken.files;
            }
        }
        self.late = till.is_late();
        if whole {
            (self.seen, self.free, self.blind) = (seen, left, 0);
            self.since = Instant::now();
        } else {
            for (had, seen) in self.seen.iter_mut().zip(seen) {
                had.bytes = had.bytes.max(seen.bytes);
                had.files = had.files.max(seen.files);
            }
            self.blind = if stop.load(Ordering::Relaxed) { 0 } else { self.blind + 1 };
        }
        self.looked = Instant::now();
        self.cost = began.elapsed();
    }
}

fn free(place: &Place) -> Free {
    match rustix::fs::fstatvfs(&place.folder) {
        Ok(seen) => Free { bytes: seen.f_bfree.saturating_mul(seen.f_frsize), files: seen.f_ffree },
        // Nothing left is said: a look follows.
        Err(_) => Free::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MIB: u64 = 1 << 20;

    /// A workspace that may have 8 MiB and has them, one call in it, and each look late.
    fn full(dir: &Path) -> (Watcher, Strikes) {
        let (strike, strikes) = watch::channel(BTreeSet::new());
        let places = vec![Place::open(dir, 8 * MIB, 100).unwrap().given(Some(0))];
        let own = i32::try_from(std::process::id()).unwrap();
        let mut watcher = Watcher::new(places, own, Box::new(|| {}), (strike, Arc::default()));
        watcher.begin();
        fs::write(dir.join("big"), vec![7; 8 << 20]).unwrap();
        watcher.look();
        watcher.settle(true);
        watcher.enter(1, None);
        watcher.longest = Duration::ZERO;
        (watcher, strikes)
    }

    /// As after some time: the next look is due.
    fn tick(watcher: &mut Watcher) {
        watcher.looked -= Duration::from_secs(60);
        watcher.tick();
    }

    #[test]
    fn who_is_full_and_adds_nothing_is_not_struck_because_looks_are_late() {
        let dir = tempfile::tempdir().unwrap();
        let (mut watcher, strikes) = full(dir.path());
        for _ in 0..10 {
            tick(&mut watcher);
        }
        assert!(watcher.blind > 0 && watcher.late);
        assert!(strikes.borrow().is_empty());
    }

    #[test]
    fn what_others_write_while_looks_are_late_strikes_nobody_for_a_while_and_then_does() {
        let dir = tempfile::tempdir().unwrap();
        let (mut watcher, strikes) = full(dir.path());
        tick(&mut watcher);
        // Much that is there no more.
        watcher.free[0].bytes += 1 << 50;
        tick(&mut watcher);
        assert!(strikes.borrow().is_empty());
        watcher.since -= TRUST;
        tick(&mut watcher);
        assert_eq!(*strikes.borrow(), BTreeSet::from([1]));
    }

    #[test]
    fn the_look_after_a_late_one_may_take_longer() {
        let dir = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let (mut watcher, _strikes) = full(dir.path());
        tick(&mut watcher);
        watcher.longest = LONGEST;
        let till = watcher.till(&stop);
        assert!(watcher.blind > 0 && till.most >= 2 * LONGEST, "{:?}", till.most);
    }

    #[test]
    fn who_begins_is_not_struck_for_what_was_added_while_looks_were_late() {
        for most in [None, Some(MIB)] {
            let dir = tempfile::tempdir().unwrap();
            let (mut watcher, strikes) = full(dir.path());
            fs::write(dir.path().join("more"), vec![7; 3 << 20]).unwrap();
            watcher.leave(1, false, false);
            assert!(watcher.blind > 0);
            watcher.longest = Duration::from_secs(60);
            assert!(watcher.enter(2, most));
            tick(&mut watcher);
            assert!(watcher.blind == 0 && strikes.borrow().is_empty());
        }
    }
}
