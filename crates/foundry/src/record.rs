//! What the gate said of a branch: `gate.json` beside it, and, where no branch can write, which one was the gate's.

use runs::{Folder, sha256};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::store::{GATED, Held, MOST_FILE, get, put};
use crate::{BranchId, Foundry, FoundryError, Refusal};

pub(crate) const FILE: &str = "gate.json";
/// Raised with every change of what the gate looks at: what an older one let pass is looked at again.
const RULES: u32 = 1;
/// Bytes of a name in the folder of the gate's own words.
const MOST_NAME: u64 = 256;

/// What came of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GateVerdict {
    /// No wider than the baseline, and every attack was refused.
    Passed,
    /// It may do more than the baseline, or is no sound Guild. Nothing of it was run.
    Refused,
    /// An attack got what it wanted.
    Broken,
    /// Some attack could not be tried, which proves nothing.
    Unproven,
}

impl GateVerdict {
    /// The stable text form.
    pub fn as_str(self) -> &'static str {
        match self {
            GateVerdict::Passed => "passed",
            GateVerdict::Refused => "refused",
            GateVerdict::Broken => "broken",
            GateVerdict::Unproven => "unproven",
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
    /// When.
    pub at: String,
    /// What the rules found, each with its code and place.
    pub findings: Vec<Value>,
    /// What of it a waiver of the operator's lets pass.
    pub waived: Vec<Value>,
    /// Tools added and removed, role by role.
    pub roles: Value,
    /// The attacks; none where the rules had refused it.
    pub attacks: Option<Attacks>,
}

/// What came of the attacks under a branch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attacks {
    /// On which tier.
    pub tier: policy::Tier,
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

/// What came of one attack, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowVerdict {
    /// It means nothing here.
    Absent,
    /// Nothing of it was carried out.
    Refused,
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

/// Writes the result beside the branch, and down where only the gate does.
pub(crate) fn write(
    held: &Held<'_>,
    (id, branch): (&BranchId, &Folder),
    record: &GateRecord,
) -> Result<(), FoundryError> {
    let foundry = held.foundry;
    let at = foundry.at(crate::store::BRANCHES).join(id.as_str()).join(FILE);
    let mut text = serde_json::to_vec_pretty(record).map_err(|e| FoundryError::io("write", &at)(e.into()))?;
    text.push(b'\n');
    put(branch, FILE, &text).map_err(FoundryError::io("write", &at))?;
    let line = format!("{}\n", sha256(&text));
    put(&foundry.folder(GATED)?, id.as_str(), line.as_bytes())
        .map_err(FoundryError::io("write to", &foundry.at(GATED)))
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
        .map_err(FoundryError::io("read", &foundry.at(GATED)))?;
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
