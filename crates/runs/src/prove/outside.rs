//! What attacks are after, outside: a file that everybody may touch, and listeners that answer everybody.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{RunError, RunId};

/// The canary and the listeners that attacks are after.
#[derive(Debug)]
pub struct Outside {
    folder: PathBuf,
    abstract_name: String,
    tcp: TcpListener,
    udp: UdpSocket,
    by_name: UnixListener,
    by_path: UnixListener,
    datagrams: UnixDatagram,
    before: String,
    /// What the canary holds, which nobody else knows.
    content: String,
}

impl Outside {
    /// Makes them, as open as they can be: only a sandbox's walls stand between.
    ///
    /// # Errors
    /// [`RunError::Io`].
    pub fn new(folder: &Path) -> Result<Outside, RunError> {
        let name = || RunId::new().map_err(RunError::io("name", folder));
        let (name, content) = (name()?, name()?);
        Outside::make(folder, format!("oubliette-prove-{name}"), format!("CANARY {content}\n"))
            .map_err(RunError::io("prepare", folder))
    }

    fn make(folder: &Path, abstract_name: String, content: String) -> std::io::Result<Outside> {
        fs::create_dir_all(folder)?;
        let everybody = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        let canary = folder.join("canary");
        fs::write(&canary, &content)?;
        let by_path = UnixListener::bind(folder.join("socket"))?;
        let datagrams = UnixDatagram::bind(folder.join("datagrams"))?;
        for name in ["canary", "socket", "datagrams"] {
            everybody(&folder.join(name), 0o666)?;
        }
        everybody(folder, 0o777)?;
        if let Some((uid, gid)) = sandbox::guest_owner() {
            std::os::unix::fs::chown(&canary, Some(uid), Some(gid))?;
        }
        let by_name = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstract_name)?)?;
        let (tcp, udp) = (TcpListener::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        tcp.set_nonblocking(true)?;
        udp.set_nonblocking(true)?;
        for listener in [&by_name, &by_path] {
            listener.set_nonblocking(true)?;
        }
        datagrams.set_nonblocking(true)?;
        let mut outside = Outside {
            folder: folder.canonicalize()?,
            abstract_name,
            tcp,
            udp,
            by_name,
            by_path,
            datagrams,
            before: String::new(),
            content,
        };
        outside.before = outside.state();
        Ok(outside)
    }

    /// The port of the TCP listener.
    pub(super) fn port(&self) -> u16 {
        self.tcp.local_addr().map_or(0, |address| address.port())
    }

    /// Where everything is.
    pub fn facts(&self) -> Value {
        let port = |a: std::io::Result<std::net::SocketAddr>| a.map_or(0, |a| a.port());
        json!({
            "folder": self.folder,
            "canary": self.folder.join("canary"),
            "socket": self.folder.join("socket"),
            "datagrams": self.folder.join("datagrams"),
            "abstract": self.abstract_name,
            "tcp": self.port(),
            "udp": port(self.udp.local_addr()),
        })
    }

    /// Takes what came so far as not of an attack.
    pub fn forget(&self) {
        drop(self.arrived());
    }

    /// What the canary holds.
    pub fn content(&self) -> &str {
        self.content.trim_end()
    }

    /// What an attack left outside.
    pub fn seen(&self) -> Vec<String> {
        let mut seen = self.arrived();
        let now = self.state();
        if now != self.before {
            seen.push(format!("outside: the folder of the canary was {} and is {now}", self.before));
        }
        seen
    }

    fn arrived(&self) -> Vec<String> {
        let mut seen = Vec::new();
        let mut note = |name: &str, came: bool| {
            if came {
                seen.push(format!("outside: something came to the {name} listener"));
            }
            came
        };
        while note("tcp", self.tcp.accept().is_ok()) {}
        while note("udp", self.udp.recv(&mut [0; 64]).is_ok()) {}
        while note("abstract", self.by_name.accept().is_ok()) {}
        while note("path", self.by_path.accept().is_ok()) {}
        while note("datagram", self.datagrams.recv(&mut [0; 64]).is_ok()) {}
        seen
    }

    /// Names, modes, owners, times and contents.
    fn state(&self) -> String {
        let mut entries: Vec<String> = fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| {
                let meta = fs::symlink_metadata(e.path()).ok()?;
                let name = e.file_name().to_string_lossy().into_owned();
                Some(format!("{name}:{:o}:{}:{}:{}", meta.mode(), meta.uid(), meta.nlink(), meta.size()))
            })
            .collect();
        entries.sort();
        let canary = fs::read_to_string(self.folder.join("canary")).unwrap_or_default();
        let time = fs::metadata(self.folder.join("canary")).map_or(0, |m| m.mtime());
        format!("{} {} {time}", entries.join(" "), if canary == self.content { "whole" } else { "changed" })
    }
}

/// Processes below one, at any depth.
pub(super) fn below(top: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut open = vec![top];
    while let Some(pid) = open.pop() {
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in list.split_whitespace().filter_map(|p| p.parse::<u32>().ok()) {
                found.push(child);
                open.push(child);
            }
        }
    }
    found
}

/// When a process began, in the kernel's own ticks; numbers of processes are given anew, this is not.
pub(super) fn began(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().nth(19).and_then(|n| n.parse().ok()).unwrap_or_default()
}
