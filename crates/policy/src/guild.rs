//! `guild.toml`: roles, prompts and tool lists, kept as data and trusted with nothing.

mod lowered;
mod raw;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use crate::document::Document;
use crate::shown::{child, shown};
use crate::value::items;
use crate::{Code, Faults, GuildPath, HostRule, RoleName, ShapeError, Tool};

use raw::{RawGeneration, RawGuild, RawLowered, RawModule, RawRole};

pub use lowered::LimitKey;
pub(crate) use raw::SCHEMA as KEYS;

/// The version of the format that is read.
const SCHEMA: u64 = 1;
/// Roles of one Guild.
const MAX_ROLES: usize = 1000;
/// Tools of one Guild's own.
const MAX_OWN_TOOLS: usize = 1000;
/// Tools of the format that this version does not have.
const LATER_TOOLS: [&str; 1] = ["ask_human"];
/// Tables of the deployment that no Guild may have.
const DEPLOYMENT_ONLY: [&str; 7] = ["isolation", "shell", "secrets", "model", "call", "budget", "records"];

/// A checked `guild.toml`. Prompts are still paths: reading them is the loader's work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Guild {
    /// Its name.
    pub name: String,
    /// The role a run starts with.
    pub entry: RoleName,
    /// Every role.
    pub roles: BTreeMap<RoleName, Role>,
    /// Tools of its own, by name.
    pub tools: BTreeMap<String, OwnTool>,
    /// A lower `call.timeout`.
    pub timeout: Option<Duration>,
    /// Lower bounds than the deployment's.
    pub limits: BTreeMap<LimitKey, u64>,
    /// Destinations it asks for.
    pub network: Vec<HostRule>,
}

/// One role.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Role {
    /// Its prompt file.
    pub prompt: GuildPath,
    /// Exactly the built-in tools it may call.
    pub tools: Vec<Tool>,
    /// Exactly the tools of the Guild's own it may call.
    pub own_tools: Vec<String>,
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

/// A tool of the Guild's own. Both files are still paths: reading them is the loader's work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OwnTool {
    /// Its name, description and arguments.
    pub manifest: GuildPath,
    /// Its code.
    pub module: GuildPath,
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
    pub fn parse(file: &str, text: &str) -> Result<Guild, Faults> {
        let (raw, mut doc) = Document::read::<RawGuild>(file, text, &raw::SCHEMA, advise)?;
        doc.find_key_in_text();
        if raw.schema.is_some_and(|version| version != SCHEMA) {
            doc.bad("schema", "is not a version of this format that is read here", "write `schema = 1`");
        }
        let name = raw.name.filter(|name| {
            let sound = RoleName::new(name).is_some();
            if !sound {
                doc.bad("name", "is not a name", NAME_FORM);
            }
            sound
        });
        let own: BTreeSet<String> = raw.tools.iter().flatten().map(|(name, _)| name.clone()).collect();
        let tools = read_own_tools(raw.tools.unwrap_or_default(), &mut doc);
        let mut timeout = None;
        let limits = read_lowered(raw.limits.unwrap_or_default(), &mut timeout, &mut doc);
        let network = doc.destinations("network.allow", raw.network.and_then(|n| n.allow));
        let network = network.into_iter().map(|(_, rule)| rule).collect();
        let written = raw.roles.unwrap_or_default();
        let entry = raw.entry.and_then(|entry| existing_role("entry", &entry, &written, &mut doc));
        let roles = read_roles(written, &own, &mut doc);
        match (name, entry) {
            (Some(name), Some(entry)) => {
                doc.finish(Guild { name, entry, roles, tools, timeout, limits, network })
            }
            _ => Err(doc.fail()),
        }
    }
}

const NAME_FORM: &str = "use letters, digits, `_` and `-`, at most 64, starting with a letter";

/// Tools of the Guild's own: none takes the name of one that is built in, now or later.
fn read_own_tools(written: BTreeMap<String, RawModule>, doc: &mut Document<'_>) -> BTreeMap<String, OwnTool> {
    let mut tools = BTreeMap::new();
    if written.len() > MAX_OWN_TOOLS {
        let help = format!("at most {MAX_OWN_TOOLS} are read");
        doc.bad("tools", format!("has {} tools", written.len()), help);
        return tools;
    }
    for (name, raw) in written {
        let key = child("tools", &name);
        // Nor one that a reader, or a model, takes for it.
        let like = name.to_ascii_lowercase().replace('-', "_");
        if Tool::from_name(&like).is_some() || LATER_TOOLS.contains(&like.as_str()) {
            doc.bad(&key, "has the name of a built-in tool", "give it another name");
        } else if RoleName::new(&name).is_none() {
            doc.bad(&key, "is not a tool's name", NAME_FORM);
        }
        let manifest = raw.manifest.and_then(|path| read_path(&format!("{key}.manifest"), &path, doc));
        let module = raw.module.and_then(|path| read_path(&format!("{key}.module"), &path, doc));
        if let (Some(manifest), Some(module)) = (manifest, module) {
            tools.insert(name, OwnTool { manifest, module });
        }
    }
    tools
}

