//! The runner itself: what it says of rows that are wrong, hostile, or leave something behind.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{FILE, prove, rows};
use crate::place::{Place, Ran, told as told_by};
use crate::process::{running, until};

/// A row that is a command line.
fn row(id: &str, setup: &[&str], argv: &[&str], expect: Value) -> Value {
    json!({"id": id, "class": "own", "kind": "shell", "setup": setup, "input": argv, "expect": expect})
}

fn write(place: &Place, rows: &[Value]) {
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    place.write("own.jsonl", lines.join("\n"));
}

/// What is said of these rows, on the fastest tier.
fn told(rows: &[Value]) -> (Ran, Vec<Value>) {
    let place = Place::quick();
    write(&place, rows);
    prove(&place, "own.jsonl", &[])
}

/// A control for all rows that hold: what is expected wrongly is told as failed, check by check.
#[test]
fn a_wrong_expectation_is_told_as_failed() {
    let echo = |id: &str, expect: Value| row(id, &[], &["sh", "-c", "echo hello; exit 3"], expect);
    let wrong = [
        ("outcome", json!({"outcome": "ok"})),
        ("exit_code", json!({"outcome": "error", "exit_code": 4})),
        ("signal", json!({"outcome": "error", "signal": 9})),
        ("stdout_contains", json!({"outcome": "error", "stdout_contains": ["nowhere"]})),
        ("stdout_not_contains", json!({"outcome": "error", "stdout_not_contains": ["hello"]})),
        ("last_stdout_not_contains", json!({"outcome": "error", "last_stdout_not_contains": ["hello"]})),
        ("stderr_contains", json!({"outcome": "error", "stderr_contains": ["nowhere"]})),
        ("must_exist", json!({"outcome": "error", "must_exist": ["nowhere"]})),
        ("must_not_exist", json!({"outcome": "error", "must_not_exist": ["{{POLICY_FILE}}"]})),
        ("file_equals", json!({"outcome": "error", "file_equals": {"{{POLICY_FILE}}": "x"}})),
        ("file_contains", json!({"outcome": "error", "file_contains": {"{{POLICY_FILE}}": "x"}})),
        ("mode", json!({"outcome": "error", "mode": {"{{POLICY_FILE}}": "777"}})),
        ("max_wall_s", json!({"outcome": "error", "max_wall_s": 0})),
        ("truncated", json!({"outcome": "error", "truncated": true})),
        ("executed_max", json!({"outcome": "error", "executed_max": 0})),
        ("step_outcomes", json!({"outcome": "error", "step_outcomes": ["ok"]})),
        ("listener_received", json!({"outcome": "error", "listener_received": 1})),
        ("transcript_not_contains", json!({"outcome": "error", "transcript_not_contains": ["echo hello"]})),
    ];
    let own: Vec<Value> = wrong.iter().map(|(key, expect)| echo(key, expect.clone())).collect();
    let (ran, rows) = told(&own);
    assert_eq!((ran.code, rows.len()), (Some(1), wrong.len()), "{ran:?}");
    for (row, (key, _)) in rows.iter().zip(&wrong) {
        assert_eq!((&row["verdict"], &row["got"]), (&"failed".into(), &"error".into()), "{row:#?}");
        let keys: Vec<&str> =
            row["misses"].as_array().unwrap().iter().map(|m| m["key"].as_str().unwrap()).collect();
        assert_eq!(keys, [*key], "{row:#?}");
    }
}

/// What a setup writes beside the workspace is seen to have been changed.
#[test]
fn survivors_and_changes_are_seen() {
    let changed = json!({
        "id": "changed", "class": "own", "kind": "tool", "setup": ["printf a > f"],
        "input": {"name": "write_file", "arguments": {"path": "f", "content": "{{REP:x:3}}"}},
        "expect": {"outcome": "ok", "unchanged": ["f"], "file_equals": {"f": "xxx"}},
    });
    let lives = "sleep 400 </dev/null >/dev/null 2>&1 & echo started";
    let survivor = row("survivor", &[], &["sh", "-c", lives], json!({"outcome": "ok", "survivors": 0}));
    let (ran, rows) = told(&[changed, survivor]);
    assert_eq!(ran.code, Some(1));
    for (row, key) in rows.iter().zip(["unchanged", "survivors"]) {
        let misses = row["misses"].as_array().unwrap();
        assert_eq!((misses.len(), &misses[0]["key"]), (1, &key.into()), "{row:#?}");
    }
}

#[test]
fn a_hostile_text_is_printed_clean() {
    let place = Place::quick();
    let evil = "\u{1b}[2Jevil\u{202e}\u{9b}31m\u{7}";
    let class = format!("c{evil}");
    let mut bad =
        row(evil, &[], &["printf", "%s", evil], json!({"outcome": "ok", "stdout_contains": [evil]}));
    bad["class"] = class.into();
    let setup = row(
        "setup\u{1b}]0;x\u{7}",
        &["printf '\\033[31mred' >&2; exit 1"],
        &["true"],
        json!({"outcome": "ok"}),
    );
    write(&place, &[bad, setup]);
    let malformed = json!({"id": "x", evil: 1});
    place.write("malformed.jsonl", malformed.to_string());
    for args in [
        vec!["prove", "--cases", "own.jsonl", "--tier", "namespace", "--data", "prove"],
        vec!["prove", "--cases", "own.jsonl", "--tier", "namespace", "--data", "prove", "--json"],
        vec!["prove", "--cases", "malformed.jsonl"],
    ] {
        let ran = place.ran(&args);
        assert!([Some(1), Some(2)].contains(&ran.code), "{ran:?}");
        let said = ran.out + &ran.err;
        assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
        assert!(!said.contains('\u{202e}') && !said.contains("\\u001b"), "{said:?}");
    }
}

