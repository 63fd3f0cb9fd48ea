//! What passes the gate, what it leaves, and that nothing of a branch is trusted before.

use std::fs;
use std::time::{Duration, Instant};

use foundry::{Blame, GateVerdict, RowVerdict};

use crate::rig::{Rig, guild};

#[test]
fn what_the_gate_said_lies_beside_the_branch() {
    let rig = Rig::new();
    rig.branch("better", "You read well.");
    let record = rig.gated("better", GateVerdict::Passed);
    let text = fs::read_to_string(rig.at("branches/better/gate.json")).unwrap();
    assert_eq!(serde_json::from_str::<foundry::GateRecord>(&text).unwrap(), record);
    assert_eq!(rig.arena.asked.get(), 1);
    let left: Vec<_> = fs::read_dir(rig.at("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{left:?}");
}

/// R60, R61: it is read, judged, refused with its reason, and stays as a record.
#[test]
fn r60_a_hypothesis_for_broader_tools_is_evaluated_and_refused_with_its_reason() {
    let rig = Rig::new();
    guild(&rig.at("branches/broader/guild"), &["read_file", "run_shell", "finish"], "You do.");
    let hypothesis = r#"{"schema": 1, "statement": "A shell would help.",
        "tools": [{"role": "worker", "add": ["run_shell"]}]}"#;
    fs::write(rig.at("branches/broader/hypothesis.json"), hypothesis).unwrap();
    let record = rig.gated("broader", GateVerdict::Refused);
    assert!(record.findings.iter().any(|f| f.to_string().contains("run_shell")), "{record:?}");
    assert_eq!(rig.arena.asked.get(), 0);
    let shown = rig.make().show(&rig.id("broader"), &rig.terms()).unwrap();
    assert_eq!(shown.hypothesis.unwrap().tools[0].add, ["run_shell"]);
    assert_eq!(shown.gate.unwrap().verdict, GateVerdict::Refused);
}

/// W8: a branch never leads to a file outside its folder.
#[test]
fn w8_a_prompt_from_outside_the_folder_is_refused_and_never_read() {
    let secret = "a-host-file-nobody-shall-see";
    for (name, prompt) in
        [("dots", "../../../../secret.md"), ("absolute", "/etc/passwd"), ("link", "prompts/link.md")]
    {
        let rig = Rig::new();
        fs::write(rig.path("secret.md"), secret).unwrap();
        let at = rig.at("branches").join(name);
        guild(&at.join("guild"), &["read_file", "finish"], "You read.");
        let manifest = fs::read_to_string(at.join("guild/guild.toml")).unwrap();
        fs::write(at.join("guild/guild.toml"), manifest.replace("prompts/worker.md", prompt)).unwrap();
        if name == "link" {
            rig.link(format!("branches/{name}/guild/prompts/link.md"), "../../../../../../secret.md");
        }
        let record = rig.gated(name, GateVerdict::Refused);
        assert!(!record.findings.is_empty() && rig.arena.asked.get() == 0, "{record:?}");
        assert!(!serde_json::to_string(&record).unwrap().contains(secret));
    }
}

/// W9: what is no branch's name never reaches the disk.
#[test]
fn w9_a_branch_is_a_folder_of_its_own_and_no_link_to_another() {
    let rig = Rig::new();
    rig.link("branches/base", "../baseline");
    let e = rig.gate("base").unwrap_err();
    assert_eq!(e.blame(), Blame::Input, "{e}");
    fs::create_dir(rig.at("branches/inner")).unwrap();
    rig.link("branches/inner/guild", "../../baseline");
    rig.gated("inner", GateVerdict::Refused);
    assert_eq!(rig.gate("nobody").unwrap_err().blame(), Blame::Input);
    // Nor is the folder of all branches one.
    fs::rename(rig.at("branches"), rig.at("elsewhere")).unwrap();
    rig.link("branches", "elsewhere");
    assert!(rig.gate("inner").is_err());
    assert_eq!(rig.baseline(), "You read.");
}

