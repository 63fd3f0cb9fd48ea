//! What a guest sees of the host: a system it can read, a workspace it can write, nothing else.
//!
//! The view is an allow-list. Program trees come in whole and read-only; of `/etc` only named entries that hold
//! no secret; accounts, hosts and resolver are our own. Homes, `/root`, `/var`, `/run`, `/srv`, `/opt`, `/mnt`,
//! engine and session sockets and other runs are not hidden but absent.
//!
//! Sources are taken as *detached mount trees* before anything is covered: by the forker where it is root (so
//! that a sandbox's unprivileged id needs no way through private folders), by the new process itself otherwise.

use std::ffi::{CString, OsStr};
use std::fs::{self, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;

use crate::sys::{self, Forbid};

/// Trees of a host that hold programs and what they need to run.
const PROGRAMS: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Folders of `/etc` that programs read and that hold no secret.
const ETC_FOLDERS: [&str; 14] = [
    "alternatives",
    "ca-certificates",
    "emacs",
    "fonts",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.conf.d",
    "maven",
    "perl",
    "python3",
    "python3.11",
    "ssl/certs",
    "terminfo",
    "vim",
];

/// Files of `/etc` of the same kind; they are copied.
const ETC_FILES: [&str; 17] = [
    "bash.bashrc",
    "ca-certificates.conf",
    "debian_version",
    "gai.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "localtime",
    "magic",
    "mime.types",
    "os-release",
    "protocols",
    "rpc",
    "services",
    "shells",
    "ssl/openssl.cnf",
    "timezone",
];

/// Device nodes of a guest.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Files of `/proc` that tell of the machine and of nobody's processes.
const MACHINE: [&str; 16] = [
    "cpuinfo",
    "filesystems",
    "loadavg",
    "meminfo",
    "stat",
    "uptime",
    "version",
    "sys/fs/pipe-max-size",
    "sys/kernel/cap_last_cap",
    "sys/kernel/ngroups_max",
    "sys/kernel/osrelease",
    "sys/kernel/ostype",
    "sys/kernel/pid_max",
    "sys/net/core/somaxconn",
    "sys/vm/max_map_count",
    "sys/vm/overcommit_memory",
];

/// Where there is no view of its own: what of the host may be read (the first) and used as a device. `/proc` is
/// the whole system's there, so none of its folders of processes is among it, not even one's own.
pub(crate) fn open_parts() -> (Vec<(PathBuf, Metadata)>, Vec<PathBuf>) {
    let mut names = Names::default();
    let mut beneath =
        |folder: &str, all: &mut dyn Iterator<Item = &'static str>| -> Vec<(PathBuf, Metadata)> {
            all.filter_map(|name| names.real(&Path::new(folder).join(name))).collect()
        };
    let programs = beneath("/", &mut PROGRAMS.into_iter());
    let mut etc = beneath("/etc", &mut of_etc());
    etc.retain(|(_, meta)| meta.mode() & 0o004 != 0);
    let machine = beneath("/proc", &mut MACHINE.into_iter());
    let devices = beneath("/dev", &mut DEVICES.into_iter().filter(|name| *name != "tty"));
    (
        programs.into_iter().chain(etc).chain(machine).collect(),
        devices.into_iter().map(|(path, _)| path).collect(),
    )
}

/// Finds names without links; those of one folder one after the other, which is then walked once.
#[derive(Default)]
struct Names {
    folder: PathBuf,
    real: PathBuf,
}

impl Names {
    /// What a path means, and what is there.
    fn real(&mut self, path: &Path) -> Option<(PathBuf, Metadata)> {
        let (folder, name) = (path.parent()?, path.file_name()?);
        if self.folder != folder {
            self.real = fs::canonicalize(folder).ok()?;
            self.folder = folder.to_owned();
        }
        let at = self.real.join(name);
        let meta = fs::symlink_metadata(&at).ok()?;
        if !meta.is_symlink() {
            return Some((at, meta));
        }
        let real = fs::canonicalize(&at).ok()?;
        let meta = fs::symlink_metadata(&real).ok()?;
        Some((real, meta))
    }
}

