//! What passes inside a granted connection: TLS or HTTP/1 that names the granted host, and nothing else.

use egress::{Asked, Ended, Way};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::rig::{Rig, answers, connector, echo, server, tls_echo};

/// A TLS hello that names `host`, as a real client sends it.
async fn hello(host: &str) -> Vec<u8> {
    let (ours, mut theirs) = tokio::io::duplex(64 << 10);
    let name = rustls::pki_types::ServerName::try_from(host.to_owned()).unwrap();
    let client = tokio::spawn(async move { connector().connect(name, ours).await.map(|_| ()) });
    let mut bytes = vec![0; 16 << 10];
    let read = theirs.read(&mut bytes).await.unwrap();
    client.abort();
    bytes.truncate(read);
    bytes
}

/// D-27: unmodified TLS to the granted name passes, in every way of asking, to the byte.
#[tokio::test]
async fn tls_that_names_the_granted_host_passes_untouched() {
    for way in [Way::Connect, Way::Socks, Way::Transparent] {
        let rig = Rig::new(&["api.example.com:443"]);
        rig.serves("api.example.com", 443, tls_echo().await);
        let mut guest = if way == Way::Transparent { rig.named("api.example.com", 443) } else { rig.proxy() };
        match way {
            Way::Connect => assert!(guest.connect("api.example.com:443").await.contains(" 200 ")),
            Way::Socks => {
                assert_eq!(guest.turn::<2>([5, 1, 0]).await, [5, 0]);
                let ask = [&[5, 1, 0, 3, 15], &b"api.example.com"[..], &443_u16.to_be_bytes()].concat();
                assert_eq!(guest.turn::<10>(ask).await[1], 0);
            }
            _ => {}
        }
        let name = "api.example.com".try_into().unwrap();
        let mut tls = connector().connect(name, guest.stream).await.unwrap();
        let text: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
        let sent = text.clone();
        let (mut from, mut to) = tokio::io::split(&mut tls);
        let heard = tokio::join!(
            async {
                to.write_all(&sent).await.unwrap();
                to.shutdown().await.unwrap();
            },
            async {
                let mut heard = Vec::new();
                from.read_to_end(&mut heard).await.unwrap();
                heard
            }
        );
        assert!(heard.1 == text, "{way:?}");
        guest.served.await.unwrap();
        let ends = rig.ends();
        assert_eq!(ends[0].0, Ended::Done);
        assert!(ends[0].1 > 1_000_000 && ends[0].2 > 1_000_000, "{ends:?}");
    }
}

/// D-27: one name in the proxy's ear, another in the hello.
#[tokio::test]
async fn tls_that_names_another_host_is_refused_with_an_alert() {
    for host in ["other.example.net", "api.example.com.evil.test", "localhost"] {
        for transparent in [false, true] {
            let rig = Rig::new(&["api.example.com:443", "other.example.net:443"]);
            rig.serves("api.example.com", 443, echo().await);
            let mut guest = if transparent { rig.named("api.example.com", 443) } else { rig.proxy() };
            if !transparent {
                assert!(guest.connect("api.example.com:443").await.contains(" 200 "));
            }
            let heard = guest.ask(hello(host).await).await;
            assert_eq!(heard, [21, 3, 1, 0, 2, 2, 112], "{host}");
            assert_eq!(rig.refusal().0, "egress-tls-name");
            assert_eq!(rig.ends(), [(Ended::Refused, 0, 0)]);
            assert_eq!(rig.dialled().is_empty(), transparent, "nothing leaves for a wrong hello");
        }
    }
}

