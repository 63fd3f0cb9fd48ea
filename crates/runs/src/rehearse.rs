//! A decision about a destination, played: the way out itself decides, but names have the answers that are given here, and
//! whoever would be connected to is only noted.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use egress::{
    Asked, Dial, Dialing, Egress, Event, Granted, Pinned, Resolve, Resolving, Sink, Terms, Unresolved,
};
use policy::{HostName, HostRule, Traffic};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What a guest asks the proxy for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Plain HTTP, with a whole address in its first line.
    HttpProxy {
        /// The method.
        method: String,
        /// The address.
        url: String,
    },
    /// HTTP CONNECT.
    Connect {
        /// The host, as the guest writes it.
        host: String,
        /// The port.
        port: u16,
    },
    /// SOCKS5 with a name, which any text is to it.
    Socks5 {
        /// The host, as the guest writes it.
        host: String,
        /// The port.
        port: u16,
    },
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rehearsed {
    /// Which address a connection was made to first; none where it was refused.
    pub connected_to: Option<IpAddr>,
    /// Questions to the resolver.
    pub resolver_queries: u64,
    /// What the guest was told.
    pub told: Vec<u8>,
}

#[derive(Default)]
struct Stage {
    answers: Mutex<VecDeque<Vec<IpAddr>>>,
    queries: Mutex<u64>,
    dialled: Mutex<Option<IpAddr>>,
    allowed: Mutex<bool>,
}

/// Asks for it under these rules. Each question to the resolver gets the next of the `answers`, the last one stays.
///
/// # Errors
/// Where this machine's own addresses cannot be listed, or a name is longer than SOCKS can say.
pub fn rehearse(rules: &[HostRule], request: &Request, answers: Vec<Vec<IpAddr>>) -> io::Result<Rehearsed> {
    let stage = Arc::new(Stage { answers: Mutex::new(answers.into()), ..Stage::default() });
    let granted: Result<Vec<Granted>, _> =
        rules.iter().map(|rule| Granted::new(rule.clone().into(), |_| None)).collect();
    let granted = granted.map_err(io::Error::other)?;
    let terms = Terms::new(granted, &Traffic::default(), stage.clone())?;
    let terms = Terms { resolver: stage.clone(), dialer: stage.clone(), ..terms };
    let said = said(request)?;
    let egress = Egress::new(terms);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let told = runtime.block_on(async {
        let (mut guest, theirs) = tokio::io::duplex(64 << 10);
        // Gone when it has heard the end, so that nobody waits for more of it.
        let asks = async move {
            let mut told = Vec::new();
            guest.write_all(&said).await?;
            guest.read_to_end(&mut told).await?;
            io::Result::Ok(told)
        };
        tokio::join!(egress.serve(Asked::Proxy, theirs), asks).1
    })?;
    let dialled = *held(&stage.dialled);
    // Connected without a decision would be the worst of all.
    if dialled.is_some() && !*held(&stage.allowed) {
        return Err(io::Error::other("a connection was made that nothing allowed"));
    }
    let resolver_queries = *held(&stage.queries);
    Ok(Rehearsed { connected_to: dialled, resolver_queries, told })
}

fn said(request: &Request) -> io::Result<Vec<u8>> {
    Ok(match request {
        Request::HttpProxy { method, url } => {
            let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
        }
        Request::Connect { host, port } => {
            format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n").into_bytes()
        }
        Request::Socks5 { host, port } => {
            let length = u8::try_from(host.len()).map_err(io::Error::other)?;
            [&[5, 1, 0, 5, 1, 0, 3, length][..], host.as_bytes(), &port.to_be_bytes()].concat()
        }
    })
}

fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Resolve for Stage {
    fn resolve<'a>(&'a self, _: &'a HostName) -> Resolving<'a> {
        *held(&self.queries) += 1;
        let mut answers = held(&self.answers);
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        Box::pin(async move { answer.ok_or_else(|| Unresolved { why: "no such name".to_owned() }) })
    }
}

impl Dial for Stage {
    fn dial(&self, to: Pinned) -> Dialing {
        held(&self.dialled).get_or_insert(to.address().ip());
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }
}

impl Sink for Stage {
    fn tell(&self, event: Event) -> bool {
        if let Event::Decided(decided) = event {
            *held(&self.allowed) |= decided.decision.is_allowed();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(request: Request, answers: &[&[&str]]) -> (Option<String>, u64) {
        let rules = [HostRule::parse("api.example.com:443").unwrap()];
        let answers = answers
            .iter()
            .map(|list| list.iter().map(|address| address.parse().unwrap()).collect())
            .collect();
        let came = rehearse(&rules, &request, answers).unwrap();
        (came.connected_to.map(|address| address.to_string()), came.resolver_queries)
    }

    #[test]
    fn oc_18_what_is_decided_is_what_a_guest_would_get() {
        let (host, port) = ("api.example.com".to_owned(), 443);
        let public = [&["203.0.113.7"][..], &["169.254.169.254"]];
        let reached = (Some("203.0.113.7".to_owned()), 1);
        assert_eq!(played(Request::Connect { host: host.clone(), port }, &public), reached);
        assert_eq!(played(Request::Socks5 { host: host.clone(), port }, &public), reached);
        let url = format!("http://{host}:443/x");
        assert_eq!(played(Request::HttpProxy { method: "GET".to_owned(), url }, &public), reached);
        assert_eq!(played(Request::Connect { host, port }, &[&["10.0.0.5"], &["203.0.113.7"]]), (None, 1));
        let other = Request::Socks5 { host: "2852039166".to_owned(), port };
        assert_eq!(played(other, &public), (None, 0));
    }
}
