//! The folder of the Foundry: who may be in it, and how its files are read and written.
//!
//! ```text
//! data/foundry/           its owner's alone
//!   baseline/             the Guild that holds now
//!   branches/<id>/        guild/ hypothesis.json gate.json     data that anybody may have written
//!   gated/<id>            the digest of the gate.json that the gate wrote: a branch cannot bring its own
//!   history/<n>-<digest>/ guild/ record.json                   what was the baseline before, and what took its place
//!   .next/                an exchange under way (exchange.rs)
//!   .private-*/           copies that are being judged
//! ```

use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runs::{Folder, RunId};
use serde_json::Value;

use crate::tree::remove;
use crate::{BranchId, FoundryError};

pub(crate) const BASELINE: &str = "baseline";
pub(crate) const BRANCHES: &str = "branches";
pub(crate) const GATED: &str = "gated";
pub(crate) const GUILD: &str = "guild";
pub(crate) const HISTORY: &str = "history";
pub(crate) const NEXT: &str = ".next";
const PRIVATE: &str = ".private-";
/// Bytes of a file of ours that are read.
pub(crate) const MOST_FILE: u64 = 8 << 20;
/// How long somebody waits for who is in it; an exchange takes a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// Mode of the folder.
const OWN: u32 = 0o700;

/// The folder of the Foundry, held open.
#[derive(Debug)]
pub struct Foundry {
    path: PathBuf,
    root: Folder,
}

/// The same with nobody else in it who changes anything.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    pub(crate) foundry: &'a Foundry,
    /// The kernel lets go of it however the process ends.
    _lock: Folder,
}

/// A folder of one process, gone when that is over.
#[derive(Debug)]
pub(crate) struct Private {
    pub(crate) path: PathBuf,
    pub(crate) folder: Folder,
    _lock: Folder,
}

impl Drop for Private {
    fn drop(&mut self) {
        // Whoever comes next removes what is left.
        remove(&self.path).ok();
    }
}

impl Foundry {
    /// Opens the folder `foundry` in the folder of records; none where there is none.
    ///
    /// # Errors
    /// [`FoundryError::Io`], and [`FoundryError::Input`] for a folder that is others' to write.
    pub fn open(data: &Path) -> Result<Option<Foundry>, FoundryError> {
        let path = data.join("foundry");
        match Folder::open(&path) {
            Ok(root) => {
                own(&root, &path)?;
                for name in [BRANCHES, GATED, HISTORY] {
                    // One that was made by hand may lack them; what cannot be made is told where it is needed.
                    root.create_folder(OsStr::new(name)).ok();
                }
                // Branches may be anybody's to write; what else is not there, or no folder, is told where it is needed.
                for name in [BASELINE, GATED, HISTORY] {
                    root.folder(Path::new(name)).map_or(Ok(()), |folder| own(&folder, &path.join(name)))?;
                }
                Ok(Some(Foundry { path, root }))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(FoundryError::folder("open", &path)(e)),
        }
    }

    /// The same, made where it is not there, and nobody else's to look into.
    ///
    /// # Errors
    /// [`FoundryError::Io`], and [`FoundryError::Input`] for a folder that is others' to write.
    pub fn make(data: &Path) -> Result<Foundry, FoundryError> {
        let path = data.join("foundry");
        let wrong = || FoundryError::io("make", &path);
        std::fs::create_dir_all(data).map_err(wrong())?;
        let mut own = std::fs::DirBuilder::new();
        own.mode(OWN);
        match own.create(&path) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(wrong()(e)),
            Ok(()) | Err(_) => {}
        }
        let made = Foundry::open(data)?.ok_or_else(|| wrong()(ErrorKind::NotFound.into()))?;
        made.root.set_mode(OWN).map_err(wrong())?;
        Ok(made)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn root(&self) -> &Folder {
        &self.root
    }

    /// A folder of its own, never one that a link leads to.
    pub(crate) fn folder(&self, name: &str) -> Result<Folder, FoundryError> {
        self.root.folder(Path::new(name)).map_err(FoundryError::folder("open", &self.at(name)))
    }

    pub(crate) fn baseline(&self) -> Result<Folder, FoundryError> {
        match self.root.folder(Path::new(BASELINE)) {
            Ok(folder) => Ok(folder),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                Err(FoundryError::NoBaseline { path: self.path.clone() })
            }
            Err(e) => Err(FoundryError::folder("open", &self.at(BASELINE))(e)),
        }
    }

    /// The folder of a branch.
    pub(crate) fn branch(&self, id: &BranchId) -> Result<Folder, FoundryError> {
        let path = self.at(BRANCHES).join(id.as_str());
        let opened = self.root.folder(Path::new(BRANCHES)).and_then(|all| all.folder(Path::new(id.as_str())));
        match opened {
            Ok(folder) => Ok(folder),
            Err(e) if e.kind() == ErrorKind::NotFound => Err(FoundryError::NoBranch { id: id.clone(), path }),
            Err(source) => Err(FoundryError::Input {
                what: path.display().to_string(),
                why: format!("it is no folder that could be opened ({})", word(&source)),
            }),
        }
    }

