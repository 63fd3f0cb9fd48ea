//! How much may be under way in one direction of a stream, and what was not taken yet. Both ends count alike.

use std::collections::VecDeque;

/// Nobody has more than half of what is left for all of them: so few are fast, many share, and nobody takes it all.
const SHARE: usize = 2;
/// What the executor may hold of each piece on its way to the guest, whatever the others hold: of 200 busy ones that is
/// most of what is held.
const LEAST: usize = 1 << 10;
/// What it may hold of all pieces on their way, beyond the least of each.
const PIECES: usize = 128 << 10;

/// What may be under way in one direction.
#[derive(Debug)]
struct Bounds {
    /// In each stream, whatever the others have: the sender begins with it.
    first: usize,
    /// In one stream at the most.
    full: usize,
    /// In all streams of a sandbox; where that is under way nobody gets more than its first.
    all: usize,
}

/// The executor has many sandboxes, and little memory. A guest's init has its own, and each word of what it takes is a call
/// that a kernel in user space answers slowly.
const TO_EXECUTOR: Bounds = Bounds { first: 4 << 10, full: 512 << 10, all: 1 << 20 };
const TO_GUEST: Bounds = Bounds { first: 64 << 10, full: 2 << 20, all: 32 << 20 };

/// A piece so small is put behind the one before it: many of them must not cost more than they hold.
const SMALL: usize = 4 << 10;
/// As large as pieces are made that way.
const JOINED: usize = 64 << 10;

/// All windows of a receiver.
#[derive(Debug)]
pub(crate) struct Windows {
    bounds: &'static Bounds,
    sum: usize,
}

/// The receiver's count of what the other side may still send.
#[derive(Debug)]
pub(crate) struct Window {
    /// What may be under way: what is allowed, what came, and what was taken since the last word.
    size: usize,
    left: usize,
    taken: usize,
}

impl Windows {
    /// Of what comes to the executor.
    pub(crate) fn to_executor() -> Windows {
        Windows { bounds: &TO_EXECUTOR, sum: 0 }
    }

    /// Of what comes to a guest's init.
    pub(crate) fn to_guest() -> Windows {
        Windows { bounds: &TO_GUEST, sum: 0 }
    }

    /// One more.
    pub(crate) fn open(&mut self) -> Window {
        let first = self.bounds.first;
        self.sum = self.sum.saturating_add(first);
        Window { size: first, left: first, taken: 0 }
    }

    /// What one of this size should have.
    fn share(&self, size: usize) -> usize {
        let left = self.bounds.all.saturating_sub(self.sum - size);
        (left / SHARE).clamp(self.bounds.first, self.bounds.full)
    }

    /// Whether nothing is under way.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.sum == 0
    }
}

impl Window {
    /// What a guest begins with.
    pub(crate) const TO_EXECUTOR: usize = TO_EXECUTOR.first;
    /// What the executor begins with.
    pub(crate) const TO_GUEST: usize = TO_GUEST.first;
    /// More than this nobody is ever given.
    pub(crate) const FULL: usize = TO_GUEST.full;

    /// Bytes came; false when they were not allowed.
    pub(crate) fn came(&mut self, bytes: usize) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// Bytes were taken; what to allow anew, when it is worth a word. Where others need the room it is less than was taken:
    /// what was allowed once cannot be called back.
    pub(crate) fn took(&mut self, bytes: usize, all: &mut Windows) -> Option<u32> {
        self.taken += bytes;
        if self.taken < self.size / 2 {
            return None;
        }
        let under_way = self.size - self.taken;
        let size = all.share(self.size).max(under_way);
        all.sum = all.sum - self.size + size;
        self.size = size;
        self.taken = 0;
        let more = size - under_way;
        self.left += more;
        u32::try_from(more).ok().filter(|more| *more > 0)
    }

    /// Nothing comes any more.
    pub(crate) fn close(&self, all: &mut Windows) {
        all.sum = all.sum.saturating_sub(self.size);
    }
}

/// How much a piece may hold that has so much, where all together hold `all`.
pub(crate) fn piece_of_all(held: usize, all: usize) -> usize {
    (PIECES.saturating_sub(all - held) / SHARE).max(LEAST)
}

/// Bytes that came and were not taken, in order.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pieces: VecDeque<Vec<u8>>,
    /// How much of the first is taken.
    from: usize,
}

