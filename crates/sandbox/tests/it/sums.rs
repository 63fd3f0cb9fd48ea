//! Bounds on sums: what many files, many processes and many calls take together. Bombs are bounded.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use policy::StoppedBy;
use sandbox::{Call, CallBounds, Cancel, Ended, FileOp};

use crate::inside::{LONG, left_running};
use crate::{Inside, on_every_tier, shell};

const MIB: u64 = 1 << 20;

/// Bytes and entries of a tree, as the disk has them.
fn taken(folder: &Path) -> (u64, u64) {
    let (mut bytes, mut files) = (0, 0);
    let Ok(dir) = std::fs::read_dir(folder) else { return (0, 0) };
    for entry in dir.flatten() {
        let Ok(meta) = std::fs::symlink_metadata(entry.path()) else { continue };
        (bytes, files) = (bytes + meta.blocks() * 512, files + 1);
        if meta.is_dir() {
            let inner = taken(&entry.path());
            (bytes, files) = (bytes + inner.0, files + inner.1);
        }
    }
    (bytes, files)
}

/// Names and lengths of what lies in a folder. Blocks are no measure of who wrote: a file system takes some for itself
/// when it writes out.
fn contents(folder: &Path) -> BTreeMap<std::ffi::OsString, u64> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name(), entry.metadata().unwrap().len())).collect()
}

/// Small files without end, each within what one file may have; bounded by 4 GiB.
const FILL: &str = "b=bytes(range(256))*4096
for i in range(4096):
    with open('f%d'%i,'wb') as f: f.write(b)
print('all')";

fn call(line: &str, cpu: Option<Duration>) -> Call {
    let bounds = CallBounds { cpu, ..CallBounds::default() };
    Call { job: shell(line), stdin: Vec::new(), timeout: LONG, output: 1 << 20, bounds }
}

/// Runs a bomb, which lives until it is struck, and says what it was stopped by and how far beyond its bound it came.
#[expect(clippy::print_stderr, reason = "how far beyond is read by who runs it, not judged")]
fn strike(inside: &Inside, program: &str, bound: u64) {
    let ran = inside.python(program);
    let (bytes, files) = taken(&inside.workspace());
    eprintln!("{}: {} MiB and {files} files, bound {} MiB", inside.tier, bytes / MIB, bound / MIB);
    assert_eq!(ran.outcome.stopped_by, StoppedBy::Disk, "{:?} {}", ran.outcome, ran.err);
    assert!(!ran.out.contains("all"));
}

on_every_tier! {
    fn r38_many_files_together_are_held_and_told_as_disk(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.disk = 64 * MIB);
        strike(inside, FILL, 64 * MIB);
        // What is written between two looks, on a machine that does other things as well.
        assert!(taken(&inside.workspace()).0 < 1024 * MIB);
    }

    fn r38_many_empty_files_are_held_and_told_as_disk(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.files = 500);
        let many = "import os\nfor i in range(2000000): os.close(os.open('f%d'%i,os.O_CREAT|os.O_WRONLY))\nprint('all')";
        strike(inside, many, 0);
    }

    fn files_without_a_name_count_while_they_are_held(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.disk = 64 * MIB);
        let hold = "import os,time
b=bytes(range(256))*4096
held=[]
for i in range(200):
    f=open('f','wb'); os.unlink('f'); held.append(f)
    for _ in range(10): f.write(b)
    f.flush(); time.sleep(0.02)
time.sleep(1000)
print('all')";
        strike(inside, hold, 64 * MIB);
        let after = inside.sh("echo x > small; cat small");
        assert_eq!((after.out.as_str(), after.outcome.ended), ("x\n", Ended::Exit(0)));
    }

    fn what_is_mapped_of_a_file_without_a_name_counts(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.disk = 64 * MIB);
        strike(inside, &maps(""), 64 * MIB);
    }

    /// One file may have all there is; the shell reports a child that was killed for more.
    fn a_file_that_fills_everything_is_told_as_disk_where_a_shell_survives_it(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.disk = 16 * MIB);
        let ran = inside.sh("cat /dev/zero > big; exit 9");
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Disk, "{:?} {}", ran.outcome, ran.err);
    }

    /// Its first thread has ended, and with it the list that is looked at first.
    fn what_a_thread_holds_counts_when_the_first_one_has_ended(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.disk = 64 * MIB);
        let hold = "import ctypes,os,threading,time
