//! What a sandbox was seen to be held by, layer by layer; what is by construction says so.

use policy::Tier;

use super::Outside;
use crate::clock;
use crate::disk;
use crate::engine::Filtered;
use crate::launch::{BASE_ID, Backend, Bounds, CgroupSeen, ID_COUNT, module_memory, translate};
use crate::machine::{Vm, image_bytes, memory_of_machine};
use crate::report::{Layer, LayerState};
use crate::sessions;
use crate::sys;
use crate::wasm::Proven;
use crate::weight;
use crate::wire::{Hello, Mend};

/// What a module has around it besides.
pub(super) const MODULES: [&str; 5] =
    ["module-memory", "module-files", "module-fuel", "module-deadline", "module-processes"];

/// Layers without which a tier is not what its name says.
pub(super) fn required(tier: Tier) -> &'static [&'static str] {
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
            "call-kill",
        ],
        // What its guest has of Linux's own walls is the engine's affair; those around the engine are ours.
        Tier::Gvisor => &[
            "kernel",
            "user-namespace",
            "pid-namespace",
            "mount-namespace",
            "network-namespace",
            "ipc-namespace",
            "uts-namespace",
            "ids",
            "engine-filter",
            "capabilities",
            "no-new-privileges",
            "network",
            "root",
            "call-kill",
        ],
        Tier::Microvm => &[
            "kernel",
            "user-namespace",
            "pid-namespace",
            "mount-namespace",
            "network-namespace",
            "ipc-namespace",
            "uts-namespace",
            "monitor-ids",
            "monitor-filter",
            "ids",
            "capabilities",
            "no-new-privileges",
            "seccomp",
            "landlock",
            "network",
            "root",
            "memory",
            "processes",
            "cores",
            "disk",
            "call-kill",
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
            "call-kill",
        ],
    }
}

/// What of the host itself is told beside a sandbox: looked at while that still begins.
#[derive(Debug)]
pub(super) struct Around {
    /// Filters that this program lives under itself (a container's); none where the kernel does not tell.
    filters: Option<u64>,
    /// Ids of this program's own user namespace.
    ids: String,
    /// Where crashes go; none where that cannot be read.
    core_pattern: Option<String>,
    /// What ids of this host users may give to user namespaces of theirs, as lists of `user:first:count`.
    lent: [String; 2],
}

impl Around {
    pub(super) fn look() -> Around {
        Around {
            filters: crate::engine::filters("self").and_then(|n| u64::try_from(n).ok()),
            ids: sys::text("/proc/self/uid_map").unwrap_or_default(),
            core_pattern: sys::text("/proc/sys/kernel/core_pattern").ok(),
            lent: ["/etc/subuid", "/etc/subgid"].map(|list| sys::text(list).unwrap_or_default()),
        }
    }
}

fn layer(name: &'static str, holds: bool, detail: impl Into<String>) -> Layer {
    let state = if holds { LayerState::Full } else { LayerState::None };
    Layer { name, state, detail: detail.into() }
}

fn part(name: &'static str, detail: impl Into<String>) -> Layer {
    Layer { name, state: LayerState::Part, detail: detail.into() }
}

