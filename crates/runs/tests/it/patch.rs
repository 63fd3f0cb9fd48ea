//! What `changes.patch` says is what has happened: applied to the source by git, it gives the workspace.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use runs::Changes;

use crate::{Place, chmod, collect, write};

/// Takes `place.source` in, changes the copy, and holds the patch against git.
fn round_trip(place: &Place, change: impl FnOnce(&Path)) -> Changes {
    let workspace = place.import().unwrap();
    change(&place.work);
    let changes = collect(&workspace);
    let copy = place.work.with_file_name("copy");
    runs::Workspace::import(
        Some(&place.source),
        &copy,
        &place.store,
        &policy::Limits::default(),
        None,
        &|_, _| true,
    )
    .unwrap();
    if !changes.patch.is_empty() {
        apply(&copy, &changes.patch);
    }
    assert_eq!(contents(&copy), contents(&place.work), "{}", String::from_utf8_lossy(&changes.patch));
    changes
}

#[expect(clippy::disallowed_methods, reason = "git judges our patch; a product crate never starts it")]
fn apply(copy: &Path, patch: &[u8]) {
    let file = copy.with_file_name("changes.patch");
    fs::write(&file, patch).unwrap();
    let done = std::process::Command::new("git")
        .args(["apply", "--whitespace=nowarn"])
        .arg(&file)
        .current_dir(copy)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("GIT_CEILING_DIRECTORIES", copy.parent().unwrap())
        .output()
        .expect("these tests need git");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(patch));
}

/// Files and links with what git knows of them.
fn contents(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let key = path.strip_prefix(root).unwrap().to_owned();
            if meta.is_dir() {
                left.push(path);
            } else if meta.is_symlink() {
                found.insert(key, (0o120_000, fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()));
            } else {
                found.insert(key, (meta.mode() & 0o100, fs::read(&path).unwrap()));
            }
        }
    }
    found
}

#[test]
fn nothing_changed_is_an_empty_patch() {
    let place = Place::new();
    place.write("a", "x");
    assert_eq!(round_trip(&place, |_| {}).patch, b"");
}

#[test]
fn files_added_changed_and_deleted() {
    let place = Place::new();
    let long: String = (0..500).map(|i| format!("line {i}\n")).collect();
    place.write("long", &long);
    place.write("gone/deep/file", "1\n2\n");
    place.write("same", "same\n");
    let changes = round_trip(&place, |work| {
        write(work, "long", long.replace("line 7\n", "").replace("line 300\n", "three\nhundred\n"));
        write(work, "new/folder/file", "hello\n");
        fs::remove_dir_all(work.join("gone")).unwrap();
    });
    assert_eq!(changes.summary.added, ["new/folder/file"]);
    assert_eq!(changes.summary.changed, ["long"]);
    assert_eq!(changes.summary.deleted, ["gone/deep/file"]);
    assert!(changes.summary.refused.is_empty());
}

#[test]
fn files_without_a_last_newline_and_empty_ones() {
    let place = Place::new();
    for (name, content) in
        [("a", "x"), ("b", "x\n"), ("c", ""), ("d", "x\ny"), ("e", ""), ("f", "1\r\n2\r3\n")]
    {
        place.write(name, content);
    }
    round_trip(&place, |work| {
        for (name, content) in
            [("a", "x\n"), ("b", "x"), ("c", "x"), ("d", ""), ("f", "1\n2\r4\n"), ("g", "")]
        {
            write(work, name, content);
        }
        fs::remove_file(work.join("e")).unwrap();
    });
}

#[test]
fn modes_are_taken_over() {
    let place = Place::new();
    place.write("on", "x\n");
    place.write("off", "x\n");
    place.write("both", "x\n");
    chmod(&place.source.join("off"), 0o755);
    let changes = round_trip(&place, |work| {
        chmod(&work.join("on"), 0o755);
        chmod(&work.join("off"), 0o644);
        write(work, "both", "y\n");
        chmod(&work.join("both"), 0o755);
        write(work, "new", "#!/bin/sh\n");
        chmod(&work.join("new"), 0o755);
    });
    assert_eq!(changes.summary.changed, ["both", "off", "on"]);
}