def hold():
    time.sleep(.3); held=[]; b=bytes(range(256))*4096
    for i in range(25):
        f=open('f','wb'); os.unlink('f'); held.append(f)
        for _ in range(10): f.write(b)
        f.flush(); time.sleep(0.02)
    time.sleep(1000)
    print('all'); os._exit(0)
threading.Thread(target=hold).start()
ctypes.CDLL(None).syscall(60,0)";
        strike(inside, hold, 64 * MIB);
    }

    /// A name of one mapping that is no text does not hide the others.
    fn a_mapping_with_an_odd_name_hides_no_other(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.disk = 64 * MIB);
        let odd = "fd=os.open(b'odd\\xff',os.O_CREAT|os.O_RDWR); os.write(fd,bytes(4096)); held.append(mmap.mmap(fd,4096))";
        strike(inside, &maps(odd), 64 * MIB);
    }

    /// They take no bytes, but a place in a folder each, and time of whoever looks.
    fn every_hard_link_is_a_file(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.files = 500);
        let many = "import os
open('f','w').close()
for i in range(60000): os.link('f','g%d'%i)
import time; time.sleep(1000)
print('all')";
        strike(inside, many, 0);
    }

    /// OC-25.1 and OC-25.2: what was full goes on, output is told, and what is taken away makes room.
    fn a_full_workspace_can_be_looked_at_and_made_room_in(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.disk = 64 * MIB);
        let first = inside.sh("dd if=/dev/zero of=big bs=1M count=256 2>/dev/null; true");
        assert!(matches!(first.outcome.stopped_by, StoppedBy::Exit | StoppedBy::Disk), "{:?}", first.outcome);
        let alive = inside.sh("echo still-here");
        assert_eq!((alive.out.as_str(), alive.outcome.stopped_by), ("still-here\n", StoppedBy::Exit));
        strike_again(inside);
        let freed = inside.sh("rm -rf big f[0-9]* && echo freed");
        assert_eq!((freed.out.as_str(), freed.outcome.stopped_by), ("freed\n", StoppedBy::Exit));
        let room = inside.sh("head -c 10m /dev/zero > again && wc -c < again");
        assert_eq!((room.out.trim(), room.outcome.stopped_by), ("10485760", StoppedBy::Exit), "{}", room.err);
    }

    /// The file system goes on taking blocks for lists of what was written; nobody is struck for those.
    fn what_the_file_system_takes_later_for_itself_strikes_nobody(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.disk = 32 * MIB);
        let scattered = "import os
for name in 'f','g':
    fd=os.open(name,os.O_CREAT|os.O_WRONLY)
    for i in range(4000): os.pwrite(fd,bytes([1])*4096,i*8192)
open('h','wb').write(bytes([1])*786432)
print('all')";
        let ran = inside.python(scattered);
        assert_eq!((ran.out.as_str(), ran.outcome.stopped_by), ("all\n", StoppedBy::Exit), "{:?}", ran.outcome);
        let (before, _) = taken(&inside.workspace());
        for name in ["f", "g", "h"] {
            std::fs::File::open(inside.workspace().join(name)).unwrap().sync_all().unwrap();
        }
        let (after, _) = taken(&inside.workspace());
        assert!(after >= before && after >= 32 * MIB, "{before} {after}");
        let looked = inside.sh("sleep 1; echo here");
        assert_eq!((looked.out.as_str(), looked.outcome.stopped_by), ("here\n", StoppedBy::Exit));
    }

    fn a_tool_for_files_finds_no_room_in_a_full_workspace(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.disk = 16 * MIB);
        strike(inside, FILL, 16 * MIB);
        let wrote = inside.file(FileOp::Write { path: "note".to_owned() }, &[b'x'; 100_000]);
        assert!(wrote.out.contains("\"kind\":\"disk\""), "{} {:?}", wrote.out, wrote.outcome);
        let read = inside.file(FileOp::Read { path: "f0".to_owned(), offset: 0, limit: 3 }, b"");
        assert!(read.out.starts_with("{\"ok\""), "{}", read.out);
        inside.sh("rm -f f[0-9]*");
        let wrote = inside.file(FileOp::Write { path: "note".to_owned() }, &[b'x'; 100_000]);
        assert!(wrote.out.starts_with("{\"ok\""), "{} {:?}", wrote.out, wrote.outcome);
        assert_eq!(std::fs::read_dir(inside.workspace()).unwrap().count(), 1);
    }

    /// What lives on beside its call takes no place that the next one needs, and that one is told for nothing.
    /// Where no cgroup counts them, all that this user runs meanwhile takes places too; see `scripts/test`.
    fn r39_what_takes_every_place_makes_room_for_the_next_call(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.processes = 16);
        let left = inside.sh("for i in $(seq 15); do sleep 1000 >/dev/null 2>&1 </dev/null & done; exit 0");
        assert!(left.outcome.background > 10, "{:?} {}", left.outcome, left.err);
        let next = inside.sh("echo works; exit 7");
        assert_eq!((next.out.as_str(), next.outcome.ended), ("works\n", Ended::Exit(7)), "{:?}", next.outcome);
        assert_eq!(next.outcome.stopped_by, StoppedBy::Exit);
        assert_eq!(next.outcome.leftovers, Some(StoppedBy::Processes));
        let after = inside.sh("exit 7");
        assert_eq!((after.outcome.leftovers, after.outcome.stopped_by), (None, StoppedBy::Exit));
    }

    /// The record must not tell a call for what another left behind.
    fn what_an_earlier_call_left_is_swept_away_before_a_call_is_struck_for_it(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.disk = 64 * MIB);
        let later = "exec python3 -c \"import time
