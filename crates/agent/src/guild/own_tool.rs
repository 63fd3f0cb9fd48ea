//! A tool of the Guild's own: what its manifest promises, and the module that keeps it.

use std::path::Path;

use policy::narrower::has_key;
use policy::{Code, Fault};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{fault_of, read_bytes};

/// Bytes of a module.
const MAX_MODULE: u64 = 32 << 20;
/// Bytes of all modules of a Guild: the executor holds them.
pub(super) const MAX_MODULES: u64 = 64 << 20;
/// Characters of a description: it is part of every prompt.
const MAX_DESCRIPTION: usize = 400;
/// Arguments of one tool.
const MAX_ARGUMENTS: usize = 32;
/// Values of one list, and characters of one of them: a model reads them all.
const MAX_VALUES: usize = 100;
/// As many characters as one value of a list may have.
const MAX_VALUE: usize = 100;
/// Types that an argument may have.
const TYPES: [&str; 5] = ["string", "integer", "number", "boolean", "array"];
/// Types that the items of a list may have.
const SCALARS: &[&str] = &["string", "integer", "number", "boolean"];

/// A tool of the Guild's own, read and judged.
#[derive(Clone, Debug)]
pub struct OwnTool {
    /// One line for the model.
    pub description: String,
    /// The schema of its arguments: a flat object.
    pub schema: Value,
    /// Its code.
    pub module: runs::Module,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    name: String,
    description: String,
    parameters: Value,
}

/// Bytes that are left for further tools of a Guild.
pub(super) struct Room {
    pub(super) manifests: u64,
    pub(super) modules: u64,
}

/// Reads both files of a tool; the manifest's text comes along, for the digest.
pub(super) fn read(
    dir: &Path,
    name: &str,
    written: &policy::OwnTool,
    left: &Room,
) -> Result<(OwnTool, String), Box<Fault>> {
    let key = |part: &str| format!("tools.{name}.{part}");
    let (manifest, module) = (written.manifest.as_str(), written.module.as_str());
    let file = dir.join(manifest).display().to_string();
    let text = super::read(dir, manifest, left.manifests.min(super::MAX_TEXT), &file, &key("manifest"))?;
    let bad = |message: String| Box::new(fault_of(&file, &key("manifest"), Code::BadValue, message, None));
    let value = crate::strict::parse(&text).map_err(|e| bad(format!("the manifest cannot be read: {e}")))?;
    let read: Manifest =
        serde_json::from_value(value).map_err(|e| bad(format!("the manifest does not fit: {e}")))?;
    if read.name != name {
        return Err(bad(format!("the manifest is of another tool, not of `{name}`")));
    }
    let description = read.description.trim();
    if description.is_empty() || !is_line(description) {
        return Err(bad(format!("the description must be one line of at most {MAX_DESCRIPTION} characters")));
    }
    let schema = flat(&read.parameters).map_err(|why| bad(format!("`parameters` {why}")))?;
    let file = dir.join(module).display().to_string();
    let bytes = read_bytes(dir, module, left.modules.min(MAX_MODULE), &file, &key("module"))?;
    let module = runs::Module::check(bytes)
        .map_err(|e| Box::new(fault_of(&file, &key("module"), Code::BadValue, e.to_string(), None)))?;
    Ok((OwnTool { description: description.to_owned(), schema, module }, text))
}

/// Whether a text is one line, as long as a description may be, that drives no terminal.
fn is_line(text: &str) -> bool {
    text.chars().count() <= MAX_DESCRIPTION && !text.chars().any(char::is_control)
}

/// A word of a manifest as a message may repeat it. What is cut off may be what makes a key of it.
fn quoted(text: &str, most: usize) -> String {
    if has_key(text) { "(hidden)".to_owned() } else { crate::text::label(text, most) }
}

