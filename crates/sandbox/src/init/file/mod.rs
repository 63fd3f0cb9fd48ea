//! File operations of the tools, done where commands run: same view, same ids, same limits.
//!
//! Each runs in a process of its own, so that it can be killed like a command. The answer is one line of JSON on
//! standard output, raw bytes after it where a file is read.

mod change;
mod glob;
mod ignored;
mod lines;
mod search;
mod tree;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{Dir, FileType};
use serde_json::{Value, json};

use super::walk::{WalkError, Workspace, look};
use crate::launch::Place as Where;
use crate::{Change, FileOp, To, Was};

/// What went wrong, in a closed kind and a clean sentence.
#[derive(Debug)]
struct Refusal {
    kind: &'static str,
    message: String,
}

impl Refusal {
    fn new(kind: &'static str, message: &str) -> Refusal {
        Refusal { kind, message: message.to_owned() }
    }
}

impl From<WalkError> for Refusal {
    fn from(e: WalkError) -> Self {
        match e {
            WalkError::Outside => Refusal::new("outside", "the path leads outside the workspace"),
            WalkError::Links => Refusal::new("links", "too many links on the way"),
            WalkError::System(e) => e.into(),
        }
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
        Refusal::new(kind, message)
    }
}

impl From<io::Error> for Refusal {
    fn from(e: io::Error) -> Self {
        rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::IO).into()
    }
}

/// Does it, answers, and gives the exit status.
pub(super) fn serve(op: &FileOp, place: &Where) -> i32 {
    let outcome = Workspace::open(place)
        .map_err(Refusal::from)
        .and_then(|workspace| carry_out(&workspace, op, &mut io::stdin().lock()));
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

fn carry_out(
    workspace: &Workspace,
    op: &FileOp,
    content: &mut dyn Read,
) -> Result<(Value, Vec<u8>), Refusal> {
    let answer = match op {
        FileOp::Read { path, offset, limit } => return read(workspace, &named(path)?, *offset, *limit),
        FileOp::Write { path } => {
            let to = To::Content { bytes: None, executable: None };
            let wish = Change { path: path.clone(), was: Was::Any, to };
            let done = change::change(workspace, std::slice::from_ref(&wish), content)?;
            json!({ "created": done.created > 0, "bytes": done.bytes })
        }
        FileOp::Change { changes } => {
            change::change(workspace, changes, content)?;
            json!({ "files": changes.len() })
        }
        FileOp::List { path, limit } => list(workspace, &named(path)?, *limit)?,
        FileOp::Glob { pattern, path, limit, ignored } => {
            glob::glob(workspace, pattern, &named(path)?, *limit, *ignored)?
        }
        FileOp::Search { pattern, path, limit, ignored } => {
            search::search(workspace, pattern, &named(path)?, *limit, *ignored)?
        }
    };
    Ok((answer, Vec::new()))
}

/// The path that a text stands for.
fn named(text: &str) -> Result<OsString, Refusal> {
    let bytes = policy::unquoted(text).map_err(|e| Refusal::new("name", &e.to_string()))?;
    Ok(OsString::from_vec(bytes.into_owned()))
}

fn read(workspace: &Workspace, path: &OsStr, offset: u64, limit: u64) -> Result<(Value, Vec<u8>), Refusal> {
    let fd = workspace.file(path)?;
    let stat = rustix::fs::fstat(&fd)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let mut file = File::from(fd);
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    let executable = stat.st_mode & 0o111 != 0;
    Ok((json!({ "size": size, "read": bytes.len(), "executable": executable }), bytes))
}

fn kind(file_type: FileType) -> &'static str {
    match file_type {
        FileType::RegularFile => "file",
        FileType::Directory => "dir",
        FileType::Symlink => "link",
        _ => "other",
    }
}

/// Names in a folder and what they are, sorted by bytes so that the answer is always the same.
fn names(folder: &OwnedFd) -> Result<Vec<(OsString, FileType)>, rustix::io::Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push((OsStr::from_bytes(name).to_owned(), entry.file_type()));
        }
    }
    names.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(names)
}

fn list(workspace: &Workspace, path: &OsStr, limit: u32) -> Result<Value, Refusal> {
    let folder = workspace.folder(path)?;
    let all = names(&folder)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut entries = Vec::new();
    for (name, _) in all.iter().take(limit) {
        // A name that went away since is simply not there.
        let Ok(stat) = look(&folder, name) else { continue };
        entries.push(json!({
            "name": policy::quoted(name.as_bytes()),
            "kind": kind(FileType::from_raw_mode(stat.st_mode)),
            "size": stat.st_size,
        }));
    }
    Ok(json!({ "entries": entries, "more": all.len().saturating_sub(limit) }))
}

#[cfg(test)]
mod tests;
