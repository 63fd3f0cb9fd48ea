//! `oubliette foundry`: branches of a Guild, the gate, the baseline, and the way back.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use foundry::{
    Act, BranchId, Ceiling, Foundry, FoundryError, GateRecord, GateVerdict, Kept, RowVerdict, Sandboxes,
    Standing, Terms, attacks_digest,
};
use policy::Date;
use policy::narrower::Code;
use runs::Corpus;
use serde_json::{Value, json};

use super::guild_diff::of_place;
use crate::args;
use crate::deploy::{self, Deployed};
use crate::diff_lines;
use crate::exit::Exit;
use crate::proposal::Proposal;
use crate::render::{self, one_line};
use crate::scratch::Folder;
use crate::signal;

/// Findings that are shown; `--json` has all of them.
const MOST_SHOWN: usize = 40;
/// Lines of a prompt's difference.
const MOST_LINES: usize = 60;

pub(crate) fn foundry(args: &args::Foundry) -> anyhow::Result<ExitCode> {
    let (args::Foundry::Init { terms, .. }
    | args::Foundry::Gate { terms, .. }
    | args::Foundry::Promote { terms, .. }
    | args::Foundry::Rollback { terms, .. }
    | args::Foundry::List { terms }
    | args::Foundry::Show { terms, .. }) = args;
    match carried_out(args, terms) {
        Err(e) if terms.json => {
            // A program that reads this has the reason where it reads everything else.
            let refusal = e.downcast_ref::<FoundryError>().and_then(FoundryError::refusal);
            let reason = format!("{e:#}");
            let mut told = json!({ "ok": false, "refusal": refusal, "reason": reason });
            if let (Some(FoundryError::Wider { findings, .. }), Some(told)) =
                (e.downcast_ref::<FoundryError>(), told.as_object_mut())
            {
                told.insert("findings".to_owned(), json!(findings));
            }
            render::json(&told)?;
            Ok(Exit::of(&e).into())
        }
        Err(e) => {
            if let Some(FoundryError::Wider { findings, .. }) = e.downcast_ref::<FoundryError>() {
                wider(findings);
            }
            Err(e)
        }
        done => done,
    }
}

/// What is wider on a way back.
fn wider(findings: &[Value]) {
    for found in findings.iter().take(MOST_SHOWN) {
        render::line(&format!("  wider   {}", finding(found, false)));
    }
    if findings.len() > MOST_SHOWN {
        render::line(&format!("  {} more; --json has them all", findings.len() - MOST_SHOWN));
    }
}

fn carried_out(args: &args::Foundry, options: &args::FoundryTerms) -> anyhow::Result<ExitCode> {
    let config = options.deploy.config.as_deref();
    // Before anything of it is read: whose folder of records it is stands in it.
    Proposal::of(Path::new(""), "the branches").has_not_deployment(config)?;
    let deployed = deploy::load(&options.deploy)?;
    let data = deployed.store.parent().map(Path::to_path_buf).unwrap_or_default();
    let branches = data.join("foundry/branches");
    Proposal::of(&branches, "the branches").has_not_deployment(config)?;
    let terms = terms(options, &deployed, &data)?;
    let json = options.json;
    match args {
        args::Foundry::Init { guild, .. } => {
            let digest = Foundry::make(&data)?.init(guild, &terms)?;
            if json {
                render::json(&json!({ "ok": true, "baseline": digest }))?;
            } else {
                render::line(&format!("baseline {}", short(&digest)));
            }
            Ok(Exit::Done.into())
        }
        args::Foundry::Gate { branch, within, .. } => {
            let foundry = opened(&data)?;
            let ceiling = Ceiling { time: Duration::from_secs(*within), ..Ceiling::default() };
            let record = gate(&foundry, branch, &terms, ceiling)?;
            if json {
                render::json(&json!({ "ok": record.verdict == GateVerdict::Passed, "gate": record }))?;
            } else {
                show_gate(&record);
            }
            Ok(match record.verdict {
                GateVerdict::Passed => Exit::Done,
                GateVerdict::Refused | GateVerdict::Broken | GateVerdict::TooMuch => Exit::Refused,
                GateVerdict::Unproven => Exit::Infrastructure,
            }
            .into())
        }
        args::Foundry::Promote { branch, .. } => {
            told(&opened(&data)?.promote(branch, &terms, &|_| {})?, json)
        }
        args::Foundry::Rollback { wider, .. } => {
            told(&opened(&data)?.rollback(&terms, *wider, &|_| {})?, json)
        }
        args::Foundry::List { .. } => list(&opened(&data)?, &terms, json),
        args::Foundry::Show { branch, .. } => show(&opened(&data)?, branch, &terms, json),
    }
}

