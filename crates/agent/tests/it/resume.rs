//! A run that was interrupted goes on from its record: wherever that was cut, nothing is done twice.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent::{BenchError, Drive, Model, Past, Workbench, go_on, probe, rehearse};
use policy::{StopReason, Tool};
use runs::{Cancel, Done, Ended, Event, Executed, FileCall, ModuleUse, Outcome, Page, ProgramCall};
use serde_json::{Value, json};
use testkit::{Reply, Script, ScriptedModel};

use crate::rig::{Rig, act, finish, native, rig_of};

const LEAD: [Tool; 3] = [Tool::RunShell, Tool::Agent, Tool::Finish];
const HELPER: [Tool; 2] = [Tool::RunShell, Tool::Finish];

/// A bench that keeps a record, as the real door does.
#[derive(Default)]
struct Desk {
    lines: RefCell<Vec<Value>>,
    artifacts: RefCell<BTreeMap<String, Vec<u8>>>,
    /// Commands that ran here.
    ran: RefCell<Vec<String>>,
    calls: Cell<u32>,
}

impl Desk {
    fn line(&self, event: &Event) {
        let mut line = serde_json::to_value(event).unwrap();
        line["seq"] = json!(self.lines.borrow().len() + 1);
        self.lines.borrow_mut().push(line);
    }

    /// The next sitting: the lines up to a cut, and the `resume` behind them.
    fn cut(&self, at: usize, restarted: bool) -> Desk {
        let mut lines = self.lines.borrow()[..at].to_vec();
        lines.push(json!({"type": "resume", "seq": at + 1, "restarted": restarted}));
        Desk {
            lines: RefCell::new(lines),
            artifacts: self.artifacts.clone(),
            ran: RefCell::default(),
            calls: Cell::new(0),
        }
    }

    fn of(&self, kind: &str) -> Vec<Value> {
        self.lines.borrow().iter().filter(|l| l["type"] == kind).cloned().collect()
    }
}

impl Workbench for Desk {
    async fn execute(&self, call: ProgramCall, _cancel: &Cancel) -> Result<Executed, BenchError> {
        let (number, command) = (self.next_call(), call.argv.last().unwrap().clone());
        let job = json!({"exec": {"argv": call.argv}});
        let (tool, stdin_artifact) = (call.tool, None);
        self.line(&Event::ToolStart {
            call: number,
            tool,
            job,
            stdin_artifact,
            timeout_ms: 1,
            output_bytes: 1,
        });
        self.ran.borrow_mut().push(command.clone());
        let outcome = Outcome {
            ended: Ended::Exit(0),
            stopped_by: policy::StoppedBy::Exit,
            usage: Default::default(),
            duration_ms: 1,
            stdout_bytes: 0,
            stderr_bytes: 0,
            background: 0,
            leftovers: None,
        };
        self.line(&Event::ToolEnd { call: number, outcome: json!(outcome), artifacts: Vec::new() });
        Ok(Executed {
            call: number,
            outcome,
            stdout: if command == "long" { "x".repeat(50_000) } else { format!("did {command}") },
            stderr: String::new(),
            truncated: false,
            stdout_artifact: None,
            stderr_artifact: None,
            refused: Vec::new(),
        })
    }

    async fn tool(&self, _: ModuleUse, _: &Cancel) -> Result<Executed, BenchError> {
        panic!("no tool of a Guild's own is called")
    }

    async fn file(&self, _: FileCall, _: &Cancel) -> Result<Done, BenchError> {
        panic!("no file tool is called")
    }

    async fn fetch(&self, _: &str, _: Duration, _: &Cancel) -> Result<Page, BenchError> {
        panic!("no page is fetched")
    }

    fn record(&self, event: Event) -> Result<(), BenchError> {
        self.line(&event);
        Ok(())
    }

    fn artifact(&self, bytes: &[u8]) -> Result<String, BenchError> {
        let name = runs::sha256(bytes);
        self.artifacts.borrow_mut().insert(name.clone(), bytes.to_vec());
        Ok(name)
    }

    fn kept(&self, id: &str) -> Result<Option<String>, BenchError> {
        let kept = self.artifacts.borrow().get(id).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        Ok(kept)
    }

    fn next_call(&self) -> u32 {
        self.calls.set(self.calls.get() + 1);
        self.calls.get()
    }
}

struct Play {
    rig: Rig,
    native: bool,
}

impl Play {
    fn replies(&self) -> Vec<Reply> {
        let sh = |command: &str| (String::from("run_shell"), json!({"command": command}));
        let call = |(tool, args): (String, Value)| {
            if self.native { native(&tool, args) } else { act(&tool, args) }
        };
        let done = |native: bool| {
            if native {
                self::native("finish", json!({"status": "done", "summary": "all good"}))
            } else {
                finish()
            }
        };
        let several = if self.native { Reply::Calls(vec![sh("b"), sh("long")]) } else { call(sh("b")) };
        vec![
            call(sh("a")),
            Reply::Text("nothing but words".to_owned()),
            call(("agent".to_owned(), json!({"role": "helper", "task": "help"}))),
            several,
            call(("no_such_tool".to_owned(), json!({}))),
            call(sh("c")),
            done(self.native),
            call(sh("d")),
            done(self.native),
        ]
    }

