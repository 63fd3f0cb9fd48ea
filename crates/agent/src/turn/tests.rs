//! The machine alone: answers in, effects out.

use std::collections::BTreeMap;

use policy::{Budget, Deployment, Generation, RoleGrant, RoleName, Tool};

use super::*;
use crate::model::wire::{Arguments, RawCall};

fn setup(channel: Channel, budget: &Budget) -> (Grant, Turn) {
    let mut grant = Grant::without_guild(&Deployment::default());
    let role = RoleName::new("coder").unwrap();
    let tools = vec![Tool::ReadFile, Tool::WriteFile, Tool::Finish];
    let generation = Generation::default();
    let own = RoleGrant {
        tools: tools.clone(),
        own_tools: Vec::new(),
        agents: Vec::new(),
        budget: budget.clone(),
        generation,
    };
    grant.roles = BTreeMap::from([(role.clone(), own)]);
    grant.budget = budget.clone();
    let turn = Turn::new(Setup {
        role,
        depth: 0,
        task: "task".to_owned(),
        system: "system".to_owned(),
        tools,
        own: Vec::new(),
        agents: Vec::new(),
        budget: budget.clone(),
        generation,
        channel,
        model: "local".to_owned(),
        window: None,
    });
    (grant, turn)
}

fn said(content: &str) -> Answer {
    Answer { content: content.to_owned(), finish: Finish::Stop, ..Answer::default() }
}

#[test]
fn a_call_is_asked_for_run_answered_and_asked_for_again() {
    let (grant, mut turn) = setup(Channel::Schema, &Budget::default());
    let mut spent = Spent::default();
    assert!(matches!(turn.next(&grant, &mut spent, Duration::ZERO), Next::Ask(ask) if ask.step == 1));
    turn.answer(said(r#"{"tool":"read_file","args":{"path":"a"}}"#), &mut spent);
    assert!(matches!(turn.next(&grant, &mut spent, Duration::ZERO), Next::Run(go) if go.name == "read_file"));
    turn.result("a: 1 line".to_owned(), &grant);
    assert!(matches!(turn.next(&grant, &mut spent, Duration::ZERO), Next::Ask(ask) if ask.step == 2));
    assert_eq!((spent.steps, spent.tool_calls), (2, 1));
}

#[test]
fn an_end_stays_the_end() {
    let (grant, mut turn) = setup(Channel::Schema, &Budget::default());
    let mut spent = Spent::default();
    turn.over(StopReason::EndpointUnavailable, "down");
    turn.over(StopReason::Finished, "too late");
    turn.answer(said(r#"{"tool":"read_file","args":{"path":"a"}}"#), &mut spent);
    for _ in 0..3 {
        let next = turn.next(&grant, &mut spent, Duration::ZERO);
        assert!(matches!(next, Next::End(end) if end.stop == StopReason::EndpointUnavailable));
    }
}

#[test]
fn calls_after_a_finish_in_the_same_answer_are_not_made() {
    let (grant, mut turn) = setup(Channel::Native, &Budget::default());
    let mut spent = Spent::default();
    let call = |id: &str, name: &str, args: &str| RawCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: Arguments::Text(args.to_owned()),
    };
    let calls = vec![
        call("aaaaaaaa1", "finish", r#"{"status":"done","summary":"x"}"#),
        call("aaaaaaaa2", "write_file", r#"{"path":"a","content":"b"}"#),
    ];
    turn.answer(Answer { calls, ..Answer::default() }, &mut spent);
    let Next::Run(Go { action: Action::Finish(args), .. }) = turn.next(&grant, &mut spent, Duration::ZERO)
    else {
        panic!("no finish")
    };
    turn.finished(&args);
    assert!(matches!(turn.next(&grant, &mut spent, Duration::ZERO), Next::End(_)));
}

/// R43: whatever a model says, the role ends within its bounds.
#[test]
fn r43_every_stream_of_answers_ends_within_the_bounds() {
    let budget = Budget { steps: 25, tool_calls: 25, ..Budget::default() };
    let answers = [
        r#"{"tool":"read_file","args":{"path":"a"}}"#,
        r#"{"tool":"read_file","args":{"path":"b"}}"#,
        r#"{"tool":"run_shell","args":{"command":"x"}}"#,
        r#"{"tool":"write_file","args":{"path":"/etc/passwd","content":""}}"#,
        r#"{"tool":"read_file","args":{}}"#,
        "prose",
        "",
        r#"<tool_call>{"name":"read_file","arguments":{"path":"c"}}</tool_call>"#,
        r#"{"tool":"#,
    ];
    for channel in [Channel::Schema, Channel::Native, Channel::Text] {
        // A small generator with a fixed seed: the same streams on every machine.
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..30 {
            let (grant, mut turn) = setup(channel, &budget);
            let (mut spent, mut rounds) = (Spent::default(), 0);
            loop {
                rounds += 1;
                assert!(rounds < 200, "no end in sight");
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let pick = usize::try_from(seed % 1000).unwrap();
                match turn.next(&grant, &mut spent, Duration::ZERO) {
                    Next::Ask(_) => turn.answer(said(answers[pick % answers.len()]), &mut spent),
                    Next::Run(_) => turn.result(format!("result {}", pick % 3), &grant),
                    Next::Refuse { .. } => {}
                    Next::End(_) => break,
                }
                turn.events();
            }
            assert!(spent.steps <= budget.steps && spent.tool_calls <= budget.tool_calls);
        }
    }
}

#[test]
fn a_very_long_argument_is_not_sent_again_and_again() {
    let (grant, mut turn) = setup(Channel::Schema, &Budget::default());
    let mut spent = Spent::default();
    let call = json!({"tool": "write_file", "args": {"path": "a", "content": "x".repeat(500_000)}});
    turn.answer(said(&call.to_string()), &mut spent);
    let Next::Run(Go { action: Action::WriteFile(args), .. }) = turn.next(&grant, &mut spent, Duration::ZERO)
    else {
        panic!("not run")
    };
    assert_eq!(args.content.len(), 500_000);
    turn.result("created".to_owned(), &grant);
    let Next::Ask(ask) = turn.next(&grant, &mut spent, Duration::ZERO) else { panic!("not asked") };
    assert!(ask.body.to_string().len() < 30_000);
}
