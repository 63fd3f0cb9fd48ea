//! What listens on the host while a row is played: whatever reaches it got out of a sandbox.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

/// Ports that are tried before it is told that none can be had.
const TRIES: u32 = 50;

/// Counts what reaches the host.
pub(super) struct Listener {
    pub(super) port: u16,
    tcp: Vec<TcpListener>,
    udp: UdpSocket,
}

impl Listener {
    /// The same port for everything, on every address of the host.
    pub(super) fn open() -> io::Result<Listener> {
        let mut last = io::Error::from(ErrorKind::AddrInUse);
        for _ in 0..TRIES {
            let first = TcpListener::bind(("0.0.0.0", 0))?;
            let port = first.local_addr()?.port();
            // Somebody else may have the number elsewhere: then another.
            let udp = match UdpSocket::bind(("0.0.0.0", port)) {
                Ok(udp) => udp,
                Err(e) => {
                    last = e;
                    continue;
                }
            };
            // A kernel without this family needs no listener of it.
            let second = TcpListener::bind(("::1", port));
            let tcp: Vec<TcpListener> = [first].into_iter().chain(second).collect();
            tcp.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
            udp.set_nonblocking(true)?;
            return Ok(Listener { port, tcp, udp });
        }
        Err(last)
    }

    /// Connections and packets that came.
    pub(super) fn received(&self) -> io::Result<u64> {
        let mut count = 0;
        for socket in &self.tcp {
            count += many(|| socket.accept().map(drop))?;
        }
        Ok(count + many(|| self.udp.recv_from(&mut [0; 64]).map(drop))?)
    }
}

fn many(take: impl Fn() -> io::Result<()>) -> io::Result<u64> {
    let mut count = 0;
    loop {
        match take() {
            Ok(()) => count += 1,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(count),
            // A peer that hung up before it was taken did come.
            Err(e) if e.kind() == ErrorKind::ConnectionAborted => count += 1,
            Err(e) => return Err(e),
        }
    }
}

/// An address of this host that is not its loopback; the way out is looked up, nothing is sent.
pub(super) fn host_address() -> IpAddr {
    let way = UdpSocket::bind(("0.0.0.0", 0)).and_then(|socket| {
        socket.connect(SocketAddr::from(([192, 0, 2, 1], 9)))?;
        socket.local_addr()
    });
    // A host without any network has no such address.
    way.map_or(IpAddr::from([127, 0, 0, 2]), |address| address.ip())
}
