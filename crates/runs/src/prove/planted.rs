//! What who proves leaves open, for a guest to find if nobody closes it.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

/// Behind all that is open by itself, and within what every process may hold.
const FAR: i32 = 500;

/// Leaves descriptors open that every program started from here is handed on, unless it is closed on the way: of the root
/// of this machine, near and far. To be asked for before anything else is started.
///
/// # Errors
/// The system's own.
pub fn leave_open() -> io::Result<[OwnedFd; 2]> {
    let near = open("/", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let far = fcntl_dupfd_cloexec(&near, FAR)?;
    fcntl_setfd(&far, FdFlags::empty())?;
    Ok([near, far])
}
