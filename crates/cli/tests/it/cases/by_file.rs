//! Rows that are a configuration: written as ours, and refused when it is loaded.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::judge::Seen;
use super::world::{World, table_of};
use crate::place::Ran;

pub(super) fn loaded(world: &World) -> Seen {
    let input = &world.row["input"];
    let text = input["config_raw"].as_str().map_or_else(|| input["config"].to_string(), str::to_owned);
    let Pairs(tables) = serde_json::from_str(&text).unwrap();
    let place = &world.place;
    let ran = match tables.as_slice() {
        [(table, roles)] if table == "roles" => {
            place.write("oubliette.toml", "");
            let tools: Vec<&str> =
                roles[0]["tools"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
            place.guild(&tools);
            place.ran(["guild", "check", "guild"])
        }
        tables => {
            let text: String = tables.iter().map(|(table, keys)| written(table, keys)).collect();
            place.write("oubliette.toml", text);
            place.exec(&["touch", "pwned"])
        }
    };
    // Refused at its place in the file, before anything began.
    assert!(place.ids().is_empty(), "{}: a run began: {ran:?}", world.id());
    let outcome = if ran.code == Some(2) && names_a_place(&ran) { "error" } else { "loaded" };
    Seen { outcome: Some(outcome), texts: vec![ran.out], err: ran.err, ..Seen::default() }
}

/// A table without any key still stands in the file.
fn written(table: &str, keys: &Value) -> String {
    let text = table_of(table, keys);
    if text.is_empty() { format!("[{table}]\n") } else { text }
}

fn names_a_place(ran: &Ran) -> bool {
    ran.err.contains("oubliette.toml:") || ran.err.contains("guild.toml:")
}

/// An object whose keys may come twice.
struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Pairs;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(All)
    }
}
