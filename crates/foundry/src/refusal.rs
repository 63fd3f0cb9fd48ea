//! Why something is not done: refused, a mistake of whoever asked, or a fault of the machine.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::tree::Unfit;
use crate::{BadBranchId, BranchId};

/// Why a branch does not become the baseline. The text form is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// The branch may do more than the baseline, or is no sound Guild.
    Wider,
    /// The gate has not looked at it yet.
    NotGated,
    /// What lies beside the branch as its result is not what the gate wrote.
    GateForged,
    /// The gate has refused it.
    NotPassed,
    /// The branch was changed since.
    BranchChanged,
    /// The baseline is another one since.
    BaselineChanged,
    /// The deployment is another one since.
    DeploymentChanged,
    /// Tier, floor or surroundings are not those that it was gated for.
    IsolationChanged,
    /// It was gated with another list of attacks.
    AttacksChanged,
    /// Another version of the gate has looked at it.
    GateChanged,
    /// It was attacked on a tier below the floor of the deployment.
    TierTooWeak,
    /// It is the baseline already.
    Same,
    /// There is no kept baseline to go back to.
    NothingKept,
    /// A kept baseline is not what was kept.
    KeptChanged,
    /// A kept baseline is no Guild that could run: it is not sound, asks for more than the deployment gives, or holds a
    /// key.
    KeptUnfit,
    /// What is kept contradicts itself, or the baseline: something was put in, taken out or changed.
    HistoryBroken,
    /// There is a baseline already.
    BaselineThere,
    /// A key stands in a text of the Guild.
    KeyQuoted,
    /// An attack under the branch got what it wanted.
    Broken,
}

/// Whose affair an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// Whoever asked: usage or configuration.
    Input,
    /// The rules.
    Rules,
    /// The machine, or somebody else at work.
    Machine,
}

/// Why something was not done. Nothing of a branch's own text stands in it uncleaned.
#[derive(Debug, thiserror::Error)]
pub enum FoundryError {
    /// Not a branch's name.
    #[error(transparent)]
    BadId(#[from] BadBranchId),
    /// There is no such branch.
    #[error("there is no branch {id} in {}", path.display())]
    NoBranch {
        /// Which.
        id: BranchId,
        /// Where it would be.
        path: PathBuf,
    },
    /// There is no baseline yet.
    #[error("there is no baseline in {}; make a Guild of yours the first one: oubliette foundry init GUILD", path.display())]
    NoBaseline {
        /// The folder of the Foundry.
        path: PathBuf,
    },
    /// A file of the operator's own is not as it must be.
    #[error("{what}: {why}")]
    Input {
        /// Which.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A rule is against it.
    #[error("{reason}")]
    Refused {
        /// Which.
        refusal: Refusal,
        /// The same in words.
        reason: String,
    },
    /// The baseline to go back to may do more than the present one, and nobody said that this is meant.
    #[error("{reason}")]
    Wider {
        /// In words.
        reason: String,
        /// Everything that is wider, as the rules found it.
        findings: Vec<serde_json::Value>,
    },
    /// Somebody else is at it for too long.
    #[error("somebody else works on {}; try again when that is over", path.display())]
    Busy {
        /// On what.
        path: PathBuf,
    },
    /// An interrupted exchange cannot be told from a change by hand.
    #[error(
        "an exchange of the baseline was interrupted, and neither {} nor {} is as it was left; put what shall be the \
         baseline to the first place, and remove {}", baseline.display(), next.display(), next.display()
    )]
    Unclear {
        /// The baseline's folder.
        baseline: PathBuf,
        /// What was to become it, or was it.
        next: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: std::io::Error,
    },
    /// The attacks on a branch are too much.
    #[error("too much to attack: {why}")]
    Ceiling {
        /// Of what.
        why: String,
    },
    /// A sandbox for the attacks could not be had, or was lost.
    #[error(transparent)]
    Run(#[from] runs::RunError),
    /// The scripted model of the attacks could not be played.
    #[error("the scripted model could not be played: {why}")]
    Script {
        /// What was seen.
        why: String,
    },
}

impl FoundryError {
    /// Whose affair it is; a refused sandbox is told by its own error.
    pub fn blame(&self) -> Blame {
        match self {
            FoundryError::BadId(_)
            | FoundryError::NoBranch { .. }
            | FoundryError::NoBaseline { .. }
            | FoundryError::Input { .. } => Blame::Input,
            FoundryError::Refused { .. } | FoundryError::Wider { .. } | FoundryError::Ceiling { .. } => {
                Blame::Rules
            }
            FoundryError::Busy { .. }
            | FoundryError::Unclear { .. }
            | FoundryError::Io { .. }
            | FoundryError::Run(_)
            | FoundryError::Script { .. } => Blame::Machine,
        }
    }

