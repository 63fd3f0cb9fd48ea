//! Whether KVM can be used here: the device is there, may be opened, and a machine really starts under it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Vm, cache, image};
use crate::launch::{MONITOR_ID, owns_ids};
use crate::{Host, ready};

/// Where it is kept what was found out: the name begins so, in the folder `machine` of the cache.
const REMEMBERED: &str = "oubliette/machine/kvm-*";
const DEVICE: &str = "/dev/kvm";
/// How long a machine may take at least to show that it starts. It takes a second where KVM works; where it does not, the
/// monitor says so at once, so that nobody but the user of a machine that hangs waits for so long, and once.
const TRY: Duration = Duration::from_secs(20);
/// And at most.
const LONGEST: Duration = Duration::from_secs(120);
/// Sandboxes of the namespace tier that can be started in the time that a slow host may take for a machine.
const SANDBOXES: u32 = 200;

/// How long a failure is believed: a host that had too much to do then need not have it now.
const BELIEVED: Duration = Duration::from_secs(3600);

/// What is wrong with KVM here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kvm {
    /// Nothing that can be seen without starting a machine.
    Open,
    /// There is no such device.
    Absent,
    /// It is there, and the monitor may not open it.
    Closed {
        /// Who may not.
        who: String,
        /// What opens it.
        remedy: String,
    },
    /// No machine starts under it.
    Broken,
}

impl std::fmt::Display for Kvm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kvm::Open => write!(f, "{DEVICE} can be opened"),
            Kvm::Absent => write!(f, "there is no {DEVICE}"),
            Kvm::Closed { who, .. } => write!(f, "{DEVICE} is there, but {who} may not open it"),
            Kvm::Broken => write!(f, "no machine starts under {DEVICE}"),
        }
    }
}

impl Kvm {
    /// What would mend it.
    pub(crate) fn remedy(&self) -> String {
        match self {
            Kvm::Closed { remedy, .. } => remedy.clone(),
            Kvm::Absent => format!(
                "give this machine a {DEVICE}: `modprobe kvm_intel` or `kvm_amd`, with virtualisation turned on in its \
                 firmware or by its host (in a container: `--device {DEVICE}`)"
            ),
            Kvm::Open | Kvm::Broken => format!(
                "mend the {DEVICE} that is here, under which no machine starts (in a virtual machine: its host must \
                 pass virtualisation on); that none started is believed for an hour, or until \
                 `{REMEMBERED}` in the cache (`/var/cache`, `~/.cache`) is removed: after load, try again"
            ),
        }
    }
}

/// Whether the monitor may open the device. It has the executor's user, or where that is root an id of its own and
/// the group of the device.
pub(super) fn access() -> Kvm {
    let Ok(device) = fs::metadata(DEVICE) else { return Kvm::Absent };
    let open = fs::OpenOptions::new().read(true).write(true).open(DEVICE).is_ok();
    let (mode, group) = (device.mode() & 0o777, device.gid());
    if owns_ids() {
        return for_root(mode, group, open);
    }
    let accounts = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let id = rustix::process::geteuid().as_raw();
    let user = name_of(&accounts("/etc/passwd"), id).unwrap_or_else(|| id.to_string());
    for_user(mode, name_of(&accounts("/etc/group"), group).filter(|_| group != 0), open, &user)
}

fn for_root(mode: u32, group: u32, open: bool) -> Kvm {
    let by_group = group != 0 && mode & 0o060 == 0o060;
    if open && (by_group || mode & 0o006 == 0o006) {
        return Kvm::Open;
    }
    let remedy = if open {
        format!("give it to a group of its own: `chgrp kvm {DEVICE} && chmod 660 {DEVICE}`")
    } else {
        format!("hand {DEVICE} to this container (`--device {DEVICE}`)")
    };
    Kvm::Closed { who: format!("the monitor's id {MONITOR_ID}"), remedy }
}

fn for_user(mode: u32, group: Option<String>, open: bool, user: &str) -> Kvm {
    if open {
        return Kvm::Open;
    }
    let remedy = match group {
        Some(group) if mode & 0o060 == 0o060 => {
            format!("have root do `usermod -aG {group} {user}`, and log in again")
        }
        Some(_) | None => format!(
            "have root do `chgrp kvm {DEVICE} && chmod 660 {DEVICE} && usermod -aG kvm {user}`, and log in again"
        ),
    };
    Kvm::Closed { who: format!("the user {user}"), remedy }
}

/// A name in a file of accounts or groups.
fn name_of(accounts: &str, id: u32) -> Option<String> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse::<u32>().ok()? == id).then(|| name.to_owned())
    })
}

