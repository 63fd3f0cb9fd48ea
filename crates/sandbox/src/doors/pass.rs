//! Makes the sockets inside, and passes them out over a socket that no guest ever sees.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, bind, recvmsg, sendmsg, socket_with,
};

use super::{Layout, Role};

/// Descriptors in one message; the kernel takes 253.
const AT_ONCE: usize = 64;
/// Connections that wait to be taken.
const WAITING: i32 = 128;

/// Makes every socket, ready for use, in the order of the layout.
pub(crate) fn listen(layout: &Layout) -> io::Result<Vec<OwnedFd>> {
    let make = |role: Role, at: SocketAddrV4| -> io::Result<OwnedFd> {
        let kind = if role == Role::Datagrams { SocketType::DGRAM } else { SocketType::STREAM };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, kind, flags, None)?;
        bind(&socket, &at)?;
        if role != Role::Datagrams {
            rustix::net::listen(&socket, WAITING)?;
        }
        Ok(socket)
    };
    let named = |at, e: io::Error| io::Error::new(e.kind(), format!("listen on {at}: {e}"));
    layout.sockets.iter().map(|s| make(s.role, s.at).map_err(|e| named(s.at, e))).collect()
}

/// What sockets are passed over: our end, and that of the new sandbox's first process.
pub(crate) fn passage() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Passes them on.
pub(crate) fn send(passage: &OwnedFd, sockets: &[OwnedFd]) -> io::Result<()> {
    for some in sockets.chunks(AT_ONCE) {
        let fds: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::Error::other("too many descriptors"));
        }
        sendmsg(passage, &[IoSlice::new(b"+")], &mut control, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Takes what was passed, all of it or nothing. It is there: init answers after it was sent.
pub(crate) fn receive(passage: &OwnedFd, layout: &Layout) -> io::Result<Vec<OwnedFd>> {
    let mut sockets = Vec::with_capacity(layout.sockets.len());
    while sockets.len() < layout.sockets.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut word = [0];
        let received = recvmsg(passage, &mut [IoSliceMut::new(&mut word)], &mut control, flags)?;
        let before = sockets.len();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                sockets.extend(rights);
            }
        }
        if received.bytes == 0 || sockets.len() == before {
            // Cut short where the receiver may not have so many open.
            return Err(rustix::io::Errno::MFILE.into());
        }
    }
    let same = |(fd, socket): (&OwnedFd, &super::Socket)| -> io::Result<bool> {
        let at = rustix::net::getsockname(fd)?;
        Ok(SocketAddrV4::try_from(at).is_ok_and(|at| at == socket.at))
    };
    if sockets.len() != layout.sockets.len() {
        return Err(io::Error::other("other sockets than were asked for"));
    }
    for pair in sockets.iter().zip(&layout.sockets) {
        if !same(pair)? {
            return Err(io::Error::other("other sockets than were asked for"));
        }
    }
    Ok(sockets)
}
