//! The first process of a machine: brings the system up, starts init in namespaces of its own, sealed as in the
//! namespace tier, and writes out the workspace when that has ended on request.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};
use serde::{Deserialize, Serialize};

use super::{COLLECT, VSOCK_ARG, VSOCK_PORT, archive};
use crate::doors::{Doors, Layout};
use crate::init::Serves;
use crate::launch::{Bounds, Place};
use crate::sys::{self, Fork};
use crate::wire::{End, Frame, Hello, Kind, Whose};
use crate::{init, inside};

/// How long devices may take to appear.
const DEVICES: Duration = Duration::from_secs(20);
/// The highest priority that there is.
const FIRST: i32 = -20;
/// Where the guest's system is while it is put together.
const ROOT: &str = "/root";
/// The group of everything that is a guest's.
const GROUP: &str = "/cg/guest";

/// How the exchange drive begins. A file system made by `mke2fs` begins with zeros.
const MARK: &[u8; 16] = b"oubliette: given";

/// What the host hands in, at the start of the exchange drive, the mark and its length before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Handed {
    pub(super) env: Vec<(String, String)>,
    pub(super) bounds: Bounds,
    #[serde(default)]
    pub(super) doors: Doors,
}

impl Handed {
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let length = u32::try_from(json.len()).map_err(io::Error::other)?;
        Ok([MARK, &length.to_le_bytes()[..], &json].concat())
    }
}

/// Runs as the first process and never returns: the machine ends with it.
pub(crate) fn run() -> ! {
    if let Err(e) = live() {
        // The serial line; a failure to write it has no one left to hear of it.
        writeln!(io::stderr(), "machine: {e}").ok();
    }
    rustix::fs::sync();
    // Without a reboot allowed, this ends the monitor.
    rustix::system::reboot(rustix::system::RebootCommand::Restart).ok();
    sys::exit_now(70)
}

/// Names the step of a failure.
fn during<E: Into<io::Error>>(doing: &'static str) -> impl Fn(E) -> io::Error {
    move |e| io::Error::other(format!("{doing}: {}", e.into()))
}

fn live() -> io::Result<()> {
    sys::ignore_terminal_signals();
    let none = MountFlags::empty();
    mount("dev", "/dev", "devtmpfs", none, None).map_err(during("mount /dev"))?;
    mount("sys", "/sys", "sysfs", none, None).map_err(during("mount /sys"))?;
    mount("proc", "/proc", "proc", none, None).map_err(during("mount /proc"))?;
    first_among_all()?;
    load_modules()?;
    let port = if std::env::args().any(|word| word == VSOCK_ARG) {
        wait_for("the host", || sys::connect_to_host(VSOCK_PORT, DEVICES).ok().map(File::from))?
    } else {
        wait_for("the port", port)?
    };
    if drives()?.is_empty() {
        // Only to show that it starts: nothing to run is there.
        send(&port, Kind::Hello, &serde_json::to_vec(&Hello::default())?)?;
        hear_the_end(&port);
        return Ok(());
    }
    let exchange = wait_for("the exchange drive", || drive(Drive::Exchange))?;
    let handed = handed(&exchange)?;
    mount_system(&handed.bounds)?;
    let code = start_init(&handed, &port)?;
    if code == init::COLLECT_CODE {
        let result = collect(&exchange);
        let ended = match &result {
            Ok(_) => crate::Ended::Exit(0),
            Err(e) => crate::Ended::NotStarted(e.raw_os_error().unwrap_or(libc::EIO)),
        };
        let end = End {
            struck: None,
            ended,
            usage: crate::Usage::default(),
            background: 0,
            too_many_processes: false,
            out_of_memory: false,
            out_of_cpu: false,
            leftovers: None,
            disk_full: false,
            out_of_disk: false,
            kills: Whose::Its,
            refusals: Whose::Its,
        };
        send(&port, Kind::End, &serde_json::to_vec(&end)?)?;
        hear_the_end(&port);
        result?;
    }
    Ok(())
}

/// The host ends the machine when it has heard; a port that closed says the same. What was sent may still be on its
/// way through the monitor, and would be lost with it.
fn hear_the_end(mut port: &File) {
    port.read_exact(&mut [0]).ok();
}

fn send(mut port: &File, kind: Kind, payload: &[u8]) -> io::Result<()> {
    let call = if kind == Kind::End { COLLECT } else { 0 };
    port.write_all(&Frame::new(kind, call, payload.to_vec()).encode())
}

