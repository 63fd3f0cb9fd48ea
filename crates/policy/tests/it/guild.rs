use std::time::Duration;

use policy::{Code, Faults, Guild, LimitKey, Tool};

use crate::{about, tells, told};

fn parse(text: &str) -> Result<Guild, Faults> {
    Guild::parse("guild.toml", text)
}

fn faults(text: &str) -> Faults {
    parse(text).expect_err(text)
}

/// A sound Guild of one role, with more text at its end.
fn with(more: &str) -> String {
    format!(
        "schema = 1\nname = \"mender\"\nentry = \"coder\"\n[roles.coder]\nprompt = \"prompts/coder.md\"\n\
         tools = [\"finish\"]\n{more}"
    )
}

/// A sound Guild whose only role has these tools.
fn with_tools(tools: &str) -> String {
    with("").replace("\"finish\"", tools)
}

const FULL: &str = r#"
schema = 1
name   = "mender"
entry  = "coder"

[roles.coder]
prompt = "prompts/coder.md"
tools  = ["list_dir", "read_file", "search", "edit_file", "write_file", "run_shell", "agent", "finish"]
agents = ["reviewer"]
budget = { tool_calls = 60, tokens = 200_000, steps = 5 }
generation = { temperature = 0, max_tokens = 1024 }

[roles.reviewer]
prompt = "prompts/reviewer.md"
tools  = ["list_dir", "read_file", "search", "finish"]

[limits]
timeout = "30s"
memory = "1GiB"
cpu = "1m"
[network]
allow = []
"#;

#[test]
fn every_key_of_the_format_arrives() {
    let guild = parse(FULL).expect("the full file");
    assert_eq!((guild.name.as_str(), guild.entry.as_str()), ("mender", "coder"));
    assert_eq!(guild.timeout, Some(Duration::from_secs(30)));
    assert_eq!((guild.limits[&LimitKey::Memory], guild.limits[&LimitKey::Cpu]), (1 << 30, 60_000));
    let coder = &guild.roles[&guild.entry];
    assert_eq!(coder.tools.len(), 8);
    assert_eq!(coder.agents.iter().map(|a| a.as_str()).collect::<Vec<_>>(), ["reviewer"]);
    assert_eq!((coder.tool_calls, coder.tokens, coder.steps), (Some(60), Some(200_000), Some(5)));
    assert_eq!((coder.generation.temperature, coder.generation.max_tokens), (0.0, 1024));
}

