//! The writing half: entries become files beneath one folder, and nothing anywhere else.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use policy::Limits;

use crate::beneath::Folder;
use crate::clean::{clean, cut};
use crate::import::{DEEPEST, MOST_NOTES, Progress};
use crate::quote::in_text;

/// What a link may say, and a name in all its parts.
pub(super) const LONGEST_NAME: usize = 4095;
/// More times its own size than an archive of real files has, once it has become more than [`SMALL`].
const RATIO: u64 = 200;
const SMALL: u64 = 64 << 20;
const PIECE: usize = 64 << 10;

/// Why an archive is not unpacked.
#[derive(Debug)]
pub(super) enum Refused {
    /// What it says or holds.
    Archive(String),
    /// Nothing is wrong with it: it cannot be written.
    Write(io::Error),
    Cancelled,
}

/// For what concerns one entry.
pub(super) fn entry(name: &[u8], why: impl std::fmt::Display) -> Refused {
    let name = name.get(..300).unwrap_or(name);
    Refused::Archive(format!("the entry {}: {why}", in_text(Path::new(OsStr::from_bytes(name)))))
}

/// What cannot be read is the archive's fault, whatever it is.
pub(super) fn unread(e: &io::Error) -> Refused {
    Refused::Archive(broken(e))
}

/// The folder that is filled.
pub(super) struct Unpack<'a> {
    root: Folder,
    limits: &'a Limits,
    progress: Progress<'a>,
    /// Where the last entry was put.
    parent: (PathBuf, Folder),
    notes: Vec<String>,
    more_notes: u64,
    files: u64,
    bytes: u64,
    /// Bytes of the archive itself, once that is known.
    pub(super) packed: u64,
    piece: Vec<u8>,
}

impl<'a> Unpack<'a> {
    pub(super) fn into(into: &Path, limits: &'a Limits, progress: Progress<'a>) -> Result<Self, Refused> {
        let open = || Folder::open(into).map_err(Refused::Write);
        Ok(Unpack {
            root: open()?,
            limits,
            progress,
            parent: (PathBuf::new(), open()?),
            notes: Vec::new(),
            more_notes: 0,
            files: 0,
            bytes: 0,
            packed: u64::MAX,
            piece: vec![0; PIECE],
        })
    }

    pub(super) fn end(mut self) -> Vec<String> {
        if self.more_notes > 0 {
            self.notes.push(format!("and {} more", self.more_notes));
        }
        self.notes
    }

    pub(super) fn limits(&self) -> &Limits {
        self.limits
    }

    /// A folder; naming one twice is no harm.
    pub(super) fn folder(&mut self, name: &[u8], mode: u32) -> Result<(), Refused> {
        let path = beneath(name)?;
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        self.reach(&path, name)?;
        self.parent.1.set_mode((mode & 0o777) | 0o700).map_err(Refused::Write)
    }

