//! Rows that are calls of a model: a whole `oubliette run` whose model says what the row says.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use policy::{Tier, Tool};
use serde_json::{Value, json};

use super::applicable::our_name;
use super::door::{self, Program};
use super::drive::{Drive, Over};
use super::format::Outcome;
use super::judge::present;
use super::model::{Model, Reply};
use super::read::{Answer, Arguments, Call, Input, Row, Trusted};
use super::seen::{Seen, Step, json_of, steps_of};
use super::verdict::{Trouble, Unasked};
use super::world::{PATIENCE, World, sound};

/// What a call started must be gone by then; what is left of it on purpose sleeps for minutes.
const GONE: Duration = Duration::from_secs(10);
/// How long the attacker of a race goes on.
const RACE: Duration = Duration::from_secs(8);
/// Calls in one answer.
const AT_ONCE: usize = 16;
/// Rows that call more often than a run usually may.
const OFTEN: &str = "[budget]\nsteps = 20000\ntool_calls = 20000\nrepeats = 20000\ntokens = 1000000000\n";
/// Takes user namespaces away from itself, then becomes the program named.
const WITHOUT: &str = include_str!("without.py");

/// The tools of a role that may do everything but start others.
fn tools() -> Vec<&'static str> {
    Tool::ALL.into_iter().filter(|tool| *tool != Tool::Agent).map(Tool::as_str).collect()
}

/// The calls of one run, and what the executor does with its workspace in the end.
pub(super) fn carried_out(
    world: &World<'_>,
    calls: &[Call],
    then: Option<&Trusted>,
) -> Result<Seen, Trouble> {
    let expect = &world.row.expect;
    let live = is_live(world.row);
    if calls.iter().any(|call| call.repeat.is_some()) {
        often(world)?;
    }
    if !live {
        world.set_up(&world.source())?;
    }
    let mut drive = Drive::start(world, &tools())?;
    if live {
        world.set_up(&drive.workspace())?;
    }
    let counts = expect.survivors.is_some();
    // Without a view of its own the guest sees everybody's; of gVisor's the host sees the engine's only.
    let from_inside = counts && world.tier != Tier::Confined;
    let from_outside = counts && world.tier != Tier::Gvisor;
    // A call before, so that what a sandbox keeps for itself is there.
    let before = if counts { drive.inside()? } else { 0 };
    let looks = drive.looks;
    let host_before = drive.on_host();
    let began = Instant::now();
    let mut goes_on = true;
    for call in calls {
        for _ in 0..call.repeat.unwrap_or(1) {
            let (name, arguments) = sent(world, call, &drive.workspace());
            goes_on = goes_on && drive.call(name, arguments)?;
        }
    }
    let took = began.elapsed();
    let mut survivors = 0;
    let looked = Instant::now();
    if from_outside && goes_on {
        let left = |drive: &Drive| drive.on_host().difference(&host_before).filter(|p| p.lives()).count();
        survivors = left(&drive);
        while survivors > 0 && looked.elapsed() < GONE {
            std::thread::sleep(Duration::from_millis(5));
            survivors = left(&drive);
        }
    }
    if from_inside && goes_on {
        let mut now = drive.inside()?;
        // Each look is a step of the run, of which there are not many.
        let mut pause = Duration::from_millis(20);
        while now > before && looked.elapsed() < GONE {
            std::thread::sleep(pause);
            pause *= 2;
            now = drive.inside()?;
        }
        survivors = survivors.max(now.saturating_sub(before));
    }
    let early = early(world, &drive, began)?;
    let over = drive.end()?;
    let mut seen = seen_of(&over)?;
    let made = calls.iter().map(|call| usize::try_from(call.repeat.unwrap_or(1)).unwrap_or(1)).sum();
    if seen.outcome.is_none() && over.ran.code != Some(0) {
        seen.faults.push(format!("the run did not end well: {}", over.ran.told()));
    }
    seen.steps = seen.steps.into_iter().skip(looks).take(made).collect();
    seen.survivors = (counts && goes_on).then_some(survivors);
    seen.took = took;
    seen.early = early;
    if let Some(then) = then {
        in_the_end(world, then, &over, &mut seen)?;
    }
    Ok(seen)
}

