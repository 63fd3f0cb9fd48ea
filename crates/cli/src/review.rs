//! What the gate found, as a person reads it, and the operator's waivers as they are read.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use policy::narrower::{Code, Finding, Review, Reviewed, RolePowers, Severity};
use policy::{Date, Faults, Waivers};
use serde::Serialize;
use serde_json::json;

use crate::args::Reported;
use crate::deploy::Deployed;
use crate::exit::Exit;
use crate::proposal::Proposal;
use crate::{diff_lines, render, sarif};

/// Names of one list.
const MOST_NAMES: usize = 30;
/// Characters of one line.
const MOST_LINE: usize = 200;

/// Whose word a judgement goes by: none is the built-in deployment, or no waiver.
#[derive(Debug, Serialize)]
pub(crate) struct JudgedBy {
    pub(crate) deployment: Option<String>,
    /// The old Guild's, where it has one of its own.
    pub(crate) old_deployment: Option<String>,
    pub(crate) waivers: Option<String>,
}

impl JudgedBy {
    pub(crate) fn line(&self) {
        let of = |file: &Option<String>| match file {
            Some(file) => render::one_line(file, MOST_LINE),
            None => "built in".to_owned(),
        };
        let old =
            self.old_deployment.as_ref().map(|_| format!(", of the old one {}", of(&self.old_deployment)));
        let waivers = self.waivers.as_ref().map_or("none".to_owned(), |_| of(&self.waivers));
        let old = old.unwrap_or_default();
        render::line(&format!(
            "  judged by the deployment: {}{old}; waivers: {waivers}",
            of(&self.deployment)
        ));
    }
}

/// A file's name in a report.
pub(crate) fn name(file: &Path) -> String {
    file.display().to_string()
}

/// The waivers that hold today, and their file. A file inside the Guild that is judged is nobody's word but its own, and
/// so is one that came along with it.
pub(crate) fn waivers(
    report: &Reported,
    deployed: &Deployed,
    guild: &Path,
    before: Option<&Path>,
) -> anyhow::Result<(Waivers, Option<PathBuf>)> {
    let proposal = Proposal::of(guild, "the Guild that it is to judge");
    let beside = deployed.store.parent().map(|data| data.join("foundry/foundry.toml"));
    let file: PathBuf = match (&report.waivers, beside) {
        (Some(file), _) => file.clone(),
        (None, Some(file)) if file.exists() => {
            match before {
                Some(before) => proposal.brought_not(&file, before, "--waivers")?,
                None => proposal.found_not(Some(&file), "--waivers")?,
            }
            file
        }
        (None, _) => return Ok((Waivers::default(), None)),
    };
    proposal.has_not_waivers(&file)?;
    let text = crate::deploy::text_of("the waivers", &file)?;
    Ok((Waivers::parse(&name(&file), &text, today())?, Some(file)))
}

/// Today, in UTC.
fn today() -> Date {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Date::of_unix(since.map(|time| time.as_secs()).unwrap_or_default())
}

/// Files that are not sound: nothing is compared, and nothing of them is used.
pub(crate) fn unsound(e: anyhow::Error, report: &Reported) -> anyhow::Result<ExitCode> {
    match e.downcast_ref::<Faults>() {
        Some(faults) if report.json => {
            render::json(&json!({ "ok": false, "faults": faults }))?;
            Ok(Exit::of(&e).into())
        }
        Some(faults) if report.sarif => {
            render::json(&sarif::of_faults(faults))?;
            Ok(Exit::of(&e).into())
        }
        Some(_) | None => Err(e),
    }
}

/// The first line: what came out.
pub(crate) fn verdict(old: &Path, new: &Path, review: &Review, by: &JudgedBy) {
    let wider = review.findings.iter().filter(|f| f.finding.severity == Severity::Wider);
    let (waived, stands): (Vec<&Reviewed>, Vec<&Reviewed>) = wider.partition(|f| f.waived.is_some());
    let word = match (stands.len(), waived.len()) {
        (0, 0) => "no wider".to_owned(),
        (0, waived) => format!("wider in {waived}, waived"),
        (stands, 0) => format!("refused, wider in {stands}"),
        (stands, waived) => format!("refused, wider in {stands}, and in {waived} waived"),
    };
    render::line(&format!("{} -> {}: {word}", old.display(), new.display()));
    by.line();
}

