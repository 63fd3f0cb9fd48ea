//! The workspace from a folder downwards: each folder opened under the one it is in, through no link.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{FileType, Mode, OFlags, openat};

use super::super::walk::{Workspace, look};
use super::Refusal;
use super::ignored::Rules;

/// Entries that are looked at.
const MOST: u64 = 1_000_000;
/// How deep it is gone.
const DEPTH: u32 = 128;

/// What is looked at of it, and what was left out.
pub(super) struct Tree {
    /// Whether ignored entries count too.
    all: bool,
    seen: AtomicU64,
    ignored: AtomicU64,
    cut: AtomicBool,
}

/// A folder in it.
pub(super) struct At {
    pub(super) folder: OwnedFd,
    /// From the workspace on, as it was asked for; empty for the workspace.
    pub(super) path: Vec<u8>,
    rules: Option<Arc<Rules>>,
    depth: u32,
}

/// Something in a folder.
pub(super) struct Entry {
    pub(super) name: OsString,
    pub(super) kind: FileType,
}

impl At {
    /// The path of an entry.
    pub(super) fn path_of(&self, name: &OsStr) -> Vec<u8> {
        below(&self.path, name.as_bytes())
    }
}

fn below(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

impl Tree {
    pub(super) fn new(all: bool) -> Tree {
        let (seen, ignored, cut) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Tree { all, seen, ignored, cut }
    }

    /// The folder where it begins.
    pub(super) fn begin(&self, workspace: &Workspace, path: &OsStr) -> Result<At, Refusal> {
        let folder = workspace.folder(path)?;
        let parts = workspace.parts(path).unwrap_or_default();
        let mut above = None;
        // The rules on the way down; of a way that goes up again there is no telling.
        if !self.all && !parts.contains(&&b".."[..]) {
            let mut way = Vec::new();
            for part in parts.iter().copied() {
                let here = if way.is_empty() { b".".to_vec() } else { way.clone() };
                if let Ok(here) = workspace.folder(OsStr::from_bytes(&here)) {
                    above = Rules::read(&here, &way, above);
                }
                way = below(&way, part);
            }
        }
        Ok(self.at(folder, parts.join(&b'/'), above, 0))
    }

    fn at(&self, folder: OwnedFd, path: Vec<u8>, above: Option<Arc<Rules>>, depth: u32) -> At {
        let rules = if self.all { None } else { Rules::read(&folder, &path, above) };
        At { folder, path, rules, depth }
    }

    /// What is in a folder and counts, sorted.
    pub(super) fn entries(&self, at: &At) -> Vec<Entry> {
        // Who may not be read, or went away, has nothing in it.
        let Ok(names) = super::names(&at.folder) else { return Vec::new() };
        let count = u64::try_from(names.len()).unwrap_or(u64::MAX);
        if self.seen.fetch_add(count, Ordering::Relaxed) > MOST {
            self.cut.store(true, Ordering::Relaxed);
            return Vec::new();
        }
        let counts = |(name, kind): (OsString, FileType)| {
            if name == ".git" {
                return None;
            }
            let kind = match kind {
                FileType::Unknown => FileType::from_raw_mode(look(&at.folder, &name).ok()?.st_mode),
                known => known,
            };
            if let Some(rules) = &at.rules
                && rules.ignores(&at.path_of(&name), kind == FileType::Directory)
            {
                self.ignored.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            Some(Entry { name, kind })
        };
        names.into_iter().filter_map(counts).collect()
    }

    /// A folder in a folder.
    pub(super) fn enter(&self, at: &At, name: &OsStr) -> Option<At> {
        if at.depth >= DEPTH {
            self.cut.store(true, Ordering::Relaxed);
            return None;
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let folder = openat(&at.folder, name, flags, Mode::empty()).ok()?;
        Some(self.at(folder, at.path_of(name), at.rules.clone(), at.depth + 1))
    }

    /// Entries that were left out because they are ignored.
    pub(super) fn ignored(&self) -> u64 {
        self.ignored.load(Ordering::Relaxed)
    }

    /// Whether a bound left anything out.
    pub(super) fn cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// A bound left something out.
    pub(super) fn is_cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }
}
