//! Limits of the kernel's control groups, where the executor may make one: v2 if its controllers are there, v1
//! otherwise, none where neither is ours. What is missing is told, never assumed.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::launch::{Backend, Bounds, CgroupSeen, Counters, Held};
use crate::{machine, sys};

const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
/// Microseconds of one accounting period, the kernel's default.
const PERIOD_US: u64 = 100_000;
/// A group is empty for a moment before its sandbox enters it, far shorter than this.
const YOUNG: Duration = Duration::from_secs(2);
/// Prefix of every group of ours, so that leftovers can be told.
const PREFIX: &str = "oubliette-";

/// The groups of one sandbox; removed by [`Cgroup::remove`].
#[derive(Debug, Default)]
pub(crate) struct Cgroup {
    version: &'static str,
    /// Controller and folder; one folder for all of them in v2.
    folders: Vec<(&'static str, PathBuf)>,
    missing: Vec<String>,
    doors: Vec<OwnedFd>,
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

/// Where groups may be made: per controller, the folder of the executor's own group.
#[derive(Debug)]
pub(crate) struct Own {
    version: &'static str,
    controller: &'static str,
    folder: PathBuf,
}

impl Cgroup {
    /// Makes the groups of a sandbox and sets its limits. Never fails: what could not be had is told.
    pub(crate) fn make(own: &[Own], id: u64, backend: &Backend, bounds: &Bounds) -> Cgroup {
        let mut bounds = bounds.clone();
        if let Backend::Microvm { .. } = backend {
            // The machine's memory is the guest's; the monitor needs some of its own.
            bounds.memory = bounds.memory.saturating_add(machine::MONITOR_MEMORY);
        }
        let bounds = &bounds;
        let name = format!("{PREFIX}{}-{id}", std::process::id());
        let mut group = Cgroup::default();
        for own in own {
            let folder = own.folder.join(&name);
            let made = match fs::create_dir(&folder) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                other => other,
            };
            match made
                .and_then(|()| {
                    limit(own.version, own.controller, &folder, bounds, most_processes(backend, bounds))
                })
                .and_then(|()| door(own.version, &folder))
            {
                Ok(door) => {
                    group.version = own.version;
                    group.doors.extend(door);
                    group.folders.push((own.controller, folder));
                }
                Err(e) => {
                    group.missing.push(format!("{}: {}", own.controller, e.kind()));
                    // A group without its limit is of no use; one shared with others is kept.
                    if !group.folders.iter().any(|(_, f)| *f == folder) {
                        drop(fs::remove_dir(&folder));
                    }
                }
            }
        }
        for controller in CONTROLLERS {
            let told = |m: &String| m.starts_with(controller);
            if !group.holds(controller) && !group.missing.iter().any(told) {
                group.missing.push(format!("{controller}: no such controller here"));
            }
        }
        group
    }

    /// What it holds of what could be held otherwise.
    pub(crate) fn held(&self) -> Held {
        Held { memory: self.holds("memory"), processes: self.holds("pids"), cores: self.holds("cpu") }
    }

    /// Whether a limit of this controller is in force.
    fn holds(&self, controller: &str) -> bool {
        self.folders.iter().any(|(name, _)| *name == controller)
    }

    /// The ways in for a new process that goes in by itself, taken; none where it must be put in.
    pub(crate) fn doors(&mut self) -> Doors {
        Doors(std::mem::take(&mut self.doors))
    }

    /// Puts a process in that has no doors; its children follow.
    pub(crate) fn enter(&self, pid: i32) -> io::Result<()> {
        if self.version != "v1" {
            for (_, folder) in &self.folders {
                fs::write(folder.join("cgroup.procs"), pid.to_string())?;
            }
        }
        Ok(())
    }

    /// The kernel's kill counters.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        for (controller, folder) in &self.folders {
            match *controller {
                "memory" => {
                    let file = if self.version == "v2" { "memory.events" } else { "memory.oom_control" };
                    counters.oom_kills = value(&folder.join(file), "oom_kill");
                }
                "pids" => counters.forks_refused = value(&folder.join("pids.events"), "max"),
                _ => {}
            }
        }
        counters
    }

    /// What is in force, for the report.
    pub(crate) fn seen(&self) -> CgroupSeen {
        CgroupSeen {
            version: self.version.to_owned(),
            controllers: self.folders.iter().map(|(name, _)| (*name).to_owned()).collect(),
            missing: self.missing.join(", "),
        }
    }

    /// Removes the groups; their processes must be gone. Says what could not be removed.
    pub(crate) fn remove(&mut self) -> io::Result<()> {
        let mut last = Ok(());
        // What is still busy is kept, for another try.
        self.folders.retain(|(_, folder)| match fs::remove_dir(folder) {
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
pub(crate) fn sweep(own: &[Own]) {
    for own in own {
        let Ok(dir) = fs::read_dir(&own.folder) else { continue };
        for entry in dir.flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(maker) else { continue };
            // A young one may be of a forker whose number means nothing here, in another pid namespace.
            let made = entry.metadata().and_then(|m| m.modified()).ok();
            let old = made.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > YOUNG);
            if old && !Path::new(&format!("/proc/{pid}")).exists() {
                // Another start may be quicker.
                drop(fs::remove_dir(entry.path()));
            }
        }
    }
}

/// The forker that made a group of this name.
fn maker(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

fn door(version: &str, folder: &Path) -> io::Result<Option<OwnedFd>> {
    let open = || Ok(fs::OpenOptions::new().write(true).open(folder.join("tasks"))?.into());
    (version == "v1").then(open).transpose()
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

fn limit(version: &str, controller: &str, folder: &Path, bounds: &Bounds, processes: u64) -> io::Result<()> {
    let quota = u64::from(bounds.cores) * PERIOD_US;
    let set = |file: &str, value: String| fs::write(folder.join(file), value);
    match (version, controller) {
        ("v2", "memory") => {
            set("memory.max", bounds.memory.to_string())?;
            // Without swap where there is any: a kernel without swap accounting has no such file.
            optional(set("memory.swap.max", "0".to_owned()))
        }
        (_, "memory") => {
            set("memory.limit_in_bytes", bounds.memory.to_string())?;
            optional(set("memory.memsw.limit_in_bytes", bounds.memory.to_string()))
        }
        (_, "pids") => set("pids.max", processes.to_string()),
        ("v2", _) => set("cpu.max", format!("{quota} {PERIOD_US}")),
        _ => {
            set("cpu.cfs_period_us", PERIOD_US.to_string())?;
            set("cpu.cfs_quota_us", quota.to_string())
        }
    }
}

fn optional(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => Ok(()),
        other => other,
    }
}

/// `name value` lines of a counter file.
fn value(file: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok()).unwrap_or(0)
}

/// Where the groups of sandboxes may be made.
pub(crate) fn own_groups() -> Vec<Own> {
    let groups = sys::text("/proc/self/cgroup").unwrap_or_default();
    let mounts = sys::text("/proc/self/mountinfo").unwrap_or_default();
    find(&groups, &mounts)
}

/// Matches `/proc/self/cgroup` with the mounts: `(controller, folder)` of our own group.
fn find(groups: &str, mounts: &str) -> Vec<Own> {
    let mut found = Vec::new();
    for controller in CONTROLLERS {
        let v1 = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let controllers = parts.next()?;
            let path = parts.next()?;
            controllers.split(',').any(|c| c == controller).then_some(path)
        });
        let own = match v1 {
            Some(path) => mount_point(mounts, "cgroup", Some(controller))
                .map(|(root, at)| ("v1", beneath(&at, &root, path))),
            None => {
                let path = groups.lines().find_map(|line| line.strip_prefix("0::"));
                path.zip(mount_point(mounts, "cgroup2", None))
                    .map(|(path, (root, at))| ("v2", beneath(&at, &root, path)))
                    .filter(|(_, folder)| delegated(folder, controller))
            }
        };
        if let Some((version, folder)) = own {
            found.push(Own { version, controller, folder });
        }
    }
    found
}

