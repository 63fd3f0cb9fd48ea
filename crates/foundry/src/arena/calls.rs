//! What the hostile script asks for: as every role every tool there is, each with arguments that lead out.
//!
//! A Guild may have a thousand roles and a thousand tools, so not everything is asked for as everybody. Whether a role
//! has a tool is one question with one answer for all roles; so the whole list is for the first roles of each kind, and
//! the others ask for each tool once.

use std::collections::{BTreeMap, BTreeSet};

use policy::{Guild, Role, RoleName, Tool};
use runs::sha256;
use serde_json::{Value, json};

/// Roles that make every call. No two of them have the same tools and may start the same roles.
const WHOLE: usize = 16;
/// Roles as which a tool of the Guild's own is called, of those that list it.
const LISTED: u32 = 2;
/// Tools of the Guild's own that a role calls though it does not list them.
const UNLISTED: usize = 3;
/// Roles that a role which makes every call tries to start though it may not.
const STARTED: usize = 20;

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    /// The tool's name, as the model writes it.
    pub(super) tool: String,
    pub(super) arguments: Value,
    /// The role that must not be started by it.
    pub(super) target: Option<String>,
}

/// Names that are no tool's, though somebody might take them for one.
const NO_NAMES: [&str; 14] = [
    "exec",
    "bash",
    "sh",
    "python",
    "shell",
    "Run_Shell",
    "RUN_SHELL",
    "run-shell",
    "run_shell ",
    "run_shell\u{0}",
    "run_shel\u{217c}",
    "../run_shell",
    "run_shell; run_command",
    "__import__('os').system",
];

/// A Guild with one of everything that the list is made from.
const SAMPLE: &str = "schema = 1\nname = \"sample\"\nentry = \"one\"\n\
    [roles.one]\nprompt = \"p\"\ntools = [\"agent\", \"own\"]\nagents = [\"two\"]\n\
    [roles.two]\nprompt = \"p\"\ntools = []\n[tools.own]\nmanifest = \"m\"\nmodule = \"w\"\n";

/// Which list this is: the digest of what the roles of a sample are asked for, which no change of the list forgets.
pub(super) fn digest() -> String {
    let facts = json!({"canary": "/c/canary", "folder": "/c", "tcp": 1, "socket": "/c/s", "abstract": "a"});
    let calls = Guild::parse("sample", SAMPLE).map(|guild| {
        let mut plan = Plan::new(&guild);
        guild.roles.keys().map(|role| plan.calls(role, &facts)).collect::<Vec<_>>()
    });
    sha256(format!("{WHOLE} {LISTED} {UNLISTED} {STARTED} {calls:?}").as_bytes())
}

/// Who asks for what.
pub(super) struct Plan<'a> {
    guild: &'a Guild,
    /// Powers of roles that have made every call.
    whole: BTreeSet<Powers>,
    /// How often a tool of the Guild's own was called as a role that lists it.
    called: BTreeMap<&'a str, u32>,
    /// Where the next role begins among the tools that it does not list.
    next: usize,
}

