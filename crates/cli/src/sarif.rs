//! Findings in SARIF 2.1.0, the form in which tools that review code take them.

use std::collections::BTreeMap;
use std::path::Path;

use policy::narrower::{Code, Finding, Review, Severity};
use policy::{Fault, Faults, Place, Places};
use serde_json::{Value, json};

/// The schema that readers of the form look for.
const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// A review as a log of one run: what is waived is there, and suppressed. `text` is that of the Guild's file.
pub(crate) fn of(review: &Review, guild: &Path, text: &str, config: Option<&Path>) -> Value {
    let places = Places::of(text);
    let used: Vec<Code> = Code::ALL
        .into_iter()
        .filter(|code| review.findings.iter().any(|f| f.finding.code == *code))
        .collect();
    let rules = used.iter().map(|code| {
        json!({
            "id": code.as_str(),
            "shortDescription": { "text": code.rule() },
            "help": { "text": if code.remedy().is_empty() { code.rule() } else { code.remedy() } },
            "defaultConfiguration": { "level": level(code.severity()) },
        })
    });
    let results = review.findings.iter().map(|reviewed| {
        let finding = &reviewed.finding;
        let file = match finding.file.as_str() {
            "oubliette.toml" => config.unwrap_or(Path::new("oubliette.toml")).to_path_buf(),
            file => guild.join(file),
        };
        let at = (finding.file == "guild.toml").then(|| places.find(&finding.place));
        let mut result = json!({
            "ruleId": finding.code.as_str(),
            "ruleIndex": used.iter().position(|code| *code == finding.code),
            "level": level(finding.severity),
            "message": { "text": message(finding) },
            "locations": [location(&uri(&file), at, &finding.place)],
            "properties": { "place": finding.place, "severity": finding.severity, "was": finding.was, "now": finding.now },
        });
        if let Some(waived) = &reviewed.waived {
            let why = format!("until {}: {}", waived.expires, waived.reason);
            result["suppressions"] = json!([{ "kind": "external", "justification": why }]);
        }
        result
    });
    log(rules.collect(), results.collect())
}

/// Faults of a file that is not sound.
pub(crate) fn of_faults(faults: &Faults) -> Value {
    let mut rules: BTreeMap<&str, Value> = BTreeMap::new();
    for fault in faults.iter() {
        let id = fault.code.as_str();
        rules.entry(id).or_insert_with(|| {
            json!({ "id": id, "shortDescription": { "text": id }, "defaultConfiguration": { "level": "error" } })
        });
    }
    let ids: Vec<&str> = rules.keys().copied().collect();
    let results = faults.iter().map(|fault| {
        let Fault { code, file, place, key, message, help } = fault;
        let help = help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        json!({
            "ruleId": code.as_str(),
            "ruleIndex": ids.iter().position(|id| *id == code.as_str()),
            "level": "error",
            "message": { "text": format!("{key}: {message}{help}") },
            "locations": [location(&uri(Path::new(file)), *place, key)],
        })
    });
    let results = results.collect();
    log(rules.into_values().collect(), results)
}

fn log(rules: Vec<Value>, results: Vec<Value>) -> Value {
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "oubliette", "semanticVersion": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn location(uri: &str, place: Option<Place>, key: &str) -> Value {
    // Readers want a line: where none is known, the first.
    let place = place.unwrap_or(Place { line: 1, column: 1 });
    let mut location = json!({
        "physicalLocation": {
            "artifactLocation": { "uri": uri },
            "region": { "startLine": place.line, "startColumn": place.column },
        },
    });
    if !key.is_empty() {
        location["logicalLocations"] = json!([{ "fullyQualifiedName": key }]);
    }
    location
}

fn message(finding: &Finding) -> String {
    let Finding { place, was, now, rule, remedy, .. } = finding;
    let change = match (was.is_empty(), now.is_empty()) {
        (true, true) => String::new(),
        (true, false) => format!(" ({now})"),
        (false, true) => format!(" (was {was})"),
        (false, false) => format!(" ({was} -> {now})"),
    };
    let remedy = if remedy.is_empty() { String::new() } else { format!(" To pass: {remedy}.") };
    format!("{place}{change}: {rule}.{remedy}")
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Wider => "error",
        Severity::BehaviourOnly => "warning",
        Severity::Narrower => "note",
    }
}

/// A path as a relative reference, or as a file's address where it is absolute.
fn uri(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut out = if path.is_absolute() { "file://".to_owned() } else { String::new() };
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(*byte))
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