/// A command line where it matters what the call leaves behind: after `exec` nothing of the sandbox is there that could.
pub(super) fn one_command(world: &World<'_>, argv: &[String]) -> Result<Seen, Trouble> {
    carried_out(world, &[super::read::command(argv.to_vec())], None)
}

/// Waits while the sandbox lives: what survived in it would do its deed now.
fn early(world: &World<'_>, drive: &Drive, began: Instant) -> Result<Vec<String>, Trouble> {
    let Some(after) = world.row.expect.check_after_s else { return Ok(Vec::new()) };
    rest(world, began, after)?;
    let workspace = drive.workspace();
    Ok(present(&workspace, &world.expect(&workspace)?.must_not_exist))
}

fn rest(world: &World<'_>, began: Instant, seconds: f64) -> Result<(), Trouble> {
    let all = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    while began.elapsed() < all {
        if world.cancel.is_cancelled() {
            return Err(Trouble::Cancelled);
        }
        std::thread::sleep(Duration::from_millis(20).min(all));
    }
    Ok(())
}

/// Rows whose files the guest would have made, those that speak of the run's own workspace, and those where only the
/// executor does something: they are set up in the run's workspace, when it is there.
pub(super) fn is_live(row: &Row) -> bool {
    let Input::Calls { calls, .. } = &row.input else { return false };
    calls.is_empty()
        || ["path-escape", "special-file", "confused-deputy"].contains(&row.class.as_str())
        || row.setup.iter().any(|line| line.contains("{{WORKSPACE}}"))
}

fn often(world: &World<'_>) -> Result<(), Trouble> {
    let text = fs::read_to_string(world.dir.join("oubliette.toml"))?;
    if !text.contains("budget") {
        world.write("oubliette.toml", &(text + OFTEN))?;
    }
    Ok(())
}

/// A call as the model writes it, in our words.
fn sent(world: &World<'_>, call: &Call, workspace: &Path) -> (String, String) {
    let arguments = match &call.arguments {
        Arguments::Raw(raw) => world.fill(raw, workspace),
        Arguments::Value(value) => {
            let mut value = world.filled(value, workspace);
            if let Some(folder) = value.as_object_mut().and_then(|map| map.remove("cwd")) {
                value["workdir"] = folder;
            }
            value.to_string()
        }
    };
    (our_name(&call.name).to_owned(), arguments)
}

/// What a run left. A bound of the budget that ended it is the outcome of the whole.
fn seen_of(over: &Over) -> Result<Seen, Trouble> {
    let result = json_of(&over.dir, "result.json")?;
    let bounds = ["loop_detected", "tool_call_limit", "step_limit", "token_limit", "wall_limit"];
    let killed = result["stop"].as_str().is_some_and(|stop| bounds.contains(&stop));
    Ok(Seen {
        outcome: killed.then_some(Outcome::Killed),
        steps: steps_of(&over.dir)?,
        truncated: over.texts.iter().any(|text| text.contains("(the output was shortened")),
        texts: over.texts.clone(),
        runs: vec![over.dir.clone()],
        ..Seen::default()
    })
}

/// What the executor itself does with a workspace when the run has ended.
fn in_the_end(world: &World<'_>, then: &Trusted, over: &Over, seen: &mut Seen) -> Result<(), Trouble> {
    let paths: &[String] = match then {
        Trusted::Destroy => {
            world.write("oubliette.toml", "[records]\nmax_bytes = \"1KiB\"\n")?;
            let cleared = world.ran(&["runs", "gc"])?;
            if cleared.code != Some(0) {
                seen.faults.push(format!("clearing up failed: {}", cleared.told()));
            }
            seen.outcome = Some(Outcome::Ok);
            return Ok(());
        }
        Trusted::Collect(paths) => paths,
        Trusted::Diff => &[],
    };
    let patch = String::from_utf8_lossy(&fs::read(over.dir.join("changes.patch"))?).into_owned();
    seen.texts.extend([over.ran.out.clone(), patch]);
    let result = json_of(&over.dir, "result.json")?;
    let refused = result["changes"]["refused"].to_string();
    let denied = paths.iter().any(|path| refused.contains(path.as_str()));
    seen.outcome = Some(if denied { Outcome::Denied } else { Outcome::Ok });
    Ok(())
}

