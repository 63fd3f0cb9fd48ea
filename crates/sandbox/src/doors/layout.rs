//! Which sockets a grant makes inside, and in which order they are made, passed and taken.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use policy::room;

use super::{Doors, PROXY_PORT, is_name};

/// Where everything is.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) doors: Doors,
    /// Granted names, each with its address.
    pub(crate) hosts: Vec<(String, Ipv4Addr)>,
    /// Addresses for names that a star stands for.
    pub(crate) pool: Vec<Ipv4Addr>,
    pub(crate) sockets: Vec<Socket>,
}

/// One socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    pub(crate) role: Role,
    pub(crate) at: SocketAddrV4,
}

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Questions to the resolver.
    Datagrams,
    /// The same, by streams.
    Questions,
    /// The proxy.
    Proxy,
    /// A port of a name.
    Named,
}

impl Layout {
    /// Lays a grant out; none where nothing is granted, a sentence where it is too large.
    pub(crate) fn of(doors: &Doors) -> Result<Option<Layout>, String> {
        if doors.is_empty() {
            return Ok(None);
        }
        // Told in `policy` before it comes here.
        let (most, all) = (room::MOST_DESTINATIONS, doors.names.len());
        if all > most {
            return Err(format!("{all} destinations are more than the {most} it has room for"));
        }
        let resolver = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 53);
        let mut sockets = vec![
            Socket { role: Role::Datagrams, at: resolver },
            Socket { role: Role::Questions, at: resolver },
            Socket { role: Role::Proxy, at: SocketAddrV4::new(Ipv4Addr::LOCALHOST, PROXY_PORT) },
        ];
        let ours = sockets.len();
        let (mut names, mut by_star) = (BTreeSet::new(), BTreeSet::new());
        for name in doors.names.iter().filter(|name| is_resolved(&name.host)) {
            match name.star {
                true => drop(by_star.insert(name.port)),
                false => drop(names.insert(name.host.clone())),
            }
        }
        let mut hosts = Vec::new();
        for (n, host) in (1..).zip(names) {
            let address = nth(64, n);
            let ports: BTreeSet<u16> = doors.names.iter().map(|name| name.port).collect();
            for port in ports.into_iter().filter(|port| doors.grant(&host, *port)) {
                sockets.push(Socket { role: Role::Named, at: SocketAddrV4::new(address, port) });
            }
            hosts.push((host, address));
        }
        let (most, named) = (room::MOST_NAMED, sockets.len() - ours);
        if named > most {
            return Err(format!("{named} ports of names are more than the {most} it has room for"));
        }
        let most = match by_star.len() {
            0 => 0,
            ports => room::starred(ports)
                .ok_or_else(|| format!("{ports} ports behind stars are more than it has room for"))?,
        };
        let pool: Vec<Ipv4Addr> = (1..).take(most).map(|n| nth(65, n)).collect();
        for address in &pool {
            for port in &by_star {
                sockets.push(Socket { role: Role::Named, at: SocketAddrV4::new(*address, *port) });
            }
        }
        Ok(Some(Layout { doors: doors.clone(), hosts, pool, sockets }))
    }
}

/// Whether a resolver is asked for it: addresses are not, nor what is the guest's own.
fn is_resolved(host: &str) -> bool {
    is_name(host) && host.parse::<Ipv4Addr>().is_err() && host != "localhost"
}

/// Loopback addresses that nothing else has a use for.
fn nth(net: u8, n: u16) -> Ipv4Addr {
    let [high, low] = n.to_be_bytes();
    Ipv4Addr::new(127, net, high, low)
}

#[cfg(test)]
mod tests {
    use super::super::Name;
    use super::*;

    fn name(host: &str, star: bool, port: u16) -> Name {
        Name { host: host.to_owned(), star, port }
    }

    #[test]
    fn each_name_has_an_address_of_its_own_and_listens_on_granted_ports_only() {
        let names = vec![
            name("a.org", false, 443),
            name("a.org", false, 80),
            name("b.org", false, 443),
            name("c.org", true, 22),
        ];
        let layout = Layout::of(&Doors { names }).unwrap().unwrap();
        let at: Vec<String> = layout
            .sockets
            .iter()
            .filter(|s| s.role == Role::Named)
            .take(4)
            .map(|s| s.at.to_string())
            .collect();
        assert_eq!(at, ["127.64.0.1:80", "127.64.0.1:443", "127.64.0.2:443", "127.65.0.1:22"]);
        assert_eq!((layout.pool.len(), layout.sockets.len()), (64, 3 + 3 + 64));
    }

    /// A star that stands for a granted name as well adds its ports to that name's.
    #[test]
    fn a_name_has_the_ports_of_the_stars_that_stand_for_it() {
        let names = vec![name("a.b.org", false, 443), name("b.org", true, 80)];
        let layout = Layout::of(&Doors { names }).unwrap().unwrap();
        let of_first = |s: &&Socket| *s.at.ip() == layout.hosts[0].1;
        let ports: Vec<u16> = layout.sockets.iter().filter(of_first).map(|s| s.at.port()).collect();
        assert_eq!(ports, [80, 443]);
    }

    #[test]
    fn addresses_and_localhost_have_no_name_inside() {
        let names =
            vec![name("192.0.2.7", false, 80), name("[2001:db8::1]", false, 80), name("localhost", false, 1)];
        let layout = Layout::of(&Doors { names }).unwrap().unwrap();
        assert_eq!(layout.sockets.len(), 3);
    }

    #[test]
    fn a_grant_is_bounded_in_sockets() {
        assert!(Layout::of(&Doors::default()).unwrap().is_none());
        let many = (0..129).map(|n| name(&format!("h{n}.org"), false, 443)).collect();
        assert!(Layout::of(&Doors { names: many }).is_err());
        let stars = |ports: u16| Doors { names: (1..=ports).map(|port| name("b.org", true, port)).collect() };
        assert_eq!(Layout::of(&stars(6)).unwrap().unwrap().pool.len(), 32);
        assert!(Layout::of(&stars(100)).is_err());
    }
}
