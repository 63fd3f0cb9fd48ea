//! The vector: everything that a Guild can do under a deployment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::alias;
use super::behaviour::Behaviour;
use super::bound::Bound;
use super::claim::Claim;
use super::commands::{Allowed, Denied, Rules};
use super::given::{GuildFiles, PromptText, ToolFiles};
use super::hosts::Hosts;
use super::order::Order;
use super::parameters::Parameters;
use super::plain::Plain;
use super::quotes;
use super::rank::{Choice, Rank};
use super::reach::{self, Bounds, Name, Open, Reach};
use crate::shown::digest;
use crate::{
    Budget, CallLimits, Ceiling, Deployment, Destination, Generation, Grant, Guild, Header, HostRule,
    Isolation, LimitKey, Limits, Model, OwnTool, Records, Role, RoleGrant, RoleName, Rootfs, Shell, Tool,
    Traffic,
};

/// What a Guild can do under a deployment. Two of them are compared part by part; `==` looks at every part, and at
/// the texts that are no part of the order.
#[derive(Clone, Debug, PartialEq)]
pub struct Capability {
    pub(super) vector: Vector,
    pub(super) behaviour: Behaviour,
}

/// The parts that have an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Vector {
    /// Roles that have a power.
    pub(super) roles: BTreeMap<RoleName, Power>,
    /// What is written for roles that have none.
    pub(super) plain: Plain,
    /// The role that a run starts with.
    pub(super) entry: Entry,
    /// Tools of the Guild's own that a role may call.
    pub(super) tools: BTreeMap<String, Binding>,
    pub(super) claims: BTreeSet<Claim>,
    /// Bounds of sandbox, call, run and records, by their key in the deployment.
    pub(super) bounds: BTreeMap<&'static str, Bound>,
    /// Destinations that the Guild asks for, and those that the deployment opens.
    pub(super) asked: Hosts,
    pub(super) given: Hosts,
    pub(super) enabled: bool,
    pub(super) allowed: Allowed,
    pub(super) denied: Denied,
    pub(super) floor: Rank,
    pub(super) tier: Choice,
    pub(super) surroundings: Rank,
}

/// What one role can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Power {
    pub(super) reach: Reach,
    pub(super) bounds: Bounds,
}

/// What a run can do by the role that it starts with, whichever that is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) reach: Arc<BTreeSet<Name>>,
    pub(super) bounds: Arc<Bounds>,
    pub(super) restarts: bool,
}

/// What a tool's name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) module: String,
    pub(super) parameters: Parameters,
}

