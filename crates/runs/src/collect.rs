//! What a run has changed: its workspace compared with what was taken in.
//!
//! The tree is hostile. It is walked after its sandbox is gone, by descriptor, through no link, within bounds;
//! nothing in it is executed and no program is started on it. What cannot be taken over safely is refused by
//! name and the rest goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use policy::Limits;
use rustix::fs::{FileType, Stat};
use sha2::{Digest, Sha256};

use crate::beneath::Folder;
use crate::changes;
use crate::clean::is_invisible;
use crate::import::{DEEPEST, Ended, Imported, Seal};
use crate::manifest::{Item, Kind, hex, link_leaves, sha256};
use crate::patch::{self, Side};
use crate::quote::{in_patch, in_text};
use crate::rename::{self, Candidate};
use crate::{Apart, Counts, Renamed, RunError, Summary};

/// Larger files are not compared line by line.
pub(crate) const LARGEST_TEXT: u64 = 4 << 20;
/// Of files that are not in the patch, this much is kept as an artifact: each, and all together.
const LARGEST_KEPT: u64 = 16 << 20;
const ALL_KEPT: u64 = 64 << 20;
/// Artifacts whose hashes one line of the record surely holds.
const MOST_KEPT: usize = 1000;
const LARGEST_PATCH: usize = 64 << 20;
const BINARY: &str = "binary";
const LONGEST_PATH: usize = 4000;
const MOST_REFUSED: usize = 1000;

/// The outcome.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) summary: Summary,
    pub(crate) patch: Vec<u8>,
    /// Artifacts that hold new content which is not in the patch.
    pub(crate) artifacts: Vec<String>,
    /// Every difference, for who takes it over later.
    pub(crate) changes: changes::Changes,
}

/// Compares `root` with what was taken in; `keep` stores an artifact and says its hash.
pub(crate) fn collect(
    root: &Path,
    taken: &Imported,
    limits: &Limits,
    keep: &mut dyn FnMut(&[u8]) -> Result<String, RunError>,
) -> Result<Collected, RunError> {
    let folder = open(root).map_err(RunError::io("open", root))?;
    let meta = folder.metadata().map_err(RunError::io("read", root))?;
    let files = usize::try_from(limits.files).unwrap_or(usize::MAX);
    let mut walk = Walk {
        limits,
        dev: meta.dev(),
        room: files.saturating_mul(2).saturating_add(taken.manifest.len()).saturating_add(1000),
        found: Vec::new(),
        links: BTreeMap::new(),
        refused: Refused::default(),
        cut_short: false,
    };
    walk.folder(&folder, Path::new(""), 0);
    let Walk { mut found, links, mut refused, cut_short, .. } = walk;
    refuse_outside_links(&mut found, &links, &mut refused);
    let changes = compare(&folder, taken, &found, limits, &mut refused, cut_short);
    // Who takes the change over has a file less and a file more, wherever it came from.
    let list = changes.iter().map(told).collect();
    let changes = with_renames(&folder, taken, changes);
    let mut writer = Writer {
        folder: &folder,
        taken,
        keep,
        kept: 0,
        head: Vec::new(),
        body: Vec::new(),
        out: Collected::default(),
    };
    for change in &changes {
        writer.change(change)?;
    }
    let mut out = writer.end();
    out.changes = list;
    out.summary.refused = refused.end();
    let count = |names: &Vec<String>| u64::try_from(names.len()).unwrap_or(u64::MAX);
    let Summary { added, changed, deleted, renamed, .. } = &out.summary;
    out.summary.counts = Counts {
        added: count(added),
        changed: count(changed),
        deleted: count(deleted),
        renamed: u64::try_from(renamed.len()).unwrap_or(u64::MAX),
    };
    Ok(out)
}

/// The guest owns the workspace and may have locked it.
fn open(root: &Path) -> io::Result<Folder> {
    if let (Some(parent), Some(name)) = (root.parent(), root.file_name()) {
        let parent = Folder::open(parent)?;
        let mode = parent.look(name)?.mode() & 0o777;
        if mode & 0o500 != 0o500 {
            parent.unlock(name, mode | 0o700)?;
        }
        return parent.folder(Path::new(name));
    }
    Folder::open(root)
}

