//! The copy that a run works on.

use std::path::{Path, PathBuf};

use policy::Limits;
use serde_json::{Value, json};

use crate::import::{Imported, Progress, import};
use crate::manifest::{Kind, digest};
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