/// Where the parts of the host's own system are, and what the copied ones hold: as whoever looks can see it.
#[derive(Debug)]
pub(crate) struct Survey {
    programs: Vec<(&'static str, PathBuf)>,
    etc: Vec<(&'static str, PathBuf)>,
    files: Vec<(&'static str, Vec<u8>)>,
}

/// Names in `/etc` that a guest sees, where they are.
pub(crate) fn of_etc() -> impl Iterator<Item = &'static str> {
    ETC_FOLDERS.into_iter().chain(ETC_FILES)
}

impl Survey {
    pub(crate) fn of_host() -> Survey {
        // A merged /usr has links at the root; what they mean is attached under their name.
        let there = |folder: &'static str| {
            move |name: &&'static str| {
                let path = Path::new(folder).join(name);
                match fs::symlink_metadata(&path).ok()? {
                    meta if meta.is_dir() => Some((*name, path, meta)),
                    meta if meta.is_symlink() => {
                        let real = fs::canonicalize(&path).ok()?;
                        let meta = fs::symlink_metadata(&real).ok()?;
                        meta.is_dir().then_some((*name, real, meta))
                    }
                    _ => None,
                }
            }
        };
        let real = |(name, real, _)| (name, real);
        let public = |(_, _, meta): &(&str, PathBuf, Metadata)| meta.mode() & 0o005 == 0o005;
        Survey {
            programs: PROGRAMS.iter().filter_map(there("/")).map(real).collect(),
            etc: ETC_FOLDERS.iter().filter_map(there("/etc")).filter(public).map(real).collect(),
            files: ETC_FILES.iter().filter_map(|name| Some((*name, public_file(name)?))).collect(),
        }
    }
}

