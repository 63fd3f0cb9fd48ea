//! What the gate said of a branch: `gate.json` beside it, and, where no branch can write, which one was the gate's.

use std::collections::BTreeMap;
use std::fmt;

use policy::{Isolation, Surroundings, Tier, TierChoice};
use runs::{Folder, sha256};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::store::{GATED, Held, MOST_FILE, get, gone, put, vacant};
use crate::{BranchId, Foundry, FoundryError, Refusal};

pub(crate) const FILE: &str = "gate.json";
/// Raised with every change of how the gate looks and judges: what an older one let pass is looked at again. What it
/// attacks with has a digest of its own.
const RULES: u32 = 4;
/// What the names of rows about calls begin with.
pub(crate) const CALL: &str = "tool:";
/// Bytes of a name in the folder of the gate's own words.
const MOST_NAME: u64 = 256;
/// Findings and attacks that are kept where all are too many, and characters of a text in them.
const MOST_KEPT: usize = 100;
const MOST_TEXT: usize = 300;
/// Characters of the reason.
const MOST_REASON: usize = 4000;

/// What came of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateVerdict {
    /// No wider than the baseline, and every attack was refused.
    Passed,
    /// It may do more than the baseline, or is no sound Guild. Nothing of it was run.
    Refused,
    /// An attack got what it wanted.
    Broken,
    /// Some attack could not be tried, which proves nothing.
    Unproven,
    /// There is more of it than the gate attacks, or writes down.
    TooMuch,
}

impl GateVerdict {
    /// The stable text form.
    pub fn as_str(self) -> &'static str {
        match self {
            GateVerdict::Passed => "passed",
            GateVerdict::Refused => "refused",
            GateVerdict::Broken => "broken",
            GateVerdict::Unproven => "unproven",
            GateVerdict::TooMuch => "too-much",
        }
    }
}

/// The file `gate.json` of a branch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateRecord {
    /// Of this format: 1.
    pub schema: u32,
    /// Which gate.
    pub gate: String,
    /// Of which branch.
    pub branch: String,
    /// What came of it.
    pub verdict: GateVerdict,
    /// The same in words.
    pub reason: String,
    /// The digest of what was looked at; none where the folder is no Guild's.
    pub branch_digest: Option<String>,
    /// The digest of what it was compared with.
    pub baseline_digest: String,
    /// SHA-256 of the deployment's file.
    pub deployment_digest: String,
    /// Where a run would be put by it, and by the command line.
    pub asked: Asked,
    /// When.
    pub at: String,
    /// The waivers' file; none where there is none.
    pub waivers: Option<ByWaivers>,
    /// What the rules found, each with its code and place.
    pub findings: Vec<Value>,
    /// What of it a waiver of the operator's lets pass.
    pub waived: Vec<Value>,
    /// Waivers that name nothing of it.
    pub unused: Vec<Value>,
    /// Tools added and removed, role by role.
    pub roles: Value,
    /// What is different in the prompts, by the place of each.
    pub prompts: BTreeMap<String, String>,
    /// Prompts that are different as well, for which there was no room here.
    pub more_prompts: usize,
    /// The attacks; none where the rules had refused it.
    pub attacks: Option<Attacks>,
}

/// The waivers by which a branch was judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByWaivers {
    /// The file, as the operator has named it.
    pub file: String,
    /// SHA-256 of it.
    pub sha256: String,
}

/// Where a run is put: what the deployment says, with what the command line says over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// The tier that is asked for.
    pub tier: TierChoice,
    /// The weakest that is accepted.
    pub floor: Tier,
    /// What is stated about the surroundings.
    pub surroundings: Surroundings,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tier = self.tier.fixed().map_or("auto", Tier::as_str);
        write!(f, "tier {tier}, floor {}", self.floor)?;
        match self.surroundings {
            Surroundings::None => Ok(()),
            Surroundings::Gvisor => f.write_str(", inside gvisor"),
            Surroundings::Microvm => f.write_str(", inside microvm"),
        }
    }
}

impl Asked {
    pub(crate) fn by(isolation: &Isolation) -> Asked {
        let Isolation { tier, floor, surroundings, rootfs: _ } = isolation;
        Asked { tier: *tier, floor: *floor, surroundings: *surroundings }
    }
}

