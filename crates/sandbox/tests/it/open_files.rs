//! What a guest of the confined tier may do to a file that it has open, for reading only: no path is asked about there.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::Tier;
use sandbox::Ended;
use tempfile::TempDir;

use crate::{Inside, own};

/// Every call that could change what the open file `d` is, and says which did.
const CHANGE: &str = "
import ctypes,fcntl,os,struct,sys
l=ctypes.CDLL(None,use_errno=True)
def t(n,f):
    try: f(); print('REACHED',n,flush=True)
    except OSError as e: print('blocked',n,e.errno,flush=True)
def s(n,*a):
    def call():
        if l.syscall(*[ctypes.c_long(x) if isinstance(x,int) else x for x in a])<0: raise OSError(ctypes.get_errno(),'')
    t(n,call)
def change(d):
    m=0x6f75626c69657474; name=('/proc/self/fd/%d'%d).encode(); one=(ctypes.c_long*4)(1,0,1,0)
    t('mode',lambda: os.fchmod(d,0o6777)); t('time',lambda: os.utime(d,(1,1))); s('now',280,d,None,None,0)
    t('owner',lambda: os.fchown(d,os.getuid(),-1)); t('attribute',lambda: os.setxattr(d,'user.x',b'x'))
    t('no attribute',lambda: os.removexattr(d,'user.was'))
    s('mode, empty path',452,d,b'',0o6777,0x1000); s('time, empty path',280,d,b'',one,0x1000); s('owner, empty path',260,d,b'',os.getuid(),-1,0x1000)
    t('mode, by number',lambda: os.chmod(name,0o6777)); t('time, by number',lambda: os.utime(name,(1,1)))
    for n,what in ((0x40086602,struct.pack('l',0x40)),(0x40046602,struct.pack('i',0x40)),(0x401c5820,struct.pack('I24x',0x40)),(0x40087602,struct.pack('l',7))):
        t('ioctl %x'%n,lambda: fcntl.ioctl(d,n,what))
    t('hint',lambda: fcntl.fcntl(d,1036,struct.pack('Q',2)))
    for n,a in (('mode',(91,d,0o6777,0,0,0)),('mode by name',(268,-100,name,0o6777,0,0)),('owner',(260,-100,name,os.getuid(),-1,0)),('time',(280,-100,name,one,0,0)),
                ('attribute',(188,name,b'user.x',b'x',1,0)),('no attribute',(197,name,b'user.was',0,0,0)),('open attribute',(190,d,b'user.x',b'x',1,0))):
        s('marked '+n,*a,m)
";

/// A file as open as it can be, with an attribute where the file system has any, and the guest's own.
fn canary(path: &Path) {
    fs::write(path, "CANARY").unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o666)).unwrap();
    rustix::fs::setxattr(path, "user.was", b"was", rustix::fs::XattrFlags::empty()).ok();
    own(path);
}

fn state(path: &Path) -> (u32, u32, i64, i64, Option<Vec<u8>>, bool) {
    let meta = fs::metadata(path).unwrap();
    let mut value = [0; 8];
    let was = rustix::fs::getxattr(path, "user.was", &mut value[..]).ok().map(|n| value[..n].to_vec());
    let x = rustix::fs::getxattr(path, "user.x", &mut value[..]).is_ok();
    (meta.mode(), meta.uid(), meta.mtime(), meta.ctime(), was, x)
}

/// A folder in a tree that is readable inside. An ordinary user cannot make one there: `scripts/test` does for it.
fn readable() -> Option<TempDir> {
    #[expect(clippy::disallowed_methods, reason = "scripts/test says where it made one")]
    let at = std::env::var_os("OUBLIETTE_TEST_READABLE").map_or("/usr/local/share".into(), PathBuf::from);
    let folder = tempfile::tempdir_in(at).ok()?;
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    Some(folder)
}

