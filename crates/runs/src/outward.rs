//! The way out of a run: whoever comes to the doors of its sandbox is served by the egress, and what that decides is in
//! the record before a byte passes.
//!
//! ```text
//!   guest ──▶ door ──Knock──▶ here ──▶ egress ──judged──▶ the granted destination
//!                              │          └ event ─▶ record, and a sentence for the model where it is a refusal
//!   guest ─▶ resolver ─Missed─▶ here, before the end of its call is written, and the same way on
//!                              └ a record that cannot be written closes every connection
//! ```

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use egress::{Dial, Direct, Egress, Fetched, NotFetched, Resolve, Sink, System, Terms};
use policy::{Destination, Traffic};
use sandbox::{Asked, Doors, GuestStream, Knock, Missed, Name, Running};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::record::Record;
use crate::refusals::Refusals;
use crate::serving::Serving;
use crate::{Event, Granted, Run, RunError};

/// How often it is looked at how far connections are. How often that is told, the egress knows.
const LOOK: Duration = Duration::from_secs(1);

/// What may be reached, as a sandbox has to know it.
pub(crate) fn doors(granted: &[Destination]) -> Doors {
    let name = |destination: &Destination| {
        let (rule, port) = (destination.rule(), destination.rule().port());
        match (rule.host(), rule.parent()) {
            (Some(host), _) => Some(Name { host: host.to_string(), star: false, port }),
            (None, Some(parent)) => Some(Name { host: parent.as_str().to_owned(), star: true, port }),
            (None, None) => None,
        }
    };
    Doors { names: granted.iter().filter_map(name).collect() }
}

/// By whom names are resolved and connections made.
pub(crate) struct Means {
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) dialer: Arc<dyn Dial>,
}

impl Default for Means {
    /// This machine's own.
    fn default() -> Means {
        Means { resolver: Arc::new(System::default()), dialer: Arc::new(Direct) }
    }
}

impl Run {
    /// Opens its way out, by the means that are given: for its guest where its sandbox has doors.
    pub(crate) fn open_the_way_by(
        &mut self,
        granted: &[Granted],
        traffic: &Traffic,
        means: Means,
    ) -> Result<(), RunError> {
        let inside = self.running.as_ref();
        let (knocks, missed) = (inside.and_then(Running::knocks), inside.and_then(Running::missed));
        self.outward = Some(Outward::open(granted, traffic, &self.record, knocks, missed, means)?);
        Ok(())
    }
}

/// An open way out.
pub(crate) struct Outward {
    egress: Egress,
    told: Arc<Told>,
    names: Arc<Names>,
    /// None where the sandbox has no doors.
    serving: Option<Serving>,
    looking: JoinHandle<()>,
}

impl std::fmt::Debug for Outward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outward").finish_non_exhaustive()
    }
}

/// Names that its resolver did not know. Whoever takes them has them judged before another looks.
#[derive(Default)]
struct Names(Mutex<Option<mpsc::Receiver<Missed>>>);

/// Writes down what is decided.
struct Told {
    record: Arc<Record>,
    refused: Mutex<Refusals>,
    /// The record cannot be written: nothing passes any more.
    blind: Arc<Notify>,
}

impl Names {
    fn judge(&self, egress: &Egress, told: &Told) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(missed) = names.as_mut().and_then(|names| names.try_recv().ok()) {
            let each = egress.missed(&match missed {
                Missed::Unknown { host } => egress::Missed::Unknown { host },
                Missed::Full { host } => egress::Missed::Full { host },
                Missed::Odd => egress::Missed::Odd,
                Missed::More { questions } => egress::Missed::More { questions },
            });
            if !each {
                told.refused().more_names();
            }
        }
    }
}

impl Told {
    fn refused(&self) -> MutexGuard<'_, Refusals> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Told {
    fn tell(&self, event: egress::Event) -> bool {
        match &event {
            egress::Event::Decided(decided) if !decided.decision.is_allowed() => self.refused().add(decided),
            egress::Event::Closed { way, asked, down, ended, .. } => {
                self.refused().ended(*way, asked, *down, ended);
            }
            egress::Event::Decided(_)
            | egress::Event::Progress { .. }
            | egress::Event::TurnedAway { .. }
            | egress::Event::Unanswered { .. } => {}
        }
        let written = self.record.append(&Event::Egress(event)).is_ok();
        if !written {
            self.blind.notify_one();
        }
        written
    }
}

