//! Rows that are a command line: `oubliette exec`.

use std::time::Instant;

use super::door::{Program, Ran};
use super::format::Outcome;
use super::process::most_memory;
use super::seen::{Seen, Step, steps_of};
use super::verdict::Trouble;
use super::world::{PATIENCE, World, sound};

pub(super) fn played(world: &World<'_>, argv: &[String]) -> Result<Seen, Trouble> {
    world.set_up(&world.source())?;
    let argv: Vec<String> = argv.iter().map(|word| world.fill(word, &world.source())).collect();
    let quiet = match world.row.expect.executor_rss_growth_mb_max {
        Some(_) => Some(exec(world, "source", &["true".to_owned()])?.1),
        None => None,
    };
    judged(world, "source", &argv, quiet)
}

/// A command on what an archive holds.
pub(super) fn imported(world: &World<'_>, path: &str) -> Result<Seen, Trouble> {
    world.set_up(&world.source())?;
    let source = world.source();
    let archive = source.join(world.fill(path, &source)).display().to_string();
    // What came in is what a person would look at: every name, and what every file holds.
    let look = ["sh", "-c", "find . && find . -type f -exec cat {} +"].map(str::to_owned);
    let before = world.ids().len();
    let (ran, _) = exec(world, &archive, &look)?;
    if ran.code == Some(2) && before == world.ids().len() {
        return Ok(Seen {
            outcome: Some(Outcome::Denied),
            texts: vec![ran.out],
            err: ran.err,
            ..Seen::default()
        });
    }
    // An import that fails begins a run and carries nothing out.
    let runs: Vec<_> = world.newest().into_iter().collect();
    let steps = runs.iter().map(|run| steps_of(run)).collect::<Result<Vec<_>, _>>()?.concat();
    let outcome = if steps.is_empty() { Some(Outcome::Denied) } else { None };
    Ok(Seen { outcome, texts: vec![ran.out], err: ran.err, steps, runs, ..Seen::default() })
}

fn judged(world: &World<'_>, workspace: &str, argv: &[String], quiet: Option<u64>) -> Result<Seen, Trouble> {
    let before = world.ids();
    let began = Instant::now();
    let (ran, most) = exec(world, workspace, argv)?;
    let took = began.elapsed();
    let new: Vec<String> = world.ids().into_iter().filter(|id| !before.contains(id)).collect();
    let [id] = new.as_slice() else {
        // Refused by policy before anything began.
        if new.is_empty() && ran.code == Some(3) {
            let steps = vec![Step::refused(Outcome::Denied)];
            return Ok(Seen { steps, texts: vec![ran.out], err: ran.err, took, ..Seen::default() });
        }
        return Err(Trouble::Fault(format!("it began {} runs: {}", new.len(), ran.told())));
    };
    let run = world.dir.join("data/runs").join(id);
    let steps = steps_of(&run)?;
    let [step] = steps.as_slice() else {
        return Err(Trouble::Fault(format!("{} calls in the record: {}", steps.len(), ran.told())));
    };
    let mut faults = Vec::new();
    if let (Some(code), Outcome::Ok | Outcome::Error) = (step.exit_code, step.outcome)
        && ran.code.map(i64::from) != Some(code)
    {
        faults.push(format!("the guest's exit code is {code}, the program's: {}", ran.told()));
    }
    Ok(Seen {
        truncated: step.artifacts,
        growth_kib: quiet.map(|quiet| most.saturating_sub(quiet)),
        texts: vec![ran.out],
        err: ran.err,
        steps,
        took,
        runs: vec![run],
        faults,
        ..Seen::default()
    })
}

/// `exec` of a command, and the most memory that the executor had, in KiB.
fn exec(world: &World<'_>, workspace: &str, argv: &[String]) -> Result<(Ran, u64), Trouble> {
    let tier = world.tier.as_str();
    let mut command = world.ourselves();
    command.args(["exec", "--data", "data", "--tier", tier, "--floor", tier, "--workspace", workspace, "--"]);
    let program = Program::start(command.args(argv), &world.dir, "exec")?;
    let (id, mut most) = (program.id, 0);
    let look = || {
        // It only ever grows, so that the last look before the end is the one that counts.
        most = most_memory(id).unwrap_or(most).max(most);
    };
    let ran = program.ended(&world.cancel, PATIENCE, look)?;
    Ok((sound(ran)?, most))
}
