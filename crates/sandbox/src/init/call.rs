//! One call inside: its supervisor, its streams, its end.
//!
//! A call is over when its first process ended, not when its pipes close. After a short drain, what still holds
//! one of its output streams is killed: it was left behind. What has let go of both was sent into the background
//! on purpose (a server) and lives on until the sandbox ends.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use policy::StoppedBy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use serde::{Deserialize, Serialize};

use super::hunt::{Hunt, SWEEP};
use super::module::{self, MODULE_FD, VERDICT_FD};
use super::sweep::{Census, Kin};
use super::whose::Beside;
use super::{file, sweep, terminal, walk};
use crate::launch::{Bounds, Place, Walls};
use crate::sys::{self, Fork};
use crate::wasm::Struck;
use crate::wire::{End, Kind, Whose};
use crate::{Ended, Job, Usage, filter};

/// How long output is read on after the first process ended.
const DRAIN: Duration = Duration::from_millis(200);

/// Descriptors of a supervisor start here; init has fewer.
const HIGH: i32 = 768;

/// And what init itself has there for them: the rules of a call, beneath the module.
pub(super) const RULES: i32 = 960;

/// A call under way.
pub(super) struct Running {
    supervisor: i32,
    supervisor_gone: bool,
    stdin: Option<(PipeWriter, Vec<u8>, usize)>,
    stdout: Option<PipeReader>,
    stderr: Option<PipeReader>,
    status: Option<UnixStream>,
    status_bytes: Vec<u8>,
    /// What tells a process that holds our pipes: their inode numbers.
    pipes: [u64; 2],
    ended: Option<(Status, Instant)>,
    killed: Option<Hunt>,
    /// The bound that init's own counting saw passed.
    struck: Option<StoppedBy>,
    background: u32,
    /// What was killed because it held a pipe.
    swept: BTreeSet<i32>,
    /// The last look found a stream held, and nobody who holds it.
    unseen: bool,
    /// The guest had as many processes as it may.
    full: bool,
    /// It was looked at after its first process had ended.
    counted: bool,
    /// Who else was there.
    beside: Beside,
    /// Whose kills for memory and refused forks are that were counted meanwhile; known once it is over.
    whose: [Whose; 2],
}

/// What a supervisor tells of the first process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Status {
    ended: Ended,
    usage: Usage,
    /// Nothing else of the call is left: the supervisor ends.
    alone: bool,
    /// A bound of the module.
    struck: Option<Struck>,
    /// Until then one of the call's processes was killed that had nobody else to take note of it.
    killed: bool,
}

/// What is said of a call of which its supervisor said nothing.
const LOST: Status = Status {
    ended: Ended::Unknown,
    usage: Usage { user_us: 0, system_us: 0, max_rss_kib: 0 },
    alone: false,
    struck: None,
    killed: true,
};

