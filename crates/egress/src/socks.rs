//! A client that speaks SOCKS5: CONNECT, to a name or an address of either family. Nothing else is opened.

use policy::{Host, Target};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::connection::Connection;
use crate::guest::{Guest, NoHead};
use crate::{Ended, Refused, Way, tunnel};

/// The first byte of every message.
pub(crate) const VERSION: u8 = 5;
const NO_LOGIN: u8 = 0;
const LOGIN: u8 = 2;
const NO_METHOD: u8 = 0xff;

/// Codes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Granted = 0,
    NotAllowed = 2,
    Unreachable = 4,
    NoCommand = 7,
    NoAddress = 8,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// A connection there; where that is no host, its text and why.
    Connect(Result<Target, (String, String)>),
    /// BIND, UDP, or what nobody has defined.
    Other,
    /// A kind of address that nobody has defined.
    OddAddress,
}

/// Serves one client.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send>(
    connection: &mut Connection,
    guest: &mut Guest<S>,
) -> Ended {
    connection.way = Way::Socks;
    let deadline = connection.head_deadline();
    match greet(guest, deadline).await {
        Ok(true) => {}
        Ok(false) => return Ended::Malformed("offers no way to begin that is known here".to_owned()),
        Err(gone) => return ended(gone),
    }
    let target = match wish(guest, deadline).await {
        Ok(Wish::Connect(Ok(target))) => target,
        Ok(Wish::Connect(Err((text, why)))) => {
            let ended = connection.refuse(&text, Refused::form(&why));
            return refuse(guest, Reply::NotAllowed, ended).await;
        }
        Ok(Wish::Other) => {
            let reason = "SOCKS opens connections only: no UDP, and nothing that waits for one".to_owned();
            let ended = connection.refuse("socks", Refused::new("egress-command", reason));
            return refuse(guest, Reply::NoCommand, ended).await;
        }
        Ok(Wish::OddAddress) => {
            let ended = Ended::Malformed("has a kind of address that nobody has defined".to_owned());
            return refuse(guest, Reply::NoAddress, ended).await;
        }
        Err(gone) => return ended(gone),
    };
    let opened = match connection.decide(&target).await {
        Ok(opened) => opened,
        Err(_) => return refuse(guest, Reply::NotAllowed, Ended::Refused).await,
    };
    let server = match connection.dial(&opened).await {
        Ok(server) => server,
        Err(why) => return connection.server_gone(guest, why, &reply(Reply::Unreachable)).await,
    };
    if !guest.say(&reply(Reply::Granted), connection.head_deadline()).await {
        return Ended::GuestGone;
    }
    tunnel::connected(connection, guest, &opened, server).await
}

/// The greeting. Who insists on a name and a password may say any: there is one client, and it is in the sandbox.
async fn greet<S: AsyncRead + AsyncWrite + Unpin + Send>(
    guest: &mut Guest<S>,
    deadline: Instant,
) -> Result<bool, NoHead> {
    let head = guest.exactly(2, deadline).await?;
    let offered = guest.exactly(usize::from(head[1]), deadline).await?;
    let chosen = [NO_LOGIN, LOGIN].into_iter().find(|method| offered.contains(method));
    if !guest.say(&[VERSION, chosen.unwrap_or(NO_METHOD)], deadline).await {
        return Err(NoHead::Gone);
    }
    if chosen == Some(LOGIN) {
        let name = guest.exactly(2, deadline).await?;
        if name[0] != 1 {
            return Ok(false);
        }
        let rest = guest.exactly(usize::from(name[1]) + 1, deadline).await?;
        guest.exactly(usize::from(rest.last().copied().unwrap_or(0)), deadline).await?;
        if !guest.say(&[1, 0], deadline).await {
            return Err(NoHead::Gone);
        }
    }
    Ok(chosen.is_some())
}

async fn wish<S: AsyncRead + AsyncWrite + Unpin + Send>(
    guest: &mut Guest<S>,
    deadline: Instant,
) -> Result<Wish, NoHead> {
    let mut most = 5;
    loop {
        while guest.held().len() < most {
            guest.more(most, deadline).await?;
        }
        match read(guest.held()) {
            Read::Whole(wish, bytes) => {
                guest.take(bytes);
                return Ok(wish);
            }
            Read::Needs(bytes) => most = bytes,
        }
    }
}

/// A request, as far as it is there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Whole(Wish, usize),
    /// So many bytes in all.
    Needs(usize),
}

