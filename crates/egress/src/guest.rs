//! The guest's side of a connection: what was read ahead to judge it is still there for whoever comes next.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, timeout, timeout_at};

use crate::http::{self, BadHead, Request};

/// Bytes read at once while a head is awaited.
const STEP: usize = 2048;
/// How long an answer of ours may take to go.
const LAST_WORD: Duration = Duration::from_secs(1);
/// How long without a byte, how long in all, and how much, is still read after the last word: who closes while something
/// is unread destroys what is on its way, and there are clients that hear nothing before they have said all.
const LINGER: (Duration, Duration, usize) = (Duration::from_secs(2), Duration::from_secs(30), 64 << 20);

pub(crate) struct Guest<S> {
    stream: S,
    /// Read, and not yet taken.
    held: Vec<u8>,
}

/// Why a head did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHead {
    /// The stream ended, or broke.
    Gone,
    /// Not in time.
    Late,
    /// More than it may have.
    Long,
}

/// Why there is no request.
pub(crate) enum NoRequest {
    Head(NoHead),
    Bad(BadHead),
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Guest<S> {
    pub(crate) fn new(stream: S) -> Guest<S> {
        Guest { stream, held: Vec::new() }
    }

    /// What is there without waiting.
    pub(crate) fn held(&self) -> &[u8] {
        &self.held
    }

    /// Takes so many bytes of what is there.
    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        let rest = self.held.split_off(bytes.min(self.held.len()));
        std::mem::replace(&mut self.held, rest)
    }

    /// The first byte, left in place.
    pub(crate) async fn first(&mut self, deadline: Instant) -> Option<u8> {
        if self.held.is_empty() {
            self.more(STEP, deadline).await.ok()?;
        }
        self.held.first().copied()
    }

    /// Waits for at least one more byte, while there are fewer than `most`.
    pub(crate) async fn more(&mut self, most: usize, deadline: Instant) -> Result<(), NoHead> {
        let room = most.saturating_sub(self.held.len()).min(STEP);
        if room == 0 {
            return Err(NoHead::Long);
        }
        let before = self.held.len();
        self.held.resize(before + room, 0);
        let read = timeout_at(deadline, self.stream.read(&mut self.held[before..])).await;
        self.held.truncate(before + read.as_ref().map_or(0, |read| *read.as_ref().unwrap_or(&0)));
        match read {
            Ok(Ok(0) | Err(_)) => Err(NoHead::Gone),
            Ok(Ok(_)) => Ok(()),
            Err(_) => Err(NoHead::Late),
        }
    }

    /// Exactly so many bytes, taken.
    pub(crate) async fn exactly(&mut self, bytes: usize, deadline: Instant) -> Result<Vec<u8>, NoHead> {
        while self.held.len() < bytes {
            self.more(bytes, deadline).await?;
        }
        Ok(self.take(bytes))
    }

    /// A whole head, and nothing after it.
    pub(crate) async fn request(&mut self, deadline: Instant) -> Result<Request, NoRequest> {
        let mut seen = 0;
        loop {
            let end = http::head_end(self.held(), seen, http::MOST_REQUEST).map_err(NoRequest::Bad)?;
            if let Some(end) = end {
                return Request::read(&self.take(end)).map_err(NoRequest::Bad);
            }
            seen = self.held().len();
            self.more(http::MOST_REQUEST, deadline).await.map_err(NoRequest::Head)?;
        }
    }

    /// An answer of ours, in time or not at all.
    pub(crate) async fn say(&mut self, answer: &[u8], deadline: Instant) -> bool {
        let said = async {
            self.stream.write_all(answer).await?;
            self.stream.flush().await
        };
        matches!(timeout_at(deadline, said).await, Ok(Ok(())))
    }

    /// The last answer: nothing more is said, and what still comes is thrown away for a moment.
    pub(crate) async fn farewell(&mut self, answer: &[u8]) {
        let said = async {
            self.stream.write_all(answer).await?;
            self.stream.shutdown().await
        };
        // Who does not listen has had the answer.
        if matches!(timeout(LAST_WORD, said).await, Ok(Ok(()))) {
            self.linger().await;
        }
    }

    /// Throws away what still comes.
    async fn linger(&mut self) {
        let (quiet, all, mut left) = LINGER;
        let (end, mut waste) = (Instant::now() + all, vec![0; 4 * STEP]);
        while left > 0 {
            let until = end.min(Instant::now() + quiet);
            match timeout_at(until, self.stream.read(&mut waste)).await {
                Ok(Ok(read @ 1..)) => left = left.saturating_sub(read),
                Ok(Ok(0) | Err(_)) | Err(_) => return,
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guest<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.held.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, into);
        }
        let bytes = self.held.len().min(into.remaining());
        into.put_slice(&self.held[..bytes]);
        self.held.drain(..bytes);
        if self.held.is_empty() {
            self.held = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guest<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
