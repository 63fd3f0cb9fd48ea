//! The doors of a guest on a kernel of its own: init answers, accepts, and carries bytes over the channel.
//!
//! It is part of init's one loop, by one descriptor that is readable when there is something to do; another process
//! would be one that a guest of the same id can end. It never waits for a program: what a program does not take is
//! held, as far as the window of its stream goes, and what the executor does not take is not read. What it reads of
//! programs is carried, not looked at, but for questions to the resolver.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::SocketFlags;

use crate::doors::{ASKERS, DATAGRAM, Doors, Held, Layout, Names, Role, STREAMS, Window, Windows};
use crate::wire::{Frame, HEAD, Kind, PIECE, head};

/// What is looked at between two looks at everything else.
const AT_ONCE: usize = 64;
/// Connections that are taken at one door between two looks.
const GUESTS: usize = 16;

/// How long nobody is taken where one could not be: a guest may have taken all there is, and may give it back.
const LACK: Duration = Duration::from_millis(50);

/// Pieces that are carried of one connection, before it is another's turn: all with one call in, and one out.
const PIECES: usize = 4;

/// What an event is about, in the upper half of its number.
const DOOR: u32 = 0;
const LINE: u32 = 1;
const ASKER: u32 = 2;

pub(super) struct Porter {
    epoll: OwnedFd,
    channel: io::PipeWriter,
    doors: Doors,
    names: Names,
    sockets: Vec<Door>,
    lines: BTreeMap<u32, Line>,
    next: u32,
    /// Connections are taken.
    taking: bool,
    /// Since when nobody is, for want of something that the kernel gives: descriptors or memory.
    lacking: Option<Instant>,
    /// Connections to the resolver, the oldest first.
    askers: VecDeque<Asker>,
    /// What the executor may have under way on all lines.
    under_way: Windows,
    /// Frames that are being made, each in its place.
    piece: Vec<u8>,
}

enum Door {
    Datagrams(UdpSocket),
    Questions(TcpListener),
    Proxy(TcpListener),
    Named(TcpListener, SocketAddrV4),
}

/// A connection of a program's.
struct Line {
    /// None once it is closed here, until the executor has closed as well.
    socket: Option<TcpStream>,
    held: Held,
    window: Window,
    /// What the executor still takes.
    credit: usize,
    /// The program says no more.
    heard: bool,
    coming: Coming,
    /// The program was told that no more comes.
    shut: bool,
    watched: EventFlags,
}

/// What comes from the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coming {
    Open,
    Finished,
    Closed { whole: bool },
}

struct Asker {
    number: u32,
    socket: TcpStream,
    bytes: Vec<u8>,
}

impl Porter {
    /// Opens the doors, with the sockets of this layout.
    pub(super) fn new(layout: &Layout, sockets: Vec<OwnedFd>, channel: BorrowedFd<'_>) -> io::Result<Porter> {
        let door = |(fd, role, at): (OwnedFd, Role, SocketAddrV4)| match role {
            Role::Datagrams => Door::Datagrams(fd.into()),
            Role::Questions => Door::Questions(fd.into()),
            Role::Proxy => Door::Proxy(fd.into()),
            Role::Named => Door::Named(fd.into(), at),
        };
        let porter = Porter {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            channel: rustix::io::fcntl_dupfd_cloexec(channel, 16)?.into(),
            doors: layout.doors.clone(),
            names: Names::of(layout),
            sockets: sockets
                .into_iter()
                .zip(&layout.sockets)
                .map(|(fd, s)| door((fd, s.role, s.at)))
                .collect(),
            lines: BTreeMap::new(),
            next: 1,
            taking: true,
            lacking: None,
            askers: VecDeque::new(),
            under_way: Windows::to_guest(),
            piece: vec![0; PIECES * (HEAD + PIECE)],
        };
        for (n, door) in (0..).zip(&porter.sockets) {
            epoll::add(&porter.epoll, door, token(DOOR, n), EventFlags::IN)?;
        }
        Ok(porter)
    }

    /// Readable when there is something to do.
    pub(super) fn waits_on(&self) -> &OwnedFd {
        &self.epoll
    }

