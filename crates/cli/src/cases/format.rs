//! The form of a row: its keys, closed. What a key may be is said here once; the schema that a file is checked
//! against is made from these types.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A row as it stands in the file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRow {
    #[schemars(length(min = 1, max = 100))]
    pub(super) id: String,
    #[schemars(length(min = 1, max = 100))]
    pub(super) class: String,
    #[expect(dead_code, reason = "its word is checked; how a row is played is told by its input")]
    kind: Kind,
    #[serde(default)]
    pub(super) policy: Policy,
    #[serde(default)]
    pub(super) setup: Vec<String>,
    pub(super) input: RawInput,
    pub(super) expect: Expect,
    #[expect(dead_code, reason = "where a row comes from is for its reader")]
    source: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Shell,
    Tool,
    Config,
    Egress,
    Fs,
    Model,
}

/// What the deployment is to say, in neutral words.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Policy {
    pub(super) shell: ShellPolicy,
    pub(super) limits: LimitsPolicy,
    pub(super) egress: EgressPolicy,
    pub(super) role_tools: Option<Vec<String>>,
    pub(super) budget: BudgetPolicy,
    /// Variables of the executor's own process, never meant for the guest.
    pub(super) executor_env: BTreeMap<String, String>,
    /// Variables given to the guest on purpose.
    pub(super) sandbox_secrets: BTreeMap<String, String>,
    pub(super) simulate: Option<Simulate>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ShellPolicy {
    mode: Option<Mode>,
    pub(super) allow: Option<Vec<String>>,
    pub(super) deny: Option<Vec<String>>,
    pub(super) timeout_s: Option<u64>,
    pub(super) output_max_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    AllowList,
    DenyList,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LimitsPolicy {
    pub(super) memory_mb: Option<u64>,
    pub(super) pids: Option<u64>,
    pub(super) disk_mb: Option<u64>,
    pub(super) tmp_mb: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EgressPolicy {
    pub(super) allow: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BudgetPolicy {
    pub(super) max_repeats: Option<u64>,
    pub(super) max_tool_calls: Option<u64>,
    pub(super) max_steps: Option<u64>,
    pub(super) max_tokens: Option<u64>,
    pub(super) max_wall_s: Option<u64>,
}

/// A fault that is put in the executor's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Simulate {
    SandboxUnavailable,
    CgroupUnavailable,
}

/// A command line, or an object whose keys tell what it is.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum RawInput {
    Command(Vec<String>),
    Keys(Box<Keys>),
}

/// Every key that an input may have; which of them go together is told by `read.rs`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Keys {
    pub(super) name: Option<String>,
    pub(super) arguments: Option<Value>,
    pub(super) arguments_raw: Option<String>,
    pub(super) repeat: Option<u64>,
    pub(super) steps: Option<Vec<RawStep>>,
    pub(super) parallel: Option<Vec<RawCall>>,
    pub(super) runs: Option<Vec<Several>>,
    pub(super) runs_parallel: Option<Vec<Several>>,
    pub(super) turns: Option<Vec<Turn>>,
    pub(super) turns_repeat: Option<TurnsRepeat>,
    pub(super) turns_generate: Option<Value>,
    pub(super) trusted_op: Option<TrustedOp>,
    pub(super) paths: Option<Vec<String>>,
    pub(super) path: Option<String>,
    pub(super) archive: Option<String>,
    pub(super) config: Option<Value>,
    pub(super) config_raw: Option<String>,
    pub(super) baseline: Option<Value>,
    pub(super) proposal: Option<Value>,
    pub(super) request: Option<RawRequest>,
}

/// What is asked of the way out; which keys go with which way is told by `read.rs`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRequest {
    pub(super) via: Via,
    pub(super) method: Option<String>,
    pub(super) url: Option<String>,
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    /// What the resolver answers, first and later.
    #[serde(default)]
    pub(super) resolves_to: Vec<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Via {
    HttpProxy,
    Connect,
    Socks5,
}

/// The calls of one run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Several {
    Calls(Vec<RawCall>),
    One(RawCall),
}

/// A call, a command line, or what the executor itself does.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum RawStep {
    Command(Vec<String>),
    Keys(RawCall),
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawCall {
    pub(super) name: Option<String>,
    pub(super) arguments: Option<Value>,
    /// The text exactly as the model sends it.
    pub(super) arguments_raw: Option<String>,
    pub(super) repeat: Option<u64>,
    pub(super) trusted_op: Option<TrustedOp>,
    pub(super) paths: Option<Vec<String>>,
}

/// What a model says in one answer.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Turn {
    pub(super) content: Option<String>,
    pub(super) tool_calls: Vec<RawCall>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TurnsRepeat {
    #[schemars(range(max = 10_000))]
    pub(super) times: usize,
    pub(super) turn: Option<Turn>,
    pub(super) turns: Option<Vec<Turn>>,
}

/// What the executor itself does to a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum TrustedOp {
    Collect,
    Diff,
    Destroy,
    ImportArchive,
}

/// How something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Ok,
    Error,
    Denied,
    Timeout,
    Oom,
    Killed,
}

impl Outcome {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Error => "error",
            Outcome::Denied => "denied",
            Outcome::Timeout => "timeout",
            Outcome::Oom => "oom",
            Outcome::Killed => "killed",
        }
    }
}

/// What must be so afterwards. `judge.rs` takes it apart field by field, so that none is forgotten.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    pub(super) outcome: Outcome,
    #[serde(default)]
    pub(super) also_accept: Vec<Outcome>,
    pub(super) step_outcomes: Option<Vec<Outcome>>,
    pub(super) exit_code: Option<i64>,
    pub(super) signal: Option<i64>,
    #[serde(default)]
    pub(super) stdout_contains: Vec<String>,
    #[serde(default)]
    pub(super) stdout_not_contains: Vec<String>,
    #[serde(default)]
    pub(super) last_stdout_not_contains: Vec<String>,
    #[serde(default)]
    pub(super) stderr_contains: Vec<String>,
    #[serde(default)]
    pub(super) must_exist: Vec<String>,
    #[serde(default)]
    pub(super) must_not_exist: Vec<String>,
    #[serde(default)]
    pub(super) file_equals: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) file_contains: BTreeMap<String, Words>,
    #[serde(default)]
    pub(super) unchanged: Vec<String>,
    /// Path and octal digits.
    #[serde(default)]
    pub(super) mode: BTreeMap<String, String>,
    #[schemars(range(min = 0, max = 3600))]
    pub(super) max_wall_s: Option<f64>,
    #[schemars(range(min = 0, max = 600))]
    pub(super) check_after_s: Option<f64>,
    pub(super) survivors: Option<u64>,
    pub(super) truncated: Option<bool>,
    pub(super) executor_rss_growth_mb_max: Option<u64>,
    pub(super) executed_max: Option<u64>,
    pub(super) listener_received: Option<u64>,
    pub(super) connected_to: Option<String>,
    pub(super) resolver_queries: Option<u64>,
    #[serde(default)]
    pub(super) transcript_not_contains: Vec<String>,
    /// Advice, not a check.
    #[expect(dead_code, reason = "a note is for its reader")]
    note: Option<String>,
}

/// One text or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Words {
    One(String),
    Many(Vec<String>),
}

impl Words {
    pub(super) fn all(&self) -> &[String] {
        match self {
            Words::One(word) => std::slice::from_ref(word),
            Words::Many(words) => words,
        }
    }
}
