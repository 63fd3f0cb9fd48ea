//! A scripted model server: plays a list of answers over real HTTP and keeps every request for assertions.
//!
//! ```
//! use serde_json::json;
//! let model = testkit::ScriptedModel::actions([json!({"tool": "finish", "args": {}})]);
//! assert!(model.base_url().starts_with("http://127.0.0.1:"));
//! ```

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

/// One scripted answer to a completion request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Prose, or whatever text the model says.
    Text(String),
    /// The content of an action, as a constrained server sends it.
    Action(Value),
    /// Native calls: name and arguments; a string is sent as it is, anything else as its JSON text.
    Calls(Vec<(String, Value)>),
    /// A `message` object and a `finish_reason`, for everything odd.
    Message(Value, Value),
    /// A whole body with a status.
    Json(u16, Value),
    /// Bytes as they go over the wire, status line included.
    Raw(Vec<u8>),
    /// The connection is closed without an answer.
    HangUp,
    /// Another reply, later. Ends early when the server is dropped.
    After(Duration, Box<Reply>),
    /// The next reply that a test gives, when it gives it: see [`given`].
    Given(Given),
}

/// Where replies come from that a test gives one by one.
#[derive(Clone, Debug)]
pub struct Given(Arc<Mutex<mpsc::Receiver<Reply>>>);

/// A hand that gives replies, and what waits for them. The program that asked waits as long; when the hand is gone,
/// it is hung up on.
pub fn given() -> (Sender<Reply>, Reply) {
    let (hand, replies) = mpsc::channel();
    (hand, Reply::Given(Given(Arc::new(Mutex::new(replies)))))
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `GET` or `POST`.
    pub method: String,
    /// The path.
    pub path: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body, when it is JSON.
    pub body: Value,
    /// The body as it came.
    pub raw: Vec<u8>,
}

