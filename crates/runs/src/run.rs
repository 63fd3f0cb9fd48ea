//! The life of a run.
//!
//! ```text
//!   open ──▶ folder ─ import ─ plan ─ start ─ meta.json ─ run_start
//!                                         │ refused: the same record, then run_end(sandbox_error)
//!   execute, file ──▶ tool_start ─ sandbox ─ tool_end          (execute.rs)
//!   finish ──▶ destroy ─ collect ─ changes.patch ─ run_end ─ result.json
//!   dropped before that (panic, cancelled future) ──▶ run_end ─ result.json
//!   resume ──▶ what was interrupted ─ plan ─ start ─ resume, and on like any other     (resume.rs)
//! ```

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use policy::{CallLimits, Isolation, Limits, StopReason, Tier, TierChoice, Traffic};
use sandbox::{Ended, Host, Module, Plan, Ready, Report, Running, SandboxError};
use serde_json::{Map, Value, json};

use crate::beneath::Folder;
use crate::call::Watch;
use crate::ceiling::{self, Place, Share};
use crate::clean::{clean, cut};
use crate::hold::Hold;
use crate::module::{self, Beside};
use crate::outward::{self, Means, Outward};
use crate::record::{Known, Prepared, remove_halves};
use crate::resume::{self, Interrupted};
use crate::{
    Apart, Cancel, Changes, Event, Mask, Opening, Record, Renamed, Resume, RunError, RunId, RunResult,
    Summary, Workspace,
};
use crate::{gc, network};

/// Artifacts other than output may be this large even where `call.output` is small.
const LARGEST_ARTIFACT: u64 = 4 << 20;
const LONGEST_SUMMARY: usize = 16 << 10;

/// An open run: sandbox started, record begun.
#[derive(Debug)]
pub struct Run {
    pub(crate) record: Arc<Record>,
    /// The way out, where something is granted.
    pub(crate) outward: Option<Outward>,
    pub(crate) running: Option<Running>,
    pub(crate) bounds: CallLimits,
    pub(crate) last_exit: Mutex<Option<Ended>>,
    pub(crate) done: AtomicU32,
    id: RunId,
    dir: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) beside: Option<Beside>,
    pub(crate) module: Option<Module>,
    pub(crate) workspace: Workspace,
    report: Report,
    calls: AtomicU32,
    started: Instant,
    /// How long it took to destroy the sandbox, once that is done.
    destroy_ms: Option<u64>,
    /// What it had used before it was resumed, and how often it was.
    before: Duration,
    resumed: u32,
    ended: bool,
    /// Says to others that somebody works here, until the last file is written.
    hold: Arc<Hold>,
    /// Room for its sandbox under the ceiling; free again when that is gone.
    place: Option<Place>,
}

impl Run {
    /// Imports the source, starts the sandbox and begins the record.
    ///
    /// # Errors
    /// As [`RunError`] says; the run folder then holds a complete record of the refusal.
    pub async fn open(host: &Host, opening: Opening<'_>) -> Result<Run, RunError> {
        let mut beginning = Beginning::new(&opening)?;
        match beginning.start(host, &opening).await {
            Ok((workspace, running)) => beginning.opened(host, &opening, workspace, running).await,
            Err(e) => {
                let stop = match e {
                    RunError::Cancelled => StopReason::Cancelled,
                    RunError::Sandbox(_)
                    | RunError::Import { .. }
                    | RunError::Module { .. }
                    | RunError::Io { .. } => StopReason::SandboxError,
                };
                beginning.refuse(stop, &e)?;
                Err(e)
            }
        }
    }

    /// Goes on with a run that was interrupted: a fresh sandbox on its workspace as it is, and the line `resume` in
    /// its record. Of `opening` neither source nor module is looked at.
    ///
    /// # Errors
    /// As [`RunError`] says; what the run left is as it was then, unless its files themselves fail.
    pub async fn resume(host: &Host, past: Interrupted, opening: Opening<'_>) -> Result<Run, RunError> {
        let restarted = past.restarted();
        let originals = past.meta()["originals"].as_str().map(PathBuf::from);
        let traffic = network::left(&opening.grant.traffic, past.record());
        let Interrupted { hold, id, dir, known, manifest, .. } = past;
        let workspace = Workspace::again(&dir.join("workspace"), manifest, originals.as_deref());
        // What the killed one's forker could not remove.
        Folder::open(&dir).and_then(|run| gc::remove_private(&run)).ok();
        let mut beginning = Beginning::again(&opening, id, dir, hold);
        let running = beginning.sandbox(host, &opening, &workspace).await?;
        match beginning.go_on(&known, restarted, &running) {
            Ok(record) => {
                let report = running.report().clone();
                let beside = (!opening.tools.is_empty()).then(|| Beside::new(host, &opening));
                let mut run = beginning.run(&opening, workspace, record, Some(running), beside, report);
                run.before = known.used();
                run.resumed = known.resumed + 1;
                run.done = AtomicU32::new(known.done);
                run.open_the_way_out(&opening, &traffic)?;
                Ok(run)
            }
            Err(e) => {
                running.destroy().await;
                Err(e)
            }
        }
    }

