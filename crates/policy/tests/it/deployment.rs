use std::path::PathBuf;
use std::time::Duration;

use policy::{Code, Deployment, Faults, Rootfs, Surroundings, Tier, TierChoice};

use crate::{about, tells, told};

fn parse(text: &str) -> Result<Deployment, Faults> {
    Deployment::parse("oubliette.toml", text)
}

fn faults(text: &str) -> Faults {
    parse(text).expect_err(text)
}

/// The deployment of the format's description, every key of it.
const FULL: &str = r#"
[model]
base_url    = "http://127.0.0.1:8080/v1/"
name        = "qwen3-coder"
api_key_env = "OUBLIETTE_MODEL_KEY"
min_context = 8192
[isolation]
tier  = "auto"
floor = "namespace"
surroundings = "gvisor"
rootfs = "./rootfs"
[limits]
wall = "15m"
cpu = "10m"
cores = 3
memory = "3GiB"
processes = 200
disk = 1048576
tmp = "256MiB"
files = 50_000
[call]
timeout = "45s"
output = "2MiB"
flood = "3MiB"
to_model = 9_000
[shell]
enabled = true
allow = ["git status", "ls"]
deny  = ["shutdown"]
[network]
allow = []
open = 10
connections = 500
up = "5MiB"
down = "6GiB"
rate = "7MiB"
idle = "8s"
lifetime = "9m"
[secrets]
pass = ["REGISTRY_TOKEN"]
[budget]
steps = 61
tool_calls = 101
tokens = 400_001
wall = "16m"
depth = 5
repeats = 6
format_errors = 7
[records]
dir = "runs"
keep = "7d"
max_bytes = "1GiB"
"#;

#[test]
fn every_key_of_the_format_arrives() {
    let d = parse(FULL).expect("the full file");
    assert_eq!(d.model.base_url, "http://127.0.0.1:8080/v1");
    assert_eq!(d.model.api_key_env.as_ref().map(|n| n.as_str()), Some("OUBLIETTE_MODEL_KEY"));
    assert_eq!((d.model.name.as_str(), d.model.min_context), ("qwen3-coder", 8192));
    assert_eq!((d.isolation.tier, d.isolation.floor), (TierChoice::Auto, Tier::Namespace));
    assert_eq!(d.isolation.surroundings, Surroundings::Gvisor);
    assert_eq!(d.isolation.rootfs, Rootfs::Folder(PathBuf::from("./rootfs")));
    assert_eq!((d.limits.memory, d.limits.disk, d.limits.cores), (3 << 30, 1 << 20, 3));
    assert_eq!(d.limits.processes, 200);
    assert_eq!(d.call.timeout, Duration::from_secs(45));
    assert_eq!((d.call.output, d.call.flood, d.call.to_model), (2 << 20, 3 << 20, 9000));
    assert_eq!((d.shell.allow.len(), d.shell.deny.len()), (2, 1));
    assert_eq!((d.traffic.open, d.traffic.connections), (10, 500));
    assert_eq!((d.traffic.up, d.traffic.down, d.traffic.rate), (5 << 20, 6 << 30, Some(7 << 20)));
    assert_eq!((d.traffic.idle.as_secs(), d.traffic.lifetime.as_secs()), (8, 540));
    assert_eq!(d.secrets.len(), 1);
    assert_eq!((d.budget.steps, d.budget.tool_calls, d.budget.tokens), (61, 101, 400_001));
    assert_eq!((d.budget.depth, d.budget.repeats, d.budget.format_errors), (5, 6, 7));
    assert_eq!(d.records.keep, Duration::from_secs(7 * 24 * 3600));
}

#[test]
fn what_is_left_out_has_its_default() {
    assert_eq!(parse("").expect("empty"), Deployment::default());
    let headers = "[model]\n[isolation]\n[limits]\n[call]\n[shell]\n[network]\n[secrets]\n[budget]\n[ceiling]\n[records]\n";
    assert_eq!(parse(headers).expect("empty tables"), Deployment::default());
}

