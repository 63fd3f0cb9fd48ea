//! Every TLS hello, not only the first. A server may ask for a second one (HelloRetryRequest), and may go by its name.
//!
//! Which of the guest's records are encrypted nobody can tell from them alone, so the server's are looked at as well:
//!
//! ```text
//!  server has said        guest may say                              and then
//!  nothing                hellos with the granted name               the same
//!  say it again           a change of ciphers, hellos likewise       the same
//!  its own hello          a change of ciphers, data, a key           everything goes through: no server takes another
//!                                                                    hello in the clear
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use policy::Host;

use crate::hello::{self, BadHello};

/// Lets the guest's records through until they are encrypted; each hello among them must name the same host.
pub(crate) struct Gate {
    host: Host,
    held: Vec<u8>,
    open: bool,
    /// Whether the server has taken a hello.
    taken: Arc<AtomicBool>,
}

/// Listens to the server until it has taken a hello of the guest's.
pub(crate) struct Answers {
    taken: Arc<AtomicBool>,
    /// It has, or speaks something else.
    done: bool,
    /// The head of a record, while it is not complete.
    head: Vec<u8>,
    kind: u8,
    /// Bytes that are still to come of the record.
    left: usize,
    /// The beginning of a message, while that is not complete.
    message: Vec<u8>,
    /// Bytes that are still to come of a message that was looked at.
    skip: usize,
}

/// What a gate does not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shut {
    /// A hello that is not let through by itself.
    Hello(BadHello),
    /// A hello that names another host.
    Renamed,
    /// A record that no client sends there.
    Record,
}

const CHANGE_CIPHER: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// Messages of a client in the clear, after its hello.
const CERTIFICATE: u8 = 11;
const KEY_EXCHANGE: u8 = 16;
const SERVER_HELLO: u8 = 2;
const MOST_SMALL: usize = 64;
/// The random of a server's hello that means: say yours again.
const AGAIN: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
/// Kind, length, version and random of a message.
const SEEN: usize = 4 + 2 + 32;

/// For the bytes of a client that names `host` in every hello, and for those of its server.
pub(crate) fn gate(host: Host) -> (Gate, Answers) {
    let taken = Arc::<AtomicBool>::default();
    let answers = Answers {
        taken: taken.clone(),
        done: false,
        head: Vec::new(),
        kind: 0,
        left: 0,
        message: Vec::new(),
        skip: 0,
    };
    (Gate { host, held: Vec::new(), open: false, taken }, answers)
}

impl Gate {
    /// Whether everything goes through from here on.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Takes bytes and gives back those that may go on.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Shut> {
        self.held.extend_from_slice(bytes);
        let taken = self.taken.load(Ordering::Relaxed);
        let mut through = 0;
        while !self.open {
            let rest = &self.held[through..];
            let Some([kind, _, _, high, low]) = rest.first_chunk().copied() else { break };
            let length = usize::from(u16::from_be_bytes([high, low]));
            match kind {
                // A record of these two is a few bytes long.
                CHANGE_CIPHER | ALERT if !(1..=MOST_SMALL).contains(&length) => return Err(Shut::Record),
                CHANGE_CIPHER | ALERT if rest.len() < 5 + length => break,
                // What follows is encrypted, so that no byte of it says what it is.
                CHANGE_CIPHER if taken => self.open = true,
                CHANGE_CIPHER | ALERT => through += 5 + length,
                HANDSHAKE if length == 0 => return Err(Shut::Record),
                HANDSHAKE => match rest.get(5).copied() {
                    None => break,
                    Some(1) => match hello::read_whole(rest) {
                        Ok(None) => break,
                        Ok(Some((host, records))) if host == self.host => through += records,
                        Ok(Some(_)) => return Err(Shut::Renamed),
                        Err(bad) => return Err(Shut::Hello(bad)),
                    },
                    // The two that a client may say in the clear: with them it has taken the server's hello.
                    Some(CERTIFICATE | KEY_EXCHANGE) if taken => self.open = true,
                    Some(_) => return Err(Shut::Record),
                },
                // Without early data there is a key for it only now.
                DATA if taken => self.open = true,
                _ => return Err(Shut::Record),
            }
        }
        let rest = if self.open { Vec::new() } else { self.held.split_off(through) };
        Ok(std::mem::replace(&mut self.held, rest))
    }
}

