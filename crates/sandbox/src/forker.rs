//! The forker: the one process that starts sandboxes, and their parent.
//!
//! It has one thread and little memory, so that a clone is cheap and safe; it has the executor's ids but none of
//! its environment, arguments, files or keys. It reads requests from one socket, which is its standard input, and
//! when that closes (the executor ended, or was killed) it kills every sandbox, removes what it made for them, and what
//! a killed executor made for machines, and ends.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use rustix::thread::Gid;

use crate::cgroup::{self, Cgroup, Places};
use crate::confined::{self, Scratch};
use crate::inside::{self, Taken};
use crate::launch::{BASE_ID, Backend, Bounds, GUEST_ID, ID_COUNT, Launch, MONITOR_ID, owns_ids};
use crate::machine;
use crate::message::{Ask, Tell, receive, send};
use crate::sys::{self, Fork};
use crate::view::Survey;

/// Descriptors that a sandbox needs room for: not so many, but under numbers as high as that.
const OPEN_FILES: u64 = 1024;
/// How long a look at the host's system tells what is there.
const FRESH: Duration = Duration::from_secs(10);
/// How long a killed executor may take to be gone.
const DYING: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// How long nobody wants anything before what the killed left is looked for: a sandbox that starts has the processors.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Descriptors that come with every launch; a module may be one more, or the way by which the sockets of doors are
/// passed out, and what is kept is behind them.
const STREAMS: usize = 3;

/// Runs until the executor's end of the socket closes, which is its standard input.
pub(crate) fn run() -> ! {
    sys::ignore_terminal_signals();
    // A guest's system has modes of its own; a strict mask of the caller would close it to the guest's user.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // A session of its own: a Ctrl-C on the terminal is the executor's to handle.
    let apart = sys::new_session().and_then(|()| Ok(rustix::process::chdir("/")?));
    // Where it may: a core limit of 0 is no help against a handler (see `limits` of the way in), and descriptors are
    // needed by the dozen. What could not be had is told by what is refused, or by the report.
    sys::raise_limit(libc::RLIMIT_CORE, 1).ok();
    sys::raise_limit(libc::RLIMIT_NOFILE, OPEN_FILES).ok();
    let code = match apart.and_then(|()| Forker::new()).and_then(|mut forker| forker.serve()) {
        Ok(()) => 0,
        Err(e) => {
            drop(writeln!(io::stderr(), "oubliette forker: {e}"));
            71
        }
    };
    sys::exit_now(code)
}

/// The same in a copy of the executor: nothing that was open in it stays, but its standard error.
pub(crate) fn run_from(socket: OwnedFd) -> ! {
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    let placed = null.and_then(|null| {
        sys::place_fd(null.as_raw_fd(), 1)?;
        sys::place_fd(socket.as_raw_fd(), 0)
    });
    if placed.is_err() {
        sys::exit_now(71);
    }
    // Both have their places now; their first numbers go with all others.
    std::mem::forget(socket);
    sys::close_from(3);
    run()
}

struct Forker {
    socket: OwnedFd,
    children: OwnedFd,
    boxes: BTreeMap<u64, Child>,
    places: Places,
    /// The namespaces that this is in itself.
    namespaces: [Option<PathBuf>; 6],
    /// The host's system, looked at while nobody asked for anything yet, and when that was.
    survey: Option<(Survey, Instant)>,
    /// Something was asked already.
    asked: bool,
    /// What the killed left was looked for.
    swept: bool,
    executor: Executor,
    /// Where that keeps files of machines, if not in the usual place.
    kept_in: Option<PathBuf>,
}

/// The process that all is done for; nothing where it was gone from the beginning.
struct Executor(Option<(Pid, OwnedFd)>);

impl Executor {
    fn new(pid: Option<Pid>) -> Executor {
        Executor(pid.and_then(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?))))
    }

    /// Whether it was killed, or broke off: then what it held is held no more. One that only let us go lives.
    fn is_gone(&self) -> bool {
        let Some((pid, handle)) = &self.0 else { return true };
        let ended = |time: &Timespec| poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(time)) != Ok(0);
        if ended(&NOW) {
            return true;
        }
        // It closes its files one after the other, when its memory is gone already.
        match sys::text(&format!("/proc/{}/statm", pid.as_raw_nonzero())) {
            Ok(memory) if memory.starts_with("0 ") => ended(&DYING),
            Ok(_) => false,
            Err(_) => ended(&NOW),
        }
    }
}