/// What was seen of each layer.
pub(super) fn layers(
    tier: Tier,
    backend: &Backend,
    seen: &Outside,
    hello: &Hello,
    bounds: &Bounds,
) -> Vec<Layer> {
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
        layers.push(crashes(hello, &seen.around));
        layers
            .push(call_kill(hello, "everything a call started; all of it at once by the sentinel's domain"));
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
    let outer = |id: u32| translate(&seen.around.ids, id);
    let monitor = outer(outside);
    let host_id = outer(outside.saturating_add(hello.uid.saturating_sub(inside)));
    if let Some(vm) = vm {
        let told = format!("{} is host {monitor}; {count} id(s) mapped", vm.monitor.name());
        layers.push(ids("monitor-ids", monitor != 0, told, &seen.around, (outside, count)));
        layers.push(engine_filter("monitor-filter", vm.monitor.name(), seen.pid));
        let nobody = hello.uid != 0 && hello.gid != 0;
        layers.push(layer("ids", nobody, format!("guest {}:{} of its own kernel", hello.uid, hello.gid)));
    } else {
        let told = format!(
            "guest {}:{} is host {host_id}; {count} id(s) mapped{}",
            hello.uid,
            hello.gid,
            groups_kept(hello)
        );
        layers.push(ids("ids", host_id != 0, told, &seen.around, (outside, count)));
    }
    if tier == Tier::Gvisor {
        layers.push(engine_filter("engine-filter", "gVisor", seen.pid));
    }
    layers.push(layer(
        "capabilities",
        hello.caps_effective == 0 && hello.caps_bounding == 0,
        format!("effective {:#x}, bounding {:#x}", hello.caps_effective, hello.caps_bounding),
    ));
    layers.push(layer("no-new-privileges", hello.no_new_privs, format!("{}", hello.no_new_privs)));
    if tier == Tier::Namespace || tier == Tier::Microvm {
        // A machine's kernel has no filters but those of its guest.
        let around = if vm.is_some() { Some(0) } else { seen.around.filters };
        layers.push(seccomp(hello, around, FILTERS, "allow-list of system calls and socket families"));
        layers.push(match hello.landlock.as_str() {
            "full" => layer("landlock", true, "files, devices, signals and abstract sockets"),
            "part" => part("landlock", older_landlock(hello.landlock_version)),
            other => layer("landlock", false, format!("{other}: the kernel offers none")),
        });
    }
    // None seen is nothing seen.
    let only_loopback = hello.interfaces == ["lo"];
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
        Some(vm) => machine_limits(vm, seen, hello, bounds),
        None => limits(tier, seen, bounds, hello),
    });
    if tier == Tier::Namespace {
        layers.push(crashes(hello, &seen.around));
    }
    layers.push(call_kill(hello, "everything a call started, wherever it hid"));
    match &hello.modules {
        Some(proven) => layers.extend(of_modules(proven, bounds)),
        None => layers.push(tools(hello)),
    }
    layers
}

/// Whether what a call leaves can be ended: by the reapers that were seen to work, and a kill that really killed.
fn call_kill(hello: &Hello, what: &str) -> Layer {
    match (hello.kills, hello.subreaper) {
        (false, _) => layer("call-kill", false, "what init started and killed was not ended by it"),
        (true, true) => layer("call-kill", true, format!("{what}; one that init started was ended")),
        (true, false) => part(
            "call-kill",
            "there are no subreapers here: background processes of earlier calls die with a call that is ended",
        ),
    }
}

/// Ids of a sandbox on the host. Of those that only sandboxes should have, a host may have given some to a user for user
/// namespaces: as root of one that user may signal and trace whoever has them.
fn ids(name: &'static str, own: bool, told: String, around: &Around, (first, count): (u32, u32)) -> Layer {
    let (base, all) = (BASE_ID, BASE_ID + ID_COUNT);
    let lent = around.lent.iter().find_map(|list| lent(list, first, count));
    match lent.filter(|_| own && (base..all).contains(&first)) {
        Some(user) => part(
            name,
            format!("{told}, which this host has given to `{user}` as well (/etc/subuid, /etc/subgid)"),
        ),
        None => layer(name, own, told),
    }
}

/// Whose some of these ids are by a list of `user:first:count`.
fn lent(list: &str, first: u32, count: u32) -> Option<String> {
    let (first, end) = (u64::from(first), u64::from(first) + u64::from(count));
    list.lines().find_map(|line| {
        let [user, from, many] = line.split(':').collect::<Vec<_>>()[..] else { return None };
        let (from, many): (u64, u64) = (from.trim().parse().ok()?, many.trim().parse().ok()?);
        (user != "root" && from < end && first < from.saturating_add(many)).then(|| user.to_owned())
    })
}

/// The kernel lets nobody give up groups who has no right to set them.
fn groups_kept(hello: &Hello) -> String {
    match hello.groups {
        0 => String::new(),
        kept => format!("; with {kept} further group(s) of the executor's, which it may not give up"),
    }
}

/// Filters of ours that an init has on, and one of the confined tier.
const FILTERS: u64 = 3;
const CONFINED_FILTERS: u64 = 3;

/// Ours are those that a guest has beyond what was there before: a filter alone may be a container's.
fn seccomp(hello: &Hello, around: Option<u64>, ours: u64, what: &str) -> Layer {
    match (hello.seccomp, hello.filters.zip(around)) {
        (false, _) => layer("seccomp", false, "no filter is in force"),
        (true, None) => part(
            "seccomp",
            format!(
                "{what}; this kernel does not tell how many filters there are, so that it was not seen whose"
            ),
        ),
        (true, Some((all, around))) => {
            let detail = format!("{what}; {all} filters, {around} of them from around this program");
            layer("seccomp", all >= around.saturating_add(ours), detail)
        }
    }
}

