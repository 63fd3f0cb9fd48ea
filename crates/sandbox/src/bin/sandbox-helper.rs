//! The helper of this crate's own tests: forker and init, as in the shipped program; and with `try` the smallest
//! executor there can be, which tests start where something was taken away from it, with `get` and `connect`
//! a client inside, with `read` what a file holds.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use policy::{Limits, Rootfs, Surroundings, Tier, TierChoice};
use sandbox::{Call, CallBounds, Cancel, Doors, Host, Job, Plan, SandboxError};
use serde_json::{Value, json};

fn main() -> ExitCode {
    sandbox::helper_main();
    let args: Vec<String> = std::env::args_os().skip(1).filter_map(|a| a.into_string().ok()).collect();
    match args.split_first() {
        Some((word, rest)) if word == "try" => match try_all(rest) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                writeln!(std::io::stderr(), "{e}").ok();
                ExitCode::FAILURE
            }
        },
        Some((word, [path])) if word == "read" => match std::fs::read(path) {
            Ok(bytes) => {
                std::io::stdout().write_all(&bytes).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
            }
            Err(_) => ExitCode::FAILURE,
        },
        Some((word, [path])) if word == "connect" => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => ExitCode::SUCCESS,
            // That it is there, and answers nobody, is another thing than that it is not there.
            Err(e) => {
                ExitCode::from(e.raw_os_error().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
            }
        },
        Some((word, [host, port])) if word == "get" => match get(host, port) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                writeln!(std::io::stderr(), "{e}").ok();
                ExitCode::FAILURE
            }
        },
        _ => ExitCode::SUCCESS,
    }
}

/// `get HOST PORT`: prints what an HTTP server says, as a static program does that knows of no proxy.
fn get(host: &str, port: &str) -> std::io::Result<()> {
    let port = port.parse().map_err(std::io::Error::other)?;
    let mut stream = std::net::TcpStream::connect((host, port))?;
    stream.write_all(format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    write!(std::io::stdout(), "{body}")
}

/// `try WORKSPACE RUNSC TIER...`: one line of JSON for each tier, what it was or why it is refused. An empty
/// `RUNSC` is the one that is found. A `bomb.py` in the workspace is run, in 128 MiB; otherwise a few words.
fn try_all(args: &[String]) -> std::io::Result<()> {
    let [workspace, runsc, tiers @ ..] = args else {
        return Err(std::io::Error::other("a folder, a program and tiers are wanted"));
    };
    let host = Host::start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for tier in tiers {
        let runsc = (!runsc.is_empty()).then(|| PathBuf::from(runsc));
        let mut told = runtime.block_on(try_one(&host, Path::new(workspace), runsc, tier));
        told["asked"] = tier.as_str().into();
        writeln!(std::io::stdout(), "{told}")?;
    }
    Ok(())
}

async fn try_one(host: &Host, workspace: &Path, runsc: Option<PathBuf>, tier: &str) -> Value {
    let Ok(tier) = serde_json::from_value::<TierChoice>(tier.into()) else {
        return json!({"error": "no tier"});
    };
    let bomb = workspace.join("bomb.py").exists();
    let mut limits = Limits::default();
    if bomb {
        limits.memory = 128 << 20;
    }
    let plan = Plan {
        tier,
        floor: Tier::Confined,
        surroundings: Surroundings::None,
        rootfs: Rootfs::Host,
        workspace: workspace.to_path_buf(),
        limits,
        env: Vec::new(),
        runsc,
        module: None,
        held: Vec::new(),
        given: None,
        doors: Doors::default(),
    };
    let running = match plan.ready(host).await {
        Ok(ready) => ready.start(),
        Err(SandboxError::Refused { reason, remedy }) => return json!({"reason": reason, "remedy": remedy}),
        Err(SandboxError::Start { doing, remedy, .. }) => {
            return json!({"reason": doing, "remedy": remedy, "failed": true});
        }
        Err(e) => return json!({"error": e.to_string()}),
    };
    let line = if bomb { "exec python3 bomb.py" } else { "echo works | cat > f; cat f; rm f" };
    let argv = ["sh", "-c", line].map(str::to_owned).to_vec();
    let job = Job::Exec { argv, env: Vec::new(), cwd: None, terminal: false };
    let call = Call {
        job,
        stdin: Vec::new(),
        timeout: Duration::from_secs(20),
        output: 1 << 16,
        bounds: CallBounds::default(),
    };
    let mut said = Vec::new();
    let (_keep, cancel) = Cancel::new();
    let outcome = running.run(&call, &cancel, &mut |_, bytes| said.extend_from_slice(bytes)).await;
    let report = running.destroy().await;
    json!({"report": report, "said": String::from_utf8_lossy(&said), "outcome": format!("{outcome:?}")})
}
