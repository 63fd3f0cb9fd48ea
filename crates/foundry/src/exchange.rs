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
/// Of what is kept: 2 brought `before` and `wider`, 3 `any_wider`.
const SCHEMA: u32 = 3;
/// In the place of the record before the first.
const FIRST: &str = "0000000000000000000000000000000000000000000000000000000000000000";
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
    /// Of this format: 3; of 1 were those without `before` and `wider`, of 2 those without `any_wider`.
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
    /// Findings that the operator let pass on a way back by saying that it may be wider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wider: Vec<Value>,
    /// Whether the operator said that it may be wider, in whatever: also where nothing was, or nothing could be compared.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_wider: bool,
    /// SHA-256 of the record before this one, zeros where it is the first; none of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// When.
    pub at: String,
}

/// What the rules say of an exchange that may be.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Findings that a waiver lets pass.
    pub(crate) waived: Vec<Value>,
    /// Findings that the operator's word lets pass.
    pub(crate) wider: Vec<Value>,
    /// Whether there was such a word.
    pub(crate) any: bool,
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
    /// and says what was let pass.
    pub(crate) fn exchange(
        &self,
        candidate: Candidate<'_>,
        judge: impl FnOnce(&str, &Path, &Path) -> Result<Judged, FoundryError>,
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
        judge: impl FnOnce(&str, &Path, &Path) -> Result<Judged, FoundryError>,
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
        let chain = foundry.chain()?;
        let last = chain.kept.last();
        if let Some(last) = last.filter(|last| last.to != from) {
            return Err(broken(&format!(
                "the baseline is not what change {} made it: put that back ({}), or, if it was changed by hand and is \
                 meant, move what lies in {} elsewhere, and a new history begins",
                last.n,
                last.to,
                foundry.at(HISTORY).display()
            )));
        }
        let Judged { waived, wider, any: any_wider } = judge(&from, &baseline, &at)?;
        told(Step::Judged);
        let Candidate { act, branch, back_to, gate_sha256, .. } = candidate;
        let n = last.map_or(0, |kept| kept.n) + 1;
        let before = Some(chain.head);
        let (schema, at) = (SCHEMA, now());
        let kept = Kept {
            schema,
            n,
            act,
            branch,
            back_to,
            from,
            to,
            gate_sha256,
            waived,
            wider,
            any_wider,
            before,
            at,
        };
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
            Err(e) => return Err(FoundryError::folder("open", &at)(e)),
        };
        let record = get(&next, RECORD, MOST_FILE).map_err(FoundryError::file("read", &at.join(RECORD)))?;
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
    /// [`FoundryError::Io`] when one of them cannot be read, and [`FoundryError::Refused`] where they contradict each
    /// other: nothing is said about a history with holes.
    pub fn history(&self) -> Result<Vec<Kept>, FoundryError> {
        Ok(self.chain()?.kept)
    }

    /// All that was kept, if each goes on from the one before.
    pub(crate) fn chain(&self) -> Result<Chain, FoundryError> {
        let history = self.folder(HISTORY)?;
        let at = self.at(HISTORY);
        let (names, _) = tree::folders(&history, MOST_KEPT).map_err(FoundryError::io("read", &at))?;
        let mut all = Vec::new();
        for name in names {
            let Some(folder) = name.to_str().and_then(|name| history.folder(Path::new(name)).ok()) else {
                continue;
            };
            let read = get(&folder, RECORD, MOST_FILE)
                .map_err(FoundryError::file("read", &at.join(&name).join(RECORD)))?;
            let kept: Option<(Kept, String)> =
                read.and_then(|bytes| Some((serde_json::from_slice(&bytes).ok()?, runs::sha256(&bytes))));
            match kept.filter(|(kept, _)| OsStr::new(&kept.name()) == name) {
                Some(kept) => all.push(kept),
                None => {
                    return Err(FoundryError::Input {
                        what: at.join(tree::shown(&name)).display().to_string(),
                        why: "it holds no record of a kept baseline".to_owned(),
                    });
                }
            }
        }
        all.sort_by_key(|(kept, _)| kept.n);
        let mut chain = Chain { kept: Vec::new(), head: FIRST.to_owned() };
        for (kept, digest) in all {
            chain.goes_on(&kept).map_err(|why| {
                broken(&format!(
                    "the history contradicts itself at {}: {why}; look at what was put in, taken out or changed in {}, \
                     or move all of it elsewhere, and a new history begins with the baseline as it is",
                    kept.name(),
                    at.display()
                ))
            })?;
            chain.head = digest;
            chain.kept.push(kept);
        }
        Ok(chain)
    }
}

/// What was kept, in order.
pub(crate) struct Chain {
    pub(crate) kept: Vec<Kept>,
    /// SHA-256 of the last record; zeros where there is none.
    head: String,
}

impl Chain {
    /// Whether `next` is what comes next. Older versions did not say which record was before theirs; once one has said
    /// so, all do.
    fn goes_on(&self, next: &Kept) -> Result<(), String> {
        let n = self.kept.last().map_or(0, |last| last.n) + 1;
        if next.n > n {
            return Err(format!("change {n} is missing"));
        }
        if next.n < n {
            return Err(format!("there are two changes {}", next.n));
        }
        if self.kept.last().is_some_and(|last| last.to != next.from) {
            return Err("it did not replace what the change before had made the baseline".to_owned());
        }
        match &next.before {
            Some(before) if *before != self.head => {
                return Err("the record before it is not the one that was there".to_owned());
            }
            None if self.kept.iter().any(|kept| kept.before.is_some()) => {
                return Err("it does not say which record was before it".to_owned());
            }
            Some(_) | None => {}
        }
        let led_to = |back: u64| self.kept.iter().find(|kept| kept.n == back).map(|kept| &kept.from);
        match next.back_to {
            Some(back) if led_to(back) != Some(&next.to) => {
                Err(format!("it did not go back to what change {back} had replaced"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// How many were kept by versions that did not chain them.
    pub(crate) fn unchained(&self) -> usize {
        self.kept.iter().filter(|kept| kept.before.is_none()).count()
    }
}

fn broken(reason: &str) -> FoundryError {
    FoundryError::refused(Refusal::HistoryBroken, reason)
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
