//! Whoever is killed in the middle of an exchange leaves the old baseline or the new one, whole, and a Foundry that
//! works. Each step is shown with a process that really is killed there.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use foundry::{GateVerdict, Step};

use crate::rig::Rig;

const STEPS: [Step; 6] =
    [Step::Held, Step::Copied, Step::Judged, Step::Recorded, Step::Exchanged, Step::Kept];
const WHERE: &str = "FOUNDRY_TEST_KILLED_IN";
const WHEN: &str = "FOUNDRY_TEST_KILLED_AT";
const WHAT: &str = "FOUNDRY_TEST_KILLED_DOING";

/// Not a claim: what the others start, and kill.
#[test]
#[expect(clippy::disallowed_methods, reason = "a process is told what to do")]
fn who_is_killed() {
    let (Ok(dir), Ok(at), Ok(what)) = (std::env::var(WHERE), std::env::var(WHEN), std::env::var(WHAT)) else {
        return;
    };
    let rig = Rig::empty(tempfile::tempdir().unwrap());
    let foundry = foundry::Foundry::make(Path::new(&dir)).unwrap();
    let told = |step: Step| {
        if format!("{step:?}") == at {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    };
    if what == "back" {
        foundry.rollback(&rig.terms(), false, &told).unwrap();
    } else {
        foundry.promote(&rig.id(&what), &rig.terms(), &told).unwrap();
    }
}

#[expect(clippy::disallowed_methods, reason = "this test kills a process of its own")]
fn killed(rig: &Rig, at: Step, what: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::who_is_killed", "--nocapture"])
        .env(WHERE, rig.path("data"))
        .env(WHEN, format!("{at:?}"))
        .env(WHAT, what)
        .output()
        .unwrap();
    assert_eq!(output.status.signal(), Some(9), "{at:?}: {output:?}");
}

/// Nothing but what belongs there is left, once somebody came by.
#[track_caller]
fn assert_whole(rig: &Rig, at: Step) {
    let history = rig.make().list(&rig.terms()).unwrap().history;
    assert!(!rig.at(".next").exists(), "{at:?}");
    for kept in history {
        let folder = rig.at("history").join(kept.name());
        assert!(folder.join("guild/guild.toml").exists(), "{at:?}");
    }
}

#[test]
fn a_promotion_killed_at_any_step_is_done_or_was_never_begun() {
    for at in STEPS {
        let rig = Rig::new();
        for id in ["one", "two"] {
            rig.branch(id, id);
            rig.gated(id, GateVerdict::Passed);
        }
        killed(&rig, at, "one");
        let done = matches!(at, Step::Exchanged | Step::Kept);
        assert_eq!(rig.baseline(), if done { "one" } else { "You read." }, "{at:?}");
        // Whoever comes next finds out by itself.
        rig.gated("two", GateVerdict::Passed);
        assert_whole(&rig, at);
        assert_eq!(rig.kept().len(), usize::from(done), "{at:?}");
        rig.promote("two").unwrap();
        assert_eq!(rig.baseline(), "two");
        rig.make().rollback(&rig.terms(), false, &|_| {}).unwrap();
        assert_eq!(rig.baseline(), if done { "one" } else { "You read." }, "{at:?}");
    }
}

#[test]
fn a_way_back_killed_at_any_step_is_done_or_was_never_begun() {
    for at in STEPS {
        let rig = Rig::new();
        rig.branch("one", "one");
        rig.gated("one", GateVerdict::Passed);
        rig.promote("one").unwrap();
        killed(&rig, at, "back");
        let done = matches!(at, Step::Exchanged | Step::Kept);
        assert_eq!(rig.baseline(), if done { "You read." } else { "one" }, "{at:?}");
        let again = rig.make().rollback(&rig.terms(), false, &|_| {});
        assert_eq!(again.is_ok(), !done, "{at:?}: {again:?}");
        assert_eq!(rig.baseline(), "You read.");
        assert_whole(&rig, at);
        assert_eq!(rig.kept().len(), 2, "{at:?}");
    }
}

/// What a killed gate had copied is removed by whoever comes next, and by nobody while it is used.
#[test]
fn copies_of_who_was_killed_are_removed() {
    let rig = Rig::new();
    let left = rig.at(".private-7zzzzzzzzzzzzzzzzzzzzzzzzz");
    std::fs::create_dir_all(left.join("guild")).unwrap();
    let used = rig.at(".private-6zzzzzzzzzzzzzzzzzzzzzzzzz");
    std::fs::create_dir(&used).unwrap();
    let lock = std::fs::File::open(&used).unwrap();
    lock.lock().unwrap();
    assert!(rig.make().rollback(&rig.terms(), false, &|_| {}).is_err());
    assert!(!left.exists() && used.exists());
}

/// A hand that changed the baseline in the middle is not overwritten by a guess.
#[test]
fn an_exchange_that_cannot_be_told_from_a_change_by_hand_is_left_to_the_operator() {
    for at in [Step::Recorded, Step::Exchanged] {
        let rig = Rig::new();
        rig.branch("one", "one");
        rig.gated("one", GateVerdict::Passed);
        killed(&rig, at, "one");
        std::fs::write(rig.at("baseline/prompts/worker.md"), "By hand.").unwrap();
        let e = rig.make().rollback(&rig.terms(), false, &|_| {}).unwrap_err();
        assert!(e.to_string().contains("interrupted"), "{at:?}: {e}");
        assert_eq!(rig.baseline(), "By hand.");
        std::fs::remove_dir_all(rig.at(".next")).unwrap();
        rig.gated("one", GateVerdict::Passed);
    }
}
