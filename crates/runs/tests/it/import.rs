//! The way in.

use std::fs;
use std::os::unix::fs::MetadataExt;

use policy::Limits;
use testkit::Tree;

use crate::{Place, chmod, collect, fifo, is_root, notes, write};

#[test]
fn r18_a_source_full_of_links_is_the_same_before_and_after() {
    let place = Place::new();
    place.write("a/file", "text");
    place.link("inside", "a/file");
    place.link("outside", "/etc/passwd");
    place.link("loop", "loop");
    fs::hard_link(place.source.join("a/file"), place.source.join("hard")).unwrap();
    chmod(&place.source.join("a/file"), 0o640);
    let before = Tree::of(&place.source).unwrap();
    let workspace = place.import().unwrap();
    fs::remove_dir_all(place.work.join("a")).unwrap();
    fs::write(place.work.join("hard"), "overwritten").unwrap();
    collect(&workspace);
    assert_eq!(before.differences(&Tree::of(&place.source).unwrap()), Vec::<std::path::PathBuf>::new());
}

#[test]
fn w7_a_link_to_a_host_file_brings_no_host_file() {
    let place = Place::new();
    place.link("absolute", "/etc/passwd");
    place.link("relative", "../../../../../../../../etc/passwd");
    place.write("d/f", "");
    place.link("d/up", "../..");
    let workspace = place.import().unwrap();
    for name in ["absolute", "relative", "d/up"] {
        assert!(fs::symlink_metadata(place.work.join(name)).is_err(), "{name}");
    }
    assert_eq!(notes(&workspace).len(), 3);
    assert!(notes(&workspace)[0].starts_with("absolute: left out: a link"));
}

#[test]
fn w7_links_that_stay_inside_stay_links_and_loops_end() {
    let place = Place::new();
    place.write("d/file", "x");
    place.link("d/around", "..");
    place.link("self", "self");
    place.link("d/there", "../d/file");
    let workspace = place.import().unwrap();
    assert_eq!(fs::read_link(place.work.join("d/around")).unwrap(), std::path::Path::new(".."));
    assert_eq!(fs::read(place.work.join("d/there")).unwrap(), b"x");
    assert!(notes(&workspace).is_empty());
}

#[test]
fn w7_a_fifo_is_refused_by_name_and_nothing_is_left() {
    let place = Place::new();
    place.write("a", "x");
    place.write("b/c", "x");
    fifo(&place.source.join("b/pipe"));
    let reason = place.refused(&Limits::default());
    assert!(reason.contains("b/pipe: it is a FIFO"), "{reason}");
}

#[test]
fn w7_a_socket_is_refused_by_name() {
    let place = Place::new();
    let _socket = std::os::unix::net::UnixListener::bind(place.source.join("s")).unwrap();
    let reason = place.refused(&Limits::default());
    assert!(reason.contains("it is a socket"), "{reason}");
}

#[test]
fn w7_a_device_is_refused_by_name() {
    let place = Place::new();
    let device = place.source.join("null");
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        &device,
        rustix::fs::FileType::CharacterDevice,
        0o600.into(),
        rustix::fs::makedev(1, 3),
    );
    if made.is_ok() {
        let reason = place.refused(&Limits::default());
        assert!(reason.contains("it is a device"), "{reason}");
    } else {
        // Only root may make devices, so an ordinary user's source holds none of its own making.
        assert!(!is_root() || made == Err(rustix::io::Errno::PERM), "{made:?}");
    }
}

/// Whatever the moment, what comes in is the file or nothing: never what the link leads to.
#[test]
fn w2_a_source_exchanged_under_the_import_never_leads_out() {
    let place = Place::new();
    write(&place.store, "host-file", "of the host");
    let swapped = place.source.join("swapped");
    let spare = place.store.join("spare");
    fs::write(&swapped, "of the source").unwrap();
    std::os::unix::fs::symlink(place.store.join("host-file"), &spare).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &swapped, rustix::fs::CWD, &spare, flags).unwrap();
            }
        });
        let came_out = (0..300).any(|_| {
            let led_out = place.import().is_ok()
                && fs::read(place.work.join("swapped")).is_ok_and(|content| content != b"of the source");
            if place.work.exists() {
                fs::remove_dir_all(&place.work).unwrap();
            }
            led_out
        });
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(!came_out, "a file of the host came in");
    });
}

