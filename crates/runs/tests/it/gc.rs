//! What is ended, what is removed, and what is left alone.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use runs::{Cleared, Event, Mask, Standing, gc};
use serde_json::{Value, json};

use crate::record::Written;

const LONG: Duration = Duration::from_secs(3600);

fn cleared(w: &Written) -> Cleared {
    gc(w.store.path(), LONG, u64::MAX, false).unwrap()
}

/// Everything goes: nothing is kept for no time.
fn emptied(store: &Path) -> Cleared {
    gc(store, Duration::ZERO, u64::MAX, false).unwrap()
}

fn begun() -> Written {
    let w = Written::begin(Mask::new([]));
    w.call("echo");
    w
}

fn result(w: &Written) -> Value {
    serde_json::from_slice(&fs::read(w.dir.join("result.json")).unwrap()).unwrap()
}

fn start(w: &Written) {
    let (tool, job) = ("run_shell".to_owned(), json!({}));
    let event = Event::ToolStart { call: 2, tool, job, stdin_artifact: None, timeout_ms: 1, output_bytes: 1 };
    w.record.append(&event).unwrap();
}

#[test]
fn the_record_of_an_interrupted_run_becomes_whole_and_says_so() {
    let w = begun();
    let cleared = cleared(&w);
    assert_eq!(cleared.ended.len(), 1, "{cleared:?}");
    assert_eq!(w.verify().standing, Standing::Whole, "{:?}", w.verify().findings);
    assert_eq!((&result(&w)["stop"], &result(&w)["calls"]), (&json!("interrupted"), &json!(1)));
}

#[test]
fn a_call_without_an_end_is_said_to_be_unknown() {
    let w = begun();
    start(&w);
    cleared(&w);
    let said = result(&w)["summary"].as_str().unwrap().to_owned();
    assert!(said.contains("call 2 (run_shell) had begun, and how it ended is not known"), "{said}");
}

/// As after a loss of power: any cut of the last line.
#[test]
fn a_record_cut_anywhere_in_its_last_line_is_ended_behind_the_line_before() {
    let lines = {
        let w = begun();
        fs::read(w.dir.join("events.jsonl")).unwrap()
    };
    let last = lines[..lines.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    for cut in last + 1..lines.len() {
        let w = begun();
        let path = w.dir.join("events.jsonl");
        let own = fs::read(&path).unwrap();
        fs::write(&path, &own[..cut.min(own.len() - 1)]).unwrap();
        assert_eq!(w.verify().standing, Standing::Incomplete);
        cleared(&w);
        assert_eq!(w.verify().standing, Standing::Whole, "cut at {cut}: {:?}", w.verify().findings);
        assert!(result(&w)["summary"].as_str().unwrap().contains("unfinished line"), "cut at {cut}");
    }
}

#[test]
fn a_run_killed_before_its_first_line_gets_a_record() {
    for content in [None, Some(&b""[..]), Some(b"{\"v\":1,")] {
        let w = begun();
        fs::remove_dir_all(w.dir.join("artifacts")).unwrap();
        fs::create_dir(w.dir.join("artifacts")).unwrap();
        fs::remove_file(w.dir.join("events.jsonl")).unwrap();
        if let Some(content) = content {
            fs::write(w.dir.join("events.jsonl"), content).unwrap();
        }
        cleared(&w);
        assert_eq!(w.verify().standing, Standing::Whole, "{content:?}: {:?}", w.verify().findings);
    }
}

/// As after a loss of power: artifacts are on the disk before the lines that name them.
#[test]
fn a_record_whose_lines_were_lost_is_ended_and_what_was_saved_stays() {
    let w = begun();
    fs::write(w.dir.join("artifacts").join("0".repeat(64)), "a body").unwrap();
    fs::write(w.dir.join("events.jsonl"), "").unwrap();
    let before: Value = serde_json::from_slice(&fs::read(w.dir.join("meta.json")).unwrap()).unwrap();
    let cleared = cleared(&w);
    assert!(cleared.failed.is_empty() && cleared.ended.len() == 1, "{cleared:?}");
    assert_eq!(w.verify().standing, Standing::Whole, "{:?}", w.verify().findings);
    assert_eq!(fs::read(w.dir.join("artifacts").join("0".repeat(64))).unwrap(), b"a body");
    let after: Value = serde_json::from_slice(&fs::read(w.dir.join("meta.json")).unwrap()).unwrap();
    assert!(before.as_object().unwrap().iter().all(|(name, value)| after[name] == *value), "{after}");
    assert!(result(&w)["summary"].as_str().unwrap().contains("what the run did is not known"));
}

#[test]
fn a_run_killed_before_its_result_keeps_its_own_reason() {
    let w = begun();
    w.end();
    fs::remove_file(w.dir.join("result.json")).unwrap();
    cleared(&w);
    assert_eq!(w.verify().standing, Standing::Whole, "{:?}", w.verify().findings);
    assert_eq!(result(&w)["stop"], "finished");
}

/// Whole records too: a run goes on without its forker, and ends in order.
#[test]
fn the_private_folder_of_a_killed_forker_is_removed_whatever_its_guest_made_of_it() {
    for ended in [false, true] {
        let w = begun();
        if ended {
            w.end();
        }
        let private = w.dir.join(format!("{}0123456789abcdef", sandbox::PRIVATE));
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "x").unwrap();
        fs::create_dir_all(private.join("a/b")).unwrap();
        symlink(outside.path(), private.join("a/link")).unwrap();
        fs::set_permissions(private.join("a"), PermissionsExt::from_mode(0o0)).unwrap();
        let cleared = cleared(&w);
        assert!(cleared.failed.is_empty(), "{cleared:?}");
        assert!(!private.exists() && outside.path().join("kept").exists());
        assert_eq!(w.verify().standing, Standing::Whole);
    }
}

