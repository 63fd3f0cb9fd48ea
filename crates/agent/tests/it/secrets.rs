//! R58: the key goes into one header and nowhere else.

use policy::Tool;
use runs::Cancel;
use serde_json::json;
use testkit::{Reply, Script};

use crate::rig::{client, finish, rig};

const KEY: &str = "sk-very-secret-0815";

#[tokio::test]
async fn r58_the_key_is_sent_as_a_header_and_in_no_body() {
    let mut rig = rig(&[Tool::Finish]);
    rig.key = Some(KEY.to_owned());
    let ran = rig.run(Script::new([finish()])).await;
    for seen in ran.server.seen() {
        assert_eq!(seen.header("authorization"), Some("Bearer sk-very-secret-0815"));
        assert!(!String::from_utf8_lossy(&seen.raw).contains(KEY) && !seen.path.contains(KEY));
    }
    assert!(!format!("{:?}", rig.bench.events.borrow()).contains(KEY));
    assert!(rig.bench.artifacts.borrow().iter().all(|a| !String::from_utf8_lossy(a).contains(KEY)));
}

#[tokio::test]
async fn r58_without_a_key_there_is_no_header() {
    let ran = rig(&[Tool::Finish]).run(Script::new([finish()])).await;
    assert!(ran.server.seen().iter().all(|s| s.header("authorization").is_none()));
}

#[tokio::test]
async fn r58_the_key_is_in_no_debug_text_error_or_record_even_if_the_server_echoes_it() {
    let mut rig = rig(&[Tool::Finish]);
    rig.key = Some(KEY.to_owned());
    let echo = json!({"error": {"message": format!("bad key {KEY}")}});
    let ran = rig.run(Script::new([Reply::Json(401, echo)])).await;
    assert!(!ran.drive.summary.contains(KEY), "{}", ran.drive.summary);
    assert!(!format!("{:?}", rig.bench.events.borrow()).contains(KEY));
    assert!(rig.bench.artifacts.borrow().iter().all(|a| !String::from_utf8_lossy(a).contains(KEY)));
    assert!(!format!("{:?}", rig.client(&ran.server)).contains(KEY));
}

#[tokio::test]
async fn r58_a_key_that_no_header_can_carry_is_refused_without_being_shown() {
    let server = Script::new([]).start();
    let bad = "line\nbreak-7731";
    let client = client(&server.base_url(), Some(bad.to_owned())).unwrap();
    let (_hand, cancel) = Cancel::new();
    let e = agent::probe(&client, 0, &cancel).await.unwrap_err().to_string();
    assert!(!e.contains("7731"), "{e}");
}
