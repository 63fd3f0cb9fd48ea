//! The subset of JSON Schema that files and tool arguments are checked against.
//!
//! One checker for both: what the operator's file, a Guild and a model's arguments may look like is said once,
//! in Rust types, and the generated schema is what is checked. The value is hostile, so nothing here follows
//! it without a bound: depth, work and the number of mismatches each end at a constant, and reaching one of
//! them is itself a mismatch. No message repeats a value; a key is repeated short and cleaned.

use serde_json::{Map, Value};

use crate::Code;
use crate::shown::{child, shown};
use crate::spelling::Spelling;

/// Levels of nesting, counted over value and schema together.
const DEPTH: usize = 64;
/// Pairs of schema and value looked at.
const WORK: usize = 200_000;
/// Mismatches that are told; whoever has more fixes these first.
const MISMATCHES: usize = 200;

/// One mismatch between a value and its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeError {
    /// Dotted path of the value (`roles.coder.tools[2]`).
    pub path: String,
    /// The kind of fault.
    pub code: crate::Code,
    /// What is wrong, a sentence without a full stop.
    pub message: String,
    /// What would be right.
    pub help: Option<String>,
}

/// Every mismatch between `value` and `schema`.
///
/// Understood: `type` (also a list of types), `properties`, `required`, `additionalProperties`, `items`,
/// `enum`, `const`, `minimum`, `maximum`, `minLength`, `maxLength`, `anyOf`, `oneOf`, `$ref` into `$defs`.
/// Any other keyword is not checked. An `integer` is one written without a fraction.
pub fn check_shape(schema: &Value, value: &Value) -> Vec<ShapeError> {
    let mut checker = Checker { root: schema, work: WORK, spelling: Spelling::default() };
    let mut found = Vec::new();
    checker.check(schema, value, "", 0, &mut found);
    found
}

struct Checker<'s> {
    root: &'s Value,
    work: usize,
    spelling: Spelling,
}