/// Root and mount point of a cgroup file system in mountinfo's own format.
fn mount_point(mounts: &str, kind: &str, option: Option<&str>) -> Option<(String, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        if right.next()? != kind {
            return None;
        }
        let options = right.nth(1)?;
        if option.is_some_and(|o| !options.split(',').any(|have| have == o)) {
            return None;
        }
        let mut left = left.split(' ').skip(3);
        Some((left.next()?.to_owned(), PathBuf::from(left.next()?)))
    })
}

fn beneath(mount: &Path, root: &str, path: &str) -> PathBuf {
    let relative = path.strip_prefix(root).unwrap_or(path).trim_start_matches('/');
    mount.join(relative)
}

/// In v2 children get a controller only where their parent hands it down.
fn delegated(folder: &Path, controller: &str) -> bool {
    let has = |file: &str| {
        fs::read_to_string(folder.join(file))
            .is_ok_and(|text| text.split_whitespace().any(|c| c == controller))
    };
    has("cgroup.subtree_control")
        || (has("cgroup.controllers")
            && fs::write(folder.join("cgroup.subtree_control"), format!("+{controller}")).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 25 0:26 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory
31 25 0:27 / /sys/fs/cgroup/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu
32 25 0:28 /docker/abc /sys/fs/cgroup/pids rw,nosuid shared:9 - cgroup cgroup rw,pids
";

    #[test]
    fn the_own_group_of_each_v1_controller_is_found_also_in_a_container() {
        let groups = "9:memory:/a/b\n8:cpu:/\n7:pids:/docker/abc/x\n0::/\n";
        let found = find(groups, MOUNTS);
        let folders: Vec<_> =
            found.iter().map(|o| (o.version, o.controller, o.folder.to_str().unwrap())).collect();
        assert_eq!(
            folders,
            [
                ("v1", "memory", "/sys/fs/cgroup/memory/a/b"),
                ("v1", "pids", "/sys/fs/cgroup/pids/x"),
                ("v1", "cpu", "/sys/fs/cgroup/cpu/"),
            ]
        );
    }

    #[test]
    fn a_group_that_is_busy_once_is_removed_the_next_time() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("group");
        fs::create_dir_all(folder.join("busy")).unwrap();
        let mut group = Cgroup { folders: vec![("pids", folder.clone())], ..Cgroup::default() };
        assert!(group.remove().is_err());
        fs::remove_dir(folder.join("busy")).unwrap();
        group.remove().unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn no_group_is_invented_where_nothing_is_mounted() {
        assert!(find("9:memory:/a\n", "").is_empty());
        assert!(find("", MOUNTS).is_empty());
    }
}
