//! Takes in what a machine left in its workspace. Every byte is hostile: the whole stream is judged before the
//! first file of the host is touched, and names are only ever opened under folders that were opened before, each once.

use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, fchmod, fchown, futimens,
    mkdirat, openat, statat, symlinkat, unlinkat,
};

use super::archive::{END, FILE, FOLDER, LINK, MAGIC, NAME};
use super::cache::Scratch;
use super::image;
use crate::launch::Bounds;

/// Bytes of all names together.
const NAMES: usize = 64 << 20;
const OPEN: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

/// Why results are not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    #[error("the stream of results is malformed: {0}")]
    Malformed(&'static str),
    #[error("the results are larger than the bound: {0}")]
    TooMuch(&'static str),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<rustix::io::Errno> for UnpackError {
    fn from(e: rustix::io::Errno) -> Self {
        UnpackError::Io(e.into())
    }
}

/// Where results come from and go to; holds the machine's own files until then.
#[derive(Debug)]
pub(crate) struct Results {
    pub(super) scratch: Scratch,
    pub(super) workspace: PathBuf,
    pub(super) bounds: Bounds,
}

impl Results {
    /// Judges the stream and replaces the workspace by it. The machine must be gone.
    pub(crate) fn take(self) -> Result<(), UnpackError> {
        let path = self.scratch.exchange();
        judge(BufReader::new(File::open(&path)?), &self.bounds)?;
        let top = openat(CWD, &self.workspace, OPEN, Mode::empty())?;
        empty(&top)?;
        replace(BufReader::new(File::open(&path)?), &top)
    }
}

/// One entry; of a file, the content follows in the stream.
struct Entry {
    mode: u32,
    mtime: i64,
    name: Vec<u8>,
    kind: Kind,
}

enum Kind {
    Folder,
    File(u64),
    Link(Vec<u8>),
}

/// The next entry, or `None` and the count told at the end.
fn next(from: &mut impl Read) -> Result<Result<Entry, u64>, UnpackError> {
    let kind = u8::from_le_bytes(bytes(from)?);
    if kind == END {
        return Ok(Err(u64::from_le_bytes(bytes(from)?)));
    }
    let mode = u32::from(u16::from_le_bytes(bytes(from)?)) & 0o777;
    let mtime = i64::from_le_bytes(bytes(from)?);
    let name = short(from)?;
    let kind = match kind {
        FOLDER => Kind::Folder,
        FILE => Kind::File(u64::from_le_bytes(bytes(from)?)),
        LINK => Kind::Link(short(from)?),
        _ => return Err(UnpackError::Malformed("an unknown kind of entry")),
    };
    Ok(Ok(Entry { mode, mtime, name, kind }))
}

fn bytes<const N: usize>(from: &mut impl Read) -> Result<[u8; N], UnpackError> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn short(from: &mut impl Read) -> Result<Vec<u8>, UnpackError> {
    let length = usize::from(u16::from_le_bytes(bytes(from)?));
    if length == 0 || length > NAME {
        return Err(UnpackError::Malformed("a name of no or too great length"));
    }
    let mut text = vec![0; length];
    from.read_exact(&mut text)?;
    if text.contains(&0) {
        return Err(UnpackError::Malformed("a name with a zero byte"));
    }
    Ok(text)
}

/// Reads the whole stream and touches nothing.
fn judge(mut from: impl Read, bounds: &Bounds) -> Result<(), UnpackError> {
    if &bytes(&mut from)? != MAGIC {
        return Err(UnpackError::Malformed("no results"));
    }
    let (mut entries, mut total, mut names) = (0_u64, 0_u64, 0_usize);
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    // The folders that the last entry lies in, from the top on.
    let mut way: Vec<Vec<u8>> = vec![Vec::new()];
    loop {
        let entry = match next(&mut from)? {
            Ok(entry) => entry,
            Err(told) if told == entries => return Ok(()),
            Err(_) => return Err(UnpackError::Malformed("the count does not match")),
        };
        entries += 1;
        names += entry.name.len();
        if entries > image::most_files(bounds) || names > NAMES {
            return Err(UnpackError::TooMuch("files"));
        }
        let (folder, last) = split(&entry.name);
        if last.is_empty() || last == b"." || last == b".." || last.len() > 255 {
            return Err(UnpackError::Malformed("a name that leads elsewhere"));
        }
        // Only folders of this very stream are parents: no link, no `..`, nothing absolute. One that was left is not
        // entered again, so that no entry costs the way from the top to it.
        while way.last().is_some_and(|open| open != folder) {
            way.pop();
        }
        if way.is_empty() {
            return Err(UnpackError::Malformed("an entry outside of the folders before it"));
        }
        match entry.kind {
            Kind::Folder => {
                way.push(entry.name.clone());
            }
            Kind::File(size) => {
                total = total.saturating_add(size);
                if total > bounds.file_bytes {
                    return Err(UnpackError::TooMuch("bytes"));
                }
                if io::copy(&mut (&mut from).take(size), &mut io::sink())? != size {
                    return Err(UnpackError::Malformed("it ends in a file"));
                }
            }
            // The longest that a kernel takes.
            Kind::Link(target) if target.len() >= NAME => {
                return Err(UnpackError::Malformed("a link's target of too great length"));
            }
            Kind::Link(_) => {}
        }
        if !seen.insert(entry.name) {
            return Err(UnpackError::Malformed("a name comes twice"));
        }
    }
}

/// Folder and last part of a name.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().rposition(|b| *b == b'/') {
        Some(0) => (b"/", &name[1..]),
        Some(at) => (&name[..at], &name[at + 1..]),
        None => (b"", name),
    }
}

