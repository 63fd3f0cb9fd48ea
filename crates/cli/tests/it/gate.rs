//! `guild diff` and `guild check` from outside: their forms, their exit codes, and what they never show.

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::place::{Place, Ran, ran};
use crate::process::most_memory;

fn diff(place: &Place, more: &[&str]) -> Ran {
    ran(&mut place.oubliette([&["guild", "diff", "old", "guild"][..], more].concat()))
}

/// Two Guilds of one role: `old` holds the first tools, `guild` the others.
fn pair(old: &[&str], new: &[&str]) -> Place {
    let place = Place::quick();
    place.guild(old);
    std::fs::rename(place.path("guild"), place.path("old")).unwrap();
    place.guild(new);
    place
}

/// R27, R62: adding a tool is the operator's to allow, and is reported either way, before and after.
#[test]
fn r27_a_tool_more_is_reported_and_passes_by_the_operators_word_alone() {
    let place = pair(&["finish"], &["read_file", "finish"]);
    let plain = diff(&place, &["--json"]);
    assert_eq!(plain.code, Some(3), "{plain:?}");
    let told = plain.json();
    assert_eq!((&told["refused"], &told["roles"][0]["added"]), (&true.into(), &vec!["read_file"].into()));
    assert_eq!(told["roles"][0]["before"]["tools"], Value::from(vec!["finish"]));
    assert_eq!(told["roles"][0]["after"]["tools"], Value::from(vec!["read_file", "finish"]));
    let waive = |finding: &str, at: &str| {
        format!(
            "[[waiver]]\nfinding = \"{finding}\"\nplace = \"{at}\"\nreason = \"meant\"\nexpires = 9999-12-31\n"
        )
    };
    let text = waive("W-TOOL-ADDED", "roles.worker.tools.read_file") + &waive("W-ROLE-ADDED", "roles.worker");
    place.write("mine.toml", &text);
    let waived = diff(&place, &["--json", "--waivers", "mine.toml"]);
    assert_eq!((waived.code, &waived.json()["refused"]), (Some(0), &false.into()), "{waived:?}");
    assert_eq!(waived.json()["findings"][0]["waived"]["reason"], "meant");
    // Its own word counts for nothing.
    place.write("guild/foundry.toml", &text);
    diff(&place, &["--waivers", "guild/foundry.toml"]).assert_refused(2, "lies inside the Guild");
    assert_eq!(diff(&place, &[]).code, Some(3));
}

/// R61: a bound that goes along with what is waived is told by itself, and refused until it is waived by its own name.
#[test]
fn r61_waivers_of_a_role_and_its_tool_are_none_of_its_bound() {
    let place = pair(&["finish"], &["finish"]);
    let talker = "\n[roles.talker]\nprompt = \"prompts/worker.md\"\n";
    let (old, new) = (place.read("old/guild.toml"), place.read("guild/guild.toml"));
    place.write("old/guild.toml", old + talker + "tools = []\nbudget = { tokens = 1000 }\n");
    place.write("guild/guild.toml", new + talker + "tools = [\"read_file\"]\n");
    let waive = |finding: &str, at: &str| {
        format!(
            "[[waiver]]\nfinding = \"{finding}\"\nplace = \"{at}\"\nreason = \"meant\"\nexpires = 9999-12-31\n"
        )
    };
    let both = waive("W-TOOL-ADDED", "roles.talker.tools.read_file") + &waive("W-ROLE-ADDED", "roles.talker");
    place.write("mine.toml", &both);
    let told = diff(&place, &["--waivers", "mine.toml"]);
    assert_eq!(told.code, Some(3), "{told:?}");
    assert!(
        told.out.contains("W-BUDGET-REMOVED roles.talker.budget.tokens: 1000 -> the deployment's"),
        "{told:?}"
    );
    place.write("mine.toml", both + &waive("W-BUDGET-REMOVED", "roles.talker.budget.tokens"));
    assert_eq!(diff(&place, &["--waivers", "mine.toml"]).code, Some(0));
}

