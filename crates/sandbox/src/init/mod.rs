//! The guest's PID 1: one loop over one channel, in every tier the same.
//!
//! ```text
//!            ┌──────────── channel (frames) ────────────┐
//!   executor │ Start, Kill ─▶        ◀─ Hello, Stdout,  │ init ── supervisor ── program ── ...
//!            │                          Stderr, End     │        └ one per call, reaps what it leaves
//!            └──────────────────────────────────────────┘
//! ```
//!
//! Each call gets a supervisor: a small process that is the reaper of everything below it, so that a daemon, a
//! double fork or a new session still has a line that leads to its call. Init itself runs nothing, opens nothing
//! by name and never blocks; when the channel closes it ends, and everything with it.

mod attributes;
mod call;
mod file;
mod group;
mod hunt;
mod measure;
mod meter;
mod module;
mod porter;
mod shared;
mod sweep;
mod terminal;
mod walk;
mod whose;

use std::collections::BTreeMap;
use std::io::{self, IoSlice, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use policy::StoppedBy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};

use crate::doors::{self, Doors, Layout};
use crate::growth::Growth;
use crate::launch::{Bounds, Counters, Place, Walls, guest_env};
use crate::wire::{Decoder, End, Frame, Kind, PIECE, Seen, Start, Whose};
use crate::{Job, rules, sys};
use attributes::Attributes;
use call::Running;
use group::Group;
pub(crate) use group::{MEMORY_EVENTS, PIDS_EVENTS};
use hunt::Hunt;
use meter::Meter;
pub(crate) use module::MODULE_FD;
use porter::Porter;
use shared::Waits;
use sweep::{Census, Kin, Weigh};
use whose::Beside;

/// Processor time is added up this often; so are memory and processes where the kernel does not count them itself.
const COUNT_EVERY_MS: u64 = 100;

/// So many looks more before somebody is struck for memory.
const LOOKS: u32 = 3;
/// What believing an engine once costs, how much of that there may be, and of which each look within the bound takes 1.
const DOUBT: u32 = 10;
const DOUBTS: u32 = 90;

/// How long what is in the way of a call may take to be gone.
const ROOM: Duration = Duration::from_secs(1);

/// Reads of a channel that brings much, between two looks at everything else.
const READS: usize = 4;

/// Init itself, and a supervisor.
const OURS: u64 = 2;

/// Exit status of an init that was asked for the workspace: what is outside of it writes that out.
pub(crate) const COLLECT_CODE: i32 = 17;

/// The sockets of doors that were made before init was sealed, in the order of their layout.
pub(crate) const DOORS_FD: i32 = 64;

/// The doors that init serves itself.
pub(crate) enum Serves {
    /// None.
    Nothing,
    /// These, which it makes.
    Makes(Doors),
    /// These, whose sockets it was given as [`DOORS_FD`] and the numbers after it.
    Has(Doors),
}

/// Runs as PID 1 until the channel closes. The channel is descriptors 0 and 1.
pub(crate) fn run(extra: &[(String, String)], bounds: &Bounds, place: Place, serves: &Serves) -> ! {
    // Only these are ours; whatever else was inherited must not be seen by a guest.
    let above = MODULE_FD.unsigned_abs();
    let first = if place.counted { 5 } else { 3 };
    let given = match serves {
        Serves::Has(doors) => Layout::of(doors).ok().flatten().map_or(0, |layout| layout.sockets.len()),
        Serves::Nothing | Serves::Makes(_) => 0,
    };
    if place.modules {
        sys::close_between(3, above - 1);
        sys::close_from(above + 1);
    } else if given > 0 {
        sys::close_between(first, DOORS_FD.unsigned_abs() - 1);
        sys::close_from(DOORS_FD.unsigned_abs() + u32::try_from(given).unwrap_or(0));
    } else {
        sys::close_from(first);
    }
    sys::ignore_terminal_signals();
    let code = match Init::new(extra, bounds, place, serves).and_then(|mut init| init.serve()) {
        Ok(Last::Closed) => 0,
        Ok(Last::Collect) => COLLECT_CODE,
        Err(e) => {
            // The log stream; a failure to write it has no one left to hear of it.
            drop(writeln!(io::stderr(), "init: {e}"));
            71
        }
    };
    sys::exit_now(code)
}

/// Why init ends.
enum Last {
    /// The channel closed.
    Closed,
    /// The executor wants the workspace.
    Collect,
}

