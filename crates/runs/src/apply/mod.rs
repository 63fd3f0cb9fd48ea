//! The user's decision to take what a run has made: shown, warned of, and then taken over whole or not at all.
//!
//! ```text
//!   Delivery::open ── hold ─ verify the record ─ the list of changes it names
//!   preview ── target as it was taken in? ─ patch and warnings from the very bytes that would be taken over
//!   apply ──── the same look once more ─ swap.rs
//! ```
//!
//! What the run left is as hostile as ever: it is read by descriptor, through no link, and counts only where its
//! digest is the one that the record holds. Nothing of it is started or interpreted.

mod branch;
mod git;
mod journal;
mod later;
mod swap;
mod target;

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::Value;

pub(crate) use self::branch::head;
pub use self::branch::{BadBranchName, BranchName, Branched};
use self::journal::{Journal, Phase};
pub use self::later::Warning;
use self::swap::{Failed, Swap, id};
use self::target::{Now, Stands};
use crate::beneath::Folder;
use crate::changes::{self, Change, Changes};
use crate::collect::{LARGEST_TEXT, git_mode, repository};
use crate::hold::Hold;
use crate::manifest::{self, Item, Kind, Manifest, sha256};
use crate::patch::{self, Side};
use crate::quote::{in_patch, in_text};
use crate::record::{self, Checked, Depth, Standing};
use crate::resume::artifact;
use crate::{RunId, StoreError, export, store};

const MOST_EVENTS: usize = 100_000;
const MOST_RUNS: usize = 1_000_000;
const LARGEST_PATCH: usize = 64 << 20;
const MOST_TOLD: usize = 50;
/// Of a recorded patch, whose notes stand before its body.
const RECORDED: u64 = 256 << 20;

/// Why a change is not taken over. Nothing was changed then, but where it says so.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// There is no such run.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Somebody works on it.
    #[error("somebody works on the run {id} right now")]
    Running {
        /// The run.
        id: String,
    },
    /// What is there is not what the run wrote or collected.
    #[error(
        "what lies in the folder of {id} is not what the run left, so nothing is taken from it: {finding}"
    )]
    Broken {
        /// The run.
        id: String,
        /// The first thing that does not hold.
        finding: String,
    },
    /// The record does not say enough.
    #[error("the change of {id} cannot be taken over: {reason}; {remedy}")]
    Cannot {
        /// The run.
        id: String,
        /// Why.
        reason: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// It is not clear where to.
    #[error("{reason}: {remedy}")]
    Where {
        /// Why.
        reason: String,
        /// What to say.
        remedy: &'static str,
    },
    /// The target is not as it was when it was taken in.
    #[error("{} was changed since the run took it in, so nothing was done:\n  {}\n{remedy}", in_text(target), differs.join("\n  "))]
    Changed {
        /// Which folder.
        target: PathBuf,
        /// What differs.
        differs: Vec<String>,
        /// What to do.
        remedy: &'static str,
    },
    /// The caller ended it; everything is as before.
    #[error("cancelled; everything is as it was before")]
    Cancelled,
    /// Git did not do its part; no branch was made.
    #[error("no branch was made: git could not {doing}: {said}")]
    Git {
        /// What was tried.
        doing: &'static str,
        /// Its own word.
        said: String,
    },
    /// It failed half way and could not be taken back.
    #[error("it could not be done, and some of it could not be taken back either; `oubliette runs gc` tries that again:\n  {}", left.join("\n  "))]
    Stuck {
        /// What is left.
        left: Vec<String>,
    },
    /// A file failed; everything is as before.
    #[error("cannot {doing} {}; everything is as it was before", in_text(path))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: io::Error,
    },
}

/// What kind of entry a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Lines.
    Text,
    /// Anything else, or too large to be shown.
    Binary,
    /// A symbolic link.
    Link,
}

/// One changed file.
#[derive(Clone, Debug, Serialize)]
pub struct FileChange {
    /// Which, fit to be shown.
    pub path: String,
    /// `added`, `changed` or `deleted`.
    pub change: &'static str,
    /// What it is.
    pub shape: Shape,
    /// Lines that come.
    pub plus: u64,
    /// Lines that go.
    pub minus: u64,
    /// Git's modes before and after, where they differ.
    pub mode: Option<(String, String)>,
}