#[test]
fn r51_the_default_floor_is_a_boundary_for_untrusted_code() {
    assert_eq!(Deployment::default().isolation.floor, Tier::Gvisor);
}

/// An empty list opens nothing: no destination, no secret.
#[test]
fn an_empty_list_is_never_all() {
    let d = parse("[network]\nallow = []\n[secrets]\npass = []\n").expect("empty lists");
    assert!(d.network.is_empty() && d.secrets.is_empty());
}

#[test]
fn all_faults_of_a_file_are_told_at_once_in_order() {
    let text = "\
[model]
nmae = \"x\"
base_url = \"https://example.com/v1\"
[isolation]
tier = \"gvisr\"
floor = 3
[limits]
memory = \"2 gb\"
cores = 0
[budget]
wall = \"0s\"
steps = -1
[sell]
";
    assert_eq!(
        told(&faults(text)),
        [
            "unknown-key model.nmae@2:1",
            "bad-value model.base_url@3:12",
            "bad-value isolation.tier@5:8",
            "wrong-type isolation.floor@6:9",
            "bad-value limits.memory@8:10",
            "bad-value limits.cores@9:9",
            "bad-value budget.wall@11:8",
            "bad-value budget.steps@12:9",
            "unknown-key sell@13:2",
        ]
    );
}

#[test]
fn a_misspelt_word_names_the_nearest() {
    let wrong = faults("[modle]\n[isolation]\ntier = \"gvisr\"\nflor = \"x\"\n[limits]\nzzz = 1\n");
    assert!(about(&wrong, "modle").contains("did you mean `model`?"));
    assert!(about(&wrong, "isolation.tier").contains("did you mean `gvisor`?"));
    assert!(about(&wrong, "isolation.flor").contains("did you mean `floor`?"));
    assert!(about(&wrong, "limits.zzz").contains("the keys here are `wall`, `cpu`"));
}

#[test]
fn r41_no_bound_is_unlimited() {
    for (key, value) in [
        ("limits.memory", "0"),
        ("limits.memory", "\"0MiB\""),
        ("limits.wall", "\"0s\""),
        ("limits.processes", "0"),
        ("limits.files", "-1"),
        ("call.to_model", "0"),
        ("budget.tokens", "0"),
        ("model.min_context", "0"),
        ("network.connections", "0"),
        ("network.rate", "\"0MiB\""),
    ] {
        let wrong = faults(&format!("{key} = {value}"));
        assert!(about(&wrong, key).contains("never unlimited"), "{key} = {value}: {wrong}");
    }
    for (key, value) in [
        ("limits.memory", "inf"),
        ("limits.memory", "1.5"),
        ("limits.processes", "99999999999"),
        ("limits.files", "99999999999999999999999"),
        ("limits.wall", "90"),
        ("network.open", "257"),
        ("network.connections", "20001"),
        ("network.rate", "\"5MiB/s\""),
    ] {
        assert_eq!(faults(&format!("{key} = {value}")).iter().count(), 1, "{key} = {value}");
    }
}

/// What ends a call is never less than what is kept of it.
#[test]
fn r44_a_flood_below_the_output_that_is_kept_is_a_fault() {
    let wrong = faults("[call]\noutput = \"2MiB\"\nflood = \"1MiB\"\n");
    assert!(about(&wrong, "call.flood").contains("less than `call.output`"), "{wrong}");
    let kept = parse("[call]\noutput = \"8GiB\"\n").expect("more is kept than usual");
    assert_eq!((kept.call.output, kept.call.flood), (8 << 30, 8 << 30));
}