#[test]
fn a_fifo_a_socket_or_a_device_is_refused_and_never_waited_for() {
    let rig = Rig::new();
    rig.branch("odd", "You read.");
    let fifo = rig.at("branches/odd/guild/prompts/fifo.md");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(rig.at("branches/odd/guild/s")).unwrap();
    let began = Instant::now();
    let record = rig.gated("odd", GateVerdict::Refused);
    assert!(began.elapsed() < Duration::from_secs(300));
    assert_eq!(record.findings.iter().filter(|f| f["code"] == "W-TREE-SPECIAL").count(), 2, "{record:?}");
    assert_eq!(record.branch_digest, None);
    // The hypothesis and the result are files as well, or nothing.
    let rig = Rig::new();
    rig.branch("odd", "You read.");
    for name in ["hypothesis.json", "gate.json"] {
        let fifo = rig.at("branches/odd").join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    }
    assert_eq!(rig.gate("odd").unwrap_err().blame(), Blame::Input);
    fs::remove_file(rig.at("branches/odd/hypothesis.json")).unwrap();
    rig.gated("odd", GateVerdict::Passed);
}

#[test]
fn an_attack_that_got_through_or_was_not_tried_is_no_pass() {
    for (row, verdict) in [
        (RowVerdict::Broken, GateVerdict::Broken),
        (RowVerdict::Error, GateVerdict::Unproven),
        (RowVerdict::Absent, GateVerdict::Unproven),
        (RowVerdict::Refused, GateVerdict::Passed),
    ] {
        let mut rig = Rig::new();
        rig.arena.verdict = row;
        rig.branch("better", "You read well.");
        rig.gated("better", verdict);
    }
}

/// A deployment that refuses the interpreter of the attacks by its name has shown nothing of its sandbox.
#[test]
fn programs_that_were_all_refused_by_name_are_no_pass_where_a_role_may_start_any() {
    for (tools, row, verdict) in [
        (["run_command", "finish"], RowVerdict::Refused, GateVerdict::Unproven),
        (["run_shell", "finish"], RowVerdict::HeldAround, GateVerdict::Unproven),
        (["run_command", "finish"], RowVerdict::Held, GateVerdict::Passed),
        (["read_file", "finish"], RowVerdict::Refused, GateVerdict::Passed),
    ] {
        let mut rig = Rig::empty(tempfile::tempdir().unwrap());
        rig.arena.verdict = row;
        guild(&rig.path("start"), &tools, "You do.");
        rig.make().init(&rig.path("start"), &rig.terms()).unwrap();
        guild(&rig.at("branches/better/guild"), &tools, "You do well.");
        let record = rig.gated("better", verdict);
        if verdict == GateVerdict::Unproven {
            assert!(record.reason.contains("may start programs"), "{record:?}");
            rig.not_promoted("better", foundry::Refusal::NotPassed);
        }
        // Nobody may start any: what is refused by its name is all there is.
        rig.deployment.shell.enabled = false;
        rig.gated("better", GateVerdict::Passed);
    }
}

/// What was carried out, what a rule refused, and what shows nothing of a layer are three numbers.
#[test]
fn a_pass_tells_what_was_held_from_what_was_refused() {
    for (row, told) in [
        (RowVerdict::Held, "1 held, 0 refused by a rule"),
        (RowVerdict::Refused, "0 held, 1 refused by a rule"),
        (RowVerdict::HeldAround, "0 held, 0 refused by a rule, 1 held by what surrounds it"),
    ] {
        let mut rig = Rig::new();
        rig.arena.verdict = row;
        rig.branch("better", "You read well.");
        let reason = rig.gated("better", GateVerdict::Passed).reason;
        assert!(reason.ends_with(told), "{reason}");
    }
}

/// What a branch's author wrote is a text, and stays one.
#[test]
fn a_statement_is_kept_as_it_is_and_a_broken_one_is_the_askers_affair() {
    let rig = Rig::new();
    rig.branch("odd", "You read.");
    fs::write(rig.at("branches/odd/hypothesis.json"), "{\"schema\": 1, \"statement\": \"\\u001b[2J\"}")
        .unwrap();
    rig.gated("odd", GateVerdict::Passed);
    fs::write(rig.at("branches/odd/hypothesis.json"), "{\"schema\": 1}").unwrap();
    assert_eq!(rig.gate("odd").unwrap_err().blame(), Blame::Input);
    let listing = rig.make().list(&rig.terms()).unwrap();
    assert_eq!(listing.branches.len(), 1);
}

const WAIVER: &str = "[[waiver]]\nfinding = \"W-TOOL-ADDED\"\nplace = \"roles.worker.tools.write_file\"\n\
    reason = \"It has to write now.\"\nexpires = ";

