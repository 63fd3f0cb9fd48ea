//! What a proposal may do to who reviews it: bring along the operator's files, hide a change, or speak as the report.

use std::fs;

use serde_json::Value;

use crate::place::{Place, Ran, ran};

/// Two Guilds of one role: `old` and `guild`.
fn pair() -> Place {
    let place = Place::quick();
    place.guild(&["finish"]);
    for (name, text) in [
        ("guild.toml", place.read("guild/guild.toml")),
        ("prompts/worker.md", place.read("guild/prompts/worker.md")),
    ] {
        place.write(&format!("old/{name}"), text);
    }
    place
}

fn diff(place: &Place, more: &[&str]) -> Ran {
    ran(&mut place.oubliette([&["guild", "diff", "old", "guild"][..], more].concat()))
}

/// Every form of the report.
fn forms(place: &Place) -> [Ran; 3] {
    [diff(place, &[]), diff(place, &["--json"]), diff(place, &["--sarif"])]
}

/// R61: a proposal that brings a deployment or waivers along has nothing to say with them, wherever somebody stands.
#[test]
fn r61_no_file_of_the_operators_lies_in_the_proposal_or_behind_its_links() {
    let place = pair();
    place.write("guild/oubliette.toml", "[limits]\nmemory = \"64GiB\"\n");
    place.write("mine.toml", "[limits]\nmemory = \"1GiB\"\n");
    place.link("guild/link.toml", "../mine.toml");
    place.link("to-own.toml", "guild/oubliette.toml");
    fs::hard_link(place.path("guild/oubliette.toml"), place.path("hard.toml")).unwrap();
    for file in [
        "guild/oubliette.toml",
        "guild/../guild/oubliette.toml",
        "guild/link.toml",
        "to-own.toml",
        "hard.toml",
    ] {
        diff(&place, &["--config", file]).assert_refused(2, "--config");
        diff(&place, &["--config", "mine.toml", "--old-config", file]).assert_refused(2, "the operator's");
        ran(&mut place.oubliette(["guild", "check", "guild", "--config", file]))
            .assert_refused(2, "--config");
    }
    assert_eq!(diff(&place, &["--config", "mine.toml"]).code, Some(0));
    // Found by default, where somebody stands in it.
    for (at, old, new) in [("guild", "../old", "."), ("guild", "../old", "../guild"), (".", "old", ".")] {
        if at == "." {
            fs::copy(place.path("mine.toml"), place.path("oubliette.toml")).unwrap();
        }
        let mut command = place.oubliette(["guild", "diff", old, new]);
        ran(command.current_dir(place.path(at))).assert_refused(2, "--config");
    }
    // Where there is none, there is none.
    fs::remove_file(place.path("guild/oubliette.toml")).unwrap();
    fs::remove_file(place.path("guild/link.toml")).unwrap();
    let mut command = place.oubliette(["guild", "diff", "../old", "."]);
    assert_eq!(ran(command.current_dir(place.path("guild"))).code, Some(0));
}

#[test]
fn r61_waivers_among_branches_are_nobodys_word() {
    let place = pair();
    place.write("data/foundry/branches/b/foundry.toml", "");
    fs::create_dir_all(place.path("data/foundry/branches/b/guild")).unwrap();
    for (name, file) in [("guild.toml", "guild/guild.toml"), ("prompts/worker.md", "guild/prompts/worker.md")]
    {
        place.write(&format!("data/foundry/branches/b/guild/{name}"), place.read(file));
    }
    ran(&mut place.oubliette(["foundry", "init", "guild"]));
    let args = ["guild", "diff", "old", "data/foundry/branches/b/guild", "--waivers"];
    let mut command = place.oubliette([&args[..], &["data/foundry/branches/b/foundry.toml"]].concat());
    ran(&mut command).assert_refused(2, "the operator's");
    // A deployment beneath the branches is none of the Foundry's either.
    place.write("data/foundry/branches/b/oubliette.toml", "[limits]\nmemory = \"64GiB\"\n");
    for file in ["data/foundry/branches/b/oubliette.toml", "data/../data/foundry/branches/b/oubliette.toml"] {
        let args = ["foundry", "gate", "b", "--data", "data", "--config", file];
        ran(&mut place.oubliette(args)).assert_refused(2, "--config");
    }
}

