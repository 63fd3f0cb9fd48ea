//! What a person gives the program: every fault is told at once, with its place, and nothing begins.

use serde_json::{Value, json};
use testkit::Script;

use crate::place::{Place, finish};

#[test]
fn a_missing_deployment_file_is_an_error_of_usage() {
    let place = Place::quick();
    place.ran(["exec", "--config", "no-such.toml", "--", "true"]).assert_refused(2, "no-such.toml");
    place.ran(["doctor", "--config", "source"]).assert_refused(2, "not a file");
    assert!(place.ids().is_empty());
}

/// All faults, their places, and the nearest key.
#[test]
fn every_fault_of_a_deployment_is_told_at_once() {
    let place = Place::quick();
    place.write(
        "bad.toml",
        "[model]\nbase_ulr = \"http://127.0.0.1/v1\"\n[limits]\nmemory = \"2 elephants\"\ncores = 0\n[isolation]\nfloor = \"docker\"\n",
    );
    let ran = place.ran(["exec", "--config", "bad.toml", "--", "true"]);
    for told in [
        "bad.toml:2:1: [unknown-key]",
        "base_url",
        "bad.toml:4:",
        "memory",
        "bad.toml:5:",
        "cores",
        "bad.toml:7:",
        "isolation.floor",
    ] {
        ran.assert_refused(2, told);
    }
}

#[test]
fn a_deployment_that_is_no_toml_is_told_with_its_place() {
    let place = Place::quick();
    place.write("oubliette.toml", "[model\nname = \"x\"\n");
    place.ran(["exec", "--", "true"]).assert_refused(2, "oubliette.toml:1:");
    place.write("oubliette.toml", b"\xff\xfe");
    place.ran(["exec", "--", "true"]).assert_refused(2, "oubliette.toml");
    place.write("oubliette.toml", "#".repeat((1 << 20) + 1));
    place.ran(["exec", "--", "true"]).assert_refused(2, "larger than 1 MiB");
}

#[test]
fn an_empty_deployment_means_the_defaults() {
    let place = Place::quick();
    place.write("oubliette.toml", "");
    assert_eq!(place.exec(&["true"]).code, Some(0));
}

/// W8: `guild check` and `run` refuse a prompt that leaves the folder, by any way.
#[test]
fn w8_a_prompt_outside_the_guild_is_refused() {
    for prompt in [
        "../outside/secret",
        "/etc/hostname",
        "prompts/../../outside/secret",
        "prompts/linked.md",
        "linked/secret",
    ] {
        let place = Place::quick();
        place.guild(&["finish"]);
        place.write("outside/secret", "SECRET-PROMPT");
        place.link("guild/prompts/linked.md", place.path("outside/secret"));
        place.link("guild/linked", place.path("outside"));
        let manifest = place.read("guild/guild.toml").replace("prompts/worker.md", prompt);
        place.write("guild/guild.toml", manifest);
        let model = Script::new([finish()]).start();
        for ran in [place.ran(["guild", "check", "guild"]), place.run(&model.base_url())] {
            ran.assert_refused(2, "path-escapes");
            assert!(!ran.err.contains("SECRET-PROMPT") && !ran.out.contains("SECRET-PROMPT"), "{prompt}");
        }
        assert!(model.seen().is_empty() && place.ids().is_empty(), "{prompt}");
    }
}

#[test]
fn a_missing_guild_is_an_error_of_usage() {
    let place = Place::quick();
    place.ran(["guild", "check", "no-such"]).assert_refused(2, "no-such");
    place.run("http://127.0.0.1:9/v1").assert_refused(2, "guild.toml");
    assert!(place.ids().is_empty());
}

#[test]
fn every_fault_of_a_guild_is_told_at_once() {
    let place = Place::quick();
    place.write(
        "guild/guild.toml",
        "schema = 1\nname = \"x\"\nentry = \"nobody\"\n[roles.worker]\nprompt = \"p.md\"\ntols = []\ntools = [\"run_shel\"]\nagents = [\"ghost\"]\n",
    );
    let ran = place.ran(["guild", "check", "guild"]);
    for told in ["nobody", "`roles.worker.tols`", "tools", "run_shell", "ghost", "guild.toml:6:"] {
        ran.assert_refused(2, told);
    }
    let ran = place.ran(["guild", "check", "guild", "--json"]);
    assert_eq!(ran.code, Some(2));
    let json = ran.json();
    assert_eq!(json["ok"], false);
    let codes: Vec<&Value> = json["faults"].as_array().unwrap().iter().map(|f| &f["code"]).collect();
    for code in ["unknown-role", "unknown-key", "unknown-tool"] {
        assert!(codes.contains(&&json!(code)), "{code} is not in {codes:?}");
    }
}