    /// Does what there is to do, some of it.
    pub(super) fn serve(&mut self) -> io::Result<()> {
        const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events: Vec<Event> = Vec::with_capacity(AT_ONCE);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&NOW)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for event in events {
            let (data, flags) = (event.data.u64(), event.flags);
            let number = u32::try_from(data & u64::from(u32::MAX)).unwrap_or(0);
            match u32::try_from(data >> 32).unwrap_or(u32::MAX) {
                DOOR => self.open(number)?,
                LINE => self.line(number, flags)?,
                _ => self.ask(number),
            }
        }
        // Before anything else is said: who has heard the answer may end its call with it.
        for missed in self.names.missed() {
            self.say(Kind::Missed, 0, &missed.written())?;
        }
        Ok(())
    }

    /// Takes bytes for a program, and holds only what it does not take at once.
    pub(super) fn carry(&mut self, number: u32, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let Some(line) = self.lines.get_mut(&number) else { return Err(no_stream()) };
        // Nobody is there to have it.
        let Some(socket) = &mut line.socket else { return Ok(()) };
        if !line.window.came(pieces.iter().map(|piece| piece.len()).sum()) {
            return Err(io::Error::other("more than a stream may carry"));
        }
        let now = if line.held.is_empty() { socket.write_vectored(pieces) } else { Ok(0) };
        let taken = match now {
            Ok(taken) => taken,
            Err(e) if e.kind() == ErrorKind::WouldBlock || e.kind() == ErrorKind::Interrupted => 0,
            Err(_) => return self.close(number),
        };
        let mut before = taken;
        for piece in pieces {
            let skip = before.min(piece.len());
            before -= skip;
            line.held.push(piece[skip..].to_vec());
        }
        self.took(number, taken)
    }

    /// Takes another frame of the executor's.
    pub(super) fn take(&mut self, frame: Frame) -> io::Result<()> {
        let Frame { kind, call: number, payload } = frame;
        let Some(line) = self.lines.get_mut(&number) else { return Err(no_stream()) };
        match kind {
            Kind::Finish => line.coming = Coming::Finished,
            Kind::Credit => {
                let more = payload.try_into().map(u32::from_le_bytes).unwrap_or(0);
                line.credit = line.credit.saturating_add(usize::try_from(more).unwrap_or(0));
            }
            Kind::Close => {
                line.coming = Coming::Closed { whole: line.coming == Coming::Finished };
                if line.socket.is_none() {
                    self.lines.remove(&number);
                    return self.resume();
                }
            }
            Kind::Data
            | Kind::Knock
            | Kind::Missed
            | Kind::Start
            | Kind::Kill
            | Kind::Sweep
            | Kind::Collect
            | Kind::Hello
            | Kind::Stdout
            | Kind::Stderr
            | Kind::End => return Err(io::Error::other("a frame that is none of a stream")),
        }
        self.settle(number)
    }

    /// Takes who stands at a door.
    fn open(&mut self, number: u32) -> io::Result<()> {
        let door = usize::try_from(number).ok().and_then(|n| self.sockets.get(n));
        match door {
            // Left for a while by another door of the same look.
            Some(Door::Questions(_) | Door::Proxy(_) | Door::Named(..)) if self.lacking.is_some() => {}
            Some(Door::Datagrams(socket)) => {
                let mut question = [0; DATAGRAM];
                for _ in 0..AT_ONCE {
                    // An error is of a datagram before, which nobody wanted.
                    let Ok((n, from)) = socket.recv_from(&mut question) else { break };
                    if let Some(answer) = self.names.answer(&question[..n]) {
                        socket.send_to(&answer, from).ok();
                    }
                }
            }
            Some(Door::Questions(listener)) => {
                let socket = match accept(listener)? {
                    Guest::Here(socket) => socket,
                    Guest::Nobody => return Ok(()),
                    Guest::Waits => return self.lack(),
                };
                if self.askers.len() >= ASKERS
                    && let Some(oldest) = self.askers.pop_front()
                {
                    epoll::delete(&self.epoll, &oldest.socket).ok();
                }
                let number = self.number();
                if epoll::add(&self.epoll, &socket, token(ASKER, number), EventFlags::IN).is_err() {
                    return self.lack();
                }
                self.askers.push_back(Asker { number, socket, bytes: Vec::new() });
            }
            Some(Door::Proxy(_) | Door::Named(..)) => {
                for _ in 0..GUESTS {
                    if self.lines.len() >= STREAMS {
                        return self.pause();
                    }
                    if !self.guest(number)? {
                        break;
                    }
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Takes one; false when there is nobody.
    fn guest(&mut self, door: u32) -> io::Result<bool> {
        let door = usize::try_from(door).ok().and_then(|n| self.sockets.get(n));
        let (listener, at) = match door {
            Some(Door::Proxy(listener)) => (listener, None),
            Some(Door::Named(listener, at)) => (listener, Some(*at)),
            Some(Door::Datagrams(_) | Door::Questions(_)) | None => return Ok(false),
        };
        let socket = match accept(listener)? {
            Guest::Here(socket) => socket,
            Guest::Nobody => return Ok(false),
            Guest::Waits => return self.lack().map(|()| false),
        };
        let asked = match at {
            None => Vec::new(),
            // An address of the pool may have no name, or none that this port is granted for.
            Some(at) => match self.names.host(*at.ip()).filter(|host| self.doors.grant(host, at.port())) {
                Some(host) => [&at.port().to_le_bytes()[..], host.as_bytes()].concat(),
                None => {
                    break_off(&socket);
                    return Ok(true);
                }
            },
        };
        // Refused only of a connection that is gone.
        socket.set_nodelay(true).ok();
        let number = self.number();
        if epoll::add(&self.epoll, &socket, token(LINE, number), EventFlags::IN).is_err() {
            break_off(&socket);
            return self.lack().map(|()| false);
        }
        let line = Line {
            socket: Some(socket),
            held: Held::default(),
            window: self.under_way.open(),
            credit: Window::TO_EXECUTOR,
            heard: false,
            coming: Coming::Open,
            shut: false,
            watched: EventFlags::IN,
        };
        self.lines.insert(number, line);
        self.say(Kind::Knock, number, &asked)?;
        Ok(true)
    }

    /// A number that nothing has.
    fn number(&mut self) -> u32 {
        loop {
            self.next = self.next.wrapping_add(1);
            let taken =
                self.lines.contains_key(&self.next) || self.askers.iter().any(|a| a.number == self.next);
            if !taken {
                return self.next;
            }
        }
    }

    /// Leaves who stands at any door, for a while.
    fn lack(&mut self) -> io::Result<()> {
        self.lacking = Some(Instant::now());
        for door in self.sockets.iter().filter(|door| door.answers()) {
            epoll::delete(&self.epoll, door)?;
        }
        self.pause()
    }

    /// Goes to the doors again that were left for a while. Asked at each turn of init's loop, of which there is one every
    /// so often while a guest runs.
    pub(super) fn look_again(&mut self) -> io::Result<()> {
        if self.lacking.is_none_or(|since| since.elapsed() < LACK) {
            return Ok(());
        }
        self.lacking = None;
        for (n, door) in (0..).zip(&self.sockets).filter(|(_, door)| door.answers()) {
            epoll::add(&self.epoll, door, token(DOOR, n), EventFlags::IN)?;
        }
        if self.lines.len() < STREAMS { self.take_guests() } else { Ok(()) }
    }

    /// Nobody is taken until there is room again; who comes waits in the kernel.
    fn pause(&mut self) -> io::Result<()> {
        // Another door of the same look may have been the one.
        if !std::mem::replace(&mut self.taking, false) {
            return Ok(());
        }
        for door in self.sockets.iter().filter(|door| door.leads_out()) {
            epoll::delete(&self.epoll, door)?;
        }
        Ok(())
    }

    fn resume(&mut self) -> io::Result<()> {
        // Not for each place that is free: it takes a call for every door.
        if self.taking || self.lacking.is_some() || self.lines.len() > STREAMS / 4 * 3 {
            return Ok(());
        }
        self.take_guests()
    }

    fn take_guests(&mut self) -> io::Result<()> {
        self.taking = true;
        for (n, door) in (0..).zip(&self.sockets).filter(|(_, door)| door.leads_out()) {
            epoll::add(&self.epoll, door, token(DOOR, n), EventFlags::IN)?;
        }
        Ok(())
    }

    /// Something is to be done with a line.
    fn line(&mut self, number: u32, flags: EventFlags) -> io::Result<()> {
        let Some(line) = self.lines.get(&number) else { return Ok(()) };
        let (watched, trouble) = (line.watched, EventFlags::ERR | EventFlags::HUP);
        if watched.contains(EventFlags::OUT) && flags.intersects(EventFlags::OUT | trouble) {
            self.write(number)?;
        }
        if watched.contains(EventFlags::IN) && flags.intersects(EventFlags::IN | trouble) {
            self.read(number)?;
        }
        Ok(())
    }

    /// Carries what a program says, some pieces of it.
    fn read(&mut self, number: u32) -> io::Result<()> {
        let Some(line) = self.lines.get_mut(&number) else { return Ok(()) };
        let Some(socket) = &mut line.socket else { return Ok(()) };
        let most = line.credit.min(PIECES * PIECE);
        if most > 0 && !line.heard {
            let mut left = most;
            let mut room: Vec<IoSliceMut<'_>> = Vec::with_capacity(PIECES);
            for piece in self.piece.chunks_mut(HEAD + PIECE).take(most.div_ceil(PIECE)) {
                let n = left.min(PIECE);
                left -= n;
                room.push(IoSliceMut::new(&mut piece[HEAD..HEAD + n]));
            }
            match socket.read_vectored(&mut room) {
                Ok(0) => {
                    line.heard = true;
                    self.channel.write_all(&head(Kind::Finish, number, 0))?;
                }
                Ok(n) => {
                    line.credit -= n;
                    let (mut left, mut length) = (n, 0);
                    while left > 0 {
                        let some = left.min(PIECE);
                        self.piece[length..length + HEAD].copy_from_slice(&head(Kind::Data, number, some));
                        (left, length) = (left - some, length + HEAD + some);
                    }
                    self.channel.write_all(&self.piece[..length])?;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock || e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.close(number),
            }
        }
        self.settle(number)
    }

    /// Gives a program what it takes of what is held for it.
    fn write(&mut self, number: u32) -> io::Result<()> {
        let Some(line) = self.lines.get_mut(&number) else { return Ok(()) };
        let Some(socket) = &mut line.socket else { return Ok(()) };
        let mut taken = 0;
        let mut broken = false;
        while !line.held.is_empty() {
            match socket.write(line.held.next()) {
                Ok(n) => {
                    line.held.took(n);
                    taken += n;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    broken = e.kind() != ErrorKind::WouldBlock;
                    break;
                }
            }
        }
        if broken {
            return self.close(number);
        }
        self.took(number, taken)
    }

    /// A program has taken so much: more may come.
    fn took(&mut self, number: u32, taken: usize) -> io::Result<()> {
        let Some(line) = self.lines.get_mut(&number) else { return Ok(()) };
        let more = line.window.took(taken, &mut self.under_way);
        if let (Some(more), Coming::Open) = (more, line.coming) {
            self.say(Kind::Credit, number, &more.to_le_bytes())?;
        }
        self.settle(number)
    }

    /// Ends what is at its end, and looks out for what may come next.
    fn settle(&mut self, number: u32) -> io::Result<()> {
        let Some(line) = self.lines.get_mut(&number) else { return Ok(()) };
        let Some(socket) = &line.socket else { return Ok(()) };
        let given = line.held.is_empty();
        let whole = matches!(line.coming, Coming::Finished | Coming::Closed { whole: true });
        if whole && given && !line.shut {
            socket.shutdown(Shutdown::Write).ok();
            line.shut = true;
        }
        let over = match line.coming {
            Coming::Open => false,
            Coming::Finished => line.shut && line.heard,
            Coming::Closed { .. } => given,
        };
        if over {
            if !whole {
                break_off(socket);
            }
            return self.close(number);
        }
        let mut wanted = EventFlags::empty();
        let closed = matches!(line.coming, Coming::Closed { .. });
        wanted.set(EventFlags::IN, !line.heard && line.credit > 0 && !closed);
        wanted.set(EventFlags::OUT, !given);
        let before = std::mem::replace(&mut line.watched, wanted);
        let token = token(LINE, number);
        // One that nothing is wanted of would be told of for ever once its other end is gone.
        match (before.is_empty(), wanted.is_empty()) {
            _ if before == wanted => Ok(()),
            (true, _) => Ok(epoll::add(&self.epoll, socket, token, wanted)?),
            (false, true) => Ok(epoll::delete(&self.epoll, socket)?),
            (false, false) => Ok(epoll::modify(&self.epoll, socket, token, wanted)?),
        }
    }

    /// Closes a line here, and says so.
    fn close(&mut self, number: u32) -> io::Result<()> {
        let Some(line) = self.lines.get_mut(&number) else { return Ok(()) };
        let Some(socket) = line.socket.take() else { return Ok(()) };
        if !line.watched.is_empty() {
            // A process that is just being started has the socket, too, and closing ours would not do.
            epoll::delete(&self.epoll, &socket).ok();
        }
        drop(socket);
        line.held.clear();
        line.window.close(&mut self.under_way);
        let over = matches!(line.coming, Coming::Closed { .. });
        self.say(Kind::Close, number, &[])?;
        if over {
            self.lines.remove(&number);
            self.resume()?;
        }
        Ok(())
    }

    fn say(&mut self, kind: Kind, number: u32, payload: &[u8]) -> io::Result<()> {
        self.channel.write_all(&[&head(kind, number, payload.len()), payload].concat())
    }

    /// Answers over TCP.
    fn ask(&mut self, number: u32) {
        let Some(at) = self.askers.iter().position(|asker| asker.number == number) else { return };
        if let Some(asker) = self.askers.get_mut(at)
            && asker.answer(&mut self.names).is_err()
        {
            epoll::delete(&self.epoll, &asker.socket).ok();
            self.askers.remove(at);
        }
    }
}

impl Asker {
    /// Reads once and answers all that is whole; an error when it is over.
    fn answer(&mut self, names: &mut Names) -> io::Result<()> {
        let mut buffer = [0; DATAGRAM];
        match self.socket.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => self.bytes.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e),
        }
        while let Some((length, rest)) = self.bytes.split_first_chunk::<2>() {
            let length = usize::from(u16::from_be_bytes(*length));
            if length > DATAGRAM {
                return Err(ErrorKind::InvalidData.into());
            }
            let Some(question) = rest.get(..length) else { break };
            let answer = names.answer(question).ok_or(ErrorKind::InvalidData)?;
            let length_of_answer = u16::try_from(answer.len()).map_err(io::Error::other)?;
            // Who does not read what it asked for is not waited for.
            self.socket.write_all(&[&length_of_answer.to_be_bytes()[..], &answer].concat())?;
            self.bytes.drain(..2 + length);
        }
        Ok(())
    }
}

impl Door {
    /// Whether it is one by which bytes go out.
    fn leads_out(&self) -> bool {
        match self {
            Door::Proxy(_) | Door::Named(..) => true,
            Door::Datagrams(_) | Door::Questions(_) => false,
        }
    }

    /// Whether connections are taken at it that go nowhere.
    fn answers(&self) -> bool {
        matches!(self, Door::Questions(_))
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Door::Datagrams(socket) => socket.as_fd(),
            Door::Questions(listener) | Door::Proxy(listener) | Door::Named(listener, _) => listener.as_fd(),
        }
    }
}

/// Who stands at a door.
enum Guest {
    Here(TcpStream),
    Nobody,
    /// Somebody, who cannot be taken now.
    Waits,
}

/// The next connection at a door.
fn accept(listener: &TcpListener) -> io::Result<Guest> {
    use rustix::io::Errno;
    match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => Ok(Guest::Here(socket.into())),
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(Guest::Nobody),
        Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Ok(Guest::Waits),
        Err(e) => Err(e.into()),
    }
}

