//! The confined tier by its own claims: what the others show by looking around inside is looked at from outside.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use policy::{StoppedBy, Tier};
use sandbox::Ended;

use crate::teardown::descendants;
use crate::{Inside, own, shell};

fn inside() -> Inside {
    Inside::new(Tier::Confined)
}

/// Reads and lists by every name, and says what it got.
const LOOK: &str = "import os,sys
def t(n,f):
    try: f(); print('REACHED',n)
    except (OSError,PermissionError) as e: print('blocked',n)
for p in sys.argv[1:]:
    t('read '+p, lambda: open(p,'rb').read(1)); t('list '+p, lambda: os.listdir(p))
    t('write '+p, lambda: open(p,'ab')); t('plant '+p, lambda: open(p+'/planted','w'))
    t('rename '+p, lambda: os.rename(p,p+'x')); t('link '+p, lambda: os.link(p,'stolen'))
    t('chmod '+p, lambda: os.chmod(p,0o777)); t('utime '+p, lambda: os.utime(p,(1,1)))
    t('xattr '+p, lambda: os.setxattr(p,'user.x',b'x')); t('chown '+p, lambda: os.chown(p,os.getuid(),-1))
    t('truncate '+p, lambda: os.truncate(p,0)); t('remove '+p, lambda: os.remove(p))
";

fn look(inside: &Inside, paths: &[String]) -> String {
    let argv = ["/usr/bin/python3", "-c", LOOK].map(str::to_owned).into_iter().chain(paths.iter().cloned());
    let job = sandbox::Job::Exec { argv: argv.collect(), env: Vec::new(), cwd: None, terminal: false };
    inside.call(job, b"", Duration::from_secs(60), 1 << 20).out
}

#[test]
fn r20_nothing_beside_the_workspace_is_read_or_changed_though_its_names_are_known() {
    let inside = inside();
    let canary = inside.outside().join("canary");
    std::fs::write(&canary, "CANARY").unwrap();
    // As open as a file can be, and the guest's own: only the rules stand between.
    std::fs::set_permissions(&canary, PermissionsExt::from_mode(0o666)).unwrap();
    own(&canary);
    let before = std::fs::metadata(&canary).unwrap();
    let out = look(&inside, &[canary.display().to_string(), inside.outside().display().to_string()]);
    assert_eq!(out.lines().count(), 24, "{out}");
    assert!(!out.contains("REACHED"), "{out}");
    let after = std::fs::metadata(&canary).unwrap();
    assert_eq!((before.mode(), before.mtime(), before.ino()), (after.mode(), after.mtime(), after.ino()));
    assert_eq!(std::fs::read_to_string(&canary).unwrap(), "CANARY");
    // The control: the same program on a file of the workspace.
    inside.sh("echo x > mine");
    let mine = format!("{}/mine", inside.workspace_inside());
    assert!(look(&inside, &[mine]).contains("REACHED read"));
}

#[test]
fn r23_no_secret_of_the_host_and_no_process_of_it_can_be_read() {
    let inside = inside();
    let mine = std::process::id();
    let mut paths: Vec<String> = [
        "/etc/shadow",
        "/etc/passwd",
        "/root",
        "/home",
        "/var",
        "/run",
        "/tmp",
        "/dev/shm",
        "/sys",
        "/",
        "/etc",
        "/proc",
        "/proc/1",
        "/proc/self/environ",
    ]
    .map(str::to_owned)
    .into();
    for name in ["environ", "cmdline", "status", "mem", "maps", "fd", "root", "cwd/Cargo.toml", "stat"] {
        paths.push(format!("/proc/{mine}/{name}"));
        paths.push(format!("/proc/{}/{name}", inside.host.forker_id()));
    }
    let program = "import os,sys
for p in sys.argv[1:]:
    for f in (os.listdir, lambda p: open(p,'rb').read(1)):
        try: f(p); print('REACHED',p)
        except OSError: pass
print('done')";
    let argv = ["/usr/bin/python3", "-c", program].map(str::to_owned).into_iter().chain(paths);
    let job = sandbox::Job::Exec { argv: argv.collect(), env: Vec::new(), cwd: None, terminal: false };
    let ran = inside.call(job, b"", Duration::from_secs(60), 1 << 20);
    assert_eq!(ran.out, "done\n", "{}", ran.err);
}