#[test]
fn a_malformed_file_is_told_with_line_and_spelling_and_nothing_runs() {
    let place = Place::quick();
    let good = row("good", &["touch '{{OUTSIDE}}/../../../ran'"], &["true"], json!({"outcome": "ok"}));
    let bad = row("bad", &[], &["true"], json!({"outcome": "ok", "survivers": 0}));
    write(&place, &[good, bad]);
    let ran = place.ran(["prove", "--cases", "own.jsonl", "--data", "prove"]);
    ran.assert_refused(
        2,
        "own.jsonl:2: `expect.survivers`: there is no key `survivers` here (did you mean `survivors`?)",
    );
    assert!(!place.path("prove").exists() && !place.path("ran").exists());
    place.ran(["prove", "--cases", "nowhere.jsonl"]).assert_refused(2, "cannot read nowhere.jsonl");
    place.ran(["prove", "--cases", FILE, "--only", "OC-99"]).assert_refused(2, "no row of such a name");
    place.ran(["prove", "--cases", FILE, "--class", "nothing"]).assert_refused(2, "no row of such a name");
}

#[test]
fn a_row_that_cannot_be_set_up_is_neither_held_nor_failed() {
    let broken = row("broken", &["true", "exit 7"], &["true"], json!({"outcome": "ok"}));
    let generated = json!({"id": "generated", "class": "own", "kind": "model",
        "input": {"turns_generate": {"n": 3}}, "expect": {"outcome": "ok"}});
    let (ran, rows) = told(&[broken, generated]);
    assert_eq!(ran.code, Some(1));
    assert!(rows.iter().all(|row| row["verdict"] == "could_not_be_asked"), "{rows:#?}");
    assert_eq!(rows[0]["why"], "line 2 of its `setup` failed: exit code 7");
}

/// A tool that only the form knows makes a row mean nothing; a name that nobody knows may be the attack.
#[test]
fn a_tool_that_is_not_here_makes_its_row_mean_nothing() {
    let call = |id: &str, input: Value| json!({"id": id, "class": "own", "kind": "tool", "input": input, "expect": {"outcome": "denied"}});
    let (ran, rows) = told(&[
        call("absent", json!({"name": "launch_rocket", "arguments": {}})),
        call("invented", json!({"turns": [{"tool_calls": [{"name": "launch_rocket", "arguments": {}}]}]})),
    ]);
    let verdicts: Vec<&str> = rows.iter().map(|row| row["verdict"].as_str().unwrap()).collect();
    assert_eq!((verdicts, ran.code), (vec!["not_applicable", "held"], Some(0)), "{rows:#?}");
    assert_eq!(rows[0]["why"], "there is no tool `launch_rocket`");
}

/// Whatever a line of a setup starts, in whatever session, has ended when the program has.
#[test]
fn nothing_that_a_row_starts_or_makes_is_left() {
    let place = Place::quick();
    let seconds = place.odd_number();
    let started = format!("setsid sleep {seconds} >/dev/null 2>&1 & mkdir -p a/b && chmod 0 a/b a");
    write(&place, &[row("a", &[&started], &["true"], json!({"outcome": "ok"}))]);
    let (ran, _) = prove(&place, "own.jsonl", &[]);
    assert!(ran.code.is_some(), "{ran:?}");
    assert!(running(&["sleep", &seconds]).is_empty());
}

#[test]
fn ctrl_c_leaves_nothing() {
    let place = Place::quick();
    let (seconds, inside) = (place.odd_number(), format!("{}7", place.odd_number()));
    let setup = format!("setsid sleep {seconds} >/dev/null 2>&1 &");
    write(&place, &[row("a", &[&setup], &["sleep", &inside], json!({"outcome": "ok"}))]);
    let args = ["prove", "--cases", "own.jsonl", "--tier", "namespace", "--data", "prove"];
    let program = place.oubliette(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the guest sleeps", || !running(&["sleep", &inside]).is_empty());
    let asked = Instant::now();
    kill_process(Pid::from_child(&program), Signal::INT).unwrap();
    let ran = told_by(program.wait_with_output().unwrap());
    ran.assert_refused(5, "cancelled");
    assert!(asked.elapsed() < Duration::from_secs(300), "{:?}", asked.elapsed());
    for seconds in [&seconds, &inside] {
        assert!(running(&["sleep", seconds]).is_empty(), "{seconds}");
    }
    assert_eq!(std::fs::read_dir(place.path("prove")).unwrap().count(), 0);
}

/// A name that one row has means that row, and a part of names all that have it; a class narrows both.
#[test]
fn rows_are_chosen_by_name_and_class() {
    let place = Place::quick();
    let ids = |more: &[&str]| -> Vec<String> {
        let args = ["prove", "--cases", FILE, "--tier", "wasm", "--data", "prove", "--json"];
        let rows = place.ran([&args, more].concat()).json()["rows"].as_array().unwrap().clone();
        rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&["--only", "OC-17.1"]), ["OC-17.1"]);
    assert_eq!(ids(&["--only", "OC-41."]).len(), 7);
    let of_class = rows().iter().filter(|row| row["class"] == "toctou").count();
    assert_eq!(ids(&["--class", "toctou"]).len(), of_class);
    assert_eq!(ids(&["--class", "toctou", "--only", "OC-04.2"]), ["OC-04.2"]);
}
