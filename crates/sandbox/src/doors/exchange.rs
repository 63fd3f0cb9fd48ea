//! Streams over the channel, the executor's end: frames come in and go out, streams are handed to who asked for
//! knocks.
//!
//! ```text
//!   guest's init                                executor
//!        │ ── Knock: what was asked for ──────────▶ │   the guest chooses a number that is free
//!        │ ◀─ Data, Credit, Finish ─ both ways ───▶ │   Data as far as Credit allows, Finish ends one direction
//!        │ ◀─ Close ──────────────── both ways ───▶ │   once each; a direction that was not finished is broken off
//! ```
//!
//! Beside these there is `Missed`, what the guest's resolver had no address for: of no stream, and only so often
//! (`missed.rs`). A number is free again when both have closed, so that nothing can be sent to a stream of before. Nothing here
//! waits for the guest, and what a stream may hold is bounded on both ways: what comes by its window, what goes by
//! one piece at a time. Whoever sends what it may not is not our init any more, and loses its sandbox.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::ReadBuf;
use tokio::sync::{Notify, mpsc};

use super::{
    Asked, Doors, GuestStream, Held, Knock, Knocks, MISSED, Missed, Misses, Missing, STREAMS, Window,
    Windows, is_name, piece_of_all,
};
use crate::wire::{Frame, HEAD, Kind, PIECE, head};

/// All streams of a sandbox.
#[derive(Debug)]
pub(crate) struct Exchange {
    doors: Doors,
    state: Mutex<State>,
    /// There is something to send.
    sending: Notify,
}

#[derive(Debug)]
struct State {
    streams: HashMap<u32, Stream>,
    /// Who has something to send, each once.
    queue: VecDeque<u32>,
    /// What all may have under way towards here.
    under_way: Windows,
    /// Bytes of all pieces that are to be sent.
    pieces: usize,
    knocks: mpsc::Sender<Knock>,
    misses: Misses,
    missed: mpsc::Sender<Missed>,
    lost: bool,
}

#[derive(Debug)]
struct Stream {
    held: Held,
    window: Window,
    coming: Coming,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// What the guest still takes.
    credit: usize,
    /// The piece that is to be sent, with room for its head; or nothing.
    piece: Vec<u8>,
    /// What the guest may send more.
    give: u32,
    going: Going,
    /// The stream was dropped here.
    dropped: bool,
    closed: bool,
    queued: bool,
}

/// What comes from the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coming {
    Open,
    Finished,
    /// The guest has closed: for good, and before its end if that had not come.
    Closed {
        whole: bool,
    },
}

/// What goes to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Going {
    Open,
    /// An end that is still to be told.
    Ending,
    Ended,
}

/// A frame that no init of ours sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// One stream, as it is held by who serves it.
#[derive(Debug)]
pub(super) struct Line {
    exchange: Arc<Exchange>,
    number: u32,
}

/// What is to be sent, one frame after the other.
#[derive(Debug)]
pub(crate) struct Writer(Arc<Exchange>);

impl Exchange {
    pub(crate) fn new(doors: Doors) -> (Arc<Exchange>, Knocks, Missing) {
        let (knocks, arriving) = mpsc::channel(STREAMS);
        let (missed, missing) = mpsc::channel(MISSED);
        let state = State {
            streams: HashMap::new(),
            queue: VecDeque::new(),
            under_way: Windows::to_executor(),
            pieces: 0,
            knocks,
            misses: Misses::default(),
            missed,
            lost: false,
        };
        (Arc::new(Exchange { doors, state: Mutex::new(state), sending: Notify::new() }), arriving, missing)
    }

