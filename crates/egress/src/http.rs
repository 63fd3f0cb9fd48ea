//! Heads of HTTP/1: read strictly, so that whoever judges and whoever serves read the same.
//!
//! A head is refused where two readers are known to differ: line ends without a carriage return, folded lines, a blank
//! before the colon, both ways to say where a body ends, either of them twice or oddly, two hosts, a host that is not the
//! one in the request line.

use httparse::{EMPTY_HEADER, Status};
use policy::{Host, Target};

use crate::body::Framing;
use crate::inject;

/// Bytes of a request's head.
pub(crate) const MOST_REQUEST: usize = 32 << 10;
/// Bytes of a response's head.
pub(crate) const MOST_RESPONSE: usize = 64 << 10;
/// Its lines.
const MOST_LINES: usize = 100;
/// Headers that are between two neighbours and end with us.
const HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "trailer",
    "upgrade",
];

/// Headers that say where a message goes and where it ends.
const DECIDING: [&str; 3] = ["host", "content-length", "transfer-encoding"];

/// What is wrong with a head; goes on from "the request" or "the answer".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadHead {
    #[error("is no HTTP/1")]
    NotHttp,
    #[error("has a line that does not end with a carriage return and a line feed, or a control character")]
    Line,
    #[error("has a head that is too long")]
    Long,
    #[error("says twice, or oddly, where its body ends")]
    Framing,
    #[error("has no host, or more than one")]
    Host,
    #[error("names one host in its first line and another in its header")]
    HostDiffers,
    #[error("has an address in its first line that cannot be read")]
    Uri,
    #[error("asks for something that no client asks of a server")]
    Method,
}

/// Where a request wants to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A path, for the host of its header.
    Origin,
    /// `http://host/path`, for a proxy.
    Absolute,
    /// CONNECT.
    Authority,
}

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) form: Form,
    /// The path with its query; of CONNECT the authority.
    pub(crate) path: String,
    /// The one host that the request names. Without a port where it names none.
    pub(crate) host: Named,
    minor: u8,
    headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Framing,
}

/// A host, and a port if one was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) host: Host,
    pub(crate) port: Option<u16>,
}

/// The head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    reason: String,
    minor: u8,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Framing,
}

/// Where the head ends that these bytes begin with; none while it does not. What is before `seen` was looked at.
pub(crate) fn head_end(bytes: &[u8], seen: usize, most: usize) -> Result<Option<usize>, BadHead> {
    // The last one seen may have been a carriage return without what must follow it.
    let from = seen.saturating_sub(1);
    for (at, byte) in bytes.iter().enumerate().skip(from) {
        let sound = match byte {
            b'\n' => at > 0 && bytes[at - 1] == b'\r',
            b'\r' => bytes.get(at + 1).is_none_or(|next| *next == b'\n'),
            b'\t' => true,
            byte => *byte >= b' ' && *byte != 127,
        };
        if !sound {
            return Err(BadHead::Line);
        }
        if *byte == b'\n' && bytes[..at].ends_with(b"\r\n\r") {
            return Ok(Some(at + 1));
        }
        if at + 1 >= most {
            return Err(BadHead::Long);
        }
    }
    Ok(None)
}

impl Request {
    /// Reads a whole head.
    pub(crate) fn read(head: &[u8]) -> Result<Request, BadHead> {
        let mut lines = [EMPTY_HEADER; MOST_LINES];
        let mut parsed = httparse::Request::new(&mut lines);
        match parsed.parse(head) {
            Ok(Status::Complete(end)) if end == head.len() => {}
            Err(httparse::Error::TooManyHeaders) => return Err(BadHead::Long),
            Ok(Status::Complete(_) | Status::Partial) | Err(_) => return Err(BadHead::NotHttp),
        }
        let (Some(method), Some(uri), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
            return Err(BadHead::NotHttp);
        };
        let headers = kept(parsed.headers)?;
        let body = framing(&headers, minor, Framing::Length(0), false)?;
        let mut named = headers.iter().filter(|(name, _)| name == "host").map(|(_, value)| value);
        let written = match (named.next(), named.next()) {
            (Some(one), None) => Some(named_host(one)?),
            (None, None) => None,
            (Some(_), Some(_)) | (None, Some(_)) => return Err(BadHead::Host),
        };
        let (form, path, in_line) = target(method, uri)?;
        let host = match (in_line, written) {
            (Some(line), Some(written)) if !line.agrees(&written, method) => {
                return Err(BadHead::HostDiffers);
            }
            (Some(line), _) => line,
            (None, Some(written)) => written,
            (None, None) => return Err(BadHead::Host),
        };
        Ok(Request { method: method.to_owned(), form, path, host, minor, headers, body })
    }

