//! A change as a commit on a new branch of the user's repository: neither its work tree nor its index is touched.
//!
//! Every blob is written from bytes whose digest is the recorded one, under the name that the record says; git never
//! sees the run's tree, and nothing of it is interpreted (no filter, no attribute, no ignore file).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::git::{Git, GitError};
use super::{ApplyError, Delivery, Target};
use crate::beneath::Folder;
use crate::manifest::{Item, Kind, hex, sha256};
use crate::quote::in_text;

/// In the run's folder while a branch is made.
const INDEX: &str = ".branch.tmp";
const LONGEST: usize = 200;

/// A name that a new branch may have: letters, digits, `.`, `_`, `-` and `/`, by git's rules and without surprises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchName(String);

/// A text that is no such name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a name for a branch: letters, digits, `.`, `_`, `-` and `/` are expected, no part begins with `.` or `-` or \
     ends with `.` or `.lock`"
)]
pub struct BadBranchName;

impl BranchName {
    /// Reads a name; anything else is refused.
    ///
    /// # Errors
    /// [`BadBranchName`].
    pub fn parse(text: &str) -> Result<BranchName, BadBranchName> {
        let sign = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let part = |part: &str| {
            !part.is_empty()
                && part.bytes().all(sign)
                && !part.starts_with(['.', '-'])
                && !part.ends_with('.')
                && !part.ends_with(".lock")
                && !part.contains("..")
        };
        let ok = text.len() <= LONGEST
            && text.split('/').all(part)
            && text != "HEAD"
            && !text.starts_with("refs/");
        if ok { Ok(BranchName(text.to_owned())) } else { Err(BadBranchName) }
    }
}

impl std::str::FromStr for BranchName {
    type Err = BadBranchName;

    fn from_str(text: &str) -> Result<BranchName, BadBranchName> {
        BranchName::parse(text)
    }
}

/// A branch that was made.
#[derive(Clone, Debug, Serialize)]
pub struct Branched {
    /// Its name.
    pub branch: String,
    /// The commit it points to.
    pub commit: String,
    /// The commit before that.
    pub base: String,
    /// Remarks about what is no part of the commit.
    pub notes: Vec<String>,
}

