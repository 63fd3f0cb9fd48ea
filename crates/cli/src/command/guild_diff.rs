//! `oubliette guild diff OLD NEW`: what is different, and whether the new one is wider. Nothing of either is run.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use agent::{LoadedGuild, prompt_diffs};
use policy::Deployment;
use policy::narrower::{Capability, Finding, Review};
use serde_json::json;

use crate::args::GuildDiff;
use crate::exit::Exit;
use crate::proposal::Proposal;
use crate::review::JudgedBy;
use crate::{deploy, render, review, sarif};

/// A Guild without its modules: two times all of them is much to hold.
struct Side {
    capability: Capability,
    beyond: Vec<Finding>,
    loaded: LoadedGuild,
}

pub(crate) fn diff(args: &GuildDiff) -> anyhow::Result<ExitCode> {
    let GuildDiff { old, new, deploy: options, old_config, report } = args;
    let proposal = Proposal::of(new, "the Guild that it is to judge");
    let compared = proposal.has_not_deployment(options.config.as_deref()).and_then(|()| {
        if let Some(file) = old_config {
            proposal.has_not_deployment(Some(file))?;
        }
        if options.config.is_none() {
            proposal.brought_not(Path::new(deploy::FILE), old, "--config")?;
        }
        let deployed = deploy::load(options)?;
        let (waivers, file) = review::waivers(report, &deployed, new, Some(old))?;
        let before = match old_config {
            Some(file) => deploy::read(Some(file), None)?.deployment,
            None => deployed.deployment.clone(),
        };
        let by = JudgedBy {
            deployment: deployed.file.as_deref().map(review::name),
            old_deployment: old_config.as_deref().map(review::name),
            waivers: file.as_deref().map(review::name),
        };
        let (before, after) = both((old, &before), (new, &deployed.deployment))?;
        let review = Review::of(&before.capability, &after.capability, after.beyond.clone(), &waivers);
        Ok((before, after, review, by))
    });
    let (before, after, review, by) = match compared {
        Ok(compared) => compared,
        Err(e) => return review::unsound(e, report),
    };
    let exit = if review.refused { Exit::Refused } else { Exit::Done };
    let prompts = prompt_diffs(&before.loaded, &after.loaded);
    if report.sarif {
        let config = options.config.as_deref();
        render::json(&sarif::of(&review, &by, (new, &after.loaded.text), config, &prompts))?;
        return Ok(exit.into());
    }
    if report.json {
        render::json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "old": { "guild": old.display().to_string(), "digest": before.loaded.digest },
            "new": { "guild": new.display().to_string(), "digest": after.loaded.digest },
            "judged_by": by,
            "refused": review.refused,
            "entry": {
                "before": { "role": before.loaded.guild.entry, "reach": before.capability.entry() },
                "after": { "role": after.loaded.guild.entry, "reach": after.capability.entry() },
            },
            "roles": review.roles,
            "more_roles": review.more_roles,
            "bounds": { "before": before.capability.bounds(), "after": after.capability.bounds() },
            "findings": review.findings,
            "unused_waivers": review.unused,
            "prompts": prompts,
        }))?;
        return Ok(exit.into());
    }
    review::verdict(old, new, &review, &by);
    review::roles(&review);
    review::findings(&review, &|place| of_place(&prompts, place).cloned());
    Ok(exit.into())
}

/// Both sides, at the same time.
fn both(old: (&Path, &Deployment), new: (&Path, &Deployment)) -> anyhow::Result<(Side, Side)> {
    std::thread::scope(|scope| {
        let before = scope.spawn(|| side(old.0, old.1));
        let after = side(new.0, new.1);
        // One that fell has said why.
        let before = before.join().map_err(|_| anyhow::anyhow!("the old Guild could not be read"))?;
        Ok((before?, after?))
    })
}

fn side(folder: &Path, deployment: &Deployment) -> anyhow::Result<Side> {
    let (loaded, files) = agent::load_to_compare(folder)?;
    let capability = Capability::of(deployment, &loaded.guild, &files);
    let beyond = Finding::beyond(deployment, &loaded.guild);
    Ok(Side { capability, beyond, loaded })
}

/// The difference that a finding at this place is about: of a role that went, its prompt's.
pub(crate) fn of_place<'a>(prompts: &'a BTreeMap<String, String>, place: &str) -> Option<&'a String> {
    prompts.get(place).or_else(|| prompts.get(&format!("{place}.prompt")))
}
