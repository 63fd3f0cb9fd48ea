//! How strong the wall is that a run gets: less weak is narrower.

use super::order::Order;
use crate::{Surroundings, Tier, TierChoice};

/// How weak. Two words of the same strength are the same here, and told as another word of the operator's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    weak: u8,
    pub(super) word: &'static str,
}

/// What tier a run gets: the weakest and the strongest that it can be, on whatever machine. `auto` takes the strongest
/// that there is, so a tier by name that is not the strongest of all can be weaker than what `auto` took on the same
/// machine: neither is within the other, though the floor be the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    worst: Rank,
    best: Rank,
    pub(super) word: &'static str,
}

impl Rank {
    /// Of a tier.
    pub(super) fn of(tier: Tier) -> Rank {
        let weak = match tier {
            Tier::Microvm => 0,
            Tier::Gvisor | Tier::Wasm => 1,
            Tier::Namespace => 2,
            Tier::Confined => 3,
        };
        Rank { weak, word: tier.as_str() }
    }

    /// Of what is claimed of the surroundings: each more is weaker.
    pub(super) fn around(surroundings: Surroundings) -> Rank {
        match surroundings {
            Surroundings::None => Rank { weak: 0, word: "none" },
            Surroundings::Gvisor => Rank { weak: 1, word: "gvisor" },
            Surroundings::Microvm => Rank { weak: 2, word: "microvm" },
        }
    }
}

impl Choice {
    /// Of what the operator asks for, above a floor.
    pub(super) fn of(tier: TierChoice, floor: Tier) -> Choice {
        match tier.fixed() {
            None => Choice { worst: Rank::of(floor), best: Rank::of(Tier::Microvm), word: AUTO },
            Some(tier) => {
                let rank = Rank::of(tier);
                Choice { worst: rank, best: rank, word: rank.word }
            }
        }
    }
}

const AUTO: &str = "auto";

impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        let Rank { weak, word: _ } = self;
        *weak == other.weak
    }
}

impl Eq for Rank {}

impl Order for Rank {
    fn within(&self, other: &Self) -> bool {
        let Rank { weak, word: _ } = self;
        *weak <= other.weak
    }

    fn meet(&self, other: &Self) -> Self {
        if self.within(other) { *self } else { *other }
    }
}

impl PartialEq for Choice {
    fn eq(&self, other: &Self) -> bool {
        let Choice { worst, best, word: _ } = self;
        *worst == other.worst && *best == other.best
    }
}

impl Eq for Choice {}

impl Order for Choice {
    fn within(&self, other: &Self) -> bool {
        let Choice { worst, best, word: _ } = self;
        worst.within(&other.worst) && best.within(&other.best)
    }

    fn meet(&self, other: &Self) -> Self {
        let (worst, best) = (self.worst.meet(&other.worst), self.best.meet(&other.best));
        Choice { worst, best, word: if worst == best { worst.word } else { AUTO } }
    }
}
