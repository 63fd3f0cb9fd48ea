//! Attacks of our own writing, run through the one door, and looked at from both sides.
//!
//! ```text
//!   corpus ──▶ for each tier: two runs ── attack by attack ──▶ inside: what it printed
//!                                                       └──▶ outside: canary, listeners, the record, what is left
//! ```
//!
//! An attack holds only when it ran to its end, tried something, was refused every time, and nothing of it was
//! seen outside. One that could not be run at all is an error, never a success; one whose control does not
//! succeed outside either is told apart, because then something around us holds it too.

mod control;
mod corpus;
mod left;
mod modules;
mod outside;
mod player;
#[cfg(test)]
mod reference;

use std::path::Path;
use std::time::{Duration, Instant};

use policy::{Deployment, Grant, StopReason, StoppedBy, Tier, TierChoice};
use sandbox::{Cancel, Ended, Host, Report, SandboxError};
use serde::Serialize;
use serde_json::{Value, json};

pub use corpus::{Attack, BadCorpus, Corpus};
pub use outside::Outside;
pub use player::{Directly, Played, Player};

use crate::{Code, Opening, ProgramCall, Run, RunError, RunResult, Standing};
use left::came_out;

/// What came of the attacks on one tier.
#[derive(Clone, Debug, Serialize)]
pub struct Proof {
    /// Which.
    pub tier: Tier,
    /// What was in force.
    pub report: Report,
    /// Attack by attack.
    pub attacks: Vec<Shown>,
    /// Seen from outside when both sandboxes were gone.
    pub afterwards: Vec<Shown>,
    /// Wall clock.
    pub duration_ms: u64,
}

/// What came of one attack.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// Which.
    pub id: String,
    /// The invariant that it attacks.
    pub invariant: String,
    /// The layer that must stop it on this tier.
    pub layer: String,
    /// What came of it.
    pub verdict: Verdict,
    /// Tries that were refused.
    pub refused: usize,
    /// Why, where there is something to say.
    pub detail: String,
    /// Wall clock.
    pub duration_ms: u64,
}

/// What came of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Refused, and its control succeeded.
    Held,
    /// Refused, but so is its control outside: something around this program holds it as well.
    HeldAround,
    /// It got what it wanted.
    Broken,
    /// It could not be tried: proves nothing.
    Error,
    /// It means nothing on this tier; the detail says why.
    NotHere,
}

impl Proof {
    /// Whether every attack that means something here was refused.
    pub fn holds(&self) -> bool {
        self.attacks.iter().chain(&self.afterwards).all(|a| match a.verdict {
            Verdict::Held | Verdict::HeldAround | Verdict::NotHere => true,
            Verdict::Broken | Verdict::Error => false,
        })
    }
}

/// Runs all attacks of a corpus on a tier. `folder` is an empty folder for the runs and the canary.
///
/// # Errors
/// [`RunError`] when the tier cannot be had, or the runs' own files fail.
pub async fn prove(
    host: &Host,
    tier: Tier,
    corpus: &Corpus,
    folder: &Path,
    told: &(dyn Fn(&str) + Sync),
) -> Result<Proof, RunError> {
    if tier == Tier::Wasm {
        return modules::prove(host, corpus, folder, told).await;
    }
    prove_by(host, &small(tier), corpus, folder, &Directly, told).await
}

