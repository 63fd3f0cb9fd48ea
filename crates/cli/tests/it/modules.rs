//! Modules from outside: `exec --tier wasm`, and tools of a Guild's own.

use serde_json::{Value, json};
use testkit::{Script, ScriptedModel};

use crate::Who;
use crate::place::{Place, Ran, act, finish, ran, sh, told_in};

/// Prints its first argument's and its standard input's bytes, then a file of the workspace, and writes one.
const TOOL: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 100) "input") (data (i32.const 110) "made")
  (func $copy (param $from i32) (param $to i32)
    (i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const 4096))
    (drop (call $fd_read (local.get $from) (i32.const 0) (i32.const 1) (i32.const 8)))
    (i32.store (i32.const 4) (i32.load (i32.const 8)))
    (drop (call $fd_write (local.get $to) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func (export "_start")
    (call $copy (i32.const 0) (i32.const 1))
    (if (i32.eqz (call $open (i32.const 4) (i32.const 0) (i32.const 100) (i32.const 5) (i32.const 0) (i64.const 2)
        (i64.const 0) (i32.const 0) (i32.const 16)))
      (then (call $copy (i32.load (i32.const 16)) (i32.const 1))))
    (drop (call $open (i32.const 4) (i32.const 0) (i32.const 110) (i32.const 4) (i32.const 1) (i64.const 66)
      (i64.const 0) (i32.const 0) (i32.const 16)))
    (i32.store (i32.const 0) (i32.const 110)) (i32.store (i32.const 4) (i32.const 4))
    (drop (call $fd_write (i32.load (i32.const 16)) (i32.const 0) (i32.const 1) (i32.const 8)))))"#;

