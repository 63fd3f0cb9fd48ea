//! Ctrl-C, SIGTERM, kill -9: whatever ends the program, nothing of its sandboxes stays and the record tells.

use std::os::unix::process::ExitStatusExt;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::Signal;
use serde_json::json;
use testkit::Script;

use crate::place::{Place, finish, sh};
use crate::process::{assert_nothing_left, begun, cmdline, groups, mounts, started, until};
use crate::{Who, everywhere};

const SLEEPER: [&str; 3] = ["sh", "-c", "setsid sleep 1000 & touch ready; sleep 1000"];

everywhere! {
    /// R56: one sandbox for each execution, and nothing of it afterwards.
    fn r56_after_exec_nothing_is_left_and_nothing_is_shared(place: &Place) {
        let mut command = place.exec_command(&[], &["sh", "-c", "touch ready /tmp/left /dev/shm/left; sleep 0.3"]);
        let program = started(place, &mut command);
        let (forker, guests) = (program.forker, program.guests());
        assert_eq!(program.ended().code, Some(0));
        assert_nothing_left(forker, &guests);
        let folder = place.path("");
        let own = [folder.to_str().unwrap().trim_end_matches('/'), &format!("oubliette-{}-", forker.id)];
        assert_eq!(mounts(&own), Vec::<String>::new());
        let second = place.sh("ls -A /workspace /tmp /dev/shm | grep left");
        assert_eq!((second.code, second.out.as_str()), (Some(1), ""), "{second:?}");
    }

    /// Ctrl-C during `exec`: cancelled, recorded, nothing left.
    fn ctrl_c_ends_exec_with_a_whole_record(place: &Place) {
        let program = started(place, &mut place.exec_command(&[], &SLEEPER));
        let (forker, guests) = (program.forker, program.guests());
        program.signal(Signal::INT);
        let ran = program.ended();
        assert_eq!(ran.code, Some(5), "{ran:?}");
        place.assert_whole("cancelled");
        assert_eq!(place.events_of("tool_end")[0]["outcome"]["stopped_by"], "cancelled");
        assert_nothing_left(forker, &guests);
    }

    /// R56, W5: kill -9 of the executor: the forker ends everything; the record is incomplete and says so.
    fn r56_nothing_survives_a_kill_of_the_executor(place: &Place) {
        let program = started(place, &mut place.exec_command(&[], &SLEEPER));
        let (forker, guests) = (program.forker, program.guests());
        assert!(guests.len() >= 2, "{guests:?}");
        program.signal(Signal::KILL);
        assert_eq!(program.output().status.signal(), Some(9));
        assert_nothing_left(forker, &guests);
        let id = &place.ids()[0];
        let verified = place.ran(["runs", "verify", id]);
        assert_eq!(verified.code, Some(1), "{verified:?}");
        assert!(verified.out.contains("incomplete"), "{verified:?}");
        let listed = place.ran(["runs", "list", "--json"]).json();
        assert_eq!(listed["runs"][0]["standing"], "incomplete");
        let cleared = place.ran(["runs", "gc", "--json"]).json();
        assert_eq!(cleared["ended"][0]["run_id"], json!(id), "{cleared}");
        place.assert_whole("interrupted");
        assert_eq!(place.exec(&["true"]).code, Some(0), "the next run works");
        place.assert_whole("finished");
    }
}

/// The executor goes on without its forker: it says so, and removes what the forker would have removed.
#[test]
fn a_killed_forker_leaves_nothing_in_the_folder_of_the_run() {
    for tier in ["namespace", "confined"] {
        let place = Place::new(tier, Who::Own);
        let program = started(&place, &mut place.exec_command(&[], &SLEEPER));
        let (forker, guests) = (program.forker, program.guests());
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(forker.id.cast_signed()).unwrap(),
            Signal::KILL,
        )
        .unwrap();
        let ran = program.ended();
        assert_eq!(ran.code, Some(5), "{tier}: {ran:?}");
        place.assert_whole("sandbox_error");
        until("the guests are gone", || guests.iter().all(|g| !g.lives()));
        let names: Vec<_> =
            std::fs::read_dir(place.newest()).unwrap().map(|e| e.unwrap().file_name()).collect();
        let strange = |n: &&std::ffi::OsString| n.as_encoded_bytes().starts_with(b".");
        assert_eq!(names.iter().find(strange), None, "{tier}: {names:?}");
    }
}