/// The same under any grant, with every attack made by a player: what it refuses to start has been refused. The grant
/// names its tier, which is not `wasm`.
///
/// # Errors
/// [`RunError`] when the tier cannot be had, or the runs' own files fail.
pub async fn prove_by(
    host: &Host,
    grant: &Grant,
    corpus: &Corpus,
    folder: &Path,
    player: &impl Player,
    told: &(dyn Fn(&str) + Sync),
) -> Result<Proof, RunError> {
    let Some(tier) = grant.isolation.tier.fixed().filter(|tier| *tier != Tier::Wasm) else {
        return Err(RunError::Sandbox(SandboxError::Refused {
            reason: "these attacks are made on a named tier that starts programs".to_owned(),
            remedy: "name one with `--tier`".to_owned(),
        }));
    };
    let began = Instant::now();
    let aimed =
        |attack: &Attack| [&attack.layers, &attack.not].iter().any(|at| at.contains_key(tier.as_str()));
    if !corpus.attacks().iter().any(aimed) {
        return Err(RunError::Sandbox(SandboxError::Refused {
            reason: format!("no attack is written for the tier `{tier}` yet"),
            remedy: "prove another tier with `--tier`, or bring attacks of your own with `--attacks`"
                .to_owned(),
        }));
    }
    let store = folder.join(format!("runs-{tier}"));
    let outside = Outside::new(&folder.join(format!("canary-{tier}")))?;
    // One after the other: two machines that start at once on a busy host may take longer than a start may take.
    let mut run = open(host, grant, &store, None).await?;
    let mut neighbour = open(host, grant, &store, None).await?;
    let report = run.report();
    let mut ids = vec![run.id().to_owned(), neighbour.id().to_owned()];
    let mut attacks = Vec::new();
    for attack in corpus.attacks().iter().filter(|a| a.module.is_none()) {
        told(&attack.id);
        let begun = Instant::now();
        let (mut shown, quiet) = one(host, tier, attack, (&run, &neighbour), (&outside, player)).await?;
        shown.duration_ms = millis(begun);
        attacks.push(shown);
        // Some attacks end the sandbox they are in, which is no way out of it; the next gets a new one. One that came
        // to its end in peace has shown that its sandbox lives: to ask again would cost as much on an emulated machine.
        for run in [&mut run, &mut neighbour] {
            if !quiet && !alive(run).await {
                let next = open(host, grant, &store, None).await?;
                ids.push(next.id().to_owned());
                ended(std::mem::replace(run, next).finish(StopReason::SandboxError, "", 0).await)?;
            }
        }
    }
    let (one, other) =
        tokio::join!(run.finish(StopReason::Finished, "", 0), neighbour.finish(StopReason::Finished, "", 0));
    ended(one)?;
    ended(other)?;
    let afterwards = afterwards(host, tier, &store, &ids, outside.content());
    Ok(Proof { tier, report, attacks, afterwards, duration_ms: millis(began) })
}

