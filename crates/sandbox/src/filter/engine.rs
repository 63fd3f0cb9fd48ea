//! seccomp around an engine: what a machine's monitor, or `runsc`, may not ask of the host's kernel, whatever its guest
//! made of it.
//!
//! A deny-list, because these are large programs of others that change what they call from one version to the next, and
//! stand behind the wall already. It names what leads out of a wall, and what kernels were broken by. What is newer
//! than the list is not there for an engine. An engine's own filter, which knows it better, comes on top.

use libc::{c_int, c_long};
use seccompiler::{BpfProgram, SeccompCmpOp, SeccompRule, apply_filter};

use super::{NEW_NAMESPACES, Rules, compact, condition, only, terminals};

/// A program of others that holds a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// A machine's monitor that makes no socket.
    Qemu,
    /// A machine's monitor whose vsock ends at a socket of the wall.
    Firecracker,
    /// gVisor, which builds walls of its own in ours, and traces what runs in them.
    Runsc,
}

/// Refused to every engine.
const REFUSED: &[c_long] = &[
    // Other processes' memory and descriptors.
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Parts of the kernel that it was broken by.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_vmsplice,
    libc::SYS_memfd_secret,
    libc::SYS_remap_file_pages,
    // Files without a name.
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // The machine itself.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mq_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_sysfs,
    #[cfg(target_arch = "x86_64")]
    libc::SYS__sysctl,
];

/// Refused to a monitor besides: it builds no walls, and its children are its threads.
const NOT_FOR_MONITORS: &[c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_sethostname,
    libc::SYS_ptrace,
    libc::SYS_execveat,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_shmget,
    libc::SYS_mknodat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
];

/// Answered with `ENOSYS`: an engine that looks for these takes an older way.
const ABSENT: &[c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
];

/// The first number that this list does not know.
const NEWER: c_long = libc::SYS_fchmodat2 + 1;

/// Installs the filter in this process, for it and the engine that it starts.
pub(crate) fn apply(engine: Engine) -> Result<(), seccompiler::Error> {
    apply_filter(&program(engine)?)
}

fn program(engine: Engine) -> Result<BpfProgram, seccompiler::Error> {
    let mut refused: Rules = REFUSED.iter().map(|nr| (*nr, Vec::new())).collect();
    let mut absent = ABSENT.to_vec();
    match engine {
        Engine::Qemu | Engine::Firecracker => {
            refused.extend(NOT_FOR_MONITORS.iter().map(|nr| (*nr, Vec::new())));
            // It hides its flags behind a pointer.
            absent.push(libc::SYS_clone3);
            let flags = (0..64).map(|bit| 1_u64 << bit).filter(|flag| NEW_NAMESPACES & flag != 0);
            let rules = flags.map(|flag| only(0, SeccompCmpOp::MaskedEq(flag), flag));
            refused.insert(libc::SYS_clone, rules.collect::<Result<_, _>>()?);
        }
        Engine::Runsc => {}
    }
    for nr in [libc::SYS_socket, libc::SYS_socketpair] {
        refused.insert(nr, sockets(engine)?);
    }
    let terminals = terminals().map(|nr| only(1, SeccompCmpOp::Eq, nr));
    refused.insert(libc::SYS_ioctl, terminals.collect::<Result<_, _>>()?);
    // As for guests: the default persona, and the two that only change address randomisation.
    let personas = [0, 0x0004_0000, 0xffff_ffff].map(|persona| condition(0, SeccompCmpOp::Ne, persona));
    let others = SeccompRule::new(personas.into_iter().collect::<Result<_, _>>()?)?;
    refused.insert(libc::SYS_personality, vec![others]);
    compact::deny(refused, &absent, NEWER)
}

