//! What is being done to a target, on the disk before it is done: `apply.json` in the run's folder, where no guest
//! reaches.
//!
//! A folder of runs may come from anywhere, a journal's text with it. So one is obeyed only where the target says
//! the same: a mark of the user's own lies in it from before the first step until after the last.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::beneath::Folder;
use crate::manifest::{coded, decoded};

pub(crate) const NAME: &str = "apply.json";
const HALF: &str = ".apply.tmp";
const LARGEST: u64 = 256 << 20;

/// How far it has come. Before `Done` everything is taken back, from then on it is brought to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// New entries are put beside old ones; none of the target's own is touched.
    Staging,
    /// They are being exchanged.
    Swapping,
    /// All are; what was there before is being removed.
    Done,
}

/// Device and number of a file.
pub(crate) type Id = (u64, u64);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Journal {
    v: u32,
    target: Word,
    /// Which folder that was.
    pub(crate) root: Id,
    pub(crate) phase: Phase,
    pub(crate) steps: Vec<Entry>,
}

/// One step.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) path: Word,
    /// The name beside it under which the new entry waits, and later the old one.
    pub(crate) beside: String,
    pub(crate) old: Option<Id>,
    /// Known when everything is put beside.
    pub(crate) new: Option<Id>,
    pub(crate) has_new: bool,
    /// Everything in the old entry and in the new one, where they are folders.
    pub(crate) old_inner: Vec<Word>,
    pub(crate) new_inner: Vec<Word>,
}

/// A path, with every byte that is not plain written as two digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Word(String);

impl Word {
    pub(crate) fn of(path: &Path) -> Word {
        Word(coded(path.as_os_str().as_bytes()))
    }

    pub(crate) fn path(&self) -> PathBuf {
        // What is no word leads nowhere.
        PathBuf::from(std::ffi::OsString::from_vec(decoded(&self.0).unwrap_or_default()))
    }
}

impl Journal {
    pub(crate) fn new(target: &Path, root: Id, steps: Vec<Entry>) -> Journal {
        Journal { v: 1, target: Word::of(target), root, phase: Phase::Staging, steps }
    }

    pub(crate) fn target(&self) -> PathBuf {
        self.target.path()
    }

    /// On the disk, in the folder of the run.
    pub(crate) fn write(&self, run: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        let half = run.join(HALF);
        let written = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&half)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&half, run.join(NAME))?;
            File::open(run)?.sync_all()
        };
        let written = written();
        if written.is_err() && half.exists() {
            fs::remove_file(&half)?;
        }
        written
    }

    /// The one in the folder of the run `id`, if there is one.
    pub(crate) fn read(run: &Folder, id: &str) -> io::Result<Option<Journal>> {
        let mut text = Vec::new();
        match run.file(Path::new(NAME)) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
            Ok(file) => file.take(LARGEST).read_to_end(&mut text)?,
        };
        let journal: Journal = serde_json::from_slice(&text)?;
        if journal.v != 1 {
            return Err(io::Error::other("a newer version wrote it"));
        }
        if journal.steps.iter().enumerate().any(|(n, step)| step.beside != beside(id, n)) {
            return Err(io::Error::other("its journal names what no apply puts beside"));
        }
        Ok(Some(journal))
    }

    pub(crate) fn remove(run: &Path) -> io::Result<()> {
        fs::remove_file(run.join(NAME))?;
        File::open(run)?.sync_all()
    }
}

/// The name under which the entry of a step waits.
pub(crate) fn beside(id: &str, step: usize) -> String {
    format!(".oubliette-{id}-{step}")
}

fn mark_of(id: &str) -> OsString {
    format!(".oubliette-{id}").into()
}

/// Says in a target that the run `id` is being taken over to it.
pub(crate) fn mark(target: &Folder, id: &str) -> io::Result<()> {
    target.create(&mark_of(id), 0o600).map(drop)
}

/// Whether we said so.
pub(crate) fn is_marked(target: &Folder, id: &str) -> bool {
    let us = rustix::process::geteuid().as_raw();
    target.look(&mark_of(id)).is_ok_and(|meta| meta.is_file() && meta.uid() == us)
}

pub(crate) fn unmark(target: &Folder, id: &str) -> io::Result<()> {
    match target.remove_file(&mark_of(id)) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        Ok(()) | Err(_) => target.sync(),
    }
}
