//! Rows that need nothing of their own, in one machine: without the processor's help a boot takes its time.

use std::collections::HashMap;
use std::time::Instant;

use serde_json::json;

use super::drive::Drive;
use super::format::Policy;
use super::judge::{judge, outcome};
use super::read::{Input, Row};
use super::seen::{Seen, Step, steps_of};
use super::verdict::{Miss, Trouble};
use super::world::World;
use super::{Asked, Play};

/// Shown as a whole: what a row looks for may stand anywhere.
const DEPLOYMENT: &str = "[call]\nto_model = 100000\n[budget]\nsteps = 20000\ntool_calls = 20000\nrepeats = 20000\n\
    tokens = 1000000000\nwall = \"6h\"\n";

/// Whether a row is a command line alone, with nothing around it that has to be made; each has its own listener.
fn fits(row: &Row) -> bool {
    let Policy { role_tools, simulate, .. } = &row.policy;
    let plain =
        row.whole.get("policy").is_none_or(|policy| policy.as_object().is_some_and(|map| map.is_empty()));
    let expect = &row.expect;
    let no_files = expect.must_exist.is_empty()
        && expect.must_not_exist.is_empty()
        && expect.file_equals.is_empty()
        && expect.file_contains.is_empty()
        && expect.mode.is_empty()
        && expect.unchanged.is_empty()
        && expect.transcript_not_contains.is_empty();
    let nothing_later = expect.check_after_s.is_none()
        && expect.executor_rss_growth_mb_max.is_none()
        && expect.truncated.is_none()
        && expect.stderr_contains.is_empty();
    matches!(row.input, Input::Command(_))
        && row.setup.is_empty()
        && plain
        && role_tools.is_none()
        && simulate.is_none()
        && no_files
        && nothing_later
}

/// Plays those of the rows that fit, by their place in the list.
pub(super) fn played(play: &Play<'_>, rows: &[(usize, &Row)]) -> Result<HashMap<usize, Asked>, Trouble> {
    let rows: Vec<&(usize, &Row)> = rows.iter().filter(|(_, row)| fits(row)).collect();
    let Some((_, first)) = rows.first() else { return Ok(HashMap::new()) };
    let machine = play.world(first)?;
    machine.write("oubliette.toml", DEPLOYMENT)?;
    let mut drive = Drive::start(&machine, &["run_command", "finish"])?;
    let mut played: Vec<(usize, World<'_>, Seen, usize)> = Vec::new();
    let mut calls = 0;
    for (at, row) in rows.iter().copied() {
        let Input::Command(argv) = &row.input else { continue };
        let world = play.world(row)?;
        let argv: Vec<String> = argv.iter().map(|word| world.fill(word, &world.source())).collect();
        let counts = row.expect.survivors.is_some();
        let before = if counts { drive.inside()? } else { 0 };
        let began = Instant::now();
        if !drive.call("run_command".to_owned(), json!({ "argv": argv }).to_string())? {
            return Err(Trouble::Fault("the run ended under a row".to_owned()));
        }
        let took = began.elapsed();
        let texts = vec![drive.texts.pop().unwrap_or_default()];
        let step = calls + usize::from(counts);
        let survivors = if counts { Some(drive.inside()?.saturating_sub(before)) } else { None };
        calls += if counts { 3 } else { 1 };
        let runs = vec![drive.dir.clone()];
        played.push((*at, world, Seen { texts, took, survivors, runs, ..Seen::default() }, step));
    }
    let over = drive.end()?;
    let steps: Vec<Step> = steps_of(&over.dir)?;
    if over.ran.code != Some(0) || steps.len() != calls {
        return Err(Trouble::Fault(format!(
            "{} of {calls} calls were made: {}",
            steps.len(),
            over.ran.told()
        )));
    }
    let one = |(at, world, mut seen, step): (usize, World<'_>, Seen, usize)| {
        seen.steps = steps.get(step).cloned().into_iter().collect();
        let took = seen.took;
        let misses: Result<Vec<Miss>, Trouble> = judge(&world, &seen);
        (at, Asked { came: misses.map(|misses| (outcome(&seen), misses)), took })
    };
    Ok(played.into_iter().map(one).collect())
}