impl Held {
    pub(crate) fn push(&mut self, piece: Vec<u8>) {
        match self.pieces.back_mut() {
            Some(last) if piece.len() < SMALL && last.len() + piece.len() <= JOINED => {
                last.extend_from_slice(&piece);
            }
            _ if piece.is_empty() => {}
            _ => self.pieces.push_back(piece),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The next bytes; none when there are none.
    pub(crate) fn next(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| &piece[self.from..])
    }

    /// So many of those were taken.
    pub(crate) fn took(&mut self, bytes: usize) {
        self.from += bytes;
        if self.pieces.front().is_some_and(|piece| self.from >= piece.len()) {
            self.pieces.pop_front();
            self.from = 0;
        }
    }

    /// How many they are.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum::<usize>() - self.from
    }

    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.from = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that may come comes and is taken, again and again.
    fn busy(windows: &mut [Window], all: &mut Windows) {
        for _ in 0..50 {
            for window in &mut *windows {
                let left = window.left;
                assert!(left > 0, "nothing may come any more");
                assert!(window.came(left));
                window.took(left, all);
            }
        }
    }

    #[test]
    fn a_window_is_never_overrun_and_grows_once_somebody_reads() {
        for mut all in [Windows::to_executor(), Windows::to_guest()] {
            let Bounds { first, full, .. } = *all.bounds;
            let mut window = all.open();
            assert!(window.came(first) && !window.came(1));
            assert_eq!(window.took(first / 2 - 1, &mut all), None);
            let more = usize::try_from(window.took(1, &mut all).unwrap()).unwrap();
            assert_eq!((more, all.sum), (first / 2 + full - first, full));
            assert!(window.came(more) && !window.came(1));
            window.close(&mut all);
            assert!(all.is_empty());
        }
    }

    #[test]
    fn all_windows_together_are_bounded() {
        for mut all in [Windows::to_executor(), Windows::to_guest()] {
            let mut windows: Vec<Window> = (0..super::super::STREAMS).map(|_| all.open()).collect();
            busy(&mut windows, &mut all);
            assert!(all.sum <= all.bounds.all.max(windows.len() * all.bounds.first), "{}", all.sum);
        }
    }

    #[test]
    fn who_was_first_makes_room_for_the_others() {
        let mut all = Windows::to_executor();
        let mut windows: Vec<Window> = (0..8).map(|_| all.open()).collect();
        busy(&mut windows, &mut all);
        windows.extend((0..56).map(|_| all.open()));
        assert!(windows[0].size > 4 * windows[63].size);
        (0..10).for_each(|_| busy(&mut windows, &mut all));
        let sizes = windows.iter().map(|window| window.size);
        let (least, most) = (sizes.clone().min().unwrap(), sizes.max().unwrap());
        assert!(least > TO_EXECUTOR.first && most < least * 3 / 2, "{least} {most}");
    }

    #[test]
    fn a_window_becomes_smaller_without_calling_anything_back() {
        let mut all = Windows::to_executor();
        let mut window = all.open();
        busy(std::slice::from_mut(&mut window), &mut all);
        assert_eq!(window.size, TO_EXECUTOR.full);
        all.sum += all.bounds.all;
        assert!(window.came(TO_EXECUTOR.full / 2));
        assert_eq!(window.took(TO_EXECUTOR.full / 2, &mut all), None);
        assert_eq!((window.size, window.left), (TO_EXECUTOR.full / 2, TO_EXECUTOR.full / 2));
        assert!(window.came(TO_EXECUTOR.full / 2) && !window.came(1));
        let first = u32::try_from(TO_EXECUTOR.first).unwrap();
        assert_eq!(window.took(TO_EXECUTOR.full / 2, &mut all), Some(first));
    }

    #[test]
    fn a_piece_has_its_least_however_much_the_others_hold() {
        assert_eq!([piece_of_all(0, 0), piece_of_all(1000, 1000)], [PIECES / SHARE; 2]);
        assert_eq!([piece_of_all(0, PIECES), piece_of_all(1000, 2 * PIECES)], [LEAST; 2]);
    }

    #[test]
    fn small_pieces_are_joined_and_come_out_in_order() {
        let mut held = Held::default();
        let mut said = Vec::new();
        for n in 0..200_000_u32 {
            held.push(vec![n.to_le_bytes()[0]]);
            said.push(n.to_le_bytes()[0]);
        }
        held.push(vec![7; 70_000]);
        said.extend([7; 70_000]);
        assert!(held.pieces.len() < 8);
        let mut heard = Vec::new();
        while !held.is_empty() {
            let some = held.next().len().min(1000);
            heard.extend_from_slice(&held.next()[..some]);
            held.took(some);
        }
        assert!(heard == said);
    }
}
