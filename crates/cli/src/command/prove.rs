//! `oubliette prove`: what holds on this machine, by attacking it.

use std::process::ExitCode;

use policy::Tier;
use runs::{Corpus, Proof, RunError, SandboxError, Verdict};

use crate::args::{Prove, ProvenName};
use crate::exit::{Exit, usage};
use crate::scratch::Folder;
use crate::{cases, render, signal};

pub(crate) fn prove(args: &Prove, forked: super::Forked) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.cases {
        // Every row starts a program of its own, which has its own.
        drop(forked);
        return cases::prove(args, file);
    }
    let host = super::host(forked, false)?;
    let corpus = corpus(args)?;
    let folder = Folder::make(args.data.as_deref())?;
    let cancel = signal::cancel()?;
    let wanted: Vec<Tier> = args.tier.iter().map(|t| tier(*t)).collect();
    let all = [Tier::Microvm, Tier::Gvisor, Tier::Namespace, Tier::Confined, Tier::Wasm];
    let tiers = if wanted.is_empty() { &all[..] } else { &wanted };
    let mut proofs = Vec::new();
    let mut absent = Vec::new();
    let told = |_: &str| {};
    for tier in tiers {
        let outcome = super::runtime()?.block_on(async {
            tokio::select! {
                outcome = runs::prove(&host, *tier, &corpus, &folder.0, &told) => outcome,
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
            Err(RunError::Sandbox(SandboxError::Refused { reason, remedy })) => {
                if !args.json {
                    render::line(&format!("tier {tier}: {}", render::shown(&reason)));
                    render::line(&format!("  remedy: {}", render::shown(&remedy)));
                }
                absent.push(serde_json::json!({ "tier": tier, "reason": reason, "remedy": remedy }));
            }
            Err(e) => return Err(e.into()),
        }
    }
    let holds = proofs.iter().all(Proof::holds) && !proofs.is_empty();
    let asked_in_vain = !wanted.is_empty() && !absent.is_empty();
    let whole = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "holds": holds,
        "proofs": proofs,
        "absent": absent,
    });
    if let Some(file) = &args.out {
        let mut text = serde_json::to_string_pretty(&whole)?;
        text.push('\n');
        std::fs::write(file, text)?;
    }
    if args.json {
        render::json(&whole)?;
    }
    Ok(if proofs.iter().any(|p| !p.holds()) {
        Exit::Failed
    } else if asked_in_vain || proofs.is_empty() {
        Exit::Refused
    } else {
        Exit::Done
    }
    .into())
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

fn corpus(args: &Prove) -> anyhow::Result<Corpus> {
    let mut corpus = Corpus::shipped()?;
    for file in &args.attacks {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|e| usage(format!("cannot read {name}: {e}")))?;
        corpus.add(&name, &text).map_err(|e| usage(e.to_string()))?;
    }
    if !args.only.is_empty() {
        corpus.keep(|id| args.only.iter().any(|only| id.contains(only.as_str())));
    }
    if corpus.attacks().is_empty() {
        return Err(usage("there is no attack of such a name"));
    }
    Ok(corpus)
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
            "  held*: its control does not succeed outside either; something around this program holds it",
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
