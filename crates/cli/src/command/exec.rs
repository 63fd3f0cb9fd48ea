//! `oubliette exec`: one command, one sandbox, the guest's own exit code.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use policy::{Decision, Grant, HostRule, StopReason, StoppedBy, TierChoice, Tool};
use runs::{Code, Executed, ModuleUse, Opening, ProgramCall, Run, RunResult};

use crate::args::Exec;
use crate::exit::{Ended, Exit, usage};
use crate::proposal::Proposal;
use crate::{deploy, live, render, signal};

/// Bytes of standard input that are handed on.
const MAX_STDIN: u64 = 1 << 20;

pub(crate) fn exec(args: &Exec, forked: super::Forked) -> anyhow::Result<ExitCode> {
    let host = super::host(forked, false)?;
    if let Some(workspace) = &args.workspace {
        Proposal::of(workspace, "the workspace").brought_no_deployment(args.deploy.config.as_deref())?;
    }
    let deployed = deploy::load(&args.deploy)?;
    let mut grant = Grant::without_guild(&deployed.deployment);
    for rule in &args.allow {
        let rule =
            HostRule::parse(rule).map_err(|why| usage(format!("`--allow {}` {why}", render::shown(rule))))?;
        // One beneath a granted star as well: a name that is granted itself counts to no star's.
        if !grant.network.iter().any(|granted| *granted.rule() == rule) {
            grant.network.push(rule.into());
        }
    }
    let with = if args.allow.is_empty() { "" } else { " with `--allow`" };
    grant.has_room().map_err(|(why, help)| usage(format!("`network.allow`{with} {why}; {help}")))?;
    // A person or a program reads this, not a model: everything that is kept is shown.
    grant.call.to_model = usize::try_from(grant.call.output).unwrap_or(usize::MAX);
    let module = module(args, grant.isolation.tier)?;
    if args.tty && module.is_some() {
        return Err(usage("`--tty` is for programs: a module has no terminal"));
    }
    if module.is_none() {
        allowed(&grant.program(Tool::RunCommand, &args.argv))?;
    }
    let stdin = if args.stdin { read_stdin()? } else { Vec::new() };
    let secrets = deploy::secrets(&deployed.deployment)?;
    let (granted, headers) = deploy::granted(&grant.network)?;
    let mask = deploy::model_key(&deployed.deployment).ok().flatten().into_iter().chain(headers).collect();
    let cancel = signal::cancel()?;
    let progress = live::import_bar(&cancel);
    let waiting = live::waiting(&cancel, &deployed.deployment.ceiling);
    let mut meta = serde_json::Map::new();
    meta.insert("command".to_owned(), "exec".into());
    let opening = Opening {
        grant: &grant,
        store: &deployed.store,
        source: args.workspace.as_deref(),
        history: args.history.into(),
        module: module.as_ref().map(|(code, _)| code),
        tools: &[],
        secrets,
        mask,
        granted,
        meta,
        progress: &progress,
        waiting: &waiting,
        cancel: &cancel,
        watch: None,
    };
    let (executed, result) = super::runtime()?.block_on(async {
        let mut run = Run::open(&host, opening).await?;
        let no_way = super::terms::no_way_out(&grant, &run);
        if let Some(no_way) = no_way.as_ref().filter(|_| !args.allow.is_empty()) {
            let message = format!("{no_way}; `--allow` wants namespace, gvisor or microvm");
            run.finish(StopReason::SandboxError, &message, 0).await?;
            return Err(Ended { exit: Exit::Refused, message }.into());
        }
        if let Some(no_way) = no_way {
            render::note(&format!("oubliette: network: {no_way}, so nothing of `network.allow` is reached"));
        }
        let (tool, timeout) = ("exec".to_owned(), args.timeout.map(Duration::from_secs));
        let executed = match &module {
            Some((_, args)) => {
                run.run_module(ModuleUse { tool, args: args.clone(), stdin, timeout }, &cancel).await
            }
            None => {
                let argv = args.argv.clone();
                let terminal = args.tty;
                run.execute(ProgramCall { tool, argv, cwd: None, stdin, terminal, timeout }, &cancel).await
            }
        };
        run.destroy().await;
        host.let_go();
        let stop = match &executed {
            Ok(executed) => stop_reason(executed.outcome.stopped_by),
            Err(_) => StopReason::SandboxError,
        };
        let summary = executed.as_ref().map_or(String::new(), |e| struck(e.outcome.stopped_by));
        let result = run.finish(stop, &summary, 0).await?;
        anyhow::Ok((executed?, result))
    })?;
    show(args, &executed, &result)?;
    Ok(Exit::of_exec(&executed.outcome))
}

