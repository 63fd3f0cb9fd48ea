//! QEMU, and the wall around a monitor: a root that holds it, its libraries, its firmware and the images, nothing
//! else.

use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::relay::Ears;
use super::{
    Accel, Board, MACHINE_ARG, MONITOR_THREADS, Monitor, Vm, firecracker, memory_of_machine, numbers,
};
use crate::engine::{self, Engine};
use crate::launch::{Bounds, Launch};
use crate::sys::{self, Forbid, Fork};
use crate::view;

/// Places where QEMU is looked for.
const QEMU: [&str; 3] =
    ["/usr/bin/qemu-system-x86_64", "/usr/local/bin/qemu-system-x86_64", "/usr/libexec/qemu-kvm"];
/// Where the wall has QEMU; from here it finds its firmware and modules.
const INSIDE: &str = "/usr/bin/qemu-system-x86_64";
/// What a dynamic program needs of the host, read-only; none of it holds a secret.
const LIBRARIES: [&str; 2] = ["usr/lib64", "usr/lib/x86_64-linux-gnu"];
/// What QEMU needs besides.
const FIRMWARE: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe"];

/// The QEMU of this machine.
pub(super) fn find() -> Option<PathBuf> {
    QEMU.iter().find_map(|path| fs::canonicalize(path).ok().filter(|p| p.is_file()))
}

/// Trees of the wall, attached nowhere yet.
pub(crate) struct Trees(Vec<(String, OwnedFd)>);

impl Trees {
    pub(crate) fn take(vm: &Vm) -> io::Result<Trees> {
        let mut trees = Vec::new();
        let mut add = |at: &str, path: &Path, forbid: Forbid| -> io::Result<()> {
            trees.push((at.to_owned(), view::tree(path, forbid)?));
            Ok(())
        };
        let shared: &[&[&str]] = match vm.monitor {
            Monitor::Qemu { .. } => &[&LIBRARIES, &FIRMWARE],
            Monitor::Firecracker if is_dynamic(&vm.program)? => &[&LIBRARIES],
            Monitor::Firecracker => &[],
        };
        for name in shared.iter().copied().flatten() {
            let path = Path::new("/").join(name);
            if fs::symlink_metadata(&path).is_ok_and(|m| m.is_dir()) {
                add(name, &path, Forbid::SuidDevWrite)?;
            }
        }
        add(inside(vm.monitor).trim_start_matches('/'), &vm.program, Forbid::SuidDevWrite)?;
        add("images/kernel", &vm.kernel, Forbid::SuidDevWrite)?;
        add("images/initramfs", &vm.initramfs, Forbid::SuidDevWrite)?;
        for (name, path, writing) in vm.drives() {
            let forbid = if writing { Forbid::SuidDev } else { Forbid::SuidDevWrite };
            add(&format!("images/{name}"), path, forbid)?;
        }
        if vm.monitor.is_kvm() && Path::new("/dev/kvm").exists() {
            trees.push(("dev/kvm".to_owned(), sys::detached_tree(c"/dev/kvm")?));
        }
        Ok(Trees(trees))
    }
}

/// Builds the wall at `root`; the devices of every view are there already.
pub(crate) fn wall(root: &Path, trees: &Trees) -> io::Result<()> {
    for name in ["images", "run", "usr/lib", "usr/bin", "usr/share", "var/tmp"] {
        fs::create_dir_all(root.join(name))?;
    }
    for (name, target) in [("lib", "usr/lib"), ("lib64", "usr/lib64")] {
        std::os::unix::fs::symlink(target, root.join(name))?;
    }
    for (at, tree) in &trees.0 {
        let at = root.join(at);
        if rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(tree)?.st_mode).is_dir() {
            fs::create_dir_all(&at)?;
        } else {
            fs::write(&at, b"")?;
        }
        view::attach(tree, &at)?;
    }
    Ok(())
}

/// Where the wall has the monitor.
fn inside(monitor: Monitor) -> &'static str {
    match monitor {
        Monitor::Qemu { .. } => INSIDE,
        Monitor::Firecracker => firecracker::INSIDE,
    }
}