#[test]
fn what_was_half_written_is_taken_away() {
    let w = begun();
    for name in [".half-3.tmp", "artifacts/.stdout-2.tmp"] {
        fs::write(w.dir.join(name), "half").unwrap();
    }
    cleared(&w);
    let left = |dir: &Path| {
        fs::read_dir(dir).unwrap().any(|e| e.unwrap().file_name().as_encoded_bytes().ends_with(b".tmp"))
    };
    assert!(!left(&w.dir) && !left(&w.dir.join("artifacts")));
}

#[test]
fn clearing_up_twice_changes_nothing() {
    let w = begun();
    cleared(&w);
    let before = fs::read(w.dir.join("events.jsonl")).unwrap();
    let again = cleared(&w);
    assert!(again.ended.is_empty() && again.removed.is_empty(), "{again:?}");
    assert_eq!(fs::read(w.dir.join("events.jsonl")).unwrap(), before);
}

/// As after a loss of power: missing, empty, cut anywhere, or nothing but zeros.
fn without_meta(w: &Written) -> [Option<Vec<u8>>; 5] {
    let meta = fs::read(w.dir.join("meta.json")).unwrap();
    let (half, zeros) = (meta[..meta.len() / 2].to_vec(), vec![0; meta.len()]);
    [None, Some(Vec::new()), Some(meta[..1].to_vec()), Some(half), Some(zeros)]
}

fn lose(w: &Written, content: Option<&[u8]>) {
    match content {
        Some(bytes) => fs::write(w.dir.join("meta.json"), bytes).unwrap(),
        None => fs::remove_file(w.dir.join("meta.json")).unwrap(),
    }
}

#[test]
fn r42_a_run_whose_meta_was_lost_is_ended_and_says_so_and_is_never_whole() {
    for n in 0..5 {
        let w = begun();
        let content = without_meta(&w)[n].clone();
        lose(&w, content.as_deref());
        let before = w.verify();
        assert!(before.meta_lost && before.standing == Standing::Broken, "{content:?}: {before:?}");
        assert!(before.findings.iter().any(|f| f.code == "meta-lost"), "{before:?}");
        let cleared = cleared(&w);
        assert!(cleared.failed.is_empty() && cleared.ended.len() == 1, "{content:?}: {cleared:?}");
        assert!(cleared.ended[0].detail.starts_with("its `meta.json` is lost"), "{cleared:?}");
        assert_eq!((&result(&w)["stop"], &result(&w)["calls"]), (&json!("interrupted"), &json!(1)));
        let after = w.verify();
        let codes: Vec<_> = after.findings.iter().map(|f| f.code).collect();
        assert_eq!((after.standing, codes), (Standing::Broken, vec!["meta-lost"]));
        assert!(gc(w.store.path(), LONG, u64::MAX, false).unwrap().ended.is_empty());
    }
}