/// The schema of a flat object, with every keyword one that is checked, and closed to other arguments.
fn flat(parameters: &Value) -> Result<Value, String> {
    let object = parameters.as_object().ok_or("must be an object")?;
    let known = ["type", "properties", "required", "additionalProperties"];
    if let Some(other) = object.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("has `{}`, which is not checked here", quoted(other, 40)));
    }
    if object.get("type").and_then(Value::as_str) != Some("object") {
        return Err("must have the type `object`".to_owned());
    }
    if !matches!(object.get("additionalProperties"), None | Some(Value::Bool(false))) {
        return Err("must not allow arguments that it does not name".to_owned());
    }
    let empty = Map::new();
    let properties = match object.get("properties") {
        None => &empty,
        Some(given) => given.as_object().ok_or("has `properties` that are no object")?,
    };
    if properties.len() > MAX_ARGUMENTS {
        return Err(format!("has more than {MAX_ARGUMENTS} arguments"));
    }
    for (name, spec) in properties {
        let label = quoted(name, 40);
        let sound = !name.is_empty()
            && name.len() <= 64
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if !sound {
            return Err(format!("has no sound argument `{label}`"));
        }
        argument(&label, spec, &TYPES)?;
    }
    let required = object.get("required").cloned().unwrap_or_else(|| json!([]));
    let named = required
        .as_array()
        .is_some_and(|names| names.iter().all(|n| n.as_str().is_some_and(|n| properties.contains_key(n))));
    if !named {
        return Err("requires an argument that it does not have".to_owned());
    }
    Ok(json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    }))
}

/// One argument, or the items of one: keywords that are checked, with values by which something can be checked.
fn argument(label: &str, spec: &Value, types: &[&str]) -> Result<(), String> {
    let spec = spec.as_object().ok_or(format!("has no sound argument `{label}`"))?;
    let Some(kind) = spec.get("type").and_then(Value::as_str).filter(|of| types.contains(of)) else {
        return Err(format!("gives `{label}` no type out of {}", types.join(", ")));
    };
    for (keyword, value) in spec {
        let sound = match keyword.as_str() {
            "type" => true,
            // A model reads it as it reads the tool's own.
            "description" => {
                if !value.as_str().is_some_and(is_line) {
                    return Err(format!(
                        "has a `description` in `{label}` that is no line of at most {MAX_DESCRIPTION} characters"
                    ));
                }
                true
            }
            "enum" => {
                listed(label, kind, value)?;
                true
            }
            "minimum" | "maximum" => value.is_number(),
            "minLength" | "maxLength" => value.is_u64(),
            "items" => {
                // A list of lists is not flat.
                argument(&format!("{label}[]"), value, SCALARS)?;
                types.contains(&"array")
            }
            _ => {
                let other = quoted(keyword, 40);
                return Err(format!("has `{other}` in `{label}`, which is not checked here"));
            }
        };
        if !sound {
            return Err(format!("has a `{keyword}` in `{label}` by which nothing can be checked"));
        }
    }
    Ok(())
}