/// Reads a request from its first five bytes on.
pub(crate) fn read(bytes: &[u8]) -> Read {
    let Some([version, command, reserved, kind, first]) = bytes.first_chunk().copied() else {
        return Read::Needs(5);
    };
    let address = match kind {
        1 => 4,
        3 => 1 + usize::from(first),
        4 => 16,
        _ => return Read::Whole(Wish::OddAddress, 5),
    };
    let whole = 4 + address + 2;
    let Some(rest) = bytes.get(4..whole) else { return Read::Needs(whole) };
    if version != VERSION || reserved != 0 || command != 1 {
        return Read::Whole(Wish::Other, whole);
    }
    let (written, port) = rest.split_at(address);
    let port = u16::from_be_bytes([port[0], port[1]]);
    let v4 = <[u8; 4]>::try_from(written).map(|octets| Host::of(octets.into()));
    let v6 = <[u8; 16]>::try_from(written).map(|octets| Host::of(octets.into()));
    let (text, host) = match (kind, v4, v6) {
        (1, Ok(host), _) => (String::new(), host),
        (4, _, Ok(host)) => ("an IPv6 address".to_owned(), host),
        _ => {
            let text = String::from_utf8_lossy(written.get(1..).unwrap_or_default()).into_owned();
            // A name here never has brackets, so an address in them is none.
            let host =
                if text.starts_with('[') { Err("has brackets".to_owned()) } else { Host::parse(&text) };
            (text, host)
        }
    };
    let target = match host {
        Ok(_) if port == 0 => Err((text, "has no port from 1 to 65535".to_owned())),
        Ok(host) => Ok(Target { host, port }),
        Err(why) => Err((text, why)),
    };
    Read::Whole(Wish::Connect(target), whole)
}

fn reply(code: Reply) -> [u8; 10] {
    [VERSION, code as u8, 0, 1, 0, 0, 0, 0, 0, 0]
}

async fn refuse<S: AsyncRead + AsyncWrite + Unpin + Send>(
    guest: &mut Guest<S>,
    code: Reply,
    ended: Ended,
) -> Ended {
    guest.farewell(&reply(code)).await;
    ended
}

fn ended(gone: NoHead) -> Ended {
    match gone {
        NoHead::Gone => Ended::GuestGone,
        NoHead::Late => Ended::Silent,
        NoHead::Long => Ended::Malformed("says more than it may".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &[u8], port: u16) -> Vec<u8> {
        let length = u8::try_from(name.len()).unwrap();
        [&[5, 1, 0, 3, length][..], name, &port.to_be_bytes()].concat()
    }

    fn wish(bytes: &[u8]) -> Wish {
        match read(bytes) {
            Read::Whole(wish, taken) => {
                assert_eq!(taken, bytes.len());
                wish
            }
            Read::Needs(n) => panic!("{n} bytes"),
        }
    }

    #[test]
    fn a_request_is_a_name_or_an_address_of_either_family() {
        let v4 = [&[5, 1, 0, 1, 203, 0, 113, 7][..], &443_u16.to_be_bytes()].concat();
        let v6 = [&[5, 1, 0, 4, 0x20, 1, 0x0d, 0xb8][..], &[0; 11], &[1], &443_u16.to_be_bytes()].concat();
        for (bytes, text) in [
            (named(b"A.example.", 443), "a.example:443"),
            (named(b"203.0.113.7", 443), "203.0.113.7:443"),
            (v4, "203.0.113.7:443"),
            (v6, "[2001:db8::1]:443"),
        ] {
            assert_eq!(wish(&bytes), Wish::Connect(Ok(Target::parse(text, None).unwrap())));
            for end in 0..bytes.len() {
                assert!(matches!(read(&bytes[..end]), Read::Needs(n) if n > end && n <= bytes.len()));
            }
        }
    }

    /// D-4: the name that is judged is the name that is connected to, or there is none.
    #[test]
    fn a_name_that_could_be_read_in_two_ways_is_none() {
        for name in
            [&b"a.example\0.b.example"[..], b"", b"0x7f.1", b"2130706433", b"[::1]", b"a b", b"\xff.example"]
        {
            assert!(matches!(wish(&named(name, 443)), Wish::Connect(Err(_))), "{name:?}");
        }
        assert!(matches!(wish(&named(b"a.example", 0)), Wish::Connect(Err(_))));
        let mapped = [&[5, 1, 0, 4][..], &[0; 10], &[255, 255, 127, 0, 0, 1, 0, 80]].concat();
        assert!(matches!(wish(&mapped), Wish::Connect(Err(_))));
    }

    #[test]
    fn whatever_is_not_connect_is_something_else() {
        for (at, byte) in [(1, 2), (1, 3), (1, 0xf0), (0, 4), (2, 1)] {
            let mut bytes = named(b"a.example", 443);
            bytes[at] = byte;
            assert_eq!(wish(&bytes), Wish::Other);
        }
        assert_eq!(read(&[5, 1, 0, 9, 9]), Read::Whole(Wish::OddAddress, 5));
    }
}
