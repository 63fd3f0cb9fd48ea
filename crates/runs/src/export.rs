//! What a run has made, as one archive: the workspace as it was collected, and nothing else.
//!
//! Only what the record names goes in, and only where its content still has the recorded digest: plain files, and
//! links that stay inside. Times, owners and the order are always the same, so the same workspace is the same archive.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::apply::now_in;
use crate::beneath::Folder;
use crate::collect::repository;
use crate::manifest::{Item, Kind, Manifest, hex};
use crate::quote::in_text;

const BLOCK: usize = 512;
/// What a name or a target may have in a plain header.
const SHORT: usize = 100;
/// What eleven digits of eight can say.
const LARGEST_PLAIN: u64 = 0o77_777_777_777;

/// Writes every entry; remarks about those that are left out.
pub(crate) fn tar(work: &Folder, manifest: &Manifest, out: &mut dyn Write) -> io::Result<Vec<String>> {
    let mut notes = Vec::new();
    for (path, item) in manifest {
        if repository(path).is_some() {
            continue;
        }
        match &item.kind {
            Kind::Folder => {
                // One that the guest has removed.
                if work.folder(path).is_ok() {
                    header(out, path, item, b'5', 0, OsStr::new(""))?;
                }
            }
            Kind::Link { target } => match now_in(work, path)? {
                Some(is) if is == *target => header(out, path, item, b'2', 0, target)?,
                Some(_) | None => {
                    notes.push(format!("{}: left out, it is not what was collected", in_text(path)))
                }
            },
            Kind::File { size, sha256 } => {
                if !work
                    .file(path)
                    .and_then(|file| sum(file, *size, &mut io::sink()))
                    .is_ok_and(|is| is == *sha256)
                {
                    notes.push(format!("{}: left out, it is not what was collected", in_text(path)));
                    continue;
                }
                header(out, path, item, b'0', *size, OsStr::new(""))?;
                if sum(work.file(path)?, *size, out)? != *sha256 {
                    return Err(io::Error::other("a file was changed while it was written"));
                }
                pad(out, *size)?;
            }
        }
    }
    out.write_all(&[0; 2 * BLOCK])?;
    Ok(notes)
}

/// Copies exactly so many bytes, and says their digest.
fn sum(file: std::fs::File, size: u64, out: &mut dyn Write) -> io::Result<String> {
    let mut file = file.take(size);
    let mut sum = Sha256::new();
    let mut piece = vec![0u8; 256 * 1024];
    let mut all = 0;
    loop {
        let n = file.read(&mut piece)?;
        let Some(bytes) = piece.get(..n).filter(|b| !b.is_empty()) else { break };
        sum.update(bytes);
        out.write_all(bytes)?;
        all += u64::try_from(n).unwrap_or(u64::MAX);
    }
    if all == size { Ok(hex(&sum.finalize())) } else { Err(io::Error::other("a file has become shorter")) }
}

fn header(
    out: &mut dyn Write,
    path: &Path,
    item: &Item,
    kind: u8,
    size: u64,
    target: &OsStr,
) -> io::Result<()> {
    let mut name = path.as_os_str().as_bytes().to_vec();
    if kind == b'5' {
        name.push(b'/');
    }
    let target = target.as_bytes();
    // As GNU tar writes them: any bytes of any length, which the standard's own way cannot say.
    for (kind, text) in [(b'K', target), (b'L', name.as_slice())] {
        if text.len() > SHORT {
            let size = u64::try_from(text.len() + 1).unwrap_or(u64::MAX);
            out.write_all(&block(b"././@LongLink", 0o644, kind, size, b""))?;
            out.write_all(text)?;
            out.write_all(&[0])?;
            pad(out, size)?;
        }
    }
    let mode = match kind {
        b'0' if item.mode & 0o100 == 0 => 0o644,
        b'2' => 0o777,
        _ => 0o755,
    };
    let short = |bytes: &[u8]| bytes.get(..SHORT).unwrap_or(bytes).to_vec();
    out.write_all(&block(&short(&name), mode, kind, size, &short(target)))
}

fn block(name: &[u8], mode: u32, kind: u8, size: u64, target: &[u8]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = block.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(0, name);
    put(100, format!("{mode:07o}\0").as_bytes());
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    if size > LARGEST_PLAIN {
        put(124, &[0x80, 0, 0, 0]);
        put(128, &size.to_be_bytes());
    } else {
        put(124, format!("{size:011o}\0").as_bytes());
    }
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, target);
    put(257, b"ustar  \0");
    put(329, b"0000000\0");
    put(337, b"0000000\0");
    let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
    if let Some(place) = block.get_mut(148..156) {
        place.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    block
}

fn pad(out: &mut dyn Write, size: u64) -> io::Result<()> {
    let over = usize::try_from(size % 512).unwrap_or(0);
    if over == 0 { Ok(()) } else { out.write_all(&[0; BLOCK][over..]) }
}
