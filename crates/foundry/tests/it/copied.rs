//! What is judged, attacked and let pass is one private copy, whatever somebody does meanwhile with the branch.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foundry::{GateVerdict, RowVerdict};
use policy::RoleName;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::rig::{Meanwhile, Rig, guild};

/// The digest of the Guild that the branch holds now.
fn digest(rig: &Rig) -> String {
    rig.make().show(&rig.id("b"), &rig.terms()).unwrap().digest.unwrap()
}

/// Says so when it is over, however it ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Somebody exchanges the branch's folder all the time for one that may do more: every pass is of the one that may not.
#[test]
fn a_folder_that_is_exchanged_meanwhile_never_passes_as_the_other_one() {
    let rig = Rig::new();
    rig.branch("b", "You read well.");
    let benign = digest(&rig);
    let (here, there) = (rig.at("branches/b/guild"), rig.at("branches/b/other"));
    guild(&there, &["read_file", "run_shell", "finish"], "You do.");
    let over = AtomicBool::new(false);
    let arena = Meanwhile(|guild: &agent::LoadedGuild, _: &_| {
        let tools = &guild.guild.roles.values().next().unwrap().tools;
        assert!(!tools.contains(&policy::Tool::RunShell), "the wider one is attacked");
        Ok(RowVerdict::Held)
    });
    let (mut passed, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0u64.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                renameat_with(CWD, &here, CWD, &there, RenameFlags::EXCHANGE).unwrap();
                std::thread::sleep(Duration::from_micros(n * 37 % 3000));
            }
        });
        let _over = Over(&over);
        for _ in 0..150 {
            let record = rig.gate_in("b", &arena).unwrap();
            let is_benign = record.branch_digest.as_deref() == Some(benign.as_str());
            match record.verdict {
                GateVerdict::Passed => passed += 1,
                GateVerdict::Refused => refused += 1,
                other => panic!("{other:?}"),
            }
            assert_eq!(record.verdict == GateVerdict::Passed, is_benign, "{record:?}");
        }
    });
    assert!(passed > 0 && refused > 0, "{passed} passed, {refused} refused");
}

/// The copies of the gate that is under way.
fn private(rig: &Rig) -> PathBuf {
    let all = fs::read_dir(rig.at("")).unwrap().map(|entry| entry.unwrap());
    let mut all = all.filter(|entry| entry.file_name().to_string_lossy().starts_with(".private-"));
    all.next().unwrap().path()
}

/// Only the Foundry writes there: a change that comes from elsewhere came through a wall.
#[test]
fn a_copy_of_the_foundrys_own_that_changed_meanwhile_is_broken() {
    for file in ["guild/prompts/worker.md", "baseline/prompts/worker.md", "guild/new", "baseline/new"] {
        let rig = Rig::new();
        rig.branch("b", "You read well.");
        let record = rig.gate_in(
            "b",
            &Meanwhile(|_: &_, _: &_| {
                fs::write(private(&rig).join(file), "You rule.").unwrap();
                Ok(RowVerdict::Held)
            }),
        );
        let record = record.unwrap();
        assert_eq!(record.verdict, GateVerdict::Broken, "{file}: {record:?}");
        assert!(record.reason.contains("the-foundry-is-untouched"), "{file}: {}", record.reason);
        rig.not_promoted("b", foundry::Refusal::NotPassed);
    }
}

const ROLES: &str = "schema = 1\nname = \"test\"\nentry = \"a\"\n\
    [roles.a]\nprompt = \"prompts/a.md\"\ntools = []\n\
    [roles.b]\nprompt = \"prompts/b.md\"\ntools = [\"read_file\"]\n\
    [roles.c]\nprompt = \"prompts/c.md\"\ntools = [\"read_file\", \"search\"]\n";

