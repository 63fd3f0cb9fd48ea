//! The tools: what each takes, what it may touch, and what it tells the model. One file a tool.

pub(crate) mod agent;
pub(crate) mod apply_patch;
pub(crate) mod edit_file;
pub(crate) mod fetch_url;
pub(crate) mod finish;
pub(crate) mod glob;
pub(crate) mod list_dir;
mod matching;
pub(crate) mod own;
mod program;
pub(crate) mod read_artifact;
pub(crate) mod read_file;
pub(crate) mod run_command;
pub(crate) mod run_shell;
pub(crate) mod search;
pub(crate) mod write_file;

use std::time::Duration;

use policy::{Decision, Grant, RoleName, StoppedBy, Tool};
use runs::{Cancel, FileCall, FileOp};
use serde_json::Value;

use crate::{BenchError, Workbench};

/// A call with checked arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    RunShell(run_shell::Args),
    RunCommand(run_command::Args),
    ReadFile(read_file::Args),
    WriteFile(write_file::Args),
    EditFile(edit_file::Args),
    ApplyPatch(apply_patch::Args),
    ListDir(list_dir::Args),
    Glob(glob::Args),
    Search(search::Args),
    ReadArtifact(read_artifact::Args),
    FetchUrl(fetch_url::Args),
    Own(own::Args),
    Agent(agent::Args),
    Finish(finish::Args),
}

/// What a tool works with.
pub(crate) struct Tools<'a, W> {
    pub(crate) bench: &'a W,
    pub(crate) grant: &'a Grant,
    pub(crate) cancel: &'a Cancel,
    /// What is left of the run's wall clock.
    pub(crate) left: Duration,
}

/// What a tool says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// For the model.
    pub(crate) text: String,
    /// Sandbox calls it took.
    pub(crate) last_call: u32,
}

/// The arguments' JSON Schema.
pub(crate) fn schema(tool: Tool, agents: &[RoleName]) -> Value {
    match tool {
        Tool::RunShell => run_shell::schema(),
        Tool::RunCommand => run_command::schema(),
        Tool::ReadFile => read_file::schema(),
        Tool::WriteFile => write_file::schema(),
        Tool::EditFile => edit_file::schema(),
        Tool::ApplyPatch => apply_patch::schema(),
        Tool::ListDir => list_dir::schema(),
        Tool::Glob => glob::schema(),
        Tool::Search => search::schema(),
        Tool::ReadArtifact => read_artifact::schema(),
        Tool::FetchUrl => fetch_url::schema(),
        Tool::Agent => agent::schema(agents),
        Tool::Finish => finish::schema(),
    }
}

/// One line for the model.
pub(crate) fn description(tool: Tool) -> &'static str {
    match tool {
        Tool::RunShell => "run one shell command in the workspace",
        Tool::RunCommand => "run one program with its arguments, without a shell",
        Tool::ReadFile => "show numbered lines of a text file",
        Tool::WriteFile => "create a file or replace it as a whole",
        Tool::EditFile => "replace the text `old` by `new`; `old` must occur exactly once unless all is true",
        Tool::ApplyPatch => {
            "change several files at once, all or none: a unified diff, or *** Begin Patch ... *** End Patch"
        }
        Tool::ListDir => "list a folder",
        Tool::Glob => {
            "find files by name, e.g. *.py or src/**/test_*.rs; ignored = true: also what .gitignore ignores"
        }
        Tool::Search => {
            "find lines that match a regular expression; ignored = true: also in what .gitignore ignores"
        }
        Tool::ReadArtifact => {
            "read the full text of a result that was shortened, by the id that stands there"
        }
        Tool::FetchUrl => "get the text of a page from a site that was granted; nothing else can be reached",
        Tool::Agent => "give a task to another role and get its answer",
        Tool::Finish => "end your work; status is done or failed",
    }
}

