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

const GET: &str = "GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n";

/// A body that is packed, or only a piece, could carry the value past the blot.
#[tokio::test]
async fn r58_a_packed_or_partial_answer_to_a_request_with_the_header_is_not_passed_on() {
    for head in [
        "200 OK\r\nContent-Encoding: gzip",
        "200 OK\r\nContent-Encoding: identity\r\nContent-Encoding: gzip",
        "200 OK\r\nContent-Encoding: identity, gzip",
        "206 Partial Content",
        "206 Partial Content\r\nContent-Range: bytes 0-0/9",
        "200 OK\r\nContent-Range: bytes 0-0/9",
        "200 OK\r\nContent-Type: Multipart/ByteRanges; boundary=x",
        "226 IM Used",
        "200 OK\r\nIM: range",
    ] {
        let rig = Rig::with_header();
        let answer = format!("HTTP/1.1 {head}\r\nContent-Length: 1\r\n\r\nx");
        rig.serves("api.example.com", 443, tls_answers(answer.leak()).await);
        let heard = rig.named("api.example.com", 443).ask(GET).await;
        assert!(heard.starts_with(b"HTTP/1.1 502"), "{head}");
    }
}

/// The body of an answer in chunks: what they carry.
fn unchunked(mut body: &str) -> String {
    let mut out = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            assert_eq!(rest, "\r\n");
            return out;
        }
        out.push_str(&rest[..size]);
        body = rest[size..].strip_prefix("\r\n").unwrap();
    }
}

/// However a server cuts its chunks, the value is found; what it says beside them stays behind.
#[tokio::test]
async fn r58_the_value_is_blotted_out_of_chunks_cut_anywhere() {
    let text = format!("a {SECRET} b");
    let blotted = format!("a {} b", "*".repeat(SECRET.len()));
    for cut in 0..=text.len() {
        let pieces: Vec<&str> = match cut {
            0 => text.split_inclusive(|_| true).collect(),
            cut => [&text[..cut], &text[cut..]].into_iter().filter(|piece| !piece.is_empty()).collect(),
        };
        let chunks: String =
            pieces.iter().map(|piece| format!("{:x};x={SECRET}\r\n{piece}\r\n", piece.len())).collect();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0;y=1\r\nX: {SECRET}\r\nY: sword\r\n\r\n"
        );
        let rig = Rig::with_header();
        rig.serves("api.example.com", 443, tls_answers(answer.leak()).await);
        let heard = String::from_utf8(rig.named("api.example.com", 443).ask(GET).await).unwrap();
        let (head, body) = heard.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("transfer-encoding: chunked"));
        assert_eq!(unchunked(body), blotted, "{cut}");
        assert!(!heard.contains("sword") && !heard.contains(';'), "{heard}");
        assert_eq!(rig.ends()[0].0, Ended::Done);
    }
}

/// A server that repeats the value in another of the usual spellings.
#[tokio::test]
async fn r58_the_value_is_blotted_out_in_every_usual_spelling() {
    for spelt in [
        "Bearer%20swordfish-1234",
        "swordfish-1234",
        "Bearer+swordfish%2D1234",
        "swordfish\\u002d1234",
        "Bearer&#32;swordfish&#x2d;1234",
        "73776f7264666973682d31323334",
        "QmVhcmVyIHN3b3JkZmlzaC0xMjM0",
    ] {
        let rig = Rig::with_header();
        let answer = format!("HTTP/1.1 200 OK\r\nX-A: {spelt}\r\n\r\n<{spelt}>");
        rig.serves("api.example.com", 443, tls_answers(answer.leak()).await);
        let heard = String::from_utf8(rig.named("api.example.com", 443).ask(GET).await).unwrap();
        assert!(!heard.contains(&spelt[6..]), "{heard}");
        assert!(heard.contains("x-a: **") && heard.ends_with("*>"), "{heard}");
    }
}

/// What the guest could ask for so that the value comes back in pieces, packed, or as the request itself.
#[tokio::test]
async fn r58_the_guest_does_not_choose_how_the_answer_comes_back() {
    let rig = Rig::with_header();
    rig.serves("api.example.com", 443, tls_answers(BODY).await);
    let ask = "GET / HTTP/1.1\r\nHost: api.example.com\r\nRange: bytes=0-0\r\nIf-Range: guess\r\nRANGE: guess\r\n\
               if_range: guess\r\nAccept-Encoding: guess\r\nA-IM: guess\r\nX_Authorization: kept\r\n\
               AUTHORIZATION: guess\r\n\r\n";
    let heard = String::from_utf8(rig.named("api.example.com", 443).ask(ask).await).unwrap();
    assert!(!heard.contains("guess") && !heard.to_lowercase().contains("range"), "{heard}");
    assert!(heard.contains("accept-encoding: identity\r\n") && heard.contains("kept"), "{heard}");
    for method in ["TRACE", "TRACK", "trace"] {
        let rig = Rig::with_header();
        rig.serves("api.example.com", 443, tls_answers(BODY).await);
        let ask =
            format!("{method} http://api.example.com:443/ HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n");
        let heard = rig.proxy().ask(ask).await;
        assert!(heard.starts_with(b"HTTP/1.1 403"), "{method}");
        assert_eq!((rig.refusal().0, rig.ends()[0].clone()), ("egress-method", (Ended::Refused, 0, 0)));
    }
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