fn millis(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// That nothing could be brought out of a sandbox that an attack has ended is no fault of the proof.
fn ended(finished: Result<RunResult, RunError>) -> Result<(), RunError> {
    match finished {
        Ok(_) | Err(RunError::Sandbox(_)) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Whether a sandbox still answers.
async fn alive(run: &Run) -> bool {
    let call = ProgramCall {
        tool: "prove".to_owned(),
        argv: vec!["true".to_owned()],
        cwd: None,
        stdin: Vec::new(),
        terminal: false,
        timeout: None,
    };
    let (_keep, cancel) = Cancel::new();
    run.execute(call, &cancel).await.is_ok_and(|done| done.outcome.ended == Ended::Exit(0))
}

/// A grant with small bounds, so that bombs are small.
pub fn small(tier: Tier) -> Grant {
    let mut grant = Grant::without_guild(&Deployment::default());
    grant.isolation.floor = Tier::Confined;
    grant.isolation.tier = match tier {
        Tier::Confined => TierChoice::Confined,
        Tier::Namespace => TierChoice::Namespace,
        Tier::Gvisor => TierChoice::Gvisor,
        Tier::Microvm => TierChoice::Microvm,
        Tier::Wasm => TierChoice::Wasm,
    };
    grant.limits.memory = 256 << 20;
    grant.limits.processes = 64;
    grant.limits.disk = 64 << 20;
    grant.limits.tmp = 64 << 20;
    grant.call.output = 1 << 20;
    grant.call.flood = 4 << 20;
    grant.call.to_model = 1 << 20;
    grant.call.timeout = Duration::from_secs(40);
    grant
}

async fn open(host: &Host, grant: &Grant, store: &Path, module: Option<&Code>) -> Result<Run, RunError> {
    let mut meta = serde_json::Map::new();
    meta.insert("command".to_owned(), "prove".into());
    let (_keep, cancel) = Cancel::new();
    let opening = Opening {
        grant,
        store,
        source: None,
        history: crate::History::None,
        module,
        tools: &[],
        secrets: Vec::new(),
        mask: Vec::new(),
        granted: Vec::new(),
        meta,
        progress: &|_, _| true,
        waiting: &|_| true,
        // Who proves is ended by being dropped.
        cancel: &cancel,
        watch: None,
    };
    Run::open(host, opening).await
}

fn shown_of(attack: &Attack, layer: &str, verdict: Verdict, refused: usize, detail: String) -> Shown {
    Shown {
        id: attack.id.clone(),
        invariant: attack.invariant.clone(),
        layer: layer.to_owned(),
        verdict,
        refused,
        detail,
        duration_ms: 0,
    }
}

/// What came of an attack, and whether it left both sandboxes in peace.
async fn one(
    host: &Host,
    tier: Tier,
    attack: &Attack,
    (run, neighbour): (&Run, &Run),
    (outside, player): (&Outside, &impl Player),
) -> Result<(Shown, bool), RunError> {
    let shown = |layer: &str, verdict: Verdict, refused: usize, detail: String| {
        shown_of(attack, layer, verdict, refused, detail)
    };
    let Some(layer) = attack.layers.get(tier.as_str()) else {
        return Ok(match attack.not.get(tier.as_str()) {
            Some(why) => (shown("", Verdict::NotHere, 0, why.clone()), true),
            None => {
                let why = "the corpus names no layer for this tier".to_owned();
                (shown("", Verdict::Error, 0, why), true)
            }
        });
    };
    let facts = facts(host, tier.as_str(), (run, neighbour), outside);
    let around = match attack.control.as_deref() {
        Some("host") => {
            let mut there = facts.clone();
            there["where"] = "host".into();
            match control::on_host(&corpus::program(&attack.program), &there) {
                Ok(said) => !Said::of(&said).broken.is_empty(),
                Err(e) => {
                    return Ok((shown(layer, Verdict::Error, 0, format!("the control: {e}")), true));
                }
            }
        }
        _ => true,
    };
    // What the control itself left with the listeners is no sign of the attack.
    outside.forget();
    if let Some(plant) = &attack.plant {
        let said = match execute(neighbour, plant, &facts, attack, &Directly).await? {
            Ok(said) => said,
            Err(why) => return Ok((shown(layer, Verdict::Error, 0, why), true)),
        };
        if said.controls == 0 || !said.failed.is_empty() {
            let detail = format!("nothing could be planted: {}", said.failed.join("; "));
            return Ok((shown(layer, Verdict::Error, 0, detail), false));
        }
    }
    // The neighbour's processes are there only now.
    let facts = self::facts(host, tier.as_str(), (run, neighbour), outside);
    let said = match execute(run, &attack.program, &facts, attack, player).await? {
        Ok(said) => said,
        Err(why) => return Ok((shown("policy", Verdict::Held, 1, why), true)),
    };
    let mut broken = said.broken.clone();
    broken.extend(outside.seen());
    let refused = said.held.len();
    let quiet = said.ended && said.struck.is_none() && !attack.struck;
    let shown = if !broken.is_empty() {
        shown(layer, Verdict::Broken, refused, broken.join("; "))
    } else if !said.failed.is_empty() {
        shown(layer, Verdict::Error, refused, format!("its control failed: {}", said.failed.join("; ")))
    } else if !said.ended {
        shown(layer, Verdict::Error, refused, format!("it did not run to its end: {}", said.trouble))
    } else if refused == 0 && said.struck.is_none() {
        shown(layer, Verdict::Error, refused, "it tried nothing".to_owned())
    } else {
        let detail = said.struck.map(|by| format!("ended: {by}")).unwrap_or_default();
        shown(layer, if around { Verdict::Held } else { Verdict::HeldAround }, refused, detail)
    };
    Ok((shown, quiet))
}

/// What an attack is told: where everything is that it is after.
fn facts(host: &Host, tier: &str, (run, neighbour): (&Run, &Run), outside: &Outside) -> Value {
    let mut facts = outside.facts();
    facts["where"] = tier.into();
    facts["host"] = rustix::system::uname().nodename().to_string_lossy().into();
    for (name, pids) in [
        ("pids", vec![std::process::id(), host.forker_id()]),
        ("neighbours", outside::below(host.forker_id())),
    ] {
        facts[format!("{name}_began")] = pids.iter().map(|pid| outside::began(*pid)).collect();
        facts[name] = json!(pids);
    }
    facts["run"] = json!(run.dir());
    facts["neighbour"] = json!(neighbour.dir());
    facts
}

/// What a program printed, or why it was not started.
async fn execute(
    run: &Run,
    program: &str,
    facts: &Value,
    attack: &Attack,
    player: &impl Player,
) -> Result<Result<Said, String>, RunError> {
    let program = corpus::program(program);
    let argv = ["python3", "-I", "-S", "-c", &program, &facts.to_string()].map(str::to_owned).to_vec();
    let timeout = attack.seconds.map(Duration::from_secs);
    let (tool, stdin) = ("prove".to_owned(), Vec::new());
    let call = ProgramCall { tool, argv, cwd: None, stdin, terminal: false, timeout };
    let done = match player.play(run, &attack.id, call).await? {
        Played::Done(done) => *done,
        Played::Refused(why) => return Ok(Err(why)),
    };
    let mut said = Said::of(&done.stdout);
    let by = done.outcome.stopped_by;
    said.ended = done.outcome.ended == Ended::Exit(0) && by == StoppedBy::Exit;
    // A bomb may take its whole sandbox along; the host is what must stand.
    if attack.struck && !matches!(by, StoppedBy::Exit | StoppedBy::Cancelled) {
        said.ended = true;
        said.struck = Some(by.to_string());
    }
    let last = done.stderr.lines().last().unwrap_or_default();
    said.trouble = format!("{by}, {:?}, {last}", done.outcome.ended);
    Ok(Ok(said))
}

/// What an attack printed, line by line; a guest's word, from a program of ours.
#[derive(Debug, Default)]
struct Said {
    held: Vec<String>,
    broken: Vec<String>,
    failed: Vec<String>,
    controls: usize,
    ended: bool,
    struck: Option<String>,
    trouble: String,
}

impl Said {
    fn of(text: &str) -> Said {
        let mut said = Said::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("held", what)) => said.held.push(what.to_owned()),
                Some(("broken", what)) => said.broken.push(what.to_owned()),
                Some(("failed", what)) => said.failed.push(what.to_owned()),
                Some(("control", _)) => said.controls += 1,
                _ => {}
            }
        }
        said
    }
}

