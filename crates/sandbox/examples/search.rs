//! How long one search of a folder takes, as a tool makes it: `search FOLDER PATTERN TIMES` prints the milliseconds of
//! each call into a running sandbox of the tier namespace, a line each. For `scripts/bench --only search`.

#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::time::{Duration, Instant};

use policy::{Limits, Rootfs, Surroundings, Tier, TierChoice};
use sandbox::{Call, CallBounds, Cancel, FileOp, Host, Job, Plan, Stream};

fn main() -> Result<(), Box<dyn Error>> {
    sandbox::helper_main();
    let host = Host::fork()?;
    let args: Vec<String> = std::env::args().collect();
    let [_, folder, pattern, times] = args.as_slice() else {
        return Err("usage: search FOLDER PATTERN TIMES".into());
    };
    let plan = Plan {
        tier: TierChoice::Namespace,
        floor: Tier::Namespace,
        surroundings: Surroundings::None,
        rootfs: Rootfs::Host,
        workspace: folder.into(),
        limits: Limits::default(),
        env: Vec::new(),
        runsc: None,
        module: None,
        held: Vec::new(),
        given: None,
        doors: sandbox::Doors::default(),
    };
    let op = FileOp::Search { pattern: pattern.clone(), path: ".".to_owned(), limit: 100, ignored: false };
    let (output, timeout) = (4 << 20, Duration::from_secs(60));
    let call = Call { job: Job::File(op), stdin: Vec::new(), timeout, output, bounds: CallBounds::default() };
    let times: u32 = times.parse()?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let running = plan.ready(&host).await?.start();
        let (_hand, cancel) = Cancel::new();
        for _ in 0..times {
            let (began, mut said) = (Instant::now(), Vec::new());
            let mut take = |stream, bytes: &[u8]| {
                if stream == Stream::Stdout {
                    said.extend_from_slice(bytes);
                }
            };
            running.run(&call, &cancel, &mut take).await?;
            let took = began.elapsed();
            if !said.starts_with(b"{\"ok\"") {
                return Err(String::from_utf8_lossy(&said).into_owned().into());
            }
            println!("{:.3}", took.as_secs_f64() * 1000.0);
        }
        running.destroy().await;
        Ok(())
    })
}
