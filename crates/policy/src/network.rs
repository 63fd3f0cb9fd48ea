//! Network destinations that may be granted.
//!
//! A rule has one spelling, read by [`Host`] as requests are. What is broad, and what no rule could ever open, is
//! refused here, so that a file holds no rule that is more, or less, than it says.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::host::{self, HostName};
use crate::{AddressKind, EnvName, Host, Target};

/// `host:port`, or `*.label.tld:port` with exactly one leading star.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct HostRule {
    host: Pattern,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Pattern {
    Exact(Host),
    /// Any one label before this name.
    Star(HostName),
}

/// A rule, and what the executor adds to requests that go there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Destination {
    #[serde(flatten)]
    rule: HostRule,
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
}

/// A header that the executor adds, over TLS of its own. The guest never has the value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Header {
    /// Its name.
    pub name: HeaderName,
    /// The variable that holds its value.
    pub secret_env: EnvName,
}

/// The name of a header that may be added: lower case, and none that says where a request goes or ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct HeaderName(String);

/// Headers that decide where a message goes, where it ends, or who speaks.
const FRAMING: [&str; 14] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "range",
    "accept-encoding",
    "content-encoding",
];

impl HostRule {
    /// Parses a rule.
    ///
    /// # Errors
    /// A sentence that says what is wrong and what would be right.
    pub fn parse(text: &str) -> Result<HostRule, String> {
        host::plain(text)?;
        let (written, port) = host::split_port(text, None)?;
        let host = if written.contains('*') {
            Pattern::Star(star(written)?)
        } else {
            Pattern::Exact(reachable(Host::parse(written)?)?)
        };
        Ok(HostRule { host, port })
    }

    /// Whether the rule names this. A star stands for exactly one label.
    pub fn names(&self, target: &Target) -> bool {
        self.port == target.port && self.host.covers(&Pattern::Exact(target.host.clone()))
    }

    /// Whether the rule names this host, be it under another port.
    pub fn names_host(&self, host: &Host) -> bool {
        self.host.covers(&Pattern::Exact(host.clone()))
    }

    /// The one host it names; none for a star.
    pub fn host(&self) -> Option<&Host> {
        match &self.host {
            Pattern::Exact(host) => Some(host),
            Pattern::Star(_) => None,
        }
    }

