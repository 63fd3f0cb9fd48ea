//! A change is taken over whole or not at all, beneath its target and nowhere else, and exactly as it was collected.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::{Limits, StopReason};
use runs::{ApplyError, Delivery, Event, Mask, Preview, Record, RunId, Workspace};
use serde_json::json;
use testkit::Tree;

use crate::{chmod, is_root, write};

const NONE: [PathBuf; 0] = [];

/// A source, and a finished run on it.
struct Rig {
    dir: tempfile::TempDir,
    id: String,
}

impl Rig {
    /// A run that has made `change` of `source`, with a whole record and no sandbox.
    fn new(source: impl FnOnce(&Path), change: impl FnOnce(&Path)) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let id = RunId::new().unwrap();
        let rig = Rig { id: id.to_string(), dir };
        fs::create_dir(rig.target()).unwrap();
        source(&rig.target());
        fs::create_dir_all(rig.run()).unwrap();
        let meta = json!({ "folder": rig.target(), "started": "2020-01-01T00:00:00.000Z" });
        let meta = meta.as_object().unwrap().clone().into();
        let record = Record::begin(&rig.run(), &id, Mask::new([]), u64::MAX, meta).unwrap();
        let work = rig.run().join("workspace");
        let limits = Limits::default();
        let workspace =
            Workspace::import(Some(&rig.target()), &work, &rig.store(), &limits, None, &|_, _| true).unwrap();
        change(&work);
        let changes = workspace.collect(&limits, &mut |bytes| record.artifact(bytes)).unwrap();
        let counts = changes.summary.counts;
        let patch_sha256 = record.patch(&changes.patch).unwrap();
        let changes_artifact = (!changes.list.is_empty()).then(|| record.artifact(&changes.list).unwrap());
        record
            .append(&Event::Collect {
                added: counts.added,
                changed: counts.changed,
                deleted: counts.deleted,
                renamed: 0,
                refused: changes.summary.refused,
                artifacts: changes.artifacts,
                patch_sha256,
                changes_artifact,
                base_artifact: Some(record.artifact(&workspace.manifest()).unwrap()),
                took_us: 0,
            })
            .unwrap();
        let chain_head = record.end(StopReason::Finished, "", None).unwrap();
        record.result(&json!({ "chain_head": chain_head })).unwrap();
        rig
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("runs")
    }

    fn run(&self) -> PathBuf {
        self.store().join(&self.id)
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join("target")
    }

    fn open(&self) -> Result<Delivery, ApplyError> {
        Delivery::open(&self.store(), &self.id)
    }

    fn preview(&self) -> Result<Preview, ApplyError> {
        let delivery = self.open()?;
        let target = delivery.target(None)?;
        delivery.preview(&target, false)
    }

    fn apply_with(&self, progress: &dyn Fn(u64, u64) -> bool) -> Result<runs::Applied, ApplyError> {
        let delivery = self.open()?;
        let target = delivery.target(None)?;
        delivery.preview(&target, false)?;
        delivery.apply(&target, progress)
    }

    fn apply(&self) -> Result<runs::Applied, ApplyError> {
        self.apply_with(&|_, _| true)
    }

    fn tree(&self) -> Tree {
        Tree::of(&self.target()).unwrap()
    }

    /// Everything refused, and not a byte of the target changed.
    fn assert_refused(&self, word: &str) {
        let before = self.tree();
        let e = self.apply().unwrap_err().to_string();
        assert!(e.contains(word), "{e}");
        assert_eq!(before.differences(&self.tree()), NONE);
    }
}

fn every_kind_before(root: &Path) {
    write(root, "kept", "kept\n");
    write(root, "changed", "one\ntwo\n");
    write(root, "run.sh", "#!/bin/sh\n");
    write(root, "gone", "gone\n");
    write(root, "old/deep/a", "a\n");
    write(root, "old/deep/b", "b\n");
    write(root, "half/kept", "x\n");
    write(root, "half/gone", "x\n");
    write(root, "to-folder", "a file\n");
    write(root, "to-file/inner", "a folder\n");
    write(root, "from", "moved\n");
    write(root, "binary", b"\0\x01\x02");
    symlink("kept", root.join("link")).unwrap();
    symlink("kept", root.join("to-plain")).unwrap();
}

