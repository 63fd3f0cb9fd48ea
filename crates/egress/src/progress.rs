//! How far all connections are, told while they go on.

use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::Instant;

use crate::Event;
use crate::connection::Inner;

/// No sooner than this after the word before.
const LEAST: Duration = Duration::from_secs(2);
/// And no sooner than such a part of the whole time: the words of a long run stay few.
const PART: u32 = 60;

/// The last word.
pub(crate) struct Said {
    since: Instant,
    next: Instant,
    told: Counts,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    open: u64,
    connections: u64,
    up: u64,
    down: u64,
    unanswered: u64,
}

impl Said {
    pub(crate) fn new() -> Said {
        let now = Instant::now();
        Said { since: now, next: now, told: Counts::default() }
    }
}

impl Inner {
    /// Tells it, where it is time and something has changed.
    pub(crate) fn progress(&self) {
        let now = Instant::now();
        let counts = {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            let ((open, connections), (up, down)) = (self.counted(), self.passed.both());
            let counts = Counts { open, connections, up, down, unanswered: self.unnamed() };
            if now < said.next || counts == said.told {
                return;
            }
            let wait = LEAST.max(now.duration_since(said.since) / PART);
            (said.next, said.told) = (now + wait, counts);
            counts
        };
        let Counts { open, connections, up, down, unanswered } = counts;
        self.tell(Event::Progress { open, connections, up, down, unanswered });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::caps::Direction;
    use crate::connection::Connection;
    use crate::{Caps, Direct, Missed, Roots, Sink, System, Terms, Way};

    #[derive(Default)]
    struct Told(Mutex<Vec<Event>>);

    impl Sink for Told {
        fn tell(&self, event: Event) -> bool {
            self.0.lock().unwrap().push(event);
            true
        }
    }

    fn opened() -> (Arc<Inner>, Arc<Told>) {
        let told = Arc::<Told>::default();
        let terms = Terms {
            granted: Vec::new(),
            caps: Caps::default(),
            own: Vec::new(),
            roots: Roots::System,
            resolver: Arc::new(System::default()),
            dialer: Arc::new(Direct),
            sink: told.clone(),
        };
        (Arc::new(Inner::new(terms)), told)
    }

    fn words(told: &Told) -> Vec<(u64, u64, u64, u64)> {
        let told = told.0.lock().unwrap();
        let words = told.iter().filter_map(|event| match event {
            Event::Progress { open, connections, up, down, .. } => Some((*open, *connections, *up, *down)),
            _ => None,
        });
        words.collect()
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_told_when_something_has_changed_and_no_sooner_than_it_may() {
        let (inner, told) = opened();
        inner.progress();
        assert!(words(&told).is_empty());
        let guest = Connection::admit(&inner, Way::Proxy).unwrap();
        let tool = Connection::admit(&inner, Way::Fetch).unwrap();
        guest.pass(Direction::Up, 7).await.unwrap();
        inner.progress();
        tool.pass(Direction::Down, 100).await.unwrap();
        inner.progress();
        assert_eq!(words(&told), [(2, 2, 7, 0)]);
        tokio::time::advance(LEAST).await;
        drop(guest);
        inner.progress();
        tokio::time::advance(LEAST).await;
        inner.progress();
        assert_eq!(words(&told), [(2, 2, 7, 0), (1, 2, 7, 100)]);
    }

    /// Of a run whose executor is killed there is no other word about them.
    #[tokio::test(start_paused = true)]
    async fn questions_that_are_only_counted_are_told_while_it_goes_on() {
        let (inner, told) = opened();
        let unanswered = || {
            let told = told.0.lock().unwrap();
            told.iter().rev().find_map(|event| match event {
                Event::Progress { unanswered, .. } => Some(*unanswered),
                _ => None,
            })
        };
        assert!(!inner.missed(&Missed::More { questions: 4 }));
        inner.progress();
        assert_eq!(unanswered(), Some(4));
        assert!(!inner.missed(&Missed::More { questions: 8 }));
        inner.progress();
        assert_eq!(unanswered(), Some(4));
        tokio::time::advance(LEAST).await;
        inner.progress();
        assert_eq!(unanswered(), Some(8));
    }

    /// What was told last is never more than what connections tell at their end, all together.
    #[tokio::test(start_paused = true)]
    async fn the_ends_of_all_connections_come_to_the_same() {
        let (inner, told) = opened();
        let guest = Connection::admit(&inner, Way::Connect).unwrap();
        guest.pass(Direction::Up, 5).await.unwrap();
        guest.pass(Direction::Down, 50).await.unwrap();
        drop(guest);
        inner.progress();
        assert_eq!(words(&told), [(0, 1, 5, 50)]);
        let told = told.0.lock().unwrap();
        assert!(matches!(told.first(), Some(Event::Closed { up: 5, down: 50, .. })), "{told:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_day_of_it_is_some_hundred_words() {
        let (inner, told) = opened();
        let guest = Connection::admit(&inner, Way::Proxy).unwrap();
        let mut within_an_hour = 0;
        for second in 0..24 * 3600 {
            guest.pass(Direction::Down, 1).await.unwrap();
            inner.progress();
            tokio::time::advance(Duration::from_secs(1)).await;
            if second == 3600 {
                within_an_hour = words(&told).len();
            }
        }
        let all = words(&told).len();
        assert!((150..300).contains(&within_an_hour) && (350..500).contains(&all), "{within_an_hour} {all}");
    }
}
