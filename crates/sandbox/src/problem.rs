//! Why a tier does not work on a machine, and what would mend it.

use std::time::Duration;

use policy::Tier;

use crate::machine::Kvm;
use crate::remedy;

/// How long a sandbox may take to answer, on a machine that has a processor for each who wants one.
const ANSWER: Duration = Duration::from_secs(30);
/// And so many times as long at most, where several want each.
const LONGEST: u32 = 4;

/// What an attempt answers in time, which is longer where the machine has more to do than it can.
pub(crate) async fn in_time<T>(attempt: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    let mut attempt = std::pin::pin!(attempt);
    if let Ok(result) = tokio::time::timeout(ANSWER, &mut attempt).await {
        return result;
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let time = patience(&load, std::thread::available_parallelism().map_or(1, usize::from));
    tokio::time::timeout(time - ANSWER, attempt).await.unwrap_or(Err(Problem::Silent(time)))
}

/// How long to wait by the machine's load, the first of its averages, and its processors.
fn patience(load: &str, processors: usize) -> Duration {
    let wants: usize = load.split('.').next().and_then(|whole| whole.parse().ok()).unwrap_or(0);
    let each = u32::try_from(wants / processors.max(1)).unwrap_or(LONGEST);
    ANSWER * each.clamp(1, LONGEST)
}

/// What brings QEMU.
const QEMU: &str = "`apt-get install --no-install-recommends qemu-system-x86`";

/// Why a tier does not work here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("`runsc` is not installed")]
    NoRunsc,
    #[error("`qemu-system-x86_64` is not installed")]
    NoQemu,
    #[error("QEMU {0} is too old")]
    OldQemu(String),
    #[error("machines are made for x86-64 only, and this processor is another")]
    OtherProcessor,
    #[error("{0} is a guest kernel that this user may not read")]
    ClosedKernel(String),
    #[error("the guest kernel {0} can be written by others")]
    ForeignKernel(String),
    #[error("there is no guest kernel")]
    NoKernel,
    #[error("`{0}` is not installed, or cannot be started")]
    NoTool(String),
    #[error("machines are only emulated here, which `auto` does not take: {0}")]
    OnlyEmulated(Kvm),
    #[error("Firecracker is there and QEMU is not, and {0}")]
    OnlyFirecracker(Kvm),
    #[error("Firecracker {0} is too old: it describes no devices by ACPI")]
    OldFirecracker(String),
    #[error("{0}")]
    Machine(String),
    #[error("the root file system cannot be used: {0}")]
    Rootfs(String),
    #[error("what is granted cannot be offered: {0}")]
    Doors(String),
    #[error("it did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    #[error("modules do not run: {0}")]
    Engine(String),
    #[error("this program was built without modules")]
    NotBuilt,
    #[error("{0}")]
    Start(String),
    #[error("the layer `{name}` is missing: {detail}")]
    Layer { name: &'static str, detail: String },
}

impl Problem {
    /// Whether every tier that needs namespaces fails for the same reason.
    pub(crate) fn is_about_namespaces(&self) -> bool {
        matches!(self, Problem::Start(doing) if remedy::is_about_namespaces(doing))
    }

    /// Whether nothing is missing here, and the machine itself failed: it had no room or no time.
    pub(crate) fn is_of_the_moment(&self) -> bool {
        match self {
            Problem::Silent(_) => true,
            Problem::Start(doing) | Problem::Machine(doing) => remedy::is_of_the_moment(doing),
            _ => false,
        }
    }

    pub(crate) fn remedy(&self, tier: Tier) -> String {
        match (self, tier) {
            (Problem::NoRunsc, _) => "install gVisor: on Debian 12 `scripts/install-runsc` of this project \
                takes Debian 13's signed package; elsewhere see https://gvisor.dev/docs/user_guide/install/"
                .to_owned(),
            (Problem::NoQemu, _) => format!("install QEMU 7.2 or newer: {QEMU}"),
            (Problem::OldQemu(_), _) => {
                "bring QEMU 7.2 or newer from a newer release of the system (Debian 12, Ubuntu 24.04), or install \
                Firecracker; or take the tier `gvisor`"
                    .to_owned()
            }
            (Problem::OtherProcessor, _) => "take another tier: `gvisor`, `namespace` or `confined`".to_owned(),
            (Problem::ClosedKernel(kernel), _) => format!(
                "`scripts/fetch-kernel` unpacks one into this user's own cache; or have root do `chmod 644 {kernel}`"
            ),
            (Problem::ForeignKernel(kernel), _) => format!(
                "have its folder's owner do `chmod go-w {kernel}`, where root or this user owns it; or unpack another with \
                 `scripts/fetch-kernel`"
            ),
            (Problem::NoKernel, _) => {
                "unpack Debian's cloud kernel into the cache with `scripts/fetch-kernel`, or \
                install the package `linux-image-cloud-amd64`"
                    .to_owned()
            }
            (Problem::NoTool(tool), _) => match tool.as_str() {
                "mke2fs" => "`apt-get install e2fsprogs`".to_owned(),
                "lz4" | "zstd" | "gzip" => format!("`apt-get install {tool}`"),
                "xz" => "`apt-get install xz-utils`".to_owned(),
                _ => "`apt-get install squashfs-tools`".to_owned(),
            },
            (Problem::OnlyEmulated(kvm), _) => {
                format!("ask for it by name with `--tier microvm`, or {}", kvm.remedy())
            }
            (Problem::OnlyFirecracker(kvm), _) => {
                format!("{}, or install QEMU: {QEMU}", kvm.remedy())
            }
            (Problem::OldFirecracker(_), _) => {
                format!("put Firecracker 1.8 or newer in its place, or install QEMU: {QEMU}")
            }
            (Problem::NotBuilt, _) => {
                "build `oubliette` with its feature `wasm`, which is on by default".to_owned()
            }
            (Problem::Engine(_), _) => "run `oubliette doctor` for what this machine can hold".to_owned(),
            (Problem::Rootfs(_), _) => "use `rootfs = \"host\"`, or unpack an image into a folder".to_owned(),
            (Problem::Doors(_), _) => "grant fewer destinations, and fewer ports behind stars".to_owned(),
            (Problem::Start(doing) | Problem::Machine(doing), _) => remedy::of_step(doing),
            (Problem::Layer { name, .. }, _) => remedy::of_layer(name),
            (Problem::Silent(_), Tier::Gvisor) => "this `runsc` starts and never answers: try another \
                (`scripts/install-runsc`), and look whether the machine is overloaded"
                .to_owned(),
            (Problem::Silent(_), _) => "look whether the machine is overloaded, and try again".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_more_to_do_than_it_can_has_longer_to_answer_and_not_for_ever() {
        let waits = |load: &str| patience(load, 2).as_secs();
        assert_eq!(waits("0.10 9.00 9.00 1/99 123\n"), 30);
        assert_eq!(waits("3.99 0.00 0.00 1/99 123\n"), 30);
        assert_eq!(waits("4.00 0.00 0.00 1/99 123\n"), 60);
        assert_eq!(waits("900.00 0.00 0.00 1/99 123\n"), 120);
        assert_eq!(waits(""), 30);
    }
}
