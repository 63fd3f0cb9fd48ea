//! The client: one address, separate limits, few retries, and a key that shows up nowhere.

use std::time::{Duration, Instant};

use runs::Cancel;
use serde_json::Value;

use super::ModelError;
use super::exchange::{Ask, Broken, Reply, exchange};
use super::wire::{self, Answer, Body};

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// To connect.
    pub connect: Duration,
    /// For a whole exchange: slow processors need minutes for a long prompt.
    pub total: Duration,
    /// For the small questions of the probe that need no model.
    pub probe: Duration,
    /// That a server may spend loading its model.
    pub loading: Duration,
    /// Before the first retry; each further one waits twice as long.
    pub backoff: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            connect: Duration::from_secs(5),
            total: Duration::from_secs(600),
            probe: Duration::from_secs(10),
            loading: Duration::from_secs(180),
            backoff: Duration::from_millis(250),
        }
    }
}

/// Retries after a failed connection or an empty server error.
const RETRIES: u32 = 3;

/// A chat-completions server at one address.
pub struct Client {
    host: String,
    port: u16,
    /// `/v1` or whatever the deployment says.
    prefix: String,
    /// The name sent as `model`.
    pub(crate) name: String,
    key: Option<String>,
    timing: Timing,
}

/// One exchange, as it goes into the record.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// HTTP status; 0 when none came.
    pub status: u16,
    /// The body as sent.
    pub body: Vec<u8>,
    /// Milliseconds, retries and waiting included.
    pub duration_ms: u64,
    /// What it meant.
    pub answer: Result<Answer, ModelError>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("at", &self.at())
            .field("prefix", &self.prefix)
            .field("name", &self.name)
            .field("key", &self.key.as_ref().map(|_| "set"))
            .finish()
    }
}

