//! An open sandbox: calls run in it until it is destroyed.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use policy::StoppedBy;
use tokio::sync::{Mutex, mpsc};

use crate::channel::{Arrival, Channel};
use crate::clock::{self, Clock};
use crate::disk::{Disk, Filled, Strikes};
use crate::doors::{Accepting, Knock, Knocks, Missed, Missing, Way};
use crate::engine_memory::EngineMemory;
use crate::launch::Counters;
use crate::machine::Results;
use crate::message::Tell;
use crate::report::Report;
use crate::sessions::{self, Sessions};
use crate::wasm::Struck;
use crate::wire::{End, MAX_PAYLOAD, Own, Start, Whose};
use crate::{Call, Cancel, Ended, Host, Job, Outcome, SandboxError, Stream, Usage};

/// How long a killed call may take to be gone before the whole sandbox is killed.
const GRACE: Duration = Duration::from_secs(5);
/// How long at the most while it passes no bound, or where results would be lost.
const LONG: Duration = Duration::from_secs(20);
/// How long the forker may take to say that a sandbox is gone.
const GONE: Duration = Duration::from_secs(10);
/// How long a machine may take to write its results out.
const OUT: Duration = Duration::from_secs(180);
/// Room for the head of a start frame.
const HEAD: usize = 256 << 10;

/// What both a ready and a running sandbox are.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) report: Report,
    pub(crate) channel: Arc<Channel>,
    pub(crate) tells: Tells,
    pub(crate) lease: Lease,
    pub(crate) wall: Duration,
    /// Who watches the workspace; none where it is an image of its own.
    pub(crate) disk: Option<Disk>,
    /// Who counts the processor time of the sandbox; none where init alone does.
    pub(crate) clock: Option<Clock>,
    /// What a machine's monitor may hold, where no group holds it.
    pub(crate) engine: Option<EngineMemory>,
    /// Its first process, where sessions must be lowered.
    pub(crate) sessions: Option<i32>,
    /// What it may use.
    pub(crate) cpu: Duration,
    /// What must be brought out at the end; none where the guest works on the workspace itself.
    pub(crate) results: Option<Results>,
    /// The way out that a grant opens.
    pub(crate) way: Option<Way>,
}

/// Ends the sandbox when dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) host: Host,
    pub(crate) id: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Fails only when the forker is gone, and everything with it.
        drop(self.host.kill(self.id));
    }
}

/// Answers about one sandbox.
pub(crate) type Tells = mpsc::UnboundedReceiver<Tell>;

/// A started sandbox: init answered and its layers were measured.
#[derive(Debug)]
pub struct Running {
    report: Report,
    disk: Option<Disk>,
    clock: Option<Clock>,
    engine: Option<EngineMemory>,
    sessions: Option<i32>,
    /// What its clock may say at the most.
    cpu: Duration,
    channel: Arc<Channel>,
    tells: Mutex<Tells>,
    lease: Lease,
    next: AtomicU32,
    /// Questions about counters.
    asked: AtomicU64,
    /// When the sandbox's own wall clock ends.
    ends: Instant,
    results: Option<Results>,
    /// Who takes connections, where it is not init.
    accepting: Option<Accepting>,
    /// Until somebody asks for them.
    knocks: std::sync::Mutex<Option<Knocks>>,
    missing: std::sync::Mutex<Option<Missing>>,
}

impl Running {
    pub(crate) fn new(sandbox: Sandbox) -> Running {
        let Sandbox { report, channel, tells, lease, wall, disk, clock, engine, sessions, cpu, results, way } =
            sandbox;
        let ends = Instant::now() + wall;
        // What the way in took is nothing that a guest has used.
        let cpu = cpu.saturating_add(clock.as_ref().and_then(Clock::used).unwrap_or_default());
        let (tells, next) = (Mutex::new(tells), AtomicU32::new(1));
        let (accepting, knocks, missing) = match way {
            Some(Way { accepting, knocks, missing }) => (accepting, Some(knocks), Some(missing)),
            None => (None, None, None),
        };
        let (knocks, missing) = (std::sync::Mutex::new(knocks), std::sync::Mutex::new(missing));
        Running {
            report,
            disk,
            clock,
            engine,
            sessions,
            cpu,
            channel,
            tells,
            lease,
            next,
            asked: AtomicU64::new(0),
            ends,
            results,
            accepting,
            knocks,
            missing,
        }
    }