impl Capability {
    /// The vector of a Guild under a deployment. `files` is what a loader found behind the Guild's paths.
    pub fn of(deployment: &Deployment, guild: &Guild, files: &GuildFiles) -> Capability {
        let Deployment {
            model,
            isolation: _,
            limits: _,
            call: _,
            shell: _,
            network: given,
            traffic: _,
            secrets: _,
            budget: _,
            ceiling: _,
            records,
        } = deployment;
        let Guild {
            name: _,
            entry,
            roles: written,
            tools: own_tools,
            timeout,
            limits: stated,
            network: asked,
        } = guild;
        // The grant is what really holds; what it was narrowed from stands beside it.
        let (grant, _beyond) = Grant::narrowed(deployment, guild, "guild.toml");
        let Grant {
            isolation,
            limits,
            ceiling,
            call,
            shell,
            network,
            traffic,
            secrets,
            budget,
            entry: _,
            roles,
        } = grant;
        // A header counts where a Guild asks for the destination.
        let rule = |destination: &'_ Destination| {
            let (rule, _header) = destination.parts();
            rule.clone()
        };
        let given: Vec<HostRule> = given.iter().map(rule).collect();
        let (asked, given) = (Hosts::new(asked), Hosts::new(&given));
        let mut bounds = BTreeMap::new();
        let mut said: BTreeSet<&str> = stated.keys().map(|lowered| lowered.bound()).collect();
        said.extend(timeout.map(|_| TIMEOUT));
        let mut add = |key: &'static str, value: u64| {
            bounds.insert(key, Bound { value, stated: said.contains(key) });
        };
        of_sandbox(&limits, &mut add);
        of_call(&call, &limits, &mut add);
        of_traffic(&traffic, &mut add);
        of_budget(&budget, &mut add);
        let Ceiling { sandboxes, memory, cores } = ceiling;
        add("ceiling.sandboxes", sandboxes.into());
        add("ceiling.memory", memory);
        add("ceiling.cores", cores.into());
        let mut claims: BTreeSet<Claim> = alias::claims(guild).into_iter().collect();
        let mut operator = BTreeMap::new();
        of_records(records, &mut operator, &mut add);
        of_model(model, &mut operator, &mut claims);
        let Isolation { tier, floor, surroundings, rootfs } = isolation;
        claims.insert(Claim::Rootfs(match rootfs {
            Rootfs::Host => "host".to_owned(),
            Rootfs::Folder(path) => path.display().to_string(),
        }));
        claims.extend(secrets.into_iter().map(Claim::Secret));
        claims.extend(network.iter().filter_map(|destination| {
            let (rule, header) = destination.parts();
            let Header { name, secret_env } = header?.clone();
            Some(Claim::Header { to: rule.to_string(), name, variable: secret_env })
        }));
        let Shell { enabled, allow, deny } = shell;
        let behaviour = Behaviour::of(guild, files, operator);
        quoted(guild, files, &mut claims);
        // Destinations open only where both say so; whether any is matters to who may read foreign text.
        let open = Open { network: !asked.meet(&given).is_empty(), shell_covers: allow.is_empty() };
        let mut own: BTreeMap<RoleName, Bounds> =
            roles.iter().map(|(name, role)| (name.clone(), of_role(role, written.get(name)))).collect();
        let mut reaches = reach::of(&roles, &own, open);
        let entry = reaches.get(entry).map(Entry::of).unwrap_or_default();
        let mut called: BTreeSet<&String> = BTreeSet::new();
        let (mut powers, mut plain) = (BTreeMap::new(), Plain::default());
        for (name, role) in &roles {
            called.extend(&role.own_tools);
            let (Some(reach), Some(bounds)) = (reaches.remove(name), own.remove(name)) else { continue };
            // A role without a tool does nothing but talk: what is written of it is all that there is to keep.
            if reach.tools.is_empty() {
                plain.add(name, &bounds);
            } else {
                powers.insert(name.clone(), Power { reach, bounds });
            }
        }
        let tools = own_tools.iter().filter(|(name, _)| called.contains(name));
        let vector = Vector {
            roles: powers,
            plain,
            entry,
            tools: tools.map(|(name, tool)| (name.clone(), binding(name, tool, files))).collect(),
            claims,
            bounds,
            asked,
            given,
            enabled,
            allowed: Allowed::new(&allow),
            denied: Denied(Rules::new(&deny)),
            floor: Rank::of(floor),
            tier: Choice::of(tier, floor),
            surroundings: Rank::around(surroundings),
        };
        Capability { vector, behaviour }
    }

    /// Whether this can do nothing that `other` cannot: the order itself.
    pub fn within(&self, other: &Capability) -> bool {
        self.vector.within(&other.vector)
    }

    /// Whether both can do the same, whatever their texts say.
    pub fn can_the_same(&self, other: &Capability) -> bool {
        self.vector == other.vector
    }

    /// What both can do; with the texts of this one.
    #[must_use]
    pub fn meet(&self, other: &Capability) -> Capability {
        Capability { vector: self.vector.meet(&other.vector), behaviour: self.behaviour.clone() }
    }
}

impl Vector {
    /// Whether `tool` is among these only, or as well, because a shell can do the same: told with the shell.
    pub(super) fn is_implied(&self, tool: &Name, among: &BTreeSet<Name>) -> bool {
        &**tool == Tool::RunCommand.as_str()
            && among.contains(Tool::RunShell.as_str())
            && matches!(self.allowed, Allowed::All)
    }
}

impl Order for Vector {
    fn within(&self, other: &Self) -> bool {
        let Vector {
            roles,
            plain,
            entry,
            tools,
            claims,
            bounds,
            asked,
            given,
            enabled,
            allowed,
            denied,
            floor,
            tier,
            surroundings,
        } = self;
        roles.within(&other.roles)
            && plain.within(&other.plain)
            && entry.within(&other.entry)
            && tools.within(&other.tools)
            && claims.within(&other.claims)
            && bounds.within(&other.bounds)
            && asked.within(&other.asked)
            && given.within(&other.given)
            && enabled.within(&other.enabled)
            && allowed.within(&other.allowed)
            && denied.within(&other.denied)
            && floor.within(&other.floor)
            && tier.within(&other.tier)
            && surroundings.within(&other.surroundings)
    }

