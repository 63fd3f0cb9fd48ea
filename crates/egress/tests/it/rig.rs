//! A way out whose resolver and whose routes are scripted, and servers to find at their ends.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use egress::{
    Asked, Caps, Decided, Dial, Dialing, Egress, Ended, Event, Granted, Pinned, Resolve, Resolving, Roots,
    Sink, Terms, Unresolved,
};
use policy::{Destination, EnvName, Header, HeaderName, HostName, HostRule};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector};

pub(crate) const CA: &[u8] = include_bytes!("tls/ca.pem");
pub(crate) const SECRET: &str = "Bearer swordfish-1234";
/// Where the servers of these tests are, to the judge.
pub(crate) const PUBLIC: &str = "203.0.113.7";

/// The resolver: for each name its answers in the order in which they are given; the last one stays.
#[derive(Default)]
pub(crate) struct Names {
    answers: Mutex<BTreeMap<String, Vec<Vec<IpAddr>>>>,
    /// For every other name.
    others: Mutex<Option<Vec<IpAddr>>>,
    pub(crate) asked: Mutex<Vec<String>>,
}

/// The routes, and every address that was dialled.
#[derive(Default)]
pub(crate) struct Routes {
    to: Mutex<BTreeMap<SocketAddr, SocketAddr>>,
    pub(crate) dialled: Mutex<Vec<SocketAddr>>,
}

#[derive(Default)]
pub(crate) struct Told {
    events: Mutex<Vec<Event>>,
    blind: std::sync::atomic::AtomicBool,
}

pub(crate) struct Rig {
    pub(crate) egress: Egress,
    pub(crate) names: Arc<Names>,
    pub(crate) routes: Arc<Routes>,
    told: Arc<Told>,
}

/// One connection of a guest, and the task that serves it.
pub(crate) struct Guest {
    pub(crate) stream: DuplexStream,
    pub(crate) served: JoinHandle<()>,
}

impl Rig {
    pub(crate) fn new(rules: &[&str]) -> Rig {
        Rig::with(rules, Caps::default())
    }

    pub(crate) fn with(rules: &[&str], caps: Caps) -> Rig {
        let granted = rules.iter().map(|rule| plain(rule)).collect();
        Rig::of(granted, caps)
    }

    /// `api.example.com:443` with a header.
    pub(crate) fn with_header() -> Rig {
        Rig::of(vec![with_header("api.example.com:443"), plain("other.example.net:443")], Caps::default())
    }

    pub(crate) fn of(granted: Vec<Granted>, caps: Caps) -> Rig {
        let (names, routes, told) =
            (Arc::<Names>::default(), Arc::<Routes>::default(), Arc::<Told>::default());
        let terms = Terms {
            granted,
            caps,
            own: vec!["203.0.113.99".parse().unwrap()],
            roots: Roots::Pem(CA.to_vec()),
            resolver: names.clone(),
            dialer: routes.clone(),
            sink: told.clone(),
        };
        Rig { egress: Egress::new(terms), names, routes, told }
    }

    /// What a name resolves to, first and later.
    pub(crate) fn resolves(&self, name: &str, answers: &[&[&str]]) {
        let answers = answers.iter().map(|list| list.iter().map(|a| a.parse().unwrap()).collect()).collect();
        self.names.answers.lock().unwrap().insert(name.to_owned(), answers);
    }

    /// What every name resolves to that is not named otherwise.
    pub(crate) fn answers_all(&self, answer: &[&str]) {
        *self.names.others.lock().unwrap() = Some(answer.iter().map(|a| a.parse().unwrap()).collect());
    }

    /// Puts a server behind a public address under `port`, with a name that leads there.
    pub(crate) fn serves(&self, name: &str, port: u16, at: SocketAddr) {
        self.resolves(name, &[&[PUBLIC]]);
        self.route(&format!("{PUBLIC}:{port}"), at);
    }

