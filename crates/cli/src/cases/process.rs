//! Processes of this machine by the line of parents, and the end of all below this one.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, wait};

/// How long the killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that no other can be taken for: numbers are used again, but not with the same start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process {
    pub(super) id: u32,
    /// Clock ticks since the machine started.
    start: u64,
}

struct Stat {
    process: Process,
    parent: u32,
    /// Whether it only waits to be told of.
    over: bool,
}

impl Process {
    /// Whether it still runs.
    pub(super) fn lives(self) -> bool {
        stat(self.id).is_some_and(|now| now.process == self && !now.over)
    }

    fn signal(self, signal: Signal) {
        let Some(pid) = i32::try_from(self.id).ok().and_then(Pid::from_raw) else { return };
        let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        // The handle is of whoever has the number now: only then is it looked at again.
        if self.lives() {
            // One that ended meanwhile needs none.
            pidfd_send_signal(&fd, signal).ok();
        }
    }
}

fn stat(id: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name may hold spaces; what follows its closing bracket may not.
    let mut fields = text.rsplit(')').next()?.split_whitespace();
    let state = fields.next()?;
    let over = state == "Z" || state == "X";
    let parent = fields.next()?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    Some(Stat { process: Process { id, start }, parent, over })
}

/// Every process below one, at any depth; of those that are over only the number is left.
fn below(top: u32) -> Vec<Stat> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut children: HashMap<u32, Vec<Stat>> = HashMap::new();
    for one in numbers.filter_map(stat) {
        children.entry(one.parent).or_default().push(one);
    }
    let (mut found, mut left) = (Vec::new(), vec![top]);
    while let Some(parent) = left.pop() {
        let these = children.remove(&parent).unwrap_or_default();
        left.extend(these.iter().map(|one| one.process.id));
        found.extend(these);
    }
    found
}

/// Processes below one that run.
pub(super) fn descendants(top: u32) -> BTreeSet<Process> {
    below(top).into_iter().filter(|one| !one.over).map(|one| one.process).collect()
}

/// The forker of a program of ours.
pub(super) fn forker(program: u32) -> Option<u32> {
    let is = |id: u32| {
        let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        words.split(|b| *b == 0).any(|word| word == b"__forker")
    };
    below(program)
        .into_iter()
        .find(|one| one.parent == program && is(one.process.id))
        .map(|one| one.process.id)
}

/// The most memory that a process had resident up to now, in KiB.
pub(super) fn most_memory(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// From here on, whoever loses its parents below this process is its child, and can be found.
pub(super) fn adopt() -> std::io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Ends everything below this process, and says whether it is gone. Whoever holds a child has waited for it before.
pub(super) fn sweep() -> bool {
    let own = std::process::id();
    let began = Instant::now();
    loop {
        let left = descendants(own);
        // A stopped process cannot make another.
        for signal in [Signal::STOP, Signal::KILL] {
            left.iter().for_each(|process| process.signal(signal));
        }
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        if below(own).is_empty() {
            return true;
        }
        if began.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
