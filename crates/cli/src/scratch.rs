//! A folder of a command's own, removed at the end with whatever was put there.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::exit::usage;
use crate::render;

/// A folder of our own.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn make(data: Option<&Path>) -> anyhow::Result<Folder> {
        let base = data.map_or_else(std::env::temp_dir, Path::to_path_buf);
        // The confined tier's guest has to pass through it, as through the folder below; what is there stays as it is.
        passable()
            .recursive(true)
            .create(&base)
            .map_err(|e| usage(format!("cannot make {}: {e}", base.display())))?;
        // A name that nobody can foresee, and no link in its place: making it fails if it is there.
        let path = base.join(format!("oubliette-prove-{}", runs::RunId::new()?));
        let made = passable().create(&path);
        made.map_err(|e| usage(format!("cannot make {}: {e}", path.display())))?;
        Ok(Folder(path.canonicalize()?))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(e) = remove(&self.0) {
            render::note(&format!("oubliette: {} could not be removed: {e}", self.0.display()));
        }
    }
}

/// A maker of folders that others may pass through and see no names of: the confined tier's guest has to.
pub(crate) fn passable() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o711);
    builder
}

/// Removes a folder, also where somebody took away the rights to it.
pub(crate) fn remove(folder: &Path) -> std::io::Result<()> {
    if fs::remove_dir_all(folder).is_ok() {
        return Ok(());
    }
    open_up(folder);
    fs::remove_dir_all(folder)
}

/// Gives back the rights to folders, never through a link. Nobody changes the tree any more.
fn open_up(folder: &Path) {
    // What cannot be given back is told by the removal that comes next.
    fs::set_permissions(folder, PermissionsExt::from_mode(0o700)).ok();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}
