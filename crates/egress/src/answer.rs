//! What a client is told that gets no connection, in the language it spoke.

use policy::shown;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::guest::Guest;
use crate::http::BadHead;
use crate::{Ended, Refused};

/// A fatal alert `unrecognized_name`: what TLS says where no server has that name.
pub(crate) const TLS_REFUSED: &[u8] = &[21, 3, 1, 0, 2, 2, 112];
/// A fatal alert `internal_error`, where there is a grant and no server.
pub(crate) const TLS_UNREACHED: &[u8] = &[21, 3, 1, 0, 2, 2, 80];

/// A status of HTTP with one clean sentence.
pub(crate) fn http(status: &str, sentence: &str) -> Vec<u8> {
    // The sentence is clean already; it may hold a header's text nowhere, for it comes after the empty line.
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{sentence}\n",
        sentence.len() + 1
    )
    .into_bytes()
}

/// Tells a client that its request could not be read.
pub(crate) async fn malformed<S: AsyncRead + AsyncWrite + Unpin + Send>(
    guest: &mut Guest<S>,
    bad: BadHead,
) -> Ended {
    let why = shown(&bad.to_string());
    guest.farewell(&http("400 Bad Request", &format!("the request {why}"))).await;
    Ended::Malformed(why)
}

/// Tells a client why it gets nothing.
pub(crate) async fn forbidden<S: AsyncRead + AsyncWrite + Unpin + Send>(
    guest: &mut Guest<S>,
    refused: &Refused,
) -> Ended {
    guest.farewell(&http("403 Forbidden", &refused.reason)).await;
    Ended::Refused
}