fn read_roles(
    written: BTreeMap<String, RawRole>,
    own: &BTreeSet<String>,
    doc: &mut Document<'_>,
) -> BTreeMap<RoleName, Role> {
    let mut roles = BTreeMap::new();
    if written.len() > MAX_ROLES {
        doc.bad("roles", format!("has {} roles", written.len()), format!("at most {MAX_ROLES} are read"));
        return roles;
    }
    let names: BTreeSet<String> = written.keys().cloned().collect();
    for (name, raw) in written {
        let key = child("roles", &name);
        let role = read_role(&key, raw, (&names, own), doc);
        match (RoleName::new(&name), role) {
            (Some(name), Some(role)) => {
                roles.insert(name, role);
            }
            (None, _) => doc.bad(&key, "is not a role's name", NAME_FORM),
            (Some(_), None) => {}
        }
    }
    roles
}

fn read_role(
    key: &str,
    raw: RawRole,
    (names, own): (&BTreeSet<String>, &BTreeSet<String>),
    doc: &mut Document<'_>,
) -> Option<Role> {
    let prompt = raw.prompt.and_then(|path| read_path(&format!("{key}.prompt"), &path, doc));
    let (tools, own_tools) = read_tools(&format!("{key}.tools"), raw.tools, own, doc);
    let agents = read_agents(&format!("{key}.agents"), raw.agents, names, doc);
    let may_delegate = tools.contains(&Tool::Agent);
    if may_delegate && agents.is_empty() {
        doc.bad(
            &format!("{key}.agents"),
            "is empty, yet the role has the tool `agent`",
            "name the roles that it may start, or remove the tool",
        );
    } else if !may_delegate && !agents.is_empty() {
        doc.bad(
            &format!("{key}.agents"),
            "names roles, yet the role lacks the tool `agent`",
            "add `agent` to its tools, or remove the list",
        );
    }
    let budget = raw.budget.unwrap_or_default();
    Some(Role {
        prompt: prompt?,
        tools,
        own_tools,
        agents,
        tool_calls: doc.count(&format!("{key}.budget.tool_calls"), budget.tool_calls),
        tokens: budget.tokens,
        steps: doc.count(&format!("{key}.budget.steps"), budget.steps),
        generation: read_generation(&format!("{key}.generation"), raw.generation.unwrap_or_default(), doc),
    })
}

fn read_path(key: &str, written: &str, doc: &mut Document<'_>) -> Option<GuildPath> {
    let path = GuildPath::new(written);
    if path.is_none() {
        doc.add(
            Code::PathEscapes,
            key,
            format!("`{}` is not a path inside the Guild folder", shown(written)),
            Some("write a relative path with plain parts, as in `prompts/role.md`".to_owned()),
        );
    }
    path
}

fn read_tools(
    key: &str,
    written: Option<Vec<Option<String>>>,
    own: &BTreeSet<String>,
    doc: &mut Document<'_>,
) -> (Vec<Tool>, Vec<String>) {
    let (mut tools, mut own_tools) = (Vec::new(), Vec::new());
    for (key, name) in items(key, written) {
        if doc.is_full() {
            break;
        }
        match Tool::from_name(&name) {
            Some(tool) if tools.contains(&tool) => {
                doc.bad(&key, format!("names `{tool}` a second time"), "remove it");
            }
            Some(tool) => tools.push(tool),
            None if own_tools.contains(&name) => {
                doc.bad(&key, format!("names `{}` a second time", shown(&name)), "remove it");
            }
            None if own.contains(&name) => own_tools.push(name),
            None => {
                let (message, help) = unknown_tool(&name, doc);
                doc.add(Code::UnknownTool, &key, message, Some(help));
            }
        }
    }
    (tools, own_tools)
}

