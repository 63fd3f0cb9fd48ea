//! The way of a source tree into a workspace: copied by descriptor, never through a link.
//!
//! Regular files and folders are copied (hard links become separate files, special bits are stripped and
//! noted). A link is made again when it is relative and surely stays inside; any other is left out and noted by
//! name. A FIFO, a socket or a device refuses the whole import: such a tree is not what its owner thinks it is.

mod checkout;
mod index;
mod pack;

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use policy::Limits;
use sha2::{Digest, Sha256};

pub use checkout::History;
pub(crate) use checkout::Repository;

use crate::RunError;
use crate::archive::{Format, unpack};
use crate::beneath::{Folder, settle};
use crate::manifest::{Item, Kind, Manifest, hex, link_leaves};
use crate::quote::in_text;

/// Folders inside folders; more is no source tree.
pub(crate) const DEEPEST: usize = 128;
pub(crate) const MOST_NOTES: usize = 1000;

/// Told files and bytes taken in so far; says whether to go on.
pub(crate) type Progress<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// What was taken in.
#[derive(Debug)]
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
    let format = source.filter(|path| path.is_file()).and_then(Format::of);
    let (Some(archive), Some(format)) = (source, format) else {
        return made(into, || fill(source, into, Some(store), limits, owner, history, progress));
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
        Ok(taken)
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
    let mut walk = Walk {
        root: PathBuf::new(),
        limits,
        owner,
        history,
        fresh: false,
        progress,
        skip: Vec::new(),
        taken: Imported {
            manifest: Manifest::new(),
            notes: Vec::new(),
            bytes: 0,
            source: None,
            unpacked: None,
            repository: None,
        },
        files: 0,
        more_notes: 0,
    };
    let mut mode = 0o755;
    if let Some(given) = source {
        let real = given.canonicalize().map_err(|e| refuse(given, &e))?;
        if let Some(store) = store {
            refuse_inside_store(&real, store)?;
        }
        let meta = std::fs::metadata(&real).map_err(|e| refuse(given, &e))?;
        if meta.is_dir() {
            walk.root.clone_from(&real);
            let from = Folder::open(&real).map_err(|e| refuse(given, &e))?;
            walk.skip = store.map(|store| record_folders(store, &meta)).unwrap_or_default();
            walk.refuse_bare(&from)?;
            walk.folder(&from, &to, Path::new(""), 0)?;
            if walk.fresh {
                walk.fresh_commit(&from, &to)?;
            }
            mode = (meta.mode() & 0o777) | 0o700;
            walk.taken.source = Some(from);
        } else {
            let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
                return Err(refusal(given, "it has no name"));
            };
            walk.root = parent.to_owned();
            let from = Folder::open(parent).map_err(|e| refuse(given, &e))?;
            walk.entry(&from, &to, name, Path::new(name), 0)?;
            walk.taken.source = Some(from);
        }
    }
    to.settle(&like, mode, owner).map_err(RunError::io("set the mode of", into))?;
    if walk.more_notes > 0 {
        walk.taken.notes.push(format!("and {} more", walk.more_notes));
    }
    Ok(walk.taken)
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

struct Walk<'a> {
    /// Only for messages.
    root: PathBuf,
    limits: &'a Limits,
    owner: Option<(u32, u32)>,
    history: History,
    /// Whether there is a repository of which a fresh commit is to be made.
    fresh: bool,
    progress: Progress<'a>,
    skip: Vec<(u64, u64)>,
    taken: Imported,
    files: u64,
    more_notes: u64,
}

