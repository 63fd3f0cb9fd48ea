//! Modes and times by path, in the tier without a view of its own.
//!
//! Landlock does not judge `chmod` and `utimensat`, so there the kernel asks init instead of doing them: init
//! copies the path, opens what it means, looks where that really is, and does it by the descriptor, in the
//! workspace and the private folder only. What is judged is what is changed; a path that changes meanwhile is
//! of no use.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, fchmod, fstat, futimens, openat,
};
use rustix::io::Errno;

use crate::filter;
use crate::launch::Place;
use crate::sys::{self, Notice};

/// The kernel's questions.
pub(super) struct Attributes(OwnedFd);

/// What a call asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    /// The folder that the path starts from: a descriptor of the asking process, or its own folder.
    from: Option<i32>,
    path: u64,
    follow: bool,
    /// An empty path means the folder or descriptor itself.
    empty: bool,
    what: What,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    Mode(u32),
    /// The address of two times; 0 is now.
    Times(u64),
}

impl Attributes {
    /// From now on such calls of this process and all it starts are questions.
    pub(super) fn listen() -> io::Result<Attributes> {
        let program = filter::attributes().map_err(io::Error::other)?;
        let listener = sys::listen_to_calls(&program);
        Ok(Attributes(listener.map_err(|e| io::Error::new(e.kind(), format!("be asked about calls: {e}")))?))
    }

    /// Answers one question, if there is one.
    pub(super) fn answer(&self, place: &Place) {
        // One whose asker was killed is gone, and so is an answer nobody waits for.
        let Ok(notice) = sys::next_notice(&self.0) else { return };
        let error = match self.carry_out(&notice, place) {
            Ok(()) => 0,
            Err(e) => e.raw_os_error().unwrap_or(libc::EPERM),
        };
        sys::answer_notice(&self.0, notice.id, error).ok();
    }

    fn carry_out(&self, notice: &Notice, place: &Place) -> io::Result<()> {
        let wish = Wish::of(notice).ok_or(Errno::PERM)?;
        let asker = PathBuf::from(format!("/proc/{}", notice.task));
        let memory = fs::File::open(asker.join("mem"))?;
        let path = text(&memory, wish.path)?;
        let times = match wish.what {
            What::Times(at) => Some(times(&memory, at)?),
            What::Mode(_) => None,
        };
        let base = match wish.from {
            Some(fd) => asker.join("fd").join(fd.to_string()),
            None => asker.join("cwd"),
        };
        let base = openat(CWD, &base, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        // The number may belong to somebody else by now; then none of this was theirs.
        sys::notice_is_valid(&self.0, notice.id)?;
        let target = match (path.is_empty(), wish.follow) {
            (true, _) if wish.empty => base,
            (true, _) => return Err(Errno::NOENT.into()),
            (false, true) => openat(&base, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?,
            (false, false) => {
                openat(&base, &path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?
            }
        };
        let target = within(&target, place)?;
        match (wish.what, times) {
            (What::Mode(mode), _) => fchmod(&target, Mode::from_raw_mode(mode & 0o1777))?,
            (What::Times(_), Some(times)) => futimens(&target, &times)?,
            (What::Times(_), None) => {}
        }
        Ok(())
    }
}

impl AsFd for Attributes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wish {
    fn of(notice: &Notice) -> Option<Wish> {
        let [a, b, c, d, ..] = notice.args;
        let low = |arg: u64| u32::try_from(arg & 0xffff_ffff).unwrap_or(0);
        let from = |arg: u64| {
            let fd = low(arg).cast_signed();
            (fd != libc::AT_FDCWD).then_some(fd)
        };
        let follow = |arg: u64| low(arg) & AtFlags::SYMLINK_NOFOLLOW.bits() == 0;
        let empty = |arg: u64| low(arg) & AtFlags::EMPTY_PATH.bits() != 0;
        Some(match notice.call {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => {
                Wish { from: None, path: a, follow: true, empty: false, what: What::Mode(low(b)) }
            }
            libc::SYS_fchmodat => {
                Wish { from: from(a), path: b, follow: true, empty: false, what: What::Mode(low(c)) }
            }
            libc::SYS_fchmodat2 => {
                Wish { from: from(a), path: b, follow: follow(d), empty: empty(d), what: What::Mode(low(c)) }
            }
            libc::SYS_utimensat => {
                Wish { from: from(a), path: b, follow: follow(d), empty: empty(d), what: What::Times(c) }
            }
            _ => return None,
        })
    }
}

/// The same file or folder, opened, if it lies where a guest may write.
fn within(target: &OwnedFd, place: &Place) -> io::Result<OwnedFd> {
    match FileType::from_raw_mode(fstat(target)?.st_mode) {
        FileType::RegularFile | FileType::Directory => {}
        // A link has no mode of its own, and a pipe could make us wait.
        _ => return Err(Errno::OPNOTSUPP.into()),
    }
    let own = format!("/proc/self/fd/{}", target.as_raw_fd());
    let real = fs::read_link(&own)?;
    if ![&place.workspace, &place.tmp].iter().any(|folder| real.starts_with(folder)) {
        return Err(Errno::PERM.into());
    }
    Ok(openat(CWD, Path::new(&own), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?)
}

/// A path in the memory of the asking process.
fn text(memory: &fs::File, at: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 256];
    while bytes.len() < 4096 {
        // Never over the end of a page, which may be the last there is.
        let here = at.checked_add(u64::try_from(bytes.len()).unwrap_or(0)).ok_or(Errno::FAULT)?;
        let room = usize::try_from(4096 - here % 4096).unwrap_or(1).min(piece.len());
        let n = memory.read_at(&mut piece[..room], here)?;
        if n == 0 {
            return Err(Errno::FAULT.into());
        }
        if let Some(end) = piece[..n].iter().position(|b| *b == 0) {
            bytes.extend_from_slice(&piece[..end]);
            return Ok(bytes);
        }
        bytes.extend_from_slice(&piece[..n]);
    }
    Err(Errno::NAMETOOLONG.into())
}

fn times(memory: &fs::File, at: u64) -> io::Result<Timestamps> {
    let now = Timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
    if at == 0 {
        return Ok(Timestamps { last_access: now, last_modification: now });
    }
    let mut raw = [0; 32];
    memory.read_exact_at(&mut raw, at)?;
    let word = |n: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&raw[n * 8..n * 8 + 8]);
        i64::from_ne_bytes(bytes)
    };
    Ok(Timestamps {
        last_access: Timespec { tv_sec: word(0), tv_nsec: word(1) },
        last_modification: Timespec { tv_sec: word(2), tv_nsec: word(3) },
    })
}
