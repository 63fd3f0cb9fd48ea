//! Finding and killing what a call left, by the line of parents in `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::launch::Walls;
use crate::sys;
use crate::table::{self, Seen, has_first, snapshot};
use crate::weight;

use super::shared::Waits;

/// Init's own children: who is a supervisor, and what the rest of them is.
pub(super) struct Kin {
    /// Supervisors of calls, running or ended.
    pub(super) supervisors: Vec<i32>,
    /// The engine has no subreapers (an old gVisor): what a call leaves hangs at init, and cannot be told from
    /// what other calls left. It then counts as every call's own.
    pub(super) adopted: bool,
}

/// What a call, running or over, has in the sandbox.
pub(super) struct Family {
    /// Its reaper.
    pub(super) supervisor: i32,
    /// Processes and threads.
    pub(super) tasks: u64,
    /// Bytes that they hold.
    pub(super) memory: u64,
}

/// Who is in the sandbox.
pub(super) struct Census {
    all: Vec<Seen>,
    /// Bytes by process, where that was wanted.
    held: BTreeMap<i32, u64>,
    /// Those of the guest.
    pub(super) tasks: u64,
    pub(super) memory: u64,
    pub(super) families: Vec<Family>,
}

/// Looks at everybody; what they hold is asked only where that is wanted, for it costs one more file each. Memory
/// that several of them map is counted for each: too much rather than too little.
pub(super) fn census(walls: Walls, kin: &Kin, weigh: Weigh) -> Census {
    census_with(walls, kin, weigh, &Waits::default())
}

/// The same, without what is there once and was counted for a child as well, of those who were seen to wait for one.
pub(super) fn census_with(walls: Walls, kin: &Kin, weigh: Weigh, waits: &Waits) -> Census {
    let (all, me) = (table::snapshot(), me());
    let guest = |seen: &&Seen| seen.pid != me && !kin.supervisors.contains(&seen.pid);
    let here = match walls {
        Walls::Own => all.clone(),
        // Others are there as well.
        Walls::Shared => table::below(&all, me),
    };
    let here: Vec<&Seen> = here.iter().filter(guest).collect();
    let memory: Vec<(i32, weight::Weight)> = match weigh {
        Weigh::Nothing => Vec::new(),
        Weigh::Memory | Weigh::Everything(_) => {
            here.iter().map(|seen| (seen.pid, weight::of(seen.pid))).collect()
        }
    };
    let mut held: BTreeMap<i32, u64> = memory.iter().map(|(pid, weight)| (*pid, weight.memory)).collect();
    for (child, bytes) in waits.twice(&all, &held) {
        held.entry(child).and_modify(|held| *held -= bytes);
    }
    if let Weigh::Everything(bound) = weigh {
        buffers(&memory, &mut held, bound);
    }
    let of = |seen: &Seen| held.get(&seen.pid).copied().unwrap_or(0);
    let families = kin.supervisors.iter().map(|supervisor| {
        let below = table::below(&all, *supervisor);
        Family {
            supervisor: *supervisor,
            tasks: below.iter().map(|seen| seen.threads).sum(),
            memory: below.iter().map(of).sum(),
        }
    });
    Census {
        families: families.collect(),
        tasks: here.iter().map(|seen| seen.threads).sum(),
        memory: held.values().sum(),
        held,
        all,
    }
}

/// What is asked of what processes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weigh {
    Nothing,
    Memory,
    /// And what their sockets and pipes may hold, which matters beyond so many bytes.
    Everything(u64),
}

/// Adds what sockets and pipes may hold. Descriptors are looked at one by one only where tables as large as these could
/// hold more than the bound.
fn buffers(here: &[(i32, weight::Weight)], held: &mut BTreeMap<i32, u64>, bound: u64) {
    let most = |weight: &weight::Weight| weight.table.saturating_mul(weight::SOCKET);
    let most = here.iter().map(|(_, weight)| most(weight)).fold(0, u64::saturating_add);
    if held.values().sum::<u64>().saturating_add(most) <= bound {
        return;
    }
    let mut seen = BTreeSet::new();
    for (pid, weight) in here.iter().filter(|(_, weight)| weight.table > 0) {
        *held.entry(*pid).or_default() += weight::buffers(*pid, weight.table, &mut seen);
    }
}

impl Census {
    /// Whoever was weighed.
    pub(super) fn weighed(&self) -> impl Iterator<Item = i32> {
        self.held.keys().copied()
    }

    /// A supervisor, where it still is, and all below it.
    pub(super) fn family(&self, supervisor: i32) -> (Option<&Seen>, Vec<Seen>) {
        let own = self.all.iter().find(|seen| seen.pid == supervisor);
        (own, table::below(&self.all, supervisor))
    }

    /// Processes and threads of these families.
    pub(super) fn tasks_of(&self, supervisors: &[i32]) -> u64 {
        let these = self.families.iter().filter(|family| supervisors.contains(&family.supervisor));
        these.map(|family| family.tasks).sum()
    }

