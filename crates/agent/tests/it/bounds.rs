//! R43, OC-37, row 18: budgets and loops end with their own reason.

use std::cell::Cell;

use policy::{StopReason, Tool};
use serde_json::json;
use testkit::{Reply, Script};

use crate::rig::{act, finish, rig};

fn missing(name: &str) -> Reply {
    act("read_file", json!({"path": name}))
}

/// OC-37.1, row 18.
#[tokio::test]
async fn oc_37_1_the_same_failing_call_ends_the_run() {
    let rig = rig(&[Tool::ReadFile]).budget(|b| {
        b.repeats = 3;
        b.tool_calls = 50;
    });
    let ran = rig.run(Script::new([missing("missing.txt")]).last_again()).await;
    assert_eq!(ran.drive.stop, StopReason::LoopDetected);
    assert!(rig.bench.executed() <= 4, "{}", rig.bench.executed());
    let actions: Vec<_> = rig.events("loop").iter().map(|e| e["action"].clone()).collect();
    assert_eq!(actions, ["note", "refuse", "refuse", "stop"]);
}

/// OC-37.2, row 18.
#[tokio::test]
async fn oc_37_2_an_alternating_pair_ends_the_run() {
    let rig = rig(&[Tool::ReadFile]).budget(|b| {
        b.repeats = 3;
        b.tool_calls = 50;
    });
    let turns = (0..40).flat_map(|_| [missing("missing-a.txt"), missing("missing-b.txt")]);
    let ran = rig.run(Script::new(turns)).await;
    assert_eq!(ran.drive.stop, StopReason::LoopDetected);
    assert!(rig.bench.executed() <= 10, "{}", rig.bench.executed());
}

#[tokio::test]
async fn the_same_call_with_new_results_is_no_loop() {
    let mut rig = rig(&[Tool::RunShell, Tool::Finish]);
    let count = Cell::new(0);
    rig.bench.program = Box::new(move |_, _| {
        count.set(count.get() + 1);
        (0, format!("{}\n", count.get()))
    });
    let turns = (0..8).map(|_| act("run_shell", json!({"command": "date"}))).chain([finish()]);
    let ran = rig.run(Script::new(turns)).await;
    assert_eq!(ran.drive.stop, StopReason::Finished);
    assert_eq!(rig.bench.executed(), 8);
}

#[tokio::test]
async fn r43_steps_end_the_run() {
    let rig = rig(&[Tool::ReadFile]).budget(|b| b.steps = 3);
    let ran = rig.run(Script::new((0..9).map(|i| missing(&format!("{i}"))))).await;
    assert_eq!((ran.drive.stop, ran.drive.steps), (StopReason::StepLimit, 3));
    assert_eq!(rig.events("budget")[0]["bound"], "step_limit");
    assert!(ran.told(2).contains("calls left"), "{}", ran.told(2));
}

#[tokio::test]
async fn r43_tool_calls_end_the_run_refused_ones_included() {
    let rig = rig(&[Tool::ReadFile]).budget(|b| b.tool_calls = 3);
    let turns = (0..9).map(|i| act("run_shell", json!({"command": format!("echo {i}")})));
    let ran = rig.run(Script::new(turns)).await;
    assert_eq!((ran.drive.stop, ran.drive.calls), (StopReason::ToolCallLimit, 3));
}

#[tokio::test]
async fn r43_tokens_end_the_run() {
    let rig = rig(&[Tool::ReadFile]).budget(|b| b.tokens = 250);
    let ran = rig.run(Script::new((0..9).map(|i| missing(&format!("{i}"))))).await;
    assert_eq!((ran.drive.stop, ran.drive.tokens), (StopReason::TokenLimit, 360));
}

#[tokio::test]
async fn r43_a_server_that_counts_nothing_does_not_lift_the_token_budget() {
    let rig = rig(&[Tool::ReadFile]).budget(|b| b.tokens = 500);
    let ran = rig.run(Script::new((0..50).map(|i| missing(&format!("{i}")))).usage(None)).await;
    assert_eq!(ran.drive.stop, StopReason::TokenLimit);
}

#[tokio::test]
async fn r43_the_wall_clock_ends_the_run_while_the_model_answers() {
    let rig = rig(&[Tool::ReadFile]).budget(|b| b.wall = std::time::Duration::from_millis(100));
    let late = Reply::After(std::time::Duration::from_secs(30), Box::new(finish()));
    let ran = rig.run(Script::new([late])).await;
    assert_eq!(ran.drive.stop, StopReason::WallLimit);
}

#[tokio::test]
async fn unreadable_answers_in_a_row_end_the_run() {
    let rig = rig(&[Tool::ReadFile]).budget(|b| b.format_errors = 3);
    let ran = rig.run(Script::new([Reply::Text("not json".to_owned())]).last_again()).await;
    assert_eq!((ran.drive.stop, ran.drive.steps), (StopReason::FormatErrors, 3));
}

#[tokio::test]
async fn a_readable_answer_begins_the_count_of_unreadable_ones_anew() {
    let rig = rig(&[Tool::ReadFile, Tool::Finish]).budget(|b| b.format_errors = 2);
    let bad = || Reply::Text("not json".to_owned());
    let ran = rig.run(Script::new([bad(), missing("a"), bad(), finish()])).await;
    assert_eq!(ran.drive.stop, StopReason::Finished);
}

#[tokio::test]
async fn cancelling_under_a_call_ends_the_run_after_it() {
    let mut rig = rig(&[Tool::RunShell]);
    let (hand, cancel) = runs::Cancel::new();
    rig.bench.program = Box::new(move |_, _| {
        hand.send(true).unwrap();
        (0, "x".to_owned())
    });
    let ran = rig.run_until(Script::new([act("run_shell", json!({"command": "echo x"}))]), &cancel).await;
    assert_eq!(ran.drive.stop, StopReason::Cancelled);
    assert_eq!(rig.events("role_end")[0]["stop"], "cancelled");
}
