//! The conversation as it is sent: one system message, alternating turns, and a prefix that never changes.
//!
//! What a model wrote is never sent back raw: calls are written anew from what was parsed, so that one broken
//! call cannot make a server's template fail for the rest of the run. An answer that could not be read is left
//! out, with only a word about it: small models repeat whatever stands in its place.

use runs::Channel;
use serde_json::{Value, json};

/// A call as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kept {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Always an object.
    pub(crate) args: Value,
}

#[derive(Clone, Debug, PartialEq)]
enum Entry {
    /// Prose.
    Said(String),
    /// Calls of one answer.
    Calls(Vec<Kept>),
    /// The result of a call.
    Result { id: String, text: String, clipped: bool },
    /// A word of the executor.
    Note(String),
}

/// The conversation of one role.
#[derive(Clone, Debug)]
pub(crate) struct History {
    system: String,
    task: String,
    channel: Channel,
    entries: Vec<Entry>,
}

/// Bytes of one argument that are sent again with every request.
const LONGEST_ARGUMENT: usize = 20_000;

impl History {
    pub(crate) fn new(system: String, task: String, channel: Channel) -> History {
        History { system, task, channel, entries: Vec::new() }
    }

    /// Prose of the model, bounded.
    pub(crate) fn said(&mut self, text: &str) {
        self.entries.push(Entry::Said(crate::text::bound(&crate::text::clean(text), 4000)));
    }

    /// Calls of an answer; very long texts in them are kept by their beginning only.
    pub(crate) fn calls(&mut self, mut calls: Vec<Kept>) {
        for value in calls.iter_mut().flat_map(|c| c.args.as_object_mut()).flat_map(|o| o.values_mut()) {
            let length = value.to_string().len();
            if length > LONGEST_ARGUMENT {
                let head: String = value.as_str().unwrap_or_default().chars().take(200).collect();
                *value = Value::String(format!("{head}[... {length} bytes in all, left out here]"));
            }
        }
        self.entries.push(Entry::Calls(calls));
    }

    pub(crate) fn result(&mut self, id: &str, text: String) {
        self.entries.push(Entry::Result { id: id.to_owned(), text, clipped: false });
    }

    pub(crate) fn note(&mut self, text: String) {
        self.entries.push(Entry::Note(text));
    }

    /// Shortens all results but the newest `keep`; says how many were.
    pub(crate) fn clip(&mut self, keep: usize) -> u32 {
        let mut clipped = 0;
        let results = self.entries.iter_mut().rev().filter_map(|e| match e {
            Entry::Result { text, clipped, .. } => Some((text, clipped)),
            Entry::Said(_) | Entry::Calls(_) | Entry::Note(_) => None,
        });
        for (text, done) in results.skip(keep) {
            if !*done && text.chars().count() > 200 {
                let head: String = text.chars().take(80).collect();
                let left = text.chars().count() - 80;
                *text = format!(
                    "{head}\n[old result shortened, {left} characters left out; ask again if needed]"
                );
                *done = true;
                clipped += 1;
            }
        }
        clipped
    }

    /// The `messages` of a request.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let mut out = vec![
            json!({"role": "system", "content": self.system}),
            json!({"role": "user", "content": self.task}),
        ];
        for entry in &self.entries {
            match entry {
                Entry::Said(text) => join(&mut out, "assistant", text),
                Entry::Calls(calls) => self.render_calls(&mut out, calls),
                Entry::Result { id, text, .. } => match self.channel {
                    Channel::Native => {
                        out.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
                    }
                    Channel::Schema | Channel::Text => join(&mut out, "user", text),
                },
                Entry::Note(text) => join(&mut out, "user", text),
            }
        }
        out
    }

    fn render_calls(&self, out: &mut Vec<Value>, calls: &[Kept]) {
        match self.channel {
            Channel::Native => {
                let calls: Vec<Value> = calls
                    .iter()
                    .map(|c| {
                        json!({"id": c.id, "type": "function",
                               "function": {"name": c.name, "arguments": c.args.to_string()}})
                    })
                    .collect();
                // An empty text, not null: some servers refuse the one, none the other.
                out.push(json!({"role": "assistant", "content": "", "tool_calls": calls}));
            }
            Channel::Schema => {
                for c in calls {
                    join(out, "assistant", &json!({"tool": c.name, "args": c.args}).to_string());
                }
            }
            Channel::Text => {
                for c in calls {
                    let call = json!({"name": c.name, "arguments": c.args});
                    join(out, "assistant", &format!("<tool_call>{call}</tool_call>"));
                }
            }
        }
    }
}

/// Templates want turns to alternate: neighbours of one role become one message.
fn join(out: &mut Vec<Value>, role: &str, text: &str) {
    if let Some(last) = out.last_mut()
        && last.get("role").and_then(Value::as_str) == Some(role)
        && last.get("tool_calls").is_none()
        && let Some(Value::String(content)) = last.get_mut("content")
    {
        content.push_str("\n\n");
        content.push_str(text);
        return;
    }
    out.push(json!({"role": role, "content": text}));
}
