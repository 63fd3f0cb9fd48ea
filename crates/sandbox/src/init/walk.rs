//! Names beneath the workspace, resolved by descriptor.
//!
//! The kernel is asked first, where it can be told to stay beneath a folder (`openat2`). What it refuses, or where it
//! cannot be asked (older gVisor), is walked: each part of a path is opened under the folder opened before it and never
//! through a link; links are read and walked like any other path, `..` goes back to the folder we came from. So nothing
//! outside can be reached either way, and a name that is swapped while we walk can only lead to another place inside.
//!
//! The last name is never resolved by anybody: who uses it does so in the folder that was reached, through no link.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, openat, openat2, readlinkat,
    statat, unlinkat,
};

use crate::launch::{Place as Where, WORKSPACE};

/// Links followed on one way, as many as the kernel follows.
const MAX_LINKS: u32 = 40;

/// The workspace, and the absolute names it goes by.
pub(super) struct Workspace {
    top: OwnedFd,
    /// Its real name. `/workspace` is understood everywhere, also where it lies somewhere else.
    real: OsString,
    /// Whether the kernel is asked before we walk.
    kernel: bool,
}

/// The end of a way: a folder that exists, and a name in it that may not.
pub(super) struct Place {
    pub(super) folder: OwnedFd,
    pub(super) name: OsString,
    /// Folders that were made on the way, the outermost first: each by the one it is in.
    pub(super) made: Vec<(OwnedFd, OsString)>,
}

/// Why a path leads nowhere we may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WalkError {
    #[error("the path leaves the workspace")]
    Outside,
    #[error("too many links")]
    Links,
    #[error(transparent)]
    System(#[from] rustix::io::Errno),
}

impl From<WalkError> for std::io::Error {
    fn from(e: WalkError) -> Self {
        match e {
            WalkError::Outside => std::io::Error::from(rustix::io::Errno::XDEV),
            WalkError::Links => std::io::Error::from(rustix::io::Errno::LOOP),
            WalkError::System(e) => e.into(),
        }
    }
}

