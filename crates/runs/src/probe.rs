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
    DirBuilder::new().mode(0o700).create(&folder).map_err(io(&folder))?;
    if let Some((uid, gid)) = sandbox::guest_owner() {
        std::os::unix::fs::chown(&folder, Some(uid), Some(gid)).map_err(io(&folder))?;
    }
    let probes = sandbox::probe(host, &folder).await;
    std::fs::remove_dir_all(&folder).map_err(io(&folder))?;
    Ok(probes)
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> RunError {
    RunError::io("use", path)
}
