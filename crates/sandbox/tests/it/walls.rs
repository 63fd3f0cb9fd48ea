//! Ways out through the kernel. Each probe says what it got; a control shows that it can succeed elsewhere.

use policy::Tier;

use crate::Inside;

/// Tries system calls by number and prints `name errno` (0 for success).
const PROBE: &str = "import ctypes,os,fcntl,socket,sys
l=ctypes.CDLL(None,use_errno=True)
def c(n,*a):
    ctypes.set_errno(0); r=l.syscall(*a); print(n, ctypes.get_errno() if r<0 else 0)
c('unshare_user',272,0x10000000)
c('unshare_net',272,0x40000000)
c('mount',165,b'x',b'/tmp',b'tmpfs',0,0)
c('umount',166,b'/proc',2)
c('pivot_root',155,b'.',b'.')
c('chroot',161,b'/tmp')
c('ptrace',101,0,0,0,0)
c('process_vm_readv',310,1,0,0,0,0,0)
c('bpf',321,0,0,0)
c('perf',298,0,0,-1,-1,0)
c('userfaultfd',323,0)
c('keyctl',250,0,0,0,0,0)
c('io_uring',425,1,0)
c('open_by_handle',304,-1,0,0)
c('setns',308,-1,0)
c('init_module',175,0,0,0)
c('kexec',246,0,0,0,0)
c('clock_settime',227,0,0)
c('sethostname',170,b'x',1)
c('swapon',167,b'x',0)
c('reboot',169,0,0,0,0)
c('quotactl',179,0,0,0,0)
c('move_mount',429,-1,0,-1,0,0)
c('clone_newuser',56,0x10000011,0,0,0,0)
c('clone3',435,0,0)
c('x32_getpid',0x40000000|39)
def s(n,*a):
    try: socket.socket(*a); print(n,0)
    except OSError as e: print(n,e.errno)
s('alg',38,5,0); s('vsock',40,1,0); s('packet',17,3,0); s('raw',2,3,1); s('kobject',16,3,15); s('bluetooth',31,3,0)
";

fn get<'a>(out: &'a str, name: &str) -> &'a str {
    out.lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix(' '))
        .unwrap_or_else(|| panic!("{name} in {out}"))
}

/// Socket families and entries that kernels were broken by (bug class D-17).
/// Every row: EPERM, or ENOSYS where programs then take another way.
#[test]
fn the_filter_of_the_namespace_tier_refuses_what_kernels_were_broken_by() {
    let inside = Inside::new(Tier::Namespace);
    let ran = inside.python(PROBE);
    let open: Vec<&str> =
        ran.out.lines().filter(|line| !line.ends_with(" 1") && !line.ends_with(" 38")).collect();
    assert!(open.is_empty() && ran.out.lines().count() == 32, "{open:?} of {}{}", ran.out, ran.err);
    for absent in ["clone3", "io_uring"] {
        assert_eq!(get(&ran.out, absent), "38", "{absent}");
    }
}

/// The control: what the probe tries can be had where nothing contains it.
#[test]
fn the_same_probe_succeeds_outside_for_calls_that_anyone_may_make() {
    #[expect(clippy::disallowed_methods, reason = "the control runs on the host, in a process of its own")]
    let out = std::process::Command::new("/usr/bin/python3").args(["-c", PROBE]).output().unwrap();
    let out = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(get(&out, "unshare_user"), "0", "{out}");
    assert_eq!(get(&out, "vsock"), "0", "{out}");
    assert_ne!(get(&out, "io_uring"), "38", "{out}");
}

#[test]
fn a_word_cannot_be_put_into_a_terminals_mouth() {
    let inside = Inside::new(Tier::Namespace);
    // Also with the high half set, which the kernel ignores and a careless filter does not.
    let program = "import ctypes,os,pty
l=ctypes.CDLL(None,use_errno=True); a,b=pty.openpty()
for n in (0x5412,0x100005412,0x541c,0x541d):
    ctypes.set_errno(0); r=l.syscall(16,b,ctypes.c_ulong(n),b'x'); print(r,ctypes.get_errno())";
    let ran = inside.python(program);
    assert_eq!(ran.out, "-1 1\n".repeat(4), "{}", ran.err);
}

/// Extents of ext4 are exchanged without a stamp of it, and who looks for changes would miss one.
#[test]
fn a_file_gets_no_other_content_without_a_stamp() {
    for tier in [Tier::Namespace, Tier::Confined] {
        let inside = Inside::new(tier);
        let program = "import fcntl,os,struct
a,b=(os.open(n,os.O_RDWR|os.O_CREAT) for n in 'ab')
os.write(a,b'A'*8192); os.write(b,b'B'*8192)
try: fcntl.ioctl(a,0xc028660f,struct.pack('IIQQQQ',0,b,0,0,2,0)); print('exchanged')
except OSError as e: print(e.errno)";
        let ran = inside.python(program);
        assert_eq!(ran.out, "1\n", "{tier}: {}", ran.err);
    }
}

