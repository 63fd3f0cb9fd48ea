//! `runs apply --to-branch`: a commit on a new branch, and nothing else of the repository is touched.

use std::fs;

use testkit::Tree;

use crate::place::{Place, Ran, ran};

fn git(place: &Place, words: &[&str]) -> String {
    let mut git = place.command("git".as_ref());
    git.args([
        "-C",
        "source",
        "-c",
        "user.name=me",
        "-c",
        "user.email=me@localhost",
        "-c",
        "safe.directory=*",
    ]);
    let done = ran(git.args(words));
    assert_eq!(done.code, Some(0), "{words:?}: {done:?}");
    done.out
}

/// A checkout with one commit.
fn checkout(place: &Place) {
    for (name, content) in [("old", "one\n"), ("gone", "x\n"), ("tool", "#!/bin/sh\n"), ("in/kept", "kept\n")]
    {
        place.write(&format!("source/{name}"), content);
    }
    git(place, &["init", "-q", "-b", "main"]);
    git(place, &["add", "-A"]);
    git(place, &["commit", "-qm", "first"]);
}

fn made(place: &Place, line: &str) -> String {
    let ran = place.exec_with(&["--workspace", "source"], &["sh", "-c", line]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    place.ids().pop().unwrap()
}

fn branch(place: &Place, id: &str, name: &str) -> Ran {
    place.ran(["runs", "apply", id, "--yes", "--accept-warnings", "--to-branch", name])
}

/// R3: hooks, filters and attributes of either side run nothing.
#[test]
fn r3_a_change_becomes_a_commit_and_nothing_is_run_or_touched() {
    let place = Place::quick();
    checkout(&place);
    let ran = place.path("ran").display().to_string();
    for hook in ["reference-transaction", "pre-commit", "post-commit", "post-checkout", "post-index-change"] {
        let path = format!("source/.git/hooks/{hook}");
        place.write(&path, format!("#!/bin/sh\necho {hook} >> {ran}\n"));
        fs::set_permissions(place.path(path), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    git(&place, &["config", "filter.evil.clean", &format!("sh -c 'echo filter >> {ran}; cat'")]);
    git(&place, &["config", "core.fsmonitor", &format!("sh -c 'echo monitor >> {ran}'")]);
    fs::remove_file(&ran).ok();
    let id = made(
        &place,
        "echo new > new; sed -i s/one/two/ old; rm gone; chmod +x tool; ln -s old link; rm -r in; echo x > in; \
         printf odd > \"$(printf 'a\\nb\\377')\"; echo '* filter=evil' > attributes",
    );
    let files = |place: &Place| {
        let tree = Tree::of(&place.path("source")).unwrap();
        (tree, fs::read(place.path("source/.git/index")).unwrap(), place.read("source/.git/HEAD"))
    };
    let before = files(&place);
    let done = branch(&place, &id, "oubliette/fix");
    assert_eq!(done.code, Some(0), "{done:?}");
    let after = files(&place);
    assert_eq!((&before.1, &before.2), (&after.1, &after.2));
    let touched = before.0.differences(&after.0);
    assert!(
        touched.iter().all(|path| path.starts_with(".git/objects")
            || path.starts_with(".git/refs")
            || path.starts_with(".git/logs")),
        "{touched:?}"
    );
    assert!(!place.path("ran").exists(), "{}", place.read("ran"));
    // The commit holds what the workspace holds.
    place.write("source/.git/hooks/post-checkout", "");
    git(
        &place,
        &[
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.hooksPath=/dev/null",
            "worktree",
            "add",
            "-q",
            "../seen",
            "oubliette/fix",
        ],
    );
    let work = Tree::of(&place.path(format!("data/runs/{id}/workspace"))).unwrap();
    let seen = Tree::of(&place.path("seen")).unwrap();
    let differs: Vec<_> = work
        .differences(&seen)
        .into_iter()
        .filter(|path| !path.starts_with(".git") && path.iter().count() > 0)
        .collect();
    assert_eq!(differs, [] as [std::path::PathBuf; 0]);
    let said = git(&place, &["log", "-1", "--format=%an %P", "oubliette/fix"]);
    assert_eq!(said.trim(), format!("oubliette {}", git(&place, &["rev-parse", "main"]).trim()));
    branch(&place, &id, "oubliette/fix").assert_refused(2, "there is a branch `oubliette/fix` already");
    assert!(!place.path(format!("data/runs/{id}/.branch.tmp")).exists());
}

#[test]
fn a_branch_is_refused_where_its_base_is_not_what_was_taken_in() {
    let place = Place::quick();
    checkout(&place);
    place.write("source/old", "dirty\n");
    place.write("source/untracked", "x\n");
    let dirty = made(&place, "echo two > old");
    branch(&place, &dirty, "x").assert_refused(3, "old: HEAD does not hold it as it was taken in");
    let untracked = made(&place, "echo two > untracked");
    branch(&place, &untracked, "x").assert_refused(3, "untracked: HEAD does not hold it");
    let clean = made(&place, "echo two > new");
    git(&place, &["commit", "-q", "--allow-empty", "-m", "second"]);
    branch(&place, &clean, "x").assert_refused(3, "HEAD: it is another commit now");
    for name in ["-x", "a..b", "a b", "HEAD", "x.lock", "refs/heads/x", "a\u{1b}[2J"] {
        let refused = branch(&place, &clean, name);
        assert_eq!(refused.code, Some(2), "{name}: {refused:?}");
        assert!(!refused.err.contains('\u{1b}'), "{refused:?}");
    }
    assert_eq!(git(&place, &["branch", "--format=%(refname)"]).trim(), "refs/heads/main");
    // No repository at all.
    let place = Place::quick();
    place.write("source/old", "x\n");
    let id = made(&place, "echo two > old");
    branch(&place, &id, "x").assert_refused(2, "is in no git repository");
}
