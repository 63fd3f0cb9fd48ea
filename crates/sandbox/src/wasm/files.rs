//! What a module has open. Its numbers are places in this table and never those of the system.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, OFlags, SeekFrom, Stat, Timespec, Timestamps};

use super::errno::Errno;
use super::memory::Memory;

/// Files that a module may have open.
const MAX_OPEN: usize = 256;

/// Rights, as the format names them; every one of them but those of sockets.
pub(super) const ALL_RIGHTS: u64 = (1 << 28) - 1;
pub(super) const FD_READ: u64 = 1 << 1;
const FD_SEEK: u64 = 1 << 2;
const FD_TELL: u64 = 1 << 5;
pub(super) const FD_WRITE: u64 = 1 << 6;
pub(super) const FD_ALLOCATE: u64 = 1 << 8;
pub(super) const FD_READDIR: u64 = 1 << 14;
pub(super) const FD_SET_SIZE: u64 = 1 << 22;

/// Flags of an open file.
pub(super) const APPEND: u16 = 1;
pub(super) const NONBLOCK: u16 = 4;

/// What a place in the table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One of the call's own streams.
    Stream,
    /// A regular file.
    File,
    /// A folder.
    Folder,
}

/// An open file.
pub(super) struct Open {
    pub(super) fd: OwnedFd,
    pub(super) kind: Kind,
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) flags: u16,
    /// The name it was handed in by.
    pub(super) name: Option<&'static str>,
    /// A folder's names, as they were when its listing began.
    pub(super) listing: Option<Vec<Entry>>,
}

/// A name in a folder.
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) inode: u64,
    pub(super) kind: u8,
}

impl Open {
    pub(super) fn new(fd: OwnedFd, kind: Kind, read: bool, write: bool) -> Open {
        Open { fd, kind, read, write, flags: 0, name: None, listing: None }
    }
}

/// The table.
pub(crate) struct Files(Vec<Option<Open>>);

