//! A client that knows of the proxy and speaks HTTP to it: CONNECT, or a whole address in its first line.

use policy::{Target, shown};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::body::Framing;
use crate::connection::Connection;
use crate::exchange::exchange;
use crate::guest::{Guest, NoHead};
use crate::http::{self, BadHead, Form, Request};
use crate::{Ended, Refused, Way, answer, tunnel};

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Why there is no request.
pub(crate) enum NoRequest {
    Head(NoHead),
    Bad(BadHead),
}

/// Serves one request to the proxy.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send>(
    connection: &mut Connection,
    guest: &mut Guest<S>,
) -> Ended {
    let request = match request(connection, guest).await {
        Ok(request) => request,
        Err(NoRequest::Head(NoHead::Gone)) => return Ended::GuestGone,
        Err(NoRequest::Head(NoHead::Late)) => {
            guest.farewell(&answer::http("408 Request Timeout", "the request did not come in time")).await;
            return Ended::Silent;
        }
        Err(NoRequest::Head(NoHead::Long)) => return malformed(guest, BadHead::Long).await,
        Err(NoRequest::Bad(bad)) => return malformed(guest, bad).await,
    };
    connection.way = if request.form == Form::Authority { Way::Connect } else { Way::Http };
    let target = match &request.form {
        Form::Origin => {
            let told = "this is a proxy: it takes CONNECT, or a whole address in the first line";
            guest.farewell(&answer::http("400 Bad Request", told)).await;
            return Ended::Malformed("has no address in its first line".to_owned());
        }
        Form::Authority if request.body != Framing::Length(0) => {
            return malformed(guest, BadHead::Framing).await;
        }
        Form::Authority | Form::Absolute => {
            Target { host: request.host.host.clone(), port: request.host.port.unwrap_or(80) }
        }
    };
    let opened = match connection.decide(&target).await {
        Ok(opened) => opened,
        Err(refused) => return forbidden(guest, &refused).await,
    };
    let server = match connection.dial(&opened).await {
        Ok(server) => server,
        Err(why) => {
            guest.farewell(&answer::http("502 Bad Gateway", &why)).await;
            return Ended::ServerGone(why);
        }
    };
    if connection.way == Way::Http {
        return exchange(connection, guest, request, &opened, server).await;
    }
    if !guest.say(ESTABLISHED, connection.head_deadline()).await {
        return Ended::GuestGone;
    }
    tunnel::connected(connection, guest, &opened, server).await
}

/// A whole head, and nothing after it.
pub(crate) async fn request<S: AsyncRead + AsyncWrite + Unpin + Send>(
    connection: &Connection,
    guest: &mut Guest<S>,
) -> Result<Request, NoRequest> {
    let deadline = connection.head_deadline();
    let mut seen = 0;
    loop {
        let end = http::head_end(guest.held(), seen, http::MOST_REQUEST).map_err(NoRequest::Bad)?;
        if let Some(end) = end {
            return Request::read(&guest.take(end)).map_err(NoRequest::Bad);
        }
        seen = guest.held().len();
        guest.more(http::MOST_REQUEST, deadline).await.map_err(NoRequest::Head)?;
    }
}

/// Tells a client that its request could not be read.
pub(crate) async fn malformed<S: AsyncRead + AsyncWrite + Unpin + Send>(
    guest: &mut Guest<S>,
    bad: BadHead,
) -> Ended {
    guest.farewell(&answer::malformed(&bad.to_string())).await;
    Ended::Malformed(shown(&bad.to_string()))
}

/// Tells a client why it gets nothing.
pub(crate) async fn forbidden<S: AsyncRead + AsyncWrite + Unpin + Send>(
    guest: &mut Guest<S>,
    refused: &Refused,
) -> Ended {
    guest.farewell(&answer::http("403 Forbidden", &refused.reason)).await;
    Ended::Refused
}