#[test]
fn r24_only_the_workspace_and_the_private_folder_can_be_written() {
    let inside = inside();
    let line = "for d in / /usr /usr/local /etc /home /root /run /var /var/tmp /proc /sys /dev /tmp /dev/shm . \
        \"$TMPDIR\" \"$HOME\"; do (echo x > $d/.w) 2>/dev/null && echo $d; done";
    let tmp = inside.tmp_inside();
    assert_eq!(inside.sh(line).out, format!(".\n{tmp}\n{tmp}/home\n"));
}

#[test]
fn r30_the_guest_has_no_capability_and_can_take_no_id() {
    let program = "import ctypes,os
l=ctypes.CDLL(None,use_errno=True)
h=(ctypes.c_uint32*2)(0x20080522,0); d=(ctypes.c_uint32*6)()
print(l.syscall(125,h,d), any(d), l.prctl(39,0,0,0,0), os.getuid()!=0, os.getgroups())
for n,a in ((105,0),(106,0),(116,0)):
    print(l.syscall(n,a,0)==-1 or 'TOOK')";
    let ran = inside().python(program);
    assert!(ran.out.starts_with("0 False 1 True "), "{}{}", ran.out, ran.err);
    assert_eq!(ran.out.lines().skip(1).filter(|l| *l == "True").count(), 3, "{}", ran.out);
}

#[test]
fn r12_no_socket_can_be_made_and_no_pair_sends_to_a_name() {
    let inside = inside();
    let path = inside.workspace().join("host.sock");
    let host = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
    host.set_nonblocking(true).unwrap();
    let program = "import socket
def t(n,f):
    try: f(); print('REACHED',n)
    except OSError: print('blocked',n)
for f in (1,2,10,16,17,38,40):
    for k in (1,2,3,5): t((f,k), lambda: socket.socket(f,k))
for k in (1,2,5):
    def send():
        a,b=socket.socketpair(socket.AF_UNIX,k); a.sendto(b'x','host.sock')
    t(('pair',k),send)
a,b=socket.socketpair(); a.send(b'x'); print(b.recv(1))";
    let ran = inside.python(program);
    let reached: Vec<&str> = ran.out.lines().filter(|l| l.contains("REACHED")).collect();
    // The kernel drops the name there and sends to the pair.
    assert!(reached.iter().all(|l| *l == "REACHED ('pair', 5)"), "{}", ran.out);
    assert!(ran.out.ends_with("b'x'\n") && ran.out.lines().count() == 32, "{}{}", ran.out, ran.err);
    assert!(host.recv(&mut [0; 8]).is_err());
}