impl Answers {
    /// Whether there is nothing more to hear.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Hears what the server says; before the guest does, so that none of its words comes too soon.
    pub(crate) fn hear(&mut self, mut bytes: &[u8]) {
        while !self.done && !bytes.is_empty() {
            if self.left == 0 {
                let missing = 5 - self.head.len();
                self.head.extend(taken(&mut bytes, missing));
                let Some([kind, _, _, high, low]) = self.head.first_chunk().copied() else { continue };
                self.head.clear();
                (self.kind, self.left) = (kind, usize::from(u16::from_be_bytes([high, low])));
                self.done = !matches!(kind, CHANGE_CIPHER | ALERT | HANDSHAKE);
                continue;
            }
            let piece = taken(&mut bytes, self.left);
            self.left -= piece.len();
            if self.kind == HANDSHAKE {
                self.messages(piece);
            }
        }
    }

    fn messages(&mut self, mut bytes: &[u8]) {
        while !self.done && !bytes.is_empty() {
            if self.skip > 0 {
                self.skip -= taken(&mut bytes, self.skip).len();
                continue;
            }
            let missing = SEEN - self.message.len();
            self.message.extend(taken(&mut bytes, missing));
            let Some([kind, a, b, c, _, _, random @ ..]) = self.message.first_chunk::<SEEN>() else {
                continue;
            };
            if (*kind, random) == (SERVER_HELLO, &AGAIN) {
                let length =
                    4 + usize::try_from(u32::from_be_bytes([0, *a, *b, *c])).unwrap_or(usize::MAX - 4);
                self.skip = length.saturating_sub(SEEN);
            } else {
                self.taken.store(*kind == SERVER_HELLO, Ordering::Relaxed);
                self.done = true;
            }
            self.message.clear();
        }
    }
}

