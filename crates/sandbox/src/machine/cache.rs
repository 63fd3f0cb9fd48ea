//! Files that are made once and kept, and those of one machine.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use sha2::{Digest, Sha256};

use crate::launch::owns_ids;
use crate::{Host, sys};

const MACHINE: &str = "machine";
/// How the folder of one machine is called.
const RUN: &str = "run-";
/// A wait for the lock that is longer is told.
const SHORT: Duration = Duration::from_secs(2);

/// The folder of what machines are made from.
pub(super) fn folder(host: &Host) -> io::Result<PathBuf> {
    let top = top(host).ok_or_else(|| io::Error::other("this user has no home to keep a cache in"))?;
    let folder = top.join(MACHINE);
    fs::create_dir_all(&folder)
        .and_then(|()| close(&folder))
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", folder.display())))?;
    fs::canonicalize(folder)
}

/// What lies here is started as a kernel: nobody else may have written it. Nor may others come in: monitors have what
/// they need attached in their walls.
fn close(folder: &Path) -> io::Result<()> {
    let opened = rustix::fs::open(folder, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let opened = fs::File::from(opened);
    let meta = opened.metadata()?;
    if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
        return Err(io::Error::other("it can be written by others"));
    }
    if meta.mode() & 0o077 == 0 { Ok(()) } else { opened.set_permissions(fs::Permissions::from_mode(0o700)) }
}

/// Where this executor keeps things: where it was told to, or the usual place of this user.
pub(super) fn top(host: &Host) -> Option<PathBuf> {
    host.kept_in().or_else(usual)
}

fn usual() -> Option<PathBuf> {
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
    stamp_of(path, fs::symlink_metadata(path).ok().as_ref())
}

/// The same of one that was looked at. When its content was changed anybody can set, but not when that was set.
pub(super) fn stamp_of(path: &Path, known: Option<&fs::Metadata>) -> String {
    let Some(m) = known else { return format!("{} -\n", path.display()) };
    let when = format!("{}.{} {}.{}", m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
    format!("{} {:o} {} {when} {}:{}\n", path.display(), m.mode(), m.size(), m.dev(), m.ino())
}

/// Remembers a word under a name, whole or not at all. What is not remembered is only found out again.
pub(super) fn remember(cache: &Path, path: &Path, word: &str) {
    let Ok(scratch) = Scratch::new(cache) else { return };
    let early = scratch.path().join("word");
    if fs::write(&early, word).is_ok() {
        fs::rename(&early, path).ok();
    }
}

/// The right to make something large, held until it is dropped or this process ends. Whoever may open the lock can
/// hold it, and so only this user may.
pub(super) async fn alone(cache: &Path, tell: impl Fn(&str), bound: Duration) -> io::Result<fs::File> {
    let path = cache.join("lock");
    let (began, mut told) = (Instant::now(), false);
    loop {
        let file = lock_of(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, &path) => return Ok(file),
            // Somebody put another in its place.
            Ok(()) => continue,
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(e) => return Err(e.into()),
        }
        // First, so that a wait which was held up is told as well.
        if !told && began.elapsed() >= SHORT {
            told = true;
            tell(&format!("waiting for another process, which has locked {}", path.display()));
        }
        if began.elapsed() >= bound {
            let held = format!(
                "another process of this user has held {} for {} s: end it, or remove that file",
                path.display(),
                bound.as_secs()
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, held));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The lock, which no one else can open. One that others could is replaced: they may have it open yet.
fn lock_of(path: &Path) -> io::Result<fs::File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = || rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map(fs::File::from);
    let file = open()?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("{} is no file of this user", path.display())));
    }
    if meta.mode() & 0o077 == 0 {
        return Ok(file);
    }
    fs::remove_file(path)?;
    Ok(open()?)
}

/// Whether this is what has that name.
fn is_at(file: &fs::File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (ours.dev(), ours.ino()) == (there.dev(), there.ino())
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

/// Files of one machine; gone with this value. When the executor is killed its forker removes them, and when that is
/// killed too, the next start.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    /// The folder itself, locked: nobody takes it for a leftover, whatever process ids they can see.
    _lock: fs::File,
}

impl Scratch {
    pub(super) fn new(cache: &Path) -> io::Result<Scratch> {
        sweep(cache);
        Scratch::named(cache, sys::unforeseen)
    }

    /// Under the first name that nobody else has: executors that cannot see each other may use one cache.
    fn named(cache: &Path, mut name: impl FnMut() -> io::Result<String>) -> io::Result<Scratch> {
        const TRIES: u32 = 64;
        for _ in 0..TRIES {
            let path = cache.join(format!("{RUN}{}", name()?));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(e),
            }
            // Before it is locked another start may take it for a leftover.
            if let Some(lock) = unheld(&path).filter(|lock| is_at(lock, &path)) {
                return Ok(Scratch { path, _lock: lock });
            }
        }
        Err(io::Error::other(format!("no name for a folder in {} is free", cache.display())))
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

/// A folder that nobody held, locked.
fn unheld(folder: &Path) -> Option<fs::File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = fs::File::from(rustix::fs::open(folder, flags, Mode::empty()).ok()?);
    flock(&folder, FlockOperation::NonBlockingLockExclusive).ok().map(|()| folder)
}

