//! The way out: the executor's own proxy, which a guest's bytes pass where a destination was granted.
//!
//! ```text
//!  a guest's connection                    (hostile, every byte of it)
//!     │ first byte: SOCKS5, HTTP CONNECT, plain HTTP; or the name that init was asked for
//!     ▼
//!  Target ──judge──▶ granted? ──resolve──▶ every address sound? ──dial──▶ one pinned address
//!     │                                                                       ▲
//!     └ first bytes inside: a TLS hello with that very name, or an HTTP head  │ bytes, counted, bounded
//!       with that very Host; with a granted header: TLS of our own ───────────┘
//! ```
//!
//! One function decides for all ways ([`Egress::serve`], [`Egress::fetch`]): `judge.rs`. A name is read once, by
//! [`policy::Host`], and resolved once; the addresses of that one answer are judged together and are all that can be
//! dialled ([`Pinned`] has no other maker). What is decided, and how a connection ended, is told to a [`Sink`].
//!
//! This crate knows no sandbox, and trusts no byte it reads: not the guest's, not the server's, not the resolver's.
//!
//! What passes a granted name is TLS that names it, or HTTP/1 that names it. Other protocols (a server that speaks first,
//! SSH, HTTP/2 without TLS) name nothing that could be held against the grant, so they pass only where the operator wrote
//! an address. What is inside TLS is not seen: a server with that name and that address can still be asked for another
//! site that it serves.

mod answer;
mod body;
mod caps;
mod connect;
mod connection;
mod dial;
mod event;
mod exchange;
mod fetch;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod gate;
mod guest;
mod hello;
mod http;
mod inject;
mod judge;
mod missed;
mod own;
mod pool;
mod progress;
mod pump;
mod resolve;
mod socks;
mod terms;
mod tls;
mod tunnel;
mod url;

use std::sync::Arc;

use policy::Target;
use tokio::io::{AsyncRead, AsyncWrite};

pub use caps::Caps;
pub use dial::{Dial, Dialing, Direct, Pinned};
pub use event::{Decided, Ended, Event, Full, Missed, Sink, Way};
pub use fetch::{Fetched, NotFetched};
pub use judge::Refused;
pub use own::own_addresses;
pub use resolve::{Resolve, Resolving, System, Unresolved};
pub use terms::{BadSecret, Granted, Secret, Terms};
pub use tls::Roots;

use connection::{Connection, Inner};
use guest::Guest;

/// What a guest's connection asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It came to the proxy's port and says itself what it wants.
    Proxy,
    /// It came to a listener that stands for this name; what the guest's side says is judged again.
    Named {
        /// The name.
        host: String,
        /// The port.
        port: u16,
    },
}

/// The one way out of a run. Cheap to clone.
#[derive(Clone)]
pub struct Egress {
    inner: Arc<Inner>,
}

impl Egress {
    /// A way out under these terms.
    pub fn new(terms: Terms) -> Egress {
        Egress { inner: Arc::new(Inner::new(terms)) }
    }

    /// Serves one connection of the guest to its end. Events tell what came of it.
    ///
    /// Dropping the future closes both sides.
    pub async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send>(&self, asked: Asked, stream: S) {
        let way = match &asked {
            Asked::Proxy => Way::Proxy,
            Asked::Named { .. } => Way::Transparent,
        };
        let Ok(mut connection) = Connection::admit(&self.inner, way) else { return };
        let mut guest = Guest::new(stream);
        let lifetime = self.inner.caps.lifetime;
        let served = tokio::time::timeout(lifetime, serve(&mut connection, &mut guest, asked)).await;
        connection.close(served.unwrap_or(Ended::Lifetime));
    }

    /// Fetches the text at `url` for a tool, at most `most` bytes of it.
    ///
    /// # Errors
    /// One clean sentence, fit for the model.
    pub async fn fetch(&self, url: &str, most: usize) -> Result<Fetched, NotFetched> {
        fetch::fetch(&self.inner, url, most).await
    }

    /// Decides about a name that the resolver inside had no address for, and tells it. Never blocks.
    ///
    /// Each name is told once, at most 256 of them in all; the others are only counted, and then this is false.
    pub fn missed(&self, missed: &Missed) -> bool {
        self.inner.missed(missed)
    }

    /// Tells how far all connections are, where that is another word than the last one and its time has come: at most
    /// every 2 s, and later every sixtieth of the time since the first, so some 260 times in an hour and 460 in a day.
    /// To be called every now and then.
    pub fn progress(&self) {
        self.inner.progress();
    }

    /// Bytes that went out and came in so far, over all connections.
    pub fn bytes(&self) -> (u64, u64) {
        self.inner.flow.total()
    }

    /// Connections that were turned away, beyond those of which each was told.
    pub fn untold(&self) -> u64 {
        self.inner.untold()
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send>(
    connection: &mut Connection,
    guest: &mut Guest<S>,
    asked: Asked,
) -> Ended {
    match asked {
        Asked::Named { host, port } => match Target::parse(&host, Some(port)) {
            Ok(target) if target.port == port => tunnel::transparent(connection, guest, target).await,
            Ok(_) => connection.refuse(&host, Refused::form("has a port of its own")),
            Err(why) => connection.refuse(&host, Refused::form(&why)),
        },
        Asked::Proxy => match guest.first(connection.head_deadline()).await {
            Some(socks::VERSION) => socks::serve(connection, guest).await,
            Some(_) => connect::serve(connection, guest).await,
            None => Ended::Silent,
        },
    }
}
