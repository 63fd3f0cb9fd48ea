//! `runs` and `schema`: what is kept, and whether it is what was written.

use std::fs;

use serde_json::json;

use crate::place::Place;

#[test]
fn runs_are_listed_oldest_first() {
    let place = Place::quick();
    assert_eq!(place.ran(["runs", "list"]).out, "", "no run, no line");
    place.sh("touch new");
    place.sh("exit 3");
    let ids = place.ids();
    let listed = place.ran(["runs", "list"]);
    assert_eq!(listed.code, Some(0));
    let lines: Vec<&str> = listed.out.lines().collect();
    assert_eq!(lines.len(), 2, "{listed:?}");
    for (line, id) in lines.iter().zip(&ids) {
        assert!(
            line.starts_with(id.as_str()) && line.contains("namespace") && line.contains("whole"),
            "{line}"
        );
    }
    assert!(lines[0].contains("1 calls, 1 changes"), "{}", lines[0]);
    let json = place.ran(["runs", "list", "--json"]).json();
    let told: Vec<&str> =
        json["runs"].as_array().unwrap().iter().map(|r| r["run_id"].as_str().unwrap()).collect();
    assert_eq!(told, ids);
    assert_eq!(json["runs"][0]["standing"], "whole");
}

#[test]
fn a_run_is_shown_with_what_held_and_what_happened() {
    let place = Place::quick();
    place.sh("echo hello; printf '\\033[2J'");
    let id = &place.ids()[0];
    let shown = place.ran(["runs", "show", id]);
    assert_eq!(shown.code, Some(0));
    for told in [id, "tier     namespace", "network-namespace", "tool_start", "run_end", "the chain holds"] {
        assert!(shown.out.contains(told), "{told} is not in {}", shown.out);
    }
    assert!(!shown.out.contains('\u{1b}'));
    let json = place.ran(["runs", "show", id, "--json"]).json();
    assert_eq!(json["checked"]["standing"], "whole");
    assert_eq!(json["events"][0]["type"], "run_start");
}

#[test]
fn a_run_that_is_not_there_and_an_id_that_is_none_are_errors_of_usage() {
    let place = Place::quick();
    place.sh("true");
    place.write("data/secret/events.jsonl", "{}");
    for verb in ["show", "verify"] {
        place.ran(["runs", verb, "01m8ky8dkn26xfnzt8swtaeb1r"]).assert_refused(2, "there is no run");
        for id in [
            "../x",
            "../secret",
            "..",
            ".",
            "",
            "/etc",
            "x",
            "01M8KY8DKN26XFNZT8SWTAEB1R",
            "01m8ky8dkn26xfnzt8swtaeb1r/../../secret",
        ] {
            place.ran(["runs", verb, id]).assert_refused(2, "not a run id");
        }
    }
}

/// Every way of changing a record is found, named and exit 1.
#[test]
fn a_changed_record_does_not_verify() {
    type Change = fn(&std::path::Path);
    let edits: [(&str, Change); 6] = [
        ("chain", |run| {
            let text = fs::read_to_string(run.join("events.jsonl")).unwrap();
            fs::write(run.join("events.jsonl"), text.replacen("\"exec\"", "\"exex\"", 1)).unwrap();
        }),
        ("no-end", |run| {
            let text = fs::read_to_string(run.join("events.jsonl")).unwrap();
            let kept: Vec<&str> = text.lines().take(3).collect();
            fs::write(run.join("events.jsonl"), kept.join("\n") + "\n").unwrap();
        }),
        ("meta-digest", |run| fs::write(run.join("meta.json"), "{}").unwrap()),
        ("patch", |run| fs::write(run.join("changes.patch"), "nothing\n").unwrap()),
        ("no-record", |run| fs::remove_file(run.join("events.jsonl")).unwrap()),
        ("artifact", |run| {
            for entry in fs::read_dir(run.join("artifacts")).unwrap() {
                fs::write(entry.unwrap().path(), "other").unwrap();
            }
        }),
    ];
    for (code, change) in edits {
        let place = Place::quick();
        let mut command = place.exec_command(&["-i"], &["sh", "-c", "cat > new"]);
        assert_eq!(crate::place::fed(&mut command, b"an artifact").code, Some(0));
        let id = &place.ids()[0];
        change(&place.newest());
        let ran = place.ran(["runs", "verify", id]);
        assert_eq!(ran.code, Some(1), "{code}: {ran:?}");
        assert!(ran.out.contains(code), "{code}: {ran:?}");
        let json = place.ran(["runs", "verify", id, "--json"]);
        assert_eq!(json.code, Some(1), "{code}");
        assert_ne!(json.json()["standing"], "whole", "{code}");
    }
}