#[test]
fn r58_a_literal_key_is_refused_and_never_repeated() {
    const KEY: &str = "sk-proj-Zq81kfja93jfkAAw02";
    for (text, key) in [
        (format!("[model]\napi_key_env = \"{KEY}\""), "model.api_key_env"),
        (format!("[model]\napi_key = \"{KEY}\""), "model.api_key"),
        (format!("[model]\ntoken = \"{KEY}\""), "model.token"),
        (format!("[model]\nkey = \"{KEY}\""), "model.key"),
        (format!("[model]\nbase_url = \"http://{KEY}@h/v1\""), "model.base_url"),
        (format!("[model]\nname = \"{KEY}\""), "model.name"),
        (format!("[secrets]\npass = [\"{KEY}\"]"), "secrets.pass[0]"),
        (format!("[shell]\nallow = [\"{KEY}\"]"), "shell.allow[0]"),
    ] {
        let wrong = faults(&text);
        assert!(tells(&wrong, Code::LiteralSecret, key), "{text}: {wrong}");
        assert!(!format!("{wrong} {wrong:?}").contains("Zq81"), "{wrong}");
    }
    let wrong = faults(&format!("[model]\n\"{KEY}\" = 1"));
    assert!(wrong.iter().any(|f| f.code == Code::LiteralSecret) && !wrong.to_string().contains("Zq81"));
}

/// The commonest slip: the key without quotes, so that the file is no TOML.
#[test]
fn r58_a_syntax_error_does_not_repeat_a_key() {
    for text in [
        "[model]\napi_key = sk-Zq81kfja93jfkAAw02\n",
        "[model]\nsk-Zq81kfja93jfkAAw02\n",
        "[model]\napi_key_env = \"sk-Zq81kfja93jfkAAw02\n",
        "sk-Zq81kfja93jfkAAw02 = 1\nsk-Zq81kfja93jfkAAw02 = 2\n",
    ] {
        let wrong = faults(text);
        assert!(wrong.iter().all(|f| f.code == Code::Syntax), "{wrong}");
        assert!(!format!("{wrong:?}").contains("Zq81"), "{wrong}");
    }
}

#[test]
fn r58_only_the_name_of_a_variable_is_accepted() {
    for value in
        ["my-secret-value", "a b", "", "9lives", "NAME=value", "$NAME", "9f86d081884c7d659a2feaa0c55ad015"]
    {
        let wrong = faults(&format!("[model]\napi_key_env = \"{value}\""));
        assert!(tells(&wrong, Code::LiteralSecret, "model.api_key_env"), "{value}: {wrong}");
        assert!(value.is_empty() || !wrong.to_string().contains(value), "{wrong}");
    }
}

#[test]
fn r58_the_model_key_is_never_passed_into_a_sandbox() {
    let wrong = faults("[model]\napi_key_env = \"KEY\"\n[secrets]\npass = [\"KEY\"]\n");
    assert_eq!(told(&wrong), ["bad-value secrets.pass[0]@4:9"]);
}

#[test]
fn base_url_is_a_plain_http_address() {
    for (url, kept) in [
        ("http://localhost", "http://localhost"),
        ("http://[::1]:8080/v1/", "http://[::1]:8080/v1"),
        ("http://10.0.0.5:11434/v1", "http://10.0.0.5:11434/v1"),
    ] {
        let d = parse(&format!("model.base_url = \"{url}\"")).expect(url);
        assert_eq!(d.model.base_url, kept);
    }
    for url in [
        "",
        "http://",
        "http:///v1",
        "localhost:8080",
        "ftp://h/",
        "http://h:0/",
        "http://h:99999/",
        "http://h:/v1",
        "http://u:p@h/v1",
        "http://h/v1?a=b",
        "http://h/v1#x",
        "http://h h/",
        "http://h\\u0000/",
        "http://h/\\r\\nX: y",
        "http://[::1/",
        "http://h:8080:80/",
        "http://b\u{fc}cher/",
    ] {
        let wrong = faults(&format!("model.base_url = \"{url}\""));
        assert!(tells(&wrong, Code::BadValue, "model.base_url"), "{url}");
    }
    assert!(about(&faults("model.base_url = \"https://h/v1\""), "model.base_url").contains("TLS proxy"));
}