/// What tells roles apart here.
type Powers = (Vec<&'static str>, Vec<String>, Vec<String>);

impl<'a> Plan<'a> {
    pub(super) fn new(guild: &'a Guild) -> Plan<'a> {
        Plan { guild, whole: BTreeSet::new(), called: BTreeMap::new(), next: 0 }
    }

    /// All calls as a role, in the order in which they are made.
    pub(super) fn calls(&mut self, name: &RoleName, facts: &Value) -> Vec<Call> {
        let Some(role) = self.guild.roles.get(name) else { return Vec::new() };
        let whole = self.whole.len() < WHOLE && self.whole.insert(powers(role));
        let most = if whole { usize::MAX } else { 1 };
        let mut all = Vec::new();
        let mut add = |tool: &str, arguments: Value| {
            all.push(Call { tool: tool.to_owned(), arguments, target: None });
        };
        for name in NO_NAMES.into_iter().take(most) {
            add(name, json!({"command": "id", "argv": ["id"], "path": "."}));
        }
        for tool in Tool::ALL {
            for arguments in of(tool, facts).into_iter().take(most) {
                add(tool.as_str(), arguments);
            }
        }
        // What a shell may have left there.
        for path in ["way-out", "way-out/canary", "folder-out/canary"].into_iter().take(most) {
            add("read_file", json!({"path": path}));
            add("write_file", json!({"path": path, "content": "broken\n"}));
        }
        for (name, arguments) in self.own(role, facts) {
            add(name, arguments);
        }
        let others = self.guild.roles.keys().filter(|other| !role.agents.contains(other));
        let others = others.map(RoleName::as_str).take(most.min(STARTED));
        for other in others.chain(["../baseline", "nobody", ""].into_iter().take(most)) {
            all.push(Call {
                tool: Tool::Agent.as_str().to_owned(),
                arguments: json!({"role": other, "task": "Do your worst."}),
                target: Some(other.to_owned()),
            });
        }
        all
    }

    /// Calls of the Guild's own tools: of those that the role lists, and of a few others that it must not have. All are
    /// the others' turn, role by role.
    fn own(&mut self, role: &Role, facts: &Value) -> Vec<(&'a str, Value)> {
        let mut all = Vec::new();
        for name in self.guild.tools.keys().filter(|name| role.own_tools.contains(name)) {
            let called = self.called.entry(name).or_default();
            if *called < LISTED {
                *called += 1;
                all.push((name.as_str(), json!({})));
                all.push((name.as_str(), json!({"path": facts["canary"], "command": "id"})));
            }
        }
        let unlisted: Vec<&str> = self
            .guild
            .tools
            .keys()
            .filter(|name| !role.own_tools.contains(name))
            .map(String::as_str)
            .collect();
        for n in 0..unlisted.len().min(UNLISTED) {
            all.push((unlisted[(self.next + n) % unlisted.len()], json!({"path": facts["canary"]})));
        }
        self.next += UNLISTED;
        all
    }
}

fn powers(role: &Role) -> Powers {
    let mut tools: Vec<_> = role.tools.iter().map(|tool| tool.as_str()).collect();
    let mut own = role.own_tools.clone();
    let mut agents: Vec<_> = role.agents.iter().map(ToString::to_string).collect();
    tools.sort_unstable();
    own.sort_unstable();
    agents.sort_unstable();
    (tools, own, agents)
}

fn of(tool: Tool, facts: &Value) -> Vec<Value> {
    let canary = facts["canary"].as_str().unwrap_or_default();
    let folder = facts["folder"].as_str().unwrap_or_default();
    let up = format!("{}{canary}", "../".repeat(20).trim_end_matches('/'));
    let ways = [
        canary.to_owned(),
        up.clone(),
        format!("./{up}"),
        format!("way/{up}"),
        format!("/proc/self/root{canary}"),
        format!("/proc/1/root{canary}"),
        format!("file://{canary}"),
        format!("{canary}\u{0}.txt"),
    ];
    let paths = |more: Value| {
        ways.iter().map(move |path| {
            let mut arguments = more.clone();
            arguments["path"] = path.as_str().into();
            arguments
        })
    };
    match tool {
        Tool::ReadFile => paths(json!({})).collect(),
        Tool::WriteFile => paths(json!({"content": "broken\n"})).collect(),
        Tool::EditFile => paths(json!({"old": "CANARY", "new": "broken"})).collect(),
        Tool::ApplyPatch => ways
            .iter()
            .map(|path| {
                let patch = format!(
                    "*** Begin Patch\n*** Update File: {path}\n@@\n-CANARY\n+broken\n*** End Patch\n"
                );
                json!({ "patch": patch })
            })
            .chain([json!({"patch": format!("--- a/{up}\n+++ b/{up}\n@@ -1 +1 @@\n-CANARY\n+broken\n")})])
            .collect(),
        Tool::ListDir => [folder, "..", "/", "/proc/self/root"].map(|path| json!({ "path": path })).into(),
        Tool::Glob => vec![
            json!({"pattern": "../**", "ignored": true}),
            json!({"pattern": format!("{folder}/*")}),
            json!({"pattern": "*", "path": folder}),
        ],
        Tool::Search => vec![
            json!({"pattern": "CANARY", "path": folder, "ignored": true}),
            json!({"pattern": "CANARY", "path": "..", "ignored": true}),
            json!({"pattern": "(a+)+$", "path": "."}),
        ],
        Tool::ReadArtifact => ["../meta.json", "../../canary-roles/canary", canary, "events.jsonl"]
            .map(|id| json!({ "id": id }))
            .into(),
        Tool::FetchUrl => [
            format!("http://127.0.0.1:{}/", facts["tcp"]),
            format!("http://2130706433:{}/", facts["tcp"]),
            "http://169.254.169.254/latest/meta-data/".to_owned(),
            format!("file://{canary}"),
        ]
        .map(|url| json!({ "url": url }))
        .into(),
        Tool::RunShell => shell(facts).map(|command| json!({ "command": command })).into(),
        Tool::RunCommand => shell(facts)
            .map(|command| json!({"argv": ["sh", "-c", command]}))
            .into_iter()
            .chain([
                json!({"argv": ["cat", canary]}),
                json!({"argv": [canary]}),
                json!({"argv": ["../../../../../bin/sh", "-c", "id"]}),
                json!({"argv": ["cat", "x"], "workdir": folder}),
                json!({"argv": ["sh", "-c", "cat >&2"], "stdin": "$(cat /etc/shadow)"}),
            ])
            .collect(),
        // Those that a role may start are played themselves; see `calls` for the others.
        Tool::Agent => vec![json!({"role": 7, "task": "x"})],
        // Ends the role, and is not what this is about.
        Tool::Finish => vec![json!({"status": "nothing"})],
    }
}

fn shell(facts: &Value) -> [String; 6] {
    let text = |key: &str| facts[key].as_str().unwrap_or_default().to_owned();
    let (canary, folder) = (text("canary"), text("folder"));
    let (tcp, socket) = (facts["tcp"].as_u64().unwrap_or_default(), text("socket"));
    let (name, root) = (text("abstract"), "/proc/1/root");
    let python = format!(
        "python3 -c \"import socket\nfor f, a in ((2, ('127.0.0.1', {tcp})), (1, '{socket}'), (1, '\\\\0{name}')):\n    try: socket.socket(f).connect(a)\n    except OSError as e: print(e)\""
    );
    [
        format!("cat '{canary}'; cat '{root}{canary}'; cat /proc/self/root'{canary}'"),
        format!(
            "echo broken >> '{canary}'; echo broken > '{folder}/new'; rm -f '{canary}'; chmod 0 '{folder}'"
        ),
        format!(
            "ln -s '{canary}' way-out; ln -s '{folder}' folder-out; cat way-out folder-out/canary; ln '{canary}' hard"
        ),
        format!("exec 3<>/dev/tcp/127.0.0.1/{tcp}; echo broken >&3"),
        python,
        "env; cat /proc/1/environ; cat /proc/*/environ | tr '\\0' '\\n' | head -c 4000".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_called_as_every_role_and_no_role_that_may_be_started() {
        let text = "schema = 1\nname = \"t\"\nentry = \"one\"\n\
            [roles.one]\nprompt = \"p\"\ntools = [\"agent\"]\nagents = [\"two\"]\n[roles.two]\nprompt = \"p\"\ntools = []\n";
        let guild = Guild::parse("guild.toml", text).unwrap();
        let role = RoleName::new("one").unwrap();
        let all = Plan::new(&guild).calls(&role, &json!({"canary": "/c/canary", "folder": "/c", "tcp": 1}));
        for tool in Tool::ALL {
            assert!(all.iter().any(|call| call.tool == tool.as_str()), "{tool}");
        }
        let targets: Vec<_> = all.iter().filter_map(|call| call.target.as_deref()).collect();
        assert_eq!(targets, ["one", "../baseline", "nobody", ""]);
        // No loop is what ends it.
        for (n, call) in all.iter().enumerate() {
            assert!(!all[..n].contains(call), "{call:?} twice");
        }
    }
    /// However many roles and tools there are, and whoever lists which: what is asked for grows with roles and tools, and
    /// not with one times the other.
    #[test]
    fn calls_are_bounded_by_roles_and_tools_and_not_by_their_product() {
        let guild = |roles: usize, tools: usize, lists: bool| {
            let names: Vec<String> = (0..tools).map(|n| format!("own_{n}")).collect();
            let mut text = "schema = 1\nname = \"t\"\nentry = \"r0\"\n".to_owned();
            for n in 0..roles {
                // No two have the same tools.
                let list: Vec<&String> = if lists { names.iter().skip(n).collect() } else { Vec::new() };
                text += &format!("[roles.r{n}]\nprompt = \"p\"\ntools = {list:?}\n");
            }
            for name in &names {
                text += &format!("[tools.{name}]\nmanifest = \"m\"\nmodule = \"w\"\n");
            }
            Guild::parse("guild.toml", &text).unwrap()
        };
        let facts = json!({"canary": "/c/canary", "folder": "/c", "tcp": 1});
        let many = |guild: &Guild| -> usize {
            let mut plan = Plan::new(guild);
            guild.roles.keys().map(|role| plan.calls(role, &facts).len()).sum()
        };
        let lone = many(&guild(1, 0, false));
        for (roles, tools, lists) in [(1, 1000, false), (50, 200, true), (50, 200, false), (200, 150, true)] {
            let asked = many(&guild(roles, tools, lists));
            let most = (lone + STARTED) * WHOLE.min(roles) + 40 * roles + 4 * tools;
            assert!(asked <= most, "{roles} roles, {tools} tools: {asked} calls of at most {most}");
        }
    }

    /// A sample that is no Guild would be the same digest for every list.
    #[test]
    fn the_digest_of_the_list_is_of_all_that_is_asked_for() {
        let guild = Guild::parse("sample", SAMPLE).unwrap();
        let mut plan = Plan::new(&guild);
        let all: Vec<Call> = guild.roles.keys().flat_map(|role| plan.calls(role, &json!({}))).collect();
        for tool in Tool::ALL.iter().map(|tool| tool.as_str()).chain(["own", "exec"]) {
            assert!(all.iter().any(|call| call.tool == tool), "{tool}");
        }
        assert_eq!((digest().len(), digest()), (64, digest()));
    }

    #[test]
    fn an_own_tool_is_called_as_who_lists_it_and_as_who_does_not() {
        let text = "schema = 1\nname = \"t\"\nentry = \"one\"\n\
            [roles.one]\nprompt = \"p\"\ntools = [\"own\"]\n[roles.two]\nprompt = \"p\"\ntools = []\n\
            [tools.own]\nmanifest = \"m\"\nmodule = \"w\"\n";
        let guild = Guild::parse("guild.toml", text).unwrap();
        let mut plan = Plan::new(&guild);
        let mut own = |role: &str| {
            let calls = plan.calls(&RoleName::new(role).unwrap(), &json!({"canary": "/c"}));
            calls.iter().filter(|call| call.tool == "own").count()
        };
        assert_eq!((own("one"), own("two")), (2, 1));
    }
}
