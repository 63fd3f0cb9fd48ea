//! One difference, or one thing to be looked at: where it is, what was there, and what is.

use std::collections::BTreeMap;

use serde::Serialize;

use super::code::{Code, Severity};
use crate::RoleName;
use crate::shown::shown;

/// Findings of each severity that are told. Where there are more of any, that is one that is wider and cannot be
/// waived: what a reviewer was not shown is not passed.
pub const MAX_FINDINGS: usize = 1000;

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind.
    pub code: Code,
    /// How it counts.
    pub severity: Severity,
    /// The file it is in: `guild.toml`, `oubliette.toml`, or a file of the Guild by its path there.
    pub file: String,
    /// Where in it, dotted: `roles.coder.tools.run_shell`. A waiver names exactly this.
    pub place: String,
    /// The role it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleName>,
    /// What was there; empty where there was nothing.
    pub was: String,
    /// What is there; empty where there is nothing any more.
    pub now: String,
    /// The rule, a sentence without a full stop.
    pub rule: &'static str,
    /// What would make it pass; empty for what passes.
    pub remedy: &'static str,
}

/// Findings as they come, up to the bound.
#[derive(Debug, Default)]
pub(super) struct Told {
    found: Vec<Finding>,
    /// How many came, of each severity.
    came: BTreeMap<Severity, usize>,
}

/// Where a finding is.
#[derive(Clone, Copy)]
pub(super) struct Spot<'a> {
    pub(super) file: &'a str,
    pub(super) role: Option<&'a RoleName>,
}

/// In the Guild's own file, about no role.
pub(super) const GUILD: Spot<'static> = Spot { file: "guild.toml", role: None };
/// In the operator's file.
pub(super) const OPERATOR: Spot<'static> = Spot { file: "oubliette.toml", role: None };

impl Told {
    pub(super) fn add(&mut self, code: Code, spot: Spot<'_>, place: String, was: &str, now: &str) {
        self.take(Finding {
            code,
            severity: code.severity(),
            file: spot.file.to_owned(),
            place,
            role: spot.role.cloned(),
            was: was.to_owned(),
            now: now.to_owned(),
            rule: code.rule(),
            remedy: code.remedy(),
        });
    }

    /// Takes in one more, if there is room among those of its severity: none is lost behind another kind.
    pub(super) fn take(&mut self, finding: Finding) {
        let came = self.came.entry(finding.severity).or_default();
        *came += 1;
        if *came <= MAX_FINDINGS {
            self.found.push(finding);
        }
    }

    /// Whether one more of this code would only be counted; if so it is. To be asked before a text is made of each of a
    /// great many.
    pub(super) fn passes_over(&mut self, code: Code) -> bool {
        let came = self.came.entry(code.severity()).or_default();
        let is_full = *came >= MAX_FINDINGS;
        *came += usize::from(is_full);
        is_full
    }

    /// Whether this very one is among them.
    pub(super) fn has(&self, finding: &Finding) -> bool {
        self.found.contains(finding)
    }

    /// All of them: what is wider first.
    pub(super) fn all(mut self) -> Vec<Finding> {
        let beyond: Vec<&str> = self
            .came
            .iter()
            .filter(|(_, came)| **came > MAX_FINDINGS)
            .map(|(severity, _)| match severity {
                Severity::Wider => "wider",
                Severity::BehaviourOnly => "behaviour only",
                Severity::Narrower => "narrower",
            })
            .collect();
        if !beyond.is_empty() {
            let more = format!("more than {MAX_FINDINGS} that are {}", beyond.join(", and that are "));
            let wider = |finding: &Finding| finding.severity == Severity::Wider;
            // It takes the place of the last one where there is no room.
            if self.found.iter().filter(|finding| wider(finding)).count() >= MAX_FINDINGS
                && let Some(last) = self.found.iter().rposition(wider)
            {
                self.found.remove(last);
            }
            self.came.insert(Severity::Wider, 0);
            self.add(Code::TooMany, GUILD, String::new(), "", &more);
        }
        self.found.sort_by(|a, b| {
            (a.severity, a.code, &a.file, &a.place).cmp(&(b.severity, b.code, &b.file, &b.place))
        });
        self.found
    }
}

impl<'a> Spot<'a> {
    pub(super) fn of(role: &'a RoleName) -> Spot<'a> {
        Spot { file: GUILD.file, role: Some(role) }
    }

    pub(super) fn in_file(file: &'a str) -> Spot<'a> {
        Spot { file, role: None }
    }
}

/// Names on one line, bounded.
pub(super) fn list<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    const MOST: usize = 20;
    let mut names = names.into_iter();
    let mut out: Vec<String> = names.by_ref().take(MOST).map(|name| shown(name.as_ref())).collect();
    match names.count() {
        0 => {}
        more => out.push(format!("{more} more")),
    }
    out.join(", ")
}
