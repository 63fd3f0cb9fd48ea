//! Files without a name that a sandbox still holds: their blocks are taken until the last descriptor or mapping
//! is gone, and no look at the tree finds them. In gVisor it is the engine's own processes that hold them.
//!
//! What is not found: a file that waits in a socket's queue, closed by its sender; and in the confined tier of an
//! ordinary user what is held by a process that has forbidden others to look at it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::disk::Till;
use crate::disk::tree::{Counted, Taken};
use crate::{sys, table};

/// Descriptors looked at; who has more of them open than that is not looked at to the end.
const MOST: usize = 300_000;
/// A table of more descriptors than this is kept in mind: threads, and processes of an engine, have one together, and to
/// look into it once more would cost more than to ask whether it is the same.
const LARGE: usize = 32;
/// Tables kept in mind.
const TABLES: usize = 16;
/// Bytes of one process's list of mappings: all that a process may have, with names of a usual length.
const MAPS: u64 = 16 << 20;

/// A file without a name.
pub(crate) struct Nameless {
    /// The name it had, as far as the kernel tells it.
    pub(crate) was: String,
    pub(crate) taken: Taken,
}

/// All of them on this device that the sandbox of this first process holds, those left out that were counted
/// already; and whether all was seen.
///
/// Threads may have descriptors of their own, and a process lives on when its first thread has ended: every thread is
/// asked.
pub(crate) fn nameless(
    first: i32,
    device: u64,
    counted: &mut Counted,
    till: &Till<'_>,
) -> (Vec<Nameless>, bool) {
    let all = table::snapshot();
    let pids = table::below(&all, first).into_iter().map(|seen| seen.pid).chain([first]);
    let mut search = Search::new(device, counted, till);
    let whole = pids.into_iter().all(|pid| search.process(pid));
    (search.found, whole)
}

struct Search<'a> {
    device: u64,
    counted: &'a mut Counted,
    /// Mapped files that turned out to have a name: looked at once, however often they are mapped.
    named: BTreeSet<u64>,
    found: Vec<Nameless>,
    left: usize,
    /// A thread of each large table.
    tables: Vec<i32>,
    till: &'a Till<'a>,
}

