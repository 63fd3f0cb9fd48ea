//! The copy that a run works on.

use std::path::{Path, PathBuf};

use policy::Limits;
use serde_json::{Value, json};

use crate::beneath::Folder;
use crate::import::{History, Imported, Progress, Repository, import};
use crate::manifest::{self, Kind, Manifest, digest};
use crate::{RunError, Summary, changes, collect};

/// What a file system gives out at once, on nearly every one.
const BLOCK: u64 = 4096;

/// A workspace and what was put into it.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
    taken: Imported,
}

/// What a workspace has become.
#[derive(Debug)]
pub struct Changes {
    /// By name.
    pub summary: Summary,
    /// A patch in git's style, to be applied to the source with `-p1`.
    pub patch: Vec<u8>,
    /// Artifacts that hold new content which cannot stand in the patch.
    pub artifacts: Vec<String>,
    /// Every difference with the digests of both sides, as a text.
    pub list: Vec<u8>,
}

impl Workspace {
    /// Copies `source` (a folder, an archive, one file, or nothing) into the new folder `root`; `store`, the folder of all
    /// runs, is never taken in. `owner` will own every entry.
    ///
    /// # Errors
    /// [`RunError::Import`] names the entry that cannot be taken in; nothing is left behind then.
    pub fn import(
        source: Option<&Path>,
        root: &Path,
        store: &Path,
        limits: &Limits,
        owner: Option<(u32, u32)>,
        progress: Progress<'_>,
    ) -> Result<Workspace, RunError> {
        Workspace::import_with_history(source, root, store, limits, owner, History::default(), progress)
    }

    /// The same, with so much of a git repository's history.
    ///
    /// # Errors
    /// As [`Workspace::import`].
    pub fn import_with_history(
        source: Option<&Path>,
        root: &Path,
        store: &Path,
        limits: &Limits,
        owner: Option<(u32, u32)>,
        history: History,
        progress: Progress<'_>,
    ) -> Result<Workspace, RunError> {
        let taken = import(source, root, store, limits, owner, history, progress)?;
        Ok(Workspace { root: root.to_owned(), taken })
    }

    /// One that was made before, from what its record says was taken in.
    pub(crate) fn again(root: &Path, manifest: Manifest, source: Option<&Path>) -> Workspace {
        let bytes = manifest.values().fold(0u64, |sum, item| match item.kind {
            Kind::File { size, .. } => sum.saturating_add(size),
            Kind::Folder | Kind::Link { .. } => sum,
        });
        // An original that is gone is missed when a patch needs it, and said there.
        let source = source.and_then(|path| Folder::open(path).ok());
        let taken = Imported { manifest, bytes, source, ..Imported::default() };
        Workspace { root: root.to_owned(), taken }
    }

    /// What was taken in, as a text: a line for each entry.
    pub fn manifest(&self) -> Vec<u8> {
        manifest::written(&self.taken.manifest)
    }

    /// Bytes that what was taken in takes on a disk beyond its sizes, by what it was, whatever it has become.
    pub(crate) fn given(&self) -> u64 {
        self.taken.manifest.values().fold(0u64, |sum, item| {
            sum.saturating_add(match &item.kind {
                Kind::File { size, .. } => size.next_multiple_of(BLOCK).saturating_sub(*size),
                Kind::Folder => BLOCK,
                Kind::Link { .. } => 0,
            })
        })
    }

    /// Where the originals are, when that is not where the source is: an archive was unpacked there.
    pub fn unpacked(&self) -> Option<&Path> {
        self.taken.unpacked.as_deref()
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What was taken in, for `meta.json`.
    pub fn describe(&self) -> Value {
        let files = self.taken.manifest.values().filter(|i| matches!(i.kind, Kind::File { .. })).count();
        // Two copies of the same files are the same, whatever their times, which a fresh repository's list holds.
        let sum = match &self.taken.repository {
            Some(Repository::One { .. }) => {
                let theirs = self.taken.manifest.iter().filter(|(path, _)| !path.starts_with(".git"));
                digest(&theirs.map(|(path, item)| (path.clone(), item.clone())).collect())
            }
            Some(Repository::Keep | Repository::None) | None => digest(&self.taken.manifest),
        };
        json!({
            "files": files,
            "bytes": self.taken.bytes,
            "sha256": sum,
            "repository": self.taken.repository,
            "took_us": u64::try_from(self.taken.took.as_micros()).unwrap_or(u64::MAX),
            "notes": self.taken.notes,
        })
    }

    /// Compares the workspace with its source. The sandbox must be gone.
    ///
    /// # Errors
    /// [`RunError::Io`] when the workspace itself cannot be opened, or `keep` fails.
    pub fn collect(
        &self,
        limits: &Limits,
        keep: &mut dyn FnMut(&[u8]) -> Result<String, RunError>,
    ) -> Result<Changes, RunError> {
        let done = collect::collect(&self.root, &self.taken, limits, keep)?;
        let list = changes::written(&done.changes);
        Ok(Changes { summary: done.summary, patch: done.patch, artifacts: done.artifacts, list })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a run may take when it goes on is told by its record, not by what its guest has made of the folder.
    #[test]
    fn what_is_given_beyond_sizes_comes_from_what_was_taken_in() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        std::fs::create_dir_all(source.join("inner")).unwrap();
        std::fs::write(source.join("small"), "x").unwrap();
        std::fs::write(source.join("inner/block"), [1; 4096]).unwrap();
        let root = dir.path().join("workspace");
        let (store, limits) = (dir.path().join("runs"), Limits::default());
        let first = Workspace::import(Some(&source), &root, &store, &limits, None, &|_, _| true).unwrap();
        assert_eq!(first.given(), 4095 + 4096);
        for n in 0..100 {
            std::fs::write(root.join(n.to_string()), "left by a guest").unwrap();
        }
        let manifest = manifest::read(&first.manifest()).unwrap();
        assert_eq!(Workspace::again(&root, manifest, None).given(), first.given());
    }
}