#[test]
fn nothing_above_a_call_can_be_signalled_traced_or_slowed_down() {
    // In a container the executor may be process 1, whose group has no name: -1 means everybody in reach.
    let inside = inside();
    let mut above: Vec<String> = descendants(inside.host.forker_id()).iter().map(u32::to_string).collect();
    assert_eq!(above.len(), 2, "sentinel and init");
    above.extend([std::process::id(), inside.host.forker_id()].map(|p| p.to_string()));
    let program = format!(
        "import ctypes,os,resource
l=ctypes.CDLL(None,use_errno=True)
def t(n,r): print('REACHED' if r>=0 else 'blocked',n)
for p in [os.getppid(),{}]:
    for s in (0,9,15,18,19): t(('kill',p,s),l.kill(p,s))
    t(('group',p),l.kill(-p,15) if p!=1 else -1); t(('ptrace',p),l.syscall(101,16,p,0,0)); t(('queue',p),l.syscall(129,p,15,0))
    t(('nice',p),l.setpriority(0,p,19)); t(('prlimit',p),l.syscall(302,p,7,0,(ctypes.c_uint64*2)()))
    t(('sched',p),l.syscall(144,p,5,(ctypes.c_int*1)())); t(('vm',p),l.syscall(310,p,0,0,0,0,0))
    t(('affinity',p),l.syscall(203,p,128,(ctypes.c_ulong*16)(1))); t(('param',p),l.syscall(142,p,(ctypes.c_int*1)()))
    t(('attr',p),l.syscall(314,p,(ctypes.c_uint32*12)(48,3,0,0,19),0)); t(('ioprio',p),l.syscall(251,1,p,3<<13)); t(('group nice',p),l.setpriority(1,p,19))
    f=l.syscall(434,p,0); t(('pidfd',p),l.syscall(424,f,9,0,0) if f>=0 else -1)",
        above.join(",")
    );
    let ran = inside.python(&program);
    assert_eq!(
        ran.out.lines().filter(|l| l.starts_with("blocked")).count(),
        5 * 18,
        "{}{}",
        ran.out,
        ran.err
    );
    assert_eq!(inside.sh("echo alive").out, "alive\n");
}

#[test]
fn r22_two_sandboxes_cannot_meet_in_shared_memory_queues_or_by_signals() {
    let (one, other) = (inside(), inside());
    one.sh("sleep 30 >/dev/null 2>&1 </dev/null &");
    let pids: Vec<String> = descendants(one.host.forker_id()).iter().map(u32::to_string).collect();
    let program = format!(
        "import ctypes,os
l=ctypes.CDLL(None,use_errno=True)
def t(n,r): print('REACHED' if r>=0 else 'blocked',n)
t('shm',l.shmget(4711,4096,0o1600)); t('sem',l.semget(4711,1,0o1600)); t('msg',l.msgget(4711,0o1600))
t('mq',l.syscall(240,b'neighbour',0o102,0o600,0)); t('memfd',-1 if not os.path.exists('/dev/shm/x') else 0)
for p in [{}]: t(('kill',p),l.kill(p,9)); t(('nice',p),l.setpriority(0,p,19)); t(('affinity',p),l.syscall(203,p,128,(ctypes.c_ulong*16)(1)))",
        pids.join(",")
    );
    let ran = other.python(&program);
    assert!(
        !ran.out.contains("REACHED") && ran.out.lines().count() == 5 + 3 * pids.len(),
        "{}{}",
        ran.out,
        ran.err
    );
    assert_eq!(descendants(one.host.forker_id()).len(), pids.len());
}

/// The whole host must be free of what the call started, wherever it hid; looked at from outside.
#[test]
fn r29_everything_a_call_started_is_killed_with_it() {
    let inside = inside();
    let quiet = descendants(inside.host.forker_id()).len();
    let line = "trap '' TERM HUP INT; (trap '' TERM; sleep 50) & setsid sleep 50 </dev/null >/dev/null 2>&1 &
        (setsid sh -c '(sleep 50) &' &) ; while :; do sleep 1; done";
    let ran = inside.call(shell(line), b"", Duration::from_millis(1000), 1 << 20);
    assert_eq!(ran.outcome.stopped_by, StoppedBy::Timeout);
    // The supervisor ends by itself when it has nothing left to wait for.
    while descendants(inside.host.forker_id()).len() > quiet {
        std::thread::yield_now();
    }
}

#[test]
fn r39_a_fork_bomb_is_held_and_everything_of_it_dies() {
    let inside = Inside::with(Tier::Confined, |plan| plan.limits.processes = 40);
    let quiet = descendants(inside.host.forker_id()).len();
    let bomb = "i=0; while [ $i -lt 400 ]; do sleep 20 & i=$((i+1)); done; wait";
    let ran = inside.call(shell(bomb), b"", Duration::from_secs(15), 1 << 20);
    assert_ne!(ran.outcome.ended, Ended::Exit(0), "{:?}", ran.outcome);
    while descendants(inside.host.forker_id()).len() > quiet {
        std::thread::yield_now();
    }
}