    fn new(native: bool) -> Play {
        Play { rig: rig_of(&[("lead", &LEAD, &["helper"]), ("helper", &HELPER, &[])]), native }
    }

    /// The server from the n-th answer on.
    async fn model(&self, from: usize) -> (Model, ScriptedModel) {
        let mut script = Script::new(self.replies().into_iter().skip(from)).n_ctx(Some(100_000));
        if self.native {
            script = script.native();
        }
        let server = script.start();
        let client = self.rig.client(&server);
        let probe = probe(&client, 0, &Cancel::new().1).await.unwrap();
        (Model { client, probe }, server)
    }

    async fn whole(&self) -> Desk {
        let desk = Desk::default();
        desk.lines.borrow_mut().push(json!({"type": "run_start", "seq": 1}));
        let (model, _server) = self.model(0).await;
        let Rig { grant, guild, .. } = &self.rig;
        let drive = agent::drive(&desk, grant, guild, &model, "work", &Cancel::new().1).await;
        assert_eq!(drive.stop, StopReason::Finished, "{drive:?}");
        desk
    }

    async fn resumed(&self, desk: &Desk) -> (Drive, ScriptedModel) {
        let answered = desk.of("response").len();
        let (model, server) = self.model(answered).await;
        let events = desk.lines.borrow().clone();
        let kept = desk.artifacts.borrow().clone();
        let past = Past {
            events: &events,
            artifact: &|name| kept.get(name).cloned(),
            name_of: &|bytes| runs::sha256(bytes),
            used: Duration::ZERO,
        };
        let Rig { grant, guild, .. } = &self.rig;
        assert_eq!(rehearse(grant, guild, &model, ("work", &past)).await, Ok(()));
        let drive = go_on(desk, grant, guild, &model, ("work", &past), &Cancel::new().1).await;
        (drive, server)
    }
}

