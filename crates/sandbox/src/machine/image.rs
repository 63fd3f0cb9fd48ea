//! Images of the guest's system and of the workspace, made by ordinary tools that run in a sandbox of the
//! namespace tier: they see what a guest would see, have no network, and nobody's rights.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use policy::Tier;

use super::{cache, state};
use crate::doors::Doors;
use crate::launch::{Backend, Bounds, GUEST_ID, Launch};
use crate::problem::Problem;
use crate::{Call, CallBounds, Cancel, Ended, Host, Job, ready};

/// How long a tool may take.
const PATIENCE: Duration = Duration::from_secs(900);
/// Parts of a host's `/usr` that are not put into the image: no program needs them to run.
pub(super) const LEFT_OUT: [&str; 10] = [
    "/usr/share/doc",
    "/usr/share/man",
    "/usr/share/info",
    "/usr/share/locale",
    "/usr/share/package-lists",
    "/usr/lib/debug",
    "/usr/lib/firmware",
    "/usr/lib/modules",
    "/usr/lib/google-cloud-sdk",
    "/usr/src",
];
/// The same in words.
pub(super) const LEFT_OUT_TOLD: &str =
    "without documentation, translations, debug data, firmware, kernel modules and cloud SDKs";
/// Folders of ours at the top of every guest, beside what the system brings.
const TOP: [&str; 9] = ["proc", "dev", "sys", "tmp", "run", "var", "workspace", "root", "home"];
/// The host's top-level program folders; links where `/usr` is merged.
pub(super) const PROGRAMS: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// The image of the guest's system: made once for each state of what it is made from.
pub(super) async fn root(host: &Host, cache: &Path, rootfs: Option<&Path>) -> Result<PathBuf, Problem> {
    let (state, patterns) = match rootfs {
        None => (state::of_system(Path::new("/")), LEFT_OUT.join("\n")),
        Some(folder) => (state::of_folder(folder)?, String::new()),
    };
    let path = cache.join(format!("root-{}", cache::digest(&[state.as_bytes(), patterns.as_bytes(), b"1"])));
    if path.exists() {
        return Ok(path);
    }
    // It is large: who comes second waits for the first and takes what that made.
    host.tell("making the system's image for the tier microvm, once for each state of this system; it takes a while");
    let _alone = cache::alone(cache, |what| host.tell(what), PATIENCE)
        .await
        .map_err(|e| Problem::Machine(format!("lock the cache: {e}")))?;
    if path.exists() {
        return Ok(path);
    }
    let mut argv: Vec<String> = vec!["mksquashfs".to_owned()];
    let mut pseudo = Vec::new();
    match rootfs {
        None => {
            argv.extend(["/usr", "/etc"].map(str::to_owned));
            for name in PROGRAMS {
                let at = Path::new("/").join(name);
                match fs::symlink_metadata(&at) {
                    Ok(meta) if meta.is_symlink() => {
                        let target = fs::read_link(&at).unwrap_or_default();
                        pseudo.push(format!("{name} s 777 0 0 {}", target.display()));
                    }
                    Ok(meta) if meta.is_dir() => argv.push(at.display().to_string()),
                    _ => {}
                }
            }
        }
        Some(_) => argv.push("/source".to_owned()),
    }
    argv.push("/workspace/image".to_owned());
    // Level 1 of the fastest kind: it is read through an emulator more often than it is written.
    argv.extend(
        "-comp lz4 -no-xattrs -all-root -noappend -no-progress -no-exports -quiet -mem 512M -root-mode 755"
            .split(' ')
            .map(str::to_owned),
    );
    if rootfs.is_none() {
        argv.push("-keep-as-directory".to_owned());
    }
    for name in TOP {
        // A folder that the system brings itself stays, but for those that must be ours.
        let brought = rootfs.is_some_and(|f| fs::symlink_metadata(f.join(name)).is_ok());
        if !brought || name != "var" {
            pseudo.push(format!("{name} d 755 0 0"));
        }
        if name == "var" && !brought {
            pseudo.push("var/tmp s 777 0 0 /tmp".to_owned());
        }
    }
    for line in pseudo {
        argv.extend(["-p".to_owned(), line]);
    }
    argv.push("-e".to_owned());
    match rootfs {
        None => argv.extend(LEFT_OUT.map(str::to_owned)),
        Some(_) => argv.extend(TOP.iter().filter(|n| **n != "var").map(|n| format!("/source/{n}"))),
    }
    let made = tool(host, cache, rootfs, argv, 64 << 30).await?;
    let keep = |e: std::io::Error| Problem::Machine(format!("keep the image of the system: {e}"));
    cache::give(&made.path().join("out/image"), 0, 0o644).map_err(keep)?;
    fs::rename(made.path().join("out/image"), &path).map_err(keep)?;
    cache::forget_old(cache, "root-", &path);
    Ok(path)
}

/// Size of the workspace's disk.
pub(crate) fn bytes(bounds: &Bounds) -> u64 {
    bounds.file_bytes.max(16 << 20)
}

/// Files that are asked for: the file system has some of its own.
fn inodes(bounds: &Bounds) -> u64 {
    bounds.files.saturating_add(16)
}