for i in range(4096):
    open('g%d'%i,'wb').write(bytes(1<<20)); time.sleep(0.02)\"";
        let left = inside.sh(&left_running(later));
        assert_eq!((left.out.as_str(), left.outcome.stopped_by), ("left\n", StoppedBy::Exit));
        let innocent = inside.sh("cat p; echo done; exit 3");
        assert_eq!(innocent.outcome.stopped_by, StoppedBy::Exit, "{:?}", innocent.outcome);
        assert_eq!((innocent.out.as_str(), innocent.outcome.ended), ("done\n", Ended::Exit(3)));
        assert_eq!(innocent.outcome.leftovers, Some(StoppedBy::Disk));
        let before = contents(&inside.workspace());
        assert!(before.len() > 60, "{before:?}");
        assert_eq!(inside.sh("sleep 1").outcome.leftovers, None);
        assert_eq!(contents(&inside.workspace()), before);
    }

    fn holes_take_no_room(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.disk = 64 * MIB);
        let ran = inside.python("for i in range(20):\n    open('h%d'%i,'wb').truncate(60<<20)\nimport time; time.sleep(2); print('all')");
        assert_eq!((ran.out.as_str(), ran.outcome.stopped_by), ("all\n", StoppedBy::Exit), "{:?}", ran.outcome);
    }

    fn processor_time_of_many_processes_together_is_held(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.cpu = Duration::from_secs(3));
        // Each alone would be ended by a signal that the shell does not pass on: an exit, and no bound.
        let ran = inside.sh("for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait");
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Cpu, "{:?}", ran.outcome);
        let next = inside.sh("echo more");
        assert_eq!((next.out.as_str(), next.outcome.stopped_by), ("", StoppedBy::Cpu), "{:?}", next.outcome);
    }

    fn who_waits_for_a_processor_uses_none(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| {
            plan.limits.cpu = Duration::from_secs(10);
            plan.limits.cores = 1;
        });
        // 48 s if each counted for all the time that it is there.
        let ran = inside.sh("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (timeout 4 sh -c 'while :; do :; done') & done; wait; echo all");
        assert_eq!((ran.out.as_str(), ran.outcome.stopped_by), ("all\n", StoppedBy::Exit), "{:?}", ran.outcome);
    }

    /// They are one process, whose limit of its own must not count that either.
    fn threads_that_wait_for_a_processor_use_none(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| {
            plan.limits.cpu = Duration::from_secs(10);
            plan.limits.cores = 1;
        });
        // 96 s if each counted for all the time that it is there.
        let ran = inside.python(
            "import hashlib, threading, time
end = time.monotonic() + 4
def burn():
    b = bytes(1 << 20)
    while time.monotonic() < end: hashlib.sha256(b)
all = [threading.Thread(target=burn) for _ in range(24)]
for t in all: t.start()
for t in all: t.join()
print('all')",
        );
        assert_eq!((ran.out.as_str(), ran.outcome.stopped_by), ("all\n", StoppedBy::Exit), "{:?}", ran.outcome);
    }

    fn processor_time_of_the_dead_counts(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.cpu = Duration::from_secs(3));
        // Each burns a third of a second and is gone; bounded.
        let ran = inside.python(CHAIN);
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Cpu, "{:?} {}{}", ran.outcome, ran.out, ran.err);
    }

    fn processor_time_of_children_whose_end_is_ignored_counts(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.cpu = Duration::from_secs(3));
        let ran = inside.python(&format!("import signal; signal.signal(signal.SIGCHLD,signal.SIG_IGN)\n{CHAIN}"));
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Cpu, "{:?} {}{}", ran.outcome, ran.out, ran.err);
    }

    fn processor_time_of_one_call_is_bounded_and_the_next_has_its_own(inside: &Inside) {
        let (_give, cancel) = Cancel::new();
        let burn = "for i in 1 2 3 4; do (while :; do :; done) & done; wait";
        for _ in 0..2 {
            let ran = inside.call_with(&call(burn, Some(Duration::from_secs(1))), &cancel);
            assert_eq!(ran.outcome.stopped_by, StoppedBy::Cpu, "{:?}", ran.outcome);
        }
        assert_eq!(inside.sh("echo alive").out, "alive\n");
    }

    fn a_call_is_not_told_what_another_one_used(inside: &Inside) {
        let (_give, cancel) = Cancel::new();
        let (burns, rests) = (call("while :; do :; done", Some(Duration::from_secs(1))), call("sleep 4; echo rested", None));
        let (mut no, mut out) = (|_, _: &[u8]| {}, Vec::new());
        let mut keep = |_, piece: &[u8]| out.extend_from_slice(piece);
        let (burns, rests) = inside.block_on(async {
            tokio::join!(
                inside.running().run(&burns, &cancel, &mut no),
                inside.running().run(&rests, &cancel, &mut keep)
            )
        });
        assert_eq!(burns.unwrap().stopped_by, StoppedBy::Cpu);
        assert_eq!(rests.unwrap().stopped_by, StoppedBy::Exit);
        assert_eq!(String::from_utf8_lossy(&out), "rested\n");
    }

    fn open_files_are_bounded(inside: &Inside) {
        let ran = inside.python("import resource,os
held=[]
try:
    while len(held)<100000: held.append(os.open('/dev/null',os.O_RDONLY))
except OSError: pass
for fd in held[8:]: os.close(fd)
print(len(held)<=1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]<=4096)
try: resource.setrlimit(resource.RLIMIT_NOFILE,(9000,9000)); print('raised')
except (ValueError,OSError): print('held')");
        assert_eq!(ran.out, "True True\nheld\n", "{}", ran.err);
    }
}

