//! What surrounds a row: its place, its placeholders, a listener on the host, and the deployment it speaks of.

use std::cell::RefCell;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Child;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::{Value, json};

use crate::place::{Place, Who};

pub(super) struct World {
    pub(super) row: Value,
    pub(super) place: Place,
    listener: Listener,
    /// What the trusted side started and left running.
    left: RefCell<Vec<Child>>,
    /// Files that must not change: path, and what they are.
    unchanged: RefCell<Vec<(PathBuf, File)>>,
}

/// Content, owner and mode.
#[derive(Debug, PartialEq, Eq)]
struct File(Vec<u8>, u32, u32);

/// Counts what reaches the host.
struct Listener {
    port: u16,
    tcp: Vec<TcpListener>,
    udp: UdpSocket,
}

impl World {
    pub(super) fn new(row: Value, tier: &'static str) -> World {
        let place = Place::new(tier, Who::Own);
        let world = World {
            row,
            place,
            listener: Listener::open(),
            left: RefCell::default(),
            unchanged: RefCell::default(),
        };
        world.place.write("oubliette.toml", deployment(&world.row["policy"]));
        for path in world.expected_paths("unchanged") {
            let file = File::of(&path);
            world.unchanged.borrow_mut().push((path, file));
        }
        world
    }

    pub(super) fn id(&self) -> &str {
        self.row["id"].as_str().unwrap()
    }

    pub(super) fn source(&self) -> PathBuf {
        self.place.path("source")
    }

    /// Every text of a value with its placeholders replaced; `workspace` is where the run has its own.
    pub(super) fn filled(&self, value: &Value, workspace: &Path) -> Value {
        match value {
            Value::String(text) => json!(self.fill(text, workspace)),
            Value::Array(items) => items.iter().map(|item| self.filled(item, workspace)).collect(),
            Value::Object(map) => Value::Object(
                map.iter().map(|(k, v)| (self.fill(k, workspace), self.filled(v, workspace))).collect(),
            ),
            other => other.clone(),
        }
    }

    pub(super) fn fill(&self, text: &str, workspace: &Path) -> String {
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let outside = self.place.path("outside");
        let filled = [
            ("{{WORKSPACE}}", workspace.display().to_string()),
            ("{{WORKSPACE_NAME}}", name(workspace)),
            ("{{OUTSIDE}}", outside.display().to_string()),
            ("{{OUTSIDE_NAME}}", name(&outside)),
            ("{{POLICY_FILE}}", self.place.path("oubliette.toml").display().to_string()),
            ("{{HOST_PORT}}", self.listener.port.to_string()),
            ("{{HOST_IP}}", host_address().to_string()),
        ]
        .iter()
        .fold(text.to_owned(), |text, (mark, value)| text.replace(mark, value));
        assert!(!filled.contains("{{"), "{}: a placeholder is left in {filled}", self.id());
        filled
    }

    /// Runs the lines of `setup` as the trusted side, in the given folder.
    pub(super) fn set_up(&self, workspace: &Path) {
        for line in self.row["setup"].as_array().into_iter().flatten() {
            let line = self.fill(line.as_str().unwrap(), workspace);
            let mut command = self.place.command("/bin/bash".as_ref());
            command.args(["-c", &line]).current_dir(workspace).process_group(0);
            // Whoever owns the folder, this git is the trusted side's own.
            command.env("GIT_CONFIG_COUNT", "1");
            command.env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
            let child = command.spawn().unwrap();
            // Not taken off the kernel's list yet, so that nobody else gets the number of its group.
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let status = waitid(WaitId::Pid(Pid::from_child(&child)), ended).unwrap().unwrap();
            assert_eq!(status.exit_status(), Some(0), "{}: {line}", self.id());
            self.left.borrow_mut().push(child);
        }
    }

    /// Paths of a key of `expect` that names files of the trusted side.
    fn expected_paths(&self, key: &str) -> Vec<PathBuf> {
        let list = self.row["expect"][key].as_array().cloned().unwrap_or_default();
        list.iter().map(|p| PathBuf::from(self.fill(p.as_str().unwrap(), &self.source()))).collect()
    }

    pub(super) fn assert_unchanged(&self) {
        for (path, before) in self.unchanged.borrow().iter() {
            assert_eq!(&File::of(path), before, "{}: {} was changed", self.id(), path.display());
        }
    }