fn every_kind_after(root: &Path) {
    use std::os::unix::ffi::OsStrExt;
    write(root, "changed", "one\nthree\n");
    chmod(&root.join("run.sh"), 0o755);
    fs::remove_file(root.join("gone")).unwrap();
    fs::remove_dir_all(root.join("old")).unwrap();
    fs::remove_file(root.join("half/gone")).unwrap();
    fs::remove_file(root.join("to-folder")).unwrap();
    write(root, "to-folder/in/it", "now a folder\n");
    write(root, "to-folder/too", "now a folder\n");
    fs::remove_dir_all(root.join("to-file")).unwrap();
    write(root, "to-file", "now a file\n");
    fs::rename(root.join("from"), root.join("moved")).unwrap();
    write(root, "binary", b"\0\x03");
    fs::remove_file(root.join("link")).unwrap();
    symlink("changed", root.join("link")).unwrap();
    fs::remove_file(root.join("to-plain")).unwrap();
    write(root, "to-plain", "plain\n");
    write(root, "new/a/b", "new\n");
    write(root, "new/a/c", "new\n");
    write(root, "a b\n\"\u{e9}", "odd\n");
    write(root, std::ffi::OsStr::from_bytes(b"\xff\xfe"), "odd\n");
    write(root, "..foo", "odd\n");
    write(root, "-rf", "odd\n");
    write(root, "empty", "");
}

#[test]
fn what_a_run_has_made_of_every_kind_is_what_is_there_afterwards() {
    let rig = Rig::new(every_kind_before, every_kind_after);
    let preview = rig.preview().unwrap();
    assert!(!preview.already && preview.files.len() > 20, "{preview:?}");
    let applied = rig.apply().unwrap();
    assert!(!applied.already && applied.notes.is_empty(), "{applied:?}");
    let work = Tree::of(&rig.run().join("workspace")).unwrap();
    assert_eq!(work.differences(&rig.tree()), NONE);
    assert!(!rig.run().join("apply.json").exists());
    // A second time there is nothing to do.
    assert!(rig.preview().unwrap().already && rig.apply().unwrap().already);
}

/// The executor is gone at any point of it; whoever comes next finds one of two states, and nothing beside them.
#[test]
fn an_end_at_any_point_is_brought_to_wholly_before_or_wholly_after() {
    let (mut point, mut before, mut after) = (0, 0, 0);
    loop {
        let rig = Rig::new(every_kind_before, every_kind_after);
        let was = rig.tree();
        let all = Cell::new(0);
        let died = catch_unwind(AssertUnwindSafe(|| {
            rig.apply_with(&|_, _| {
                all.set(all.get() + 1);
                if all.get() > point {
                    std::panic::resume_unwind(Box::new("gone"));
                }
                true
            })
        }));
        if let Ok(applied) = died {
            applied.unwrap();
            break;
        }
        assert!(rig.run().join("apply.json").exists(), "{point}");
        if point % 2 == 0 {
            let cleared = runs::gc(&rig.store(), Duration::MAX, u64::MAX, false).unwrap();
            assert!(cleared.failed.is_empty() && cleared.notes.len() == 1, "{point}: {cleared:?}");
        } else {
            assert_eq!(rig.open().unwrap().recovered().len(), 1);
        }
        assert!(!rig.run().join("apply.json").exists(), "{point}");
        let is = rig.tree();
        if was.differences(&is).is_empty() {
            before += 1;
            rig.apply().unwrap();
        } else {
            after += 1;
        }
        let made = Tree::of(&rig.run().join("workspace")).unwrap();
        assert_eq!(made.differences(&rig.tree()), NONE, "{point}");
        point += 1;
    }
    assert!(before > 30 && after > 10, "{before} {after}");
}

