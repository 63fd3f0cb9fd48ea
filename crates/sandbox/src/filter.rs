//! seccomp: which system calls exist for a guest of the namespace tier.
//!
//! An allow-list: what is not in the table is answered with `EPERM`, as is every call through the 32-bit and x32
//! entries. A few calls are answered with `ENOSYS` instead, because programs then take an older way that the
//! filter can judge (`clone3` hides its flags behind a pointer) or fall back cleanly (`io_uring`).

mod compact;

use std::collections::BTreeMap;

use libc::{c_int, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

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
    libc::SYS_sched_setparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_sched_getattr,
    libc::SYS_sched_setattr,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_ioprio_get,
    libc::SYS_ioprio_set,
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
    libc::SYS_setsockopt,
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

// `sched_setaffinity` is allowed only where a cgroup counts processor time: elsewhere affinity itself is the bound.

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

/// Socket families: within the sandbox and its loopback.
const FAMILIES: [c_int; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
/// Protocols of them: the default one, TCP and UDP. Others are seldom used parts of the kernel, loaded on demand.
const PROTOCOLS: [c_int; 3] = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP];

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

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Installs the filter in this process, for it and all it starts.
pub(crate) fn apply(held: Held) -> Result<(), seccompiler::Error> {
    // The kernel asks every filter and takes the sternest answer; of two errors, the one installed last.
    apply_filter(&allow_list(held)?)?;
    apply_filter(&core_limit()?)?;
    apply_filter(&absent()?)
}

/// Setting the limit of core files "succeeds" and does nothing: see `limits` of the way in, whose 1 must stay. A
/// program that turns core files off must not fail for it; they are off.
fn core_limit() -> Result<BpfProgram, seccompiler::Error> {
    let core = u64::from(libc::RLIMIT_CORE);
    let given = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    let rules = Rules::from([
        (libc::SYS_setrlimit, vec![only(0, SeccompCmpOp::Eq, core)?]),
        (libc::SYS_prlimit64, vec![SeccompRule::new(vec![condition(1, SeccompCmpOp::Eq, core)?, given])?]),
    ]);
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, errno(0), arch())?.try_into()?)
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
    let all: Vec<c_long> = NOT_FOR_MODULES.iter().chain(SOCKETS).copied().collect();
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
/// modes and times see [`attributes`]).
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

/// The calls about which init is asked in the confined tier: modes and times by path. Times of an open file come
/// without one.
pub(crate) fn attributes() -> Result<BpfProgram, seccompiler::Error> {
    let path = SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    let mut rules: Rules = [libc::SYS_fchmodat, libc::SYS_fchmodat2].map(|nr| (nr, Vec::new())).into();
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_chmod, Vec::new());
    rules.insert(libc::SYS_utimensat, vec![SeccompRule::new(vec![path])?]);
    let mut program: BpfProgram =
        SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Trap, arch())?.try_into()?;
    // The library has no word for a question: what would be a trap becomes one.
    const RETURN: u16 = 0x06;
    for instruction in &mut program {
        if instruction.code == RETURN && instruction.k == libc::SECCOMP_RET_TRAP {
            instruction.k = libc::SECCOMP_RET_USER_NOTIF;
        }
    }
    Ok(program)
}

/// Calls that a process of the same user may aim at another: only at itself.
const ONLY_SELF: &[c_long] =
    &[libc::SYS_prlimit64, libc::SYS_sched_setparam, libc::SYS_sched_setscheduler, libc::SYS_sched_setattr];

/// The same filter for a sandbox that shares names with the host.
pub(crate) fn apply_confined(held: Held) -> Result<(), seccompiler::Error> {
    apply_filter(&confined_list(held)?)?;
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
    for nr in ONLY_SELF {
        rules.insert(*nr, vec![only(0, SeccompCmpOp::Eq, 0)?]);
    }
    for (nr, which) in [(libc::SYS_setpriority, libc::PRIO_PROCESS), (libc::SYS_ioprio_set, 1)] {
        let conditions =
            vec![condition(0, SeccompCmpOp::Eq, u64::from(which))?, condition(1, SeccompCmpOp::Eq, 0)?];
        rules.insert(nr, vec![SeccompRule::new(conditions)?]);
    }
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
    if held.cores {
        rules.insert(libc::SYS_sched_setaffinity, Vec::new());
    }
    if held.memory {
        rules.extend(UNCOUNTED_MEMORY.iter().map(|nr| (*nr, Vec::new())));
    }
    // Answered by the second filter; refused here they would read EPERM on some kernels.
    rules.extend(ABSENT.iter().map(|nr| (*nr, Vec::new())));
    rules.insert(libc::SYS_clone, vec![only(0, SeccompCmpOp::MaskedEq(NEW_NAMESPACES), 0)?]);
    rules.insert(libc::SYS_socket, sockets()?);
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

/// Unix and IP sockets, streams and datagrams; raw ones need a capability that is gone, and are refused as well.
/// Netlink only to ask for the interfaces.
fn sockets() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let mut rules = Vec::new();
    for family in FAMILIES {
        for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET] {
            for protocol in PROTOCOLS {
                rules.push(SeccompRule::new(vec![
                    condition(0, SeccompCmpOp::Eq, u64::from(family.unsigned_abs()))?,
                    condition(1, SeccompCmpOp::MaskedEq(SOCK_TYPE_MASK), u64::from(kind.unsigned_abs()))?,
                    condition(2, SeccompCmpOp::Eq, u64::from(protocol.unsigned_abs()))?,
                ])?);
            }
        }
    }
    rules.push(SeccompRule::new(vec![
        condition(0, SeccompCmpOp::Eq, u64::from(libc::AF_NETLINK.unsigned_abs()))?,
        condition(2, SeccompCmpOp::Eq, u64::from(libc::NETLINK_ROUTE.unsigned_abs()))?,
    ])?);
    Ok(rules)
}

/// Every ioctl but those that put words into another terminal's mouth, or load a line discipline, and the one by which a
/// file of ext4 gets the content of another without a stamp of it: by that, whoever looks for changes would miss one.
fn ioctls() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    const TIOCLINUX: u64 = 0x541c;
    const EXT4_IOC_MOVE_EXT: u64 = 0xc028_660f;
    let not = |nr: u64| condition(1, SeccompCmpOp::Ne, nr);
    let refused = [libc::TIOCSTI, TIOCLINUX, libc::TIOCCONS, libc::TIOCSETD, EXT4_IOC_MOVE_EXT];
    Ok(vec![SeccompRule::new(refused.into_iter().map(not).collect::<Result<_, _>>()?)?])
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

    #[test]
    fn both_variants_compile_to_programs_the_kernel_takes() {
        for has in [true, false] {
            let program = allow_list(Held { memory: has, processes: has, cores: has }).unwrap();
            assert!(program.len() < 4096, "{} instructions", program.len());
        }
        assert!(!absent().unwrap().is_empty());
    }
}