/// What stands in the tree now.
#[derive(Debug)]
enum Now {
    File { status: Stat },
    Link { target: OsString },
}

#[derive(Default)]
struct Refused {
    notes: Vec<String>,
    more: u64,
    paths: BTreeSet<PathBuf>,
}

impl Refused {
    fn add(&mut self, path: &Path, why: &str) {
        self.paths.insert(path.to_owned());
        if self.notes.len() < MOST_REFUSED {
            self.notes.push(format!("{}: {why}", in_text(path)));
        } else {
            self.more += 1;
        }
    }

    /// Whether the path or a folder above it was refused.
    fn covers(&self, path: &Path) -> bool {
        path.ancestors().any(|p| self.paths.contains(p))
    }

    fn end(mut self) -> Vec<String> {
        if self.more > 0 {
            self.notes.push(format!("and {} more", self.more));
        }
        self.notes
    }
}

struct Walk<'a> {
    limits: &'a Limits,
    dev: u64,
    room: usize,
    /// In the order of paths.
    found: Vec<(PathBuf, Now)>,
    /// How often each file with more names than one was met.
    links: BTreeMap<(u64, u64), u64>,
    refused: Refused,
    cut_short: bool,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Folder, path: &Path, depth: usize) {
        let names = match folder.names(self.room) {
            Ok((names, more)) => {
                if more {
                    self.cut(path);
                }
                names
            }
            Err(e) => return self.refused.add(path, &format!("cannot be listed: {}", kind_of(&e))),
        };
        self.room -= names.len().min(self.room);
        for name in names {
            self.entry(folder, &name, &path.join(&name), depth);
        }
    }

    fn cut(&mut self, path: &Path) {
        if std::mem::replace(&mut self.cut_short, true) {
            return;
        }
        self.refused.add(path, "more entries than `limits.files` allows by far; deletions are not told");
    }

    fn entry(&mut self, folder: &Folder, name: &OsStr, path: &Path, depth: usize) {
        let meta = match folder.status(name) {
            Ok(meta) => meta,
            Err(e) => return self.refused.add(path, &format!("cannot be looked at: {}", kind_of(&e))),
        };
        let kind = FileType::from_raw_mode(meta.st_mode);
        let (is_file, is_folder) = (kind == FileType::RegularFile, kind == FileType::Directory);
        let special = is_file && meta.st_mode & 0o7000 != 0;
        let why = if path.as_os_str().len() > LONGEST_PATH {
            "its path is too long"
        } else if special {
            "a file with a setuid, setgid or sticky bit"
        } else if is_file && u64::try_from(meta.st_size).is_ok_and(|size| size > self.limits.disk) {
            "a file larger than `limits.disk`"
        } else if is_folder && meta.st_dev != self.dev {
            "another file system"
        } else if is_folder && depth >= DEEPEST {
            "folders nested too deep"
        } else {
            match kind {
                FileType::RegularFile | FileType::Directory | FileType::Symlink => "",
                FileType::Fifo => "a FIFO",
                FileType::Socket => "a socket",
                FileType::BlockDevice | FileType::CharacterDevice => "a device",
                FileType::Unknown => "it is of no kind that is known",
            }
        };
        if special && folder.unlock(name, meta.st_mode & 0o777).is_err() {
            // On the host such a file is what it says: anybody who reaches it becomes its owner.
            return self.refused.add(path, "a file whose setuid, setgid or sticky bit cannot be taken");
        }
        if !why.is_empty() {
            return self.refused.add(path, why);
        }
        if is_folder {
            self.inner(folder, name, path, meta.st_mode, depth);
        } else if is_file {
            if meta.st_mode & 0o400 == 0 && folder.unlock(name, (meta.st_mode & 0o777) | 0o400).is_err() {
                return self.refused.add(path, "cannot be made readable");
            }
            if meta.st_nlink > 1 {
                *self.links.entry((meta.st_dev, meta.st_ino)).or_default() += 1;
            }
            self.found.push((path.to_owned(), Now::File { status: meta }));
        } else {
            match folder.target(name) {
                Ok(target) => match link_leaves(path.parent().unwrap_or(Path::new("")), Path::new(&target)) {
                    Some(why) => self.refused.add(path, why),
                    None => self.found.push((path.to_owned(), Now::Link { target })),
                },
                Err(e) => self.refused.add(path, &format!("cannot be read: {}", kind_of(&e))),
            }
        }
    }

    fn inner(&mut self, folder: &Folder, name: &OsStr, path: &Path, mode: u32, depth: usize) {
        // The guest may have locked a folder; where it is ours it is opened again.
        if mode & 0o500 != 0o500 && folder.unlock(name, (mode & 0o777) | 0o700).is_err() {
            return self.refused.add(path, "cannot be made readable");
        }
        match folder.folder(Path::new(name)) {
            Ok(inner) => self.folder(&inner, path, depth + 1),
            Err(e) => self.refused.add(path, &format!("cannot be opened: {}", kind_of(&e))),
        }
    }
}