/// Init has bounds to hold and ends to tell while a guest uses all there is of a processor that may be a slow one: what
/// starts here comes before every guest, which gives that up (`init::call`). Kernels that weigh sessions would not look
/// at it.
fn first_among_all() -> io::Result<()> {
    match fs::write("/proc/sys/kernel/sched_autogroup_enabled", "0") {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(during("weigh processes")(e)),
        Ok(()) | Err(_) => {}
    }
    Ok(rustix::process::setpriority_process(None, FIRST)?)
}

fn load_modules() -> io::Result<()> {
    const COMPRESSED: i32 = 4;
    let mut modules: Vec<PathBuf> = fs::read_dir("/modules")?.flatten().map(|e| e.path()).collect();
    modules.sort();
    for path in modules {
        let packed = path.extension().is_some_and(|e| e != "ko");
        let file = File::open(&path)?;
        match rustix::system::finit_module(&file, c"", if packed { COMPRESSED } else { 0 }) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            // Told, not fatal: what is really missing shows at the next step.
            Err(e) => writeln!(io::stderr(), "module {}: {e}", path.display())?,
        }
    }
    Ok(())
}

fn wait_for<T>(what: &str, look: impl Fn() -> Option<T>) -> io::Result<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if began.elapsed() > DEVICES {
            return Err(io::Error::other(format!("{what} did not appear")));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The channel, open: its name is there a moment before it can be opened.
fn port() -> Option<File> {
    let mut names = fs::read_dir("/dev").ok()?.flatten().map(|e| e.path());
    let path = names.find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vport")))?;
    OpenOptions::new().read(true).write(true).open(path).ok()
}

/// What a drive is for. It is known by what it is: not every monitor gives serial numbers, and the order of names
/// is the kernel's. Nothing of a guest has run yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drive {
    /// The only one that cannot be written.
    Root,
    /// The one that begins with our own mark.
    Exchange,
    /// The other.
    Work,
}

fn drives() -> io::Result<Vec<PathBuf>> {
    let names = fs::read_dir("/sys/block")?.flatten().map(|e| e.file_name());
    Ok(names.filter(|n| n.to_string_lossy().starts_with("vd")).map(|n| Path::new("/dev").join(n)).collect())
}

fn drive(wanted: Drive) -> Option<PathBuf> {
    drives().ok()?.into_iter().find(|path| {
        let name = path.file_name().unwrap_or_default();
        let fixed = fs::read_to_string(Path::new("/sys/block").join(name).join("ro"));
        let kind = match fixed.as_deref().map(str::trim) {
            Ok("1") => Some(Drive::Root),
            Ok("0") => {
                let mut mark = [0; MARK.len()];
                let read = File::open(path).and_then(|mut file| file.read_exact(&mut mark));
                read.ok().map(|()| if mark == *MARK { Drive::Exchange } else { Drive::Work })
            }
            Ok(_) | Err(_) => None,
        };
        kind == Some(wanted)
    })
}

/// What is handed in, and is then there no more: who comes by that file later finds no secret in it. The mark stays, by
/// which the drive is known; results are written over it.
fn handed(exchange: &Path) -> io::Result<Handed> {
    let mut file = OpenOptions::new().read(true).write(true).open(exchange)?;
    file.read_exact(&mut [0; MARK.len()])?;
    let mut length = [0; 4];
    file.read_exact(&mut length)?;
    let length = u64::from(u32::from_le_bytes(length));
    let mut json = Vec::new();
    (&file).take(length).read_to_end(&mut json)?;
    let behind = u64::try_from(MARK.len()).map_err(io::Error::other)?;
    file.seek(io::SeekFrom::Start(behind))?;
    file.write_all(&vec![0; json.len() + 4])?;
    file.sync_all()?;
    Ok(serde_json::from_slice(&json)?)
}

fn mount_system(bounds: &Bounds) -> io::Result<()> {
    let quiet = MountFlags::NOSUID | MountFlags::NODEV;
    let root = wait_for("the system's drive", || drive(Drive::Root))?;
    mount(root, ROOT, "squashfs", quiet | MountFlags::RDONLY, None).map_err(during("mount the system"))?;
    let work = wait_for("the workspace's drive", || drive(Drive::Work))?;
    mount(work, format!("{ROOT}/workspace"), "ext4", quiet, None).map_err(during("mount the workspace"))?;
    // Made by mke2fs, of no use here.
    fs::remove_dir(format!("{ROOT}/workspace/lost+found")).ok();
    mount("cg", "/cg", "cgroup2", MountFlags::empty(), None).map_err(during("mount the groups"))?;
    fs::write("/cg/cgroup.subtree_control", "+pids +memory").map_err(during("hand controllers down"))?;
    fs::create_dir(GROUP)?;
    // Init and the supervisor of a call come on top of what a guest may have. The rlimit of its ids is wider, so that
    // this bound strikes first: it counts how often.
    fs::write(format!("{GROUP}/pids.max"), (u64::from(bounds.processes) + 2).to_string())
        .map_err(during("bound processes"))?;
    fs::write(format!("{GROUP}/memory.max"), bounds.memory.to_string()).map_err(during("bound memory"))
}