/// Starts a call.
pub(super) fn start(
    job: &Job,
    stdin: Vec<u8>,
    env: &[(String, String)],
    bounds: &Bounds,
    (place, rules): (&Place, Option<BorrowedFd<'_>>),
) -> io::Result<Running> {
    let (in_read, in_write) = io::pipe()?;
    let (out_read, out_write) = io::pipe()?;
    let (err_read, err_write) = io::pipe()?;
    // A socket: it cannot be opened again by its number in `/proc`, where an engine lets a guest do that with pipes.
    let (status_read, status_write) = UnixStream::pair()?;
    let pipes = [inode(&out_write)?, inode(&err_write)?];
    match sys::fork()? {
        Fork::Child => {
            drop((in_write, out_read, err_read, status_read));
            let own = [in_read.into(), out_write.into(), err_write.into(), status_write.into()];
            let Ok([stdin, stdout, stderr, status]) = keep_only(own) else { sys::exit_now(70) };
            supervise(
                job,
                env,
                (bounds, place, rules),
                stdin.into(),
                [stdout.into(), stderr.into()],
                status.into(),
            )
        }
        Fork::Parent(supervisor) => {
            drop((in_read, out_write, err_write, status_write));
            nonblocking(&in_write)?;
            nonblocking(&out_read)?;
            nonblocking(&err_read)?;
            nonblocking(&status_read)?;
            Ok(Running {
                supervisor,
                supervisor_gone: false,
                stdin: Some((in_write, stdin, 0)),
                stdout: Some(out_read),
                stderr: Some(err_read),
                status: Some(status_read),
                status_bytes: Vec::new(),
                pipes,
                ended: None,
                killed: None,
                struck: None,
                background: 0,
                swept: BTreeSet::new(),
                unseen: false,
                full: false,
                counted: false,
                beside: Beside::default(),
                whose: [Whose::Its; 2],
            })
        }
    }
}

impl Running {
    /// The reaper of this call.
    pub(super) fn supervisor(&self) -> i32 {
        self.supervisor
    }

    /// Processes it leaves running on purpose; known once it is over.
    pub(super) fn background(&self) -> u32 {
        self.background
    }

    /// The descriptors that must be looked at, and for what.
    pub(super) fn waits_for(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut fds = Vec::new();
        if let Some((fd, ..)) = &self.stdin {
            fds.push((fd.as_fd(), PollFlags::OUT));
        }
        for fd in [&self.stdout, &self.stderr].into_iter().flatten() {
            fds.push((fd.as_fd(), PollFlags::IN));
        }
        fds.extend(self.status.iter().map(|fd| (fd.as_fd(), PollFlags::IN)));
        fds
    }

    /// When this call wants to be looked at again, in milliseconds.
    pub(super) fn due_ms(&self) -> Option<u64> {
        match (&self.ended, &self.killed) {
            (_, Some(hunt)) => Some(hunt.due_ms()),
            (Some((_, at)), None) => {
                let left = DRAIN.saturating_sub(at.elapsed());
                Some(u64::try_from(left.as_millis()).unwrap_or(0).max(1))
            }
            (None, None) => None,
        }
    }

    /// Writes standard input as far as the program takes it.
    pub(super) fn feed(&mut self) {
        let Some((pipe, bytes, from)) = &mut self.stdin else { return };
        while *from < bytes.len() {
            match pipe.write(&bytes[*from..]) {
                Ok(n) => *from += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // The program does not read it: that is its right.
                Err(_) => break,
            }
        }
        self.stdin = None;
    }

    /// Reads what the supervisor has to tell.
    pub(super) fn read_status(&mut self) {
        let Some(pipe) = &mut self.status else { return };
        let mut buffer = [0; 512];
        match pipe.read(&mut buffer) {
            Ok(0) => {
                self.status = None;
                self.settle();
            }
            Ok(n) if self.status_bytes.len() < 4096 => self.status_bytes.extend_from_slice(&buffer[..n]),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.status = None,
        }
        if self.status_bytes.last() == Some(&b'\n') {
            self.settle();
        }
    }

    fn settle(&mut self) {
        if self.ended.is_none() {
            // A supervisor that died without a word was killed by the guest: its first process is not known.
            let status = serde_json::from_slice(&self.status_bytes).unwrap_or(LOST);
            self.ended = Some((status, Instant::now()));
        }
    }

    /// One read from each output stream that has something.
    pub(super) fn read_output(&mut self, buffer: &mut [u8]) -> Vec<(Kind, Vec<u8>)> {
        let mut pieces = Vec::new();
        for (kind, slot) in [(Kind::Stdout, &mut self.stdout), (Kind::Stderr, &mut self.stderr)] {
            let Some(pipe) = slot else { continue };
            match pipe.read(buffer) {
                Ok(0) => *slot = None,
                Ok(n) => pieces.push((kind, buffer[..n].to_vec())),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => *slot = None,
            }
        }
        pieces
    }

    /// A child of init was reaped.
    pub(super) fn reaped(&mut self, reaped: &sys::Reaped) {
        if reaped.pid == self.supervisor {
            self.supervisor_gone = true;
        }
    }

    /// Kills everything the call started, wherever it hid.
    pub(super) fn kill_all(&mut self) {
        let there = (!self.supervisor_gone).then_some(self.supervisor);
        self.killed.get_or_insert_with(|| Hunt::begin(there));
    }

    /// Whether it failed and it is not known yet if for want of a process: before anything of it is killed.
    pub(super) fn is_to_be_counted(&self) -> bool {
        !self.counted && self.ended.is_some_and(|(status, _)| status.ended != Ended::Exit(0))
    }

    /// So many processes the guest has of those it may have. With all of them, who wants one more gets none.
    pub(super) fn count(&mut self, guests: u64, bound: u64) {
        let first = u64::from(self.ended.is_some() && !self.counted);
        self.full |= guests.saturating_add(first) >= bound;
    }

    /// These are there beside it now.
    pub(super) fn look(&mut self, keepers: &[i32], census: &Census) {
        self.counted = self.ended.is_some();
        self.beside.look(self.supervisor, keepers, census);
    }

    /// It begins, beside what these left; or, where it runs already, another begins.
    pub(super) fn meet(&mut self, beside: Option<Beside>) {
        match beside {
            Some(beside) => self.beside = beside,
            None => self.beside.calls = true,
        }
    }

    /// It is over: whose that is what was counted for all.
    pub(super) fn judge(&mut self, kin: &Kin, bound: u64) {
        let status = self.ended.map_or(LOST, |(status, _)| status);
        let kills = self.beside.kills((status.ended, status.killed), kin);
        self.whose = [kills, self.beside.refusals(kin, bound)];
    }

    /// A bound struck that init counts.
    pub(super) fn strike(&mut self, by: StoppedBy) {
        // What was first is told.
        self.struck.get_or_insert(by);
        self.kill_all();
    }

    /// Takes the call further; says whether it is over.
    pub(super) fn advance(&mut self, kin: &Kin) -> bool {
        if let Some(hunt) = &mut self.killed {
            // A look at `/proc` misses what forks and ends faster than one can look. The supervisor cannot be
            // fooled: it ends when the kernel says that nothing is below it.
            let over = match kin.adopted {
                true => hunt.step(self.supervisor, kin) == 0,
                false if self.supervisor_gone => true,
                false => {
                    hunt.step(self.supervisor, kin);
                    false
                }
            };
            self.read_status();
            return over && (self.ended.is_some() || self.supervisor_gone);
        }
        let Some((status, at)) = self.ended else { return false };
        let streams_closed = self.stdout.is_none() && self.stderr.is_none();
        if !streams_closed && at.elapsed() < DRAIN {
            return false;
        }
        if !kin.adopted {
            // Its reaper has ended, or is about to: nothing is left that one would have to look for.
            if self.supervisor_gone {
                return true;
            }
            if status.alone && at.elapsed() < DRAIN {
                return false;
            }
        }
        let Some(held) = self.kill_holders(kin) else { return false };
        let none_holds = held.is_empty();
        self.swept.extend(held);
        // One that is dying has let go of its files and is there all the same; when the next call comes it must not
        // take a place, not even as a dead one.
        let left = sweep::left_of(&self.swept);
        if !none_holds || left.living > 0 {
            if at.elapsed() > DRAIN + SWEEP {
                self.kill_all();
            }
            return false;
        }
        // Who has a parent that takes no note of it stays.
        if left.dead > 0 && at.elapsed() < DRAIN * 3 {
            return false;
        }
        self.background = sweep::below(self.supervisor, kin);
        if self.background == 0 && !self.supervisor_gone && !kin.adopted {
            // The supervisor still waits for somebody. Who is not seen in all that time hides.
            if at.elapsed() > DRAIN + SWEEP {
                self.kill_all();
            }
            return false;
        }
        true
    }

    /// Kills who holds one of the output streams; says who was found, and nothing while that is not known. The streams
    /// themselves tell whether anybody does: who cannot be looked at is taken for one only when nobody else is.
    fn kill_holders(&mut self, kin: &Kin) -> Option<Vec<i32>> {
        if [&self.stdout, &self.stderr].into_iter().flatten().all(has_no_writer) {
            return Some(Vec::new());
        }
        let pipes = self.pipes;
        let found = sweep::kill_below(self.supervisor, kin, &|pid| sweep::holds(pid, &pipes) == Some(true));
        if !found.is_empty() || sweep::left_of(&self.swept).living > 0 {
            self.unseen = false;
            return Some(found);
        }
        // Who held it may have ended after the streams were asked: they are asked once more before anybody is killed
        // whom only they speak against.
        if !std::mem::replace(&mut self.unseen, true) {
            return None;
        }
        Some(sweep::kill_below(self.supervisor, kin, &|pid| sweep::holds(pid, &pipes).is_none()))
    }

    /// What is left to send, and the end.
    pub(super) fn finish(mut self, buffer: &mut [u8]) -> (Vec<(Kind, Vec<u8>)>, End) {
        let mut rest = Vec::new();
        // What was written before the end and still lies in the pipes; bounded by their size.
        for _ in 0..64 {
            let pieces = self.read_output(buffer);
            if pieces.is_empty() {
                break;
            }
            rest.extend(pieces);
        }
        let status = match self.ended {
            Some((status, _)) => status,
            None => LOST,
        };
        let [kills, refusals] = self.whose;
        let end = End {
            ended: status.ended,
            usage: status.usage,
            background: self.background,
            // Where no counter tells of it: an end that is none of its own choice, after the bound was reached.
            too_many_processes: self.struck == Some(StoppedBy::Processes)
                || status.ended == Ended::NotStarted(libc::EAGAIN)
                || (self.struck.is_none()
                    && self.full
                    && refusals == Whose::Its
                    && status.ended != Ended::Exit(0)),
            out_of_memory: self.struck == Some(StoppedBy::Memory),
            out_of_cpu: self.struck == Some(StoppedBy::Cpu),
            disk_full: false,
            out_of_disk: self.struck == Some(StoppedBy::Disk),
            struck: status.struck,
            leftovers: None,
            kills,
            refusals,
        };
        (rest, end)
    }
}

/// Gives up everything of init but these: its channel, and pipes of other calls, which would not end otherwise.
fn keep_only(own: [OwnedFd; 4]) -> io::Result<[OwnedFd; 4]> {
    let mut high = Vec::with_capacity(own.len());
    for fd in &own {
        high.push(rustix::io::fcntl_dupfd_cloexec(fd, HIGH)?);
    }
    // Closed with the rest.
    std::mem::forget(own);
    sys::close_between(3, HIGH.unsigned_abs() - 1);
    // And low again: a child's table has room up to the highest number, and until the child can be looked at it counts as
    // if all of that were sockets.
    let low: Vec<OwnedFd> =
        high.iter().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 3)).collect::<rustix::io::Result<_>>()?;
    low.try_into().map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The supervisor: reaper of everything the call starts. It ends when nothing of the call is left.
