//! Processes as `/proc` tells them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;

/// Of the kernel's clock for processor time, as it tells that to programs.
const TICKS_A_SECOND: u64 = 100;

/// A process as `/proc` tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    /// 0 where it is of another pid namespace.
    pub(crate) session: i32,
    pub(crate) dead: bool,
    /// By a signal, not by who traces it.
    pub(crate) stopped: bool,
    /// Threads, at least one.
    pub(crate) threads: u64,
    /// When it was started, in the kernel's own units: tells it from another of its number.
    pub(crate) started: u64,
    /// Microseconds of its own.
    pub(crate) own_us: u64,
    /// Microseconds of those it has waited for, and of those they had waited for.
    pub(crate) waited_us: u64,
}

/// All processes that can be seen.
pub(crate) fn snapshot() -> Vec<Seen> {
    let Ok(dir) = fs::read_dir("/proc") else { return Vec::new() };
    // Longer than such a line can be: one read is the whole of it.
    let mut line = [0; 4096];
    dir.filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let n = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
        parse(pid, &String::from_utf8_lossy(&line[..n]))
    })
    .collect()
}

/// `pid (name) state ppid ...`: the name may hold anything, so the last bracket counts.
pub(crate) fn parse(pid: i32, stat: &str) -> Option<Seen> {
    let rest = &stat[stat.rfind(')')? + 1..];
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let state = *fields.first()?;
    let parent = fields.get(1)?.parse().ok()?;
    let number = |at: usize| fields.get(at).and_then(|n| n.parse::<u64>().ok());
    let micros = |at: usize| number(at).unwrap_or(0).saturating_mul(1_000_000 / TICKS_A_SECOND);
    // The first thread of a process may have ended while others go on: that is no dead process.
    let threads = number(17).unwrap_or(1);
    Some(Seen {
        pid,
        parent,
        session: fields.get(3).and_then(|n| n.parse().ok()).unwrap_or(0),
        dead: matches!(state, "Z" | "X") && threads <= 1,
        stopped: state == "T",
        threads: threads.max(1),
        started: number(19).unwrap_or(0),
        own_us: micros(11).saturating_add(micros(12)),
        waited_us: micros(13).saturating_add(micros(14)),
    })
}

/// Whether the first thread of the process still runs.
pub(crate) fn has_first(stat: &str) -> bool {
    stat.rfind(')').is_some_and(|at| !stat[at + 1..].trim_start().starts_with(['Z', 'X']))
}

/// Everything below `top`, the dead that nobody has waited for among it.
pub(crate) fn below(all: &[Seen], top: i32) -> Vec<Seen> {
    let mut children: BTreeMap<i32, Vec<&Seen>> = BTreeMap::new();
    for seen in all {
        children.entry(seen.parent).or_default().push(seen);
    }
    let mut found = Vec::new();
    let mut open = vec![top];
    while let Some(parent) = open.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            found.push(**child);
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
        assert_eq!(seen, Seen { pid: 7, parent: 3, session: 7, threads: 1, ..Seen::default() });
    }

    #[test]
    fn a_process_without_its_first_thread_is_alive() {
        let stat = |threads| format!("7 (x) Z 3 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 1");
        assert!(!parse(7, &stat(2)).unwrap().dead);
        assert!(parse(7, &stat(1)).unwrap().dead);
        assert!(!has_first(&stat(2)));
    }

    #[test]
    fn processor_time_of_a_process_and_of_those_it_waited_for_are_told_apart() {
        let seen = parse(7, "7 (x) R 3 7 7 0 -1 0 0 0 0 0 30 12 500 1 20 0 1 0 99").unwrap();
        assert_eq!((seen.own_us, seen.waited_us, seen.started), (420_000, 5_010_000, 99));
    }

    #[test]
    fn what_is_below_is_found_at_any_depth() {
        let seen = |pid, parent, dead| Seen { pid, parent, dead, ..Seen::default() };
        let all = [
            seen(1, 0, false),
            seen(5, 1, false),
            seen(6, 5, false),
            seen(7, 6, true),
            seen(8, 7, false),
            seen(9, 1, false),
        ];
        let mut found: Vec<i32> = below(&all, 5).iter().map(|s| s.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [6, 7, 8]);
    }
}