/// What would be taken over.
#[derive(Clone, Debug, Serialize)]
pub struct Preview {
    /// The run.
    pub run_id: String,
    /// The folder it would be taken over to.
    pub target: PathBuf,
    /// Whether the target is what the run has made already.
    pub already: bool,
    /// Every file.
    pub files: Vec<FileChange>,
    /// What to look at before saying yes.
    pub warnings: Vec<Warning>,
    /// What the run has left and nobody takes, with the reason; from the record.
    pub refused: Vec<String>,
    /// The patch, made from the bytes that would be taken over; raw.
    #[serde(skip)]
    pub patch: Vec<u8>,
}

impl Preview {
    /// Whether any of the warnings wants a word of its own.
    pub fn is_grave(&self) -> bool {
        self.warnings.iter().any(|warning| warning.grave)
    }
}

/// What was taken over.
#[derive(Clone, Debug, Serialize)]
pub struct Applied {
    /// Whether it was there already, and nothing was done.
    pub already: bool,
    /// What could not be cleared away; no part of the change.
    pub notes: Vec<String>,
}

/// A folder to which a change may be taken.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    folder: Folder,
    /// Whether it is the one that the run had taken in.
    original: bool,
}

/// A run whose change may be taken over: held, and verified.
#[derive(Debug)]
pub struct Delivery {
    id: RunId,
    dir: PathBuf,
    store: PathBuf,
    work: Folder,
    changes: Changes,
    base: Option<Manifest>,
    meta: Value,
    refused: Vec<String>,
    recovered: Vec<String>,
    _hold: Hold,
}

impl Delivery {
    /// Takes the run `id` in `store`, and ends what an apply that was interrupted has left, of any run there.
    ///
    /// # Errors
    /// [`ApplyError`] says why there is nothing that can be taken over.
    pub fn open(store: &Path, id: &str) -> Result<Delivery, ApplyError> {
        let (id, folder) = store::open(store, id)?;
        let store = store.canonicalize().map_err(failed(store))?;
        let dir = store.join(id.as_str());
        let hold = Hold::soon_idle(&dir).map_err(failed(&dir))?;
        let hold = hold.ok_or_else(|| ApplyError::Running { id: id.to_string() })?;
        let recovered = recover(&store, &id)?;
        let broken = |finding: String| ApplyError::Broken { id: id.to_string(), finding };
        let cannot = |reason, remedy| ApplyError::Cannot { id: id.to_string(), reason, remedy };
        let checked = Checked::of(&folder, &id, Depth::All);
        match checked.standing {
            Standing::Whole => {}
            Standing::Incomplete => {
                return Err(cannot("it was interrupted", "go on with it first: `oubliette runs resume`"));
            }
            Standing::Newer => return Err(cannot("a newer version wrote its record", "use that version")),
            Standing::Broken => {
                let first = checked.findings.first();
                return Err(broken(first.map_or(String::new(), |f| format!("[{}] {}", f.code, f.message))));
            }
        }
        let meta = record::json(&folder, "meta.json").map_err(failed(&dir))?;
        let events = record::events(&folder, MOST_EVENTS).map_err(failed(&dir))?;
        let newest = events.iter().rev().find(|e| e["type"] == "collect" || e["type"] == "resume");
        let Some(event) = newest.filter(|e| e["type"] == "collect") else {
            return Err(cannot("nothing was collected", "see `oubliette runs show`"));
        };
        let list = |key: &str| event[key].as_str().and_then(|name| artifact(&folder, name));
        let none = ["added", "changed", "deleted", "renamed"]
            .iter()
            .all(|key| event[*key].as_u64().unwrap_or(0) == 0);
        let changes = match list("changes_artifact") {
            Some(text) => changes::read(&text)
                .ok_or_else(|| broken("its list of changes names what no collection takes".to_owned()))?,
            None if none => Changes::new(),
            None => {
                return Err(cannot(
                    "its record does not say exactly what was changed (an older version made it, or a file's name \
                     holds what is masked)",
                    "look at `changes.patch` in its folder",
                ));
            }
        };
        let work =
            folder.folder(Path::new("workspace")).map_err(|_| broken("its workspace is gone".into()))?;
        let refused = event["refused"].as_array().into_iter().flatten();
        let refused = refused.filter_map(Value::as_str).map(str::to_owned).collect();
        let start = events.first().and_then(|event| event["manifest_artifact"].as_str());
        let base = list("base_artifact").or_else(|| artifact(&folder, start?));
        let base = base.and_then(|text| manifest::read(&text));
        Ok(Delivery { id, dir, store, work, changes, base, meta, refused, recovered, _hold: hold })
    }