#[test]
fn w3_odd_names_are_names() {
    let place = Place::new();
    let names: [&[u8]; 10] = [
        b"..foo",
        b"new\nline",
        b"\xff\xfe",
        b"-rf",
        b"\"quoted\"",
        b"back\\slash",
        b"with space ",
        b"\xc3\xa9t\xc3\xa9",
        b"tab\there",
        b"...",
    ];
    for name in names {
        place.write(OsStr::from_bytes(name), "old\n");
        place.write(Path::new("gone").join(OsStr::from_bytes(name)), "old\n");
    }
    let changes = round_trip(&place, |work| {
        for name in names {
            write(work, OsStr::from_bytes(name), "new\n");
            write(work, Path::new("added").join(OsStr::from_bytes(name)), "");
            chmod(&work.join("added").join(OsStr::from_bytes(name)), 0o755);
        }
        fs::remove_dir_all(work.join("gone")).unwrap();
    });
    assert!(changes.summary.refused.is_empty(), "{:?}", changes.summary.refused);
    assert!(changes.summary.changed.iter().all(|n| !n.contains('\n')));
}

#[test]
fn links_that_stay_inside_are_taken_over() {
    let place = Place::new();
    place.write("d/file", "x\n");
    place.link("turned", "d/file");
    place.link("gone", "d");
    place.write("was-file", "x\n");
    place.link("was-link", "d/file");
    round_trip(&place, |work| {
        symlink("../d/file", work.join("d/new")).unwrap();
        for name in ["turned", "gone", "was-file", "was-link"] {
            fs::remove_file(work.join(name)).unwrap();
        }
        symlink("d", work.join("turned")).unwrap();
        symlink("d/file", work.join("was-file")).unwrap();
        write(work, "was-link", "x\n");
    });
}

#[test]
fn a_file_and_a_folder_change_places() {
    let place = Place::new();
    place.write("a", "x\n");
    place.write("b/c", "x\n");
    round_trip(&place, |work| {
        fs::remove_file(work.join("a")).unwrap();
        write(work, "a/inner", "y\n");
        fs::remove_dir_all(work.join("b")).unwrap();
        write(work, "b", "y\n");
    });
}

#[test]
fn text_that_looks_like_a_patch_is_text() {
    let place = Place::new();
    place.write("a", "-- a/x\n++ b/y\n@@ -1 +1 @@\ndiff --git a/x b/x\n");
    round_trip(&place, |work| {
        write(
            work,
            "a",
            "diff --git a/etc b/etc\n--- a/x\n+++ b/../../y\n@@ -0,0 +1 @@\n+z\n\\ No newline\n",
        );
    });
}

#[test]
fn a_binary_file_is_told_and_kept_and_the_rest_can_be_applied() {
    let place = Place::new();
    place.write("bin", b"\x00old");
    place.write("gone", b"\x00old");
    place.write("text", "x\n");
    let workspace = place.import().unwrap();
    write(&place.work, "bin", b"\x00newer");
    write(&place.work, "added", b"a\x00");
    write(&place.work, "text", "y\n");
    fs::remove_file(place.work.join("gone")).unwrap();
    let changes = collect(&workspace);
    let text = String::from_utf8(changes.patch.clone()).unwrap();
    assert!(text.contains("# Binary files a/bin and b/bin differ; new content: artifact 6\n"), "{text}");
    assert_eq!(changes.artifacts, ["2", "6"]);
    assert_eq!(changes.summary.apart.len(), 3);
    let copy = place.work.with_file_name("copy");
    fs::create_dir(&copy).unwrap();
    write(&copy, "text", "x\n");
    apply(&copy, &changes.patch);
    assert_eq!(fs::read(copy.join("text")).unwrap(), b"y\n");
}

#[test]
fn a_file_too_large_for_lines_is_kept_apart() {
    let place = Place::new();
    place.write("big", "x\n");
    let workspace = place.import().unwrap();
    write(&place.work, "big", "y\n".repeat(3 << 20));
    let changes = collect(&workspace);
    assert_eq!(changes.summary.changed, ["big"]);
    assert_eq!(changes.summary.apart[0].why, "too large to compare");
}

