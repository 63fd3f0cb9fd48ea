//! Destinations: a set of rules, of which one may cover others.

use std::collections::BTreeSet;

use super::order::Order;
use crate::HostRule;

/// Destinations, each written once: what another one covers is left out, so that equal sets are equal values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hosts(BTreeSet<HostRule>);

impl Hosts {
    pub(super) fn new<'a>(rules: impl IntoIterator<Item = &'a HostRule>) -> Hosts {
        let all: BTreeSet<HostRule> = rules.into_iter().cloned().collect();
        let covered = |rule: &HostRule| all.iter().any(|other| other != rule && other.covers(rule));
        Hosts(all.iter().filter(|rule| !covered(rule)).cloned().collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of which `other` does not have all.
    pub(super) fn beyond<'a>(&'a self, other: &'a Hosts) -> impl Iterator<Item = &'a HostRule> {
        self.0.iter().filter(|rule| !other.0.iter().any(|has| has.covers(rule)))
    }
}

impl Order for Hosts {
    fn within(&self, other: &Self) -> bool {
        self.beyond(other).next().is_none()
    }

    fn meet(&self, other: &Self) -> Self {
        let ours = self.0.iter().filter(|rule| other.0.iter().any(|has| has.covers(rule)));
        let theirs = other.0.iter().filter(|rule| self.0.iter().any(|has| has.covers(rule)));
        Hosts::new(ours.chain(theirs))
    }
}
