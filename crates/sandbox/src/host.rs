//! The executor's side of the forker.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use tokio::sync::mpsc;

use crate::init::Serves;
use crate::launch::{Bounds, INIT_ARG, Launch, Place};
use crate::message::{self, Ask, MAX_MESSAGE, Tell};
use crate::sys::{self, Fork};
use crate::{forker, init, machine};

/// How long a forker may take to put everything away.
const PATIENCE: Duration = Duration::from_secs(10);
/// Descriptors that the executor may have: 323 sockets of doors, and for each of 256 connections the guest's end, the
/// server's and those of two questions to a resolver. Its forker, the engines and the guests have limits of their own.
const OPEN_FILES: u64 = 4096;
const FORKER_ARG: &str = "__forker";
/// What a forker that is a copy calls itself, in lists of processes.
const FORKER_TITLE: &[u8] = b"oubliette\0__forker";

/// The forker, and through it every sandbox. When the last of these is dropped, everything it started is gone.
#[derive(Clone, Debug)]
pub struct Host(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    socket: Arc<OwnedFd>,
    next: AtomicU64,
    listeners: Arc<Mutex<HashMap<u64, mpsc::UnboundedSender<Tell>>>>,
    forker: Pid,
    cache: OnceLock<PathBuf>,
    told: OnceLock<Told>,
}

/// Who hears of work that takes long.
struct Told(Box<dyn Fn(&str) + Send + Sync>);

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Told")
    }
}

/// Enters a helper (forker, guest init) when the program was started as one; otherwise says the first argument.
///
/// Must be the first thing in `main`, before any thread exists.
pub fn helper_main() -> Option<OsString> {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let first = args.get(1).cloned()?;
    if first == FORKER_ARG {
        forker::run();
    }
    if first == machine::MACHINE_ARG {
        machine::run_guest();
    }
    if first == INIT_ARG {
        run_init(args.get(2..).unwrap_or_default());
    }
    // A forker may be copied from this process: what was typed is not to be found in it.
    for arg in args.drain(..) {
        let mut bytes = arg.into_encoded_bytes();
        bytes.fill(0);
        std::hint::black_box(&mut bytes);
    }
    Some(first)
}

fn run_init(args: &[OsString]) -> ! {
    let text = |n: usize| args.get(n).and_then(|text| text.to_str());
    let bounds: Option<Bounds> = text(0).and_then(|text| serde_json::from_str(text).ok());
    let Some(bounds) = bounds else { sys::exit_now(70) };
    let guest = match text(1) {
        Some("") => None,
        Some(id) => Some(id.parse().unwrap_or_else(|_| sys::exit_now(70))),
        None => sys::exit_now(70),
    };
    // In gVisor the engine gave init the guest's environment as its own.
    let env: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .collect();
    let serves = match text(2) {
        Some(text) => Serves::Makes(serde_json::from_str(text).unwrap_or_else(|_| sys::exit_now(70))),
        None => Serves::Nothing,
    };
    init::run(&env, &bounds, Place { guest, ..Place::own() }, &serves)
}

impl Host {
    /// Starts the forker as a copy of this process, which spares the start of a program. Only for the first lines of
    /// `main`, behind [`helper_main`]: the copy holds whatever this process has come to know. What it was started
    /// with, arguments and environment, the copy overwrites before anything else. Where that cannot be done, or there
    /// is another thread, this is [`Host::start`].
    ///
    /// # Errors
    /// As [`Host::start`].
    pub fn fork() -> io::Result<Host> {
        sys::one_heap();
        let Ok(beginnings) = sys::Beginnings::find() else { return Host::start() };
        let (ours, theirs) = pair()?;
        match sys::fork()? {
            Fork::Child => {
                beginnings.forget(FORKER_TITLE);
                forker::run_from(theirs)
            }
            Fork::Parent(pid) => Host::of(ours, pid),
        }
    }

    /// Starts the forker. Must be called before any other thread exists.
    ///
    /// # Errors
    /// The system's own: no process or socket could be had.
    pub fn start() -> io::Result<Host> {
        Host::start_from(Path::new("/proc/self/exe"))
    }

