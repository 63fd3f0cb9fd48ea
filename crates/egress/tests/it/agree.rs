//! Checker and connector agree: whatever a guest writes, what is asked of a resolver and what is connected to is inside
//! the grant by a second, independent reading. Texts are mutated from seeds, the same ones in every run.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::rig::Rig;

const RULES: [&str; 4] = ["api.example.com:443", "*.example.org:443", "10.0.0.5:443", "[2001:db8::5]:443"];

const SEEDS: [&[u8]; 20] = [
    b"api.example.com",
    b"API.EXAMPLE.COM.",
    b"a.example.org",
    b"a.b.example.org",
    b"example.org",
    b"10.0.0.5",
    b"10.0.0.05",
    b"0xa.0.0.5",
    b"167772165",
    b"[2001:db8::5]",
    b"[2001:0db8:0:0:0:0:0:5]",
    b"[::ffff:10.0.0.5]",
    b"[64:ff9b::a00:5]",
    b"169.254.169.254",
    b"127.0.0.1",
    b"localhost",
    b"api.example.com\0.evil.test",
    b"api.example.com%00.evil.test",
    b"u@api.example.com",
    b"xn--pi-7ka.example.com",
];

/// A name that these rules grant, by letters alone.
fn is_granted_name(name: &str) -> bool {
    let plain = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
    };
    name == "api.example.com" || name.strip_suffix(".example.org").is_some_and(plain)
}

fn is_granted_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a == Ipv4Addr::new(10, 0, 0, 5) || a == Ipv4Addr::new(203, 0, 113, 7),
        IpAddr::V6(a) => a.segments() == [0x2001, 0xdb8, 0, 0, 0, 0, 0, 5],
    }
}

/// The next of a fixed row of numbers.
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state >> 33).unwrap()
}

fn mutated(state: &mut u64) -> Vec<u8> {
    const PIECES: [&[u8]; 14] = [
        b".",
        b"\0",
        b"%",
        b"@",
        b"0x",
        b"0",
        b":",
        b"[",
        b"]",
        b"\xc3\xbc",
        b" ",
        b"\r\n",
        b"::ffff:",
        b"*",
    ];
    let mut text = SEEDS[next(state) % SEEDS.len()].to_vec();
    for _ in 0..next(state) % 4 {
        let at = next(state) % (text.len() + 1);
        match next(state) % 4 {
            0 => drop(text.splice(at..at, PIECES[next(state) % PIECES.len()].iter().copied())),
            1 => drop(text.drain(at..(at + 1).min(text.len()))),
            2 if at < text.len() => text[at] ^= 1 << (next(state) % 8),
            _ => {
                let other = SEEDS[next(state) % SEEDS.len()];
                text.truncate(at);
                text.extend_from_slice(&other[next(state) % other.len()..]);
            }
        }
    }
    text.truncate(255);
    text
}

/// One way to ask for a host.
#[derive(Clone, Copy, Debug)]
enum Way {
    Socks,
    Connect,
    /// A whole address in the first line, and the same in the header.
    Absolute,
    /// A whole address, and a granted name in the header.
    AbsoluteElsewhere,
    /// The name of a listener inside, and the same in the header.
    Named,
    /// The header alone, at the listener of a granted name.
    Header,
    /// The header alone, behind CONNECT to a granted name.
    HeaderBehindConnect,
}

const WAYS: [Way; 7] = [
    Way::Socks,
    Way::Connect,
    Way::Absolute,
    Way::AbsoluteElsewhere,
    Way::Named,
    Way::Header,
    Way::HeaderBehindConnect,
];