#[test]
fn w7_hard_links_become_files_of_their_own() {
    let place = Place::new();
    place.write("a", "x");
    fs::hard_link(place.source.join("a"), place.source.join("b")).unwrap();
    place.import().unwrap();
    let [a, b] = ["a", "b"].map(|n| fs::metadata(place.work.join(n)).unwrap());
    assert_ne!(a.ino(), b.ino());
    assert_eq!((a.nlink(), b.nlink()), (1, 1));
}

#[test]
fn a_hostile_name_in_a_refusal_cannot_drive_a_terminal() {
    let place = Place::new();
    fifo(&place.source.join("\x1b[2Jx"));
    assert!(!place.refused(&Limits::default()).contains('\x1b'));
}

#[test]
fn special_bits_are_stripped_and_noted_and_modes_and_times_are_kept() {
    let place = Place::new();
    place.write("tool", "x");
    place.write("plain", "x");
    chmod(&place.source.join("tool"), 0o4755);
    chmod(&place.source.join("plain"), 0o640);
    let workspace = place.import().unwrap();
    let mode = |n: &str| fs::metadata(place.work.join(n)).unwrap().mode() & 0o7777;
    assert_eq!((mode("tool"), mode("plain")), (0o755, 0o640));
    assert!(notes(&workspace)[0].starts_with("tool: taken in without"));
    let time = |p: &std::path::Path| fs::metadata(p).unwrap().modified().unwrap();
    assert_eq!(time(&place.work.join("plain")), time(&place.source.join("plain")));
    assert!(collect(&workspace).summary.changed.is_empty());
}

#[test]
fn folders_can_always_be_worked_in() {
    let place = Place::new();
    place.write("d/f", "x");
    chmod(&place.source.join("d"), 0o555);
    place.import().unwrap();
    assert_eq!(fs::metadata(place.work.join("d")).unwrap().mode() & 0o777, 0o755);
    chmod(&place.source.join("d"), 0o755);
}

#[test]
fn r44_too_many_files_are_refused() {
    let place = Place::new();
    (0..4).for_each(|i| place.write(format!("d{i}/f"), "x"));
    let reason = place.refused(&Limits { files: 7, ..Limits::default() });
    assert!(reason.contains("more than 7 files in all (`limits.files`)"), "{reason}");
    place.import_with(&Limits { files: 8, ..Limits::default() }).unwrap();
}

#[test]
fn r44_too_many_bytes_are_refused_and_holes_count() {
    let place = Place::new();
    fs::File::create(place.source.join("hole")).unwrap().set_len(1 << 40).unwrap();
    let reason = place.refused(&Limits::default());
    assert!(reason.contains("bytes in all (`limits.disk`)"), "{reason}");
}

#[test]
fn holes_stay_holes() {
    let place = Place::new();
    let file = fs::File::create(place.source.join("hole")).unwrap();
    file.set_len(8 << 20).unwrap();
    place.import().unwrap();
    let meta = fs::metadata(place.work.join("hole")).unwrap();
    assert_eq!(meta.len(), 8 << 20);
    assert!(meta.blocks() < 512, "{} blocks", meta.blocks());
}

#[test]
fn the_folder_of_the_records_is_left_out_of_its_own_source() {
    let place = Place::new();
    place.write("code", "x");
    place.write("data/runs/01/meta.json", "secret of another run");
    place.write("data/foundry/x", "x");
    let store = place.source.join("data/runs");
    let work = store.join("workspace");
    let workspace =
        runs::Workspace::import(Some(&place.source), &work, &store, &Limits::default(), None, &|_, _| true)
            .unwrap();
    assert!(work.join("code").exists() && !work.join("data").exists());
    assert_eq!(notes(&workspace), ["data: left out: the folder of the records"]);
}

#[test]
fn a_source_inside_the_store_is_refused() {
    let place = Place::new();
    let inner = place.store.join("run/workspace");
    fs::create_dir_all(&inner).unwrap();
    let e = runs::Workspace::import(
        Some(&inner),
        &place.work,
        &place.store,
        &Limits::default(),
        None,
        &|_, _| true,
    );
    assert!(e.unwrap_err().to_string().contains("it lies in the folder of the runs itself"));
}

