//! Rows that are calls of a model: a whole `oubliette run` whose model says what the row says, one answer at a time, so
//! that the host can be looked at while the run goes on.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Reply, Script, ScriptedModel, given};

use super::judge::{Seen, Step, files, steps};
use super::world::World;
use crate::absent::{NO_USER_NAMESPACES, without};
use crate::place::{Ran, act, finish};
use crate::process::{Process, Started, begun, descendants, until};

const TOOLS: [&str; 8] =
    ["run_shell", "run_command", "read_file", "write_file", "edit_file", "list_dir", "search", "finish"];
/// What a call started must be gone by then.
const GONE: Duration = Duration::from_millis(500);
/// How long the attacker of a race goes on.
const RACE: Duration = Duration::from_secs(8);
/// Calls in one answer.
const AT_ONCE: usize = 16;

/// A run whose model waits for our word.
pub(super) struct Drive {
    program: Started,
    server: ScriptedModel,
    hand: Sender<Reply>,
    pub(super) dir: PathBuf,
    /// Requests so far.
    asked: usize,
    pub(super) texts: Vec<String>,
    /// What ends the role.
    last: Vec<Reply>,
}

impl Drive {
    /// Starts the run and waits for its first request.
    pub(super) fn start(world: &World, tools: &[&str], native: bool) -> Drive {
        let place = &world.place;
        place.guild(tools);
        let (hand, reply) = given();
        let script = Script::new([reply]).last_again().n_ctx(Some(1_000_000));
        let server = if native { script.native() } else { script }.start();
        let before = place.ids();
        let program = begun(&mut place.run_command(&server.base_url()));
        until("the model is asked", || !server.asked().is_empty() || program.has_ended());
        assert!(!program.has_ended(), "{}: {:?}", world.id(), program.ended());
        let id = place.ids().into_iter().find(|id| !before.contains(id)).unwrap();
        let dir = place.path("data/runs").join(id);
        let last = match (tools.contains(&"finish"), native) {
            // Who cannot finish ends by saying nothing more.
            (false, _) | (_, true) => vec![Reply::Text("done".to_owned()); 2],
            (true, false) => vec![finish()],
        };
        Drive { program, server, hand, dir, asked: 1, texts: Vec::new(), last }
    }

    fn workspace(&self) -> PathBuf {
        self.dir.join("workspace")
    }

    /// Gives an answer and waits for the next request. Says whether the run goes on.
    pub(super) fn say(&mut self, reply: Reply) -> bool {
        self.hand.send(reply).unwrap();
        self.heard()
    }

    /// Waits for the next request. Says whether the run goes on.
    fn heard(&mut self) -> bool {
        until("the next request", || self.server.asked().len() > self.asked || self.program.has_ended());
        let asked = self.server.asked();
        if asked.len() <= self.asked {
            return false;
        }
        let told = |at: usize| asked[at].body["messages"].as_array().unwrap().clone();
        let (before, now) = (told(self.asked - 1), told(self.asked));
        let new = now.iter().skip(before.len()).filter(|m| m["role"] != "assistant");
        let texts: Vec<&str> = new.filter_map(|m| m["content"].as_str()).collect();
        self.texts.push(texts.join("\n"));
        self.asked += 1;
        true
    }

    /// Ends the run; one that has ended hears nothing.
    pub(super) fn end(self) -> (Ran, PathBuf, Vec<String>) {
        let Drive { program, server, hand, dir, texts, last, .. } = self;
        last.into_iter().for_each(|reply| hand.send(reply).unwrap());
        let ran = program.ended();
        drop(server);
        (ran, dir, texts)
    }

    /// Processes of the run's sandboxes on the host.
    fn on_host(&self) -> BTreeSet<Process> {
        descendants(self.program.forker.id)
    }

    /// How many processes the guest sees.
    pub(super) fn inside(&mut self) -> usize {
        let count = "set -- /proc/[0-9]*; echo processes: $#";
        assert!(self.say(act("run_command", json!({"argv": ["sh", "-c", count]}))));
        let told = self.texts.pop().unwrap();
        let (_, number) = told.split_once("processes: ").unwrap();
        number.split_whitespace().next().unwrap().parse().unwrap()
    }
}

