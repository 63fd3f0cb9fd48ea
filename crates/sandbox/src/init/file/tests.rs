//! The operations alone, on a folder of the host with nothing around it: no view, no rules, no other id. What holds
//! here holds by the way names are walked, and by nothing else. Each claim with the kernel's help and without it.

use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;

struct Ground {
    dir: tempfile::TempDir,
}

impl Ground {
    fn new() -> Ground {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("workspace")).unwrap();
        std::fs::create_dir_all(dir.path().join("outside/deep")).unwrap();
        for name in ["outside/secret", "outside/deep/secret"] {
            std::fs::write(dir.path().join(name), "CANARY\n").unwrap();
        }
        Ground { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join("workspace").join(name)
    }

    fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    fn does(&self, op: &FileOp, content: &[u8], kernel: bool) -> Result<(Value, Vec<u8>), Refusal> {
        let workspace = Workspace::of(&self.dir.path().join("workspace"), kernel);
        carry_out(&workspace, op, &mut &content[..])
    }

    /// Everything beside the workspace: names, kinds, modes, times, contents.
    fn beside(&self) -> Vec<String> {
        let mut seen = Vec::new();
        let mut folders = vec![self.outside()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let stat = std::fs::symlink_metadata(&path).unwrap();
                if stat.is_dir() {
                    folders.push(path.clone());
                }
                let content = if stat.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
                seen.push(format!(
                    "{path:?} {:o} {} {} {content:?}",
                    stat.mode(),
                    stat.mtime_nsec(),
                    stat.nlink()
                ));
            }
        }
        for entry in std::fs::read_dir(self.dir.path()).unwrap() {
            seen.push(format!("{:?}", entry.unwrap().file_name()));
        }
        seen.sort();
        seen
    }
}

fn sum(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

fn same(content: &[u8]) -> Was {
    Was::Same { sha256: sum(content), bytes: u64::try_from(content.len()).unwrap() }
}

fn wish(path: &str, was: Was, bytes: u64) -> Change {
    Change { path: path.to_owned(), was, to: To::Content { bytes: Some(bytes), executable: None } }
}

/// The same every time, from a number that is printed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.roll(choices.len())]
    }

    fn path(&mut self, up: bool) -> String {
        let names = ["a", "b", "c", "..foo", "l", "m", "\u{ff}", "x y", "..", ".", "secret", "deep"];
        let count = 1 + self.roll(4);
        let parts: Vec<&str> = (0..count).map(|_| *self.of(&names)).filter(|n| up || *n != "..").collect();
        match self.roll(12) {
            0 => format!("/workspace/{}", parts.join("/")),
            1 => format!("/{}", parts.join("/")),
            2 => policy::quoted(parts.join("//").as_bytes()).into_owned(),
            _ => parts.join("/"),
        }
    }
}

/// How long a race lasts: a moment, or as long as is asked for.
fn race() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "by hand it is run for a minute")]
    let asked = std::env::var("OUBLIETTE_TEST_RACE_SECONDS").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(asked.unwrap_or(2))
}

/// One thing that a guest does: a file, a folder, links of both kinds, a pipe, a swap, a removal.
fn disturb(dice: &mut Dice, boxed: &Ground) {
    let place = |dice: &mut Dice| boxed.at(dice.path(false).trim_start_matches('/'));
    let (one, other) = (place(dice), place(dice));
    // It has no walls here, so it stays inside by itself.
    let top = boxed.at("").canonicalize().unwrap();
    let stays =
        |path: &Path| path.parent().and_then(|p| p.canonicalize().ok()).is_some_and(|p| p.starts_with(&top));
    if !stays(&one) || !stays(&other) {
        return;
    }
    let outside = boxed.outside();
    let targets = [
        outside.clone(),
        outside.join("secret"),
        outside.join("planted"),
        PathBuf::from("../outside"),
        PathBuf::from(".."),
        PathBuf::from("../../outside/secret"),
        PathBuf::from("a"),
        PathBuf::from("l"),
        PathBuf::from("/workspace/a"),
        PathBuf::from("."),
        PathBuf::from("/proc/self/root"),
        PathBuf::from("/proc/self/cwd"),
        PathBuf::from("b/../.."),
    ];
    // What cannot be done is not done.
    match dice.roll(9) {
        0 | 1 => std::fs::create_dir(&one).ok(),
        2 => File::create_new(&one).and_then(|mut f| f.write_all(b"inside\n")).ok(),
        3 | 4 => symlink(dice.of(&targets), &one).ok(),
        5 => std::fs::rename(&one, &other).ok(),
        6 => rustix::fs::renameat_with(
            rustix::fs::CWD,
            &one,
            rustix::fs::CWD,
            &other,
            rustix::fs::RenameFlags::EXCHANGE,
        )
        .ok(),
        7 => rustix::fs::mknodat(rustix::fs::CWD, &one, FileType::Fifo, 0o600.into(), 0).ok(),
        _ => std::fs::remove_file(&one).ok(),
    };
}