/// What the same calls do where nothing contains them: by the same id, to a file of the same kind.
fn outside(path: &Path) -> String {
    use std::os::unix::process::CommandExt;
    #[expect(clippy::disallowed_methods, reason = "the same calls where nothing of ours is asked")]
    let mut command = std::process::Command::new("/usr/bin/python3");
    command.args(["-c", &format!("{CHANGE}\nchange(os.open(sys.argv[1],os.O_RDONLY))")]).arg(path);
    if let Some((uid, gid)) = sandbox::guest_owner() {
        command.uid(uid).gid(gid);
    }
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

fn nothing_reached(out: &str, control: &str) {
    for name in ["mode", "time", "now", "owner", "mode, by number", "time, by number", "marked mode"] {
        assert!(control.lines().any(|l| l == format!("REACHED {name}")), "the control: {name}: {control}");
    }
    assert_eq!(out.lines().count(), control.lines().count(), "{out}");
    assert!(!out.contains("REACHED"), "{out}");
}

#[test]
fn r24_a_file_of_a_readable_tree_is_not_changed_by_a_descriptor_for_reading() {
    let Some(folder) = readable() else {
        #[expect(clippy::print_stderr, reason = "what could not be looked at is said")]
        {
            eprintln!(
                "no folder can be made in a readable tree: only a file that was moved away is looked at"
            );
        }
        return;
    };
    let [mine, control] = ["canary", "control"].map(|name| folder.path().join(name));
    canary(&mine);
    canary(&control);
    let before = state(&mine);
    let inside = Inside::new(Tier::Confined);
    let program = format!("{CHANGE}\nchange(os.open({:?},os.O_RDONLY))", mine.display().to_string());
    let ran = inside.python(&program);
    assert_eq!((ran.outcome.ended, ran.err.as_str()), (Ended::Exit(0), ""), "{}", ran.out);
    nothing_reached(&ran.out, &outside(&control));
    assert_eq!(state(&mine), before);
    assert_ne!(state(&control).0, before.0, "the control did change");
}

/// Judged is where it is when it is changed, whatever its name was when it was opened.
#[test]
fn r24_a_file_that_left_the_workspace_is_not_changed_by_a_descriptor_of_before() {
    let inside = Inside::new(Tier::Confined);
    let [from, to, control] =
        [inside.workspace().join("f"), inside.outside().join("moved"), inside.outside().join("control")];
    canary(&from);
    canary(&control);
    let ready = inside.workspace().join("ready");
    let mover = std::thread::spawn({
        let to = to.clone();
        move || {
            while !ready.exists() {
                std::thread::yield_now();
            }
            fs::rename(&from, &to).unwrap();
            state(&to)
        }
    });
    let program = format!(
        "{CHANGE}\nd=os.open('f',os.O_RDONLY); w=os.open('f',os.O_RDWR); open('ready','w').close()
import time
while os.path.exists('f'): time.sleep(0.001)
change(d); t('mode',lambda: os.fchmod(w,0o6777)); t('time',lambda: os.utime(w,(1,1)))"
    );
    let ran = inside.python(&program);
    let before = mover.join().unwrap();
    let control = format!("{}REACHED mode\nREACHED time\n", outside(&control));
    nothing_reached(&ran.out, &control);
    assert_eq!(state(&to), before);
}

#[test]
fn what_is_open_in_the_workspace_and_the_private_folder_can_be_changed_without_setuid() {
    let inside = Inside::new(Tier::Confined);
    let program = "
import os,tempfile,threading
for folder in ('.',os.environ['TMPDIR']):
    p=folder+'/f'; open(p,'w').write('x'); d=os.open(p,os.O_RDONLY)
    os.fchmod(d,0o6751); print(oct(os.fstat(d).st_mode), end=' ')
    os.fchmod(d,0); os.fchmod(d,0o640); os.utime(d,(3,4)); os.fchown(d,os.getuid(),os.getgid())
    print(oct(os.fstat(d).st_mode), os.fstat(d).st_atime, os.fstat(d).st_mtime, end=' ')
    os.utime(d); os.utime(d,ns=(1,1)); w=os.open(p,os.O_WRONLY); os.fchmod(w,0o600); os.unlink(p); os.fchmod(d,0o644)
    print(oct(os.fstat(w).st_mode), os.fstat(d).st_mtime_ns, end=' ')
    f=os.open(folder,os.O_RDONLY); os.fchmod(f,0o711); print(oct(os.fstat(f).st_mode), end=' ')
    b=threading.Thread(target=lambda: os.fchmod(d,0o604)); b.start(); b.join(); print(oct(os.fstat(d).st_mode), end=' ')
    n=tempfile.TemporaryFile(dir=folder); os.fchmod(n.fileno(),0o611); print(oct(os.fstat(n.fileno()).st_mode))
def e(f):
    try: f(); return 'let'
    except OSError as e: return e.errno
r,w=os.pipe()
print(e(lambda: os.fchmod(99,0)), e(lambda: os.utime(99)), e(lambda: os.fchown(-1,0,0)), e(lambda: os.fchmod(r,0o600)), e(lambda: os.fchown(d,0,0)))";
    let ran = inside.python(program);
    let line = "0o100751 0o100640 3.0 4.0 0o100644 1 0o40711 0o100604 0o100611\n";
    assert_eq!(ran.out, format!("{line}{line}9 9 9 95 1\n"), "{}", ran.err);
}

#[test]
fn attributes_of_an_open_file_in_the_workspace_are_set_where_the_file_system_has_any() {
    let inside = Inside::new(Tier::Confined);
    let there = inside.outside().join("there");
    canary(&there);
    let has = state(&there).4.is_some();
    let program = "
import os
d=os.open('f',os.O_RDWR|os.O_CREAT); big=b'v'*3000
def e(f):
    try: f(); return 'let'
    except OSError as e: return e.errno
print(e(lambda: os.setxattr(d,'user.x',b'one')), e(lambda: os.setxattr(d,'user.x',b'two',os.XATTR_CREATE)), e(lambda: os.setxattr(d,'user.big',big)), e(lambda: os.setxattr(d,'user.none',b'')))
print(sorted(os.listxattr(d)), os.getxattr(d,'user.x'), os.getxattr(d,'user.big')==big)
print(e(lambda: os.removexattr(d,'user.x')), e(lambda: os.removexattr(d,'user.x')), e(lambda: os.setxattr(d,'user.'+'n'*260,b'')), e(lambda: os.setxattr(d,'user.x',b'x'*70000)))";
    let ran = inside.python(program);
    if has {
        let want = "let 17 let let\n['user.big', 'user.none', 'user.x'] b'one' True\nlet 61 34 7\n";
        assert_eq!(ran.out, want, "{}", ran.err);
    } else {
        assert!(ran.out.starts_with("95 "), "{}{}", ran.out, ran.err);
    }
}

/// Programs that set modes and times of what they have open.
#[test]
fn archives_copies_and_repositories_keep_modes_and_times_in_the_workspace() {
    let inside = Inside::new(Tier::Confined);
    let line = "set -e; mkdir a; echo x > a/f; echo y > a/closed; chmod 751 a/f; touch -d @1000 a/f; chmod 0 a/closed; chmod 644 a/closed; chmod 750 a
        mkdir b; cp -p a/f b/f; tar cf t.tar a; mkdir c; tar xpf t.tar -C c; install -m 640 a/f d; python3 -c \"import shutil; shutil.copy2('a/f','e')\"
        stat -c '%a %Y' a/f b/f c/a/f e; stat -c %a c/a d
        if command -v git >/dev/null; then git init -q r; cd r; cp ../e e; git add e; git -c user.name=n -c user.email=e@e commit -qm m; git checkout -q -b other; git gc -q; git log --oneline | wc -l; else echo 1; fi";
    let ran = inside.call(crate::shell(line), b"", Duration::from_secs(60), 1 << 20);
    let same = "751 1000\n".repeat(4);
    assert_eq!(ran.out, format!("{same}750\n640\n1\n"), "{}", ran.err);
}

#[test]
fn of_ioctls_and_fcntls_those_that_programs_use_are_left() {
    let inside = Inside::new(Tier::Confined);
    let program = "
import fcntl,os,socket,struct
d=os.open('f',os.O_RDWR|os.O_CREAT); g=os.open('g',os.O_RDWR|os.O_CREAT); a,b=socket.socketpair(); b.send(b'xyz'); u=os.open('/dev/urandom',os.O_RDONLY)
def e(f):
    try: f(); return 'let'
    except OSError as e: return 'refused' if e.errno==1 else 'let'
def io(d,n,a): return e(lambda: fcntl.ioctl(d,n,a))
print(struct.unpack('i',fcntl.ioctl(a,0x541b,b'....'))[0], *[io(d,n,b'.'*64) for n in (0x5401,0x5413,0x5421,0x5451,0x80086601,0x801c581f,0xc020660b)], io(d,0x40049409,g), io(u,0x80045200,b'....'))
print(*[io(d,n,b'.'*64) for n in (0x5412,0x5423,0xc0189436,0x40086602,0x401c5820,0x40087602,0x6609,0x660c,0x800c6613,0x40806685,0x5000940e,0x5000940f,0xc028660f,0x40086602|1<<40)])
print(e(lambda: fcntl.fcntl(os.open('.',os.O_RDONLY),1026,4)), e(lambda: fcntl.fcntl(d,1038,struct.pack('Q',2))), e(lambda: fcntl.lockf(d,fcntl.LOCK_EX)), e(lambda: fcntl.fcntl(d,fcntl.F_GETFL)))";
    let ran = inside.python(program);
    let want = format!("3{}\n{}\nrefused refused let let\n", " let".repeat(9), ["refused"; 14].join(" "));
    assert_eq!(ran.out, want, "{}", ran.err);
}