    /// A file that holds exactly `size` bytes of `content`.
    pub(super) fn file(
        &mut self,
        name: &[u8],
        (mode, modified): (u32, Option<SystemTime>),
        size: u64,
        content: &mut dyn Read,
    ) -> Result<(), Refused> {
        let path = self.new_entry(name)?;
        self.room(name, size)?;
        let mut file = self.parent.1.create(last(&path, name)?, 0o600).map_err(|e| taken(name, e))?;
        let mut left = size;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let n = content.read(&mut self.piece[..most]).map_err(|e| entry(name, broken(&e)))?;
            if n == 0 {
                return Err(entry(name, "it ends before its size: the archive was cut off"));
            }
            file.write_all(&self.piece[..n]).map_err(Refused::Write)?;
            let n = u64::try_from(n).unwrap_or(u64::MAX);
            left -= n;
            self.bytes += n;
            self.look(name)?;
        }
        if mode & 0o7000 != 0 {
            self.note(&path, "taken in without its setuid, setgid or sticky bit");
        }
        // We must be able to read it ourselves.
        let mode = Permissions::from_mode((mode & 0o777) | 0o400);
        file.set_permissions(mode).map_err(Refused::Write)?;
        match modified {
            Some(time) => file.set_modified(time).map_err(Refused::Write),
            None => Ok(()),
        }
    }

    /// A symbolic link, whatever it says: nothing walks through it here.
    pub(super) fn link(&mut self, name: &[u8], target: &[u8]) -> Result<(), Refused> {
        let path = self.new_entry(name)?;
        if target.is_empty() || target.len() > LONGEST_NAME || target.contains(&0) {
            return Err(entry(name, "a link that says nothing, or too much"));
        }
        let made = self.parent.1.create_link(last(&path, name)?, OsStr::from_bytes(target), None);
        made.map_err(|e| taken(name, e))
    }

    /// Another name of a file that is there already.
    pub(super) fn hard_link(&mut self, name: &[u8], target: &[u8]) -> Result<(), Refused> {
        let first =
            beneath(target).map_err(|_| entry(name, "a hard link whose target leaves the archive"))?;
        let path = self.new_entry(name)?;
        let (parent, other) = (first.parent().unwrap_or(Path::new("")), last(&first, name)?);
        let why = || entry(name, "a hard link to nothing that came before it as a file");
        let folder = self.root.folder(parent).map_err(|_| why())?;
        let meta = folder.look(other).map_err(|_| why())?;
        if !meta.is_file() {
            return Err(why());
        }
        // It comes in as a file of its own, and takes as much.
        self.room(name, meta.len())?;
        self.bytes += meta.len();
        self.look(name)?;
        folder.link(other, &self.parent.1, last(&path, name)?).map_err(|e| taken(name, e))
    }

    fn new_entry(&mut self, name: &[u8]) -> Result<PathBuf, Refused> {
        let path = beneath(name)?;
        if path.as_os_str().is_empty() {
            return Err(entry(name, "it has no name"));
        }
        let parent = path.parent().unwrap_or(Path::new("")).to_owned();
        self.reach(&parent, name)?;
        self.count(name)?;
        Ok(path)
    }

    /// Opens the folder `path`, made where it is not there, so that the next entry can be put into it.
    fn reach(&mut self, path: &Path, name: &[u8]) -> Result<(), Refused> {
        if self.parent.0 == path {
            return Ok(());
        }
        let folder = match self.root.folder(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => self.make(path, name)?,
            other => other.map_err(|e| in_the_way(name, &e))?,
        };
        self.parent = (path.to_owned(), folder);
        Ok(())
    }

    fn make(&mut self, path: &Path, name: &[u8]) -> Result<Folder, Refused> {
        let mut at = self.root.folder(Path::new("")).map_err(Refused::Write)?;
        for part in path {
            at = match at.folder(Path::new(part)) {
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    self.count(name)?;
                    let made = at.create_folder(part).map_err(|e| taken(name, e))?;
                    made.set_mode(0o755).map_err(Refused::Write)?;
                    made
                }
                other => other.map_err(|e| in_the_way(name, &e))?,
            };
        }
        Ok(at)
    }

    fn count(&mut self, name: &[u8]) -> Result<(), Refused> {
        if self.files >= self.limits.files {
            let most = self.limits.files;
            return Err(entry(name, format_args!("more than {most} files in all (`limits.files`)")));
        }
        self.files += 1;
        self.look(name)
    }

    fn room(&self, name: &[u8], size: u64) -> Result<(), Refused> {
        if size > self.limits.disk.saturating_sub(self.bytes) {
            let most = self.limits.disk;
            return Err(entry(name, format_args!("more than {most} bytes in all (`limits.disk`)")));
        }
        Ok(())
    }

    fn look(&self, name: &[u8]) -> Result<(), Refused> {
        if self.bytes > SMALL && self.bytes / RATIO > self.packed {
            let why = format_args!("the archive unpacks to more than {RATIO} times its size: a bomb");
            return Err(entry(name, why));
        }
        if (self.progress)(self.files, self.bytes) { Ok(()) } else { Err(Refused::Cancelled) }
    }

    fn note(&mut self, path: &Path, what: &str) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push(format!("{}: {what}", in_text(path)));
        } else {
            self.more_notes += 1;
        }
    }
}

/// Where a name leads beneath the root; nowhere else.
pub(super) fn beneath(name: &[u8]) -> Result<PathBuf, Refused> {
    if name.is_empty() {
        return Err(entry(name, "it has no name"));
    }
    if name.len() > LONGEST_NAME {
        return Err(entry(name, "its name is too long"));
    }
    if name.contains(&0) {
        return Err(entry(name, "its name has a zero byte"));
    }
    if name.starts_with(b"/") {
        return Err(entry(name, "its name is absolute"));
    }
    let mut path = PathBuf::new();
    let mut depth = 0;
    for part in name.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(entry(name, "its name leaves the archive")),
            part => {
                depth += 1;
                path.push(OsStr::from_bytes(part));
            }
        }
    }
    if depth > DEEPEST {
        return Err(entry(name, format_args!("folders are nested deeper than {DEEPEST}")));
    }
    Ok(path)
}

fn last<'p>(path: &'p Path, name: &[u8]) -> Result<&'p OsStr, Refused> {
    path.file_name().ok_or_else(|| entry(name, "it has no name"))
}

fn taken(name: &[u8], e: io::Error) -> Refused {
    match e.kind() {
        ErrorKind::AlreadyExists => entry(name, "it is there twice"),
        ErrorKind::InvalidFilename => entry(name, "its name is too long"),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem => {
            Refused::Write(e)
        }
        _ => entry(name, e),
    }
}

fn in_the_way(name: &[u8], e: &io::Error) -> Refused {
    let loops = e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    if loops || e.kind() == ErrorKind::NotADirectory {
        return entry(name, "something that is no folder is in the way to it");
    }
    entry(name, e)
}

/// A decoder's word, which may hold what it could not read.
pub(super) fn broken(e: &io::Error) -> String {
    format!("it cannot be read: {}", cut(&clean(e.to_string().as_bytes()).replace('\n', " "), 200))
}
