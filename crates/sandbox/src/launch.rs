//! What the executor tells the forker to start: plain data, sent as JSON beside the descriptors.

use std::path::PathBuf;

use policy::Limits;
use serde::{Deserialize, Serialize};

use crate::doors::Doors;
use crate::machine::Vm;
use crate::rules::Opened;

/// The user and group id of a guest inside its user namespace.
pub(crate) const GUEST_ID: u32 = 1000;
/// First host id of the range that sandboxes use when the executor is root.
pub(crate) const BASE_ID: u32 = 200_000;
/// Ids in that range.
pub(crate) const ID_COUNT: u32 = 65_536;
/// Host id of a machine monitor when the executor is root: not the one that namespace guests have.
pub(crate) const MONITOR_ID: u32 = BASE_ID + 1001;
/// Where the workspace is, inside.
pub(crate) const WORKSPACE: &str = "/workspace";
/// How far a guest stands behind others where no group holds its cores: as far as the kernel lets one.
pub(crate) const PRIORITY: i32 = 19;
/// First argument that makes this program a guest's init.
pub(crate) const INIT_ARG: &str = "__init";
/// Where a gVisor guest finds its init.
pub(crate) const INIT_PATH: &str = "/.oubliette";

/// Whether the executor is root and the ids of sandboxes are there for it to use: in a user namespace of its own
/// (a rootless container) it may be called root and have one id only, and in a container without capabilities it
/// may use none. Then it is an ordinary user.
pub(crate) fn owns_ids() -> bool {
    rustix::process::geteuid().is_root()
        && may_use_ids()
        && crate::sys::text("/proc/self/uid_map").is_ok_and(|map| covers(&map))
}

fn may_use_ids() -> bool {
    use rustix::thread::CapabilitySet as Set;
    let needed = Set::CHOWN | Set::SETUID | Set::SETGID;
    rustix::thread::capabilities(None).is_ok_and(|held| held.effective.contains(needed))
}

/// The id that the world outside knows an id of the executor's by, whose map of ids this is.
pub(crate) fn translate(map: &str, id: u32) -> u32 {
    let found = map.lines().find_map(|line| {
        let numbers: Vec<u32> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let [first, outside, count] = numbers[..] else { return None };
        let beyond = id.checked_sub(first).filter(|beyond| *beyond < count)?;
        outside.checked_add(beyond)
    });
    // An id that no map knows is told as it is.
    found.unwrap_or(id)
}

/// Whether one line of a map covers the whole range.
fn covers(map: &str) -> bool {
    map.lines().any(|line| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let [first, _, count] = numbers[..] else { return false };
        let (base, ids) = (u64::from(BASE_ID), u64::from(ID_COUNT));
        first <= base && base + ids <= first + count
    })
}

/// One sandbox to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) id: u64,
    pub(crate) backend: Backend,
    /// A root file system of its own; the host's toolchain when none.
    pub(crate) rootfs: Option<PathBuf>,
    /// A folder to read at `/source`, for our own tools only.
    pub(crate) source: Option<PathBuf>,
    pub(crate) workspace: PathBuf,
    pub(crate) bounds: Bounds,
    pub(crate) env: Vec<(String, String)>,
    /// No program runs in it, only modules: it has no system, and one module may come along as a descriptor.
    #[serde(default)]
    pub(crate) modules: bool,
    /// Descriptors at the end of those that come along, which are kept open until it is gone.
    #[serde(default)]
    pub(crate) kept: usize,
    /// The ways out of it.
    #[serde(default)]
    pub(crate) doors: Doors,
}

impl Launch {
    /// The doors that are made in it: those of a backend that has a network of its own, and of a program.
    pub(crate) fn made(&self) -> Doors {
        match self.backend {
            Backend::Confined => Doors::default(),
            _ if self.modules => Doors::default(),
            Backend::Namespace | Backend::Gvisor { .. } | Backend::Microvm { .. } => self.doors.clone(),
        }
    }

    /// Whether its sockets are passed out.
    pub(crate) fn passes(&self) -> bool {
        self.backend == Backend::Namespace && !self.made().is_empty()
    }
}

/// The engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Backend {
    /// Landlock, seccomp and limits only; init is started by a sentinel of the forker.
    Confined,
    /// Linux namespaces; init is started by the forker itself.
    Namespace,
    /// `runsc` inside those namespaces; init is its container's process.
    Gvisor {
        /// The program.
        runsc: PathBuf,
    },
    /// A machine monitor inside those namespaces; init runs on the machine's own kernel.
    Microvm {
        /// What it is made of.
        vm: Box<Vm>,
    },
}

/// Limits in the units of the kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Bounds {
    pub(crate) cpu_s: u64,
    pub(crate) cores: u32,
    pub(crate) memory: u64,
    pub(crate) processes: u32,
    pub(crate) file_bytes: u64,
    pub(crate) tmp: u64,
    pub(crate) files: u64,
    /// No cgroup counts memory: init adds up what processes hold.
    #[serde(default)]
    pub(crate) weigh: bool,
    /// No cgroup counts processes: init does.
    #[serde(default)]
    pub(crate) tally: bool,
}

