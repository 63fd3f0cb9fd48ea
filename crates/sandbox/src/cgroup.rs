//! Limits of the kernel's control groups, where the executor may make one. What is missing is told, never assumed.
//!
//! Where groups go, and by which version, is found in `place.rs`; the leaf that v2 asks for is `leaf.rs`; here are the
//! groups of one sandbox.

mod leaf;
mod place;

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::launch::{Backend, Bounds, CgroupSeen, Counters, Held};
use crate::machine;

pub(crate) use place::Places;

const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
/// Counts processor time in v1, where it is not one with `cpu`; it bounds nothing.
const COUNTER: &str = "cpuacct";
/// Microseconds of one accounting period, the kernel's default.
const PERIOD_US: u64 = 100_000;
/// What a sandbox counts where others want the same processors, of the usual 100: three quarters of a core are left to one
/// neighbour on it.
const WEIGHT: u64 = 33;
/// The usual weight in v1 is 1024.
const SHARES: u64 = 1024 / 100;
/// A group is empty for a moment before its sandbox enters it, far shorter than this.
const YOUNG: Duration = Duration::from_secs(2);
/// Prefix of every group of ours, so that leftovers can be told.
const PREFIX: &str = "oubliette-";

/// Which of the kernel's two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The groups of one sandbox; removed by [`Cgroup::remove`].
#[derive(Debug, Default)]
pub(crate) struct Cgroup {
    name: String,
    groups: Vec<Group>,
    missing: Vec<(&'static str, String)>,
    /// The host has swap that the bound on memory does not hold.
    swap: bool,
    doors: Vec<OwnedFd>,
    /// The folder of v2, into which a new process can be started.
    start: Option<OwnedFd>,
}

/// Where one controller holds; v2 has one folder for all of them.
#[derive(Debug)]
struct Group {
    version: Version,
    controller: &'static str,
    folder: PathBuf,
}

/// Open `tasks` files of the groups of v1. To move another process the kernel stops forks and exits of the whole
/// machine, which takes some ten milliseconds; a thread that moves itself is moved at once.
pub(crate) struct Doors(Vec<OwnedFd>);

impl Doors {
    /// Goes in, and closes the doors. The caller has one thread.
    pub(crate) fn enter(self) -> io::Result<()> {
        self.0.into_iter().try_for_each(|door| fs::File::from(door).write_all(b"0"))
    }
}

impl Cgroup {
    /// Makes the groups of a sandbox and sets its limits. Never fails: what could not be had is told.
    pub(crate) fn make(places: &Places, id: u64, backend: &Backend, bounds: &Bounds) -> Cgroup {
        let mut bounds = bounds.clone();
        if let Backend::Microvm { .. } = backend {
            // The monitor needs some of its own.
            bounds.memory = machine::memory_with_monitor(&bounds);
        }
        let processes = most_processes(backend, &bounds);
        let own_name = format!("{PREFIX}{}-{id}", own_name());
        let mut made = Cgroup { name: places.name(), missing: places.missing.clone(), ..Cgroup::default() };
        for own in &places.own {
            let folder = own.folder.join(&own_name);
            let shared = made.groups.iter().any(|g| g.folder == folder);
            let fresh = if shared { Ok(()) } else { fresh(own.version, &folder) };
            let set = fresh
                .and_then(|()| limit(own.version, own.controller, &folder, &bounds, processes))
                .and_then(|()| made.open(own.version, &folder));
            match set {
                Ok(()) => {
                    made.swap |= own.controller == "memory"
                        && swaps(own.version, &folder, bounds.memory, &list_of_swap());
                    made.groups.push(Group { version: own.version, controller: own.controller, folder });
                }
                Err(e) => {
                    // Nothing is bounded by it: without it init adds up.
                    if own.controller != COUNTER {
                        made.missing.push((own.controller, kind_word(&e)));
                    }
                    // A group without its limit is of no use; one shared with others is kept.
                    if !shared {
                        drop(fs::remove_dir(&folder));
                    }
                }
            }
        }
        made
    }

    /// Opens the way in.
    fn open(&mut self, version: Version, folder: &Path) -> io::Result<()> {
        match version {
            Version::V1 => {
                self.doors.push(fs::OpenOptions::new().write(true).open(folder.join("tasks"))?.into());
            }
            Version::V2 => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                self.start = Some(rustix::fs::open(folder, flags, Mode::empty())?);
            }
        }
        Ok(())
    }

    /// What it holds of what could be held otherwise.
    pub(crate) fn held(&self) -> Held {
        Held { memory: self.holds("memory"), processes: self.holds("pids"), cores: self.holds("cpu") }
    }

    /// Whether a limit of this controller is in force.
    fn holds(&self, controller: &str) -> bool {
        self.groups.iter().any(|group| group.controller == controller)
    }

    /// The ways in for a new process that goes in by itself, taken; none where it is started in it or put in.
    pub(crate) fn doors(&mut self) -> Doors {
        Doors(std::mem::take(&mut self.doors))
    }

