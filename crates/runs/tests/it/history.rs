//! Git repositories as a source: what comes in is for git a repository, and nothing of the original's settings.

use std::fs;
use std::path::Path;

use policy::Limits;
use runs::{History, RunError, Workspace};

use crate::{Place, chmod, collect, notes, write};

/// Git as its user would run it, nothing of this machine's settings.
#[expect(clippy::disallowed_methods, reason = "git judges what we wrote; a product crate never starts it")]
fn try_git(dir: &Path, args: &[&str]) -> (bool, String) {
    let done = std::process::Command::new("git")
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap())
        .output()
        .expect("these tests need git");
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn git(dir: &Path, args: &[&str]) -> String {
    let (well, said) = try_git(dir, args);
    assert!(well, "git {args:?}: {said}");
    said
}

/// A repository with two commits, a branch, and what must not come in.
fn checkout() -> Place {
    let place = Place::new();
    git(&place.source, &["init", "-q", "-b", "work/topic"]);
    git(&place.source, &["config", "user.name", "somebody"]);
    git(&place.source, &["config", "user.email", "somebody@example.com"]);
    place.write("old secret", "removed later");
    place.write(".gitignore", "*.o\n");
    commit(&place, "first");
    fs::remove_file(place.source.join("old secret")).unwrap();
    place.write("src/main.c", "int main;\n");
    place.write("src.c", "1\n");
    place.write("src/run", "#!/bin/sh\n");
    chmod(&place.source.join("src/run"), 0o755);
    place.link("link", "src/main.c");
    place.write("odd \u{e9}\n", "x\n");
    commit(&place, "second");
    git(&place.source, &["branch", "other"]);
    git(&place.source, &["remote", "add", "origin", "https://me:TOKEN@example.com/x"]);
    git(&place.source, &["config", "http.extraHeader", "Authorization: TOKEN"]);
    git(&place.source, &["config", "core.fsmonitor", "touch /tmp/evil; TOKEN"]);
    place.write(".git/hooks/post-checkout", "#!/bin/sh\necho TOKEN\n");
    chmod(&place.source.join(".git/hooks/post-checkout"), 0o755);
    place.write("main.o", "built");
    place.write("untracked", "x\n");
    place.write("src/main.c", "int main; // not committed\n");
    place
}

fn commit(place: &Place, message: &str) {
    git(&place.source, &["add", "-A"]);
    git(&place.source, &["commit", "-q", "-m", message]);
}

fn take(place: &Place, history: History) -> Result<Workspace, RunError> {
    let (store, limits) = (&place.store, Limits::default());
    Workspace::import_with_history(
        Some(&place.source),
        &place.work,
        store,
        &limits,
        None,
        history,
        &|_, _| true,
    )
}

fn holds(dir: &Path, needle: &str) -> bool {
    fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            holds(&path, needle)
        } else {
            meta.is_file() && fs::read(&path).unwrap().windows(needle.len()).any(|w| w == needle.as_bytes())
        }
    })
}

#[test]
fn a_checkout_becomes_one_fresh_commit_of_what_git_knew() {
    let place = checkout();
    let workspace = take(&place, History::One).unwrap();
    let git = |args: &[&str]| git(&place.work, args);
    assert_eq!(git(&["fsck", "--strict", "--full"]), "");
    git(&["verify-pack", &pack(&place.work)]);
    assert_eq!(git(&["log", "--format=%s", "--all"]), "Taken in by Oubliette\n");
    assert_eq!(git(&["branch", "-a"]), "* work/topic\n");
    assert_eq!(git(&["status", "--porcelain", "--ignored"]), "?? untracked\n!! main.o\n");
    assert_eq!(git(&["diff", "HEAD"]), "");
    assert_eq!(git(&["show", "HEAD:src/main.c"]), "int main; // not committed\n");
    assert!(git(&["ls-tree", "-r", "HEAD"]).contains("100755 blob"));
    let said = workspace.describe();
    assert_eq!(said["repository"]["commit"], git(&["rev-parse", "HEAD"]).trim());
    assert_eq!(
        (said["repository"]["history"].as_str(), said["repository"]["files"].as_u64()),
        (Some("one"), Some(6))
    );
    assert!(notes(&workspace).is_empty());
}