    /// The run's id.
    pub fn id(&self) -> &str {
        self.id.as_str()
    }

    /// The run's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What really holds.
    pub fn report(&self) -> Report {
        self.report.clone()
    }

    /// What must stay held as long as a sandbox of this run is there.
    pub(crate) fn held(&self) -> Result<Vec<Arc<OwnedFd>>, RunError> {
        held(&self.dir, &self.hold, self.place.as_ref())
    }

    /// Appends an event; secrets are masked, texts bounded.
    ///
    /// # Errors
    /// [`RunError::Io`]: a run whose record cannot be written must end.
    pub fn record(&self, event: Event) -> Result<(), RunError> {
        self.record.append(&event)
    }

    /// Keeps a text as an artifact (masked) and says its hash.
    ///
    /// # Errors
    /// [`RunError::Io`].
    pub fn artifact(&self, bytes: &[u8]) -> Result<String, RunError> {
        self.record.artifact(bytes)
    }

    /// The text as it may be shown to the model: secrets masked.
    pub fn mask(&self, text: &str) -> String {
        self.record.mask().text(text)
    }

    /// Calls that have a number.
    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The number that the next call will carry, taken; for calls that are refused and never reach the sandbox.
    pub fn next_call(&self) -> u32 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether its guest can reach what is granted: the tiers `confined` and `wasm` have no way out.
    pub fn has_way_out(&self) -> bool {
        self.outward.as_ref().is_some_and(Outward::has_doors)
    }

    fn open_the_way_out(&mut self, opening: &Opening<'_>, traffic: &Traffic) -> Result<(), RunError> {
        if !opening.granted.is_empty() {
            self.open_the_way_by(&opening.granted, traffic, Means::default())?;
        }
        Ok(())
    }

    /// Destroys the sandbox; [`Run::finish`] does it where this has not been called.
    pub async fn destroy(&mut self) {
        if let Some(running) = self.running.take() {
            let begun = Instant::now();
            self.report = running.destroy().await;
            self.destroy_ms = Some(millis(begun));
        }
        if let Some(outward) = self.outward.take() {
            outward.close().await;
        }
        self.place = None;
    }

    /// Destroys the sandbox, collects the changes, writes `changes.patch` and `result.json`, ends the record.
    ///
    /// # Errors
    /// [`RunError::Io`]; the record is ended as far as it can be written. [`RunError::Sandbox`] when what the guest
    /// left could not be brought out; the record is whole and says so.
    pub async fn finish(
        mut self,
        stop: StopReason,
        summary: &str,
        tokens: u64,
    ) -> Result<RunResult, RunError> {
        self.destroy().await;
        // A forker that was killed removed nothing; what cannot be removed now, `runs gc` says.
        Folder::open(&self.dir).and_then(|run| gc::remove_private(&run)).ok();
        // A guest that worked on a copy may have left something that nobody can bring out: that is no run without
        // changes.
        if let Some(reason) = self.report.not_collected.clone() {
            let doing = format!("what its guest left could not be brought out: {reason}");
            let stop = StopReason::SandboxError;
            self.close(stop, &format!("{stop}: {doing}"), &doing, Summary::default(), tokens)?;
            return Err(SandboxError::Lost { doing }.into());
        }
        let collected = self.collect();
        let (changes, trouble) = match collected {
            Ok(changes) => (changes, None),
            Err(e) => (Summary::default(), Some(e)),
        };
        let detail = match &trouble {
            None => format!(
                "{stop}: {} calls, {} files added, {} changed, {} deleted, {} renamed",
                self.done.load(Ordering::Relaxed),
                changes.counts.added,
                changes.counts.changed,
                changes.counts.deleted,
                changes.counts.renamed,
            ),
            Some(e) => format!("{stop}: the changes could not be collected: {}", e.told()),
        };
        let result = self.close(stop, &detail, summary, changes, tokens)?;
        match trouble {
            None => Ok(result),
            Some(e) => Err(e),
        }
    }