/// R62: the form for code review has every finding with its rule, line and what would make it pass.
#[test]
fn r62_sarif_has_each_finding_with_rule_file_line_and_remedy() {
    let place = pair(&["read_file", "finish"], &["read_file", "run_shell", "finish"]);
    place.write("guild/prompts/worker.md", "Do it well.\n");
    let told = diff(&place, &["--sarif"]);
    assert_eq!(told.code, Some(3), "{told:?}");
    let log = told.json();
    assert_eq!(
        (&log["version"], &log["runs"][0]["tool"]["driver"]["name"]),
        (&"2.1.0".into(), &"oubliette".into())
    );
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let results = run["results"].as_array().unwrap();
    for result in results {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        assert!(result["locations"][0]["physicalLocation"]["region"]["startLine"].as_u64().unwrap() > 0);
    }
    let added = results.iter().find(|r| r["ruleId"] == "W-TOOL-ADDED").unwrap();
    assert_eq!((&added["level"], &added["properties"]["now"]), (&"error".into(), &"run_shell".into()));
    let physical = &added["locations"][0]["physicalLocation"];
    assert_eq!(physical["artifactLocation"]["uri"], "guild/guild.toml");
    // The list of that role.
    assert_eq!(physical["region"]["startLine"], 7);
    assert!(added["message"]["text"].as_str().unwrap().contains("To pass: remove the tool"));
    assert!(results.iter().any(|r| r["ruleId"] == "B-PROMPT" && r["level"] == "warning"));
    // A Guild that is not sound has the same form.
    place.write("guild/guild.toml", "schema = 1\nname = \"a\"\nentry = \"b\"\nrole = 1\n");
    let unsound = diff(&place, &["--sarif"]);
    assert_eq!(unsound.code, Some(2));
    let results = &unsound.json()["runs"][0]["results"];
    let unknown = results.as_array().unwrap().iter().find(|r| r["ruleId"] == "unknown-key").unwrap();
    assert_eq!(unknown["locations"][0]["physicalLocation"]["region"]["startLine"], 4);
}

/// R4, R59: what a prompt hides is shown as a mark, drives no terminal, and a key is not shown at all.
#[test]
fn r59_a_hostile_prompt_is_shown_as_marks_and_a_key_never() {
    let place = pair(&["finish"], &["finish"]);
    let prompt =
        "\u{1b}[2Jgo\u{202e}\u{200b}\nkey sk-Zq81abcdefghijkl\n-----BEGIN PRIVATE KEY-----\nZq81body\n";
    place.write("guild/prompts/worker.md", prompt);
    for form in [&[][..], &["--json"], &["--sarif"]] {
        let told = diff(&place, form);
        assert_eq!(told.code, Some(3), "{told:?}");
        let all = told.out + &told.err;
        assert!(!all.contains("Zq81") && !all.contains(['\u{1b}', '\u{202e}', '\u{200b}']), "{all}");
        assert!(all.contains("W-KEY-QUOTED") && all.contains("B-HIDDEN"), "{all}");
    }
    assert!(diff(&place, &[]).out.contains("+<U+001B>[2Jgo<U+202E><U+200B>"));
    let check = ran(&mut place.oubliette(["guild", "check", "guild"]));
    assert_eq!(check.code, Some(3), "{check:?}");
    assert!(check.out.contains("refused") && !check.out.contains("Zq81"), "{check:?}");
}

/// R59: nor one that goes over lines, or has something in it or around it that a report takes away or escapes.
#[test]
fn r59_no_disguise_of_a_key_is_shown_in_any_form() {
    let texts = [
        "Authorization: Bearer\nabcdefgh01234567\n",
        "bEARER \r\n\n\tabcdefgh01234567\n",
        "use\rsk-abcdefgh01234567\n",
        "sk-\u{1b}[0mabcdefgh01234567\n",
        "Bearer \\\nabcdefgh01234567\n",
        "use\\nsk-abcdefgh01234567\n",
        "-----BE\u{200b}GIN PRIVATE KEY-----\nabcdefgh01234567\n",
        "Authorization: Bearer\n/abcdefgh01234567/x\n",
    ];
    let place = pair(&["finish"], &["finish"]);
    for text in texts {
        place.write("guild/prompts/worker.md", text);
        for args in [
            &["guild", "diff", "old", "guild"][..],
            &["guild", "diff", "old", "guild", "--json"],
            &["guild", "diff", "old", "guild", "--sarif"],
            &["guild", "check", "guild"],
            &["guild", "check", "guild", "--json"],
            &["guild", "check", "guild", "--sarif"],
        ] {
            let told = ran(&mut place.oubliette(args));
            assert_eq!(told.code, Some(3), "{text:?} {args:?} {told:?}");
            let all = told.out + &told.err;
            assert!(all.contains("W-KEY-QUOTED") && !all.contains("efgh0123"), "{text:?} {args:?} {all}");
        }
        // The other way round it is what was there.
        for form in [&[][..], &["--json"], &["--sarif"]] {
            let told = ran(&mut place.oubliette([&["guild", "diff", "guild", "old"], form].concat()));
            let all = told.out + &told.err;
            assert!(told.code == Some(0) && !all.contains("efgh0123"), "{text:?} {form:?} {all}");
        }
    }
}

/// R59: the name of a file that nothing names is anybody's, and is shown.
#[test]
fn r59_a_key_in_the_name_of_a_file_is_not_shown() {
    let place = pair(&["finish"], &["finish"]);
    for name in ["use\nsk-abcdefgh01234567", "\tsk-abcd\u{200b}efgh01234567", "Bearer\nabcdefgh01234567"] {
        place.write(&format!("guild/{name}"), "");
        for form in [&[][..], &["--json"], &["--sarif"]] {
            let told = diff(&place, form);
            let all = told.out + &told.err;
            assert!(
                all.contains("B-FILE") && all.contains("(hidden)") && !all.contains("efgh0123"),
                "{name:?} {all}"
            );
        }
    }
}

