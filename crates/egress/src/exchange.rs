//! One request and its answer. Then the connection is over: the next request is judged anew.

use policy::{Host, HostName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::body::Framing;
use crate::caps::Direction;
use crate::connection::Connection;
use crate::guest::Guest;
use crate::http::{self, Request, Response};
use crate::inject::{self, Blot};
use crate::judge::{Opened, cut, told};
use crate::pump::{self, Buffer, Pulse, waste};
use crate::{Ended, Refused, answer};

/// Heads before the one that counts.
const INTERIM: usize = 8;

/// Why an exchange came to no answer, or to half of one.
enum Failed {
    /// Before anything went to the guest: it can still be told.
    Early(String),
    Ended(Ended),
}

/// Why there is no head.
pub(crate) enum NoAnswer {
    /// In words that go on from nothing.
    Said(String),
    /// A bound struck.
    Ended(Ended),
}

/// Sends the request on and the answer back: over TLS of our own where a header is added.
pub(crate) async fn exchange<S: AsyncRead + AsyncWrite + Unpin + Send>(
    connection: &mut Connection,
    guest: &mut Guest<S>,
    request: Request,
    opened: &Opened,
    server: TcpStream,
) -> Ended {
    if opened.granted.header().is_some() && inject::echoes(&request.method) {
        let reason = format!(
            "`{}` gets a header of the executor's, so a request that asks to be sent back is not passed on",
            told(&opened.target)
        );
        let refused = Refused::new("egress-method", reason);
        let ended = connection.refuse("", refused.clone());
        answer::forbidden(guest, &refused).await;
        return ended;
    }
    let done = match (opened.granted.header(), &opened.target.host) {
        (None, _) => {
            let head = request.written(&opened.target, 80, None);
            carry(connection, guest, request, head, server, None).await
        }
        // Boxed: what TLS takes is not room that every connection needs.
        (Some(_), Host::Name(host)) => {
            Box::pin(secured(connection, guest, request, opened, host, server)).await
        }
        (Some(_), Host::V4(_) | Host::V6(_)) => Err(Failed::Early("a header needs a name".to_owned())),
    };
    match done {
        Ok(()) => {
            let ended = connection.ends(Ended::Done);
            guest.farewell(b"").await;
            ended
        }
        Err(Failed::Ended(ended)) => ended,
        Err(Failed::Early(why)) => {
            let word = answer::http("502 Bad Gateway", &why);
            connection.server_gone(guest, why, &word).await
        }
    }
}

/// Over TLS of our own, with the header of the grant.
async fn secured<S: AsyncRead + AsyncWrite + Unpin + Send>(
    connection: &Connection,
    guest: &mut Guest<S>,
    request: Request,
    opened: &Opened,
    host: &HostName,
    server: TcpStream,
) -> Result<(), Failed> {
    let connecting = connection.inner.tls.connect(host, server);
    let server = match tokio::time::timeout(connection.inner.caps.connect, connecting).await {
        Ok(Ok(server)) => server,
        Ok(Err(why)) => return Err(Failed::Early(why)),
        Err(_) => return Err(Failed::Early(format!("`{}` does not answer in TLS", cut(host.as_str())))),
    };
    let header = opened.granted.header();
    let head = request.written(&opened.target, 443, header.map(|(name, secret)| (name, secret.value())));
    let blot = header.map(|(_, secret)| Blot::new(secret));
    carry(connection, guest, request, head, server, blot).await
}

async fn carry<S, T>(
    connection: &Connection,
    guest: &mut Guest<S>,
    request: Request,
    head: Vec<u8>,
    server: T,
    blot: Option<Blot>,
) -> Result<(), Failed>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let pulse = Pulse::new();
    let method = request.method.clone();
    let (mut from_guest, mut to_guest) = tokio::io::split(guest);
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let up = up(connection, request, head, &mut from_guest, &mut to_server, &pulse);
    let down = down(connection, &method, blot, &mut from_server, &mut to_guest, &pulse);
    tokio::pin!(up, down);
    let mut sent = false;
    loop {
        tokio::select! {
            // An answer is an answer, also one that did not wait for all of the request.
            done = &mut down => return done,
            up = &mut up, if !sent => {
                up?;
                sent = true;
            }
            () = pulse.stops(connection.idle()) => return Err(Failed::Ended(Ended::Idle)),
        }
    }
}

async fn up<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    connection: &Connection,
    mut request: Request,
    head: Vec<u8>,
    from: &mut R,
    to: &mut W,
    pulse: &Pulse,
) -> Result<(), Failed> {
    if !send(connection, &head, to, pulse).await? {
        match waste(&connection.inner.pool, from).await {}
    }
    let mut buffer = Buffer::new(&connection.inner.pool);
    while !request.body.is_done() {
        let read = buffer.fill(from).await.map_err(|_| Failed::Ended(Ended::GuestGone))?;
        if read.is_empty() {
            return Err(Failed::Ended(Ended::GuestGone));
        }
        let taken = request.body.take(read, None);
        let taken = taken.map_err(|bad| Failed::Ended(Ended::Malformed(bad.to_string())))?;
        if !send(connection, &read[..taken], to, pulse).await? {
            match waste(&connection.inner.pool, from).await {}
        }
    }
    Ok(())
}

