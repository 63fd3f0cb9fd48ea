//! What an address is, and whether a guest's bytes may go there. No I/O: who asks brings the host's own addresses.
//!
//! A name may only lead to public addresses. An address that the operator wrote as such may also be a private one; a
//! loopback, link-local, metadata, multicast or unspecified address, and one of the host itself, is never reached.
//!
//! The documentation networks (192.0.2.0/24, 198.51.100.0/24, 203.0.113.0/24, 2001:db8::/32, 3fff::/20) count as public:
//! nobody routes them, so they lead nowhere in the wild, and test networks that stand for the public one use them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// Anybody's, and nobody's around here.
    Public,
    /// 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, the old site-local fec0::/10.
    Private,
    /// 100.64.0.0/10, between a provider and its customers; overlay networks use it too.
    Carrier,
    /// fc00::/7.
    UniqueLocal,
    /// 198.18.0.0/15 and 2001:2::/48, for measurements; proxies of one machine use it too.
    Benchmark,
    /// 127.0.0.0/8, ::1.
    Loopback,
    /// 169.254.0.0/16, fe80::/10.
    LinkLocal,
    /// Where a cloud hands out a machine's credentials.
    Metadata,
    /// 224.0.0.0/4, ff00::/8.
    Multicast,
    /// 255.255.255.255.
    Broadcast,
    /// 0.0.0.0/8, ::.
    Unspecified,
    /// Given to nobody, or to a protocol's own ends.
    Reserved,
    /// An address of this host.
    Own,
}

impl AddressKind {
    /// What `address` is, to a host with these addresses of its `own`. An IPv4 address in IPv6 clothes is what it is
    /// without them.
    pub fn of(address: IpAddr, own: &[IpAddr]) -> AddressKind {
        let kind = match address {
            IpAddr::V4(address) => v4(address),
            IpAddr::V6(address) => v6(address),
        };
        let bare = |address: &IpAddr| address.to_canonical();
        let inside = match address {
            IpAddr::V4(_) => [None; 2],
            IpAddr::V6(address) => carried(address),
        };
        let mut is = inside.into_iter().flatten().map(IpAddr::V4).chain([bare(&address)]);
        if kind != AddressKind::Loopback && is.any(|address| own.iter().any(|own| bare(own) == address)) {
            return AddressKind::Own;
        }
        kind
    }

    /// Whether a granted name may lead there.
    pub fn is_public(self) -> bool {
        self == AddressKind::Public
    }

    /// Whether the operator may open it by writing the address itself.
    pub fn may_be_written(self) -> bool {
        match self {
            AddressKind::Public
            | AddressKind::Private
            | AddressKind::Carrier
            | AddressKind::UniqueLocal
            | AddressKind::Benchmark => true,
            AddressKind::Loopback
            | AddressKind::LinkLocal
            | AddressKind::Metadata
            | AddressKind::Multicast
            | AddressKind::Broadcast
            | AddressKind::Unspecified
            | AddressKind::Reserved
            | AddressKind::Own => false,
        }
    }

    /// As in "is a private address".
    pub fn as_str(self) -> &'static str {
        match self {
            AddressKind::Public => "a public address",
            AddressKind::Private => "a private address",
            AddressKind::Carrier => "an address of a provider's own network",
            AddressKind::UniqueLocal => "a unique local address",
            AddressKind::Benchmark => "an address for measurements",
            AddressKind::Loopback => "a loopback address",
            AddressKind::LinkLocal => "a link-local address",
            AddressKind::Metadata => "the address of a metadata service",
            AddressKind::Multicast => "a multicast address",
            AddressKind::Broadcast => "the broadcast address",
            AddressKind::Unspecified => "an unspecified address",
            AddressKind::Reserved => "a reserved address",
            AddressKind::Own => "an address of the host itself",
        }
    }
}

/// Whether an IPv6 address is only another way to write, or to reach, an IPv4 address.
pub(crate) fn carries_v4(address: Ipv6Addr) -> bool {
    !address.is_loopback()
        && !address.is_unspecified()
        && carried(address)[0].is_some()
        && !is_isatap(address)
}

fn v4(address: Ipv4Addr) -> AddressKind {
    use AddressKind::{
        Benchmark, Broadcast, Carrier, LinkLocal, Loopback, Metadata, Multicast, Private, Public, Reserved,
        Unspecified,
    };
    match address.octets() {
        // Alibaba's, Azure's and Oracle's; the usual one is link-local.
        [100, 100, 100, 200] | [168, 63, 129, 16] | [192, 0, 0, 192] | [169, 254, 169, 254] => Metadata,
        [0, ..] => Unspecified,
        [127, ..] => Loopback,
        [169, 254, ..] => LinkLocal,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Private,
        [100, 64..=127, ..] => Carrier,
        [198, 18 | 19, ..] => Benchmark,
        [224..=239, ..] => Multicast,
        [255, 255, 255, 255] => Broadcast,
        // Protocols' own; the old relays of 6to4; never given out.
        [192, 0, 0, _] | [192, 88, 99, _] | [240..=255, ..] => Reserved,
        _ => Public,
    }
}