/// Nobody takes a run, or its room, from a guest that may still work: the executor is gone, and its forker has not
/// come to ending what is left.
#[test]
fn a_killed_run_and_its_room_are_free_when_its_guest_is_gone_and_not_before() {
    let place = Place::quick();
    let program = started(&place, &mut place.exec_command(&[], &SLEEPER));
    let (forker, guests) = (program.forker, program.guests());
    let id = rustix::process::Pid::from_raw(forker.id.cast_signed()).unwrap();
    rustix::process::kill_process(id, Signal::STOP).unwrap();
    program.signal(Signal::KILL);
    until("the executor is gone", || program.has_ended());
    let cleared = place.ran(["runs", "gc"]);
    assert!(cleared.out.contains("running, left alone"), "{cleared:?}");
    let resumed = place.ran(["runs", "resume", &place.ids()[0], "--data", "data"]);
    assert!(resumed.err.contains("goes on right now"), "{resumed:?}");
    let seat = std::fs::File::open(place.path("data/ceiling/seat-0")).unwrap();
    assert_eq!(flock(&seat, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK));
    rustix::process::kill_process(id, Signal::CONT).unwrap();
    program.output();
    assert_nothing_left(forker, &guests);
    assert_eq!(flock(&seat, FlockOperation::NonBlockingLockShared), Ok(()));
    assert_eq!(place.ran(["runs", "gc"]).code, Some(0));
    place.assert_whole("interrupted");
}

/// A run that goes on is told as running, and clearing up leaves it alone.
#[test]
fn clearing_up_leaves_a_running_run_alone() {
    let place = Place::quick();
    let program = started(&place, &mut place.exec_command(&[], &SLEEPER));
    let cleared = place.ran(["runs", "gc"]);
    assert_eq!(cleared.code, Some(0), "{cleared:?}");
    assert!(cleared.out.contains("running, left alone"), "{cleared:?}");
    assert!(place.ran(["runs", "list"]).out.contains("running"));
    program.signal(Signal::INT);
    assert_eq!(program.ended().code, Some(5));
    place.assert_whole("cancelled");
}

/// Ctrl-C during a call of a model: the same.
#[test]
fn ctrl_c_ends_a_run_with_a_whole_record() {
    for tier in ["namespace", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        place.guild(&["run_shell", "finish"]);
        let model = Script::new([sh("setsid sleep 1000 & touch ready; sleep 1000"), finish()]).start();
        let program = started(&place, &mut place.run_command(&model.base_url()));
        let (forker, guests) = (program.forker, program.guests());
        program.signal(Signal::INT);
        let ran = program.ended();
        assert_eq!((ran.code, &ran.json()["stop"]), (Some(5), &json!("cancelled")), "{tier}: {ran:?}");
        place.assert_whole("cancelled");
        assert_nothing_left(forker, &guests);
        assert_eq!(model.left(), 1, "{tier}: the model was asked again");
    }
}

/// Ctrl-C while the model thinks.
#[test]
fn ctrl_c_ends_a_run_that_waits_for_its_model() {
    let place = Place::quick();
    place.guild(&["run_shell", "finish"]);
    let late = testkit::Reply::After(std::time::Duration::from_secs(100), Box::new(finish()));
    let model = Script::new([sh("touch ready"), late]).start();
    let program = started(&place, &mut place.run_command(&model.base_url()));
    until("the second question", || model.asked().len() == 2);
    program.signal(Signal::INT);
    let ran = program.ended();
    assert_eq!(ran.code, Some(5), "{ran:?}");
    place.assert_whole("cancelled");
}

#[test]
fn sigterm_is_an_orderly_end_too() {
    let place = Place::quick();
    let program = started(&place, &mut place.exec_command(&[], &SLEEPER));
    let (forker, guests) = (program.forker, program.guests());
    program.signal(Signal::TERM);
    assert_eq!(program.ended().code, Some(5));
    place.assert_whole("cancelled");
    assert_nothing_left(forker, &guests);
}

