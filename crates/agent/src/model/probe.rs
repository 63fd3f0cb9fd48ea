//! What the server really does, found out before a run relies on it.
//!
//! Nothing is believed because it is announced: a schema counts as enforced when a constrained answer came back
//! in a shape that no prose would have, and native tools count when a call came back as one.

use runs::{Cancel, Channel};
use serde::Serialize;
use serde_json::{Value, json};

use super::ModelError;
use super::client::Client;
use super::wire::{Answer, Arguments};

/// What a probe has seen; goes into `meta.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelProbe {
    /// Which server it looks like.
    pub server: ServerKind,
    /// The models it says it has, at most 32.
    pub models: Vec<String>,
    /// Tokens of the window, where the server says it.
    pub n_ctx: Option<u64>,
    /// Whether the chat template knows tools, where the server says it.
    pub template_tools: Option<bool>,
    /// How actions travel.
    pub channel: Channel,
    /// What is worth knowing.
    pub findings: Vec<Finding>,
}

/// A guess at the server, by its own answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerKind {
    /// `llama-server` or a wrapper of it.
    LlamaCpp,
    /// Ollama.
    Ollama,
    /// vLLM.
    Vllm,
    /// None of the above, or not told.
    Other,
}

/// One thing worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable code.
    pub code: &'static str,
    /// A sentence.
    pub text: String,
}

/// Why a server is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// No usable answer.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Its window is smaller than the deployment asks for.
    #[error(
        "the model server at {at} has a window of {have} tokens, model.min_context asks for {need}; start it \
         with a larger one (llama-server -c {need}, OLLAMA_CONTEXT_LENGTH={need}) or lower model.min_context"
    )]
    TooSmall {
        /// Host and port.
        at: String,
        /// What the server says.
        have: u64,
        /// What the deployment asks for.
        need: u64,
    },
}

/// Key and value of the first canary: nothing that prose would ever say.
const SIGN: (&str, &str) = ("zq7_oubliette", "kestrel-41");
/// Tool of the second canary.
const ECHO: &str = "canary_echo";

/// Waits for the server, looks at what it tells, and tries what it does.
///
/// # Errors
/// [`ProbeError`]: an unusable server is told now, not in the middle of a run.
pub async fn probe(client: &Client, min_context: u64, cancel: &Cancel) -> Result<ModelProbe, ProbeError> {
    let mut seen = ModelProbe {
        server: ServerKind::Other,
        models: Vec::new(),
        n_ctx: None,
        template_tools: None,
        channel: Channel::Text,
        findings: Vec::new(),
    };
    let health = client.ready(cancel).await?;
    if !(200..300).contains(&health) {
        seen.find("no-health", format!("GET /health answers {health}; taken as ready"));
    }
    ask_models(client, cancel, &mut seen).await?;
    ask_props(client, cancel, &mut seen).await?;
    ask_own_tools(client, cancel, &mut seen).await?;
    match seen.n_ctx {
        Some(have) if have < min_context => {
            return Err(ProbeError::TooSmall { at: client.at(), have, need: min_context });
        }
        Some(_) => {}
        None => seen.find("window-unknown", "the server does not say how large its window is".to_owned()),
    }
    seen.channel = channel(client, cancel, &mut seen).await?;
    Ok(seen)
}

async fn ask_models(client: &Client, cancel: &Cancel, seen: &mut ModelProbe) -> Result<(), ModelError> {
    let Some(value) = look(client, "/models", false, cancel).await? else {
        seen.find("no-models", "GET models gives no list".to_owned());
        return Ok(());
    };
    let empty = Vec::new();
    let list = value.get("data").and_then(Value::as_array).unwrap_or(&empty);
    let id = |m: &Value| m.get("id").and_then(Value::as_str).map(|s| crate::text::label(s, 120));
    seen.models = list.iter().filter_map(id).take(32).collect();
    let mine = list
        .iter()
        .find(|m| m.get("id").and_then(Value::as_str) == Some(client.name.as_str()))
        .or(if list.len() == 1 { list.first() } else { None });
    if !list.is_empty() && mine.is_none() {
        seen.find("model-not-listed", "the model of the deployment is not in the server's list".to_owned());
    }
    if let Some(model) = mine {
        let owner = model.get("owned_by").and_then(Value::as_str).unwrap_or_default();
        seen.server = match owner {
            "llamacpp" => ServerKind::LlamaCpp,
            "library" | "ollama" => ServerKind::Ollama,
            "vllm" => ServerKind::Vllm,
            _ => ServerKind::Other,
        };
        // Not `meta.n_ctx_train`: what a model was trained for says nothing about how it was started.
        seen.n_ctx = ["max_model_len", "context_length", "context_window"]
            .iter()
            .find_map(|k| model.get(*k).and_then(Value::as_u64));
    }
    Ok(())
}

