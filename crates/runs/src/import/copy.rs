//! Files copied by several threads while the walk goes on: what one costs is mostly the kernel's work.
//!
//! The walk decides, names and counts; here is only opened, copied, hashed and settled. A folder gets its time when
//! the last of its files is there.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope};

use sha2::{Digest, Sha256};

use super::seal::Seal;
use super::{refusal, refuse};
use crate::RunError;
use crate::beneath::{Folder, settle};
use crate::manifest::{Item, Kind, hex};

/// Files that are handed over together.
const BATCH: usize = 32;
/// Threads that are worth it.
const MOST_THREADS: usize = 4;
const PIECE: usize = 256 << 10;

/// A new folder. It is settled when nothing more is put into it.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) folder: Folder,
    /// What it was like, and its new mode; none for one that somebody else settles.
    pub(super) like: Option<(Metadata, u32)>,
}

/// Files of one folder.
pub(super) struct Batch {
    pub(super) from: Arc<Folder>,
    pub(super) to: Arc<Made>,
    pub(super) path: PathBuf,
    pub(super) files: Vec<OsString>,
}

impl Batch {
    /// Whether it is worth handing over.
    pub(super) fn is_full(&self) -> bool {
        self.files.len() >= BATCH
    }
}

/// What all threads share.
pub(super) struct Copying<'a> {
    disk: u64,
    owner: Option<(u32, u32)>,
    bytes: AtomicU64,
    /// Whether contents can be shared between two files there; asked until the answer is no.
    shares: AtomicBool,
    /// Whether somebody wants an end.
    stop: &'a AtomicBool,
    failed: Mutex<Option<RunError>>,
    done: Mutex<Done>,
}

/// What came of it.
#[derive(Default)]
pub(super) struct Done {
    pub(super) files: Vec<(PathBuf, Item, Seal)>,
    /// Files that had special bits.
    pub(super) special: Vec<PathBuf>,
}

