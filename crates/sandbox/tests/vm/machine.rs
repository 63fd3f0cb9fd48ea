//! What is this tier's own.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use policy::{StoppedBy, Tier};
use sandbox::LayerState;

use crate::{Inside, own};

#[test]
fn the_report_says_which_machine_it_was_and_every_layer_holds() {
    let inside = Inside::new(Tier::Microvm);
    let report = inside.running().report();
    let known = ["QEMU ", "Firecracker "].iter().any(|name| report.engine.starts_with(name));
    assert!(known && report.engine.contains(", Linux "), "{}", report.engine);
    assert!(report.engine.contains(" kvm,") || report.engine.contains(" emulated,"), "{}", report.engine);
    let missing: Vec<_> = report.layers.iter().filter(|l| l.state == LayerState::None).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// What a machine's images cost is part of its start: with much to take in, most of what a caller waits for before the
/// boot.
#[test]
fn the_cost_to_start_has_the_images_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    let mut bytes = vec![0; 256 << 20];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").unwrap(), &mut bytes[..1 << 20])
        .unwrap();
    (1..256).for_each(|n| bytes.copy_within(..1 << 20, n << 20));
    std::fs::write(workspace.join("much"), &bytes).unwrap();
    own(&workspace);
    own(&workspace.join("much"));
    let host = crate::inside::host();
    let plan = crate::inside::plan(Tier::Microvm, &workspace);
    crate::inside::runtime().block_on(async {
        let began = std::time::Instant::now();
        let ready = plan.ready(&host).await.unwrap();
        let waited = began.elapsed();
        // Nothing of it is brought out again.
        let told = std::time::Duration::from_millis(ready.start().report().start_ms);
        assert!(
            told <= waited && waited - told < std::time::Duration::from_millis(400),
            "{told:?} of {waited:?}"
        );
    });
}

