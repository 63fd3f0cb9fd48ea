//! An init or a forker that is lost costs a bounded wait, and leaves nothing for good.

use std::collections::BTreeSet;
use std::fs;

use policy::Tier;

use crate::Inside;
use crate::inside::{LONG, plan};
use crate::teardown::{descendants, inventory, wait_until_nothing_is_below};

/// What an executor cannot tell from an init that a guest has taken over.
#[test]
fn an_init_that_does_not_read_any_more_costs_a_bounded_wait() {
    let inside = Inside::new(Tier::Namespace);
    let forker = inside.host.forker_id();
    let children = fs::read_to_string(format!("/proc/{forker}/task/{forker}/children")).unwrap();
    let init = rustix::process::Pid::from_raw(children.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(init, rustix::process::Signal::STOP).unwrap();
    let (_give, cancel) = sandbox::Cancel::new();
    let call = sandbox::Call {
        job: crate::shell("true"),
        stdin: vec![b'x'; 1 << 20],
        timeout: std::time::Duration::from_secs(1),
        output: 99,
        bounds: sandbox::CallBounds::default(),
    };
    let began = std::time::Instant::now();
    let ended = inside.block_on(inside.running().run(&call, &cancel, &mut |_, _| {}));
    assert!(ended.is_err(), "{ended:?}");
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    wait_until_nothing_is_below(forker);
}

#[test]
fn groups_that_a_killed_forker_left_are_removed_by_the_next_start() {
    let inside = Inside::new(Tier::Namespace);
    let forker = inside.host.forker_id();
    let pid = rustix::process::Pid::from_raw(i32::try_from(forker).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    drop(inside);
    // The kernel kills what the forker left; a group that is still in use is the next start's after next.
    let busy = |group: &String| {
        fs::read_to_string(format!("/sys/fs/cgroup/{group}/cgroup.procs"))
            .is_ok_and(|procs| !procs.is_empty())
    };
    while inventory(Some(forker)).groups.iter().any(busy) {
        std::thread::yield_now();
    }
    // A young group might be one that is about to be entered: make these old. Any other start may have removed it by now.
    for group in inventory(Some(forker)).groups {
        let Ok(folder) = fs::File::open(format!("/sys/fs/cgroup/{group}")) else { continue };
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
        let aged = folder.set_modified(old);
        assert!(aged.is_ok() || fs::metadata(format!("/sys/fs/cgroup/{group}")).is_err(), "{aged:?}");
    }
    // It has other things to do first, and is done with this when it ends.
    drop(Inside::new(Tier::Namespace));
    assert_eq!(inventory(Some(forker)).groups, BTreeSet::new());
}

/// A lock says that a guest is there, and no guest has it to keep.
#[test]
fn what_is_held_stays_open_until_the_sandbox_is_gone_and_no_process_in_it_has_it() {
    for tier in [Tier::Namespace, Tier::Confined, Tier::Gvisor] {
        let lock = tempfile::NamedTempFile::new().unwrap();
        let ours = fs::File::open(lock.path()).unwrap();
        ours.lock().unwrap();
        let held = vec![std::sync::Arc::new(ours.into())];
        let mut inside = Inside::with(tier, |plan| plan.held = held);
        let free = || fs::File::open(lock.path()).unwrap().try_lock().is_ok();
        assert!(!free(), "{tier}: while it runs");
        // Another one is a copy of a forker that has it open.
        let other = inside.block_on(plan(tier, &inside.workspace()).ready(&inside.host)).unwrap().start();
        for process in descendants(inside.host.forker_id()) {
            for fd in fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten() {
                let leads = fs::read_link(fd.path()).unwrap_or_default();
                assert_ne!(leads, lock.path(), "{tier}: {process} has it");
            }
        }
        inside.block_on(other.destroy());
        assert!(!free(), "{tier}: another one is gone");
        inside.destroy();
        // What another thread of these tests is about to start may have this process's copy yet, until it runs.
        while !free() {
            std::thread::yield_now();
        }
    }
}
