//! Sessions of a sandbox on a host that weighs each session like every other (autogroup), where no group of ours holds
//! cores: there a priority counts within its session only, and who starts many sessions takes the share of many.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use crate::{sys, table};

/// Looked at this often while a call runs.
pub(crate) const EVERY: Duration = Duration::from_millis(100);

/// And first this long after it was begun: a call that is over by then had no time to take anybody's.
pub(crate) const SOON: Duration = Duration::from_millis(5);

/// Whether this host does that.
pub(crate) fn are_weighed() -> bool {
    sys::text("/proc/sys/kernel/sched_autogroup_enabled").is_ok_and(|text| text.trim() == "1")
}

/// The sessions of one sandbox, which are put behind others: the more of them, the further.
#[derive(Debug)]
pub(crate) struct Sessions {
    first: i32,
    /// How far each stands behind.
    lowered: BTreeMap<i32, i32>,
}

/// The kernel's weights of priorities from [`LEAST`] on; the usual one is 1024.
const WEIGHTS: [u64; 17] = [526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15];
/// The first of them: a little more than the weight that a group of ours has.
const LEAST: i32 = 3;
/// What all sessions of a sandbox may weigh together, as long as there is a priority for it. A call has two.
const TOGETHER: u64 = 2 * 526;

/// How far each of so many sessions is put behind others.
fn level(sessions: usize) -> i32 {
    let each = TOGETHER / u64::try_from(sessions).unwrap_or(u64::MAX).max(1);
    let steps = WEIGHTS.iter().position(|weight| *weight <= each).unwrap_or(WEIGHTS.len() - 1);
    LEAST + i32::try_from(steps).unwrap_or(0)
}

impl Sessions {
    /// Of the sandbox with this first process.
    pub(crate) fn below(first: i32) -> Sessions {
        Sessions { first, lowered: BTreeMap::new() }
    }

    /// Lowers those that are new. The kernel takes only so many at once from who is not root; the rest is for later.
    pub(crate) fn lower(&mut self) {
        let there = owned(&table::snapshot(), self.first);
        let level = level(there.len());
        self.lowered.retain(|session, _| there.iter().any(|(own, _)| own == session));
        for (session, pid) in there {
            // A process that ended meanwhile needs none.
            if self.lowered.get(&session).is_none_or(|had| *had < level)
                && fs::write(format!("/proc/{pid}/autogroup"), level.to_string()).is_ok()
            {
                self.lowered.insert(session, level);
            }
        }
    }
}

/// Sessions that nobody outside of the sandbox is in, each with one of its processes.
fn owned(all: &[table::Seen], first: i32) -> Vec<(i32, i32)> {
    let below = table::below(all, first);
    let inside = |pid: i32| pid == first || below.iter().any(|seen| seen.pid == pid);
    let (own, others): (Vec<&table::Seen>, Vec<&table::Seen>) = all.iter().partition(|seen| inside(seen.pid));
    let mut taken: BTreeSet<i32> = others.iter().map(|seen| seen.session).collect();
    taken.insert(0);
    own.iter().filter(|seen| taken.insert(seen.session)).map(|seen| (seen.session, seen.pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Seen;

    #[test]
    fn only_sessions_of_the_sandbox_alone_are_its_own() {
        let seen = |pid, parent, session| Seen { pid, parent, session, ..Seen::default() };
        let all = [
            seen(1, 0, 1),
            seen(50, 1, 50),
            // The first process is in the forker's session; two calls have their own.
            seen(60, 50, 50),
            seen(61, 60, 61),
            seen(62, 61, 61),
            seen(63, 60, 63),
            // Of another pid namespace, as far as that is told.
            seen(64, 60, 0),
        ];
        assert_eq!(owned(&all, 60), [(61, 61), (63, 63)]);
        assert!(owned(&all, 99).is_empty());
    }

    #[test]
    fn the_more_sessions_the_further_behind() {
        assert_eq!([0, 1, 2, 3, 10, 36, 10_000].map(level), [3, 3, 3, 5, 11, 16, 19]);
    }

    #[test]
    fn a_session_is_lowered_and_stays_so() {
        if !are_weighed() {
            // Nothing to lower on such a host, and the report does not say that it is.
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "a process in a session of its own")]
        let mut command = std::process::Command::new("/usr/bin/setsid");
        let mut child = command.arg("/bin/sleep").arg("60").spawn().unwrap();
        let first = i32::try_from(std::process::id()).unwrap();
        let mut sessions = Sessions::below(first);
        let until = std::time::Instant::now() + Duration::from_secs(10);
        let lowered = || {
            let all = table::snapshot();
            let found = table::below(&all, first);
            found.iter().any(|seen| {
                sys::text(&format!("/proc/{}/autogroup", seen.pid))
                    .is_ok_and(|text| text.trim().ends_with("nice 3"))
            })
        };
        while !lowered() && std::time::Instant::now() < until {
            sessions.lower();
            std::thread::yield_now();
        }
        let held = lowered();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(held);
    }
}