/// The calls of one run.
pub(super) fn played(world: &World) -> Seen {
    let input = &world.row["input"];
    if input["trusted_op"].is_string() {
        return trusted(world);
    }
    if input["parallel"].is_array() {
        return raced(world);
    }
    if input["turns"].is_array() || input["turns_repeat"].is_object() {
        return turned(world);
    }
    let calls = match input["steps"].as_array() {
        Some(steps) => steps.clone(),
        None => vec![input.clone()],
    };
    carried_out(world, &calls)
}

/// A command line as a call of a run.
pub(super) fn one_command(world: &World) -> Seen {
    let argv = world.row["input"].clone();
    carried_out(world, &[json!({"name": "run_command", "arguments": {"argv": argv}})])
}

fn carried_out(world: &World, calls: &[Value]) -> Seen {
    let expect = &world.row["expect"];
    let live = is_live(world);
    if !live {
        world.set_up(&world.source());
    }
    let mut drive = Drive::start(world, &TOOLS, false);
    if live {
        world.set_up(&drive.workspace());
    }
    let counts = expect["survivors"].is_number();
    // Without a view of its own the guest sees everybody's; of gVisor's the host sees the engine's only.
    let from_inside = counts && world.place.tier != "confined";
    let from_outside = counts && world.place.tier != "gvisor";
    // A call before, so that what a sandbox keeps for itself is there.
    let before = if counts { drive.inside() } else { 0 };
    let host_before = drive.on_host();
    let began = Instant::now();
    let mut destroyed = false;
    for call in calls {
        if call["trusted_op"] == "destroy" {
            destroyed = true;
            continue;
        }
        let call = world.filled(call, &drive.workspace());
        drive.say(act(call["name"].as_str().unwrap(), arguments(&call["arguments"])));
    }
    let took = began.elapsed();
    let mut survivors = 0;
    if from_outside {
        let left = || drive.on_host().difference(&host_before).filter(|p| p.lives()).count();
        let looked = Instant::now();
        while left() > 0 && looked.elapsed() < GONE {
            std::thread::sleep(Duration::from_millis(5));
        }
        survivors = left();
    }
    if from_inside {
        let looked = Instant::now();
        let mut now = drive.inside();
        while now > before && looked.elapsed() < GONE {
            now = drive.inside();
        }
        survivors = survivors.max(now.saturating_sub(before));
    }
    if let Some(after) = expect["check_after_s"].as_u64() {
        // While the sandbox lives: what survived in it would do its deed now.
        std::thread::sleep(Duration::from_secs(after).saturating_sub(began.elapsed()));
        let absent: Vec<String> = serde_json::from_value(expect["must_not_exist"].clone()).unwrap();
        files(&drive.workspace(), &absent, false, &|| format!("{} while it runs", world.id()));
    }
    let (ran, dir, texts) = drive.end();
    assert_eq!(ran.code, Some(0), "{}: {ran:?}", world.id());
    if destroyed {
        destroy(world);
    }
    let all = if destroyed { Vec::new() } else { steps_of(&dir) };
    let steps = all.into_iter().skip(usize::from(counts)).take(calls.len()).collect();
    Seen {
        outcome: destroyed.then_some("ok"),
        truncated: texts.iter().any(|text| text.contains("(the output was shortened)")),
        survivors: counts.then_some(survivors),
        texts,
        steps,
        took,
        runs: vec![dir],
        ..Seen::default()
    }
}

/// Rows whose files the guest would have made, and those that speak of the run's own workspace.
fn is_live(world: &World) -> bool {
    ["path-escape", "special-file", "confused-deputy"].contains(&world.row["class"].as_str().unwrap())
        || world.row["setup"].to_string().contains("{{WORKSPACE}}")
}

/// Neutral words for ours.
fn arguments(given: &Value) -> Value {
    let mut args = given.clone();
    if let Some(folder) = args.as_object_mut().and_then(|a| a.remove("cwd")) {
        args["workdir"] = folder;
    }
    args
}

