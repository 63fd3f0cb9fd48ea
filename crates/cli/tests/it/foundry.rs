//! The Foundry from outside: the gate with real sandboxes, and what every command says and ends with.
//!
//! Where a claim is not about the programs that `prove` attacks with, no role may start any: each of those is then asked
//! for in vain, which takes no time. `attacked.rs` has those that are.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use foundry::{Arena, Attacks, BranchId, Foundry, FoundryError, GateVerdict, Row, RowVerdict};
use policy::{Deployment, Grant, RoleName, Tier};
use runs::Corpus;
use serde_json::Value;

use crate::attacked::{self, terms};
use crate::everywhere;
use crate::place::{Place, Ran, Who, holds, told};

const KEY: &str = "sk-canary-0123456789abcdef-key";
const QUICK: &str = "[isolation]\ntier = \"namespace\"\nfloor = \"namespace\"\n\
    [model]\napi_key_env = \"TEST_MODEL_KEY\"\n[secrets]\npass = [\"TEST_SECRET\"]\n";

/// A Foundry whose baseline may read and write.
fn place() -> Place {
    with(&["read_file", "write_file", "finish"])
}

/// A Foundry whose baseline is of one role with these tools.
fn with(tools: &[&str]) -> Place {
    let place = Place::quick();
    place.write("oubliette.toml", QUICK);
    place.guild(tools);
    foundry_of(&place, &["init", "guild"], 0);
    place
}

fn branch(place: &Place, id: &str, tools: &str, prompt: &str) {
    let manifest = place.read("guild/guild.toml").replace("tools = [", &format!("tools = [{tools}"));
    place.write(&format!("data/foundry/branches/{id}/guild/guild.toml"), manifest);
    place.write(&format!("data/foundry/branches/{id}/guild/prompts/worker.md"), prompt);
}

#[track_caller]
fn foundry_of(place: &Place, args: &[&str], code: i32) -> Ran {
    let ran = place.ran([&["foundry"], args].concat());
    assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
    assert!(!ran.err.contains("panicked"), "{ran:?}");
    ran
}

/// The result of the gate as a program reads it.
fn gated(place: &Place, id: &str, code: i32) -> Value {
    foundry_of(place, &["gate", id, "--json"], code).json()
}

/// The whole way of a branch, with all attacks, on a machine whose operator has keys.
#[test]
fn the_guide_of_the_foundry_is_what_happens() {
    let place = Place::quick();
    crate::guide::happens(&place, "foundry.md", 10, &["oubliette ", "mkdir ", "cp ", "echo ", "sed "]);
}

