//! Primitives of the kernel: namespaces, Landlock, seccomp, and single system calls.

use super::{ENOSYS, EPERM, no_call, no_user_namespaces, without};

const ALL: [&str; 3] = ["confined", "namespace", "gvisor"];

/// `kernel`'s own switch, in a user namespace of the test: the limit counts for everything below.
#[test]
fn r57_user_namespaces_that_are_turned_off_leave_the_confined_tier() {
    let told = without(&["user", "set:/proc/sys/user/max_user_namespaces:0"], &ALL);
    for tier in ["namespace", "gvisor"] {
        told.refused(tier, "create the namespaces", "sysctl -w user.max_user_namespaces=");
    }
    told.works("confined", "confined");
}

/// As in a container with its engine's default profile, and as AppArmor does it.
#[test]
fn r57_user_namespaces_that_are_refused_leave_the_confined_tier_to_auto() {
    let told = without(&no_user_namespaces(), &["confined", "namespace", "gvisor", "auto"]);
    for tier in ["namespace", "gvisor"] {
        told.refused(tier, "create the namespaces", "--security-opt seccomp=unconfined");
    }
    told.works("confined", "confined");
    told.works("auto", "confined");
}

#[test]
fn r57_each_kind_of_namespace_is_missed() {
    for (kind, step) in [
        ("mnt", ""),
        ("pid", "create the namespaces"),
        ("net", "create the namespaces"),
        ("ipc", "create the namespaces"),
        ("uts", "create the namespaces"),
        ("cgroup", "enter a cgroup namespace"),
    ] {
        let told = without(&["user".to_owned(), format!("set:/proc/sys/user/max_{kind}_namespaces:0")], &ALL);
        for tier in ["namespace", "gvisor"] {
            told.refused(tier, step, &format!("sysctl -w user.max_{kind}_namespaces="));
        }
        told.works("confined", "confined");
    }
}

#[test]
fn r57_each_kind_of_namespace_that_a_filter_refuses_is_missed() {
    for flag in [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ] {
        let taken = [
            format!("bits:{}:0:{flag}:{EPERM}", libc::SYS_clone),
            format!("bits:{}:0:{flag}:{EPERM}", libc::SYS_unshare),
            no_call(libc::SYS_clone3, ENOSYS),
        ];
        let told = without(&taken, &["namespace", "confined"]);
        told.refused("namespace", "namespace", "--security-opt seccomp=unconfined");
        told.works("confined", "confined");
    }
}

#[test]
fn r57_a_kernel_without_landlock_is_missed_by_the_tiers_that_stand_on_it() {
    for error in [ENOSYS, libc::EOPNOTSUPP] {
        let told = without(&[no_call(libc::SYS_landlock_create_ruleset, error)], &ALL);
        told.refused("confined", "the kernel offers none", "`lsm=`");
        told.refused("namespace", "the layer `landlock` is missing", "`lsm=`");
        told.works("gvisor", "gvisor");
    }
}

/// Older kernels answer the question for the version with a smaller number: a listener answers it here.
#[test]
fn r57_an_older_landlock_is_told_with_what_it_lacks() {
    for (version, lacks) in [
        (1, "moves between folders (refused altogether), truncation, ioctl"),
        (2, "without truncation, ioctl of devices"),
        (3, "without ioctl of devices, scopes"),
        (4, "without ioctl of devices, scopes"),
        (5, "without scopes of signals"),
    ] {
        let answer = format!("answer:{}:1:{version}", libc::SYS_landlock_create_ruleset);
        let told = without(&[answer], &["confined", "namespace"]);
        told.refused("confined", &format!("offers version {version}, 6 is needed"), "Linux 6.12");
        told.weaker("namespace", "landlock", lacks);
    }
    let enough = format!("answer:{}:1:6", libc::SYS_landlock_create_ruleset);
    assert_eq!(without(&[enough], &["namespace"]).layer("namespace", "landlock").0, "full");
}

#[test]
fn r57_a_kernel_without_seccomp_filters_is_missed_by_every_tier() {
    let unknown = vec![no_call(libc::SYS_seccomp, ENOSYS)];
    let refused = vec![
        no_call(libc::SYS_seccomp, libc::EINVAL),
        format!("equal:{}:0:{}:{}", libc::SYS_prctl, libc::PR_SET_SECCOMP, libc::EINVAL),
    ];
    let forbidden = vec![no_call(libc::SYS_seccomp, libc::EACCES)];
    for taken in [unknown, refused, forbidden] {
        let told = without(&taken, &ALL);
        for tier in ["confined", "namespace"] {
            told.refused(tier, "seccomp filter", "CONFIG_SECCOMP_FILTER");
        }
        told.refused("gvisor", "cannot create sandbox", "runsc");
    }
}

/// The kernel allows one listener to a process. Where something around uses it (a container's engine may), the
/// tier that needs it for itself says so.
#[test]
fn r57_a_listener_around_the_executor_is_missed_by_the_confined_tier_only() {
    let told = without(&[format!("answer:{}:77:0", libc::SYS_landlock_add_rule)], &ALL);
    told.refused("confined", "be asked about calls", "one such listener");
    told.works("namespace", "namespace");
    told.works("gvisor", "gvisor");
}

