//! How fast bytes go through the doors of a sandbox: `doors TIER MIB` prints MiB each second out of it and into it, and
//! the median microseconds of a byte there and back, a line each.

#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::time::Duration;

use policy::{Limits, Rootfs, Surroundings, Tier, TierChoice};
use sandbox::{Asked, Call, CallBounds, Cancel, Doors, GuestStream, Host, Job, Knock, Name, Plan, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What is measured, from inside.
const CLIENT: &str = "
import socket as s, sys, time
size = int(sys.argv[1]) << 20
buffer = memoryview(bytearray(1 << 18))
def to(port): return s.create_connection(('bench.example', port), 30)
c = to(1); c.recv(1); began = time.monotonic(); left = size
while left > 0: left -= c.send(buffer[:min(left, len(buffer))])
c.shutdown(s.SHUT_WR); c.recv(1)
print('out', round((size >> 20) / (time.monotonic() - began)))
c = to(2); c.recv(1); began = time.monotonic(); left = size
while left > 0:
    n = c.recv_into(buffer)
    if not n: break
    left -= n
print('in', round((size >> 20) / (time.monotonic() - began)) if left == 0 else 'cut short')
c = to(3); c.setsockopt(s.IPPROTO_TCP, s.TCP_NODELAY, 1); times = []
for _ in range(1000):
    began = time.monotonic(); c.send(b'x'); c.recv(1); times.append(time.monotonic() - began)
print('there and back', round(sorted(times)[500] * 1e6))
";

fn main() -> Result<(), Box<dyn Error>> {
    sandbox::helper_main();
    let host = Host::fork()?;
    let args: Vec<String> = std::env::args().collect();
    let [_, tier, mib] = args.as_slice() else { return Err("usage: doors TIER MIB".into()) };
    let tier: TierChoice = serde_json::from_value(tier.as_str().into())?;
    let size = mib.parse::<usize>()? << 20;
    let folder = tempfile::tempdir()?;
    let workspace = folder.path().join("workspace");
    std::fs::create_dir(&workspace)?;
    if let Some((uid, gid)) = sandbox::guest_owner() {
        std::os::unix::fs::chown(&workspace, Some(uid), Some(gid))?;
    }
    let name = |port| Name { host: "bench.example".to_owned(), star: false, port };
    let plan = Plan {
        tier,
        floor: Tier::Namespace,
        surroundings: Surroundings::None,
        rootfs: Rootfs::Host,
        workspace,
        limits: Limits::default(),
        env: Vec::new(),
        runsc: None,
        module: None,
        held: Vec::new(),
        given: None,
        doors: Doors { names: [1, 2, 3].map(name).into() },
    };
    let argv = ["/usr/bin/python3", "-c", CLIENT, mib].map(str::to_owned).to_vec();
    let job = Job::Exec { argv, env: Vec::new(), cwd: None, terminal: false };
    let (output, timeout) = (1 << 20, Duration::from_secs(120));
    let call = Call { job, stdin: Vec::new(), timeout, output, bounds: CallBounds::default() };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let running = plan.ready(&host).await?.start();
        let mut knocks = running.knocks().ok_or("no way")?;
        tokio::spawn(async move {
            while let Some(Knock { way, stream }) = knocks.recv().await {
                tokio::spawn(serve(way, stream, size));
            }
        });
        let (_hand, cancel) = Cancel::new();
        let mut said = Vec::new();
        running.run(&call, &cancel, &mut |_: Stream, bytes| said.extend_from_slice(bytes)).await?;
        print!("{}", String::from_utf8_lossy(&said));
        running.destroy().await;
        Ok(())
    })
}

/// Takes, gives, or gives back.
async fn serve(way: Asked, mut stream: GuestStream, size: usize) -> std::io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    let Asked::Named { port, .. } = way else { return Ok(()) };
    if port < 3 {
        stream.write_all(b"x").await?;
    }
    match port {
        1 => while stream.read(&mut buffer).await? > 0 {},
        2 => {
            let mut left = size;
            while left > 0 {
                left -= stream.write(&buffer[..left.min(256 << 10)]).await?;
            }
        }
        _ => loop {
            let n = stream.read(&mut buffer).await?;
            if n == 0 {
                break;
            }
            stream.write_all(&buffer[..n]).await?;
        },
    }
    stream.shutdown().await
}