/// D-27: an address that is not granted is refused as such; a hello that would name the granted host is never heard.
#[tokio::test]
async fn d27_an_address_is_not_opened_by_a_granted_server_name() {
    let granted = hello("api.example.com").await;
    let rules = ["api.example.com:443", "10.0.0.5:443"];
    let rig = Rig::new(&rules);
    rig.serves("api.example.com", 443, echo().await);
    let connect = "CONNECT 203.0.113.7:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n";
    let heard = rig.proxy().ask([connect.as_bytes(), &granted].concat()).await;
    // It names two hosts, so it is none that could be judged.
    assert!(heard.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&heard));
    let connect = "CONNECT 203.0.113.7:443 HTTP/1.1\r\nHost: 203.0.113.7:443\r\n\r\n";
    let heard = rig.proxy().ask([connect.as_bytes(), &granted].concat()).await;
    assert!(heard.starts_with(b"HTTP/1.1 403"));
    assert_eq!(rig.refusal().0, "egress-host");
    assert!(rig.dialled().is_empty() && rig.queries() == 0);
    for address in [[&[1][..], &[203, 0, 113, 7]].concat(), [&[3, 11][..], b"203.0.113.7"].concat()] {
        let rig = Rig::new(&rules);
        rig.serves("api.example.com", 443, echo().await);
        let ask = [&[5, 1, 0, 5, 1, 0][..], &address, &443_u16.to_be_bytes(), &granted].concat();
        let heard = rig.proxy().ask(ask).await;
        assert_eq!((heard[..2].to_vec(), heard[3]), (vec![5, 0], 2), "not allowed");
        assert!(rig.refusal().0 == "egress-host" && rig.dialled().is_empty());
    }
    let rig = Rig::new(&rules);
    rig.named("203.0.113.7", 443).ask(&granted).await;
    assert!(rig.refusal().0 == "egress-host" && rig.dialled().is_empty());
}

/// D-27: QUIC has no way. SOCKS opens no way for datagrams, and its first packet is no word that a connection to a name
/// could begin with. That no datagram leaves a sandbox, `scripts/egress-test` looks at.
#[tokio::test]
async fn d27_quic_has_no_way_out() {
    let rig = Rig::new(&["api.example.com:443"]);
    rig.serves("api.example.com", 443, echo().await);
    let associate = [&[5, 1, 0, 5, 3, 0, 3, 15][..], b"api.example.com", &443_u16.to_be_bytes()].concat();
    assert_eq!(rig.proxy().ask(associate).await[..4], [5, 0, 5, 7], "no such command");
    assert_eq!(rig.refusal().0, "egress-command");
    let initial = [&[0xc3, 0, 0, 0, 1, 8][..], &[7; 1194]].concat();
    for transparent in [false, true] {
        let rig = Rig::new(&["api.example.com:443"]);
        rig.serves("api.example.com", 443, echo().await);
        let mut guest = if transparent { rig.named("api.example.com", 443) } else { rig.proxy() };
        if !transparent {
            assert!(guest.connect("api.example.com:443").await.contains(" 200 "));
        }
        assert!(guest.ask(&initial).await.is_empty());
        assert_eq!((rig.refusal().0, rig.ends()), ("egress-protocol", vec![(Ended::Refused, 0, 0)]));
    }
}

/// A hello to an address names nobody.
#[tokio::test]
async fn tls_without_a_server_name_is_refused() {
    let rig = Rig::new(&["api.example.com:443"]);
    rig.serves("api.example.com", 443, echo().await);
    let heard = rig.named("api.example.com", 443).ask(hello("203.0.113.7").await).await;
    assert_eq!(heard, [21, 3, 1, 0, 2, 2, 112]);
    assert!(rig.refusal().1.contains("without a server name"));
}

/// A hello in many small records and many small writes is read like any other.
#[tokio::test]
async fn a_hello_in_pieces_passes() {
    let rig = Rig::new(&["api.example.com:443"]);
    rig.serves("api.example.com", 443, echo().await);
    let whole = hello("api.example.com").await;
    let pieces: Vec<u8> = whole[5..]
        .chunks(100)
        .flat_map(|part| [&[22, 3, 1, 0, u8::try_from(part.len()).unwrap()][..], part].concat())
        .collect();
    let mut guest = rig.named("api.example.com", 443);
    for piece in pieces.chunks(7) {
        guest.stream.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut heard = vec![0; pieces.len()];
    guest.stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, pieces);
    guest.end().await;
}

