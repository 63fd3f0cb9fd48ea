//! What passes inside: the first bytes of the guest must name the host that was granted.

use policy::{Host, Target};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::connection::Connection;
use crate::exchange::exchange;
use crate::gate::{Shut, gate};
use crate::guest::{Guest, NoHead, NoRequest};
use crate::hello::{self, BadHello};
use crate::http::{BadHead, Form, Request};
use crate::judge::{Opened, cut, told};
use crate::pump::{self, Stop};
use crate::{Ended, Refused, answer};

/// The first byte of a TLS hello.
const TLS: u8 = 22;
/// A method is not longer, and is of capital letters.
const METHOD: usize = 16;
/// What stands where a request's version stands, to be taken for HTTP at all.
const VERSIONS: [&[u8]; 2] = [b" HTTP/1.1", b" HTTP/1.0"];

/// What the guest began with, and was found to name the granted host.
enum Speech {
    /// Still with the guest, to the byte.
    Tls,
    /// Taken from it.
    Http(Box<Request>),
}

/// Why what the guest began with goes nowhere.
enum Mute {
    Ended(Ended),
    Tls(Refused),
    Http(Refused),
    Malformed(BadHead),
    Other(Refused),
}

/// A program that knows of no proxy: it is listened to first, so that nothing leaves for one that names another host.
pub(crate) async fn transparent<S: AsyncRead + AsyncWrite + Unpin + Send>(
    connection: &mut Connection,
    guest: &mut Guest<S>,
    target: Target,
) -> Ended {
    let granted = connection.inner.judge.granted(&target).is_ok();
    if !granted || target.host.address().is_some() {
        return match open(connection, &target).await {
            Ok((opened, server)) => connected(connection, guest, &opened, server).await,
            Err((ended, _)) => ended,
        };
    }
    let speech = match listen(connection, guest, &target).await {
        Ok(speech) => speech,
        Err(mute) => return refuse(connection, guest, &target, mute).await,
    };
    match open(connection, &target).await {
        Ok((opened, server)) => speak(connection, guest, speech, &opened, server).await,
        Err((ended, why)) => {
            let answer = match (&speech, &ended) {
                (Speech::Tls, Ended::Refused) => answer::TLS_REFUSED.to_vec(),
                (Speech::Tls, _) => answer::TLS_UNREACHED.to_vec(),
                (Speech::Http(_), Ended::Refused) => answer::http("403 Forbidden", &why),
                (Speech::Http(_), _) => answer::http("502 Bad Gateway", &why),
            };
            connection.ends(ended.clone());
            guest.farewell(&answer).await;
            ended
        }
    }
}

/// Decides and connects; with what ended it, the sentence.
async fn open(connection: &mut Connection, target: &Target) -> Result<(Opened, TcpStream), (Ended, String)> {
    let opened = connection.decide(target).await.map_err(|refused| (Ended::Refused, refused.reason))?;
    let server = connection.dial(&opened).await.map_err(|why| (Ended::ServerGone(why.clone()), why))?;
    Ok((opened, server))
}

/// A client of a proxy that was told that it is connected.
pub(crate) async fn connected<S: AsyncRead + AsyncWrite + Unpin + Send>(
    connection: &mut Connection,
    guest: &mut Guest<S>,
    opened: &Opened,
    server: TcpStream,
) -> Ended {
    // The operator wrote an address: there is no name that anything could be held against.
    if opened.target.host.address().is_some() {
        return pumped(connection, guest, server, None).await;
    }
    match listen(connection, guest, &opened.target).await {
        Ok(speech) => speak(connection, guest, speech, opened, server).await,
        Err(mute) => refuse(connection, guest, &opened.target, mute).await,
    }
}

async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send>(
    connection: &mut Connection,
    guest: &mut Guest<S>,
    speech: Speech,
    opened: &Opened,
    server: TcpStream,
) -> Ended {
    match speech {
        Speech::Http(request) => exchange(connection, guest, *request, opened, server).await,
        Speech::Tls => pumped(connection, guest, server, Some(&opened.target.host)).await,
    }
}

async fn pumped<S: AsyncRead + AsyncWrite + Unpin + Send>(
    connection: &mut Connection,
    guest: &mut Guest<S>,
    server: TcpStream,
    named: Option<&Host>,
) -> Ended {
    let gate = named.map(|host| gate(host.clone()));
    match pump::both(connection, guest, server, gate).await {
        Ok(()) => Ended::Done,
        Err(Stop::Ended(Ended::ServerGone(why))) => {
            // What the guest still sends must not destroy what the server had said, on its last way.
            connection.server_gone(guest, why, b"").await
        }
        Err(Stop::Ended(ended)) => ended,
        Err(Stop::Shut(shut)) => {
            let asked = connection.asked().to_owned();
            let why = match shut {
                Shut::Hello(bad) => bad.to_string(),
                Shut::Renamed => "has a second TLS hello that names another host".to_owned(),
                Shut::Record => "has a TLS record that no client sends there".to_owned(),
            };
            let ended = connection.refuse("", Refused::carried(&asked, &why).under("egress-tls-name"));
            guest.farewell(answer::TLS_REFUSED).await;
            ended
        }
    }
}