    pub(crate) fn route(&self, address: &str, at: SocketAddr) {
        self.routes.to.lock().unwrap().insert(address.parse().unwrap(), at);
    }

    pub(crate) fn proxy(&self) -> Guest {
        self.guest(Asked::Proxy)
    }

    pub(crate) fn named(&self, host: &str, port: u16) -> Guest {
        self.guest(Asked::Named { host: host.to_owned(), port })
    }

    fn guest(&self, asked: Asked) -> Guest {
        let (stream, theirs) = tokio::io::duplex(64 << 10);
        let egress = self.egress.clone();
        Guest { stream, served: tokio::spawn(async move { egress.serve(asked, theirs).await }) }
    }

    pub(crate) fn decisions(&self) -> Vec<Decided> {
        let told = self.told.events.lock().unwrap();
        told.iter().filter_map(|e| if let Event::Decided(d) = e { Some(d.clone()) } else { None }).collect()
    }

    /// The one refusal there was: its rule and its sentence.
    pub(crate) fn refusal(&self) -> (&'static str, String) {
        let refused: Vec<_> = self.decisions().into_iter().filter(|d| !d.decision.is_allowed()).collect();
        assert_eq!(refused.len(), 1, "{refused:?}");
        let reason = refused[0].decision.reason.clone();
        assert!(reason.len() < 400 && reason.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{reason}");
        (refused[0].decision.rule, reason)
    }

    pub(crate) fn ends(&self) -> Vec<(Ended, u64, u64)> {
        let told = self.told.events.lock().unwrap();
        let ends = told.iter().filter_map(|e| match e {
            Event::Closed { ended, up, down, .. } => Some((ended.clone(), *up, *down)),
            Event::Decided(_)
            | Event::Progress { .. }
            | Event::TurnedAway { .. }
            | Event::Unanswered { .. } => None,
        });
        ends.collect()
    }

    /// From now on nothing can be written down.
    pub(crate) fn blind(&self) {
        self.told.blind.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// All that was told so far.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.told.events.lock().unwrap().clone()
    }

    /// Lets go of the way out, and gives what was told to its end.
    pub(crate) fn ended(self) -> Vec<Event> {
        drop(self.egress);
        self.told.events.lock().unwrap().clone()
    }

    pub(crate) fn dialled(&self) -> Vec<String> {
        self.routes.dialled.lock().unwrap().iter().map(ToString::to_string).collect()
    }

    pub(crate) fn queries(&self) -> usize {
        self.names.asked.lock().unwrap().len()
    }

    /// Everything that was told, as a record would hold it.
    pub(crate) fn record(&self) -> String {
        serde_json::to_string(&*self.told.events.lock().unwrap()).unwrap()
    }
}

impl Guest {
    /// Says something, hears everything until the other side has ended.
    pub(crate) async fn ask(mut self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        // Who is refused early may not be listened to until the end.
        drop(self.stream.write_all(bytes.as_ref()).await);
        let mut heard = Vec::new();
        self.stream.read_to_end(&mut heard).await.unwrap();
        drop(self.stream);
        self.served.await.unwrap();
        heard
    }

    /// Says something and hears so many bytes.
    pub(crate) async fn turn<const N: usize>(&mut self, bytes: impl AsRef<[u8]>) -> [u8; N] {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        let mut heard = [0; N];
        self.stream.read_exact(&mut heard).await.unwrap();
        heard
    }

    pub(crate) async fn connect(&mut self, authority: &str) -> String {
        let ask = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        self.stream.write_all(ask.as_bytes()).await.unwrap();
        self.head().await
    }

    /// The next head.
    pub(crate) async fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = self.stream.read_u8().await else { break };
            head.push(byte);
        }
        String::from_utf8(head).unwrap()
    }

    pub(crate) async fn end(self) {
        drop(self.stream);
        self.served.await.unwrap();
    }
}

pub(crate) fn plain(rule: &str) -> Granted {
    Granted::new(HostRule::parse(rule).unwrap().into(), |_| None).unwrap()
}

