//! What hostile files reach first, for fuzzing and for the same in small among the tests.

use crate::narrower::{Capability, GuildFiles, Review, Severity, compare};
use crate::{Date, Deployment, Faults, Guild, Places, Waivers};

/// Any bytes as a Guild, or as two that are parted by the first byte 255; as a deployment and as waivers too. Nothing
/// panics, what is told is clean and bounded, and the gate's findings say what its order says.
pub fn guild(bytes: &[u8]) {
    let mut halves = bytes.splitn(2, |b| *b == 0xff).map(String::from_utf8_lossy);
    let (old, new) = (halves.next().unwrap_or_default(), halves.next());
    let files = GuildFiles::default();
    let deployment = told(Deployment::parse("oubliette.toml", &old)).unwrap_or_default();
    let today = Date::of_unix(u64::try_from(bytes.len()).unwrap_or(0) * 86_400);
    let waivers = told(Waivers::parse("foundry.toml", &old, today)).unwrap_or_default();
    Places::of(&old).find("roles.a.tools[3]");
    let Some(old) = told(Guild::parse("guild.toml", &old)) else { return };
    let old = Capability::of(&deployment, &old, &files);
    assert!(old.within(&old) && compare(&old, &old).is_empty());
    let Some(new) = new.and_then(|new| told(Guild::parse("guild.toml", &new))) else { return };
    let new = Capability::of(&deployment, &new, &files);
    let wider = compare(&old, &new).iter().any(|finding| finding.severity == Severity::Wider);
    assert_eq!(wider, !new.within(&old));
    let met = old.meet(&new);
    assert!(met.within(&old) && met.within(&new));
    let review = Review::of(&old, &new, Vec::new(), &waivers);
    assert!(review.refused || !wider || review.findings.iter().any(|finding| finding.waived.is_some()));
}

fn told<T>(read: Result<T, Faults>) -> Option<T> {
    match read {
        Ok(value) => Some(value),
        Err(faults) => {
            let said = faults.to_string();
            assert!(said.len() < 1 << 20 && said.chars().all(|c| c == '\n' || !c.is_control()), "{said:?}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guilds_of_any_bytes_are_read_and_compared_without_a_fall() {
        let seeds: [&[u8]; 3] = [
            include_bytes!("../../../fuzz/corpus/guild/one"),
            include_bytes!("../../../fuzz/corpus/guild/two"),
            include_bytes!("../../../fuzz/corpus/guild/waiver"),
        ];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % u64::try_from(n.max(1)).unwrap()).unwrap()
        };
        seeds.iter().for_each(|seed| guild(seed));
        for round in 0..3000 {
            let mut bytes = seeds[round % seeds.len()].to_vec();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                match random(4) {
                    0 => bytes.insert(at, u8::try_from(random(256)).unwrap()),
                    1 => bytes[at] ^= 1 << random(8),
                    2 => bytes.truncate(at.max(1)),
                    _ => {
                        // A line in another place.
                        let from = bytes[..at].iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
                        let line: Vec<u8> =
                            bytes[from..].split_inclusive(|b| *b == b'\n').next().unwrap().to_vec();
                        let to = random(bytes.len());
                        let to = bytes[..to].iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
                        bytes.splice(to..to, line);
                    }
                }
            }
            guild(&bytes);
        }
    }

    /// Otherwise the second half is never compared.
    #[test]
    fn the_seeds_are_sound() {
        let one = String::from_utf8_lossy(include_bytes!("../../../fuzz/corpus/guild/one"));
        let two = include_bytes!("../../../fuzz/corpus/guild/two");
        assert!(Guild::parse("one", &one).is_ok());
        for half in two.split(|b| *b == 0xff) {
            let text = std::str::from_utf8(half).unwrap();
            Guild::parse("two", text).unwrap_or_else(|e| panic!("{e}"));
        }
        let waiver = include_str!("../../../fuzz/corpus/guild/waiver");
        assert!(Waivers::parse("waiver", waiver, Date::of_unix(0)).is_ok());
    }
}
