//! The grant: the deployment narrowed by the Guild. Whatever runs, runs under one.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::command;
use crate::room;
use crate::shown::shown;
use crate::{
    Budget, CallLimits, Ceiling, Code, Decision, Deployment, Destination, EnvName, Fault, Faults, Generation,
    Guild, Isolation, LimitKey, Limits, Role, RoleName, Shell, TierChoice, Tool, Traffic,
};

/// What a run may do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Grant {
    /// Tier, floor and surroundings: always the deployment's.
    pub isolation: Isolation,
    /// Bounds of the sandbox.
    pub limits: Limits,
    /// What this run and all others may take at the same time: always the deployment's.
    pub ceiling: Ceiling,
    /// Bounds of a call.
    pub call: CallLimits,
    /// The shell tools: always the deployment's.
    pub shell: Shell,
    /// Destinations that may be reached: those of the deployment that the Guild asks for.
    pub network: Vec<Destination>,
    /// What the run may take of the way there: always the deployment's.
    pub traffic: Traffic,
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
    /// Exactly the built-in tools it may call.
    pub tools: Vec<Tool>,
    /// Exactly the tools of the Guild's own it may call.
    pub own_tools: Vec<String>,
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
    pub fn new(deployment: &Deployment, guild: &Guild, file: &str) -> Result<Grant, Faults> {
        let (grant, found) = Grant::narrowed(deployment, guild, file);
        Faults::or(found, grant)
    }

    /// The same for who wants to know what would be left of it: what is asked beyond the deployment is not there.
    pub(crate) fn narrowed(deployment: &Deployment, guild: &Guild, file: &str) -> (Grant, Vec<Fault>) {
        let mut excess = Excess { file, found: Vec::new() };
        let mut grant = Grant::without_guild(deployment);
        excess.narrow(&mut grant, guild);
        grant.network = excess.destinations(&deployment.network, guild);
        if let Err((message, help)) = grant.has_room() {
            excess
                .found
                .push(Fault { help: Some(help), ..excess.fault(Code::BadValue, "network.allow", message) });
        }
        for (name, role) in &guild.roles {
            let budget = excess.role_budget(&grant.budget, name, role);
            grant.roles.insert(
                name.clone(),
                RoleGrant {
                    tools: role.tools.clone(),
                    own_tools: role.own_tools.clone(),
                    agents: role.agents.clone(),
                    budget,
                    generation: role.generation,
                },
            );
        }
        grant.entry = Some(guild.entry.clone());
        (grant, excess.found)
    }

    /// The grant of a bare `exec`: the deployment's, with no roles.
    pub fn without_guild(d: &Deployment) -> Grant {
        Grant {
            isolation: d.isolation.clone(),
            limits: d.limits.clone(),
            ceiling: d.ceiling.clone(),
            call: d.call.clone(),
            shell: d.shell.clone(),
            network: d.network.clone(),
            traffic: d.traffic.clone(),
            secrets: d.secrets.clone(),
            budget: d.budget.clone(),
            entry: None,
            roles: BTreeMap::new(),
        }
    }

    /// Whether a sandbox has room for what may be reached, where its tier has a way out for it.
    ///
    /// # Errors
    /// A sentence without its subject (`network.allow`), and what would be right.
    pub fn has_room(&self) -> Result<(), (String, String)> {
        match self.isolation.tier {
            // No socket is made for it there; `fetch_url` needs none.
            TierChoice::Confined | TierChoice::Wasm => Ok(()),
            TierChoice::Auto | TierChoice::Namespace | TierChoice::Gvisor | TierChoice::Microvm => {
                room::check(self.network.iter().map(Destination::rule))
            }
        }
    }

    /// Whether `role` may call the tool of exactly this `name`. Allowed without a tool: one of the Guild's own.
    pub fn tool(&self, role: &RoleName, name: &str) -> (Option<Tool>, Decision) {
        const RULE: &str = "role-tools";
        let Some(granted) = self.roles.get(role) else {
            return (None, Decision::refuse(RULE, "this role is not part of the run and has no tools"));
        };
        match Tool::from_name(name).filter(|tool| granted.tools.contains(tool)) {
            Some(tool) => (Some(tool), Decision::allow(RULE)),
            // One of the Guild's own has a name and no more: what it does is its module's.
            None if granted.own_tools.iter().any(|own| own == name) => (None, Decision::allow(RULE)),
            None => {
                let own = granted.own_tools.iter().map(String::as_str);
                let has: Vec<&str> = granted.tools.iter().map(|tool| tool.as_str()).chain(own).collect();
                let has = if has.is_empty() {
                    "it has no tools".to_owned()
                } else {
                    format!("its tools are {}", has.join(", "))
                };
                let reason = format!("this role has no tool `{}`; {has}", shown(name));
                (None, Decision::refuse(RULE, reason))
            }
        }
    }

    /// Whether a program may be started by `run_command`, judged by `argv[0]`, or by a shell text's command
    /// words. A convenience with a clear message; never the boundary.
    pub fn program(&self, tool: Tool, argv: &[String]) -> Decision {
        match tool {
            Tool::RunShell | Tool::RunCommand if !self.shell.enabled => {
                Decision::refuse("shell-off", "running programs is switched off in this deployment")
            }
            Tool::RunCommand => command::judge_words(&self.shell, argv),
            Tool::RunShell => match argv {
                [_, flag, text] if flag == "-c" => command::judge_text(&self.shell, text),
                _ => Decision::refuse("shell", "a shell is started with one text only"),
            },
            Tool::ReadFile
            | Tool::WriteFile
            | Tool::EditFile
            | Tool::ApplyPatch
            | Tool::ListDir
            | Tool::Glob
            | Tool::Search
            | Tool::ReadArtifact
            | Tool::FetchUrl
            | Tool::Agent
            | Tool::Finish => Decision::refuse("shell", format!("`{tool}` starts no program")),
        }
    }
}