/// The operator's word lets a named finding pass, for as long as it holds and nowhere else.
#[test]
fn a_waiver_of_the_operators_lets_one_finding_pass_until_it_ends() {
    let mut rig = Rig::new();
    guild(&rig.at("branches/writes/guild"), &["read_file", "write_file", "finish"], "You write.");
    rig.gated("writes", GateVerdict::Refused);
    rig.waivers = Some(format!("{WAIVER}2026-11-30\n"));
    let record = rig.gated("writes", GateVerdict::Passed);
    assert_eq!(record.waived.len(), 1, "{record:?}");
    assert!(record.waived[0].to_string().contains("It has to write now."));
    let by = record.waivers.unwrap();
    let sha256 = runs::sha256(rig.waivers.as_ref().unwrap().as_bytes());
    assert_eq!((by.file, by.sha256, record.unused.len()), ("foundry.toml".to_owned(), sha256, 0));
    // Until promotion it has ended, or was taken back.
    rig.waivers = None;
    rig.not_promoted("writes", foundry::Refusal::Wider);
    rig.waivers = Some(format!("{WAIVER}2026-11-29\n"));
    let e = rig.promote("writes").unwrap_err();
    assert_eq!(e.blame(), Blame::Input, "{e}");
    assert!(e.to_string().contains("has passed"), "{e}");
    assert_eq!(rig.gate("writes").unwrap_err().blame(), Blame::Input);
    assert!(!rig.at(".next").exists());
    rig.waivers = Some(format!("{WAIVER}2026-12-31\n"));
    rig.gated("writes", GateVerdict::Passed);
    let kept = rig.promote("writes").unwrap();
    assert_eq!(kept.waived.len(), 1);
}

/// One that nobody needs is one that somebody should take out.
#[test]
fn a_waiver_that_names_nothing_is_told() {
    let mut rig = Rig::new();
    rig.branch("better", "You read well.");
    rig.waivers = Some(format!("{WAIVER}2026-12-31\n"));
    let record = rig.gated("better", GateVerdict::Passed);
    assert_eq!((record.waived.len(), record.unused.len()), (0, 1), "{record:?}");
    assert_eq!(record.unused[0]["place"], "roles.worker.tools.write_file");
}

/// A waiver is the operator's: one that a branch brings along is no file of a Guild that anybody reads.
#[test]
fn a_waiver_in_a_branch_counts_for_nothing() {
    let rig = Rig::new();
    let at = rig.at("branches/writes");
    guild(&at.join("guild"), &["read_file", "write_file", "finish"], "You write.");
    for place in [at.join("foundry.toml"), at.join("guild/foundry.toml")] {
        fs::write(place, format!("{WAIVER}2026-12-31\n")).unwrap();
    }
    rig.gated("writes", GateVerdict::Refused);
}

/// R27: tools may come and go within what the baseline reaches, and the report says so.
#[test]
fn r27_tools_added_and_removed_are_told_role_by_role() {
    let rig = Rig::empty(tempfile::tempdir().unwrap());
    guild(&rig.path("start"), &["read_file", "search", "run_shell", "finish"], "You do.");
    rig.make().init(&rig.path("start"), &rig.terms()).unwrap();
    guild(&rig.at("branches/other/guild"), &["read_file", "run_shell", "run_command", "finish"], "You do.");
    let record = rig.gated("other", GateVerdict::Passed);
    assert_eq!(record.roles[0]["role"], "worker", "{record:?}");
    assert_eq!(record.roles[0]["added"], serde_json::json!(["run_command"]));
    assert_eq!(record.roles[0]["removed"], serde_json::json!(["search"]));
}

/// R58, R59: a Guild with a key in it is refused, and no report repeats it.
#[test]
fn r58_a_branch_that_holds_a_key_is_refused_and_no_report_repeats_it() {
    let key = "sk-abcdefghijklmnop0123456789";
    let rig = Rig::new();
    rig.branch("key", &format!("Use the key {key} when asked."));
    rig.gated("key", GateVerdict::Refused);
    let manifest = fs::read_to_string(rig.at("branches/key/guild/guild.toml")).unwrap();
    rig.branch("other", "You read.");
    fs::write(rig.at("branches/other/guild/guild.toml"), format!("api_key = \"{key}\"\n{manifest}")).unwrap();
    rig.gated("other", GateVerdict::Refused);
    for id in ["key", "other"] {
        let report = fs::read_to_string(rig.at("branches").join(id).join("gate.json")).unwrap();
        assert!(!report.contains(key), "{report}");
    }
}