/// Calls that have an older way to the same end: everything works without them, with all its layers.
#[test]
fn newer_calls_are_done_without() {
    let around: [(&str, &[i64]); 5] = [
        ("clone3", &[libc::SYS_clone3]),
        ("openat2", &[libc::SYS_openat2]),
        ("pidfd", &[libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal, libc::SYS_pidfd_getfd]),
        ("close_range", &[libc::SYS_close_range]),
        ("statx", &[libc::SYS_statx]),
    ];
    for (name, calls) in around {
        for error in [ENOSYS, EPERM] {
            if error == EPERM && ["clone3", "statx"].contains(&name) {
                // Only an unknown call is answered by the older way; a refusal is one.
                continue;
            }
            let taken: Vec<String> = calls.iter().map(|nr| no_call(*nr, error)).collect();
            let told = without(&taken, &["confined", "namespace"]);
            for tier in ["confined", "namespace"] {
                told.works(tier, tier);
                for layer in ["seccomp", "landlock", "capabilities", "network", "root"] {
                    assert_eq!(told.layer(tier, layer).0, "full", "{name}: {tier} {layer}");
                }
            }
        }
    }
}

/// What the mounts of a view need. The kernels before 5.12 do not know all of it.
#[test]
fn r57_each_call_that_builds_the_view_is_missed() {
    for (call, error) in [
        (libc::SYS_mount, EPERM),
        (libc::SYS_umount2, EPERM),
        (libc::SYS_pivot_root, EPERM),
        (libc::SYS_open_tree, ENOSYS),
        (libc::SYS_open_tree, EPERM),
        (libc::SYS_mount_setattr, ENOSYS),
        (libc::SYS_move_mount, EPERM),
        (libc::SYS_sethostname, EPERM),
    ] {
        let told = without(&[no_call(call, error)], &ALL);
        let remedy = if error == ENOSYS { "Linux 5.12" } else { "" };
        for tier in ["namespace", "gvisor"] {
            told.refused(tier, "os error", remedy);
        }
        told.works("confined", "confined");
    }
}

/// gVisor keeps its guest's memory in one; nobody else needs it.
#[test]
fn r57_memory_without_a_name_is_missed_by_gvisor_only() {
    let told = without(&[no_call(libc::SYS_memfd_create, ENOSYS)], &ALL);
    told.refused("gvisor", "cannot create sandbox", "runsc");
    told.works("confined", "confined");
    told.works("namespace", "namespace");
}

/// Every call that the way in makes, one after the other: each is either not needed, with every layer as it is
/// otherwise, or missed.
#[test]
fn r57_no_single_call_of_the_way_in_is_lost_in_silence() {
    let whole = without::<&str>(&[], &["confined", "namespace"]);
    let calls = [
        libc::SYS_prctl,
        libc::SYS_capset,
        libc::SYS_capget,
        libc::SYS_setgroups,
        libc::SYS_setresuid,
        libc::SYS_setresgid,
        libc::SYS_setsid,
        libc::SYS_prlimit64,
        libc::SYS_setrlimit,
        libc::SYS_getrlimit,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_getaffinity,
        libc::SYS_signalfd4,
        libc::SYS_landlock_add_rule,
        libc::SYS_landlock_restrict_self,
        libc::SYS_umask,
        libc::SYS_chdir,
        libc::SYS_symlink,
        libc::SYS_chown,
        libc::SYS_kill,
        libc::SYS_syslog,
        libc::SYS_unshare,
    ];
    for call in calls {
        let told = without(&[no_call(call, EPERM)], &["confined", "namespace"]);
        for tier in ["confined", "namespace"].into_iter().filter(|_| !told.nothing()) {
            for layer in told.of(tier)["report"]["layers"].as_array().into_iter().flatten() {
                let name = layer["name"].as_str().unwrap();
                let before = whole.layer(tier, name).0;
                assert!(layer["state"] == before, "call {call}: {tier}: {layer} was {before}");
            }
        }
    }
}

/// Single requests of the one call that seals a process: dumpable, no new privileges, reaper, death, bounding set.
#[test]
fn r57_no_single_seal_is_lost_in_silence() {
    for request in [
        libc::PR_SET_DUMPABLE,
        libc::PR_SET_NO_NEW_PRIVS,
        libc::PR_SET_PDEATHSIG,
        libc::PR_CAPBSET_DROP,
        libc::PR_CAP_AMBIENT,
    ] {
        let told =
            without(&[format!("equal:{}:0:{request}:{EPERM}", libc::SYS_prctl)], &["confined", "namespace"]);
        told.refused("namespace", "os error 1", "around this program");
    }
    // The confined tier's sentinel must take in what loses its parent.
    let reaper = format!("equal:{}:0:{}:{}", libc::SYS_prctl, libc::PR_SET_CHILD_SUBREAPER, libc::EINVAL);
    let told = without(&[reaper], &["confined", "namespace"]);
    told.refused("confined", "take in what loses its parent", "no remedy is known");
    told.works("namespace", "namespace");
}

#[test]
fn privileges_given_up_before_are_no_hindrance() {
    let told = without(&["no-new-privileges"], &ALL);
    for tier in ALL {
        told.works(tier, tier);
    }
}

/// A container's root without capabilities has no id to give a guest but its own, which is root's.
#[test]
fn r57_root_without_capabilities_is_refused_and_an_ordinary_user_is_not() {
    let told = without(&["no-capabilities"], &["confined", "namespace"]);
    for tier in ["confined", "namespace"] {
        if super::root() {
            told.refused(tier, "ids", "as an ordinary user");
        } else {
            told.works(tier, tier);
        }
    }
}
