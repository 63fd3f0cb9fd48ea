//! Paths that match a pattern.

use std::ffi::OsStr;
use std::path::Path;

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::FileType;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;

use super::super::walk::Workspace;
use super::Refusal;
use super::tree::{At, Tree};

/// Bytes of a pattern.
const LONGEST: usize = 1000;
/// Bytes of paths in an answer.
const ROOM: usize = 48 << 10;

pub(super) fn glob(
    workspace: &Workspace,
    pattern: &str,
    path: &OsStr,
    limit: u32,
    all: bool,
) -> Result<Value, Refusal> {
    let (set, by_name) = pattern_of(pattern)?;
    let tree = Tree::new(all);
    let at = tree.begin(workspace, path)?;
    // What the pattern is asked of begins behind the folder it is asked in.
    let base = if at.path.is_empty() { 0 } else { at.path.len() + 1 };
    let mut hunt = Hunt { tree, set, by_name, base, limit, paths: Vec::new(), room: ROOM, more: 0 };
    hunt.folder(at);
    Ok(
        json!({ "paths": hunt.paths, "more": hunt.more, "ignored": hunt.tree.ignored(), "cut": hunt.tree.cut() }),
    )
}

/// The pattern, and whether it is asked of names alone.
fn pattern_of(pattern: &str) -> Result<(GlobSet, bool), Refusal> {
    let bad = |why: &str| Refusal::new("pattern", &format!("not a valid pattern: {why}"));
    if pattern.len() > LONGEST {
        return Err(bad("it is too long"));
    }
    let pattern =
        pattern.strip_prefix("/workspace/").or_else(|| pattern.strip_prefix("./")).unwrap_or(pattern);
    if pattern.starts_with('/') {
        return Err(bad("it is asked of paths in the workspace, which begin with no slash"));
    }
    let glob = GlobBuilder::new(pattern)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|e| bad(&e.kind().to_string()))?;
    let mut set = GlobSetBuilder::new();
    set.add(glob);
    let set = set.build().map_err(|_| bad("it is too large"))?;
    Ok((set, !pattern.contains('/')))
}

struct Hunt {
    tree: Tree,
    set: GlobSet,
    by_name: bool,
    base: usize,
    limit: u32,
    paths: Vec<String>,
    room: usize,
    more: u64,
}

impl Hunt {
    fn folder(&mut self, at: At) {
        for entry in self.tree.entries(&at) {
            let path = at.path_of(&entry.name);
            let asked = if self.by_name { entry.name.as_bytes() } else { &path[self.base..] };
            let is_folder = entry.kind == FileType::Directory;
            if self.set.is_match_candidate(&Candidate::new(Path::new(OsStr::from_bytes(asked)))) {
                self.take(&path, is_folder);
            }
            if is_folder && let Some(next) = self.tree.enter(&at, &entry.name) {
                self.folder(next);
            }
        }
    }

    fn take(&mut self, path: &[u8], is_folder: bool) {
        let told = match is_folder {
            true => policy::quoted(&[path, b"/"].concat()).into_owned(),
            false => policy::quoted(path).into_owned(),
        };
        let full = self.paths.len() >= usize::try_from(self.limit).unwrap_or(usize::MAX);
        match self.room.checked_sub(told.len()) {
            Some(room) if !full => {
                self.room = room;
                self.paths.push(told);
            }
            _ => {
                self.room = 0;
                self.more += 1;
            }
        }
    }
}
