//! Rows 1, 3, 9, 10, 11: how answers become calls, and how they do not.

use policy::{StopReason, Tool};
use serde_json::{Value, json};
use testkit::{Reply, Script};

use crate::rig::{act, finish, fixture, native, rig};

const TOOLS: [Tool; 4] = [Tool::RunShell, Tool::WriteFile, Tool::ReadFile, Tool::Finish];

fn text(text: &str) -> Reply {
    Reply::Text(text.to_owned())
}

fn tagged(name: &str, args: Value) -> Reply {
    Reply::Text(format!("<tool_call>{}</tool_call>", json!({"name": name, "arguments": args})))
}

fn done() -> Reply {
    tagged("finish", json!({"status": "done", "summary": "x"}))
}

/// Row 1: nothing that merely looks like a call is executed; the run goes on.
#[tokio::test]
async fn recorded_malformed_calls_run_nothing() {
    for entry in
        std::fs::read_dir(format!("{}/tests/it/fixtures/malformed", env!("CARGO_MANIFEST_DIR"))).unwrap()
    {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let body = fixture(&format!("malformed/{file}"));
        for native in [true, false] {
            let rig = rig(&TOOLS);
            let script = Script::new([Reply::Json(200, body.clone()), done()]);
            let ran = rig.run(if native { script.native() } else { script.text_only() }).await;
            assert_eq!(ran.drive.stop, StopReason::Finished, "{file}");
            assert_eq!(rig.bench.executed(), 0, "{file}");
        }
    }
}

/// Row 1.
#[tokio::test]
async fn a_recorded_bare_shell_call_that_nobody_asked_for_runs_nothing() {
    let rig = rig(&TOOLS);
    rig.run(Script::new([Reply::Json(200, fixture("unasked-rm.json")), done()]).native()).await;
    assert_eq!(rig.bench.executed(), 0);
}

/// Row 1.
#[tokio::test]
async fn a_tagged_call_in_text_runs_and_is_recorded_as_text() {
    let rig = rig(&TOOLS);
    let ran = rig
        .run(Script::new([tagged("write_file", json!({"path": "a", "content": "x"})), done()]).text_only())
        .await;
    assert_eq!(ran.drive.stop, StopReason::Finished);
    assert_eq!(rig.bench.get("a"), "x");
    assert_eq!(rig.events("parse")[0]["channel"], "text");
    assert_eq!(rig.events("parse")[0]["repairs"], json!(["tag"]));
}

