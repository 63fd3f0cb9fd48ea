//! The first message of TLS, read without taking it: which server does it name?
//!
//! Strict where a lenient reader and a strict one could see two names: one name of one kind, lengths that add up to
//! exactly what is there, no second hello behind it in its record. An encrypted hello (ECH, or its draft ESNI) names
//! nobody that can be held against a grant.

use policy::Host;

/// Bytes of records in which a hello must be complete.
pub(crate) const MOST: usize = 32 << 10;
/// What a record of TLS can hold.
const RECORD: usize = 1 << 14;

/// Why a hello is not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadHello {
    #[error("has a TLS hello that cannot be read")]
    Malformed,
    #[error("has a TLS hello that is longer than any client needs")]
    Long,
    #[error("has a TLS hello without a server name")]
    NoName,
    #[error(
        "has a TLS hello with an encrypted server name (ECH), or what looks like one; the program would have to be told \
         not to send it"
    )]
    Encrypted,
    #[error(
        "sends data before the server has answered its TLS hello; the program would have to be told not to send early \
         data (0-RTT)"
    )]
    Early,
    #[error("has a TLS hello that names no host")]
    OddName,
}

/// The name in the hello that these records begin with; none while it is not complete.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<Host>, BadHello> {
    Ok(read_whole(bytes)?.map(|(host, _)| host))
}

/// The same, with the length of its records.
pub(crate) fn read_whole(bytes: &[u8]) -> Result<Option<(Host, usize)>, BadHello> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        if let Some(length) = message_length(&message) {
            if length > MOST {
                return Err(BadHello::Long);
            }
            if message.len() > length {
                return Err(BadHello::Malformed);
            }
            if message.len() == length {
                let host = name(&message[4..])?;
                return Ok(Some((host, bytes.len() - rest.len())));
            }
        }
        let header: &[u8; 5] = match rest.first_chunk() {
            Some(header) => header,
            None if bytes.len() >= MOST => return Err(BadHello::Long),
            None if begins_like_a_hello(rest) => return Ok(None),
            None => return Err(BadHello::Malformed),
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if !begins_like_a_hello(rest) || length == 0 || length > RECORD {
            return Err(BadHello::Malformed);
        }
        let piece = rest.get(5..5 + length).unwrap_or(&rest[5..]);
        message.extend_from_slice(piece);
        // The first byte of a message is its kind.
        if message.first().is_some_and(|kind| *kind != 1) {
            return Err(BadHello::Malformed);
        }
        match rest.get(5 + length..) {
            Some(next) => rest = next,
            None if bytes.len() >= MOST || message_length(&message).is_some_and(|l| l > MOST) => {
                return Err(BadHello::Long);
            }
            None => return Ok(None),
        }
    }
}

/// A record of handshake messages, of any version that a record names.
fn begins_like_a_hello(record: &[u8]) -> bool {
    record.iter().zip([22, 3]).all(|(byte, right)| *byte == right)
        && record.get(2).is_none_or(|minor| *minor <= 4)
}

/// The length of a message, its own header included.
fn message_length(message: &[u8]) -> Option<usize> {
    let [_, a, b, c] = *message.first_chunk()?;
    usize::try_from(u32::from_be_bytes([0, a, b, c])).ok().map(|length| length + 4)
}

/// The one server name in the body of a hello.
fn name(body: &[u8]) -> Result<Host, BadHello> {
    let mut at = Cursor(body);
    at.skip(2 + 32)?;
    let session = at.short()?;
    if session.len() > 32 {
        return Err(BadHello::Malformed);
    }
    let suites = at.long()?;
    let compression = at.short()?;
    if suites.is_empty() || !suites.len().is_multiple_of(2) || compression.is_empty() {
        return Err(BadHello::Malformed);
    }
    if at.0.is_empty() {
        return Err(BadHello::NoName);
    }
    let mut extensions = Cursor(at.long()?);
    if !at.0.is_empty() {
        return Err(BadHello::Malformed);
    }
    let mut found = None;
    let mut seen = Vec::new();
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let value = extensions.long()?;
        if seen.contains(&kind) {
            return Err(BadHello::Malformed);
        }
        seen.push(kind);
        match kind {
            0 => found = Some(server_name(value)?),
            // A second hello behind early data could not be told from it.
            42 => return Err(BadHello::Early),
            0xfe0d | 0xffce => return Err(BadHello::Encrypted),
            _ => {}
        }
    }
    found.ok_or(BadHello::NoName)
}

