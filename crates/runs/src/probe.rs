//! What this machine can hold: every tier run once, on an empty folder that is gone again afterwards.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use sandbox::{Host, TierProbe};

use crate::{RunError, RunId};

/// Runs every tier once, strongest first, whatever the floor.
///
/// # Errors
/// [`RunError::Io`] when no folder can be made for it.
pub async fn probe(host: &Host) -> Result<Vec<TierProbe>, RunError> {
    // A name that nobody can foresee, and no link in its place: making it fails if it is there.
    let folder =
        std::env::temp_dir().join(format!("oubliette-{}", RunId::new().map_err(io(&std::env::temp_dir()))?));
    // Others may pass through and see no names: a guest of the confined tier has to. What is made beside the
    // workspace is made in here, never in the shared place itself.
    DirBuilder::new().mode(0o711).create(&folder).map_err(io(&folder))?;
    let workspace = folder.join("workspace");
    DirBuilder::new().mode(0o700).create(&workspace).map_err(io(&workspace))?;
    if let Some((uid, gid)) = sandbox::guest_owner() {
        std::os::unix::fs::lchown(&workspace, Some(uid), Some(gid)).map_err(io(&workspace))?;
    }
    let probes = sandbox::probe(host, &workspace).await;
    std::fs::remove_dir_all(&folder).map_err(io(&folder))?;
    Ok(probes)
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> RunError {
    RunError::io("use", path)
}
