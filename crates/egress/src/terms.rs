//! What an [`crate::Egress`] goes by.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use policy::{Destination, EnvName, Traffic, is_too_short_to_hide};

use crate::dial::Direct;
use crate::{Caps, Dial, Resolve, Roots, Sink, System, own_addresses};

/// What may be reached, how much of it, and by what means.
pub struct Terms {
    /// What may be reached. Empty: nothing.
    pub granted: Vec<Granted>,
    /// Bounds.
    pub caps: Caps,
    /// Addresses of the host itself.
    pub own: Vec<IpAddr>,
    /// Who may vouch for servers, where TLS is ours.
    pub roots: Roots,
    /// Resolves names.
    pub resolver: Arc<dyn Resolve>,
    /// Makes connections.
    pub dialer: Arc<dyn Dial>,
    /// Is told what happens.
    pub sink: Arc<dyn Sink>,
}

/// A destination, and the value of its header.
#[derive(Clone, Debug)]
pub struct Granted {
    destination: Destination,
    value: Option<Secret>,
}

/// A value that no one reads by accident.
#[derive(Clone)]
pub struct Secret(String);

/// Why a header has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSecret {
    /// The variable is not there, or empty.
    #[error("the variable `{name}` is not set, but a header of `{rule}` takes its value from it")]
    Missing {
        /// The variable.
        name: EnvName,
        /// Where the header would go.
        rule: String,
    },
    /// The value, or a part of it that is a secret by itself, has so few characters that it would be masked nowhere.
    #[error(
        "the variable `{name}` holds a header's value with fewer than 4 characters, or with a token or password of fewer: \
         that cannot be masked where it comes back, so a longer one is needed"
    )]
    Short {
        /// The variable.
        name: EnvName,
    },
    /// The value has bytes that no header has.
    #[error(
        "the variable `{name}` holds what cannot be the value of a header (a line end, or bytes outside ASCII)"
    )]
    Form {
        /// The variable.
        name: EnvName,
    },
}

impl Terms {
    /// These destinations within these bounds, by this machine's own means.
    ///
    /// # Errors
    /// Where this machine's addresses cannot be listed.
    pub fn new(granted: Vec<Granted>, traffic: &Traffic, sink: Arc<dyn Sink>) -> io::Result<Terms> {
        Ok(Terms {
            granted,
            caps: Caps::from(traffic),
            own: own_addresses()?,
            roots: Roots::System,
            resolver: Arc::new(System::default()),
            dialer: Arc::new(Direct),
            sink,
        })
    }
}

impl Granted {
    /// A destination with the value of its header, which `variable` finds.
    ///
    /// # Errors
    /// Where there is no value, or one that cannot be a header's.
    pub fn new(
        destination: Destination,
        variable: impl Fn(&EnvName) -> Option<String>,
    ) -> Result<Granted, BadSecret> {
        let value = match destination.header() {
            None => None,
            Some(header) => {
                let name = &header.secret_env;
                let value = variable(name).filter(|value| !value.trim().is_empty());
                let Some(value) = value else {
                    let rule = destination.rule().to_string();
                    return Err(BadSecret::Missing { name: name.clone(), rule });
                };
                let value = value.trim().to_owned();
                if !value.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
                    return Err(BadSecret::Form { name: name.clone() });
                }
                if is_too_short_to_hide(&value) {
                    return Err(BadSecret::Short { name: name.clone() });
                }
                Some(Secret(value))
            }
        };
        Ok(Granted { destination, value })
    }

    /// The destination.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// The header that is added: its name and its value.
    pub(crate) fn header(&self) -> Option<(&str, &Secret)> {
        Some((self.destination.header()?.name.as_str(), self.value.as_ref()?))
    }
}

impl Secret {
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn of(value: &str) -> Secret {
        Secret(value.to_owned())
    }

    pub(crate) fn value(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use policy::{Header, HeaderName, HostRule};

    use super::*;

    fn granted(value: Option<&str>) -> Result<Granted, BadSecret> {
        let (name, secret_env) =
            (HeaderName::parse("authorization").unwrap(), EnvName::new("TOKEN").unwrap());
        let rule = HostRule::parse("api.example.com:443").unwrap();
        let destination = Destination::new(rule, Some(Header { name, secret_env })).unwrap();
        Granted::new(destination, |_| value.map(str::to_owned))
    }

    #[test]
    fn r58_no_debug_text_holds_the_value() {
        let granted = granted(Some("Bearer swordfish\n")).unwrap();
        assert_eq!(granted.header().unwrap().1.value(), "Bearer swordfish");
        assert!(!format!("{granted:?}").contains("swordfish"));
    }

    /// R58: what is too short to be looked for would come back as it is.
    #[test]
    fn r58_a_value_that_cannot_be_masked_is_no_grant() {
        for value in ["qzj", "Bearer qzj", "Basic dXNlcjpxemo="] {
            let why = granted(Some(value)).unwrap_err().to_string();
            assert!(why.contains("`TOKEN`") && why.contains("4 characters"), "{why}");
            assert!(!why.contains("qzj") && !why.contains("dXNlcjpxemo"), "{why}");
        }
        assert!(granted(Some("Bearer qzjx")).is_ok());
    }

    #[test]
    fn a_header_without_a_sound_value_is_no_grant() {
        for value in [None, Some(""), Some("  "), Some("a\r\nHost: b"), Some("a\0"), Some("\u{fc}")] {
            let why = granted(value).unwrap_err().to_string();
            assert!(why.contains("TOKEN") && !why.contains("Host"), "{why}");
        }
    }
}
