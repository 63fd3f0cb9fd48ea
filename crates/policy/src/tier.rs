//! How strong the boundary is, and which strength a deployment accepts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kind of boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Landlock, seccomp and rlimits in the host's own namespaces.
    Confined,
    /// The above plus every namespace and a private root; the kernel is shared.
    Namespace,
    /// System calls are answered by a user-space kernel (`runsc`).
    Gvisor,
    /// A guest kernel of its own under a virtual machine monitor.
    Microvm,
    /// One WebAssembly module, which can reach nothing but the workspace. Starts no program, so it is no floor for
    /// one; see [`Tier::accept`] for its own strength.
    Wasm,
}

/// The weakest tier that a deployment accepts: one that programs can run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Floor {
    /// Landlock, seccomp and rlimits in the host's own namespaces.
    Confined,
    /// The above plus every namespace and a private root; the kernel is shared.
    Namespace,
    /// System calls are answered by a user-space kernel (`runsc`).
    Gvisor,
    /// A guest kernel of its own under a virtual machine monitor.
    Microvm,
}

impl From<Floor> for Tier {
    fn from(floor: Floor) -> Tier {
        match floor {
            Floor::Confined => Tier::Confined,
            Floor::Namespace => Tier::Namespace,
            Floor::Gvisor => Tier::Gvisor,
            Floor::Microvm => Tier::Microvm,
        }
    }
}

/// What the operator asks for: the strongest tier seen working, or one by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TierChoice {
    /// The strongest tier that a probe has seen working.
    #[default]
    Auto,
    /// Exactly `confined`.
    Confined,
    /// Exactly `namespace`.
    Namespace,
    /// Exactly `gvisor`.
    Gvisor,
    /// Exactly `microvm`.
    Microvm,
    /// Exactly `wasm`, for a module; `auto` never takes it.
    Wasm,
}

/// The boundary in which, by the operator's own statement, the whole executor already lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Surroundings {
    /// Nothing is claimed.
    #[default]
    None,
    /// The executor runs inside gVisor.
    Gvisor,
    /// The executor runs inside a virtual machine made for it.
    Microvm,
}

/// Why a tier was accepted; goes into the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum Acceptance {
    /// The tier itself is at or above the floor.
    Tier,
    /// The tier is below the floor, the stated surroundings are not.
    Surroundings {
        /// What the operator stated.
        stated: Surroundings,
    },
}

/// A tier weaker than the floor: nothing was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tier `{tier}` is below the floor `{floor}`")]
pub struct BelowFloor {
    /// What could have been had.
    pub tier: Tier,
    /// What the deployment accepts at least.
    pub floor: Tier,
}

impl Tier {
    /// The name used in files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Tier::Confined => "confined",
            Tier::Namespace => "namespace",
            Tier::Gvisor => "gvisor",
            Tier::Microvm => "microvm",
            Tier::Wasm => "wasm",
        }
    }

    /// Strength, weakest first. A module has no system calls to break a kernel with, and is walled in besides:
    /// that counts as much as a kernel in user space, not as much as a machine.
    fn strength(self) -> u8 {
        match self {
            Tier::Confined => 0,
            Tier::Namespace => 1,
            Tier::Gvisor | Tier::Wasm => 2,
            Tier::Microvm => 3,
        }
    }

    /// Whether a tier of this strength may be used under `floor`, given what the operator states about the
    /// executor's own surroundings.
    ///
    /// # Errors
    /// [`BelowFloor`] when neither reaches the floor.
    pub fn accept(self, floor: Tier, surroundings: Surroundings) -> Result<Acceptance, BelowFloor> {
        if self.strength() >= floor.strength() {
            return Ok(Acceptance::Tier);
        }
        match surroundings.tier() {
            Some(stated) if stated.strength() >= floor.strength() => {
                Ok(Acceptance::Surroundings { stated: surroundings })
            }
            _ => Err(BelowFloor { tier: self, floor }),
        }
    }
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TierChoice {
    /// The named tier, or none for `auto`.
    pub fn fixed(self) -> Option<Tier> {
        match self {
            TierChoice::Auto => None,
            TierChoice::Confined => Some(Tier::Confined),
            TierChoice::Namespace => Some(Tier::Namespace),
            TierChoice::Gvisor => Some(Tier::Gvisor),
            TierChoice::Microvm => Some(Tier::Microvm),
            TierChoice::Wasm => Some(Tier::Wasm),
        }
    }
}

impl Surroundings {
    fn tier(self) -> Option<Tier> {
        match self {
            Surroundings::None => None,
            Surroundings::Gvisor => Some(Tier::Gvisor),
            Surroundings::Microvm => Some(Tier::Microvm),
        }
    }
}