/// The bound of both temporary folders, as their own file systems tell it.
fn tmp(hello: &Hello, bounds: &Bounds) -> Layer {
    let most = bounds.tmp.next_multiple_of(4096);
    match hello.tmp.iter().all(|seen| (1..=most).contains(seen)) {
        true => layer("tmp", true, format!("{} MiB each for /tmp and /dev/shm", bounds.tmp >> 20)),
        false => part(
            "tmp",
            format!(
                "{} MiB each for /tmp and /dev/shm were asked for, their file systems tell {} and {}",
                bounds.tmp >> 20,
                hello.tmp[0] >> 20,
                hello.tmp[1] >> 20
            ),
        ),
    }
}

/// What an engine may not ask of the host's kernel.
fn engine_filter(name: &'static str, engine: &str, first: i32) -> Layer {
    match Filtered::below(first) {
        Some(seen) => {
            let Filtered { ours, own, all } = seen;
            let detail = format!("ours in {ours} of {all} threads of {engine}, its own on top in {own}");
            layer(name, seen.holds(), detail)
        }
        None => layer(name, false, "the engine cannot be looked at"),
    }
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
        ids(
            "ids",
            hello.uid != 0 && hello.gid != 0,
            format!("{}:{}, {whose}{}", hello.uid, hello.gid, groups_kept(hello)),
            &seen.around,
            (outside, 1),
        ),
        layer(
            "capabilities",
            hello.caps_effective == 0 && hello.no_new_privs,
            format!(
                "effective {:#x}, bounding {:#x}, none can be gained",
                hello.caps_effective, hello.caps_bounding
            ),
        ),
        layer("no-new-privileges", hello.no_new_privs, format!("{}", hello.no_new_privs)),
        seccomp(
            hello,
            seen.around.filters,
            CONFINED_FILTERS,
            "allow-list of system calls; sockets only as pairs",
        ),
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

/// Whether a guest's crash may reach a program of the host's, as root and outside. Every limit but 1 lets a `core_pattern`
/// that is a pipe start its handler; one that is a socket (Linux 6.16) hands the crash to its server whatever the limit.
fn crashes(hello: &Hello, around: &Around) -> Layer {
    // A setting that cannot be read counts as the worse one.
    let first = around.core_pattern.as_ref().map_or(Some('|'), |pattern| pattern.chars().next());
    match (hello.core_limit, first) {
        (_, Some('@')) => part(
            "crashes",
            "a crash reaches the host's server, the socket of `core_pattern`, whatever the limit",
        ),
        (1, _) => layer("crashes", true, "no core file, and no handler of the host"),
        (limit, Some('|')) => part(
            "crashes",
            format!(
                "a crash starts the host's handler of `core_pattern` (limit {limit}: the executor's own hard limit \
                 is not more)"
            ),
        ),
        (0, _) => layer("crashes", true, "no core file; the host's `core_pattern` is no pipe"),
        (limit, _) => {
            part("crashes", format!("core files (limit {limit}: the executor's own hard limit is not more)"))
        }
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

/// Processes beyond a guest's own that the rlimit of a user namespace leaves room for, at most.
const OURS: u64 = 24;

fn limits(tier: Tier, seen: &Outside, bounds: &Bounds, hello: &Hello) -> Vec<Layer> {
    let has = |name: &str| seen.cgroup.has(name);
    let by = &seen.cgroup.name;
    let memory = bounds.memory >> 20;
    let mut layers = vec![groups(&seen.cgroup)];
    layers.push(if has("memory") {
        let told = format!("{memory} MiB by {by}");
        match seen.cgroup.swap {
            false => layer("memory", true, told),
            true => part("memory", format!("{told}, {SWAP}")),
        }
    } else {
        part(
            "memory",
            format!(
                "{memory} MiB of all processes together, added up by init every 100 ms, what came in between is \
                 not held; {}: no cgroup ({})",
                beside_memory(tier, hello),
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
        (_, false) if hello.processes_limit > u64::from(bounds.processes).saturating_add(OURS) => part(
            "processes",
            format!(
                "{} counted by init every 100 ms; the rlimit that init has is {}",
                bounds.processes, hello.processes_limit
            ),
        ),
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
                "{} by affinity ({} seen), shared with others, {}: no cgroup ({})",
                bounds.cores,
                hello.cores,
                behind(seen.pid),
                seen.cgroup.why("cpu")
            ),
        )
    });
    layers.push(cpu(seen, bounds, tier));
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
        tmp(hello, bounds)
    });
    layers
}

/// Of a group that bounds memory alone.
const SWAP: &str = "and as much as there is of this host's swap beyond it, which the group could not bound";

/// What init counts beside memory where no group does, and what nobody counts then.
fn beside_memory(tier: Tier, hello: &Hello) -> String {
    let (socket, pipe) = (weight::SOCKET >> 10, weight::PIPE >> 10);
    match tier {
        // Its network is its engine's.
        Tier::Gvisor | Tier::Microvm => "the engine's own is not counted".to_owned(),
        Tier::Confined | Tier::Namespace | Tier::Wasm => {
            let tcp = match hello.tcp > weight::SOCKET && tier == Tier::Namespace {
                true => format!(", though one of TCP may hold {} KiB", hello.tcp >> 10),
                false => String::new(),
            };
            format!(
                "each socket counts as {socket} KiB{tcp} and each pipe as {pipe}; of what else the kernel keeps (file \
                 locks, watches, descriptors on their way through a socket) nothing is counted"
            )
        }
    }
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
fn cpu(seen: &Outside, bounds: &Bounds, tier: Tier) -> Layer {
    let engine = matches!(tier, Tier::Gvisor | Tier::Microvm);
    // Inside a gVisor who waits for a processor counts as one who uses it.
    let (init, each) = match tier {
        Tier::Gvisor => ("", ""),
        _ => (" added up by init every 100 ms;", "; each by rlimit"),
    };
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
            "by construction: {} s of all processes together, the dead too;{init} {all}{each}",
            bounds.cpu_s
        ),
    )
}

