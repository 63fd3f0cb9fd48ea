//! Finds a guest kernel with the modules it needs: a distribution's own, installed or only unpacked.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::cache;
use super::{Board, Monitor};
use crate::Host;
use crate::problem::Problem;

/// A kernel image and the modules to load before anything else works, in this order.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    pub(super) release: String,
    pub(super) modules: Vec<PathBuf>,
}

/// Modules in load order; each may be built in. A kernel without one that is needed, or its bus, cannot be used.
const FIRST: [(&str, bool); 7] = [
    ("virtio_ring", true),
    ("virtio", true),
    ("virtio_mmio", false),
    ("virtio_pci_modern_dev", false),
    ("virtio_pci_legacy_dev", false),
    ("virtio_pci", false),
    ("virtio_blk", true),
];
/// The channel under QEMU.
const CONSOLE: [(&str, bool); 1] = [("virtio_console", true)];
/// The channel under Firecracker.
const VSOCK: [(&str, bool); 3] =
    [("vsock", true), ("vmw_vsock_virtio_transport_common", true), ("vmw_vsock_virtio_transport", true)];
/// File systems.
const LAST: [(&str, bool); 2] = [("ext4", true), ("squashfs", true)];

/// Looks in the caches first, then at what is installed.
pub(super) fn find(host: &Host, monitor: Monitor) -> Result<Kernel, Problem> {
    let mut places: Vec<PathBuf> = cache::top(host).into_iter().map(|c| c.join("kernel")).collect();
    places.push(PathBuf::from("/var/cache/oubliette/kernel"));
    places.push(PathBuf::from("/"));
    let mut last = Problem::NoKernel;
    for place in places {
        let mut images: Vec<String> = fs::read_dir(place.join("boot"))
            .map(|dir| dir.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
            .unwrap_or_default();
        images.retain(|name| name.starts_with("vmlinuz-"));
        images.sort_by_cached_key(|name| order(name));
        for name in images.iter().rev() {
            match complete(&place, name, monitor) {
                Ok(kernel) => return Ok(kernel),
                Err(problem) => last = problem,
            }
        }
    }
    Err(last)
}

/// A cloud kernel is made for machines like ours, and comes last with the newest of them: `6.1.0-9` is older than
/// `6.1.0-48`.
fn order(image: &str) -> (bool, Vec<u64>, String) {
    let numbers = image.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
    (image.contains("cloud"), numbers, image.to_owned())
}

fn complete(place: &Path, name: &str, monitor: Monitor) -> Result<Kernel, Problem> {
    let release = name.trim_start_matches("vmlinuz-").to_owned();
    let image = place.join("boot").join(name);
    let image =
        fs::canonicalize(&image).map_err(|e| Problem::Machine(format!("{}: {e}", image.display())))?;
    let shown = image.display();
    let meta = fs::metadata(&image).map_err(|e| Problem::Machine(format!("{shown}: {e}")))?;
    // What bounds the guest from inside is this kernel: it must not be one that anybody could put there.
    let ours = [0, rustix::process::geteuid().as_raw()].contains(&meta.uid()) && meta.mode() & 0o022 == 0;
    if !ours {
        return Err(Problem::ForeignKernel(shown.to_string()));
    }
    match fs::File::open(&image) {
        Ok(_) => {}
        // Some systems (Ubuntu) keep theirs for root.
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(Problem::ClosedKernel(shown.to_string()));
        }
        Err(e) => return Err(Problem::Machine(format!("read {shown}: {e}"))),
    }
    let folder = ["lib/modules", "usr/lib/modules"].map(|l| place.join(l).join(&release));
    let folder = folder.into_iter().find(|f| f.is_dir()).ok_or(Problem::NoKernel)?;
    let builtin = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
    let mut files = Vec::new();
    collect(&folder.join("kernel"), &mut files, 0);
    let mut modules = Vec::new();
    let (bus, other, channel): (_, _, &[_]) = match monitor {
        Monitor::Qemu { board: Board::Microvm, .. } => ("virtio_mmio", "virtio_pci", &CONSOLE),
        Monitor::Qemu { board: Board::Q35, .. } => ("virtio_pci", "virtio_mmio", &CONSOLE),
        Monitor::Firecracker => ("virtio_mmio", "virtio_pci", &VSOCK),
    };
    for (module, needed) in FIRST.iter().chain(channel).chain(&LAST).copied() {
        // A bus that the board has not: loading its modules takes an emulated machine a tenth of a second.
        if module.starts_with(other) {
            continue;
        }
        match files.iter().find(|f| stem(f) == module) {
            Some(file) => modules.push(file.clone()),
            None if !needed && module != bus => {}
            None if builtin.lines().any(|l| stem(Path::new(l)) == module) => {}
            None => return Err(Problem::Machine(format!("the kernel {release} has no `{module}`"))),
        }
    }
    Ok(Kernel { image, release, modules })
}

/// The module's name: `virtio.ko.xz` is `virtio`.
fn stem(path: &Path) -> &str {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    name.split(".ko").next().unwrap_or_default()
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>, depth: u32) {
    let Ok(dir) = fs::read_dir(folder) else { return };
    for entry in dir.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < 12 => collect(&entry.path(), into, depth + 1),
            Ok(kind) if kind.is_file() && !stem(&entry.path()).is_empty() => into.push(entry.path()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_known_by_its_name_however_it_is_packed() {
        for name in ["a/virtio.ko", "a/virtio.ko.xz", "virtio.ko.zst"] {
            assert_eq!(stem(Path::new(name)), "virtio");
        }
    }

    #[test]
    fn kernels_are_ordered_by_their_numbers_and_those_for_clouds_come_last() {
        let ordered = [
            "vmlinuz-5.10.0-30-amd64",
            "vmlinuz-6.1.0-9-amd64",
            "vmlinuz-6.1.0-48-amd64",
            "vmlinuz-6.1.12-1.el9.x86_64",
            "vmlinuz-6.12.9-200.fc41.x86_64",
            "vmlinuz-6.1.0-9-cloud-amd64",
            "vmlinuz-6.1.0-48-cloud-amd64",
            "vmlinuz-6.12.1+deb13-cloud-amd64",
        ];
        let mut images: Vec<&str> = ordered.iter().rev().copied().collect();
        images.sort_by_cached_key(|name| order(name));
        assert_eq!(images, ordered);
    }
}
