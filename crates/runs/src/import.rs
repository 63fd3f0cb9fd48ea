//! The way of a source tree into a workspace: copied by descriptor, never through a link.
//!
//! Regular files and folders are copied (hard links become separate files, special bits are stripped and
//! noted). A link is made again when it is relative and surely stays inside; any other is left out and noted by
//! name. A FIFO, a socket or a device refuses the whole import: such a tree is not what its owner thinks it is.

mod checkout;
mod copy;
mod index;
mod pack;
mod seal;
mod walk;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use policy::Limits;

pub use checkout::History;
pub(crate) use checkout::Repository;
use copy::{Copying, Made};
pub(crate) use seal::{Ended, Seal};
use walk::Walk;

use crate::RunError;
use crate::archive::{Format, unpack};
use crate::beneath::Folder;
use crate::manifest::Manifest;

/// Folders inside folders; more is no source tree.
pub(crate) const DEEPEST: usize = 128;
pub(crate) const MOST_NOTES: usize = 1000;

/// Told files and bytes taken in so far; says whether to go on.
pub(crate) type Progress<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// What was taken in.
#[derive(Debug, Default)]
pub(crate) struct Imported {
    pub(crate) manifest: Manifest,
    pub(crate) notes: Vec<String>,
    pub(crate) bytes: u64,
    /// Where the originals are; paths of the manifest lead to them.
    pub(crate) source: Option<Folder>,
    /// Where an archive was unpacked: the originals are there.
    pub(crate) unpacked: Option<PathBuf>,
    /// What its git repository has become.
    pub(crate) repository: Option<Repository>,
    /// How long it took.
    pub(crate) took: Duration,
    /// By what each copy is known to be untouched; and when the import was over, where that proves anything.
    pub(crate) seals: BTreeMap<PathBuf, Seal>,
    pub(crate) ended: Option<Ended>,
}

/// Copies `source` (a folder, an archive, or one file) into the new folder `into`, which is gone again when that fails.
/// An archive is unpacked beside it first, and stays there: what the patch is made against.
pub(crate) fn import(
    source: Option<&Path>,
    into: &Path,
    store: &Path,
    limits: &Limits,
    owner: Option<(u32, u32)>,
    history: History,
    progress: Progress<'_>,
) -> Result<Imported, RunError> {
    let begun = Instant::now();
    let timed = |taken: Imported| Imported { took: begun.elapsed(), ..taken };
    let format = source.filter(|path| path.is_file()).and_then(Format::of);
    let (Some(archive), Some(format)) = (source, format) else {
        return made(into, || fill(source, into, Some(store), limits, owner, history, progress)).map(timed);
    };
    let originals = into.with_file_name("originals");
    made(&originals, || {
        let real = archive.canonicalize().map_err(|e| refuse(archive, &e))?;
        refuse_inside_store(&real, store)?;
        let file = std::fs::File::open(&real).map_err(|e| refuse(archive, &e))?;
        std::fs::set_permissions(&originals, PermissionsExt::from_mode(0o700))
            .map_err(RunError::io("close", &originals))?;
        let notes = unpack(archive, format, file, &originals, limits, progress)?;
        let mut taken = made(into, || fill(Some(&originals), into, None, limits, owner, history, progress))?;
        taken.notes.splice(0..0, notes);
        taken.unpacked = Some(originals.clone());
        Ok(timed(taken))
    })
}

/// Makes the folder for what `then` does, and removes it when that fails.
fn made<T>(folder: &Path, then: impl FnOnce() -> Result<T, RunError>) -> Result<T, RunError> {
    std::fs::create_dir(folder).map_err(RunError::io("create", folder))?;
    let done = then();
    if done.is_err() {
        std::fs::remove_dir_all(folder).map_err(RunError::io("remove", folder))?;
    }
    done
}

