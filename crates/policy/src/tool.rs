//! The tools of this version, and what each can reach.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A built-in tool. A name that is not in this list names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// One text for a shell that exists only inside.
    RunShell,
    /// An argument vector, no shell.
    RunCommand,
    /// Numbered lines of a text file.
    ReadFile,
    /// A whole file, created or replaced.
    WriteFile,
    /// One exact place of a file.
    EditFile,
    /// Several files at once, all or nothing.
    ApplyPatch,
    /// Names in a folder.
    ListDir,
    /// Names that match a pattern, in all folders.
    Glob,
    /// Lines that match a pattern.
    Search,
    /// The full text of a result that was shortened.
    ReadArtifact,
    /// The text at a URL, through the egress decision only.
    FetchUrl,
    /// Another role of the same Guild.
    Agent,
    /// Ends the role.
    Finish,
}

/// What a tool can reach inside the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Power {
    /// Nothing but the conversation.
    None,
    /// Reads the workspace.
    Read,
    /// Writes the workspace.
    Write,
    /// Reads from destinations that are granted.
    Fetch,
    /// Runs programs.
    Execute,
    /// Whatever the roles it may start can reach.
    Delegate,
}

impl Tool {
    /// Every tool, in the order in which they are offered.
    pub const ALL: [Tool; 13] = [
        Tool::RunShell,
        Tool::RunCommand,
        Tool::ReadFile,
        Tool::WriteFile,
        Tool::EditFile,
        Tool::ApplyPatch,
        Tool::ListDir,
        Tool::Glob,
        Tool::Search,
        Tool::ReadArtifact,
        Tool::FetchUrl,
        Tool::Agent,
        Tool::Finish,
    ];

    /// The name, exactly as the model must write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Tool::RunShell => "run_shell",
            Tool::RunCommand => "run_command",
            Tool::ReadFile => "read_file",
            Tool::WriteFile => "write_file",
            Tool::EditFile => "edit_file",
            Tool::ApplyPatch => "apply_patch",
            Tool::ListDir => "list_dir",
            Tool::Glob => "glob",
            Tool::Search => "search",
            Tool::ReadArtifact => "read_artifact",
            Tool::FetchUrl => "fetch_url",
            Tool::Agent => "agent",
            Tool::Finish => "finish",
        }
    }

    /// The tool of exactly this name: no case folding, trimming or aliasing.
    pub fn from_name(name: &str) -> Option<Tool> {
        Tool::ALL.into_iter().find(|t| t.as_str() == name)
    }

    /// What it can reach.
    pub fn power(self) -> Power {
        match self {
            Tool::RunShell | Tool::RunCommand => Power::Execute,
            Tool::ReadFile | Tool::ListDir | Tool::Glob | Tool::Search => Power::Read,
            Tool::WriteFile | Tool::EditFile | Tool::ApplyPatch => Power::Write,
            Tool::FetchUrl => Power::Fetch,
            Tool::Agent => Power::Delegate,
            Tool::ReadArtifact | Tool::Finish => Power::None,
        }
    }
}

impl std::fmt::Display for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
