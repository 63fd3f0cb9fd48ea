//! The microvm tier: a Linux of its own in a virtual machine, and a wall around the virtual machine monitor.
//!
//! ```text
//!   executor ──▶ forker ──▶ wall (namespaces, own ids, own root, limits) ──▶ monitor ──▶ guest kernel
//!      ▲                                                                                 │ /init: modules, mounts
//!      │              two pipes = one virtio serial port, or one vsock                   ▼
//!      └─────────────────────────────────────────────────────────────────── init, sealed as in the namespace tier
//! ```
//!
//! The monitor is Firecracker where one is there and really starts a machine under KVM (`firecracker`), QEMU
//! otherwise (`vmm`). Firecracker has no serial port of its own for a channel: see `relay`.
//!
//! Nothing of the host is served to the guest: its system is a read-only image, the workspace goes in as a file
//! system image made by a tool in a sandbox of its own, and comes back as a stream of our own format on a raw
//! drive. The host never mounts or reads a file system that a guest could write.

mod archive;
mod cache;
mod firecracker;
mod guest;
mod image;
mod initramfs;
mod kernel;
mod kvm;
mod prepare;
mod relay;
mod state;
mod unpack;
mod vmlinux;
mod vmm;

pub(crate) use cache::sweep_all as sweep;
pub(crate) use guest::run as run_guest;
pub(crate) use image::bytes as image_bytes;
pub(crate) use kvm::Kvm;
pub(crate) use prepare::{Wanted, prepare, probe_launch};
pub(crate) use unpack::Results;
pub(crate) use vmm::{Trees, limits, wait_for, wall};

use std::path::{Path, PathBuf};

use policy::TierChoice;
use serde::{Deserialize, Serialize};

use crate::Host;
use crate::launch::Bounds;

/// First argument that makes this program the first process of a machine.
pub(crate) const MACHINE_ARG: &str = "__machine";
/// The argument after it where the channel is a vsock.
const VSOCK_ARG: &str = "vsock";
/// The port of the host's end of that, which the monitor turns into the name of a socket in the wall.
const VSOCK_PORT: u32 = 1024;
/// The call id under which the end of the collection is told.
pub(crate) const COLLECT: u32 = u32::MAX;
/// Memory of the monitor itself, beside the machine's.
pub(crate) const MONITOR_MEMORY: u64 = 384 << 20;
/// Memory of a machine beside its guest's: its kernel's, that of our program as its first file system, and of its first
/// process. Where a guest could take of this, both would fetch the pages of their programs over and over.
pub(crate) const OWN_MEMORY: u64 = 192 << 20;
/// Threads that the monitor may have.
pub(crate) const MONITOR_THREADS: u64 = 128;

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Accel {
    /// The processor, by the host's kernel.
    Kvm,
    /// QEMU itself.
    Emulated,
}

/// The board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Board {
    /// Small: virtio over memory-mapped registers, no PCI.
    Microvm,
    /// A PC, where a QEMU does not offer the other.
    Q35,
}

/// The program that is the machine's hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Monitor {
    /// QEMU.
    Qemu {
        /// Its board.
        board: Board,
        /// What runs the guest's instructions.
        accel: Accel,
    },
    /// Firecracker, which knows KVM only and has one board.
    Firecracker,
}

impl Monitor {
    /// As people call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Monitor::Qemu { .. } => "QEMU",
            Monitor::Firecracker => "Firecracker",
        }
    }

    /// Whether the host's kernel runs the guest's instructions.
    pub(crate) fn is_kvm(self) -> bool {
        match self {
            Monitor::Qemu { accel, .. } => accel == Accel::Kvm,
            Monitor::Firecracker => true,
        }
    }
}

