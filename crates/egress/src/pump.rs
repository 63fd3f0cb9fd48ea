//! Bytes from one side to the other, both ways at once, counted and bounded.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use crate::Ended;
use crate::caps::Direction;
use crate::connection::Connection;
use crate::gate::{Answers, Gate, Shut};
use crate::pool::{Lease, Pool};

/// When something last passed.
pub(crate) struct Pulse {
    began: Instant,
    last: AtomicU64,
    /// Directions that have something to say and wait for their turn: that is nobody's silence.
    waiting: AtomicUsize,
}

/// One of them, as long as it is there.
struct Waiting<'a>(&'a Pulse);

/// Why a direction stopped before its end.
pub(crate) enum Stop {
    Ended(Ended),
    Shut(Shut),
}

impl Pulse {
    pub(crate) fn new() -> Pulse {
        Pulse { began: Instant::now(), last: AtomicU64::new(0), waiting: AtomicUsize::new(0) }
    }

    pub(crate) fn beat(&self) {
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(since, Ordering::Relaxed);
    }

    /// Comes back when nothing has passed for so long.
    pub(crate) async fn stops(&self, most: Duration) {
        loop {
            let last = self.began + Duration::from_millis(self.last.load(Ordering::Relaxed));
            let waiting = self.waiting.load(Ordering::Relaxed) > 0;
            let until = if waiting { Instant::now() } else { last } + most;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }

    fn waits(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.beat();
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Says something to a side, no faster than it may pass. Each piece that a side takes is a beat.
pub(crate) async fn say<W: AsyncWrite + Unpin>(
    connection: &Connection,
    direction: Direction,
    bytes: &[u8],
    to: &mut W,
    pulse: &Pulse,
) -> io::Result<()> {
    for turn in bytes.chunks(connection.turn()) {
        let waiting = pulse.waits();
        connection.pace(direction, turn.len()).await;
        drop(waiting);
        let mut rest = turn;
        while !rest.is_empty() {
            let written = to.write(rest).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            pulse.beat();
            rest = &rest[written..];
        }
    }
    Ok(())
}

/// How much of what the guest said the server took.
enum Heard<R> {
    All,
    /// Why not all; the guest may still send.
    Part(String, R),
}

/// Carries everything until both sides have said all. With a gate the guest's bytes pass that first, and it hears the
/// server's.
pub(crate) async fn both<G, T>(
    connection: &Connection,
    guest: &mut G,
    server: T,
    gate: Option<(Gate, Answers)>,
) -> Result<(), Stop>
where
    G: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let pulse = Pulse::new();
    let (from_guest, to_guest) = tokio::io::split(guest);
    let (from_server, to_server) = tokio::io::split(server);
    let (gate, answers) = gate.unzip();
    let up = up(connection, from_guest, to_server, gate, &pulse);
    let down = down(connection, from_server, to_guest, answers, &pulse);
    let gone = |why| Err(Stop::Ended(Ended::ServerGone(why)));
    let ways = async {
        tokio::pin!(up, down);
        tokio::select! {
            heard = &mut up => match heard? {
                Heard::All => down.await,
                // A server that stops listening may have answered: that still goes to the guest.
                Heard::Part(why, from_guest) => tokio::select! {
                    said = down => said.and(gone(why)),
                    never = waste(&connection.inner.pool, from_guest) => match never {},
                },
            },
            said = &mut down => {
                said?;
                match up.await? {
                    Heard::All => Ok(()),
                    Heard::Part(why, _) => gone(why),
                }
            }
        }
    };
    tokio::select! {
        ended = ways => ended,
        () = pulse.stops(connection.idle()) => Err(Stop::Ended(Ended::Idle)),
    }
}

async fn up<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    connection: &Connection,
    mut from: R,
    mut to: W,
    mut gate: Option<Gate>,
    pulse: &Pulse,
) -> Result<Heard<R>, Stop> {
    let mut buffer = Buffer::new(&connection.inner.pool);
    loop {
        let read = buffer.fill(&mut from).await.map_err(|_| Stop::Ended(Ended::GuestGone))?;
        if read.is_empty() {
            // What comes back is waited for still.
            drop(to.shutdown().await);
            return Ok(Heard::All);
        }
        let passed;
        let bytes = match &mut gate {
            Some(gate) => {
                passed = gate.pass(read).map_err(Stop::Shut)?;
                &passed[..]
            }
            None => read,
        };
        connection.take(Direction::Up, bytes.len()).map_err(Stop::Ended)?;
        if let Err(e) = say(connection, Direction::Up, bytes, &mut to, pulse).await {
            return Ok(Heard::Part(e.kind().to_string(), from));
        }
        if gate.as_ref().is_some_and(Gate::is_open) {
            gate = None;
        }
    }
}

async fn down<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    connection: &Connection,
    mut from: R,
    mut to: W,
    mut answers: Option<Answers>,
    pulse: &Pulse,
) -> Result<(), Stop> {
    let mut buffer = Buffer::new(&connection.inner.pool);
    loop {
        let read = buffer.fill(&mut from).await;
        let read = read.map_err(|e| Stop::Ended(Ended::ServerGone(e.kind().to_string())))?;
        if let Some(listening) = &mut answers {
            listening.hear(read);
            if listening.is_done() {
                answers = None;
            }
        }
        if read.is_empty() {
            drop(to.shutdown().await);
            return Ok(());
        }
        connection.take(Direction::Down, read.len()).map_err(Stop::Ended)?;
        let said = say(connection, Direction::Down, read, &mut to, pulse).await;
        said.map_err(|_| Stop::Ended(Ended::GuestGone))?;
    }
}

