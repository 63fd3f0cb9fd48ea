//! Where a file of the Foundry's should lie and something else does, or where there is more than anybody reads: a sentence
//! and whose affair it is, and nobody waits, follows or passes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use agent::LoadedGuild;
use foundry::{
    Arena, Attacks, Blame, BranchId, Foundry, FoundryError, GateVerdict, Refusal, Row, RowVerdict,
};
use policy::{Grant, RoleName, Tier};

use crate::rig::Rig;

/// What may lie in the place of a file.
const KINDS: [&str; 5] = ["folder", "link", "fifo", "socket", "long"];

fn put(kind: &str, at: &Path) {
    match kind {
        "folder" => fs::create_dir(at).unwrap(),
        "link" => std::os::unix::fs::symlink("/etc/hostname", at).unwrap(),
        "fifo" => {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mkfifoat(rustix::fs::CWD, at, mode).unwrap();
        }
        "socket" => {
            // Its name is short wherever it is made.
            let dir =
                tempfile::tempdir_in(at.ancestors().find(|dir| dir.ends_with("data")).unwrap()).unwrap();
            drop(UnixListener::bind(dir.path().join("s")).unwrap());
            fs::rename(dir.path().join("s"), at).unwrap();
        }
        "long" => fs::File::create(at).unwrap().set_len(1 << 40).unwrap(),
        other => panic!("{other}"),
    }
}

#[track_caller]
fn is_input(what: &str, done: Result<impl std::fmt::Debug, FoundryError>) {
    match done {
        Err(e) => {
            assert_eq!(e.blame(), Blame::Input, "{what}: {e}");
            assert!(!e.to_string().contains("os error"), "{what}: {e}");
        }
        Ok(done) => panic!("{what}: {done:?}"),
    }
}

/// A result takes the place of whatever lies there, and never that of a folder: which is told before anything is run.
#[test]
fn a_result_is_written_over_anything_but_a_folder() {
    for name in ["branches/b/gate.json", "branches/b/.gate.json.half", "gated/b", "gated/.b.half"] {
        for kind in KINDS {
            let rig = Rig::new();
            rig.branch("b", "You read well.");
            rig.make();
            put(kind, &rig.at(name));
            if kind == "folder" {
                is_input(name, rig.gate("b"));
                assert_eq!(rig.arena.asked.get(), 0, "{name}");
            } else {
                rig.gated("b", GateVerdict::Passed);
                rig.promote("b").unwrap();
            }
        }
    }
}

/// What lies where the gate's result should is not the gate's, whatever it is.
#[test]
fn what_was_put_in_the_place_of_a_result_lets_nothing_pass() {
    for kind in KINDS {
        let rig = Rig::new();
        rig.branch("b", "You read well.");
        rig.gated("b", GateVerdict::Passed);
        fs::remove_file(rig.at("branches/b/gate.json")).unwrap();
        put(kind, &rig.at("branches/b/gate.json"));
        rig.not_promoted("b", Refusal::GateForged);
        assert_eq!(rig.make().list(&rig.terms()).unwrap().branches.len(), 1);
        let rig = Rig::new();
        rig.branch("b", "You read well.");
        rig.gated("b", GateVerdict::Passed);
        fs::remove_file(rig.at("gated/b")).unwrap();
        put(kind, &rig.at("gated/b"));
        is_input(kind, rig.promote("b"));
    }
}

