//! What a workspace held when it was made.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
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

/// A manifest as a text: a line for each entry, its path last.
pub(crate) fn written(manifest: &Manifest) -> Vec<u8> {
    let lines = manifest.iter().map(|(path, item)| line(path, item) + "\n");
    lines.collect::<String>().into_bytes()
}

/// An entry as a line.
pub(crate) fn line(path: &Path, item: &Item) -> String {
    let (kind, size, more) = match &item.kind {
        Kind::Folder => ("folder", 0, "-".to_owned()),
        Kind::File { size, sha256 } => ("file", *size, sha256.clone()),
        Kind::Link { target } => ("link", 0, coded(target.as_bytes())),
    };
    format!("{kind} {:o} {size} {more} {}", item.mode, coded(path.as_os_str().as_bytes()))
}

/// Such a text read again; none when it is not one.
pub(crate) fn read(text: &[u8]) -> Option<Manifest> {
    std::str::from_utf8(text).ok()?.lines().map(entry).collect()
}

/// Such a line read again.
pub(crate) fn entry(line: &str) -> Option<(PathBuf, Item)> {
    let mut words = line.split(' ');
    let mut word = || words.next();
    let (kind, mode, size, more, path) = (word()?, word()?, word()?, word()?, word()?);
    let kind = match kind {
        "folder" => Kind::Folder,
        "file" => Kind::File { size: size.parse().ok()?, sha256: more.to_owned() },
        "link" => Kind::Link { target: OsString::from_vec(decoded(more)?) },
        _ => return None,
    };
    let path = PathBuf::from(OsString::from_vec(decoded(path)?));
    Some((path, Item { kind, mode: u32::from_str_radix(mode, 8).ok()? }))
}

/// Any bytes as one word: what is no plain sign stands as `%` and two digits.
pub(crate) fn coded(bytes: &[u8]) -> String {
    let mut word = String::new();
    for b in bytes {
        match b {
            b'!'..=b'~' if *b != b'%' => word.push(char::from(*b)),
            _ => word.push_str(&format!("%{b:02x}")),
        }
    }
    word
}

/// Such a word as the bytes it was.
pub(crate) fn decoded(word: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut signs = word.bytes();
    while let Some(b) = signs.next() {
        if b == b'%' {
            let pair = [signs.next()?, signs.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?);
        } else {
            bytes.push(b);
        }
    }
    Some(bytes)
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
    let digit = |n: u8| char::from_digit(u32::from(n), 16).unwrap_or('0');
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

/// SHA-256 of these bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let odd = OsString::from_vec(b"a b%\n\xff\xc3\xa9".to_vec());
        let file = Kind::File { size: 7, sha256: sha256(b"x") };
        let manifest = Manifest::from([
            (PathBuf::from(&odd), Item { kind: file, mode: 0o644 }),
            (PathBuf::from("d"), Item { kind: Kind::Folder, mode: 0o755 }),
            (PathBuf::from("d/l"), Item { kind: Kind::Link { target: odd }, mode: 0o777 }),
        ]);
        let text = written(&manifest);
        assert_eq!(read(&text).unwrap(), manifest);
        assert_eq!(digest(&read(&text).unwrap()), digest(&manifest));
        assert!(read(b"file x").is_none() && read(b"\xff").is_none() && read(b"link 777 0 %zz p").is_none());
    }

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
