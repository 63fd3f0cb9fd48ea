//! A group of our own for executor and forker, where cgroup v2 asks for one.
//!
//! Outside the root group the kernel lets a group hand controllers to children only while no process is in it. So the
//! two go into a leaf beside the groups of their sandboxes, and at the end come back and take the leaf away. Nobody
//! else is ever moved out of the group: a stranger in it is a reason to do without, and to say so.
//!
//! ```text
//!   delegated group              memory, pids and cpu are handed down, no process is in it
//!     ├ oubliette-executor-F-N   executor and forker F, by its number in the pid namespace N
//!     ├ oubliette-F-N-1          a sandbox
//!     └ oubliette-executor-G-M   another executor that was started in the same group
//! ```
//!
//! Executors of one group take turns by a lock on its folder. While another one has its leaf there, nobody can come
//! back and what is handed down must stay: who ends then goes into the leaf of the other, for the moment it has left.
//! Whether another one is there, its leaf alone tells, by the processes in it: numbers mean nothing beyond a container.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use super::{PREFIX, kind_word, own_name};

/// Prefix of every leaf.
pub(super) const LEAF: &str = "oubliette-executor-";
/// Another executor is in between for as long as it takes to move two processes.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// The leaf that this forker and its executor are in.
#[derive(Debug)]
pub(super) struct Leaf {
    group: PathBuf,
    folder: PathBuf,
    controllers: Vec<&'static str>,
}

/// What came of handing controllers down: which ones children can have, and why not the others.
#[derive(Debug, Default)]
pub(super) struct Handed {
    pub(super) down: Vec<&'static str>,
    pub(super) missing: Vec<(&'static str, String)>,
    /// There are processes in the group.
    busy: bool,
}

/// Lets the children of the root group have these; processes may stay in it.
pub(super) fn hand_down(group: &Path, wanted: &[&'static str]) -> Handed {
    let file = group.join("cgroup.subtree_control");
    let listed = || words(&file).unwrap_or_default();
    let lacks = |listed: &[String]| -> Vec<&'static str> {
        wanted.iter().copied().filter(|c| !listed.iter().any(|l| l == c)).collect()
    };
    let lacking = lacks(&listed());
    if !lacking.is_empty() {
        // One write for all of them is one stop of the machine's forks instead of three.
        let all: Vec<String> = lacking.iter().map(|c| format!("+{c}")).collect();
        let mut told = Vec::new();
        match fs::write(&file, all.join(" ")) {
            Ok(()) => {}
            // Not one by one: two of the three the kernel gives all the same, and calls all groups below invalid then.
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                let missing = wanted.iter().map(|c| (*c, kind_word(&e))).collect();
                return Handed { down: Vec::new(), missing, busy: true };
            }
            Err(_) => {
                for controller in &lacking {
                    if let Err(e) = fs::write(&file, format!("+{controller}")) {
                        told.push((*controller, kind_word(&e)));
                    }
                }
            }
        }
        let still = lacks(&listed());
        let missing = told.into_iter().filter(|(c, _)| still.contains(c)).collect();
        let down = wanted.iter().copied().filter(|c| !still.contains(c)).collect();
        return Handed { down, missing, busy: false };
    }
    Handed { down: wanted.to_vec(), missing: Vec::new(), busy: false }
}

