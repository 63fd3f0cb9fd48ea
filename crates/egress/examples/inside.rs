//! What a program inside a sandbox finds of the way out: it runs there, and its counterpart outside.
//!
//! ```text
//!   inside origin ADDRESS             web server on port 80, and a name server that has this address for every name
//!   inside ask HOST:PORT TIMES        requests with a connection each: `request` and the median in milliseconds
//!   inside own TIMES MIB              both of a server of its own on loopback: what the sandbox itself costs
//!   inside bulk HOST:PORT MIB         `bulk` and MiB a second
//!   inside tunnel ADDRESS:PORT MIB    the same by CONNECT, as TLS goes: nothing in it is read on the way
//!   inside up HOST:PORT MIB           the same the other way, as the body of a request
//!   inside hold HOST:PORT COUNT SECONDS   so many connections, idle for so long, then all busy for as long: `took` and MiB
//!   inside give HOST:PORT COUNT SECONDS   the same, but they send more than is taken
//! ```
//!
//! It asks no proxy but for `tunnel`. For `scripts/bench --only egress-inside`.

#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

type Done<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Connections to the origin that wait for as many others.
static HELD: AtomicUsize = AtomicUsize::new(0);

fn main() -> Done {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["origin", address] => origin(address.parse()?),
        ["ask", host, times] => ask("request", to(host)?, host, times.parse()?),
        ["own", times, mib] => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let at = listener.local_addr()?;
            thread::spawn(move || serve(&listener));
            ask("own", at, "localhost", times.parse()?)?;
            bulk("own-bulk", open(at)?, "localhost", mib.parse()?)
        }
        ["bulk", host, mib] => bulk("bulk", open(to(host)?)?, host, mib.parse()?),
        ["up", host, mib] => up(open(to(host)?)?, host, mib.parse()?),
        ["tunnel", address, mib] => bulk("tunnel", tunnel(address)?, address, mib.parse()?),
        [way @ ("hold" | "give"), host, count, seconds] => {
            hold(way, to(host)?, host, count.parse()?, Duration::from_secs(seconds.parse()?))
        }
        _ => Err("inside origin | ask | own | bulk | tunnel | up | hold | give".into()),
    }
}

/// A name is asked for once, and not measured.
fn to(host: &str) -> Done<SocketAddr> {
    Ok(host.to_socket_addrs()?.next().ok_or("no address")?)
}

fn origin(address: Ipv4Addr) -> Done {
    let (web, names) = (TcpListener::bind((address, 80))?, UdpSocket::bind((address, 53))?);
    thread::spawn(move || serve(&web));
    let mut query = [0; 512];
    loop {
        let (length, who) = names.recv_from(&mut query)?;
        let query = query.get(..length).unwrap_or_default();
        // A head, then labels and their end, then the type, where 1 is an IPv4 address.
        let end = query.iter().skip(12).position(|byte| *byte == 0).map_or(0, |at| at + 17);
        let Some(question) = query.get(12..end) else { continue };
        let asked = question.ends_with(&[0, 1, 0, 1]);
        let mut answer = query.get(..2).unwrap_or_default().to_vec();
        answer.extend([0x81, 0x80, 0, 1, 0, u8::from(asked), 0, 0, 0, 0]);
        answer.extend(question);
        if asked {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4]);
            answer.extend(address.octets());
        }
        names.send_to(&answer, who)?;
    }
}

fn serve(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        drop(thread::Builder::new().stack_size(256 << 10).spawn(move || drop(answer(stream))));
    }
}

