//! Archives as a source: a tar, plain or with gzip, or a zip, from hostile hands.
//!
//! ```text
//!   FILE ─▶ tar.rs, zip.rs: what an entry says, and nothing that two readers could read in two ways
//!              └▶ unpack.rs: a private folder, by descriptor, within bounds ─▶ import.rs, like any folder
//! ```
//!
//! An archive is refused as a whole, by the name of the entry, for whatever no honest one has: names that lead out,
//! things that are no files, two entries of one name, two sizes of one entry. Links are made as they are, since nobody
//! walks through them; which of them come in is decided as for a folder. An archive inside an archive is a file.
//! A leading folder stays what it is.

mod tar;
mod unpack;
mod zip;

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use policy::Limits;

use crate::RunError;
use crate::import::{Progress, refusal};
use unpack::{Refused, Unpack};

/// What a file is, by its name; what it holds must then be that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Tar,
    TarGzip,
    Zip,
    /// One that is known and not read.
    Unread,
}

impl Format {
    /// None for a file that is no archive.
    pub(crate) fn of(path: &Path) -> Option<Format> {
        let name = path.file_name()?.as_bytes().to_ascii_lowercase();
        let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end.as_bytes()));
        if ends(&[".tar"]) {
            Some(Format::Tar)
        } else if ends(&[".tar.gz", ".tgz"]) {
            Some(Format::TarGzip)
        } else if ends(&[".zip"]) {
            Some(Format::Zip)
        } else if ends(&[".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tbz", ".tar.zst", ".tzst", ".7z", ".rar"])
        {
            // Each would be one more decoder outside every sandbox.
            Some(Format::Unread)
        } else {
            None
        }
    }
}

/// Unpacks `file` into the empty folder `into`; says what was noted.
pub(crate) fn unpack(
    path: &Path,
    format: Format,
    file: File,
    into: &Path,
    limits: &Limits,
    progress: Progress<'_>,
) -> Result<Vec<String>, RunError> {
    let said = |refused: Refused| match refused {
        Refused::Cancelled => RunError::Cancelled,
        Refused::Archive(reason) => refusal(path, &reason),
        Refused::Write(source) => RunError::Io { doing: "unpack", path: path.to_owned(), source },
    };
    let mut out = Unpack::into(into, limits, progress).map_err(said)?;
    match format {
        Format::Tar => tar::read(file, false, &mut out),
        Format::TarGzip => tar::read(file, true, &mut out),
        Format::Zip => zip::read(file, &mut out),
        Format::Unread => {
            Err(Refused::Archive("only tar, tar.gz and zip are read: unpack it first".to_owned()))
        }
    }
    .map_err(said)?;
    Ok(out.end())
}

/// Where a name of an archive leads, if anywhere.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn beneath(name: &[u8]) -> Option<std::path::PathBuf> {
    unpack::beneath(name).ok()
}
