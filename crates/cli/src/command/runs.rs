//! `oubliette runs list|show|verify|gc`; `apply`, `export` and `resume` have files of their own.

use std::process::ExitCode;

use ::runs::{Checked, Network, Standing};
use serde_json::Value;

use crate::args::{Runs, Store};
use crate::exit::Exit;
use crate::{deploy, render};

pub(crate) fn runs(args: &Runs) -> anyhow::Result<ExitCode> {
    match args {
        Runs::List(store) => list(store),
        Runs::Show { id, store } => show(id, store),
        Runs::Verify { id, store } => verify(id, store),
        Runs::Apply(args) => super::apply::apply(args),
        Runs::Export(args) => super::export::export(args),
        Runs::Resume(args) => super::resume::resume(args),
        Runs::Gc { dry_run, store } => gc(*dry_run, store),
    }
}

pub(crate) fn folder(store: &Store) -> anyhow::Result<std::path::PathBuf> {
    Ok(deploy::read(store.config.as_deref(), store.data.as_deref())?.store)
}

fn list(store: &Store) -> anyhow::Result<ExitCode> {
    let listing = ::runs::list(&folder(store)?)?;
    if store.json {
        render::json(&listing)?;
        return Ok(Exit::Done.into());
    }
    for run in &listing.runs {
        let text =
            |value: &Option<String>| value.as_deref().map_or("-".to_owned(), |v| render::one_line(v, 40));
        render::line(&format!(
            "{}  {}  {:<9} {:<10} {:<20} {} calls, {} changes{}",
            run.run_id,
            text(&run.started),
            text(&run.tier),
            if run.running { "running" } else { standing(run.standing) },
            text(&run.stop),
            run.calls.unwrap_or_default(),
            run.changes.map_or("no".to_owned(), |n| n.to_string()),
            times(run.resumed) + if run.meta_lost && !run.running { ", meta.json lost" } else { "" },
        ));
    }
    if listing.runs.iter().any(|run| run.meta_lost && !run.running) {
        render::note(
            "a run whose `meta.json` is missing or cut (a loss of power does that) cannot go on; `oubliette runs gc` \
             ends its record and removes it in its time, like every other",
        );
    }
    if listing.runs.iter().any(|run| run.standing == Standing::Incomplete && !run.running) {
        render::note(
            "an incomplete run was interrupted: `oubliette runs resume ID` goes on with it, `oubliette runs gc` ends \
             its record",
        );
    }
    for note in &listing.notes {
        render::note(&render::shown(note));
    }
    Ok(Exit::Done.into())
}

/// How often a run was resumed, at the end of a line.
fn times(resumed: u64) -> String {
    match resumed {
        0 => String::new(),
        1 => ", resumed once".to_owned(),
        n => format!(", resumed {n} times"),
    }
}

fn show(id: &str, store: &Store) -> anyhow::Result<ExitCode> {
    let full = ::runs::show(&folder(store)?, id)?;
    if store.json {
        render::json(&full)?;
        return Ok(Exit::Done.into());
    }
    let meta = full.meta.clone().unwrap_or_default();
    let result = full.result.clone().unwrap_or_default();
    render::line(&format!("run      {}", full.checked.run_id));
    for (name, value) in [
        ("started", &meta["started"]),
        ("source", &meta["source"]),
        ("task", &meta["task"]),
        ("stopped", &result["stop"]),
        ("summary", &result["summary"]),
    ] {
        if !value.is_null() {
            render::line(&format!("{name:<8} {}", render::value(value, 300)));
        }
    }
    if result["changes"].is_object() {
        render::changes(&result["changes"]);
    }
    // Of a run that was resumed, the sandbox it went on in.
    let newest = full.events.iter().rev().find(|event| event["type"] == "resume");
    if full.checked.resumed > 0 {
        render::line(&format!("resumed  {} times", full.checked.resumed));
    }
    let sandbox = newest.map_or(&meta["sandbox"], |event| &event["sandbox"]);
    if sandbox.is_object() {
        render::line(&format!(
            "tier     {} ({})",
            render::value(&sandbox["tier"], 40),
            render::value(&sandbox["engine"], 100)
        ));
        for layer in sandbox["layers"].as_array().into_iter().flatten() {
            let text = |key: &str| render::value(&layer[key], 160);
            render::line(&format!("  {:<18} {}  {}", text("name"), text("state"), text("detail")));
        }
    }
    if let Some(passed) = &full.network {
        render::line(&network(passed, full.running));
    }
    render::line("events");
    for event in &full.events {
        render::line(&format!("  {}", told(event)));
    }
    if full.left_out > 0 {
        render::line(&format!(
            "  and {} lines more, too many to be held: they are in `events.jsonl`, and `network` has nothing of them",
            full.left_out
        ));
    }
    if full.running {
        render::line("somebody works on it right now");
    }
    verdict(&full.checked);
    Ok(Exit::Done.into())
}