/// Reads what goes nowhere any more, for one that hears nothing before it has said all.
pub(crate) async fn waste<R: AsyncRead + Unpin>(pool: &Pool, mut from: R) -> Infallible {
    let mut buffer = Buffer::new(pool);
    while buffer.fill(&mut from).await.is_ok_and(|read| !read.is_empty()) {}
    std::future::pending().await
}

/// What was read and is not yet passed on. One that waits for bytes holds none: memory is for what is under way.
pub(crate) struct Buffer<'a> {
    pool: &'a Pool,
    bytes: Vec<u8>,
    lease: Option<Lease<'a>>,
}

impl<'a> Buffer<'a> {
    pub(crate) fn new(pool: &'a Pool) -> Buffer<'a> {
        Buffer { pool, bytes: Vec::new(), lease: None }
    }

    /// Reads once, in the place of what was there before; nothing at the end.
    pub(crate) async fn fill<R: AsyncRead + Unpin>(&mut self, from: &mut R) -> io::Result<&[u8]> {
        (self.bytes, self.lease) = (Vec::new(), None);
        let (mut lease, mut bytes) = poll_fn(|context| {
            let lease = self.pool.lease();
            let mut bytes = Vec::with_capacity(lease.room());
            let read = pin!(from.read_buf(&mut bytes)).poll(context);
            read.map_ok(|_| (lease, bytes))
        })
        .await?;
        if bytes.len() < bytes.capacity() / 2 {
            bytes.shrink_to_fit();
            lease.shrink(bytes.len());
        }
        self.lease = Some(lease);
        self.bytes = bytes;
        Ok(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::connection::Inner;
    use crate::{Caps, Direct, Event, Roots, Sink, System, Terms, Way};

    #[tokio::test]
    async fn who_waits_for_bytes_holds_none() {
        let pool = Pool::new();
        let (mut near, mut far) = tokio::io::duplex(100_000);
        let mut buffer = Buffer::new(&pool);
        far.write_all(&[7; 50_000]).await.unwrap();
        assert_eq!(buffer.fill(&mut near).await.unwrap(), [7; 50_000]);
        assert!(!pool.is_whole());
        let waiting = tokio::time::timeout(Duration::from_millis(1), buffer.fill(&mut near)).await;
        assert!(waiting.is_err() && pool.is_whole());
        assert_eq!(buffer.bytes.capacity(), 0);
    }

    #[tokio::test]
    async fn a_few_bytes_take_no_more_than_they_are() {
        let pool = Pool::new();
        let mut buffer = Buffer::new(&pool);
        buffer.fill(&mut &b"few"[..]).await.unwrap();
        assert!(pool.is_whole() && buffer.bytes.capacity() < 64);
    }

    #[tokio::test]
    async fn a_task_that_is_stopped_while_it_passes_on_gives_its_room_back() {
        let inner = Arc::new(Pool::new());
        let (near, mut far) = tokio::io::duplex(100_000);
        far.write_all(&[7; 50_000]).await.unwrap();
        let pool = inner.clone();
        let (began, begun) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let (mut near, mut buffer) = (near, Buffer::new(&pool));
            let read = buffer.fill(&mut near).await.unwrap().len();
            began.send(read).unwrap();
            std::future::pending::<()>().await;
        });
        assert_eq!(begun.await, Ok(50_000));
        assert!(!inner.is_whole());
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled() && inner.is_whole());
    }

