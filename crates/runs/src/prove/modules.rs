//! Attacks that are modules: for the tier in which no program can be started.
//!
//! Each gets a run of its own, as a module does. What it prints is read like every other attack's; its own controls
//! show that what it tries can be done where it may be done.

use std::path::Path;
use std::time::Instant;

use policy::{Grant, StopReason, StoppedBy, Tier};
use sandbox::{Cancel, Ended, Host, Report, SandboxError};

#[cfg(feature = "wasm")]
use super::corpus::MODULES;
use super::corpus::{Attack, Corpus};
use super::outside::Outside;
use super::way;
use super::{Proof, Said, Shown, Verdict, afterwards, millis, not_ended, shown_of, small, untried};
use crate::{Code, ModuleUse, Run, RunError};

/// As [`super::prove`], for the tier `wasm`; `now` is told what came of each attack as soon as that is known.
///
/// # Errors
/// [`RunError`] when the tier cannot be had, or the runs' own files fail.
pub async fn prove_modules(
    host: &Host,
    corpus: &Corpus,
    folder: &Path,
    told: &(dyn Fn(&str) + Sync),
    now: &dyn Fn(&Shown),
) -> Result<Proof, RunError> {
    let began = Instant::now();
    let outside = Outside::new(&folder.join("canary-wasm"))?;
    let mut grant = small(Tier::Wasm);
    // So that an endless loop ends by its fuel and soon.
    grant.limits.cpu = std::time::Duration::from_secs(2);
    let network = way::destinations(outside.port())?;
    let granted = Grant { network, ..grant.clone() };
    let mut place = Place { host, grant, granted, folder, ids: Vec::new(), report: None, over: None };
    let mut attacks = Vec::new();
    for attack in corpus.attacks() {
        told(&attack.id);
        let begun = Instant::now();
        let mut shown = match &attack.module {
            // Once no sandbox can be had any more, nothing further can be shown.
            Some(_) if place.over.is_some() => {
                untried(Tier::Wasm, attack, place.over.as_deref().unwrap_or_default())
            }
            Some(body) => match place.one(attack, body, &outside).await {
                Ok(shown) => shown,
                // Before the first of them nothing has been tried.
                Err(e) if place.report.is_none() => return Err(e),
                Err(RunError::Cancelled) => return Err(RunError::Cancelled),
                Err(e) => untried(Tier::Wasm, attack, &e.told()),
            },
            None => {
                let why = "it starts a program, and none can be started here".to_owned();
                shown_of(attack, "", Verdict::NotHere, 0, why)
            }
        };
        if attack.module.is_some() {
            shown.control = "inside".to_owned();
        }
        shown.duration_ms = millis(begun);
        now(&shown);
        attacks.push(shown);
    }
    let Some(report) = place.report else {
        return Err(RunError::Sandbox(SandboxError::Refused {
            reason: "none of these attacks is a module".to_owned(),
            remedy: "prove another tier with `--tier`, or bring attacks of your own with `--attacks`"
                .to_owned(),
        }));
    };
    let afterwards = afterwards(host, Tier::Wasm, &folder.join("runs-wasm"), &place.ids, outside.content());
    let duration_ms = millis(began);
    Ok(Proof { tier: Tier::Wasm, report, attacks, afterwards, duration_ms })
}

struct Place<'a> {
    host: &'a Host,
    grant: Grant,
    /// The same with a way out, which this tier has not.
    granted: Grant,
    folder: &'a Path,
    ids: Vec<String>,
    report: Option<Report>,
    /// Why no sandbox can be had any more.
    over: Option<String>,
}