/// Removes everything beneath a folder, however deep: one descriptor at a time, and no stack.
fn empty(folder: &OwnedFd) -> Result<(), UnpackError> {
    let mut at = openat(folder, ".", OPEN, Mode::empty())?;
    let mut way: Vec<CString> = Vec::new();
    loop {
        if let Some((next, name)) = without_files(&at)? {
            at = next;
            way.push(name);
            continue;
        }
        let Some(name) = way.pop() else { return Ok(()) };
        at = openat(&at, "..", OPEN, Mode::empty())?;
        unlinkat(&at, &name, AtFlags::REMOVEDIR)?;
    }
}

/// Removes what is in a folder until it meets a folder, which it opens.
fn without_files(folder: &OwnedFd) -> Result<Option<(OwnedFd, CString)>, UnpackError> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            unlinkat(folder, name, AtFlags::empty())?;
            continue;
        }
        if stat.st_mode & 0o700 != 0o700 {
            // A folder of ours without our own right to empty it.
            rustix::fs::chmodat(folder, name, Mode::RWXU, AtFlags::empty())?;
        }
        return Ok(Some((openat(folder, name, OPEN, Mode::empty())?, name.to_owned())));
    }
    Ok(None)
}

/// Writes a stream that was judged.
fn replace(mut from: impl Read, top: &OwnedFd) -> Result<(), UnpackError> {
    bytes::<8>(&mut from)?;
    let owner = crate::guest_owner();
    let own = |fd: &OwnedFd| match owner {
        Some((uid, gid)) => fchown(fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))),
        None => Ok(()),
    };
    let mut at = openat(top, ".", OPEN, Mode::empty())?;
    let mut way: Vec<(Vec<u8>, u32, i64)> = Vec::new();
    while let Ok(entry) = next(&mut from)? {
        let (folder, last) = split(&entry.name);
        while way.last().map_or(&b""[..], |(open, _, _)| open) != folder {
            at = leave(at, way.pop())?;
        }
        let name = OsStr::from_bytes(last);
        match entry.kind {
            Kind::Folder => {
                mkdirat(&at, name, Mode::from_raw_mode(0o700))?;
                at = openat(&at, name, OPEN, Mode::empty())?;
                own(&at)?;
                way.push((entry.name, entry.mode, entry.mtime));
            }
            Kind::File(size) => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = openat(&at, name, flags, Mode::from_raw_mode(0o600))?;
                let mut file = File::from(fd.try_clone()?);
                if io::copy(&mut (&mut from).take(size), &mut file)? != size {
                    return Err(UnpackError::Malformed("it ends in a file"));
                }
                own(&fd)?;
                settle(&fd, entry.mode, entry.mtime)?;
            }
            Kind::Link(target) => {
                symlinkat(OsStr::from_bytes(&target), &at, name)?;
                if let Some((uid, gid)) = owner {
                    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
                    rustix::fs::chownat(&at, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
                }
            }
        }
    }
    while let Some(open) = way.pop() {
        at = leave(at, Some(open))?;
    }
    Ok(())
}

