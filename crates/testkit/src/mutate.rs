//! Any bytes that are like others: what a fuzz target is fed in ordinary tests.

/// Calls `then` with each seed and with so many seeded mutations, always the same ones; a piece that is moved or taken
/// from another seed has up to `longest` bytes.
pub fn mutated(seeds: &[&[u8]], rounds: usize, longest: usize, then: impl Fn(&[u8])) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let n = u64::try_from(n.max(1)).unwrap_or(u64::MAX);
        usize::try_from(state % n).unwrap_or_default()
    };
    seeds.iter().for_each(|seed| then(seed));
    for round in 0..rounds {
        let mut bytes = seeds[round % seeds.len()].to_vec();
        for _ in 0..=random(4) {
            let at = random(bytes.len());
            match random(5) {
                0 => bytes.insert(at, u8::try_from(random(256)).unwrap_or_default()),
                1 if !bytes.is_empty() => bytes[at] ^= 1 << random(8),
                2 => bytes.truncate(at.max(1)),
                3 => {
                    let piece: Vec<u8> = bytes[at..].iter().copied().take(1 + random(longest)).collect();
                    let to = random(bytes.len());
                    bytes.splice(to..to, piece);
                }
                _ => {
                    let other = seeds[random(seeds.len())];
                    let from = random(other.len());
                    let piece = other[from..].iter().copied().take(1 + random(longest));
                    let end = (at + random(longest)).min(bytes.len());
                    bytes.splice(at..end, piece.collect::<Vec<_>>());
                }
            }
        }
        then(&bytes);
    }
}