    /// Takes a frame of the guest's. Never waits.
    pub(crate) fn take(self: &Arc<Exchange>, frame: Frame) -> Result<(), Broken> {
        let Frame { kind, call: number, payload } = frame;
        if kind == Kind::Knock {
            return self.knock(number, &payload);
        }
        if kind == Kind::Missed {
            return self.missed(number, &payload);
        }
        let mut state = self.lock();
        let State { streams, under_way, pieces, .. } = &mut *state;
        let stream = streams.get_mut(&number).ok_or(Broken)?;
        match kind {
            Kind::Data if stream.coming == Coming::Open && !payload.is_empty() && payload.len() <= PIECE => {
                if !stream.window.came(payload.len()) {
                    return Err(Broken);
                }
                // Nobody reads what was dropped; the guest hears of that by itself.
                if !stream.dropped {
                    stream.held.push(payload);
                    wake(&mut stream.reader);
                }
            }
            Kind::Finish if stream.coming == Coming::Open && payload.is_empty() => {
                stream.coming = Coming::Finished;
                wake(&mut stream.reader);
            }
            Kind::Credit if !matches!(stream.coming, Coming::Closed { .. }) => {
                let more = payload.try_into().map(u32::from_le_bytes).map_err(|_| Broken)?;
                let credit = stream.credit.saturating_add(usize::try_from(more).unwrap_or(usize::MAX));
                if more == 0 || credit > Window::FULL {
                    return Err(Broken);
                }
                stream.credit = credit;
                wake(&mut stream.writer);
            }
            Kind::Close if !matches!(stream.coming, Coming::Closed { .. }) && payload.is_empty() => {
                stream.coming = Coming::Closed { whole: stream.coming == Coming::Finished };
                *pieces -= stream.waiting();
                stream.piece = Vec::new();
                wake(&mut stream.reader);
                wake(&mut stream.writer);
                if stream.closed {
                    stream.window.close(under_way);
                    streams.remove(&number);
                }
            }
            // Also what only goes to a guest, and what belongs to calls.
            Kind::Data
            | Kind::Finish
            | Kind::Credit
            | Kind::Close
            | Kind::Knock
            | Kind::Missed
            | Kind::Start
            | Kind::Kill
            | Kind::Sweep
            | Kind::Collect
            | Kind::Hello
            | Kind::Stdout
            | Kind::Stderr
            | Kind::End => return Err(Broken),
        }
        Ok(())
    }

    fn knock(self: &Arc<Exchange>, number: u32, payload: &[u8]) -> Result<(), Broken> {
        let way = asked(payload).ok_or(Broken)?;
        if let Asked::Named { host, port } = &way
            && !self.doors.grant(host, *port)
        {
            return Err(Broken);
        }
        let knocks = {
            let mut state = self.lock();
            if state.streams.len() >= STREAMS || state.streams.contains_key(&number) {
                return Err(Broken);
            }
            let window = state.under_way.open();
            state.streams.insert(number, Stream::new(window));
            state.knocks.clone()
        };
        let line = Line { exchange: Arc::clone(self), number };
        // Room is there for as many as may be open. Where nobody wants to hear of it, it is closed by its end here.
        drop(knocks.try_send(Knock { way, stream: GuestStream::line(line) }));
        Ok(())
    }

    fn missed(&self, number: u32, payload: &[u8]) -> Result<(), Broken> {
        let missed = Missed::read(payload).filter(|_| number == 0).ok_or(Broken)?;
        let mut state = self.lock();
        if !state.misses.hear(&missed, &self.doors) {
            return Err(Broken);
        }
        // Lost only where nobody wants to hear of it.
        state.missed.try_send(missed).ok();
        Ok(())
    }

    /// The guest is gone.
    pub(crate) fn lose(&self) {
        let mut state = self.lock();
        state.lost = true;
        state.queue.clear();
        for stream in state.streams.values_mut() {
            wake(&mut stream.reader);
            wake(&mut stream.writer);
        }
        self.sending.notify_one();
    }

    /// Streams, and bytes that came for them and were not read.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn held(&self) -> (usize, usize) {
        let state = self.lock();
        (state.streams.len(), state.streams.values().map(|stream| stream.held.bytes()).sum())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that a stream has something to send.
    fn queue(&self, state: &mut State, number: u32) {
        if let Some(stream) = state.streams.get_mut(&number)
            && !stream.queued
            && !state.lost
        {
            stream.queued = true;
            state.queue.push_back(number);
            self.sending.notify_one();
        }
    }
}

impl Stream {
    fn new(window: Window) -> Stream {
        Stream {
            held: Held::default(),
            window,
            coming: Coming::Open,
            reader: None,
            writer: None,
            credit: Window::TO_GUEST,
            piece: Vec::new(),
            give: 0,
            going: Going::Open,
            dropped: false,
            closed: false,
            queued: false,
        }
    }