    /// The run.
    pub fn id(&self) -> &str {
        self.id.as_str()
    }

    /// What became of an earlier apply that was interrupted.
    pub fn recovered(&self) -> &[String] {
        &self.recovered
    }

    /// Where the change would be taken: to `to`, or to the folder that the run had taken in.
    ///
    /// # Errors
    /// [`ApplyError::Where`] when that is no folder, or none is known.
    pub fn target(&self, to: Option<&Path>) -> Result<Target, ApplyError> {
        let wrong = |reason: String| ApplyError::Where {
            reason,
            remedy: "name the folder to change with `--to DIR`",
        };
        let path = match to {
            Some(to) => to.to_owned(),
            None => self.meta["folder"].as_str().map(PathBuf::from).ok_or_else(|| {
                wrong("the run had not taken in a folder (but one file, an archive or nothing)".to_owned())
            })?,
        };
        let real = path.canonicalize().map_err(|e| wrong(format!("cannot find {}: {e}", in_text(&path))))?;
        if real.starts_with(&self.store) {
            return Err(wrong(format!("{} lies in the folder of the runs itself", in_text(&path))));
        }
        // What a guest has made must never become a record, or a journal that is obeyed.
        if let Some(inside) = self.changes.keys().find(|path| self.is_of_records(&real, path)) {
            return Err(wrong(format!("{} would come into the folder of the records", in_text(inside))));
        }
        // A link that was put into the way since is not gone through.
        let folder = Folder::open(Path::new("/"))
            .and_then(|root| root.folder(real.strip_prefix("/").unwrap_or(&real)))
            .map_err(|e| wrong(format!("cannot open {}: {e}", in_text(&path))))?;
        let original = self.meta["folder"].as_str().is_some_and(|folder| Path::new(folder) == real);
        Ok(Target { path: real, folder, original })
    }

    /// What would be taken over to `target`. Where the target is the folder that was taken in, nothing else in it may
    /// have changed since either, unless `elsewhere` says that this does not matter.
    ///
    /// # Errors
    /// [`ApplyError::Changed`] names what is not as it was.
    pub fn preview(&self, target: &Target, elsewhere: bool) -> Result<Preview, ApplyError> {
        let already = match self.look(target)? {
            Stands::Ready(_) => false,
            Stands::Already => true,
            Stands::Changed(differs) => {
                let remedy = "the change itself is in `changes.patch` of the run's folder";
                return Err(ApplyError::Changed { target: target.path.clone(), differs, remedy });
            }
        };
        if !already && target.original && !elsewhere {
            let differs = self.drift(target)?;
            if !differs.is_empty() {
                let remedy = "these are files that the change does not touch: `--accept-drift` says that this does \
                              not matter";
                return Err(ApplyError::Changed { target: target.path.clone(), differs, remedy });
            }
        }
        let mut preview = Preview {
            run_id: self.id.to_string(),
            target: target.path.clone(),
            already,
            files: Vec::new(),
            warnings: Vec::new(),
            refused: self.refused.clone(),
            patch: Vec::new(),
        };
        for (path, change) in &self.changes {
            self.show(target, path, change, &mut preview)?;
        }
        Ok(preview)
    }

    /// Takes the change over, all of it or nothing. `progress` is told before every step how many are behind it and
    /// how many there are, and says whether to go on.
    ///
    /// # Errors
    /// [`ApplyError`]; the target is as it was, but for [`ApplyError::Stuck`].
    pub fn apply(&self, target: &Target, progress: &dyn Fn(u64, u64) -> bool) -> Result<Applied, ApplyError> {
        if !target.folder.lock().map_err(failed(&target.path))? {
            return Err(ApplyError::Where {
                reason: format!("somebody else changes {} right now", in_text(&target.path)),
                remedy: "try again",
            });
        }
        let steps = match self.look(target)? {
            Stands::Ready(steps) => steps,
            Stands::Already => return Ok(Applied { already: true, notes: Vec::new() }),
            Stands::Changed(differs) => {
                return Err(ApplyError::Changed { target: target.path.clone(), differs, remedy: "" });
            }
        };
        let swap = Swap {
            target: &target.folder,
            at: &target.path,
            work: &self.work,
            run: &self.dir,
            id: self.id.as_str(),
            progress,
        };
        match swap.carry_out(&steps) {
            Ok(notes) => Ok(Applied { already: false, notes }),
            Err(Failed::Cancelled) => Err(ApplyError::Cancelled),
            Err(Failed::Stuck(left)) => Err(ApplyError::Stuck { left }),
            Err(Failed::Broken(finding)) => Err(self.broken(finding)),
            Err(Failed::Io { doing, path, source }) => Err(ApplyError::Io { doing, path, source }),
            Err(Failed::Changed(what)) => {
                Err(ApplyError::Changed { target: target.path.clone(), differs: vec![what], remedy: "" })
            }
        }
    }

