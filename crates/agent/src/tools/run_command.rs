//! `run_command`: an argument vector, no shell anywhere.

use policy::Tool;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Said, Tools, program};
use crate::{BenchError, Workbench};

/// Its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    pub(crate) argv: Vec<String>,
    pub(crate) timeout_s: Option<u64>,
    pub(crate) workdir: Option<String>,
    pub(crate) stdin: Option<String>,
}

pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "argv": {"type": "array", "items": {"type": "string"}},
            "timeout_s": {"type": "integer", "minimum": 1},
            "workdir": {"type": "string"},
            "stdin": {"type": "string"},
        },
        "required": ["argv"],
        "additionalProperties": false,
    })
}

impl Args {
    pub(crate) async fn run<W: Workbench>(&self, tools: &Tools<'_, W>) -> Result<Said, BenchError> {
        let stdin = self.stdin.clone().unwrap_or_default().into_bytes();
        let workdir = self.workdir.as_deref();
        program::run(tools, Tool::RunCommand, self.argv.clone(), stdin, workdir, self.timeout_s).await
    }
}
