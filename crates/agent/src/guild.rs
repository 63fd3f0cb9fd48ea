//! Reads a Guild folder: every byte beneath it, none through a link.

mod others;
mod own_tool;
mod prompt_diff;

use std::collections::BTreeMap;
use std::path::Path;

use policy::narrower::{Capability, GuildFiles, PromptText, Severity, ToolFiles, any_text, inspect};
use policy::{Code, Deployment, Fault, Faults, Guild, RoleName};
use sha2::{Digest, Sha256};

pub use own_tool::OwnTool;
pub use prompt_diff::{prompt_diff, prompt_diffs};

/// Bytes that `guild.toml` may have.
const MAX_MANIFEST: u64 = 1 << 20;
/// Bytes that a prompt, or the manifest of a tool, may have.
const MAX_TEXT: u64 = 64 * 1024;
/// Bytes that all prompts of a Guild may have together, and all manifests of its tools: the executor holds them.
const MAX_TEXTS: u64 = 4 << 20;
/// Findings that a refusal names.
const MOST_TOLD: usize = 3;
/// The manifest's name.
const MANIFEST: &str = "guild.toml";

/// A Guild with its texts.
#[derive(Clone, Debug)]
pub struct LoadedGuild {
    /// The checked manifest.
    pub guild: Guild,
    /// Its text.
    pub text: String,
    /// The prompt of each role.
    pub prompts: BTreeMap<RoleName, String>,
    /// Tools of its own, by name.
    pub tools: BTreeMap<String, OwnTool>,
    /// SHA-256 over the manifest, the prompts, the tools' manifests and modules, with their names.
    pub digest: String,
    /// What else lies in the folder, where somebody has asked ([`load_all`]): paths as they may be shown, with the
    /// digest of each.
    pub others: BTreeMap<String, String>,
}

/// Reads the Guild in `dir`.
///
/// # Errors
/// Every fault of the manifest, or every prompt that cannot be read; files are named as the caller named `dir`.
pub fn load(dir: &Path) -> Result<LoadedGuild, Faults> {
    let mut tools = BTreeMap::new();
    let mut loaded = read_folder(dir, &mut |name, tool| drop(tools.insert(name.to_owned(), tool)))?;
    loaded.tools = tools;
    Ok(loaded)
}

/// A Guild whose tools are handed over one by one.
fn read_folder(dir: &Path, took: &mut dyn FnMut(&str, OwnTool)) -> Result<LoadedGuild, Faults> {
    let file = dir.join(MANIFEST).display().to_string();
    let manifest = match read(dir, MANIFEST, MAX_MANIFEST, &file, "") {
        Ok(text) => text,
        Err(fault) => return Err(only(*fault)),
    };
    let guild = Guild::parse(&file, &manifest)?;
    let mut digest = Sha256::new();
    let mut feed = |name: &str, content: &[u8]| {
        for part in [name.as_bytes(), content] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
    };
    feed(MANIFEST, manifest.as_bytes());
    let (mut prompts, mut found) = (BTreeMap::new(), Vec::new());
    let mut left = MAX_TEXTS;
    for (name, role) in &guild.roles {
        let rel = role.prompt.as_str();
        let shown = dir.join(rel).display().to_string();
        match read(dir, rel, left.min(MAX_TEXT), &shown, &format!("roles.{name}.prompt")) {
            Ok(text) => {
                left = left.saturating_sub(text.len() as u64);
                feed(rel, text.as_bytes());
                prompts.insert(name.clone(), text);
            }
            Err(fault) => found.push(*fault),
        }
    }
    let mut left = own_tool::Room { manifests: MAX_TEXTS, modules: own_tool::MAX_MODULES };
    for (name, written) in &guild.tools {
        match own_tool::read(dir, name, written, &left) {
            Ok((tool, text)) => {
                left.manifests = left.manifests.saturating_sub(text.len() as u64);
                left.modules = left.modules.saturating_sub(tool.module.bytes().len() as u64);
                feed(written.manifest.as_str(), text.as_bytes());
                feed(written.module.as_str(), tool.module.bytes());
                took(name, tool);
            }
            Err(fault) => found.push(*fault),
        }
    }
    let digest = digest.finalize().iter().map(|b| format!("{b:02x}")).collect();
    let (tools, others) = (BTreeMap::new(), BTreeMap::new());
    Faults::or(found, LoadedGuild { guild, text: manifest, prompts, tools, digest, others })
}

/// The same with what lies beside it and nothing names, for who judges the folder as a whole.
///
/// # Errors
/// As [`load`], and where more lies there than is looked at.
pub fn load_all(dir: &Path) -> Result<LoadedGuild, Faults> {
    let mut loaded = load(dir)?;
    loaded.others = beside(dir, &loaded.guild)?;
    Ok(loaded)
}