/// Commands that the record says began.
fn begun(desk: &Desk) -> Vec<String> {
    let argv = |line: &Value| line["job"]["exec"]["argv"].as_array().unwrap().last().unwrap().clone();
    desk.of("tool_start").iter().map(|l| argv(l).as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn assert_done_once(desk: &Desk, native: bool, at: &str) {
    let began = begun(desk);
    let all: BTreeSet<&String> = began.iter().collect();
    assert_eq!(all.len(), began.len(), "{at}: something was run twice: {began:?}");
    let wanted: &[&str] = if native { &["a", "b", "long", "c", "d"] } else { &["a", "b", "c", "d"] };
    assert_eq!(began, wanted, "{at}");
    let numbers: Vec<u64> = desk.of("tool_start").iter().map(|l| l["call"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{at}: {numbers:?}");
}

/// Cut behind any line, and resumed: every call is made exactly once, in order, by the same roles.
#[tokio::test]
async fn a_run_cut_behind_any_line_goes_on_and_does_nothing_twice() {
    for native in [false, true] {
        let play = Play::new(native);
        let whole = play.whole().await;
        assert_done_once(&whole, native, "whole");
        let count = whole.lines.borrow().len();
        for at in 1..=count {
            let desk = whole.cut(at, false);
            let (drive, server) = play.resumed(&desk).await;
            let place = format!("native {native}, cut at {at}");
            assert_eq!(drive.stop, StopReason::Finished, "{place}: {drive:?}");
            assert_eq!(server.left(), 0, "{place}");
            assert_done_once(&desk, native, &place);
            assert_eq!(desk.of("role_end").len(), 2, "{place}");
            let unknown = desk.of("tool_result").iter().filter(|l| l["unknown"] == true).count();
            let kind = whole.lines.borrow()[at - 1]["type"].clone();
            assert_eq!(unknown, usize::from(kind == "tool_start" || kind == "tool_end"), "{place}: {kind}");
        }
    }
}

/// Cut again while it was resumed, and resumed again.
#[tokio::test]
async fn a_run_cut_twice_goes_on_and_does_nothing_twice() {
    let play = Play::new(true);
    let whole = play.whole().await;
    let count = whole.lines.borrow().len();
    for first in (1..count).step_by(3) {
        let once = whole.cut(first, false);
        play.resumed(&once).await;
        let more = once.lines.borrow().len();
        for second in (first + 1..=more).step_by(2) {
            let desk = once.cut(second, false);
            let (drive, _) = play.resumed(&desk).await;
            let place = format!("cut at {first} and {second}");
            assert_eq!(drive.stop, StopReason::Finished, "{place}: {drive:?}");
            assert_done_once(&desk, true, &place);
            assert_eq!(desk.of("resume").len(), 2);
        }
    }
}

/// After a loss of power lines may be missing: what may have been done is not done again.
#[tokio::test]
async fn after_a_restart_of_the_machine_no_call_that_was_asked_for_is_made() {
    let play = Play::new(true);
    let whole = play.whole().await;
    let lines = whole.lines.borrow().clone();
    for (at, line) in lines.iter().enumerate().filter(|(_, l)| l["type"] == "response") {
        let asked: BTreeSet<String> = match lines[at + 1..].iter().position(|l| l["type"] == "response") {
            Some(next) => begun(&whole.cut(at + 1 + next, false)).into_iter().collect(),
            None => begun(&whole).into_iter().collect(),
        };
        for cut in at + 1..(at + 4).min(lines.len()) {
            let desk = whole.cut(cut, true);
            let before = begun(&desk).len();
            let (drive, server) = play.resumed(&desk).await;
            assert_eq!(drive.stop, StopReason::Finished, "cut at {cut}, behind {line}");
            let again: Vec<String> = begun(&desk).split_off(before);
            // Those of the next answer were asked for after the restart.
            if lines[at + 1..cut].iter().all(|l| l["type"] != "request") {
                assert!(again.iter().all(|c| !asked.contains(c)), "cut at {cut}: {again:?} of {asked:?}");
            }
            let told = format!("{}", server.asked().first().map_or(Value::Null, |s| s.body.clone()));
            assert!(server.asked().is_empty() || told.contains("The machine itself was restarted"), "{told}");
        }
    }
}

/// The model hears of the interruption once in each conversation that was under way.
#[tokio::test]
async fn an_interruption_is_told_once_in_each_conversation() {
    let play = Play::new(false);
    let whole = play.whole().await;
    let inside = whole.lines.borrow().iter().rposition(|l| l["type"] == "role_start").unwrap() + 6;
    let desk = whole.cut(inside, false);
    let (_, server) = play.resumed(&desk).await;
    let asked = server.asked();
    let told =
        |n: usize| asked[n].body["messages"].to_string().matches("The run was interrupted here").count();
    assert_eq!((0..asked.len()).map(told).collect::<Vec<_>>(), vec![1; asked.len()]);
}

/// Another Guild or another program builds another conversation: then nothing goes on.
#[tokio::test]
async fn a_conversation_that_would_be_another_is_found_before_anything_is_done() {
    let mut play = Play::new(false);
    let whole = play.whole().await;
    for prompt in play.rig.guild.prompts.values_mut() {
        prompt.push_str(" And more.");
    }
    let desk = whole.cut(12, false);
    let (events, kept) = (desk.lines.borrow().clone(), desk.artifacts.borrow().clone());
    let past = Past {
        events: &events,
        artifact: &|name| kept.get(name).cloned(),
        name_of: &|bytes| runs::sha256(bytes),
        used: Duration::ZERO,
    };
    let (model, server) = play.model(0).await;
    let lost = rehearse(&play.rig.grant, &play.rig.guild, &model, ("work", &past)).await.unwrap_err();
    assert!(lost.contains("line 3 of the record"), "{lost}");
    assert!(server.asked().is_empty());
}

/// Budgets go on from what was used.
#[tokio::test]
async fn what_was_spent_before_counts() {
    let play = Play::new(false);
    let whole = play.whole().await;
    let (full, _) = play.resumed(&whole.cut(1, false)).await;
    let last = whole.lines.borrow().len();
    let desk = whole.cut(last - 3, false);
    let (drive, _) = play.resumed(&desk).await;
    assert_eq!((drive.steps, drive.calls, drive.tokens), (full.steps, full.calls, full.tokens));
    let desk = whole.cut(8, false);
    let (events, kept) = (desk.lines.borrow().clone(), desk.artifacts.borrow().clone());
    let past = Past {
        events: &events,
        artifact: &|name| kept.get(name).cloned(),
        name_of: &|bytes| runs::sha256(bytes),
        used: play.rig.grant.budget.wall,
    };
    let (model, server) = play.model(1).await;
    let cancel = Cancel::new().1;
    let drive = go_on(&desk, &play.rig.grant, &play.rig.guild, &model, ("work", &past), &cancel).await;
    assert_eq!((drive.stop, server.asked().len()), (StopReason::WallLimit, 0), "{drive:?}");
}

/// What the network decided stands between the lines wherever it came, and is no act of the driver.
#[tokio::test]
async fn decisions_about_the_network_between_any_two_lines_change_nothing() {
    let play = Play::new(false);
    let whole = play.whole().await;
    let last = whole.lines.borrow().len();
    let desk = whole.cut(last - 3, false);
    let (plain, _) = play.resumed(&desk).await;
    let desk = whole.cut(last - 3, false);
    let with: Vec<Value> = desk
        .lines
        .borrow()
        .iter()
        .flat_map(|line| [line.clone(), json!({"type": "egress", "event": "closed"})])
        .collect();
    *desk.lines.borrow_mut() = with;
    let (drive, _) = play.resumed(&desk).await;
    assert_eq!((drive.stop, drive.steps, drive.calls), (plain.stop, plain.steps, plain.calls));
}
