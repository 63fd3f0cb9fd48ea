//! One connection on its way: what it asked for, what was decided, how much passed.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use policy::{Decision, Target, shown};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::caps::{Direction, Flow};
use crate::dial;
use crate::guest::Guest;
use crate::judge::{Judge, Opened, told};
use crate::missed::Names;
use crate::pool::Pool;
use crate::progress::Said;
use crate::tls::Tls;
use crate::{Caps, Decided, Dial, Ended, Event, Full, Granted, Refused, Sink, Terms, Way};

/// Addresses of an answer that are tried.
const TRIED: usize = 4;

/// Connections that are kept aside for tools, whatever the guest does.
const ASIDE: usize = 8;
/// Events that a connection may come to: its destination, its first bytes, what it carries, its end.
const EVENTS: u64 = 4;
/// Bytes that each of these is let in with; no more are counted than it told.
const EVENT: u64 = 4 << 10;
/// Connections that were turned away and are told one by one; more of them are told as a number.
const TURNED_AWAY: u64 = 1000;

/// What all connections share.
pub(crate) struct Inner {
    pub(crate) caps: Caps,
    pub(crate) judge: Judge,
    pub(crate) flow: Flow,
    pub(crate) tls: Tls,
    /// What all may hold that is on its way.
    pub(crate) pool: Pool,
    dialer: Arc<dyn Dial>,
    sink: Arc<dyn Sink>,
    guests: Lane,
    tools: Lane,
    connections: AtomicU64,
    turned_away: AtomicU64,
    /// Bytes of all connections, as each counts its own.
    pub(crate) passed: Passed,
    pub(crate) said: Mutex<Said>,
    pub(crate) names: Mutex<Names>,
}

/// What connections of one kind may take: neither kind can use up the other's.
struct Lane {
    open: Arc<Semaphore>,
    places: usize,
    connections: AtomicU64,
    /// Told, or promised to a connection that is open.
    events: AtomicU64,
    /// Bytes of these.
    bytes: AtomicU64,
}

/// One connection. That it ended is told when it is closed, or dropped.
pub(crate) struct Connection {
    pub(crate) inner: Arc<Inner>,
    number: u64,
    pub(crate) way: Way,
    asked: String,
    began: Instant,
    pub(crate) passed: Passed,
    /// Whether its end was told.
    told: bool,
    /// Events that it may still tell.
    events: u64,
    /// Bytes that are left of those that it was let in with.
    bytes: u64,
    lane: fn(&Inner) -> &Lane,
    _permit: OwnedSemaphorePermit,
}

/// Bytes of one connection.
#[derive(Default)]
pub(crate) struct Passed {
    up: AtomicU64,
    down: AtomicU64,
}

impl Inner {
    pub(crate) fn new(terms: Terms) -> Inner {
        let Terms { granted, caps, own, roots, resolver, dialer, sink } = terms;
        Inner {
            judge: Judge::new(granted, own, resolver, caps.connect, caps.star_names),
            flow: Flow::new(&caps),
            tls: Tls::new(roots),
            pool: Pool::new(),
            dialer,
            sink,
            guests: Lane::new(caps.open),
            tools: Lane::new(ASIDE),
            connections: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
            passed: Passed::default(),
            said: Mutex::new(Said::new()),
            names: Mutex::default(),
            caps,
        }
    }

    /// Tells of a connection that was not let in, as long as that is not all there is to tell.
    fn turn_away(&self, number: u64, way: Way, full: Full) {
        if self.turned_away.fetch_add(1, Ordering::Relaxed) < TURNED_AWAY {
            self.sink.tell(Event::Closed {
                connection: number,
                way,
                asked: String::new(),
                up: 0,
                down: 0,
                lasted_ms: 0,
                ended: Ended::TooMany(full),
            });
        }
    }

    /// Connections that were turned away, beyond those of which each was told.
    pub(crate) fn untold(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed).saturating_sub(TURNED_AWAY)
    }

    pub(crate) fn tell(&self, event: Event) -> bool {
        self.sink.tell(event)
    }

    /// Takes room for one event of the guest's that belongs to no connection.
    pub(crate) fn room_for_one(&self) -> bool {
        self.guests.room(&self.caps, 1)
    }

    /// Connections that are there now, and all that were let in.
    pub(crate) fn counted(&self) -> (u64, u64) {
        let lanes = [&self.guests, &self.tools];
        let sum = |of: fn(&Lane) -> u64| lanes.into_iter().map(of).fold(0, u64::saturating_add);
        (sum(Lane::there), sum(|lane| lane.connections.load(Ordering::Relaxed)))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let connections = self.untold();
        if connections > 0 {
            self.sink.tell(Event::TurnedAway { connections });
        }
        let questions = self.unnamed();
        if questions > 0 {
            self.sink.tell(Event::Unanswered { questions });
        }
    }
}