/// Roles that are different: tools that came and went, what was and is reached.
pub(crate) fn roles(review: &Review) {
    for change in &review.roles {
        let word = match (&change.before, &change.after) {
            (None, _) => " (new)",
            (Some(_), None) => " (gone)",
            (Some(_), Some(_)) => "",
        };
        render::line(&format!("\n{}{word}", change.role));
        for (mark, tools) in [('+', &change.added), ('-', &change.removed)] {
            for tool in tools {
                render::line(&format!("  {mark} {tool}"));
            }
        }
        for (word, powers) in [("before", &change.before), ("after", &change.after)] {
            if let Some(RolePowers { tools, reach, more }) = powers {
                let reached = match reach.is_empty() {
                    true => String::new(),
                    false => format!("; reaches {}", reached(reach, *more)),
                };
                render::line(&format!("  {word:<6} {}{reached}", named(tools)));
            }
        }
    }
    if review.more_roles > 0 {
        render::line(&format!("\n{} more roles are different", review.more_roles));
    }
}

/// Findings by how they count, each with its rule and what would make it pass; `diff` has a prompt's lines.
pub(crate) fn findings(review: &Review, diff: &dyn Fn(&str) -> Option<String>) {
    let mut last = None;
    for Reviewed { finding, waived } in &review.findings {
        let head = match (finding.severity, waived) {
            (Severity::Wider, None) => "wider, refused",
            (Severity::Wider, Some(_)) => "wider, waived",
            (Severity::BehaviourOnly, _) => "behaviour only",
            (Severity::Narrower, _) => "narrower, or the same",
        };
        if last != Some(head) {
            render::line(&format!("\n{head}"));
        }
        last = Some(head);
        let lines = lines(finding, diff);
        // Digests say nothing to a reader who has the lines.
        let said = lines.as_ref().filter(|_| finding.code != Code::RoleRemoved);
        let change = match (said, finding.was.is_empty(), finding.now.is_empty()) {
            (Some(_), _, _) | (None, true, true) => String::new(),
            (None, true, false) => format!(": {}", render::one_line(&finding.now, MOST_LINE)),
            (None, false, true) => format!(": was {}", render::one_line(&finding.was, MOST_LINE)),
            (None, false, false) => format!(
                ": {} -> {}",
                render::one_line(&finding.was, MOST_LINE),
                render::one_line(&finding.now, MOST_LINE)
            ),
        };
        render::line(&format!("  {:<16} {}{change} ({})", finding.code, finding.place, finding.file));
        if finding.severity == Severity::Wider {
            render::line(&format!("    rule     {}", finding.rule));
            match waived {
                Some(waived) => {
                    let reason = render::one_line(&waived.reason, MOST_LINE);
                    render::line(&format!("    waived   until {}: {reason}", waived.expires));
                }
                None => render::line(&format!("    to pass  {}", finding.remedy)),
            }
        }
        for line in lines.into_iter().flatten() {
            render::line(&format!("    {line}"));
        }
    }
    for waiver in &review.unused {
        render::line(&format!("\nwaiver of {} at {} names nothing here", waiver.finding, waiver.place));
    }
}

/// Names on one line, as far as anybody reads.
pub(crate) fn named(names: &[String]) -> String {
    reached(names, 0)
}

/// The same of a list that goes on.
pub(crate) fn reached(names: &[String], more: usize) -> String {
    let shown = names.get(..MOST_NAMES).unwrap_or(names).join(", ");
    match names.len() - names.len().min(MOST_NAMES) + more {
        0 if names.is_empty() => "nothing".to_owned(),
        0 => shown,
        more => format!("{shown}, {more} more"),
    }
}

/// What is different, where one line has no room for it: of a prompt its difference, of other texts both.
fn lines(finding: &Finding, diff: &dyn Fn(&str) -> Option<String>) -> Option<Vec<String>> {
    let Finding { code, place, was, now, .. } = finding;
    let diff = if matches!(code, Code::Prompt | Code::RoleRemoved) { diff(place) } else { None };
    if let Some(diff) = diff {
        return Some(diff_lines::lines(&diff));
    }
    let is_long = |text: &str| text.chars().count() > MOST_LINE;
    (*code == Code::Description || is_long(was) || is_long(now)).then(|| {
        let seen = |text: &str| runs::marked(text.as_bytes());
        diff_lines::exchanged(&seen(was), &seen(now))
    })
}
