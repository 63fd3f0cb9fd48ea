//! The life of a run.
//!
//! ```text
//!   open ──▶ folder ─ import ─ plan ─ start ─ meta.json ─ run_start
//!                                         │ refused: the same record, then run_end(sandbox_error)
//!   execute, file ──▶ tool_start ─ sandbox ─ tool_end          (execute.rs)
//!   finish ──▶ destroy ─ collect ─ changes.patch ─ run_end ─ result.json
//!   dropped before that (panic, cancelled future) ──▶ run_end ─ result.json
//! ```

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use policy::{Acceptance, CallLimits, Limits, StopReason};
use sandbox::{Ended, Host, Plan, Report, Running, SandboxError};
use serde_json::{Map, Value, json};

use crate::clean::{clean, cut};
use crate::{Changes, Event, Mask, Opening, Record, RunError, RunId, RunResult, Summary, Workspace};

/// Artifacts other than output may be this large even where `call.output` is small.
const LARGEST_ARTIFACT: u64 = 4 << 20;
const LONGEST_SUMMARY: usize = 16 << 10;

/// An open run: sandbox started, record begun.
#[derive(Debug)]
pub struct Run {
    pub(crate) record: Record,
    pub(crate) running: Option<Running>,
    pub(crate) bounds: CallLimits,
    pub(crate) last_exit: Mutex<Option<Ended>>,
    pub(crate) done: AtomicU32,
    id: RunId,
    dir: PathBuf,
    limits: Limits,
    workspace: Workspace,
    report: Report,
    calls: AtomicU32,
    started: Instant,
    ended: bool,
}

