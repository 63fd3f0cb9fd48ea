//! Bytes from one side to the other, both ways at once, counted and bounded.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
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
}

/// Why a direction stopped before its end.
pub(crate) enum Stop {
    Ended(Ended),
    Shut(Shut),
}

impl Pulse {
    pub(crate) fn new() -> Pulse {
        Pulse { began: Instant::now(), last: AtomicU64::new(0) }
    }

    pub(crate) fn beat(&self) {
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(since, Ordering::Relaxed);
    }

    /// Comes back when nothing has passed for so long.
    pub(crate) async fn stops(&self, most: Duration) {
        loop {
            let until = self.began + Duration::from_millis(self.last.load(Ordering::Relaxed)) + most;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
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
        connection.pass(Direction::Up, bytes.len()).await.map_err(Stop::Ended)?;
        if let Err(e) = to.write_all(bytes).await {
            return Ok(Heard::Part(e.kind().to_string(), from));
        }
        pulse.beat();
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
        connection.pass(Direction::Down, read.len()).await.map_err(Stop::Ended)?;
        to.write_all(read).await.map_err(|_| Stop::Ended(Ended::GuestGone))?;
        pulse.beat();
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
}
