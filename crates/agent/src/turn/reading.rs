//! How an answer becomes calls that wait, or a word to the model about what is wrong with it.

use policy::{StopReason, Tool};
use runs::{Channel, Event};
use serde_json::{Map, Value};

use super::{Pending, Turn};
use crate::action::read_action;
use crate::arguments::fit;
use crate::history::Kept;
use crate::model::wire::{Arguments, RawCall};
use crate::reader::{self, Text};

/// Calls of one answer that are looked at.
const MAX_CALLS: usize = 16;

impl Turn {
    pub(super) fn native(&mut self, calls: Vec<RawCall>) {
        let surplus = calls.len().saturating_sub(MAX_CALLS);
        let mut kept = Vec::new();
        for call in calls.into_iter().take(MAX_CALLS) {
            let mut repairs = Vec::new();
            let name = match call.name.split_once("<|") {
                Some((name, _)) => {
                    repairs.push("control-token".to_owned());
                    name.to_owned()
                }
                None => call.name,
            };
            let args = match call.arguments {
                Arguments::Object(value) => {
                    repairs.push("arguments-object".to_owned());
                    Ok(value)
                }
                Arguments::Text(text) if text.trim().is_empty() => Ok(Value::Object(Map::new())),
                Arguments::Text(text) => crate::strict::parse(&text).map_err(|e| e.to_string()),
                Arguments::Ambiguous => Err("a key of the arguments appears twice".to_owned()),
            };
            kept.push(self.enqueue(Channel::Native, call.id, name, args, repairs));
        }
        self.history.calls(kept);
        if surplus > 0 {
            self.events.push(Event::Parse {
                channel: Channel::Native,
                ok: false,
                repairs: Vec::new(),
                problem: Some(format!("{surplus} calls beyond {MAX_CALLS} in one answer are left out")),
            });
        }
    }

    pub(super) fn schema(&mut self, content: &str) {
        let read =
            crate::strict::parse(content.trim()).map_err(|e| e.to_string()).and_then(|v| read_action(&v));
        match read {
            Ok((name, args)) => {
                let kept = self.enqueue(Channel::Schema, self.own_id(), name, Ok(args), Vec::new());
                self.history.calls(vec![kept]);
            }
            Err(why) => self.unreadable(&why, format!("error: {why}. {}", self.form())),
        }
    }

    pub(super) fn text(&mut self, content: &str) {
        match reader::read(content) {
            Text::Call { name, args, repair } => {
                let repairs = vec![repair.to_owned()];
                let kept = self.enqueue(Channel::Text, self.own_id(), name, Ok(args), repairs);
                self.history.calls(vec![kept]);
            }
            Text::Broken(why) => {
                self.unreadable(&why, format!("error: {why}; nothing was run. {}", self.form()))
            }
            Text::Prose if self.nudged || (self.setup.tools.is_empty() && self.setup.own.is_empty()) => {
                let summary = crate::text::bound(&crate::text::clean(content.trim()), 4000);
                self.parsed(Channel::Text, Some("prose again"));
                self.over(StopReason::ImplicitFinish, &summary);
            }
            Text::Prose => {
                self.nudged = true;
                self.parsed(Channel::Text, Some("prose without an action"));
                self.history.said(content);
                let ends = if self.setup.tools.contains(&Tool::Finish) { ", or call finish" } else { "" };
                self.history
                    .note(format!("Nothing was done: that was text only. Go on with one tool call{ends}."));
            }
        }
    }

    /// Puts a call into the queue, and says how it is kept in the conversation.
    fn enqueue(
        &mut self,
        channel: Channel,
        id: String,
        name: String,
        args: Result<Value, String>,
        mut repairs: Vec<String>,
    ) -> Kept {
        let args = args.and_then(|value| match value {
            Value::Object(_) => Ok(value),
            other => Err(format!(
                "the arguments must be one JSON object, not {}",
                crate::text::label(&other.to_string(), 40)
            )),
        });
        let mut shown = args.as_ref().ok().cloned().unwrap_or_else(|| Value::Object(Map::new()));
        // Kept under the real names: the model learns them from its own words.
        if let (Some(tool), Ok(value)) = (Tool::from_name(&name), &args)
            && let Ok(fitted) = fit(tool, value)
        {
            repairs.extend(fitted.repairs);
            shown = fitted.canonical;
        }
        match &args {
            Ok(_) => {
                self.format_errors = 0;
                self.nudged = false;
            }
            Err(_) => self.format_error(),
        }
        self.events.push(Event::Parse {
            channel,
            ok: args.is_ok(),
            repairs,
            problem: args.as_ref().err().map(|why| crate::text::label(why, 300)),
        });
        let plain = !name.is_empty()
            && name.len() <= 64
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        let kept = Kept {
            id: id.clone(),
            name: if plain { name.clone() } else { "unknown".to_owned() },
            args: shown,
        };
        self.queue.push_back(Pending { id, name, args, doubtful: false });
        kept
    }

    pub(super) fn unreadable(&mut self, problem: &str, told: String) {
        self.parsed(self.setup.channel, Some(problem));
        self.history.note(told);
        self.format_error();
    }

    fn format_error(&mut self) {
        self.format_errors += 1;
        let (used, allowed) = (self.format_errors, self.setup.budget.format_errors);
        if used >= allowed {
            self.events.push(Event::Budget {
                bound: StopReason::FormatErrors,
                used: u64::from(used),
                allowed: u64::from(allowed),
            });
            self.over(StopReason::FormatErrors, "too many unreadable answers in a row");
        }
    }

    fn parsed(&mut self, channel: Channel, problem: Option<&str>) {
        self.events.push(Event::Parse {
            channel,
            ok: problem.is_none(),
            repairs: Vec::new(),
            problem: problem.map(|p| crate::text::label(p, 300)),
        });
    }
}
