//! The state of what an image is made from, told without reading it: another state is another image.
//!
//! Of a host's system that is its lists of packages; every folder that goes into the image, which changes with each name
//! in it; and each file where people change them by hand: `/usr/local`, and what of `/etc` guests see. A file elsewhere
//! in `/usr` that is written in place, and is not replaced as package managers do it, is not seen.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::cache;
use super::image::{LEFT_OUT, PROGRAMS};
use crate::problem::Problem;
use crate::view;

/// Lists of packages.
const LISTS: [&str; 3] = ["var/lib/dpkg/status", "var/lib/rpm/rpmdb.sqlite", "lib/apk/db/installed"];
/// Where no package manager is at work.
const BY_HAND: &str = "usr/local";
/// File systems whose folders count the folders in them, by a link each; or say 1, where they do not: ext2 to ext4, XFS,
/// tmpfs, overlayfs.
const COUNTING: [u64; 4] = [0xef53, 0x5846_5342, 0x0102_1994, 0x794c_7630];

/// That of the system at `root`.
pub(super) fn of_system(root: &Path) -> String {
    let mut state = String::new();
    for list in LISTS {
        state.push_str(&cache::stamp(&root.join(list)));
    }
    let mut walk = Walk { root, state, counting: HashMap::new() };
    for name in ["usr"].iter().chain(&PROGRAMS) {
        walk.folders(root.join(name));
    }
    walk.whole(root.join(BY_HAND));
    for name in view::of_etc() {
        let path = root.join("etc").join(name);
        walk.state.push_str(&cache::stamp(&path));
        // What a link means is what guests see.
        if let Ok(real) = fs::canonicalize(&path) {
            walk.whole(real);
        }
    }
    walk.state
}

/// That of a small root: every entry.
pub(super) fn of_folder(folder: &Path) -> Result<String, Problem> {
    let mut state = String::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(at) = open.pop() {
        let failed = |e: std::io::Error| Problem::Rootfs(format!("{}: {}", at.display(), e.kind()));
        let mut entries: Vec<_> = fs::read_dir(&at).map_err(failed)?.flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            state.push_str(&cache::stamp(&entry.path()));
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                open.push(entry.path());
            }
        }
    }
    Ok(state)
}

struct Walk<'a> {
    root: &'a Path,
    state: String,
    /// Of each device, whether folders count there.
    counting: HashMap<u64, bool>,
}

impl Walk<'_> {
    /// Every folder from here on that goes into the image.
    fn folders(&mut self, top: PathBuf) {
        let mut open = vec![top];
        while let Some(at) = open.pop() {
            let known = fs::symlink_metadata(&at);
            self.state.push_str(&cache::stamp_of(&at, known.as_ref().ok()));
            let Some(meta) = known.ok().filter(Metadata::is_dir) else { continue };
            // Most folders hold files only, and those of some hold thousands: they need not be read.
            if meta.nlink() == 2 && self.counts(&at, meta.dev()) {
                continue;
            }
            let all = fs::read_dir(&at).into_iter().flatten().flatten();
            let folders = all.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path());
            let mut folders: Vec<_> = folders.filter(|path| !self.is_left_out(path)).collect();
            folders.sort();
            open.append(&mut folders);
        }
    }

    /// Everything from here on.
    fn whole(&mut self, top: PathBuf) {
        let mut open = vec![top];
        while let Some(at) = open.pop() {
            let known = fs::symlink_metadata(&at);
            self.state.push_str(&cache::stamp_of(&at, known.as_ref().ok()));
            if known.is_ok_and(|meta| meta.is_dir()) {
                let mut all: Vec<_> =
                    fs::read_dir(&at).into_iter().flatten().flatten().map(|e| e.path()).collect();
                all.sort();
                open.append(&mut all);
            }
        }
    }

    fn counts(&mut self, at: &Path, device: u64) -> bool {
        *self.counting.entry(device).or_insert_with(|| {
            let kind = rustix::fs::statfs(at).ok().and_then(|s| u64::try_from(s.f_type).ok());
            kind.is_some_and(|kind| COUNTING.contains(&kind))
        })
    }

    fn is_left_out(&self, path: &Path) -> bool {
        path.strip_prefix(self.root)
            .is_ok_and(|p| LEFT_OUT.iter().any(|out| Path::new("/").join(p) == Path::new(out)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system with one file in each place.
    fn system() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in [
            "usr/bin/tool",
            "usr/lib/a/b/c/d/e/library",
            "usr/share/doc/tool/README",
            "usr/local/share/fonts/font",
            "usr/local/lib/python3.11/dist-packages/module.py",
            "etc/ssl/certs/authority",
            "etc/timezone",
            "etc/shadow",
            "var/lib/dpkg/status",
            "sbin/old/tool",
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "1").unwrap();
        }
        root
    }

    /// Whether the state is another one after this was done to a file.
    fn seen(file: &str, change: impl Fn(&Path)) -> bool {
        let root = system();
        let before = of_system(root.path());
        assert_eq!(before, of_system(root.path()));
        change(&root.path().join(file));
        of_system(root.path()) != before
    }

    fn new(path: &Path) {
        fs::write(path, "new").unwrap();
    }

    /// As long as before, and as old by its own word.
    fn changed_in_place(path: &Path) {
        let when = fs::metadata(path).unwrap().modified().unwrap();
        // The clock of a file system goes in steps of some milliseconds: another one is waited for.
        let stepped = || fs::metadata(path).map(|m| (m.ctime(), m.ctime_nsec())).unwrap();
        let before = stepped();
        while stepped() == before {
            fs::write(path, "2").unwrap();
            fs::File::options().write(true).open(path).unwrap().set_modified(when).unwrap();
        }
        assert_eq!(fs::metadata(path).unwrap().modified().unwrap(), when);
    }

    #[test]
    fn a_new_file_is_seen_however_deep_it_lies() {
        for file in [
            "usr/bin/new",
            "usr/lib/a/b/c/d/e/new",
            "usr/lib/a/b/new",
            "usr/local/share/fonts/new",
            "usr/local/lib/python3.11/dist-packages/new",
            "etc/ssl/certs/new",
            "sbin/old/new",
        ] {
            assert!(seen(file, new), "{file}");
        }
    }

    #[test]
    fn a_file_that_is_changed_in_place_by_hand_is_seen() {
        for file in [
            "usr/local/lib/python3.11/dist-packages/module.py",
            "usr/local/share/fonts/font",
            "etc/ssl/certs/authority",
            "etc/timezone",
            "var/lib/dpkg/status",
        ] {
            assert!(seen(file, changed_in_place), "{file}");
        }
    }

    #[test]
    fn a_file_that_a_package_manager_replaces_is_seen() {
        let replaced = |path: &Path| {
            let early = path.with_extension("new");
            fs::write(&early, "2").unwrap();
            fs::rename(early, path).unwrap();
        };
        assert!(seen("usr/lib/a/b/c/d/e/library", replaced));
    }

    #[test]
    fn what_does_not_go_into_the_image_makes_no_other_one() {
        for file in ["usr/share/doc/tool/new", "usr/share/doc/new", "etc/new", "etc/shadow", "home"] {
            assert!(!seen(file, new), "{file}");
        }
    }
}
