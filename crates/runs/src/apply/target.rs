//! The folder that a change is applied to, held against what the run had taken in, and the steps that take it from
//! there to what the run has made.
//!
//! A step replaces one entry by another in one move: whole new folders are put beside first, and whole folders that
//! are gone are moved as they are. So no step lies beneath another one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::Metadata;
use std::io::{self, ErrorKind, Read};
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::beneath::Folder;
use crate::changes::Changes;
use crate::import::DEEPEST;
use crate::manifest::{Item, Kind, hex};
use crate::quote::in_text;

const MOST_TOLD: usize = 50;
const MOST_ENTRIES: usize = 1_000_000;

/// What stands at a path of the target.
#[derive(Debug)]
pub(crate) enum Now {
    Absent,
    File(Metadata),
    Link(Metadata, OsString),
    Folder(Metadata),
    /// Something else, or the way to it is not one of folders.
    Odd(&'static str),
}

/// One entry of the target and what comes in its place.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// What is there, as it was looked at.
    pub(crate) old: Option<Was>,
    /// What comes: the entry itself (the empty path) or a folder with everything that will be in it.
    pub(crate) new: BTreeMap<PathBuf, Item>,
}

/// An entry of the target that goes.
#[derive(Debug)]
pub(crate) struct Was {
    pub(crate) meta: Metadata,
    pub(crate) item: Item,
    /// Everything in it, where it is a folder.
    pub(crate) inner: BTreeSet<PathBuf>,
}

/// How the target stands.
#[derive(Debug)]
pub(crate) enum Stands {
    /// As it was when it was taken in: this is to be done.
    Ready(BTreeMap<PathBuf, Step>),
    /// It is what the run has made already.
    Already,
    /// Somebody has changed it: where, and how.
    Changed(Vec<String>),
}

/// Looks at every path of the change.
pub(crate) fn look(target: &Folder, work: &Folder, changes: &Changes) -> io::Result<Stands> {
    let mut look = Look { target, work, changes, removable: BTreeMap::new(), differs: Vec::new(), more: 0 };
    let mut steps = BTreeMap::new();
    let mut as_made = true;
    for (path, change) in changes {
        let now = now(target, path)?;
        // What was in a folder is gone where the file stands that took its place, and the other way round.
        let gone = change.new.is_none()
            && match now {
                Now::Odd(_) => look.covers(path),
                Now::Folder(_) => look.fills(path),
                Now::Absent | Now::File(_) | Now::Link(..) => false,
            };
        as_made = as_made && (gone || is(target, path, &now, change.new.as_ref())?);
        let fits = match (&change.old, &now) {
            // A folder of files that all go may make room for one.
            (None, Now::Folder(_)) => true,
            (None, Now::Odd(_)) if look.frees(path) => true,
            (old, now) => is(target, path, now, old.as_ref())?,
        };
        if fits {
            look.step(path, now, &mut steps)?;
        } else {
            look.differ(path, &now, change.old.is_some());
        }
    }
    if look.differs.is_empty() {
        return Ok(Stands::Ready(steps));
    }
    if as_made {
        return Ok(Stands::Already);
    }
    if look.more > 0 {
        look.differs.push(format!("and {} more", look.more));
    }
    Ok(Stands::Changed(look.differs))
}

struct Look<'a> {
    target: &'a Folder,
    work: &'a Folder,
    changes: &'a Changes,
    /// Folders whose every file goes, with what is in them.
    removable: BTreeMap<PathBuf, Option<BTreeSet<PathBuf>>>,
    differs: Vec<String>,
    more: usize,
}

