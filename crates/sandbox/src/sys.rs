//! The system calls that no safe wrapper of ours or of a library offers. Every `unsafe` of the crate is here.
#![expect(unsafe_code, reason = "raw system calls; each block says why it is sound")]

use std::ffi::{CStr, CString};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use crate::{Ended, Usage};

mod doomed;

pub(crate) use doomed::{Doomed, Ending, ends_what_it_starts};

/// The namespaces of a sandbox.
pub(crate) const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS) as u64;

/// Which side of a fork this is.
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The old one; the process id of the new.
    Parent(i32),
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Lets all threads share one heap. Ours are few and short-lived, and one of its own costs each of them some calls and
/// pages. Elsewhere than with glibc nothing happens.
pub(crate) fn one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a number within the allocator; any time is right, and its answer changes nothing.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Starts a process in new namespaces and in a cgroup (of v2). Only for single-threaded callers.
pub(crate) fn clone_into_group(namespaces: u64, group: BorrowedFd<'_>) -> io::Result<Fork> {
    const INTO_CGROUP: u64 = 0x2_0000_0000;
    let args = CloneArgs {
        flags: namespaces | INTO_CGROUP,
        exit_signal: u64::try_from(libc::SIGCHLD).unwrap_or_default(),
        cgroup: u64::try_from(group.as_raw_fd()).unwrap_or_default(),
        ..Default::default()
    };
    // SAFETY: as below; the descriptor is borrowed for the call.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) })?;
    Ok(side(pid))
}

/// Starts a process in new namespaces; with 0, a plain fork. Only for single-threaded callers.
pub(crate) fn clone_into(namespaces: u64) -> io::Result<Fork> {
    let args = CloneArgs {
        flags: namespaces,
        exit_signal: u64::try_from(libc::SIGCHLD).unwrap_or_default(),
        ..Default::default()
    };
    // SAFETY: `args` is a valid clone_args of the size given and asks for no shared memory or stack, so this is
    // fork(2) with namespaces; the callers (forker, init) have one thread, so no lock is held in the child.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    let pid = match check(result) {
        Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => {
            let flags = args.flags | args.exit_signal;
            // SAFETY: as above, with the older call; a null stack means the child keeps a copy of ours.
            check(unsafe { libc::syscall(libc::SYS_clone, flags, 0u64, 0u64, 0u64, 0u64) })?
        }
        other => other?,
    };
    Ok(side(pid))
}

fn side(pid: i64) -> Fork {
    match i32::try_from(pid).unwrap_or(i32::MAX) {
        0 => Fork::Child,
        pid => Fork::Parent(pid),
    }
}

/// Forks. Only for single-threaded callers.
pub(crate) fn fork() -> io::Result<Fork> {
    clone_into(0)
}

/// What this process was started with, as the kernel laid it out: arguments and environment, side by side, and the
/// random bytes.
pub(crate) struct Beginnings {
    texts: usize,
    end: usize,
}

impl Beginnings {
    /// Finds it; an error where it cannot be found, or where there is a second thread.
    pub(crate) fn find() -> io::Result<Beginnings> {
        let stat = text("/proc/self/stat")?;
        Beginnings::of(&stat).ok_or_else(|| io::Error::other("the beginnings of this process are not told"))
    }

    fn of(stat: &str) -> Option<Beginnings> {
        // A name may hold anything, and stands before the last bracket; field 3 comes next.
        let fields: Vec<usize> =
            stat.rsplit_once(')')?.1.split_whitespace().map(|n| n.parse().unwrap_or(0)).collect();
        let field = |number: usize| fields.get(number - 3).copied();
        let [args, args_end, env, end] = [field(48)?, field(49)?, field(50)?, field(51)?];
        let sound = field(20)? == 1 && args > 0 && args <= args_end && args_end == env && env <= end;
        // Longer than the kernel lets it be.
        let bounded = end.checked_sub(args)? <= 16 << 20;
        (sound && bounded).then_some(Beginnings { texts: args, end })
    }

