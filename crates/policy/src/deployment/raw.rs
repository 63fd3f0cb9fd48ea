//! The keys of `oubliette.toml` as they are written. The schema is generated from these types and their
//! comments; the values still carry their units, and mean nothing until `deployment` has checked them.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::schema;
use crate::tier::Floor;
use crate::value::RawSize;
use crate::{Surroundings, TierChoice};

/// The schema of these keys.
pub(crate) static SCHEMA: LazyLock<Value> = LazyLock::new(schema::of::<RawDeployment>);

/// The operator's file. A Guild can only narrow what it says; a key that is left out has its default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Deployment", title = "oubliette.toml")]
pub(crate) struct RawDeployment {
    /// The model endpoint.
    pub(super) model: Option<RawModel>,
    /// How strong the boundary must be.
    pub(super) isolation: Option<RawIsolation>,
    /// Hard bounds of one sandbox.
    pub(super) limits: Option<RawLimits>,
    /// Bounds of one tool call.
    pub(super) call: Option<RawCall>,
    /// The tools that run programs.
    pub(super) shell: Option<RawShell>,
    /// Destinations that may be reached, and what a run may take of the way there.
    pub(super) network: Option<RawGranted>,
    /// What is given to the guest on purpose.
    pub(super) secrets: Option<RawSecrets>,
    /// What a run may spend.
    pub(super) budget: Option<RawBudget>,
    /// What all runs of this deployment may take at the same time.
    pub(super) ceiling: Option<RawCeiling>,
    /// Where records go.
    pub(super) records: Option<RawRecords>,
}

/// Destinations that may be reached, and what a run may take of the way there.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Network")]
pub(super) struct RawGranted {
    /// Each `host:port` or `*.label.tld:port`, or a table of such a host with a header; empty means none.
    #[schemars(extend("default" = []))]
    pub(super) allow: Option<Vec<Option<RawDestination>>>,
    /// Connections of a run at the same time.
    #[schemars(range(min = 1, max = 256), extend("default" = 256))]
    pub(super) open: Option<u64>,
    /// Connections of a run, all together.
    #[schemars(range(min = 1, max = 20_000), extend("default" = 20_000))]
    pub(super) connections: Option<u64>,
    /// Bytes of a run that go out.
    #[schemars(extend("default" = "256MiB"))]
    pub(super) up: Option<RawSize>,
    /// Bytes of a run that come in.
    #[schemars(extend("default" = "4GiB"))]
    pub(super) down: Option<RawSize>,
    /// Bytes in a second, each way, all connections of a run together; when left out, as fast as it goes.
    pub(super) rate: Option<RawSize>,
    /// A connection without a byte in either direction ends after this.
    #[schemars(extend("default" = "2m"))]
    pub(super) idle: Option<String>,
    /// The longest that a connection lasts.
    #[schemars(extend("default" = "15m"))]
    pub(super) lifetime: Option<String>,
}

/// A destination: a text, or a table where the executor adds a header.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Destination")]
pub(super) enum RawDestination {
    /// `host:port` or `*.label.tld:port`.
    Rule(String),
    /// The same with a header.
    Table(RawWithHeader),
}

/// A destination with a header.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DestinationWithHeader")]
pub(super) struct RawWithHeader {
    /// `host:port`.
    #[schemars(required)]
    pub(super) host: Option<String>,
    /// What the executor adds to requests that go there, over TLS of its own; the guest never has the value.
    pub(super) header: Option<RawHeader>,
}

/// A header that the executor adds.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Header")]
pub(super) struct RawHeader {
    /// Its name, as `authorization`.
    #[schemars(required)]
    pub(super) name: Option<String>,
    /// The name of the environment variable that holds its value, all of it (`Bearer ...`).
    #[schemars(required)]
    pub(super) secret_env: Option<String>,
}

/// The model endpoint.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Model")]
pub(super) struct RawModel {
    /// A chat-completions server, in plain HTTP.
    #[schemars(extend("default" = "http://127.0.0.1:8080/v1"))]
    pub(super) base_url: Option<String>,
    /// The name sent to the server.
    #[schemars(extend("default" = "local"))]
    pub(super) name: Option<String>,
    /// The name of the environment variable that holds the key, never the key.
    pub(super) api_key_env: Option<String>,
    /// A server whose window holds fewer tokens is refused.
    #[schemars(range(min = 1), extend("default" = 4096))]
    pub(super) min_context: Option<u64>,
}

/// How strong the boundary must be.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Isolation")]
pub(super) struct RawIsolation {
    /// What is asked for; `auto` takes the strongest tier that a probe has seen working.
    #[schemars(extend("default" = "auto"))]
    pub(super) tier: Option<TierChoice>,
    /// The weakest tier that is accepted.
    #[schemars(extend("default" = "gvisor"))]
    pub(super) floor: Option<Floor>,
    /// The boundary in which the whole executor already runs, on the operator's word.
    #[schemars(extend("default" = "none"))]
    pub(super) surroundings: Option<Surroundings>,
    /// `host` for a read-only view of this machine's toolchain, or the path of a folder.
    #[schemars(extend("default" = "host"))]
    pub(super) rootfs: Option<String>,
}