/// The same where it is not the executor that ends but the user who wants no more.
#[test]
fn a_cancelled_apply_leaves_everything_as_it_was() {
    for point in (0..45).step_by(4) {
        let rig = Rig::new(every_kind_before, every_kind_after);
        let was = rig.tree();
        let seen = Cell::new(0);
        let done = rig.apply_with(&|_, _| {
            seen.set(seen.get() + 1);
            seen.get() <= point
        });
        if matches!(done, Err(ApplyError::Cancelled)) {
            assert_eq!(was.differences(&rig.tree()), NONE, "{point}");
        } else {
            done.unwrap();
        }
        assert!(!rig.run().join("apply.json").exists());
    }
}

#[test]
fn an_original_that_was_changed_meanwhile_is_refused_by_name() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 9] = [
        ("changed: it is another now", |t| write(t, "changed", "mine\n")),
        ("changed: it is gone", |t| fs::remove_file(t.join("changed")).unwrap()),
        ("gone: it is another now", |t| write(t, "gone", "mine\n")),
        ("new/a/b: there is something now", |t| write(t, "new/a/b", "mine\n")),
        ("empty: there is a folder now", |t| write(t, "empty/mine", "mine\n")),
        ("run.sh: it is another now", |t| chmod(&t.join("run.sh"), 0o755)),
        ("link: it is another now", |t| {
            fs::remove_file(t.join("link")).unwrap();
            symlink("gone", t.join("link")).unwrap();
        }),
        ("to-file: there is a folder now", |t| write(t, "to-file/mine", "mine\n")),
        ("new/a/b: what should be a folder above it is none", |t| write(t, "new", "mine\n")),
    ];
    for (word, change) in changes {
        let rig = Rig::new(every_kind_before, every_kind_after);
        change(&rig.target());
        rig.assert_refused(word);
    }
}

/// R13 for the host's own hand: a link that was put into the way is not gone through, whatever it leads to.
#[test]
fn r13_a_link_in_the_way_is_never_gone_through() {
    let rig = Rig::new(
        |root| write(root, "in/file", "old\n"),
        |root| {
            write(root, "in/file", "new\n");
            write(root, "in/made", "new\n");
        },
    );
    let outside = rig.dir.path().join("outside");
    write(&outside, "file", "old\n");
    fs::remove_dir_all(rig.target().join("in")).unwrap();
    symlink(&outside, rig.target().join("in")).unwrap();
    let before = Tree::of(&outside).unwrap();
    rig.assert_refused("what should be a folder above it is none, or a link");
    assert_eq!(before.differences(&Tree::of(&outside).unwrap()), NONE);
}

/// A folder of the target is exchanged for a link to a place outside while the change is taken over.
#[test]
fn r13_a_racing_swapper_in_the_target_wins_nothing() {
    let outcome = Cell::new((0, 0));
    for round in 0..40 {
        let rig = Rig::new(
            |root| write(root, "in/file", "old\n"),
            |root| {
                write(root, "in/file", "new\n");
                write(root, "in/made", "new\n");
            },
        );
        let outside = rig.dir.path().join("outside");
        write(&outside, "file", "old\n");
        let trap = rig.dir.path().join("trap");
        symlink(&outside, &trap).unwrap();
        let place = rig.target().join("in");
        let steps = Cell::new(0);
        let swap = || {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(rustix::fs::CWD, &place, rustix::fs::CWD, &trap, flags).unwrap();
        };
        // At a known step, so that every one of them is hit.
        let done = rig.apply_with(&|_, _| {
            steps.set(steps.get() + 1);
            if steps.get() == round {
                swap();
            }
            true
        });
        let (ok, refused) = outcome.get();
        outcome.set(if done.is_ok() { (ok + 1, refused) } else { (ok, refused + 1) });
        let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["file"], "{round}: {done:?}");
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "old\n", "{round}");
    }
    let (ok, refused) = outcome.get();
    assert!(ok > 0 && refused > 0, "{ok} {refused}");
}