/// A file with more names than the tree shows has one outside.
fn refuse_outside_links(
    found: &mut Vec<(PathBuf, Now)>,
    links: &BTreeMap<(u64, u64), u64>,
    refused: &mut Refused,
) {
    found.retain(|(path, now)| match now {
        Now::File { status: s } if s.st_nlink > 1 => {
            let met = links.get(&(s.st_dev, s.st_ino)).copied().unwrap_or(0);
            let outside = i128::from(s.st_nlink) > i128::from(met);
            if outside {
                refused.add(path, "a hard link to a file outside the workspace");
            }
            !outside
        }
        Now::File { .. } | Now::Link { .. } => true,
    });
}

/// One difference. Modes are git's: 100644, 100755, 120000.
#[derive(Debug)]
struct Change {
    path: PathBuf,
    /// Where it was, if that was elsewhere, and how much of it is the same in percent.
    from: Option<(PathBuf, u8)>,
    old: Option<Item>,
    new: Option<New>,
}

#[derive(Debug)]
enum New {
    File { executable: bool, size: u64, sha256: String },
    Link { target: OsString },
}

fn told(change: &Change) -> (PathBuf, changes::Change) {
    let new = change.new.as_ref().map(|new| match new {
        New::Link { target } => Item { kind: Kind::Link { target: target.clone() }, mode: 0o777 },
        New::File { executable, size, sha256 } => {
            let kind = Kind::File { size: *size, sha256: sha256.clone() };
            Item { kind, mode: git_mode(*executable) & 0o777 }
        }
    });
    (change.path.clone(), changes::Change { old: change.old.clone(), new })
}

fn compare(
    folder: &Folder,
    taken: &Imported,
    found: &[(PathBuf, Now)],
    limits: &Limits,
    refused: &mut Refused,
    cut_short: bool,
) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut repositories = BTreeSet::new();
    let mut room = limits.disk.saturating_mul(2).saturating_add(taken.bytes);
    let seals = Seals::of(taken);
    // Both are in the order of paths.
    let mut old_entries =
        taken.manifest.iter().filter(|(_, item)| !matches!(item.kind, Kind::Folder)).peekable();
    let gone = |path: &PathBuf, old: &Item, changes: &mut Vec<Change>| {
        if !cut_short && !refused.covers(path) {
            changes.push(Change { path: path.clone(), from: None, old: Some(old.clone()), new: None });
        }
    };
    let mut pairs = Vec::with_capacity(found.len());
    for (path, now) in found {
        while let Some((other, old)) = old_entries.next_if(|(other, _)| *other < path) {
            gone(other, old, &mut changes);
        }
        pairs.push((path, now, old_entries.next_if(|(other, _)| *other == path).map(|(_, old)| old)));
    }
    for (path, old) in old_entries {
        gone(path, old, &mut changes);
    }
    for (path, now, old) in pairs {
        let new = match now {
            Now::Link { target } => New::Link { target: target.clone() },
            Now::File { status } if old.is_some_and(|old| seals.prove(path, old, status)) => continue,
            Now::File { status } if u64::try_from(status.st_size).is_ok_and(|size| size > room) => {
                refused.add(path, "not read: the files together are larger than twice `limits.disk`");
                continue;
            }
            Now::File { status } => match sum(folder, path, (status.st_dev, status.st_ino)) {
                Ok((size, sha256)) => {
                    room = room.saturating_sub(size);
                    New::File { executable: status.st_mode & 0o100 != 0, size, sha256 }
                }
                Err(e) => {
                    refused.add(path, &format!("cannot be read: {}", kind_of(&e)));
                    continue;
                }
            },
        };
        if !old.is_some_and(|old| same(old, &new)) {
            changes.push(Change { path: path.clone(), from: None, old: old.cloned(), new: Some(new) });
        }
    }
    changes.retain(|change| match repository(&change.path) {
        Some(root) => {
            repositories.insert(root);
            false
        }
        None => true,
    });
    for root in repositories {
        refused.add(&root, "changes to a repository's own files are not taken");
    }
    // Deletions first, so that a file may take the place of a folder.
    changes.sort_by(|a, b| (a.new.is_some(), &a.path).cmp(&(b.new.is_some(), &b.path)));
    changes
}

