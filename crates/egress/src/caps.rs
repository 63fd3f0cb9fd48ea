//! What a run may take of the way out: connections, bytes, speed, time. Never unlimited.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use policy::Traffic;
use tokio::time::Instant;

/// The bounds of one [`crate::Egress`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Connections of the guest at the same time; one more is closed at once. Some more are kept aside for
    /// [`crate::Egress::fetch`].
    pub open: usize,
    /// Connections of the guest over the whole run, and as many of `fetch`.
    pub connections: u64,
    /// Bytes that go out, over the whole run.
    pub up: u64,
    /// Bytes that come in, over the whole run.
    pub down: u64,
    /// Bytes in a second, each way, of all connections together; none for as fast as it goes.
    pub rate: Option<u64>,
    /// From the first byte of a head, a greeting or a TLS hello to its last: whoever drips loses.
    pub head: Duration,
    /// Until a name is resolved, and until a connection is made.
    pub connect: Duration,
    /// Without a byte in either direction.
    pub idle: Duration,
    /// Of one connection.
    pub lifetime: Duration,
    /// Different names beneath stars: each name that is asked for is a message to whoever serves the zone.
    pub star_names: usize,
    /// Events of the guest that are told over the whole run, and as many of `fetch`: a connection for which there is no
    /// room in the record is not let in. Nothing passes untold.
    pub events: u64,
    /// Bytes of these events over the whole run, and as many of `fetch`; it counts as `events` does.
    pub event_bytes: u64,
}

impl Default for Caps {
    fn default() -> Self {
        Caps::from(&Traffic::default())
    }
}

/// What an operator can say; the rest is as it is.
impl From<&Traffic> for Caps {
    fn from(traffic: &Traffic) -> Self {
        let Traffic { open, connections, up, down, rate, idle, lifetime } = traffic;
        Caps {
            open: usize::try_from(*open).unwrap_or(usize::MAX),
            connections: (*connections).into(),
            up: *up,
            down: *down,
            rate: *rate,
            head: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            idle: *idle,
            lifetime: *lifetime,
            star_names: 64,
            events: 80_000,
            event_bytes: 24 << 20, // as many connections as there may be, each to a name of eight addresses
        }
    }
}

/// A direction, as seen from the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// Bytes and speed of all connections together.
pub(crate) struct Flow {
    up: Lane,
    down: Lane,
    rate: Option<u64>,
}

struct Lane {
    passed: AtomicU64,
    most: u64,
    /// When the next byte may pass.
    free: Mutex<Option<Instant>>,
}

impl Flow {
    pub(crate) fn new(caps: &Caps) -> Flow {
        let lane = |most| Lane { passed: AtomicU64::new(0), most, free: Mutex::new(None) };
        Flow { up: lane(caps.up), down: lane(caps.down), rate: caps.rate }
    }

    /// Takes so many bytes of what is left; false where that is less.
    pub(crate) fn take(&self, direction: Direction, bytes: usize) -> bool {
        let (lane, bytes) = (self.lane(direction), u64::try_from(bytes).unwrap_or(u64::MAX));
        let add = |passed: u64| passed.checked_add(bytes).filter(|sum| *sum <= lane.most);
        lane.passed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// How many bytes of one connection pass before it is another one's turn: with a rate, what takes a sixteenth of a
    /// second.
    pub(crate) fn turn(&self) -> usize {
        const LEAST: u64 = 1 << 10;
        self.rate.map_or(usize::MAX, |rate| usize::try_from((rate / 16).max(LEAST)).unwrap_or(usize::MAX))
    }

    /// Waits until so many bytes may pass.
    pub(crate) async fn pace(&self, direction: Direction, bytes: usize) {
        let Some(rate) = self.rate else { return };
        let nanos = u128::try_from(bytes).unwrap_or(u128::MAX).saturating_mul(1_000_000_000)
            / u128::from(rate.max(1));
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let until = {
            let mut free =
                self.lane(direction).free.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let from = free.unwrap_or_else(Instant::now).max(Instant::now());
            *free = Some(from + takes);
            from
        };
        tokio::time::sleep_until(until).await;
    }

    pub(crate) fn total(&self) -> (u64, u64) {
        (self.up.passed.load(Ordering::Relaxed), self.down.passed.load(Ordering::Relaxed))
    }

    fn lane(&self, direction: Direction) -> &Lane {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_pass_a_bound_is_not_taken_at_all() {
        let flow = Flow::new(&Caps { up: 10, down: 3, ..Caps::default() });
        assert!(flow.take(Direction::Up, 10) && !flow.take(Direction::Up, 1));
        assert!(!flow.take(Direction::Down, 4) && flow.take(Direction::Down, 3));
        assert_eq!(flow.total(), (10, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_held_over_all_connections_together() {
        let flow = Flow::new(&Caps { rate: Some(1000), ..Caps::default() });
        let began = Instant::now();
        for _ in 0..3 {
            tokio::join!(flow.pace(Direction::Up, 500), flow.pace(Direction::Up, 500));
        }
        // What went last is paid for by whoever comes next.
        flow.pace(Direction::Up, 1).await;
        assert_eq!(began.elapsed().as_secs(), 3);
    }
}
