//! Taking a change over, all of it or nothing.
//!
//! ```text
//!   journal(staging) ─▶ mark ─▶ every new entry beside its place ─▶ journal(swapping) ─▶ exchanged, one after the
//!   other, what came out looked at again ─▶ journal(done) ─▶ what was there before removed ─▶ no mark ─▶ no journal
//! ```
//!
//! Who comes later and finds a journal takes back what is not `done` and finishes what is. Which of the two states an
//! entry is in is told by the numbers of the files, never by guessing.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::journal::{self, Entry, Id, Journal, Phase, Word};
use super::target::{Now, Step, Was, contents, is, now};
use crate::beneath::{Folder, own};
use crate::manifest::{Item, Kind, hex};
use crate::quote::in_text;

/// Told before every step: how many are behind it, and how many there are. Says whether to go on.
pub(crate) type Progress<'a> = &'a dyn Fn(u64, u64) -> bool;

/// Why nothing was taken over.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The target was changed while this went on.
    Changed(String),
    /// What the run left is not what it had collected.
    Broken(String),
    /// The caller did not want to go on.
    Cancelled,
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// It failed, and could not be taken back either.
    Stuck(Vec<String>),
}

pub(crate) struct Swap<'a> {
    pub(crate) target: &'a Folder,
    pub(crate) at: &'a Path,
    pub(crate) work: &'a Folder,
    /// The run's folder, for the journal.
    pub(crate) run: &'a Path,
    pub(crate) id: &'a str,
    pub(crate) progress: Progress<'a>,
}