impl Look<'_> {
    fn differ(&mut self, path: &Path, now: &Now, was_there: bool) {
        let why = match (now, was_there) {
            (Now::Absent, _) => "it is gone",
            (Now::Odd(why), _) => why,
            (Now::Folder(_), _) => "there is a folder now",
            (Now::File(_) | Now::Link(..), true) => "it is another now",
            (Now::File(_) | Now::Link(..), false) => "there is something now",
        };
        if self.differs.len() < MOST_TOLD {
            self.differs.push(format!("{}: {why}", in_text(path)));
        } else {
            self.more += 1;
        }
    }

    /// Whether something above the path that is no folder now goes by this change.
    fn frees(&self, path: &Path) -> bool {
        path.ancestors().skip(1).any(|above| {
            self.changes.get(above).is_some_and(|change| change.old.is_some() && change.new.is_none())
        })
    }

    /// Whether something above the path comes by this change.
    fn covers(&self, path: &Path) -> bool {
        path.ancestors()
            .skip(1)
            .any(|above| self.changes.get(above).is_some_and(|change| change.new.is_some()))
    }

    /// Whether something beneath the path comes by this change.
    fn fills(&self, path: &Path) -> bool {
        let behind = self.changes.range::<Path, _>((Bound::Excluded(path), Bound::Unbounded));
        let mut beneath = behind.take_while(|(inner, _)| inner.starts_with(path));
        beneath.any(|(_, change)| change.new.is_some())
    }

    fn step(&mut self, path: &Path, now: Now, steps: &mut BTreeMap<PathBuf, Step>) -> io::Result<()> {
        let change = &self.changes[path];
        let Some(new) = &change.new else {
            // A folder that is gone goes as a whole, the outermost one.
            let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
            above.pop();
            while let Some(folder) = above.pop() {
                if self.work.folder(folder).is_err() && self.removable(folder)?.is_some() {
                    return self.remove(folder, steps);
                }
            }
            steps.entry(path.to_owned()).or_default().old = was(now, change.old.as_ref());
            return Ok(());
        };
        if matches!(now, Now::Folder(_)) {
            if self.removable(path)?.is_none() {
                self.differ(path, &now, false);
                return Ok(());
            }
            self.remove(path, steps)?;
        }
        // The outermost folder that has to be made.
        let mut top = path;
        for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            if !matches!(self::now(self.target, above)?, Now::Folder(_)) {
                top = above;
            }
        }
        let step = steps.entry(top.to_owned()).or_default();
        if top == path && change.old.is_some() {
            step.old = was(now, change.old.as_ref());
        }
        for above in path.ancestors().skip(1).take_while(|above| above.starts_with(top)) {
            let rel = above.strip_prefix(top).unwrap_or(above);
            step.new.insert(rel.to_owned(), Item { kind: Kind::Folder, mode: 0o777 });
        }
        step.new.insert(path.strip_prefix(top).unwrap_or(path).to_owned(), new.clone());
        Ok(())
    }

    fn remove(&mut self, path: &Path, steps: &mut BTreeMap<PathBuf, Step>) -> io::Result<()> {
        let step = steps.entry(path.to_owned()).or_default();
        if step.old.is_none() {
            let inner = self.removable.get(path).cloned().flatten().unwrap_or_default();
            if let Now::Folder(meta) = now(self.target, path)? {
                let item = Item { kind: Kind::Folder, mode: meta.mode() & 0o7777 };
                step.old = Some(Was { meta, item, inner });
            }
        }
        Ok(())
    }

    fn removable(&mut self, path: &Path) -> io::Result<&Option<BTreeSet<PathBuf>>> {
        if !self.removable.contains_key(path) {
            let goes = |inner: &Path| {
                self.changes
                    .get(&path.join(inner))
                    .is_some_and(|change| change.old.is_some() && change.new.is_none())
            };
            let found = contents(self.target, path)?;
            let whole = found.filter(|found| found.iter().all(|(inner, folder)| *folder || goes(inner)));
            let inner = whole.map(|found| found.into_keys().collect());
            self.removable.insert(path.to_owned(), inner);
        }
        Ok(self.removable.get(path).unwrap_or(&None))
    }
}

fn was(now: Now, item: Option<&Item>) -> Option<Was> {
    let meta = match now {
        Now::File(meta) | Now::Link(meta, _) | Now::Folder(meta) => meta,
        Now::Absent | Now::Odd(_) => return None,
    };
    Some(Was { meta, item: item?.clone(), inner: BTreeSet::new() })
}

