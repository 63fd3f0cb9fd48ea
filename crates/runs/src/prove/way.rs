//! A way out that leads nowhere, for attacks on what a grant opens.
//!
//! ```text
//!   attack ─▶ door ─▶ the way out that every run has ─ name ───▶ a list of answers; nobody is asked
//!                                                    └ address ▶ one stands for whatever is public, and is served here;
//!                                                                every other is noted and never connected to
//! ```
//!
//! So an attack that wins is seen, and still reaches nobody. The names end in `.invalid`, which no resolver knows.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use egress::{Dial, Dialing, Granted, Pinned, Resolve, Resolving, Unresolved, own_addresses};
use policy::{Destination, HostName, HostRule, Traffic};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::outward::Means;
use crate::{Run, RunError};

/// What is granted by name, and its port.
const NAME: &str = "open.oubliette.invalid";
const PORT: u16 = 47080;
/// What is granted beneath a star, with the port of the listener that attacks are after: of these names some lead to it.
const ZONE: &str = "inside.oubliette.invalid";
/// Where the proxy is inside.
const PROXY: u16 = 61080;
/// An address of the documentation networks: public to the judge, and nobody's.
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 80));
/// Names beneath a star that may be asked for.
const STAR_NAMES: usize = 64;
/// What a server here answers to a request; no sentence of a refusal has these words.
const REACHED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\nConnection: close\r\n\r\ngot through";
/// And to a hello of TLS: a fatal alert that no one else on the way sends.
const NO_HANDSHAKE: &[u8] = &[21, 3, 3, 0, 2, 2, 40];
const PATIENCE: Duration = Duration::from_secs(5);
const MOST: u64 = 64 << 10;

/// A way out that leads nowhere.
#[derive(Debug)]
pub(super) struct Way {
    stage: Arc<Stage>,
    listener: u16,
    own: Vec<IpAddr>,
    serving: JoinHandle<()>,
}

/// Who answers for names, and who connects.
#[derive(Debug)]
struct Stage {
    here: SocketAddr,
    own: Vec<IpAddr>,
    /// Names beneath the star, and how often one that moves was asked for.
    names: Mutex<BTreeSet<String>>,
    moved: AtomicU64,
    noted: Mutex<Vec<String>>,
    /// Connections to the address that is public, and those of them that are over.
    dialled: Arc<AtomicU64>,
    over: AtomicU64,
}

/// What is granted where attacks are made on it. `listener` is the port of one on the host.
pub(super) fn destinations(listener: u16) -> Result<Vec<Destination>, RunError> {
    let rules = [format!("{NAME}:{PORT}"), format!("*.{ZONE}:{listener}")];
    let rules = rules.into_iter().map(|text| {
        let bad = |why| RunError::io("grant", text.as_ref())(io::Error::other(why));
        HostRule::parse(&text).map(Destination::from).map_err(bad)
    });
    rules.collect()
}

/// What is told of it where there is none.
pub(super) fn closed() -> Value {
    json!({ "open": false, "proxy": PROXY, "name": NAME, "port": PORT, "zone": ZONE, "own": [] })
}

impl Way {
    /// Prepares it. `listener` is the port of one on the host, to which names lead that no grant may lead to.
    pub(super) async fn new(listener: u16) -> Result<Way, RunError> {
        let bad = || RunError::io("listen on", "127.0.0.1".as_ref());
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(bad())?;
        let own = own_addresses()
            .map_err(RunError::io("list this machine's addresses, by", "/proc/net".as_ref()))?;
        let stage = Arc::new(Stage {
            here: server.local_addr().map_err(bad())?,
            own: own.clone(),
            names: Mutex::default(),
            moved: AtomicU64::default(),
            noted: Mutex::default(),
            dialled: Arc::default(),
            over: AtomicU64::default(),
        });
        let serving = tokio::spawn(serve(server, Arc::clone(&stage)));
        Ok(Way { stage, listener, own, serving })
    }