    /// Processes and threads of a call, and bytes that they hold. Where an engine brings what loses its parent to init,
    /// whose it is cannot be told: all that is no older than the call counts then.
    pub(super) fn taken(&self, supervisor: i32, kin: &Kin) -> (u64, u64) {
        let (own, mut found) = self.family(supervisor);
        if let (true, Some(own)) = (kin.adopted, own) {
            let me = me();
            for seen in &self.all {
                let loose = seen.parent == me && seen.pid != me && !kin.supervisors.contains(&seen.pid);
                if loose && seen.started >= own.started {
                    found.push(*seen);
                    found.extend(table::below(&self.all, seen.pid));
                }
            }
        }
        let held = |seen: &Seen| self.held.get(&seen.pid).copied().unwrap_or(0);
        (found.iter().map(|seen| seen.threads).sum(), found.iter().map(held).sum())
    }
}

/// Init's own number: 1 but in the tier without process numbers of its own.
fn me() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Living descendants of a supervisor.
pub(super) fn below(supervisor: i32, kin: &Kin) -> u32 {
    u32::try_from(living(supervisor, kin).len()).unwrap_or(u32::MAX)
}

/// Number and start of each living process below these supervisors.
pub(super) fn alive(supervisors: &[i32]) -> BTreeSet<(i32, u64)> {
    let all = snapshot();
    let below = supervisors.iter().flat_map(|supervisor| descendants(&all, *supervisor));
    below.map(|seen| (seen.pid, seen.started)).collect()
}

/// Kills the descendants of a supervisor that `which` picks; says which of them were found alive.
///
/// All are stopped before any is killed: a stopped process cannot fork, so that a fork bomb is outrun.
pub(super) fn kill_below(supervisor: i32, kin: &Kin, which: &dyn Fn(i32) -> bool) -> Vec<i32> {
    let found: Vec<i32> =
        living(supervisor, kin).into_iter().map(|seen| seen.pid).filter(|pid| which(*pid)).collect();
    kill_these(&found);
    found
}

/// Living descendants of a supervisor as they are now.
pub(super) fn living(supervisor: i32, kin: &Kin) -> Vec<Seen> {
    family(&snapshot(), supervisor, kin)
}

/// Kills the process groups of what a supervisor itself started, each in one step that needs no look at all the others:
/// a shell and most of what it starts are one. No group has anybody of another call, whose sessions are its own.
/// Nothing where the kernel does not tell children.
pub(super) fn kill_groups(supervisor: i32) {
    let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
    for pid in children.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()) {
        if pid > 1 {
            // It may lead no group.
            drop(sys::kill(-pid, libc::SIGKILL));
        }
    }
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

/// Stops these and kills them; says who was still there for it.
pub(super) fn kill_these(found: &[i32]) -> Vec<i32> {
    for pid in found {
        // A process that ended in between is what we want.
        drop(sys::kill(*pid, libc::SIGSTOP));
    }
    found.iter().copied().filter(|pid| sys::kill(*pid, libc::SIGKILL).is_ok()).collect()
}

/// Stops every process of the sandbox but init, in one step as [`kill_everything`].
pub(super) fn stop_everything() {
    drop(sys::kill(-1, libc::SIGSTOP));
}

/// Who is stopped.
pub(super) fn stopped() -> BTreeSet<i32> {
    snapshot().into_iter().filter(|seen| seen.stopped).map(|seen| seen.pid).collect()
}

/// Lets everybody go on but those that were killed, and those that were `stopped` before.
pub(super) fn go_on(killed: &BTreeSet<(i32, u64)>, stopped: &BTreeSet<i32>) {
    for seen in table::below(&snapshot(), me()) {
        if !seen.dead && !killed.contains(&(seen.pid, seen.started)) && !stopped.contains(&seen.pid) {
            drop(sys::kill(seen.pid, libc::SIGCONT));
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

/// Whether a process holds one of these pipes; nothing where it cannot be looked at, or is without its first thread,
/// whose descriptors are not to be seen there.
pub(super) fn holds(pid: i32, pipes: &[u64; 2]) -> Option<bool> {
    let open: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.collect();
    if open.is_empty() && !fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| has_first(&stat))
    {
        return None;
    }
    let mut links = open.into_iter().filter_map(Result::ok).filter_map(|e| fs::read_link(e.path()).ok());
    Some(links.any(|target| {
        let text = target.to_string_lossy();
        pipes.iter().any(|inode| *text == format!("pipe:[{inode}]"))
    }))
}

/// Kills what hangs at init itself and is no supervisor: a guest that kills its supervisor does not get away.
/// Says how many such were found alive.
pub(super) fn kill_orphans(kin: &Kin) -> usize {
    let found: Vec<i32> = orphans(&snapshot(), me(), &kin.supervisors).iter().map(|seen| seen.pid).collect();
    kill_these(&found);
    found.len()
}

/// Living children of init that are no supervisors, and all below them.
fn orphans(all: &[Seen], init: i32, supervisors: &[i32]) -> Vec<Seen> {
    let mut found = Vec::new();
    for seen in all.iter().filter(|s| s.parent == init && !supervisors.contains(&s.pid)) {
        if !seen.dead {
            found.push(*seen);
        }
        found.extend(descendants(all, seen.pid));
    }
    found
}

/// What a call started, as far as it can be told.
fn family(all: &[Seen], supervisor: i32, kin: &Kin) -> Vec<Seen> {
    let mut found = descendants(all, supervisor);
    if kin.adopted {
        found.extend(orphans(all, me(), &kin.supervisors));
    }
    found
}

/// Living descendants of `supervisor`.
fn descendants(all: &[Seen], supervisor: i32) -> Vec<Seen> {
    table::below(all, supervisor).into_iter().filter(|seen| !seen.dead).collect()
}