    fn collect(&self) -> Result<Summary, RunError> {
        let begun = Instant::now();
        let Changes { summary, patch, artifacts, list } =
            self.workspace.collect(&self.limits, &mut |bytes| self.record.artifact(bytes))?;
        let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let summary = summary.bounded();
        let patch_sha256 = self.record.patch(&patch)?;
        let kept = |bytes: &[u8]| if list.is_empty() { Ok(None) } else { self.record.exact(bytes) };
        let changes_artifact = kept(&list)?;
        let base_artifact = kept(&self.workspace.manifest())?;
        self.record.append(&Event::Collect {
            added: summary.counts.added,
            changed: summary.counts.changed,
            deleted: summary.counts.deleted,
            renamed: summary.counts.renamed,
            refused: some(&summary.refused),
            artifacts,
            patch_sha256,
            changes_artifact,
            base_artifact,
            took_us,
        })?;
        Ok(self.masked(summary))
    }

    fn masked(&self, summary: Summary) -> Summary {
        let all = |names: Vec<String>| names.iter().map(|n| self.mask(n)).collect();
        let renamed = |r: Renamed| Renamed { from: self.mask(&r.from), to: self.mask(&r.to), ..r };
        Summary {
            counts: summary.counts,
            added: all(summary.added),
            changed: all(summary.changed),
            deleted: all(summary.deleted),
            renamed: summary.renamed.into_iter().map(renamed).collect(),
            refused: all(summary.refused),
            apart: summary.apart.into_iter().map(|a| Apart { path: self.mask(&a.path), ..a }).collect(),
        }
    }

    /// The last line and `result.json`. Nothing is tried a second time, whatever comes of it.
    fn close(
        &mut self,
        stop: StopReason,
        detail: &str,
        summary: &str,
        changes: Summary,
        tokens: u64,
    ) -> Result<RunResult, RunError> {
        self.ended = true;
        let chain_head = self.record.end(stop, detail, self.destroy_ms)?;
        let result = RunResult {
            run_id: self.id.to_string(),
            stop,
            summary: self.mask(cut(&clean(summary.as_bytes()), LONGEST_SUMMARY)),
            sandbox: Some(self.report.clone()),
            changes,
            calls: self.done.load(Ordering::Relaxed),
            tokens,
            duration_ms: millis_of(self.before + self.started.elapsed()),
            resumed: self.resumed,
            chain_head,
            last_exit: *self.last_exit.lock().unwrap_or_else(PoisonError::into_inner),
            dir: self.dir.clone(),
        };
        self.record.result(&result)?;
        Ok(result)
    }
}

impl Drop for Run {
    /// A panic or a dropped future ends the record too. The sandbox's own drop kills what it holds.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if self.close(dropped(), "dropped before it was finished", "", Summary::default(), 0).is_err() {
            // Then the record stays incomplete, and whoever reads it sees that.
        }
    }
}

fn held(dir: &Path, hold: &Hold, place: Option<&Place>) -> Result<Vec<Arc<OwnedFd>>, RunError> {
    let shared = std::iter::once(hold.share()).chain(place.map(Place::share));
    let shared: Result<Vec<_>, _> = shared.map(|fd| fd.map(Arc::new)).collect();
    shared.map_err(RunError::io("hold", dir))
}

