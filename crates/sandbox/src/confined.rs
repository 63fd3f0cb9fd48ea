//! The confined tier: Landlock, seccomp and limits, no namespace. For an executor that is itself an ordinary
//! user in a container which allows nothing more.
//!
//! ```text
//!   forker ──fork──▶ sentinel ──fork──▶ init ──▶ supervisor ──▶ program
//!                    (domain 1)         (domain 2)              (domain 3, one per call)
//! ```
//!
//! Each domain is nested in the one before it, and none can signal, trace or reach by an abstract socket what is
//! above it. The sentinel runs nothing and waits for one pipe: when the forker lets go of it (a kill, its own
//! end, or its death) it ends everything below with one `kill(-1)`, which the kernel bounds to its domain.
//!
//! Files are not hidden here but closed: names, sizes and modes of the host can be seen, contents cannot.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use crate::init::Serves;
use crate::inside::{During, Failure, Start, limits, streams};
use crate::launch::{BASE_ID, GUEST_ID, Launch, Place, Walls};
use crate::sys::{self, Fork};
use crate::{filter, init, rules};

/// The kernel must offer this much: with less, a guest with the executor's ids could signal it.
const LANDLOCK: i64 = 6;
/// Init, sentinel and a supervisor, beyond what a guest may have.
const OURS: u64 = 3;
/// More, where a cgroup strikes first, which tells of it.
const BEHIND: u64 = 6;

/// How the name of a private folder begins, which lies beside the workspace: where one is, and its sandbox is not, the
/// forker was killed that would have removed it.
pub const PRIVATE: &str = ".oubliette-tmp-";

/// A private folder beside the workspace, removed at the end.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes it, for the sandbox's ids only, where the run already keeps its files.
    pub(crate) fn make(launch: &Launch) -> io::Result<Scratch> {
        let beside = launch.workspace.parent().unwrap_or(Path::new("/"));
        // A name that nobody can foresee, and no link in its place: making it fails if it is there.
        let path = beside.join(format!("{PRIVATE}{}", sys::unforeseen()?));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let scratch = Scratch(path);
        if let (id, true) = guest() {
            // What is handed over is what was made, whatever has its name by now.
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = rustix::fs::open(&scratch.0, flags, Mode::empty())?;
            rustix::fs::fchown(&made, Some(Uid::from_raw(id)), Some(Gid::from_raw(id)))?;
        }
        Ok(scratch)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Only the sandbox could write there, and it is gone. A folder it closed to itself is opened first.
        if fs::remove_dir_all(&self.0).is_err() {
            open_folders(&self.0, 0);
            fs::remove_dir_all(&self.0).ok();
        }
    }
}

fn open_folders(folder: &Path, depth: u32) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).ok();
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if depth < 256 && entry.file_type().is_ok_and(|t| t.is_dir()) {
            open_folders(&entry.path(), depth + 1);
        }
    }
}

/// The ids of a guest, and whether they differ from ours.
pub(crate) fn guest() -> (u32, bool) {
    let own = rustix::process::geteuid();
    if crate::launch::owns_ids() { (BASE_ID + GUEST_ID, true) } else { (own.as_raw(), false) }
}

/// What can be known before anything is started.
pub(crate) fn check(launch: &Launch) -> Result<(), String> {
    match sys::landlock_version() {
        Ok(version) if version >= LANDLOCK => {}
        Ok(version) => {
            return Err(format!(
                "restrict by Landlock: the kernel offers version {version}, {LANDLOCK} is needed"
            ));
        }
        Err(e) => return Err(format!("restrict by Landlock: the kernel offers none ({e})")),
    }
    if launch.rootfs.is_some() {
        return Err("use a root file system: this tier has no view of its own".to_owned());
    }
    let (id, differs) = guest();
    let closed = |folder: &&Path| {
        !fs::metadata(folder).is_ok_and(|m| m.mode() & 0o001 != 0 || (m.uid() == id && m.mode() & 0o100 != 0))
    };
    match launch.workspace.ancestors().skip(1).find(closed) {
        Some(folder) if differs => Err(format!(
            "reach the workspace: {} is closed to the sandbox's own id {id}, and this tier has no view of its own",
            folder.display()
        )),
        _ => Ok(()),
    }
}

/// Runs in the new process and never returns.
pub(crate) fn enter(mut start: Start<'_>) -> ! {
    let Ok(status) = rustix::io::fcntl_dupfd_cloexec(&start.status, 128) else { sys::exit_now(70) };
    let mut status = io::PipeWriter::from(status);
    let failure = match run(&mut start, &mut status) {
        Ok(code) => sys::exit_now(code),
        Err(failure) => failure,
    };
    // Nobody is left to tell when this write fails.
    write!(status, "{failure}").ok();
    sys::exit_now(70)
}