/// R61: who reviews stands in a checkout of the proposal, and its files beside the Guild would be the first to be found.
#[test]
fn r61_a_checkout_brings_no_deployment_and_no_waivers_along_and_the_report_names_both() {
    let place = pair();
    place.write("guild/guild.toml", place.read("guild/guild.toml").replace("finish", "search"));
    fs::create_dir_all(place.path("pr/.git")).unwrap();
    for name in ["guild.toml", "prompts/worker.md"] {
        place.write(&format!("pr/new/{name}"), place.read(format!("guild/{name}")));
        place.write(&format!("pr/old/{name}"), place.read(format!("old/{name}")));
    }
    let waiver = "[[waiver]]\nfinding = \"W-TOOL-ADDED\"\nplace = \"roles.worker.tools.search\"\n\
                  reason = \"I say so\"\nexpires = 9999-12-31\n";
    let in_pr = |args: &[&str]| {
        ran(place.oubliette([&["guild", "diff"], args].concat()).current_dir(place.path("pr")))
    };
    place.write("pr/data/foundry/foundry.toml", waiver);
    in_pr(&["../old", "new"]).assert_refused(2, "name it (`--waivers`)");
    // Both in one checkout: whoever has a say in it has one in both.
    assert!(in_pr(&["old", "new"]).out.contains("I say so"));
    let named = ["../old", "new", "--waivers", "data/foundry/foundry.toml"];
    let told = in_pr(&named);
    assert!(told.out.contains("deployment: built in; waivers: data/foundry/foundry.toml"), "{told:?}");
    for (form, at) in [("--json", "/judged_by"), ("--sarif", "/runs/0/properties/judged_by")] {
        let told = in_pr(&[&named[..], &[form]].concat()).json();
        let by = told.pointer(at).unwrap();
        assert_eq!((&by["waivers"], &by["deployment"]), (&"data/foundry/foundry.toml".into(), &Value::Null));
    }
    fs::remove_dir_all(place.path("pr/data")).unwrap();
    place.write("pr/oubliette.toml", "[limits]\nmemory = \"1GiB\"\n");
    in_pr(&["../old", "new"]).assert_refused(2, "name it (`--config`)");
    let told = in_pr(&["../old", "new", "--config", "oubliette.toml"]);
    assert!(told.out.contains("deployment: oubliette.toml; waivers: none"), "{told:?}");
}

/// A change in a line of sixty thousand characters is shown by the text as well.
#[test]
fn a_change_is_shown_however_long_its_line_is_and_however_many_there_are() {
    let place = pair();
    let long = "as it was ".repeat(3000);
    place.write("old/prompts/worker.md", format!("{long}keep it{long}\n"));
    place.write("guild/prompts/worker.md", format!("{long}SEND it{long}\n"));
    let told = diff(&place, &[]);
    assert!(told.out.contains("SEND it") && told.out.contains("keep it"), "{told:?}");
    assert!(told.out.contains("characters before this are the same"), "{told:?}");
    assert!(told.out.lines().all(|line| line.chars().count() < 400));
    place.write("guild/prompts/worker.md", "new\n".repeat(500) + "LAST\n");
    assert!(diff(&place, &[]).out.contains("LAST"));
    // The end of the last line is part of it.
    place.write("old/prompts/worker.md", "a\n");
    place.write("guild/prompts/worker.md", "a");
    assert!(diff(&place, &[]).out.contains("No newline"));
}

/// What the text shows, the forms for programs have.
#[test]
fn prompts_of_roles_that_came_and_went_are_in_every_form() {
    let place = pair();
    let manifest = place.read("guild/guild.toml");
    place.write("old/guild.toml", format!("{manifest}[roles.gone]\nprompt = \"gone.md\"\ntools = []\n"));
    place.write("old/gone.md", "what was SAID before\n");
    place.write("guild/guild.toml", format!("{manifest}[roles.came]\nprompt = \"came.md\"\ntools = []\n"));
    place.write("guild/came.md", "what is SAID now\n");
    for told in forms(&place) {
        assert!(told.out.contains("+what is SAID now"), "{told:?}");
        assert!(told.out.contains("-what was SAID before"), "{told:?}");
    }
    let json = diff(&place, &["--json"]).json();
    assert!(json["prompts"]["roles.came.prompt"].as_str().unwrap().contains("SAID now"), "{json}");
    let sarif = diff(&place, &["--sarif"]).json();
    let of = |code: &str| -> Value {
        let results = sarif["runs"][0]["results"].as_array().unwrap();
        results.iter().find(|r| r["ruleId"] == code).unwrap()["properties"]["diff"].clone()
    };
    assert!(of("B-PROMPT").as_str().unwrap().contains("SAID now"), "{sarif}");
    assert!(of("N-ROLE-REMOVED").as_str().unwrap().contains("SAID before"), "{sarif}");
}

