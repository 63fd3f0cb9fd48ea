//! What would mend a machine that cannot hold a tier, or a layer of one: told as exactly as can be seen from here.

use std::fs;

use policy::Tier;

use crate::report::{Layer, LayerState, Report};

/// What a container engine must be told so that it stands in the way of nothing.
const CONTAINER: &str = "start the container with `--security-opt seccomp=unconfined --security-opt \
    apparmor=unconfined --security-opt systempaths=unconfined`, or take the tier `confined`, which needs none of that";

/// What would stand in a guest's way on a machine: a root without rights, whose id a guest must not have.
const ORDINARY: &str = "run the executor as an ordinary user (in a container: `--user 1000:1000`): this root has no \
    rights of root, and a guest would have its id";

/// What the kernel says of itself in its files; a test has its own.
type Read<'a> = &'a dyn Fn(&str) -> String;

fn kernel(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Whether every tier that needs namespaces fails for this reason.
pub(crate) fn is_about_namespaces(doing: &str) -> bool {
    ["create the namespaces", "map the ids", "enter a cgroup namespace"]
        .iter()
        .any(|step| doing.contains(step))
}

/// Whether a step failed for want of room, and not of something that a tier stands on. A bound that the executor was
/// started with is no such thing, and the kernel says that there is no room for namespaces where their number is bounded.
pub(crate) fn is_of_the_moment(doing: &str) -> bool {
    let room = [libc::EIO, libc::EAGAIN, libc::ENOMEM, libc::ENFILE, libc::ENOSPC, libc::EDQUOT];
    let of_namespaces = is_about_namespaces(doing) || doing.contains("open workspace and program");
    let bounded = doing.contains("limit of ") || (of_namespaces && doing.contains("os error 28)"));
    let failed = room.iter().any(|code| doing.contains(&format!("os error {code})")));
    !bounded && (failed || doing.contains("the forker is gone"))
}

/// For a step that failed: by its name where the name says what is missing, else by the system's own word.
pub(crate) fn of_step(doing: &str) -> String {
    step(doing, &kernel)
}

fn step(doing: &str, read: Read<'_>) -> String {
    let has = |text: &str| doing.contains(text);
    let refused = has("os error 1)") || has("os error 13)");
    if has("map the ids") && refused && rustix::process::geteuid().is_root() {
        return ORDINARY.to_owned();
    }
    // A copy of mounts counts as a mount namespace.
    if (is_about_namespaces(doing) && !is_of_the_moment(doing))
        || (has("open workspace and program") && has("os error 28)"))
    {
        return namespaces(read);
    }
    if has("restrict by Landlock") {
        return "this tier needs Landlock with signal scopes: Linux 6.12 or newer with `landlock` among the \
                `lsm=` of its command line, and a container whose seccomp profile allows it"
            .to_owned();
    }
    if has("seccomp filter") {
        return "this tier needs seccomp: a kernel with CONFIG_SECCOMP_FILTER, and around this program no filter \
                that forbids `seccomp` (in a container: `--security-opt seccomp=unconfined`)"
            .to_owned();
    }
    if has("be asked about calls") {
        return "something around this program answers its system calls already, and the kernel allows one such \
                listener: start it without (no seccomp notification in the container's profile), or take another \
                tier"
            .to_owned();
    }
    if has("reach the workspace") {
        return "keep records (`--data`) in a folder that others may pass through (mode 711 on each folder above), \
                or run the executor as an ordinary user"
            .to_owned();
    }
    if has("use a root file system") {
        return "use `rootfs = \"host\"`".to_owned();
    }
    if has("open the cache") {
        return "let this user keep a cache that nobody else can write: a home of its own, or `XDG_CACHE_HOME`"
            .to_owned();
    }
    if has("open workspace and program") && refused {
        return "this user may not take mounts along: run the executor as an ordinary user (in a container: \
                `--user 1000:1000`), or give root its right to mount (`--cap-add SYS_ADMIN`)"
            .to_owned();
    }
    if refused && (has("mount /proc") || has("mount the wall's /proc")) {
        return "the container covers parts of /proc, and then the kernel gives no other: start it with \
                `--security-opt systempaths=unconfined` (podman: `--security-opt unmask=ALL`)"
            .to_owned();
    }
    by_errno(doing)
}

fn by_errno(doing: &str) -> String {
    let is = |codes: &[u32]| codes.iter().any(|code| doing.contains(&format!("os error {code})")));
    let has = |words: &[&str]| words.iter().any(|word| doing.contains(word));
    let text = if is(&[24, 23]) || has(&["limit of open files"]) {
        "raise the executor's limit of open files: `ulimit -n 4096` (a service: `LimitNOFILE=4096`)"
    } else if is(&[11]) || has(&["limit of processes", "newosproc"]) {
        "raise the executor's limit of processes: `ulimit -u 4096` (a service: `LimitNPROC=4096`, `TasksMax=4096`)"
    } else if is(&[12]) || has(&["failed to reserve", "cannot allocate memory"]) {
        "give it memory: no limit of addresses (`ulimit -v unlimited`), and room in the container's own bound"
    } else if is(&[27]) {
        "lift the executor's limit of file sizes: `ulimit -f unlimited` (a service: `LimitFSIZE=infinity`)"
    } else if is(&[28, 122]) {
        "make room on the disk that keeps the runs (`--data`), also of inodes and quotas"
    } else if is(&[30]) {
        "keep the runs on a disk that can be written: `--data FOLDER` (in a container: a volume)"
    } else if is(&[38, 95]) {
        "the kernel, or a filter of system calls around this program, lacks what this tier needs: Linux 5.12 or \
         newer, and in a container `--security-opt seccomp=unconfined`"
    } else if has(&["runsc", "sandbox", "container"]) && !is(&[1, 13]) {
        "gVisor says so itself; where a container is around this program, it needs `--security-opt \
         seccomp=unconfined --security-opt systempaths=unconfined`; else try another `runsc` \
         (`scripts/install-runsc`)"
    } else if is(&[1, 13]) {
        return format!(
            "something around this program forbids this step; if that is a container, {CONTAINER}"
        );
    } else if has(&["the forker is gone"]) {
        "start `oubliette` again: its own helper process was ended from outside, by the kernel for want of memory or by \
         somebody"
    } else if is(&[5]) {
        "look what the kernel says of the disk (`dmesg`)"
    } else {
        "no remedy is known for this: the words are the system's own; take another tier"
    };
    text.to_owned()
}

/// What forbids namespaces here, by looking at each thing that can.
fn namespaces(read: Read<'_>) -> String {
    if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        return "AppArmor restricts user namespaces: `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, \
            or an AppArmor profile that grants `userns` to this program"
            .to_owned();
    }
    if read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        return "this kernel gives user namespaces to root only: `sysctl -w kernel.unprivileged_userns_clone=1`"
            .to_owned();
    }
    for (kind, name) in [
        ("user", "user"),
        ("mnt", "mount"),
        ("pid", "pid"),
        ("net", "network"),
        ("ipc", "ipc"),
        ("uts", "uts"),
        ("cgroup", "cgroup"),
    ] {
        if read(&format!("/proc/sys/user/max_{kind}_namespaces")) == "0" {
            return format!("{name} namespaces are turned off: `sysctl -w user.max_{kind}_namespaces=10000`");
        }
    }
    format!(
        "something around this program (a container's seccomp profile, usually) forbids namespaces: {CONTAINER}"
    )
}

