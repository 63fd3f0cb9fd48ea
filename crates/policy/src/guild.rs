//! `guild.toml`: roles, prompts and tool lists, kept as data and trusted with nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::{Faults, GuildPath, HostRule, RoleName, Tool};

/// A checked `guild.toml`. Prompts are still paths: reading them is the loader's work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Guild {
    /// Its name.
    pub name: String,
    /// The role a run starts with.
    pub entry: RoleName,
    /// Every role.
    pub roles: BTreeMap<RoleName, Role>,
    /// A lower `call.timeout`.
    pub timeout: Option<Duration>,
    /// Lower bounds than the deployment's, by key (`memory`, `processes`, ...), in the deployment's units.
    pub limits: BTreeMap<String, u64>,
    /// Destinations it asks for.
    pub network: Vec<HostRule>,
}

/// One role.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Role {
    /// Its prompt file.
    pub prompt: GuildPath,
    /// Exactly the tools it may call.
    pub tools: Vec<Tool>,
    /// Roles that its `agent` tool may start.
    pub agents: Vec<RoleName>,
    /// Lower spending bounds: tool calls.
    pub tool_calls: Option<u32>,
    /// Lower spending bounds: tokens.
    pub tokens: Option<u64>,
    /// Lower spending bounds: steps.
    pub steps: Option<u32>,
    /// Sampling.
    pub generation: Generation,
}

/// Sampling parameters sent to the server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Generation {
    /// 0 to 2.
    pub temperature: f64,
    /// Tokens of one answer.
    pub max_tokens: u32,
}

impl Guild {
    /// Reads the text of a `guild.toml`; `file` is only its name in messages.
    ///
    /// # Errors
    /// Every fault of the file at once.
    pub fn parse(_file: &str, _text: &str) -> Result<Guild, Faults> {
        Faults::or(
            Vec::new(),
            Guild {
                name: String::new(),
                entry: RoleName::new("entry").unwrap_or_else(|| unreachable!()),
                roles: BTreeMap::new(),
                timeout: None,
                limits: BTreeMap::new(),
                network: Vec::new(),
            },
        )
    }
}

impl Default for Generation {
    fn default() -> Self {
        Generation { temperature: 0.2, max_tokens: 2048 }
    }
}
