//! `oubliette.toml`: the operator's file. Text in, checked values out.

mod network;
mod raw;

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::document::Document;
use crate::host::{is_label, parse_port};
use crate::shown::shown;
use crate::value::items;
use crate::{
    Budget, CallLimits, Ceiling, Code, Destination, EnvName, Faults, Limits, ShapeError, Surroundings, Tier,
    TierChoice, Traffic,
};

pub(crate) use raw::SCHEMA;
use raw::{
    RawBudget, RawCall, RawCeiling, RawDeployment, RawIsolation, RawLimits, RawModel, RawRecords, RawShell,
};

/// Everything the operator decides. A Guild can only narrow it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deployment {
    /// The model endpoint.
    pub model: Model,
    /// Tier, floor and surroundings.
    pub isolation: Isolation,
    /// Bounds of a sandbox.
    pub limits: Limits,
    /// Bounds of a call.
    pub call: CallLimits,
    /// The shell tools.
    pub shell: Shell,
    /// Destinations that may be reached.
    pub network: Vec<Destination>,
    /// What a run may take of the way there.
    pub traffic: Traffic,
    /// Variables handed into the sandbox on purpose.
    pub secrets: Vec<EnvName>,
    /// What a run may spend.
    pub budget: Budget,
    /// What all runs may take at the same time.
    pub ceiling: Ceiling,
    /// Where records go.
    pub records: Records,
}

/// `[model]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Model {
    /// `http://host:port/v1`, without a trailing slash.
    pub base_url: String,
    /// The name sent to the server.
    pub name: String,
    /// The variable that holds the key, if the server wants one.
    pub api_key_env: Option<EnvName>,
    /// Tokens the server's window must hold at least.
    pub min_context: u64,
}

/// `[isolation]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Isolation {
    /// What is asked for.
    pub tier: TierChoice,
    /// The weakest that is accepted.
    pub floor: Tier,
    /// What the operator states about the executor's own surroundings.
    pub surroundings: Surroundings,
    /// What the guest sees as its system.
    pub rootfs: Rootfs,
}

/// Where the guest's system comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rootfs {
    /// A read-only view of this machine's toolchain, without its secrets.
    Host,
    /// A folder that holds a root file system.
    Folder(PathBuf),
}

/// `[shell]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shell {
    /// Whether programs may be run at all.
    pub enabled: bool,
    /// When not empty: the only programs that may be run.
    pub allow: Vec<String>,
    /// Programs refused with a clear message; no boundary.
    pub deny: Vec<String>,
}

/// `[records]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Records {
    /// The folder, relative to the deployment file.
    pub dir: PathBuf,
    /// How long runs are kept.
    pub keep: Duration,
    /// Bytes all runs together may hold.
    pub max_bytes: u64,
}

impl Deployment {
    /// Reads the file's text; `file` is only its name in messages.
    ///
    /// # Errors
    /// Every fault of the file at once.
    pub fn parse(file: &str, text: &str) -> Result<Deployment, Faults> {
        let (raw, mut doc) = Document::read::<RawDeployment>(file, text, &SCHEMA, advise)?;
        let mut d = Deployment::default();
        d.model.read(raw.model.unwrap_or_default(), &mut doc);
        d.isolation.read(raw.isolation.unwrap_or_default(), &mut doc);
        read_limits(&mut d.limits, raw.limits.unwrap_or_default(), &mut doc);
        read_call(&mut d.call, raw.call.unwrap_or_default(), &d.limits, &mut doc);
        d.shell.read(raw.shell.unwrap_or_default(), &mut doc);
        for (key, name) in items("secrets.pass", raw.secrets.and_then(|s| s.pass)) {
            let Some(name) = doc.variable(&key, &name) else { continue };
            if d.model.api_key_env.as_ref() == Some(&name) {
                doc.bad(&key, "is the model's key, which never enters a sandbox", "remove it");
            }
            d.secrets.push(name);
        }
        let mut granted = raw.network.unwrap_or_default();
        d.network = network::read(granted.allow.take(), &d, &mut doc);
        d.traffic.read(granted, &mut doc);
        read_budget(&mut d.budget, raw.budget.unwrap_or_default(), &mut doc);
        read_ceiling(&mut d.ceiling, raw.ceiling.unwrap_or_default(), &mut doc);
        d.ceiling.check(&d.limits, &mut doc);
        d.records.read(raw.records.unwrap_or_default(), &mut doc);
        doc.finish(d)
    }
}

impl Model {
    fn read(&mut self, raw: RawModel, doc: &mut Document<'_>) {
        if let Some(url) = raw.base_url {
            match base_url(&url) {
                Ok(url) => self.base_url = url,
                Err((message, help)) => doc.bad("model.base_url", message, help),
            }
        }
        if let Some(name) = raw.name {
            if name.trim().is_empty() || name.len() > 256 || name.chars().any(char::is_control) {
                doc.bad("model.name", "is no model's name", "write the name that the server lists");
            }
            self.name = name;
        }
        self.api_key_env = raw.api_key_env.and_then(|name| doc.variable("model.api_key_env", &name));
        set(&mut self.min_context, raw.min_context);
    }
}