/// What a Guild asks for beyond the deployment.
struct Excess<'a> {
    file: &'a str,
    found: Vec<Fault>,
}

impl Excess<'_> {
    fn narrow(&mut self, grant: &mut Grant, guild: &Guild) {
        if let Some(timeout) = guild.timeout {
            self.lower(&mut grant.call.timeout, timeout, "limits.timeout");
        }
        for (name, value) in &guild.limits {
            let key = format!("limits.{}", name.as_str());
            let (limits, value) = (&mut grant.limits, *value);
            match name {
                LimitKey::Wall => self.lower(&mut limits.wall, Duration::from_millis(value), &key),
                LimitKey::Cpu => self.lower(&mut limits.cpu, Duration::from_millis(value), &key),
                LimitKey::CallCpu => {
                    self.lower_own(&mut grant.call.cpu, limits.cpu, Duration::from_millis(value), &key);
                }
                LimitKey::CallMemory => {
                    self.lower_own(&mut grant.call.memory, limits.memory, value, &key);
                }
                LimitKey::CallProcesses => {
                    self.lower_own(&mut grant.call.processes, limits.processes, saturated(value), &key);
                }
                LimitKey::CallDisk => self.lower_own(&mut grant.call.disk, limits.disk, value, &key),
                LimitKey::Cores => self.lower(&mut limits.cores, saturated(value), &key),
                LimitKey::Memory => self.lower(&mut limits.memory, value, &key),
                LimitKey::Processes => self.lower(&mut limits.processes, saturated(value), &key),
                LimitKey::Disk => self.lower(&mut limits.disk, value, &key),
                LimitKey::Tmp => self.lower(&mut limits.tmp, value, &key),
                LimitKey::Files => self.lower(&mut limits.files, value, &key),
                LimitKey::Output => self.lower(&mut grant.call.output, value, &key),
            }
        }
    }

    /// What the Guild asks for and the deployment gives. Who asks for nothing has nothing.
    fn destinations(&mut self, given: &[Destination], guild: &Guild) -> Vec<Destination> {
        let mut granted = Vec::new();
        for rule in &guild.network {
            // The same rule brings the header with it; one beneath a star has none.
            let same = given.iter().find(|given| given.rule() == rule).cloned();
            let beneath = || given.iter().any(|given| given.rule().covers(rule)).then(|| rule.clone().into());
            match same.or_else(beneath) {
                Some(destination) if granted.contains(&destination) => {}
                Some(destination) => granted.push(destination),
                None => self.add(
                    Code::Exceeds,
                    "network.allow",
                    format!("asks for `{rule}`, which the deployment does not grant"),
                ),
            }
        }
        granted
    }

    fn role_budget(&mut self, run: &Budget, name: &RoleName, role: &Role) -> Budget {
        let mut budget = run.clone();
        let key = |bound| format!("roles.{name}.budget.{bound}");
        if let Some(steps) = role.steps {
            self.lower(&mut budget.steps, steps, &key("steps"));
        }
        if let Some(tool_calls) = role.tool_calls {
            self.lower(&mut budget.tool_calls, tool_calls, &key("tool_calls"));
        }
        if let Some(tokens) = role.tokens {
            self.lower(&mut budget.tokens, tokens, &key("tokens"));
        }
        budget
    }

    /// A bound of a call, which is the sandbox's where nobody gave one.
    fn lower_own<T: Ord + Copy + std::fmt::Debug>(
        &mut self,
        own: &mut Option<T>,
        sandbox: T,
        asked: T,
        key: &str,
    ) {
        let mut bound = own.unwrap_or(sandbox).min(sandbox);
        self.lower(&mut bound, asked, key);
        *own = Some(bound);
    }

    fn lower<T: PartialOrd + std::fmt::Debug>(&mut self, bound: &mut T, asked: T, key: &str) {
        if asked > *bound {
            let message = format!("asks for {asked:?}, more than the deployment's {bound:?}");
            self.add(Code::Exceeds, key, message);
        } else {
            *bound = asked;
        }
    }

    fn add(&mut self, code: Code, key: &str, message: String) {
        self.found.push(self.fault(code, key, message));
    }

    fn fault(&self, code: Code, key: &str, message: String) -> Fault {
        Fault {
            code,
            file: self.file.to_owned(),
            place: None,
            key: key.to_owned(),
            message,
            help: Some("a Guild can only narrow the deployment: lower or remove it".to_owned()),
        }
    }
}

fn saturated(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
