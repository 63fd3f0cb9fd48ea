//! What the host sees of a running program: its processes, and the groups and mounts of its sandboxes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::place::{Place, Ran, told};

/// Longest wait for anything; only a failing test waits that long.
const PATIENCE: Duration = Duration::from_secs(300);

/// The program while it runs, and the forker behind it.
pub(crate) struct Started {
    child: Option<Child>,
    pub(crate) forker: Process,
    /// Every process that was seen below the forker.
    seen: BTreeSet<Process>,
}

/// A process that no other can be taken for: numbers are used again, but not with the same start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) id: u32,
    /// Clock ticks since the machine started.
    start: u64,
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

/// Starts the program and waits until its forker is there.
#[track_caller]
pub(crate) fn begun(command: &mut Command) -> Started {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    let forker = || children(id).into_iter().find(|p| cmdline(p.id).contains("__forker"));
    until("the forker is there", || forker().is_some());
    Started { forker: forker().unwrap(), child: Some(child), seen: BTreeSet::new() }
}

/// Starts the program and waits until its guest has made the file `ready` in the workspace.
#[track_caller]
pub(crate) fn started(place: &Place, command: &mut Command) -> Started {
    let before = place.ids().len();
    let mut started = begun(command);
    let seen = RefCell::new(BTreeSet::new());
    until("the guest is ready", || {
        seen.borrow_mut().extend(descendants(started.forker.id));
        place.ids().len() > before && place.newest().join("workspace/ready").exists()
    });
    started.seen = seen.into_inner();
    started
}

impl Started {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.id().cast_signed()).unwrap(), signal).unwrap();
    }

    /// Number of the program itself.
    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// The executor's process number.
    pub(crate) fn executor(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Whether the executor has ended.
    pub(crate) fn has_ended(&self) -> bool {
        stat(self.executor()).is_none_or(|(state, _)| state == "Z" || state == "X")
    }

    pub(crate) fn ended(self) -> Ran {
        told(self.output())
    }

    /// However it ended, by a signal too.
    pub(crate) fn output(mut self) -> Output {
        self.child.take().unwrap().wait_with_output().unwrap()
    }

    /// Every process of its sandboxes, up to now.
    pub(crate) fn guests(&self) -> BTreeSet<Process> {
        self.seen.iter().copied().chain(descendants(self.forker.id)).collect()
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

pub(crate) fn children(pid: u32) -> Vec<Process> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<u32>>())
        .filter_map(|id| Some(Process { id, start: stat(id)?.1 }))
        .collect()
}

/// State and start of a process that is there.
fn stat(pid: u32) -> Option<(String, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces; what follows its closing bracket may not.
    let mut fields = text.rsplit(')').next()?.split_whitespace();
    let state = fields.next()?.to_owned();
    Some((state, fields.nth(18)?.parse().ok()?))
}

pub(crate) fn cmdline(pid: u32) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).into_owned()
}

/// Every process below one, at any depth.
pub(crate) fn descendants(top: u32) -> BTreeSet<Process> {
    let mut found = BTreeSet::new();
    let mut left = vec![top];
    while let Some(pid) = left.pop() {
        for child in children(pid) {
            found.insert(child);
            left.push(child.id);
        }
    }
    found
}

impl Process {
    /// Whether it still runs; a zombie does not.
    pub(crate) fn lives(self) -> bool {
        stat(self.id).is_some_and(|(state, start)| start == self.start && state != "Z" && state != "X")
    }
}

/// The most memory that a process ever had resident, in KiB, as its kernel counted it.
pub(crate) fn most_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Living processes of the host with exactly this command line.
pub(crate) fn running(argv: &[&str]) -> Vec<u32> {
    let wanted: String = argv.iter().map(|word| format!("{word}\0")).collect();
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| cmdline(*pid) == wanted && stat(*pid).is_some_and(|(state, _)| state != "Z"))
        .collect()
}

/// Control groups that this forker's sandboxes have now.
pub(crate) fn groups(forker: Process) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::from("/sys/fs/cgroup")];
    let prefix = format!("oubliette-{}-", forker.id);
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

/// Mounts of this process's namespace that name one of these: a sandbox's own never show here, and others of this machine
/// mount what they like.
pub(crate) fn mounts(names: &[&str]) -> Vec<String> {
    let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
    all.lines().filter(|line| names.iter().any(|name| line.contains(name))).map(str::to_owned).collect()
}

/// Nothing of a program is left: forker, guests, groups.
#[track_caller]
pub(crate) fn assert_nothing_left(forker: Process, guests: &BTreeSet<Process>) {
    // Behind a killed executor the forker still works for a moment; the guests must be gone when it is.
    until("the forker is gone", || !forker.lives());
    for guest in guests {
        assert!(!guest.lives(), "{guest:?} is left");
    }
    assert_eq!(groups(forker), Vec::<PathBuf>::new());
}

/// The forker and everything below it come to an end; behind a killed one the kernel still works for a moment.
#[track_caller]
pub(crate) fn wait_until_gone(forker: Process, guests: &BTreeSet<Process>) {
    until("forker and guests are gone", || !forker.lives() && guests.iter().all(|guest| !guest.lives()));
}

/// Whether a file of /proc holds a text; one that is gone holds nothing.
pub(crate) fn holds(file: &str, text: &str) -> bool {
    let bytes = fs::read(file).unwrap_or_default();
    bytes.windows(text.len()).any(|w| w == text.as_bytes())
}

/// Whether a text stands anywhere in what a process can write.
pub(crate) fn remembers(pid: u32, text: &str) -> bool {
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut looked_at = 0;
    let found = maps
        .lines()
        .filter(|line| line.split(' ').nth(1).is_some_and(|may| may.starts_with("rw")))
        .any(|line| {
            let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let number = |hex| u64::from_str_radix(hex, 16).unwrap();
            let mut bytes = vec![0; usize::try_from(number(to) - number(from)).unwrap()];
            let read = memory.read_at(&mut bytes, number(from)).unwrap_or(0);
            looked_at += read;
            bytes[..read].windows(text.len()).any(|w| w == text.as_bytes())
        });
    assert!(found || looked_at > 64 << 10, "{looked_at} bytes of {pid} could be read");
    found
}