/// Goes up. A folder's mode and time come when it is full: one without a right to write could not be filled.
fn leave(at: OwnedFd, open: Option<(Vec<u8>, u32, i64)>) -> Result<OwnedFd, UnpackError> {
    let Some((_, mode, mtime)) = open else {
        return Err(UnpackError::Malformed("an entry outside of the folders before it"));
    };
    let up = openat(&at, "..", OPEN, Mode::empty())?;
    settle(&at, mode, mtime)?;
    Ok(up)
}

fn settle(fd: &OwnedFd, mode: u32, mtime: i64) -> Result<(), UnpackError> {
    fchmod(fd, Mode::from_raw_mode(mode & 0o777))?;
    let time = Timespec { tv_sec: mtime, tv_nsec: 0 };
    // A time that this file system cannot hold is no reason to lose a file.
    futimens(fd, &Timestamps { last_access: time, last_modification: time }).ok();
    Ok(())
}

/// For the tests of both sides of the format.
#[cfg(test)]
fn unpack(stream: &[u8], into: &std::path::Path, bounds: &Bounds) -> Result<(), UnpackError> {
    judge(stream, bounds)?;
    let top = openat(CWD, into, OPEN, Mode::empty())?;
    empty(&top)?;
    replace(stream, &top)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn bounds() -> Bounds {
        Bounds {
            cpu_s: 1,
            cores: 1,
            memory: 1,
            processes: 1,
            file_bytes: 1000,
            tmp: 1,
            files: 10,
            weigh: false,
            tally: false,
        }
    }

    fn entry(kind: u8, name: &[u8], rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind, 0xed, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(&u16::try_from(name.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(rest);
        bytes
    }

    fn stream(entries: &[Vec<u8>]) -> Vec<u8> {
        let count = u64::try_from(entries.len()).unwrap();
        [MAGIC.to_vec(), entries.concat(), vec![END], count.to_le_bytes().to_vec()].concat()
    }

    #[test]
    fn a_workspace_comes_back_as_it_was() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(from.path().join("a/b")).unwrap();
        fs::write(from.path().join("a/b/file"), b"content").unwrap();
        fs::set_permissions(from.path().join("a/b/file"), fs::Permissions::from_mode(0o4751)).unwrap();
        fs::set_permissions(from.path().join("a/b"), fs::Permissions::from_mode(0o555)).unwrap();
        symlink("/etc/passwd", from.path().join("link")).unwrap();
        fs::create_dir_all(to.path().join("stale/a/b")).unwrap();
        for name in ["stale/x", "stale/a/x", "stale/a/b/x"] {
            fs::write(to.path().join(name), b"x").unwrap();
        }
        fs::set_permissions(to.path().join("stale/a/b"), fs::Permissions::from_mode(0o500)).unwrap();
        let mut bytes = Vec::new();
        let count = super::super::archive::write(from.path().to_str().unwrap(), &mut bytes).unwrap();
        assert_eq!(count, 4);
        unpack(&bytes, to.path(), &bounds()).unwrap();
        assert_eq!(fs::read(to.path().join("a/b/file")).unwrap(), b"content");
        // A set-user-ID bit does not come out.
        assert_eq!(fs::metadata(to.path().join("a/b/file")).unwrap().permissions().mode() & 0o7777, 0o751);
        assert_eq!(fs::metadata(to.path().join("a/b")).unwrap().permissions().mode() & 0o777, 0o555);
        assert_eq!(fs::read_link(to.path().join("link")).unwrap().to_str().unwrap(), "/etc/passwd");
        assert!(!to.path().join("stale").exists());
        fs::set_permissions(from.path().join("a/b"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(to.path().join("a/b"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn folders_deep_in_each_other_come_back_with_their_modes() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let deep: PathBuf = std::iter::repeat_n("d", 150).collect();
        fs::create_dir_all(from.path().join(&deep)).unwrap();
        for name in ["a", "z"] {
            fs::write(from.path().join(&deep).join(name), name).unwrap();
            fs::create_dir_all(from.path().join("d/d").join(name)).unwrap();
        }
        let mode = |at: &std::path::Path| fs::metadata(at).unwrap().permissions().mode() & 0o777;
        fs::set_permissions(from.path().join("d/d"), fs::Permissions::from_mode(0o750)).unwrap();
        let mut bytes = Vec::new();
        super::super::archive::write(from.path().to_str().unwrap(), &mut bytes).unwrap();
        unpack(&bytes, to.path(), &Bounds { files: 2000, ..bounds() }).unwrap();
        assert_eq!(fs::read(to.path().join(&deep).join("z")).unwrap(), b"z");
        assert!(to.path().join("d/d/z").is_dir());
        assert_eq!((mode(&to.path().join("d/d")), mode(&to.path().join("d/d/d"))), (0o750, 0o755));
    }

    #[test]
    fn a_hostile_stream_touches_nothing() {
        let link = |name: &[u8]| entry(LINK, name, b"\x04\x00/etc");
        let file = |name: &[u8]| entry(FILE, name, b"\x01\0\0\0\0\0\0\0x");
        let folder = |name: &[u8]| entry(FOLDER, name, b"");
        let mut cases = vec![
            stream(&[file(b"../out")]),
            stream(&[file(b"..")]),
            stream(&[file(b"/etc/out")]),
            stream(&[file(b"/out")]),
            stream(&[file(b"a/b")]),
            stream(&[folder(b"a"), file(b"a/../b")]),
            stream(&[folder(b"a"), file(b"a//b")]),
            stream(&[folder(b"a"), file(b"a/")]),
            stream(&[link(b"l"), file(b"l/passwd")]),
            stream(&[link(b"l"), file(b"l")]),
            stream(&[file(b"l"), link(b"l")]),
            stream(&[folder(b"a"), folder(b"a")]),
            // Back to a folder that was left.
            stream(&[folder(b"a"), folder(b"b"), file(b"a/x")]),
            stream(&[folder(b"a"), file(b"b"), file(b"a/x")]),
            stream(&[entry(LINK, b"l", &[&4096_u16.to_le_bytes()[..], &[b'x'; 4096]].concat())]),
            stream(&[file(b"a\0b")]),
            stream(&[file(b"")]),
            stream(&[entry(9, b"a", b"")]),
            stream(&[entry(FILE, b"a", &[0xff; 8])]),
            stream(
                &(0..=image::most_files(&bounds()))
                    .map(|n| folder(format!("f{n}").as_bytes()))
                    .collect::<Vec<_>>(),
            ),
            b"rubbish".to_vec(),
            Vec::new(),
        ];
        let whole = stream(&[file(b"a")]);
        cases.extend((0..whole.len()).map(|n| whole[..n].to_vec()));
        for bytes in cases {
            let to = tempfile::tempdir().unwrap();
            fs::write(to.path().join("kept"), b"x").unwrap();
            unpack(&bytes, to.path(), &bounds()).unwrap_err();
            let left: Vec<_> = fs::read_dir(to.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(left, ["kept"], "{bytes:?}");
        }
    }
}