    /// The connections that a guest makes to what [`Plan::doors`](crate::Plan::doors) grants, once: none when nothing
    /// is granted, where the tier has no way, or when they were asked for before. Whoever has the receiver serves
    /// them; when it is dropped, new ones are refused. At most 256 are open at the same time, others wait. A stream
    /// that is held beyond the end of the sandbox gives what had come, and then an end or an error.
    pub fn knocks(&self) -> Option<mpsc::Receiver<Knock>> {
        self.knocks.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What a guest asks its resolver for and gets no address, once, as [`Running::knocks`]: each name once, at most 64
    /// names of a sandbox, and then how many questions more. It is there before whoever asked has its answer. Nothing waits for whoever has the receiver.
    pub fn missed(&self) -> Option<mpsc::Receiver<Missed>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What holds, as measured before any guest code ran.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Runs one call to its end; output is handed on piece by piece, in order, up to `call.output` bytes.
    ///
    /// When a bound strikes, everything the call started is killed before this returns.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] only when the sandbox was gone before the call began; a loss under way is an
    /// [`Outcome`] stopped by `sandbox_lost`.
    pub async fn run(
        &self,
        call: &Call,
        cancel: &Cancel,
        on_output: &mut (dyn FnMut(Stream, &[u8]) + Send),
    ) -> Result<Outcome, SandboxError> {
        let lost = |e: io::Error| SandboxError::Lost { doing: e.to_string() };
        if call.stdin.len() + HEAD > MAX_PAYLOAD {
            return Err(SandboxError::Lost { doing: "more standard input than a call may carry".to_owned() });
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        // Files may still be looked at, and a role ended; nothing else runs any more.
        if self.is_spent() && !matches!(call.job, Job::File(_)) {
            return Ok(Outcome::never(StoppedBy::Cpu));
        }
        // Before its first call a sandbox has counted nothing.
        let before = if id == 1 { Some(Counters::default()) } else { self.counters().await };
        let began = Instant::now();
        let full = match &self.disk {
            Some(disk) => disk.enter(id, call.bounds.disk).await.ok_or_else(|| SandboxError::Lost {
                doing: "nobody watches its workspace any more".to_owned(),
            })?,
            None => false,
        };
        let own = Own {
            cpu_ms: call.bounds.cpu.map(|cpu| u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX)),
            memory: call.bounds.memory,
            processes: call.bounds.processes.map(u64::from),
            disk: call.bounds.disk.filter(|_| self.disk.is_none()),
        };
        let start = Start { job: call.job.clone(), own, full };
        let start = self.channel.start(id, &start, &call.stdin);
        let Ok(started) = tokio::time::timeout(call.timeout.max(GRACE), start).await else {
            // A frame half sent cannot be taken back, and an init that does not read is not ours any more.
            drop(self.lease.host.kill(self.lease.id));
            return Err(SandboxError::Lost { doing: "it does not take the call".to_owned() });
        };
        let arrivals = started.map_err(lost)?;
        let mut watch = Watch { arrivals, bytes: [0, 0], cap: call.output, stopped: None };
        let strikes = self.disk.as_ref().map(Disk::strikes);
        let end = self.follow(id, call, (cancel, strikes), &mut watch, on_output).await;
        self.channel.forget(id);
        let left = end.as_ref().is_some_and(|e| e.background > 0);
        let leave = async {
            match &self.disk {
                Some(disk) => disk.leave(id, watch.stopped == Some(StoppedBy::Disk), left).await,
                None => Filled::No,
            }
        };
        // After a sound end too: a shell may survive what its child was killed for.
        let (filled, after) = tokio::join!(leave, self.counters());
        let [stdout_bytes, stderr_bytes] = watch.bytes;
        let ended = end.as_ref().map_or(Ended::Unknown, |e| e.ended);
        let stopped_by = match (watch.stopped, &end) {
            (Some(stopped), _) => stopped,
            // Where memory is short the kernel may take init itself, or an engine.
            (None, None) if rose(before, after, |c| c.oom_kills) => StoppedBy::Memory,
            (None, None) => StoppedBy::SandboxLost,
            (None, Some(end)) => match stopped_by(end, before, after) {
                // It failed, and for no other reason that is known, where it took the workspace beyond its bound; or it
                // alone took more than a call may.
                StoppedBy::Exit | StoppedBy::Signal
                    if filled == Filled::ByIt || (filled == Filled::Now && end.ended != Ended::Exit(0)) =>
                {
                    StoppedBy::Disk
                }
                other => other,
            },
        };
        Ok(Outcome {
            ended,
            stopped_by,
            usage: end.as_ref().map_or(Usage::default(), |e| e.usage),
            duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            stdout_bytes,
            stderr_bytes,
            background: end.as_ref().map_or(0, |e| e.background),
            leftovers: end.as_ref().and_then(|e| leftovers(e, before, after)),
        })
    }

    /// Whether the host's own clock says that the processor time of the sandbox is used up.
    fn is_spent(&self) -> bool {
        self.clock.as_ref().and_then(Clock::used).is_some_and(|used| used > self.cpu)
    }

    /// Returns when a bound is passed that is watched from outside.
    async fn struck(&self, id: u32, strikes: Option<Strikes>) -> StoppedBy {
        let spent = async {
            loop {
                tokio::time::sleep(clock::EVERY).await;
                if self.is_spent() {
                    return;
                }
            }
        };
        let swollen = async {
            loop {
                tokio::time::sleep(clock::EVERY).await;
                if self.engine.is_some_and(|engine| engine.is_over()) {
                    return;
                }
            }
        };
        let filled = async {
            if let Some(mut strikes) = strikes
                && strikes.wait_for(|struck| struck.contains(&id)).await.is_ok()
            {
                return;
            }
            std::future::pending::<()>().await;
        };
        let lowered = async {
            let mut sessions = self.sessions.map(Sessions::below);
            // There are none before it has begun, and to find them takes a look at every process of the host.
            tokio::time::sleep(sessions::SOON).await;
            loop {
                if let Some(sessions) = &mut sessions {
                    sessions.lower();
                }
                tokio::time::sleep(sessions::EVERY).await;
            }
        };
        tokio::select! {
            never = lowered, if self.sessions.is_some() => never,
            () = spent, if self.clock.is_some() => StoppedBy::Cpu,
            () = swollen, if self.engine.is_some() => StoppedBy::Memory,
            () = filled => StoppedBy::Disk,
        }
    }

    /// Waits for the end of a call, or makes one.
    async fn follow(
        &self,
        id: u32,
        call: &Call,
        (cancel, strikes): (&Cancel, Option<Strikes>),
        watch: &mut Watch,
        on_output: &mut (dyn FnMut(Stream, &[u8]) + Send),
    ) -> Option<End> {
        let struck = tokio::select! {
            over = watch.until_end(on_output) => match over {
                Over::End(end) => return Some(end),
                Over::Lost => return None,
                Over::TooMuch => StoppedBy::Output,
            },
            () = tokio::time::sleep(call.timeout.min(self.ends.saturating_duration_since(Instant::now()))) => StoppedBy::Timeout,
            () = cancel.cancelled() => StoppedBy::Cancelled,
            by = self.struck(id, strikes.clone()) => by,
        };
        watch.stopped = Some(struck);
        if struck == StoppedBy::Memory {
            // A monitor beyond all that it may need is not ours any more, and does not obey.
            drop(self.lease.host.kill(self.lease.id));
            return None;
        }
        // What is printed while dying is counted, not kept.
        let mut count = |_: Stream, _: &[u8]| {};
        watch.cap = u64::MAX;
        let killed = async {
            if struck == StoppedBy::Cpu {
                // Nobody may use any more.
                self.channel.sweep(struck).await.ok()?;
            }
            self.channel.kill(id).await.ok()?;
            match watch.until_end(&mut count).await {
                Over::End(end) => Some(end),
                Over::TooMuch | Over::Lost => None,
            }
        };
        let patience = async {
            // With a machine its results would be lost, and one that is emulated takes its time.
            if self.results.is_some() {
                return tokio::time::sleep(LONG).await;
            }
            tokio::time::sleep(GRACE).await;
            // A busy machine takes its time as well; who passes a bound meanwhile has no more of it.
            drop(tokio::time::timeout(LONG - GRACE, self.struck(id, strikes)).await);
        };
        let ended = tokio::select! {
            end = killed => end,
            () = patience => None,
        };
        if let Some(end) = ended {
            return Some(end);
        }
        // Init does not obey: it is not ours any more.
        drop(self.lease.host.kill(self.lease.id));
        None
    }

    /// Destroys it: when this returns, no process, mount or cgroup of it is left, and the workspace folder holds
    /// what the guest left, or [`Report::not_collected`] says why it does not.
    pub async fn destroy(self) -> Report {
        let Running { mut report, disk, channel, tells, lease, results, accepting, knocks, .. } = self;
        // Nobody comes any more.
        drop((accepting, knocks));
        let written = match &results {
            Some(_) => written_out(&channel).await,
            None => Ok(()),
        };
        drop(channel);
        // Dropping the lease asks for the kill.
        drop(lease);
        // Nothing is opened in the workspace any more when others begin to read it; the last look ends while the guest does.
        drop(disk);
        let mut tells = tells.into_inner();
        let gone = async {
            while let Some(tell) = tells.recv().await
                && !matches!(tell, Tell::Gone { .. })
            {}
        };
        // A forker that does not answer is itself ended with the program, and everything with it.
        let ended = tokio::time::timeout(GONE, gone).await;
        let written = written.and_then(|()| ended.map_err(|_| "the machine did not end".to_owned()));
        if let Some(results) = results {
            // Nothing of the machine lives that could still change what is read now.
            let taken = match written {
                Ok(()) => match tokio::task::spawn_blocking(|| results.take()).await {
                    Ok(taken) => taken.map_err(|e| e.to_string()),
                    Err(e) => Err(e.to_string()),
                },
                Err(doing) => Err(doing),
            };
            report.not_collected = taken.err();
        }
        report
    }

    /// The kernel's kill counters now, or the last ones of a sandbox that is gone; none when that is known.
    async fn counters(&self) -> Option<Counters> {
        let mut tells = self.tells.lock().await;
        let question = self.asked.fetch_add(1, Ordering::Relaxed);
        self.lease.host.count(self.lease.id, question).ok()?;
        tokio::time::timeout(GONE, answer(&mut tells, question)).await.ok()?
    }
}

/// What is answered to this question. One before it whose answer nobody waited for, because it came late or the call was
/// given up, may be answered first.
async fn answer(tells: &mut Tells, question: u64) -> Option<Counters> {
    while let Some(tell) = tells.recv().await {
        match tell {
            Tell::Counted { question: of, counters, .. } if of == question => return counters,
            Tell::Gone { counters, .. } => return counters,
            Tell::Counted { .. } | Tell::Launched { .. } | Tell::Failed { .. } => {}
        }
    }
    None
}

/// Has a machine write its workspace out.
async fn written_out(channel: &Channel) -> Result<(), String> {
    let lost = || "the machine was lost before its results were out".to_owned();
    let mut arrivals = channel.collect().await.map_err(|_| lost())?;
    let end = async {
        while let Some(arrival) = arrivals.recv().await {
            if let Arrival::End(end) = arrival {
                return Some(end.ended);
            }
        }
        None
    };
    match tokio::time::timeout(OUT, end).await {
        Ok(Some(Ended::Exit(0))) => Ok(()),
        Ok(Some(Ended::NotStarted(libc::ENOSPC))) => Err("the results are larger than the bound".to_owned()),
        Ok(Some(_)) => Err("the machine could not write its results out".to_owned()),
        Ok(None) => Err(lost()),
        Err(_) => Err("the machine did not write its results out in time".to_owned()),
    }
}

/// What ended a call that none of our own bounds ended: exit causes and counters only.
fn stopped_by(end: &End, before: Option<Counters>, after: Option<Counters>) -> StoppedBy {
    let rose = |of| rose(before, after, of);
    if end.out_of_memory || (end.kills == Whose::Its && rose(|c| c.oom_kills)) {
        return StoppedBy::Memory;
    }
    if end.too_many_processes {
        return StoppedBy::Processes;
    }
    if end.out_of_cpu {
        return StoppedBy::Cpu;
    }
    if end.out_of_disk {
        return StoppedBy::Disk;
    }
    match end.struck {
        Some(Struck::Fuel) => return StoppedBy::Cpu,
        Some(Struck::Time) => return StoppedBy::Timeout,
        Some(Struck::Memory) => return StoppedBy::Memory,
        None => {}
    }
    match end.ended {
        Ended::Exit(0) => StoppedBy::Exit,
        _ if end.refusals == Whose::Its && rose(|c| c.forks_refused) => StoppedBy::Processes,
        _ if end.disk_full => StoppedBy::Disk,
        Ended::Exit(_) | Ended::NotStarted(_) => StoppedBy::Exit,
        Ended::Signal(libc::SIGXCPU) => StoppedBy::Cpu,
        Ended::Signal(libc::SIGXFSZ) => StoppedBy::Disk,
        Ended::Signal(_) | Ended::Unknown => StoppedBy::Signal,
    }
}

/// What ended others, and was none of its doing.
fn leftovers(end: &End, before: Option<Counters>, after: Option<Counters>) -> Option<StoppedBy> {
    let killed = end.kills == Whose::Left && rose(before, after, |c| c.oom_kills);
    end.leftovers.or(killed.then_some(StoppedBy::Memory))
}

fn rose(before: Option<Counters>, after: Option<Counters>, of: fn(&Counters) -> u64) -> bool {
    before.zip(after).is_some_and(|(before, after)| of(&after) > of(&before))
}

struct Watch {
    arrivals: mpsc::Receiver<Arrival>,
    /// Standard output, standard error.
    bytes: [u64; 2],
    cap: u64,
    stopped: Option<StoppedBy>,
}

enum Over {
    End(End),
    TooMuch,
    Lost,
}

impl Watch {
    async fn until_end(&mut self, on_output: &mut (dyn FnMut(Stream, &[u8]) + Send)) -> Over {
        while let Some(arrival) = self.arrivals.recv().await {
            match arrival {
                Arrival::End(end) => return Over::End(end),
                Arrival::Output(stream, piece) => {
                    let [out, err] = &mut self.bytes;
                    let kept = *out + *err;
                    let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
                    match stream {
                        Stream::Stdout => *out += length,
                        Stream::Stderr => *err += length,
                    }
                    let room = usize::try_from(self.cap.saturating_sub(kept)).unwrap_or(usize::MAX);
                    on_output(stream, &piece[..piece.len().min(room)]);
                    if piece.len() > room {
                        return Over::TooMuch;
                    }
                }
            }
        }
        Over::Lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_came_too_late_is_not_taken_for_that_of_the_next_question() {
        let (tell, mut tells) = mpsc::unbounded_channel();
        let counted = |oom_kills| Some(Counters { oom_kills, forks_refused: 0 });
        for (question, oom_kills) in [(6, 1), (7, 2)] {
            tell.send(Tell::Counted { id: 1, question, counters: counted(oom_kills) }).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(answer(&mut tells, 7)), counted(2));
        tell.send(Tell::Gone { id: 1, status: 0, counters: counted(3) }).unwrap();
        assert_eq!(runtime.block_on(answer(&mut tells, 8)), counted(3));
    }
}