fn create_folder(store: &Path, isolation: &Isolation) -> Result<(RunId, PathBuf, Hold), RunError> {
    // The confined tier has no view of its own: where its guest has an id of its own, that id must find the way
    // to the workspace. It can list none of these folders and open nothing else in them.
    let may_be_confined = match isolation.tier {
        // A module's walls are those of the confined tier where namespaces cannot be had.
        TierChoice::Confined | TierChoice::Wasm => true,
        TierChoice::Auto => isolation.floor == Tier::Confined,
        TierChoice::Namespace | TierChoice::Gvisor | TierChoice::Microvm => false,
    };
    let mode = if may_be_confined && sandbox::guest_owner().is_some() { 0o711 } else { 0o700 };
    let private = |path: &Path| DirBuilder::new().recursive(true).mode(mode).create(path);
    private(store).map_err(RunError::io("create", store))?;
    let store = store.canonicalize().map_err(RunError::io("find", store))?;
    loop {
        let id = RunId::new().map_err(RunError::io("name a run in", &store))?;
        let dir = store.join(id.as_str());
        match DirBuilder::new().mode(mode).create(&dir) {
            Ok(()) => {
                if let Some(hold) = Hold::fresh(&dir).map_err(RunError::io("hold", &dir))? {
                    return Ok((id, dir, hold));
                }
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(RunError::io("create", &dir)(e)),
        }
    }
}

/// A run that has a folder but no record yet. Given up before it is open, it still leaves a complete one.
struct Beginning {
    id: RunId,
    dir: PathBuf,
    mask: Mask,
    largest: u64,
    meta: Map<String, Value>,
    /// What was taken in, for a run that may have to go on one day.
    manifest: Option<Vec<u8>>,
    watch: Option<Watch>,
    module: Option<Module>,
    started: Instant,
    over: bool,
    prepared: Option<Prepared>,
    hold: Arc<Hold>,
    place: Option<Place>,
}

impl Beginning {
    fn new(opening: &Opening<'_>) -> Result<Beginning, RunError> {
        let (id, dir, hold) = create_folder(opening.store, &opening.grant.isolation)?;
        Ok(Beginning {
            mask: mask_of(opening),
            largest: largest_of(opening),
            meta: meta_of(&id, opening),
            manifest: None,
            watch: opening.watch.clone(),
            module: None,
            started: Instant::now(),
            over: false,
            prepared: None,
            id,
            dir,
            hold: Arc::new(hold),
            place: None,
        })
    }

    /// The same for a run that goes on. It has a record, and another end of it is nobody's to write.
    fn again(opening: &Opening<'_>, id: RunId, dir: PathBuf, hold: Hold) -> Beginning {
        Beginning {
            mask: mask_of(opening),
            largest: largest_of(opening),
            meta: Map::new(),
            manifest: None,
            prepared: None,
            watch: opening.watch.clone(),
            module: None,
            started: Instant::now(),
            over: true,
            id,
            dir,
            hold: Arc::new(hold),
            place: None,
        }
    }

    async fn start(&mut self, host: &Host, opening: &Opening<'_>) -> Result<(Workspace, Running), RunError> {
        let grant = opening.grant;
        if grant.isolation.tier == TierChoice::Wasm && opening.module.is_none() {
            return Err(SandboxError::Refused {
                reason: "the tier `wasm` runs one module, and no role or program".to_owned(),
                remedy: "take another tier; tools of a Guild that are modules run in `wasm` in any case"
                    .to_owned(),
            }
            .into());
        }
        let workspace = self.import(opening)?;
        let module = opening.module.map(|code| module::read(code, workspace.root())).transpose()?;
        if let Some(module) = &module {
            self.meta.insert("module".to_owned(), module::told(module));
        }
        self.module = module;
        let running = self.sandbox(host, opening, &workspace).await?;
        Ok((workspace, running))
    }

    /// Room under the ceiling, and a sandbox on this workspace.
    async fn sandbox(
        &mut self,
        host: &Host,
        opening: &Opening<'_>,
        workspace: &Workspace,
    ) -> Result<Running, RunError> {
        let grant = opening.grant;
        // A tool of the Guild's own has a sandbox beside the run's, with the same bounds.
        let at_once = if opening.tools.is_empty() { 1 } else { 2 };
        let share = Share::of(grant.isolation.tier, &grant.limits, at_once);
        let place = ceiling::enter(opening.store, &self.id, &grant.ceiling, share, opening.waiting).await?;
        self.meta.insert("waited_ms".to_owned(), json!(place.waited.as_millis()));
        let held = held(&self.dir, &self.hold, Some(&place))?;
        self.place = Some(place);
        let plan = Plan {
            tier: grant.isolation.tier,
            floor: grant.isolation.floor,
            surroundings: grant.isolation.surroundings,
            rootfs: grant.isolation.rootfs.clone(),
            workspace: workspace.root().to_owned(),
            limits: grant.limits.clone(),
            env: opening.secrets.clone(),
            runsc: None,
            module: self.module.clone(),
            held,
            // One that goes on: a guest has been in it.
            given: self.over.then(|| workspace.given()),
            doors: outward::doors(&grant.network),
        };
        if !opening.tools.is_empty() {
            self.try_tools(host, opening, &plan).await?;
        }
        let ready = self.ready(plan, host, opening.cancel).await?;
        let (tier, because) = ready.tier();
        self.meta.insert("accepted".to_owned(), json!({ "tier": tier, "because": because }));
        if tier == Tier::Microvm && !opening.tools.is_empty() {
            return Err(module::not_beside_a_machine().into());
        }
        let running = ready.start();
        self.meta.insert("sandbox".to_owned(), json!(running.report()));
        Ok(running)
    }

    /// Has the sandbox started, and prepares the record while nothing else is to be done.
    async fn ready(&mut self, plan: Plan, host: &Host, cancel: &Cancel) -> Result<Ready, RunError> {
        let mut ready = std::pin::pin!(plan.ready(host));
        let begun = std::future::poll_fn(|cx| Poll::Ready(ready.as_mut().poll(cx))).await;
        // One that goes on has a record.
        if !self.over {
            self.prepared = Some(Prepared::new(&self.dir)?);
        }
        Ok(match begun {
            Poll::Ready(ready) => ready?,
            // A machine takes its time to start; who is dropped here is killed.
            Poll::Pending => tokio::select! {
                ready = ready => ready?,
                () = cancel.cancelled() => return Err(RunError::Cancelled),
            },
        })
    }

    /// That a tool of the Guild's own can be run at all is seen before the role counts on it.
    async fn try_tools(&mut self, host: &Host, opening: &Opening<'_>, plan: &Plan) -> Result<(), RunError> {
        if plan.tier == TierChoice::Microvm {
            return Err(module::not_beside_a_machine().into());
        }
        let digests = opening.tools.iter().map(|(name, module)| (name.clone(), module::told(module)));
        self.meta.insert("modules".to_owned(), Value::Object(digests.collect()));
        let plan = Plan { tier: TierChoice::Wasm, ..plan.clone() };
        let report = plan.ready(host).await?.start().destroy().await;
        self.meta.insert("module_sandbox".to_owned(), json!(report));
        Ok(())
    }

    fn import(&mut self, opening: &Opening<'_>) -> Result<Workspace, RunError> {
        let workspace = Workspace::import_with_history(
            opening.source,
            &self.dir.join("workspace"),
            opening.store,
            &opening.grant.limits,
            sandbox::guest_owner(),
            opening.history,
            opening.progress,
        )?;
        self.meta.insert("import".to_owned(), workspace.describe());
        if let Some(unpacked) = workspace.unpacked() {
            self.meta.insert("originals".to_owned(), json!(unpacked.to_str()));
        }
        // A single command has nothing to go on with.
        self.manifest = opening.grant.entry.is_some().then(|| workspace.manifest());
        Ok(workspace)
    }

    /// What could not be begun is destroyed again.
    async fn opened(
        mut self,
        host: &Host,
        opening: &Opening<'_>,
        workspace: Workspace,
        running: Running,
    ) -> Result<Run, RunError> {
        match self.record() {
            Ok(record) => {
                let report = running.report().clone();
                let beside = (!opening.tools.is_empty()).then(|| Beside::new(host, opening));
                let mut run = self.run(opening, workspace, record, Some(running), beside, report);
                run.open_the_way_out(opening, &opening.grant.traffic)?;
                Ok(run)
            }
            Err(e) => {
                running.destroy().await;
                Err(e)
            }
        }
    }

    fn run(
        &mut self,
        opening: &Opening<'_>,
        workspace: Workspace,
        record: Record,
        running: Option<Running>,
        beside: Option<Beside>,
        report: Report,
    ) -> Run {
        Run {
            record: Arc::new(record),
            outward: None,
            running,
            bounds: opening.grant.call.clone(),
            last_exit: Mutex::new(None),
            done: AtomicU32::new(0),
            id: self.id.clone(),
            dir: self.dir.clone(),
            limits: opening.grant.limits.clone(),
            beside,
            module: self.module.clone(),
            workspace,
            report,
            calls: AtomicU32::new(0),
            started: self.started,
            destroy_ms: None,
            before: Duration::ZERO,
            resumed: 0,
            ended: false,
            hold: Arc::clone(&self.hold),
            place: self.place.take(),
        }
    }

    fn record(&mut self) -> Result<Record, RunError> {
        self.over = true;
        let meta = Value::Object(std::mem::take(&mut self.meta));
        let prepared = match self.prepared.take() {
            Some(prepared) => prepared,
            None => Prepared::new(&self.dir)?,
        };
        let (mask, manifest) = (self.mask.clone(), self.manifest.as_deref());
        let record = Record::begin_in(prepared, &self.id, mask, self.largest, meta, manifest)?;
        Ok(record.watched(self.watch.take()))
    }

    /// The record of a run that goes on, with the line that says so.
    fn go_on(&mut self, known: &Known, restarted: bool, running: &Running) -> Result<Record, RunError> {
        remove_halves(&self.dir).map_err(RunError::io("clear up in", &self.dir))?;
        // It is the result of nothing from here on, and must not come back behind lines that say so.
        remove_for_good(&self.dir, "result.json").map_err(RunError::io("remove the result in", &self.dir))?;
        let record = known.record(&self.dir, self.mask.clone(), self.largest)?.watched(self.watch.take());
        record.append(&Event::Resume(Resume {
            times: known.resumed + 1,
            lines: known.lines,
            calls: known.calls,
            tokens: known.tokens,
            wall_ms: millis_of(known.used()),
            cut_bytes: u64::try_from(known.cut).unwrap_or(u64::MAX),
            unknown: known.open.clone(),
            restarted,
            boot: resume::boot().unwrap_or_default(),
            sandbox: json!(running.report()),
        }))?;
        record.settle()?;
        Ok(record)
    }

    fn refuse(&mut self, stop: StopReason, e: &RunError) -> Result<(), RunError> {
        let what = match e {
            RunError::Sandbox(SandboxError::Refused { .. }) => "the sandbox was refused",
            RunError::Sandbox(SandboxError::Start { .. } | SandboxError::Lost { .. }) => {
                "the sandbox could not be started"
            }
            RunError::Import { .. } => "the source was not taken in",
            RunError::Module { .. } => "there is no module to run",
            RunError::Cancelled => "ended by the user before it began",
            RunError::Io { .. } => "the run's own files failed",
        };
        self.give_up(stop, &format!("{what}: {}", e.told()))
    }

    fn give_up(&mut self, stop: StopReason, why: &str) -> Result<(), RunError> {
        self.meta.insert("refusal".to_owned(), why.into());
        let record = self.record()?;
        let chain_head = record.end(stop, why, None)?;
        record.result(&RunResult {
            run_id: self.id.to_string(),
            stop,
            summary: String::new(),
            sandbox: None,
            changes: Summary::default(),
            calls: 0,
            tokens: 0,
            duration_ms: millis(self.started),
            resumed: 0,
            chain_head,
            last_exit: None,
            dir: self.dir.clone(),
        })
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        if !self.over && self.give_up(dropped(), "dropped while it was being opened").is_err() {
            // Then the folder holds no record, and whoever reads it sees that.
        }
    }
}

fn dropped() -> StopReason {
    if std::thread::panicking() { StopReason::SandboxError } else { StopReason::Cancelled }
}

fn remove_for_good(dir: &Path, name: &str) -> std::io::Result<()> {
    match std::fs::remove_file(dir.join(name)) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(()) => std::fs::File::open(dir)?.sync_all(),
    }
}

