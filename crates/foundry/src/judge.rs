//! The static gate: two folders, nobody else's to write, and whether the second may do more than the first. Nothing of
//! either is run, filled in, or looked for outside its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use agent::LoadedGuild;
use policy::narrower::{Finding, Review, Severity};
use policy::{Date, Deployment, Faults, Grant, RoleName, Waivers};
use serde::Serialize;
use serde_json::{Value, json};

use crate::FoundryError;
use crate::record::ByWaivers;
use crate::tree::Odd;

/// Bytes of the differences of prompts that are told; `guild diff` tells all.
const MOST_DIFFS: usize = 1 << 20;

/// What the operator has decided.
#[derive(Debug)]
pub struct Terms<'a> {
    /// The deployment, with what the command line says over it.
    pub deployment: &'a Deployment,
    /// SHA-256 of its file.
    pub deployment_digest: String,
    /// The waivers' file, where there is one: its name in messages, and its text.
    pub waivers: Option<(String, String)>,
    /// The digest of the attacks that the gate makes today ([`crate::attacks_digest`]).
    pub attacks: String,
    /// The day on which waivers must hold.
    pub today: Date,
}

/// What the rules say.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    /// Why it does not pass; none when it does.
    pub(crate) refused: Option<String>,
    /// Everything that was found, what a waiver lets pass included.
    pub(crate) findings: Vec<Value>,
    /// What of it is let pass.
    pub(crate) waived: Vec<Value>,
    /// Waivers that name nothing of it.
    pub(crate) unused: Vec<Value>,
    /// Tools added and removed, role by role.
    pub(crate) roles: Value,
    /// What is different in the prompts, by the place of each, and how many of them were too long to be told.
    pub(crate) prompts: (BTreeMap<String, String>, usize),
    /// The branch's Guild, what it would be granted, and which of its roles are not what they were; there when it passes.
    pub(crate) passed: Option<(LoadedGuild, Grant, BTreeSet<RoleName>)>,
}

impl Terms<'_> {
    /// By which waivers it is judged.
    pub(crate) fn by(&self) -> Option<ByWaivers> {
        let told = |(file, text): &(String, String)| ByWaivers {
            file: runs::clean(file.as_bytes()),
            sha256: runs::sha256(text.as_bytes()),
        };
        self.waivers.as_ref().map(told)
    }

    /// The waivers that hold today. One that has ended is a fault of the file, and then nothing is judged by it.
    pub(crate) fn waivers(&self) -> Result<Waivers, FoundryError> {
        let Some((name, text)) = &self.waivers else { return Ok(Waivers::default()) };
        Waivers::parse(name, text, self.today)
            .map_err(|faults| FoundryError::Input { what: "waivers".to_owned(), why: faults.to_string() })
    }
}

/// Whether the Guild in `new` may take the place of the one in `old`, by today's waivers.
pub(crate) fn judge(terms: &Terms<'_>, old: &Path, new: &Path) -> Result<Judgement, FoundryError> {
    let waivers = terms.waivers()?;
    let baseline = agent::load_all(old)
        .map_err(|faults| FoundryError::Input { what: UNSOUND.to_owned(), why: relative(&faults, old) })?;
    compare(terms, &waivers, (&baseline, new))
}

/// What is said of a baseline that cannot be compared with any more.
pub(crate) const UNSOUND: &str = "the baseline is not sound any more";

/// Whether the Guild in `new` may take the place of a baseline.
pub(crate) fn compare(
    terms: &Terms<'_>,
    waivers: &Waivers,
    (baseline, new): (&LoadedGuild, &Path),
) -> Result<Judgement, FoundryError> {
    let branch = match agent::load_all(new) {
        Ok(branch) => branch,
        Err(faults) => return Ok(unsound(&faults, new)),
    };
    let deployment = terms.deployment;
    let review = Review::of(
        &baseline.capability(deployment),
        &branch.capability(deployment),
        Finding::beyond(deployment, &branch.guild),
        waivers,
    );
    let of = |waived: bool| review.findings.iter().filter(move |found| found.waived.is_some() == waived);
    let judged = Judgement {
        refused: None,
        findings: review.findings.iter().map(value).collect(),
        waived: of(true).map(value).collect(),
        unused: review.unused.iter().map(value).collect(),
        roles: value(&review.roles),
        prompts: told(agent::prompt_diffs(baseline, &branch)),
        passed: None,
    };
    if review.refused {
        let wider: Vec<String> = of(false)
            .filter(|found| found.finding.severity == Severity::Wider)
            .map(|found| format!("{} at {}", found.finding.code, found.finding.place))
            .collect();
        let more = wider.len().saturating_sub(3);
        let first = wider.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let refused = Some(format!("it may do more than the baseline: {first}{more}"));
        return Ok(Judgement { refused, ..judged });
    }
    match Grant::new(deployment, &branch.guild, &new.join("guild.toml").display().to_string()) {
        Ok(grant) => {
            let changed = changed(baseline, &branch);
            Ok(Judgement { passed: Some((branch, grant, changed)), ..judged })
        }
        Err(faults) => {
            let refused =
                Some(format!("it asks for more than the deployment gives: {}", relative(&faults, new)));
            Ok(Judgement { refused, ..judged })
        }
    }
}