fn supervise(
    job: &Job,
    env: &[(String, String)],
    (bounds, place, rules): (&Bounds, &Place, Option<BorrowedFd<'_>>),
    stdin: PipeReader,
    [stdout, stderr]: [PipeWriter; 2],
    mut status: UnixStream,
) -> ! {
    // Nothing of a call may do what init does when it was asked.
    if place.walls == Walls::Shared && filter::without_mark().is_err() {
        sys::exit_now(70)
    }
    let me = rustix::process::getpid();
    let reaper = match rustix::process::set_child_subreaper(Some(me)) {
        // An engine without subreapers: init knows, see `Kin`.
        Err(rustix::io::Errno::INVAL) => Ok(()),
        other => other,
    };
    // As with `keep_only`.
    let lowered = rules.map(|rules| rustix::io::fcntl_dupfd_cloexec(rules, 3)).transpose();
    if let Some(number) = rules.and_then(|rules| u32::try_from(rules.as_raw_fd()).ok()) {
        sys::close_between(number, number);
    }
    let Ok(rules) = lowered else { sys::exit_now(70) };
    let failed = |e: &io::Error| Status {
        ended: Ended::NotStarted(e.raw_os_error().unwrap_or(libc::EIO)),
        usage: Usage::default(),
        alone: true,
        struck: None,
        killed: false,
    };
    // By which the process that runs a module tells what bound struck it: one byte, or its death.
    let (mut verdict, judge) = match io::pipe() {
        Ok(pipe) => pipe,
        Err(e) => {
            tell(&mut status, &failed(&e));
            sys::exit_now(0)
        }
    };
    let ready = reaper.map_err(io::Error::from).and_then(|()| sys::new_session()).and_then(|()| sys::fork());
    let first = match ready {
        Ok(Fork::Parent(pid)) => pid,
        Ok(Fork::Child) => {
            drop((status, verdict));
            become_program(
                job,
                env,
                (bounds, place, rules.as_ref().map(AsFd::as_fd)),
                [stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()],
                judge,
            )
        }
        Err(e) => {
            tell(&mut status, &failed(&e));
            sys::exit_now(0)
        }
    };
    drop((stdin, stdout, stderr, judge, rules));
    let mut killed = false;
    while let Some(reaped) = sys::reap(true) {
        killed |= reaped.ended == Ended::Signal(libc::SIGKILL);
        if reaped.pid == first {
            let mut byte = [0];
            let struck = match job {
                // It could start nothing, so nobody holds the other end any more.
                Job::Module(_) => {
                    verdict.read_exact(&mut byte).ok().and_then(|()| Struck::from_byte(byte[0]))
                }
                Job::Exec { .. } | Job::File(_) => None,
            };
            let alone = !sys::has_children();
            tell(&mut status, &Status { ended: reaped.ended, usage: reaped.usage, alone, struck, killed });
        }
    }
    sys::exit_now(0)
}

fn tell(pipe: &mut UnixStream, status: &Status) {
    let mut line = serde_json::to_vec(status).unwrap_or_default();
    line.push(b'\n');
    // Init is gone when this fails, and the sandbox with it.
    drop(pipe.write_all(&line));
}

/// The first process of a call.
fn become_program(
    job: &Job,
    env: &[(String, String)],
    (bounds, place, rules): (&Bounds, &Place, Option<BorrowedFd<'_>>),
    [stdin, stdout, stderr]: [i32; 3],
    judge: PipeWriter,
) -> ! {
    let placed = sys::new_session()
        // In a machine init comes before all others: `machine::guest`.
        .and_then(
            |()| if place.counted { Ok(rustix::process::setpriority_process(None, 0)?) } else { Ok(()) },
        )
        .and_then(|()| sys::place_fd(stdin, 0))
        .and_then(|()| sys::place_fd(stdout, 1))
        .and_then(|()| sys::place_fd(stderr, 2))
        .and_then(|()| sys::set_limit(libc::RLIMIT_CPU, bounds.cpu_s, bounds.cpu_s.saturating_add(5)))
        .and_then(|()| sys::set_limit(libc::RLIMIT_FSIZE, bounds.file_bytes, bounds.file_bytes))
        .and_then(|()| match place.walls {
            // A module's process has rules of its own in either case.
            _ if matches!(job, Job::Module(_)) => Ok(()),
            Walls::Own => Ok(()),
            // Init looks at processes and ends them; what a call starts may do neither beyond the call.
            Walls::Shared => rules.ok_or_else(|| io::ErrorKind::NotFound.into()).and_then(sys::restrict_by),
        })
        // A program becomes so when it is started. Init could not see otherwise which of our files is meant.
        .and_then(|()| match place.walls {
            _ if matches!(job, Job::Exec { .. }) => Ok(()),
            Walls::Own => Ok(()),
            Walls::Shared => Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?),
        });
    let placed = placed.and_then(|()| match place.guest {
        None => Ok(()),
        Some(id) => become_guest(id),
    });
    if placed.is_err() {
        sys::exit_now(126)
    }
    if let Job::Module(call) = job
        && place.modules
    {
        let above = MODULE_FD.unsigned_abs();
        let kept = sys::place_fd(judge.as_raw_fd(), VERDICT_FD);
        std::mem::forget(judge);
        sys::close_between(VERDICT_FD.unsigned_abs() + 1, above - 1);
        sys::close_from(above + 1);
        sys::default_signals();
        if kept.is_err() {
            sys::exit_now(126)
        }
        module::run(call, env, (bounds, place))
    }
    // Closed with the rest.
    std::mem::forget(judge);
    sys::close_from(3);
    sys::default_signals();
    match job {
        Job::Exec { .. } if place.modules => {
            drop(writeln!(io::stderr(), "no program runs in the tier `wasm`, only its module"));
            sys::exit_now(126)
        }
        Job::Module(_) => {
            drop(writeln!(io::stderr(), "modules run in the tier `wasm` only"));
            sys::exit_now(126)
        }
        Job::File(op) => {
            // A write that finds no room says so and takes its half away.
            sys::ignore(libc::SIGXFSZ);
            sys::exit_now(file::serve(op, place))
        }
        Job::Exec { argv, env: extra, cwd, terminal } => {
            if *terminal && let Err(e) = terminal::between(place) {
                drop(writeln!(io::stderr(), "a terminal: {}", plain(&e)));
                sys::exit_now(126)
            }
            let error = exec(argv, env, extra, cwd.as_deref(), place);
            let name = argv.first().map_or("", String::as_str);
            // The model and the user read this; the shell's own numbers for it.
            drop(writeln!(io::stderr(), "{name}: {}", plain(&error)));
            sys::exit_now(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
        }
    }
}

/// Takes the id of the guest and gives up what init could do; nothing brings it back.
pub(super) fn become_guest(id: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    crate::inside::empty_bounding_set()?;
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

/// The system's word without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn exec(
    argv: &[String],
    env: &[(String, String)],
    extra: &[(String, String)],
    cwd: Option<&str>,
    place: &Place,
) -> io::Error {
    let attempt = || -> io::Result<io::Error> {
        let cwd = policy::unquoted(cwd.unwrap_or(".")).map_err(|_| io::ErrorKind::InvalidInput)?;
        let folder = walk::Workspace::open(place)?.folder(OsStr::from_bytes(&cwd))?;
        rustix::process::fchdir(&folder)?;
        let text = |s: &str| CString::new(s).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let args: Vec<CString> = argv.iter().map(|s| text(s)).collect::<io::Result<_>>()?;
        let mut env: Vec<(String, String)> =
            env.iter().filter(|(k, _)| !extra.iter().any(|(e, _)| e == k)).cloned().collect();
        env.extend(extra.iter().cloned());
        let path = env.iter().find(|(k, _)| k == "PATH").map_or("", |(_, v)| v).to_owned();
        let env: Vec<CString> =
            env.iter().map(|(k, v)| text(&format!("{k}={v}"))).collect::<io::Result<_>>()?;
        let name = argv.first().ok_or(io::ErrorKind::InvalidInput)?;
        if name.contains('/') {
            return Ok(sys::exec(&text(name)?, &args, &env));
        }
        let mut last = io::Error::from(rustix::io::Errno::NOENT);
        for folder in path.split(':').filter(|f| !f.is_empty()) {
            let error = sys::exec(&text(&format!("{folder}/{name}"))?, &args, &env);
            if error.kind() != io::ErrorKind::NotFound {
                last = error;
            }
        }
        Ok(last)
    };
    attempt().unwrap_or_else(|e| e)
}

/// Whether nobody can write to a pipe any more, whatever still lies in it.
fn has_no_writer(pipe: &PipeReader) -> bool {
    let mut fds = [PollFd::new(pipe, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

fn inode(fd: &impl AsFd) -> io::Result<u64> {
    // Not by the standard library: it remembers that `statx` works, and a mended engine takes that away.
    Ok(rustix::fs::fstat(fd)?.st_ino)
}

fn nonblocking(fd: &impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(fd)?;
    Ok(fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}
