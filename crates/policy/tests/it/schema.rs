use std::collections::BTreeSet;

use policy::{Deployment, SchemaKind, schema};
use serde_json::Value;

/// What the checker checks, and what only tells a reader something.
const UNDERSTOOD: [&str; 14] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "anyOf",
    "oneOf",
    "$ref",
];
const TELLING: [&str; 6] = ["$schema", "$defs", "title", "description", "default", "format"];

fn keywords(schema: &Value, found: &mut BTreeSet<String>) {
    let Some(object) = schema.as_object() else { return };
    for (keyword, inner) in object {
        found.insert(keyword.clone());
        match keyword.as_str() {
            "properties" | "$defs" => {
                inner.as_object().into_iter().flatten().for_each(|(_, s)| keywords(s, found))
            }
            "anyOf" | "oneOf" => inner.as_array().into_iter().flatten().for_each(|s| keywords(s, found)),
            "items" | "additionalProperties" => keywords(inner, found),
            _ => {}
        }
    }
}

#[test]
fn the_generated_schemas_use_only_what_is_checked() {
    for kind in SchemaKind::ALL {
        let mut found = BTreeSet::new();
        keywords(&schema(kind), &mut found);
        found.retain(|k| !UNDERSTOOD.contains(&k.as_str()) && !TELLING.contains(&k.as_str()));
        assert!(found.is_empty(), "{kind}: {found:?}");
    }
}

#[test]
fn the_checked_in_schemas_are_the_generated_ones() {
    let checked_in = [
        (SchemaKind::Deployment, include_str!("../../../../docs/schema/deployment.json")),
        (SchemaKind::Guild, include_str!("../../../../docs/schema/guild.json")),
        (SchemaKind::Foundry, include_str!("../../../../docs/schema/foundry.json")),
    ];
    for (kind, text) in checked_in {
        let now = serde_json::to_string_pretty(&schema(kind)).expect("JSON") + "\n";
        let first = now.lines().zip(text.lines()).enumerate().find(|(_, (now, old))| now != old);
        let differs = first.map(|(i, (now, old))| format!("line {}:\n- {old}\n+ {now}", i + 1));
        assert!(
            now == text,
            "docs/schema/{kind}.json is not what the types say now; write it anew with \
             `oubliette schema {kind} > docs/schema/{kind}.json`\n{}",
            differs.unwrap_or_else(|| "one is longer".to_owned())
        );
    }
}

#[test]
fn every_key_says_what_it_is() {
    for kind in SchemaKind::ALL {
        let schema = schema(kind);
        let tables = schema["$defs"].as_object().into_iter().flatten().map(|(_, table)| table);
        for table in tables.chain([&schema]) {
            for (key, inner) in table["properties"].as_object().into_iter().flatten() {
                assert!(inner["description"].is_string(), "{kind}: {key}");
            }
        }
    }
}

/// A file that writes out every default is the default.
#[test]
fn the_defaults_in_the_schema_are_the_defaults() {
    let schema = schema(SchemaKind::Deployment);
    let mut text = String::new();
    let mut written = 0;
    for (table, reference) in schema["properties"].as_object().expect("tables") {
        let name = reference["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/")).expect("a table");
        text += &format!("[{table}]\n");
        for (key, inner) in schema["$defs"][name]["properties"].as_object().expect("keys") {
            if let Some(default) = inner.get("default") {
                // Numbers, texts, truth values and empty lists are the same in JSON and TOML.
                text += &format!("{key} = {default}\n");
                written += 1;
            }
        }
    }
    assert_eq!(written, 43);
    assert_eq!(Deployment::parse("f", &text).expect("the defaults"), Deployment::default());
}

#[test]
fn a_kind_is_named_exactly() {
    assert_eq!("guild".parse(), Ok(SchemaKind::Guild));
    assert!("Guild".parse::<SchemaKind>().is_err());
}