#[test]
fn an_original_that_changed_meanwhile_is_never_used_for_the_patch() {
    let place = Place::new();
    place.write("a", "x\n");
    let workspace = place.import().unwrap();
    write(&place.work, "a", "y\n");
    place.write("a", "z\n");
    let changes = collect(&workspace);
    assert_eq!(changes.summary.apart[0].why, "the original was changed while the run went on");
    assert!(!String::from_utf8_lossy(&changes.patch).contains("diff --git"));
}

#[test]
fn many_random_edits_make_a_patch_that_git_accepts() {
    let place = Place::new();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |n: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % n
    };
    let mut lines = |n: u64| -> String {
        (0..random(n))
            .map(|_| {
                format!("{}\n", ["a", "b", "", "+x", "-y", " z", "@@"][usize::try_from(random(7)).unwrap()])
            })
            .collect()
    };
    let olds: Vec<String> = (0..60).map(|_| lines(40)).collect();
    let news: Vec<String> =
        (0..60).map(|i| if i % 3 == 0 { lines(40) } else { format!("{}{}", lines(4), olds[i]) }).collect();
    olds.iter().enumerate().for_each(|(i, t)| place.write(format!("f{i}"), t));
    round_trip(&place, |work| news.iter().enumerate().for_each(|(i, t)| write(work, format!("f{i}"), t)));
}

#[test]
fn files_that_were_only_moved_are_renames() {
    let place = Place::new();
    let binary: Vec<u8> = (0..100_000u32).map(|n| n.to_le_bytes()[0]).collect();
    place.write("a/one", "1\n2\n3\n");
    place.write("a/two words \u{e9}", "two\n");
    place.write("binary", &binary);
    place.write("large", vec![b'x'; 5 << 20]);
    place.write("tool", "#!/bin/sh\n");
    place.write("empty", "");
    let changes = round_trip(&place, |work| {
        fs::rename(work.join("a"), work.join("b")).unwrap();
        fs::create_dir(work.join("d")).unwrap();
        for name in ["binary", "large", "tool", "empty"] {
            fs::rename(work.join(name), work.join("d").join(name)).unwrap();
        }
        chmod(&work.join("d/tool"), 0o755);
    });
    let told: Vec<_> =
        changes.summary.renamed.iter().map(|r| (r.from.as_str(), r.to.as_str(), r.same)).collect();
    assert_eq!(
        told,
        [
            ("a/one", "b/one", 100),
            ("a/two words \u{e9}", "b/two words \u{e9}", 100),
            ("binary", "d/binary", 100),
            ("large", "d/large", 100),
            ("tool", "d/tool", 100),
        ]
    );
    assert_eq!(
        (changes.summary.added, changes.summary.deleted),
        (vec!["d/empty".to_owned()], vec!["empty".to_owned()])
    );
    assert_eq!(changes.summary.counts.renamed, 5);
    assert!(changes.summary.apart.is_empty() && changes.patch.len() < 2000);
    let patch = String::from_utf8(changes.patch).unwrap();
    assert!(patch.contains("similarity index 100%\nrename from binary\nrename to d/binary\n"), "{patch}");
    assert!(
        patch.contains("old mode 100644\nnew mode 100755\nsimilarity index 100%\nrename from tool\n"),
        "{patch}"
    );
}

#[test]
fn a_moved_file_with_small_edits_is_a_rename_with_a_hunk() {
    let place = Place::new();
    let long: String = (0..50).map(|i| format!("line {i}\n")).collect();
    place.write("old", &long);
    place.write("other", "quite\nanother\n");
    let changes = round_trip(&place, |work| {
        fs::remove_file(work.join("old")).unwrap();
        fs::remove_file(work.join("other")).unwrap();
        write(work, "sub/new", long.replace("line 7\n", "line seven\n"));
        write(work, "fresh", "nothing\nalike\n");
    });
    let [renamed] = changes.summary.renamed.as_slice() else { panic!("{:?}", changes.summary) };
    assert_eq!((renamed.from.as_str(), renamed.to.as_str()), ("old", "sub/new"));
    assert!((90..100).contains(&renamed.same));
    assert_eq!(
        (changes.summary.added, changes.summary.deleted),
        (vec!["fresh".to_owned()], vec!["other".to_owned()])
    );
    let patch = String::from_utf8(changes.patch).unwrap();
    assert!(
        patch.contains("rename from old\nrename to sub/new\n--- a/old\n+++ b/sub/new\n@@ -5,7 +5,7 @@\n"),
        "{patch}"
    );
}

