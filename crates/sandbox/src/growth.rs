//! By how much calls make a disk grow, each by its own bound.
//!
//! Who wrote what cannot be seen. Where several calls run at once, what they add counts for each. What a call left
//! running goes before a call that runs is struck; until then it may add what its call did not use up.

/// The calls of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    calls: Vec<Guest>,
    /// Where what ended calls left running is over, as far as these had a bound.
    kept: Option<u64>,
}

/// A call under way.
#[derive(Debug)]
pub(crate) struct Guest {
    id: u32,
    /// Bytes that it may add, and what there was when it began.
    most: Option<u64>,
    base: u64,
    /// Nobody else was there since it began.
    alone: bool,
}

impl Guest {
    pub(crate) fn is_bounded(&self) -> bool {
        self.most.is_some()
    }

    fn is_over(&self, now: u64) -> bool {
        self.most.is_some_and(|most| now > self.base.saturating_add(most))
    }
}

impl Growth {
    /// A call begins, which may add `most`; whether others are there beside calls.
    pub(crate) fn enter(&mut self, id: u32, most: Option<u64>, now: u64, others: bool) {
        let alone = self.calls.is_empty() && !others;
        self.calls.iter_mut().for_each(|call| call.alone = false);
        self.calls.push(Guest { id, most, base: now, alone });
    }

    /// It is over.
    pub(crate) fn take(&mut self, id: u32) -> Option<Guest> {
        let at = self.calls.iter().position(|call| call.id == id)?;
        Some(self.calls.swap_remove(at))
    }

    /// What there is after it; whether it has added too much, and nobody else can have done it.
    pub(crate) fn leave(&mut self, call: Option<Guest>, now: u64, background: bool) -> bool {
        let Some(call) = call else { return false };
        // Its own is no reason to end what earlier ones left.
        self.kept = self.kept.map(|kept| kept.saturating_add(now.saturating_sub(call.base)));
        if let (true, Some(most)) = (background, call.most) {
            self.kept = Some(self.kept.unwrap_or(0).max(call.base.saturating_add(most)));
        }
        call.alone && call.is_over(now)
    }

    /// The calls that are over, and whether anybody at all is.
    pub(crate) fn over(&self, now: u64) -> Option<Vec<u32>> {
        let over: Vec<u32> = self.calls.iter().filter(|call| call.is_over(now)).map(|call| call.id).collect();
        let kept = self.calls.is_empty() && self.kept.is_some_and(|kept| now > kept);
        (kept || !over.is_empty()).then_some(over)
    }

    /// What ended calls had left running is gone, and what there is now is nobody's.
    pub(crate) fn swept(&mut self, now: u64) {
        self.kept = None;
        self.calls.iter_mut().for_each(|call| call.base = now);
    }

    /// No call is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    /// All calls under way.
    pub(crate) fn all(&self) -> Vec<u32> {
        self.calls.iter().map(|call| call.id).collect()
    }

    /// The least that one of them may add.
    pub(crate) fn least(&self) -> Option<u64> {
        self.calls.iter().filter_map(|call| call.most).min()
    }

    /// Whether it matters how much there is.
    pub(crate) fn is_bounded(&self) -> bool {
        self.kept.is_some() || self.least().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leave(growth: &mut Growth, id: u32, now: u64, background: bool) -> bool {
        let call = growth.take(id);
        growth.leave(call, now, background)
    }

    #[test]
    fn a_call_is_over_when_it_alone_added_more_than_it_may() {
        let mut growth = Growth::default();
        growth.enter(1, Some(10), 100, false);
        assert_eq!(growth.over(110), None);
        assert_eq!(growth.over(111), Some(vec![1]));
        assert!(leave(&mut growth, 1, 111, false));
        growth.enter(2, Some(10), 111, false);
        assert!(!leave(&mut growth, 2, 121, false));
    }

    #[test]
    fn a_call_that_was_not_alone_is_not_told_at_its_end() {
        let mut growth = Growth::default();
        growth.enter(1, Some(10), 0, false);
        growth.enter(2, None, 0, false);
        assert_eq!(growth.over(11), Some(vec![1]));
        assert!(!leave(&mut growth, 2, 11, false) && !leave(&mut growth, 1, 11, false));
        growth.enter(3, Some(10), 0, true);
        assert!(!leave(&mut growth, 3, 11, false));
    }

    #[test]
    fn what_a_call_left_running_may_add_what_its_call_did_not() {
        let mut growth = Growth::default();
        growth.enter(1, Some(10), 0, false);
        assert!(!leave(&mut growth, 1, 4, true));
        assert_eq!((growth.over(10), growth.over(11)), (None, Some(Vec::new())));
        // What the next one adds is the next one's.
        growth.enter(2, Some(10), 4, true);
        assert_eq!((growth.over(14), growth.over(15)), (None, Some(vec![2])));
        leave(&mut growth, 2, 14, false);
        assert_eq!((growth.over(20), growth.over(21)), (None, Some(Vec::new())));
        growth.swept(21);
        assert_eq!(growth.over(100), None);
        assert!(!growth.is_bounded());
    }
}
