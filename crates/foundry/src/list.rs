//! What is in the Foundry, for looking at.

use serde::Serialize;

use crate::store::{BASELINE, BRANCHES};
use crate::{
    BranchId, Foundry, FoundryError, GateRecord, Hypothesis, Kept, Standing, Terms, hypothesis, record, tree,
};

/// Branches that are listed.
const MOST_BRANCHES: usize = 10_000;

/// Everything, in short.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    /// The digest of the baseline; none where there is none yet.
    pub baseline: Option<String>,
    /// By name.
    pub branches: Vec<Listed>,
    /// Oldest first.
    pub history: Vec<Kept>,
    /// What else lies there.
    pub notes: Vec<String>,
}

/// A branch of a list.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// Its name.
    pub id: String,
    /// Whether it may be promoted, or why not.
    pub standing: Standing,
    /// What it claims; somebody's own words.
    pub statement: Option<String>,
}

/// A branch in full.
#[derive(Clone, Debug, Serialize)]
pub struct Full {
    /// Its name.
    pub id: String,
    /// Whether it may be promoted, or why not.
    pub standing: Standing,
    /// Its digest now; none where its folder is no Guild's.
    pub digest: Option<String>,
    /// What it claims; somebody's own words.
    pub hypothesis: Option<Hypothesis>,
    /// Why that cannot be read.
    pub hypothesis_fault: Option<String>,
    /// What the gate said, if it was the gate.
    pub gate: Option<GateRecord>,
}

impl Foundry {
    /// Baseline, branches and history.
    ///
    /// # Errors
    /// [`FoundryError::Io`].
    pub fn list(&self, terms: &Terms<'_>) -> Result<Listing, FoundryError> {
        let baseline = match self.baseline() {
            Ok(folder) => Some(tree::digest(&folder).map_err(FoundryError::unfit(&self.at(BASELINE)))?),
            Err(FoundryError::NoBaseline { .. }) => None,
            Err(e) => return Err(e),
        };
        let at = self.at(BRANCHES);
        let (names, more) =
            self.folder(BRANCHES)?.names(MOST_BRANCHES).map_err(FoundryError::io("read", &at))?;
        let (mut branches, mut notes) = (Vec::new(), Vec::new());
        for name in names {
            let Some(id) = name.to_str().and_then(|name| BranchId::parse(name).ok()) else {
                notes.push(format!("{} is no branch", tree::shown(&name)));
                continue;
            };
            match self.branch(&id) {
                Ok(folder) => branches.push(Listed {
                    id: id.to_string(),
                    standing: self.standing(&id, terms)?,
                    statement: hypothesis::read(&folder).ok().flatten().map(|read| read.statement),
                }),
                Err(_) => notes.push(format!("{id} is no folder")),
            }
        }
        if more {
            notes.push(format!("only {MOST_BRANCHES} branches are listed"));
        }
        let chain = self.chain()?;
        let unchained = chain.unchained();
        if unchained > 0 {
            notes.push(format!(
                "the first {unchained} changes were kept by an older version, which did not say what was before them"
            ));
        }
        Ok(Listing { baseline, branches, history: chain.kept, notes })
    }

    /// One branch.
    ///
    /// # Errors
    /// [`FoundryError::NoBranch`] when there is none of this name.
    pub fn show(&self, id: &BranchId, terms: &Terms<'_>) -> Result<Full, FoundryError> {
        let branch = self.branch(id)?;
        let (hypothesis, hypothesis_fault) = match hypothesis::read(&branch) {
            Ok(read) => (read, None),
            Err(why) => (None, Some(why)),
        };
        let guild = branch.folder("guild".as_ref()).ok();
        Ok(Full {
            id: id.to_string(),
            standing: self.standing(id, terms)?,
            digest: guild.and_then(|guild| tree::digest(&guild).ok()),
            hypothesis,
            hypothesis_fault,
            gate: record::read(self, (id, &branch)).ok().map(|(gated, _)| gated),
        })
    }
}
