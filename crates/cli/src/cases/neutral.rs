//! Neutral words as our own files: the policy of a row as a deployment, and configurations that are to be loaded.

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value, json};

use super::format::Policy;

/// A policy as a deployment file.
pub(super) fn deployment(policy: &Policy) -> String {
    let Policy { shell, limits, egress, budget, sandbox_secrets, .. } = policy;
    let names: Vec<&String> = sandbox_secrets.keys().collect();
    let some = |list: &[String]| if list.is_empty() { Value::Null } else { json!(list) };
    let words = [
        ("shell", "allow", json!(shell.allow)),
        ("shell", "deny", json!(shell.deny)),
        ("shell", "timeout_s", json!(shell.timeout_s)),
        ("shell", "output_max_bytes", json!(shell.output_max_bytes)),
        ("limits", "memory_mb", json!(limits.memory_mb)),
        ("limits", "pids", json!(limits.pids)),
        ("limits", "disk_mb", json!(limits.disk_mb)),
        ("limits", "tmp_mb", json!(limits.tmp_mb)),
        ("egress", "allow", some(&egress.allow)),
        ("budget", "max_repeats", json!(budget.max_repeats)),
        ("budget", "max_tool_calls", json!(budget.max_tool_calls)),
        ("budget", "max_steps", json!(budget.max_steps)),
        ("budget", "max_tokens", json!(budget.max_tokens)),
        ("budget", "max_wall_s", json!(budget.max_wall_s)),
        ("secrets", "pass", if names.is_empty() { Value::Null } else { json!(names) }),
    ];
    let said = words.into_iter().filter(|(.., value)| !value.is_null());
    heads(said.map(|(table, key, value)| ours(table, key, Loose::from(&value))).collect())
}

/// A neutral word as ours; one that has no counterpart stays as it is, so that our own loader judges it.
fn ours(table: &str, key: &str, value: Loose) -> (String, String, Loose) {
    let unit = |unit: &str| match &value {
        Loose::Number(n) => Loose::Text(format!("{n}{unit}")),
        other => other.clone(),
    };
    let (table, key, value) = match (table, key) {
        ("shell", "timeout_s") => ("call", "timeout", unit("s")),
        ("shell", "output_max_bytes") => ("call", "output", value),
        ("limits", "memory_mb") => ("limits", "memory", unit("MiB")),
        ("limits", "disk_mb") => ("limits", "disk", unit("MiB")),
        ("limits", "tmp_mb") => ("limits", "tmp", unit("MiB")),
        ("limits", "pids") => ("limits", "processes", value),
        ("budget", "max_repeats") => ("budget", "repeats", value),
        ("budget", "max_tool_calls") => ("budget", "tool_calls", value),
        ("budget", "max_steps") => ("budget", "steps", value),
        ("budget", "max_tokens") => ("budget", "tokens", value),
        ("budget", "max_wall_s") => ("budget", "wall", unit("s")),
        ("egress", key) => ("network", key, value),
        (table, key) => (table, key, value),
    };
    (table.to_owned(), key.to_owned(), value)
}

/// Keys under the head of their table, each head once.
fn heads(mut lines: Vec<(String, String, Loose)>) -> String {
    lines.sort_by(|a, b| a.0.cmp(&b.0));
    let (mut out, mut last) = (String::new(), None);
    for (table, key, value) in lines {
        if last.as_ref() != Some(&table) {
            out.push_str(&format!("[{}]\n", text(&table)));
        }
        out.push_str(&format!("{} = {}\n", text(&key), toml(&value)));
        last = Some(table);
    }
    out
}

/// A configuration as it was given: as our deployment, and as our Guild where it speaks of roles.
pub(super) struct Written {
    pub(super) deployment: String,
    /// `guild.toml` and how many prompts it names.
    pub(super) guild: Option<(String, usize)>,
}

/// Writes a configuration in neutral words, faults and all. A text that is no object of JSON is written as it is.
pub(super) fn written(config: &str) -> Written {
    let Ok(Loose::Object(tables)) = serde_json::from_str::<Loose>(config) else {
        return Written { deployment: config.to_owned(), guild: None };
    };
    let (mut top, mut below, mut guild) = (String::new(), String::new(), None);
    for (table, keys) in tables {
        match keys {
            Loose::List(roles) if table == "roles" => guild = Some((roles_of(&roles), roles.len())),
            Loose::Object(keys) if keys.is_empty() => {
                let table = if table == "egress" { "network" } else { &table };
                below.push_str(&format!("[{}]\n", text(table)));
            }
            // Said by the lists themselves.
            Loose::Object(keys) => below.push_str(&heads(
                keys.into_iter()
                    .filter(|(key, value)| !(table == "shell" && key == "mode" && is_mode(value)))
                    .map(|(key, value)| ours(&table, &key, value))
                    .collect(),
            )),
            other => top.push_str(&format!("{} = {}\n", text(&table), toml(&other))),
        }
    }
    Written { deployment: top + &below, guild }
}

