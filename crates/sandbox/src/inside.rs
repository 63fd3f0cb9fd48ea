//! The way in: what a new process does between the clone and the first guest instruction.
//!
//! Namespace tier: build the view, pivot into it, give everything up, become init.
//! gVisor tier: build the same view, put a wall around `runsc` (own root, ids, network, processes), start it and
//! wait. A broken inner wall then meets the outer one.
//!
//! The order matters: trees are taken before anything is covered, the root is changed before `/proc` is ours
//! alone, ids before capabilities, Landlock and seccomp last because they would forbid what comes before.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, mount_remount, unmount,
};
use rustix::process::{
    DumpableBehavior, Signal, pivot_root, set_dumpable_behavior, set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, CpuSet, Gid, Uid, sched_getaffinity, sched_setaffinity, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::cgroup;
use crate::doors::{self, Layout};
use crate::init::Serves;
use crate::launch::{Backend, Bounds, GUEST_ID, Held, Launch, PRIORITY, Place};
use crate::sys::{self, Forbid};
use crate::view::{self, Survey, Trees};
use crate::{confined, filter, gvisor, init, machine, rules, weight};

/// What the forker hands to the new process.
pub(crate) struct Start<'a> {
    pub(crate) launch: &'a Launch,
    /// One byte comes when the ids are in place; end-of-file when the forker is gone.
    pub(crate) go: OwnedFd,
    /// Where a failure is told, or `+`.
    pub(crate) status: OwnedFd,
    /// The guest's input, output and log.
    pub(crate) streams: [OwnedFd; 3],
    /// The module that runs in it.
    pub(crate) module: Option<OwnedFd>,
    /// Where the sockets of its doors go.
    pub(crate) passage: Option<OwnedFd>,
    /// Trees that only root may take, already taken; the process takes its own otherwise.
    pub(crate) taken: Option<Taken>,
    /// The host's system as it was looked at a moment ago; otherwise the process looks itself.
    pub(crate) survey: Option<Survey>,
    /// Its ways into its cgroup.
    pub(crate) groups: Option<cgroup::Doors>,
    /// What a cgroup holds.
    pub(crate) held: Held,
    /// Confined tier: closes when the sandbox is to end.
    pub(crate) life: Option<OwnedFd>,
    /// Confined tier: its private folder.
    pub(crate) scratch: Option<PathBuf>,
}

/// Trees of private places.
pub(crate) struct Taken {
    pub(crate) workspace: OwnedFd,
    /// `runsc`, and our own program, which it is to start.
    pub(crate) runsc: Option<(OwnedFd, OwnedFd)>,
    pub(crate) rootfs: Option<Trees>,
    pub(crate) source: Option<OwnedFd>,
    pub(crate) machine: Option<machine::Trees>,
}

/// A step that failed.
pub(crate) struct Failure {
    doing: &'static str,
    source: io::Error,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.doing, self.source)
    }
}

/// Names the step of a failure.
pub(crate) trait During<T> {
    fn during(self, doing: &'static str) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, doing: &'static str) -> Result<T, Failure> {
        self.map_err(|e| Failure { doing, source: e.into() })
    }
}

impl Taken {
    /// Takes the trees of `launch`.
    pub(crate) fn take(launch: &Launch) -> io::Result<Taken> {
        // A tree that nobody attaches costs as much to let go as a mount.
        let runsc = match &launch.backend {
            Backend::Confined | Backend::Namespace | Backend::Microvm { .. } => None,
            Backend::Gvisor { runsc } => {
                let program = fs::read_link("/proc/self/exe")?;
                Some((view::tree(runsc, Forbid::SuidDevWrite)?, view::tree(&program, Forbid::SuidDevWrite)?))
            }
        };
        let machine = match &launch.backend {
            Backend::Microvm { vm } => Some(machine::Trees::take(vm)?),
            Backend::Confined | Backend::Namespace | Backend::Gvisor { .. } => None,
        };
        // A machine gets images, never the folders themselves.
        let rootfs = match &launch.backend {
            Backend::Microvm { .. } => Some(Trees::of_devices()?),
            _ if launch.modules => Some(Trees::bare()?),
            Backend::Confined | Backend::Namespace | Backend::Gvisor { .. } => {
                launch.rootfs.as_deref().map(Trees::of_folder).transpose()?
            }
        };
        let source = launch.source.as_deref().map(|s| view::tree(s, Forbid::SuidDevWrite)).transpose()?;
        Ok(Taken {
            workspace: view::tree(&launch.workspace, Forbid::SuidDev)?,
            runsc,
            rootfs,
            source,
            machine,
        })
    }
}

