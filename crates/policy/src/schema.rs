//! JSON Schemas generated from the types that read a file.

use schemars::JsonSchema;
use serde_json::Value;

/// The schema of what a type reads.
pub(crate) fn of<T: JsonSchema>() -> Value {
    without_null(schemars::schema_for!(T))
}

/// TOML has no null: a key that may be left out is just not required. What a type says of `Option` is dropped.
fn without_null(schema: schemars::Schema) -> Value {
    let mut value = schema.to_value();
    drop_null(&mut value);
    value
}

fn drop_null(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if let Some(Value::Array(types)) = members.get_mut("type") {
                types.retain(|t| t != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    members.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(branches)) = members.get_mut("anyOf") {
                branches.retain(|b| b.get("type").is_none_or(|t| t != "null"));
                if let [Value::Object(only)] = branches.as_slice() {
                    let only = only.clone();
                    members.shift_remove("anyOf");
                    members.extend(only);
                }
            }
            members.values_mut().for_each(drop_null);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
