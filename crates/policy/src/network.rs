//! Network destinations that may be granted.

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
    pub fn parse(_text: &str) -> Result<HostRule, String> {
        Err("not written yet".to_owned())
    }
}

impl std::fmt::Display for HostRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
