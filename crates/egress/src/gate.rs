//! Every TLS hello, not only the first. A server may ask for a second one (HelloRetryRequest), and may go by its name.

use policy::Host;

use crate::hello::{self, BadHello};

/// Lets the guest's records through until they are encrypted; each hello among them must name the same host.
pub(crate) struct Gate {
    host: Host,
    held: Vec<u8>,
    open: bool,
    /// Whether a change of ciphers was said.
    changed: bool,
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
const MOST_SMALL: usize = 64;

impl Gate {
    /// For the bytes of a client that names `host` in every hello.
    pub(crate) fn new(host: Host) -> Gate {
        Gate { host, held: Vec::new(), open: false, changed: false }
    }

    /// Whether everything goes through from here on.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Takes bytes and gives back those that may go on.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Shut> {
        self.held.extend_from_slice(bytes);
        let mut through = 0;
        while !self.open {
            let rest = &self.held[through..];
            let Some([kind, _, _, high, low]) = rest.first_chunk().copied() else { break };
            let length = usize::from(u16::from_be_bytes([high, low]));
            match kind {
                // A record of these two is a few bytes long.
                CHANGE_CIPHER | ALERT if !(1..=MOST_SMALL).contains(&length) => return Err(Shut::Record),
                CHANGE_CIPHER | ALERT if rest.len() < 5 + length => break,
                CHANGE_CIPHER | ALERT => {
                    self.changed |= kind == CHANGE_CIPHER;
                    through += 5 + length;
                }
                HANDSHAKE if length == 0 => return Err(Shut::Record),
                HANDSHAKE => match rest.get(5).copied() {
                    None => break,
                    Some(1) => match hello::read_whole(rest) {
                        Ok(None) => break,
                        Ok(Some((host, records))) if host == self.host => through += records,
                        Ok(Some(_)) => return Err(Shut::Renamed),
                        Err(bad) => return Err(Shut::Hello(bad)),
                    },
                    // After the change of ciphers this is encrypted; before, it is one of the two that a client may say.
                    Some(CERTIFICATE | KEY_EXCHANGE) => self.open = true,
                    Some(_) if self.changed => self.open = true,
                    Some(_) => return Err(Shut::Record),
                },
                // Encrypted: no server goes by a name in it, and without early data there is a key for it.
                DATA => self.open = true,
                _ => return Err(Shut::Record),
            }
        }
        let rest = if self.open { Vec::new() } else { self.held.split_off(through) };
        Ok(std::mem::replace(&mut self.held, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(name: &str) -> Vec<u8> {
        hello::written(&[(0, hello::sni(name.as_bytes()))], 50)
    }

    fn passed(bytes: &[u8], step: usize) -> Result<Vec<u8>, Shut> {
        let mut gate = Gate::new(Host::parse("a.example").unwrap());
        let pieces: Result<Vec<_>, _> = bytes.chunks(step).map(|piece| gate.pass(piece)).collect();
        pieces.map(|pieces| pieces.concat())
    }

    const DUMMY: [u8; 6] = [20, 3, 3, 0, 1, 1];

    /// D-27: the name cannot be exchanged on the way.
    #[test]
    fn a_second_hello_must_name_the_same_host() {
        for step in [1, 3, 1000] {
            let same =
                [&hello("a.example")[..], &DUMMY, &hello("A.example"), &[23, 3, 3, 0, 2, 9, 9]].concat();
            assert_eq!(passed(&same, step), Ok(same.clone()), "{step}");
            let other = [&hello("a.example")[..], &DUMMY, &hello("b.example"), &[23, 3, 3]].concat();
            assert_eq!(passed(&other, step), Err(Shut::Renamed), "{step}");
            let nameless = hello::written(&[], 1000);
            assert_eq!(passed(&nameless, step), Err(Shut::Hello(BadHello::NoName)), "{step}");
        }
    }

    #[test]
    fn what_is_encrypted_or_a_key_exchange_goes_through() {
        let resumed = [&DUMMY[..], &[22, 3, 3, 0, 40, 0, 9]].concat();
        for bytes in
            [&[23, 3, 3, 64, 0, 1, 2][..], &[22, 3, 3, 0, 70, 16, 0], &[21, 3, 1, 0, 2, 2, 0], &resumed]
        {
            assert_eq!(passed(bytes, 1), Ok(bytes.to_vec()));
        }
    }

    /// Behind each of these a server could find another hello, where a gate that took them for the end would not look.
    #[test]
    fn d27_no_odd_record_opens_the_gate() {
        for odd in [
            &[21, 3, 3, 1, 0][..],
            &[20, 3, 3, 0, 65],
            &[21, 3, 3, 0, 0],
            &[22, 3, 3, 0, 0],
            &[22, 3, 3, 0, 4, 0, 0, 0, 0],
            &[22, 3, 3, 0, 4, 99, 0, 0, 0],
            &[24, 3, 3, 0, 1, 0],
            &[0, 0, 0, 0, 0],
        ] {
            let bytes = [&hello("a.example")[..], odd, &hello("b.example")].concat();
            for step in [1, 1000] {
                assert_eq!(passed(&bytes, step), Err(Shut::Record), "{odd:?}");
            }
        }
    }
}