impl<'a> Search<'a> {
    fn new(device: u64, counted: &'a mut Counted, till: &'a Till<'a>) -> Search<'a> {
        let (named, found, tables) = (BTreeSet::new(), Vec::new(), Vec::new());
        Search { device, counted, named, found, left: MOST, tables, till }
    }

    /// Says whether it came to its end. A process that has ended holds nothing.
    fn process(&mut self, pid: i32) -> bool {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
        let mut mapped = None;
        for task in tasks.flatten() {
            if self.till.is_over() {
                return false;
            }
            let thread = task.file_name().to_str().and_then(|name| name.parse().ok()).unwrap_or(pid);
            let task = task.path();
            if !self.is_known(thread) && !self.descriptors(thread, &task) {
                return false;
            }
            // They share their memory; a thread that has ended tells nothing of it.
            if mapped.as_ref().is_none_or(Vec::is_empty) {
                match maps(&task) {
                    Ok(seen) => mapped = Some(seen),
                    Err(e) if e.kind() == io::ErrorKind::OutOfMemory => return false,
                    Err(_) => {}
                }
            }
        }
        mapped.is_none_or(|maps| self.mappings(pid, &maps))
    }

    /// Whether its table of descriptors has been looked into already.
    fn is_known(&self, thread: i32) -> bool {
        self.tables.iter().any(|known| sys::share_descriptors(*known, thread).unwrap_or(false))
    }

    fn descriptors(&mut self, thread: i32, task: &Path) -> bool {
        let Ok(dir) = fs::read_dir(task.join("fd")) else { return true };
        for (at, entry) in dir.flatten().enumerate() {
            if at == LARGE && self.tables.len() < TABLES {
                self.tables.push(thread);
            }
            self.left = self.left.saturating_sub(1);
            if self.left == 0 || self.till.is_over() {
                return false;
            }
            let way = entry.path();
            // Looks at the open file itself, whatever its name is by now.
            let Ok(meta) = fs::metadata(&way) else { continue };
            let nameless = meta.is_file() && meta.nlink() == 0 && meta.dev() == self.device;
            if nameless && self.counted.insert((meta.dev(), meta.ino())) {
                self.found.push(of(&way, meta.blocks().saturating_mul(512)));
            }
        }
        true
    }

    fn mappings(&mut self, pid: i32, maps: &[u8]) -> bool {
        for line in maps.split(|byte| *byte == b'\n') {
            if self.till.is_over() {
                return false;
            }
            // A name is whatever its guest wrote.
            let line = String::from_utf8_lossy(line);
            let Some(mapping) = mapping(&line).filter(|m| m.device == self.device) else { continue };
            let file = (self.device, mapping.inode);
            if self.counted.contains(&file) || self.named.contains(&mapping.inode) {
                continue;
            }
            let way = format!("/proc/{pid}/map_files/{}", mapping.range);
            // Only root may look through there; for others it takes what is mapped of it.
            let (bytes, named) = match fs::metadata(&way) {
                Ok(meta) => (meta.blocks().saturating_mul(512), meta.nlink() > 0),
                Err(_) => (mapping.end, false),
            };
            if named {
                self.named.insert(mapping.inode);
            } else {
                self.counted.insert(file);
                let taken = Taken { bytes, sizes: bytes, files: 1 };
                self.found.push(Nameless { was: mapping.name.to_owned(), taken });
            }
        }
        true
    }
}

/// The mappings as the kernel tells them; more than a process can reasonably have is an error of memory.
fn maps(task: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(16 << 10);
    fs::File::open(task.join("maps"))?.take(MAPS + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|n| n <= MAPS) {
        return Ok(bytes);
    }
    Err(io::ErrorKind::OutOfMemory.into())
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
    use crate::disk::tree::Look;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicBool;

    fn found(dir: &Path) -> u64 {
        let device = fs::metadata(dir).unwrap().dev();
        let own = i32::try_from(std::process::id()).unwrap();
        let stop = AtomicBool::new(false);
        let (found, whole) = nameless(own, device, &mut Counted::new(), &Till::some_time(&stop));
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
    fn a_file_that_loses_its_name_between_two_looks_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("going");
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        let held = fs::File::open(&path).unwrap();
        let (top, stop) = (fs::File::open(dir.path()).unwrap(), AtomicBool::new(false));
        let (mut counted, till) = (Counted::new(), Till::some_time(&stop));
        let look = Look::at(top.as_fd(), 100, &mut counted, &till);
        assert!(look.whole && look.taken.bytes >= 1 << 20);
        fs::remove_file(&path).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let (found, whole) = nameless(own, held.metadata().unwrap().dev(), &mut counted, &till);
        let name = dir.path().to_str().unwrap();
        assert!(whole && !found.iter().any(|n| n.was.starts_with(name)));
    }

    #[test]
    fn a_large_table_that_threads_have_together_is_looked_into_once() {
        let dir = tempfile::tempdir().unwrap();
        let many: Vec<_> = (0..1000).map(|_| fs::File::open(dir.path()).unwrap()).collect();
        let (stop, mut counted) = (AtomicBool::new(false), Counted::new());
        let till = Till::some_time(&stop);
        let mut search = Search::new(dir.path().metadata().unwrap().dev(), &mut counted, &till);
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| wait.lock().unwrap().recv().ok());
            }
            assert!(search.process(i32::try_from(std::process::id()).unwrap()));
            drop(done);
        });
        let looked = MOST - search.left;
        assert!((many.len()..many.len() * 3).contains(&looked), "{looked}");
    }

    #[test]
    fn a_table_that_a_thread_has_for_itself_is_looked_into() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own");
        // Both are large: the first one is kept in mind.
        let _many: Vec<_> = (0..=LARGE).map(|_| fs::File::open(dir.path()).unwrap()).collect();
        let (ready, held) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let path = &path;
            scope.spawn(move || {
                sys::part_descriptors().unwrap();
                let mut file = fs::File::create(path).unwrap();
                file.write_all(&vec![7; 1 << 20]).unwrap();
                fs::remove_file(path).unwrap();
                ready.send(()).unwrap();
                wait.recv().ok();
            });
            held.recv().unwrap();
            assert!(found(dir.path()) >= 1 << 20);
            drop(done);
        });
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