fn wasm(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

fn exec(place: &Place, options: &[&str], argv: &[&str]) -> Ran {
    let base = ["exec", "--data", "data", "--tier", "wasm"];
    ran(&mut place.oubliette([&base[..], options, &["--"], argv].concat()))
}

#[test]
fn r53_a_module_of_the_host_and_one_of_the_workspace_run_at_the_default_floor() {
    for who in [Who::Own, Who::Ordinary] {
        let place = Place::new("wasm", who);
        place.write("tool.wasm", wasm(TOOL));
        place.write("source/in/tool.wasm", wasm(TOOL));
        place.write("source/input", "of the workspace\n");
        let alone = exec(&place, &[], &["./tool.wasm"]);
        assert_eq!((alone.code, alone.out.as_str()), (Some(0), ""), "{alone:?}");
        let inside = exec(&place, &["--workspace", "source"], &["in/tool.wasm"]);
        assert_eq!((inside.code, inside.out.as_str()), (Some(0), "of the workspace\n"), "{inside:?}");
        let beside = exec(&place, &["--workspace", "source", "--module", "tool.wasm"], &["x"]);
        assert_eq!((beside.code, beside.out.as_str()), (Some(0), "of the workspace\n"), "{beside:?}");
        assert!(!place.path("source/made").exists(), "the original is written");
        assert_eq!(place.read(place.newest().join("workspace/made")), "made");
        place.assert_whole("finished");
        let meta = place.file_of_run("meta.json");
        assert_eq!(meta["module"]["sha256"].as_str().map(str::len), Some(64), "{meta}");
        assert_eq!(meta["sandbox"]["tier"], "wasm");
        let start = &place.events_of("tool_start")[0];
        assert_eq!(start["job"]["module"]["sha256"], meta["module"]["sha256"], "{start}");
    }
}

#[test]
fn what_is_no_module_is_told_and_nothing_is_started() {
    let place = Place::new("wasm", Who::Own);
    place.write("text", "#!/bin/sh\n");
    place.write("component.wasm", wasm("(component)"));
    place.write("import.wasm", wasm("(module (import \"env\" \"exec\" (func)) (func (export \"_start\")))"));
    place.link("source/link.wasm", "/etc/passwd");
    for (options, argv, told) in [
        (&[][..], "text", "not a WebAssembly module"),
        (&[], "missing", "no such file"),
        (&[], "home", "not a file"),
        (&[], "component.wasm", "component"),
        (&[], "import.wasm", "`env.exec`"),
        (&["--workspace", "source"], "link.wasm", "in the workspace"),
        (&["--workspace", "source"], "../text", "in the workspace"),
    ] {
        let ran = exec(&place, options, &[argv]);
        assert_eq!(ran.code, Some(2), "{argv}: {ran:?}");
        assert!(ran.err.contains(told), "{argv}: {ran:?}");
    }
    let other = ran(&mut place.oubliette(["exec", "--tier", "namespace", "--module", "text"]));
    assert_eq!(other.code, Some(2), "{other:?}");
}

#[test]
fn r51_the_wasm_tier_is_below_a_machine_and_no_floor() {
    let place = Place::new("wasm", Who::Own);
    place.write("tool.wasm", wasm(TOOL));
    let below = exec(&place, &["--floor", "microvm"], &["tool.wasm"]);
    assert_eq!(below.code, Some(3), "{below:?}");
    assert!(below.err.contains("below the floor `microvm`"), "{below:?}");
    assert_eq!(exec(&place, &["--floor", "wasm"], &["tool.wasm"]).code, Some(2));
}

#[test]
fn a_bound_of_a_module_ends_exec_with_its_own_code() {
    let place = Place::new("wasm", Who::Own);
    place.write(
        "loop.wasm",
        wasm("(module (memory (export \"memory\") 1) (func (export \"_start\") (loop (br 0))))"),
    );
    place.write(
        "trap.wasm",
        wasm("(module (memory (export \"memory\") 1) (func (export \"_start\") unreachable))"),
    );
    let looped = exec(&place, &["--timeout", "1"], &["loop.wasm"]);
    assert_eq!(looped.code, Some(4), "{looped:?}");
    assert!(looped.err.contains("stopped by timeout"), "{looped:?}");
    // As a shell says it: 128 and SIGILL.
    assert_eq!(exec(&place, &[], &["trap.wasm"]).code, Some(132));
}

#[test]
fn no_role_runs_in_the_wasm_tier() {
    let place = Place::new("wasm", Who::Own);
    place.guild(&["finish"]);
    let model = Script::new([]).n_ctx(Some(100_000)).start();
    let args = ["run", "--guild", "guild", "--task", "x", "--model-url", &model.base_url(), "--data", "data"];
    let ran = ran(&mut place.oubliette([&args[..], &["--tier", "wasm"]].concat()));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("runs one module"), "{ran:?}");
}

const MANIFEST: &str = r#"{"name": "count", "description": "counts", "parameters":
  {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}}"#;

/// A Guild with a tool of its own beside built-in ones.
fn with_tool(place: &Place) {
    place.guild(&["run_shell", "count", "finish"]);
    let text = place.read("guild/guild.toml")
        + "\n[tools.count]\nmanifest = \"tools/count.json\"\nmodule = \"tools/count.wasm\"\n";
    place.write("guild/guild.toml", text);
    place.write("guild/tools/count.json", MANIFEST);
    place.write("guild/tools/count.wasm", wasm(TOOL));
}

fn play(place: &Place, replies: Vec<testkit::Reply>) -> ScriptedModel {
    let model = Script::new(replies.into_iter().chain([finish()])).n_ctx(Some(100_000)).start();
    let ran = place.run(&model.base_url());
    assert_eq!((ran.code, model.left()), (Some(0), 0), "{ran:?}");
    place.assert_whole("finished");
    model
}