/// A shell tells its jobs, and the kernel tells the group in front.
#[test]
fn a_terminal_that_goes_away_is_told_twice_and_the_end_is_orderly() {
    for _ in 0..3 {
        let place = Place::quick();
        let program = started(&place, &mut place.exec_command(&[], &SLEEPER));
        let (forker, guests) = (program.forker, program.guests());
        program.signal(Signal::HUP);
        program.signal(Signal::HUP);
        let ran = program.ended();
        assert_eq!(ran.code, Some(5), "{ran:?}");
        place.assert_whole("cancelled");
        assert_nothing_left(forker, &guests);
    }
}

/// What its starter ignores is no matter: children are waited for.
#[test]
fn a_starter_that_ignores_its_children_changes_nothing() {
    let place = Place::quick();
    let program = place.bin().join("oubliette").display().to_string();
    let script = format!(
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv({program:?}, [{program:?}, 'exec', '--data', 'data', '--tier', 'namespace', '--floor', 'namespace', '--timeout', '20', \
    '--', 'sh', '-c', 'echo hi; exit 3'])"
    );
    let ran = crate::place::ran(place.command("python3".as_ref()).args(["-c", &script]));
    assert_eq!((ran.code, ran.out.as_str()), (Some(3), "hi\n"), "{ran:?}");
}

/// The second signal may come before the first has done its work; either way nothing is left.
#[test]
fn a_second_signal_leaves_nothing_either() {
    for tier in ["namespace", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        let program = started(&place, &mut place.exec_command(&[], &SLEEPER));
        let (forker, guests) = (program.forker, program.guests());
        program.signal(Signal::INT);
        program.signal(Signal::INT);
        let ran = program.ended();
        assert!([Some(130), Some(5)].contains(&ran.code), "{tier}: {ran:?}");
        assert_nothing_left(forker, &guests);
    }
}

/// Ctrl-C while the sandbox is still being made.
#[test]
fn ctrl_c_during_the_start_leaves_nothing() {
    for tier in ["namespace", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        let program = begun(&mut place.exec_command(&[], &SLEEPER));
        until("the run has a folder", || !place.ids().is_empty());
        let forker = program.forker;
        program.signal(Signal::INT);
        let ran = program.ended();
        assert_eq!(ran.code, Some(5), "{tier}: {ran:?}");
        assert_nothing_left(forker, &[].into());
        place.assert_whole("cancelled");
    }
}

/// A machine takes seconds to start: who changes their mind does not wait for it.
#[test]
fn ctrl_c_ends_a_machine_that_is_still_starting() {
    let place = Place::new("microvm", Who::Own);
    let program = begun(&mut place.exec_command(&[], &SLEEPER));
    until("the monitor is there", || program.guests().iter().any(|p| cmdline(p.id).contains("qemu-system")));
    let (forker, guests) = (program.forker, program.guests());
    program.signal(Signal::INT);
    let ran = program.ended();
    assert_eq!(ran.code, Some(5), "{ran:?}");
    place.assert_whole("cancelled");
    assert!(place.file_of_run("meta.json")["sandbox"].is_null(), "it was not waited for");
    assert_nothing_left(forker, &guests);
}

/// A signal before anything has begun.
#[test]
fn a_signal_at_once_leaves_nothing() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL, Signal::HUP] {
        let place = Place::quick();
        let program = begun(&mut place.exec_command(&[], &SLEEPER));
        let forker = program.forker;
        program.signal(signal);
        program.output();
        assert_nothing_left(forker, &[].into());
    }
}

/// R42: where groups can be had, a running sandbox is in its own, so that their absence afterwards means something.
#[test]
fn r42_a_running_sandbox_has_groups_of_its_own_where_the_record_says_so() {
    let place = Place::quick();
    let program = started(&place, &mut place.exec_command(&[], &SLEEPER));
    let layers = place.file_of_run("meta.json")["sandbox"]["layers"].clone();
    let said = layers
        .as_array()
        .unwrap()
        .iter()
        .any(|l| l["name"] == "memory" && l["detail"].as_str().unwrap().contains("by cgroup"));
    assert_eq!(said, !groups(program.forker).is_empty());
    program.signal(Signal::TERM);
    assert_eq!(program.ended().code, Some(5));
}

