//! Names to addresses: one question, one answer, no shopping for a better one.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::OnceLock;

use hickory_resolver::config::{LookupIpStrategy, ResolveHosts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::{ResolverBuilder, TokioResolver};
use policy::HostName;

/// Why a name has no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("could not be resolved: {why}")]
pub struct Unresolved {
    /// What the resolver said, cleaned.
    pub why: String,
}

/// An answer on its way.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, Unresolved>> + Send + 'a>>;

/// Resolves names. Tests script the answers.
pub trait Resolve: Send + Sync {
    /// Every address of the name, of both families.
    fn resolve<'a>(&'a self, name: &'a HostName) -> Resolving<'a>;
}

/// The real one: this machine's hosts file and the servers of its `resolv.conf`, asked by ourselves.
///
/// Nothing is kept: each connection asks, and is judged by what was answered to it.
#[derive(Default)]
pub struct System {
    resolver: OnceLock<Result<TokioResolver, String>>,
}

impl System {
    fn resolver(&self) -> Result<&TokioResolver, Unresolved> {
        let made = self.resolver.get_or_init(|| {
            let builder = TokioResolver::builder_tokio().map_err(|e| e.to_string())?;
            made(builder)
        });
        made.as_ref().map_err(|why| Unresolved { why: policy::shown(why) })
    }
}

fn made(mut builder: ResolverBuilder<TokioRuntimeProvider>) -> Result<TokioResolver, String> {
    let options = builder.options_mut();
    options.attempts = 1;
    options.cache_size = 0;
    options.num_concurrent_reqs = 1;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.use_hosts_file = ResolveHosts::Always;
    builder.build().map_err(|e| e.to_string())
}

impl Resolve for System {
    fn resolve<'a>(&'a self, name: &'a HostName) -> Resolving<'a> {
        Box::pin(async move {
            // With a dot at its end no search domain is tried.
            let answer = self.resolver()?.lookup_ip(format!("{name}.")).await;
            let answer = answer.map_err(|e| Unresolved { why: policy::shown(&e.to_string()) })?;
            Ok(answer.iter().collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use hickory_resolver::config::{NameServerConfig, ResolverConfig};
    use policy::Host;
    use tokio::net::UdpSocket;

    use super::*;

    /// A server that gives each name one address of the first family, and tells what it was asked.
    async fn server() -> (u16, tokio::sync::mpsc::UnboundedReceiver<(String, u8)>) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut bytes = [0; 512];
            while let Ok((read, from)) = socket.recv_from(&mut bytes).await {
                let end = 12 + bytes[12..read].iter().position(|b| *b == 0).unwrap() + 5;
                let name =
                    String::from_utf8_lossy(&bytes[13..end - 5]).replace(|c: char| c.is_control(), ".");
                let kind = bytes[end - 3];
                tell.send((name.to_lowercase(), kind)).unwrap();
                let found = kind == 1;
                let head = [bytes[0], bytes[1], 0x81, 0x80, 0, 1, 0, u8::from(found), 0, 0, 0, 0];
                let mut answer = [&head[..], &bytes[12..end]].concat();
                if found {
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 203, 0, 113, 7]);
                }
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        (port, told)
    }

    /// R47: one question for each family, for exactly this name, each time.
    #[tokio::test]
    async fn a_name_is_asked_for_as_it_is_and_nothing_is_kept() {
        let (port, mut told) = server().await;
        let mut config = NameServerConfig::udp("127.0.0.1".parse().unwrap());
        config.connections[0].port = port;
        let config = ResolverConfig::from_name_servers(vec![config]);
        let resolver = made(TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()));
        let system = System { resolver: OnceLock::from(resolver) };
        let Ok(Host::Name(name)) = Host::parse("api.example.com") else { panic!("a name") };
        for _ in 0..2 {
            let answer = system.resolve(&name).await.unwrap();
            assert_eq!(answer, ["203.0.113.7".parse::<IpAddr>().unwrap()]);
            let mut asked = [told.recv().await.unwrap(), told.recv().await.unwrap()];
            asked.sort();
            assert_eq!(asked, [("api.example.com".to_owned(), 1), ("api.example.com".to_owned(), 28)]);
            assert!(told.try_recv().is_err());
        }
    }
}
