//! Primitives of the kernel: namespaces, Landlock, seccomp, and single system calls.

use super::{ENOSYS, EPERM, no_call, no_user_namespaces, text, without};

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
        for tier in ["confined", "namespace", "gvisor"] {
            told.refused(tier, "seccomp filter", "CONFIG_SECCOMP_FILTER");
        }
    }
}

/// Somebody who answers that it was done, as a filter of a container could: the filter that is there is the container's.
#[test]
fn r57_a_filter_that_is_said_to_be_in_force_and_is_not_is_missed() {
    let told = without(&[no_call(libc::SYS_seccomp, 0)], &ALL);
    for tier in ["confined", "namespace"] {
        told.refused(tier, "the layer `seccomp` is missing", "around this program");
    }
    // Whose own filters are those of its engine as well.
    assert!(told.of("gvisor")["reason"].is_string(), "{}", told.of("gvisor"));
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

/// What becomes of the tiers without one call of the way in.
enum Fate {
    /// These are refused, the others are what they are otherwise.
    Refused(&'static [&'static str]),
    /// That depends on what else the machine has (groups, the engine's version); what works is what it is otherwise.
    Either,
}

/// Every call that the way in makes, one after the other, and who cannot do without it: as root, and as an ordinary
/// user, who has less to give up. Who can has every layer as it is otherwise.
#[test]
fn r57_no_single_call_of_the_way_in_is_lost_in_silence() {
    use Fate::{Either, Refused};
    const OWN_VIEW: &[&str] = &["namespace", "gvisor"];
    const BY_LANDLOCK: &[&str] = &["confined", "namespace"];
    let (every, none) = (|| Refused(&ALL), || Refused(&[]));
    let calls = [
        (libc::SYS_prctl, every(), every()),
        (libc::SYS_capset, every(), every()),
        (libc::SYS_capget, every(), Refused(&["gvisor"])),
        // The kernel lets no ordinary user give up its groups.
        (libc::SYS_setgroups, every(), none()),
        (libc::SYS_setresuid, every(), none()),
        (libc::SYS_setresgid, every(), none()),
        (libc::SYS_setsid, every(), every()),
        (libc::SYS_prlimit64, every(), every()),
        // Only engines call the old ones.
        (libc::SYS_setrlimit, Either, Either),
        (libc::SYS_getrlimit, Either, Either),
        // Without a group for cores.
        (libc::SYS_sched_setaffinity, Either, Either),
        (libc::SYS_sched_getaffinity, Either, Either),
        (libc::SYS_setpriority, Either, Either),
        (libc::SYS_signalfd4, every(), every()),
        (libc::SYS_landlock_add_rule, Refused(BY_LANDLOCK), Refused(BY_LANDLOCK)),
        (libc::SYS_landlock_restrict_self, Refused(BY_LANDLOCK), Refused(BY_LANDLOCK)),
        (libc::SYS_umask, every(), every()),
        (libc::SYS_chdir, every(), every()),
        (libc::SYS_symlink, Refused(OWN_VIEW), Refused(OWN_VIEW)),
        (libc::SYS_chown, none(), none()),
        (libc::SYS_kill, every(), every()),
        (libc::SYS_syslog, none(), none()),
        (libc::SYS_unshare, Refused(OWN_VIEW), Refused(OWN_VIEW)),
    ];
    let whole = without::<&str>(&[], &ALL);
    for (call, of_root, of_user) in calls {
        let fate = if super::root() { of_root } else { of_user };
        let told = without(&[no_call(call, EPERM)], &ALL);
        for tier in ALL {
            // An executor that cannot even start has refused them all.
            let one = if told.nothing() { &serde_json::Value::Null } else { told.of(tier) };
            let works = one["report"].is_object();
            match fate {
                Refused(tiers) => assert_eq!(!works, tiers.contains(&tier), "call {call}: {one}"),
                Either => {}
            }
            for layer in one["report"]["layers"].as_array().into_iter().flatten() {
                let name = layer["name"].as_str().unwrap();
                let before = whole.layer(tier, name).0;
                assert!(layer["state"] == before, "call {call}: {tier}: {name} was {before}: {layer}");
            }
        }
    }
}

/// Root's groups are no guest's. An ordinary user has no right to give its own up, and then the report says so.
#[test]
fn r30_the_groups_of_a_root_are_left_outside() {
    if !super::root() {
        // Nor to take some for this test; it has none, and that is what is told.
        let told = without::<&str>(&[], &ALL);
        assert!(ALL.iter().all(|tier| !told.layer(tier, "ids").1.contains("further group")));
        return;
    }
    let told = without(&["groups:4,27"], &ALL);
    for tier in ALL {
        let (state, detail) = told.layer(tier, "ids");
        assert!(state == "full" && !detail.contains("further group"), "{tier}: {detail}");
    }
}

/// A sandbox whose processes cannot be killed is none, whoever stands in the way of it.
#[test]
fn r57_without_a_kill_that_kills_every_tier_is_refused() {
    for taken in [
        no_call(libc::SYS_kill, EPERM),
        // Said to be done, and not done.
        no_call(libc::SYS_kill, 0),
        // This signal only.
        format!("equal:{}:1:{}:{EPERM}", libc::SYS_kill, libc::SIGKILL),
    ] {
        let told = without(&[taken.as_str()], &ALL);
        for tier in ["confined", "namespace"] {
            // What cannot be signalled is the first sign of it in the tier that looks for that.
            let reason = text(told.of(tier), "reason");
            let named = ["call-kill", "signals"].iter().any(|layer| reason.contains(layer));
            assert!(named, "{taken}: {reason}");
        }
        told.refused("gvisor", "nothing that is started can be killed", "around this program");
    }
}

/// Single requests of the one call that seals a process: dumpable, no new privileges, death, bounding and ambient set.
#[test]
fn r57_no_single_seal_is_lost_in_silence() {
    const ALL_THREE: &[&str] = &ALL;
    for (request, tiers) in [
        // What an engine's process is when the engine has taken its place is the engine's own affair.
        (libc::PR_SET_DUMPABLE, &["confined", "namespace"][..]),
        (libc::PR_SET_NO_NEW_PRIVS, ALL_THREE),
        (libc::PR_SET_PDEATHSIG, ALL_THREE),
        // An ordinary user has no right to it; in `confined` none is there to be gained, which is measured.
        (libc::PR_CAPBSET_DROP, &["namespace", "gvisor"][..]),
        (libc::PR_CAP_AMBIENT, ALL_THREE),
    ] {
        let told = without(&[format!("equal:{}:0:{request}:{EPERM}", libc::SYS_prctl)], &ALL);
        for tier in ALL {
            match tiers.contains(&tier) {
                true => told.refused(tier, "os error 1", "around this program"),
                false => told.works(tier, tier),
            }
        }
    }
    // The confined tier's sentinel must take in what loses its parent; init of the others is who it goes to anyway.
    let reaper = format!("equal:{}:0:{}:{}", libc::SYS_prctl, libc::PR_SET_CHILD_SUBREAPER, libc::EINVAL);
    let told = without(&[reaper], &ALL);
    told.refused("confined", "take in what loses its parent", "no remedy is known");
    told.weaker("namespace", "call-kill", "no subreapers");
    told.works("gvisor", "gvisor");
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
