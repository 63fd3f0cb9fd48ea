//! The executor's end of a guest's channel. What arrives is hostile: it is bounded, sorted by call, and nothing
//! else; a guest that breaks the protocol loses its sandbox.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use policy::{StoppedBy, Tier};
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use crate::Stream;
use crate::doors::{Exchange, Writer};
use crate::machine::COLLECT;
use crate::wire::{Decoder, End, Frame, Hello, Kind, PIECE, Start};

/// Pieces of output that wait for a slow reader; then the guest waits.
const WAITING: usize = 16;
/// What a channel of sockets may have under way each way: what the kernel lets anybody ask for, and doubles.
const SENT: usize = 208 << 10;
/// Frames of streams that are shorter are sent with the next.
const TOGETHER: usize = 32 << 10;
/// Bytes of the log stream that are kept for an error message.
const LOG: usize = 8 << 10;

/// What arrives for a call.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// Output.
    Output(Stream, Vec<u8>),
    /// The end.
    End(End),
}

type Calls = Arc<Mutex<HashMap<u32, mpsc::Sender<Arrival>>>>;

/// An open channel. Reading goes on in a task of its own until the guest's end closes.
#[derive(Debug)]
pub(crate) struct Channel {
    to_guest: Arc<AsyncMutex<ToGuest>>,
    calls: Calls,
    reader: tokio::task::JoinHandle<()>,
    /// Sends what streams have to say, where a grant lets there be any.
    writer: Option<tokio::task::JoinHandle<()>>,
}

/// Where frames go to the guest: a pipe or a socket.
struct ToGuest(Box<dyn AsyncWrite + Send + Sync + Unpin>);

type FromGuest = Box<dyn AsyncRead + Send + Sync + Unpin>;

impl std::fmt::Debug for ToGuest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ToGuest")
    }
}

/// The executor's ends of the pipes, and the guest's.
pub(crate) struct Pipes {
    /// Whether the channel is sockets.
    sockets: bool,
    to_guest: OwnedFd,
    from_guest: OwnedFd,
    log: OwnedFd,
    /// Input, output and log as the guest gets them.
    pub(crate) theirs: [OwnedFd; 3],
}

/// Why a channel broke.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    #[error("the guest's init did not answer: {log}")]
    Silent { log: String },
    #[error("the guest broke the protocol")]
    Protocol,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Pipes {
    pub(crate) fn new(tier: Tier) -> io::Result<Pipes> {
        let (log_read, log_write) = io::pipe()?;
        // gVisor lets a process open what another of the same id has open, by its number in `/proc`, and an ordinary
        // user's init shares its id with the guest. A socket cannot be opened again.
        let sockets = tier == Tier::Gvisor;
        let pair = || -> io::Result<(OwnedFd, OwnedFd)> {
            if sockets {
                let (read, write) = UnixStream::pair()?;
                // The reader's as well: gVisor reads no more at once than the socket it has could send.
                set_socket_send_buffer_size(&write, SENT)?;
                set_socket_send_buffer_size(&read, SENT)?;
                return Ok((read.into(), write.into()));
            }
            let (read, write) = io::pipe()?;
            Ok((read.into(), write.into()))
        };
        let ((in_read, in_write), (out_read, out_write)) = (pair()?, pair()?);
        Ok(Pipes {
            sockets,
            to_guest: in_write,
            from_guest: out_read,
            log: log_read.into(),
            theirs: [in_read, out_write, log_write.into()],
        })
    }

    /// Waits for init's first word, then opens the channel; with an exchange, for streams as well.
    pub(crate) async fn open(
        self,
        exchange: Option<Arc<Exchange>>,
    ) -> Result<(Hello, Channel), ChannelError> {
        let Pipes { sockets, to_guest, from_guest, log, theirs } = self;
        drop(theirs);
        let (to_guest, from_guest) = (nonblocking(to_guest)?, nonblocking(from_guest)?);
        let (to_guest, mut from_guest): (ToGuest, FromGuest) = if sockets {
            let socket = |fd: OwnedFd| tokio::net::UnixStream::from_std(fd.into());
            (ToGuest(Box::new(socket(to_guest)?)), Box::new(socket(from_guest)?))
        } else {
            let to_guest = pipe::Sender::from_owned_fd(to_guest)?;
            (ToGuest(Box::new(to_guest)), Box::new(pipe::Receiver::from_owned_fd(from_guest)?))
        };
        let mut log = pipe::Receiver::from_owned_fd(nonblocking(log)?)?;
        let mut decoder = Decoder::default();
        let first = loop {
            let n = from_guest.read(decoder.space(PIECE)).await?;
            if n == 0 {
                return Err(ChannelError::Silent { log: read_log(&mut log).await });
            }
            decoder.came(n);
            if let Some(frame) = decoder.next().map_err(|_| ChannelError::Protocol)? {
                break frame;
            }
        };
        if first.kind != Kind::Hello {
            return Err(ChannelError::Protocol);
        }
        let hello = serde_json::from_slice(&first.payload).map_err(|_| ChannelError::Protocol)?;
        let to_guest = Arc::new(AsyncMutex::new(to_guest));
        let writer = exchange
            .as_ref()
            .map(|exchange| tokio::spawn(write(Writer::new(exchange), Arc::clone(&to_guest))));
        let sorted = Sorted { calls: Arc::default(), exchange };
        let calls = Arc::clone(&sorted.calls);
        let reader = tokio::spawn(read(from_guest, decoder, sorted, log));
        Ok((hello, Channel { to_guest, calls, reader, writer }))
    }
}

