//! `fetch_url`: the executor itself gets a page, through the same decision as every connection of a guest. It works on
//! every tier, those without a way out among them.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use egress::NotFetched;
use policy::StoppedBy;
use sandbox::Cancel;
use serde::Serialize;
use serde_json::json;

use crate::clean::cut;
use crate::output::Keeper;
use crate::{Event, Run, RunError};

/// Of a URL the record holds so much.
const LONGEST_URL: usize = 2048;
/// Of what a model is shown, so many characters are for words about it.
const WORDS: usize = 500;

/// A page, or why there is none.
#[derive(Clone, Debug, Serialize)]
pub struct Page {
    /// Call number in the run, from 1.
    pub call: u32,
    /// What may be shown of it: valid UTF-8, without control sequences, secrets masked, shortened; or one clean
    /// sentence.
    pub answer: Result<String, String>,
    /// What the server answered.
    pub status: u16,
    /// Where it came from in the end.
    pub url: String,
    /// The full text, where it was shortened.
    pub artifact: Option<String>,
}

/// A page that could not be had was not refused.
fn by(why: &NotFetched) -> StoppedBy {
    match why {
        NotFetched::Refused { .. } => StoppedBy::Denied,
        NotFetched::Failed { .. } => StoppedBy::Exit,
    }
}

impl Run {
    /// Gets the text at a URL: recorded before anything is asked and after it ended.
    ///
    /// # Errors
    /// [`RunError`] when the record cannot be written, or the user ended it.
    pub async fn fetch(&self, url: &str, timeout: Duration, cancel: &Cancel) -> Result<Page, RunError> {
        let number = self.next_call();
        let timeout = timeout.min(self.bounds.timeout);
        let shown_url = self.mask(cut(url, LONGEST_URL));
        self.record.append(&Event::ToolStart {
            call: number,
            tool: "fetch_url".to_owned(),
            job: json!({ "fetch": { "url": shown_url } }),
            stdin_artifact: None,
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            output_bytes: self.bounds.output,
        })?;
        let began = Instant::now();
        let most = usize::try_from(self.bounds.output).unwrap_or(usize::MAX);
        let fetched = match &self.outward {
            None => Err((
                StoppedBy::Denied,
                "nothing is granted: `network.allow` of the operator and of the Guild \
                must name the site, as `host:port`"
                    .to_owned(),
            )),
            Some(outward) => tokio::select! {
                fetched = outward.fetch(url, most) => fetched.map_err(|e| (by(&e), e.to_string())),
                () = tokio::time::sleep(timeout) => Err((StoppedBy::Timeout, "the page did not come in time".to_owned())),
                () = cancel.cancelled() => Err((StoppedBy::Cancelled, "cancelled".to_owned())),
            },
        };
        // Told by the answer itself.
        if let Some(outward) = &self.outward {
            drop(outward.refused());
        }
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.done.fetch_add(1, Ordering::Relaxed);
        let (page, outcome) = match fetched {
            Ok(fetched) => {
                let shown = self.bounds.to_model - WORDS.min(self.bounds.to_model / 4);
                let keeper =
                    |name: &str, most| Keeper::new(&self.record, &format!("{number}-{name}"), most, shown);
                let (mut text, nothing) = (keeper("page", self.bounds.output), keeper("nothing", 0));
                text.push(fetched.text.as_bytes());
                let (text, _) = Keeper::end(text, nothing, shown)?;
                let outcome = json!({ "stopped_by": StoppedBy::Exit, "duration_ms": duration_ms, "status": fetched.status,
                    "kind": fetched.kind, "bytes": fetched.text.len(), "cut": fetched.cut });
                let page = Page {
                    call: number,
                    answer: Ok(text.text),
                    status: fetched.status,
                    url: self.mask(&fetched.url),
                    artifact: text.artifact,
                };
                (page, outcome)
            }
            Err((by, why)) => {
                let why = self.mask(&why);
                let outcome = json!({ "stopped_by": by, "duration_ms": duration_ms, "problem": why });
                (Page { call: number, answer: Err(why), status: 0, url: shown_url, artifact: None }, outcome)
            }
        };
        let artifacts = page.artifact.iter().cloned().collect();
        self.record.append(&Event::ToolEnd { call: number, outcome, artifacts })?;
        if cancel.is_cancelled() { Err(RunError::Cancelled) } else { Ok(page) }
    }
}
