//! The record of a run: `meta.json`, `events.jsonl`, `artifacts/`, `changes.patch`, `result.json`.
//!
//! It lies beside the workspace, outside everything a tool can write. Each line of `events.jsonl` carries the
//! SHA-256 of the line before (without its newline), so that nothing in it can be changed, dropped or put in
//! another order unnoticed; the first line carries the digest of `meta.json`, and `result.json` carries the
//! hash of the last line. Every text passes the mask before it is written.

mod artifact;
mod chain;
mod interrupted;
mod read;
mod write;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use policy::StopReason;
use serde::Serialize;
use serde_json::Value;

pub(crate) use artifact::{Spool, remove_halves};
pub(crate) use chain::Depth;
pub use chain::{Checked, Finding, Standing};
pub(crate) use interrupted::{Known, end as end_interrupted};
pub(crate) use read::{events, events_within, json};
use write::Writer;

use crate::call::Watch;
use crate::manifest::sha256;
use crate::mask::Mask;
use crate::{Event, RunError, RunId};

/// Version of the lines of a record. 2 brought `resume`, `tool_result` and `manifest_artifact`.
pub(crate) const VERSION: u64 = 2;

/// What a record needs before anything stands in it: folders, files and a thread that waits for the disk.
#[derive(Debug)]
pub(crate) struct Prepared {
    dir: PathBuf,
    writer: Writer,
    saver: Option<Saver>,
}

/// Waits for the disk beside the writer: for the one file that it is given.
#[derive(Debug)]
struct Saver {
    give: mpsc::Sender<File>,
    thread: JoinHandle<io::Result<()>>,
}

impl Prepared {
    /// Makes all of it in a run's folder.
    ///
    /// # Errors
    /// [`RunError::Io`]; a record that is already there is never written over.
    pub(crate) fn new(dir: &Path) -> Result<Prepared, RunError> {
        let (give, take) = mpsc::channel::<File>();
        let folder = File::open(dir).map_err(RunError::io("open", dir))?;
        // The file, and then its name.
        let wait =
            move || take.recv().map_or(Ok(()), |file| file.sync_data().and_then(|()| folder.sync_all()));
        let thread = std::thread::Builder::new().name("save".to_owned()).spawn(wait).ok();
        let saver = thread.map(|thread| Saver { give, thread });
        Ok(Prepared { dir: dir.to_owned(), writer: Writer::create(dir)?, saver })
    }
}

/// A record being written.
pub struct Record {
    dir: PathBuf,
    mask: Mask,
    /// Bytes an artifact may hold.
    largest: u64,
    writer: Mutex<Writer>,
    saving: Mutex<Option<JoinHandle<io::Result<()>>>>,
    /// The last line is written and not yet on the disk.
    due: AtomicBool,
    watch: Option<Watch>,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Record {
    /// Begins the record of `id` in the run's folder `dir`: `meta.json` and the first line.
    ///
    /// # Errors
    /// [`RunError::Io`]; a record that is already there is never written over.
    pub fn begin(dir: &Path, id: &RunId, mask: Mask, largest: u64, meta: Value) -> Result<Record, RunError> {
        Record::begin_in(Prepared::new(dir)?, id, mask, largest, meta, None)
    }

    /// The same where everything is prepared, and with what was taken in, for a run that may have to go on one day.
    pub(crate) fn begin_in(
        prepared: Prepared,
        id: &RunId,
        mask: Mask,
        largest: u64,
        meta: Value,
        manifest: Option<&[u8]>,
    ) -> Result<Record, RunError> {
        let Prepared { dir, writer, saver } = prepared;
        // Bounded by `limits.files`, and of no use in parts.
        let kept = manifest.map(|text| artifact::keep(&dir, &mask.bytes(text), u64::MAX));
        let manifest_artifact = kept.transpose()?;
        let text = pretty(&dir, &masked(&mask, meta))?;
        let meta = artifact::put_unsaved(&dir, "meta.json", &text)?;
        // The disk takes its time while the first call is already under way.
        let saving = match saver {
            Some(Saver { give, thread }) if give.send(meta).is_ok() => Some(thread),
            Some(_) | None => {
                File::open(dir.join("meta.json"))
                    .and_then(|meta| meta.sync_data())
                    .and_then(|()| File::open(&dir)?.sync_all())
                    .map_err(RunError::io("save", &dir))?;
                None
            }
        };
        let record = Record {
            saving: Mutex::new(saving),
            due: AtomicBool::new(false),
            dir,
            mask,
            largest,
            writer: Mutex::new(writer),
            watch: None,
        };
        let (run_id, meta_sha256) = (id.to_string(), sha256(&text));
        record.append(&Event::RunStart { run_id, meta_sha256, manifest_artifact })?;
        Ok(record)
    }

    /// One that goes on behind lines that are there already.
    fn behind(dir: &Path, writer: Writer, mask: Mask, largest: u64) -> Record {
        Record {
            saving: Mutex::default(),
            due: AtomicBool::new(false),
            dir: dir.to_owned(),
            mask,
            largest,
            writer: Mutex::new(writer),
            watch: None,
        }
    }

    /// The same with somebody who looks on.
    pub(crate) fn watched(mut self, watch: Option<Watch>) -> Record {
        self.watch = watch;
        self
    }

    /// Appends an event.
    ///
    /// # Errors
    /// [`RunError::Io`]; after the first failure nothing is appended any more.
    pub fn append(&self, event: &Event) -> Result<(), RunError> {
        let value = serde_json::to_value(event).map_err(|e| self.not_json(e))?;
        let value = masked(&self.mask, value);
        self.writer().append(&value)?;
        if let Some(watch) = &self.watch {
            watch(&value);
        }
        Ok(())
    }

    /// Keeps bytes as an artifact, masked and bounded, and says its hash.
    ///
    /// # Errors
    /// [`RunError::Io`].
    pub fn artifact(&self, bytes: &[u8]) -> Result<String, RunError> {
        artifact::keep(&self.dir, &self.mask.bytes(bytes), self.largest)
    }

    /// Keeps bytes as an artifact whole and as they are; none when the mask would change them.
    ///
    /// # Errors
    /// [`RunError::Io`].
    pub(crate) fn exact(&self, bytes: &[u8]) -> Result<Option<String>, RunError> {
        let masked = self.mask.bytes(bytes) != bytes;
        if masked { Ok(None) } else { artifact::keep(&self.dir, bytes, u64::MAX).map(Some) }
    }

    /// The hash under which a record with this mask and bound keeps these bytes.
    pub(crate) fn name_of(mask: &Mask, largest: u64, bytes: &[u8]) -> String {
        sha256(&artifact::fitted(&mask.bytes(bytes), largest))
    }

    /// Writes `changes.patch`, masked, and says its hash.
    ///
    /// # Errors
    /// [`RunError::Io`].
    pub fn patch(&self, patch: &[u8]) -> Result<String, RunError> {
        let masked = self.mask.bytes(patch);
        artifact::put(&self.dir, "changes.patch", &masked)?;
        Ok(sha256(&masked))
    }

    /// Writes the last line and says its hash. It is on the disk when [`Record::result`] has returned, or when the
    /// record is dropped.
    ///
    /// # Errors
    /// [`RunError::Io`].
    pub fn end(&self, stop: StopReason, detail: &str, destroy_ms: Option<u64>) -> Result<String, RunError> {
        self.append(&Event::RunEnd { stop, detail: detail.to_owned(), destroy_ms })?;
        Ok(self.ended())
    }

    /// No line comes behind the last one: its hash.
    fn ended(&self) -> String {
        self.due.store(true, Ordering::Relaxed);
        self.writer().head().to_owned()
    }

    /// Waits until `meta.json` is on the disk.
    fn saved(&self) -> io::Result<()> {
        match self.saving.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(thread) => thread.join().unwrap_or_else(|_| Err(io::Error::other("the saving broke off"))),
            None => Ok(()),
        }
    }