impl Channel {
    /// Starts a call; what comes of it arrives on the receiver, which closes without an end when the sandbox
    /// is lost.
    pub(crate) async fn start(
        &self,
        call: u32,
        start: &Start,
        stdin: &[u8],
    ) -> io::Result<mpsc::Receiver<Arrival>> {
        let (tx, rx) = mpsc::channel(WAITING);
        if self.reader.is_finished() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        lock(&self.calls).insert(call, tx);
        let mut payload = serde_json::to_vec(start)?;
        payload.push(b'\n');
        payload.extend_from_slice(stdin);
        self.send(&Frame::new(Kind::Start, call, payload)).await?;
        Ok(rx)
    }

    /// Kills everything a call started.
    pub(crate) async fn kill(&self, call: u32) -> io::Result<()> {
        self.send(&Frame::new(Kind::Kill, call, Vec::new())).await
    }

    /// Kills what calls that are over left running, for this bound.
    pub(crate) async fn sweep(&self, by: StoppedBy) -> io::Result<()> {
        self.send(&Frame::new(Kind::Sweep, 0, serde_json::to_vec(&by)?)).await
    }

    /// Ends every call and has a machine's workspace written out; its end arrives like a call's.
    pub(crate) async fn collect(&self) -> io::Result<mpsc::Receiver<Arrival>> {
        let (tx, rx) = mpsc::channel(WAITING);
        if self.reader.is_finished() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        lock(&self.calls).insert(COLLECT, tx);
        self.send(&Frame::new(Kind::Collect, COLLECT, Vec::new())).await?;
        Ok(rx)
    }

    /// Nothing more is wanted of a call.
    pub(crate) fn forget(&self, call: u32) {
        lock(&self.calls).remove(&call);
    }

    async fn send(&self, frame: &Frame) -> io::Result<()> {
        self.to_guest.lock().await.0.write_all(&frame.encode()).await
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.reader.abort();
        if let Some(writer) = &self.writer {
            writer.abort();
        }
    }
}

/// Whom frames are for. When this ends, everybody hears that the guest is gone.
struct Sorted {
    calls: Calls,
    exchange: Option<Arc<Exchange>>,
}

impl Drop for Sorted {
    fn drop(&mut self) {
        lock(&self.calls).clear();
        if let Some(exchange) = &self.exchange {
            exchange.lose();
        }
    }
}

