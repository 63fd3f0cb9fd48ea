//! A Guild's folder as one digest, and a private copy of exactly what was digested.
//!
//! A branch is data that somebody may still be writing. So nobody here ever judges, runs or promotes the folder itself:
//! it is copied by descriptor into a place of our own, the digest is taken of the bytes that went into the copy, and
//! from then on only the copy is looked at.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use policy::quoted;
use runs::Folder;
use sha2::{Digest, Sha256};

/// Entries of a Guild's folder.
const MOST_ENTRIES: usize = 4096;
/// Folders in folders.
const DEEPEST: usize = 16;
/// Bytes of all its files together: a little more than a Guild's modules may have.
const MOST_BYTES: u64 = 96 << 20;
/// Bytes of one file.
const MOST_FILE: u64 = 33 << 20;
/// Entries that are told one by one.
const MOST_TOLD: usize = 20;

/// Why a folder is no Guild's.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// What lies in it does not belong there.
    Odd(Vec<Odd>),
    /// It cannot be read.
    Io { path: PathBuf, source: io::Error },
    /// The copy cannot be written.
    Copy { path: PathBuf, source: io::Error },
}

/// An entry that does not belong into a Guild's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Odd {
    /// Stable.
    pub(crate) code: &'static str,
    /// Beneath the folder, as it may be shown.
    pub(crate) path: String,
    pub(crate) what: &'static str,
}

/// The digest of a folder.
pub(crate) fn digest(folder: &Folder) -> Result<String, Unfit> {
    Walk::default().whole(folder, None)
}

/// The digest of a folder, and in `to`, which is empty, a copy of what was digested, on the disk.
pub(crate) fn copy(folder: &Folder, to: &Folder) -> Result<String, Unfit> {
    Walk::default().whole(folder, Some(to))
}

#[derive(Default)]
struct Walk {
    sum: Sha256,
    odd: Vec<Odd>,
    entries: usize,
    bytes: u64,
    /// Too much of something: nothing more is looked at.
    over: bool,
}

impl Walk {
    fn whole(mut self, folder: &Folder, to: Option<&Folder>) -> Result<String, Unfit> {
        self.sum.update(b"oubliette guild 1\n");
        self.folder(folder, to, Path::new(""), 0)?;
        if self.odd.is_empty() {
            Ok(self.sum.finalize().iter().map(|b| format!("{b:02x}")).collect())
        } else {
            Err(Unfit::Odd(self.odd))
        }
    }

