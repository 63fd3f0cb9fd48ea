//! What lies in a Guild's folder and nothing names. It is in no prompt and never run, yet it comes along wherever the
//! folder goes: so it is told, and by its digest, so that a change of it is told as well.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use policy::quoted;
use runs::Folder;
use sha2::{Digest, Sha256};

/// Entries that are looked at.
const MOST_ENTRIES: usize = 50_000;
/// Bytes that are read.
const MOST_BYTES: u64 = 256 << 20;
/// Bytes of all names together: they are held, and shown.
const MOST_NAMES: usize = 8 << 20;
/// Folders in folders.
const DEEPEST: usize = 32;
/// Files of a folder without anything named that are told one by one; of more, the folder is told.
const MOST_TOLD: usize = 50;

/// Every file, by its path as it may be shown, that is not among `known`: its SHA-256, and whether it may be executed,
/// or what it is instead. Of a folder with nothing but a great many of them, the folder.
pub(super) fn others(dir: &Path, known: &BTreeSet<&str>) -> io::Result<BTreeMap<String, String>> {
    let mut walk = Walk { known, entries: 0, names: 0, bytes: 0 };
    walk.folder(&Folder::open(dir)?, Path::new(""), 0).map(|(found, _)| found)
}

/// What lies there: one thing, or a folder with what nothing names in it, and whether something of it has a name.
enum Entry {
    One(String),
    Folder(BTreeMap<String, String>, bool),
}

struct Walk<'a> {
    known: &'a BTreeSet<&'a str>,
    entries: usize,
    names: usize,
    bytes: u64,
}

impl Walk<'_> {
    /// What is in a folder, and whether something of it has a name.
    fn folder(
        &mut self,
        folder: &Folder,
        path: &Path,
        depth: usize,
    ) -> io::Result<(BTreeMap<String, String>, bool)> {
        let (entries, more) = folder.entries(MOST_ENTRIES)?;
        self.entries += entries.len();
        if more || self.entries > MOST_ENTRIES {
            return Err(too_much(format!("more than {MOST_ENTRIES} files and folders")));
        }
        let (mut found, mut is_known) = (BTreeMap::new(), false);
        for (name, _) in entries {
            let at = path.join(&name);
            if at.to_str().is_some_and(|at| self.known.contains(at)) {
                is_known = true;
                continue;
            }
            let shown = quoted(at.as_os_str().as_bytes()).into_owned();
            self.names += shown.len();
            if self.names > MOST_NAMES {
                return Err(too_much(format!("more than {} MiB of names", MOST_NAMES >> 20)));
            }
            match self.entry(folder, &name, &at, depth) {
                Ok(Entry::One(what)) => drop(found.insert(shown, what)),
                Ok(Entry::Folder(inner, has_known)) => {
                    is_known |= has_known;
                    match inner.len() {
                        0 if !has_known => drop(found.insert(shown, "an empty folder".to_owned())),
                        many if many > MOST_TOLD && !has_known => {
                            self.names -= inner.keys().map(String::len).sum::<usize>();
                            found.insert(shown, format!("a folder of {many}, {}", all(&inner)));
                        }
                        _ => found.extend(inner),
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::FileTooLarge => return Err(e),
                // Somebody removed it meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(_) => drop(found.insert(shown, "not readable".to_owned())),
            }
        }
        Ok((found, is_known))
    }

    fn entry(&mut self, folder: &Folder, name: &OsStr, at: &Path, depth: usize) -> io::Result<Entry> {
        let meta = folder.look(name)?;
        let what = if meta.is_dir() {
            if name == ".git" {
                // Other at every look, and never a part of what it has the history of.
                return Ok(Entry::One("a folder of Git, not looked into".to_owned()));
            }
            if depth >= DEEPEST {
                return Err(too_much(format!("folders nested deeper than {DEEPEST}")));
            }
            let (inner, has_known) = self.folder(&folder.folder(Path::new(name))?, at, depth + 1)?;
            return Ok(Entry::Folder(inner, has_known));
        } else if meta.is_file() {
            let word = if meta.mode() & 0o111 == 0 { "" } else { ", executable" };
            format!("{}{word}", self.digest(folder, name, meta.len())?)
        } else if meta.is_symlink() {
            // Where it points is as much somebody's text as what is in a file.
            format!("a link, {}", runs::sha256(folder.target(name)?.as_bytes()))
        } else {
            "a FIFO, a socket or a device".to_owned()
        };
        Ok(Entry::One(what))
    }

    fn digest(&mut self, folder: &Folder, name: &OsStr, len: u64) -> io::Result<String> {
        let left = MOST_BYTES.saturating_sub(self.bytes);
        let beyond = || too_much(format!("more than {} MiB", MOST_BYTES >> 20));
        // Before anything of it is read; one that grows meanwhile, all the same.
        if len > left {
            return Err(beyond());
        }
        let mut file = folder.file(Path::new(name))?.take(left + 1);
        let (mut sum, mut piece) = (Sha256::new(), vec![0u8; 64 << 10]);
        loop {
            let read = file.read(&mut piece)?;
            let Some(bytes) = piece.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
            self.bytes += bytes.len() as u64;
            sum.update(bytes);
        }
        if self.bytes > MOST_BYTES {
            return Err(beyond());
        }
        Ok(hex(sum))
    }
}

fn too_much(what: String) -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("the folder holds {what} that the Guild does not name"),
    )
}