/// One thing that a tool does.
fn operation(dice: &mut Dice) -> FileOp {
    let (path, limit) = (dice.path(true), 50);
    match dice.roll(7) {
        0 | 1 => FileOp::Read { path, offset: 0, limit: 1000 },
        2 => FileOp::Write { path },
        3 => FileOp::List { path, limit },
        4 => FileOp::Glob { pattern: "**".to_owned(), path, limit, ignored: dice.roll(2) == 0 },
        5 => FileOp::Search { pattern: ".".to_owned(), path, limit, ignored: dice.roll(2) == 0 },
        _ => {
            let other = dice.path(true);
            let was = dice.of(&[Was::Any, Was::Absent, same(b"inside\n"), same(b"tool\n")]).clone();
            let gone = Change { path: other, was: Was::Any, to: To::Gone };
            FileOp::Change { changes: vec![wish(&path, was, 5), gone] }
        }
    }
}

/// R13, R21, W1, W2, W7: whatever a workspace holds and whatever a tool is asked for, nothing beside it is read or
/// changed.
#[test]
fn r13_r21_no_sequence_of_paths_links_and_swaps_touches_anything_outside() {
    let seed = u64::from(std::process::id());
    let mut dice = Dice(seed);
    for n in 0..120 {
        let boxed = Ground::new();
        for _ in 0..40 {
            disturb(&mut dice, &boxed);
            let before = boxed.beside();
            let op = operation(&mut dice);
            for kernel in [true, false] {
                let told = boxed.does(&op, b"tool\n", kernel);
                assert_eq!(boxed.beside(), before, "seed {seed}, {n}: {op:?}");
                let said = format!("{told:?}");
                let bytes = told.map(|(_, bytes)| bytes).unwrap_or_default();
                let canary = said.contains("CANARY") || bytes.windows(6).any(|w| w == b"CANARY");
                assert!(!canary, "seed {seed}, {n}: {op:?}: {said}");
            }
        }
    }
}

