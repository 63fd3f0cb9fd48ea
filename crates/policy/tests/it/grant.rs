use std::time::Duration;

use policy::{Code, Deployment, Grant, Guild, RoleName, Shell, Tool};

use crate::told;

fn guild(more: &str) -> Guild {
    let text = format!(
        "schema = 1\nname = \"mender\"\nentry = \"coder\"\n\
         [roles.coder]\nprompt = \"c.md\"\ntools = [\"read_file\", \"agent\", \"finish\"]\nagents = [\"tester\"]\n\
         [roles.tester]\nprompt = \"t.md\"\ntools = [\"run_shell\", \"finish\"]\n{more}"
    );
    Guild::parse("guild.toml", &text).expect("a sound Guild")
}

fn grant() -> Grant {
    Grant::new(&Deployment::default(), &guild(""), "guild.toml").expect("within the deployment")
}

fn role(name: &str) -> RoleName {
    RoleName::new(name).expect(name)
}

#[test]
fn a_guild_lowers_the_deployment() {
    let more = "budget = { steps = 3 }\n[limits]\ntimeout = \"5s\"\nmemory = \"1MiB\"\ncores = 1\nwall = \"1m\"\n\
                output = 100\n";
    let grant = Grant::new(&Deployment::default(), &guild(more), "g").expect("lower");
    assert_eq!((grant.limits.memory, grant.limits.cores), (1 << 20, 1));
    assert_eq!(grant.limits.wall, Duration::from_secs(60));
    assert_eq!((grant.call.timeout, grant.call.output), (Duration::from_secs(5), 100));
    assert_eq!(grant.roles[&role("tester")].budget.steps, 3);
    assert_eq!(grant.roles[&role("coder")].budget.steps, 60);
    assert_eq!(grant.limits.disk, Deployment::default().limits.disk);
}

#[test]
fn a_guild_bounds_the_processor_time_of_a_call_within_what_the_deployment_gives() {
    let grant =
        Grant::new(&Deployment::default(), &guild("[limits]\ncall_cpu = \"20s\"\n"), "g").expect("lower");
    assert_eq!(grant.call.cpu, Some(Duration::from_secs(20)));
    assert_eq!(grant.limits.cpu, Deployment::default().limits.cpu);
    let deployment = Deployment::parse("o", "[call]\ncpu = \"10s\"\n").expect("sound");
    assert_eq!(Grant::without_guild(&deployment).call.cpu, Some(Duration::from_secs(10)));
    for (deployment, asked) in [(&deployment, "11s"), (&Deployment::default(), "11m")] {
        let asked = guild(&format!("[limits]\ncall_cpu = \"{asked}\"\n"));
        let excess = Grant::new(deployment, &asked, "g").expect_err("too much");
        assert_eq!(told(&excess), ["exceeds limits.call_cpu"]);
    }
}

#[test]
fn a_guild_bounds_what_one_call_takes_within_what_the_deployment_gives() {
    let lower = guild("[limits]\ncall_memory = \"1GiB\"\ncall_processes = 20\ncall_disk = \"10MiB\"\n");
    let grant = Grant::new(&Deployment::default(), &lower, "g").expect("lower");
    let call = &grant.call;
    assert_eq!((call.memory, call.processes, call.disk), (Some(1 << 30), Some(20), Some(10 << 20)));
    assert_eq!(grant.limits, Deployment::default().limits);
    let deployment =
        Deployment::parse("o", "[call]\nmemory = \"1MiB\"\nprocesses = 9\ndisk = \"1MiB\"\n").expect("sound");
    assert_eq!(Grant::without_guild(&deployment).call.processes, Some(9));
    let excess = Grant::new(&deployment, &lower, "g").expect_err("too much");
    let all = ["exceeds limits.call_disk", "exceeds limits.call_memory", "exceeds limits.call_processes"];
    assert_eq!(told(&excess), all);
    let beyond = guild("[limits]\ncall_disk = \"2GiB\"\n");
    assert_eq!(told(&Grant::new(&Deployment::default(), &beyond, "g").expect_err("too much")), all[..1]);
}