    /// The head as it goes to the server: for one path of one host, once.
    pub(crate) fn written(&self, target: &Target, usual_port: u16, added: Option<(&str, &str)>) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.{}\r\nHost: {}", self.method, self.path, self.minor, target.host);
        if target.port != usual_port {
            out.push_str(&format!(":{}", target.port));
        }
        let mut out = (out + "\r\n").into_bytes();
        let replaced =
            |name: &str| name == "host" || added.is_some_and(|(added, _)| inject::displaces(added, name));
        append(&mut out, self.headers.iter().filter(|(name, _)| !replaced(name)));
        if let Some((name, value)) = added {
            // What comes back must be readable, or the value could come back unseen.
            out.extend_from_slice(format!("accept-encoding: identity\r\n{name}: {value}\r\n").as_bytes());
        }
        out.extend_from_slice(b"Connection: close\r\n\r\n");
        out
    }
}

impl Response {
    /// Reads a whole head; `to` is the method of the request.
    pub(crate) fn read(head: &[u8], to: &str) -> Result<Response, BadHead> {
        let mut lines = [EMPTY_HEADER; MOST_LINES];
        let mut parsed = httparse::Response::new(&mut lines);
        match parsed.parse(head) {
            Ok(Status::Complete(end)) if end == head.len() => {}
            Err(httparse::Error::TooManyHeaders) => return Err(BadHead::Long),
            Ok(Status::Complete(_) | Status::Partial) | Err(_) => return Err(BadHead::NotHttp),
        }
        let (Some(status), Some(minor)) = (parsed.code, parsed.version) else { return Err(BadHead::NotHttp) };
        let headers = kept(parsed.headers)?;
        let bodiless = to == "HEAD" || matches!(status, 100..=199 | 204 | 304);
        let body = framing(&headers, minor, Framing::UntilEnd, true)?;
        let body = if bodiless { Framing::Length(0) } else { body };
        Ok(Response { status, reason: parsed.reason.unwrap_or_default().to_owned(), minor, headers, body })
    }

    /// Whether another head follows this one.
    pub(crate) fn is_interim(&self) -> bool {
        matches!(self.status, 100 | 102..=199)
    }

    /// Whether its body is all of the page, spelt as it is: no piece of it, not packed, not in turns with something else.
    pub(crate) fn is_plain_and_whole(&self) -> bool {
        let whole = self.status != 206 && self.status != 226;
        let coding = |value: &[u8]| value.eq_ignore_ascii_case(b"identity");
        whole
            && self.headers.iter().all(|(name, value)| match name.as_str() {
                "content-encoding" => coding(value),
                "content-range" | "im" => false,
                "content-type" => !value.to_ascii_lowercase().starts_with(b"multipart/byteranges"),
                _ => true,
            })
    }

    /// Whether its body is in chunks.
    pub(crate) fn is_chunked(&self) -> bool {
        matches!(self.body, Framing::Chunked(_))
    }

