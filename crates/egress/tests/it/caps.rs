//! What a run may take of the way out, and what happens at each bound.

use std::time::Duration;

use egress::{Caps, Ended};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use crate::rig::{Rig, answers, echo, server};

async fn flood(rig: &Rig) -> usize {
    let mut guest = rig.proxy();
    assert!(guest.connect("10.0.0.5:9").await.contains(" 200 "));
    let mut heard = Vec::new();
    guest.stream.read_to_end(&mut heard).await.unwrap();
    guest.end().await;
    heard.len()
}

#[tokio::test]
async fn bytes_that_come_in_are_bounded_over_all_connections() {
    let rig = Rig::with(&["10.0.0.5:9"], Caps { down: 1 << 20, ..Caps::default() });
    let at = server(|mut stream| async move {
        drop(stream.write_all(&[7; 700_000]).await);
    })
    .await;
    rig.route("10.0.0.5:9", at);
    assert_eq!(flood(&rig).await, 700_000);
    assert!(flood(&rig).await <= (1 << 20) - 700_000);
    assert_eq!(rig.ends()[1].0, Ended::DownBytes);
    assert!(rig.egress.bytes().1 <= 1 << 20);
}

#[tokio::test]
async fn bytes_that_go_out_are_bounded_over_all_connections() {
    let rig = Rig::with(&["10.0.0.5:9", "files.example.com:80"], Caps { up: 100_000, ..Caps::default() });
    rig.route("10.0.0.5:9", echo().await);
    rig.serves("files.example.com", 80, answers("HTTP/1.1 200 OK\r\n\r\n").await);
    let mut guest = rig.proxy();
    assert!(guest.connect("10.0.0.5:9").await.contains(" 200 "));
    let sent = guest.ask(vec![7; 1 << 20]).await;
    assert!(sent.len() <= 100_000);
    assert_eq!(rig.ends()[0].0, Ended::UpBytes);
    let ask = format!(
        "POST / HTTP/1.1\r\nHost: files.example.com\r\nContent-Length: 200000\r\n\r\n{}",
        "x".repeat(200_000)
    );
    rig.named("files.example.com", 80).ask(ask).await;
    assert_eq!(rig.ends()[1].0, Ended::UpBytes);
    assert!(rig.egress.bytes().0 <= 100_000);
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_with_its_lifetime() {
    let rig = Rig::with(&["10.0.0.5:9"], Caps { lifetime: Duration::from_secs(5), ..Caps::default() });
    let at = server(|mut stream| async move {
        while stream.write_all(b"tick").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    rig.route("10.0.0.5:9", at);
    let began = Instant::now();
    flood(&rig).await;
    assert!(began.elapsed() < Duration::from_secs(6));
    assert_eq!(rig.ends()[0].0, Ended::Lifetime);
}

/// D-22: a name beneath a star is a message to whoever serves the zone; there are only so many.
#[tokio::test]
async fn d22_names_beneath_a_star_are_bounded() {
    let rig =
        Rig::with(&["*.example.org:443", "named.example.org:443"], Caps { star_names: 3, ..Caps::default() });
    for n in 0..5 {
        let name = format!("secret{n}.example.org");
        rig.resolves(&name, &[&["203.0.113.7"]]);
        for _ in 0..2 {
            let mut guest = rig.proxy();
            // There is a grant, and nobody behind it.
            let status = if n < 3 { " 502 " } else { " 403 " };
            assert!(guest.connect(&format!("{name}:443")).await.contains(status), "{name}");
            guest.end().await;
        }
    }
    assert_eq!(rig.queries(), 6);
    rig.resolves("named.example.org", &[&["203.0.113.7"]]);
    assert!(rig.proxy().connect("named.example.org:443").await.contains(" 502 "));
}

#[tokio::test]
async fn connections_and_events_are_bounded_over_a_run() {
    let rig = Rig::with(&["10.0.0.5:9"], Caps { connections: 50, events: 60, ..Caps::default() });
    for _ in 0..100 {
        rig.proxy().ask("CONNECT 10.0.0.6:9 HTTP/1.1\r\nHost: 10.0.0.6:9\r\n\r\n").await;
    }
    assert_eq!(rig.decisions().len() + rig.ends().len(), 60);
    assert_eq!(rig.egress.untold(), 50 + 100 - 60);
}

#[tokio::test]
async fn a_rate_slows_both_ways() {
    let rig = Rig::with(&["10.0.0.5:9"], Caps { rate: Some(400_000), ..Caps::default() });
    rig.route("10.0.0.5:9", echo().await);
    let mut guest = rig.proxy();
    assert!(guest.connect("10.0.0.5:9").await.contains(" 200 "));
    let began = Instant::now();
    let (mut from, mut to) = tokio::io::split(guest.stream);
    let mut heard = vec![0; 200_000];
    let (sent, read) = tokio::join!(to.write_all(&[7; 200_000]), from.read_exact(&mut heard));
    sent.unwrap();
    read.unwrap();
    let took = began.elapsed().as_secs_f64();
    assert!((0.3..10.0).contains(&took), "{took}");
}
