//! The walk: what of a source comes in, in the order of names.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use policy::Limits;
use rustix::fs::FileType;

use super::copy::{Batch, Copying, Done, Made, too_big};
use super::{DEEPEST, History, Imported, MOST_NOTES, Progress, refusal, refuse};
use crate::RunError;
use crate::beneath::Folder;
use crate::manifest::{Item, Kind, link_leaves};
use crate::quote::in_text;

/// A walk through a source.
pub(super) struct Walk<'a> {
    /// Only for messages.
    pub(super) root: &'a Path,
    pub(super) limits: &'a Limits,
    pub(super) owner: Option<(u32, u32)>,
    pub(super) history: History,
    /// Whether there is a repository of which a fresh commit is to be made.
    pub(super) fresh: bool,
    pub(super) progress: Progress<'a>,
    pub(super) skip: Vec<(u64, u64)>,
    pub(super) taken: Imported,
    pub(super) files: u64,
    pub(super) more_notes: u64,
    pub(super) copying: &'a Copying<'a>,
    /// Set when something went wrong anywhere.
    pub(super) stop: &'a AtomicBool,
    /// To whoever copies; where there is nobody it is done on the way.
    pub(super) send: Option<SyncSender<Batch>>,
    pub(super) piece: Vec<u8>,
}