impl Isolation {
    fn read(&mut self, raw: RawIsolation, doc: &mut Document<'_>) {
        set(&mut self.tier, raw.tier);
        set(&mut self.floor, raw.floor.map(Tier::from));
        set(&mut self.surroundings, raw.surroundings);
        match raw.rootfs.as_deref() {
            None => {}
            Some("host") => self.rootfs = Rootfs::Host,
            Some(path) if path.contains('/') && !path.chars().any(char::is_control) => {
                self.rootfs = Rootfs::Folder(PathBuf::from(path));
            }
            Some(_) => doc.bad(
                "isolation.rootfs",
                "is neither `host` nor the path of a folder",
                "write a folder with a slash, as in `./rootfs`",
            ),
        }
    }
}

impl Shell {
    fn read(&mut self, raw: RawShell, doc: &mut Document<'_>) {
        set(&mut self.enabled, raw.enabled);
        for (key, written, list) in
            [("shell.allow", raw.allow, &mut self.allow), ("shell.deny", raw.deny, &mut self.deny)]
        {
            for (key, rule) in items(key, written) {
                if is_command_rule(&rule) {
                    list.push(rule);
                } else {
                    doc.bad(
                        &key,
                        format!("`{}` is not the name of a command", shown(&rule)),
                        "write the bare name, as in `ls`, or with its sub-command, as in `git push`",
                    );
                }
            }
        }
    }
}

impl Records {
    fn read(&mut self, raw: RawRecords, doc: &mut Document<'_>) {
        if let Some(dir) = raw.dir {
            if dir.is_empty() || dir.chars().any(char::is_control) {
                doc.bad("records.dir", "is not the path of a folder", "write a path, as in `data`");
            }
            self.dir = PathBuf::from(dir);
        }
        set(&mut self.keep, doc.duration("records.keep", raw.keep));
        set(&mut self.max_bytes, doc.size("records.max_bytes", raw.max_bytes));
    }
}

fn read_limits(limits: &mut Limits, raw: RawLimits, doc: &mut Document<'_>) {
    set(&mut limits.wall, doc.duration("limits.wall", raw.wall));
    set(&mut limits.cpu, doc.duration("limits.cpu", raw.cpu));
    set(&mut limits.cores, doc.count("limits.cores", raw.cores));
    set(&mut limits.memory, doc.size("limits.memory", raw.memory));
    set(&mut limits.processes, doc.count("limits.processes", raw.processes));
    set(&mut limits.disk, doc.size("limits.disk", raw.disk));
    set(&mut limits.tmp, doc.size("limits.tmp", raw.tmp));
    set(&mut limits.files, raw.files);
}

fn read_ceiling(ceiling: &mut Ceiling, raw: RawCeiling, doc: &mut Document<'_>) {
    set(&mut ceiling.sandboxes, doc.count("ceiling.sandboxes", raw.sandboxes));
    set(&mut ceiling.memory, doc.size("ceiling.memory", raw.memory));
    set(&mut ceiling.cores, doc.count("ceiling.cores", raw.cores));
}

impl Ceiling {
    /// A run that finds no room even alone would wait for ever. Told at the key that is not as it was given.
    fn check(&self, limits: &Limits, doc: &mut Document<'_>) {
        let usual = Ceiling::default();
        for (key, fits, lowered) in [
            ("memory", limits.memory <= self.memory, self.memory < usual.memory),
            ("cores", limits.cores <= self.cores, self.cores < usual.cores),
        ] {
            if fits {
                continue;
            }
            let (at, than, help) = match lowered {
                true => ("ceiling", "less than `limits", format!("raise it, or lower `limits.{key}`")),
                false => ("limits", "more than `ceiling", format!("lower it, or raise `ceiling.{key}`")),
            };
            doc.bad(&format!("{at}.{key}"), format!("is {than}.{key}`: no run would ever start"), help);
        }
    }
}

fn read_call(call: &mut CallLimits, raw: RawCall, sandbox: &Limits, doc: &mut Document<'_>) {
    set(&mut call.timeout, doc.duration("call.timeout", raw.timeout));
    call.cpu = doc.duration("call.cpu", raw.cpu).or(call.cpu);
    call.memory = doc.size("call.memory", raw.memory);
    call.processes = doc.count("call.processes", raw.processes);
    call.disk = doc.size("call.disk", raw.disk);
    // One that is more than the sandbox has would be read as a promise.
    for (key, more) in [
        ("memory", call.memory.is_some_and(|own| own > sandbox.memory)),
        ("processes", call.processes.is_some_and(|own| own > sandbox.processes)),
        ("disk", call.disk.is_some_and(|own| own > sandbox.disk)),
    ] {
        if more {
            doc.bad(
                &format!("call.{key}"),
                format!("is more than `limits.{key}`, which the whole sandbox has"),
                format!("lower it, or raise `limits.{key}`"),
            );
        }
    }
    set(&mut call.output, doc.size("call.output", raw.output));
    match doc.size("call.flood", raw.flood) {
        Some(flood) if flood < call.output => doc.bad(
            "call.flood",
            "is less than `call.output`: what ends a call could not be kept",
            "raise it, or lower `call.output`",
        ),
        Some(flood) => call.flood = flood,
        // Whoever keeps more than is usual lets as much be printed.
        None => call.flood = call.flood.max(call.output),
    }
    set(&mut call.to_model, doc.count("call.to_model", raw.to_model));
}

