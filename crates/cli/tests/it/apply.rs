//! `runs apply` and `runs export`: shown, asked, taken over whole, and only by the user's own word.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::time::Duration;

use testkit::Tree;

use crate::Who;
use crate::place::{Place, Ran};

const MAKE: &str = "echo new > new; sed -i s/one/two/ old; rm gone; chmod +x tool; ln -s new link; head -c 99 /dev/zero > bin";

/// A run that has changed a source.
fn changed(place: &Place, line: &str) -> String {
    for (name, content) in [("old", "one\n"), ("gone", "x\n"), ("tool", "#!/bin/sh\n"), ("kept", "kept\n")] {
        place.write(&format!("source/{name}"), content);
    }
    let ran = place.exec_with(&["--workspace", "source"], &["sh", "-c", line]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    place.ids().pop().unwrap()
}

fn apply(place: &Place, id: &str, more: &[&str]) -> Ran {
    place.ran([&["runs", "apply", id][..], more].concat())
}

#[test]
fn a_change_is_shown_and_taken_over_by_the_users_word_only() {
    for who in [Who::Own, Who::Ordinary] {
        let place = Place::new("namespace", who);
        let id = changed(&place, MAKE);
        let before = Tree::of(&place.path("source")).unwrap();
        // Nobody to ask.
        apply(&place, &id, &[]).assert_refused(2, "nobody to ask");
        let shown = apply(&place, &id, &["--dry-run"]);
        assert_eq!(shown.code, Some(0), "{shown:?}");
        for told in [
            "+ new (+1 -0)",
            "~ old (+1 -1)",
            "- gone (+0 -1)",
            "mode 100644 to 100755",
            "+ link (link)",
            "+ bin (binary)",
            "[executable] tool",
            "[link] link",
            "-one\n+two",
        ] {
            assert!(shown.out.contains(told), "{told} is not in {}", shown.out);
        }
        assert_eq!(before.differences(&Tree::of(&place.path("source")).unwrap()).len(), 0);
        let done = apply(&place, &id, &["--yes"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let work = place.path(format!("data/runs/{id}/workspace"));
        assert_eq!(Tree::of(&work).unwrap().differences(&Tree::of(&place.path("source")).unwrap()).len(), 0);
        let again = apply(&place, &id, &["--yes", "--json"]).json();
        assert_eq!(again["preview"]["already"], true);
        assert_eq!(place.ran(["runs", "verify", &id]).code, Some(0));
    }
}

#[test]
fn an_original_that_was_changed_is_refused_and_nothing_is_done() {
    let place = Place::quick();
    let id = changed(&place, MAKE);
    place.write("source/old", "mine\n");
    let before = Tree::of(&place.path("source")).unwrap();
    apply(&place, &id, &["--yes"]).assert_refused(3, "old: it is another now");
    place.write("source/old", "one\n");
    place.write("source/kept", "mine\n");
    apply(&place, &id, &["--yes"]).assert_refused(3, "--accept-drift");
    let done = apply(&place, &id, &["--yes", "--accept-drift"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!before.differences(&Tree::of(&place.path("source")).unwrap()).is_empty());
    assert_eq!(place.read("source/kept"), "mine\n");
}

/// R3, R4: what runs later on the host, and what hides in text, wants a word of its own; and it is shown so that it
/// can be seen, and drives no terminal.
#[test]
fn r3_r4_what_runs_later_or_hides_wants_a_word_of_its_own() {
    let place = Place::quick();
    let id = changed(
        &place,
        "mkdir -p .vscode .github/workflows; touch .envrc .vscode/tasks.json .github/workflows/x.yml CLAUDE.md; \
         printf 'a\\033[2J\\342\\200\\256b\\n' > odd; printf x > \"$(printf 'n\\033[2J\\nm')\"",
    );
    let before = Tree::of(&place.path("source")).unwrap();
    let shown = apply(&place, &id, &["--dry-run"]);
    for told in [
        "[shell] .envrc",
        "[editor] .vscode/tasks.json",
        "[ci] .github/workflows/x.yml",
        "[agent] CLAUDE.md",
        "[terminal] odd",
        "[bidi] odd",
        "[name] \"n\\033[2J\\nm\"",
        "+a<U+001B>[2J<U+202E>b",
    ] {
        assert!(shown.out.contains(told), "{told} is not in {}", shown.out);
    }
    assert!(!shown.out.contains('\u{1b}') && !shown.out.contains('\u{202e}'), "{shown:?}");
    let refused = apply(&place, &id, &["--yes"]);
    refused.assert_refused(3, "--accept-warnings");
    assert!(!refused.err.contains('\u{1b}'), "{refused:?}");
    assert_eq!(before.differences(&Tree::of(&place.path("source")).unwrap()).len(), 0);
    assert_eq!(apply(&place, &id, &["--yes", "--accept-warnings"]).code, Some(0));
    assert!(place.path("source/.envrc").exists());
}

/// With a terminal it is asked, and the word that is wanted depends on what the change holds.
#[test]
fn who_sits_at_a_terminal_is_asked() {
    for (line, answer, taken) in [
        ("echo new > new", "yes", true),
        ("echo new > new", "no", false),
        ("echo new > new", "", false),
        ("echo new > .envrc", "yes", false),
        ("echo new > .envrc", "accept", true),
    ] {
        let place = Place::quick();
        let id = changed(&place, line);
        let oubliette = place.oubliette(["runs", "apply", &id]);
        let words: Vec<&str> = std::iter::once(oubliette.get_program())
            .chain(oubliette.get_args())
            .map(|word| word.to_str().unwrap())
            .collect();
        // `script` gives it a terminal.
        let mut script = place.command("script".as_ref());
        script.args(["-qec", &words.join(" "), "/dev/null"]);
        let ran = crate::place::fed(&mut script, format!("{answer}\n").as_bytes());
        assert!(ran.out.contains("take it over to"), "{ran:?}");
        assert_eq!(ran.code, Some(if taken { 0 } else { 1 }), "{line} {answer}: {ran:?}");
        let there = place.path("source/new").exists() || place.path("source/.envrc").exists();
        assert_eq!(there, taken, "{line} {answer}: {ran:?}");
    }
}

/// `kill -9` somewhere in it: the next apply or `runs gc` brings the original to one of two states.
#[test]
fn a_killed_apply_leaves_a_state_that_is_brought_to_wholly_before_or_wholly_after() {
    let place = Place::quick();
    let id =
        changed(&place, "for n in $(seq 300); do mkdir d$n; echo $n > d$n/f; done; echo two > old; rm gone");
    let pristine = place.path("pristine");
    copy(&place, "source", "pristine");
    let before = Tree::of(&pristine).unwrap();
    let after = Tree::of(&place.path(format!("data/runs/{id}/workspace"))).unwrap();
    let (mut taken_back, mut finished) = (0, 0);
    let journal = place.path(format!("data/runs/{id}/apply.json"));
    for round in 0..12u64 {
        let mut child = place
            .oubliette(["runs", "apply", &id, "--yes"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // From when it has begun; how far it then comes is any.
        while !journal.exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(round * 8));
        child.kill().unwrap();
        child.wait().unwrap();
        let ran = if round % 2 == 0 { place.ran(["runs", "gc"]) } else { apply(&place, &id, &["--dry-run"]) };
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let is = Tree::of(&place.path("source")).unwrap();
        if before.differences(&is).is_empty() {
            taken_back += 1;
        } else {
            assert_eq!(after.differences(&is).len(), 0, "{round}: {:?}", after.differences(&is));
            finished += 1;
            fs::remove_dir_all(place.path("source")).unwrap();
            copy(&place, "pristine", "source");
        }
        assert!(!journal.exists());
    }
    assert!(taken_back > 0, "{taken_back} {finished}");
}

fn copy(place: &Place, from: &str, to: &str) {
    let ran = crate::place::ran(place.command("cp".as_ref()).args(["-a", from, to]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// The disk is full at any point of it: nothing is changed, and it is said.
#[test]
fn a_full_disk_leaves_the_original_as_it_was() {
    let place = Place::quick();
    let id =
        changed(&place, "for n in 1 2 3 4 5 6; do head -c 9000 /dev/urandom | base64 > f$n; done; rm gone");
    let program = place.bin().join("oubliette").display().to_string();
    let script = format!(
        "mkdir small && mount -t tmpfs -o size=SIZE,mode=755 none small && cp -a source/. small/
         {program} runs apply {id} --yes --to small >out 2>err; echo $? >code
         ls -A small | sort >left; umount small; rmdir small"
    );
    let (mut full, mut fits) = (0, false);
    for kib in (20..140).step_by(12) {
        let mut around = place.command("unshare".as_ref());
        around.args(["--mount", "--propagation", "private"]);
        if !rustix::process::geteuid().is_root() {
            around.args(["--user", "--map-root-user"]);
        }
        let script = script.replace("SIZE", &format!("{kib}k"));
        let outside = crate::place::ran(around.args(["sh", "-c", &script]));
        assert_eq!(outside.code, Some(0), "{kib}: {outside:?}");
        if place.read("code").trim() == "0" {
            assert_eq!(place.read("left").lines().count(), 9, "{}", place.read("left"));
            fits = true;
            break;
        }
        full += 1;
        assert_eq!(place.read("code").trim(), "5", "{kib}: {}", place.read("err"));
        assert!(place.read("err").contains("space"), "{kib}: {}", place.read("err"));
        assert_eq!(place.read("left"), "gone\nkept\nold\ntool\n", "{kib}");
    }
    assert!(fits && full > 2, "{full}");
}

#[test]
fn what_has_no_folder_to_go_back_to_wants_one_named() {
    let place = Place::quick();
    place.write("one", "one\n");
    let ran = place.exec_with(&["--workspace", "one"], &["sh", "-c", "echo two > one; echo x > new"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let id = place.ids().pop().unwrap();
    apply(&place, &id, &["--yes"]).assert_refused(2, "--to DIR");
    place.write("other/one", "one\n");
    assert_eq!(apply(&place, &id, &["--yes", "--to", "other"]).code, Some(0));
    assert_eq!((place.read("one"), place.read("other/one")), ("one\n".to_owned(), "two\n".to_owned()));
    symlink("other", place.path("way")).unwrap();
    assert_eq!(apply(&place, &id, &["--yes", "--to", "way"]).code, Some(0), "a name may be a link");
    apply(&place, &id, &["--yes", "--to", "data/runs"]).assert_refused(2, "the folder of the runs itself");
    apply(&place, "01m8ky8dkn26xfnzt8swtaeb1r", &["--yes"]).assert_refused(2, "there is no run");
    // Nothing was changed: nothing to take.
    place.sh("true");
    let id = place.ids().pop().unwrap();
    assert_eq!(apply(&place, &id, &["--yes", "--to", "other"]).code, Some(0));
}

#[test]
fn what_was_made_is_exported_as_archive_and_as_patch() {
    let place = Place::quick();
    let id = changed(&place, MAKE);
    let tar = place.ran(["runs", "export", &id, "--tar", "made.tar"]);
    assert_eq!(tar.code, Some(0), "{tar:?}");
    fs::create_dir(place.path("into")).unwrap();
    let unpacked = crate::place::ran(place.command("tar".as_ref()).args(["-xpf", "made.tar", "-C", "into"]));
    assert_eq!(unpacked.code, Some(0), "{unpacked:?}");
    let work = Tree::of(&place.path(format!("data/runs/{id}/workspace"))).unwrap();
    let differs = work.differences(&Tree::of(&place.path("into")).unwrap());
    assert_eq!(differs, [] as [std::path::PathBuf; 0]);
    let patch = place.ran(["runs", "export", &id, "--patch", "-"]);
    assert_eq!(patch.out, place.read(format!("data/runs/{id}/changes.patch")));
    place.ran(["runs", "export", &id]).assert_refused(2, "--tar");
    place.ran(["runs", "export", &id, "--tar", "x", "--patch", "y"]).assert_refused(2, "cannot be used with");
    place.write(&format!("data/runs/{id}/changes.patch"), "other\n");
    place.ran(["runs", "export", &id, "--patch", "-"]).assert_refused(3, "[patch]");
    place.ran(["runs", "export", &id, "--tar", "other.tar"]).assert_refused(3, "[patch]");
    assert!(!place.path("other.tar").exists());
}
