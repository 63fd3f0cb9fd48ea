//! One Guild takes the baseline's place, whole or not at all, and the one before is kept.
//!
//! ```text
//!   .next/guild: a copy, judged ─▶ .next/record.json ─▶ .next/guild ⇄ baseline ─▶ .next becomes history/<n>-<digest>
//!                                                       └ one call of the kernel: before it nothing has happened
//! ```
//!
//! Who comes later and finds a `.next` tells by the digests in its record on which side of that call it was left:
//! before it, it is removed; behind it, it is kept. A `.next` without a record is always one of before.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;

use runs::Folder;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::store::{BASELINE, GUILD, HISTORY, Held, MOST_FILE, NEXT, get, now, put};
use crate::tree::{self, Unfit};
use crate::{FoundryError, Refusal};

pub(crate) const RECORD: &str = "record.json";
/// Kept baselines that are looked through.
const MOST_KEPT: usize = 100_000;

/// What is told while a baseline is exchanged, after it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nobody else is in the Foundry.
    Held,
    /// The copy is made and on the disk.
    Copied,
    /// Digests and rules have nothing against it.
    Judged,
    /// What is about to happen is on the disk.
    Recorded,
    /// It is the baseline.
    Exchanged,
    /// What was before is in the history.
    Kept,
}

/// Who is told.
pub type Told<'a> = &'a dyn Fn(Step);

/// What took a baseline's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// A branch that had passed the gate.
    Promote,
    /// One that had been the baseline before.
    Rollback,
}

/// A line of the history: the folder it lies in holds the Guild `from`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// Of this format.
    pub schema: u32,
    /// From 1.
    pub n: u64,
    /// What happened.
    pub act: Act,
    /// Which branch it was, where it was one.
    pub branch: Option<String>,
    /// Which kept baseline it was, where it was one.
    pub back_to: Option<u64>,
    /// The digest of the baseline before, which is kept here.
    pub from: String,
    /// The digest of the baseline after.
    pub to: String,
    /// SHA-256 of the gate's result, where there was one.
    pub gate_sha256: Option<String>,
    /// Findings that a waiver of the operator's let pass.
    pub waived: Vec<Value>,
    /// When.
    pub at: String,
}

/// What is to take the baseline's place.
pub(crate) struct Candidate<'a> {
    pub(crate) act: Act,
    pub(crate) branch: Option<String>,
    pub(crate) back_to: Option<u64>,
    pub(crate) gate_sha256: Option<String>,
    /// Where it lies.
    pub(crate) from: &'a Folder,
    /// What it must be, and what is said when it is not.
    pub(crate) expected: (&'a str, Refusal),
}

