//! What becomes the baseline, and what does not.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use foundry::{Act, GateVerdict, Refusal, Standing};
use policy::Tier;

use crate::rig::{Rig, guild};

#[test]
fn a_branch_that_passed_becomes_the_baseline_and_the_one_before_is_kept() {
    let rig = Rig::new();
    rig.branch("better", "You read well.");
    let record = rig.gated("better", GateVerdict::Passed);
    let kept = rig.promote("better").unwrap();
    assert_eq!(rig.baseline(), "You read well.");
    assert_eq!((kept.n, kept.act, kept.branch.as_deref()), (1, Act::Promote, Some("better")));
    assert_eq!(Some(&kept.to), record.branch_digest.as_ref());
    assert_eq!(rig.kept(), [kept.name()]);
    let before = rig.at("history").join(kept.name()).join("guild/prompts/worker.md");
    assert_eq!(fs::read_to_string(before).unwrap(), "You read.");
}

/// What was promoted is nobody's to write any more.
#[test]
fn the_baseline_is_a_copy_and_never_the_branchs_own_folder() {
    let rig = Rig::new();
    rig.branch("better", "You read well.");
    rig.gated("better", GateVerdict::Passed);
    let prompt = rig.at("branches/better/guild/prompts/worker.md");
    let mut writer = fs::OpenOptions::new().append(true).open(&prompt).unwrap();
    rig.promote("better").unwrap();
    std::io::Write::write_all(&mut writer, b" And write.").unwrap();
    assert_eq!(rig.baseline(), "You read well.");
    assert!(prompt.exists());
}

#[test]
fn a_branch_that_was_never_gated_is_not_promoted() {
    let rig = Rig::new();
    rig.branch("better", "You read well.");
    rig.not_promoted("better", Refusal::NotGated);
}

/// R61
#[test]
fn r61_a_branch_that_the_gate_refused_is_not_promoted() {
    let rig = Rig::new();
    guild(&rig.at("branches/wider/guild"), &["read_file", "run_shell", "finish"], "You do.");
    rig.gated("wider", GateVerdict::Refused);
    assert_eq!(rig.arena.asked.get(), 0, "something of it was tried");
    rig.not_promoted("wider", Refusal::NotPassed);
}

#[test]
fn a_gate_json_that_the_gate_did_not_write_counts_for_nothing() {
    let rig = Rig::new();
    rig.branch("honest", "You read well.");
    rig.gated("honest", GateVerdict::Passed);
    guild(&rig.at("branches/forged/guild"), &["read_file", "run_shell", "finish"], "You do.");
    let record = rig.gated("forged", GateVerdict::Refused);
    // What another branch got, told as one's own.
    let honest = fs::read_to_string(rig.at("branches/honest/gate.json")).unwrap();
    let digest = |text: &str| text.split("\"branch_digest\": \"").nth(1).unwrap()[..64].to_owned();
    let forged =
        honest.replace("\"honest\"", "\"forged\"").replace(&digest(&honest), &record.branch_digest.unwrap());
    fs::write(rig.at("branches/forged/gate.json"), forged).unwrap();
    rig.not_promoted("forged", Refusal::GateForged);
    fs::write(rig.at("branches/forged/gate.json"), honest).unwrap();
    rig.not_promoted("forged", Refusal::GateForged);
    // A branch that came with one and was never here.
    fs::create_dir(rig.at("branches/new")).unwrap();
    fs::copy(rig.at("branches/honest/gate.json"), rig.at("branches/new/gate.json")).unwrap();
    rig.not_promoted("new", Refusal::GateForged);
    fs::remove_file(rig.at("branches/honest/gate.json")).unwrap();
    rig.link("branches/honest/gate.json", "../forged/gate.json");
    rig.not_promoted("honest", Refusal::GateForged);
}

#[test]
fn a_branch_that_was_changed_behind_the_gate_is_not_promoted() {
    let rig = Rig::new();
    rig.branch("better", "You read well.");
    rig.gated("better", GateVerdict::Passed);
    rig.branch("better", "You read well!");
    rig.not_promoted("better", Refusal::BranchChanged);
    // A mode, a new file, a link: each is a change.
    rig.branch("better", "You read well.");
    rig.link("branches/better/guild/more", "/etc/passwd");
    rig.not_promoted("better", Refusal::BranchChanged);
    fs::remove_file(rig.at("branches/better/guild/more")).unwrap();
    fs::set_permissions(rig.at("branches/better/guild/guild.toml"), PermissionsExt::from_mode(0o755))
        .unwrap();
    rig.not_promoted("better", Refusal::BranchChanged);
    fs::remove_dir_all(rig.at("branches/better/guild")).unwrap();
    rig.not_promoted("better", Refusal::BranchChanged);
    rig.link("branches/better/guild", "../../baseline");
    rig.not_promoted("better", Refusal::BranchChanged);
}

