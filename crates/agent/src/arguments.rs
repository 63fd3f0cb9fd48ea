//! Arguments of a call: aliases and shapes that small models use are unwrapped by rule and named in the record;
//! everything else that does not fit is refused with what would be right.

use policy::Tool;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::tools::{Action, schema};

/// Longest path that is looked at, bytes.
pub(crate) const MAX_PATH: usize = 4096;

/// A call whose arguments fit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fitted {
    pub(crate) action: Action,
    /// As they are kept in the conversation: under their real names.
    pub(crate) canonical: Value,
    /// What was unwrapped.
    pub(crate) repairs: Vec<String>,
}

/// Fits arguments to a tool, or says to the model what is wrong.
pub(crate) fn fit(tool: Tool, given: &Value) -> Result<Fitted, String> {
    let Value::Object(given) = given else {
        return Err(wrong(tool, &[format!("the arguments must be one JSON object, not {}", kind(given))]));
    };
    let mut object = given.clone();
    let mut repairs = Vec::new();
    unwrap_argv(tool, &mut object, &mut repairs);
    rename(tool, &mut object, &mut repairs);
    coerce(tool, &mut object, &mut repairs);
    let value = Value::Object(object);
    let faults: Vec<String> = policy::check_shape(&schema(tool, &[]), &value)
        .into_iter()
        .take(4)
        .map(|e| match (e.path.is_empty(), e.help) {
            (true, None) => e.message,
            (true, Some(help)) => format!("{} ({help})", e.message),
            (false, None) => format!("`{}`: {}", e.path, e.message),
            (false, Some(help)) => format!("`{}`: {} ({help})", e.path, e.message),
        })
        .map(|fault| crate::text::label(&fault, 300))
        .collect();
    if !faults.is_empty() {
        return Err(wrong(tool, &faults));
    }
    let action = typed(tool, &value).map_err(|fault| wrong(tool, &[fault]))?;
    limits(&action).map_err(|fault| wrong(tool, &[fault]))?;
    Ok(Fitted { action, canonical: value, repairs })
}

fn wrong(tool: Tool, faults: &[String]) -> String {
    format!("error: the arguments of {tool} do not fit: {}. {}", faults.join("; "), takes(tool))
}

/// What a tool takes, in one line: `write_file takes path (string, required), content (string, required)`.
pub(crate) fn takes(tool: Tool) -> String {
    takes_by(tool.as_str(), &schema(tool, &[]))
}

/// The same of any schema.
pub(crate) fn takes_by(tool: &str, schema: &Value) -> String {
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let list: Vec<String> = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, spec)| {
            let of = match spec.get("enum").and_then(Value::as_array) {
                Some(values) => values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
                None => match spec.get("type").and_then(Value::as_str) {
                    Some("array") => "list of strings".to_owned(),
                    other => other.unwrap_or("string").to_owned(),
                },
            };
            let must = if required.iter().any(|r| r == name) { ", required" } else { "" };
            format!("{name} ({of}{must})")
        })
        .collect();
    format!("{tool} takes {}", list.join(", "))
}

/// `["bash", "-lc", text]`, as some models were trained to write; and `command` for `argv`.
fn unwrap_argv(tool: Tool, object: &mut Map<String, Value>, repairs: &mut Vec<String>) {
    match tool {
        Tool::RunShell => {
            for key in ["command", "cmd"] {
                let Some(Value::Array(items)) = object.get(key) else { continue };
                let parts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                if let ["bash" | "sh" | "/bin/bash" | "/bin/sh", "-c" | "-lc", text] = parts.as_slice()
                    && items.len() == 3
                {
                    let text = Value::String((*text).to_owned());
                    object.insert(key.to_owned(), text);
                    repairs.push("unwrap:shell-argv".to_owned());
                }
            }
        }
        Tool::RunCommand => {
            if !object.contains_key("argv")
                && matches!(object.get("command"), Some(Value::Array(_)))
                && let Some(list) = object.shift_remove("command")
            {
                object.insert("argv".to_owned(), list);
                repairs.push("alias:command".to_owned());
            }
        }
        Tool::ReadFile
        | Tool::WriteFile
        | Tool::EditFile
        | Tool::ApplyPatch
        | Tool::ListDir
        | Tool::Glob
        | Tool::Search
        | Tool::ReadArtifact
        | Tool::FetchUrl
        | Tool::Agent
        | Tool::Finish => {}
    }
}

fn alias(tool: Tool, key: &str) -> Option<&'static str> {
    match (tool, key) {
        (Tool::ReadFile | Tool::WriteFile | Tool::EditFile, "file_path" | "filePath" | "filename") => {
            Some("path")
        }
        (Tool::RunShell, "cmd" | "script") => Some("command"),
        (Tool::RunShell | Tool::RunCommand, "cwd") => Some("workdir"),
        (Tool::EditFile, "old_string") => Some("old"),
        (Tool::EditFile, "new_string") => Some("new"),
        (Tool::EditFile, "replace_all") => Some("all"),
        (Tool::ApplyPatch, "input" | "diff") => Some("patch"),
        (Tool::FetchUrl, "uri" | "link") => Some("url"),
        (Tool::ReadArtifact, "artifact" | "artifact_id") => Some("id"),
        _ => None,
    }
}

