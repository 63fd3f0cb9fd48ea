//! A tool of the Guild's own: a module that gets its arguments as JSON on standard input.

use policy::StoppedBy;
use runs::ModuleUse;
use serde_json::Value;

use super::{Said, Tools, program};
use crate::{BenchError, Workbench};

/// What a role knows of such a tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Own {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) schema: Value,
}

/// Its arguments, which fit its own schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) name: String,
    /// The whole object.
    pub(crate) json: String,
}

impl Own {
    /// Fits arguments, or says to the model what is wrong.
    pub(crate) fn fit(&self, given: &Value) -> Result<Args, String> {
        let faults: Vec<String> = policy::check_shape(&self.schema, given)
            .into_iter()
            .take(4)
            .map(|e| if e.path.is_empty() { e.message } else { format!("`{}`: {}", e.path, e.message) })
            .map(|fault| crate::text::label(&fault, 300))
            .collect();
        if faults.is_empty() {
            let json = given.to_string();
            // Written out anew they may be longer than they came (`1e15`), and what no call can carry ends the run.
            if json.len() > crate::strict::MAX_BYTES {
                return Err(format!("error: the arguments of {} are longer than 1 MiB", self.name));
            }
            return Ok(Args { name: self.name.clone(), json });
        }
        let takes = self.takes();
        Err(format!("error: the arguments of {} do not fit: {}. {takes}", self.name, faults.join("; ")))
    }

    /// What it takes, in one line.
    pub(crate) fn takes(&self) -> String {
        crate::arguments::takes_by(&self.name, &self.schema)
    }
}

impl Args {
    pub(crate) async fn run<W: Workbench>(&self, tools: &Tools<'_, W>) -> Result<Said, BenchError> {
        let timeout = tools.grant.call.timeout.min(tools.left);
        let call = ModuleUse {
            tool: self.name.clone(),
            args: vec![self.name.clone()],
            stdin: self.json.clone().into_bytes(),
            timeout: Some(timeout),
        };
        let done = tools.bench.tool(call, tools.cancel).await?;
        match done.outcome.stopped_by {
            StoppedBy::Exit if done.outcome.ended == runs::Ended::Exit(0) => {
                // What it says is its result, and nothing else is.
                let mut text = crate::text::clean(done.stdout.trim_end());
                if text.is_empty() {
                    text.push_str("(no output)");
                }
                Ok(Said { text, last_call: done.call })
            }
            _ => program::ended(&done, timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_that_no_call_can_carry_are_refused_and_told() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "array"}}});
        let own = Own { name: "sum".to_owned(), description: String::new(), schema };
        assert!(own.fit(&json!({"n": vec![1e15; 1000]})).is_ok());
        // Not 1 MiB as it was written.
        let told = own.fit(&json!({"n": vec![1e15; 100_000]})).unwrap_err();
        assert!(told.contains("longer than 1 MiB"), "{told}");
    }
}