impl Run {
    /// Imports the source, starts the sandbox and begins the record.
    ///
    /// # Errors
    /// As [`RunError`] says; the run folder then holds a complete record of the refusal.
    pub async fn open(host: &Host, opening: Opening<'_>) -> Result<Run, RunError> {
        let started = Instant::now();
        let (id, dir) = create_folder(opening.store)?;
        let mask = mask_of(&opening);
        let mut meta = meta_of(&id, &opening);
        let largest = opening.grant.call.output.max(LARGEST_ARTIFACT);

        let got = start(host, &opening, &dir, &mut meta).await;
        let (workspace, running, report) = match got {
            Ok(got) => got,
            Err(e) => {
                meta.insert("refusal".to_owned(), e.to_string().into());
                let record = Record::begin(&dir, &id, mask, largest, Value::Object(meta))?;
                refuse(&record, &id, &dir, &e, started)?;
                return Err(e);
            }
        };
        let record = match Record::begin(&dir, &id, mask, largest, Value::Object(meta)) {
            Ok(record) => record,
            Err(e) => {
                running.destroy().await;
                return Err(e);
            }
        };
        Ok(Run {
            record,
            running: Some(running),
            bounds: opening.grant.call.clone(),
            last_exit: Mutex::new(None),
            done: AtomicU32::new(0),
            id,
            dir,
            limits: opening.grant.limits.clone(),
            workspace,
            report,
            calls: AtomicU32::new(0),
            started,
            ended: false,
        })
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

    /// The number that the next call will carry, taken; for calls that are refused and never reach the sandbox.
    pub fn next_call(&self) -> u32 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Destroys the sandbox, collects the changes, writes `changes.patch` and `result.json`, ends the record.
    ///
    /// # Errors
    /// [`RunError::Io`]; the record is ended as far as it can be written.
    pub async fn finish(
        mut self,
        stop: StopReason,
        summary: &str,
        tokens: u64,
    ) -> Result<RunResult, RunError> {
        let mut destroy_ms = None;
        if let Some(running) = self.running.take() {
            let begun = Instant::now();
            self.report = running.destroy().await;
            destroy_ms = Some(millis(begun));
        }
        let collected = self.collect();
        let (changes, trouble) = match collected {
            Ok(changes) => (changes, None),
            Err(e) => (Summary::default(), Some(e)),
        };
        let detail = match &trouble {
            None => format!(
                "{stop}: {} calls, {} files added, {} changed, {} deleted",
                self.done.load(Ordering::Relaxed),
                changes.added.len(),
                changes.changed.len(),
                changes.deleted.len(),
            ),
            Some(e) => format!("{stop}: the changes could not be collected: {e}"),
        };
        let result = self.close(stop, &detail, destroy_ms, summary, changes, tokens)?;
        match trouble {
            None => Ok(result),
            Some(e) => Err(e),
        }
    }

    fn collect(&self) -> Result<Summary, RunError> {
        let Changes { summary, patch, artifacts } =
            self.workspace.collect(&self.limits, &mut |bytes| self.record.artifact(bytes))?;
        let patch_sha256 = self.record.patch(&patch)?;
        self.record.append(&Event::Collect {
            added: count(&summary.added),
            changed: count(&summary.changed),
            deleted: count(&summary.deleted),
            refused: summary.refused.clone(),
            artifacts,
            patch_sha256,
        })?;
        Ok(summary)
    }

    /// The last line and `result.json`. Nothing is tried a second time, whatever comes of it.
    fn close(
        &mut self,
        stop: StopReason,
        detail: &str,
        destroy_ms: Option<u64>,
        summary: &str,
        changes: Summary,
        tokens: u64,
    ) -> Result<RunResult, RunError> {
        self.ended = true;
        let chain_head = self.record.end(stop, detail, destroy_ms)?;
        let result = RunResult {
            run_id: self.id.to_string(),
            stop,
            summary: self.mask(cut(&clean(summary.as_bytes()), LONGEST_SUMMARY)),
            sandbox: Some(self.report.clone()),
            changes,
            calls: self.done.load(Ordering::Relaxed),
            tokens,
            duration_ms: millis(self.started),
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
        let stop = if std::thread::panicking() { StopReason::SandboxError } else { StopReason::Cancelled };
        if self.close(stop, "dropped before it was finished", None, "", Summary::default(), 0).is_err() {
            // Then the record stays incomplete, and whoever reads it sees that.
        }
    }
}

fn create_folder(store: &Path) -> Result<(RunId, PathBuf), RunError> {
    let private = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
    private(store).map_err(RunError::io("create", store))?;
    let store = store.canonicalize().map_err(RunError::io("find", store))?;
    loop {
        let id = RunId::new().map_err(RunError::io("name a run in", &store))?;
        let dir = store.join(id.as_str());
        match DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => return Ok((id, dir)),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(RunError::io("create", &dir)(e)),
        }
    }
}

async fn start(
    host: &Host,
    opening: &Opening<'_>,
    dir: &Path,
    meta: &mut Map<String, Value>,
) -> Result<(Workspace, Running, Report), RunError> {
    let grant = opening.grant;
    let workspace = Workspace::import(
        opening.source,
        &dir.join("workspace"),
        opening.store,
        &grant.limits,
        sandbox::guest_owner(),
        opening.progress,
    )?;
    meta.insert("import".to_owned(), workspace.describe());
    let plan = Plan {
        tier: grant.isolation.tier,
        floor: grant.isolation.floor,
        surroundings: grant.isolation.surroundings,
        rootfs: grant.isolation.rootfs.clone(),
        workspace: workspace.root().to_owned(),
        limits: grant.limits.clone(),
        env: opening.secrets.clone(),
    };
    let ready = plan.ready(host).await?;
    let (tier, accepted): (_, Acceptance) = ready.tier();
    meta.insert("accepted".to_owned(), json!({ "tier": tier, "because": accepted }));
    let running = ready.start();
    let report = running.report().clone();
    meta.insert("sandbox".to_owned(), json!(report));
    Ok((workspace, running, report))
}

fn refuse(record: &Record, id: &RunId, dir: &Path, e: &RunError, started: Instant) -> Result<(), RunError> {
    let what = match e {
        RunError::Sandbox(SandboxError::Refused { .. }) => "the sandbox was refused",
        RunError::Sandbox(_) => "the sandbox could not be started",
        RunError::Import { .. } => "the source was not taken in",
        RunError::Io { .. } => "the run's own files failed",
    };
    let chain_head = record.end(StopReason::SandboxError, &format!("{what}: {e}"), None)?;
    record.result(&RunResult {
        run_id: id.to_string(),
        stop: StopReason::SandboxError,
        summary: String::new(),
        sandbox: None,
        changes: Summary::default(),
        calls: 0,
        tokens: 0,
        duration_ms: millis(started),
        chain_head,
        last_exit: None,
        dir: dir.to_owned(),
    })
}

fn mask_of(opening: &Opening<'_>) -> Mask {
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

fn count(names: &[String]) -> u64 {
    u64::try_from(names.len()).unwrap_or(u64::MAX)
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