/// Everything in a folder, and whether each is one; none where it is too much or another file system.
pub(crate) fn contents(root: &Folder, path: &Path) -> io::Result<Option<BTreeMap<PathBuf, bool>>> {
    let folder = root.folder(path)?;
    let dev = folder.metadata()?.dev();
    let mut found = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(inner) = left.pop() {
        let (names, more) = folder.folder(&inner)?.names(MOST_ENTRIES)?;
        if more || found.len() + names.len() > MOST_ENTRIES || inner.components().count() > DEEPEST {
            return Ok(None);
        }
        let here = folder.folder(&inner)?;
        for name in names {
            let meta = here.look(&name)?;
            let path = inner.join(&name);
            if meta.dev() != dev {
                return Ok(None);
            }
            if meta.is_dir() {
                left.push(path.clone());
            }
            found.insert(path, meta.is_dir());
        }
    }
    Ok(Some(found))
}

/// What stands at a path. Nothing is ever looked at through a link.
pub(crate) fn now(root: &Folder, path: &Path) -> io::Result<Now> {
    let (parent, Some(name)) = (path.parent().unwrap_or(Path::new("")), path.file_name()) else {
        return Ok(Now::Odd("it has no name"));
    };
    let folder = match root.folder(parent) {
        Ok(folder) => folder,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Now::Absent),
        Err(e) if is_blocked(&e) => {
            return Ok(Now::Odd("what should be a folder above it is none, or a link"));
        }
        Err(e) => return Err(e),
    };
    let meta = match folder.look(name) {
        Ok(meta) => meta,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Now::Absent),
        Err(e) => return Err(e),
    };
    Ok(match meta.file_type() {
        kind if kind.is_file() => Now::File(meta),
        kind if kind.is_dir() => Now::Folder(meta),
        kind if kind.is_symlink() => {
            let target = folder.target(name)?;
            Now::Link(meta, target)
        }
        _ => Now::Odd("there is a special file"),
    })
}

fn is_blocked(e: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::NOTDIR, Errno::LOOP, Errno::XDEV]
        .iter()
        .any(|errno| e.raw_os_error() == Some(errno.raw_os_error()))
}

/// Whether what stands there is this item: kind, content, and whether it can be started.
pub(crate) fn is(root: &Folder, path: &Path, now: &Now, item: Option<&Item>) -> io::Result<bool> {
    let Some(item) = item else { return Ok(matches!(now, Now::Absent)) };
    Ok(match (&item.kind, now) {
        (Kind::Link { target }, Now::Link(_, is)) => target == is,
        (Kind::File { size, sha256 }, Now::File(meta)) => {
            *size == meta.len()
                && (item.mode ^ meta.mode()) & 0o100 == 0
                && digest(root, path, meta).is_ok_and(|is| is == *sha256)
        }
        (Kind::Folder, Now::Folder(_)) => true,
        (
            Kind::Link { .. } | Kind::File { .. } | Kind::Folder,
            Now::Absent | Now::File(_) | Now::Link(..) | Now::Folder(_) | Now::Odd(_),
        ) => false,
    })
}

fn digest(root: &Folder, path: &Path, seen: &Metadata) -> io::Result<String> {
    let file = root.file(path)?;
    let meta = file.metadata()?;
    if (meta.dev(), meta.ino()) != (seen.dev(), seen.ino()) {
        return Err(io::Error::other("exchanged while it was read"));
    }
    let mut file = file.take(seen.len().saturating_add(1));
    let mut sum = Sha256::new();
    let mut piece = vec![0u8; 256 * 1024];
    loop {
        let n = file.read(&mut piece)?;
        let Some(bytes) = piece.get(..n).filter(|b| !b.is_empty()) else { break };
        sum.update(bytes);
    }
    Ok(hex(&sum.finalize()))
}
