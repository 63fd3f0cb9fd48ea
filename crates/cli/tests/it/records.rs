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
/// As after a loss of power: not taken for a change of somebody's, and not for whole either.
#[test]
fn a_lost_meta_is_named_by_every_look_at_the_run() {
    let place = Place::quick();
    place.sh("true");
    let id = &place.ids()[0];
    let meta = place.newest().join("meta.json");
    let text = fs::read(&meta).unwrap();
    for left in [Some(&text[..text.len() / 2]), Some(&[]), None] {
        match left {
            Some(bytes) => fs::write(&meta, bytes).unwrap(),
            None => fs::remove_file(&meta).unwrap(),
        }
        let listed = place.ran(["runs", "list"]);
        assert!(listed.out.contains("broken") && listed.out.contains("meta.json lost"), "{listed:?}");
        assert!(listed.err.contains("runs gc"), "{listed:?}");
        assert_eq!(place.ran(["runs", "list", "--json"]).json()["runs"][0]["meta_lost"], true);
        for verb in ["show", "verify"] {
            let told = place.ran(["runs", verb, id]);
            assert!(
                told.out.contains("[meta-lost]") && told.out.contains("its `meta.json` is lost"),
                "{told:?}"
            );
        }
        assert_eq!(place.ran(["runs", "verify", id]).code, Some(1));
    }
}

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

/// R4, R33, R34: the card and the live lines of a run are plain text, whatever the model and its guest say.
#[test]
fn r4_a_run_is_told_in_plain_text_only() {
    let place = Place::quick();
    place.guild(&["run_shell", "finish"]);
    place.write("source/kept", "old\n");
    let escape = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}\u{9b}31m";
    let model = testkit::Script::new([
        crate::place::sh(&format!("echo '{escape}'; echo new > kept; echo x > 'odd\u{1b}[2Jname'")),
        crate::place::act(&format!("tool{escape}"), json!({})),
        crate::place::act(
            "finish",
            json!({"status": "done", "summary": format!("all {escape} good\nsecond line")}),
        ),
    ])
    .start();
    let mut command = place.run_command(&model.base_url());
    // The card for people: without --json.
    let args: Vec<_> = command.get_args().filter(|a| *a != "--json").map(std::ffi::OsStr::to_owned).collect();
    command = place.oubliette(args);
    let ran = crate::place::ran(&mut command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for text in [&ran.out, &ran.err] {
        let odd = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.chars().any(odd), "{text:?}");
    }
    for told in [
        "stopped  finished",
        "claims   done",
        "tier     namespace",
        "1 added, 1 changed, 0 deleted",
        "~ kept",
        "summary  all",
    ] {
        assert!(ran.out.contains(told), "{told} is not in {}", ran.out);
    }
    for told in ["worker begins", "1 run_shell", "refused (role-tools)"] {
        assert!(ran.err.contains(told), "{told} is not in {}", ran.err);
    }
    let shown = place.ran(["runs", "show", &place.ids()[0]]);
    assert!(!shown.out.chars().any(|c| c.is_control() && c != '\n'), "{:?}", shown.out);
}

/// R34: what a model is told names no path, user or host of this machine.
#[test]
fn r34_a_model_is_told_nothing_about_the_host() {
    let place = Place::quick();
    place.guild(&[
        "run_shell",
        "run_command",
        "read_file",
        "write_file",
        "list_dir",
        "search",
        "edit_file",
        "finish",
    ]);
    place.link("source/loop", "loop");
    let calls = [
        ("read_file", json!({"path": "no/such"})),
        ("read_file", json!({"path": "loop"})),
        ("read_file", json!({"path": "."})),
        ("write_file", json!({"path": "/etc/x", "content": ""})),
        ("list_dir", json!({"path": "no"})),
        ("search", json!({"pattern": "(", "path": "."})),
        ("edit_file", json!({"path": "no", "old": "a", "new": "b"})),
        ("run_command", json!({"argv": ["/no/such/program"]})),
        ("run_command", json!({"argv": ["ls"], "workdir": "no"})),
        ("run_shell", json!({"command": "cat /proc/mounts /proc/self/cgroup; pwd -P; hostname; env"})),
    ];
    let count = calls.len();
    let replies = calls.into_iter().map(|(tool, args)| crate::place::act(tool, args));
    let model = testkit::Script::new(replies.chain([crate::place::finish()])).n_ctx(Some(100_000)).start();
    let ran = place.run(&model.base_url());
    assert_eq!((ran.code, model.left()), (Some(0), 0), "{ran:?}");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let data = place.path("data").display().to_string();
    for n in 1..=count {
        let told = crate::place::told_in(&model, n);
        for secret in [data.as_str(), "data/runs", "backtrace", "panicked", ".rs:", "/cargo/"] {
            assert!(!told.contains(secret), "call {n} tells {secret}: {told}");
        }
        assert!(
            host.trim().len() < 4 || !told.contains(host.trim()),
            "call {n} tells the host's name: {told}"
        );
    }
}
