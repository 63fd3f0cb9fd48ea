//! Row 16: the window, by the server's own count and by its own error.

use policy::{StopReason, Tool};
use serde_json::json;
use testkit::{Reply, Script};

use crate::rig::{act, finish, fixture, rig};

fn read(path: &str) -> Reply {
    act("read_file", json!({"path": path}))
}

/// Row 16: clip and retry once.
#[tokio::test]
async fn an_overflow_clips_old_results_and_asks_again() {
    let rig = rig(&[Tool::ReadFile, Tool::Finish]);
    rig.bench.put("a", &"first\n".repeat(500));
    rig.bench.put("b", &"second\n".repeat(500));
    let overflow = Reply::Json(400, fixture("overflow.json"));
    let ran = rig.run(Script::new([read("a"), read("b"), overflow, finish()])).await;
    assert_eq!(ran.drive.stop, StopReason::Finished);
    let body = ran.server.asked()[3].body["messages"].to_string();
    assert!(body.contains("old result shortened") && body.contains("second"), "{body}");
    assert_eq!(rig.events("context")[0]["action"], "clip");
    assert!(rig.events("response")[2]["error"].as_str().unwrap().contains("window"));
}

/// Row 16: overflow is told by the body; the status is 400, 500 or 200.
#[tokio::test]
async fn an_overflow_that_nothing_helps_ends_the_run_whatever_the_status() {
    for status in [400, 500, 200] {
        let rig = rig(&[Tool::ReadFile, Tool::Finish]);
        let ran = rig.run(Script::new([Reply::Json(status, fixture("overflow.json"))])).await;
        assert_eq!(ran.drive.stop, StopReason::ContextExhausted, "{status}");
        assert!(!ran.drive.stop.is_infrastructure());
    }
}

#[tokio::test]
async fn a_nearly_full_window_clips_before_the_server_complains() {
    let rig = rig(&[Tool::ReadFile, Tool::Finish]);
    for name in ["a", "b", "c"] {
        rig.bench.put(name, &format!("{name} line\n").repeat(200));
    }
    let script = Script::new([read("a"), read("b"), read("c"), read("d"), finish()]);
    let ran = rig.run(script.n_ctx(Some(8192)).usage(Some((6500, 20)))).await;
    assert_eq!(ran.drive.stop, StopReason::Finished);
    let last = ran.server.asked()[4].body["messages"].to_string();
    assert!(last.contains("old result shortened"));
    assert!(!rig.events("context").is_empty());
}

#[tokio::test]
async fn a_full_window_ends_the_run_when_there_is_nothing_to_clip() {
    let rig = rig(&[Tool::ListDir, Tool::Finish]);
    let script = Script::new([act("list_dir", json!({})), act("list_dir", json!({"path": "x"})), finish()]);
    let ran = rig.run(script.n_ctx(Some(4096)).usage(Some((4090, 6)))).await;
    assert_eq!(ran.drive.stop, StopReason::ContextExhausted);
}

#[tokio::test]
async fn an_answer_never_takes_more_than_half_of_the_window() {
    let rig = rig(&[Tool::Finish]);
    let ran = rig.run(Script::new([finish()]).n_ctx(Some(1024))).await;
    assert_eq!(ran.server.asked()[0].body["max_tokens"], 512);
}
