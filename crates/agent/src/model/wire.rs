//! Chat-completions as real local servers speak it: decoded by hand, tolerant of everything but the essential.

use serde_json::Value;

/// An answer, in our own terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// What the model said, without its reasoning.
    pub content: String,
    /// Its reasoning. Never searched for calls.
    pub reasoning: String,
    /// Native tool calls, in order.
    pub calls: Vec<RawCall>,
    /// Why it stopped, as the server says.
    pub finish: Finish,
    /// Tokens, when the server counts them.
    pub usage: Option<Usage>,
}

/// A native tool call, not yet believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawCall {
    /// Nine letters and digits, unique in the answer: the server's own id, or one of ours.
    pub id: String,
    /// As the model wrote it.
    pub name: String,
    /// As the model wrote them.
    pub arguments: Arguments,
}

/// The two shapes in which servers send arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// A text that should be JSON.
    Text(String),
    /// Already an object.
    Object(Value),
    /// An object, in a body that holds some key twice: which value was meant cannot be known.
    Ambiguous,
}

/// Why a model stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Finish {
    /// By itself.
    Stop,
    /// `max_tokens` struck: whatever parses may be cut.
    Length,
    /// It called tools.
    ToolCalls,
    /// The server says nothing.
    #[default]
    Missing,
    /// Something else.
    Other(String),
}

/// Tokens of one exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the request.
    pub prompt: u64,
    /// Of the answer.
    pub completion: u64,
}

/// What a body turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// An answer.
    Answer(Answer),
    /// The conversation does not fit.
    Overflow { n_ctx: Option<u64> },
    /// The server is loading the model.
    Loading,
    /// The server's own error message, bounded and cleaned.
    Error(String),
    /// Not the protocol; what is missing.
    Foreign(&'static str),
}

/// Reads a body; the HTTP status is no help, servers send overflow as 400, as 500 and as 200.
pub(crate) fn read(bytes: &[u8]) -> Body {
    let text = String::from_utf8_lossy(bytes);
    let Ok(value) = serde_json::from_str::<Value>(&text) else {
        return if mentions_overflow(&text) {
            Body::Overflow { n_ctx: None }
        } else {
            Body::Foreign("the answer is not JSON")
        };
    };
    if let Some(error) = value.get("error").filter(|e| !e.is_null()) {
        return read_error(error);
    }
    let Some(choices) = value.get("choices").and_then(Value::as_array) else {
        if let Some(message) = value.get("message").or_else(|| value.get("detail")) {
            return read_error(message);
        }
        return Body::Foreign("the answer has no `choices`");
    };
    let Some(choice) = choices.first() else { return Body::Foreign("`choices` is empty") };
    let Some(message) = choice.get("message").filter(|m| m.is_object()) else {
        return Body::Foreign("the choice has no `message`");
    };
    let ambiguous = crate::strict::parse_unbounded(&text).is_err();
    let (content, inline) = split_reasoning(&content_text(message.get("content")));
    let field = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut reasoning = field("reasoning_content").to_owned();
    if reasoning.is_empty() {
        reasoning = field("reasoning").to_owned();
    }
    reasoning.push_str(&inline);
    Body::Answer(Answer {
        content,
        reasoning,
        calls: read_calls(message, ambiguous),
        finish: read_finish(choice.get("finish_reason")),
        usage: read_usage(value.get("usage")),
    })
}

fn read_error(error: &Value) -> Body {
    let message = match error {
        Value::String(s) => s.clone(),
        other => {
            other.get("message").and_then(Value::as_str).map_or_else(|| other.to_string(), str::to_owned)
        }
    };
    let kind = error.get("type").and_then(Value::as_str).unwrap_or_default();
    if kind == "exceed_context_size_error" || mentions_overflow(&message) {
        return Body::Overflow { n_ctx: error.get("n_ctx").and_then(Value::as_u64) };
    }
    if message.to_ascii_lowercase().contains("loading model") {
        return Body::Loading;
    }
    Body::Error(crate::text::label(&message, 300))
}

