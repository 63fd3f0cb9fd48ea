//! Clearing up: records that their runs could not end are ended, and what is kept no longer is removed.
//!
//! ```text
//!   each run ── held? ─▶ left alone
//!            └─ its record has no end ─▶ run_end(interrupted), result.json
//!   oldest first ── as old as `keep`, or beyond `max_bytes` ─▶ renamed to `.removed-<id>` ─▶ taken apart
//! ```
//!
//! A workspace was shaped by a guest: it is taken apart by descriptor, follows no link, and its depth costs
//! nothing, because every folder is moved up before it is emptied.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::apply;
use crate::beneath::Folder;
use crate::hold::Hold;
use crate::quote::in_text;
use crate::record::{self, Checked, Depth, Standing};
use crate::{RunId, StoreError};

const MOST_RUNS: usize = 1_000_000;
/// Names held at once.
const BATCH: usize = 4_096;
/// What is being taken apart has a name that no run has.
pub(crate) const REMOVED: &str = ".removed-";

/// What was cleared up, or would be.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cleared {
    /// Records that got their end.
    pub ended: Vec<Ended>,
    /// Runs that are gone.
    pub removed: Vec<Removed>,
    /// Runs that somebody works on.
    pub running: Vec<String>,
    /// Remarks that are no failures.
    pub notes: Vec<String>,
    /// What could not be done; the next time it is tried again.
    pub failed: Vec<String>,
    /// Bytes on disk of the runs that stay.
    pub bytes: u64,
}

/// A record that got its end.
#[derive(Clone, Debug, Serialize)]
pub struct Ended {
    /// The run.
    pub run_id: String,
    /// What is known.
    pub detail: String,
}

/// A run that is gone.
#[derive(Clone, Debug, Serialize)]
pub struct Removed {
    /// The run.
    pub run_id: String,
    /// Why.
    pub why: &'static str,
    /// Bytes on disk.
    pub bytes: u64,
}

/// Clears up in `store`: ends what was interrupted, removes what is as old as `keep`, and then the oldest until the
/// rest has at most `max_bytes`. With `dry_run` it only says what it would do.
///
/// # Errors
/// [`StoreError::Io`] when the folder itself cannot be read; what fails for one run is in the outcome.
pub fn gc(store: &Path, keep: Duration, max_bytes: u64, dry_run: bool) -> Result<Cleared, StoreError> {
    let mut cleared = Cleared::default();
    let failed = |source| StoreError::Io { path: store.to_owned(), source };
    let folder = match Folder::open(store) {
        Ok(folder) => folder,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(cleared),
        Err(e) => return Err(failed(e)),
    };
    // Two that clear up at once would take each other's removals for failures.
    let _alone = Hold::alone(store).map_err(failed)?;
    let (names, _) = folder.names(MOST_RUNS).map_err(failed)?;
    let mut kept = Vec::new();
    for name in names {
        if name.as_encoded_bytes().starts_with(REMOVED.as_bytes()) && !dry_run {
            // Somebody who cleared up was killed at it.
            cleared.tried(&name, take_apart(&folder, &name));
        }
        let Some(id) = name.to_str().and_then(|n| RunId::parse(n).ok()) else { continue };
        match Hold::idle(&store.join(id.as_str())) {
            Ok(Some(hold)) => {
                match apply::interrupted(&store.join(id.as_str()), dry_run) {
                    Ok(None) => {}
                    Ok(Some(said)) => cleared.notes.push(format!("{id}: {said}")),
                    Err(e) => {
                        // What would bring it to its end stays.
                        cleared.tried(&name, Err(e));
                        continue;
                    }
                }
                if !dry_run {
                    cleared
                        .tried(&name, folder.folder(Path::new(&name)).and_then(|run| remove_private(&run)));
                }
                cleared.end(store, &folder, &id, dry_run);
                let (bytes, all) = bytes_of(&folder, &name);
                if !all {
                    cleared
                        .notes
                        .push(format!("{id}: parts of it cannot be read, its size is not known in full"));
                }
                kept.push((bytes, id, hold));
            }
            Ok(None) => cleared.running.push(id.to_string()),
            Err(e) => cleared.tried(&name, Err(e)),
        }
    }
    cleared.retire(&folder, kept, (keep, max_bytes), dry_run);
    Ok(cleared)
}

impl Cleared {
    fn tried(&mut self, name: &OsStr, outcome: io::Result<()>) {
        if let Err(e) = outcome {
            self.failed.push(format!("{}: {e}", in_text(Path::new(name))));
        }
    }

    fn end(&mut self, store: &Path, folder: &Folder, id: &RunId, dry_run: bool) {
        let run = match folder.folder(Path::new(id.as_str())) {
            Ok(run) => run,
            Err(e) => return self.tried(OsStr::new(id.as_str()), Err(e)),
        };
        // What does not hold is evidence, and stays as it is. What a loss of power took is nobody's doing.
        let checked = Checked::of(&run, id, Depth::Chain);
        if checked.beside_meta != Standing::Incomplete {
            return;
        }
        let lost = if checked.meta_lost { "its `meta.json` is lost; " } else { "" };
        let detail = if dry_run {
            Ok("its record has no end".to_owned())
        } else {
            record::end_interrupted(&store.join(id.as_str()), id)
        };
        match detail {
            Ok(detail) => {
                self.ended.push(Ended { run_id: id.to_string(), detail: format!("{lost}{detail}") });
            }
            Err(e) => self.failed.push(format!("{id}: {}", e.told())),
        }
    }