/// For a layer that a tier must have and has not.
pub(crate) fn of_layer(name: &str) -> String {
    match name {
        "ids" | "capabilities" => ORDINARY.to_owned(),
        "landlock" | "signals" => {
            "this tier needs Landlock: Linux 5.13 or newer with `landlock` among the `lsm=` of \
            its command line, and a container whose seccomp profile allows it"
                .to_owned()
        }
        "seccomp" => format!(
            "this tier needs a kernel with CONFIG_SECCOMP_FILTER, and around this program nothing that only says it set \
             a filter; if that is a container, {CONTAINER}"
        ),
        _ => format!("something around this program undoes this layer; if that is a container, {CONTAINER}"),
    }
}

/// For a layer that holds in part, where something can be done about it.
pub(crate) fn of_weak_layer(tier: Tier, layer: &Layer) -> Option<String> {
    if layer.state == LayerState::Full {
        return None;
    }
    let by_group = layer.detail.contains("no cgroup");
    let text = match layer.name {
        // Memory and cores are weaker by the same reason.
        "groups" if by_group => cgroup(&layer.detail, rustix::process::geteuid().is_root(), &kernel),
        "memory" if layer.detail.contains("this host's swap") => {
            "turn swap off, or let the kernel account for it: `swapaccount=1` on its command line, and \
             `memory.swap.max` to write where the group was handed over"
                .to_owned()
        }
        "ids" | "monitor-ids" if layer.detail.contains("/etc/subuid") => {
            "sandboxes use the ids from 200000 to 265535: give that user others in /etc/subuid and /etc/subgid".to_owned()
        }
        "crashes" if layer.detail.contains("socket") => {
            "set a `kernel.core_pattern` that is neither a socket nor a pipe".to_owned()
        }
        "crashes" => "start it with `ulimit -Hc unlimited` (in a container: `--ulimit core=-1`), or set a \
            `kernel.core_pattern` that is no pipe"
            .to_owned(),
        "landlock" if tier != Tier::Microvm => {
            "take a newer kernel: Linux 6.12 has all that is asked for".to_owned()
        }
        "processes" if layer.detail.contains("ulimit -u") => by_errno("limit of processes"),
        "call-kill" | "tools" if tier == Tier::Gvisor => {
            "take a newer `runsc`: `scripts/install-runsc`".to_owned()
        }
        _ => return None,
    };
    Some(text)
}

