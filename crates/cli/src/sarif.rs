//! Findings in SARIF 2.1.0, the form in which tools that review code take them.

use std::collections::BTreeMap;
use std::path::Path;

use policy::narrower::{Code, Finding, Review, Severity};
use policy::{Fault, Faults, Place, Places};
use serde_json::{Value, json};

use crate::command::guild_diff::of_place;
use crate::review::JudgedBy;

/// The schema that readers of the form look for.
const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// Bytes of a difference in a result's properties.
const MOST_DIFF: usize = 64 << 10;

/// A review as a log of one run: what is waived is there, and suppressed. `text` is that of the Guild's file, `prompts`
/// what is different in each of them.
pub(crate) fn of(
    review: &Review,
    by: &JudgedBy,
    (guild, text): (&Path, &str),
    config: Option<&Path>,
    prompts: &BTreeMap<String, String>,
) -> Value {
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
        let of_prompt = matches!(finding.code, Code::Prompt | Code::RoleRemoved);
        if let Some(diff) = of_place(prompts, &finding.place).filter(|_| of_prompt) {
            result["properties"]["diff"] = bounded(diff).into();
        }
        if let Some(waived) = &reviewed.waived {
            let why = format!("until {}: {}", waived.expires, waived.reason);
            result["suppressions"] = json!([{ "kind": "external", "justification": why }]);
        }
        result
    });
    let mut log = log(rules.collect(), results.collect());
    log["runs"][0]["properties"] = json!({
        "judged_by": by,
        "refused": review.refused,
        "roles": review.roles,
        "more_roles": review.more_roles,
        "unused_waivers": review.unused,
    });
    log
}

/// A difference as far as readers of the form take it; the other forms have all of it.
fn bounded(diff: &str) -> String {
    let shown = diff.get(..diff.floor_char_boundary(MOST_DIFF)).unwrap_or(diff);
    match diff.len() - shown.len() {
        0 => diff.to_owned(),
        more => format!("{shown}\n~ {more} bytes more; the text and `--json` have all of it\n"),
    }
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
            "message": { "text": plain(&format!("{key}: {message}{help}")) },
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
    plain(&format!("{place}{change}: {rule}.{remedy}"))
}

/// A message that is text and nothing else. In one, brackets are a link to wherever its author says and braces a place
/// to be filled; readers that take it for Markdown have more such signs. Everything that begins one is escaped, and what
/// nobody would see stands as a mark.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in runs::marked(text.as_bytes()).chars() {
        match c {
            '{' | '}' => out.extend([c, c]),
            '\\' | '[' | ']' | '`' | '*' | '<' | '!' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    // An address becomes a link where it stands.
    out.replace("://", ":\\//")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_difference_is_cut_and_that_is_said() {
        let long = "é".repeat(MOST_DIFF);
        let told = bounded(&long);
        assert!(
            told.len() < MOST_DIFF + 100 && told.contains(&format!("~ {MOST_DIFF} bytes more")),
            "{}",
            told.len()
        );
        assert_eq!(bounded("-a\n+b\n"), "-a\n+b\n");
    }

    #[test]
    fn a_message_holds_no_link_no_picture_and_no_place_to_fill() {
        let text = "[click](https://evil.example) ![x](y) {0} `a` <b> \\ \u{202e}";
        let told = plain(text);
        assert_eq!(told, r"\[click\](https:\//evil.example) \!\[x\](y) {{0}} \`a\` \<b> \\ \<U+202E>");
        assert_eq!(plain("roles.coder.tools.write_file: a rule."), "roles.coder.tools.write_file: a rule.");
    }
}
