//! What the executor adds to a request, and takes out of what comes back.
//!
//! The guest speaks plain HTTP to a name, the executor speaks TLS to the server and adds the header there: no forged
//! certificate, and no value on the guest's side. A server that echoes what it was sent would hand the value over, so
//! every stretch of the answer that is the value is blotted out, byte for byte. That holds for an honest server: one
//! that wants to tell the guest can spell it in any other way.

use crate::Secret;

/// A part of a value that is shorter says too little to be looked for.
const SHORTEST: usize = 8;

/// Blots a value out of a stream, wherever it is cut.
pub(crate) struct Blot {
    /// The value, then what stands behind its first blank (`Bearer ...`).
    values: Vec<Vec<u8>>,
    /// The end of the stream so far, where a value may have begun.
    held: Vec<u8>,
}

impl Blot {
    pub(crate) fn new(secret: &Secret) -> Blot {
        let value = secret.value();
        let behind = value.split_once(' ').map(|(_, rest)| rest.trim()).filter(|rest| rest.len() >= SHORTEST);
        let values = [Some(value), behind].into_iter().flatten().map(|v| v.as_bytes().to_vec()).collect();
        Blot { values, held: Vec::new() }
    }

    /// Takes a piece and gives back what can be told so far.
    pub(crate) fn pass(&mut self, piece: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(piece);
        let mut at = 0;
        while at < self.held.len() {
            let rest = &self.held[at..];
            let whole = self.values.iter().find(|value| rest.starts_with(value)).map(Vec::len);
            // A longer value may still come where a shorter one is already there.
            if self.values.iter().any(|value| value.len() > rest.len() && value.starts_with(rest)) {
                break;
            }
            match whole {
                Some(length) => {
                    self.held[at..at + length].fill(b'*');
                    at += length;
                }
                None => at += 1,
            }
        }
        let rest = self.held.split_off(at);
        std::mem::replace(&mut self.held, rest)
    }

    /// The end of the stream: nothing that was held back became a value.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// All of a text.
    pub(crate) fn all(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = self.pass(bytes);
        out.extend(self.rest());
        out
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
}
