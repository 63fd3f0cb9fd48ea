//! Ends that nobody asked for: a part of the sandbox dies, the executor aborts, the terminal goes away, the disk is
//! full. Nothing of ours is left, the record ends in a true state, and other runs are unharmed.

use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::{Value, json};
use testkit::Script;

use crate::Who;
use crate::place::{Place, Ran, finish, ran, sh};
use crate::process::{
    Process, Started, assert_nothing_left, begun, children, cmdline, groups, started, until, wait_until_gone,
};

const SLEEPER: &str = "setsid sleep 1000 & touch ready; sleep 1000";

/// Another run of the same data folder, which must not notice anything.
struct Neighbour(Started);

impl Neighbour {
    fn new(place: &Place) -> Neighbour {
        let line = "touch ready; while [ ! -e over ]; do sleep 0.02; done; echo unharmed";
        // No time of its own ends it while others are slow.
        place.write("neighbour.toml", "[call]\ntimeout = \"1h\"\n[limits]\nwall = \"1h\"\n");
        let options = ["--config", "neighbour.toml"];
        Neighbour(started(place, &mut place.exec_command(&options, &["sh", "-c", line])))
    }

    #[track_caller]
    fn assert_unharmed(self, place: &Place) {
        fs::write(place.path("data/runs").join(&place.ids()[0]).join("workspace/over"), "").unwrap();
        let ran = self.0.ended();
        assert_eq!((ran.code, ran.out.as_str()), (Some(0), "unharmed\n"), "{ran:?}");
    }
}

