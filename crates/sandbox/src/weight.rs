//! What a process holds: memory, and what its sockets and pipes may have the kernel keep for it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that a socket may hold. The kernel's own default; where this counts, a filter lets nobody have more of it and
/// a network of its own has as much for TCP.
pub(crate) const SOCKET: u64 = 212_992;
/// Bytes that a pipe holds, of its usual size; what all of a user's hold beyond that the kernel bounds.
pub(crate) const PIPE: u64 = 64 << 10;

/// What a look at one process costs nothing more to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Bytes of memory.
    pub(crate) memory: u64,
    /// Descriptors that there is room for in its table; 0 where they do not count.
    pub(crate) table: u64,
}

/// Private and shared memory of a process, what of it was swapped out, and its page tables; its mapped files belong to
/// the page cache.
pub(crate) fn of(pid: i32) -> Weight {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let told = |folder: &Path| parse(&fs::read_to_string(folder.join("status")).unwrap_or_default());
    // The first thread of a process may have ended while others go on: then it tells of no memory.
    if let Some(weight) = told(&process).or_else(|| threads(&process).iter().find_map(|t| told(t))) {
        return weight;
    }
    // gVisor tells resident pages only.
    let pages = fs::read_to_string(process.join("statm")).unwrap_or_default();
    let resident: u64 = pages.split(' ').nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    Weight { memory: resident << 12, table: 0 }
}

fn threads(process: &Path) -> Vec<PathBuf> {
    let Ok(dir) = fs::read_dir(process.join("task")) else { return Vec::new() };
    dir.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// From `status`.
fn parse(status: &str) -> Option<Weight> {
    let number = |name: &str| -> Option<u64> {
        status.lines().find_map(|l| l.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
    };
    let (private, shared) = (number("RssAnon:")?, number("RssShmem:")?);
    // A kernel without swap has no such line.
    let rest = number("VmSwap:").unwrap_or(0) + number("VmPTE:").unwrap_or(0);
    Some(Weight { memory: (private + shared + rest) << 10, table: number("FDSize:").unwrap_or(0) })
}

/// Bytes that the sockets and pipes of a process may hold, those that others had before counted with these. Of one that
/// cannot be looked at, all that its table has room for.
pub(crate) fn buffers(pid: i32, table: u64, seen: &mut BTreeSet<PathBuf>) -> u64 {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let list = |folder: &Path| -> Option<Vec<PathBuf>> {
        let dir = fs::read_dir(folder.join("fd")).ok()?;
        Some(dir.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()).collect())
    };
    // That of a first thread that has ended is empty.
    let (mut open, mut closed) = (Vec::new(), false);
    for folder in std::iter::once(process.clone()).chain(threads(&process)) {
        match list(&folder) {
            Some(list) if list.is_empty() => {}
            Some(list) => {
                (open, closed) = (list, false);
                break;
            }
            None => closed = true,
        }
    }
    if closed {
        // Who has ended since has none.
        return if of(pid).table == 0 { 0 } else { table.saturating_mul(SOCKET) };
    }
    let new = open.into_iter().map(|target| {
        let bytes = match target.to_string_lossy() {
            name if name.starts_with("socket:[") => SOCKET,
            name if name.starts_with("pipe:[") => PIPE,
            _ => return 0,
        };
        if seen.insert(target) { bytes } else { 0 }
    });
    new.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_tables_and_what_was_swapped_out_are_memory() {
        let status =
            "Name:\tx\nFDSize:\t128\nRssAnon:\t 10 kB\nRssShmem:\t 20 kB\nVmPTE:\t 3 kB\nVmSwap:\t 4 kB\n";
        assert_eq!(parse(status), Some(Weight { memory: 37 << 10, table: 128 }));
        assert_eq!(parse("RssAnon: 1 kB\nRssShmem: 0 kB\n"), Some(Weight { memory: 1 << 10, table: 0 }));
        let other = "RssAnon:\t 1 kB\nRssShmem:\t 2 kB\nVmPTE:\t 4 kB\nVmSwap:\t 8 kB\n";
        assert_eq!(parse(other), Some(Weight { memory: 15 << 10, table: 0 }));
        // A process that is over.
        assert_eq!(parse("Name:\tover\n"), None);
        // A process whose first thread has ended.
        assert_eq!(parse("Name:\tx\nFDSize:\t128\n"), None);
    }

    #[test]
    fn a_socket_counts_once_however_many_have_it() {
        let own = i32::try_from(std::process::id()).unwrap();
        let mut seen = BTreeSet::new();
        buffers(own, 0, &mut seen);
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let _again = one.try_clone().unwrap();
        let (_reader, _writer) = std::io::pipe().unwrap();
        assert!(buffers(own, 0, &mut seen) >= 2 * SOCKET + PIPE);
        assert_eq!(buffers(own, 0, &mut BTreeSet::from_iter(seen)), 0);
        // Nobody has this number.
        assert_eq!(buffers(i32::MAX, 64, &mut BTreeSet::new()), 0);
    }
}
