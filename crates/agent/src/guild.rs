//! Reads a Guild folder: every byte beneath it, none through a link.

mod own_tool;
mod prompt_diff;

use std::collections::BTreeMap;
use std::path::Path;

use policy::narrower::{Capability, GuildFiles, PromptText, ToolFiles};
use policy::{Code, Deployment, Fault, Faults, Guild, RoleName};
use sha2::{Digest, Sha256};

pub use own_tool::OwnTool;
pub use prompt_diff::prompt_diff;

/// Bytes that `guild.toml` may have.
const MAX_MANIFEST: u64 = 1 << 20;
/// Bytes that a prompt, or the manifest of a tool, may have.
const MAX_TEXT: u64 = 64 * 1024;
/// Bytes that all prompts of a Guild may have together, and all manifests of its tools: the executor holds them.
const MAX_TEXTS: u64 = 4 << 20;
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
}

/// Reads the Guild in `dir`.
///
/// # Errors
/// Every fault of the manifest, or every prompt that cannot be read; files are named as the caller named `dir`.
pub fn load(dir: &Path) -> Result<LoadedGuild, Faults> {
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
    let mut tools = BTreeMap::new();
    let mut left = own_tool::Room { manifests: MAX_TEXTS, modules: own_tool::MAX_MODULES };
    for (name, written) in &guild.tools {
        match own_tool::read(dir, name, written, &left) {
            Ok((tool, text)) => {
                left.manifests = left.manifests.saturating_sub(text.len() as u64);
                left.modules = left.modules.saturating_sub(tool.module.bytes().len() as u64);
                feed(written.manifest.as_str(), text.as_bytes());
                feed(written.module.as_str(), tool.module.bytes());
                tools.insert(name.clone(), tool);
            }
            Err(fault) => found.push(*fault),
        }
    }
    let digest = digest.finalize().iter().map(|b| format!("{b:02x}")).collect();
    Faults::or(found, LoadedGuild { guild, text: manifest, prompts, tools, digest })
}

impl LoadedGuild {
    /// What this Guild can do under a deployment: the vector that the gate compares.
    pub fn capability(&self, deployment: &Deployment) -> Capability {
        Capability::of(deployment, &self.guild, &self.files())
    }

    /// Its texts and the digests of its files, as the gate takes them.
    pub fn files(&self) -> GuildFiles {
        let prompt = |text: &String| PromptText {
            text: text.clone(),
            digest: runs::sha256(text.as_bytes()),
            hidden: has_hidden(text),
        };
        let tool = |tool: &OwnTool| ToolFiles {
            description: tool.description.clone(),
            schema: tool.schema.clone(),
            module: runs::sha256(tool.module.bytes()),
            hidden: has_hidden(&tool.description) || has_hidden(&tool.schema.to_string()),
        };
        GuildFiles {
            prompts: self.prompts.iter().map(|(role, text)| (role.clone(), prompt(text))).collect(),
            tools: self.tools.iter().map(|(name, read)| (name.clone(), tool(read))).collect(),
        }
    }
}

/// Whether a person who looks at a text does not see all of it.
fn has_hidden(text: &str) -> bool {
    // Ends of lines of another system hide nothing.
    let text = text.replace("\r\n", "\n");
    runs::marked(text.as_bytes()) != text
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
