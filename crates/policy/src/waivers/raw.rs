//! The keys of `foundry.toml` as they are written. The schema is generated from these types and their comments.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::schema;

/// The schema of these keys.
pub(crate) static SCHEMA: LazyLock<Value> = LazyLock::new(schema::of::<RawFoundry>);

/// What the operator says about changes of Guilds. Never part of a Guild.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Foundry", title = "foundry.toml")]
pub(crate) struct RawFoundry {
    /// Findings of the gate that are meant.
    pub(super) waiver: Option<Vec<Option<RawWaiver>>>,
}

/// One finding of the gate that is meant: without it, what is wider is refused.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Waiver")]
pub(super) struct RawWaiver {
    /// The code of the finding, as `W-TOOL-ADDED`.
    #[schemars(required)]
    pub(super) finding: Option<String>,
    /// Its place, exactly as a report says it.
    #[schemars(required)]
    pub(super) place: Option<String>,
    /// What is there now, exactly as a report says it: then nothing else at this place is waived.
    pub(super) now: Option<String>,
    /// Why, in one line; it is shown in every report.
    #[schemars(required)]
    pub(super) reason: Option<String>,
    /// The last day on which it holds, as `2026-12-31`. A waiver whose day has passed is a fault.
    #[schemars(required)]
    pub(super) expires: Option<String>,
}