/// A bomb that leaves its session with every third process, and is ended whole with its sandbox.
#[test]
fn r56_a_fork_bomb_that_hides_in_sessions_does_not_outlive_its_sandbox() {
    let mut inside = Inside::with(Tier::Confined, |plan| plan.limits.processes = 200);
    let bomb = "import os,time
for i in range(2000):
    try: p=os.fork()
    except OSError: time.sleep(0.001); continue
    if p==0 and i%3==0: os.setsid()
time.sleep(60)";
    let forker = inside.host.forker_id();
    let program = format!("python3 -c '{bomb}' >/dev/null 2>&1 </dev/null & sleep 0.3");
    inside.sh(&program);
    inside.destroy();
    assert!(descendants(forker).is_empty());
}

#[test]
fn r56_the_private_folder_is_removed_whatever_a_guest_does_to_it() {
    let mut inside = inside();
    let tmp = inside.tmp_inside();
    assert_eq!(std::fs::metadata(&tmp).unwrap().mode() & 0o7777, 0o700);
    let program = "import os
t=os.environ['TMPDIR']
os.makedirs(t+'/a/b/c'); open(t+'/a/b/f','w').close(); os.symlink('/usr',t+'/a/l')
for d in ('/a/b','/a',''):
    f=os.open(t+d,os.O_RDONLY); os.fchmod(f,0)";
    assert_eq!(inside.python(program).err, "");
    inside.destroy();
    assert!(!std::path::Path::new(&tmp).exists());
    assert!(std::path::Path::new("/usr/bin/python3").exists());
}

#[test]
fn ordinary_programs_work_as_far_as_this_tier_goes() {
    let line = "set -e; ls -la . /usr/bin >/dev/null; stat /usr >/dev/null; du -s . >/dev/null; ln -s x l; ls -l l; \
        d=$(mktemp -d); printf '#!/bin/sh\\necho ran\\n' > $d/s; chmod +x $d/s; $d/s; cp $d/s copy; mv copy moved; touch -r moved stamped; \
        cat <(echo piped); echo x | tee /dev/stderr 2>/dev/null; mkdir -p a/b; rm -r a; \
        python3 -c \"import subprocess as s; print(s.run(['seq','3'],capture_output=True,text=True).stdout.split())\"";
    let argv = ["bash", "-c", line].map(str::to_owned).to_vec();
    let job = sandbox::Job::Exec { argv, env: Vec::new(), cwd: None, terminal: false };
    let ran = inside().call(job, b"", Duration::from_secs(60), 1 << 20);
    assert!(ran.out.ends_with("ran\npiped\nx\n['1', '2', '3']\n"), "{}{}", ran.out, ran.err);
}

#[test]
fn r55_the_report_says_what_this_tier_does_not_do() {
    let inside = inside();
    let report = inside.running().report();
    let state = |name: &str| report.layers.iter().find(|l| l.name == name).map(|l| l.state);
    assert_eq!(report.tier, Tier::Confined);
    assert_eq!(state("namespaces"), Some(sandbox::LayerState::None));
    assert_eq!(state("tmp"), Some(sandbox::LayerState::Part));
    for name in ["ids", "capabilities", "seccomp", "landlock", "signals", "network", "root", "view"] {
        assert_eq!(state(name), Some(sandbox::LayerState::Full), "{name}");
    }
}

