//! The one strict reading of a host, for what a rule names and for what a request names alike.
//!
//! Whoever judges and whoever connects go by the value that comes out of here, never by the text that went in,
//! so they cannot read one text in two ways. What could mean two things to two readers (odd spellings of an
//! address, an IPv4 address in IPv6 clothes, encoded or non-ASCII names, a zone, a user name) is refused.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::address;

/// A host in its one spelling.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name.
    Name(HostName),
    /// An address with four decimal numbers.
    V4(Ipv4Addr),
    /// An address in brackets.
    V6(Ipv6Addr),
}

/// A name that no resolver takes for an address: lower case, ASCII, without the dot at its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port, never 0.
    pub port: u16,
}

impl Host {
    /// Reads a name, an IPv4 address, or an IPv6 address in brackets.
    ///
    /// # Errors
    /// A sentence, without its subject, that says what is wrong and what would be right.
    pub fn parse(text: &str) -> Result<Host, String> {
        plain(text)?;
        if text.starts_with('[') {
            return v6(text).map(Host::V6);
        }
        if text.contains(':') {
            return Err("has a colon; write an IPv6 address in brackets, as in `[2001:db8::1]`".to_owned());
        }
        let lower = text.to_ascii_lowercase();
        let lower = lower.strip_suffix('.').unwrap_or(&lower);
        if is_numeric(lower) {
            return lower.parse().map(Host::V4).map_err(|_| ODD_ADDRESS.to_owned());
        }
        HostName::new(lower).map(Host::Name)
    }

    /// The host that an address is, as [`Host::parse`] reads its text.
    ///
    /// # Errors
    /// As there.
    pub fn of(address: IpAddr) -> Result<Host, String> {
        match address {
            IpAddr::V4(address) => Ok(Host::V4(address)),
            IpAddr::V6(address) => Host::parse(&format!("[{address}]")),
        }
    }

    /// The address, if it is one.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Host::Name(_) => None,
            Host::V4(address) => Some(IpAddr::V4(*address)),
            Host::V6(address) => Some(IpAddr::V6(*address)),
        }
    }
}

