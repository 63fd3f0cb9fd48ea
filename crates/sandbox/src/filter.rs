//! seccomp: which system calls exist for a guest of the namespace tier.
//!
//! An allow-list: what is not in the table is answered with `EPERM`, as is every call through the 32-bit and x32
//! entries. A few calls are answered with `ENOSYS` instead, because programs then take an older way that the
//! filter can judge (`clone3` hides its flags behind a pointer) or fall back cleanly (`io_uring`).

mod asked;
mod compact;
pub(crate) mod engine;
mod sockets;

use std::collections::BTreeMap;

use libc::{c_int, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

pub(crate) use asked::{MARK, attributes, without_mark};

use crate::launch::Held;

/// System calls that any argument may be given to, by what they are for.
const ALLOWED: &[(&str, &[c_long])] = &[
    ("files and folders", FILES),
    ("memory", MEMORY),
    ("processes and threads of its own", PROCESSES),
    ("signals", SIGNALS),
    ("waiting and timers", WAITING),
    ("sockets, once their family was judged", SOCKETS),
    ("System V and POSIX IPC, private to the IPC namespace", IPC),
    ("identity, read or lowered; no capability is left to raise it", IDENTITY),
    ("what the system is", SYSTEM),
];

const FILES: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_pipe2,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_readlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_umask,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_utimensat,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_copy_file_range,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_sync_file_range,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_readahead,
    libc::SYS_mknodat,
    libc::SYS_close_range,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pipe,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getdents,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
];

const MEMORY: &[c_long] = &[
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
    libc::SYS_membarrier,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    libc::SYS_mbind,
    libc::SYS_pkey_mprotect,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
];

const PROCESSES: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getpgid,
    libc::SYS_setpgid,
    libc::SYS_getsid,
    libc::SYS_setsid,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_futex,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_sched_getattr,
    libc::SYS_getpriority,
    libc::SYS_ioprio_get,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_prctl,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_seccomp,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getpgrp,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
];

const SIGNALS: &[c_long] = &[
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sigaltstack,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_signalfd4,
    libc::SYS_restart_syscall,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pause,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_alarm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_signalfd,
];

const WAITING: &[c_long] = &[
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_create,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_eventfd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

const SOCKETS: &[c_long] = &[
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_getsockopt,
    libc::SYS_shutdown,
];

const IPC: &[c_long] = &[
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_semtimedop,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr,
];

const IDENTITY: &[c_long] = &[
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_capget,
    libc::SYS_capset,
];

const SYSTEM: &[c_long] = &[libc::SYS_uname, libc::SYS_sysinfo, libc::SYS_getrandom, libc::SYS_getcpu];

/// Calls that a process may aim at any other of its user, in `confined` at those of other sandboxes and of the host,
/// elsewhere at init: only at itself. Of affinity only where a cgroup counts processor time: elsewhere it is the bound.
const ONLY_SELF: &[c_long] = &[
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
];

/// Memory that no process maps and no per-process bound counts, the kernel's own for semaphores and messages
/// included: allowed only where a cgroup counts it.
const UNCOUNTED_MEMORY: &[c_long] = &[
    libc::SYS_memfd_create,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_msgget,
];

/// Answered with `ENOSYS`, for the sake of a clean older way.
const ABSENT: &[c_long] =
    &[libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Every namespace that a clone could ask for.
const NEW_NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64
    | 0x80;

const SOCK_TYPE_MASK: u64 = 0xf;

const CLOSE_RANGE_UNSHARE: u64 = 2;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Installs the filter in this process, for it and all it starts.
pub(crate) fn apply(held: Held) -> Result<(), seccompiler::Error> {
    // The kernel asks every filter and takes the sternest answer; of two errors, the one installed last.
    apply_filter(&allow_list(held)?)?;
    apply_filter(&answered(held)?)?;
    apply_filter(&absent()?)
}

/// What "succeeds" and does nothing: to write out everything that the whole host has in memory, others' too, for which a
/// program has `fsync`; room of sockets, where it is counted for each, see there; and the limit of core files.
fn answered(held: Held) -> Result<BpfProgram, seccompiler::Error> {
    let mut rules = core_limit()?;
    rules.extend([libc::SYS_sync, libc::SYS_syncfs].map(|nr| (nr, Vec::new())));
    if !held.memory {
        rules.extend(sockets::room()?);
    }
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, errno(0), arch())?.try_into()?)
}