/// R58, R59: neither the model's key nor what is handed into sandboxes on purpose is in anything that the gate made, nor
/// could anything of a branch have seen it.
#[test]
fn r59_a_gate_needs_no_key_and_leaves_none() {
    let place = with(&["read_file", "run_command", "finish"]);
    branch(&place, "better", "", "You do it well.");
    let mut gate = place.oubliette(["foundry", "gate", "better", "--json"]);
    gate.env("TEST_MODEL_KEY", KEY).env("TEST_SECRET", "another-secret-of-the-operator");
    let ran = told(gate.output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for secret in [KEY, "another-secret-of-the-operator"] {
        assert!(!holds(&place.path("data"), secret.as_bytes()), "{secret} is in the Foundry");
        assert!(!ran.out.contains(secret) && !ran.err.contains(secret));
    }
    // Runs and canaries of the gate are gone.
    assert_eq!(fs::read_dir(place.path("home")).unwrap().count(), 0);
    assert!(place.ids().is_empty());
}

/// R59: the Foundry has no model and no key of one: whoever writes one down in its file is told so, and reads it nowhere.
#[test]
fn r59_a_key_written_into_the_foundrys_file_is_refused_and_not_repeated() {
    let place = place();
    branch(&place, "b", "", "You do it well.");
    let key = "sk-abcdefghijklmnop0123456789";
    for text in [
        format!("api_key = \"{key}\"\n"),
        format!("[model]\nbase_url = \"http://127.0.0.1:1\"\napi_key = \"{key}\"\n"),
        format!("[foundry.model]\nkey = \"{key}\"\n"),
        format!("{key} = 1\n"),
        format!("api_key = {key}\n"),
        "[model]\napi_key_env = \"TEST_MODEL_KEY\"\n".to_owned(),
    ] {
        place.write("data/foundry/foundry.toml", &text);
        for args in [&["gate", "b"][..], &["gate", "b", "--json"], &["promote", "b"], &["rollback"]] {
            // Nothing is kept that could be gone back to, and a branch without a result is refused before.
            let codes = if args[0] == "gate" { [2, 2] } else { [2, 3] };
            let ran = place.ran([&["foundry"], args].concat());
            assert!(codes.contains(&ran.code.unwrap()), "{text}: {args:?}: {ran:?}");
            assert!(!ran.out.contains(key) && !ran.err.contains(key), "{ran:?}");
        }
        fs::remove_file(place.path("data/foundry/foundry.toml")).unwrap();
        assert!(!holds(&place.path("data"), key.as_bytes()));
    }
}

/// R59: what a branch claims is anybody's text, and so are names in its folder: no key of them is shown, whatever
/// stands around it in the file or within it.
#[test]
fn r59_a_key_that_a_branch_claims_is_shown_in_no_form() {
    let place = place();
    branch(&place, "b", "", "You do it well.");
    branch(&place, "sk-abcdefgh01234567", "", "You do it well.");
    place.write("data/foundry/branches/use\nsk-abcdefgh01234567/x", "");
    let file = "data/foundry/branches/b/hypothesis.json";
    for text in [
        "use\nsk-abcdefgh01234567",
        "use\tsk-abcdefgh01234567",
        "use\rsk-abcdefgh01234567",
        "\"sk-abcdefgh01234567\"",
        "sk-\u{1b}[0mabcdefgh01234567",
        "sk-\u{200b}abcdefgh01234567",
        "use\\nsk-abcdefgh01234567",
        "Bearer\nabcdefgh01234567",
        "bEARER \t \"abcdefgh01234567\"",
    ] {
        for hypothesis in [
            serde_json::json!({"schema": 1, "statement": text}),
            serde_json::json!({"schema": 1, "statement": "x", "author": text}),
            serde_json::json!({"schema": 1, "statement": "x", "tools": [{"role": "worker", "add": [text]}]}),
            serde_json::json!({"schema": 1, "statement": "x", text: 1}),
        ] {
            place.write(file, hypothesis.to_string());
            for args in [&["list"][..], &["list", "--json"], &["show", "b"], &["show", "b", "--json"]] {
                let ran = foundry_of(&place, args, 0);
                let all = format!("{}{}", ran.out, ran.err);
                assert!(!all.contains("efgh0123"), "{hypothesis}: {args:?}: {all}");
                assert_eq!(
                    all.contains("looks like a key"),
                    args[0] == "show",
                    "{hypothesis}: {args:?}: {all}"
                );
            }
        }
    }
    // Nor is it in what the gate says, and writes.
    place.write(
        "data/foundry/branches/b/guild/prompts/worker.md",
        "Authorization: Bearer\nabcdefgh01234567\n",
    );
    fs::remove_file(place.path(file)).unwrap();
    for args in [&["gate", "b"][..], &["gate", "b", "--json"]] {
        let ran = foundry_of(&place, args, 3);
        assert!(ran.out.contains("W-KEY-QUOTED") && !ran.out.contains("efgh0123"), "{ran:?}");
    }
    for args in [&["show", "b"][..], &["show", "b", "--json"], &["list"], &["list", "--json"]] {
        let ran = foundry_of(&place, args, 0);
        assert!(!ran.out.contains("efgh0123") && !ran.err.contains("efgh0123"), "{ran:?}");
    }
    assert!(!place.read("data/foundry/branches/b/gate.json").contains("efgh0123"));
}

/// R61: nothing of a wider branch is run; R60: its reason stays.
#[test]
fn r61_a_wider_branch_is_refused_before_anything_is_started() {
    let place = place();
    branch(&place, "wider", "\"run_shell\", ", "You do it.");
    let statement = "A shell \u{1b}[2J\u{202e}helps.";
    let hypothesis = serde_json::json!({"schema": 1, "statement": statement, "tools": [{"role": "worker", "add": ["run_shell"]}]});
    place.write("data/foundry/branches/wider/hypothesis.json", hypothesis.to_string());
    // On a floor that no sandbox here reaches: none is wanted.
    let said = foundry_of(&place, &["gate", "wider", "--floor", "microvm", "--json"], 3).json();
    assert_eq!(said["ok"], false);
    let codes: Vec<&str> =
        said["gate"]["findings"].as_array().unwrap().iter().filter_map(|f| f["code"].as_str()).collect();
    assert!(codes.contains(&"W-SHELL-FORM") || codes.contains(&"W-TOOL-ADDED"), "{said}");
    assert_eq!(said["gate"]["roles"][0]["added"], serde_json::json!(["run_shell"]));
    assert!(said["gate"]["attacks"].is_null());
    let text = foundry_of(&place, &["gate", "wider"], 3).out;
    assert!(
        text.contains("wider refused") && text.contains("+run_shell") && text.contains("would pass:"),
        "{text}"
    );
    let refused = foundry_of(&place, &["promote", "wider", "--json"], 3).json();
    assert_eq!((&refused["ok"], &refused["refusal"]), (&false.into(), &"not-passed".into()), "{refused}");
    let shown = foundry_of(&place, &["show", "wider"], 0).out;
    assert!(shown.contains("asks for worker: +run_shell") && shown.contains("A shell"), "{shown}");
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown:?}");
    let listed = foundry_of(&place, &["list"], 0).out;
    assert!(
        listed.contains("not-passed") && !listed.contains('\u{1b}') && !listed.contains('\u{202e}'),
        "{listed:?}"
    );
}

