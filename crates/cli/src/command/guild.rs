//! `oubliette guild check`.

use std::process::ExitCode;

use policy::Grant;

use crate::args::Guild;
use crate::exit::Exit;
use crate::{deploy, render};

pub(crate) fn guild(args: &Guild) -> anyhow::Result<ExitCode> {
    let Guild::Check { guild, deploy: options, json } = args;
    let checked = deploy::load(options).and_then(|deployed| {
        let loaded = agent::load(guild)?;
        let file = guild.join("guild.toml").display().to_string();
        let grant = Grant::new(&deployed.deployment, &loaded.guild, &file)?;
        Ok((loaded, grant))
    });
    match checked {
        Ok((loaded, grant)) if *json => render::json(&serde_json::json!({
            "ok": true,
            "guild": loaded.guild,
            "digest": loaded.digest,
            "grant": grant,
        }))?,
        Ok((loaded, grant)) => {
            render::line(&format!("{} is sound ({})", guild.display(), &loaded.digest[..12]));
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
        }
        Err(e) => match e.downcast_ref::<policy::Faults>() {
            Some(faults) if *json => {
                render::json(&serde_json::json!({ "ok": false, "faults": faults }))?;
                return Ok(Exit::of(&e).into());
            }
            _ => return Err(e),
        },
    }
    Ok(Exit::Done.into())
}
