//! A model server that is down, wrong or slow: the run ends for that reason, with a record as complete as any.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::json;
use testkit::{Reply, Script};

use crate::place::{Place, finish, sh};

fn place() -> Place {
    let place = Place::quick();
    place.guild(&["run_shell", "finish"]);
    place
}

/// Answers that are no completion, each as the only one a server gives.
fn rubbish() -> Vec<(&'static str, Reply)> {
    let raw = |text: &str| Reply::Raw(text.as_bytes().to_vec());
    vec![
        (
            "html",
            raw(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 15\r\nConnection: close\r\n\r\n<html>no</html>",
            ),
        ),
        ("no http", raw("SSH-2.0-OpenSSH_9.2\r\n")),
        ("another object", Reply::Json(200, json!({"hello": "world"}))),
        ("no choices", Reply::Json(200, json!({"choices": []}))),
        ("a list", Reply::Json(200, json!([1, 2, 3]))),
        ("a client's error", Reply::Json(401, json!({"error": {"message": "who are you"}}))),
        ("escapes", Reply::Json(418, json!({"error": {"message": "\u{1b}[2J\u{1b}]0;owned\u{7}"}}))),
    ]
}

#[test]
fn a_server_that_is_down_is_infrastructure_and_the_record_is_complete() {
    let place = place();
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let ran = place.run(&format!("http://{free}/v1"));
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.err.contains(&free.to_string()), "{ran:?}");
    assert_eq!(ran.json()["stop"], "endpoint_unavailable");
    place.assert_whole("endpoint_unavailable");
}

#[test]
fn an_answer_that_is_no_completion_ends_the_run_for_that_reason() {
    for (what, reply) in rubbish() {
        let place = place();
        let model = Script::new([reply]).last_again().start();
        let ran = place.run(&model.base_url());
        assert_eq!(ran.code, Some(5), "{what}: {ran:?}");
        // What speaks no HTTP at all is no model server; what speaks it and says something else is a strange one.
        place.assert_whole(if what == "no http" { "endpoint_unavailable" } else { "endpoint_protocol" });
        assert!(!ran.err.contains("panicked") && !ran.err.contains('\u{1b}'), "{what}: {ran:?}");
    }
}

#[test]
fn a_server_that_keeps_failing_is_unavailable() {
    for reply in [Reply::Json(500, json!({"error": "x"})), Reply::HangUp] {
        let place = place();
        let model = Script::new([sh("echo once"), reply]).last_again().start();
        let ran = place.run(&model.base_url());
        assert_eq!(ran.code, Some(5), "{ran:?}");
        place.assert_whole("endpoint_unavailable");
        assert_eq!(place.events_of("tool_end").len(), 1);
    }
}

#[test]
fn a_server_that_still_loads_is_waited_for() {
    let place = place();
    let model = Script::new([finish()]).loading(2).start();
    let ran = place.run(&model.base_url());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    place.assert_whole("finished");
}

#[test]
fn a_window_that_is_too_small_is_refused_before_any_question() {
    let place = place();
    let model = Script::new([finish()]).n_ctx(Some(512)).start();
    let ran = place.run(&model.base_url());
    ran.assert_refused(3, "512");
    assert!(model.asked().is_empty());
    place.assert_whole("context_exhausted");
}

/// R43: the run's wall clock counts while a server thinks.
#[test]
fn r43_a_server_that_never_answers_does_not_hold_the_run() {
    let place = place();
    place.write("oubliette.toml", "[budget]\nwall = \"1s\"\n");
    let model = Script::new([Reply::After(Duration::from_secs(60), Box::new(finish()))]).start();
    let ran = place.run(&model.base_url());
    assert_eq!(ran.code, Some(4), "{ran:?}");
    place.assert_whole("wall_limit");
}

#[test]
fn an_address_that_is_none_is_an_error_of_usage() {
    for url in ["ftp://127.0.0.1/v1", "not a url", "http://", "https://example.org/v1"] {
        let place = place();
        let ran = place.run(url);
        assert_eq!(ran.code, Some(2), "{url}: {ran:?}");
        assert!(place.ids().is_empty(), "{url}");
    }
}

/// The model's own word decides nothing but the exit code.
#[test]
fn a_claimed_failure_is_exit_1() {
    let place = place();
    let failed = crate::place::act("finish", json!({"status": "failed", "summary": "could not"}));
    let ran = place.run(&Script::new([failed]).start().base_url());
    assert_eq!((ran.code, &ran.json()["claimed"]), (Some(1), &json!("failed")));
    place.assert_whole("finished");
}

/// R50: nothing is asked of anything but the endpoint, and the endpoint only what the protocol has.
#[test]
fn r50_only_the_endpoint_is_asked() {
    let place = place();
    let model = Script::new([sh("true"), finish()]).start();
    assert_eq!(place.run(&model.base_url()).code, Some(0));
    let known = [
        "/health",
        "/props",
        "/tools",
        "/v1/models",
        "/v1/chat/completions",
        "/slots",
        "/version",
        "/api/version",
    ];
    for seen in model.seen() {
        assert!(known.contains(&seen.path.as_str()), "{} {}", seen.method, seen.path);
    }
}

#[test]
fn proxy_variables_of_the_environment_are_not_obeyed() {
    let place = place();
    let model = Script::new([finish()]).start();
    let mut command = place.run_command(&model.base_url());
    for name in ["http_proxy", "HTTP_PROXY", "ALL_PROXY"] {
        command.env(name, "http://127.0.0.1:9");
    }
    assert_eq!(crate::place::ran(&mut command).code, Some(0));
}
