//! The role loop as a pure state machine: told an answer or a result, it says what comes next.
//!
//! ```text
//!            ┌────────────── next ──────────────┐
//!   answer ──┤ queue empty: Ask   queue: Refuse │ Run ── result ──┐
//!            └──────────────────────────────────┘  ▲              │
//!                        End ◀── bounds, finish ───┴──────────────┘
//! ```
//!
//! No clock, no socket, no file: what it needs of them comes in, what it wants of them goes out.

mod reading;

use std::collections::VecDeque;
use std::time::Duration;

use policy::{Decision, Grant, StopReason};
use runs::{Channel, Event};
use serde_json::{Value, json};

use crate::action::{action_schema_with, native_tools};
use crate::arguments::fit;
use crate::guard::{Again, Guard, call_hash};
use crate::history::History;
use crate::model::wire::{Answer, Finish, Usage};
use crate::role::Setup;
use crate::tools::Action;
use crate::tools::finish::{self, Status};

/// Results that clipping leaves whole.
const KEEP: usize = 2;

/// What the whole run has spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) steps: u32,
    pub(crate) tool_calls: u32,
    pub(crate) tokens: u64,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Ask the model.
    Ask(Ask),
    /// Record that a call was refused; the model is told already.
    Refuse { name: String, decision: Decision },
    /// Do this and tell the result.
    Run(Go),
    /// The role is over.
    End(End),
}

/// A request.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) step: u32,
    pub(crate) body: Value,
    pub(crate) tools: Vec<String>,
}

/// A call that may be made.
#[derive(Debug)]
pub(crate) struct Go {
    pub(crate) name: String,
    pub(crate) action: Action,
    pub(crate) decision: Decision,
    /// Whether it may have been made before, and its lines were lost with the machine.
    pub(crate) doubtful: bool,
}

/// How a role ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) stop: StopReason,
    pub(crate) summary: String,
    pub(crate) status: Option<Status>,
}

/// A call that waits.
#[derive(Debug)]
struct Pending {
    id: String,
    name: String,
    /// The arguments, or what is wrong with them.
    args: Result<Value, String>,
    doubtful: bool,
}

/// One role at work.
#[derive(Debug)]
pub(crate) struct Turn {
    setup: Setup,
    history: History,
    guard: Guard,
    step: u32,
    calls: u32,
    tokens: u64,
    format_errors: u32,
    nudged: bool,
    last_prompt: u64,
    asked_bytes: usize,
    overflowed: bool,
    /// What the model is yet to be told of an interruption.
    interrupted: Option<String>,
    queue: VecDeque<Pending>,
    /// The call under way: its id and hash.
    current: Option<(String, [u8; 32])>,
    end: Option<End>,
    events: Vec<Event>,
}

impl Turn {
    pub(crate) fn new(setup: Setup) -> Turn {
        let history = History::new(setup.system.clone(), setup.task.clone(), setup.channel);
        let guard = Guard::new(setup.budget.repeats);
        Turn {
            setup,
            history,
            guard,
            step: 0,
            calls: 0,
            tokens: 0,
            format_errors: 0,
            nudged: false,
            last_prompt: 0,
            asked_bytes: 0,
            overflowed: false,
            interrupted: None,
            queue: VecDeque::new(),
            current: None,
            end: None,
            events: Vec::new(),
        }
    }

    /// What is to be recorded since the last time.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// What comes next.
    pub(crate) fn next(&mut self, grant: &Grant, run: &mut Spent, elapsed: Duration) -> Next {
        if let Some(end) = &self.end {
            return Next::End(end.clone());
        }
        if elapsed >= grant.budget.wall {
            let seconds = |d: Duration| d.as_secs();
            return self.bound(StopReason::WallLimit, seconds(elapsed), seconds(grant.budget.wall));
        }
        match self.queue.pop_front() {
            Some(pending) => self.take_up(pending, grant, run),
            None => self.ask(grant, run),
        }
    }

