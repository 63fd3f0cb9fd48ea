//! Who a run's folder belongs to right now: its executor holds a lock on it from before the first file is written
//! until the last one is. The kernel lets go of it however that process ends, so a lock is never stale.
//!
//! The forker has it open as well for as long as one of the run's sandboxes is there: after a kill of the executor the
//! folder is free when the guests are gone, not before. Who kills both leaves the guests to the kernel, which lets go
//! of the lock while they die; for that moment nothing holds it.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat};
use rustix::io::Errno;

/// The lock on a run's folder; dropping it lets go.
#[derive(Debug)]
pub(crate) struct Hold(OwnedFd);

impl Hold {
    /// Takes a folder that was just made; none when somebody who clears up has taken it away meanwhile.
    pub(crate) fn fresh(dir: &Path) -> io::Result<Option<Hold>> {
        let fd = match open(dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        // Whoever clears up holds it for a moment only.
        flock(&fd, FlockOperation::LockExclusive)?;
        if !is_at(&fd, dir)? {
            return Ok(None);
        }
        // One that was cleared up in between is somebody's finished record now.
        Ok(fs::read_dir(dir)?.next().is_none().then_some(Hold(fd)))
    }

    /// The same lock once more, for who is to keep it beyond this process.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Whether somebody works on the run in this folder.
    pub(crate) fn is_held(dir: &Path) -> bool {
        open(dir).is_ok_and(|fd| flock(&fd, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
    }

    /// Waits until nobody else holds a folder, and takes it.
    pub(crate) fn alone(dir: &Path) -> io::Result<Hold> {
        let fd = open(&dir.canonicalize()?)?;
        flock(&fd, FlockOperation::LockExclusive)?;
        Ok(Hold(fd))
    }

    /// The same with patience: somebody who lists the runs holds each for a moment; after a kill the forker does until
    /// all is gone.
    pub(crate) fn soon_idle(dir: &Path) -> io::Result<Option<Hold>> {
        for _ in 1..TRIES {
            match Hold::idle(dir)? {
                None => std::thread::sleep(APART),
                hold => return Ok(hold),
            }
        }
        Hold::idle(dir)
    }

    /// Takes the folder of a run that nobody works on; none when somebody does.
    pub(crate) fn idle(dir: &Path) -> io::Result<Option<Hold>> {
        let fd = open(dir)?;
        match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            // Whoever cleared up may have taken it away between the two.
            Ok(()) if !is_at(&fd, dir)? => Err(ErrorKind::NotFound.into()),
            Ok(()) => Ok(Some(Hold(fd))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

/// How often, and how long apart, a folder is tried that somebody only looks at, or whose last guests die.
const TRIES: u32 = 100;
const APART: Duration = Duration::from_millis(20);

/// Whether the folder that was opened is the one that has this name now.
fn is_at(fd: &OwnedFd, dir: &Path) -> io::Result<bool> {
    let seen = fstat(fd)?;
    match fs::symlink_metadata(dir) {
        Ok(there) => Ok((there.dev(), there.ino()) == (seen.st_dev, seen.st_ino)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

fn open(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?)
}
