//! The folder of all runs, for reading.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::beneath::Folder;
use crate::gc;
use crate::hold::Hold;
use crate::quote::in_text;
use crate::record::{self, Checked, Depth, Standing};
use crate::{BadRunId, Network, RunId};

const MOST_RUNS: usize = 1_000_000;
const MOST_EVENTS: usize = 100_000;
/// Bytes of events that are held to be shown.
const MOST_SHOWN: usize = 64 << 20;

/// Why a run cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Not an id at all.
    #[error(transparent)]
    BadId(#[from] BadRunId),
    /// No such run.
    #[error("there is no run {id} in {}", in_text(store))]
    Unknown {
        /// The id.
        id: String,
        /// The folder of the runs.
        store: PathBuf,
    },
    /// The folder cannot be read.
    #[error("cannot read {}", in_text(path))]
    Io {
        /// Which.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: io::Error,
    },
}

/// All runs of a folder.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    /// Oldest first.
    pub runs: Vec<Listed>,
    /// What else lies there.
    pub notes: Vec<String>,
}

/// One run of a list. Everything but the id and the standing is the record's own word.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// The run.
    pub run_id: String,
    /// How its chain stands; artifacts are not looked at for a list.
    pub standing: Standing,
    /// Whether its `meta.json` is missing or cut, as after a loss of power.
    pub meta_lost: bool,
    /// Whether somebody works on it right now.
    pub running: bool,
    /// How often it went on after it had been interrupted.
    pub resumed: u64,
    /// When it started.
    pub started: Option<String>,
    /// The tier obtained.
    pub tier: Option<String>,
    /// Why it ended.
    pub stop: Option<String>,
    /// Tool calls carried out.
    pub calls: Option<u64>,
    /// Milliseconds.
    pub duration_ms: Option<u64>,
    /// Files added, changed and deleted, together; none when nothing was compared.
    pub changes: Option<u64>,
}

/// One run in full.
#[derive(Clone, Debug, Serialize)]
pub struct Full {
    /// The outcome of a full verification.
    pub checked: Checked,
    /// Whether somebody works on it right now.
    pub running: bool,
    /// `meta.json`, if it can be read.
    pub meta: Option<Value>,
    /// `result.json`, if it can be read.
    pub result: Option<Value>,
    /// What passed the way out, so far; none where nothing was asked.
    pub network: Option<Network>,
    /// The events that can be read, and are not too many to be held.
    pub events: Vec<Value>,
    /// Lines behind them that are too many to be held; `network` has nothing of them.
    pub left_out: u64,
    /// Where the run is.
    pub dir: PathBuf,
}

/// The runs in `store`; a folder that is not there has none.
///
/// # Errors
/// [`StoreError::Io`] when the folder itself cannot be read; a broken run is listed as such.
pub fn list(store: &Path) -> Result<Listing, StoreError> {
    let mut listing = Listing { runs: Vec::new(), notes: Vec::new() };
    let folder = match Folder::open(store) {
        Ok(folder) => folder,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(listing),
        Err(source) => return Err(StoreError::Io { path: store.to_owned(), source }),
    };
    let (names, _) =
        folder.names(MOST_RUNS).map_err(|source| StoreError::Io { path: store.to_owned(), source })?;
    for name in names {
        let id = name.to_str().and_then(|n| RunId::parse(n).ok());
        match (id, folder.folder(Path::new(&name))) {
            (Some(id), Ok(run)) => {
                let held = Hold::is_held(&store.join(&name));
                listing.runs.push(listed(&run, &id, held));
            }
            // What is being removed is no run any more, and no remark.
            (None, _) if name.as_encoded_bytes().starts_with(gc::REMOVED.as_bytes()) => {}
            (Some(_), Err(_)) | (None, _) => {
                listing.notes.push(format!("{} is no run", in_text(Path::new(&name))));
            }
        }
    }
    Ok(listing)
}

/// One run with its events and a full verification.
///
/// # Errors
/// [`StoreError`] when there is no such run.
pub fn show(store: &Path, id: &str) -> Result<Full, StoreError> {
    let (id, run) = open(store, id)?;
    let running = Hold::is_held(&store.join(id.as_str()));
    let (events, looked_at) = record::events_within(&run, MOST_EVENTS, MOST_SHOWN).unwrap_or_default();
    let checked = Checked::of(&run, &id, Depth::All);
    Ok(Full {
        running,
        left_out: checked.events.saturating_sub(looked_at),
        checked,
        meta: record::json(&run, "meta.json").ok(),
        result: record::json(&run, "result.json").ok(),
        network: Network::of(&events, running),
        events,
        dir: store.join(id.as_str()),
    })
}

/// Walks the chain of a run and compares every artifact with its hash.
///
/// # Errors
/// [`StoreError`] when there is no such run; what does not hold is in the outcome.
pub fn verify(store: &Path, id: &str) -> Result<Checked, StoreError> {
    let (id, run) = open(store, id)?;
    Ok(Checked::of(&run, &id, Depth::All))
}

pub(crate) fn open(store: &Path, id: &str) -> Result<(RunId, Folder), StoreError> {
    let id = RunId::parse(id)?;
    let unknown = || StoreError::Unknown { id: id.to_string(), store: store.to_owned() };
    let folder = match Folder::open(store) {
        Ok(folder) => folder,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(unknown()),
        Err(source) => return Err(StoreError::Io { path: store.to_owned(), source }),
    };
    match folder.folder(Path::new(id.as_str())) {
        Ok(run) => Ok((id, run)),
        Err(_) => Err(unknown()),
    }
}

fn listed(run: &Folder, id: &RunId, running: bool) -> Listed {
    let meta = record::json(run, "meta.json").unwrap_or_default();
    let result = record::json(run, "result.json").unwrap_or_default();
    let text = |v: &Value| v.as_str().map(str::to_owned);
    let many = |key: &str| result["changes"]["counts"][key].as_u64().unwrap_or_default();
    let all = ["added", "changed", "deleted", "renamed"]
        .iter()
        .fold(0u64, |sum, key| sum.saturating_add(many(key)));
    // Without a sandbox, or interrupted, nothing was compared.
    let compared = result["sandbox"].is_object() && result["changes"].is_object();
    let checked = Checked::of(run, id, Depth::Chain);
    Listed {
        run_id: id.to_string(),
        standing: checked.standing,
        meta_lost: checked.meta_lost,
        resumed: checked.resumed,
        running,
        started: text(&meta["started"]),
        tier: text(&meta["sandbox"]["tier"]),
        stop: text(&result["stop"]),
        calls: result["calls"].as_u64(),
        duration_ms: result["duration_ms"].as_u64(),
        changes: compared.then_some(all),
    }
}