    /// Overwrites all of it: with a title, as far as there is room, and zeros. Only for a process that will not look
    /// at its arguments or environment again, and has one thread.
    pub(crate) fn forget(self, title: &[u8]) {
        let length = self.end - self.texts;
        let start = ptr::with_exposed_provenance_mut::<u8>(self.texts);
        let kept = title.len().min(length.saturating_sub(1));
        // SAFETY: the kernel told these bounds of this process's own stack, above every frame; nothing else lives
        // there, no other thread runs, and who reads arguments or environment later finds empty C strings.
        unsafe {
            ptr::write_bytes(start, 0, length);
            ptr::copy_nonoverlapping(title.as_ptr(), start, kept);
        }
        // SAFETY: no other thread reads the environment; its texts are empty now.
        unsafe { libc::clearenv() };
        // SAFETY: getauxval takes an integer.
        let random = unsafe { libc::getauxval(libc::AT_RANDOM) };
        if let (Ok(at), true) = (usize::try_from(random), random != 0) {
            // SAFETY: the kernel put 16 bytes there, on the same stack; the C library read them at its start.
            unsafe { ptr::write_bytes(ptr::with_exposed_provenance_mut::<u8>(at), 0, 16) };
        }
    }
}

/// Ends this process at once, without running anything that another copy of it also holds.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit never returns and touches no memory of ours.
    unsafe { libc::_exit(code) }
}

/// Becomes another program; returns only on failure.
pub(crate) fn exec(program: &CString, argv: &[CString], env: &[CString]) -> io::Error {
    let list = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
    };
    let (argv, env) = (list(argv), list(env));
    // SAFETY: both lists are null-terminated arrays of pointers to C strings that live until the call returns.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// A reaped child.
pub(crate) struct Reaped {
    pub(crate) pid: i32,
    pub(crate) ended: Ended,
    pub(crate) usage: Usage,
}

/// Reaps one child: `None` when none has ended (without blocking) or when there is none left (blocking).
pub(crate) fn reap(block: bool) -> Option<Reaped> {
    let mut status = 0;
    loop {
        // SAFETY: rusage is plain integers, for which zero is a value.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        let flags = if block { 0 } else { libc::WNOHANG };
        // SAFETY: both pointers are to live values of the right types.
        let pid = unsafe { libc::wait4(-1, &raw mut status, flags, &raw mut used) };
        if pid < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
            continue;
        }
        if pid <= 0 {
            return None;
        }
        let ended = if libc::WIFEXITED(status) {
            Ended::Exit(libc::WEXITSTATUS(status))
        } else {
            Ended::Signal(libc::WTERMSIG(status))
        };
        return Some(Reaped { pid, ended, usage: usage(&used) });
    }
}

/// Whether there is a child, running or ended.
pub(crate) fn has_children() -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: siginfo_t is plain data, for which zero is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live siginfo_t.
    let asked = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) };
    check(i64::from(asked)).err().and_then(|e| e.raw_os_error()) != Some(libc::ECHILD)
}

fn usage(used: &libc::rusage) -> Usage {
    let micros = |t: libc::timeval| {
        u64::try_from(t.tv_sec).unwrap_or_default() * 1_000_000 + u64::try_from(t.tv_usec).unwrap_or_default()
    };
    Usage {
        user_us: micros(used.ru_utime),
        system_us: micros(used.ru_stime),
        max_rss_kib: u64::try_from(used.ru_maxrss).unwrap_or_default(),
    }
}

/// A text of the kernel's. The standard library begins such a one, whose length nobody knows, with many small reads.
pub(crate) fn text(path: &str) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(16 << 10);
    std::fs::File::open(path)?.take(16 << 20).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// Sends a signal to a process, or with -1 to every process there is but this one.
pub(crate) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: kill takes plain integers.
    check(i64::from(unsafe { libc::kill(pid, signal) })).map(|_| ())
}

/// A descriptor that is readable when a child has ended. The signal is blocked for ordinary delivery.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // Whoever started this may ignore it, and then no child could be waited for.
    // SAFETY: the default action is no function of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    // SAFETY: sigset_t is plain data; sigemptyset and sigaddset initialise it before use.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        set
    };
    // SAFETY: the set is initialised; a null old set is allowed.
    check(i64::from(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) }))?;
    // SAFETY: the set is initialised.
    let fd = check(i64::from(unsafe {
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    }))?;
    // SAFETY: signalfd gave a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(RawFd::try_from(fd).unwrap_or(-1)) })
}