impl Start<'_> {
    /// Returns when ids and cgroup are in place.
    pub(crate) fn wait(&mut self) -> Result<(), Failure> {
        if let Some(groups) = self.groups.take() {
            groups.enter().during("enter the cgroup")?;
        }
        let mut go = io::PipeReader::from(self.go.try_clone().during("take the start pipe")?);
        go.read_exact(&mut [0]).during("wait for the forker")
    }
}

/// Runs in the new process and never returns.
pub(crate) fn enter(mut start: Start<'_>) -> ! {
    if start.launch.backend == Backend::Confined {
        confined::enter(start)
    }
    let mut status = io::PipeWriter::from(match start.status.try_clone() {
        Ok(fd) => fd,
        Err(_) => sys::exit_now(70),
    });
    let failure = match prepare(&mut start) {
        Ok(()) => match start.launch.backend {
            Backend::Confined | Backend::Namespace => {
                match seal_namespace(&start.launch.bounds, start.held) {
                    Ok(()) => {
                        if status.write_all(b"+").is_err() {
                            sys::exit_now(70);
                        }
                        drop(status);
                        drop(start.status);
                        let place = Place { modules: start.launch.modules, ..Place::own() };
                        init::run(&start.launch.env, &start.launch.bounds, place, &Serves::Nothing)
                    }
                    Err(failure) => failure,
                }
            }
            Backend::Gvisor { .. } => match gvisor::wait_for(start.launch, &mut status) {
                Ok(code) => sys::exit_now(code),
                Err(source) => Failure { doing: "start runsc", source },
            },
            Backend::Microvm { ref vm } => match machine::wait_for(start.launch, vm, &mut status) {
                Ok(code) => sys::exit_now(code),
                Err(source) => Failure { doing: "start the monitor", source },
            },
        },
        Err(failure) => failure,
    };
    // Nobody is left to tell when this write fails.
    write!(status, "{failure}").ok();
    sys::exit_now(70)
}