/// What somebody writes in the very moment is not lost: it is seen behind the exchange, and all is taken back.
#[test]
fn what_is_written_to_the_original_in_the_moment_of_the_exchange_is_kept() {
    for point in 1..6 {
        let rig = Rig::new(|root| write(root, "file", "old\n"), |root| write(root, "file", "new\n"));
        let file = rig.target().join("file");
        let steps = Cell::new(0);
        let done = rig.apply_with(&|_, _| {
            steps.set(steps.get() + 1);
            if steps.get() == point && point <= 2 {
                fs::write(&file, "mine\n").unwrap();
            }
            true
        });
        if point <= 2 {
            assert!(matches!(done, Err(ApplyError::Changed { .. })), "{point}: {done:?}");
            assert_eq!(fs::read_to_string(&file).unwrap(), "mine\n");
        } else {
            done.unwrap();
        }
        assert_eq!(fs::read_dir(rig.target()).unwrap().count(), 1, "{point}");
    }
}

/// R33: what lies in the run's folder counts only where it is what was collected.
#[test]
fn r33_a_workspace_that_is_not_what_was_collected_is_not_taken() {
    type Change = fn(&Path);
    let changes: [Change; 4] = [
        |work| write(work, "a", "other\n"),
        |work| fs::remove_file(work.join("a")).unwrap(),
        |work| {
            fs::remove_file(work.join("a")).unwrap();
            symlink("/etc/passwd", work.join("a")).unwrap();
        },
        |work| {
            fs::remove_file(work.join("a")).unwrap();
            crate::fifo(&work.join("a"));
        },
    ];
    for change in changes {
        let rig = Rig::new(|_| (), |work| write(work, "a", "made\n"));
        change(&rig.run().join("workspace"));
        rig.assert_refused("not what was collected");
    }
}

#[test]
fn a_record_that_does_not_hold_gives_nothing() {
    let rig = Rig::new(|_| (), |work| write(work, "a", "made\n"));
    let lines = fs::read_to_string(rig.run().join("events.jsonl")).unwrap();
    fs::write(rig.run().join("events.jsonl"), lines.replacen("\"added\":1", "\"added\":2", 1)).unwrap();
    rig.assert_refused("[chain]");
}