/// Takes at most so many bytes from the front.
fn taken<'a>(bytes: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (front, rest) = bytes.split_at(most.min(bytes.len()));
    *bytes = rest;
    front
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(name: &str) -> Vec<u8> {
        hello::written(&[(0, hello::sni(name.as_bytes()))], 50)
    }

    /// A server's hello with this random, in records of at most `piece` bytes.
    fn answer(random: [u8; 32], piece: usize) -> Vec<u8> {
        let message = [&[2, 0, 0, 40, 3, 3][..], &random, &[0, 0x13, 1, 0, 0, 0]].concat();
        let record = |part: &[u8]| [&[22, 3, 3, 0, u8::try_from(part.len()).unwrap()], part].concat();
        message.chunks(piece).flat_map(record).collect()
    }

    /// What passes of a guest's bytes behind what the server has said.
    fn passed_behind(answers: &[u8], bytes: &[u8], step: usize) -> Result<Vec<u8>, Shut> {
        let (mut gate, mut server) = gate(Host::parse("a.example").unwrap());
        answers.chunks(step).for_each(|piece| server.hear(piece));
        let pieces: Result<Vec<_>, _> = bytes.chunks(step).map(|piece| gate.pass(piece)).collect();
        pieces.map(|pieces| pieces.concat())
    }

    const DUMMY: [u8; 6] = [20, 3, 3, 0, 1, 1];
    const ALERTS: [u8; 7] = [21, 3, 3, 0, 2, 1, 112];
    const ODD: [&[u8]; 8] = [
        &[21, 3, 3, 1, 0],
        &[20, 3, 3, 0, 65],
        &[21, 3, 3, 0, 0],
        &[22, 3, 3, 0, 0],
        &[22, 3, 3, 0, 4, 0, 0, 0, 0],
        &[22, 3, 3, 0, 4, 99, 0, 0, 0],
        &[24, 3, 3, 0, 1, 0],
        &[0, 0, 0, 0, 0],
    ];

    /// D-27: the name cannot be exchanged on the way, whatever the server has said.
    #[test]
    fn a_second_hello_must_name_the_same_host() {
        let taken = answer([7; 32], 100);
        for answers in [&[][..], &answer(AGAIN, 100), &taken] {
            for step in [1, 3, 1000] {
                let dummy = if answers == taken { &[][..] } else { &DUMMY };
                let same = [&hello("a.example")[..], dummy, &hello("A.example")].concat();
                assert_eq!(passed_behind(answers, &same, step), Ok(same.clone()), "{step}");
                let other = [&hello("a.example")[..], dummy, &hello("b.example"), &[23, 3, 3]].concat();
                assert_eq!(passed_behind(answers, &other, step), Err(Shut::Renamed), "{step}");
                let nameless = hello::written(&[], 1000);
                assert_eq!(
                    passed_behind(answers, &nameless, step),
                    Err(Shut::Hello(BadHello::NoName)),
                    "{step}"
                );
            }
        }
    }

    #[test]
    fn what_is_encrypted_or_a_key_exchange_goes_through_once_the_server_has_taken_a_hello() {
        for random in [[7; 32], [0xcf; 32]] {
            for bytes in [&[23, 3, 3, 64, 0, 1, 2][..], &[22, 3, 3, 0, 70, 16, 0], &[22, 3, 3, 0, 70, 11, 0]]
            {
                let answers = answer(random, 100);
                assert_eq!(passed_behind(&answers, bytes, 1), Ok(bytes.to_vec()));
                for shut in [&[][..], &answer(AGAIN, 100)] {
                    assert_eq!(passed_behind(shut, bytes, 1), Err(Shut::Record));
                }
            }
        }
    }

    /// A session of TLS 1.2 that is resumed goes on with an encrypted message, which may begin with any byte.
    #[test]
    fn a_resumed_session_goes_through_whatever_its_first_encrypted_byte_is() {
        let answers = answer([7; 32], 100);
        for byte in 0..=255 {
            let resumed = [&DUMMY[..], &[22, 3, 3, 0, 40, byte], &[9; 39]].concat();
            for cut in 1..=resumed.len() {
                assert_eq!(passed_behind(&answers, &resumed, cut), Ok(resumed.clone()), "{byte} {cut}");
            }
        }
    }

    /// Behind each of these a server could find another hello, where a gate that took them for the end would not look.
    #[test]
    fn d27_no_odd_record_opens_the_gate() {
        for answers in [&[][..], &answer(AGAIN, 100)] {
            for (odd, dummy) in ODD.iter().flat_map(|odd| [(odd, &[][..]), (odd, &DUMMY)]) {
                let bytes = [&hello("a.example")[..], dummy, odd, &hello("b.example")].concat();
                for step in [1, 1000] {
                    assert_eq!(passed_behind(answers, &bytes, step), Err(Shut::Record), "{odd:?}");
                }
            }
        }
    }

    /// D-27: a change of ciphers or data before the server has taken a hello does not open it either.
    #[test]
    fn d27_what_is_said_before_its_time_does_not_open_the_gate() {
        for answers in [&[][..], &answer(AGAIN, 100)] {
            let bytes = [&hello("a.example")[..], &DUMMY, &DUMMY, &hello("b.example")].concat();
            assert_eq!(passed_behind(answers, &bytes, 1000), Err(Shut::Renamed));
            let bytes = [&hello("a.example")[..], &DUMMY, &[23, 3, 3, 0, 1, 0], &hello("b.example")].concat();
            assert_eq!(passed_behind(answers, &bytes, 1000), Err(Shut::Record));
        }
    }

    #[test]
    fn a_servers_hello_is_heard_however_it_is_cut_and_whatever_stands_before_it() {
        let data = [23, 3, 3, 0, 1, 0];
        for (before, piece) in [(&[][..], 100), (&ALERTS, 100), (&answer(AGAIN, 7), 5), (&DUMMY, 1)] {
            let answers = [before, &DUMMY, &answer([7; 32], piece), &[23, 3, 3, 0, 9]].concat();
            for step in [1, 3, 7, 1000] {
                assert_eq!(passed_behind(&answers, &data, step), Ok(data.to_vec()), "{piece} {step}");
            }
        }
    }

    /// What is no hello of a server's is none behind something else either.
    #[test]
    fn a_server_that_speaks_something_else_opens_nothing() {
        let data = [23, 3, 3, 0, 1, 0];
        for odd in
            [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &data, &hello("a.example"), &[22, 3, 3, 255, 255]]
        {
            let answers = [odd, &answer([7; 32], 100)].concat();
            assert_eq!(passed_behind(&answers, &data, 1000), Err(Shut::Record), "{odd:?}");
        }
    }
}
