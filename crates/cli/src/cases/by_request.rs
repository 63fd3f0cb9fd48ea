//! Rows that ask for a destination: the way out itself decides, and nobody is connected to.

use std::net::IpAddr;

use policy::HostRule;
use runs::{Request, rehearse};

use super::format::Outcome;
use super::seen::{Reached, Seen};
use super::verdict::Trouble;
use super::world::World;

/// Asks, and says what came of it.
pub(super) fn asked(world: &World<'_>, request: &Request, answers: &[Vec<IpAddr>]) -> Result<Seen, Trouble> {
    let rule = |text: &String| {
        HostRule::parse(text).map_err(|why| Trouble::Fault(format!("`egress.allow`: `{text}` {why}")))
    };
    let rules: Vec<HostRule> = world.policy.egress.allow.iter().map(rule).collect::<Result<_, _>>()?;
    let filled = |text: &String| world.fill(text, &world.source());
    let request = match request {
        Request::HttpProxy { method, url } => Request::HttpProxy { method: method.clone(), url: filled(url) },
        Request::Connect { host, port } => Request::Connect { host: filled(host), port: *port },
        Request::Socks5 { host, port } => Request::Socks5 { host: filled(host), port: *port },
    };
    let came = rehearse(&rules, &request, answers.to_vec())?;
    let outcome = if came.connected_to.is_some() { Outcome::Ok } else { Outcome::Denied };
    let reached = Reached { connected_to: came.connected_to, resolver_queries: came.resolver_queries };
    let texts = vec![String::from_utf8_lossy(&came.told).into_owned()];
    Ok(Seen { outcome: Some(outcome), reached: Some(reached), texts, ..Seen::default() })
}
