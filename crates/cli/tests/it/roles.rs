//! Names and arguments from a model are untrusted; a role has its own tools and no others.

use serde_json::{Value, json};
use testkit::{Reply, Script, ScriptedModel};

use crate::Who;
use crate::place::{Place, act, finish, sh, told_in};

fn played(place: &Place, replies: Vec<Reply>) -> ScriptedModel {
    let model = Script::new(replies.into_iter().chain([finish()])).n_ctx(Some(100_000)).start();
    let ran = place.run(&model.base_url());
    assert_eq!((ran.code, model.left()), (Some(0), 0), "{ran:?}");
    place.assert_whole("finished");
    model
}

/// R1: nothing runs, the model is told its own tools, the record has the refusal.
#[test]
fn r1_a_tool_that_is_not_the_roles_own_runs_nothing() {
    for name in ["run_shell", "Read_File", "read_file ", "exec", "../run_shell", "", "run_shell\u{0}"] {
        let place = Place::quick();
        place.guild(&["read_file", "finish"]);
        let model = played(&place, vec![act(name, json!({"command": "touch pwned", "path": "pwned"}))]);
        let refused: Vec<Value> =
            place.events_of("decision").into_iter().filter(|d| d["verdict"] == "refused").collect();
        assert_eq!(refused.len(), 1, "{name:?}");
        assert_eq!(refused[0]["rule"], "role-tools", "{name:?}");
        assert_eq!(place.events_of("tool_start").len(), 0, "{name:?}");
        let told = told_in(&model, 1);
        assert!(told.contains("read_file") && told.contains("finish"), "{name:?}: {told}");
        assert!(!place.newest().join("workspace/pwned").exists());
    }
}

/// R2: wrong arguments are refused with what would be right, and the run goes on.
#[test]
fn r2_wrong_arguments_run_nothing_and_the_run_goes_on() {
    let place = Place::quick();
    place.guild(&["run_shell", "run_command", "write_file", "finish"]);
    let broken = vec![
        act("run_shell", json!({})),
        act("run_shell", json!({"command": 7})),
        act("run_shell", json!({"command": ["touch", "pwned"]})),
        act("run_shell", json!({"command": "touch pwned", "network": true})),
        act("run_shell", json!({"command": "touch pwned\u{0}"})),
        act("run_shell", json!("touch pwned")),
        act("run_command", json!({"argv": "touch pwned"})),
        act("run_command", json!({"argv": []})),
        act("run_command", json!({"argv": ["touch", 1]})),
        act("write_file", json!({"path": "pwned"})),
        act("write_file", json!({"path": "a".repeat(5000), "content": ""})),
    ];
    let count = broken.len();
    let between = broken.into_iter().flat_map(|b| [b, sh("true")]).collect();
    played(&place, between);
    assert_eq!(place.events_of("tool_start").len(), count, "only the sound calls between ran");
    assert!(!place.newest().join("workspace/pwned").exists());
}

/// R2: an answer of two megabytes and one that is no JSON are answered, never guessed at.
#[test]
fn r2_huge_and_unreadable_answers_run_nothing() {
    let place = Place::quick();
    place.guild(&["run_shell", "finish"]);
    let two_mb = "touch pwned; ".repeat(170_000);
    played(
        &place,
        vec![
            act("run_shell", json!({"command": two_mb})),
            sh("true"),
            Reply::Text("{\"tool\": \"run_shell\", \"args\": {\"command\": \"touch pwned\"".to_owned()),
            Reply::Text(
                "{\"tool\":\"run_shell\",\"args\":{\"command\":\"true\",\"command\":\"touch pwned\"}}"
                    .to_owned(),
            ),
            sh("true"),
            Reply::Text("\u{fffd}\u{0}[[[[[".to_owned()),
        ],
    );
    assert_eq!(place.events_of("tool_start").len(), 2);
    assert!(!place.newest().join("workspace/pwned").exists());
}

/// R2, R43: unreadable answers without end stop the run, by name.
#[test]
fn r43_a_model_that_never_answers_properly_is_stopped() {
    let place = Place::quick();
    place.guild(&["run_shell", "finish"]);
    let model = Script::new([Reply::Text("{\"tool\": ".to_owned())]).last_again().start();
    let ran = place.run(&model.base_url());
    assert_eq!(ran.code, Some(4), "{ran:?}");
    place.assert_whole("format_errors");
}

/// R43: a call that repeats itself stops the run, by name.
#[test]
fn r43_a_model_that_loops_is_stopped() {
    let place = Place::quick();
    place.guild(&["run_shell", "finish"]);
    let model = Script::new([sh("echo again")]).last_again().start();
    let ran = place.run(&model.base_url());
    assert_eq!(ran.code, Some(4), "{ran:?}");
    place.assert_whole("loop_detected");
}

/// R43: the budget of the deployment counts calls, steps and tokens.
#[test]
fn r43_each_budget_stops_the_run_by_its_name() {
    for (bound, stop) in
        [("steps = 3", "step_limit"), ("tool_calls = 3", "tool_call_limit"), ("tokens = 300", "token_limit")]
    {
        let place = Place::quick();
        place.guild(&["run_shell", "finish"]);
        place.write("oubliette.toml", format!("[budget]\n{bound}\n"));
        let model = Script::new((0..9).map(|n| sh(&format!("echo {n}")))).start();
        let ran = place.run(&model.base_url());
        assert_eq!(ran.code, Some(4), "{bound}: {ran:?}");
        place.assert_whole(stop);
    }
}

