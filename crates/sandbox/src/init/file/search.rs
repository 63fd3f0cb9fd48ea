//! Lines that match, in all files of a folder: by as many threads as there are processors, in the order of paths.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use memchr::memchr;
use rustix::fs::FileType;
use serde_json::{Value, json};

use super::super::walk::{Missing, Workspace, look, open_regular, open_regular_in};
use super::Refusal;
use super::lines::Pattern;
use super::tree::{At, Tree};

/// Bytes of a file that are searched.
const FILE: usize = 16 << 20;
/// What is read first, and where a zero byte makes a file one that is not searched.
const FIRST: usize = 64 << 10;
const TELLING: usize = 8192;
/// Characters of a matching line that are handed on.
const LINE: usize = 400;
/// Bytes of matches in an answer.
const ROOM: usize = 48 << 10;
/// Files that one thread takes at a time.
const SHARE: usize = 64;
/// Threads at most.
const THREADS: usize = 8;

pub(super) fn search(
    workspace: &Workspace,
    pattern: &str,
    path: &OsStr,
    limit: u32,
    all: bool,
) -> Result<Value, Refusal> {
    let hunt = Hunt {
        pattern: Pattern::new(pattern)?,
        tree: Tree::new(all),
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        queue: Mutex::default(),
        more_to_do: Condvar::new(),
    };
    let mut found = match workspace.place(path, Missing::Error)? {
        Some(place)
            if FileType::from_raw_mode(look(&place.folder, &place.name)?.st_mode) != FileType::Directory =>
        {
            let path = workspace.parts(path).unwrap_or_default().join(&b'/');
            let mut found = Found::default();
            hunt.file(open_regular(&place)?, path, &mut Vec::new(), &mut found);
            found
        }
        _ => hunt.folder(hunt.tree.begin(workspace, path)?),
    };
    found.sort(hunt.limit);
    let (mut matches, mut room, mut shown) = (Vec::new(), ROOM, 0);
    for hit in found.hits.iter().flat_map(Hit::told).take(hunt.limit) {
        match room.checked_sub(hit.to_string().len()) {
            Some(left) => room = left,
            None => break,
        }
        shown += 1;
        matches.push(hit);
    }
    Ok(json!({
        "matches": matches, "more": found.count.saturating_sub(shown), "files": found.files,
        "ignored": hunt.tree.ignored(), "cut": hunt.tree.cut(),
    }))
}

struct Hunt {
    pattern: Pattern,
    tree: Tree,
    limit: usize,
    queue: Mutex<Queue>,
    more_to_do: Condvar,
}

/// What is yet to be looked at: the newest first, so that few folders are open at a time.
#[derive(Default)]
struct Queue {
    tasks: Vec<Task>,
    /// Threads that may add to it.
    busy: usize,
}

enum Task {
    Folder(Arc<At>, OsString),
    Files(Arc<At>, Vec<OsString>),
}

/// What one thread, or all of them, found.
#[derive(Default)]
struct Found {
    hits: Vec<Hit>,
    /// Lines in all, and files that were searched.
    count: u64,
    files: u64,
}

/// Matching lines of one file, the first ones.
struct Hit {
    path: Vec<u8>,
    lines: Vec<(u64, String)>,
}

impl Hit {
    fn told(&self) -> impl Iterator<Item = Value> {
        let path = policy::quoted(&self.path);
        self.lines.iter().map(move |(number, text)| json!({ "path": path, "line": number, "text": text }))
    }
}

impl Found {
    /// In the order of paths, and nothing kept that will not be told.
    fn sort(&mut self, limit: usize) {
        self.hits.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let mut lines = 0;
        let told = self.hits.iter().take_while(|hit| {
            let room = lines < limit;
            lines += hit.lines.len();
            room
        });
        let told = told.count();
        self.hits.truncate(told);
    }

    fn add(&mut self, other: Found) {
        self.hits.extend(other.hits);
        self.count += other.count;
        self.files += other.files;
    }
}