/// Every connection of a grant takes some of the executor's; what it may have itself is nothing that a guest gets.
#[test]
fn the_executor_has_descriptors_for_all_connections_and_a_guest_has_not() {
    for tier in [policy::Tier::Namespace, policy::Tier::Gvisor] {
        let inside = Inside::new(tier);
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let own: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [soft, hard] = own[..] else { panic!("{line}") };
        assert!(soft >= hard.min(4096), "{line}");
        assert_eq!(inside.sh("ulimit -Sn; ulimit -Hn").out, "1024\n4096\n", "{tier}");
    }
}

/// What the kernel keeps for a process beside its memory, where the kernel is Linux itself.
#[test]
fn what_the_kernel_keeps_for_a_process_is_bounded_whatever_the_executor_may_have() {
    for tier in [policy::Tier::Confined, policy::Tier::Namespace] {
        let ran = Inside::new(tier).python(
            "import resource as r
for n in ('SIGPENDING','MSGQUEUE','NICE','RTPRIO','MEMLOCK','STACK'): print(n, r.getrlimit(getattr(r,'RLIMIT_'+n))[1])",
        );
        // The executor's own may be less.
        let most = [
            ("SIGPENDING", 1024),
            ("MSGQUEUE", 819_200),
            ("NICE", 0),
            ("RTPRIO", 0),
            ("MEMLOCK", 65_536),
            ("STACK", 64 << 20),
        ];
        for (line, (name, most)) in ran.out.lines().zip(most) {
            let held: i64 = line.strip_prefix(name).unwrap().trim().parse().unwrap();
            assert!((0..=most).contains(&held), "{tier}: {line}");
        }
        assert_eq!(ran.out.lines().count(), 6, "{}", ran.err);
    }
}

