//! Finding and killing what a call left, by the line of parents in `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;

use crate::launch::Walls;
use crate::sys;

/// A process as `/proc` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    pid: i32,
    parent: i32,
    dead: bool,
}

/// Init's own children: who is a supervisor, and what the rest of them is.
pub(super) struct Kin {
    /// Supervisors of calls, running or ended.
    pub(super) supervisors: Vec<i32>,
    /// The engine has no subreapers (an old gVisor): what a call leaves hangs at init, and cannot be told from
    /// what other calls left. It then counts as every call's own.
    pub(super) adopted: bool,
}

/// Processes in the sandbox, init included.
pub(super) fn count(walls: Walls) -> usize {
    match walls {
        Walls::Own => fs::read_dir("/proc").map_or(0, |dir| dir.filter_map(|e| pid_of(&e.ok()?)).count()),
        // Others are there as well.
        Walls::Shared => 1 + descendants(&snapshot(), me()).len(),
    }
}

/// Memory that the guest's processes hold, in bytes. What several of them map is counted for each: too much
/// rather than too little.
pub(super) fn weight(walls: Walls) -> u64 {
    let me = me();
    let pids: Vec<i32> = match walls {
        Walls::Own => snapshot().into_iter().map(|seen| seen.pid).filter(|pid| *pid != me).collect(),
        Walls::Shared => descendants(&snapshot(), me),
    };
    pids.into_iter().map(held_by).sum()
}

/// Private and shared memory of a process; its mapped files belong to the page cache.
fn held_by(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = |name: &str| -> Option<u64> {
        status.lines().find_map(|l| l.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
    };
    if let (Some(private), Some(shared)) = (kib("RssAnon:"), kib("RssShmem:")) {
        return (private + shared) << 10;
    }
    // gVisor tells resident pages only.
    let pages = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let resident: u64 = pages.split(' ').nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    resident << 12
}

/// Init's own number: 1 but in the tier without process numbers of its own.
fn me() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Living descendants of a supervisor.
pub(super) fn below(supervisor: i32, kin: &Kin) -> u32 {
    u32::try_from(family(&snapshot(), supervisor, kin).len()).unwrap_or(u32::MAX)
}

/// Kills the descendants of a supervisor that `which` picks; says which of them were found alive.
///
/// All are stopped before any is killed: a stopped process cannot fork, so that a fork bomb is outrun.
pub(super) fn kill_below(supervisor: i32, kin: &Kin, which: &dyn Fn(i32) -> bool) -> Vec<i32> {
    let found: Vec<i32> =
        family(&snapshot(), supervisor, kin).into_iter().filter(|pid| which(*pid)).collect();
    kill_these(&found);
    found
}

/// Those of these processes that are still there: alive, or dead with nobody who took note of it.
pub(super) fn left_of(these: &BTreeSet<i32>) -> Left {
    if these.is_empty() {
        return Left { living: 0, dead: 0 };
    }
    let there: Vec<Seen> = snapshot().into_iter().filter(|seen| these.contains(&seen.pid)).collect();
    let living = there.iter().filter(|seen| !seen.dead).count();
    Left { living, dead: there.len() - living }
}

/// What is left of processes that were killed.
pub(super) struct Left {
    pub(super) living: usize,
    pub(super) dead: usize,
}

fn kill_these(found: &[i32]) {
    for signal in [libc::SIGSTOP, libc::SIGKILL] {
        for pid in found {
            // A process that ended in between is what we want.
            drop(sys::kill(*pid, signal));
        }
    }
}

/// Kills every process of the sandbox but init: the kernel does it in one step that no fork can slip through.
/// In the tier without process numbers of its own the domain of init's rules bounds it in the same way.
pub(super) fn kill_everything() {
    // Nothing to kill is fine.
    drop(sys::kill(-1, libc::SIGKILL));
}

/// Lets a stopped supervisor go on: a guest may have stopped it, and it has an end to tell.
pub(super) fn wake(supervisor: i32) {
    // It may be gone.
    drop(sys::kill(supervisor, libc::SIGCONT));
}

/// Whether a process holds one of these pipes. One that cannot be looked at is taken to hold them, and so is one
/// without its first thread, whose descriptors are not to be seen there.
pub(super) fn holds(pid: i32, pipes: &[u64; 2]) -> bool {
    let Ok(dir) = fs::read_dir(format!("/proc/{pid}/fd")) else { return true };
    let open: Vec<_> = dir.collect();
    if open.is_empty() && !fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| has_first(&stat))
    {
        return true;
    }
    open.into_iter().filter_map(Result::ok).filter_map(|e| fs::read_link(e.path()).ok()).any(|target| {
        let text = target.to_string_lossy();
        pipes.iter().any(|inode| *text == format!("pipe:[{inode}]"))
    })
}

