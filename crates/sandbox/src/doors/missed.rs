//! Questions to the resolver inside that came to nothing: each name once, so many names, and then a number.
//!
//! ```text
//!   question ──▶ Names ──no address──▶ Misses::note ──new──▶ (frame `Missed`, Misses::hear) ──▶ who decides and tells
//! ```
//!
//! Both ends of the channel hold the bound: what a guest asks makes neither of them grow, nor what is told of it.

use std::collections::BTreeSet;

use super::{Doors, is_name};

/// Names that are told one by one, in one sandbox.
pub(crate) const NAMES: usize = 64;
/// Further questions are counted up to here, and then no more.
const MOST: u64 = 1 << 32;
/// All that can ever be told: the names, and each power of two of further questions.
pub(crate) const ALL: usize = NAMES + 33;
/// What a guest asks for to learn of itself: its host name, and where its own loopback is.
const OWN: [&str; 2] = ["sandbox", "localhost"];
/// Beneath these is asked for what is its own, or for the name of an address; nobody grants what stands there.
const ASIDE: [&str; 3] = [".localhost", ".in-addr.arpa", ".ip6.arpa"];

/// What a guest asked its resolver for, and got no address. All of it is the guest's word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Missed {
    /// A name that is not granted.
    Unknown {
        /// In lower case, of letters, digits, `-`, `_` and dots.
        host: String,
    },
    /// A name that a star stands for, when all addresses of such names were taken.
    Full {
        /// As above.
        host: String,
    },
    /// What can be no name of a host.
    Odd,
    /// Questions beyond those of which each was told: so many in all, at the least.
    More {
        /// A power of two.
        questions: u64,
    },
}

/// What was told.
#[derive(Debug, Default)]
pub(crate) struct Misses {
    told: BTreeSet<Missed>,
    more: u64,
}

impl Misses {
    /// Takes a question that came to nothing; what is to be told of it, if anything is.
    pub(crate) fn note(&mut self, missed: Missed) -> Option<Missed> {
        if self.told.contains(&missed) {
            return None;
        }
        if self.told.len() < NAMES {
            self.told.insert(missed.clone());
            return Some(missed);
        }
        if self.more >= MOST {
            return None;
        }
        self.more += 1;
        let questions = self.more;
        questions.is_power_of_two().then_some(Missed::More { questions })
    }

    /// Takes what the other end noted; false for what it would not have.
    pub(crate) fn hear(&mut self, missed: &Missed, doors: &Doors) -> bool {
        match missed {
            Missed::More { questions } => {
                let sound = self.told.len() == NAMES
                    && questions.is_power_of_two()
                    && *questions > self.more
                    && *questions <= MOST;
                if sound {
                    self.more = *questions;
                }
                sound
            }
            Missed::Unknown { host } if Missed::unknown(host, doors).as_ref() != Some(missed) => false,
            Missed::Full { host } if !doors.stars(host) => false,
            Missed::Unknown { .. } | Missed::Full { .. } | Missed::Odd => {
                self.told.len() < NAMES && self.told.insert(missed.clone())
            }
        }
    }
}

impl Missed {
    /// What a name that the resolver does not know is told as; none where nobody was refused anything.
    pub(crate) fn unknown(host: &str, doors: &Doors) -> Option<Missed> {
        let mut host = host;
        // Who offers a service (`_https._tcp.`) is asked with the name of the host behind it.
        while let Some(rest) = host.strip_prefix('_').and_then(|_| service(host)) {
            host = rest;
        }
        if host.is_empty() {
            return Some(Missed::Odd);
        }
        let aside = OWN.contains(&host) || ASIDE.iter().any(|zone| host.ends_with(zone));
        (!aside && !doors.name(host)).then(|| Missed::Unknown { host: host.to_owned() })
    }

    /// As a frame carries it.
    pub(crate) fn written(&self) -> Vec<u8> {
        match self {
            Missed::Unknown { host } => [&[0][..], host.as_bytes()].concat(),
            Missed::Full { host } => [&[1][..], host.as_bytes()].concat(),
            Missed::Odd => vec![2],
            Missed::More { questions } => [&[3][..], &questions.to_le_bytes()].concat(),
        }
    }

    /// The same, read; none for what is no such thing.
    pub(crate) fn read(payload: &[u8]) -> Option<Missed> {
        let (kind, rest) = payload.split_first()?;
        let host = || {
            let host = std::str::from_utf8(rest).ok().filter(|host| is_name(host))?;
            Some(host.to_owned())
        };
        match kind {
            0 => Some(Missed::Unknown { host: host()? }),
            1 => Some(Missed::Full { host: host()? }),
            2 => rest.is_empty().then_some(Missed::Odd),
            3 => Some(Missed::More { questions: u64::from_le_bytes(rest.try_into().ok()?) }),
            _ => None,
        }
    }
}