async fn ask(rig: &Rig, way: Way, text: &[u8], echo: SocketAddr) {
    const CONNECT: &[u8] = b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n";
    let line = |parts: &[&[u8]]| parts.concat();
    let header = || line(&[b"GET / HTTP/1.1\r\nHost: ", text, b"\r\n\r\n"]);
    match way {
        Way::Socks => {
            let length = u8::try_from(text.len()).unwrap();
            let mut guest = rig.proxy();
            assert_eq!(guest.turn::<2>([5, 1, 0]).await, [5, 0]);
            guest.ask([&[5, 1, 0, 3, length][..], text, &443_u16.to_be_bytes()].concat()).await
        }
        Way::Connect => {
            let head: [&[u8]; 5] = [b"CONNECT ", text, b":443 HTTP/1.1\r\nHost: ", text, b":443\r\n\r\n"];
            rig.proxy().ask(line(&head)).await
        }
        Way::Absolute => {
            let head: [&[u8]; 5] =
                [b"GET http://", text, b":443/x HTTP/1.1\r\nHost: ", text, b":443\r\n\r\n"];
            rig.proxy().ask(line(&head)).await
        }
        Way::AbsoluteElsewhere => {
            let head: [&[u8]; 3] =
                [b"GET http://", text, b":443/x HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n"];
            rig.proxy().ask(line(&head)).await
        }
        Way::Named => rig.named(&String::from_utf8_lossy(text), 443).ask(header()).await,
        Way::Header => rig.named("api.example.com", 443).ask(header()).await,
        Way::HeaderBehindConnect => {
            rig.route("203.0.113.7:443", echo);
            rig.proxy().ask([CONNECT, &header()].concat()).await
        }
    };
}

#[tokio::test]
async fn r47_checker_and_connector_agree_on_every_text_in_every_way() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut seen = WAYS.map(|way| (way, 0, 0));
    // One for all: a listener for each round is more than a process may have open.
    let echo = crate::rig::echo().await;
    for round in 0..14_000 {
        let text = mutated(&mut state);
        let rig = Rig::new(&RULES);
        rig.answers_all(&["203.0.113.7"]);
        let (way, opened, refused) = &mut seen[round % WAYS.len()];
        ask(&rig, *way, &text, echo).await;
        let asked = rig.names.asked.lock().unwrap().clone();
        let dialled = rig.routes.dialled.lock().unwrap().clone();
        let shown = String::from_utf8_lossy(&text);
        assert!(asked.iter().all(|name| is_granted_name(name)), "{way:?} {shown:?} asked for {asked:?}");
        assert!(
            dialled.iter().all(|a| is_granted_address(a.ip()) && a.port() == 443),
            "{way:?} {shown:?}: {dialled:?}"
        );
        assert!(asked.len() <= 1 && dialled.len() <= 1, "{way:?} {shown:?}");
        if matches!(way, Way::Header | Way::HeaderBehindConnect | Way::AbsoluteElsewhere) {
            // Only the one name that is in the other place as well.
            assert!(asked.iter().all(|name| name == "api.example.com"), "{way:?} {shown:?} {asked:?}");
        }
        // Behind CONNECT the connection is there before the header comes: what that one is refused for is a decision.
        if rig.decisions().iter().all(|told| told.decision.is_allowed()) && !dialled.is_empty() {
            *opened += 1;
        } else {
            *refused += 1;
        }
    }
    assert!(seen.iter().all(|(_, opened, refused)| *opened > 10 && *refused > 300), "{seen:?}");
}

/// Whatever a resolver answers, nothing inside is dialled.
#[tokio::test]
async fn r47_no_answer_leads_inside() {
    let mut state = 0x1234_5678_9abc_def1;
    let inside =
        ["10.0.0.5", "127.0.0.1", "169.254.169.254", "::1", "fe80::1", "::ffff:7f00:1", "64:ff9b::7f00:1"];
    for _ in 0..1000 {
        let rig = Rig::new(&RULES);
        let mut answer = vec!["203.0.113.7"; next(&mut state) % 3];
        let bad = next(&mut state) % 2;
        if bad == 1 {
            answer.insert(next(&mut state) % (answer.len() + 1), inside[next(&mut state) % inside.len()]);
        }
        rig.answers_all(&answer);
        let mut guest = rig.proxy();
        guest.connect("api.example.com:443").await;
        guest.end().await;
        assert_eq!(rig.dialled().is_empty(), bad == 1 || answer.is_empty(), "{answer:?}");
    }
}
