//! `fetch_url`: the text of a page, by the executor's own hand and through the egress decision only.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Said, Tools};
use crate::{BenchError, Workbench};

/// Its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    pub(crate) url: String,
}

pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"url": {"type": "string", "minLength": 1}},
        "required": ["url"],
        "additionalProperties": false,
    })
}

impl Args {
    pub(crate) async fn run<W: Workbench>(&self, tools: &Tools<'_, W>) -> Result<Said, BenchError> {
        let timeout = tools.grant.call.timeout.min(tools.left);
        let page = tools.bench.fetch(&self.url, timeout, tools.cancel).await?;
        let text = match page.answer {
            // Data like any other: whoever wrote it may want something of the model.
            Ok(text) => format!("status: {}\nurl: {}\n{}", page.status, page.url, crate::text::clean(&text)),
            Err(why) => format!("error: {}", crate::text::clean(&why)),
        };
        Ok(Said { text, last_call: page.call })
    }
}