#[test]
fn a_run_whose_meta_was_lost_is_removed_in_its_time_and_not_while_it_is_held() {
    for n in 0..5 {
        let w = begun();
        let content = without_meta(&w)[n].clone();
        lose(&w, content.as_deref());
        let flags = rustix::fs::OFlags::DIRECTORY;
        let held = rustix::fs::open(&w.dir, flags, rustix::fs::Mode::empty()).unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let lines = fs::read(w.dir.join("events.jsonl")).unwrap();
        let left = emptied(w.store.path());
        assert!(left.ended.is_empty() && left.removed.is_empty() && left.running.len() == 1, "{left:?}");
        assert_eq!(fs::read(w.dir.join("events.jsonl")).unwrap(), lines);
        drop(held);
        let gone = emptied(w.store.path());
        assert!(gone.failed.is_empty() && gone.removed.len() == 1 && !w.dir.exists(), "{gone:?}");
    }
}

/// Only a loss is one: a link in its place was made by somebody, and so was a change.
#[test]
fn a_meta_that_somebody_changed_is_evidence_and_no_loss() {
    let outside = tempfile::NamedTempFile::new().unwrap();
    let link = |w: &Written| {
        fs::remove_file(w.dir.join("meta.json")).unwrap();
        symlink(outside.path(), w.dir.join("meta.json")).unwrap();
    };
    let change = |w: &Written| fs::write(w.dir.join("meta.json"), "{}").unwrap();
    for spoil in [&link as &dyn Fn(&Written), &change] {
        let w = begun();
        spoil(&w);
        assert!(cleared(&w).ended.is_empty());
        let checked = w.verify();
        assert!(
            !checked.meta_lost && checked.findings.iter().any(|f| f.code == "meta-digest"),
            "{checked:?}"
        );
    }
    assert_eq!(fs::read(outside.path()).unwrap(), b"");
}

/// Evidence is not mended.
#[test]
fn a_record_that_does_not_hold_is_left_as_it_is() {
    let w = begun();
    let path = w.dir.join("events.jsonl");
    let text = fs::read_to_string(&path).unwrap().replace("echo", "exho");
    fs::write(&path, &text).unwrap();
    let cleared = cleared(&w);
    assert!(cleared.ended.is_empty(), "{cleared:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    assert_eq!(w.verify().standing, Standing::Broken);
}

#[test]
fn a_whole_record_is_left_as_it_is() {
    let w = Written::whole();
    let before = fs::read(w.dir.join("result.json")).unwrap();
    let cleared = cleared(&w);
    assert!(cleared.ended.is_empty() && cleared.removed.is_empty(), "{cleared:?}");
    assert_eq!(fs::read(w.dir.join("result.json")).unwrap(), before);
}

#[test]
fn a_dry_run_touches_nothing() {
    let w = begun();
    let before = fs::read(w.dir.join("events.jsonl")).unwrap();
    let said = gc(w.store.path(), Duration::ZERO, 0, true).unwrap();
    assert_eq!((said.ended.len(), said.removed.len()), (1, 1), "{said:?}");
    assert_eq!(fs::read(w.dir.join("events.jsonl")).unwrap(), before);
    assert!(!w.dir.join("result.json").exists());
}

#[test]
fn the_oldest_go_until_the_rest_fits() {
    let w = Written::whole();
    fs::write(w.dir.join("artifacts/filler"), vec![1; 256 << 10]).unwrap();
    let newer = std::iter::repeat_with(|| runs::RunId::new().unwrap()).find(|id| *id > w.id).unwrap();
    let dir = w.store.path().join(newer.as_str());
    fs::create_dir(&dir).unwrap();
    runs::Record::begin(&dir, &newer, Mask::new([]), 1 << 20, json!({})).unwrap();
    let cleared = gc(w.store.path(), LONG, 128 << 10, false).unwrap();
    assert_eq!(cleared.removed.len(), 1, "{cleared:?}");
    assert_eq!(cleared.removed[0].run_id, w.id.to_string());
    assert!(!w.dir.exists() && dir.exists());
    assert!(cleared.bytes <= 128 << 10, "{cleared:?}");
}

#[test]
fn nothing_is_removed_through_a_link() {
    let w = Written::whole();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("kept"), "kept").unwrap();
    let workspace = w.dir.join("workspace/deep");
    fs::create_dir_all(&workspace).unwrap();
    symlink(outside.path(), workspace.join("link")).unwrap();
    symlink(outside.path(), w.dir.join("link")).unwrap();
    assert!(emptied(w.store.path()).failed.is_empty());
    assert!(outside.path().join("kept").exists() && !w.dir.exists());
}

