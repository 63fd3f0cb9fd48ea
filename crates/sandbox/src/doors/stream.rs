//! The executor's end of a connection that a guest made, whichever way its bytes take.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use super::exchange::Line;

/// Reads what the guest says, and writes to it. Both ways end on their own; one that is dropped before it was shut
/// down is broken off, so that the guest never takes a part for the whole.
#[derive(Debug)]
pub struct GuestStream(Way);

#[derive(Debug)]
enum Way {
    /// A socket of the guest's own network.
    Socket(Socket),
    /// Frames over the channel.
    Line(Line),
}

#[derive(Debug)]
struct Socket {
    socket: TcpStream,
    ended: bool,
    _place: OwnedSemaphorePermit,
}

impl GuestStream {
    pub(super) fn socket(socket: TcpStream, place: OwnedSemaphorePermit) -> GuestStream {
        // Refused only of a connection that is gone.
        socket.set_nodelay(true).ok();
        GuestStream(Way::Socket(Socket { socket, ended: false, _place: place }))
    }

    pub(super) fn line(line: Line) -> GuestStream {
        GuestStream(Way::Line(line))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.ended {
            break_off(&self.socket);
        }
    }
}

/// Has a socket tell the other side, when it is closed, that this was no end.
pub(super) fn break_off(socket: &TcpStream) {
    // Refused only of a connection that is gone.
    rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO)).ok();
}

impl AsyncRead for GuestStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Way::Socket(socket) => Pin::new(&mut socket.socket).poll_read(cx, buffer),
            Way::Line(line) => line.poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Way::Socket(socket) => Pin::new(&mut socket.socket).poll_write(cx, bytes),
            Way::Line(line) => line.poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Neither holds anything back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Way::Socket(socket) => {
                socket.ended = true;
                Pin::new(&mut socket.socket).poll_shutdown(cx)
            }
            Way::Line(line) => {
                line.finish();
                Poll::Ready(Ok(()))
            }
        }
    }
}
