//! What everything that one call started takes: processor time, that of the dead included, and of those that are there
//! their number and memory.
//!
//! A process tells what it used itself and what those used that it has waited for; what loses its parent is waited
//! for by the call's supervisor. Who ignores the end of its children is told nothing of them by the kernel: of such
//! children counts what they had used when they were seen last.

use std::collections::BTreeMap;

use policy::StoppedBy;

use crate::table::Seen;
use crate::wire::Own;

/// The sum of one call.
#[derive(Debug)]
pub(super) struct Meter {
    /// What it may take.
    own: Own,
    total_us: u64,
    /// What those had used that are not there any more, when they were seen last.
    gone_us: u64,
    /// Who was there, by number and start, and what it had used itself.
    there: BTreeMap<(i32, u64), u64>,
}

impl Meter {
    pub(super) fn new(own: Own) -> Meter {
        Meter { own, total_us: 0, gone_us: 0, there: BTreeMap::new() }
    }

    /// What its processes may hold.
    pub(super) fn memory(&self) -> Option<u64> {
        self.own.memory
    }

    /// Takes a look at the call: its supervisor, where it still is, and all below it.
    pub(super) fn look(&mut self, supervisor: Option<&Seen>, below: &[Seen]) {
        let there: BTreeMap<(i32, u64), u64> =
            below.iter().map(|seen| ((seen.pid, seen.started), seen.own_us)).collect();
        for (who, used) in &self.there {
            if !there.contains_key(who) {
                self.gone_us += used;
            }
        }
        let own: u64 = there.values().sum();
        let waited: u64 = below.iter().chain(supervisor).map(|seen| seen.waited_us).sum();
        self.there = there;
        self.raise(own.saturating_add(waited.max(self.gone_us)));
    }

    /// What its supervisor's own end told.
    pub(super) fn raise(&mut self, total_us: u64) {
        self.total_us = self.total_us.max(total_us);
    }

    pub(super) fn total_us(&self) -> u64 {
        self.total_us
    }

    /// The bound that is passed, if one is, with what its processes are now.
    pub(super) fn over(&self, tasks: u64, memory: u64) -> Option<StoppedBy> {
        let passed = |bound: Option<u64>, now: u64| bound.is_some_and(|bound| now > bound);
        if passed(self.own.cpu_ms.map(|ms| ms.saturating_mul(1000)), self.total_us) {
            return Some(StoppedBy::Cpu);
        }
        if passed(self.own.memory, memory) {
            return Some(StoppedBy::Memory);
        }
        passed(self.own.processes, tasks).then_some(StoppedBy::Processes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: i32, own_us: u64, waited_us: u64) -> Seen {
        Seen { pid, own_us, waited_us, ..Seen::default() }
    }

    #[test]
    fn the_dead_count_by_who_waited_for_them() {
        let mut meter = Meter::new(Own { cpu_ms: Some(1), ..Own::default() });
        meter.look(Some(&seen(5, 7, 0)), &[seen(6, 10, 0), seen(7, 90, 0)]);
        assert_eq!(meter.total_us(), 100);
        // 7 has used 900 when it ends, and 6 waited for it.
        meter.look(Some(&seen(5, 7, 0)), &[seen(6, 20, 900)]);
        assert_eq!(meter.total_us(), 920);
        // And the supervisor for 6.
        meter.look(Some(&seen(5, 7, 1000)), &[]);
        assert_eq!((meter.total_us(), meter.over(9, 9)), (1000, None));
    }

    #[test]
    fn the_dead_that_nobody_waited_for_count_as_they_were_seen_last() {
        let mut meter = Meter::new(Own { cpu_ms: Some(1), ..Own::default() });
        for pid in 10..30 {
            meter.look(Some(&seen(5, 0, 0)), &[seen(6, 1, 0), seen(pid, 60, 0)]);
        }
        assert_eq!(meter.total_us(), 1 + 20 * 60);
        assert_eq!(meter.over(0, 0), Some(StoppedBy::Cpu));
    }

    #[test]
    fn each_bound_of_a_call_is_told_by_its_name() {
        let meter = Meter::new(Own { memory: Some(10), processes: Some(3), ..Own::default() });
        assert_eq!(meter.over(3, 10), None);
        assert_eq!(meter.over(4, 10), Some(StoppedBy::Processes));
        assert_eq!(meter.over(4, 11), Some(StoppedBy::Memory));
        assert_eq!(Meter::new(Own::default()).over(u64::MAX, u64::MAX), None);
    }
}