#[test]
fn r28_each_excess_is_named() {
    let more = "budget = { steps = 61, tool_calls = 101, tokens = 400_001 }\n[limits]\ntimeout = \"61s\"\n\
                memory = \"3GiB\"\nprocesses = 257\ncpu = \"11m\"\nwall = \"16m\"\ncores = 99999999999\n\
                disk = \"2GiB\"\ntmp = \"1GiB\"\nfiles = 50_001\noutput = \"2MiB\"\n[network]\n\
                allow = [\"example.com:443\"]\n";
    let excess = Grant::new(&Deployment::default(), &guild(more), "g").expect_err("too much");
    assert!(excess.iter().all(|fault| fault.code == Code::Exceeds));
    let keys = [
        "limits.cores",
        "limits.cpu",
        "limits.disk",
        "limits.files",
        "limits.memory",
        "limits.output",
        "limits.processes",
        "limits.timeout",
        "limits.tmp",
        "limits.wall",
        "network.allow",
        "roles.tester.budget.steps",
        "roles.tester.budget.tokens",
        "roles.tester.budget.tool_calls",
    ];
    assert_eq!(told(&excess), keys.map(|key| format!("exceeds {key}")));
}

const HEADER: &str = "{ host = \"api.example.com:443\", \
    header = { name = \"Authorization\", secret_env = \"API_TOKEN\" } }";

fn network(allow: &str) -> Deployment {
    Deployment::parse("o", &format!("[network]\nallow = [{allow}]\n")).expect(allow)
}

fn rules(grant: &Grant) -> Vec<String> {
    grant.network.iter().map(|destination| destination.rule().to_string()).collect()
}

/// R46, D-3: what both name is granted; who asks for nothing, in any form, has nothing.
#[test]
fn r46_a_guild_gets_what_it_asks_for_of_what_the_deployment_gives() {
    let deployment = network("\"a.example.com:443\", \"*.example.org:443\", \"10.0.0.5:80\"");
    assert_eq!(Grant::without_guild(&deployment).network, deployment.network);
    for nothing in ["", "[network]\n", "[network]\nallow = []\n"] {
        assert!(Grant::new(&deployment, &guild(nothing), "g").expect("nothing").network.is_empty());
    }
    let asked =
        |allow: &str| Grant::new(&deployment, &guild(&format!("[network]\nallow = [{allow}]\n")), "g");
    let granted =
        asked("\"A.example.com.:443\", \"x.example.org:443\", \"x.example.org:443\"").expect("given");
    assert_eq!(rules(&granted), ["a.example.com:443", "x.example.org:443"]);
    assert_eq!(rules(&asked("\"*.example.org:443\", \"10.0.0.5:80\"").expect("given")).len(), 2);
    for excess in [
        "a.example.com:80",
        "b.example.com:443",
        "*.example.com:443",
        "x.y.example.org:443",
        "example.org:443",
        "10.0.0.6:80",
        "203.0.113.7:443",
    ] {
        let refused = asked(&format!("\"{excess}\"")).expect_err(excess);
        assert_eq!(told(&refused), ["exceeds network.allow"], "{excess}");
    }
}

/// R58: a Guild names a host, and the header that the operator put to it comes along, by its variable's name.
#[test]
fn r58_the_header_of_a_destination_is_the_deployments_alone() {
    let deployment = network(HEADER);
    let grant = Grant::new(&deployment, &guild("[network]\nallow = [\"api.example.com:443\"]\n"), "g");
    let grant = grant.expect("given");
    let header = grant.network[0].header().expect("a header");
    assert_eq!((header.name.as_str(), header.secret_env.as_str()), ("authorization", "API_TOKEN"));
    let text = format!(
        "schema = 1\nname = \"g\"\nentry = \"r\"\n[roles.r]\nprompt = \"p.md\"\ntools = []\n\
         [network]\nallow = [{HEADER}]\n"
    );
    let wrong = told(&Guild::parse("g", &text).expect_err("a table"));
    assert!(wrong.len() == 1 && wrong[0].starts_with("wrong-type network.allow[0]"), "{wrong:?}");
}