pub(super) fn steps_of(dir: &Path) -> Vec<Step> {
    let text = fs::read_to_string(dir.join("events.jsonl")).unwrap();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    steps(&events)
}

/// What a role says in its turns, by native calls, exactly as the row has them.
fn turned(world: &World) -> Seen {
    let input = &world.row["input"];
    world.set_up(&world.source());
    let tools: Vec<&str> =
        world.row["policy"]["role_tools"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    let turns: Vec<Value> = match (&input["turns"], &input["turns_repeat"]) {
        (Value::Array(turns), _) => turns.clone(),
        (_, again) => {
            let turns = again["turns"].as_array().cloned().unwrap_or_else(|| vec![again["turn"].clone()]);
            let times = usize::try_from(again["times"].as_u64().unwrap()).unwrap();
            std::iter::repeat_n(turns, times).flatten().collect()
        }
    };
    let began = Instant::now();
    let mut drive = Drive::start(world, &tools, true);
    for turn in turns {
        let calls = turn["tool_calls"].as_array().unwrap().iter().map(|call| {
            let raw = call["arguments_raw"].as_str().map(|raw| json!(raw));
            (call["name"].as_str().unwrap().to_owned(), raw.unwrap_or_else(|| call["arguments"].clone()))
        });
        if !drive.say(Reply::Calls(calls.collect())) {
            break;
        }
    }
    let took = began.elapsed();
    let (_, dir, texts) = drive.end();
    let result: Value = serde_json::from_slice(&fs::read(dir.join("result.json")).unwrap()).unwrap();
    let killed =
        ["loop_detected", "tool_call_limit", "step_limit"].map(Value::from).contains(&result["stop"]);
    Seen {
        outcome: killed.then_some("killed"),
        steps: steps_of(&dir),
        texts,
        took,
        runs: vec![dir],
        ..Seen::default()
    }
}

/// Separate runs, one after the other or at the same time.
pub(super) fn several(world: &World) -> Seen {
    let input = &world.row["input"];
    let at_once = input["runs_parallel"].is_array();
    let runs = if at_once { &input["runs_parallel"] } else { &input["runs"] };
    let ended = RefCell::new(Vec::new());
    let end = |drive: Drive| {
        let (ran, dir, texts) = drive.end();
        assert_eq!(ran.code, Some(0), "{}: {ran:?}", world.id());
        ended.borrow_mut().push((dir, texts));
    };
    let play = |drive: &mut Drive, calls: &Value| {
        for call in calls.as_array().unwrap() {
            let call = world.filled(call, &drive.workspace());
            assert!(drive.say(act(call["name"].as_str().unwrap(), arguments(&call["arguments"]))));
        }
    };
    let runs = runs.as_array().unwrap();
    if at_once {
        let mut drives: Vec<Drive> = runs.iter().map(|_| Drive::start(world, &TOOLS, false)).collect();
        // Both have their sandbox before either begins; the calls of each come at once.
        for (drive, calls) in drives.iter_mut().zip(runs) {
            let call = world.filled(&calls[0], &drive.workspace());
            assert_eq!(calls.as_array().unwrap().len(), 1);
            drive.hand.send(act(call["name"].as_str().unwrap(), arguments(&call["arguments"]))).unwrap();
        }
        for drive in &mut drives {
            assert!(drive.heard());
        }
        drives.into_iter().for_each(end);
    } else {
        for calls in runs {
            let mut drive = Drive::start(world, &TOOLS, false);
            play(&mut drive, calls);
            end(drive);
        }
    }
    let ended = ended.into_inner();
    let steps: Vec<Step> = ended.iter().flat_map(|(dir, _)| steps_of(dir)).collect();
    let worst = steps.iter().find(|step| step.outcome != "ok").map(|step| step.outcome);
    let (runs, texts): (Vec<PathBuf>, Vec<Vec<String>>) = ended.into_iter().unzip();
    Seen { outcome: worst, steps, texts: texts.concat(), runs, ..Seen::default() }
}

/// What the executor itself does with a workspace when the run ends.
fn trusted(world: &World) -> Seen {
    let input = &world.row["input"];
    let drive = Drive::start(world, &TOOLS, false);
    world.set_up(&drive.workspace());
    let (ran, dir, mut texts) = drive.end();
    assert_eq!(ran.code, Some(0), "{}: {ran:?}", world.id());
    texts.extend([ran.out.clone(), fs::read_to_string(dir.join("changes.patch")).unwrap()]);
    let refused = ran.json()["changes"]["refused"].to_string();
    let paths = input["paths"].as_array().into_iter().flatten();
    let denied = paths.into_iter().any(|path| refused.contains(path.as_str().unwrap()));
    Seen { outcome: Some(if denied { "denied" } else { "ok" }), texts, runs: vec![dir], ..Seen::default() }
}

/// File calls while something inside swaps what they name. Calls of a run come one after the other, so what swaps is
/// sent into the background.
fn raced(world: &World) -> Seen {
    world.set_up(&world.source());
    let mut policy = fs::read_to_string(world.place.path("oubliette.toml")).unwrap();
    policy.push_str("[budget]\nsteps = 9000\ntool_calls = 9000\nrepeats = 9000\ntokens = 1000000000\n");
    world.place.write("oubliette.toml", policy);
    let mut drive = Drive::start(world, &TOOLS, true);
    let workspace = drive.workspace();
    let calls = world.filled(&world.row["input"]["parallel"], &workspace);
    let (shell, others) = calls.as_array().unwrap().split_first().unwrap();
    let command =
        format!("( {} ) </dev/null >/dev/null 2>&1 &", shell["arguments"]["command"].as_str().unwrap());
    assert!(drive.say(Reply::Calls(vec![("run_shell".to_owned(), json!({"command": command}))])));
    let began = Instant::now();
    let of = |call: &Value| (call["name"].as_str().unwrap().to_owned(), call["arguments"].clone());
    let times = others.iter().map(|call| call["repeat"].as_u64().unwrap()).max().unwrap();
    let all: Vec<(String, Value)> = (0..times).flat_map(|_| others.iter().map(of)).collect();
    for some in all.chunks(AT_ONCE) {
        // Beyond that nobody races any more.
        if began.elapsed() < RACE {
            assert!(drive.say(Reply::Calls(some.to_vec())));
        }
    }
    let took = began.elapsed();
    let (_, dir, texts) = drive.end();
    let steps = steps_of(&dir);
    // An engine that is kept busy takes its time for each.
    assert!(steps.len() > AT_ONCE, "{}: only {} calls", world.id(), steps.len());
    assert!(steps.iter().skip(1).all(|s| ["ok", "denied", "error"].contains(&s.outcome)), "{steps:?}");
    Seen { outcome: Some(steps[0].outcome), texts, took, runs: vec![dir], ..Seen::default() }
}

/// A run where what holds the tier was taken away.
pub(super) fn refused(world: &World) -> Seen {
    assert_eq!(world.row["policy"]["simulate"], "sandbox_unavailable");
    world.place.guild(&TOOLS);
    let call = &world.row["input"];
    let server =
        Script::new([act(call["name"].as_str().unwrap(), call["arguments"].clone()), finish()]).start();
    let url = server.base_url();
    let ran = without(&world.place, &NO_USER_NAMESPACES, &world.place.run_args(&url));
    assert_eq!(ran.code, Some(3), "{}: {ran:?}", world.id());
    assert!(ran.err.contains("remedy: "), "{}: {ran:?}", world.id());
    assert!(world.place.events_of("tool_start").is_empty() && server.asked().is_empty());
    Seen { outcome: Some("error"), err: ran.err, runs: vec![world.place.newest()], ..Seen::default() }
}

/// What clearing up does with a workspace.
fn destroy(world: &World) {
    world.place.write("oubliette.toml", "[records]\nmax_bytes = \"1KiB\"\n");
    let cleared = world.place.ran(["runs", "gc"]);
    assert_eq!(cleared.code, Some(0), "{}: {cleared:?}", world.id());
}
