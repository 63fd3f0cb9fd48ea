//! `runsc`: its bundle, its flags, and the warden that waits for it.

use std::ffi::CString;
use std::fs;
use std::io::{self, Write};

use serde_json::{Value, json};

use crate::engine::{self, Engine};
use crate::launch::{Bounds, GUEST_ID, INIT_ARG, INIT_PATH, Launch, Place, WORKSPACE, guest_env};
use crate::sys::{self, Fork};

/// Runs in the wall as its first process: starts runsc and reaps until it ends. Killing this process kills all.
pub(crate) fn wait_for(launch: &Launch, status: &mut impl Write) -> io::Result<i32> {
    let single = single_id()?;
    fs::write("/bundle/config.json", bundle(launch, single).to_string())?;
    let argv: Vec<CString> = flags(single).iter().filter_map(|s| CString::new(s.as_str()).ok()).collect();
    let env = [c"PATH=/".to_owned(), c"HOME=/tmp".to_owned(), c"TMPDIR=/tmp".to_owned()];
    engine::seal(Engine::Runsc)?;
    let runsc = match sys::fork()? {
        Fork::Parent(pid) => pid,
        Fork::Child => {
            sys::close_from(3);
            // Only a failure comes back; the executor hears of it through the log.
            let error = sys::exec(&c"/runsc".to_owned(), &argv, &env);
            writeln!(io::stderr(), "runsc: {error}").ok();
            sys::exit_now(127)
        }
    };
    // From here on this one only waits.
    crate::inside::drop_capabilities()?;
    status.write_all(b"+")?;
    // The streams belong to runsc alone now: a closed channel must be seen at both ends.
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for number in 0..3 {
        sys::place_fd(std::os::fd::AsRawFd::as_raw_fd(&null), number)?;
    }
    sys::close_from(3);
    std::mem::forget(null);
    while let Some(reaped) = sys::reap(true) {
        if reaped.pid == runsc {
            return Ok(match reaped.ended {
                crate::Ended::Exit(code) => code,
                crate::Ended::Signal(signal) => 128 + signal,
                crate::Ended::NotStarted(_) | crate::Ended::Unknown => 70,
            });
        }
    }
    Ok(70)
}

/// Whether the user namespace has one id only (an executor that is not root).
fn single_id() -> io::Result<bool> {
    let map = fs::read_to_string("/proc/self/uid_map")?;
    Ok(map.split_whitespace().nth(2) == Some("1"))
}

/// What init needs to take the guest's id for good, to look at its processes, and to end them.
const INIT: [&str; 5] = ["CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_SYS_PTRACE"];

fn flags(single: bool) -> Vec<String> {
    let mut flags = vec![
        "runsc",
        "--root=/state",
        // The outer wall holds the limits; runsc may not touch the host's cgroups.
        "--ignore-cgroups",
        "--network=none",
        // No writable layer over the system: what is read-only stays read-only.
        "--overlay2=none",
    ];
    if single {
        flags.push("--rootless");
    }
    flags.extend(["run", "--bundle=/bundle", "guest"]);
    flags.into_iter().map(str::to_owned).collect()
}

fn bundle(launch: &Launch, single: bool) -> Value {
    let Bounds { memory, file_bytes, tmp, .. } = launch.bounds;
    // Init is root of the guest's kernel with just what it needs to start programs as somebody else and to end
    // them. With one id there is only the user itself, who is 0 here and nobody special outside: then init has
    // no capability either, and nothing is given up.
    let (guest, capabilities) = if single {
        (String::new(), json!({}))
    } else {
        (GUEST_ID.to_string(), json!({"permitted": INIT, "effective": INIT, "bounding": INIT}))
    };
    let env: Vec<String> = guest_env(&Place::own(), &launch.env)
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let size = format!("size={tmp}");
    let mut args = vec![INIT_PATH.to_owned(), INIT_ARG.to_owned(), bounds_text(&launch.bounds), guest];
    let doors = launch.made();
    if !doors.is_empty() {
        args.push(serde_json::to_string(&doors).unwrap_or_default());
    }
    json!({
        "ociVersion": "1.0.0",
        "process": {
            "terminal": false,
            "user": {"uid": 0, "gid": 0},
            "args": args,
            "env": env,
            "cwd": "/",
            "capabilities": capabilities,
            "noNewPrivileges": true,
            "rlimits": [
                {"type": "RLIMIT_CORE", "soft": 0, "hard": 0},
                {"type": "RLIMIT_NOFILE", "soft": 1024, "hard": 4096},
                {"type": "RLIMIT_FSIZE", "soft": file_bytes, "hard": file_bytes},
                {"type": "RLIMIT_DATA", "soft": memory, "hard": memory},
            ],
        },
        "root": {"path": "/view", "readonly": true},
        "hostname": "sandbox",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmp",
             "options": ["nosuid", "nodev", "mode=1777", size]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
             "options": ["nosuid", "nodev", "noexec", "mode=1777", size]},
            {"destination": WORKSPACE, "type": "bind", "source": "/workspace",
             "options": ["bind", "rw", "nosuid", "nodev"]},
        ],
        "linux": {
            "namespaces": [
                {"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"},
            ],
        },
    })
}

/// The bounds that init itself needs, as one argument.
fn bounds_text(bounds: &Bounds) -> String {
    serde_json::to_string(bounds).unwrap_or_default()
}
