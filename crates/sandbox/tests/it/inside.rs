//! An open sandbox with what a test needs to look at it from both sides.

use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::{Limits, Rootfs, Surroundings, Tier, TierChoice};
use sandbox::{Call, CallBounds, Cancel, FileOp, Host, Job, Outcome, Plan, Report, Running, Stream};
use tempfile::TempDir;

/// An open sandbox with what a test needs to look at it from both sides.
pub(crate) struct Inside {
    runtime: tokio::runtime::Runtime,
    running: Option<Running>,
    pub(crate) host: Host,
    pub(crate) tier: Tier,
    folder: TempDir,
    reference: bool,
}

/// What a call may take that is no claim about time: no machine is so slow.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// A call that ended, with its output.
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn host() -> Host {
    Host::start_from(&helper()).unwrap()
}

/// The helper program; elsewhere when an ordinary user runs these claims, who may have no way to where it was built.
pub(crate) fn helper() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "scripts/test says where it put a copy")]
    let copy = std::env::var_os("OUBLIETTE_TEST_HELPER");
    copy.map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_sandbox-helper")), PathBuf::from)
}

pub(crate) fn plan(tier: Tier, workspace: &Path) -> Plan {
    Plan {
        tier: match tier {
            Tier::Namespace => TierChoice::Namespace,
            Tier::Gvisor => TierChoice::Gvisor,
            Tier::Microvm => TierChoice::Microvm,
            Tier::Confined => TierChoice::Confined,
            Tier::Wasm => TierChoice::Wasm,
        },
        floor: Tier::Confined,
        surroundings: Surroundings::None,
        rootfs: Rootfs::Host,
        workspace: workspace.to_path_buf(),
        limits: Limits::default(),
        env: Vec::new(),
        runsc: None,
        module: None,
        held: Vec::new(),
        given: None,
        doors: sandbox::Doors::default(),
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

impl Inside {
    pub(crate) fn new(tier: Tier) -> Inside {
        Inside::with(tier, |_| {})
    }

    /// No sandbox of ours: bubblewrap, for the claims that it can be asked.
    pub(crate) fn in_bubblewrap() -> Inside {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
        let workspace = folder.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        testkit::give_to_bubblewrap(&workspace, sandbox::guest_owner().is_some());
        Inside {
            runtime: runtime(),
            running: None,
            host: host(),
            tier: Tier::Namespace,
            folder,
            reference: true,
        }
    }

    pub(crate) fn with(tier: Tier, change: impl FnOnce(&mut Plan)) -> Inside {
        let folder = tempfile::tempdir().unwrap();
        // The confined tier has no view of its own: its unprivileged id must find the way.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
        let workspace = folder.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        own(&workspace);
        let host = host();
        let runtime = runtime();
        let mut plan = plan(tier, &workspace);
        change(&mut plan);
        let running = runtime.block_on(async { plan.ready(&host).await.unwrap().start() });
        held_by_what_was_said(running.report());
        Inside { runtime, running: Some(running), host, tier, folder, reference: false }
    }

    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    /// Whether the report promises this layer in full.
    pub(crate) fn holds(&self, layer: &str) -> bool {
        let full = |l: &sandbox::Layer| l.name == layer && l.state == sandbox::LayerState::Full;
        self.running().report().layers.iter().any(full)
    }

    /// Whether what the guest does to its workspace is seen outside only at the end.
    pub(crate) fn works_on_a_copy(&self) -> bool {
        self.tier == Tier::Microvm
    }

    /// The workspace from outside.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.folder.path().join("workspace")
    }

    /// The workspace as a command inside sees it.
    pub(crate) fn workspace_inside(&self) -> String {
        match self.tier {
            Tier::Confined => self.workspace().canonicalize().unwrap().display().to_string(),
            Tier::Namespace | Tier::Gvisor | Tier::Microvm | Tier::Wasm => "/workspace".to_owned(),
        }
    }

    /// Where a command inside puts temporary files.
    pub(crate) fn tmp_inside(&self) -> String {
        self.sh("printf %s \"$TMPDIR\"").out
    }

    /// A folder beside the workspace that nothing inside may reach.
    pub(crate) fn outside(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn call(&self, job: Job, stdin: &[u8], timeout: Duration, output: u64) -> Ran {
        if self.reference {
            return in_bubblewrap(&self.workspace(), job, stdin);
        }
        let (_give, cancel) = Cancel::new();
        let call = Call { job, stdin: stdin.to_vec(), timeout, output, bounds: CallBounds::default() };
        self.call_with(&call, &cancel)
    }

    pub(crate) fn call_with(&self, call: &Call, cancel: &Cancel) -> Ran {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let outcome = self
            .runtime
            .block_on(self.running().run(call, cancel, &mut |stream, bytes| match stream {
                Stream::Stdout => out.extend_from_slice(bytes),
                Stream::Stderr => err.extend_from_slice(bytes),
            }))
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran { outcome, out: text(out), err: text(err) }
    }

    /// Runs a shell line with generous bounds.
    pub(crate) fn sh(&self, line: &str) -> Ran {
        self.call(shell(line), b"", LONG, 1 << 20)
    }

    pub(crate) fn python(&self, program: &str) -> Ran {
        let argv = ["/usr/bin/python3", "-c", program].map(str::to_owned).to_vec();
        let job = Job::Exec { argv, env: Vec::new(), cwd: None, terminal: false };
        self.call(job, b"", LONG, 1 << 20)
    }

    pub(crate) fn file(&self, op: FileOp, content: &[u8]) -> Ran {
        self.call(Job::File(op), content, LONG, 4 << 20)
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub(crate) fn destroy(&mut self) {
        drop(self.end());
    }

    /// Destroys it; what it was, unless that was done before.
    pub(crate) fn end(&mut self) -> Option<Report> {
        let running = self.running.take()?;
        Some(self.runtime.block_on(running.destroy()))
    }
}

/// Where scripts/cgroup-v2 says by which back end bounds are held, no claim passes by another one.
fn held_by_what_was_said(report: &Report) {
    #[expect(clippy::disallowed_methods, reason = "scripts/cgroup-v2 says what machine it made")]
    let Ok(said) = std::env::var("OUBLIETTE_TEST_GROUPS") else { return };
    let groups = report.layers.iter().find(|l| l.name == "groups").unwrap();
    assert_eq!(groups.detail, said);
}

/// Makes a file or folder the guest's, as an import does.
pub(crate) fn own(path: &Path) {
    if let Some((uid, gid)) = sandbox::guest_owner() {
        std::os::unix::fs::lchown(path, Some(uid), Some(gid)).unwrap();
    }
}

/// Puts a program there, by a process of its own. What this one has open for writing is for a moment open in whatever
/// another thread of these tests is about to start too, and cannot be started itself meanwhile.
pub(crate) fn put_program(bytes: &[u8], at: &Path) {
    use std::io::Write;
    #[expect(clippy::disallowed_methods, reason = "on the host, before there is a sandbox")]
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-ec", "cat >\"$0\"; chmod 755 \"$0\""]).arg(at);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    assert!(child.wait().unwrap().success(), "{}", at.display());
}

/// The same of this crate's own helper.
pub(crate) fn put_helper(at: &Path) {
    put_program(&std::fs::read(helper()).unwrap(), at);
}

pub(crate) fn shell(line: &str) -> Job {
    let argv = ["sh", "-c", line].map(str::to_owned).to_vec();
    Job::Exec { argv, env: Vec::new(), cwd: None, terminal: false }
}

/// A line that leaves this one running when its call is over. It begins when a later call reads the pipe `p`, whose end
/// is the end of all that it started.
pub(crate) fn left_running(line: &str) -> String {
    format!("mkfifo p; echo left; exec </dev/null >/dev/null 2>&1; (exec >p; {line}) &")
}

/// One command in bubblewrap; every one has a sandbox of its own.
fn in_bubblewrap(workspace: &Path, job: Job, stdin: &[u8]) -> Ran {
    use std::io::Write;
    use std::os::unix::process::ExitStatusExt;
    let Job::Exec { argv, .. } = job else { panic!("bubblewrap has no tools for files") };
    let mut command = testkit::bubblewrap(workspace, sandbox::guest_owner().is_some());
    command.args(&argv);
    let pipe = std::process::Stdio::piped;
    let mut child = command.stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().unwrap();
    // Who does not read it has ended before.
    child.stdin.take().unwrap().write_all(stdin).ok();
    let done = child.wait_with_output().unwrap();
    let (ended, stopped_by) = match (done.status.code(), done.status.signal()) {
        (Some(code), _) => (sandbox::Ended::Exit(code), policy::StoppedBy::Exit),
        (None, signal) => (sandbox::Ended::Signal(signal.unwrap()), policy::StoppedBy::Signal),
    };
    let outcome = Outcome {
        ended,
        stopped_by,
        usage: sandbox::Usage::default(),
        duration_ms: 0,
        stdout_bytes: u64::try_from(done.stdout.len()).unwrap(),
        stderr_bytes: u64::try_from(done.stderr.len()).unwrap(),
        background: 0,
        leftovers: None,
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { outcome, out: text(done.stdout), err: text(done.stderr) }
}
