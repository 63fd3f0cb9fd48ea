//! Everything a machine needs, found or made before one is launched.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cache::{self, Scratch};
use super::guest::Handed;
use super::{Accel, Board, Results, Vm, image, initramfs, kernel, vmm};
use crate::launch::{Backend, Bounds, Launch, MONITOR_ID};
use crate::problem::Problem;
use crate::{Host, ready, sys};

/// How long a machine under KVM may take to show that it starts. It takes a second where it works.
const KVM_TRY: Duration = Duration::from_secs(6);

/// A machine to launch, and what its results need afterwards.
pub(crate) struct Prepared {
    pub(crate) vm: Vm,
    pub(crate) results: Results,
}

/// What is asked of a machine.
pub(crate) struct Wanted<'a> {
    pub(crate) rootfs: Option<&'a Path>,
    pub(crate) workspace: &'a Path,
    pub(crate) bounds: &'a Bounds,
    pub(crate) env: &'a [(String, String)],
    /// Whether QEMU may play the processor itself.
    pub(crate) emulated: bool,
}

/// Finds and makes everything; a second one with the same system takes milliseconds.
pub(crate) async fn prepare(host: &Host, wanted: Wanted<'_>) -> Result<Prepared, Problem> {
    let failed = |doing: &'static str| move |e: std::io::Error| Problem::Machine(format!("{doing}: {e}"));
    let qemu = vmm::find().ok_or(Problem::NoQemu)?;
    if !cfg!(target_arch = "x86_64") {
        return Err(Problem::NoQemu);
    }
    let folder = cache::folder(host).map_err(failed("open the cache"))?;
    let may_kvm = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
    if !may_kvm && !wanted.emulated {
        return Err(Problem::OnlyEmulated);
    }
    let (version, board) = about(host, &folder, &qemu).await?;
    let kernel = kernel::find(host, board)?;
    // The program that the forker is knows how to be a machine's first process; a test's own does not.
    let program = PathBuf::from(format!("/proc/{}/exe", host.forker_id()));
    let initramfs = initramfs::make(&folder, &kernel, &program).map_err(failed("make the initramfs"))?;
    let tsc_khz = tsc_khz().await;
    let mut vm = Vm {
        version,
        qemu,
        accel: Accel::Emulated,
        board,
        kernel: kernel.image,
        release: kernel.release,
        initramfs,
        root: None,
        work: None,
        exchange: None,
        left_out: String::new(),
        tsc_khz,
    };
    if may_kvm && kvm_works(host, &folder, &vm).await {
        vm.accel = Accel::Kvm;
    } else if !wanted.emulated {
        return Err(Problem::OnlyEmulated);
    }
    vm.root = Some(image::root(host, &folder, wanted.rootfs).await?);
    if wanted.rootfs.is_none() {
        vm.left_out = image::LEFT_OUT_TOLD.to_owned();
    }
    let scratch = Scratch::new(&folder).map_err(failed("make a folder"))?;
    let work = scratch.path().join("work");
    image::work(host, &folder, wanted.workspace, wanted.bounds, &work).await?;
    exchange(&scratch, &wanted).map_err(failed("make the exchange drive"))?;
    for path in [&work, &scratch.exchange()] {
        cache::give(path, MONITOR_ID, 0o600).map_err(failed("hand the images over"))?;
    }
    vm.work = Some(work);
    vm.exchange = Some(scratch.exchange());
    let results =
        Results { scratch, workspace: wanted.workspace.to_path_buf(), bounds: wanted.bounds.clone() };
    Ok(Prepared { vm, results })
}

/// A drive as large as results may be, sparse, with the configuration at its start.
fn exchange(scratch: &Scratch, wanted: &Wanted<'_>) -> std::io::Result<()> {
    let mut file = File::create_new(scratch.exchange())?;
    let handed = Handed { env: wanted.env.to_vec(), bounds: wanted.bounds.clone() };
    file.write_all(&handed.encode()?)?;
    // Room for the heads of the entries, too.
    let size = wanted.bounds.file_bytes.saturating_add(64 << 20).div_ceil(4096) * 4096;
    file.set_len(size)
}

/// Whether a machine really starts under KVM here; a device node alone says nothing. Remembered until the host's
/// kernel, QEMU or the guest's kernel change.
async fn kvm_works(host: &Host, folder: &Path, vm: &Vm) -> bool {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut stamps: String = [&vm.qemu, &vm.kernel].map(|p| cache::stamp(p)).concat();
    // Who may open it is often what is wrong, and mended without a reboot.
    if let Ok(device) = fs::metadata("/dev/kvm") {
        stamps.push_str(&format!("{:o} {}:{}", device.mode(), device.uid(), device.gid()));
    }
    let path = folder.join(format!("kvm-{}", cache::digest(&[boot.as_bytes(), stamps.as_bytes()])));
    if let Ok(told) = fs::read_to_string(&path) {
        return told == "works";
    }
    let vm = Vm { accel: Accel::Kvm, ..vm.clone() };
    let works = matches!(tokio::time::timeout(KVM_TRY, ready::starts(vm, host)).await, Ok(Ok(())));
    cache::remember(folder, &path, if works { "works" } else { "fails" });
    works
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
    let major = version.split('.').next().and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
    if major < 7 {
        return Err(Problem::NoQemu);
    }
    Ok((version.to_owned(), if board == "microvm" { Board::Microvm } else { Board::Q35 }))
}

/// Ticks of the processor's counter in a thousandth of a second, by the monotonic clock.
async fn tsc_khz() -> u64 {
    let (began, first) = (std::time::Instant::now(), sys::ticks());
    tokio::time::sleep(Duration::from_millis(25)).await;
    let (took, ticks) = (began.elapsed().as_micros().max(1), sys::ticks().wrapping_sub(first));
    u64::try_from(u128::from(ticks) * 1000 / took).unwrap_or(0)
}

/// A launch that only shows that a machine starts.
pub(crate) fn probe_launch(vm: Vm) -> Launch {
    Launch {
        id: 0,
        backend: Backend::Microvm { vm: Box::new(vm) },
        rootfs: None,
        source: None,
        workspace: PathBuf::from("/"),
        bounds: Bounds {
            weigh: false,
            tally: false,
            cpu_s: 10,
            cores: 1,
            memory: 256 << 20,
            processes: 64,
            file_bytes: 1 << 20,
            tmp: 16 << 20,
            files: 1024,
        },
        env: Vec::new(),
        modules: false,
    }
}