/// Whether missing folders on the way are made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Error,
    Make,
}

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Workspace {
    pub(super) fn open(place: &Where) -> Result<Workspace, WalkError> {
        let top = openat(CWD, &place.workspace, FOLDER | OFlags::RDONLY, Mode::empty())?;
        Ok(Workspace { top, real: place.workspace.clone().into_os_string(), kernel: true })
    }

    /// A folder as one, with or without the kernel's help.
    #[cfg(test)]
    pub(super) fn of(folder: &std::path::Path, kernel: bool) -> Workspace {
        let mut workspace = Workspace::open(&Where { workspace: folder.to_owned(), ..Where::own() }).unwrap();
        workspace.kernel = kernel;
        workspace
    }

    /// The parts of a path, as they are written; none of an absolute one that lies elsewhere.
    pub(super) fn parts<'a>(&self, path: &'a OsStr) -> Option<Vec<&'a [u8]>> {
        let bytes = path.as_bytes();
        let relative = if bytes.first() == Some(&b'/') { self.beneath(bytes)? } else { bytes };
        Some(relative.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".").collect())
    }

    /// What of an absolute path lies beneath the workspace.
    fn beneath<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        [WORKSPACE.as_bytes(), self.real.as_bytes()].into_iter().find_map(|name| {
            let rest = path.strip_prefix(name)?;
            matches!(rest.first(), None | Some(b'/')).then_some(rest)
        })
    }

    /// Opens a folder.
    pub(super) fn folder(&self, path: &OsStr) -> Result<OwnedFd, WalkError> {
        match self.place(path, Missing::Error)? {
            Some(place) => Ok(openat(&place.folder, &place.name, FOLDER | OFlags::RDONLY, Mode::empty())?),
            None => Ok(self.top()?),
        }
    }

    /// Opens a regular file for reading; anything else is an error and never waited on.
    pub(super) fn file(&self, path: &OsStr) -> Result<OwnedFd, WalkError> {
        let Some(place) = self.place(path, Missing::Error)? else {
            return Err(rustix::io::Errno::ISDIR.into());
        };
        open_regular(&place)
    }

    /// Where a path ends, links on the way and at its end followed within the workspace.
    /// `None` is the workspace itself.
    pub(super) fn place(&self, path: &OsStr, missing: Missing) -> Result<Option<Place>, WalkError> {
        match self.asked(path) {
            Some(place) => Ok(Some(place)),
            None => self.walked(path, missing),
        }
    }

    /// The same in one question to the kernel; none where it has no answer, or one that we do not take from it.
    fn asked(&self, path: &OsStr) -> Option<Place> {
        if !self.kernel || path.as_bytes().contains(&0) {
            return None;
        }
        let mut parts = self.parts(path)?;
        let name = OsStr::from_bytes(parts.pop().filter(|name| *name != b"..")?);
        let folder = if parts.is_empty() { b".".to_vec() } else { parts.join(&b'/') };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let folder = openat2(&self.top, OsStr::from_bytes(&folder), flags, Mode::empty(), beneath).ok()?;
        match kind_of(&folder, name) {
            Ok(FileType::Symlink) => None,
            Ok(_) | Err(rustix::io::Errno::NOENT) => {
                Some(Place { folder, name: name.to_owned(), made: Vec::new() })
            }
            Err(_) => None,
        }
    }

    fn walked(&self, path: &OsStr, missing: Missing) -> Result<Option<Place>, WalkError> {
        let mut made = Vec::new();
        let place = self.walk(path, missing, &mut made);
        match place {
            Ok(place) => Ok(place.map(|(folder, name)| Place { folder, name, made })),
            Err(e) => {
                for (folder, name) in made.iter().rev() {
                    // One that somebody uses by now stays.
                    unlinkat(folder, name, AtFlags::REMOVEDIR).ok();
                }
                Err(e)
            }
        }
    }

    fn walk(
        &self,
        path: &OsStr,
        missing: Missing,
        made: &mut Vec<(OwnedFd, OsString)>,
    ) -> Result<Option<(OwnedFd, OsString)>, WalkError> {
        let mut rest: VecDeque<OsString> = VecDeque::new();
        // An absolute path means the same place as for a command: beneath /workspace or nowhere.
        self.push_front(&mut rest, path)?;
        let mut trail = vec![self.top()?];
        let mut links = 0;
        let mut last: Option<OsString> = None;
        while let Some(part) = rest.pop_front() {
            if part == ".." {
                if trail.len() == 1 {
                    return Err(WalkError::Outside);
                }
                trail.pop();
                continue;
            }
            if part == "\0root" {
                trail.truncate(1);
                continue;
            }
            let at = trail.last().ok_or(WalkError::Outside)?;
            match kind_of(at, &part) {
                Ok(FileType::Symlink) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(WalkError::Links);
                    }
                    let target = readlinkat(at, &part, Vec::new())?;
                    self.push_front(&mut rest, OsStr::from_bytes(target.as_bytes()))?;
                }
                Ok(FileType::Directory) if !rest.is_empty() => {
                    trail.push(openat(at, &part, FOLDER | OFlags::PATH, Mode::empty())?);
                }
                Ok(_) if rest.is_empty() => last = Some(part),
                Ok(_) => return Err(rustix::io::Errno::NOTDIR.into()),
                Err(rustix::io::Errno::NOENT) if rest.is_empty() => last = Some(part),
                Err(rustix::io::Errno::NOENT) if missing == Missing::Make => {
                    match mkdirat(at, &part, Mode::from_raw_mode(0o755)) {
                        Ok(()) => {
                            made.push((openat(at, ".", FOLDER | OFlags::PATH, Mode::empty())?, part.clone()))
                        }
                        Err(rustix::io::Errno::EXIST) => {}
                        Err(e) => return Err(e.into()),
                    }
                    trail.push(openat(at, &part, FOLDER | OFlags::PATH, Mode::empty())?);
                }
                Err(e) => return Err(e.into()),
            }
        }
        let folder = trail.pop().ok_or(WalkError::Outside)?;
        Ok(match last {
            Some(name) => Some((folder, name)),
            // The way ended at a folder itself (`a/..`, `.`): only the workspace is named this way.
            None if trail.is_empty() => None,
            None => Some((folder, OsString::from("."))),
        })
    }

    /// Puts the parts of a path before what is left of the way.
    fn push_front(&self, rest: &mut VecDeque<OsString>, path: &OsStr) -> Result<(), WalkError> {
        let bytes = path.as_bytes();
        if bytes.contains(&0) {
            return Err(rustix::io::Errno::INVAL.into());
        }
        let mut parts: Vec<OsString> = Vec::new();
        let relative = if bytes.first() == Some(&b'/') {
            let beneath = self.beneath(bytes).ok_or(WalkError::Outside)?;
            // A marker no name can be: back to the top.
            parts.push(OsString::from("\0root"));
            beneath
        } else {
            bytes
        };
        parts.extend(
            relative
                .split(|b| *b == b'/')
                .filter(|part| !part.is_empty() && *part != b".")
                .map(|part| OsStr::from_bytes(part).to_owned()),
        );
        for part in parts.into_iter().rev() {
            rest.push_front(part);
        }
        Ok(())
    }

    fn top(&self) -> Result<OwnedFd, rustix::io::Errno> {
        openat(&self.top, ".", FOLDER | OFlags::RDONLY, Mode::empty())
    }
}

/// Opens the end of a way for reading if it is a regular file.
pub(super) fn open_regular(place: &Place) -> Result<OwnedFd, WalkError> {
    if kind_of(&place.folder, &place.name)? == FileType::Directory {
        return Err(rustix::io::Errno::ISDIR.into());
    }
    open_regular_in(&place.folder, &place.name)
}

/// The same of a name that was just seen to be no folder.
pub(super) fn open_regular_in(folder: &OwnedFd, name: &OsStr) -> Result<OwnedFd, WalkError> {
    // Without blocking: a pipe without a writer must not hold us.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = openat(folder, name, flags, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
        FileType::RegularFile => Ok(fd),
        _ => Err(rustix::io::Errno::INVAL.into()),
    }
}

/// What a name is, its link not followed.
pub(super) fn look(folder: &OwnedFd, name: &OsStr) -> Result<Stat, rustix::io::Errno> {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn kind_of(folder: &OwnedFd, name: &OsStr) -> Result<FileType, rustix::io::Errno> {
    Ok(FileType::from_raw_mode(look(folder, name)?.st_mode))
}
