//! The operator's lists of commands, as an order: an allow list may only shrink, a deny list only grow.

use std::collections::BTreeSet;

use super::order::Order;

/// Rules, each written once: `git` covers `git push`, so the latter is left out beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules(BTreeSet<String>);

/// What may be started: everything, or only what is listed. An empty list is no list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    All,
    Only(Rules),
}

/// What is refused: more is narrower.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Denied(pub(super) Rules);

impl Rules {
    pub(super) fn new<'a>(rules: impl IntoIterator<Item = &'a String>) -> Rules {
        let all: BTreeSet<String> = rules.into_iter().cloned().collect();
        let covered = |rule: &String| all.iter().any(|other| other != rule && covers(other, rule));
        Rules(all.iter().filter(|rule| !covered(rule)).cloned().collect())
    }

    /// Rules that none of `other` covers.
    pub(super) fn beyond<'a>(&'a self, other: &'a Rules) -> impl Iterator<Item = &'a String> {
        self.0.iter().filter(|rule| !other.0.iter().any(|has| covers(has, rule)))
    }

    fn within(&self, other: &Rules) -> bool {
        self.beyond(other).next().is_none()
    }

    /// Rules of either that the other covers.
    fn both(&self, other: &Rules) -> Rules {
        let ours = self.0.iter().filter(|rule| other.0.iter().any(|has| covers(has, rule)));
        let theirs = other.0.iter().filter(|rule| self.0.iter().any(|has| covers(has, rule)));
        Rules::new(ours.chain(theirs))
    }
}

impl Allowed {
    pub(super) fn new(list: &[String]) -> Allowed {
        if list.is_empty() { Allowed::All } else { Allowed::Only(Rules::new(list)) }
    }
}

impl Order for Allowed {
    fn within(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Allowed::All) => true,
            (Allowed::All, Allowed::Only(_)) => false,
            (Allowed::Only(ours), Allowed::Only(theirs)) => ours.within(theirs),
        }
    }

    fn meet(&self, other: &Self) -> Self {
        match (self, other) {
            (list, Allowed::All) | (Allowed::All, list) => list.clone(),
            (Allowed::Only(ours), Allowed::Only(theirs)) => Allowed::Only(ours.both(theirs)),
        }
    }
}

impl Order for Denied {
    fn within(&self, other: &Self) -> bool {
        other.0.within(&self.0)
    }

    fn meet(&self, other: &Self) -> Self {
        Denied(Rules::new(self.0.0.iter().chain(&other.0.0)))
    }
}

/// Whether every command that `rule` names is named by `broad`: its words begin with those.
fn covers(broad: &str, rule: &str) -> bool {
    let mut words = rule.split(' ');
    broad.split(' ').all(|word| words.next() == Some(word))
}