/// The forker is what would end a sandbox; killed outright, it takes the sandbox along all the same.
#[test]
fn r56_a_killed_forker_leaves_no_process_of_a_sandbox() {
    let inside = inside();
    inside.sh("setsid sleep 1000 >/dev/null 2>&1 </dev/null &");
    let below = descendants(inside.host.forker_id());
    assert!(below.len() >= 4, "{below:?}");
    let forker =
        i32::try_from(inside.host.forker_id()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::kill_process(forker, rustix::process::Signal::KILL).unwrap();
    let alive = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
    };
    while below.iter().any(alive) {
        std::thread::yield_now();
    }
}

/// The kernel asks init there, and init does it in the workspace and the private folder only.
#[test]
fn modes_and_times_by_path_are_set_in_the_workspace_and_nowhere_else() {
    let inside = inside();
    let outside = inside.outside().join("canary");
    std::fs::write(&outside, "CANARY").unwrap();
    std::fs::set_permissions(&outside, PermissionsExt::from_mode(0o666)).unwrap();
    own(&outside);
    let program = format!(
        "import ctypes,os
l=ctypes.CDLL(None,use_errno=True); c={:?}
open('f','w').close(); os.mkdir('d'); os.symlink(c,'link'); os.symlink('f','own'); os.symlink(os.path.dirname(c),'up')
os.chmod('f',0o751); os.chmod('d',0o700); os.utime('f',(1,2)); os.chmod(os.path.abspath('own'),0o640)
d=os.open('d',os.O_RDONLY); open('d/g','w').close(); os.chmod('g',0o600,dir_fd=d); os.utime('d/g')
p=os.open('f',os.O_PATH); print('own', l.syscall(452,p,b'',0o600,0x1000), l.syscall(452,p,b'',0o640,0x1000))
print(oct(os.stat('f').st_mode), os.stat('f').st_mtime, oct(os.stat('d').st_mode), oct(os.stat('d/g').st_mode))
q=os.open(c,os.O_PATH); r=os.open('/',os.O_PATH)
def t(f):
    try: f(); print('REACHED')
    except OSError as e: print('blocked')
for p in (c,'link','up/canary','../canary','/proc/self/cwd/../canary','/proc/self/fd/%d'%q,'/usr','/proc/self/exe','/dev/null','/','..','/proc/1/cwd','/proc/%d/root'%os.getppid()):
    t(lambda: os.chmod(p,0o600)); t(lambda: os.utime(p,(1,1)))
t(lambda: os.chmod(c[1:],0o600,dir_fd=r)); t(lambda: os.chmod('',0o600)); t(lambda: os.utime('',(1,1))); t(lambda: os.chmod('x'*5000,0o600))
for a in ((q,b''),(99,b''),(99,b'f')): print('REACHED' if l.syscall(452,a[0],a[1],0o600,0x1000)==0 else 'blocked')
print('REACHED' if l.syscall(90,ctypes.c_ulong(1),0o600)==0 else 'blocked')
os.chdir(os.path.dirname(c)); t(lambda: os.chmod('canary',0o600))",
        outside.display().to_string()
    );
    let before = std::fs::metadata(&outside).unwrap();
    let ran = inside.python(&program);
    let mut lines = ran.out.lines();
    // A container's filter may be older than this call and refuse it before anybody is asked: outside as inside.
    let same = "import ctypes,os,sys; p=os.open(sys.argv[1],os.O_PATH); print(ctypes.CDLL(None).syscall(452,p,b'',0o666,0x1000))";
    #[expect(clippy::disallowed_methods, reason = "the same call where nothing of ours is asked")]
    let outer =
        std::process::Command::new("/usr/bin/python3").args(["-c", same]).arg(&outside).output().unwrap();
    let own = if outer.stdout == b"0\n" { "own 0 0" } else { "own -1 -1" };
    assert_eq!(lines.next(), Some(own), "{}{}", ran.out, ran.err);
    assert_eq!(lines.next(), Some("0o100640 2.0 0o40700 0o100600"), "{}", ran.out);
    assert_eq!(lines.clone().filter(|l| *l == "blocked").count(), lines.count(), "{}", ran.out);
    assert!(ran.err.is_empty(), "{}", ran.err);
    let after = std::fs::metadata(&outside).unwrap();
    assert_eq!((before.mode(), before.mtime()), (after.mode(), after.mtime()));
}