    /// The first value of a header.
    pub(crate) fn value(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_slice())
    }

    /// The head as it goes to the guest.
    pub(crate) fn written(&self) -> Vec<u8> {
        let mut out = format!("HTTP/1.{} {} {}\r\n", self.minor, self.status, self.reason).into_bytes();
        append(&mut out, self.headers.iter());
        if !self.is_interim() {
            out.extend_from_slice(b"Connection: close\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out
    }
}

impl Named {
    /// Whether a header says the same as the first line. CONNECT's port may be missing there, as browsers of old did.
    fn agrees(&self, header: &Named, method: &str) -> bool {
        let usual = |port: Option<u16>| port.unwrap_or(80);
        let same_port =
            usual(self.port) == usual(header.port) || (method == "CONNECT" && header.port.is_none());
        self.host == header.host && same_port
    }
}

fn append<'a>(out: &mut Vec<u8>, headers: impl Iterator<Item = &'a (String, Vec<u8>)>) {
    for (name, value) in headers {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

/// Headers that are the message's own, in lower case.
fn kept(headers: &[httparse::Header<'_>]) -> Result<Vec<(String, Vec<u8>)>, BadHead> {
    let all: Vec<(String, &[u8])> = headers.iter().map(|h| (h.name.to_ascii_lowercase(), h.value)).collect();
    let mut hops: Vec<String> = HOP.map(str::to_owned).to_vec();
    for (_, value) in all.iter().filter(|(name, _)| name == "connection") {
        let value = str::from_utf8(value).map_err(|_| BadHead::NotHttp)?;
        for hop in value.split(',').map(|hop| hop.trim().to_ascii_lowercase()) {
            // Naming these as a neighbour's own would make others lose them.
            if DECIDING.iter().any(|deciding| inject::same_header(deciding, &hop)) {
                return Err(BadHead::Framing);
            }
            hops.push(hop);
        }
    }
    // Servers that hand headers on as variables take `content_length` for the other one.
    let twin =
        |name: &str| DECIDING.iter().any(|deciding| name != *deciding && inject::same_header(deciding, name));
    if all.iter().any(|(name, _)| twin(name)) {
        return Err(BadHead::Framing);
    }
    Ok(all
        .into_iter()
        .filter(|(name, _)| !hops.contains(name))
        .map(|(n, value)| (n, value.to_vec()))
        .collect())
}

/// How the body ends: said once, in one way, or not at all.
fn framing(
    headers: &[(String, Vec<u8>)],
    minor: u8,
    unsaid: Framing,
    extensions: bool,
) -> Result<Framing, BadHead> {
    let all = |wanted: &str| -> Vec<&[u8]> {
        headers.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value.as_slice()).collect()
    };
    match (&all("content-length")[..], &all("transfer-encoding")[..]) {
        ([], []) => Ok(unsaid),
        ([length], []) => {
            let digits = !length.is_empty() && length.len() <= 18 && length.iter().all(u8::is_ascii_digit);
            let length =
                str::from_utf8(length).ok().filter(|_| digits).and_then(|length| length.parse().ok());
            length.map(Framing::Length).ok_or(BadHead::Framing)
        }
        ([], [coding]) if minor == 1 && coding.eq_ignore_ascii_case(b"chunked") => {
            Ok(Framing::chunked(extensions))
        }
        _ => Err(BadHead::Framing),
    }
}

fn named_host(value: &[u8]) -> Result<Named, BadHead> {
    let text = str::from_utf8(value).map_err(|_| BadHead::Host)?;
    let with_port = Target::parse(text, None).map(|t| Named { host: t.host, port: Some(t.port) });
    let without = || Host::parse(text).map(|host| Named { host, port: None });
    with_port.or_else(|_| without()).map_err(|_| BadHead::Host)
}

/// The first line's form, path, and host if it names one.
fn target(method: &str, uri: &str) -> Result<(Form, String, Option<Named>), BadHead> {
    if !uri.bytes().all(|b| b.is_ascii_graphic()) || uri.contains('#') {
        return Err(BadHead::Uri);
    }
    if method == "CONNECT" {
        let target = Target::parse(uri, None).map_err(|_| BadHead::Uri)?;
        let named = Named { host: target.host, port: Some(target.port) };
        return Ok((Form::Authority, uri.to_owned(), Some(named)));
    }
    if method == "PRI" {
        return Err(BadHead::Method);
    }
    if uri.starts_with('/') {
        return Ok((Form::Origin, uri.to_owned(), None));
    }
    if uri == "*" && method == "OPTIONS" {
        return Ok((Form::Origin, uri.to_owned(), None));
    }
    let scheme = uri.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://"));
    let rest = scheme.and_then(|_| uri.get(7..)).ok_or(BadHead::Uri)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let named = named_host(authority.as_bytes()).map_err(|_| BadHead::Uri)?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok((Form::Absolute, path, Some(named)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Request, BadHead> {
        let end =
            head_end(text.as_bytes(), 0, MOST_REQUEST)?.unwrap_or_else(|| panic!("{text:?} has no end"));
        Request::read(&text.as_bytes()[..end])
    }

    #[test]
    fn a_request_goes_on_as_one_request_to_one_host() {
        let text = "GET http://A.Example:8080/x?y HTTP/1.1\r\nHost: a.example:8080\r\nAccept: */*\r\n\
                    Proxy-Authorization: Basic x\r\nConnection: keep-alive, X-Drop\r\nX-Drop: 1\r\nUpgrade: h2c\r\n\r\n";
        let request = read(text).unwrap();
        assert_eq!((request.form.clone(), request.path.as_str()), (Form::Absolute, "/x?y"));
        let target = Target::parse("a.example:8080", None).unwrap();
        assert_eq!(
            String::from_utf8(request.written(&target, 80, None)).unwrap(),
            "GET /x?y HTTP/1.1\r\nHost: a.example:8080\r\naccept: */*\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn an_added_header_takes_the_place_of_the_guests_own() {
        let text = "GET / HTTP/1.1\r\nHost: a.example\r\nX-API-KEY: mine\r\nx_api_key: mine\r\nX_Api-Key: mine\r\n\
                    Accept-Encoding: mine\r\nRange: mine\r\nIf-Range: mine\r\nif_range: mine\r\nA-IM: mine\r\n\
                    Accept: x\r\n\r\n";
        let target = Target::parse("a.example:443", None).unwrap();
        let out = read(text).unwrap().written(&target, 443, Some(("x-api-key", "ours")));
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "GET / HTTP/1.1\r\nHost: a.example\r\naccept: x\r\naccept-encoding: identity\r\nx-api-key: ours\r\n\
             Connection: close\r\n\r\n"
        );
    }

    #[test]
    fn what_two_readers_could_read_in_two_ways_is_refused() {
        let with = |line: &str| format!("POST / HTTP/1.1\r\nHost: a.example\r\n{line}\r\n\r\n");
        for (text, why) in [
            (with("Content-Length: 1\r\nTransfer-Encoding: chunked"), BadHead::Framing),
            (with("Content-Length: 1\r\nContent-Length: 1"), BadHead::Framing),
            (with("Content-Length: 1, 1"), BadHead::Framing),
            (with("Content-Length: +1"), BadHead::Framing),
            (with("Content-Length: 0x1"), BadHead::Framing),
            (with("Content-Length: "), BadHead::Framing),
            (with("Transfer-Encoding: gzip, chunked"), BadHead::Framing),
            (with("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"), BadHead::Framing),
            (with("Transfer-Encoding: xchunked"), BadHead::Framing),
            (with("Connection: Content-Length\r\nContent-Length: 4"), BadHead::Framing),
            (
                "POST / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
                BadHead::Framing,
            ),
            (with("Content_Length: 1"), BadHead::Framing),
            (with("Transfer_Encoding: chunked"), BadHead::Framing),
            (with("Transfer-Encoding : chunked"), BadHead::NotHttp),
            (with("X: a\r\n folded"), BadHead::NotHttp),
            (with("Host: b.example"), BadHead::Host),
            (with("host: a.example"), BadHead::Host),
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), BadHead::Host),
            ("GET / HTTP/1.1\r\nHost: a.example, b.example\r\n\r\n".to_owned(), BadHead::Host),
            ("GET / HTTP/1.1\r\nHost: u@a.example\r\n\r\n".to_owned(), BadHead::Host),
            ("GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned(), BadHead::HostDiffers),
            ("GET http://a.example:81/ HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned(), BadHead::HostDiffers),
            ("GET http://u@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned(), BadHead::Uri),
            (
                "GET http://a.example\\@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned(),
                BadHead::Uri,
            ),
            ("GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned(), BadHead::Uri),
            ("GET a.example HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned(), BadHead::Uri),
            ("PRI * HTTP/2.0\r\n\r\n".to_owned(), BadHead::NotHttp),
            ("GET /\r\n\r\n".to_owned(), BadHead::NotHttp),
            (
                "CONNECT b.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n".to_owned(),
                BadHead::HostDiffers,
            ),
            ("GET / HTTP/1.1\nHost: a.example\n\n".to_owned(), BadHead::Line),
            ("GET / HTTP/1.1\r\nHost: a.example\r\nX: \ry\r\n\r\n".to_owned(), BadHead::Line),
            ("GET / HTTP/1.1\r\nHost: a.example\0b\r\n\r\n".to_owned(), BadHead::Line),
        ] {
            assert_eq!(read(&text), Err(why), "{text:?}");
        }
    }

    #[test]
    fn a_head_is_bounded() {
        assert_eq!(head_end(&vec![b'a'; MOST_REQUEST], 0, MOST_REQUEST), Err(BadHead::Long));
        assert_eq!(head_end(b"GET / HTTP/1.1\r\n", 0, MOST_REQUEST), Ok(None));
        let many = format!("GET / HTTP/1.1\r\nHost: a.example\r\n{}\r\n", "X: y\r\n".repeat(MOST_LINES));
        assert_eq!(read(&many), Err(BadHead::Long));
    }

    #[test]
    fn a_response_is_read_as_strictly() {
        let read = |text: &str, to: &str| Response::read(text.as_bytes(), to);
        let sound =
            read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n", "GET").unwrap();
        assert_eq!(sound.body, Framing::Length(5));
        assert_eq!(sound.written(), b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nConnection: close\r\n\r\n");
        assert_eq!(read("HTTP/1.1 200 OK\r\n\r\n", "GET").unwrap().body, Framing::UntilEnd);
        for (text, to) in
            [("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD"), ("HTTP/1.1 304 N\r\n\r\n", "GET")]
        {
            assert!(read(text, to).unwrap().body.is_done());
        }
        let both = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(read(both, "GET"), Err(BadHead::Framing));
    }
}