fn prepare(start: &mut Start<'_>) -> Result<(), Failure> {
    start.wait()?;
    become_owner(start.launch).during("take the ids of the user namespace")?;
    set_parent_process_death_signal(Some(Signal::KILL)).during("tie the life to the forker")?;
    sys::unshare_cgroup().during("enter a cgroup namespace")?;
    sys::loopback_up().during("bring loopback up")?;
    if let Some(passage) = start.passage.take() {
        open_doors(start.launch, &passage).during("open the doors")?;
    }
    rustix::system::sethostname(b"sandbox").during("set the host name")?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).during("make mounts private")?;

    let taken = match start.taken.take() {
        Some(taken) => taken,
        None => Taken::take(start.launch).during("open workspace and program")?,
    };
    let rootfs = match taken.rootfs {
        Some(trees) => trees,
        None if start.launch.modules => Trees::bare().during("open the devices")?,
        None => {
            let survey = start.survey.take().unwrap_or_else(Survey::of_host);
            Trees::of_host(survey).during("open the host's toolchain")?
        }
    };
    let stage = stage(&start.launch.bounds)?;
    let resolver = !start.launch.made().is_empty();
    match start.launch.backend {
        Backend::Confined | Backend::Namespace => {
            rootfs.build(&stage, resolver).during("build the view")?;
            view::attach(&taken.workspace, &stage.join("workspace")).during("attach the workspace")?;
            if let Some(source) = &taken.source {
                fs::create_dir(stage.join("source")).during("make /source")?;
                view::attach(source, &stage.join("source")).during("attach /source")?;
            }
            private_mounts(&stage, &rootfs, &start.launch.bounds)?;
        }
        Backend::Gvisor { .. } => {
            let (runsc, program) =
                taken.runsc.ok_or_else(|| io::Error::other("no tree")).during("open runsc")?;
            wall(&stage, (&rootfs, resolver), &taken.workspace, &program, &runsc)?;
        }
        Backend::Microvm { .. } => {
            let trees = taken
                .machine
                .as_ref()
                .ok_or_else(|| io::Error::other("no trees"))
                .during("open the monitor")?;
            bare_wall(&stage, &rootfs)?;
            machine::wall(&stage, trees).during("build the wall")?;
        }
    }
    drop((taken.workspace, taken.source, taken.machine, rootfs));
    rustix::process::chdir(&stage).during("enter the new root")?;
    pivot_root(".", ".").during("change the root")?;
    unmount(".", UnmountFlags::DETACH).during("let the old root go")?;
    rustix::process::chdir("/").during("enter the new root")?;
    if start.launch.backend == Backend::Namespace {
        let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        mount_remount("/", flags, c"").during("make the root read-only")?;
    }
    if start.launch.backend == Backend::Namespace && !start.held.memory {
        // Where it cannot be set, init finds the kernel's own, and tells it.
        bound_tcp().ok();
    }
    streams(start)?;
    limits(start.launch, start.held).during("set the limits")
}

/// What a socket of TCP may hold, in both directions together, is what is counted for one: the kernel lets them grow to
/// some MiB each. The network is the sandbox's own.
fn bound_tcp() -> io::Result<()> {
    let most = weight::SOCKET / 2;
    fs::write("/proc/sys/net/ipv4/tcp_rmem", format!("4096 65536 {most}"))?;
    fs::write("/proc/sys/net/ipv4/tcp_wmem", format!("4096 16384 {most}"))
}

/// Makes the sockets of the doors, as long as ports below 1024 may be had, and keeps none.
fn open_doors(launch: &Launch, passage: &OwnedFd) -> io::Result<()> {
    match Layout::of(&launch.made()).map_err(io::Error::other)? {
        Some(layout) => doors::send(passage, &doors::listen(&layout)?),
        None => Ok(()),
    }
}

