//! Does what the turns ask for: requests, tool calls, records, and the roles below a role.

use std::pin::Pin;
use std::time::Duration;

use policy::{Decision, Grant, RoleName, StopReason};
use runs::{Cancel, Event};
use serde::Serialize;
use tokio::time::Instant;

use crate::model::client::Exchange;
use crate::role::Setup;
use crate::tools::finish::Status;
use crate::tools::{Action, Tools, agent};
use crate::turn::{Ask, End, Go, Next, Spent, Turn};
use crate::{BenchError, LoadedGuild, Model, ModelError, Workbench};

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
    let driver = Driver { bench, grant, guild, model, cancel, started: Instant::now() };
    let mut state = State { spent: Spent::default(), last_call: 0 };
    let entry = grant.entry.clone().unwrap_or_else(|| guild.guild.entry.clone());
    let end = driver.role(&mut state, entry, 0, task.to_owned()).await;
    Drive {
        stop: end.stop,
        summary: end.summary,
        status: end.status,
        tokens: state.spent.tokens,
        steps: state.spent.steps,
        calls: state.spent.tool_calls,
    }
}

struct Driver<'a, W> {
    bench: &'a W,
    grant: &'a Grant,
    guild: &'a LoadedGuild,
    model: &'a Model,
    cancel: &'a Cancel,
    started: Instant,
}

struct State {
    spent: Spent,
    /// The number of the newest call; there is one driver, so the next one is known.
    last_call: u32,
}

impl<W: Workbench> Driver<'_, W> {
    /// One role from start to end; boxed, because roles start roles.
    fn role<'b>(
        &'b self,
        state: &'b mut State,
        role: RoleName,
        depth: u32,
        task: String,
    ) -> Pin<Box<dyn Future<Output = End> + 'b>> {
        Box::pin(async move {
            let start = Event::RoleStart { role: role.to_string(), depth, task: task.clone() };
            let end = match self.bench.record(start) {
                Ok(()) => self.work(state, &role, depth, task).await.unwrap_or_else(failed),
                Err(e) => failed(e),
            };
            let told = Event::RoleEnd {
                role: role.to_string(),
                depth,
                stop: end.stop,
                summary: end.summary.clone(),
            };
            match self.bench.record(told) {
                Ok(()) => end,
                Err(e) => failed(e),
            }
        })
    }

    async fn work(
        &self,
        state: &mut State,
        role: &RoleName,
        depth: u32,
        task: String,
    ) -> Result<End, BenchError> {
        let (probe, name) = (&self.model.probe, &self.model.client.name);
        let Some(setup) = Setup::new(self.grant, self.guild, probe, name, role, depth, task) else {
            return Err(BenchError::Lost { reason: format!("the Guild has no role `{role}`") });
        };
        let mut turn = Turn::new(setup);
        loop {
            if self.cancel.is_cancelled() {
                return Err(BenchError::Cancelled);
            }
            let next = turn.next(self.grant, &mut state.spent, self.started.elapsed());
            self.record_all(&mut turn)?;
            match next {
                Next::Ask(ask) => self.ask(state, &mut turn, role, ask).await?,
                Next::Refuse { name, decision } => {
                    state.last_call = self.bench.next_call();
                    self.decided(state.last_call, role, name, decision)?;
                }
                Next::Run(go) => self.run(state, &mut turn, role, depth, go).await?,
                Next::End(end) => return Ok(end),
            }
            self.record_all(&mut turn)?;
        }
    }

    fn record_all(&self, turn: &mut Turn) -> Result<(), BenchError> {
        turn.events().into_iter().try_for_each(|event| self.bench.record(event))
    }

    fn decided(
        &self,
        call: u32,
        role: &RoleName,
        tool: String,
        decision: Decision,
    ) -> Result<(), BenchError> {
        self.bench.record(Event::Decision { call, role: role.to_string(), tool, decision, layer: "policy" })
    }

    fn left(&self) -> Duration {
        self.grant.budget.wall.saturating_sub(self.started.elapsed())
    }

    async fn ask(
        &self,
        state: &mut State,
        turn: &mut Turn,
        role: &RoleName,
        ask: Ask,
    ) -> Result<(), BenchError> {
        let body_sha256 = self.bench.artifact(ask.body.to_string().as_bytes())?;
        self.bench.record(Event::Request {
            role: role.to_string(),
            step: ask.step,
            body_sha256,
            tools: ask.tools,
        })?;
        let left = self.left();
        let asked = tokio::time::timeout(left, self.model.client.chat(&ask.body, self.cancel)).await;
        let Ok(exchange) = asked else {
            let allowed = self.grant.budget.wall.as_secs();
            self.bench.record(Event::Budget { bound: StopReason::WallLimit, used: allowed, allowed })?;
            turn.over(StopReason::WallLimit, "the wall clock of the run ended while the model was answering");
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

    fn record_response(&self, role: &RoleName, step: u32, exchange: &Exchange) -> Result<(), BenchError> {
        let body_sha256 = match exchange.body.as_slice() {
            [] => None,
            body => Some(self.bench.artifact(body)?),
        };
        let usage = exchange.answer.as_ref().ok().and_then(|a| a.usage).unwrap_or_default();
        self.bench.record(Event::Response {
            role: role.to_string(),
            step,
            status: exchange.status,
            body_sha256,
            prompt_tokens: usage.prompt,
            completion_tokens: usage.completion,
            duration_ms: exchange.duration_ms,
            error: exchange.answer.as_ref().err().map(ToString::to_string),
        })
    }

    async fn run(
        &self,
        state: &mut State,
        turn: &mut Turn,
        role: &RoleName,
        depth: u32,
        go: Go,
    ) -> Result<(), BenchError> {
        match go.action {
            Action::Finish(args) => {
                state.last_call = self.bench.next_call();
                self.decided(state.last_call, role, go.name, go.decision)?;
                turn.finished(&args);
            }
            Action::Agent(args) => {
                state.last_call = self.bench.next_call();
                self.decided(state.last_call, role, go.name, go.decision)?;
                self.delegate(state, turn, depth, args).await;
            }
            action @ (Action::RunShell(_)
            | Action::RunCommand(_)
            | Action::ReadFile(_)
            | Action::WriteFile(_)
            | Action::EditFile(_)
            | Action::ListDir(_)
            | Action::Search(_)
            | Action::Own(_)) => {
                self.decided(state.last_call + 1, role, go.name, go.decision)?;
                let tools =
                    Tools { bench: self.bench, grant: self.grant, cancel: self.cancel, left: self.left() };
                let said = tools.run(&action).await?;
                state.last_call = said.last_call;
                turn.result(said.text, self.grant);
            }
        }
        Ok(())
    }

    async fn delegate(&self, state: &mut State, turn: &mut Turn, depth: u32, args: agent::Args) {
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
