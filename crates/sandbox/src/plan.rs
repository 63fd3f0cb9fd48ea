//! What is wanted, and whether it can be had: the strongest tier that was *seen working* at or above the floor.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use policy::{BelowFloor, Limits, Rootfs, Surroundings, Tier, TierChoice};
use serde::Serialize;

use crate::doors::{Doors, Layout};
use crate::launch::{BASE_ID, Backend, Bounds, GUEST_ID, Launch};
use crate::problem::{self, Problem};
use crate::ready::{self, Beside, Ready};
use crate::{Host, Module, Report, machine, promise, remedy, wasm};

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the operator asks for.
    pub tier: TierChoice,
    /// The weakest accepted.
    pub floor: Tier,
    /// What the operator states about the executor's own surroundings.
    pub surroundings: Surroundings,
    /// The guest's system.
    pub rootfs: Rootfs,
    /// The only folder of the host that the guest may write.
    pub workspace: PathBuf,
    /// Bounds.
    pub limits: Limits,
    /// Variables handed in on purpose.
    pub env: Vec<(String, String)>,
    /// The `runsc` to use; the first in the usual places when none.
    pub runsc: Option<PathBuf>,
    /// The module that calls run, in the tier `wasm`; no other tier takes one.
    pub module: Option<Module>,
    /// Kept open until the sandbox is gone, also when this process ends before it, and never seen by a guest: at
    /// most four. A lock on one of these lasts as long as the guest does.
    pub held: Vec<Arc<OwnedFd>>,
    /// Bytes that what was put into the workspace takes on the disk beyond its sizes, which `limits.disk` does not
    /// count. None where no guest has been in it yet: then it is measured.
    pub given: Option<u64>,
    /// What may be reached by name, if anything: see [`Running::knocks`](crate::Running::knocks).
    pub doors: Doors,
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Refused: too weak, or a layer is missing. No guest code ran.
    #[error("{reason}\n  remedy: {remedy}")]
    Refused {
        /// Why.
        reason: String,
        /// What to install or to set.
        remedy: String,
    },
    /// It could not be started: nothing is missing here, the machine failed. No guest code ran.
    #[error("{doing}\n  remedy: {remedy}")]
    Start {
        /// The tier.
        tier: Tier,
        /// At which step, and the system's word for it.
        doing: String,
        /// What may help.
        remedy: String,
    },
    /// It went away.
    #[error("the sandbox was lost: {doing}")]
    Lost {
        /// How that was seen.
        doing: String,
    },
}