#[test]
fn r49_broad_destinations_are_refused_each_with_its_reason() {
    let wrong = faults("[network]\nallow = [\"*\", \"*:443\", \"*.com:443\", \"http://a.b/\", \"a.b\"]\n");
    assert_eq!(wrong.iter().count(), 5);
    assert!(about(&wrong, "network.allow[2]").contains("top-level domain"));
}

#[test]
fn r46_a_destination_is_a_text_or_a_table_with_a_header() {
    let d = parse(
        "[network]\nallow = [\"A.example.com:443\", { host = \"b.example.com:443\" }, \
         { host = \"c.example.com:443\", header = { name = \"X-Key\", secret_env = \"C_KEY\" } }]\n",
    )
    .expect("sound");
    let told: Vec<_> = d.network.iter().map(|n| (n.rule().to_string(), n.header().is_some())).collect();
    let told: Vec<_> = told.iter().map(|(rule, header)| (rule.as_str(), *header)).collect();
    assert_eq!(
        told,
        [("a.example.com:443", false), ("b.example.com:443", false), ("c.example.com:443", true)]
    );
}

/// R58: of a header's value only the variable's name is ever in a file.
#[test]
fn r58_a_header_takes_a_variables_name_and_nothing_that_is_a_key() {
    let with = |host: &str, header: &str| {
        format!("[network]\nallow = [{{ host = \"{host}\", header = {{ {header} }} }}]\n")
    };
    let sound = "name = \"authorization\", secret_env = \"TOKEN\"";
    for (text, code, key) in [
        (with("*.example.com:443", sound), Code::BadValue, "network.allow[0]"),
        (with("203.0.113.7:443", sound), Code::BadValue, "network.allow[0]"),
        (
            with("h.example:443", "name = \"Host\", secret_env = \"T\""),
            Code::BadValue,
            "network.allow[0].header.name",
        ),
        (
            with("h.example:443", "name = \"a\", secret_env = \"Bearer x\""),
            Code::LiteralSecret,
            "network.allow[0].header.secret_env",
        ),
        (
            with("h.example:443", "name = \"a\", secret = \"x\""),
            Code::LiteralSecret,
            "network.allow[0].header.secret",
        ),
        (with("h.example:443", "name = \"a\""), Code::MissingKey, "network.allow[0].header.secret_env"),
        (
            with("h.example:443", sound) + "[model]\napi_key_env = \"TOKEN\"\n",
            Code::BadValue,
            "network.allow[0].header.secret_env",
        ),
        (
            with("h.example:443", sound) + "[secrets]\npass = [\"TOKEN\"]\n",
            Code::BadValue,
            "network.allow[0].header.secret_env",
        ),
    ] {
        let wrong = faults(&text);
        assert!(tells(&wrong, code, key), "{text}{wrong:?}");
    }
    let twice = "[network]\nallow = [\"h.example:443\", { host = \"H.example:443\", header = { name = \"a\", secret_env = \"T\" } }]\n";
    assert!(about(&faults(twice), "network.allow[1]").contains("a second time"));
}

#[test]
fn rootfs_is_host_or_a_folder() {
    assert_eq!(parse("isolation.rootfs = \"host\"").expect("host").isolation.rootfs, Rootfs::Host);
    for value in ["hsot", "", "/a\\u0000b"] {
        let wrong = faults(&format!("isolation.rootfs = \"{value}\""));
        assert!(tells(&wrong, Code::BadValue, "isolation.rootfs"), "{value:?}");
    }
}

#[test]
fn shell_rules_are_bare_names() {
    for rule in ["", " ls", "/bin/ls", "ls;rm", "$(x)", "a  b", "-c", "*", "ls\\n"] {
        let wrong = faults(&format!("shell.deny = [\"{rule}\"]"));
        assert!(tells(&wrong, Code::BadValue, "shell.deny[0]"), "{rule:?}");
    }
}

