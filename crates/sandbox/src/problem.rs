//! Why a tier does not work on a machine, and what would mend it.

use std::fs;
use std::time::Duration;

use policy::Tier;

/// How long a sandbox may take to answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);

/// Why a tier does not work here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("`runsc` is not installed")]
    NoRunsc,
    #[error("`qemu-system-x86_64` is not installed")]
    NoQemu,
    #[error("there is no guest kernel")]
    NoKernel,
    #[error("`{0}` is not installed")]
    NoTool(String),
    #[error("machines are only emulated here, which `auto` does not take: KVM is not there or does not work")]
    OnlyEmulated,
    #[error("{0}")]
    Machine(String),
    #[error("the root file system cannot be used: {0}")]
    Rootfs(String),
    #[error("it did not answer within {} s", ANSWER.as_secs())]
    Silent,
    #[error("{0}")]
    Start(String),
    #[error("the layer `{name}` is missing: {detail}")]
    Layer { name: &'static str, detail: String },
}

impl Problem {
    /// Whether every tier that needs namespaces fails for the same reason.
    pub(crate) fn is_about_namespaces(&self) -> bool {
        matches!(self, Problem::Start(doing)
            if doing.contains("create the namespaces") || doing.contains("map the ids"))
    }

    pub(crate) fn remedy(&self, tier: Tier) -> String {
        match (self, tier) {
            (Problem::NoRunsc, _) => "install gVisor: on Debian 12 `scripts/install-runsc` of this project \
                takes Debian 13's signed package; elsewhere see https://gvisor.dev/docs/user_guide/install/"
                .to_owned(),
            (Problem::NoQemu, _) => "install QEMU 7.2 or newer: `apt-get install --no-install-recommends \
                qemu-system-x86`"
                .to_owned(),
            (Problem::NoKernel, _) => {
                "unpack Debian's cloud kernel into the cache with `scripts/fetch-kernel`, or \
                install the package `linux-image-cloud-amd64`"
                    .to_owned()
            }
            (Problem::NoTool(tool), _) => match tool.as_str() {
                "mke2fs" => "`apt-get install e2fsprogs`".to_owned(),
                _ => "`apt-get install squashfs-tools`".to_owned(),
            },
            (Problem::OnlyEmulated, _) => "ask for it by name with `--tier microvm`, or give this machine a \
                working /dev/kvm"
                .to_owned(),
            (Problem::Rootfs(_), _) => "use `rootfs = \"host\"`, or unpack an image into a folder".to_owned(),
            (Problem::Start(_), _) if self.is_about_namespaces() => user_namespaces(),
            (Problem::Start(doing), _) if doing.contains("restrict by Landlock") => {
                "this tier needs Landlock with signal scopes: Linux 6.12 or newer with `landlock` among the `lsm=` \
                 of its command line, and a container whose seccomp profile allows it"
                    .to_owned()
            }
            (Problem::Start(doing), _) if doing.contains("reach the workspace") => {
                "keep records (`--data`) in a folder that others may pass through (mode 711 on each folder above), \
                 or run the executor as an ordinary user"
                    .to_owned()
            }
            (Problem::Start(doing), _) if doing.contains("use a root file system") => {
                "use `rootfs = \"host\"`".to_owned()
            }
            (Problem::Start(_) | Problem::Machine(_) | Problem::Silent | Problem::Layer { .. }, _) => {
                "run `oubliette doctor` for what this machine can hold".to_owned()
            }
        }
    }
}

/// What forbids user namespaces here, by looking at each thing that can.
fn user_namespaces() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        return "AppArmor restricts user namespaces: `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, \
            or an AppArmor profile that grants `userns` to this program"
            .to_owned();
    }
    if read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        return "this kernel gives user namespaces to root only: `sysctl -w kernel.unprivileged_userns_clone=1`"
            .to_owned();
    }
    if read("/proc/sys/user/max_user_namespaces") == "0" {
        return "user namespaces are turned off: `sysctl -w user.max_user_namespaces=10000`".to_owned();
    }
    "something around this program (a container's seccomp profile, usually) forbids user namespaces: start the \
     container with `--security-opt seccomp=unconfined --security-opt systempaths=unconfined`"
        .to_owned()
}