/// Sends what streams have to say. Small frames go together, for each write may wake the guest's end; a call never waits
/// for more than those and one that is large.
async fn write(frames: Writer, to_guest: Arc<AsyncMutex<ToGuest>>) {
    while let Some(mut bytes) = frames.next().await {
        while bytes.len() < TOGETHER
            && let Some(Some(frame)) = frames.now()
        {
            bytes.extend_from_slice(&frame);
        }
        if to_guest.lock().await.0.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Reads until the guest's end closes or breaks the protocol; then no call gets anything any more.
async fn read(mut from_guest: FromGuest, mut decoder: Decoder, sorted: Sorted, mut log: pipe::Receiver) {
    let mut log_buffer = [0; 1024];
    let mut log_open = true;
    'channel: loop {
        loop {
            match decoder.next() {
                Ok(Some(frame)) => {
                    if !deliver(frame, &sorted).await {
                        break 'channel;
                    }
                }
                Ok(None) => break,
                Err(_) => break 'channel,
            }
        }
        tokio::select! {
            // Read and thrown away: a guest must not be able to block on it.
            n = log.read(&mut log_buffer), if log_open => log_open = matches!(n, Ok(n) if n > 0),
            n = from_guest.read(decoder.space(PIECE)) => match n {
                Ok(n) if n > 0 => decoder.came(n),
                _ => break,
            },
        }
    }
}

/// Hands a frame to its call; false when it is none a guest may send.
async fn deliver(frame: Frame, Sorted { calls, exchange }: &Sorted) -> bool {
    let arrival = match frame.kind {
        Kind::Stdout => Arrival::Output(Stream::Stdout, frame.payload),
        Kind::Stderr => Arrival::Output(Stream::Stderr, frame.payload),
        Kind::End => match serde_json::from_slice(&frame.payload) {
            Ok(end) => Arrival::End(end),
            Err(_) => return false,
        },
        Kind::Knock | Kind::Missed | Kind::Data | Kind::Finish | Kind::Credit | Kind::Close => {
            return exchange.as_ref().is_some_and(|exchange| exchange.take(frame).is_ok());
        }
        Kind::Hello | Kind::Start | Kind::Kill | Kind::Sweep | Kind::Collect => return false,
    };
    // A call nobody asked for, or asks for any more, is nobody's: dropped.
    let to = lock(calls).get(&frame.call).cloned();
    if let Some(to) = to
        && to.send(arrival).await.is_err()
    {
        lock(calls).remove(&frame.call);
    }
    true
}

async fn read_log(log: &mut pipe::Receiver) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 1024];
    while text.len() < LOG {
        match log.read(&mut buffer).await {
            Ok(n) if n > 0 => text.extend_from_slice(&buffer[..n]),
            _ => break,
        }
    }
    let text = String::from_utf8_lossy(&text);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

fn nonblocking(fd: OwnedFd) -> io::Result<OwnedFd> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok(fd)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;
    use crate::doors::{Doors, Name};

    /// A guest's end that takes everything, and tells how much came at once.
    struct Writes(mpsc::UnboundedSender<usize>);

    impl AsyncWrite for Writes {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.0.send(bytes.len()).unwrap();
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn small_frames_of_streams_go_together() {
        let (exchange, mut knocks, _missing) = Exchange::new(Doors::default());
        let mut streams = Vec::new();
        for number in 0..16 {
            exchange.take(Frame::new(Kind::Knock, number, Vec::new())).unwrap();
            let mut stream = knocks.recv().await.unwrap().stream;
            stream.write_all(&[7; 4087]).await.unwrap();
            streams.push(stream);
        }
        let (told, mut writes) = mpsc::unbounded_channel();
        let to_guest = Arc::new(AsyncMutex::new(ToGuest(Box::new(Writes(told)))));
        let writing = tokio::spawn(write(Writer::new(&exchange), to_guest));
        assert_eq!([writes.recv().await, writes.recv().await], [Some(TOGETHER); 2]);
        writing.abort();
    }

    /// Without a grant no frame of a stream is one that a guest may send; with one, only those it began (R12, R48).
    #[tokio::test]
    async fn frames_of_streams_end_the_channel_where_nothing_is_granted() {
        let kinds = [Kind::Knock, Kind::Missed, Kind::Data, Kind::Finish, Kind::Credit, Kind::Close];
        for kind in kinds {
            let sorted = Sorted { calls: Arc::default(), exchange: None };
            assert!(!deliver(Frame::new(kind, 1, Vec::new()), &sorted).await, "{kind:?}");
        }
        let names = vec![Name { host: "a.org".to_owned(), star: false, port: 443 }];
        let (exchange, _knocks, _missing) = Exchange::new(Doors { names });
        let sorted = Sorted { calls: Arc::default(), exchange: Some(exchange) };
        for kind in kinds {
            let sound = deliver(Frame::new(kind, 1, Vec::new()), &sorted).await;
            assert_eq!(sound, matches!(kind, Kind::Knock | Kind::Finish | Kind::Close), "{kind:?}");
        }
    }
}
