//! A run that was interrupted, taken up again in its own folder and its own record.
//!
//! ```text
//!   hold the folder ─ verify the record ─ read what it knows ─▶ whoever goes on rebuilds the conversation from that
//!                     └ anything else: refused, nothing is touched
//!   Run::resume ─▶ fresh sandbox on the workspace as it is ─▶ line `resume` ─▶ a run like any other
//! ```

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::Tier;
use serde_json::{Value, json};

use crate::beneath::Folder;
use crate::hold::Hold;
use crate::manifest::{self, Manifest, sha256};
use crate::record::{self, Checked, Depth, Known, Standing};
use crate::run::{largest_of, mask_of};
use crate::{Opening, Record, RunId, StoreError, store};

const MOST_EVENTS: usize = 100_000;
const MOST_BYTES: u64 = 256 << 20;
/// Bytes of an artifact that are read back.
const LARGEST: u64 = 256 << 20;

/// Why a run does not go on.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// There is no such run.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Somebody works on it.
    #[error("the run {id} goes on right now: somebody works on it")]
    Running {
        /// The run.
        id: String,
    },
    /// It ended by itself.
    #[error("the run {id} is over ({stop}): only a run that was interrupted can be resumed")]
    Over {
        /// The run.
        id: String,
        /// Why it ended.
        stop: String,
    },
    /// Its record does not hold.
    #[error("the record of {id} is not what the run wrote, so nothing goes on from it: {finding}")]
    Broken {
        /// The run.
        id: String,
        /// The first thing that does not hold.
        finding: String,
    },
    /// It cannot go on.
    #[error("the run {id} cannot be resumed: {reason}; {remedy}")]
    Cannot {
        /// The run.
        id: String,
        /// Why.
        reason: String,
        /// What to do instead.
        remedy: &'static str,
    },
}

const ANEW: &str = "start it anew with `oubliette run`";

/// A run that was interrupted, held and verified. Dropping it lets go of it, and nothing was touched.
#[derive(Debug)]
pub struct Interrupted {
    pub(crate) hold: Hold,
    pub(crate) id: RunId,
    pub(crate) dir: PathBuf,
    pub(crate) known: Known,
    pub(crate) manifest: Manifest,
    meta: Value,
    events: Vec<Value>,
    folder: Folder,
}

impl Interrupted {
    /// Takes the run `id` in `store`, if it is one that can go on.
    ///
    /// # Errors
    /// [`ResumeError`] says why it is not.
    pub fn open(store: &Path, id: &str) -> Result<Interrupted, ResumeError> {
        let (id, folder) = store::open(store, id)?;
        let store = store.canonicalize().map_err(failed(store))?;
        let dir = store.join(id.as_str());
        let hold = hold(&dir, &id)?;
        let cannot = |reason: &str, remedy: &'static str| ResumeError::Cannot {
            id: id.to_string(),
            reason: reason.to_owned(),
            remedy,
        };
        let owner = folder.metadata().map_err(failed(&dir))?.uid();
        if owner != rustix::process::geteuid().as_raw() {
            return Err(cannot("another user started it", "resume it as that user"));
        }
        let known = verified(&folder, &id)?;
        if known.bytes > MOST_BYTES {
            return Err(cannot("its record is too long to be gone through again", ANEW));
        }
        if known.lines == 0 {
            return Err(cannot("no line of its record was saved", ANEW));
        }
        if known.version < 2 {
            return Err(cannot("an older version started it, whose record does not hold enough", ANEW));
        }
        let Some(manifest) = &known.manifest else {
            return Err(cannot("it is a single command, which is not run again by itself", "run it anew"));
        };
        let meta = record::json(&folder, "meta.json").map_err(failed(&dir))?;
        let tier = meta["sandbox"]["tier"].as_str().unwrap_or_default();
        if tier == Tier::Microvm.as_str() && known.begun > 0 {
            let reason = "its workspace was inside the machine and is gone with it";
            return Err(cannot(reason, ANEW));
        }
        let read = artifact(&folder, manifest).and_then(|text| manifest::read(&text));
        let taken_in = meta["import"]["sha256"].as_str();
        let manifest = read
            .filter(|manifest| taken_in == Some(manifest::digest(manifest).as_str()))
            .ok_or_else(|| cannot("what it had taken in cannot be read back from its record", ANEW))?;
        if !folder.look("workspace".as_ref()).is_ok_and(|meta| meta.is_dir()) {
            return Err(cannot("its workspace is gone", ANEW));
        }
        let events = record::events(&folder, MOST_EVENTS).map_err(failed(&dir))?;
        if u64::try_from(events.len()) != Ok(known.lines) {
            return Err(cannot("its record is too long to be gone through again", ANEW));
        }
        Ok(Interrupted { hold, known, manifest, meta, events, folder, id, dir })
    }

    /// `meta.json` of the run.
    pub fn meta(&self) -> &Value {
        &self.meta
    }

    /// The wall clock that the run has used.
    pub fn used(&self) -> Duration {
        self.known.used()
    }

    pub(crate) fn record(&self) -> &[Value] {
        &self.events
    }

    /// What its record says happened, with the line at its end that will say that it goes on.
    pub fn past(&self) -> Past {
        // The end that somebody gave the record who cleared up is no part of what happened.
        let happened = self.events.iter().filter(|event| event["type"] != "run_end");
        let mut events: Vec<Value> = happened.cloned().collect();
        events.push(json!({ "type": "resume", "restarted": self.restarted() }));
        Past { events, folder: self.folder.folder(Path::new("")).ok(), used: self.used() }
    }

    /// The first thing, by its name, in which what the run may do now differs from what it might do when it was
    /// started; with what it was and what it is.
    pub fn differs(&self, opening: &Opening<'_>) -> Option<(String, Value, Value)> {
        let now = mask_of(opening).value(json!(opening.grant));
        // As it is when it was written and read.
        let now = serde_json::from_str(&now.to_string()).unwrap_or_default();
        first_difference("", &self.meta["grant"], &now)
    }

    /// Whether the machine has been started anew since; one that does not say so is taken for one that has.
    pub(crate) fn restarted(&self) -> bool {
        let before = self.known.boot.as_deref().or(self.meta["boot"].as_str());
        boot().is_none_or(|now| before != Some(now.as_str()))
    }
}

