//! What executor and forker say to each other: JSON over a socket of whole messages, descriptors beside it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, recv, recvmsg,
    sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::launch::{CgroupSeen, Counters, Launch};

/// Largest request or answer.
pub(crate) const MAX_MESSAGE: usize = 128 << 10;

/// What the executor asks of the forker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    /// Start one; descriptors: guest's input, guest's output, log, a module where one runs in it or where its doors
    /// go, and what is kept open until it is gone.
    Launch(Box<Launch>),
    /// Where this executor keeps files of machines, if it is not the usual place.
    Keep {
        /// The folder, absolute.
        folder: PathBuf,
    },
    /// Kill everything of one.
    Kill {
        /// Which.
        id: u64,
    },
    /// Read the counters of one.
    Count {
        /// Which.
        id: u64,
        /// Which question about it: one that nobody waited for is answered as well, and later.
        question: u64,
    },
}

/// What the forker answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tell {
    /// It runs; what was seen from outside before it was let go.
    Launched {
        /// Which.
        id: u64,
        /// Its first process.
        pid: i32,
        /// Namespaces that differ from the executor's.
        namespaces: Vec<String>,
        /// The cgroup it is in, controller by controller; or why there is none.
        cgroup: CgroupSeen,
        /// Ids: inside, outside, count.
        ids: (u32, u32, u32),
        /// The private folder of a sandbox that has no view of its own.
        scratch: Option<PathBuf>,
    },
    /// It could not be started.
    Failed {
        /// Which.
        id: u64,
        /// At which step, and the system's word.
        doing: String,
    },
    /// It is gone: processes reaped, cgroup removed, what was kept open for it closed.
    Gone {
        /// Which.
        id: u64,
        /// Exit status of its first process, or 128 and the signal.
        status: i32,
        /// Last counters, where they could be read.
        counters: Option<Counters>,
    },
    /// Counters as of now.
    Counted {
        /// Which.
        id: u64,
        /// To which question.
        question: u64,
        /// The counters, where they could be read.
        counters: Option<Counters>,
    },
}

/// Sends a message with descriptors.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8], fds: &[std::os::fd::BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(rustix::net::SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors"));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a message and makes room for it, no more than it takes; `None` when the other end is closed.
pub(crate) fn room(socket: &OwnedFd) -> rustix::io::Result<Option<Vec<u8>>> {
    // Cut to nothing, it tells its true length, and stays.
    let (_, length) = recv(socket, &mut [0_u8; 0][..], RecvFlags::PEEK | RecvFlags::TRUNC)?;
    Ok((length > 0).then(|| vec![0; length.min(MAX_MESSAGE)]))
}

/// Receives a request with its descriptors; `None` when the other end is closed.
pub(crate) fn receive(socket: &OwnedFd) -> io::Result<Option<(Ask, Vec<OwnedFd>)>> {
    let mut bytes = match room(socket) {
        Ok(Some(bytes)) => bytes,
        Ok(None) | Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
        Ok(message) => message,
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let ask = serde_json::from_slice(&bytes[..received.bytes]).map_err(io::Error::other)?;
    Ok(Some((ask, fds)))
}