fn v6(address: Ipv6Addr) -> AddressKind {
    use AddressKind::{
        Benchmark, LinkLocal, Loopback, Metadata, Multicast, Private, Public, Reserved, UniqueLocal,
        Unspecified,
    };
    if address.is_loopback() {
        return Loopback;
    }
    if address.is_unspecified() {
        return Unspecified;
    }
    // What is inside decides, unless the clothes are themselves of nobody.
    if let Some(worse) = carried(address).into_iter().flatten().map(v4).find(|kind| !kind.is_public()) {
        return worse;
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Public,
        // Amazon's and Google's.
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => Metadata,
        [0xfe80..=0xfebf, ..] => LinkLocal,
        [0xfec0..=0xfeff, ..] => Private,
        [0xfc00..=0xfdff, ..] => UniqueLocal,
        [0xff00..=0xffff, ..] => Multicast,
        [0x2001, 2, 0, ..] => Benchmark,
        [0x2001, 0, ..] => Public,
        [0x2001, 1..=0x1ff, ..] => Reserved,
        [0x2000..=0x3fff, ..] => Public,
        _ => Reserved,
    }
}

/// The IPv4 addresses that traffic to `address` ends at or passes.
fn carried(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let at = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // Mapped, translated, compatible, and NAT64.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => [at(high, low), None],
        // 6to4.
        [0x2002, high, low, ..] => [at(high, low), None],
        // Teredo: its server, and its client with every bit turned round.
        [0x2001, 0, high, low, _, _, client_high, client_low] => {
            [at(high, low), at(!client_high, !client_low)]
        }
        [.., high, low] if is_isatap(address) => [at(high, low), None],
        _ => [None; 2],
    }
}

fn is_isatap(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [.., 0 | 0x200, 0x5efe, _, _])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> AddressKind {
        AddressKind::of(text.parse().unwrap_or_else(|_| panic!("{text}")), &[])
    }

    #[test]
    fn r47_no_internal_address_is_public_in_either_family() {
        use AddressKind::*;
        for (is, addresses) in [
            (Loopback, &["127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1", "::127.0.0.1"][..]),
            (Unspecified, &["0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0"]),
            (
                Private,
                &["10.0.0.5", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fec0::1", "64:ff9b::a00:1"],
            ),
            (Carrier, &["100.64.0.1", "100.127.255.255", "::ffff:100.64.0.1"]),
            (UniqueLocal, &["fc00::1", "fd12:3456::1"]),
            (LinkLocal, &["169.254.0.1", "169.254.170.2", "fe80::1", "febf::1"]),
            (Metadata, &["169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192"]),
            (Metadata, &["fd00:ec2::254", "fd20:ce::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"]),
            (Metadata, &["2002:a9fe:a9fe::", "2001:0:a9fe:a9fe::", "2001:0:4136:e378:8000:63bf:5601:5601"]),
            (Multicast, &["224.0.0.1", "239.255.255.255", "ff02::1"]),
            (Broadcast, &["255.255.255.255"]),
            (Benchmark, &["198.18.0.1", "198.19.255.255", "2001:2::1"]),
            (Reserved, &["192.0.0.1", "192.88.99.1", "240.0.0.1", "100::1", "64:ff9b:1::1", "2001:20::1"]),
            (Reserved, &["::5.6.7.8", "5f00::1", "4000::1", "::ffff:0:8.8.8.8"]),
            (
                Private,
                &["2001:4860::5efe:a00:1", "2001:4860::200:5efe:c0a8:1", "2002:a00:1::1", "::10.0.0.1"],
            ),
            (
                Public,
                &["8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0"],
            ),
            (Public, &["2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::808:808", "2a00:1450::1"]),
            (Public, &["192.0.2.7", "198.51.100.7", "203.0.113.7", "2001:db8::1", "3fff::1"]),
        ] {
            for address in addresses {
                assert_eq!(kind(address), is, "{address}");
            }
        }
    }

    #[test]
    fn r47_an_address_of_the_host_is_known_in_any_clothes() {
        let own: Vec<IpAddr> = ["203.0.113.9", "2001:db8::9"].map(|a| a.parse().unwrap()).to_vec();
        for address in
            ["203.0.113.9", "2001:db8::9", "::ffff:203.0.113.9", "64:ff9b::cb00:7109", "2002:cb00:7109::1"]
        {
            assert_eq!(AddressKind::of(address.parse().unwrap(), &own), AddressKind::Own, "{address}");
        }
        assert_eq!(AddressKind::of("203.0.113.8".parse().unwrap(), &own), AddressKind::Public);
    }

    #[test]
    fn r47_never_reached_is_never_written_either() {
        for address in
            ["127.0.0.1", "::1", "169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1", "fd00:ec2::254"]
        {
            assert!(!kind(address).may_be_written(), "{address}");
        }
        for address in ["10.0.0.1", "192.168.0.1", "fd12::1", "100.64.0.1", "8.8.8.8"] {
            assert!(kind(address).may_be_written(), "{address}");
        }
    }
}
