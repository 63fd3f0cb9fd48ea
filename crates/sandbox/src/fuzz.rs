//! What a guest's bytes reach first, for fuzzing and for the same in small among the tests.

use std::io;
use std::pin::Pin;
use std::task::{Context, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::doors::{
    Doors, Exchange, GuestStream, Knock, Layout, MISSED, Missed, Misses, Name, Names, STREAMS, Window, Writer,
};
use crate::wire::{Decoder, PIECE};

fn doors() -> Doors {
    let name = |host: &str, star| Name { host: host.to_owned(), star, port: 443 };
    Doors { names: vec![name("a.org", false), name("b.org", true)] }
}

/// Any bytes as what comes over the channel of a sandbox with a grant, up to the first that its init would never
/// send. Who serves the streams reads, writes, ends and lets go as their numbers say.
pub fn frames(bytes: &[u8]) {
    let (exchange, mut knocks, mut missing) = Exchange::new(doors());
    let (mut decoder, mut served, mut told) = (Decoder::default(), Vec::new(), 0);
    let writer = Writer::new(&exchange);
    for piece in bytes.chunks(1000) {
        decoder.push(piece);
        loop {
            let sound = match decoder.next() {
                Ok(Some(frame)) => exchange.take(frame).is_ok(),
                Ok(None) => break,
                Err(_) => false,
            };
            if !sound {
                // The sandbox is lost.
                return exchange.lose();
            }
            while let Ok(Knock { stream, .. }) = knocks.try_recv() {
                served.push(stream);
            }
            let (streams, held) = exchange.held();
            while let Ok(missed) = missing.try_recv() {
                assert_eq!(Missed::read(&missed.written()), Some(missed));
                told += 1;
            }
            assert!(told <= MISSED, "names without end");
            assert!(streams <= STREAMS && held <= streams * Window::FULL, "{streams} {held}");
        }
        for n in (0..served.len()).rev() {
            if !step(&mut served[n], n) {
                drop(served.swap_remove(n));
            }
        }
        while let Some(Some(frame)) = writer.now() {
            assert!(frame.len() <= PIECE + 9);
        }
    }
}

/// Does something with a stream; false when it is to be let go.
fn step(stream: &mut GuestStream, n: usize) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    let mut space = [0; 700];
    let mut buffer = ReadBuf::new(&mut space);
    let wants = |result: io::Result<()>| result.is_ok();
    match n % 5 {
        0 => match Pin::new(stream).poll_read(&mut cx, &mut buffer) {
            std::task::Poll::Ready(read) => wants(read) && !buffer.filled().is_empty(),
            std::task::Poll::Pending => true,
        },
        1 => match Pin::new(stream).poll_write(&mut cx, &[1; 900]) {
            std::task::Poll::Ready(written) => wants(written.map(|_| ())),
            std::task::Poll::Pending => true,
        },
        2 => {
            let ended = Pin::new(stream).poll_shutdown(&mut cx);
            ended.is_ready()
        }
        3 => true,
        _ => false,
    }
}

/// Any bytes as a question to the resolver of a sandbox with a grant.
pub fn question(bytes: &[u8]) {
    let Ok(Some(layout)) = Layout::of(&doors()) else { return };
    let mut names = Names::of(&layout);
    let first = names.answer(bytes);
    for missed in names.missed() {
        assert!(Misses::default().hear(&missed, &doors()), "what is told is taken");
        assert_eq!(Missed::read(&missed.written()), Some(missed), "what is told is understood");
    }
    assert!(first.as_ref().is_none_or(|answer| answer.len() <= 512));
    assert_eq!(first, names.answer(bytes), "names never move");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Frame, Kind};

    /// Calls `then` with each seed and with so many seeded mutations.
    fn mutated(seeds: &[Vec<u8>], rounds: usize, then: impl Fn(&[u8])) {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % u64::try_from(n.max(1)).unwrap()).unwrap()
        };
        seeds.iter().for_each(|seed| then(seed));
        for round in 0..rounds {
            let mut bytes = seeds[round % seeds.len()].clone();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                match random(4) {
                    0 => bytes.insert(at, u8::try_from(random(256)).unwrap()),
                    1 if !bytes.is_empty() => bytes[at] ^= 1 << random(8),
                    2 => bytes.truncate(at.max(1)),
                    _ => {
                        let piece: Vec<u8> = bytes[at..].iter().copied().take(1 + random(300)).collect();
                        let to = random(bytes.len());
                        bytes.splice(to..to, piece);
                    }
                }
            }
            then(&bytes);
        }
    }

    #[test]
    fn frames_of_any_bytes_neither_panic_nor_grow() {
        let mut talk = Vec::new();
        for number in 0..8 {
            let frames = [
                (Kind::Knock, if number % 2 == 0 { b"".to_vec() } else { b"\xbb\x01x.b.org".to_vec() }),
                (Kind::Data, vec![b'x'; 700]),
                (Kind::Credit, 1000_u32.to_le_bytes().to_vec()),
                (Kind::Finish, Vec::new()),
                (Kind::Close, Vec::new()),
            ];
            for (kind, payload) in frames {
                talk.extend(Frame::new(kind, number, payload).encode());
            }
            let missed = Missed::Unknown { host: format!("h{number}.test") };
            talk.extend(Frame::new(Kind::Missed, 0, missed.written()).encode());
        }
        let kept = [
            &include_bytes!("../../../fuzz/corpus/frames/talk")[..],
            include_bytes!("../../../fuzz/corpus/frames/names"),
        ];
        let seeds = [&[talk][..], &kept.map(<[u8]>::to_vec)].concat();
        mutated(&seeds, 5000, frames);
    }

    #[test]
    fn questions_of_any_bytes_are_answered_the_same_way_twice() {
        mutated(&[include_bytes!("../../../fuzz/corpus/question/a").to_vec()], 20_000, question);
    }
}
