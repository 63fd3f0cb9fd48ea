//! Attacks of our own writing, run through the one door, and looked at from both sides.
//!
//! ```text
//!   corpus ──▶ for each tier: two runs ── attack by attack ──▶ inside: what it printed
//!                 (two.rs)                              └──▶ outside: canary, listeners, who was asked for and
//!                                                             connected to (way.rs), the record, what is left
//! ```
//!
//! An attack holds only when it ran to its end, tried something, was refused every time, and nothing of it was
//! seen outside. One that could not be run at all is an error, never a success; one that fails where nothing contains it
//! as well, or that something else than its layer stopped, is told apart: it shows nothing of that layer.

mod about;
mod control;
mod corpus;
mod left;
mod modules;
mod outside;
mod planted;
mod player;
#[cfg(test)]
mod reference;
mod two;
mod way;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use policy::{Deployment, Grant, StoppedBy, Tier, TierChoice};
use sandbox::{Cancel, Ended, Host, Report, SandboxError};
use serde::Serialize;
use serde_json::Value;

pub use about::About;
pub use control::Controls;
pub use corpus::{Attack, BadCorpus, Control, Corpus};
pub use modules::prove_modules;
pub use outside::Outside;
pub use planted::leave_open;
pub use player::{Directly, Played, Player};

use crate::{Code, Opening, ProgramCall, Run, RunError, RunResult, Standing};
use left::{came_out, let_out};
use two::Two;

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
    /// What showed that it could succeed at all; empty where it means nothing, and for a look afterwards.
    pub control: String,
    /// Tries that its control outside did not succeed in, or did not make, by their names; none where none succeeded.
    pub unshown: Vec<String>,
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
    /// Refused, but also outside of any sandbox here, or by something else than its layer: it shows nothing of that.
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

/// Runs all attacks of a corpus on a tier, with controls that other tiers may have asked for already. `folder` is an empty folder for the runs and the canary.
///
/// # Errors
/// [`RunError`] when the tier cannot be had, before the first attack: whatever fails later is a row.
pub async fn prove(
    host: &Host,
    tier: Tier,
    (corpus, controls): (&Corpus, &Controls),
    folder: &Path,
    told: &(dyn Fn(&str) + Sync),
) -> Result<Proof, RunError> {
    if tier == Tier::Wasm {
        return prove_modules(host, corpus, folder, told, &|_| {}).await;
    }
    prove_by(host, &small(tier), (corpus, controls), folder, &Directly, told).await
}

/// The same under any grant, with every attack made by a player: what it refuses to start has been refused. The grant
/// names its tier, which is not `wasm`.
///
/// # Errors
/// [`RunError`] when the tier cannot be had, before the first attack: whatever fails later is a row.
pub async fn prove_by(
    host: &Host,
    grant: &Grant,
    (corpus, controls): (&Corpus, &Controls),
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
    let mut two = Two::open(host, grant, &store, &outside).await?;
    let report = two.run.report();
    let mut attacks = Vec::new();
    // Once no sandbox can be had any more, nothing further can be shown.
    let mut over: Option<String> = None;
    for attack in corpus.attacks().iter().filter(|a| a.module.is_none()) {
        told(&attack.id);
        let begun = Instant::now();
        if let Some(why) = over.as_ref().filter(|_| attack.layers.contains_key(tier.as_str())) {
            let untried = untried(tier, attack, why);
            player.shown(&untried);
            attacks.push(untried);
            continue;
        }
        let tried = one((tier, attack), &two, (corpus, controls), (&outside, player)).await;
        let (mut shown, quiet) = match tried {
            Err(RunError::Cancelled) => return Err(RunError::Cancelled),
            Err(e) => (untried(tier, attack, &e.told()), false),
            Ok(tried) => tried,
        };
        // One that came to its end in peace has shown that its sandbox lives: to ask again would cost as much on an
        // emulated machine.
        if !quiet && let Err(e) = two.renew().await {
            over = Some(format!("not tried: after `{}` no sandbox could be had: {}", attack.id, e.told()));
            shown.spoil(format!("after it no sandbox could be had: {}", e.told()));
        }
        shown.duration_ms = millis(begun);
        player.shown(&shown);
        attacks.push(shown);
    }
    let had_a_way = two.neighbour.has_way_out();
    let (ids, way, trouble) = two.finish().await;
    let mut afterwards = afterwards(host, tier, &store, &ids, outside.content());
    if had_a_way {
        afterwards.push(told_before(&store, &ids, way.dialled()));
    }
    if !trouble.is_empty() {
        afterwards.push(looked_at("the-runs-were-ended", Verdict::Error, trouble.join("; ")));
    }
    Ok(Proof { tier, report, attacks, afterwards, duration_ms: millis(began) })
}

