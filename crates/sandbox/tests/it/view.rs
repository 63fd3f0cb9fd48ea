//! What a guest sees.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{Inside, on_every_tier};

on_every_tier! {
    not_confined("names can be seen without a mount namespace; `confined.rs` shows that contents cannot")
    bubblewrap(holds)
    fn r23_nothing_of_the_hosts_secrets_exists(inside: &Inside) {
        let line = "for f in /etc/shadow /etc/gshadow /etc/sudoers /etc/ssh /root/.ssh /root/.bashrc /home/* \
            /run/docker.sock /var/run/docker.sock /run/containerd /run/user /var/lib /var/log /boot /opt /srv /mnt \
            /media /etc/ssl/private /sys/fs/cgroup/memory /lost+found; do [ -e $f ] && echo $f; done; ls -A /root /run";
        // The control: where sockets of services lie, there is something outside.
        assert!(std::fs::read_dir("/run").unwrap().count() > 0);
        let ran = inside.sh(line);
        assert_eq!(ran.out, "/root:\n\n/run:\n", "{}", ran.err);
    }

    bubblewrap(holds)
    fn r20_the_host_beside_the_workspace_is_absent(inside: &Inside) {
        std::fs::write(inside.outside().join("loot"), "CANARY").unwrap();
        let path = inside.outside().display().to_string();
        let ran = inside.sh(&format!("ls {path}; cat {path}/loot; ls {path}/.. /workspace/.."));
        assert!(!ran.out.contains("CANARY") && !ran.out.contains("loot"), "{}", ran.out);
    }

    not_confined("two places, under their real names; see `confined.rs`")
    bubblewrap(holds)
    fn r24_only_three_places_can_be_written(inside: &Inside) {
        let line = "for d in / /usr /usr/bin /usr/local /etc /bin /lib /home /root /run /var /proc /sys /dev /workspace \
            /tmp /dev/shm \"$HOME\"; do (echo x > $d/.w) 2>/dev/null && echo $d; done";
        let written: BTreeSet<String> = inside.sh(line).out.lines().map(str::to_owned).collect();
        let mut expected: BTreeSet<String> =
            ["/workspace", "/tmp", "/dev/shm", "/tmp/home"].map(str::to_owned).into();
        // Its own device folder is memory of the sandbox; gVisor lets a guest that is root there write to it.
        if written.contains("/dev") {
            expected.insert("/dev".to_owned());
        }
        assert_eq!(written, expected);
    }

    not_confined("/proc/self/status is closed; `confined.rs` asks the kernel directly")
    bubblewrap(holds)
    fn r30_the_guest_is_nobody_special_and_can_become_nobody_else(inside: &Inside) {
        let status = inside.sh("cat /proc/self/status").out;
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd"] {
            let line = status.lines().find(|l| l.starts_with(set)).unwrap();
            assert!(line.ends_with("0000000000000000"), "{line}");
        }
        let rise = "mount -t tmpfs x /tmp && echo mounted; chroot / id; su -c id </dev/null; \
            chown 65534 /workspace && echo given; setpriv --reuid 65534 id; true";
        let ran = inside.sh(rise);
        assert!(!ran.out.contains("uid=") && !ran.out.contains("mounted") && !ran.out.contains("given"), "{}", ran.out);
    }

    not_confined("no socket can be made, loopback included")
    bubblewrap(holds)
    fn r45_only_loopback_exists_and_it_works(inside: &Inside) {
        let devices = inside.sh("tail -n +3 /proc/net/dev | cut -d: -f1").out;
        assert_eq!(devices.trim(), "lo");
        let program = "import socket
for f,h in ((socket.AF_INET,'127.0.0.1'),(socket.AF_INET6,'::1')):
    s=socket.socket(f); s.bind((h,0)); s.listen(); socket.create_connection(s.getsockname()[:2],3); print('ok')";
        assert_eq!(inside.python(program).out, "ok\nok\n");
    }

    /// With a listener on the host that would answer, on TCP, on an abstract name, and on a path beside the workspace. Nor
    /// by the sockets of the host's services: their names are not there (bug class D-18; see `r23_*` for the list, and
    /// below for what a readable tree has).
    not_confined("`confined.rs` has it with path sockets, which this tier closes as well")
    bubblewrap(differs: "no filter: sockets that lead to the hypervisor")
    fn r12_nothing_on_the_host_can_be_reached(inside: &Inside) {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let path = inside.outside().join("host.sock");
        let on_path = std::os::unix::net::UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let name = format!("oubliette-test-{port}");
        let address = <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(&name).unwrap();
        let _abstract = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
        // The control: all of them answer on the host.
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        std::os::unix::net::UnixStream::connect_addr(&address).unwrap();
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        on_path.accept().unwrap();
        let accepted = tcp.accept().unwrap();
        drop(accepted);
        let program = format!("import socket
def t(n,f):
    try: f(); print('REACHED',n)
    except OSError: print('blocked',n)
for h in ('127.0.0.1','::1','169.254.169.254','192.0.2.1','10.0.0.1'): t(h, lambda: socket.create_connection((h,{port}),2))
for p in ('{path}','/run/docker.sock','/var/run/docker.sock','/run/dbus/system_bus_socket','/run/systemd/private','/run/systemd/journal/stdout','/run/containerd/containerd.sock','/run/user/0/bus'): t(p, lambda: socket.socket(socket.AF_UNIX).connect(p))
t('abstract', lambda: socket.socket(socket.AF_UNIX).connect('\\0{name}'))
t('dns', lambda: socket.getaddrinfo('example.com',80))
t('udp', lambda: socket.socket(socket.AF_INET,socket.SOCK_DGRAM).sendto(b'x',('192.0.2.1',53)))
t('icmp', lambda: socket.socket(socket.AF_INET,socket.SOCK_RAW,1))
t('packet', lambda: socket.socket(17,socket.SOCK_RAW,0))
t('vsock', lambda: socket.socket(40,socket.SOCK_STREAM))
t('alg', lambda: socket.socket(38,socket.SOCK_SEQPACKET))",
            path = path.display());
        let out = inside.python(&program).out;
        assert!(!out.contains("REACHED"), "{out}");
        assert_eq!(out.lines().count(), 20, "{out}");
        on_path.set_nonblocking(true).unwrap();
        assert!(on_path.accept().is_err(), "a connection from inside arrived");
        tcp.set_nonblocking(true).unwrap();
        assert!(tcp.accept().is_err(), "a connection from inside arrived");
    }

    fn the_processes_of_the_host_are_not_there(inside: &Inside) {
        let mine = std::process::id();
        let count: u32 = inside.sh("ls -d /proc/[0-9]* | wc -l").out.trim().parse().unwrap();
        assert!(count < 10, "{count}");
        let ran = inside.sh("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' ' '");
        assert!(!ran.out.contains("nextest") && !ran.out.contains("CARGO"), "{}", ran.out);
        assert!(inside.sh(&format!("kill -0 {mine}")).outcome.ended != sandbox::Ended::Exit(0));
    }

    fn r22_two_sandboxes_share_nothing(inside: &Inside) {
        let other = Inside::new(inside.tier);
        for d in ["/tmp", "/var/tmp", "/dev/shm", "\"$HOME\""] {
            inside.sh(&format!("echo CANARY > {d}/left"));
        }
        let bind = "import socket,time; s=socket.socket(socket.AF_UNIX); s.bind('\\0neighbour'); s.listen(); time.sleep(30)";
        inside.sh(&format!("python3 -c \"{bind}\" >/dev/null 2>&1 </dev/null &"));
        let ran = other.sh("cat /tmp/left /var/tmp/left /dev/shm/left \"$HOME/left\"; ps ax | grep -c neighbou[r]");
        assert!(!ran.out.contains("CANARY"), "{}", ran.out);
        assert_eq!(ran.out.trim(), "0");
        let connect = "import socket
try: socket.socket(socket.AF_UNIX).connect('\\0neighbour'); print('REACHED')
except OSError: print('blocked')";
        assert_eq!(other.python(connect).out, "blocked\n");
    }

    /// Whatever has a name in a kernel is each sandbox's own: System V and POSIX queues and memory, keys, the host
    /// name, process numbers (bug class D-21).
    not_confined("`confined.rs` shows that none of it can be made there; the host name is the host's")
    fn r22_two_sandboxes_at_once_share_no_name_of_a_kernel(inside: &Inside) {
        let other = Inside::new(inside.tier);
        let make = "import ctypes,os,subprocess,time
l=ctypes.CDLL(None,use_errno=True)
print('made', sum(r >= 0 for r in (l.shmget(4711,4096,0o1666), l.semget(4711,1,0o1666), l.msgget(4711,0o1666))))
l.syscall(240,b'neighbour',0o102,0o666,0); open('/dev/shm/neighbour','w').write('x')
l.syscall(248,b'user',b'neighbour',b'x',1,-4)
subprocess.Popen(['sleep','7777'],stdin=-3,stdout=-3,stderr=-3)";
        let look = "import ctypes,os,socket
l=ctypes.CDLL(None,use_errno=True)
found=[n for n,r in (('shm',l.shmget(4711,4096,0)),('sem',l.semget(4711,1,0)),('msg',l.msgget(4711,0)),
  ('mq',l.syscall(240,b'neighbour',2,0,0)),('key',l.syscall(249,b'user',b'neighbour',0,-4))) if r>=0]
found+=[d for d in os.listdir('/dev/shm')]
for p in os.listdir('/proc'):
    if p.isdigit():
        try: c=open('/proc/'+p+'/cmdline').read()
        except OSError: continue
        if '77'+'77' in c: found.append(p)
print(socket.gethostname() in ('sandbox',), found)";
        let made = inside.python(make).out;
        assert!(made == "made 3\n" || made == "made 0\n", "{made}");
        assert_eq!(other.python(look).out, "True []\n");
        // The control: in the one where they were made, they are there.
        let own = inside.python(look).out;
        assert!(own.contains("'neighbour'"), "{own}");
    }

    not_confined("no shared memory (multiprocessing), / cannot be listed; `confined.rs` has the rest")
    bubblewrap(holds)
    fn ordinary_programs_work(inside: &Inside) {
        let line = "set -e; ls -la / >/dev/null; stat /usr >/dev/null; du -s /workspace >/dev/null; ln -s x l; ls -l l; \
            touch \"$HOME/.probe\"; d=$(mktemp -d); printf '#!/bin/sh\\necho ran\\n' > $d/s; chmod +x $d/s; $d/s; \
            python3 -c \"import multiprocessing as m; p=m.Pool(2); print('sum', sum(p.map(abs,[-1,-2,-3])))\"; \
            python3 -c \"import sys; print(sys.stdout.encoding)\"; seq 1000 | sort -rn | head -1";
        let ran = inside.sh(line);
        assert!(ran.out.ends_with("ran\nsum 6\nutf-8\n1000\n"), "{}{}", ran.out, ran.err);
    }
}