    /// For a star the name whose first labels it stands for.
    pub fn parent(&self) -> Option<&HostName> {
        match &self.host {
            Pattern::Exact(_) => None,
            Pattern::Star(parent) => Some(parent),
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether everything that `other` names is named by this rule too.
    pub fn covers(&self, other: &HostRule) -> bool {
        self.port == other.port && self.host.covers(&other.host)
    }
}

impl Pattern {
    fn covers(&self, other: &Pattern) -> bool {
        match (self, other) {
            (Pattern::Exact(mine), Pattern::Exact(theirs)) => mine == theirs,
            (Pattern::Star(mine), Pattern::Star(theirs)) => mine == theirs,
            (Pattern::Star(parent), Pattern::Exact(Host::Name(name))) => {
                name.as_str().split_once('.').is_some_and(|(_, rest)| rest == parent.as_str())
            }
            (Pattern::Star(_), Pattern::Exact(Host::V4(_) | Host::V6(_)))
            | (Pattern::Exact(_), Pattern::Star(_)) => false,
        }
    }
}

impl Destination {
    /// A rule, with the header that is added to what goes there.
    ///
    /// # Errors
    /// A header needs one name: TLS has nothing else to check, and a star would send it to many.
    pub fn new(rule: HostRule, header: Option<Header>) -> Result<Destination, String> {
        match (&header, rule.host()) {
            (None, _) | (Some(_), Some(Host::Name(_))) => Ok(Destination { rule, header }),
            (Some(_), Some(Host::V4(_) | Host::V6(_)) | None) => {
                Err("has a header, which goes to exactly one host by name".to_owned())
            }
        }
    }

    /// The rule.
    pub fn rule(&self) -> &HostRule {
        &self.rule
    }

    /// All that it is: whoever compares two forgets nothing.
    pub(crate) fn parts(&self) -> (&HostRule, Option<&Header>) {
        let Destination { rule, header } = self;
        (rule, header.as_ref())
    }

    /// What is added to requests.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }
}

impl From<HostRule> for Destination {
    fn from(rule: HostRule) -> Self {
        Destination { rule, header: None }
    }
}

impl HeaderName {
    /// Checks a name.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<HeaderName, String> {
        let lower = text.to_ascii_lowercase();
        let token = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if lower.is_empty() || lower.len() > 64 || !lower.bytes().all(token) {
            return Err("is not the name of a header".to_owned());
        }
        if FRAMING.contains(&lower.as_str()) {
            return Err("is a header that says where a request goes, or how it is read".to_owned());
        }
        Ok(HeaderName(lower))
    }

    /// The name, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Refuses a host that no rule could open.
fn reachable(host: Host) -> Result<Host, String> {
    let local = matches!(&host, Host::Name(name)
        if name.as_str() == "localhost" || name.as_str().ends_with(".localhost"));
    if local {
        return Err("is the machine itself, which is never reached".to_owned());
    }
    match host.address().map(|address| AddressKind::of(address, &[])) {
        Some(kind) if !kind.may_be_written() => Err(format!("is {}, which is never reached", kind.as_str())),
        Some(_) | None => Ok(host),
    }
}

/// What follows the star of `*.label.tld`.
fn star(written: &str) -> Result<HostName, String> {
    let lower = written.to_ascii_lowercase();
    let rest = lower.strip_prefix("*.").map(|rest| rest.strip_suffix('.').unwrap_or(rest));
    let Some(rest) = rest.filter(|rest| !rest.contains('*') && !rest.is_empty()) else {
        return Err("has a star that is not one whole leading label; name the host".to_owned());
    };
    let name = HostName::new(rest)?;
    if !rest.contains('.') {
        return Err("would open a whole top-level domain; put at least two labels after the star".to_owned());
    }
    Ok(name)
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Exact(host) => write!(f, "{host}"),
            Pattern::Star(parent) => write!(f, "*.{parent}"),
        }
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
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

    /// A rule for what is never reached would read as if it were.
    #[test]
    fn r47_a_rule_for_what_is_never_reached_is_refused() {
        for text in [
            "localhost:80",
            "a.localhost.:80",
            "127.0.0.1:80",
            "[::1]:80",
            "169.254.169.254:80",
            "100.100.100.200:80",
            "[fe80::1]:80",
            "[fd00:ec2::254]:80",
            "0.0.0.0:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "[::ffff:10.0.0.1]:80",
            "[64:ff9b::a00:1]:80",
        ] {
            assert!(HostRule::parse(text).is_err(), "{text}");
        }
        for text in ["10.0.0.5:80", "[fd12::1]:80", "100.64.0.1:80", "203.0.113.7:80"] {
            assert_eq!(rule(text).to_string(), text);
        }
    }

    /// D-4: what a rule names and what a request names is decided by the same value.
    #[test]
    fn a_rule_names_a_request_exactly_if_both_are_read_alike() {
        for (text, asked) in [("Example.com.:443", "example.COM:443"), ("192.0.2.7:80", "192.0.2.7.:80")] {
            assert!(rule(text).names(&Target::parse(asked, None).unwrap()), "{text} {asked}");
        }
        let star = rule("*.example.com:443");
        for (asked, named) in [
            ("A.Example.COM.:443", true),
            ("notexample.com:443", false),
            ("a.example.com.evil.test:443", false),
            ("example.com:443", false),
            ("a.b.example.com:443", false),
            ("a.example.com:9999", false),
        ] {
            assert_eq!(star.names(&Target::parse(asked, None).unwrap()), named, "{asked}");
        }
    }

    #[test]
    fn a_header_goes_to_one_host_by_name_and_frames_nothing() {
        let header = || {
            let (name, secret_env) = (HeaderName::parse("Authorization"), EnvName::new("TOKEN"));
            Some(Header { name: name.unwrap(), secret_env: secret_env.unwrap() })
        };
        assert!(Destination::new(rule("api.example.com:443"), header()).is_ok());
        for text in ["*.example.com:443", "203.0.113.7:443", "[2001:db8::1]:443"] {
            assert!(Destination::new(rule(text), header()).is_err(), "{text}");
        }
        for name in ["", "Host", "content-length", "Transfer-Encoding", "a b", "a:b", "x\r\ny", "\u{fc}"] {
            assert!(HeaderName::parse(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_rule_is_written_down_as_host_and_port() {
        let written = serde_json::to_string(&Destination::from(rule("*.Example.com:443"))).unwrap();
        assert_eq!(written, r#"{"host":"*.example.com","port":443}"#);
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
