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

    /// What a server says of a name: the name that it is another word for, an address of each family.
    #[derive(Clone, Copy)]
    struct Says(Option<&'static str>, Option<&'static str>, Option<&'static str>);

    /// A server that knows these names, and tells what it was asked. An alias has no address beside it: whoever asks has
    /// to ask on.
    async fn server(
        zone: &'static [(&str, Says)],
    ) -> (System, tokio::sync::mpsc::UnboundedReceiver<(String, u8)>) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut bytes = [0; 512];
            while let Ok((read, from)) = socket.recv_from(&mut bytes).await {
                let end = 12 + bytes[12..read].iter().position(|b| *b == 0).unwrap() + 5;
                let name =
                    String::from_utf8_lossy(&bytes[13..end - 5]).replace(|c: char| c.is_control(), ".");
                let name = name.to_lowercase();
                let kind = bytes[end - 3];
                let says = zone.iter().find(|(known, _)| *known == name).map(|(_, says)| *says);
                tell.send((name, kind)).unwrap();
                let found: Option<(u8, Vec<u8>)> = match (says, kind) {
                    (Some(Says(Some(alias), ..)), _) => {
                        let labels = alias.split('.').flat_map(|label| {
                            [&[u8::try_from(label.len()).unwrap()], label.as_bytes()].concat()
                        });
                        Some((5, labels.chain([0]).collect()))
                    }
                    (Some(Says(_, Some(four), _)), 1) => {
                        Some((1, four.parse::<std::net::Ipv4Addr>().unwrap().octets().to_vec()))
                    }
                    (Some(Says(.., Some(six))), 28) => {
                        Some((28, six.parse::<std::net::Ipv6Addr>().unwrap().octets().to_vec()))
                    }
                    _ => None,
                };
                let head = [bytes[0], bytes[1], 0x81, 0x80, 0, 1, 0, u8::from(found.is_some()), 0, 0, 0, 0];
                let mut answer = [&head[..], &bytes[12..end]].concat();
                if let Some((kind, data)) = found {
                    answer.extend([
                        0xc0,
                        12,
                        0,
                        kind,
                        0,
                        1,
                        0,
                        0,
                        0,
                        60,
                        0,
                        u8::try_from(data.len()).unwrap(),
                    ]);
                    answer.extend(data);
                }
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        let mut config = NameServerConfig::udp("127.0.0.1".parse().unwrap());
        config.connections[0].port = port;
        let config = ResolverConfig::from_name_servers(vec![config]);
        let resolver = made(TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()));
        (System { resolver: OnceLock::from(resolver) }, told)
    }

    /// R47: one question for each family, for exactly this name, each time.
    #[tokio::test]
    async fn a_name_is_asked_for_as_it_is_and_nothing_is_kept() {
        let (system, mut told) = server(&[("api.example.com", Says(None, Some("203.0.113.7"), None))]).await;
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

    /// D-4, D-22: both families of the real resolver's answer are judged together, and so is what an alias leads to.
    #[tokio::test]
    async fn what_the_real_resolver_says_is_judged_in_both_families_and_through_aliases() {
        const FOUR: Option<&str> = Some("203.0.113.7");
        const SIX: Option<&str> = Some("2001:db8::7");
        let (system, mut told) = server(&[
            ("both.test", Says(None, FOUR, SIX)),
            ("six.test", Says(None, None, SIX)),
            ("private-four.test", Says(None, Some("10.0.0.5"), SIX)),
            ("private-six.test", Says(None, FOUR, Some("fd00::5"))),
            ("mapped-six.test", Says(None, FOUR, Some("::ffff:10.0.0.5"))),
            ("own-six.test", Says(None, FOUR, Some("2001:db8::99"))),
            ("alias.test", Says(Some("both.test"), None, None)),
            ("alias-of-alias.test", Says(Some("alias.test"), None, None)),
            ("alias-to-private.test", Says(Some("private-six.test"), None, None)),
            ("alias-to-nothing.test", Says(Some("nothing.test"), None, None)),
        ])
        .await;
        let names = [
            ("both.test", Ok(&["203.0.113.7", "2001:db8::7"][..])),
            ("six.test", Ok(&["2001:db8::7"])),
            ("private-four.test", Err("egress-address")),
            ("private-six.test", Err("egress-address")),
            ("mapped-six.test", Err("egress-address")),
            ("own-six.test", Err("egress-address")),
            ("alias.test", Ok(&["203.0.113.7", "2001:db8::7"])),
            ("alias-of-alias.test", Ok(&["203.0.113.7", "2001:db8::7"])),
            ("alias-to-private.test", Err("egress-address")),
            ("alias-to-nothing.test", Err("egress-resolve")),
            ("nothing.test", Err("egress-resolve")),
        ];
        let rules = names.iter().map(|(name, _)| policy::HostRule::parse(&format!("{name}:443")).unwrap());
        let granted = rules.map(|rule| crate::Granted::new(rule.into(), |_| None).unwrap()).collect();
        let own = vec!["2001:db8::99".parse().unwrap()];
        let patience = std::time::Duration::from_secs(10);
        let judge = crate::judge::Judge::new(granted, own, std::sync::Arc::new(system), patience, 1);
        for (name, expected) in names {
            let asked = policy::Target::parse(&format!("{name}:443"), None).unwrap();
            let found = match judge.decide(&asked).await {
                Ok(opened) => {
                    let mut found: Vec<IpAddr> =
                        opened.addresses.iter().map(|pinned| pinned.address().ip()).collect();
                    found.sort();
                    Ok(found)
                }
                Err(denied) => Err(denied.refused.rule),
            };
            let expected =
                expected.map(|list| list.iter().map(|a| a.parse().unwrap()).collect::<Vec<IpAddr>>());
            assert_eq!(found, expected, "{name}");
        }
        // What it asks for itself on the way of an alias it asks the same server.
        let mut asked = std::collections::BTreeSet::new();
        while let Ok((name, _)) = told.try_recv() {
            asked.insert(name);
        }
        assert!(asked.len() == names.len() && asked.iter().all(|name| name.ends_with(".test")), "{asked:?}");
    }
}
