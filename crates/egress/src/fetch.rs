//! A page for a tool: the same judgement as for a guest's own connections, at every step of the way.

use std::sync::Arc;

use policy::{Host, shown};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::body::Framing;
use crate::caps::Direction;
use crate::connection::{Connection, Inner};
use crate::exchange::{NoAnswer, response_head};
use crate::http::Response;
use crate::inject::Blot;
use crate::judge::{Opened, cut};
use crate::pump::Buffer;
use crate::url::Url;
use crate::{Ended, Refused, Way};

/// Redirects that are followed.
const REDIRECTS: usize = 5;
/// Heads before the one that counts.
const INTERIM: usize = 8;

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Where it was in the end.
    pub url: String,
    /// The status of the answer.
    pub status: u16,
    /// What the server calls it, cleaned.
    pub kind: String,
    /// Its text, as the server sent it: not cleaned.
    pub text: String,
    /// Whether there was more.
    pub cut: bool,
}

/// Why there is no page: one clean sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFetched {
    /// It may not be fetched.
    #[error("{reason}")]
    Refused {
        /// Which check, as a stable code.
        rule: &'static str,
        /// What is wrong, and what would be needed.
        reason: String,
    },
    /// It could not be fetched.
    #[error("{reason}")]
    Failed {
        /// What went wrong.
        reason: String,
    },
}

/// One step: a page, or where to look for it.
enum Step {
    Page(Fetched),
    Redirect(Url),
}

/// Why a step failed, and how its connection ended.
struct Broken(NotFetched, Ended);

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Fetches a page, at most `most` bytes of it.
pub(crate) async fn fetch(inner: &Arc<Inner>, text: &str, most: usize) -> Result<Fetched, NotFetched> {
    let mut url = match Url::parse(text) {
        Ok(url) => url,
        Err(why) => {
            let refused = Refused::new("egress-form", format!("the address that was asked for {why}"));
            if let Ok(mut connection) = Connection::admit(inner, Way::Fetch) {
                let ended = connection.refuse(text, refused.clone());
                connection.close(ended);
            }
            return Err(refused.into());
        }
    };
    for _ in 0..=REDIRECTS {
        let mut connection = Connection::admit(inner, Way::Fetch)
            .map_err(|full| struck("no connection was made", &Ended::TooMany(full)))?;
        let stepped = timeout(inner.caps.lifetime, step(&mut connection, &url, most)).await;
        let stepped = stepped.unwrap_or_else(|_| Err(bound(Ended::Lifetime)));
        match stepped {
            Ok(Step::Page(page)) => {
                connection.close(Ended::Done);
                return Ok(page);
            }
            Ok(Step::Redirect(next)) => {
                connection.close(Ended::Done);
                url = next;
            }
            Err(Broken(why, ended)) => {
                connection.close(ended);
                return Err(why);
            }
        }
    }
    Err(failed(&format!("the page was moved more than {REDIRECTS} times")))
}

async fn step(connection: &mut Connection, url: &Url, most: usize) -> Result<Step, Broken> {
    let opened = connection.decide(&url.target).await;
    let opened = opened.map_err(|refused| Broken(refused.into(), Ended::Refused))?;
    let server = connection.dial(&opened).await.map_err(gone)?;
    let mut server = speak(connection, url, &opened, server).await.map_err(gone)?;
    let request = request(url, &opened);
    connection.pass(Direction::Up, request.len()).await.map_err(bound)?;
    let idle = connection.idle();
    let late = |_| Broken(failed("the server does not answer"), Ended::Idle);
    let sent = async {
        server.write_all(&request).await?;
        server.flush().await
    };
    timeout(idle, sent)
        .await
        .map_err(late)?
        .map_err(|e| gone(format!("the server broke off: {}", e.kind())))?;
    let mut held = Vec::new();
    let mut response = None;
    for _ in 0..INTERIM {
        let (_, before) = connection.passed.both();
        let read = timeout(idle, response_head(connection, &mut held, &mut server, "GET")).await;
        let read = read.map_err(late)?.map_err(|no| match no {
            NoAnswer::Said(why) => gone(why),
            NoAnswer::Ended(ended) => bound(ended),
        })?;
        let (_, after) = connection.passed.both();
        connection.pace(Direction::Down, usize::try_from(after - before).unwrap_or(usize::MAX)).await;
        if !read.is_interim() {
            response = Some(read);
            break;
        }
    }
    let Some(response) = response else { return Err(gone("the answer never begins".to_owned())) };
    if let Some(next) = redirect(url, &response, &opened) {
        return next.map(Step::Redirect);
    }
    let mut blot = opened.granted.header().map(|(_, secret)| Blot::new(secret));
    let kind = response.value("content-type").map(|kind| blotted(&mut blot, kind));
    let kind = kind.unwrap_or_default();
    if !is_text(&kind) {
        return Err(gone("the page is no text".to_owned()));
    }
    if !response.is_plain_and_whole() {
        return Err(gone("the page is packed or only a piece, although that was not asked for".to_owned()));
    }
    let status = response.status;
    let (body, cut) = body(connection, &mut server, response, held, blot, most).await?;
    Ok(Step::Page(Fetched {
        url: url.to_string(),
        status,
        kind: shown(&kind),
        text: decoded(&kind, body),
        cut,
    }))
}

