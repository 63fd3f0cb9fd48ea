//! The kinds of value that both files have: bounds with units, lists of names, destinations.
//!
//! Each reader takes what is written under a key and gives the checked value, or tells a fault and gives none.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::document::Document;
use crate::unit::{self, BadUnit};
use crate::{EnvName, HostRule};

/// Destinations of one list.
const MAX_DESTINATIONS: usize = 1000;

/// Destinations that may be reached.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Network")]
pub(crate) struct RawNetwork {
    /// Each `host:port` or `*.label.tld:port`; empty means none.
    #[schemars(extend("default" = []))]
    pub(crate) allow: Option<Vec<Option<String>>>,
}

/// Bytes: a plain number, or a text with a unit as `256MiB`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Size")]
pub(crate) enum RawSize {
    /// Bytes.
    Bytes(#[schemars(range(min = 1))] u64),
    /// A number and a unit.
    Text(String),
}

impl Document<'_> {
    /// A duration, as `15m`.
    pub(crate) fn duration(&mut self, key: &str, written: Option<String>) -> Option<Duration> {
        let read = unit::duration(&written?);
        self.with_unit(key, read)
    }

    /// A size in bytes, as `256MiB`.
    pub(crate) fn size(&mut self, key: &str, written: Option<RawSize>) -> Option<u64> {
        match written? {
            RawSize::Bytes(bytes) => self.with_unit(key, unit::size(&bytes.to_string())),
            RawSize::Text(text) => self.with_unit(key, unit::size(&text)),
        }
    }

    /// A count that fits what is counted; that it is not zero was seen with the shape.
    pub(crate) fn count<T: TryFrom<u64>>(&mut self, key: &str, written: Option<u64>) -> Option<T> {
        let count = T::try_from(written?).ok();
        if count.is_none() {
            self.bad(key, "is too large to be a bound", "a bound is never unlimited");
        }
        count
    }

    /// Names of environment variables. Anything else may be a key, so it is not repeated.
    pub(crate) fn variable(&mut self, key: &str, written: &str) -> Option<EnvName> {
        let name = EnvName::new(written).filter(|name| !looks_random(name.as_str()));
        if name.is_none() {
            self.secret(key);
        }
        name
    }

    /// Destinations. No list, or an empty one, is no destination.
    pub(crate) fn destinations(
        &mut self,
        key: &str,
        written: Option<Vec<Option<String>>>,
    ) -> Vec<(String, HostRule)> {
        let mut rules = Vec::new();
        let Some(written) = self.not_too_many(key, written) else { return rules };
        for (key, text) in items(key, Some(written)) {
            rules.extend(self.destination(&key, &text).map(|rule| (key, rule)));
        }
        rules
    }

    /// A list of destinations, where it is not too long to compare each with each.
    pub(crate) fn not_too_many<T>(
        &mut self,
        key: &str,
        written: Option<Vec<Option<T>>>,
    ) -> Option<Vec<Option<T>>> {
        let written = written?;
        if written.len() > MAX_DESTINATIONS {
            let help = format!("at most {MAX_DESTINATIONS} are read: each is compared with each");
            self.bad(key, format!("has {} destinations", written.len()), help);
            return None;
        }
        Some(written)
    }

    /// One destination.
    pub(crate) fn destination(&mut self, key: &str, text: &str) -> Option<HostRule> {
        match HostRule::parse(text) {
            Ok(rule) => Some(rule),
            Err(why) => {
                self.bad(key, why, "a destination is one `host:port`, or `*.label.tld:port`");
                None
            }
        }
    }

    fn with_unit<T>(&mut self, key: &str, read: Result<T, BadUnit>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(wrong) => {
                self.bad(key, wrong.message, wrong.help);
                None
            }
        }
    }
}

/// The items of a list with the key of each; what was faulty in shape is not among them.
pub(crate) fn items<T>(key: &str, written: Option<Vec<Option<T>>>) -> impl Iterator<Item = (String, T)> {
    let numbered = written.unwrap_or_default().into_iter().enumerate();
    numbered.filter_map(move |(i, item)| item.map(|item| (format!("{key}[{i}]"), item)))
}

/// A word that could be a variable's name but is more likely a key: long, of one piece, with digits in it.
fn looks_random(word: &str) -> bool {
    let least = if word.bytes().any(|b| b.is_ascii_lowercase()) { 20 } else { 32 };
    word.len() >= least && !word.contains('_') && word.bytes().any(|b| b.is_ascii_digit())
}
