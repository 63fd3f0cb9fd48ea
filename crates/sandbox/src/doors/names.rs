//! The resolver inside, without a socket: a question goes in, an answer comes out.
//!
//! It knows granted names and nothing else, asks nobody, and holds no more than was laid out. What it reads is a
//! guest's.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use super::{Doors, Layout, Missed, Misses, is_name};

const HEAD: usize = 12;
/// Seconds for which an answer may be kept: names never move.
const LASTS: u32 = 300;
/// A name on the wire: with the lengths of its labels, and none at its end.
const LONGEST: usize = 255;

/// Answers and their codes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// With an address, or with none where there is none of that kind.
    Known = 0,
    /// What was asked cannot be read.
    Malformed = 1,
    /// There is no such name, for this guest.
    Unknown = 3,
    /// Another kind of question.
    NotDone = 4,
    /// Granted, but every address for names behind stars is taken.
    Refused = 5,
}

/// The names of a sandbox and their addresses.
#[derive(Debug)]
pub(crate) struct Names {
    at: HashMap<String, Ipv4Addr>,
    of: HashMap<Ipv4Addr, String>,
    /// What stands behind stars.
    stars: Vec<String>,
    /// Addresses that no name has yet.
    free: Vec<Ipv4Addr>,
    doors: Doors,
    misses: Misses,
    /// What came to nothing, to be told.
    missed: Vec<Missed>,
}

impl Names {
    pub(crate) fn of(layout: &Layout) -> Names {
        let stars = layout.doors.names.iter().filter(|name| name.star).map(|name| name.host.clone());
        Names {
            at: layout.hosts.iter().cloned().collect(),
            of: layout.hosts.iter().map(|(host, address)| (*address, host.clone())).collect(),
            stars: stars.collect(),
            free: layout.pool.iter().rev().copied().collect(),
            doors: layout.doors.clone(),
            misses: Misses::default(),
            missed: Vec::new(),
        }
    }

    /// The name that has this address.
    pub(crate) fn host(&self, address: Ipv4Addr) -> Option<&str> {
        self.of.get(&address).map(String::as_str)
    }

    /// Answers a question; silence for what is none.
    pub(crate) fn answer(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        const ANSWER: u8 = 0x80;
        let head: &[u8; HEAD] = message.first_chunk()?;
        if head[2] & ANSWER != 0 {
            return None;
        }
        if head[2] & 0x78 != 0 {
            return Some(reply(head, &[], Code::NotDone, None));
        }
        let one = u16::from_be_bytes([head[4], head[5]]) == 1;
        let Some(question) = Question::read(&message[HEAD..]).filter(|_| one) else {
            return Some(reply(head, &[], Code::Malformed, None));
        };
        let (code, address) = self.look_up(&question);
        self.note(question.host, code);
        Some(reply(head, question.bytes, code, address))
    }

    /// What came to nothing since this was last asked, as far as it is told: few in all.
    pub(crate) fn missed(&mut self) -> Vec<Missed> {
        std::mem::take(&mut self.missed)
    }

    fn note(&mut self, host: Option<String>, code: Code) {
        let missed = match (code, host) {
            (Code::Known | Code::Malformed | Code::NotDone, _) => None,
            // Also none, where it is an address that is granted as one.
            (Code::Unknown, Some(host)) => Missed::unknown(&host, &self.doors),
            (Code::Refused, Some(host)) => Some(Missed::Full { host }),
            (Code::Unknown | Code::Refused, None) => Some(Missed::Odd),
        };
        self.missed.extend(missed.and_then(|missed| self.misses.note(missed)));
    }

    fn look_up(&mut self, question: &Question<'_>) -> (Code, Option<Ipv4Addr>) {
        const ADDRESS: u16 = 1;
        const ANY: u16 = 255;
        let wanted = question.kind == ADDRESS || question.kind == ANY;
        let Some(host) = &question.host else { return (Code::Unknown, None) };
        if let Some(address) = self.at.get(host) {
            return (Code::Known, wanted.then_some(*address));
        }
        let behind = host.split_once('.').is_some_and(|(_, rest)| self.stars.iter().any(|star| star == rest));
        match (behind, wanted) {
            (false, _) => (Code::Unknown, None),
            // Nothing is taken for a question that no address answers.
            (true, false) => (Code::Known, None),
            (true, true) => match self.free.pop() {
                Some(address) => {
                    self.at.insert(host.clone(), address);
                    self.of.insert(address, host.clone());
                    (Code::Known, Some(address))
                }
                None => (Code::Refused, None),
            },
        }
    }
}

