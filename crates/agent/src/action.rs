//! One action object per turn: `{"tool": …, "args": {…}}`, and the schema that makes a server write nothing else.
//!
//! The schema stays within what grammar converters of local servers take. The tool comes first: a small model
//! decides what to do before it decides with what.

use policy::{RoleName, Tool};
use serde_json::{Value, json};

use crate::tools::own::Own;
use crate::tools::{description, schema};

/// The schema of an action of a role with these tools; none for a role without any.
pub fn action_schema(tools: &[Tool], agents: &[RoleName]) -> Option<Value> {
    action_schema_with(tools, agents, &[])
}

/// The same with tools of the Guild's own.
pub(crate) fn action_schema_with(tools: &[Tool], agents: &[RoleName], own: &[Own]) -> Option<Value> {
    let form = |name: &str, args: Value| {
        json!({
            "type": "object",
            "properties": {"tool": {"const": name}, "args": plain(args)},
            "required": ["tool", "args"],
            "additionalProperties": false,
        })
    };
    let built_in = tools.iter().map(|tool| form(tool.as_str(), schema(*tool, agents)));
    let mut forms: Vec<Value> =
        built_in.chain(own.iter().map(|tool| form(&tool.name, tool.schema.clone()))).collect();
    match forms.len() {
        0 => None,
        1 => forms.pop(),
        _ => Some(json!({"anyOf": forms})),
    }
}

/// The `tools` array of a native request.
pub(crate) fn native_tools(tools: &[Tool], agents: &[RoleName], own: &[Own]) -> Value {
    let function = |name: &str, description: &str, args: Value| {
        json!({"type": "function", "function": {
            "name": name,
            "description": description,
            "parameters": plain(args),
        }})
    };
    let built_in =
        tools.iter().map(|tool| function(tool.as_str(), description(*tool), schema(*tool, agents)));
    built_in
        .chain(own.iter().map(|tool| function(&tool.name, &tool.description, tool.schema.clone())))
        .collect()
}

/// Without the bounds that some converters do not know; they are checked here anyway.
fn plain(mut schema: Value) -> Value {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for spec in properties.values_mut().filter_map(Value::as_object_mut) {
            for bound in ["minimum", "maximum", "minLength", "maxLength"] {
                spec.shift_remove(bound);
            }
        }
    }
    schema
}

/// Reads an action object: the tool's name as written, and its arguments.
pub(crate) fn read_action(value: &Value) -> Result<(String, Value), String> {
    let object = value.as_object().ok_or("the answer must be one JSON object")?;
    if let Some(extra) = object.keys().find(|k| !["tool", "args", "name", "arguments"].contains(&k.as_str()))
    {
        return Err(format!("the object has an unknown key `{}`", crate::text::label(extra, 40)));
    }
    let one_of = |a: &str, b: &str| match (object.get(a), object.get(b)) {
        (Some(value), None) | (None, Some(value)) => Some(value),
        (None, None) | (Some(_), Some(_)) => None,
    };
    let tool = one_of("tool", "name").and_then(Value::as_str);
    match (tool, one_of("args", "arguments")) {
        (Some(tool), Some(args)) => Ok((tool.to_owned(), args.clone())),
        (_, _) => Err("the object must have `tool` (a name) and `args` (an object)".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tool_comes_before_its_arguments() {
        let text = action_schema(&Tool::ALL, &[]).unwrap().to_string();
        assert!(
            text.starts_with(
                r#"{"anyOf":[{"type":"object","properties":{"tool":{"const":"run_shell"},"args""#
            )
        );
    }

    #[test]
    fn the_schema_holds_only_what_grammar_converters_take() {
        fn keys(value: &Value, into: &mut std::collections::BTreeSet<String>) {
            match value {
                Value::Object(map) => {
                    for (k, v) in map {
                        if k == "properties" {
                            v.as_object().unwrap().values().for_each(|v| keys(v, into));
                        } else {
                            into.insert(k.clone());
                            keys(v, into);
                        }
                    }
                }
                Value::Array(items) => items.iter().for_each(|v| keys(v, into)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let mut found = std::collections::BTreeSet::new();
        keys(&action_schema(&Tool::ALL, &[]).unwrap(), &mut found);
        let known = ["additionalProperties", "anyOf", "const", "enum", "items", "required", "type"];
        assert!(found.iter().all(|k| known.contains(&k.as_str())), "{found:?}");
    }

    #[test]
    fn an_action_without_arguments_never_runs_with_defaults() {
        for odd in [
            json!({"tool": "list_dir"}),
            json!({"tool": "a", "args": {}, "arguments": {}}),
            json!({"args": {}}),
        ] {
            assert!(read_action(&odd).is_err(), "{odd}");
        }
        let read = read_action(&json!({"tool": "read_file", "arguments": {"path": "a"}})).unwrap();
        assert_eq!(read.1, json!({"path": "a"}));
    }

    #[test]
    fn r25_the_schema_names_exactly_the_roles_tools() {
        let text = action_schema(&[Tool::ReadFile, Tool::Finish], &[]).unwrap().to_string();
        for tool in Tool::ALL {
            let named = text.contains(&format!("\"const\":\"{tool}\""));
            assert_eq!(named, [Tool::ReadFile, Tool::Finish].contains(&tool), "{tool}");
        }
    }
}
