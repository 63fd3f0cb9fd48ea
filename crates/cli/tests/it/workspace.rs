//! The copy a run works on, and the source it never writes.

use std::fs;

use testkit::Tree;

use crate::place::{Place, act, finish, sh};
use crate::{Who, everywhere};
use serde_json::json;
use testkit::Script;

fn source_full_of_links(place: &Place) {
    place.write("source/a.txt", "alpha\n");
    place.write("source/folder/b.txt", "beta\n");
    place.write("source/run.sh", "#!/bin/sh\necho ran\n");
    fs::set_permissions(place.path("source/run.sh"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    place.link("source/to-a", "a.txt");
    place.link("source/folder/up", "../a.txt");
    place.link("source/loop", "loop");
    place.link("source/leaves", "/etc/passwd");
    place.link("source/climbs", "../outside/secret");
    place.write("outside/secret", "outside");
    fs::hard_link(place.path("outside/secret"), place.path("source/hard")).unwrap();
}

everywhere! {
    /// R18: byte for byte what it was, its links included, whatever was done to the copy.
    fn r18_the_source_is_never_modified(place: &Place) {
        source_full_of_links(place);
        place.guild(&["run_shell", "write_file", "edit_file", "finish"]);
        let before = (Tree::of(&place.path("source")).unwrap(), Tree::of(&place.path("outside")).unwrap());
        let model = Script::new([
            sh("./run.sh && cat to-a folder/up && rm -rf folder && echo changed > to-a && echo changed > hard && chmod 777 run.sh"),
            act("write_file", json!({"path": "to-a", "content": "again\n"})),
            act("write_file", json!({"path": "new/file", "content": "new\n"})),
            sh("for f in $(ls -A); do echo $f; echo over > $f; done; ln -sf a.txt run.sh"),
            finish(),
        ]).start();
        let ran = place.run(&model.base_url());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let after = (Tree::of(&place.path("source")).unwrap(), Tree::of(&place.path("outside")).unwrap());
        assert!(before.0.differences(&after.0).is_empty() && before.1 == after.1);
        let patch = fs::read_to_string(place.newest().join("changes.patch")).unwrap();
        assert!(patch.contains("beta") && patch.contains("new/file"), "{patch}");
        place.assert_whole("finished");
    }
}

/// R16: two runs have two folders of their own.
#[test]
fn r16_each_run_gets_a_workspace_of_its_own() {
    let place = Place::quick();
    place.write("source/file", "source\n");
    for text in ["one", "two"] {
        let argv = ["sh", "-c", &format!("cat file; echo {text} > file")];
        let ran = place.exec_with(&["--workspace", "source"], &argv);
        assert_eq!(ran.out, "source\n", "{ran:?}");
    }
    let ids = place.ids();
    assert_eq!(ids.len(), 2);
    for (id, text) in ids.iter().zip(["one\n", "two\n"]) {
        assert!(id.len() == 26 && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()), "{id}");
        assert_eq!(place.read(format!("data/runs/{id}/workspace/file")), text);
    }
}

/// R17, W12: tools start in the workspace, and what lies beside it does not exist for them.
#[test]
fn r17_the_record_beside_the_workspace_is_out_of_reach() {
    for tier in ["namespace", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        place.write("source/file", "x");
        let ran = place.exec_with(
            &["--workspace", "source"],
            &[
                "sh",
                "-c",
                "pwd; ls; cat ../events.jsonl ../meta.json; echo '{}' > ../events.jsonl; ls -d ../artifacts",
            ],
        );
        assert_eq!(ran.out, "/workspace\nfile\n", "{tier}: {ran:?}");
        place.assert_whole("finished");
    }
}

#[test]
fn without_a_workspace_it_is_empty() {
    let place = Place::quick();
    assert_eq!(place.sh("ls -A | wc -l").out.trim(), "0");
}

#[test]
fn a_missing_workspace_is_an_error_of_usage() {
    let place = Place::quick();
    let ran = place.exec_with(&["--workspace", "not-there"], &["true"]);
    ran.assert_refused(2, "not-there");
    assert!(ran.err.to_lowercase().contains("no such file"), "{ran:?}");
    assert!(no_workspace_is_left(&place));
}

/// W7: a special file is refused by name, before anything runs.
#[test]
fn w7_a_fifo_in_the_workspace_is_refused_at_once() {
    let place = Place::quick();
    place.write("source/fine", "x");
    let fifo = place.path("source/pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let ran = place.exec_with(&["--workspace", "source"], &["true"]);
    ran.assert_refused(2, "pipe");
    assert!(no_workspace_is_left(&place));
}

/// R44: a source beyond the limits is refused, with the limit's name.
#[test]
fn r44_a_workspace_larger_than_the_limits_is_refused() {
    for (limit, word) in [("disk = 1000", "disk"), ("files = 2", "files")] {
        let place = Place::quick();
        for n in 0..4 {
            place.write(&format!("source/{n}"), "x".repeat(400));
        }
        place.write("oubliette.toml", format!("[limits]\n{limit}\n"));
        let ran = place.exec_with(&["--workspace", "source"], &["true"]);
        ran.assert_refused(2, word);
        assert!(no_workspace_is_left(&place), "{limit}");
    }
}

/// R16: a workspace that holds the records is not copied into itself.
#[test]
fn a_workspace_that_holds_the_records_does_not_copy_them() {
    let place = Place::quick();
    place.write("source/file", "x");
    for _ in 0..2 {
        let mut command = place.exec_command(&["--workspace", "."], &["sh", "-c", "ls; ls data"]);
        command.current_dir(place.path("source"));
        let ran = crate::place::ran(&mut command);
        // Refused, or left out: never a copy of a record inside.
        assert!(ran.code == Some(2) || !ran.out.contains("runs"), "{ran:?}");
    }
}

/// The refusal is in the record; nothing was copied.
fn no_workspace_is_left(place: &Place) -> bool {
    place.assert_whole("sandbox_error");
    !place.newest().join("workspace").exists() && place.events_of("tool_start").is_empty()
}