impl Outward {
    /// Opens the way, for a guest where its sandbox has doors, and for the tool `fetch_url` in any case.
    ///
    /// # Errors
    /// [`RunError::Io`] where this machine's own addresses cannot be told.
    pub(crate) fn open(
        granted: &[Granted],
        traffic: &Traffic,
        record: &Arc<Record>,
        knocks: Option<mpsc::Receiver<Knock>>,
        missed: Option<mpsc::Receiver<Missed>>,
        means: Means,
    ) -> Result<Outward, RunError> {
        let (record, blind) = (Arc::clone(record), Arc::new(Notify::new()));
        let told = Arc::new(Told { record, refused: Mutex::default(), blind: Arc::clone(&blind) });
        let sink: Arc<dyn Sink> = Arc::clone(&told) as Arc<dyn Sink>;
        let terms = Terms::new(granted.to_vec(), traffic, sink)
            .map_err(RunError::io("list this machine's addresses, by", Path::new("/proc/net")))?;
        let Means { resolver, dialer } = means;
        let egress = Egress::new(Terms { resolver, dialer, ..terms });
        let serving = knocks.map(|knocks| Serving::begin(egress.clone(), knocks, visit, blind));
        let names = Arc::new(Names(Mutex::new(missed)));
        let looking = tokio::spawn(look(egress.clone(), Arc::clone(&names), Arc::clone(&told)));
        Ok(Outward { egress, told, names, serving, looking })
    }

    /// Decides about every name that was asked for so far.
    pub(crate) fn judge(&self) {
        self.names.judge(&self.egress, &self.told);
    }

    /// What was refused, or ended by a bound, since this was last asked: clean sentences, fit for the model.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.told.refused().take(self.egress.untold())
    }

    /// Whether a guest can come to it.
    pub(crate) fn has_doors(&self) -> bool {
        self.serving.is_some()
    }

    /// The text at a URL, through the same decision.
    pub(crate) async fn fetch(&self, url: &str, most: usize) -> Result<Fetched, NotFetched> {
        self.egress.fetch(url, most).await
    }

    /// Ends it, when the sandbox is gone. Connections have told how they ended when this returns, and nothing is told any
    /// more: nobody else holds the egress then.
    pub(crate) async fn close(mut self) {
        self.looking.abort();
        (&mut self.looking).await.ok();
        self.judge();
        if let Some(serving) = self.serving.take() {
            serving.end().await;
        }
    }
}

impl Drop for Outward {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

/// Looks every now and then at what goes on: whoever reads the record meanwhile sees it.
async fn look(egress: Egress, names: Arc<Names>, told: Arc<Told>) {
    loop {
        tokio::time::sleep(LOOK).await;
        names.judge(&egress, &told);
        egress.progress();
    }
}

fn visit(Knock { way, stream }: Knock) -> (egress::Asked, GuestStream) {
    let asked = match way {
        Asked::Proxy => egress::Asked::Proxy,
        Asked::Named { host, port } => egress::Asked::Named { host, port },
    };
    (asked, stream)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use egress::{Dialing, Pinned};
    use policy::StopReason;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::net::TcpStream;

    use super::*;
    use crate::run::tests::Rig;
    use crate::{Cancel, ProgramCall};

    /// Connects to nobody, and never says so.
    struct Hangs;

    impl Future for Hangs {
        type Output = std::io::Result<TcpStream>;

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
            Poll::Pending
        }
    }

    /// Connects to nobody, and says so.
    struct Refuses;