/// What a role says in its turns, exactly as the row has them.
pub(super) fn turned(world: &World<'_>, turns: &[Answer]) -> Result<Seen, Trouble> {
    world.set_up(&world.source())?;
    let listed: Vec<&str> = match &world.policy.role_tools {
        Some(listed) => listed.iter().map(|tool| our_name(tool)).collect(),
        None => tools(),
    };
    let mut drive = Drive::start(world, &listed)?;
    let began = Instant::now();
    for turn in turns {
        let calls: Vec<_> = turn.calls.iter().map(|call| sent(world, call, &drive.workspace())).collect();
        let text = turn.text.as_ref().map(|text| world.fill(text, &drive.workspace()));
        let reply = match (text, calls) {
            (text, calls) if !calls.is_empty() => Reply::Calls(text, calls),
            (text, _) => Reply::Text(text.unwrap_or_default()),
        };
        if !drive.say(reply)? {
            break;
        }
    }
    let took = began.elapsed();
    let early = early(world, &drive, began)?;
    Ok(Seen { took, early, ..seen_of(&drive.end()?)? })
}

/// Separate runs, one after the other or at the same time.
pub(super) fn several(world: &World<'_>, runs: &[Vec<Call>], at_once: bool) -> Result<Seen, Trouble> {
    world.set_up(&world.source())?;
    let start = || Drive::start(world, &tools());
    let play = |mut drive: Drive, calls: &[Call]| {
        for call in calls {
            let (name, arguments) = sent(world, call, &drive.workspace());
            for _ in 0..call.repeat.unwrap_or(1) {
                drive.call(name.clone(), arguments.clone())?;
            }
        }
        drive.end()
    };
    let overs: Vec<Over> = if at_once {
        // All have their sandbox before any begins.
        let drives = runs.iter().map(|_| start()).collect::<Result<Vec<_>, _>>()?;
        std::thread::scope(|scope| {
            let threads: Vec<_> = drives
                .into_iter()
                .zip(runs)
                .map(|(drive, calls)| scope.spawn(move || play(drive, calls)))
                .collect();
            let died = |_| Trouble::Fault("a thread of ours died".to_owned());
            threads.into_iter().map(|thread| thread.join().map_err(died).flatten()).collect::<Result<_, _>>()
        })?
    } else {
        runs.iter().map(|calls| play(start()?, calls)).collect::<Result<_, _>>()?
    };
    let mut all = Seen::default();
    for over in overs {
        let seen = seen_of(&over)?;
        if over.ran.code != Some(0) && seen.outcome.is_none() {
            all.faults.push(format!("a run did not end well: {}", over.ran.told()));
        }
        let last = seen.outcome.or(seen.steps.last().map(|step| step.outcome));
        all.outcome = all.outcome.or(last.filter(|outcome| *outcome != Outcome::Ok));
        all.truncated |= seen.truncated;
        all.steps.extend(seen.steps);
        all.texts.extend(seen.texts);
        all.runs.extend(seen.runs);
    }
    Ok(all)
}