/// Takes what such a descriptor tells; which children ended, reaping says.
pub(crate) fn take_signals(signals: &OwnedFd) -> io::Result<()> {
    match rustix::io::read(signals, &mut [0_u8; 1024]) {
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Puts signal handling back to what a program expects at its start.
pub(crate) fn default_signals() {
    // SAFETY: plain integers and an initialised empty set; failures concern signals that cannot be changed.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut());
        for signal in 1..32 {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// Ignores SIGPIPE and the signals of a terminal: for helpers that end by their channel.
pub(crate) fn ignore_terminal_signals() {
    for signal in [libc::SIGPIPE, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTSTP, libc::SIGTTOU] {
        // SAFETY: ignoring a signal touches no memory of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Ignores a signal.
pub(crate) fn ignore(signal: i32) {
    // SAFETY: ignoring a signal touches no memory of ours.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Whether two threads have one table of descriptors. Who may not know is told an error.
pub(crate) fn share_descriptors(one: i32, other: i32) -> io::Result<bool> {
    const FILES: i32 = 2;
    // SAFETY: numbers only.
    Ok(check(unsafe { libc::syscall(libc::SYS_kcmp, one, other, FILES, 0u64, 0u64) })? == 0)
}

/// Gives the calling thread a table of descriptors of its own.
#[cfg(test)]
pub(crate) fn part_descriptors() -> io::Result<()> {
    // SAFETY: the new table holds what the old one does.
    check(i64::from(unsafe { libc::unshare(libc::CLONE_FILES) })).map(drop)
}

/// Closes every descriptor from `first` on.
pub(crate) fn close_from(first: u32) {
    close_between(first, u32::MAX);
}

/// Closes every descriptor from `first` to `last`.
pub(crate) fn close_between(first: u32, last: u32) {
    // SAFETY: the callers own no descriptor of these through a Rust value that they use again.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) };
    if result < 0 {
        // Older kernels: one by one, up to what a fresh process of ours can hold.
        for fd in first..=last.min(1023) {
            // SAFETY: as above.
            unsafe { libc::close(RawFd::try_from(fd).unwrap_or(-1)) };
        }
    }
}

/// Makes `fd` the descriptor of this number, kept across exec.
pub(crate) fn place_fd(fd: RawFd, number: RawFd) -> io::Result<()> {
    if fd == number {
        // SAFETY: clears the close-on-exec flag of a descriptor, nothing else.
        return check(i64::from(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) })).map(|_| ());
    }
    // SAFETY: the caller gives up whatever `number` was.
    check(i64::from(unsafe { libc::dup2(fd, number) })).map(|_| ())
}

/// Sets one limit, soft and hard, never above what is already the hard one.
pub(crate) fn set_limit(which: libc::__rlimit_resource_t, soft: u64, hard: u64) -> io::Result<()> {
    let now = limit_of(which)?;
    let hard = hard.min(now.rlim_max);
    let wanted = libc::rlimit { rlim_cur: soft.min(hard), rlim_max: hard };
    // SAFETY: the pointer is to a live rlimit.
    check(i64::from(unsafe { libc::setrlimit(which, &raw const wanted) })).map(|_| ())
}

/// Whether a file is kept from being opened for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// Who opens it waits, until the descriptor is closed.
    Held,
    /// Somebody has it open for writing.
    Busy,
    /// That cannot be had: of a file of somebody else's, or where an engine has no leases.
    None,
}

/// Keeps a file, opened for reading, from being opened for writing.
pub(crate) fn lease(file: &impl AsRawFd) -> Lease {
    // Who opens it breaks the lease, and we are told by a signal that would end us.
    ignore(libc::SIGIO);
    // SAFETY: this command takes a number and no memory.
    match check(i64::from(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) })) {
        Ok(_) => Lease::Held,
        Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Lease::Busy,
        Err(_) => Lease::None,
    }
}

/// Whether nobody waits for a lease that is held.
pub(crate) fn is_unbroken(file: &impl AsRawFd) -> bool {
    // SAFETY: this command takes nothing.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) == libc::F_RDLCK }
}

/// A limit as it is in force; none counts as the largest number.
pub(crate) fn soft_limit(which: libc::__rlimit_resource_t) -> u64 {
    limit_of(which).map_or(u64::MAX, |limit| limit.rlim_cur)
}

fn limit_of(which: libc::__rlimit_resource_t) -> io::Result<libc::rlimit> {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit.
    check(i64::from(unsafe { libc::getrlimit(which, &raw mut now) }))?;
    Ok(now)
}

/// Raises a limit to what is asked, as far as this process may; what came of it.
pub(crate) fn raise_limit(which: libc::__rlimit_resource_t, wanted: u64) -> io::Result<u64> {
    let now = limit_of(which)?;
    let raised = libc::rlimit { rlim_cur: wanted.max(now.rlim_cur), rlim_max: wanted.max(now.rlim_max) };
    // SAFETY: the pointer is to a live rlimit.
    if unsafe { libc::setrlimit(which, &raw const raised) } != 0 {
        set_limit(which, wanted.max(now.rlim_cur), now.rlim_max)?;
    }
    Ok(limit_of(which)?.rlim_cur)
}

/// Raises a soft limit as far as the hard one lets it, which stays as it was given.
pub(crate) fn raise_soft(which: libc::__rlimit_resource_t, wanted: u64) -> io::Result<()> {
    let now = limit_of(which)?;
    set_limit(which, wanted.max(now.rlim_cur), now.rlim_max)
}

/// `statx` with the flags that coreutils pass; the kind of call that an old gVisor refuses.
pub(crate) fn statx_as_coreutils() -> io::Result<()> {
    // SAFETY: statx is plain data, the path is a C string, the pointer is to a live value.
    let result = unsafe {
        let mut out: libc::statx = std::mem::zeroed();
        libc::syscall(
            libc::SYS_statx,
            libc::AT_FDCWD,
            c"/".as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT,
            libc::STATX_MODE,
            &raw mut out,
        )
    };
    check(result).map(|_| ())
}

/// `lgetxattr` of a name that does not exist; `ENODATA` or `ENOTSUP` is the sound answer.
pub(crate) fn link_xattr(path: &CString) -> io::Error {
    // SAFETY: both are C strings; a null buffer of length 0 asks for the size only.
    let n = unsafe { libc::lgetxattr(path.as_ptr(), c"security.selinux".as_ptr(), ptr::null_mut(), 0) };
    if n >= 0 { io::Error::from_raw_os_error(0) } else { io::Error::last_os_error() }
}

/// A copy of the mount tree at `path` (with what is mounted beneath it), attached nowhere yet.
pub(crate) fn detached_tree(path: &CStr) -> io::Result<OwnedFd> {
    open_tree(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW)
}

/// The same of a folder that is open: nobody can put another in its place.
pub(crate) fn detached_tree_of(folder: RawFd) -> io::Result<OwnedFd> {
    open_tree(folder, c"", libc::AT_EMPTY_PATH)
}

fn open_tree(at: RawFd, path: &CStr, how: libc::c_int) -> io::Result<OwnedFd> {
    const CLONE: libc::c_uint = 1;
    const RECURSIVE: libc::c_uint = 0x8000;
    let flags = CLONE | RECURSIVE | libc::O_CLOEXEC.cast_unsigned() | how.cast_unsigned();
    // SAFETY: the path is a C string.
    let fd = check(unsafe { libc::syscall(libc::SYS_open_tree, at, path.as_ptr(), flags) })?;
    // SAFETY: open_tree gave a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(RawFd::try_from(fd).unwrap_or(-1)) })
}

/// A name that nobody can foresee.
pub(crate) fn unforeseen() -> io::Result<String> {
    let mut number = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut number)?;
    Ok(format!("{:016x}", u64::from_ne_bytes(number)))
}

/// What a mount forbids from now on, for the whole tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forbid {
    /// Set-user-ID programs and devices.
    SuidDev,
    /// These and writing.
    SuidDevWrite,
    /// Set-user-ID programs, and changes of what a file is: what a device carries is not written to its file system.
    Changes,
}

