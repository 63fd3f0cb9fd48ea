//! The `agent` tool: the call form of a hand-off, bounded by the list of roles and by depth.

use policy::{StopReason, Tool, Verdict};
use serde_json::json;
use testkit::Script;

use crate::rig::{act, finish, rig_of};

const LEAD: [Tool; 2] = [Tool::Agent, Tool::Finish];
const READER: [Tool; 2] = [Tool::ReadFile, Tool::Finish];

fn call(role: &str) -> testkit::Reply {
    act("agent", json!({"role": role, "task": "look at a.txt"}))
}

#[tokio::test]
async fn another_role_starts_fresh_with_its_own_tools_and_its_summary_comes_back() {
    let rig = rig_of(&[("lead", &LEAD, &["reader"]), ("reader", &READER, &[])]);
    rig.bench.put("a.txt", "hello");
    let ran = rig
        .run(Script::new([
            call("reader"),
            act("read_file", json!({"path": "a.txt"})),
            act("finish", json!({"status": "done", "summary": "it says hello"})),
            finish(),
        ]))
        .await;
    assert_eq!((ran.drive.stop, ran.drive.steps, ran.drive.calls), (StopReason::Finished, 4, 4));
    let fresh = &ran.server.asked()[1].body["messages"];
    assert_eq!(fresh.as_array().unwrap().len(), 2);
    assert_eq!(fresh[1]["content"], "look at a.txt");
    assert!(ran.told(3).contains("it says hello"), "{}", ran.told(3));
    let tools: Vec<_> = rig.events("request").iter().map(|r| r["tools"].clone()).collect();
    assert_eq!(tools[1], json!(["read_file", "finish"]));
    assert_eq!(rig.events("role_end").len(), 2);
}

#[tokio::test]
async fn a_role_that_is_not_in_the_list_is_not_started() {
    let rig = rig_of(&[("lead", &LEAD, &["reader"]), ("reader", &READER, &[]), ("other", &READER, &[])]);
    let ran = rig.run(Script::new([call("other"), finish()])).await;
    assert_eq!(rig.decisions()[0], ("agent".to_owned(), Verdict::Refused, "role-agents"));
    assert!(ran.told(1).contains("reader"), "{}", ran.told(1));
    assert_eq!(rig.events("role_start").len(), 1);
}

/// R43: depth.
#[tokio::test]
async fn r43_nesting_deeper_than_the_budget_is_refused_with_the_reason() {
    let rig = rig_of(&[("lead", &LEAD, &["lead"])]).budget(|b| b.depth = 2);
    let ran =
        rig.run(Script::new([call("lead"), call("lead"), call("lead"), finish(), finish(), finish()])).await;
    assert_eq!(ran.drive.stop, StopReason::Finished);
    assert!(ran.told(3).contains("2 deep at most"), "{}", ran.told(3));
    assert_eq!(rig.decisions()[2].2, "depth");
    assert_eq!(rig.events("budget")[0]["bound"], "depth_limit");
}

#[tokio::test]
async fn r43_the_roles_share_the_runs_budget() {
    let rig = rig_of(&[("lead", &LEAD, &["lead"])]).budget(|b| b.steps = 3);
    let ran = rig.run(Script::new((0..9).map(|_| call("lead")))).await;
    assert_eq!((ran.drive.stop, ran.drive.steps), (StopReason::StepLimit, 3));
}