    /// The group that a new process can be started in, which costs no stop of the machine's forks.
    pub(crate) fn start(&self) -> Option<BorrowedFd<'_>> {
        self.start.as_ref().map(AsFd::as_fd)
    }

    /// Puts a process in that was not started there; its children follow.
    pub(crate) fn enter(&self, pid: i32) -> io::Result<()> {
        match self.v2() {
            Some(folder) => fs::write(folder.join("cgroup.procs"), pid.to_string()),
            None => Ok(()),
        }
    }

    /// Kills all that is in it by one write, however it forks. Only v2 can (Linux 5.14), and nobody relies on it
    /// alone.
    pub(crate) fn kill(&self) {
        if let Some(folder) = self.v2() {
            // Never made where the kernel has none.
            let file = fs::OpenOptions::new().write(true).open(folder.join("cgroup.kill"));
            file.and_then(|mut file| file.write_all(b"1")).ok();
        }
    }

    fn v2(&self) -> Option<&Path> {
        self.groups.iter().find(|group| group.version == Version::V2).map(|group| group.folder.as_path())
    }

    /// The kernel's kill counters; none where one of them cannot be read now. Taken for nought, it would seem to have
    /// risen the next time.
    pub(crate) fn counters(&self) -> Option<Counters> {
        let mut counters = Counters::default();
        for Group { version, controller, folder } in &self.groups {
            match (*controller, version) {
                ("memory", Version::V1) => {
                    counters.oom_kills = value(&folder.join("memory.oom_control"), "oom_kill")?;
                }
                ("memory", Version::V2) => {
                    counters.oom_kills = value(&folder.join("memory.events"), "oom_kill")?;
                }
                ("pids", _) => counters.forks_refused = value(&folder.join("pids.events"), "max")?,
                _ => {}
            }
        }
        Some(counters)
    }

    /// What is in force, for the report.
    pub(crate) fn seen(&self) -> CgroupSeen {
        CgroupSeen {
            name: if self.groups.is_empty() { String::new() } else { self.name.clone() },
            controllers: CONTROLLERS.into_iter().filter(|c| self.holds(c)).map(str::to_owned).collect(),
            missing: self.missing.iter().map(|(c, why)| ((*c).to_owned(), why.clone())).collect(),
            clock: self.clock(),
            swap: self.swap,
        }
    }

    /// The file that tells the processor time of all that ever ran in it.
    fn clock(&self) -> Option<PathBuf> {
        let file = |group: &Group| match group.version {
            Version::V1 => group.folder.join("cpuacct.usage"),
            Version::V2 => group.folder.join("cpu.stat"),
        };
        self.groups.iter().map(file).find(|file| file.exists())
    }

    /// Removes the groups; their processes must be gone. Says what could not be removed.
    pub(crate) fn remove(&mut self) -> io::Result<()> {
        let mut last = Ok(());
        // What is still busy is kept, for another try.
        self.groups.retain(|group| match fs::remove_dir(&group.folder) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                last = Err(e);
                true
            }
            Err(_) | Ok(()) => false,
        });
        last
    }
}

/// Removes empty groups that a forker left which was killed before it could. Those in use cannot be removed.
pub(crate) fn sweep(places: &Places) {
    for own in &places.own {
        let Ok(dir) = fs::read_dir(&own.folder) else { continue };
        for entry in dir.flatten() {
            let name = entry.file_name();
            let Some((pid, of)) = name.to_str().and_then(maker) else { continue };
            // A forker's number means nothing here when it is in another pid namespace: then only its age tells, for a
            // sandbox that is there keeps its group from being removed.
            let lives =
                of.is_none_or(|of| of == pid_namespace()) && Path::new(&format!("/proc/{pid}")).exists();
            let made = entry.metadata().and_then(|m| m.modified()).ok();
            let old = made.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > YOUNG);
            if old && !lives {
                // Another start may be quicker.
                drop(fs::remove_dir(entry.path()));
            }
        }
    }
}

/// What tells this forker from all others that may make groups in the same place: its number, and the pid namespace
/// that this is one in. Two containers that were given one group have the same numbers.
fn own_name() -> String {
    format!("{}-{}", std::process::id(), pid_namespace())
}

fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// The forker that made a group of this name, and its pid namespace, which names of earlier versions do not tell.
fn maker(name: &str) -> Option<(u32, Option<u64>)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let (pid, next, last) = (parts.next()?.parse().ok()?, parts.next()?, parts.next());
    match last {
        None => Some((pid, None)),
        Some(_) => Some((pid, Some(next.parse().ok()?))),
    }
}

/// A new group, that processes can be in.
fn fresh(version: Version, folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        // Left by a dead forker that had our number.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_dir(folder)?;
            fs::create_dir(folder)?;
        }
        other => other?,
    }
    match version {
        Version::V1 => Ok(()),
        Version::V2 => match fs::read_to_string(folder.join("cgroup.type"))?.trim() {
            "domain" => Ok(()),
            other => Err(io::Error::other(format!("its groups are of the type `{other}`"))),
        },
    }
}

/// An error of the system's in the words of its kind; one of our own as it is.
fn kind_word(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(_) => e.kind().to_string(),
        None => e.to_string(),
    }
}