/// Setting the limit of core files "succeeds" and does nothing: see `limits` of the way in, whose 1 must stay. A
/// program that turns core files off must not fail for it; they are off.
fn core_limit() -> Result<Rules, seccompiler::Error> {
    let core = u64::from(libc::RLIMIT_CORE);
    let given = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    Ok(Rules::from([
        (libc::SYS_setrlimit, vec![only(0, SeccompCmpOp::Eq, core)?]),
        (libc::SYS_prlimit64, vec![SeccompRule::new(vec![condition(1, SeccompCmpOp::Eq, core)?, given])?]),
    ]))
}

/// Answers `lgetxattr` and `llistxattr` with `ENOTSUP`: closes a fault of an engine that programs trip over.
pub(crate) fn without_link_xattrs() -> Result<(), seccompiler::Error> {
    apply_filter(&answer(&[libc::SYS_lgetxattr, libc::SYS_llistxattr], libc::ENOTSUP)?)
}

/// What the process of a module never needs, however its engine goes wrong: to start something, to reach somebody,
/// to change limits or what a file is but for its bytes and names.
#[cfg(feature = "wasm")]
const NOT_FOR_MODULES: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_clone,
    libc::SYS_clone3,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_ioctl,
    libc::SYS_setrlimit,
    libc::SYS_prlimit64,
    libc::SYS_setsid,
    libc::SYS_setpgid,
    libc::SYS_prctl,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_setpriority,
    libc::SYS_inotify_init1,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
    libc::SYS_mknodat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_memfd_create,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_semget,
    libc::SYS_msgget,
    libc::SYS_mq_open,
];

/// Closes these for this process, with the thread that it has.
#[cfg(feature = "wasm")]
pub(crate) fn apply_module() -> Result<(), seccompiler::Error> {
    let all: Vec<c_long> =
        NOT_FOR_MODULES.iter().chain(SOCKETS).chain(&[libc::SYS_setsockopt]).copied().collect();
    seccompiler::apply_filter_all_threads(&answer(&all, libc::EPERM)?)
}

fn errno(code: c_int) -> SeccompAction {
    SeccompAction::Errno(code.unsigned_abs())
}

fn arch() -> TargetArch {
    if cfg!(target_arch = "aarch64") { TargetArch::aarch64 } else { TargetArch::x86_64 }
}

fn absent() -> Result<BpfProgram, seccompiler::Error> {
    answer(ABSENT, libc::ENOSYS)
}

fn answer(calls: &[c_long], code: c_int) -> Result<BpfProgram, seccompiler::Error> {
    let rules: Rules = calls.iter().map(|nr| (*nr, Vec::new())).collect();
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, errno(code), arch())?.try_into()?)
}

/// Calls of the confined tier that take any argument in the namespace tier and none here: they reach others
/// through what is shared (IPC names, and paths that Landlock does not judge: owners, attributes, watches; for
/// modes, times and what is open already see [`asked`]).
const NOT_SHARED: &[c_long] = &[
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_get_robust_list,
    libc::SYS_inotify_add_watch,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

/// The same filter for a sandbox that shares names with the host.
pub(crate) fn apply_confined(held: Held) -> Result<(), seccompiler::Error> {
    apply_filter(&confined_list(held)?)?;
    apply_filter(&answered(held)?)?;
    apply_filter(&absent()?)
}

fn confined_list(held: Held) -> Result<BpfProgram, seccompiler::Error> {
    compact::compile(confined_rules(held)?, errno(libc::EPERM), SeccompAction::Allow)
}

fn confined_rules(held: Held) -> Result<Rules, seccompiler::Error> {
    let mut rules = table(held)?;
    for nr in NOT_SHARED.iter().chain(IPC).chain(UNCOUNTED_MEMORY) {
        rules.remove(nr);
    }
    if held.memory {
        rules.insert(libc::SYS_memfd_create, Vec::new());
    }
    rules.extend(asked::by_init_only()?);
    rules.insert(libc::SYS_ioctl, asked::ioctls(&REFUSED_IOCTLS)?);
    rules.insert(libc::SYS_fcntl, asked::fcntls()?);
    // Reads no limits of others either.
    rules.insert(libc::SYS_prlimit64, vec![only(0, SeccompCmpOp::Eq, 0)?]);
    rules.remove(&libc::SYS_socket);
    // A pair of datagram sockets could still send to a path.
    let pairs = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].into_iter().map(|kind| {
        SeccompRule::new(vec![
            condition(0, SeccompCmpOp::Eq, u64::from(libc::AF_UNIX.unsigned_abs()))?,
            condition(1, SeccompCmpOp::MaskedEq(SOCK_TYPE_MASK), u64::from(kind.unsigned_abs()))?,
        ])
        .map_err(seccompiler::Error::from)
    });
    rules.insert(libc::SYS_socketpair, pairs.collect::<Result<_, _>>()?);
    Ok(rules)
}

