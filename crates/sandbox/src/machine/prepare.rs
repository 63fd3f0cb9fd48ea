//! Everything a machine needs, found or made before one is launched.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::cache::{self, Scratch};
use super::guest::Handed;
use super::kvm::{self, Kvm};
use super::{
    Accel, Board, Monitor, Results, Vm, firecracker, image, initramfs, kernel, numbers, vmlinux, vmm,
};
use crate::doors::Doors;
use crate::launch::{Backend, Bounds, Launch, MONITOR_ID};
use crate::problem::Problem;
use crate::{Host, sys};

/// A machine to launch, for which nothing is handed in yet, and what its results need afterwards.
pub(crate) struct Prepared {
    pub(crate) vm: Vm,
    pub(crate) results: Results,
}

/// What is asked of a machine.
pub(crate) struct Wanted<'a> {
    pub(crate) rootfs: Option<&'a Path>,
    pub(crate) workspace: &'a Path,
    pub(crate) bounds: &'a Bounds,
    /// Whether QEMU may be the processor, too.
    pub(crate) emulated: bool,
}

/// Finds and makes everything; a second one with the same system takes milliseconds.
pub(crate) async fn prepare(host: &Host, wanted: Wanted<'_>) -> Result<Prepared, Problem> {
    let failed = |doing: &'static str| move |e: std::io::Error| Problem::Machine(format!("{doing}: {e}"));
    if !cfg!(target_arch = "x86_64") {
        return Err(Problem::OtherProcessor);
    }
    let folder = cache::folder(host).map_err(failed("open the cache"))?;
    let mut vm = choose(host, &folder, wanted.emulated).await?;
    vm.root = Some(image::root(host, &folder, wanted.rootfs).await?);
    if wanted.rootfs.is_none() {
        vm.left_out = image::LEFT_OUT_TOLD.to_owned();
    }
    let scratch = Scratch::new(&folder).map_err(failed("make a folder"))?;
    let work = scratch.path().join("work");
    image::work(host, &folder, wanted.workspace, wanted.bounds, &work).await?;
    cache::give(&work, MONITOR_ID, 0o600).map_err(failed("hand the image over"))?;
    vm.work = Some(work);
    vm.exchange = Some(scratch.exchange());
    let results =
        Results { scratch, workspace: wanted.workspace.to_path_buf(), bounds: wanted.bounds.clone() };
    Ok(Prepared { vm, results })
}

impl Results {
    /// Makes the drive that carries `env` and `doors` in: as large as results may be, sparse, with the configuration at
    /// its start. A machine overwrites that, so each start has a drive of its own.
    pub(crate) fn hand_in(&self, env: &[(String, String)], doors: &Doors) -> Result<(), Problem> {
        self.exchange(env, doors).map_err(|e| Problem::Machine(format!("make the exchange drive: {e}")))
    }

    fn exchange(&self, env: &[(String, String)], doors: &Doors) -> std::io::Result<()> {
        let path = self.scratch.exchange();
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            Ok(()) | Err(_) => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let handed = Handed { env: env.to_vec(), bounds: self.bounds.clone(), doors: doors.clone() };
        file.write_all(&handed.encode()?)?;
        // Room for the heads of the entries, too.
        let size = self.bounds.file_bytes.saturating_add(64 << 20).div_ceil(4096) * 4096;
        file.set_len(size)?;
        cache::give(&path, MONITOR_ID, 0o600)
    }
}

/// The machine that works here: under KVM by Firecracker, then by QEMU, each by really starting one; emulated only
/// where that may be.
async fn choose(host: &Host, folder: &Path, emulated: bool) -> Result<Vm, Problem> {
    let (qemu, firecracker) = (vmm::find(), firecracker::find());
    if qemu.is_none() && firecracker.is_none() {
        return Err(Problem::NoQemu);
    }
    let mut kvm = kvm::access();
    if kvm == Kvm::Open {
        // The first that is wrong with Firecracker is told where nothing else is there to be used.
        let mut wrong = None;
        if let Some(program) = &firecracker {
            match with_firecracker(host, folder, program).await {
                Ok(vm) if kvm::works(host, folder, &vm).await => return Ok(vm),
                Ok(_) => {}
                Err(problem) => wrong = Some(problem),
            }
        }
        if let Some(program) = &qemu {
            let vm = with_qemu(host, folder, program, Accel::Kvm).await?;
            if kvm::works(host, folder, &vm).await {
                return Ok(vm);
            }
        } else if let Some(problem) = wrong {
            return Err(problem);
        }
        kvm = Kvm::Broken;
    }
    match qemu {
        Some(program) if emulated => with_qemu(host, folder, &program, Accel::Emulated).await,
        Some(_) => Err(Problem::OnlyEmulated(kvm)),
        None => Err(Problem::OnlyFirecracker(kvm)),
    }
}

async fn with_qemu(host: &Host, folder: &Path, program: &Path, accel: Accel) -> Result<Vm, Problem> {
    let (version, board) = about(host, folder, program).await?;
    machine(host, folder, Monitor::Qemu { board, accel }, program, version).await
}

async fn with_firecracker(host: &Host, folder: &Path, program: &Path) -> Result<Vm, Problem> {
    let version = firecracker::about(host, folder, program).await?;
    let mut vm = machine(host, folder, Monitor::Firecracker, program, version).await?;
    vm.kernel = vmlinux::make(host, folder, &vm.kernel).await?;
    Ok(vm)
}