impl<'a> Copying<'a> {
    pub(super) fn new(disk: u64, owner: Option<(u32, u32)>, stop: &'a AtomicBool) -> Copying<'a> {
        Copying {
            disk,
            owner,
            bytes: AtomicU64::new(0),
            shares: AtomicBool::new(true),
            stop,
            failed: Mutex::new(None),
            done: Mutex::new(Done::default()),
        }
    }

    /// Threads that copy what they are sent, until the sender is gone; none when there can be none.
    pub(super) fn start<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        root: &'env Path,
    ) -> Option<SyncSender<Batch>> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        let (send, receive) = sync_channel::<Batch>(2 * threads);
        let receive = Arc::new(Mutex::new(receive));
        let mut started = 0;
        for _ in 0..threads {
            let receive = Arc::clone(&receive);
            let work = move || self.work(&receive, root);
            started += usize::from(Builder::new().spawn_scoped(scope, work).is_ok());
        }
        (started > 0).then_some(send)
    }

    fn work(&self, receive: &Mutex<Receiver<Batch>>, root: &Path) {
        let mut piece = Vec::new();
        loop {
            let next = receive.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(batch) = next else { return };
            // What was sent is taken, so that the sender does not wait for ever.
            if !self.stop.load(Ordering::Relaxed) {
                self.batch(batch, root, &mut piece);
            }
        }
    }

    /// Copies some files; what goes wrong ends everything.
    pub(super) fn batch(&self, batch: Batch, root: &Path, piece: &mut Vec<u8>) {
        let Batch { from, to, path, files } = batch;
        let mut done = Done::default();
        for name in files {
            let path = path.join(&name);
            match self.file(&from, &to.folder, &name, piece) {
                Ok((item, seal, special)) => {
                    done.special.extend(special.then(|| path.clone()));
                    done.files.push((path, item, seal));
                }
                Err(why) => return self.fail(why.told(&root.join(path), self.disk)),
            }
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
        }
        let mut all = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        all.files.append(&mut done.files);
        all.special.append(&mut done.special);
        drop(all);
        if let Err(e) = self.release(to) {
            self.fail(refuse(&root.join(path), &e));
        }
    }

    /// Lets go of a folder; whoever is the last settles it.
    pub(super) fn release(&self, made: Arc<Made>) -> io::Result<()> {
        match Arc::into_inner(made) {
            Some(Made { folder, like: Some((like, mode)) }) => folder.settle(&like, mode, self.owner),
            Some(Made { like: None, .. }) | None => Ok(()),
        }
    }

    fn fail(&self, e: RunError) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Room for more bytes, taken; false when there is none.
    pub(super) fn take(&self, size: u64) -> bool {
        let add = |bytes: u64| bytes.checked_add(size).filter(|sum| *sum <= self.disk);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// Why it was stopped, if something went wrong.
    pub(super) fn first_failure(&self) -> Option<RunError> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// All that was done.
    pub(super) fn done(&self) -> Done {
        std::mem::take(&mut self.done.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn file(
        &self,
        from: &Folder,
        to: &Folder,
        name: &OsStr,
        piece: &mut Vec<u8>,
    ) -> Result<(Item, Seal, bool), Why> {
        let (mut source, meta) = from.file_and_metadata(Path::new(name))?;
        if !self.take(meta.len()) {
            return Err(Why::TooBig);
        }
        let mut copy = to.create(name, 0o600)?;
        let (size, sha256) = self.content(&mut source, &mut copy, meta.len(), piece)?;
        // One that became shorter meanwhile is as long as it is.
        self.bytes.fetch_sub(meta.len().saturating_sub(size), Ordering::Relaxed);
        let mode = meta.mode() & 0o777;
        settle(&copy, &meta, mode, self.owner)?;
        let seal = Seal::of(&copy.metadata()?);
        Ok((Item { kind: Kind::File { size, sha256 }, mode }, seal, meta.mode() & 0o7000 != 0))
    }

    /// Size and digest of what was copied: what was there when it was opened, and no more.
    fn content(
        &self,
        from: &mut File,
        to: &mut File,
        length: u64,
        piece: &mut Vec<u8>,
    ) -> io::Result<(u64, String)> {
        let shared = length > 0 && self.shares.load(Ordering::Relaxed) && {
            let shared = rustix::fs::ioctl_ficlone(&*to, &*from).is_ok();
            if !shared {
                self.shares.store(false, Ordering::Relaxed);
            }
            shared
        };
        piece.resize(PIECE, 0);
        let (mut sum, mut size, mut hole) = (Sha256::new(), 0u64, false);
        while size < length {
            let most = usize::try_from(length - size).unwrap_or(PIECE).min(PIECE);
            let room = piece.get_mut(..most).unwrap_or_default();
            let n = if shared { to.read(room)? } else { from.read(room)? };
            let Some(bytes) = piece.get(..n).filter(|b| !b.is_empty()) else { break };
            size += u64::try_from(n).unwrap_or(u64::MAX);
            sum.update(bytes);
            if shared {
                continue;
            }
            // Holes stay holes.
            hole = bytes.iter().all(|b| *b == 0);
            if hole {
                to.seek(SeekFrom::Start(size))?;
            } else {
                to.write_all(bytes)?;
            }
        }
        if hole || shared {
            to.set_len(size)?;
        }
        Ok((size, hex(&sum.finalize())))
    }
}

/// Why a file was not copied.
enum Why {
    TooBig,
    Io(io::Error),
}

impl From<io::Error> for Why {
    fn from(e: io::Error) -> Why {
        Why::Io(e)
    }
}

impl Why {
    fn told(self, path: &Path, disk: u64) -> RunError {
        match self {
            Why::TooBig => refusal(path, &too_big(disk)),
            Why::Io(e) => refuse(path, &e),
        }
    }
}

/// That there is no room.
pub(super) fn too_big(disk: u64) -> String {
    format!("more than {disk} bytes in all (`limits.disk`)")
}
