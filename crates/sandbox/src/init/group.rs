//! Counters of a group that bounds the guest on a kernel of its own, where nobody outside can read them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::launch::Counters;

/// The number under which `memory.events` is inherited.
pub(crate) const MEMORY_EVENTS: i32 = 3;
/// The number under which `pids.events` is inherited.
pub(crate) const PIDS_EVENTS: i32 = 4;

/// Both files, open.
pub(super) struct Group {
    memory: File,
    pids: File,
}

impl Group {
    /// Takes what was inherited; no program of a guest has it.
    pub(super) fn take() -> io::Result<Group> {
        let keep = |number: i32| -> io::Result<File> {
            let inherited = crate::sys::inherited(number);
            let kept = rustix::io::fcntl_dupfd_cloexec(&inherited, 16)?;
            Ok(File::from(kept))
        };
        Ok(Group { memory: keep(MEMORY_EVENTS)?, pids: keep(PIDS_EVENTS)? })
    }

    /// What it has counted until now.
    pub(super) fn counters(&self) -> Counters {
        Counters { oom_kills: value(&self.memory, "oom_kill"), forks_refused: value(&self.pids, "max") }
    }
}

fn value(file: &File, name: &str) -> u64 {
    let mut text = [0; 512];
    let n = file.read_at(&mut text, 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&text[..n]).into_owned();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok()).unwrap_or(0)
}