/// R24: each mount is one that the view is made of, and what is not the guest's own can be written by nobody.
#[test]
fn r24_every_mount_is_of_the_view_and_only_the_guests_own_can_be_written() {
    let inside = Inside::new(policy::Tier::Namespace);
    let ran = inside.sh("cut -d' ' -f5,6 /proc/self/mountinfo");
    let own = ["/workspace", "/tmp", "/dev/shm"];
    let mut seen = BTreeSet::new();
    for line in ran.out.lines() {
        let (at, options) = line.split_once(' ').unwrap();
        let has = |option: &str| options.split(',').any(|o| o == option);
        let system = ["/usr", "/bin", "/sbin", "/lib", "/etc"].iter().any(|top| at.starts_with(top));
        let ours = ["/", "/proc", "/dev", "/dev/pts"].contains(&at) || at.starts_with("/dev/");
        assert!(own.contains(&at) || system || ours, "nobody named {line}");
        // A device has no rights to give.
        assert!(has("nosuid") || at.starts_with("/dev/"), "{line}");
        assert!(has("nodev") || at.starts_with("/dev"), "{line}");
        let writable = own.contains(&at) || at == "/proc" || at.starts_with("/dev");
        assert!(has("ro") || writable, "{line}");
        seen.insert(at.to_owned());
    }
    for at in own.iter().chain(&["/", "/usr", "/proc", "/dev"]) {
        assert!(seen.contains(*at), "{at} of {}{}", ran.out, ran.err);
    }
}