#[test]
fn one_file_is_a_source_too() {
    let place = Place::new();
    place.write("only.txt", "x");
    place.write("not.txt", "y");
    let only = place.source.join("only.txt");
    let import = |from: Option<&std::path::Path>| {
        runs::Workspace::import(from, &place.work, &place.store, &Limits::default(), None, &|_, _| true)
    };
    let workspace = import(Some(&only)).unwrap();
    assert_eq!(fs::read_dir(&place.work).unwrap().count(), 1);
    fs::write(place.work.join("only.txt"), "z").unwrap();
    assert_eq!(collect(&workspace).summary.changed, ["only.txt"]);
}

#[test]
fn without_a_source_the_workspace_is_empty() {
    let place = Place::new();
    runs::Workspace::import(None, &place.work, &place.store, &Limits::default(), None, &|_, _| true).unwrap();
    assert_eq!(fs::read_dir(&place.work).unwrap().count(), 0);
}

#[test]
fn a_source_that_is_not_there_is_a_clear_refusal() {
    let place = Place::new();
    fs::remove_dir(&place.source).unwrap();
    assert!(place.refused(&Limits::default()).contains("source: No such file"));
}

#[test]
fn an_unreadable_file_is_a_clear_refusal() {
    let place = Place::new();
    place.write("locked", "x");
    chmod(&place.source.join("locked"), 0);
    // Root reads everything; everybody else is told which file it is.
    match place.import() {
        Ok(_) => assert!(is_root()),
        Err(e) => assert!(e.to_string().contains("locked: Permission denied"), "{e}"),
    }
}

#[test]
fn the_progress_of_an_import_is_told() {
    let place = Place::new();
    place.write("a", "12345");
    place.write("b/c", "678");
    let told = std::sync::Mutex::new(Vec::new());
    runs::Workspace::import(
        Some(&place.source),
        &place.work,
        &place.store,
        &Limits::default(),
        None,
        &|files, bytes| {
            told.lock().unwrap().push((files, bytes));
            true
        },
    )
    .unwrap();
    assert_eq!(told.into_inner().unwrap().last(), Some(&(3, 8)));
}

#[test]
fn an_import_ends_when_told_to_and_leaves_nothing() {
    let place = Place::new();
    place.write("a", "12345");
    place.write("b/c", "678");
    let ended = runs::Workspace::import(
        Some(&place.source),
        &place.work,
        &place.store,
        &Limits::default(),
        None,
        &|_, _| false,
    );
    assert!(matches!(ended, Err(runs::RunError::Cancelled)), "{ended:?}");
    assert!(!place.work.exists());
}

#[test]
fn many_files_in_many_folders_come_in_whole_with_their_folders_times() {
    let place = Place::new();
    for n in 0..1500usize {
        place.write(format!("d{}/e{}/f{n}", n % 13, n % 7), format!("{n}\n").repeat(n % 50));
    }
    place.write("large", vec![7; 3_000_000]);
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for name in ["d3/e2", "d3", "d12"] {
        fs::File::open(place.source.join(name)).unwrap().set_modified(time).unwrap();
    }
    let workspace = place.import().unwrap();
    let (a, b) = (Tree::of(&place.source).unwrap(), Tree::of(&place.work).unwrap());
    assert_eq!(a.differences(&b), Vec::<std::path::PathBuf>::new());
    for name in ["d3/e2", "d3", "d12"] {
        assert_eq!(fs::metadata(place.work.join(name)).unwrap().modified().unwrap(), time, "{name}");
    }
    assert_eq!(workspace.describe()["files"], 1501);
    assert!(collect(&workspace).patch.is_empty());
}

#[test]
fn r44_the_bytes_of_many_files_together_are_bounded() {
    let place = Place::new();
    (0..300).for_each(|n| place.write(format!("f{n}"), [1; 1000]));
    let reason = place.refused(&Limits { disk: 299_999, ..Limits::default() });
    assert!(reason.contains("more than 299999 bytes in all (`limits.disk`)"), "{reason}");
    place.import_with(&Limits { disk: 300_000, ..Limits::default() }).unwrap();
}
