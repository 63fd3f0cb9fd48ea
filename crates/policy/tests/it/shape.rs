//! The checker alone, as it is used on a model's arguments.

use policy::{Code, ShapeError, check_shape};
use serde_json::{Value, json};

fn told(schema: &Value, value: &Value) -> Vec<String> {
    let tell = |e: ShapeError| format!("{} {}: {}", e.code.as_str(), e.path, e.message);
    check_shape(schema, value).into_iter().map(tell).collect()
}

#[test]
fn r2_every_mismatch_of_an_argument_object_is_told() {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["path", "mode"],
        "properties": {
            "path": { "type": "string", "minLength": 1, "maxLength": 4 },
            "limit": { "type": ["integer", "null"], "minimum": 1, "maximum": 9 },
            "mode": { "enum": ["a", "b"] },
            "list": { "type": "array", "items": { "type": "boolean" } },
        },
    });
    assert_eq!(told(&schema, &json!({ "path": "x", "mode": "a", "limit": null, "list": [true] })), [""; 0]);
    let wrong = json!({ "path": "", "limit": 10, "list": [true, 1], "mod": 1 });
    assert_eq!(
        told(&schema, &wrong),
        [
            "bad-value path: must not be empty",
            "bad-value limit: must be at most 9",
            "wrong-type list[1]: must be true or false, not a number",
            "unknown-key mod: there is no key `mod` here",
            "missing-key mode: is missing",
        ]
    );
    assert_eq!(told(&schema, &json!("x")), ["wrong-type : must be a table, not a text"]);
    assert_eq!(told(&schema, &json!({ "path": "abcde", "mode": "c", "limit": 1.0 })).len(), 3);
}

#[test]
fn forms_are_told_by_their_kinds() {
    let size = json!({ "anyOf": [{ "type": "integer", "minimum": 1 }, { "type": "string" }] });
    assert_eq!(told(&size, &json!("1MiB")), [""; 0]);
    assert_eq!(told(&size, &json!(0)), ["bad-value : must be at least 1"]);
    assert_eq!(told(&size, &json!([])), ["wrong-type : must be a whole number or a text, not a list"]);
    let named = json!({ "oneOf": [{ "const": "on" }, { "const": "off" }] });
    assert_eq!(told(&named, &json!("onn")), ["bad-value : must be one of `on`, `off`"]);
    let both = json!({ "oneOf": [{ "type": "integer" }, { "type": "number" }] });
    assert_eq!(told(&both, &json!(1)), ["bad-value : fits more than one of the accepted forms"]);
}

#[test]
fn large_numbers_are_compared_exactly() {
    let schema = json!({ "minimum": u64::MAX });
    assert_eq!(told(&schema, &json!(u64::MAX)), [""; 0]);
    assert_eq!(told(&schema, &json!(u64::MAX - 1)).len(), 1);
}

#[test]
fn no_schema_and_no_value_leads_astray() {
    let cycle = json!({ "$ref": "#/$defs/A", "$defs": { "A": { "$ref": "#/$defs/A" } } });
    check_shape(&cycle, &json!(1));
    let fork = json!({ "$ref": "#/$defs/A", "$defs": { "A": { "anyOf": [{ "$ref": "#/$defs/A" }, { "$ref": "#/$defs/A" }] } } });
    assert!(!check_shape(&fork, &json!(1)).is_empty());
    let list = json!({ "$ref": "#/$defs/A", "$defs": { "A": { "type": "array", "items": { "$ref": "#/$defs/A" } } } });
    let deep = (0..100).fold(json!([]), |inner, _| json!([inner]));
    assert_eq!(check_shape(&list, &deep).len(), 1);
    for schema in [
        json!(null),
        json!(true),
        json!([]),
        json!({ "$ref": 1 }),
        json!({ "$ref": "#/elsewhere" }),
        json!({ "type": 7 }),
        json!({ "type": "unheard-of" }),
        json!({ "anyOf": 3 }),
        json!({ "required": [1], "properties": 2 }),
        json!({ "enum": {} }),
        json!({ "minimum": "x" }),
        json!({ "not-a-keyword": { "a": [] } }),
    ] {
        assert_eq!(check_shape(&schema, &json!({ "a": [1, "b"] })), [], "{schema}");
    }
}

#[test]
fn r2_the_number_of_mismatches_is_bounded() {
    let schema = json!({ "type": "array", "items": { "type": "string" } });
    let found = check_shape(&schema, &Value::Array(vec![json!(1); 1_000_000]));
    assert!(found.len() <= 200 && found.iter().all(|e| e.code == Code::WrongType));
}
