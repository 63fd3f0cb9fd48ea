//! Names to addresses: one question, one answer, no shopping for a better one.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::OnceLock;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, ResolveHosts};
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
            let mut builder = TokioResolver::builder_tokio().map_err(|e| e.to_string())?;
            let options = builder.options_mut();
            options.attempts = 1;
            options.cache_size = 0;
            options.num_concurrent_reqs = 1;
            options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
            options.use_hosts_file = ResolveHosts::Always;
            builder.build().map_err(|e| e.to_string())
        });
        made.as_ref().map_err(|why| Unresolved { why: policy::shown(why) })
    }
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