struct Init {
    channel_in: OwnedFd,
    channel_out: OwnedFd,
    children: OwnedFd,
    env: Vec<(String, String)>,
    bounds: Bounds,
    place: Place,
    /// The rules that each call of a program closes itself by, where there is no view of its own.
    rules: Option<OwnedFd>,
    /// Questions of the kernel, where a path is not judged by what a view holds.
    attributes: Option<Attributes>,
    /// Whether init must count processes itself.
    count: bool,
    /// When it was last counted.
    counted: Option<Instant>,
    calls: BTreeMap<u32, Running>,
    /// Supervisors of ended calls that still keep a background process.
    keepers: Vec<i32>,
    /// What each call takes that has anything running, by its supervisor.
    meters: BTreeMap<i32, Meter>,
    /// Microseconds of those that are all over.
    spent_us: u64,
    /// Whether who waits for a processor is counted as one who uses it, which is a sum of nothing: the host holds that
    /// bound, by its own clock.
    waiting_counts: bool,
    /// How often an engine was believed that memory is there once that was seen twice; see [`Init::look_again`].
    doubts: u32,
    /// Supervisors of ended calls whose background processes a bound has struck.
    condemned: BTreeMap<i32, Hunt>,
    /// That bound, until it is told.
    leftovers: Option<StoppedBy>,
    /// A supervisor died: look for what it left.
    orphaned: bool,
    /// The engine has no subreapers: see [`Kin`].
    adopts: bool,
    /// The group of this kernel that bounds the guest, where it has one of its own.
    group: Option<Group>,
    /// What the group had counted when each call began, and whether the guest's own disk was full already.
    found: BTreeMap<u32, (Counters, bool)>,
    /// What calls may add to a disk that is the guest's alone.
    growth: Growth,
    /// Who serves the doors, where there are any and nobody outside can.
    porter: Option<Porter>,
}

impl Init {
    fn new(extra: &[(String, String)], bounds: &Bounds, place: Place, serves: &Serves) -> io::Result<Init> {
        let group = if place.counted { Some(Group::take()?) } else { None };
        let keep = |number: i32| -> io::Result<OwnedFd> {
            let from = match number {
                0 => io::stdin().as_fd().try_clone_to_owned()?,
                _ => io::stdout().as_fd().try_clone_to_owned()?,
            };
            Ok(rustix::io::fcntl_dupfd_cloexec(&from, 16)?)
        };
        let (channel_in, channel_out) = (keep(0)?, keep(1)?);
        let porter = open(serves, channel_out.as_fd())?;
        let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
        sys::place_fd(null.as_raw_fd(), 0)?;
        sys::place_fd(null.as_raw_fd(), 1)?;
        drop(null);
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        if place.walls == Walls::Shared {
            // Not PID 1 of anything: what loses its parent would go to the sentinel otherwise.
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        }
        let attributes = match place.walls {
            Walls::Own => None,
            Walls::Shared => Some(Attributes::listen()?),
        };
        let hello = measure::measure(&place)?;
        let count = hello.gvisor || place.walls == Walls::Shared || bounds.tally;
        if hello.gvisor {
            // By this kernel's own count, for each user. It counts who started a process, not who that became: with an
            // id of its own init has the first process of a call on its side.
            let most = match place.guest {
                None => u64::from(bounds.processes) + OURS,
                Some(_) => u64::from(bounds.processes).saturating_sub(1).max(3),
            };
            sys::set_limit(libc::RLIMIT_NPROC, most, most)?;
        }
        let adopts = !hello.subreaper;
        let mut init = Init {
            channel_in,
            channel_out,
            children: sys::child_signals()?,
            // A module gets nothing but what was given on purpose.
            env: if place.modules { extra.to_vec() } else { guest_env(&place, extra) },
            bounds: bounds.clone(),
            place,
            rules: None,
            attributes,
            count,
            counted: None,
            calls: BTreeMap::new(),
            keepers: Vec::new(),
            meters: BTreeMap::new(),
            spent_us: 0,
            waiting_counts: hello.gvisor,
            doubts: 0,
            condemned: BTreeMap::new(),
            leftovers: None,
            orphaned: false,
            adopts,
            group,
            found: BTreeMap::new(),
            growth: Growth::default(),
            porter,
        };
        let payload = serde_json::to_vec(&hello).map_err(io::Error::other)?;
        init.send(&Frame::new(Kind::Hello, 0, payload))?;
        if init.place.walls == Walls::Shared && !init.place.modules {
            // While the executor reads that. Above all that a supervisor closes, which hands it on.
            let rules = rules::of_calls(&init.place).map_err(io::Error::other)?;
            init.rules = Some(rustix::io::fcntl_dupfd_cloexec(&rules, call::RULES)?);
        }
        Ok(init)
    }

