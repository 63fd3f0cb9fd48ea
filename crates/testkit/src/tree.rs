//! A guard over files of the host: what a folder held before, to be compared with what it holds after.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Everything in a folder: names, types, modes, sizes, contents, targets of links. Nothing is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree(BTreeMap<PathBuf, Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// Type and permission bits, as the system gives them.
    mode: u32,
    /// 0 for folders: how large they are is the file system's affair.
    size: u64,
    /// The target of a link, or the SHA-256 of a file.
    content: Vec<u8>,
}

impl Tree {
    /// Looks at the folder and everything beneath it.
    ///
    /// # Errors
    /// The system's own: an entry that cannot be read guards nothing.
    pub fn of(root: &Path) -> io::Result<Tree> {
        let mut found = BTreeMap::new();
        let mut left = vec![root.to_owned()];
        while let Some(path) = left.pop() {
            let meta = fs::symlink_metadata(&path)?;
            let mut entry = Entry { mode: meta.mode(), size: meta.len(), content: Vec::new() };
            if meta.is_dir() {
                entry.size = 0;
                for inner in fs::read_dir(&path)? {
                    left.push(inner?.path());
                }
            } else if meta.is_symlink() {
                entry.content = fs::read_link(&path)?.into_os_string().into_encoded_bytes();
            } else if meta.is_file() {
                entry.content = Sha256::digest(fs::read(&path)?).to_vec();
            }
            found.insert(path.strip_prefix(root).unwrap_or(&path).to_owned(), entry);
        }
        Ok(Tree(found))
    }

    /// Paths that are not the same in `after`: gone, new, or different.
    pub fn differences(&self, after: &Tree) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = self.0.keys().chain(after.0.keys()).cloned().collect();
        paths.sort();
        paths.dedup();
        paths.retain(|p| self.0.get(p) != after.0.get(p));
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_change_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["content", "mode", "gone"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        let before = Tree::of(dir.path()).unwrap();
        fs::write(dir.path().join("content"), "y").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(dir.path().join("mode"), mode).unwrap();
        fs::remove_file(dir.path().join("gone")).unwrap();
        fs::write(dir.path().join("new"), "").unwrap();
        fs::remove_file(dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink("b", dir.path().join("link")).unwrap();
        let after = Tree::of(dir.path()).unwrap();
        let expected: Vec<PathBuf> = ["content", "gone", "link", "mode", "new"].map(PathBuf::from).into();
        assert_eq!(before.differences(&after), expected);
    }
}