/// Calls that are issued together. Those of a run come one after the other, so a command among calls on files is sent into
/// the background and goes on while they are made.
pub(super) fn raced(world: &World<'_>, calls: &[Call]) -> Result<Seen, Trouble> {
    world.set_up(&world.source())?;
    often(world)?;
    let is_command =
        |call: &&Call| call.repeat.is_none() && ["run_shell", "run_command"].contains(&our_name(&call.name));
    let (commands, others): (Vec<&Call>, Vec<&Call>) = calls.iter().partition(is_command);
    let mut drive = Drive::start(world, &tools())?;
    let workspace = drive.workspace();
    let racing = !others.is_empty() && !commands.is_empty();
    if racing {
        for call in &commands {
            drive.call("run_command".to_owned(), background(world, call, &workspace)?)?;
        }
    }
    let began = Instant::now();
    let often = if racing { others } else { calls.iter().collect() };
    let times = often.iter().map(|call| call.repeat.unwrap_or(1)).max().unwrap_or(1);
    let all: Vec<(String, String)> = (0..times)
        .flat_map(|n| often.iter().filter(move |call| n < call.repeat.unwrap_or(1)))
        .map(|call| sent(world, call, &workspace))
        .collect();
    for some in all.chunks(AT_ONCE) {
        // Beyond that nobody races any more.
        if racing && began.elapsed() >= RACE {
            break;
        }
        if !drive.say(Reply::Calls(None, some.to_vec()))? {
            break;
        }
    }
    let took = began.elapsed();
    let early = early(world, &drive, began)?;
    let mut seen = Seen { took, early, ..seen_of(&drive.end()?)? };
    let odd = |step: &&Step| !matches!(step.outcome, Outcome::Ok | Outcome::Denied | Outcome::Error);
    if racing {
        seen.outcome = seen.outcome.or(seen.steps.first().map(|step| step.outcome));
        if let Some(step) = seen.steps.iter().skip(commands.len()).find(odd) {
            seen.faults.push(format!("a call of the race ended as {}", step.outcome.as_str()));
        }
        if seen.steps.len() <= commands.len() + AT_ONCE.min(all.len()) / 2 {
            seen.faults.push(format!("only {} calls came through", seen.steps.len()));
        }
    } else {
        let worst = seen.steps.iter().map(|step| step.outcome).find(|outcome| *outcome != Outcome::Ok);
        seen.outcome = seen.outcome.or(worst);
    }
    Ok(seen)
}

/// The row's command as an argument of a shell that lets go of it.
fn background(world: &World<'_>, call: &Call, workspace: &Path) -> Result<String, Trouble> {
    const LET_GO: &str = "\"$@\" </dev/null >/dev/null 2>&1 &";
    let (name, arguments) = sent(world, call, workspace);
    let arguments: Value = serde_json::from_str(&arguments).unwrap_or(Value::Null);
    let own = match (name.as_str(), &arguments["command"], &arguments["argv"]) {
        ("run_shell", Value::String(command), _) => json!(["sh", "-c", command]),
        (_, _, Value::Array(_)) => arguments["argv"].clone(),
        _ => return Err(Unasked::NotMeasured { key: "parallel" }.into()),
    };
    let own = own.as_array().cloned().unwrap_or_default();
    let argv: Vec<Value> = ["sh", "-c", LET_GO, "sh"].map(Value::from).into_iter().chain(own).collect();
    Ok(json!({ "argv": argv }).to_string())
}

/// A run where what holds the tier was taken away: it is refused with what would bring it, and nothing is carried out.
pub(super) fn refused(world: &World<'_>) -> Result<Seen, Trouble> {
    world.set_up(&world.source())?;
    world.write_guild(&tools())?;
    let model = Model::start()?;
    let url = model.base_url();
    let mut command = door::command("python3".as_ref(), &world.dir);
    command
        .args(["-I", "-c", WITHOUT])
        .arg(std::env::current_exe()?)
        .args(super::drive::words(world.tier, &url));
    let program = Program::start(&mut command, &world.dir, "refused")?;
    let ran = sound(program.ended(&world.cancel, PATIENCE, || {})?)?;
    if ran.err.contains("without.py:") {
        return Err(Unasked::Machine { what: ran.told() }.into());
    }
    let runs: Vec<_> = world.newest().into_iter().collect();
    let steps = runs.iter().map(|run| steps_of(run)).collect::<Result<Vec<_>, _>>()?.concat();
    let mut faults = Vec::new();
    if ran.code != Some(3) || !ran.err.contains("remedy: ") {
        faults.push(format!("it is not refused with a remedy: {}", ran.told()));
    }
    if !steps.is_empty() || model.asked() > 0 {
        faults.push("a run went on without what holds it".to_owned());
    }
    let outcome = if ran.code == Some(0) { Outcome::Ok } else { Outcome::Error };
    Ok(Seen { outcome: Some(outcome), err: ran.err, runs, faults, ..Seen::default() })
}
