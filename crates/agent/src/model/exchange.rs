//! One HTTP exchange: connect, send, read a bounded body. Plain HTTP/1.1, one connection an exchange.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{Method, Request, header};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes of a body that are read.
pub(crate) const MAX_BODY: usize = 8 << 20;

/// Why an exchange failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// No connection: nothing was sent.
    Connect(String),
    /// It broke under way.
    Io(String),
    /// It took longer than allowed.
    Slow(Duration),
    /// The body is longer than [`MAX_BODY`].
    TooLong,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// What is sent.
pub(crate) struct Ask<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) path: &'a str,
    pub(crate) key: Option<&'a str>,
    pub(crate) body: Option<Vec<u8>>,
}

/// Carries out an exchange.
pub(crate) async fn exchange(ask: Ask<'_>, connect: Duration, total: Duration) -> Result<Reply, Broken> {
    match tokio::time::timeout(total, carry_out(ask, connect)).await {
        Ok(result) => result,
        Err(_) => Err(Broken::Slow(total)),
    }
}

async fn carry_out(ask: Ask<'_>, connect: Duration) -> Result<Reply, Broken> {
    let stream = match tokio::time::timeout(connect, open(ask.host, ask.port)).await {
        Ok(opened) => opened.map_err(|e| Broken::Connect(e.to_string()))?,
        Err(_) => return Err(Broken::Connect(format!("no connection within {} s", connect.as_secs()))),
    };
    let io = |e: hyper::Error| Broken::Io(e.to_string());
    let (mut sender, connection) = http1::handshake(Socket(stream)).await.map_err(io)?;
    let authority = if ask.host.contains(':') {
        format!("[{}]:{}", ask.host, ask.port)
    } else {
        format!("{}:{}", ask.host, ask.port)
    };
    let mut request = Request::builder()
        .method(if ask.body.is_some() { Method::POST } else { Method::GET })
        .uri(ask.path)
        .header(header::HOST, authority)
        .header(header::ACCEPT, "application/json")
        .header(header::CONNECTION, "close");
    if ask.body.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    if let Some(key) = ask.key {
        let mut value = header::HeaderValue::try_from(format!("Bearer {key}"))
            .map_err(|_| Broken::Connect("the key holds characters that no header can carry".to_owned()))?;
        value.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, value);
    }
    let request = request
        .body(Full::new(Bytes::from(ask.body.unwrap_or_default())))
        .map_err(|e| Broken::Connect(e.to_string()))?;
    let talk = async {
        let response = sender.send_request(request).await.map_err(io)?;
        let status = response.status().as_u16();
        match Limited::new(response.into_body(), MAX_BODY).collect().await {
            Ok(body) => Ok(Reply { status, body: body.to_bytes().to_vec() }),
            Err(e) if e.is::<http_body_util::LengthLimitError>() => Err(Broken::TooLong),
            Err(e) => Err(Broken::Io(e.to_string())),
        }
    };
    tokio::pin!(talk, connection);
    tokio::select! {
        biased;
        reply = &mut talk => reply,
        // The connection may be over while its last bytes still wait to be read.
        _ended = &mut connection => talk.await,
    }
}

/// `localhost` is this machine, whatever a resolver says; proxies of the environment are never asked.
async fn open(host: &str, port: u16) -> std::io::Result<TcpStream> {
    if host.eq_ignore_ascii_case("localhost") {
        return match TcpStream::connect(("127.0.0.1", port)).await {
            Ok(stream) => Ok(stream),
            Err(first) => TcpStream::connect(("::1", port)).await.map_err(|_| first),
        };
    }
    TcpStream::connect((host, port)).await
}

/// Lets hyper read from and write to a tokio socket.
struct Socket(TcpStream);

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut space = [0_u8; 16 * 1024];
        let len = space.len().min(cursor.remaining());
        let mut buffer = ReadBuf::new(&mut space[..len]);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut buffer))?;
        cursor.put_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }
}

impl Write for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
