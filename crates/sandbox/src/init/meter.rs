//! Processor time of everything that one call started, the dead included.
//!
//! A process tells what it used itself and what those used that it has waited for; what loses its parent is waited
//! for by the call's supervisor. Who ignores the end of its children is told nothing of them by the kernel: of such
//! children counts what they had used when they were seen last.

use std::collections::BTreeMap;

use crate::table::Seen;

/// The sum of one call.
#[derive(Debug)]
pub(super) struct Meter {
    /// Microseconds that it may use.
    pub(super) bound_us: u64,
    total_us: u64,
    /// What those had used that are not there any more, when they were seen last.
    gone_us: u64,
    /// Who was there, by number and start, and what it had used itself.
    there: BTreeMap<(i32, u64), u64>,
}

impl Meter {
    pub(super) fn new(bound_us: u64) -> Meter {
        Meter { bound_us, total_us: 0, gone_us: 0, there: BTreeMap::new() }
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

    pub(super) fn is_over(&self) -> bool {
        self.total_us > self.bound_us
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
        let mut meter = Meter::new(1000);
        meter.look(Some(&seen(5, 7, 0)), &[seen(6, 10, 0), seen(7, 90, 0)]);
        assert_eq!(meter.total_us(), 100);
        // 7 has used 900 when it ends, and 6 waited for it.
        meter.look(Some(&seen(5, 7, 0)), &[seen(6, 20, 900)]);
        assert_eq!(meter.total_us(), 920);
        // And the supervisor for 6.
        meter.look(Some(&seen(5, 7, 1000)), &[]);
        assert_eq!((meter.total_us(), meter.is_over()), (1000, false));
    }

    #[test]
    fn the_dead_that_nobody_waited_for_count_as_they_were_seen_last() {
        let mut meter = Meter::new(1000);
        for pid in 10..30 {
            meter.look(Some(&seen(5, 0, 0)), &[seen(6, 1, 0), seen(pid, 60, 0)]);
        }
        assert_eq!(meter.total_us(), 1 + 20 * 60);
        assert!(meter.is_over());
    }
}