    /// Takes in an answer.
    pub(crate) fn answer(&mut self, answer: Answer, run: &mut Spent) {
        self.overflowed = false;
        self.count(&answer, run);
        if answer.finish == Finish::Length {
            let max = self.max_tokens();
            self.unreadable(
                "cut by max_tokens",
                format!(
                    "error: your answer was cut off at {max} tokens, nothing of it was done. Answer with one \
                     short action; write long files in parts"
                ),
            );
        } else if !answer.calls.is_empty() {
            self.native(answer.calls);
        } else if answer.content.trim().is_empty() {
            let why = if answer.reasoning.trim().is_empty() { "empty answer" } else { "reasoning only" };
            self.unreadable(why, format!("error: your answer holds no action. {}", self.form()));
        } else {
            match self.setup.channel {
                Channel::Schema => self.schema(&answer.content),
                Channel::Native | Channel::Text => self.text(&answer.content),
            }
        }
    }

    /// The conversation does not fit: once it is shortened, the next time it is the end.
    pub(crate) fn overflow(&mut self, n_ctx: Option<u64>) {
        if n_ctx.is_some() {
            self.setup.window = n_ctx;
        }
        let clipped = if self.overflowed { 0 } else { self.history.clip(1) };
        self.overflowed = true;
        self.step = self.step.saturating_sub(1);
        if clipped == 0 {
            self.over(StopReason::ContextExhausted, "the conversation no longer fits the model's window");
        } else {
            self.last_prompt = 0;
            self.events.push(Event::Context { action: "clip".to_owned(), messages: clipped });
        }
    }

    /// The result of the call under way.
    pub(crate) fn result(&mut self, text: String, grant: &Grant) {
        let Some((id, hash)) = self.current.take() else { return };
        let mut text = crate::text::bound(&text, grant.call.to_model);
        if let Again::Note(times) = self.guard.made(hash, &text) {
            self.events.push(Event::Loop { times, action: "note".to_owned() });
            text.push_str(&format!(
                "\n(the same call gave the same result {times} times; do not repeat it, do something else)"
            ));
        }
        self.tell(&id, text);
    }

    /// The run went on after an interruption; the model is told once, before it is asked the next time.
    pub(crate) fn interrupted(&mut self, restarted: bool) {
        self.interrupted = Some(crate::past::note(restarted));
        for pending in self.queue.iter_mut().filter(|_| restarted) {
            pending.doubtful = true;
        }
    }

    /// The role called `finish`.
    pub(crate) fn finished(&mut self, args: &finish::Args) {
        self.queue.clear();
        let end = End { stop: StopReason::Finished, summary: args.said(), status: Some(args.status) };
        self.end = Some(end);
    }

    /// Ends it for a reason from outside.
    pub(crate) fn over(&mut self, stop: StopReason, summary: &str) {
        self.end.get_or_insert(End { stop, summary: summary.to_owned(), status: None });
    }

    fn ask(&mut self, grant: &Grant, run: &mut Spent) -> Next {
        let own = &self.setup.budget;
        for (stop, used, allowed) in [
            (StopReason::StepLimit, u64::from(self.step), u64::from(own.steps)),
            (StopReason::StepLimit, u64::from(run.steps), u64::from(grant.budget.steps)),
            (StopReason::TokenLimit, self.tokens, own.tokens),
            (StopReason::TokenLimit, run.tokens, grant.budget.tokens),
        ] {
            if used >= allowed {
                return self.bound(stop, used, allowed);
            }
        }
        self.step += 1;
        run.steps += 1;
        if let Some(note) = self.interrupted.take() {
            self.history.note(note);
        }
        let mut body = json!({
            "model": self.setup.model,
            "messages": self.history.messages(),
            "temperature": self.setup.generation.temperature,
            "max_tokens": self.max_tokens(),
            "stream": false,
        });
        match self.setup.channel {
            Channel::Native => {
                body["tools"] = native_tools(&self.setup.tools, &self.setup.agents, &self.setup.own)
            }
            Channel::Schema => {
                if let Some(schema) =
                    action_schema_with(&self.setup.tools, &self.setup.agents, &self.setup.own)
                {
                    body["response_format"] = json!({
                        "type": "json_schema",
                        "json_schema": {"name": "action", "strict": true, "schema": schema},
                    });
                }
            }
            Channel::Text => {}
        }
        self.asked_bytes = body["messages"].to_string().len();
        let own = self.setup.own.iter().map(|tool| tool.name.clone());
        let tools = self.setup.tools.iter().map(ToString::to_string).chain(own).collect();
        Next::Ask(Ask { step: self.step, body, tools })
    }

