//! What the connections of a run may hold under way, all together. Each has its least whatever the others hold; beyond that
//! nobody gets more than half of what is left, so few are fast, and many share.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What each may hold in each direction, whatever the others do.
const LEAST: usize = 1 << 10;
/// What is read at once at the most: more makes it no faster.
const MOST: usize = 64 << 10;
/// What all may hold beyond the least of each.
const ALL: usize = 128 << 10;
/// How little of what is left goes to one.
const PART: usize = 2;

/// The bytes that are left of [`ALL`].
pub(crate) struct Pool {
    left: AtomicUsize,
}

/// Room for some bytes, until it is dropped.
pub(crate) struct Lease<'a> {
    pool: &'a Pool,
    /// Of the pool; the least is not.
    beyond: usize,
}

impl Pool {
    pub(crate) fn new() -> Pool {
        Pool { left: AtomicUsize::new(ALL) }
    }

    /// Room for what is read next.
    pub(crate) fn lease(&self) -> Lease<'_> {
        let share = |left: usize| (left / PART).min(MOST - LEAST);
        let take = |left| Some(left - share(left));
        let beyond = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_or(0, share);
        Lease { pool: self, beyond }
    }
}

impl Lease<'_> {
    /// Bytes that there is room for.
    pub(crate) fn room(&self) -> usize {
        LEAST + self.beyond
    }

    /// Gives back what so many bytes do not need.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let needed = bytes.saturating_sub(LEAST).min(self.beyond);
        self.pool.left.fetch_add(self.beyond - needed, Ordering::Relaxed);
        self.beyond = needed;
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
impl Pool {
    /// Whether nothing is lent.
    pub(crate) fn is_whole(&self) -> bool {
        self.left.load(Ordering::Relaxed) == ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_have_much() {
        let pool = Pool::new();
        let leases = [pool.lease(), pool.lease(), pool.lease()];
        assert_eq!(leases[0].room(), MOST);
        assert!(leases[1].room() > MOST / 2 && leases[2].room() > MOST / 4);
    }

    #[test]
    fn however_many_there_are_each_has_its_least_and_all_are_bounded() {
        let pool = Pool::new();
        let leases: Vec<Lease<'_>> = (0..10_000).map(|_| pool.lease()).collect();
        assert!(leases.iter().all(|lease| lease.room() >= LEAST));
        let held: usize = leases.iter().map(Lease::room).sum();
        assert!(held <= ALL + leases.len() * LEAST, "{held}");
    }

    #[test]
    fn what_is_not_needed_is_lent_to_others_at_once() {
        let pool = Pool::new();
        let mut lease = pool.lease();
        lease.shrink(LEAST + 1);
        assert_eq!((lease.room(), pool.left.load(Ordering::Relaxed)), (LEAST + 1, ALL - 1));
        lease.shrink(MOST);
        assert_eq!(lease.room(), LEAST + 1);
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let pool = Pool::new();
        let mut leases: Vec<Lease<'_>> = (0..1000).map(|_| pool.lease()).collect();
        for (n, lease) in leases.iter_mut().enumerate() {
            lease.shrink(n * 100);
        }
        drop(leases);
        assert!(pool.is_whole());
    }

    #[test]
    fn what_a_panic_held_is_given_back() {
        let pool = Pool::new();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _lease = pool.lease();
            panic!("while it is lent");
        }));
        assert!(panicked.is_err() && pool.is_whole());
    }
}
