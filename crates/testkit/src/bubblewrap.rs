//! bubblewrap with walls as equal as it can make them: the reference that claims and attacks are measured against.

use std::path::Path;
use std::process::Command;

const BWRAP: &str = "/usr/bin/bwrap";
/// Whose processes they are outside, when root asks.
const ORDINARY: u32 = 65534;

/// A command line that lacks only its program: as an ordinary user, every namespace, no capability, the host's `/usr`
/// read-only and this workspace.
///
/// # Panics
/// Where bubblewrap is not installed: `scripts/test` does that.
pub fn bubblewrap(workspace: &Path, root: bool) -> Command {
    assert!(Path::new(BWRAP).exists(), "bubblewrap is not installed: run the tests by scripts/test");
    #[expect(clippy::disallowed_methods, reason = "the reference is a process of a test, not of the product")]
    let mut command = Command::new("/usr/bin/setpriv");
    if root {
        let id = ORDINARY.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    }
    command.args([BWRAP, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]);
    command.args(["--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--clearenv"]);
    command.args(["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
    for folder in ["/tmp/home", "/root", "/run"] {
        command.args(["--dir", folder]);
    }
    for (target, name) in
        [("usr/bin", "/bin"), ("usr/sbin", "/sbin"), ("usr/lib", "/lib"), ("usr/lib64", "/lib64")]
    {
        command.args(["--symlink", target, name]);
    }
    command.arg("--bind").arg(workspace).args(["/workspace", "--chdir", "/workspace", "--remount-ro", "/"]);
    for (name, value) in [("PATH", "/usr/bin:/bin"), ("HOME", "/tmp/home"), ("TMPDIR", "/tmp")] {
        command.args(["--setenv", name, value]);
    }
    command.env_clear();
    command
}

/// Hands a folder to whom [`bubblewrap`] runs as.
///
/// # Panics
/// When that is not allowed.
pub fn give_to_bubblewrap(path: &Path, root: bool) {
    if root && let Err(e) = std::os::unix::fs::chown(path, Some(ORDINARY), Some(ORDINARY)) {
        panic!("{}: {e}", path.display());
    }
}
