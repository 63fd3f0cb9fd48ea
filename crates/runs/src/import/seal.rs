//! By what a file is known to be untouched without being read.
//!
//! The kernel stamps every change of a file's content, size, mode, owner or names with its own clock, and no call
//! sets that stamp (`ctime`): whoever has the file and not the machine cannot write into it and leave it. So a
//! file with the stamp it had when it was taken in is the file that was taken in, with these exceptions, and in each of
//! them it is read again:
//!
//! - it was made in the same tick of the clock in which the import ended, so that a change might bear the same stamp;
//! - the clock was set back since;
//! - the file system is not one of which this is known. On tmpfs writes through a shared mapping leave no stamp; others
//!   are run by somebody else. Of ext4 it is known, but for one ioctl that exchanges extents, which no guest may call.
//!
//! Under gVisor and where a guest's writes come back from a machine's image, it is the host's kernel that stamps them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::Stat;

use crate::beneath::Folder;

const EXT4: u64 = 0xef53;
/// Between two readings of two clocks.
const INEXACT: Duration = Duration::from_millis(1);

/// What changes when anything does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    file: (u64, u64),
    size: u64,
    stamp: (i64, i64),
    modified: (i64, i64),
}

impl Seal {
    pub(super) fn of(meta: &Metadata) -> Seal {
        Seal {
            file: (meta.dev(), meta.ino()),
            size: meta.len(),
            stamp: (meta.ctime(), meta.ctime_nsec()),
            modified: (meta.mtime(), meta.mtime_nsec()),
        }
    }

    /// Its time, in seconds since 1970.
    pub(super) fn modified(&self) -> i64 {
        self.modified.0
    }

    /// Whether the file is still as it was.
    pub(crate) fn holds(&self, now: &Stat) -> bool {
        let signed = |n: u64| i64::try_from(n).unwrap_or(-1);
        self.file == (now.st_dev, now.st_ino)
            && Ok(self.size) == u64::try_from(now.st_size)
            && self.stamp == (now.st_ctime, signed(now.st_ctime_nsec))
            && self.modified == (now.st_mtime, signed(now.st_mtime_nsec))
    }
}

/// When an import ended, by the clock that stamps its files.
#[derive(Debug)]
pub(crate) struct Ended {
    stamp: (i64, i64),
    wall: SystemTime,
    steady: Instant,
}

impl Ended {
    /// None where stamps prove nothing. `root` must just have been changed.
    pub(super) fn now(root: &Folder) -> Option<Ended> {
        root.file_system().ok().filter(|magic| *magic == EXT4)?;
        let meta = root.metadata().ok()?;
        let stamp = (meta.ctime(), meta.ctime_nsec());
        Some(Ended { stamp, wall: SystemTime::now(), steady: Instant::now() })
    }

    /// Whether a seal that was made before can be believed now.
    pub(crate) fn proves(&self, seal: &Seal) -> bool {
        seal.stamp < self.stamp
    }

    /// Whether the clock that stamps has only gone forward since.
    pub(crate) fn clock_held(&self) -> bool {
        self.wall.elapsed().is_ok_and(|wall| wall + INEXACT >= self.steady.elapsed())
    }
}