/// Others come first. A group does that by its weight, and leaves priorities alone.
#[test]
fn without_a_group_for_cores_a_guest_stands_behind_others_and_cannot_come_back() {
    for tier in [policy::Tier::Confined, policy::Tier::Namespace] {
        let inside = Inside::new(tier);
        let ran = inside.python(
            "import os
print(os.nice(0))
try: os.setpriority(os.PRIO_PROCESS,0,-1); print('raised')
except OSError: print('held')
try: open('/proc/self/autogroup','w').write('0'); print('raised')
except OSError: print('held')",
        );
        let nice = if inside.holds("cores") { "0" } else { "19" };
        assert_eq!(ran.out, format!("{nice}\nheld\nheld\n"), "{tier}: {}", ran.err);
    }
}

/// Where no cgroup counts, init adds up: who holds most is told, and nobody else.
#[test]
fn memory_that_an_earlier_call_left_held_is_not_told_of_a_later_one() {
    for tier in crate::TIERS {
        let inside = &Inside::with(tier, |plan| plan.limits.memory = 256 * MIB);
        if inside.holds("memory") {
            // The kernel chooses, by its own measure.
            continue;
        }
        // One process alone would meet a limit of its own: two together do not, whichever is first.
        let hold = "python3 -c \"import time
b=[]
for i in range(20): b.append(bytearray(8<<20)); time.sleep(0.02)
time.sleep(1000)\" &";
        let left = inside.sh(&left_running(&format!("{hold} {hold} wait")));
        assert_eq!(left.out, "left\n");
        let innocent = inside.sh("cat p; echo done");
        assert_eq!(
            (innocent.out.as_str(), innocent.outcome.stopped_by),
            ("done\n", StoppedBy::Exit),
            "{tier}"
        );
        assert_eq!(innocent.outcome.leftovers, Some(StoppedBy::Memory), "{tier} {:?}", innocent.outcome);
    }
}

/// Grows beyond every bound, or takes every place, as soon as there is a file `go`.
fn left(inside: &Inside, doing: &str) {
    let begun = inside.sh(&format!(
        "python3 -c \"import os,time
while not os.path.exists('go'): time.sleep(0.05)
{doing}\" </dev/null >/dev/null 2>&1 & echo $! > left"
    ));
    assert_eq!((begun.outcome.stopped_by, begun.outcome.background), (StoppedBy::Exit, 1), "{}", begun.err);
}

/// A later call that sees what was left go, without starting anything that would have to find room.
const SEES_IT_GO: &str = ": > go; read pid < left; while [ -d /proc/$pid ]; do :; done; echo gone";

/// The kernel's count does not say whose process it killed: that another's was is told of that other.
#[test]
fn a_kill_for_memory_of_what_an_earlier_call_left_is_not_told_of_a_later_one() {
    for tier in [policy::Tier::Confined, policy::Tier::Namespace] {
        for (code, end) in [(0, "exit 0"), (1, "exit 1")] {
            let inside = &Inside::with(tier, |plan| plan.limits.memory = 192 * MIB);
            left(inside, "b=[]\nwhile True: b.append(bytearray(8<<20)); time.sleep(0.01)");
            let later = inside.sh(&format!("{SEES_IT_GO}; {end}"));
            assert_eq!(later.out, "gone\n", "{tier} {:?} {}", later.outcome, later.err);
            let told = (later.outcome.ended, later.outcome.stopped_by);
            assert_eq!(told, (sandbox::Ended::Exit(code), StoppedBy::Exit), "{tier}");
            if inside.holds("memory") {
                assert_eq!(later.outcome.leftovers, Some(StoppedBy::Memory), "{tier} {end}");
            }
        }
    }
}

/// Somebody else being there does not take it from a call, where that other lost nobody.
#[test]
fn a_call_whose_child_was_killed_for_memory_is_told_so_beside_what_an_earlier_one_left() {
    for tier in [policy::Tier::Confined, policy::Tier::Namespace] {
        let inside = &Inside::with(tier, |plan| plan.limits.memory = 192 * MIB);
        if !inside.holds("memory") {
            continue;
        }
        left(inside, "pass");
        let ran = inside.sh("python3 -c 'b = bytearray(1 << 30)
for i in range(0, len(b), 4096): b[i] = 1'; exit 3");
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Memory, "{tier} {:?} {}", ran.outcome, ran.err);
        assert_eq!(ran.outcome.leftovers, None, "{tier}");
    }
}

