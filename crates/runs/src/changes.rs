//! What a run has changed, as a text that says exactly what is taken over: for every path the kind, mode, size and
//! digest of both sides.
//!
//! It is written when the changes are collected and kept as an artifact; the record's chain holds its hash.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::collect::repository;
use crate::manifest::{Item, Kind, entry, line, link_leaves};

/// Every difference, by its path beneath the root.
pub(crate) type Changes = BTreeMap<PathBuf, Change>;

/// One difference. Neither side is ever a folder, and one of them is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) old: Option<Item>,
    pub(crate) new: Option<Item>,
}

/// The text: a line for each side.
pub(crate) fn written(changes: &Changes) -> Vec<u8> {
    let mut text = String::new();
    for (path, change) in changes {
        for (sign, side) in [('-', &change.old), ('+', &change.new)] {
            if let Some(item) = side {
                text.push_str(&format!("{sign} {}\n", line(path, item)));
            }
        }
    }
    text.into_bytes()
}

/// Such a text read again. None when it is not one, or names what no collection takes: a record may come from
/// anywhere.
pub(crate) fn read(text: &[u8]) -> Option<Changes> {
    let mut changes = Changes::new();
    for text in std::str::from_utf8(text).ok()?.lines() {
        let (sign, rest) = text.split_at_checked(2)?;
        let (path, item) = entry(rest)?;
        if !is_sound(&path, &item) {
            return None;
        }
        let change = changes.entry(path).or_insert(Change { old: None, new: None });
        let side = match sign {
            "- " => &mut change.old,
            "+ " => &mut change.new,
            _ => return None,
        };
        if side.replace(item).is_some() {
            return None;
        }
    }
    // Nothing can be beneath a file.
    let is_new = |path: &Path| changes.get(path).is_some_and(|change| change.new.is_some());
    let nested = changes.keys().any(|path| is_new(path) && path.ancestors().skip(1).any(is_new));
    (!nested).then_some(changes)
}

fn is_sound(path: &Path, item: &Item) -> bool {
    let plain: PathBuf = path.components().filter(|c| matches!(c, Component::Normal(_))).collect();
    let same = plain.as_os_str() == path.as_os_str() && !path.as_os_str().is_empty();
    let parent = path.parent().unwrap_or(Path::new(""));
    let kind = match &item.kind {
        Kind::File { .. } => item.mode & !0o777 == 0,
        Kind::Link { target } => link_leaves(parent, Path::new(target)).is_none(),
        Kind::Folder => false,
    };
    same && kind && repository(path).is_none() && !path.as_os_str().as_encoded_bytes().contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn a_list_is_read_as_it_was_written_and_nothing_else_is() {
        let file = |mode| Item { kind: Kind::File { size: 3, sha256: "ab".to_owned() }, mode };
        let link = Item { kind: Kind::Link { target: OsString::from("../x y") }, mode: 0o777 };
        let changes = Changes::from([
            (PathBuf::from("a b/c"), Change { old: Some(file(0o600)), new: Some(link) }),
            (PathBuf::from("gone"), Change { old: Some(file(0o755)), new: None }),
            (PathBuf::from("new"), Change { old: None, new: Some(file(0o644)) }),
        ]);
        let text = written(&changes);
        assert_eq!(read(&text), Some(changes));
        for bad in [
            "+ file 644 3 ab ../x",
            "+ file 644 3 ab /x",
            "+ file 644 3 ab a//x",
            "+ file 644 3 ab a/./x",
            "+ file 644 3 ab .git/hooks/x",
            "+ file 644 3 ab a/.GIT/x",
            "+ file 4755 3 ab x",
            "+ folder 755 0 - x",
            "+ link 777 0 /etc x",
            "+ link 777 0 ../x x",
            "+ file 644 3 ab x\n+ file 644 3 ab x",
            "+ file 644 3 ab x\n+ file 644 3 ab x/y",
            "* file 644 3 ab x",
            "é",
            "x",
        ] {
            assert_eq!(read(bad.as_bytes()), None, "{bad}");
        }
    }
}