fn no_stream() -> io::Error {
    io::Error::other("a frame of a stream that is none")
}

/// Has a socket tell the program, when it is closed, that this was no end.
fn break_off(socket: &TcpStream) {
    // Refused only of a connection that is gone.
    rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO)).ok();
}

fn token(what: u32, number: u32) -> EventData {
    EventData::new_u64(u64::from(what) << 32 | u64::from(number))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::doors::Name;
    use crate::sys;

    /// A guest that has taken all descriptors there are costs who stands at a door some time, and the sandbox nothing.
    #[test]
    fn who_cannot_be_taken_waits_and_is_taken_later() {
        let names = [Name { host: "a.example".to_owned(), star: false, port: 1 }].into();
        let mut layout = Layout::of(&Doors { names }).unwrap().unwrap();
        let mut ends = Vec::new();
        let mut sockets: Vec<OwnedFd> = Vec::new();
        layout.sockets.retain(|socket| socket.role != Role::Datagrams);
        for _ in &layout.sockets {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            listener.set_nonblocking(true).unwrap();
            ends.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            sockets.push(listener.into());
        }
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut porter = Porter::new(&layout, sockets, writer.as_fd()).unwrap();
        let next = std::fs::File::open("/dev/null").unwrap();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let (soft, hard) = (limit.current.unwrap(), limit.maximum.unwrap());
        let most = u64::try_from(std::os::fd::AsRawFd::as_raw_fd(&next)).unwrap();
        drop(next);
        sys::set_limit(libc::RLIMIT_NOFILE, most, hard).unwrap();
        porter.serve().unwrap();
        let waits = (porter.lines.len(), porter.askers.len(), porter.lacking.is_some());
        // Not at once, and not at every turn.
        porter.look_again().unwrap();
        let turns = porter.lacking.is_some();
        sys::set_limit(libc::RLIMIT_NOFILE, soft, hard).unwrap();
        assert_eq!((waits, turns), ((0, 0, true), true));
        while porter.lacking.is_some_and(|since| since.elapsed() < LACK) {
            std::thread::yield_now();
        }
        porter.look_again().unwrap();
        porter.serve().unwrap();
        assert!(porter.lacking.is_none() && porter.askers.len() == 1);
        // The proxy's and that of the name, which here has another address than its own.
        assert!(!porter.lines.is_empty());
        let mut head = [0; HEAD];
        reader.read_exact(&mut head).unwrap();
    }

    /// A connection from a program, whose socket takes little, through a porter that says all to the other end.
    fn connected(ours: &std::os::unix::net::UnixStream) -> (Porter, u32, TcpStream) {
        let names = [Name { host: "a.example".to_owned(), star: false, port: 1 }].into();
        let mut layout = Layout::of(&Doors { names }).unwrap().unwrap();
        layout.sockets.retain(|socket| socket.role == Role::Proxy);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
        let program = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&program, 4096).unwrap();
        let mut porter = Porter::new(&layout, vec![listener.into()], ours.as_fd()).unwrap();
        while porter.lines.is_empty() {
            porter.serve().unwrap();
        }
        let (&number, line) = porter.lines.first_key_value().unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(line.socket.as_ref().unwrap(), 4096).unwrap();
        (porter, number, program)
    }

    #[test]
    fn pieces_that_go_on_together_and_are_taken_in_parts_come_in_order() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let (mut porter, number, mut program) = connected(&ours);
        let said: Vec<u8> = (0..60_000_u32).map(|n| (n % 251).to_le_bytes()[0]).collect();
        let pieces: Vec<IoSlice<'_>> = said.chunks(17_000).map(IoSlice::new).collect();
        porter.carry(number, &pieces).unwrap();
        assert!(!porter.lines[&number].held.is_empty(), "all was taken at once");
        let mut heard = vec![0; said.len()];
        let mut at = 0;
        program.set_nonblocking(true).unwrap();
        while at < heard.len() {
            porter.serve().unwrap();
            at += program.read(&mut heard[at..]).unwrap_or(0);
        }
        assert!(heard == said && porter.lines[&number].held.is_empty());
    }

    #[test]
    fn what_a_program_says_at_once_is_frames_of_a_piece_each() {
        const ALL: usize = 3 * PIECE + 1000;
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let (mut porter, number, mut program) = connected(&ours);
        let said: Vec<u8> = (0..ALL).map(|n| (n % 251).to_le_bytes()[0]).collect();
        porter.lines.get_mut(&number).unwrap().credit = ALL;
        let hears = std::thread::spawn(move || {
            let (mut decoder, mut heard) = (crate::wire::Decoder::default(), Vec::new());
            while heard.len() < ALL {
                let n = theirs.read(decoder.space(PIECE)).unwrap();
                decoder.came(n);
                while let Some(Frame { kind, payload, .. }) = decoder.next().unwrap() {
                    assert!(payload.len() <= PIECE && matches!(kind, Kind::Knock | Kind::Data));
                    heard.extend(payload);
                }
            }
            heard
        });
        program.set_nonblocking(true).unwrap();
        let mut rest = &said[..];
        while porter.lines[&number].credit > 0 {
            rest = &rest[program.write(rest).unwrap_or(0)..];
            porter.serve().unwrap();
        }
        assert!(hears.join().unwrap() == said);
    }
}
