//! Connections to addresses that were judged, and to no others.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use tokio::net::TcpStream;

/// An address that was judged. Only the judgement makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pinned(SocketAddr);

/// A connection on its way.
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// Makes connections. Tests put servers of their own behind addresses that they do not have.
pub trait Dial: Send + Sync {
    /// Connects.
    fn dial(&self, to: Pinned) -> Dialing;
}

/// The real one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Direct;

impl Pinned {
    pub(crate) fn judged(address: SocketAddr) -> Pinned {
        Pinned(address)
    }

    /// The address.
    pub fn address(self) -> SocketAddr {
        self.0
    }
}

impl Dial for Direct {
    fn dial(&self, to: Pinned) -> Dialing {
        Box::pin(async move {
            let stream = TcpStream::connect(to.0).await?;
            // Who talks to itself has reached this very host, by an address that nobody knew it has.
            if stream.local_addr()?.ip().to_canonical() == stream.peer_addr()?.ip().to_canonical() {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "is this host itself"));
            }
            stream.set_nodelay(true)?;
            Ok(stream)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R47: even an address that the list of own addresses lacked.
    #[tokio::test]
    async fn r47_a_connection_to_this_host_itself_is_given_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = Pinned::judged(listener.local_addr().unwrap());
        assert_eq!(Direct.dial(to).await.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