fn opened(data: &Path) -> anyhow::Result<Foundry> {
    let none = || FoundryError::NoBaseline { path: data.join("foundry") };
    Ok(Foundry::open(data)?.ok_or_else(none)?)
}

fn terms<'a>(options: &args::FoundryTerms, deployed: &'a Deployed, data: &Path) -> anyhow::Result<Terms<'a>> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let beside = data.join("foundry/foundry.toml");
    let file: Option<PathBuf> = match &options.waivers {
        Some(file) => Some(file.clone()),
        None => beside.exists().then_some(beside),
    };
    let waivers = file.map(|file| {
        Proposal::of(&data.join("foundry/branches"), "the branches").has_not_waivers(&file)?;
        Ok::<_, anyhow::Error>((file.display().to_string(), deploy::text_of("the waivers", &file)?))
    });
    Ok(Terms {
        deployment: &deployed.deployment,
        deployment_digest: runs::sha256(deployed.text.as_bytes()),
        waivers: waivers.transpose()?,
        attacks: attacks_digest(&Corpus::shipped()?),
        today: Date::of_unix(since.map(|time| time.as_secs()).unwrap_or_default()),
    })
}

fn gate(
    foundry: &Foundry,
    branch: &BranchId,
    terms: &Terms<'_>,
    ceiling: Ceiling,
) -> anyhow::Result<GateRecord> {
    // Dropped last: the forker's end is waited for before.
    let folder = Folder::make(None)?;
    let host = super::host(None, false)?;
    let corpus = Corpus::shipped()?;
    let cancel = signal::cancel()?;
    let arena = Sandboxes {
        host: &host,
        folder: &folder.0,
        corpus: &corpus,
        cancel: &cancel,
        told: &|_| {},
        ceiling,
    };
    let gated = super::runtime()?.block_on(foundry.gate(branch, terms, &arena));
    host.let_go();
    Ok(gated?)
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

/// What became of the baseline.
fn told(kept: &Kept, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        render::json(&json!({ "ok": true, "change": kept, "kept_in": kept.name() }))?;
    } else {
        render::line(&changed(kept));
        for waived in &kept.waived {
            render::line(&format!("  waived  {}", finding(waived, false)));
        }
        wider(&kept.wider);
    }
    Ok(Exit::Done.into())
}

fn changed(kept: &Kept) -> String {
    let (from, to) = (short(&kept.from), short(&kept.to));
    let what = match (kept.act, &kept.branch, kept.back_to) {
        (Act::Promote, Some(branch), _) => format!("promoted {}", one_line(branch, 64)),
        (Act::Rollback, _, Some(n)) => format!("went back to what change {n} had replaced"),
        (Act::Promote | Act::Rollback, _, _) => "changed".to_owned(),
    };
    let word = if kept.any_wider { " (--wider)" } else { "" };
    format!("{:>4}  {}  {what}: baseline {from} -> {to}{word}", kept.n, one_line(&kept.at, 30))
}