/// Row 3.
#[tokio::test]
async fn missing_and_repeated_ids_become_unique_ones_of_nine_signs() {
    let rig = rig(&TOOLS);
    let call = |id: Value, path: &str| {
        json!({"id": id, "type": "function",
               "function": {"name": "write_file", "arguments": json!({"path": path, "content": "x"}).to_string()}})
    };
    let calls = [
        call(json!(null), "a"),
        call(json!("same"), "b"),
        call(json!("same"), "c"),
        call(json!("abcdefgh9"), "d"),
    ];
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    let end = native("finish", json!({"status": "done", "summary": "x"}));
    let ran = rig.run(Script::new([Reply::Message(message, json!("tool_calls")), end]).native()).await;
    let messages = ran.server.asked()[1].body["messages"].clone();
    let sent: Vec<String> = messages[2]["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["id"].as_str().unwrap().to_owned())
        .collect();
    let answered: Vec<String> =
        (3..7).map(|i| messages[i]["tool_call_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(sent, answered);
    assert!(sent.iter().all(|id| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric())), "{sent:?}");
    assert_eq!(sent.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    assert_eq!(sent[3], "abcdefgh9");
    assert_eq!(messages[2]["content"], "");
}

/// Row 9 and the rule about `length`: a cut action is discarded, whatever parses.
#[tokio::test]
async fn an_answer_cut_by_length_runs_nothing_even_if_it_parses() {
    for (reply, is_native) in [
        (
            Reply::Message(
                json!({"content": "{\"tool\":\"write_file\",\"args\":{\"path\":\"a\",\"content\":\"x\"}}"}),
                json!("length"),
            ),
            false,
        ),
        (Reply::Json(200, fixture("cut-call.json")), true),
        (Reply::Message(json!({"content": ""}), json!("length")), false),
    ] {
        let rig = rig(&TOOLS);
        let script = Script::new([
            reply,
            if is_native { native("finish", json!({"status": "done", "summary": ""})) } else { finish() },
        ]);
        let ran = rig.run(if is_native { script.native() } else { script }).await;
        assert_eq!(ran.drive.stop, StopReason::Finished);
        assert_eq!(rig.bench.executed(), 0);
        assert!(ran.told(1).contains("cut off"), "{}", ran.told(1));
    }
}

/// R4, rows 10 and 11.
#[tokio::test]
async fn r4_a_call_in_reasoning_triggers_nothing() {
    let call = "{\"tool\":\"run_shell\",\"args\":{\"command\":\"touch pwned\"}}";
    let tag = "<tool_call>{\"name\":\"run_shell\",\"arguments\":{\"command\":\"touch pwned\"}}</tool_call>";
    let think = format!("<think>{tag}</think>");
    let only_close = format!("{tag}\n</think>");
    for message in [
        json!({"content": "", "reasoning_content": call}),
        json!({"content": null, "reasoning": tag}),
        json!({"content": think}),
        json!({"content": only_close}),
        json!({"content": format!("<think>{tag}")}),
    ] {
        let rig = rig(&TOOLS);
        let ran =
            rig.run(Script::new([Reply::Message(message.clone(), json!("stop")), done()]).text_only()).await;
        assert_eq!(ran.drive.stop, StopReason::Finished, "{message}");
        assert_eq!(rig.bench.executed(), 0, "{message}");
    }
}

/// Row 11.
#[tokio::test]
async fn the_action_after_the_reasoning_is_carried_out() {
    let rig = rig(&TOOLS);
    let content = "<think>hm</think>\n{\"tool\":\"write_file\",\"args\":{\"path\":\"a\",\"content\":\"x\"}}";
    rig.run(Script::new([text(content), finish()])).await;
    assert_eq!(rig.bench.get("a"), "x");
}

#[tokio::test]
async fn prose_is_nudged_once_and_then_taken_as_the_end() {
    let rig = rig(&TOOLS);
    let ran = rig.run(Script::new([text("I am done."), text("Really done.")]).native()).await;
    assert_eq!(ran.drive.stop, StopReason::ImplicitFinish);
    assert_eq!(ran.drive.summary, "Really done.");
    assert_eq!(ran.drive.steps, 2);
}

#[tokio::test]
async fn parts_of_content_are_joined() {
    let rig = rig(&TOOLS);
    let parts = json!([{"type": "text", "text": "{\"tool\":\"finish\","},
                       {"type": "text", "text": "\"args\":{\"status\":\"done\",\"summary\":\"joined\"}}"}]);
    let ran = rig.run(Script::new([Reply::Message(json!({"content": parts}), json!(null))])).await;
    assert_eq!(ran.drive.summary, "joined");
}

#[tokio::test]
async fn recorded_parallel_calls_are_all_carried_out_in_order() {
    let rig = rig(&TOOLS);
    let end = native("finish", json!({"status": "done", "summary": "x"}));
    rig.run(Script::new([Reply::Json(200, fixture("parallel.json")), end]).native()).await;
    assert_eq!((rig.bench.get("a.txt"), rig.bench.get("b.txt")), ("A".to_owned(), "B".to_owned()));
}

#[tokio::test]
async fn the_summary_is_cleaned() {
    let rig = rig(&TOOLS);
    let last = act("finish", json!({"status": "failed", "summary": "\u{1b}[2Jgone"}));
    let ran = rig.run(Script::new([last])).await;
    assert_eq!(ran.drive.summary, "\u{241b}[2Jgone");
    assert_eq!(ran.drive.status, Some(agent::Status::Failed));
}

/// Recorded answers of real servers, read as what they are.
#[tokio::test]
async fn recorded_answers_are_read_as_what_they_are() {
    let end = || native("finish", json!({"status": "done", "summary": "x"}));
    for (file, executed) in [("required-newlines.json", 0), ("tools-dropped.json", 0), ("escapes.json", 1)] {
        let rig = rig(&TOOLS);
        let ran = rig.run(Script::new([Reply::Json(200, fixture(file)), end()]).native()).await;
        assert_eq!(ran.drive.stop, StopReason::Finished, "{file}");
        assert_eq!(rig.bench.executed(), executed, "{file}");
    }
}
