//! Files that are made once and kept, and those of one machine.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use sha2::{Digest, Sha256};

use crate::Host;
use crate::launch::owns_ids;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The folder of what machines are made from.
pub(super) fn folder(host: &Host) -> io::Result<PathBuf> {
    let top = top(host).ok_or_else(|| io::Error::other("this user has no home to keep a cache in"))?;
    let folder = top.join("machine");
    fs::create_dir_all(&folder)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", folder.display())))?;
    // What lies here is started as a kernel: nobody else may write it.
    let meta = fs::metadata(&folder)?;
    if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!("{} can be written by others", folder.display())));
    }
    fs::canonicalize(folder)
}

/// Where this executor keeps things: where it was told to, or the usual place of this user.
pub(super) fn top(host: &Host) -> Option<PathBuf> {
    if let Some(told) = host.kept_in() {
        return Some(told);
    }
    let id = rustix::process::geteuid();
    if id.is_root() {
        return Some(PathBuf::from("/var/cache/oubliette"));
    }
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let home = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.nth(2)?.parse::<u32>().ok()? == id.as_raw()).then(|| fields.nth(2))?
    })?;
    Some(PathBuf::from(home).join(".cache/oubliette")).filter(|p| p.is_absolute())
}

/// A short digest of everything that names a thing.
pub(super) fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(0).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect()
}

/// What tells one state of a file from another without reading it.
pub(super) fn stamp(path: &Path) -> String {
    match fs::symlink_metadata(path) {
        Ok(m) => {
            let when = format!("{}.{}", m.mtime(), m.mtime_nsec());
            format!("{} {:o} {} {when} {}:{}\n", path.display(), m.mode(), m.size(), m.dev(), m.ino())
        }
        Err(_) => format!("{} -\n", path.display()),
    }
}

/// Remembers a word under a name, whole or not at all. What is not remembered is only found out again.
pub(super) fn remember(cache: &Path, path: &Path, word: &str) {
    let Ok(scratch) = Scratch::new(cache) else { return };
    let early = scratch.path().join("word");
    if fs::write(&early, word).is_ok() {
        fs::rename(&early, path).ok();
    }
}

/// The right to make something large, held until it is dropped or this process ends.
pub(super) async fn alone(cache: &Path) -> io::Result<fs::File> {
    let file = fs::OpenOptions::new().create(true).write(true).truncate(false).open(cache.join("lock"))?;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(e) => return Err(e.into()),
        }
    }
}

/// Keeps the four files of a kind that were used last: they are large.
pub(super) fn forget_old(cache: &Path, prefix: &str, newest: &Path) {
    let mut images: Vec<_> = fs::read_dir(cache)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with(prefix) && e.path() != newest)
        .filter_map(|e| Some((e.metadata().ok()?.accessed().ok()?, e.path())))
        .collect();
    images.sort();
    let surplus = images.len().saturating_sub(3);
    for (_, path) in images.into_iter().take(surplus) {
        // One in use lives on until its machine ends.
        fs::remove_file(path).ok();
    }
}

/// Files of one machine; gone with this value, and with a later start when the executor was killed.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    /// The folder itself, locked: nobody takes it for a leftover, whatever process ids they can see.
    _lock: fs::File,
}

impl Scratch {
    pub(super) fn new(cache: &Path) -> io::Result<Scratch> {
        sweep(cache);
        let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // Found as a leftover only under its second name, when it is locked.
        let (early, path) = (cache.join(format!("new-{name}")), cache.join(format!("run-{name}")));
        fs::DirBuilder::new().mode(0o700).create(&early)?;
        let lock = fs::File::open(&early)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&early, &path)?;
        Ok(Scratch { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The drive that carries configuration in and results out.
    pub(super) fn exchange(&self) -> PathBuf {
        self.path.join("exchange")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover is removed by the next start.
        fs::remove_dir_all(&self.path).ok();
    }
}

/// Removes what killed executors left.
fn sweep(cache: &Path) {
    let Ok(dir) = fs::read_dir(cache) else { return };
    for entry in dir.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("run-")) {
        let Ok(folder) = fs::File::open(entry.path()) else { continue };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

/// Gives a file or a folder to the ids that will use it, where that is not the executor itself. Most are made in
/// sandboxes: a link in such a place would hand over what it points to, and a pipe would make us wait.
pub(super) fn give(path: &Path, id: u32, mode: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let made = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let kind = made.metadata()?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a folder"));
    }
    if owns_ids() {
        std::os::unix::fs::fchown(&made, Some(id), Some(id))?;
    }
    made.set_permissions(fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a tool left in its sandbox may be a link to a file of the host: nothing is handed over through one.
    #[test]
    fn only_what_was_made_is_handed_over() {
        let (cache, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (image, private) = (cache.path().join("image"), host.path().join("private"));
        fs::write(&private, "secret").unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&private, &image).unwrap();
        give(&image, 4711, 0o644).unwrap_err();
        let meta = fs::metadata(&private).unwrap();
        assert_eq!((meta.mode() & 0o777, meta.uid()), (0o600, rustix::process::geteuid().as_raw()));
        fs::remove_file(&image).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &image, Mode::RUSR | Mode::WUSR).unwrap();
        give(&image, 4711, 0o644).unwrap_err();
        fs::remove_file(&image).unwrap();
        fs::write(&image, "").unwrap();
        give(&image, 4711, 0o640).unwrap();
        assert_eq!(fs::metadata(&image).unwrap().mode() & 0o777, 0o640);
    }

    #[test]
    fn leftovers_of_the_dead_are_removed_and_files_of_the_living_are_not() {
        let cache = tempfile::tempdir().unwrap();
        let left = cache.path().join("run-1-0");
        fs::create_dir(&left).unwrap();
        let living = Scratch::new(cache.path()).unwrap();
        assert!(!left.exists());
        let other = Scratch::new(cache.path()).unwrap();
        assert!(living.path().exists());
        let path = other.path().to_path_buf();
        drop(other);
        assert!(!path.exists() && living.path().exists());
    }
}