/// What came of the attacks under a branch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attacks {
    /// On which tier.
    pub tier: Tier,
    /// What was in force there.
    pub engine: String,
    /// The digest of what was tried.
    pub corpus: String,
    /// Attack by attack.
    pub rows: Vec<Row>,
    /// Milliseconds.
    pub duration_ms: u64,
}

/// What came of one attack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// As which role.
    pub role: String,
    /// Which attack, or which call.
    pub attack: String,
    /// What came of it.
    pub verdict: RowVerdict,
    /// The layer that held it.
    pub layer: String,
    /// More, where there is something to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl Row {
    /// Whether it is of an attack that is a program, which a role has asked for.
    pub(crate) fn is_program(&self) -> bool {
        !self.role.is_empty() && !self.attack.starts_with(CALL)
    }
}

/// What came of one attack, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowVerdict {
    /// It means nothing here.
    Absent,
    /// Nothing of it was carried out: a rule has refused it by its name or its arguments.
    Refused,
    /// It got nothing that it was after, but would have got it without the sandbox neither, or something else than its
    /// layer stopped it: it shows nothing of that.
    #[serde(rename = "held_around")]
    HeldAround,
    /// It was carried out, and got nothing that it was after.
    Held,
    /// It could not be tried.
    Error,
    /// It got what it wanted.
    Broken,
}

/// This gate.
pub(crate) fn gate() -> String {
    format!("{RULES}/{}", env!("CARGO_PKG_VERSION"))
}

/// Writes the result beside the branch, and down where only the gate does; what was written.
pub(crate) fn write(
    held: &Held<'_>,
    (id, branch): (&BranchId, &Folder),
    mut record: GateRecord,
) -> Result<GateRecord, FoundryError> {
    let foundry = held.foundry;
    let at = foundry.at(crate::store::BRANCHES).join(id.as_str()).join(FILE);
    let text = |record: &GateRecord| {
        let mut text =
            serde_json::to_vec_pretty(record).map_err(|e| FoundryError::io("write", &at)(e.into()))?;
        text.push(b'\n');
        Ok::<_, FoundryError>(text)
    };
    record.reason = short(&record.reason, MOST_REASON);
    let mut told = text(&record)?;
    if told.len() as u64 > MOST_FILE {
        shorten(&mut record);
        told = text(&record)?;
    }
    put(branch, FILE, &told).map_err(FoundryError::file("write", &at))?;
    let line = format!("{}\n", sha256(&told));
    put(&foundry.folder(GATED)?, id.as_str(), line.as_bytes())
        .map_err(FoundryError::file("write", &foundry.at(GATED).join(id.as_str())))?;
    Ok(record)
}

/// Takes back what an earlier gate said, for good: whatever ends the one that begins, nothing older lets the branch pass.
/// What the branch may have put in the way comes second.
pub(crate) fn forget(held: &Held<'_>, (id, branch): (&BranchId, &Folder)) -> Result<(), FoundryError> {
    let foundry = held.foundry;
    let at = foundry.at(GATED).join(id.as_str());
    let gated = foundry.folder(GATED)?;
    gone(&gated, id.as_str()).and_then(|()| gated.sync()).map_err(FoundryError::file("write", &at))?;
    has_place(foundry, (id, branch))?;
    let at = foundry.at(crate::store::BRANCHES).join(id.as_str()).join(FILE);
    gone(branch, FILE).map_err(FoundryError::file("write", &at))
}

/// Whether a result can be written beside a branch: asked before anything is attacked.
fn has_place(foundry: &Foundry, (id, branch): (&BranchId, &Folder)) -> Result<(), FoundryError> {
    let at = foundry.at(crate::store::BRANCHES).join(id.as_str());
    vacant(branch, FILE).map_err(FoundryError::file("write", &at.join(FILE)))?;
    vacant(&foundry.folder(GATED)?, id.as_str())
        .map_err(FoundryError::file("write", &foundry.at(GATED).join(id.as_str())))
}

