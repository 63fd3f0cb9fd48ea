//! The outcome of a comparison, with the operator's waivers: what a person or a gate needs to decide.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::behaviour::RoleText;
use super::bound::{Bound, worded};
use super::capability::Capability;
use super::code::{Code, Severity};
use super::compare::{compared, inspect};
use super::finding::Finding;
use super::reach::Name;
use crate::{Date, Deployment, Grant, Guild, RoleName, Waiver, Waivers};

/// Roles that are listed before and after. Findings are told of all.
pub const MAX_ROLES: usize = 200;
/// Names of one list of what is reached.
const MAX_NAMES: usize = 200;

/// What came out of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Review {
    /// Whether something is wider and no waiver names it: refused.
    pub refused: bool,
    /// Roles whose tools, or what they reach, are different; at most [`MAX_ROLES`].
    pub roles: Vec<RoleChange>,
    /// Further roles that are different.
    pub more_roles: usize,
    /// Every finding, what is wider first.
    pub findings: Vec<Reviewed>,
    /// Waivers that named nothing here.
    pub unused: Vec<Waiver>,
}

/// A finding, and the waiver that names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reviewed {
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
    /// The operator's word about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waived: Option<Waived>,
}

/// The operator's word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waived {
    /// Why.
    pub reason: String,
    /// The last day on which it holds.
    pub expires: Date,
}

/// What a role can do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RolePowers {
    /// Tools of its own list, as it is written.
    pub tools: Vec<String>,
    /// What it has by the roles that it may start, beyond its own; at most 200 names.
    pub reach: Vec<String>,
    /// Further names that it reaches.
    pub more: usize,
}

/// A role before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoleChange {
    /// The role.
    pub role: RoleName,
    /// What it could do; none where it was not there.
    pub before: Option<RolePowers>,
    /// What it can do; none where it is not there any more.
    pub after: Option<RolePowers>,
    /// Tools that came.
    pub added: Vec<String>,
    /// Tools that went.
    pub removed: Vec<String>,
}

impl Review {
    /// Judges a change from `old` to `new`. A key in the new one's texts counts whether or not it was there before.
    pub fn of(old: &Capability, new: &Capability, beyond: Vec<Finding>, waivers: &Waivers) -> Review {
        let mut told = compared(old, new);
        for finding in inspect(new) {
            if finding.code == Code::KeyQuoted && !told.has(&finding) {
                told.take(finding);
            }
        }
        beyond.into_iter().for_each(|finding| told.take(finding));
        let findings = told.all();
        let mut roles = changes(old, new);
        let more_roles = roles.len().saturating_sub(MAX_ROLES);
        roles.truncate(MAX_ROLES);
        Review { roles, more_roles, ..Review::judged(findings, waivers) }
    }

    /// Judges one Guild alone. Most waivers are of changes: that they name nothing here says nothing.
    pub fn alone(guild: &Capability, waivers: &Waivers) -> Review {
        Review { unused: Vec::new(), ..Review::judged(inspect(guild), waivers) }
    }

    fn judged(mut findings: Vec<Finding>, waivers: &Waivers) -> Review {
        findings.sort_by_key(|finding| finding.severity);
        let unused = waivers.iter().filter(|w| !findings.iter().any(|f| waivers.of(f) == Some(*w)));
        let unused = unused.cloned().collect();
        let findings: Vec<Reviewed> = findings
            .into_iter()
            .map(|finding| {
                let waiver = waivers.of(&finding);
                let waived = waiver.map(|w| Waived { reason: w.reason.clone(), expires: w.expires });
                Reviewed { finding, waived }
            })
            .collect();
        let stands = |f: &Reviewed| f.finding.severity == Severity::Wider && f.waived.is_none();
        Review { refused: findings.iter().any(stands), roles: Vec::new(), more_roles: 0, findings, unused }
    }
}

impl Finding {
    /// What a Guild asks for beyond the deployment, as findings: such a Guild runs nowhere.
    pub fn beyond(deployment: &Deployment, guild: &Guild) -> Vec<Finding> {
        let (_, faults) = Grant::narrowed(deployment, guild, "guild.toml");
        let finding = |fault: crate::Fault| Finding {
            code: Code::Exceeds,
            severity: Code::Exceeds.severity(),
            file: fault.file,
            place: fault.key,
            role: None,
            was: String::new(),
            now: fault.message,
            rule: Code::Exceeds.rule(),
            remedy: Code::Exceeds.remedy(),
        };
        faults.into_iter().map(finding).collect()
    }
}

impl Capability {
    /// Every role with what it can do, for a reader.
    pub fn roles(&self) -> BTreeMap<RoleName, RolePowers> {
        let of = |(name, text): (&RoleName, &RoleText)| {
            let reach =
                self.vector.roles.get(name).map(|power| Arc::clone(&power.reach.reach)).unwrap_or_default();
            let beyond = |tool: &&Name| {
                !self.vector.is_implied(tool, &reach) && !text.tools.iter().any(|own| **own == ***tool)
            };
            let mut reached = reach.iter().filter(beyond);
            let listed = reached.by_ref().take(MAX_NAMES).map(ToString::to_string).collect();
            let more = reached.count();
            (name.clone(), RolePowers { tools: text.tools.clone(), reach: listed, more })
        };
        self.behaviour.roles.iter().map(of).collect()
    }

    /// Every bound of sandbox, call, run and records in force, by its key in the deployment, as a person writes it.
    pub fn bounds(&self) -> BTreeMap<&'static str, String> {
        let worded = |(key, bound): (&&'static str, &Bound)| {
            (*key, worded(key.rsplit('.').next().unwrap_or_default(), bound.value))
        };
        self.vector.bounds.iter().map(worded).collect()
    }

    /// What the entry role reaches, itself included.
    pub fn entry(&self) -> Vec<String> {
        self.vector.entry.reach.iter().map(ToString::to_string).collect()
    }
}

fn changes(old: &Capability, new: &Capability) -> Vec<RoleChange> {
    let (mut before, after) = (old.roles(), new.roles());
    let none: Vec<String> = Vec::new();
    let mut found = Vec::new();
    let mut add = |role: &RoleName, before: Option<RolePowers>, after: Option<RolePowers>| {
        let (had, has) = (
            before.as_ref().map_or(&none, |powers| &powers.tools),
            after.as_ref().map_or(&none, |powers| &powers.tools),
        );
        let added = has.iter().filter(|tool| !had.contains(tool)).cloned().collect();
        let removed = had.iter().filter(|tool| !has.contains(tool)).cloned().collect();
        if before != after {
            found.push(RoleChange { role: role.clone(), before, after, added, removed });
        }
    };
    for (role, powers) in after {
        let was = before.remove(&role);
        add(&role, was, Some(powers));
    }
    for (role, powers) in before {
        add(&role, Some(powers), None);
    }
    found
}
