//! The one decision: may these bytes go there, and to which addresses exactly.
//!
//! First the name against what was granted, which asks nobody; then one question to the resolver; then every address
//! of its answer. One unsound address among them refuses all: an answer that mixes them was made to be shopped in.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::{AddressKind, Host, HostName, Target};

use crate::{Granted, Pinned, Resolve};

/// Characters of a host that a sentence repeats.
const SAID: usize = 80;
/// Addresses of one answer that are kept: whoever serves the zone says how many there are.
const MOST_ADDRESSES: usize = 32;

/// Why bytes may not go somewhere: one clean sentence, fit for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// Which check, as a stable code.
    pub rule: &'static str,
    /// What is wrong, and what would be needed.
    pub reason: String,
}

/// A destination that was decided to be open.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) granted: Arc<Granted>,
    pub(crate) target: Target,
    pub(crate) addresses: Vec<Pinned>,
}

/// What the addresses of a refused answer were.
pub(crate) struct Denied {
    pub(crate) refused: Refused,
    pub(crate) granted: Option<Arc<Granted>>,
    pub(crate) addresses: Vec<IpAddr>,
    /// More of them, which are only counted.
    pub(crate) more_addresses: usize,
}

/// Why an answer is not taken, and for which of its addresses.
struct Unfit {
    at: usize,
    refused: Refused,
}

pub(crate) struct Judge {
    granted: Vec<Arc<Granted>>,
    own: Vec<IpAddr>,
    resolver: Arc<dyn Resolve>,
    patience: Duration,
    /// Names beneath stars that were asked for.
    star_names: Mutex<BTreeSet<HostName>>,
    most_star_names: usize,
}

impl Judge {
    pub(crate) fn new(
        granted: Vec<Granted>,
        own: Vec<IpAddr>,
        resolver: Arc<dyn Resolve>,
        patience: Duration,
        most_star_names: usize,
    ) -> Judge {
        let granted = granted.into_iter().map(Arc::new).collect();
        Judge { granted, own, resolver, patience, star_names: Mutex::default(), most_star_names }
    }

    /// Decides. Nothing is asked of anybody for what was not granted.
    pub(crate) async fn decide(&self, asked: &Target) -> Result<Opened, Box<Denied>> {
        let denied = |granted: Option<Arc<Granted>>, addresses: Vec<IpAddr>, refused: Refused| {
            let (addresses, more_addresses) = kept(addresses);
            Box::new(Denied { refused, granted, addresses, more_addresses })
        };
        let granted = self.granted(asked).map_err(|refused| denied(None, Vec::new(), refused))?;
        let mut addresses = match &asked.host {
            Host::Name(name) => {
                let answer = self.resolve(&granted, name).await;
                answer.map_err(|refused| denied(Some(granted.clone()), Vec::new(), refused))?
            }
            Host::V4(address) => vec![IpAddr::V4(*address)],
            Host::V6(address) => vec![IpAddr::V6(*address)],
        };
        match self.addresses(asked, &addresses) {
            Ok(pinned) => Ok(Opened { granted, target: asked.clone(), addresses: pinned }),
            Err(unfit) => {
                // The one that it was refused for is among those that are kept.
                addresses.swap(0, unfit.at);
                Err(denied(Some(granted), addresses, unfit.refused))
            }
        }
    }

    /// The destination that names this: an exact one before a star.
    pub(crate) fn granted(&self, asked: &Target) -> Result<Arc<Granted>, Refused> {
        let naming = self.granted.iter().filter(|granted| granted.destination().rule().names(asked));
        let best = naming.min_by_key(|granted| granted.destination().rule().host().is_none());
        best.cloned().ok_or_else(|| self.not_granted(asked))
    }

    fn not_granted(&self, asked: &Target) -> Refused {
        let rules = || self.granted.iter().map(|granted| granted.destination().rule());
        let mut ports: Vec<u16> =
            rules().filter(|rule| rule.names_host(&asked.host)).map(policy::HostRule::port).collect();
        ports.sort_unstable();
        ports.dedup();
        let would = "it would have to stand in `network.allow`";
        if ports.is_empty() {
            Refused::new("egress-host", format!("`{}` is not granted; {would}", told(asked)))
        } else {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            let reason =
                format!("`{}` is not granted, only port {} there; {would}", told(asked), ports.join(", "));
            Refused::new("egress-port", reason)
        }
    }

    /// Why a name has no address inside, and the star that it is beneath; none where it is granted and has one.
    pub(crate) fn nameless(&self, host: &Host, full: bool) -> Option<(Refused, Option<Arc<Granted>>)> {
        let naming = |granted: &&Arc<Granted>| granted.destination().rule().names_host(host);
        let Some(granted) = self.granted.iter().find(naming) else {
            let host = cut(&host.to_string());
            let reason =
                format!("`{host}` is not granted; it would have to stand in `network.allow`, with its port");
            return Some((Refused::new("egress-host", reason), None));
        };
        full.then(|| (Refused::too_many(&host.to_string()), Some(granted.clone())))
    }

