//! The loop guard: the same call with the same result, again and again, also as an alternating pair.
//!
//! ```text
//!   repeats-1  note    repeats  not executed any more    repeats+2  the role ends
//! ```
//!
//! Any other call, and any other result, arms it anew.

use sha2::{Digest, Sha256};

/// Calls that are remembered.
const WINDOW: usize = 256;

type Hash = [u8; 32];

/// Remembers calls and their results.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    repeats: u32,
    past: Vec<(Hash, Hash)>,
}

/// What a further time means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Nothing yet.
    Fine,
    /// Worth a note to the model.
    Note(u32),
    /// Not to be executed.
    Refuse(u32),
    /// The end.
    Stop(u32),
}

/// The hash of a call.
pub(crate) fn call_hash(tool: &str, args: &str) -> Hash {
    let mut hash = Sha256::new();
    hash.update((tool.len() as u64).to_le_bytes());
    hash.update(tool);
    hash.update(args);
    hash.finalize().into()
}

impl Guard {
    /// That a result repeats is known after the second time, so the third is the first that can be refused.
    pub(crate) fn new(repeats: u32) -> Guard {
        Guard { repeats: repeats.max(3), past: Vec::new() }
    }

    /// What it means to make this call now.
    pub(crate) fn before(&self, call: Hash) -> Again {
        let times = self.seen(call).0 + 1;
        if times >= self.repeats.saturating_add(2) {
            Again::Stop(times)
        } else if times >= self.repeats {
            Again::Refuse(times)
        } else {
            Again::Fine
        }
    }

    /// Remembers a call that was made.
    pub(crate) fn made(&mut self, call: Hash, result: &str) -> Again {
        self.push((call, Sha256::digest(result).into()));
        let times = self.seen(call).0;
        if times >= 2 && times.saturating_add(1) >= self.repeats { Again::Note(times) } else { Again::Fine }
    }

    /// Remembers a call that was not made because of its repetition: its result would have been the same.
    pub(crate) fn withheld(&mut self, call: Hash) {
        let result = self.seen(call).1.unwrap_or_default();
        self.push((call, result));
    }

    fn push(&mut self, pair: (Hash, Hash)) {
        if self.past.len() == WINDOW {
            self.past.remove(0);
        }
        self.past.push(pair);
    }

    /// How often the call ends the past, in a row or in alternation with one other; and its last result.
    fn seen(&self, call: Hash) -> (u32, Option<Hash>) {
        let in_row = self.past.iter().rev().take_while(|(c, _)| *c == call).collect::<Vec<_>>();
        let result = self.past.iter().rev().find(|(c, _)| *c == call).map(|(_, r)| *r);
        let same = |list: &[&(Hash, Hash)]| {
            list.iter().take_while(|(_, r)| Some(*r) == list.first().map(|(_, r)| *r)).count()
        };
        let row = same(&in_row);
        // As if the other of the pair had just been made, or this one.
        let paired = self.alternating(call, 0).max(self.alternating(call, 1));
        (u32::try_from(row.max(paired)).unwrap_or(u32::MAX), result)
    }

    fn alternating(&self, call: Hash, offset: usize) -> usize {
        let mine: Vec<_> = self.past.iter().rev().skip(offset).step_by(2).collect();
        let others: Vec<_> = self.past.iter().rev().skip(1 - offset).step_by(2).collect();
        let same = |list: &[&(Hash, Hash)], first: Option<Hash>| {
            let head = list.first().filter(|(c, _)| first.is_none_or(|f| *c == f));
            head.map_or(0, |head| list.iter().take_while(|pair| *pair == head).count())
        };
        let count = same(&mine, Some(call));
        // The other one must repeat as well, or this is work in progress and no loop.
        let both = count.min(same(&others, None));
        if both < 2 { 0 } else { both }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(guard: &mut Guard, call: Hash, result: &str) -> Again {
        match guard.before(call) {
            Again::Fine => guard.made(call, result),
            Again::Refuse(n) => {
                guard.withheld(call);
                Again::Refuse(n)
            }
            other => other,
        }
    }

    #[test]
    fn oc_37_1_the_same_call_is_noted_then_refused_then_ends() {
        let (mut guard, call) = (Guard::new(4), call_hash("read_file", "{}"));
        let seen: Vec<Again> = (0..6).map(|_| walk(&mut guard, call, "missing")).collect();
        let wanted =
            [Again::Fine, Again::Fine, Again::Note(3), Again::Refuse(4), Again::Refuse(5), Again::Stop(6)];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn oc_37_2_an_alternating_pair_ends_too() {
        let mut guard = Guard::new(3);
        let (a, b) = (call_hash("read_file", "a"), call_hash("read_file", "b"));
        let mut executed = 0;
        for _ in 0..40 {
            for call in [a, b] {
                match walk(&mut guard, call, "missing") {
                    Again::Stop(_) => {
                        assert!(executed <= 10, "{executed}");
                        return;
                    }
                    Again::Fine | Again::Note(_) => executed += 1,
                    Again::Refuse(_) => {}
                }
            }
        }
        panic!("never ended");
    }

    #[test]
    fn a_changing_result_is_no_loop() {
        let (mut guard, call) = (Guard::new(3), call_hash("run_shell", "date"));
        for i in 0..50 {
            assert_eq!(walk(&mut guard, call, &format!("{i}")), Again::Fine);
        }
    }

    #[test]
    fn test_edit_test_edit_is_work_and_no_loop() {
        let mut guard = Guard::new(3);
        let test = call_hash("run_shell", "make test");
        for i in 0..20 {
            assert_eq!(walk(&mut guard, test, "1 failed"), Again::Fine);
            assert_eq!(walk(&mut guard, call_hash("edit_file", &i.to_string()), "edited"), Again::Fine);
        }
    }

    #[test]
    fn another_call_arms_the_guard_anew() {
        let mut guard = Guard::new(3);
        let (a, b) = (call_hash("list_dir", "{}"), call_hash("search", "{}"));
        walk(&mut guard, a, "x");
        walk(&mut guard, a, "x");
        assert!(matches!(guard.before(a), Again::Refuse(3)));
        walk(&mut guard, b, "y");
        walk(&mut guard, b, "y");
        assert_eq!(guard.before(a), Again::Fine);
    }
}
