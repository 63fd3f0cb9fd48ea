//! The events of a record: a closed, versioned list.

use policy::{Decision, StopReason};
use serde::Serialize;

/// How an answer of the model became a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// A native tool call.
    Native,
    /// One action object under the server's JSON-schema constraint.
    Schema,
    /// Text that a strict reader accepted.
    Text,
}

/// One event, without what every line carries (`v`, `seq`, `ts`, `prev`).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum Event {
    /// The first line of every record.
    RunStart {
        /// The run.
        run_id: String,
        /// SHA-256 of `meta.json` as it was when the run started.
        meta_sha256: String,
        /// What was taken in, entry by entry, as an artifact: what a run that goes on later is compared with. None
        /// for what cannot go on.
        #[serde(skip_serializing_if = "Option::is_none")]
        manifest_artifact: Option<String>,
    },
    /// The run goes on after its executor ended: the first line behind what that left. Since version 2.
    Resume(Resume),
    /// A role begins.
    RoleStart {
        /// The role.
        role: String,
        /// 0 for the entry role.
        depth: u32,
        /// What it was asked.
        task: String,
    },
    /// A role ends.
    RoleEnd {
        /// The role.
        role: String,
        /// 0 for the entry role.
        depth: u32,
        /// Why.
        stop: StopReason,
        /// Its own last word.
        summary: String,
    },
    /// A request to the model server.
    Request {
        /// The role.
        role: String,
        /// Turn of the role, from 1.
        step: u32,
        /// The body, as an artifact.
        body_sha256: String,
        /// Names of the tools offered.
        tools: Vec<String>,
    },
    /// Its answer.
    Response {
        /// The role.
        role: String,
        /// Turn of the role, from 1.
        step: u32,
        /// HTTP status; 0 when none came.
        status: u16,
        /// The body, as an artifact.
        body_sha256: Option<String>,
        /// As the server counts them.
        prompt_tokens: u64,
        /// As the server counts them.
        completion_tokens: u64,
        /// Milliseconds.
        duration_ms: u64,
        /// What went wrong, if it did.
        error: Option<String>,
        /// The same as a code. Since version 2.
        #[serde(skip_serializing_if = "Option::is_none")]
        failed: Option<StopReason>,
    },
    /// How an answer was read.
    Parse {
        /// The channel it came on.
        channel: Channel,
        /// Whether a tool call was found.
        ok: bool,
        /// Repairs and unwrappings, each named (`fence`, `alias:file_path`, ...).
        repairs: Vec<String>,
        /// Why it was not accepted.
        problem: Option<String>,
    },
    /// A decision about an act.
    Decision {
        /// Call number in the run, from 1.
        call: u32,
        /// The role.
        role: String,
        /// The tool name exactly as the model wrote it, bounded.
        tool: String,
        /// What was decided.
        #[serde(flatten)]
        decision: Decision,
        /// Which layer decides or holds it (`policy`, `kernel`).
        layer: &'static str,
    },
    /// A call into the sandbox begins. Written before anything starts.
    ToolStart {
        /// Call number in the run, from 1.
        call: u32,
        /// The tool.
        tool: String,
        /// What exactly will run.
        job: serde_json::Value,
        /// What it is fed, as an artifact; none when that is nothing.
        stdin_artifact: Option<String>,
        /// Its bounds.
        timeout_ms: u64,
        /// Its bounds: bytes printed that end it.
        output_bytes: u64,
    },
    /// The call ended.
    ToolEnd {
        /// Call number in the run, from 1.
        call: u32,
        /// How.
        outcome: serde_json::Value,
        /// Full texts, by hash.
        artifacts: Vec<String>,
    },
    /// The way out decided something, or a connection through it is over. Since version 2.
    Egress(egress::Event),
    /// What the model is told of a call that was carried out. Since version 2.
    ToolResult {
        /// The last call it took.
        call: u32,
        /// The text, where it is short enough for a line.
        text: Option<String>,
        /// The text as an artifact, where it is not.
        text_artifact: Option<String>,
        /// Whether the call had begun when the run was interrupted, so that nobody knows what it did.
        unknown: bool,
    },
    /// The conversation was shortened.
    Context {
        /// What was done (`clip`, ...).
        action: String,
        /// Messages touched.
        messages: u32,
    },
    /// A bound of the budget struck.
    Budget {
        /// Which.
        bound: StopReason,
        /// Used and allowed.
        used: u64,
        /// Used and allowed.
        allowed: u64,
    },
    /// The same call with the same result again.
    Loop {
        /// How often by now.
        times: u32,
        /// What was done (`note`, `refuse`, `stop`).
        action: String,
    },
    /// The workspace was compared with its source.
    Collect {
        /// Files added.
        added: u64,
        /// Files changed.
        changed: u64,
        /// Files deleted.
        deleted: u64,
        /// Files that have another path, counted in none of these.
        renamed: u64,
        /// Entries not taken (links that leave, devices, ...), with the reason.
        refused: Vec<String>,
        /// New content that cannot stand in the patch.
        artifacts: Vec<String>,
        /// SHA-256 of `changes.patch`.
        patch_sha256: String,
        /// Every difference with the digests of both sides, as an artifact: what `runs apply` takes over. None where
        /// there is none, and where the mask would have changed it. Since version 2.
        #[serde(skip_serializing_if = "Option::is_none")]
        changes_artifact: Option<String>,
        /// What was taken in, as an artifact, beside such a list. Since version 2.
        #[serde(skip_serializing_if = "Option::is_none")]
        base_artifact: Option<String>,
        /// Microseconds that the comparison took.
        took_us: u64,
    },
    /// The last line of a complete record.
    RunEnd {
        /// Why.
        stop: StopReason,
        /// The outcome in one sentence.
        detail: String,
        /// Milliseconds the destruction of the sandbox took; none when there was none.
        destroy_ms: Option<u64>,
    },
}

/// What was known, and what was not, when a run went on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resume {
    /// How often it has been resumed by now, from 1.
    pub times: u32,
    /// Whole lines that were there.
    pub lines: u64,
    /// Calls that had ended.
    pub calls: u64,
    /// Tokens spent, as the server counted them.
    pub tokens: u64,
    /// Milliseconds of the run's wall clock that were used.
    pub wall_ms: u64,
    /// Bytes of half a line behind the whole ones, taken off.
    pub cut_bytes: u64,
    /// Calls that had begun and of which the model was told nothing.
    pub unknown: Vec<UnknownCall>,
    /// Whether the machine has been started anew since: lines that told of the last calls may be lost then.
    pub restarted: bool,
    /// The start of the machine it goes on under.
    pub boot: String,
    /// The sandbox it goes on in.
    pub sandbox: serde_json::Value,
}

/// A call that was under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownCall {
    /// Its number.
    pub call: u64,
    /// The tool.
    pub tool: String,
    /// Whether its own end is in the record. What else its tool would have done is not known then.
    pub ended: bool,
}