fn fill(
    source: Option<&Path>,
    into: &Path,
    store: Option<&Path>,
    limits: &Limits,
    owner: Option<(u32, u32)>,
    history: History,
    progress: Progress<'_>,
) -> Result<Imported, RunError> {
    let to = Folder::open(into).map_err(RunError::io("open", into))?;
    let like = to.metadata().map_err(RunError::io("read", into))?;
    let mut mode = 0o755;
    let mut taken = Imported::default();
    if let Some(given) = source {
        let real = given.canonicalize().map_err(|e| refuse(given, &e))?;
        if let Some(store) = store {
            refuse_inside_store(&real, store)?;
        }
        let meta = std::fs::metadata(&real).map_err(|e| refuse(given, &e))?;
        let (folder, name) = match (real.parent(), real.file_name()) {
            _ if meta.is_dir() => (real.as_path(), None),
            (Some(parent), Some(name)) => (parent, Some(name)),
            (_, _) => return Err(refusal(given, "it has no name")),
        };
        let from = Arc::new(Folder::open(folder).map_err(|e| refuse(given, &e))?);
        let stop = AtomicBool::new(false);
        let copying = Copying::new(limits.disk, owner, &stop);
        let root = Arc::new(Made {
            folder: to.folder(Path::new("")).map_err(RunError::io("open", into))?,
            like: None,
        });
        let mut walk = Walk {
            root: folder,
            limits,
            owner,
            history,
            fresh: false,
            progress,
            skip: store.map(|store| record_folders(store, &meta)).unwrap_or_default(),
            taken,
            files: 0,
            more_notes: 0,
            copying: &copying,
            stop: &stop,
            send: None,
            piece: Vec::new(),
        };
        let walked = match name {
            Some(name) => walk.entry(&from, &root, name, Path::new(""), 0),
            None => {
                mode = (meta.mode() & 0o777) | 0o700;
                walk.all(&from, &root)
            }
        };
        // What went wrong in a thread is why the walk was stopped.
        copying.first_failure().map_or(walked, Err)?;
        walk.collect_copied();
        if walk.fresh {
            walk.fresh_commit(&from, &root)?;
        }
        walk.tell()?;
        if walk.more_notes > 0 {
            walk.taken.notes.push(format!("and {} more", walk.more_notes));
        }
        taken = walk.taken;
        taken.bytes = copying.bytes();
        taken.source = Arc::into_inner(from);
    }
    to.settle(&like, mode, owner).map_err(RunError::io("set the mode of", into))?;
    taken.ended = Ended::now(&to);
    Ok(taken)
}

/// Reads any bytes as git's list of files.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn read_index(bytes: &[u8]) {
    drop(index::Known::read(bytes));
}

fn refuse_inside_store(real: &Path, store: &Path) -> Result<(), RunError> {
    match store.canonicalize() {
        Ok(store) if real.starts_with(&store) => {
            Err(refusal(real, "it lies in the folder of the runs itself"))
        }
        _ => Ok(()),
    }
}

/// Identities of the folders of the records, which are never taken in: the store, and the folder `data` around
/// `data/runs` unless that is the source itself.
fn record_folders(store: &Path, source: &Metadata) -> Vec<(u64, u64)> {
    let Ok(store) = store.canonicalize() else { return Vec::new() };
    let around = store.parent().filter(|_| store.file_name() == Some(OsStr::new("runs")));
    let same = (source.dev(), source.ino());
    [Some(store.as_path()), around]
        .into_iter()
        .flatten()
        .filter_map(|p| std::fs::metadata(p).ok())
        .map(|m| (m.dev(), m.ino()))
        .filter(|id| *id != same)
        .collect()
}

fn refuse(path: &Path, e: &io::Error) -> RunError {
    match e.kind() {
        // Nothing is wrong with the source: there is no room for its copy.
        kind @ (ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem) => {
            RunError::Io { doing: "write the copy of", path: path.to_owned(), source: kind.into() }
        }
        _ => refusal(path, &e.to_string()),
    }
}

pub(crate) fn refusal(path: &Path, reason: &str) -> RunError {
    RunError::Import { path: path.to_owned(), reason: reason.to_owned() }
}
