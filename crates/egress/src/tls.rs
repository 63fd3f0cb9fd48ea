//! TLS of our own, outward: the server proves the granted name, or there is no connection.
//!
//! Who may vouch for a server is this machine's own list, as its other programs use it: an operator who trusts an
//! authority of the house has put it there, and one that fell from grace is gone with the system's next update. A list
//! compiled in would have neither.

use std::fs;
use std::io;
use std::sync::{Arc, OnceLock};

use policy::HostName;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::judge::cut;

/// Where systems keep the authorities that they trust, all in one file.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Who may vouch for servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Roots {
    /// Whom this machine trusts.
    #[default]
    System,
    /// The certificates in this text, and nobody else.
    Pem(Vec<u8>),
}

pub(crate) struct Tls {
    roots: Roots,
    config: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Tls {
    pub(crate) fn new(roots: Roots) -> Tls {
        Tls { roots, config: OnceLock::new() }
    }

    /// Speaks TLS on a connection, with a server that proves to be `name`.
    pub(crate) async fn connect(
        &self,
        name: &HostName,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, String> {
        let config = self.config.get_or_init(|| configured(&self.roots)).clone()?;
        let server = ServerName::try_from(name.as_str().to_owned()).map_err(|e| e.to_string())?;
        let connected = TlsConnector::from(config).connect(server, stream).await;
        connected
            .map_err(|e| format!("`{}` does not speak TLS as that name: {}", cut(name.as_str()), why(&e)))
    }
}

/// In words of ours: a certificate's own are those of whoever made it.
fn why(e: &io::Error) -> &'static str {
    let Some(e) = e.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) else {
        return "it broke off";
    };
    match e {
        rustls::Error::InvalidCertificate(bad) => match bad {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate is expired"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name"
            }
            CertificateError::UnknownIssuer => "nobody whom this machine trusts vouches for its certificate",
            CertificateError::Revoked => "its certificate is revoked",
            _ => "its certificate is not sound",
        },
        _ => "it speaks it otherwise, or not at all",
    }
}

fn configured(roots: &Roots) -> Result<Arc<ClientConfig>, String> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem(roots)?).flatten() {
        // One that this library cannot read vouches for nobody.
        store.add_parsable_certificates([certificate]);
    }
    if store.is_empty() {
        return Err("this machine trusts no authority that vouches for servers".to_owned());
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    let mut config = builder.with_root_certificates(store).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn pem(roots: &Roots) -> Result<Vec<u8>, String> {
    match roots {
        Roots::Pem(text) => Ok(text.clone()),
        Roots::System => {
            for bundle in BUNDLES {
                match fs::read(bundle) {
                    Ok(text) => return Ok(text),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) => return Err(format!("{bundle} cannot be read: {}", e.kind())),
                }
            }
            Err("this machine has no list of authorities (Debian: ca-certificates)".to_owned())
        }
    }
}