fn unknown_tool(name: &str, doc: &mut Document<'_>) -> (String, String) {
    let every = || Tool::ALL.into_iter().map(Tool::as_str);
    if LATER_TOOLS.contains(&name) {
        return (format!("`{name}` is a tool that this version does not have yet"), "remove it".to_owned());
    }
    let help = match doc.spelling.nearest(name, every()) {
        Some(near) => format!("did you mean `{near}`? It must be written exactly so"),
        None => format!("the tools are {}", every().collect::<Vec<_>>().join(", ")),
    };
    (format!("there is no tool `{}`", shown(name)), help)
}

fn read_agents(
    key: &str,
    written: Option<Vec<Option<String>>>,
    names: &BTreeSet<String>,
    doc: &mut Document<'_>,
) -> Vec<RoleName> {
    let mut agents = Vec::new();
    for (key, name) in items(key, written) {
        if doc.is_full() {
            break;
        }
        match RoleName::new(&name).filter(|_| names.contains(&name)) {
            Some(role) if agents.contains(&role) => {
                doc.bad(&key, format!("names `{role}` a second time"), "remove it");
            }
            Some(role) => agents.push(role),
            None => unknown_role(&key, &name, names.iter().map(String::as_str), doc),
        }
    }
    agents
}

fn existing_role(
    key: &str,
    name: &str,
    roles: &BTreeMap<String, RawRole>,
    doc: &mut Document<'_>,
) -> Option<RoleName> {
    let role = RoleName::new(name).filter(|_| roles.contains_key(name));
    if role.is_none() {
        unknown_role(key, name, roles.keys().map(String::as_str), doc);
    }
    role
}

fn unknown_role<'a>(key: &str, name: &str, roles: impl Iterator<Item = &'a str>, doc: &mut Document<'_>) {
    let help = match doc.spelling.nearest(name, roles.take(MAX_ROLES)) {
        Some(near) => format!("did you mean `{}`?", shown(near)),
        None => "name a role that has a table `[roles.<name>]`".to_owned(),
    };
    doc.add(Code::UnknownRole, key, format!("there is no role `{}`", shown(name)), Some(help));
}

fn read_generation(key: &str, raw: RawGeneration, doc: &mut Document<'_>) -> Generation {
    let default = Generation::default();
    let max_tokens = doc.count(&format!("{key}.max_tokens"), raw.max_tokens);
    Generation {
        temperature: raw.temperature.unwrap_or(default.temperature),
        max_tokens: max_tokens.unwrap_or(default.max_tokens),
    }
}

fn read_lowered(
    raw: RawLowered,
    timeout: &mut Option<Duration>,
    doc: &mut Document<'_>,
) -> BTreeMap<LimitKey, u64> {
    let RawLowered {
        timeout: of_call,
        call_cpu,
        call_memory,
        call_processes,
        call_disk,
        output,
        wall,
        cpu,
        cores,
        memory,
        processes,
        disk,
        tmp,
        files,
    } = raw;
    *timeout = doc.duration("limits.timeout", of_call);
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let lowered = [
        (LimitKey::Wall, doc.duration("limits.wall", wall).map(millis)),
        (LimitKey::Cpu, doc.duration("limits.cpu", cpu).map(millis)),
        (LimitKey::CallCpu, doc.duration("limits.call_cpu", call_cpu).map(millis)),
        (LimitKey::CallMemory, doc.size("limits.call_memory", call_memory)),
        (LimitKey::CallProcesses, call_processes),
        (LimitKey::CallDisk, doc.size("limits.call_disk", call_disk)),
        (LimitKey::Cores, cores),
        (LimitKey::Memory, doc.size("limits.memory", memory)),
        (LimitKey::Processes, processes),
        (LimitKey::Disk, doc.size("limits.disk", disk)),
        (LimitKey::Tmp, doc.size("limits.tmp", tmp)),
        (LimitKey::Files, files),
        (LimitKey::Output, doc.size("limits.output", output)),
    ];
    lowered.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

fn advise(mismatch: &mut ShapeError) {
    if mismatch.code == Code::UnknownKey && DEPLOYMENT_ONLY.contains(&mismatch.path.as_str()) {
        mismatch.help = Some("only the deployment (`oubliette.toml`) may set this".to_owned());
    }
    if mismatch.code == Code::BadValue && mismatch.message.starts_with("must be at least 1") {
        mismatch.help = Some("a bound is never unlimited; leave the key out for the deployment's".to_owned());
    }
}

impl Default for Generation {
    fn default() -> Self {
        Generation { temperature: 0.2, max_tokens: 2048 }
    }
}
