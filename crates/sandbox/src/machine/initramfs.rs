//! The first file system of a machine: this very program as `/init`, and the modules it loads. A `newc` archive.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::cache;
use super::kernel::Kernel;

/// Makes it, or takes the one that was made from the same program and kernel.
pub(super) fn make(cache: &Path, kernel: &Kernel, program: &Path) -> io::Result<PathBuf> {
    // By the link of a running process: that file is there, whatever happened to its name.
    let real = fs::read_link(program)?;
    let stamps: String =
        kernel.modules.iter().map(PathBuf::as_path).chain([real.as_path()]).map(cache::stamp).collect();
    let path = cache.join(format!("initramfs-{}", cache::digest(&[stamps.as_bytes()])));
    if path.exists() {
        return Ok(path);
    }
    let mut archive = Archive { bytes: Vec::new(), number: 1 };
    for folder in ["dev", "proc", "sys", "cg", "root", "modules"] {
        archive.entry(folder, 0o040_755, (0, 0), &[]);
    }
    // The standard streams must be there before anything is mounted.
    archive.entry("dev/console", 0o020_600, (5, 1), &[]);
    archive.entry("dev/null", 0o020_666, (1, 3), &[]);
    archive.entry("init", 0o100_755, (0, 0), &without_symbols(fs::read(program)?));
    for (n, module) in kernel.modules.iter().enumerate() {
        let name = module.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        archive.entry(&format!("modules/{n:02}-{name}"), 0o100_644, (0, 0), &fs::read(module)?);
    }
    archive.entry("TRAILER!!!", 0, (0, 0), &[]);
    // In a folder of nobody else: another start may be making the same.
    let scratch = cache::Scratch::new(cache)?;
    let temporary = scratch.path().join("initramfs");
    let mut file = fs::File::create(&temporary)?;
    file.write_all(&archive.bytes)?;
    cache::give(&temporary, 0, 0o644)?;
    fs::rename(&temporary, &path)?;
    cache::forget_old(cache, "initramfs-", &path);
    Ok(path)
}

struct Archive {
    bytes: Vec<u8>,
    number: u32,
}

impl Archive {
    fn entry(&mut self, name: &str, mode: u32, (major, minor): (u32, u32), content: &[u8]) {
        let size = u32::try_from(content.len()).unwrap_or(0);
        let name_size = u32::try_from(name.len() + 1).unwrap_or(0);
        // inode, mode, uid, gid, links, mtime, size, dev major/minor, rdev major/minor, name size, checksum
        let fields = [self.number, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0]
            .map(|f| format!("{f:08x}"));
        self.number += 1;
        self.bytes.extend_from_slice(b"070701");
        self.bytes.extend_from_slice(fields.concat().as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

/// A static program needs its loaded segments only; symbols and debug data come after them.
fn without_symbols(mut program: Vec<u8>) -> Vec<u8> {
    let word = |at: usize, size: usize| -> Option<usize> {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(program.get(at..at.checked_add(size)?)?);
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let end = || -> Option<usize> {
        // 64 bit, little-endian.
        if program.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let (headers, size, count) = (word(32, 8)?, word(54, 2)?, word(56, 2)?);
        let mut end = headers.checked_add(size.checked_mul(count)?)?;
        for n in 0..count {
            let at = headers.checked_add(n.checked_mul(size)?)?;
            end = end.max(word(at + 8, 8)?.checked_add(word(at + 32, 8)?)?);
        }
        (end <= program.len()).then_some(end)
    };
    if let Some(end) = end() {
        program.truncate(end);
        // No section headers any more.
        program[40..48].fill(0);
        program[58..64].fill(0);
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_named() {
        let mut archive = Archive { bytes: Vec::new(), number: 1 };
        archive.entry("init", 0o100_755, (0, 0), b"abc");
        archive.entry("TRAILER!!!", 0, (0, 0), &[]);
        assert_eq!(archive.bytes.len() % 4, 0);
        assert!(archive.bytes.starts_with(b"07070100000001000081ed"));
        let second = archive.bytes.windows(6).rposition(|w| w == b"070701").unwrap();
        assert_eq!(second % 4, 0);
    }

    #[test]
    fn a_program_keeps_what_is_loaded_and_rubbish_is_left_alone() {
        let whole = fs::read("/proc/self/exe").unwrap();
        let length = whole.len();
        let cut = without_symbols(whole);
        assert!(cut.len() < length && cut.len() > 4096);
        assert_eq!(without_symbols(b"rubbish".to_vec()), b"rubbish");
    }
}
