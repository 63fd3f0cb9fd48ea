//! Where groups of sandboxes may be made, found out once by trying: cgroup v2 in a group that was handed to us
//! (delegated) or as root, cgroup v1, or nowhere.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

use super::leaf::{self, Handed, LEAF, Leaf};
use super::{CONTROLLERS, COUNTER, Version, kind_word};
use crate::launch::owns_ids;
use crate::sys;

/// Where groups may be made, controller by controller.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(super) own: Vec<Own>,
    /// Controllers that cannot be had, and why.
    pub(super) missing: Vec<(&'static str, String)>,
    leaf: Option<Leaf>,
}

/// Where one controller's groups go: the folder of the executor's own group.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) version: Version,
    pub(super) controller: &'static str,
    pub(super) folder: PathBuf,
}

impl Places {
    /// Looks for them, and in v2 makes them: controllers are handed down, and executor and forker go into a leaf.
    pub(crate) fn find(executor: Option<Pid>) -> Places {
        let groups = sys::text("/proc/self/cgroup").unwrap_or_default();
        let mounts = sys::text("/proc/self/mountinfo").unwrap_or_default();
        let (own, v2) = seek(&groups, &mounts);
        let mut places = Places { own, ..Places::default() };
        let rest: Vec<&'static str> =
            CONTROLLERS.into_iter().filter(|c| !places.own.iter().any(|own| own.controller == *c)).collect();
        if !rest.is_empty() {
            places.add_v2(v2.as_deref(), executor, &rest);
        }
        places
    }

    fn add_v2(&mut self, group: Option<&Path>, executor: Option<Pid>, wanted: &[&'static str]) {
        let without = |why: &str| wanted.iter().map(|c| (*c, why.to_owned())).collect::<Vec<_>>();
        let Some(group) = group else {
            self.missing = without("no group of such a controller can be seen here");
            return;
        };
        let offered = match offers(group, wanted) {
            Ok(offered) => offered,
            Err(why) => {
                self.missing = without(&why);
                return;
            }
        };
        let mut handed = Handed::default();
        for controller in wanted.iter().filter(|c| !offered.controllers.contains(c)) {
            handed.missing.push((controller, "this group was not given it".to_owned()));
        }
        let down = if offered.root {
            Ok(leaf::hand_down(group, &offered.controllers))
        } else {
            let executor = executor.map_or(-1, Pid::as_raw_pid);
            leaf::enter(group, executor, &offered.controllers).map(|(leaf, handed)| {
                self.leaf = Some(leaf);
                handed
            })
        };
        match down {
            Ok(down) => {
                handed.down = down.down;
                handed.missing.extend(down.missing);
            }
            Err(why) => handed.missing.extend(offered.controllers.iter().map(|c| (*c, why.clone()))),
        }
        for controller in handed.down {
            self.own.push(Own { version: Version::V2, controller, folder: group.to_owned() });
        }
        self.missing.extend(handed.missing);
    }

    /// How the report calls it.
    pub(crate) fn name(&self) -> String {
        let has = |version| self.own.iter().any(|own| own.version == version);
        let version = match (has(Version::V1), has(Version::V2)) {
            (false, false) => return String::new(),
            (true, false) => "v1",
            (false, true) => "v2",
            (true, true) => "v1 and v2",
        };
        let whose = if owns_ids() { "as root" } else { "delegated" };
        format!("cgroup {version} ({whose})")
    }

    /// Puts everything back as it was found. What is left of sandboxes must be gone.
    pub(crate) fn leave(&mut self) {
        if let Some(leaf) = self.leaf.take() {
            leaf.leave();
        }
    }
}

/// What a group of v2 could hand down.
#[derive(Debug, PartialEq, Eq)]
struct Offered {
    controllers: Vec<&'static str>,
    /// The root of all groups: processes may stay in it.
    root: bool,
}

fn offers(group: &Path, wanted: &[&'static str]) -> Result<Offered, String> {
    let have = leaf::words(&group.join("cgroup.controllers"))
        .map_err(|e| format!("the own group {} cannot be seen ({})", group.display(), kind_word(&e)))?;
    let controllers: Vec<_> = wanted.iter().copied().filter(|c| have.iter().any(|h| h == c)).collect();
    let root = match fs::read_to_string(group.join("cgroup.type")) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => true,
        Err(e) => return Err(format!("of what type it is cannot be seen ({})", kind_word(&e))),
        Ok(kind) if kind.trim() == "domain" => false,
        Ok(kind) => {
            return Err(format!(
                "the own group {} is of the type `{}`, and groups of processes need a `domain`",
                group.display(),
                kind.trim()
            ));
        }
    };
    Ok(Offered { controllers, root })
}

/// Matches `/proc/self/cgroup` with the mounts: the own group of each controller of v1, and that of v2.
fn seek(groups: &str, mounts: &str) -> (Vec<Own>, Option<PathBuf>) {
    let mut found = Vec::new();
    for controller in CONTROLLERS.into_iter().chain([COUNTER]) {
        let path = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let controllers = parts.next()?;
            let path = parts.next()?;
            controllers.split(',').any(|c| c == controller).then_some(path)
        });
        let folder = path
            .zip(mount_point(mounts, "cgroup", Some(controller)))
            .and_then(|(path, (root, at))| beneath(&at, &root, path));
        let shared =
            |folder: &PathBuf| controller == COUNTER && found.iter().any(|o: &Own| o.folder == *folder);
        if let Some(folder) = folder.filter(|folder| !shared(folder)) {
            found.push(Own { version: Version::V1, controller, folder });
        }
    }
    let v2 = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .zip(mount_point(mounts, "cgroup2", None))
        .and_then(|(path, (root, at))| beneath(&at, &root, path));
    (found, v2.map(out_of_a_leaf))
}