    /// Waits for whoever is in it, and brings to an end what somebody left in the middle.
    pub(crate) fn hold(&self) -> Result<Held<'_>, FoundryError> {
        let wrong = || FoundryError::io("lock", &self.path);
        // A description of its own, so that letting go of it is letting go of the lock.
        let lock = self.root.folder(Path::new("")).map_err(wrong())?;
        let began = Instant::now();
        while !lock.lock().map_err(wrong())? {
            if began.elapsed() > PATIENCE {
                return Err(FoundryError::Busy { path: self.path.clone() });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let held = Held { foundry: self, _lock: lock };
        held.sweep()?;
        held.recover()?;
        Ok(held)
    }
}

/// Whoever may write here says what the baseline is, what passed, and what is waived: that is the operator alone.
fn own(root: &Folder, path: &Path) -> Result<(), FoundryError> {
    let meta = root.metadata().map_err(FoundryError::io("look at", path))?;
    let input = |why: &str| FoundryError::Input { what: path.display().to_string(), why: why.to_owned() };
    if ![0, rustix::process::geteuid().as_raw()].contains(&meta.uid()) {
        return Err(input("it is somebody else's; the Foundry is for its owner alone"));
    }
    if meta.mode() & 0o022 != 0 {
        let why = "others may write in it; look at what lies there, and close it to them (`chmod 700`)";
        return Err(input(why));
    }
    Ok(())
}

impl Held<'_> {
    /// A folder that nobody else looks into.
    pub(crate) fn private(&self) -> Result<Private, FoundryError> {
        let root = &self.foundry.root;
        let wrong = || FoundryError::io("write to", &self.foundry.path);
        let name = format!("{PRIVATE}{}", RunId::new().map_err(wrong())?);
        let folder = root.create_folder(OsStr::new(&name)).map_err(wrong())?;
        let lock = folder.folder(Path::new("")).map_err(wrong())?;
        lock.lock().map_err(wrong())?;
        Ok(Private { path: self.foundry.path.join(name), folder, _lock: lock })
    }

    /// Removes private folders of who was killed.
    fn sweep(&self) -> Result<(), FoundryError> {
        let wrong = || FoundryError::io("clear up in", &self.foundry.path);
        let (names, _) = self.foundry.root.names(10_000).map_err(wrong())?;
        for name in names.iter().filter(|name| name.as_encoded_bytes().starts_with(PRIVATE.as_bytes())) {
            let free = self.foundry.root.folder(Path::new(name)).and_then(|folder| folder.lock());
            if free.is_ok_and(|free| free) {
                remove(&self.foundry.path.join(name)).map_err(wrong())?;
            }
        }
        Ok(())
    }
}

/// Writes a file of a folder, all of it or nothing; one at a time in this folder, and none that [`get`] would not take.
pub(crate) fn put(folder: &Folder, name: &str, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() as u64 > MOST_FILE {
        return Err(too_long(MOST_FILE));
    }
    vacant(folder, name)?;
    let half = half(name);
    gone(folder, &half)?;
    let half = OsStr::new(&half);
    let mut file = folder.create(half, 0o600)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    folder.replace(half, OsStr::new(name))?;
    folder.sync()
}

/// Removes a file; one that is not there is removed already.
pub(crate) fn gone(folder: &Folder, name: &str) -> io::Result<()> {
    match folder.remove_file(OsStr::new(name)) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn half(name: &str) -> String {
    format!(".{name}.half")
}

/// Whether a file may be put there: a folder cannot be replaced by one. Anything else can, and is never written to.
pub(crate) fn vacant(folder: &Folder, name: &str) -> io::Result<()> {
    for name in [name, &half(name)] {
        match folder.look(OsStr::new(name)) {
            Ok(meta) if meta.is_dir() => return Err(ErrorKind::IsADirectory.into()),
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

fn too_long(most: u64) -> io::Error {
    io::Error::new(ErrorKind::FileTooLarge, format!("it is longer than {most} bytes"))
}

/// The bytes of a file of a folder; none where there is no such name.
pub(crate) fn get(folder: &Folder, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match folder.file(Path::new(name)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(too_long(most));
    }
    Ok(Some(bytes))
}

/// JSON of somebody else: one value, no key twice, no bytes that are no text.
pub(crate) fn json(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    agent::parse_json(text).map_err(|e| e.to_string())
}

/// The system's word without its number.
pub(crate) fn word(e: &io::Error) -> String {
    e.to_string().split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// This moment, to the second.
pub(crate) fn now() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}