fn kill(process: Process) {
    kill_process(Pid::from_raw(process.id.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

/// A Guild's run in the middle of a call.
fn calling(place: &Place) -> Started {
    place.guild(&["run_shell", "finish"]);
    let model = Box::leak(Box::new(Script::new([sh(SLEEPER), finish()]).start()));
    let mut command = place.run_command(&model.base_url());
    if place.tier != "microvm" {
        return started(place, &mut command);
    }
    // What a machine's guest does is not seen outside.
    let program = begun(&mut command);
    until("the call began", || {
        let lines = place.ids().last().map(|_| fs::read_to_string(place.newest().join("events.jsonl")));
        lines.is_some_and(|lines| lines.is_ok_and(|text| text.contains("\"tool_start\"")))
    });
    program
}

/// The part that was killed is missed: the call is lost, the run ends, nothing hangs or stays.
#[track_caller]
fn assert_lost(place: &Place, program: Started, part: Process) {
    let (forker, guests) = (program.forker, program.guests());
    kill(part);
    let ran = program.ended();
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(!ran.err.contains("panicked"), "{ran:?}");
    place.assert_whole("sandbox_error");
    let end = place.events_of("tool_end").pop().unwrap();
    assert_eq!(end["outcome"]["stopped_by"], "sandbox_lost", "{end}");
    wait_until_gone(forker, &guests);
}

/// The first process of a sandbox, or one of these words.
fn part(program: &Started, sign: &str) -> Process {
    let found = match sign {
        "" => children(program.forker.id).pop(),
        // In the tier confined the first one only waits for it.
        "init" => children(program.forker.id).pop().and_then(|first| children(first.id).pop()),
        _ => program.guests().into_iter().find(|p| p.lives() && cmdline(p.id).contains(sign)),
    };
    found.unwrap_or_else(|| panic!("no process with {sign:?}"))
}

/// `kill -9` of the first process of a sandbox, and of the sentry and the gofer of gVisor.
#[test]
fn a_killed_part_of_a_sandbox_ends_its_run_and_no_other() {
    for (tier, sign) in [
        ("namespace", ""),
        ("confined", ""),
        ("confined", "init"),
        ("gvisor", ""),
        ("gvisor", "\0boot\0"),
        ("gvisor", "\0gofer\0"),
    ] {
        let place = Place::new(tier, Who::Own);
        let neighbour = Neighbour::new(&place);
        let program = calling(&place);
        let dies = part(&program, sign);
        let forker = program.forker;
        assert_lost(&place, program, dies);
        assert_eq!(groups(forker), Vec::<std::path::PathBuf>::new(), "{tier} {sign:?}");
        neighbour.assert_unharmed(&place);
    }
}

/// A forker that was stopped costs a bounded wait: it is set going again, and clears up.
#[test]
fn a_stopped_forker_costs_a_bounded_wait_and_leaves_nothing() {
    let place = Place::new("namespace", Who::Own);
    let program = started(&place, &mut place.exec_command(&[], &["sh", "-c", SLEEPER]));
    let (forker, guests) = (program.forker, program.guests());
    kill_process(Pid::from_raw(forker.id.cast_signed()).unwrap(), Signal::STOP).unwrap();
    program.signal(Signal::INT);
    let ran = program.ended();
    assert_eq!(ran.code, Some(5), "{ran:?}");
    place.assert_whole("cancelled");
    assert_nothing_left(forker, &guests);
}

/// `kill -9` of the monitor of a machine.
#[test]
fn a_killed_machine_ends_its_run() {
    let place = Place::new("microvm", Who::Own);
    let program = calling(&place);
    let dies = part(&program, "qemu-system");
    assert_lost(&place, program, dies);
    assert_eq!(fs::read_dir(place.path("home")).unwrap().count(), 0, "no image is left");
}

/// Folders of machines in this user's usual cache.
fn machines() -> Vec<PathBuf> {
    let id = rustix::process::geteuid();
    let top = match id.is_root() {
        true => PathBuf::from("/var/cache/oubliette"),
        false => {
            let accounts = fs::read_to_string("/etc/passwd").unwrap();
            let own = accounts.lines().map(|l| l.split(':').collect::<Vec<_>>());
            let home = own.into_iter().find(|f| f[2] == id.as_raw().to_string()).unwrap()[5].to_owned();
            PathBuf::from(home).join(".cache/oubliette")
        }
    };
    let all = fs::read_dir(top.join("machine")).into_iter().flatten().flatten().map(|e| e.path());
    all.filter(|path| path.file_name().unwrap().as_bytes().starts_with(b"run-")).collect()
}

/// The one that holds this text where secrets are handed in.
fn holding(secret: &str) -> Option<PathBuf> {
    machines().into_iter().find(|folder| holds(folder, secret))
}

fn holds(folder: &Path, secret: &str) -> bool {
    let Ok(drive) = fs::File::open(folder.join("exchange")) else { return false };
    let mut head = Vec::new();
    drive.take(64 << 10).read_to_end(&mut head).unwrap();
    head.windows(secret.len()).any(|part| part == secret.as_bytes())
}

/// A machine that is given a secret, and its folder while the secret is in it.
fn given(place: &Place, secret: &str) -> (Started, PathBuf) {
    place.write("oubliette.toml", "[secrets]\npass = [\"TEST_SECRET\"]\n");
    let mut command = place.exec_command(&[], &["sleep", "1000"]);
    let program = begun(command.env("TEST_SECRET", secret));
    until("the secret is on its way", || holding(secret).is_some());
    let folder = holding(secret).unwrap();
    (program, folder)
}

/// `kill -9` of an executor while the secrets and the workspace of its machine lie on the disk: its forker removes them.
#[test]
fn a_killed_executor_leaves_no_secret_in_the_cache() {
    let place = Place::new("microvm", Who::Own);
    let secret = format!("secret of {}", place.path("").display());
    let (program, folder) = given(&place, &secret);
    let (forker, guests) = (program.forker, program.guests());
    assert!(folder.join("work").exists());
    program.signal(Signal::KILL);
    program.output();
    wait_until_gone(forker, &guests);
    assert!(!folder.exists(), "{}", folder.display());
    assert_eq!(holding(&secret), None);
}

/// Where the forker is killed, too, the secrets are gone by then: the machine overwrote them. The rest is cleared up.
#[test]
fn what_was_handed_into_a_machine_is_gone_once_it_runs_and_the_rest_is_cleared_up() {
    let place = Place::new("microvm", Who::Own);
    let secret = format!("secret of {}", place.path("").display());
    let (program, folder) = given(&place, &secret);
    until("the machine read it", || !holds(&folder, &secret));
    assert!(folder.join("exchange").exists());
    let (forker, guests) = (program.forker, program.guests());
    kill(forker);
    program.signal(Signal::KILL);
    program.output();
    wait_until_gone(forker, &guests);
    assert_eq!(place.ran(["runs", "gc"]).code, Some(0));
    assert!(!folder.exists(), "{}", folder.display());
}

/// `kill -9` of the forker: its sandboxes die with it, and the groups it could not remove go at the next start.
#[test]
fn a_killed_forker_ends_its_run_and_no_other() {
    for tier in ["namespace", "confined", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        let neighbour = Neighbour::new(&place);
        let program = calling(&place);
        let forker = program.forker;
        assert_lost(&place, program, forker);
        for group in groups(forker) {
            // A young group might be one that is about to be entered: make these old.
            let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
            // A neighbour's start may have removed it by now.
            if let Ok(folder) = fs::File::open(group) {
                folder.set_modified(old).unwrap();
            }
        }
        assert_eq!(place.ran(["runs", "gc"]).code, Some(0));
        assert_eq!(groups(forker), Vec::<std::path::PathBuf>::new(), "{tier}");
        neighbour.assert_unharmed(&place);
    }
}

/// An executor that breaks off in its own code (here: no memory is left to it) leaves what a killed one leaves.
#[test]
fn an_executor_that_aborts_leaves_nothing_and_its_run_is_told_as_interrupted() {
    for tier in ["namespace", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        place.write("oubliette.toml", "[call]\noutput = \"256MiB\"\n");
        let neighbour = Neighbour::new(&place);
        let line = "touch ready; while [ ! -e go ]; do sleep 0.02; done; exec tr '\\0' x < /dev/zero";
        let program = started(&place, &mut place.exec_command(&[], &["sh", "-c", line]));
        let (forker, guests) = (program.forker, program.guests());
        let little = Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
        prlimit(Pid::from_raw(program.id().cast_signed()), Resource::As, little).unwrap();
        fs::write(place.newest().join("workspace/go"), "").unwrap();
        let output = program.output();
        assert_eq!(output.status.signal(), Some(6), "{output:?}");
        assert_nothing_left(forker, &guests);
        neighbour.assert_unharmed(&place);
        let listed = place.ran(["runs", "list", "--json"]).json();
        assert_eq!(listed["runs"][1]["standing"], "incomplete");
        assert_eq!(place.ran(["runs", "gc"]).code, Some(0));
        place.assert_whole("interrupted");
    }
}

/// A terminal that goes away is an orderly end, unless the program was told to outlive it.
#[test]
fn sighup_is_an_orderly_end_unless_it_is_ignored() {
    let place = Place::quick();
    let program = started(&place, &mut place.exec_command(&[], &["sh", "-c", SLEEPER]));
    let (forker, guests) = (program.forker, program.guests());
    program.signal(Signal::HUP);
    assert_eq!(program.ended().code, Some(5));
    place.assert_whole("cancelled");
    assert_nothing_left(forker, &guests);

    let binary = place.bin().join("oubliette").display().to_string();
    let script = format!(
        "trap '' HUP; exec {binary} exec --data data --tier namespace --floor namespace -- sh -c \"$1\""
    );
    let waits = "touch ready; while [ ! -e go ]; do sleep 0.02; done; echo outlived";
    let program = started(&place, place.command("sh".as_ref()).args(["-c", &script, "sh", waits]));
    program.signal(Signal::HUP);
    fs::write(place.newest().join("workspace/go"), "").unwrap();
    assert_eq!(program.ended().out, "outlived\n");
    place.assert_whole("finished");
}

/// The second Ctrl-C ends at once, also while results are collected; the run is told as interrupted, and can go on.
#[test]
fn a_second_ctrl_c_does_not_wait_for_the_results() {
    let place = Place::quick();
    place.guild(&["run_shell", "finish"]);
    // Holes cost nothing to make, and a long time to compare.
    let model =
        Script::new([sh("truncate -s 1000M big1 big2; echo kept > small; touch ready"), finish()]).start();
    let program = started(&place, &mut place.run_command(&model.base_url()));
    let (forker, guests) = (program.forker, program.guests());
    until("the sandbox is gone and its results are looked at", || {
        guests.iter().all(|guest| !guest.lives()) && model.left() == 0
    });
    // Two that come at the same moment count as one.
    until("it ended", || {
        program.signal(Signal::INT);
        program.has_ended()
    });
    let ran = program.ended();
    // With its results it would have ended as finished or cancelled, and have told them.
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert_nothing_left(forker, &guests);
    assert!(!place.newest().join("result.json").exists());
    assert_eq!(place.ran(["runs", "gc"]).code, Some(0));
    place.assert_whole("interrupted");
    for big in ["big1", "big2"] {
        fs::remove_file(place.newest().join("workspace").join(big)).unwrap();
    }
    let id = place.ids().pop().unwrap();
    let url = model.base_url();
    let tier = ["--tier", "namespace", "--floor", "namespace"];
    let fixed = ["runs", "resume", &id, "--model-url", &url, "--data", "data", "--json"];
    let ran = place.ran(fixed.into_iter().chain(tier));
    assert_eq!((ran.code, &ran.json()["changes"]["added"]), (Some(0), &json!(["ready", "small"])), "{ran:?}");
    place.assert_whole("finished");
}

/// A data folder of so many KiB, in a mount namespace of its own; then more room, and whatever reads it.
fn full(place: &Place, kib: u32, command: &std::process::Command) -> (Ran, Value) {
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap().replace('\'', "'\\''")))
        .collect();
    let program = place.bin().join("oubliette").display().to_string();
    let script = format!(
        "mount -t tmpfs -o size={kib}k,mode=755 none data && {{ head -c 6000 /dev/zero | {words}; }} >out 2>err; echo $? >code
         mount -o remount,size=64m data
         {program} runs list --json >listed; echo $? >>code
         {program} runs gc --json >cleared; echo $? >>code
         for run in $(ls data/runs 2>/dev/null); do {program} runs verify $run; done >verified; echo $? >>code
         {program} runs list --json >after; find data -name '.*tmp' >left; umount data",
        words = words.join(" "),
    );
    let mut around = place.command("unshare".as_ref());
    around.args(["--mount", "--propagation", "private"]);
    if !rustix::process::geteuid().is_root() {
        around.args(["--user", "--map-root-user"]);
    }
    let outside = ran(around.args(["sh", "-c", &script]));
    assert_eq!(outside.code, Some(0), "{kib} KiB: {outside:?}");
    let codes: Vec<i32> = place.read("code").split_whitespace().map(|c| c.parse().unwrap()).collect();
    assert_eq!(codes[1..], [0, 0, 0], "{kib} KiB: {} {}", place.read("cleared"), place.read("verified"));
    assert_eq!(place.read("left"), "", "{kib} KiB");
    let ran = Ran { code: Some(codes[0]), out: place.read("out"), err: place.read("err") };
    let listed: Value = serde_json::from_str(&place.read("listed")).unwrap();
    assert!(listed["notes"].as_array().unwrap().is_empty(), "{kib} KiB: {listed}");
    (ran, listed)
}

/// The data folder is full at any point, from the first file to the last: exit 5 and a clear word, a state that is
/// read and cleared up, and success as soon as there is room for all of it.
#[test]
fn a_full_data_folder_is_told_at_every_point() {
    full_at_every_point("namespace");
}

/// The same where a sandbox itself needs a folder there.
#[test]
fn a_full_data_folder_is_told_at_every_point_on_confined() {
    full_at_every_point("confined");
}

fn full_at_every_point(tier: &'static str) {
    let guest = "head -c 9000 /dev/zero > binary; seq 3000 > text; seq 20000";
    for guild in [false, true] {
        let (mut full_at, mut fits) = (0, false);
        for kib in (4..).step_by(4) {
            let place = Place::new(tier, Who::Own);
            fs::create_dir_all(place.path("data")).unwrap();
            place.write("source/old", "x\n".repeat(2000));
            place.guild(&["run_shell", "finish"]);
            let model = Script::new([sh(guest), finish()]).start();
            let command = if guild {
                place.run_command(&model.base_url())
            } else {
                place.exec_command(&["-i", "--workspace", "source"], &["sh", "-c", guest])
            };
            let (ran, listed) = full(&place, kib, &command);
            assert!(!ran.err.contains("panicked"), "{kib} KiB: {ran:?}");
            assert!(kib < 1000, "it never fits: {ran:?}");
            match ran.code {
                Some(0) => {
                    assert_eq!(listed["runs"][0]["standing"], "whole", "{kib} KiB: {listed}");
                    fits = true;
                    break;
                }
                code => {
                    full_at += 1;
                    assert_eq!(code, Some(5), "{kib} KiB: {ran:?}");
                    let said = ran.err.contains("space") || ran.out.contains("space");
                    assert!(said, "{kib} KiB: {ran:?}");
                }
            }
        }
        assert!(fits && full_at > 10, "{full_at}");
    }
}
