//! Firecracker: what is told to it, and which of them will do.
//!
//! It gets a file with everything that the machine is, and no socket for orders: nothing can be added to a machine
//! that runs. No network device and no metadata service are in that file. Its own seccomp filters stay on.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{MACHINE_ARG, VSOCK_ARG, Vm, cache, image, memory_of_machine};
use crate::Host;
use crate::launch::Bounds;
use crate::problem::Problem;

/// Places where it is looked for: those that a sandbox of our tools sees, too.
const PLACES: [&str; 2] = ["/usr/bin/firecracker", "/usr/local/bin/firecracker"];
/// Where the wall has it.
pub(super) const INSIDE: &str = "/usr/bin/firecracker";
/// Where the wall has what it is told.
pub(super) const CONFIG: &str = "/run/machine.json";
/// The host's side of the machine's vsock. A guest's kernel that connects to a port makes Firecracker connect to
/// this name with `_` and the number after it: a socket of this wall, or none.
pub(super) const VSOCK: &str = "/run/vsock";
/// The first that describes its devices by ACPI; a distribution's kernel finds none in an older one.
const FIRST: (u32, u32) = (1, 8);

/// The Firecracker of this machine.
pub(super) fn find() -> Option<PathBuf> {
    PLACES.iter().find_map(|path| fs::canonicalize(path).ok().filter(|p| p.is_file()))
}

/// Its own word for its version, asked once.
pub(super) async fn about(host: &Host, folder: &Path, program: &Path) -> Result<String, Problem> {
    let path = folder.join(format!("firecracker-{}", cache::digest(&[cache::stamp(program).as_bytes()])));
    let told = match fs::read_to_string(&path) {
        Ok(told) => told,
        Err(_) => {
            let argv = vec![program.display().to_string(), "--version".to_owned()];
            let told = version(&image::ask(host, folder, argv).await?);
            cache::remember(folder, &path, &told);
            told
        }
    };
    if is_new_enough(&told) { Ok(told) } else { Err(Problem::OldFirecracker(told)) }
}

/// `Firecracker v1.15.1`, and more lines.
fn version(said: &str) -> String {
    let word = said.split_whitespace().skip_while(|w| *w != "Firecracker").nth(1).unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || ".+-".contains(*c);
    word.trim_start_matches('v').chars().filter(plain).take(40).collect()
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) >= FIRST,
        _ => false,
    }
}

/// The command line.
pub(super) fn arguments() -> Vec<String> {
    ["firecracker", "--no-api", "--config-file", CONFIG, "--level", "Error"].map(str::to_owned).to_vec()
}

/// The machine, in Firecracker's own terms. Its drives are raw by definition: it knows no other format.
pub(super) fn config(vm: &Vm, bounds: &Bounds) -> String {
    let told = format!(
        "console=ttyS0 quiet panic=-1 reboot=k pci=off random.trust_cpu=on i8042.noaux i8042.nomux \
         i8042.dumbkbd rdinit=/init -- {MACHINE_ARG} {VSOCK_ARG}"
    );
    let drives: Vec<_> = vm
        .drives()
        .map(|(name, _, writing)| {
            json!({
                "drive_id": name,
                "path_on_host": format!("/images/{name}"),
                "is_root_device": false,
                "is_read_only": !writing,
            })
        })
        .collect();
    json!({
        "boot-source": {
            "kernel_image_path": "/images/kernel",
            "initrd_path": "/images/initramfs",
            "boot_args": told,
        },
        "drives": drives,
        "machine-config": {
            "vcpu_count": bounds.cores.clamp(1, 16),
            "mem_size_mib": memory_of_machine(bounds) >> 20,
            "smt": false,
        },
        "vsock": { "guest_cid": 3, "uds_path": VSOCK },
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::super::{Monitor, prepare};
    use super::*;

    #[test]
    fn versions_without_acpi_are_too_old_and_rubbish_is_no_version() {
        assert_eq!(version("Firecracker v1.15.1\n\nSupported snapshot data format: 8\n"), "1.15.1");
        for good in ["1.8.0", "1.15.1", "1.17.0-dev", "2.0.0"] {
            assert!(is_new_enough(good), "{good}");
        }
        for bad in ["1.7.0", "0.25.2", "", "1", "1.x"] {
            assert!(!is_new_enough(bad), "{bad}");
        }
        assert_eq!(version("no such thing"), "");
    }

    #[test]
    fn a_machine_has_three_raw_drives_one_vsock_and_no_other_device() {
        let vm = Vm {
            monitor: Monitor::Firecracker,
            program: "/usr/bin/firecracker".into(),
            version: "1.15.1".to_owned(),
            kernel: "/k".into(),
            release: "6.1".to_owned(),
            initramfs: "/i".into(),
            root: Some("/r".into()),
            work: Some("/w".into()),
            exchange: Some("/x".into()),
            left_out: String::new(),
            tsc_khz: 0,
        };
        let bounds = prepare::probe_launch(vm.clone()).bounds;
        let told: serde_json::Value = serde_json::from_str(&config(&vm, &bounds)).unwrap();
        let keys: Vec<_> = told.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["boot-source", "drives", "machine-config", "vsock"]);
        let drives: Vec<_> = told["drives"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| (d["drive_id"].as_str().unwrap(), d["is_read_only"].as_bool().unwrap()))
            .collect();
        assert_eq!(drives, [("root", true), ("work", false), ("exchange", false)]);
        // The guest's 256 MiB, and the machine's own beside them.
        assert_eq!(told["machine-config"]["mem_size_mib"], 256 + 192);
        // No path of the host is in it.
        assert!(!config(&vm, &bounds).contains("\"/r\""));
        assert_eq!(vm.engine(), "Firecracker 1.15.1 kvm, Linux 6.1");
    }

    /// It would take orders from whoever reaches its socket, and lose its filters, by these.
    #[test]
    fn it_takes_no_orders_and_keeps_its_filters() {
        let argv = arguments();
        assert!(argv.iter().any(|a| a == "--no-api"));
        for never in ["--no-seccomp", "--seccomp-filter", "--api-sock", "--metadata", "--enable-pci"] {
            assert!(!argv.iter().any(|a| a == never), "{never}");
        }
    }
}
