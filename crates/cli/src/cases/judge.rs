//! What a row expects, key by key, against what was seen.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use policy::Tier;

use super::format::{Expect, Outcome};
use super::seen::Seen;
use super::verdict::{Miss, Trouble, Unasked};
use super::world::{World, content};

/// Starting and ending a sandbox on a busy machine is no part of a call.
const AROUND: Duration = Duration::from_secs(20);
/// What a bound on time is there to tell never ends by itself, and a busy machine may be late with all else. Zero stays zero.
const LEAST: Duration = Duration::from_secs(20);

/// Everything that is not as expected.
pub(super) fn judge(world: &World<'_>, seen: &Seen) -> Result<Vec<Miss>, Trouble> {
    let source = world.source();
    let workspace = seen.runs.last().map_or(source, |run| run.join("workspace"));
    let expect = world.expect(&workspace)?;
    let mut found = Found(Vec::new());
    for fault in &seen.faults {
        found.miss("never", "a sound end", fault.clone());
    }
    outcomes(&expect, seen, &mut found);
    texts(&expect, seen, &mut found);
    files(&expect, &workspace, seen, &mut found)?;
    measures(world, &expect, seen, &mut found)?;
    let changed = world.changed(&workspace);
    found.when(!changed.is_empty(), "unchanged", "as before", || format!("{} changed", changed.join(", ")));
    transcript(&expect, seen, &mut found)?;
    Ok(found.0)
}

/// The outcome of the whole.
pub(super) fn outcome(seen: &Seen) -> Option<Outcome> {
    seen.outcome.or(seen.steps.last().map(|step| step.outcome))
}

struct Found(Vec<Miss>);

impl Found {
    fn miss(&mut self, key: &'static str, expected: impl Into<String>, got: impl Into<String>) {
        self.0.push(Miss { key, expected: expected.into(), got: got.into() });
    }

    fn when(&mut self, so: bool, key: &'static str, expected: &str, got: impl FnOnce() -> String) {
        if so {
            self.miss(key, expected, got());
        }
    }
}

fn outcomes(expect: &Expect, seen: &Seen, found: &mut Found) {
    let right: Vec<Outcome> =
        [expect.outcome].into_iter().chain(expect.also_accept.iter().copied()).collect();
    let got = outcome(seen);
    // A row that names the status it wants means that one by `ok`, too.
    let named = expect.exit_code.is_some() && got == Some(Outcome::Error) && right.contains(&Outcome::Ok);
    if !named && !got.is_some_and(|got| right.contains(&got)) {
        found.miss("outcome", told(&right), got.map_or("nothing", Outcome::as_str));
    }
    if let Some(wanted) = &expect.step_outcomes {
        let got: Vec<Outcome> = seen.steps.iter().map(|step| step.outcome).collect();
        let last = got.len().saturating_sub(1);
        let fine = |(n, (got, wanted)): (usize, (&Outcome, &Outcome))| {
            got == wanted || (n == last && expect.also_accept.contains(got))
        };
        if got.len() != wanted.len() || !got.iter().zip(wanted).enumerate().all(fine) {
            found.miss("step_outcomes", told(wanted), told(&got));
        }
    }
    let last = seen.steps.last();
    let number = |n: Option<i64>| n.map_or("none".to_owned(), |n| n.to_string());
    for (key, wanted, got) in [
        ("exit_code", expect.exit_code, last.and_then(|step| step.exit_code)),
        ("signal", expect.signal, last.and_then(|step| step.signal)),
    ] {
        if wanted.is_some() && wanted != got {
            found.miss(key, number(wanted), number(got));
        }
    }
}

fn told(outcomes: &[Outcome]) -> String {
    let words: Vec<&str> = outcomes.iter().map(|outcome| outcome.as_str()).collect();
    words.join(" ")
}

fn texts(expect: &Expect, seen: &Seen, found: &mut Found) {
    let all = seen.texts.join("\n");
    let has = |text: &str, word: &String| text.contains(word.as_str());
    for word in expect.stdout_contains.iter().filter(|word| !has(&all, word)) {
        found.miss("stdout_contains", word, all.clone());
    }
    let shown = expect.stdout_not_contains.iter().filter(|word| has(&all, word) || has(&seen.err, word));
    for word in shown {
        found.miss(
            "stdout_not_contains",
            format!("not {word}"),
            format!("it is shown: {}", around(&all, &seen.err, word)),
        );
    }
    let last = seen.texts.last().map(String::as_str).unwrap_or_default();
    for word in expect.last_stdout_not_contains.iter().filter(|word| has(last, word)) {
        found.miss(
            "last_stdout_not_contains",
            format!("not {word}"),
            format!("it is shown: {}", around(last, "", word)),
        );
    }
    // The model is told both streams in one text.
    let errors = if seen.err.is_empty() { &all } else { &seen.err };
    for word in expect.stderr_contains.iter().filter(|word| !has(errors, word)) {
        found.miss("stderr_contains", word, errors.clone());
    }
}

/// A word with a little of what stands about it.
fn around(one: &str, other: &str, word: &str) -> String {
    let text = if one.contains(word) { one } else { other };
    let Some((before, after)) = text.split_once(word) else { return String::new() };
    let before: Vec<char> = before.chars().rev().take(40).collect();
    let before: String = before.into_iter().rev().collect();
    format!("{before}{word}{}", after.chars().take(40).collect::<String>())
}