    fn meet(&self, other: &Self) -> Self {
        let mut tools = self.tools.meet(&other.tools);
        // Two modules have nothing in common.
        tools.retain(|name, _| {
            let module = |vector: &Vector| vector.tools.get(name).map(|tool| tool.module.clone());
            module(self) == module(other)
        });
        Vector {
            roles: self.roles.meet(&other.roles),
            plain: self.plain.meet(&other.plain),
            entry: self.entry.meet(&other.entry),
            tools,
            claims: self.claims.meet(&other.claims),
            bounds: self.bounds.meet(&other.bounds),
            asked: self.asked.meet(&other.asked),
            given: self.given.meet(&other.given),
            enabled: self.enabled.meet(&other.enabled),
            allowed: self.allowed.meet(&other.allowed),
            denied: self.denied.meet(&other.denied),
            floor: self.floor.meet(&other.floor),
            tier: self.tier.meet(&other.tier),
            surroundings: self.surroundings.meet(&other.surroundings),
        }
    }
}

impl Order for Power {
    fn within(&self, other: &Self) -> bool {
        let Power { reach, bounds } = self;
        reach.within(&other.reach) && bounds.within(&other.bounds)
    }

    fn meet(&self, other: &Self) -> Self {
        Power { reach: self.reach.meet(&other.reach), bounds: self.bounds.meet(&other.bounds) }
    }
}

impl Entry {
    fn of(role: &Reach) -> Entry {
        let Reach { tools: _, reach, untrusted_exec: _, untrusted_network: _, bounds, restarts } = role;
        Entry { reach: Arc::clone(reach), bounds: Arc::clone(bounds), restarts: *restarts }
    }
}

impl Order for Entry {
    fn within(&self, other: &Self) -> bool {
        let Entry { reach, bounds, restarts } = self;
        reach.within(&other.reach) && bounds.within(&other.bounds) && restarts.within(&other.restarts)
    }

    fn meet(&self, other: &Self) -> Self {
        Entry {
            reach: self.reach.meet(&other.reach),
            bounds: self.bounds.meet(&other.bounds),
            restarts: self.restarts.meet(&other.restarts),
        }
    }
}

impl Order for Binding {
    fn within(&self, other: &Self) -> bool {
        let Binding { module, parameters } = self;
        *module == other.module && parameters.within(&other.parameters)
    }

    fn meet(&self, other: &Self) -> Self {
        Binding { module: self.module.clone(), parameters: self.parameters.meet(&other.parameters) }
    }
}

/// The deployment's key of the one bound of a Guild that has a field of its own.
const TIMEOUT: &str = "call.timeout";

/// The key in a Guild's `[limits]` that lowers a bound of the deployment.
pub(super) fn guild_key(key: &str) -> Option<&'static str> {
    if key == TIMEOUT {
        return Some("timeout");
    }
    LimitKey::ALL.iter().find(|lowered| lowered.bound() == key).map(|lowered| lowered.as_str())
}

