//! Whether a row means anything here, before anything of it is played.

use std::path::Path;

use policy::{Tier, Tool};
use runs::Cancel;
use serde_json::Value;

use super::by_run::is_live;
use super::door::{self, Program};
use super::format::Simulate;
use super::read::{Input, Row};
use super::verdict::{NotHere, Trouble, Unasked};
use super::world::{PATIENCE, sound};

/// Names that the form gives to tools, for what is called otherwise here.
const STAND_INS: [(&str, &str); 1] = [("list_directory", "list_dir")];
/// Further names that the form knows as tools: a model that says one of them does not invent it.
const KNOWN: [&str; 9] = [
    "run_shell",
    "read_file",
    "write_file",
    "edit_file",
    "apply_patch",
    "list_directory",
    "glob",
    "search",
    "read_artifact",
];
/// Programs that rows rely on in a guest.
const PROGRAMS: [&str; 14] = [
    "bash", "python3", "git", "perl", "dd", "setsid", "timeout", "nohup", "mkfifo", "yes", "head", "tr",
    "ps", "awk",
];

/// The product's name of a tool.
pub(super) fn our_name(name: &str) -> &str {
    STAND_INS.iter().find(|(theirs, _)| *theirs == name).map_or(name, |(_, ours)| ours)
}

/// What a tier turned out to be, by running it.
pub(super) enum Guest {
    /// It works, and its guests lack these programs.
    Works { lacks: Vec<String> },
    /// It cannot be had, and why.
    Absent { why: String },
}

/// Starts a sandbox on a tier and asks which programs a guest finds there.
pub(super) fn guest(tier: Tier, scratch: &Path, cancel: &Cancel) -> Result<Guest, Trouble> {
    // It starts no programs: only what is decided before that can be asked.
    if tier == Tier::Wasm {
        return Ok(Guest::Works { lacks: Vec::new() });
    }
    let look = "for p; do command -v -- \"$p\" >/dev/null 2>&1 || echo \"$p\"; done";
    let mut command = door::ourselves(scratch);
    let name = tier.as_str();
    command.args(["exec", "--data", "data", "--tier", name, "--floor", name, "--", "sh", "-c", look, "sh"]);
    let ran =
        sound(Program::start(command.args(PROGRAMS), scratch, "guest")?.ended(cancel, PATIENCE, || {})?)?;
    match ran.code {
        Some(0) => {
            let known = |line: &str| PROGRAMS.iter().find(|program| **program == line.trim());
            Ok(Guest::Works { lacks: ran.out.lines().filter_map(known).map(|p| (*p).to_owned()).collect() })
        }
        _ => Ok(Guest::Absent { why: crate::render::shown(&ran.err) }),
    }
}

/// Why a row means nothing on this tier, if it does not.
pub(super) fn not_here(row: &Row, tier: Tier, archives: &dyn Fn() -> bool) -> Option<NotHere> {
    let config = match &row.input {
        Input::ImportArchive { .. } if tier != Tier::Wasm && !archives() => return Some(NotHere::Archive),
        Input::Config(_) | Input::ConfigRaw(_) | Input::Gate { .. } | Input::Request { .. } => true,
        Input::Command(_)
        | Input::Calls { .. }
        | Input::Parallel(_)
        | Input::Runs { .. }
        | Input::Turns(_)
        | Input::Generated
        | Input::ImportArchive { .. } => false,
    };
    if let Some(tool) = missing_tool(row) {
        return Some(NotHere::Tool { tool: tool.to_owned() });
    }
    let lacks = |what| Some(NotHere::Tier { tier: tier.as_str(), what });
    match tier {
        Tier::Wasm if !config => return lacks("programs"),
        Tier::Confined if !config && !row.policy.egress.allow.is_empty() => return lacks("way out"),
        Tier::Confined if listens(&row.whole["input"]) => return lacks("sockets and no shared memory"),
        Tier::Microvm if !row.setup.is_empty() && is_live(row) => {
            return lacks("workspace on the host while it runs");
        }
        Tier::Confined | Tier::Namespace | Tier::Gvisor | Tier::Microvm | Tier::Wasm => {}
    }
    match (row.policy.simulate, tier) {
        (Some(Simulate::CgroupUnavailable), _) => Some(NotHere::Groups),
        (Some(Simulate::SandboxUnavailable), Tier::Namespace | Tier::Gvisor) | (None, _) => None,
        (Some(Simulate::SandboxUnavailable), Tier::Confined | Tier::Microvm | Tier::Wasm) => {
            lacks("namespaces that could be taken away")
        }
    }
}