/// What a caller has set for itself is no matter: a strict mask, closed streams, ignored signals, no variables.
#[test]
fn the_callers_own_settings_do_not_reach_the_guest() {
    for tier in ["namespace", "gvisor"] {
        for before in ["umask 077; exec", "exec <&-; exec", "trap '' INT TERM HUP PIPE; exec", "exec env -i"]
        {
            let place = Place::new(tier, Who::Own);
            let guest = "umask; touch new; sh -c 'kill -TERM $$; echo not killed'; echo fine";
            let program = place.bin().join("oubliette").display().to_string();
            let options = format!("exec --data data --tier {tier} --floor {tier} -- sh -c");
            let script = format!("{before} {program} {options} \"$1\"");
            let ran = crate::place::ran(place.command("sh".as_ref()).args(["-c", &script, "sh", guest]));
            assert_eq!((ran.code, ran.out.as_str()), (Some(0), "0022\nfine\n"), "{tier}: {before}: {ran:?}");
        }
    }
}

/// Closed output is no reason to leave anything, or to say that the guest failed.
#[test]
fn closed_streams_do_not_change_the_outcome() {
    let place = Place::quick();
    let program = place.bin().join("oubliette").display().to_string();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full"] {
        let options = "exec --data data --tier namespace --floor namespace -- sh -c";
        let script = format!("exec {program} {options} 'echo out; echo err >&2; exit 3' {closed}");
        let ran = crate::place::ran(place.command("sh".as_ref()).args(["-c", &script]));
        assert_eq!(ran.code, Some(3), "{closed}: {ran:?}");
        place.assert_whole("finished");
    }
}

/// Whether a seat under the ceiling is taken by one that has no room yet.
fn somebody_waits(place: &Place) -> bool {
    std::fs::read_dir(place.path("data/ceiling")).unwrap().any(|entry| {
        let seat = std::fs::File::open(entry.unwrap().path()).unwrap();
        let taken = flock(&seat, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
        taken && std::io::read_to_string(seat).unwrap().contains("\"holds\":false")
    })
}

/// Two runs of one deployment, room for one: the second says so, waits, and starts when the first is gone.
#[test]
fn a_run_waits_for_room_and_says_so() {
    let place = Place::quick();
    place.write("oubliette.toml", "[ceiling]\nsandboxes = 1\n");
    let first = started(&place, &mut place.exec_command(&[], &SLEEPER));
    let second = begun(&mut place.exec_command(&[], &["echo", "second"]));
    until("the second waits", || somebody_waits(&place));
    first.signal(Signal::INT);
    assert_eq!(first.ended().code, Some(5));
    let ran = second.ended();
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "second\n"), "{ran:?}");
    assert!(ran.err.contains("room under the ceiling: 1 of 1 sandboxes"), "{ran:?}");
    assert!(place.file_of_run("meta.json")["waited_ms"].as_u64().unwrap() > 0);
    place.assert_whole("finished");
}

/// The room of a killed executor is free when its guests are gone, and Ctrl-C ends the waiting with a whole record.
#[test]
fn waiting_for_room_ends_by_ctrl_c_and_by_the_death_of_who_has_it() {
    let place = Place::quick();
    place.write("oubliette.toml", "[ceiling]\nsandboxes = 1\n");
    let first = started(&place, &mut place.exec_command(&[], &SLEEPER));
    let second = begun(&mut place.exec_command(&[], &["true"]));
    until("the second waits", || somebody_waits(&place));
    second.signal(Signal::INT);
    assert_eq!(second.ended().code, Some(5));
    place.assert_whole("cancelled");
    let third = begun(&mut place.exec_command(&[], &["echo", "third"]));
    until("the third waits", || somebody_waits(&place));
    first.signal(Signal::KILL);
    assert_eq!(first.output().status.signal(), Some(9));
    assert_eq!(third.ended().out, "third\n");
}