impl Seen {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// How a server behaves; `start` makes it one.
#[derive(Clone, Debug)]
pub struct Script {
    replies: VecDeque<Reply>,
    last_again: bool,
    schema: bool,
    native: bool,
    rejects: bool,
    tools_open: bool,
    props: bool,
    n_ctx: u64,
    template_tools: bool,
    loading: u32,
    usage: Option<(u64, u64)>,
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct ScriptedModel {
    addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    script: Mutex<Script>,
    seen: Mutex<Vec<Seen>>,
    over: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Script {
    /// A llama.cpp-like server that holds schemas.
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Script {
        Script {
            replies: replies.into_iter().collect(),
            last_again: false,
            schema: true,
            native: false,
            rejects: false,
            tools_open: false,
            props: true,
            n_ctx: 8192,
            template_tools: true,
            loading: 0,
            usage: Some((100, 20)),
        }
    }

    /// Does not hold schemas; native calls come back as calls.
    #[must_use]
    pub fn native(mut self) -> Script {
        self.schema = false;
        self.native = true;
        self
    }

    /// Holds no schema and makes no calls.
    #[must_use]
    pub fn text_only(mut self) -> Script {
        self.schema = false;
        self.native = false;
        self
    }

    /// Answers 400 to whatever asks for a schema or offers tools.
    #[must_use]
    pub fn rejects(mut self) -> Script {
        self.rejects = true;
        self
    }

    /// Its own tools answer.
    #[must_use]
    pub fn tools_open(mut self) -> Script {
        self.tools_open = true;
        self
    }

    /// The window it says it has; none says nothing at all.
    #[must_use]
    pub fn n_ctx(mut self, n_ctx: Option<u64>) -> Script {
        self.props = n_ctx.is_some();
        self.n_ctx = n_ctx.unwrap_or_default();
        self
    }

    /// Answers 503 "Loading model" that many times first, to whatever is asked.
    #[must_use]
    pub fn loading(mut self, times: u32) -> Script {
        self.loading = times;
        self
    }

    /// Plays the last reply for ever.
    #[must_use]
    pub fn last_again(mut self) -> Script {
        self.last_again = true;
        self
    }

    /// Tokens it counts in every answer; none counts nothing.
    #[must_use]
    pub fn usage(mut self, usage: Option<(u64, u64)>) -> Script {
        self.usage = usage;
        self
    }

    /// Starts the server on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// When no port can be had.
    pub fn start(self) -> ScriptedModel {
        self.start_at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Starts the server where it is told to.
    ///
    /// # Panics
    /// When the address cannot be had.
    pub fn start_at(self, address: SocketAddr) -> ScriptedModel {
        let listener = match TcpListener::bind(address) {
            Ok(listener) => listener,
            Err(e) => panic!("cannot listen at {address}: {e}"),
        };
        let addr = match listener.local_addr() {
            Ok(addr) => addr,
            Err(e) => panic!("no address: {e}"),
        };
        let shared = Arc::new(Shared {
            script: Mutex::new(self),
            seen: Mutex::new(Vec::new()),
            over: AtomicBool::new(false),
        });
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || serve(&listener, &for_thread));
        ScriptedModel { addr, shared, thread: Some(thread) }
    }
}

impl ScriptedModel {
    /// A server that holds schemas and plays these actions.
    pub fn actions(actions: impl IntoIterator<Item = Value>) -> ScriptedModel {
        Script::new(actions.into_iter().map(Reply::Action)).start()
    }

    /// What goes into `model.base_url`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.addr)
    }

    /// Every request so far, in order.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// The completion requests so far, canaries left out.
    pub fn asked(&self) -> Vec<Seen> {
        self.seen()
            .into_iter()
            .filter(|s| s.path.ends_with("/chat/completions") && !is_canary(&s.body))
            .collect()
    }

    /// Replies that have not been played.
    pub fn left(&self) -> usize {
        lock(&self.shared.script).replies.len()
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the accept; whether it still listens does not matter.
        drop(TcpStream::connect(self.addr));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn serve(listener: &TcpListener, shared: &Shared) {
    for stream in listener.incoming() {
        if shared.over.load(Ordering::SeqCst) {
            return;
        }
        if let Ok(stream) = stream {
            // A peer that goes away is its own business.
            drop(answer(stream, shared));
        }
    }
}

fn answer(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let Some(seen) = read(&mut stream)? else { return Ok(()) };
    let reply = choose(&seen, &mut lock(&shared.script));
    let usage = lock(&shared.script).usage;
    lock(&shared.seen).push(seen);
    send(&mut stream, reply, usage, shared)
}

fn read(stream: &mut TcpStream) -> std::io::Result<Option<Seen>> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(n, _)| n == "content-length").and_then(|(_, v)| v.parse().ok());
    let mut raw = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut raw)?;
    let body = serde_json::from_slice(&raw).unwrap_or(Value::Null);
    Ok(Some(Seen { method, path, headers, body, raw }))
}

fn choose(seen: &Seen, script: &mut Script) -> Reply {
    if script.loading > 0 {
        script.loading -= 1;
        let error = json!({"message": "Loading model", "type": "unavailable_error", "code": 503});
        return Reply::Json(503, json!({"error": error}));
    }
    if seen.path.ends_with("/chat/completions") {
        return if is_canary(&seen.body) { canary(&seen.body, script) } else { play(script) };
    }
    let missing = Reply::Json(404, json!({"error": {"message": "File Not Found", "code": 404}}));
    match seen.path.as_str() {
        "/health" if script.props => Reply::Json(200, json!({"status": "ok"})),
        "/v1/models" => Reply::Json(200, json!({"object": "list", "data": [{"id": "local"}]})),
        "/props" if script.props => Reply::Json(
            200,
            json!({
                "default_generation_settings": {"n_ctx": script.n_ctx},
                "chat_template_caps": {"supports_tools": script.template_tools},
            }),
        ),
        "/tools" if script.tools_open => Reply::Json(200, json!([{"name": "exec_shell_command"}])),
        "/tools" if script.props => {
            Reply::Json(403, json!({"error": {"message": "off", "type": "feature_disabled"}}))
        }
        _ => missing,
    }
}

fn play(script: &mut Script) -> Reply {
    if script.last_again && script.replies.len() == 1 {
        return script.replies[0].clone();
    }
    let over = || Reply::Json(400, json!({"error": {"message": "the script is over", "code": 400}}));
    script.replies.pop_front().unwrap_or_else(over)
}

/// A canary asks for a schema of the name `canary`, or offers a tool whose name begins with it.
fn is_canary(body: &Value) -> bool {
    let schema = body.pointer("/response_format/json_schema/name").and_then(Value::as_str);
    let tool = body.pointer("/tools/0/function/name").and_then(Value::as_str);
    schema == Some("canary") || tool.is_some_and(|t| t.starts_with("canary"))
}

fn canary(body: &Value, script: &Script) -> Reply {
    let prose = Reply::Text("Hello there!".to_owned());
    if script.rejects {
        return Reply::Json(400, json!({"error": {"message": "unknown field", "code": 400}}));
    }
    if let Some(schema) = body.pointer("/response_format/json_schema/schema") {
        return if script.schema { Reply::Action(instance(schema)) } else { prose };
    }
    if script.native { Reply::Calls(vec![("canary_echo".to_owned(), json!({"code": 7}))]) } else { prose }
}

/// The one value of an object schema of constants.
fn instance(schema: &Value) -> Value {
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let pairs = properties.map(|(k, v)| (k.clone(), v.get("const").cloned().unwrap_or(Value::Null)));
    Value::Object(pairs.collect())
}

fn send(
    stream: &mut TcpStream,
    reply: Reply,
    usage: Option<(u64, u64)>,
    shared: &Shared,
) -> std::io::Result<()> {
    let message = match reply {
        Reply::HangUp => return Ok(()),
        Reply::Raw(bytes) => return stream.write_all(&bytes),
        Reply::Json(status, body) => return respond(stream, status, &body),
        Reply::After(wait, next) => {
            hold(wait, shared);
            return send(stream, *next, usage, shared);
        }
        Reply::Given(given) => {
            return match awaited(&given, shared) {
                Some(next) => send(stream, next, usage, shared),
                None => Ok(()),
            };
        }
        Reply::Text(text) => (json!({"role": "assistant", "content": text}), json!("stop")),
        Reply::Action(action) => (json!({"role": "assistant", "content": action.to_string()}), json!("stop")),
        Reply::Calls(calls) => (calls_message(&calls), json!("tool_calls")),
        Reply::Message(message, finish) => (message, finish),
    };
    let mut body = json!({
        "object": "chat.completion",
        "model": "local",
        "choices": [{"index": 0, "message": message.0, "finish_reason": message.1}],
    });
    if let Some((prompt, completion)) = usage {
        body["usage"] = json!({"prompt_tokens": prompt, "completion_tokens": completion});
    }
    respond(stream, 200, &body)
}

fn calls_message(calls: &[(String, Value)]) -> Value {
    let calls: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(i, (name, arguments))| {
            let arguments = match arguments {
                Value::String(raw) => raw.clone(),
                other => other.to_string(),
            };
            json!({"id": format!("call_{i}"), "type": "function",
                   "function": {"name": name, "arguments": arguments}})
        })
        .collect();
    json!({"role": "assistant", "content": null, "tool_calls": calls})
}

/// The next reply of a test; none when it gives no more, or the server is dropped.
fn awaited(given: &Given, shared: &Shared) -> Option<Reply> {
    while !shared.over.load(Ordering::SeqCst) {
        match lock(&given.0).recv_timeout(Duration::from_millis(10)) {
            Ok(reply) => return Some(reply),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    None
}

/// Waits in small steps, so that a dropped server does not hold its test.
fn hold(wait: Duration, shared: &Shared) {
    let step = Duration::from_millis(10);
    let mut left = wait;
    while !left.is_zero() && !shared.over.load(Ordering::SeqCst) {
        std::thread::sleep(step.min(left));
        left = left.saturating_sub(step);
    }
}

fn respond(stream: &mut TcpStream, status: u16, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} Scripted\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}