impl Held<'_> {
    /// Exchanges the baseline. `judge` is given the folders of the baseline and of the copy that shall take its place,
    /// and says what a waiver let pass.
    pub(crate) fn exchange(
        &self,
        candidate: Candidate<'_>,
        judge: impl FnOnce(&str, &Path, &Path) -> Result<Vec<Value>, FoundryError>,
        told: Told<'_>,
    ) -> Result<Kept, FoundryError> {
        told(Step::Held);
        let next = self.begin()?;
        let done = self.prepare(&next, candidate, judge, told).and_then(|kept| {
            self.carry_out(&next, &kept, told)?;
            Ok(kept)
        });
        match done {
            Ok(kept) => Ok(kept),
            Err(e) => {
                // Whatever the error was about, the folder tells on which side it is.
                self.recover()?;
                Err(e)
            }
        }
    }

    /// An empty place for what comes next.
    pub(crate) fn begin(&self) -> Result<Folder, FoundryError> {
        let foundry = self.foundry;
        foundry.root().create_folder(OsStr::new(NEXT)).map_err(FoundryError::io("make", &foundry.at(NEXT)))
    }

    fn prepare(
        &self,
        next: &Folder,
        candidate: Candidate<'_>,
        judge: impl FnOnce(&str, &Path, &Path) -> Result<Vec<Value>, FoundryError>,
        told: Told<'_>,
    ) -> Result<Kept, FoundryError> {
        let foundry = self.foundry;
        let at = foundry.at(NEXT).join(GUILD);
        let (expected, otherwise) = candidate.expected;
        let guild = next.create_folder(OsStr::new(GUILD)).map_err(FoundryError::io("make", &at))?;
        let to = match tree::copy(candidate.from, &guild) {
            Ok(to) => to,
            Err(Unfit::Odd(_)) => return Err(FoundryError::refused(otherwise, changed(otherwise))),
            Err(unfit) => return Err(FoundryError::unfit(&at)(unfit)),
        };
        guild.sync().map_err(FoundryError::io("write", &at))?;
        told(Step::Copied);
        if to != expected {
            return Err(FoundryError::refused(otherwise, changed(otherwise)));
        }
        let baseline = foundry.at(BASELINE);
        let from = tree::digest(&foundry.baseline()?).map_err(FoundryError::unfit(&baseline))?;
        if to == from {
            return Err(FoundryError::refused(
                Refusal::Same,
                "it is the baseline already; nothing is to be done",
            ));
        }
        let waived = judge(&from, &baseline, &at)?;
        told(Step::Judged);
        let Candidate { act, branch, back_to, gate_sha256, .. } = candidate;
        let n = self.history()?.last().map_or(0, |kept| kept.n) + 1;
        let kept = Kept { schema: 1, n, act, branch, back_to, from, to, gate_sha256, waived, at: now() };
        let text = serde_json::to_vec_pretty(&kept)
            .map_err(|e| FoundryError::io("write", &foundry.at(NEXT))(e.into()))?;
        put(next, RECORD, &text)
            .and_then(|()| foundry.root().sync())
            .map_err(FoundryError::io("write", &foundry.at(NEXT)))?;
        told(Step::Recorded);
        Ok(kept)
    }

    fn carry_out(&self, next: &Folder, kept: &Kept, told: Told<'_>) -> Result<(), FoundryError> {
        let root = self.foundry.root();
        let wrong = || FoundryError::io("exchange", &self.foundry.path().join(BASELINE));
        next.exchange(OsStr::new(GUILD), root, OsStr::new(BASELINE)).map_err(wrong())?;
        root.sync().and_then(|()| next.sync()).map_err(wrong())?;
        told(Step::Exchanged);
        self.keep(kept)?;
        told(Step::Kept);
        Ok(())
    }

    /// What was exchanged goes into the history.
    fn keep(&self, kept: &Kept) -> Result<(), FoundryError> {
        let history = self.foundry.folder(HISTORY)?;
        let root = self.foundry.root();
        root.rename(OsStr::new(NEXT), &history, OsStr::new(&kept.name()))
            .and_then(|()| history.sync())
            .and_then(|()| root.sync())
            .map_err(FoundryError::io("keep", &self.foundry.at(HISTORY)))
    }

    /// Brings to an end what somebody left in the middle.
    pub(crate) fn recover(&self) -> Result<(), FoundryError> {
        let foundry = self.foundry;
        let at = foundry.at(NEXT);
        let next = match foundry.root().folder(Path::new(NEXT)) {
            Ok(next) => next,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(FoundryError::io("open", &at)(e)),
        };
        let record = get(&next, RECORD, MOST_FILE).map_err(FoundryError::io("read", &at.join(RECORD)))?;
        let Some(record) = record else { return tree::remove(&at).map_err(FoundryError::io("remove", &at)) };
        let unclear = || FoundryError::Unclear { baseline: foundry.at(BASELINE), next: at.join(GUILD) };
        let kept: Kept = serde_json::from_slice(&record).map_err(|_| unclear())?;
        let is = |folder: std::io::Result<Folder>| folder.ok().and_then(|f| tree::digest(&f).ok());
        let baseline = is(foundry.root().folder(Path::new(BASELINE)));
        let waiting = is(next.folder(Path::new(GUILD)));
        let (from, to) = (Some(&kept.from), Some(&kept.to));
        if (baseline.as_ref(), waiting.as_ref()) == (to, from) {
            return self.keep(&kept);
        }
        if (baseline.as_ref(), waiting.as_ref()) != (from, to) {
            return Err(unclear());
        }
        // The record first: without one it is nothing but a copy.
        next.remove_file(OsStr::new(RECORD))
            .and_then(|()| next.sync())
            .and_then(|()| tree::remove(&at))
            .map_err(FoundryError::io("remove", &at))
    }

    /// All that was kept, oldest first.
    pub(crate) fn history(&self) -> Result<Vec<Kept>, FoundryError> {
        self.foundry.history()
    }
}

impl crate::Foundry {
    /// Baselines that were kept, oldest first.
    ///
    /// # Errors
    /// [`FoundryError::Io`] when one of them cannot be read: nothing is said about a history with holes.
    pub fn history(&self) -> Result<Vec<Kept>, FoundryError> {
        let history = self.folder(HISTORY)?;
        let at = self.at(HISTORY);
        let (names, _) = tree::folders(&history, MOST_KEPT).map_err(FoundryError::io("read", &at))?;
        let mut all = Vec::new();
        for name in names {
            let Some(folder) = name.to_str().and_then(|name| history.folder(Path::new(name)).ok()) else {
                continue;
            };
            let read = get(&folder, RECORD, MOST_FILE).map_err(FoundryError::io("read", &at.join(&name)))?;
            let kept: Option<Kept> = read.and_then(|bytes| serde_json::from_slice(&bytes).ok());
            match kept.filter(|kept| OsStr::new(&kept.name()) == name) {
                Some(kept) => all.push(kept),
                None => {
                    return Err(FoundryError::Input {
                        what: at.join(tree::shown(&name)).display().to_string(),
                        why: "it holds no record of a kept baseline".to_owned(),
                    });
                }
            }
        }
        all.sort_by_key(|kept| kept.n);
        Ok(all)
    }
}

impl Kept {
    /// The name of its folder.
    pub fn name(&self) -> String {
        format!("{:06}-{}", self.n, self.from)
    }
}

/// The kept baseline that is the one before the present one: what was promoted is taken off in turn, so that going back
/// twice leads two promotions back.
pub(crate) fn before(history: &[Kept]) -> Option<&Kept> {
    let mut stack: Vec<&Kept> = Vec::new();
    for kept in history {
        match kept.act {
            Act::Promote => stack.push(kept),
            Act::Rollback => drop(stack.pop()),
        }
    }
    stack.pop()
}

fn changed(refusal: Refusal) -> String {
    match refusal {
        Refusal::KeptChanged => "the kept baseline is not what was kept; it is not taken".to_owned(),
        _ => "the branch is not what the gate has looked at; gate it again".to_owned(),
    }
}