/// When the sandboxes of these runs are gone: no process of theirs, no private folder, and a record that is whole.
pub fn afterwards(host: &Host, tier: Tier, store: &Path, ids: &[String], secret: &str) -> Vec<Shown> {
    let shown = |id: &str, invariant: &str, layer: &str, bad: Vec<String>| Shown {
        id: id.to_owned(),
        invariant: invariant.to_owned(),
        layer: layer.to_owned(),
        verdict: if bad.is_empty() { Verdict::Held } else { Verdict::Broken },
        refused: 0,
        detail: bad.join("; "),
        duration_ms: 0,
    };
    let layer = match tier {
        Tier::Confined => "sentinel",
        Tier::Namespace | Tier::Gvisor | Tier::Wasm => "pid-namespace",
        Tier::Microvm => "machine",
    };
    let left = outside::below(host.forker_id()).iter().map(|pid| format!("process {pid}")).collect();
    let mut files = Vec::new();
    let mut records = Vec::new();
    for id in ids {
        for entry in std::fs::read_dir(store.join(id)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let known =
                ["artifacts", "changes.patch", "events.jsonl", "meta.json", "result.json", "workspace"];
            if !known.contains(&name.as_str()) {
                files.push(name);
            }
        }
        match crate::verify(store, id) {
            Ok(checked) if checked.standing == Standing::Whole => {}
            Ok(checked) => records.push(format!("{id}: {:?}", checked.standing)),
            Err(e) => records.push(format!("{id}: {e}")),
        }
    }
    vec![
        shown("no-process-is-left", "nothing_survives", layer, left),
        shown("no-file-is-left", "nothing_survives", "forker", files),
        shown("no-secret-came-out", "nothing_outside", "collect", came_out(store, secret)),
        shown("the-record-is-whole", "record_is_true", "executor", records),
    ]
}
