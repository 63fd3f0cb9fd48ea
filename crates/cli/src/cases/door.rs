//! The one door through which rows start processes: this same program as a child, and the lines of `setup`.
//!
//! Nothing of a row is ever part of a command line of ours: a command of the guest follows `--` word by word, and a line of
//! `setup` is the one argument of a shell that the format asks for.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use runs::Cancel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::verdict::Trouble;
use crate::deploy;

/// Bytes of output that are read.
const MOST_OUTPUT: u64 = 64 << 20;
/// How long an orderly end may take.
const ORDERLY: Duration = Duration::from_secs(15);

/// A child, while it runs. Dropping it ends it.
pub(super) struct Program {
    child: Option<Child>,
    pub(super) id: u32,
    out: PathBuf,
    err: PathBuf,
}

/// What one start left.
#[derive(Debug)]
pub(super) struct Ran {
    /// None where a signal ended it.
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

/// A command that works in a scratch folder, with an environment of its own.
#[expect(clippy::disallowed_methods, reason = "the one door through which rows start processes, on purpose")]
pub(super) fn command(program: &OsStr, scratch: &Path) -> Command {
    let home = scratch.join("home");
    let mut command = Command::new(program);
    command.env_clear().env("PATH", deploy::path()).env("HOME", &home).env("TMPDIR", &home);
    // What is made once and used again is not made for each row.
    if let Some(caches) = deploy::caches() {
        command.env("XDG_CACHE_HOME", caches);
    }
    // A terminal's Ctrl-C comes to us alone, and we see to it that everything ends.
    command.stdin(Stdio::null()).current_dir(scratch).process_group(0);
    command
}

/// This same program.
pub(super) fn ourselves(scratch: &Path) -> Command {
    let mut command = command("/proc/self/exe".as_ref(), scratch);
    command.arg0("oubliette");
    command
}

impl Program {
    /// Starts a command; what it says goes into two files of the scratch folder.
    pub(super) fn start(command: &mut Command, scratch: &Path, name: &str) -> io::Result<Program> {
        let (out, err) = (scratch.join(format!("{name}.out")), scratch.join(format!("{name}.err")));
        command.stdout(File::create(&out)?).stderr(File::create(&err)?);
        let child = command.spawn()?;
        Ok(Program { id: child.id(), child: Some(child), out, err })
    }

    pub(super) fn has_ended(&mut self) -> io::Result<bool> {
        match &mut self.child {
            Some(child) => Ok(child.try_wait()?.is_some()),
            None => Ok(true),
        }
    }

    /// Waits for its end, and looks at it now and then.
    pub(super) fn ended(
        mut self,
        cancel: &Cancel,
        most: Duration,
        mut look: impl FnMut(),
    ) -> Result<Ran, Trouble> {
        let began = Instant::now();
        while !self.has_ended()? {
            look();
            if cancel.is_cancelled() {
                return Err(Trouble::Cancelled);
            }
            if began.elapsed() > most {
                return Err(Trouble::Fault(format!("it did not end within {} s", most.as_secs())));
            }
            self.wait_a_little()?;
        }
        let status = match self.child.take() {
            Some(mut child) => child.wait()?,
            None => return Err(Trouble::Fault("it has ended before".to_owned())),
        };
        let (out, err) = (text(&self.out)?, text(&self.err)?);
        Ok(Ran { code: status.code(), signal: status.signal(), out, err })
    }

    fn wait_a_little(&self) -> io::Result<()> {
        let Some(child) = &self.child else { return Ok(()) };
        let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let wait = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        match poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        let began = Instant::now();
        // It has children of its own, which only its orderly end puts away.
        kill_process(Pid::from_child(child), Signal::TERM).ok();
        while matches!(child.try_wait(), Ok(None)) && began.elapsed() < ORDERLY {
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().ok();
        child.wait().ok();
    }
}

impl Ran {
    /// Its end and the last of what it said, for whoever asks why.
    pub(super) fn told(&self) -> String {
        let end = match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no end".to_owned(),
        };
        let said = crate::render::one_line(&self.err, 400);
        if said.is_empty() { end } else { format!("{end}: {said}") }
    }
}

/// What was said, which may be anything where it was not our program.
fn text(file: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(MOST_OUTPUT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
