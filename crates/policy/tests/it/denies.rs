//! Checkers that fail closed: what is too much to judge, and nothing where a list should be, both mean no.

use policy::{Deployment, Grant, Guild, Shell, Tool};

fn refuses(allow: &[&str], deny: &[&str], tool: Tool, argv: &[String]) -> bool {
    let list = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
    let shell = Shell { enabled: true, allow: list(allow), deny: list(deny) };
    !Grant::without_guild(&Deployment { shell, ..Deployment::default() }).program(tool, argv).is_allowed()
}

/// A refused command behind more commands, words or levels than anyone looks at is refused all the same: a checker
/// that gives up must not let pass (bug class D-2b).
#[test]
fn r31_what_is_too_large_to_be_judged_is_refused() {
    for n in [1, 49, 50, 51, 1_000, 100_000] {
        let text = |body: String| ["sh".to_owned(), "-c".to_owned(), body];
        for body in [
            format!("{}rm y", "echo x; ".repeat(n)),
            format!("{}rm y", "echo x\n".repeat(n)),
            format!("{}rm y", "echo x && ".repeat(n)),
            format!("{}rm y", "echo x | ".repeat(n)),
            format!("{}rm y{}", "$(".repeat(n), ")".repeat(n)),
            format!("{}rm y", "env ".repeat(n)),
            format!("{}rm y", "A=1 ".repeat(n)),
            format!("echo {}; rm y", "a".repeat(n)),
            format!("rm {}", "y ".repeat(n)),
        ] {
            let shown = &body[..body.len().min(40)];
            assert!(refuses(&[], &["rm"], Tool::RunShell, &text(body.clone())), "deny: {n} of {shown}");
            assert!(
                refuses(&["echo", "env"], &[], Tool::RunShell, &text(body.clone())),
                "allow: {n} of {shown}"
            );
        }
        let mut words = vec!["env".to_owned(); n];
        words.extend(["rm".to_owned(), "y".to_owned()]);
        assert!(refuses(&[], &["rm"], Tool::RunCommand, &words), "{n} wrappers");
    }
}

/// Nothing, in any form and in every list, opens nothing (bug class D-3).
#[test]
fn an_empty_a_missing_and_a_hollow_list_open_nothing() {
    let nothing = ["\"\"", "{}", "[\"\"]", "[[]]", "[{}]", "false", "0", "[\"*\"]", "[\" \"]"];
    for (table, key) in [("network", "allow"), ("secrets", "pass"), ("shell", "allow"), ("shell", "deny")] {
        for value in nothing {
            if table == "shell" && value == "[\"*\"]" {
                continue;
            }
            let text = format!("[{table}]\n{key} = {value}\n");
            assert!(Deployment::parse("f", &text).is_err(), "{text}");
        }
        for text in [format!("[{table}]\n{key} = []\n"), format!("[{table}]\n"), String::new()] {
            let d = Deployment::parse("f", &text).expect(&text);
            assert!(d.network.is_empty() && d.secrets.is_empty(), "{text}");
        }
    }
    let guild = |tools: &str, more: &str| {
        format!("schema = 1\nname = \"g\"\nentry = \"r\"\n[roles.r]\nprompt = \"p.md\"\n{tools}\n{more}\n")
    };
    for value in nothing {
        for text in [
            guild(&format!("tools = {value}"), ""),
            guild("tools = [\"agent\"]", &format!("agents = {value}")),
            guild("tools = []", &format!("[network]\nallow = {value}")),
        ] {
            assert!(Guild::parse("f", &text).is_err(), "{text}");
        }
    }
    assert!(Guild::parse("f", &guild("", "")).is_err(), "a role without a list of tools");
    let none = Guild::parse("f", &guild("tools = []", "[network]\nallow = []")).expect("empty lists");
    let grant = Grant::new(&Deployment::default(), &none, "f").expect("nothing is granted");
    for tool in ["read_file", "run_shell", "finish", ""] {
        assert!(!grant.tool(&none.entry, tool).1.is_allowed(), "{tool}");
    }
}