/// While no program runs, what is left is ours, sealed before any guest came: the kernel gives the files of such a
/// process to root, which is how one sees from outside that nobody of the same id may trace it (bug class D-10).
#[test]
fn every_process_of_ours_below_the_forker_is_closed_to_tracing() {
    use std::os::unix::fs::MetadataExt;
    for tier in [Tier::Confined, Tier::Namespace] {
        let inside = Inside::new(tier);
        inside.sh("true");
        let below = crate::teardown::descendants(inside.host.forker_id());
        assert!(!below.is_empty(), "{tier}");
        for pid in below {
            let owner = std::fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid();
            assert_eq!(owner, 0, "{tier}: {pid}");
        }
    }
}

/// What serves the guest from outside is jailed itself: an engine is nobody, may gain nothing, and has no network
/// (bug class D-14). For QEMU see `the_monitor_is_behind_a_wall`.
#[test]
fn the_engine_of_gvisor_is_behind_a_wall() {
    let inside = Inside::new(Tier::Gvisor);
    let own = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
    let mut seen = 0;
    for pid in crate::teardown::descendants(inside.host.forker_id()) {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        let field =
            |name: &str| status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).unwrap().trim();
        // Root's own engines are of ids that nobody has; an ordinary user's have that user's.
        assert!(!field("Uid").split_whitespace().any(|id| id == "0"), "{pid}: {status}");
        for name in ["user", "mnt", "net", "ipc", "pid"] {
            let Ok(theirs) = std::fs::read_link(format!("/proc/{pid}/ns/{name}")) else { continue };
            assert_ne!(theirs, own(name), "{pid}: {name}");
        }
        seen += 1;
    }
    assert!(seen >= 3, "{seen}");
}

/// No descriptor of ours comes along, and nothing can be reached through one (bug classes D-10, D-13).
#[test]
fn init_cannot_be_traced_or_read() {
    for tier in [Tier::Namespace, Tier::Gvisor] {
        let inside = Inside::new(tier);
        let ran = inside
            .sh("cat /proc/1/mem /proc/1/environ; ls -l /proc/1/fd; cat /proc/1/maps; readlink /proc/1/exe");
        if tier == Tier::Namespace {
            assert_eq!(ran.out, "", "{tier}");
        }
        assert!(!ran.out.contains("CARGO") && !ran.out.contains("/target/"), "{tier}: {}", ran.out);
    }
}

/// After the exec there are the three streams and nothing else (bug class D-13).
#[test]
fn no_descriptor_of_ours_is_left_open_in_a_guest() {
    for tier in [Tier::Namespace, Tier::Gvisor] {
        let inside = Inside::new(tier);
        let ran = inside.sh("ls /proc/self/fd | wc -l; ls -l /proc/self/fd | grep -c socket:");
        // The three streams and the folder that `ls` itself reads.
        assert_eq!(ran.out, "4\n0\n", "{tier}");
    }
}

#[test]
fn a_nested_user_namespace_cannot_be_had() {
    let inside = Inside::new(Tier::Namespace);
    let ran = inside.sh("unshare -U id; unshare -r -n true; echo rc $?");
    assert!(ran.out.starts_with("rc ") && !ran.out.contains("rc 0"), "{}", ran.out);
}

#[test]
fn a_setuid_file_gives_nothing() {
    for tier in [Tier::Confined, Tier::Namespace, Tier::Gvisor] {
        let inside = Inside::new(tier);
        let path = inside.workspace().join("suid");
        std::fs::copy("/usr/bin/id", &path).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
        let plain = inside.sh("id -u").out;
        assert_eq!(inside.sh("./suid -u").out, plain, "{tier}");
    }
}

/// Same user, so the kernel would let it: an init without descriptors loses the sandbox.
#[test]
fn a_guest_cannot_lower_the_limits_of_init_but_its_own() {
    let inside = Inside::new(Tier::Namespace);
    let ran = inside.python(
        "import resource as r
r.setrlimit(r.RLIMIT_NOFILE, (99, 99)); print(r.getrlimit(r.RLIMIT_NOFILE)[1])
print(len(r.prlimit(1, r.RLIMIT_NOFILE)))
try: r.prlimit(1, r.RLIMIT_NOFILE, (3, 3)); print('set')
except PermissionError: print('refused')",
    );
    assert_eq!(ran.out, "99\n2\nrefused\n", "{}", ran.err);
    assert_eq!(inside.sh("echo alive").out, "alive\n");
}

#[test]
fn seldom_used_protocols_and_line_disciplines_are_not_to_be_had() {
    let inside = Inside::new(Tier::Namespace);
    let ran = inside.python(
        "import fcntl,os,socket,struct
for kind, protocol in [(1, 0), (1, 6), (2, 17), (1, 262), (2, 136), (1, 132)]:
    try: socket.socket(2, kind, protocol); print('made')
    except OSError as e: print(e.errno)
a, b = os.openpty()
try: fcntl.ioctl(b, 0x5423, struct.pack('i', 27)); print('set')
except OSError as e: print(e.errno)",
    );
    assert_eq!(ran.out, "made\nmade\nmade\n1\n1\n1\n1\n", "{}", ran.err);
}