    /// Writes the workspace as it was collected, as a tar archive; remarks about what is left out of it.
    ///
    /// # Errors
    /// [`ApplyError::Cannot`] when the record does not say what that is; [`ApplyError::Io`] as the system says.
    pub fn tar(&self, out: &mut dyn Write) -> Result<Vec<String>, ApplyError> {
        let Some(base) = &self.base else {
            return Err(ApplyError::Cannot {
                id: self.id.to_string(),
                reason: "nothing was changed, and its record does not list what was taken in",
                remedy: "take the original",
            });
        };
        let mut manifest = base.clone();
        for (path, change) in &self.changes {
            match &change.new {
                Some(item) => drop(manifest.insert(path.clone(), item.clone())),
                None => drop(manifest.remove(path)),
            }
        }
        let path = self.dir.join("workspace");
        export::tar(&self.work, &manifest, out).map_err(|source| ApplyError::Io {
            doing: "write the archive of",
            path,
            source,
        })
    }

    /// Whether a path of a target is in the folder of the runs, or in the one around it that has their locks, where
    /// the target does not lie in that itself.
    fn is_of_records(&self, target: &Path, path: &Path) -> bool {
        let around = self.store.parent().filter(|_| self.store.ends_with("runs"));
        let around = around.filter(|around| !target.starts_with(around));
        let path = target.join(path);
        path.starts_with(&self.store) || around.is_some_and(|around| path.starts_with(around))
    }

    fn broken(&self, finding: String) -> ApplyError {
        ApplyError::Broken { id: self.id.to_string(), finding }
    }

    fn look(&self, target: &Target) -> Result<Stands, ApplyError> {
        target::look(&target.folder, &self.work, &self.changes).map_err(failed(&target.path))
    }

    /// What was taken in and not touched by the change, and is not as it was.
    fn drift(&self, target: &Target) -> Result<Vec<String>, ApplyError> {
        let Some(base) = &self.base else { return Ok(Vec::new()) };
        let since = self.meta["started"].as_str().and_then(|t| humantime::parse_rfc3339(t).ok());
        // Files that nobody has touched since are not read again; the clock of a file system may be coarse.
        let since = since.and_then(|t| t.checked_sub(Duration::from_secs(2)));
        let mut differs = Vec::new();
        for (path, item) in base {
            if self.changes.contains_key(path) || repository(path).is_some() {
                continue;
            }
            let now = target::now(&target.folder, path).map_err(failed(&target.path))?;
            let untouched = matches!((&now, &item.kind), (Now::File(meta), Kind::File { size, .. })
                if meta.len() == *size && since.is_some_and(|since| changed_at(meta) < since));
            let same = untouched
                || target::is(&target.folder, path, &now, Some(item)).map_err(failed(&target.path))?;
            if !same && differs.len() < MOST_TOLD {
                differs.push(in_text(path));
            }
        }
        Ok(differs)
    }

