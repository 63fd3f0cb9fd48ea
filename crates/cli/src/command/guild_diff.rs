//! `oubliette guild diff OLD NEW`: what is different, and whether the new one is wider. Nothing of either is run.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use agent::{LoadedGuild, prompt_diff};
use policy::Deployment;
use policy::narrower::{Capability, Finding, Review};
use serde_json::json;

use crate::args::GuildDiff;
use crate::exit::Exit;
use crate::{deploy, render, review, sarif};

/// A Guild without its modules: two times all of them is much to hold.
struct Side {
    capability: Capability,
    beyond: Vec<Finding>,
    loaded: LoadedGuild,
}

pub(crate) fn diff(args: &GuildDiff) -> anyhow::Result<ExitCode> {
    let GuildDiff { old, new, deploy: options, old_config, report } = args;
    let compared = deploy::load(options).and_then(|deployed| {
        let waivers = review::waivers(report, &deployed, new)?;
        let before = match old_config {
            Some(file) => deploy::read(Some(file), None)?.deployment,
            None => deployed.deployment.clone(),
        };
        let (before, after) = (side(old, &before)?, side(new, &deployed.deployment)?);
        let review = Review::of(&before.capability, &after.capability, after.beyond.clone(), &waivers);
        Ok((before, after, review))
    });
    let (before, after, review) = match compared {
        Ok(compared) => compared,
        Err(e) => return review::unsound(e, report),
    };
    let exit = if review.refused { Exit::Refused } else { Exit::Done };
    if report.sarif {
        render::json(&sarif::of(&review, new, &after.loaded.text, options.config.as_deref()))?;
        return Ok(exit.into());
    }
    let prompts = prompts(&before.loaded, &after.loaded);
    if report.json {
        render::json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "old": { "guild": old.display().to_string(), "digest": before.loaded.digest },
            "new": { "guild": new.display().to_string(), "digest": after.loaded.digest },
            "refused": review.refused,
            "entry": {
                "before": { "role": before.loaded.guild.entry, "reach": before.capability.entry() },
                "after": { "role": after.loaded.guild.entry, "reach": after.capability.entry() },
            },
            "roles": review.roles,
            "bounds": { "before": before.capability.bounds(), "after": after.capability.bounds() },
            "findings": review.findings,
            "unused_waivers": review.unused,
            "prompts": prompts,
        }))?;
        return Ok(exit.into());
    }
    review::verdict(old, new, &review);
    review::roles(&review);
    review::findings(&review, &|place| prompts.get(place).cloned());
    Ok(exit.into())
}

fn side(folder: &Path, deployment: &Deployment) -> anyhow::Result<Side> {
    let mut loaded = agent::load(folder)?;
    let capability = loaded.capability(deployment);
    let beyond = Finding::beyond(deployment, &loaded.guild);
    loaded.tools.clear();
    Ok(Side { capability, beyond, loaded })
}

/// What is different in the prompts of roles that are on both sides, by the place of each.
fn prompts(old: &LoadedGuild, new: &LoadedGuild) -> BTreeMap<String, String> {
    let both = new.prompts.iter().filter_map(|(role, text)| Some((role, old.prompts.get(role)?, text)));
    let changed = both.filter(|(_, before, after)| before != after);
    changed
        .map(|(role, before, after)| (format!("roles.{role}.prompt"), prompt_diff(before, after)))
        .collect()
}