fn millis(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// That nothing could be brought out of a sandbox that an attack has ended is no fault of the proof; that the run's own
/// files failed is one.
fn not_ended(finished: Result<RunResult, RunError>) -> Option<String> {
    match finished {
        Ok(_) | Err(RunError::Sandbox(_)) => None,
        Err(e) => Some(e.told()),
    }
}

/// An attack that could not be made.
fn untried(tier: Tier, attack: &Attack, why: &str) -> Shown {
    let layer = attack.layers.get(tier.as_str()).map_or("", String::as_str);
    shown_of(attack, layer, Verdict::Error, 0, why.to_owned())
}

impl Shown {
    /// It proves nothing any more; that it got what it wanted stays true.
    fn spoil(&mut self, why: String) {
        if self.verdict != Verdict::Broken {
            self.verdict = Verdict::Error;
        }
        self.detail = [std::mem::take(&mut self.detail), why]
            .into_iter()
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join("; ");
    }
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
    // For the slowest machine: what is ended by time has less, and a call that only takes long shows nothing.
    grant.call.timeout = Duration::from_secs(120);
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
        control: String::new(),
        unshown: Vec::new(),
        refused,
        detail,
        duration_ms: 0,
    }
}

/// What came of an attack, and whether it left both sandboxes in peace.
async fn one(
    (tier, attack): (Tier, &Attack),
    two: &Two<'_>,
    (corpus, controls): (&Corpus, &Controls),
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
    let facts = || two.facts(tier.as_str(), attack.granted, outside);
    let (control, without) = match &attack.control {
        Some(by @ (Control::Host | Control::Namespace | Control::Root)) => match controls.of(attack) {
            Ok(without) => (without.told(by), Some(without)),
            Err(e) => return Ok((shown(layer, Verdict::Error, 0, format!("the control: {e}")), true)),
        },
        Some(Control::Missing { why }) => (format!("none: {why}"), None),
        Some(Control::Inner) | None => ("inside".to_owned(), None),
    };
    outside.forget();
    if let Some(plant) = &attack.plant {
        let planted = execute(&two.neighbour, plant, &facts(), (attack, false), &Directly).await;
        let said = match planted.unwrap_or_else(|e| Err(e.told())) {
            Ok(said) => said,
            Err(why) => {
                let why = format!("nothing could be planted: {why}");
                return Ok((shown(layer, Verdict::Error, 0, why), false));
            }
        };
        if said.controls == 0 || !said.failed.is_empty() {
            let detail = format!("nothing could be planted: {}", said.failed.join("; "));
            return Ok((shown(layer, Verdict::Error, 0, detail), false));
        }
    }
    let run = if attack.granted { &two.neighbour } else { &two.run };
    // The neighbour's processes are there only now.
    let facts = facts();
    let said = if attack.terminal {
        // No role can ask for one.
        execute(run, &attack.program, &facts, (attack, true), &Directly).await
    } else {
        execute(run, &attack.program, &facts, (attack, false), player).await
    };
    let (said, after) = match said {
        Ok(Ok(said)) => (said, &attack.after[..]),
        Ok(Err(why)) => return Ok((shown("policy", Verdict::Held, 1, why), true)),
        Err(RunError::Cancelled) => return Err(RunError::Cancelled),
        // It may have got something all the same: what is seen outside is looked at.
        Err(e) => (Said { trouble: e.told(), ..Said::default() }, &[][..]),
    };
    let mut broken = said.broken.clone();
    broken.extend(two.seen(outside).await);
    for next in after {
        broken.extend(trouble_after(run, next, &facts, attack).await);
    }
    let refused = said.held.len();
    let quiet = said.ended && said.struck.is_none() && attack.struck_by.is_empty();
    let mut shown = if !broken.is_empty() {
        shown(layer, Verdict::Broken, refused, broken.join("; "))
    } else if !said.failed.is_empty() {
        shown(layer, Verdict::Error, refused, format!("its control failed: {}", said.failed.join("; ")))
    } else if !said.ended {
        shown(layer, Verdict::Error, refused, format!("it did not run to its end: {}", said.trouble))
    } else if refused == 0 && said.struck.is_none() {
        shown(layer, Verdict::Error, refused, "it tried nothing".to_owned())
    } else if attack.control == Some(Control::Inner) && said.controls == 0 {
        shown(layer, Verdict::Error, refused, "its control said nothing".to_owned())
    } else {
        let around = without.as_ref().and_then(|without| without.around(attack.wants.as_deref()));
        let (by_others, why) = match (around, corpus.answers(layer)) {
            (Some(why), _) => (true, why),
            (None, Some(theirs)) => said.by_others(layer, theirs),
            (None, None) => (false, String::new()),
        };
        let struck = said.struck.map(|by| format!("ended: {by}"));
        let detail = [struck, Some(why)].into_iter().flatten().filter(|words| !words.is_empty());
        let verdict = if by_others { Verdict::HeldAround } else { Verdict::Held };
        shown(layer, verdict, refused, detail.collect::<Vec<_>>().join("; "))
    };
    shown.control = control;
    shown.unshown = without.map(|w| w.unshown(&tries(&said.held, &facts))).unwrap_or_default();
    Ok((shown, quiet))
}

