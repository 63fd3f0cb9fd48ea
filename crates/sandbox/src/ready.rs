//! A sandbox that answered and was measured, before any guest code runs in it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use policy::{Acceptance, StoppedBy, Tier};

use crate::channel::{Channel, ChannelError, Pipes};
use crate::clock::{self, Clock};
use crate::disk::{self, Disk, Place};
use crate::doors::Offered;
use crate::launch::{Backend, Bounds, CgroupSeen, Launch, module_memory, outer_id};
use crate::machine::{Results, Vm};
use crate::message::Tell;
use crate::problem::Problem;
use crate::report::{Layer, LayerState, Report};
use crate::running::{Lease, Running, Sandbox};
use crate::sessions;
use crate::wasm::Proven;
use crate::wire::{Hello, Mend};
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
#[derive(Clone, Copy, Default)]
pub(crate) struct Beside<'a> {
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
    let granted = launch.doors.clone();
    let workspace = launch.workspace.clone();
    let module = beside.module.map(Module::sealed).transpose().map_err(start)?;
    let offered = Offered::of(&launch)?;
    let own = pipes.theirs.iter().chain(&module).chain(offered.passage()).map(AsFd::as_fd);
    let fds: Vec<_> = own.chain(beside.held.iter().map(|fd| fd.as_fd())).collect();
    let kept = beside.held.len();
    let (id, mut tells) = host.launch(|id| Launch { id, kept, ..launch }, &fds).map_err(start)?;
    // From here on the sandbox is ended by dropping this, on every way out.
    let lease = Lease { host: host.clone(), id };
    let seen = match tells.recv().await {
        Some(Tell::Launched { pid, namespaces, cgroup, ids, scratch, .. }) => {
            Outside { pid, namespaces, cgroup, ids, scratch }
        }
        Some(Tell::Failed { doing, .. }) => return Err(Problem::Start(doing)),
        Some(Tell::Gone { status, .. }) => {
            return Err(Problem::Start(format!("it ended at once with status {status}")));
        }
        Some(Tell::Counted { .. }) | None => return Err(Problem::Start("the forker is gone".to_owned())),
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
    let mut layers = layers(wall_of(tier, &backend), &backend, &seen, &hello, &bounds);
    layers.push(offered.layer(&granted));
    let way = offered.open().map_err(|e| Problem::Start(format!("take the doors over: {e}")))?;
    let report = Report {
        tier,
        engine: engine(tier, &backend, &hello),
        layers,
        start_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        not_collected: None,
    };
    // Fail closed: a layer that the tier promises must be there, as seen, not as asked for.
    let promised = required(wall_of(tier, &backend));
    let needed = |layer: &&Layer| promised.contains(&layer.name) || MODULES.contains(&layer.name);
    if let Some(layer) = report.layers.iter().filter(needed).find(|l| l.state == LayerState::None) {
        return Err(Problem::Layer { name: layer.name, detail: layer.detail.clone() });
    }
    let channel = Arc::new(channel);
    let workspace = (workspace.as_path(), beside.given);
    let (disk, engine) = match &backend {
        // The image has its size.
        Backend::Microvm { .. } => (None, true),
        Backend::Gvisor { .. } => (Some(watched(workspace, &bounds, &seen, &channel).map_err(start)?), true),
        Backend::Confined | Backend::Namespace => {
            (Some(watched(workspace, &bounds, &seen, &channel).map_err(start)?), false)
        }
    };
    let clock = match &seen.cgroup.clock {
        Some(file) => Some(Clock::Group(file.clone())),
        // What an engine uses init does not see.
        None => engine.then_some(Clock::Tree(seen.pid)),
    };
    let cpu = Duration::from_secs(bounds.cpu_s);
    let sessions = (!seen.cgroup.has("cpu") && sessions::are_weighed()).then_some(seen.pid);
    let sandbox =
        Sandbox { report, channel, tells, lease, wall, disk, clock, sessions, cpu, results: None, way };
    Ok(Ready { sandbox, accepted: Acceptance::Tier })
}

/// What was seen from outside.
struct Outside {
    pid: i32,
    namespaces: Vec<String>,
    cgroup: CgroupSeen,
    ids: (u32, u32, u32),
    scratch: Option<PathBuf>,
}

