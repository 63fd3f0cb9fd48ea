//! Files and mounts that the executor finds on a machine.

use super::{attempt, folder, no_call, no_user_namespaces, root, without};

const ALL: [&str; 3] = ["confined", "namespace", "gvisor"];

#[test]
fn r57_without_a_group_the_memory_of_all_together_is_told_as_held_in_part() {
    let told = without(&["mounts", "cover:/sys/fs/cgroup"], &ALL);
    for tier in ALL {
        told.weaker(tier, "memory", "no cgroup");
        told.weaker(tier, "cores", "no cgroup");
        told.weaker(tier, "cores", "nice 19, which no guest can raise");
        let (state, detail) = told.layer(tier, "groups");
        assert!(state == "none" && detail.contains("no cgroup, but rlimits"), "{detail}");
    }
}

/// R54: no service of the machine is asked for anything; where none has a socket, every tier works.
#[test]
fn r54_no_daemon_is_needed() {
    let told = without(&["mounts", "cover:/run", "cover:/var/lib/docker"], &ALL);
    for tier in ALL {
        told.works(tier, tier);
    }
}

/// As every container engine does it by default.
#[test]
fn r57_a_proc_that_is_covered_in_part_is_missed_by_the_tiers_that_need_their_own() {
    let told = without(&["mounts", "masked-proc"], &ALL);
    for tier in ["namespace", "gvisor"] {
        told.refused(tier, "/proc", "--security-opt systempaths=unconfined");
    }
    told.works("confined", "confined");
}

/// No disk left where the runs are kept: the tier that needs a folder there cannot be started, which is no refusal; the
/// others fail inside, at the guest's own write.
#[test]
fn r57_a_full_disk_is_missed() {
    let folder = folder();
    let at = "/mnt/workspace";
    let told = attempt(folder.path(), at.as_ref(), &["mounts", "fill:/mnt"], &["namespace", "confined"], "");
    told.refused("confined", "No space left on device", "make room on the disk");
    assert_eq!(told.of("confined")["failed"], true, "{}", told.of("confined"));
    let said = told.of("namespace")["said"].as_str().unwrap_or_default();
    assert!(said.contains("No space left on device"), "{}", told.of("namespace"));
}

/// A cache with nothing in it yet.
const NOTHING_KEPT: &str = "empty:/var/cache/oubliette/machine";

/// Each thing that a machine is made of, covered.
#[test]
fn r57_what_a_machine_is_made_of_is_missed_by_name() {
    if !root() {
        // Covering needs a cache of the user's own, which a test's user has not; what is refused then is said.
        let told = without(&["mounts", "cover:/dev/kvm"], &["microvm", "auto"]);
        assert_ne!(told.of("auto")["report"]["tier"], "microvm");
        return;
    }
    let qemu = ["mounts", "cover:/usr/bin/qemu-system-x86_64"];
    without(&qemu, &["microvm"]).refused("microvm", "qemu-system-x86_64", "qemu-system-x86");
    let kernels = ["mounts", "cover:/boot", "cover:/var/cache/oubliette/kernel"];
    without(&kernels, &["microvm"]).refused("microvm", "no guest kernel", "scripts/fetch-kernel");
    for (tool, package) in [("mke2fs", "e2fsprogs"), ("mksquashfs", "squashfs-tools")] {
        // The image of the system is made once.
        let kept = (tool == "mksquashfs").then(|| NOTHING_KEPT.to_owned());
        let covers = ["/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/sbin/", "/bin/"]
            .map(|folder| format!("cover:{folder}{tool}"));
        let taken: Vec<String> = ["mounts".to_owned()].into_iter().chain(kept).chain(covers).collect();
        without(&taken, &["microvm"]).refused("microvm", tool, package);
    }
    // That a device which works is missed is shown where one does: scripts/nested-kvm.
    let told = without(&["mounts", "cover:/dev/kvm"], &["auto"]);
    assert_ne!(told.of("auto")["report"]["tier"], "microvm");
}

/// R42, W24: a container as engines make it by default, with a user of its own and no capability. One tier is left,
/// and `auto` takes it.
#[test]
fn r42_a_plain_container_leaves_the_confined_tier() {
    let taken = plain_container();
    let told = without(&taken, &["confined", "namespace", "gvisor", "auto"]);
    if root() {
        // The same container with its root without capabilities: nothing can be had, and the way out is named.
        told.refused("confined", "the layer `ids` is missing", "--user 1000:1000");
        told.refused("auto", "no tier", "--user 1000:1000");
    } else {
        told.works("confined", "confined");
        told.works("auto", "confined");
    }
    for tier in ["namespace", "gvisor"] {
        told.refused(tier, "create the namespaces", "--security-opt seccomp=unconfined");
    }
}

/// No namespaces, no mounts, no keys, no tracing, parts of /proc covered, groups read-only, no capability and none to
/// be gained.
fn plain_container() -> Vec<String> {
    let calls = [
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_mount_setattr,
        libc::SYS_setns,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_open_by_handle_at,
        libc::SYS_syslog,
    ];
    let first = ["mounts", "masked-proc", "cover:/sys/fs/cgroup", "no-capabilities", "no-new-privileges"];
    first
        .map(str::to_owned)
        .into_iter()
        .chain(no_user_namespaces())
        .chain(calls.map(|nr| no_call(nr, super::EPERM)))
        .collect()
}
