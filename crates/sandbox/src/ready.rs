//! A sandbox that answered and was measured, before any guest code runs in it.

mod layers;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use policy::{Acceptance, StoppedBy, Tier};

use crate::channel::{Channel, ChannelError, Pipes};
use crate::clock::Clock;
use crate::disk::{Disk, Place};
use crate::doors::Offered;
use crate::engine_memory::EngineMemory;
use crate::launch::{Backend, Bounds, CgroupSeen, Launch};
use crate::machine::{Results, Vm};
use crate::message::Tell;
use crate::problem::Problem;
use crate::report::{Layer, LayerState, Report};
use crate::running::{Lease, Running, Sandbox};
use crate::sessions;
use crate::wire::Hello;
use crate::{Host, Module, machine};

/// Launched, measured, at or above the floor; nothing of a guest has run.
#[derive(Debug)]
pub struct Ready {
    sandbox: Sandbox,
    accepted: Acceptance,
}

impl Ready {
    /// The tier, and why it was accepted.
    pub fn tier(&self) -> (Tier, Acceptance) {
        (self.sandbox.report.tier, self.accepted)
    }

    /// Opens it for calls.
    pub fn start(self) -> Running {
        Running::new(self.sandbox)
    }

    /// What must be brought out of it at its end.
    pub(crate) fn leaving(mut self, results: Option<Results>) -> Ready {
        self.sandbox.results = results;
        self
    }

    pub(crate) fn accepted(mut self, accepted: Acceptance) -> Ready {
        self.accepted = accepted;
        self
    }
}

/// Whether a machine starts at all.
pub(crate) async fn starts(vm: Vm, host: &Host) -> Result<(), Problem> {
    let start = |e: std::io::Error| Problem::Start(e.to_string());
    let pipes = Pipes::new(Tier::Microvm).map_err(start)?;
    let fds: Vec<_> = pipes.theirs.iter().map(AsFd::as_fd).collect();
    let launch = machine::probe_launch(vm);
    let (id, _tells) = host.launch(|id| Launch { id, ..launch }, &fds).map_err(start)?;
    let _lease = Lease { host: host.clone(), id };
    pipes.open(None).await.map(|_| ()).map_err(|e| Problem::Start(e.to_string()))
}

/// What comes along with a launch and is no part of it.
#[derive(Clone, Copy)]
pub(crate) struct Beside<'a> {
    /// When it was decided to start it: what is made for it first, and a start that came to nothing, cost as well.
    pub(crate) since: Instant,
    pub(crate) module: Option<&'a Module>,
    /// Kept open until the sandbox is gone.
    pub(crate) held: &'a [Arc<OwnedFd>],
    /// See [`Place::given`], of the workspace.
    pub(crate) given: Option<u64>,
}