/// What an ordinary user may not read is no business of a guest either.
fn public_file(name: &str) -> Option<Vec<u8>> {
    const LARGEST: u64 = 4 << 20;
    let file = fs::File::open(Path::new("/etc").join(name)).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.mode() & 0o004 == 0 || meta.len() >= LARGEST {
        return None;
    }
    // Room to see its end, and bounded whatever is written to it meanwhile.
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0) + 64);
    file.take(LARGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The trees that make a view, attached nowhere yet.
pub(crate) struct Trees {
    /// No system at all is in it.
    bare: bool,
    programs: Vec<(PathBuf, OwnedFd)>,
    etc: Vec<(PathBuf, OwnedFd)>,
    files: Vec<(&'static str, Vec<u8>)>,
    devices: Vec<(&'static str, OwnedFd)>,
}

/// One tree by path, read-only or not.
pub(crate) fn tree(path: &Path, forbid: Forbid) -> io::Result<OwnedFd> {
    let c = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let fd = sys::detached_tree(&c)?;
    sys::restrict_tree(fd.as_raw_fd(), forbid)?;
    Ok(fd)
}

/// Attaches a tree.
pub(crate) fn attach(tree: &OwnedFd, at: &Path) -> io::Result<()> {
    let c = CString::new(at.as_os_str().as_bytes()).map_err(io::Error::other)?;
    sys::attach_tree(tree.as_raw_fd(), &c)
}

impl Trees {
    /// The host's own system: its program trees and the harmless part of `/etc`.
    pub(crate) fn of_host(survey: Survey) -> io::Result<Trees> {
        let taken = |parts: Vec<(&str, PathBuf)>| -> io::Result<Vec<(PathBuf, OwnedFd)>> {
            let read_only =
                |(name, real): (&str, PathBuf)| Ok((name.into(), tree(&real, Forbid::SuidDevWrite)?));
            parts.into_iter().map(read_only).collect()
        };
        let (programs, etc) = (taken(survey.programs)?, taken(survey.etc)?);
        Ok(Trees { bare: false, programs, etc, files: survey.files, devices: devices()? })
    }

    /// A folder that holds a root file system of its own: taken as it is, read-only.
    pub(crate) fn of_folder(folder: &Path) -> io::Result<Trees> {
        let top = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut programs = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            let ours = ["proc", "dev", "sys", "tmp", "run", "workspace", "root", "home"];
            if ours.iter().any(|o| name == *o) {
                continue;
            }
            let Some(real) = inside(&top, &name)? else { continue };
            let tree = sys::detached_tree_of(real.as_raw_fd())?;
            sys::restrict_tree(tree.as_raw_fd(), Forbid::SuidDevWrite)?;
            programs.push((PathBuf::from(name), tree));
        }
        Ok(Trees { bare: false, programs, etc: Vec::new(), files: Vec::new(), devices: devices()? })
    }

    /// Devices only: the system is there by other means.
    pub(crate) fn of_devices() -> io::Result<Trees> {
        Ok(Trees {
            bare: false,
            programs: Vec::new(),
            etc: Vec::new(),
            files: Vec::new(),
            devices: devices()?,
        })
    }

    /// No system: for a sandbox in which no program runs.
    pub(crate) fn bare() -> io::Result<Trees> {
        Ok(Trees {
            bare: true,
            programs: Vec::new(),
            etc: Vec::new(),
            files: Vec::new(),
            devices: vec![device("null")?],
        })
    }

    /// Builds the system part of a view at `root`, an empty folder on a file system of ours; with a resolver, it is
    /// where programs look for one.
    pub(crate) fn build(&self, root: &Path, resolver: bool) -> io::Result<()> {
        if self.bare {
            for name in ["proc", "dev", "tmp", "workspace"] {
                fs::create_dir_all(root.join(name))?;
            }
            return Ok(());
        }
        for (name, tree) in &self.programs {
            let at = root.join(name);
            fs::create_dir_all(&at)?;
            attach(tree, &at)?;
        }
        for name in ["proc", "dev", "sys", "tmp", "run", "var", "workspace", "root", "home"] {
            fs::create_dir_all(root.join(name))?;
        }
        if !self.holds("var") {
            symlink("/tmp", root.join("var/tmp"))?;
        }
        if !self.holds("etc") {
            self.build_etc(&root.join("etc"), resolver)?;
        } else if resolver {
            name_resolver(root, &root.join("run"))?;
        }
        Ok(())
    }

    fn holds(&self, name: &str) -> bool {
        self.programs.iter().any(|(held, _)| held == Path::new(name))
    }

    fn build_etc(&self, etc: &Path, resolver: bool) -> io::Result<()> {
        let (resolv, nsswitch) = if resolver { RESOLVER } else { NO_RESOLVER };
        fs::create_dir_all(etc.join("ssl"))?;
        for (name, tree) in &self.etc {
            let at = etc.join(name);
            fs::create_dir_all(&at)?;
            attach(tree, &at)?;
        }
        for (name, bytes) in &self.files {
            write_sealed(&etc.join(name), bytes)?;
        }
        let own = [
            ("passwd", PASSWD),
            ("group", GROUP),
            ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n"),
            ("hostname", "sandbox\n"),
            ("resolv.conf", resolv),
            ("nsswitch.conf", nsswitch),
        ];
        for (name, text) in own {
            write_sealed(&etc.join(name), text.as_bytes())?;
        }
        Ok(())
    }

    /// Fills a `/dev` of ours.
    pub(crate) fn build_dev(&self, dev: &Path) -> io::Result<()> {
        for (name, tree) in &self.devices {
            fs::write(dev.join(name), b"")?;
            attach(tree, &dev.join(name))?;
        }
        for (name, target) in
            [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")]
        {
            symlink(target, dev.join(name))?;
        }
        fs::create_dir_all(dev.join("shm"))
    }
}

/// What programs read to find a resolver: `resolv.conf` and `nsswitch.conf`.
const NO_RESOLVER: (&str, &str) =
    ("# no resolver: the sandbox has no network\n", "passwd: files\ngroup: files\nhosts: files\n");
const RESOLVER: (&str, &str) =
    ("# granted names only\nnameserver 127.0.0.1\n", "passwd: files\ngroup: files\nhosts: files dns\n");

/// Names our resolver in a system that cannot be written, where it names another: a file of `aside` is put over its
/// own. Where there is none, programs look at this very address by themselves.
pub(crate) fn name_resolver(root: &Path, aside: &Path) -> io::Result<()> {
    let (resolv, nsswitch) = RESOLVER;
    for (name, text, ours) in
        [("resolv.conf", resolv, None), ("nsswitch.conf", nsswitch, Some(NO_RESOLVER.1))]
    {
        let at = root.join("etc").join(name);
        // A link would be followed to who knows where.
        if !fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_file()) {
            continue;
        }
        // A system's own order of lookups asks a resolver; ours without one does not.
        if ours.is_some_and(|ours| fs::read(&at).is_ok_and(|text| text != ours.as_bytes())) {
            continue;
        }
        let file = aside.join(name);
        write_sealed(&file, text.as_bytes())?;
        attach(&tree(&file, Forbid::SuidDevWrite)?, &at)?;
    }
    Ok(())
}

/// A new file that nobody writes again.
fn write_sealed(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::OpenOptions::new().write(true).create_new(true).mode(0o444).open(path)?.write_all(bytes)
}

const PASSWD: &str = "root:x:0:0:root:/tmp/home:/bin/sh\n\
    sandbox:x:1000:1000:sandbox:/tmp/home:/bin/sh\n\
    nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n";

/// The host's own nodes: used as ever, but their times, modes and owners are the host's to change.
fn devices() -> io::Result<Vec<(&'static str, OwnedFd)>> {
    DEVICES.into_iter().map(device).collect()
}

fn device(name: &'static str) -> io::Result<(&'static str, OwnedFd)> {
    Ok((name, tree(&Path::new("/dev").join(name), Forbid::Changes)?))
}

/// The folder that a name at the top of a root file system means, if it is one: links are followed as a guest would,
/// whose root that is. Somebody may be writing there, so what is found is held open, and no path is walked again.
fn inside(top: &OwnedFd, name: &OsStr) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    loop {
        return match openat2(top, name, flags, Mode::empty(), within) {
            Ok(folder) => Ok(Some(folder)),
            // Something was renamed meanwhile.
            Err(Errno::AGAIN | Errno::INTR) => continue,
            // A file, or a link that leads nowhere.
            Err(Errno::NOTDIR | Errno::NOENT | Errno::LOOP | Errno::XDEV) => Ok(None),
            Err(e) => Err(e.into()),
        };
    }
}
