//! What `run_shell` and `run_command` share: the judgement, the call, and the card of its end.

use std::time::Duration;

use policy::{Decision, Grant, StoppedBy, Tool};
use runs::{Ended, Executed, ProgramCall};

use super::{Said, Tools, inner};
use crate::{BenchError, Workbench};

pub(super) fn judge(grant: &Grant, tool: Tool, argv: &[String], workdir: Option<&str>) -> Decision {
    if let Some(Err(refusal)) = workdir.map(crate::path::inside) {
        return refusal;
    }
    grant.program(tool, argv)
}

pub(super) async fn run<W: Workbench>(
    tools: &Tools<'_, W>,
    tool: Tool,
    argv: Vec<String>,
    stdin: Vec<u8>,
    workdir: Option<&str>,
    timeout_s: Option<u64>,
) -> Result<Said, BenchError> {
    let allowed = tools.grant.call.timeout.min(tools.left);
    // A model may ask for less, never for more.
    let timeout = timeout_s.map_or(allowed, |s| Duration::from_secs(s.max(1)).min(allowed));
    let call = ProgramCall {
        tool: tool.as_str().to_owned(),
        argv,
        cwd: workdir.map(inner),
        stdin,
        terminal: false,
        timeout: Some(timeout),
    };
    let done = tools.bench.execute(call, tools.cancel).await?;
    ended(&done, timeout)
}

/// What the model is told of a call that ended; the run ends with what ends the run.
pub(super) fn ended(done: &Executed, timeout: Duration) -> Result<Said, BenchError> {
    match done.outcome.stopped_by {
        StoppedBy::SandboxLost => {
            Err(BenchError::Lost { reason: "the sandbox was lost under a call".to_owned() })
        }
        StoppedBy::Cancelled => Err(BenchError::Cancelled),
        StoppedBy::Exit
        | StoppedBy::Signal
        | StoppedBy::Timeout
        | StoppedBy::Memory
        | StoppedBy::Processes
        | StoppedBy::Disk
        | StoppedBy::Output
        | StoppedBy::Cpu
        | StoppedBy::Denied => Ok(Said { text: card(done, timeout), last_call: done.call }),
    }
}

/// The kernel's number for it.
const EAGAIN: i32 = 11;

fn card(done: &Executed, timeout: Duration) -> String {
    let outcome = &done.outcome;
    let mut text = match outcome.ended {
        Ended::Exit(code) => format!("exit_code: {code}"),
        Ended::Signal(signal) => format!("signal: {signal}"),
        Ended::NotStarted(EAGAIN) => {
            "error: no process more could be started: programs of earlier calls may still run, \
            stop them"
                .to_owned()
        }
        Ended::NotStarted(_) => {
            "error: the program could not be started (not found or not executable)".to_owned()
        }
        Ended::Unknown => "error: how it ended is not known".to_owned(),
    };
    match outcome.stopped_by {
        StoppedBy::Exit | StoppedBy::Signal => {}
        StoppedBy::Timeout => {
            text.push_str(&format!("\nstopped_by: timeout (after {} s)", timeout.as_secs_f32().ceil()));
        }
        other @ (StoppedBy::Memory
        | StoppedBy::Processes
        | StoppedBy::Disk
        | StoppedBy::Output
        | StoppedBy::Cpu
        | StoppedBy::Denied
        | StoppedBy::Cancelled
        | StoppedBy::SandboxLost) => text.push_str(&format!("\nstopped_by: {other}")),
    }
    for (name, shown) in [("stdout", &done.stdout), ("stderr", &done.stderr)] {
        let shown = shown.trim_end();
        if !shown.is_empty() {
            text.push_str(&format!("\n{name}:\n{}", crate::text::clean(shown)));
        }
    }
    if done.stdout.trim().is_empty() && done.stderr.trim().is_empty() {
        text.push_str("\n(no output)");
    }
    for sentence in &done.refused {
        text.push_str(&format!("\nnetwork: {}", crate::text::clean(sentence)));
    }
    if done.truncated {
        text.push_str(
            "\n(the output was shortened; read_artifact with the id that stands there shows the rest)",
        );
    }
    text
}