impl Action {
    /// What can be judged from the arguments alone, before anything is started.
    pub(crate) fn judge(&self, grant: &Grant) -> Decision {
        let path = |p: &str| match crate::path::inside(p) {
            Ok(_) => Decision::allow(crate::path::RULE),
            Err(refusal) => refusal,
        };
        match self {
            Action::RunShell(a) => program::judge(grant, Tool::RunShell, &a.argv(), a.workdir.as_deref()),
            Action::RunCommand(a) => program::judge(grant, Tool::RunCommand, &a.argv, a.workdir.as_deref()),
            Action::ReadFile(a) => path(&a.path),
            Action::WriteFile(a) => path(&a.path),
            Action::EditFile(a) => path(&a.path),
            Action::ApplyPatch(a) => a.judge(),
            Action::ListDir(a) => path(a.path.as_deref().unwrap_or(".")),
            Action::Glob(a) => path(a.path.as_deref().unwrap_or(".")),
            Action::Search(a) => path(a.path.as_deref().unwrap_or(".")),
            // The way out decides on the destination, and records it.
            Action::FetchUrl(_)
            | Action::Own(_)
            | Action::ReadArtifact(_)
            | Action::Agent(_)
            | Action::Finish(_) => Decision::allow("role-tools"),
        }
    }
}

impl<W: Workbench> Tools<'_, W> {
    /// Does a sandbox tool's work. `read_artifact`, `agent` and `finish` never come here.
    pub(crate) async fn run(&self, action: &Action) -> Result<Said, BenchError> {
        match action {
            Action::RunShell(a) => a.run(self).await,
            Action::RunCommand(a) => a.run(self).await,
            Action::ReadFile(a) => a.run(self).await,
            Action::WriteFile(a) => a.run(self).await,
            Action::EditFile(a) => a.run(self).await,
            Action::ApplyPatch(a) => a.run(self).await,
            Action::ListDir(a) => a.run(self).await,
            Action::Glob(a) => a.run(self).await,
            Action::Search(a) => a.run(self).await,
            Action::FetchUrl(a) => a.run(self).await,
            Action::Own(a) => a.run(self).await,
            Action::ReadArtifact(_) | Action::Agent(_) | Action::Finish(_) => {
                Ok(Said { text: "not a tool of the sandbox".to_owned(), last_call: 0 })
            }
        }
    }

    pub(crate) async fn file(
        &self,
        tool: Tool,
        op: FileOp,
        content: Vec<u8>,
    ) -> Result<runs::Done, BenchError> {
        let call = FileCall { tool: tool.as_str().to_owned(), op, content };
        let done = self.bench.file(call, self.cancel).await?;
        match &done.answer {
            Err((kind, _)) if kind == StoppedBy::Cancelled.as_str() => Err(BenchError::Cancelled),
            Err((kind, _)) if kind == StoppedBy::SandboxLost.as_str() => {
                Err(BenchError::Lost { reason: "the sandbox was lost under a file call".to_owned() })
            }
            _ => Ok(done),
        }
    }

    /// Bytes of a file that are read: what a call may put out, and no more than is useful.
    pub(crate) fn read_limit(&self) -> u64 {
        read_file::MAX_BYTES.min(self.grant.call.output)
    }
}

/// The guest's own error, cleaned: its kind and its sentence, both hostile.
pub(crate) fn guest_error(path: &str, (kind, message): &(String, String)) -> String {
    let hint = match kind.as_str() {
        "not_found" => "; list_dir shows what there is",
        "changed" => "; read it again before you change it",
        _ => "",
    };
    format!(
        "error: {}: {}: {}{hint}",
        crate::text::label(path, 200),
        crate::text::label(kind, 40),
        crate::text::label(message, 300)
    )
}

/// The path as the sandbox takes it; [`Action::judge`] has refused everything else before.
pub(crate) fn inner(path: &str) -> String {
    crate::path::inside(path).unwrap_or_else(|_| ".".to_owned())
}

/// Characters of a path that are shown: all of them, but of one that nobody could use any more.
const PATH: usize = 4096;

/// A word about what an answer leaves out, if it does.
fn left_out(answer: &Value) -> String {
    let count = |k: &str| answer.get(k).and_then(Value::as_u64).unwrap_or_default();
    let mut text = String::new();
    if count("more") > 0 {
        text.push_str(&format!("\n({} more)", count("more")));
    }
    if count("ignored") > 0 {
        text.push_str(&format!(
            "\n({} ignored by .gitignore left out; ignored = true shows them)",
            count("ignored")
        ));
    }
    if answer.get("cut").and_then(Value::as_bool).unwrap_or_default() {
        text.push_str("\n(not everything was looked at: there is too much of it; use a folder further down)");
    }
    text
}

/// What a model asks for, at least one and never more than there is.
fn at_most(asked: Option<u64>, limit: u32) -> u32 {
    asked.map_or(limit, |n| u32::try_from(n).unwrap_or(limit).clamp(1, limit))
}