fn show_gate(record: &GateRecord) {
    let verdict = record.verdict.as_str();
    render::line(&format!("{} {verdict}: {}", record.branch, one_line(&record.reason, 600)));
    let by = record.waivers.as_ref();
    let by =
        by.map_or("none".to_owned(), |by| format!("{} ({})", one_line(&by.file, 200), short(&by.sha256)));
    render::line(&format!("  waivers: {by}"));
    for unused in record.unused.iter().take(MOST_SHOWN) {
        let text = |key: &str| render::value(&unused[key], 160);
        render::line(&format!("  unused waiver: {} at {}", text("finding"), text("place")));
    }
    for role in record.roles.as_array().into_iter().flatten() {
        let tools = |key: &str, mark: char| {
            let names = role[key].as_array().into_iter().flatten().filter_map(Value::as_str);
            names.map(|name| format!(" {mark}{}", one_line(name, 64))).collect::<String>()
        };
        let changes = tools("added", '+') + &tools("removed", '-');
        if !changes.is_empty() {
            render::line(&format!("  role {}:{changes}", render::value(&role["role"], 64)));
        }
    }
    for found in record.findings.iter().take(MOST_SHOWN) {
        let diff = prompt_diff(record, found);
        let line = finding(found, diff.is_some());
        render::line(&format!("  {line}"));
        for line in diff.into_iter().flatten() {
            render::line(&format!("    {line}"));
        }
        let wider = found["severity"] == "wider" && found["waived"].is_null();
        if let (true, Some(remedy)) = (wider, found["remedy"].as_str().filter(|text| !text.is_empty())) {
            render::line(&format!("    would pass: {}", one_line(remedy, 300)));
        }
    }
    if record.findings.len() > MOST_SHOWN {
        render::line(&format!("  {} more findings; --json has them all", record.findings.len() - MOST_SHOWN));
    }
    if record.more_prompts > 0 {
        let more = record.more_prompts;
        render::line(&format!(
            "  {more} more prompts are different; `oubliette guild diff` of baseline and branch shows them all"
        ));
    }
    let Some(attacks) = &record.attacks else {
        let none = match record.verdict {
            GateVerdict::TooMuch | GateVerdict::Unproven => "  attacks: not to their end",
            GateVerdict::Refused | GateVerdict::Passed | GateVerdict::Broken => {
                "  attacks: none, for nothing of it was run"
            }
        };
        render::line(none);
        return;
    };
    let many = |verdict| attacks.rows.iter().filter(|row| row.verdict == verdict).count();
    render::line(&format!(
        "  attacks on {} ({}): {} held, {} refused by a rule, {} held by what surrounds it, {} broken, {} errors, {} mean \
         nothing here; {:.1} s",
        attacks.tier,
        one_line(&attacks.engine, 100),
        many(RowVerdict::Held),
        many(RowVerdict::Refused),
        many(RowVerdict::HeldAround),
        many(RowVerdict::Broken),
        many(RowVerdict::Error),
        many(RowVerdict::Absent),
        Duration::from_millis(attacks.duration_ms).as_secs_f64()
    ));
    let bad = |verdict: RowVerdict| match verdict {
        RowVerdict::Broken => Some("BROKEN"),
        RowVerdict::Error => Some("ERROR"),
        RowVerdict::Absent | RowVerdict::Refused | RowVerdict::HeldAround | RowVerdict::Held => None,
    };
    for (word, row) in attacks.rows.iter().filter_map(|row| Some((bad(row.verdict)?, row))) {
        let by = if row.role.is_empty() { String::new() } else { format!(" as {}", one_line(&row.role, 64)) };
        render::line(&format!(
            "    {word} {}{by}: {}",
            one_line(&row.attack, 80),
            one_line(&row.detail, 300)
        ));
    }
}

/// The lines that are different in the prompt that a finding is about, as `guild diff` shows them, but no more than
/// anybody reads here.
fn prompt_diff(record: &GateRecord, found: &Value) -> Option<Vec<String>> {
    let of_prompt = [Code::Prompt, Code::RoleRemoved].map(Code::as_str).contains(&found["code"].as_str()?);
    let diff = of_prompt.then(|| of_place(&record.prompts, found["place"].as_str()?)).flatten()?;
    let mut lines = diff_lines::lines(diff);
    let more = lines.len().saturating_sub(MOST_LINES);
    lines.truncate(MOST_LINES);
    if more > 0 {
        lines.push(format!(
            "~ {more} more lines; `oubliette guild diff` of baseline and branch shows them all"
        ));
    }
    Some(lines)
}