    impl Dial for Refuses {
        fn dial(&self, _: Pinned) -> Dialing {
            Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) })
        }
    }

    impl Dial for Hangs {
        fn dial(&self, _: Pinned) -> Dialing {
            Box::pin(Hangs)
        }
    }

    /// Connects to a server of the test, whoever is meant.
    struct Leads(std::net::SocketAddr);

    impl Dial for Leads {
        fn dial(&self, _: Pinned) -> Dialing {
            Box::pin(TcpStream::connect(self.0))
        }
    }

    /// Opens a way out for a run whose dials hang; what its resolver missed can be said.
    fn opened(run: &mut Run) -> mpsc::Sender<Missed> {
        let to = policy::HostRule::parse("192.0.2.7:22").unwrap().into();
        let granted = [Granted::new(to, |_| None).unwrap()];
        let (say, missed) = mpsc::channel(200);
        let means = Means { dialer: Arc::new(Hangs), ..Means::default() };
        run.outward = Some(
            Outward::open(&granted, &Traffic::default(), &run.record, None, Some(missed), means).unwrap(),
        );
        say
    }

    fn serves(run: &mut Run) -> mpsc::Sender<DuplexStream> {
        let (knock, knocks) = mpsc::channel(200);
        let outward = run.outward.as_mut().unwrap();
        let asked = |stream| (egress::Asked::Proxy, stream);
        let blind = Arc::clone(&outward.told.blind);
        outward.serving = Some(Serving::begin(outward.egress.clone(), knocks, asked, blind));
        knock
    }

    fn unknown(host: &str) -> Missed {
        Missed::Unknown { host: host.to_owned() }
    }

    fn call() -> ProgramCall {
        ProgramCall {
            tool: "exec".to_owned(),
            argv: vec!["true".to_owned()],
            cwd: None,
            stdin: Vec::new(),
            terminal: false,
            timeout: None,
        }
    }

    fn kinds(rig: &Rig, id: &str) -> Vec<String> {
        let events = crate::show(&rig.store(), id).unwrap().events;
        let kind = |event: &serde_json::Value| {
            let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            if event["type"] == "egress" { text("event") } else { text("type") }
        };
        events.iter().map(kind).collect()
    }

    /// Many connections whose dial hangs when the run ends: each tells its end, and that before the run does.
    #[tokio::test]
    async fn a_run_that_ends_with_hanging_connections_has_a_whole_record() {
        const MANY: usize = 150;
        let rig = Rig::new();
        let mut run = rig.run();
        let id = run.id().to_owned();
        let say = opened(&mut run);
        let knock = serves(&mut run);
        let mut guests = Vec::new();
        for _ in 0..MANY {
            let (mut guest, stream) = duplex(1000);
            guest.write_all(b"CONNECT 192.0.2.7:22 HTTP/1.1\r\nHost: 192.0.2.7:22\r\n\r\n").await.unwrap();
            knock.send(stream).await.unwrap();
            guests.push(guest);
        }
        say.send(Missed::More { questions: 8 }).await.unwrap();
        while kinds(&rig, &id).iter().filter(|kind| *kind == "decided").count() < MANY {
            tokio::task::yield_now().await;
        }
        run.finish(StopReason::Finished, "", 0).await.unwrap();
        // Whoever has something left to say says it now.
        for _ in 0..2 * MANY {
            tokio::task::yield_now().await;
        }
        rig.result(&id);
        let kinds = kinds(&rig, &id);
        assert_eq!(kinds.iter().filter(|kind| *kind == "closed").count(), MANY);
        assert!(kinds.iter().any(|kind| kind == "unanswered"), "{kinds:?}");
        assert_eq!(kinds.last().unwrap(), "run_end");
    }

    /// What passes unseen must not pass: the first event that cannot be written ends what is open, at both ends.
    #[tokio::test]
    async fn a_record_that_cannot_be_written_closes_every_connection() {
        const ASK: &[u8] = b"CONNECT 192.0.2.7:22 HTTP/1.1\r\nHost: 192.0.2.7:22\r\n\r\n";
        const SOON: Duration = Duration::from_secs(300);
        let rig = Rig::new();
        let mut run = rig.run();
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = policy::HostRule::parse("192.0.2.7:22").unwrap().into();
        let granted = [Granted::new(to, |_| None).unwrap()];
        let means = Means { dialer: Arc::new(Leads(server.local_addr().unwrap())), ..Means::default() };
        run.outward =
            Some(Outward::open(&granted, &Traffic::default(), &run.record, None, None, means).unwrap());
        let knock = serves(&mut run);
        let (mut guest, stream) = duplex(1000);
        guest.write_all(ASK).await.unwrap();
        knock.send(stream).await.unwrap();
        let (mut far, _) = server.accept().await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"\r\n\r\n") {
            heard.push(guest.read_u8().await.unwrap());
        }
        assert!(heard.starts_with(b"HTTP/1.1 200"), "{heard:?}");
        let mut echo = [0; 4];
        guest.write_all(b"word").await.unwrap();
        far.read_exact(&mut echo).await.unwrap();
        far.write_all(&echo).await.unwrap();
        guest.read_exact(&mut echo).await.unwrap();
        assert_eq!(&echo, b"word");
        // Nothing is written behind the last line, as nothing is on a full disk.
        run.record.end(StopReason::Finished, "", None).unwrap();
        let (mut other, stream) = duplex(1000);
        other.write_all(ASK).await.unwrap();
        knock.send(stream).await.unwrap();
        for end in [&mut guest as &mut (dyn tokio::io::AsyncRead + Unpin), &mut far] {
            let more = tokio::time::timeout(SOON, end.read_u8()).await.expect("it goes on unseen");
            assert!(more.is_err(), "{more:?}");
        }
        // Nor does anything begin.
        tokio::time::timeout(SOON, knock.closed()).await.expect("somebody still serves");
    }

    /// The same where nobody ends it in order.
    #[tokio::test]
    async fn a_run_that_is_dropped_with_an_open_connection_has_a_whole_record() {
        let rig = Rig::new();
        let mut run = rig.run();
        let id = run.id().to_owned();
        let _say = opened(&mut run);
        let knock = serves(&mut run);
        let (_guest, stream) = duplex(1000);
        knock.send(stream).await.unwrap();
        tokio::task::yield_now().await;
        drop(run);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        rig.result(&id);
        assert_eq!(kinds(&rig, &id).last().unwrap(), "run_end");
    }

    /// Also of a call that was lost.
    #[tokio::test]
    async fn names_are_decided_before_the_end_of_their_call() {
        let rig = Rig::new();
        let mut run = rig.run();
        let id = run.id().to_owned();
        let say = opened(&mut run);
        say.send(unknown("other.test")).await.unwrap();
        assert!(run.execute(call(), &Cancel::new().1).await.is_err());
        run.finish(StopReason::Finished, "", 0).await.unwrap();
        let kinds = kinds(&rig, &id);
        assert_eq!(kinds[..4], ["run_start", "tool_start", "decided", "tool_end"]);
        rig.result(&id);
    }

    /// A tool's refusal is its answer; names that a guest asked for are the next call's.
    #[tokio::test]
    async fn a_fetch_keeps_what_was_refused_to_others() {
        let rig = Rig::new();
        let mut run = rig.run();
        let say = opened(&mut run);
        say.send(unknown("other.test")).await.unwrap();
        run.outward.as_ref().unwrap().judge();
        let page = run.fetch("https://third.test/", Duration::from_secs(9), &Cancel::new().1).await.unwrap();
        assert!(page.answer.unwrap_err().contains("third.test"));
        let refused = run.outward.as_ref().unwrap().refused();
        assert!(refused.len() == 1 && refused[0].contains("`other.test` is not granted"), "{refused:?}");
    }

    /// A bound that strikes, and a granted server that is down, are told with the call; the record has them as before.
    #[tokio::test]
    async fn a_bound_and_a_dead_server_are_told_to_the_model() {
        let rig = Rig::new();
        let mut run = rig.run();
        let to = policy::HostRule::parse("192.0.2.7:22").unwrap().into();
        let granted = [Granted::new(to, |_| None).unwrap()];
        let traffic = Traffic { connections: 1, ..Traffic::default() };
        let means = Means { dialer: Arc::new(Refuses), ..Means::default() };
        run.outward = Some(Outward::open(&granted, &traffic, &run.record, None, None, means).unwrap());
        let outward = run.outward.as_ref().unwrap();
        let ask = || async {
            let (mut guest, stream) = duplex(1000);
            guest.write_all(b"CONNECT 192.0.2.7:22 HTTP/1.1\r\nHost: 192.0.2.7:22\r\n\r\n").await.unwrap();
            // Who has heard its answer is told at once: the call may be over then.
            let hears = async {
                guest.read_u8().await.ok();
                outward.refused()
            };
            tokio::join!(outward.egress.serve(egress::Asked::Proxy, stream), hears).1
        };
        assert_eq!(ask().await, ["`192.0.2.7:22` is granted, but could not be reached: connection refused"]);
        let full =
            "a connection was turned away, for the run has had as many as `network.connections` allows";
        // Also beyond those that are in the record one by one.
        for _ in 0..1100 {
            assert_eq!(ask().await, [full]);
        }
        assert!(outward.refused().is_empty());
        let id = run.id().to_owned();
        let events = crate::show(&rig.store(), &id).unwrap().events;
        let ends: Vec<_> = events.iter().filter_map(|event| event.get("ended")).collect();
        assert!(ends[0]["server-gone"].is_string() && ends[1] == "too-many", "{:?}", &ends[..2]);
    }

    #[tokio::test]
    async fn names_that_are_only_counted_are_a_sentence_too() {
        let rig = Rig::new();
        let mut run = rig.run();
        let say = opened(&mut run);
        say.send(Missed::More { questions: 1 }).await.unwrap();
        let outward = run.outward.as_ref().unwrap();
        outward.judge();
        assert_eq!(outward.refused(), ["further names that are not granted were asked for"]);
    }
}