impl Swap<'_> {
    /// Carries the steps out; remarks about what could not be cleared away.
    pub(crate) fn carry_out(&self, steps: &BTreeMap<PathBuf, Step>) -> Result<Vec<String>, Failed> {
        let root = self.target.metadata().map_err(|e| io_at("look at", self.at, e))?;
        let entries = steps.iter().enumerate().map(|(n, (path, step))| Entry {
            path: Word::of(path),
            beside: journal::beside(self.id, n),
            old: step.old.as_ref().map(|was| id(&was.meta)),
            new: None,
            has_new: !step.new.is_empty(),
            old_inner: step.old.iter().flat_map(|was| &was.inner).map(|p| Word::of(p)).collect(),
            new_inner: step.new.keys().filter(|p| !p.as_os_str().is_empty()).map(|p| Word::of(p)).collect(),
        });
        let mut journal = Journal::new(self.at, id(&root), entries.collect());
        self.write(&journal)?;
        if let Err(e) = journal::mark(self.target, self.id) {
            self.forget()?;
            return Err(io_at("write to", self.at, e));
        }
        let marked = self.target.sync().map_err(|e| io_at("write to", self.at, e));
        let done = marked.and_then(|()| self.stage(steps, &mut journal));
        if let Err(failed) = done.and_then(|()| self.swap(steps, &mut journal)) {
            let left = back(self.target, &journal);
            if left.is_empty() {
                self.end()?;
                return Err(failed);
            }
            return Err(Failed::Stuck(left));
        }
        let left = forth(self.target, &journal, &|n| (self.progress)(n, self.all(steps)));
        self.end()?;
        Ok(left)
    }

    /// The mark first: a journal without one says that nothing is left to be done.
    fn end(&self) -> Result<(), Failed> {
        journal::unmark(self.target, self.id).map_err(|e| io_at("remove the mark in", self.at, e))?;
        self.forget()
    }

    fn forget(&self) -> Result<(), Failed> {
        Journal::remove(self.run).map_err(|e| io_at("remove the journal in", self.run, e))
    }

    fn write(&self, journal: &Journal) -> Result<(), Failed> {
        journal.write(self.run).map_err(|e| io_at("write the journal in", self.run, e))
    }

    fn all(&self, steps: &BTreeMap<PathBuf, Step>) -> u64 {
        let new: usize = steps.values().map(|step| step.new.len()).sum();
        u64::try_from(new + 2 * steps.len() + 3).unwrap_or(u64::MAX)
    }

    fn stage(&self, steps: &BTreeMap<PathBuf, Step>, journal: &mut Journal) -> Result<(), Failed> {
        let all = self.all(steps);
        let mut behind = 0;
        for ((path, step), entry) in steps.iter().zip(&mut journal.steps) {
            if step.new.is_empty() {
                continue;
            }
            let wrong = |e| io_at("put aside the new", path, e);
            let parent = parent(self.target, path).map_err(wrong)?;
            let beside = OsStr::new(&entry.beside);
            let owner = owner(&parent, step.old.as_ref()).map_err(wrong)?;
            // Folders by their numbers: whoever owns the target can exchange them for others of the same names.
            let mut made = BTreeMap::new();
            for (rel, item) in &step.new {
                if !(self.progress)(behind, all) {
                    return Err(Failed::Cancelled);
                }
                behind += 1;
                let at = within(beside, rel);
                let itself = rel.as_os_str().is_empty();
                let whole = if itself { path.clone() } else { path.join(rel) };
                let was =
                    step.old.as_ref().filter(|was| itself && matches!(was.item.kind, Kind::File { .. }));
                let into = ours(&parent, beside, rel.parent(), &made)
                    .map_err(|e| io_at("put aside the new", &whole, e))?;
                if let Some(folder) = self.put((&into, &at), &whole, item, was, owner)? {
                    made.insert(rel.clone(), folder);
                }
            }
            // From the innermost: a folder is its owner's when it is filled.
            for (rel, item) in step.new.iter().rev().filter(|(_, item)| item.kind == Kind::Folder) {
                let made = ours(&parent, beside, Some(rel), &made).map_err(wrong)?;
                made.own(item.mode & !umask(), owner).and_then(|()| made.sync()).map_err(wrong)?;
            }
            parent.sync().map_err(wrong)?;
            entry.new = Some(id(&parent.look(beside).map_err(wrong)?));
        }
        journal.phase = Phase::Swapping;
        self.write(journal)
    }

    fn put(
        &self,
        (into, at): (&Folder, &Path),
        path: &Path,
        item: &Item,
        old: Option<&Was>,
        owner: Option<(u32, u32)>,
    ) -> Result<Option<Id>, Failed> {
        let wrong = |e| io_at("put aside the new", path, e);
        let name = at.file_name().unwrap_or_default();
        match &item.kind {
            Kind::Folder => into.create_folder(name).and_then(|made| fresh(&made)).map(Some).map_err(wrong),
            Kind::Link { target } => into.create_link(name, target, owner).map(|()| None).map_err(wrong),
            Kind::File { size, sha256 } => {
                let made = into.create(name, 0o600).map_err(wrong)?;
                let copied = self.work.file(path).and_then(|from| copy(from, &made, *size));
                let broken = || Failed::Broken(format!("{}: it is not what was collected", in_text(path)));
                let sum = copied.map_err(|e| match e.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded => wrong(e),
                    _ => broken(),
                })?;
                if sum != *sha256 {
                    return Err(broken());
                }
                let mode = mode(item, old);
                own(&made, mode, owner).and_then(|()| made.sync_all()).map(|()| None).map_err(wrong)
            }
        }
    }

    fn swap(&self, steps: &BTreeMap<PathBuf, Step>, journal: &mut Journal) -> Result<(), Failed> {
        let all = self.all(steps);
        let mut behind: u64 = steps.values().map(|step| u64::try_from(step.new.len()).unwrap_or(0)).sum();
        for ((path, step), entry) in steps.iter().zip(&journal.steps) {
            if !(self.progress)(behind, all) {
                return Err(Failed::Cancelled);
            }
            behind += 1;
            let wrong = |e| io_at("exchange", path, e);
            let parent = parent(self.target, path).map_err(wrong)?;
            let (name, beside) = (path.file_name().unwrap_or_default(), OsStr::new(&entry.beside));
            match (&step.old, entry.has_new) {
                (Some(was), true) => {
                    exchange(&parent, beside, name).map_err(wrong)?;
                    self.came_out(&parent, path, beside, was)?;
                }
                (Some(was), false) => {
                    parent.rename(name, &parent, beside).map_err(wrong)?;
                    self.came_out(&parent, path, beside, was)?;
                }
                (None, _) => parent.rename(beside, &parent, name).map_err(|e| match e.kind() {
                    ErrorKind::AlreadyExists => {
                        Failed::Changed(format!("{}: there is something now", in_text(path)))
                    }
                    _ => wrong(e),
                })?,
            }
            parent.sync().map_err(wrong)?;
        }
        if !(self.progress)(behind, all) {
            return Err(Failed::Cancelled);
        }
        journal.phase = Phase::Done;
        self.write(journal).inspect_err(|_| journal.phase = Phase::Swapping)
    }

    /// What was moved aside is what was looked at, and not what somebody has written there meanwhile.
    fn came_out(&self, parent: &Folder, path: &Path, beside: &OsStr, was: &Was) -> Result<(), Failed> {
        let old = aside(beside);
        let beside = if parent.look(&old).is_ok() { old.as_os_str() } else { beside };
        let same = || -> io::Result<bool> {
            let now = now(parent, Path::new(beside))?;
            let meta = match &now {
                Now::File(meta) | Now::Link(meta, _) | Now::Folder(meta) => meta,
                Now::Absent | Now::Odd(_) => return Ok(false),
            };
            let inner = match was.item.kind {
                Kind::Folder => contents(parent, Path::new(beside))?
                    .is_some_and(|found| found.keys().eq(was.inner.iter())),
                Kind::File { .. } | Kind::Link { .. } => true,
            };
            Ok(id(meta) == id(&was.meta) && inner && is(parent, Path::new(beside), &now, Some(&was.item))?)
        };
        match same() {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failed::Changed(format!("{}: it was changed just now", in_text(path)))),
            Err(e) => Err(io_at("look again at", path, e)),
        }
    }
}