    /// Connections and packets that reached the host.
    pub(super) fn received(&self) -> u64 {
        self.listener.received()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for child in self.left.borrow_mut().iter_mut() {
            // What a line left running; a group of nobody but the dead takes no signal.
            kill_process_group(Pid::from_child(child), Signal::KILL).ok();
            child.wait().ok();
        }
    }
}

impl File {
    fn of(path: &Path) -> File {
        let meta = fs::symlink_metadata(path).unwrap();
        File(fs::read(path).unwrap(), meta.uid(), meta.mode())
    }
}

impl Listener {
    /// The same port for everything, on every address of the host.
    fn open() -> Listener {
        loop {
            let first = TcpListener::bind(("0.0.0.0", 0)).unwrap();
            let port = first.local_addr().unwrap().port();
            // Somebody else may have the number elsewhere: then another.
            let Ok(udp) = UdpSocket::bind(("0.0.0.0", port)) else { continue };
            // A kernel without this family needs no listener of it. Where one socket takes both, this is in use.
            let second = TcpListener::bind(("::1", port));
            let tcp: Vec<TcpListener> = [first].into_iter().chain(second).collect();
            tcp.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
            udp.set_nonblocking(true).unwrap();
            return Listener { port, tcp, udp };
        }
    }

    fn received(&self) -> u64 {
        let connections = self.tcp.iter().map(|socket| loop_until_none(|| socket.accept().map(drop)));
        let packets = loop_until_none(|| self.udp.recv_from(&mut [0; 64]).map(drop));
        connections.sum::<u64>() + packets
    }
}

fn loop_until_none(take: impl Fn() -> std::io::Result<()>) -> u64 {
    let mut count = 0;
    loop {
        match take() {
            Ok(()) => count += 1,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return count,
            Err(e) => panic!("the listener: {e}"),
        }
    }
}

/// An address of this host that is not its loopback; the way out is looked up, nothing is sent.
fn host_address() -> IpAddr {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
    // A host without any network has no such address.
    match socket.connect(SocketAddr::from(([192, 0, 2, 1], 9))) {
        Ok(()) => socket.local_addr().unwrap().ip(),
        Err(_) => IpAddr::from([127, 0, 0, 2]),
    }
}

/// A policy in neutral words as a deployment file.
pub(super) fn deployment(policy: &Value) -> String {
    let tables = policy.as_object().into_iter().flatten();
    tables.map(|(table, keys)| table_of(table, keys)).collect()
}

/// One table; a key that has no counterpart is written as it is.
pub(super) fn table_of(table: &str, keys: &Value) -> String {
    let mut text = String::new();
    for (key, value) in keys.as_object().into_iter().flatten() {
        let (table, key, value) = match (table, key.as_str(), value) {
            // What the harness does, not the operator.
            ("executor_env" | "simulate", ..) | ("shell", "mode", _) => continue,
            ("shell", "timeout_s", n) => ("call", "timeout", json!(format!("{n}s"))),
            ("shell", "output_max_bytes", n) => ("call", "output", n.clone()),
            ("limits", "memory_mb", n) => ("limits", "memory", mebibytes(n)),
            ("limits", "disk_mb", n) => ("limits", "disk", mebibytes(n)),
            ("limits", "tmp_mb", n) => ("limits", "tmp", mebibytes(n)),
            ("limits", "pids", n) => ("limits", "processes", n.clone()),
            ("budget", "max_repeats", n) => ("budget", "repeats", n.clone()),
            ("budget", "max_tool_calls", n) => ("budget", "tool_calls", n.clone()),
            ("egress", key, value) => ("network", key, value.clone()),
            (table, key, value) => (table, key, value.clone()),
        };
        text.push_str(&format!("[{table}]\n{key} = {value}\n"));
    }
    merged(&text)
}

fn mebibytes(n: &Value) -> Value {
    n.as_u64().map_or(n.clone(), |n| json!(format!("{n}MiB")))
}

/// Keys of one table under one head.
fn merged(text: &str) -> String {
    let (mut out, mut last) = (String::new(), "");
    let mut lines: Vec<(&str, &str)> = text.lines().step_by(2).zip(text.lines().skip(1).step_by(2)).collect();
    lines.sort();
    for (head, line) in lines {
        if head != last {
            out.push_str(&format!("{head}\n"));
            last = head;
        }
        out.push_str(&format!("{line}\n"));
    }
    out
}
