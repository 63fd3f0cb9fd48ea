//! What an engine that its guest took over could still ask of the host's kernel: a program of the test stands in its
//! place, in the very wall, and tries. A control shows that it can succeed elsewhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use policy::Tier;
use tempfile::TempDir;

use crate::Inside;

/// Says `name=errno` for each, 0 for success. No argument does any harm where nothing stops it.
const PROBE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/wait.h>
#include <sys/syscall.h>
#define TRY(name, ...) do { errno = 0; long r = syscall(__VA_ARGS__); \
    dprintf(2, name "=%d ", r < 0 ? errno : 0); } while (0)
int main(void) {
    static char room[4096];
    int bad = 0x7fff;
    TRY("getpid", SYS_getpid);
    TRY("memfd", SYS_memfd_create, "x", 0);
    TRY("unix", SYS_socket, 1, 1, 0);
    TRY("unix-pair", SYS_socketpair, 1, 1, 0, room);
    TRY("inet", SYS_socket, 2, 1, 0);
    TRY("inet6", SYS_socket, 10, 2, 0);
    TRY("netlink-route", SYS_socket, 16, 3, 0);
    TRY("netlink-xfrm", SYS_socket, 16, 3, 6);
    TRY("packet", SYS_socket, 17, 3, 0);
    TRY("alg", SYS_socket, 38, 5, 0);
    TRY("vsock", SYS_socket, 40, 1, 0);
    TRY("io_uring_setup", 425, 1, room);
    TRY("io_uring_enter", 426, bad, 0, 0, 0, 0, 0);
    TRY("io_uring_register", 427, bad, 0, 0, 0);
    TRY("bpf", SYS_bpf, 0, 0, 0);
    TRY("perf_event_open", SYS_perf_event_open, 0, 0, -1, -1, 0);
    TRY("userfaultfd", SYS_userfaultfd, 1);
    TRY("keyctl", SYS_keyctl, 0, -3, 0, 0, 0);
    TRY("add_key", SYS_add_key, 0, 0, 0, 0, 0);
    TRY("request_key", SYS_request_key, 0, 0, 0, 0);
    TRY("process_vm_readv", SYS_process_vm_readv, getpid(), 0, 0, 0, 0, 0);
    TRY("process_vm_writev", SYS_process_vm_writev, getpid(), 0, 0, 0, 0, 0);
    TRY("pidfd_getfd", 438, bad, 0, 0);
    TRY("kcmp", SYS_kcmp, getpid(), getpid(), 0, 0, 0);
    TRY("name_to_handle_at", SYS_name_to_handle_at, -100, 0, 0, 0, 0);
    TRY("open_by_handle_at", SYS_open_by_handle_at, -1, 0, 0);
    TRY("fsopen", 430, 0, 0);
    TRY("fsconfig", 431, bad, 0, 0, 0, 0);
    TRY("fsmount", 432, bad, 0, 0);
    TRY("fspick", 433, bad, 0, 0);
    TRY("open_tree", 428, -1, "x", 0);
    TRY("move_mount", 429, bad, "x", bad, "x", 0);
    TRY("mount_setattr", 442, bad, "x", 0, 0, 0);
    TRY("personality", SYS_personality, 0x0400000);
    TRY("init_module", SYS_init_module, 0, 0, 0);
    TRY("finit_module", SYS_finit_module, bad, 0, 0);
    TRY("delete_module", SYS_delete_module, 0, 0);
    TRY("kexec_load", SYS_kexec_load, 0, 999, 0, 0);
    TRY("reboot", SYS_reboot, 0, 0, 0, 0);
    TRY("swapon", SYS_swapon, 0, 0);
    TRY("swapoff", SYS_swapoff, 0);
    TRY("quotactl", SYS_quotactl, -1, 0, 0, 0);
    TRY("syslog", SYS_syslog, -1, 0, 0);
    TRY("settimeofday", SYS_settimeofday, 1, 0);
    TRY("clock_settime", SYS_clock_settime, 0, 0);
    TRY("vmsplice", SYS_vmsplice, bad, 0, 0, 0);
    TRY("fanotify_init", SYS_fanotify_init, 0xffffff, 0);
    TRY("modify_ldt", SYS_modify_ldt, 0, room, sizeof room);
    TRY("iopl", SYS_iopl, 0);
    TRY("tiocsti", SYS_ioctl, bad, 0x5412, 0);
    TRY("tiocsti-high", SYS_ioctl, bad, 0x100005412, 0);
    TRY("of-tomorrow", 3000);
    TRY("x32-getpid", 0x40000000 | 39);
    long r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20) : "memory");
    dprintf(2, "i386-getpid=%d ", r < 0 ? (int)-r : 0);
    TRY("mount", SYS_mount, 0, 0, 0, 0, 0);
    TRY("umount", SYS_umount2, 0, 0);
    TRY("pivot_root", SYS_pivot_root, 0, 0);
    TRY("chroot", SYS_chroot, 0);
    TRY("setns", SYS_setns, bad, 0);
    TRY("sethostname", SYS_sethostname, 0, 1);
    TRY("msgget", SYS_msgget, 0, 0);
    TRY("clone3", 435, 0, 0);
    long child = fork();
    if (child == 0) { TRY("ptrace", SYS_ptrace, 0, 0, 0, 0); _exit(0); }
    while (waitpid(child, 0, 0) < 0 && errno == EINTR) {}
    errno = 0; child = syscall(SYS_clone, 0x10000011, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    dprintf(2, "clone-user=%d ", child < 0 ? errno : 0);
    TRY("unshare-user", SYS_unshare, 0x10000000);
    dprintf(2, "end=0 ");
    return 3;
}
"#;