/// Files of which it is known without reading them that they are as they were taken in.
struct Seals<'a> {
    seals: Option<(&'a BTreeMap<PathBuf, Seal>, &'a Ended)>,
}

impl<'a> Seals<'a> {
    fn of(taken: &'a Imported) -> Seals<'a> {
        let ended = taken.ended.as_ref().filter(|ended| ended.clock_held());
        Seals { seals: ended.map(|ended| (&taken.seals, ended)) }
    }

    fn prove(&self, path: &Path, old: &Item, now: &Stat) -> bool {
        let Some((seals, ended)) = self.seals else { return false };
        let seal = seals.get(path).filter(|seal| ended.proves(seal) && seal.holds(now));
        seal.is_some() && (old.mode ^ now.st_mode) & 0o100 == 0
    }
}

/// The same with what is gone in one place and new in another as one change.
fn with_renames(folder: &Folder, taken: &Imported, mut changes: Vec<Change>) -> Vec<Change> {
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    for change in &changes {
        match (&change.old, &change.new) {
            (Some(Item { kind: Kind::File { size, sha256 }, .. }), None) => {
                gone.push(Candidate { path: &change.path, size: *size, sha256 });
            }
            (None, Some(New::File { size, sha256, .. })) => {
                new.push(Candidate { path: &change.path, size: *size, sha256 });
            }
            (None | Some(_), None | Some(_)) => {}
        }
    }
    let read = |side, file: &Candidate<'_>| {
        let root = match side {
            rename::Side::Gone => taken.source.as_ref()?,
            rename::Side::New => folder,
        };
        read(root, file.path, file.size).ok()
    };
    let pairs = rename::pairs(&gone, &new, &read);
    let mut old: BTreeMap<PathBuf, Item> = BTreeMap::new();
    let sources: BTreeSet<&PathBuf> = pairs.iter().map(|pair| &pair.from).collect();
    changes.retain_mut(|change| {
        let moved = change.new.is_none() && sources.contains(&change.path);
        if let Some(item) = change.old.take_if(|_| moved) {
            old.insert(change.path.clone(), item);
        }
        !moved
    });
    let mut sources: BTreeMap<PathBuf, (PathBuf, u8)> =
        pairs.into_iter().map(|pair| (pair.to, (pair.from, pair.same))).collect();
    for change in &mut changes {
        if let Some((from, same)) = sources.remove(&change.path) {
            change.old = old.remove(&from);
            change.from = Some((from, same));
        }
    }
    changes
}

fn same(old: &Item, new: &New) -> bool {
    match (&old.kind, new) {
        (Kind::File { sha256: was, .. }, New::File { executable, sha256, .. }) => {
            was == sha256 && (old.mode & 0o100 != 0) == *executable
        }
        (Kind::Link { target: was }, New::Link { target }) => was == target,
        (Kind::File { .. } | Kind::Link { .. } | Kind::Folder, New::File { .. } | New::Link { .. }) => false,
    }
}

/// The `.git` that a path is, or is inside. A hook or a filter planted there would run on the host, later.
pub(crate) fn repository(path: &Path) -> Option<PathBuf> {
    path.ancestors().filter(|p| p.file_name().is_some_and(is_git)).last().map(Path::to_owned)
}

/// Also the names that other file systems take for `.git`; git refuses a whole patch for one of them.
pub(crate) fn is_git(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    let ignored = |c: char| is_invisible(c) || matches!(c, '\u{200c}' | '\u{200d}' | '\u{206a}'..='\u{206f}');
    let name: String = name.chars().filter(|c| !ignored(*c)).collect();
    let name = name.split(':').next().unwrap_or("").trim_end_matches(['.', ' ']);
    name == ".git" || name == "git~1"
}

