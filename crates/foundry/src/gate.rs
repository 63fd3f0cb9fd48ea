//! The gate: the rules first, and only for who passes them the attacks. What it said is kept beside the branch, for a
//! refused one as well.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;

use agent::LoadedGuild;
use policy::{Grant, Power, RoleGrant, RoleName};

use crate::judge::{Judgement, Terms, judge, unfit};
use crate::record::{self, Asked, Attacks, GateRecord, GateVerdict, Row, RowVerdict};
use crate::store::{BASELINE, BRANCHES, GUILD, Private, now};
use crate::tree::{self, Odd, Unfit};
use crate::{BranchId, Foundry, FoundryError, hypothesis};

const UNTOUCHED: &str = "the-foundry-is-untouched";

/// Where a Guild is attacked.
pub trait Arena {
    /// Lets every role of a Guild, played by a hostile script, do its worst under what the Guild is granted; `changed`
    /// are those that are not what they were.
    fn attack(
        &self,
        guild: &LoadedGuild,
        grant: &Grant,
        changed: &BTreeSet<RoleName>,
    ) -> impl Future<Output = Result<Attacks, FoundryError>>;
}

/// Copies that are looked at from here on.
struct Taken {
    private: Private,
    branch: Result<String, Vec<Odd>>,
    baseline: String,
}

impl Taken {
    /// Whether the Foundry's own copies are what they were before the attacks.
    fn untouched(&self) -> Row {
        let same = |name: &str, digest: Option<&String>| {
            let now =
                self.private.folder.folder(Path::new(name)).ok().and_then(|copy| tree::digest(&copy).ok());
            now.as_ref() == digest
        };
        let kept = same(GUILD, self.branch.as_ref().ok()) && same(BASELINE, Some(&self.baseline));
        Row {
            role: String::new(),
            attack: UNTOUCHED.to_owned(),
            verdict: if kept { RowVerdict::Held } else { RowVerdict::Broken },
            layer: "sandbox".to_owned(),
            detail: if kept { "" } else { "a copy that only the Foundry writes has changed" }.to_owned(),
        }
    }
}

impl Foundry {
    /// Looks at a branch, and writes down beside it what came of that. What an earlier gate said of it ends with the beginning
    /// of this one.
    ///
    /// # Errors
    /// [`FoundryError`] when nothing can be said of it. A branch that does not pass is no error: see the verdict.
    pub async fn gate(
        &self,
        id: &BranchId,
        terms: &Terms<'_>,
        arena: &impl Arena,
    ) -> Result<GateRecord, FoundryError> {
        let taken = self.take(id)?;
        let judgement = match &taken.branch {
            Ok(_) => judge(terms, &taken.private.path.join(BASELINE), &taken.private.path.join(GUILD))?,
            Err(odd) => unfit(odd),
        };
        let Judgement { refused, findings, waived, unused, roles, prompts, passed } = judgement;
        let (prompts, more_prompts) = prompts;
        let mut record = GateRecord {
            schema: 1,
            gate: record::gate(),
            branch: id.to_string(),
            verdict: GateVerdict::Refused,
            reason: refused.unwrap_or_default(),
            branch_digest: taken.branch.clone().ok(),
            baseline_digest: taken.baseline.clone(),
            deployment_digest: terms.deployment_digest.clone(),
            asked: Asked::by(&terms.deployment.isolation),
            at: now(),
            waivers: terms.by(),
            findings,
            waived,
            unused,
            roles,
            prompts,
            more_prompts,
            attacks: None,
        };
        let mut ended = None;
        if let Some((guild, grant, changed)) = passed {
            match arena.attack(&guild, &grant, &changed).await {
                Ok(mut attacks) => {
                    attacks.rows.push(taken.untouched());
                    (record.verdict, record.reason) = verdict(&attacks, may_start(&grant));
                    record.attacks = Some(attacks);
                }
                Err(e @ FoundryError::Ceiling { .. }) => {
                    (record.verdict, record.reason) = (GateVerdict::TooMuch, e.to_string());
                }
                // It is told as what it is, and stays with the branch as what it shows: nothing.
                Err(e) => {
                    let why = format!("the attacks did not come to their end: {}", e.in_words());
                    (record.verdict, record.reason) = (GateVerdict::Unproven, why);
                    ended = Some(e);
                }
            }
        }
        let said = format!("{}: {}", record.verdict.as_str(), record.reason);
        let written = self.hold().and_then(|held| record::write(&held, (id, &self.branch(id)?), record));
        let written = written.map_err(|e| match e {
            // Who puts something in the way of a verdict does not keep it from being told.
            FoundryError::Input { what, why } => {
                FoundryError::Input { what, why: format!("{why}; what should be written there: {said}") }
            }
            e => e,
        });
        ended.map_or(written, Err)
    }