/// A reviewer reads what a prompt says now, and no two digests: in every form, and with marks for what nobody would see.
#[test]
fn a_changed_prompt_is_shown_line_by_line() {
    let place = place();
    branch(&place, "b", "\"run_shell\", ", "You do what you are told.\u{202e}\nAlways.\n");
    let said = gated(&place, "b", 3);
    let diff = said["gate"]["prompts"]["roles.worker.prompt"].as_str().unwrap();
    assert!(
        diff.contains("-You do what you are asked.") && diff.contains("told.<U+202E>\n+Always."),
        "{diff}"
    );
    for verb in ["gate", "show"] {
        let text = foundry_of(&place, &[verb, "b"], if verb == "gate" { 3 } else { 0 }).out;
        let lines = "    -You do what you are asked.\n    +You do what you are told.<U+202E>\n    +Always.\n";
        assert!(text.contains("roles.worker.prompt\n    @@") && text.contains(lines), "{text}");
        assert!(!text.contains('\u{202e}'));
    }
    // However long it is: no more than anybody reads, and where the rest is.
    branch(&place, "b", "\"run_shell\", ", &"Another line.\n".repeat(4000));
    let text = foundry_of(&place, &["gate", "b"], 3).out;
    assert!(text.contains("more lines; `oubliette guild diff`") && text.lines().count() < 90, "{text}");
}