/// Whether a machine really starts under KVM here; a device alone says nothing. Remembered until the host's
/// kernel, the monitor, the guest's kernel or this program change, and for an hour where none did.
pub(super) async fn works(host: &Host, folder: &Path, vm: &Vm) -> bool {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut stamps: String = [&vm.program, &vm.kernel, &vm.initramfs].map(|p| cache::stamp(p)).concat();
    // Who may open it is often what is wrong, and mended without a reboot.
    if let Ok(device) = fs::metadata(DEVICE) {
        stamps.push_str(&format!("{:o} {}:{}", device.mode(), device.uid(), device.gid()));
    }
    let path = folder.join(format!("kvm-{}", cache::digest(&[boot.as_bytes(), stamps.as_bytes()])));
    if let Some(told) = remembered(&path) {
        return told;
    }
    let patience = patience(host, folder).await;
    let works = matches!(tokio::time::timeout(patience, ready::starts(vm.clone(), host)).await, Ok(Ok(())));
    cache::remember(folder, &path, if works { "works" } else { "fails" });
    works
}

/// What was found out last; a failure only for a while.
fn remembered(path: &Path) -> Option<bool> {
    if fs::read_to_string(path).ok()? == "works" {
        return Some(true);
    }
    let age = fs::metadata(path).and_then(|m| m.modified()).ok()?.elapsed();
    age.is_ok_and(|age| age < BELIEVED).then_some(false)
}

/// A host under load, or one that is a guest itself, takes longer for everything.
async fn patience(host: &Host, folder: &Path) -> Duration {
    let began = Instant::now();
    // Whether it succeeds is told by what comes next.
    image::ask(host, folder, vec!["/bin/true".to_owned()]).await.ok();
    (began.elapsed() * SANDBOXES).clamp(TRY, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy(kvm: &Kvm) -> &str {
        match kvm {
            Kvm::Closed { remedy, .. } => remedy,
            Kvm::Open | Kvm::Absent | Kvm::Broken => "",
        }
    }

    #[test]
    fn a_user_outside_the_group_is_told_the_group() {
        let closed = for_user(0o660, Some("kvm".to_owned()), false, "ann");
        assert_eq!(remedy(&closed), "have root do `usermod -aG kvm ann`, and log in again");
        assert_eq!(closed.to_string(), "/dev/kvm is there, but the user ann may not open it");
        // A device that is root's alone needs a group first.
        for closed in
            [for_user(0o600, Some("kvm".to_owned()), false, "ann"), for_user(0o660, None, false, "ann")]
        {
            assert!(remedy(&closed).contains("chgrp kvm /dev/kvm && chmod 660"), "{closed:?}");
            assert!(remedy(&closed).contains("usermod -aG kvm ann"), "{closed:?}");
        }
        assert_eq!(for_user(0o660, None, true, "ann"), Kvm::Open);
    }

    /// The monitor is not root where the executor is: it gets the device by its group, which must not be root's.
    #[test]
    fn root_hands_the_device_on_by_its_group_only() {
        assert_eq!(for_root(0o660, 104, true), Kvm::Open);
        assert_eq!(for_root(0o666, 0, true), Kvm::Open);
        for (mode, group) in [(0o600, 0), (0o660, 0), (0o600, 104), (0o640, 104)] {
            assert!(remedy(&for_root(mode, group, true)).contains("chgrp kvm /dev/kvm"), "{mode:o} {group}");
        }
        assert!(remedy(&for_root(0o660, 104, false)).contains("--device"));
    }

    #[test]
    fn a_device_that_is_missing_one_that_is_closed_and_one_that_fails_are_told_apart() {
        let closed = for_user(0o660, Some("kvm".to_owned()), false, "ann");
        let told = [Kvm::Absent, closed, Kvm::Broken].map(|kvm| (kvm.to_string(), kvm.remedy()));
        let wanted =
            [("there is no", "modprobe"), ("may not open", "usermod"), ("no machine starts", "mend")];
        for ((what, remedy), (says, does)) in told.iter().zip(wanted) {
            assert!(what.contains(says) && remedy.contains(does), "{what}: {remedy}");
        }
    }

    #[test]
    fn a_failure_is_tried_again_after_an_hour_and_a_success_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kvm");
        let told = |word: &str, age: Duration| {
            fs::write(&path, word).unwrap();
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(std::time::SystemTime::now() - age).unwrap();
            remembered(&path)
        };
        assert_eq!(told("fails", Duration::from_secs(60)), Some(false));
        assert_eq!(told("fails", BELIEVED * 2), None);
        assert_eq!(told("works", BELIEVED * 2), Some(true));
    }

    #[test]
    fn names_are_read_from_files_of_accounts() {
        let groups = "root:x:0:\nkvm:x:104:ann\nbroken\n";
        assert_eq!(name_of(groups, 104).as_deref(), Some("kvm"));
        assert_eq!(name_of(groups, 7), None);
    }
}
