//! Files of a record, written whole or not at all.

use std::borrow::Cow;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Advice, fadvise};
use sha2::{Digest, Sha256};

use crate::RunError;
use crate::manifest::{hex, sha256};

const FOLDER: &str = "artifacts";

/// Files being written must not share a name.
static HALVES: AtomicU64 = AtomicU64::new(0);

/// Most runs keep nothing: it comes with the first artifact.
fn create_folder(path: &Path) -> Result<(), RunError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(RunError::io("create", path)(e)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Takes away what was being written when its run was interrupted.
pub(crate) fn remove_halves(dir: &Path) -> io::Result<()> {
    for folder in [dir.to_owned(), dir.join(FOLDER)] {
        let entries = match fs::read_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            if name.starts_with(b".") && name.ends_with(b".tmp") && entry.file_type()?.is_file() {
                fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(())
}

/// Writes a file of the run: beside it first, then in its place at once.
pub(super) fn put(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), RunError> {
    // A file of nothing has nothing that could be lost.
    let saved = |half: &File| if bytes.is_empty() { Ok(()) } else { half.sync_data() };
    place(dir, name, bytes, saved).map(drop)
}

/// The same, in its place before it is on the disk: the file, for whoever brings it there.
pub(super) fn put_unsaved(dir: &Path, name: &str, bytes: &[u8]) -> Result<File, RunError> {
    place(dir, name, bytes, |_| Ok(()))
}

/// The same, in its place only when `lines` are on the disk too.
pub(super) fn put_behind(dir: &Path, name: &str, bytes: &[u8], lines: &File) -> Result<(), RunError> {
    let saved = |half: &File| {
        // Both are on their way before one is waited for: the file system then brings them there in one go.
        for file in [lines, half] {
            fadvise(file, 0, None, Advice::DontNeed).ok();
        }
        lines.sync_data()?;
        half.sync_data()
    };
    place(dir, name, bytes, saved).map(drop)
}

fn place(
    dir: &Path,
    name: &str,
    bytes: &[u8],
    saved: impl FnOnce(&File) -> io::Result<()>,
) -> Result<File, RunError> {
    let path = dir.join(name);
    let half = dir.join(format!(".half-{}.tmp", HALVES.fetch_add(1, Ordering::Relaxed)));
    let placed = || {
        let file = create(&half, bytes)?;
        saved(&file)?;
        fs::rename(&half, &path)?;
        Ok(file)
    };
    let placed = placed();
    if placed.is_err() && half.exists() {
        fs::remove_file(&half).map_err(RunError::io("remove", &half))?;
    }
    placed.map_err(RunError::io("write", &path))
}

/// Keeps bytes under their hash, at most `most` of them.
pub(super) fn keep(dir: &Path, bytes: &[u8], most: u64) -> Result<String, RunError> {
    let bytes = fitted(bytes, most);
    let id = sha256(&bytes);
    let name = format!("{FOLDER}/{id}");
    if !dir.join(&name).exists() {
        create_folder(&dir.join(FOLDER))?;
        put(dir, &name, &bytes)?;
    }
    Ok(id)
}

/// At most `most` bytes, and a word about the rest.
pub(super) fn fitted(bytes: &[u8], most: u64) -> Cow<'_, [u8]> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    match bytes.get(..most) {
        Some(front) if bytes.len() > most => {
            let note = format!("\n[... {} bytes left out]\n", bytes.len() - most);
            Cow::Owned([front, note.as_bytes()].concat())
        }
        _ => Cow::Borrowed(bytes),
    }
}

fn create(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// A text written as it comes, until it is known whether it is worth keeping.
#[derive(Debug)]
pub(crate) struct Spool {
    folder: PathBuf,
    path: PathBuf,
    most: u64,
    written: u64,
    cut: bool,
    sum: Sha256,
    file: Option<File>,
}

impl Spool {
    pub(super) fn new(dir: &Path, name: &str, most: u64) -> Spool {
        let folder = dir.join(FOLDER);
        let path = folder.join(format!(".{name}.tmp"));
        Spool { folder, path, most, written: 0, cut: false, sum: Sha256::new(), file: None }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), RunError> {
        let room = usize::try_from(self.most - self.written).unwrap_or(usize::MAX);
        let front = bytes.get(..room).unwrap_or(bytes);
        self.cut |= front.len() < bytes.len();
        if front.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                create_folder(&self.folder)?;
                let mut options = OpenOptions::new();
                let made = options.write(true).create_new(true).mode(0o600).open(&self.path);
                none.insert(made.map_err(RunError::io("create", &self.path))?)
            }
        };
        file.write_all(front).map_err(RunError::io("write", &self.path))?;
        self.sum.update(front);
        self.written += u64::try_from(front.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Makes it an artifact: its hash, and how many bytes it holds when it is not the whole text.
    pub(crate) fn keep(mut self) -> Result<(String, Option<u64>), RunError> {
        create_folder(&self.folder)?;
        let saved = match self.file.take() {
            // What a line will name must not be lost where the line is kept.
            Some(file) => file.sync_data(),
            // Nothing came: an artifact of nothing.
            None => create(&self.path, b"").map(drop),
        };
        saved.map_err(RunError::io("write", &self.path))?;
        let id = hex(&std::mem::take(&mut self.sum).finalize());
        let path = self.folder.join(&id);
        fs::rename(&self.path, &path).map_err(RunError::io("write", &path))?;
        Ok((id, self.cut.then_some(self.written)))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if self.file.take().is_some() && fs::remove_file(&self.path).is_err() {
            // It stays behind under a name that no reader takes for an artifact.
        }
    }
}
