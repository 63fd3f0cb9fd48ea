//! What a workspace held when it was made.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

/// Every entry of a tree, by its path beneath the root.
pub(crate) type Manifest = BTreeMap<PathBuf, Item>;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    /// Permission bits.
    pub(crate) mode: u32,
}

/// What it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Folder,
    File { size: u64, sha256: String },
    Link { target: OsString },
}

/// One digest over a whole manifest.
pub(crate) fn digest(manifest: &Manifest) -> String {
    let mut sum = Sha256::new();
    for (path, item) in manifest {
        sum.update(path.as_os_str().as_bytes());
        let rest = match &item.kind {
            Kind::Folder => b"\0folder".to_vec(),
            Kind::File { size, sha256 } => format!("\0file\0{:o}\0{size}\0{sha256}", item.mode).into_bytes(),
            Kind::Link { target } => [b"\0link\0", target.as_bytes()].concat(),
        };
        sum.update(rest);
        sum.update(b"\0\n");
    }
    hex(&sum.finalize())
}

/// Why a link in the folder `parent` (beneath the root) may not point to `target`; none when it may.
///
/// `..` is accepted at the front only, and no more often than the folder is deep. A `..` behind a name is not:
/// the name may itself be a link, and then no text can say where the way leads.
pub(crate) fn link_leaves(parent: &Path, target: &Path) -> Option<&'static str> {
    if target.as_os_str().is_empty() {
        return Some("a link to nothing");
    }
    let mut depth = parent.components().count();
    let mut named = false;
    for part in target.components() {
        match part {
            Component::RootDir | Component::Prefix(_) => return Some("a link with an absolute target"),
            Component::ParentDir if named => return Some("a link whose target has `..` behind a name"),
            Component::ParentDir if depth == 0 => return Some("a link that leaves the workspace"),
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => named = true,
            Component::CurDir => {}
        }
    }
    None
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for b in bytes {
        out.push_str(&format!("{b:02x}"));
    }
    out
}

/// SHA-256 of these bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_that_surely_stay_inside_are_kept() {
        let leaves = |parent: &str, target: &str| link_leaves(Path::new(parent), Path::new(target)).is_some();
        assert!(!leaves("", "x"));
        assert!(!leaves("a/b", "../../x"));
        assert!(!leaves("", "..foo"));
        assert!(leaves("a", "../../x"));
        assert!(leaves("", ".."));
        assert!(leaves("", "/etc/passwd"));
        assert!(leaves("", "l/l/l/../../.."));
    }
}