    fn serve(&mut self) -> io::Result<Last> {
        let mut decoder = Decoder::default();
        let mut buffer = vec![0; PIECE];
        // Each call is one that a kernel in user space answers slowly, so where much may come much is read at once, and
        // what comes without a pause is not waited for.
        let (at_once, reads) = if self.porter.is_some() { (8 * PIECE, READS) } else { (PIECE, 1) };
        loop {
            let ready = self.wait()?;
            for read in 0..if ready.channel { reads } else { 0 } {
                let space = decoder.space(at_once);
                let n = if read == 0 {
                    rustix::io::read(&self.channel_in, space)?
                } else {
                    // Nothing now, or no socket: both are known when it is waited for.
                    let Ok((n, _)) = recv(&self.channel_in, space, RecvFlags::DONTWAIT) else { break };
                    n
                };
                if n == 0 {
                    return Ok(Last::Closed);
                }
                decoder.came(n);
                if self.hear(&mut decoder)? {
                    return Ok(Last::Collect);
                }
                if n < PIECE {
                    break;
                }
            }
            if ready.children {
                self.reap()?;
            }
            if let (true, Some(attributes)) = (ready.attributes, &self.attributes) {
                attributes.answer(&self.place);
            }
            if let (true, Some(porter)) = (ready.porter, &mut self.porter) {
                porter.serve()?;
            }
            if let Some(porter) = &mut self.porter {
                porter.look_again()?;
            }
            for id in ready.calls {
                self.relay(id, &mut buffer)?;
            }
            self.advance(&mut buffer)?;
        }
    }

    /// Does what came, as far as it is whole; true when it is to end for the workspace. Bytes of a connection that came
    /// one frame after the other are one call of the kernel's.
    fn hear(&mut self, decoder: &mut Decoder) -> io::Result<bool> {
        let (mut of, mut run) = (0, Vec::new());
        while let Some(seen) = decoder.look().map_err(io::Error::other)? {
            let data = seen.kind == Kind::Data && self.porter.is_some();
            if !data || seen.call != of {
                self.carry(of, &mut run, decoder.bytes())?;
            }
            match seen {
                Seen { kind: Kind::Collect, .. } => return Ok(true),
                Seen { call, payload, .. } if data => {
                    of = call;
                    run.push(payload);
                }
                seen => self.obey(decoder.frame(seen))?,
            }
        }
        self.carry(of, &mut run, decoder.bytes())?;
        Ok(false)
    }

    /// Bytes of a connection, where there are any; none are left.
    fn carry(&mut self, number: u32, run: &mut Vec<Range<usize>>, bytes: &[u8]) -> io::Result<()> {
        let pieces: Vec<IoSlice<'_>> = run.drain(..).map(|at| IoSlice::new(&bytes[at])).collect();
        match &mut self.porter {
            Some(porter) if !pieces.is_empty() => porter.carry(number, &pieces),
            _ => Ok(()),
        }
    }

