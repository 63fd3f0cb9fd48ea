//! The channel of a machine under Firecracker: its vsock on one side, the executor's two pipes on the other.
//!
//! ```text
//!   executor ══ two pipes ══▶ first process of the wall ◀══ /run/vsock_1024 ══ Firecracker ◀══ vsock ══ guest
//! ```
//!
//! The guest's first process connects before any program of a guest runs. That one connection is taken, and the
//! socket it came by is closed and removed: a guest's kernel that asks for more finds nothing to connect to, in a
//! wall where no other socket is. Bytes are carried and never looked at, so there is nothing here to attack with
//! them; a side that does not read makes the other wait.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::{VSOCK_PORT, firecracker};
use crate::sys;

/// Bytes on their way in one direction.
const HELD: usize = 64 << 10;
/// The name that Firecracker connects to.
fn name() -> PathBuf {
    PathBuf::from(format!("{}_{VSOCK_PORT}", firecracker::VSOCK))
}

/// What is there before the monitor is started, so that neither its connection nor its end is missed.
pub(super) struct Ears {
    listener: OwnedFd,
    children: OwnedFd,
}

impl Ears {
    pub(super) fn open() -> io::Result<Ears> {
        Ok(Ears { listener: UnixListener::bind(name())?.into(), children: sys::child_signals()? })
    }

    /// Keeps these and the two pipes, and closes all else: the log is the monitor's alone, and where it closes
    /// the executor sees that all is over.
    pub(super) fn keep(self) -> io::Result<(Relay, OwnedFd)> {
        let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
        // Above the numbers that they are to have.
        let high =
            [null.into(), self.listener, self.children].map(|fd| rustix::io::fcntl_dupfd_cloexec(&fd, 64));
        for (number, fd) in (2..).zip(&high) {
            sys::place_fd(fd.as_ref().map_err(|e| io::Error::from(*e))?.as_raw_fd(), number)?;
        }
        drop(high);
        sys::close_from(5);
        let [input, output, listener, children] = [0, 1, 3, 4].map(sys::inherited);
        Ok((Relay::new(input, output, listener, name())?, children))
    }
}

/// Carries bytes until the monitor has ended and its last word is out.
pub(super) struct Relay {
    listener: Option<OwnedFd>,
    /// What that is called.
    name: PathBuf,
    pipes: Option<(OwnedFd, OwnedFd)>,
    /// To the guest, and from it.
    ways: [Way; 2],
}

impl Relay {
    fn new(input: OwnedFd, output: OwnedFd, listener: OwnedFd, name: PathBuf) -> io::Result<Relay> {
        for fd in [&input, &output, &listener] {
            let flags = rustix::fs::fcntl_getfl(fd)?;
            rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?;
        }
        Ok(Relay { listener: Some(listener), name, pipes: Some((input, output)), ways: Default::default() })
    }

    /// `ended` takes what children ended and says whether the monitor is one of them; its status then.
    pub(super) fn carry(
        mut self,
        children: &OwnedFd,
        mut ended: impl FnMut() -> io::Result<Option<i32>>,
    ) -> io::Result<i32> {
        let mut status = None;
        loop {
            if let Some(code) = status
                && self.ways[1].is_over()
            {
                return Ok(code);
            }
            self.wait(children, status.is_none())?;
            if status.is_none() {
                status = ended()?;
                // After that: what connected and ended at once is still to be heard.
                self.accept()?;
                if status.is_some() {
                    // Nobody connects any more, and nobody reads.
                    (self.listener, self.pipes) = (None, None);
                    self.ways[0] = Way::default();
                }
            }
            for way in &mut self.ways {
                way.step();
            }
        }
    }