impl Files {
    /// The three streams, and the workspace under its name and as the folder that relative names start from.
    pub(crate) fn new(workspace: &OwnedFd) -> io::Result<Files> {
        let folder = |name: &'static str| -> io::Result<Option<Open>> {
            let mut open = Open::new(workspace.try_clone()?, Kind::Folder, true, true);
            open.name = Some(name);
            Ok(Some(open))
        };
        Ok(Files(vec![
            Some(Open::new(io::stdin().as_fd().try_clone_to_owned()?, Kind::Stream, true, false)),
            Some(Open::new(io::stdout().as_fd().try_clone_to_owned()?, Kind::Stream, false, true)),
            Some(Open::new(io::stderr().as_fd().try_clone_to_owned()?, Kind::Stream, false, true)),
            folder(crate::launch::WORKSPACE)?,
            folder(".")?,
        ]))
    }

    pub(super) fn get(&self, fd: u32) -> Result<&Open, Errno> {
        usize::try_from(fd).ok().and_then(|n| self.0.get(n)?.as_ref()).ok_or(Errno::BADF)
    }

    pub(super) fn get_mut(&mut self, fd: u32) -> Result<&mut Open, Errno> {
        usize::try_from(fd).ok().and_then(|n| self.0.get_mut(n)?.as_mut()).ok_or(Errno::BADF)
    }

    pub(super) fn folder(&self, fd: u32) -> Result<&OwnedFd, Errno> {
        let open = self.get(fd)?;
        if open.kind == Kind::Folder { Ok(&open.fd) } else { Err(Errno::NOTDIR) }
    }

    /// A regular file; streams have no places in them.
    fn file(&self, fd: u32) -> Result<&Open, Errno> {
        let open = self.get(fd)?;
        match open.kind {
            Kind::File => Ok(open),
            Kind::Stream => Err(Errno::SPIPE),
            Kind::Folder => Err(Errno::ISDIR),
        }
    }

    /// Takes the lowest free number.
    pub(super) fn add(&mut self, open: Open) -> Result<u32, Errno> {
        let free = self.0.iter().position(Option::is_none);
        let at = match free {
            Some(at) => at,
            None if self.0.len() < MAX_OPEN => {
                self.0.push(None);
                self.0.len() - 1
            }
            None => return Err(Errno::MFILE),
        };
        self.0[at] = Some(open);
        u32::try_from(at).map_err(|_| Errno::MFILE)
    }

    pub(super) fn close(&mut self, fd: u32) -> Result<(), Errno> {
        self.get(fd)?;
        self.take(fd).map(drop)
    }

    pub(super) fn renumber(&mut self, from: u32, to: u32) -> Result<(), Errno> {
        self.get(from)?;
        self.get(to)?;
        if from != to {
            let moved = self.take(from)?;
            *self.get_mut(to)? = moved;
        }
        Ok(())
    }

    fn take(&mut self, fd: u32) -> Result<Open, Errno> {
        usize::try_from(fd).ok().and_then(|n| self.0.get_mut(n)?.take()).ok_or(Errno::BADF)
    }

    /// Reads into each piece; from a place in the file where one is given.
    pub(super) fn read(
        &self,
        memory: &mut Memory<'_>,
        fd: u32,
        pieces: (u32, u32),
        at: Option<u64>,
    ) -> Result<u32, Errno> {
        let open = if at.is_some() { self.file(fd)? } else { self.get(fd)? };
        if open.kind == Kind::Folder {
            return Err(Errno::ISDIR);
        }
        if !open.read {
            return Err(Errno::BADF);
        }
        let mut sum = 0u32;
        for (address, length) in memory.pieces(pieces.0, pieces.1)? {
            let piece = memory.bytes_mut(address, length)?;
            if piece.is_empty() {
                continue;
            }
            // More than the answer can tell: pieces may lie over each other.
            if sum.checked_add(length).is_none() {
                break;
            }
            let wanted = piece.len();
            let done = match at {
                None => retry(|| rustix::io::read(&open.fd, &mut *piece)),
                Some(at) => retry(|| rustix::io::pread(&open.fd, &mut *piece, at + u64::from(sum))),
            };
            match done {
                Ok(n) => sum += u32::try_from(n).map_err(|_| Errno::OVERFLOW)?,
                // What was read before is not lost.
                Err(_) if sum > 0 => break,
                Err(e) => return Err(e),
            }
            if !matches!(done, Ok(n) if n == wanted) {
                break;
            }
        }
        Ok(sum)
    }

    /// Writes each piece; at a place in the file where one is given.
    pub(super) fn write(
        &self,
        memory: &Memory<'_>,
        fd: u32,
        pieces: (u32, u32),
        at: Option<u64>,
    ) -> Result<u32, Errno> {
        let open = if at.is_some() { self.file(fd)? } else { self.get(fd)? };
        if open.kind == Kind::Folder {
            return Err(Errno::ISDIR);
        }
        if !open.write {
            return Err(Errno::BADF);
        }
        let mut sum = 0u32;
        for (address, length) in memory.pieces(pieces.0, pieces.1)? {
            let piece = memory.bytes(address, length)?;
            if piece.is_empty() {
                continue;
            }
            // More than the answer can tell: pieces may lie over each other.
            if sum.checked_add(length).is_none() {
                break;
            }
            let done = match at {
                None => retry(|| rustix::io::write(&open.fd, piece)),
                Some(at) => retry(|| rustix::io::pwrite(&open.fd, piece, at + u64::from(sum))),
            };
            match done {
                Ok(n) => sum += u32::try_from(n).map_err(|_| Errno::OVERFLOW)?,
                Err(_) if sum > 0 => break,
                Err(e) => return Err(e),
            }
            if !matches!(done, Ok(n) if n == piece.len()) {
                break;
            }
        }
        Ok(sum)
    }

    pub(super) fn seek(&self, fd: u32, by: i64, whence: u32) -> Result<u64, Errno> {
        let to = match whence {
            0 => SeekFrom::Start(u64::try_from(by).map_err(|_| Errno::INVAL)?),
            1 => SeekFrom::Current(by),
            2 => SeekFrom::End(by),
            _ => return Err(Errno::INVAL),
        };
        Ok(rustix::fs::seek(&self.file(fd)?.fd, to)?)
    }

    pub(super) fn set_size(&self, fd: u32, size: u64) -> Result<(), Errno> {
        let open = self.file(fd)?;
        if !open.write {
            return Err(Errno::BADF);
        }
        Ok(rustix::fs::ftruncate(&open.fd, size)?)
    }

    pub(super) fn sync(&self, fd: u32) -> Result<(), Errno> {
        Ok(rustix::fs::fsync(&self.get(fd)?.fd)?)
    }

    pub(super) fn set_flags(&mut self, fd: u32, flags: u16) -> Result<(), Errno> {
        let open = self.get_mut(fd)?;
        if flags & !(APPEND | NONBLOCK) != 0 {
            return Err(Errno::INVAL);
        }
        let mut system = rustix::fs::fcntl_getfl(&open.fd)?;
        system.set(OFlags::APPEND, flags & APPEND != 0);
        // Only a stream can block.
        system.set(OFlags::NONBLOCK, flags & NONBLOCK != 0);
        rustix::fs::fcntl_setfl(&open.fd, system)?;
        open.flags = flags;
        Ok(())
    }

    pub(super) fn set_times(&self, fd: u32, times: &Timestamps) -> Result<(), Errno> {
        if self.get(fd)?.kind == Kind::Stream {
            return Err(Errno::BADF);
        }
        Ok(rustix::fs::futimens(&self.get(fd)?.fd, times)?)
    }

    /// The 24 bytes that say what an open file is.
    pub(super) fn state(&self, fd: u32) -> Result<[u8; 24], Errno> {
        let open = self.get(fd)?;
        let rights = match open.kind {
            Kind::Folder => ALL_RIGHTS,
            Kind::File | Kind::Stream => {
                let mut rights = ALL_RIGHTS & !FD_READ & !FD_WRITE & !FD_READDIR;
                if open.read {
                    rights |= FD_READ;
                }
                if open.write {
                    rights |= FD_WRITE;
                }
                if open.kind == Kind::Stream { rights & !(FD_SEEK | FD_TELL) } else { rights }
            }
        };
        let mut state = [0; 24];
        state[0] = match open.kind {
            Kind::Stream => 0,
            Kind::Folder => 3,
            Kind::File => 4,
        };
        state[2..4].copy_from_slice(&open.flags.to_le_bytes());
        state[8..16].copy_from_slice(&rights.to_le_bytes());
        state[16..24]
            .copy_from_slice(&(if open.kind == Kind::Folder { ALL_RIGHTS } else { 0 }).to_le_bytes());
        Ok(state)
    }

    pub(super) fn stat(&self, fd: u32) -> Result<[u8; 64], Errno> {
        let open = self.get(fd)?;
        Ok(match open.kind {
            // What a stream is outside is no business of a module.
            Kind::Stream => [0; 64],
            Kind::File | Kind::Folder => told(&rustix::fs::fstat(&open.fd)?),
        })
    }
}