    /// Bytes of the piece.
    fn waiting(&self) -> usize {
        self.piece.len().saturating_sub(HEAD)
    }

    /// The next frame of this stream; bytes of a piece are counted off.
    fn next(&mut self, number: u32, pieces: &mut usize) -> Option<Vec<u8>> {
        let word = |kind, payload: &[u8]| [&head(kind, number, payload.len()), payload].concat();
        let gone = matches!(self.coming, Coming::Closed { .. });
        if !self.piece.is_empty() && !gone {
            let length = self.waiting();
            *pieces -= length;
            let mut piece = std::mem::take(&mut self.piece);
            piece[..HEAD].copy_from_slice(&head(Kind::Data, number, length));
            wake(&mut self.writer);
            return Some(piece);
        }
        if self.going == Going::Ending && !gone {
            self.going = Going::Ended;
            return Some(word(Kind::Finish, &[]));
        }
        if self.give > 0 && !self.dropped && self.coming == Coming::Open {
            return Some(word(Kind::Credit, &std::mem::take(&mut self.give).to_le_bytes()));
        }
        if self.dropped && !self.closed {
            self.closed = true;
            return Some(word(Kind::Close, &[]));
        }
        None
    }
}

impl Writer {
    pub(crate) fn new(exchange: &Arc<Exchange>) -> Writer {
        Writer(Arc::clone(exchange))
    }

    /// The next frame, from each stream in turn; none when the guest is gone.
    pub(crate) async fn next(&self) -> Option<Vec<u8>> {
        loop {
            if let Some(found) = self.now() {
                return found;
            }
            self.0.sending.notified().await;
        }
    }

    /// The same without waiting: nothing to send, no more to be sent ever, or a frame.
    pub(crate) fn now(&self) -> Option<Option<Vec<u8>>> {
        let mut state = self.0.lock();
        loop {
            if state.lost {
                return Some(None);
            }
            let number = state.queue.pop_front()?;
            let State { streams, queue, under_way, pieces, .. } = &mut *state;
            let Some(stream) = streams.get_mut(&number) else { continue };
            let Some(frame) = stream.next(number, pieces) else {
                stream.queued = false;
                continue;
            };
            if stream.closed && matches!(stream.coming, Coming::Closed { .. }) {
                stream.window.close(under_way);
                streams.remove(&number);
            } else {
                // Behind the others; what it has besides comes then.
                queue.push_back(number);
            }
            return Some(Some(frame));
        }
    }
}

