//! `oubliette doctor`: what this machine can hold, by running it.

use std::path::Path;
use std::process::ExitCode;

use policy::{Grant, StopReason, Tier, TierChoice};
use runs::{Host, Opening, Run, TierProbe};

use crate::args::Doctor;
use crate::deploy::Deployed;
use crate::exit::{Ended, Exit};
use crate::scratch::Folder;
use crate::{deploy, render, signal};

pub(crate) fn doctor(args: &Doctor, forked: super::Forked) -> anyhow::Result<ExitCode> {
    let host = super::host(forked, false)?;
    let deployed = deploy::load(&args.deploy)?;
    let probes = super::runtime()?.block_on(runs::probe(&host))?;
    let isolation = &deployed.deployment.isolation;
    let usable = |probe: &runs::TierProbe| {
        probe.auto && probe.tier.accept(isolation.floor, isolation.surroundings).is_ok()
    };
    // The strongest comes first.
    let chosen = probes.iter().find(|p| usable(p)).map(|p| p.tier);
    let own = own(&host, &deployed, &probes);
    if args.json {
        render::json(&serde_json::json!({
            "tiers": probes,
            "floor": isolation.floor,
            "surroundings": isolation.surroundings,
            "auto": chosen,
            "deployment": match &own {
                Ok(tier) => serde_json::json!({ "tier": tier }),
                Err(e) => serde_json::json!({ "problem": format!("{e:#}") }),
            },
        }))?;
    } else {
        for probe in &probes {
            match (&probe.report, &probe.problem) {
                (Some(report), problem) => {
                    render::report(report);
                    if let Some(problem) = problem {
                        render::line(&format!("  not what `auto` takes: {}", render::shown(problem)));
                    }
                }
                (None, problem) => {
                    let problem = problem.as_deref().unwrap_or("not tried");
                    render::line(&format!("tier {}: {}", probe.tier, render::shown(problem)));
                }
            }
            render::line(&format!("  stops: {}", probe.stops));
            render::line(&format!("  does not stop: {}", probe.leaves));
            if let Some(remedy) = &probe.remedy {
                render::line(&format!("  remedy: {}", render::shown(remedy)));
            }
            for (layer, remedy) in &probe.advice {
                render::line(&format!("  more of {layer}: {}", render::shown(remedy)));
            }
        }
        match chosen {
            Some(tier) => render::line(&format!("floor {}: `auto` takes {tier}", isolation.floor)),
            None => {
                render::line(&format!("floor {}: nothing here reaches it, runs are refused", isolation.floor))
            }
        }
        render::line(&match &own {
            Ok(tier) => format!("this deployment: a sandbox of its own started, {tier}"),
            Err(e) => format!("this deployment: no sandbox of its own, {}", render::shown(&format!("{e:#}"))),
        });
    }
    Ok(own.map_or_else(|e| Exit::of(&e), |_| Exit::Done).into())
}

/// The tier that the deployment's own plan gets (its tier, system, limits and secrets), with an empty workspace: what
/// `exec` would be answered.
fn own(host: &Host, deployed: &Deployed, probes: &[TierProbe]) -> anyhow::Result<Tier> {
    let grant = Grant::without_guild(&deployed.deployment);
    if grant.isolation.tier == TierChoice::Wasm {
        return of_modules(&grant, probes);
    }
    let folder = Folder::make(None)?;
    super::runtime()?.block_on(in_folder(host, deployed, &grant, &folder.0))
}

async fn in_folder(host: &Host, deployed: &Deployed, grant: &Grant, folder: &Path) -> anyhow::Result<Tier> {
    let secrets = deploy::secrets(&deployed.deployment)?;
    let (granted, headers) = deploy::granted(&grant.network)?;
    let cancel = signal::cancel()?;
    let mut meta = serde_json::Map::new();
    meta.insert("command".to_owned(), "doctor".into());
    let opening = Opening {
        grant,
        store: &folder.join("runs"),
        source: None,
        history: runs::History::None,
        module: None,
        tools: &[],
        secrets,
        mask: headers,
        granted,
        meta,
        progress: &|_, _| true,
        waiting: &|_| true,
        cancel: &cancel,
        watch: None,
    };
    let run = Run::open(host, opening).await?;
    let tier = run.report().tier;
    run.finish(StopReason::Finished, "", 0).await?;
    Ok(tier)
}

/// A module gets its walls for itself; whether they hold, the probe has seen.
fn of_modules(grant: &Grant, probes: &[TierProbe]) -> anyhow::Result<Tier> {
    let isolation = &grant.isolation;
    let weak = Tier::Wasm.accept(isolation.floor, isolation.surroundings).err().map(|weak| weak.to_string());
    let probe = probes.iter().find(|p| p.tier == Tier::Wasm);
    let problem = probe.filter(|p| p.report.is_none()).and_then(|p| p.problem.clone());
    match weak.or(problem) {
        None => Ok(Tier::Wasm),
        Some(message) => Err(Ended { exit: Exit::Refused, message }.into()),
    }
}
