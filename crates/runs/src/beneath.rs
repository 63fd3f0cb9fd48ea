//! Files of a tree that somebody else has shaped, opened by descriptor and never through a link.
//!
//! Everything that reads or writes a workspace, a source or a finished run goes through a [`Folder`]. The
//! kernel is asked to hold the bounds (`openat2`); where it does not know the call, the path is walked part by
//! part.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Uid};
use rustix::io::Errno;

/// The bytes of a regular file beneath `root`, for callers above: a Guild's files.
///
/// # Errors
/// `ELOOP` or `EXDEV` when a link is in the way or the path leaves `root`; `FileTooLarge` beyond `cap` bytes.
pub fn read_beneath(root: &Path, rel: &str, cap: u64) -> io::Result<Vec<u8>> {
    let too_long = || io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {cap} bytes"));
    let (file, meta) = Folder::open(root)?.file_and_metadata(Path::new(rel))?;
    // A giant is refused before anything of it is read; one that grows meanwhile, all the same.
    if meta.len() > cap {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    file.take(cap.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|read| read <= cap) { Ok(bytes) } else { Err(too_long()) }
}

/// A folder, held open. Every path that it is asked for is beneath it, and none leads through a link.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// Opens a folder that the operator named; the way to it may hold links.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Folder(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// A folder beneath this one; the empty path is this one.
    pub fn folder(&self, path: &Path) -> io::Result<Folder> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        self.beneath(path, OFlags::RDONLY | OFlags::DIRECTORY).map(Folder)
    }

    /// A regular file beneath this folder, for reading. Never blocks on a FIFO.
    pub fn file(&self, path: &Path) -> io::Result<File> {
        Ok(self.file_and_metadata(path)?.0)
    }

    /// The same with what it is.
    pub fn file_and_metadata(&self, path: &Path) -> io::Result<(File, Metadata)> {
        let fd = self.beneath(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let file = File::from(fd);
        let meta = file.metadata()?;
        if meta.is_file() {
            Ok((file, meta))
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
        }
    }

    /// What an entry of this folder is, without following it.
    pub fn look(&self, name: &OsStr) -> io::Result<Metadata> {
        File::from(self.beneath(Path::new(name), OFlags::PATH)?).metadata()
    }

    /// The same at the price of one call: a name alone leads nowhere else.
    pub fn status(&self, name: &OsStr) -> io::Result<Stat> {
        if name.as_bytes().contains(&b'/') || matches!(name.as_bytes(), b"" | b"..") {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leaves its folder"));
        }
        Ok(rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The number by which its file system is known.
    pub(crate) fn file_system(&self) -> io::Result<u64> {
        Ok(u64::try_from(rustix::fs::fstatfs(&self.0)?.f_type).unwrap_or(0))
    }

    /// What this folder is.
    pub fn metadata(&self) -> io::Result<Metadata> {
        File::from(self.0.try_clone()?).metadata()
    }

    /// Names in this folder, sorted; at most `most`, and whether there are more.
    pub fn names(&self, most: usize) -> io::Result<(Vec<OsString>, bool)> {
        let (entries, more) = self.entries(most)?;
        Ok((entries.into_iter().map(|(name, _)| name).collect(), more))
    }

    /// The same with what they are, as far as the file system says that here.
    pub fn entries(&self, most: usize) -> io::Result<(Vec<(OsString, FileType)>, bool)> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() >= most {
                return Ok((names, true));
            }
            names.push((OsStr::from_bytes(name).to_owned(), entry.file_type()));
        }
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok((names, false))
    }

    /// Where a link in this folder points.
    pub fn target(&self, name: &OsStr) -> io::Result<OsString> {
        let target = rustix::fs::readlinkat(&self.0, name, Vec::new())?;
        Ok(OsStr::from_bytes(target.as_bytes()).to_owned())
    }

    /// Makes a regular file that was not there, for reading and writing.
    pub fn create(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        Ok(File::from(self.open_one(Path::new(name), flags, Mode::from_raw_mode(mode))?))
    }

    /// Makes a folder that was not there.
    pub fn create_folder(&self, name: &OsStr) -> io::Result<Folder> {
        rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o700))?;
        self.folder(Path::new(name))
    }

    /// Makes a link that was not there.
    pub(crate) fn create_link(
        &self,
        name: &OsStr,
        target: &OsStr,
        owner: Option<(u32, u32)>,
    ) -> io::Result<()> {
        rustix::fs::symlinkat(target, &self.0, name)?;
        if let Some((uid, gid)) = owner {
            let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            rustix::fs::chownat(&self.0, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    /// Gives a file of this folder a name that was not there, in another; a link is not followed.
    pub(crate) fn link(&self, name: &OsStr, to: &Folder, new: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::linkat(&self.0, name, &to.0, new, AtFlags::empty())?)
    }

    /// Sets the mode of this folder.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.0, Mode::from_raw_mode(mode))?)
    }

    /// Moves an entry of this folder to a new name in another; never over one that is there.
    pub fn rename(&self, name: &OsStr, to: &Folder, new: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat_with(&self.0, name, &to.0, new, RenameFlags::NOREPLACE)?)
    }

    /// Moves an entry of this folder to another name in it, over one that may be there.
    pub fn replace(&self, name: &OsStr, new: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, name, &self.0, new)?)
    }

    /// Exchanges an entry with one of another folder, at once; neither name is ever without one.
    pub fn exchange(&self, name: &OsStr, other: &Folder, new: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat_with(&self.0, name, &other.0, new, RenameFlags::EXCHANGE)?)
    }

    /// Keeps everybody else out who asks the same of this folder; none when somebody is in.
    pub fn lock(&self) -> io::Result<bool> {
        match rustix::fs::flock(&self.0, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Brings the names in this folder to the disk.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.0)?)
    }

    /// Sets owner and mode of this folder.
    pub(crate) fn own(&self, mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
        own(&File::from(self.0.try_clone()?), mode, owner)
    }

    /// Takes a file, a link or anything else that is no folder out of this one.
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Takes an empty folder out of this one.
    pub fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Sets mode, owner and time of this folder, once it is filled.
    pub(crate) fn settle(&self, like: &Metadata, mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
        settle(&File::from(self.0.try_clone()?), like, mode, owner)
    }

    /// Lets us read an entry of our own whose mode forbids it, without following it.
    pub(crate) fn unlock(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        let fd = self.beneath(Path::new(name), OFlags::PATH)?;
        let way = format!("/proc/self/fd/{}", fd.as_raw_fd());
        Ok(rustix::fs::chmodat(CWD, way, Mode::from_raw_mode(mode), AtFlags::empty())?)
    }

    fn beneath(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        if path != Path::new(".") && !path.components().all(|c| matches!(c, Component::Normal(_))) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leaves its folder"));
        }
        match self.open_one(path, flags, Mode::empty()) {
            Err(e) if unknown_call(&e) => self.stepwise(path, flags),
            other => other,
        }
    }

    fn open_one(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A link itself may be looked at (`PATH`), but none is ever walked through.
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let links = if flags.contains(OFlags::PATH) && path.components().count() == 1 {
            ResolveFlags::empty()
        } else {
            ResolveFlags::NO_SYMLINKS
        };
        let mut tries = 0;
        loop {
            match rustix::fs::openat2(&self.0, path, flags, mode, inside | links) {
                Err(Errno::INTR | Errno::AGAIN) if tries < 64 => tries += 1,
                Err(e) if flags.contains(OFlags::CREATE) && unknown_call(&e.into()) => {
                    // A single name with `O_EXCL` cannot lead anywhere else.
                    return Ok(rustix::fs::openat(&self.0, path, flags, mode)?);
                }
                other => return Ok(other?),
            }
        }
    }

    /// The same without `openat2`: one part after the other, none of them a link.
    fn stepwise(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let on_the_way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = self.0.try_clone()?;
        let mut parts = path.components().peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return Ok(rustix::fs::openat(&at, part.as_os_str(), flags, Mode::empty())?);
            }
            at = rustix::fs::openat(&at, part.as_os_str(), on_the_way, Mode::empty())?;
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "an empty path"))
    }
}