    fn wait(&self, children: &OwnedFd, with_children: bool) -> io::Result<()> {
        let mut fds = Vec::with_capacity(4);
        if with_children {
            fds.push(PollFd::new(children, PollFlags::IN));
        }
        fds.extend(self.listener.as_ref().map(|l| PollFd::new(l, PollFlags::IN)));
        fds.extend(self.ways.iter().filter_map(Way::wants).map(|(fd, f)| PollFd::from_borrowed_fd(fd, f)));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Takes the one connection, and leaves no way to another.
    fn accept(&mut self) -> io::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
        let guest = match rustix::net::accept_with(listener, flags) {
            Ok(guest) => guest,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        self.listener = None;
        // Closed is enough; the name is only tidied away.
        fs::remove_file(&self.name).ok();
        if let Some((input, output)) = self.pipes.take() {
            self.ways = [Way::new(input, guest.try_clone()?), Way::new(guest, output)];
        }
        Ok(())
    }
}

/// One direction; nothing of it is open when it is over.
#[derive(Default)]
struct Way {
    from: Option<OwnedFd>,
    to: Option<OwnedFd>,
    held: Vec<u8>,
    sent: usize,
}

impl Way {
    fn new(from: OwnedFd, to: OwnedFd) -> Way {
        Way { from: Some(from), to: Some(to), ..Way::default() }
    }

    fn is_over(&self) -> bool {
        self.to.is_none()
    }

    /// What it waits for: bytes, or room for those it holds.
    fn wants(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match (&self.from, &self.to) {
            (_, Some(to)) if !self.held.is_empty() => Some((to.as_fd(), PollFlags::OUT)),
            (Some(from), Some(_)) => Some((from.as_fd(), PollFlags::IN)),
            (None | Some(_), _) => None,
        }
    }