/// Keeps the order of the keys; an alias beside the real name stays, and is refused as unknown.
fn rename(tool: Tool, object: &mut Map<String, Value>, repairs: &mut Vec<String>) {
    let mut out = Map::new();
    let taken: Vec<String> = object.keys().cloned().collect();
    for (key, value) in std::mem::take(object) {
        match alias(tool, &key) {
            Some(name) if !taken.iter().any(|k| k == name) && !out.contains_key(name) => {
                repairs.push(format!("alias:{key}"));
                out.insert(name.to_owned(), value);
            }
            _ => {
                out.insert(key, value);
            }
        }
    }
    *object = out;
}

/// A value of another kind that says exactly the same: whole or not at all.
fn coerce(tool: Tool, object: &mut Map<String, Value>, repairs: &mut Vec<String>) {
    let schema = schema(tool, &[]);
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    object.retain(|key, value| {
        let known = schema.get("properties").is_some_and(|p| p.get(key).is_some());
        let drop = value.is_null() && known && !required.iter().any(|r| r == key);
        if drop {
            repairs.push(format!("null:{}", crate::text::label(key, 40)));
        }
        !drop
    });
    for (name, spec) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let Some(value) = object.get(name) else { continue };
        let better = match (spec.get("type").and_then(Value::as_str), value) {
            (Some("integer"), Value::String(s)) => s.trim().parse::<u64>().ok().map(Value::from),
            (Some("boolean"), Value::String(s)) if s == "true" || s == "false" => {
                Some(Value::Bool(s == "true"))
            }
            (Some("array"), Value::String(s)) => crate::strict::parse(s)
                .ok()
                .filter(|v| v.as_array().is_some_and(|a| a.iter().all(Value::is_string))),
            // The content of a JSON file, written as the object itself.
            (Some("string"), Value::Object(_) | Value::Array(_))
                if tool == Tool::WriteFile && name == "content" =>
            {
                serde_json::to_string_pretty(value).ok().map(|s| Value::String(s + "\n"))
            }
            _ => None,
        };
        if let Some(better) = better {
            repairs.push(format!("coerce:{name}"));
            object.insert(name.clone(), better);
        }
    }
}

fn typed(tool: Tool, value: &Value) -> Result<Action, String> {
    fn to<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
        serde_json::from_value(value.clone()).map_err(|e| crate::text::label(&e.to_string(), 200))
    }
    Ok(match tool {
        Tool::RunShell => Action::RunShell(to(value)?),
        Tool::RunCommand => Action::RunCommand(to(value)?),
        Tool::ReadFile => Action::ReadFile(to(value)?),
        Tool::WriteFile => Action::WriteFile(to(value)?),
        Tool::EditFile => Action::EditFile(to(value)?),
        Tool::ApplyPatch => Action::ApplyPatch(to(value)?),
        Tool::ListDir => Action::ListDir(to(value)?),
        Tool::Glob => Action::Glob(to(value)?),
        Tool::Search => Action::Search(to(value)?),
        Tool::ReadArtifact => Action::ReadArtifact(to(value)?),
        Tool::FetchUrl => Action::FetchUrl(to(value)?),
        Tool::Agent => Action::Agent(to(value)?),
        Tool::Finish => Action::Finish(to(value)?),
    })
}

/// What no schema says: no NUL where the system would cut, no path without end.
fn limits(action: &Action) -> Result<(), String> {
    let nul = |name: &str, text: &str| {
        if text.contains('\0') { Err(format!("`{name}` holds a NUL character")) } else { Ok(()) }
    };
    let path = |name: &str, text: &str| {
        nul(name, text)?;
        if text.len() > MAX_PATH { Err(format!("`{name}` is longer than {MAX_PATH} bytes")) } else { Ok(()) }
    };
    let may = |text: &Option<String>| text.as_deref().map_or(Ok(()), |t| path("workdir", t));
    match action {
        Action::RunShell(a) => {
            if a.command.trim().is_empty() {
                return Err("`command` is empty".to_owned());
            }
            nul("command", &a.command)?;
            may(&a.workdir)
        }
        Action::RunCommand(a) => {
            if a.argv.first().is_none_or(|p| p.trim().is_empty()) {
                return Err("`argv` must begin with a program".to_owned());
            }
            a.argv.iter().try_for_each(|part| nul("argv", part))?;
            may(&a.workdir)
        }
        Action::ReadFile(a) => path("path", &a.path),
        Action::WriteFile(a) => path("path", &a.path),
        Action::EditFile(a) => path("path", &a.path),
        Action::ListDir(a) => a.path.as_deref().map_or(Ok(()), |p| path("path", p)),
        Action::ApplyPatch(a) => a.check(),
        Action::Glob(a) => {
            nul("pattern", &a.pattern)?;
            a.path.as_deref().map_or(Ok(()), |p| path("path", p))
        }
        Action::Search(a) => {
            nul("pattern", &a.pattern)?;
            a.path.as_deref().map_or(Ok(()), |p| path("path", p))
        }
        Action::FetchUrl(a) => path("url", &a.url),
        Action::ReadArtifact(_) | Action::Own(_) | Action::Agent(_) | Action::Finish(_) => Ok(()),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