impl Delivery {
    /// Makes the change a commit on a new branch of the repository that `target` is in, behind its `HEAD`.
    ///
    /// # Errors
    /// [`ApplyError::Changed`] when `HEAD` has moved since the run took the folder in, or does not hold the touched
    /// files as they were taken in; [`ApplyError::Where`] when there is no repository, or such a branch;
    /// [`ApplyError::Git`] as git says. Nothing was changed then.
    pub fn branch(&self, target: &Target, name: &BranchName) -> Result<Branched, ApplyError> {
        let index = self.dir.join(INDEX);
        let git = Git { at: &target.path, index: &index };
        let made = self.commit(&git, target, name);
        for left in [index.clone(), index.with_extension("tmp.lock")] {
            match std::fs::remove_file(&left) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(ApplyError::Io { doing: "remove", path: left, source: e });
                }
                Ok(()) | Err(_) => {}
            }
        }
        made
    }

    fn commit(&self, git: &Git<'_>, target: &Target, name: &BranchName) -> Result<Branched, ApplyError> {
        let head = git.ask(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).map_err(|e| match e {
            GitError::Said(said) if !said.contains("dubious ownership") => ApplyError::Where {
                reason: format!("{} is in no git repository with a commit", in_text(&target.path)),
                remedy: "take the change over without `--to-branch`",
            },
            e => failed("find `HEAD`")(e),
        })?;
        let head = word(&head);
        if target.original && self.meta["head"].as_str().is_some_and(|was| was != head) {
            return Err(self.moved(target, vec!["HEAD: it is another commit now".to_owned()]));
        }
        let reference = format!("refs/heads/{}", name.0);
        if git.ask(&["rev-parse", "--verify", "--quiet", &reference]).is_ok() {
            return Err(ApplyError::Where {
                reason: format!("there is a branch `{}` already", name.0),
                remedy: "name another one",
            });
        }
        let mut prefix = git.ask(&["rev-parse", "--show-prefix"]).map_err(failed("find the folder"))?;
        prefix.pop_if(|b| *b == b'\n');
        let listed =
            git.ask(&["ls-tree", "-r", "-z", "--full-tree", &head]).map_err(failed("list `HEAD`"))?;
        let listed = listing(&listed);
        let (mut differs, mut notes) = (Vec::new(), Vec::new());
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        for (path, change) in &self.changes {
            let full = PathBuf::from(OsString::from_vec([&prefix, path.as_os_str().as_bytes()].concat()));
            match (&change.old, listed.get(&full)) {
                (None, None) => {}
                (None, Some(_)) => differs.push(format!("{}: it is in HEAD", in_text(path))),
                (Some(_), None) if change.new.is_none() => {
                    notes.push(format!("{}: it is not in HEAD, so nothing is deleted there", in_text(path)));
                    continue;
                }
                (Some(old), Some(entry)) if holds(git, old, entry)? => {}
                (Some(_), _) => {
                    differs.push(format!("{}: HEAD does not hold it as it was taken in", in_text(path)));
                }
            }
            match &change.new {
                None => removed.push((full, change)),
                Some(_) => added.push((full, path, change)),
            }
        }
        if !differs.is_empty() {
            return Err(self.moved(target, differs));
        }
        git.ask(&["read-tree", &head]).map_err(failed("read `HEAD`"))?;
        let mut entries = Vec::new();
        let zeros = "0".repeat(head.len());
        for (full, _) in &removed {
            entry(&mut entries, "0", &zeros, full);
        }
        for (full, path, change) in &added {
            let Some(item) = &change.new else { continue };
            let mode = match item.kind {
                Kind::Link { .. } => "120000",
                Kind::File { .. } | Kind::Folder if item.mode & 0o100 != 0 => "100755",
                Kind::File { .. } | Kind::Folder => "100644",
            };
            entry(&mut entries, mode, &self.blob(git, path, item)?, full);
        }
        let all = |out: &mut dyn Write| out.write_all(&entries);
        git.run(&["update-index", "-z", "--index-info"], all).map_err(failed("put the files together"))?;
        let tree = word(&git.ask(&["write-tree"]).map_err(failed("write the tree"))?);
        let message =
            format!("Take over run {}\n\nMade in a sandbox by oubliette; not reviewed by it.\n", self.id);
        let commit = git
            .run(&["commit-tree", &tree, "-p", &head], |out| out.write_all(message.as_bytes()))
            .map_err(failed("write the commit"))?;
        let commit = word(&commit);
        let why = format!("oubliette: run {}", self.id);
        git.ask(&["update-ref", "-m", &why, &reference, &commit, &zeros])
            .map_err(failed("make the branch"))?;
        Ok(Branched { branch: name.0.clone(), commit, base: head, notes })
    }

    /// The new content as an object of the repository.
    fn blob(&self, git: &Git<'_>, path: &Path, item: &Item) -> Result<String, ApplyError> {
        let mut right = false;
        let feed = |out: &mut dyn Write| {
            match &item.kind {
                Kind::Link { target } => {
                    right = true;
                    out.write_all(target.as_bytes())?;
                }
                Kind::File { size, sha256 } => right = copy(&self.work, path, *size, out)? == *sha256,
                Kind::Folder => {}
            }
            Ok(())
        };
        let made = git.run(&["hash-object", "-w", "--no-filters", "-t", "blob", "--stdin"], feed);
        if !right {
            return Err(self.broken(format!("{}: it is not what was collected", in_text(path))));
        }
        Ok(word(&made.map_err(failed("write an object"))?))
    }

    fn moved(&self, target: &Target, differs: Vec<String>) -> ApplyError {
        let remedy = "the change can still be taken over to the files themselves, without `--to-branch`";
        ApplyError::Changed { target: target.path.clone(), differs, remedy }
    }
}

fn copy(work: &Folder, path: &Path, size: u64, out: &mut dyn Write) -> io::Result<String> {
    let mut file = work.file(path)?.take(size.saturating_add(1));
    let mut sum = Sha256::new();
    let mut piece = vec![0u8; 256 * 1024];
    loop {
        let n = file.read(&mut piece)?;
        let Some(bytes) = piece.get(..n).filter(|b| !b.is_empty()) else { break };
        sum.update(bytes);
        out.write_all(bytes)?;
    }
    Ok(hex(&sum.finalize()))
}