    fn show(
        &self,
        target: &Target,
        path: &Path,
        change: &Change,
        preview: &mut Preview,
    ) -> Result<(), ApplyError> {
        // Of a target that has it already, what was before is nowhere any more.
        let old = change.old.as_ref().filter(|_| !preview.already);
        let old_side = old.map(|item| side(&target.folder, path, item)).transpose().map_err(|e| {
            let differs = vec![format!("{}: {e}", in_text(path))];
            ApplyError::Changed { target: target.path.clone(), differs, remedy: "" }
        })?;
        let new_side = change.new.as_ref().map(|item| side(&self.work, path, item)).transpose();
        let new_side = new_side.map_err(|e| self.broken(format!("{}: {e}", in_text(path))))?;
        let shapes = [&old_side, &new_side].map(|side| side.as_ref().map(|side| side.shape));
        let shape = match shapes {
            [Some(Shape::Binary), _] | [_, Some(Shape::Binary)] => Shape::Binary,
            [_, Some(shape)] | [Some(shape), None] => shape,
            [None, None] => Shape::Text,
        };
        let (old, new) = (old_side.as_ref().map(Shown::patch), new_side.as_ref().map(Shown::patch));
        let part = match (shape, old, new) {
            (Shape::Binary, ..) => {
                let (a, b) = (in_patch("a/", path), in_patch("b/", path));
                let came = change.new.as_ref().map_or("deleted".to_owned(), described);
                format!("# Binary files {a} and {b} differ: {came}\n").into_bytes()
            }
            (_, Some(a), Some(b)) if (a.mode ^ b.mode) & 0o170_000 != 0 => {
                [patch::file(path, old, None), patch::file(path, None, new)].concat()
            }
            _ => patch::file(path, old, new),
        };
        let (plus, minus) = counted(&part);
        let modes = old.zip(new).filter(|(a, b)| a.mode != b.mode);
        preview.files.push(FileChange {
            path: in_text(path),
            change: match (&change.old, &change.new) {
                (None, _) => "added",
                (Some(_), Some(_)) => "changed",
                (Some(_), None) => "deleted",
            },
            shape,
            plus,
            minus,
            mode: modes.map(|(a, b)| (format!("{:06o}", a.mode), format!("{:06o}", b.mode))),
        });
        later::warn(path, change, (old, new), &mut preview.warnings);
        if preview.patch.len().saturating_add(part.len()) > LARGEST_PATCH {
            preview
                .patch
                .extend_from_slice(format!("# {} is not shown: too much\n", in_text(path)).as_bytes());
        } else {
            preview.patch.extend_from_slice(&part);
        }
        Ok(())
    }
}

/// `changes.patch` of a run, exactly as it was recorded: secrets masked.
///
/// # Errors
/// [`ApplyError::Broken`] when it is not what the record says.
pub fn recorded_patch(store: &Path, id: &str) -> Result<Vec<u8>, ApplyError> {
    let (id, folder) = store::open(store, id)?;
    let checked = Checked::of(&folder, &id, Depth::All);
    if let (Standing::Broken, Some(f)) = (checked.standing, checked.findings.first()) {
        let finding = format!("[{}] {}", f.code, f.message);
        return Err(ApplyError::Broken { id: id.to_string(), finding });
    }
    let mut patch = Vec::new();
    let read =
        folder.file(Path::new("changes.patch")).and_then(|file| file.take(RECORDED).read_to_end(&mut patch));
    match read {
        Ok(_) => Ok(patch),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(ApplyError::Cannot {
            id: id.to_string(),
            reason: "nothing was collected",
            remedy: "see `oubliette runs show`",
        }),
        Err(e) => Err(failed(&store.join(id.as_str()))(e)),
    }
}

/// The target of a link; none where there is no link.
pub(crate) fn now_in(root: &Folder, path: &Path) -> io::Result<Option<OsString>> {
    Ok(match target::now(root, path)? {
        Now::Link(_, target) => Some(target),
        Now::Absent | Now::File(_) | Now::Folder(_) | Now::Odd(_) => None,
    })
}

/// One side of a change as it may be shown.
struct Shown {
    shape: Shape,
    mode: u32,
    bytes: Vec<u8>,
}

impl Shown {
    fn patch(&self) -> Side<'_> {
        Side { mode: self.mode, bytes: &self.bytes }
    }
}

/// Reads one side, if it is what the list says.
fn side(root: &Folder, path: &Path, item: &Item) -> Result<Shown, &'static str> {
    read_side(root, path, item).ok().flatten().ok_or("it is not what was collected")
}