/// What is wrong with a call behind an attack, in the same sandbox: it must go on as if nothing had been.
async fn trouble_after(run: &Run, next: &str, facts: &Value, attack: &Attack) -> Option<String> {
    let said = match execute(run, next, facts, (attack, false), &Directly).await {
        Ok(Ok(said)) => said,
        Ok(Err(why)) => return Some(why),
        // The sandbox that was to go on is gone.
        Err(e) => return Some(format!("the next call could not be made: {}", e.told())),
    };
    let well = said.ended && said.struck.is_none() && said.controls > 0;
    if !said.failed.is_empty() {
        Some(format!("the next call found it broken: {}", said.failed.join("; ")))
    } else if !well {
        Some(format!("the next call did not end well: {}", said.trouble))
    } else {
        None
    }
}

/// What a program printed, or why it was not started.
async fn execute(
    run: &Run,
    program: &str,
    facts: &Value,
    (attack, terminal): (&Attack, bool),
    player: &impl Player,
) -> Result<Result<Said, String>, RunError> {
    let program = corpus::program(program);
    let argv = ["python3", "-I", "-S", "-c", &program, &facts.to_string()].map(str::to_owned).to_vec();
    let timeout = attack.seconds.map(Duration::from_secs);
    let (tool, stdin) = ("prove".to_owned(), Vec::new());
    let call = ProgramCall { tool, argv, cwd: None, stdin, terminal, timeout };
    let done = match player.play(run, &attack.id, call).await? {
        Played::Done(done) => *done,
        Played::Refused(why) => return Ok(Err(why)),
    };
    let mut said = Said::of(&done.stdout);
    let by = done.outcome.stopped_by;
    said.ended = done.outcome.ended == Ended::Exit(0) && by == StoppedBy::Exit;
    // A bomb that ran out of time, or whose sandbox was lost, has shown nothing of the bound that it is for.
    if attack.struck_by.contains(&by) {
        said.ended = true;
        said.struck = Some(by.to_string());
    }
    let last = done.stderr.lines().last().unwrap_or_default();
    said.trouble = format!("{by}{}, {:?}, {last}", attack.not_struck(by), done.outcome.ended);
    Ok(Ok(said))
}

