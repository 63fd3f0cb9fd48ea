//! What is written for roles that have no power. Such a role may come as it likes: it only talks. What was written of
//! it stays written, and whoever takes out the role takes that out too. Otherwise it could go and come back without.

use std::collections::BTreeMap;

use super::bound::Bound;
use super::order::Order;
use super::reach::Bounds;
use crate::{Generation, RoleName};

/// Bounds that are written, by role and key: each more is narrower.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plain(pub(super) BTreeMap<(RoleName, &'static str), Bound>);

impl Plain {
    /// Takes in what is written of one role. The length of an answer always has a number: one below what a role has
    /// that says nothing was written.
    pub(super) fn add(&mut self, role: &RoleName, bounds: &Bounds) {
        for (key, bound) in bounds {
            if is_written(key, bound) {
                self.0.insert((role.clone(), key), Bound { value: bound.value, stated: true });
            }
        }
    }
}

/// Whether somebody wrote it.
pub(super) fn is_written(key: &str, bound: &Bound) -> bool {
    bound.stated || (key == ANSWER && bound.value < u64::from(Generation::default().max_tokens))
}

/// The one bound of a role that is no budget.
pub(super) const ANSWER: &str = "generation.max_tokens";

impl Order for Plain {
    fn within(&self, other: &Self) -> bool {
        other.0.iter().all(|(key, bound)| self.0.get(key).is_some_and(|here| here.within(bound)))
    }

    fn meet(&self, other: &Self) -> Self {
        let mut both = self.clone();
        for (key, bound) in &other.0 {
            both.0.entry(key.clone()).and_modify(|here| *here = here.meet(bound)).or_insert(*bound);
        }
        both
    }
}