/// Hard bounds of one sandbox.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Limits")]
pub(super) struct RawLimits {
    /// Life of the sandbox, wall clock.
    #[schemars(extend("default" = "15m"))]
    pub(super) wall: Option<String>,
    /// Processor time of all processes together.
    #[schemars(extend("default" = "10m"))]
    pub(super) cpu: Option<String>,
    /// Processors that may be busy at the same time.
    #[schemars(range(min = 1, max = 4_294_967_295_u32), extend("default" = 2))]
    pub(super) cores: Option<u64>,
    /// Memory.
    #[schemars(extend("default" = "2GiB"))]
    pub(super) memory: Option<RawSize>,
    /// Processes and threads.
    #[schemars(range(min = 1, max = 4_294_967_295_u32), extend("default" = 256))]
    pub(super) processes: Option<u64>,
    /// Bytes in the workspace, all files together.
    #[schemars(extend("default" = "1GiB"))]
    pub(super) disk: Option<RawSize>,
    /// Bytes in `/tmp` and `/dev/shm`.
    #[schemars(extend("default" = "256MiB"))]
    pub(super) tmp: Option<RawSize>,
    /// Files in the workspace, folders among them.
    #[schemars(range(min = 1), extend("default" = 50_000))]
    pub(super) files: Option<u64>,
}

/// Bounds of one tool call.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Call")]
pub(super) struct RawCall {
    /// Wall clock; everything the call started is killed when it strikes.
    #[schemars(extend("default" = "60s"))]
    pub(super) timeout: Option<String>,
    /// Processor time of everything the call started; when left out, only `limits.cpu` holds.
    pub(super) cpu: Option<String>,
    /// Memory that everything the call started holds; when left out, only `limits.memory` holds.
    pub(super) memory: Option<RawSize>,
    /// Processes and threads of the call; when left out, only `limits.processes` holds.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub(super) processes: Option<u64>,
    /// Bytes by which the call may make the workspace grow; when left out, only `limits.disk` holds.
    pub(super) disk: Option<RawSize>,
    /// Output kept as an artifact; what is printed beyond is counted, and its end is shown.
    #[schemars(extend("default" = "1MiB"))]
    pub(super) output: Option<RawSize>,
    /// Output that may be printed at all; more ends the call. At least `output`.
    #[schemars(extend("default" = "4GiB"))]
    pub(super) flood: Option<RawSize>,
    /// Characters of a result shown to the model.
    #[schemars(range(min = 1, max = 4_294_967_295_u32), extend("default" = 10_000))]
    pub(super) to_model: Option<u64>,
}

/// The tools that run programs. The lists are a convenience with a clear message; the sandbox is the boundary.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Shell")]
pub(super) struct RawShell {
    /// Whether programs may be run at all.
    #[schemars(extend("default" = true))]
    pub(super) enabled: Option<bool>,
    /// When not empty: the only commands that may be run, as `ls` or `git status`. To run none, set `enabled`.
    #[schemars(extend("default" = []))]
    pub(super) allow: Option<Vec<Option<String>>>,
    /// Commands refused, as `shutdown` or `git push`.
    #[schemars(extend("default" = []))]
    pub(super) deny: Option<Vec<Option<String>>>,
}

/// What is given to the guest on purpose.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Secrets")]
pub(super) struct RawSecrets {
    /// Names of environment variables; empty means none.
    #[schemars(extend("default" = []))]
    pub(super) pass: Option<Vec<Option<String>>>,
}

/// What a run may spend.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Budget")]
pub(super) struct RawBudget {
    /// Model turns.
    #[schemars(range(min = 1, max = 4_294_967_295_u32), extend("default" = 60))]
    pub(super) steps: Option<u64>,
    /// Tool calls, refused ones included.
    #[schemars(range(min = 1, max = 4_294_967_295_u32), extend("default" = 100))]
    pub(super) tool_calls: Option<u64>,
    /// Prompt plus completion tokens as the server counts them.
    #[schemars(range(min = 1), extend("default" = 400_000))]
    pub(super) tokens: Option<u64>,
    /// Wall clock of the run.
    #[schemars(extend("default" = "15m"))]
    pub(super) wall: Option<String>,
    /// Nested `agent` calls.
    #[schemars(range(min = 1, max = 4_294_967_295_u32), extend("default" = 4))]
    pub(super) depth: Option<u64>,
    /// The same call with the same result, this many times, ends the run.
    #[schemars(range(min = 1, max = 4_294_967_295_u32), extend("default" = 4))]
    pub(super) repeats: Option<u64>,
    /// Unreadable answers in a row.
    #[schemars(range(min = 1, max = 4_294_967_295_u32), extend("default" = 5))]
    pub(super) format_errors: Option<u64>,
}

/// What all runs of this deployment may take at the same time; who finds no room waits for it, first come, first
/// served.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Ceiling")]
pub(super) struct RawCeiling {
    /// Runs with a sandbox.
    #[schemars(range(min = 1, max = 4_294_967_295_u32), extend("default" = 8))]
    pub(super) sandboxes: Option<u64>,
    /// Their `limits.memory` together; a run that may be a machine takes 576 MiB more for its kernel and its monitor.
    #[schemars(extend("default" = "16GiB"))]
    pub(super) memory: Option<RawSize>,
    /// Their `limits.cores` together.
    #[schemars(range(min = 1, max = 4_294_967_295_u32), extend("default" = 16))]
    pub(super) cores: Option<u64>,
}

/// Where records go.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Records")]
pub(super) struct RawRecords {
    /// The folder, relative to this file.
    #[schemars(extend("default" = "data"))]
    pub(super) dir: Option<String>,
    /// How long runs are kept.
    #[schemars(extend("default" = "30d"))]
    pub(super) keep: Option<String>,
    /// What all runs together may hold.
    #[schemars(extend("default" = "5GiB"))]
    pub(super) max_bytes: Option<RawSize>,
}
