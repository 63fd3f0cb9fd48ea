//! A branch becomes the baseline, and the way back.

use std::path::Path;

use policy::{Grant, Waivers};
use serde::Serialize;
use serde_json::Value;

use crate::exchange::{Act, Candidate, Judged, Kept, Told, before};
use crate::judge::{Terms, UNSOUND, compare, judge, relative};
use crate::record::{self, Asked, GateRecord, GateVerdict};
use crate::store::{BASELINE, GUILD, HISTORY, NEXT};
use crate::{BranchId, Foundry, FoundryError, Refusal, tree};

impl Foundry {
    /// Makes a Guild of the operator's the first baseline.
    ///
    /// # Errors
    /// [`FoundryError::Refused`] when there is one or a key is in the Guild, [`FoundryError::Input`] for a Guild that is not sound.
    pub fn init(&self, guild: &Path, terms: &Terms<'_>) -> Result<String, FoundryError> {
        let held = self.hold()?;
        if self.root().look(BASELINE.as_ref()).is_ok() {
            let reason = format!("there is a baseline already: {}", self.at(BASELINE).display());
            return Err(FoundryError::refused(Refusal::BaselineThere, reason));
        }
        let source = runs::Folder::open(guild).map_err(|e| FoundryError::Input {
            what: guild.display().to_string(),
            why: crate::store::word(&e),
        })?;
        let next = held.begin()?;
        let made = || {
            let at = self.at(NEXT).join(GUILD);
            let copy = next.create_folder(GUILD.as_ref()).map_err(FoundryError::io("make", &at))?;
            let digest = tree::copy(&source, &copy).map_err(FoundryError::unfit(guild))?;
            copy.sync().map_err(FoundryError::io("write", &at))?;
            let unsound = |why: String| FoundryError::Input { what: guild.display().to_string(), why };
            let loaded = agent::load(&at).map_err(|faults| unsound(relative(&faults, &at)))?;
            let file = at.join("guild.toml").display().to_string();
            Grant::new(terms.deployment, &loaded.guild, &file)
                .map_err(|faults| unsound(relative(&faults, &at)))?;
            loaded
                .passes(terms.deployment)
                .map_err(|reason| FoundryError::refused(Refusal::KeyQuoted, reason))?;
            next.rename(GUILD.as_ref(), self.root(), BASELINE.as_ref())
                .and_then(|()| self.root().sync())
                .map_err(FoundryError::io("make", &self.at(BASELINE)))?;
            Ok(digest)
        };
        let made = made();
        held.recover()?;
        made
    }

    /// Makes a branch that has passed the gate the baseline.
    ///
    /// # Errors
    /// [`FoundryError::Refused`] with the first rule that is against it.
    pub fn promote(&self, id: &BranchId, terms: &Terms<'_>, told: Told<'_>) -> Result<Kept, FoundryError> {
        let held = self.hold()?;
        let branch = self.branch(id)?;
        let (gated, gate_sha256) = record::read(self, (id, &branch))?;
        let expected = may_pass(id, &gated, terms)?;
        let from = branch.folder(GUILD.as_ref()).map_err(|_| {
            let reason = format!("{id} has no folder guild any more; gate it again");
            FoundryError::refused(Refusal::BranchChanged, reason)
        })?;
        let candidate = Candidate {
            act: Act::Promote,
            branch: Some(id.to_string()),
            back_to: None,
            gate_sha256: Some(gate_sha256),
            from: &from,
            expected: (expected, Refusal::BranchChanged),
        };
        held.exchange(
            candidate,
            |baseline, old, new| {
                if baseline != gated.baseline_digest {
                    let reason =
                        format!("the baseline is not the one that {id} was gated against; gate it again");
                    return Err(FoundryError::refused(Refusal::BaselineChanged, reason));
                }
                // Once more, with today's waivers.
                let judgement = judge(terms, old, new)?;
                match judgement.refused {
                    Some(reason) => Err(FoundryError::refused(Refusal::Wider, reason)),
                    None => Ok(Judged { waived: judgement.waived, ..Judged::default() }),
                }
            },
            told,
        )
    }

    /// Makes the baseline before the present one the baseline again. It was one before, but under the rules, the
    /// deployment and the waivers of then: it must be a Guild that could run today, and where it may do more than the
    /// present one, the operator must say with `wider` that this is meant.
    ///
    /// # Errors
    /// [`FoundryError::Refused`] when none is kept, or it is not what was kept, or unfit; [`FoundryError::Wider`].
    pub fn rollback(&self, terms: &Terms<'_>, wider: bool, told: Told<'_>) -> Result<Kept, FoundryError> {
        let held = self.hold()?;
        let history = held.history()?;
        let Some(kept) = before(&history) else {
            let reason = "no earlier baseline is kept; there is nothing to go back to";
            return Err(FoundryError::refused(Refusal::NothingKept, reason));
        };
        let at = self.at(HISTORY).join(kept.name());
        let from = self
            .folder(HISTORY)?
            .folder(Path::new(&kept.name()))
            .and_then(|folder| folder.folder(GUILD.as_ref()))
            .map_err(FoundryError::folder("open", &at))?;
        let candidate = Candidate {
            act: Act::Rollback,
            branch: None,
            back_to: Some(kept.n),
            gate_sha256: None,
            from: &from,
            expected: (&kept.from, Refusal::KeptChanged),
        };
        held.exchange(candidate, |_, now, then| way_back(terms, wider, now, then), told)
    }
}

