//! What the executor adds to a request, and takes out of what comes back.
//!
//! The guest speaks plain HTTP to a name, the executor speaks TLS to the server and adds the header there: no forged
//! certificate, and no value on the guest's side. A server that echoes what it was sent would hand the value over, so
//! every stretch of the answer that spells the value ([`policy::Forms`]) is blotted out, byte for byte. That holds for an
//! honest server: one that wants to tell the guest can spell it in any other way.

use policy::{FormAt, Forms, header_secrets};

use crate::Secret;

/// Headers of a request that ask for an answer in pieces, or packed: a value would come back unseen.
const PIECES: [&str; 5] = ["range", "if-range", "request-range", "a-im", "accept-encoding"];
/// Methods whose answer is the request itself.
const ECHOES: [&str; 2] = ["TRACE", "TRACK"];

/// Whether a method asks for the request itself, the added header with it.
pub(crate) fn echoes(method: &str) -> bool {
    ECHOES.iter().any(|echo| echo.eq_ignore_ascii_case(method))
}

/// Whether the guest's own header of this name stays behind where one named `added` goes out.
pub(crate) fn displaces(added: &str, name: &str) -> bool {
    [added].iter().chain(&PIECES).any(|displaced| same_header(displaced, name))
}

/// Whether two names are one to servers that hand headers on as variables: everything but letters and digits is alike.
pub(crate) fn same_header(one: &str, other: &str) -> bool {
    let folded = |b: u8| if b.is_ascii_alphanumeric() { b.to_ascii_lowercase() } else { b'-' };
    one.bytes().map(folded).eq(other.bytes().map(folded))
}

/// Blots a value out of a stream, wherever it is cut and however it is spelt.
pub(crate) struct Blot {
    forms: Forms,
    /// The end of the stream so far, where a value may have begun.
    held: Vec<u8>,
}

impl Blot {
    pub(crate) fn new(secret: &Secret) -> Blot {
        let values = header_secrets(secret.value());
        Blot { forms: Forms::new(values.iter().map(String::as_str)), held: Vec::new() }
    }

    /// Takes a piece and gives back what can be told so far.
    pub(crate) fn pass(&mut self, piece: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(piece);
        self.told(true)
    }

    /// The end of the stream.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        self.told(false)
    }

    /// All of a text.
    pub(crate) fn all(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = self.pass(bytes);
        out.extend(self.rest());
        out
    }

    fn told(&mut self, more: bool) -> Vec<u8> {
        let mut at = 0;
        loop {
            at += self.forms.before(&self.held[at..]);
            if at == self.held.len() {
                break;
            }
            match self.forms.at(&self.held[at..], more) {
                FormAt::Nothing => at += 1,
                FormAt::Maybe => break,
                FormAt::Value { length, .. } => {
                    self.held[at..at + length].fill(b'*');
                    at += length;
                }
            }
        }
        let rest = self.held.split_off(at);
        std::mem::replace(&mut self.held, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r58_a_value_that_comes_back_is_blotted_out_wherever_it_is_cut() {
        let secret = Secret::of("Bearer swordfish");
        let text = b"Bearer sword Bearer swordfish, swordfish; swordfis Bearer swordfisBearer swordfish Bea";
        let blotted =
            b"Bearer sword ****************, *********; swordfis Bearer swordfis**************** Bea";
        for step in 1..text.len() {
            let mut blot = Blot::new(&secret);
            let mut out: Vec<u8> = text.chunks(step).flat_map(|piece| blot.pass(piece)).collect();
            out.extend(blot.rest());
            assert_eq!(
                String::from_utf8(out).unwrap(),
                String::from_utf8(blotted.to_vec()).unwrap(),
                "{step}"
            );
        }
    }

    /// A stream that waits for nothing is not held up: what cannot become a value goes on at once.
    #[test]
    fn what_cannot_become_a_value_is_not_held() {
        let mut blot = Blot::new(&Secret::of("Bearer swordfish"));
        assert_eq!(blot.pass(b"data: tick\n\n"), b"data: tick\n\n");
        assert_eq!(blot.pass(b"data: sword"), b"data: ");
        assert_eq!(blot.pass(b"x"), b"swordx");
    }

    #[test]
    fn r58_names_that_a_server_takes_for_one_are_one() {
        for name in ["x-api-key", "X_Api-Key", "x.api.key", "Range", "if_range", "Accept-Encoding"] {
            assert!(displaces("x-api-key", name), "{name}");
        }
        assert!(!displaces("x-api-key", "x-api-keys") && !displaces("x-api-key", "accept"));
    }
}
