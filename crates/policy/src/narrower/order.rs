//! A partial order with a meet: the laws that every part of a capability keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A part of a capability. `within` is reflexive, transitive and antisymmetric; `meet` is within both.
pub(super) trait Order: Sized {
    /// Whether nothing of this is more than `other` has.
    fn within(&self, other: &Self) -> bool;
    /// What both have.
    fn meet(&self, other: &Self) -> Self;
}

/// Each element is a power: fewer is narrower.
impl<T: Ord + Clone> Order for BTreeSet<T> {
    fn within(&self, other: &Self) -> bool {
        self.is_subset(other)
    }

    fn meet(&self, other: &Self) -> Self {
        self.intersection(other).cloned().collect()
    }
}

/// Each key is a power, and has a measure: what is not there is nothing at all.
impl<K: Ord + Clone, V: Order> Order for BTreeMap<K, V> {
    fn within(&self, other: &Self) -> bool {
        self.iter().all(|(key, value)| other.get(key).is_some_and(|there| value.within(there)))
    }

    fn meet(&self, other: &Self) -> Self {
        let both = self.iter().filter_map(|(key, value)| {
            let there = other.get(key)?;
            Some((key.clone(), value.meet(there)))
        });
        both.collect()
    }
}

/// A part that several share.
impl<T: Order> Order for Arc<T> {
    fn within(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other) || T::within(self, other)
    }

    fn meet(&self, other: &Self) -> Self {
        Arc::new(T::meet(self, other))
    }
}

/// A power that is there or not.
impl Order for bool {
    fn within(&self, other: &Self) -> bool {
        !*self || *other
    }

    fn meet(&self, other: &Self) -> Self {
        *self && *other
    }
}
