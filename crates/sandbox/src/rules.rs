//! Landlock: the same view once more, held by another part of the kernel.
//!
//! The mount view already says what exists; these rules say what may be done with it, so that a hole in one is
//! not a hole in both. Signals and abstract sockets stay within the sandbox as well.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, PathFdError, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use crate::launch::Place;
#[cfg(feature = "wasm")]
use crate::launch::Walls;
use crate::{sys, view};

/// The newest rules we know to ask for; what the kernel cannot hold of them is left out and reported.
const NEWEST: ABI = ABI::V6;

thread_local! {
    static ENFORCED: Cell<&'static str> = const { Cell::new("none") };
    static VERSION: Cell<i64> = const { Cell::new(0) };
}

/// Rules that could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuleError {
    #[error("make the rules")]
    Ruleset(#[from] RulesetError),
    #[error("open a folder of the view")]
    Path(#[from] PathFdError),
    #[error("the kernel offers none")]
    None,
}

/// Restricts this process and all it starts, in a view of its own.
pub(crate) fn restrict() -> Result<(), RuleError> {
    let mut rules = created(CompatLevel::BestEffort)?;
    let (all, read) = (AccessFs::from_all(NEWEST), AccessFs::from_read(NEWEST));
    for (path, access) in
        [("/", read), ("/workspace", all), ("/tmp", all), ("/dev", device()), ("/dev/shm", all)]
    {
        rules = rules.add_rule(PathBeneath::new(PathFd::new(path)?, access))?;
    }
    ENFORCED.set(told(rules.restrict_self()?.ruleset));
    Ok(())
}

/// Confined tier, first domain: what is below cannot signal what is above, nor reach its abstract sockets.
pub(crate) fn scope() -> Result<(), RuleError> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?
        .create()?;
    rules.restrict_self()?;
    Ok(())
}

/// What a guest without a view may open, and how. Found once, by names without links.
pub(crate) type Opened = Vec<(PathBuf, BitFlags<AccessFs>)>;

/// Confined tier, second domain: what a guest may open, and the processes, which init must see to end a call.
pub(crate) fn restrict_init(place: &Place) -> Result<(), RuleError> {
    let rules = opened(place)?;
    let proc = PathBeneath::new(PathFd::new("/proc")?, AccessFs::ReadFile | AccessFs::ReadDir);
    ENFORCED.set(told(rules.add_rule(proc)?.restrict_self()?.ruleset));
    Ok(())
}

/// Confined tier, third domain, one for each call: the same without the processes. The rules are made once, by names
/// that init's own domain was made by; each call closes itself by [`sys::restrict_by`].
pub(crate) fn of_calls(place: &Place) -> Result<OwnedFd, RuleError> {
    Option::from(opened(place)?).ok_or(RuleError::None)
}

/// A call of a module, in either view: the workspace, whatever else there is.
#[cfg(feature = "wasm")]
pub(crate) fn restrict_module(place: &Place) -> Result<(), RuleError> {
    let level = match place.walls {
        Walls::Own => CompatLevel::BestEffort,
        Walls::Shared => CompatLevel::HardRequirement,
    };
    let workspace = PathBeneath::new(PathFd::new(&place.workspace)?, AccessFs::from_all(NEWEST));
    created(level)?.add_rule(workspace)?.restrict_self()?;
    Ok(())
}

fn opened(place: &Place) -> Result<RulesetCreated, RuleError> {
    let mut rules = created(CompatLevel::HardRequirement)?;
    for (path, access) in &place.opened {
        rules = rules.add_rule(PathBeneath::new(PathFd::new(path)?, *access))?;
    }
    for path in [&place.workspace, &place.tmp] {
        rules = rules.add_rule(PathBeneath::new(PathFd::new(path)?, AccessFs::from_all(NEWEST)))?;
    }
    Ok(rules)
}

/// The host's programs for reading and a few devices.
pub(crate) fn open_parts() -> Opened {
    let (read, devices) = view::open_parts();
    let read = read.into_iter().map(|(path, meta)| {
        let access =
            if meta.is_dir() { AccessFs::from_read(NEWEST) } else { AccessFs::ReadFile | AccessFs::Execute };
        (path, access)
    });
    let used = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    read.chain(devices.into_iter().map(|path| (path, used))).collect()
}

/// The same where no program runs: init's own needs.
pub(crate) fn bare_parts() -> Opened {
    let used = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    [(PathBuf::from("/dev/null"), used)].into()
}

fn created(level: CompatLevel) -> Result<RulesetCreated, RuleError> {
    // Asked here: once restricted, a guest may not.
    VERSION.set(sys::landlock_version().unwrap_or(0));
    Ok(Ruleset::default()
        .set_compatibility(level)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?
        .create()?)
}

/// Device nodes are used, not made; terminals answer to ioctls.
fn device() -> BitFlags<AccessFs> {
    BitFlags::from(AccessFs::ReadFile) | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::IoctlDev
}

fn told(status: RulesetStatus) -> &'static str {
    match status {
        RulesetStatus::FullyEnforced => "full",
        RulesetStatus::PartiallyEnforced => "part",
        RulesetStatus::NotEnforced => "none",
    }
}

/// What the kernel said it enforces of the rules installed in this process.
pub(crate) fn enforced() -> &'static str {
    ENFORCED.get()
}

/// The version of the kernel's own rules; 0 where there are none.
pub(crate) fn version() -> i64 {
    VERSION.get()
}