/// D-27: the server asked for a second hello, and it names another host.
#[tokio::test]
async fn a_second_hello_with_another_name_ends_the_connection() {
    let rig = Rig::new(&["api.example.com:443"]);
    rig.serves("api.example.com", 443, echo().await);
    let mut guest = rig.named("api.example.com", 443);
    let first = hello("api.example.com").await;
    guest.stream.write_all(&first).await.unwrap();
    let mut heard = vec![0; first.len()];
    guest.stream.read_exact(&mut heard).await.unwrap();
    let heard = guest.ask(hello("other.example.net").await).await;
    assert_eq!(heard, [21, 3, 1, 0, 2, 2, 112]);
    assert!(rig.refusal().1.contains("second TLS hello"));
}

/// The same with a real server that does ask: it never sees the second hello, in whatever way it was reached.
#[tokio::test]
async fn d27_after_a_request_for_another_hello_that_one_must_name_the_same_host() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let sees = seen.clone();
    let at = server(move |mut stream| {
        let sees = sees.clone();
        async move {
            // Knows none of the keys that the client offers at first.
            let mut tls = rustls::ServerConnection::new(crate::rig::server_config(&[
                rustls::crypto::ring::kx_group::SECP384R1,
            ]))
            .unwrap();
            let mut bytes = [0; 16 << 10];
            while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                sees.lock().unwrap().extend_from_slice(&bytes[..read]);
                let mut rest = &bytes[..read];
                while !rest.is_empty() && tls.read_tls(&mut rest).is_ok() {}
                drop(tls.process_new_packets());
                let mut out = Vec::new();
                while tls.wants_write() {
                    tls.write_tls(&mut out).unwrap();
                }
                drop(stream.write_all(&out).await);
            }
        }
    })
    .await;
    for transparent in [false, true] {
        let rig = Rig::new(&["api.example.com:443", "other.example.net:443"]);
        rig.serves("api.example.com", 443, at);
        let mut guest = if transparent { rig.named("api.example.com", 443) } else { rig.proxy() };
        if !transparent {
            assert!(guest.connect("api.example.com:443").await.contains(" 200 "));
        }
        let first = hello("api.example.com").await;
        seen.lock().unwrap().clear();
        guest.stream.write_all(&first).await.unwrap();
        let mut asked = [0; 43];
        guest.stream.read_exact(&mut asked).await.unwrap();
        // A ServerHello with the random that means: say it again.
        assert_eq!((asked[0], asked[5], &asked[11..15]), (22, 2, &[0xcf, 0x21, 0xad, 0x74][..]));
        let second = [&[20, 3, 3, 0, 1, 1][..], &hello("other.example.net").await].concat();
        let heard = guest.ask(second).await;
        assert!(heard.ends_with(&[21, 3, 1, 0, 2, 2, 112]));
        assert!(rig.refusal().1.contains("second TLS hello that names another host"));
        let seen = seen.lock().unwrap();
        assert!(seen.starts_with(&first) && !seen.windows(5).any(|part| part == b"other"));
    }
}

#[tokio::test]
async fn plain_http_that_names_the_granted_host_passes_and_no_other_does() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for (host, passes) in [
        ("files.example.com:8080", true),
        ("FILES.example.com.:8080", true),
        ("files.example.com", true),
        ("files.example.com:80", false),
        ("other.example.net:8080", false),
        ("other.example.net", false),
        ("203.0.113.7:8080", false),
    ] {
        for transparent in [false, true] {
            let rig = Rig::new(&["files.example.com:8080", "other.example.net:8080"]);
            rig.serves("files.example.com", 8080, answers(answer).await);
            let mut guest = if transparent { rig.named("files.example.com", 8080) } else { rig.proxy() };
            if !transparent {
                assert!(guest.connect("files.example.com:8080").await.contains(" 200 "));
            }
            let heard = guest.ask(format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
            let status = if passes { "HTTP/1.1 200" } else { "HTTP/1.1 403" };
            assert!(String::from_utf8_lossy(&heard).starts_with(status), "{host}");
            if !passes {
                assert_eq!(rig.refusal().0, "egress-http-host", "{host}");
            }
        }
    }
}