/// Restricts a detached tree, all of it.
pub(crate) fn restrict_tree(tree: RawFd, forbid: Forbid) -> io::Result<()> {
    #[repr(C)]
    struct MountAttr {
        set: u64,
        clear: u64,
        propagation: u64,
        userns: u64,
    }
    const RDONLY: u64 = 1;
    const NOSUID: u64 = 2;
    const NODEV: u64 = 4;
    let set = match forbid {
        Forbid::SuidDev => NOSUID | NODEV,
        Forbid::SuidDevWrite => NOSUID | NODEV | RDONLY,
        Forbid::Changes => NOSUID | RDONLY,
    };
    let attr = MountAttr { set, clear: 0, propagation: libc::MS_PRIVATE, userns: 0 };
    const RECURSIVE: libc::c_uint = 0x8000;
    let flags = RECURSIVE | libc::AT_EMPTY_PATH.cast_unsigned();
    // SAFETY: the pointer is to a live mount_attr of the size given; the path is an empty C string.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree,
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    check(result).map(|_| ())
}

/// Attaches a detached tree at `path`.
pub(crate) fn attach_tree(tree: RawFd, path: &CString) -> io::Result<()> {
    const FROM_EMPTY_PATH: libc::c_uint = 4;
    // SAFETY: both paths are C strings.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree,
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            FROM_EMPTY_PATH,
        )
    };
    check(result).map(|_| ())
}