/// One side of a proposal.
pub(super) struct Side {
    pub(super) deployment: String,
    pub(super) guild: String,
    /// The text of each prompt that the Guild names, in order.
    pub(super) prompts: Vec<String>,
}

/// Tables whose bounds and destinations a Guild may lower: there a proposal says them, since all it may change is a Guild.
const LOWERED: [(&str, &[&str]); 3] = [
    ("shell", &["timeout_s", "output_max_bytes"]),
    ("limits", &["memory_mb", "pids", "disk_mb", "tmp_mb"]),
    ("egress", &["allow"]),
];

/// Writes one side of a proposal: as a Guild whatever a Guild may say, and the rest as the deployment it stands under.
pub(super) fn side(config: &str) -> Side {
    let Ok(Loose::Object(tables)) = serde_json::from_str::<Loose>(config) else {
        return Side { deployment: config.to_owned(), guild: guild(&["finish"]), prompts: prompts(&[]) };
    };
    let (mut own, mut operator, mut roles) = (Vec::new(), Vec::new(), None);
    for (table, keys) in tables {
        let lowered = LOWERED.iter().find(|(name, _)| *name == table).map_or(&[][..], |(_, keys)| keys);
        match keys {
            Loose::List(list) if table == "roles" => roles = Some(list),
            Loose::Object(keys) => {
                for (key, value) in keys {
                    if !lowered.contains(&key.as_str()) {
                        operator.push((table.clone(), Loose::Object(vec![(key, value)])));
                        continue;
                    }
                    let (name, key, value) = ours(&table, &key, value);
                    let name = if name == "call" { "limits".to_owned() } else { name };
                    own.push((name, key, value));
                }
            }
            other => operator.push((table, other)),
        }
    }
    let operator = operator.into_iter().map(|(table, keys)| written_as(&table, keys));
    let (guild, prompts) = match roles {
        Some(roles) => (roles_of(&roles), prompts(&roles)),
        None => (guild(&["finish"]), prompts(&[])),
    };
    Side { deployment: joined(operator), guild: guild + &heads(own), prompts }
}

/// A table of the deployment, key by key; lists that say their mode themselves have none.
fn written_as(table: &str, keys: Loose) -> Vec<(String, String, Loose)> {
    match keys {
        Loose::Object(keys) => keys
            .into_iter()
            .filter(|(key, value)| !(table == "shell" && key == "mode" && is_mode(value)))
            .map(|(key, value)| ours(table, &key, value))
            .collect(),
        other => vec![(String::new(), table.to_owned(), other)],
    }
}

fn joined(tables: impl Iterator<Item = Vec<(String, String, Loose)>>) -> String {
    let (top, below): (Vec<_>, Vec<_>) = tables.flatten().partition(|(table, ..)| table.is_empty());
    let top: String =
        top.iter().map(|(_, key, value)| format!("{} = {}\n", text(key), toml(value))).collect();
    top + &heads(below)
}

/// The prompts of roles: as they are given, or one that says nothing in particular.
fn prompts(roles: &[Loose]) -> Vec<String> {
    let of = |role: &Loose| match role {
        Loose::Object(keys) => keys.iter().find_map(|(key, value)| match value {
            Loose::Text(prompt) if key == "prompt" => Some(format!("{prompt}\n")),
            _ => None,
        }),
        _ => None,
    };
    let plain = || "You do what you are asked.\n".to_owned();
    if roles.is_empty() {
        return vec![plain()];
    }
    roles.iter().map(|role| of(role).unwrap_or_else(plain)).collect()
}

fn is_mode(value: &Loose) -> bool {
    matches!(value, Loose::Text(mode) if mode == "allow-list" || mode == "deny-list")
}

fn roles_of(roles: &[Loose]) -> String {
    let mut out = String::new();
    let mut entry = None;
    for (n, role) in roles.iter().enumerate() {
        let Loose::Object(keys) = role else {
            out.push_str(&format!("[roles.{n}]\nprompt = {}\n", toml(role)));
            continue;
        };
        let name = keys.iter().find(|(key, _)| key == "name").map(|(_, value)| match value {
            Loose::Text(name) => name.clone(),
            other => toml(other),
        });
        let name = name.unwrap_or_else(|| format!("role-{n}"));
        out.push_str(&format!("[roles.{}]\nprompt = \"prompts/{n}.md\"\n", text(&name)));
        entry.get_or_insert(name);
        for (key, value) in keys.iter().filter(|(key, _)| key != "name" && key != "prompt") {
            out.push_str(&format!("{} = {}\n", text(key), toml(value)));
        }
    }
    let entry = entry.unwrap_or_else(|| "worker".to_owned());
    format!("schema = 1\nname = \"cases\"\nentry = {}\n\n{out}", text(&entry))
}