/// Which sockets are refused: an empty list is all.
fn sockets(engine: Engine) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    const UNIX: c_int = libc::AF_UNIX;
    match engine {
        Engine::Qemu => Ok(Vec::new()),
        Engine::Firecracker | Engine::Runsc => {
            Ok(vec![only(0, SeccompCmpOp::Ne, u64::from(UNIX.unsigned_abs()))?])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::compact::ask;

    const ENGINES: [Engine; 3] = [Engine::Qemu, Engine::Firecracker, Engine::Runsc];
    const OURS: u32 = if cfg!(target_arch = "aarch64") { 0xc000_00b7 } else { 0xc000_003e };
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

    fn answer(engine: Engine, nr: c_long, args: &[u64]) -> u32 {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        ask(&program(engine).unwrap(), OURS, u32::try_from(nr).unwrap(), all)
    }

    #[test]
    fn what_leads_out_of_a_wall_is_refused_to_every_engine() {
        for engine in ENGINES {
            for nr in REFUSED.iter().chain(ABSENT).chain(&[NEWER, 500, 4000, 0x4000_0027, 0x7fff_ffff]) {
                assert_ne!(answer(engine, *nr, &[]), ALLOW, "{engine:?} {nr}");
            }
            for family in [libc::AF_INET, libc::AF_NETLINK, libc::AF_PACKET, 38, libc::AF_VSOCK] {
                let family = u64::from(family.unsigned_abs());
                for family in [family, family | 1 << 32] {
                    for nr in [libc::SYS_socket, libc::SYS_socketpair] {
                        assert_ne!(answer(engine, nr, &[family]), ALLOW, "{engine:?} {family}");
                    }
                }
            }
            assert_ne!(answer(engine, libc::SYS_ioctl, &[0, libc::TIOCSTI]), ALLOW);
            assert_ne!(answer(engine, libc::SYS_personality, &[8]), ALLOW);
        }
    }

    #[test]
    fn a_monitor_builds_no_walls_and_traces_nobody() {
        for engine in [Engine::Qemu, Engine::Firecracker] {
            for nr in NOT_FOR_MONITORS.iter().chain(&[libc::SYS_clone3]) {
                assert_ne!(answer(engine, *nr, &[]), ALLOW, "{engine:?} {nr}");
            }
            for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNET, libc::CLONE_NEWNS, libc::CLONE_NEWPID] {
                let flag = u64::from(flag.unsigned_abs());
                assert_ne!(answer(engine, libc::SYS_clone, &[flag | 17]), ALLOW, "{engine:?} {flag:#x}");
            }
        }
    }

    #[test]
    fn what_an_engine_needs_is_there() {
        for engine in ENGINES {
            // The flags of a thread.
            for (nr, args) in [
                (libc::SYS_clone, &[0x003d_0f00][..]),
                (libc::SYS_clone, &[17]),
                (libc::SYS_execve, &[]),
                (libc::SYS_mmap, &[]),
                (libc::SYS_ioctl, &[0, 0xae80]),
                (libc::SYS_memfd_create, &[]),
                (libc::SYS_personality, &[0xffff_ffff]),
                (libc::SYS_seccomp, &[1]),
            ] {
                assert_eq!(answer(engine, nr, args), ALLOW, "{engine:?} {nr}");
            }
        }
        let unix = u64::from(libc::AF_UNIX.unsigned_abs());
        assert_ne!(answer(Engine::Qemu, libc::SYS_socket, &[unix]), ALLOW);
        assert_eq!(answer(Engine::Firecracker, libc::SYS_socket, &[unix]), ALLOW);
        assert_eq!(answer(Engine::Runsc, libc::SYS_socket, &[unix]), ALLOW);
        assert_eq!(answer(Engine::Runsc, libc::SYS_ptrace, &[]), ALLOW);
        // What a tracer made of a call that is not to be made.
        assert_eq!(ask(&program(Engine::Runsc).unwrap(), OURS, u32::MAX, [0; 6]), ALLOW);
    }

    /// Refused, not killed: a guest's program that uses it makes a trap for gVisor, which is the sterner answer.
    #[test]
    fn the_32_bit_entry_is_refused() {
        const I386: u32 = 0x4000_0003;
        for engine in ENGINES {
            let got = ask(&program(engine).unwrap(), I386, 20, [0; 6]);
            assert_eq!(got, libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs(), "{engine:?}");
        }
    }
}
