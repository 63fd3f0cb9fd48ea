//! What a grant opens, from inside, and that it opens nothing else (R12, R46, R48). The other end of every
//! connection is this test: nothing touches a network.

use std::time::Duration;

use policy::Tier;
use sandbox::{Asked, Call, CallBounds, Cancel, Doors, GuestStream, Job, Knock, Name};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::Inside;
use crate::inside::Ran;

/// Runs a claim on each tier that offers a way.
macro_rules! on_every_way {
    ($($(#[$doc:meta])* fn $claim:ident($tier:ident: Tier) $body:block)*) => {$(
        $(#[$doc])*
        fn $claim($tier: Tier) $body

        mod $claim {
            #[test]
            fn namespace() {
                super::$claim(policy::Tier::Namespace);
            }

            #[test]
            fn gvisor() {
                super::$claim(policy::Tier::Gvisor);
            }

            #[test]
            fn microvm() {
                super::$claim(policy::Tier::Microvm);
            }
        }
    )*};
}

fn name(host: &str, star: bool, port: u16) -> Name {
    Name { host: host.to_owned(), star, port }
}

/// What these claims are granted.
fn granted() -> Doors {
    let names = [
        ("data.example", false, 443),
        ("data.example", false, 8080),
        ("other.example", false, 9000),
        ("wild.example", true, 443),
    ];
    Doors { names: names.map(|(host, star, port)| name(host, star, port)).into() }
}

fn open(tier: Tier) -> Inside {
    Inside::with(tier, |plan| plan.doors = granted())
}

fn python(program: &str) -> Call {
    let argv = ["/usr/bin/python3", "-c", program].map(str::to_owned).to_vec();
    let job = Job::Exec { argv, env: Vec::new(), cwd: None, terminal: false };
    Call {
        job,
        stdin: Vec::new(),
        timeout: Duration::from_secs(40),
        output: 1 << 20,
        bounds: CallBounds::default(),
    }
}

/// Runs a program and serves what knocks meanwhile, each in its own task.
fn serve<F>(inside: &Inside, program: &str, mut serve: impl FnMut(Asked, GuestStream) -> F) -> Ran
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut knocks = inside.running().knocks().unwrap();
    let serving = async {
        while let Some(Knock { way, stream }) = knocks.recv().await {
            tokio::spawn(serve(way, stream));
        }
    };
    let (_give, cancel) = Cancel::new();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let outcome = inside.block_on(async {
        let call = python(program);
        let mut hear = |stream, bytes: &[u8]| match stream {
            sandbox::Stream::Stdout => out.extend_from_slice(bytes),
            sandbox::Stream::Stderr => err.extend_from_slice(bytes),
        };
        tokio::select! {
            outcome = inside.running().run(&call, &cancel, &mut hear) => outcome.unwrap(),
            () = serving => panic!("no more knocks"),
        }
    });
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { outcome, out: text(out), err: text(err) }
}

/// Answers a request with what was asked for, as far as the first line.
async fn echo_head(way: Asked, mut stream: GuestStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let line = String::from_utf8_lossy(&head).lines().next().unwrap().to_owned();
    let way = match way {
        Asked::Proxy => "proxy".to_owned(),
        Asked::Named { host, port } => format!("{host}:{port}"),
    };
    let body = format!("{way} {line}");
    let answer = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
}

on_every_way! {
    fn r46_a_granted_name_is_reached_by_programs_that_know_of_no_proxy(tier: Tier) {
        let inside = open(tier);
        let ran = serve(&inside, "
import urllib.request as u
plain = u.build_opener(u.ProxyHandler({}))
for url in ['http://data.example:8080/a', 'http://data.example:443/b', 'http://x.wild.example:443/c', 'http://DATA.example:8080/d']:
    print(plain.open(url, timeout=10).read().decode())
", echo_head);
        assert_eq!(
            ran.out,
            "data.example:8080 GET /a HTTP/1.1\ndata.example:443 GET /b HTTP/1.1\n\
             x.wild.example:443 GET /c HTTP/1.1\ndata.example:8080 GET /d HTTP/1.1\n",
            "{}", ran.err
        );
    }
}