impl Client {
    /// A client for the deployment's model; the key's value comes from the only reader of the environment.
    ///
    /// # Errors
    /// [`ModelError::Address`] when the address is not plain `http://host:port/path`.
    pub fn new(model: &policy::Model, key: Option<String>) -> Result<Client, ModelError> {
        let wrong = |reason: &str| ModelError::Address {
            url: crate::text::label(&model.base_url, 200),
            reason: reason.to_owned(),
        };
        let rest = model.base_url.strip_prefix("http://").ok_or_else(|| {
            wrong("only plain http is spoken; put a local server at http://127.0.0.1:PORT/v1")
        })?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return Err(wrong(
                "a user or key in the address is not accepted; name a variable in api_key_env",
            ));
        }
        let (host, port) = split_authority(authority).ok_or_else(|| wrong("host or port cannot be read"))?;
        if path.chars().any(|c| c.is_control() || c.is_whitespace() || c == '#' || c == '?') {
            return Err(wrong("the path holds characters that do not belong there"));
        }
        let path = path.trim_end_matches('/');
        Ok(Client {
            host,
            port,
            prefix: if path.is_empty() { String::new() } else { format!("/{path}") },
            name: model.name.clone(),
            key: key.filter(|k| !k.is_empty()),
            timing: Timing::default(),
        })
    }

    /// With other limits.
    #[must_use]
    pub fn with_timing(mut self, timing: Timing) -> Client {
        self.timing = timing;
        self
    }

    /// Host and port, for messages.
    pub fn at(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Asks for a completion. Waits while the server loads; retries only what cannot have been carried out.
    pub async fn chat(&self, body: &Value, cancel: &Cancel) -> Exchange {
        let started = Instant::now();
        let path = format!("{}/chat/completions", self.prefix);
        let bytes = body.to_string().into_bytes();
        let (reply, answer) = self.insist(&path, bytes, cancel).await;
        let reply = reply.unwrap_or(Reply { status: 0, body: Vec::new() });
        Exchange {
            status: reply.status,
            body: reply.body,
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            answer,
        }
    }

    /// A question of the probe, beneath the prefix or at the root of the server; never retried.
    pub(crate) async fn get(&self, path: &str, at_root: bool, cancel: &Cancel) -> Result<Reply, ModelError> {
        let root = self.prefix.strip_suffix("/v1").unwrap_or(&self.prefix);
        let path = format!("{}{path}", if at_root { root } else { &self.prefix });
        let timing = self.timing;
        let asked = exchange(self.ask(&path, None), timing.connect, timing.probe);
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ModelError::Cancelled),
            reply = asked => reply.map(|r| self.scrubbed(r)).map_err(|b| self.broken(b)),
        }
    }

    /// Waits until the server has its model.
    pub(crate) async fn ready(&self, cancel: &Cancel) -> Result<u16, ModelError> {
        let started = Instant::now();
        let mut wait = self.timing.backoff;
        loop {
            let reply = self.get("/health", true, cancel).await?;
            if reply.status != 503 {
                return Ok(reply.status);
            }
            if started.elapsed() >= self.timing.loading {
                return Err(self.unavailable("it is still loading its model"));
            }
            self.pause(&mut wait, cancel).await?;
        }
    }

    async fn insist(
        &self,
        path: &str,
        bytes: Vec<u8>,
        cancel: &Cancel,
    ) -> (Option<Reply>, Result<Answer, ModelError>) {
        let (mut tries, mut wait, mut loading) = (0, self.timing.backoff, Duration::ZERO);
        loop {
            let asked = exchange(self.ask(path, Some(bytes.clone())), self.timing.connect, self.timing.total);
            let result = tokio::select! {
                biased;
                () = cancel.cancelled() => return (None, Err(ModelError::Cancelled)),
                result = asked => result.map(|reply| self.scrubbed(reply)),
            };
            let (reply, error) = match result {
                Ok(reply) => match (wire::read(&reply.body), reply.status) {
                    (Body::Answer(answer), 200..=299) => return (Some(reply), Ok(answer)),
                    (Body::Overflow { n_ctx }, _) => {
                        return (Some(reply), Err(ModelError::ContextOverflow { n_ctx }));
                    }
                    (Body::Loading, _) => {
                        if loading >= self.timing.loading {
                            return (Some(reply), Err(self.unavailable("it is still loading its model")));
                        }
                        loading += wait;
                        if let Err(e) = self.pause(&mut wait, cancel).await {
                            return (Some(reply), Err(e));
                        }
                        continue;
                    }
                    (Body::Error(message), status @ 500..) => {
                        let error = self.unavailable(&format!("status {status}: {message}"));
                        return (Some(reply), Err(error));
                    }
                    (Body::Foreign(_) | Body::Answer(_), status @ 500..) => {
                        (Some(reply), self.unavailable(&format!("status {status} without a usable body")))
                    }
                    (Body::Error(message), status) => {
                        let error = self.protocol(&format!("status {status}: {message}"));
                        return (Some(reply), Err(error));
                    }
                    (Body::Foreign(what), status) => {
                        let error = self.protocol(&format!("status {status}: {what}"));
                        return (Some(reply), Err(error));
                    }
                    (Body::Answer(_), status) => {
                        let error = self.protocol(&format!("an answer with status {status}"));
                        return (Some(reply), Err(error));
                    }
                },
                Err(broken @ Broken::Connect(_)) => (None, self.broken(broken)),
                Err(broken) => return (None, Err(self.broken(broken))),
            };
            tries += 1;
            if tries > RETRIES {
                return (reply, Err(error));
            }
            if let Err(e) = self.pause(&mut wait, cancel).await {
                return (reply, Err(e));
            }
        }
    }

    async fn pause(&self, wait: &mut Duration, cancel: &Cancel) -> Result<(), ModelError> {
        let now = *wait;
        *wait = (now * 2).min(Duration::from_secs(5));
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ModelError::Cancelled),
            () = tokio::time::sleep(now) => Ok(()),
        }
    }

    fn ask<'a>(&'a self, path: &'a str, body: Option<Vec<u8>>) -> Ask<'a> {
        Ask { host: &self.host, port: self.port, path, key: self.key.as_deref(), body }
    }

    fn broken(&self, broken: Broken) -> ModelError {
        match broken {
            Broken::Connect(what) => self.unavailable(&what),
            Broken::Io(what) => self.unavailable(&format!("the connection broke: {what}")),
            Broken::Slow(total) => self.unavailable(&format!("no answer within {} s", total.as_secs_f32())),
            Broken::TooLong => self.protocol("the answer is longer than 8 MiB"),
        }
    }

    /// A server may echo the key in its own words; it goes no further than this.
    fn scrubbed(&self, mut reply: Reply) -> Reply {
        if let Some(key) = &self.key {
            let text = String::from_utf8_lossy(&reply.body);
            if text.contains(key.as_str()) {
                reply.body = text.replace(key.as_str(), "[key]").into_bytes();
            }
        }
        reply
    }

    fn unavailable(&self, reason: &str) -> ModelError {
        ModelError::Unavailable { at: self.at(), reason: reason.to_owned() }
    }

    fn protocol(&self, reason: &str) -> ModelError {
        ModelError::Protocol { at: self.at(), reason: reason.to_owned() }
    }
}

fn split_authority(authority: &str) -> Option<(String, u16)> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    let port = match port {
        Some(text) => text.parse().ok()?,
        None => 80,
    };
    let clean = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:".contains(c));
    clean.then(|| (host.to_owned(), port))
}