/// A sandbox as its parent sees it.
struct Child {
    pid: i32,
    cgroup: Cgroup,
    hold: Hold,
    scratch: Option<Scratch>,
    /// Open until all else is gone: a lock on one of these outlives an executor that was killed.
    kept: Vec<OwnedFd>,
}

/// By what a sandbox is ended.
enum Hold {
    /// Its first process is killed, and the kernel kills the rest.
    Kill,
    /// Its sentinel kills the rest when this closes, and must live to do so.
    Life(#[expect(dead_code, reason = "held for what its closing says")] io::PipeWriter),
    /// Closed already.
    LetGo,
}

impl Child {
    /// Asks for its end; reaping says when. It may have ended by itself.
    fn end(&mut self) {
        self.cgroup.kill();
        match &self.hold {
            Hold::Kill => drop(sys::kill(self.pid, libc::SIGKILL)),
            Hold::Life(_) => self.hold = Hold::LetGo,
            Hold::LetGo => {}
        }
    }
}

impl Forker {
    fn new() -> io::Result<Forker> {
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        // Only the tier confined wants it, and is refused where its own sentinel cannot have it.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).ok();
        let executor = executor(&socket);
        let places = Places::find(executor);
        Ok(Forker {
            socket,
            children: sys::child_signals()?,
            boxes: BTreeMap::new(),
            places,
            namespaces: namespaces("self"),
            survey: None,
            asked: false,
            swept: false,
            executor: Executor::new(executor),
            kept_in: None,
        })
    }