fn server_name(value: &[u8]) -> Result<Host, BadHello> {
    let mut outer = Cursor(value);
    let mut list = Cursor(outer.long()?);
    let [0] = list.take(1)? else { return Err(BadHello::OddName) };
    let name = list.long()?;
    if !outer.0.is_empty() || !list.0.is_empty() {
        return Err(BadHello::Malformed);
    }
    let name = str::from_utf8(name).map_err(|_| BadHello::OddName)?;
    Host::parse(name).map_err(|_| BadHello::OddName)
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], BadHello> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(BadHello::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn skip(&mut self, bytes: usize) -> Result<(), BadHello> {
        self.take(bytes).map(|_| ())
    }

    fn number(&mut self) -> Result<u16, BadHello> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A piece after a length of one byte.
    fn short(&mut self) -> Result<&'a [u8], BadHello> {
        let length = self.take(1)?[0];
        self.take(usize::from(length))
    }

    /// A piece after a length of two bytes.
    fn long(&mut self) -> Result<&'a [u8], BadHello> {
        let length = self.number()?;
        self.take(usize::from(length))
    }
}

/// A hello as a client would send it, in records of at most `piece` bytes.
#[cfg(test)]
pub(crate) fn written(extensions: &[(u16, Vec<u8>)], piece: usize) -> Vec<u8> {
    let long = |bytes: &[u8]| {
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        [&length.to_be_bytes()[..], bytes].concat()
    };
    let list: Vec<u8> =
        extensions.iter().flat_map(|(kind, v)| [&kind.to_be_bytes()[..], &long(v)].concat()).collect();
    let body = [&[3, 3][..], &[7; 32], &[0], &long(&[0x13, 1]), &[1, 0], &long(&list)].concat();
    let length = u32::try_from(body.len()).unwrap_or(0).to_be_bytes();
    let message = [&[1], &length[1..], &body].concat();
    message.chunks(piece.max(1)).flat_map(|part| [&[22, 3, 1][..], &long(part)].concat()).collect()
}

/// The value of the extension that names a server.
#[cfg(test)]
pub(crate) fn sni(name: &[u8]) -> Vec<u8> {
    let short = |n: usize| u16::try_from(n).unwrap_or(u16::MAX).to_be_bytes();
    [&short(name.len() + 3)[..], &[0], &short(name.len()), name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, piece: usize) -> Vec<u8> {
        written(&[(43, vec![2, 3, 4]), (0, sni(name.as_bytes())), (16, vec![0, 3, 2, b'h', b'2'])], piece)
    }

    #[test]
    fn a_hello_names_its_server_however_it_is_cut() {
        let host = Host::parse("api.example.com").unwrap();
        for piece in [1, 7, 64, RECORD] {
            let bytes = named("API.example.com", piece);
            assert_eq!(read(&bytes), Ok(Some(host.clone())), "{piece}");
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), Ok(None), "{piece} {end}");
            }
        }
    }

    /// D-27.
    #[test]
    fn a_hello_without_one_plain_name_is_refused() {
        let one = || sni(b"a.example");
        let two = [&[0, 24][..], &one()[2..], &one()[2..]].concat();
        for (extensions, why) in [
            (vec![], BadHello::NoName),
            (vec![(43, vec![])], BadHello::NoName),
            (vec![(0, one()), (0xfe0d, vec![0])], BadHello::Encrypted),
            (vec![(0, one()), (42, vec![])], BadHello::Early),
            (vec![(0xffce, vec![0]), (0, one())], BadHello::Encrypted),
            (vec![(0, one()), (0, one())], BadHello::Malformed),
            (vec![(0, two)], BadHello::Malformed),
            (vec![(0, vec![])], BadHello::Malformed),
            (vec![(0, vec![0, 0])], BadHello::Malformed),
            (vec![(0, sni(b""))], BadHello::OddName),
            (vec![(0, sni(b"a.example\0"))], BadHello::OddName),
            (vec![(0, sni(b"a.example\0.b.example"))], BadHello::OddName),
            (vec![(0, sni(b"\xff"))], BadHello::OddName),
            (vec![(0, [&[0, 12, 1][..], &one()[3..]].concat())], BadHello::OddName),
        ] {
            assert_eq!(read(&written(&extensions, RECORD)), Err(why), "{extensions:?}");
        }
    }

    #[test]
    fn what_is_no_hello_is_told_from_one_that_is_not_complete() {
        for bytes in
            [&b"GET / HTTP/1.1"[..], b"SSH-2.0", &[22, 2, 0], &[22, 3, 1, 0, 0], &[22, 3, 1, 0, 1, 2]]
        {
            assert_eq!(read(bytes), Err(BadHello::Malformed), "{bytes:?}");
        }
        assert_eq!(read(&[22, 3, 1, 255, 255]), Err(BadHello::Malformed));
        // Lengths that only promise: a hello of 16 MiB, and one that never ends.
        assert_eq!(read(&[22, 3, 1, 0, 4, 1, 255, 255, 255]), Err(BadHello::Long));
        let endless: Vec<u8> =
            [22, 3, 1, 0, 4, 1, 0, 127, 0].into_iter().chain([22, 3, 1, 0, 1, 0].repeat(MOST / 6)).collect();
        assert_eq!(read(&endless), Err(BadHello::Long));
        let behind = [named("a.example", RECORD), named("b.example", RECORD)].concat();
        assert_eq!(
            read(&behind),
            Ok(Some(Host::parse("a.example").unwrap())),
            "the next record is not looked at"
        );
    }
}
