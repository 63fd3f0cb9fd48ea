//! The way out of a run: whoever comes to the doors of its sandbox is served by the egress, and what that decides is in
//! the record before a byte passes.
//!
//! ```text
//!   guest ──▶ door ──Knock──▶ here ──▶ egress ──judged──▶ the granted destination
//!                              │          └ event ─▶ record, and a sentence for the model where it is a refusal
//!                              └ a record that cannot be written closes every connection
//! ```

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use egress::{Asked, Egress, Fetched, NotFetched, Sink, Terms};
use policy::Destination;
use sandbox::{Doors, Knock, Name};
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, JoinSet};

use crate::record::Record;
use crate::{Event, Granted, RunError};

/// Refusals that are kept for the model between two calls.
const REFUSALS: usize = 5;
/// How long connections have to tell their end when the sandbox is gone.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What may be reached, as a sandbox has to know it.
pub(crate) fn doors(granted: &[Destination]) -> Doors {
    let name = |destination: &Destination| {
        let (rule, port) = (destination.rule(), destination.rule().port());
        match (rule.host(), rule.parent()) {
            (Some(host), _) => Some(Name { host: host.to_string(), star: false, port }),
            (None, Some(parent)) => Some(Name { host: parent.as_str().to_owned(), star: true, port }),
            (None, None) => None,
        }
    };
    Doors { names: granted.iter().filter_map(name).collect() }
}

/// An open way out.
pub(crate) struct Outward {
    egress: Egress,
    told: Arc<Told>,
    /// None where the sandbox has no doors.
    serving: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Outward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outward").finish_non_exhaustive()
    }
}

/// Writes down what is decided.
struct Told {
    record: Arc<Record>,
    refused: Mutex<Vec<String>>,
    /// The record cannot be written: nothing passes any more.
    blind: Notify,
}

impl Sink for Told {
    fn tell(&self, event: egress::Event) -> bool {
        if let egress::Event::Decided(decided) = &event
            && !decided.decision.is_allowed()
        {
            let reason = &decided.decision.reason;
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            if refused.len() < REFUSALS && !refused.contains(reason) {
                refused.push(reason.clone());
            }
        }
        let written = self.record.append(&Event::Egress(event)).is_ok();
        if !written {
            self.blind.notify_one();
        }
        written
    }
}

impl Outward {
    /// Opens the way, for a guest where its sandbox has doors, and for the tool `fetch_url` in any case.
    ///
    /// # Errors
    /// [`RunError::Io`] where this machine's own addresses cannot be told.
    pub(crate) fn open(
        granted: &[Granted],
        record: &Arc<Record>,
        knocks: Option<mpsc::Receiver<Knock>>,
    ) -> Result<Outward, RunError> {
        let (record, refused, blind) = (Arc::clone(record), Mutex::default(), Notify::new());
        let told = Arc::new(Told { record, refused, blind });
        let sink: Arc<dyn Sink> = Arc::clone(&told) as Arc<dyn Sink>;
        let terms = Terms::new(granted.to_vec(), sink)
            .map_err(RunError::io("list this machine's addresses, by", Path::new("/proc/net")))?;
        let egress = Egress::new(terms);
        let serving = knocks.map(|knocks| tokio::spawn(serve(egress.clone(), knocks, Arc::clone(&told))));
        Ok(Outward { egress, told, serving })
    }

    /// What was refused since this was last asked: clean sentences, fit for the model.
    pub(crate) fn refused(&self) -> Vec<String> {
        std::mem::take(&mut self.told.refused.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a guest can come to it.
    pub(crate) fn has_doors(&self) -> bool {
        self.serving.is_some()
    }

    /// The text at a URL, through the same decision.
    pub(crate) async fn fetch(&self, url: &str, most: usize) -> Result<Fetched, NotFetched> {
        self.egress.fetch(url, most).await
    }

    /// Ends it, when the sandbox is gone: connections tell how they ended.
    pub(crate) async fn close(mut self) {
        if let Some(mut serving) = self.serving.take()
            && tokio::time::timeout(LAST_WORDS, &mut serving).await.is_err()
        {
            serving.abort();
            // Told as given up, by its own end.
            serving.await.ok();
        }
    }
}

impl Drop for Outward {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

async fn serve(egress: Egress, mut knocks: mpsc::Receiver<Knock>, told: Arc<Told>) {
    let mut open = JoinSet::new();
    let mut listening = true;
    while listening || !open.is_empty() {
        tokio::select! {
            () = told.blind.notified() => return,
            knock = knocks.recv(), if listening => match knock {
                Some(Knock { way, stream }) => {
                    let asked = match way {
                        sandbox::Asked::Proxy => Asked::Proxy,
                        sandbox::Asked::Named { host, port } => Asked::Named { host, port },
                    };
                    let egress = egress.clone();
                    open.spawn(async move { egress.serve(asked, stream).await });
                }
                None => listening = false,
            },
            Some(_) = open.join_next(), if !open.is_empty() => {}
        }
    }
}