    fn serve(&mut self) -> io::Result<()> {
        // The executor has something to do yet before it asks for the first sandbox.
        self.survey = survey().map(|survey| (survey, Instant::now()));
        loop {
            let mut fds =
                [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.children, PollFlags::IN)];
            match poll(&mut fds, (self.asked && !self.swept).then_some(&QUIET)) {
                // Whoever asks for a sandbox does not wait for this: while the first one runs is time enough.
                Ok(0) => {
                    self.sweep();
                    continue;
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let (asked, ended) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            if ended {
                self.reap()?;
            }
            if asked {
                match receive(&self.socket)? {
                    Some((ask, fds)) => {
                        self.asked |= !matches!(ask, Ask::Keep { .. });
                        self.obey(ask, fds)?;
                    }
                    None => return self.end(),
                }
            }
        }
    }

    fn obey(&mut self, ask: Ask, fds: Vec<OwnedFd>) -> io::Result<()> {
        match ask {
            Ask::Launch(launch) => {
                let id = launch.id;
                let answer = match self.launch(&launch, fds) {
                    Ok(told) => told,
                    Err(doing) => Tell::Failed { id, doing },
                };
                self.tell(&answer)
            }
            Ask::Keep { folder } => {
                self.kept_in = Some(folder);
                Ok(())
            }
            Ask::Kill { id } => {
                if let Some(one) = self.boxes.get_mut(&id) {
                    one.end();
                }
                Ok(())
            }
            Ask::Count { id, question } => {
                let counters = self.boxes.get(&id).and_then(|one| one.cgroup.counters());
                self.tell(&Tell::Counted { id, question, counters })
            }
        }
    }

    fn launch(&mut self, launch: &Launch, mut fds: Vec<OwnedFd>) -> Result<Tell, String> {
        let during = |doing: &'static str| move |e: io::Error| format!("{doing}: {e}");
        let ours = fds.len().checked_sub(launch.kept).ok_or("the request came without what is kept")?;
        let mut kept = fds.split_off(ours);
        let extra = if fds.len() > STREAMS { fds.pop() } else { None };
        let (module, passage) = if launch.passes() { (None, extra) } else { (extra, None) };
        let streams: [OwnedFd; STREAMS] =
            fds.try_into().map_err(|_| "the request came without its streams".to_owned())?;
        enough_room(&launch.backend)?;
        let root = owns_ids();
        // Private places need root's way through; an ordinary user's own process goes there itself.
        let confined = launch.backend == Backend::Confined;
        let scratch = if confined {
            confined::check(launch)?;
            Some(Scratch::make(launch).map_err(during("make the private folder"))?)
        } else {
            None
        };
        let taken = if root && !confined {
            Some(Taken::take(launch).map_err(during("open workspace and program"))?)
        } else {
            None
        };
        let survey = self.survey.take().filter(|(_, at)| at.elapsed() < FRESH).map(|(survey, _)| survey);
        let (go_read, mut go_write) = io::pipe().map_err(during("make a pipe"))?;
        let (mut status_read, status_write) = io::pipe().map_err(during("make a pipe"))?;
        let (life_read, life_write) = match confined {
            true => {
                io::pipe().map(|(read, write)| (Some(read), Some(write))).map_err(during("make a pipe"))?
            }
            false => (None, None),
        };
        // The new process has these from here: in its own namespace it could add none.
        let groups = if root { engine_groups(&launch.backend) } else { Vec::new() };
        if root {
            set_groups(&groups).map_err(during("set the groups"))?;
        }
        // Behind everything that may fail without it: a group without a sandbox would stay until the end.
        let mut cgroup = Cgroup::make(&self.places, launch.id, &launch.backend, &launch.bounds);
        let held = cgroup.held();
        let ways = cgroup.doors();
        let bounds = Bounds { weigh: !held.memory, tally: !held.processes, ..launch.bounds.clone() };
        let launch = &Launch { bounds, ..launch.clone() };
        let (cloned, put_in) = clone(if confined { 0 } else { sys::NAMESPACES }, &cgroup);
        if !groups.is_empty() && !matches!(cloned, Ok(Fork::Child)) {
            set_groups(&[]).map_err(during("set the groups"))?;
        }
        let pid = match cloned {
            Ok(Fork::Parent(pid)) => pid,
            Ok(Fork::Child) => {
                drop((go_write, status_read, life_write));
                // A guest that had it could keep it, of any sandbox.
                kept.clear();
                self.boxes.values_mut().for_each(|one| one.kept.clear());
                inside::enter(inside::Start {
                    launch,
                    go: go_read.into(),
                    status: status_write.into(),
                    streams,
                    module,
                    passage,
                    taken,
                    survey,
                    groups: Some(ways),
                    held,
                    life: life_read.map(OwnedFd::from),
                    scratch: scratch.as_ref().map(|s| s.path().to_owned()),
                })
            }
            Err(e) => {
                drop(cgroup.remove());
                return Err(format!("create the namespaces: {e}"));
            }
        };
        drop((go_read, status_write, streams, module, passage, taken, survey, ways, life_read));
        let ids = ids_of(launch, root);
        let seen = namespaces_that_differ(&self.namespaces, pid);
        let mapped = if confined { Ok(()) } else { write_maps(pid, ids) };
        let prepared = mapped
            .map_err(during("map the ids"))
            .and_then(
                |()| if put_in { Ok(()) } else { cgroup.enter(pid).map_err(during("enter the cgroup")) },
            )
            .and_then(|()| match go_write.write_all(b"+") {
                // It ended already, and says why.
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                other => other.map_err(during("let it go")),
            });
        drop(go_write);
        let mut word = String::new();
        let told = prepared.and_then(|()| {
            status_read.by_ref().take(4096).read_to_string(&mut word).map_err(during("hear from it"))?;
            if word == "+" { Ok(()) } else { Err(std::mem::take(&mut word)) }
        });
        let cgroup_seen = cgroup.seen();
        let private = scratch.as_ref().map(|s| s.path().to_owned());
        let mut child = Child { pid, cgroup, hold: life_write.map_or(Hold::Kill, Hold::Life), scratch, kept };
        if told.is_err() {
            child.end();
        }
        self.boxes.insert(launch.id, child);
        match told {
            Ok(()) => Ok(Tell::Launched {
                id: launch.id,
                pid,
                namespaces: seen,
                cgroup: cgroup_seen,
                ids,
                scratch: private,
            }),
            Err(doing) => {
                let doing = if doing.is_empty() { "it ended without a word".to_owned() } else { doing };
                Err(doing)
            }
        }
    }

    /// Reaps ended sandboxes and tells the executor.
    fn reap(&mut self) -> io::Result<()> {
        sys::take_signals(&self.children)?;
        while let Some(reaped) = sys::reap(false) {
            let Some(id) = self.boxes.iter().find(|(_, b)| b.pid == reaped.pid).map(|(id, _)| *id) else {
                continue;
            };
            let Some(mut one) = self.boxes.remove(&id) else { continue };
            let counters = one.cgroup.counters();
            if one.scratch.is_some() {
                self.end_strays();
            }
            remove_patiently(&mut one.cgroup);
            one.scratch = None;
            one.kept.clear();
            let status = match reaped.ended {
                crate::Ended::Exit(code) => code,
                crate::Ended::Signal(signal) => 128 + signal,
                crate::Ended::NotStarted(_) | crate::Ended::Unknown => -1,
            };
            self.tell(&Tell::Gone { id, status, counters })?;
        }
        Ok(())
    }

    /// A sentinel that was killed kills nothing below it any more: what it had comes here, and is ended here.
    fn end_strays(&self) {
        loop {
            let children = sys::text("/proc/thread-self/children").unwrap_or_default();
            let strays: Vec<Pid> = children
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .filter(|pid| !self.boxes.values().any(|one| one.pid == *pid))
                .filter_map(Pid::from_raw)
                .collect();
            if strays.is_empty() {
                return;
            }
            for stray in strays {
                kill_process(stray, Signal::KILL).ok();
                waitpid(Some(stray), WaitOptions::empty()).ok();
            }
        }
    }

    fn tell(&self, tell: &Tell) -> io::Result<()> {
        let bytes = serde_json::to_vec(tell).map_err(io::Error::other)?;
        match send(&self.socket, &bytes, &[]) {
            // The executor is gone: the next read says so, and everything is put away.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }

    /// The executor is gone: nothing of its sandboxes may stay.
    fn end(&mut self) -> io::Result<()> {
        self.boxes.values_mut().for_each(Child::end);
        loop {
            self.end_strays();
            if sys::reap(true).is_none() {
                break;
            }
        }
        for one in self.boxes.values_mut() {
            remove_patiently(&mut one.cgroup);
        }
        // And the private folders, and what was kept.
        self.boxes.clear();
        if !self.swept {
            self.sweep();
        }
        self.places.leave();
        // Secrets and workspaces are in what is made for a machine.
        if self.executor.is_gone() {
            machine::sweep(self.kept_in.as_deref());
        }
        Ok(())
    }

    /// Removes what forkers and executors left that were killed.
    fn sweep(&mut self) {
        self.swept = true;
        cgroup::sweep(&self.places);
        machine::sweep(self.kept_in.as_deref());
    }
}

/// The host's system as a sandbox's own ids see it; none where that cannot be.
fn survey() -> Option<Survey> {
    if !owns_ids() {
        return Some(Survey::of_host());
    }
    set_groups(&[]).ok()?;
    sys::with_file_ids(BASE_ID + GUEST_ID, Survey::of_host).ok()
}

/// The process that started this one, as long as it lives: with it the other end of the socket is gone, and whose child
/// this is then nobody knows.
fn executor(socket: &OwnedFd) -> Option<Pid> {
    let parent = rustix::process::getppid();
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    match poll(&mut fds, Some(&NOW)) {
        Ok(0) => parent,
        Ok(_) | Err(_) => None,
    }
}

/// Starts a process in its cgroup where the kernel can (v2, since 5.7), which is far quicker than to move it there;
/// else beside it. Whether it is in.
fn clone(namespaces: u64, cgroup: &Cgroup) -> (io::Result<Fork>, bool) {
    if let Some(group) = cgroup.start()
        && let Ok(fork) = sys::clone_into_group(namespaces, group)
    {
        return (Ok(fork), true);
    }
    // What was refused is refused again, or told when the process is moved.
    (sys::clone_into(namespaces), false)
}

/// Limits that the executor was started with; a guest that cannot even fork is better not begun.
fn enough_room(backend: &Backend) -> Result<(), String> {
    let files = sys::soft_limit(libc::RLIMIT_NOFILE);
    if files < OPEN_FILES {
        return Err(format!("start anything: the limit of open files is {files}, {OPEN_FILES} are needed"));
    }
    let needed = match backend {
        // Init, its helpers and a shell.
        Backend::Confined | Backend::Namespace => 16,
        // An engine ends where it cannot make a thread.
        Backend::Gvisor { .. } => 256,
        Backend::Microvm { .. } => machine::MONITOR_THREADS,
    };
    let processes = sys::soft_limit(libc::RLIMIT_NPROC);
    if processes < needed {
        return Err(format!("start anything: the limit of processes is {processes}, {needed} are needed"));
    }
    Ok(())
}

/// Groups that an engine needs where the executor is root: the one that owns `/dev/kvm`, for a machine under it.
fn engine_groups(backend: &Backend) -> Vec<Gid> {
    match backend {
        Backend::Microvm { vm } if vm.monitor.is_kvm() => {
            let owner = fs::metadata("/dev/kvm").map(|m| m.gid()).ok();
            owner.into_iter().filter(|gid| *gid != 0).map(Gid::from_raw).collect()
        }
        Backend::Confined | Backend::Namespace | Backend::Gvisor { .. } | Backend::Microvm { .. } => {
            Vec::new()
        }
    }
}

/// Root's own supplementary groups are nothing a guest may have.
fn set_groups(groups: &[Gid]) -> io::Result<()> {
    match rustix::thread::set_thread_groups(groups) {
        Ok(()) => Ok(()),
        // Root of a container that may not change ids.
        Err(rustix::io::Errno::PERM) if groups.is_empty() => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// A group is busy for a moment after its last process was reaped; the kernel finishes on its own.
fn remove_patiently(cgroup: &mut Cgroup) {
    for attempt in 0..250 {
        match cgroup.remove() {
            Ok(()) => return,
            // A sentinel that did not die by us could not end the others.
            Err(_) if attempt == 0 => cgroup.kill(),
            Err(_) if attempt < 50 => std::thread::yield_now(),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Ids of a sandbox: inside, outside, count.
fn ids_of(launch: &Launch, root: bool) -> (u32, u32, u32) {
    match (&launch.backend, root) {
        // runsc maps its own ids within this range; the guest is the same host id in both tiers.
        (Backend::Gvisor { .. }, true) => (0, BASE_ID, ID_COUNT),
        (Backend::Confined, true) => (BASE_ID + GUEST_ID, BASE_ID + GUEST_ID, 1),
        (Backend::Namespace, true) => (GUEST_ID, BASE_ID + GUEST_ID, 1),
        (Backend::Microvm { .. }, true) => (GUEST_ID, MONITOR_ID, 1),
        (Backend::Gvisor { .. }, false) => (0, rustix::process::geteuid().as_raw(), 1),
        (Backend::Confined, false) => {
            let own = rustix::process::geteuid().as_raw();
            (own, own, 1)
        }
        (Backend::Namespace | Backend::Microvm { .. }, false) => {
            (GUEST_ID, rustix::process::geteuid().as_raw(), 1)
        }
    }
}

fn write_maps(pid: i32, (inside, outside, count): (u32, u32, u32)) -> io::Result<()> {
    // The group's own number may differ from the user's.
    let group = if owns_ids() { outside } else { rustix::process::getegid().as_raw() };
    // The kernel asks it of who has no right over its groups; a guest that may not give up those of a root has them.
    if !owns_ids() {
        fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
    }
    fs::write(format!("/proc/{pid}/gid_map"), format!("{inside} {group} {count}"))?;
    fs::write(format!("/proc/{pid}/uid_map"), format!("{inside} {outside} {count}"))
}

/// Looked at from outside, before the new process may do anything.
fn namespaces_that_differ(own: &[Option<PathBuf>; 6], pid: i32) -> Vec<String> {
    let theirs = namespaces(&pid.to_string());
    let differs = |own: &Option<PathBuf>, theirs: &Option<PathBuf>| {
        own.as_ref().zip(theirs.as_ref()).is_some_and(|(own, theirs)| own != theirs)
    };
    let all = NAMESPACES.iter().zip(own.iter().zip(&theirs));
    all.filter(|(_, (own, theirs))| differs(own, theirs))
        .map(|(name, _)| name.trim_end_matches("_for_children").to_owned())
        .collect()
}

const NAMESPACES: [&str; 6] = ["user", "pid_for_children", "mnt", "net", "ipc", "uts"];

/// Those of a process, as far as they can be seen.
fn namespaces(pid: &str) -> [Option<PathBuf>; 6] {
    NAMESPACES.map(|name| fs::read_link(format!("/proc/{pid}/ns/{name}")).ok())
}
