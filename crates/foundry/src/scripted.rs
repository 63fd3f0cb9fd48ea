//! A model of ours: a server on loopback that says what it is told to say, when it is told to.
//!
//! It makes native calls and holds no schema. A run that asks waits for the next answer, so that the host can be looked at
//! between two calls; or it hears the same last word whenever nothing else is to be said.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

/// Bytes of a request, and of its head.
const MOST_BODY: usize = 256 << 20;
const MOST_HEAD: u64 = 64 << 10;
/// Longest wait for a peer that sends nothing.
const PATIENCE: Duration = Duration::from_secs(10);
/// The window it says it has: nothing is ever shortened for it.
const WINDOW: u64 = 1_000_000;

/// One answer.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A text.
    Text(String),
    /// A text, and calls: name and arguments as the model writes them.
    Calls(Option<String>, Vec<(String, String)>),
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct Scripted {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    heard: Mutex<Heard>,
    replies: Mutex<VecDeque<Reply>>,
    /// A reply is there.
    came: Condvar,
    /// What is said where no reply is; nothing is said then without one.
    last: Option<Reply>,
    over: AtomicBool,
}

#[derive(Debug, Default)]
struct Heard {
    /// For each request what it tells the model that the one before did not.
    news: Vec<String>,
    /// Messages that were told before.
    told: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scripted {
    /// One whose answers are waited for.
    ///
    /// # Errors
    /// When there is no port or no thread.
    pub fn start() -> io::Result<Scripted> {
        Scripted::serving(None)
    }

    /// One that has a last word.
    ///
    /// # Errors
    /// When there is no port or no thread.
    pub fn ending_with(last: Reply) -> io::Result<Scripted> {
        Scripted::serving(Some(last))
    }

    fn serving(last: Option<Reply>) -> io::Result<Scripted> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { last, ..Shared::default() });
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("model".to_owned())
            .spawn(move || serve(&listener, &for_thread))?;
        Ok(Scripted { address, shared, thread: Some(thread) })
    }

    /// Where it is.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The next answer.
    pub fn say(&self, reply: Reply) {
        lock(&self.shared.replies).push_back(reply);
        self.shared.came.notify_all();
    }

    /// Nothing that was to be said is said any more.
    pub fn hush(&self) {
        lock(&self.shared.replies).clear();
    }

    /// Requests so far.
    pub fn asked(&self) -> usize {
        lock(&self.shared.heard).news.len()
    }

    /// What a request told that the one before did not.
    pub fn news(&self, request: usize) -> String {
        lock(&self.shared.heard).news.get(request).cloned().unwrap_or_default()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.shared.came.notify_all();
        // Wakes the accept; whether it still listens does not matter.
        TcpStream::connect(self.address).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
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
            answer(stream, shared).ok();
        }
    }
}

fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let Some((path, body)) = read(&mut stream)? else { return Ok(()) };
    if !path.ends_with("/chat/completions") {
        let (status, body) = facts(&path);
        return respond(&mut stream, status, &body);
    }
    let reply = if let Some(canary) = canary(&body) {
        canary
    } else {
        hear(&body, shared);
        let Some(reply) = awaited(shared) else { return Ok(()) };
        reply
    };
    respond(&mut stream, 200, &completion(reply))
}

fn read(stream: &mut TcpStream) -> io::Result<Option<(String, Value)>> {
    let mut reader = BufReader::new(stream);
    let mut head = (&mut reader).take(MOST_HEAD);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let mut length = 0;
    loop {
        let mut line = String::new();
        head.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    if length > MOST_BODY {
        return Ok(None);
    }
    let mut raw = vec![0; length];
    reader.read_exact(&mut raw)?;
    Ok(Some((path, serde_json::from_slice(&raw).unwrap_or(Value::Null))))
}

/// What a server of this kind says of itself.
fn facts(path: &str) -> (u16, Value) {
    match path {
        "/health" => (200, json!({"status": "ok"})),
        "/v1/models" => (200, json!({"object": "list", "data": [{"id": "local"}]})),
        "/props" => (
            200,
            json!({
                "default_generation_settings": {"n_ctx": WINDOW},
                "chat_template_caps": {"supports_tools": true},
            }),
        ),
        "/tools" => (403, json!({"error": {"message": "off", "type": "feature_disabled"}})),
        _ => (404, json!({"error": {"message": "File Not Found", "code": 404}})),
    }
}

/// The executor tries what a server holds before it relies on it: this one holds no schema and makes calls.
fn canary(body: &Value) -> Option<Reply> {
    let schema = body.pointer("/response_format/json_schema/name").and_then(Value::as_str);
    if schema == Some("canary") {
        return Some(Reply::Text("Hello there!".to_owned()));
    }
    let tool = body.pointer("/tools/0/function/name").and_then(Value::as_str)?;
    let called = (tool.to_owned(), json!({"code": 7}).to_string());
    tool.starts_with("canary").then(|| Reply::Calls(None, vec![called]))
}

fn hear(body: &Value, shared: &Shared) {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut heard = lock(&shared.heard);
    let new = messages.iter().skip(heard.told).filter(|message| message["role"] != "assistant");
    let texts: Vec<&str> = new.filter_map(|message| message["content"].as_str()).collect();
    heard.told = messages.len();
    heard.news.push(texts.join("\n"));
}

/// The next answer; none when the server is to end.
fn awaited(shared: &Shared) -> Option<Reply> {
    let mut replies = lock(&shared.replies);
    while !shared.over.load(Ordering::SeqCst) {
        if let Some(reply) = replies.pop_front().or_else(|| shared.last.clone()) {
            return Some(reply);
        }
        let wait = shared.came.wait_timeout(replies, Duration::from_millis(100));
        replies = wait.unwrap_or_else(PoisonError::into_inner).0;
    }
    None
}

fn completion(reply: Reply) -> Value {
    let (message, finish) = match reply {
        Reply::Text(text) => (json!({"role": "assistant", "content": text}), "stop"),
        Reply::Calls(text, calls) => {
            let call = |(i, (name, arguments)): (usize, (String, String))| {
                json!({"id": format!("call_{i}"), "type": "function",
                       "function": {"name": name, "arguments": arguments}})
            };
            let calls: Vec<Value> = calls.into_iter().enumerate().map(call).collect();
            (json!({"role": "assistant", "content": text, "tool_calls": calls}), "tool_calls")
        }
    };
    json!({
        "object": "chat.completion",
        "model": "local",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20},
    })
}

fn respond(stream: &mut TcpStream, status: u16, body: &Value) -> io::Result<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} Scripted\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}
