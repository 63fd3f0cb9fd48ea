//! What the host sees of a running program: its processes, and the groups and mounts of its sandboxes.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::place::{Place, Ran, told};

/// Longest wait for anything; only a failing test waits that long.
const PATIENCE: Duration = Duration::from_secs(40);

/// The program while it runs, and the forker behind it.
pub(crate) struct Started {
    child: Option<Child>,
    pub(crate) forker: u32,
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, so: impl Fn() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts the program and waits until its guest has made the file `ready` in the workspace.
#[track_caller]
pub(crate) fn started(place: &Place, command: &mut Command) -> Started {
    let before = place.ids().len();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ready = || place.ids().len() > before && place.newest().join("workspace/ready").exists();
    until("the guest is ready", ready);
    let forker = *children(child.id()).first().expect("the program has a forker");
    Started { child: Some(child), forker }
}

impl Started {
    pub(crate) fn signal(&self, signal: Signal) {
        let id = self.child.as_ref().unwrap().id();
        kill_process(Pid::from_raw(id.cast_signed()).unwrap(), signal).unwrap();
    }

    pub(crate) fn ended(mut self) -> Ran {
        told(self.child.take().unwrap().wait_with_output().unwrap())
    }

    /// The end of a program that was killed.
    pub(crate) fn killed(mut self) {
        let status = self.child.take().unwrap().wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }

    /// Every process of its sandboxes.
    pub(crate) fn guests(&self) -> BTreeSet<u32> {
        descendants(self.forker)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Only a failed test comes here; the forker clears up behind it.
            child.kill().ok();
            child.wait().ok();
        }
    }
}

fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// Every living process below one, at any depth.
pub(crate) fn descendants(top: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut left = vec![top];
    while let Some(pid) = left.pop() {
        for child in children(pid) {
            found.insert(child);
            left.push(child);
        }
    }
    found
}

/// A process that is no zombie.
pub(crate) fn lives(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z')
}

/// Control groups that this forker's sandboxes have now.
pub(crate) fn groups(forker: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::from("/sys/fs/cgroup")];
    let prefix = format!("oubliette-{forker}-");
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|t| t.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                found.push(entry.path());
            }
            left.push(entry.path());
        }
    }
    found
}

/// Mounts of this process's namespace: a sandbox's own never show here.
pub(crate) fn mounts() -> String {
    fs::read_to_string("/proc/self/mounts").unwrap()
}

/// Nothing of a program is left: forker, guests, groups.
#[track_caller]
pub(crate) fn assert_nothing_left(forker: u32, guests: &BTreeSet<u32>) {
    until("the forker is gone", || !lives(forker));
    for guest in guests {
        assert!(!lives(*guest), "process {guest} is left");
    }
    assert_eq!(groups(forker), Vec::<PathBuf>::new());
}

/// Whether a file of /proc holds a text; one that is gone holds nothing.
pub(crate) fn holds(file: &str, text: &str) -> bool {
    let bytes = fs::read(file).unwrap_or_default();
    bytes.windows(text.len()).any(|w| w == text.as_bytes())
}