    /// Oldest first: ids sort by time.
    fn retire(
        &mut self,
        folder: &Folder,
        runs: Vec<(u64, RunId, Hold)>,
        (keep, max_bytes): (Duration, u64),
        dry_run: bool,
    ) {
        let now = SystemTime::now();
        let mut bytes: u64 = runs.iter().map(|(bytes, ..)| bytes).sum();
        for (own, id, _hold) in runs {
            let old = now.duration_since(id.made()).is_ok_and(|age| age >= keep);
            let why = match (old, bytes > max_bytes) {
                (true, _) => "as old as `records.keep`",
                (false, true) => "beyond `records.max_bytes`",
                (false, false) => continue,
            };
            let name = OsString::from(id.as_str());
            let gone = if dry_run { Ok(()) } else { remove(folder, &name) };
            if gone.is_ok() {
                bytes = bytes.saturating_sub(own);
                self.removed.push(Removed { run_id: id.to_string(), why, bytes: own });
            }
            self.tried(&name, gone);
        }
        self.bytes = bytes;
    }
}

/// What sandboxes that are gone left in the folder of their run, because who would have removed it was killed.
pub(crate) fn remove_private(run: &Folder) -> io::Result<()> {
    let (names, _) = run.names(MOST_RUNS)?;
    let private = |name: &&OsString| name.as_encoded_bytes().starts_with(sandbox::PRIVATE.as_bytes());
    names.iter().filter(private).try_for_each(|name| take_apart(run, name))
}

/// At once gone for every reader; then piece by piece.
fn remove(store: &Folder, name: &OsStr) -> io::Result<()> {
    let mut aside = OsString::from(REMOVED);
    aside.push(name);
    store.rename(name, store, &aside)?;
    take_apart(store, &aside)
}

/// Removes a folder with everything in it, however deep that is and whatever modes a guest has given it; no link is
/// followed.
///
/// # Errors
/// The first thing that could not be removed; what was in the way before it is gone.
pub fn remove_tree(folder: &Path) -> io::Result<()> {
    let name = folder.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = Folder::open(parent.unwrap_or(Path::new(".")))?;
    if parent.look(name)?.is_dir() {
        take_apart(&parent, name)
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}

fn take_apart(store: &Folder, name: &OsStr) -> io::Result<()> {
    let root = enter(store, name)?;
    let mut moved = 0u64;
    // Every folder that is found is moved up here, under a number, until none is left.
    loop {
        let (names, more) = root.names(BATCH)?;
        for name in &names {
            if root.look(name)?.is_dir() {
                let inner = enter(&root, name)?;
                empty(&inner, &root, &mut moved)?;
                root.remove_folder(name)?;
            } else {
                root.remove_file(name)?;
            }
        }
        if names.is_empty() && !more {
            return store.remove_folder(name);
        }
    }
}

fn empty(folder: &Folder, root: &Folder, moved: &mut u64) -> io::Result<()> {
    loop {
        let (names, _) = folder.names(BATCH)?;
        if names.is_empty() {
            return Ok(());
        }
        for name in &names {
            if !folder.look(name)?.is_dir() {
                folder.remove_file(name)?;
                continue;
            }
            // A folder that changes its parent must be writable itself.
            folder.unlock(name, 0o700)?;
            loop {
                *moved += 1;
                match folder.rename(name, root, OsStr::new(&format!(".moved-{moved}"))) {
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                    other => break other?,
                }
            }
        }
    }
}

/// Opens a folder to empty it, whatever its guest did to its mode.
fn enter(parent: &Folder, name: &OsStr) -> io::Result<Folder> {
    parent.unlock(name, 0o700)?;
    parent.folder(Path::new(name))
}

/// Bytes on disk, and whether everything could be seen.
fn bytes_of(store: &Folder, name: &OsStr) -> (u64, bool) {
    const BLOCK: u64 = 512;
    /// Longer ways begin anew: the system bounds the length of one, a guest does not.
    const LONGEST_WAY: usize = 1_024;
    let (mut bytes, mut all) = (0u64, true);
    let Ok(run) = store.folder(Path::new(name)) else { return (0, false) };
    let mut left = vec![(Rc::new(run), PathBuf::new())];
    while let Some((base, way)) = left.pop() {
        let seen = base.folder(&way).and_then(|here| Ok((here.names(MOST_RUNS)?, here)));
        let Ok(((names, more), here)) = seen else {
            all = false;
            continue;
        };
        all &= !more;
        let here = Rc::new(here);
        for name in names {
            let Ok(meta) = here.look(&name) else {
                all = false;
                continue;
            };
            bytes = bytes.saturating_add(meta.blocks().saturating_mul(BLOCK));
            if meta.is_dir() {
                left.push(if way.as_os_str().len() > LONGEST_WAY {
                    (Rc::clone(&here), PathBuf::from(&name))
                } else {
                    (Rc::clone(&base), way.join(&name))
                });
            }
        }
    }
    (bytes, all)
}
