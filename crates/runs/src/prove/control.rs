//! The same program where nothing contains it: what an attack is worth that cannot succeed anywhere?

use std::io::{self, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

const LONGEST: Duration = Duration::from_secs(20);

/// Runs a harmless program of the corpus as an ordinary process of this machine, and gives what it printed.
pub(super) fn on_host(program: &str, facts: &Value) -> io::Result<String> {
    #[expect(clippy::disallowed_methods, reason = "a control is what runs outside every sandbox, on purpose")]
    let mut child = std::process::Command::new("/usr/bin/python3")
        .args(["-I", "-S", "-c", program, &facts.to_string()])
        .env_clear()
        .env("TMPDIR", "/nonexistent")
        .env("HOME", "/nonexistent")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() > LONGEST {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        out.take(1 << 20).read_to_string(&mut said)?;
    }
    Ok(said)
}