#[test]
fn what_lies_in_the_place_of_another_file_or_folder_is_told_and_is_the_askers_affair() {
    for kind in KINDS {
        let rig = Rig::new();
        rig.branch("b", "You read well.");
        put(kind, &rig.at("branches/b/hypothesis.json"));
        is_input(&format!("hypothesis.json: {kind}"), rig.gate("b"));
        rig.make().show(&rig.id("b"), &rig.terms()).unwrap();

        let rig = Rig::new();
        rig.branch("b", "You read well.");
        rig.gated("b", GateVerdict::Passed);
        let kept = rig.promote("b").unwrap();
        let record = rig.at("history").join(kept.name()).join("record.json");
        fs::remove_file(&record).unwrap();
        put(kind, &record);
        is_input(&format!("record.json: {kind}"), rig.make().rollback(&rig.terms(), false, &|_| {}));

        let rig = Rig::new();
        rig.branch("b", "You read well.");
        fs::create_dir(rig.at(".next")).unwrap();
        put(kind, &rig.at(".next/record.json"));
        is_input(&format!(".next/record.json: {kind}"), rig.gate("b"));
        if kind == "folder" {
            continue;
        }
        for name in ["baseline", "branches", "gated", "history", ".next"] {
            let rig = Rig::new();
            rig.branch("b", "You read well.");
            if rig.at(name).exists() {
                fs::rename(rig.at(name), rig.at("elsewhere")).unwrap();
            }
            put(kind, &rig.at(name));
            let done = rig.gate("b").map(drop).and_then(|()| rig.promote("b").map(drop));
            is_input(&format!("{name}: {kind}"), done);
        }
        let rig = Rig::new();
        fs::rename(rig.at(""), rig.path("data/elsewhere")).unwrap();
        put(kind, &rig.path("data/foundry"));
        is_input(&format!("foundry: {kind}"), Foundry::open(&rig.path("data")));
    }
}

/// Whoever may write there may say what passed. What is only open to be read is closed by who makes it.
#[test]
fn a_folder_that_others_may_write_in_is_not_taken() {
    let rig = Rig::new();
    let mode = |mode: u32| fs::set_permissions(rig.at(""), fs::Permissions::from_mode(mode)).unwrap();
    for open in [0o720, 0o702, 0o777, 0o1777] {
        mode(open);
        is_input("open", Foundry::open(&rig.path("data")));
        is_input("make", Foundry::make(&rig.path("data")));
    }
    mode(0o755);
    for name in ["baseline", "gated", "history"] {
        fs::set_permissions(rig.at(name), fs::Permissions::from_mode(0o777)).unwrap();
        is_input(name, Foundry::open(&rig.path("data")));
        fs::set_permissions(rig.at(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(rig.at("branches"), fs::Permissions::from_mode(0o777)).unwrap();
    Foundry::open(&rig.path("data")).unwrap().unwrap();
    rig.make();
    assert_eq!(fs::metadata(rig.at("")).unwrap().permissions().mode() & 0o7777, 0o700);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(rig.at(""), Some(65534), None).unwrap();
        is_input("another's", Foundry::open(&rig.path("data")));
    }
}

/// Attacks that meet their ceiling, or of which there is more to say than anybody reads.
enum Much {
    Endless,
    Long,
}

impl Arena for Much {
    async fn attack(
        &self,
        _: &LoadedGuild,
        _: &Grant,
        _: &BTreeSet<RoleName>,
    ) -> Result<Attacks, FoundryError> {
        let row = |n: usize| Row {
            role: "r".repeat(64),
            attack: format!("tool:{n}"),
            verdict: RowVerdict::Held,
            layer: "sandbox".to_owned(),
            detail: "d".repeat(300),
        };
        match self {
            Much::Endless => {
                Err(FoundryError::Ceiling { why: "the attacks were not over after 20m".to_owned() })
            }
            Much::Long => Ok(Attacks {
                tier: Tier::Gvisor,
                engine: String::new(),
                corpus: String::new(),
                rows: (0..20_000).map(row).collect(),
                duration_ms: 1,
            }),
        }
    }
}

/// A branch says how much of it there is to attack: too much of it is a reason, and never a pass.
#[test]
fn a_branch_that_is_too_much_to_attack_is_refused_with_the_reason_which_is_read_again() {
    for (much, why) in [(Much::Endless, "not over after 20m"), (Much::Long, "longer than 8 MiB")] {
        let rig = Rig::new();
        rig.branch("much", "You read well.");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let id = BranchId::parse("much").unwrap();
        let record = runtime.block_on(rig.make().gate(&id, &rig.terms(), &much)).unwrap();
        assert_eq!(record.verdict, GateVerdict::TooMuch);
        assert!(record.reason.contains(why), "{}", record.reason);
        rig.not_promoted("much", Refusal::NotPassed);
        let shown = rig.make().show(&id, &rig.terms()).unwrap();
        assert_eq!(shown.gate, Some(record));
        assert!(fs::metadata(rig.at("branches/much/gate.json")).unwrap().len() <= 8 << 20);
        // It stays a branch like every other.
        rig.gated("much", GateVerdict::Passed);
        rig.promote("much").unwrap();
    }
}