/// A finding on one line; what it quotes is somebody else's. Digests say nothing to a reader who has the lines.
fn finding(found: &Value, has_lines: bool) -> String {
    let text =
        |key: &str, most: usize| found[key].as_str().map(|text| one_line(text, most)).unwrap_or_default();
    let place = match found["place"].as_str() {
        Some("") | None => text("file", 120),
        Some(_) => format!("{} {}", text("file", 120), text("place", 160)),
    };
    let change = match (text("was", 450), text("now", 450)) {
        _ if has_lines => String::new(),
        (was, now) if was.is_empty() && now.is_empty() => String::new(),
        (was, now) if was.is_empty() => format!(": {now}"),
        (was, now) if now.is_empty() => format!(": {was} is gone"),
        (was, now) => format!(": {was} -> {now}"),
    };
    let waived = match found["waived"]["reason"].as_str() {
        Some(why) => format!(
            " (waived until {}: {})",
            render::value(&found["waived"]["expires"], 20),
            one_line(why, 200)
        ),
        None => String::new(),
    };
    format!("{} {place}{change}{waived}", text("code", 40))
}

fn standing(standing: Standing) -> String {
    let value = serde_json::to_value(standing).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn list(foundry: &Foundry, terms: &Terms<'_>, json: bool) -> anyhow::Result<ExitCode> {
    let listing = foundry.list(terms)?;
    if json {
        render::json(&listing)?;
        return Ok(Exit::Done.into());
    }
    render::line(&format!("baseline {}", listing.baseline.as_deref().map_or("none", short)));
    for branch in &listing.branches {
        let statement = branch.statement.as_deref().map(|text| one_line(text, 80)).unwrap_or_default();
        render::line(format!("  {:<24} {:<18} {statement}", branch.id, standing(branch.standing)).trim_end());
    }
    if !listing.history.is_empty() {
        render::line("history");
    }
    for kept in &listing.history {
        render::line(&changed(kept));
    }
    for note in &listing.notes {
        render::note(&format!("oubliette: {}", one_line(note, 200)));
    }
    Ok(Exit::Done.into())
}

fn show(foundry: &Foundry, id: &BranchId, terms: &Terms<'_>, json: bool) -> anyhow::Result<ExitCode> {
    let full = foundry.show(id, terms)?;
    if json {
        render::json(&full)?;
        return Ok(Exit::Done.into());
    }
    render::line(&format!("branch   {id}: {}", standing(full.standing)));
    render::line(&format!(
        "digest   {}",
        full.digest.as_deref().map_or("none: it is no Guild's folder", short)
    ));
    match (&full.hypothesis, &full.hypothesis_fault) {
        (Some(hypothesis), _) => {
            render::line(&format!("claims   {}", one_line(&hypothesis.statement, 1000)));
            if let Some(author) = &hypothesis.author {
                render::line(&format!("author   {}", one_line(author, 100)));
            }
            for change in &hypothesis.tools {
                let all = |mark: &str, names: &[String]| {
                    names.iter().map(|name| format!(" {mark}{}", one_line(name, 64))).collect::<String>()
                };
                let tools = all("+", &change.add) + &all("-", &change.remove);
                render::line(&format!("asks for {}:{tools}", one_line(&change.role, 64)));
            }
        }
        (None, Some(fault)) => render::line(&format!("claims   hypothesis.json: {}", one_line(fault, 300))),
        (None, None) => render::line("claims   nothing: there is no hypothesis.json"),
    }
    if let Some(record) = &full.gate {
        render::line("");
        show_gate(record);
    }
    Ok(Exit::Done.into())
}