/// TLS where the address says so, and wherever a header is added.
async fn speak(
    connection: &Connection,
    url: &Url,
    opened: &Opened,
    server: TcpStream,
) -> Result<Box<dyn Stream>, String> {
    if !url.https && opened.granted.header().is_none() {
        return Ok(Box::new(server));
    }
    let Host::Name(name) = &url.target.host else {
        return Err("TLS needs a name, and this is an address".to_owned());
    };
    let connecting = connection.inner.tls.connect(name, server);
    match timeout(connection.inner.caps.connect, connecting).await {
        Ok(Ok(stream)) => Ok(Box::new(stream)),
        Ok(Err(why)) => Err(why),
        Err(_) => Err(format!("`{}` does not answer in TLS", cut(name.as_str()))),
    }
}

fn request(url: &Url, opened: &Opened) -> Vec<u8> {
    let tls = url.https || opened.granted.header().is_some();
    let mut out = format!("GET {} HTTP/1.1\r\nHost: {}", url.path, url.target.host);
    if url.target.port != if tls { 443 } else { 80 } {
        out.push_str(&format!(":{}", url.target.port));
    }
    out.push_str("\r\nUser-Agent: oubliette\r\nAccept: text/*, application/json, */*;q=0.1\r\n");
    out.push_str("Accept-Encoding: identity\r\nConnection: close\r\n");
    if let Some((name, secret)) = opened.granted.header() {
        out.push_str(&format!("{name}: {}\r\n", secret.value()));
    }
    out.push_str("\r\n");
    out.into_bytes()
}

fn redirect(url: &Url, response: &Response, opened: &Opened) -> Option<Result<Url, Broken>> {
    if !matches!(response.status, 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let header = opened.granted.header();
    let mut blot = header.map(|(_, secret)| Blot::new(secret));
    let location = blotted(&mut blot, response.value("location")?);
    let tls = url.https || header.is_some();
    let next = match url.join(&location) {
        Ok(next) if tls && !next.https && next.target.host != url.target.host => {
            Err("gives up TLS".to_owned())
        }
        Ok(next) if url.https && !next.https => Err("gives up TLS".to_owned()),
        next => next,
    };
    Some(next.map_err(|why| {
        let refused = Refused::new("egress-redirect", format!("the page was moved to an address that {why}"));
        Broken(refused.into(), Ended::Refused)
    }))
}

/// A text of the server's, the value of the header blotted out.
fn blotted(blot: &mut Option<Blot>, bytes: &[u8]) -> String {
    let bytes = blot.as_mut().map_or_else(|| bytes.to_vec(), |blot| blot.all(bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The body, or its beginning, and whether there was more.
async fn body(
    connection: &Connection,
    server: &mut Box<dyn Stream>,
    mut response: Response,
    first: Vec<u8>,
    mut blot: Option<Blot>,
    most: usize,
) -> Result<(Vec<u8>, bool), Broken> {
    // What is cut was blotted before: half a value is none that would be found.
    let (mut text, mut payload) = (Vec::new(), Vec::new());
    let mut buffer = Buffer::new(&connection.inner.pool);
    let mut first = first;
    while !response.body.is_done() && text.len() <= most {
        // What came with the head was counted with it.
        let read = if first.is_empty() {
            let read = timeout(connection.idle(), buffer.fill(server)).await;
            let read = read.map_err(|_| Broken(failed("the server stopped in its answer"), Ended::Idle))?;
            // Servers that end without TLS's own farewell are many, and the body says itself whether it is whole.
            let read = read.unwrap_or_default();
            connection.pass(Direction::Down, read.len()).await.map_err(bound)?;
            read
        } else {
            &first[..]
        };
        if read.is_empty() {
            if response.body == Framing::UntilEnd {
                break;
            }
            return Err(gone("the page ended before its end".to_owned()));
        }
        payload.clear();
        response.body.take(read, Some(&mut payload)).map_err(|bad| gone(format!("the answer {bad}")))?;
        match &mut blot {
            Some(blot) => text.extend(blot.pass(&payload)),
            None => text.extend_from_slice(&payload),
        }
        first.clear();
    }
    if let Some(blot) = &mut blot
        && text.len() <= most
    {
        text.extend(blot.rest());
    }
    let cut = text.len() > most;
    text.truncate(most);
    Ok((text, cut))
}

/// Whether a content type is one of text. Who does not say sends text, mostly; a server that does is believed.
fn is_text(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    kind.is_empty()
        || kind.starts_with("text/")
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
        || [
            "application/json",
            "application/xml",
            "application/javascript",
            "application/toml",
            "application/yaml",
            "application/x-yaml",
            "application/x-ndjson",
            "application/x-sh",
        ]
        .contains(&kind.as_str())
}

/// The text of bytes; of old pages the one other spelling that is still common.
fn decoded(kind: &str, bytes: Vec<u8>) -> String {
    let kind = kind.to_ascii_lowercase();
    if ["iso-8859-1", "latin1", "windows-1252"].iter().any(|set| kind.contains(set)) {
        return bytes.into_iter().map(char::from).collect();
    }
    match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
    }
}

fn failed(reason: &str) -> NotFetched {
    NotFetched::Failed { reason: reason.to_owned() }
}

fn gone(reason: String) -> Broken {
    Broken(failed(&reason), Ended::ServerGone(reason))
}

fn bound(ended: Ended) -> Broken {
    Broken(struck("the connection was closed", &ended), ended)
}

fn struck(what: &str, ended: &Ended) -> NotFetched {
    failed(&format!("{what}, for {}", ended.bound().unwrap_or("it came to its end")))
}

impl From<Refused> for NotFetched {
    fn from(refused: Refused) -> Self {
        NotFetched::Refused { rule: refused.rule, reason: refused.reason }
    }
}
