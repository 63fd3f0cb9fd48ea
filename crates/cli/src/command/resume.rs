//! `oubliette runs resume`: a run that was interrupted goes on, with the Guild and the deployment it was started with.
//!
//! What it may do is what the operator says now, and that must be what was said then: no permission is taken from the
//! record, so that a record from elsewhere widens nothing. Two folders are: where the Guild is, unless `--guild` says it
//! (its digest must be the recorded one), and where the originals are that the patch compares with. Both stand in a
//! record that only its owner writes and that was verified; its chain shows mistakes, not its owner.

use std::path::PathBuf;
use std::process::ExitCode;

use agent::{LoadedGuild, Model, ModelProbe, Past, probe};
use runs::Interrupted;
use serde_json::{Value, json};

use super::run::{concluded, over, passes, refused};
use super::terms::Terms;
use crate::args::Resume;
use crate::deploy::Deployed;
use crate::exit::{Ended, Exit, usage};
use crate::{deploy, live, render};

pub(crate) fn resume(args: &Resume) -> anyhow::Result<ExitCode> {
    let host = super::host(None, args.quiet)?;
    let mut deployed = deploy::load(&args.deploy)?;
    over(args.model_url.as_deref(), args.model.as_deref(), &mut deployed);
    let interrupted = Interrupted::open(&deployed.store, &args.id)?;
    let guild = same_guild(args, interrupted.meta())?;
    same_deployment(&deployed, interrupted.meta())?;
    let (guild, dir) = guild;
    passes(&guild, &deployed)?;
    let task = interrupted.meta()["task"].as_str().unwrap_or_default().to_owned();
    let (terms, client) = Terms::of(&deployed, &guild, &dir, args.quiet)?;
    let (cancel, grant) = (&terms.cancel, &terms.grant);
    super::runtime()?.block_on(async {
        let waiting = live::waiting(cancel, &deployed.deployment.ceiling);
        let opening =
            terms.opening(None, runs::History::default(), serde_json::Map::new(), &|_, _| true, &waiting);
        if let Some((what, was, is)) = interrupted.differs(&opening) {
            return Err(changed(format!(
                "`{what}` was {} when the run was started and is {} now: give the same options as then \
                 (--config, --tier, --floor, --surroundings)",
                render::value(&was, 100),
                render::value(&is, 100)
            )));
        }
        let seen = probe(&client, deployed.deployment.model.min_context, cancel).await;
        let seen = seen.map_err(|e| refused(&e))?;
        same_model(&seen, interrupted.meta())?;
        let model = Model { client, probe: seen };
        let past = interrupted.past();
        let past = Past {
            events: past.events(),
            artifact: &|name| past.artifact(name),
            name_of: &runs::Past::naming(&opening),
            used: past.used(),
        };
        agent::rehearse(grant, &guild, &model, (&task, &past)).await.map_err(|lost| {
            changed(format!("the conversation cannot be rebuilt as it was ({lost}): start the run anew"))
        })?;
        let run = runs::Run::resume(&host, interrupted, opening).await?;
        terms.opened(&run);
        let drive = agent::go_on(&run, grant, &guild, &model, (&task, &past), cancel).await;
        concluded(host, run, Ok(drive), args.json).await
    })
}

/// The Guild, if it is the one that the run was started with.
fn same_guild(args: &Resume, meta: &Value) -> anyhow::Result<(LoadedGuild, PathBuf)> {
    let dir = match (&args.guild, meta["guild"]["dir"].as_str()) {
        (Some(dir), _) => dir.clone(),
        (None, Some(dir)) => PathBuf::from(dir),
        (None, None) => return Err(usage("the record does not say where the Guild was: give --guild DIR")),
    };
    let guild = agent::load(&dir)?;
    if meta["guild"]["digest"] != guild.digest {
        let dir = render::shown(&dir.display().to_string());
        return Err(changed(format!(
            "the Guild in {dir} is not what the run was started with: put it back as it was, or name it with --guild"
        )));
    }
    Ok((guild, dir))
}

fn same_deployment(deployed: &Deployed, meta: &Value) -> anyhow::Result<()> {
    if meta["deployment_sha256"] != runs::sha256(deployed.text.as_bytes()) {
        return Err(changed(
            "the deployment is not what the run was started with: put it back as it was, or name it with --config"
                .to_owned(),
        ));
    }
    let (was, is) = (&meta["model"]["name"], &deployed.deployment.model.name);
    if *was != json!(is) {
        let was = render::value(was, 100);
        return Err(changed(format!(
            "the model was {was} and is {}: give it with --model",
            render::shown(is)
        )));
    }
    Ok(())
}

/// How actions travel and how much fits decides what the conversation looks like.
fn same_model(seen: &ModelProbe, meta: &Value) -> anyhow::Result<()> {
    let was = &meta["model"]["probe"];
    for (what, was, is) in [
        ("actions travelled as", &was["channel"], json!(seen.channel)),
        ("the window had tokens:", &was["n_ctx"], json!(seen.n_ctx)),
    ] {
        if *was != is {
            return Err(changed(format!(
                "the model server is not as it was: {what} {}, and now {}: start it as it was then",
                render::value(was, 40),
                render::value(&is, 40)
            )));
        }
    }
    Ok(())
}

fn changed(message: String) -> anyhow::Error {
    Ended { exit: Exit::Refused, message: format!("the run is not resumed: {message}") }.into()
}