/// Leaves the cgroup namespace for one rooted at the present cgroup.
pub(crate) fn unshare_cgroup() -> io::Result<()> {
    // SAFETY: unshare takes plain integers; no other thread exists in the callers.
    check(i64::from(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) })).map(|_| ())
}

/// The kernel log, where an ordinary process may read it.
pub(crate) fn kernel_log() -> io::Result<String> {
    const READ_ALL: i32 = 3;
    let mut buffer = vec![0_u8; 4096];
    // SAFETY: the pointer and length are those of a live buffer.
    let n = check(unsafe { libc::syscall(libc::SYS_syslog, READ_ALL, buffer.as_mut_ptr(), 4096) })?;
    buffer.truncate(usize::try_from(n).unwrap_or(0));
    Ok(String::from_utf8_lossy(&buffer).into_owned())
}

/// Brings the loopback interface of this network namespace up: programs talk to themselves over it.
pub(crate) fn loopback_up() -> io::Result<()> {
    // SAFETY: socket takes plain integers.
    let fd =
        check(i64::from(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) }))?;
    // SAFETY: socket gave a new descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(RawFd::try_from(fd).unwrap_or(-1)) };
    // SAFETY: ifreq is plain data, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = libc::c_char::try_from(*from).unwrap_or(0);
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(0);
    let raw = std::os::fd::AsRawFd::as_raw_fd(&socket);
    // SAFETY: the pointer is to a live ifreq whose name and flags are set.
    check(i64::from(unsafe { libc::ioctl(raw, libc::SIOCSIFFLAGS, &raw const request) })).map(|_| ())
}

/// A connection from a machine to its host, which may take as long as this to answer. The kernel's own patience is
/// two seconds, and a host under load would take the connection just as it is given up: it takes no second one.
pub(crate) fn connect_to_host(port: u32, patience: std::time::Duration) -> io::Result<OwnedFd> {
    const CONNECT_TIMEOUT: libc::c_int = 6;
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes plain integers.
    let fd = check(i64::from(unsafe { libc::socket(libc::AF_VSOCK, kind, 0) }))?;
    // SAFETY: socket gave a new descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(RawFd::try_from(fd).unwrap_or(-1)) };
    // SAFETY: sockaddr_vm is plain integers, for which zero is a value.
    let mut host: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
    let wait =
        libc::timeval { tv_sec: patience.as_secs().try_into().unwrap_or(libc::time_t::MAX), tv_usec: 0 };
    let size = libc::socklen_t::try_from(size_of::<libc::timeval>()).unwrap_or_default();
    let raw = std::os::fd::AsRawFd::as_raw_fd(&socket);
    // SAFETY: the pointer is to a live timeval of the length given.
    let set =
        unsafe { libc::setsockopt(raw, libc::AF_VSOCK, CONNECT_TIMEOUT, (&raw const wait).cast(), size) };
    check(i64::from(set))?;
    host.svm_family = libc::sa_family_t::try_from(libc::AF_VSOCK).unwrap_or_default();
    (host.svm_port, host.svm_cid) = (port, libc::VMADDR_CID_HOST);
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_vm>()).unwrap_or_default();
    // SAFETY: the pointer is to a live sockaddr_vm of the length given.
    check(i64::from(unsafe { libc::connect(raw, (&raw const host).cast(), length) }))?;
    Ok(socket)
}

