//! Modes, times, owners and attributes, in the tier without a view of its own.
//!
//! Landlock judges none of the calls that set them, so there the kernel asks init instead of doing them, whether a file
//! is meant by a path or by a descriptor, one for reading included. Init copies the path, opens what it means, or takes
//! what the descriptor is open on, looks where that really is, and does it to what it holds, in the workspace and the
//! private folder only. What is judged is what is changed; a path or a descriptor that changes meanwhile is of no use.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use crate::filter;
use crate::launch::Place;
use crate::sys::{self, Notice, Setting};

/// Bytes of the name and of the value of an attribute that the kernel takes at most.
const NAME: usize = 255;
const VALUE: usize = 64 << 10;

/// The kernel's questions.
pub(super) struct Attributes(OwnedFd);

/// What a call asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    of: Of,
    what: What,
}

/// Which file.
#[derive(Debug, PartialEq, Eq)]
enum Of {
    /// What this descriptor of the asking process is open on.
    Open(i32),
    Path {
        /// The folder that the path starts from: a descriptor of the asking process, or its own folder.
        from: Option<i32>,
        path: u64,
        follow: bool,
        /// An empty path means the folder or descriptor itself.
        empty: bool,
    },
}

/// What to set, by values and addresses.
#[derive(Debug, PartialEq, Eq)]
enum What {
    Mode(u32),
    Owner(u32, u32),
    /// The address of two times; 0 is now.
    Times(u64),
    Attribute {
        name: u64,
        value: u64,
        length: u64,
        flags: u32,
    },
    NoAttribute(u64),
}

/// The same, once it was read.
enum Told {
    Mode(u32),
    Owner(u32, u32),
    Times([i64; 4]),
    Attribute { name: CString, value: Vec<u8>, flags: u32 },
    NoAttribute(CString),
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
        let wish = Wish::of(notice)?;
        let asker = PathBuf::from(format!("/proc/{}", notice.task));
        let memory = fs::File::open(asker.join("mem"))?;
        let told = wish.what.read(&memory)?;
        let open = |fd: Option<i32>| {
            let name = match fd {
                Some(fd) if fd < 0 => return Err(Errno::BADF),
                Some(fd) => asker.join("fd").join(fd.to_string()),
                None => asker.join("cwd"),
            };
            let there = openat(CWD, &name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
            there.map_err(|e| if e == Errno::NOENT { Errno::BADF } else { e })
        };
        let (base, path) = match &wish.of {
            Of::Open(fd) => (open(Some(*fd))?, None),
            Of::Path { from, path, follow, empty } => {
                let path = as_asked(notice.task, text(&memory, *path, 4096)?);
                (open(*from)?, Some((path, *follow, *empty)))
            }
        };
        // The number may belong to somebody else by now; then none of this was theirs.
        sys::notice_is_valid(&self.0, notice.id)?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let target = match path {
            None => base,
            Some((path, _, true)) if path.is_empty() => base,
            Some((path, ..)) if path.is_empty() => return Err(Errno::NOENT.into()),
            Some((path, true, _)) => openat(&base, &path, flags, Mode::empty())?,
            Some((path, false, _)) => openat(&base, &path, flags | OFlags::NOFOLLOW, Mode::empty())?,
        };
        let name = within(&target, place)?;
        sys::set_marked(&name, &told.setting(), filter::MARK)
    }
}

impl AsFd for Attributes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wish {
    fn of(notice: &Notice) -> Result<Wish, Errno> {
        let [a, b, c, d, e, _] = notice.args;
        let low = |arg: u64| u32::try_from(arg & 0xffff_ffff).unwrap_or(0);
        let fd = |arg: u64| low(arg).cast_signed();
        let from = |arg: u64| (fd(arg) != libc::AT_FDCWD).then_some(fd(arg));
        let follow = |arg: u64| low(arg) & AtFlags::SYMLINK_NOFOLLOW.bits() == 0;
        let empty = |arg: u64| low(arg) & AtFlags::EMPTY_PATH.bits() != 0;
        let of = |from: Option<i32>, path: u64, flags: u64| Of::Path {
            from,
            path,
            follow: follow(flags),
            empty: empty(flags),
        };
        let (of, what) = match notice.call {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => (of(None, a, 0), What::Mode(low(b))),
            libc::SYS_fchmod => (Of::Open(fd(a)), What::Mode(low(b))),
            libc::SYS_fchmodat => (of(from(a), b, 0), What::Mode(low(c))),
            libc::SYS_fchmodat2 => (of(from(a), b, d), What::Mode(low(c))),
            libc::SYS_fchown => (Of::Open(fd(a)), What::Owner(low(b), low(c))),
            libc::SYS_utimensat if b == 0 => match from(a) {
                Some(_) if low(d) != 0 => return Err(Errno::INVAL),
                Some(fd) => (Of::Open(fd), What::Times(c)),
                None => return Err(Errno::FAULT),
            },
            libc::SYS_utimensat => (of(from(a), b, d), What::Times(c)),
            libc::SYS_fsetxattr => {
                (Of::Open(fd(a)), What::Attribute { name: b, value: c, length: d, flags: low(e) })
            }
            libc::SYS_fremovexattr => (Of::Open(fd(a)), What::NoAttribute(b)),
            _ => return Err(Errno::PERM),
        };
        Ok(Wish { of, what })
    }
}

