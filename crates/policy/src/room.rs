//! For how much of a grant there is room inside a sandbox: each granted name has sockets there.

use std::collections::BTreeSet;

use crate::{Host, HostName, HostRule};

/// Destinations of one sandbox.
pub const MOST_DESTINATIONS: usize = 256;
/// Ports of names that are granted as they are, each name with those of the stars that stand for it.
pub const MOST_NAMED: usize = 128;
/// Sockets of names that a star stands for: so many names, each with every port behind a star.
pub const MOST_BY_STAR: usize = 192;
/// Names that a star stands for.
pub const MOST_STARRED: usize = 64;
/// With many ports behind stars there are fewer names. With fewer than these it would be no star.
pub const LEAST_STARRED: usize = 4;

/// For how many names beneath stars there is room with so many different ports behind them; none where those are too
/// many.
pub fn starred(ports: usize) -> Option<usize> {
    let most = MOST_BY_STAR.checked_div(ports)?.min(MOST_STARRED);
    (most >= LEAST_STARRED).then_some(most)
}

/// Whether there is room for all of it; if not, a sentence without its subject, and what would be right.
pub(crate) fn check<'a>(rules: impl Iterator<Item = &'a HostRule>) -> Result<(), (String, String)> {
    let rules: Vec<&HostRule> = rules.collect();
    let all = rules.len();
    if all > MOST_DESTINATIONS {
        return Err((
            format!("has {all} destinations, and a sandbox has room for {MOST_DESTINATIONS}"),
            "name fewer".to_owned(),
        ));
    }
    let names: BTreeSet<&HostName> = rules.iter().filter_map(|rule| name(rule)).collect();
    let ports = |name: &HostName| {
        let host = Host::Name(name.clone());
        let naming = rules.iter().filter(|rule| rule.names_host(&host));
        naming.map(|rule| rule.port()).collect::<BTreeSet<u16>>().len()
    };
    let named: usize = names.into_iter().map(ports).sum();
    if named > MOST_NAMED {
        return Err((
            format!("has {named} ports of names, and a sandbox has room for {MOST_NAMED}"),
            "name fewer, or one star for those of a zone".to_owned(),
        ));
    }
    let stars: BTreeSet<u16> = rules.iter().filter(|r| r.parent().is_some()).map(|r| r.port()).collect();
    if !stars.is_empty() && starred(stars.len()).is_none() {
        let most = MOST_BY_STAR / LEAST_STARRED;
        return Err((
            format!("has {} different ports behind stars, and a sandbox has room for {most}", stars.len()),
            "name fewer".to_owned(),
        ));
    }
    Ok(())
}

fn name(rule: &HostRule) -> Option<&HostName> {
    match rule.host()? {
        Host::Name(name) => Some(name),
        Host::V4(_) | Host::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(rules: impl IntoIterator<Item = String>) -> Option<String> {
        let rules: Vec<HostRule> = rules.into_iter().map(|text| HostRule::parse(&text).unwrap()).collect();
        check(rules.iter()).err().map(|(message, _)| message)
    }

    #[test]
    fn each_bound_is_met_and_not_passed() {
        let names = |n: u32| (0..n).map(|n| format!("h{n}.example.org:443"));
        assert_eq!(told(names(128)), None);
        assert_eq!(told(names(129)).unwrap(), "has 129 ports of names, and a sandbox has room for 128");
        let ports = |n: u16| (1..=n).map(|port| format!("*.example.org:{port}"));
        assert_eq!(told(ports(48)), None);
        assert_eq!(
            told(ports(49)).unwrap(),
            "has 49 different ports behind stars, and a sandbox has room for 48"
        );
        // An address is asked for at the proxy, and has no socket of its own.
        let addresses = |n: u32| (0..n).map(|n| format!("192.0.2.{}:{}", n % 200, 1 + n / 200));
        assert_eq!(told(addresses(256)), None);
        assert_eq!(told(addresses(257)).unwrap(), "has 257 destinations, and a sandbox has room for 256");
    }

    #[test]
    fn a_name_takes_the_ports_of_the_stars_that_stand_for_it() {
        let names = (0..64).map(|n| format!("h{n}.example.org:443"));
        let with = |star: &str| told(names.clone().chain([star.to_owned(), "*.example.org:80".to_owned()]));
        assert_eq!(with("*.example.org:443"), None);
        assert_eq!(
            with("*.example.org:22").unwrap(),
            "has 192 ports of names, and a sandbox has room for 128"
        );
    }

    #[test]
    fn with_more_ports_behind_stars_there_are_fewer_names() {
        assert_eq!([1, 3, 4, 48, 49, 0].map(starred), [Some(64), Some(64), Some(48), Some(4), None, None]);
    }
}