    async fn resolve(&self, granted: &Granted, name: &HostName) -> Result<Vec<IpAddr>, Refused> {
        // One that is granted itself, be it under another port, tells nobody anything: it is no name of the guest's own.
        let named = || self.granted.iter().any(|g| is_named(g, name));
        if granted.destination().rule().host().is_none() && !named() {
            let mut seen = self.star_names.lock().unwrap_or_else(PoisonError::into_inner);
            if !seen.contains(name) && seen.len() >= self.most_star_names {
                return Err(Refused::too_many(name.as_str()));
            }
            seen.insert(name.clone());
        }
        match tokio::time::timeout(self.patience, self.resolver.resolve(name)).await {
            Ok(Ok(answer)) if answer.is_empty() => Err(Refused::unresolved(name, "it has no address")),
            Ok(Ok(mut answer)) => {
                answer.dedup();
                Ok(answer)
            }
            // What the resolver says may be the words of whoever serves the zone.
            Ok(Err(_)) => Err(Refused::unresolved(name, "no resolver gives an answer")),
            Err(_) => Err(Refused::unresolved(name, "no answer in time")),
        }
    }

    /// Every address, or none.
    fn addresses(&self, asked: &Target, answer: &[IpAddr]) -> Result<Vec<Pinned>, Unfit> {
        for (at, address) in answer.iter().enumerate() {
            let kind = AddressKind::of(*address, &self.own);
            let (sound, would) = match asked.host {
                Host::Name(_) if kind.may_be_written() => (
                    kind.is_public(),
                    "where no name may lead; the address itself would have to stand in `network.allow`",
                ),
                Host::Name(_) => (kind.is_public(), "which is never reached"),
                Host::V4(_) | Host::V6(_) => (kind.may_be_written(), "which is never reached"),
            };
            if !sound {
                let reason =
                    format!("`{}` leads to {}, {would}", cut(&asked.host.to_string()), kind.as_str());
                return Err(Unfit { at, refused: Refused::new("egress-address", reason) });
            }
        }
        if answer.len() > MOST_ADDRESSES {
            let host = cut(&asked.host.to_string());
            let reason = format!("`{host}` leads to more than {MOST_ADDRESSES} addresses");
            return Err(Unfit { at: 0, refused: Refused::new("egress-address", reason) });
        }
        // Of both families the one that works nearly everywhere first.
        let (four, six): (Vec<&IpAddr>, Vec<&IpAddr>) = answer.iter().partition(|a| a.is_ipv4());
        let pinned = four.into_iter().chain(six).map(|a| Pinned::judged(SocketAddr::new(*a, asked.port)));
        Ok(pinned.collect())
    }
}

/// Whether a destination is this very name, not beneath a star.
fn is_named(granted: &Granted, name: &HostName) -> bool {
    matches!(granted.destination().rule().host(), Some(Host::Name(own)) if own == name)
}

/// As many addresses as are kept, and the number of the others.
fn kept(mut addresses: Vec<IpAddr>) -> (Vec<IpAddr>, usize) {
    let more = addresses.len().saturating_sub(MOST_ADDRESSES);
    addresses.truncate(MOST_ADDRESSES);
    addresses.shrink_to_fit();
    (addresses, more)
}

/// A host as a sentence may name it: a long one is the guest's text more than a name.
pub(crate) fn cut(host: &str) -> String {
    match host.char_indices().nth(SAID) {
        Some((end, _)) => format!("{}...", &host[..end]),
        None => host.to_owned(),
    }
}

/// The same with its port.
pub(crate) fn told(target: &Target) -> String {
    format!("{}:{}", cut(&target.host.to_string()), target.port)
}

impl Refused {
    pub(crate) fn new(rule: &'static str, reason: String) -> Refused {
        Refused { rule, reason }
    }

    /// What was asked for has no form that could be judged; `why` goes on from it. What is no host is not repeated: it
    /// would be the guest's words in our mouth.
    pub(crate) fn form(why: &str) -> Refused {
        Refused::new("egress-form", format!("the host that was asked for {why}"))
    }

    /// What is carried to a destination cannot go there; `why` goes on from it.
    pub(crate) fn carried(target: &str, why: &str) -> Refused {
        Refused::new("egress-form", format!("the connection to `{}` {why}", cut(target)))
    }

    /// The same, of another check.
    pub(crate) fn under(self, rule: &'static str) -> Refused {
        Refused { rule, ..self }
    }

    fn too_many(host: &str) -> Refused {
        let reason = format!(
            "`{}` is one name too many beneath a star in `network.allow`; it would have to stand there itself",
            cut(host)
        );
        Refused::new("egress-star", reason)
    }

    fn unresolved(name: &HostName, why: &str) -> Refused {
        let name = cut(name.as_str());
        let reason = format!("`{name}` is granted, but could not be resolved: {why}");
        Refused::new("egress-resolve", reason)
    }
}