/// What the pids controller is set to.
fn most_processes(backend: &Backend, bounds: &Bounds) -> u64 {
    let guest = u64::from(bounds.processes);
    match backend {
        // Init and the supervisor of a call come on top of what a guest may have.
        Backend::Namespace => guest + 2,
        // And a sentinel.
        Backend::Confined => guest + 3,
        Backend::Gvisor { .. } => bounds.engine_threads(),
        Backend::Microvm { .. } => machine::MONITOR_THREADS,
    }
}

fn limit(
    version: Version,
    controller: &str,
    folder: &Path,
    bounds: &Bounds,
    processes: u64,
) -> io::Result<()> {
    let quota = u64::from(bounds.cores) * PERIOD_US;
    let set = |file: &str, value: String| fs::write(folder.join(file), value);
    match (version, controller) {
        (Version::V2, "memory") => {
            set("memory.max", bounds.memory.to_string())?;
            // Without swap where there is any: a kernel without swap accounting has no such file.
            optional(set("memory.swap.max", "0".to_owned()))
        }
        (Version::V1, "memory") => {
            set("memory.limit_in_bytes", bounds.memory.to_string())?;
            optional(set("memory.memsw.limit_in_bytes", bounds.memory.to_string()))
        }
        (_, "pids") => set("pids.max", processes.to_string()),
        (_, COUNTER) => Ok(()),
        (Version::V2, _) => {
            set("cpu.max", format!("{quota} {PERIOD_US}"))?;
            set("cpu.weight", WEIGHT.to_string())
        }
        (Version::V1, _) => {
            set("cpu.cfs_period_us", PERIOD_US.to_string())?;
            set("cpu.cfs_quota_us", quota.to_string())?;
            set("cpu.shares", (WEIGHT * SHARES).to_string())
        }
    }
}

fn optional(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => Ok(()),
        other => other,
    }
}

/// The host's swap: a head, and a line for each. A list that is not there is that of a kernel without swap.
fn list_of_swap() -> String {
    fs::read_to_string("/proc/swaps").unwrap_or_default()
}

/// Whether something of the host's swap is left to a group. What was set is read again: a setting that could not be made
/// is passed over, for most hosts that lack it have no swap.
fn swaps(version: Version, folder: &Path, memory: u64, list: &str) -> bool {
    let (file, most) = match version {
        Version::V2 => ("memory.swap.max", 0),
        Version::V1 => ("memory.memsw.limit_in_bytes", memory),
    };
    let set = fs::read_to_string(folder.join(file)).ok().and_then(|text| text.trim().parse::<u64>().ok());
    list.lines().nth(1).is_some() && set.is_none_or(|set| set > most)
}

/// `name value` lines of a counter file: nought where it has no such line (a kernel that does not count it), and nothing
/// where it cannot be read.
fn value(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let told = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
    Some(told.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_cannot_be_read_is_not_nought() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("memory.oom_control");
        assert_eq!(value(&file, "oom_kill"), None);
        fs::write(&file, "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n").unwrap();
        assert_eq!(value(&file, "oom_kill"), Some(3));
        // A kernel before 4.13 does not count them.
        fs::write(&file, "oom_kill_disable 0\nunder_oom 0\n").unwrap();
        assert_eq!(value(&file, "oom_kill"), Some(0));
    }

    #[test]
    fn a_group_that_is_busy_once_is_removed_the_next_time() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("group");
        fs::create_dir_all(folder.join("busy")).unwrap();
        let group = Group { version: Version::V1, controller: "pids", folder: folder.clone() };
        let mut group = Cgroup { groups: vec![group], ..Cgroup::default() };
        assert!(group.remove().is_err());
        fs::remove_dir(folder.join("busy")).unwrap();
        group.remove().unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn r57_swap_that_a_group_does_not_bound_is_seen() {
        let some = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/dm-1 partition\t1000\t0\t-2\n";
        for (version, file, held, open) in [
            (Version::V2, "memory.swap.max", "0\n", ["max\n", "4096\n"]),
            (Version::V1, "memory.memsw.limit_in_bytes", "1048576\n", ["9223372036854771712\n", "1052672\n"]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let seen = |list: &str| swaps(version, dir.path(), 1 << 20, list);
            // A kernel that does not account for it.
            assert!(seen(some) && !seen("Filename\n") && !seen(""));
            for text in open {
                fs::write(dir.path().join(file), text).unwrap();
                assert!(seen(some), "{text}");
            }
            fs::write(dir.path().join(file), held).unwrap();
            assert!(!seen(some));
        }
    }

    #[test]
    fn only_names_of_ours_tell_their_maker() {
        assert_eq!(maker("oubliette-12-3"), Some((12, None)));
        assert_eq!(maker("oubliette-12-4026531836-3"), Some((12, Some(4_026_531_836))));
        assert_eq!(
            maker(&format!("{PREFIX}{}-1", own_name())),
            Some((std::process::id(), Some(pid_namespace())))
        );
        for other in [
            "oubliette-executor-12",
            "oubliette-executor-12-9",
            "oubliette-12",
            "system.slice",
            "oubliette--1",
        ] {
            assert_eq!(maker(other), None, "{other}");
        }
    }
}