/// A descriptor that was inherited under a fixed number; closed when dropped.
pub(crate) fn inherited(number: RawFd) -> OwnedFd {
    // SAFETY: the callers take each number once, before anything else in this process owns it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// The processor's own counter; 0 where there is none of that kind.
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a register that every processor of this kind has.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Does something with the files that this id may touch, as user and as group, and no others. Only for root with one
/// thread.
pub(crate) fn with_file_ids<T>(id: u32, doing: impl FnOnce() -> T) -> io::Result<T> {
    // SAFETY: both take plain integers, and answer with what was before.
    let set = |(gid, uid): (u32, u32)| unsafe { (libc::setfsgid(gid), libc::setfsuid(uid)) };
    let own = (rustix::process::getegid().as_raw(), rustix::process::geteuid().as_raw());
    // Another id, though for files only, costs a process that others of its own may look at it.
    let dumpable = rustix::process::dumpable_behavior()?;
    set((id, id));
    // What is no id changes nothing.
    let (gid, uid) = set((u32::MAX, u32::MAX));
    let done = [gid, uid].iter().all(|now| now.cast_unsigned() == id).then(doing);
    set(own);
    rustix::process::set_dumpable_behavior(dumpable)?;
    done.ok_or_else(|| io::ErrorKind::PermissionDenied.into())
}

/// Leaves the session for one of its own. Not by rustix: an old gVisor answers 0, which is no session to it.
pub(crate) fn new_session() -> io::Result<()> {
    // SAFETY: setsid takes nothing.
    check(i64::from(unsafe { libc::setsid() })).map(|_| ())
}

/// Whether sockets of the families that programs talk to others with are all refused.
pub(crate) fn no_sockets() -> bool {
    [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].into_iter().all(|family| {
        // SAFETY: socket takes plain integers.
        let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd >= 0 {
            // SAFETY: socket gave a new descriptor that nobody else owns.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        fd < 0
    })
}

/// The version of Landlock that this kernel offers; none where it offers none.
pub(crate) fn landlock_version() -> io::Result<i64> {
    const VERSION: u32 = 1;
    // SAFETY: a null attribute of size 0 with this flag asks for the version only.
    check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0_usize, VERSION) })
}

/// Restricts this process, and all that it starts, by these rules of Landlock. No new privileges must be given up before.
pub(crate) fn restrict_by(rules: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: landlock_restrict_self takes plain integers; the descriptor is borrowed for the call.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0_u32) }).map(|_| ())
}

/// Closes everything but these two, and leaves nothing at the three streams; says whether it could.
pub(crate) fn keep_only(kept: [RawFd; 2]) -> bool {
    let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") else { return false };
    let null = std::os::fd::IntoRawFd::into_raw_fd(null);
    if (0..3).any(|number| place_fd(null, number).is_err()) {
        return false;
    }
    let mut first = 3;
    let mut kept = kept.map(|fd| fd.unsigned_abs());
    kept.sort_unstable();
    for fd in kept {
        if first < fd {
            close_between(first, fd - 1);
        }
        first = first.max(fd + 1);
    }
    close_from(first);
    true
}

/// A call that the kernel asks about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    pub(crate) id: u64,
    /// The asking task, by its number here.
    pub(crate) task: u32,
    pub(crate) call: libc::c_long,
    pub(crate) args: [u64; 6],
}

const NOTIF_RECV: libc::c_ulong = 0xc050_2100;
const NOTIF_SEND: libc::c_ulong = 0xc018_2101;
const NOTIF_ID_VALID: libc::c_ulong = 0x4008_2102;

/// Installs a filter whose questions come to the descriptor returned.
pub(crate) fn listen_to_calls(program: &[seccompiler::sock_filter]) -> io::Result<OwnedFd> {
    let length = libc::c_ushort::try_from(program.len()).map_err(io::Error::other)?;
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: the program is a live array of the length given, of instructions as the kernel reads them, and is
    // not written; the caller has no other thread and has given up new privileges.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const filter,
        )
    })?;
    // SAFETY: seccomp gave a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(RawFd::try_from(fd).unwrap_or(-1)) })
}

/// The next question. Asked only when there is one, or it would wait.
pub(crate) fn next_notice(listener: &OwnedFd) -> io::Result<Notice> {
    // SAFETY: seccomp_notif is plain integers; the kernel wants them zero.
    let mut notice: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    let raw = std::os::fd::AsRawFd::as_raw_fd(listener);
    // SAFETY: the pointer is to a live seccomp_notif.
    check(i64::from(unsafe { libc::ioctl(raw, NOTIF_RECV as _, &raw mut notice) }))?;
    Ok(Notice {
        id: notice.id,
        task: notice.pid,
        call: libc::c_long::from(notice.data.nr),
        args: notice.data.args,
    })
}