impl Place<'_> {
    async fn one(&mut self, attack: &Attack, body: &str, outside: &Outside) -> Result<Shown, RunError> {
        let Some(layer) = attack.layers.get(Tier::Wasm.as_str()) else {
            let why = "the corpus names no layer for this tier".to_owned();
            return Ok(shown_of(attack, "", Verdict::Error, 0, why));
        };
        let bytes = match binary(attack, body) {
            Ok(bytes) => bytes,
            Err(why) => return Ok(shown_of(attack, layer, Verdict::Error, 0, why)),
        };
        let file = self.folder.join("attack.wasm");
        std::fs::write(&file, bytes).map_err(RunError::io("write", &file))?;
        outside.forget();
        let code = Code::Host(file.clone());
        let run = self.open(&code, attack.granted).await;
        std::fs::remove_file(&file).map_err(RunError::io("remove", &file))?;
        let run = match run {
            Ok(run) => run,
            Err(e) => {
                if !matches!(e, RunError::Module { .. }) {
                    self.over =
                        Some(format!("not tried: at `{}` no sandbox could be had: {}", attack.id, e.told()));
                }
                return Err(e);
            }
        };
        self.ids.push(run.id().to_owned());
        self.report.get_or_insert_with(|| run.report());
        let canary = outside.facts()["canary"].as_str().unwrap_or_default().to_owned();
        let call = ModuleUse {
            tool: "prove".to_owned(),
            args: vec![attack.id.clone(), canary],
            stdin: Vec::new(),
            timeout: attack.seconds.map(std::time::Duration::from_secs),
        };
        let (_keep, cancel) = Cancel::new();
        let done = run.run_module(call, &cancel).await;
        let trouble = not_ended(run.finish(StopReason::Finished, "", 0).await);
        let done = match done {
            Ok(done) => done,
            Err(e) => {
                let seen = outside.seen();
                let verdict = if seen.is_empty() { Verdict::Error } else { Verdict::Broken };
                let detail = [seen, vec![e.told()]].concat().join("; ");
                return Ok(shown_of(attack, layer, verdict, 0, detail));
            }
        };
        let said = Said::of(&done.stdout);
        let by = done.outcome.stopped_by;
        let own_end = done.outcome.ended == Ended::Exit(0) && by == StoppedBy::Exit;
        let struck = attack.struck_by.contains(&by);
        let broken = [said.broken.clone(), outside.seen()].concat();
        let refused = said.held.len();
        let mut shown = if !broken.is_empty() {
            shown_of(attack, layer, Verdict::Broken, refused, broken.join("; "))
        } else if !said.failed.is_empty() || said.controls == 0 {
            shown_of(attack, layer, Verdict::Error, refused, "its control failed".to_owned())
        } else if !attack.struck_by.is_empty() && own_end {
            // What must be ended by a bound and was not has got what it wanted.
            shown_of(attack, layer, Verdict::Broken, refused, "no bound struck".to_owned())
        } else if !own_end && !struck {
            let last = done.stderr.lines().last().unwrap_or_default();
            let why = format!("it did not run to its end: {by}{}, {last}", attack.not_struck(by));
            shown_of(attack, layer, Verdict::Error, refused, why)
        } else if refused == 0 && !struck {
            shown_of(attack, layer, Verdict::Error, refused, "it tried nothing".to_owned())
        } else {
            let detail = if struck { format!("ended: {by}") } else { String::new() };
            shown_of(attack, layer, Verdict::Held, refused, detail)
        };
        if let Some(why) = trouble {
            shown.spoil(format!("its run was not ended: {why}"));
        }
        Ok(shown)
    }

    async fn open(&self, code: &Code, granted: bool) -> Result<Run, RunError> {
        let grant = if granted { &self.granted } else { &self.grant };
        super::open(self.host, grant, &self.folder.join("runs-wasm"), Some(code)).await
    }
}

#[cfg(feature = "wasm")]
fn binary(attack: &Attack, body: &str) -> Result<Vec<u8>, String> {
    // Locals come first in a function, whatever else its text does.
    let body = body.trim_start();
    let (locals, rest) = match body.strip_prefix("(local ") {
        Some(after) => {
            let end = after.find(')').map_or(0, |at| at + 1);
            body.split_at("(local ".len() + end)
        }
        None => ("", body),
    };
    let functions = attack.functions.as_deref().unwrap_or_default();
    let text =
        format!("(module {MODULES} {functions} (func (export \"_start\") {locals} (call $facts) {rest}))");
    wat::parse_str(&text).map_err(|e| format!("its text cannot be read: {e}"))
}

#[cfg(not(feature = "wasm"))]
fn binary(_: &Attack, _: &str) -> Result<Vec<u8>, String> {
    // The tier refuses it with the remedy.
    Ok(Vec::new())
}

#[cfg(all(test, feature = "wasm"))]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_module_is_one() {
        let corpus = Corpus::shipped().unwrap();
        let modules: Vec<&Attack> = corpus.attacks().iter().filter(|a| a.module.is_some()).collect();
        assert!(modules.len() > 10);
        for attack in modules {
            let bytes = binary(attack, attack.module.as_deref().unwrap()).unwrap();
            sandbox::Module::check(bytes).unwrap();
            assert_eq!(attack.layers.keys().collect::<Vec<_>>(), ["wasm"], "{}", attack.id);
        }
    }
}