fn of_sandbox(limits: &Limits, add: &mut impl FnMut(&'static str, u64)) {
    let Limits { wall, cpu, cores, memory, processes, disk, tmp, files } = limits;
    add("limits.wall", millis(*wall));
    add("limits.cpu", millis(*cpu));
    add("limits.cores", (*cores).into());
    add("limits.memory", *memory);
    add("limits.processes", (*processes).into());
    add("limits.disk", *disk);
    add("limits.tmp", *tmp);
    add("limits.files", *files);
}

/// Where a call has no bound of its own, the sandbox's holds.
fn of_call(call: &CallLimits, sandbox: &Limits, add: &mut impl FnMut(&'static str, u64)) {
    let CallLimits { timeout, cpu, memory, processes, disk, output, flood, to_model } = call;
    add("call.timeout", millis(*timeout));
    add("call.cpu", millis(cpu.unwrap_or(sandbox.cpu).min(sandbox.cpu)));
    add("call.memory", memory.unwrap_or(sandbox.memory).min(sandbox.memory));
    add("call.processes", processes.unwrap_or(sandbox.processes).min(sandbox.processes).into());
    add("call.disk", disk.unwrap_or(sandbox.disk).min(sandbox.disk));
    add("call.output", *output);
    add("call.flood", *flood);
    add("call.to_model", u64::try_from(*to_model).unwrap_or(u64::MAX));
}

/// Without a rate of its own, all the bytes that a run has may pass in one second.
fn of_traffic(traffic: &Traffic, add: &mut impl FnMut(&'static str, u64)) {
    let Traffic { open, connections, up, down, rate, idle, lifetime } = traffic;
    let most = (*up).max(*down);
    add("network.open", (*open).into());
    add("network.connections", (*connections).into());
    add("network.up", *up);
    add("network.down", *down);
    add("network.rate", rate.unwrap_or(most).min(most));
    add("network.idle", millis(*idle));
    add("network.lifetime", millis(*lifetime));
}

fn of_budget(budget: &Budget, add: &mut impl FnMut(&'static str, u64)) {
    let Budget { steps, tool_calls, tokens, wall, depth, repeats, format_errors } = budget;
    add("budget.steps", (*steps).into());
    add("budget.tool_calls", (*tool_calls).into());
    add("budget.tokens", *tokens);
    add("budget.wall", millis(*wall));
    add("budget.depth", (*depth).into());
    add("budget.repeats", (*repeats).into());
    add("budget.format_errors", (*format_errors).into());
}

/// How long records stay and where is no power of a run; how much they may take is.
fn of_records(
    records: &Records,
    operator: &mut BTreeMap<&'static str, String>,
    add: &mut impl FnMut(&'static str, u64),
) {
    let Records { dir, keep, max_bytes } = records;
    operator.insert("records.dir", dir.display().to_string());
    operator.insert("records.keep", format!("{}s", keep.as_secs()));
    add("records.max_bytes", *max_bytes);
}

fn of_model(model: &Model, operator: &mut BTreeMap<&'static str, String>, claims: &mut BTreeSet<Claim>) {
    let Model { base_url, name, api_key_env, min_context } = model;
    operator.insert("model.name", name.clone());
    operator.insert("model.min_context", min_context.to_string());
    claims.insert(Claim::Endpoint(base_url.clone()));
    claims.extend(api_key_env.clone().map(Claim::ModelKey));
}

/// Bounds of one role: the run's, lowered. Only those that a role may have are its own.
fn of_role(granted: &RoleGrant, written: Option<&Role>) -> Bounds {
    let RoleGrant { tools: _, own_tools: _, agents: _, budget, generation } = granted;
    let Budget { steps, tool_calls, tokens, wall: _, depth: _, repeats: _, format_errors: _ } = budget;
    // Behaviour, and listed there.
    let Generation { temperature: _, max_tokens } = generation;
    let mut stated = [false; 3];
    if let Some(Role {
        prompt: _,
        tools: _,
        own_tools: _,
        agents: _,
        tool_calls,
        tokens,
        steps,
        generation: Generation { temperature: _, max_tokens: _ },
    }) = written
    {
        stated = [steps.is_some(), tool_calls.is_some(), tokens.is_some()];
    }
    let [steps_said, calls_said, tokens_said] = stated;
    BTreeMap::from([
        ("budget.steps", Bound { value: (*steps).into(), stated: steps_said }),
        ("budget.tool_calls", Bound { value: (*tool_calls).into(), stated: calls_said }),
        ("budget.tokens", Bound { value: *tokens, stated: tokens_said }),
        ("generation.max_tokens", Bound { value: (*max_tokens).into(), stated: false }),
    ])
}

fn binding(name: &str, tool: &OwnTool, files: &GuildFiles) -> Binding {
    // Paths are listed as behaviour: what is behind them is what counts.
    let OwnTool { manifest: _, module: _ } = tool;
    match files.tools.get(name) {
        Some(ToolFiles { description: _, schema, module, hidden: _ }) => {
            Binding { module: module.clone(), parameters: Parameters::read(schema) }
        }
        None => Binding { module: String::new(), parameters: Parameters::default() },
    }
}

/// Keys and paths of a machine in the texts that a model is given: prompts, and every text of a manifest, names and
/// values of arguments among them.
fn quoted(guild: &Guild, files: &GuildFiles, claims: &mut BTreeSet<Claim>) {
    let mut look = |file: &str, place: String, text: &str| {
        let has_key = quotes::has_key(text);
        if has_key {
            claims.insert(Claim::Key { file: file.to_owned(), place: place.clone() });
        }
        for path in quotes::host_paths(text) {
            // A key may have slashes, or stand in a path: by itself it no more looks like one.
            let path = if has_key { format!("(hidden)#{}", digest(&path)) } else { path };
            claims.insert(Claim::HostPath { file: file.to_owned(), place: place.clone(), path });
        }
    };
    let GuildFiles { prompts, tools, others: _ } = files;
    for (name, role) in &guild.roles {
        if let Some(PromptText { text, digest: _, hidden: _ }) = prompts.get(name) {
            look(role.prompt.as_str(), format!("roles.{name}.prompt"), text);
        }
    }
    for (name, tool) in &guild.tools {
        let Some(ToolFiles { description, schema, module: _, hidden: _ }) = tools.get(name) else {
            continue;
        };
        let mut look = |text: &str| look(tool.manifest.as_str(), format!("tools.{name}.manifest"), text);
        look(description);
        quotes::every_text(schema, &mut look);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