    /// All of it in one line, with what was behind it.
    pub(crate) fn in_words(&self) -> String {
        let mut words = self.to_string();
        let mut behind = std::error::Error::source(self);
        while let Some(e) = behind {
            words = format!("{words}: {e}");
            behind = e.source();
        }
        runs::clean(words.as_bytes())
    }

    /// Which rule is against it, where one is.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            FoundryError::Refused { refusal, .. } => Some(*refusal),
            FoundryError::Wider { .. } => Some(Refusal::Wider),
            FoundryError::BadId(_)
            | FoundryError::NoBranch { .. }
            | FoundryError::NoBaseline { .. }
            | FoundryError::Input { .. }
            | FoundryError::Busy { .. }
            | FoundryError::Unclear { .. }
            | FoundryError::Io { .. }
            | FoundryError::Ceiling { .. }
            | FoundryError::Run(_)
            | FoundryError::Script { .. } => None,
        }
    }

    pub(crate) fn refused(refusal: Refusal, reason: impl Into<String>) -> FoundryError {
        FoundryError::Refused { refusal, reason: reason.into() }
    }

    /// For `map_err`: what was being done to which file.
    pub(crate) fn io(
        doing: &'static str,
        path: &Path,
    ) -> impl FnOnce(std::io::Error) -> FoundryError + use<> {
        let path = path.to_owned();
        move |source| FoundryError::Io { doing, path, source }
    }

    /// The same where a file is wanted: what lies there instead is whoever's affair put it there.
    pub(crate) fn file(
        doing: &'static str,
        path: &Path,
    ) -> impl FnOnce(std::io::Error) -> FoundryError + use<> {
        FoundryError::kind(doing, path, "a file")
    }

    /// The same where a folder is wanted.
    pub(crate) fn folder(
        doing: &'static str,
        path: &Path,
    ) -> impl FnOnce(std::io::Error) -> FoundryError + use<> {
        FoundryError::kind(doing, path, "a folder")
    }

    fn kind(
        doing: &'static str,
        path: &Path,
        wanted: &'static str,
    ) -> impl FnOnce(std::io::Error) -> FoundryError + use<> {
        let path = path.to_owned();
        move |source| {
            let what = path.display().to_string();
            let why = match (source.kind(), source.raw_os_error()) {
                (ErrorKind::IsADirectory, _) => "a folder lies there",
                (ErrorKind::NotADirectory, _) => "what lies there is none, or a link",
                // ELOOP and EXDEV: the kernel's word for a link; ENXIO: for a socket; ours for a FIFO or a device.
                (_, Some(40 | 18)) => "a link lies there",
                (ErrorKind::InvalidInput, _) | (_, Some(6)) => {
                    "a FIFO, a socket, a device or a folder lies there"
                }
                (ErrorKind::FileTooLarge, _) => "what lies there is too long",
                (ErrorKind::PermissionDenied, _) => "it is not yours to open",
                _ => return FoundryError::Io { doing, path, source },
            };
            FoundryError::Input { what, why: format!("{wanted} is wanted here, and {why}; put it elsewhere") }
        }
    }

    /// A folder of the operator's own that is no Guild's.
    pub(crate) fn unfit(path: &Path) -> impl FnOnce(Unfit) -> FoundryError + use<> {
        let path = path.to_owned();
        move |unfit| match unfit {
            Unfit::Odd(odd) => FoundryError::Input {
                what: path.display().to_string(),
                why: odd.iter().map(|o| format!("{}: {}", o.path, o.what)).collect::<Vec<_>>().join("; "),
            },
            Unfit::Io { path: at, source } => {
                let at = crate::tree::shown(at.as_os_str());
                FoundryError::Io { doing: "read", path: path.join(at), source }
            }
            Unfit::Copy { path: at, source } => {
                let at = crate::tree::shown(at.as_os_str());
                FoundryError::Io { doing: "copy", path: path.join(at), source }
            }
        }
    }
}