/// What is bounded on the host's disk, and by whom what earlier calls left running is ended when it is passed.
fn watched(
    (workspace, given): (&Path, Option<u64>),
    bounds: &Bounds,
    seen: &Outside,
    channel: &Arc<Channel>,
) -> std::io::Result<Disk> {
    let mut places = vec![Place::open(workspace, bounds.file_bytes, bounds.files)?.given(given)];
    if let Some(scratch) = &seen.scratch {
        places.push(Place::open(scratch, bounds.tmp, bounds.files.max(1024))?);
    }
    let (channel, runtime) = (Arc::downgrade(channel), tokio::runtime::Handle::current());
    let sweep = move || {
        if let Some(channel) = channel.upgrade() {
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

/// What a module has around it besides.
const MODULES: [&str; 5] =
    ["module-memory", "module-files", "module-fuel", "module-deadline", "module-processes"];

/// Layers without which a tier is not what its name says.
fn required(tier: Tier) -> &'static [&'static str] {
    match tier {
        Tier::Namespace => &[
            "user-namespace",
            "pid-namespace",
            "mount-namespace",
            "network-namespace",
            "ipc-namespace",
            "uts-namespace",
            "ids",
            "capabilities",
            "no-new-privileges",
            "seccomp",
            "landlock",
            "network",
            "root",
        ],
        Tier::Gvisor => &[
            "kernel",
            "user-namespace",
            "pid-namespace",
            "mount-namespace",
            "network-namespace",
            "ids",
            "capabilities",
            "network",
            "root",
        ],
        Tier::Microvm => &[
            "kernel",
            "user-namespace",
            "pid-namespace",
            "mount-namespace",
            "network-namespace",
            "monitor-ids",
            "ids",
            "capabilities",
            "no-new-privileges",
            "seccomp",
            "network",
            "root",
            "processes",
        ],
        // Never asked for by this name: see `wall_of`.
        Tier::Confined | Tier::Wasm => &[
            "ids",
            "capabilities",
            "no-new-privileges",
            "seccomp",
            "landlock",
            "signals",
            "network",
            "root",
            "view",
        ],
    }
}

fn layer(name: &'static str, holds: bool, detail: impl Into<String>) -> Layer {
    let state = if holds { LayerState::Full } else { LayerState::None };
    Layer { name, state, detail: detail.into() }
}

fn part(name: &'static str, detail: impl Into<String>) -> Layer {
    Layer { name, state: LayerState::Part, detail: detail.into() }
}

fn layers(tier: Tier, backend: &Backend, seen: &Outside, hello: &Hello, bounds: &Bounds) -> Vec<Layer> {
    let mut layers = Vec::new();
    let vm = match backend {
        Backend::Microvm { vm } => Some(vm),
        Backend::Confined | Backend::Namespace | Backend::Gvisor { .. } => None,
    };
    if let Some(vm) = vm {
        let own = hello.kernel == vm.release && !hello.gvisor;
        layers.push(layer("kernel", own, format!("its own in a virtual machine: {}", vm.engine())));
    }
    if tier == Tier::Gvisor {
        layers.push(layer("kernel", hello.gvisor, "system calls are answered by gVisor's own kernel"));
    }
    if tier == Tier::Confined {
        layers.extend(confined(seen, hello));
        layers.extend(limits(tier, seen, bounds, hello));
        layers.push(crashes(hello));
        layers.push(layer(
            "call-kill",
            true,
            "everything a call started; all of it at once by the sentinel's domain",
        ));
        match &hello.modules {
            Some(proven) => layers.extend(of_modules(proven, bounds)),
            None => layers.push(part(
                "tools",
                "by path no owner or attribute can be set and nothing watched; no shared memory, terminals or /tmp",
            )),
        }
        return layers;
    }
    for (name, short) in [
        ("user-namespace", "user"),
        ("pid-namespace", "pid"),
        ("mount-namespace", "mnt"),
        ("network-namespace", "net"),
        ("ipc-namespace", "ipc"),
        ("uts-namespace", "uts"),
    ] {
        let own = seen.namespaces.iter().any(|n| n == short);
        layers.push(layer(name, own, if own { "its own" } else { "shared with the executor" }));
    }
    let (inside, outside, count) = seen.ids;
    // As the host's own namespace knows it: an executor that is root of a namespace only is not root.
    let monitor = outer_id(outside);
    let host_id = outer_id(outside.saturating_add(hello.uid.saturating_sub(inside)));
    if let Some(vm) = vm {
        layers.push(layer(
            "monitor-ids",
            monitor != 0,
            format!("{} is host {monitor}; {count} id(s) mapped", vm.monitor.name()),
        ));
        // Whoever built it decided whether it has one.
        let (all, detail) = match machine::filtered_threads(seen.pid) {
            Some((filtered, all)) => (
                filtered == all && all > 0,
                format!("{}'s own seccomp filter, in {filtered} of {all} threads", vm.monitor.name()),
            ),
            None => (false, "the monitor cannot be looked at".to_owned()),
        };
        layers.push(layer("monitor-filter", all, detail));
        let nobody = hello.uid != 0 && hello.gid != 0;
        layers.push(layer("ids", nobody, format!("guest {}:{} of its own kernel", hello.uid, hello.gid)));
    } else {
        layers.push(layer(
            "ids",
            host_id != 0,
            format!("guest {}:{} is host {host_id}; {count} id(s) mapped", hello.uid, hello.gid),
        ));
    }
    layers.push(layer(
        "capabilities",
        hello.caps_effective == 0 && hello.caps_bounding == 0,
        format!("effective {:#x}, bounding {:#x}", hello.caps_effective, hello.caps_bounding),
    ));
    layers.push(layer("no-new-privileges", hello.no_new_privs, format!("{}", hello.no_new_privs)));
    if tier == Tier::Namespace || tier == Tier::Microvm {
        layers.push(layer("seccomp", hello.seccomp, "allow-list of system calls and socket families"));
        layers.push(match hello.landlock.as_str() {
            "full" => layer("landlock", true, "files, devices, signals and abstract sockets"),
            "part" => part("landlock", older_landlock(hello.landlock_version)),
            other => layer("landlock", false, format!("{other}: the kernel offers none")),
        });
    }
    let only_loopback = hello.interfaces.iter().all(|name| name == "lo");
    let device = if vm.is_some() { "; no network device" } else { "" };
    layers.push(layer(
        "network",
        only_loopback,
        format!("interfaces: {}{device}", hello.interfaces.join(", ")),
    ));
    layers.push(layer(
        "root",
        hello.root_read_only,
        format!(
            "private, read-only, {} mounts; only /workspace, /tmp and /dev/shm can be written{}",
            hello.mounts,
            match vm {
                Some(vm) if !vm.left_out.is_empty() => format!("; an image {}", vm.left_out),
                _ => String::new(),
            }
        ),
    ));
    layers.extend(match vm {
        Some(_) => machine_limits(seen, hello, bounds),
        None => limits(tier, seen, bounds, hello),
    });
    if tier == Tier::Namespace {
        layers.push(crashes(hello));
    }
    layers.push(if hello.subreaper {
        layer("call-kill", true, "everything a call started, wherever it hid")
    } else {
        part("call-kill", "this engine has no subreapers: background processes of earlier calls die with it")
    });
    match &hello.modules {
        Some(proven) => layers.extend(of_modules(proven, bounds)),
        None => layers.push(tools(hello)),
    }
    layers
}

/// The inner walls, as a module of ours met them.
fn of_modules(proven: &Proven, bounds: &Bounds) -> Vec<Layer> {
    let memory = module_memory(bounds) >> 20;
    vec![
        layer("module-memory", proven.memory, format!("linear, bounds-checked, at most {memory} MiB")),
        layer(
            "module-files",
            proven.closed,
            "its process can open nothing but the workspace, by a Landlock domain of its own; WASI looks names up \
             beneath it",
        ),
        layer(
            "module-processes",
            proven.alone,
            "its process can start nothing and make no socket, by seccomp",
        ),
        layer("module-fuel", proven.fuel, "instructions are counted"),
        layer("module-deadline", proven.deadline, "ended from inside at its deadline, by epoch"),
    ]
}

/// The confined tier's own story: what is closed, and what can still be seen.
fn confined(seen: &Outside, hello: &Hello) -> Vec<Layer> {
    let (_, outside, _) = seen.ids;
    let shared = hello.uid == outside && outside != crate::launch::BASE_ID + crate::launch::GUEST_ID;
    let whose = if shared { "the executor's own" } else { "an id of sandboxes only" };
    vec![
        Layer {
            name: "namespaces",
            state: LayerState::None,
            detail:
                "none: host name, mounts and process numbers are the executor's; IPC is closed by seccomp"
                    .to_owned(),
        },
        layer("ids", hello.uid != 0 && hello.gid != 0, format!("{}:{}, {whose}", hello.uid, hello.gid)),
        layer(
            "capabilities",
            hello.caps_effective == 0 && hello.no_new_privs,
            format!(
                "effective {:#x}, bounding {:#x}, none can be gained",
                hello.caps_effective, hello.caps_bounding
            ),
        ),
        layer("no-new-privileges", hello.no_new_privs, format!("{}", hello.no_new_privs)),
        layer("seccomp", hello.seccomp, "allow-list of system calls; sockets only as pairs"),
        layer("landlock", hello.landlock == "full", "files, devices, signals, abstract sockets, tracing"),
        layer("signals", hello.signals_scoped, "a process of the same ids above init cannot be signalled"),
        layer("network", hello.no_sockets, "no socket can be made, loopback included"),
        layer("root", hello.root_read_only, "only the workspace and a private folder can be written"),
        layer(
            "view",
            hello.outside_closed,
            "contents outside program trees cannot be read; names, sizes and numbers of processes can be seen",
        ),
    ]
}

/// What a kernel's rules lack; the namespaces hold scopes as well, and the mounts most of the rest.
fn older_landlock(version: i64) -> String {
    let lacks: Vec<&str> = [
        (2, "moves between folders (refused altogether)"),
        (3, "truncation"),
        (5, "ioctl of devices"),
        (6, "scopes of signals and abstract sockets"),
    ]
    .into_iter()
    .filter_map(|(since, what)| (version < since).then_some(what))
    .collect();
    format!("version {version} of an older kernel, without {}", lacks.join(", "))
}

/// Whether a guest's crash may start a program of the host's. Every limit but 1 lets a `core_pattern` that is a
/// pipe start its handler, as root and outside.
fn crashes(hello: &Hello) -> Layer {
    // A setting that cannot be read counts as the worse one.
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_else(|_| "|".to_owned());
    match (hello.core_limit, pattern.starts_with('|')) {
        (1, _) => layer("crashes", true, "no core file, and no handler of the host"),
        (0, false) => layer("crashes", true, "no core file; the host's `core_pattern` is no pipe"),
        (limit, piped) => part(
            "crashes",
            format!(
                "{} (limit {limit}: the executor's own hard limit is not more)",
                if piped { "a crash starts the host's handler of `core_pattern`" } else { "core files" }
            ),
        ),
    }
}

/// By what bounds are held, by the name of its back end.
fn groups(seen: &CgroupSeen) -> Layer {
    let held = format!("{}: {}", seen.name, seen.controllers.join(", "));
    match (seen.name.is_empty(), seen.missing.is_empty()) {
        (true, _) => Layer {
            name: "groups",
            state: LayerState::None,
            detail: format!("no cgroup, but rlimits and init's own adding up ({})", seen.lacks()),
        },
        (false, true) => layer("groups", true, held),
        (false, false) => part("groups", format!("{held}; no cgroup for the rest ({})", seen.lacks())),
    }
}

fn limits(tier: Tier, seen: &Outside, bounds: &Bounds, hello: &Hello) -> Vec<Layer> {
    let has = |name: &str| seen.cgroup.has(name);
    let by = &seen.cgroup.name;
    let memory = bounds.memory >> 20;
    let mut layers = vec![groups(&seen.cgroup)];
    layers.push(if has("memory") {
        layer("memory", true, format!("{memory} MiB by {by}"))
    } else {
        part(
            "memory",
            format!(
                "{memory} MiB of all processes together, added up by init every 100 ms, what came in between is \
                 not held: no cgroup ({})",
                seen.cgroup.why("memory")
            ),
        )
    });
    // What the executor was allowed itself may be less than a guest is promised.
    let fewer = tier != Tier::Gvisor && hello.processes_limit < u64::from(bounds.processes);
    layers.push(match (tier, has("pids")) {
        _ if fewer => part(
            "processes",
            format!(
                "{} at most instead of {}: the executor's own limit (`ulimit -u`)",
                hello.processes_limit, bounds.processes
            ),
        ),
        (Tier::Gvisor, held) => part(
            "processes",
            format!(
                "{} by a limit that an engine of 2022 does not hold, and counted by init every 100 ms; threads of the engine by {}",
                bounds.processes,
                if held { by.as_str() } else { "rlimit" }
            ),
        ),
        (Tier::Confined, held) => part(
            "processes",
            format!(
                "{} counted by init every 100 ms, and by {}",
                bounds.processes,
                if held { by.as_str() } else { "rlimit together with all else of the same user" }
            ),
        ),
        (_, true) => layer("processes", true, format!("{} by {by} and rlimit", bounds.processes)),
        (_, false) => layer(
            "processes",
            true,
            format!("{} counted by init every 100 ms, and by rlimit of the user namespace", bounds.processes),
        ),
    });
    layers.push(if has("cpu") {
        layer("cores", true, format!("{} by {by}, with a third of the weight of others", bounds.cores))
    } else {
        part(
            "cores",
            format!(
                "{} by affinity, shared with others, {}: no cgroup ({})",
                bounds.cores,
                behind(seen.pid),
                seen.cgroup.why("cpu")
            ),
        )
    });
    layers.push(cpu(seen, bounds, tier == Tier::Gvisor));
    let (every, at_least) = (disk::EVERY.as_millis(), disk::AT_LEAST.as_millis());
    let watched = format!(
        "watched: what the file system has left every {every} ms, and all of it every {at_least} ms (or {} times \
         what a look takes); what is written in between is beyond",
        disk::SHARE
    );
    layers.push(part(
        "disk",
        format!(
            "{} MiB and {} files in all, {watched}; each file by rlimit",
            bounds.file_bytes >> 20,
            bounds.files
        ),
    ));
    layers.push(if tier == Tier::Confined {
        part("tmp", format!("{} MiB of a private folder on the disk of the run, {watched}", bounds.tmp >> 20))
    } else {
        layer("tmp", true, format!("{} MiB each for /tmp and /dev/shm", bounds.tmp >> 20))
    });
    layers
}

/// How a sandbox without a group stands behind others, as seen from outside.
fn behind(first: i32) -> String {
    let seen =
        rustix::process::Pid::from_raw(first).map(|pid| rustix::process::getpriority_process(Some(pid)));
    let nice = match seen {
        Some(Ok(nice)) => format!("nice {nice}, which no guest can raise"),
        Some(Err(_)) | None => "of a priority that cannot be seen".to_owned(),
    };
    match sessions::are_weighed() {
        true => format!(
            "{nice}; this host weighs sessions (autogroup), so a call's are put behind others, looked at every {} ms",
            sessions::EVERY.as_millis()
        ),
        false => nice,
    }
}

/// Processor time, and who adds it up.
fn cpu(seen: &Outside, bounds: &Bounds, engine: bool) -> Layer {
    let whose = if engine { ", the engine's own among it" } else { "" };
    let all = match (&seen.cgroup.clock, engine) {
        (Some(_), _) => {
            format!("by {} every {} ms{whose}", seen.cgroup.name, clock::EVERY.as_millis())
        }
        (None, true) => format!("added up from outside every {} ms{whose}", clock::EVERY.as_millis()),
        (None, false) => {
            "of those who ignore the end of their children only what was seen of these".to_owned()
        }
    };
    layer(
        "cpu",
        true,
        format!(
            "{} s of all processes together, the dead too, added up by init every 100 ms; {all}; each by rlimit",
            bounds.cpu_s
        ),
    )
}

/// Bounds that are the machine's own size, or its kernel's.
fn machine_limits(seen: &Outside, hello: &Hello, bounds: &Bounds) -> Vec<Layer> {
    let monitor = if seen.cgroup.has("memory") {
        format!("; its monitor by {}", seen.cgroup.name)
    } else {
        format!("; its monitor by nothing more: no cgroup ({})", seen.cgroup.why("memory"))
    };
    let memory = format!("the machine has {} MiB{monitor}", bounds.memory >> 20);
    vec![
        groups(&seen.cgroup),
        layer("memory", true, memory),
        layer(
            "processes",
            hello.own_group,
            format!("{} by a cgroup of its own kernel and rlimit", bounds.processes),
        ),
        layer("cores", true, format!("the machine has {}", bounds.cores.clamp(1, 16))),
        cpu(seen, bounds, true),
        layer("disk", true, format!("the workspace is an image of {} MiB", bounds.file_bytes >> 20)),
        layer("tmp", true, format!("{} MiB each for /tmp and /dev/shm", bounds.tmp >> 20)),
    ]
}

/// Whether ordinary programs work: an engine in which `ls` fails is told as such.
fn tools(hello: &Hello) -> Layer {
    let faults: Vec<String> = [
        (hello.statx, "statx as ls, stat and du call it"),
        (hello.link_xattr, "lgetxattr of links, as ls -l calls it"),
    ]
    .into_iter()
    .filter_map(|(mend, what)| match mend {
        Mend::Sound => None,
        Mend::Mended => Some(format!("{what}: a fault of this engine, closed by a filter")),
        Mend::Broken => Some(format!("{what}: fails in this engine, take a newer one")),
    })
    .collect();
    if faults.is_empty() {
        layer("tools", true, "ls, stat and du work")
    } else {
        part("tools", faults.join("; "))
    }
}