/// Mode, owner and time.
pub(crate) fn settle(file: &File, like: &Metadata, mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
    own(file, mode, owner)?;
    file.set_modified(like.modified()?)
}

/// Owner first: a change of owner clears mode bits.
pub(crate) fn own(file: &File, mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
    if let Some((uid, gid)) = owner {
        rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?)
}

fn unknown_call(e: &io::Error) -> bool {
    let code = e.raw_os_error();
    code == Some(Errno::NOSYS.raw_os_error()) || code == Some(Errno::PERM.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("in")).unwrap();
        std::fs::write(dir.path().join("in/file"), "inside").unwrap();
        std::fs::write(dir.path().join("outside"), "outside").unwrap();
        symlink("../outside", dir.path().join("in/link")).unwrap();
        symlink("..", dir.path().join("in/up")).unwrap();
        let folder = Folder::open(&dir.path().join("in")).unwrap();
        (dir, folder)
    }

    #[test]
    fn nothing_is_opened_through_a_link() {
        let (_dir, folder) = tree();
        assert!(folder.file(Path::new("file")).is_ok());
        for way in ["link", "up/outside", "../outside", "/etc/passwd", "up", "."] {
            assert!(folder.file(Path::new(way)).is_err(), "{way}");
        }
        assert!(folder.folder(Path::new("up")).is_err());
    }

    #[test]
    fn nothing_is_opened_through_a_link_without_openat2() {
        let (_dir, folder) = tree();
        assert!(folder.stepwise(Path::new("file"), OFlags::RDONLY).is_ok());
        for way in ["link", "up/outside", "up"] {
            assert!(folder.stepwise(Path::new(way), OFlags::RDONLY).is_err(), "{way}");
        }
    }

    #[test]
    fn a_link_is_seen_as_a_link() {
        let (_dir, folder) = tree();
        assert!(folder.look(OsStr::new("link")).unwrap().is_symlink());
        assert_eq!(folder.target(OsStr::new("link")).unwrap(), "../outside");
    }

    /// A folder that is exchanged for a link to a place outside while the executor itself opens names in it: a guest
    /// can do that to a workspace, and must win nothing, with the kernel's help and without (bug class D-6).
    #[test]
    fn a_racing_swapper_wins_nothing_against_the_hosts_own_opens() {
        use std::io::Read;
        use std::sync::atomic::{AtomicBool, Ordering};
        let (dir, folder) = tree();
        let at = |name: &str| dir.path().join("in").join(name);
        std::fs::create_dir(at("swap")).unwrap();
        std::fs::write(at("swap/outside"), "inside").unwrap();
        symlink("..", at("trap")).unwrap();
        let over = AtomicBool::new(false);
        let (mut opened, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let (a, b) = (at("swap"), at("trap"));
                    let flags = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(rustix::fs::CWD, &a, rustix::fs::CWD, &b, flags).unwrap();
                }
            });
            for _ in 0..20_000 {
                // Outside, too, there is a file of this name.
                let path = Path::new("swap/outside");
                for file in [
                    folder.file(path).ok(),
                    folder.stepwise(path, OFlags::RDONLY).ok().map(std::fs::File::from),
                ] {
                    let Some(mut file) = file else {
                        refused += 1;
                        continue;
                    };
                    let mut said = String::new();
                    file.read_to_string(&mut said).unwrap();
                    assert_eq!(said, "inside");
                    opened += 1;
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        // The race was one: both came about.
        assert!(opened > 0 && refused > 0, "{opened} {refused}");
    }
}
