//! Names to addresses: one question, one answer, no shopping for a better one.

use std::future::Future;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::OnceLock;
use std::time::Duration;

use hickory_resolver::config::ResolveHosts;
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Hosts, ResolverBuilder, TokioResolver};
use policy::HostName;
use tokio::time::timeout;

/// How long IPv6 addresses are still waited for once there are some of IPv4: servers and middleboxes that drop this
/// question are many, and nothing is kept, so that each connection waits.
const THEN_SIX: Duration = Duration::from_secs(1);
/// The other way round it is what works nearly everywhere that is waited for.
const THEN_FOUR: Duration = Duration::from_secs(2);

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
/// What stands in the hosts file is the answer, as it is to this machine's other programs. Else each family is a question
/// of its own, and one that is not answered does not hold up the other for long. Nothing is kept: each connection asks,
/// and is judged by what was answered to it.
#[derive(Default)]
pub struct System {
    sources: OnceLock<Sources>,
}

struct Sources {
    hosts: Hosts,
    /// None on a machine that has none, with the reason.
    servers: Result<TokioResolver, String>,
}

impl System {
    fn sources(&self) -> &Sources {
        self.sources.get_or_init(|| Sources {
            hosts: Hosts::from_system().unwrap_or_default(),
            servers: TokioResolver::builder_tokio().map_err(|e| e.to_string()).and_then(made),
        })
    }
}

fn made(mut builder: ResolverBuilder<TokioRuntimeProvider>) -> Result<TokioResolver, String> {
    let options = builder.options_mut();
    options.attempts = 1;
    options.cache_size = 0;
    options.num_concurrent_reqs = 1;
    options.use_hosts_file = ResolveHosts::Never;
    builder.build().map_err(|e| e.to_string())
}

impl Sources {
    async fn resolve(&self, name: &HostName) -> Result<Vec<IpAddr>, String> {
        // With a dot at its end no search domain is tried.
        let name = Name::from_ascii(format!("{name}.")).map_err(|e| e.to_string())?;
        let listed = [RecordType::A, RecordType::AAAA]
            .map(|kind| self.hosts.lookup_static_host(&Query::query(name.clone(), kind)));
        let listed: Vec<IpAddr> = listed.into_iter().flatten().flat_map(addresses).collect();
        if !listed.is_empty() {
            return Ok(listed);
        }
        let servers = self.servers.as_ref().map_err(Clone::clone)?;
        let ask = async |kind| answered(servers.lookup(name.clone(), kind).await);
        both(ask(RecordType::A), ask(RecordType::AAAA)).await
    }
}

/// What both families have; once one has addresses, the other one is waited for no longer than it is worth.
async fn both(
    four: impl Future<Output = Result<Vec<IpAddr>, String>>,
    six: impl Future<Output = Result<Vec<IpAddr>, String>>,
) -> Result<Vec<IpAddr>, String> {
    let (mut four, mut six) = (pin!(four), pin!(six));
    let some = |answer: &Result<Vec<IpAddr>, String>| answer.as_ref().is_ok_and(|list| !list.is_empty());
    let none = || Ok(Vec::new());
    let (four, six) = tokio::select! {
        four = &mut four => {
            let six = if some(&four) { timeout(THEN_SIX, six).await.unwrap_or_else(|_| none()) } else { six.await };
            (four, six)
        }
        six = &mut six => {
            let four = if some(&six) { timeout(THEN_FOUR, four).await.unwrap_or_else(|_| none()) } else { four.await };
            (four, six)
        }
    };
    match (four, six) {
        (Ok(four), Ok(six)) => Ok([four, six].concat()),
        // A name has addresses also where a server fails at the question for the others.
        (Ok(found), Err(_)) | (Err(_), Ok(found)) if !found.is_empty() => Ok(found),
        (Err(why), _) | (_, Err(why)) => Err(why),
    }
}

/// That there is nothing is an answer, too.
fn answered(answer: Result<Lookup, NetError>) -> Result<Vec<IpAddr>, String> {
    match answer {
        Ok(lookup) => Ok(addresses(lookup).collect()),
        Err(e) if e.is_no_records_found() => Ok(Vec::new()),
        Err(e) => Err(e.to_string()),
    }
}

fn addresses(lookup: Lookup) -> impl Iterator<Item = IpAddr> {
    let found: Vec<IpAddr> = lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect();
    found.into_iter()
}