/// Bounds that are the machine's own size, or its kernel's.
fn machine_limits(vm: &Vm, seen: &Outside, hello: &Hello, bounds: &Bounds) -> Vec<Layer> {
    let monitor = if seen.cgroup.has("memory") {
        let swap = if seen.cgroup.swap { format!(", {SWAP}") } else { String::new() };
        format!("; its monitor by {}{swap}", seen.cgroup.name)
    } else {
        format!(
            "; its monitor's looked at from outside every {} ms while a call runs: no cgroup ({})",
            clock::EVERY.as_millis(),
            seen.cgroup.why("memory")
        )
    };
    // What its kernel has is what it was given but for what it keeps for itself; the guest's part is its group's.
    let of_machine = memory_of_machine(bounds);
    let memory = format!(
        "the machine has {} MiB of which its kernel manages {}, its guest has {} of them by that kernel's cgroup{monitor}",
        of_machine >> 20,
        hello.memory >> 20,
        bounds.memory >> 20
    );
    let turns = if vm.is_emulated_by_qemu_7() { ", which take turns" } else { "" };
    let cores = bounds.cores.clamp(1, 16);
    let image = image_bytes(bounds);
    let within = |seen: u64, most: u64| (1..=most).contains(&seen);
    vec![
        groups(&seen.cgroup),
        layer("memory", hello.own_group && within(hello.memory, of_machine), memory),
        layer(
            "processes",
            hello.own_group,
            format!("{} by a cgroup of its own kernel and rlimit", bounds.processes),
        ),
        layer(
            "cores",
            within(hello.cores.into(), cores.into()),
            format!("the machine was given {cores}{turns}; its kernel has {}", hello.cores),
        ),
        cpu(seen, bounds, Tier::Microvm),
        layer(
            "disk",
            within(hello.disk, image),
            format!(
                "the workspace is an image of {} MiB, in which there is room for {}",
                image >> 20,
                hello.disk >> 20
            ),
        ),
        tmp(hello, bounds),
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::machine::{Accel, Board, Monitor};

    fn backends() -> [(Tier, Backend); 4] {
        let file = || PathBuf::from("/nonexistent");
        let vm = Vm {
            monitor: Monitor::Qemu { board: Board::Microvm, accel: Accel::Emulated },
            program: file(),
            version: "7.2".to_owned(),
            kernel: file(),
            release: "6.1".to_owned(),
            initramfs: file(),
            root: None,
            work: None,
            exchange: None,
            left_out: String::new(),
            tsc_khz: 1,
        };
        [
            (Tier::Confined, Backend::Confined),
            (Tier::Namespace, Backend::Namespace),
            (Tier::Gvisor, Backend::Gvisor { runsc: file() }),
            (Tier::Microvm, Backend::Microvm { vm: Box::new(vm) }),
        ]
    }

    fn nothing() -> Outside {
        let cgroup = CgroupSeen::default();
        Outside {
            pid: 0,
            namespaces: Vec::new(),
            cgroup,
            ids: (0, 0, 0),
            scratch: None,
            around: Around::look(),
        }
    }

    fn bounds() -> Bounds {
        Bounds::of(&policy::Limits::default())
    }

    /// The receipt is never assumed: of a sandbox of which nothing was seen, nothing is told as held but what says that
    /// it is by construction; and each layer that its tier must have is missing, so that it is refused.
    #[test]
    fn r57_of_what_was_not_seen_nothing_is_told_as_held() {
        // An empty answer says "none" of these; what cannot be read counts as all.
        let hello = Hello {
            caps_effective: u64::MAX,
            caps_bounding: u64::MAX,
            core_limit: u64::MAX,
            ..Hello::default()
        };
        for (tier, backend) in backends() {
            let layers = layers(tier, &backend, &nothing(), &hello, &bounds());
            for layer in layers.iter().filter(|l| l.state == LayerState::Full) {
                // Ordinary programs are asked for faults, of which none was seen.
                let told = layer.detail.starts_with("by construction") || layer.name == "tools";
                assert!(told, "{tier}: {layer:?}");
            }
            for name in required(tier) {
                let found = layers.iter().find(|l| l.name == *name).map(|l| l.state);
                assert_eq!(found, Some(LayerState::None), "{tier}: {name}");
            }
        }
    }

    /// A container brings a filter of its own, which is none of ours.
    #[test]
    fn r57_a_filter_that_was_there_before_is_not_told_as_ours() {
        let with = |filters| Hello { seccomp: true, filters, ..Hello::default() };
        let state = |filters, around| seccomp(&with(filters), around, FILTERS, "").state;
        assert_eq!(state(Some(1), Some(1)), LayerState::None);
        assert_eq!(state(Some(3), Some(1)), LayerState::None);
        assert_eq!(state(Some(4), Some(1)), LayerState::Full);
        assert_eq!(state(Some(3), Some(0)), LayerState::Full);
        // A kernel that does not tell.
        assert_eq!(state(None, Some(1)), LayerState::Part);
        assert_eq!(state(Some(4), None), LayerState::Part);
    }

    #[test]
    fn ids_that_a_host_gives_to_a_user_are_found() {
        let list = "alice:100000:65536\nrubbish\nbob:165536:65536\nroot:200000:65536\n";
        assert_eq!(lent(list, 201_000, 1).as_deref(), Some("bob"));
        assert_eq!(lent(list, 200_000, 65_536).as_deref(), Some("bob"));
        assert_eq!(lent(list, 231_072, 1), None);
        assert_eq!(lent("carol:231072:65536\n", 201_000, 1), None);
        assert_eq!(lent("1000:0:4294967295\n", 201_000, 1).as_deref(), Some("1000"));
    }

    #[test]
    fn a_bound_that_a_file_system_or_kernel_does_not_have_is_told() {
        let bounds = bounds();
        let state = |tmp| super::tmp(&Hello { tmp, ..Hello::default() }, &bounds).state;
        assert_eq!(state([bounds.tmp, bounds.tmp]), LayerState::Full);
        for seen in [[0, bounds.tmp], [bounds.tmp, bounds.tmp + 8192]] {
            assert_eq!(state(seen), LayerState::Part, "{seen:?}");
        }
        let [.., (_, Backend::Microvm { vm })] = backends() else { unreachable!() };
        let sound = Hello {
            own_group: true,
            memory: bounds.memory,
            cores: 2,
            disk: bounds.file_bytes - 1,
            ..Hello::default()
        };
        let state = |hello: &Hello, name: &str| {
            let layers = machine_limits(&vm, &nothing(), hello, &bounds);
            layers.into_iter().find(|l| l.name == name).unwrap().state
        };
        for name in ["memory", "cores", "disk", "processes"] {
            assert_eq!(state(&sound, name), LayerState::Full, "{name}");
        }
        let more = Hello { memory: bounds.memory * 2, cores: 3, disk: u64::MAX, own_group: false, ..sound };
        for name in ["memory", "cores", "disk", "processes"] {
            assert_eq!(state(&more, name), LayerState::None, "{name}");
        }
    }
}
