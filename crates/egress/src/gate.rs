//! Every TLS hello, not only the first. A server may ask for a second one (HelloRetryRequest), and may go by its name.

use policy::Host;

use crate::hello::{self, BadHello};

/// Lets the guest's records through until they are encrypted; each hello among them must name the same host.
pub(crate) struct Gate {
    host: Host,
    held: Vec<u8>,
    open: bool,
}

/// What a gate does not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shut {
    /// A hello that is not let through by itself.
    Hello(BadHello),
    /// A hello that names another host.
    Renamed,
}

const CHANGE_CIPHER: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// Bytes of a record that says little.
const SHORT: usize = 64;

impl Gate {
    /// For the bytes of a client that names `host` in every hello.
    pub(crate) fn new(host: Host) -> Gate {
        Gate { host, held: Vec::new(), open: false }
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
            let record = 5 + usize::from(u16::from_be_bytes([high, low]));
            match kind {
                // Both are a few bytes long.
                CHANGE_CIPHER | ALERT if record > SHORT => return Err(Shut::Hello(BadHello::Malformed)),
                CHANGE_CIPHER | ALERT if rest.len() >= record => through += record,
                CHANGE_CIPHER | ALERT => break,
                HANDSHAKE => match rest.get(5) {
                    None if record > 5 => break,
                    Some(1) => match hello::read_whole(rest) {
                        Ok(None) => break,
                        Ok(Some((host, records))) if host == self.host => through += records,
                        Ok(Some(_)) => return Err(Shut::Renamed),
                        Err(bad) => return Err(Shut::Hello(bad)),
                    },
                    None | Some(_) => self.open = true,
                },
                // Encrypted from here on: no server goes by a name in it.
                DATA => self.open = true,
                _ => return Err(Shut::Hello(BadHello::Malformed)),
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
        for bytes in [&[23, 3, 3, 64, 0, 1, 2][..], &[22, 3, 3, 0, 70, 16, 0], &[21, 3, 1, 0, 2, 2, 0]] {
            assert_eq!(passed(bytes, 1), Ok(bytes.to_vec()));
        }
    }
}
