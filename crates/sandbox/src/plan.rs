//! Skeleton of the launch path.

use std::path::PathBuf;

use policy::{Acceptance, Limits, Rootfs, Surroundings, Tier, TierChoice};

use crate::{Call, Cancel, Outcome, Report, Stream};

/// The executor's side of the forker: the only thing that starts processes.
#[derive(Clone, Debug)]
pub struct Host {}

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the operator asks for.
    pub tier: TierChoice,
    /// The weakest accepted.
    pub floor: Tier,
    /// What the operator states.
    pub surroundings: Surroundings,
    /// The guest's system.
    pub rootfs: Rootfs,
    /// The only folder of the host that the guest may write.
    pub workspace: PathBuf,
    /// Bounds.
    pub limits: Limits,
    /// Variables handed in on purpose.
    pub env: Vec<(String, String)>,
}

/// A plan that a probe has seen working, at or above the floor.
#[derive(Debug)]
pub struct Ready {}

/// A started sandbox: init answered and its layers were measured.
#[derive(Debug)]
pub struct Running {}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Refused: too weak, or a layer is missing. Nothing was started.
    #[error("{reason}; {remedy}")]
    Refused {
        /// Why.
        reason: String,
        /// What to install or to set.
        remedy: String,
    },
    /// It could not be started.
    #[error("the {tier} sandbox could not be started: {doing}")]
    Start {
        /// The tier.
        tier: Tier,
        /// At which step, and the system's word for it.
        doing: String,
    },
    /// It went away.
    #[error("the sandbox was lost: {doing}")]
    Lost {
        /// How that was seen.
        doing: String,
    },
}

/// Enters a helper (forker, guest init) when the program was started as one; returns otherwise.
pub fn helper_main() {}

impl Host {
    /// Starts the forker. Must be called before any thread exists.
    ///
    /// # Errors
    /// The system's own.
    pub fn start() -> std::io::Result<Host> {
        Ok(Host {})
    }
}

impl Plan {
    /// Probes, picks the tier, and refuses what is below the floor.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] with the remedy.
    pub async fn ready(self, _host: &Host) -> Result<Ready, SandboxError> {
        Ok(Ready {})
    }
}

impl Ready {
    /// The tier that will be used, and why it was accepted.
    pub fn tier(&self) -> (Tier, Acceptance) {
        (Tier::Namespace, Acceptance::Tier)
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`SandboxError::Start`].
    pub async fn start(self) -> Result<Running, SandboxError> {
        Ok(Running {})
    }
}

impl Running {
    /// What holds, as measured before any guest code ran.
    pub fn report(&self) -> Report {
        Report { tier: Tier::Namespace, engine: String::new(), layers: Vec::new(), start_ms: 0 }
    }

    /// Runs one call to its end; output is handed on piece by piece, in order, up to `call.output` bytes.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] only when the sandbox was gone before the call began; a loss under way is an
    /// [`Outcome`] stopped by `sandbox_lost`.
    pub async fn run(
        &self,
        _call: &Call,
        _cancel: &Cancel,
        _on_output: &mut (dyn FnMut(Stream, &[u8]) + Send),
    ) -> Result<Outcome, SandboxError> {
        Err(SandboxError::Lost { doing: "not written yet".to_owned() })
    }

    /// Destroys it: when this returns, no process, mount or cgroup of it is left.
    pub async fn destroy(self) -> Report {
        self.report()
    }
}