/// False where the server takes no more. It may still answer: that is waited for.
async fn send<W: AsyncWrite + Unpin>(
    connection: &Connection,
    bytes: &[u8],
    to: &mut W,
    pulse: &Pulse,
) -> Result<bool, Failed> {
    connection.take(Direction::Up, bytes.len()).map_err(Failed::Ended)?;
    let sent = async {
        pump::say(connection, Direction::Up, bytes, to, pulse).await?;
        to.flush().await
    };
    if sent.await.is_err() {
        return Ok(false);
    }
    pulse.beat();
    Ok(true)
}

async fn down<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    connection: &Connection,
    method: &str,
    mut blot: Option<Blot>,
    from: &mut R,
    to: &mut W,
    pulse: &Pulse,
) -> Result<(), Failed> {
    let mut held = Vec::new();
    let mut response = None;
    for nth in 0..=INTERIM {
        let read = response_head(connection, &mut held, from, method).await;
        let read = read.map_err(|no| match no {
            NoAnswer::Ended(ended) => Failed::Ended(ended),
            NoAnswer::Said(why) if nth == 0 => Failed::Early(why),
            NoAnswer::Said(why) => broken(why),
        })?;
        pulse.beat();
        let mut head = read.written();
        if let Some(blot) = &mut blot {
            if !read.is_plain_and_whole() {
                let why = "the answer is packed or only a piece, so the header's value could hide in it";
                return Err(if nth == 0 { Failed::Early(why.to_owned()) } else { broken(why.to_owned()) });
            }
            head = blot.all(&head);
        }
        give(connection, &head, to, pulse).await?;
        if !read.is_interim() {
            response = Some(read);
            break;
        }
    }
    let Some(mut response) = response else { return Err(broken("the answer never begins".to_owned())) };
    let chunked = response.is_chunked();
    let mut buffer = Buffer::new(&connection.inner.pool);
    let mut first = std::mem::take(&mut held);
    while !response.body.is_done() {
        let read = if first.is_empty() {
            let read = buffer.fill(from).await.map_err(|e| broken(e.kind().to_string()))?;
            connection.take(Direction::Down, read.len()).map_err(Failed::Ended)?;
            read
        } else {
            &first[..]
        };
        if read.is_empty() {
            if response.body != Framing::UntilEnd {
                return Err(broken("the answer ended before its end".to_owned()));
            }
            break;
        }
        match &mut blot {
            // What the body carries is looked at, not how the server cut it, and it is cut anew.
            Some(blot) => {
                let mut payload = Vec::new();
                let taken = response.body.take(read, Some(&mut payload));
                taken.map_err(|bad| broken(bad.to_string()))?;
                give(connection, &piece(chunked, blot.pass(&payload)), to, pulse).await?;
            }
            None => {
                let taken = response.body.take(read, None).map_err(|bad| broken(bad.to_string()))?;
                give(connection, &read[..taken], to, pulse).await?;
            }
        }
        first = Vec::new();
    }
    if let Some(blot) = &mut blot {
        let mut rest = piece(chunked, blot.rest());
        if chunked {
            rest.extend_from_slice(b"0\r\n\r\n");
        }
        give(connection, &rest, to, pulse).await?;
    }
    Ok(())
}

/// A piece of a body as it is sent: a chunk of its own, where the body is in chunks.
fn piece(chunked: bool, bytes: Vec<u8>) -> Vec<u8> {
    if !chunked || bytes.is_empty() {
        return bytes;
    }
    [format!("{:x}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat()
}

fn broken(why: String) -> Failed {
    Failed::Ended(Ended::ServerGone(why))
}

/// Gives on what was counted when it came.
async fn give<W: AsyncWrite + Unpin>(
    connection: &Connection,
    bytes: &[u8],
    to: &mut W,
    pulse: &Pulse,
) -> Result<(), Failed> {
    let said = pump::say(connection, Direction::Down, bytes, to, pulse).await;
    said.map_err(|_| Failed::Ended(Ended::GuestGone))
}

/// The next head of the server's; what follows it stays in `held`. All that is read is counted.
pub(crate) async fn response_head<R: AsyncRead + Unpin>(
    connection: &Connection,
    held: &mut Vec<u8>,
    from: &mut R,
    method: &str,
) -> Result<Response, NoAnswer> {
    let bad = |bad: http::BadHead| NoAnswer::Said(format!("the answer {bad}"));
    let (mut seen, mut piece) = (0, vec![0; 4 << 10]);
    loop {
        let end = http::head_end(held, seen, http::MOST_RESPONSE).map_err(bad)?;
        if let Some(end) = end {
            let rest = held.split_off(end);
            let head = std::mem::replace(held, rest);
            return Response::read(&head, method).map_err(bad);
        }
        seen = held.len();
        let read = from.read(&mut piece).await;
        let read = read.map_err(|e| NoAnswer::Said(format!("the server broke off: {}", e.kind())))?;
        if read == 0 {
            return Err(NoAnswer::Said("the server ended the connection without an answer".to_owned()));
        }
        connection.take(Direction::Down, read).map_err(NoAnswer::Ended)?;
        held.extend_from_slice(&piece[..read]);
    }
}
