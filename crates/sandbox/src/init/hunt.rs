//! Ending all that a call started, until its supervisor tells that nothing is left.
//!
//! Whoever was sent the signal that kills runs nothing of its own any more and starts nothing: it needs a processor to
//! be gone, or what it waits for in the kernel, and killing others would not hasten that. Whoever is found later hides
//! from looks at `/proc`; it is looked for while everybody stands still.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::sweep::{self, Kin};
use crate::table::Seen;

/// How long there may be somebody left before everybody in the sandbox is stopped for a closer look.
pub(super) const SWEEP: Duration = Duration::from_secs(2);

/// Looks while somebody new is found, or nobody and yet somebody is there.
const SOON: Duration = Duration::from_millis(5);
/// And at the most between looks that find only who is dying already.
const LATER: Duration = Duration::from_millis(40);

/// While all stand still, one look finds everybody; somebody may have been about to wake others.
const ROUNDS: usize = 10;

/// A call that is being ended.
pub(super) struct Hunt {
    /// By number and start.
    killed: BTreeSet<(i32, u64)>,
    /// Living at the last look.
    left: usize,
    pause: Duration,
    due: Instant,
    /// When it began, or everybody was stopped last.
    closer: Instant,
    /// Closer looks in a row that found nobody.
    empty: u32,
}

impl Hunt {
    /// Begins with what takes one step each however busy they are: the groups of what the supervisor itself started,
    /// where it is still there.
    pub(super) fn begin(supervisor: Option<i32>) -> Hunt {
        supervisor.into_iter().for_each(sweep::kill_groups);
        let now = Instant::now();
        Hunt { killed: BTreeSet::new(), left: usize::MAX, pause: SOON, due: now, closer: now, empty: 0 }
    }

    /// When the next look is due, in milliseconds.
    pub(super) fn due_ms(&self) -> u64 {
        let left = self.due.saturating_duration_since(Instant::now()).max(SOON);
        u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
    }

    /// Looks and kills, when that is due; says how many were found alive.
    pub(super) fn step(&mut self, supervisor: i32, kin: &Kin) -> usize {
        if Instant::now() < self.due {
            return self.left;
        }
        let found = sweep::living(supervisor, kin);
        let dying = self.kill(&found) == 0 && !found.is_empty();
        // A look takes from the dying what they need to be gone.
        self.pause = if dying { (self.pause * 2).min(LATER) } else { SOON };
        self.due = Instant::now() + if dying { self.pause } else { Duration::ZERO };
        if self.closer.elapsed() > SWEEP {
            self.look_closer(supervisor, kin);
        }
        sweep::wake(supervisor);
        self.left
    }

    /// Kills those of them that were not killed before; says how many.
    fn kill(&mut self, found: &[Seen]) -> usize {
        self.left = found.len();
        let new: Vec<&Seen> =
            found.iter().filter(|seen| !self.killed.contains(&(seen.pid, seen.started))).collect();
        let pids: Vec<i32> = new.iter().map(|seen| seen.pid).collect();
        let killed = sweep::kill_these(&pids);
        self.killed.extend(new.iter().filter(|seen| killed.contains(&seen.pid)).map(|s| (s.pid, s.started)));
        pids.len()
    }

    /// Stops everybody, so that nobody forks faster than one can look and nobody is in the way of the look, kills what
    /// is new of this call, and lets the others go on.
    fn look_closer(&mut self, supervisor: i32, kin: &Kin) {
        let stopped = sweep::stopped();
        let mut clean = false;
        for _ in 0..ROUNDS {
            sweep::stop_everything();
            let found = sweep::living(supervisor, kin);
            if self.kill(&found) == 0 {
                clean = true;
                break;
            }
        }
        sweep::go_on(&self.killed, &stopped);
        self.empty = if self.left == 0 { self.empty + 1 } else { 0 };
        // Who starts others even so, or waits for somebody whom no look finds, can not be told from all the others.
        if !clean || self.empty > 1 {
            sweep::kill_everything();
        }
        self.closer = Instant::now();
    }
}