#[test]
fn a_sound_guild_is_told_with_what_it_is_granted() {
    let place = Place::quick();
    place.guild(&["read_file", "finish"]);
    let ran = place.ran(["guild", "check", "guild"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.contains("guild is sound") && ran.out.contains("worker (entry): read_file, finish"),
        "{ran:?}"
    );
    let json = place.ran(["guild", "check", "guild", "--json"]).json();
    assert_eq!(json["ok"], true);
    assert_eq!(json["grant"]["roles"]["worker"]["tools"], json!(["read_file", "finish"]));
}

/// The Guild that comes with the program is sound.
#[test]
fn the_example_guild_is_sound() {
    let place = Place::quick();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/guilds")).unwrap() {
        let guild = entry.unwrap().path();
        let ran = place.ran(["guild".as_ref(), "check".as_ref(), guild.as_os_str()]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let deployment = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/oubliette.toml");
    assert_eq!(place.ran(["runs", "list", "--config", deployment, "--data", "data"]).code, Some(0));
}

#[test]
fn a_task_must_say_something_and_come_once() {
    let place = Place::quick();
    place.guild(&["finish"]);
    place.write("task.txt", " \n");
    place.write("long.txt", "x".repeat(70_000));
    let with = |more: &[&str]| {
        place.ran([&["run", "--guild", "guild", "--model-url", "http://127.0.0.1:9/v1"], more].concat())
    };
    with(&[]).assert_refused(2, "--task");
    with(&["--task", ""]).assert_refused(2, "the task is empty");
    with(&["--task", " \n\t"]).assert_refused(2, "the task is empty");
    with(&["--task-file", "task.txt"]).assert_refused(2, "the task is empty");
    with(&["--task-file", "long.txt"]).assert_refused(2, "64 KiB");
    with(&["--task-file", "no-such.txt"]).assert_refused(2, "no-such.txt");
    with(&["--task", "x", "--task-file", "task.txt"]).assert_refused(2, "cannot be used with");
    assert!(place.ids().is_empty());
}

#[test]
fn a_task_from_a_file_arrives() {
    let place = Place::quick();
    place.guild(&["finish"]);
    place.write("task.txt", "Mend the \u{1F980} in calc.py\n");
    let model = Script::new([finish()]).start();
    let url = model.base_url();
    let ran = place.ran([
        "run",
        "--guild",
        "guild",
        "--task-file",
        "task.txt",
        "--model-url",
        &url,
        "--tier",
        "namespace",
        "--floor",
        "namespace",
        "--quiet",
    ]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    assert!(model.asked()[0].body["messages"].to_string().contains("Mend the \u{1F980} in calc.py"));
}

#[test]
fn unknown_words_are_errors_of_usage() {
    let place = Place::quick();
    for args in [
        &["dance"][..],
        &["runs", "dance"],
        &["guild"],
        &[],
        &["exec", "--no-such", "--", "true"],
        &["schema", "run"],
        &["exec", "--timeout", "soon", "--", "true"],
    ] {
        let ran = place.ran(args);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{args:?}: {ran:?}");
        assert!(!ran.err.is_empty());
    }
}

#[test]
fn help_and_version_are_no_errors() {
    let place = Place::quick();
    let help = place.ran(["--help"]);
    assert_eq!(help.code, Some(0));
    assert!(help.out.contains("Exit codes: 0 done;"), "{}", help.out);
    let version = place.ran(["--version"]);
    assert_eq!(version.out.trim(), concat!("oubliette ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_closed_standard_output_is_no_crash() {
    let place = Place::quick();
    let script =
        format!("{}/oubliette schema guild | true; {0}/oubliette --help | true", place.bin().display());
    let ran = crate::place::ran(place.command("sh".as_ref()).args(["-c", &script]));
    assert_eq!(ran.err, "");
}
