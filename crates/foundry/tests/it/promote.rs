//! What becomes the baseline, and what does not.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use foundry::{Act, FoundryError, GateVerdict, Refusal, Standing};
use policy::{HostRule, Surroundings, Tier, TierChoice};

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
    // With a floor that is met the same gate would be one for another place.
    rig.deployment.isolation.floor = Tier::Namespace;
    rig.not_promoted("better", Refusal::IsolationChanged);
    rig.gated("better", GateVerdict::Passed);
    rig.promote("better").unwrap();
}

/// What held in a machine is not shown to hold where a run would be put today, and the other way round.
#[test]
fn a_pass_on_one_tier_is_none_for_another() {
    let mut rig = Rig::new();
    rig.deployment.isolation.floor = Tier::Namespace;
    rig.deployment.isolation.tier = TierChoice::Microvm;
    rig.arena.tier = Tier::Microvm;
    rig.branch("better", "You read well.");
    rig.gated("better", GateVerdict::Passed);
    for other in [TierChoice::Namespace, TierChoice::Auto] {
        rig.deployment.isolation.tier = other;
        rig.not_promoted("better", Refusal::IsolationChanged);
    }
    rig.deployment.isolation.tier = TierChoice::Microvm;
    rig.deployment.isolation.floor = Tier::Confined;
    rig.not_promoted("better", Refusal::IsolationChanged);
    rig.deployment.isolation.floor = Tier::Namespace;
    rig.deployment.isolation.surroundings = Surroundings::Microvm;
    rig.not_promoted("better", Refusal::IsolationChanged);
    rig.deployment.isolation.surroundings = Surroundings::None;
    rig.promote("better").unwrap();
}

/// What an older list let pass has not met what the newer one tries.
#[test]
fn what_was_gated_with_another_list_of_attacks_is_gated_again() {
    let mut rig = Rig::new();
    rig.branch("better", "You read well.");
    rig.gated("better", GateVerdict::Passed);
    rig.attacks = "1".to_owned();
    rig.not_promoted("better", Refusal::AttacksChanged);
    let e = rig.promote("better").unwrap_err().to_string();
    assert!(e.contains("another list of attacks") && e.contains("gate it again"), "{e}");
    let standing = rig.make().show(&rig.id("better"), &rig.terms()).unwrap().standing;
    assert_eq!(standing, Standing::Not(Refusal::AttacksChanged));
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
    let back = || rig.make().rollback(&rig.terms(), false, &|_| {});
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
    let e = rig.make().rollback(&rig.terms(), false, &|_| {}).unwrap_err();
    assert_eq!(e.refusal(), Some(Refusal::KeptChanged), "{e}");
    assert_eq!(rig.baseline(), "one");
}

/// With a baseline of less than there was.
fn narrowed() -> Rig {
    let rig = Rig::empty(tempfile::tempdir().unwrap());
    guild(&rig.path("start"), &["read_file", "list_dir", "finish"], "You read.");
    rig.make().init(&rig.path("start"), &rig.terms()).unwrap();
    rig.branch("less", "You read.");
    rig.gated("less", GateVerdict::Passed);
    rig.promote("less").unwrap();
    rig
}

/// What was the baseline once is compared with what is now, like everything else.
#[test]
fn a_way_back_that_is_wider_says_so() {
    let rig = narrowed();
    let back = |wider: bool| rig.make().rollback(&rig.terms(), wider, &|_| {});
    let e = back(false).unwrap_err();
    assert!(e.refusal() == Some(Refusal::Wider) && e.to_string().contains("--wider"), "{e}");
    let FoundryError::Wider { findings, .. } = e else { panic!("{e}") };
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0]["place"], "roles.worker.tools.list_dir");
    assert!(rig.kept().len() == 1 && !rig.at(".next").exists());
    let kept = back(true).unwrap();
    assert_eq!((kept.wider.as_slice(), kept.n), (findings.as_slice(), 2));
    assert!(rig.make().history().unwrap()[1].wider == findings, "it is in the history");
}

