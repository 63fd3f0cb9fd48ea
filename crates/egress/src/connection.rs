//! One connection on its way: what it asked for, what was decided, how much passed.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use policy::{Decision, Target, shown};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::caps::{Direction, Flow};
use crate::judge::{Judge, Opened};
use crate::tls::Tls;
use crate::{Caps, Decided, Dial, Ended, Event, Granted, Refused, Sink, Terms, Way};

/// Addresses of an answer that are tried.
const TRIED: usize = 4;

/// What all connections share.
pub(crate) struct Inner {
    pub(crate) caps: Caps,
    pub(crate) judge: Judge,
    pub(crate) flow: Flow,
    pub(crate) tls: Tls,
    dialer: Arc<dyn Dial>,
    sink: Arc<dyn Sink>,
    open: Arc<Semaphore>,
    connections: AtomicU64,
    events: AtomicU64,
}

/// One connection. That it ended is told when it is closed, or dropped.
pub(crate) struct Connection {
    pub(crate) inner: Arc<Inner>,
    number: u64,
    pub(crate) way: Way,
    asked: String,
    began: Instant,
    pub(crate) passed: Passed,
    ended: Option<Ended>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Bytes of one connection.
#[derive(Default)]
pub(crate) struct Passed {
    up: AtomicU64,
    down: AtomicU64,
}

impl Inner {
    pub(crate) fn new(terms: Terms) -> Inner {
        let Terms { granted, caps, own, roots, resolver, dialer, sink } = terms;
        Inner {
            judge: Judge::new(granted, own, resolver, caps.connect, caps.star_names),
            flow: Flow::new(&caps),
            tls: Tls::new(roots),
            dialer,
            sink,
            open: Arc::new(Semaphore::new(caps.open)),
            connections: AtomicU64::new(0),
            events: AtomicU64::new(0),
            caps,
        }
    }

    /// More events than a record should hold are counted only.
    fn tell(&self, event: Event) {
        if self.events.fetch_add(1, Ordering::Relaxed) < self.caps.events {
            self.sink.tell(event);
        }
    }

    pub(crate) fn untold(&self) -> u64 {
        self.events.load(Ordering::Relaxed).saturating_sub(self.caps.events)
    }
}

impl Connection {
    /// Lets a connection in, if there is room for it.
    pub(crate) fn admit(inner: &Arc<Inner>, way: Way) -> Option<Connection> {
        let number = inner.connections.fetch_add(1, Ordering::Relaxed);
        let permit = inner.open.clone().try_acquire_owned().ok();
        let admitted = permit.is_some() && number < inner.caps.connections;
        let mut connection = Connection {
            inner: inner.clone(),
            number,
            way,
            asked: String::new(),
            began: Instant::now(),
            passed: Passed::default(),
            ended: None,
            _permit: permit,
        };
        if !admitted {
            connection.ended = Some(Ended::TooMany);
            return None;
        }
        Some(connection)
    }

    pub(crate) fn close(mut self, ended: Ended) {
        self.ended = Some(ended);
    }

    /// By when a head must be complete that begins now.
    pub(crate) fn head_deadline(&self) -> Instant {
        Instant::now() + self.inner.caps.head
    }

    /// The decision about a destination, told before anything comes of it.
    pub(crate) async fn decide(&mut self, target: &Target) -> Result<Opened, Refused> {
        self.asked = target.to_string();
        let decided = self.inner.judge.decide(target).await;
        match decided {
            Ok(opened) => {
                let addresses = opened.addresses.iter().map(|pinned| pinned.address().ip()).collect();
                self.tell(Decision::allow("egress"), Some(&opened.granted), addresses);
                Ok(opened)
            }
            Err(denied) => {
                let decision = Decision::refuse(denied.refused.rule, denied.refused.reason.clone());
                self.tell(decision, denied.granted.as_deref(), denied.addresses);
                Err(denied.refused)
            }
        }
    }

    /// A refusal that is not the judge's: of a text that names nothing, or of what a connection carries.
    pub(crate) fn refuse(&mut self, asked: &str, refused: Refused) -> Ended {
        if self.asked.is_empty() {
            self.asked = shown(asked);
        }
        self.tell(Decision::refuse(refused.rule, refused.reason), None, Vec::new());
        Ended::Refused
    }

    /// What it asked for, as far as that is known.
    pub(crate) fn asked(&self) -> &str {
        &self.asked
    }

    /// Notes what it asked for, where nothing is decided about it.
    pub(crate) fn asks(&mut self, target: &Target) {
        self.asked = target.to_string();
    }

    fn tell(&self, decision: Decision, granted: Option<&Granted>, addresses: Vec<IpAddr>) {
        let rule = granted.map(|granted| granted.destination().rule().to_string());
        let header = granted.and_then(Granted::header).map(|(name, _)| name.to_owned());
        self.inner.tell(Event::Decided(Decided {
            connection: self.number,
            way: self.way,
            asked: self.asked.clone(),
            decision,
            rule,
            addresses,
            header,
        }));
    }

    /// Connects to the first of the pinned addresses that answers.
    pub(crate) async fn dial(&self, opened: &Opened) -> Result<TcpStream, String> {
        let patience = self.inner.caps.connect;
        let mut why = String::new();
        for pinned in opened.addresses.iter().take(TRIED) {
            match tokio::time::timeout(patience, self.inner.dialer.dial(*pinned)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(e)) => why = e.kind().to_string(),
                Err(_) => why = format!("no answer within {} s", patience.as_secs()),
            }
        }
        Err(format!("`{}` is granted, but could not be reached: {why}", opened.target))
    }

    /// Counts bytes that are about to pass, and waits until they may.
    pub(crate) async fn pass(&self, direction: Direction, bytes: usize) -> Result<(), Ended> {
        if !self.inner.flow.take(direction, bytes) {
            return Err(match direction {
                Direction::Up => Ended::UpBytes,
                Direction::Down => Ended::DownBytes,
            });
        }
        self.inner.flow.pace(direction, bytes).await;
        let passed = match direction {
            Direction::Up => &self.passed.up,
            Direction::Down => &self.passed.down,
        };
        passed.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
        Ok(())
    }

    /// Bytes that have passed either way.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.passed.up.load(Ordering::Relaxed), self.passed.down.load(Ordering::Relaxed))
    }

    /// For how long nothing may pass.
    pub(crate) fn idle(&self) -> Duration {
        self.inner.caps.idle
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let (up, down) = self.bytes();
        self.inner.tell(Event::Closed {
            connection: self.number,
            way: self.way,
            asked: std::mem::take(&mut self.asked),
            up,
            down,
            lasted: self.began.elapsed(),
            ended: self.ended.take().unwrap_or(Ended::Dropped),
        });
    }
}