/// R25: what is offered to the model is the role's own list, on every way of asking.
#[test]
fn r25_requests_offer_exactly_the_roles_tools() {
    let offered = ["list_dir", "read_file", "finish"];
    for native in [false, true] {
        let place = Place::quick();
        place.guild(&offered);
        let finish = ("finish".to_owned(), json!({"status": "done", "summary": "x"}));
        let model = if native {
            Script::new([Reply::Calls(vec![finish])]).native().start()
        } else {
            Script::new([crate::place::finish()]).start()
        };
        assert_eq!(place.run(&model.base_url()).code, Some(0));
        let body = &model.asked()[0].body;
        let names: Vec<Value> = if native {
            body["tools"].as_array().unwrap().iter().map(|t| t["function"]["name"].clone()).collect()
        } else {
            let schema = &body["response_format"]["json_schema"]["schema"];
            let forms = schema["anyOf"].as_array().unwrap();
            forms.iter().map(|f| f["properties"]["tool"]["const"].clone()).collect()
        };
        assert_eq!(json!(names), json!(offered), "native: {native}");
        assert_eq!(place.events_of("request")[0]["tools"], json!(offered), "native: {native}");
        for absent in ["run_shell", "run_command", "write_file", "edit_file"] {
            assert!(!body.to_string().contains(absent), "{absent} is named in the request");
        }
    }
}

/// R4: what a model thinks aloud is not what it does.
#[test]
fn r4_a_call_in_reasoning_text_runs_nothing() {
    let place = Place::quick();
    place.guild(&["run_shell", "finish"]);
    let thought = "{\"tool\": \"run_shell\", \"args\": {\"command\": \"touch pwned\"}}";
    let answer = json!({"tool": "finish", "args": {"status": "done", "summary": "x"}}).to_string();
    let message = json!({"role": "assistant", "reasoning_content": thought, "content": answer});
    let model = Script::new([Reply::Message(message, json!("stop"))]).start();
    assert_eq!(place.run(&model.base_url()).code, Some(0));
    assert_eq!(place.events_of("tool_start").len(), 0);
}

/// R26: a Guild without shell tools starts no program at all, whatever files it writes.
#[test]
fn r26_without_shell_tools_nothing_is_executed() {
    let place = Place::quick();
    place.guild(&["list_dir", "read_file", "write_file", "edit_file", "search", "finish"]);
    let script = "#!/bin/sh\ntouch ran\n";
    let hooks = [".git/hooks/post-checkout", "build.rs", "conftest.py", ".envrc"];
    let replies = hooks.iter().map(|h| act("write_file", json!({"path": h, "content": script})));
    played(&place, replies.chain([act("search", json!({"pattern": "touch"}))]).collect());
    for event in place.events_of("tool_start") {
        assert!(event["job"]["file"].is_object() && event["job"]["exec"].is_null(), "{event}");
    }
}

/// R28: a Guild says nothing about the executor's own affairs.
#[test]
fn r28_a_guild_cannot_widen_the_deployment() {
    for (more, code, word) in [
        ("[limits]\ntimeout = \"10m\"\n", 3, "limits.timeout"),
        ("[limits]\nmemory = \"64GiB\"\n", 3, "limits.memory"),
        ("[network]\nallow = [\"example.org:443\"]\n", 3, "network.allow"),
        ("[isolation]\nfloor = \"namespace\"\n", 2, "isolation"),
        ("[secrets]\npass = [\"HOME\"]\n", 2, "secrets"),
    ] {
        let place = Place::quick();
        place.guild(&["run_shell", "finish"]);
        let manifest = place.read("guild/guild.toml");
        place.write("guild/guild.toml", format!("{manifest}\n{more}"));
        let model = Script::new([finish()]).start();
        place.run(&model.base_url()).assert_refused(code, word);
        assert!(model.seen().is_empty() && place.ids().is_empty(), "{more}: something began");
    }
}

/// R32: an argument vector arrives as it is, whatever a shell would make of it.
#[test]
fn r32_odd_arguments_and_file_names_arrive_unchanged() {
    for tier in ["namespace", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        place.guild(&["run_command", "write_file", "read_file", "finish"]);
        let odd = "-a b'c\"d$(touch pwned)`touch pwned`;&|*?~\n\té\u{1F980}";
        let model = played(
            &place,
            vec![
                act("run_command", json!({"argv": ["printf", "<%s>", odd, "--", "", "$HOME"]})),
                act("write_file", json!({"path": "$(touch pwned); x\nz", "content": "odd name"})),
                act("run_command", json!({"argv": ["cat", "--", "$(touch pwned); x\nz"]})),
            ],
        );
        // Tab and newline stay; nothing of it is a control sequence.
        let printed: String = told_in(&model, 1);
        assert!(printed.contains("$(touch pwned)`touch pwned`;&|*?~"), "{printed}");
        assert!(printed.contains("<--><><$HOME>"), "{printed}");
        assert!(told_in(&model, 3).contains("odd name"), "{}", told_in(&model, 3));
        assert!(!place.newest().join("workspace/pwned").exists(), "a shell has read an argument");
    }
}

/// R31: the operator's lists are held for both tools, with the rule's name in the record.
#[test]
fn r31_a_denied_command_is_refused_with_its_rule() {
    let place = Place::quick();
    place.guild(&["run_shell", "run_command", "finish"]);
    place.write("oubliette.toml", "[shell]\ndeny = [\"shutdown\", \"git push\"]\n");
    played(
        &place,
        vec![
            sh("shutdown -h now"),
            act("run_command", json!({"argv": ["git", "push", "origin"]})),
            sh("env git push"),
            sh("echo fine"),
        ],
    );
    let refused = place.events_of("decision").into_iter().filter(|d| d["verdict"] == "refused").count();
    assert_eq!((refused, place.events_of("tool_start").len()), (3, 1));
}