    /// Opens it for a run that was granted [`destinations`].
    pub(super) fn open(&self, run: &mut Run) -> Result<(), RunError> {
        let no_value = |_: &policy::EnvName| None;
        let granted = destinations(self.listener)?.into_iter().map(|to| Granted::new(to, no_value));
        let granted: Result<Vec<Granted>, _> = granted.collect();
        let granted =
            granted.map_err(|why| RunError::io("grant", NAME.as_ref())(io::Error::other(why.to_string())))?;
        let (resolver, dialer) = (Arc::clone(&self.stage), Arc::clone(&self.stage));
        run.open_the_way_by(&granted, &Traffic::default(), Means { resolver, dialer })
    }

    /// Where it is; `open` says whether this run has it.
    pub(super) fn facts(&self, open: bool) -> Value {
        let mut facts = closed();
        facts["open"] = open.into();
        facts["own"] = json!(self.own);
        facts
    }

    /// What an attack has got of it that nobody may have, once what it began is over.
    pub(super) async fn seen(&self) -> Vec<String> {
        let over = || self.stage.over.load(Ordering::Acquire) >= self.stage.dialled.load(Ordering::Acquire);
        let settled = async {
            while !over() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // One that is held open has still been heard so far.
        tokio::time::timeout(PATIENCE, settled).await.ok();
        std::mem::take(&mut *held(&self.stage.noted))
    }

    /// Connections that were made.
    pub(super) fn dialled(&self) -> u64 {
        self.stage.dialled.load(Ordering::Acquire)
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Stage {
    fn note(&self, what: String) {
        held(&self.noted).push(format!("outside: {what}"));
    }

    /// The answer for a granted name; none for any other, which nobody may ask for.
    fn answer(&self, name: &str) -> Option<Vec<IpAddr>> {
        if name == NAME {
            return Some(vec![PUBLIC]);
        }
        let label = name.strip_suffix(ZONE)?.strip_suffix('.').filter(|label| !label.contains('.'))?;
        let written: &[&str] = match label {
            "loopback" => &["127.0.0.1"],
            "far-loopback" => &["127.64.0.1"],
            "loopback-6" => &["::1"],
            "mapped" => &["::ffff:127.0.0.1"],
            "compatible" => &["::127.0.0.1"],
            "translated" => &["64:ff9b::7f00:1"],
            "six-to-four" => &["2002:7f00:1::"],
            "nowhere" => &["0.0.0.0"],
            "nowhere-6" => &["::"],
            "metadata" => &["169.254.169.254"],
            "metadata-6" => &["fd00:ec2::254"],
            "private" => &["10.0.0.1"],
            "mixed" => &["192.0.2.80", "127.0.0.1"],
            "mixed-6" => &["::ffff:10.0.0.1", "192.0.2.80"],
            "own" => return Some(self.own.clone()),
            "empty" => &[],
            // Sound when it is first asked for, and never again.
            "moved" if self.moved.fetch_add(1, Ordering::Relaxed) > 0 => &["127.0.0.1"],
            _ => &["192.0.2.80"],
        };
        let mut names = held(&self.names);
        if names.insert(label.to_owned()) && names.len() == STAR_NAMES + 1 {
            self.note(format!("more than {STAR_NAMES} names beneath a star were asked for"));
        }
        Some(written.iter().filter_map(|address| address.parse().ok()).collect())
    }

    /// Hears what comes until its end, answers what is whole, and notes what was for somebody else.
    async fn hear(&self, mut stream: TcpStream) {
        let mut heard = Vec::new();
        let listening = async {
            let mut answered = false;
            let (mut from, mut to) = stream.split();
            let mut from = (&mut from).take(MOST);
            while from.read_buf(&mut heard).await? > 0 {
                let answer = match heard.first() {
                    Some(22) => Some(NO_HANDSHAKE),
                    _ if heard.windows(4).any(|end| end == b"\r\n\r\n") => Some(REACHED),
                    _ => None,
                };
                if let Some(answer) = answer.filter(|_| !answered) {
                    to.write_all(answer).await?;
                    to.shutdown().await?;
                    answered = true;
                }
            }
            io::Result::Ok(())
        };
        // How it ended says nothing; what was heard does.
        tokio::time::timeout(PATIENCE, listening).await.ok();
        if let Some(what) = for_another(&heard) {
            self.note(format!(
                "a granted server got {what}: {}",
                policy::shown(&String::from_utf8_lossy(&heard))
            ));
        }
    }
}

/// What these bytes are, where a server of a granted name must not get them.
fn for_another(heard: &[u8]) -> Option<&'static str> {
    let text = String::from_utf8_lossy(heard).to_ascii_lowercase();
    let host =
        text.split_once("\r\nhost: ").map(|(_, rest)| rest.split([':', '\r']).next().unwrap_or_default());
    let granted = |host: &str| host == NAME || host.strip_suffix(ZONE).is_some_and(|l| l.ends_with('.'));
    match heard.first() {
        None => None,
        Some(_) if text.contains("smuggled") || text.contains("elsewhere") => {
            Some("what was for somebody else")
        }
        Some(22) if text.contains(NAME) => None,
        Some(22) => Some("a TLS hello that does not name it"),
        Some(_) if !text.contains(" http/1.") => Some("what is neither TLS nor HTTP"),
        Some(_) if host.is_some_and(granted) => None,
        Some(_) => Some("a request that does not name it"),
    }
}

async fn serve(server: TcpListener, stage: Arc<Stage>) {
    while let Ok((stream, _)) = server.accept().await {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move {
            stage.hear(stream).await;
            stage.over.fetch_add(1, Ordering::AcqRel);
        });
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Resolve for Stage {
    fn resolve<'a>(&'a self, name: &'a HostName) -> Resolving<'a> {
        let answer = self.answer(name.as_str());
        if answer.is_none() {
            self.note(format!("a resolver was asked for `{}`", name.as_str()));
        }
        Box::pin(async move { answer.ok_or_else(|| Unresolved { why: "no such name".to_owned() }) })
    }
}

impl Dial for Stage {
    fn dial(&self, to: Pinned) -> Dialing {
        let (to, here) = (to.address(), self.here);
        if to.ip() != PUBLIC {
            self.note(format!("a connection to {to} was let"));
            return Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) });
        }
        let dialled = Arc::clone(&self.dialled);
        Box::pin(async move {
            let stream = TcpStream::connect(here).await?;
            dialled.fetch_add(1, Ordering::AcqRel);
            Ok(stream)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the oracle takes for a breach, and what for what was granted.
    #[test]
    fn what_was_for_another_is_told_from_what_was_granted() {
        let hello = |name: &str| [&[22, 3, 1][..], name.as_bytes()].concat();
        for sound in [
            b"GET / HTTP/1.1\r\nHost: open.oubliette.invalid:47080\r\n\r\n".to_vec(),
            b"GET / HTTP/1.1\r\nHost: a.inside.oubliette.invalid:1\r\n\r\n".to_vec(),
            hello(NAME),
            Vec::new(),
        ] {
            assert_eq!(for_another(&sound), None, "{sound:?}");
        }
        for bad in [
            b"GET / HTTP/1.1\r\nHost: other.invalid\r\n\r\n".to_vec(),
            b"GET / HTTP/1.1\r\nHost: open.oubliette.invalid\r\n\r\nGET /smuggled HTTP/1.1\r\n".to_vec(),
            hello("other.invalid"),
            b"SSH-2.0-x\r\n".to_vec(),
            b"\0".to_vec(),
        ] {
            assert!(for_another(&bad).is_some(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn a_name_that_was_not_granted_and_an_address_that_is_not_public_are_noted() {
        let way = Way::new(4711).await.unwrap();
        for (name, known) in [
            (NAME, true),
            ("moved.inside.oubliette.invalid", true),
            ("a.b.inside.oubliette.invalid", false),
            ("inside.oubliette.invalid", false),
            ("example.com", false),
        ] {
            let Ok(policy::Host::Name(host)) = policy::Host::parse(name) else { panic!("{name}") };
            assert_eq!(way.stage.resolve(&host).await.is_ok(), known, "{name}");
            assert_eq!(way.seen().await.is_empty(), known, "{name}");
        }
        assert_eq!(
            way.stage.answer("moved.inside.oubliette.invalid").unwrap(),
            ["127.0.0.1".parse::<IpAddr>().unwrap()]
        );
        for n in 0..STAR_NAMES {
            way.stage.answer(&format!("n{n}.{ZONE}"));
        }
        assert_eq!(way.seen().await.len(), 1);
    }

    #[test]
    fn what_is_granted_can_be_written_as_a_rule() {
        assert_eq!(destinations(4711).unwrap().len(), 2);
    }
}