fn a_tool_works_on_the_workspace_of_the_run(tier: &'static str, who: Who) {
    let place = Place::new(tier, who);
    with_tool(&place);
    let model = play(
        &place,
        vec![
            sh("echo by the shell > input"),
            act("count", json!({"what": "words"})),
            sh("cat made"),
            act("count", json!({"what": 7})),
            act("count", json!({"what": "x", "more": true})),
        ],
    );
    assert_eq!(told_in(&model, 2), "{\"what\":\"words\"}by the shell");
    assert!(told_in(&model, 3).contains("made"), "{}", told_in(&model, 3));
    for request in [4, 5] {
        assert!(told_in(&model, request).contains("do not fit"), "{}", told_in(&model, request));
    }
    let starts = place.events_of("tool_start");
    assert_eq!(starts.len(), 3, "wrong arguments start nothing: {starts:?}");
    assert_eq!(starts[1]["tool"], "count");
    let end = &place.events_of("tool_end")[1];
    assert_eq!(end["outcome"]["sandbox"]["tier"], "wasm", "{end}");
    let meta = place.file_of_run("meta.json");
    assert_eq!(meta["modules"]["count"]["sha256"], starts[1]["job"]["module"]["sha256"], "{meta}");
    assert_eq!(meta["module_sandbox"]["tier"], "wasm");
}

#[test]
fn r53_a_guilds_own_tool_runs_beside_namespace() {
    a_tool_works_on_the_workspace_of_the_run("namespace", Who::Own);
}

#[test]
fn r53_a_guilds_own_tool_runs_beside_gvisor() {
    a_tool_works_on_the_workspace_of_the_run("gvisor", Who::Own);
}

#[test]
fn r53_a_guilds_own_tool_runs_beside_namespace_as_an_ordinary_user() {
    a_tool_works_on_the_workspace_of_the_run("namespace", Who::Ordinary);
}

#[test]
fn a_machine_and_a_tool_of_the_guilds_own_are_refused_at_the_start() {
    let place = Place::new("microvm", Who::Own);
    with_tool(&place);
    let model = Script::new([]).n_ctx(Some(100_000)).start();
    let ran = place.run(&model.base_url());
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("inside a machine") && ran.err.contains("--tier gvisor"), "{ran:?}");
    // A role without it runs there: it is not even looked for.
}

#[test]
fn guild_check_judges_a_tools_files() {
    let place = Place::new("namespace", Who::Own);
    let check = || ran(&mut place.oubliette(["guild", "check", "guild"]));
    with_tool(&place);
    let good = check();
    assert_eq!(good.code, Some(0), "{good:?}");
    assert!(good.out.contains("run_shell, finish, count"), "{good:?}");
    let digest = |ran: &Ran| ran.out.lines().next().map(str::to_owned);
    let before = digest(&good);
    place.write(
        "guild/tools/count.wasm",
        wasm("(module (memory (export \"memory\") 2) (func (export \"_start\")))"),
    );
    assert_ne!(digest(&check()), before, "the module is part of the digest");
    let wrong = |what: &str| {
        let told = check();
        assert_eq!(told.code, Some(2), "{told:?}");
        assert!(told.err.contains(what), "{told:?}");
    };
    place.write("guild/tools/count.wasm", "no module");
    wrong("not a WebAssembly module");
    place.write(
        "guild/tools/count.wasm",
        wasm("(module (import \"env\" \"f\" (func)) (func (export \"_start\")))"),
    );
    wrong("`env.f`");
    place.write("guild/tools/count.wasm", wasm(TOOL));
    place.write("guild/tools/count.json", MANIFEST.replace("\"count\"", "\"other\""));
    wrong("another tool");
    place.write("guild/tools/count.json", MANIFEST.replace("\"string\"", "\"object\""));
    wrong("no type");
    std::fs::remove_file(place.path("guild/tools/count.json")).unwrap();
    place.link("guild/tools/count.json", "/etc/passwd");
    wrong("through a link");
}

#[test]
fn doctor_runs_the_wasm_tier_and_auto_never_takes_it() {
    let place = Place::new("wasm", Who::Own);
    let seen = place.ran(["doctor", "--json", "--data", "data"]).json();
    let tiers = seen["tiers"].as_array().unwrap();
    let wasm = tiers.iter().find(|t| t["tier"] == "wasm").unwrap();
    assert_eq!((&wasm["problem"], &wasm["auto"]), (&Value::Null, &json!(false)));
    assert_ne!(seen["auto"], "wasm");
}