/// W9: 2 is said, and nothing is made, for whatever is no branch's name.
#[test]
fn w9_what_is_no_branchs_name_is_refused_by_every_command() {
    let place = place();
    let before = testkit::Tree::of(&place.path("data")).unwrap();
    let long = "a".repeat(65);
    for id in
        ["../baseline", "..", "", "/etc", "a/b", "Baseline", "b\u{430}se", "a b", "-x", "a\u{202e}b", &long]
    {
        for verb in ["gate", "promote", "show"] {
            let ran = foundry_of(&place, &[verb, id], 2);
            assert!(!ran.err.contains('\u{202e}'), "{ran:?}");
        }
    }
    for verb in ["gate", "promote", "show"] {
        foundry_of(&place, &[verb, "nobody"], 2);
        foundry_of(&place, &[verb, "nobody", "--json"], 2);
    }
    assert_eq!(
        before.differences(&testkit::Tree::of(&place.path("data")).unwrap()),
        Vec::<std::path::PathBuf>::new()
    );
}

#[test]
fn a_waiver_that_has_ended_is_a_fault_of_the_operators_file() {
    let place = place();
    branch(&place, "wider", "\"search\", ", "You do it.");
    let waiver = "[[waiver]]\nfinding = \"W-TOOL-ADDED\"\nplace = \"roles.worker.tools.search\"\nreason = \"It looks.\"\nexpires = ";
    place.write("data/foundry/foundry.toml", format!("{waiver}2020-01-01\n"));
    let ran = foundry_of(&place, &["gate", "wider"], 2);
    assert!(ran.err.contains("has passed"), "{ran:?}");
    assert!(!place.path("data/foundry/branches/wider/gate.json").exists());
    // One that a branch brought along is nobody's word.
    place.write("data/foundry/branches/wider/foundry.toml", format!("{waiver}2999-01-01\n"));
    fs::remove_file(place.path("data/foundry/foundry.toml")).unwrap();
    let file = "data/foundry/branches/wider/foundry.toml";
    let ran = foundry_of(&place, &["gate", "wider", "--waivers", file], 2);
    assert!(ran.err.contains("operator"), "{ran:?}");
}

/// A tool of the Guild's own is run only behind the rules, and is attacked like every other.
#[cfg(feature = "wasm")]
#[test]
fn a_branch_with_a_tool_of_its_own_is_attacked_with_it() {
    let place = Place::quick();
    place.write("oubliette.toml", QUICK);
    place.guild(&["read_file", "add", "finish"]);
    let manifest = place.read("guild/guild.toml");
    place.write(
        "guild/guild.toml",
        format!("{manifest}\n[tools.add]\nmanifest = \"add.json\"\nmodule = \"add.wasm\"\n"),
    );
    place.write(
        "guild/add.json",
        r#"{"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {}}}"#,
    );
    place.write("guild/add.wasm", wat::parse_str("(module (func (export \"_start\")))").unwrap());
    foundry_of(&place, &["init", "guild"], 0);
    for name in ["guild.toml", "add.json", "add.wasm", "prompts/worker.md"] {
        let bytes = fs::read(place.path("guild").join(name)).unwrap();
        place.write(&format!("data/foundry/branches/own/guild/{name}"), bytes);
    }
    place.write("data/foundry/branches/own/guild/prompts/worker.md", "You add.");
    let said = gated(&place, "own", 0);
    let rows = said["gate"]["attacks"]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["attack"] == "tool:add").unwrap();
    assert_eq!((&row["role"], &row["verdict"]), (&"worker".into(), &"held".into()), "{row}");
    // Where it runs, hostile modules are tried: each of the list, in the name of nobody.
    let corpus = Corpus::shipped().unwrap();
    let modules: Vec<&str> =
        corpus.attacks().iter().filter(|a| a.module.is_some()).map(|a| a.id.as_str()).collect();
    assert!(modules.len() >= 13, "{modules:?}");
    for attack in modules {
        let row =
            rows.iter().find(|row| row["attack"] == attack).unwrap_or_else(|| panic!("{attack}: {said}"));
        assert_eq!((&row["role"], &row["verdict"]), (&"".into(), &"held".into()), "{row}");
    }
    // Another module under its name is another tool.
    let other = wat::parse_str("(module (func (export \"_start\") (unreachable)))").unwrap();
    place.write("data/foundry/branches/own/guild/add.wasm", other);
    let said = gated(&place, "own", 3);
    assert!(said["gate"]["findings"].to_string().contains("W-MODULE-CHANGED"), "{said}");
}