/// What follows a request on the same connection is not part of it, and goes nowhere.
#[tokio::test]
async fn a_second_request_on_a_connection_is_never_passed_on() {
    let rig = Rig::new(&["files.example.com:80"]);
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let hears = heard.clone();
    let at = server(move |mut stream| {
        let hears = hears.clone();
        async move {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                hears.lock().unwrap().extend_from_slice(&bytes[..read]);
                if hears.lock().unwrap().ends_with(b"body!") {
                    drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await);
                }
            }
        }
    })
    .await;
    rig.serves("files.example.com", 80, at);
    let evil = "GET /evil HTTP/1.1\r\nHost: other.example.net\r\n\r\n";
    let ask = format!("POST / HTTP/1.1\r\nHost: files.example.com\r\nContent-Length: 5\r\n\r\nbody!{evil}");
    let answer = rig.named("files.example.com", 80).ask(&ask).await;
    // A server that would go on is not waited for: the answer says itself where it ends.
    assert!(String::from_utf8_lossy(&answer).ends_with("Connection: close\r\n\r\nok"));
    let heard = String::from_utf8(heard.lock().unwrap().clone()).unwrap();
    assert!(heard.ends_with("\r\n\r\nbody!") && !heard.contains("evil"), "{heard}");
}

/// What names nobody cannot be held against a grant: HTTP/2 without TLS, SSH, a server that speaks first.
#[tokio::test(start_paused = true)]
async fn other_protocols_do_not_pass_to_a_name() {
    for bytes in [
        "SSH-2.0-OpenSSH_9.9\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "EHLO a\r\n",
        "\0\0\0\x08\x04\u{d2}\x16/",
        "",
    ] {
        let rig = Rig::new(&["git.example.com:22"]);
        rig.serves("git.example.com", 22, echo().await);
        let heard = rig.named("git.example.com", 22).ask(bytes).await;
        assert!(heard.is_empty());
        assert_eq!(rig.refusal().0, "egress-protocol", "{bytes:?}");
        assert!(rig.dialled().is_empty());
    }
}

#[tokio::test]
async fn other_protocols_pass_to_a_written_address() {
    let rig = Rig::new(&["10.0.0.5:22"]);
    rig.route("10.0.0.5:22", echo().await);
    let mut guest = rig.proxy();
    assert!(guest.connect("10.0.0.5:22").await.contains(" 200 "));
    assert_eq!(guest.turn::<9>("SSH-2.0-x").await, *b"SSH-2.0-x");
    guest.end().await;
}

/// Each direction ends by itself.
#[tokio::test]
async fn half_closed_is_half_open() {
    let rig = Rig::new(&["10.0.0.5:9"]);
    // Answers only when it has heard the end.
    let at = server(|mut stream| async move {
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        stream.write_all(format!("{} bytes", heard.len()).as_bytes()).await.unwrap();
    })
    .await;
    rig.route("10.0.0.5:9", at);
    let mut guest = rig.proxy();
    assert!(guest.connect("10.0.0.5:9").await.contains(" 200 "));
    guest.stream.write_all(&[7; 5000]).await.unwrap();
    guest.stream.shutdown().await.unwrap();
    let mut heard = String::new();
    guest.stream.read_to_string(&mut heard).await.unwrap();
    assert_eq!(heard, "5000 bytes");
    guest.end().await;
    assert_eq!(rig.ends(), [(Ended::Done, 5000, 10)]);
}

