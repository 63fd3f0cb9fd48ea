//! Bytes from one side to the other, both ways at once, counted and bounded.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use crate::Ended;
use crate::caps::Direction;
use crate::connection::Connection;
use crate::gate::{Gate, Shut};

/// What a direction reads into at first; it grows where that is filled, and shrinks again in a lull.
const LEAST: usize = 8 << 10;
const MOST: usize = 64 << 10;

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

/// Carries everything until both sides have said all. With a gate the guest's bytes pass that first.
pub(crate) async fn both<G, T>(
    connection: &Connection,
    guest: &mut G,
    server: T,
    gate: Option<Gate>,
) -> Result<(), Stop>
where
    G: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let pulse = Pulse::new();
    let (from_guest, to_guest) = tokio::io::split(guest);
    let (from_server, to_server) = tokio::io::split(server);
    let up = up(connection, from_guest, to_server, gate, &pulse);
    let down = down(connection, from_server, to_guest, &pulse);
    let gone = |why| Err(Stop::Ended(Ended::ServerGone(why)));
    let ways = async {
        tokio::pin!(up, down);
        tokio::select! {
            heard = &mut up => match heard? {
                Heard::All => down.await,
                // A server that stops listening may have answered: that still goes to the guest.
                Heard::Part(why, from_guest) => tokio::select! {
                    said = down => said.and(gone(why)),
                    never = waste(from_guest) => match never {},
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
    let mut buffer = Buffer::new();
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
    pulse: &Pulse,
) -> Result<(), Stop> {
    let mut buffer = Buffer::new();
    loop {
        let read = buffer.fill(&mut from).await;
        let read = read.map_err(|e| Stop::Ended(Ended::ServerGone(e.kind().to_string())))?;
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
pub(crate) async fn waste<R: AsyncRead + Unpin>(mut from: R) -> Infallible {
    let mut buffer = Buffer::new();
    while buffer.fill(&mut from).await.is_ok_and(|read| !read.is_empty()) {}
    std::future::pending().await
}

/// Small for a connection that says little, large for one that says much.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    full: bool,
}

impl Buffer {
    pub(crate) fn new() -> Buffer {
        Buffer { bytes: vec![0; LEAST], full: false }
    }

    pub(crate) async fn fill<R: AsyncRead + Unpin>(&mut self, from: &mut R) -> std::io::Result<&[u8]> {
        if self.full && self.bytes.len() < MOST {
            self.bytes = vec![0; self.bytes.len() * 2];
        }
        let read = from.read(&mut self.bytes).await?;
        self.full = read == self.bytes.len();
        if read < LEAST / 2 && self.bytes.len() > LEAST {
            self.bytes.truncate(LEAST);
            self.bytes.shrink_to_fit();
        }
        Ok(&self.bytes[..read])
    }
}