impl Lane {
    fn new(open: usize) -> Lane {
        Lane {
            open: Arc::new(Semaphore::new(open)),
            places: open,
            connections: AtomicU64::new(0),
            events: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Room for one more connection, with all that it may come to tell.
    fn enter(&self, caps: &Caps) -> Result<OwnedSemaphorePermit, Full> {
        let permit = self.open.clone().try_acquire_owned().map_err(|_| Full::Open)?;
        if !self.room(caps, EVENTS) {
            return Err(Full::Record);
        }
        if !more(&self.bytes, EVENTS * EVENT, caps.event_bytes) {
            self.events.fetch_sub(EVENTS, Ordering::Relaxed);
            return Err(Full::Record);
        }
        if !more(&self.connections, 1, caps.connections) {
            self.events.fetch_sub(EVENTS, Ordering::Relaxed);
            self.bytes.fetch_sub(EVENTS * EVENT, Ordering::Relaxed);
            return Err(Full::Connections);
        }
        Ok(permit)
    }

    /// Takes room for so many events.
    fn room(&self, caps: &Caps, events: u64) -> bool {
        more(&self.events, events, caps.events)
    }

    fn there(&self) -> u64 {
        u64::try_from(self.places.saturating_sub(self.open.available_permits())).unwrap_or(u64::MAX)
    }
}

/// Adds where that does not pass a bound.
fn more(count: &AtomicU64, by: u64, most: u64) -> bool {
    let add = |so_far: u64| so_far.checked_add(by).filter(|sum| *sum <= most);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

impl Passed {
    fn add(&self, direction: Direction, bytes: u64) {
        let passed = match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        };
        passed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that have passed either way.
    pub(crate) fn both(&self) -> (u64, u64) {
        (self.up.load(Ordering::Relaxed), self.down.load(Ordering::Relaxed))
    }
}

impl Connection {
    /// Lets a connection in, if there is room for it and for what it will come to.
    pub(crate) fn admit(inner: &Arc<Inner>, way: Way) -> Result<Connection, Full> {
        let number = inner.connections.fetch_add(1, Ordering::Relaxed);
        let lane: fn(&Inner) -> &Lane = match way {
            Way::Fetch => |inner| &inner.tools,
            Way::Proxy | Way::Connect | Way::Http | Way::Socks | Way::Transparent | Way::Name => {
                |inner| &inner.guests
            }
        };
        let permit =
            lane(inner).enter(&inner.caps).inspect_err(|full| inner.turn_away(number, way, *full))?;
        Ok(Connection {
            inner: inner.clone(),
            number,
            way,
            asked: String::new(),
            began: Instant::now(),
            passed: Passed::default(),
            told: false,
            events: EVENTS,
            bytes: EVENTS * EVENT,
            lane,
            _permit: permit,
        })
    }

    pub(crate) fn close(mut self, ended: Ended) {
        self.ends(ended);
    }

    /// Tells its end before its last word goes to the guest: who hears that may be gone at once, and its call with it.
    pub(crate) fn ends(&mut self, ended: Ended) -> Ended {
        if !std::mem::replace(&mut self.told, true) {
            let (up, down) = self.passed.both();
            let closed = Event::Closed {
                connection: self.number,
                way: self.way,
                asked: std::mem::take(&mut self.asked),
                up,
                down,
                lasted_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
                ended: ended.clone(),
            };
            self.tell(closed);
        }
        ended
    }

    /// Its last word to the guest, that the server is gone.
    pub(crate) async fn server_gone<S: AsyncRead + AsyncWrite + Unpin + Send>(
        &mut self,
        guest: &mut Guest<S>,
        why: String,
        word: &[u8],
    ) -> Ended {
        let ended = self.ends(Ended::ServerGone(why));
        guest.farewell(word).await;
        ended
    }

    /// By when a head must be complete that begins now.
    pub(crate) fn head_deadline(&self) -> Instant {
        Instant::now() + self.inner.caps.head
    }

    /// The decision about a destination, told before anything comes of it.
    pub(crate) async fn decide(&mut self, target: &Target) -> Result<Opened, Refused> {
        self.asked = target.to_string();
        let decided = self.inner.judge.decide(target).await;
        match decided {
            Ok(opened) => {
                let addresses = opened.addresses.iter().map(|pinned| pinned.address().ip()).collect();
                if !self.decided(Decision::allow("egress"), Some(&opened.granted), (addresses, 0)) {
                    let reason = "what is decided cannot be written down, so nothing is allowed".to_owned();
                    return Err(Refused::new("egress-record", reason));
                }
                Ok(opened)
            }
            Err(denied) => {
                let decision = Decision::refuse(denied.refused.rule, denied.refused.reason.clone());
                let addresses = (denied.addresses, denied.more_addresses);
                self.decided(decision, denied.granted.as_deref(), addresses);
                Err(denied.refused)
            }
        }
    }

    /// A refusal that is not the judge's: of a text that names nothing, or of what a connection carries.
    pub(crate) fn refuse(&mut self, asked: &str, refused: Refused) -> Ended {
        if self.asked.is_empty() {
            self.asked = shown(asked); // It is told as what was asked, not in words of ours.
        }
        self.decided(Decision::refuse(refused.rule, refused.reason), None, (Vec::new(), 0));
        Ended::Refused
    }

    /// What it asked for, as far as that is known.
    pub(crate) fn asked(&self) -> &str {
        &self.asked
    }

    /// Notes what it asked for, where nothing is decided about it.
    pub(crate) fn asks(&mut self, target: &Target) {
        self.asked = target.to_string();
    }

    /// Tells one event of those that it was let in with; the last is for its end. Beside the addresses, how many more
    /// there were.
    fn decided(
        &mut self,
        decision: Decision,
        granted: Option<&Granted>,
        (addresses, more_addresses): (Vec<IpAddr>, usize),
    ) -> bool {
        if self.events < 2 {
            return false;
        }
        self.events -= 1;
        let rule = granted.map(|granted| granted.destination().rule().to_string());
        let header = granted.and_then(Granted::header).map(|(name, _)| name.to_owned());
        self.tell(Event::Decided(Decided {
            connection: Some(self.number),
            way: self.way,
            asked: self.asked.clone(),
            decision,
            rule,
            addresses,
            more_addresses,
            header,
        }))
    }

    /// Tells, and counts its bytes; what is longer than was thought is counted beyond.
    fn tell(&mut self, event: Event) -> bool {
        let bytes = event.bytes();
        let beyond = bytes.saturating_sub(self.bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
        if beyond > 0 {
            (self.lane)(&self.inner).bytes.fetch_add(beyond, Ordering::Relaxed);
        }
        self.inner.sink.tell(event)
    }

    /// Connects to the first of the pinned addresses that answers.
    pub(crate) async fn dial(&self, opened: &Opened) -> Result<TcpStream, String> {
        let patience = self.inner.caps.connect;
        let mut why = String::new();
        for pinned in opened.addresses.iter().take(TRIED) {
            match tokio::time::timeout(patience, self.inner.dialer.dial(*pinned)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(e)) => why = dial::why(&e),
                Err(_) => why = format!("no answer within {} s", patience.as_secs()),
            }
        }
        Err(format!("`{}` is granted, but could not be reached: {why}", told(&opened.target)))
    }

    /// Counts bytes that are about to pass, and waits until they may.
    pub(crate) async fn pass(&self, direction: Direction, bytes: usize) -> Result<(), Ended> {
        self.take(direction, bytes)?;
        self.pace(direction, bytes).await;
        Ok(())
    }

    /// Waits until so many bytes may pass.
    pub(crate) async fn pace(&self, direction: Direction, bytes: usize) {
        self.inner.flow.pace(direction, bytes).await;
    }

    /// How many bytes take their turn together.
    pub(crate) fn turn(&self) -> usize {
        self.inner.flow.turn()
    }

    /// Counts bytes that are about to pass.
    pub(crate) fn take(&self, direction: Direction, bytes: usize) -> Result<(), Ended> {
        if !self.inner.flow.take(direction, bytes) {
            return Err(match direction {
                Direction::Up => Ended::UpBytes,
                Direction::Down => Ended::DownBytes,
            });
        }
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.passed.add(direction, bytes);
        self.inner.passed.add(direction, bytes);
        Ok(())
    }

    /// For how long nothing may pass.
    pub(crate) fn idle(&self) -> Duration {
        self.inner.caps.idle
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // What it did not need is free again.
        (self.lane)(&self.inner).events.fetch_sub(self.events.saturating_sub(1), Ordering::Relaxed);
        self.ends(Ended::Dropped);
        (self.lane)(&self.inner).bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
