//! The keys of `guild.toml` as they are written. The schema is generated from these types and their comments;
//! the values mean nothing until `guild` has checked them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::schema;
use crate::value::{RawNetwork, RawSize};

/// The schema of these keys.
pub(crate) static SCHEMA: LazyLock<Value> = LazyLock::new(schema::of::<RawGuild>);

/// Roles, prompts and tool lists. Whatever it asks for, it gets at most what the deployment gives.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Guild", title = "guild.toml")]
pub(crate) struct RawGuild {
    /// The version of this format: 1.
    #[schemars(required)]
    pub(super) schema: Option<u64>,
    /// The name of the Guild.
    #[schemars(required)]
    pub(super) name: Option<String>,
    /// The role a run starts with.
    #[schemars(required)]
    pub(super) entry: Option<String>,
    /// Every role, by name.
    #[schemars(required)]
    pub(super) roles: Option<BTreeMap<String, RawRole>>,
    /// Lower bounds than the deployment's.
    pub(super) limits: Option<RawLowered>,
    /// Destinations it asks for.
    pub(super) network: Option<RawNetwork>,
    /// Tools of the Guild's own, by name: modules, each call of which runs in the tier `wasm`.
    pub(super) tools: Option<BTreeMap<String, RawModule>>,
}

/// One role.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Role")]
pub(super) struct RawRole {
    /// Its prompt: the path of a file in the Guild folder.
    #[schemars(required)]
    pub(super) prompt: Option<String>,
    /// Exactly the tools it may call; empty means none.
    #[schemars(required)]
    pub(super) tools: Option<Vec<Option<String>>>,
    /// Roles that its `agent` tool may start; empty means none.
    #[schemars(extend("default" = []))]
    pub(super) agents: Option<Vec<Option<String>>>,
    /// Lower spending bounds than the deployment's.
    pub(super) budget: Option<RawRoleBudget>,
    /// Sampling.
    pub(super) generation: Option<RawGeneration>,
}

/// Lower spending bounds of one role.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RoleBudget")]
pub(super) struct RawRoleBudget {
    /// Tool calls, refused ones included.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub(super) tool_calls: Option<u64>,
    /// Prompt plus completion tokens.
    #[schemars(range(min = 1))]
    pub(super) tokens: Option<u64>,
    /// Model turns.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub(super) steps: Option<u64>,
}

/// Sampling.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Generation")]
pub(super) struct RawGeneration {
    /// From 0, always the likeliest, to 2.
    #[schemars(range(min = 0, max = 2), extend("default" = 0.2))]
    pub(super) temperature: Option<f64>,
    /// Tokens of one answer.
    #[schemars(range(min = 1, max = 4_294_967_295_u32), extend("default" = 2048))]
    pub(super) max_tokens: Option<u64>,
}

/// Lower bounds than the deployment's; a key that is left out leaves the deployment's.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LoweredLimits")]
pub(super) struct RawLowered {
    /// Wall clock of one call.
    pub(super) timeout: Option<String>,
    /// Processor time of everything one call started.
    pub(super) call_cpu: Option<String>,
    /// Memory that everything one call started holds.
    pub(super) call_memory: Option<RawSize>,
    /// Processes and threads of one call.
    #[schemars(range(min = 1))]
    pub(super) call_processes: Option<u64>,
    /// Bytes by which one call may make the workspace grow.
    pub(super) call_disk: Option<RawSize>,
    /// Output of one call.
    pub(super) output: Option<RawSize>,
    /// Life of the sandbox, wall clock.
    pub(super) wall: Option<String>,
    /// Processor time of all processes together.
    pub(super) cpu: Option<String>,
    /// Processors that may be busy at the same time.
    #[schemars(range(min = 1))]
    pub(super) cores: Option<u64>,
    /// Memory.
    pub(super) memory: Option<RawSize>,
    /// Processes and threads.
    #[schemars(range(min = 1))]
    pub(super) processes: Option<u64>,
    /// Bytes in the workspace, all files together.
    pub(super) disk: Option<RawSize>,
    /// Bytes in `/tmp` and `/dev/shm`.
    pub(super) tmp: Option<RawSize>,
    /// Files in the workspace, folders among them.
    #[schemars(range(min = 1))]
    pub(super) files: Option<u64>,
}

/// A tool of the Guild's own.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Module")]
pub(super) struct RawModule {
    /// Its name, description and arguments: the path of a file in the Guild folder.
    #[schemars(required)]
    pub(super) manifest: Option<String>,
    /// Its code: the path of a file in the Guild folder.
    #[schemars(required)]
    pub(super) module: Option<String>,
}
