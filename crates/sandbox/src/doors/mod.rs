//! The ways out of a sandbox that a grant opens: where they are inside, and what comes through them.
//!
//! ```text
//!   program ── name ──▶ resolver 127.0.0.1:53 ── 127.64.0.1, one address for each granted name
//!      │                                                │
//!      ├── 127.0.0.1:61080, the proxy ──┐   127.64.0.1:443, the granted port and no other
//!      │                                ▼               ▼
//!      └────────────────────────────▶ a listener of ours on loopback ──▶ Knock ──▶ who judges it (not here)
//! ```
//!
//! In the namespace tier the sockets are made inside and passed out once, before any guest code runs: the executor
//! answers and accepts on them itself. A guest on a kernel of its own has them served by init (`init/porter.rs`), which
//! carries bytes over the channel as frames (`exchange.rs`). What the resolver has no address for is told (`missed.rs`),
//! and judged elsewhere. Without a grant there is none of this.
//!
//! What conflicts with a guest's own servers: one that wants `0.0.0.0` or `[::]` with a granted port, or the port of
//! the proxy. Every other address and port is the guest's.

mod accept;
mod exchange;
mod flow;
mod layout;
mod missed;
mod names;
mod offered;
mod pass;
mod stream;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

pub(crate) use accept::Accepting;
pub(crate) use exchange::{Exchange, Writer};
pub(crate) use flow::{Held, Window, Windows, piece_of_all};
pub(crate) use layout::{Layout, Role, Socket};
pub use missed::Missed;
pub(crate) use missed::{ALL as MISSED, Misses};
pub(crate) use names::Names;
pub(crate) use offered::{Offered, Way};
pub(crate) use pass::{listen, send};
pub use stream::GuestStream;

/// Where programs that know of proxies find ours: outside the range that the kernel gives to clients.
pub(crate) const PROXY_PORT: u16 = 61080;
/// Connections that a sandbox may have at the same time.
pub(crate) const STREAMS: usize = 256;
/// What a resolver's message over UDP may be long; a question of ours is never longer.
pub(crate) const DATAGRAM: usize = 1232;
/// Connections to the resolver at the same time.
pub(crate) const ASKERS: usize = 16;

/// What a grant lets be reached, by name. Empty means that nothing is granted, and then nothing is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doors {
    /// The granted destinations. What is no name (an address) is reached by the proxy alone.
    pub names: Vec<Name>,
}

/// One granted destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// The host in lower case, without a dot at its end; with `star`, what stands behind `*.`.
    pub host: String,
    /// Whether any one label may stand before it.
    pub star: bool,
    /// The port.
    pub port: u16,
}

/// What a guest asked for by the way it came. All of it is the guest's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Whatever it will say on the stream, as to a proxy.
    Proxy,
    /// It connected to the address that this name has inside.
    Named {
        /// A granted name, or one that a star stands for.
        host: String,
        /// A port that is granted for it.
        port: u16,
    },
}

/// A connection that a guest made to one of the doors.
#[derive(Debug)]
pub struct Knock {
    /// What it asked for.
    pub way: Asked,
    /// The guest's end.
    pub stream: GuestStream,
}

/// Where knocks arrive.
pub(crate) type Knocks = mpsc::Receiver<Knock>;
/// Where what the resolver had no address for arrives. It has room for all that can ever be told.
pub(crate) type Missing = mpsc::Receiver<Missed>;

impl Doors {
    /// Whether nothing is granted.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether this destination is among them.
    pub(crate) fn grant(&self, host: &str, port: u16) -> bool {
        self.names.iter().any(|name| name.port == port && name.covers(host))
    }

    /// Whether this host is granted, whatever the port.
    pub(crate) fn name(&self, host: &str) -> bool {
        self.names.iter().any(|name| name.covers(host))
    }

    /// Whether a star stands for this host.
    pub(crate) fn stars(&self, host: &str) -> bool {
        self.names.iter().any(|name| name.star && name.covers(host))
    }

    /// What tells programs of the proxy. All by plain HTTP: some clients fail at the mere sight of another kind.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        if self.is_empty() {
            return Vec::new();
        }
        let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
        let mut all = Vec::new();
        for name in ["http_proxy", "https_proxy", "all_proxy"] {
            all.extend([(name.to_owned(), proxy.clone()), (name.to_ascii_uppercase(), proxy.clone())]);
        }
        for name in ["no_proxy", "NO_PROXY"] {
            all.push((name.to_owned(), "localhost,127.0.0.1,::1".to_owned()));
        }
        all
    }
}

impl Name {
    pub(crate) fn covers(&self, host: &str) -> bool {
        match self.star {
            true => host.split_once('.').is_some_and(|(first, rest)| !first.is_empty() && rest == self.host),
            false => host == self.host,
        }
    }
}

/// A name as a resolver may be asked for it, in the one spelling that is ever compared.
pub(crate) fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
    };
    host.len() <= 253 && host.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doors() -> Doors {
        let name = |host: &str, star, port| Name { host: host.to_owned(), star, port };
        Doors { names: vec![name("example.com", false, 443), name("example.org", true, 80)] }
    }

    #[test]
    fn a_star_stands_for_one_label_and_a_name_for_itself_each_with_its_port() {
        for (host, port, granted) in [
            ("example.com", 443, true),
            ("example.com", 80, false),
            ("a.example.com", 443, false),
            ("a.example.org", 80, true),
            ("example.org", 80, false),
            ("a.b.example.org", 80, false),
            (".example.org", 80, false),
            ("", 443, false),
        ] {
            assert_eq!(doors().grant(host, port), granted, "{host}:{port}");
        }
    }

    #[test]
    fn without_a_grant_there_are_no_variables() {
        assert_eq!(Doors::default().variables(), []);
        assert!(doors().variables().iter().any(|(name, _)| name == "HTTPS_PROXY"));
    }

    #[test]
    fn only_plain_names_are_names() {
        for good in ["a", "a.b-c_d.e9", &"a.".repeat(100)[..199]] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", ".", "a.", "A.b", "a b", "a..b", "a\0b", "[::1]", "*.a.b", &"a".repeat(64)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
