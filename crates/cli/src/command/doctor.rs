//! `oubliette doctor`: what this machine can hold, by running it.

use std::process::ExitCode;

use crate::args::Doctor;
use crate::exit::Exit;
use crate::{deploy, render};

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
    if args.json {
        render::json(&serde_json::json!({
            "tiers": probes,
            "floor": isolation.floor,
            "surroundings": isolation.surroundings,
            "auto": chosen,
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
    }
    Ok(if chosen.is_some() { Exit::Done } else { Exit::Refused }.into())
}
