//! Bounds as a user meets them: which one struck, whose it was, and that what a guest prints costs the executor nothing.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Reply, Script, given};

use crate::Who;
use crate::place::{Place, act, finish, sh, told_in};
use crate::process::{begun, most_memory, until};

/// How much more memory the executor may ever have had, in KiB, while a guest prints a GiB.
const GROWTH: u64 = 64 << 10;

/// W6, R44: what is kept of a GiB is its head and its tail; the executor has as much memory as in a quiet call.
fn w6_a_gib_of_output_does_not_grow_the_executor(tier: &'static str) {
    let place = Place::new(tier, Who::Own);
    place.guild(&["run_shell", "finish"]);
    place.write("oubliette.toml", "[call]\nflood = \"2GiB\"\ntimeout = \"10m\"\n[limits]\ncpu = \"10m\"\n");
    let (hand, replies) = given();
    let model = Script::new([replies]).last_again().n_ctx(Some(100_000)).start();
    let program = begun(&mut place.run_command(&model.base_url()));
    let asked = |n| model.asked().len() >= n || program.has_ended();
    until("the first request", || asked(1));
    let play = |n: usize, reply: Reply| {
        hand.send(reply).unwrap();
        // A GiB takes a debug build longer than anything else is waited for.
        let began = Instant::now();
        while !asked(n) {
            assert!(began.elapsed() < Duration::from_secs(1800), "{tier}: no request {n}");
            std::thread::sleep(Duration::from_millis(5));
        }
        most_memory(program.executor())
    };
    let quiet = play(2, sh("echo quiet"));
    let loud = play(3, sh("echo HEAD; yes | head -c 1073741824; echo TAIL"));
    let told = told_in(&model, 2);
    hand.send(finish()).unwrap();
    assert_eq!(program.ended().code, Some(0), "{tier}");
    assert!(
        told.contains("exit_code: 0") && told.contains("HEAD") && told.contains("TAIL"),
        "{tier}: {told}"
    );
    let printed = place.events_of("tool_end")[1]["outcome"]["stdout_bytes"].clone();
    assert_eq!(printed, json!(1_073_741_824 + 10), "{tier}");
    assert!(loud - quiet < GROWTH, "{tier}: {quiet} KiB became {loud} KiB");
}

mod w6_a_gib_of_output_does_not_grow_the_executor {
    #[test]
    fn namespace() {
        super::w6_a_gib_of_output_does_not_grow_the_executor("namespace");
    }

    #[test]
    fn gvisor() {
        super::w6_a_gib_of_output_does_not_grow_the_executor("gvisor");
    }

    #[test]
    fn confined() {
        super::w6_a_gib_of_output_does_not_grow_the_executor("confined");
    }
}

/// R36: each call by its own time, whatever else it asks for, and all of them by that of the sandbox and of the run.
#[test]
fn r36_the_wall_clock_bounds_a_call_a_sandbox_and_a_run() {
    for tier in ["namespace", "gvisor", "confined"] {
        for (bounds, stop) in [
            (["5s", "1h", "1h"], "finished"),
            (["1h", "5s", "1h"], "finished"),
            (["1h", "1h", "8s"], "wall_limit"),
        ] {
            let [call, sandbox, run] = bounds;
            let bound = format!(
                "[call]\ntimeout = \"{call}\"\n[limits]\nwall = \"{sandbox}\"\n[budget]\nwall = \"{run}\"\n"
            );
            let place = Place::new(tier, Who::Own);
            place.guild(&["run_shell", "finish"]);
            place.write("oubliette.toml", &bound);
            let long = act("run_shell", json!({"command": "sleep 3000", "timeout_s": 3000}));
            let model = Script::new([long, finish()]).n_ctx(Some(100_000)).start();
            let began = Instant::now();
            place.run(&model.base_url());
            assert!(began.elapsed() < Duration::from_secs(600), "{tier}, {bound}: {:?}", began.elapsed());
            place.assert_whole(stop);
            let ends = place.events_of("tool_end");
            assert_eq!(ends[0]["outcome"]["stopped_by"], "timeout", "{tier}, {bound}: {ends:?}");
        }
    }
}

/// R41: what holds is in the record of every run, so that a bound that was raised is seen there.
#[test]
fn r41_a_raised_bound_is_in_the_record_of_the_run() {
    let place = Place::quick();
    let bounds = || -> Value {
        assert_eq!(place.exec(&["true"]).code, Some(0));
        let shown = place.ran(["runs", "show", place.ids().last().unwrap(), "--json"]).json();
        shown["meta"]["grant"].clone()
    };
    let usual = bounds();
    place.write("oubliette.toml", "[limits]\nmemory = \"3GiB\"\nprocesses = 300\n[call]\nflood = \"8GiB\"\n");
    let raised = bounds();
    for (table, key, before, after) in [
        ("limits", "memory", 2_u64 << 30, 3_u64 << 30),
        ("limits", "processes", 256, 300),
        ("call", "flood", 4 << 30, 8 << 30),
    ] {
        assert_eq!(
            (&usual[table][key], &raised[table][key]),
            (&json!(before), &json!(after)),
            "{table}.{key}"
        );
    }
}
