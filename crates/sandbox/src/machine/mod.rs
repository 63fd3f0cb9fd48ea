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
mod unpack;
mod vmlinux;
mod vmm;

pub(crate) use guest::run as run_guest;
pub(crate) use kvm::Kvm;
pub(crate) use prepare::{Wanted, prepare, probe_launch};
pub(crate) use unpack::Results;
pub(crate) use vmm::{Trees, filtered_threads, limits, wait_for, wall};

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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

    /// The drives: name, image, whether the guest may write it.
    fn drives(&self) -> impl Iterator<Item = (&'static str, &PathBuf, bool)> {
        [("root", &self.root, false), ("work", &self.work, true), ("exchange", &self.exchange, true)]
            .into_iter()
            .filter_map(|(name, image, writing)| Some((name, image.as_ref()?, writing)))
    }
}
