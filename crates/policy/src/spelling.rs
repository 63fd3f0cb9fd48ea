//! Words that were nearly right, looked for as long as that costs little.

use crate::shown::nearest;

/// Words that are compared for one file, or one value: what is beyond is told without a help.
const COMPARED: usize = 20_000;

/// How many more are compared.
#[derive(Debug)]
pub(crate) struct Spelling {
    left: usize,
}

impl Default for Spelling {
    fn default() -> Spelling {
        Spelling { left: COMPARED }
    }
}

impl Spelling {
    /// The accepted word nearest to `word`, if one is near enough to be meant.
    pub(crate) fn nearest<'a>(
        &mut self,
        word: &str,
        accepted: impl Iterator<Item = &'a str>,
    ) -> Option<&'a str> {
        let left = &mut self.left;
        nearest(
            word,
            accepted.take_while(|_| {
                *left = left.saturating_sub(1);
                *left > 0
            }),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_words_are_compared_than_there_is_room_for() {
        let (mut spelling, looked_at) = (Spelling::default(), std::cell::Cell::new(0));
        for _ in 0..50 {
            let words = (0..1000).map(|_| {
                looked_at.set(looked_at.get() + 1);
                "worker"
            });
            spelling.nearest("wroker", words);
        }
        assert!((COMPARED..COMPARED + 100).contains(&looked_at.get()), "{}", looked_at.get());
        assert_eq!(Spelling::default().nearest("wroker", ["worker"].into_iter()), Some("worker"));
        assert_eq!(spelling.nearest("wroker", ["worker"].into_iter()), None);
    }
}