impl Hunt {
    /// Everything in a folder and below it.
    fn folder(&self, at: At) -> Found {
        let tasks = self.tasks_in(at);
        self.queue().tasks = tasks;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
        std::thread::scope(|scope| {
            // One that cannot be had is done without.
            let others: Vec<_> = (1..threads)
                .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, || self.work()).ok())
                .collect();
            let mut found = self.work();
            for other in others {
                match other.join() {
                    Ok(theirs) => found.add(theirs),
                    Err(_) => self.tree.is_cut(),
                }
            }
            found
        })
    }

    fn work(&self) -> Found {
        let (mut found, mut buffer) = (Found::default(), Vec::new());
        let mut queue = self.queue();
        loop {
            let Some(task) = queue.tasks.pop() else {
                if queue.busy == 0 {
                    self.more_to_do.notify_all();
                    return found;
                }
                queue = self.more_to_do.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue.busy += 1;
            drop(queue);
            let mut next = match task {
                Task::Folder(at, name) => {
                    self.tree.enter(&at, &name).map_or_else(Vec::new, |at| self.tasks_in(at))
                }
                Task::Files(at, names) => {
                    for name in names {
                        if let Ok(fd) = open_regular_in(&at.folder, &name) {
                            self.file(fd, at.path_of(&name), &mut buffer, &mut found);
                        }
                    }
                    Vec::new()
                }
            };
            if found.hits.len() > 4 * self.limit {
                found.sort(self.limit);
            }
            queue = self.queue();
            queue.busy -= 1;
            let wake = !next.is_empty() || queue.busy == 0;
            queue.tasks.append(&mut next);
            if wake {
                self.more_to_do.notify_all();
            }
        }
    }

    fn tasks_in(&self, at: At) -> Vec<Task> {
        let entries = self.tree.entries(&at);
        let at = Arc::new(at);
        let (mut tasks, mut files) = (Vec::new(), Vec::new());
        for entry in entries {
            match entry.kind {
                FileType::Directory => tasks.push(Task::Folder(Arc::clone(&at), entry.name)),
                FileType::RegularFile => files.push(entry.name),
                _ => {}
            }
        }
        while !files.is_empty() {
            let rest = files.split_off(files.len().min(SHARE));
            tasks.push(Task::Files(Arc::clone(&at), std::mem::replace(&mut files, rest)));
        }
        tasks
    }

    fn file(&self, fd: OwnedFd, path: Vec<u8>, buffer: &mut Vec<u8>, found: &mut Found) {
        let Some(text) = self.text(File::from(fd), buffer) else { return };
        found.files += 1;
        let (lines, count) = self.pattern.lines(text, self.limit);
        found.count += count;
        if !lines.is_empty() {
            let lines = lines.iter().map(|line| (line.number, shown(&text[line.bytes.clone()]))).collect();
            found.hits.push(Hit { path, lines });
        }
    }

    /// What is searched of a file; nothing of one that is no text or cannot be read.
    fn text<'b>(&self, mut file: File, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        let mut filled = 0;
        loop {
            if filled == FILE {
                self.tree.is_cut();
                break;
            }
            // Twice as much each time: most files come in one piece, and no buffer is larger than it must be.
            let room = (2 * filled).clamp(FIRST, FILE);
            if buffer.len() < room {
                buffer.resize(room, 0);
            }
            match file.read(&mut buffer[filled..room]) {
                Ok(0) => break,
                Ok(n) => {
                    let telling = TELLING.min(filled + n);
                    if filled < TELLING && memchr(0, &buffer[filled.min(telling)..telling]).is_some() {
                        return None;
                    }
                    filled += n;
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        Some(&buffer[..filled])
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beginning of a line, as text.
fn shown(line: &[u8]) -> String {
    let front = &line[..line.len().min(4 * LINE)];
    String::from_utf8_lossy(front).trim_end_matches('\r').chars().take(LINE).collect()
}