/// What is new has the modes of new files; what was there keeps its own, but for whether it can be started. A setuid
/// bit that a guest sets is refused at collection, and is nowhere here.
#[test]
fn modes_are_kept_and_no_bit_of_power_comes_over() {
    let rig = Rig::new(
        |root| {
            write(root, "private", "x\n");
            chmod(&root.join("private"), 0o600);
            write(root, "tool", "x\n");
            chmod(&root.join("tool"), 0o640);
        },
        |work| {
            write(work, "private", "y\n");
            chmod(&work.join("tool"), 0o755);
            write(work, "suid", "y\n");
            chmod(&work.join("suid"), 0o4755);
            write(work, "wide", "y\n");
            chmod(&work.join("wide"), 0o777);
        },
    );
    rig.apply().unwrap();
    let mode = |name: &str| fs::metadata(rig.target().join(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("private"), 0o600);
    assert_eq!(mode("tool"), 0o750);
    assert_eq!(mode("wide") & 0o7022, 0, "{:o}", mode("wide"));
    assert!(!rig.target().join("suid").exists());
}

#[test]
fn what_root_takes_over_belongs_to_whom_it_belonged() {
    if !is_root() {
        // Only root can give files to others; for everybody else they are his own.
        return;
    }
    let rig = Rig::new(
        |root| {
            write(root, "file", "x\n");
            write(root, "in/file", "x\n");
            for name in ["", "file", "in"] {
                std::os::unix::fs::chown(root.join(name), Some(1234), Some(2345)).unwrap();
            }
        },
        |work| {
            for name in ["file", "in/file", "in/new", "made/deep/file"] {
                write(work, name, "y\n");
            }
        },
    );
    rig.apply().unwrap();
    let owner = |name: &str| {
        let meta = fs::symlink_metadata(rig.target().join(name)).unwrap();
        (meta.uid(), meta.gid())
    };
    for name in ["file", "in/new", "made", "made/deep", "made/deep/file"] {
        assert_eq!(owner(name), (1234, 2345), "{name}");
    }
    assert_eq!(owner("in/file"), (0, 0));
}

#[test]
fn another_folder_may_be_changed_and_the_runs_own_may_not() {
    let rig = Rig::new(|root| write(root, "a", "old\n"), |work| write(work, "a", "new\n"));
    let other = rig.dir.path().join("other");
    write(&other, "a", "old\n");
    write(&other, "more", "mine\n");
    let delivery = rig.open().unwrap();
    let target = delivery.target(Some(&other)).unwrap();
    delivery.preview(&target, false).unwrap();
    delivery.apply(&target, &|_, _| true).unwrap();
    assert_eq!(fs::read_to_string(other.join("a")).unwrap(), "new\n");
    assert_eq!(fs::read_to_string(rig.target().join("a")).unwrap(), "old\n");
    for inside in [rig.store(), rig.run(), rig.run().join("workspace"), rig.dir.path().join("nothing")] {
        assert!(matches!(delivery.target(Some(&inside)), Err(ApplyError::Where { .. })), "{inside:?}");
    }
}

/// R3: a repository's own files are never among what is taken, and what runs later is told.
#[test]
fn r3_hooks_are_not_taken_and_what_runs_later_is_told() {
    let rig = Rig::new(
        |root| write(root, ".git/config", "[core]\n"),
        |work| {
            write(work, ".git/hooks/post-checkout", "#!/bin/sh\n");
            chmod(&work.join(".git/hooks/post-checkout"), 0o755);
            write(work, ".envrc", "true\n");
            write(work, "shown", "a\x1b[2J\n");
        },
    );
    let preview = rig.preview().unwrap();
    let codes: Vec<&str> = preview.warnings.iter().map(|w| w.code).collect();
    assert_eq!(codes, ["shell", "terminal"]);
    assert!(preview.is_grave());
    assert!(preview.refused.iter().any(|what| what.starts_with(".git: ")), "{:?}", preview.refused);
    rig.apply().unwrap();
    assert!(!rig.target().join(".git/hooks").exists());
}

#[test]
fn an_archive_holds_exactly_what_was_collected_and_is_always_the_same() {
    let rig = Rig::new(every_kind_before, |work| {
        every_kind_after(work);
        write(work, ".git/hooks/x", "never\n");
        crate::fifo(&work.join("pipe"));
        write(work, format!("{}/{}", "d".repeat(150), "e".repeat(150)), "long\n");
    });
    let delivery = rig.open().unwrap();
    let mut tar = Vec::new();
    assert_eq!(delivery.tar(&mut tar).unwrap(), [""; 0]);
    let mut again = Vec::new();
    delivery.tar(&mut again).unwrap();
    assert!(tar == again);
    let into = rig.dir.path().join("into");
    fs::create_dir(&into).unwrap();
    unpack(&tar, &into);
    let work = rig.run().join("workspace");
    fs::remove_dir_all(work.join(".git")).unwrap();
    fs::remove_file(work.join("pipe")).unwrap();
    assert_eq!(Tree::of(&work).unwrap().differences(&Tree::of(&into).unwrap()), NONE);
    // What no longer has its content is left out, and said.
    write(&work, "kept", "other\n");
    assert_eq!(delivery.tar(&mut again).unwrap(), ["kept: left out, it is not what was collected"]);
}

#[expect(clippy::disallowed_methods, reason = "tar judges our archive; a product crate never starts it")]
fn unpack(archive: &[u8], into: &Path) {
    let file = into.with_extension("tar");
    fs::write(&file, archive).unwrap();
    let mut tar = std::process::Command::new("tar");
    let done = tar.args(["--no-same-owner", "-xpf"]).arg(&file).arg("-C").arg(into).output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn files_that_the_change_does_not_touch_count_unless_they_are_said_not_to() {
    let rig = Rig::new(every_kind_before, |work| write(work, "new", "x\n"));
    write(&rig.target(), "kept", "mine\n");
    write(&rig.target(), "beside", "new files of mine do not count\n");
    rig.assert_refused("--accept-drift");
    let delivery = rig.open().unwrap();
    let target = delivery.target(None).unwrap();
    delivery.preview(&target, true).unwrap();
    delivery.apply(&target, &|_, _| true).unwrap();
    assert_eq!(fs::read_to_string(rig.target().join("kept")).unwrap(), "mine\n");
    assert_eq!(fs::read_to_string(rig.target().join("new")).unwrap(), "x\n");
}

/// What the patch tells as a rename is one file less and one more where it is taken over.
#[test]
fn files_that_were_only_moved_are_taken_over() {
    let text = "1\n2\n3\n4\n5\n6\n7\n8\n";
    let rig = Rig::new(
        |root| {
            write(root, "same", text);
            write(root, "edited", "a\nb\nc\nd\ne\nf\ng\nh\n");
        },
        |root| {
            fs::create_dir(root.join("sub")).unwrap();
            fs::rename(root.join("same"), root.join("sub/same")).unwrap();
            fs::remove_file(root.join("edited")).unwrap();
            write(root, "other", "a\nb\nc\nd\ne\nf\ng\nX\n");
        },
    );
    rig.apply().unwrap();
    let work = Tree::of(&rig.run().join("workspace")).unwrap();
    assert_eq!(work.differences(&rig.tree()), NONE);
}

/// A folder of runs may come with a checkout or an archive: no journal in it makes anybody's file go.
#[test]
fn r13_a_journal_is_obeyed_only_where_its_target_says_that_one_began() {
    let rig = Rig::new(|root| write(root, "file", "old\n"), |root| write(root, "file", "new\n"));
    let victim = rig.dir.path().join("victim");
    write(&victim, "file", "mine\n");
    let number = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).unwrap();
    let before = Tree::of(&victim).unwrap();
    for phase in ["staging", "swapping", "done"] {
        for beside in ["file".to_owned(), format!(".oubliette-{}-0", rig.id)] {
            let id = number(&victim.join("file"));
            let step = json!({
                "path": "file", "beside": beside, "has_new": true, "old_inner": [], "new_inner": [],
                "old": (phase == "done").then_some(id), "new": id,
            });
            let journal = json!({
                "v": 1, "target": victim, "root": number(&victim), "phase": phase, "steps": [step],
            });
            write(&rig.run(), "apply.json", journal.to_string());
            let cleared = runs::gc(&rig.store(), Duration::MAX, u64::MAX, false).unwrap();
            assert!(!cleared.failed.is_empty() || !cleared.notes.is_empty(), "{cleared:?}");
            rig.open().ok();
            assert_eq!(before.differences(&Tree::of(&victim).unwrap()), NONE, "{phase} {beside}");
        }
    }
    // The last one was no journal's fault.
    assert!(!rig.run().join("apply.json").exists());
    rig.apply().unwrap();
}

/// The folder of the records is often beside the files: what a guest puts there is never taken for ours.
#[test]
fn r13_nothing_is_taken_over_into_the_folder_of_the_records() {
    let rig = Rig::new(
        |root| write(root, "kept", "x\n"),
        |root| write(root, "runs/00000000000000000000000000/apply.json", "{}"),
    );
    let delivery = rig.open().unwrap();
    let e = delivery.target(Some(rig.dir.path())).unwrap_err().to_string();
    assert!(e.contains("folder of the records"), "{e}");
    assert!(delivery.target(None).is_ok());
}