impl Line {
    pub(super) fn poll_read(&mut self, cx: &Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.exchange.lock();
        let State { streams, under_way, lost, .. } = &mut *state;
        let Some(stream) = streams.get_mut(&self.number) else { return Poll::Ready(Err(reset())) };
        if stream.held.is_empty() {
            return match stream.coming {
                Coming::Finished | Coming::Closed { whole: true } => Poll::Ready(Ok(())),
                Coming::Closed { whole: false } => Poll::Ready(Err(reset())),
                Coming::Open if *lost => Poll::Ready(Err(reset())),
                Coming::Open => {
                    stream.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
        }
        let mut taken = 0;
        while buffer.remaining() > 0 && !stream.held.is_empty() {
            let some = stream.held.next();
            let some = &some[..some.len().min(buffer.remaining())];
            buffer.put_slice(some);
            let n = some.len();
            stream.held.took(n);
            taken += n;
        }
        if let Some(more) = stream.window.took(taken, under_way) {
            stream.give = stream.give.saturating_add(more);
            self.exchange.queue(&mut state, self.number);
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_write(&mut self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.exchange.lock();
        let State { streams, pieces, lost, .. } = &mut *state;
        let lost = *lost;
        let stream = streams.get_mut(&self.number);
        let open = |stream: &&mut Stream| {
            !lost && stream.going == Going::Open && !matches!(stream.coming, Coming::Closed { .. })
        };
        let Some(stream) = stream.filter(open) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        // Who waits is woken when its own piece goes, and one that has none has room.
        let waiting = stream.waiting();
        let room = piece_of_all(waiting, *pieces).min(PIECE).saturating_sub(waiting);
        let n = bytes.len().min(stream.credit).min(room);
        if n == 0 {
            stream.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let length = HEAD + waiting;
        stream.piece.reserve_exact(length + n - stream.piece.len());
        stream.piece.resize(length, 0);
        stream.piece.extend_from_slice(&bytes[..n]);
        stream.credit -= n;
        *pieces += n;
        self.exchange.queue(&mut state, self.number);
        Poll::Ready(Ok(n))
    }

    /// Nothing more is written.
    pub(super) fn finish(&mut self) {
        let mut state = self.exchange.lock();
        if let Some(stream) = state.streams.get_mut(&self.number)
            && stream.going == Going::Open
        {
            stream.going = Going::Ending;
            self.exchange.queue(&mut state, self.number);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut state = self.exchange.lock();
        if let Some(stream) = state.streams.get_mut(&self.number) {
            stream.dropped = true;
            stream.held.clear();
            self.exchange.queue(&mut state, self.number);
        }
    }
}

/// What a knock says: nothing for the proxy, else port and name.
fn asked(payload: &[u8]) -> Option<Asked> {
    let Some((port, host)) = payload.split_first_chunk::<2>() else {
        return payload.is_empty().then_some(Asked::Proxy);
    };
    let host = std::str::from_utf8(host).ok().filter(|host| is_name(host))?;
    Some(Asked::Named { host: host.to_owned(), port: u16::from_le_bytes(*port) })
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::Name;
    use super::*;
    use crate::wire::Decoder;

    fn open() -> (Arc<Exchange>, Knocks) {
        let (exchange, knocks, _) = told();
        (exchange, knocks)
    }

    fn told() -> (Arc<Exchange>, Knocks, Missing) {
        let name = |host: &str, star| Name { host: host.to_owned(), star, port: 443 };
        Exchange::new(Doors { names: vec![name("a.org", false), name("b.org", true)] })
    }

    fn say(exchange: &Arc<Exchange>, kind: Kind, number: u32, payload: &[u8]) -> Result<(), Broken> {
        exchange.take(Frame::new(kind, number, payload.to_vec()))
    }

    /// What is to be sent next.
    fn sent_one(exchange: &Arc<Exchange>) -> Option<Frame> {
        let mut decoder = Decoder::default();
        decoder.push(&Writer::new(exchange).now()??);
        decoder.next().unwrap()
    }

    /// All that is to be sent now.
    fn sent(exchange: &Arc<Exchange>) -> Vec<Frame> {
        let frames: Vec<Frame> = std::iter::from_fn(|| sent_one(exchange)).take(10_000).collect();
        assert!(frames.len() < 10_000);
        frames
    }

    fn kinds(frames: &[Frame]) -> Vec<Kind> {
        frames.iter().map(|frame| frame.kind).collect()
    }

    #[test]
    fn a_knock_says_what_was_asked_for_and_only_what_is_granted_may_be() {
        let (exchange, mut knocks) = open();
        say(&exchange, Kind::Knock, 1, b"").unwrap();
        say(&exchange, Kind::Knock, 2, b"\xbb\x01a.org").unwrap();
        say(&exchange, Kind::Knock, 3, b"\xbb\x01x.b.org").unwrap();
        let mut ways = Vec::new();
        let mut held = Vec::new();
        while let Ok(Knock { way, stream }) = knocks.try_recv() {
            ways.push(way);
            held.push(stream);
        }
        let named = |host: &str| Asked::Named { host: host.to_owned(), port: 443 };
        assert_eq!(ways, [Asked::Proxy, named("a.org"), named("x.b.org")]);
        for lie in [
            &b"\xbb"[..],
            b"\xbb\x01",
            b"\xbb\x01A.org",
            b"\xbb\x01c.org",
            b"\x50\x00a.org",
            b"\xbb\x01x.y.b.org",
            b"\xbb\x01*.b.org",
            b"\xbb\x01a.org\0",
            b"\xbb\x01\xff.b.org",
        ] {
            assert_eq!(say(&exchange, Kind::Knock, 9, lie), Err(Broken), "{lie:?}");
        }
    }

    #[tokio::test]
    async fn a_stream_has_two_directions_and_its_number_is_free_when_both_have_closed() {
        let (exchange, mut knocks) = open();
        say(&exchange, Kind::Knock, 5, b"").unwrap();
        let mut stream = knocks.recv().await.unwrap().stream;
        say(&exchange, Kind::Data, 5, b"hello").unwrap();
        say(&exchange, Kind::Finish, 5, b"").unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "hello");
        stream.write_all(b"answer").await.unwrap();
        stream.shutdown().await.unwrap();
        assert!(stream.write_all(b"x").await.is_err());
        let frames = sent(&exchange);
        assert_eq!(kinds(&frames), [Kind::Data, Kind::Finish]);
        assert_eq!((frames[0].call, frames[0].payload.as_slice()), (5, &b"answer"[..]));
        drop(stream);
        assert_eq!(kinds(&sent(&exchange)), [Kind::Close]);
        assert_eq!(say(&exchange, Kind::Knock, 5, b""), Err(Broken));
        say(&exchange, Kind::Close, 5, b"").unwrap();
        assert_eq!(exchange.held().0, 0);
        assert!(exchange.lock().under_way.is_empty());
        say(&exchange, Kind::Knock, 5, b"").unwrap();
    }

    #[tokio::test]
    async fn what_was_not_finished_is_broken_off() {
        let (exchange, mut knocks) = open();
        for number in 1..=2 {
            say(&exchange, Kind::Knock, number, b"").unwrap();
            say(&exchange, Kind::Data, number, b"part").unwrap();
        }
        let (mut first, mut second) =
            (knocks.recv().await.unwrap().stream, knocks.recv().await.unwrap().stream);
        say(&exchange, Kind::Close, 1, b"").unwrap();
        let mut part = [0; 4];
        first.read_exact(&mut part).await.unwrap();
        assert_eq!(first.read(&mut part).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert!(first.write(b"x").await.is_err());
        exchange.lose();
        second.read_exact(&mut part).await.unwrap();
        assert_eq!(second.read(&mut part).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert!(second.write(b"x").await.is_err());
        assert!(sent(&exchange).is_empty());
    }

    #[test]
    fn a_guest_that_says_what_it_may_not_is_found_out() {
        let knocked = || {
            let (exchange, knocks) = open();
            say(&exchange, Kind::Knock, 1, b"").unwrap();
            (exchange, knocks)
        };
        for (kind, number, payload) in [
            (Kind::Knock, 1, vec![]),
            (Kind::Data, 2, vec![1]),
            (Kind::Data, 1, vec![]),
            (Kind::Data, 1, vec![0; PIECE + 1]),
            (Kind::Finish, 1, vec![1]),
            (Kind::Credit, 1, vec![]),
            (Kind::Credit, 1, vec![0; 4]),
            (Kind::Credit, 1, vec![255; 4]),
            (Kind::Credit, 1, vec![1, 0, 0, 0, 0]),
            (Kind::Close, 1, vec![1]),
            (Kind::Start, 1, vec![]),
            (Kind::Stdout, 1, vec![]),
        ] {
            let (exchange, _knocks) = knocked();
            assert_eq!(say(&exchange, kind, number, &payload), Err(Broken), "{kind:?} {number}");
        }
        for then in [Kind::Data, Kind::Finish] {
            let (exchange, _knocks) = knocked();
            say(&exchange, Kind::Finish, 1, b"").unwrap();
            assert_eq!(say(&exchange, then, 1, if then == Kind::Data { b"x" } else { b"" }), Err(Broken));
        }
        for then in [Kind::Data, Kind::Finish, Kind::Credit, Kind::Close] {
            let (exchange, _knocks) = knocked();
            say(&exchange, Kind::Close, 1, b"").unwrap();
            assert_eq!(
                say(&exchange, then, 1, &[1, 0, 0, 0][..if then == Kind::Credit { 4 } else { 0 }]),
                Err(Broken)
            );
        }
    }

    #[test]
    fn what_a_resolver_had_no_address_for_is_told_and_a_lie_about_it_found_out() {
        let (exchange, _knocks, mut missing) = told();
        let unknown = |host: &str| Missed::Unknown { host: host.to_owned() };
        for missed in [unknown("c.org"), Missed::Odd] {
            say(&exchange, Kind::Missed, 0, &missed.written()).unwrap();
            assert_eq!(missing.try_recv(), Ok(missed));
        }
        for lie in [
            unknown("a.org").written(),
            unknown("x.b.org").written(),
            unknown("c.org").written(),
            unknown("sandbox").written(),
            unknown("1.0.0.127.in-addr.arpa").written(),
            Missed::Odd.written(),
            Missed::Full { host: "c.org".to_owned() }.written(),
            Missed::More { questions: 1 }.written(),
            b"\0C.org".to_vec(),
            [&b"\0"[..], &[b'x'; 70_000]].concat(),
            Vec::new(),
        ] {
            assert_eq!(say(&exchange, Kind::Missed, 0, &lie), Err(Broken), "{:?}", &lie[..lie.len().min(20)]);
        }
        assert_eq!(say(&exchange, Kind::Missed, 1, &unknown("d.org").written()), Err(Broken));
        assert!(missing.try_recv().is_err());
    }

    #[test]
    fn names_that_a_guest_says_are_bounded_whether_somebody_hears_or_not() {
        for heard in [true, false] {
            let (exchange, _knocks, missing) = told();
            let kept = heard.then_some(missing);
            let name = |n: u32| Missed::Unknown { host: format!("h{n}.test") }.written();
            for n in 0..64 {
                say(&exchange, Kind::Missed, 0, &name(n)).unwrap();
            }
            assert_eq!(say(&exchange, Kind::Missed, 0, &name(64)), Err(Broken));
            let more = |n: u32| Missed::More { questions: 1 << n }.written();
            for n in 0..=32 {
                say(&exchange, Kind::Missed, 0, &more(n)).unwrap();
                assert_eq!(say(&exchange, Kind::Missed, 0, &more(n)), Err(Broken));
            }
            for n in 33..64 {
                assert_eq!(say(&exchange, Kind::Missed, 0, &more(n)), Err(Broken));
            }
            assert_eq!(kept.map_or(0, |missing| missing.len()), if heard { MISSED } else { 0 });
        }
    }

    /// Nobody reads and nobody takes: what is held stays within the windows, however small its pieces are.
    #[test]
    fn nothing_grows_by_what_a_guest_sends() {
        let (exchange, _knocks) = open();
        for number in 0..u32::try_from(STREAMS).unwrap() {
            say(&exchange, Kind::Knock, number, b"").unwrap();
        }
        assert_eq!(say(&exchange, Kind::Knock, 1000, b""), Err(Broken));
        for _ in 0..Window::TO_EXECUTOR {
            say(&exchange, Kind::Data, 7, b"x").unwrap();
        }
        assert_eq!(say(&exchange, Kind::Data, 7, b"x"), Err(Broken));
        assert!(sent(&exchange).is_empty());
    }

    /// What a guest allows is bounded here, and nothing is taken from a writer that cannot be sent soon.
    #[tokio::test]
    async fn nothing_grows_by_what_a_guest_does_not_take() {
        let (exchange, mut knocks) = open();
        say(&exchange, Kind::Knock, 1, b"").unwrap();
        let stream = knocks.recv().await.unwrap().stream;
        let (_read, mut write) = tokio::io::split(stream);
        let writing = tokio::spawn(async move {
            let mut total = 0;
            while let Ok(n) = write.write(&[7; 10_000]).await {
                total += n;
            }
            total
        });
        let mut taken = 0;
        for _ in 0..100 {
            tokio::task::yield_now().await;
            taken += sent(&exchange).iter().map(|frame| frame.payload.len()).sum::<usize>();
        }
        assert_eq!(taken, Window::TO_GUEST);
        say(&exchange, Kind::Credit, 1, &200_000_u32.to_le_bytes()).unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
            let frames = sent(&exchange);
            assert!(frames.iter().all(|frame| frame.payload.len() <= PIECE));
            taken += frames.iter().map(|frame| frame.payload.len()).sum::<usize>();
        }
        assert_eq!(taken, Window::TO_GUEST + 200_000);
        exchange.lose();
        assert!(writing.await.unwrap() >= taken);
    }

    /// As many streams as may be, each with somebody who writes more than is taken.
    async fn writers() -> (Arc<Exchange>, Vec<tokio::task::JoinHandle<()>>) {
        let (exchange, mut knocks) = open();
        let mut writers = Vec::new();
        for number in 0..u32::try_from(STREAMS).unwrap() {
            say(&exchange, Kind::Knock, number, b"").unwrap();
            let mut stream = knocks.recv().await.unwrap().stream;
            writers.push(tokio::spawn(async move {
                stream.write_all(&[7; Window::TO_GUEST + 1]).await.ok();
            }));
        }
        while exchange.lock().queue.len() < STREAMS {
            tokio::task::yield_now().await;
        }
        (exchange, writers)
    }

    #[tokio::test]
    async fn pieces_of_all_streams_together_are_bounded() {
        let (exchange, _writers) = writers().await;
        let state = exchange.lock();
        let held: usize = state.streams.values().map(Stream::waiting).sum();
        let room: usize = state.streams.values().map(|stream| stream.piece.capacity()).sum();
        assert_eq!(held, state.pieces);
        assert!(room <= 1300 << 10, "{room}");
    }

    #[tokio::test]
    async fn every_writer_has_its_turn_however_many_there_are() {
        let (exchange, _writers) = writers().await;
        let mut seen: Vec<u32> = (0..STREAMS).map(|_| sent_one(&exchange).unwrap().call).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..u32::try_from(STREAMS).unwrap()).collect::<Vec<u32>>());
    }

    #[tokio::test]
    async fn a_piece_that_was_sent_holds_nothing() {
        let (exchange, writers) = writers().await;
        let mut sent = 0;
        while sent < STREAMS * Window::TO_GUEST {
            sent += sent_one(&exchange).map_or(0, |frame| frame.payload.len());
            tokio::task::yield_now().await;
        }
        // All that was allowed is sent.
        assert_eq!(exchange.lock().pieces, 0);
        drop(writers);
    }

    #[tokio::test]
    async fn a_piece_that_the_guest_wants_no_more_holds_nothing() {
        let (exchange, _writers) = writers().await;
        for number in 0..u32::try_from(STREAMS).unwrap() {
            say(&exchange, Kind::Close, number, b"").unwrap();
        }
        assert_eq!(exchange.lock().pieces, 0);
    }

    #[tokio::test]
    async fn a_piece_whose_writer_was_stopped_holds_nothing_once_it_is_sent() {
        let (exchange, writers) = writers().await;
        for writer in writers {
            writer.abort();
            assert!(writer.await.unwrap_err().is_cancelled());
        }
        assert_eq!(kinds(&sent(&exchange)).iter().filter(|kind| **kind == Kind::Close).count(), STREAMS);
        assert_eq!(exchange.lock().pieces, 0);
    }

    #[tokio::test]
    async fn a_reader_gives_room_and_streams_take_turns() {
        let (exchange, mut knocks) = open();
        say(&exchange, Kind::Knock, 1, b"").unwrap();
        say(&exchange, Kind::Knock, 2, b"").unwrap();
        let (mut first, mut second) =
            (knocks.recv().await.unwrap().stream, knocks.recv().await.unwrap().stream);
        say(&exchange, Kind::Data, 1, &vec![1; Window::TO_EXECUTOR]).unwrap();
        first.read_exact(&mut vec![0; Window::TO_EXECUTOR]).await.unwrap();
        first.write_all(b"one").await.unwrap();
        second.write_all(b"two").await.unwrap();
        let frames = sent(&exchange);
        let order: Vec<(Kind, u32)> = frames.iter().map(|frame| (frame.kind, frame.call)).collect();
        assert_eq!(order, [(Kind::Data, 1), (Kind::Data, 2), (Kind::Credit, 1)]);
        let more = u32::from_le_bytes(frames[2].payload.as_slice().try_into().unwrap());
        assert!(usize::try_from(more).unwrap() > Window::TO_EXECUTOR, "{more}");
    }

    #[test]
    fn knocks_that_nobody_wants_are_closed() {
        let (exchange, knocks) = open();
        drop(knocks);
        for number in 0..1000 {
            say(&exchange, Kind::Knock, number, b"").unwrap();
            assert_eq!(kinds(&sent(&exchange)), [Kind::Close]);
            say(&exchange, Kind::Close, number, b"").unwrap();
        }
        assert_eq!(exchange.lock().streams.len(), 0);
    }
}
