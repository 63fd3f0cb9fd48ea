//! The namespace tier's doors, served by the executor on sockets of the guest's own network: no byte passes init.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddrV4, TcpListener as StdListener, UdpSocket as StdUdp};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use super::stream::break_off;
use super::{
    ASKERS, Asked, DATAGRAM, Doors, GuestStream, Knock, Knocks, Layout, MISSED, Missed, Missing, Names, Role,
    STREAMS,
};

/// How long a connection to the resolver may say nothing.
const PATIENCE: Duration = Duration::from_secs(5);
/// Whoever asks faster than this, at one door, waits: what it costs is the executor's time, not the guest's.
const AT_ONCE: u32 = 512;
const IN: Duration = Duration::from_millis(100);
/// How long is waited where the executor has no descriptors left.
const FULL: Duration = Duration::from_millis(50);

/// Serves the doors until it is dropped; then nobody listens any more.
#[derive(Debug)]
pub(crate) struct Accepting(#[expect(dead_code, reason = "held for what its end ends")] JoinSet<()>);

/// What every door knows.
#[derive(Clone)]
struct House {
    doors: Arc<Doors>,
    names: Arc<Mutex<Names>>,
    places: Arc<Semaphore>,
    knocks: mpsc::Sender<Knock>,
    missed: mpsc::Sender<Missed>,
}

impl Accepting {
    /// Begins, with sockets in the order of the layout.
    pub(crate) fn new(layout: &Layout, sockets: Vec<OwnedFd>) -> io::Result<(Accepting, Knocks, Missing)> {
        let (knocks, arriving) = mpsc::channel(STREAMS);
        let (missed, missing) = mpsc::channel(MISSED);
        let house = House {
            doors: Arc::new(layout.doors.clone()),
            names: Arc::new(Mutex::new(Names::of(layout))),
            places: Arc::new(Semaphore::new(STREAMS)),
            knocks,
            missed,
        };
        let mut tasks = JoinSet::new();
        for (fd, socket) in sockets.into_iter().zip(&layout.sockets) {
            let house = house.clone();
            match socket.role {
                Role::Datagrams => drop(tasks.spawn(house.datagrams(UdpSocket::from_std(StdUdp::from(fd))?))),
                Role::Questions => drop(tasks.spawn(house.questions(listener(fd)?))),
                Role::Proxy => drop(tasks.spawn(house.serve(listener(fd)?, None))),
                Role::Named => drop(tasks.spawn(house.serve(listener(fd)?, Some(socket.at)))),
            }
        }
        Ok((Accepting(tasks), arriving, missing))
    }
}

fn listener(fd: OwnedFd) -> io::Result<TcpListener> {
    TcpListener::from_std(StdListener::from(fd))
}

impl House {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a question. What it came to is told before whoever asked has it, and may be gone.
    fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        let (answer, missed) = {
            let mut names = self.names();
            (names.answer(question), names.missed())
        };
        for missed in missed {
            // Lost only where nobody wants to hear of it.
            self.missed.try_send(missed).ok();
        }
        answer
    }

    /// Takes connections as long as there is room for them and somebody wants them; the others wait in the kernel.
    async fn serve(self, listener: TcpListener, at: Option<SocketAddrV4>) {
        let mut pace = Pace::new();
        loop {
            let Some(socket) = accept(&listener, &mut pace).await else { continue };
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return };
            let way = match at {
                None => Asked::Proxy,
                Some(at) => match self.named(at) {
                    Some(way) => way,
                    None => {
                        break_off(&socket);
                        continue;
                    }
                },
            };
            // Without a receiver nobody will ever come: the sockets are closed, and who connects is refused at once.
            if self.knocks.send(Knock { way, stream: GuestStream::socket(socket, place) }).await.is_err() {
                return;
            }
        }
    }

    /// What the name at an address is; an address of the pool may have none, or none that this port is granted for.
    fn named(&self, at: SocketAddrV4) -> Option<Asked> {
        let host = self.names().host(*at.ip())?.to_owned();
        self.doors.grant(&host, at.port()).then(|| Asked::Named { host, port: at.port() })
    }

    /// Answers questions over UDP.
    async fn datagrams(self, socket: UdpSocket) {
        let mut pace = Pace::new();
        let mut question = vec![0; DATAGRAM];
        loop {
            pace.wait().await;
            match socket.recv_from(&mut question).await {
                Ok((n, from)) => {
                    let answer = self.answer(&question[..n]);
                    if let Some(answer) = answer {
                        // One that cannot be sent now is lost, as datagrams are.
                        socket.try_send_to(&answer, from).ok();
                    }
                }
                // Something that was sent before was not wanted.
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    /// Answers questions over TCP.
    async fn questions(self, listener: TcpListener) {
        let mut pace = Pace::new();
        let (mut askers, mut order) = (JoinSet::new(), VecDeque::new());
        loop {
            let Some(socket) = accept(&listener, &mut pace).await else { continue };
            while askers.try_join_next().is_some() {}
            order.retain(|asker: &AbortHandle| !asker.is_finished());
            // Who came first has had the longest time.
            if order.len() >= ASKERS
                && let Some(oldest) = order.pop_front()
            {
                oldest.abort();
            }
            let house = self.clone();
            order.push_back(askers.spawn(async move { drop(house.hear_out(socket).await) }));
        }
    }

    /// One connection: each message behind its length.
    async fn hear_out(&self, mut socket: TcpStream) -> io::Result<()> {
        let mut pace = Pace::new();
        loop {
            pace.wait().await;
            let question = tokio::time::timeout(PATIENCE, async {
                let length = usize::from(socket.read_u16().await?);
                let mut question = vec![0; length.min(DATAGRAM)];
                socket.read_exact(&mut question).await?;
                if length > DATAGRAM {
                    Err(io::ErrorKind::InvalidData.into())
                } else {
                    Ok::<_, io::Error>(question)
                }
            });
            let question = question.await??;
            let answer = self.answer(&question).ok_or(io::ErrorKind::InvalidData)?;
            let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
            let told = [&length.to_be_bytes()[..], &answer].concat();
            tokio::time::timeout(PATIENCE, socket.write_all(&told)).await??;
        }
    }
}

/// The next connection; none where there was one that could not be had.
async fn accept(listener: &TcpListener, pace: &mut Pace) -> Option<TcpStream> {
    pace.wait().await;
    match listener.accept().await {
        Ok((socket, _)) => Some(socket),
        Err(_) => {
            tokio::time::sleep(FULL).await;
            None
        }
    }
}

/// Keeps a door from being used more often than it may.
struct Pace {
    since: Instant,
    count: u32,
}

impl Pace {
    fn new() -> Pace {
        Pace { since: Instant::now(), count: 0 }
    }

    async fn wait(&mut self) {
        if self.since.elapsed() >= IN {
            *self = Pace::new();
        } else if self.count >= AT_ONCE {
            tokio::time::sleep(IN.saturating_sub(self.since.elapsed())).await;
            *self = Pace::new();
        }
        self.count += 1;
    }
}