/// A root of its own, whose names try to lead the way out: links at the top, to the host and to inside.
#[test]
fn a_root_file_system_of_its_own_is_taken_as_it_is() {
    // A root needs a view of its own.
    for tier in crate::TIERS.into_iter().filter(|tier| *tier != policy::Tier::Confined) {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir_all(at("bin")).unwrap();
        std::fs::create_dir_all(at("etc")).unwrap();
        std::fs::write(at("etc/marker"), "OWN\n").unwrap();
        crate::inside::put_helper(&at("bin/tool"));
        std::os::unix::fs::symlink("/root", at("usr")).unwrap();
        std::os::unix::fs::symlink("bin", at("sbin")).unwrap();
        for name in ["", "bin", "etc"] {
            std::fs::set_permissions(at(name), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let inside = Inside::with(tier, |plan| {
            plan.rootfs = policy::Rootfs::Folder(root.path().to_path_buf());
        });
        let run = |program: &str| {
            let job = sandbox::Job::Exec {
                argv: vec![program.to_owned()],
                env: Vec::new(),
                cwd: None,
                terminal: false,
            };
            inside.call(job, b"", crate::inside::LONG, 999).outcome.ended
        };
        assert_eq!(run("tool"), sandbox::Ended::Exit(0), "{tier}");
        assert_eq!(run("/sbin/tool"), sandbox::Ended::Exit(0), "{tier}");
        // Neither the host's programs nor what the link meant are there.
        assert_eq!(run("/usr/bin/id"), sandbox::Ended::Exit(127), "{tier}");
        assert_eq!(run("sh"), sandbox::Ended::Exit(127), "{tier}");
    }
}

/// A listener of the host below a tree that a guest may read (a root file system that is also in use as a `chroot`, say):
/// gVisor and a machine let nobody through to it. In `namespace` the kernel asks for the right to write to the socket
/// alone, which docs/threats.md says: who shuts it to others shuts it to the guest of a root executor, and to nobody that
/// has the executor's own id. In the workspace's origin there is none: the import refuses it (`w7_*` in `runs`).
#[test]
fn r12_a_listener_below_a_readable_tree_is_reached_in_namespace_alone_and_only_with_the_right_to_write() {
    let own_id = sandbox::guest_owner().is_none();
    for tier in crate::TIERS.into_iter().filter(|tier| *tier != policy::Tier::Confined) {
        let root = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        std::fs::create_dir_all(root.path().join("opt")).unwrap();
        std::fs::create_dir_all(root.path().join("bin")).unwrap();
        crate::inside::put_helper(&root.path().join("bin/tool"));
        for name in ["", "opt", "bin"] {
            mode(&root.path().join(name), 0o755);
        }
        let bind = |name: &str, rights: u32| {
            let path = root.path().join(name);
            let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
            listener.set_nonblocking(true).unwrap();
            mode(&path, rights);
            // The control: it answers on the host.
            std::os::unix::net::UnixStream::connect(&path).unwrap();
            listener.accept().unwrap();
            listener
        };
        // As a program makes one that thinks of nothing, and for everybody, as those of some daemons are.
        let sockets =
            [("opt/usual", bind("opt/usual", 0o755), own_id), ("opt/open", bind("opt/open", 0o777), true)];
        let inside =
            Inside::with(tier, |plan| plan.rootfs = policy::Rootfs::Folder(root.path().to_path_buf()));
        for (name, listener, may_write) in sockets {
            let argv = ["tool", "connect", &format!("/{name}")].map(str::to_owned).to_vec();
            let job = sandbox::Job::Exec { argv, env: Vec::new(), cwd: None, terminal: false };
            let ended = inside.call(job, b"", crate::inside::LONG, 999).outcome.ended;
            let reached = ended == sandbox::Ended::Exit(0);
            assert_eq!(reached, tier == policy::Tier::Namespace && may_write, "{tier} {name}: {ended:?}");
            assert_eq!(listener.accept().is_ok(), reached, "{tier} {name}");
        }
    }
}

/// Names where a sandbox puts its own folders are links that lead to the host. Nothing of the host is written or
/// shown through them: they are not followed while the view is made (bug class D-9).
#[test]
fn a_hostile_root_file_system_leads_no_mount_to_the_host() {
    for tier in crate::TIERS.into_iter().filter(|tier| *tier != policy::Tier::Confined) {
        let (root, victim) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = |path: &std::path::Path| {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        };
        let deep = victim.path().join("deep");
        std::fs::create_dir(&deep).unwrap();
        std::fs::write(deep.join("canary"), "CANARY").unwrap();
        [root.path(), victim.path(), &deep].into_iter().for_each(open);
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir(at("bin")).unwrap();
        crate::inside::put_helper(&at("bin/tool"));
        let ours =
            ["proc", "dev", "sys", "tmp", "run", "workspace", "root", "home", "view", ".oubliette", "source"];
        for name in ours.into_iter().chain(["var", "etc", "usr", "lib"]) {
            std::os::unix::fs::symlink(&deep, at(name)).unwrap();
        }
        std::os::unix::fs::symlink("../../../..", at("mnt")).unwrap();
        // In two steps, the second of which looks plain.
        std::os::unix::fs::symlink("/", at("step")).unwrap();
        std::os::unix::fs::symlink("step/.", at("all")).unwrap();
        let out = victim.path().strip_prefix("/").unwrap();
        std::os::unix::fs::symlink(Path::new("step").join(out).join("deep"), at("far")).unwrap();
        std::os::unix::fs::symlink("../../../../", at("up")).unwrap();
        std::os::unix::fs::symlink(Path::new("up").join(out).join("deep"), at("near")).unwrap();
        // What leads to a folder of its own is one.
        std::fs::create_dir_all(at("opt/own")).unwrap();
        std::fs::write(at("opt/own/word"), "OWN").unwrap();
        std::os::unix::fs::symlink("/opt", at("to")).unwrap();
        std::os::unix::fs::symlink("to/own", at("own")).unwrap();
        let before = testkit::Tree::of(victim.path()).unwrap();
        let inside =
            Inside::with(tier, |plan| plan.rootfs = policy::Rootfs::Folder(root.path().to_path_buf()));
        let job =
            sandbox::Job::Exec { argv: vec!["tool".to_owned()], env: Vec::new(), cwd: None, terminal: false };
        let ran = inside.call(job, b"", crate::inside::LONG, 999);
        assert_eq!(ran.outcome.ended, sandbox::Ended::Exit(0), "{tier}: {}", ran.err);
        for path in ["etc/canary", "var/canary", "../tmp/canary", "/mnt/etc/passwd"] {
            let op = sandbox::FileOp::Read { path: path.to_owned(), offset: 0, limit: 99 };
            assert!(!inside.file(op, b"").out.contains("CANARY"), "{tier}: {path}");
        }
        let read = |path: &str| {
            let argv = ["tool", "read", path].map(str::to_owned).to_vec();
            let job = sandbox::Job::Exec { argv, env: Vec::new(), cwd: None, terminal: false };
            inside.call(job, b"", crate::inside::LONG, 999).out
        };
        assert_eq!(read("/own/word"), "OWN", "{tier}");
        for path in ["/far/canary", "/near/canary", &format!("/all/{}/deep/canary", out.display())] {
            assert!(!read(path).contains("CANARY"), "{tier}: {path}");
        }
        drop(inside);
        assert!(before.differences(&testkit::Tree::of(victim.path()).unwrap()).is_empty(), "{tier}");
    }
}
