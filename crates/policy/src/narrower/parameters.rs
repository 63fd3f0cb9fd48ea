//! The arguments of a tool, as an order: what accepts less is narrower.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Number, Value};

use super::order::Order;
use crate::shown;

/// What a manifest accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) named: BTreeMap<String, Parameter>,
    /// Whether arguments that have no name here are accepted.
    pub(super) open: bool,
}

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) required: bool,
    pub(super) accepts: Accepts,
}

/// What a value may be; what is not said is not bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Accepts {
    kind: Option<String>,
    listed: Option<BTreeSet<String>>,
    least: Option<Exact>,
    most: Option<Exact>,
    shortest: u64,
    longest: Option<u64>,
    items: Option<Box<Accepts>>,
    /// Keywords that this order does not know: any difference in them is wider.
    others: BTreeSet<String>,
}

/// A number of JSON, compared exactly: its whole part and what is left, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Exact {
    whole: i128,
    rest: f64,
}

// A finite number has no NaN in its rest.
impl Eq for Exact {}

impl Parameters {
    /// Reads the schema of a tool's arguments. What is missing is the widest it can mean, but for
    /// `additionalProperties`: there, as when a manifest is loaded, nothing is closed.
    pub(super) fn read(schema: &Value) -> Parameters {
        let required: BTreeSet<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let named = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let named = named.map(|(name, spec)| {
            let parameter =
                Parameter { required: required.contains(name.as_str()), accepts: Accepts::read(spec, 0) };
            (name.clone(), parameter)
        });
        let open = !matches!(schema.get("additionalProperties"), None | Some(Value::Bool(false)));
        Parameters { named: named.collect(), open }
    }
}

impl Accepts {
    fn read(spec: &Value, depth: usize) -> Accepts {
        let mut accepts = Accepts::default();
        let empty = Map::new();
        for (keyword, value) in spec.as_object().unwrap_or(&empty) {
            let known = match (keyword.as_str(), value) {
                ("description", _) => true,
                ("type", Value::String(kind)) => {
                    accepts.kind = Some(kind.clone());
                    true
                }
                ("enum", Value::Array(values)) => {
                    accepts.listed = Some(values.iter().map(Value::to_string).collect());
                    true
                }
                ("minimum", Value::Number(n)) => set(&mut accepts.least, Exact::of(n)),
                ("maximum", Value::Number(n)) => set(&mut accepts.most, Exact::of(n)),
                ("minLength", Value::Number(n)) if n.is_u64() => {
                    accepts.shortest = n.as_u64().unwrap_or(0);
                    true
                }
                ("maxLength", Value::Number(n)) => set(&mut accepts.longest, n.as_u64()),
                ("items", items) if depth < 4 => {
                    accepts.items = Some(Box::new(Accepts::read(items, depth + 1)));
                    true
                }
                _ => false,
            };
            if !known {
                accepts.others.insert(format!("{keyword}={value}"));
            }
        }
        accepts
    }
}

/// Values of a list that came, or went, and are told one by one.
const MOST_VALUES: usize = 10;

impl Accepts {
    /// Which values of a list came and went since `old`, as a message may say it; none where none did.
    pub(super) fn listed_anew(&self, old: &Accepts) -> Option<String> {
        let (mut said, none) = (Vec::new(), BTreeSet::new());
        let (now, was) = (self.listed.as_ref().unwrap_or(&none), old.listed.as_ref().unwrap_or(&none));
        for (mark, of, other) in [('+', now, was), ('-', was, now)] {
            said.extend(of.difference(other).take(MOST_VALUES).map(|v| format!("{mark}{}", shown(v))));
            let more = of.difference(other).count().saturating_sub(MOST_VALUES);
            if more > 0 {
                said.push(format!("{mark}{more} more"));
            }
        }
        let of_items = match (&self.items, &old.items) {
            (Some(now), Some(was)) => now.listed_anew(was).map(|said| format!("items ({said})")),
            _ => None,
        };
        let here = (!said.is_empty()).then(|| format!("enum {}", said.join(", ")));
        let said: Vec<String> = here.into_iter().chain(of_items).collect();
        (!said.is_empty()).then(|| said.join(", "))
    }
}