/// Whether a program asks for a loader and libraries.
fn is_dynamic(program: &Path) -> io::Result<bool> {
    // The loader is named near the start, wherever a linker of our days puts it.
    const INTERPRETER: u32 = 3;
    let mut head = Vec::new();
    fs::File::open(program)?.take(64 << 10).read_to_end(&mut head)?;
    let number = |at: usize, size: usize| -> usize {
        let bytes = head.get(at..at + size).unwrap_or_default();
        bytes.iter().rev().fold(0, |sum: usize, b| sum.wrapping_mul(256).wrapping_add(usize::from(*b)))
    };
    let (headers, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    Ok((0..count)
        .any(|n| number(headers.saturating_add(n * size).min(head.len()), 4) == INTERPRETER as usize))
}

/// Runs in the wall as its first process: starts the monitor and reaps until it ends. Killing this process kills
/// all.
pub(crate) fn wait_for(launch: &Launch, vm: &Vm, status: &mut impl Write) -> io::Result<i32> {
    let (argv, ears) = match vm.monitor {
        Monitor::Qemu { board, accel } => (arguments(vm, board, accel, &launch.bounds), None),
        Monitor::Firecracker => {
            fs::write(firecracker::CONFIG, firecracker::config(vm, &launch.bounds))?;
            (firecracker::arguments(), Some(Ears::open()?))
        }
    };
    let program = CString::new(inside(vm.monitor))?;
    let argv: Vec<CString> = argv.into_iter().filter_map(|s| CString::new(s).ok()).collect();
    let env = [c"PATH=/usr/bin".to_owned(), c"HOME=/tmp".to_owned(), c"TMPDIR=/tmp".to_owned()];
    engine::seal(match vm.monitor {
        Monitor::Qemu { .. } => Engine::Qemu,
        Monitor::Firecracker => Engine::Firecracker,
    })?;
    let monitor = match sys::fork()? {
        Fork::Parent(pid) => pid,
        Fork::Child => {
            sys::close_from(3);
            if monitor_streams(vm.monitor).is_err() {
                sys::exit_now(127);
            }
            sys::default_signals();
            // Only a failure comes back; the executor hears of it through the log.
            let error = sys::exec(&program, &argv, &env);
            writeln!(io::stderr(), "{}: {error}", vm.monitor.name()).ok();
            sys::exit_now(127)
        }
    };
    status.write_all(b"+")?;
    if let Some(ears) = ears {
        let (relay, children) = ears.keep()?;
        return relay.carry(&children, || {
            sys::take_signals(&children)?;
            while let Some(reaped) = sys::reap(false) {
                if reaped.pid == monitor {
                    return Ok(Some(code(reaped.ended)));
                }
            }
            Ok(None)
        });
    }
    // The streams belong to QEMU alone now: a closed channel must be seen at both ends.
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for number in 0..3 {
        sys::place_fd(null.as_raw_fd(), number)?;
    }
    sys::close_from(3);
    std::mem::forget(null);
    while let Some(reaped) = sys::reap(true) {
        if reaped.pid == monitor {
            return Ok(code(reaped.ended));
        }
    }
    Ok(70)
}

/// The streams as a monitor wants them.
fn monitor_streams(monitor: Monitor) -> io::Result<()> {
    match monitor {
        // The log once more, under a number that QEMU takes for a set of its own.
        Monitor::Qemu { .. } => sys::place_fd(2, 3),
        // Its standard streams are the machine's serial line: nothing goes in, the log comes out.
        Monitor::Firecracker => {
            let null = fs::File::open("/dev/null")?;
            sys::place_fd(null.as_raw_fd(), 0)?;
            sys::place_fd(2, 1)
        }
    }
}

fn code(ended: crate::Ended) -> i32 {
    match ended {
        crate::Ended::Exit(code) => code,
        crate::Ended::Signal(signal) => 128 + signal,
        crate::Ended::NotStarted(_) | crate::Ended::Unknown => 70,
    }
}

/// The command line. Nothing is probed, nothing of the user's configuration is read, no device is there that is
/// not named here, and no network device is named.
fn arguments(vm: &Vm, board: Board, accel: Accel, bounds: &Bounds) -> Vec<String> {
    let (machine, device) = match board {
        Board::Microvm => ("microvm", "device"),
        Board::Q35 => ("q35", "pci"),
    };
    let (accel, cpu, told) = match accel {
        Accel::Kvm => ("kvm", "host", String::new()),
        // No instruction is speculated on there. A machine that is emulated under load fails to measure its own clock, and hangs.
        Accel::Emulated => (
            // A thread for each processor loses in QEMU 7 what a kernel writes into its own code while another processor
            // runs it: that kernel hangs, or ends by `int3`.
            if vm.is_emulated_by_qemu_7() { "tcg,tb-size=256,thread=single" } else { "tcg,tb-size=256" },
            emulated_cpu(vm),
            format!(" tsc_early_khz={} tsc=reliable no_timer_check mitigations=off", vm.tsc_khz),
        ),
    };
    let append = format!(
        "console=ttyS0 quiet panic=-1 reboot=t random.trust_cpu=on{told} rdinit=/init -- {MACHINE_ARG}"
    );
    let cores = bounds.cores.clamp(1, 16);
    let mut argv: Vec<String> = [
        "qemu-system-x86_64",
        "-name",
        "oubliette",
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        "-sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        "-kernel",
        "/images/kernel",
        "-initrd",
        "/images/initramfs",
        // A pipe of another owner can be handed over, not opened by name.
        "-add-fd",
        "fd=3,set=1",
        "-chardev",
        "file,id=log,path=/dev/fdset/1,append=on",
        "-serial",
        "chardev:log",
        "-chardev",
        "stdio,id=channel,signal=off",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut option = |name: &str, value: String| argv.extend([name.to_owned(), value]);
    option("-machine", machine.to_owned());
    option("-accel", accel.to_owned());
    option("-cpu", cpu.to_owned());
    option("-smp", cores.to_string());
    option("-m", format!("{}M", memory_of_machine(bounds) >> 20));
    option("-append", append);
    option("-device", format!("virtio-serial-{device}"));
    option("-device", "virtserialport,chardev=channel,name=oubliette".to_owned());
    for (name, _, writing) in vm.drives() {
        let writing = if writing { "readonly=off,cache=unsafe" } else { "readonly=on" };
        option("-drive", format!("if=none,id={name},file=/images/{name},format=raw,{writing}"));
        option("-device", format!("virtio-blk-{device},drive={name},serial={name}"));
    }
    argv
}

/// The processor of an emulated machine. The first two say that a string instruction is fast for bytes: here it is a turn
/// for each byte. The third does the flags wrong in QEMU 7, by which one start of five of a newer Linux ends.
fn emulated_cpu(vm: &Vm) -> &'static str {
    if vm.is_emulated_by_qemu_7() && numbers(&vm.release) >= vec![6, 5] {
        "max,erms=off,fsrm=off,cx16=off"
    } else {
        "max,erms=off,fsrm=off"
    }
}

/// Bounds of the monitor's own process.
pub(crate) fn limits(bounds: &Bounds) -> io::Result<()> {
    sys::set_limit(libc::RLIMIT_NPROC, MONITOR_THREADS, MONITOR_THREADS)?;
    let largest = bounds.file_bytes.saturating_mul(2).saturating_add(1 << 30);
    sys::set_limit(libc::RLIMIT_FSIZE, largest, largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest can write any bytes at the start of its drives, those of another format too, which would name files of
    /// the host: no drive leaves its format to be probed (bug class D-15).
    #[test]
    fn every_drive_is_raw_by_name() {
        let vm = vm("", "");
        for board in [Board::Microvm, Board::Q35] {
            let argv =
                arguments(&vm, board, Accel::Emulated, &crate::machine::probe_launch(vm.clone()).bounds);
            let drives: Vec<&String> = argv.iter().filter(|a| a.starts_with("if=none")).collect();
            assert_eq!(drives.len(), 3);
            assert!(drives.iter().all(|d| d.contains(",format=raw,")), "{drives:?}");
            for other in ["-blockdev", "-hda", "-cdrom", "-netdev", "-nic", "-fsdev", "-virtfs"] {
                assert!(!argv.iter().any(|a| a == other), "{other}");
            }
        }
    }

    #[test]
    fn processors_that_lose_what_is_written_into_code_take_turns() {
        let accel = |version| {
            let vm = vm(version, "6.1.0");
            let argv =
                arguments(&vm, Board::Q35, Accel::Emulated, &crate::machine::probe_launch(vm.clone()).bounds);
            argv.iter().any(|a| a.contains("thread=single"))
        };
        assert!(accel("7.2.22"));
        assert!(!accel("10.0.2"));
    }

    #[test]
    fn an_instruction_that_qemu_7_gets_wrong_is_kept_from_a_kernel_that_needs_it_right() {
        let without = |version, release| emulated_cpu(&vm(version, release)).contains("cx16=off");
        assert!(without("7.2.22", "6.12.95+deb12-cloud-amd64"));
        assert!(!without("7.2.22", "6.1.0-57-cloud-amd64"), "programs may want it");
        assert!(!without("10.0.2", "6.12.95"));
    }

    fn vm(version: &str, release: &str) -> Vm {
        let path = || Some(PathBuf::from("/x"));
        Vm {
            version: version.into(),
            monitor: Monitor::Qemu { board: Board::Microvm, accel: Accel::Emulated },
            program: "/x".into(),
            kernel: "/x".into(),
            release: release.into(),
            initramfs: "/x".into(),
            root: path(),
            work: path(),
            exchange: path(),
            left_out: String::new(),
            tsc_khz: 1,
        }
    }
}