/// A server that has heard enough says so and closes, while the guest still sends: its word arrives, whole.
#[tokio::test]
async fn an_early_answer_reaches_a_guest_that_is_still_sending() {
    let answer = [&b"413 "[..], &[b'x'; 100_000]].concat();
    let says = answer.clone();
    let rig = Rig::new(&["10.0.0.5:9"]);
    // What it leaves unread makes its end a reset: whoever writes to it next fails.
    let at = server(move |mut stream| {
        let says = says.clone();
        async move {
            stream.read_u8().await.unwrap();
            stream.write_all(&says).await.unwrap();
        }
    })
    .await;
    rig.route("10.0.0.5:9", at);
    for _ in 0..20 {
        let mut guest = rig.proxy();
        assert!(guest.connect("10.0.0.5:9").await.contains(" 200 "));
        // Hears nothing until it has sent all, or can send no more.
        let heard = guest.ask(vec![7; 4 << 20]).await;
        assert!(heard == answer, "{} bytes", heard.len());
    }
    for (ended, _, down) in rig.ends() {
        assert!(matches!(ended, Ended::ServerGone(_)), "{ended:?}");
        assert_eq!(down, answer.len() as u64);
    }
}

/// The same where the request is one of HTTP and the answer has a head.
#[tokio::test]
async fn an_early_answer_of_http_reaches_a_guest_that_is_still_sending() {
    let rig = Rig::new(&["files.example.com:80"]);
    let at = server(|mut stream| async move {
        stream.read_u8().await.unwrap();
        let head = b"HTTP/1.1 413 Too Much\r\nContent-Length: 100000\r\n\r\n";
        stream.write_all(&[&head[..], &[b'x'; 100_000]].concat()).await.unwrap();
    })
    .await;
    rig.serves("files.example.com", 80, at);
    for _ in 0..20 {
        let ask = "POST / HTTP/1.1\r\nHost: files.example.com\r\nContent-Length: 4194304\r\n\r\n";
        let heard = rig.named("files.example.com", 80).ask([ask.as_bytes(), &[7; 4 << 20]].concat()).await;
        assert!(heard.starts_with(b"HTTP/1.1 413") && heard.ends_with(&[b'x'; 100_000]));
    }
}

/// Two ends of a real connection; the guest's takes little at a time, and what is said to it waits on our side.
async fn narrow() -> (TcpStream, TcpStream) {
    let listening = TcpSocket::new_v4().unwrap();
    listening.set_send_buffer_size(1 << 20).unwrap();
    listening.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listening = listening.listen(1).unwrap();
    let guest = TcpSocket::new_v4().unwrap();
    guest.set_recv_buffer_size(4096).unwrap();
    let (guest, ours) = tokio::join!(guest.connect(listening.local_addr().unwrap()), listening.accept());
    (guest.unwrap(), ours.unwrap().0)
}

/// The same on real sockets: there, whoever closes with something unread destroys what it had said.
#[tokio::test]
async fn an_early_answer_of_http_survives_the_end_of_a_real_connection() {
    let rig = Rig::new(&["files.example.com:80"]);
    let at = server(|mut stream| async move {
        stream.read_u8().await.unwrap();
        let head = b"HTTP/1.1 413 Too Much\r\nContent-Length: 100000\r\n\r\n";
        stream.write_all(&[&head[..], &[b'x'; 100_000]].concat()).await.unwrap();
        drop(stream.read_to_end(&mut Vec::new()).await);
    })
    .await;
    rig.serves("files.example.com", 80, at);
    for _ in 0..10 {
        let (mut guest, ours) = narrow().await;
        let (egress, asked) =
            (rig.egress.clone(), Asked::Named { host: "files.example.com".into(), port: 80 });
        let served = tokio::spawn(async move { egress.serve(asked, ours).await });
        let ask = "POST / HTTP/1.1\r\nHost: files.example.com\r\nContent-Length: 4194304\r\n\r\n";
        guest.write_all(&[ask.as_bytes(), &[7; 4 << 20]].concat()).await.unwrap();
        let mut heard = Vec::new();
        guest.read_to_end(&mut heard).await.unwrap();
        assert!(heard.starts_with(b"HTTP/1.1 413") && heard.ends_with(&[b'x'; 100_000]), "{}", heard.len());
        drop(guest);
        served.await.unwrap();
    }
    assert!(rig.ends().iter().all(|(ended, ..)| *ended == Ended::Done), "{:?}", rig.ends());
}

