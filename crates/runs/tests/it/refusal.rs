//! What a hostile workspace may hold when it is collected: refused by name, and the rest goes on.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use policy::Limits;

use crate::{Place, chmod, collect, collect_with, fifo, write};

/// The refusals of a workspace changed so; an ordinary change beside them must be taken.
fn refusals(change: impl FnOnce(&Place)) -> Vec<String> {
    let place = Place::new();
    place.write("file", "x\n");
    place.write("d/file", "x\n");
    let workspace = place.import().unwrap();
    write(&place.work, "ordinary", "y\n");
    change(&place);
    let changes = collect_with(&workspace, &Limits { disk: 1 << 20, ..Limits::default() });
    assert_eq!(changes.summary.added, ["ordinary"]);
    assert_eq!(changes.summary.deleted, Vec::<String>::new());
    changes.summary.refused
}

#[test]
fn r33_links_that_leave_are_refused() {
    let refused = refusals(|p| {
        symlink("/etc/passwd", p.work.join("absolute")).unwrap();
        symlink("../source/file", p.work.join("relative")).unwrap();
        fs::remove_file(p.work.join("file")).unwrap();
        symlink("/etc/shadow", p.work.join("file")).unwrap();
        fs::remove_dir_all(p.work.join("d")).unwrap();
        symlink(&p.source, p.work.join("d")).unwrap();
    });
    assert_eq!(refused.len(), 4, "{refused:?}");
    assert!(refused[0].starts_with("absolute: a link with an absolute target"));
}

#[test]
fn r33_special_files_are_refused() {
    let refused = refusals(|p| {
        fifo(&p.work.join("pipe"));
        drop(std::os::unix::net::UnixListener::bind(p.work.join("socket")).unwrap());
    });
    assert_eq!(refused, ["pipe: a FIFO", "socket: a socket"]);
}

#[test]
fn r33_sparse_giants_are_refused() {
    let refused = refusals(|p| {
        fs::File::create(p.work.join("giant")).unwrap().set_len(1 << 42).unwrap();
    });
    assert_eq!(refused, ["giant: a file larger than `limits.disk`"]);
}

#[test]
fn r14_setuid_files_are_refused() {
    let refused = refusals(|p| {
        write(&p.work, "root-shell", "x");
        chmod(&p.work.join("root-shell"), 0o4755);
    });
    assert_eq!(refused, ["root-shell: a file with a setuid, setgid or sticky bit"]);
}

#[test]
fn r14_no_setuid_file_stays_on_the_host() {
    let place = Place::new();
    place.write("file", "x\n");
    let workspace = place.import().unwrap();
    write(&place.work, "root-shell", "x");
    chmod(&place.work.join("root-shell"), 0o6755);
    collect(&workspace);
    let mode = fs::metadata(place.work.join("root-shell")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn r33_a_hard_link_to_a_file_outside_is_refused() {
    let refused = refusals(|p| {
        fs::hard_link(p.source.join("file"), p.work.join("stolen")).unwrap();
    });
    assert_eq!(refused, ["stolen: a hard link to a file outside the workspace"]);
}

#[test]
fn a_hard_link_within_the_workspace_is_a_file() {
    let place = Place::new();
    place.write("file", "x\n");
    let workspace = place.import().unwrap();
    fs::hard_link(place.work.join("file"), place.work.join("second")).unwrap();
    let changes = collect(&workspace);
    assert_eq!((changes.summary.added, changes.summary.refused), (vec!["second".to_owned()], vec![]));
}

/// Also where the protected name was not there before: what the host would run later is not taken (bug class D-5).
#[test]
fn r3_a_hook_planted_in_a_repository_is_not_taken() {
    let refused = refusals(|p| {
        write(&p.work, ".git/hooks/pre-commit", "#!/bin/sh\n");
        for odd in ["d/.GIT", "git~1", ".git . ", ".g\u{200c}it", ".g\u{206a}it", ".git::$INDEX_ALLOCATION"] {
            write(&p.work, format!("{odd}/config"), "[core]\n");
        }
    });
    assert_eq!(refused.len(), 7, "{refused:?}");
    assert!(refused[0].starts_with(".git: changes to a repository's own files"));
}

#[test]
fn locked_folders_and_files_are_opened_again() {
    let place = Place::new();
    place.write("d/file", "x\n");
    let workspace = place.import().unwrap();
    write(&place.work, "d/file", "y\n");
    chmod(&place.work.join("d/file"), 0);
    chmod(&place.work.join("d"), 0);
    chmod(&place.work, 0);
    let changes = collect(&workspace);
    assert_eq!(changes.summary.changed, ["d/file"]);
    assert!(changes.summary.refused.is_empty(), "{:?}", changes.summary.refused);
}

#[test]
fn r44_a_flood_of_entries_ends_the_walk_and_tells_no_deletions() {
    let place = Place::new();
    place.write("z", "x\n");
    let limits = Limits { files: 10, ..Limits::default() };
    let workspace = place.import_with(&limits).unwrap();
    (0..3000).for_each(|i| write(&place.work, format!("a{i}"), ""));
    fs::remove_file(place.work.join("z")).unwrap();
    let changes = collect_with(&workspace, &limits);
    assert!(changes.summary.added.len() < 1100);
    assert!(changes.summary.deleted.is_empty());
    assert!(changes.summary.refused[0].contains("deletions are not told"));
}

#[test]
fn a_bottomless_tree_ends() {
    let place = Place::new();
    let workspace = place.import().unwrap();
    let mut at = std::os::fd::OwnedFd::from(fs::File::open(&place.work).unwrap());
    for _ in 0..400 {
        rustix::fs::mkdirat(&at, "d", 0o755.into()).unwrap();
        at = rustix::fs::openat(&at, "d", rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    }
    let changes = collect(&workspace);
    assert!(changes.summary.refused[0].ends_with("folders nested too deep"));
}

#[test]
fn a_refused_name_cannot_drive_a_terminal() {
    let refused = refusals(|p| fifo(&p.work.join(Path::new("\x1b]0;x\x07\u{202e}"))));
    assert!(!refused[0].contains(['\x1b', '\u{202e}']), "{refused:?}");
}