#[test]
fn files_and_folders_that_trade_places_and_names_in_a_circle() {
    let place = Place::new();
    for name in ["a", "b", "c", "d/f", "e"] {
        place.write(name, format!("{name}\n").repeat(5));
    }
    let changes = round_trip(&place, |work| {
        fs::rename(work.join("a"), work.join("x")).unwrap();
        fs::rename(work.join("b"), work.join("a")).unwrap();
        fs::rename(work.join("c"), work.join("b")).unwrap();
        fs::rename(work.join("d/f"), work.join("f")).unwrap();
        fs::remove_dir(work.join("d")).unwrap();
        fs::rename(work.join("f"), work.join("d")).unwrap();
        fs::create_dir(work.join("n")).unwrap();
        fs::rename(work.join("e"), work.join("n/e")).unwrap();
        fs::rename(work.join("n"), work.join("e")).unwrap();
    });
    assert_eq!(changes.summary.changed, ["a", "b"]);
    assert_eq!(changes.summary.counts.added, 2 + 1);
}

#[test]
fn a_renamed_file_whose_original_was_changed_meanwhile_is_told_and_not_in_the_patch() {
    let place = Place::new();
    place.write("old", "1\n2\n");
    let workspace = place.import().unwrap();
    fs::rename(place.work.join("old"), place.work.join("new")).unwrap();
    place.write("old", "1\n2\n3\n");
    let changes = collect(&workspace);
    assert_eq!(changes.summary.renamed.len(), 1);
    assert_eq!(changes.summary.apart[0].why, "the original was changed while the run went on");
    assert!(!String::from_utf8_lossy(&changes.patch).contains("diff --git"));
}

/// Size and time of a file are its owner's to set; the kernel's own stamp is not.
#[test]
fn a_change_that_keeps_size_and_time_is_found() {
    let place = Place::new();
    for n in 0..100 {
        place.write(format!("f{n}"), "before\n");
    }
    let changes = round_trip(&place, |work| {
        let path = work.join("f7");
        let meta = fs::metadata(&path).unwrap();
        fs::write(&path, "after!\n").unwrap();
        let times = fs::FileTimes::new()
            .set_modified(meta.modified().unwrap())
            .set_accessed(meta.accessed().unwrap());
        fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        let now = fs::metadata(&path).unwrap();
        assert_eq!((now.len(), now.mtime_nsec(), now.ino()), (meta.len(), meta.mtime_nsec(), meta.ino()));
    });
    assert_eq!(changes.summary.changed, ["f7"]);
}

/// However soon after the import: a change in the same tick of the kernel's clock would bear the same stamp.
#[test]
fn a_change_right_behind_the_import_is_found() {
    for _ in 0..200 {
        let place = Place::new();
        place.write("f", "1\n");
        place.write("untouched", "1\n");
        let workspace = place.import().unwrap();
        fs::write(place.work.join("f"), "2\n").unwrap();
        let time = fs::metadata(place.source.join("f")).unwrap().modified().unwrap();
        fs::File::options().write(true).open(place.work.join("f")).unwrap().set_modified(time).unwrap();
        assert_eq!(collect(&workspace).summary.changed, ["f"]);
    }
}

#[test]
fn files_that_trade_names_and_copies_of_themselves_are_looked_at() {
    let place = Place::new();
    place.write("a", "1\n");
    place.write("b", "2\n");
    place.write("c", "3\n");
    let changes = round_trip(&place, |work| {
        fs::rename(work.join("a"), work.join("x")).unwrap();
        fs::rename(work.join("b"), work.join("a")).unwrap();
        fs::rename(work.join("x"), work.join("b")).unwrap();
        fs::copy(work.join("c"), work.join("d")).unwrap();
        fs::rename(work.join("d"), work.join("c")).unwrap();
    });
    assert_eq!(changes.summary.changed, ["a", "b"]);
}
