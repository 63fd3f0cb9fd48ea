//! Guests and servers that mean no good: bounded, told, and nobody else's harm.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use egress::{Asked, Caps, Ended, Full};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;

use crate::rig::{Guest, Rig, answers, echo, server};

/// One byte a second, for as long as it is listened to.
async fn drips(mut guest: Guest, bytes: &[u8]) -> Vec<u8> {
    for byte in bytes {
        if guest.stream.write_all(&[*byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let mut heard = Vec::new();
    guest.stream.read_to_end(&mut heard).await.unwrap();
    guest.end().await;
    heard
}

#[tokio::test(start_paused = true)]
async fn whoever_drips_a_head_loses_the_connection() {
    let head = format!("CONNECT a.example:443 HTTP/1.1\r\nX: {}", "x".repeat(100));
    let hello = [&[22, 3, 1, 0, 200, 1, 0, 0, 196][..], &[3; 100]].concat();
    let request = format!("GET /{}", "x".repeat(100));
    for (transparent, bytes) in [
        (false, head.as_bytes()),
        (false, &[&[5, 255][..], &[9; 100]].concat()),
        (false, &[&[5, 1, 0, 5, 1, 0, 3, 200][..], &[b'a'; 100]].concat()),
        (true, &hello),
        (true, request.as_bytes()),
    ] {
        let rig = Rig::new(&["a.example:443"]);
        let began = Instant::now();
        let guest = if transparent { rig.named("a.example", 443) } else { rig.proxy() };
        drips(guest, bytes).await;
        assert!(began.elapsed() < Duration::from_secs(105));
        assert!(matches!(rig.ends()[0].0, Ended::Silent | Ended::Refused), "{:?}", rig.ends());
        assert!(rig.dialled().is_empty());
    }
}

#[tokio::test]
async fn heads_and_hellos_without_an_end_are_cut_off() {
    let rig = Rig::new(&["a.example:443"]);
    let heard = rig.proxy().ask(format!("GET http://a.example/{}", "x".repeat(1 << 20))).await;
    assert!(heard.starts_with(b"HTTP/1.1 400"));
    let lines = format!("GET http://a.example:443/ HTTP/1.1\r\n{}", "X: y\r\n".repeat(1 << 16));
    assert!(rig.proxy().ask(lines).await.starts_with(b"HTTP/1.1 400"));
    let hello = [&[22, 3, 1, 64, 0, 1, 0, 127, 0][..], &vec![0; 1 << 17]].concat();
    assert_eq!(rig.named("a.example", 443).ask(hello).await, [21, 3, 1, 0, 2, 2, 112]);
    let records = [&[22, 3, 1, 0, 1, 1][..], &[22, 3, 1, 0, 1, 0].repeat(1 << 14)].concat();
    assert!(!rig.named("a.example", 443).ask(records).await.is_empty());
    for (ended, up, _) in rig.ends() {
        assert!(matches!(ended, Ended::Malformed(_) | Ended::Refused) && up == 0, "{ended:?}");
    }
}

/// A server that says a head without an end, or goes on after it, costs what a head may have and no more.
#[tokio::test]
async fn a_server_without_an_end_is_cut_off() {
    let rig = Rig::new(&["files.example.com:80"]);
    let at = server(|mut stream| async move {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\n").await);
        while stream.write_all(&b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(100)).await.is_ok() {}
    })
    .await;
    rig.serves("files.example.com", 80, at);
    let heard =
        rig.named("files.example.com", 80).ask("GET / HTTP/1.1\r\nHost: files.example.com\r\n\r\n").await;
    assert!(heard.starts_with(b"HTTP/1.1 502"));
    rig.serves(
        "files.example.com",
        80,
        answers("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n").await,
    );
    rig.named("files.example.com", 80).ask("GET / HTTP/1.1\r\nHost: files.example.com\r\n\r\n").await;
    assert!(matches!(rig.ends()[1].0, Ended::ServerGone(_)));
}

/// Nobody reads, nobody writes: the connection ends by itself, and others never noticed.
#[tokio::test]
async fn who_neither_reads_nor_writes_is_let_go() {
    let rig = Rig::new(&["10.0.0.5:9", "10.0.0.6:9"]);
    rig.route("10.0.0.5:9", echo().await);
    let flood =
        server(|mut stream| async move { while stream.write_all(&[7; 65536]).await.is_ok() {} }).await;
    rig.route("10.0.0.6:9", flood);
    let began = Instant::now();
    let mut quiet = rig.proxy();
    assert!(quiet.connect("10.0.0.5:9").await.contains(" 200 "));
    let mut deaf = rig.proxy();
    assert!(deaf.connect("10.0.0.6:9").await.contains(" 200 "));
    // Only now: while a connection is made, what is on its way through the loopback is nothing that a clock waits for.
    tokio::time::pause();
    deaf.served.await.unwrap();
    quiet.served.await.unwrap();
    let idle = Caps::default().idle;
    assert!(began.elapsed() >= idle && began.elapsed() < idle * 2, "{:?}", began.elapsed());
    assert_eq!(
        rig.ends().iter().map(|(ended, _, _)| ended.clone()).collect::<Vec<_>>(),
        [Ended::Idle, Ended::Idle]
    );
}

#[tokio::test]
async fn a_side_that_breaks_off_ends_the_connection() {
    // A server that ends as such things end.
    let rig = Rig::new(&["10.0.0.5:9"]);
    rig.route("10.0.0.5:9", server(|stream| async move { drop(stream) }).await);
    let mut guest = rig.proxy();
    assert!(guest.connect("10.0.0.5:9").await.contains(" 200 "));
    let mut heard = Vec::new();
    guest.stream.read_to_end(&mut heard).await.unwrap();
    guest.end().await;
    assert_eq!(rig.ends(), [(Ended::Done, 0, 0)]);
    // One that goes with something unread is a reset.
    let rig = Rig::new(&["10.0.0.5:9"]);
    rig.route("10.0.0.5:9", server(|mut stream| async move { drop(stream.read_u8().await) }).await);
    let mut guest = rig.proxy();
    assert!(guest.connect("10.0.0.5:9").await.contains(" 200 "));
    assert!(guest.ask("more than one byte").await.is_empty());
    assert_eq!(rig.ends(), [(Ended::ServerGone("connection reset".to_owned()), 18, 0)]);
    // A guest that goes in the middle of a body, to a server that waits for all of it.
    let rig = Rig::new(&["files.example.com:80"]);
    let (heard, hears) = tokio::sync::oneshot::channel();
    let heard = std::sync::Mutex::new(Some(heard));
    let at = server(move |mut stream| {
        let heard = heard.lock().unwrap().take();
        async move {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.ok();
            heard.map(|heard| heard.send(all));
        }
    })
    .await;
    rig.serves("files.example.com", 80, at);
    let mut guest = rig.named("files.example.com", 80);
    let ask = "POST / HTTP/1.1\r\nHost: files.example.com\r\nContent-Length: 99\r\n\r\nhalf";
    guest.stream.write_all(ask.as_bytes()).await.unwrap();
    guest.end().await;
    assert!(hears.await.unwrap().ends_with(b"\r\n\r\nhalf"));
    let ends = rig.ends();
    assert_eq!((ends.len(), &ends[0].0), (1, &Ended::GuestGone));
}

/// A guest that says half a head and then nothing; what is taken of it is counted.
struct HalfHead {
    left: usize,
    taken: Arc<AtomicUsize>,
}

impl AsyncRead for HalfHead {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let bytes = self.left.min(into.remaining());
        if bytes == 0 {
            return Poll::Pending;
        }
        into.put_slice(&HALF[HALF.len() - self.left..][..bytes]);
        self.left -= bytes;
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HalfHead {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Nearly as long as a head may be.
static HALF: [u8; 31 << 10] = {
    let mut half = [b'x'; 31 << 10];
    let begin = b"GET http://a.example/";
    let mut at = 0;
    while at < begin.len() {
        half[at] = begin[at];
        at += 1;
    }
    half
};

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Thousands that each say half a head: what is held of them is bounded by those that may be open, not by how many come,
/// and is free again when they are over.
#[tokio::test(start_paused = true)]
async fn half_heads_without_number_take_bounded_memory() {
    const MANY: usize = 4000;
    let rig = Rig::new(&["a.example:80"]);
    let open = Caps::default().open;
    let before = resident();
    let taken = Arc::new(AtomicUsize::new(0));
    let mut served = Vec::with_capacity(MANY);
    for _ in 0..MANY {
        let (egress, guest) = (rig.egress.clone(), HalfHead { left: HALF.len(), taken: taken.clone() });
        served.push(tokio::spawn(async move { egress.serve(Asked::Proxy, guest).await }));
        tokio::task::yield_now().await;
    }
    // All that are open have said all that they will, and no time has passed.
    assert_eq!(taken.load(Ordering::Relaxed), open * HALF.len());
    let untold = usize::try_from(rig.egress.untold()).unwrap();
    assert_eq!(rig.ends().len() + untold, MANY - open);
    // Alone in this process, as the tests of this project run; all of them would be 120 MiB.
    let grown = resident().saturating_sub(before);
    assert!(grown < 24 << 20, "{} KiB", grown >> 10);
    for each in served {
        each.await.unwrap();
    }
    let silent = rig.ends().iter().filter(|(ended, up, _)| *ended == Ended::Silent && *up == 0).count();
    assert_eq!(silent, open);
}

/// A thousand connections at once: as many as may be open are, the others end at once, and then all is as before.
#[tokio::test]
async fn a_thousand_connections_leave_the_others_unharmed() {
    let rig = Rig::new(&["10.0.0.5:9", "a.example:443"]);
    rig.route("10.0.0.5:9", echo().await);
    let mut before = rig.proxy();
    assert!(before.connect("10.0.0.5:9").await.contains(" 200 "));
    let mut flood: Vec<Guest> = (0..1000).map(|_| rig.proxy()).collect();
    for guest in &mut flood {
        drop(guest.stream.write_all(b"CONNECT 10.0.0.5:9 HTTP/1.1\r\nHost: 10.0.0.5:9\r\n\r\n").await);
    }
    let mut served = 0;
    for guest in &mut flood {
        served += usize::from(guest.head().await.contains(" 200 "));
    }
    assert_eq!(served, Caps::default().open - 1);
    assert_eq!(before.turn::<5>("hello").await, *b"hello");
    let turned_away = rig.ends().iter().filter(|(ended, _, _)| *ended == Ended::TooMany(Full::Open)).count();
    assert_eq!(turned_away, 1000 - served);
    for guest in flood {
        guest.end().await;
    }
    let mut after = rig.proxy();
    assert!(after.connect("10.0.0.5:9").await.contains(" 200 "));
    assert_eq!(after.turn::<5>("hello").await, *b"hello");
}

/// The executor that lets a connection go closes both of its sides, and the end is told.
#[tokio::test]
async fn a_connection_that_is_dropped_is_closed_and_told() {
    let rig = Rig::new(&["10.0.0.5:9"]);
    let (heard, hears) = tokio::sync::oneshot::channel();
    let heard = std::sync::Mutex::new(Some(heard));
    let at = server(move |mut stream| {
        let heard = heard.lock().unwrap().take();
        async move {
            stream.read_to_end(&mut Vec::new()).await.ok();
            heard.map(|heard| heard.send(()));
        }
    })
    .await;
    rig.route("10.0.0.5:9", at);
    let mut guest = rig.proxy();
    assert!(guest.connect("10.0.0.5:9").await.contains(" 200 "));
    guest.served.abort();
    assert!(guest.served.await.unwrap_err().is_cancelled());
    hears.await.unwrap();
    assert_eq!(rig.ends(), [(Ended::Dropped, 0, 0)]);
}
