//! Memory of an engine as the host sees it, where no group holds it: a guest that took its machine's monitor over could
//! have it take all there is.

use crate::{table, weight};

/// What the processes of a machine's monitor may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineMemory {
    /// The first of them.
    pub(crate) first: i32,
    pub(crate) bound: u64,
}

impl EngineMemory {
    pub(crate) fn is_over(&self) -> bool {
        let all = table::snapshot();
        let below = table::below(&all, self.first);
        let pids = below.iter().map(|seen| seen.pid).chain([self.first]);
        pids.map(|pid| weight::of(pid).memory).sum::<u64>() > self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_below_a_process_is_added_up() {
        let first = i32::try_from(std::process::id()).unwrap();
        let over = |bound: u64| EngineMemory { first, bound }.is_over();
        assert!(over(0) && !over(1 << 40));
        let taken = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(over(48 << 20));
        drop(taken);
    }
}