/// Roles that are not what they were: their entry, the text of their prompt, or a tool of the Guild's own that they list,
/// with its manifest and the bytes of its module.
fn changed(baseline: &LoadedGuild, branch: &LoadedGuild) -> BTreeSet<RoleName> {
    let (was, is) = (baseline.files(), branch.files());
    let same = |(name, role): &(&RoleName, &policy::Role)| {
        baseline.guild.roles.get(*name) == Some(*role)
            && baseline.prompts.get(*name) == branch.prompts.get(*name)
            && role.own_tools.iter().all(|tool| was.tools.get(tool) == is.tools.get(tool))
    };
    let other = branch.guild.roles.iter().filter(|role| !same(role));
    other.map(|(name, _)| name.clone()).collect()
}

/// As many of the differences as are told, the first ones; and how many are left.
fn told(all: BTreeMap<String, String>) -> (BTreeMap<String, String>, usize) {
    let (mut bytes, many) = (0usize, all.len());
    let room = |(place, diff): &(String, String)| {
        bytes = bytes.saturating_add(place.len() + diff.len());
        bytes <= MOST_DIFFS
    };
    let kept: BTreeMap<String, String> = all.into_iter().take_while(room).collect();
    let left = many - kept.len();
    (kept, left)
}

fn unsound(faults: &Faults, dir: &Path) -> Judgement {
    let refused = Some(format!("it is no sound Guild: {}", relative(faults, dir)));
    Judgement { refused, findings: faults_as_findings(faults, dir), ..Judgement::default() }
}

/// None of our own types fails at being told.
fn value(told: &impl Serialize) -> Value {
    serde_json::to_value(told).unwrap_or_default()
}

/// A folder that is no Guild's at all.
pub(crate) fn unfit(odd: &[Odd]) -> Judgement {
    let findings = odd.iter().map(|odd| {
        finding(
            odd.code,
            &odd.path,
            "",
            odd.what,
            "a Guild is a folder of files and folders, and of not too many",
            "take it out",
        )
    });
    let told: Vec<String> = odd.iter().map(|odd| format!("{}: {}", odd.path, odd.what)).collect();
    let refused = Some(format!("it is no Guild: {}", told.join("; ")));
    Judgement { refused, findings: findings.collect(), ..Judgement::default() }
}

/// In the form of those that come from a comparison.
fn finding(code: &str, file: &str, place: &str, now: &str, rule: &str, remedy: &str) -> Value {
    json!({
        "code": code, "severity": Severity::Wider, "file": file, "place": place, "was": "", "now": now, "rule": rule,
        "remedy": remedy,
    })
}

/// Faults in words; the place of the copy is nobody's affair.
pub(crate) fn relative(faults: &Faults, dir: &Path) -> String {
    let told: Vec<String> = faults
        .iter()
        .map(|fault| {
            let at = fault.place.map(|p| format!(":{}:{}", p.line, p.column)).unwrap_or_default();
            format!(
                "{}{at}: [{}] `{}` {}",
                inside(&fault.file, dir),
                fault.code.as_str(),
                fault.key,
                fault.message
            )
        })
        .collect();
    told.join("; ")
}

fn faults_as_findings(faults: &Faults, dir: &Path) -> Vec<Value> {
    let all = faults.iter().map(|fault| {
        let code = format!("W-GUILD-{}", fault.code.as_str().to_uppercase());
        let remedy = fault.help.as_deref().unwrap_or_default();
        finding(
            &code,
            &inside(&fault.file, dir),
            &fault.key,
            &fault.message,
            "a Guild is sound or is not read",
            remedy,
        )
    });
    all.collect()
}

fn inside(file: &str, dir: &Path) -> String {
    let dir = dir.display().to_string();
    file.strip_prefix(&dir).map_or(file, |rest| rest.trim_start_matches('/')).to_owned()
}
