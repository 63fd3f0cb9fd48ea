//! A folder of a command's own, removed at the end with whatever was put there. Who is killed at it removes nothing, so
//! the next one does: a folder that nobody holds a lock on is nobody's any more.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::exit::usage;
use crate::render;

/// What the names of all such folders begin with.
const NAME: &str = "oubliette-scratch-";
/// Younger ones may not have their lock yet.
const YOUNG: Duration = Duration::from_secs(60);

/// A folder of our own, and the lock on it, where there is one.
pub(crate) struct Folder(pub(crate) PathBuf, Option<runs::Folder>);

impl Folder {
    pub(crate) fn make(data: Option<&Path>) -> anyhow::Result<Folder> {
        let base = data.map_or_else(std::env::temp_dir, Path::to_path_buf);
        // The confined tier's guest has to pass through it, as through the folder below; what is there stays as it is.
        passable()
            .recursive(true)
            .create(&base)
            .map_err(|e| usage(format!("cannot make {}: {e}", base.display())))?;
        sweep(&base);
        // A name that nobody can foresee, and no link in its place: making it fails if it is there.
        let path = base.join(format!("{NAME}{}", runs::RunId::new()?));
        let made = passable().create(&path);
        made.map_err(|e| usage(format!("cannot make {}: {e}", path.display())))?;
        // From here on it is removed, whatever fails.
        let mut folder = Folder(path, None);
        folder.0 = folder.0.canonicalize()?;
        let lock = runs::Folder::open(&folder.0)?;
        // Some file systems have no locks on folders. There nobody can tell that one is left, and so none is removed.
        lock.lock().ok();
        folder.1 = Some(lock);
        Ok(folder)
    }
}

impl Folder {
    /// Root's executor lends what is in here to users without rights: a folder above it that lets nobody else through.
    pub(crate) fn closed(&self) -> Option<&Path> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let shut = |folder: &&Path| fs::metadata(folder).is_ok_and(|meta| meta.mode() & 0o001 == 0);
        self.0.ancestors().skip(1).find(shut)
    }
}

/// Removes what others of this user's have left who were killed.
fn sweep(base: &Path) {
    let own = fs::metadata("/proc/self").map(|meta| meta.uid()).ok();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(NAME.as_bytes()) {
            continue;
        }
        let Ok(meta) = fs::symlink_metadata(entry.path()) else { continue };
        let old = meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= YOUNG));
        if meta.is_dir() && Some(meta.uid()) == own && old {
            let free = runs::Folder::open(&entry.path()).and_then(|folder| folder.lock());
            if free.is_ok_and(|free| free) {
                // What cannot be removed is there for the next one.
                remove(&entry.path()).ok();
            }
        }
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

/// Removes a folder, also where somebody took away the rights to it, and however deep it is: a guest makes folders in
/// folders without ever naming the whole way.
pub(crate) fn remove(folder: &Path) -> std::io::Result<()> {
    runs::remove_tree(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_left_who_was_killed_is_removed_by_the_next_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        let held = Folder::make(Some(base.path())).unwrap();
        let left = base.path().join(format!("{NAME}left"));
        let young = base.path().join(format!("{NAME}young"));
        let other = base.path().join("other");
        for folder in [&left, &young, &other] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("file"), "").unwrap();
        }
        std::os::unix::fs::symlink(&other, base.path().join(format!("{NAME}link"))).unwrap();
        let long_ago = std::time::SystemTime::now() - 2 * YOUNG;
        for folder in [&left, &other, &held.0] {
            fs::File::open(folder).unwrap().set_modified(long_ago).unwrap();
        }
        let next = Folder::make(Some(base.path())).unwrap();
        assert!(!left.exists() && young.exists() && other.join("file").exists());
        assert!(held.0.exists() && next.0.exists());
        let paths = [held.0.clone(), next.0.clone()];
        drop((held, next));
        assert!(paths.iter().all(|path| !path.exists()));
    }

    /// A guest makes them by descriptor; whoever removes them by their path, or one inside the other, never ends.
    #[test]
    fn a_tree_deeper_than_any_path_is_removed_and_so_is_a_closed_one() {
        use std::os::unix::fs::PermissionsExt;
        let base = tempfile::tempdir().unwrap();
        let left = base.path().join(format!("{NAME}left"));
        fs::create_dir(&left).unwrap();
        let mut at = runs::Folder::open(&left).unwrap();
        for _ in 0..3_000 {
            at = at.create_folder(std::ffi::OsStr::new("a")).unwrap();
        }
        fs::create_dir(left.join("closed")).unwrap();
        fs::write(left.join("closed/file"), "").unwrap();
        fs::set_permissions(left.join("closed"), fs::Permissions::from_mode(0o0)).unwrap();
        fs::File::open(&left).unwrap().set_modified(std::time::SystemTime::now() - 2 * YOUNG).unwrap();
        let next = Folder::make(Some(base.path())).unwrap();
        assert!(!left.exists() && next.0.exists());
    }
}
