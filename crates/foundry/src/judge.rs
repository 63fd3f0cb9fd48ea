//! The static gate: two folders, nobody else's to write, and whether the second may do more than the first. Nothing of
//! either is run, filled in, or looked for outside its folder.

use std::collections::BTreeSet;
use std::path::Path;

use agent::LoadedGuild;
use policy::{Deployment, Faults, Grant};
use serde_json::{Value, json};

use crate::FoundryError;
use crate::tree::Odd;

/// What the operator has decided.
#[derive(Debug)]
pub struct Terms<'a> {
    /// The deployment, with what the command line says over it.
    pub deployment: &'a Deployment,
    /// SHA-256 of its file.
    pub deployment_digest: String,
    /// The waivers' file, where there is one: its name in messages, and its text.
    pub waivers: Option<(String, String)>,
    /// The day, as `2026-11-30`.
    pub today: String,
}

/// What the rules say.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    /// Why it does not pass; none when it does.
    pub(crate) refused: Option<String>,
    /// Everything that was found.
    pub(crate) findings: Vec<Value>,
    /// What of it is let pass.
    pub(crate) waived: Vec<Value>,
    /// Tools added and removed, role by role.
    pub(crate) roles: Value,
    /// The branch's Guild, and what it would be granted; there when it passes.
    pub(crate) passed: Option<(LoadedGuild, Grant)>,
}

/// Whether the Guild in `new` may take the place of the one in `old`.
pub(crate) fn judge(terms: &Terms<'_>, old: &Path, new: &Path) -> Result<Judgement, FoundryError> {
    let baseline = load(terms, old).map_err(|faults| FoundryError::Input {
        what: "the baseline is not sound any more".to_owned(),
        why: relative(&faults, old),
    })?;
    let (branch, grant) = match load(terms, new) {
        Ok(loaded) => loaded,
        Err(faults) => {
            let refused = Some(format!("it is no sound Guild: {}", relative(&faults, new)));
            return Ok(Judgement {
                refused,
                findings: faults_as_findings(&faults, new),
                ..Judgement::default()
            });
        }
    };
    let mut findings = Vec::new();
    for (name, role) in &branch.guild.roles {
        let had: BTreeSet<_> =
            baseline.0.guild.roles.get(name).map(|role| role.tools.iter().collect()).unwrap_or_default();
        for tool in role.tools.iter().filter(|tool| !had.contains(tool)) {
            findings
                .push(json!({"code": "tool-added", "place": format!("roles.{name}.tools"), "tool": tool}));
        }
    }
    let refused = (!findings.is_empty()).then(|| "it may do more than the baseline".to_owned());
    let passed = refused.is_none().then_some((branch, grant));
    Ok(Judgement { refused, findings, waived: Vec::new(), roles: json!({}), passed })
}

/// A folder that is no Guild's at all.
pub(crate) fn unfit(odd: &[Odd]) -> Judgement {
    let findings = odd
        .iter()
        .map(|odd| json!({"code": odd.code, "file": odd.path, "rule": "a Guild is files and folders, and not many", "message": odd.what}));
    let told: Vec<String> = odd.iter().map(|odd| format!("{}: {}", odd.path, odd.what)).collect();
    Judgement { refused: Some(told.join("; ")), findings: findings.collect(), ..Judgement::default() }
}

fn load(terms: &Terms<'_>, dir: &Path) -> Result<(LoadedGuild, Grant), Faults> {
    let loaded = agent::load(dir)?;
    let grant = Grant::new(terms.deployment, &loaded.guild, &dir.join("guild.toml").display().to_string())?;
    Ok((loaded, grant))
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
        json!({
            "code": format!("guild-{}", fault.code.as_str()),
            "file": inside(&fault.file, dir),
            "place": fault.place,
            "key": fault.key,
            "message": fault.message,
            "help": fault.help,
        })
    });
    all.collect()
}

fn inside(file: &str, dir: &Path) -> String {
    let dir = dir.display().to_string();
    file.strip_prefix(&dir).map_or(file, |rest| rest.trim_start_matches('/')).to_owned()
}