/// Makes a result one that is read again. What was left out of it was not judged by who reads it, so it lets nothing
/// pass any more.
fn shorten(record: &mut GateRecord) {
    let left_out =
        format!("all that is to be said of it is longer than {} MiB, and was shortened", MOST_FILE >> 20);
    if record.verdict == GateVerdict::Passed {
        (record.verdict, record.reason) = (GateVerdict::TooMuch, left_out);
    } else {
        record.reason = format!("{}; {left_out}", record.reason);
    }
    for list in [&mut record.findings, &mut record.waived, &mut record.unused] {
        list.truncate(MOST_KEPT);
        list.iter_mut().for_each(cut);
    }
    record.roles = Value::Null;
    record.more_prompts += record.prompts.len();
    record.prompts.clear();
    if let Some(attacks) = &mut record.attacks {
        attacks.rows.sort_by_key(|row| std::cmp::Reverse(row.verdict));
        attacks.rows.truncate(MOST_KEPT);
        attacks.engine = short(&attacks.engine, MOST_TEXT);
    }
}

/// Shortens every text of a finding.
fn cut(value: &mut Value) {
    match value {
        Value::String(text) => *text = short(text, MOST_TEXT),
        Value::Array(items) => {
            items.truncate(MOST_KEPT);
            items.iter_mut().for_each(cut);
        }
        Value::Object(members) => members.values_mut().for_each(cut),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn short(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// The gate's own result of a branch, and the SHA-256 of the file.
pub(crate) fn read(
    foundry: &Foundry,
    (id, branch): (&BranchId, &Folder),
) -> Result<(GateRecord, String), FoundryError> {
    let not_gated = || {
        FoundryError::refused(
            Refusal::NotGated,
            format!("{id} was not gated yet: oubliette foundry gate {id}"),
        )
    };
    let forged = || {
        let reason = format!("the gate.json of {id} is not what the gate wrote; gate it again");
        FoundryError::refused(Refusal::GateForged, reason)
    };
    let written = get(&foundry.folder(GATED)?, id.as_str(), MOST_NAME)
        .map_err(FoundryError::file("read", &foundry.at(GATED).join(id.as_str())))?;
    let bytes = match get(branch, FILE, MOST_FILE) {
        Ok(bytes) => bytes,
        // A link, a FIFO or something endless was not written by us.
        Err(_) => return Err(forged()),
    };
    let (written, bytes) = match (written, bytes) {
        (Some(written), Some(bytes)) => (written, bytes),
        (None, Some(_)) => return Err(forged()),
        (Some(_) | None, None) => return Err(not_gated()),
    };
    let digest = sha256(&bytes);
    if written != format!("{digest}\n").into_bytes() {
        return Err(forged());
    }
    let record: GateRecord = serde_json::from_slice(&bytes).map_err(|_| {
        let reason = format!("another version of the gate has looked at {id}; gate it again");
        FoundryError::refused(Refusal::GateChanged, reason)
    })?;
    if record.branch != id.as_str() {
        return Err(forged());
    }
    Ok((record, digest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whatever_there_is_to_say_a_result_is_one_that_is_read_again() {
        let text = "\u{1}".repeat(100_000);
        let row = |verdict| Row {
            role: "r".repeat(64),
            attack: "a".repeat(64),
            verdict,
            layer: "policy".to_owned(),
            detail: "\u{1}".repeat(300),
        };
        let mut rows = vec![row(RowVerdict::Held); 20_000];
        rows.push(row(RowVerdict::Broken));
        let mut record = GateRecord {
            schema: 1,
            gate: gate(),
            branch: "b".to_owned(),
            verdict: GateVerdict::Passed,
            reason: short(&text, MOST_REASON),
            branch_digest: None,
            baseline_digest: String::new(),
            deployment_digest: String::new(),
            asked: Asked::by(&policy::Deployment::default().isolation),
            at: String::new(),
            waivers: None,
            findings: vec![
                json!({"code": "W", "was": text, "now": [text, text], "waived": {"reason": text}});
                300
            ],
            waived: vec![json!({"now": text}); 300],
            unused: vec![json!({"now": text}); 300],
            roles: json!([text]),
            prompts: BTreeMap::from([("p".to_owned(), text.clone())]),
            more_prompts: 1,
            attacks: Some(Attacks {
                tier: Tier::Namespace,
                engine: text.clone(),
                corpus: String::new(),
                rows,
                duration_ms: 0,
            }),
        };
        shorten(&mut record);
        assert_eq!(record.verdict, GateVerdict::TooMuch);
        let written = serde_json::to_vec_pretty(&record).unwrap();
        assert!(written.len() as u64 <= MOST_FILE, "{}", written.len());
        let rows = record.attacks.unwrap().rows;
        assert_eq!((rows.len(), rows[0].verdict), (MOST_KEPT, RowVerdict::Broken));
    }
}