fn sum(folder: &Folder, path: &Path, id: (u64, u64)) -> io::Result<(u64, String)> {
    let mut file = folder.file(path)?;
    let meta = file.metadata()?;
    if (meta.dev(), meta.ino()) != id {
        return Err(io::Error::other("exchanged while it was read"));
    }
    let mut bounded = (&mut file).take(meta.len());
    let mut sum = Sha256::new();
    let mut piece = vec![0u8; 256 * 1024];
    let mut size = 0u64;
    loop {
        let n = bounded.read(&mut piece)?;
        let Some(bytes) = piece.get(..n).filter(|b| !b.is_empty()) else { break };
        size += u64::try_from(n).unwrap_or(u64::MAX);
        sum.update(bytes);
    }
    Ok((size, hex(&sum.finalize())))
}

struct Writer<'a> {
    folder: &'a Folder,
    taken: &'a Imported,
    keep: &'a mut dyn FnMut(&[u8]) -> Result<String, RunError>,
    kept: u64,
    head: Vec<u8>,
    body: Vec<u8>,
    out: Collected,
}

impl Writer<'_> {
    fn change(&mut self, change: &Change) -> Result<(), RunError> {
        let path = &change.path;
        let shown = in_text(path);
        if let Some((from, same)) = &change.from {
            self.out.summary.renamed.push(Renamed { from: in_text(from), to: shown, same: *same });
            return self.renamed(change, from, *same);
        }
        match (&change.old, &change.new) {
            (None, _) => self.out.summary.added.push(shown),
            (Some(_), Some(_)) => self.out.summary.changed.push(shown),
            (Some(_), None) => self.out.summary.deleted.push(shown),
        }
        let old = match &change.old {
            None => None,
            Some(item) => match self.old(path, item) {
                Ok(side) => Some(side),
                Err(why) => return self.apart(change, why),
            },
        };
        let new = match &change.new {
            None => None,
            Some(new) => match self.new_side(path, new) {
                Ok(side) => Some(side),
                Err(why) => return self.apart(change, why),
            },
        };
        let (old, new) = (view(&old), view(&new));
        let binary = |s: Option<Side<'_>>| s.is_some_and(|s| s.bytes.contains(&0));
        if (binary(old) || binary(new)) && old.map(|s| s.bytes) != new.map(|s| s.bytes) {
            return self.apart(change, BINARY);
        }
        let part = match (old, new) {
            // A file became a link or the other way round: two steps, as git does.
            (Some(a), Some(b)) if (a.mode ^ b.mode) & 0o170_000 != 0 => {
                [patch::file(path, old, None), patch::file(path, None, new)].concat()
            }
            _ => patch::file(path, old, new),
        };
        self.push(change, part)
    }

    fn push(&mut self, change: &Change, part: Vec<u8>) -> Result<(), RunError> {
        if self.body.len().saturating_add(part.len()) > LARGEST_PATCH {
            return self.apart(change, "the patch is full");
        }
        self.body.extend_from_slice(&part);
        Ok(())
    }

    /// Content that is the same is not in the patch, and so it may be of any kind and size.
    fn renamed(&mut self, change: &Change, from: &Path, same: u8) -> Result<(), RunError> {
        let (Some(item), Some(new)) = (&change.old, &change.new) else { return Ok(()) };
        let sides = if same == 100 {
            self.moved(from, item, new)
        } else {
            self.old(from, item).and_then(|old| Ok((old, self.new_side(&change.path, new)?)))
        };
        let (old, new) = match sides {
            Ok((old, new)) if same == 100 || !(old.1.contains(&0) || new.1.contains(&0)) => (old, new),
            Ok(_) => return self.apart(change, BINARY),
            Err(why) => return self.apart(change, why),
        };
        let (a, b) = (Side { mode: old.0, bytes: &old.1 }, Side { mode: new.0, bytes: &new.1 });
        let part = patch::renamed(from, &change.path, a, b, same);
        self.push(change, part)
    }

    /// Both sides of a file that was only moved, without their content; the original must still have it.
    fn moved(&self, from: &Path, item: &Item, new: &New) -> Result<Sides, &'static str> {
        let New::File { executable, sha256, .. } = new else { return Err("a link") };
        let source = self.taken.source.as_ref().ok_or("the original is gone")?;
        let meta = source.file(from).and_then(|file| file.metadata());
        let meta = meta.map_err(|_| "the original can no longer be read")?;
        let now =
            sum(source, from, (meta.dev(), meta.ino())).map_err(|_| "the original can no longer be read")?;
        if now.1 != *sha256 {
            return Err("the original was changed while the run went on");
        }
        let side = |executable| (git_mode(executable), Vec::new());
        Ok((side(item.mode & 0o100 != 0), side(*executable)))
    }

    /// The original, as it was taken in: read again, and believed only when it is still the same.
    fn old(&self, path: &Path, item: &Item) -> Result<(u32, Vec<u8>), &'static str> {
        match &item.kind {
            Kind::Link { target } => Ok((0o120_000, target.as_bytes().to_vec())),
            Kind::Folder => Err("a folder"),
            Kind::File { size, .. } if *size > LARGEST_TEXT => Err("too large to compare"),
            Kind::File { size, sha256: was } => {
                let source = self.taken.source.as_ref().ok_or("the original is gone")?;
                let bytes = read(source, path, *size).map_err(|_| "the original can no longer be read")?;
                if sha256(&bytes) != *was {
                    return Err("the original was changed while the run went on");
                }
                Ok((git_mode(item.mode & 0o100 != 0), bytes))
            }
        }
    }

    fn new_side(&self, path: &Path, new: &New) -> Result<(u32, Vec<u8>), &'static str> {
        match new {
            New::Link { target } => Ok((0o120_000, target.as_bytes().to_vec())),
            New::File { size, .. } if *size > LARGEST_TEXT => Err("too large to compare"),
            New::File { executable, size, sha256: was } => {
                let bytes = read(self.folder, path, *size).map_err(|_| "it can no longer be read")?;
                if sha256(&bytes) != *was {
                    return Err("it was changed while it was collected");
                }
                Ok((git_mode(*executable), bytes))
            }
        }
    }

    /// A change that is told and kept beside the patch, not in it.
    fn apart(&mut self, change: &Change, why: &'static str) -> Result<(), RunError> {
        let path = &change.path;
        let room = self.out.artifacts.len() < MOST_KEPT;
        let artifact = match &change.new {
            Some(New::File { size, .. })
                if room && *size <= LARGEST_KEPT && self.kept + *size <= ALL_KEPT =>
            {
                match read(self.folder, path, *size) {
                    Ok(bytes) => {
                        self.kept += *size;
                        Some((self.keep)(&bytes)?)
                    }
                    Err(_) => None,
                }
            }
            Some(New::File { .. } | New::Link { .. }) | None => None,
        };
        let was = change.from.as_ref().map_or(path.as_path(), |(from, _)| from);
        let (a, b) = (in_patch("a/", was), in_patch("b/", path));
        let what = if why == BINARY { "Binary".to_owned() } else { format!("Not shown ({why}):") };
        let kept = artifact.as_ref().map(|id| format!("; new content: artifact {id}")).unwrap_or_default();
        // Before everything else in the patch, where every patch tool skips it.
        self.head.extend_from_slice(format!("# {what} files {a} and {b} differ{kept}\n").as_bytes());
        self.out.artifacts.extend(artifact.clone());
        self.out.summary.apart.push(Apart { path: in_text(path), why, artifact });
        Ok(())
    }

    fn end(mut self) -> Collected {
        self.head.append(&mut self.body);
        self.out.patch = self.head;
        self.out
    }
}

/// Modes and contents before and after.
type Sides = ((u32, Vec<u8>), (u32, Vec<u8>));

fn view(side: &Option<(u32, Vec<u8>)>) -> Option<Side<'_>> {
    side.as_ref().map(|(mode, bytes)| Side { mode: *mode, bytes })
}

/// Git's mode of a file.
pub(crate) fn git_mode(executable: bool) -> u32 {
    if executable { 0o100_755 } else { 0o100_644 }
}

fn read(folder: &Folder, path: &Path, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    folder.file(path)?.take(size.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The system's word without its number; paths never stand in it.
fn kind_of(e: &io::Error) -> String {
    e.kind().to_string()
}
