//! R2, R32, OC-36: arguments fit or nothing runs.

use policy::{StopReason, Tool, Verdict};
use serde_json::{Value, json};
use testkit::{Reply, Script};

use crate::rig::{Rig, act, finish, native, rig};

fn shell() -> Rig {
    rig(&[Tool::RunShell, Tool::RunCommand, Tool::WriteFile, Tool::ReadFile, Tool::Finish])
}

fn end() -> Reply {
    native("finish", json!({"status": "done", "summary": "x"}))
}

/// One raw argument text, natively; what the model was told.
async fn refused(raw: &str) -> String {
    let rig = shell();
    let ran = rig.run(Script::new([native("run_shell", json!(raw)), end()]).native()).await;
    assert_eq!(ran.drive.stop, StopReason::Finished, "{raw}");
    assert!(!rig.bench.has("pwned") && rig.bench.executed() == 0, "{raw}");
    assert_eq!(rig.decisions()[0].1, Verdict::Refused, "{raw}");
    ran.told(1)
}

#[tokio::test]
async fn oc_36_1_cut_json_is_an_error_and_the_run_goes_on() {
    let rig = shell();
    let ran = rig
        .run(
            Script::new([
                native("run_shell", json!("{\"command\": \"touch pwned\"")),
                native("run_shell", json!({"command": "echo recovered"})),
                end(),
            ])
            .native(),
        )
        .await;
    assert!(!rig.bench.has("pwned"));
    assert!(ran.told(1).contains("not valid JSON"), "{}", ran.told(1));
    assert!(ran.told(2).contains("recovered"));
}

#[tokio::test]
async fn oc_36_2_a_list_in_place_of_an_object_is_refused() {
    assert!(refused("[\"touch pwned\"]").await.contains("one JSON object"));
}

#[tokio::test]
async fn oc_36_3_a_duplicate_key_is_refused() {
    assert!(refused("{\"command\":\"ls\",\"command\":\"touch pwned\"}").await.contains("twice"));
}

#[tokio::test]
async fn oc_36_4_an_unknown_field_is_refused_and_never_obeyed() {
    let told = refused("{\"command\":\"touch pwned\",\"sandbox\":false,\"timeout_s\":999999}").await;
    assert!(told.contains("sandbox") && told.contains("command (string, required)"), "{told}");
}

#[tokio::test]
async fn oc_36_5_a_missing_command_is_named() {
    assert!(refused("{}").await.contains("command"));
}

#[tokio::test]
async fn r2_wrong_types_and_nul_are_named() {
    assert!(refused("{\"command\": 7}").await.contains("command"));
    assert!(refused("{\"command\": \"touch pwned\\u0000\"}").await.contains("NUL"));
    assert!(refused("{\"command\": \"  \"}").await.contains("empty"));
    assert!(refused("{\"command\": [\"touch\", \"pwned\"]}").await.contains("command"));
}

#[tokio::test]
async fn r2_arguments_beyond_a_mebibyte_are_refused() {
    let told = refused(&format!("{{\"command\": \"touch pwned #{}\"}}", "x".repeat(2 << 20))).await;
    assert!(told.contains("1 MiB"), "{told}");
}

#[tokio::test]
async fn r32_the_shell_text_stays_one_argument() {
    let rig = shell();
    let text = "echo \"$(id)\"; 'x' `y` && z\n| w";
    rig.run(Script::new([act("run_shell", json!({"command": text})), finish()])).await;
    assert_eq!(rig.bench.programs.borrow()[0].argv, ["sh", "-c", text]);
}

#[tokio::test]
async fn r32_an_argument_vector_meets_no_shell() {
    let rig = shell();
    let argv = ["touch", "a b; rm -r x"];
    rig.run(Script::new([act("run_command", json!({"argv": argv})), finish()])).await;
    assert_eq!(rig.bench.programs.borrow()[0].argv, argv);
}

#[tokio::test]
async fn a_timeout_may_only_be_lowered() {
    let rig = shell();
    rig.run(Script::new([
        act("run_shell", json!({"command": "echo a", "timeout_s": 5})),
        act("run_shell", json!({"command": "echo b", "timeout_s": 999_999})),
        finish(),
    ]))
    .await;
    let seconds: Vec<u64> =
        rig.bench.programs.borrow().iter().map(|p| p.timeout.unwrap().as_secs()).collect();
    assert_eq!(seconds, [5, 60]);
}

async fn repairs(call: Reply) -> (Rig, Value) {
    let rig = shell();
    rig.run(Script::new([call, finish()])).await;
    let parse = rig.events("parse")[0]["repairs"].clone();
    (rig, parse)
}

#[tokio::test]
async fn aliases_are_accepted_and_recorded() {
    let (rig, repairs) = repairs(act("write_file", json!({"file_path": "a.txt", "content": "x"}))).await;
    assert_eq!(repairs, json!(["alias:file_path"]));
    assert_eq!(rig.bench.get("a.txt"), "x");
}

#[tokio::test]
async fn a_shell_vector_is_unwrapped_by_rule_and_recorded() {
    let (rig, repairs) = repairs(act("run_shell", json!({"command": ["bash", "-lc", "echo hi"]}))).await;
    assert_eq!(repairs, json!(["unwrap:shell-argv"]));
    assert_eq!(rig.bench.programs.borrow()[0].argv, ["sh", "-c", "echo hi"]);
}

/// Row 7.
#[tokio::test]
async fn a_json_file_written_as_an_object_is_written_as_json() {
    let (rig, repairs) =
        repairs(act("write_file", json!({"path": "package.json", "content": {"name": "x"}}))).await;
    assert_eq!(repairs, json!(["coerce:content"]));
    assert_eq!(rig.bench.get("package.json"), "{\n  \"name\": \"x\"\n}\n");
}

#[tokio::test]
async fn an_alias_beside_the_real_name_is_refused() {
    let rig = shell();
    rig.run(Script::new([
        act("write_file", json!({"path": "a.txt", "filename": "b.txt", "content": "x"})),
        finish(),
    ]))
    .await;
    assert_eq!(rig.bench.executed(), 0);
}

/// Row 5.
#[tokio::test]
async fn arguments_as_an_object_are_read() {
    let rig = shell();
    let message = json!({"role": "assistant", "tool_calls": [
        {"function": {"name": "run_shell", "arguments": {"command": "echo hi"}}}]});
    rig.run(Script::new([Reply::Message(message, json!("")), end()]).native()).await;
    assert_eq!(rig.bench.programs.borrow()[0].argv[2], "echo hi");
    assert_eq!(rig.events("parse")[0]["repairs"], json!(["arguments-object"]));
}