/// Moves this process and its executor out of `group`, so that it can hand controllers down, and does that.
pub(super) fn enter(group: &Path, executor: i32, wanted: &[&'static str]) -> Result<(Leaf, Handed), String> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let folder = group.join(format!("{LEAF}{}", own_name()));
    let leaf = Leaf { group: group.to_owned(), folder, controllers: wanted.to_vec() };
    let until = Instant::now() + PATIENCE;
    let refused = loop {
        let lock = lock(group, until)?;
        leaf.remove_empty_others();
        let inside =
            processes(group).map_err(|e| format!("who is in it cannot be seen ({})", kind_word(&e)))?;
        let others: Vec<i32> = inside.iter().copied().filter(|pid| ![own, executor].contains(pid)).collect();
        let late = Instant::now() > until;
        if !others.is_empty() && (late || !others.iter().all(|pid| is_passing(*pid, executor))) {
            break strangers(group, &others);
        }
        if let Err(e) = leaf.take_in(executor) {
            break format!("the own group {} cannot be written ({})", group.display(), kind_word(&e));
        }
        // The executor may have started another forker until it was moved, which is in the group then.
        if processes(group).is_ok_and(|inside| inside.is_empty()) {
            let handed = hand_down(group, wanted);
            if !handed.down.is_empty() {
                return Ok((leaf, handed));
            }
            // For a moment the kernel still counts those who ended.
            if late || !handed.busy {
                break format!("it hands nothing down ({})", first_word(&handed));
            }
        }
        drop(lock);
        std::thread::sleep(PAUSE);
    };
    leaf.leave();
    Err(refused)
}

impl Leaf {
    /// Makes it, and moves in who is not in it and may be moved.
    fn take_in(&self, executor: i32) -> io::Result<()> {
        match fs::create_dir(&self.folder) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            Ok(()) | Err(_) => {}
        }
        let inside = processes(&self.folder)?;
        if !inside.contains(&i32::try_from(std::process::id()).unwrap_or_default()) {
            put(&self.folder, 0)?;
        }
        // It may be in the leaf of another forker that it has.
        if executor > 0 && !inside.contains(&executor) && self.may_be_moved(executor) {
            put(&self.folder, executor)?;
        }
        Ok(())
    }

    fn may_be_moved(&self, executor: i32) -> bool {
        let in_group = processes(&self.group).is_ok_and(|inside| inside.contains(&executor));
        let in_a_dead_ones = || {
            self.other_leaves().iter().any(|leaf| processes(leaf).is_ok_and(|inside| inside == [executor]))
        };
        in_group || in_a_dead_ones()
    }

    /// Puts everything back as it was, as far as others allow. What cannot be put back is an empty folder, which
    /// the next executor removes.
    pub(super) fn leave(&self) {
        let Ok(_lock) = lock(&self.group, Instant::now() + PATIENCE) else { return };
        let Ok(inside) = processes(&self.folder) else { return };
        self.remove_empty_others();
        let target = match self.other_leaves().into_iter().find(|leaf| is_lived_in(leaf)) {
            Some(other) => other,
            None => {
                // Whoever made groups here since may count on what is handed down.
                if !self.has_strange_groups() {
                    let none: Vec<String> = self.controllers.iter().map(|c| format!("-{c}")).collect();
                    fs::write(self.group.join("cgroup.subtree_control"), none.join(" ")).ok();
                }
                self.group.clone()
            }
        };
        // All that is in it: who joined it (a command that an engine starts in its container) would have been in the
        // group itself. One that ended meanwhile needs no moving.
        for pid in inside {
            put(&target, pid).ok();
        }
        fs::remove_dir(&self.folder).ok();
    }

    fn other_leaves(&self) -> Vec<PathBuf> {
        folders(&self.group)
            .into_iter()
            .filter(|folder| name_of(folder).starts_with(LEAF) && *folder != self.folder)
            .collect()
    }

    fn remove_empty_others(&self) {
        for leaf in self.other_leaves() {
            // One that is in use cannot be removed; one that is about to be entered is behind the lock.
            fs::remove_dir(leaf).ok();
        }
    }

    fn has_strange_groups(&self) -> bool {
        folders(&self.group).iter().any(|folder| !name_of(folder).starts_with(PREFIX))
    }
}

/// A turn at the group; it ends when this is dropped.
fn lock(group: &Path, until: Instant) -> Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let word = |e: rustix::io::Errno| format!("it cannot be locked ({})", kind_word(&e.into()));
    let folder = rustix::fs::open(group, flags, Mode::empty()).map_err(word)?;
    loop {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(folder),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) if Instant::now() < until => {
                std::thread::sleep(PAUSE);
            }
            Err(e) => return Err(word(e)),
        }
    }
}

/// Those of a group itself, not of its children; 0 is one that cannot be seen from here.
fn processes(group: &Path) -> io::Result<Vec<i32>> {
    let text = fs::read_to_string(group.join("cgroup.procs"))?;
    Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
}

/// Moves a process into a group; 0 is this one.
fn put(group: &Path, pid: i32) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), pid.to_string())
}