/// In by an image, out by a stream; nothing of the host's own folder is served to the guest.
#[test]
fn the_workspace_goes_in_and_comes_back() {
    let mut inside = Inside::with(Tier::Microvm, |plan| {
        let at = |name: &str| plan.workspace.join(name);
        std::fs::create_dir(at("sub")).unwrap();
        std::fs::write(at("sub/given"), "from the host\n").unwrap();
        std::fs::write(at("gone"), "x").unwrap();
        symlink("sub/given", at("link")).unwrap();
        for name in ["sub", "sub/given", "gone", "link"] {
            own(&at(name));
        }
    });
    let ran = inside.sh("cat link && rm gone && echo more >> sub/given && mkdir -p a/b && echo new > a/b/c && chmod 700 a/b/c; \
        ln -s /etc/passwd out; mkfifo pipe; id -u; stat -c %u sub/given; mkdir locked; echo s > locked/s; chmod 0 locked");
    assert_eq!(ran.out, "from the host\n1000\n1000\n", "{}", ran.err);
    // Not before the end: the guest works on a copy.
    assert!(inside.workspace().join("gone").exists());
    let report = inside.end().unwrap();
    assert_eq!(report.not_collected, None);
    let at = |name: &str| inside.workspace().join(name);
    assert_eq!(std::fs::read_to_string(at("sub/given")).unwrap(), "from the host\nmore\n");
    assert_eq!(std::fs::read_to_string(at("a/b/c")).unwrap(), "new\n");
    let made = std::fs::symlink_metadata(at("a/b/c")).unwrap();
    assert_eq!(made.permissions().mode() & 0o777, 0o700);
    assert_eq!(made.uid(), sandbox::guest_owner().map_or(made.uid(), |(uid, _)| uid));
    assert_eq!(std::fs::read_link(at("out")).unwrap().to_str().unwrap(), "/etc/passwd");
    assert!(!at("gone").exists() && !at("pipe").exists() && !at("lost+found").exists());
    std::fs::set_permissions(at("locked"), std::fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(std::fs::read_to_string(at("locked/s")).unwrap(), "s\n");
}

#[test]
fn results_beyond_the_bound_are_told_and_the_workspace_stays_as_it_was() {
    let mut inside = Inside::with(Tier::Microvm, |plan| {
        plan.limits.disk = 32 << 20;
        std::fs::write(plan.workspace.join("kept"), "x").unwrap();
        own(&plan.workspace.join("kept"));
    });
    // Sparse: it fits the guest's disk, not the bound.
    inside.sh("rm kept; truncate -s 31M a; truncate -s 31M b");
    let report = inside.end().unwrap();
    assert!(report.not_collected.unwrap().contains("larger than the bound"));
    assert!(inside.workspace().join("kept").exists());
}

#[test]
fn a_full_disk_of_the_guest_is_its_own() {
    let inside = Inside::with(Tier::Microvm, |plan| plan.limits.disk = 32 << 20);
    let ran = inside.sh("head -c 20m /dev/zero > a; head -c 20m /dev/zero > b; echo rc $?");
    assert_eq!(ran.out, "rc 1\n", "{}", ran.err);
    assert_eq!(inside.sh("echo alive").out, "alive\n");
}

/// Who fills it is told so; who fails after that may have failed for anything.
#[test]
fn a_disk_that_was_full_before_is_not_told_of_a_later_call() {
    let inside = Inside::with(Tier::Microvm, |plan| plan.limits.disk = 32 << 20);
    let filled = inside.sh("cat /dev/zero > a; cat /dev/zero > b; false");
    assert_eq!(filled.outcome.stopped_by, StoppedBy::Disk, "{:?} {}", filled.outcome, filled.err);
    let later = inside.sh("false");
    assert_eq!(later.outcome.stopped_by, StoppedBy::Exit, "{:?} {}", later.outcome, later.err);
}

/// As many files as the disk takes are brought out again: a full one costs nobody his work.
#[test]
fn r44_files_are_bounded_by_the_disk_and_come_back() {
    let mut inside = Inside::with(Tier::Microvm, |plan| plan.limits.files = 300);
    let ran = inside.python(
        "
import os
n = 0
try:
    while n < 5000:
        os.close(os.open('f%d' % n, os.O_CREAT | os.O_WRONLY)); n += 1
except OSError as e: print(e.strerror)
print(300 <= n < 1000)
raise SystemExit(1)",
    );
    assert_eq!(ran.out, "No space left on device\nTrue\n", "{}", ran.err);
    assert_eq!(ran.outcome.stopped_by, StoppedBy::Disk, "{:?}", ran.outcome);
    let report = inside.end().unwrap();
    assert_eq!(report.not_collected, None);
    assert!(std::fs::read_dir(inside.workspace()).unwrap().count() >= 300);
}

#[test]
fn memory_and_processes_are_bounded_inside_and_init_lives_on() {
    let inside = Inside::with(Tier::Microvm, |plan| {
        plan.limits.memory = 512 << 20;
        plan.limits.processes = 32;
    });
    let ran = inside.python("x=[bytearray(1<<20) for _ in range(600)]; print('had it')");
    assert!(!ran.out.contains("had it"), "{}", ran.out);
    assert_eq!(ran.outcome.stopped_by, StoppedBy::Memory, "{:?}", ran.outcome);
    let ran = inside.sh("for i in $(seq 60); do sleep 1000 & done; exit 3");
    assert_eq!(ran.outcome.stopped_by, StoppedBy::Processes, "{:?} {}", ran.outcome, ran.err);
    assert_eq!(inside.sh("echo alive").out, "alive\n");
}

/// A kernel that is there is not enough: this one is no kernel, and nothing weaker is taken in its place.
#[test]
fn r57_a_machine_that_does_not_start_is_a_refusal() {
    let kept = tempfile::tempdir().unwrap();
    let at = |name: &str| kept.path().join("kernel").join(name);
    std::fs::create_dir_all(at("boot")).unwrap();
    std::fs::create_dir_all(at("lib/modules/broken/kernel")).unwrap();
    std::fs::write(at("boot/vmlinuz-broken"), "no kernel").unwrap();
    for module in [
        "virtio",
        "virtio_ring",
        "virtio_mmio",
        "virtio_pci",
        "virtio_blk",
        "virtio_console",
        "ext4",
        "squashfs",
        "vsock",
        "vmw_vsock_virtio_transport_common",
        "vmw_vsock_virtio_transport",
    ] {
        std::fs::write(at("lib/modules/broken/kernel").join(format!("{module}.ko")), "").unwrap();
    }
    let root = tempfile::tempdir().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    let host = crate::inside::host();
    host.keep_in(kept.path().to_path_buf());
    let mut plan = crate::inside::plan(Tier::Microvm, workspace.path());
    plan.rootfs = policy::Rootfs::Folder(root.path().to_path_buf());
    let refused =
        crate::inside::runtime().block_on(async { plan.ready(&host).await.unwrap_err() }).to_string();
    assert!(refused.contains("the tier `microvm` does not work here"), "{refused}");
}

/// From outside: the monitor runs as nobody special, without capabilities, in a network of its own.
#[test]
fn the_monitor_is_behind_a_wall() {
    let inside = Inside::new(Tier::Microvm);
    let below = crate::teardown::descendants(inside.host.forker_id());
    let monitor = below
        .iter()
        .find(|pid| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.starts_with("qemu") || name.starts_with("firecracker")
        })
        .unwrap();
    let status = std::fs::read_to_string(format!("/proc/{monitor}/status")).unwrap();
    let field = |name: &str| {
        status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).unwrap().trim().to_owned()
    };
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        assert_eq!(u64::from_str_radix(&field(set), 16).unwrap(), 0, "{set}");
    }
    assert!(!field("Uid").split_whitespace().any(|id| id == "0"), "{}", field("Uid"));
    assert_eq!((field("NoNewPrivs").as_str(), field("Seccomp").as_str()), ("1", "2"));
    // Ours came first, from the wall's own first process, and the monitor's is another.
    let parent = std::fs::read_to_string(format!("/proc/{}/status", field("PPid"))).unwrap();
    let filters = |status: &str| -> u32 {
        status.lines().find_map(|l| l.strip_prefix("Seccomp_filters:")).unwrap().trim().parse().unwrap()
    };
    let here = filters(&std::fs::read_to_string("/proc/self/status").unwrap());
    assert!(here < filters(&parent) && filters(&parent) < filters(&status), "{parent}{status}");
    assert!(inside.holds("monitor-filter"), "{:?}", inside.running().report().layers);
    let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    assert_ne!(space(&monitor.to_string()), space("self"));
    let net = std::fs::read_to_string(format!("/proc/{monitor}/net/dev")).unwrap();
    assert_eq!(net.lines().count(), 3, "{net}");
    for absent in ["etc", "home", "root", "var/lib", "work", "usr/bin/sh"] {
        assert!(!std::path::Path::new(&format!("/proc/{monitor}/root/{absent}")).exists(), "{absent}");
    }
}

/// A bomb that uses the whole of a slow processor keeps nobody from ending it in time.
#[test]
fn init_comes_before_its_guests_and_they_cannot_change_that() {
    let ran = Inside::new(policy::Tier::Microvm).python(
        "import os
field = lambda pid: open('/proc/%s/stat' % pid).read().rsplit(') ', 1)[1].split()[16]
print(field(1), field('self'))
try: os.setpriority(os.PRIO_PROCESS, 0, -1); print('raised')
except OSError: print('held')
print(open('/proc/sys/kernel/sched_autogroup_enabled').read().strip())",
    );
    assert_eq!(ran.out, "-20 0\nheld\n0\n", "{}", ran.err);
}
