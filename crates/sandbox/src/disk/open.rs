//! Files without a name that a sandbox still holds: their blocks are taken until the last descriptor or mapping
//! is gone, and no look at the tree finds them. In gVisor it is the engine's own processes that hold them.
//!
//! What is not found: a file that waits in a socket's queue, closed by its sender; and in the confined tier of an
//! ordinary user what is held by a process that has forbidden others to look at it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::disk::tree::Taken;
use crate::{sys, table};

/// Descriptors looked at; who has more of them open than that is not looked at to the end.
const MOST: usize = 100_000;

/// A file without a name.
pub(crate) struct Nameless {
    /// The name it had, as far as the kernel tells it.
    pub(crate) was: String,
    pub(crate) taken: Taken,
}

/// All of them on this device that the sandbox of this first process holds, those left out that were counted
/// already; and whether all was seen.
pub(crate) fn nameless(first: i32, device: u64, counted: &mut BTreeSet<u64>) -> (Vec<Nameless>, bool) {
    let all = table::snapshot();
    let pids = table::below(&all, first).into_iter().map(|seen| seen.pid).chain([first]);
    let mut found = Vec::new();
    let mut left = MOST;
    for pid in pids {
        // A process that has ended holds nothing.
        let Ok(dir) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for entry in dir.flatten() {
            left = left.saturating_sub(1);
            if left == 0 {
                return (found, false);
            }
            let way = entry.path();
            // Looks at the open file itself, whatever its name is by now.
            let Ok(meta) = fs::metadata(&way) else { continue };
            if meta.is_file() && meta.nlink() == 0 && meta.dev() == device && counted.insert(meta.ino()) {
                found.push(of(&way, meta.blocks().saturating_mul(512)));
            }
        }
        let maps = sys::text(&format!("/proc/{pid}/maps")).unwrap_or_default();
        for mapping in maps.lines().filter_map(mapping).filter(|m| m.device == device) {
            if counted.contains(&mapping.inode) {
                continue;
            }
            let way = format!("/proc/{pid}/map_files/{}", mapping.range);
            // Only root may look through there; for others it takes what is mapped of it.
            let (bytes, named) = match fs::metadata(&way) {
                Ok(meta) => (meta.blocks().saturating_mul(512), meta.nlink() > 0),
                Err(_) => (mapping.end, false),
            };
            if !named {
                counted.insert(mapping.inode);
                let taken = Taken { bytes, sizes: bytes, files: 1 };
                found.push(Nameless { was: mapping.name.to_owned(), taken });
            }
        }
    }
    (found, true)
}

fn of(way: &Path, bytes: u64) -> Nameless {
    let was = fs::read_link(way).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Nameless { was, taken: Taken { bytes, sizes: bytes, files: 1 } }
}

/// A mapped file without a name.
struct Mapping<'a> {
    range: &'a str,
    device: u64,
    inode: u64,
    /// Bytes of the file up to the end of what is mapped.
    end: u64,
    name: &'a str,
}

/// `start-end flags offset major:minor inode   name (deleted)`.
fn mapping(line: &str) -> Option<Mapping<'_>> {
    let line = line.strip_suffix(" (deleted)")?;
    let mut fields = line.splitn(6, ' ');
    let range = fields.next()?;
    let (start, end) = range.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = hex(fields.nth(1)?)?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let device =
        rustix::fs::makedev(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = fields.next()?.parse().ok()?;
    let end = hex(end)?.checked_sub(hex(start)?)?.saturating_add(offset);
    Some(Mapping { range, device, inode, end, name: fields.next().unwrap_or_default().trim_start() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn found(dir: &Path) -> u64 {
        let device = fs::metadata(dir).unwrap().dev();
        let own = i32::try_from(std::process::id()).unwrap();
        let (found, whole) = nameless(own, device, &mut BTreeSet::new());
        assert!(whole);
        let name = dir.to_str().unwrap();
        found.iter().filter(|n| n.was.starts_with(name)).map(|n| n.taken.bytes).sum()
    }

    #[test]
    fn a_file_without_a_name_is_found_while_it_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gone");
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        assert_eq!(found(dir.path()), 0);
        fs::remove_file(&path).unwrap();
        assert!(found(dir.path()) >= 1 << 20);
        drop(file);
        assert_eq!(found(dir.path()), 0);
    }

    #[test]
    fn a_mapping_of_a_file_without_a_name_is_read_from_its_line() {
        let line = "7f0000000000-7f0000100000 rw-s 00001000 fd:01 77                 /w/a b (deleted)";
        let m = mapping(line).unwrap();
        assert_eq!((m.inode, m.end, m.name), (77, 0x10_1000, "/w/a b"));
        assert_eq!(m.device, rustix::fs::makedev(0xfd, 1));
        assert!(mapping("7f0000000000-7f0000100000 rw-s 00001000 fd:01 77   /w/a b").is_none());
    }
}