fn read_side(root: &Folder, path: &Path, item: &Item) -> io::Result<Option<Shown>> {
    match &item.kind {
        Kind::Link { target } => match target::now(root, path)? {
            Now::Link(_, is) if is == *target => {
                Ok(Some(Shown { shape: Shape::Link, mode: 0o120_000, bytes: target.as_bytes().to_vec() }))
            }
            Now::Absent | Now::File(_) | Now::Link(..) | Now::Folder(_) | Now::Odd(_) => Ok(None),
        },
        Kind::Folder => Ok(None),
        Kind::File { size, sha256: expected } => {
            let mode = git_mode(item.mode & 0o100 != 0);
            if *size > LARGEST_TEXT {
                // Its digest is compared when it is taken over.
                return Ok(Some(Shown { shape: Shape::Binary, mode, bytes: Vec::new() }));
            }
            let mut bytes = Vec::new();
            root.file(path)?.take(size.saturating_add(1)).read_to_end(&mut bytes)?;
            if sha256(&bytes) != *expected {
                return Ok(None);
            }
            let shape = if bytes.contains(&0) { Shape::Binary } else { Shape::Text };
            Ok(Some(Shown { shape, mode, bytes }))
        }
    }
}

fn described(item: &Item) -> String {
    match &item.kind {
        Kind::File { size, sha256 } => format!("{size} bytes, SHA-256 {sha256}"),
        Kind::Link { .. } => "a link".to_owned(),
        Kind::Folder => "a folder".to_owned(),
    }
}

/// Lines that come and go in a part of a patch.
fn counted(part: &[u8]) -> (u64, u64) {
    let (mut plus, mut minus, mut inside) = (0, 0, false);
    for line in part.split(|b| *b == b'\n') {
        match line.first() {
            Some(b'd') => inside = false,
            Some(b'@') => inside = true,
            Some(b'+') if inside => plus += 1,
            Some(b'-') if inside => minus += 1,
            _ => {}
        }
    }
    (plus, minus)
}

fn changed_at(meta: &std::fs::Metadata) -> SystemTime {
    let at = |secs: i64| SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(secs).unwrap_or(0) + 1);
    at(meta.ctime()).max(at(meta.mtime()))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ApplyError {
    move |source| StoreError::Io { path: path.to_owned(), source }.into()
}

/// Ends what was interrupted, of the run that is held and of every other that nobody works on.
fn recover(store: &Path, held: &RunId) -> Result<Vec<String>, ApplyError> {
    let folder = Folder::open(store).map_err(failed(store))?;
    let (names, _) = folder.names(MOST_RUNS).map_err(failed(store))?;
    let mut said = Vec::new();
    for name in names {
        let Some(id) = name.to_str().and_then(|name| RunId::parse(name).ok()) else { continue };
        let dir = store.join(id.as_str());
        if !dir.join(journal::NAME).exists() {
            continue;
        }
        // Who is at work on another run brings it to its end by himself.
        let hold = if id == *held { None } else { Hold::idle(&dir).map_err(failed(&dir))? };
        if id != *held && hold.is_none() {
            continue;
        }
        if let Some(one) = interrupted(&dir, false).map_err(failed(&dir))? {
            said.push(format!("{id}: {one}"));
        }
    }
    Ok(said)
}

/// Brings an apply that was interrupted to a whole state; a sentence, when there was one. The caller holds the run.
pub(crate) fn interrupted(dir: &Path, dry_run: bool) -> io::Result<Option<String>> {
    let id_of_run = dir.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let Some(journal) = Journal::read(&Folder::open(dir)?, id_of_run)? else { return Ok(None) };
    let at = journal.target();
    let told = |what: &str| Ok(Some(format!("an apply to {} that was interrupted {what}", in_text(&at))));
    if dry_run {
        return told("would be brought to its end");
    }
    let target = match Folder::open(&at) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Journal::remove(dir)?;
            return told("is forgotten: the folder is gone");
        }
        other => other?,
    };
    if id(&target.metadata()?) != journal.root {
        return Err(io::Error::other(format!(
            "{} is another folder now than an apply began on",
            in_text(&at)
        )));
    }
    if !target.lock()? {
        return Err(io::Error::other(format!("somebody else changes {} right now", in_text(&at))));
    }
    if !journal::is_marked(&target, id_of_run) {
        Journal::remove(dir)?;
        return told("is forgotten: nothing in that folder says that one began, or is left of it");
    }
    let (left, what) = match journal.phase {
        Phase::Staging | Phase::Swapping => {
            (swap::back(&target, &journal), "was taken back: nothing is changed")
        }
        Phase::Done => (swap::forth(&target, &journal, &|_| true), "was finished: all of it is changed"),
    };
    if !left.is_empty() && journal.phase != Phase::Done {
        return Err(io::Error::other(left.join("; ")));
    }
    journal::unmark(&target, id_of_run)?;
    Journal::remove(dir)?;
    told(what)
}
