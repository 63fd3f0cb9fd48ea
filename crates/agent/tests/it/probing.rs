//! What the probe believes: only what it saw.

use agent::{ModelProbe, ProbeError, ServerKind, probe};
use runs::{Cancel, Channel};
use testkit::Script;

use crate::rig::client;

async fn probed(script: Script, min_context: u64) -> Result<ModelProbe, ProbeError> {
    let server = script.start();
    let (_hand, cancel) = Cancel::new();
    probe(&client(&server.base_url(), None).unwrap(), min_context, &cancel).await
}

fn has(probe: &ModelProbe, code: &str) -> bool {
    probe.findings.iter().any(|f| f.code == code)
}

#[tokio::test]
async fn a_server_that_holds_schemas_is_used_by_schema() {
    let seen = probed(Script::new([]), 4096).await.unwrap();
    assert_eq!(seen.channel, Channel::Schema);
    assert_eq!((seen.n_ctx, seen.server), (Some(8192), ServerKind::LlamaCpp));
    assert_eq!(seen.models, ["local"]);
    assert!(seen.findings.is_empty(), "{:?}", seen.findings);
}

#[tokio::test]
async fn a_server_that_only_calls_natively_is_used_so() {
    let seen = probed(Script::new([]).native(), 0).await.unwrap();
    assert_eq!(seen.channel, Channel::Native);
    assert!(has(&seen, "schema-ignored"));
}

#[tokio::test]
async fn a_server_that_does_neither_is_read_as_text() {
    let seen = probed(Script::new([]).text_only(), 0).await.unwrap();
    assert_eq!(seen.channel, Channel::Text);
    assert!(has(&seen, "tools-ignored"));
}

/// Row 13.
#[tokio::test]
async fn a_server_that_rejects_schemas_and_tools_is_read_as_text() {
    let seen = probed(Script::new([]).rejects(), 0).await.unwrap();
    assert_eq!(seen.channel, Channel::Text);
    assert!(has(&seen, "schema-rejected") && has(&seen, "tools-rejected"));
}

#[tokio::test]
async fn open_tools_of_the_server_are_a_finding() {
    assert!(has(&probed(Script::new([]).tools_open(), 0).await.unwrap(), "server-tools-open"));
}

#[tokio::test]
async fn a_window_below_the_deployments_minimum_is_refused() {
    let e = probed(Script::new([]).n_ctx(Some(2048)), 8192).await.unwrap_err();
    assert!(matches!(e, ProbeError::TooSmall { have: 2048, need: 8192, .. }), "{e}");
    assert!(e.to_string().contains("-c 8192"), "{e}");
}

#[tokio::test]
async fn an_unknown_window_is_recorded_as_unknown() {
    let seen = probed(Script::new([]).n_ctx(None), 8192).await.unwrap();
    assert_eq!(seen.n_ctx, None);
    assert!(has(&seen, "window-unknown") && has(&seen, "no-health"));
    assert!(serde_json::to_value(&seen).unwrap()["n_ctx"].is_null());
}