/// Git's mode and object of every file.
fn listing(listed: &[u8]) -> BTreeMap<PathBuf, (String, String)> {
    let entries = listed.split(|b| *b == 0).filter_map(|entry| {
        let at = entry.iter().position(|b| *b == b'\t')?;
        let (head, path) = (entry.get(..at)?, entry.get(at + 1..)?);
        let mut words = std::str::from_utf8(head).ok()?.split(' ');
        let (mode, _kind, object) = (words.next()?, words.next()?, words.next()?);
        let path = PathBuf::from(OsString::from_vec(path.to_vec()));
        Some((path, (mode.to_owned(), object.to_owned())))
    });
    entries.collect()
}

/// Whether an entry of `HEAD` is what the run had taken in.
fn holds(git: &Git<'_>, old: &Item, (mode, object): &(String, String)) -> Result<bool, ApplyError> {
    let right = match &old.kind {
        Kind::Link { .. } => mode == "120000",
        Kind::File { .. } if old.mode & 0o100 != 0 => mode == "100755",
        Kind::File { .. } => mode == "100644",
        Kind::Folder => false,
    };
    if !right {
        return Ok(false);
    }
    let expected = match &old.kind {
        Kind::Link { target } => u64::try_from(target.len()).unwrap_or(u64::MAX),
        Kind::File { size, .. } => *size,
        Kind::Folder => return Ok(false),
    };
    // What it unpacks to is the repository's word; it is held against ours before it is held at all.
    let size = git.ask(&["cat-file", "-s", object]).map_err(failed("read an object"))?;
    if word(&size) != expected.to_string() {
        return Ok(false);
    }
    let content = git.ask(&["cat-file", "blob", object]).map_err(failed("read an object"))?;
    Ok(match &old.kind {
        Kind::Link { target } => target.as_bytes() == content,
        Kind::File { sha256: was, .. } => sha256(&content) == *was,
        Kind::Folder => false,
    })
}

fn entry(into: &mut Vec<u8>, mode: &str, object: &str, path: &Path) {
    into.extend_from_slice(format!("{mode} {object}\t").as_bytes());
    into.extend_from_slice(path.as_os_str().as_bytes());
    into.push(0);
}

fn word(said: &[u8]) -> String {
    String::from_utf8_lossy(said).trim().to_owned()
}

fn failed(doing: &'static str) -> impl FnOnce(GitError) -> ApplyError {
    move |e| ApplyError::Git {
        doing,
        said: match e {
            GitError::NotStarted(e) => e.to_string(),
            GitError::Said(said) => crate::clean(said.as_bytes()),
        },
    }
}

/// The commit that the `HEAD` of a checkout is, read without git; none where it is not plainly there.
pub(crate) fn head(checkout: &Path) -> Option<String> {
    let git = Folder::open(checkout).ok()?.folder(Path::new(".git")).ok()?;
    let read = |path: &Path| {
        let mut text = String::new();
        git.file(path).ok()?.take(16 << 20).read_to_string(&mut text).ok()?;
        Some(text)
    };
    let said = read(Path::new("HEAD"))?;
    let object = |text: &str| {
        let text = text.trim();
        let sound = matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit());
        sound.then(|| text.to_owned())
    };
    let Some(reference) = said.strip_prefix("ref: ").map(str::trim) else { return object(&said) };
    if !reference.starts_with("refs/") {
        return None;
    }
    if let Some(text) = read(Path::new(reference)) {
        return object(&text);
    }
    let packed = read(Path::new("packed-refs"))?;
    packed.lines().find_map(|line| line.strip_suffix(reference)?.strip_suffix(' ').and_then(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_names_of_branches() {
        for good in ["x", "oubliette/fix-1", "a.b/c_d", "Fix"] {
            assert!(BranchName::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/",
            "a/",
            "/a",
            "a//b",
            ".a",
            "a/.b",
            "-a",
            "a/-b",
            "a.",
            "a.lock",
            "a.lock/b",
            "a..b",
            "a b",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[",
            "a\\b",
            "a@{1}",
            "@",
            "HEAD",
            "refs/heads/x",
            "a\n",
            "é",
        ] {
            assert!(BranchName::parse(bad).is_err(), "{bad}");
        }
        assert!(BranchName::parse(&"a".repeat(201)).is_err());
    }
}
