//! The format in which a workspace comes back: entries one after the other, folders before what is in them.
//!
//! ```text
//!   magic │ entry ... │ 0u8, entries u64
//!   entry: kind u8 │ mode u16 │ mtime i64 │ name u16 + bytes │ file: size u64 + bytes │ link: target u16 + bytes
//! ```
//!
//! Written by the first process of a machine when every guest process is dead; read by the host as hostile.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, readlinkat, statat};

pub(super) const MAGIC: &[u8; 8] = b"oublre1\n";
pub(super) const END: u8 = 0;
pub(super) const FOLDER: u8 = 1;
pub(super) const FILE: u8 = 2;
pub(super) const LINK: u8 = 3;
/// Longest name with its folders, as long as the kernel takes one.
pub(super) const NAME: usize = 4096;
/// Deepest nesting: each level holds a descriptor.
const DEPTH: u32 = 900;

/// Writes everything beneath `folder`; says how many entries that were.
pub(super) fn write(folder: &str, out: &mut impl Write) -> io::Result<u64> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let top = openat(CWD, folder, flags, Mode::empty())?;
    out.write_all(MAGIC)?;
    let mut entries = 0;
    below(&top, b"", 0, out, &mut entries)?;
    out.write_all(&[END])?;
    out.write_all(&entries.to_le_bytes())?;
    Ok(entries)
}

fn below(
    folder: &OwnedFd,
    path: &[u8],
    depth: u32,
    out: &mut impl Write,
    entries: &mut u64,
) -> io::Result<()> {
    if depth > DEPTH {
        return Err(io::Error::other("folders too deep in each other"));
    }
    let mut names: Vec<Vec<u8>> = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_bytes().to_vec();
        // What a file system checker keeps for itself is no part of a workspace.
        if name != b"." && name != b".." && !(depth == 0 && name == b"lost+found") {
            names.push(name);
        }
    }
    names.sort_unstable();
    for name in names {
        let os = OsStr::from_bytes(&name);
        let stat = statat(folder, os, AtFlags::SYMLINK_NOFOLLOW)?;
        let full = if path.is_empty() { name.clone() } else { [path, b"/", &name].concat() };
        let head = |kind: u8| -> io::Result<Vec<u8>> {
            let mut head = vec![kind];
            let mode = u16::try_from(stat.st_mode & 0o7777).unwrap_or(0);
            head.extend_from_slice(&mode.to_le_bytes());
            head.extend_from_slice(&stat.st_mtime.to_le_bytes());
            head.extend_from_slice(&short(&full)?);
            Ok(head)
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                out.write_all(&head(FOLDER)?)?;
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
                below(&openat(folder, os, flags, Mode::empty())?, &full, depth + 1, out, entries)?;
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let fd = openat(folder, os, flags, Mode::empty())?;
                let size = u64::try_from(fstat(&fd)?.st_size).unwrap_or(0);
                out.write_all(&head(FILE)?)?;
                out.write_all(&size.to_le_bytes())?;
                let sent = io::copy(&mut File::from(fd).take(size), out)?;
                if sent != size {
                    return Err(io::Error::other("a file became shorter"));
                }
            }
            FileType::Symlink => {
                let target = readlinkat(folder, os, Vec::new())?;
                out.write_all(&head(LINK)?)?;
                out.write_all(&short(target.as_bytes())?)?;
            }
            // Pipes, sockets and devices have nothing to bring back.
            _ => continue,
        }
        *entries += 1;
    }
    Ok(())
}

/// Bytes with their length before them.
fn short(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let length = u16::try_from(bytes.len()).ok().filter(|_| bytes.len() <= NAME);
    let length = length.ok_or_else(|| io::Error::other("a name is too long"))?;
    Ok([&length.to_le_bytes()[..], bytes].concat())
}