/// Takes the ids that own the namespace, with all capabilities over it and none outside.
fn become_owner(launch: &Launch) -> io::Result<()> {
    match &launch.backend {
        // Its one group is that of `/dev/kvm`, by the forker's hand.
        Backend::Microvm { vm } if vm.monitor.is_kvm() => take_id(GUEST_ID, Groups::Kept),
        Backend::Confined | Backend::Namespace | Backend::Microvm { .. } => take_id(GUEST_ID, Groups::Left),
        // runsc wants to be root of its namespace.
        Backend::Gvisor { .. } => take_id(0, Groups::Left),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Groups {
    Kept,
    Left,
}

/// Becomes this id and keeps the capabilities.
fn take_id(id: u32, groups: Groups) -> io::Result<()> {
    if rustix::process::getuid().as_raw() != id {
        set_keep_capabilities(true)?;
        // A single-id map forbids setgroups; where it is allowed the host's groups must go.
        if groups == Groups::Left {
            match set_thread_groups(&[]) {
                Err(e) if e != rustix::io::Errno::PERM || may_set_groups() => return Err(e.into()),
                Ok(()) | Err(_) => {}
            }
        }
        let gid = Gid::from_raw(id);
        set_thread_res_gid(gid, gid, gid)?;
        let uid = Uid::from_raw(id);
        set_thread_res_uid(uid, uid, uid)?;
        let all = CapabilitySet::all();
        let held = rustix::thread::capabilities(None)?.permitted & all;
        set_capabilities(
            None,
            CapabilitySets { effective: held, permitted: held, inheritable: CapabilitySet::empty() },
        )?;
    }
    Ok(())
}

/// Whether this user namespace allows it; where it cannot be told it should have worked.
fn may_set_groups() -> bool {
    !sys::text("/proc/self/setgroups").is_ok_and(|word| word.trim() == "deny")
}

/// An empty file system of ours over a folder that every host has.
fn stage(bounds: &Bounds) -> Result<PathBuf, Failure> {
    let at = ["/tmp", "/mnt", "/var", "/usr"]
        .into_iter()
        .map(Path::new)
        .find(|p| fs::symlink_metadata(p).is_ok_and(|m| m.is_dir()))
        .ok_or_else(|| io::Error::other("no folder to mount on"))
        .during("find a place for the new root")?;
    // Holds names, links and the copied part of /etc only; runsc keeps its state here too.
    let data = format!("size={},nr_inodes=8192,mode=755", (64_u64 << 20).min(bounds.tmp.max(16 << 20)));
    mount("oubliette", at, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c_text(&data).as_deref())
        .during("mount the new root")?;
    Ok(at.to_path_buf())
}

fn c_text(text: &str) -> Option<std::ffi::CString> {
    std::ffi::CString::new(text).ok()
}

/// `/tmp`, `/proc` and `/dev` of a guest in the namespace tier.
fn private_mounts(root: &Path, trees: &Trees, bounds: &Bounds) -> Result<(), Failure> {
    let quiet = MountFlags::NOSUID | MountFlags::NODEV;
    let tmp = format!("size={},nr_inodes={},mode=1777", bounds.tmp, bounds.files.max(1024));
    let tmp = c_text(&tmp);
    mount("tmp", root.join("tmp"), "tmpfs", quiet, tmp.as_deref()).during("mount /tmp")?;
    mount("proc", root.join("proc"), "proc", quiet | MountFlags::NOEXEC, None).during("mount /proc")?;
    let dev = root.join("dev");
    let small = c_text("size=64k,nr_inodes=64,mode=755");
    mount("dev", &dev, "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, small.as_deref())
        .during("mount /dev")?;
    trees.build_dev(&dev).during("fill /dev")?;
    mount("shm", dev.join("shm"), "tmpfs", quiet | MountFlags::NOEXEC, tmp.as_deref())
        .during("mount /dev/shm")?;
    fs::create_dir(dev.join("pts")).during("make /dev/pts")?;
    let pts = c_text("newinstance,ptmxmode=0666,mode=620");
    mount("pts", dev.join("pts"), "devpts", MountFlags::NOSUID | MountFlags::NOEXEC, pts.as_deref())
        .during("mount /dev/pts")?;
    std::os::unix::fs::symlink("pts/ptmx", dev.join("ptmx")).during("link /dev/ptmx")
}

/// The part of a wall that every engine needs.
fn bare_wall(root: &Path, trees: &Trees) -> Result<(), Failure> {
    for name in ["proc", "dev", "tmp"] {
        fs::create_dir(root.join(name)).during("build the wall")?;
    }
    let quiet = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", root.join("proc"), "proc", quiet, None).during("mount the wall's /proc")?;
    trees.build_dev(&root.join("dev")).during("fill the wall's /dev")
}

/// The wall around runsc: a root that holds runsc, the guest's view, and nothing else of the host.
fn wall(
    root: &Path,
    (trees, resolver): (&Trees, bool),
    workspace: &OwnedFd,
    program: &OwnedFd,
    runsc: &OwnedFd,
) -> Result<(), Failure> {
    bare_wall(root, trees)?;
    for name in ["view", "workspace", "bundle", "state"] {
        fs::create_dir(root.join(name)).during("build the wall")?;
    }
    trees.build(&root.join("view"), resolver).during("build the view")?;
    for (name, tree) in [("runsc", runsc), ("view/.oubliette", program)] {
        fs::write(root.join(name), b"").during("build the wall")?;
        view::attach(tree, &root.join(name)).during("attach runsc and init")?;
    }
    view::attach(workspace, &root.join("workspace")).during("attach the workspace")
}

/// The guest's streams become 0, 1 and 2; nothing else stays open but the status pipe as 3.
pub(crate) fn streams(start: &mut Start<'_>) -> Result<(), Failure> {
    let high = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 64);
    let [input, output, log] = &start.streams;
    let copies = [
        high(input).during("keep the streams")?,
        high(output).during("keep the streams")?,
        high(log).during("keep the streams")?,
    ];
    for (number, copy) in (0..).zip(&copies) {
        sys::place_fd(copy.as_raw_fd(), number).during("place the streams")?;
    }
    if let Some(module) = start.module.take() {
        sys::place_fd(module.as_raw_fd(), init::MODULE_FD).during("place the module")?;
    }
    Ok(())
}

/// Bounds that both tiers get from outside.
pub(crate) fn limits(launch: &Launch, held: Held) -> io::Result<()> {
    let bounds = &launch.bounds;
    // Not 0: a host whose `core_pattern` is a pipe starts its handler, as root and outside, for every limit but 1.
    sys::set_limit(libc::RLIMIT_CORE, 1, 1)?;
    sys::set_limit(libc::RLIMIT_NOFILE, 1024, 4096)?;
    sys::set_limit(libc::RLIMIT_MEMLOCK, 64 << 10, 64 << 10)?;
    of_the_kernel()?;
    if matches!(launch.backend, Backend::Confined | Backend::Namespace) {
        // What a program of the host finds; an engine has threads and signals of its own.
        sys::set_limit(libc::RLIMIT_STACK, 8 << 20, 64 << 20)?;
        sys::set_limit(libc::RLIMIT_SIGPENDING, 1024, 1024)?;
    }
    // gVisor and a machine's monitor hold their guest's memory in one process and reserve far more than they use.
    if !held.memory && matches!(launch.backend, Backend::Confined | Backend::Namespace) {
        sys::set_limit(libc::RLIMIT_DATA, bounds.memory, bounds.memory)?;
    }
    match launch.backend {
        Backend::Confined | Backend::Namespace => {}
        Backend::Gvisor { .. } => {
            let threads = bounds.engine_threads();
            sys::set_limit(libc::RLIMIT_NPROC, threads, threads)?;
        }
        Backend::Microvm { .. } => machine::limits(bounds)?,
    }
    if !held.cores {
        few_processors(bounds.cores, launch.id)?;
        // Others come first. Nothing in it may be raised again: see `of_the_kernel`.
        rustix::process::setpriority_process(None, PRIORITY)?;
    }
    Ok(())
}

/// What the kernel keeps for a process beside its memory, whatever the executor itself may have: bytes of message
/// queues (the kernel's own default; one queue of usual size fits), and no priority above others. File locks have no
/// limit that the kernel still holds; only a cgroup counts them, as memory.
fn of_the_kernel() -> io::Result<()> {
    sys::set_limit(libc::RLIMIT_MSGQUEUE, 819_200, 819_200)?;
    sys::set_limit(libc::RLIMIT_NICE, 0, 0)?;
    sys::set_limit(libc::RLIMIT_RTPRIO, 0, 0)
}

/// Keeps to as many processors as are allowed; which ones differs from sandbox to sandbox.
fn few_processors(cores: u32, id: u64) -> io::Result<()> {
    let all = sched_getaffinity(None)?;
    let here: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
    let cores = usize::try_from(cores).unwrap_or(usize::MAX);
    if cores >= here.len() {
        return Ok(());
    }
    let first = usize::try_from(id).unwrap_or(0);
    let mut few = CpuSet::new();
    for n in 0..cores {
        few.set(here[(first + n) % here.len()]);
    }
    Ok(sched_setaffinity(None, &few)?)
}

/// The way in of a machine's init, whose system is mounted at `root`: the same view and the same seal as in the
/// namespace tier, without a user namespace, because this kernel is the guest's own. Gives the sockets of the doors.
pub(crate) fn enter_machine(
    root: &Path,
    bounds: &Bounds,
    layout: Option<&Layout>,
) -> io::Result<Vec<OwnedFd>> {
    let entered = || -> Result<Vec<OwnedFd>, Failure> {
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).during("make mounts private")?;
        private_mounts(root, &Trees::of_devices().during("open the devices")?, bounds)?;
        sys::loopback_up().during("bring loopback up")?;
        let sockets = match layout {
            Some(layout) => {
                view::name_resolver(root, Path::new("/")).during("name the resolver")?;
                doors::listen(layout).during("open the doors")?
            }
            None => Vec::new(),
        };
        rustix::system::sethostname(b"sandbox").during("set the host name")?;
        rustix::process::chdir(root).during("enter the root")?;
        rustix::mount::mount_move(".", "/").during("move the root")?;
        rustix::process::chroot(".").during("change the root")?;
        rustix::process::chdir("/").during("enter the root")?;
        sys::set_limit(libc::RLIMIT_CORE, 0, 0).during("set the limits")?;
        sys::set_limit(libc::RLIMIT_NOFILE, 1024, 4096).during("set the limits")?;
        sys::set_limit(libc::RLIMIT_MEMLOCK, 64 << 10, 64 << 10).during("set the limits")?;
        of_the_kernel().during("set the limits")?;
        take_id(GUEST_ID, Groups::Left).during("take the guest's ids")?;
        // The machine's own group and size hold both.
        seal_namespace(bounds, Held { memory: true, processes: true, cores: true })?;
        Ok(sockets)
    };
    entered().map_err(|f| io::Error::other(format!("{}: {}", f.doing, f.source)))
}

/// Leaves a wall's first process without rights, before an engine is started that needs none.
pub(crate) fn give_up_rights() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_no_new_privs(true)?;
    drop_capabilities()
}

