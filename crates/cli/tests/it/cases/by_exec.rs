//! Rows that are a command line: `oubliette exec`, or a call of a run where it matters what the call leaves behind.

use std::process::Command;
use std::time::Instant;

use super::by_run;
use super::judge::{Seen, steps};
use super::world::World;
use crate::place::{Place, Ran, ran};

/// Tells how much memory the executor had at most, in KiB, as the kernel counted it.
const MEASURE: &str = "import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
open(sys.argv[1], 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)";

pub(super) fn played(world: &World) -> Seen {
    let expect = &world.row["expect"];
    // After `exec` nothing of the sandbox is there that could survive: a run that goes on shows it.
    if expect["survivors"].is_number() || expect["check_after_s"].is_number() {
        return by_run::one_command(world);
    }
    let argv = world.filled(&world.row["input"], &world.source());
    let argv: Vec<&str> = argv.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    world.set_up(&world.source());
    let quiet = expect["executor_rss_growth_mb_max"].is_number().then(|| measured(&world.place, &["true"]).1);
    let began = Instant::now();
    let mut command = world.place.exec_command(&["--workspace", "source"], &argv);
    for (name, value) in world.row["policy"]["executor_env"].as_object().into_iter().flatten() {
        command.env(name, value.as_str().unwrap());
    }
    let (ran, most) = match quiet {
        Some(_) => measured(&world.place, &argv),
        None => (ran(&mut command), 0),
    };
    let took = began.elapsed();
    let events = world.place.events();
    let steps = steps(&events);
    let [step] = steps.as_slice() else { panic!("{}: {steps:?} {ran:?}", world.id()) };
    if let (Some(code), "ok" | "error") = (step.exit_code, step.outcome) {
        assert_eq!(ran.code.map(i64::from), Some(code), "{}: {ran:?}", world.id());
    }
    Seen {
        truncated: !world.place.events_of("tool_end")[0]["artifacts"].as_array().unwrap().is_empty(),
        growth_kib: quiet.map(|quiet| most.saturating_sub(quiet)),
        texts: vec![ran.out],
        err: ran.err,
        steps,
        took,
        runs: vec![world.place.newest()],
        ..Seen::default()
    }
}

/// `exec` of a command, and the most memory that the executor had.
fn measured(place: &Place, argv: &[&str]) -> (Ran, u64) {
    let exec = place.exec_command(&[], argv);
    let mut command: Command = place.command("/usr/bin/python3".as_ref());
    command.args(["-I", "-c", MEASURE, "most"]).arg(exec.get_program()).args(exec.get_args());
    let ran = ran(&mut command);
    (ran, place.read("most").parse().unwrap())
}
