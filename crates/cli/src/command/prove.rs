//! `oubliette prove`: what holds on this machine, by attacking it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use policy::{Deployment, Grant, Surroundings, Tier};
use runs::{About, Controls, Corpus, Proof, RunError, SandboxError, Verdict};

use serde::Serialize;

use crate::args::{Prove, ProvenName};
use crate::exit::{Exit, usage};
use crate::scratch::Folder;
use crate::{cases, render, signal};

/// The form of what is written: it grows by a key without another number, and changes or loses none.
const FORMAT: u32 = 2;

pub(crate) fn prove(args: &Prove, forked: super::Forked) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.cases {
        // Every row starts a program of its own, which has its own.
        drop(forked);
        return cases::prove(args, file);
    }
    // What minutes of work are to be written to is opened before them.
    let kept = args.out.as_deref().map(Kept::open).transpose()?;
    let host = super::host(forked, false)?;
    let about = About::here();
    let (corpus, selection) = corpus(args)?;
    let folder = Folder::make(args.data.as_deref())?;
    if let Some(shut) = folder.closed() {
        return Err(usage(format!(
            "{} lets nobody else through, and attacks and their controls are users without rights\n    help: take another \
             folder (`--data`), or let others pass: `chmod o+x {}`",
            shut.display(),
            shut.display()
        )));
    }
    let cancel = signal::cancel()?;
    let wanted: Vec<Tier> = args.tier.iter().map(|t| tier(*t)).collect();
    let all = [Tier::Microvm, Tier::Gvisor, Tier::Namespace, Tier::Confined, Tier::Wasm];
    let tiers = if wanted.is_empty() { &all[..] } else { &wanted };
    let mut proofs = Vec::new();
    let (mut absent, mut failed) = (Vec::new(), Vec::new());
    let controls = Controls::new(&folder.0);
    let told = |_: &str| {};
    for tier in tiers {
        let outcome = super::runtime()?.block_on(async {
            tokio::select! {
                outcome = runs::prove(&host, *tier, (&corpus, &controls), &folder.0, &told) => outcome,
                () = cancel.cancelled() => Err(RunError::Cancelled),
            }
        });
        match outcome {
            Ok(proof) => {
                if !args.json {
                    show(&proof);
                }
                proofs.push(proof);
            }
            // Nothing was attacked there.
            Err(RunError::Sandbox(SandboxError::Refused { reason, remedy })) => {
                if !args.json {
                    render::line(&format!("tier {tier}: {}", render::shown(&reason)));
                    render::line(&format!("  remedy: {}", render::shown(&remedy)));
                }
                absent.push(serde_json::json!({ "tier": tier, "reason": reason, "remedy": remedy }));
            }
            Err(e @ (RunError::Cancelled | RunError::Module { .. } | RunError::Import { .. })) => {
                return Err(e.into());
            }
            // The machine failed there, which says nothing of the others.
            Err(e) => {
                let e = anyhow::Error::from(e);
                if !args.json {
                    render::line(&format!("tier {tier}: {}", render::shown(&format!("{e:#}"))));
                }
                failed.push(serde_json::json!({ "tier": tier, "reason": format!("{e:#}") }));
            }
        }
    }
    let holds_on: Vec<Tier> = proofs.iter().filter(|p| p.holds()).map(|p| p.tier).collect();
    let tried: Vec<Tier> = proofs.iter().map(|p| p.tier).collect();
    // Whoever picks attacks or tiers has picked where they mean something.
    let picked = !wanted.is_empty() || !args.only.is_empty();
    let verdict = if failed.is_empty() {
        Whole::of((&tried, &holds_on), !wanted.is_empty() && !absent.is_empty(), picked)
    } else {
        Whole::Fails
    };
    let whole = serde_json::json!({
        "format": FORMAT,
        "version": env!("CARGO_PKG_VERSION"),
        "about": about,
        "corpus": corpus.digest(),
        "selection": selection,
        "holds": verdict == Whole::Holds,
        "holds_on": holds_on,
        "proofs": proofs,
        "absent": absent,
        "failed": failed,
    });
    if args.json {
        render::json(&whole)?;
    } else {
        if let Some(selection) = &selection {
            render::line(&selection.told());
        }
        sum_up((&tried, &holds_on), [&absent[..], &failed[..]], verdict);
    }
    if let Some(kept) = kept {
        kept.write(&whole)?;
    }
    Ok(match verdict {
        Whole::Holds => Exit::Done,
        Whole::Fails => Exit::Failed,
        Whole::Absent | Whole::BelowFloor => Exit::Refused,
    }
    .into())
}