/// Bytes that an artifact may hold.
pub(crate) fn largest_of(opening: &Opening<'_>) -> u64 {
    opening.grant.call.output.max(LARGEST_ARTIFACT)
}

pub(crate) fn mask_of(opening: &Opening<'_>) -> Mask {
    Mask::new(opening.secrets.iter().chain(&opening.mask).map(|(n, v)| (n.as_str(), v.as_str())))
}

/// What is known before anything is tried. The caller's entries never replace ours.
fn meta_of(id: &RunId, opening: &Opening<'_>) -> Map<String, Value> {
    let isolation = &opening.grant.isolation;
    let ours = json!({
        "v": crate::record::VERSION,
        "run_id": id.as_str(),
        "version": env!("CARGO_PKG_VERSION"),
        "started": humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
        "source": opening.source.map(|p| p.to_string_lossy()),
        "originals": opening.source.and_then(originals),
        "folder": opening.source.filter(|source| source.is_dir()).and_then(originals),
        "head": opening.source.and_then(crate::apply::head),
        "boot": resume::boot(),
        "asked": {
            "tier": isolation.tier,
            "floor": isolation.floor,
            "surroundings": isolation.surroundings,
        },
        "secrets": opening.secrets.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "grant": opening.grant,
    });
    let mut meta = opening.meta.clone();
    if let Value::Object(ours) = ours {
        meta.extend(ours);
    }
    meta
}

