//! Where a message of HTTP/1 ends. What follows the end is never passed on.

/// Bytes of what follows the last chunk, and of what may stand behind the size of one.
const MOST_EXTRA: usize = 8 << 10;

/// How a body ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After so many bytes.
    Length(u64),
    /// After its last chunk.
    Chunked(Chunks),
    /// With the stream.
    UntilEnd,
}

/// A body that is not what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has a body in chunks that cannot be read")]
pub(crate) struct BadChunks;

/// Chunks, read so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunks {
    state: State,
    /// Whether something may stand behind a chunk's size and behind the last one: servers do that, no client needs it,
    /// and what stands there is a head that nobody has judged.
    extras: bool,
    extra: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size {
        value: u64,
        digits: u8,
    },
    Extension(u64),
    SizeEnd(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// At the start of a line after the last chunk.
    Trailer,
    TrailerLine,
    TrailerLf,
    LastLf,
    Done,
}

impl Framing {
    /// Chunks, with extensions and trailers or without.
    pub(crate) fn chunked(extras: bool) -> Framing {
        Framing::Chunked(Chunks { state: State::Size { value: 0, digits: 0 }, extras, extra: 0 })
    }

    /// Whether all is there.
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Framing::Length(left) => *left == 0,
            Framing::Chunked(chunks) => chunks.state == State::Done,
            Framing::UntilEnd => false,
        }
    }

    /// How many of these bytes belong to the body; what they carry goes to `payload`.
    pub(crate) fn take(&mut self, bytes: &[u8], payload: Option<&mut Vec<u8>>) -> Result<usize, BadChunks> {
        match self {
            Framing::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= u64::try_from(taken).unwrap_or(0);
                payload.into_iter().for_each(|payload| payload.extend_from_slice(&bytes[..taken]));
                Ok(taken)
            }
            Framing::Chunked(chunks) => chunks.take(bytes, payload),
            Framing::UntilEnd => {
                payload.into_iter().for_each(|payload| payload.extend_from_slice(bytes));
                Ok(bytes.len())
            }
        }
    }
}

impl Chunks {
    fn take(&mut self, bytes: &[u8], mut payload: Option<&mut Vec<u8>>) -> Result<usize, BadChunks> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            if let State::Data(left) = self.state {
                let rest = &bytes[at..];
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                if let Some(payload) = payload.as_deref_mut() {
                    payload.extend_from_slice(&rest[..taken]);
                }
                at += taken;
                let left = left - u64::try_from(taken).unwrap_or(0);
                self.state = if left == 0 { State::DataCr } else { State::Data(left) };
            } else {
                self.state = self.next(bytes[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    fn next(&mut self, byte: u8) -> Result<State, BadChunks> {
        let state = match (self.state, byte) {
            (State::Size { value, digits }, _) if byte.is_ascii_hexdigit() && digits < 15 => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                State::Size { value: value * 16 + u64::from(digit), digits: digits + 1 }
            }
            (State::Size { value, digits: 1.. }, b'\r') => State::SizeEnd(value),
            (State::Size { value, digits: 1.. }, b';' | b' ') if self.extras => State::Extension(value),
            (State::Extension(value), b'\r') => State::SizeEnd(value),
            (State::Extension(value), _) if is_text(byte) => {
                self.extra += 1;
                State::Extension(value)
            }
            (State::SizeEnd(0), b'\n') => State::Trailer,
            (State::SizeEnd(size), b'\n') => State::Data(size),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size { value: 0, digits: 0 },
            (State::Trailer, b'\r') => State::LastLf,
            (State::LastLf, b'\n') => State::Done,
            (State::TrailerLine, b'\r') => State::TrailerLf,
            (State::TrailerLf, b'\n') => State::Trailer,
            (State::Trailer | State::TrailerLine, _) if self.extras && is_text(byte) => {
                self.extra += 1;
                State::TrailerLine
            }
            _ => return Err(BadChunks),
        };
        if self.extra > MOST_EXTRA { Err(BadChunks) } else { Ok(state) }
    }
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 127)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Payload and rest, however the bytes are cut.
    fn read(bytes: &[u8], extras: bool, step: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut framing = Framing::chunked(extras);
        let (mut payload, mut taken) = (Vec::new(), 0);
        for piece in bytes.chunks(step) {
            taken += framing.take(piece, Some(&mut payload)).ok()?;
        }
        framing.is_done().then(|| (payload, bytes[taken..].to_vec()))
    }

    #[test]
    fn chunks_end_where_they_say_and_the_rest_is_left() {
        let body = b"5\r\nhello\r\n00A\r\n0123456789\r\n0\r\nX: y\r\n\r\nGET /evil HTTP/1.1\r\n";
        for step in [1, 2, 5, 1000] {
            let (payload, rest) = read(body, true, step).unwrap();
            assert_eq!((&payload[..], &rest[..]), (&b"hello0123456789"[..], &b"GET /evil HTTP/1.1\r\n"[..]));
        }
        assert!(read(b"5;x=\"y\"\r\nhello\r\n0\r\n\r\n", true, 3).is_some());
    }

    #[test]
    fn chunks_that_two_readers_could_read_in_two_ways_are_refused() {
        for body in [
            &b"5;x\r\nhello\r\n0\r\n\r\n"[..],
            b"5\nhello\n0\n\n",
            b"5\r\nhello0\r\n\r\n",
            b"-5\r\nhello",
            b"+5\r\nhello",
            b"0x5\r\nhello",
            b" 5\r\nhello",
            b"5 \r\nhello",
            b"\r\n",
            b"1234567890abcdef\r\n",
            b"0\r\n\nX: y\r\n\r\n",
            b"0\r\nX: y\r\n\r\n",
            b"0\r\nX: y\n\r\n",
            b"0\r\nX\0: y\r\n\r\n",
        ] {
            assert_eq!(read(body, false, 1), None, "{body:?}");
        }
        let endless = [&b"0\r\n"[..], &b"X: y\r\n".repeat(MOST_EXTRA)].concat();
        assert!(Framing::chunked(true).take(&endless, None).is_err());
    }

    #[test]
    fn a_length_takes_so_many_bytes_and_no_more() {
        let mut framing = Framing::Length(5);
        assert_eq!(framing.take(b"hel", None), Ok(3));
        assert_eq!(framing.take(b"loGET", None), Ok(2));
        assert!(framing.is_done());
    }
}
