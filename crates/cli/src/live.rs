//! What happens, as it happens: a line for each call, a bar for a long import.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use policy::Ceiling;
use runs::{Cancel, Waiting, Watch};
use serde_json::Value;

use crate::render::{self, is_terminal, note, one_line};

/// Imports shorter than this show nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// Lines for people; on a terminal and elsewhere alike, because a log is read too.
pub(crate) fn watch() -> Watch {
    Arc::new(|event: &Value| {
        if let Some(text) = told(event) {
            note(&text);
        }
    })
}

/// The line of an event, if it has one.
fn told(event: &Value) -> Option<String> {
    let text = |key: &str| event[key].as_str().unwrap_or_default();
    let number = |key: &str| event[key].as_u64().unwrap_or_default();
    match text("type") {
        "role_start" => {
            Some(format!("{}{} begins", "  ".repeat(usize::try_from(number("depth")).ok()?), text("role")))
        }
        "response" if !event["error"].is_null() => Some(format!("  model: {}", one_line(text("error"), 200))),
        "parse" if event["ok"] == false => {
            Some(format!("  no action in the answer: {}", one_line(text("problem"), 160)))
        }
        "decision" if text("verdict") == "refused" => Some(format!(
            "  {:>3} {} refused ({}): {}",
            number("call"),
            one_line(text("tool"), 40),
            text("rule"),
            one_line(text("reason"), 200)
        )),
        "tool_start" => Some(format!("  {:>3} {} {}", number("call"), text("tool"), job(&event["job"]))),
        "tool_end" => Some(format!("      {}", outcome(&event["outcome"]))),
        "egress" => egress(event),
        "loop" => Some(format!("  the same call and result {} times: {}", number("times"), text("action"))),
        "budget" => Some(format!("  stopped by {}", text("bound"))),
        "resume" => Some(format!(
            "resumed  behind line {}, {} calls ended{}",
            number("lines"),
            number("calls"),
            match event["unknown"].as_array().map_or(0, Vec::len) {
                0 => String::new(),
                n => format!(", of {n} it is not known what they did"),
            }
        )),
        "context" => Some(format!("  conversation shortened: {}", text("action"))),
        _ => None,
    }
}

/// Decisions about the network; the end of a connection only where it was no orderly one.
fn egress(event: &Value) -> Option<String> {
    let asked = one_line(event["asked"].as_str().unwrap_or_default(), 80);
    let decision = &event["decision"];
    let text = |key: &str| one_line(decision[key].as_str().unwrap_or_default(), 200);
    match event["event"].as_str()? {
        "decided" if decision["verdict"] == "refused" => {
            Some(format!("      network refused {asked} ({}): {}", text("rule"), text("reason")))
        }
        "decided" if !event["rule"].is_null() => Some(format!("      network {asked}")),
        _ => None,
    }
}

fn job(job: &Value) -> String {
    if let Some(argv) = job["exec"]["argv"].as_array() {
        let words: Vec<&str> = argv.iter().filter_map(Value::as_str).collect();
        return match words.as_slice() {
            ["sh", "-c", line] => one_line(line, 120),
            words => one_line(&words.join(" "), 120),
        };
    }
    if let Some(url) = job["fetch"]["url"].as_str() {
        return one_line(url, 120);
    }
    let Some((_, arguments)) = job["file"].as_object().and_then(|op| op.iter().next()) else {
        return String::new();
    };
    let shown = ["path", "pattern"].into_iter().filter_map(|key| arguments[key].as_str());
    one_line(&shown.collect::<Vec<_>>().join(" "), 120)
}

fn outcome(outcome: &Value) -> String {
    // A file call has its process's outcome beside the answer.
    let process = if outcome["process"].is_object() { &outcome["process"] } else { outcome };
    let millis = process["duration_ms"].as_u64().unwrap_or_default();
    let by = process["stopped_by"].as_str().unwrap_or_default();
    let ended = match (by, &process["ended"]) {
        ("exit", ended) => match ended["exit"].as_i64() {
            Some(code) => format!("exit {code}"),
            None => render::value(ended, 40),
        },
        ("signal", ended) => format!("signal {}", ended["signal"]),
        (by, _) => format!("stopped by {by}"),
    };
    let answer = match outcome["answer"]["error"]["message"].as_str() {
        Some(message) => format!(": {}", one_line(message, 120)),
        None => String::new(),
    };
    format!("{ended}, {millis} ms{answer}")
}

/// The bar of an import; it says at each file whether to go on.
pub(crate) fn import_bar(cancel: &Cancel) -> impl Fn(u64, u64) -> bool + Sync {
    let cancel = cancel.clone();
    let started = Instant::now();
    let bar = ProgressBar::hidden();
    if let Ok(style) = ProgressStyle::with_template("  importing: {pos} files, {msg}") {
        bar.set_style(style);
    }
    move |files, bytes| {
        if is_terminal() && started.elapsed() > PATIENCE {
            if bar.is_hidden() {
                bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            bar.set_position(files);
            bar.set_message(format!("{} MiB", bytes >> 20));
        }
        !cancel.is_cancelled()
    }
}

/// A line for each change while a run waits for room; it says each time whether to go on.
pub(crate) fn waiting(cancel: &Cancel, ceiling: &Ceiling) -> impl Fn(&Waiting) -> bool + Sync {
    let (cancel, ceiling) = (cancel.clone(), ceiling.clone());
    let last = Mutex::new(None);
    move |seen| {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.replace(*seen) != Some(*seen) {
            note(&room(seen, &ceiling));
        }
        !cancel.is_cancelled()
    }
}

fn room(seen: &Waiting, ceiling: &Ceiling) -> String {
    format!(
        "waiting  for room under the ceiling: {} of {} sandboxes, {} of {} MiB, {} of {} cores taken; {} before this one",
        seen.running,
        ceiling.sandboxes,
        seen.memory >> 20,
        ceiling.memory >> 20,
        seen.cores,
        ceiling.cores,
        seen.before
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_and_its_end_are_told_on_one_line_each() {
        let start = json!({"type": "tool_start", "call": 3, "tool": "run_shell",
            "job": {"exec": {"argv": ["sh", "-c", "echo \u{1b}[31mred\nls"], "env": [], "cwd": null}}});
        assert_eq!(told(&start).unwrap(), "    3 run_shell echo red ls");
        let end = json!({"type": "tool_end", "call": 3,
            "outcome": {"ended": {"exit": 1}, "stopped_by": "exit", "duration_ms": 12}});
        assert_eq!(told(&end).unwrap(), "      exit 1, 12 ms");
        let end = json!({"type": "tool_end", "call": 3,
            "outcome": {"ended": "unknown", "stopped_by": "timeout", "duration_ms": 12}});
        assert_eq!(told(&end).unwrap(), "      stopped by timeout, 12 ms");
    }
}
