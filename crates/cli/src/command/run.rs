//! `oubliette run`: a Guild, a task, a workspace; a result card, a patch, a record.

use std::path::Path;
use std::process::ExitCode;

use agent::{Drive, LoadedGuild, Model, ModelError, ModelProbe, ProbeError, Status, probe};
use policy::StopReason;
use serde_json::json;

use super::terms::Terms;
use crate::args::Run;
use crate::deploy::Deployed;
use crate::exit::{Ended, Exit, usage};
use crate::proposal::Proposal;
use crate::{deploy, live, render};

/// Bytes a task may have.
const MAX_TASK: usize = 64 << 10;

pub(crate) fn run(args: &Run, forked: super::Forked) -> anyhow::Result<ExitCode> {
    let host = super::host(forked, args.quiet)?;
    let config = args.deploy.config.as_deref();
    Proposal::of(&args.guild, "the Guild").brought_no_deployment(config)?;
    if let Some(workspace) = &args.workspace {
        Proposal::of(workspace, "the workspace").brought_no_deployment(config)?;
    }
    let mut deployed = deploy::load(&args.deploy)?;
    over(args.model_url.as_deref(), args.model.as_deref(), &mut deployed);
    let guild = agent::load(&args.guild)?;
    passes(&guild, &deployed)?;
    let task = task(args)?;
    let (terms, client) = Terms::of(&deployed, &guild, &args.guild, args.quiet)?;
    let cancel = &terms.cancel;
    super::runtime()?.block_on(async {
        let seen = probe(&client, deployed.deployment.model.min_context, cancel).await;
        let progress = live::import_bar(cancel);
        let waiting = live::waiting(cancel, &deployed.deployment.ceiling);
        let meta = meta(&deployed, &guild, &args.guild, &task, seen.as_ref());
        let opening =
            terms.opening(args.workspace.as_deref(), args.history.into(), meta, &progress, &waiting);
        let run = runs::Run::open(&host, opening).await?;
        terms.opened(&run);
        let drive = match seen {
            Ok(probe) => {
                let model = Model { client, probe };
                Ok(agent::drive(&run, &terms.grant, &guild, &model, &task, cancel).await)
            }
            // The record of a run whose server is down is as complete as any other.
            Err(e) => Err(e),
        };
        concluded(host, run, drive, args.json).await
    })
}

/// Nothing is sent or written down of a Guild that never passes.
pub(super) fn passes(guild: &LoadedGuild, deployed: &Deployed) -> anyhow::Result<()> {
    let refused = |message| Ended { exit: Exit::Refused, message }.into();
    guild.passes(&deployed.deployment).map_err(refused)
}

/// Ends a run for whatever its roles ended for, and tells the result.
pub(super) async fn concluded(
    host: runs::Host,
    mut run: runs::Run,
    drive: Result<Drive, ProbeError>,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let (stop, summary, tokens, status) = match &drive {
        Ok(drive) => (drive.stop, drive.summary.clone(), drive.tokens, drive.status),
        Err(e) => (stop_reason(e), e.to_string(), 0, None),
    };
    run.destroy().await;
    host.let_go();
    let result = run.finish(stop, &summary, tokens).await?;
    let claimed = status.map(|status| match status {
        Status::Done => "done",
        Status::Failed => "failed",
    });
    if as_json {
        let mut card = serde_json::to_value(&result)?;
        if let Some(fields) = card.as_object_mut() {
            fields.insert("claimed".to_owned(), json!(claimed));
        }
        render::json(&card)?;
    } else {
        render::card(&result, claimed);
    }
    if let Err(e) = drive {
        return Err(refused(&e));
    }
    Ok(Exit::of_run(result.stop, status == Some(Status::Failed)).into())
}

/// What the command line says over the deployment.
pub(super) fn over(url: Option<&str>, name: Option<&str>, deployed: &mut Deployed) {
    let model = &mut deployed.deployment.model;
    if let Some(url) = url {
        model.base_url = url.trim_end_matches('/').to_owned();
    }
    if let Some(name) = name {
        name.clone_into(&mut model.name);
    }
}

fn task(args: &Run) -> anyhow::Result<String> {
    let text = match (&args.task, &args.task_file) {
        (Some(task), _) => task.clone(),
        (None, Some(file)) => read_task(file)?,
        (None, None) => return Err(usage("a task is needed: --task TEXT or --task-file FILE")),
    };
    if text.trim().is_empty() {
        return Err(usage("the task is empty"));
    }
    if text.len() > MAX_TASK {
        return Err(usage("the task is longer than 64 KiB; put it into the workspace and say so"));
    }
    Ok(text)
}

fn read_task(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file)
        .map_err(|e| usage(format!("cannot read the task {}: {}", file.display(), deploy::plain(&e))))
}

fn meta(
    deployed: &Deployed,
    guild: &LoadedGuild,
    dir: &Path,
    task: &str,
    seen: Result<&ModelProbe, &ProbeError>,
) -> serde_json::Map<String, serde_json::Value> {
    let probe = match seen {
        Ok(probe) => json!(probe),
        Err(e) => json!({ "error": e.to_string() }),
    };
    let fields = [
        ("command", json!("run")),
        ("task", json!(task)),
        (
            "guild",
            json!({ "name": guild.guild.name, "digest": guild.digest, "dir": dir.canonicalize().ok() }),
        ),
        ("deployment_sha256", json!(runs::sha256(deployed.text.as_bytes()))),
        ("model", json!({ "name": deployed.deployment.model.name, "probe": probe })),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn stop_reason(e: &ProbeError) -> StopReason {
    match e {
        ProbeError::TooSmall { .. } => StopReason::ContextExhausted,
        ProbeError::Model(ModelError::Unavailable { .. } | ModelError::Address { .. }) => {
            StopReason::EndpointUnavailable
        }
        ProbeError::Model(ModelError::Protocol { .. } | ModelError::ContextOverflow { .. }) => {
            StopReason::EndpointProtocol
        }
        ProbeError::Model(ModelError::Cancelled) => StopReason::Cancelled,
    }
}

pub(super) fn refused(e: &ProbeError) -> anyhow::Error {
    let exit = match e {
        ProbeError::TooSmall { .. } => Exit::Refused,
        ProbeError::Model(_) => Exit::Infrastructure,
    };
    Ended { exit, message: e.to_string() }.into()
}