/// A Guild of one role with these tools.
pub(super) fn guild(tools: &[&str]) -> String {
    let tools: Vec<String> = tools.iter().map(|tool| text(tool)).collect();
    let role = format!("[roles.worker]\nprompt = \"prompts/0.md\"\ntools = [{}]\n", tools.join(", "));
    format!("schema = 1\nname = \"cases\"\nentry = \"worker\"\n\n{role}")
}

/// JSON whose keys may come twice.
#[derive(Clone, Debug)]
enum Loose {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Loose>),
    Object(Vec<(String, Loose)>),
}

impl From<&Value> for Loose {
    fn from(value: &Value) -> Loose {
        match value {
            Value::Null => Loose::Null,
            Value::Bool(b) => Loose::Bool(*b),
            Value::Number(n) => Loose::Number(n.clone()),
            Value::String(text) => Loose::Text(text.clone()),
            Value::Array(items) => Loose::List(items.iter().map(Loose::from).collect()),
            Value::Object(map) => {
                Loose::Object(map.iter().map(|(k, v)| (k.clone(), Loose::from(v))).collect())
            }
        }
    }
}

fn toml(value: &Loose) -> String {
    match value {
        // TOML has none: its reader says so.
        Loose::Null => "null".to_owned(),
        Loose::Bool(b) => b.to_string(),
        Loose::Number(n) => n.to_string(),
        Loose::Text(word) => text(word),
        Loose::List(items) => format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Loose::Object(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(k, v)| format!("{} = {}", text(k), toml(v))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
    }
}

/// A text of TOML on one line; a key as well.
fn text(word: &str) -> String {
    let mut out = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Loose, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Loose;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Loose, E> {
        Ok(Loose::Null)
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<Loose, E> {
        Ok(Loose::Bool(v))
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Loose, E> {
        Ok(Loose::Number(v.into()))
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<Loose, E> {
        Ok(Loose::Number(v.into()))
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Loose, E> {
        Ok(Number::from_f64(v).map_or(Loose::Null, Loose::Number))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Loose, E> {
        Ok(Loose::Text(v.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Loose, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Loose::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Loose, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Loose::Object(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_in_neutral_words_is_a_deployment_of_ours() {
        let policy = json!({
            "shell": {"mode": "deny-list", "deny": ["rm"], "timeout_s": 5, "output_max_bytes": 65536},
            "limits": {"memory_mb": 256, "pids": 64, "disk_mb": 64, "tmp_mb": 32},
            "budget": {"max_repeats": 3, "max_tool_calls": 50},
            "sandbox_secrets": {"TOKEN": "x"},
        });
        let text = deployment(&serde_json::from_value(policy).unwrap());
        let loaded =
            policy::Deployment::parse("oubliette.toml", &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!((loaded.shell.deny.len(), loaded.budget.repeats), (1, 3));
        assert_eq!(deployment(&Policy::default()), "");
    }

    #[test]
    fn a_side_of_a_proposal_is_a_guild_and_what_only_an_operator_says() {
        let side = side(
            r#"{"roles":[{"name":"p","tools":["read_file"],"prompt":"a"}],"shell":{"mode":"deny-list",
                "deny":["rm"],"timeout_s":0},"egress":{"allow":["*.example.com:443"]}}"#,
        );
        assert_eq!(side.deployment, "[\"shell\"]\n\"deny\" = [\"rm\"]\n");
        assert!(side.guild.contains("[\"limits\"]\n\"timeout\" = \"0s\"\n"), "{}", side.guild);
        assert!(side.guild.contains("[\"network\"]\n\"allow\" = [\"*.example.com:443\"]"), "{}", side.guild);
        assert_eq!(side.prompts, ["a\n"]);
        assert!(super::side("{\"shell\":{}}").deployment.is_empty());
    }

    #[test]
    fn a_configuration_keeps_its_faults() {
        let twice = written(r#"{"shell":{"timeout_s":30},"shell":{"timeout_s":0}}"#).deployment;
        assert_eq!(twice, "[\"call\"]\n\"timeout\" = \"30s\"\n[\"call\"]\n\"timeout\" = \"0s\"\n");
        assert_eq!(written(r#"{"egres":{"allow":[]}}"#).deployment, "[\"egres\"]\n\"allow\" = []\n");
        assert_eq!(
            written(r#"{"limits":{"memory_mb":"lots"}}"#).deployment,
            "[\"limits\"]\n\"memory\" = \"lots\"\n"
        );
        assert_eq!(written("{").deployment, "{");
        let evil = written("{\"a\":\"x\\u007f\\n\\\"]\"}").deployment;
        assert_eq!(evil, "\"a\" = \"x\\u007f\\u000a\\\"]\"\n");
        let roles = written(r#"{"roles":[{"name":"p","tools":["ReadFile"]}]}"#).guild.unwrap();
        assert!(
            roles.0.contains("[roles.\"p\"]") && roles.0.contains("\"tools\" = [\"ReadFile\"]"),
            "{}",
            roles.0
        );
    }
}