/// A waiver of today's is as good on the way back.
#[test]
fn a_way_back_that_is_waived_passes() {
    let mut rig = narrowed();
    rig.waivers = Some(
        "[[waiver]]\nfinding = \"W-TOOL-ADDED\"\nplace = \"roles.worker.tools.list_dir\"\nreason = \"it is \
         meant\"\nexpires = 2026-12-31\n"
            .to_owned(),
    );
    let kept = rig.make().rollback(&rig.terms(), false, &|_| {}).unwrap();
    assert_eq!((kept.waived.len(), kept.wider.len(), kept.any_wider), (1, 0, false));
}

/// A waiver of yesterday's keeps nobody from going back who says that it may be wider, and everything that is gets told.
#[test]
fn an_ended_waiver_does_not_block_the_way_back_that_may_be_wider() {
    let mut rig = narrowed();
    rig.waivers = Some(
        "[[waiver]]\nfinding = \"W-TOOL-ADDED\"\nplace = \"roles.worker.tools.list_dir\"\nreason = \"it is \
         meant\"\nexpires = 2026-11-29\n"
            .to_owned(),
    );
    let back = |wider: bool| rig.make().rollback(&rig.terms(), wider, &|_| {});
    let e = back(false).unwrap_err();
    assert!(e.blame() == foundry::Blame::Input && e.to_string().contains("has passed"), "{e}");
    let kept = back(true).unwrap();
    assert_eq!((kept.waived.len(), kept.wider.len(), kept.any_wider), (0, 1, true));
}

/// The same where there is nothing to compare with: the cause that is told is the one there is, and the word is kept.
#[test]
fn a_way_back_from_what_cannot_be_read_needs_the_word_which_is_in_the_history() {
    for waiver in [None, Some("[[waiver]]\n".to_owned())] {
        let rig = narrowed();
        // As a newer version would have left it that knows more: sound then, and not for this one.
        let file = rig.at("baseline/guild.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text + "\n[unknown]\n").unwrap();
        let digest = rig.make().list(&rig.terms()).unwrap().baseline.unwrap();
        let record = rig.at("history").join(&rig.kept()[0]).join("record.json");
        let mut kept: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
        kept["to"] = digest.into();
        fs::write(&record, kept.to_string()).unwrap();
        let mut rig = rig;
        rig.waivers = waiver;
        let back = |wider: bool| rig.make().rollback(&rig.terms(), wider, &|_| {});
        let e = back(false).unwrap_err();
        if rig.waivers.is_some() {
            assert!(e.to_string().starts_with("waivers: "), "{e}");
        } else {
            assert!(e.refusal() == Some(Refusal::Wider) && e.to_string().contains("[unknown"), "{e}");
        }
        let kept = back(true).unwrap();
        assert_eq!((kept.wider.len(), kept.any_wider), (0, true));
        assert!(rig.make().history().unwrap()[1].any_wider, "it is in the history");
    }
}

/// No word of the operator's makes a baseline of what could not run.
#[test]
fn a_kept_baseline_that_could_not_run_any_more_is_not_taken() {
    let mut rig = Rig::empty(tempfile::tempdir().unwrap());
    let rule = HostRule::parse("api.example.com:443").unwrap();
    rig.deployment.network = vec![rule.into()];
    guild(&rig.path("start"), &["read_file", "finish"], "You read.");
    let file = rig.path("start/guild.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}\n[network]\nallow = [\"api.example.com:443\"]\n")).unwrap();
    rig.make().init(&rig.path("start"), &rig.terms()).unwrap();
    rig.branch("one", "one");
    rig.gated("one", GateVerdict::Passed);
    rig.promote("one").unwrap();
    rig.deployment.network.clear();
    for wider in [false, true] {
        let e = rig.make().rollback(&rig.terms(), wider, &|_| {}).unwrap_err();
        assert_eq!(e.refusal(), Some(Refusal::KeptUnfit), "{e}");
    }
    assert_eq!(rig.baseline(), "one");
}

/// Two promotions, in the history.
fn promoted_twice() -> Rig {
    let rig = Rig::new();
    for id in ["one", "two"] {
        rig.branch(id, id);
        rig.gated(id, GateVerdict::Passed);
        rig.promote(id).unwrap();
    }
    rig
}

