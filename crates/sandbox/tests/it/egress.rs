//! What a grant opens, from inside, and that it opens nothing else (R12, R46, R48). The other end of every
//! connection is this test: nothing touches a network.

use std::cell::RefCell;

use policy::Tier;
use sandbox::{Asked, Call, CallBounds, Cancel, Doors, GuestStream, Job, Knock, Missed, Name, Plan, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::Inside;
use crate::inside::{LONG, Ran};

/// A sandbox with a grant, and what knocks at its doors.
pub(crate) struct Open {
    pub(crate) inside: Inside,
    knocks: RefCell<mpsc::Receiver<Knock>>,
    missed: RefCell<mpsc::Receiver<Missed>>,
}

/// What these claims are granted.
pub(crate) fn granted() -> Doors {
    let names = [
        ("data.example", false, 443),
        ("data.example", false, 8080),
        ("other.example", false, 9000),
        ("wild.example", true, 443),
    ];
    let name = |(host, star, port): (&str, bool, u16)| Name { host: host.to_owned(), star, port };
    Doors { names: names.map(name).into() }
}

impl Open {
    pub(crate) fn new(tier: Tier) -> Open {
        Open::with(tier, |_| {})
    }

    pub(crate) fn with(tier: Tier, change: impl FnOnce(&mut Plan)) -> Open {
        let inside = Inside::with(tier, |plan| {
            plan.doors = granted();
            change(plan);
        });
        let knocks = RefCell::new(inside.running().knocks().unwrap());
        assert!(inside.running().knocks().is_none(), "they can be had once");
        let missed = RefCell::new(inside.running().missed().unwrap());
        Open { inside, knocks, missed }
    }

    /// Runs a program and serves what knocks meanwhile, each in a task of its own.
    pub(crate) fn serve<F>(&self, program: &str, serve: impl FnMut(Asked, GuestStream) -> F) -> Ran
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.serve_argv(&["/usr/bin/python3", "-c", program], serve)
    }

    pub(crate) fn serve_argv<F>(&self, argv: &[&str], mut serve: impl FnMut(Asked, GuestStream) -> F) -> Ran
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        let job = Job::Exec { argv, env: Vec::new(), cwd: None, terminal: false };
        let call =
            Call { job, stdin: Vec::new(), timeout: LONG, output: 1 << 20, bounds: CallBounds::default() };
        let (_give, cancel) = Cancel::new();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut knocks = self.knocks.borrow_mut();
        let outcome = self.inside.block_on(async {
            let serving = async {
                while let Some(Knock { way, stream }) = knocks.recv().await {
                    tokio::spawn(serve(way, stream));
                }
            };
            let mut hear = |stream, bytes: &[u8]| match stream {
                Stream::Stdout => out.extend_from_slice(bytes),
                Stream::Stderr => err.extend_from_slice(bytes),
            };
            tokio::select! {
                outcome = self.inside.running().run(&call, &cancel, &mut hear) => outcome.unwrap(),
                () = serving => panic!("nobody knocks any more"),
            }
        });
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran { outcome, out: text(out), err: text(err) }
    }

    /// What the resolver inside had no address for since this was last asked.
    fn missed(&self) -> Vec<Missed> {
        let mut missed = self.missed.borrow_mut();
        std::iter::from_fn(|| missed.try_recv().ok()).collect()
    }

    /// The same where nobody may knock.
    fn alone(&self, program: &str) -> Ran {
        let mut knocked = Vec::new();
        let ran = self.serve(program, |way, _| {
            knocked.push(way);
            async {}
        });
        assert_eq!(knocked, []);
        ran
    }
}

/// Answers a request with how it came and its first line.
pub(crate) async fn tell(way: Asked, mut stream: GuestStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
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

/// Gives back what comes until its end, and ends then.
async fn echo(_: Asked, mut stream: GuestStream) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => break,
            n => stream.write_all(&buffer[..n]).await.unwrap(),
        }
    }
    stream.shutdown().await.unwrap();
}