/// The file that the outcome goes to.
pub(crate) struct Kept(PathBuf, std::fs::File);

impl Kept {
    /// What is there stays as it is until there is an outcome.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Kept> {
        let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path);
        Ok(Kept(path.to_owned(), file.map_err(|e| usage(format!("cannot write {}: {e}", path.display())))?))
    }

    pub(crate) fn write(mut self, whole: &serde_json::Value) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(whole)?;
        text.push('\n');
        let mut write = || {
            // A pipe or a device has no length.
            if self.1.metadata()?.is_file() {
                self.1.set_len(0)?;
            }
            self.1.write_all(text.as_bytes())
        };
        write().with_context(|| format!("cannot write {}", self.0.display()))
    }
}

/// What was chosen of all that could be tried, or added to it: then the outcome is one of that alone.
#[derive(Clone, Debug, Serialize)]
struct Selection {
    /// Tiers that were named; none: every one that can be had.
    tiers: Vec<Tier>,
    /// Words that names of attacks must contain; none: all.
    only: Vec<String>,
    /// Files of other attacks.
    added: Vec<String>,
    /// Attacks that were tried.
    attacks: usize,
    /// Attacks that there were to try.
    of: usize,
}

impl Selection {
    fn told(&self) -> String {
        let mut words = vec![format!("{} of {} attacks", self.attacks, self.of)];
        let mut more = |what: &str, names: Vec<String>| {
            if !names.is_empty() {
                words.push(format!("{what} {}", names.join(", ")));
            }
        };
        more("named", self.only.iter().map(|o| render::shown(o)).collect());
        more("with those of", self.added.iter().map(|a| render::shown(a)).collect());
        more("on", self.tiers.iter().map(|t| t.to_string()).collect());
        format!("of a selection: {}", words.join("; "))
    }
}

/// What all of it comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    Holds,
    /// Something did not hold, or could not be tried.
    Fails,
    /// A tier that was asked for by its name cannot be had, or none can.
    Absent,
    /// What could be had is weaker than the floor that a deployment has when it says nothing.
    BelowFloor,
}

impl Whole {
    fn of((tried, holds_on): (&[Tier], &[Tier]), asked_in_vain: bool, picked: bool) -> Whole {
        if tried.len() != holds_on.len() {
            Whole::Fails
        } else if tried.is_empty() || asked_in_vain {
            Whole::Absent
        } else if !picked && !tried.iter().any(|tier| serves(*tier)) {
            Whole::BelowFloor
        } else {
            Whole::Holds
        }
    }
}

fn floor() -> Tier {
    Grant::without_guild(&Deployment::default()).isolation.floor
}

/// Whether programs may run there under the floor that a deployment has when it says nothing.
fn serves(tier: Tier) -> bool {
    tier != Tier::Wasm && tier.accept(floor(), Surroundings::default()).is_ok()
}

/// Which tiers all of this is about, and which it says nothing of.
fn sum_up(
    (tried, holds_on): (&[Tier], &[Tier]),
    [absent, failed]: [&[serde_json::Value]; 2],
    verdict: Whole,
) {
    let list = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    render::line(&format!("holds on: {}", list(holds_on.iter().map(|t| t.as_str()).collect())));
    let fails: Vec<&str> = tried.iter().filter(|t| !holds_on.contains(t)).map(|t| t.as_str()).collect();
    if !fails.is_empty() {
        render::line(&format!("does not hold on: {}", list(fails)));
    }
    for (what, tiers) in [("not tried", absent), ("could not be tried", failed)] {
        if !tiers.is_empty() {
            let names = tiers.iter().filter_map(|a| a["tier"].as_str()).collect();
            render::line(&format!("{what}: {}", list(names)));
        }
    }
    if verdict == Whole::BelowFloor {
        render::line(&format!(
            "no tier was tried that programs may run in by default (the floor is `{}`)",
            floor()
        ));
    }
}

pub(crate) fn tier(name: ProvenName) -> Tier {
    match name {
        ProvenName::Confined => Tier::Confined,
        ProvenName::Namespace => Tier::Namespace,
        ProvenName::Gvisor => Tier::Gvisor,
        ProvenName::Microvm => Tier::Microvm,
        ProvenName::Wasm => Tier::Wasm,
    }
}

