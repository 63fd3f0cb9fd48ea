//! A tool of the Guild's own: what its manifest promises, and the module that keeps it.

use std::path::Path;

use policy::{Code, Fault};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{fault_of, read_bytes};

/// Bytes of a module.
const MAX_MODULE: u64 = 32 << 20;
/// Characters of a description: it is part of every prompt.
const MAX_DESCRIPTION: usize = 400;
/// Arguments of one tool.
const MAX_ARGUMENTS: usize = 32;
/// Types that an argument may have.
const TYPES: [&str; 5] = ["string", "integer", "number", "boolean", "array"];
/// Keywords that an argument may have.
const KEYWORDS: [&str; 8] =
    ["type", "description", "enum", "items", "minimum", "maximum", "minLength", "maxLength"];

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

/// Reads both files of a tool; the manifest's text comes along, for the digest.
pub(super) fn read(
    dir: &Path,
    name: &str,
    written: &policy::OwnTool,
) -> Result<(OwnTool, String), Box<Fault>> {
    let key = |part: &str| format!("tools.{name}.{part}");
    let (manifest, module) = (written.manifest.as_str(), written.module.as_str());
    let file = dir.join(manifest).display().to_string();
    let text = super::read(dir, manifest, &file, &key("manifest"))?;
    let bad = |message: String| Box::new(fault_of(&file, &key("manifest"), Code::BadValue, message, None));
    let value = crate::strict::parse(&text).map_err(|e| bad(format!("the manifest cannot be read: {e}")))?;
    let read: Manifest =
        serde_json::from_value(value).map_err(|e| bad(format!("the manifest does not fit: {e}")))?;
    if read.name != name {
        return Err(bad(format!("the manifest is of another tool, not of `{name}`")));
    }
    let description = read.description.trim();
    let plain = !description.is_empty()
        && description.chars().count() <= MAX_DESCRIPTION
        && !description.chars().any(char::is_control);
    if !plain {
        return Err(bad(format!("the description must be one line of at most {MAX_DESCRIPTION} characters")));
    }
    let schema = flat(&read.parameters).map_err(|why| bad(format!("`parameters` {why}")))?;
    let file = dir.join(module).display().to_string();
    let bytes = read_bytes(dir, module, MAX_MODULE, &file, &key("module"))?;
    let module = runs::Module::check(bytes)
        .map_err(|e| Box::new(fault_of(&file, &key("module"), Code::BadValue, e.to_string(), None)))?;
    Ok((OwnTool { description: description.to_owned(), schema, module }, text))
}

/// The schema of a flat object, with every keyword one that is checked, and closed to other arguments.
fn flat(parameters: &Value) -> Result<Value, String> {
    let object = parameters.as_object().ok_or("must be an object")?;
    let known = ["type", "properties", "required", "additionalProperties"];
    if let Some(other) = object.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("has `{}`, which is not checked here", crate::text::label(other, 40)));
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
        let label = crate::text::label(name, 40);
        let sound = !name.is_empty()
            && name.len() <= 64
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        let spec = spec.as_object().filter(|_| sound).ok_or(format!("has no sound argument `{label}`"))?;
        if let Some(other) = spec.keys().find(|key| !KEYWORDS.contains(&key.as_str())) {
            let other = crate::text::label(other, 40);
            return Err(format!("has `{other}` in `{label}`, which is not checked here"));
        }
        if !spec.get("type").and_then(Value::as_str).is_some_and(|of| TYPES.contains(&of)) {
            return Err(format!("gives `{label}` no type out of {}", TYPES.join(", ")));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_flat_objects_of_what_is_checked_are_taken() {
        let good = json!({
            "type": "object",
            "properties": {"path": {"type": "string", "maxLength": 9}, "n": {"type": "integer", "minimum": 1}},
            "required": ["path"],
        });
        assert_eq!(flat(&good).unwrap()["additionalProperties"], false);
        assert!(flat(&json!({"type": "object"})).is_ok());
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
        ] {
            assert!(flat(&bad).is_err(), "{bad}");
        }
    }
}