/// A record that is a trap is read without a crash.
#[test]
fn a_hostile_folder_in_the_store_is_only_a_broken_run() {
    let place = Place::quick();
    place.write("data/runs/01m8ky8dkn26xfnzt8swtaeb1r/events.jsonl", "[".repeat(1 << 20));
    place.write("data/runs/01m8ky8dkn26xfnzt8swtaeb1s/meta.json", b"\xff\x00\x1b[2J");
    place.write("data/runs/\u{1b}[2Jodd/x", "");
    place.link("data/runs/01m8ky8dkn26xfnzt8swtaeb1t", "/etc");
    let fifo = place.path("data/runs/01m8ky8dkn26xfnzt8swtaeb1s/events.jsonl");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let listed = place.ran(["runs", "list"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(!listed.out.contains('\u{1b}') && !listed.err.contains('\u{1b}'), "{listed:?}");
    for id in ["01m8ky8dkn26xfnzt8swtaeb1r", "01m8ky8dkn26xfnzt8swtaeb1s"] {
        let ran = place.ran(["runs", "verify", id]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
    }
    place.ran(["runs", "verify", "01m8ky8dkn26xfnzt8swtaeb1t"]).assert_refused(2, "there is no run");
}

#[test]
fn records_go_where_the_deployment_or_the_command_says() {
    let place = Place::quick();
    place.write(
        "conf/oubliette.toml",
        "[isolation]\nfloor = \"namespace\"\ntier = \"namespace\"\n[records]\ndir = \"kept\"\n",
    );
    assert_eq!(place.ran(["exec", "--config", "conf/oubliette.toml", "--", "true"]).code, Some(0));
    assert_eq!(fs::read_dir(place.path("conf/kept/runs")).unwrap().count(), 1);
    assert_eq!(
        place.ran(["exec", "--config", "conf/oubliette.toml", "--data", "other", "--", "true"]).code,
        Some(0)
    );
    assert_eq!(fs::read_dir(place.path("other/runs")).unwrap().count(), 1);
    let listed = place.ran(["runs", "list", "--config", "conf/oubliette.toml", "--json"]).json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn a_folder_that_cannot_be_written_is_infrastructure() {
    let place = Place::quick();
    place.write("file", "in the way");
    let ran =
        place.ran(["exec", "--data", "file", "--tier", "namespace", "--floor", "namespace", "--", "true"]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.err.contains("file/runs"), "{ran:?}");
}

/// The schemas in `docs/schema` are what the program prints.
#[test]
fn the_schemas_of_the_documentation_are_the_programs() {
    let place = Place::quick();
    for kind in ["deployment", "guild"] {
        let file = format!("{}/../../docs/schema/{kind}.json", env!("CARGO_MANIFEST_DIR"));
        let printed = place.ran(["schema", kind]);
        assert_eq!(printed.code, Some(0));
        assert_eq!(
            printed.json(),
            serde_json::from_str::<serde_json::Value>(&fs::read_to_string(file).unwrap()).unwrap(),
            "{kind}"
        );
        assert_ne!(printed.json(), json!({}));
    }
}

/// Two at once share a store and nothing else.
#[test]
fn concurrent_runs_have_records_of_their_own() {
    let place = Place::quick();
    std::thread::scope(|scope| {
        for n in 0..4 {
            let place = &place;
            scope.spawn(move || assert_eq!(place.sh(&format!("echo {n} > mine")).code, Some(0)));
        }
    });
    let ids = place.ids();
    assert_eq!(ids.len(), 4);
    for id in ids {
        assert_eq!(place.ran(["runs", "verify", &id]).code, Some(0));
    }
}
