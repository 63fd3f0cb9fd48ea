//! Does what the turns ask for: requests, tool calls, records, and the roles below a role.

use std::pin::Pin;
use std::time::Duration;

use policy::{Decision, Grant, RoleName, StopReason};
use runs::{Cancel, Event};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::bench::Rehearsal;
use crate::model::client::Exchange;
use crate::past::{Cursor, Met, Past, Remembered, Seen, unknown};
use crate::role::Setup;
use crate::tools::finish::Status;
use crate::tools::{Action, Tools, agent};
use crate::turn::{Ask, End, Go, Next, Spent, Turn};
use crate::{BenchError, LoadedGuild, Model, ModelError, Workbench};

/// Longer texts are kept as artifacts.
const LONGEST_TEXT: usize = 32 << 10;
const WALL: &str = "the wall clock of the run ended while the model was answering";

/// How a run's conversation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drive {
    /// Why.
    pub stop: StopReason,
    /// The entry role's last word, cleaned; or what went wrong, for the operator.
    pub summary: String,
    /// What the entry role claims, when it called `finish`. Proves nothing.
    pub status: Option<Status>,
    /// Tokens, as the server counts them.
    pub tokens: u64,
    /// Model turns of all roles.
    pub steps: u32,
    /// Tool calls of all roles, refused ones included.
    pub calls: u32,
}

/// Lets the entry role of a Guild work on a task until it ends or a bound strikes.
pub async fn drive<W: Workbench>(
    bench: &W,
    grant: &Grant,
    guild: &LoadedGuild,
    model: &Model,
    task: &str,
    cancel: &Cancel,
) -> Drive {
    let driver =
        Driver { bench, grant, guild, model, cancel, before: Duration::ZERO, started: Instant::now() };
    driver.drive(&mut State::new(None), task).await
}

/// The same from where a record ends: what stands there is gone through without doing it again, and the work goes on
/// behind it.
pub async fn go_on<W: Workbench>(
    bench: &W,
    grant: &Grant,
    guild: &LoadedGuild,
    model: &Model,
    (task, past): (&str, &Past<'_>),
    cancel: &Cancel,
) -> Drive {
    let driver = Driver { bench, grant, guild, model, cancel, before: past.used, started: Instant::now() };
    driver.drive(&mut State::new(Some(past)), task).await
}

/// Whether [`go_on`] would find its way through a record; nothing is done and nobody is asked.
///
/// # Errors
/// A sentence that names the line where it would not.
pub async fn rehearse(
    grant: &Grant,
    guild: &LoadedGuild,
    model: &Model,
    (task, past): (&str, &Past<'_>),
) -> Result<(), String> {
    let (_hand, cancel) = Cancel::new();
    let bench = &Rehearsal::default();
    let driver =
        Driver { bench, grant, guild, model, cancel: &cancel, before: past.used, started: Instant::now() };
    let mut state = State::new(Some(past));
    driver.drive(&mut state, task).await;
    match state.cursor.lost {
        Some(lost) => Err(lost),
        None => Ok(()),
    }
}

struct Driver<'a, W> {
    bench: &'a W,
    grant: &'a Grant,
    guild: &'a LoadedGuild,
    model: &'a Model,
    cancel: &'a Cancel,
    /// The wall clock that was used before the run went on.
    before: Duration,
    started: Instant,
}

struct State<'a> {
    spent: Spent,
    /// The number of the newest call; there is one driver, so the next one is known.
    last_call: u32,
    cursor: Cursor<'a>,
}

impl<'a> State<'a> {
    fn new(past: Option<&'a Past<'a>>) -> State<'a> {
        State { spent: Spent::default(), last_call: 0, cursor: Cursor::new(past) }
    }
}