/// What is wider in `then` than in `now`, if that may become the baseline again.
fn way_back(terms: &Terms<'_>, wider: bool, now: &Path, then: &Path) -> Result<Judged, FoundryError> {
    let unfit = |why: String| {
        let reason = format!("the kept baseline is no Guild that could run: {why}");
        FoundryError::refused(Refusal::KeptUnfit, reason)
    };
    let loaded = agent::load_all(then).map_err(|faults| unfit(relative(&faults, then)))?;
    Grant::new(terms.deployment, &loaded.guild, &then.join("guild.toml").display().to_string())
        .map_err(|faults| unfit(relative(&faults, then)))?;
    // Its own sentence says what it is about.
    loaded.passes(terms.deployment).map_err(|reason| FoundryError::refused(Refusal::KeptUnfit, reason))?;
    let waivers = match terms.waivers() {
        // The operator's word lets everything pass: a waiver that has ended stands in nobody's way out.
        Err(_) if wider => Waivers::default(),
        waivers => waivers?,
    };
    let baseline = match agent::load_all(now) {
        Ok(baseline) => baseline,
        // That it cannot be read is why somebody goes back; there is nothing to compare with.
        Err(_) if wider => return Ok(Judged { any: true, ..Judged::default() }),
        Err(faults) => {
            let why = relative(&faults, now);
            let reason = format!("{UNSOUND}: {why}; what may be wider cannot be told. {WIDER}");
            return Err(FoundryError::Wider { reason, findings: Vec::new() });
        }
    };
    let judgement = compare(terms, &waivers, (&baseline, then))?;
    let Some(reason) = judgement.refused else {
        return Ok(Judged { waived: judgement.waived, any: wider, ..Judged::default() });
    };
    let stands = |found: &Value| found["severity"] == "wider" && found["waived"].is_null();
    let findings: Vec<Value> = judgement.findings.into_iter().filter(stands).collect();
    if wider {
        return Ok(Judged { waived: judgement.waived, wider: findings, any: true });
    }
    let reason = format!("the way back is wider: {reason}. {WIDER}");
    Err(FoundryError::Wider { reason, findings })
}

/// What is to be done where the way back is wider.
const WIDER: &str = "If you mean it: oubliette foundry rollback --wider";

/// How a branch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It may be promoted as it is.
    Ready,
    /// Why not.
    #[serde(untagged)]
    Not(Refusal),
}

/// The digest that a branch must have, if its result lets it pass.
fn may_pass<'a>(id: &BranchId, gated: &'a GateRecord, terms: &Terms<'_>) -> Result<&'a str, FoundryError> {
    let refused = |refusal, reason| Err(FoundryError::refused(refusal, reason));
    if gated.gate != record::gate() {
        let reason = format!("another version of the gate has looked at {id}; gate it again");
        return refused(Refusal::GateChanged, reason);
    }
    let (GateVerdict::Passed, Some(digest), Some(attacks)) =
        (gated.verdict, &gated.branch_digest, &gated.attacks)
    else {
        let reason = format!("the gate has not let {id} pass ({}): {}", gated.verdict.as_str(), gated.reason);
        return refused(Refusal::NotPassed, reason);
    };
    if gated.deployment_digest != terms.deployment_digest {
        let reason = format!("the deployment is not the one that {id} was gated under; gate it again");
        return refused(Refusal::DeploymentChanged, reason);
    }
    if attacks.corpus != terms.attacks {
        let reason = format!("{id} was gated with another list of attacks; gate it again");
        return refused(Refusal::AttacksChanged, reason);
    }
    let isolation = &terms.deployment.isolation;
    // A pass on one tier is none for another: where a run would be is where it must have been attacked.
    let (then, now) = (gated.asked, Asked::by(isolation));
    if then != now {
        let reason = format!(
            "{id} was gated for {then}, and it would run on {now}; gate it again, or say the same on the command line"
        );
        return refused(Refusal::IsolationChanged, reason);
    }
    if let Err(e) = attacks.tier.accept(isolation.floor, isolation.surroundings) {
        let reason =
            format!("{id} was attacked on a tier that does not count here ({e}); gate it on a stronger one");
        return refused(Refusal::TierTooWeak, reason);
    }
    Ok(digest)
}

impl Foundry {
    /// How a branch stands, without changing anything. What the rules say today is not asked.
    pub(crate) fn standing(&self, id: &BranchId, terms: &Terms<'_>) -> Result<Standing, FoundryError> {
        let asked = || {
            let branch = self.branch(id)?;
            let (gated, _) = record::read(self, (id, &branch))?;
            let expected = may_pass(id, &gated, terms)?;
            let now = branch.folder(GUILD.as_ref()).ok().and_then(|guild| tree::digest(&guild).ok());
            if now.as_deref() != Some(expected) {
                return Err(FoundryError::refused(Refusal::BranchChanged, ""));
            }
            let baseline =
                tree::digest(&self.baseline()?).map_err(FoundryError::unfit(&self.at(BASELINE)))?;
            if baseline == expected {
                return Err(FoundryError::refused(Refusal::Same, ""));
            }
            if baseline != gated.baseline_digest {
                return Err(FoundryError::refused(Refusal::BaselineChanged, ""));
            }
            Ok(Standing::Ready)
        };
        match asked() {
            Err(FoundryError::Refused { refusal, .. }) => Ok(Standing::Not(refusal)),
            other => other,
        }
    }
}