fn pack(work: &Path) -> String {
    let name = fs::read_dir(work.join(".git/objects/pack")).unwrap().map(|e| e.unwrap().file_name());
    let name = name.map(|n| n.into_string().unwrap()).find(|n| n.ends_with(".pack")).unwrap();
    format!(".git/objects/pack/{name}")
}

#[test]
fn r23_no_hook_setting_credential_or_older_content_comes_in_with_a_fresh_commit() {
    let place = checkout();
    take(&place, History::One).unwrap();
    assert!(!holds(&place.work.join(".git"), "TOKEN"));
    assert!(!place.work.join(".git/hooks").exists());
    assert!(!try_git(&place.work, &["show", "HEAD~1"]).0);
    assert_eq!(git(&place.work, &["remote"]), "");
}

#[test]
fn the_same_files_make_the_same_commit_and_the_same_digest() {
    let commits = [0, 1].map(|n| {
        let place = checkout();
        if n == 1 {
            let file = fs::File::options().write(true).open(place.source.join("src.c")).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        }
        let said = take(&place, History::One).unwrap().describe();
        (said["repository"]["commit"].clone(), said["sha256"].clone())
    });
    assert_eq!(commits[0], commits[1]);
}

#[test]
fn a_guest_can_commit_in_a_fresh_repository_and_nothing_of_it_is_in_the_patch() {
    let place = checkout();
    let workspace = take(&place, History::One).unwrap();
    assert!(collect(&workspace).summary.refused.is_empty());
    write(&place.work, "src.c", "2\n");
    git(&place.work, &["commit", "-q", "-a", "-m", "by the guest"]);
    git(&place.work, &["config", "core.fsmonitor", "touch /tmp/evil"]);
    write(&place.work, ".git/hooks/post-checkout", "evil");
    write(&place.work, ".GIT/config", "evil");
    write(&place.work, "sub/.git/config", "evil");
    let changes = collect(&workspace);
    assert_eq!((changes.summary.changed.len(), changes.summary.added.len()), (1, 0));
    assert!(!String::from_utf8_lossy(&changes.patch).contains("evil"));
    let told: Vec<&str> = changes.summary.refused.iter().filter_map(|r| r.split(':').next()).collect();
    assert_eq!(told, [".GIT", ".git", "sub/.git"]);
}

#[test]
fn history_is_kept_when_asked_for_without_hooks_settings_and_credentials() {
    let place = checkout();
    let workspace = take(&place, History::Keep).unwrap();
    let git = |args: &[&str]| git(&place.work, args);
    assert_eq!(git(&["log", "--format=%s"]), "second\nfirst\n");
    assert!(git(&["branch"]).contains("other"));
    assert_eq!(git(&["fsck", "--strict"]), "");
    assert_eq!(git(&["status", "--porcelain"]), " M src/main.c\n?? untracked\n");
    assert!(!holds(&place.work.join(".git"), "TOKEN") && !place.work.join(".git/hooks").exists());
    assert!(notes(&workspace)[0].starts_with(".git: hooks, settings, remotes, credentials"));
    assert_eq!(workspace.describe()["repository"]["history"], "keep");
}

#[test]
fn without_history_only_the_files_come_in() {
    let place = checkout();
    let workspace = take(&place, History::None).unwrap();
    assert!(!place.work.join(".git").exists() && place.work.join("src.c").exists());
    assert_eq!(workspace.describe()["repository"]["history"], "none");
}

#[test]
fn w7_a_git_file_that_leads_elsewhere_is_not_followed() {
    let place = checkout();
    let tree = place.source.with_file_name("tree");
    git(&place.source, &["worktree", "add", "-q", tree.to_str().unwrap(), "other"]);
    let worktree = Place { source: tree, ..place };
    let workspace = take(&worktree, History::One).unwrap();
    assert_eq!(git(&worktree.work, &["log", "--format=%s %D"]), "Taken in by Oubliette HEAD -> main\n");
    assert_eq!(git(&worktree.work, &["status", "--porcelain"]), "");
    assert!(notes(&workspace)[0].starts_with(".git: its list of files could not be read"));
    fs::remove_dir_all(&worktree.work).unwrap();
    let e = take(&worktree, History::Keep).unwrap_err().to_string();
    assert!(e.contains("it only leads to a repository elsewhere"), "{e}");
}

