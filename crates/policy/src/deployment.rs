//! `oubliette.toml`: the operator's file. Text in, checked values out.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::{Budget, CallLimits, EnvName, Faults, HostRule, Limits, Surroundings, Tier, TierChoice};

/// Everything the operator decides. A Guild can only narrow it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deployment {
    /// The model endpoint.
    pub model: Model,
    /// Tier, floor and surroundings.
    pub isolation: Isolation,
    /// Bounds of a sandbox.
    pub limits: Limits,
    /// Bounds of a call.
    pub call: CallLimits,
    /// The shell tools.
    pub shell: Shell,
    /// Destinations that may be reached.
    pub network: Vec<HostRule>,
    /// Variables handed into the sandbox on purpose.
    pub secrets: Vec<EnvName>,
    /// What a run may spend.
    pub budget: Budget,
    /// Where records go.
    pub records: Records,
}

/// `[model]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Model {
    /// `http://host:port/v1`, without a trailing slash.
    pub base_url: String,
    /// The name sent to the server.
    pub name: String,
    /// The variable that holds the key, if the server wants one.
    pub api_key_env: Option<EnvName>,
    /// Tokens the server's window must hold at least.
    pub min_context: u64,
}

/// `[isolation]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Isolation {
    /// What is asked for.
    pub tier: TierChoice,
    /// The weakest that is accepted.
    pub floor: Tier,
    /// What the operator states about the executor's own surroundings.
    pub surroundings: Surroundings,
    /// What the guest sees as its system.
    pub rootfs: Rootfs,
}

/// Where the guest's system comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rootfs {
    /// A read-only view of this machine's toolchain, without its secrets.
    Host,
    /// A folder that holds a root file system.
    Folder(PathBuf),
}

/// `[shell]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shell {
    /// Whether programs may be run at all.
    pub enabled: bool,
    /// When not empty: the only programs that may be run.
    pub allow: Vec<String>,
    /// Programs refused with a clear message; no boundary.
    pub deny: Vec<String>,
}

/// `[records]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Records {
    /// The folder, relative to the deployment file.
    pub dir: PathBuf,
    /// How long runs are kept.
    pub keep: Duration,
    /// Bytes all runs together may hold.
    pub max_bytes: u64,
}

impl Deployment {
    /// Reads the file's text; `file` is only its name in messages.
    ///
    /// # Errors
    /// Every fault of the file at once.
    pub fn parse(_file: &str, _text: &str) -> Result<Deployment, Faults> {
        Faults::or(Vec::new(), Deployment::default())
    }
}

impl Default for Deployment {
    fn default() -> Self {
        Deployment {
            model: Model {
                base_url: "http://127.0.0.1:8080/v1".to_owned(),
                name: "local".to_owned(),
                api_key_env: None,
                min_context: 4096,
            },
            isolation: Isolation {
                tier: TierChoice::Auto,
                floor: Tier::Gvisor,
                surroundings: Surroundings::None,
                rootfs: Rootfs::Host,
            },
            limits: Limits::default(),
            call: CallLimits::default(),
            shell: Shell { enabled: true, allow: Vec::new(), deny: Vec::new() },
            network: Vec::new(),
            secrets: Vec::new(),
            budget: Budget::default(),
            records: Records {
                dir: PathBuf::from("data"),
                keep: Duration::from_secs(30 * 24 * 3600),
                max_bytes: 5 << 30,
            },
        }
    }
}
