//! Names of a module, looked up beneath a folder that it has open.
//!
//! The kernel does the looking (`openat2`): no part of a way, no link on it and no `..` leads out of the folder
//! it starts from, and a name that is swapped meanwhile leads to another place inside or to an error.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Timestamps, openat2};

use super::errno::Errno;
use super::files::{APPEND, Entry, Files, Kind, Open, kind_of, retry, told};

/// Bytes of a name.
const MAX_NAME: usize = 4096;
/// Names of one folder that are listed.
const MAX_NAMES: usize = 1 << 20;

const CREATE: u32 = 1;
const DIRECTORY: u32 = 2;
const EXCLUSIVE: u32 = 4;
const TRUNCATE: u32 = 8;

/// What a file is to be opened for.
pub(super) struct Wish {
    pub(super) follow: bool,
    pub(super) how: u32,
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) append: bool,
}

impl Files {
    /// Opens a regular file or a folder; nothing else is ever opened, and nothing is waited for.
    pub(super) fn open(&mut self, folder: u32, path: &[u8], wish: &Wish) -> Result<u32, Errno> {
        let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let as_folder = wish.how & DIRECTORY != 0;
        flags |= match (wish.read, wish.write && !as_folder) {
            (_, false) => OFlags::RDONLY,
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
        };
        for (asked, flag) in [
            (wish.how & CREATE != 0, OFlags::CREATE),
            (as_folder, OFlags::DIRECTORY),
            (wish.how & EXCLUSIVE != 0, OFlags::EXCL),
            (wish.how & TRUNCATE != 0, OFlags::TRUNC),
            (wish.append, OFlags::APPEND),
            (!wish.follow, OFlags::NOFOLLOW),
        ] {
            flags.set(flag, asked);
        }
        // Cutting a file short is writing it.
        if wish.how & TRUNCATE != 0 && !wish.write {
            return Err(Errno::NOTCAPABLE);
        }
        let fd = beneath(self.folder(folder)?, path, flags)?;
        let kind = match FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Folder,
            _ => return Err(Errno::NOTSUP),
        };
        let mut open = Open::new(fd, kind, wish.read || kind == Kind::Folder, wish.write);
        open.flags = if wish.append { APPEND } else { 0 };
        self.add(open)
    }

    pub(super) fn stat_at(&self, folder: u32, path: &[u8], follow: bool) -> Result<[u8; 64], Errno> {
        let mut flags = OFlags::PATH;
        flags.set(OFlags::NOFOLLOW, !follow);
        Ok(told(&rustix::fs::fstat(&beneath(self.folder(folder)?, path, flags)?)?))
    }

    pub(super) fn set_times_at(
        &self,
        folder: u32,
        path: &[u8],
        follow: bool,
        times: &Timestamps,
    ) -> Result<(), Errno> {
        let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        flags.set(OFlags::NOFOLLOW, !follow);
        let fd = beneath(self.folder(folder)?, path, flags)?;
        Ok(rustix::fs::futimens(&fd, times)?)
    }

    pub(super) fn make_folder(&self, folder: u32, path: &[u8]) -> Result<(), Errno> {
        let (above, name) = above(self.folder(folder)?, path)?;
        Ok(rustix::fs::mkdirat(above, name, Mode::from_raw_mode(0o777))?)
    }

    pub(super) fn remove_folder(&self, folder: u32, path: &[u8]) -> Result<(), Errno> {
        let (above, name) = above(self.folder(folder)?, path)?;
        Ok(rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)?)
    }

    pub(super) fn unlink(&self, folder: u32, path: &[u8]) -> Result<(), Errno> {
        let (above, name) = above(self.folder(folder)?, path)?;
        if path.ends_with(b"/") {
            return Err(Errno::NOTDIR);
        }
        Ok(rustix::fs::unlinkat(above, name, AtFlags::empty())?)
    }

    pub(super) fn read_link(&self, folder: u32, path: &[u8]) -> Result<Vec<u8>, Errno> {
        let (above, name) = above(self.folder(folder)?, path)?;
        Ok(rustix::fs::readlinkat(above, name, Vec::new())?.into_bytes())
    }

    pub(super) fn rename(&self, from: (u32, &[u8]), to: (u32, &[u8])) -> Result<(), Errno> {
        let (from, old) = above(self.folder(from.0)?, from.1)?;
        let (to, new) = above(self.folder(to.0)?, to.1)?;
        Ok(rustix::fs::renameat(from, old, to, new)?)
    }

    /// A second name of a file; of a link itself, never of what it leads to.
    pub(super) fn link(&self, from: (u32, &[u8]), to: (u32, &[u8])) -> Result<(), Errno> {
        let (from, old) = above(self.folder(from.0)?, from.1)?;
        let (to, new) = above(self.folder(to.0)?, to.1)?;
        Ok(rustix::fs::linkat(from, old, to, new, AtFlags::empty())?)
    }

    /// A link. One that starts at the root could only lead out, and is not made.
    pub(super) fn symlink(&self, target: &[u8], folder: u32, path: &[u8]) -> Result<(), Errno> {
        sound(target)?;
        let (above, name) = above(self.folder(folder)?, path)?;
        Ok(rustix::fs::symlinkat(target, above, name)?)
    }

    /// The names in a folder from a place on, as records; as many bytes as fit.
    pub(super) fn list(&mut self, folder: u32, cookie: u64, room: usize) -> Result<Vec<u8>, Errno> {
        let open = self.get_mut(folder)?;
        if open.kind != Kind::Folder {
            return Err(Errno::NOTDIR);
        }
        if cookie == 0 || open.listing.is_none() {
            open.listing = Some(names(&open.fd)?);
        }
        let mut bytes = Vec::new();
        let from = usize::try_from(cookie).map_err(|_| Errno::INVAL)?;
        let listed = open.listing.as_deref().unwrap_or_default();
        for (at, entry) in listed.iter().enumerate().skip(from) {
            if bytes.len() >= room {
                break;
            }
            let next = u64::try_from(at + 1).map_err(|_| Errno::OVERFLOW)?;
            let length = u32::try_from(entry.name.len()).map_err(|_| Errno::OVERFLOW)?;
            bytes.extend_from_slice(&next.to_le_bytes());
            bytes.extend_from_slice(&entry.inode.to_le_bytes());
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&[entry.kind, 0, 0, 0]);
            bytes.extend_from_slice(&entry.name);
        }
        // The last record may be cut: that is how the format says that there is more.
        bytes.truncate(room);
        Ok(bytes)
    }
}