struct Question<'a> {
    /// As it stood there; it is repeated in the answer.
    bytes: &'a [u8],
    /// In lower case; none where it cannot be a host's.
    host: Option<String>,
    kind: u16,
}

impl Question<'_> {
    fn read(rest: &[u8]) -> Option<Question<'_>> {
        let (mut at, mut host) = (0, String::new());
        let mut plain = true;
        loop {
            let length = usize::from(*rest.get(at)?);
            if length == 0 {
                break;
            }
            // A label, and no pointer: nothing stands before it that one could point to.
            let label = (length < 64).then(|| rest.get(at + 1..at + 1 + length)).flatten()?;
            at += 1 + length;
            if at >= LONGEST {
                return None;
            }
            if !host.is_empty() {
                host.push('.');
            }
            plain &= !label.contains(&b'.');
            host.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
        }
        let tail: &[u8; 4] = rest.get(at + 1..)?.first_chunk()?;
        let internet = tail[2..] == [0, 1] || tail[2..] == [0, 255];
        let host = (plain && internet && is_name(&host)).then_some(host);
        Some(Question { bytes: &rest[..at + 5], host, kind: u16::from_be_bytes([tail[0], tail[1]]) })
    }
}

fn reply(head: &[u8; HEAD], question: &[u8], code: Code, address: Option<Ipv4Addr>) -> Vec<u8> {
    let count = |there: bool| [0, u8::from(there)];
    let mut out = Vec::with_capacity(HEAD + question.len() + 16);
    out.extend_from_slice(&head[..2]);
    // An answer, to the same kind of question; recursion wanted as it was, and had.
    out.extend_from_slice(&[0x80 | (head[2] & 0x79), 0x80 | code as u8]);
    out.extend_from_slice(&count(!question.is_empty()));
    out.extend_from_slice(&count(address.is_some()));
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(question);
    if let Some(address) = address {
        // The name of the question, an address of the internet.
        out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
        out.extend_from_slice(&LASTS.to_be_bytes());
        out.extend_from_slice(&[0, 4]);
        out.extend_from_slice(&address.octets());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Doors, Name};
    use super::*;

    fn names() -> Names {
        let name = |host: &str, star| Name { host: host.to_owned(), star, port: 443 };
        let doors = Doors { names: vec![name("a.org", false), name("b.org", true)] };
        Names::of(&Layout::of(&doors).unwrap().unwrap())
    }

    fn query(host: &str, kind: u16) -> Vec<u8> {
        let mut out = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in host.split('.').filter(|label| !label.is_empty()) {
            out.push(u8::try_from(label.len()).unwrap());
            out.extend_from_slice(label.as_bytes());
        }
        out.push(0);
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&[0, 1]);
        out
    }

    /// Code and address of the answer.
    fn ask(names: &mut Names, host: &str, kind: u16) -> (u8, Option<[u8; 4]>) {
        let asked = query(host, kind);
        let answer = names.answer(&asked).unwrap();
        assert_eq!(answer[..2], [7, 9]);
        assert_eq!(answer[12..asked.len()], asked[12..]);
        let address = (answer[7] == 1).then(|| *answer.last_chunk().unwrap());
        (answer[3] & 0xf, address)
    }

    #[test]
    fn granted_names_have_one_address_and_others_do_not_exist() {
        let mut names = names();
        assert_eq!(ask(&mut names, "a.org", 1), (0, Some([127, 64, 0, 1])));
        assert_eq!(ask(&mut names, "A.oRg", 1), (0, Some([127, 64, 0, 1])));
        assert_eq!(ask(&mut names, "a.org", 28), (0, None));
        assert_eq!(ask(&mut names, "a.org", 65), (0, None));
        for other in ["b.org", "x.a.org", "x.y.b.org", "org", "", "1.0.64.127.in-addr.arpa", "a.org.example"]
        {
            assert_eq!(ask(&mut names, other, 1), (3, None), "{other}");
        }
        assert_eq!(names.host(Ipv4Addr::new(127, 64, 0, 1)), Some("a.org"));
        assert_eq!(names.host(Ipv4Addr::new(127, 65, 0, 1)), None);
    }

    #[test]
    fn names_behind_a_star_take_addresses_when_asked_for_until_there_are_no_more() {
        let mut names = names();
        assert_eq!(ask(&mut names, "first.b.org", 28), (0, None));
        for n in 1..=64 {
            assert_eq!(ask(&mut names, &format!("h{n}.b.org"), 1), (0, Some([127, 65, 0, n])));
        }
        assert_eq!(ask(&mut names, "first.b.org", 1), (5, None));
        assert_eq!(ask(&mut names, "h7.b.org", 1), (0, Some([127, 65, 0, 7])));
        assert_eq!(names.host(Ipv4Addr::new(127, 65, 0, 7)), Some("h7.b.org"));
    }

    /// Questions of both families, and again: one word. What is granted is none.
    #[test]
    fn what_came_to_nothing_is_told_once() {
        let mut names = names();
        for (host, kind) in [("c.org", 1), ("C.org", 28), ("c.org", 1), ("a.org", 28), ("x.b.org", 28)] {
            ask(&mut names, host, kind);
        }
        for own in ["sandbox", "1.0.0.127.in-addr.arpa", "_https._tcp.a.org", "_https._tcp.c.org"] {
            ask(&mut names, own, 1);
        }
        for n in 0..66 {
            ask(&mut names, &format!("h{n}.b.org"), 1);
        }
        ask(&mut names, "a b", 1);
        ask(&mut names, "", 2);
        let full = |n| Missed::Full { host: format!("h{n}.b.org") };
        let told = [Missed::Unknown { host: "c.org".to_owned() }, full(64), full(65), Missed::Odd];
        assert_eq!(names.missed(), told);
        assert_eq!(names.missed(), []);
    }

    #[test]
    fn an_address_that_is_granted_as_one_has_no_name_and_is_not_refused() {
        let name = |host: &str| Name { host: host.to_owned(), star: false, port: 80 };
        let doors = Doors { names: vec![name("192.0.2.7"), name("a.org")] };
        let mut names = Names::of(&Layout::of(&doors).unwrap().unwrap());
        assert_eq!(ask(&mut names, "192.0.2.7", 1), (3, None));
        assert_eq!(names.missed(), []);
    }

    #[test]
    fn a_label_with_a_dot_in_it_is_no_two_labels() {
        let mut asked = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 5];
        asked.extend_from_slice(b"a.org\0\0\x01\0\x01");
        assert_eq!(names().answer(&asked).unwrap()[3] & 0xf, 3);
    }

    #[test]
    fn what_cannot_be_read_is_told_so_and_answers_are_not_answered() {
        let mut names = names();
        let good = query("a.org", 1);
        let mut answer = good.clone();
        answer[2] |= 0x80;
        assert_eq!(names.answer(&answer), None);
        assert_eq!(names.answer(&good[..11]), None);
        for cut in 12..good.len() {
            assert_eq!(names.answer(&good[..cut]).unwrap()[3] & 0xf, 1, "{cut}");
        }
        let mut two = good.clone();
        two[5] = 2;
        assert_eq!(names.answer(&two).unwrap()[3] & 0xf, 1);
        let mut notify = good.clone();
        notify[2] = 0x20;
        assert_eq!(names.answer(&notify).unwrap()[3] & 0xf, 4);
        let mut pointer = good[..12].to_vec();
        pointer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
        assert_eq!(names.answer(&pointer).unwrap()[3] & 0xf, 1);
    }

    #[test]
    fn no_bytes_make_it_panic_or_answer_at_length() {
        let mut state = 0x2545_f491_u32;
        let mut names = names();
        for length in 0..3000 {
            let mut bytes = query("a.org", 1);
            bytes.resize(length % 300, 0);
            for byte in bytes.iter_mut().skip(12).step_by(3) {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = state.to_le_bytes()[3];
            }
            if let Some(answer) = names.answer(&bytes) {
                assert!(answer.len() <= 512);
            }
        }
    }
}