fn corpus(args: &Prove) -> anyhow::Result<(Corpus, Option<Selection>)> {
    let mut corpus = Corpus::shipped()?;
    let mut added = Vec::new();
    for file in &args.attacks {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|e| usage(format!("cannot read {name}: {e}")))?;
        let before = corpus.attacks().len();
        corpus.add(&name, &text).map_err(|e| usage(e.to_string()))?;
        // Whatever user proves, a file from elsewhere gets no rights of theirs without their word.
        let as_root = corpus.attacks()[before..].iter().find(|a| a.control == Some(runs::Control::Root));
        if let Some(attack) = as_root.filter(|_| !args.attacks_as_root) {
            return Err(usage(format!(
                "{name}: `{}` wants to run on this machine with all your rights (`control = \"root\"`); read it, and \
                 say `--attacks-as-root` if it may",
                render::shown(&attack.id)
            )));
        }
        added.push(name);
    }
    let of = corpus.attacks().len();
    if !args.only.is_empty() {
        corpus.keep(|id| args.only.iter().any(|only| id.contains(only.as_str())));
    }
    if corpus.attacks().is_empty() {
        return Err(usage("there is no attack of such a name"));
    }
    let tiers: Vec<Tier> = args.tier.iter().map(|name| tier(*name)).collect();
    let all = tiers.is_empty() && args.only.is_empty() && added.is_empty();
    let only = args.only.clone();
    let selection = Selection { tiers, only, added, attacks: corpus.attacks().len(), of };
    Ok((corpus, (!all).then_some(selection)))
}

fn show(proof: &Proof) {
    let r = &proof.report;
    let rows: Vec<_> = proof.attacks.iter().chain(&proof.afterwards).collect();
    let many = |verdict: Verdict| rows.iter().filter(|r| r.verdict == verdict).count();
    let seconds = std::time::Duration::from_millis(proof.duration_ms).as_secs_f64();
    render::line(&format!("tier {} ({}), {seconds:.1} s", proof.tier, render::shown(&r.engine)));
    for row in &rows {
        // A whole list of what starts programs says no more than its number, where none can be started.
        if proof.tier == Tier::Wasm && row.verdict == Verdict::NotHere {
            continue;
        }
        let word = match row.verdict {
            Verdict::Held => "held",
            Verdict::HeldAround => "held*",
            Verdict::Broken => "BROKEN",
            Verdict::Error => "ERROR",
            Verdict::NotHere => "-",
        };
        let line = format!(
            "  {:<26} {:<22} {:<22} {word:<7} {}",
            row.id,
            row.invariant,
            row.layer,
            render::one_line(&row.detail, 160)
        );
        render::line(line.trim_end());
    }
    let around = many(Verdict::HeldAround);
    if around > 0 {
        render::line(
            "  held*: also refused outside of any sandbox here, or by something else than that layer; the line says which",
        );
    }
    render::line(&format!(
        "  {} held, {around} held around, {} broken, {} errors, {} mean nothing here",
        many(Verdict::Held),
        many(Verdict::Broken),
        many(Verdict::Error),
        many(Verdict::NotHere)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What holds on the weakest tier alone says nothing of where programs run by default.
    #[test]
    fn all_of_it_holds_only_where_something_at_the_floor_was_tried() {
        let of = |tried: &[Tier], picked: bool| Whole::of((tried, tried), false, picked);
        assert_eq!(floor(), Tier::Gvisor);
        for below in
            [&[Tier::Confined][..], &[Tier::Namespace, Tier::Confined], &[Tier::Wasm, Tier::Confined]]
        {
            assert_eq!(of(below, false), Whole::BelowFloor, "{below:?}");
            assert_eq!(of(below, true), Whole::Holds, "{below:?}");
        }
        for enough in [&[Tier::Gvisor][..], &[Tier::Microvm], &[Tier::Gvisor, Tier::Confined, Tier::Wasm]] {
            assert_eq!(of(enough, false), Whole::Holds, "{enough:?}");
        }
        assert_eq!(of(&[], false), Whole::Absent);
        assert_eq!(Whole::of((&[Tier::Gvisor], &[Tier::Gvisor]), true, true), Whole::Absent);
        assert_eq!(Whole::of((&[Tier::Gvisor, Tier::Confined], &[Tier::Gvisor]), true, true), Whole::Fails);
    }
}