    /// Waits for anything to happen; bounded where a call is being drained or processes are counted.
    fn wait(&self) -> io::Result<Ready> {
        let mut ids = Vec::new();
        let mut fds =
            vec![PollFd::new(&self.channel_in, PollFlags::IN), PollFd::new(&self.children, PollFlags::IN)];
        fds.extend(self.attributes.iter().map(|a| PollFd::new(a, PollFlags::IN)));
        fds.extend(self.porter.iter().map(|p| PollFd::new(p.waits_on(), PollFlags::IN)));
        let ours = fds.len();
        for (id, call) in &self.calls {
            for (fd, flags) in call.waits_for() {
                ids.push(*id);
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            }
        }
        let hunts = self.condemned.values().map(Hunt::due_ms).chain(self.orphaned.then_some(5));
        let timeout = hunts
            .chain(self.calls.values().filter_map(Running::due_ms))
            .min()
            .or_else(|| self.is_busy().then_some(COUNT_EVERY_MS));
        let timeout = timeout.map(|ms| ms.min(COUNT_EVERY_MS)).map(|ms| Timespec {
            tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from((ms % 1000) * 1_000_000).unwrap_or(0),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let hit = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let mut calls: Vec<u32> =
            ids.iter().zip(&fds[ours..]).filter(|(_, fd)| hit(fd)).map(|(id, _)| *id).collect();
        calls.dedup();
        Ok(Ready {
            channel: hit(&fds[0]),
            children: hit(&fds[1]),
            attributes: self.attributes.is_some() && hit(&fds[2]),
            porter: self.porter.is_some() && hit(&fds[ours - 1]),
            calls,
        })
    }

    fn obey(&mut self, frame: Frame) -> io::Result<()> {
        match frame.kind {
            Kind::Start => {
                let split = frame.payload.iter().position(|b| *b == b'\n');
                let (head, stdin) = match split {
                    Some(at) => (&frame.payload[..at], frame.payload[at + 1..].to_vec()),
                    None => (&frame.payload[..], Vec::new()),
                };
                let start: Start = serde_json::from_slice(head).map_err(io::Error::other)?;
                let bounds = start.bounds(&self.bounds, self.waiting_counts);
                self.make_room()?;
                // What is left over must do for looking at files, which has a bound of its own.
                let spent = self.spent_us() > self.bound_us() && !matches!(start.job, Job::File(_));
                if self.group.is_some() {
                    let now = taken_on(&self.place.workspace);
                    self.growth.enter(frame.call, start.own.disk, now, !self.keepers.is_empty());
                }
                let beside = Beside::new(&self.keepers, !self.calls.is_empty());
                let started = match spent {
                    true => Err(rustix::io::Errno::DQUOT.into()),
                    false => {
                        let rules = self.rules.as_ref().map(AsFd::as_fd);
                        call::start(&start.job, stdin, &self.env, &bounds, (&self.place, rules))
                    }
                };
                match started {
                    Ok(mut running) => {
                        running.meet(Some(beside));
                        self.calls.values_mut().for_each(|other| other.meet(None));
                        // The first look is due when it has had the time to do something.
                        if !self.is_busy() {
                            self.counted = Some(Instant::now());
                        }
                        self.meters.insert(running.supervisor(), Meter::new(start.own));
                        if let Some(group) = &self.group {
                            let full = disk_is_full(&self.place.workspace);
                            self.found.insert(frame.call, (group.counters(), full));
                        }
                        self.calls.insert(frame.call, running);
                        Ok(())
                    }
                    Err(e) => {
                        self.growth.take(frame.call);
                        let end = End {
                            ended: crate::Ended::NotStarted(e.raw_os_error().unwrap_or(libc::EIO)),
                            usage: crate::Usage::default(),
                            background: 0,
                            too_many_processes: e.raw_os_error() == Some(libc::EAGAIN),
                            out_of_memory: false,
                            out_of_cpu: spent,
                            disk_full: false,
                            out_of_disk: false,
                            struck: None,
                            leftovers: self.leftovers.take(),
                            kills: Whose::Its,
                            refusals: Whose::Its,
                        };
                        self.send_end(frame.call, &end)
                    }
                }
            }
            Kind::Kill => {
                if let Some(call) = self.calls.get_mut(&frame.call) {
                    call.kill_all();
                }
                Ok(())
            }
            Kind::Sweep => {
                let by = serde_json::from_slice(&frame.payload).map_err(io::Error::other)?;
                self.condemn(by, &self.keepers.clone());
                // What hangs at init itself is not told apart from what a call has running.
                if self.adopts && sweep::kill_orphans(&self.kin()) > 0 {
                    self.leftovers = Some(by);
                }
                Ok(())
            }
            Kind::Knock | Kind::Data | Kind::Finish | Kind::Credit | Kind::Close => {
                let none = || io::Error::other("a frame of a stream where no way is granted");
                self.porter.as_mut().ok_or_else(none)?.take(frame)
            }
            Kind::Collect | Kind::Hello | Kind::Stdout | Kind::Stderr | Kind::End | Kind::Missed => {
                Err(io::Error::other("a frame that only a guest sends"))
            }
        }
    }

    /// Reaps what ended: supervisors, and orphans whose supervisor is gone.
    fn reap(&mut self) -> io::Result<()> {
        sys::take_signals(&self.children)?;
        while let Some(reaped) = sys::reap(false) {
            let kept = self.keepers.contains(&reaped.pid);
            self.keepers.retain(|pid| *pid != reaped.pid);
            self.condemned.remove(&reaped.pid);
            if let Some(mut meter) = self.meters.remove(&reaped.pid) {
                meter.raise(reaped.usage.user_us.saturating_add(reaped.usage.system_us));
                self.spent_us = self.spent_us.saturating_add(meter.total_us());
            }
            let ours = kept || self.calls.values().any(|call| call.supervisor() == reaped.pid);
            let killed = matches!(reaped.ended, crate::Ended::Signal(_));
            // A supervisor ends by itself only when nothing is below it.
            self.orphaned |= !ours || killed;
            if ours && killed {
                // Killed from inside. What was below it can no longer be told from anything else.
                sweep::kill_everything();
            }
            for call in self.calls.values_mut() {
                call.reaped(&reaped);
            }
        }
        Ok(())
    }

    /// Moves bytes of one call: its standard input in, its output and its status out.
    fn relay(&mut self, id: u32, buffer: &mut [u8]) -> io::Result<()> {
        let Some(call) = self.calls.get_mut(&id) else { return Ok(()) };
        call.feed();
        call.read_status();
        let mut frames = Vec::new();
        for (kind, piece) in call.read_output(buffer) {
            frames.push(Frame::new(kind, id, piece));
        }
        for frame in frames {
            self.send(&frame)?;
        }
        Ok(())
    }

    /// Whether anything of a guest may run.
    fn is_busy(&self) -> bool {
        !self.calls.is_empty() || !self.keepers.is_empty()
    }

    fn kin(&self) -> Kin {
        Kin {
            supervisors: self.calls.values().map(Running::supervisor).chain(self.keepers.clone()).collect(),
            adopted: self.adopts,
        }
    }

    /// Processor time that all calls together may use, and what they have used.
    fn bound_us(&self) -> u64 {
        if self.waiting_counts { u64::MAX } else { self.bounds.cpu_s.saturating_mul(1_000_000) }
    }

    fn spent_us(&self) -> u64 {
        self.meters.values().map(Meter::total_us).fold(self.spent_us, u64::saturating_add)
    }

    /// Ends the calls of a guest that has used too much processor time, or has too many processes or too much memory.
    /// Looked at every so often, not at each piece of output: a look reads all of `/proc`.
    fn count(&mut self) {
        let every = Duration::from_millis(COUNT_EVERY_MS);
        let due =
            (self.count || !self.keepers.is_empty()) && self.calls.values().any(Running::is_to_be_counted);
        if !self.is_busy() || (!due && self.counted.is_some_and(|at| at.elapsed() < every)) {
            return;
        }
        self.counted = Some(Instant::now());
        let least = self.meters.values().filter_map(Meter::memory).min();
        let weigh = match (self.bounds.weigh, least) {
            (true, least) => Weigh::Everything(self.bounds.memory.min(least.unwrap_or(u64::MAX))),
            (false, Some(_)) => Weigh::Memory,
            (false, None) => Weigh::Nothing,
        };
        let kin = self.kin();
        let mut census = sweep::census(self.place.walls, &kin, weigh);
        if self.is_over_memory(&census, &kin) {
            census = self.look_again(census, &kin, weigh);
        } else {
            self.doubts = self.doubts.saturating_sub(1);
        }
        for (supervisor, meter) in &mut self.meters {
            let (own, below) = census.family(*supervisor);
            meter.look(own, &below);
        }
        let spent = self.spent_us() > self.bound_us();
        let mut over: BTreeMap<i32, StoppedBy> = BTreeMap::new();
        for (pid, meter) in &self.meters {
            let (tasks, memory) = census.taken(*pid, &kin);
            let by = if spent { Some(StoppedBy::Cpu) } else { meter.over(tasks, memory) };
            over.extend(by.map(|by| (*pid, by)));
        }
        for (pid, by) in over {
            self.strike(by, &[pid]);
        }
        self.measure();
        if self.bounds.weigh {
            let shares = census.families.iter().map(|family| (family.supervisor, family.memory));
            self.strike_largest(StoppedBy::Memory, census.memory, self.bounds.memory, shares.collect());
        }
        if self.count {
            let shares = census.families.iter().map(|family| (family.supervisor, family.tasks));
            let bound = u64::from(self.bounds.processes);
            // Who watches over what was left takes a place as well.
            let taken = census.tasks.saturating_add(u64::try_from(self.keepers.len()).unwrap_or(u64::MAX));
            for call in self.calls.values_mut() {
                call.count(taken, bound);
            }
            self.strike_largest(StoppedBy::Processes, census.tasks, bound, shares.collect());
        }
        for call in self.calls.values_mut() {
            call.look(&self.keepers, &census);
        }
    }

    fn is_over_memory(&self, census: &Census, kin: &Kin) -> bool {
        let call = |(pid, meter): (&i32, &Meter)| {
            meter.memory().is_some_and(|bound| census.taken(*pid, kin).1 > bound)
        };
        (self.bounds.weigh && census.memory > self.bounds.memory) || self.meters.iter().any(call)
    }

    /// Before anybody is struck for memory: a look is not of one moment, and what a child shares until it starts a
    /// program is there once. What an engine tells of that is not always so: it is asked last, believed for a second,
    /// and after that in one look of eleven.
    fn look_again(&mut self, mut census: Census, kin: &Kin, weigh: Weigh) -> Census {
        let engine = self.waiting_counts;
        for look in 1..=LOOKS {
            let believed = engine && look == LOOKS && self.doubts <= DOUBTS;
            let waits =
                if engine && !believed { Waits::default() } else { Waits::of(census.weighed(), engine) };
            let again = sweep::census_with(self.place.walls, kin, weigh, &waits);
            if !self.is_over_memory(&again, kin) {
                self.doubts += if believed { DOUBT } else { 0 };
                return again;
            }
            if again.memory < census.memory {
                census = again;
            }
        }
        census
    }

    /// Strikes calls for what they have added to a disk of the guest's own; who lives on beside them goes first.
    fn measure(&mut self) {
        if !self.growth.is_bounded() {
            return;
        }
        let now = taken_on(&self.place.workspace);
        let Some(over) = self.growth.over(now) else { return };
        if !self.keepers.is_empty() {
            self.condemn(StoppedBy::Disk, &self.keepers.clone());
            return self.growth.swept(now);
        }
        for id in over {
            if let Some(call) = self.calls.get_mut(&id) {
                call.strike(StoppedBy::Disk);
            }
        }
    }

    /// Strikes those who hold most, until what is left is within the bound: whoever lives on beside a call is no
    /// reason to end it. Where it cannot be told whose it is, all are struck.
    fn strike_largest(&mut self, by: StoppedBy, all: u64, bound: u64, mut shares: Vec<(i32, u64)>) {
        let mut excess = all.saturating_sub(bound);
        shares.sort_by_key(|(_, share)| std::cmp::Reverse(*share));
        let mut struck = Vec::new();
        for (supervisor, share) in shares {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(share);
            struck.push(supervisor);
        }
        self.strike(by, &struck);
    }

    /// Ends these calls, and what those of them left that are over.
    fn strike(&mut self, by: StoppedBy, supervisors: &[i32]) {
        for call in self.calls.values_mut().filter(|call| supervisors.contains(&call.supervisor())) {
            call.strike(by);
        }
        let over: Vec<i32> =
            self.keepers.iter().copied().filter(|keeper| supervisors.contains(keeper)).collect();
        self.condemn(by, &over);
    }

    /// Ends what these calls left running, which are over themselves.
    fn condemn(&mut self, by: StoppedBy, keepers: &[i32]) {
        for keeper in keepers {
            if !self.condemned.contains_key(keeper) {
                self.condemned.insert(*keeper, Hunt::begin(Some(*keeper)));
                self.leftovers = Some(by);
            }
        }
    }

    /// Ends what earlier calls left running where it takes every place: the next call could not even begin.
    fn make_room(&mut self) -> io::Result<()> {
        if self.keepers.is_empty() {
            return Ok(());
        }
        let census = sweep::census(self.place.walls, &self.kin(), Weigh::Nothing);
        let number = |supervisors: usize| u64::try_from(supervisors).unwrap_or(u64::MAX);
        let taken = census.tasks.saturating_add(number(self.keepers.len() + self.calls.len()));
        // The new supervisor has a place of its own beside the bound; its program and the other supervisors have none.
        if taken < u64::from(self.bounds.processes) {
            return Ok(());
        }
        let kept = census.tasks_of(&self.keepers).saturating_add(number(self.keepers.len()));
        if !self.adopts && kept < taken.saturating_sub(kept) {
            // Most places are those of calls under way, which end.
            return Ok(());
        }
        self.condemn(StoppedBy::Processes, &self.keepers.clone());
        let began = Instant::now();
        while !self.keepers.is_empty() && began.elapsed() < ROOM {
            let kin = self.kin();
            self.end_condemned(&kin);
            self.reap()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn end_condemned(&mut self, kin: &Kin) {
        // Else until their supervisors are gone, who cannot be fooled.
        self.condemned.retain(|supervisor, hunt| hunt.step(*supervisor, kin) > 0 || !kin.adopted);
    }

    /// Ends the calls that are done.
    fn advance(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.count();
        let kin = self.kin();
        self.end_condemned(&kin);
        if self.orphaned {
            self.orphaned = !self.adopts && sweep::kill_orphans(&kin) > 0;
        }
        let done: Vec<u32> =
            self.calls.iter_mut().filter_map(|(id, call)| call.advance(&kin).then_some(*id)).collect();
        for id in done {
            if let Some(mut call) = self.calls.remove(&id) {
                call.judge(&kin, u64::from(self.bounds.processes));
                if call.background() > 0 {
                    self.keepers.push(call.supervisor());
                }
                let (rest, mut end) = call.finish(buffer);
                if let (Some(group), Some((before, full))) = (&self.group, self.found.remove(&id)) {
                    let now = group.counters();
                    let killed = now.oom_kills > before.oom_kills;
                    end.out_of_memory |= killed && end.kills == Whose::Its;
                    if killed && end.kills == Whose::Left {
                        self.leftovers.get_or_insert(StoppedBy::Memory);
                    }
                    if end.ended != crate::Ended::Exit(0) {
                        // What was killed for memory is not told as anything else.
                        end.too_many_processes |= !end.out_of_memory
                            && end.refusals == Whose::Its
                            && now.forks_refused > before.forks_refused;
                        // Who found it so failed for it only if it wanted to write, which nobody can see.
                        end.disk_full = !full && disk_is_full(&self.place.workspace);
                    }
                }
                if self.group.is_some() {
                    let now = taken_on(&self.place.workspace);
                    let call = self.growth.take(id);
                    end.out_of_disk |= self.growth.leave(call, now, end.background > 0);
                }
                end.leftovers = self.leftovers.take();
                for (kind, piece) in rest {
                    self.send(&Frame::new(kind, id, piece))?;
                }
                self.send_end(id, &end)?;
            }
        }
        Ok(())
    }

    fn send_end(&mut self, id: u32, end: &End) -> io::Result<()> {
        let payload = serde_json::to_vec(end).map_err(io::Error::other)?;
        self.send(&Frame::new(Kind::End, id, payload))
    }

    fn send(&mut self, frame: &Frame) -> io::Result<()> {
        io::PipeWriter::from(self.channel_out.try_clone()?).write_all(&frame.encode())
    }
}

/// Opens the doors that are init's to serve.
fn open(serves: &Serves, channel: BorrowedFd<'_>) -> io::Result<Option<Porter>> {
    let doors = match serves {
        Serves::Nothing => return Ok(None),
        Serves::Makes(doors) | Serves::Has(doors) => doors,
    };
    let Some(layout) = Layout::of(doors).map_err(io::Error::other)? else { return Ok(None) };
    let sockets = match serves {
        Serves::Has(_) => (DOORS_FD..).take(layout.sockets.len()).map(sys::inherited).collect(),
        Serves::Nothing | Serves::Makes(_) => doors::listen(&layout)?,
    };
    Porter::new(&layout, sockets, channel).map(Some)
}

/// Bytes that are taken of the file system of the workspace.
fn taken_on(workspace: &std::path::Path) -> u64 {
    rustix::fs::statvfs(workspace)
        .map_or(0, |seen| seen.f_blocks.saturating_sub(seen.f_bfree).saturating_mul(seen.f_frsize))
}

/// Whether nothing more goes onto the disk of a machine, which is the guest's alone.
fn disk_is_full(workspace: &std::path::Path) -> bool {
    const ROOM: u64 = 64 << 10;
    rustix::fs::statvfs(workspace)
        .is_ok_and(|seen| seen.f_bavail.saturating_mul(seen.f_frsize) < ROOM || seen.f_favail == 0)
}

struct Ready {
    channel: bool,
    children: bool,
    attributes: bool,
    porter: bool,
    calls: Vec<u32>,
}