/// What cgroup limits a sandbox has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CgroupSeen {
    /// The back end (`cgroup v2 (delegated)`), or empty.
    pub(crate) name: String,
    /// Controllers that hold a limit.
    pub(crate) controllers: Vec<String>,
    /// The others, and why each does not.
    pub(crate) missing: Vec<(String, String)>,
    /// The file that tells what processor time was used in it.
    #[serde(default)]
    pub(crate) clock: Option<PathBuf>,
    /// The host has swap that its bound on memory does not hold.
    #[serde(default)]
    pub(crate) swap: bool,
}

impl CgroupSeen {
    pub(crate) fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|c| c == controller)
    }

    /// Why a controller holds no limit.
    pub(crate) fn why(&self, controller: &str) -> &str {
        self.missing.iter().find(|(c, _)| c == controller).map_or("", |(_, why)| why)
    }

    /// What is missing, equal reasons once.
    pub(crate) fn lacks(&self) -> String {
        let mut told: Vec<(String, &str)> = Vec::new();
        for (controller, why) in &self.missing {
            match told.iter_mut().find(|(_, told)| told == why) {
                Some((controllers, _)) => {
                    controllers.push_str(", ");
                    controllers.push_str(controller);
                }
                None => told.push((controller.clone(), why)),
            }
        }
        let told: Vec<String> =
            told.into_iter().map(|(controllers, why)| format!("{controllers}: {why}")).collect();
        told.join("; ")
    }
}

/// Which bounds a cgroup holds; the others need another holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) memory: bool,
    pub(crate) processes: bool,
    pub(crate) cores: bool,
}

/// Kill counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    /// Processes killed for memory.
    pub(crate) oom_kills: u64,
    /// Forks refused for the process bound.
    pub(crate) forks_refused: u64,
}

impl Bounds {
    /// Threads that gVisor's engine may have: some of its own and several for each guest process. It crashes
    /// where it cannot make one, so this bounds the engine; init counts the guest's own.
    pub(crate) fn engine_threads(&self) -> u64 {
        u64::from(self.processes) * 8 + 512
    }

    /// From the grant's limits.
    pub(crate) fn of(limits: &Limits) -> Bounds {
        Bounds {
            cpu_s: limits.cpu.as_secs().max(1),
            cores: limits.cores,
            memory: limits.memory,
            processes: limits.processes,
            file_bytes: limits.disk,
            tmp: limits.tmp,
            files: limits.files,
            weigh: false,
            tally: false,
        }
    }
}

/// Bytes that a module's memory may have: what it is made of and what compiles it need room as well.
pub(crate) fn module_memory(bounds: &Bounds) -> u64 {
    (bounds.memory / 4 * 3).min(4 << 30)
}

/// Where a guest's own two folders are, and what else keeps it to them.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The id that programs take, where it is not init's own.
    pub(crate) guest: Option<u32>,
    pub(crate) workspace: PathBuf,
    pub(crate) tmp: PathBuf,
    pub(crate) walls: Walls,
    /// What else may be opened, where the walls are shared.
    pub(crate) opened: Opened,
    /// Init inherits the counters of a group of its own kernel, as the numbers after its streams.
    pub(crate) counted: bool,
    /// Only modules run here.
    pub(crate) modules: bool,
}

/// Who shares the view of files and processes with a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walls {
    /// Nobody: mounts and process numbers are the sandbox's own.
    Own,
    /// The executor: Landlock alone keeps them apart, and every call gets rules of its own.
    Shared,
}

impl Place {
    /// The two folders of a sandbox that has a root of its own.
    pub(crate) fn own() -> Place {
        Place {
            guest: None,
            workspace: WORKSPACE.into(),
            tmp: "/tmp".into(),
            walls: Walls::Own,
            opened: Opened::new(),
            counted: false,
            modules: false,
        }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.tmp.join("home")
    }
}

/// The environment of a guest's programs: our own, never the executor's.
pub(crate) fn guest_env(place: &Place, extra: &[(String, String)]) -> Vec<(String, String)> {
    let (home, tmp) = (place.home().display().to_string(), place.tmp.display().to_string());
    let own = [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("HOME", home.as_str()),
        ("TMPDIR", tmp.as_str()),
        ("USER", "sandbox"),
        ("LOGNAME", "sandbox"),
        ("SHELL", "/bin/sh"),
        ("LANG", "C.UTF-8"),
        ("TZ", "UTC"),
        ("TERM", "dumb"),
        ("PAGER", "cat"),
        ("GIT_PAGER", "cat"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("NO_COLOR", "1"),
    ];
    own.into_iter()
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .filter(|(k, _)| !extra.iter().any(|(e, _)| e == k))
        .chain(extra.iter().cloned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_map_that_holds_the_whole_range_lets_root_use_its_ids() {
        assert!(covers("         0          0 4294967295\n"));
        assert!(covers("0 100000 1000\n200000 300000 65536\n"));
        for map in ["", "0 1000 1\n", "0 100000 65536\n", "200000 1 65535\n", "rubbish"] {
            assert!(!covers(map), "{map}");
        }
        assert_eq!(translate("0 1000 1\n", 0), 1000);
        assert_eq!(translate("0 0 4294967295\n", 201_000), 201_000);
    }
}