    /// Moves what can be moved without waiting.
    fn step(&mut self) {
        let Some(to) = &self.to else { return };
        if self.held.is_empty()
            && let Some(from) = &self.from
        {
            self.held.resize(HELD, 0);
            self.sent = 0;
            match rustix::io::read(from, &mut self.held) {
                Ok(n) => {
                    self.held.truncate(n);
                    if n == 0 {
                        self.from = None;
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => self.held.clear(),
                // The other side is gone.
                Err(_) => {
                    self.held.clear();
                    self.from = None;
                }
            }
        }
        if !self.held.is_empty() {
            match rustix::io::write(to, &self.held[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(Errno::AGAIN | Errno::INTR) => {}
                // Nobody reads any more, so nothing is read either.
                Err(_) => {
                    self.from = None;
                    self.sent = self.held.len();
                }
            }
            if self.sent == self.held.len() {
                self.held.clear();
            }
        }
        if self.from.is_none() && self.held.is_empty() {
            // A socket has the other direction, too; a pipe is closed by letting it go.
            rustix::net::shutdown(to, rustix::net::Shutdown::Write).ok();
            self.to = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::JoinHandle;

    use super::*;

    /// A relay at work, with everything around it: this test is executor, Firecracker and guest.
    struct Around {
        to_guest: PipeWriter,
        from_guest: PipeReader,
        end: PipeWriter,
        over: Arc<AtomicBool>,
        relay: JoinHandle<io::Result<i32>>,
        name: PathBuf,
        _folder: tempfile::TempDir,
    }

    impl Around {
        fn new() -> Around {
            Around::after(|_| {}).0
        }

        /// With something done before the relay looks for the first time.
        fn after<T>(early: impl FnOnce(&PathBuf) -> T) -> (Around, T) {
            let folder = tempfile::tempdir().unwrap();
            let name = folder.path().join("vsock_1024");
            let listener = UnixListener::bind(&name).unwrap();
            let early = early(&name);
            let (input, to_guest) = io::pipe().unwrap();
            let (from_guest, output) = io::pipe().unwrap();
            let (children, end) = io::pipe().unwrap();
            let relay = Relay::new(input.into(), output.into(), listener.into(), name.clone()).unwrap();
            let over = Arc::new(AtomicBool::new(false));
            let ended = Arc::clone(&over);
            let relay = std::thread::spawn(move || {
                relay.carry(&children.into(), || Ok(ended.load(Ordering::SeqCst).then_some(7)))
            });
            (Around { to_guest, from_guest, end, over, relay, name, _folder: folder }, early)
        }

        /// The monitor ends.
        fn end(&mut self) {
            self.over.store(true, Ordering::SeqCst);
            self.end.write_all(b"x").unwrap();
        }
    }

    #[test]
    fn bytes_go_both_ways_and_the_last_word_is_out_before_the_end() {
        let mut around = Around::new();
        let mut guest = UnixStream::connect(&around.name).unwrap();
        around.to_guest.write_all(b"start").unwrap();
        let mut heard = [0; 5];
        guest.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"start");
        // More than is held at once, and than a pipe holds: it is still under way when the monitor has ended.
        let said: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let sent = said.clone();
        let writer = std::thread::spawn(move || guest.write_all(&sent).unwrap());
        let mut first = vec![0; 1000];
        around.from_guest.read_exact(&mut first).unwrap();
        around.end();
        let mut rest = Vec::new();
        around.from_guest.read_to_end(&mut rest).unwrap();
        writer.join().unwrap();
        assert_eq!([first, rest].concat(), said);
        assert_eq!(around.relay.join().unwrap().unwrap(), 7);
    }

    /// What a guest's kernel can make of it: Firecracker connects for it once, and never again.
    #[test]
    fn a_second_connection_finds_nothing() {
        let mut around = Around::new();
        let mut guest = UnixStream::connect(&around.name).unwrap();
        guest.write_all(b"x").unwrap();
        around.from_guest.read_exact(&mut [0]).unwrap();
        assert!(UnixStream::connect(&around.name).is_err() && !around.name.exists());
        around.end();
        drop(guest);
        around.relay.join().unwrap().unwrap();
    }

    /// One that was waiting to be taken is let go with the socket.
    #[test]
    fn a_connection_that_came_second_is_closed() {
        let (mut around, [mut guest, mut second]) =
            Around::after(|name| [(); 2].map(|()| UnixStream::connect(name).unwrap()));
        guest.write_all(b"x").unwrap();
        around.from_guest.read_exact(&mut [0]).unwrap();
        assert!(matches!(second.read(&mut [0]), Ok(0) | Err(_)));
        around.end();
        drop(guest);
        around.relay.join().unwrap().unwrap();
    }

    #[test]
    fn a_monitor_that_ends_without_a_connection_ends_the_relay() {
        let mut around = Around::new();
        around.end();
        assert_eq!(around.relay.join().unwrap().unwrap(), 7);
        assert_eq!(around.from_guest.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn an_executor_that_closes_its_end_is_seen_by_the_guest_which_may_still_answer() {
        let mut around = Around::new();
        let mut guest = UnixStream::connect(&around.name).unwrap();
        drop(std::mem::replace(&mut around.to_guest, io::pipe().unwrap().1));
        assert_eq!(guest.read(&mut [0]).unwrap(), 0);
        guest.write_all(b"bye").unwrap();
        drop(guest);
        let mut heard = String::new();
        around.from_guest.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "bye");
        around.end();
        around.relay.join().unwrap().unwrap();
    }

    /// A guest that floods is stopped where nobody reads; what is held does not grow.
    #[test]
    fn a_flood_waits_for_its_reader() {
        let mut around = Around::new();
        let mut guest = UnixStream::connect(&around.name).unwrap();
        guest.set_nonblocking(true).unwrap();
        let (mut taken, mut refused) = (0, 0);
        let piece = vec![0; 64 << 10];
        // Until nothing moves any more: the relay gets time to take more between two tries.
        while refused < 20 {
            match guest.write(&piece) {
                Ok(n) => (taken, refused) = (taken + n, 0),
                Err(_) => {
                    refused += 1;
                    std::thread::yield_now();
                }
            }
            assert!(taken < 16 << 20);
        }
        around.end();
        drop(guest);
        let mut rest = Vec::new();
        around.from_guest.read_to_end(&mut rest).unwrap();
        assert_eq!(rest.len(), taken);
        around.relay.join().unwrap().unwrap();
    }
}
