//! What came of a row: its calls as the record has them, and what a person or the model was shown.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::format::Outcome;
use super::verdict::Trouble;

#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Calls, in order.
    pub(super) steps: Vec<Step>,
    /// The outcome of the whole, where it is not that of the last step.
    pub(super) outcome: Option<Outcome>,
    /// Every text a person or the model was shown, in order.
    pub(super) texts: Vec<String>,
    /// Standard error, where it is apart.
    pub(super) err: String,
    pub(super) truncated: bool,
    pub(super) took: Duration,
    /// Processes of the calls that lived on when they had returned.
    pub(super) survivors: Option<usize>,
    /// By how much the executor's memory was above that of a quiet call.
    pub(super) growth_kib: Option<u64>,
    /// Folders of the runs.
    pub(super) runs: Vec<PathBuf>,
    /// What never may be, whatever the row expects.
    pub(super) faults: Vec<String>,
    /// What was there too early, while the sandbox still lived.
    pub(super) early: Vec<String>,
    /// Whom a decision about a destination led to.
    pub(super) reached: Option<Reached>,
}

/// What a decision about a destination came to.
#[derive(Debug)]
pub(super) struct Reached {
    pub(super) connected_to: Option<IpAddr>,
    pub(super) resolver_queries: u64,
}

/// One call.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) outcome: Outcome,
    pub(super) exit_code: Option<i64>,
    pub(super) signal: Option<i64>,
    pub(super) took: Duration,
    /// Whether anything was carried out.
    pub(super) executed: bool,
    /// Whether output was put aside.
    pub(super) artifacts: bool,
    /// How it was lost, where it was.
    lost: Option<String>,
}

impl Step {
    pub(super) fn refused(outcome: Outcome) -> Step {
        Step {
            outcome,
            exit_code: None,
            signal: None,
            took: Duration::ZERO,
            executed: false,
            artifacts: false,
            lost: None,
        }
    }
}

/// The calls of a run, by its record.
pub(super) fn steps_of(run: &Path) -> Result<Vec<Step>, Trouble> {
    let text = fs::read_to_string(run.join("events.jsonl"))?;
    let events: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    let events = events.map_err(|e| Trouble::Fault(format!("a record that cannot be read: {e}")))?;
    let steps = steps(&events);
    match steps.iter().find_map(|step| step.lost.clone()) {
        Some(how) => Err(Trouble::Fault(format!("a call was ended by {how}"))),
        None => Ok(steps),
    }
}

/// A file of a run that is JSON.
pub(super) fn json_of(run: &Path, name: &str) -> Result<Value, Trouble> {
    let text = fs::read_to_string(run.join(name))?;
    serde_json::from_str(&text).map_err(|e| Trouble::Fault(format!("{name} cannot be read: {e}")))
}

/// What was decided and how what was allowed ended.
fn steps(events: &[Value]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut decided = false;
    for event in events {
        match event["type"].as_str().unwrap_or_default() {
            // Arguments that cannot be read are an error, not a matter of policy.
            "decision" if event["verdict"] == "refused" && event["rule"] == "arguments" => {
                steps.push(Step::refused(Outcome::Error));
            }
            "decision" if event["verdict"] == "refused" => steps.push(Step::refused(Outcome::Denied)),
            "decision" => decided = true,
            "tool_end" => {
                let again = !std::mem::take(&mut decided) && steps.last().is_some_and(|step| step.executed);
                // A tool may take two calls; the last one tells.
                if again && event["outcome"]["process"].is_object() {
                    steps.pop();
                }
                let artifacts = event["artifacts"].as_array().is_some_and(|list| !list.is_empty());
                steps.push(Step { artifacts, ..ended(&event["outcome"]) });
            }
            _ => {}
        }
    }
    steps
}

fn ended(told: &Value) -> Step {
    let (process, answer) = match &told["process"] {
        Value::Object(_) => (&told["process"], &told["answer"]),
        _ => (told, &Value::Null),
    };
    let ended = &process["ended"];
    let (outcome, lost) = match process["stopped_by"].as_str().unwrap_or_default() {
        "exit" if answer["error"]["kind"] == "outside" => (Outcome::Denied, None),
        "exit" if answer["error"].is_object() => (Outcome::Error, None),
        "exit" if ended["exit"] == 0 => (Outcome::Ok, None),
        "exit" | "signal" => (Outcome::Error, None),
        "timeout" => (Outcome::Timeout, None),
        "memory" => (Outcome::Oom, None),
        "processes" | "disk" | "output" | "cpu" => (Outcome::Killed, None),
        "denied" => (Outcome::Denied, None),
        other => (Outcome::Error, Some(other.to_owned())),
    };
    Step {
        outcome,
        exit_code: ended["exit"].as_i64(),
        signal: ended["signal"].as_i64(),
        took: Duration::from_millis(process["duration_ms"].as_u64().unwrap_or_default()),
        executed: true,
        artifacts: false,
        lost,
    }
}