impl<W: Workbench> Driver<'_, W> {
    async fn drive(&self, state: &mut State<'_>, task: &str) -> Drive {
        let entry = self.grant.entry.clone().unwrap_or_else(|| self.guild.guild.entry.clone());
        let end = match state.cursor.begin() {
            Ok(()) => self.role(state, entry, 0, task.to_owned()).await,
            Err(e) => failed(e),
        };
        Drive {
            stop: end.stop,
            summary: end.summary,
            status: end.status,
            tokens: state.spent.tokens,
            steps: state.spent.steps,
            calls: state.spent.tool_calls,
        }
    }

    /// One role from start to end; boxed, because roles start roles.
    fn role<'b, 'c>(
        &'b self,
        state: &'b mut State<'c>,
        role: RoleName,
        depth: u32,
        task: String,
    ) -> Pin<Box<dyn Future<Output = End> + 'b>>
    where
        'c: 'b,
    {
        Box::pin(async move {
            let start = Event::RoleStart { role: role.to_string(), depth, task: task.clone() };
            let mut end = match self.record(state, start) {
                Ok(_) => self.work(state, &role, depth, task).await.unwrap_or_else(failed),
                Err(e) => failed(e),
            };
            let told = Event::RoleEnd {
                role: role.to_string(),
                depth,
                stop: end.stop,
                summary: end.summary.clone(),
            };
            match self.record(state, told) {
                Ok(None) => end,
                // For what came from outside, the record is the only one that knows.
                Ok(Some(line)) => {
                    end.stop = serde_json::from_value(line["stop"].clone()).unwrap_or(end.stop);
                    end.summary = line["summary"].as_str().unwrap_or_default().to_owned();
                    end
                }
                Err(e) => failed(e),
            }
        })
    }

    async fn work(
        &self,
        state: &mut State<'_>,
        role: &RoleName,
        depth: u32,
        task: String,
    ) -> Result<End, BenchError> {
        let (probe, name) = (&self.model.probe, &self.model.client.name);
        let Some(setup) = Setup::new(self.grant, self.guild, probe, name, role, depth, task) else {
            return Err(BenchError::Lost { reason: format!("the Guild has no role `{role}`") });
        };
        let mut turn = Turn::new(setup);
        let mut seen = state.cursor.seen();
        loop {
            while state.cursor.pass_resume() {}
            let now = state.cursor.seen();
            if now.resumed != seen.resumed {
                turn.interrupted(now.restarts != seen.restarts);
            }
            seen = now;
            if state.cursor.is_live() && self.cancel.is_cancelled() {
                return Err(BenchError::Cancelled);
            }
            let next = turn.next(self.grant, &mut state.spent, self.elapsed(&state.cursor));
            self.record_all(state, &mut turn)?;
            match next {
                Next::Ask(ask) => self.ask(state, &mut turn, role, ask).await?,
                Next::Refuse { name, decision } => {
                    state.last_call = self.bench.next_call();
                    self.decided(state, state.last_call, role, name, decision)?;
                }
                Next::Run(go) => self.run(state, &mut turn, (role, depth, seen), go).await?,
                Next::End(end) => return Ok(end),
            }
            self.record_all(state, &mut turn)?;
        }
    }

    /// Writes an event, or meets the line in which it was written.
    fn record<'c>(&self, state: &mut State<'c>, event: Event) -> Result<Option<&'c Value>, BenchError> {
        if state.cursor.is_live() {
            self.bench.record(event)?;
            return Ok(None);
        }
        let value = serde_json::to_value(&event).map_err(|e| state.cursor.astray(&e.to_string()))?;
        match state.cursor.meet(&value)? {
            Met::Live => self.bench.record(event).map(|()| None),
            Met::Same(line) => Ok(Some(line)),
            Met::Over(line) => {
                let reason = line["summary"].as_str().unwrap_or_default().to_owned();
                Err(BenchError::Lost { reason })
            }
        }
    }

    fn record_all(&self, state: &mut State<'_>, turn: &mut Turn) -> Result<(), BenchError> {
        turn.events().into_iter().try_for_each(|event| self.record(state, event).map(drop))
    }

    fn decided(
        &self,
        state: &mut State<'_>,
        call: u32,
        role: &RoleName,
        tool: String,
        decision: Decision,
    ) -> Result<(), BenchError> {
        let event = Event::Decision { call, role: role.to_string(), tool, decision, layer: "policy" };
        self.record(state, event).map(drop)
    }

    /// Of the wall clock; in the past it struck where the record says so.
    fn elapsed(&self, cursor: &Cursor<'_>) -> Duration {
        match (cursor.is_live(), cursor.wall_struck()) {
            (true, _) => self.before + self.started.elapsed(),
            (false, true) => self.grant.budget.wall,
            (false, false) => Duration::ZERO,
        }
    }

    fn left(&self) -> Duration {
        self.grant.budget.wall.saturating_sub(self.before + self.started.elapsed())
    }

    async fn ask(
        &self,
        state: &mut State<'_>,
        turn: &mut Turn,
        role: &RoleName,
        ask: Ask,
    ) -> Result<(), BenchError> {
        let body = ask.body.to_string();
        let body_sha256 = match state.cursor.name_of(body.as_bytes()) {
            Some(name) => name,
            None => self.bench.artifact(body.as_bytes())?,
        };
        let step = ask.step;
        self.record(state, Event::Request { role: role.to_string(), step, body_sha256, tools: ask.tools })?;
        match state.cursor.kind() {
            None => {}
            // Nobody heard the answer: it is asked once more, and told what happened.
            Some("resume") => return Ok(()),
            Some("budget") => {
                state.cursor.take();
                turn.over(StopReason::WallLimit, WALL);
                return Ok(());
            }
            Some("response") => return self.answered(state, turn),
            Some("role_end") => return Err(BenchError::Cancelled),
            Some(_) => return Err(state.cursor.astray("no answer stands behind a request")),
        }
        let asked = tokio::time::timeout(self.left(), self.model.client.chat(&ask.body, self.cancel)).await;
        let Ok(exchange) = asked else {
            let allowed = self.grant.budget.wall.as_secs();
            self.bench.record(Event::Budget { bound: StopReason::WallLimit, used: allowed, allowed })?;
            turn.over(StopReason::WallLimit, WALL);
            return Ok(());
        };
        self.record_response(role, ask.step, &exchange)?;
        match exchange.answer {
            Ok(answer) => turn.answer(answer, &mut state.spent),
            Err(ModelError::ContextOverflow { n_ctx }) => turn.overflow(n_ctx),
            Err(ModelError::Cancelled) => return Err(BenchError::Cancelled),
            Err(e @ ModelError::Unavailable { .. }) => {
                turn.over(StopReason::EndpointUnavailable, &e.to_string());
            }
            Err(e @ (ModelError::Protocol { .. } | ModelError::Address { .. })) => {
                turn.over(StopReason::EndpointProtocol, &e.to_string());
            }
        }
        Ok(())
    }

    /// The answer as the record holds it.
    fn answered(&self, state: &mut State<'_>, turn: &mut Turn) -> Result<(), BenchError> {
        let Some(line) = state.cursor.take() else { return Ok(()) };
        match state.cursor.answer(line)? {
            Remembered::Answer(answer) => turn.answer(answer, &mut state.spent),
            Remembered::Overflow { n_ctx } => turn.overflow(n_ctx),
            Remembered::Failed { protocol: true, why } => turn.over(StopReason::EndpointProtocol, &why),
            Remembered::Failed { protocol: false, why } => turn.over(StopReason::EndpointUnavailable, &why),
            // The user ended the waiting and, before anything else was written, the program as well.
            Remembered::Cancelled if state.cursor.kind() == Some("resume") => {}
            Remembered::Cancelled => return Err(BenchError::Cancelled),
        }
        Ok(())
    }

    fn record_response(&self, role: &RoleName, step: u32, exchange: &Exchange) -> Result<(), BenchError> {
        let body_sha256 = match exchange.body.as_slice() {
            [] => None,
            body => Some(self.bench.artifact(body)?),
        };
        let usage = exchange.answer.as_ref().ok().and_then(|a| a.usage).unwrap_or_default();
        let failed = exchange.answer.as_ref().err();
        self.bench.record(Event::Response {
            role: role.to_string(),
            step,
            status: exchange.status,
            body_sha256,
            prompt_tokens: usage.prompt,
            completion_tokens: usage.completion,
            duration_ms: exchange.duration_ms,
            error: failed.map(ToString::to_string),
            failed: failed.map(|e| match e {
                ModelError::Address { .. } | ModelError::Protocol { .. } => StopReason::EndpointProtocol,
                ModelError::Unavailable { .. } => StopReason::EndpointUnavailable,
                ModelError::ContextOverflow { .. } => StopReason::ContextExhausted,
                ModelError::Cancelled => StopReason::Cancelled,
            }),
        })
    }

    async fn run(
        &self,
        state: &mut State<'_>,
        turn: &mut Turn,
        (role, depth, seen): (&RoleName, u32, Seen),
        go: Go,
    ) -> Result<(), BenchError> {
        match go.action {
            Action::Finish(args) => {
                state.last_call = self.bench.next_call();
                self.decided(state, state.last_call, role, go.name, go.decision)?;
                turn.finished(&args);
            }
            Action::Agent(args) => {
                state.last_call = self.bench.next_call();
                self.decided(state, state.last_call, role, go.name, go.decision)?;
                if self.in_doubt(state, seen, go.doubtful) {
                    let text = self.unknown(state, None)?;
                    turn.result(text, self.grant);
                } else {
                    self.delegate(state, turn, depth, args).await;
                }
            }
            Action::ReadArtifact(args) => {
                state.last_call = self.bench.next_call();
                self.decided(state, state.last_call, role, go.name, go.decision)?;
                let text = self.read_again(state, &args)?;
                turn.result(text, self.grant);
            }
            action @ (Action::RunShell(_)
            | Action::RunCommand(_)
            | Action::ReadFile(_)
            | Action::WriteFile(_)
            | Action::EditFile(_)
            | Action::ApplyPatch(_)
            | Action::ListDir(_)
            | Action::Glob(_)
            | Action::Search(_)
            | Action::FetchUrl(_)
            | Action::Own(_)) => {
                self.decided(state, state.last_call + 1, role, go.name, go.decision)?;
                let text = match self.remembered(state, seen, go.doubtful)? {
                    Some(text) => text,
                    None => self.carried_out(state, &action).await?,
                };
                turn.result(text, self.grant);
            }
        }
        Ok(())
    }

    async fn carried_out(&self, state: &mut State<'_>, action: &Action) -> Result<String, BenchError> {
        let tools = Tools { bench: self.bench, grant: self.grant, cancel: self.cancel, left: self.left() };
        let said = tools.run(action).await?;
        state.last_call = said.last_call;
        let most = self.grant.call.to_model;
        let text = if said.text.chars().count() > most {
            let id = self.bench.artifact(said.text.as_bytes())?;
            crate::text::bound_naming(&said.text, most, &format!("; full text: artifact {id}"))
        } else {
            said.text
        };
        self.told(state, &text, false)?;
        Ok(text)
    }

    /// What an artifact holds. Reading changes nothing, so it is read once more where the record does not hold the end
    /// of it.
    fn read_again(
        &self,
        state: &mut State<'_>,
        args: &crate::tools::read_artifact::Args,
    ) -> Result<String, BenchError> {
        while state.cursor.pass_resume() {}
        if state.cursor.kind() == Some("tool_result") {
            let Some(line) = state.cursor.take() else { return Ok(String::new()) };
            return state.cursor.text(line);
        }
        let text = args.run(self.bench, self.grant.call.to_model)?;
        self.told(state, &text, false)?;
        Ok(text)
    }

    /// Keeps what the model is told of a call.
    fn told(&self, state: &mut State<'_>, text: &str, unknown: bool) -> Result<(), BenchError> {
        let call = state.last_call;
        let short = text.len() <= LONGEST_TEXT;
        let text_artifact = match (short, state.cursor.is_live()) {
            (false, true) => Some(self.bench.artifact(text.as_bytes())?),
            (false, false) | (true, _) => None,
        };
        let text = short.then(|| text.to_owned());
        self.record(state, Event::ToolResult { call, text, text_artifact, unknown }).map(drop)
    }

    /// What the record says of the call that was just decided; none when it did not begin.
    fn remembered(
        &self,
        state: &mut State<'_>,
        seen: Seen,
        doubtful: bool,
    ) -> Result<Option<String>, BenchError> {
        if self.in_doubt(state, seen, doubtful) {
            state.last_call = self.bench.next_call();
            return self.unknown(state, None).map(Some);
        }
        if state.cursor.is_live() {
            return Ok(None);
        }
        let mut ended = None;
        let mut begun = false;
        loop {
            match state.cursor.kind() {
                Some("tool_start") => {
                    (begun, ended) = (true, None);
                    state.last_call = self.bench.next_call();
                    if state.cursor.take().is_none_or(|line| line["call"] != state.last_call) {
                        return Err(state.cursor.astray("a call has another number"));
                    }
                }
                Some("tool_end") if begun => ended = state.cursor.take().map(|line| &line["outcome"]),
                Some("tool_result") if begun => {
                    let Some(line) = state.cursor.take() else { return Ok(None) };
                    return state.cursor.text(line).map(Some);
                }
                Some("resume") if begun => return self.unknown(state, ended).map(Some),
                // It ended the role as well.
                Some("role_end") => return Err(BenchError::Cancelled),
                None | Some(_) => return Err(state.cursor.astray("a call has no end")),
            }
        }
    }

    /// Whether a call that the record does not know may have been made all the same: its lines were lost with the
    /// machine. Then it is not made again.
    fn in_doubt(&self, state: &mut State<'_>, seen: Seen, doubtful: bool) -> bool {
        while state.cursor.pass_resume() {}
        doubtful || state.cursor.seen().restarts != seen.restarts
    }

    /// What the model is told of a call whose end nobody knows.
    fn unknown(&self, state: &mut State<'_>, ended: Option<&Value>) -> Result<String, BenchError> {
        let text = unknown(ended);
        self.told(state, &text, true)?;
        Ok(text)
    }

    async fn delegate(&self, state: &mut State<'_>, turn: &mut Turn, depth: u32, args: agent::Args) {
        let Some(name) = RoleName::new(&args.role) else {
            turn.result("error: that is no role".to_owned(), self.grant);
            return;
        };
        let end = self.role(state, name, depth + 1, args.task).await;
        if end.stop.is_infrastructure() {
            turn.over(end.stop, &end.summary);
            return;
        }
        let claim = match end.status {
            Some(Status::Done) => "finished: done",
            Some(Status::Failed) => "finished: failed",
            None => "ended without finish",
        };
        let text = format!("role {} {claim} ({})\n{}", args.role, end.stop, end.summary);
        turn.result(text, self.grant);
    }
}

fn failed(error: BenchError) -> End {
    let stop = match error {
        BenchError::Cancelled => StopReason::Cancelled,
        BenchError::Lost { .. } | BenchError::Record { .. } => StopReason::SandboxError,
    };
    End { stop, summary: error.to_string(), status: None }
}
