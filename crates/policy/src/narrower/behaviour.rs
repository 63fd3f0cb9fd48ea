//! What moves no part of the vector, and may still change what a model does.

use std::collections::BTreeMap;

use serde_json::Value;

use super::given::GuildFiles;
use crate::{Guild, RoleName, Tool};

/// Texts, names and paths.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Behaviour {
    pub(super) name: String,
    pub(super) entry: String,
    pub(super) roles: BTreeMap<RoleName, RoleText>,
    pub(super) tools: BTreeMap<String, ToolText>,
    /// Keys of the deployment that move no bound, with their values.
    pub(super) operator: BTreeMap<&'static str, String>,
}

/// What a role is told, and its lists as they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RoleText {
    pub(super) path: String,
    pub(super) digest: String,
    pub(super) hidden: bool,
    pub(super) temperature: f64,
    pub(super) max_tokens: u32,
    pub(super) tools: Vec<String>,
    pub(super) agents: Vec<String>,
}

/// What a manifest says of its tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ToolText {
    pub(super) manifest: String,
    pub(super) path: String,
    pub(super) module: String,
    pub(super) hidden: bool,
    /// Its own description and those of its arguments, by name; the tool's own has none.
    pub(super) texts: BTreeMap<String, String>,
}

impl Behaviour {
    pub(super) fn of(
        guild: &Guild,
        files: &GuildFiles,
        operator: BTreeMap<&'static str, String>,
    ) -> Behaviour {
        let roles = guild.roles.iter().map(|(name, role)| {
            let prompt = files.prompts.get(name).cloned().unwrap_or_default();
            let own = role.own_tools.iter().cloned();
            let text = RoleText {
                path: role.prompt.to_string(),
                digest: prompt.digest,
                hidden: prompt.hidden,
                temperature: role.generation.temperature,
                max_tokens: role.generation.max_tokens,
                tools: role.tools.iter().map(|tool| tool.as_str().to_owned()).chain(own).collect(),
                agents: role.agents.iter().map(ToString::to_string).collect(),
            };
            (name.clone(), text)
        });
        let tools = guild.tools.iter().map(|(name, written)| {
            let given = files.tools.get(name).cloned().unwrap_or_default();
            let text = ToolText {
                manifest: written.manifest.to_string(),
                path: written.module.to_string(),
                module: given.module,
                hidden: given.hidden,
                texts: texts(&given.description, &given.schema),
            };
            (name.clone(), text)
        });
        Behaviour {
            name: guild.name.clone(),
            entry: guild.entry.to_string(),
            roles: roles.collect(),
            tools: tools.collect(),
            operator,
        }
    }
}

impl RoleText {
    /// Whether the role only talks.
    pub(super) fn is_plain(&self) -> bool {
        self.tools.iter().all(|tool| tool == Tool::Finish.as_str())
    }
}

fn texts(description: &str, schema: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::from([(String::new(), description.to_owned())]);
    for (name, spec) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        for (place, spec) in [(name.clone(), spec), (format!("{name}[]"), &spec["items"])] {
            if let Some(text) = spec.get("description").and_then(Value::as_str) {
                found.insert(place, text.to_owned());
            }
        }
    }
    found
}
