//! What an outcome is about: without it a file that somebody attaches to a report could be of any machine and any list.

use std::process::{Command, Stdio};
use std::time::SystemTime;

use serde::Serialize;

/// Where, when and as whom.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// When it began, in UTC.
    pub date: String,
    /// The kernel's name, release, build and machine.
    pub kernel: String,
    /// The effective user id.
    pub uid: u32,
    /// The capabilities in force, as the kernel writes them.
    pub capabilities: String,
    /// What `runsc` says of its version, where there is one.
    pub runsc: Option<String>,
}

impl About {
    /// Of this machine and process, now.
    pub fn here() -> About {
        let uname = rustix::system::uname();
        let words = [uname.sysname(), uname.release(), uname.version(), uname.machine()];
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        About {
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            kernel: words.map(|word| word.to_string_lossy()).join(" "),
            uid: rustix::process::geteuid().as_raw(),
            capabilities: capabilities.unwrap_or_default().trim().to_owned(),
            runsc: runsc(),
        }
    }
}

/// `runsc version 0.0~20240729.0`, and more lines.
fn runsc() -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "it is asked for its version, and told nothing")]
    let mut command = Command::new(sandbox::find_runsc()?);
    command.arg("--version").env_clear().stdin(Stdio::null()).stderr(Stdio::null());
    let said = String::from_utf8_lossy(&command.output().ok()?.stdout).into_owned();
    let line = said.lines().next()?;
    Some(line.strip_prefix("runsc version ").unwrap_or(line).chars().take(80).collect())
}
