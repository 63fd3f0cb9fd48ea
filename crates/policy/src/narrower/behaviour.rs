//! What moves no part of the vector, and may still change what a model does.

use std::collections::BTreeMap;

use serde_json::Value;

use super::given::{GuildFiles, PromptText, ToolFiles};
use super::parameters::Parameters;
use crate::{Generation, Guild, OwnTool, Role, RoleName, Tool};

/// Texts, names and paths.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Behaviour {
    pub(super) name: String,
    pub(super) entry: String,
    pub(super) roles: BTreeMap<RoleName, RoleText>,
    pub(super) tools: BTreeMap<String, ToolText>,
    /// Keys of the deployment that move no bound, with their values.
    pub(super) operator: BTreeMap<&'static str, String>,
    /// What lies in the folder and nothing names, by path.
    pub(super) others: BTreeMap<String, String>,
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
    /// By the argument that they are of, or none, and the keyword: descriptions, and values that are text.
    pub(super) texts: BTreeMap<(Option<String>, &'static str), String>,
    /// What it takes, whether or not a role may call it.
    pub(super) arguments: Parameters,
}

impl Behaviour {
    pub(super) fn of(
        guild: &Guild,
        files: &GuildFiles,
        operator: BTreeMap<&'static str, String>,
    ) -> Behaviour {
        let Guild { name, entry, roles, tools, timeout: _, limits: _, network: _ } = guild;
        let GuildFiles { prompts, tools: given, others } = files;
        let roles = roles.iter().map(|(name, role)| {
            let PromptText { text: _, digest, hidden } = prompts.get(name).cloned().unwrap_or_default();
            let Role { prompt, tools, own_tools, agents, tool_calls: _, tokens: _, steps: _, generation } =
                role;
            let Generation { temperature, max_tokens } = *generation;
            let own = own_tools.iter().cloned();
            let text = RoleText {
                path: prompt.to_string(),
                digest,
                hidden,
                temperature,
                max_tokens,
                tools: tools.iter().map(|tool| tool.as_str().to_owned()).chain(own).collect(),
                agents: agents.iter().map(ToString::to_string).collect(),
            };
            (name.clone(), text)
        });
        let tools = tools.iter().map(|(name, OwnTool { manifest, module: path })| {
            let ToolFiles { description, schema, module, hidden } =
                given.get(name).cloned().unwrap_or_default();
            let text = ToolText {
                manifest: manifest.to_string(),
                path: path.to_string(),
                module,
                hidden,
                texts: texts(&description, &schema),
                arguments: Parameters::read(&schema),
            };
            (name.clone(), text)
        });
        Behaviour {
            name: name.clone(),
            entry: entry.to_string(),
            roles: roles.collect(),
            tools: tools.collect(),
            operator,
            others: others.clone(),
        }
    }
}

impl RoleText {
    /// Whether the role only talks.
    pub(super) fn is_plain(&self) -> bool {
        self.tools.iter().all(|tool| tool == Tool::Finish.as_str())
    }
}

fn texts(description: &str, schema: &Value) -> BTreeMap<(Option<String>, &'static str), String> {
    let mut found = BTreeMap::from([((None, "description"), description.to_owned())]);
    for (name, spec) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        for (place, spec) in [(name.clone(), spec), (format!("{name}[]"), &spec["items"])] {
            if let Some(text) = spec.get("description").and_then(Value::as_str) {
                found.insert((Some(place.clone()), "description"), text.to_owned());
            }
            // A model reads them as it reads a description. Each on a line of its own, in quotes.
            let values = spec.get("enum").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            if values.iter().any(Value::is_string) {
                let lines: Vec<String> = values.iter().map(Value::to_string).collect();
                found.insert((Some(place), "enum"), lines.join("\n"));
            }
        }
    }
    found
}
