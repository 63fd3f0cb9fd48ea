//! What a row expects, key by key, against what was seen.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::world::World;
use crate::place::holds;

/// What came of a row.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Calls, in order.
    pub(super) steps: Vec<Step>,
    /// The outcome of the whole, where it is not that of the last step.
    pub(super) outcome: Option<&'static str>,
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
}

/// One call.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) outcome: &'static str,
    pub(super) exit_code: Option<i64>,
    signal: Option<i64>,
    pub(super) took: Duration,
    /// Whether anything was carried out.
    executed: bool,
}

/// The calls of a record: what was decided and how what was allowed ended.
pub(super) fn steps(events: &[Value]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let refused =
        |outcome| Step { outcome, exit_code: None, signal: None, took: Duration::ZERO, executed: false };
    let mut decided = false;
    for event in events {
        match event["type"].as_str().unwrap() {
            // Arguments that cannot be read are an error, not a matter of policy.
            "decision" if event["verdict"] == "refused" && event["rule"] == "arguments" => {
                steps.push(refused("error"))
            }
            "decision" if event["verdict"] == "refused" => steps.push(refused("denied")),
            "decision" => decided = true,
            "tool_end" => {
                // A tool may take two calls; the last one tells.
                if !std::mem::take(&mut decided) && steps.last().is_some_and(|s| s.executed) && is_file(event)
                {
                    steps.pop();
                }
                steps.push(ended(&event["outcome"]));
            }
            _ => {}
        }
    }
    steps
}

fn is_file(event: &Value) -> bool {
    event["outcome"]["process"].is_object()
}

fn ended(told: &Value) -> Step {
    let (process, answer) = match &told["process"] {
        Value::Object(_) => (&told["process"], &told["answer"]),
        _ => (told, &Value::Null),
    };
    let ended = &process["ended"];
    let outcome = match process["stopped_by"].as_str().unwrap() {
        "exit" if answer["error"]["kind"] == "outside" => "denied",
        "exit" if answer["error"].is_object() => "error",
        "exit" if ended["exit"] == 0 => "ok",
        "exit" | "signal" => "error",
        "timeout" => "timeout",
        "memory" => "oom",
        "processes" | "disk" | "output" | "cpu" => "killed",
        "denied" => "denied",
        other => panic!("ended by {other}"),
    };
    Step {
        outcome,
        exit_code: ended["exit"].as_i64(),
        signal: ended["signal"].as_i64(),
        took: Duration::from_millis(process["duration_ms"].as_u64().unwrap()),
        executed: true,
    }
}

/// Keys that are no checks, or are checked elsewhere.
const ADVICE: [&str; 2] = ["note", "check_after_s"];

pub(super) fn judge(world: &World, seen: &Seen) {
    let id = world.id();
    let last = seen.steps.last();
    let workspace = seen.runs.last().map_or(world.source(), |run| run.join("workspace"));
    let expect = world.filled(&world.row["expect"], &workspace);
    let said = || format!("{id}: {seen:#?}");
    let words = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|w| w.as_str().unwrap().to_owned()).collect()
    };
    let all = seen.texts.join("\n");
    for (key, value) in expect.as_object().unwrap() {
        match key.as_str() {
            "outcome" | "also_accept" => {
                let right: BTreeSet<String> = [expect["outcome"].as_str().unwrap().to_owned()]
                    .into_iter()
                    .chain(
                        expect["also_accept"]
                            .as_array()
                            .map(|_| words(&expect["also_accept"]))
                            .unwrap_or_default(),
                    )
                    .collect();
                let outcome = seen.outcome.or(last.map(|s| s.outcome)).unwrap_or("nothing");
                // A row that names the status it wants means that one by `ok`, too.
                let named = expect["exit_code"].is_number() && outcome == "error" && right.contains("ok");
                assert!(right.contains(outcome) || named, "{outcome} is not {right:?}: {}", said());
            }
            "step_outcomes" => {
                for (step, right) in seen.steps.iter().zip(words(value)) {
                    let last = std::ptr::eq(step, last.unwrap());
                    let also = last
                        && expect["also_accept"].as_array().is_some_and(|a| a.contains(&step.outcome.into()));
                    assert!(step.outcome == right || also, "{right}: {}", said());
                }
                assert_eq!(seen.steps.len(), value.as_array().unwrap().len(), "{}", said());
            }
            "exit_code" => assert_eq!(last.unwrap().exit_code, value.as_i64(), "{}", said()),
            "signal" => assert_eq!(last.unwrap().signal, value.as_i64(), "{}", said()),
            "stdout_contains" => {
                for word in words(value) {
                    assert!(all.contains(&word), "{word:?} is not shown: {}", said());
                }
            }
            "stdout_not_contains" => {
                for word in words(value) {
                    assert!(
                        !all.contains(&word) && !seen.err.contains(&word),
                        "{word:?} is shown: {}",
                        said()
                    );
                }
            }
            "last_stdout_not_contains" => {
                for word in words(value) {
                    assert!(!seen.texts.last().unwrap().contains(&word), "{word:?} is shown: {}", said());
                }
            }
            "stderr_contains" => {
                for word in words(value) {
                    assert!(seen.err.contains(&word), "{word:?} is not shown: {}", said());
                }
            }
            "must_exist" | "must_not_exist" => files(&workspace, &words(value), key == "must_exist", &said),
            "file_equals" | "file_contains" => {
                for (path, right) in value.as_object().unwrap() {
                    let (text, right) =
                        (fs::read_to_string(workspace.join(path)).unwrap(), right.as_str().unwrap());
                    let fine = if key == "file_equals" { text == right } else { text.contains(right) };
                    assert!(fine, "{path} holds {text:?}: {}", said());
                }
            }
            "unchanged" => world.assert_unchanged(),
            "max_wall_s" => {
                // A machine that is emulated has a slower clock of its own.
                let slower = if world.place.tier == "microvm" { 5 } else { 1 };
                let most = Duration::from_secs_f64(value.as_f64().unwrap()) * slower;
                let calls: Duration = seen.steps.iter().map(|s| s.took).sum();
                assert!(calls <= most, "{calls:?}: {}", said());
                // Starting and ending a sandbox on a busy machine is no part of the call.
                assert!(seen.took <= most + Duration::from_secs(20), "{}", said());
            }
            "survivors" => assert!(seen.survivors.unwrap() as u64 <= value.as_u64().unwrap(), "{}", said()),
            "truncated" => assert_eq!(seen.truncated, value.as_bool().unwrap(), "{}", said()),
            "executor_rss_growth_mb_max" => {
                assert!(seen.growth_kib.unwrap() <= value.as_u64().unwrap() << 10, "{}", said());
            }
            "executed_max" => {
                let executed = seen.steps.iter().filter(|s| s.executed).count() as u64;
                assert!(executed <= value.as_u64().unwrap(), "{}", said());
            }
            "listener_received" => assert_eq!(world.received(), value.as_u64().unwrap(), "{}", said()),
            "transcript_not_contains" => {
                for word in words(value) {
                    assert!(seen.runs.iter().all(|run| !holds(run, word.as_bytes())), "{word:?}: {}", said());
                }
            }
            advice => assert!(ADVICE.contains(&advice), "{id}: the key {advice} is not checked"),
        }
    }
}

pub(super) fn files(workspace: &Path, paths: &[String], wanted: bool, said: &dyn Fn() -> String) {
    for path in paths {
        let there = workspace.join(path).symlink_metadata().is_ok();
        assert_eq!(there, wanted, "{path}: {}", said());
    }
}