pub(crate) fn with_header(rule: &str) -> Granted {
    let (name, secret_env) =
        (HeaderName::parse("Authorization").unwrap(), EnvName::new("API_TOKEN").unwrap());
    let header = Header { name, secret_env };
    let destination = Destination::new(HostRule::parse(rule).unwrap(), Some(header)).unwrap();
    Granted::new(destination, |name| (name.as_str() == "API_TOKEN").then(|| SECRET.to_owned())).unwrap()
}

/// A server that hands each connection to a task of its own.
pub(crate) async fn server<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    at
}

/// Says back what it hears, and ends when it has heard the end.
pub(crate) async fn echo() -> SocketAddr {
    server(|mut stream| async move {
        let (mut from, mut to) = stream.split();
        drop(tokio::io::copy(&mut from, &mut to).await);
        drop(to.shutdown().await);
    })
    .await
}

/// Answers each connection's head with `answer`, in which `{head}` is what it heard, and ends.
pub(crate) async fn answers(answer: &'static str) -> SocketAddr {
    server(move |stream| replies(stream, answer)).await
}

/// The same behind TLS, as `api.example.com` and `*.example.org`.
pub(crate) async fn tls_answers(answer: &'static str) -> SocketAddr {
    server(move |stream| async move {
        if let Ok(stream) = acceptor().accept(stream).await {
            replies(stream, answer).await;
        }
    })
    .await
}

/// Says back what it hears, behind TLS.
pub(crate) async fn tls_echo() -> SocketAddr {
    server(|stream| async move {
        let Ok(stream) = acceptor().accept(stream).await else { return };
        let (mut from, mut to) = tokio::io::split(stream);
        drop(tokio::io::copy(&mut from, &mut to).await);
        drop(to.shutdown().await);
    })
    .await
}

async fn replies<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, answer: &str) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    drop(stream.write_all(answer.replace("{head}", &head).as_bytes()).await);
    drop(stream.shutdown().await);
    // Until the other side has gone, so that nothing is lost on its way.
    drop(stream.read_to_end(&mut Vec::new()).await);
}

pub(crate) fn acceptor() -> TlsAcceptor {
    TlsAcceptor::from(server_config(rustls::crypto::ring::ALL_KX_GROUPS))
}

/// A server of TLS that knows these groups of keys.
pub(crate) fn server_config(
    groups: &[&'static dyn rustls::crypto::SupportedKxGroup],
) -> Arc<rustls::ServerConfig> {
    let chain = vec![CertificateDer::from_pem_slice(include_bytes!("tls/api.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/api.key")).unwrap();
    let mut provider = rustls::crypto::ring::default_provider();
    provider.kx_groups = groups.to_vec();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    Arc::new(config)
}

/// A guest's own client of TLS, which trusts the authority of these tests.
pub(crate) fn connector() -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(CA).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, name: &'a HostName) -> Resolving<'a> {
        self.asked.lock().unwrap().push(name.to_string());
        let mut answers = self.answers.lock().unwrap();
        let answer = answers.get_mut(name.as_str()).map(|list| {
            if list.len() > 1 { list.remove(0) } else { list.first().cloned().unwrap_or_default() }
        });
        let answer = answer.or_else(|| self.others.lock().unwrap().clone());
        Box::pin(async move { answer.ok_or_else(|| Unresolved { why: "no such name".to_owned() }) })
    }
}

impl Dial for Routes {
    fn dial(&self, to: Pinned) -> Dialing {
        self.dialled.lock().unwrap().push(to.address());
        let at = self.to.lock().unwrap().get(&to.address()).copied();
        Box::pin(async move {
            match at {
                Some(at) => TcpStream::connect(at).await,
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

impl Sink for Told {
    fn tell(&self, event: Event) -> bool {
        if self.blind.load(std::sync::atomic::Ordering::Relaxed) {
            return false;
        }
        self.events.lock().unwrap().push(event);
        true
    }
}