/// The 64 bytes that describe a file. The number of the device is the host's, and is not told.
pub(super) fn told(stat: &Stat) -> [u8; 64] {
    let mut bytes = [0; 64];
    let nanoseconds = |seconds: i64, rest: u64| {
        u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(rest)
    };
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let numbers = [
        (0, 1),
        (8, stat.st_ino),
        (24, wide(stat.st_nlink)),
        (32, size),
        (40, nanoseconds(stat.st_atime, stat.st_atime_nsec)),
        (48, nanoseconds(stat.st_mtime, stat.st_mtime_nsec)),
        (56, nanoseconds(stat.st_ctime, stat.st_ctime_nsec)),
    ];
    for (at, number) in numbers {
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    bytes[16] = kind_of(FileType::from_raw_mode(stat.st_mode));
    bytes
}

/// Its width depends on the processor.
fn wide(count: impl Into<u64>) -> u64 {
    count.into()
}

/// The number of a kind of file.
pub(super) fn kind_of(kind: FileType) -> u8 {
    match kind {
        FileType::BlockDevice => 1,
        FileType::CharacterDevice => 2,
        FileType::Directory => 3,
        FileType::RegularFile => 4,
        FileType::Socket => 6,
        FileType::Symlink => 7,
        FileType::Fifo | FileType::Unknown => 0,
    }
}

/// The two times of a call: given, now, or left alone.
pub(super) fn times(access: u64, modified: u64, flags: u16) -> Result<Timestamps, Errno> {
    const NOW: i64 = 0x3fff_ffff;
    const OMIT: i64 = 0x3fff_fffe;
    let one = |given: u64, set: u16, now: u16| match (flags & set != 0, flags & now != 0) {
        (true, true) => Err(Errno::INVAL),
        (true, false) => Ok(Timespec {
            tv_sec: i64::try_from(given / 1_000_000_000).map_err(|_| Errno::INVAL)?,
            tv_nsec: i64::try_from(given % 1_000_000_000).map_err(|_| Errno::INVAL)?,
        }),
        (false, true) => Ok(Timespec { tv_sec: 0, tv_nsec: NOW }),
        (false, false) => Ok(Timespec { tv_sec: 0, tv_nsec: OMIT }),
    };
    Ok(Timestamps { last_access: one(access, 1, 2)?, last_modification: one(modified, 4, 8)? })
}

/// Once more when a signal came in between.
pub(super) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces over each other name more bytes than a number of 32 bits can tell.
    #[test]
    fn no_call_reads_or_writes_more_than_its_answer_can_tell() {
        let open = |path: &str| {
            let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
            Some(Open::new(file.into(), Kind::File, true, true))
        };
        let files = Files(vec![open("/dev/zero"), open("/dev/null")]);
        const LENGTH: u32 = 5 << 20;
        let mut bytes = vec![0; usize::try_from(LENGTH).unwrap()];
        for piece in bytes.chunks_exact_mut(8).take(1024) {
            piece[4..].copy_from_slice(&LENGTH.to_le_bytes());
        }
        let whole = u32::MAX / LENGTH * LENGTH;
        assert_eq!(files.write(&Memory(&mut bytes), 1, (0, 1024), None), Ok(whole));
        // The list of pieces is read before the first is filled.
        assert_eq!(files.read(&mut Memory(&mut bytes), 0, (0, 1024), Some(0)), Ok(whole));
    }
}