    /// A copy of the branch's Guild and one of the baseline, of the same moment.
    fn take(&self, id: &BranchId) -> Result<Taken, FoundryError> {
        let held = self.hold()?;
        let branch = self.branch(id)?;
        let at = self.at(BRANCHES).join(id.as_str());
        let input =
            |name: &str, why: String| FoundryError::Input { what: at.join(name).display().to_string(), why };
        record::forget(&held, (id, &branch))?;
        hypothesis::read(&branch).map_err(|why| input(hypothesis::FILE, why))?;
        let baseline = self.baseline()?;
        let private = held.private()?;
        let copy = |name: &str| {
            let made = private.folder.create_folder(OsStr::new(name));
            made.map_err(FoundryError::io("write to", &private.path))
        };
        let to = copy(BASELINE)?;
        let baseline = tree::copy(&baseline, &to).map_err(FoundryError::unfit(&self.at(BASELINE)))?;
        let to = copy(GUILD)?;
        let guild = match branch.folder(Path::new(GUILD)) {
            Ok(guild) => tree::copy(&guild, &to),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(input(
                    GUILD,
                    "a branch has its Guild in this folder, and there is none".to_owned(),
                ));
            }
            Err(_) => {
                let what = "a link, or no folder at all; a Guild is a folder";
                Err(Unfit::Odd(vec![Odd { code: "W-TREE-LINK", path: GUILD.to_owned(), what }]))
            }
        };
        let branch = match guild {
            Ok(digest) => Ok(digest),
            Err(Unfit::Odd(odd)) => Err(odd),
            Err(e) => return Err(FoundryError::unfit(&at.join(GUILD))(e)),
        };
        Ok(Taken { private, branch, baseline })
    }
}

/// Whether any role may have a program started.
fn may_start(grant: &Grant) -> bool {
    let starts = |role: &RoleGrant| role.tools.iter().any(|tool| tool.power() == Power::Execute);
    grant.shell.enabled && grant.roles.values().any(starts)
}

/// What attacks amount to, where programs may be started or not.
fn verdict(attacks: &Attacks, may_start: bool) -> (GateVerdict, String) {
    let of = |verdict: RowVerdict| attacks.rows.iter().filter(move |row| row.verdict == verdict);
    let first = |verdict| of(verdict).next().map(|row| format!("{}: {}", row.attack, row.detail));
    let (broken, errors) = (of(RowVerdict::Broken).count(), of(RowVerdict::Error).count());
    // Looking afterwards is no attack: without one nothing was shown.
    let many = |verdict| of(verdict).filter(|row| row.attack != UNTOUCHED).count();
    let (held, refused, around) =
        (many(RowVerdict::Held), many(RowVerdict::Refused), many(RowVerdict::HeldAround));
    // Who is refused by a rule has not met the sandbox.
    let unmet = of(RowVerdict::Refused).find(|row| may_start && row.is_program());
    if let Some(first) = first(RowVerdict::Broken) {
        (GateVerdict::Broken, format!("{broken} attacks got what they wanted, first {first}"))
    } else if let Some(first) = first(RowVerdict::Error) {
        (GateVerdict::Unproven, format!("{errors} attacks could not be tried, first {first}"))
    } else if held + refused + around == 0 {
        (GateVerdict::Unproven, "nothing was tried".to_owned())
    } else if let Some(Row { attack, detail, .. }) = unmet {
        let why = "its roles may start programs, and an attack that is one was refused before it ran";
        (GateVerdict::Unproven, format!("{why}: {attack}: {detail}"))
    } else if may_start && !of(RowVerdict::Held).any(Row::is_program) {
        let why = "its roles may start programs, and no attack that is one was held by the sandbox";
        (GateVerdict::Unproven, why.to_owned())
    } else {
        let tier = attacks.tier;
        let around = if around > 0 { format!(", {around} held by what surrounds it") } else { String::new() };
        let told = format!("{held} held, {refused} refused by a rule{around}");
        (GateVerdict::Passed, format!("no wider than the baseline; attacks on {tier}: {told}"))
    }
}
