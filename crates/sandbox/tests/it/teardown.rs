//! After a sandbox nothing of it is left on the host.

use std::collections::BTreeSet;
use std::fs;

use crate::Inside;

/// Everything of this test's own sandboxes that the host could still hold: groups, processes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Inventory {
    pub(crate) groups: BTreeSet<String>,
    children: BTreeSet<u32>,
}

pub(crate) fn inventory(forker: Option<u32>) -> Inventory {
    Inventory {
        groups: forker.map(groups).unwrap_or_default(),
        children: forker.map(descendants).unwrap_or_default(),
    }
}

/// Groups of a forker's sandboxes, wherever they were made.
fn groups(forker: u32) -> BTreeSet<String> {
    let (top, prefix) = ("/sys/fs/cgroup/", format!("oubliette-{forker}-"));
    let mut found = BTreeSet::new();
    let mut open = vec![std::path::PathBuf::from(top)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|t| t.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                found.insert(entry.path().display().to_string().replacen(top, "", 1));
            }
            open.push(entry.path());
        }
    }
    found
}

/// Living processes below one, at any depth.
pub(crate) fn descendants(top: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut open = vec![top];
    while let Some(pid) = open.pop() {
        // Any thread may be the one that a child hangs at.
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.flatten() {
            let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in list.split_whitespace().filter_map(|p| p.parse::<u32>().ok()) {
                found.insert(child);
                open.push(child);
            }
        }
    }
    found
}

/// Processor time that the host really gave to everything below the forker, in clock ticks.
pub(crate) fn ticks_below(forker: u32) -> u64 {
    let ticks = |pid: &u32| -> Option<u64> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let rest = &stat[stat.rfind(')')? + 2..];
        // utime, stime, cutime, cstime: fields 14 to 17, counted after the name.
        Some(rest.split(' ').skip(11).take(4).filter_map(|f| f.parse::<u64>().ok()).sum())
    };
    descendants(forker).iter().filter_map(ticks).sum()
}

/// Returns when the forker has no child any more; the test runner's own bound ends a wait that does not.
pub(crate) fn wait_until_nothing_is_below(forker: u32) {
    while !descendants(forker).is_empty() {
        std::thread::yield_now();
    }
}

fn forker_of(inside: &Inside) -> u32 {
    inside.host.forker_id()
}

#[test]
fn r56_destroy_leaves_no_process_mount_or_group() {
    for tier in crate::TIERS {
        let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut inside = Inside::new(tier);
        let forker = forker_of(&inside);
        // The host's other mounts come and go. Ours are of this test's own folder, or bear our name.
        let folder = inside.outside().display().to_string();
        let mounts = || -> Vec<String> {
            let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
            let ours = all.lines().filter(|line| line.contains(&folder) || line.contains("oubliette"));
            ours.filter(|line| !before.contains(*line)).map(str::to_owned).collect()
        };
        inside.sh("sleep 100 >/dev/null 2>&1 </dev/null & setsid sleep 100 >/dev/null 2>&1 </dev/null &");
        let during = inventory(Some(forker));
        assert!(!during.children.is_empty(), "{tier}: the look from outside sees nothing");
        inside.destroy();
        let after = inventory(Some(forker));
        assert_eq!(after.children, BTreeSet::new(), "{tier}");
        assert_eq!(after.groups, BTreeSet::new(), "{tier}");
        assert_eq!(mounts(), Vec::<String>::new(), "{tier}");
    }
}

#[test]
fn a_dropped_sandbox_is_destroyed_all_the_same() {
    for tier in crate::TIERS {
        let inside = Inside::new(tier);
        let forker = forker_of(&inside);
        inside.sh("setsid sleep 100 >/dev/null 2>&1 </dev/null &");
        // The sandbox and the forker's handle both go; the forker ends only when all is gone.
        drop(inside);
        assert!(!std::path::Path::new(&format!("/proc/{forker}")).exists(), "{tier}");
        assert_eq!(inventory(Some(forker)).groups, BTreeSet::new(), "{tier}");
    }
}

#[test]
fn a_guest_that_breaks_the_protocol_loses_its_sandbox_and_nothing_else() {
    // Its own standard output is a pipe to init, never the channel: whatever it prints is only output.
    for tier in crate::TIERS {
        let inside = Inside::new(tier);
        let ran = inside.sh("printf '\\377\\377\\377\\377\\020rubbish'; head -c 300000 /dev/urandom");
        assert_eq!(ran.outcome.stdout_bytes, 300_012, "{tier}");
        assert_eq!(inside.sh("echo alive").out, "alive\n", "{tier}");
    }
}