/// An executor that was started beside another one, in its leaf, has the group above.
fn out_of_a_leaf(group: PathBuf) -> PathBuf {
    let in_leaf = group.file_name().is_some_and(|name| name.to_string_lossy().starts_with(LEAF));
    match group.parent() {
        Some(above) if in_leaf => above.to_owned(),
        _ => group,
    }
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

/// Where a group is found; none where it is outside of what is mounted.
fn beneath(mount: &Path, root: &str, path: &str) -> Option<PathBuf> {
    let relative = path.strip_prefix(root).unwrap_or(path).trim_start_matches('/');
    (!relative.split('/').any(|part| part == "..")).then(|| mount.join(relative))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 25 0:26 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory
31 25 0:27 / /sys/fs/cgroup/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu
32 25 0:28 /docker/abc /sys/fs/cgroup/pids rw,nosuid shared:9 - cgroup cgroup rw,pids
";
    const UNIFIED: &str = "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_own_group_of_each_v1_controller_is_found_also_in_a_container() {
        let groups = "9:memory:/a/b\n8:cpu:/\n7:pids:/docker/abc/x\n0::/\n";
        let (found, v2) = seek(groups, MOUNTS);
        let folders: Vec<_> =
            found.iter().map(|o| (o.version, o.controller, o.folder.to_str().unwrap())).collect();
        assert_eq!(
            folders,
            [
                (Version::V1, "memory", "/sys/fs/cgroup/memory/a/b"),
                (Version::V1, "pids", "/sys/fs/cgroup/pids/x"),
                (Version::V1, "cpu", "/sys/fs/cgroup/cpu/"),
            ]
        );
        assert_eq!(v2, None);
    }

    #[test]
    fn no_group_is_invented_where_nothing_is_mounted() {
        for (groups, mounts) in [("9:memory:/a\n", ""), ("", MOUNTS), ("", UNIFIED), ("0::/a\n", "")] {
            let (own, v2) = seek(groups, mounts);
            assert!(own.is_empty() && v2.is_none(), "{groups} {mounts}");
        }
    }

    #[test]
    fn the_own_group_of_v2_is_the_one_above_another_executors_leaf() {
        for (path, folder) in [
            ("/", Some("/sys/fs/cgroup/")),
            ("/a/b.scope", Some("/sys/fs/cgroup/a/b.scope")),
            ("/a/b.scope/oubliette-executor-7", Some("/sys/fs/cgroup/a/b.scope")),
            // Outside of this process's own part of the tree.
            ("/../a", None),
        ] {
            let (_, v2) = seek(&format!("0::{path}\n"), UNIFIED);
            assert_eq!(v2.as_deref(), folder.map(Path::new), "{path}");
        }
    }

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    #[test]
    fn only_the_root_group_is_of_no_type_and_only_a_domain_will_do() {
        let root = tree(&[("cgroup.controllers", "cpuset cpu io memory pids\n")]);
        let offered = offers(root.path(), &CONTROLLERS).unwrap();
        assert_eq!(offered, Offered { controllers: CONTROLLERS.to_vec(), root: true });
        let some = tree(&[("cgroup.controllers", "memory pids\n"), ("cgroup.type", "domain\n")]);
        let offered = offers(some.path(), &CONTROLLERS).unwrap();
        assert_eq!(offered, Offered { controllers: vec!["memory", "pids"], root: false });
        for kind in ["threaded", "domain threaded", "domain invalid"] {
            let odd = tree(&[("cgroup.controllers", "memory pids\n"), ("cgroup.type", &format!("{kind}\n"))]);
            let why = offers(odd.path(), &CONTROLLERS).unwrap_err();
            assert!(why.contains(kind), "{why}");
        }
    }

    #[test]
    fn a_group_with_strangers_in_it_is_left_alone_and_they_are_told() {
        let shared = tree(&[("cgroup.procs", "1\n0\n"), ("cgroup.subtree_control", "")]);
        let why = leaf::enter(shared.path(), -1, &CONTROLLERS).unwrap_err();
        assert!(why.contains("2 other processes are in the group"), "{why}");
        let names: Vec<_> = fs::read_dir(shared.path()).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert_eq!(fs::read_to_string(shared.path().join("cgroup.procs")).unwrap(), "1\n0\n");
        assert_eq!(fs::read_to_string(shared.path().join("cgroup.subtree_control")).unwrap(), "");
    }

    #[test]
    fn what_a_group_was_not_given_is_told_controller_by_controller() {
        let dir =
            tree(&[("cgroup.controllers", "pids\n"), ("cgroup.type", "domain\n"), ("cgroup.procs", "1\n")]);
        let mut places = Places::default();
        places.add_v2(Some(dir.path()), None, &CONTROLLERS);
        let why = |of: &str| places.missing.iter().find(|(c, _)| *c == of).unwrap().1.clone();
        assert_eq!(why("memory"), "this group was not given it");
        assert!(why("pids").contains("1 other process is in the group"), "{}", why("pids"));
        assert!(places.own.is_empty() && places.name().is_empty());
    }
}
