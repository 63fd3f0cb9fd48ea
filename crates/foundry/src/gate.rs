//! The gate: the rules first, and only for who passes them the attacks. What it said is kept beside the branch, for a
//! refused one as well.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;

use agent::LoadedGuild;
use policy::Grant;

use crate::judge::{Judgement, Terms, judge, unfit};
use crate::record::{self, Attacks, GateRecord, GateVerdict, Row, RowVerdict};
use crate::store::{BASELINE, BRANCHES, GUILD, Private, now};
use crate::tree::{self, Odd, Unfit};
use crate::{BranchId, Foundry, FoundryError, hypothesis};

const UNTOUCHED: &str = "the-foundry-is-untouched";

/// Where a Guild is attacked.
pub trait Arena {
    /// Lets every role of a Guild, played by a hostile script, do its worst under what the Guild is granted.
    fn attack(
        &self,
        guild: &LoadedGuild,
        grant: &Grant,
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
    /// Looks at a branch, and writes down beside it what came of that.
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
        let Judgement { refused, findings, waived, roles, passed } = judgement;
        let mut record = GateRecord {
            schema: 1,
            gate: record::gate(),
            branch: id.to_string(),
            verdict: GateVerdict::Refused,
            reason: refused.unwrap_or_default(),
            branch_digest: taken.branch.clone().ok(),
            baseline_digest: taken.baseline.clone(),
            deployment_digest: terms.deployment_digest.clone(),
            at: now(),
            findings,
            waived,
            roles,
            attacks: None,
        };
        if let Some((guild, grant)) = passed {
            let mut attacks = arena.attack(&guild, &grant).await?;
            attacks.rows.push(taken.untouched());
            (record.verdict, record.reason) = verdict(&attacks);
            record.attacks = Some(attacks);
        }
        let held = self.hold()?;
        record::write(&held, (id, &self.branch(id)?), &record)?;
        Ok(record)
    }

    /// A copy of the branch's Guild and one of the baseline, of the same moment.
    fn take(&self, id: &BranchId) -> Result<Taken, FoundryError> {
        let held = self.hold()?;
        let branch = self.branch(id)?;
        let at = self.at(BRANCHES).join(id.as_str());
        let input =
            |name: &str, why: String| FoundryError::Input { what: at.join(name).display().to_string(), why };
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

/// What attacks amount to.
fn verdict(attacks: &Attacks) -> (GateVerdict, String) {
    let of = |verdict: RowVerdict| attacks.rows.iter().filter(move |row| row.verdict == verdict);
    let first = |verdict| of(verdict).next().map(|row| format!("{}: {}", row.attack, row.detail));
    let (broken, errors) = (of(RowVerdict::Broken).count(), of(RowVerdict::Error).count());
    // Looking afterwards is no attack: without one nothing was shown.
    let held = of(RowVerdict::Held).chain(of(RowVerdict::Refused));
    let tried = held.filter(|row| row.attack != UNTOUCHED).count();
    if let Some(first) = first(RowVerdict::Broken) {
        (GateVerdict::Broken, format!("{broken} attacks got what they wanted, first {first}"))
    } else if let Some(first) = first(RowVerdict::Error) {
        (GateVerdict::Unproven, format!("{errors} attacks could not be tried, first {first}"))
    } else if tried == 0 {
        (GateVerdict::Unproven, "nothing was tried".to_owned())
    } else {
        (GateVerdict::Passed, format!("no wider than the baseline; {tried} attacks on {} held", attacks.tier))
    }
}
