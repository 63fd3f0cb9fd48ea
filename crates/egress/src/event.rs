//! What is told about the way out: a closed list.

use std::net::IpAddr;

use policy::Decision;
use serde::Serialize;

/// Takes events. Called from within connections: it must not block.
pub trait Sink: Send + Sync {
    /// Takes one, and says whether it is written down. What could not be is not done.
    fn tell(&self, event: Event) -> bool;
}

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Something was decided. A connection may have several: of its destination, then of what it carries there.
    Decided(Decided),
    /// A connection is over.
    Closed {
        /// Its number.
        connection: u64,
        /// How it came.
        way: Way,
        /// What it asked for, cleaned.
        asked: String,
        /// Bytes of the guest that went out.
        up: u64,
        /// Bytes that came back for the guest.
        down: u64,
        /// How long it was there, in milliseconds.
        lasted_ms: u64,
        /// Why it ended.
        ended: Ended,
    },
    /// At the end: connections that were turned away unasked because there were too many, beyond those of which each was
    /// told.
    TurnedAway {
        /// How many.
        connections: u64,
    },
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decided {
    /// The number of the connection.
    pub connection: u64,
    /// How it came.
    pub way: Way,
    /// What was asked for, cleaned.
    pub asked: String,
    /// Allowed or refused, by which check, and what would be needed.
    pub decision: Decision,
    /// The granted rule that names what was asked for.
    pub rule: Option<String>,
    /// The addresses that were judged.
    pub addresses: Vec<IpAddr>,
    /// The name of the header that the executor adds.
    pub header: Option<String>,
}

/// How a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// To the proxy's port, and did not get as far as to say what it wants.
    Proxy,
    /// HTTP CONNECT.
    Connect,
    /// Plain HTTP to a proxy.
    Http,
    /// SOCKS5.
    Socks,
    /// By name, to a program that knows of no proxy.
    Transparent,
    /// A tool of the executor.
    Fetch,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Both sides had said all.
    Done,
    /// It was refused; a decision says why.
    Refused,
    /// What it said could not be read.
    Malformed(String),
    /// The guest did not say what it wants, or not in time.
    Silent,
    /// The guest's side broke off.
    GuestGone,
    /// The server could not be reached, or broke off.
    ServerGone(String),
    /// Nothing passed for too long.
    Idle,
    /// It was there for too long.
    Lifetime,
    /// The run has sent as much as it may.
    UpBytes,
    /// The run has received as much as it may.
    DownBytes,
    /// The run has, or had, as many connections as it may.
    TooMany,
    /// The executor gave it up.
    Dropped,
}
