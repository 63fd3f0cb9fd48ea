//! Git's list of the files it knows: names read from one, hostile as any file, and a fresh one written.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sha1::{Digest, Sha1};

use super::pack::Id;

/// Bytes of all names together: one that is packed may say long ones in few.
const MOST_NAMES: usize = 128 << 20;

/// What a repository knows of its folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    files: BTreeSet<Vec<u8>>,
    /// Repositories inside, and folders that are told as one.
    folders: BTreeSet<Vec<u8>>,
}

impl Known {
    /// None for what is no such list, or not all of one.
    pub(super) fn read(bytes: &[u8]) -> Option<Known> {
        // A repository's names are of one length or the other; only one of them leads to the end.
        Known::with(bytes, 20).or_else(|| Known::with(bytes, 32))
    }

    pub(super) fn has(&self, path: &Path) -> bool {
        let inside = |folder: &Path| self.folders.contains(folder.as_os_str().as_bytes());
        self.files.contains(path.as_os_str().as_bytes()) || path.ancestors().skip(1).any(inside)
    }

    fn with(bytes: &[u8], name_length: usize) -> Option<Known> {
        let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let version = number(4).filter(|v| bytes.starts_with(b"DIRC") && (2..=4).contains(v))?;
        let (mut known, mut at, mut name) = (Known::default(), 12, Vec::new());
        let mut room = MOST_NAMES;
        for _ in 0..number(8)? {
            let start = at;
            let mode = number(at + 24)?;
            at += 40 + name_length;
            let flags = u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?);
            at += if flags & 0x4000 != 0 && version > 2 { 4 } else { 2 };
            if version == 4 {
                let cut = varint(bytes, &mut at)?;
                name.truncate(name.len().checked_sub(cut)?);
            } else {
                name.clear();
            }
            let rest = bytes.get(at..)?;
            let end = rest.iter().position(|b| *b == 0)?;
            name.extend_from_slice(rest.get(..end)?);
            at += end + 1;
            if version < 4 {
                at = start + (at - start).next_multiple_of(8);
            }
            if name.is_empty() || name.len() > 4096 {
                return None;
            }
            room = room.checked_sub(name.len())?;
            match mode & 0o170_000 {
                0o100_000 | 0o120_000 => known.files.insert(name.clone()),
                0o160_000 | 0o040_000 => {
                    known.folders.insert(name.strip_suffix(b"/").unwrap_or(&name).to_vec())
                }
                _ => return None,
            };
        }
        let end = bytes.len().checked_sub(name_length)?;
        while at < end {
            // Half of a list that is kept in two files.
            if bytes.get(at..at + 4)? == b"link" {
                return None;
            }
            at = at.checked_add(8)?.checked_add(usize::try_from(number(at + 4)?).ok()?)?;
        }
        (at == end).then_some(known)
    }
}

/// As in packs: each further byte counts one more.
fn varint(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut value = 0usize;
    loop {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value = value.checked_shl(7)? | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some(value);
        }
        value = value.checked_add(1).filter(|v| *v < 1 << 20)?;
    }
}

/// A file in a fresh list.
pub(super) struct Listed<'a> {
    pub(super) path: &'a Path,
    pub(super) mode: u32,
    pub(super) id: Id,
    pub(super) size: u64,
    /// Seconds since 1970, by which git sees that nothing was touched.
    pub(super) modified: i64,
}

/// `files` must be in the order of their bytes.
pub(super) fn written(files: &[Listed<'_>]) -> Vec<u8> {
    let mut out = b"DIRC\0\0\0\x02".to_vec();
    out.extend_from_slice(&u32::try_from(files.len()).unwrap_or(u32::MAX).to_be_bytes());
    for file in files {
        let start = out.len();
        let name = file.path.as_os_str().as_bytes();
        let low = |n: u64| u32::try_from(n & 0xffff_ffff).unwrap_or(0);
        let seconds = low(file.modified.cast_unsigned());
        for number in [0, 0, seconds, 0, 0, 0, file.mode, 0, 0, low(file.size)] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&file.id);
        out.extend_from_slice(&u16::try_from(name.len()).unwrap_or(0xfff).min(0xfff).to_be_bytes());
        out.extend_from_slice(name);
        let end = (out.len() - start + 1).next_multiple_of(8) + start;
        out.resize(end, 0);
    }
    let sum: Id = Sha1::digest(&out).into();
    out.extend_from_slice(&sum);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_we_wrote_is_read_and_every_cut_of_it_is_not() {
        let listed =
            |path, n| Listed { path: Path::new(path), mode: 0o100_644, id: [n; 20], size: 7, modified: 9 };
        let bytes = written(&[listed("a", 1), listed("b/c d", 2), listed("b/eight888", 3)]);
        let known = Known::read(&bytes).unwrap();
        assert!(known.has(Path::new("b/c d")) && !known.has(Path::new("b")) && known.files.len() == 3);
        for cut in 0..bytes.len() {
            assert_eq!(Known::with(&bytes[..cut], 20), None, "{cut}");
        }
    }

    #[test]
    fn a_hostile_list_is_none() {
        let mut bytes = written(&[]);
        bytes[8..12].copy_from_slice(&[0xff; 4]);
        assert_eq!(Known::read(&bytes), None);
        let split = [&written(&[])[..12], b"link\0\0\0\0", &[0; 20]].concat();
        assert_eq!(Known::read(&split), None);
        // 40 000 names of 4 KiB in 3 MiB.
        let packed = |name: &[u8], cut: &[u8]| {
            [&[0; 24][..], &[0, 0, 0x81, 0xa4], &[0; 34], cut, name, b"\0"].concat()
        };
        let mut bomb = b"DIRC\0\0\0\x04".to_vec();
        bomb.extend_from_slice(&40_000u32.to_be_bytes());
        bomb.extend(packed(&[b'x'; 4095], &[0]));
        for n in 1..40_000 {
            bomb.extend(packed(format!("{n:05}").as_bytes(), &[5]));
        }
        bomb.extend_from_slice(&[0; 20]);
        assert_eq!(Known::with(&bomb, 20), None);
        let far = [&written(&[])[..12], b"TREE\xff\xff\xff\xff", &[0; 20]].concat();
        assert_eq!(Known::read(&far), None);
    }
}