    /// Never more than half of a known window.
    fn max_tokens(&self) -> u64 {
        let wanted = u64::from(self.setup.generation.max_tokens);
        self.setup.window.map_or(wanted, |window| wanted.min((window / 2).max(64)))
    }

    fn take_up(&mut self, pending: Pending, grant: &Grant, run: &mut Spent) -> Next {
        for (used, allowed) in
            [(self.calls, self.setup.budget.tool_calls), (run.tool_calls, grant.budget.tool_calls)]
        {
            if used >= allowed {
                return self.bound(StopReason::ToolCallLimit, u64::from(used), u64::from(allowed));
            }
        }
        self.calls += 1;
        run.tool_calls += 1;
        let written = pending.args.as_ref().map(Value::to_string).unwrap_or_default();
        let hash = call_hash(&pending.name, &written);
        match self.guard.before(hash) {
            Again::Fine | Again::Note(_) => {}
            Again::Refuse(times) => {
                self.guard.withheld(hash);
                self.events.push(Event::Loop { times, action: "refuse".to_owned() });
                let reason =
                    format!("the same call gave the same result {} times and is not run again", times - 1);
                let text = format!("error: {reason}; do something else, or finish");
                return self.refuse(pending, Decision::refuse("repeats", reason), text);
            }
            Again::Stop(times) => {
                self.events.push(Event::Loop { times, action: "stop".to_owned() });
                self.over(StopReason::LoopDetected, "the role kept making the same call");
                let reason = "the same call too often ends the role";
                return self.refuse(pending, Decision::refuse("repeats", reason), String::new());
            }
        }
        match self.judge(&pending, grant) {
            Ok((action, decision)) => {
                self.current = Some((pending.id, hash));
                Next::Run(Go { name: pending.name, action, decision, doubtful: pending.doubtful })
            }
            Err((decision, text)) => {
                self.guard.made(hash, &text);
                self.refuse(pending, decision, text)
            }
        }
    }

    /// Name, arguments and reach, in this order; or the decision against it and what the model is told.
    fn judge(&mut self, pending: &Pending, grant: &Grant) -> Result<(Action, Decision), (Decision, String)> {
        let (tool, decision) = grant.tool(&self.setup.role, &pending.name);
        let own = self.setup.own.iter().find(|own| own.name == pending.name);
        if !decision.is_allowed() || (tool.is_none() && own.is_none()) {
            let text = format!("error: {}; nothing was run. {}", decision.reason, self.form());
            return Err((decision, text));
        }
        let bad = |text: String| (Decision::refuse("arguments", crate::text::label(&text, 500)), text);
        let args = match &pending.args {
            Ok(args) => args,
            Err(why) => return Err(bad(format!("error: {why}; nothing was run"))),
        };
        let action = match (tool, own) {
            (Some(tool), _) => fit(tool, args).map_err(bad)?.action,
            (None, Some(own)) => Action::Own(own.fit(args).map_err(bad)?),
            (None, None) => return Err(bad("error: there is no such tool; nothing was run".to_owned())),
        };
        let judged = match &action {
            Action::Agent(call) => self.may_call(&call.role),
            Action::RunShell(_)
            | Action::RunCommand(_)
            | Action::ReadFile(_)
            | Action::WriteFile(_)
            | Action::EditFile(_)
            | Action::ApplyPatch(_)
            | Action::ListDir(_)
            | Action::Glob(_)
            | Action::Search(_)
            | Action::ReadArtifact(_)
            | Action::FetchUrl(_)
            | Action::Own(_)
            | Action::Finish(_) => action.judge(grant),
        };
        if judged.is_allowed() {
            return Ok((action, decision));
        }
        let text = format!("error: {}; nothing was run", judged.reason);
        Err((judged, text))
    }

