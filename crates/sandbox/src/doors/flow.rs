//! How much may be under way in one direction of a stream, and what was not taken yet. Both ends count alike.

use std::collections::VecDeque;

/// What may be under way at the start.
const FIRST: usize = 64 << 10;
/// What may be once somebody reads.
const FULL: usize = 512 << 10;
/// What all streams of a sandbox may have under way in one direction.
const ALL: usize = 32 << 20;
/// A piece so small is put behind the one before it: many of them must not cost more than they hold.
const SMALL: usize = 4 << 10;
/// As large as pieces are made that way.
const JOINED: usize = 64 << 10;

/// The receiver's count of what the other side may still send.
#[derive(Debug)]
pub(crate) struct Window {
    size: usize,
    left: usize,
    taken: usize,
}

impl Window {
    /// A new one; its size counts among all.
    pub(crate) fn new(all: &mut usize) -> Window {
        *all = all.saturating_add(FIRST);
        Window { size: FIRST, left: FIRST, taken: 0 }
    }

    /// What the other side begins with.
    pub(crate) const FIRST: usize = FIRST;
    /// More than this nobody is ever given.
    pub(crate) const FULL: usize = FULL;

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

    /// Bytes were taken; what to allow anew, when it is worth a word.
    pub(crate) fn took(&mut self, bytes: usize, all: &mut usize) -> Option<u32> {
        self.taken += bytes;
        if self.taken < self.size / 2 {
            return None;
        }
        let mut more = std::mem::take(&mut self.taken);
        let growth = FULL - self.size;
        if all.saturating_add(growth) <= ALL {
            *all += growth;
            self.size += growth;
            more += growth;
        }
        self.left += more;
        u32::try_from(more).ok()
    }

    /// Nothing comes any more.
    pub(crate) fn close(&self, all: &mut usize) {
        *all = all.saturating_sub(self.size);
    }
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

    #[test]
    fn a_window_is_never_overrun_and_grows_once_somebody_reads() {
        let mut all = 0;
        let mut window = Window::new(&mut all);
        assert!(window.came(FIRST) && !window.came(1));
        assert_eq!(window.took(FIRST / 2 - 1, &mut all), None);
        let more = usize::try_from(window.took(1, &mut all).unwrap()).unwrap();
        assert_eq!((more, all), (FIRST / 2 + FULL - FIRST, FULL));
        assert!(window.came(more) && !window.came(1));
        window.close(&mut all);
        assert_eq!(all, 0);
    }

    #[test]
    fn all_windows_together_are_bounded() {
        let mut all = 0;
        let mut windows: Vec<Window> = (0..super::super::STREAMS).map(|_| Window::new(&mut all)).collect();
        for window in &mut windows {
            assert!(window.came(FIRST));
            window.took(FIRST, &mut all);
        }
        assert!(all <= ALL, "{all}");
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