#[test]
fn a_fork_refused_to_what_an_earlier_call_left_is_not_told_of_a_later_one() {
    for tier in [policy::Tier::Confined, policy::Tier::Namespace] {
        let inside = &Inside::with(tier, |plan| plan.limits.processes = 24);
        if !inside.holds("processes") {
            continue;
        }
        left(
            inside,
            "try:
    while True:
        if os.fork() == 0: time.sleep(600); os._exit(0)
except OSError: open('refused', 'w')
time.sleep(600)",
        );
        let later = inside.sh(": > go; while ! [ -e refused ]; do :; done; echo refused; exit 1");
        assert_eq!(later.out, "refused\n", "{tier} {:?} {}", later.outcome, later.err);
        assert_eq!(later.outcome.stopped_by, StoppedBy::Exit, "{tier} {:?}", later.outcome);
        // It still can be told of who wants more than there is.
        let own = Inside::with(tier, |plan| plan.limits.processes = 24);
        left(&own, "pass");
        let ran = own.sh("for i in $(seq 60); do sleep 20 & done; exit 3");
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Processes, "{tier} {:?} {}", ran.outcome, ran.err);
    }
}

/// Fills it once more and comes no further than it was, but for what no byte is needed for.
fn strike_again(inside: &Inside) {
    let (before, _) = taken(&inside.workspace());
    let ran = inside.sh("head -c 200m /dev/zero > f1; head -c 200m /dev/zero > f2; exit 1");
    let (after, _) = taken(&inside.workspace());
    assert!(after < before + MIB, "{before} {after} {:?}", ran.outcome);
}

/// Maps files that have no name any more, and writes into them, after this line; bounded by 320 MiB.
fn maps(first: &str) -> String {
    format!(
        "import os,mmap,time
held=[]
{first}
for i in range(40):
    fd=os.open('f',os.O_CREAT|os.O_RDWR); os.ftruncate(fd,8<<20)
    m=mmap.mmap(fd,8<<20); os.unlink('f'); os.close(fd); held.append(m)
    m.write(bytes(8<<20)); time.sleep(0.05)
time.sleep(1000)
print('all')"
    )
}

/// Forty children, one after the other.
const CHAIN: &str = "import os,time
for _ in range(40):
    p=os.fork()
    if p==0:
        s=time.process_time()
        while time.process_time()-s<0.33: pass
        os._exit(0)
    try: os.waitpid(p,0)
    except ChildProcessError: pass
print('all')";

/// Room that a guest took without filling it is its own doing, also where a run that goes on finds it there.
#[test]
fn what_a_guest_left_is_not_given_to_the_next_one() {
    let inside = Inside::new(policy::Tier::Namespace);
    let left = std::fs::File::create(inside.workspace().join("left")).unwrap();
    rustix::fs::fallocate(&left, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 32 * MIB)
        .expect("this test takes a file system under TMPDIR that has fallocate (ext4, xfs, btrfs, tmpfs)");
    assert!(taken(&inside.workspace()).0 >= 32 * MIB);
    let write = "import time
b=bytes(range(256))*4096
for i in range(60): open('f%d'%i,'wb').write(b); time.sleep(0.02)";
    for (given, then, stopped) in [(None, 1, StoppedBy::Exit), (Some(0), 1000, StoppedBy::Disk)] {
        let mut plan = crate::inside::plan(inside.tier, &inside.workspace());
        (plan.limits.disk, plan.given) = (64 * MIB, given);
        let again = inside.block_on(plan.ready(&inside.host)).unwrap().start();
        let call = call(&format!("python3 -c \"{write}\ntime.sleep({then})\""), None);
        let outcome = inside.block_on(again.run(&call, &Cancel::new().1, &mut |_, _| {})).unwrap();
        inside.block_on(again.destroy());
        assert_eq!(outcome.stopped_by, stopped, "{given:?}: {outcome:?}");
        for n in 0..60 {
            std::fs::remove_file(inside.workspace().join(format!("f{n}"))).ok();
        }
    }
}
