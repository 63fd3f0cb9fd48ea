//! Reading the folder of all runs.

use std::fs;

use runs::{RunId, Standing, StoreError};

use crate::record::Written;

#[test]
fn r16_ids_are_unique_and_ordered_by_time() {
    let mut ids: Vec<RunId> = (0..1000).map(|_| RunId::new().unwrap()).collect();
    let first = ids[0].clone();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 1000);
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert!(RunId::new().unwrap() > first);
}

#[test]
fn r16_w9_what_is_no_id_never_becomes_a_path_part() {
    let good = RunId::new().unwrap().to_string();
    assert_eq!(RunId::parse(&good).unwrap().as_str(), good);
    let up = format!("../{}", &good[3..]);
    let nul = format!("{}\0", &good[1..]);
    let upper = good.to_uppercase();
    for bad in
        ["", ".", "..", "../baseline", "a/b", &up, &nul, &upper, &good[1..], "0000000000000000000000000u"]
    {
        assert!(RunId::parse(bad).is_err(), "{bad}");
        assert!(matches!(runs::verify(std::path::Path::new("/"), bad), Err(StoreError::BadId(_))));
        assert!(matches!(runs::show(std::path::Path::new("/"), bad), Err(StoreError::BadId(_))));
    }
}

#[test]
fn runs_are_listed_with_their_standing_and_strangers_are_noted() {
    let w = Written::whole();
    let broken = RunId::new().unwrap();
    fs::create_dir(w.store.path().join(broken.as_str())).unwrap();
    fs::write(w.store.path().join(broken.as_str()).join("events.jsonl"), "rubbish\n").unwrap();
    fs::write(w.store.path().join("notes.txt"), "").unwrap();
    std::os::unix::fs::symlink("/etc", w.store.path().join(RunId::new().unwrap().as_str())).unwrap();
    let listing = runs::list(w.store.path()).unwrap();
    let of = |id: &RunId| listing.runs.iter().find(|r| r.run_id == id.as_str()).unwrap().standing;
    assert_eq!((of(&w.id), of(&broken)), (Standing::Whole, Standing::Broken));
    assert_eq!((listing.runs.len(), listing.notes.len()), (2, 2));
}

#[test]
fn a_store_that_is_not_there_has_no_runs() {
    let dir = tempfile::tempdir().unwrap();
    assert!(runs::list(&dir.path().join("none")).unwrap().runs.is_empty());
    let id = RunId::new().unwrap();
    assert!(matches!(runs::show(&dir.path().join("none"), id.as_str()), Err(StoreError::Unknown { .. })));
}

#[test]
fn a_run_is_shown_with_its_events() {
    let w = Written::whole();
    let full = runs::show(w.store.path(), w.id.as_str()).unwrap();
    assert_eq!(full.checked.standing, Standing::Whole);
    assert_eq!(full.events.len(), 5);
    assert_eq!(full.meta.unwrap()["started"], "now");
}