impl Walk<'_> {
    fn folder(&mut self, from: &Folder, to: &Folder, path: &Path, depth: usize) -> Result<(), RunError> {
        if depth > DEEPEST {
            return Err(self.refusal(path, &format!("folders are nested deeper than {DEEPEST}")));
        }
        let most = usize::try_from(self.limits.files).unwrap_or(usize::MAX);
        let (names, more) = from.names(most).map_err(|e| self.refuse(path, &e))?;
        if more {
            return Err(self.too_many(path));
        }
        for name in names {
            self.entry(from, to, &name, &path.join(&name), depth)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        from: &Folder,
        to: &Folder,
        name: &OsStr,
        path: &Path,
        depth: usize,
    ) -> Result<(), RunError> {
        if name == ".git" {
            return self.repository(from, to, path);
        }
        let meta = from.look(name).map_err(|e| self.refuse(path, &e))?;
        let kind = meta.file_type();
        if kind.is_dir() && self.skip.contains(&(meta.dev(), meta.ino())) {
            self.note(path, "left out: the folder of the records");
            return Ok(());
        }
        if self.files >= self.limits.files {
            return Err(self.too_many(path));
        }
        if kind.is_file() {
            self.file(from, to, name, path, &meta)?;
        } else if kind.is_dir() {
            let mode = (meta.mode() & 0o777) | 0o700;
            let inner = from.folder(Path::new(name)).map_err(|e| self.refuse(path, &e))?;
            let made = to.create_folder(name).map_err(|e| self.refuse(path, &e))?;
            self.taken.manifest.insert(path.to_owned(), Item { kind: Kind::Folder, mode });
            self.files += 1;
            self.folder(&inner, &made, path, depth + 1)?;
            made.settle(&meta, mode, self.owner).map_err(|e| self.refuse(path, &e))?;
        } else if kind.is_symlink() {
            self.link(from, to, name, path)?;
        } else {
            let what = match kind {
                k if k.is_fifo() => "a FIFO",
                k if k.is_socket() => "a socket",
                k if k.is_block_device() || k.is_char_device() => "a device",
                _ => "a special file",
            };
            let reason = format!("it is {what}; only files, folders and links are taken in: remove it first");
            return Err(self.refusal(path, &reason));
        }
        if !(self.progress)(self.files, self.taken.bytes) {
            return Err(RunError::Cancelled);
        }
        Ok(())
    }

    fn link(&mut self, from: &Folder, to: &Folder, name: &OsStr, path: &Path) -> Result<(), RunError> {
        let target = from.target(name).map_err(|e| self.refuse(path, &e))?;
        let parent = path.parent().unwrap_or(Path::new(""));
        if let Some(why) = link_leaves(parent, Path::new(&target)) {
            self.note(path, &format!("left out: {why}"));
            return Ok(());
        }
        to.create_link(name, &target, self.owner).map_err(|e| self.refuse(path, &e))?;
        self.files += 1;
        self.taken.manifest.insert(path.to_owned(), Item { kind: Kind::Link { target }, mode: 0o777 });
        Ok(())
    }

    fn file(
        &mut self,
        from: &Folder,
        to: &Folder,
        name: &OsStr,
        path: &Path,
        seen: &Metadata,
    ) -> Result<(), RunError> {
        let room = self.limits.disk.saturating_sub(self.taken.bytes);
        if seen.len() > room {
            return Err(self.too_big(path));
        }
        let mut source = from.file(Path::new(name)).map_err(|e| self.refuse(path, &e))?;
        let meta = source.metadata().map_err(|e| self.refuse(path, &e))?;
        if (meta.dev(), meta.ino()) != (seen.dev(), seen.ino()) {
            return Err(self.refusal(path, "it was exchanged while it was read"));
        }
        let mut copy = to.create(name, 0o600).map_err(|e| self.refuse(path, &e))?;
        let (size, sha256) = match copy_content(&mut source, &mut copy, room) {
            Ok(Some(done)) => done,
            Ok(None) => return Err(self.too_big(path)),
            Err(e) => return Err(self.refuse(path, &e)),
        };
        let mode = meta.mode() & 0o777;
        if meta.mode() & 0o7000 != 0 {
            self.note(path, "taken in without its setuid, setgid or sticky bit");
        }
        settle(&copy, &meta, mode, self.owner).map_err(|e| self.refuse(path, &e))?;
        self.files += 1;
        self.taken.bytes += size;
        self.taken.manifest.insert(path.to_owned(), Item { kind: Kind::File { size, sha256 }, mode });
        Ok(())
    }

    fn note(&mut self, path: &Path, what: &str) {
        if self.taken.notes.len() < MOST_NOTES {
            self.taken.notes.push(format!("{}: {what}", in_text(path)));
        } else {
            self.more_notes += 1;
        }
    }

    fn too_many(&self, path: &Path) -> RunError {
        self.refusal(path, &format!("more than {} files in all (`limits.files`)", self.limits.files))
    }

    fn too_big(&self, path: &Path) -> RunError {
        self.refusal(path, &format!("more than {} bytes in all (`limits.disk`)", self.limits.disk))
    }

    fn refuse(&self, path: &Path, e: &io::Error) -> RunError {
        refuse(&self.root.join(path), e)
    }

    fn refusal(&self, path: &Path, reason: &str) -> RunError {
        refusal(&self.root.join(path), reason)
    }
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

/// Size and digest of what was copied; none when it is more than `room`.
fn copy_content(from: &mut File, to: &mut File, room: u64) -> io::Result<Option<(u64, String)>> {
    let shared = rustix::fs::ioctl_ficlone(&*to, &*from).is_ok();
    let mut sum = Sha256::new();
    let mut size = 0u64;
    let mut piece = vec![0u8; 256 * 1024];
    loop {
        let n = if shared { to.read(&mut piece)? } else { from.read(&mut piece)? };
        let Some(bytes) = piece.get(..n).filter(|b| !b.is_empty()) else { break };
        size += u64::try_from(n).unwrap_or(u64::MAX);
        if size > room {
            return Ok(None);
        }
        sum.update(bytes);
        if !shared {
            // Holes stay holes.
            if bytes.iter().all(|b| *b == 0) {
                to.seek(SeekFrom::Start(size))?;
            } else {
                to.write_all(bytes)?;
            }
        }
    }
    to.set_len(size)?;
    Ok(Some((size, hex(&sum.finalize()))))
}
