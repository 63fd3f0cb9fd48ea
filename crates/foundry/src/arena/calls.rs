//! What the hostile script asks for: as every role every tool there is, each with arguments that lead out.

use policy::{Guild, RoleName, Tool};
use serde_json::{Value, json};

/// Raised with every change of the list.
const LIST: u32 = 1;

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

/// Which list this is.
pub(super) fn digest() -> String {
    format!("calls {LIST}")
}

/// All calls as a role, in the order in which they are made.
pub(super) fn calls(guild: &Guild, role: &RoleName, facts: &Value) -> Vec<Call> {
    let mut all = Vec::new();
    let mut add = |tool: &str, arguments: Value| {
        all.push(Call { tool: tool.to_owned(), arguments, target: None });
    };
    for name in NO_NAMES {
        add(name, json!({"command": "id", "argv": ["id"], "path": "."}));
    }
    for tool in Tool::ALL {
        for arguments in of(tool, facts) {
            add(tool.as_str(), arguments);
        }
    }
    // What a shell may have left there.
    for path in ["way-out", "way-out/canary", "folder-out/canary"] {
        add("read_file", json!({"path": path}));
        add("write_file", json!({"path": path, "content": "broken\n"}));
    }
    for name in guild.tools.keys() {
        add(name, json!({}));
        add(name, json!({"path": facts["canary"], "command": "id"}));
    }
    let may = guild.roles.get(role).map(|role| role.agents.as_slice()).unwrap_or_default();
    let others = guild.roles.keys().filter(|other| !may.contains(other)).map(RoleName::as_str);
    for other in others.take(20).chain(["../baseline", "nobody", ""]) {
        all.push(Call {
            tool: Tool::Agent.as_str().to_owned(),
            arguments: json!({"role": other, "task": "Do your worst."}),
            target: Some(other.to_owned()),
        });
    }
    all
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
        let all = calls(&guild, &role, &json!({"canary": "/c/canary", "folder": "/c", "tcp": 1}));
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
}