/// A baseline that is not sound is no baseline.
#[test]
fn a_guild_that_is_not_there_or_not_sound_is_bad_input() {
    let place = pair(&["finish"], &["finish"]);
    assert_eq!(diff(&place, &[]).code, Some(0));
    ran(&mut place.oubliette(["guild", "diff", "old", "nowhere"])).assert_refused(2, "guild.toml");
    place.write("old/guild.toml", "schema = 1\n");
    diff(&place, &[]).assert_refused(2, "missing-key");
    let json = diff(&place, &["--json"]);
    assert_eq!((json.code, &json.json()["ok"]), (Some(2), &false.into()));
}

/// What may be done is one thing, what the deployment is another: a change of it is compared too.
#[test]
fn r61_another_deployment_is_compared_by_the_same_order() {
    let place = pair(&["finish"], &["finish"]);
    place.write("a.toml", "[limits]\nmemory = \"1GiB\"\n");
    place.write("b.toml", "[limits]\nmemory = \"2GiB\"\n");
    let args = |config, old| ["--config", config, "--old-config", old];
    let wider = diff(&place, &args("b.toml", "a.toml"));
    assert_eq!(wider.code, Some(3), "{wider:?}");
    assert!(wider.out.contains("W-LIMIT-RAISED   limits.memory: 1GiB -> 2GiB"), "{wider:?}");
    // What follows from it is not told a second time.
    assert!(!wider.out.contains("call.memory"), "{wider:?}");
    assert_eq!(diff(&place, &args("a.toml", "b.toml")).code, Some(0));
}

/// As many roles, tools and items of lists as are read, in `folder`: a thousand roles in a circle, of which the last
/// `armed` have each of a thousand tools; every prompt has more paths than are told, every tool arguments by `word`.
#[cfg(feature = "wasm")]
fn crowd(place: &Place, folder: &str, armed: usize, word: &str) {
    let all: String = (0..1000).map(|n| format!("\"t{n}\", ")).collect();
    let mut guild = "schema = 1\nname = \"crowd\"\nentry = \"r0\"\n".to_owned();
    for n in 0..1000 {
        let all = if n >= 1000 - armed { all.as_str() } else { "" };
        let last = if n == 999 { 0 } else { n + 1 };
        guild += &format!(
            "[roles.r{n}]\nprompt = \"p.md\"\ntools = [{all}\"agent\"]\nagents = [\"r{last}\"]\n\
             [tools.t{n}]\nmanifest = \"t{n}.json\"\nmodule = \"t.wasm\"\n"
        );
        let arguments: Vec<String> = (0..10)
            .map(|k| format!("\"{word}{k}\":{{\"type\":\"string\",\"description\":\"{word} {word}\",\"enum\":[\"{word}\"]}}"))
            .collect();
        let manifest = format!(
            "{{\"name\":\"t{n}\",\"description\":\"{word}\",\"parameters\":{{\"type\":\"object\",\"properties\":{{{}}}}}}}",
            arguments.join(",")
        );
        place.write(&format!("{folder}/t{n}.json"), manifest);
    }
    assert!(guild.len() < 1 << 20, "{}", guild.len());
    place.write(&format!("{folder}/guild.toml"), guild);
    place.write(&format!("{folder}/p.md"), (0..120).map(|n| format!("/{word}/{n} ")).collect::<String>());
    place.write(&format!("{folder}/t.wasm"), wat::parse_str("(module (func (export \"_start\")))").unwrap());
}

/// A million names are reached that were not, and a hundred thousand paths are new.
#[cfg(feature = "wasm")]
#[test]
fn two_guilds_of_as_many_roles_and_tools_as_are_read_are_compared_in_bounded_memory() {
    /// KiB; a debug build was seen at 163 MiB.
    const MOST: u64 = 256 << 10;
    let place = Place::quick();
    crowd(&place, "old", 0, "a");
    crowd(&place, "guild", 40, "b");
    let began = Instant::now();
    let mut child = place
        .oubliette(["guild", "diff", "old", "guild", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    // What is told does not fit in the pipe: with its beginning everything has been done, and it waits.
    let mut told = vec![0; 1];
    out.read_exact(&mut told).unwrap();
    let most = most_memory(child.id());
    out.read_to_end(&mut told).unwrap();
    let code = child.wait().unwrap().code();
    let json: Value = serde_json::from_slice(&told).unwrap();
    assert_eq!((code, &json["refused"]), (Some(3), &true.into()));
    let codes = json["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap());
    assert_eq!(codes.filter(|code| *code == "W-TOO-MANY").count(), 1);
    assert!(told.len() > 1 << 20, "{}", told.len());
    assert!(most < MOST, "{most} KiB");
    assert!(began.elapsed() < Duration::from_secs(300), "{:?}", began.elapsed());
}
