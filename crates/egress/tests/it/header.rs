//! R58: a header that the executor adds, on one way to one host, and nobody else ever sees.

use std::time::Duration;

use egress::{Caps, Ended};

use crate::rig::{Rig, SECRET, answers, tls_answers, tls_echo, with_header};

const ECHO: &str = "HTTP/1.1 200 OK\r\nX-Seen: {head}Content-Type: text/plain\r\n\r\n";
const BODY: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n{head}";

/// The guest speaks plain HTTP; TLS, and the header, begin at the executor.
#[tokio::test]
async fn r58_the_header_is_added_over_tls_and_blotted_out_of_what_comes_back() {
    for transparent in [true, false] {
        let rig = Rig::with_header();
        rig.serves("api.example.com", 443, tls_answers(BODY).await);
        let heard = if transparent {
            let ask = "GET /v1 HTTP/1.1\r\nHost: api.example.com:443\r\nauthorization: guess\r\n\r\n";
            rig.named("api.example.com", 443).ask(ask).await
        } else {
            let ask = "GET http://api.example.com:443/v1 HTTP/1.1\r\nHost: api.example.com:443\r\n\
                       Authorization: guess\r\n\r\n";
            rig.proxy().ask(ask).await
        };
        let heard = String::from_utf8(heard).unwrap();
        let (_, body) = heard.split_once("\r\n\r\n").unwrap();
        assert!(body.starts_with("GET /v1 HTTP/1.1\r\nHost: api.example.com\r\n"), "{body}");
        let blotted = "*".repeat(SECRET.len());
        assert!(body.contains(&format!("authorization: {blotted}\r\n")) && !body.contains("guess"), "{body}");
        assert!(!heard.contains("swordfish"));
        assert!(!rig.record().contains("swordfish"));
        assert_eq!(rig.decisions()[0].header.as_deref(), Some("authorization"));
        assert_eq!(rig.ends()[0].0, Ended::Done);
    }
}

#[tokio::test]
async fn r58_the_value_is_blotted_out_of_heads_too() {
    let rig = Rig::with_header();
    rig.serves("api.example.com", 443, tls_answers(ECHO).await);
    let heard =
        rig.named("api.example.com", 443).ask("GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n").await;
    let heard = String::from_utf8(heard).unwrap();
    assert!(heard.contains("****") && !heard.contains("swordfish"), "{heard}");
}

/// A body that is packed could carry the value past the blot.
#[tokio::test]
async fn r58_a_packed_answer_to_a_request_with_the_header_is_not_passed_on() {
    let rig = Rig::with_header();
    let packed = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx";
    rig.serves("api.example.com", 443, tls_answers(packed).await);
    let heard =
        rig.named("api.example.com", 443).ask("GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n").await;
    assert!(heard.starts_with(b"HTTP/1.1 502"));
}

/// The value goes to nobody who does not prove the name: not to plain HTTP, not to another's certificate.
#[tokio::test]
async fn r58_without_a_proof_of_the_name_nothing_is_sent() {
    // Who does not know TLS waits for more.
    let caps = Caps { connect: Duration::from_millis(300), ..Caps::default() };
    let rig = Rig::of(vec![with_header("api.example.com:443")], caps);
    rig.serves("api.example.com", 443, answers(BODY).await);
    let heard =
        rig.named("api.example.com", 443).ask("GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n").await;
    assert!(heard.starts_with(b"HTTP/1.1 502") && !String::from_utf8_lossy(&heard).contains("GET"));
    let rig = Rig::of(vec![with_header("impostor.example.com:443")], Caps::default());
    rig.serves("impostor.example.com", 443, tls_answers(BODY).await);
    let ask = "GET / HTTP/1.1\r\nHost: impostor.example.com\r\n\r\n";
    let heard = String::from_utf8(rig.named("impostor.example.com", 443).ask(ask).await).unwrap();
    assert!(
        heard.starts_with("HTTP/1.1 502") && heard.contains("does not speak TLS as that name"),
        "{heard}"
    );
}

/// Only to exactly that host: another granted one gets the guest's own headers.
#[tokio::test]
async fn r58_another_host_never_sees_the_header() {
    let rig = Rig::with_header();
    rig.serves("other.example.net", 443, answers(BODY).await);
    let ask = "GET / HTTP/1.1\r\nHost: other.example.net:443\r\nAuthorization: mine\r\n\r\n";
    let heard = String::from_utf8(rig.named("other.example.net", 443).ask(ask).await).unwrap();
    assert!(heard.contains("authorization: mine\r\n") && !heard.contains("swordfish"), "{heard}");
}

/// A guest that speaks TLS itself reaches the server, without the header.
#[tokio::test]
async fn r58_the_guests_own_tls_is_not_opened() {
    let rig = Rig::with_header();
    rig.serves("api.example.com", 443, tls_echo().await);
    let guest = rig.named("api.example.com", 443);
    let name = "api.example.com".try_into().unwrap();
    let mut tls = crate::rig::connector().connect(name, guest.stream).await.unwrap();
    let mut heard = [0; 5];
    tokio::io::AsyncWriteExt::write_all(&mut tls, b"hello").await.unwrap();
    tokio::io::AsyncReadExt::read_exact(&mut tls, &mut heard).await.unwrap();
    assert_eq!(&heard, b"hello");
}