    struct Deaf;

    impl Sink for Deaf {
        fn tell(&self, _: Event) -> bool {
            true
        }
    }

    fn opened(caps: Caps) -> Arc<Inner> {
        Arc::new(Inner::new(Terms {
            granted: Vec::new(),
            caps,
            own: Vec::new(),
            roots: Roots::System,
            resolver: Arc::new(System::default()),
            dialer: Arc::new(Direct),
            sink: Arc::new(Deaf),
        }))
    }

    fn ended(stop: Result<(), Stop>) -> Ended {
        match stop {
            Ok(()) => Ended::Done,
            Err(Stop::Ended(ended)) => ended,
            Err(Stop::Shut(_)) => Ended::Refused,
        }
    }

    /// A slow way is no silent one: what a rate holds up, for longer than anything may be silent, is not idle.
    #[tokio::test(start_paused = true)]
    async fn many_that_wait_for_a_rate_are_not_idle() {
        const EACH: usize = 128 << 10;
        let caps = Caps { rate: Some(64 << 10), idle: Duration::from_secs(5), ..Caps::default() };
        let inner = opened(caps);
        let began = Instant::now();
        let mut tasks = Vec::new();
        for _ in 0..200 {
            let connection = Connection::admit(&inner, Way::Proxy).unwrap();
            let (mut guest, mut theirs) = tokio::io::duplex(64 << 10);
            let (mut server, mut from) = tokio::io::duplex(64 << 10);
            tasks.push(tokio::spawn(async move {
                let flood = async {
                    from.write_all(&vec![7; EACH]).await.unwrap();
                    from.shutdown().await.unwrap();
                };
                let hear = async {
                    theirs.shutdown().await.unwrap();
                    let mut heard = Vec::new();
                    theirs.read_to_end(&mut heard).await.unwrap();
                    heard.len()
                };
                let both = both(&connection, &mut guest, &mut server, None);
                let (ended, heard, ()) = tokio::join!(async { ended(both.await) }, hear, flood);
                (ended, heard)
            }));
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), (Ended::Done, EACH));
        }
        let least = 200 * EACH / (64 << 10) - 1;
        assert!(began.elapsed() > Duration::from_secs(least.try_into().unwrap()), "{:?}", began.elapsed());
    }

    /// Some bytes every now and then are not silence, however long all of them take.
    #[tokio::test(start_paused = true)]
    async fn a_side_that_takes_little_at_a_time_is_not_idle() {
        let inner = opened(Caps { idle: Duration::from_secs(5), ..Caps::default() });
        let connection = Connection::admit(&inner, Way::Proxy).unwrap();
        let (mut guest, mut theirs) = tokio::io::duplex(64);
        let (mut server, mut from) = tokio::io::duplex(64 << 10);
        from.write_all(&[7; 4096]).await.unwrap();
        from.shutdown().await.unwrap();
        let hear = async {
            theirs.shutdown().await.unwrap();
            let (mut heard, mut piece) = (0, [0; 64]);
            while let Ok(read @ 1..) = theirs.read(&mut piece).await {
                heard += read;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            heard
        };
        let (stop, heard) = tokio::join!(both(&connection, &mut guest, &mut server, None), hear);
        assert_eq!((ended(stop), heard), (Ended::Done, 4096));
    }

    /// A side that takes nothing is, also where the rate is the reason that the other one says little.
    #[tokio::test(start_paused = true)]
    async fn a_side_that_takes_nothing_is_idle() {
        let caps = Caps { rate: Some(64 << 10), idle: Duration::from_secs(5), ..Caps::default() };
        let inner = opened(caps);
        let connection = Connection::admit(&inner, Way::Proxy).unwrap();
        let (mut guest, _theirs) = tokio::io::duplex(64);
        let (mut server, mut from) = tokio::io::duplex(64 << 10);
        from.write_all(&[7; 4096]).await.unwrap();
        let began = Instant::now();
        assert_eq!(ended(both(&connection, &mut guest, &mut server, None).await), Ended::Idle);
        assert!(began.elapsed() < Duration::from_secs(8));
    }
}
