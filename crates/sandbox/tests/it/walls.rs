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
/// Every row: EPERM, or ENOSYS where programs then take another way. Half of the rows would be refused by the kernel as
/// well; that it is the filter's word is shown by `filter::tests::thirty_two_ways_*`.
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

/// The control: of what the probe tries, this much can be had by anybody where nothing contains it, and this much fails
/// for its arguments only. The rest the kernel refuses to everybody who is not root, and has no control here.
#[test]
fn the_same_probe_succeeds_outside_for_calls_that_anyone_may_make() {
    #[expect(clippy::disallowed_methods, reason = "the control runs on the host, in a process of its own")]
    let out = std::process::Command::new("/usr/bin/python3").args(["-c", PROBE]).output().unwrap();
    let out = String::from_utf8_lossy(&out.stdout).into_owned();
    for had in ["unshare_user", "unshare_net", "chroot", "ptrace", "vsock", "packet", "raw", "kobject"] {
        assert_eq!(get(&out, had), "0", "{had} of {out}");
    }
    for tried in ["process_vm_readv", "io_uring", "open_by_handle", "setns", "clock_settime", "clone3"] {
        assert!(!["1", "38"].contains(&get(&out, tried)), "{tried} of {out}");
    }
}

#[test]
fn a_word_cannot_be_put_into_a_terminals_mouth() {
    let inside = Inside::new(Tier::Namespace);
    // Also with the high half set, which the kernel ignores and a careless filter does not. The kernel itself refuses words
    // to a terminal that is not the caller's own: this one is.
    let program = "import ctypes,os,pty,sys
l=ctypes.CDLL(None,use_errno=True); a,b=pty.openpty()
if os.fork(): os.wait(); sys.exit()
os.setsid(); b=os.open(os.ttyname(b),os.O_RDWR); assert os.tcgetpgrp(b)==os.getpid()
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

/// Descriptors that this process, from which all sandboxes come, hands on to whatever it starts: of the host's root, near
/// and far.
fn left_open() -> [std::os::fd::OwnedFd; 2] {
    use rustix::fs::{Mode, OFlags};
    use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
    let near = rustix::fs::open("/", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let far = fcntl_dupfd_cloexec(&near, 500).unwrap();
    fcntl_setfd(&far, FdFlags::empty()).unwrap();
    [near, far]
}

/// Prints what is open beside the three streams.
const OPEN: &str = "import os
for fd in range(3,4096):
    try: os.fstat(fd); print(fd)
    except OSError: pass";

/// After the exec there are the three streams and nothing else, though the executor has left something open (bug class
/// D-13).
#[test]
fn no_descriptor_of_ours_is_left_open_in_a_guest() {
    use std::os::fd::AsRawFd;
    let left = left_open();
    // The control: who closes nothing has them.
    #[expect(clippy::disallowed_methods, reason = "the control runs on the host, in a process of its own")]
    let out = std::process::Command::new("/usr/bin/python3").args(["-c", OPEN]).output().unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    for fd in &left {
        assert!(out.lines().any(|line| line == fd.as_raw_fd().to_string()), "{left:?}: {out}");
    }
    for tier in crate::TIERS {
        let inside = Inside::new(tier);
        let ran = inside.python(OPEN);
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""), "{tier}");
    }
}

/// The nodes below `/dev` are the host's own, and everybody may write to them: two guests would share what the times of one
/// say.
#[test]
fn r24_the_hosts_devices_are_used_and_not_changed() {
    let state = || {
        let meta = std::fs::metadata("/dev/null").unwrap();
        (meta.modified().unwrap(), std::os::unix::fs::MetadataExt::ctime_nsec(&meta))
    };
    for tier in [Tier::Confined, Tier::Namespace] {
        let inside = Inside::new(tier);
        let before = state();
        let ran = inside.python(
            "import os
d=os.open('/dev/null',os.O_RDWR); print(os.write(d,b'x'), len(os.read(os.open('/dev/urandom',os.O_RDONLY),4)))
for f in (lambda: os.utime('/dev/null'), lambda: os.utime(d), lambda: os.utime(os.open('/dev/null',os.O_RDONLY)), lambda: os.chmod('/dev/null',0o666)):
    try: f(); print('changed')
    except OSError: pass",
        );
        assert_eq!(ran.out, "1 4\n", "{tier}: {}", ran.err);
        assert_eq!(state(), before, "{tier}");
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
        crate::inside::put_program(&std::fs::read("/usr/bin/id").unwrap(), &path);
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

/// Same user again: an init that no processor has time for would count nothing. What is one's own can be set.
#[test]
fn a_guest_cannot_slow_down_init_but_itself() {
    let inside = Inside::new(Tier::Namespace);
    let ran = inside.python(
        "import ctypes,os
l=ctypes.CDLL(None,use_errno=True)
one=(ctypes.c_ulong*16)(1); none=(ctypes.c_int*1)()
for p in (1,os.getppid(),0):
    print(*[r>=0 for r in (l.syscall(144,p,3,none), l.syscall(142,p,none), l.syscall(314,p,(ctypes.c_uint32*12)(48,3,0,0,19),0),
        l.setpriority(0,p,19), l.syscall(251,1,p,3<<13), l.syscall(203,p,128,one))])
print(l.setpriority(2,0,19), l.syscall(251,3,os.getuid(),3<<13))",
    );
    let none = "False False False False False False\n";
    let own = if inside.holds("cores") { "True" } else { "False" };
    assert_eq!(ran.out, format!("{none}{none}True True True True True {own}\n-1 -1\n"), "{}", ran.err);
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