fn snapshot() -> Vec<Seen> {
    let Ok(dir) = fs::read_dir("/proc") else { return Vec::new() };
    // Longer than such a line can be: one read is the whole of it.
    let mut line = [0; 4096];
    dir.filter_map(|entry| {
        let pid = pid_of(&entry.ok()?)?;
        let n = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
        parse(pid, &String::from_utf8_lossy(&line[..n]))
    })
    .collect()
}

fn pid_of(entry: &fs::DirEntry) -> Option<i32> {
    entry.file_name().to_str()?.parse().ok()
}

/// `pid (name) state ppid ...`: the name may hold anything, so the last bracket counts.
fn parse(pid: i32, stat: &str) -> Option<Seen> {
    let rest = &stat[stat.rfind(')')? + 1..];
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    // The first thread of a process may have ended while others go on: that is no dead process.
    let threads: u32 = fields.nth(15).and_then(|n| n.parse().ok()).unwrap_or(1);
    Some(Seen { pid, parent, dead: matches!(state, "Z" | "X") && threads <= 1 })
}

/// Whether the first thread of the process still runs.
fn has_first(stat: &str) -> bool {
    stat.rfind(')').is_some_and(|at| !stat[at + 1..].trim_start().starts_with(['Z', 'X']))
}

/// Kills what hangs at init itself and is no supervisor: a guest that kills its supervisor does not get away.
/// Says how many such were found alive.
pub(super) fn kill_orphans(kin: &Kin) -> usize {
    let found = orphans(&snapshot(), me(), &kin.supervisors);
    kill_these(&found);
    found.len()
}

/// Living children of init that are no supervisors, and all below them.
fn orphans(all: &[Seen], init: i32, supervisors: &[i32]) -> Vec<i32> {
    let mut found = Vec::new();
    for seen in all.iter().filter(|s| s.parent == init && !supervisors.contains(&s.pid)) {
        if !seen.dead {
            found.push(seen.pid);
        }
        found.extend(descendants(all, seen.pid));
    }
    found
}

/// What a call started, as far as it can be told.
fn family(all: &[Seen], supervisor: i32, kin: &Kin) -> Vec<i32> {
    let mut found = descendants(all, supervisor);
    if kin.adopted {
        found.extend(orphans(all, me(), &kin.supervisors));
    }
    found
}

/// Living descendants of `supervisor`.
fn descendants(all: &[Seen], supervisor: i32) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<&Seen>> = BTreeMap::new();
    for seen in all {
        children.entry(seen.parent).or_default().push(seen);
    }
    let mut found = Vec::new();
    let mut open = vec![supervisor];
    while let Some(parent) = open.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if !child.dead {
                found.push(child.pid);
            }
            open.push(child.pid);
        }
        // A cycle cannot be in a true table, but a table read while it changes is not quite true.
        if found.len() > all.len() {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_brackets_does_not_hide_its_parent() {
        let seen = parse(7, "7 (a) b) S) R 3 7 7 0 -1").unwrap();
        assert_eq!(seen, Seen { pid: 7, parent: 3, dead: false });
    }

    #[test]
    fn a_process_without_its_first_thread_is_alive() {
        let stat = |threads| format!("7 (x) Z 3 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 1");
        assert!(!parse(7, &stat(2)).unwrap().dead);
        assert!(parse(7, &stat(1)).unwrap().dead);
        assert!(!has_first(&stat(2)));
    }

    #[test]
    fn descendants_are_found_at_any_depth_and_the_dead_are_not_counted() {
        let seen = |pid, parent, dead| Seen { pid, parent, dead };
        let all = [
            seen(1, 0, false),
            seen(5, 1, false),
            seen(6, 5, false),
            seen(7, 6, true),
            seen(8, 7, false),
            seen(9, 1, false),
        ];
        let mut found = descendants(&all, 5);
        found.sort_unstable();
        assert_eq!(found, [6, 8]);
    }
}
