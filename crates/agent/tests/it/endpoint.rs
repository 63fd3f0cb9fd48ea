//! Rows 6, 14, 19, 21: servers that are down, slow, loading, or speak something else.

use std::net::TcpListener;
use std::time::Duration;

use agent::{ModelError, ProbeError, Timing, probe};
use policy::{StopReason, Tool};
use runs::Cancel;
use serde_json::{Value, json};
use testkit::{Reply, Script};

use crate::rig::{Ran, client, finish, fixture, rig};

async fn run(replies: impl IntoIterator<Item = Reply>) -> Ran {
    rig(&[Tool::Finish]).run(Script::new(replies)).await
}

fn raw(head: &str, body: &str) -> Reply {
    Reply::Raw(format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

/// Row 21.
#[tokio::test]
async fn odd_but_usable_answers_are_read() {
    let content = "{\"tool\":\"finish\",\"args\":{\"status\":\"done\",\"summary\":\"ok\"}}";
    let with = |finish: Value, usage: Value| json!({"choices": [{"message": {"content": content}, "finish_reason": finish}], "usage": usage, "x": [1]});
    for body in [
        with(json!(""), json!({})),
        with(json!(null), json!(null)),
        with(json!("eos"), json!({"prompt_tokens": 1})),
        with(json!("stop"), json!("none")),
        json!({"choices": [{"message": {"content": content}}], "error": null}),
    ] {
        let ran = run([Reply::Json(200, body.clone())]).await;
        assert_eq!(ran.drive.stop, StopReason::Finished, "{body}");
    }
}

#[tokio::test]
async fn a_body_that_is_not_the_protocol_ends_the_run_as_such() {
    for reply in [
        raw("200 OK", "<html>hi</html>"),
        raw("200 OK", ""),
        Reply::Json(200, json!({})),
        Reply::Json(200, json!({"choices": []})),
        Reply::Json(200, json!({"choices": [{"text": "old"}]})),
        Reply::Json(200, json!([1, 2])),
        Reply::Json(200, json!({"error": {"message": "no such model"}})),
        Reply::Json(404, json!({"error": {"message": "no such model"}})),
        Reply::Json(401, json!({"error": "key"})),
    ] {
        let ran = run([reply.clone()]).await;
        assert_eq!(ran.drive.stop, StopReason::EndpointProtocol, "{reply:?}");
        assert!(ran.drive.stop.is_infrastructure());
    }
}

#[tokio::test]
async fn an_empty_server_error_is_retried_three_times() {
    let bad = || raw("502 Bad Gateway", "");
    assert_eq!(run([bad(), bad(), bad(), finish()]).await.drive.stop, StopReason::Finished);
    let ran = run([bad(), bad(), bad(), bad(), finish()]).await;
    assert_eq!(ran.drive.stop, StopReason::EndpointUnavailable);
    assert_eq!(ran.server.asked().len(), 4);
}

/// Row 6: a server's 500 with a reason is not asked again and again.
#[tokio::test]
async fn a_server_error_with_a_reason_is_not_retried() {
    let ran = run([Reply::Json(500, fixture("broken-history.json")), finish()]).await;
    assert_eq!(ran.drive.stop, StopReason::EndpointUnavailable);
    assert!(ran.drive.summary.contains("Failed to parse tool call"), "{}", ran.drive.summary);
    assert_eq!(ran.server.asked().len(), 1);
}

#[tokio::test]
async fn a_hang_up_is_an_unavailable_endpoint_and_not_a_crash() {
    assert_eq!(run([Reply::HangUp]).await.drive.stop, StopReason::EndpointUnavailable);
    let half = Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"choices\"".to_vec());
    assert_eq!(run([half]).await.drive.stop, StopReason::EndpointUnavailable);
}

#[tokio::test]
async fn a_loading_server_is_waited_for() {
    let rig = rig(&[Tool::Finish]);
    let ran = rig.run(Script::new([finish()]).loading(3)).await;
    assert_eq!(ran.drive.stop, StopReason::Finished);
}

#[tokio::test]
async fn a_server_that_loads_for_ever_is_unavailable() {
    let server = Script::new([]).loading(u32::MAX).start();
    let timing = Timing { backoff: Duration::from_millis(1), loading: Duration::ZERO, ..Timing::default() };
    let client = client(&server.base_url(), None).unwrap().with_timing(timing);
    let (_hand, cancel) = Cancel::new();
    let e = probe(&client, 0, &cancel).await.unwrap_err();
    assert!(
        matches!(&e, ProbeError::Model(ModelError::Unavailable { reason, .. }) if reason.contains("loading"))
    );
}

#[tokio::test]
async fn nobody_at_the_port_is_unavailable() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let client = client(&format!("http://localhost:{port}/v1"), None).unwrap();
    let (_hand, cancel) = Cancel::new();
    let e = probe(&client, 0, &cancel).await.unwrap_err();
    assert!(matches!(e, ProbeError::Model(ModelError::Unavailable { .. })), "{e}");
}

/// Row 19.
#[tokio::test]
async fn the_total_limit_of_an_exchange_holds_and_is_not_retried() {
    let mut rig = rig(&[Tool::Finish]);
    rig.timing.total = Duration::from_millis(200);
    let late = Reply::After(Duration::from_secs(30), Box::new(finish()));
    let ran = rig.run(Script::new([late])).await;
    assert_eq!(ran.drive.stop, StopReason::EndpointUnavailable);
    assert!(ran.drive.summary.contains("no answer within"), "{}", ran.drive.summary);
}

#[tokio::test]
async fn an_endless_body_is_cut_off() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n".to_vec();
    let ran = run([Reply::Raw([head, vec![b' '; 9 << 20]].concat())]).await;
    assert_eq!(ran.drive.stop, StopReason::EndpointProtocol);
}

#[tokio::test]
async fn cancelling_ends_a_waiting_request() {
    let server = Script::new([Reply::After(Duration::from_secs(30), Box::new(finish()))]).start();
    let client = client(&server.base_url(), None).unwrap();
    let (hand, cancel) = Cancel::new();
    let body = json!({"messages": []});
    let (exchange, _) = tokio::join!(client.chat(&body, &cancel), async { hand.send(true) });
    assert_eq!(exchange.answer.unwrap_err(), ModelError::Cancelled);
}

#[test]
fn addresses_that_cannot_be_used_say_why() {
    for bad in [
        "https://example.org/v1",
        "127.0.0.1:8080",
        "http://",
        "http://a:b/v1",
        "http://u:p@h/v1",
        "http://h:1/v 1",
    ] {
        let e = client(bad, None).unwrap_err();
        assert!(matches!(e, ModelError::Address { .. }), "{bad}");
    }
    for good in
        ["http://localhost:1/v1", "http://[::1]:8080/v1", "http://127.0.0.1", "http://model.lan/api/v1/"]
    {
        assert!(client(good, None).is_ok(), "{good}");
    }
}