/// What a name means for whoever asks, it would mean for init: its own descriptors.
#[test]
fn a_file_is_meant_by_its_descriptors_name_as_everywhere() {
    let inside = inside();
    let ran = inside.python(
        "import os
for n,at in enumerate(('/proc/self/fd/%d','/dev/fd/%d','/proc/thread-self/fd/%d')):
    for name in ('f%d'%n,'g%d'%n):
        f=os.open(name,os.O_CREAT|os.O_RDWR,0o600)
        os.chmod(at%f,0o640+n)
    os.utime(at%f,(1,2))
os.dup2(f,0); os.chmod('/dev/stdin',0o644); print(oct(os.stat('g2').st_mode))",
    );
    assert_eq!(ran.out, "0o100644\n", "{}", ran.err);
    for (name, mode, time) in
        [("f0", 0o640, None), ("g0", 0o640, Some(2)), ("f1", 0o641, None), ("g1", 0o641, Some(2))]
    {
        let seen = std::fs::metadata(inside.workspace().join(name)).unwrap();
        assert_eq!(seen.mode() & 0o777, mode, "{name}");
        assert!(time.is_none_or(|time| seen.mtime() == time), "{name}");
    }
}

/// Whoever may answer the kernel's questions decides: a guest must not become that, nor get past them.
#[test]
fn a_guest_cannot_answer_the_questions_about_modes_itself() {
    let inside = inside();
    let outside = inside.outside().join("canary");
    std::fs::write(&outside, "CANARY").unwrap();
    own(&outside);
    let program = format!(
        "import ctypes,os,struct
l=ctypes.CDLL(None,use_errno=True)
ask=ctypes.create_string_buffer(struct.pack('HBBI',0x20,0,0,0)+struct.pack('HBBI',0x15,0,1,90)+struct.pack('HBBI',6,0,0,0x7fc00000)+struct.pack('HBBI',6,0,0,0x7fff0000))
p=ctypes.create_string_buffer(struct.pack('HxxxxxxQ',4,ctypes.addressof(ask)))
print(l.syscall(317,1,8,p), ctypes.get_errno(), l.syscall(317,1,0,p))
print(l.syscall(90,{:?}.encode(),0o600))",
        outside.display().to_string()
    );
    // EBUSY: there is one already. Without one, the question has no answer and is refused.
    assert_eq!(inside.python(&program).out, "-1 16 0\n-1\n");
}

#[test]
fn what_a_compiler_makes_can_be_run() {
    let inside = inside();
    let ran = inside.sh("printf 'int main(void){return 7;}' > a.c && cc a.c -o a && ./a");
    assert_eq!(ran.outcome.ended, Ended::Exit(7), "{}{}", ran.out, ran.err);
}

/// The private folder is made anew under a name that nobody can foresee, for the guest's id only: nothing that lies
/// there before can be in its place (bug class D-16).
#[test]
fn the_private_folder_has_a_name_that_cannot_be_foreseen() {
    let names: Vec<String> = (0..3)
        .map(|_| {
            let inside = inside();
            let tmp = inside.tmp_inside();
            let meta = std::fs::symlink_metadata(&tmp).unwrap();
            assert_eq!((meta.is_dir(), meta.mode() & 0o777), (true, 0o700));
            std::path::Path::new(&tmp).file_name().unwrap().to_str().unwrap().to_owned()
        })
        .collect();
    let random = names.iter().map(|n| n.strip_prefix(sandbox::PRIVATE).unwrap());
    let distinct: std::collections::BTreeSet<&str> = random.collect();
    assert!(distinct.len() == 3 && distinct.iter().all(|n| n.len() == 16), "{names:?}");
}