impl What {
    fn read(&self, memory: &fs::File) -> io::Result<Told> {
        let name = |at: u64| -> io::Result<CString> {
            let name = text(memory, at, NAME + 1).map_err(|e| match e.raw_os_error() {
                Some(libc::ENAMETOOLONG) => Errno::RANGE.into(),
                _ => e,
            })?;
            CString::new(name).map_err(io::Error::other)
        };
        Ok(match *self {
            // Neither here nor at the end of the run may a program get the rights of whoever owns it.
            What::Mode(mode) => Told::Mode(mode & 0o1777),
            What::Owner(uid, gid) => Told::Owner(uid, gid),
            What::Times(0) => Told::Times([0, libc::UTIME_NOW, 0, libc::UTIME_NOW]),
            What::Times(at) => Told::Times(times(memory, at)?),
            What::Attribute { name: at, value, length, flags } => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                if length > VALUE {
                    return Err(Errno::TOOBIG.into());
                }
                let mut bytes = vec![0; length];
                if length > 0 {
                    memory.read_exact_at(&mut bytes, value).map_err(|_| Errno::FAULT)?;
                }
                Told::Attribute { name: name(at)?, value: bytes, flags }
            }
            What::NoAttribute(at) => Told::NoAttribute(name(at)?),
        })
    }
}

impl Told {
    fn setting(&self) -> Setting<'_> {
        match self {
            Told::Mode(mode) => Setting::Mode(*mode),
            Told::Owner(uid, gid) => Setting::Owner(*uid, *gid),
            Told::Times(times) => Setting::Times(*times),
            Told::Attribute { name, value, flags } => Setting::Attribute { name, value, flags: *flags },
            Told::NoAttribute(name) => Setting::NoAttribute(name),
        }
    }
}

/// The same path, where what it begins with means whoever asks: here it would mean init.
fn as_asked(task: u32, path: Vec<u8>) -> Vec<u8> {
    let own = [
        ("/proc/self/", ""),
        ("/proc/thread-self/", ""),
        ("/dev/fd/", "fd/"),
        ("/dev/stdin", "fd/0"),
        ("/dev/stdout", "fd/1"),
        ("/dev/stderr", "fd/2"),
    ];
    let found =
        own.into_iter().find_map(|(name, inside)| Some((inside, path.strip_prefix(name.as_bytes())?)));
    match found {
        Some((inside, rest)) => [format!("/proc/{task}/{inside}").as_bytes(), rest].concat(),
        None => path,
    }
}

/// A name by which nothing but this same file or folder is meant, if it lies where a guest may write. Not opened again:
/// a guest may have closed it to itself.
fn within(target: &OwnedFd, place: &Place) -> io::Result<CString> {
    match FileType::from_raw_mode(fstat(target)?.st_mode) {
        FileType::RegularFile | FileType::Directory => {}
        // A link has no mode of its own, and a pipe no place.
        _ => return Err(Errno::OPNOTSUPP.into()),
    }
    let own = format!("/proc/self/fd/{}", target.as_raw_fd());
    let real = fs::read_link(&own)?;
    if ![&place.workspace, &place.tmp].iter().any(|folder| real.starts_with(folder)) {
        return Err(Errno::PERM.into());
    }
    CString::new(own).map_err(io::Error::other)
}

/// A text in the memory of the asking process, of fewer bytes than these.
fn text(memory: &fs::File, at: u64, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 256];
    while bytes.len() < most {
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

fn times(memory: &fs::File, at: u64) -> io::Result<[i64; 4]> {
    let mut raw = [0; 32];
    memory.read_exact_at(&mut raw, at).map_err(|_| Errno::FAULT)?;
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(raw.chunks_exact(8)) {
        let mut eight = [0; 8];
        eight.copy_from_slice(bytes);
        *word = i64::from_ne_bytes(eight);
    }
    Ok(words)
}