/// The folder in which paths of the source lead to its files, for a run that goes on later.
fn originals(source: &Path) -> Option<String> {
    let real = source.canonicalize().ok()?;
    let folder = if real.is_dir() { real.as_path() } else { real.parent()? };
    folder.to_str().map(str::to_owned)
}

/// What one line of the record holds beside the artifacts that it names; a guest decides how much there is.
fn some(refused: &[String]) -> Vec<String> {
    const ROOM: usize = 48 << 10;
    let mut bytes = 0;
    let fits = refused.iter().take_while(|text| {
        bytes += text.len();
        bytes <= ROOM
    });
    let fits = fits.count();
    let mut some = refused.get(..fits).unwrap_or_default().to_vec();
    if fits < refused.len() {
        some.push(format!("and {} more", refused.len() - fits));
    }
    some
}

fn millis(since: Instant) -> u64 {
    millis_of(since.elapsed())
}

fn millis_of(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Cancel, ProgramCall, Standing, verify};
    use policy::{Deployment, Grant, Tier};

    pub(crate) struct Rig {
        dir: tempfile::TempDir,
        grant: Grant,
    }

    impl Rig {
        pub(crate) fn new() -> Rig {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join("source")).unwrap();
            std::fs::write(dir.path().join("source/file"), "x\n").unwrap();
            Rig { dir, grant: Grant::without_guild(&Deployment::default()) }
        }

        pub(crate) fn store(&self) -> PathBuf {
            self.dir.path().join("data/runs")
        }

        fn beginning<R>(&self, then: impl FnOnce(Beginning, Opening<'_>) -> R) -> R {
            let (store, source) = (self.store(), self.dir.path().join("source"));
            let (_keep, cancel) = Cancel::new();
            let opening = Opening {
                grant: &self.grant,
                store: &store,
                source: Some(&source),
                history: crate::History::default(),
                module: None,
                tools: &[],
                secrets: vec![("TOKEN".to_owned(), "tok-123456".to_owned())],
                mask: Vec::new(),
                granted: Vec::new(),
                meta: Map::new(),
                progress: &|_, _| true,
                waiting: &|_| true,
                cancel: &cancel,
                watch: None,
            };
            then(Beginning::new(&opening).unwrap(), opening)
        }

        /// An open run whose sandbox is gone already.
        pub(crate) fn run(&self) -> Run {
            self.beginning(|mut beginning, opening| {
                let workspace = beginning.import(&opening).unwrap();
                let record = beginning.record().unwrap();
                let report = Report {
                    tier: Tier::Namespace,
                    engine: String::new(),
                    layers: Vec::new(),
                    start_ms: 0,
                    launch_ms: 0,
                    not_collected: None,
                };
                beginning.run(&opening, workspace, record, None, None, report)
            })
        }

        pub(crate) fn result(&self, id: &str) -> Value {
            let checked = verify(&self.store(), id).unwrap();
            assert_eq!(checked.standing, Standing::Whole, "{:?}", checked.findings);
            serde_json::from_slice(&std::fs::read(self.store().join(id).join("result.json")).unwrap())
                .unwrap()
        }
    }

    fn wait<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn a_finished_run_has_a_whole_record_and_its_patch() {
        let place = Rig::new();
        let run = place.run();
        let id = run.id().to_owned();
        std::fs::write(run.dir().join("workspace/new tok-123456"), "tok-123456\n").unwrap();
        let result = wait(run.finish(StopReason::Finished, "done \x1b[31mtok-123456", 7)).unwrap();
        assert_eq!(result.changes.added, ["new [masked:TOKEN]"]);
        assert_eq!(result.summary, "done [masked:TOKEN]");
        assert_eq!(place.result(&id)["chain_head"], result.chain_head.as_str());
        let patch = std::fs::read_to_string(place.store().join(&id).join("changes.patch")).unwrap();
        assert!(patch.contains("+[masked:TOKEN]\n"), "{patch}");
    }

    /// A guest chooses how many names there are and how long; its record must stay one that can be read.
    #[test]
    fn a_flood_of_long_names_leaves_a_record_that_verifies() {
        let place = Rig::new();
        let run = place.run();
        let id = run.id().to_owned();
        let folder = run.dir().join("workspace").join("d".repeat(250)).join("e".repeat(250));
        std::fs::create_dir_all(&folder).unwrap();
        for n in 0..12_000 {
            std::fs::write(folder.join(format!("{n:0>200}")), "").unwrap();
        }
        let result = wait(run.finish(StopReason::Finished, "", 0)).unwrap();
        assert_eq!(result.changes.counts.added, 12_000);
        assert!(result.changes.added.len() < 10_000, "{}", result.changes.added.len());
        assert_eq!(place.result(&id)["changes"]["counts"]["added"], 12_000);
        assert_eq!(crate::list(&place.store()).unwrap().runs[0].changes, Some(12_000));
    }

    /// A build leaves as much: what is kept of it, and what is refused, must fit into the line that names it.
    #[test]
    fn a_flood_of_binaries_and_refused_links_leaves_a_record_that_verifies() {
        let place = Rig::new();
        let run = place.run();
        let id = run.id().to_owned();
        let folder = run.dir().join("workspace").join("d".repeat(200));
        std::fs::create_dir_all(&folder).unwrap();
        for n in 0..3_000 {
            std::fs::write(folder.join(n.to_string()), format!("\0{n}")).unwrap();
            std::os::unix::fs::symlink("/etc", folder.join(format!("{n}{}", "\u{1}".repeat(200)))).unwrap();
        }
        let result = wait(run.finish(StopReason::Finished, "", 0)).unwrap();
        assert_eq!(result.changes.counts.added, 3_000);
        place.result(&id);
        assert!(crate::Delivery::open(&place.store(), &id).is_ok());
    }

    #[test]
    fn a_dropped_run_has_a_whole_record() {
        let place = Rig::new();
        let run = place.run();
        let id = run.id().to_owned();
        drop(run);
        assert_eq!(place.result(&id)["stop"], "cancelled");
    }

    #[test]
    fn a_panic_leaves_a_whole_record() {
        let place = Rig::new();
        let run = place.run();
        let id = run.id().to_owned();
        let died = std::thread::spawn(move || {
            let _run = run;
            panic!("on purpose");
        });
        assert!(died.join().is_err());
        assert_eq!(place.result(&id)["stop"], "sandbox_error");
    }

    #[test]
    fn a_run_given_up_while_it_opens_has_a_whole_record() {
        let place = Rig::new();
        let id = place.beginning(|beginning, _| beginning.id.to_string());
        assert_eq!(place.result(&id)["stop"], "cancelled");
    }

    #[test]
    fn a_refusal_is_a_whole_record_with_its_reason() {
        let place = Rig::new();
        let pipe = place.dir.path().join("source/pipe");
        rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let id = place.beginning(|mut beginning, opening| {
            let e = beginning.import(&opening).unwrap_err();
            beginning.refuse(StopReason::SandboxError, &e).unwrap();
            beginning.id.to_string()
        });
        assert_eq!(place.result(&id)["stop"], "sandbox_error");
        let meta = std::fs::read_to_string(place.store().join(&id).join("meta.json")).unwrap();
        assert!(meta.contains("it is a FIFO") && meta.contains("\"asked\""), "{meta}");
        assert!(!meta.contains("tok-123456"));
    }

    #[test]
    fn a_call_without_a_sandbox_is_in_the_record_with_its_loss() {
        let place = Rig::new();
        let run = place.run();
        let id = run.id().to_owned();
        let call = ProgramCall {
            tool: "exec".to_owned(),
            argv: vec!["true".to_owned()],
            cwd: None,
            stdin: b"fed".to_vec(),
            terminal: false,
            timeout: None,
        };
        assert!(wait(run.execute(call, &Cancel::new().1)).is_err());
        drop(run);
        let events = crate::show(&place.store(), &id).unwrap().events;
        let kinds: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["run_start", "tool_start", "tool_end", "run_end"]);
        assert_eq!(events[2]["outcome"]["stopped_by"], "sandbox_lost");
        place.result(&id);
    }

    /// What is lost is not told as a run that changed nothing.
    #[test]
    fn results_that_cannot_be_brought_out_are_an_error_and_in_the_record() {
        let place = Rig::new();
        let mut run = place.run();
        let id = run.id().to_owned();
        run.report.not_collected = Some("the machine was lost".to_owned());
        let e = wait(run.finish(StopReason::Finished, "all done", 0)).unwrap_err();
        assert!(e.to_string().contains("the machine was lost"), "{e}");
        let result = place.result(&id);
        assert_eq!(result["stop"], "sandbox_error");
        assert!(result["summary"].as_str().unwrap().contains("the machine was lost"), "{result}");
        assert_eq!(result["sandbox"]["not_collected"], "the machine was lost");
        let events = crate::show(&place.store(), &id).unwrap().events;
        let kinds: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["run_start", "run_end"]);
    }

    #[test]
    fn an_open_run_is_held_and_a_finished_one_is_not() {
        let place = Rig::new();
        let run = place.run();
        let id = run.id().to_owned();
        let clear = || crate::gc(&place.store(), std::time::Duration::ZERO, 0, false).unwrap();
        let cleared = clear();
        assert_eq!(cleared.running, std::slice::from_ref(&id), "{cleared:?}");
        assert!(crate::show(&place.store(), &id).unwrap().running);
        drop(run);
        assert!(!crate::show(&place.store(), &id).unwrap().running);
        assert_eq!(clear().removed.len(), 1);
    }

    #[test]
    fn folders_of_runs_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let place = Rig::new();
        let run = place.run();
        for dir in [run.dir().to_owned(), place.store()] {
            assert_eq!(std::fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
        }
    }
}