crate::on_every_way! {
    fn r46_a_granted_name_is_reached_by_programs_that_know_of_no_proxy(open: &Open) {
        let ran = open.serve("
import urllib.request as u
plain = u.build_opener(u.ProxyHandler({}))
for url in ['data.example:8080/a', 'data.example:443/b', 'x.wild.example:443/c', 'DATA.Example:8080/d', 'data.example.:8080/e']:
    print(plain.open('http://' + url, timeout=100).read().decode())
", tell);
        assert_eq!(
            ran.out,
            "data.example:8080 GET /a HTTP/1.1\ndata.example:443 GET /b HTTP/1.1\n\
             x.wild.example:443 GET /c HTTP/1.1\ndata.example:8080 GET /d HTTP/1.1\n\
             data.example:8080 GET /e HTTP/1.1\n",
            "{}", ran.err
        );
    }

    fn r46_programs_that_know_of_proxies_come_to_the_proxy_with_any_name(open: &Open) {
        let ran = open.serve("
import os, urllib.request as u
print(u.urlopen('http://whatever.test:81/x', timeout=100).read().decode())
for name in ['http_proxy', 'https_proxy', 'all_proxy']: assert os.environ[name] == os.environ[name.upper()], name
print(os.environ['no_proxy'], u.proxy_bypass('localhost'), u.proxy_bypass('whatever.test'))
", tell);
        let told = "proxy GET http://whatever.test:81/x HTTP/1.1\nlocalhost,127.0.0.1,::1 True False\n";
        // What it says of a bypass is true or one.
        assert_eq!(ran.out.replace(" 1 0\n", " True False\n"), told, "{}", ran.err);
    }

    on_a_machine("a kernel of its own") fn r48_everything_else_fails_at_once_and_says_why(open: &Open) {
        let ran = open.alone("
import errno, os, socket as s, time
def name(host, family=0):
    try: s.getaddrinfo(host, 443, family); print('found', host)
    except s.gaierror as e: print(host, e.errno == s.EAI_NONAME or e.errno == s.EAI_NODATA)
def to(address, family=s.AF_INET, kind=s.SOCK_STREAM):
    with s.socket(family, kind) as c:
        c.settimeout(100)
        try: c.connect(address); print('reached', address)
        except OSError as e: print(address[0], address[1], errno.errorcode.get(e.errno, e))
began = time.monotonic()
for host in ['nope.test', 'wild.example', 'a.b.wild.example', 'example', 'data.example.org', 'x.data.example']: name(host)
name('data.example', s.AF_INET6)
at = s.getaddrinfo('data.example', 443, s.AF_INET, s.SOCK_STREAM)[0][4][0]
to((at, 80)); to((at, 22)); to(('127.65.0.200', 443)); to(('127.0.0.1', 443))
to(('192.0.2.1', 443)); to(('169.254.169.254', 80)); to(('10.0.0.1', 80)); to(('192.0.2.1', 53), kind=s.SOCK_DGRAM)
to(('2001:db8::1', 443), s.AF_INET6)
os.write(2, b'%d' % int(time.monotonic() - began))
");
        // Without the start of the program: a resolver that nobody answers is asked for 5 s each time.
        assert!(ran.err.parse::<u64>().is_ok_and(|took| took < 15), "{}", ran.err);
        let (names, addresses): (Vec<&str>, Vec<&str>) = ran.out.lines().partition(|line| line.ends_with("True"));
        assert_eq!(names.len(), 7, "{}{}", ran.out, ran.err);
        let refused = addresses.iter().filter(|line| line.ends_with(" ECONNREFUSED")).count();
        let unreachable = addresses.iter().filter(|line| {
            // An engine says of the newer kind that there is none.
            ["ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"].iter().any(|e| line.ends_with(e))
        });
        assert_eq!((refused, unreachable.count(), addresses.len()), (4, 5, 9), "{}{}", ran.out, ran.err);
    }

    on_a_machine("a serial port") fn bytes_go_both_ways_and_each_ends_by_itself(open: &Open) {
        let ran = open.serve("
import hashlib, os, socket as s, threading
sent = os.urandom(1 << 20)
c = s.create_connection(('other.example', 9000), 100)
def send(): c.sendall(sent); c.shutdown(s.SHUT_WR)
t = threading.Thread(target=send); t.start()
heard = b''
while True:
    some = c.recv(1 << 16)
    if not some: break
    heard += some
t.join()
print(len(heard), hashlib.sha256(heard).digest() == hashlib.sha256(sent).digest())
", echo);
        assert_eq!(ran.out, "1048576 True\n", "{}", ran.err);
    }

    fn who_ends_first_may_still_listen(open: &Open) {
        let heard = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let keep = std::sync::Arc::clone(&heard);
        let ran = open.serve("
import socket as s
c = s.create_connection(('other.example', 9000), 100)
print(c.recv(10), c.recv(10))
c.sendall(b'after'); c.shutdown(s.SHUT_WR)
print(c.recv(10))
", move |_, mut stream| {
            let heard = std::sync::Arc::clone(&keep);
            async move {
                stream.write_all(b"first").await.unwrap();
                stream.shutdown().await.unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).await.unwrap();
                *heard.lock().unwrap() = text;
            }
        });
        assert_eq!(ran.out, "b'first' b''\nb''\n", "{}", ran.err);
        assert_eq!(*heard.lock().unwrap(), "after");
    }

    /// A part is never taken for the whole, on either side.
    on_a_machine("a serial port") fn what_is_broken_off_is_an_error_and_no_end(open: &Open) {
        let (broken, mut ends) = mpsc::unbounded_channel();
        let ran = open.serve("
import socket as s, struct
c = s.create_connection(('other.example', 9000), 100)
c.sendall(b'x')
try:
    while c.recv(10): pass
    print('end')
except ConnectionResetError: print('broken')
c = s.create_connection(('data.example', 8080), 100)
c.recv(1)
c.setsockopt(s.SOL_SOCKET, s.SO_LINGER, struct.pack('ii', 1, 0)); c.close()
s.create_connection(('data.example', 443), 100).recv(10)
", move |way, mut stream| {
            let broken = broken.clone();
            async move {
                match way {
                    Asked::Named { port: 9000, .. } => {
                        stream.read_u8().await.unwrap();
                        stream.write_all(b"a part").await.unwrap();
                    }
                    Asked::Named { port: 8080, .. } => {
                        stream.write_all(b"x").await.unwrap();
                        let read = stream.read(&mut [0; 10]).await;
                        broken.send(read.map_err(|e| e.kind())).unwrap();
                    }
                    // The last: what was before it has been seen by now.
                    Asked::Named { .. } | Asked::Proxy => stream.shutdown().await.unwrap(),
                }
            }
        });
        assert_eq!(ran.out, "broken\n", "{}", ran.err);
        let end = open.inside.block_on(async { tokio::time::timeout(LONG, ends.recv()).await });
        assert_eq!(end.unwrap(), Some(Err(std::io::ErrorKind::ConnectionReset)));
    }

    /// The resolver as programs without one of their own library ask it, and what it makes of rubbish.
    fn the_resolver_answers_by_streams_too_and_outlives_rubbish(open: &Open) {
        let ran = open.alone("
import socket as s, struct
def ask(host, kind=1):
    labels = b''.join(bytes([len(l)]) + l.encode() for l in host.split('.'))
    return struct.pack('!6H', 7, 0x100, 1, 0, 0, 1) + labels + b'\\0' + struct.pack('!2H', kind, 1) + b'\\0\\0\\x29\\x10\\0\\0\\0\\0\\0\\0\\0'
def told(a): return a[3] & 15, '.'.join(map(str, a[-4:])) if a[7] else None
u = s.socket(s.AF_INET, s.SOCK_DGRAM); u.settimeout(100); u.connect(('127.0.0.1', 53))
for rubbish in [b'', b'x', b'\\0' * 12, b'\\xff' * 1200, ask('data.example')[:20], b'\\0' * 9000]: u.send(rubbish)
u.close()
u = s.socket(s.AF_INET, s.SOCK_DGRAM); u.settimeout(100); u.connect(('127.0.0.1', 53))
for host, kind in [('data.example', 1), ('data.example', 28), ('nope.test', 1)]:
    u.send(ask(host, kind)); print(told(u.recv(600)))
def exactly(c, n):
    b = b''
    while len(b) < n:
        some = c.recv(n - len(b))
        if not some: return b
        b += some
    return b
def message(c): return exactly(c, struct.unpack('!H', exactly(c, 2))[0])
kept = [s.create_connection(('127.0.0.1', 53), 100) for _ in range(40)]
for c in kept[:10]: c.send(b'\\xff\\xff' + b'x' * 70000)
c = s.create_connection(('127.0.0.1', 53), 100)
q = ask('other.example'); q = struct.pack('!H', len(q)) + q
c.sendall(q + q[:9]); print(told(message(c)))
c.sendall(q[9:]); print(told(message(c)))
");
        assert_eq!(
            ran.out,
            "(0, '127.64.0.1')\n(0, None)\n(3, None)\n(0, '127.64.0.2')\n(0, '127.64.0.2')\n",
            "{}", ran.err
        );
    }

    fn a_guests_own_servers_are_not_disturbed(open: &Open) {
        let ran = open.alone("
import socket as s
def serve(family, host, port, to):
    with s.socket(family) as l:
        l.setsockopt(s.SOL_SOCKET, s.SO_REUSEADDR, 1)
        try: l.bind((host, port))
        except OSError as e: return print(host, port, e.errno)
        l.listen()
        with s.create_connection((to, port), 100) as c:
            a, _ = l.accept(); a.sendall(b'mine'); a.close(); print(host, port, c.recv(9))
serve(s.AF_INET, '127.0.0.1', 8080, 'localhost')
serve(s.AF_INET, '127.0.0.1', 9000, '127.0.0.1')
serve(s.AF_INET, '0.0.0.0', 3000, '127.0.0.1')
serve(s.AF_INET, '0.0.0.0', 3128, 'localhost')
serve(s.AF_INET6, '::1', 8080, '::1')
# What conflicts, and is documented.
serve(s.AF_INET, '0.0.0.0', 8080, '127.0.0.1')
");
        assert_eq!(
            ran.out,
            "127.0.0.1 8080 b'mine'\n127.0.0.1 9000 b'mine'\n0.0.0.0 3000 b'mine'\n0.0.0.0 3128 b'mine'\n\
             ::1 8080 b'mine'\n0.0.0.0 8080 98\n",
            "{}", ran.err
        );
    }

    /// A thousand connections that are never read, each with as much to carry as goes: the others go on, and so do
    /// calls that have nothing to do with it.
    fn a_flood_is_bounded_and_others_go_on(open: &Open) {
        let (opened, mut streams) = mpsc::unbounded_channel();
        let ran = open.serve("
import select, socket as s, time
flood = []
for n in range(1000):
    c = s.socket(); c.setblocking(False); c.connect_ex(('127.64.0.2', 9000)); flood.append(c)
sent, until, through = 0, time.monotonic() + 2, set()
while time.monotonic() < until or sent <= 1 << 20 or len(through) < 128:
    for c in select.select([], flood[:400], [], 0.1)[1]:
        try: sent += c.send(b'x' * 65536); through.add(c)
        except OSError: pass
print('flooded', sent > 1 << 20)
", move |_, stream| {
            opened.send(stream).unwrap();
            async {}
        });
        assert_eq!(ran.out, "flooded True\n", "{}", ran.err);
        let mut held = Vec::new();
        while let Ok(stream) = streams.try_recv() {
            held.push(stream);
        }
        assert!(held.len() <= 256 && held.len() > 100, "{}", held.len());
        assert_eq!(open.inside.sh("echo alive").out, "alive\n");
        drop(held);
        let ran = open.serve("
import socket as s
c = s.create_connection(('other.example', 9000), 100); c.sendall(b'again'); c.shutdown(s.SHUT_WR); print(c.recv(9))
", echo);
        assert_eq!(ran.out, "b'again'\n", "{}", ran.err);
    }

    /// It is there when the call is over, whatever the program did after its answer; each name once. What a guest asks of
    /// itself is nothing that was refused, and a service is its host's.
    on_a_machine("a kernel of its own") fn r46_a_name_that_is_not_granted_is_told(open: &Open) {
        open.missed();
        let ran = open.alone("
import os, socket as s
s.getfqdn()
try: s.gethostbyaddr('192.0.2.7')
except OSError: pass
for host in ['told.test', 'data.example', 'Told.test', 'x.wild.example', 'sub.data.example']:
    try: s.getaddrinfo(host, 443); print(host)
    except s.gaierror: pass
u = s.socket(s.AF_INET, s.SOCK_DGRAM); u.settimeout(100); u.connect(('127.0.0.1', 53))
u.send(b'\\0\\7\\1\\0\\0\\1' + b'\\0' * 6 + b'\\4_ssh\\4_tcp\\4data\\7example\\0\\0\\x21\\0\\1'); u.recv(600)
u.send(b'\\0\\7\\1\\0\\0\\1' + b'\\0' * 6 + b'\\7sandbox\\0\\0\\1\\0\\1'); u.recv(600)
u.send(b'\\0\\7\\1\\0\\0\\1' + b'\\0' * 6 + b'\\x0bi am no\\x1b[0m\\0\\0\\1\\0\\1'); print(u.recv(600)[3] & 15, flush=True)
c = s.create_connection(('127.0.0.1', 53), 100)
c.sendall(b'\\0\\x1b\\0\\7\\1\\0\\0\\1' + b'\\0' * 6 + b'\\4last\\4test\\0\\0\\x10\\0\\1'); c.recv(2)
os._exit(0)
");
        assert_eq!(ran.out, "data.example
x.wild.example
3
", "{}", ran.err);
        let unknown = |host: &str| Missed::Unknown { host: host.to_owned() };
        let told = [unknown("told.test"), unknown("sub.data.example"), Missed::Odd, unknown("last.test")];
        assert_eq!(open.missed(), told);
        open.alone("import socket\ntry: socket.getaddrinfo('told.test', 443)\nexcept OSError: pass");
        assert_eq!(open.missed(), []);
    }

    /// Last, because it takes what there is.
    fn z_names_behind_a_star_are_bounded(open: &Open) {
        let ran = open.alone("
import socket as s
found = set()
def look(n):
    try: found.add(s.getaddrinfo(f'h{n}.wild.example', 443, s.AF_INET, s.SOCK_STREAM)[0][4][0]); return 0
    except s.gaierror as e: return e.errno
missed = [e for e in map(look, range(80)) if e]
print(len(found) >= 60, len(found) <= 64, set(missed) == {s.EAI_AGAIN}, len(missed) + len(found))
print(s.getaddrinfo('data.example', 443, s.AF_INET, s.SOCK_STREAM)[0][4][0])
");
        assert_eq!(ran.out, "True True True 80\n127.64.0.1\n", "{}", ran.err);
        let full = |missed: &Missed| matches!(missed, Missed::Full { host } if host.ends_with(".wild.example"));
        assert!((16..=20).contains(&open.missed().iter().filter(|missed| full(missed)).count()));
    }

    /// And this takes what there is to tell.
    fn zz_names_that_are_told_are_bounded(open: &Open) {
        open.missed();
        let ran = open.alone("
import socket as s, struct
u = s.socket(s.AF_INET, s.SOCK_DGRAM); u.settimeout(100); u.connect(('127.0.0.1', 53))
for n in range(600):
    u.send(b'\\0\\7\\1\\0\\0\\1' + b'\\0' * 6 + b'\\4' + b'%04d' % n + b'\\4many\\0\\0\\1\\0\\1'); u.recv(600)
print('asked')
");
        assert_eq!(ran.out, "asked
", "{}", ran.err);
        let told = open.missed();
        let (more, names): (Vec<&Missed>, Vec<&Missed>) =
            told.iter().partition(|missed| matches!(missed, Missed::More { .. }));
        assert!(names.len() <= 64 && more.len() <= 10, "{told:?}");
        assert_eq!(told.last(), Some(&Missed::More { questions: 512 }));
    }
}
