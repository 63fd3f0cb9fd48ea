//! `oubliette guild check` and `oubliette guild show`: one Guild alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use policy::Grant;
use policy::narrower::Review;
use serde_json::json;

use crate::args::{Deploy, Guild, GuildCheck};
use crate::exit::Exit;
use crate::proposal::Proposal;
use crate::review::JudgedBy;
use crate::{deploy, render, review, sarif};

pub(crate) fn guild(args: &Guild) -> anyhow::Result<ExitCode> {
    match args {
        Guild::Check(args) => check(args),
        Guild::Diff(args) => super::guild_diff::diff(args),
        Guild::Show { guild, deploy, json } => show(guild, deploy, *json),
    }
}

fn check(args: &GuildCheck) -> anyhow::Result<ExitCode> {
    let GuildCheck { guild, deploy: options, report } = args;
    let proposal = Proposal::of(guild, "the Guild that it is to judge");
    let config = options.config.as_deref();
    let own = proposal.has_not_deployment(config).and_then(|()| proposal.brought_no_deployment(config));
    let checked = own.and_then(|()| {
        let deployed = deploy::load(options)?;
        let (waivers, waived_by) = review::waivers(report, &deployed, guild, None)?;
        let by = JudgedBy {
            deployment: deployed.file.as_deref().map(review::name),
            old_deployment: None,
            waivers: waived_by.as_deref().map(review::name),
        };
        let loaded = agent::load_all(guild)?;
        let file = guild.join("guild.toml").display().to_string();
        let grant = Grant::new(&deployed.deployment, &loaded.guild, &file)?;
        let review = Review::alone(&loaded.capability(&deployed.deployment), &waivers);
        Ok((loaded, grant, review, by))
    });
    let (loaded, grant, review, by) = match checked {
        Ok(checked) => checked,
        Err(e) => return review::unsound(e, report),
    };
    let exit = if review.refused { Exit::Refused } else { Exit::Done };
    if report.json {
        render::json(&json!({
            "ok": !review.refused,
            "judged_by": by,
            "guild": loaded.guild,
            "digest": loaded.digest,
            "grant": grant,
            "findings": review.findings,
        }))?;
        return Ok(exit.into());
    }
    if report.sarif {
        render::json(&sarif::of(
            &review,
            &by,
            (guild, &loaded.text),
            args.deploy.config.as_deref(),
            &BTreeMap::new(),
        ))?;
        return Ok(exit.into());
    }
    let word = if review.refused { "refused" } else { "sound" };
    render::line(&format!("{} is {word} ({})", guild.display(), &loaded.digest[..12]));
    by.line();
    for (name, role) in &grant.roles {
        let own = role.own_tools.iter().map(String::as_str);
        let tools: Vec<&str> = role.tools.iter().map(|t| t.as_str()).chain(own).collect();
        let entry = if grant.entry.as_ref() == Some(name) { " (entry)" } else { "" };
        render::line(&format!("  {name}{entry}: {}", tools.join(", ")));
        if !role.agents.is_empty() {
            let agents: Vec<&str> = role.agents.iter().map(|a| a.as_str()).collect();
            render::line(&format!("    may start {}", agents.join(", ")));
        }
    }
    review::findings(&review, &|_| None);
    Ok(exit.into())
}

fn show(guild: &Path, options: &Deploy, json: bool) -> anyhow::Result<ExitCode> {
    let deployed = deploy::load(options)?;
    let loaded = agent::load(guild)?;
    let file = guild.join("guild.toml").display().to_string();
    let grant = Grant::new(&deployed.deployment, &loaded.guild, &file)?;
    let capability = loaded.capability(&deployed.deployment);
    if json {
        render::json(&json!({
            "guild": loaded.guild.name,
            "digest": loaded.digest,
            "entry": { "role": loaded.guild.entry, "reach": capability.entry() },
            "roles": capability.roles(),
            "bounds": capability.bounds(),
            "grant": grant,
        }))?;
        return Ok(Exit::Done.into());
    }
    render::line(&format!("{} ({})", loaded.guild.name, &loaded.digest[..12]));
    let entry = capability.entry();
    render::line(&format!("  entry     {}, reaches {}", loaded.guild.entry, review::named(&entry)));
    for (name, powers) in capability.roles() {
        render::line(&format!("  {name}"));
        render::line(&format!("    tools   {}", review::named(&powers.tools)));
        if !powers.reach.is_empty() {
            render::line(&format!("    reaches {}", review::reached(&powers.reach, powers.more)));
        }
    }
    let hosts: Vec<String> = loaded.guild.network.iter().map(ToString::to_string).collect();
    render::line(&format!("  network   {}", review::named(&hosts)));
    for (key, bound) in capability.bounds() {
        render::line(&format!("  {key:<18} {bound}"));
    }
    Ok(Exit::Done.into())
}