/// What passed the way out, and how much: so far, where the run goes on.
fn network(passed: &Network, running: bool) -> String {
    let Network { open, over, up, down, refused, unanswered } = passed;
    let open = if running {
        format!("{open} connections open, {over} over")
    } else {
        format!("{over} connections over")
    };
    let more = match unanswered {
        0 => String::new(),
        n => format!(", at least {n} questions more for other names"),
    };
    format!("network  {open}, {up} bytes out, {down} bytes in, {refused} refused{more}")
}

/// An event on one line: what every line carries is left out.
fn told(event: &Value) -> String {
    let Some(fields) = event.as_object() else { return render::value(event, 300) };
    let rest: Vec<String> = fields
        .iter()
        .filter(|(key, _)| !matches!(key.as_str(), "v" | "seq" | "ts" | "prev" | "type"))
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| format!("{}={}", render::one_line(key, 40), render::value(value, 120)))
        .collect();
    format!(
        "{:>4} {} {:<10} {}",
        event["seq"],
        render::value(&event["ts"], 40),
        render::value(&event["type"], 20),
        rest.join(" ")
    )
}

fn verify(id: &str, store: &Store) -> anyhow::Result<ExitCode> {
    let checked = ::runs::verify(&folder(store)?, id)?;
    if store.json {
        render::json(&checked)?;
    } else {
        verdict(&checked);
    }
    Ok(match checked.standing {
        Standing::Whole => Exit::Done,
        Standing::Incomplete | Standing::Newer | Standing::Broken => Exit::Failed,
    }
    .into())
}

fn gc(dry_run: bool, store: &Store) -> anyhow::Result<ExitCode> {
    // What a killed executor left on the machine itself is removed by the start of the next one.
    let host = (!dry_run).then(|| super::host(None, false)).transpose()?;
    let deployed = deploy::read(store.config.as_deref(), store.data.as_deref())?;
    let records = &deployed.deployment.records;
    let cleared = ::runs::gc(&deployed.store, records.keep, records.max_bytes, dry_run)?;
    drop(host);
    if store.json {
        render::json(&cleared)?;
    } else {
        let would = if dry_run { "would be " } else { "" };
        for run in &cleared.ended {
            render::line(&format!("{}  {would}ended: {}", run.run_id, render::shown(&run.detail)));
        }
        for run in &cleared.removed {
            render::line(&format!("{}  {would}removed: {} ({} KiB)", run.run_id, run.why, run.bytes >> 10));
        }
        for id in &cleared.running {
            render::line(&format!("{id}  running, left alone"));
        }
        render::line(&format!(
            "{} ended, {} removed, {} KiB kept",
            cleared.ended.len(),
            cleared.removed.len(),
            cleared.bytes >> 10
        ));
        for note in cleared.notes.iter().chain(&cleared.failed) {
            render::note(&render::shown(note));
        }
    }
    Ok(if cleared.failed.is_empty() { Exit::Done } else { Exit::Infrastructure }.into())
}

fn verdict(checked: &Checked) {
    for finding in &checked.findings {
        let line = finding.line.map_or(String::new(), |n| format!(" line {n}"));
        render::line(&format!("  [{}]{line}: {}", finding.code, render::shown(&finding.message)));
    }
    for note in &checked.notes {
        render::line(&format!("  note: {}", render::shown(note)));
    }
    render::line(&match checked.standing {
        Standing::Whole => format!("the chain holds: {} events", checked.events),
        Standing::Broken if checked.meta_lost => {
            format!("the record is broken, its `meta.json` is lost: {} events read", checked.events)
        }
        other => format!("the record is {}: {} events read", standing(other), checked.events),
    });
}

fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Whole => "whole",
        Standing::Incomplete => "incomplete",
        Standing::Newer => "newer",
        Standing::Broken => "broken",
    }
}
