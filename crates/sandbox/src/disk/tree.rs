//! What a folder that a guest shapes takes on its disk.
//!
//! Folders are opened one below the other by descriptor, never through a link and never on another file system.
//! What is deep costs no more descriptors than [`OPEN`]: beyond that the way back is `..`, and a folder that is
//! not where it was ends the look. A look that could not see everything says so.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, chmodat, fstat, openat, statat};
use rustix::io::Errno;

use crate::disk::Till;

/// Folders held open at the same time.
const OPEN: usize = 64;
/// Bytes of names of folders that are still to be looked into.
const NAMES: usize = 16 << 20;

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes of allocated blocks: a hole takes nothing, a hard link counts once.
    pub(crate) bytes: u64,
    /// Bytes as sizes tell them, where that is less.
    pub(crate) sizes: u64,
    /// Names, those of folders and of hard links among them.
    pub(crate) files: u64,
}

/// The files whose bytes have been counted, by device and inode: one may have several names, be moved before a look
/// that goes on, or lose its name and be found once more by who holds it.
pub(crate) type Counted = BTreeSet<(u64, u64)>;

/// One look at one tree.
pub(crate) struct Look<'a> {
    pub(crate) taken: Taken,
    /// Nothing was left out.
    pub(crate) whole: bool,
    /// Entries after which it ends.
    most: u64,
    device: u64,
    counted: &'a mut Counted,
    till: &'a Till<'a>,
    names: usize,
}

/// A folder that is being looked into.
struct Frame {
    fd: Option<OwnedFd>,
    inode: u64,
    /// Folders in it that are still to be looked into.
    inner: Vec<CString>,
    lock: Option<Lock>,
}

/// A folder that its owner closed to himself, open as long as this lives: an ordinary user's executor has the
/// guest's own id, and no right beyond it.
struct Lock {
    way: String,
    _fd: OwnedFd,
    was: u32,
    set: u32,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Who changed it in between has the last word.
        if statat(CWD, &self.way, AtFlags::empty()).is_ok_and(|now| now.st_mode & 0o7777 == self.set) {
            chmodat(CWD, &self.way, Mode::from_raw_mode(self.was), AtFlags::empty()).ok();
        }
    }
}

impl<'a> Look<'a> {
    /// Counts all that is below `top`, which itself does not count; `most` entries at the most.
    pub(crate) fn at(
        top: BorrowedFd<'_>,
        most: u64,
        counted: &'a mut Counted,
        till: &'a Till<'a>,
    ) -> Look<'a> {
        let mut look =
            Look { taken: Taken::default(), whole: true, most, device: 0, counted, till, names: 0 };
        look.whole = look.walk(top).unwrap_or(false) && look.whole;
        look
    }

    /// Says whether it came to its end.
    fn walk(&mut self, top: BorrowedFd<'_>) -> Result<bool, Errno> {
        let first = openat(top, c".", FOLDER | OFlags::RDONLY, Mode::empty())?;
        let stat = fstat(&first)?;
        self.device = stat.st_dev;
        let mut frames = vec![self.list(first, stat.st_ino, None)?];
        loop {
            // What is closed needs a descriptor for as long as it is opened.
            let deep = frames.len() >= OPEN;
            let Some(frame) = frames.last_mut() else { break };
            if self.taken.files > self.most || self.names > NAMES || self.till.is_over() {
                return Ok(false);
            }
            let (Some(name), Some(fd)) = (frame.inner.pop(), &frame.fd) else {
                let Some(done) = frames.pop() else { break };
                let Some(parent) = frames.last_mut() else { break };
                if let (None, Some(fd)) = (&parent.fd, &done.fd) {
                    let back = openat(fd, c"..", FOLDER | OFlags::RDONLY, Mode::empty())?;
                    let stat = fstat(&back)?;
                    if (stat.st_dev, stat.st_ino) != (self.device, parent.inode) {
                        return Ok(false);
                    }
                    parent.fd = Some(back);
                }
                continue;
            };
            self.names = self.names.saturating_sub(name.as_bytes().len());
            let opened = match openat(fd, &name, FOLDER | OFlags::RDONLY, Mode::empty()) {
                Ok(inner) if searchable(&inner) => Ok((inner, None)),
                Ok(_) | Err(Errno::ACCESS) if !deep => {
                    unlock(fd, &name).map(|(inner, lock)| (inner, Some(lock)))
                }
                Ok(_) => Err(Errno::ACCESS),
                Err(e) => Err(e),
            };
            let (inner, lock) = match opened {
                Ok(opened) => opened,
                // It is gone, or something else by now: the next look sees what.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(_) => {
                    self.whole = false;
                    continue;
                }
            };
            let stat = fstat(&inner)?;
            if stat.st_dev != self.device {
                continue;
            }
            let frame = self.list(inner, stat.st_ino, lock)?;
            frames.push(frame);
            if let Some(far) = frames.len().checked_sub(OPEN + 1).and_then(|at| frames.get_mut(at))
                && far.lock.is_none()
            {
                far.fd = None;
            }
        }
        Ok(true)
    }

    /// Counts what is in a folder and keeps the names of the folders in it.
    fn list(&mut self, fd: OwnedFd, inode: u64, lock: Option<Lock>) -> Result<Frame, Errno> {
        let mut inner = Vec::new();
        let mut dir = Dir::new(openat(&fd, c".", FOLDER | OFlags::RDONLY, Mode::empty())?)?;
        while let Some(entry) = dir.read() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let stat = match statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(_) => {
                    self.whole = false;
                    continue;
                }
            };
            self.count(&stat);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                self.names += name.to_bytes().len();
                inner.push(name.to_owned());
            }
            if self.taken.files > self.most || self.names > NAMES || self.till.is_over() {
                self.whole = false;
                break;
            }
        }
        Ok(Frame { fd: Some(fd), inode, inner, lock })
    }

    fn count(&mut self, stat: &Stat) {
        let folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        // Every name is one, though its bytes are another's too.
        self.taken.files += 1;
        if !folder && !self.counted.insert((stat.st_dev, stat.st_ino)) {
            return;
        }
        let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
        self.taken.bytes = self.taken.bytes.saturating_add(bytes);
        let size = if folder { 0 } else { u64::try_from(stat.st_size).unwrap_or(0) };
        self.taken.sizes = self.taken.sizes.saturating_add(bytes.min(size));
    }
}