/// What an attack printed, line by line; a guest's word, from a program of ours.
#[derive(Debug, Default)]
struct Said {
    held: Vec<String>,
    broken: Vec<String>,
    failed: Vec<String>,
    controls: usize,
    untried: Option<String>,
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
                Some(("untried", why)) => said.untried = Some(why.to_owned()),
                _ => {}
            }
        }
        said
    }

    /// The names of the errors that tries were answered with.
    fn answers(&self) -> BTreeSet<&str> {
        self.held.iter().filter_map(|line| answer(line)).collect()
    }

    /// Whether something else than its layer stopped all that was answered at all, and words for what it stopped.
    fn by_others(&self, layer: &str, theirs: &BTreeSet<String>) -> (bool, String) {
        let answers: Vec<&str> = self.held.iter().filter_map(|line| answer(line)).collect();
        let others: Vec<&str> = answers.iter().copied().filter(|name| !theirs.contains(*name)).collect();
        if others.is_empty() {
            return (false, String::new());
        }
        let names: Vec<&str> = others.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let (some, of) = (others.len(), answers.len());
        (some == of, format!("{some} of {of} stopped by something else than {layer}: {}", names.join(", ")))
    }
}

/// The names of tries; the number of a process that stands in one is left out, for it is another each time.
fn tries(lines: &[String], facts: &Value) -> BTreeSet<String> {
    let numbers: BTreeSet<String> = ["pids", "neighbours"]
        .iter()
        .flat_map(|key| facts[*key].as_array().into_iter().flatten())
        .map(Value::to_string)
        .collect();
    let name = |line: &String| {
        let words = line.split(' ').next().unwrap_or_default().split('_');
        words.map(|word| if numbers.contains(word) { "N" } else { word }).collect::<Vec<_>>().join("_")
    };
    lines.iter().map(name).collect()
}

/// The name of an error behind the name of a try.
fn answer(line: &str) -> Option<&str> {
    let name = line.split(' ').nth(1)?;
    let error = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
    (name.len() > 2 && name.starts_with('E') && name.chars().all(error)).then_some(name)
}

/// When the sandboxes of these runs are gone: no process of theirs, no private folder, and a record that is whole.
pub fn afterwards(host: &Host, tier: Tier, store: &Path, ids: &[String], secret: &str) -> Vec<Shown> {
    let shown = |id: &str, invariant: &str, layer: &str, bad: Vec<String>| Shown {
        id: id.to_owned(),
        invariant: invariant.to_owned(),
        layer: layer.to_owned(),
        verdict: if bad.is_empty() { Verdict::Held } else { Verdict::Broken },
        control: String::new(),
        unshown: Vec::new(),
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

/// A look at the runs when they are over, about what the executor itself has to do.
fn looked_at(id: &str, verdict: Verdict, detail: String) -> Shown {
    Shown {
        id: id.to_owned(),
        invariant: "record_is_true".to_owned(),
        layer: "executor".to_owned(),
        verdict,
        control: String::new(),
        unshown: Vec::new(),
        refused: 0,
        detail,
        duration_ms: 0,
    }
}

/// That whatever was connected to had been let, and written down.
fn told_before(store: &Path, ids: &[String], dialled: u64) -> Shown {
    let let_out = let_out(store, ids);
    let bad = dialled > let_out;
    Shown {
        id: "what-passed-is-recorded".to_owned(),
        invariant: "record_is_true".to_owned(),
        layer: "egress".to_owned(),
        verdict: if bad { Verdict::Broken } else { Verdict::Held },
        control: String::new(),
        unshown: Vec::new(),
        refused: 0,
        detail: if bad { format!("{dialled} connections, {let_out} in the records") } else { String::new() },
        duration_ms: 0,
    }
}
