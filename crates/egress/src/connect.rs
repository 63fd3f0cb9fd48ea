//! A client that knows of the proxy and speaks HTTP to it: CONNECT, or a whole address in its first line.

use policy::Target;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::body::Framing;
use crate::connection::Connection;
use crate::exchange::exchange;
use crate::guest::{Guest, NoHead, NoRequest};
use crate::http::{BadHead, Form};
use crate::{Ended, Way, answer, tunnel};

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Serves one request to the proxy.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send>(
    connection: &mut Connection,
    guest: &mut Guest<S>,
) -> Ended {
    let request = match guest.request(connection.head_deadline()).await {
        Ok(request) => request,
        Err(NoRequest::Head(NoHead::Gone)) => return Ended::GuestGone,
        Err(NoRequest::Head(NoHead::Late)) => {
            guest.farewell(&answer::http("408 Request Timeout", "the request did not come in time")).await;
            return Ended::Silent;
        }
        Err(NoRequest::Head(NoHead::Long)) => return answer::malformed(guest, BadHead::Long).await,
        Err(NoRequest::Bad(bad)) => return answer::malformed(guest, bad).await,
    };
    connection.way = if request.form == Form::Authority { Way::Connect } else { Way::Http };
    let target = match &request.form {
        Form::Origin => {
            let told = "this is a proxy: it takes CONNECT, or a whole address in the first line";
            guest.farewell(&answer::http("400 Bad Request", told)).await;
            return Ended::Malformed("has no address in its first line".to_owned());
        }
        Form::Authority if request.body != Framing::Length(0) => {
            return answer::malformed(guest, BadHead::Framing).await;
        }
        Form::Authority | Form::Absolute => {
            Target { host: request.host.host.clone(), port: request.host.port.unwrap_or(80) }
        }
    };
    let opened = match connection.decide(&target).await {
        Ok(opened) => opened,
        Err(refused) => return answer::forbidden(guest, &refused).await,
    };
    let server = match connection.dial(&opened).await {
        Ok(server) => server,
        Err(why) => {
            let word = answer::http("502 Bad Gateway", &why);
            return connection.server_gone(guest, why, &word).await;
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