/// A machine to start. Every path is of a plain file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Vm {
    pub(crate) monitor: Monitor,
    pub(crate) program: PathBuf,
    pub(crate) version: String,
    pub(crate) kernel: PathBuf,
    pub(crate) release: String,
    pub(crate) initramfs: PathBuf,
    /// The system, read-only; none when the machine only shows that it starts.
    pub(crate) root: Option<PathBuf>,
    /// The workspace's image.
    pub(crate) work: Option<PathBuf>,
    /// Carries the guest's configuration in, and the results out.
    pub(crate) exchange: Option<PathBuf>,
    /// What is not in the system's image, for the report.
    pub(crate) left_out: String,
    /// The host's time stamp counter, which an emulated machine cannot measure under load.
    pub(crate) tsc_khz: u64,
}

/// Starts a program in the place of a monitor, in its very wall, and gives what it said. For tests of that wall.
#[doc(hidden)]
pub async fn in_place_of_a_monitor(host: &Host, firecracker: bool, program: &Path) -> String {
    let qemu = Monitor::Qemu { board: Board::Microvm, accel: Accel::Emulated };
    let own = || program.to_path_buf();
    let vm = Vm {
        monitor: if firecracker { Monitor::Firecracker } else { qemu },
        program: own(),
        version: String::new(),
        kernel: own(),
        release: String::new(),
        initramfs: own(),
        root: None,
        work: None,
        exchange: None,
        left_out: String::new(),
        tsc_khz: 1,
    };
    match crate::ready::starts(vm, host).await {
        Ok(()) => String::new(),
        Err(problem) => problem.to_string(),
    }
}

impl Vm {
    /// As the report names it.
    pub(crate) fn engine(&self) -> String {
        let kind = match self.monitor {
            Monitor::Qemu { board, accel } => {
                let board = match board {
                    Board::Microvm => "microvm",
                    Board::Q35 => "q35",
                };
                let accel = match accel {
                    Accel::Kvm => "kvm",
                    Accel::Emulated => "emulated",
                };
                format!("{board} {accel}")
            }
            Monitor::Firecracker => "kvm".to_owned(),
        };
        format!("{} {} {kind}, Linux {}", self.monitor.name(), self.version, self.release)
    }

    /// Its processors take turns there, and lack an instruction: those of QEMU 7 lose what is written into code that
    /// another one runs, and do flags wrong.
    pub(crate) fn is_emulated_by_qemu_7(&self) -> bool {
        match self.monitor {
            Monitor::Qemu { accel: Accel::Emulated, .. } => numbers(&self.version) < vec![8],
            Monitor::Qemu { accel: Accel::Kvm, .. } | Monitor::Firecracker => false,
        }
    }

    /// The drives: name, image, whether the guest may write it.
    fn drives(&self) -> impl Iterator<Item = (&'static str, &PathBuf, bool)> {
        [("root", &self.root, false), ("work", &self.work, true), ("exchange", &self.exchange, true)]
            .into_iter()
            .filter_map(|(name, image, writing)| Some((name, image.as_ref()?, writing)))
    }
}

/// Bytes that a sandbox of this choice may take of the host's memory beyond its `limits.memory`: a machine's kernel and
/// its monitor. `auto` may come to a machine where a monitor is and may open `/dev/kvm`, whether one starts or not.
pub fn beyond_limits(tier: TierChoice) -> u64 {
    let may_be_machine = match tier {
        TierChoice::Microvm => true,
        TierChoice::Auto => {
            kvm::access() == Kvm::Open && (vmm::find().is_some() || firecracker::find().is_some())
        }
        TierChoice::Confined | TierChoice::Namespace | TierChoice::Gvisor | TierChoice::Wasm => false,
    };
    if may_be_machine { OWN_MEMORY + MONITOR_MEMORY } else { 0 }
}

/// And what its monitor needs of its own.
pub(crate) fn memory_with_monitor(bounds: &Bounds) -> u64 {
    memory_of_machine(bounds).saturating_add(MONITOR_MEMORY)
}

/// Bytes of a machine's memory: its guest's, and what is not for a guest to take.
pub(crate) fn memory_of_machine(bounds: &Bounds) -> u64 {
    bounds.memory.saturating_add(OWN_MEMORY)
}

/// The numbers that a version begins with.
fn numbers(version: &str) -> Vec<u32> {
    version.split(['.', '-']).map_while(|n| n.parse().ok()).collect()
}