/// The same for who compares two of them: no module is held longer than it takes to see what it is, and no tool is in
/// what comes back, but all of them are in the files.
///
/// # Errors
/// As [`load_all`].
pub fn load_to_compare(dir: &Path) -> Result<(LoadedGuild, GuildFiles), Faults> {
    let mut tools = BTreeMap::new();
    let mut loaded = read_folder(dir, &mut |name, tool| drop(tools.insert(name.to_owned(), tool.files())))?;
    loaded.others = beside(dir, &loaded.guild)?;
    let files = GuildFiles { tools, ..loaded.files() };
    Ok((loaded, files))
}

/// What lies there and nothing names.
fn beside(dir: &Path, guild: &Guild) -> Result<BTreeMap<String, String>, Faults> {
    let Guild { name: _, entry: _, roles, tools, timeout: _, limits: _, network: _ } = guild;
    let of_tools = tools.values().flat_map(|tool| [tool.manifest.as_str(), tool.module.as_str()]);
    let known = roles.values().map(|role| role.prompt.as_str()).chain(of_tools).chain([MANIFEST]);
    others::others(dir, &known.collect()).map_err(|e| {
        let message = format!("cannot look through the folder: {e}");
        only(fault_of(&dir.display().to_string(), "", Code::Unreadable, message, None))
    })
}

impl LoadedGuild {
    /// What this Guild can do under a deployment: the vector that the gate compares.
    pub fn capability(&self, deployment: &Deployment) -> Capability {
        Capability::of(deployment, &self.guild, &self.files())
    }

    /// What no word of the operator's lets pass, a key in one of its texts above all: such a Guild is neither run nor
    /// kept. What the key is stays untold.
    ///
    /// # Errors
    /// A sentence with the places, which repeats nothing of what was found.
    pub fn passes(&self, deployment: &Deployment) -> Result<(), String> {
        let found = inspect(&self.capability(deployment)).into_iter();
        let never: Vec<_> =
            found.filter(|f| f.severity == Severity::Wider && !f.code.is_waivable()).collect();
        let Some(first) = never.first() else { return Ok(()) };
        let told = never.iter().take(MOST_TOLD).map(|f| format!("{} at {}", f.code, f.place));
        let told = told.collect::<Vec<_>>().join(", ");
        let more = match never.len().saturating_sub(MOST_TOLD) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Err(format!("the Guild is refused: {told}{more}: {}; {}", first.rule, first.remedy))
    }

    /// Its texts and the digests of its files, as the gate takes them.
    pub fn files(&self) -> GuildFiles {
        let prompt = |text: &String| PromptText {
            text: text.clone(),
            digest: runs::sha256(text.as_bytes()),
            hidden: runs::hides(text),
        };
        GuildFiles {
            prompts: self.prompts.iter().map(|(role, text)| (role.clone(), prompt(text))).collect(),
            tools: self.tools.iter().map(|(name, read)| (name.clone(), read.files())).collect(),
            others: self.others.clone(),
        }
    }
}

impl OwnTool {
    fn files(&self) -> ToolFiles {
        ToolFiles {
            description: self.description.clone(),
            schema: self.schema.clone(),
            module: runs::sha256(self.module.bytes()),
            hidden: runs::hides(&self.description) || any_text(&self.schema, &runs::hides),
        }
    }
}

fn read(dir: &Path, rel: &str, most: u64, file: &str, key: &str) -> Result<String, Box<Fault>> {
    let bytes = read_bytes(dir, rel, most, file, key)?;
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let message = format!("the file is not UTF-8 (byte {at})");
        Box::new(fault_of(file, key, Code::BadValue, message, None))
    })
}

fn fault_of(file: &str, key: &str, code: Code, message: String, help: Option<&str>) -> Fault {
    let help = help.map(str::to_owned);
    Fault { code, file: file.to_owned(), place: None, key: key.to_owned(), message, help }
}

fn read_bytes(dir: &Path, rel: &str, most: u64, file: &str, key: &str) -> Result<Vec<u8>, Box<Fault>> {
    let fault =
        |code: Code, message: String, help: Option<&str>| Box::new(fault_of(file, key, code, message, help));
    runs::read_beneath(dir, rel, most).map_err(|e| match e.raw_os_error() {
        // ELOOP and EXDEV: the kernel's word for "through a link" and "out of the folder".
        Some(40 | 18) => fault(
            Code::PathEscapes,
            "the path goes through a link or leaves the Guild folder".to_owned(),
            Some("put the file itself into the Guild folder"),
        ),
        _ => fault(Code::Unreadable, format!("cannot read the file: {e}"), None),
    })
}

fn only(fault: Fault) -> Faults {
    match Faults::or(vec![fault], ()) {
        Err(faults) => faults,
        Ok(()) => unreachable!("one fault was given"),
    }
}