/// Starts init and waits for it; gives its exit status.
fn start_init(handed: &Handed, port: &File) -> io::Result<i32> {
    let events = |name: &str| File::open(format!("{GROUP}/{name}.events"));
    let (memory, pids) = (events("memory")?, events("pids")?);
    let streams: [OwnedFd; 4] =
        [port.try_clone()?.into(), port.try_clone()?.into(), memory.into(), pids.into()];
    // Above the numbers that they are to have.
    let streams = streams.map(|fd| rustix::io::fcntl_dupfd_cloexec(&fd, 64));
    let layout = Layout::of(&handed.doors).map_err(io::Error::other)?;
    let spaces = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    let child = match sys::clone_into(u64::try_from(spaces).unwrap_or_default())? {
        Fork::Parent(pid) => pid,
        Fork::Child => {
            let entered = fs::write(format!("{GROUP}/cgroup.procs"), "0")
                .map_err(during("enter the group"))
                .and_then(|()| inside::enter_machine(Path::new(ROOT), &handed.bounds, layout.as_ref()))
                .and_then(|sockets| place(&streams, sockets));
            if let Err(e) = entered {
                writeln!(io::stderr(), "machine: {e}").ok();
                sys::exit_now(70);
            }
            std::mem::forget(streams);
            let serves = layout.map_or(Serves::Nothing, |layout| Serves::Has(layout.doors));
            init::run(&handed.env, &handed.bounds, Place { counted: true, ..Place::own() }, &serves)
        }
    };
    drop(streams);
    while let Some(reaped) = sys::reap(true) {
        if reaped.pid == child {
            return Ok(match reaped.ended {
                crate::Ended::Exit(code) => code,
                crate::Ended::Signal(signal) => 128 + signal,
                crate::Ended::NotStarted(_) | crate::Ended::Unknown => 70,
            });
        }
    }
    Err(io::Error::other("init was lost"))
}

/// The channel as 0 and 1, the counters of the group behind the log, and the sockets of the doors.
fn place(streams: &[rustix::io::Result<OwnedFd>; 4], sockets: Vec<OwnedFd>) -> io::Result<()> {
    // Above the numbers that they are to have.
    let sockets: Vec<rustix::io::Result<OwnedFd>> =
        sockets.into_iter().map(|fd| rustix::io::fcntl_dupfd_cloexec(&fd, 512)).collect();
    for (number, fd) in [0, 1, init::MEMORY_EVENTS, init::PIDS_EVENTS].into_iter().zip(streams) {
        sys::place_fd(fd.as_ref().map_err(|e| io::Error::from(*e))?.as_raw_fd(), number)?;
    }
    for (number, fd) in (init::DOORS_FD..).zip(sockets) {
        sys::place_fd(fd?.as_raw_fd(), number)?;
    }
    Ok(())
}

/// Writes the workspace to the exchange drive. No guest process lives: init was the first of their namespace.
fn collect(exchange: &Path) -> io::Result<u64> {
    sys::set_limit(libc::RLIMIT_NOFILE, 4096, 4096)?;
    let drive = OpenOptions::new().write(true).open(exchange)?;
    let mut out = BufWriter::with_capacity(1 << 20, drive);
    let entries = archive::write(&format!("{ROOT}/workspace"), &mut out)?;
    out.into_inner().map_err(|e| e.into_error())?.sync_all()?;
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_in_is_overwritten_when_it_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let drive = folder.path().join("exchange");
        let env = vec![("TOKEN".to_owned(), "very-secret".to_owned())];
        let bounds = crate::machine::prepare::small();
        let given = Handed { env: env.clone(), bounds, doors: Doors::default() };
        fs::write(&drive, given.encode().unwrap()).unwrap();
        let holds = || String::from_utf8_lossy(&fs::read(&drive).unwrap()).contains("very-secret");
        assert!(holds());
        assert_eq!(handed(&drive).unwrap().env, env);
        assert!(!holds());
        // By that it is still known.
        assert!(fs::read(&drive).unwrap().starts_with(MARK));
    }
}