/// The values that an argument may have. They are text that a model reads: short, of one line, each of them seen.
fn listed(label: &str, kind: &str, values: &Value) -> Result<(), String> {
    let values = values.as_array().map(Vec::as_slice).unwrap_or_default();
    if values.is_empty() || values.len() > MAX_VALUES {
        return Err(format!("has an `enum` in `{label}` that is no list of 1 to {MAX_VALUES} values"));
    }
    for (n, value) in values.iter().enumerate() {
        let why = match value {
            Value::String(text) if kind == "string" => {
                let is_short = text.chars().count() <= MAX_VALUE;
                let is_plain = !text.chars().any(char::is_control) && !runs::hides(text);
                match (is_short, is_plain) {
                    (false, _) => format!("has more than {MAX_VALUE} characters"),
                    (true, false) => "holds characters that nobody sees, or more than one line".to_owned(),
                    (true, true) => continue,
                }
            }
            Value::Number(number) if kind == "number" || (kind == "integer" && !number.is_f64()) => continue,
            Value::Bool(_) if kind == "boolean" => continue,
            Value::String(_)
            | Value::Number(_)
            | Value::Bool(_)
            | Value::Null
            | Value::Array(_)
            | Value::Object(_) => format!("is no {kind} that could be given"),
        };
        return Err(format!("has an `enum` in `{label}` of which value {n}, counted from 0, {why}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W14: whatever stands in a list of values goes to the model.
    #[test]
    fn w14_values_of_a_list_are_short_of_one_line_of_their_kind_and_seen() {
        let with = |kind: &str, values: Value| {
            flat(&json!({"type": "object", "properties": {"a": {"type": kind, "enum": values}}}))
        };
        let long = "x".repeat(MAX_VALUE + 1);
        for (kind, values) in [
            ("string", json!(["one line", "na\u{ef}ve"])),
            ("integer", json!([1, -2])),
            ("number", json!([1, 2.5])),
            ("boolean", json!([true])),
        ] {
            assert!(with(kind, values.clone()).is_ok(), "{values}");
        }
        for (kind, values, said) in [
            ("string", json!([]), "no list of 1 to 100"),
            ("string", json!("x"), "no list of 1 to 100"),
            ("string", json!(vec!["x"; MAX_VALUES + 1]), "no list of 1 to 100"),
            ("string", json!(["x", "a\nb"]), "value 1, counted from 0, holds characters"),
            ("string", json!(["a\u{202e}b"]), "holds characters"),
            ("string", json!(["a\u{1b}b"]), "holds characters"),
            ("string", json!([long]), "more than 100 characters"),
            ("string", json!([1]), "is no string"),
            ("string", json!([["x"]]), "is no string"),
            ("string", json!([{"x": "y"}]), "is no string"),
            ("string", json!([null]), "is no string"),
            ("integer", json!([1.5]), "is no integer"),
            ("array", json!([["x"]]), "is no array"),
        ] {
            let told = with(kind, values.clone()).unwrap_err();
            assert!(told.contains(said) && told.contains("`a`"), "{values}: {told}");
        }
        let items = json!({"type": "array", "items": {"type": "string", "enum": ["a\nb"]}});
        let told = flat(&json!({"type": "object", "properties": {"a": items}})).unwrap_err();
        assert!(told.contains("`a[]`"), "{told}");
    }

    /// W14: so does what is said of an argument, and of the items of a list.
    #[test]
    fn w14_a_description_of_an_argument_is_one_line_as_the_tools_own_is() {
        let of = |text: &str| {
            let spec = json!({"type": "array", "description": text, "items": {"type": "string"}});
            let items = json!({"type": "array", "items": {"type": "string", "description": text}});
            [("`a`", spec), ("`a[]`", items)]
                .map(|(label, spec)| (label, flat(&json!({"type": "object", "properties": {"a": spec}}))))
        };
        for text in ["", "one line", "na\u{ef}ve"] {
            assert!(of(text).iter().all(|(_, read)| read.is_ok()), "{text:?}");
        }
        let long = "x".repeat(MAX_DESCRIPTION + 1);
        for text in ["\u{1b}[2J", "a\nb", "a\rb", "a\tb", "a\u{7f}", "a\u{9b}2J", &long] {
            for (label, read) in of(text) {
                let told = read.unwrap_err();
                assert!(told.contains(label) && told.contains("no line of at most 400"), "{text:?}: {told}");
            }
        }
    }

    #[test]
    fn all_modules_of_a_guild_have_room_together_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("t.json"),
            r#"{"name":"t","description":"d","parameters":{"type":"object"}}"#,
        )
        .unwrap();
        std::fs::write(dir.path().join("t.wasm"), [0; 100]).unwrap();
        let path = |name: &str| policy::GuildPath::new(name).unwrap();
        let written = policy::OwnTool { manifest: path("t.json"), module: path("t.wasm") };
        let room = |modules| Room { manifests: 1000, modules };
        let fault = read(dir.path(), "t", &written, &room(99)).unwrap_err();
        assert_eq!((fault.code, fault.key.as_str()), (Code::Unreadable, "tools.t.module"));
        // With room it is read, and found to be none.
        assert_eq!(read(dir.path(), "t", &written, &room(100)).unwrap_err().code, Code::BadValue);
    }

    /// R59: whoever words it, no error repeats what looks like a key.
    #[test]
    fn r59_no_fault_of_a_manifest_repeats_a_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| policy::GuildPath::new(name).unwrap();
        let written = policy::OwnTool { manifest: path("t.json"), module: path("t.wasm") };
        let secret = "sk-Zq81abcdefghijkl";
        let late = format!("{}{secret}", "x ".repeat(19));
        for manifest in [
            format!(r#"{{"name":"t","description":"d","parameters":{{}},"{secret}":1}}"#),
            format!(r#"{{"name":"t","description":"d","parameters":{{"{secret}":1}}}}"#),
            format!(r#"{{"name":"t","description":"d","parameters":{{"{late}":1}}}}"#),
            format!(r#"{{"name":"{secret}","description":"d","parameters":{{}}}}"#),
            format!(r#"{{"name":"t","description":"d","parameters":"{secret}"}}"#),
            format!(r#"{{"name":["{secret}"],"description":"d","parameters":{{}}}}"#),
            format!(r#"{{"{secret}":1,"{secret}":2}}"#),
            format!(r#"{{"{secret}"#),
            format!(r#""{secret}""#),
            format!(
                r#"{{"name":"t","description":"d","parameters":{{"type":"object","properties":{{"{secret} ":1}}}}}}"#
            ),
            format!(
                r#"{{"name":"t","description":"d","parameters":{{"type":"object","properties":{{"a":{{"type":"string","{secret}":1}}}}}}}}"#
            ),
        ] {
            std::fs::write(dir.path().join("t.json"), &manifest).unwrap();
            let room = Room { manifests: 10_000, modules: 1000 };
            let fault = read(dir.path(), "t", &written, &room).unwrap_err();
            let told = super::super::only(*fault).to_string();
            assert!(!told.contains("Zq8"), "{manifest}: {told}");
        }
    }

    #[test]
    fn only_flat_objects_of_what_is_checked_are_taken() {
        let good = json!({
            "type": "object",
            "properties": {"path": {"type": "string", "maxLength": 9}, "n": {"type": "integer", "minimum": 1}},
            "required": ["path"],
        });
        assert_eq!(flat(&good).unwrap()["additionalProperties"], false);
        assert!(flat(&json!({"type": "object"})).is_ok());
        let list = json!({"type": "array", "items": {"type": "string", "maxLength": 9}});
        assert!(flat(&json!({"type": "object", "properties": {"a": list}})).is_ok());
        for bad in [
            json!([]),
            json!({"type": "string"}),
            json!({"type": "object", "patternProperties": {}}),
            json!({"type": "object", "additionalProperties": true}),
            json!({"type": "object", "required": ["x"]}),
            json!({"type": "object", "properties": {"a": {"type": "object"}}}),
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}}),
            json!({"type": "object", "properties": {"a b": {"type": "string"}}}),
            json!({"type": "object", "properties": {"a": {"$ref": "#"}}}),
            json!({"type": "object", "properties": {"a": {"type": "string", "minLength": "9"}}}),
            json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": -1}}}),
            json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": "1"}}}),
            json!({"type": "object", "properties": {"a": {"type": "string", "enum": "x"}}}),
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#"}}}}),
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}}),
            json!({"type": "object", "properties":
                {"a": {"type": "array", "items": {"type": "string", "pattern": "x"}}}}),
        ] {
            assert!(flat(&bad).is_err(), "{bad}");
        }
    }
}
