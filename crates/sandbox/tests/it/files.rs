//! File operations: the workspace and nothing else, whatever the names are.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use sandbox::{Change, FileOp, To, Was};

use crate::inside::LONG;
use crate::{Inside, on_every_tier, shell};

fn read(inside: &Inside, path: &str) -> String {
    inside.file(FileOp::Read { path: path.to_owned(), offset: 0, limit: 1 << 20 }, b"").out
}

fn write(inside: &Inside, path: &str, content: &str) -> String {
    inside.file(FileOp::Write { path: path.to_owned() }, content.as_bytes()).out
}

on_every_tier! {
    fn what_is_written_is_read_back_by_tools_and_commands_alike(inside: &Inside) {
        assert_eq!(write(inside, "a/b/new.txt", "text\n"), "{\"ok\":{\"created\":true,\"bytes\":5}}\n");
        assert_eq!(inside.sh("cat a/b/new.txt").out, "text\n");
        assert_eq!(read(inside, "/workspace/a/b/new.txt"), "{\"ok\":{\"size\":5,\"read\":5,\"executable\":false}}\ntext\n");
        if !inside.works_on_a_copy() {
            assert_eq!(std::fs::read_to_string(inside.workspace().join("a/b/new.txt")).unwrap(), "text\n");
        }
    }

    fn a_replaced_file_keeps_its_mode_and_leaves_no_half(inside: &Inside) {
        inside.sh("echo old > s; chmod 750 s");
        write(inside, "s", "new");
        assert_eq!(inside.sh("stat -c '%a %s' s; ls -A").out, "750 3\ns\n");
    }

    /// W1, W2, R13: a link, a linked parent, a dangling link, `..`, an absolute path, a prefix of the name.
    fn r13_no_path_leads_outside(inside: &Inside) {
        std::fs::write(inside.outside().join("secret"), "CANARY").unwrap();
        inside.sh("T=$TMPDIR; echo CANARY > $T/secret; ln -s $T/secret link; ln -s $T out; ln -s $T/planted dangling; \
            ln -s ../../tmp up; mkdir d; ln -s ../.. d/up");
        for path in [
            "link", "out/secret", "/tmp/secret", "../secret", "d/up/tmp/secret", "up/secret", "/workspace/../tmp/secret",
            "/workspace-sibling/secret", "/proc/self/environ", "d/../../tmp/secret", "/etc/passwd",
        ] {
            let answer = read(inside, path);
            assert!(answer.contains("\"outside\""), "{path}: {answer}");
            assert!(!answer.contains("CANARY"), "{path}: {answer}");
        }
        for path in ["dangling", "out/planted", "out/a/b/planted", "../planted", "/tmp/planted", "up/planted"] {
            let answer = write(inside, path, "planted");
            assert!(answer.contains("\"outside\""), "{path}: {answer}");
        }
        assert_eq!(inside.sh("ls $TMPDIR").out, "home\nsecret\n");
    }

    fn w3_legal_odd_names_work(inside: &Inside) {
        for name in ["..foo", "...", "a b", "-x", "new\nline", "ünï", "'\"$`\\"] {
            assert!(write(inside, name, "odd").contains("\"ok\""), "{name:?}");
            assert!(read(inside, name).ends_with("\nodd"), "{name:?}");
        }
    }

    fn a_link_that_stays_inside_is_followed(inside: &Inside) {
        inside.sh("mkdir docs; echo inside > docs/a; ln -s docs/a l; ln -s \"$(pwd)/docs\" abs; ln -s l ll");
        for path in ["l", "ll", "abs/a", "docs/../l"] {
            assert!(read(inside, path).ends_with("inside\n"), "{path}");
        }
        inside.sh("ln -s loop loop");
        assert!(read(inside, "loop").contains("\"links\""));
    }

    fn pipes_and_devices_are_refused_at_once(inside: &Inside) {
        inside.sh("mkfifo pipe; ln -s /dev/zero zero");
        let ran = inside.file(FileOp::Read { path: "pipe".to_owned(), offset: 0, limit: 10 }, b"");
        assert!(ran.out.contains("\"special\""), "{}", ran.out);
        assert!(ran.outcome.duration_ms < 5000);
        assert!(write(inside, "pipe", "x").contains("\"special\""));
        assert!(read(inside, "zero").contains("\"outside\""));
    }

    fn a_hard_link_is_replaced_not_written_through(inside: &Inside) {
        inside.sh("echo one > a; ln a b");
        write(inside, "b", "two");
        assert_eq!(inside.sh("cat a b").out, "one\ntwo");
    }

    /// W2: a background loop swaps a folder for a link while writes go on; nothing appears outside. By hand it is run
    /// longer: `OUBLIETTE_TEST_RACE_SECONDS=60`.
    fn a_racing_swapper_wins_nothing(inside: &Inside) {
        let tmp = inside.tmp_inside();
        inside.sh(&format!("mkdir -p d {tmp}/victim; echo ORIGINAL > {tmp}/victim/f"));
        let swap = format!("while [ ! -e stop ]; do mv d e; ln -s {tmp}/victim d; rm d; mv e d; done");
        inside.sh(&format!("sh -c '{swap}' >/dev/null 2>&1 </dev/null &"));
        let mut answers = 0;
        #[expect(clippy::disallowed_methods, reason = "by hand it is run for a minute")]
        let asked = std::env::var("OUBLIETTE_TEST_RACE_SECONDS").ok().and_then(|s| s.parse().ok());
        let until = std::time::Instant::now() + Duration::from_secs(asked.unwrap_or(0));
        let mut rounds = 0;
        while rounds < 40 || std::time::Instant::now() < until {
            rounds += 1;
            let answer = write(inside, "d/f", "OVERWRITTEN");
            answers += usize::from(answer.starts_with('{'));
            assert!(!read(inside, "d/f").contains("ORIGINAL"));
        }
        inside.sh("touch stop");
        assert_eq!(answers, rounds);
        assert_eq!(inside.sh("cat $TMPDIR/victim/f; ls $TMPDIR/victim").out, "ORIGINAL\nf\n");
    }

    fn a_search_finds_lines_is_capped_and_never_backtracks(inside: &Inside) {
        inside.sh("mkdir s; for i in 1 2 3; do echo \"needle $i\" > s/$i; done; head -c 100000 /dev/zero | tr '\\0' a > s/long");
        let search = |pattern: &str, limit| {
            inside.file(FileOp::Search { pattern: pattern.to_owned(), path: "s".to_owned(), limit, ignored: false }, b"").out
        };
        let found = search("needle [12]", 1);
        assert!(found.contains("\"path\":\"s/1\",\"line\":1,\"text\":\"needle 1\"") && found.contains("\"more\":1"), "{found}");
        // Exponential for a backtracking engine.
        assert!(search("(a+)+$b", 1).contains("\"matches\":[]"));
        assert!(search("(", 1).contains("\"pattern\""));
    }

    fn what_gitignore_ignores_is_left_out_unless_asked_for(inside: &Inside) {
        inside.sh("mkdir -p src out; echo out/ > .gitignore; echo needle > src/a.c; echo needle > out/b.c");
        let glob = |ignored| {
            let op = FileOp::Glob { pattern: "*.c".to_owned(), path: ".".to_owned(), limit: 9, ignored };
            inside.file(op, b"").out
        };
        assert!(glob(false).contains("{\"paths\":[\"src/a.c\"],\"more\":0,\"ignored\":1"), "{}", glob(false));
        assert!(glob(true).contains("{\"paths\":[\"out/b.c\",\"src/a.c\"]"), "{}", glob(true));
        let search = |ignored| {
            let op = FileOp::Search { pattern: "needle".to_owned(), path: ".".to_owned(), limit: 9, ignored };
            inside.file(op, b"").out
        };
        assert_eq!((search(false).matches("needle").count(), search(true).matches("needle").count()), (1, 2));
    }

    /// W3: a name that is no text is printed in quotes, and taken as it was printed.
    fn w3_names_that_are_no_text_are_listed_and_taken(inside: &Inside) {
        inside.sh("printf odd > \"$(printf 'a\\377\\nb')\"");
        let list = inside.file(FileOp::List { path: ".".to_owned(), limit: 9 }, b"").out;
        // JSON escapes the quotes and backslashes of the name once more.
        assert!(list.contains(r#"\"a\\377\\nb\""#), "{list}");
        assert!(read(inside, "\"a\\377\\nb\"").ends_with("\nodd"));
    }

    fn changes_are_all_or_nothing_and_never_of_what_is_something_else_by_now(inside: &Inside) {
        inside.sh("echo one > a; chmod 750 a; echo two > b");
        let wish = |path: &str, was: Was, bytes| {
            Change { path: path.to_owned(), was, to: To::Content { bytes: Some(bytes), executable: None } }
        };
        // Of `one` and a line feed.
        let sha256 = "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806".to_owned();
        let same = Was::Same { sha256, bytes: 4 };
        let stale = vec![wish("a", same.clone(), 2), wish("new/c", Was::Absent, 2), wish("b", same.clone(), 2)];
        let answer = inside.file(FileOp::Change { changes: stale }, b"1\n2\n3\n").out;
        assert!(answer.contains("\"changed\"") && answer.contains("b: "), "{answer}");
        assert_eq!(inside.sh("cat a b; ls -A").out, "one\ntwo\na\nb\n");
        let gone = Change { path: "b".to_owned(), was: Was::Any, to: To::Gone };
        let changes = vec![wish("a", same, 2), wish("new/c", Was::Absent, 2), gone];
        let answer = inside.file(FileOp::Change { changes }, b"1\n2\n").out;
        assert_eq!(answer, "{\"ok\":{\"files\":3}}\n");
        assert_eq!(inside.sh("cat a new/c; ls -A; stat -c %a a").out, "1\n2\na\nnew\n750\n");
    }

    fn a_list_is_sorted_and_says_what_is_left_out(inside: &Inside) {
        inside.sh("touch b a c; mkdir d; ln -s a l");
        let list = inside.file(FileOp::List { path: ".".to_owned(), limit: 3 }, b"").out;
        assert!(list.contains("\"name\":\"a\",\"kind\":\"file\"") && list.contains("\"more\":2"), "{list}");
    }

    fn a_file_call_is_bounded_like_any_other(inside: &Inside) {
        inside.sh("head -c 2m /dev/zero > big");
        let op = FileOp::Read { path: "big".to_owned(), offset: 0, limit: u64::MAX };
        let ran = inside.call(sandbox::Job::File(op), b"", LONG, 1000);
        assert_eq!((ran.outcome.stopped_by, ran.out.len()), (policy::StoppedBy::Output, 1000));
    }

    fn what_the_guest_makes_belongs_to_an_unprivileged_id(inside: &Inside) {
        inside.call(shell("touch made"), b"", LONG, 999);
        write(inside, "written", "x");
        if inside.works_on_a_copy() {
            return;
        }
        for name in ["made", "written"] {
            let uid = std::fs::metadata(inside.workspace().join(name)).unwrap().uid();
            let expected = sandbox::guest_owner().map_or(uid, |(uid, _)| uid);
            assert_eq!(uid, expected, "{name}");
            assert_ne!(uid, 0);
        }
    }
}
