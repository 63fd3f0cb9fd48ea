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
    /// How far it is, of all connections since the way out was opened; see [`crate::Egress::progress`].
    Progress {
        /// Connections that are there now.
        open: u64,
        /// Connections that were let in, those that are over among them.
        connections: u64,
        /// Bytes of guest and tools that went out.
        up: u64,
        /// Bytes that came back for them.
        down: u64,
        /// Questions to the resolver inside of which none was told, as [`Event::Unanswered`] has them at the end.
        unanswered: u64,
    },
    /// At the end: connections that were turned away unasked because there were too many, beyond those of which each was
    /// told.
    TurnedAway {
        /// How many.
        connections: u64,
    },
    /// At the end: questions to the resolver inside that came to nothing, beyond those of which each was told.
    Unanswered {
        /// How many, at the least.
        questions: u64,
    },
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decided {
    /// The number of the connection; none where it did not come to one, as with a name that does not exist inside.
    pub connection: Option<u64>,
    /// How it came.
    pub way: Way,
    /// What was asked for, cleaned.
    pub asked: String,
    /// Allowed or refused, by which check, and what would be needed.
    pub decision: Decision,
    /// The granted rule that names what was asked for.
    pub rule: Option<String>,
    /// The addresses that were judged; of a refused answer of too many, some.
    pub addresses: Vec<IpAddr>,
    /// How many more of them there were.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_addresses: usize,
    /// The name of the header that the executor adds.
    pub header: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Event {
    /// Bytes that it takes in a record, at the most; numbers and words of ours are taken for as long as they may be.
    pub(crate) fn bytes(&self) -> u64 {
        /// What is no text of others.
        const OURS: usize = 280;
        /// An address in quotes, with its comma.
        const ADDRESS: usize = 48;
        let others = match self {
            Event::Decided(decided) => {
                let Decided {
                    connection: _,
                    way: _,
                    asked,
                    decision,
                    rule,
                    addresses,
                    more_addresses: _,
                    header,
                } = decided;
                let texts = [Some(asked), Some(&decision.reason), rule.as_ref(), header.as_ref()];
                let texts = texts.into_iter().flatten().map(|text| written(text));
                texts.fold(addresses.len().saturating_mul(ADDRESS), usize::saturating_add)
            }
            Event::Closed { asked, ended, .. } => {
                let why = match ended {
                    Ended::Malformed(why) | Ended::ServerGone(why) => written(why),
                    Ended::Done
                    | Ended::Refused
                    | Ended::Silent
                    | Ended::GuestGone
                    | Ended::Idle
                    | Ended::Lifetime
                    | Ended::UpBytes
                    | Ended::DownBytes
                    | Ended::TooMany(_)
                    | Ended::Dropped => 0,
                };
                written(asked).saturating_add(why)
            }
            Event::Progress { .. } | Event::TurnedAway { .. } | Event::Unanswered { .. } => 0,
        };
        u64::try_from(others.saturating_add(OURS)).unwrap_or(u64::MAX)
    }
}

/// Bytes of a text in a record.
fn written(text: &str) -> usize {
    let byte = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(byte).fold(0, usize::saturating_add)
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
    /// A question to the resolver inside, and no more than that.
    Name,
    /// A tool of the executor.
    Fetch,
}

/// What the resolver inside was asked for, and had no address for. The host is the guest's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missed {
    /// A name that it does not know.
    Unknown {
        /// The name.
        host: String,
    },
    /// A name beneath a star, when all addresses of such names had been taken.
    Full {
        /// The name.
        host: String,
    },
    /// What can be no name of a host.
    Odd,
    /// More of these, of which no one is named: so many in all, at the least.
    More {
        /// How many.
        questions: u64,
    },
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
    /// There is no room for one more.
    TooMany(#[serde(skip)] Full),
    /// The executor gave it up.
    Dropped,
}

/// What is full where one more connection is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// As many are open as may be.
    Open,
    /// The run has had as many as it may.
    Connections,
    /// What it may come to has no room in the record.
    Record,
}

impl Ended {
    /// The bound that struck, where it was one: goes on from what it did to the connection, and names the key that would
    /// have to be raised, where there is one.
    pub fn bound(&self) -> Option<&'static str> {
        match self {
            Ended::Idle => Some("nothing passed for as long as `network.idle` allows"),
            Ended::Lifetime => Some("it had lasted for as long as `network.lifetime` allows"),
            Ended::UpBytes => Some("the run has sent as much as `network.up` allows"),
            Ended::DownBytes => Some("the run has received as much as `network.down` allows"),
            Ended::TooMany(Full::Open) => Some("as many were open as `network.open` allows at the same time"),
            Ended::TooMany(Full::Connections) => {
                Some("the run has had as many as `network.connections` allows")
            }
            Ended::TooMany(Full::Record) => Some(
                "the record of the run has no room for what it would come to; no key of `network` makes that more",
            ),
            Ended::Done
            | Ended::Refused
            | Ended::Malformed(_)
            | Ended::Silent
            | Ended::GuestGone
            | Ended::ServerGone(_)
            | Ended::Dropped => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_event_takes_more_bytes_than_are_counted() {
        let decided = |addresses: Vec<IpAddr>| {
            Event::Decided(Decided {
                connection: Some(u64::MAX),
                way: Way::Transparent,
                asked: "\"\\\u{1}".repeat(50),
                decision: Decision::refuse("egress-address", "\"x".repeat(200)),
                rule: Some("*.example.org:443".to_owned()),
                more_addresses: usize::MAX,
                addresses,
                header: Some("authorization".to_owned()),
            })
        };
        let closed = Event::Closed {
            connection: u64::MAX,
            way: Way::Transparent,
            asked: "x".repeat(260),
            up: u64::MAX,
            down: u64::MAX,
            lasted_ms: u64::MAX,
            ended: Ended::Malformed("\n".repeat(100)),
        };
        let turned_away = Ended::TooMany(Full::Open);
        assert_eq!(serde_json::to_string(&turned_away).unwrap(), "\"too-many\"");
        let longest: IpAddr = "1111:2222:3333:4444:5555:6666:7777:8888".parse().unwrap();
        for event in [decided(Vec::new()), decided(vec![longest; 32]), closed] {
            let line = serde_json::to_string(&event).unwrap();
            assert!(u64::try_from(line.len()).unwrap() <= event.bytes(), "{line}");
        }
    }
}
