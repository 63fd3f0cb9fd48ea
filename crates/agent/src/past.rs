//! What a record says happened, gone through once more by the same driver: it does nothing again, and ends with the
//! same conversation.
//!
//! ```text
//!   role_start request response parse decision tool_start … │ resume │ live from here
//!   └─ each act of the driver meets its own line ───────────┘   └ a call without a result is told as unknown
//! ```
//!
//! "The same" is what the lines hold: each request by its hash, and of each act the fields in [`SAME`]. Values of
//! secrets are in no line, so nothing here tells that one was exchanged meanwhile.
//!
//! A record that has been resumed before has several such lines; each is passed at the place where it was written,
//! so that the second time finds what the first one did.

use serde_json::Value;

use crate::BenchError;
use crate::model::wire::{self, Answer, Body};

/// A record as its owner reads it: verified, whole lines only, the last one being the `resume` that is to come.
pub struct Past<'a> {
    /// The events, in order.
    pub events: &'a [Value],
    /// An artifact by its name, if it holds what that says.
    pub artifact: &'a dyn Fn(&str) -> Option<Vec<u8>>,
    /// The name under which these bytes are kept as an artifact.
    pub name_of: &'a dyn Fn(&[u8]) -> String,
    /// The wall clock that was used.
    pub used: std::time::Duration,
}

/// Where the driver is in it.
pub(crate) struct Cursor<'a> {
    past: Option<&'a Past<'a>>,
    at: usize,
    /// How often the run has been resumed up to here.
    resumed: u32,
    /// How often of these with another start of the machine, so that lines before it may be lost.
    restarts: u32,
    /// Where the record did not go the way of the driver.
    pub(crate) lost: Option<String>,
}

/// What was passed up to some place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) resumed: u32,
    pub(crate) restarts: u32,
}