fn mentions_overflow(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("exceed_context_size")
        || text.contains("context_length_exceeded")
        || (text.contains("context")
            && ["exceed", "too long", "too large", "maximum", "overflow", "larger than"]
                .iter()
                .any(|w| text.contains(w)))
}

fn content_text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(s)) => s.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .filter_map(|p| p.as_str().or_else(|| p.get("text").and_then(Value::as_str)))
            .collect(),
        _ => String::new(),
    }
}

/// `<think>…</think>` out of the content; a closing tag alone means that all before it was reasoning, an opening
/// tag alone that all after it is.
fn split_reasoning(content: &str) -> (String, String) {
    let (mut said, mut thought) = (String::new(), String::new());
    let mut rest = content;
    loop {
        let open = rest.find("<think>");
        let close = rest.find("</think>");
        match (open, close) {
            (Some(o), Some(c)) if o < c => {
                said.push_str(&rest[..o]);
                thought.push_str(&rest[o + "<think>".len()..c]);
                rest = &rest[c + "</think>".len()..];
            }
            (_, Some(c)) => {
                thought.push_str(&said);
                thought.push_str(&rest[..c]);
                said.clear();
                rest = &rest[c + "</think>".len()..];
            }
            (Some(o), None) => {
                said.push_str(&rest[..o]);
                thought.push_str(&rest[o + "<think>".len()..]);
                return (said.trim().to_owned(), thought);
            }
            (None, None) => {
                said.push_str(rest);
                let said = if thought.is_empty() { said } else { said.trim().to_owned() };
                return (said, thought);
            }
        }
    }
}

fn read_calls(message: &Value, ambiguous: bool) -> Vec<RawCall> {
    let Some(calls) = message.get("tool_calls").and_then(Value::as_array) else { return Vec::new() };
    let mut seen = std::collections::BTreeSet::new();
    calls
        .iter()
        .enumerate()
        .map(|(at, call)| {
            let function = call.get("function").unwrap_or(call);
            let given = call.get("id").and_then(Value::as_str).unwrap_or_default();
            let id =
                if fits(given) && !seen.contains(given) { given.to_owned() } else { own_id(call, at, &seen) };
            seen.insert(id.clone());
            RawCall {
                id,
                name: function.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
                arguments: match function.get("arguments").or_else(|| function.get("parameters")) {
                    Some(Value::String(text)) => Arguments::Text(text.clone()),
                    None | Some(Value::Null) => Arguments::Text("{}".to_owned()),
                    Some(_) if ambiguous => Arguments::Ambiguous,
                    Some(other) => Arguments::Object(other.clone()),
                },
            }
        })
        .collect()
}

fn fits(id: &str) -> bool {
    id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// Nine letters and digits: some chat templates accept nothing else. Made from the call, so that the same answer
/// gives the same ids.
fn own_id(call: &Value, at: usize, seen: &std::collections::BTreeSet<String>) -> String {
    use sha2::{Digest, Sha256};
    let text = call.to_string();
    let mut salt = 0_u32;
    loop {
        let digest = Sha256::digest(format!("{at}/{salt}/{text}"));
        let id: String = digest
            .iter()
            .take(9)
            .map(|b| char::from(b"abcdefghijklmnopqrstuvwxyz012345"[usize::from(b % 32)]))
            .collect();
        if !seen.contains(&id) {
            return id;
        }
        salt += 1;
    }
}

fn read_finish(reason: Option<&Value>) -> Finish {
    match reason.and_then(Value::as_str).unwrap_or_default() {
        "" => Finish::Missing,
        "stop" => Finish::Stop,
        "length" | "max_tokens" => Finish::Length,
        "tool_calls" | "function_call" => Finish::ToolCalls,
        other => Finish::Other(crate::text::label(other, 40)),
    }
}

fn read_usage(usage: Option<&Value>) -> Option<Usage> {
    let usage = usage?;
    let count = |name: &str| usage.get(name).and_then(Value::as_u64);
    match (count("prompt_tokens"), count("completion_tokens")) {
        (None, None) => None,
        (prompt, completion) => {
            Some(Usage { prompt: prompt.unwrap_or_default(), completion: completion.unwrap_or_default() })
        }
    }
}