#[test]
fn a_tier_is_accepted_by_itself_or_by_its_surroundings() {
    let tiers = [Tier::Confined, Tier::Namespace, Tier::Gvisor, Tier::Microvm];
    for (t, tier) in tiers.into_iter().enumerate() {
        for (f, floor) in tiers.into_iter().enumerate() {
            assert_eq!(tier.accept(floor, Surroundings::None).is_ok(), t >= f);
            assert_eq!(tier.accept(floor, Surroundings::Gvisor).is_ok(), t >= f || f <= 2);
            assert!(tier.accept(floor, Surroundings::Microvm).is_ok());
        }
    }
}

/// A run that finds no room even alone would wait for ever.
#[test]
fn a_ceiling_below_the_bounds_of_one_run_is_a_fault_at_the_key_that_was_changed() {
    for (text, key) in [
        ("[ceiling]\nmemory = \"1GiB\"\n", "ceiling.memory"),
        ("[limits]\nmemory = \"64GiB\"\n", "limits.memory"),
        ("[ceiling]\ncores = 1\n", "ceiling.cores"),
        ("[limits]\ncores = 64\n", "limits.cores"),
    ] {
        let faults = Deployment::parse("oubliette.toml", text).expect_err(text);
        let keys: Vec<String> = faults.iter().map(|f| f.key.clone()).collect();
        assert_eq!(keys, [key], "{text}");
    }
    for text in ["[ceiling]\nsandboxes = 0\n", "[ceiling]\nmemory = \"0\"\n", "[ceiling]\nmost = 3\n"] {
        assert!(Deployment::parse("oubliette.toml", text).is_err(), "{text}");
    }
}

#[test]
fn r53_the_wasm_tier_counts_like_gvisor_and_is_no_floor() {
    for floor in [Tier::Confined, Tier::Namespace, Tier::Gvisor] {
        assert!(Tier::Wasm.accept(floor, Surroundings::None).is_ok(), "{floor}");
    }
    assert!(Tier::Wasm.accept(Tier::Microvm, Surroundings::None).is_err());
    assert_eq!(parse("isolation.tier = \"wasm\"").expect("a tier").isolation.tier.fixed(), Some(Tier::Wasm));
    let wrong = faults("isolation.floor = \"wasm\"");
    assert!(about(&wrong, "isolation.floor").contains("`wasm` runs modules only"), "{wrong}");
}

#[test]
fn a_bound_of_a_call_is_no_more_than_the_sandboxs() {
    let text = "[limits]\nmemory = \"1GiB\"\nprocesses = 99\ndisk = \"1GiB\"\n[call]\n";
    let more = "memory = \"2GiB\"\nprocesses = 100\ndisk = \"2GiB\"\n";
    let wrong = Deployment::parse("o", &format!("{text}{more}")).expect_err("more");
    for key in ["memory", "processes", "disk"] {
        assert!(
            about(&wrong, &format!("call.{key}")).contains(&format!("more than `limits.{key}`")),
            "{wrong}"
        );
    }
    let same = "memory = \"1GiB\"\nprocesses = 99\ndisk = \"1GiB\"\n";
    let d = Deployment::parse("o", &format!("{text}{same}")).expect("sound");
    assert_eq!((d.call.memory, d.call.processes, d.call.disk), (Some(1 << 30), Some(99), Some(1 << 30)));
}

#[test]
fn more_destinations_than_can_be_compared_are_a_fault_here_too() {
    let all: Vec<String> = (0..1001).map(|n| format!("\"h{n}.example.com:443\"")).collect();
    let found = faults(&format!("[network]\nallow = [{}]\n", all.join(", "))).to_string();
    assert!(found.contains("`network.allow`: has 1001 destinations"), "{found}");
}