impl<'s> Checker<'s> {
    fn check(
        &mut self,
        schema: &'s Value,
        value: &Value,
        path: &str,
        depth: usize,
        found: &mut Vec<ShapeError>,
    ) {
        if found.len() >= MISMATCHES {
            return;
        }
        self.work = self.work.saturating_sub(1);
        if depth > DEPTH || self.work == 0 {
            found.push(mismatch(path, Code::BadValue, "is too deep or too large to be checked"));
            return;
        }
        let Some(schema) = self.resolve(schema) else { return };
        if !self.check_scalar(schema, value, path, found) {
            return;
        }
        for (keyword, exactly_one) in [("anyOf", false), ("oneOf", true)] {
            if let Some(Value::Array(branches)) = schema.get(keyword) {
                self.check_branches(branches, exactly_one, value, path, depth, found);
            }
        }
        match value {
            Value::Object(members) => self.check_object(schema, members, path, depth, found),
            Value::Array(items) => {
                if let Some(of_item) = schema.get("items") {
                    for (i, item) in items.iter().enumerate() {
                        self.check(of_item, item, &format!("{path}[{i}]"), depth + 1, found);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Follows `$ref`; none where nothing can be checked (`true`, a dangling reference, a cycle).
    fn resolve(&self, mut schema: &'s Value) -> Option<&'s Map<String, Value>> {
        for _ in 0..DEPTH {
            let object = schema.as_object()?;
            let Some(Value::String(reference)) = object.get("$ref") else { return Some(object) };
            schema = self.root.get("$defs")?.get(reference.strip_prefix("#/$defs/")?)?;
        }
        None
    }

    /// The keywords that look at one value alone. False when its type is wrong: the rest says nothing then.
    fn check_scalar(
        &mut self,
        schema: &Map<String, Value>,
        value: &Value,
        path: &str,
        found: &mut Vec<ShapeError>,
    ) -> bool {
        let types = types_of(schema);
        if !types.is_empty() && !types.iter().any(|t| has_type(value, t)) {
            let message = format!("must be {}, not {}", list_types(&types), type_name(value));
            found.push(mismatch(path, Code::WrongType, message));
            return false;
        }
        let constant = schema.get("const").map(std::slice::from_ref);
        let listed = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice);
        for accepted in [constant, listed].into_iter().flatten() {
            if !accepted.contains(value) {
                found.push(not_one_of(path, value, accepted.iter(), &mut self.spelling));
            }
        }
        match value {
            Value::Number(number) => check_range(schema, number, path, found),
            Value::String(text) => check_length(schema, text, path, found),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {}
        }
        true
    }

    fn check_branches(
        &mut self,
        branches: &'s [Value],
        exactly_one: bool,
        value: &Value,
        path: &str,
        depth: usize,
        found: &mut Vec<ShapeError>,
    ) {
        let mut constants = Vec::new();
        let mut types = Vec::new();
        let mut of_right_type = Vec::new();
        let mut matches = 0;
        for branch in branches {
            let mut wrong = Vec::new();
            self.check(branch, value, path, depth + 1, &mut wrong);
            if wrong.is_empty() {
                matches += 1;
            }
            if let Some(branch) = self.resolve(branch) {
                constants.extend(branch.get("const"));
                constants.extend(branch.get("enum").and_then(Value::as_array).into_iter().flatten());
                types.extend(types_of(branch));
            }
            if !wrong.iter().any(|w| w.code == Code::WrongType && w.path == path) {
                of_right_type.push(wrong);
            }
        }
        if matches == 1 || (matches > 1 && !exactly_one) {
            return;
        }
        if matches > 1 {
            found.push(mismatch(path, Code::BadValue, "fits more than one of the accepted forms"));
        } else if of_right_type.is_empty() && !types.is_empty() {
            types.dedup();
            let message = format!("must be {}, not {}", list_types(&types), type_name(value));
            found.push(mismatch(path, Code::WrongType, message));
        } else if of_right_type.len() == 1 {
            found.extend(of_right_type.into_iter().flatten());
        } else if !constants.is_empty() {
            found.push(not_one_of(path, value, constants.into_iter(), &mut self.spelling));
        } else {
            found.push(mismatch(path, Code::BadValue, "fits none of the accepted forms"));
        }
    }

    fn check_object(
        &mut self,
        schema: &'s Map<String, Value>,
        members: &Map<String, Value>,
        path: &str,
        depth: usize,
        found: &mut Vec<ShapeError>,
    ) {
        let known = schema.get("properties").and_then(Value::as_object);
        let others = schema.get("additionalProperties");
        for (key, value) in members {
            if found.len() >= MISMATCHES {
                return;
            }
            let path = child(path, key);
            match (known.and_then(|k| k.get(key)), others) {
                (Some(of_member), _) => self.check(of_member, value, &path, depth + 1, found),
                (None, Some(Value::Bool(false))) => {
                    found.push(unknown_key(&path, key, known, &mut self.spelling));
                }
                (None, Some(of_other)) => self.check(of_other, value, &path, depth + 1, found),
                (None, None) => {}
            }
        }
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for key in required.filter_map(Value::as_str).filter(|key| !members.contains_key(*key)) {
            found.push(mismatch(&child(path, key), Code::MissingKey, "is missing"));
        }
    }
}

fn mismatch(path: &str, code: Code, message: impl Into<String>) -> ShapeError {
    ShapeError { path: path.to_owned(), code, message: message.into(), help: None }
}

fn unknown_key(
    path: &str,
    key: &str,
    known: Option<&Map<String, Value>>,
    spelling: &mut Spelling,
) -> ShapeError {
    let keys = || known.into_iter().flat_map(Map::keys).map(String::as_str);
    let help = match spelling.nearest(key, keys()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if keys().next().is_none() => "no keys are accepted here".to_owned(),
        None => format!("the keys here are {}", quoted(keys())),
    };
    let message = format!("there is no key `{}` here", shown(key));
    ShapeError { path: path.to_owned(), code: Code::UnknownKey, message, help: Some(help) }
}

fn not_one_of<'a>(
    path: &str,
    value: &Value,
    accepted: impl Iterator<Item = &'a Value>,
    spelling: &mut Spelling,
) -> ShapeError {
    let texts: Vec<String> = accepted
        .map(|v| match v {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
        .collect();
    let near = value.as_str().and_then(|word| spelling.nearest(word, texts.iter().map(String::as_str)));
    ShapeError {
        path: path.to_owned(),
        code: Code::BadValue,
        message: format!("must be one of {}", quoted(texts.iter().map(String::as_str))),
        help: near.map(|near| format!("did you mean `{near}`?")),
    }
}

fn check_range(
    schema: &Map<String, Value>,
    number: &serde_json::Number,
    path: &str,
    found: &mut Vec<ShapeError>,
) {
    let below = |bound: &Value| bound.as_number().is_some_and(|b| less(number, b));
    let above = |bound: &Value| bound.as_number().is_some_and(|b| less(b, number));
    if let Some(bound) = schema.get("minimum").filter(|b| below(b)) {
        found.push(mismatch(path, Code::BadValue, format!("must be at least {bound}")));
    }
    if let Some(bound) = schema.get("maximum").filter(|b| above(b)) {
        found.push(mismatch(path, Code::BadValue, format!("must be at most {bound}")));
    }
}

fn check_length(schema: &Map<String, Value>, text: &str, path: &str, found: &mut Vec<ShapeError>) {
    let bound = |keyword| schema.get(keyword).and_then(Value::as_u64);
    let length = || u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    if let Some(least) = bound("minLength").filter(|least| length() < *least) {
        let message =
            if least == 1 { "must not be empty".to_owned() } else { format!("needs {least} characters") };
        found.push(mismatch(path, Code::BadValue, message));
    }
    if let Some(most) = bound("maxLength").filter(|most| length() > *most) {
        found.push(mismatch(path, Code::BadValue, format!("is longer than {most} characters")));
    }
}

fn less(a: &serde_json::Number, b: &serde_json::Number) -> bool {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a < b,
        _ => a.as_f64() < b.as_f64(),
    }
}

fn types_of(schema: &Map<String, Value>) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        // Not a type of JSON: nothing that could be checked.
        _ => true,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(n) if n.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

fn list_types(types: &[&str]) -> String {
    let names: Vec<&str> = types
        .iter()
        .map(|t| match *t {
            "null" => "nothing",
            "boolean" => "true or false",
            "integer" => "a whole number",
            "number" => "a number",
            "string" => "a text",
            "array" => "a list",
            "object" => "a table",
            _ => "something else",
        })
        .collect();
    names.join(" or ")
}

fn quoted<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", ")
}