async fn ask_props(client: &Client, cancel: &Cancel, seen: &mut ModelProbe) -> Result<(), ModelError> {
    let Some(props) = look(client, "/props", true, cancel).await? else { return Ok(()) };
    let settings = props.get("default_generation_settings");
    let n_ctx = settings.and_then(|s| s.get("n_ctx")).or_else(|| props.get("n_ctx")).and_then(Value::as_u64);
    if let Some(n_ctx) = n_ctx {
        seen.server = ServerKind::LlamaCpp;
        seen.n_ctx = Some(n_ctx);
    }
    seen.template_tools =
        props.get("chat_template_caps").and_then(|c| c.get("supports_tools")).and_then(Value::as_bool);
    Ok(())
}

async fn ask_own_tools(client: &Client, cancel: &Cancel, seen: &mut ModelProbe) -> Result<(), ModelError> {
    let reply = client.get("/tools", true, cancel).await?;
    let json = serde_json::from_slice::<Value>(&reply.body).is_ok();
    if reply.status == 200 && json {
        seen.find(
            "server-tools-open",
            "GET /tools answers 200: the model server can run tools of its own, outside every sandbox; start \
             it without --tools"
                .to_owned(),
        );
    }
    Ok(())
}

async fn channel(client: &Client, cancel: &Cancel, seen: &mut ModelProbe) -> Result<Channel, ModelError> {
    match canary(client, &schema_canary(client), cancel).await? {
        Some(answer) if is_sign(&answer) => return Ok(Channel::Schema),
        Some(_) => {
            seen.find("schema-ignored", "response_format json_schema is accepted and not held".to_owned())
        }
        None => seen.find("schema-rejected", "response_format json_schema is not accepted".to_owned()),
    }
    if seen.template_tools == Some(false) {
        seen.find("template-without-tools", "the chat template knows no tools".to_owned());
        return Ok(Channel::Text);
    }
    match canary(client, &native_canary(client), cancel).await? {
        Some(answer) if is_echo(&answer) => Ok(Channel::Native),
        Some(_) => {
            seen.find("tools-ignored", "an asked-for tool call did not come back as one".to_owned());
            Ok(Channel::Text)
        }
        None => {
            seen.find("tools-rejected", "requests with tools are not accepted".to_owned());
            Ok(Channel::Text)
        }
    }
}

/// An answer, or none when the server understands the protocol but not this request.
async fn canary(client: &Client, body: &Value, cancel: &Cancel) -> Result<Option<Answer>, ModelError> {
    let exchange = client.chat(body, cancel).await;
    match exchange.answer {
        Ok(answer) => Ok(Some(answer)),
        Err(ModelError::Protocol { .. }) if (400..500).contains(&exchange.status) => Ok(None),
        // Some servers answer 500 to a request form that they do not know; a later one tells whether it lives.
        Err(ModelError::Unavailable { .. }) if exchange.status >= 500 && !exchange.body.is_empty() => {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

fn schema_canary(client: &Client) -> Value {
    json!({
        "model": client.name,
        "messages": [{"role": "user", "content": "Say hello in one short sentence."}],
        "temperature": 0,
        "max_tokens": 64,
        "response_format": {"type": "json_schema", "json_schema": {"name": "canary", "strict": true, "schema": {
            "type": "object",
            "properties": {SIGN.0: {"const": SIGN.1}},
            "required": [SIGN.0],
            "additionalProperties": false,
        }}},
    })
}

fn is_sign(answer: &Answer) -> bool {
    serde_json::from_str::<Value>(&answer.content).is_ok_and(|v| v == json!({SIGN.0: SIGN.1}))
}

fn native_canary(client: &Client) -> Value {
    json!({
        "model": client.name,
        "messages": [{"role": "user", "content": "Call the tool canary_echo with code 7. Do nothing else."}],
        "temperature": 0,
        "max_tokens": 96,
        "tools": [{"type": "function", "function": {
            "name": ECHO,
            "description": "Repeats a code.",
            "parameters": {
                "type": "object",
                "properties": {"code": {"type": "integer"}},
                "required": ["code"],
            },
        }}],
    })
}

fn is_echo(answer: &Answer) -> bool {
    let [call] = answer.calls.as_slice() else { return false };
    let arguments = match &call.arguments {
        Arguments::Text(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        Arguments::Object(value) => value.clone(),
        Arguments::Ambiguous => Value::Null,
    };
    call.name == ECHO && arguments.get("code").is_some_and(Value::is_i64)
}

async fn look(client: &Client, path: &str, root: bool, cancel: &Cancel) -> Result<Option<Value>, ModelError> {
    let reply = client.get(path, root, cancel).await?;
    Ok(if reply.status == 200 { serde_json::from_slice(&reply.body).ok() } else { None })
}

impl ModelProbe {
    fn find(&mut self, code: &'static str, text: String) {
        self.findings.push(Finding { code, text });
    }
}
