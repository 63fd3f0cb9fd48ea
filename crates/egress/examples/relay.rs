//! What the way out costs, on loopback: `relay latency TIMES`, `relay bulk MIB ROUNDS [ORIGIN OTHER]`, `relay open COUNT`.
//! Each prints lines of a name and a number. With two ports `bulk` has its origin on the first, and measures a relay of
//! somebody else's on the second that leads there. For `scripts/bench --only egress`.

#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use egress::{
    Asked, Caps, Dial, Dialing, Egress, Event, Granted, Pinned, Resolve, Resolving, Roots, Sink, Terms,
};
use policy::{HostName, HostRule};

type Done<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The origin has a public address to the judge, and is on loopback.
struct Loopback(SocketAddr);
struct Public;
struct Deaf;

impl Dial for Loopback {
    fn dial(&self, _: Pinned) -> Dialing {
        let to = self.0;
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(to).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
    }
}

impl Resolve for Public {
    fn resolve<'a>(&'a self, _: &'a HostName) -> Resolving<'a> {
        Box::pin(async { Ok(vec![Ipv4Addr::new(203, 0, 113, 7).into()]) })
    }
}

impl Sink for Deaf {
    fn tell(&self, _: Event) -> bool {
        true
    }
}

fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|n| n.parse::<usize>().ok());
    match (arguments.first().map(String::as_str), number(1)) {
        (Some("latency"), Some(times)) => latency(times),
        (Some("bulk"), Some(mib)) => {
            let port = |at| number(at).and_then(|n| u16::try_from(n).ok());
            bulk(mib, number(2).unwrap_or(5), port(3).zip(port(4)))
        }
        (Some("open"), Some(count)) => open(count),
        _ => Err("relay latency TIMES | bulk MIB ROUNDS [ORIGIN OTHER] | open COUNT".into()),
    }
}

/// Requests with a connection each, straight and through the way out, in turn.
fn latency(times: usize) -> Done {
    let origin = listen(0, |mut stream| {
        let mut head = [0; 1024];
        if stream.read(&mut head).is_ok_and(|read| read > 0) {
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"));
        }
    })?;
    let proxy = way_out(origin)?;
    let mut took = [Vec::new(), Vec::new()];
    for turn in 0..times + 20 {
        for (at, to) in [origin, proxy].into_iter().enumerate() {
            let began = Instant::now();
            let mut stream = TcpStream::connect(to)?;
            stream.set_nodelay(true)?;
            stream.write_all(b"GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n")?;
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard)?;
            if !heard.ends_with(b"ok") {
                return Err(String::from_utf8_lossy(&heard).into());
            }
            if turn >= 20 {
                took[at].push(1000.0 * began.elapsed().as_secs_f64());
            }
        }
    }
    for (name, times) in ["direct", "egress"].into_iter().zip(&mut took) {
        times.sort_by(f64::total_cmp);
        println!("{name} {:.4}", times[times.len() / 2]);
    }
    Ok(())
}

/// Megabytes a second from the origin: straight, through a plain relay, through another's, through the way out.
fn bulk(mib: usize, rounds: usize, other: Option<(u16, u16)>) -> Done {
    let origin = listen(other.map_or(0, |(origin, _)| origin), move |mut stream| {
        let (mut go, piece) = ([0; 1], vec![7; 64 << 10]);
        if stream.read_exact(&mut go).is_ok() {
            drop((0..mib * 16).try_for_each(|_| stream.write_all(&piece)));
        }
    })?;
    let relay = plain(origin)?;
    let proxy = way_out(origin)?;
    let other = other.map(|(_, port)| SocketAddr::from(([127, 0, 0, 1], port)));
    for _ in 0..rounds {
        let ways =
            [("direct", Some(origin)), ("plain", Some(relay)), ("other", other), ("egress", Some(proxy))];
        for (name, to) in ways {
            let Some(to) = to else { continue };
            let mut stream = TcpStream::connect(to)?;
            if name == "egress" {
                connect(&mut stream)?;
            }
            stream.write_all(b"g")?;
            let (began, mut heard, mut piece) = (Instant::now(), 0, vec![0; 256 << 10]);
            while heard < mib << 20 {
                match stream.read(&mut piece)? {
                    0 => return Err(format!("{name} ended after {heard} bytes").into()),
                    read => heard += read,
                }
            }
            let mib = u32::try_from(mib)?;
            println!("{name} {:.1}", f64::from(mib) / began.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

/// What this whole process holds, its clients and its origin among it, with so many connections open.
fn open(count: usize) -> Done {
    let origin = listen(0, |mut stream| {
        let mut byte = [0; 1];
        while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
    })?;
    let proxy = way_out(origin)?;
    let mut held = Vec::new();
    println!("before {}", resident()?);
    for _ in 0..count {
        let mut stream = TcpStream::connect(proxy)?;
        connect(&mut stream)?;
        let mut byte = [0; 1];
        stream.write_all(b"x")?;
        stream.read_exact(&mut byte)?;
        held.push(stream);
    }
    println!("open {}", resident()?);
    Ok(())
}

fn connect(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"CONNECT 203.0.113.7:80 HTTP/1.1\r\nHost: 203.0.113.7:80\r\n\r\n")?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    if head.starts_with(b"HTTP/1.1 200") { Ok(()) } else { Err(io::Error::other("refused")) }
}

/// KiB of this process.
fn resident() -> Done<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// A server with a small thread for each connection.
fn listen(port: u16, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let at = listener.local_addr()?;
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            drop(stream.set_nodelay(true));
            let serve = serve.clone();
            drop(thread::Builder::new().stack_size(64 << 10).spawn(move || serve(stream)));
        }
    });
    Ok(at)
}

/// The way out on a listener of its own, in a thread of its own.
fn way_out(origin: SocketAddr) -> Done<SocketAddr> {
    let rules = ["api.example.com:80", "203.0.113.7:80"];
    let granted = rules.into_iter().map(|rule| Ok(Granted::new(HostRule::parse(rule)?.into(), |_| None)?));
    let caps = Caps {
        down: u64::MAX,
        up: u64::MAX,
        connections: u64::MAX,
        events: u64::MAX >> 1,
        event_bytes: u64::MAX >> 1,
        ..Caps::default()
    };
    let terms = Terms {
        granted: granted.collect::<Done<_>>()?,
        caps,
        own: Vec::new(),
        roots: Roots::System,
        resolver: Arc::new(Public),
        dialer: Arc::new(Loopback(origin)),
        sink: Arc::new(Deaf),
    };
    let egress = Egress::new(terms);
    Ok(serving(move |stream| {
        let egress = egress.clone();
        async move { egress.serve(Asked::Proxy, stream).await }
    })?)
}

/// A relay that copies and does nothing else.
fn plain(origin: SocketAddr) -> io::Result<SocketAddr> {
    serving(move |mut stream| async move {
        if let Ok(mut to) = tokio::net::TcpStream::connect(origin).await {
            drop(tokio::io::copy_bidirectional(&mut stream, &mut to).await);
        }
    })
}

fn serving<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(tokio::net::TcpStream) -> F + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::spawn(move || {
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            loop {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                tokio::spawn(serve(stream));
            }
            #[expect(unreachable_code, reason = "says what the question marks give")]
            io::Result::Ok(())
        })
    });
    Ok(at)
}
