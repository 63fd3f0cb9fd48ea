//! What is said of a row.

use serde::Serialize;

/// One row on one tier.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Judged {
    pub(super) id: String,
    pub(super) class: String,
    pub(super) tier: &'static str,
    pub(super) expected: String,
    pub(super) got: String,
    pub(super) verdict: Verdict,
    /// Why, in a sentence; empty where it held.
    pub(super) why: String,
    /// What was not as expected.
    pub(super) misses: Vec<Miss>,
    pub(super) duration_ms: u64,
}

/// The four things that can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Held,
    Failed,
    NotApplicable,
    CouldNotBeAsked,
}

impl Verdict {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Verdict::Held => "held",
            Verdict::Failed => "FAILED",
            Verdict::NotApplicable => "not applicable",
            Verdict::CouldNotBeAsked => "could not be asked",
        }
    }
}

/// A check that did not come out as expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Miss {
    pub(super) key: &'static str,
    pub(super) expected: String,
    pub(super) got: String,
}

/// Why a row means nothing here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotHere {
    #[error("there is no tool `{tool}`")]
    Tool { tool: String },
    #[error("archives are not imported yet")]
    Archive,
    #[error("the tier {tier} has no {what}")]
    Tier { tier: &'static str, what: &'static str },
    #[error("without groups memory is bounded otherwise: nothing fails for want of them")]
    Groups,
}

/// Why a row that means something here could not be played.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unasked {
    #[error("it needs `{program}` in the guest, which is not there")]
    Guest { program: String },
    #[error("line {line} of its `setup` failed: {how}")]
    Setup { line: usize, how: String },
    #[error("`turns_generate` has no form that is written down")]
    Generated,
    #[error("`{key}` cannot be measured in a row of this form")]
    NotMeasured { key: &'static str },
    #[error("this machine: {what}")]
    Machine { what: String },
}

/// Why there is nothing to judge.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    Unasked(Unasked),
    /// The program did what it never may.
    Fault(String),
    /// The user asked for an end.
    Cancelled,
}

impl From<std::io::Error> for Trouble {
    fn from(e: std::io::Error) -> Trouble {
        Trouble::Unasked(Unasked::Machine { what: e.to_string() })
    }
}

impl From<Unasked> for Trouble {
    fn from(why: Unasked) -> Trouble {
        Trouble::Unasked(why)
    }
}