fn files(expect: &Expect, workspace: &Path, seen: &Seen, found: &mut Found) -> Result<(), Trouble> {
    for path in &seen.early {
        found.miss("must_not_exist", format!("no {path}"), "it is there while the run goes on");
    }
    for path in missing(workspace, &expect.must_exist) {
        found.miss("must_exist", path, "it is not there");
    }
    for path in present(workspace, &expect.must_not_exist) {
        found.miss("must_not_exist", format!("no {path}"), "it is there");
    }
    let told = |e: std::io::Error| Trouble::from(Unasked::Machine { what: e.to_string() });
    let text = |path: &str| match content(workspace, path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Err(told(e)),
        Err(e) => Ok(format!("(no plain file: {e})")),
    };
    for (path, right) in &expect.file_equals {
        let got = text(path)?;
        found.when(got != *right, "file_equals", &format!("{path}: {right}"), || got);
    }
    for (path, words) in &expect.file_contains {
        let got = text(path)?;
        for word in words.all() {
            found.when(!got.contains(word), "file_contains", &format!("{path}: {word}"), || got.clone());
        }
    }
    for (path, digits) in &expect.mode {
        let got = workspace.join(path).symlink_metadata().map(|meta| meta.permissions().mode() & 0o7777);
        let wanted = u32::from_str_radix(digits, 8).unwrap_or(u32::MAX);
        let fine = got.as_ref().is_ok_and(|got| *got == wanted);
        found.when(!fine, "mode", &format!("{path}: {digits}"), || {
            got.map_or_else(|e| e.to_string(), |got| format!("{got:o}"))
        });
    }
    Ok(())
}

fn missing(workspace: &Path, paths: &[String]) -> Vec<String> {
    let there = |path: &&String| workspace.join(path).symlink_metadata().is_ok();
    paths.iter().filter(|path| !there(path)).cloned().collect()
}

/// Those of the paths where something is, be it a link to nowhere.
pub(super) fn present(workspace: &Path, paths: &[String]) -> Vec<String> {
    paths.iter().filter(|path| workspace.join(path).symlink_metadata().is_ok()).cloned().collect()
}

fn measures(world: &World<'_>, expect: &Expect, seen: &Seen, found: &mut Found) -> Result<(), Trouble> {
    if let Some(most) = expect.max_wall_s {
        // A machine that is emulated has a slower clock of its own.
        let slower = if world.tier == Tier::Microvm { 5 } else { 1 };
        let most = Duration::try_from_secs_f64(most).unwrap_or(AROUND) * slower;
        let most = if most.is_zero() { most } else { most.max(LEAST) };
        let calls: Duration = seen.steps.iter().map(|step| step.took).sum();
        let late = calls > most || seen.took > most + AROUND;
        found.when(late, "max_wall_s", &format!("{:.1}", most.as_secs_f64()), || {
            format!("calls {:.1}, with all around them {:.1}", calls.as_secs_f64(), seen.took.as_secs_f64())
        });
    }
    let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    if let Some(most) = expect.survivors {
        let got = number(seen.survivors.ok_or(Unasked::NotMeasured { key: "survivors" })?);
        found.when(got > most, "survivors", &most.to_string(), || got.to_string());
    }
    if let Some(right) = expect.truncated {
        found.when(seen.truncated != right, "truncated", &right.to_string(), || seen.truncated.to_string());
    }
    if let Some(most) = expect.executor_rss_growth_mb_max {
        let got = seen.growth_kib.ok_or(Unasked::NotMeasured { key: "executor_rss_growth_mb_max" })?;
        found.when(got > most.saturating_mul(1024), "executor_rss_growth_mb_max", &most.to_string(), || {
            format!("{} MiB", got / 1024)
        });
    }
    if let Some(most) = expect.executed_max {
        let got = number(seen.steps.iter().filter(|step| step.executed).count());
        found.when(got > most, "executed_max", &most.to_string(), || got.to_string());
    }
    if let Some(right) = expect.listener_received {
        let got = world.received()?;
        found.when(got != right, "listener_received", &right.to_string(), || got.to_string());
    }
    // Only a decision about a destination resolves names.
    if let Some(right) = &expect.connected_to {
        let reached = seen.reached.as_ref().ok_or(Unasked::NotMeasured { key: "connected_to" })?;
        let got = reached.connected_to.map_or("nobody".to_owned(), |address| address.to_string());
        found.when(got != *right, "connected_to", right, || got.clone());
    }
    if let Some(right) = expect.resolver_queries {
        let got = seen.reached.as_ref().ok_or(Unasked::NotMeasured { key: "resolver_queries" })?;
        let got = got.resolver_queries;
        found.when(got != right, "resolver_queries", &right.to_string(), || got.to_string());
    }
    Ok(())
}

fn transcript(expect: &Expect, seen: &Seen, found: &mut Found) -> Result<(), Trouble> {
    for word in &expect.transcript_not_contains {
        for run in &seen.runs {
            if record_holds(run, word.as_bytes())? {
                found.miss("transcript_not_contains", format!("not {word}"), "it is in the record");
            }
        }
    }
    Ok(())
}

/// Whether the record of a run holds these bytes, in content or name: everything but the workspace itself.
fn record_holds(run: &Path, needle: &[u8]) -> std::io::Result<bool> {
    let inside = |bytes: &[u8]| !needle.is_empty() && bytes.windows(needle.len()).any(|part| part == needle);
    let mut left = vec![run.to_owned()];
    while let Some(path) = left.pop() {
        if path == run.join("workspace") {
            continue;
        }
        let meta = path.symlink_metadata()?;
        if meta.is_dir() {
            for entry in fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        } else if meta.is_file() && inside(&fs::read(&path)?) {
            return Ok(true);
        }
        if inside(path.file_name().unwrap_or_default().as_encoded_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}
