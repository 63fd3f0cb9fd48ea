//! What a client of the proxy may say, and what it is told when it says something else.

use egress::Ended;

use crate::rig::{Rig, answers, echo};

#[tokio::test]
async fn socks_opens_connections_only_and_says_which_code() {
    let v4 = |command: u8, address: [u8; 4]| [&[5, command, 0, 1][..], &address, &[0, 80]].concat();
    for (ask, code) in [
        (v4(1, [10, 0, 0, 5]), 0),
        (v4(1, [10, 0, 0, 6]), 2),
        (v4(1, [169, 254, 169, 254]), 2),
        (v4(2, [10, 0, 0, 5]), 7),
        (v4(3, [10, 0, 0, 5]), 7),
        ([&[5, 1, 0, 4][..], &[0; 15], &[1, 0, 80]].concat(), 2),
        ([&[5, 1, 0, 4][..], &[0; 10], &[255, 255, 10, 0, 0, 5, 0, 80]].concat(), 2),
        ([&[5, 1, 0, 3, 3][..], b"a\0b", &[0, 80]].concat(), 2),
        (vec![5, 1, 0, 7, 1], 8),
        ([&[5, 1, 0, 3, 17][..], b"files.example.com", &[0, 80]].concat(), 4),
    ] {
        let rig = Rig::new(&["10.0.0.5:80", "files.example.com:80"]);
        rig.route("10.0.0.5:80", echo().await);
        rig.resolves("files.example.com", &[&["203.0.113.200"]]);
        let mut guest = rig.proxy();
        assert_eq!(guest.turn::<2>([5, 2, 2, 0]).await, [5, 0]);
        let heard = guest.turn::<10>(&ask).await;
        assert_eq!(heard, [5, code, 0, 1, 0, 0, 0, 0, 0, 0], "{ask:?}");
        guest.end().await;
    }
}

#[tokio::test]
async fn socks_takes_any_name_and_password_from_who_insists() {
    let rig = Rig::new(&["10.0.0.5:80"]);
    rig.route("10.0.0.5:80", echo().await);
    let mut guest = rig.proxy();
    assert_eq!(guest.turn::<2>([5, 1, 2]).await, [5, 2]);
    assert_eq!(guest.turn::<2>(*b"\x01\x01u\x02pw").await, [1, 0]);
    assert_eq!(guest.turn::<10>([5, 1, 0, 1, 10, 0, 0, 5, 0, 80]).await[1], 0);
    guest.end().await;
    let mut guest = rig.proxy();
    assert_eq!(guest.turn::<2>([5, 1, 1]).await, [5, 0xff]);
    guest.end().await;
    assert!(matches!(rig.ends()[1].0, Ended::Malformed(_)));
}

/// Shapes that smuggle a second request past a proxy get no further than here.
#[tokio::test]
async fn malformed_requests_are_told_so_and_reach_nobody() {
    let post = |lines: &str| {
        format!("POST http://files.example.com/ HTTP/1.1\r\nHost: files.example.com\r\n{lines}\r\n")
    };
    for ask in [
        post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        post("Transfer-Encoding: xchunked\r\n"),
        post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        post("Content-Length: 5\r\nContent-Length: 6\r\n"),
        post("Host: other.example.net\r\n"),
        post("X: a\r\n b\r\n"),
        post("X : a\r\n"),
        post("X: a\n"),
        post("X: a\0\r\n"),
        "GET http://files.example.com/ HTTP/1.1\r\nHost: other.example.net\r\n\r\n".to_owned(),
        "GET http://files.example.com/ HTTP/1.1\nHost: files.example.com\n\n".to_owned(),
        "GET https://files.example.com/ HTTP/1.1\r\nHost: files.example.com\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: files.example.com\r\n\r\n".to_owned(),
        "GET http://files.example.com/\r\n\r\n".to_owned(),
        "CONNECT files.example.com HTTP/1.1\r\nHost: files.example.com\r\n\r\n".to_owned(),
        "CONNECT files.example.com:80 HTTP/1.1\r\nHost: other.example.net:80\r\n\r\n".to_owned(),
        "CONNECT files.example.com:80 HTTP/1.1\r\nHost: files.example.com:80\r\nContent-Length: 1\r\n\r\nx"
            .to_owned(),
        "\x04\x01\0\x50\n\0\0\x05\0\0".to_owned(),
        "\x16\x03\x01\0\x05".to_owned(),
    ] {
        let rig = Rig::new(&["files.example.com:80"]);
        rig.serves("files.example.com", 80, echo().await);
        let heard = rig.proxy().ask(&ask).await;
        assert!(heard.starts_with(b"HTTP/1.1 400"), "{ask:?}: {:?}", String::from_utf8_lossy(&heard));
        assert!(matches!(rig.ends()[0].0, Ended::Malformed(_)) && rig.dialled().is_empty(), "{ask:?}");
    }
}

/// A body in chunks ends where it says; one that breaks its own form ends the connection.
#[tokio::test]
async fn a_body_in_chunks_is_passed_on_as_far_as_it_is_sound() {
    let rig = Rig::new(&["files.example.com:80"]);
    rig.serves("files.example.com", 80, echo().await);
    let head = "POST http://files.example.com/ HTTP/1.1\r\nHost: files.example.com\r\nTransfer-Encoding: chunked\r\n\r\n";
    let heard = rig.proxy().ask(format!("{head}5\r\nhello\r\nZZ\r\n")).await;
    assert!(!String::from_utf8_lossy(&heard).contains("ZZ"));
    assert!(matches!(rig.ends()[0].0, Ended::Malformed(_) | Ended::ServerGone(_)));
}

/// What a server answers is read as strictly: one that could be read in two ways is not passed on.
#[tokio::test]
async fn an_answer_that_could_be_read_in_two_ways_is_not_passed_on() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx",
        "HTTP/1.1 200 OK\nContent-Length: 1\n\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        "SSH-2.0-x\r\n\r\n",
        "",
    ] {
        let rig = Rig::new(&["files.example.com:80"]);
        rig.serves("files.example.com", 80, answers(answer).await);
        let ask = "GET http://files.example.com/ HTTP/1.1\r\nHost: files.example.com\r\n\r\n";
        assert!(rig.proxy().ask(ask).await.starts_with(b"HTTP/1.1 502"), "{answer:?}");
    }
}

/// Answers before the answer, and answers without a body.
#[tokio::test]
async fn interim_and_bodiless_answers_pass() {
    let rig = Rig::new(&["files.example.com:80"]);
    let ask = |method: &str| {
        format!("{method} http://files.example.com/ HTTP/1.1\r\nHost: files.example.com\r\n\r\n")
    };
    let interim = "HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    rig.serves("files.example.com", 80, answers(interim).await);
    let heard = String::from_utf8(rig.proxy().ask(ask("GET")).await).unwrap();
    assert!(
        heard.starts_with("HTTP/1.1 103 Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\n")
            && heard.ends_with("ok")
    );
    rig.serves("files.example.com", 80, answers("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n").await);
    assert!(rig.proxy().ask(ask("HEAD")).await.ends_with(b"Connection: close\r\n\r\n"));
    assert_eq!(rig.ends()[1].0, Ended::Done);
}