/// What `runsc` needs of its own user namespace: to build its walls, to serve files, and to take the ids of a guest.
/// Who maps its own id 0 into another namespace needs the right to files' capabilities.
const OF_RUNSC: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_ADMIN);

/// The same before `runsc` is started, which needs some.
pub(crate) fn give_up_rights_but_those_of_runsc() -> io::Result<()> {
    set_no_new_privs(true)?;
    shrink_bounding_set(CapabilitySet::all() - OF_RUNSC)?;
    rustix::thread::clear_ambient_capability_set()?;
    let kept = rustix::thread::capabilities(None)?.permitted & OF_RUNSC;
    set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )?;
    Ok(())
}

/// Gives up everything: the last steps of the namespace tier, in the order the kernel asks for.
fn seal_namespace(bounds: &Bounds, held: Held) -> Result<(), Failure> {
    sys::set_limit(libc::RLIMIT_FSIZE, bounds.file_bytes, bounds.file_bytes).during("bound file sizes")?;
    // The user namespace counts its own processes: init and the supervisor of a call come on top, and some more where a
    // cgroup strikes first, which tells of it.
    let processes = u64::from(bounds.processes) + if held.processes { 24 } else { 2 };
    sys::set_limit(libc::RLIMIT_NPROC, processes, processes).during("bound processes")?;
    sys::new_session().during("leave the session")?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).during("forbid tracing of init")?;
    set_no_new_privs(true).during("forbid new privileges")?;
    drop_capabilities().during("drop capabilities")?;
    rules::restrict().map_err(io::Error::other).during("restrict by Landlock")?;
    filter::apply(held).map_err(io::Error::other).during("install the seccomp filter")
}

/// No capability can come back.
pub(crate) fn empty_bounding_set() -> io::Result<()> {
    shrink_bounding_set(CapabilitySet::all())
}

fn shrink_bounding_set(by: CapabilitySet) -> io::Result<()> {
    for capability in by.iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // A capability newer than the kernel.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// No capability is left, none can come back.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    empty_bounding_set()?;
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}
