//! One run: its copy of the workspace, its record, and the only door to a sandbox.
//!
//! ```text
//!   Run::open ── import ── plan ── start ── execute/file … ── finish ── destroy ── collect ── result.json
//! ```
//!
//! Nothing runs that is not in the record first, and the record lies outside everything a tool can write.

mod apply;
mod archive;
mod beneath;
mod call;
mod ceiling;
mod changes;
mod clean;
mod collect;
mod event;
mod execute;
mod export;
mod fetch;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod gc;
mod hold;
mod id;
mod import;
mod manifest;
mod mask;
mod module;
mod network;
mod output;
mod outward;
mod patch;
mod probe;
mod prove;
mod quote;
mod record;
mod refusals;
mod rehearse;
mod rename;
mod resume;
mod run;
mod serving;
mod store;
mod workspace;

pub use apply::{
    Applied, ApplyError, BadBranchName, BranchName, Branched, Delivery, FileChange, Preview, Shape, Target,
    Warning, recorded_patch,
};
pub use beneath::{Folder, read_beneath};
pub use call::{
    Apart, Code, Counts, Done, Executed, FileCall, ModuleUse, Opening, ProgramCall, Renamed, RunError,
    RunResult, Summary, Watch,
};
pub use ceiling::Waiting;
pub use clean::{clean, hides, in_json, marked};
pub use egress::{BadSecret, Granted};
pub use event::{Channel, Event, Resume, UnknownCall};
pub use fetch::Page;
pub use gc::{Cleared, Ended as EndedRun, Removed, gc, remove_tree};
pub use id::{BadRunId, RunId};
pub use import::History;
pub use manifest::sha256;
pub use mask::Mask;
pub use network::Network;
pub use probe::probe;
pub use prove::{
    About, Attack, BadCorpus, Control, Controls, Corpus, Directly, Outside, Played, Player, Proof, Shown,
    Verdict, afterwards, leave_open, prove, prove_by, prove_modules, small,
};
pub use record::{Checked, Finding, Record, Standing};
pub use rehearse::{Rehearsed, Request, rehearse};
pub use resume::{Interrupted, Past, ResumeError};
pub use run::Run;
// The parts of the sandbox that callers above this door may name; they cannot drive one.
pub use sandbox::{
    BadModule, Cancel, Change, Ended, FileOp, Host, Layer, LayerState, Module, Outcome, Report, SandboxError,
    Stream, TierProbe, To, Was, helper_main,
};
pub use store::{Full, Listed, Listing, StoreError, list, show, verify};
pub use workspace::{Changes, Workspace};
