//! Rows 6, 14, 15, 17: the conversation as it is sent.

use policy::Tool;
use serde_json::{Value, json};
use testkit::{Reply, Script, Seen};

use crate::rig::{act, finish, native, rig};

fn messages(seen: &Seen) -> Vec<Value> {
    seen.body["messages"].as_array().unwrap().clone()
}

fn end() -> Reply {
    native("finish", json!({"status": "done", "summary": "x"}))
}

/// Row 17.
#[tokio::test]
async fn each_request_begins_with_the_one_before() {
    let rig = rig(&[Tool::ReadFile, Tool::Finish]);
    rig.bench.put("a", "hello");
    let turns = ["a", "missing", "/etc/x"].map(|p| act("read_file", json!({"path": p})));
    let bad = Reply::Text("not json".to_owned());
    let ran = rig.run(Script::new(turns.into_iter().chain([bad, finish()]))).await;
    let asked = ran.server.asked();
    assert_eq!(asked.len(), 5);
    for pair in asked.windows(2) {
        let (before, after) = (messages(&pair[0]), messages(&pair[1]));
        let newest = before.len() - 1;
        assert_eq!(before[..newest], after[..newest]);
        // A word about an unreadable answer is added to the newest message.
        let text = |m: &Value| m["content"].as_str().unwrap().to_owned();
        assert!(text(&after[newest]).starts_with(&text(&before[newest])));
        for key in ["model", "temperature", "max_tokens", "response_format"] {
            assert_eq!(pair[0].body[key], pair[1].body[key], "{key}");
        }
    }
}

#[tokio::test]
async fn an_unreadable_answer_leaves_only_a_word_about_it() {
    let rig = rig(&[Tool::Finish]);
    let ran = rig.run(Script::new([Reply::Text("<tools>{{\"name\": 1}}".to_owned()), finish()])).await;
    let sent = messages(&ran.server.asked()[1]);
    assert_eq!(sent.len(), 2);
    assert!(!json!(sent).to_string().contains("<tools>"));
    assert!(ran.told(1).contains("Your tools: finish"), "{}", ran.told(1));
}

/// Row 15.
#[tokio::test]
async fn there_is_one_system_message_and_turns_alternate() {
    let rig = rig(&[Tool::ReadFile, Tool::Finish]);
    let bad = || Reply::Text("not json".to_owned());
    let ran = rig.run(Script::new([bad(), act("read_file", json!({"path": "x"})), bad(), finish()])).await;
    let roles: Vec<String> = messages(ran.server.asked().last().unwrap())
        .iter()
        .map(|m| m["role"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(roles[0], "system");
    assert!(roles[1..].iter().enumerate().all(|(i, r)| r == ["user", "assistant"][i % 2]), "{roles:?}");
}

/// Row 6: a broken call never goes back to the server; every call has exactly one result.
#[tokio::test]
async fn a_broken_call_is_kept_as_an_empty_object_with_an_error_as_its_result() {
    let rig = rig(&[Tool::RunShell, Tool::Finish]);
    let broken = native("run_shell", json!("{\"command\": \"tou"));
    let odd = native("run\nshell<b>", json!({"command": "x"}));
    let ran = rig.run(Script::new([broken, odd, end()]).native()).await;
    let sent = messages(ran.server.asked().last().unwrap());
    assert_eq!(sent[2]["tool_calls"][0]["function"]["arguments"], "{}");
    assert_eq!(sent[2]["tool_calls"][0]["id"], sent[3]["tool_call_id"]);
    assert_eq!(sent[4]["tool_calls"][0]["function"]["name"], "unknown");
    assert_eq!(sent.len(), 6);
    assert!(!json!(sent).to_string().contains("tou"));
}

/// Row 14.
#[tokio::test]
async fn content_is_never_null() {
    let rig = rig(&[Tool::RunShell, Tool::Finish]);
    let call = native("run_shell", json!({"command": "echo hi"}));
    let ran = rig.run(Script::new([call, end()]).native()).await;
    for message in messages(ran.server.asked().last().unwrap()) {
        assert!(message["content"].is_string(), "{message}");
    }
}

/// Row 12.
#[tokio::test]
async fn control_tokens_in_a_name_are_cut_off_and_recorded() {
    let rig = rig(&[Tool::ReadFile, Tool::Finish]);
    rig.bench.put("a", "hello");
    let call = native("read_file<|channel|>commentary", json!({"path": "a"}));
    let ran = rig.run(Script::new([call, end()]).native()).await;
    assert!(ran.told(1).contains("hello"));
    assert_eq!(rig.events("parse")[0]["repairs"], json!(["control-token"]));
}

#[tokio::test]
async fn every_request_and_answer_is_kept_whole() {
    let rig = rig(&[Tool::Finish]);
    let ran = rig.run(Script::new([finish()])).await;
    let artifacts = rig.bench.artifacts.borrow();
    assert_eq!(artifacts[0], ran.server.asked()[0].raw);
    assert!(String::from_utf8_lossy(&artifacts[1]).contains("all good"));
    assert_eq!(rig.events("request")[0]["body_sha256"], "artifact-1");
    assert_eq!(rig.events("response")[0]["body_sha256"], "artifact-2");
}