/// Removes what killed executors left in the place that was told, or the usual one.
pub(crate) fn sweep_all(told: Option<&Path>) {
    let Some(top) = told.map(Path::to_path_buf).or_else(usual) else { return };
    let folder = top.join(MACHINE);
    // Not where others could lay what is removed.
    if close(&folder).is_ok() {
        sweep(&folder);
    }
}

/// Removes what killed executors left.
fn sweep(cache: &Path) {
    let Ok(dir) = fs::read_dir(cache) else { return };
    for entry in dir.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(RUN)) {
        if let Some(_lock) = unheld(&entry.path()) {
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

    /// In two containers on one cache every process id comes twice, and so does every name that is made of one.
    #[test]
    fn two_that_take_one_name_have_two_folders() {
        let cache = tempfile::tempdir().unwrap();
        let name = |names: &'static [&'static str]| {
            let mut names = names.iter();
            move || Ok((*names.next().unwrap()).to_owned())
        };
        let one = Scratch::named(cache.path(), name(&["7-0"])).unwrap();
        let other = Scratch::named(cache.path(), name(&["7-0", "7-0", "7-1"])).unwrap();
        assert_ne!(one.path(), other.path());
        assert!(is_at(&one._lock, one.path()) && is_at(&other._lock, other.path()));
        Scratch::named(cache.path(), || Ok("7-0".to_owned())).unwrap_err();
    }

    /// Between its making and its lock a folder looks like a leftover.
    #[test]
    fn a_folder_that_another_start_takes_for_a_leftover_is_given_up_for_another() {
        let cache = tempfile::tempdir().unwrap();
        let mut sweeper = None;
        let mut names = 0;
        let made = Scratch::named(cache.path(), || {
            names += 1;
            // The name is out: whoever makes a folder of it here is quicker.
            if names == 1 {
                fs::create_dir(cache.path().join("run-1")).unwrap();
                sweeper = unheld(&cache.path().join("run-1"));
            }
            Ok(names.to_string())
        });
        assert!(sweeper.is_some());
        assert_eq!(made.unwrap().path(), cache.path().join("run-2"));
    }

    fn wait_for_lock(cache: &Path, bound: Duration) -> (io::Result<fs::File>, Vec<String>) {
        let told = std::cell::RefCell::new(Vec::new());
        let tell = |what: &str| told.borrow_mut().push(what.to_owned());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let got = runtime.block_on(alone(cache, tell, bound));
        (got, told.into_inner())
    }

    /// Whoever may read a file may lock it: a lock that others can open is theirs to hold for good.
    #[test]
    fn nobody_else_can_hold_the_lock() {
        let cache = tempfile::tempdir().unwrap();
        let path = cache.path().join("lock");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        // Opened and held by another while that could be done.
        let theirs = fs::File::open(&path).unwrap();
        flock(&theirs, FlockOperation::NonBlockingLockExclusive).unwrap();
        let (ours, told) = wait_for_lock(cache.path(), Duration::from_secs(5));
        assert_eq!(ours.unwrap().metadata().unwrap().mode() & 0o777, 0o600);
        assert!(told.is_empty(), "{told:?}");
    }

    #[test]
    fn a_lock_that_is_held_costs_a_bounded_wait_which_is_told() {
        let cache = tempfile::tempdir().unwrap();
        let held = wait_for_lock(cache.path(), Duration::ZERO).0.unwrap();
        let (refused, told) = wait_for_lock(cache.path(), SHORT + Duration::from_millis(300));
        let refused = refused.unwrap_err().to_string();
        let lock = cache.path().join("lock").display().to_string();
        assert!(refused.contains(&lock) && told.len() == 1 && told[0].contains(&lock), "{refused} {told:?}");
        drop(held);
        wait_for_lock(cache.path(), Duration::ZERO).0.unwrap();
    }

    #[test]
    fn a_lock_is_not_looked_for_behind_a_link() {
        let cache = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(cache.path().join("elsewhere"), cache.path().join("lock")).unwrap();
        wait_for_lock(cache.path(), Duration::ZERO).0.unwrap_err();
        assert!(!cache.path().join("elsewhere").exists());
    }

    #[test]
    fn the_folder_is_closed_to_others_and_one_that_they_could_write_is_refused() {
        let cache = tempfile::tempdir().unwrap();
        let mode = |mode| fs::set_permissions(cache.path(), fs::Permissions::from_mode(mode)).unwrap();
        mode(0o755);
        close(cache.path()).unwrap();
        assert_eq!(fs::metadata(cache.path()).unwrap().mode() & 0o777, 0o700);
        mode(0o775);
        close(cache.path()).unwrap_err();
    }
}
