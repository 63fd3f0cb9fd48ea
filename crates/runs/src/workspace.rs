//! The copy that a run works on.

use std::path::{Path, PathBuf};

use policy::Limits;
use serde_json::{Value, json};

use crate::beneath::Folder;
use crate::import::{Imported, Progress, import};
use crate::manifest::{self, Kind, Manifest, digest};
use crate::{RunError, Summary, collect};

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
}

impl Workspace {
    /// Copies `source` (a folder, one file, or nothing) into the new folder `root`; `store`, the folder of all
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
        let taken = import(source, root, store, limits, owner, progress)?;
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
        Workspace { root: root.to_owned(), taken: Imported { manifest, notes: Vec::new(), bytes, source } }
    }

    /// What was taken in, as a text from which [`Workspace::again`] can be had.
    pub(crate) fn manifest(&self) -> Vec<u8> {
        manifest::written(&self.taken.manifest)
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What was taken in, for `meta.json`.
    pub fn describe(&self) -> Value {
        let files = self.taken.manifest.values().filter(|i| matches!(i.kind, Kind::File { .. })).count();
        json!({
            "files": files,
            "bytes": self.taken.bytes,
            "sha256": digest(&self.taken.manifest),
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
        Ok(Changes { summary: done.summary, patch: done.patch, artifacts: done.artifacts })
    }
}