    fn may_call(&mut self, role: &str) -> Decision {
        if !self.setup.agents.iter().any(|a| a.as_str() == role) {
            let names: Vec<&str> = self.setup.agents.iter().map(policy::RoleName::as_str).collect();
            return Decision::refuse(
                "role-agents",
                format!(
                    "this role may not start {}; it may start: {}",
                    crate::text::label(role, 64),
                    names.join(", ")
                ),
            );
        }
        let (used, allowed) = (self.setup.depth, self.setup.budget.depth);
        if used >= allowed {
            self.events.push(Event::Budget {
                bound: StopReason::DepthLimit,
                used: u64::from(used),
                allowed: u64::from(allowed),
            });
            return Decision::refuse(
                "depth",
                format!("agents may be nested {allowed} deep at most; do it yourself"),
            );
        }
        Decision::allow("role-agents")
    }

    fn refuse(&mut self, pending: Pending, decision: Decision, text: String) -> Next {
        self.tell(&pending.id, text);
        Next::Refuse { name: crate::text::label(&pending.name, 200), decision }
    }

    /// A result, with a word about what is left when little is; it stays as it is, for the prefix's sake.
    fn tell(&mut self, id: &str, mut text: String) {
        let steps = self.setup.budget.steps.saturating_sub(self.step);
        let calls = self.setup.budget.tool_calls.saturating_sub(self.calls);
        let left = steps.min(calls);
        if left <= 3 {
            text.push_str(&format!("\n({left} calls left; finish in time)"));
        }
        self.history.result(id, text);
    }

    fn bound(&mut self, stop: StopReason, used: u64, allowed: u64) -> Next {
        self.events.push(Event::Budget { bound: stop, used, allowed });
        self.over(stop, &format!("{stop}: {used} of {allowed} used"));
        self.queue.clear();
        Next::End(self.end.clone().unwrap_or(End { stop, summary: String::new(), status: None }))
    }

    fn count(&mut self, answer: &Answer, run: &mut Spent) {
        let said = answer.content.len() + answer.reasoning.len();
        // A server that counts nothing is not a way around the budget.
        let usage = answer
            .usage
            .unwrap_or(Usage { prompt: self.asked_bytes as u64 / 4, completion: said as u64 / 4 });
        let total = usage.prompt.saturating_add(usage.completion);
        self.tokens = self.tokens.saturating_add(total);
        run.tokens = run.tokens.saturating_add(total);
        if usage.prompt + 64 < self.last_prompt {
            self.events.push(Event::Context { action: "server-cut".to_owned(), messages: 0 });
        }
        self.last_prompt = usage.prompt;
        let Some(window) = self.setup.window else { return };
        if total.saturating_add(self.max_tokens()) <= window / 10 * 9 {
            return;
        }
        let clipped = self.history.clip(KEEP);
        if clipped > 0 {
            self.last_prompt = 0;
            self.events.push(Event::Context { action: "clip".to_owned(), messages: clipped });
        } else if total >= window {
            self.over(StopReason::ContextExhausted, "the conversation fills the model's window");
        }
    }

    /// The form of an action and the tools there are, in one sentence.
    fn form(&self) -> String {
        let own = self.setup.own.iter().map(|tool| tool.name.as_str());
        let names: Vec<&str> = self.setup.tools.iter().map(|t| t.as_str()).chain(own).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let how = match self.setup.channel {
            Channel::Schema => "Answer with {\"tool\": NAME, \"args\": {...}}. ",
            Channel::Text => {
                "End your answer with <tool_call>{\"name\": NAME, \"arguments\": {...}}</tool_call>. "
            }
            Channel::Native => "",
        };
        format!("{how}Your tools: {names}")
    }

    fn own_id(&self) -> String {
        format!("c{:08}", self.step)
    }
}

#[cfg(test)]
mod tests;