impl HostName {
    /// Checks a name in lower case without the dot at its end.
    pub(crate) fn new(name: &str) -> Result<HostName, String> {
        if name.is_empty() || name.len() > 253 || !name.split('.').all(is_label) {
            return Err("is no valid host name".to_owned());
        }
        if is_numeric(name) {
            return Err(ODD_ADDRESS.to_owned());
        }
        Ok(HostName(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Target {
    /// Reads `host:port`; without a port it is `default`, and an error where there is none.
    ///
    /// # Errors
    /// As [`Host::parse`].
    pub fn parse(text: &str, default: Option<u16>) -> Result<Target, String> {
        plain(text)?;
        let (host, port) = split_port(text, default)?;
        Ok(Target { host: Host::parse(host)?, port })
    }
}

const ODD_ADDRESS: &str = "is an oddly written address; write four decimal numbers, as in `192.0.2.7`";

/// What neither a host nor a rule may hold.
pub(crate) fn plain(text: &str) -> Result<(), String> {
    let wrong = if text.contains("://") || text.contains(['/', '?', '#', '\\']) {
        "is a URL; write only `host:port`, as in `example.com:443`"
    } else if text.contains('@') {
        "holds a user name; write only `host:port`"
    } else if !text.is_ascii() {
        "has a name outside ASCII; write its `xn--` form"
    } else if text.contains('%') || !text.bytes().all(|b| b.is_ascii_graphic()) {
        "has an encoded, blank or control character; write the plain name"
    } else {
        return Ok(());
    };
    Err(wrong.to_owned())
}

/// Host and port, neither of them read further than that.
pub(crate) fn split_port(text: &str, default: Option<u16>) -> Result<(&str, u16), String> {
    let no_port = || "has no port; write `host:port`, as in `example.com:443`".to_owned();
    let after_host = if text.starts_with('[') { text.find(']').ok_or_else(no_port)? + 1 } else { 0 };
    let rest = text.get(after_host..).unwrap_or("");
    let Some(colon) = rest.find(':').map(|at| at + after_host) else {
        return default.map(|port| (text, port)).ok_or_else(no_port);
    };
    let (host, port) = (&text[..colon], &text[colon + 1..]);
    if !text.starts_with('[') && port.contains(':') {
        return Err("has more than one colon; write an IPv6 address in brackets, as in `[2001:db8::1]:443`"
            .to_owned());
    }
    if host.is_empty() {
        return Err("has no host before the port".to_owned());
    }
    parse_port(port).map(|port| (host, port))
}

/// A port in its one spelling: digits, no sign, no leading zero, 1 to 65535.
pub(crate) fn parse_port(text: &str) -> Result<u16, String> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    match text.parse::<u16>() {
        Ok(port) if plain => Ok(port),
        _ => Err("has no port from 1 to 65535".to_owned()),
    }
}

fn v6(bracketed: &str) -> Result<Ipv6Addr, String> {
    let inner = bracketed.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let address = inner.and_then(|t| t.parse::<Ipv6Addr>().ok());
    let address = address.ok_or_else(|| "is not an IPv6 address in brackets".to_owned())?;
    if address::carries_v4(address) {
        return Err("is an IPv4 address in IPv6 clothes; write the IPv4 address".to_owned());
    }
    Ok(address)
}

/// A name that ends in a number is an address to every resolver, in decimal, octal, hexadecimal or short.
fn is_numeric(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let hex = |digits: &str| digits.bytes().all(|b| b.is_ascii_hexdigit());
    !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()) || last.strip_prefix("0x").is_some_and(hex)
}

/// A label of a host name: letters, digits, `-` and `_`, no hyphen at an end, at most 63.
pub(crate) fn is_label(label: &str) -> bool {
    !label.is_empty()
        && label.len() <= 63
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name.as_str()),
            Host::V4(address) => write!(f, "{address}"),
            Host::V6(address) => write!(f, "[{address}]"),
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_spelling() {
        for (text, canonical) in [
            ("A.Example.COM.", "a.example.com"),
            ("192.0.2.7", "192.0.2.7"),
            ("[2001:DB8:0::1]", "[2001:db8::1]"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("_a.b", "_a.b"),
        ] {
            let host = Host::parse(text).unwrap_or_else(|why| panic!("{text} {why}"));
            assert_eq!(host.to_string(), canonical);
            assert_eq!(Host::parse(canonical), Ok(host));
        }
    }

    /// D-4: what two parsers could read in two ways is read in none.
    #[test]
    fn r47_nothing_that_two_readers_could_read_in_two_ways_is_a_host() {
        for text in [
            "",
            ".",
            "..",
            "a..b",
            "a.b..",
            "2852039166",
            "0xA9FEA9FE",
            "0x",
            "0251.0376.0251.0376",
            "169.254.169.254.1",
            "127.1",
            "127.0.0.01",
            "example.0x7f",
            "[::ffff:169.254.169.254]",
            "[::ffff:a9fe:a9fe]",
            "[::127.0.0.1]",
            "[64:ff9b::a9fe:a9fe]",
            "[2002:a9fe:a9fe::]",
            "[2001:0:53aa:64c:0:0:80f9:c1ba]",
            "[fe80::1%eth0]",
            "[fe80::1%25eth0]",
            "[::1",
            "::1",
            "[]",
            "[127.0.0.1]",
            "a.example\0.evil.test",
            "a.example\r\nHost: b",
            "a.example%00",
            "a%2eexample",
            "u@a.example",
            "a.example:80",
            "a.example/",
            "a.example\\.evil.test",
            "b\u{fc}cher.example",
            "\u{ff41}.example",
            "a\u{3002}example",
            "-a.example",
            "a-.example",
            "*.example.com",
        ] {
            assert!(Host::parse(text).is_err(), "{text:?} is {:?}", Host::parse(text));
        }
        assert!(Host::parse(&format!("{}.example", "a".repeat(64))).is_err());
        assert!(Host::parse(&"a.".repeat(128)).is_err());
    }

    #[test]
    fn a_target_takes_its_port_from_the_text_or_from_the_default() {
        assert_eq!(Target::parse("a.example", Some(80)).unwrap().port, 80);
        assert_eq!(Target::parse("[2001:db8::1]", Some(80)).unwrap().to_string(), "[2001:db8::1]:80");
        assert_eq!(Target::parse("A.example.:8080", Some(80)).unwrap().to_string(), "a.example:8080");
        for text in ["a.example", "[2001:db8::1]"] {
            assert!(Target::parse(text, None).is_err());
        }
        for text in
            ["a.example:", "a.example:0", "a.example:00080", "a.example:+80", ":80", "[2001:db8::1]80"]
        {
            assert!(Target::parse(text, Some(80)).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_is_the_host_that_its_text_is() {
        assert_eq!(Host::of("192.0.2.7".parse().unwrap()).unwrap().to_string(), "192.0.2.7");
        assert_eq!(Host::of("2001:db8::1".parse().unwrap()).unwrap().to_string(), "[2001:db8::1]");
        assert!(Host::of("::ffff:127.0.0.1".parse().unwrap()).is_err());
    }
}