/// What a line says to a driver that is about to write one.
pub(crate) enum Met<'a> {
    /// Nothing: it is the first to come here.
    Live,
    /// The same was written.
    Same(&'a Value),
    /// The role ended here, for a reason from outside.
    Over(&'a Value),
}

/// Fields in which a line and the event for it must agree, where the event has them.
const SAME: [&str; 11] =
    ["type", "role", "depth", "step", "call", "body_sha256", "verdict", "bound", "ok", "action", "times"];

impl<'a> Cursor<'a> {
    pub(crate) fn new(past: Option<&'a Past<'a>>) -> Cursor<'a> {
        Cursor { past, at: 0, resumed: 0, restarts: 0, lost: None }
    }

    pub(crate) fn seen(&self) -> Seen {
        Seen { resumed: self.resumed, restarts: self.restarts }
    }

    fn peek(&self) -> Option<&'a Value> {
        self.past?.events.get(self.next())
    }

    /// Where the next line of the driver's own is. What the network decided comes when it comes, and is no act of its.
    fn next(&self) -> usize {
        let events = self.past.map_or(&[][..], |past| past.events.get(self.at..).unwrap_or_default());
        self.at + events.iter().take_while(|line| line["type"] == "egress").count()
    }

    fn pass(&mut self) {
        self.at = self.next() + 1;
    }

    /// The kind of the next line; none where the past ends.
    pub(crate) fn kind(&self) -> Option<&'a str> {
        Some(self.peek()?["type"].as_str().unwrap_or_default())
    }

    /// Whether the driver is the first to come here.
    pub(crate) fn is_live(&self) -> bool {
        self.peek().is_none()
    }

    /// The next line, which is behind the driver then.
    pub(crate) fn take(&mut self) -> Option<&'a Value> {
        let line = self.peek()?;
        self.pass();
        Some(line)
    }

    /// Passes a `resume`, if one is next.
    pub(crate) fn pass_resume(&mut self) -> bool {
        if self.kind() != Some("resume") {
            return false;
        }
        self.resumed += 1;
        self.restarts += u32::from(self.take().is_some_and(|line| line["restarted"] == true));
        true
    }

    /// The line of an event that the driver is about to write.
    pub(crate) fn meet(&mut self, event: &Value) -> Result<Met<'a>, BenchError> {
        while self.pass_resume() {}
        let Some(line) = self.peek() else { return Ok(Met::Live) };
        let agree = |key: &&str| event.get(*key).is_none_or(|value| line[*key] == *value);
        if SAME.iter().all(agree) {
            self.pass();
            return Ok(Met::Same(line));
        }
        if line["type"] == "role_end" && event["type"] != "role_end" {
            return Ok(Met::Over(line));
        }
        Err(self.astray(&format!("{} follows where the record has {}", event["type"], line["type"])))
    }

    /// The record does not lead where it led.
    pub(crate) fn astray(&mut self, what: &str) -> BenchError {
        let line = self.peek().map_or(0, |line| line["seq"].as_u64().unwrap_or_default());
        let reason = format!("line {line} of the record cannot be followed: {what}");
        self.lost.get_or_insert_with(|| reason.clone());
        BenchError::Record { reason }
    }

    /// Passes the first line, which no driver writes.
    pub(crate) fn begin(&mut self) -> Result<(), BenchError> {
        match self.kind() {
            None => Ok(()),
            Some("run_start") => {
                self.pass();
                Ok(())
            }
            Some(_) => Err(self.astray("it does not begin with `run_start`")),
        }
    }

    /// Whether the wall clock of the run struck next.
    pub(crate) fn wall_struck(&self) -> bool {
        self.peek().is_some_and(|line| line["type"] == "budget" && line["bound"] == "wall_limit")
    }

    /// The name of an artifact with these bytes, where the past goes on.
    pub(crate) fn name_of(&self, bytes: &[u8]) -> Option<String> {
        self.peek()?;
        Some((self.past?.name_of)(bytes))
    }

    fn artifact(&mut self, id: &Value) -> Result<Vec<u8>, BenchError> {
        let found = self.past.zip(id.as_str()).and_then(|(past, id)| (past.artifact)(id));
        found.ok_or_else(|| self.astray("an artifact that it names cannot be read"))
    }

    /// The answer that a `response` holds, or why there is none.
    pub(crate) fn answer(&mut self, response: &Value) -> Result<Remembered, BenchError> {
        let failed = response["failed"].as_str().unwrap_or_default();
        if failed == "cancelled" {
            return Ok(Remembered::Cancelled);
        }
        if failed == "endpoint_unavailable" || failed == "endpoint_protocol" {
            let why = response["error"].as_str().unwrap_or_default().to_owned();
            return Ok(Remembered::Failed { protocol: failed == "endpoint_protocol", why });
        }
        let body = self.artifact(&response["body_sha256"])?;
        match (wire::read(&body), failed) {
            (Body::Answer(answer), "") => Ok(Remembered::Answer(answer)),
            (Body::Overflow { n_ctx }, "context_exhausted") => Ok(Remembered::Overflow { n_ctx }),
            _ => Err(self.astray("the answer in it cannot be read")),
        }
    }

    /// The text that a `tool_result` holds.
    pub(crate) fn text(&mut self, result: &Value) -> Result<String, BenchError> {
        match result["text"].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => {
                let bytes = self.artifact(&result["text_artifact"])?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
        }
    }
}

/// How the model answered.
pub(crate) enum Remembered {
    Answer(Answer),
    Overflow { n_ctx: Option<u64> },
    Failed { protocol: bool, why: String },
    Cancelled,
}

/// What a role is told once, where its run was interrupted. It is part of the conversation from then on: another
/// text, and no record that holds this one can be followed.
///
/// That nothing of before runs any more is so because the run was held until its guests were gone. Where executor and
/// forker were killed together the kernel ends these, and for that moment nobody waits.
pub(crate) fn note(restarted: bool) -> String {
    let mut text =
        "The run was interrupted here and goes on now, on the same files, in a new sandbox: programs that \
                    ran in the background and everything in /tmp are gone. Start again what you still need."
            .to_owned();
    if restarted {
        text.push_str(
            " The machine itself was restarted: what was written last may be lost, and what was done last may not \
             be remembered here. Look before you go on.",
        );
    }
    text
}

/// What the model is told of a call whose end nobody knows.
pub(crate) fn unknown(ended: Option<&Value>) -> String {
    let mut text = "error: the run was interrupted while this call was under way. Its outcome is not known: it may have \
                    happened in full, in part or not at all, and it was not run again. Look at the state of things \
                    before you go on."
        .to_owned();
    if let Some(outcome) = ended
        && let Some(code) = outcome["ended"]["exit"].as_i64()
    {
        text.push_str(&format!(" Its program had ended (exit_code: {code}); what it printed is lost."));
    }
    text
}
