//! What init sees of its own walls before any guest code has run.

use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::call::become_guest;
use super::module;
use crate::launch::Place;
use crate::sys::Fork;
use crate::wire::{Hello, Mend};
use crate::{filter, rules, sys};

/// Looks at everything that can be seen from inside, as a program of the guest would, and closes the faults of an
/// engine that a filter can close.
pub(super) fn measure(place: &Place) -> io::Result<Hello> {
    let mut hello = match place.guest {
        None => {
            let doomed = sys::Doomed::start()?;
            look(place, || doomed.was_killed())?
        }
        Some(id) => as_guest(id, place)?,
    };
    if hello.link_xattr == Mend::Broken && filter::without_link_xattrs().is_ok() {
        hello.link_xattr = Mend::Mended;
    }
    Ok(hello)
}

/// Looks from a process that has the guest's id, and ends it: how it ended is seen, too.
fn as_guest(id: u32, place: &Place) -> io::Result<Hello> {
    let (mut read, mut write) = io::pipe()?;
    let ending = sys::Ending::new()?;
    let Fork::Parent(pid) = sys::fork()? else {
        drop(read);
        let seen = become_guest(id).and_then(|()| look(place, || false));
        let told = seen.and_then(|hello| serde_json::to_vec(&hello).map_err(io::Error::other));
        if let Err(e) = told.and_then(|bytes| write.write_all(&bytes)) {
            // The log; init says that nothing came.
            writeln!(io::stderr(), "look as the guest: {e}").ok();
        }
        drop(write);
        ending.wait_for_it()
    };
    drop(write);
    let mut told = Vec::new();
    read.read_to_end(&mut told)?;
    let kills = ending.of(pid);
    Ok(Hello { kills, ..serde_json::from_slice(&told).map_err(io::Error::other)? })
}

/// `kills` says at last whether what was killed is dead, before anything else is started here.
fn look(place: &Place, kills: impl FnOnce() -> bool) -> io::Result<Hello> {
    // A home that can be written; programs expect one.
    match fs::create_dir(place.home()) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let uname = rustix::system::uname();
    let version = uname.version().to_string_lossy().into_owned();
    let release = uname.release().to_string_lossy().into_owned();
    // gVisor's own answer to uname and dmesg; a guest kernel's banner in /proc/version.
    let banner = sys::text("/proc/version").unwrap_or_default();
    let gvisor = is_gvisor(&banner, &version);
    // A fault of that engine alone. Looking makes a file and takes it away, and a file system without a journal is slow
    // to make others for seconds after that.
    let link_xattr = if gvisor && link_xattr_is_broken(place)? { Mend::Broken } else { Mend::Sound };
    let status = sys::text("/proc/self/status")?;
    Ok(Hello {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: field(&status, "Groups")
            .map_or(u32::MAX, |all| u32::try_from(all.split_whitespace().count()).unwrap_or(u32::MAX)),
        caps_effective: hex(&status, "CapEff"),
        caps_bounding: hex(&status, "CapBnd"),
        no_new_privs: rustix::thread::no_new_privs()?,
        seccomp: field(&status, "Seccomp").is_some_and(|v| v != "0"),
        filters: field(&status, "Seccomp_filters").and_then(|n| n.parse().ok()),
        tmp: [room_on(&place.tmp), room_on(Path::new("/dev/shm"))],
        disk: room_on(&place.workspace),
        // Of interest where it is the guest's own.
        memory: if place.counted { memory_of_kernel() } else { 0 },
        cores: cores(),
        interfaces: interfaces(),
        kernel: release,
        gvisor,
        // No filter helps: what programs fall back to is refused for the same flag.
        statx: if sys::statx_as_coreutils().is_ok() { Mend::Sound } else { Mend::Broken },
        link_xattr,
        kills: kills(),
        // Linux does what it takes; a filter may refuse it.
        subreaper: if gvisor { subreapers_work()? } else { asks_for_orphans().is_ok() },
        landlock: rules::enforced().to_owned(),
        landlock_version: rules::version(),
        core_limit: sys::soft_limit(libc::RLIMIT_CORE),
        processes_limit: sys::soft_limit(libc::RLIMIT_NPROC),
        tcp: tcp_room(),
        root_read_only: root_is_read_only(),
        outside_closed: ["/", "/root", "/home", "/var"].iter().all(|path| fs::read_dir(path).is_err()),
        no_sockets: sys::no_sockets(),
        signals_scoped: signals_are_scoped(),
        own_group: sys::text("/proc/self/cgroup").unwrap_or_default().trim() == "0::/guest",
        mounts: u32::try_from(sys::text("/proc/self/mounts").unwrap_or_default().lines().count())
            .unwrap_or(u32::MAX),
        modules: if place.modules { Some(module::prove(place)?) } else { None },
    })
}