/// Requests for `/MIB/BYTES`, one after the other, until the client goes; `/up/MIB` has a body of that size, and no other. One for `/hold/COUNT/SECONDS` has a byte at once,
/// and when so many have one and so long is over, all that it takes for as long. `/give/COUNT/SECONDS` is slowly read instead.
fn answer(mut stream: TcpStream) -> Done {
    stream.set_nodelay(true)?;
    let mut piece = vec![7; 64 << 10];
    while let Some((head, behind)) = head(&mut stream)? {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let words: Vec<&str> = path.split('/').skip(1).collect();
        if let [way @ ("hold" | "give"), count, seconds] = words[..] {
            let (count, time) = (count.parse()?, Duration::from_secs(seconds.parse()?));
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n.")?;
            HELD.fetch_add(1, Ordering::Relaxed);
            while HELD.load(Ordering::Relaxed) < count {
                thread::sleep(Duration::from_millis(10));
            }
            thread::sleep(time);
            let until = Instant::now() + time;
            // Whoever comes after these begins to count anew.
            HELD.store(0, Ordering::Relaxed);
            while Instant::now() < until {
                if way == "hold" {
                    stream.write_all(&piece)?;
                } else {
                    stream.read_exact(&mut piece)?;
                    thread::sleep(Duration::from_millis(50));
                }
            }
            return Ok(());
        }
        if let ["up", mib] = words[..] {
            let mut left = (mib.parse::<usize>()? << 20).saturating_sub(behind);
            while left > 0 {
                let most = left.min(piece.len());
                match stream.read(&mut piece[..most])? {
                    0 => return Err("no whole body".into()),
                    read => left -= read,
                }
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
            continue;
        }
        let [mib, bytes] = words[..] else { return Err("no size".into()) };
        let (mib, bytes): (usize, usize) = (mib.parse()?, bytes.parse()?);
        let mut left = (mib << 20) + bytes;
        let mut said = format!("HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n\r\n").into_bytes();
        // The head and a small body are one packet, as they are of most servers.
        while left > 0 {
            let now = left.min(piece.len());
            said.extend(piece.iter().take(now));
            stream.write_all(&said)?;
            said.clear();
            left -= now;
        }
    }
    Ok(())
}

/// What comes before the empty line, and how much behind it was read.
fn head(stream: &mut TcpStream) -> io::Result<Option<(String, usize)>> {
    let (mut heard, mut piece) = (Vec::new(), [0; 1024]);
    loop {
        if let Some(end) = heard.windows(4).position(|four| four == b"\r\n\r\n") {
            let said = String::from_utf8_lossy(heard.get(..end).unwrap_or_default()).into_owned();
            return Ok(Some((said, heard.len() - end - 4)));
        }
        match stream.read(&mut piece)? {
            0 => return Ok(None),
            read => heard.extend(piece.iter().take(read)),
        }
    }
}

fn open(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    Ok(stream)
}

/// Asks for so much and takes it in.
fn get(stream: &mut TcpStream, host: &str, mib: usize, bytes: usize, piece: &mut [u8]) -> Done {
    let (mut body, whole) =
        (begin(stream, "GET", host, &format!("{mib}/{bytes}"), piece)?, (mib << 20) + bytes);
    while body < whole {
        match stream.read(piece)? {
            0 => return Err(format!("ended after {body} bytes").into()),
            read => body += read,
        }
    }
    Ok(())
}

/// Asks, and reads until the answer has begun: bytes of its body that are in already.
fn begin(stream: &mut TcpStream, method: &str, host: &str, path: &str, piece: &mut [u8]) -> Done<usize> {
    let body = if method == "POST" { "Content-Length: 1000000000000\r\n" } else { "" };
    stream.write_all(format!("{method} /{path} HTTP/1.1\r\nHost: {host}\r\n{body}\r\n").as_bytes())?;
    let mut heard = 0;
    let head = loop {
        let read = stream.read(piece.get_mut(heard..).unwrap_or_default())?;
        if read == 0 {
            return Err("no answer".into());
        }
        heard += read;
        let seen = piece.get(..heard).unwrap_or_default();
        if let Some(at) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    if !piece.starts_with(b"HTTP/1.1 200") {
        return Err(String::from_utf8_lossy(piece.get(..heard).unwrap_or_default()).into());
    }
    Ok(heard - head)
}

fn ask(name: &str, to: SocketAddr, host: &str, times: usize) -> Done {
    let (mut took, mut piece) = (Vec::new(), [0; 4096]);
    for turn in 0..times + 20 {
        let began = Instant::now();
        get(&mut open(to)?, host, 0, 2, &mut piece)?;
        if turn >= 20 {
            took.push(1000.0 * began.elapsed().as_secs_f64());
        }
    }
    took.sort_by(f64::total_cmp);
    println!("{name} {:.4}", took.get(times / 2).ok_or("no times")?);
    Ok(())
}

fn tunnel(address: &str) -> Done<TcpStream> {
    let mut stream = open(SocketAddr::from(([127, 0, 0, 1], 61080)))?;
    stream.write_all(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())?;
    // The other end says nothing before it is asked.
    match head(&mut stream)? {
        Some((said, _)) if matches!(said.get(..12), Some("HTTP/1.1 200" | "HTTP/1.0 200")) => Ok(stream),
        said => Err(said.unwrap_or_default().0.into()),
    }
}

fn bulk(name: &str, mut stream: TcpStream, host: &str, mib: u32) -> Done {
    let mut piece = vec![0; 256 << 10];
    let began = Instant::now();
    get(&mut stream, host, usize::try_from(mib)?, 0, &mut piece)?;
    println!("{name} {:.1}", f64::from(mib) / began.elapsed().as_secs_f64());
    Ok(())
}

fn up(mut stream: TcpStream, host: &str, mib: u32) -> Done {
    let (piece, mut heard) = (vec![7; 256 << 10], [0; 1024]);
    let began = Instant::now();
    let length = u64::from(mib) << 20;
    stream.write_all(
        format!("POST /up/{mib} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n").as_bytes(),
    )?;
    for _ in 0..mib * 4 {
        stream.write_all(&piece)?;
    }
    let read = stream.read(&mut heard)?;
    if !heard.get(..read).unwrap_or_default().starts_with(b"HTTP/1.1 200") {
        return Err("not taken".into());
    }
    println!("up {:.1}", f64::from(mib) / began.elapsed().as_secs_f64());
    Ok(())
}

fn hold(way: &str, to: SocketAddr, host: &str, count: usize, time: Duration) -> Done {
    let gives = way == "give";
    let (mut held, path) = (Vec::new(), format!("{way}/{count}/{}", time.as_secs()));
    for _ in 0..count {
        let mut stream = open(to)?;
        begin(&mut stream, if gives { "POST" } else { "GET" }, host, &path, &mut [0; 4096])?;
        held.push(stream);
    }
    if gives {
        thread::sleep(time);
    }
    let each = held.into_iter().map(|mut stream| {
        thread::Builder::new().stack_size(256 << 10).spawn(move || -> io::Result<u64> {
            let (mut took, mut piece) = (0, vec![0; 64 << 10]);
            loop {
                // Who gives is broken off in the end.
                match if gives { stream.write(&piece).or(Ok(0)) } else { stream.read(&mut piece) }? {
                    0 => return Ok(took),
                    passed => took += passed as u64,
                }
            }
        })
    });
    let each: Vec<_> = each.collect::<io::Result<_>>()?;
    let mut took = 0;
    for one in each {
        took += one.join().map_err(|_| "a thread ended")??;
    }
    println!("took {}", took >> 20);
    Ok(())
}