/// Files that the workspace's disk may hold: what is asked for is rounded up in each of its groups, the smallest of
/// which are of 8 MiB.
pub(super) fn most_files(bounds: &Bounds) -> u64 {
    const ROUNDED: u64 = 16;
    inodes(bounds).saturating_add(ROUNDED * (1 + bytes(bounds) / (8 << 20)))
}

/// The workspace as a file system image at `to`.
pub(super) async fn work(
    host: &Host,
    cache: &Path,
    workspace: &Path,
    bounds: &Bounds,
    to: &Path,
) -> Result<(), Problem> {
    let size = bytes(bounds) >> 10;
    let argv = format!(
        "mke2fs -q -F -t ext4 -O ^has_journal,^resize_inode -m 0 -N {} -E root_owner={GUEST_ID}:{GUEST_ID},\
         lazy_itable_init=1,nodiscard -d /source /workspace/image {size}k",
        inodes(bounds)
    );
    let argv = argv.split(' ').map(str::to_owned).collect();
    let made = tool(host, cache, Some(workspace), argv, u64::MAX >> 1).await?;
    fs::rename(made.path().join("out/image"), to)
        .map_err(|e| Problem::Machine(format!("keep the image of the workspace: {e}")))
}

/// What `tool` makes of the file `payload` in a folder.
pub(super) async fn unpack(
    host: &Host,
    cache: &Path,
    folder: &Path,
    with: &'static str,
    file_bytes: u64,
) -> Result<cache::Scratch, Problem> {
    // Our own words only: the shell is there for the two redirections.
    let line = r#"command -v "$0" >/dev/null || exit 127; "$0" -dc < /source/payload > /workspace/image"#;
    let argv = ["/bin/sh", "-c", line, with].map(str::to_owned).to_vec();
    tool(host, cache, Some(folder), argv, file_bytes).await.map_err(|problem| match problem {
        Problem::NoTool(_) => Problem::NoTool(with.to_owned()),
        other => other,
    })
}

/// What a program says.
pub(super) async fn ask(host: &Host, cache: &Path, argv: Vec<String>) -> Result<String, Problem> {
    run(host, cache, None, argv, 1 << 20).await.map(|(_, said)| said)
}

/// Runs one tool that makes `out/image` in a folder of its own; `source` is what it reads.
async fn tool(
    host: &Host,
    cache: &Path,
    source: Option<&Path>,
    argv: Vec<String>,
    file_bytes: u64,
) -> Result<cache::Scratch, Problem> {
    run(host, cache, source, argv, file_bytes).await.map(|(scratch, _)| scratch)
}

async fn run(
    host: &Host,
    cache: &Path,
    source: Option<&Path>,
    argv: Vec<String>,
    file_bytes: u64,
) -> Result<(cache::Scratch, String), Problem> {
    let name = argv.first().cloned().unwrap_or_default();
    let failed = |doing: String| Problem::Machine(format!("{name}: {doing}"));
    let scratch = cache::Scratch::new(cache).map_err(|e| failed(e.to_string()))?;
    let out = scratch.path().join("out");
    fs::create_dir(&out).map_err(|e| failed(e.to_string()))?;
    cache::give(&out, crate::guest_owner().map_or(0, |(uid, _)| uid), 0o755)
        .map_err(|e| failed(e.to_string()))?;
    let launch = Launch {
        id: 0,
        backend: Backend::Namespace,
        rootfs: None,
        source: source.map(Path::to_path_buf),
        workspace: out,
        bounds: Bounds {
            weigh: false,
            tally: false,
            cpu_s: PATIENCE.as_secs() * 4,
            cores: 64,
            memory: 3 << 30,
            processes: 128,
            file_bytes,
            tmp: 64 << 20,
            files: 4096,
        },
        env: Vec::new(),
        modules: false,
        kept: 0,
        doors: Doors::default(),
    };
    let beside = ready::Beside { since: Instant::now(), module: None, held: &[], given: None };
    let running = Box::pin(ready::launch(Tier::Namespace, launch, beside, PATIENCE, host)).await?.start();
    let call = Call {
        job: Job::Exec { argv, env: Vec::new(), cwd: None, terminal: false },
        stdin: Vec::new(),
        timeout: PATIENCE,
        output: 64 << 10,
        bounds: CallBounds::default(),
    };
    let (_give, cancel) = Cancel::new();
    let mut said = Vec::new();
    let ran = running.run(&call, &cancel, &mut |_, bytes| said.extend_from_slice(bytes)).await;
    running.destroy().await;
    let said = String::from_utf8_lossy(&said);
    let last: String = said.trim().chars().rev().take(300).collect::<Vec<_>>().into_iter().rev().collect();
    match ran {
        Ok(outcome) if outcome.ended == Ended::Exit(0) => Ok((scratch, said.into_owned())),
        Ok(outcome) if matches!(outcome.ended, Ended::Exit(126 | 127)) => Err(Problem::NoTool(name)),
        Ok(outcome) => Err(failed(format!("{:?}, {last}", outcome.ended))),
        Err(e) => Err(failed(e.to_string())),
    }
}