    /// The same with another program that calls [`helper_main`]: for a test whose own `main` is not ours.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub fn start_from(program: &Path) -> io::Result<Host> {
        let (ours, theirs) = pair()?;
        #[expect(clippy::disallowed_methods, reason = "this is the one place that starts the forker")]
        let child = Command::new(program)
            .arg(FORKER_ARG)
            // Keys and everything else of the executor's environment stay here.
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        Host::of(ours, child.id().cast_signed())
    }

    fn of(ours: OwnedFd, forker: i32) -> io::Result<Host> {
        // What could not be had is told by whoever has none left.
        sys::raise_soft(libc::RLIMIT_NOFILE, OPEN_FILES).ok();
        let forker = Pid::from_raw(forker).ok_or_else(|| io::Error::other("a process without a number"))?;
        let socket = Arc::new(ours);
        let listeners = Arc::new(Mutex::new(HashMap::new()));
        let (hear, to) = (Arc::clone(&socket), Arc::clone(&listeners));
        std::thread::Builder::new().name("forker".to_owned()).spawn(move || listen(&hear, &to))?;
        Ok(Host(Arc::new(Inner {
            socket,
            next: AtomicU64::new(1),
            listeners,
            forker,
            cache: OnceLock::new(),
            told: OnceLock::new(),
        })))
    }

    /// Says where files are kept that are made once and used by many sandboxes (kernel, system images). Without
    /// it: `/var/cache/oubliette` for root, `~/.cache/oubliette` for others. The first word counts.
    pub fn keep_in(&self, folder: PathBuf) {
        let told = self.0.cache.get_or_init(|| folder);
        // Who clears up behind a killed executor must know, too; it has another working folder.
        if let Ok(folder) = std::path::absolute(told) {
            // Fails only when the forker is gone, and then whoever comes next clears up.
            self.ask(&Ask::Keep { folder }, &[]).ok();
        }
    }

    /// Says who hears a line when something is made that takes long and happens once. The first word counts.
    pub fn hear(&self, told: impl Fn(&str) + Send + Sync + 'static) {
        self.0.told.get_or_init(|| Told(Box::new(told)));
    }

    /// Tells such a line.
    pub(crate) fn tell(&self, what: &str) {
        if let Some(told) = self.0.told.get() {
            (told.0)(what);
        }
    }

    /// Where that is, if it was said.
    pub(crate) fn kept_in(&self) -> Option<PathBuf> {
        self.0.cache.get().cloned()
    }

    /// Lets the forker go: it ends every sandbox, removes what it made and ends, while the caller has other things to
    /// do. Nothing can be asked of it any more; the last of these waits for its end, as always.
    pub fn let_go(&self) {
        // Fails only when the forker is gone already.
        rustix::net::shutdown(self.0.socket.as_fd(), rustix::net::Shutdown::Both).ok();
    }

    /// The process id of the forker, parent of every sandbox.
    pub fn forker_id(&self) -> u32 {
        self.0.forker.as_raw_nonzero().get().unsigned_abs()
    }

    /// Asks for a sandbox; answers about it come on the channel.
    pub(crate) fn launch(
        &self,
        make: impl FnOnce(u64) -> Launch,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<(u64, mpsc::UnboundedReceiver<Tell>)> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (tx, rx) = mpsc::unbounded_channel();
        lock(&self.0.listeners).insert(id, tx);
        let sent = self.ask(&Ask::Launch(Box::new(make(id))), fds);
        match sent {
            Ok(()) => Ok((id, rx)),
            Err(e) => {
                lock(&self.0.listeners).remove(&id);
                Err(e)
            }
        }
    }

    /// Asks for the end of a sandbox; `Gone` follows.
    pub(crate) fn kill(&self, id: u64) -> io::Result<()> {
        self.ask(&Ask::Kill { id }, &[])
    }

    /// Asks for counters; `Counted` follows.
    pub(crate) fn count(&self, id: u64, question: u64) -> io::Result<()> {
        self.ask(&Ask::Count { id, question }, &[])
    }

    fn ask(&self, ask: &Ask, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(ask).map_err(io::Error::other)?;
        if bytes.len() > MAX_MESSAGE {
            return Err(io::Error::other("the request is too large"));
        }
        message::send(&self.0.socket, &bytes, fds)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The forker sees the closed socket, kills and removes everything, and ends; that is waited for here,
        // so that nothing of ours is left when the program ends.
        // Neither fails but when the forker is gone already.
        rustix::net::shutdown(self.socket.as_fd(), rustix::net::Shutdown::Both).ok();
        // One that was stopped is set going again, and if that is not enough, ended: the kernel ends what it started.
        for signal in [Signal::CONT, Signal::KILL] {
            if ends_within(self.forker, PATIENCE) {
                break;
            }
            kill_process(self.forker, signal).ok();
        }
        while matches!(waitpid(Some(self.forker), WaitOptions::empty()), Err(rustix::io::Errno::INTR)) {}
    }
}

/// Whether a child ends in this time; a kernel that cannot tell is taken to say so.
fn ends_within(child: Pid, time: Duration) -> bool {
    let Ok(handle) = pidfd_open(child, PidfdFlags::empty()) else { return true };
    let until = Instant::now() + time;
    loop {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other != Ok(0),
        }
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Hands answers to whom they concern, until the forker is gone.
fn listen(socket: &OwnedFd, listeners: &Mutex<HashMap<u64, mpsc::UnboundedSender<Tell>>>) {
    loop {
        let received = message::room(socket).and_then(|room| {
            let Some(mut bytes) = room else { return Ok(None) };
            let (n, _) = recv(socket, bytes.as_mut_slice(), RecvFlags::empty())?;
            bytes.truncate(n);
            Ok((n > 0).then_some(bytes))
        });
        let bytes = match received {
            Ok(Some(bytes)) => bytes,
            Err(rustix::io::Errno::INTR) => continue,
            _ => break,
        };
        let Ok(tell) = serde_json::from_slice::<Tell>(&bytes) else { break };
        let (id, last) = match &tell {
            Tell::Launched { id, .. } | Tell::Counted { id, .. } => (*id, false),
            // A sandbox that failed to start is reaped later; nobody waits for that.
            Tell::Failed { id, .. } | Tell::Gone { id, .. } => (*id, true),
        };
        let mut listeners = lock(listeners);
        if let Some(tx) = listeners.get(&id) {
            // The receiver may have been dropped: then nobody wants to know.
            drop(tx.send(tell));
        }
        if last {
            listeners.remove(&id);
        }
    }
    // Closes every channel: each sandbox is known to be lost.
    lock(listeners).clear();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