#[test]
fn r1_r25_a_role_calls_exactly_its_own_tools() {
    let grant = grant();
    let (tool, decision) = grant.tool(&role("coder"), "read_file");
    assert!(tool == Some(Tool::ReadFile) && decision.is_allowed());
    for name in ["run_shell", "Read_File", "read_file ", "", "read_file\0", "bash", "r\u{435}ad_file"] {
        let (tool, decision) = grant.tool(&role("coder"), name);
        assert!(tool.is_none() && !decision.is_allowed(), "{name}");
        assert_eq!(decision.rule, "role-tools");
        assert!(decision.reason.ends_with("its tools are read_file, agent, finish"), "{}", decision.reason);
    }
    assert!(!grant.tool(&role("stranger"), "read_file").1.is_allowed());
}

#[test]
fn r4_a_refusal_repeats_little_of_what_the_model_wrote() {
    let name = format!("\u{1b}[2J{}", "x".repeat(100_000));
    let reason = grant().tool(&role("coder"), &name).1.reason;
    assert!(reason.len() < 200 && reason.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{reason}");
}

#[test]
fn r26_a_switched_off_shell_starts_nothing() {
    let shell = Shell { enabled: false, ..Deployment::default().shell };
    let grant = Grant::without_guild(&Deployment { shell, ..Deployment::default() });
    for (tool, argv) in [(Tool::RunShell, vec!["sh", "-c", "true"]), (Tool::RunCommand, vec!["true"])] {
        let argv: Vec<String> = argv.into_iter().map(str::to_owned).collect();
        assert_eq!(grant.program(tool, &argv).rule, "shell-off");
        assert!(!grant.program(tool, &argv).is_allowed());
    }
}

#[test]
fn a_tool_that_runs_no_program_starts_none() {
    let argv = ["true".to_owned()];
    for tool in Tool::ALL.into_iter().filter(|t| t.power() != policy::Power::Execute) {
        assert!(!grant().program(tool, &argv).is_allowed(), "{tool}");
    }
    assert!(grant().program(Tool::RunCommand, &argv).is_allowed());
}

/// Names that are granted, each on one port.
fn names(count: usize) -> String {
    let names: Vec<String> = (0..count).map(|n| format!("\"h{n}.example.org:443\"")).collect();
    format!("[network]\nallow = [{}]\n", names.join(", "))
}

/// What is told here is told at the start by nobody else.
#[test]
fn a_guild_that_asks_for_more_than_a_sandbox_has_room_for_is_told_so() {
    let deployment = Deployment::parse("o", &names(200)).expect("a Guild may take some of it");
    assert!(Grant::new(&deployment, &guild(&names(128)), "g").is_ok());
    let too_many = Grant::new(&deployment, &guild(&names(129)), "g").expect_err("no room");
    assert_eq!(told(&too_many), ["bad-value network.allow"]);
    let text = too_many.to_string();
    assert!(text.contains("has 129 ports of names, and a sandbox has room for 128"), "{text}");
}

#[test]
fn where_no_socket_is_made_a_grant_has_room() {
    for (tier, room) in [("confined", true), ("wasm", true), ("namespace", false), ("auto", false)] {
        let text = format!("{}[isolation]\ntier = \"{tier}\"\n", names(129));
        let deployment = Deployment::parse("o", &text).expect("sound");
        assert_eq!(Grant::new(&deployment, &guild(&names(129)), "g").is_ok(), room, "{tier}");
        assert_eq!(Grant::without_guild(&deployment).has_room().is_ok(), room, "{tier}");
    }
}