/// gVisor's sentry names itself in its kernel log, and only there in all its versions.
fn is_gvisor(banner: &str, version: &str) -> bool {
    // Readable by everybody there, refused to a guest everywhere else.
    let log = sys::kernel_log().unwrap_or_default();
    log.contains("gVisor") || banner.contains("gVisor") || version.contains("gVisor")
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn hex(status: &str, name: &str) -> u64 {
    // A field that is missing counts as every capability: the report must not flatter.
    field(status, name).and_then(|v| u64::from_str_radix(v, 16).ok()).unwrap_or(u64::MAX)
}

/// Nothing where that cannot be seen.
fn room_on(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |room| room.f_blocks.saturating_mul(room.f_frsize))
}

fn memory_of_kernel() -> u64 {
    let text = sys::text("/proc/meminfo").unwrap_or_default();
    let kib = field(&text, "MemTotal").and_then(|v| v.strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// The largest of three numbers, of either direction.
fn tcp_room() -> u64 {
    let most = |file: &str| -> Option<u64> { sys::text(file).ok()?.split_whitespace().last()?.parse().ok() };
    let both = most("/proc/sys/net/ipv4/tcp_rmem").zip(most("/proc/sys/net/ipv4/tcp_wmem"));
    both.map_or(u64::MAX, |(into, out)| into.saturating_add(out))
}

fn cores() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(0, |cpus| cpus.count())
}

fn interfaces() -> Vec<String> {
    let text = sys::text("/proc/net/dev").unwrap_or_default();
    text.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

/// Init's parent has its ids where there is no namespace, so only a rule can come between them.
fn signals_are_scoped() -> bool {
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    parent > 1 && sys::kill(parent, 0).is_err_and(|e| e.raw_os_error() == Some(libc::EPERM))
}

fn root_is_read_only() -> bool {
    let probe = ["/.probe", "/usr/.probe", "/etc/.probe"];
    probe.iter().all(|path| match fs::write(path, b"") {
        Ok(()) => {
            // It should not have worked; it must not stay.
            drop(fs::remove_file(path));
            false
        }
        Err(_) => true,
    })
}

/// What `ls -l` does with a link. In the workspace, because faults depend on what serves the file.
fn link_xattr_is_broken(place: &Place) -> io::Result<bool> {
    let mut broken = false;
    for folder in [&place.tmp, &place.workspace] {
        let path = folder.join(format!(".link-{}", std::process::id()));
        match std::os::unix::fs::symlink("nowhere", &path) {
            Ok(()) => {}
            Err(_) => continue,
        }
        let c = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
        let answer = sys::link_xattr(&c).raw_os_error();
        broken |= !matches!(answer, Some(0 | libc::ENODATA | libc::ENOTSUP | libc::EPERM | libc::EACCES));
        fs::remove_file(&path)?;
    }
    Ok(broken)
}

fn asks_for_orphans() -> rustix::io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
}

/// An old gVisor takes the request and does nothing: only doing it tells. A reaper starts a process that starts
/// another and ends; whose child is the other then?
fn subreapers_work() -> io::Result<bool> {
    let (mut read, mut write) = io::pipe()?;
    if let Fork::Child = sys::fork()? {
        drop(read);
        let me = rustix::process::getpid();
        let asked = asks_for_orphans().is_ok();
        if let (true, Ok(Fork::Child)) = (asked, sys::fork()) {
            let parent = rustix::process::getpid();
            if let Ok(Fork::Child) = sys::fork() {
                // Bounded: the parent ends at once.
                while rustix::process::getppid() == Some(parent) {
                    std::thread::yield_now();
                }
                let adopted = rustix::process::getppid() == Some(me);
                write.write_all(&[u8::from(adopted)]).ok();
            }
            sys::exit_now(0)
        }
        drop(write);
        while sys::reap(true).is_some() {}
        sys::exit_now(0)
    }
    drop(write);
    let mut answer = Vec::new();
    read.read_to_end(&mut answer)?;
    while sys::reap(true).is_some() {}
    Ok(answer == [1])
}