/// The number of a folder that was made just now: one of ours, closed to others, with nothing in it.
fn fresh(made: &Folder) -> io::Result<Id> {
    let meta = made.metadata()?;
    let ours = meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o777 == 0o700;
    if ours && made.names(1)?.0.is_empty() { Ok(id(&meta)) } else { Err(exchanged()) }
}

/// A folder of a new entry, or what the entry itself is put into; never one that was exchanged for it.
fn ours(
    parent: &Folder,
    beside: &OsStr,
    rel: Option<&Path>,
    made: &BTreeMap<PathBuf, Id>,
) -> io::Result<Folder> {
    let Some(rel) = rel else { return parent.folder(Path::new("")) };
    let folder = parent.folder(&within(beside, rel))?;
    if made.get(rel) == Some(&id(&folder.metadata()?)) { Ok(folder) } else { Err(exchanged()) }
}

fn exchanged() -> io::Error {
    io::Error::other("somebody exchanged a new folder for another")
}

fn io_at(doing: &'static str, path: &Path, source: io::Error) -> Failed {
    Failed::Io { doing, path: path.to_owned(), source }
}

pub(crate) fn id(meta: &std::fs::Metadata) -> Id {
    (meta.dev(), meta.ino())
}

/// A path in an entry; the empty one is the entry itself.
fn within(entry: &OsStr, rel: &Path) -> PathBuf {
    if rel.as_os_str().is_empty() { PathBuf::from(entry) } else { Path::new(entry).join(rel) }
}

fn parent(root: &Folder, path: &Path) -> io::Result<Folder> {
    root.folder(path.parent().unwrap_or(Path::new("")))
}

/// Where the old entry waits on file systems that cannot exchange.
fn aside(beside: &OsStr) -> OsString {
    let mut name = beside.to_owned();
    name.push(".old");
    name
}

fn exchange(parent: &Folder, beside: &OsStr, name: &OsStr) -> io::Result<()> {
    match parent.exchange(beside, parent, name) {
        Err(e) if [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP].iter().any(|n| is_errno(&e, *n)) => {
            parent.rename(name, parent, &aside(beside))?;
            parent.rename(beside, parent, name)
        }
        other => other,
    }
}

fn is_errno(e: &io::Error, errno: Errno) -> bool {
    e.raw_os_error() == Some(errno.raw_os_error())
}

/// A file keeps the owner that it had; what is new is its folder's where root makes it, and the user's otherwise.
fn owner(parent: &Folder, old: Option<&Was>) -> io::Result<Option<(u32, u32)>> {
    Ok(match old {
        Some(was) => Some((was.meta.uid(), was.meta.gid())),
        None if rustix::process::geteuid().is_root() => {
            let like = parent.metadata()?;
            Some((like.uid(), like.gid()))
        }
        None => None,
    })
}

fn mode(item: &Item, old: Option<&Was>) -> u32 {
    let Some(was) = old else {
        let all = if item.mode & 0o100 != 0 { 0o777 } else { 0o666 };
        return all & !umask();
    };
    let before = was.meta.mode() & 0o777;
    match (before & 0o100 != 0, item.mode & 0o100 != 0) {
        (false, true) => before | ((before & 0o444) >> 2) | 0o100,
        (true, false) => before & !0o111,
        (true, true) | (false, false) => before,
    }
}

/// Asked of the system without changing it.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}