    /// Writes `result.json`, masked. It is in its place only when the last line is on the disk.
    ///
    /// # Errors
    /// [`RunError::Io`].
    pub fn result(&self, result: &impl Serialize) -> Result<(), RunError> {
        let value = serde_json::to_value(result).map_err(|e| self.not_json(e))?;
        let text = pretty(&self.dir, &masked(&self.mask, value))?;
        self.saved().map_err(RunError::io("save", &self.dir))?;
        let lines = self.writer().file()?;
        artifact::put_behind(&self.dir, "result.json", &text, &lines)?;
        self.due.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// A text that grows, to become an artifact or to be forgotten.
    pub(crate) fn spool(&self, name: &str, most: u64) -> Spool {
        Spool::new(&self.dir, name, most)
    }

    pub(crate) fn mask(&self) -> &Mask {
        &self.mask
    }

    /// Brings what stands in the record to the disk, now.
    pub(crate) fn settle(&self) -> Result<(), RunError> {
        self.writer().file()?.sync_data().map_err(RunError::io("save", &self.dir))
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn not_json(&self, e: serde_json::Error) -> RunError {
        RunError::io("put into words for", &self.dir)(e.into())
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let lines = || if self.due.load(Ordering::Relaxed) { self.writer().save() } else { Ok(()) };
        if self.saved().and_then(|()| lines()).is_err() {
            // Whoever ended the record without a result has been told of worse.
        }
    }
}

/// Everything but the words and hashes that hold a record together: a short secret (`1234`) may stand in a hash by
/// chance, and a hash that is masked proves nothing.
fn masked(mask: &Mask, value: Value) -> Value {
    let Value::Object(fields) = value else { return mask.value(value) };
    let kept = |key: &str, value: &Value| match value {
        Value::String(text) => STRUCTURE.contains(&key) && is_word(text),
        Value::Array(items) => key == "artifacts" && items.iter().all(|i| i.as_str().is_some_and(is_word)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    };
    let fields = fields.into_iter().map(|(key, value)| {
        if kept(&key, &value) {
            return (key, value);
        }
        let key = if STRUCTURE.contains(&key.as_str()) || key == "artifacts" { key } else { mask.text(&key) };
        (key, mask.value(value))
    });
    Value::Object(fields.collect())
}

/// Fields that no guest, model or caller fills with words of their own.
const STRUCTURE: [&str; 12] = [
    "type",
    "stop",
    "run_id",
    "chain_head",
    "meta_sha256",
    "body_sha256",
    "patch_sha256",
    "stdin_artifact",
    "manifest_artifact",
    "changes_artifact",
    "base_artifact",
    "text_artifact",
];

fn is_word(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'z' | b'_'))
}

fn pretty(dir: &Path, value: &Value) -> Result<Vec<u8>, RunError> {
    let mut text =
        serde_json::to_vec_pretty(value).map_err(|e| RunError::io("put into words for", dir)(e.into()))?;
    text.push(b'\n');
    Ok(text)
}
