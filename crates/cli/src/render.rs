//! What a person reads: plain lines, cleaned of anything that could drive a terminal, here and in no other place. Every
//! text that leaves the program passes [`line()`], [`note()`] or [`json()`], whoever it comes from; a test holds that nobody
//! else writes.

use std::io::{self, IsTerminal, Write};

use runs::{LayerState, Report, RunResult, clean, in_json};
use serde_json::Value;

/// A line on standard output. A closed pipe is no error of ours.
pub(crate) fn line(text: &str) {
    writeln!(io::stdout(), "{}", shown(text)).ok();
}

/// A line on standard error.
pub(crate) fn note(text: &str) {
    writeln!(io::stderr(), "{}", shown(text)).ok();
}

/// JSON on standard output. What JSON itself leaves as it is, and a terminal does not, stands as an escape: the values
/// are the same.
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{}", in_json(&serde_json::to_string_pretty(value)?)).ok();
    Ok(())
}

/// A text that has been cleaned already, exactly as it is: the output of a command.
pub(crate) fn output(out: &mut dyn Write, text: &str) {
    // The reader may have gone: the exit code still tells.
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}

/// A guest's text as it may be shown.
pub(crate) fn shown(text: &str) -> String {
    clean(text.as_bytes())
}

/// The first line of a guest's text, bounded.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let flat: String = shown(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if flat.chars().count() <= most {
        return flat;
    }
    let cut: String = flat.chars().take(most.saturating_sub(1)).collect();
    format!("{cut}…")
}

/// Whether live lines may be drawn over.
pub(crate) fn is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// An error with its causes, once, at the edge.
pub(crate) fn error(e: &anyhow::Error) {
    let mut text = format!("oubliette: {e}");
    let mut last = e.to_string();
    for cause in e.chain().skip(1) {
        let cause = cause.to_string();
        // Some errors repeat their source in their own text.
        if !last.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        last = cause;
    }
    note(&shown(&text));
}

/// The layers of a report.
pub(crate) fn report(report: &Report) {
    line(&format!("tier {} ({}), answered after {} ms", report.tier, shown(&report.engine), report.start_ms));
    for layer in &report.layers {
        let mark = match layer.state {
            LayerState::Full => "full",
            LayerState::Part => "part",
            LayerState::None => "none",
        };
        line(&format!("  {:<18} {mark}  {}", layer.name, shown(&layer.detail)));
    }
}

/// The result card.
pub(crate) fn card(result: &RunResult, claimed: Option<&str>) {
    let tier = result.sandbox.as_ref().map_or("none", |report| report.tier.as_str());
    line("");
    line(&format!("run      {}", result.run_id));
    line(&format!("stopped  {}", result.stop));
    if let Some(claimed) = claimed {
        line(&format!("claims   {claimed} (a claim: checks prove)"));
    }
    line(&format!("tier     {tier}"));
    if result.resumed > 0 {
        line(&format!("resumed  {} times, after interruptions", result.resumed));
    }
    changes(&serde_json::to_value(&result.changes).unwrap_or_default());
    line(&format!(
        "used     {} calls, {} tokens, {:.1} s",
        result.calls,
        result.tokens,
        std::time::Duration::from_millis(result.duration_ms).as_secs_f64()
    ));
    if !result.summary.is_empty() {
        line(&format!("summary  {}", one_line(&result.summary, 600)));
    }
    line(&format!("record   {}", result.dir.display()));
    line(&format!("patch    {}", result.dir.join("changes.patch").display()));
}

/// What a run changed, as its result says it.
pub(crate) fn changes(changes: &Value) {
    let count = |key: &str| changes["counts"][key].as_u64().unwrap_or_default();
    let renamed = match count("renamed") {
        0 => String::new(),
        n => format!(", {n} renamed"),
    };
    let [added, changed, deleted] = ["added", "changed", "deleted"].map(count);
    line(&format!("changes  {added} added, {changed} changed, {deleted} deleted{renamed}"));
    for (mark, key) in [('+', "added"), ('~', "changed"), ('-', "deleted"), ('>', "renamed")] {
        let all = count(key);
        for entry in changes[key].as_array().into_iter().flatten().take(20) {
            let text = match (entry["from"].as_str(), entry["to"].as_str()) {
                (Some(from), Some(to)) => format!("{} -> {}", one_line(from, 200), one_line(to, 200)),
                (Some(_) | None, Some(_) | None) => value(entry, 200),
            };
            line(&format!("         {mark} {text}"));
        }
        if all > 20 {
            line(&format!("         {mark} {} more", all - 20));
        }
    }
    for refused in changes["refused"].as_array().into_iter().flatten().take(20) {
        line(&format!("         ! {}", value(refused, 200)));
    }
}

/// A value of a record, on one line.
pub(crate) fn value(value: &Value, most: usize) -> String {
    match value {
        Value::String(text) => one_line(text, most),
        other => one_line(&other.to_string(), most),
    }
}
