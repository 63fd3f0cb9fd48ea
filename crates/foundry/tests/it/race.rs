//! Two processes that promote at the same time: one does, and the other is told why not.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use foundry::GateVerdict;

use crate::rig::Rig;

const WHERE: &str = "FOUNDRY_TEST_RACE_IN";
const WHAT: &str = "FOUNDRY_TEST_RACE_FOR";

/// Not a claim: what the others start.
#[test]
#[expect(clippy::disallowed_methods, reason = "a process is told what to do")]
fn who_races() {
    let (Ok(dir), Ok(what)) = (std::env::var(WHERE), std::env::var(WHAT)) else { return };
    let rig = Rig::empty(tempfile::tempdir().unwrap());
    let dir = Path::new(&dir);
    let foundry = foundry::Foundry::make(&dir.join("data")).unwrap();
    std::fs::write(dir.join(format!("ready-{}", std::process::id())), "").unwrap();
    while !dir.join("go").exists() {
        std::hint::spin_loop();
    }
    let said = match foundry.promote(&rig.id(&what), &rig.terms(), &|_| {}) {
        Ok(_) => "won".to_owned(),
        Err(e) => format!("{:?}", e.refusal()),
    };
    std::fs::write(dir.join(format!("said-{}", std::process::id())), said).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "this test starts processes of its own")]
fn start(rig: &Rig, what: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "race::who_races", "--nocapture"])
        .env(WHERE, rig.dir.path())
        .env(WHAT, what)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn raced(rig: &Rig, branches: [&str; 2]) -> Vec<String> {
    let mut children = branches.map(|id| start(rig, id));
    let began = Instant::now();
    let ready = |child: &Child| rig.path(format!("ready-{}", child.id())).exists();
    while !children.iter().all(ready) {
        assert!(began.elapsed() < Duration::from_secs(300), "they do not start");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::fs::write(rig.path("go"), "").unwrap();
    let mut said: Vec<String> = children
        .iter_mut()
        .map(|child| {
            assert!(child.wait().unwrap().success());
            std::fs::read_to_string(rig.path(format!("said-{}", child.id()))).unwrap()
        })
        .collect();
    said.sort();
    said
}

#[test]
fn of_two_promotions_at_once_one_wins_and_the_other_is_told_why_not() {
    for _ in 0..10 {
        let rig = Rig::new();
        for id in ["one", "two"] {
            rig.branch(id, id);
            rig.gated(id, GateVerdict::Passed);
        }
        assert_eq!(raced(&rig, ["one", "two"]), ["Some(BaselineChanged)", "won"]);
        assert_eq!(rig.kept().len(), 1);
        assert_ne!(rig.baseline(), "You read.");
    }
}

#[test]
fn of_the_same_promotion_twice_at_once_one_wins() {
    for _ in 0..5 {
        let rig = Rig::new();
        rig.branch("one", "one");
        rig.gated("one", GateVerdict::Passed);
        assert_eq!(raced(&rig, ["one", "one"]), ["Some(Same)", "won"]);
        assert_eq!((rig.kept().len(), rig.baseline().as_str()), (1, "one"));
    }
}