/// One that will be gone from the group in a moment: another executor or forker on its way into a leaf (a process of
/// the same program as this one or as its executor), or a process that is ending, which has no program any more.
fn is_passing(pid: i32, executor: i32) -> bool {
    let program = |pid: &str| fs::read_link(format!("/proc/{pid}/exe"));
    let is = |theirs: &Path, whose: &str| program(whose).is_ok_and(|program| program == theirs);
    match program(&pid.to_string()) {
        Ok(theirs) => is(&theirs, "self") || is(&theirs, &executor.to_string()),
        Err(e) => pid > 0 && e.kind() == io::ErrorKind::NotFound,
    }
}

fn strangers(group: &Path, others: &[i32]) -> String {
    let name = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let first = others.first().map(name).unwrap_or_default();
    let (count, noun) = (others.len(), if others.len() == 1 { "process is" } else { "processes are" });
    format!(
        "{count} other {noun} in the group {} as well ({}), and a group with processes in it can hand nothing down",
        group.display(),
        first.trim()
    )
}

fn first_word(handed: &Handed) -> String {
    handed.missing.first().map(|(_, why)| why.clone()).unwrap_or_default()
}

/// Whether an executor or its forker is in it, seen from here or not. One that cannot be looked at is left alone.
fn is_lived_in(leaf: &Path) -> bool {
    match processes(leaf) {
        Ok(inside) => !inside.is_empty(),
        Err(e) => e.kind() != io::ErrorKind::NotFound,
    }
}

fn folders(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

fn name_of(folder: &Path) -> &str {
    folder.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The words of a file of the kernel's.
pub(super) fn words(file: &Path) -> io::Result<Vec<String>> {
    Ok(fs::read_to_string(file)?.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A delegated group with these leaves, of which each has these processes.
    fn group(leaves: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        fs::write(dir.path().join("cgroup.subtree_control"), "memory pids cpu\n").unwrap();
        for (name, inside) in leaves {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("cgroup.procs"), inside).unwrap();
        }
        dir
    }

    fn leaf(group: &Path) -> Leaf {
        let folder = group.join(format!("{LEAF}1-1"));
        Leaf { group: group.to_owned(), folder, controllers: vec!["memory", "pids", "cpu"] }
    }

    fn handed_down(group: &Path) -> String {
        fs::read_to_string(group.join("cgroup.subtree_control")).unwrap()
    }

    /// Its number is nobody's here, or somebody else's: it is seen from another pid namespace.
    #[test]
    fn who_ends_takes_nothing_from_another_whose_numbers_mean_nothing_here() {
        for number in ["4194399-2", "1-2"] {
            let other = format!("{LEAF}{number}");
            let group = group(&[("oubliette-executor-1-1", "5\n"), (&other, "0\n0\n")]);
            leaf(group.path()).leave();
            assert_eq!(handed_down(group.path()), "memory pids cpu\n");
            assert_eq!(fs::read_to_string(group.path().join(&other).join("cgroup.procs")).unwrap(), "5");
        }
    }

    /// Its number is that of a process that lives, which is somebody else.
    #[test]
    fn an_empty_leaf_is_nobodys_whatever_its_name_says() {
        let other = format!("{LEAF}{}-1", std::process::id());
        let group = group(&[("oubliette-executor-1-1", "5\n"), (&other, "")]);
        leaf(group.path()).leave();
        assert_eq!(handed_down(group.path()), "-memory -pids -cpu");
        assert_eq!(fs::read_to_string(group.path().join("cgroup.procs")).unwrap(), "5");
    }

    #[test]
    fn an_executor_leaves_the_leaf_of_a_forker_that_died_and_no_other() {
        for (inside, moved) in [("7\n", true), ("7\n8\n", false), ("0\n7\n", false), ("8\n", false)] {
            let group = group(&[("oubliette-executor-9-1", inside)]);
            assert_eq!(leaf(group.path()).may_be_moved(7), moved, "{inside:?}");
        }
    }

    #[test]
    fn two_of_one_number_have_no_name_in_common() {
        assert!(own_name().ends_with(&format!("-{}", super::super::pid_namespace())));
        assert_ne!(super::super::pid_namespace(), 0);
    }
}
