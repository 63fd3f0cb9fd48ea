//! The only door to a sandbox: a call is in the record before it starts and after it ended.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use policy::StoppedBy;
use sandbox::{Call, CallBounds, Cancel, FileOp, Job, Outcome, Plan, Report, SandboxError, Stream};
use serde_json::{Value, json};

use crate::beneath::Folder;
use crate::clean::{clean, cut};
use crate::output::Keeper;
use crate::outward::Outward;
use crate::{Done, Event, Executed, FileCall, ProgramCall, Run, RunError};

/// The answer line of a file operation may be this long beyond `call.output`.
const ROOM_FOR_ANSWER: u64 = 64 << 10;
const LONGEST_MESSAGE: usize = 500;
/// Of what a model is shown of a program, so many characters are for words about it, and for where the rest is.
const WORDS: usize = 500;

impl Run {
    /// Runs a program in the sandbox: recorded before it starts and after it ended.
    ///
    /// # Errors
    /// [`RunError`] when the sandbox is lost or the record cannot be written.
    pub async fn execute(&self, call: ProgramCall, cancel: &Cancel) -> Result<Executed, RunError> {
        let job = Job::Exec { argv: call.argv, env: Vec::new(), cwd: call.cwd, terminal: call.terminal };
        self.carry(call.tool, job, call.stdin, call.timeout, None, cancel).await
    }