impl Walk<'_> {
    /// Everything in a folder, copied by threads of their own.
    pub(super) fn all(&mut self, from: &Arc<Folder>, to: &Arc<Made>) -> Result<(), RunError> {
        self.refuse_bare(from)?;
        let (copying, root) = (self.copying, self.root);
        std::thread::scope(|scope| {
            self.send = copying.start(scope, root);
            let walked = self.folder(from, to, Path::new(""), 0);
            // The threads end when nothing can be sent any more.
            self.send = None;
            walked
        })
    }

    /// What the threads did.
    pub(super) fn collect_copied(&mut self) {
        let Done { files, mut special } = self.copying.done();
        let (items, seals): (Vec<_>, Vec<_>) =
            files.into_iter().map(|(path, item, seal)| ((path.clone(), item), (path, seal))).unzip();
        self.taken.manifest.extend(items);
        self.taken.seals.extend(seals);
        special.sort();
        for path in special {
            self.note(&path, "taken in without its setuid, setgid or sticky bit");
        }
    }

    pub(super) fn folder(
        &mut self,
        from: &Arc<Folder>,
        to: &Arc<Made>,
        path: &Path,
        depth: usize,
    ) -> Result<(), RunError> {
        if depth > DEEPEST {
            return Err(self.refusal(path, &format!("folders are nested deeper than {DEEPEST}")));
        }
        let most = usize::try_from(self.limits.files).unwrap_or(usize::MAX);
        let (entries, more) = from.entries(most).map_err(|e| self.refuse(path, &e))?;
        if more {
            return Err(self.too_many(path));
        }
        let mut batch = self.batch(from, to, path);
        for (name, kind) in entries {
            self.one(from, to, (&name, kind), path, depth, &mut batch)?;
        }
        self.hand_over(batch);
        Ok(())
    }

    /// One entry by its name.
    pub(super) fn entry(
        &mut self,
        from: &Arc<Folder>,
        to: &Arc<Made>,
        name: &OsStr,
        parent: &Path,
        depth: usize,
    ) -> Result<(), RunError> {
        let mut batch = self.batch(from, to, parent);
        self.one(from, to, (name, FileType::Unknown), parent, depth, &mut batch)?;
        self.hand_over(batch);
        Ok(())
    }

    fn one(
        &mut self,
        from: &Arc<Folder>,
        to: &Arc<Made>,
        (name, kind): (&OsStr, FileType),
        parent: &Path,
        depth: usize,
        batch: &mut Batch,
    ) -> Result<(), RunError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(RunError::Cancelled);
        }
        let path = &parent.join(name);
        if name == ".git" {
            return self.repository(from, to, path);
        }
        let kind = match kind {
            FileType::Unknown => {
                let status = from.status(name).map_err(|e| self.refuse(path, &e))?;
                FileType::from_raw_mode(status.st_mode)
            }
            known => known,
        };
        match kind {
            FileType::RegularFile => {
                self.count(path)?;
                batch.files.push(name.to_owned());
                if batch.is_full() {
                    let next = self.batch(from, to, parent);
                    self.hand_over(std::mem::replace(batch, next));
                }
            }
            FileType::Directory => self.inner(from, to, name, path, depth)?,
            FileType::Symlink => self.link(from, &to.folder, name, path)?,
            other => {
                let what = match other {
                    FileType::Fifo => "a FIFO",
                    FileType::Socket => "a socket",
                    FileType::BlockDevice | FileType::CharacterDevice => "a device",
                    _ => "a special file",
                };
                let reason =
                    format!("it is {what}; only files, folders and links are taken in: remove it first");
                return Err(self.refusal(path, &reason));
            }
        }
        self.tell()
    }

    pub(super) fn tell(&self) -> Result<(), RunError> {
        if (self.progress)(self.files, self.copying.bytes()) {
            return Ok(());
        }
        self.stop.store(true, Ordering::Relaxed);
        Err(RunError::Cancelled)
    }

    fn inner(
        &mut self,
        from: &Folder,
        to: &Made,
        name: &OsStr,
        path: &Path,
        depth: usize,
    ) -> Result<(), RunError> {
        let inner = from.folder(Path::new(name)).map_err(|e| self.refuse(path, &e))?;
        let meta = inner.metadata().map_err(|e| self.refuse(path, &e))?;
        if self.skip.contains(&(meta.dev(), meta.ino())) {
            self.note(path, "left out: the folder of the records");
            return Ok(());
        }
        self.count(path)?;
        let mode = (meta.mode() & 0o777) | 0o700;
        let made = self.make(to, name, path, Some((meta, mode)))?;
        self.taken.manifest.insert(path.to_owned(), Item { kind: Kind::Folder, mode });
        self.folder(&Arc::new(inner), &made, path, depth + 1)?;
        self.copying.release(made).map_err(|e| self.refuse(path, &e))
    }

    pub(super) fn make(
        &self,
        to: &Made,
        name: &OsStr,
        path: &Path,
        like: Option<(Metadata, u32)>,
    ) -> Result<Arc<Made>, RunError> {
        let folder = to.folder.create_folder(name).map_err(|e| self.refuse(path, &e))?;
        Ok(Arc::new(Made { folder, like }))
    }

    fn batch(&self, from: &Arc<Folder>, to: &Arc<Made>, path: &Path) -> Batch {
        let files: Vec<OsString> = Vec::new();
        Batch { from: Arc::clone(from), to: Arc::clone(to), path: path.to_owned(), files }
    }

    /// Also an empty one: what it holds of a folder must be let go of by somebody who settles it.
    fn hand_over(&mut self, batch: Batch) {
        let unsent = match &self.send {
            Some(send) if !batch.files.is_empty() => send.send(batch).err().map(|e| e.0),
            Some(_) | None => Some(batch),
        };
        if let Some(batch) = unsent {
            self.copying.batch(batch, self.root, &mut self.piece);
        }
    }

    fn count(&mut self, path: &Path) -> Result<(), RunError> {
        if self.files >= self.limits.files {
            return Err(self.too_many(path));
        }
        self.files += 1;
        Ok(())
    }

    fn link(&mut self, from: &Folder, to: &Folder, name: &OsStr, path: &Path) -> Result<(), RunError> {
        let target = from.target(name).map_err(|e| self.refuse(path, &e))?;
        let parent = path.parent().unwrap_or(Path::new(""));
        if let Some(why) = link_leaves(parent, Path::new(&target)) {
            self.note(path, &format!("left out: {why}"));
            return Ok(());
        }
        self.count(path)?;
        to.create_link(name, &target, self.owner).map_err(|e| self.refuse(path, &e))?;
        self.taken.manifest.insert(path.to_owned(), Item { kind: Kind::Link { target }, mode: 0o777 });
        Ok(())
    }

    pub(super) fn note(&mut self, path: &Path, what: &str) {
        if self.taken.notes.len() < MOST_NOTES {
            self.taken.notes.push(format!("{}: {what}", in_text(path)));
        } else {
            self.more_notes += 1;
        }
    }

    pub(super) fn too_many(&self, path: &Path) -> RunError {
        self.refusal(path, &format!("more than {} files in all (`limits.files`)", self.limits.files))
    }

    pub(super) fn too_big(&self, path: &Path) -> RunError {
        self.refusal(path, &too_big(self.limits.disk))
    }

    pub(super) fn refuse(&self, path: &Path, e: &io::Error) -> RunError {
        refuse(&self.root.join(path), e)
    }

    pub(super) fn refusal(&self, path: &Path, reason: &str) -> RunError {
        refusal(&self.root.join(path), reason)
    }
}