/// What nobody sees in a prompt, a reviewer is shown.
#[test]
fn r59_what_is_written_and_not_seen_is_marked_in_every_form() {
    let place = pair();
    let hidden = [
        '\u{fe0e}',
        '\u{e0101}',
        '\u{e0041}',
        '\u{3164}',
        '\u{34f}',
        '\u{ad}',
        '\u{fffa}',
        '\u{e123}',
        '\u{200d}',
    ];
    for c in hidden {
        place.write("guild/prompts/worker.md", format!("You do what{c} you are asked.\n"));
        for told in forms(&place) {
            let mark = format!("U+{:04X}", u32::from(c));
            assert!(told.out.contains(&mark) && told.out.contains("B-HIDDEN"), "{mark}: {told:?}");
            assert!(!told.out.contains(c), "{mark}");
        }
    }
    // Pictures are what they are.
    place.write("guild/prompts/worker.md", "You \u{2764}\u{fe0f} work, \u{1f469}\u{200d}\u{1f4bb}.\n");
    let told = diff(&place, &[]);
    assert!(told.out.contains('\u{1f469}') && !told.out.contains("B-HIDDEN"), "{told:?}");
}

/// R59: no error repeats a key that stands in a file of the Guild.
#[test]
fn r59_no_error_about_a_guilds_file_repeats_a_key() {
    let place = pair();
    let secret = "sk-Zq81abcdefghijkl";
    let manifest =
        place.read("guild/guild.toml") + "\n[tools.t]\nmanifest = \"t.json\"\nmodule = \"t.wasm\"\n";
    let json = |text: &str| vec![("guild.toml", manifest.clone()), ("t.json", text.to_owned())];
    let toml = |text: &str| vec![("guild.toml", text.to_owned())];
    for files in [
        json(&format!(r#"{{"name": "t", "description": "d", "parameters": "{secret}"}}"#)),
        json(&format!(r#"{{"name": "t", "description": "d", "parameters": {{}}, "{secret}": 1}}"#)),
        json(&format!(r#"{{"{secret}": 1, "{secret}": 1}}"#)),
        toml(secret),
        toml(&format!("schema = \"{secret}\"\n")),
        toml(&format!("{}\n[roles.\"{secret}\"]\nprompt = 1\n", place.read("old/guild.toml"))),
        toml("entry = \"https://ann:Zq81pass@example.com\"\n"),
    ] {
        for (name, text) in files {
            place.write(&format!("guild/{name}"), text);
        }
        let check =
            [&["guild", "check", "guild"][..], &["guild", "show", "guild"], &["foundry", "init", "guild"]];
        for told in forms(&place).into_iter().chain(check.map(|args| ran(&mut place.oubliette(args)))) {
            assert_eq!(told.code, Some(2), "{told:?}");
            assert!(!told.out.contains("Zq81") && !told.err.contains("Zq81"), "{told:?}");
        }
    }
}

/// A description does not speak as a link, a picture or a command of who shows the report.
#[cfg(feature = "wasm")]
#[test]
fn no_message_for_code_review_holds_a_link_of_the_proposals() {
    let place = pair();
    let manifest =
        place.read("guild/guild.toml") + "\n[tools.t]\nmanifest = \"t.json\"\nmodule = \"t.wasm\"\n";
    place.write("guild/guild.toml", manifest);
    let text = "[all is well](https://evil.example) ![x](y) {0}";
    let tool = serde_json::json!({"name": "t", "description": text, "parameters": {"type": "object"}});
    place.write("guild/t.json", tool.to_string());
    place.write("guild/t.wasm", wat::parse_str("(module (func (export \"_start\")))").unwrap());
    let told = diff(&place, &["--sarif"]);
    let log = told.json();
    let results = log["runs"][0]["results"].as_array().unwrap();
    let said = results.iter().find(|r| r["ruleId"] == "B-DESCRIPTION").unwrap();
    let message = said["message"]["text"].as_str().unwrap();
    assert!(message.contains("\\[all is well\\]") && message.contains("{{0}}"), "{message}");
    assert!(!message.replace("\\[", "").contains('[') && !message.contains("https://"), "{message}");
    assert_eq!(said["properties"]["now"], text);
}

/// A file that nothing names cannot be run, and is not overlooked.
#[test]
fn a_file_that_nothing_names_is_told_when_it_comes_changes_and_goes() {
    let place = pair();
    let place_of = |told: &Ran| -> Vec<(String, Value)> {
        let json = told.json();
        let findings = json["findings"].as_array().unwrap();
        let files = findings.iter().filter(|f| f["code"] == "B-FILE");
        files.map(|f| (f["place"].as_str().unwrap().to_owned(), f["was"].clone())).collect()
    };
    place.write("guild/README.md", "one\n");
    place.write("guild/notes/a.txt", "a\n");
    let came = diff(&place, &["--json"]);
    assert_eq!(came.code, Some(0), "{came:?}");
    let none = Value::from("");
    assert_eq!(
        place_of(&came),
        [("files.\"README.md\"".to_owned(), none.clone()), ("files.\"notes/a.txt\"".to_owned(), none)]
    );
    for told in forms(&place) {
        assert!(told.out.contains("B-FILE"), "{told:?}");
    }
    place.write("old/README.md", "zero\n");
    place.write("old/notes/a.txt", "a\n");
    place.write("old/gone.md", "gone\n");
    let told = place_of(&diff(&place, &["--json"]));
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|(_, was)| was != ""), "{told:?}");
    let check = ran(&mut place.oubliette(["guild", "check", "guild", "--json"]));
    assert_eq!((check.code, place_of(&check).len()), (Some(0), 2), "{check:?}");
    // The gate has them in its result.
    ran(&mut place.oubliette(["foundry", "init", "old"]));
    for name in ["guild.toml", "prompts/worker.md", "README.md"] {
        place.write(&format!("data/foundry/branches/b/guild/{name}"), place.read(format!("guild/{name}")));
    }
    place.write(
        "data/foundry/branches/b/guild/guild.toml",
        place.read("guild/guild.toml").replace("finish", "search"),
    );
    let gated = ran(&mut place.oubliette(["foundry", "gate", "b", "--json"])).json();
    let codes: Vec<&str> =
        gated["gate"]["findings"].as_array().unwrap().iter().filter_map(|f| f["code"].as_str()).collect();
    assert_eq!(codes.iter().filter(|code| **code == "B-FILE").count(), 3, "{gated}");
}

/// D-25: who runs something in somebody's checkout has not said that its files are the operator's. A deployment says
/// which secrets go inside and where the model's key is sent.
#[test]
fn the_deployment_of_a_checkout_is_nobodys_word_until_it_is_named() {
    let place = Place::quick();
    place.guild(&["read_file"]);
    let deployment = "[secrets]\npass = [\"TOKEN_OF_THE_OPERATOR\"]\n[model]\nbase_url = \"http://127.0.0.1:9/v1\"\n\
        api_key_env = \"KEY_OF_THE_OPERATOR\"\n";
    place.write("oubliette.toml", deployment);
    place.write("source/oubliette.toml", deployment);
    let asked = |dir: &str, args: &[&str]| {
        let mut command = place.oubliette(args);
        command
            .env("TOKEN_OF_THE_OPERATOR", "value-of-the-operator")
            .env("KEY_OF_THE_OPERATOR", "key-of-the-operator");
        command.current_dir(place.path(dir));
        ran(&mut command)
    };
    let exec = |dir: &str, more: &[&str], workspace: &str| {
        let fixed = ["exec", "--tier", "namespace", "--floor", "namespace", "--workspace", workspace];
        let argv = ["--", "sh", "-c", "echo ${#TOKEN_OF_THE_OPERATOR}"];
        asked(dir, &[&fixed[..], more, &argv].concat())
    };
    // Control: beside the workspace and in no checkout it is the operator's, and so is one that is named.
    let worked = |ran: &Ran| assert_eq!((ran.code, ran.out.as_str()), (Some(0), "21\n"), "{ran:?}");
    worked(&exec("", &[], "source"));
    worked(&exec("source", &["--config", "oubliette.toml"], "."));
    let refused = |ran: &Ran| {
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains("name it (`--config oubliette.toml`)") && ran.out.is_empty(), "{ran:?}");
    };
    refused(&exec("source", &[], "."));
    fs::create_dir(place.path(".git")).unwrap();
    refused(&exec("", &[], "source"));
    refused(&asked("", &["run", "--guild", "guild", "--task", "x"]));
    refused(&asked("", &["guild", "check", "guild"]));
}