fn allow_list(held: Held) -> Result<BpfProgram, seccompiler::Error> {
    compact::compile(table(held)?, errno(libc::EPERM), SeccompAction::Allow)
}

fn table(held: Held) -> Result<Rules, seccompiler::Error> {
    let mut rules: Rules = ALLOWED.iter().flat_map(|(_, calls)| *calls).map(|nr| (*nr, Vec::new())).collect();
    for nr in ONLY_SELF {
        rules.insert(*nr, vec![only(0, SeccompCmpOp::Eq, 0)?]);
    }
    if !held.cores {
        rules.remove(&libc::SYS_sched_setaffinity);
    }
    for (nr, which) in [(libc::SYS_setpriority, libc::PRIO_PROCESS), (libc::SYS_ioprio_set, 1)] {
        let conditions =
            vec![condition(0, SeccompCmpOp::Eq, u64::from(which))?, condition(1, SeccompCmpOp::Eq, 0)?];
        rules.insert(nr, vec![SeccompRule::new(conditions)?]);
    }
    if held.memory {
        rules.extend(UNCOUNTED_MEMORY.iter().map(|nr| (*nr, Vec::new())));
    }
    // Answered by the second filter; refused here they would read EPERM on some kernels.
    rules.extend(ABSENT.iter().map(|nr| (*nr, Vec::new())));
    rules.insert(libc::SYS_clone, clones(held)?);
    if !held.memory {
        // By this a thread gets a table of its own, too.
        rules.insert(libc::SYS_close_range, vec![only(2, SeccompCmpOp::MaskedEq(CLOSE_RANGE_UNSHARE), 0)?]);
    }
    rules.insert(libc::SYS_socket, sockets::families()?);
    rules.insert(libc::SYS_setsockopt, sockets::options()?);
    rules.insert(
        libc::SYS_socketpair,
        vec![only(0, SeccompCmpOp::Eq, u64::from(libc::AF_UNIX.unsigned_abs()))?],
    );
    rules.insert(libc::SYS_ioctl, ioctls()?);
    // The kernel lets a user set the limits of all its processes, init among them: only its own here.
    let nothing = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    let reads = SeccompRule::new(vec![nothing])?;
    rules.insert(libc::SYS_prlimit64, vec![only(0, SeccompCmpOp::Eq, 0)?, reads]);
    // The default persona and the two that only change address randomisation.
    rules.insert(
        libc::SYS_personality,
        [0, 0x0004_0000, 0xffff_ffff]
            .into_iter()
            .map(|p| only(0, SeccompCmpOp::Eq, p))
            .collect::<Result<_, _>>()?,
    );
    Ok(rules)
}

/// No namespace; and where init counts descriptors, no thread has a table of them that its process has not.
fn clones(held: Held) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    if held.memory {
        return Ok(vec![only(0, SeccompCmpOp::MaskedEq(NEW_NAMESPACES), 0)?]);
    }
    let (thread, table) = (libc::CLONE_THREAD as u64, libc::CLONE_FILES as u64);
    Ok(vec![
        only(0, SeccompCmpOp::MaskedEq(NEW_NAMESPACES | thread), 0)?,
        only(0, SeccompCmpOp::MaskedEq(NEW_NAMESPACES | thread | table), thread | table)?,
    ])
}

const TIOCLINUX: u64 = 0x541c;
const EXT4_IOC_MOVE_EXT: u64 = 0xc028_660f;

/// Those that put words into another terminal's mouth, or load a line discipline, and the one by which a file of ext4
/// gets the content of another without a stamp of it: by that, whoever looks for changes would miss one.
const REFUSED_IOCTLS: [u64; 5] =
    [libc::TIOCSTI, TIOCLINUX, libc::TIOCCONS, libc::TIOCSETD, EXT4_IOC_MOVE_EXT];