    /// The same for any job; in a sandbox of its own, destroyed afterwards, where one is planned.
    pub(crate) async fn carry(
        &self,
        tool: String,
        job: Job,
        stdin: Vec<u8>,
        timeout: Option<Duration>,
        own: Option<Plan>,
        cancel: &Cancel,
    ) -> Result<Executed, RunError> {
        let number = self.next_call();
        let most = self.bounds.output;
        let call = (tool, self.call(job, stdin, timeout, self.bounds.flood));
        let shown = self.bounds.to_model - WORDS.min(self.bounds.to_model / 4);
        let mut out = Keeper::new(&self.record, &format!("{number}-stdout"), most, shown);
        let mut err = Keeper::new(&self.record, &format!("{number}-stderr"), most, shown);
        let outcome = self
            .carry_out(number, &call.0, &call.1, own, cancel, &mut |stream, piece| match stream {
                Stream::Stdout => out.push(piece),
                Stream::Stderr => err.push(piece),
            })
            .await?;
        let (outcome, report) = outcome;
        *self.last_exit.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome.ended);
        let (out, err) = Keeper::end(out, err, shown)?;
        let artifacts: Vec<String> = out.artifact.iter().chain(&err.artifact).cloned().collect();
        let mut told = json!(outcome);
        if let Some(report) = report {
            told["sandbox"] = json!(report);
        }
        self.record.append(&Event::ToolEnd { call: number, outcome: told, artifacts })?;
        Ok(Executed {
            call: number,
            outcome,
            truncated: out.artifact.is_some() || err.artifact.is_some(),
            stdout: out.text,
            stderr: err.text,
            stdout_artifact: out.artifact,
            stderr_artifact: err.artifact,
            refused: self.refused(),
        })
    }

    /// What the way out refused since this was last asked.
    fn refused(&self) -> Vec<String> {
        let refused = self.outward.as_ref().map(Outward::refused).unwrap_or_default();
        refused.iter().map(|sentence| self.record.mask().text(sentence)).collect()
    }

    /// Does a file operation in the sandbox: recorded like a program.
    ///
    /// # Errors
    /// [`RunError`] when the sandbox is lost or the record cannot be written.
    pub async fn file(&self, call: FileCall, cancel: &Cancel) -> Result<Done, RunError> {
        let number = self.next_call();
        let reads = matches!(call.op, FileOp::Read { .. });
        let most = self.bounds.output.saturating_add(ROOM_FOR_ANSWER);
        let sent = self.call(Job::File(call.op), call.content, None, most);
        let mut came: Vec<u8> = Vec::new();
        let room = usize::try_from(most).unwrap_or(usize::MAX);
        let outcome = self
            .carry_out(number, &call.tool, &sent, None, cancel, &mut |stream, piece| {
                let room = room.saturating_sub(came.len());
                match stream {
                    Stream::Stdout => came.extend_from_slice(piece.get(..room).unwrap_or(piece)),
                    Stream::Stderr => {}
                }
            })
            .await?;
        let (outcome, _) = outcome;
        let (answer, bytes) = judge(&outcome, &came, reads);
        let mask = self.record.mask();
        let answer = match answer {
            Ok(value) => Ok(mask.value(cleaned(value))),
            Err((kind, message)) => Err((kind, mask.text(&message))),
        };
        let told = match &answer {
            Ok(_) => json!({ "ok": true }),
            Err((kind, message)) => json!({ "error": { "kind": kind, "message": message } }),
        };
        let outcome = json!({ "process": outcome, "answer": told });
        self.record.append(&Event::ToolEnd { call: number, outcome, artifacts: Vec::new() })?;
        let shown = mask.text(&clean(&bytes));
        Ok(Done { call: number, answer, bytes, shown })
    }

    /// What this run keeps under the name of an artifact, as it may be shown: valid UTF-8, without control sequences,
    /// secrets masked. None where it keeps nothing of that name, which only who was told it can know.
    ///
    /// # Errors
    /// [`RunError::Io`] when the run's folder cannot be opened.
    pub fn kept(&self, id: &str) -> Result<Option<String>, RunError> {
        let folder = Folder::open(self.dir()).map_err(RunError::io("open", self.dir()))?;
        let bytes = crate::resume::artifact(&folder, id);
        Ok(bytes.map(|bytes| self.record.mask().text(&clean(&bytes))))
    }

    fn call(&self, job: Job, stdin: Vec<u8>, timeout: Option<Duration>, output: u64) -> Call {
        let timeout = timeout.map_or(self.bounds.timeout, |t| t.min(self.bounds.timeout));
        let own = &self.bounds;
        let bounds =
            CallBounds { cpu: own.cpu, memory: own.memory, processes: own.processes, disk: own.disk };
        Call { job, stdin, timeout, output, bounds }
    }

    async fn carry_out(
        &self,
        number: u32,
        tool: &str,
        call: &Call,
        own: Option<Plan>,
        cancel: &Cancel,
        on_output: &mut (dyn FnMut(Stream, &[u8]) + Send),
    ) -> Result<(Outcome, Option<Report>), RunError> {
        let stdin_artifact = match call.stdin.as_slice() {
            [] => None,
            stdin => Some(self.record.artifact(stdin)?),
        };
        self.record.append(&Event::ToolStart {
            call: number,
            tool: cut(tool, 128).to_owned(),
            job: json!(call.job),
            stdin_artifact,
            timeout_ms: u64::try_from(call.timeout.as_millis()).unwrap_or(u64::MAX),
            output_bytes: call.output,
        })?;
        let outcome = match (&self.running, self.beside.as_ref().zip(own)) {
            (Some(running), None) => {
                running.run(call, cancel, on_output).await.map(|outcome| (outcome, None))
            }
            (Some(_), Some((beside, plan))) => beside.run(plan, call, cancel, on_output).await,
            (None, _) => Err(SandboxError::Lost { doing: "the run is over".to_owned() }),
        };
        // However it ended: what it asked for stands before its end.
        if let Some(outward) = &self.outward {
            outward.judge();
        }
        match outcome {
            Ok(outcome) => {
                self.done.fetch_add(1, Ordering::Relaxed);
                Ok(outcome)
            }
            Err(e) => {
                let outcome = json!({ "stopped_by": StoppedBy::SandboxLost, "error": e.to_string() });
                self.record.append(&Event::ToolEnd { call: number, outcome, artifacts: Vec::new() })?;
                Err(e.into())
            }
        }
    }
}

type Answer = Result<Value, (String, String)>;