/// A machine without drives.
async fn machine(
    host: &Host,
    folder: &Path,
    monitor: Monitor,
    program: &Path,
    version: String,
) -> Result<Vm, Problem> {
    let kernel = kernel::find(host, monitor)?;
    // The program that the forker is knows how to be a machine's first process; a test's own does not.
    let init = PathBuf::from(format!("/proc/{}/exe", host.forker_id()));
    let initramfs = initramfs::make(folder, &kernel, &init)
        .map_err(|e| Problem::Machine(format!("make the initramfs: {e}")))?;
    Ok(Vm {
        monitor,
        program: program.to_path_buf(),
        version,
        kernel: kernel.image,
        release: kernel.release,
        initramfs,
        root: None,
        work: None,
        exchange: None,
        left_out: String::new(),
        tsc_khz: if monitor.is_kvm() { 0 } else { tsc_khz().await },
    })
}

/// QEMU's own word for its version and the boards it offers, asked once.
async fn about(host: &Host, folder: &Path, qemu: &Path) -> Result<(String, Board), Problem> {
    let path = folder.join(format!("qemu-{}", cache::digest(&[cache::stamp(qemu).as_bytes()])));
    let told = match fs::read_to_string(&path) {
        Ok(told) => told,
        Err(_) => {
            let program = qemu.display().to_string();
            let version = image::ask(host, folder, vec![program.clone(), "--version".to_owned()]).await?;
            let version = version.split_whitespace().skip_while(|w| *w != "version").nth(1).unwrap_or("?");
            let plain = |c: &char| c.is_ascii_alphanumeric() || ".+-".contains(*c);
            let version: String = version.chars().filter(plain).collect();
            let boards = vec![program, "-machine".to_owned(), "help".to_owned()];
            let boards = image::ask(host, folder, boards).await?;
            let has = |name: &str| boards.lines().any(|l| l.split_whitespace().next() == Some(name));
            let board = if has("microvm") { "microvm" } else { "q35" };
            let told = format!("{version} {board}");
            cache::remember(folder, &path, &told);
            told
        }
    };
    let (version, board) = told.split_once(' ').unwrap_or((&told, "q35"));
    if numbers(version) < vec![7] {
        return Err(Problem::OldQemu(version.to_owned()));
    }
    Ok((version.to_owned(), if board == "microvm" { Board::Microvm } else { Board::Q35 }))
}

/// Ticks of the processor's counter in a thousandth of a second, by the monotonic clock.
async fn tsc_khz() -> u64 {
    let first = closest(Look::now);
    tokio::time::sleep(Duration::from_millis(25)).await;
    khz(first, closest(Look::now))
}

/// Of so many looks at counter and clock one is taken in which nobody else had the processor in between: a machine whose clock
/// is set by another goes wrong by as much, and so does every bound of time in it.
const LOOKS: usize = 16;

/// Counter and clock at about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    /// The counter before the clock was read.
    ticks: u64,
    at: Instant,
    /// By how much it had gone on after that.
    apart: u64,
}

impl Look {
    fn now() -> Look {
        let ticks = sys::ticks();
        let at = Instant::now();
        Look { ticks, at, apart: sys::ticks().wrapping_sub(ticks) }
    }
}

/// The look in which both are nearest to each other.
fn closest(mut look: impl FnMut() -> Look) -> Look {
    let mut best = look();
    for _ in 1..LOOKS {
        let next = look();
        if next.apart < best.apart {
            best = next;
        }
    }
    best
}

fn khz(first: Look, last: Look) -> u64 {
    let took = last.at.saturating_duration_since(first.at).as_micros().max(1);
    u64::try_from(u128::from(last.ticks.wrapping_sub(first.ticks)) * 1000 / took).unwrap_or(0)
}

/// A launch that only shows that a machine starts.
pub(crate) fn probe_launch(vm: Vm) -> Launch {
    Launch {
        id: 0,
        backend: Backend::Microvm { vm: Box::new(vm) },
        rootfs: None,
        source: None,
        workspace: PathBuf::from("/"),
        bounds: small(),
        env: Vec::new(),
        modules: false,
        kept: 0,
        doors: Doors::default(),
    }
}

/// Bounds of what does nothing.
pub(super) fn small() -> Bounds {
    Bounds {
        weigh: false,
        tally: false,
        cpu_s: 10,
        cores: 1,
        memory: 256 << 20,
        processes: 64,
        file_bytes: 1 << 20,
        tmp: 16 << 20,
        files: 1024,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_was_interrupted_between_counter_and_clock_is_not_taken() {
        let began = Instant::now();
        // Two million ticks in a thousandth of a second; 10 ms passed between counter and clock in some of the looks.
        let look = |ms: u64, late: u64| Look {
            ticks: ms * 2_000_000,
            at: began + Duration::from_millis(ms + late),
            apart: 100 + late * 2_000_000,
        };
        let taken = |ms: u64, late: [u64; 3]| {
            let mut late = late.into_iter().chain([10; LOOKS]);
            closest(|| look(ms, late.next().unwrap()))
        };
        for late in [[10, 0, 10], [0, 10, 10], [10, 10, 0]] {
            assert_eq!(khz(taken(0, late), taken(25, late)), 2_000_000);
            assert_eq!(khz(taken(0, [0, 0, 0]), taken(25, late)), 2_000_000);
        }
    }
}