/// A Guild of three roles with more in its manifest, and these files.
fn three(at: &Path, more: &str, files: &[(&str, &str)]) {
    fs::create_dir_all(at.join("prompts")).unwrap();
    fs::write(at.join("guild.toml"), format!("{ROLES}{more}")).unwrap();
    for role in ["a", "b", "c"] {
        fs::write(at.join(format!("prompts/{role}.md")), "You do.").unwrap();
    }
    for (name, text) in files {
        fs::write(at.join(name), text).unwrap();
    }
}

/// The roles that are named to the attacks as changed, when these files of the branch are others.
fn named(more: &str, files: &[(&str, &str)], changes: &[(&str, &str)]) -> Vec<String> {
    let mut rig = Rig::empty(tempfile::tempdir().unwrap());
    three(&rig.path("start"), more, files);
    rig.make().init(&rig.path("start"), &rig.terms()).unwrap();
    three(&rig.at("branches/b/guild"), more, &[files, changes].concat());
    // A new role and new bytes are wider, and meant here.
    let found = rig.gate_in("b", &rig.arena).unwrap().findings;
    let wider = found.iter().filter(|found| found["severity"] == "wider").map(|found| {
        let (code, place) = (found["code"].as_str().unwrap(), found["place"].as_str().unwrap());
        format!("[[waiver]]\nfinding = {code:?}\nplace = {place:?}\nreason = \"it is meant\"\nexpires = 2026-12-31\n")
    });
    rig.waivers = Some(wider.collect());
    let told: RefCell<BTreeSet<RoleName>> = RefCell::default();
    let arena = Meanwhile(|_: &_, changed: &BTreeSet<RoleName>| {
        told.borrow_mut().clone_from(changed);
        Ok(RowVerdict::Held)
    });
    let record = rig.gate_in("b", &arena).unwrap();
    assert_eq!(record.verdict, GateVerdict::Passed, "{record:?}");
    told.into_inner().iter().map(ToString::to_string).collect()
}

/// Those go first: by what they may do, and by the text of their prompt.
#[test]
fn the_roles_that_a_branch_changed_are_named_to_the_attacks() {
    let none: [&str; 0] = [];
    assert_eq!(named("", &[], &[("prompts/a.md", "You do.")]), none);
    assert_eq!(named("", &[], &[("prompts/b.md", "You do well.")]), ["b"]);
    assert_eq!(named("", &[], &[("guild.toml", &ROLES.replace(", \"search\"", ""))]), ["c"]);
    assert_eq!(named("", &[], &[("guild.toml", &ROLES.replace("[roles.b]", "[roles.e]"))]), ["e"]);
}

/// And by what a tool of the Guild's own that they list says, and by its bytes.
#[cfg(feature = "wasm")]
#[test]
fn the_roles_whose_own_tool_a_branch_changed_are_named_to_the_attacks() {
    // A program that does nothing; a section of no meaning behind it makes other bytes of it.
    let module =
        "\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x07\x0a\x01\x06_start\0\0\x0a\x04\x01\x02\0\x0b";
    let other = format!("{module}\0\x02\x01x");
    let manifest = |name: &str, what: &str| {
        let parameters = serde_json::json!({"type": "object"});
        serde_json::json!({"name": name, "description": what, "parameters": parameters}).to_string()
    };
    let more = "[roles.d]\nprompt = \"prompts/a.md\"\ntools = [\"one\"]\n\
        [roles.e]\nprompt = \"prompts/a.md\"\ntools = [\"two\"]\n\
        [tools.one]\nmanifest = \"one.json\"\nmodule = \"one.wasm\"\n\
        [tools.two]\nmanifest = \"two.json\"\nmodule = \"two.wasm\"\n";
    let (one, two) = (manifest("one", "Counts."), manifest("two", "Counts."));
    let files = [("one.json", &*one), ("two.json", &*two), ("one.wasm", module), ("two.wasm", module)];
    assert_eq!(named(more, &files, &[("one.json", &manifest("one", "Adds."))]), ["d"]);
    assert_eq!(named(more, &files, &[("two.wasm", &other)]), ["e"]);
}
