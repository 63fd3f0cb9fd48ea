//! The host's own addresses, as the kernel lists them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Every address of this host (of the network namespace that the executor is in).
///
/// # Errors
/// Where the kernel's IPv4 list cannot be read: then nobody could tell what is the host itself.
pub fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let four = fs::read_to_string("/proc/net/fib_trie")?;
    // A kernel without IPv6 has no such file.
    let six = match fs::read_to_string("/proc/net/if_inet6") {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(e),
    };
    let four = local_v4(&four).into_iter().map(IpAddr::V4);
    Ok(four.chain(local_v6(&six).into_iter().map(IpAddr::V6)).collect())
}

/// In the trie a leaf is a line with an address, and the lines beneath it say what the address is.
fn local_v4(trie: &str) -> BTreeSet<Ipv4Addr> {
    let mut found = BTreeSet::new();
    let mut leaf: Option<Ipv4Addr> = None;
    for line in trie.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL") {
            found.extend(leaf);
        }
    }
    found
}

/// Each line begins with an address of 32 hexadecimal digits.
fn local_v6(list: &str) -> BTreeSet<Ipv6Addr> {
    let address = |line: &str| u128::from_str_radix(line.split_whitespace().next()?, 16).ok();
    list.lines().filter_map(address).map(Ipv6Addr::from_bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_this_machine_are_found() {
        assert!(own_addresses().unwrap().contains(&"127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn leaves_that_are_local_are_own_and_others_are_not() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 192.0.2.0\n        /24 link UNICAST\n     |-- 192.0.2.9\n\
                    \x20       /32 host LOCAL\n     |-- 192.0.2.255\n        /32 link BROADCAST\n";
        assert_eq!(
            local_v4(trie).into_iter().collect::<Vec<_>>(),
            ["192.0.2.9".parse::<Ipv4Addr>().unwrap()]
        );
        let list = "20010db8000000000000000000000009 02 40 00 80     eth0\n\nnothing\n";
        assert_eq!(
            local_v6(list).into_iter().collect::<Vec<_>>(),
            ["2001:db8::9".parse::<Ipv6Addr>().unwrap()]
        );
    }
}