/// A client that has a second request on its way before it has read the first answer reads that one whole.
#[tokio::test]
async fn a_second_request_does_not_destroy_the_answer_to_the_first() {
    let rig = Rig::new(&["files.example.com:80"]);
    let body = "x".repeat(100_000);
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{body}");
    rig.serves("files.example.com", 80, answers(answer.leak()).await);
    for _ in 0..10 {
        let (mut guest, ours) = narrow().await;
        let (egress, asked) =
            (rig.egress.clone(), Asked::Named { host: "files.example.com".into(), port: 80 });
        let served = tokio::spawn(async move { egress.serve(asked, ours).await });
        let ask = b"GET / HTTP/1.1\r\nHost: files.example.com\r\n\r\n";
        guest.write_all(ask).await.unwrap();
        assert_eq!(guest.read_u8().await.unwrap(), b'H');
        guest.write_all(ask).await.unwrap();
        let mut heard = Vec::new();
        guest.read_to_end(&mut heard).await.unwrap();
        assert!(heard.starts_with(b"TTP/1.1 200") && heard.ends_with(body.as_bytes()), "{}", heard.len());
        drop(guest);
        served.await.unwrap();
    }
}

/// A refusal is an answer as well: a client that only listens once it has sent all hears it.
#[tokio::test]
async fn a_refusal_reaches_a_guest_that_is_still_sending_on_a_real_connection() {
    let rig = Rig::new(&["files.example.com:80"]);
    for _ in 0..10 {
        let (mut guest, ours) = narrow().await;
        let egress = rig.egress.clone();
        let served = tokio::spawn(async move { egress.serve(Asked::Proxy, ours).await });
        let ask = "POST http://other.example.net/ HTTP/1.1\r\nHost: other.example.net\r\nContent-Length: 4194304\r\n\r\n";
        guest.write_all(&[ask.as_bytes(), &[7; 4 << 20]].concat()).await.unwrap();
        let mut heard = Vec::new();
        guest.read_to_end(&mut heard).await.unwrap();
        assert!(heard.starts_with(b"HTTP/1.1 403") && heard.ends_with(b"`network.allow`\n"));
        drop(guest);
        served.await.unwrap();
    }
}

/// The same of a server that stays to listen to nothing: what bounds every connection bounds this one.
#[tokio::test]
async fn a_server_that_neither_listens_nor_ends_is_waited_for_no_longer_than_any_other() {
    let rig = Rig::new(&["10.0.0.5:9"]);
    let at = server(|mut stream| async move {
        stream.write_all(b"no").await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    rig.route("10.0.0.5:9", at);
    let mut guest = rig.proxy();
    assert!(guest.connect("10.0.0.5:9").await.contains(" 200 "));
    let (mut from, mut to) = tokio::io::split(guest.stream);
    let hears = async {
        let mut no = [0; 2];
        from.read_exact(&mut no).await.unwrap();
        assert_eq!(no, *b"no");
        // Only now: what is on its way through the loopback is nothing that a clock waits for.
        tokio::time::pause();
        assert_eq!(from.read(&mut no).await.unwrap(), 0);
    };
    let sent = vec![7; 32 << 20];
    let (sent, ()) = tokio::join!(to.write_all(&sent), hears);
    sent.unwrap_err();
    guest.served.await.unwrap();
    assert_eq!(rig.ends()[0].0, Ended::Idle);
}

#[tokio::test]
async fn a_granted_server_that_does_not_answer_is_told_as_such() {
    let rig = Rig::new(&["api.example.com:443"]);
    rig.resolves("api.example.com", &[&["203.0.113.8", "2001:db8::8"]]);
    let mut guest = rig.proxy();
    assert!(guest.connect("api.example.com:443").await.contains(" 502 "));
    guest.end().await;
    assert_eq!(rig.dialled(), ["203.0.113.8:443", "[2001:db8::8]:443"]);
    let heard = rig.named("api.example.com", 443).ask(hello("api.example.com").await).await;
    assert_eq!(heard, [21, 3, 1, 0, 2, 2, 80]);
}