/// W2, R13: while a program swaps files and folders for links and back, tools read and write for as long.
#[test]
fn r13_a_racing_swapper_wins_nothing_without_any_other_wall() {
    let boxed = Ground::new();
    std::fs::create_dir(boxed.at("d")).unwrap();
    std::fs::create_dir(boxed.at("spare")).unwrap();
    for name in ["d/secret", "spare/secret"] {
        std::fs::write(boxed.at(name), "inside\n").unwrap();
    }
    symlink(boxed.outside(), boxed.at("link")).unwrap();
    symlink(boxed.outside().join("secret"), boxed.at("file")).unwrap();
    let (before, stop) = (boxed.beside(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let swap = |one: &Path, other: &Path| {
                let cwd = rustix::fs::CWD;
                rustix::fs::renameat_with(cwd, one, cwd, other, rustix::fs::RenameFlags::EXCHANGE).ok();
            };
            while !stop.load(Ordering::Relaxed) {
                swap(&boxed.at("d"), &boxed.at("link"));
                swap(&boxed.at("d"), &boxed.at("link"));
                swap(&boxed.at("d/secret"), &boxed.at("file"));
                swap(&boxed.at("d/secret"), &boxed.at("file"));
            }
        });
        let until = Instant::now() + race();
        let (mut tries, mut done) = (0, 0);
        while Instant::now() < until {
            for kernel in [true, false] {
                let path = "d/secret".to_owned();
                let ops = [
                    FileOp::Write { path: path.clone() },
                    FileOp::Read { path: path.clone(), offset: 0, limit: 100 },
                    FileOp::Change { changes: vec![wish(&path, same(b"tool\n"), 5)] },
                    FileOp::Search { pattern: "A".to_owned(), path: "d".to_owned(), limit: 9, ignored: true },
                    FileOp::Write { path: "d/planted".to_owned() },
                ];
                for op in ops {
                    let told = boxed.does(&op, b"tool\n", kernel);
                    tries += 1;
                    done += usize::from(told.is_ok());
                    if let Ok((value, bytes)) = told {
                        assert!(
                            !value.to_string().contains("CANARY") && !bytes.starts_with(b"CANARY"),
                            "{op:?}"
                        );
                    }
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(done > 0, "none of {tries} operations was done");
    });
    assert_eq!(boxed.beside(), before);
}

/// Between the look and the exchange a program may write, by name or in place: nothing of it is lost.
#[test]
fn a_change_never_covers_what_a_program_wrote_meanwhile() {
    let boxed = Ground::new();
    std::fs::write(boxed.at("f"), "").unwrap();
    let stop = AtomicBool::new(false);
    let mut ours = 0;
    let theirs = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| {
            use std::io::Write;
            let mut written = 0;
            while !stop.load(Ordering::Relaxed) {
                let mut file = std::fs::OpenOptions::new().append(true).open(boxed.at("f")).unwrap();
                file.write_all(b"theirs\n").unwrap();
                written += 1;
                drop(file);
                // Now and then long enough for a change to come between, on a busy machine too.
                std::thread::sleep(Duration::from_micros(if written % 50 == 0 {
                    20_000
                } else {
                    written % 400
                }));
            }
            written
        });
        let until = Instant::now() + race();
        // As long again, and more, where not one got through.
        while Instant::now() < until || (ours == 0 && Instant::now() < until + Duration::from_secs(15)) {
            let Ok((_, before)) =
                boxed.does(&FileOp::Read { path: "f".to_owned(), offset: 0, limit: 8 << 20 }, b"", true)
            else {
                continue;
            };
            let after = [&before[..], b"ours\n"].concat();
            let bytes = u64::try_from(after.len()).unwrap();
            let op = FileOp::Change { changes: vec![wish("f", same(&before), bytes)] };
            match boxed.does(&op, &after, true) {
                Ok(_) => ours += 1,
                Err(refusal) => assert_eq!(refusal.kind, "changed"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        theirs.join().unwrap()
    });
    let text = std::fs::read_to_string(boxed.at("f")).unwrap();
    let count = |what: &str| u64::try_from(text.lines().filter(|l| *l == what).count()).unwrap();
    assert_eq!((count("ours"), count("theirs")), (ours, theirs));
    assert!(ours > 0 && theirs > 0);
}

/// Of several changes all happen or none, whichever of them fails; no half and no folder stays.
#[test]
fn changes_of_several_files_are_all_or_nothing() {
    let failing = [
        wish("c", same(b"other"), 3),
        wish("c", Was::Absent, 3),
        wish("d", Was::Any, 3),
        wish("pipe", Was::Any, 3),
        wish("../x", Was::Any, 3),
        wish("short", Was::Any, 99),
        Change { path: "none".to_owned(), was: Was::Any, to: To::Gone },
    ];
    for (n, last) in failing.into_iter().enumerate() {
        let boxed = Ground::new();
        for name in ["a", "b", "c"] {
            std::fs::write(boxed.at(name), name).unwrap();
        }
        std::fs::create_dir(boxed.at("d")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, boxed.at("pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
        let names = |boxed: &Ground| {
            let mut names: Vec<_> =
                std::fs::read_dir(boxed.at("")).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let before = names(&boxed);
        let gone = Change { path: "b".to_owned(), was: same(b"b"), to: To::Gone };
        let changes = vec![wish("a", same(b"a"), 3), gone, wish("new/er/file", Was::Absent, 3), last];
        let refusal = boxed.does(&FileOp::Change { changes }, b"111222333", true).unwrap_err();
        assert!(!refusal.message.contains("put back"), "{n}: {refusal:?}");
        assert_eq!(names(&boxed), before, "{n}");
        for name in ["a", "b", "c"] {
            assert_eq!(std::fs::read_to_string(boxed.at(name)).unwrap(), name, "{n}");
        }
    }
}

#[test]
fn a_changed_file_keeps_mode_attributes_and_its_other_names_their_content() {
    let boxed = Ground::new();
    std::fs::write(boxed.at("a"), "old").unwrap();
    std::fs::set_permissions(boxed.at("a"), std::fs::Permissions::from_mode(0o750)).unwrap();
    std::fs::hard_link(boxed.at("a"), boxed.at("other")).unwrap();
    let file = File::open(boxed.at("a")).unwrap();
    let kept = rustix::fs::fsetxattr(&file, "user.note", b"kept", rustix::fs::XattrFlags::empty()).is_ok();
    boxed.does(&FileOp::Change { changes: vec![wish("a", same(b"old"), 3)] }, b"new", true).unwrap();
    assert_eq!(std::fs::metadata(boxed.at("a")).unwrap().mode() & 0o7777, 0o750);
    assert_eq!(std::fs::read_to_string(boxed.at("other")).unwrap(), "old");
    if kept {
        let mut value = [0; 16];
        let file = File::open(boxed.at("a")).unwrap();
        let length = rustix::fs::fgetxattr(&file, "user.note", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"kept");
    }
}

/// W3: each printed name is taken back, whatever bytes it has.
#[test]
fn w3_every_name_that_is_printed_is_taken() {
    let boxed = Ground::new();
    for bytes in [
        &b"..foo"[..],
        b"\xff\xfe",
        b"new\nline",
        b" lead",
        b"\"quoted\"",
        b"back\\slash",
        "\u{202e}rtl".as_bytes(),
    ] {
        std::fs::write(boxed.at("").join(OsString::from_vec(bytes.to_vec())), "needle\n").unwrap();
    }
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (list, _) = boxed.does(&FileOp::List { path: ".".to_owned(), limit: 99 }, b"", true).unwrap();
    let glob = FileOp::Glob { pattern: "*".to_owned(), path: ".".to_owned(), limit: 99, ignored: false };
    let (glob, _) = boxed.does(&glob, b"", true).unwrap();
    let search =
        FileOp::Search { pattern: "needle".to_owned(), path: ".".to_owned(), limit: 99, ignored: false };
    let (search, _) = boxed.does(&search, b"", true).unwrap();
    let listed: Vec<String> = list["entries"].as_array().unwrap().iter().map(|e| text(&e["name"])).collect();
    let globbed: Vec<String> = glob["paths"].as_array().unwrap().iter().map(text).collect();
    let found: Vec<String> = search["matches"].as_array().unwrap().iter().map(|m| text(&m["path"])).collect();
    assert_eq!(listed.len(), 7);
    assert_eq!((&globbed, &found), (&listed, &listed));
    for path in listed {
        let (_, bytes) =
            boxed.does(&FileOp::Read { path: path.clone(), offset: 0, limit: 9 }, b"", true).unwrap();
        assert_eq!(bytes, b"needle\n", "{path}");
    }
}

#[test]
fn glob_and_search_leave_out_what_is_ignored_unless_asked_and_count_it() {
    let boxed = Ground::new();
    for folder in ["src/gen", "target", ".git"] {
        std::fs::create_dir_all(boxed.at(folder)).unwrap();
    }
    for (name, content) in [
        (".gitignore", "target/\n*.log\n"),
        ("src/.gitignore", "gen/*\n!gen/keep.rs\n"),
        ("src/a.rs", "needle\n"),
        ("src/gen/x.rs", "needle\n"),
        ("src/gen/keep.rs", "needle\n"),
        ("target/t.rs", "needle\n"),
        ("b.log", "needle\n"),
        (".git/c.rs", "needle\n"),
        ("bin.rs", "needle\0\n"),
    ] {
        std::fs::write(boxed.at(name), content).unwrap();
    }
    let glob = |pattern: &str, path: &str, ignored| {
        let op = FileOp::Glob { pattern: pattern.to_owned(), path: path.to_owned(), limit: 2, ignored };
        boxed.does(&op, b"", true).unwrap().0.to_string()
    };
    assert_eq!(
        glob("*.rs", ".", false),
        r#"{"paths":["bin.rs","src/a.rs"],"more":1,"ignored":3,"cut":false}"#
    );
    assert_eq!(
        glob("src/**/*.rs", ".", false),
        r#"{"paths":["src/a.rs","src/gen/keep.rs"],"more":0,"ignored":3,"cut":false}"#
    );
    assert_eq!(glob("*.{log,none}", ".", true), r#"{"paths":["b.log"],"more":0,"ignored":0,"cut":false}"#);
    assert_eq!(glob("g*", "src", false), r#"{"paths":["src/gen/"],"more":0,"ignored":1,"cut":false}"#);
    let search = |path: &str, ignored| {
        let op = FileOp::Search { pattern: "needle".to_owned(), path: path.to_owned(), limit: 99, ignored };
        let (found, _) = boxed.does(&op, b"", true).unwrap();
        let rows: Vec<String> = found["matches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m["path"].as_str().unwrap().to_owned())
            .collect();
        rows.join(" ")
    };
    assert_eq!(search(".", false), "src/a.rs src/gen/keep.rs");
    assert_eq!(search("src", false), "src/a.rs src/gen/keep.rs");
    assert_eq!(search(".", true), "b.log src/a.rs src/gen/keep.rs src/gen/x.rs target/t.rs");
    assert_eq!(search("target", false), "target/t.rs");
}
