//! Tests of a run's copy and record, from outside.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail; so may what it stands on")]

mod apply;
mod archives;
mod gc;
mod history;
mod import;
mod patch;
mod record;
mod refusal;
mod store;
mod tampering;

use std::path::{Path, PathBuf};

use policy::Limits;
use runs::{Changes, RunError, Workspace};

/// A source folder, a store beside it, and a place for a workspace.
struct Place {
    _dir: tempfile::TempDir,
    source: PathBuf,
    store: PathBuf,
    work: PathBuf,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let [source, store] = ["source", "store"].map(|n| dir.path().join(n));
        std::fs::create_dir(&source).unwrap();
        std::fs::create_dir(&store).unwrap();
        let work = dir.path().join("work");
        Place { source, store, work, _dir: dir }
    }

    fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        write(&self.source, name, content);
    }

    fn link(&self, name: &str, target: &str) {
        std::os::unix::fs::symlink(target, self.source.join(name)).unwrap();
    }

    fn import(&self) -> Result<Workspace, RunError> {
        self.import_with(&Limits::default())
    }

    fn import_with(&self, limits: &Limits) -> Result<Workspace, RunError> {
        Workspace::import(Some(&self.source), &self.work, &self.store, limits, None, &|_, _| true)
    }

    /// The reason of a refusal, after which nothing may be left.
    fn refused(&self, limits: &Limits) -> String {
        let reason = self.import_with(limits).unwrap_err().to_string();
        assert!(!self.work.exists(), "something half-written is left");
        reason
    }
}

fn write(root: &Path, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

/// Collects with artifacts thrown away; their ids are their lengths.
fn collect(workspace: &Workspace) -> Changes {
    collect_with(workspace, &Limits::default())
}

fn collect_with(workspace: &Workspace, limits: &Limits) -> Changes {
    workspace.collect(limits, &mut |bytes| Ok(bytes.len().to_string())).unwrap()
}

fn notes(workspace: &Workspace) -> Vec<String> {
    serde_json::from_value(workspace.describe()["notes"].clone()).unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
}
