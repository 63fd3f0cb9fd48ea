//! A role about to begin: what it is told and what it may do.

use policy::{Budget, Generation, Grant, RoleName, Tool};
use runs::Channel;

use crate::tools::description;
use crate::tools::own::Own;
use crate::{LoadedGuild, ModelProbe};

/// Everything a turn needs to know of its role.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) role: RoleName,
    pub(crate) depth: u32,
    pub(crate) task: String,
    pub(crate) system: String,
    pub(crate) tools: Vec<Tool>,
    pub(crate) own: Vec<Own>,
    pub(crate) agents: Vec<RoleName>,
    pub(crate) budget: Budget,
    pub(crate) generation: Generation,
    pub(crate) channel: Channel,
    pub(crate) model: String,
    pub(crate) window: Option<u64>,
}

impl Setup {
    /// None when the Guild has no such role.
    pub(crate) fn new(
        grant: &Grant,
        guild: &LoadedGuild,
        probe: &ModelProbe,
        model: &str,
        role: &RoleName,
        depth: u32,
        task: String,
    ) -> Option<Setup> {
        let own = grant.roles.get(role)?;
        let prompt = guild.prompts.get(role)?;
        // Without a tool there is no action to constrain an answer to.
        let brought: Vec<Own> = own
            .own_tools
            .iter()
            .filter_map(|name| {
                let tool = guild.tools.get(name)?;
                let (description, schema) = (tool.description.clone(), tool.schema.clone());
                Some(Own { name: name.clone(), description, schema })
            })
            .collect();
        let channel = if own.tools.is_empty() && brought.is_empty() { Channel::Text } else { probe.channel };
        Some(Setup {
            role: role.clone(),
            depth,
            task,
            system: system(prompt, (&own.tools, &brought), &own.agents, channel),
            tools: own.tools.clone(),
            own: brought,
            agents: own.agents.clone(),
            budget: own.budget.clone(),
            generation: own.generation,
            channel,
            model: model.to_owned(),
            window: probe.n_ctx,
        })
    }
}

/// The role's prompt, then the little that the executor has to say: small models forget the rest.
fn system(prompt: &str, (tools, own): (&[Tool], &[Own]), agents: &[RoleName], channel: Channel) -> String {
    let mut text = prompt.trim_end().to_owned();
    if tools.is_empty() && own.is_empty() {
        text.push_str("\n\nYou have no tools. Answer in plain text.");
        return text;
    }
    text.push_str(
        "\n\nYou work in the folder /workspace; it is the current folder. Use paths relative to it.\n",
    );
    match channel {
        Channel::Native => text.push_str("Call one tool per turn and wait for its result.\n"),
        Channel::Schema => {
            text.push_str("Answer with one JSON object per turn: {\"tool\": NAME, \"args\": {...}}. ");
            text.push_str("Its result comes back to you. Tools:\n");
        }
        Channel::Text => {
            text.push_str("Use one tool per turn; end your answer with exactly one call of this form:\n");
            text.push_str("<tool_call>{\"name\": NAME, \"arguments\": {...}}</tool_call>\n");
            text.push_str("Its result comes back to you. Tools:\n");
        }
    }
    match channel {
        Channel::Native => {}
        Channel::Schema | Channel::Text => {
            for tool in tools {
                text.push_str(&format!("- {}: {}\n", crate::arguments::takes(*tool), description(*tool)));
            }
            for tool in own {
                text.push_str(&format!("- {}: {}\n", tool.takes(), tool.description));
            }
        }
    }
    if tools.contains(&Tool::Agent) && !agents.is_empty() {
        let names: Vec<&str> = agents.iter().map(RoleName::as_str).collect();
        text.push_str(&format!("Roles for agent: {}\n", names.join(", ")));
    }
    if tools.contains(&Tool::Finish) {
        text.push_str("When a check shows that the task is done, call finish.\n");
    }
    text
}
