//! Network destinations that may be granted.
//!
//! A rule has one spelling. What could mean two things to two readers (odd spellings of an address, encoded or
//! non-ASCII names, a URL) is refused here, so that nobody further on has to agree about it.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Serialize;

/// `host:port`, or `*.label.tld:port` with exactly one leading star.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct HostRule {
    host: String,
    port: u16,
}

impl HostRule {
    /// Parses a rule.
    ///
    /// # Errors
    /// A sentence that says what is wrong and what would be right.
    pub fn parse(text: &str) -> Result<HostRule, String> {
        if text.contains("://") || text.contains(['/', '?', '#']) {
            return Err("is a URL; write only `host:port`, as in `example.com:443`".to_owned());
        }
        if text.contains('@') {
            return Err("holds a user name; write only `host:port`".to_owned());
        }
        if !text.is_ascii() {
            return Err("has a name outside ASCII; write its `xn--` form".to_owned());
        }
        if text.contains('%') || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("has an encoded, blank or control character; write the plain name".to_owned());
        }
        let (host, port) = split_port(text)?;
        let host = if host.starts_with('[') { ipv6(host)? } else { name(host)? };
        Ok(HostRule { host, port })
    }

    /// Whether everything that `other` names is named by this rule too. A star stands for exactly one label.
    pub(crate) fn covers(&self, other: &HostRule) -> bool {
        if self.port != other.port {
            return false;
        }
        match self.host.strip_prefix("*.") {
            Some(parent) if self.host != other.host => {
                other.host.split_once('.').is_some_and(|(first, rest)| first != "*" && rest == parent)
            }
            Some(_) | None => self.host == other.host,
        }
    }
}

impl std::fmt::Display for HostRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

fn split_port(text: &str) -> Result<(&str, u16), String> {
    let no_port = || "has no port; write `host:port`, as in `example.com:443`".to_owned();
    let after_host = if text.starts_with('[') { text.find(']').ok_or_else(no_port)? } else { 0 };
    let colon = text.get(after_host..).and_then(|t| t.find(':')).ok_or_else(no_port)? + after_host;
    let (host, port) = (&text[..colon], &text[colon + 1..]);
    if !text.starts_with('[') && port.contains(':') {
        return Err("has more than one colon; write an IPv6 address in brackets, as in `[2001:db8::1]:443`"
            .to_owned());
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

fn ipv6(bracketed: &str) -> Result<String, String> {
    let inner = bracketed.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let address = inner.and_then(|t| t.parse::<Ipv6Addr>().ok());
    let address = address.ok_or_else(|| "is not an IPv6 address in brackets".to_owned())?;
    if address.to_ipv4_mapped().is_some() {
        return Err("is an IPv4 address in IPv6 clothes; write the IPv4 address".to_owned());
    }
    Ok(format!("[{address}]"))
}

fn name(written: &str) -> Result<String, String> {
    let lower = written.to_ascii_lowercase();
    let lower = lower.strip_suffix('.').unwrap_or(&lower);
    let (star, rest) = match lower.strip_prefix("*.") {
        Some(rest) => (true, rest),
        None => (false, lower),
    };
    if lower == "*" || rest.contains('*') {
        return Err("has a star that is not one whole leading label; name the host".to_owned());
    }
    if rest.is_empty() || rest.len() > 253 || !rest.split('.').all(is_label) {
        return Err("has no valid host name before the port".to_owned());
    }
    let last = rest.rsplit('.').next().unwrap_or(rest);
    // A name that ends in a number is an address to every resolver, in decimal, octal, hexadecimal or short.
    let numeric = last.bytes().all(|b| b.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    if numeric && (star || rest.parse::<Ipv4Addr>().is_err()) {
        return Err(
            "is an oddly written address; write four decimal numbers, as in `192.0.2.7:443`".to_owned()
        );
    }
    if star && !rest.contains('.') {
        return Err("would open a whole top-level domain; put at least two labels after the star".to_owned());
    }
    Ok(lower.to_owned())
}

/// A label of a host name: letters, digits, `-` and `_`, no hyphen at an end, at most 63.
pub(crate) fn is_label(label: &str) -> bool {
    !label.is_empty()
        && label.len() <= 63
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> HostRule {
        HostRule::parse(text).unwrap_or_else(|why| panic!("{text} {why}"))
    }

    #[test]
    fn a_rule_has_one_spelling() {
        for (text, canonical) in [
            ("Example.COM:443", "example.com:443"),
            ("example.com.:443", "example.com:443"),
            ("*.Example.com:80", "*.example.com:80"),
            ("192.0.2.7:8080", "192.0.2.7:8080"),
            ("[2001:DB8:0:0::1]:443", "[2001:db8::1]:443"),
            ("xn--bcher-kva.example:443", "xn--bcher-kva.example:443"),
            ("localhost:1", "localhost:1"),
        ] {
            assert_eq!(rule(text).to_string(), canonical);
        }
    }

    #[test]
    fn r49_no_rule_is_broad() {
        for text in
            ["*", "*:443", "*.:443", "*.com:443", "*.*.com:443", "a.*.com:443", "*a.com:443", "**.a.b:1"]
        {
            assert!(HostRule::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn r47_odd_spellings_of_addresses_are_refused() {
        for text in [
            "0177.0.0.1:80",
            "0x7f.0.0.1:80",
            "0x7f000001:80",
            "2130706433:80",
            "127.1:80",
            "127.0.0.01:80",
            "1.2.3.4.5:80",
            "256.1.1.1:80",
            "*.0.0.1:80",
            "[::ffff:127.0.0.1]:80",
            "[fe80::1%eth0]:80",
            "::1:80",
        ] {
            assert!(HostRule::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn anything_but_host_and_port_is_refused() {
        for text in [
            "",
            ":",
            ":443",
            "example.com",
            "example.com:",
            "example.com:0",
            "example.com:65536",
            "example.com:+80",
            "example.com:080",
            "http://example.com:80",
            "example.com:80/x",
            "u@example.com:80",
            "ex%61mple.com:80",
            "b\u{fc}cher.example:80",
            "exa mple.com:80",
            "example.com:80\n",
            "a\0b.example:80",
            "example..com:80",
            "-a.example:80",
            "example.com..:80",
            "[::1]",
            "[::1]x:80",
            "[::1:80",
        ] {
            assert!(HostRule::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_star_covers_exactly_one_label() {
        let star = rule("*.example.com:443");
        assert!(star.covers(&rule("api.example.com:443")) && star.covers(&star));
        for other in ["example.com:443", "a.b.example.com:443", "api.example.com:80", "*.example.org:443"] {
            assert!(!star.covers(&rule(other)), "{other}");
        }
        assert!(!rule("api.example.com:443").covers(&star));
    }
}
