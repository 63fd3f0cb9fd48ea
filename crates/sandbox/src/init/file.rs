//! File operations of the tools, done where commands run: same view, same ids, same limits.
//!
//! Each runs in a process of its own, so that it can be killed like a command. The answer is one line of JSON on
//! standard output, raw bytes after it where a file is read.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use regex::bytes::RegexBuilder;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fchmod, openat, renameat, unlinkat};
use serde_json::{Value, json};

use super::walk::{Missing, Place, WalkError, Workspace, look, open_regular};
use crate::FileOp;
use crate::launch::Place as Where;

/// Bytes of a file that a search looks at.
const SEARCH_FILE: u64 = 4 << 20;
/// Files that a search looks at.
const SEARCH_FILES: u64 = 50_000;
/// Characters of a matching line that are handed on.
const LINE: usize = 400;
/// How deep a search goes.
const DEPTH: u32 = 64;

/// What went wrong, in a closed kind and a clean sentence.
struct Refusal {
    kind: &'static str,
    message: String,
}

impl From<WalkError> for Refusal {
    fn from(e: WalkError) -> Self {
        let (kind, message) = match e {
            WalkError::Outside => ("outside", "the path leads outside the workspace"),
            WalkError::Links => ("links", "too many links on the way"),
            WalkError::System(e) => return e.into(),
        };
        Refusal { kind, message: message.to_owned() }
    }
}

impl From<rustix::io::Errno> for Refusal {
    fn from(e: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        let (kind, message) = match e {
            Errno::NOENT => ("missing", "no such file or folder"),
            Errno::ISDIR => ("folder", "it is a folder"),
            Errno::NOTDIR => ("not_folder", "a part of the path is not a folder"),
            Errno::ACCESS | Errno::PERM | Errno::ROFS => ("denied", "permission denied"),
            // What `walk` says of a pipe, socket or device, and the system of a socket.
            Errno::INVAL | Errno::NXIO => ("special", "it is not a regular file"),
            Errno::LOOP => ("links", "too many links on the way"),
            Errno::NAMETOOLONG => ("name", "a name is too long"),
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => ("disk", "no space is left"),
            _ => ("system", "the file operation failed"),
        };
        Refusal { kind, message: message.to_owned() }
    }
}

impl From<io::Error> for Refusal {
    fn from(e: io::Error) -> Self {
        rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::IO).into()
    }
}

/// Does it, answers, and gives the exit status.
pub(super) fn serve(op: &FileOp, place: &Where) -> i32 {
    let outcome = Workspace::open(place).map_err(Refusal::from).and_then(|workspace| match op {
        FileOp::Read { path, offset, limit } => read(&workspace, path, *offset, *limit),
        FileOp::Write { path } => write(&workspace, path).map(|v| (v, Vec::new())),
        FileOp::List { path, limit } => list(&workspace, path, *limit).map(|v| (v, Vec::new())),
        FileOp::Search { pattern, path, limit } => {
            search(&workspace, pattern, path, *limit).map(|v| (v, Vec::new()))
        }
    });
    let (answer, bytes, code) = match outcome {
        Ok((value, bytes)) => (json!({ "ok": value }), bytes, 0),
        Err(r) => (json!({ "error": { "kind": r.kind, "message": r.message } }), Vec::new(), 1),
    };
    let mut line = answer.to_string().into_bytes();
    line.push(b'\n');
    let mut out = io::stdout().lock();
    match out.write_all(&line).and_then(|()| out.write_all(&bytes)).and_then(|()| out.flush()) {
        Ok(()) => code,
        Err(_) => 2,
    }
}

fn read(workspace: &Workspace, path: &str, offset: u64, limit: u64) -> Result<(Value, Vec<u8>), Refusal> {
    let fd = workspace.file(path)?;
    let size = u64::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(0);
    let mut file = File::from(fd);
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok((json!({ "size": size, "read": bytes.len() }), bytes))
}

fn write(workspace: &Workspace, path: &str) -> Result<Value, Refusal> {
    let Some(place) = workspace.place(path, Missing::Make)? else {
        return Err(rustix::io::Errno::ISDIR.into());
    };
    let mode = match look(&place.folder, &place.name) {
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Some(stat.st_mode & 0o777),
            FileType::Directory => return Err(rustix::io::Errno::ISDIR.into()),
            _ => return Err(rustix::io::Errno::INVAL.into()),
        },
        Err(rustix::io::Errno::NOENT) => None,
        Err(e) => return Err(e.into()),
    };
    let (temporary, fd) = temporary(&place)?;
    let result = fill(&fd, mode).and_then(|bytes| {
        // Replaces the name at once; a hard link elsewhere keeps the old content.
        renameat(&place.folder, &temporary, &place.folder, &place.name)?;
        Ok(bytes)
    });
    match result {
        Ok(bytes) => Ok(json!({ "created": mode.is_none(), "bytes": bytes })),
        Err(refusal) => {
            // The half-written file must not stay; its own failure adds nothing.
            unlinkat(&place.folder, &temporary, AtFlags::empty()).ok();
            Err(refusal)
        }
    }
}

