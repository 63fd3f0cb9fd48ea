//! Names of runs: ordered by time, unique, and safe as a path part.

use std::fmt;
use std::io::Read;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Crockford's alphabet in lower case: no `i`, `l`, `o`, `u`.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 26;

/// The id of a run: 48 bits of milliseconds and 80 random bits in 26 characters of base 32.
///
/// There is no other way to get one than to make a new one or to parse one strictly, so an id can be joined to
/// a path without a further look.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(String);

/// A text that is no run id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a run id: 26 characters of 0-9 and a-z without i, l, o, u are expected")]
pub struct BadRunId;

impl RunId {
    /// A new id.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn new() -> std::io::Result<RunId> {
        let mut random = [0u8; 10];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
        Ok(RunId::of(millis, random))
    }

    /// Reads an id; anything else is refused.
    ///
    /// # Errors
    /// [`BadRunId`].
    pub fn parse(text: &str) -> Result<RunId, BadRunId> {
        let bytes = text.as_bytes();
        let ok = bytes.len() == LENGTH
            && bytes.first().is_some_and(|b| (b'0'..=b'7').contains(b))
            && bytes.iter().all(|b| ALPHABET.contains(b));
        if ok { Ok(RunId(text.to_owned())) } else { Err(BadRunId) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// When it was made.
    pub(crate) fn made(&self) -> SystemTime {
        let all = self.0.bytes().fold(0u128, |n, b| {
            (n << 5) | ALPHABET.iter().zip(0u128..).find(|(a, _)| **a == b).map_or(0, |(_, d)| d)
        });
        UNIX_EPOCH + Duration::from_millis(u64::try_from(all >> 80).unwrap_or(u64::MAX))
    }

    fn of(millis: u128, random: [u8; 10]) -> RunId {
        let low = random.iter().fold(0u128, |n, b| (n << 8) | u128::from(*b));
        let all = ((millis & 0xffff_ffff_ffff) << 80) | low;
        let digits = (0..LENGTH).rev().map(|i| {
            let five = (all >> (5 * i)) & 31;
            ALPHABET.iter().zip(0u128..).find(|(_, n)| *n == five).map_or('0', |(b, _)| char::from(*b))
        });
        RunId(digits.collect())
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_ids_sort_later_whatever_the_random_part() {
        assert!(RunId::of(1, [255; 10]) < RunId::of(2, [0; 10]));
    }

    #[test]
    fn an_id_says_when_it_was_made() {
        let id = RunId::of(1_234_567, [9; 10]);
        assert_eq!(id.made(), UNIX_EPOCH + Duration::from_millis(1_234_567));
    }

    #[test]
    fn the_largest_id_is_still_an_id() {
        let id = RunId::of(u128::MAX, [255; 10]);
        assert_eq!(id.as_str(), "7zzzzzzzzzzzzzzzzzzzzzzzzz");
        assert_eq!(RunId::parse(id.as_str()), Ok(id));
    }
}
