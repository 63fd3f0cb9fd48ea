//! `run_shell`: the model's text as one argument of a shell that exists only inside.

use policy::Tool;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Said, Tools, program};
use crate::{BenchError, Workbench};

/// Its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    pub(crate) command: String,
    pub(crate) timeout_s: Option<u64>,
    pub(crate) workdir: Option<String>,
}

pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1},
            "timeout_s": {"type": "integer", "minimum": 1},
            "workdir": {"type": "string"},
        },
        "required": ["command"],
        "additionalProperties": false,
    })
}

impl Args {
    /// Never a line put together from pieces: the text stays one element.
    pub(crate) fn argv(&self) -> Vec<String> {
        vec!["sh".to_owned(), "-c".to_owned(), self.command.clone()]
    }

    pub(crate) async fn run<W: Workbench>(&self, tools: &Tools<'_, W>) -> Result<Said, BenchError> {
        let workdir = self.workdir.as_deref();
        program::run(tools, Tool::RunShell, self.argv(), Vec::new(), workdir, self.timeout_s).await
    }
}