impl fmt::Display for Parameters {
    /// All of them, one behind the other.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parameters { named, open } = self;
        named.iter().try_for_each(|(name, one)| writeln!(f, "{name}: {one}"))?;
        f.write_str(if *open { "any argument" } else { "" })
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parameter { required, accepts } = self;
        write!(f, "{}, {accepts}", if *required { "required" } else { "optional" })
    }
}

impl fmt::Display for Accepts {
    /// All of it, as a manifest says it; what is accepted is everything where nothing is said.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Accepts { kind, listed, least, most, shortest, longest, items, others } = self;
        let mut said: Vec<String> = Vec::new();
        said.extend(kind.as_ref().map(|kind| format!("type {kind}")));
        said.extend(listed.as_ref().map(|listed| {
            format!("enum [{}]", listed.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
        }));
        said.extend(least.map(|least| format!("minimum {least}")));
        said.extend(most.map(|most| format!("maximum {most}")));
        said.extend((*shortest > 0).then(|| format!("minLength {shortest}")));
        said.extend(longest.map(|longest| format!("maxLength {longest}")));
        said.extend(items.as_ref().map(|items| format!("items ({items})")));
        said.extend(others.iter().cloned());
        f.write_str(if said.is_empty() { "anything" } else { "" })?;
        f.write_str(&said.join(", "))
    }
}

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rest == 0.0 {
            return write!(f, "{}", self.whole);
        }
        write!(f, "{}+{}", self.whole, self.rest)
    }
}

impl Order for Parameters {
    fn within(&self, other: &Self) -> bool {
        self.named.within(&other.named) && self.open.within(&other.open)
    }

    fn meet(&self, other: &Self) -> Self {
        let mut named = BTreeMap::new();
        for (name, ours) in &self.named {
            let Some(theirs) = other.named.get(name) else { continue };
            let met = ours.meet(theirs);
            // Nothing is a value of two kinds at once: then there is no such argument.
            if met.within(ours) && met.within(theirs) {
                named.insert(name.clone(), met);
            }
        }
        Parameters { named, open: self.open.meet(&other.open) }
    }
}

impl Order for Parameter {
    fn within(&self, other: &Self) -> bool {
        (self.required || !other.required) && self.accepts.within(&other.accepts)
    }

    fn meet(&self, other: &Self) -> Self {
        Parameter { required: self.required || other.required, accepts: self.accepts.meet(&other.accepts) }
    }
}

impl Order for Accepts {
    fn within(&self, other: &Self) -> bool {
        let Accepts { kind, listed, least, most, shortest, longest, items, others } = self;
        kind_within(kind.as_deref(), other.kind.as_deref())
            && listed_within(listed.as_ref(), other.listed.as_ref())
            && at_least(*least, other.least)
            && at_most(*most, other.most)
            && *shortest >= other.shortest
            && at_most(*longest, other.longest)
            && items_within(items.as_deref(), other.items.as_deref())
            && *others == other.others
    }

    fn meet(&self, other: &Self) -> Self {
        let kind =
            if kind_within(self.kind.as_deref(), other.kind.as_deref()) { &self.kind } else { &other.kind };
        let listed = match (&self.listed, &other.listed) {
            (Some(ours), Some(theirs)) => Some(ours.meet(theirs)),
            (one, None) | (None, one) => one.clone(),
        };
        let items = match (&self.items, &other.items) {
            (Some(ours), Some(theirs)) => Some(Box::new(ours.meet(theirs))),
            (one, None) | (None, one) => one.clone(),
        };
        Accepts {
            kind: kind.clone(),
            listed,
            least: either(self.least, other.least, |a, b| if a < b { b } else { a }),
            most: either(self.most, other.most, |a, b| if b < a { b } else { a }),
            shortest: self.shortest.max(other.shortest),
            longest: either(self.longest, other.longest, u64::min),
            items,
            others: self.others.clone(),
        }
    }
}

fn set<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    let known = value.is_some();
    *place = value.or(place.take());
    known
}

fn kind_within(ours: Option<&str>, theirs: Option<&str>) -> bool {
    match (ours, theirs) {
        (_, None) => true,
        (Some("integer"), Some("number")) => true,
        (ours, theirs) => ours == theirs,
    }
}

fn listed_within(ours: Option<&BTreeSet<String>>, theirs: Option<&BTreeSet<String>>) -> bool {
    match (ours, theirs) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(ours), Some(theirs)) => ours.is_subset(theirs),
    }
}

