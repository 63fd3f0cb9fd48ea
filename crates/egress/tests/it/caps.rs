//! What a run may take of the way out, and what happens at each bound.

use std::time::Duration;

use egress::{Caps, Ended, Event, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use crate::rig::{Guest, Rig, answers, echo, server};

async fn flood(rig: &Rig) -> usize {
    let mut guest = rig.proxy();
    assert!(guest.connect("10.0.0.5:9").await.contains(" 200 "));
    to_the_end(guest).await
}

async fn to_the_end(mut guest: Guest) -> usize {
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

/// A head is bytes that came in, also one that nobody gets.
#[tokio::test]
async fn heads_of_answers_are_counted_and_bounded_as_bodies_are() {
    let head = format!("HTTP/1.1 302 Found\r\nLocation: /again\r\nX: {}\r\n", "x".repeat(60_000));
    let moved = server(move |mut stream| {
        let answer = format!("{head}Content-Length: 0\r\n\r\n");
        async move {
            drop(stream.write_all(answer.as_bytes()).await);
            drop(stream.read_to_end(&mut Vec::new()).await);
        }
    })
    .await;
    let ask = "GET / HTTP/1.1\r\nHost: files.example.com\r\n\r\n";
    let rig = Rig::with(&["files.example.com:80"], Caps { down: 1000, ..Caps::default() });
    rig.serves("files.example.com", 80, moved);
    let why = rig.egress.fetch("http://files.example.com/", 9).await.unwrap_err().to_string();
    assert!(why.contains("`network.down`"), "{why}");
    assert!(rig.named("files.example.com", 80).ask(ask).await.is_empty());
    assert_eq!(rig.ends().iter().map(|end| &end.0).collect::<Vec<_>>(), [&Ended::DownBytes; 2]);
    // Six steps of a way that goes round in circles, and an answer to a guest.
    let rig = Rig::new(&["files.example.com:80"]);
    rig.serves("files.example.com", 80, moved);
    assert!(rig.egress.fetch("http://files.example.com/", 9).await.is_err());
    assert!(rig.egress.bytes().1 > 6 * 60_000, "{:?}", rig.egress.bytes());
    rig.named("files.example.com", 80).ask(ask).await;
    assert!(rig.ends().iter().all(|(_, _, down)| (60_000..61_000).contains(down)), "{:?}", rig.ends());
}

/// The same of one that is refused, as it is not to be read.
#[tokio::test]
async fn a_head_that_is_not_passed_on_is_counted() {
    let rig = Rig::new(&["files.example.com:80"]);
    rig.serves("files.example.com", 80, answers("HTTP/1.1 200 OK\r\nX: a\nY: b\r\n\r\n").await);
    let heard =
        rig.named("files.example.com", 80).ask("GET / HTTP/1.1\r\nHost: files.example.com\r\n\r\n").await;
    assert!(heard.starts_with(b"HTTP/1.1 502"));
    assert!(rig.ends()[0].2 > 20, "{:?}", rig.ends());
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

#[tokio::test]
async fn a_connection_ends_with_its_lifetime() {
    let rig = Rig::with(&["10.0.0.5:9"], Caps { lifetime: Duration::from_secs(100), ..Caps::default() });
    let at = server(|mut stream| async move {
        while stream.write_all(b"tick").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    rig.route("10.0.0.5:9", at);
    let mut guest = rig.proxy();
    let began = Instant::now();
    assert!(guest.connect("10.0.0.5:9").await.contains(" 200 "));
    let before = began.elapsed();
    // Only now: while a connection is made, what is on its way through the loopback is nothing that a clock waits for.
    tokio::time::pause();
    to_the_end(guest).await;
    assert!(began.elapsed() < before + Duration::from_secs(101), "{:?}", began.elapsed());
    assert_eq!(rig.ends()[0].0, Ended::Lifetime);
}

/// D-22: a name beneath a star is a message to whoever serves the zone; there are only so many.
#[tokio::test]
async fn d22_names_beneath_a_star_are_bounded() {
    let granted = ["*.example.org:443", "named.example.org:443", "named-too.example.org:80"];
    let rig = Rig::with(&granted, Caps { star_names: 3, ..Caps::default() });
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
    // What is granted itself is none of them, also where the star has its port.
    for name in ["named.example.org", "named-too.example.org"] {
        rig.resolves(name, &[&["203.0.113.7"]]);
        assert!(rig.proxy().connect(&format!("{name}:443")).await.contains(" 502 "), "{name}");
    }
}

const ELSEWHERE: &str = "CONNECT 10.0.0.6:9 HTTP/1.1\r\nHost: 10.0.0.6:9\r\n\r\n";

/// A guest that fills the record closes the way out for itself: nothing passes that is not written down.
#[tokio::test]
async fn nothing_passes_once_the_record_has_no_room() {
    let rig = Rig::with(&["10.0.0.5:9"], Caps { events: 60, ..Caps::default() });
    rig.route("10.0.0.5:9", echo().await);
    for _ in 0..29 {
        rig.proxy().ask(ELSEWHERE).await;
    }
    assert_eq!((rig.decisions().len(), rig.ends().len()), (29, 29));
    let heard = rig.proxy().ask("CONNECT 10.0.0.5:9 HTTP/1.1\r\nHost: 10.0.0.5:9\r\n\r\n").await;
    assert!(heard.is_empty() && rig.dialled().is_empty());
    assert_eq!(rig.ends().last().unwrap().0, Ended::TooMany(Full::Record));
}

/// Whoever serves the zone says how many addresses there are, not how much is written down of them.
#[tokio::test]
async fn an_answer_of_thousands_of_addresses_is_a_short_line() {
    let rig = Rig::new(&["many.example.com:443"]);
    let mut answer: Vec<String> = (0..6000).map(|n| format!("203.1.{}.{}", n / 250, n % 250)).collect();
    answer[5000] = "10.0.0.7".to_owned();
    rig.resolves("many.example.com", &[&answer.iter().map(String::as_str).collect::<Vec<_>>()]);
    rig.proxy().ask("CONNECT many.example.com:443 HTTP/1.1\r\nHost: many.example.com:443\r\n\r\n").await;
    assert_eq!(rig.refusal().0, "egress-address");
    let told = &rig.decisions()[0];
    assert_eq!((told.addresses.len(), told.more_addresses), (32, 6000 - 32));
    assert!(told.addresses.contains(&"10.0.0.7".parse().unwrap()), "it was refused for this one");
    assert!(rig.record().len() < 3000, "{}", rig.record());
}

/// What a guest has written down is bounded in bytes too; who would pass that is counted.
#[tokio::test]
async fn bytes_of_events_are_bounded_over_a_run() {
    let most = 200_000;
    let rig = Rig::with(&["many.example.com:443"], Caps { event_bytes: most, ..Caps::default() });
    let answer: Vec<String> = (0..6000).map(|n| format!("10.1.{}.{}", n / 250, n % 250)).collect();
    rig.resolves("many.example.com", &[&answer.iter().map(String::as_str).collect::<Vec<_>>()]);
    for _ in 0..300 {
        rig.proxy().ask("CONNECT many.example.com:443 HTTP/1.1\r\nHost: many.example.com:443\r\n\r\n").await;
    }
    let decided = rig.decisions().len();
    assert!((50..200).contains(&decided), "{decided}");
    let by_connections = rig
        .events()
        .into_iter()
        .filter(|event| !matches!(event, Event::Closed { ended: Ended::TooMany(_), .. }));
    let written = serde_json::to_string(&by_connections.collect::<Vec<_>>()).unwrap().len();
    assert!(written < usize::try_from(most).unwrap(), "{written}");
    assert_eq!(rig.ends().last().unwrap().0, Ended::TooMany(Full::Record));
}

#[tokio::test]
async fn connections_are_bounded_over_a_run_and_those_turned_away_are_counted() {
    let rig = Rig::with(&["10.0.0.5:9"], Caps { connections: 50, ..Caps::default() });
    for _ in 0..1100 {
        rig.proxy().ask(ELSEWHERE).await;
    }
    assert_eq!((rig.decisions().len(), rig.ends().len()), (50, 1050));
    assert_eq!(rig.egress.untold(), 50);
    assert_eq!(rig.ended().last(), Some(&Event::TurnedAway { connections: 50 }));
}

/// Whatever a guest uses up, a tool of the executor has room.
#[tokio::test]
async fn a_guest_leaves_room_for_the_tools() {
    let caps = Caps { connections: 2, open: 2, events: 8, ..Caps::default() };
    let rig = Rig::with(&["10.0.0.5:9", "files.example.com:80"], caps);
    rig.route("10.0.0.5:9", echo().await);
    rig.serves("files.example.com", 80, answers("HTTP/1.1 200 OK\r\n\r\nyes").await);
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut guest = rig.proxy();
        assert!(guest.connect("10.0.0.5:9").await.contains(" 200 "));
        open.push(guest);
    }
    assert!(rig.proxy().ask(ELSEWHERE).await.is_empty());
    assert_eq!(rig.egress.fetch("http://files.example.com/", 9).await.unwrap().text, "yes");
}

/// What cannot be written down is not done.
#[tokio::test]
async fn nothing_passes_that_cannot_be_written_down() {
    let rig = Rig::new(&["10.0.0.5:9", "files.example.com:80"]);
    rig.route("10.0.0.5:9", echo().await);
    rig.serves("files.example.com", 80, answers("HTTP/1.1 200 OK\r\n\r\nyes").await);
    rig.blind();
    let heard = rig.proxy().ask("CONNECT 10.0.0.5:9 HTTP/1.1\r\nHost: 10.0.0.5:9\r\n\r\n").await;
    assert!(heard.starts_with(b"HTTP/1.1 403") && rig.dialled().is_empty());
    rig.named("files.example.com", 80).ask("GET / HTTP/1.1\r\nHost: files.example.com\r\n\r\n").await;
    assert!(rig.egress.fetch("http://files.example.com/", 9).await.is_err());
    assert!(rig.dialled().is_empty());
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
    assert!((0.3..100.0).contains(&took), "{took}");
}