/// What a row needs in a guest and does not find there.
pub(super) fn unasked(row: &Row, lacks: &[String]) -> Option<Unasked> {
    if matches!(row.input, Input::Generated) {
        return Some(Unasked::Generated);
    }
    let missing = lacks.iter().find(|program| says(&row.whole["input"], program));
    missing.map(|program| Unasked::Guest { program: program.clone() })
}

/// A tool that a row speaks of and that is not here. A name that nobody knows may be the attack: a model invents it.
fn missing_tool(row: &Row) -> Option<&str> {
    let absent = |name: &&str| Tool::from_name(our_name(name)).is_none();
    let listed = row.policy.role_tools.iter().flatten().map(String::as_str);
    let called: Vec<&str> = match &row.input {
        Input::Calls { calls, .. } | Input::Parallel(calls) => {
            calls.iter().map(|call| call.name.as_str()).collect()
        }
        Input::Runs { runs, .. } => runs.iter().flatten().map(|call| call.name.as_str()).collect(),
        Input::Turns(turns) => {
            let said = turns.iter().flat_map(|turn| &turn.calls).map(|call| call.name.as_str());
            said.filter(|name| KNOWN.contains(name)).collect()
        }
        Input::Command(_)
        | Input::Generated
        | Input::ImportArchive { .. }
        | Input::Config(_)
        | Input::ConfigRaw(_)
        | Input::Gate { .. }
        | Input::Request { .. } => Vec::new(),
    };
    listed.chain(called).find(absent)
}

/// Whether a program in the input makes a socket that others can reach, or shares memory between processes.
fn listens(input: &Value) -> bool {
    contains(input, &|text| text.contains("listen(") || text.contains("multiprocessing"))
}

/// Whether a text names a program as a word.
fn says(input: &Value, program: &str) -> bool {
    let word = |c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-';
    contains(input, &|text| text.split(word).any(|part| part == program))
}

fn contains(value: &Value, so: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => so(text),
        Value::Array(items) => items.iter().any(|item| contains(item, so)),
        Value::Object(map) => map.values().any(|item| contains(item, so)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether an archive is taken as a workspace: tried with the smallest one there is.
pub(super) fn archives(tier: Tier, scratch: &Path, cancel: &Cancel) -> bool {
    let tried = || -> Result<bool, Trouble> {
        std::fs::write(scratch.join("one.tar"), one_file())?;
        let mut command = door::ourselves(scratch);
        let name = tier.as_str();
        command.args(["exec", "--data", "data", "--tier", name, "--floor", name]);
        command.args(["--workspace", "one.tar", "--", "cat", "a"]);
        let ran = Program::start(&mut command, scratch, "archive")?.ended(cancel, PATIENCE, || {})?;
        Ok(ran.code == Some(0) && ran.out == "x")
    };
    tried().unwrap_or(false)
}

/// An archive of one file `a` that holds `x`.
fn one_file() -> Vec<u8> {
    let mut head = [0_u8; 512];
    let fields: [(usize, &[u8]); 8] = [
        (0, b"a"),
        (100, b"0000644\0"),
        (108, b"0000000\0"),
        (116, b"0000000\0"),
        (124, b"00000000001\0"),
        (136, b"00000000000\0"),
        (148, b"        "),
        (156, b"0ustar\x0000"),
    ];
    for (at, bytes) in fields {
        head[at..at + bytes.len()].copy_from_slice(bytes);
    }
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut all = head.to_vec();
    all.push(b'x');
    all.resize(512 * 4, 0);
    all
}
