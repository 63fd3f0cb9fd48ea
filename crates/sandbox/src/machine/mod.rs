//! The microvm tier: a Linux of its own in a virtual machine, and a wall around the virtual machine monitor.
//!
//! ```text
//!   executor ──▶ forker ──▶ wall (namespaces, own ids, own root, limits) ──▶ QEMU ──▶ guest kernel
//!      ▲                                                                              │ /init: modules, mounts
//!      │              two pipes = one virtio serial port                              ▼
//!      └──────────────────────────────────────────────────────────────── init, sealed as in the namespace tier
//! ```
//!
//! Nothing of the host is served to the guest: its system is a read-only image, the workspace goes in as a file
//! system image made by a tool in a sandbox of its own, and comes back as a stream of our own format on a raw
//! drive. The host never mounts or reads a file system that a guest could write.

mod archive;
mod cache;
mod guest;
mod image;
mod initramfs;
mod kernel;
mod prepare;
mod unpack;
mod vmm;

pub(crate) use guest::run as run_guest;
pub(crate) use prepare::{Wanted, prepare, probe_launch};
pub(crate) use unpack::Results;
pub(crate) use vmm::{Trees, limits, wait_for, wall};

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// First argument that makes this program the first process of a machine.
pub(crate) const MACHINE_ARG: &str = "__machine";
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

/// A machine to start. Every path is of a plain file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Vm {
    pub(crate) qemu: PathBuf,
    pub(crate) version: String,
    pub(crate) accel: Accel,
    pub(crate) board: Board,
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
        let board = match self.board {
            Board::Microvm => "microvm",
            Board::Q35 => "q35",
        };
        let accel = match self.accel {
            Accel::Kvm => "kvm",
            Accel::Emulated => "emulated",
        };
        format!("QEMU {} {board} {accel}, Linux {}", self.version, self.release)
    }
}
