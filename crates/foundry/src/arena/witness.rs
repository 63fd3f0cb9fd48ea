//! The one door, with somebody who looks on: what was asked for, decided and carried out, answer by answer.

use std::cell::RefCell;
use std::time::Duration;

use agent::{BenchError, Workbench};
use policy::StoppedBy;
use runs::{Cancel, Done, Event, Executed, FileCall, ModuleUse, Page, ProgramCall, Run};

/// What came of one answer of the model.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Calls that reached the sandbox, or another role.
    pub(super) carried_out: u32,
    /// The last program that ran.
    pub(super) executed: Option<Box<Executed>>,
    /// Roles that began.
    pub(super) started: Vec<String>,
    /// Why something was refused.
    pub(super) refused: Option<String>,
    /// Which bound ended a program, or a module.
    pub(super) stopped: Option<StoppedBy>,
    /// Why something could not be done.
    pub(super) failed: Option<String>,
    /// Everything that came back.
    pub(super) texts: Vec<String>,
}

/// A run that is looked at.
pub(super) struct Witness<'a> {
    run: &'a Run,
    /// Calls that the run had before: a role loop counts from its own beginning.
    before: u32,
    /// In the order of the answers; whoever has them has them also when this one is gone.
    groups: &'a RefCell<Vec<Group>>,
}

impl<'a> Witness<'a> {
    pub(super) fn new(run: &'a Run, groups: &'a RefCell<Vec<Group>>) -> Witness<'a> {
        Witness { run, before: run.calls(), groups }
    }

    fn note(&self, note: impl FnOnce(&mut Group)) {
        // What comes before the first request is nobody's answer.
        if let Some(group) = self.groups.borrow_mut().last_mut() {
            note(group);
        }
    }

    fn carried_out<T>(&self, outcome: &Result<T, BenchError>, texts: impl FnOnce(&T) -> Vec<String>) {
        self.note(|group| {
            group.carried_out += 1;
            match outcome {
                Ok(done) => group.texts.extend(texts(done)),
                Err(e) => group.failed = Some(e.to_string()),
            }
        });
    }
}

impl Witness<'_> {
    /// Keeps by what it was ended, where that was not itself.
    fn ended(&self, outcome: &Result<Executed, BenchError>) {
        let Ok(done) = outcome else { return };
        match done.outcome.stopped_by {
            StoppedBy::Exit | StoppedBy::Signal | StoppedBy::Denied => {}
            by @ (StoppedBy::Cancelled | StoppedBy::SandboxLost) => {
                self.note(|group| group.failed = Some(format!("it did not come to its end: {by}")));
            }
            by @ (StoppedBy::Timeout
            | StoppedBy::Memory
            | StoppedBy::Processes
            | StoppedBy::Disk
            | StoppedBy::Output
            | StoppedBy::Cpu) => self.note(|group| group.stopped = Some(by)),
        }
    }
}

impl Workbench for Witness<'_> {
    async fn execute(&self, call: ProgramCall, cancel: &Cancel) -> Result<Executed, BenchError> {
        let outcome = Workbench::execute(self.run, call, cancel).await;
        self.carried_out(&outcome, |done| vec![done.stdout.clone(), done.stderr.clone()]);
        self.ended(&outcome);
        if let Ok(done) = &outcome {
            self.note(|group| group.executed = Some(Box::new(done.clone())));
        }
        outcome
    }

    async fn tool(&self, call: ModuleUse, cancel: &Cancel) -> Result<Executed, BenchError> {
        let outcome = Workbench::tool(self.run, call, cancel).await;
        self.carried_out(&outcome, |done| vec![done.stdout.clone(), done.stderr.clone()]);
        self.ended(&outcome);
        outcome
    }

    async fn file(&self, call: FileCall, cancel: &Cancel) -> Result<Done, BenchError> {
        let outcome = Workbench::file(self.run, call, cancel).await;
        self.carried_out(&outcome, |done| {
            let bytes = String::from_utf8_lossy(&done.bytes).into_owned();
            vec![done.shown.clone(), bytes, format!("{:?}", done.answer)]
        });
        outcome
    }

    async fn fetch(&self, url: &str, timeout: Duration, cancel: &Cancel) -> Result<Page, BenchError> {
        let outcome = Workbench::fetch(self.run, url, timeout, cancel).await;
        self.carried_out(&outcome, |page| vec![format!("{:?}", page.answer)]);
        outcome
    }

    fn record(&self, event: Event) -> Result<(), BenchError> {
        let mut event = event;
        if let Event::Request { .. } = event {
            self.groups.borrow_mut().push(Group::default());
        } else if let Event::Decision { call, decision, .. } = &mut event {
            // A role loop that begins takes its first call for the run's first.
            if *call <= self.before {
                *call = self.run.calls() + 1;
            }
            if !decision.is_allowed() {
                self.note(|group| group.refused = Some(format!("{}: {}", decision.rule, decision.reason)));
            }
        } else if let Event::ToolResult { text: Some(text), .. } = &event {
            self.note(|group| group.texts.push(text.clone()));
        } else if let Event::RoleStart { role, depth: 1.., .. } = &event {
            self.note(|group| {
                group.carried_out += 1;
                group.started.push(role.clone());
            });
        }
        Workbench::record(self.run, event)
    }

    /// Requests and answers of our own script: each request tells all that was said before, and nobody reads them. The
    /// record is as whole with one in the place of all.
    fn artifact(&self, _: &[u8]) -> Result<String, BenchError> {
        Workbench::artifact(self.run, b"what the script has said and heard is not kept\n")
    }

    fn kept(&self, id: &str) -> Result<Option<String>, BenchError> {
        let kept = Workbench::kept(self.run, id);
        self.carried_out(&kept, |text| text.iter().cloned().collect());
        kept
    }

    fn next_call(&self) -> u32 {
        Workbench::next_call(self.run)
    }
}