fn names(folder: &OwnedFd) -> Result<Vec<Entry>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if names.len() >= MAX_NAMES {
            return Err(Errno::OVERFLOW);
        }
        let name = entry.file_name().to_bytes().to_vec();
        names.push(Entry { name, inode: entry.ino(), kind: kind_of(entry.file_type()) });
    }
    Ok(names)
}

/// A name that may be looked up at all.
fn sound(path: &[u8]) -> Result<(), Errno> {
    if path.is_empty() {
        return Err(Errno::NOENT);
    }
    if path.len() > MAX_NAME {
        return Err(Errno::NAMETOOLONG);
    }
    if path.contains(&0) {
        return Err(Errno::ILSEQ);
    }
    if path.starts_with(b"/") {
        return Err(Errno::NOTCAPABLE);
    }
    Ok(())
}

/// Opens a name beneath a folder.
fn beneath(folder: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    sound(path)?;
    let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o666) } else { Mode::empty() };
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // The kernel gives up where names are moved about while it looks.
    for _ in 0..16 {
        match retry(|| openat2(&folder, path, flags | OFlags::CLOEXEC, mode, how)) {
            Err(Errno(6)) => {}
            other => return other,
        }
    }
    Err(Errno(6))
}

/// The folder above the last part of a way, and that part.
fn above<'p>(folder: &OwnedFd, path: &'p [u8]) -> Result<(OwnedFd, &'p [u8]), Errno> {
    sound(path)?;
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |last| last + 1);
    let path = &path[..end];
    let (way, name) = match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b"."[..], path),
    };
    if name == b"." || name == b".." {
        return Err(Errno::INVAL);
    }
    Ok((beneath(folder, way, OFlags::PATH | OFlags::DIRECTORY)?, name))
}