/// Whether names in it can be looked at, which is another right than to list them.
fn searchable(fd: &OwnedFd) -> bool {
    statat(fd, c".", AtFlags::empty()).is_ok()
}

/// Opens a folder of our own that is closed to us.
fn unlock(parent: &OwnedFd, name: &CString) -> Result<(OwnedFd, Lock), Errno> {
    let fd = openat(parent, name, FOLDER | OFlags::PATH, Mode::empty())?;
    let was = fstat(&fd)?.st_mode & 0o7777;
    let set = was | 0o500;
    let way = format!("/proc/self/fd/{}", fd.as_raw_fd());
    chmodat(CWD, &way, Mode::from_raw_mode(set), AtFlags::empty())?;
    let lock = Lock { way, was, set, _fd: fd };
    let opened = openat(&lock._fd, c".", FOLDER | OFlags::RDONLY, Mode::empty())?;
    Ok((opened, lock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn look(top: &Path, most: u64) -> (Taken, bool) {
        let fd = fs::File::open(top).unwrap();
        let stop = AtomicBool::new(false);
        let mut counted = Counted::new();
        let till = Till::some_time(&stop);
        let look = Look::at(fd.as_fd(), most, &mut counted, &till);
        (look.taken, look.whole)
    }

    #[test]
    fn holes_take_nothing_and_the_bytes_of_hard_links_count_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::File::create(dir.path().join("hole")).unwrap().set_len(1 << 30).unwrap();
        fs::write(dir.path().join("real"), vec![7; 1 << 20]).unwrap();
        fs::hard_link(dir.path().join("real"), dir.path().join("again")).unwrap();
        let (taken, whole) = look(dir.path(), 100);
        assert!(whole);
        assert_eq!(taken.files, 3);
        assert!((1 << 20..2 << 20).contains(&taken.bytes), "{taken:?}");
    }

    #[test]
    fn nothing_is_counted_through_a_link() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("big"), vec![7; 1 << 20]).unwrap();
        symlink(outside.path(), dir.path().join("out")).unwrap();
        symlink(outside.path().join("big"), dir.path().join("file")).unwrap();
        let (taken, whole) = look(dir.path(), 100);
        assert!(whole && taken.files == 2 && taken.bytes < 1 << 16, "{taken:?}");
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_counted_with_few_descriptors() {
        let dir = tempfile::tempdir().unwrap();
        let mut at = OwnedFd::from(fs::File::open(dir.path()).unwrap());
        for _ in 0..5000 {
            rustix::fs::mkdirat(&at, "a-folder", Mode::from_raw_mode(0o700)).unwrap();
            at = openat(&at, "a-folder", FOLDER | OFlags::RDONLY, Mode::empty()).unwrap();
        }
        let (taken, whole) = look(dir.path(), 100_000);
        assert!(whole, "{taken:?}");
        assert_eq!(taken.files, 5000);
        // The standard library takes it apart only in parts.
        while fs::remove_dir_all(dir.path()).is_err() {}
    }

    #[test]
    fn a_look_ends_where_there_is_more_than_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..500 {
            fs::create_dir(dir.path().join(n.to_string())).unwrap();
        }
        let (taken, whole) = look(dir.path(), 100);
        assert!(!whole);
        assert_eq!(taken.files, 101);
    }

    #[test]
    fn a_folder_closed_by_its_owner_is_counted_and_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("closed");
        fs::create_dir_all(closed.join("inner")).unwrap();
        fs::write(closed.join("inner/file"), "x").unwrap();
        fs::set_permissions(&closed, PermissionsExt::from_mode(0o200)).unwrap();
        let (taken, whole) = look(dir.path(), 100);
        assert!(whole);
        assert_eq!(taken.files, 3);
        assert_eq!(fs::metadata(&closed).unwrap().mode() & 0o7777, 0o200);
        fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
    }

    #[test]
    fn a_tree_that_is_moved_about_meanwhile_leads_nowhere_else() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for n in 0..2000 {
            fs::write(outside.path().join(n.to_string()), "x").unwrap();
        }
        fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        symlink(outside.path(), dir.path().join("trap")).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (a, b) = (dir.path().join("a"), dir.path().join("trap"));
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                while !over.load(Ordering::Relaxed) {
                    rustix::fs::renameat_with(CWD, &a, CWD, &b, flags).unwrap();
                }
            });
            for _ in 0..5000 {
                assert!(look(dir.path(), 10_000).0.files < 10);
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