/// Waits for the first bytes, and holds them against the target.
async fn listen<S: AsyncRead + AsyncWrite + Unpin + Send>(
    connection: &Connection,
    guest: &mut Guest<S>,
    target: &Target,
) -> Result<Speech, Mute> {
    let other = || {
        let reason = format!(
            "`{}` is granted by name, so only TLS or HTTP/1 that names it passes; for another protocol the \
             server's address itself would have to stand in `network.allow`, and the program use the proxy",
            told(target)
        );
        Mute::Other(Refused::new("egress-protocol", reason))
    };
    let deadline = connection.head_deadline();
    match guest.first(deadline).await {
        Some(TLS) => loop {
            let named = hello::read(guest.held()).map_err(|bad| Mute::Tls(bad_hello(target, bad)))?;
            match named {
                Some(host) if host == target.host => return Ok(Speech::Tls),
                Some(host) => {
                    let host = cut(&host.to_string());
                    let reason =
                        format!("the TLS hello names `{host}`, but the connection is to `{}`", told(target));
                    return Err(Mute::Tls(Refused::new("egress-tls-name", reason)));
                }
                None => match guest.more(hello::MOST, deadline).await {
                    Ok(()) => {}
                    Err(NoHead::Long) => return Err(Mute::Tls(bad_hello(target, BadHello::Long))),
                    Err(NoHead::Gone) => return Err(Mute::Ended(Ended::GuestGone)),
                    Err(NoHead::Late) => return Err(Mute::Ended(Ended::Silent)),
                },
            }
        },
        Some(_) => {
            while is_http(guest.held()).is_none() {
                match guest.more(crate::http::MOST_REQUEST, deadline).await {
                    Ok(()) => {}
                    Err(NoHead::Gone | NoHead::Late) => break,
                    Err(NoHead::Long) => return Err(Mute::Malformed(BadHead::Long)),
                }
            }
            if is_http(guest.held()) != Some(true) {
                return Err(other());
            }
            let request = guest.request(connection.head_deadline()).await.map_err(|no| match no {
                NoRequest::Bad(bad) => Mute::Malformed(bad),
                NoRequest::Head(NoHead::Long) => Mute::Malformed(BadHead::Long),
                NoRequest::Head(NoHead::Gone) => Mute::Ended(Ended::GuestGone),
                NoRequest::Head(NoHead::Late) => Mute::Ended(Ended::Silent),
            })?;
            let same_port = request.host.port.is_none_or(|port| port == target.port);
            if request.form == Form::Authority {
                return Err(Mute::Malformed(BadHead::Method));
            }
            if request.host.host != target.host || !same_port {
                let named = &request.host;
                let host = cut(&named.host.to_string());
                let named = named.port.map_or(host.clone(), |port| format!("{host}:{port}"));
                let reason =
                    format!("the request names `{named}`, but the connection is to `{}`", told(target));
                return Err(Mute::Http(Refused::new("egress-http-host", reason)));
            }
            Ok(Speech::Http(Box::new(request)))
        }
        // Gone without a word is nobody's fault; silent until the end waits for a server that speaks first.
        None if tokio::time::Instant::now() >= deadline => Err(other()),
        None => Err(Mute::Ended(Ended::Done)),
    }
}

/// Whether these bytes begin a request of HTTP/1; none while that is not to be told.
fn is_http(bytes: &[u8]) -> Option<bool> {
    let method = bytes.iter().take_while(|b| b.is_ascii_uppercase()).count();
    match bytes.get(method) {
        None if method <= METHOD => return None,
        Some(b' ') if (1..=METHOD).contains(&method) => {}
        None | Some(_) => return Some(false),
    }
    let line = bytes.iter().position(|b| *b == b'\n')?;
    let line = bytes[..line].strip_suffix(b"\r").unwrap_or(&bytes[..line]);
    Some(VERSIONS.iter().any(|version| line.ends_with(version)))
}

fn bad_hello(target: &Target, bad: BadHello) -> Refused {
    Refused::carried(&told(target), &bad.to_string()).under("egress-tls-name")
}

async fn refuse<S: AsyncRead + AsyncWrite + Unpin + Send>(
    connection: &mut Connection,
    guest: &mut Guest<S>,
    target: &Target,
    mute: Mute,
) -> Ended {
    let asked = target.to_string();
    match mute {
        Mute::Ended(ended) => {
            connection.asks(target);
            ended
        }
        Mute::Tls(refused) => {
            let ended = connection.refuse(&asked, refused);
            guest.farewell(answer::TLS_REFUSED).await;
            ended
        }
        Mute::Http(refused) => {
            let ended = connection.refuse(&asked, refused.clone());
            answer::forbidden(guest, &refused).await;
            ended
        }
        Mute::Malformed(bad) => {
            connection.asks(target);
            answer::malformed(guest, bad).await
        }
        Mute::Other(refused) => {
            let ended = connection.refuse(&asked, refused);
            guest.farewell(b"").await;
            ended
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_known_by_its_first_line() {
        for (bytes, is) in [
            (&b""[..], None),
            (b"GE", None),
            (b"GET ", None),
            (b"GET / HTTP/1.1", None),
            (b"GET / HTTP/1.1\r\n", Some(true)),
            (b"POST /x HTTP/1.0\r\nHost", Some(true)),
            (b"SSH-2.0-x\r\n", Some(false)),
            (b"EHLO a\r\n", Some(false)),
            (b"PRI * HTTP/2.0\r\n", Some(false)),
            (b"*1\r\n", Some(false)),
            (b"\0", Some(false)),
            (b" GET", Some(false)),
            (b"ABCDEFGHIJKLMNOPQR", Some(false)),
        ] {
            assert_eq!(is_http(bytes), is, "{bytes:?}");
        }
    }
}