#[test]
fn all_faults_of_a_file_are_told_at_once_in_order() {
    let text = "\
schema = 2
name = \"a b\"
entry = \"codr\"
[roles.coder]
prompt = \"../x\"
tools = [\"run_shel\", \"finish\", \"finish\"]
agents = [\"nobody\"]
[roles.reviewer]
promt = \"p.md\"
generation = { temperature = 3 }
";
    assert_eq!(
        told(&faults(text)),
        [
            "bad-value schema@1:10",
            "bad-value name@2:8",
            "unknown-role entry@3:9",
            "path-escapes roles.coder.prompt@5:10",
            "unknown-tool roles.coder.tools[0]@6:10",
            "bad-value roles.coder.tools[2]@6:32",
            "unknown-role roles.coder.agents[0]@7:11",
            "missing-key roles.reviewer.prompt@8:8",
            "missing-key roles.reviewer.tools@8:8",
            "unknown-key roles.reviewer.promt@9:1",
            "bad-value roles.reviewer.generation.temperature@10:30",
        ]
    );
}

#[test]
fn r28_only_the_deployment_sets_isolation_shell_secrets_and_model() {
    for table in ["isolation", "shell", "secrets", "model", "call", "budget", "records"] {
        let wrong = faults(&with(&format!("[{table}]\n")));
        assert!(tells(&wrong, Code::UnknownKey, table), "{table}");
        assert!(about(&wrong, table).contains("only the deployment"), "{table}: {wrong}");
    }
}

#[test]
fn r58_a_guild_with_a_key_is_refused_and_the_key_not_repeated() {
    for value in
        ["sk-Zq81kfja93jfkAAw02", "ghp_Zq81kfja93jfk", "AKIAZQ81KFJA93JF", "-----BEGIN Zq81 PRIVATE KEY-----"]
    {
        for text in [
            with("").replace("prompts/coder.md", value),
            with("").replace("mender", value),
            with_tools(&format!("\"{value}\"")),
            with(&format!("[limits]\nmemory = \"{value}\"")),
            with(&format!("[roles.coder.{value:?}]\nx = 1")),
            with(&format!("[extra]\nnote = [\"{value}\"]")),
            with(&format!("# for now: {value}")),
        ] {
            let wrong = faults(&text);
            assert!(wrong.iter().any(|f| f.code == Code::LiteralSecret), "{text}: {wrong}");
            assert!(!format!("{wrong:?}").to_lowercase().contains("zq81"), "{wrong}");
        }
    }
    // By its line, and without a word of it.
    let wrong = faults(
        "# one\n# Authorization: Bearer abcdZq8101234567\nschema = 1\nname = \"a\"\nentry = \"b\"\nroles = {}\n",
    );
    assert!(
        wrong.to_string().contains(":2:1: [literal-secret]") && !wrong.to_string().contains("Zq81"),
        "{wrong}"
    );
    let wrong = faults(&with("api_key = \"anything\""));
    assert!(tells(&wrong, Code::LiteralSecret, "roles.coder.api_key"));
}

#[test]
fn w8_a_prompt_path_never_leaves_the_guild() {
    for path in [
        "../x",
        "/etc/passwd",
        "a/../../b",
        "a/..",
        "..",
        ".",
        "",
        "./x",
        "a//b",
        "a/",
        "a\\\\b",
        "..\\\\x",
        "a\\u0000b",
        "a\\nb",
        "C:\\\\x",
    ] {
        let wrong = faults(&with("").replace("prompts/coder.md", path));
        assert_eq!(told(&wrong), ["path-escapes roles.coder.prompt@5:10"], "{path}");
    }
}

#[test]
fn w3_a_name_with_leading_dots_is_a_name() {
    assert!(parse(&with("").replace("prompts/coder.md", "prompts/..foo")).is_ok());
}

#[test]
fn r1_a_tool_is_named_exactly_or_not_at_all() {
    for name in
        ["Run_Shell", "run_shell ", " run_shell", "run-shell", "r\u{443}n_shell", "runshell", "run_shel"]
    {
        let wrong = faults(&with_tools(&format!("\"{name}\"")));
        assert_eq!(told(&wrong), ["unknown-tool roles.coder.tools[0]@6:10"], "{name}");
        assert!(
            about(&wrong, "roles.coder.tools[0]").contains("did you mean `run_shell`?"),
            "{name}: {wrong}"
        );
    }
    for name in ["", "bash", "*", "all"] {
        let wrong = faults(&with_tools(&format!("\"{name}\"")));
        assert!(tells(&wrong, Code::UnknownTool, "roles.coder.tools[0]"), "{name}");
    }
}

#[test]
fn a_tool_of_a_later_version_says_so() {
    let wrong = faults(&with_tools("\"ask_human\""));
    assert!(about(&wrong, "roles.coder.tools[0]").contains("does not have yet"));
}

#[test]
fn a_tool_of_its_own_is_listed_by_its_name_and_takes_no_other_tools() {
    let table = |name: &str| format!("[tools.{name}]\nmanifest = \"t.json\"\nmodule = \"t.wasm\"\n");
    let guild = parse(&(with_tools("\"count\"") + &table("count"))).expect("a tool of its own");
    let role = &guild.roles[&guild.entry];
    assert_eq!((role.tools.len(), role.own_tools.as_slice()), (0, &["count".to_owned()][..]));
    assert_eq!(guild.tools["count"].module.as_str(), "t.wasm");
    for taken in ["read_file", "fetch_url", "run_shell", "Read_File", "read-file", "FINISH", "Fetch-URL"] {
        let wrong = faults(&with(&table(taken)));
        assert!(about(&wrong, &format!("tools.{taken}")).contains("built-in"), "{taken}");
    }
    let out = faults(&with("[tools.count]\nmanifest = \"../t.json\"\nmodule = \"/t.wasm\"\n"));
    assert!(tells(&out, Code::PathEscapes, "tools.count.manifest"));
    assert!(tells(&out, Code::PathEscapes, "tools.count.module"));
    assert!(tells(&faults(&with_tools("\"count\"")), Code::UnknownTool, "roles.coder.tools[0]"));
}

/// R25: what is not listed is not there; an empty list is no tool at all.
#[test]
fn r25_an_empty_tool_list_is_no_tool() {
    let guild = parse(&with_tools("")).expect("no tools");
    assert_eq!(guild.roles[&guild.entry].tools, Vec::<Tool>::new());
    assert!(tells(
        &faults(&with("").replace("tools = [\"finish\"]\n", "")),
        Code::MissingKey,
        "roles.coder.tools"
    ));
}

#[test]
fn the_agent_tool_and_its_roles_go_together() {
    let without_tool = faults(&with("agents = [\"coder\"]"));
    assert!(about(&without_tool, "roles.coder.agents").contains("lacks the tool `agent`"));
    let without_roles = faults(&with_tools("\"agent\""));
    assert!(about(&without_roles, "roles.coder.agents").contains("is empty"));
}

#[test]
fn names_of_roles_are_plain() {
    for name in ["\"../x\"", "\"a b\"", "\"\"", "\"-x\"", "\"r\u{443}\""] {
        let wrong = faults(&with(&format!("[roles.{name}]\nprompt = \"p\"\ntools = []\n")));
        assert!(
            about(&wrong, wrong.iter().next().map_or("", |f| &f.key)).contains("role's name"),
            "{name}: {wrong}"
        );
    }
}

#[test]
fn a_guild_has_at_most_a_thousand_roles() {
    let more = |n: usize| -> String {
        (1..n).map(|i| format!("[roles.r{i}]\nprompt = \"p\"\ntools = []\n")).collect()
    };
    assert_eq!(parse(&with(&more(1000))).expect("a thousand").roles.len(), 1000);
    assert_eq!(told(&faults(&with(&more(1001)))), ["bad-value roles@4:2"]);
}

#[test]
fn an_empty_guild_lacks_every_required_key() {
    assert_eq!(
        told(&faults("")),
        ["missing-key entry@1:1", "missing-key name@1:1", "missing-key roles@1:1", "missing-key schema@1:1"]
    );
}

#[test]
fn more_destinations_than_can_be_compared_are_a_fault() {
    let list = |many: usize| {
        let all: Vec<String> = (0..many).map(|n| format!("\"h{n}.example.com:443\"")).collect();
        with(&format!("[network]\nallow = [{}]\n", all.join(", ")))
    };
    assert_eq!(parse(&list(1000)).map(|guild| guild.network.len()), Ok(1000));
    let found = faults(&list(1001)).to_string();
    assert!(found.contains("`network.allow`: has 1001 destinations"), "{found}");
}