/// What a tier is good for on this machine, by running it.
#[derive(Clone, Debug, Serialize)]
pub struct TierProbe {
    /// The tier.
    pub tier: Tier,
    /// What it stops.
    pub stops: &'static str,
    /// What it does not.
    pub leaves: &'static str,
    /// What held, when it works.
    pub report: Option<Report>,
    /// Why it does not; beside a report, why `auto` does not take it.
    pub problem: Option<String>,
    /// What to install or to set.
    pub remedy: Option<String>,
    /// For layers that hold less than they could: name, and what to install or to set.
    pub advice: Vec<(&'static str, String)>,
    /// Whether `auto` takes it: an emulated machine must be named.
    pub auto: bool,
}

/// Places where `runsc` is looked for.
const RUNSC: [&str; 4] =
    ["/usr/bin/runsc", "/usr/local/bin/runsc", "/usr/local/sbin/runsc", "/opt/gvisor/bin/runsc"];

/// The user and group id that owns a workspace from outside when the executor is root; none when it is an
/// ordinary user, whose own id is the guest's.
pub fn guest_owner() -> Option<(u32, u32)> {
    let id = BASE_ID + GUEST_ID;
    crate::launch::owns_ids().then_some((id, id))
}

/// The `runsc` of this machine.
pub fn find_runsc() -> Option<PathBuf> {
    RUNSC.iter().map(PathBuf::from).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

impl Plan {
    /// Launches and measures: a tier counts only when its init has answered and its layers were seen. With
    /// `auto` the strongest that works is taken; nothing below the floor is ever tried.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] with the remedy, where a tier lacks something; [`SandboxError::Start`] where it does not,
    /// and the machine failed (no room, no memory, no answer in time), which another time it may not.
    pub async fn ready(self, host: &Host) -> Result<Ready, SandboxError> {
        let candidates = match self.tier.fixed() {
            Some(tier) => vec![tier],
            None => vec![Tier::Microvm, Tier::Gvisor, Tier::Namespace, Tier::Confined],
        };
        let mut problems = Vec::new();
        let mut below = None;
        for tier in candidates {
            let accepted = match tier.accept(self.floor, self.surroundings) {
                Ok(accepted) => accepted,
                Err(too_weak) => {
                    below.get_or_insert(too_weak);
                    continue;
                }
            };
            match self.attempt(tier, host).await {
                Ok(ready) => return Ok(ready.accepted(accepted)),
                // It may work another time, and who makes a machine slow must not get others a weaker wall.
                Err(problem @ Problem::Silent(_)) if self.tier.fixed().is_none() => {
                    return Err(SandboxError::Start {
                        tier,
                        doing: format!(
                            "the tier `{tier}` may work here, and {problem}: nothing weaker is taken for that"
                        ),
                        remedy: format!(
                            "{}; or ask for another tier by name (`--tier`)",
                            problem.remedy(tier)
                        ),
                    });
                }
                Err(problem) => problems.push((tier, problem)),
            }
        }
        Err(in_vain(refusal(self.tier, self.floor, &problems, below), &problems))
    }

    /// Without a view of its own a guest sees this name, and no link may stand in it.
    fn real_workspace(&self) -> Result<PathBuf, Problem> {
        fs::canonicalize(&self.workspace).map_err(|e| Problem::Start(format!("find the workspace: {e}")))
    }

    fn beside<'a>(&'a self, module: Option<&'a Module>, since: Instant) -> Beside<'a> {
        Beside { since, module, held: &self.held, given: self.given }
    }

    async fn attempt(&self, tier: Tier, host: &Host) -> Result<Ready, Problem> {
        let since = Instant::now();
        let bounds = Bounds::of(&self.limits);
        // With `auto` also where none are made: no weaker tier is taken because of a grant that is too large.
        if !matches!(self.tier.fixed(), Some(Tier::Confined | Tier::Wasm)) {
            Layout::of(&self.doors).map_err(Problem::Doors)?;
        }
        let rootfs = match &self.rootfs {
            Rootfs::Host => None,
            Rootfs::Folder(folder) => Some(root_folder(folder)?),
        };
        let workspace = self.real_workspace()?;
        let mut results = None;
        let backend = match tier {
            Tier::Wasm => return self.walled(workspace, bounds, since, host).await,
            Tier::Confined => Backend::Confined,
            Tier::Namespace => Backend::Namespace,
            Tier::Gvisor => {
                let runsc = self.runsc.clone().or_else(find_runsc).ok_or(Problem::NoRunsc)?;
                Backend::Gvisor { runsc }
            }
            Tier::Microvm => {
                let wanted = machine::Wanted {
                    rootfs: rootfs.as_deref(),
                    workspace: &workspace,
                    bounds: &bounds,
                    emulated: self.tier.fixed() == Some(Tier::Microvm),
                };
                let prepared = machine::prepare(host, wanted).await?;
                results = Some(prepared.results);
                Backend::Microvm { vm: Box::new(prepared.vm) }
            }
        };
        let launch = Launch {
            id: 0,
            rootfs,
            source: None,
            workspace,
            bounds,
            env: if backend == Backend::Confined { self.env.clone() } else { self.variables() },
            backend,
            modules: false,
            kept: 0,
            doors: self.doors.clone(),
        };
        let mut tries = if tier == Tier::Microvm { 2 } else { 1 };
        loop {
            if let Some(results) = &results {
                results.hand_in(&launch.env, &launch.doors)?;
            }
            let answer =
                ready::launch(tier, launch.clone(), self.beside(None, since), self.limits.wall, host);
            match problem::in_time(answer).await {
                // A machine that hangs while it starts is a known fault of emulation; no guest code ran.
                Err(Problem::Silent(_)) if tries > 1 => tries -= 1,
                result => return result.map(|ready| ready.leaving(results)),
            }
        }
    }

    /// What is handed in, and what tells of the proxy where there is one; a name that is handed in comes first.
    fn variables(&self) -> Vec<(String, String)> {
        let mut env = self.doors.variables();
        env.retain(|(name, _)| !self.env.iter().any(|(given, _)| given == name));
        env.extend(self.env.iter().cloned());
        env
    }

    /// The walls of a module: those of the namespace tier, or of the confined one where namespaces cannot be had.
    async fn walled(
        &self,
        workspace: PathBuf,
        bounds: Bounds,
        since: Instant,
        host: &Host,
    ) -> Result<Ready, Problem> {
        if !wasm::BUILT {
            return Err(Problem::NotBuilt);
        }
        let launch = Launch {
            id: 0,
            backend: Backend::Namespace,
            // It has no system at all, whatever a program would have.
            rootfs: None,
            source: None,
            workspace,
            bounds,
            env: self.env.clone(),
            modules: true,
            kept: 0,
            doors: self.doors.clone(),
        };
        let attempt = async |backend: Backend| {
            let launch = Launch { backend, ..launch.clone() };
            let answer = ready::launch(
                Tier::Wasm,
                launch,
                self.beside(self.module.as_ref(), since),
                self.limits.wall,
                host,
            );
            problem::in_time(answer).await
        };
        match attempt(Backend::Namespace).await {
            Err(problem) if problem.is_about_namespaces() => {
                // Of the two, namespaces are what is worth mending.
                attempt(Backend::Confined).await.map_err(|_| problem)
            }
            other => other,
        }
    }
}

/// A folder that can be a guest's root.
fn root_folder(folder: &Path) -> Result<PathBuf, Problem> {
    let shown = folder.display();
    let real = fs::canonicalize(folder).map_err(|e| Problem::Rootfs(format!("{shown}: {}", e.kind())))?;
    if !real.is_dir() {
        return Err(Problem::Rootfs(format!("{shown} is no folder; archives are not in this version")));
    }
    if real.join("oci-layout").exists() {
        return Err(Problem::Rootfs(format!("{shown} is an OCI layout; those are not in this version")));
    }
    Ok(real)
}

fn refusal(
    asked: TierChoice,
    floor: Tier,
    problems: &[(Tier, Problem)],
    below: Option<BelowFloor>,
) -> SandboxError {
    let accept_less = |tier: Tier| {
        // A floor is a tier that programs run in.
        let tier = if tier == Tier::Wasm { Tier::Gvisor } else { tier };
        format!(
            "accept less on purpose with `--floor {tier}` (`floor = \"{tier}\"`), or state the executor's own \
             surroundings (`surroundings = \"gvisor\"|\"microvm\"`)"
        )
    };
    let seen: Vec<String> = problems.iter().map(|(tier, p)| format!("{tier}: {p}")).collect();
    match (asked.fixed(), problems.last(), below) {
        // Asked for by name and too weak: it was not even tried.
        (Some(tier), _, Some(too_weak)) => SandboxError::Refused {
            reason: too_weak.to_string(),
            remedy: format!("use a tier at or above `{floor}`, or {}", accept_less(tier)),
        },
        (Some(tier), Some((_, problem)), None) => SandboxError::Refused {
            reason: format!("the tier `{tier}` does not work here: {problem}"),
            remedy: problem.remedy(tier),
        },
        _ => {
            // The tier nearest to the floor is the one a remedy is worth most for.
            let remedy = problems.last().map(|(tier, p)| p.remedy(*tier)).unwrap_or_default();
            let namespaces = !problems.iter().any(|(_, p)| p.is_about_namespaces());
            let less = if namespaces { next_lower(floor) } else { Tier::Confined };
            SandboxError::Refused {
                reason: format!("no tier at or above the floor `{floor}` works here ({})", seen.join("; ")),
                remedy: if less.accept(floor, Surroundings::None).is_err() {
                    format!("{remedy}; or {}", accept_less(less))
                } else {
                    remedy
                },
            }
        }
    }
}

/// A refusal says that something is missing here; where a tier lacked nothing, the machine failed.
fn in_vain(refusal: SandboxError, problems: &[(Tier, Problem)]) -> SandboxError {
    match (refusal, problems.iter().find(|(_, problem)| problem.is_of_the_moment())) {
        (SandboxError::Refused { reason, remedy }, Some((tier, _))) => {
            SandboxError::Start { tier: *tier, doing: reason, remedy }
        }
        (refusal, _) => refusal,
    }
}

/// What could be accepted instead.
fn next_lower(floor: Tier) -> Tier {
    match floor {
        Tier::Microvm | Tier::Gvisor => Tier::Namespace,
        Tier::Namespace | Tier::Confined | Tier::Wasm => Tier::Confined,
    }
}

/// Runs every tier once, strongest first and the one for modules last, with an empty workspace at `folder`, whatever the floor.
pub async fn probe(host: &Host, folder: &Path) -> Vec<TierProbe> {
    let mut probes = Vec::new();
    for tier in [Tier::Microvm, Tier::Gvisor, Tier::Namespace, Tier::Confined, Tier::Wasm] {
        let mut plan = Plan {
            tier: TierChoice::Auto,
            floor: Tier::Confined,
            surroundings: Surroundings::None,
            // Nothing of the system is needed to see what holds; the image of a whole one takes a while to make.
            rootfs: match tier {
                Tier::Microvm => Rootfs::Folder(folder.to_path_buf()),
                Tier::Gvisor | Tier::Namespace | Tier::Confined | Tier::Wasm => Rootfs::Host,
            },
            workspace: folder.to_path_buf(),
            limits: Limits::default(),
            env: Vec::new(),
            runsc: None,
            module: None,
            held: Vec::new(),
            given: None,
            doors: Doors::default(),
        };
        let (stops, leaves) = promise::of(tier);
        let mut outcome = plan.attempt(tier, host).await;
        let auto = outcome.is_ok() && tier != Tier::Wasm;
        let mut why = None;
        if let Err(problem @ Problem::OnlyEmulated(_)) = outcome {
            // Asked for by name, it may be had all the same.
            plan.tier = TierChoice::Microvm;
            outcome = plan.attempt(tier, host).await;
            why = Some(problem);
        }
        probes.push(match outcome {
            Ok(ready) => {
                let report = ready.start().destroy().await;
                let advice = remedy::of_report(&report);
                let (problem, remedy) =
                    why.map(|problem| (problem.to_string(), problem.remedy(tier))).unzip();
                TierProbe { tier, stops, leaves, report: Some(report), problem, remedy, advice, auto }
            }
            Err(problem) => TierProbe {
                tier,
                stops,
                leaves,
                report: None,
                problem: Some(problem.to_string()),
                remedy: Some(problem.remedy(tier)),
                advice: Vec::new(),
                auto: false,
            },
        });
    }
    probes
}
