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

/// The executor itself, or its machine, has no descriptor left (`EMFILE`, `ENFILE`).
const FULL: [i32; 2] = [24, 23];

/// Why a connection came to nothing, in words of ours or of this system.
pub(crate) fn why(e: &io::Error) -> String {
    if e.raw_os_error().is_some_and(|number| FULL.contains(&number)) {
        return "the executor has no descriptor left; its limit of open files (`ulimit -n`) would have to be raised"
            .to_owned();
    }
    let kind = e.kind().to_string();
    if kind != "uncategorized error" {
        return kind;
    }
    // The system has words where the library has none; its number says nothing more.
    e.to_string().split(" (os error").next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_connection_came_to_nothing_is_told_in_words() {
        let told = |number| why(&io::Error::from_raw_os_error(number));
        assert!(told(24).starts_with("the executor has no descriptor left;"), "{}", told(24));
        assert_eq!((told(23), told(111).as_str()), (told(24), "connection refused"));
        // ENOBUFS, which the library has no word for.
        assert_eq!(told(105), "no buffer space available");
    }

    /// R47: even an address that the list of own addresses lacked.
    #[tokio::test]
    async fn r47_a_connection_to_this_host_itself_is_given_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = Pinned::judged(listener.local_addr().unwrap());
        assert_eq!(Direct.dial(to).await.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