impl Resolve for System {
    fn resolve<'a>(&'a self, name: &'a HostName) -> Resolving<'a> {
        Box::pin(async move {
            let answer = self.sources().resolve(name).await;
            answer.map_err(|why| Unresolved { why: policy::shown(&why) })
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

    fn system(hosts: Hosts, servers: Result<TokioResolver, String>) -> System {
        System { sources: OnceLock::from(Sources { hosts, servers }) }
    }

    /// A server that knows these names, and tells what it was asked. An alias has no address beside it: whoever asks has
    /// to ask on.
    async fn server(
        zone: &'static [(&str, Says)],
    ) -> (System, tokio::sync::mpsc::UnboundedReceiver<(String, u8)>) {
        server_but(zone, None).await
    }

    /// The same, which never answers a question of one kind.
    async fn server_but(
        zone: &'static [(&str, Says)],
        unanswered: Option<u8>,
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
                if unanswered == Some(kind) {
                    continue;
                }
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
        (system(Hosts::default(), resolver), told)
    }

    /// R47: one question for each family, for exactly this name, each time.
    #[tokio::test]
    async fn a_name_is_asked_for_as_it_is_and_nothing_is_kept() {
        let (system, mut told) = server(&[("api.example.com", Says(None, Some("203.0.113.7"), None))]).await;
        let name = name("api.example.com");
        for _ in 0..2 {
            let answer = system.resolve(&name).await.unwrap();
            assert_eq!(answer, ["203.0.113.7".parse::<IpAddr>().unwrap()]);
            let mut asked = [told.recv().await.unwrap(), told.recv().await.unwrap()];
            asked.sort();
            assert_eq!(asked, [("api.example.com".to_owned(), 1), ("api.example.com".to_owned(), 28)]);
            assert!(told.try_recv().is_err());
        }
    }

    fn name(text: &str) -> HostName {
        let Ok(Host::Name(name)) = Host::parse(text) else { panic!("{text} is no name") };
        name
    }

    /// Servers and middleboxes that drop one of the two questions are many.
    #[tokio::test]
    async fn a_family_that_is_not_answered_does_not_hold_up_the_other() {
        const BOTH: &[(&str, Says)] = &[("both.test", Says(None, Some("203.0.113.7"), Some("2001:db8::7")))];
        for (unanswered, found, within) in [(28, "203.0.113.7", THEN_SIX), (1, "2001:db8::7", THEN_FOUR)] {
            let (system, _told) = server_but(BOTH, Some(unanswered)).await;
            let began = std::time::Instant::now();
            let answer = system.resolve(&name("both.test")).await;
            assert_eq!(answer, Ok(vec![found.parse::<IpAddr>().unwrap()]));
            let took = began.elapsed();
            assert!(took >= within && took < within + Duration::from_secs(2), "{unanswered}: {took:?}");
        }
    }

    /// What is late belongs to no decision: it is neither dialled nor judged.
    #[tokio::test(start_paused = true)]
    async fn a_family_is_waited_for_as_long_as_the_other_has_nothing() {
        let four: Vec<IpAddr> = vec!["203.0.113.7".parse().unwrap()];
        let six: Vec<IpAddr> = vec!["2001:db8::7".parse().unwrap()];
        let after = async |millis, answer: Result<Vec<IpAddr>, String>| {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            answer
        };
        let (nothing, failed) = (Ok(Vec::new()), Err("failed".to_owned()));
        for (first, second, expected, took) in [
            ((1, Ok(four.clone())), (900, Ok(six.clone())), Ok([four.clone(), six.clone()].concat()), 900),
            ((1900, Ok(four.clone())), (1, Ok(six.clone())), Ok([four.clone(), six.clone()].concat()), 1900),
            ((1, Ok(four.clone())), (60_000, Ok(six.clone())), Ok(four.clone()), 1001),
            ((60_000, Ok(four.clone())), (1, Ok(six.clone())), Ok(six.clone()), 2001),
            ((1, nothing.clone()), (5000, Ok(six.clone())), Ok(six.clone()), 5000),
            ((5000, Ok(four.clone())), (1, failed.clone()), Ok(four.clone()), 5000),
            ((1, failed.clone()), (2, nothing.clone()), failed.clone(), 2),
            ((1, nothing.clone()), (2, nothing.clone()), nothing.clone(), 2),
        ] {
            let began = tokio::time::Instant::now();
            let shown = format!("{first:?} {second:?}");
            let found = both(after(first.0, first.1), after(second.0, second.1)).await;
            let millis = began.elapsed().as_millis();
            assert!(found == expected && (took..took + 10).contains(&millis), "{shown}: {found:?} {millis}");
        }
    }

    /// A machine without a network has a hosts file, and what stands there is no question for anybody.
    #[tokio::test]
    async fn what_stands_in_the_hosts_file_needs_no_server() {
        let mut hosts = Hosts::default();
        let file = "203.0.113.7 four.test\n203.0.113.8 Both.test other\n2001:db8::8 both.test\n";
        hosts.read_hosts_conf(file.as_bytes()).unwrap();
        let system = system(hosts, Err("no nameservers found in config".to_owned()));
        for (asked, found) in
            [("four.test", &["203.0.113.7"][..]), ("both.test", &["203.0.113.8", "2001:db8::8"])]
        {
            let found: Vec<IpAddr> = found.iter().map(|a| a.parse().unwrap()).collect();
            assert_eq!(system.resolve(&name(asked)).await, Ok(found));
        }
        let why = system.resolve(&name("nothing.test")).await.unwrap_err().why;
        assert!(why.contains("no nameservers"), "{why}");
    }

    /// Of a name with one family in the hosts file the other one is asked of nobody.
    #[tokio::test]
    async fn a_name_of_the_hosts_file_is_asked_of_no_server() {
        let (servers, mut told) = server(&[("four.test", Says(None, None, Some("2001:db8::7")))]).await;
        let mut sources = servers.sources.into_inner().unwrap();
        sources.hosts.read_hosts_conf(&b"203.0.113.7 four.test\n"[..]).unwrap();
        let system = System { sources: OnceLock::from(sources) };
        let answer = system.resolve(&name("four.test")).await;
        assert_eq!(answer, Ok(vec!["203.0.113.7".parse::<IpAddr>().unwrap()]));
        assert!(told.try_recv().is_err());
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