/// What every engine may do.
const FREE: [&str; 3] = ["getpid", "memfd", "end"];
/// What builds walls, and traces: gVisor's business.
const OF_RUNSC: [&str; 11] = [
    "ptrace",
    "mount",
    "umount",
    "pivot_root",
    "chroot",
    "setns",
    "sethostname",
    "msgget",
    "clone3",
    "clone-user",
    "unshare-user",
];
const UNIX: [&str; 2] = ["unix", "unix-pair"];

#[expect(clippy::disallowed_methods, reason = "a compiler and a control, on the host")]
fn run(program: &Path, args: &[&str]) -> String {
    let ran = std::process::Command::new(program).args(args).output().unwrap();
    String::from_utf8_lossy(&ran.stderr).into_owned()
}

/// A program without libraries: the walls have different ones.
pub(crate) fn made(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    let (source, program) = (folder.path().join("probe.c"), folder.path().join("probe"));
    std::fs::write(&source, text).unwrap();
    let args = ["-static", "-O1", "-w", "-o", program.to_str().unwrap(), source.to_str().unwrap()];
    let said = run(Path::new("/usr/bin/cc"), &args);
    assert!(program.exists(), "{said}");
    (folder, program)
}

/// What the program said, to the end.
fn told(text: &str) -> BTreeMap<String, i32> {
    let pairs = text.split_whitespace().filter_map(|word| word.split_once('='));
    let told: BTreeMap<_, _> =
        pairs.filter_map(|(name, errno)| Some((name.to_owned(), errno.parse().ok()?))).collect();
    assert!(told.contains_key("end") && told.len() == 66, "{} of {text}", told.len());
    told
}

/// Refused is all but what is named here.
fn only(told: &BTreeMap<String, i32>, open: &[&[&str]]) {
    let open: Vec<&str> = open.concat();
    for (name, errno) in told {
        // EPERM or ENOSYS.
        let refused = [1, 38].contains(errno);
        assert!(refused || open.contains(&name.as_str()), "{name}={errno}");
    }
    for name in FREE {
        assert_eq!(told[name], 0, "{name}");
    }
}

fn in_place_of_a_monitor(firecracker: bool) -> BTreeMap<String, i32> {
    let (_folder, program) = made(PROBE);
    let host = crate::inside::host();
    let said =
        crate::inside::runtime().block_on(sandbox::in_place_of_a_monitor(&host, firecracker, &program));
    told(&said)
}