/// Launches a tier and measures it.
pub(crate) async fn launch(
    tier: Tier,
    launch: Launch,
    beside: Beside<'_>,
    wall: Duration,
    host: &Host,
) -> Result<Ready, Problem> {
    let began = Instant::now();
    let start = |e: std::io::Error| Problem::Start(e.to_string());
    let pipes = Pipes::new(tier).map_err(start)?;
    let (backend, bounds) = (launch.backend.clone(), launch.bounds.clone());
    // What opens nothing there is not sent: it may be of any size.
    let (made, granted) = (launch.made(), launch.doors.clone());
    let workspace = launch.workspace.clone();
    let module = beside.module.map(Module::sealed).transpose().map_err(start)?;
    let offered = Offered::of(&launch)?;
    let own = pipes.theirs.iter().chain(&module).chain(offered.passage()).map(AsFd::as_fd);
    let fds: Vec<_> = own.chain(beside.held.iter().map(|fd| fd.as_fd())).collect();
    let kept = beside.held.len();
    let (id, mut tells) =
        host.launch(|id| Launch { id, kept, doors: made, ..launch }, &fds).map_err(start)?;
    // From here on the sandbox is ended by dropping this, on every way out.
    let lease = Lease { host: host.clone(), id };
    let seen = match tells.recv().await {
        Some(Tell::Launched { pid, namespaces, cgroup, ids, scratch, .. }) => {
            Outside { pid, namespaces, cgroup, ids, scratch, around: layers::Around::look() }
        }
        Some(Tell::Failed { doing, .. }) => return Err(Problem::Start(doing)),
        Some(Tell::Gone { status, .. }) => {
            return Err(Problem::Start(format!("it ended at once with status {status}")));
        }
        Some(Tell::Counted { .. }) | None => return Err(Problem::Start("the forker is gone".to_owned())),
    };
    // Init looks around by now, which takes longer than what can be made ready meanwhile.
    let sweep = Sweep::default();
    let disk = match &backend {
        // The image has its size.
        Backend::Microvm { .. } => None,
        Backend::Confined | Backend::Namespace | Backend::Gvisor { .. } => {
            Some(watched((&workspace, beside.given), &bounds, &seen, &sweep))
        }
    };
    let (hello, channel) = pipes.open(offered.exchange()).await.map_err(|e| match e {
        ChannelError::Silent { log } if log.trim().is_empty() => {
            Problem::Start(format!("the {tier} sandbox ended without a word"))
        }
        ChannelError::Silent { log } => Problem::Start(log),
        other => Problem::Start(other.to_string()),
    })?;
    if let Some(proven) = &hello.modules
        && !proven.problem.is_empty()
    {
        return Err(Problem::Engine(proven.problem.clone()));
    }
    // Only now: with an init that ended its folders are gone, and what ended it is the better reason.
    let disk = disk.transpose().map_err(start)?;
    // What init made is there, and nothing of a guest has run.
    if let Some(disk) = &disk {
        disk.begin();
    }
    let since = |at: Instant| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut layers = layers::layers(wall_of(tier, &backend), &backend, &seen, &hello, &bounds);
    layers.push(offered.layer(&granted));
    let way = offered.open().map_err(|e| Problem::Start(format!("take the doors over: {e}")))?;
    let report = Report {
        tier,
        engine: engine(tier, &backend, &hello),
        layers,
        start_ms: since(beside.since),
        launch_ms: since(began),
        not_collected: None,
    };
    // Fail closed: a layer that the tier promises must be there, as seen, not as asked for.
    let promised = layers::required(wall_of(tier, &backend));
    let needed = |layer: &&Layer| promised.contains(&layer.name) || layers::MODULES.contains(&layer.name);
    if let Some(layer) = report.layers.iter().filter(needed).find(|l| l.state == LayerState::None) {
        return Err(Problem::Layer { name: layer.name, detail: layer.detail.clone() });
    }
    let channel = Arc::new(channel);
    // It is set once, here.
    sweep.0.set(Arc::downgrade(&channel)).ok();
    let engine = matches!(backend, Backend::Gvisor { .. } | Backend::Microvm { .. });
    let clock = match &seen.cgroup.clock {
        Some(file) => Some(Clock::Group(file.clone())),
        // What an engine uses init does not see.
        None => engine.then_some(Clock::Tree(seen.pid)),
    };
    let machine = matches!(backend, Backend::Microvm { .. }) && !seen.cgroup.has("memory");
    let engine =
        machine.then(|| EngineMemory { first: seen.pid, bound: machine::memory_with_monitor(&bounds) });
    let cpu = Duration::from_secs(bounds.cpu_s);
    let sessions = (!seen.cgroup.has("cpu") && sessions::are_weighed()).then_some(seen.pid);
    let sandbox = Sandbox {
        report,
        channel,
        tells,
        lease,
        wall,
        disk,
        clock,
        engine,
        sessions,
        cpu,
        results: None,
        way,
    };
    Ok(Ready { sandbox, accepted: Acceptance::Tier })
}

/// What was seen from outside.
struct Outside {
    pid: i32,
    namespaces: Vec<String>,
    cgroup: CgroupSeen,
    ids: (u32, u32, u32),
    scratch: Option<PathBuf>,
    around: layers::Around,
}

/// The channel by which what earlier calls left running is ended, once it is open.
#[derive(Clone, Default)]
struct Sweep(Arc<OnceLock<Weak<Channel>>>);

/// What is bounded on the host's disk, and by whom what earlier calls left running is ended when it is passed.
fn watched(
    (workspace, given): (&Path, Option<u64>),
    bounds: &Bounds,
    seen: &Outside,
    sweep: &Sweep,
) -> std::io::Result<Disk> {
    let mut places = vec![Place::open(workspace, bounds.file_bytes, bounds.files)?.given(given)];
    if let Some(scratch) = &seen.scratch {
        places.push(Place::open(scratch, bounds.tmp, bounds.files.max(1024))?);
    }
    let (channel, runtime) = (sweep.clone(), tokio::runtime::Handle::current());
    let sweep = move || {
        if let Some(channel) = channel.0.get().and_then(Weak::upgrade) {
            // A channel that is broken belongs to a sandbox that is lost.
            runtime.spawn(async move { channel.sweep(StoppedBy::Disk).await.ok() });
        }
    };
    Disk::watch(places, seen.pid, Box::new(sweep))
}

fn engine(tier: Tier, backend: &Backend, hello: &Hello) -> String {
    let wall = match backend {
        Backend::Confined => format!("Linux {} Landlock and seccomp", hello.kernel),
        Backend::Namespace => format!("Linux {} namespaces", hello.kernel),
        Backend::Gvisor { runsc } => format!("gVisor, {}", runsc.display()),
        Backend::Microvm { vm } => vm.engine(),
    };
    match (tier, &hello.modules) {
        (Tier::Wasm, Some(proven)) => format!("{} behind {wall}", proven.engine),
        _ => wall,
    }
}

/// The tier whose walls stand around: a module's are those of the one it was launched in.
fn wall_of(tier: Tier, backend: &Backend) -> Tier {
    match (tier, backend) {
        (Tier::Wasm, Backend::Confined) => Tier::Confined,
        (Tier::Wasm, _) => Tier::Namespace,
        _ => tier,
    }
}