fn ioctls() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let not = |nr: u64| condition(1, SeccompCmpOp::Ne, nr);
    Ok(vec![SeccompRule::new(REFUSED_IOCTLS.into_iter().map(not).collect::<Result<_, _>>()?)?])
}

/// The ioctls of another's terminal.
fn terminals() -> impl Iterator<Item = u64> {
    REFUSED_IOCTLS.into_iter().filter(|nr| *nr != EXT4_IOC_MOVE_EXT)
}

fn condition(arg: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition, seccompiler::Error> {
    // Families, flags and ioctl numbers are 32-bit for the kernel: what a caller puts above must not matter.
    Ok(SeccompCondition::new(arg, SeccompCmpArgLen::Dword, op, value)?)
}

fn only(arg: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::Error> {
    Ok(SeccompRule::new(vec![condition(arg, op, value)?])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_stands_in_the_table_once() {
        let mut seen = std::collections::BTreeSet::new();
        for (group, calls) in ALLOWED {
            for nr in *calls {
                assert!(seen.insert(*nr), "call {nr} twice, the second time in `{group}`");
            }
        }
    }

    #[test]
    fn the_calls_that_kernels_were_broken_by_are_not_in_the_table() {
        let never = [
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_request_key,
            libc::SYS_open_by_handle_at,
            libc::SYS_name_to_handle_at,
            libc::SYS_kcmp,
            libc::SYS_process_madvise,
            libc::SYS_process_mrelease,
            libc::SYS_migrate_pages,
            libc::SYS_move_pages,
            libc::SYS_move_mount,
            libc::SYS_open_tree,
            libc::SYS_fsopen,
            libc::SYS_mount_setattr,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_kexec_load,
            libc::SYS_reboot,
            libc::SYS_swapon,
            libc::SYS_settimeofday,
            libc::SYS_clock_settime,
            libc::SYS_adjtimex,
            libc::SYS_chroot,
            libc::SYS_syslog,
            libc::SYS_vmsplice,
            libc::SYS_pidfd_getfd,
            libc::SYS_fanotify_init,
            libc::SYS_quotactl,
            libc::SYS_acct,
            libc::SYS_sethostname,
        ];
        for nr in never {
            assert!(!ALLOWED.iter().any(|(_, calls)| calls.contains(&nr)), "call {nr}");
        }
    }

    /// What the kernel answers for these programs together: it asks all, and takes the sternest; of two errors the one of
    /// the program installed last.
    #[cfg(target_arch = "x86_64")]
    fn together(programs: &[BpfProgram], nr: u32, args: [u64; 6]) -> u32 {
        let allow = u32::from(SeccompAction::Allow);
        let answers = programs.iter().rev().map(|program| compact::ask(program, 0xc000_003e, nr, args));
        let sternest = answers.min_by_key(|answer| (*answer & 0xffff_0000).cast_signed());
        sternest.unwrap_or(allow)
    }

    /// Socket families, calls and entries that kernels were broken by (bug class D-17), in the words of the probe in
    /// `tests/it/walls.rs`, asked of the programs that are loaded: whatever the kernel itself would say, it is not asked.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn thirty_two_ways_into_the_kernel_are_refused_by_the_filters_themselves() {
        const X32: u32 = 0x4000_0000;
        let (none, allow) = ([0; 6], u32::from(SeccompAction::Allow));
        let first = |a: u64| [a, 0, 0, 0, 0, 0];
        let socket = |family: u64, kind: u64, protocol: u64| [family, kind, protocol, 0, 0, 0];
        let nr = |call: c_long| u32::try_from(call).unwrap();
        let refused: Vec<(u32, [u64; 6])> = [
            (libc::SYS_unshare, first(0x1000_0000)),
            (libc::SYS_unshare, first(0x4000_0000)),
            (libc::SYS_mount, none),
            (libc::SYS_umount2, none),
            (libc::SYS_pivot_root, none),
            (libc::SYS_chroot, none),
            (libc::SYS_ptrace, none),
            (libc::SYS_process_vm_readv, first(1)),
            (libc::SYS_bpf, none),
            (libc::SYS_perf_event_open, none),
            (libc::SYS_userfaultfd, none),
            (libc::SYS_keyctl, none),
            (libc::SYS_open_by_handle_at, none),
            (libc::SYS_setns, none),
            (libc::SYS_init_module, none),
            (libc::SYS_kexec_load, none),
            (libc::SYS_clock_settime, none),
            (libc::SYS_sethostname, none),
            (libc::SYS_swapon, none),
            (libc::SYS_reboot, none),
            (libc::SYS_quotactl, none),
            (libc::SYS_move_mount, none),
            (libc::SYS_clone, first(0x1000_0011)),
            (libc::SYS_socket, socket(38, 5, 0)),
            (libc::SYS_socket, socket(40, 1, 0)),
            (libc::SYS_socket, socket(17, 3, 0)),
            (libc::SYS_socket, socket(2, 3, 1)),
            (libc::SYS_socket, socket(16, 3, 15)),
            (libc::SYS_socket, socket(31, 3, 0)),
        ]
        .into_iter()
        .map(|(call, args)| (nr(call), args))
        .chain([(X32 | nr(libc::SYS_getpid), none)])
        .collect();
        let absent_to_it = [libc::SYS_io_uring_setup, libc::SYS_clone3];
        assert_eq!(refused.len() + absent_to_it.len(), 32);
        for has in [true, false] {
            let held = Held { memory: has, processes: has, cores: has };
            let namespace = [allow_list(held).unwrap(), answered(held).unwrap(), absent().unwrap()];
            let confined = [confined_list(held).unwrap(), answered(held).unwrap(), absent().unwrap()];
            for programs in [&namespace[..], &confined[..]] {
                for (call, args) in &refused {
                    let answer = together(programs, *call, *args);
                    assert_eq!(answer, u32::from(errno(libc::EPERM)), "call {call:#x} {args:x?}");
                }
                for call in absent_to_it {
                    assert_eq!(
                        together(programs, nr(call), none),
                        u32::from(errno(libc::ENOSYS)),
                        "call {call}"
                    );
                }
                // The control: not everything is refused, nor every number in another entry's place.
                for (call, args) in [(libc::SYS_getpid, none), (libc::SYS_clone, first(0x11))] {
                    assert_eq!(together(programs, nr(call), args), allow, "call {call}");
                }
            }
            // What is judged by its arguments is let with others.
            for args in [socket(1, 1, 0), socket(2, 1, 6), socket(16, 3, 0)] {
                assert_eq!(together(&namespace, nr(libc::SYS_socket), args), allow, "{args:?}");
            }
        }
    }

    /// The older entry of a call does the same.
    #[cfg(all(feature = "wasm", target_arch = "x86_64"))]
    #[test]
    fn what_a_module_is_denied_it_is_denied_by_every_name() {
        for (newer, older) in [
            (libc::SYS_mknodat, &[libc::SYS_mknod][..]),
            (libc::SYS_fchmodat, &[libc::SYS_chmod, libc::SYS_fchmod, libc::SYS_fchmodat2]),
            (libc::SYS_fchownat, &[libc::SYS_chown, libc::SYS_lchown, libc::SYS_fchown]),
            (libc::SYS_inotify_init1, &[libc::SYS_inotify_init]),
            (libc::SYS_clone, &[libc::SYS_fork, libc::SYS_vfork, libc::SYS_clone3]),
            (libc::SYS_setxattr, &[libc::SYS_removexattr, libc::SYS_lremovexattr, libc::SYS_fremovexattr]),
        ] {
            assert!(NOT_FOR_MODULES.contains(&newer), "call {newer}");
            for nr in older {
                assert!(NOT_FOR_MODULES.contains(nr), "call {nr}, as {newer}");
            }
        }
    }

    /// Whoever has a number in one of these could slow down or move a process that is not its own.
    #[test]
    fn what_could_be_aimed_at_another_process_is_judged_by_its_arguments() {
        let aimed = [libc::SYS_setpriority, libc::SYS_ioprio_set, libc::SYS_prlimit64];
        for cores in [true, false] {
            let held = Held { cores, ..Held::default() };
            for rules in [table(held).unwrap(), confined_rules(held).unwrap()] {
                for nr in ONLY_SELF.iter().chain(&aimed) {
                    match rules.get(nr) {
                        None => assert!(*nr == libc::SYS_sched_setaffinity && !cores, "call {nr}"),
                        Some(judged) => assert!(!judged.is_empty(), "call {nr}"),
                    }
                }
            }
        }
    }

    #[test]
    fn both_variants_compile_to_programs_the_kernel_takes() {
        for has in [true, false] {
            let program = allow_list(Held { memory: has, processes: has, cores: has }).unwrap();
            assert!(program.len() < 4096, "{} instructions", program.len());
        }
        assert!(!absent().unwrap().is_empty());
    }
}