    fn folder(&mut self, from: &Folder, to: Option<&Folder>, path: &Path, depth: usize) -> Result<(), Unfit> {
        let unread = |source| Unfit::Io { path: path.to_owned(), source };
        let (entries, more) = from.entries(MOST_ENTRIES).map_err(unread)?;
        if more || self.entries + entries.len() > MOST_ENTRIES {
            self.too_much("W-TREE-ENTRIES", path, "more entries than a Guild may have (4096)");
            return Ok(());
        }
        self.entries += entries.len();
        for (name, _) in entries {
            if self.over {
                return Ok(());
            }
            self.entry(from, to, &name, &path.join(&name), depth)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        from: &Folder,
        to: Option<&Folder>,
        name: &OsStr,
        path: &Path,
        depth: usize,
    ) -> Result<(), Unfit> {
        let unread = |source| Unfit::Io { path: path.to_owned(), source };
        // A review tells it in one line, whatever is in it.
        if name == ".git" {
            self.odd("W-TREE-GIT", path, "a checkout's own `.git`; bring the Guild without it");
            return Ok(());
        }
        let meta = match from.look(name) {
            Ok(meta) => meta,
            Err(e) => return self.moved(path, e),
        };
        if meta.is_dir() {
            if depth >= DEEPEST {
                self.too_much("W-TREE-DEPTH", path, "folders nested deeper than 16");
                return Ok(());
            }
            let inner = match from.folder(Path::new(name)) {
                Ok(inner) => inner,
                Err(e) => return self.moved(path, e),
            };
            let mode = kept_mode(&inner.metadata().map_err(unread)?);
            self.header(b'd', mode, path);
            let wrong = |source| Unfit::Copy { path: path.to_owned(), source };
            let made = to.map(|to| to.create_folder(name)).transpose().map_err(wrong)?;
            self.folder(&inner, made.as_ref(), path, depth + 1)?;
            if let Some(made) = made {
                made.set_mode(mode).and_then(|()| made.sync()).map_err(wrong)?;
            }
            return Ok(());
        }
        if !meta.is_file() {
            let kind = meta.file_type();
            let (code, what) = if kind.is_symlink() {
                ("W-TREE-LINK", "a link; a Guild is made of files and folders only")
            } else if kind.is_fifo() || kind.is_socket() {
                ("W-TREE-SPECIAL", "a FIFO or a socket; a Guild is made of files and folders only")
            } else {
                ("W-TREE-SPECIAL", "a device; a Guild is made of files and folders only")
            };
            self.odd(code, path, what);
            return Ok(());
        }
        let (file, meta) = match from.file_and_metadata(Path::new(name)) {
            Ok(opened) => opened,
            Err(e) => return self.moved(path, e),
        };
        self.file((file, &meta), to, name, path)
    }

    fn file(
        &mut self,
        (file, meta): (File, &Metadata),
        to: Option<&Folder>,
        name: &OsStr,
        path: &Path,
    ) -> Result<(), Unfit> {
        if meta.nlink() > 1 {
            // Whoever has the other name can still write to it, and it may be anybody's file.
            self.odd("W-TREE-HARD-LINK", path, "a file that has another name elsewhere (a hard link)");
            return Ok(());
        }
        if meta.mode() & 0o6000 != 0 {
            self.odd("W-TREE-SET-ID", path, "a file with a set-user-id or set-group-id bit");
            return Ok(());
        }
        let mode = kept_mode(meta);
        self.header(b'f', mode, path);
        let wrong = |source| Unfit::Copy { path: path.to_owned(), source };
        let made = to.map(|to| to.create(name, 0o600)).transpose().map_err(wrong)?;
        let mut from = file.take(MOST_FILE + 1);
        let (mut content, mut size, mut piece) = (Sha256::new(), 0u64, vec![0u8; 64 << 10]);
        loop {
            let n = from.read(&mut piece).map_err(|source| Unfit::Io { path: path.to_owned(), source })?;
            let Some(bytes) = piece.get(..n).filter(|b| !b.is_empty()) else { break };
            size += bytes.len() as u64;
            self.bytes += bytes.len() as u64;
            if size > MOST_FILE || self.bytes > MOST_BYTES {
                self.too_much("W-TREE-BYTES", path, "more bytes than a Guild may have");
                return Ok(());
            }
            content.update(bytes);
            if let Some(mut made) = made.as_ref() {
                made.write_all(bytes).map_err(wrong)?;
            }
        }
        self.sum.update(size.to_le_bytes());
        self.sum.update(content.finalize());
        if let Some(made) = made {
            made.set_permissions(Permissions::from_mode(mode))
                .and_then(|()| made.sync_all())
                .map_err(wrong)?;
        }
        Ok(())
    }

    /// Every part has its length before it, so no two trees are one row of bytes.
    fn header(&mut self, kind: u8, mode: u32, path: &Path) {
        let name = path.as_os_str().as_bytes();
        self.sum.update([kind]);
        self.sum.update(mode.to_le_bytes());
        self.sum.update((name.len() as u64).to_le_bytes());
        self.sum.update(name);
    }

    /// What was there a moment ago is something else now, or cannot be read.
    fn moved(&mut self, path: &Path, e: io::Error) -> Result<(), Unfit> {
        match e.kind() {
            ErrorKind::PermissionDenied => Err(Unfit::Io { path: path.to_owned(), source: e }),
            _ => {
                self.odd("W-TREE-CHANGED", path, "it was exchanged while it was read");
                Ok(())
            }
        }
    }

    fn too_much(&mut self, code: &'static str, path: &Path, what: &'static str) {
        self.over = true;
        self.odd(code, path, what);
    }

    fn odd(&mut self, code: &'static str, path: &Path, what: &'static str) {
        if self.odd.len() < MOST_TOLD {
            self.odd.push(Odd { code, path: shown(path.as_os_str()), what });
        }
    }
}

/// What a copy gets, and what the digest is of: nobody but the owner may write, and the owner always may.
fn kept_mode(meta: &Metadata) -> u32 {
    (meta.mode() & 0o755) | if meta.is_dir() { 0o700 } else { 0o600 }
}

/// A name of others as it may be shown.
pub(crate) fn shown(name: &OsStr) -> String {
    let text = quoted(name.as_bytes());
    if policy::narrower::has_key(&text) {
        return "(hidden)".to_owned();
    }
    let mut short: String = text.chars().take(200).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Removes a folder of our own with everything in it; one that is not there is removed already.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The names of the folders in a folder, sorted, and no more than that many.
pub(crate) fn folders(folder: &Folder, most: usize) -> io::Result<(Vec<OsString>, bool)> {
    let (entries, more) = folder.entries(most)?;
    let inner = entries.into_iter().map(|(name, _)| name);
    let inner = inner.filter(|name| folder.look(name).is_ok_and(|meta| meta.is_dir()));
    Ok((inner.collect(), more))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let guild = dir.path().join("guild");
        fs::create_dir_all(guild.join("prompts")).unwrap();
        fs::write(guild.join("guild.toml"), "schema = 1\n").unwrap();
        fs::write(guild.join("prompts/a.md"), "be good\n").unwrap();
        (dir, guild)
    }

    fn of(path: &Path) -> String {
        digest(&Folder::open(path).unwrap()).unwrap()
    }

    fn codes(path: &Path) -> Vec<&'static str> {
        match digest(&Folder::open(path).unwrap()) {
            Err(Unfit::Odd(odd)) => odd.iter().map(|odd| odd.code).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_copy_has_the_digest_of_what_was_copied() {
        let (dir, guild) = tree();
        fs::write(guild.join(OsStr::from_bytes(b"odd\n\xff\"name")), "x").unwrap();
        fs::set_permissions(guild.join("prompts"), Permissions::from_mode(0o777)).unwrap();
        let to = dir.path().join("copy");
        fs::create_dir(&to).unwrap();
        let copied = copy(&Folder::open(&guild).unwrap(), &Folder::open(&to).unwrap()).unwrap();
        assert_eq!(copied, of(&guild));
        assert_eq!(copied, of(&to));
        assert_eq!(fs::metadata(to.join("prompts")).unwrap().mode() & 0o777, 0o755);
    }

    #[test]
    fn every_change_of_a_name_a_mode_or_a_content_is_another_digest() {
        let (_dir, guild) = tree();
        let mut seen = vec![of(&guild)];
        let mut new = |what: &str| {
            let now = of(&guild);
            assert!(!seen.contains(&now), "{what}");
            seen.push(now);
        };
        fs::write(guild.join("prompts/a.md"), "be bad\n").unwrap();
        new("content");
        fs::set_permissions(guild.join("prompts/a.md"), Permissions::from_mode(0o755)).unwrap();
        new("mode");
        fs::rename(guild.join("prompts/a.md"), guild.join("prompts/b.md")).unwrap();
        new("name");
        fs::rename(guild.join("prompts/b.md"), guild.join("b.md")).unwrap();
        new("place");
        fs::create_dir(guild.join("empty")).unwrap();
        new("empty folder");
        fs::write(guild.join("unused"), "").unwrap();
        new("file that nothing names");
    }

    #[test]
    fn what_is_no_file_and_no_folder_is_told_and_never_opened() {
        let (dir, guild) = tree();
        fs::write(dir.path().join("secret"), "s").unwrap();
        symlink("../secret", guild.join("prompts/link.md")).unwrap();
        symlink("..", guild.join("up")).unwrap();
        let fifo = guild.join("a-fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        fs::hard_link(dir.path().join("secret"), guild.join("hard")).unwrap();
        fs::set_permissions(guild.join("guild.toml"), Permissions::from_mode(0o4755)).unwrap();
        let found = codes(&guild);
        assert_eq!(
            found,
            ["W-TREE-SPECIAL", "W-TREE-SET-ID", "W-TREE-HARD-LINK", "W-TREE-LINK", "W-TREE-LINK"]
        );
    }

    #[test]
    fn a_checkouts_own_folder_is_not_taken_along() {
        let (_dir, guild) = tree();
        fs::create_dir(guild.join("prompts/.git")).unwrap();
        fs::write(guild.join(".git"), "gitdir: elsewhere\n").unwrap();
        assert_eq!(codes(&guild), ["W-TREE-GIT", "W-TREE-GIT"]);
    }

    #[test]
    fn too_much_of_anything_is_told_before_it_is_read() {
        let (_dir, guild) = tree();
        fs::File::create(guild.join("large")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(codes(&guild), ["W-TREE-BYTES"]);
        fs::remove_file(guild.join("large")).unwrap();
        let mut deep = guild.clone();
        for _ in 0..20 {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        assert_eq!(codes(&guild), ["W-TREE-DEPTH"]);
        fs::remove_dir_all(guild.join("d")).unwrap();
        for n in 0..MOST_ENTRIES {
            fs::write(guild.join(format!("f{n}")), "").unwrap();
        }
        assert_eq!(codes(&guild), ["W-TREE-ENTRIES"]);
    }
}
