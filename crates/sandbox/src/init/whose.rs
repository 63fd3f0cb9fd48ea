//! Whose it is what a kernel counts for all of a sandbox: kills for memory, and forks refused.
//!
//! Its counters name no process. A call that had the sandbox to itself is told of all of it. Where others were there too,
//! what was seen of each decides; it decides what is told, and no bound.

use std::collections::BTreeSet;

use super::sweep::{self, Census, Kin};
use crate::Ended;
use crate::wire::Whose;

/// Who was there beside a call.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// What earlier calls had running when it began: number and start of each process.
    kept: BTreeSet<(i32, u64)>,
    /// Another call, at some time.
    pub(super) calls: bool,
    /// Most processes and threads that were seen at once: of the call, of what earlier ones left, of another call.
    most: [u64; 3],
}

impl Beside {
    pub(super) fn new(keepers: &[i32], calls: bool) -> Beside {
        let kept = if keepers.is_empty() { BTreeSet::new() } else { sweep::alive(keepers) };
        Beside { kept, calls, most: [0; 3] }
    }

    /// Takes note of who has how many processes now.
    pub(super) fn look(&mut self, supervisor: i32, keepers: &[i32], census: &Census) {
        let mut now = [0; 3];
        for family in &census.families {
            if family.supervisor == supervisor {
                now[0] = family.tasks;
            } else if keepers.contains(&family.supervisor) {
                now[1] += family.tasks;
            } else {
                now[2] = family.tasks.max(now[2]);
            }
        }
        for (most, now) in self.most.iter_mut().zip(now) {
            *most = now.max(*most);
        }
    }

    fn is_alone(&self, kin: &Kin) -> bool {
        // Where an engine brings what calls leave to init, whose it is cannot be told at all.
        kin.adopted || (self.kept.is_empty() && !self.calls)
    }

    /// Whose a kill for memory is, by the end of the call, and by whether its supervisor saw one of its processes killed.
    /// That is no more than a part of them: most have a parent of their own, who may go on and end well.
    pub(super) fn kills(&self, (ended, killed): (Ended, bool), kin: &Kin) -> Whose {
        if killed || self.is_alone(kin) {
            return Whose::Its;
        }
        match (ended, self.kept.is_empty()) {
            (Ended::Exit(0), true) => Whose::Others,
            (Ended::Exit(0), false) => Whose::Left,
            // It failed, and nobody else is known to have lost anything.
            (_, true) => Whose::Its,
            (_, false) if self.kept.is_subset(&sweep::alive(&kin.supervisors)) => Whose::Its,
            (_, false) => Whose::Left,
        }
    }

    /// Whose a refused fork is, by who had most of so many processes. Half of them is the least that they have who stand
    /// in another's way; what comes and goes between two looks is more likely the call's, which is at work.
    pub(super) fn refusals(&self, kin: &Kin, bound: u64) -> Whose {
        let [own, kept, other] = self.most;
        let largest = kept.max(other);
        if self.is_alone(kin) || own >= largest || largest.saturating_mul(2) < bound {
            return Whose::Its;
        }
        if kept >= other { Whose::Left } else { Whose::Others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIN: Kin = Kin { supervisors: Vec::new(), adopted: false };

    fn beside(kept: bool, calls: bool, most: [u64; 3]) -> Beside {
        Beside { kept: kept.then_some((i32::MAX, 1)).into_iter().collect(), calls, most }
    }

    #[test]
    fn a_call_that_is_alone_is_told_of_every_kill() {
        let alone = beside(false, false, [1, 0, 0]);
        for end in [(Ended::Exit(0), false), (Ended::Exit(1), false), (Ended::Signal(9), true)] {
            assert_eq!(alone.kills(end, &KIN), Whose::Its);
        }
    }

    #[test]
    fn a_call_beside_others_is_told_of_a_kill_that_may_be_its_own_only_when_it_failed_or_lost_somebody() {
        // What was left is gone in each case.
        let (left, parallel) = (beside(true, false, [1, 1, 0]), beside(false, true, [1, 0, 1]));
        assert_eq!(left.kills((Ended::Exit(0), false), &KIN), Whose::Left);
        assert_eq!(left.kills((Ended::Exit(1), false), &KIN), Whose::Left);
        assert_eq!(left.kills((Ended::Exit(0), true), &KIN), Whose::Its);
        assert_eq!(parallel.kills((Ended::Exit(0), false), &KIN), Whose::Others);
        assert_eq!(parallel.kills((Ended::Exit(1), false), &KIN), Whose::Its);
    }

    #[test]
    fn a_refused_fork_is_whose_who_had_most_processes_and_half_of_all_at_least() {
        assert_eq!(beside(true, false, [1, 22, 0]).refusals(&KIN, 24), Whose::Left);
        assert_eq!(beside(true, true, [1, 2, 20]).refusals(&KIN, 24), Whose::Others);
        assert_eq!(beside(true, false, [22, 2, 0]).refusals(&KIN, 24), Whose::Its);
        // A burst that nobody saw, beside a small server.
        assert_eq!(beside(true, false, [1, 5, 0]).refusals(&KIN, 24), Whose::Its);
    }
}