/// What would let limits be set by group; the words are those of `cgroup/`.
fn cgroup(why: &str, root: bool, read: Read<'_>) -> String {
    let user = if root { "" } else { "--user " };
    if why.contains("was not given it") {
        return format!(
            "let systemd hand every controller down: `Delegate=cpu cpuset io memory pids` under `[Service]`{}, and \
             start it as before; in a container give it a /sys/fs/cgroup of its own with all of them",
            if root { " of the unit" } else { " by `systemctl edit user@.service`" }
        );
    }
    if why.contains("other process") {
        return format!(
            "start it in a group of its own: `systemd-run {user}--scope -p Delegate=yes -- oubliette ...` (a service: \
             `Delegate=yes`, and nothing beside it; in a container let it be the first process, without `--init`)"
        );
    }
    if !read("/sys/fs/cgroup/cgroup.controllers").is_empty() {
        return format!(
            "let systemd delegate a group: `systemd-run {user}--scope -p Delegate=yes -- oubliette ...` (a \
             service: `Delegate=yes`); in a container give it a /sys/fs/cgroup of its own that it can write"
        );
    }
    "groups of cgroup v1 are root's: run the executor as root, or give its user a group of each of memory, pids \
     and cpu"
        .to_owned()
}

/// All that can be done about what a report calls weaker than it could be.
pub(crate) fn of_report(report: &Report) -> Vec<(&'static str, String)> {
    let of = |layer: &Layer| Some((layer.name, of_weak_layer(report.tier, layer)?));
    report.layers.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<'a>(files: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> String + 'a {
        |path| {
            files
                .iter()
                .find(|(name, _)| *name == path)
                .map(|(_, text)| (*text).to_owned())
                .unwrap_or_default()
        }
    }

    const REFUSED: &str = "create the namespaces: Operation not permitted (os error 1)";

    /// Neither setting exists on every kernel, so what is read is given here.
    #[test]
    fn the_setting_that_forbids_namespaces_is_named() {
        for (file, value, named) in [
            (
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
                "1",
                "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
            ),
            (
                "/proc/sys/kernel/unprivileged_userns_clone",
                "0",
                "sysctl -w kernel.unprivileged_userns_clone=1",
            ),
            ("/proc/sys/user/max_net_namespaces", "0", "sysctl -w user.max_net_namespaces=10000"),
        ] {
            let told = step(REFUSED, &with(&[(file, value)]));
            assert!(told.contains(named), "{told}");
            // The same files with the harmless value are no reason.
            let other = if value == "0" { "1" } else { "0" };
            assert!(step(REFUSED, &with(&[(file, other)])).contains("seccomp=unconfined"));
        }
    }

    #[test]
    fn the_way_to_a_group_depends_on_version_user_and_reason() {
        let v2 = [("/sys/fs/cgroup/cgroup.controllers", "memory pids")];
        let scope = "`systemd-run --scope -p Delegate=yes -- oubliette ...`";
        let user_scope = "`systemd-run --user --scope -p Delegate=yes -- oubliette ...`";
        for (why, root, named) in [
            ("permission denied", false, user_scope),
            ("permission denied", true, scope),
            ("2 other processes are in the group", false, user_scope),
            ("2 other processes are in the group", true, scope),
            ("cpu: this group was not given it", false, "systemctl edit user@.service"),
        ] {
            let told = cgroup(why, root, &with(&v2));
            assert!(told.contains(named), "{why} {root}: {told}");
        }
        assert!(cgroup("permission denied", false, &with(&[])).contains("cgroup v1"));
    }

    /// No room is another thing than a primitive that is not there.
    #[test]
    fn what_the_machine_lacks_for_a_moment_is_told_from_what_a_tier_lacks() {
        for failed in [
            "make a folder: No space left on device (os error 28)",
            "start the sentinel: Resource temporarily unavailable (os error 11)",
            "map memory: Cannot allocate memory (os error 12)",
            "the forker is gone",
        ] {
            assert!(is_of_the_moment(failed), "{failed}");
            assert!(!step(failed, &with(&[])).contains("no remedy is known"), "{failed}");
        }
        for missing in [
            REFUSED,
            "create the namespaces: No space left on device (os error 28)",
            "open workspace and program: No space left on device (os error 28)",
            "the limit of processes is 8, which is too few",
            "restrict by Landlock: Function not implemented (os error 38)",
            "write: File too large (os error 27)",
        ] {
            assert!(!is_of_the_moment(missing), "{missing}");
        }
    }

    #[test]
    fn no_remedy_sends_a_reader_in_a_circle() {
        for doing in ["", "x: Operation not permitted (os error 1)", "runsc: EOF", "x (os error 38)"] {
            let told = step(doing, &with(&[]));
            assert!(!told.is_empty() && !told.contains("doctor"), "{doing}: {told}");
        }
    }
}