/// The guest's answer to a file operation, read as hostile: one line of JSON, then the bytes it announces.
fn judge(outcome: &Outcome, came: &[u8], reads: bool) -> (Answer, Vec<u8>) {
    let refused = |kind: &str, message: &str| (Err((kind.to_owned(), message.to_owned())), Vec::new());
    if outcome.stopped_by != StoppedBy::Exit {
        let by = outcome.stopped_by;
        return refused(by.as_str(), &format!("the operation was stopped: {by}"));
    }
    let bad = || refused("bad-answer", "the sandbox gave an answer that cannot be read");
    let Some(end) = came.iter().position(|b| *b == b'\n') else { return bad() };
    let (line, rest) = (&came[..end], &came[end + 1..]);
    let Ok(Value::Object(mut answer)) = serde_json::from_slice::<Value>(line) else { return bad() };
    if let Some(error) = answer.get("error") {
        let text = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or("");
        let kind = text("kind");
        let plain = !kind.is_empty()
            && kind.len() <= 32
            && kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b == b'-');
        let message = clean(text("message").as_bytes());
        return refused(if plain { kind } else { "error" }, cut(&message, LONGEST_MESSAGE));
    }
    let Some(ok @ Value::Object(_)) = answer.remove("ok") else { return bad() };
    let announced = if reads { ok.get("read").and_then(Value::as_u64) } else { Some(0) };
    if announced != u64::try_from(rest.len()).ok() {
        return bad();
    }
    (Ok(ok), rest.to_vec())
}

/// Every text of an answer, fit to be shown.
fn cleaned(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(clean(text.as_bytes())),
        Value::Array(items) => Value::Array(items.into_iter().map(cleaned).collect()),
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(k, v)| (clean(k.as_bytes()), cleaned(v))).collect())
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandbox::{Ended, Usage};

    fn outcome(stopped_by: StoppedBy) -> Outcome {
        Outcome {
            ended: Ended::Exit(0),
            stopped_by,
            usage: Usage::default(),
            duration_ms: 0,
            stdout_bytes: 0,
            stderr_bytes: 0,
            background: 0,
            leftovers: None,
        }
    }

    fn kind(came: &[u8], reads: bool) -> String {
        judge(&outcome(StoppedBy::Exit), came, reads).0.unwrap_err().0
    }

    #[test]
    fn a_read_is_an_answer_line_and_exactly_the_bytes_announced() {
        let (answer, bytes) =
            judge(&outcome(StoppedBy::Exit), b"{\"ok\":{\"size\":9,\"read\":3}}\n\x00\n\xff", true);
        assert_eq!(answer.unwrap()["size"], 9);
        assert_eq!(bytes, b"\x00\n\xff");
        assert_eq!(kind(b"{\"ok\":{\"size\":9,\"read\":4}}\nabc", true), "bad-answer");
    }

    #[test]
    fn r33_an_answer_of_another_shape_is_refused() {
        for came in [&b""[..], b"{}", b"{}\n", b"[]\n", b"{\"ok\":1}\n", b"{\"ok\":{}}\ntrailing", b"\xff\n"]
        {
            assert_eq!(kind(came, false), "bad-answer", "{came:?}");
        }
        let deep = [b"{\"ok\":".to_vec(), vec![b'['; 100_000], b"\n".to_vec()].concat();
        assert_eq!(kind(&deep, false), "bad-answer");
    }

    #[test]
    fn r34_a_guests_error_is_cleaned_and_bounded() {
        let came =
            json!({"error": {"kind": "\u{1b}[2J", "message": format!("\u{1b}[31m{}", "x".repeat(9000))}});
        let (kind, message) =
            judge(&outcome(StoppedBy::Exit), format!("{came}\n").as_bytes(), false).0.unwrap_err();
        assert_eq!((kind.as_str(), message.len()), ("error", LONGEST_MESSAGE));
    }

    #[test]
    fn a_stopped_operation_says_what_stopped_it() {
        assert_eq!(judge(&outcome(StoppedBy::Timeout), b"{\"ok\":{}}\n", false).0.unwrap_err().0, "timeout");
    }
}