/// A guest can make folders deeper than any path, close them, and name them as our own moves are named.
#[test]
fn a_tree_deeper_than_any_path_is_removed() {
    let w = Written::whole();
    let workspace = w.dir.join("workspace");
    fs::create_dir(&workspace).unwrap();
    fs::create_dir(w.dir.join(".moved-1")).unwrap();
    let mut at = rustix::fs::open(&workspace, rustix::fs::OFlags::DIRECTORY, 0.into()).unwrap();
    let name = "d".repeat(200);
    for _ in 0..3000 {
        rustix::fs::mkdirat(&at, &name, 0o700.into()).unwrap();
        rustix::fs::mkdirat(&at, "beside", 0o700.into()).unwrap();
        at = rustix::fs::openat(&at, &name, rustix::fs::OFlags::DIRECTORY, 0.into()).unwrap();
    }
    fs::create_dir(workspace.join("closed")).unwrap();
    fs::write(workspace.join("closed/file"), "x").unwrap();
    fs::set_permissions(workspace.join("closed"), PermissionsExt::from_mode(0o000)).unwrap();
    let cleared = emptied(w.store.path());
    assert!(cleared.failed.is_empty(), "{cleared:?}");
    assert_eq!(fs::read_dir(w.store.path()).unwrap().count(), 0);
}

#[test]
fn a_removal_that_was_interrupted_is_finished() {
    let w = Written::whole();
    let half = w.store.path().join(format!(".removed-{}", w.id));
    fs::rename(&w.dir, &half).unwrap();
    assert!(cleared(&w).failed.is_empty());
    assert!(!half.exists());
}

#[test]
fn what_is_no_run_is_left_alone() {
    let w = Written::whole();
    fs::write(w.store.path().join("notes.txt"), "mine").unwrap();
    fs::create_dir(w.store.path().join("other")).unwrap();
    symlink(w.store.path().join("other"), w.store.path().join("7zzzzzzzzzzzzzzzzzzzzzzzzz")).unwrap();
    emptied(w.store.path());
    assert!(w.store.path().join("notes.txt").exists() && w.store.path().join("other").exists());
    assert!(w.store.path().join("7zzzzzzzzzzzzzzzzzzzzzzzzz").is_symlink());
}

/// Two that clear up at the same time do not take each other's removals for failures.
#[test]
fn two_that_clear_up_at_once_fail_at_nothing() {
    let store = tempfile::tempdir().unwrap();
    for _ in 0..60 {
        let run = store.path().join(runs::RunId::new().unwrap().as_str());
        fs::create_dir_all(run.join("workspace/folder")).unwrap();
        fs::write(run.join("workspace/folder/file"), "x").unwrap();
    }
    let both = std::thread::scope(|scope| {
        let clear = || scope.spawn(|| emptied(store.path()));
        [clear(), clear()].map(|thread| thread.join().unwrap())
    });
    let removed: usize = both.iter().map(|cleared| cleared.removed.len()).sum();
    assert!(both.iter().all(|cleared| cleared.failed.is_empty()) && removed == 60, "{both:?}");
}
