//! JSON that a model wrote, read without kindness: one value, no duplicate keys, bounded.
//!
//! `{"command":"ls","command":"rm -r ."}` means one thing to one parser and another to the next; here it means
//! nothing at all.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Bytes of arguments that are looked at.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// Why a text is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonFault {
    /// Longer than 1 MiB.
    #[error("the arguments are longer than 1 MiB")]
    TooLong,
    /// Not one JSON value.
    #[error("not valid JSON: {what}")]
    Syntax {
        /// The parser's word.
        what: String,
    },
    /// A key twice in one object.
    #[error("not valid: {what}")]
    Duplicate {
        /// Which key.
        what: String,
    },
}

/// Reads exactly one JSON value of at most 1 MiB.
///
/// # Errors
/// Why it is none, and where.
pub fn parse(text: &str) -> Result<Value, JsonFault> {
    if text.len() > MAX_BYTES {
        return Err(JsonFault::TooLong);
    }
    parse_unbounded(text)
}

/// As [`parse`], for texts whose length is bounded elsewhere.
pub(crate) fn parse_unbounded(text: &str) -> Result<Value, JsonFault> {
    match serde_json::from_str::<Strict>(text) {
        Ok(Strict(value)) => Ok(value),
        Err(e) if e.is_data() => Err(JsonFault::Duplicate { what: e.to_string() }),
        Err(e) => Err(JsonFault::Syntax { what: e.to_string() }),
    }
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Strict;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<Strict, E> {
        Ok(Strict(Value::Bool(v)))
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Strict, E> {
        Ok(Strict(Value::Number(v.into())))
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<Strict, E> {
        Ok(Strict(Value::Number(v.into())))
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Strict, E> {
        Ok(Strict(Number::from_f64(v).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Strict, E> {
        Ok(Strict(Value::String(v.to_owned())))
    }

    fn visit_string<E: Error>(self, v: String) -> Result<Strict, E> {
        Ok(Strict(Value::String(v)))
    }

    fn visit_unit<E: Error>(self) -> Result<Strict, E> {
        Ok(Strict(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Strict, A::Error> {
        let mut items = Vec::new();
        while let Some(Strict(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Strict(Value::Array(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strict, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if object.contains_key(&key) {
                let shown: String = key.chars().take(40).collect();
                return Err(A::Error::custom(format!("the key {shown:?} appears twice")));
            }
            let Strict(value) = map.next_value()?;
            object.insert(key, value);
        }
        Ok(Strict(Value::Object(object)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_key_is_refused_at_any_depth() {
        assert!(matches!(parse(r#"{"a":1,"a":2}"#), Err(JsonFault::Duplicate { .. })));
        assert!(matches!(parse(r#"{"x":[{"a":1,"\u0061":2}]}"#), Err(JsonFault::Duplicate { .. })));
    }

    #[test]
    fn trailing_text_is_refused() {
        assert!(matches!(parse("{} {}"), Err(JsonFault::Syntax { .. })));
    }

    #[test]
    fn values_come_through_unchanged() {
        let text = r#"{"a":[1,-2,3.5,"x",null,true],"b":{}}"#;
        assert_eq!(parse(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn deep_nesting_is_an_error_not_a_crash() {
        assert!(parse(&"[".repeat(100_000)).is_err());
    }
}