/// A Guild of many roles and many tools of its own, every third of which all roles list and the others none.
#[cfg(feature = "wasm")]
fn many(place: &Place, at: &str, (roles, tools): (usize, usize), prompt: &str) {
    let names: Vec<String> = (0..tools).map(|n| format!("tool_{n}")).collect();
    let list: Vec<&String> = names.iter().step_by(3).collect();
    let mut text = "schema = 1\nname = \"many\"\nentry = \"r0\"\n".to_owned();
    for n in 0..roles {
        text += &format!("[roles.r{n}]\nprompt = \"p\"\ntools = {list:?}\n");
    }
    let module = wat::parse_str("(module (func (export \"_start\")))").unwrap();
    for name in &names {
        text += &format!("[tools.{name}]\nmanifest = \"{name}.json\"\nmodule = \"one.wasm\"\n");
        let parameters = serde_json::json!({"type": "object", "properties": {}});
        let manifest = serde_json::json!({"name": name, "description": "does", "parameters": parameters});
        place.write(&format!("{at}/{name}.json"), manifest.to_string());
    }
    place.write(&format!("{at}/guild.toml"), text);
    place.write(&format!("{at}/one.wasm"), module);
    place.write(&format!("{at}/p"), prompt);
}

/// What there is to attack is bounded by roles and tools and not by one times the other, and leaves nothing; and where it
/// is more than the operator waits for, that is a refusal.
#[cfg(feature = "wasm")]
#[test]
fn a_branch_of_many_roles_and_tools_is_attacked_in_time_or_refused() {
    let place = Place::quick();
    place.write("oubliette.toml", QUICK);
    many(&place, "guild", (12, 30), "You do it.");
    foundry_of(&place, &["init", "guild"], 0);
    many(&place, "data/foundry/branches/much/guild", (12, 30), "You do it well.");
    let began = std::time::Instant::now();
    let said = foundry_of(&place, &["gate", "much", "--within", "1", "--json"], 3).json();
    assert_eq!((&said["ok"], &said["gate"]["verdict"]), (&false.into(), &"too-much".into()));
    assert!(said["gate"]["reason"].as_str().unwrap().contains("not over after 1s"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(300), "{:?}", began.elapsed());
    assert_eq!(fs::read_dir(place.path("home")).unwrap().count(), 0);
    let refused = foundry_of(&place, &["promote", "much", "--json"], 3).json();
    assert_eq!(refused["refusal"], "not-passed");
    let text = foundry_of(&place, &["show", "much"], 0).out;
    assert!(text.contains("too-much") && text.contains("not to their end"), "{text}");
    let rows = gated(&place, "much", 0)["gate"]["attacks"]["rows"].as_array().unwrap().clone();
    let of = |tool: &str| rows.iter().filter(|row| row["attack"] == format!("tool:{tool}")).count();
    assert!((1..=4).contains(&of("tool_0")) && of("read_file") == 12, "{}", of("tool_0"));
    assert_eq!(fs::read_dir(place.path("home")).unwrap().count(), 0);
}

/// Whatever ends a gate, nothing of it stays; what somebody was killed at, the next one removes.
#[test]
fn a_gate_that_is_ended_leaves_no_folder() {
    let place = Place::quick();
    place.write("oubliette.toml", QUICK);
    place.guild(&["read_file", "write_file", "finish"]);
    // Each role is attacked for itself: with so many the gate goes on for seconds behind the moment that is waited for.
    let mut manifest = place.read("guild/guild.toml");
    for n in 0..60 {
        manifest += &format!(
            "[roles.r{n}]\nprompt = \"prompts/worker.md\"\ntools = [\"read_file\", \"write_file\", \"finish\"]\n"
        );
    }
    place.write("guild/guild.toml", manifest);
    foundry_of(&place, &["init", "guild"], 0);
    branch(&place, "b", "", "You do it well.");
    let home = || fs::read_dir(place.path("home")).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT, rustix::process::Signal::KILL]
    {
        let mut command = place.oubliette(["foundry", "gate", "b"]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let child = command.spawn().unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(300);
        while home().iter().all(|folder| !folder.join("runs-roles").exists()) {
            assert!(std::time::Instant::now() < until, "{:?}", home());
            std::thread::sleep(Duration::from_millis(2));
        }
        let id = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        rustix::process::kill_process(id, signal).unwrap();
        let ended = child.wait_with_output().unwrap();
        if signal == rustix::process::Signal::KILL {
            let long_ago = std::time::SystemTime::now() - Duration::from_secs(600);
            home().iter().for_each(|folder| fs::File::open(folder).unwrap().set_modified(long_ago).unwrap());
            foundry_of(&place, &["gate", "b"], 0);
        } else {
            assert_eq!(ended.status.code(), Some(5), "{ended:?}");
        }
        assert_eq!(home(), Vec::<std::path::PathBuf>::new(), "{signal:?}");
    }
}

/// The same in machines: whoever has the tier has the gate on it. Three of them are started, which takes most of its time.
#[test]
fn a_branch_is_gated_in_a_machine_as_well() {
    let place = Place::new("microvm", Who::Own);
    place.write("oubliette.toml", QUICK.replace("\"namespace\"", "\"microvm\""));
    place.guild(&["read_file", "write_file", "run_shell", "finish"]);
    branch(&place, "b", "", "You do it well.");
    let record = attacked::gated(&place, "b", &attacked::shipped(&["host-file-by-name"]));
    assert_eq!(record.verdict, GateVerdict::Passed, "{record:#?}");
    assert_eq!(record.attacks.as_ref().unwrap().tier, Tier::Microvm);
    for (attack, verdict) in [
        ("tool:run_shell", RowVerdict::Held),
        ("tool:write_file", RowVerdict::Held),
        ("tool:run_command", RowVerdict::Refused),
        ("host-file-by-name", RowVerdict::Held),
    ] {
        let row = attacked::row(&record, attack);
        assert_eq!((row.role.as_str(), row.verdict), ("worker", verdict), "{row:?}");
    }
}

everywhere! {
    /// What a gate shows of the roles' calls it shows on each tier, and to an ordinary user as well.
    fn a_branch_is_gated_wherever_it_runs(place: &Place) {
        place.write("oubliette.toml", QUICK.replace("\"namespace\"", &format!("\"{}\"", place.tier)));
        gated_on(place, place.tier);
    }
}

#[track_caller]
fn gated_on(place: &Place, tier: &str) {
    place.guild(&["read_file", "write_file", "finish"]);
    foundry_of(place, &["init", "guild"], 0);
    branch(place, "b", "", "You do it well.");
    let said = gated(place, "b", 0);
    assert_eq!(said["gate"]["attacks"]["tier"], tier, "{said}");
    let rows = said["gate"]["attacks"]["rows"].as_array().unwrap();
    for (attack, verdict) in [
        ("tool:read_file", "held"),
        ("tool:write_file", "held"),
        ("tool:run_shell", "refused"),
        ("no-process-is-left", "held"),
        ("the-foundry-is-untouched", "held"),
    ] {
        let mut of = rows.iter().filter(|row| row["attack"] == attack);
        assert!(of.clone().count() > 0 && of.all(|row| row["verdict"] == verdict), "{attack}: {said}");
    }
    assert_eq!(fs::read_dir(place.path("home")).unwrap().count(), 0);
}

/// Who has written no deployment has the default one, also here.
#[test]
fn a_branch_is_gated_without_a_deployment() {
    let place = Place::any();
    gated_on(&place, "gvisor");
}

/// A folder where the result should lie is told as what it is, before anything is attacked.
#[test]
fn what_lies_in_the_place_of_a_result_is_told_with_2() {
    let place = place();
    branch(&place, "b", "", "You do it well.");
    fs::create_dir(place.path("data/foundry/branches/b/gate.json")).unwrap();
    let ran = foundry_of(&place, &["gate", "b"], 2);
    assert!(ran.err.contains("gate.json: a file is wanted here, and a folder lies there"), "{ran:?}");
}

/// What each role may not do is refused, and what it may do is held, by name.
#[test]
fn every_role_is_played_with_every_tool() {
    let place = Place::quick();
    place.write("oubliette.toml", QUICK);
    place.guild(&["read_file", "write_file", "run_command", "finish"]);
    let more = "\n[roles.second]\nprompt = \"prompts/worker.md\"\ntools = []\n";
    place.write("guild/guild.toml", place.read("guild/guild.toml") + more);
    branch(&place, "b", "", "You do it.");
    let record = attacked::gated(&place, "b", &attacked::shipped(&["host-file-by-name"]));
    assert_eq!(record.verdict, GateVerdict::Passed, "{record:#?}");
    let rows = &record.attacks.as_ref().unwrap().rows;
    for tool in policy::Tool::ALL {
        for role in ["worker", "second"] {
            let name = format!("tool:{tool}");
            let row = rows.iter().find(|row| row.attack == name && row.role == role).unwrap();
            let has = role == "worker" && ["read_file", "write_file", "run_command"].contains(&tool.as_str());
            assert_eq!(row.verdict, if has { RowVerdict::Held } else { RowVerdict::Refused }, "{row:?}");
        }
    }
    assert!(!rows.iter().any(|row| row.attack.starts_with("module-")), "it has no tool of its own");
    let left = |row: &&Row| row.attack == "no-process-is-left" && row.verdict == RowVerdict::Held;
    assert!(rows.iter().any(|row| left(&row)), "{rows:#?}");
}

/// Attacks that were made and held.
struct Said;

impl Arena for Said {
    async fn attack(
        &self,
        _: &agent::LoadedGuild,
        _: &Grant,
        _: &BTreeSet<RoleName>,
    ) -> Result<Attacks, FoundryError> {
        let row = Row {
            role: String::new(),
            attack: "one".to_owned(),
            verdict: RowVerdict::Held,
            layer: String::new(),
            detail: String::new(),
        };
        let (engine, corpus) = (String::new(), foundry::attacks_digest(&Corpus::shipped().unwrap()));
        Ok(Attacks { tier: Tier::Namespace, engine, corpus, rows: vec![row], duration_ms: 1 })
    }
}

/// As if the attacks had been made under this place's deployment.
fn passed(place: &Place, id: &str) {
    let text = place.read("oubliette.toml");
    let deployment = Deployment::parse("oubliette.toml", &text).unwrap();
    let terms = terms(&deployment, &text, foundry::attacks_digest(&Corpus::shipped().unwrap()));
    let foundry = Foundry::open(&place.path("data")).unwrap().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let record = runtime.block_on(foundry.gate(&BranchId::parse(id).unwrap(), &terms, &Said)).unwrap();
    assert_eq!(record.verdict, GateVerdict::Passed, "{record:?}");
}

#[test]
fn of_two_programs_that_promote_at_once_one_wins_and_the_other_ends_with_3() {
    for _ in 0..5 {
        let place = place();
        for id in ["one", "two"] {
            branch(&place, id, "", id);
            passed(&place, id);
        }
        let start = |id: &str| {
            let mut command = place.oubliette(["foundry", "promote", id, "--json"]);
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            command.spawn().unwrap()
        };
        let both = ["one", "two"].map(start);
        let mut ends = both.map(|child| told(child.wait_with_output().unwrap()));
        ends.sort_by_key(|ran| ran.code);
        assert_eq!((ends[0].code, ends[1].code), (Some(0), Some(3)), "{ends:?}");
        assert_eq!(ends[1].json()["refusal"], "baseline-changed", "{ends:?}");
        let winner = ends[0].json()["change"]["branch"].as_str().unwrap().to_owned();
        assert_eq!(place.read("data/foundry/baseline/prompts/worker.md"), winner);
    }
}

#[test]
fn promoting_and_going_back_are_told_and_kept() {
    let place = place();
    branch(&place, "one", "", "one");
    passed(&place, "one");
    let promoted = foundry_of(&place, &["promote", "one", "--json"], 0).json();
    assert_eq!((&promoted["change"]["act"], &promoted["change"]["n"]), (&"promote".into(), &1.into()));
    assert!(place.path("data/foundry/history").join(promoted["kept_in"].as_str().unwrap()).is_dir());
    let back = foundry_of(&place, &["rollback"], 0).out;
    assert!(back.contains("went back to what change 1 had replaced"), "{back}");
    let none = foundry_of(&place, &["rollback", "--json"], 3).json();
    assert_eq!(none["refusal"], "nothing-kept");
    let list = foundry_of(&place, &["list", "--json"], 0).json();
    assert_eq!(list["history"].as_array().unwrap().len(), 2, "{list}");
    assert_eq!(list["branches"][0]["standing"], "ready");
    assert_eq!(fs::metadata(place.path("data/foundry")).unwrap().permissions().mode() & 0o777, 0o700);
}

/// The way back is judged too, and what is wider is shown in text and JSON before it is done.
#[test]
fn a_way_back_that_is_wider_is_shown_and_refused() {
    let place = place();
    let text = place.read("data/foundry/baseline/guild.toml");
    let less = text.replacen("\"write_file\",", "", 1);
    assert_ne!(less, text, "the baseline writes");
    place.write("data/foundry/branches/less/guild/guild.toml", less);
    place.write("data/foundry/branches/less/guild/prompts/worker.md", "Less.");
    passed(&place, "less");
    foundry_of(&place, &["promote", "less"], 0);
    let text = foundry_of(&place, &["rollback"], 3);
    assert!(text.out.contains("wider   W-") && text.err.contains("--wider"), "{text:?}");
    let told = foundry_of(&place, &["rollback", "--json"], 3).json();
    assert_eq!(told["refusal"], "wider");
    assert!(told["findings"][0]["code"].as_str().unwrap().starts_with("W-"), "{told}");
    let back = foundry_of(&place, &["rollback", "--wider"], 0).out;
    assert!(back.contains("wider   W-"), "{back}");
}

/// Without a Foundry, a baseline or a tier there is a sentence, and a code that says whose affair it is.
#[test]
fn what_is_missing_is_named() {
    let place = Place::quick();
    place.write("oubliette.toml", QUICK);
    for args in [&["list"][..], &["rollback"], &["gate", "x"], &["promote", "x"]] {
        let ran = foundry_of(&place, args, 2);
        assert!(ran.err.contains("foundry init"), "{ran:?}");
    }
    assert!(!place.path("data").exists());
    place.guild(&["read_file", "finish"]);
    foundry_of(&place, &["init", "guild"], 0);
    branch(&place, "one", "", "one");
    // Refused by the floor, with a remedy, and what stays is that nothing was shown.
    let ran = foundry_of(&place, &["gate", "one", "--floor", "microvm"], 3);
    assert!(ran.err.contains("floor") || ran.err.contains("microvm"), "{ran:?}");
    let shown = foundry_of(&place, &["show", "one", "--json"], 0).json();
    assert_eq!((&shown["gate"]["verdict"], &shown["standing"]), (&"unproven".into(), &"not-passed".into()));
}