#[track_caller]
fn assert_broken(rig: &Rig, sentence: &str) {
    let baseline = rig.baseline();
    rig.branch("three", "three");
    rig.gated("three", GateVerdict::Passed);
    let back = rig.make().rollback(&rig.terms(), true, &|_| {});
    for e in [back.unwrap_err(), rig.promote("three").unwrap_err()] {
        assert_eq!(e.refusal(), Some(Refusal::HistoryBroken), "{e}");
        assert!(e.to_string().contains(sentence), "{e}");
    }
    assert_eq!(rig.baseline(), baseline);
    assert!(!rig.at(".next").exists());
}

#[test]
fn a_history_with_a_hole_is_told() {
    let rig = promoted_twice();
    fs::remove_dir_all(rig.at("history").join(&rig.kept()[0])).unwrap();
    assert_broken(&rig, "change 1 is missing");
    assert_eq!(rig.make().list(&rig.terms()).unwrap_err().refusal(), Some(Refusal::HistoryBroken));
    // The newest leaves none, but the baseline is not what is kept says.
    let rig = promoted_twice();
    fs::remove_dir_all(rig.at("history").join(&rig.kept()[1])).unwrap();
    assert_broken(&rig, "the baseline is not what change 1 made it");
}

/// A Guild that nobody gated does not become the baseline by lying in the history.
#[test]
fn what_was_put_into_the_history_is_told() {
    let rig = promoted_twice();
    let record = fs::read_to_string(rig.at("history").join(&rig.kept()[1]).join("record.json")).unwrap();
    let mut planted: foundry::Kept = serde_json::from_str(&record).unwrap();
    let last = planted.clone();
    (planted.n, planted.from, planted.to) = (3, "f".repeat(64), last.to.clone());
    let at = rig.at("history").join(planted.name());
    guild(&at.join("guild"), &["read_file", "run_shell", "finish"], "You rule.");
    let put = |planted: &foundry::Kept| {
        fs::write(at.join("record.json"), serde_json::to_vec(planted).unwrap()).unwrap();
    };
    put(&planted);
    assert_broken(&rig, "did not replace what the change before had made");
    fs::remove_dir_all(&at).unwrap();
    // One that is in its place, and goes on from nothing.
    (planted.from, planted.before) = (last.to, Some("0".repeat(64)));
    let at = rig.at("history").join(planted.name());
    fs::create_dir(&at).unwrap();
    fs::write(at.join("record.json"), serde_json::to_vec(&planted).unwrap()).unwrap();
    assert_broken(&rig, "the record before it is not the one");
    planted.before = None;
    fs::write(at.join("record.json"), serde_json::to_vec(&planted).unwrap()).unwrap();
    assert_broken(&rig, "does not say which record was before it");
}

/// What an older version kept is as good as it was, is told, and goes on.
#[test]
fn a_history_of_an_older_version_goes_on() {
    let rig = promoted_twice();
    for name in rig.kept() {
        let file = rig.at("history").join(name).join("record.json");
        let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        record.as_object_mut().unwrap().remove("before");
        record["schema"] = 1.into();
        fs::write(&file, record.to_string()).unwrap();
    }
    let notes = rig.make().list(&rig.terms()).unwrap().notes;
    assert!(notes.len() == 1 && notes[0].contains("first 2 changes"), "{notes:?}");
    let kept = rig.make().rollback(&rig.terms(), false, &|_| {}).unwrap();
    assert!(kept.n == 3 && kept.before.is_some());
    assert_eq!(rig.make().history().unwrap().len(), 3);
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

/// R58: what is taken in without a gate is looked at all the same.
#[test]
fn r58_a_first_baseline_holds_no_key() {
    let rig = Rig::empty(tempfile::tempdir().unwrap());
    guild(&rig.path("keyed"), &["finish"], "Use sk-canary-0123456789abcdef-key.");
    let e = rig.make().init(&rig.path("keyed"), &rig.terms()).unwrap_err();
    assert_eq!(e.refusal(), Some(Refusal::KeyQuoted), "{e}");
    assert!(e.to_string().contains("W-KEY-QUOTED") && !e.to_string().contains("canary"), "{e}");
    assert!(!rig.at("baseline").exists() && !rig.at(".next").exists());
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