fn fill(fd: &OwnedFd, mode: Option<u32>) -> Result<u64, Refusal> {
    let mut file = File::from(fd.try_clone()?);
    let bytes = io::copy(&mut io::stdin().lock(), &mut file)?;
    fchmod(fd, Mode::from_raw_mode(mode.unwrap_or(0o644)))?;
    file.sync_all()?;
    Ok(bytes)
}

/// A new file of a name that nobody else uses, in the folder of the place.
fn temporary(place: &Place) -> Result<(String, OwnedFd), Refusal> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pid = rustix::process::getpid().as_raw_nonzero();
    for n in 0..100 {
        let name = format!(".write-{pid}-{n}.tmp");
        match openat(&place.folder, &name, flags, Mode::from_raw_mode(0o600)) {
            Ok(fd) => return Ok((name, fd)),
            Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(rustix::io::Errno::EXIST.into())
}

fn kind(file_type: FileType) -> &'static str {
    match file_type {
        FileType::RegularFile => "file",
        FileType::Directory => "dir",
        FileType::Symlink => "link",
        _ => "other",
    }
}

/// Names in a folder, sorted by bytes so that the answer is always the same.
fn names(folder: &OwnedFd) -> Result<Vec<Vec<u8>>, Refusal> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn list(workspace: &Workspace, path: &str, limit: u32) -> Result<Value, Refusal> {
    let folder = workspace.folder(path)?;
    let all = names(&folder)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut entries = Vec::new();
    for name in all.iter().take(limit) {
        let os = OsStr::from_bytes(name);
        // A name that went away since is simply not there.
        let Ok(stat) = look(&folder, os) else { continue };
        entries.push(json!({
            "name": String::from_utf8_lossy(name),
            "kind": kind(FileType::from_raw_mode(stat.st_mode)),
            "size": stat.st_size,
        }));
    }
    Ok(json!({ "entries": entries, "more": all.len().saturating_sub(limit) }))
}

struct Hunt {
    pattern: regex::bytes::Regex,
    limit: u32,
    matches: Vec<Value>,
    more: u64,
    files: u64,
}

fn search(workspace: &Workspace, pattern: &str, path: &str, limit: u32) -> Result<Value, Refusal> {
    let pattern = RegexBuilder::new(pattern)
        .size_limit(1 << 20)
        .dfa_size_limit(4 << 20)
        .build()
        .map_err(|e| Refusal { kind: "pattern", message: pattern_problem(&e) })?;
    let mut hunt = Hunt { pattern, limit, matches: Vec::new(), more: 0, files: 0 };
    let shown = workspace.relative(path).trim_matches('/');
    let shown = if shown == "." { "" } else { shown };
    match workspace.place(path, Missing::Error)? {
        None => hunt.folder(&workspace.folder(".")?, "", 0)?,
        Some(place) => match FileType::from_raw_mode(look(&place.folder, &place.name)?.st_mode) {
            FileType::Directory => hunt.folder(&workspace.folder(path)?, shown, 0)?,
            _ => hunt.file(File::from(open_regular(&place)?), shown)?,
        },
    }
    Ok(json!({ "matches": hunt.matches, "more": hunt.more, "files": hunt.files }))
}

fn pattern_problem(e: &regex::Error) -> String {
    match e {
        regex::Error::CompiledTooBig(_) => "the pattern is too large".to_owned(),
        other => {
            // The last line of a syntax error says what is wrong; the ones above draw the pattern.
            let text = other.to_string();
            let last = text.lines().last().unwrap_or("not a pattern").trim().to_owned();
            format!("not a valid pattern: {}", last.trim_start_matches("error: "))
        }
    }
}

impl Hunt {
    fn folder(&mut self, folder: &OwnedFd, shown: &str, depth: u32) -> Result<(), Refusal> {
        if depth > DEPTH {
            return Ok(());
        }
        for name in names(folder)? {
            if name == b".git" {
                continue;
            }
            let os = OsStr::from_bytes(&name);
            let Ok(stat) = look(folder, os) else { continue };
            let text = String::from_utf8_lossy(&name);
            let path = if shown.is_empty() { text.into_owned() } else { format!("{shown}/{text}") };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
                    if let Ok(next) = openat(folder, os, flags, Mode::empty()) {
                        self.folder(&next, &path, depth + 1)?;
                    }
                }
                FileType::RegularFile if self.files < SEARCH_FILES => {
                    let place = Place { folder: folder.try_clone()?, name: os.to_owned() };
                    if let Ok(fd) = open_regular(&place) {
                        self.file(File::from(fd), &path)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn file(&mut self, file: File, shown: &str) -> Result<(), Refusal> {
        self.files += 1;
        let mut reader = BufReader::new(file.take(SEARCH_FILE));
        if reader.fill_buf()?.iter().take(8192).any(|b| *b == 0) {
            return Ok(());
        }
        let mut line = Vec::new();
        let mut number = 0_u64;
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            number += 1;
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            if !self.pattern.is_match(text) {
                continue;
            }
            if self.matches.len() < usize::try_from(self.limit).unwrap_or(usize::MAX) {
                let text: String = String::from_utf8_lossy(text).chars().take(LINE).collect();
                self.matches.push(json!({ "path": shown, "line": number, "text": text }));
            } else {
                self.more += 1;
            }
        }
    }
}