#[test]
fn a_branch_is_promoted_only_over_the_baseline_it_was_gated_against() {
    let rig = Rig::new();
    for id in ["one", "two"] {
        rig.branch(id, id);
        rig.gated(id, GateVerdict::Passed);
    }
    rig.promote("one").unwrap();
    rig.not_promoted("two", Refusal::BaselineChanged);
    rig.not_promoted("one", Refusal::Same);
    rig.gated("two", GateVerdict::Passed);
    rig.promote("two").unwrap();
    assert_eq!(rig.kept().len(), 2);
}

#[test]
fn another_deployment_or_a_weaker_tier_is_another_gate() {
    let mut rig = Rig::new();
    rig.branch("better", "You read well.");
    rig.gated("better", GateVerdict::Passed);
    rig.digest = "another".to_owned();
    rig.not_promoted("better", Refusal::DeploymentChanged);
    rig.arena.tier = Tier::Namespace;
    rig.gated("better", GateVerdict::Passed);
    rig.not_promoted("better", Refusal::TierTooWeak);
    rig.deployment.isolation.floor = Tier::Namespace;
    rig.promote("better").unwrap();
}

#[test]
fn another_version_of_the_gate_counts_for_nothing() {
    let rig = Rig::new();
    rig.branch("better", "You read well.");
    let record = rig.gated("better", GateVerdict::Passed);
    let file = rig.at("branches/better/gate.json");
    let older = fs::read_to_string(&file).unwrap().replace(&format!("\"{}\"", record.gate), "\"0/0.0.1\"");
    fs::write(&file, &older).unwrap();
    // As that version would have left it.
    fs::write(rig.at("gated/better"), format!("{}\n", runs::sha256(older.as_bytes()))).unwrap();
    rig.not_promoted("better", Refusal::GateChanged);
}

#[test]
fn going_back_leads_one_promotion_back_each_time() {
    let rig = Rig::new();
    for id in ["one", "two"] {
        rig.branch(id, id);
        rig.gated(id, GateVerdict::Passed);
        rig.promote(id).unwrap();
    }
    let back = || rig.make().rollback(&|_| {});
    assert_eq!(rig.baseline(), "two");
    assert_eq!(back().unwrap().act, Act::Rollback);
    assert_eq!(rig.baseline(), "one");
    back().unwrap();
    assert_eq!(rig.baseline(), "You read.");
    assert_eq!(back().unwrap_err().refusal(), Some(Refusal::NothingKept));
    // Nothing of all this is forgotten, and it goes on from there.
    assert_eq!(rig.kept().len(), 4);
    rig.gated("two", GateVerdict::Passed);
    rig.promote("two").unwrap();
    back().unwrap();
    assert_eq!(rig.baseline(), "You read.");
}

#[test]
fn a_kept_baseline_that_somebody_changed_is_not_taken() {
    let rig = Rig::new();
    rig.branch("one", "one");
    rig.gated("one", GateVerdict::Passed);
    let kept = rig.promote("one").unwrap();
    fs::write(rig.at("history").join(kept.name()).join("guild/prompts/worker.md"), "You rule.").unwrap();
    let e = rig.make().rollback(&|_| {}).unwrap_err();
    assert_eq!(e.refusal(), Some(Refusal::KeptChanged), "{e}");
    assert_eq!(rig.baseline(), "one");
}

#[test]
fn there_is_one_first_baseline_and_it_is_sound() {
    let rig = Rig::empty(tempfile::tempdir().unwrap());
    let foundry = rig.make();
    rig.branch("one", "one");
    assert!(rig.gate("one").unwrap_err().to_string().contains("no baseline"));
    guild(&rig.path("bad"), &["no_such_tool"], "x");
    let e = foundry.init(&rig.path("bad"), &rig.terms()).unwrap_err();
    assert!(e.to_string().contains("unknown-tool") && !e.to_string().contains(".next"), "{e}");
    assert!(!rig.at("baseline").exists() && !rig.at(".next").exists());
    guild(&rig.path("good"), &["finish"], "x");
    foundry.init(&rig.path("good"), &rig.terms()).unwrap();
    let e = foundry.init(&rig.path("good"), &rig.terms()).unwrap_err();
    assert_eq!(e.refusal(), Some(Refusal::BaselineThere));
}

#[test]
fn a_list_says_of_each_branch_whether_it_may_be_promoted() {
    let rig = Rig::new();
    for id in ["fresh", "passed"] {
        rig.branch(id, id);
    }
    rig.gated("passed", GateVerdict::Passed);
    guild(&rig.at("branches/wider/guild"), &["read_file", "run_shell", "finish"], "You do.");
    rig.gated("wider", GateVerdict::Refused);
    rig.link("branches/link", "../baseline");
    fs::create_dir(rig.at("branches/No Branch")).unwrap();
    let listing = rig.make().list(&rig.terms()).unwrap();
    let standings: Vec<_> = listing.branches.iter().map(|b| (b.id.as_str(), b.standing)).collect();
    let not = Standing::Not;
    assert_eq!(
        standings,
        [("fresh", not(Refusal::NotGated)), ("passed", Standing::Ready), ("wider", not(Refusal::NotPassed))]
    );
    assert_eq!(listing.notes, ["No Branch is no branch", "link is no folder"]);
    assert_eq!(serde_json::to_value(&listing).unwrap()["branches"][0]["standing"], "not-gated");
}