fn items_within(ours: Option<&Accepts>, theirs: Option<&Accepts>) -> bool {
    match (ours, theirs) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(ours), Some(theirs)) => ours.within(theirs),
    }
}

fn at_most<T: PartialOrd>(ours: Option<T>, theirs: Option<T>) -> bool {
    match (ours, theirs) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(ours), Some(theirs)) => ours <= theirs,
    }
}

fn at_least<T: PartialOrd>(ours: Option<T>, theirs: Option<T>) -> bool {
    match (ours, theirs) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(ours), Some(theirs)) => ours >= theirs,
    }
}

fn either<T: Copy>(ours: Option<T>, theirs: Option<T>, pick: impl Fn(T, T) -> T) -> Option<T> {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => Some(pick(ours, theirs)),
        (one, None) | (None, one) => one,
    }
}

impl Exact {
    fn of(number: &Number) -> Option<Exact> {
        if let Some(whole) = number.as_i128() {
            return Some(Exact { whole, rest: 0.0 });
        }
        let value = number.as_f64()?;
        let floor = value.floor();
        // Beyond this no double has a fraction, and what a bound is there is no matter of one.
        if floor.abs() < 1e30 {
            let text = format!("{floor:.0}");
            return Some(Exact { whole: text.parse().ok()?, rest: value - floor });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value: Value) -> Parameters {
        Parameters::read(&json!({"type": "object", "properties": {"a": value}}))
    }

    #[test]
    fn each_relaxed_rule_is_wider_and_its_reverse_is_not() {
        for (narrow, wide) in [
            (json!({"type": "integer"}), json!({"type": "number"})),
            (json!({"type": "string", "enum": ["x"]}), json!({"type": "string", "enum": ["x", "y"]})),
            (json!({"type": "string", "enum": ["x"]}), json!({"type": "string"})),
            (json!({"type": "integer", "minimum": 2}), json!({"type": "integer", "minimum": 1})),
            (json!({"type": "integer", "maximum": 2}), json!({"type": "integer", "maximum": 2.5})),
            (json!({"type": "integer", "maximum": 2}), json!({"type": "integer"})),
            (json!({"type": "string", "minLength": 2}), json!({"type": "string"})),
            (json!({"type": "string", "maxLength": 9}), json!({"type": "string", "maxLength": 10})),
            (
                json!({"type": "array", "items": {"type": "integer"}}),
                json!({"type": "array", "items": {"type": "number"}}),
            ),
            (
                json!({"type": "integer", "maximum": 9_007_199_254_740_992_u64}),
                json!({"type": "integer", "maximum": 9_007_199_254_740_993_u64}),
            ),
        ] {
            let (narrow, wide) = (spec(narrow), spec(wide));
            assert!(narrow.within(&wide) && !wide.within(&narrow), "{narrow:?} {wide:?}");
            assert_eq!(narrow.meet(&wide), narrow);
        }
    }

    #[test]
    fn what_is_accepted_is_told_as_it_is_written() {
        for (value, told) in [
            (
                json!({"type": "integer", "minimum": 1, "maximum": 2.5}),
                "type integer, minimum 1, maximum 2+0.5",
            ),
            (
                json!({"type": "string", "enum": ["x", "y"], "minLength": 1, "maxLength": 4}),
                "type string, enum [\"x\", \"y\"], minLength 1, maxLength 4",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "pattern": "x"}),
                "type array, items (type string), pattern=\"x\"",
            ),
            (json!({}), "anything"),
        ] {
            assert_eq!(Accepts::read(&value, 0).to_string(), told);
        }
    }

    #[test]
    fn a_rule_of_unknown_order_may_not_differ() {
        let (with, without) =
            (spec(json!({"type": "string", "pattern": "x"})), spec(json!({"type": "string"})));
        assert!(!with.within(&without) && !without.within(&with) && with.within(&with));
    }

    #[test]
    fn an_optional_argument_that_was_required_is_wider() {
        let schema = |required: Value| {
            Parameters::read(&json!({"properties": {"a": {"type": "string"}}, "required": required}))
        };
        assert!(schema(json!(["a"])).within(&schema(json!([]))));
        assert!(!schema(json!([])).within(&schema(json!(["a"]))));
    }
}
