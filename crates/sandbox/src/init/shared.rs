//! Memory that a process has together with a child until that starts a program or ends (`vfork`): it is there once.
//!
//! Whoever starts a child in this way waits for it, and cannot but wait. A thread that waited so before and after all
//! was looked at, and was not awake in between, had such a child all the time: as much as the thread's process holds
//! was counted twice, whichever child it is. A guest hides nothing by that.

use std::collections::BTreeMap;
use std::fs;

use crate::table::Seen;

/// Threads that wait for such a child.
#[derive(Debug, Default)]
pub(super) struct Waits {
    threads: Vec<Wait>,
    engine: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Wait {
    process: i32,
    thread: i32,
    /// How often it has gone to sleep, where that is told.
    slept: Option<u64>,
}

impl Waits {
    /// Those of these processes. An engine tells only that a thread waits for something that no signal ends, which is
    /// not always a child.
    pub(super) fn of(processes: impl Iterator<Item = i32>, engine: bool) -> Waits {
        let mut threads = Vec::new();
        for process in processes {
            let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
            let numbers = tasks.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
            threads.extend(numbers.filter_map(|thread| wait(process, thread, engine)));
        }
        Waits { threads, engine }
    }

    /// By process, how many have waited ever since.
    fn still(&self) -> BTreeMap<i32, usize> {
        let mut waits = BTreeMap::new();
        for seen in &self.threads {
            if wait(seen.process, seen.thread, self.engine).as_ref() == Some(seen) {
                *waits.entry(seen.process).or_default() += 1;
            }
        }
        waits
    }

    /// What was counted twice of what was held by each process since these began to wait, by child.
    pub(super) fn twice(&self, all: &[Seen], held: &BTreeMap<i32, u64>) -> BTreeMap<i32, u64> {
        twice(&self.still(), all, held)
    }
}

/// The largest children of each, as many as are waited for; of each no more than the process has that waits.
fn twice(waits: &BTreeMap<i32, usize>, all: &[Seen], held: &BTreeMap<i32, u64>) -> BTreeMap<i32, u64> {
    let mut found = BTreeMap::new();
    for (parent, children) in waits {
        let own = held.get(parent).copied().unwrap_or(0);
        let of = |seen: &Seen| Some((seen.pid, held.get(&seen.pid)?.min(&own).to_owned()));
        let mut below: Vec<(i32, u64)> =
            all.iter().filter(|seen| seen.parent == *parent).filter_map(of).collect();
        below.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        found.extend(below.into_iter().take(*children));
    }
    found
}

fn wait(process: i32, thread: i32, engine: bool) -> Option<Wait> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{process}/task/{thread}/{file}")).ok();
    let status = read("status")?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if !field("State:")?.starts_with('D') || !(engine || asked_for_child(&read("syscall")?)) {
        return None;
    }
    let slept = field("voluntary_ctxt_switches:").and_then(|count| count.parse().ok());
    Some(Wait { process, thread, slept })
}

/// Whether this is the call by which a child gets its parent's memory, and the parent waits: number and arguments.
fn asked_for_child(call: &str) -> bool {
    let mut words = call.split_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<i64>().ok()) else { return false };
    #[cfg(target_arch = "x86_64")]
    if number == libc::SYS_vfork {
        return true;
    }
    let flags = words.next().and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let both = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
    number == libc::SYS_clone && flags.is_some_and(|flags| flags & both == both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_that_shares_memory_and_waits_is_one() {
        let clone =
            |flags: u64| format!("{} {flags:#x} 0x7f00 0x0 0x0 0x0 0x0 0x7ffd 0x7f11\n", libc::SYS_clone);
        assert!(asked_for_child(&clone(0x4111)));
        // Memory of its own; nobody waits; another call; one that does not sleep.
        for other in [clone(0x4011), clone(0x111), "0 0x4111 0x0\n".to_owned(), "running\n".to_owned()] {
            assert!(!asked_for_child(&other), "{other}");
        }
        #[cfg(target_arch = "x86_64")]
        assert!(asked_for_child(&format!("{} 0x0 0x0\n", libc::SYS_vfork)));
    }

    #[test]
    fn no_more_is_left_off_than_is_there_twice() {
        let seen = |pid, parent| Seen { pid, parent, ..Seen::default() };
        let all = [seen(5, 1), seen(6, 5), seen(7, 5), seen(8, 6), seen(9, 5)];
        let held = BTreeMap::from([(5, 100), (6, 100), (7, 300), (8, 100)]);
        let waits = |all: &[(i32, usize)]| all.iter().copied().collect::<BTreeMap<_, _>>();
        let sum = |all: BTreeMap<i32, u64>| all.values().sum::<u64>();
        assert_eq!(sum(twice(&waits(&[]), &all, &held)), 0);
        // One child has the 100 of its parent, whichever it is.
        assert_eq!(sum(twice(&waits(&[(5, 1)]), &all, &held)), 100);
        // Two threads wait; and a child in its turn.
        assert_eq!(sum(twice(&waits(&[(5, 2)]), &all, &held)), 200);
        assert_eq!(sum(twice(&waits(&[(5, 1), (6, 1)]), &all, &held)), 200);
        // A child that has a program by now.
        let held = BTreeMap::from([(5, 100), (6, 3)]);
        assert_eq!(twice(&waits(&[(5, 1)]), &all, &held), BTreeMap::from([(6, 3)]));
    }
}