/// Whether the asker still waits.
pub(crate) fn notice_is_valid(listener: &OwnedFd, id: u64) -> io::Result<()> {
    let raw = std::os::fd::AsRawFd::as_raw_fd(listener);
    // SAFETY: the pointer is to a live u64.
    check(i64::from(unsafe { libc::ioctl(raw, NOTIF_ID_VALID as _, &raw const id) })).map(|_| ())
}

/// Answers with success (0) or an error number. The call itself is never carried out.
pub(crate) fn answer_notice(listener: &OwnedFd, id: u64, error: i32) -> io::Result<()> {
    // SAFETY: seccomp_notif_resp is plain integers.
    let mut answer: libc::seccomp_notif_resp = unsafe { std::mem::zeroed() };
    answer.id = id;
    answer.error = -error;
    let raw = std::os::fd::AsRawFd::as_raw_fd(listener);
    // SAFETY: the pointer is to a live seccomp_notif_resp.
    check(i64::from(unsafe { libc::ioctl(raw, NOTIF_SEND as _, &raw mut answer) })).map(|_| ())
}

/// What is to be set of a file.
#[derive(Debug)]
pub(crate) enum Setting<'a> {
    Mode(u32),
    /// `u32::MAX` leaves one as it is.
    Owner(u32, u32),
    /// Seconds and nanoseconds of the last access and the last change.
    Times([i64; 4]),
    Attribute {
        name: &'a CStr,
        value: &'a [u8],
        flags: u32,
    },
    NoAttribute(&'a CStr),
}

/// Sets it of what the path means, its last link followed, with this as the sixth argument of the call.
pub(crate) fn set_marked(path: &CStr, setting: &Setting<'_>, mark: u64) -> io::Result<()> {
    let number = |n: u32| u64::from(n);
    let at = |p: *const u8| u64::try_from(p.expose_provenance()).unwrap_or(0);
    let (here, path) = (i64::from(libc::AT_FDCWD).cast_unsigned(), at(path.as_ptr().cast()));
    let (call, args) = match setting {
        Setting::Mode(mode) => (libc::SYS_fchmodat, [here, path, number(*mode), 0, 0]),
        Setting::Owner(uid, gid) => (libc::SYS_fchownat, [here, path, number(*uid), number(*gid), 0]),
        Setting::Times(times) => (libc::SYS_utimensat, [here, path, at(times.as_ptr().cast()), 0, 0]),
        Setting::Attribute { name, value, flags } => {
            let length = u64::try_from(value.len()).unwrap_or(0);
            (libc::SYS_setxattr, [path, at(name.as_ptr().cast()), at(value.as_ptr()), length, number(*flags)])
        }
        Setting::NoAttribute(name) => (libc::SYS_removexattr, [path, at(name.as_ptr().cast()), 0, 0, 0]),
    };
    let [a, b, c, d, e] = args;
    // SAFETY: the pointers are to live C strings, to a value of the length given, and to four words, which is what two
    // times are; the kernel only reads them.
    check(unsafe { libc::syscall(call, a, b, c, d, e, mark) }).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of `stat` from the third on.
    fn stat(name: &str, threads: usize, [args, args_end, env, end]: [usize; 4]) -> String {
        let mut fields = vec!["S".to_owned()];
        fields.extend((4..=52).map(|n| match n {
            20 => threads.to_string(),
            48 => args.to_string(),
            49 => args_end.to_string(),
            50 => env.to_string(),
            51 => end.to_string(),
            _ => "7".to_owned(),
        }));
        format!("1 ({name}) {}\n", fields.join(" "))
    }

    #[test]
    fn beginnings_are_found_whatever_the_name_of_the_process() {
        for name in ["a", "a) b (c", ") S 1 1"] {
            let found = Beginnings::of(&stat(name, 1, [1000, 1010, 1010, 1500])).unwrap();
            assert_eq!((found.texts, found.end), (1000, 1500), "{name}");
        }
    }

    #[test]
    fn beginnings_that_are_not_told_or_not_sound_are_not_found() {
        for bounds in
            [[0, 0, 0, 0], [1000, 900, 900, 1500], [1000, 1010, 1020, 1500], [1000, 1010, 1010, 1000]]
        {
            assert!(Beginnings::of(&stat("a", 1, bounds)).is_none(), "{bounds:?}");
        }
        assert!(Beginnings::of(&stat("a", 2, [1000, 1010, 1010, 1500])).is_none());
        assert!(Beginnings::of("1 (a) S 1").is_none());
        assert!(Beginnings::of("").is_none());
    }
}
