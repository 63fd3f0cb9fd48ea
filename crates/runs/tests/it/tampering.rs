//! W12: whatever is done to a record afterwards is found, with its place.

use std::fs;
use std::path::Path;

use runs::{Mask, Standing};

use crate::record::Written;

/// The standing and the codes with their lines, after the events were changed so.
fn after(change: impl FnOnce(&mut Vec<String>)) -> (Standing, Vec<(Option<u64>, &'static str)>) {
    let w = Written::whole();
    let path = w.dir.join("events.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    change(&mut lines);
    fs::write(&path, lines.concat()).unwrap();
    judged(&w)
}

fn judged(w: &Written) -> (Standing, Vec<(Option<u64>, &'static str)>) {
    let checked = w.verify();
    (checked.standing, checked.findings.iter().map(|f| (f.line, f.code)).collect())
}

#[test]
fn w12_one_flipped_byte_anywhere_is_found() {
    let w = Written::whole();
    let path = w.dir.join("events.jsonl");
    let text = fs::read(&path).unwrap();
    for at in 0..text.len() {
        let mut changed = text.clone();
        changed[at] ^= 1;
        fs::write(&path, &changed).unwrap();
        assert_ne!(w.verify().standing, Standing::Whole, "byte {at}");
    }
}

#[test]
fn w12_a_changed_word_is_found_at_the_next_line() {
    let (standing, found) = after(|l| l[1] = l[1].replace("echo", "rm"));
    assert_eq!((standing, found), (Standing::Broken, vec![(Some(3), "chain")]));
}

#[test]
fn w12_a_dropped_line_is_found() {
    let (standing, found) = after(|l| drop(l.remove(2)));
    assert_eq!(standing, Standing::Broken);
    assert!(found.contains(&(Some(3), "chain")) && found.contains(&(Some(3), "sequence")), "{found:?}");
}

#[test]
fn w12_lines_in_another_order_are_found() {
    let (standing, found) = after(|l| l.swap(1, 2));
    assert_eq!(standing, Standing::Broken);
    assert!(found.contains(&(Some(2), "chain")), "{found:?}");
}

#[test]
fn w12_an_appended_line_is_found() {
    let (standing, found) = after(|l| l.push("{\"v\":1,\"seq\":6,\"type\":\"budget\"}\n".to_owned()));
    assert_eq!(standing, Standing::Broken);
    assert!(found.contains(&(Some(6), "after-end")), "{found:?}");
}

#[test]
fn w12_a_dropped_end_is_found_through_the_result() {
    let (standing, found) = after(|l| drop(l.pop()));
    assert_eq!(standing, Standing::Broken);
    assert!(found.contains(&(None, "head")), "{found:?}");
}

#[test]
fn w12_what_is_no_record_is_found() {
    let (standing, found) = after(|l| l[1] = "nonsense\n".to_owned());
    assert_eq!(standing, Standing::Broken);
    assert!(found.contains(&(Some(2), "not-json")), "{found:?}");
}

#[test]
fn a_line_without_an_end_is_broken_and_does_not_fill_memory() {
    let (standing, found) = after(|l| l[1] = "x".repeat(2 << 20));
    assert_eq!(standing, Standing::Broken);
    assert!(found.contains(&(Some(2), "too-long")), "{found:?}");
}

#[test]
fn a_record_that_ends_in_the_middle_is_incomplete_not_broken() {
    let w = Written::begin(Mask::new([]));
    w.call("echo");
    assert_eq!(judged(&w), (Standing::Incomplete, vec![(None, "no-end"), (None, "no-result")]));
    let path = w.dir.join("events.jsonl");
    let text = fs::read(&path).unwrap();
    fs::write(&path, &text[..text.len() - 5]).unwrap();
    assert_eq!(judged(&w), (Standing::Incomplete, vec![(Some(3), "cut-line"), (None, "no-result")]));
}

#[test]
fn a_newer_version_is_told_and_not_judged() {
    let w = Written::begin(Mask::new([]));
    let path = w.dir.join("events.jsonl");
    let text = fs::read_to_string(&path).unwrap().replace("\"v\":2", "\"v\":3");
    fs::write(&path, text).unwrap();
    assert_eq!(judged(&w).0, Standing::Newer);
}

#[test]
fn w12_changed_files_beside_the_events_are_found() {
    let change = |name: &str, code: &'static str| {
        let w = Written::whole();
        let path = w.dir.join(name);
        let path =
            if path.is_dir() { fs::read_dir(path).unwrap().next().unwrap().unwrap().path() } else { path };
        let mut text = fs::read(&path).unwrap();
        let last = text.len() - 2;
        text[last] ^= 1;
        fs::write(&path, &text).unwrap();
        let (standing, found) = judged(&w);
        assert_eq!(standing, Standing::Broken, "{name}");
        assert!(found.iter().any(|(_, c)| *c == code), "{name}: {found:?}");
        fs::remove_file(&path).unwrap();
        assert_ne!(judged(&w).0, Standing::Whole, "{name}");
    };
    change("meta.json", "meta-digest");
    change("artifacts", "artifact");
    change("changes.patch", "patch");
    change("result.json", "result");
}

#[test]
fn w12_an_artifact_that_became_a_link_is_found() {
    let w = Written::whole();
    let artifact = fs::read_dir(w.dir.join("artifacts")).unwrap().next().unwrap().unwrap().path();
    let elsewhere = w.store.path().join("same-content");
    fs::rename(&artifact, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &artifact).unwrap();
    assert_eq!(judged(&w).0, Standing::Broken);
}

#[test]
fn a_record_moved_to_another_id_is_found() {
    let w = Written::whole();
    let other = runs::RunId::new().unwrap();
    fs::rename(&w.dir, w.store.path().join(other.as_str())).unwrap();
    let checked = runs::verify(w.store.path(), other.as_str()).unwrap();
    assert!(checked.findings.iter().any(|f| f.code == "run-id"));
}

#[test]
fn r17_the_record_lies_outside_the_workspace() {
    let w = Written::whole();
    let workspace = w.dir.join("workspace");
    for name in ["meta.json", "events.jsonl", "artifacts", "changes.patch", "result.json"] {
        assert!(!w.dir.join(name).starts_with(&workspace) && Path::new(&w.dir.join(name)).exists());
    }
}