fn read_budget(budget: &mut Budget, raw: RawBudget, doc: &mut Document<'_>) {
    set(&mut budget.steps, doc.count("budget.steps", raw.steps));
    set(&mut budget.tool_calls, doc.count("budget.tool_calls", raw.tool_calls));
    set(&mut budget.tokens, raw.tokens);
    set(&mut budget.wall, doc.duration("budget.wall", raw.wall));
    set(&mut budget.depth, doc.count("budget.depth", raw.depth));
    set(&mut budget.repeats, doc.count("budget.repeats", raw.repeats));
    set(&mut budget.format_errors, doc.count("budget.format_errors", raw.format_errors));
}

/// A key that is not there keeps its default.
fn set<T>(target: &mut T, written: Option<T>) {
    if let Some(value) = written {
        *target = value;
    }
}

/// One to four plain words with one blank between them.
fn is_command_rule(rule: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    rule.len() <= 128
        && rule.split(' ').count() <= 4
        && rule.split(' ').all(|word| !word.is_empty() && word.chars().all(plain))
        && !rule.starts_with('-')
}

/// `http://host[:port][/path]`, without the trailing slash.
fn base_url(text: &str) -> Result<String, (&'static str, &'static str)> {
    const FORM: &str = "write the server's address, as in `http://127.0.0.1:8080/v1`";
    let lower = text.get(..8).unwrap_or(text).to_ascii_lowercase();
    if lower.starts_with("https:") {
        return Err((
            "asks for TLS, which this version does not speak",
            "put a TLS proxy on this machine in front of the server and write its `http://127.0.0.1:...` address",
        ));
    }
    if !lower.starts_with("http://") {
        return Err(("is not an `http://` address", FORM));
    }
    let rest = text.get(7..).unwrap_or("");
    if !rest.bytes().all(|b| b.is_ascii_graphic()) || rest.contains(['?', '#', '\\', '"', '<', '>', '`']) {
        return Err(("has a query, a fragment or a character that no address has", FORM));
    }
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if authority.contains('@') {
        return Err((
            "holds a user name or a password",
            "remove it; a key goes into an environment variable that `api_key_env` names",
        ));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let host_is_sound = match bracketed {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.len() <= 253 && host.strip_suffix('.').unwrap_or(host).split('.').all(is_label),
    };
    if !host_is_sound {
        return Err(("has no valid host", FORM));
    }
    if port.is_some_and(|port| parse_port(port).is_err()) {
        return Err(("has no port from 1 to 65535 after the colon", FORM));
    }
    Ok(format!("http://{authority}{}", path.trim_end_matches('/')))
}

fn advise(mismatch: &mut ShapeError) {
    let bounds = ["limits.", "call.", "network.", "budget.", "model.min_context"];
    if mismatch.code == Code::BadValue
        && mismatch.message.starts_with("must be at least")
        && bounds.iter().any(|table| mismatch.path.starts_with(table))
    {
        mismatch.help = Some("a bound is never unlimited; leave the key out for the default".to_owned());
    }
    if mismatch.path == "isolation.floor" && mismatch.code == Code::BadValue && mismatch.help.is_none() {
        mismatch.help = Some(
            "a floor is a tier that programs run in; `wasm` runs modules only and counts as `gvisor`"
                .to_owned(),
        );
    }
}

impl Default for Deployment {
    fn default() -> Self {
        Deployment {
            model: Model {
                base_url: "http://127.0.0.1:8080/v1".to_owned(),
                name: "local".to_owned(),
                api_key_env: None,
                min_context: 4096,
            },
            isolation: Isolation {
                tier: TierChoice::Auto,
                floor: Tier::Gvisor,
                surroundings: Surroundings::None,
                rootfs: Rootfs::Host,
            },
            limits: Limits::default(),
            call: CallLimits::default(),
            shell: Shell { enabled: true, allow: Vec::new(), deny: Vec::new() },
            network: Vec::new(),
            traffic: Traffic::default(),
            secrets: Vec::new(),
            budget: Budget::default(),
            ceiling: Ceiling::default(),
            records: Records {
                dir: PathBuf::from("data"),
                keep: Duration::from_secs(30 * 24 * 3600),
                max_bytes: 5 << 30,
            },
        }
    }
}