/// The module that is to run and its arguments, in the tier that runs one.
fn module(args: &Exec, tier: TierChoice) -> anyhow::Result<Option<(Code, Vec<String>)>> {
    if tier != TierChoice::Wasm {
        return match &args.module {
            None => Ok(None),
            Some(_) => Err(usage("`--module` is for the tier `wasm`: add `--tier wasm`")),
        };
    }
    let named = |path: &Path| path.display().to_string();
    Ok(match (&args.module, args.argv.first(), &args.workspace) {
        (Some(file), ..) => {
            let name = file.file_name().map_or_else(|| named(file), |n| n.to_string_lossy().into_owned());
            Some((Code::Host(file.clone()), [vec![name], args.argv.clone()].concat()))
        }
        (None, Some(name), Some(_)) => Some((Code::Workspace(name.clone()), args.argv.clone())),
        (None, Some(name), None) => Some((Code::Host(PathBuf::from(name)), args.argv.clone())),
        (None, None, _) => None,
    })
}

fn allowed(decision: &Decision) -> anyhow::Result<()> {
    if decision.is_allowed() {
        return Ok(());
    }
    let message = format!("refused ({}): {}", decision.rule, decision.reason);
    Err(Ended { exit: Exit::Refused, message }.into())
}

fn read_stdin() -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::stdin().take(MAX_STDIN + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_STDIN {
        return Err(usage("standard input is longer than 1 MiB; put it into the workspace instead"));
    }
    Ok(bytes)
}

/// The run's own end. A bound that struck the command is no end of the run: the summary names it.
fn stop_reason(by: StoppedBy) -> StopReason {
    match by {
        StoppedBy::Exit
        | StoppedBy::Signal
        | StoppedBy::Memory
        | StoppedBy::Processes
        | StoppedBy::Disk
        | StoppedBy::Output
        | StoppedBy::Cpu
        | StoppedBy::Denied => StopReason::Finished,
        StoppedBy::Timeout => StopReason::WallLimit,
        StoppedBy::Cancelled => StopReason::Cancelled,
        StoppedBy::SandboxLost => StopReason::SandboxError,
    }
}

/// What ended the command, where it did not end by itself.
fn struck(by: StoppedBy) -> String {
    match by {
        StoppedBy::Exit | StoppedBy::Signal => String::new(),
        StoppedBy::Timeout
        | StoppedBy::Memory
        | StoppedBy::Processes
        | StoppedBy::Disk
        | StoppedBy::Output
        | StoppedBy::Cpu
        | StoppedBy::Denied
        | StoppedBy::Cancelled
        | StoppedBy::SandboxLost => format!("stopped by {by}"),
    }
}

fn show(args: &Exec, executed: &Executed, result: &RunResult) -> anyhow::Result<()> {
    if args.json {
        return render::json(&serde_json::json!({ "run": result, "executed": executed }));
    }
    render::output(&mut io::stdout(), &executed.stdout);
    render::output(&mut io::stderr(), &executed.stderr);
    for refused in &executed.refused {
        render::note(&format!("oubliette: network: {}", render::shown(refused)));
    }
    let struck = struck(executed.outcome.stopped_by);
    if !struck.is_empty() {
        render::note(&format!("oubliette: {struck}; run {}", result.run_id));
    }
    Ok(())
}
