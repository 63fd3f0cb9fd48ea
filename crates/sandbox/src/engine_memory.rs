//! Memory of an engine as the host sees it, where no group holds it: a guest that took its machine's monitor over could
//! have it take all there is.

use std::fs;

use crate::table;

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
        pids.filter_map(|pid| held(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)).sum::<u64>()
            > self.bound
    }
}

fn held(status: &str) -> Option<u64> {
    let kib = |name: &str| -> Option<u64> {
        status.lines().find_map(|l| l.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
    };
    // A process that is over has none of it.
    let resident = kib("RssAnon:")? + kib("RssShmem:")?;
    Some((resident + kib("VmSwap:").unwrap_or(0) + kib("VmPTE:").unwrap_or(0)) << 10)
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
        assert_eq!(
            held("RssAnon:\t 1 kB\nRssShmem:\t 2 kB\nVmPTE:\t 4 kB\nVmSwap:\t 8 kB\n"),
            Some(15 << 10)
        );
        assert_eq!(held("Name:\tover\n"), None);
    }
}
