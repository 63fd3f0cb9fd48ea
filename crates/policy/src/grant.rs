//! The grant: the deployment narrowed by the Guild. Whatever runs, runs under one.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    Budget, CallLimits, Decision, Deployment, EnvName, Faults, Generation, Guild, HostRule, Isolation,
    Limits, RoleName, Shell, Tool,
};

/// What a run may do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Grant {
    /// Tier, floor and surroundings: always the deployment's.
    pub isolation: Isolation,
    /// Bounds of the sandbox.
    pub limits: Limits,
    /// Bounds of a call.
    pub call: CallLimits,
    /// The shell tools: always the deployment's.
    pub shell: Shell,
    /// Destinations that may be reached.
    pub network: Vec<HostRule>,
    /// Variables handed into the sandbox on purpose: always the deployment's.
    pub secrets: Vec<EnvName>,
    /// What the run may spend.
    pub budget: Budget,
    /// The role the run starts with; none for a bare `exec`.
    pub entry: Option<RoleName>,
    /// What each role may do.
    pub roles: BTreeMap<RoleName, RoleGrant>,
}

/// What one role may do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoleGrant {
    /// Exactly the tools it may call.
    pub tools: Vec<Tool>,
    /// Roles that its `agent` tool may start.
    pub agents: Vec<RoleName>,
    /// What this role may spend: the run's budget, lowered.
    pub budget: Budget,
    /// Sampling.
    pub generation: Generation,
}

impl Grant {
    /// The deployment narrowed by the Guild.
    ///
    /// # Errors
    /// Each thing the Guild asks for beyond the deployment, by name; `file` names the Guild in messages.
    pub fn new(_deployment: &Deployment, _guild: &Guild, _file: &str) -> Result<Grant, Faults> {
        Faults::or(Vec::new(), Grant::without_guild(_deployment))
    }

    /// The grant of a bare `exec`: the deployment's, with no roles.
    pub fn without_guild(d: &Deployment) -> Grant {
        Grant {
            isolation: d.isolation.clone(),
            limits: d.limits.clone(),
            call: d.call.clone(),
            shell: d.shell.clone(),
            network: d.network.clone(),
            secrets: d.secrets.clone(),
            budget: d.budget.clone(),
            entry: None,
            roles: BTreeMap::new(),
        }
    }

    /// Whether `role` may call the tool of exactly this `name`.
    pub fn tool(&self, _role: &RoleName, _name: &str) -> (Option<Tool>, Decision) {
        (None, Decision::refuse("role-tools", "not written yet"))
    }

    /// Whether a program may be started by `run_command`, judged by `argv[0]`, or by a shell text's command
    /// words. A convenience with a clear message; never the boundary.
    pub fn program(&self, _tool: Tool, _argv: &[String]) -> Decision {
        Decision::allow("shell")
    }
}
