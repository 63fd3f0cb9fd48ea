//! What each layer really enforced.

use policy::Tier;
use serde::Serialize;

/// How far a layer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerState {
    /// As the tier promises.
    Full,
    /// In part; the detail says which part.
    Part,
    /// Not at all; the detail says why.
    None,
}

/// One layer of a boundary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layer {
    /// Its name (`user-namespace`, `seccomp`, `landlock`, `memory`, ...).
    pub name: &'static str,
    /// How far it holds.
    pub state: LayerState,
    /// What was seen, with figures.
    pub detail: String,
}

/// What a sandbox really was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The tier obtained.
    pub tier: Tier,
    /// The engine (`gVisor, /usr/bin/runsc`, `Linux 6.18.1 namespaces`); what `runsc` says of its version only `prove` asks.
    pub engine: String,
    /// Layer by layer, as measured before any guest code ran.
    pub layers: Vec<Layer>,
    /// Milliseconds from the decision to start this tier until init answered: a machine's images, whether KVM works where
    /// that is not known yet, and a boot that hung and was given up are among it.
    pub start_ms: u64,
    /// Of these, from the launch of what answered: a machine's boot without what was made for it.
    pub launch_ms: u64,
    /// Why what the guest left could not be brought out of it; the workspace is then as it was before. Only a
    /// tier whose guest has a copy of the workspace can fail so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_collected: Option<String>,
}