/// One digest of many.
fn all(found: &BTreeMap<String, String>) -> String {
    let mut sum = Sha256::new();
    for part in found.iter().flat_map(|(path, what)| [path, what]) {
        sum.update((part.len() as u64).to_le_bytes());
        sum.update(part);
    }
    hex(sum)
}

fn hex(sum: Sha256) -> String {
    sum.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_nothing_names_is_told_by_its_digest_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["prompts", "empty", "many"] {
            fs::create_dir(at(folder)).unwrap();
        }
        for file in ["guild.toml", "prompts/a.md", "prompts/b.md", "README.md"] {
            fs::write(at(file), file).unwrap();
        }
        for n in 0..=MOST_TOLD {
            fs::write(at(&format!("many/{n}")), "").unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", at("link")).unwrap();
        let known = BTreeSet::from(["guild.toml", "prompts/a.md"]);
        let first = others(dir.path(), &known).unwrap();
        let names: Vec<&str> = first.keys().map(String::as_str).collect();
        assert_eq!(names, ["README.md", "empty", "link", "many", "prompts/b.md"]);
        assert_eq!(first["link"], format!("a link, {}", runs::sha256(b"/etc/passwd")));
        assert_eq!(first["empty"], "an empty folder");
        assert_eq!(first["README.md"], runs::sha256(b"README.md"));
        fs::write(at("many/7"), "changed").unwrap();
        fs::write(at("README.md"), "changed").unwrap();
        fs::remove_file(at("link")).unwrap();
        std::os::unix::fs::symlink("/etc/shadow", at("link")).unwrap();
        fs::set_permissions(at("prompts/b.md"), fs::Permissions::from_mode(0o755)).unwrap();
        let second = others(dir.path(), &known).unwrap();
        let changed: Vec<&String> = first.keys().filter(|path| first[*path] != second[*path]).collect();
        assert_eq!(changed, ["README.md", "link", "many", "prompts/b.md"]);
        assert_eq!(second["prompts/b.md"], format!("{}, executable", runs::sha256(b"prompts/b.md")));
    }

    /// A checkout has a history beside it, however long.
    #[test]
    fn the_history_of_a_checkout_is_one_line() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(".git/objects/aa")).unwrap();
        fs::write(dir.path().join(".git/objects/aa/bb"), "x").unwrap();
        let found = others(dir.path(), &BTreeSet::new()).unwrap();
        assert_eq!(
            found,
            BTreeMap::from([(".git".to_owned(), "a folder of Git, not looked into".to_owned())])
        );
    }

    #[test]
    fn what_went_meanwhile_is_told_from_what_is_too_much() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let mut walk = Walk { known: &BTreeSet::new(), entries: 0, names: 0, bytes: 0 };
        let gone = walk.entry(&folder, OsStr::new("gone"), Path::new("gone"), 0).err().unwrap();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }

    /// Fifty thousand names of a deep tree would be gigabytes.
    #[test]
    fn the_names_of_a_tree_have_a_bound_together() {
        let dir = tempfile::tempdir().unwrap();
        let mut at = Folder::open(dir.path()).unwrap();
        let long = "n".repeat(250);
        for _ in 0..DEEPEST {
            at = at.create_folder(OsStr::new(&long)).unwrap();
        }
        for n in 0..1100 {
            at.create(OsStr::new(&format!("{n:0250}")), 0o600).unwrap();
        }
        let said = others(dir.path(), &BTreeSet::new()).unwrap_err().to_string();
        assert!(said.contains("8 MiB of names"), "{said}");
    }
}