#[test]
fn a_qemu_that_its_guest_took_over_gets_no_socket_and_nothing_that_kernels_were_broken_by() {
    only(&in_place_of_a_monitor(false), &[&FREE]);
}

#[test]
fn a_firecracker_that_its_guest_took_over_gets_sockets_of_its_own_wall_only() {
    let told = in_place_of_a_monitor(true);
    only(&told, &[&FREE, &UNIX]);
    assert_eq!(told["unix"], 0);
}

#[test]
fn a_gvisor_that_its_guest_took_over_gets_no_more_than_what_its_own_walls_take() {
    let (_folder, program) = made(PROBE);
    let folder = tempfile::tempdir().unwrap();
    crate::own(folder.path());
    let host = crate::inside::host();
    let mut plan = crate::inside::plan(Tier::Gvisor, folder.path());
    plan.runsc = Some(program);
    let refused = crate::inside::runtime().block_on(async { plan.ready(&host).await.unwrap_err() });
    let told = told(&refused.to_string());
    only(&told, &[&FREE, &UNIX, &OF_RUNSC]);
    assert_eq!((told["unix"], told["ptrace"]), (0, 0));
}

/// The control: what is refused there can be had where nothing stands in the way.
#[test]
fn the_same_program_gets_outside_what_it_is_refused_in_a_wall() {
    let (_folder, program) = made(PROBE);
    let told = told(&run(&program, &[]));
    for name in
        ["unix", "inet", "netlink-xfrm", "vsock", "userfaultfd", "process_vm_readv", "ptrace", "clone-user"]
    {
        assert_eq!(told[name], 0, "{name}");
    }
    // These fail for their arguments.
    for name in
        ["io_uring_setup", "bpf", "keyctl", "name_to_handle_at", "open_tree", "msgget", "setns", "tiocsti"]
    {
        assert!(![1, 38].contains(&told[name]), "{name}={}", told[name]);
    }
}

/// From outside, of one that really runs: every process below the warden, sentry, gofer and stubs among them.
#[test]
fn every_process_of_a_running_gvisor_is_filtered_and_can_gain_nothing() {
    let inside = Inside::new(Tier::Gvisor);
    let mut engines = Vec::new();
    for pid in crate::teardown::descendants(inside.host.forker_id()) {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        let field =
            |name: &str| status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).unwrap().trim();
        assert_eq!((field("NoNewPrivs"), field("Seccomp")), ("1", "2"), "{pid}: {status}");
        // Of the network, of raw devices, of time, of modules, of bpf: not to be had again.
        let bounding = u64::from_str_radix(field("CapBnd"), 16).unwrap();
        for capability in [12, 13, 16, 17, 22, 25, 39] {
            if field("CapEff") != "0000000000000000" {
                assert_eq!(bounding >> capability & 1, 0, "{pid}: {capability} of {status}");
            }
        }
        engines.push(field("Name").to_owned());
    }
    assert!(engines.len() >= 3, "{engines:?}");
    assert!(inside.holds("engine-filter"), "{:?}", inside.running().report().layers);
}

/// Our filter lies beneath what gVisor answers itself, and takes nothing from its guests: a program that tries all
/// that gets gVisor's answers, and the sandbox goes on.
#[test]
fn a_guest_of_gvisor_is_answered_by_gvisor() {
    let (_folder, program) = made(PROBE);
    for runsc in [None, Some(crate::refusal::old_runsc())] {
        let inside = Inside::with(Tier::Gvisor, |plan| plan.runsc = runsc);
        let copy = inside.workspace().join("probe");
        crate::inside::put_program(&std::fs::read(&program).unwrap(), &copy);
        let ran = inside.sh("./probe");
        for answer in ["getpid=0", "memfd=0", "inet=0", "unix-pair=0", "netlink-route=0"] {
            assert!(ran.err.contains(answer), "{answer}: {}", ran.err);
        }
        assert_eq!(inside.sh("echo alive").out, "alive\n", "{}", ran.err);
    }
}