#[test]
fn w7_borrowed_objects_are_refused_and_never_read() {
    let place = checkout();
    place.write(".git/objects/info/alternates", "/etc\n");
    let e = take(&place, History::Keep).unwrap_err().to_string();
    assert!(e.contains("objects/info/alternates: its objects are borrowed"), "{e}");
    take(&place, History::One).unwrap();
}

#[test]
fn a_bare_repository_is_a_clear_refusal() {
    let place = Place::new();
    git(&place.source, &["init", "-q", "--bare", "."]);
    assert!(place.refused(&Limits::default()).contains("it is a bare repository"));
}

#[test]
fn a_broken_repository_is_one_of_all_its_files() {
    let place = Place::new();
    place.write("a", "x");
    place.write(".git/HEAD", "ref: refs/heads/../../evil\n");
    place.write(".git/index", "DIRC\0\0\0\x02\u{7f}\u{7f}\u{7f}\u{7f}");
    crate::fifo(&place.source.join(".git/config"));
    let workspace = take(&place, History::One).unwrap();
    assert_eq!(git(&place.work, &["log", "--format=%D"]), "HEAD -> main\n");
    assert_eq!(git(&place.work, &["status", "--porcelain"]), "");
    assert_eq!(notes(&workspace).len(), 1);
}

#[test]
fn a_repository_inside_is_taken_as_files() {
    let place = checkout();
    let inner = place.source.join("inner");
    fs::create_dir(&inner).unwrap();
    git(&inner, &["init", "-q"]);
    fs::write(inner.join("f"), "x").unwrap();
    git(&inner, &["add", "-A"]);
    git(&inner, &["-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", "x"]);
    git(&place.source, &["-c", "advice.addEmbeddedRepo=false", "add", "inner"]);
    let workspace = take(&place, History::One).unwrap();
    assert!(place.work.join("inner/f").exists() && !place.work.join("inner/.git").exists());
    assert!(git(&place.work, &["ls-files"]).contains("inner/f\n"));
    assert!(notes(&workspace)[0].starts_with("inner/.git: left out"));
}

#[test]
fn newer_lists_of_files_are_read_too() {
    for version in ["2", "3", "4"] {
        let place = checkout();
        git(&place.source, &["update-index", "--index-version", version]);
        place.write("intended", "x");
        git(&place.source, &["add", "-N", "intended"]);
        assert!(notes(&take(&place, History::One).unwrap()).is_empty());
        assert_eq!(git(&place.work, &["ls-files", "-o"]), "main.o\nuntracked\n");
    }
}

#[test]
fn large_files_and_copies_of_them_are_packed_once() {
    let place = Place::new();
    git(&place.source, &["init", "-q"]);
    let large: Vec<u8> = (0..5_000_000u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    for n in 0..200 {
        place.write(format!("d{}/f{n}", n % 7), format!("{n}\n"));
    }
    for name in ["a", "b", "d3/z"] {
        place.write(name, &large);
    }
    take(&place, History::One).unwrap();
    assert_eq!(git(&place.work, &["fsck", "--strict", "--full"]), "");
    assert_eq!(git(&place.work, &["status", "--porcelain"]), "");
    assert!(fs::metadata(place.work.join(pack(&place.work))).unwrap().len() < 6_000_000);
}

#[test]
fn r44_a_fresh_commit_counts_towards_the_limits() {
    let place = checkout();
    let e = place.import_with(&Limits { files: 12, ..Limits::default() }).unwrap_err().to_string();
    assert!(e.contains("more than 12 files in all"), "{e}");
    assert!(!place.work.exists());
}

/// Each of them begins a way of its own, and all of them together are one way.
#[test]
fn repositories_inside_the_folders_of_repositories_are_bounded_like_folders() {
    let place = Place::new();
    let inner = "objects/.git/".repeat(100);
    place.write(format!(".git/{inner}HEAD"), "ref: refs/heads/main\n");
    let RunError::Import { reason, .. } = take(&place, History::Keep).unwrap_err() else {
        panic!("another reason")
    };
    assert!(reason.contains("nested deeper"), "{reason}");
}