/// What a record says happened.
#[derive(Debug)]
pub struct Past {
    events: Vec<Value>,
    folder: Option<Folder>,
    used: Duration,
}

impl Past {
    /// Every event, in order; the last one is the `resume` that is to come.
    pub fn events(&self) -> &[Value] {
        &self.events
    }

    /// An artifact, if it holds what its name says.
    pub fn artifact(&self, id: &str) -> Option<Vec<u8>> {
        artifact(self.folder.as_ref()?, id)
    }

    /// The wall clock that was used.
    pub fn used(&self) -> Duration {
        self.used
    }

    /// The name under which a record of this run keeps these bytes as an artifact.
    pub fn naming(opening: &Opening<'_>) -> impl Fn(&[u8]) -> String + use<> {
        let (mask, largest) = (mask_of(opening), largest_of(opening));
        move |bytes| Record::name_of(&mask, largest, bytes)
    }
}

fn hold(dir: &Path, id: &RunId) -> Result<Hold, ResumeError> {
    let hold = Hold::soon_idle(dir).map_err(failed(dir))?;
    hold.ok_or_else(|| ResumeError::Running { id: id.to_string() })
}

/// What the record knows, when all of it holds and it was cut off.
fn verified(folder: &Folder, id: &RunId) -> Result<Known, ResumeError> {
    let checked = Checked::of(folder, id, Depth::All);
    match checked.standing {
        Standing::Whole | Standing::Incomplete => {}
        Standing::Newer | Standing::Broken => {
            let worst = checked.findings.iter().find(|f| f.code != "no-result");
            let finding = worst.map_or(String::new(), |f| format!("[{}] {}", f.code, f.message));
            return Err(ResumeError::Broken { id: id.to_string(), finding });
        }
    }
    let known = Known::of(folder);
    match &known.ended {
        Some(end) if !end.is_interruption() => {
            Err(ResumeError::Over { id: id.to_string(), stop: crate::clean(end.stop.as_bytes()) })
        }
        Some(_) | None => Ok(known),
    }
}

/// An artifact, if it holds what its name says.
pub(crate) fn artifact(run: &Folder, id: &str) -> Option<Vec<u8>> {
    if id.len() != 64 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = Vec::new();
    let file = run.file(&Path::new("artifacts").join(id)).ok()?;
    file.take(LARGEST).read_to_end(&mut bytes).ok()?;
    (sha256(&bytes) == id).then_some(bytes)
}

fn first_difference(at: &str, was: &Value, is: &Value) -> Option<(String, Value, Value)> {
    let (Value::Object(a), Value::Object(b)) = (was, is) else {
        return (was != is).then(|| (at.to_owned(), was.clone(), is.clone()));
    };
    a.keys().chain(b.keys()).find_map(|key| {
        let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
        first_difference(&at, &was[key], &is[key])
    })
}

/// The start of this machine, as the kernel names it.
pub(crate) fn boot() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let text = text.trim();
    (!text.is_empty() && text.len() <= 64).then(|| text.to_owned())
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ResumeError {
    move |source| StoreError::Io { path: path.to_owned(), source }.into()
}
