//! A decision about one act of the model, with its reason.

use serde::Serialize;

/// Allowed or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It may happen.
    Allowed,
    /// It did not happen.
    Refused,
}

/// What was decided, by which rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// Allowed or refused.
    pub verdict: Verdict,
    /// The rule, as a stable code (`role-tools`, `shell-deny`, ...).
    pub rule: &'static str,
    /// One clean sentence, fit for the model.
    pub reason: String,
}

impl Decision {
    /// Allowed by `rule`.
    pub fn allow(rule: &'static str) -> Self {
        Decision { verdict: Verdict::Allowed, rule, reason: String::new() }
    }

    /// Refused by `rule`.
    pub fn refuse(rule: &'static str, reason: impl Into<String>) -> Self {
        Decision { verdict: Verdict::Refused, rule, reason: reason.into() }
    }

    /// Whether it may happen.
    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allowed
    }
}
