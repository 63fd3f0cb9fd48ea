//! Landlock: the same view once more, held by another part of the kernel.
//!
//! The mount view already says what exists; these rules say what may be done with it, so that a hole in one is
//! not a hole in both. Signals and abstract sockets stay within the sandbox as well.

use std::cell::Cell;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, PathFdError, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

/// The newest rules we know to ask for; what the kernel cannot hold of them is left out and reported.
const NEWEST: ABI = ABI::V6;

thread_local! {
    static ENFORCED: Cell<&'static str> = const { Cell::new("none") };
}

/// Rules that could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuleError {
    #[error("make the rules")]
    Ruleset(#[from] RulesetError),
    #[error("open a folder of the view")]
    Path(#[from] PathFdError),
}

/// Restricts this process and all it starts.
pub(crate) fn restrict() -> Result<(), RuleError> {
    let all = AccessFs::from_all(NEWEST);
    let read = AccessFs::from_read(NEWEST);
    // Device nodes are used, not made; terminals answer to ioctls.
    let device =
        BitFlags::from(AccessFs::ReadFile) | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::IoctlDev;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?
        .create()?;
    for (path, access) in
        [("/", read), ("/workspace", all), ("/tmp", all), ("/dev", device), ("/dev/shm", all)]
    {
        rules = rules.add_rule(PathBeneath::new(PathFd::new(path)?, access))?;
    }
    ENFORCED.set(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => "full",
        RulesetStatus::PartiallyEnforced => "part",
        RulesetStatus::NotEnforced => "none",
    });
    Ok(())
}

/// What the kernel said it enforces of the rules installed in this process.
pub(crate) fn enforced() -> &'static str {
    ENFORCED.get()
}