/// What stands behind two labels of which each begins with `_`.
fn service(host: &str) -> Option<&str> {
    let (_, rest) = host.split_once('.')?;
    let proto = rest.strip_prefix('_')?;
    Some(proto.split_once('.').map_or("", |(_, host)| host))
}

#[cfg(test)]
mod tests {
    use super::super::Name;
    use super::*;

    fn unknown(host: &str) -> Missed {
        Missed::Unknown { host: host.to_owned() }
    }

    fn full(host: &str) -> Missed {
        Missed::Full { host: host.to_owned() }
    }

    fn doors() -> Doors {
        let name = |host: &str, star| Name { host: host.to_owned(), star, port: 443 };
        Doors { names: vec![name("a.org", false), name("b.org", true)] }
    }

    #[test]
    fn each_name_is_told_once_and_more_of_them_as_a_number() {
        let (mut noted, mut heard, mut told) = (Misses::default(), Misses::default(), Vec::new());
        for n in 0..1000 {
            for _ in 0..2 {
                told.extend(noted.note(unknown(&format!("h{n}.test"))));
            }
        }
        let (names, more) = told.split_at(NAMES);
        assert_eq!((names[0].clone(), names[63].clone()), (unknown("h0.test"), unknown("h63.test")));
        let numbers: Vec<Missed> = (0..=10).map(|n| Missed::More { questions: 1 << n }).collect();
        assert_eq!(more, numbers);
        // What one end says, the other takes, and no second time.
        assert!(told.iter().all(|missed| heard.hear(missed, &doors())));
        assert!(!told.iter().any(|missed| heard.hear(missed, &doors())));
        assert!(told.len() <= ALL);
    }

    #[test]
    fn a_granted_name_is_not_unknown_and_only_a_star_is_ever_full() {
        for (missed, sound) in [
            (unknown("a.org"), false),
            (unknown("x.b.org"), false),
            (unknown("b.org"), true),
            (unknown("x.y.b.org"), true),
            (full("x.b.org"), true),
            (full("a.org"), false),
            (full("c.org"), false),
            (Missed::Odd, true),
            (Missed::More { questions: 1 }, false),
            (unknown("sandbox"), false),
            (unknown("7.2.0.192.in-addr.arpa"), false),
            (unknown("_http._tcp.c.org"), false),
            (unknown("_c.org"), true),
        ] {
            assert_eq!(Misses::default().hear(&missed, &doors()), sound, "{missed:?}");
        }
    }

    #[test]
    fn what_a_guest_asks_of_itself_is_no_refusal_and_a_service_is_its_hosts() {
        for (host, told) in [
            ("sandbox", None),
            ("localhost", None),
            ("db.localhost", None),
            ("7.2.0.192.in-addr.arpa", None),
            ("1.0.ip6.arpa", None),
            ("sandbox.example", Some(unknown("sandbox.example"))),
            ("in-addr.arpa.example", Some(unknown("in-addr.arpa.example"))),
            ("_https._tcp.c.org", Some(unknown("c.org"))),
            ("_a._b._c._d.c.org", Some(unknown("c.org"))),
            ("_https._tcp.a.org", None),
            ("_https._tcp.x.b.org", None),
            ("_https._tcp", Some(Missed::Odd)),
            ("_a._b._c", Some(unknown("_c"))),
            ("_dmarc.c.org", Some(unknown("_dmarc.c.org"))),
        ] {
            let noted = Missed::unknown(host, &doors());
            assert_eq!(noted, told, "{host}");
            // And the other end takes it.
            assert!(noted.is_none_or(|missed| Misses::default().hear(&missed, &doors())), "{host}");
        }
    }

    #[test]
    fn questions_are_counted_up_to_a_bound_that_both_ends_hold() {
        let full = |more| Misses { told: (0..NAMES).map(|n| unknown(&format!("h{n}.test"))).collect(), more };
        let mut noted = full(MOST - 1);
        assert_eq!(noted.note(unknown("c.org")), Some(Missed::More { questions: MOST }));
        assert_eq!(noted.note(unknown("c.org")), None);
        assert!(full(0).hear(&Missed::More { questions: MOST }, &doors()));
        assert!(!full(0).hear(&Missed::More { questions: MOST << 1 }, &doors()));
        assert!(!full(0).hear(&Missed::More { questions: 1 << 63 }, &doors()));
    }

    #[test]
    fn what_is_said_is_read_and_nothing_else() {
        for missed in [unknown("c.org"), full("x.b.org"), Missed::Odd, Missed::More { questions: 8 }] {
            assert_eq!(Missed::read(&missed.written()), Some(missed));
        }
        let long = [&[0][..], "a.".repeat(127).as_bytes()].concat();
        for bad in [
            &b""[..],
            b"\0",
            b"\0A.org",
            b"\0a b",
            b"\0\xff",
            b"\x01*.b.org",
            b"\x02x",
            b"\x03",
            b"\x03\x01\0\0\0",
            b"\x04",
            &long,
        ] {
            assert_eq!(Missed::read(bad), None, "{bad:?}");
        }
    }
}