/// The sentinel's own story; init leaves it on the way.
fn run(start: &mut Start<'_>, status: &mut io::PipeWriter) -> Result<i32, Failure> {
    start.wait()?;
    let missing = || io::Error::other("it did not come along");
    let life = start.life.take().ok_or_else(missing).during("take the pipe of its life")?;
    let tmp = start.scratch.take().ok_or_else(missing).during("take the private folder")?;
    let life = rustix::io::fcntl_dupfd_cloexec(&life, 128).during("take the pipe of its life")?;
    let workspace = start.launch.workspace.clone();
    let modules = start.launch.modules;
    let opened = if modules { rules::bare_parts() } else { rules::open_parts() };
    let place = Place { workspace, tmp, walls: Walls::Shared, opened, modules, ..Place::own() };
    streams(start)?;
    limits(start.launch, start.held).during("set the limits")?;
    bound(start.launch, start.held.processes).during("set the limits")?;
    sys::new_session().during("leave the session")?;
    give_up_ids().during("take the sandbox's own ids")?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).during("forbid tracing of init")?;
    set_no_new_privs(true).during("forbid new privileges")?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .during("take in what loses its parent")?;
    rules::scope().map_err(io::Error::other).during("restrict by Landlock")?;
    filter::apply_confined(start.held).map_err(io::Error::other).during("install the seccomp filter")?;
    let children = sys::child_signals().during("hear of ended processes")?;
    match sys::fork().during("start init")? {
        Fork::Child => {
            drop(life);
            // A sentinel that is killed ends nobody; init then ends, and the forker ends the rest.
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
                .during("end with the sentinel")?;
            rules::restrict_init(&place).map_err(io::Error::other).during("restrict by Landlock")?;
            if status.write_all(b"+").is_err() {
                sys::exit_now(70);
            }
            init::run(&start.launch.env, &start.launch.bounds, place, &Serves::Nothing)
        }
        Fork::Parent(init) => Ok(watch(init, &life, &children)),
    }
}

/// Waits for the end of init or of the forker's interest, then ends everything. Gives init's exit status.
fn watch(init: i32, life: &OwnedFd, children: &OwnedFd) -> i32 {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let kept = sys::keep_only([life.as_raw_fd(), children.as_raw_fd()]);
    let mut code = 70;
    let mut note = |reaped: &sys::Reaped| {
        if reaped.pid == init {
            code = match reaped.ended {
                crate::Ended::Exit(code) => code,
                crate::Ended::Signal(signal) => 128 + signal,
                crate::Ended::NotStarted(_) | crate::Ended::Unknown => 70,
            };
        }
        reaped.pid == init
    };
    loop {
        let mut fds = [PollFd::new(life, PollFlags::IN), PollFd::new(children, PollFlags::IN)];
        match poll(&mut fds, (!kept).then_some(&NOW)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
        let let_go = !fds[0].revents().is_empty();
        let mut signals = [0; 512];
        rustix::io::read(children, &mut signals).ok();
        let mut over = let_go || !kept;
        while let Some(reaped) = sys::reap(false) {
            over |= note(&reaped);
        }
        if over {
            break;
        }
    }
    // One call reaches all that is in this domain, however it forks; what dies is reaped until none is left.
    loop {
        sys::kill(-1, libc::SIGKILL).ok();
        match sys::reap(true) {
            Some(reaped) => note(&reaped),
            None => return code,
        };
    }
}

/// Bounds of this tier only.
fn bound(launch: &Launch, counted: bool) -> io::Result<()> {
    let bounds = &launch.bounds;
    sys::set_limit(libc::RLIMIT_FSIZE, bounds.file_bytes, bounds.file_bytes)?;
    // The kernel counts a user's tasks everywhere together: what runs already is added. Where a cgroup counts the
    // sandbox's own, this is the second bound, and all tasks there are will do: finding whose they are takes a look
    // at each.
    let running = match counted.then(all_tasks).flatten() {
        Some(all) => all,
        None => tasks_of(guest().0),
    };
    let most = u64::from(bounds.processes) + OURS + if counted { BEHIND } else { 0 } + running;
    sys::set_limit(libc::RLIMIT_NPROC, most, most)
}

/// Tasks of everybody: the fourth word, `running/all`.
fn all_tasks() -> Option<u64> {
    sys::text("/proc/loadavg").ok()?.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

/// Tasks of a user, as far as they can be seen.
fn tasks_of(id: u32) -> u64 {
    let Ok(dir) = fs::read_dir("/proc") else { return 0 };
    let of = |status: &str| -> Option<u64> {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let owner: u32 = field("Uid:")?.split_whitespace().next()?.parse().ok()?;
        if owner == id { field("Threads:")?.trim().parse().ok() } else { None }
    };
    // Longer than such a text is: one read is the whole of it. One that is cut counts for nothing, as one that
    // cannot be read.
    let mut text = vec![0; 16 << 10];
    let mut tasks = |entry: fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let n = fs::File::open(format!("/proc/{pid}/status")).ok()?.read(&mut text).ok()?;
        of(&String::from_utf8_lossy(&text[..n]))
    };
    dir.flatten().filter_map(&mut tasks).sum()
}

/// No root, no groups, no capability, and none can come back.
fn give_up_ids() -> io::Result<()> {
    for capability in CapabilitySet::all().iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // A capability newer than the kernel; or none of ours to give up, and no new privileges will come.
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => {}
            Err(e) => return Err(e.into()),
        }
    }
    if let (id, true) = guest() {
        set_thread_groups(&[])?;
        let gid = Gid::from_raw(id);
        set_thread_res_gid(gid, gid, gid)?;
        let uid = Uid::from_raw(id);
        set_thread_res_uid(uid, uid, uid)?;
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}