fn copy(from: File, mut to: &File, size: u64) -> io::Result<String> {
    let mut from = from.take(size.saturating_add(1));
    let mut sum = Sha256::new();
    let mut piece = vec![0u8; 256 * 1024];
    loop {
        let n = from.read(&mut piece)?;
        let Some(bytes) = piece.get(..n).filter(|b| !b.is_empty()) else { break };
        sum.update(bytes);
        to.write_all(bytes)?;
    }
    Ok(hex(&sum.finalize()))
}

/// Brings every entry to what it was; what could not be, in sentences.
pub(crate) fn back(target: &Folder, journal: &Journal) -> Vec<String> {
    told(journal.steps.iter().rev(), |entry, path| {
        let Some(parent) = there(parent(target, path))? else { return Ok(()) };
        let (name, beside) = (path.file_name().unwrap_or_default(), OsStr::new(&entry.beside));
        let old_name = aside(beside);
        let at = |name: &OsStr| there(parent.look(name)).map(|meta| meta.map(|meta| id(&meta)));
        let (is, mut put, aside) = (at(name)?, at(beside)?, at(&old_name)?);
        if journal.phase != Phase::Staging {
            let old_at = match (aside, put) {
                (Some(id), _) if Some(id) == entry.old => Some(old_name.as_os_str()),
                (_, Some(id)) if Some(id) == entry.old => Some(beside),
                _ => None,
            };
            let done = entry.new.is_some() && is == entry.new;
            match (old_at, done) {
                (Some(old_at), true) => {
                    match parent.exchange(old_at, &parent, name) {
                        Ok(()) => remove(&parent, old_at, &entry.new_inner)?,
                        Err(_) => {
                            remove(&parent, name, &entry.new_inner)?;
                            parent.rename(old_at, &parent, name)?;
                        }
                    }
                    put = at(beside)?;
                }
                (Some(old_at), false) if is.is_none() => parent.rename(old_at, &parent, name)?,
                (Some(old_at), false) => {
                    let kept = in_text(&path.with_file_name(old_at));
                    return Err(io::Error::other(format!(
                        "something else is there now; what was there before is {kept}"
                    )));
                }
                (None, true) if entry.old.is_none() => remove(&parent, name, &entry.new_inner)?,
                (None, true) => return Err(io::Error::other("what was there before is gone")),
                (None, false) => {}
            }
            // Only what was put there by us.
            if put.is_none() || put != entry.new {
                return Ok(());
            }
        }
        if put.is_some() { remove(&parent, beside, &entry.new_inner) } else { Ok(()) }
    })
}

/// Removes what was there before a change that was taken over; what could not be, in sentences.
pub(crate) fn forth(target: &Folder, journal: &Journal, step: &dyn Fn(u64) -> bool) -> Vec<String> {
    let mut behind = u64::try_from(journal.steps.len()).unwrap_or(0);
    told(journal.steps.iter(), |entry, path| {
        // There is no way back from here.
        let _goes_on = step(behind);
        behind += 1;
        let Some(parent) = there(parent(target, path))? else { return Ok(()) };
        let beside = OsStr::new(&entry.beside);
        for name in [beside, &aside(beside)] {
            let old = there(parent.look(name))?.map(|meta| id(&meta));
            if old.is_some() && old == entry.old {
                remove(&parent, name, &entry.old_inner)?;
            }
        }
        Ok(())
    })
}

fn told<'a>(
    entries: impl Iterator<Item = &'a Entry>,
    mut each: impl FnMut(&Entry, &Path) -> io::Result<()>,
) -> Vec<String> {
    let mut left = Vec::new();
    for entry in entries {
        let path = entry.path.path();
        if let Err(e) = each(entry, &path) {
            left.push(format!("{}: {e}", in_text(&path)));
        }
    }
    left
}

fn there<T>(looked: io::Result<T>) -> io::Result<Option<T>> {
    match looked {
        Ok(it) => Ok(Some(it)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Removes an entry and what is known to be in it, and nothing else.
fn remove(parent: &Folder, name: &OsStr, inner: &[Word]) -> io::Result<()> {
    let one = |parent: &Folder, name: &OsStr| match there(parent.look(name))? {
        None => Ok(()),
        Some(meta) if meta.is_dir() => parent.remove_folder(name),
        Some(_) => parent.remove_file(name),
    };
    let mut paths: Vec<PathBuf> = inner.iter().map(Word::path).collect();
    paths.sort();
    for path in paths.iter().rev() {
        let at = Path::new(name).join(path);
        if let Some(folder) = there(self::parent(parent, &at))? {
            one(&folder, at.file_name().unwrap_or_default())?;
        }
    }
    one(parent, name)
}
