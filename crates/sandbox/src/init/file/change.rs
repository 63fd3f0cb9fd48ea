//! Changes of files, all or none.
//!
//! ```text
//!   prepare   each name is found, what is there is compared, the new content lies in a temporary file beside it
//!   commit    one name after the other: temporary and file change places, and what came out is compared once more
//!   end       what came out is removed;     or, at the first failure, everything goes back where it was
//! ```
//!
//! A program of the guest may write at the same time. What it changed between our look and the exchange comes out of
//! the exchange as something else than was expected, and goes back. Of the guest's own files, under Linux, nobody can
//! open the old one for writing while this happens (a lease): who tries waits, and is seen. Where the engine cannot exchange two names (gVisor), a second name of the old file is kept and compared before and after,
//! which leaves a program that renames over the file the moment between the two.
//!
//! A file with several names is replaced under the one that was given; the others keep the old content.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid, XattrFlags, fchmod, fchown, fgetxattr,
    flistxattr, fsetxattr, fstat, linkat, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::super::walk::{Missing, Place, Workspace, look, open_regular_in};
use super::{Refusal, named};
use crate::sys::{Lease, is_unbroken, lease};
use crate::{Change, To, Was};

/// Names that are tried for a temporary file.
const NAMES: u32 = 1000;
/// Bytes of extended attributes that are kept, of one file.
const ATTRIBUTES: usize = 64 << 10;

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Files that were not there before.
    pub(super) created: u64,
    /// Bytes written.
    pub(super) bytes: u64,
}

/// Does them all, or none.
pub(super) fn change(
    workspace: &Workspace,
    changes: &[Change],
    content: &mut dyn Read,
) -> Result<Done, Refusal> {
    let mut done = Done::default();
    let mut steps = Vec::new();
    let outcome = changes.iter().try_for_each(|change| {
        let at = |refusal| name_in(refusal, change, changes.len());
        let step = prepare(workspace, change, content, &mut done).map_err(at)?;
        steps.push(step);
        Ok(())
    });
    let outcome = outcome.and_then(|()| {
        steps.iter_mut().zip(changes).try_for_each(|(step, change)| {
            step.commit().map_err(|refusal| name_in(refusal, change, changes.len()))
        })
    });
    match outcome {
        Ok(()) => {
            steps.iter().for_each(Step::end);
            Ok(done)
        }
        Err(mut refusal) => {
            let back: Vec<bool> = steps.iter_mut().rev().map(Step::undo).collect();
            if back.contains(&false) {
                refusal.message.push_str("; and not everything could be put back");
            }
            Err(refusal)
        }
    }
}

/// Where one of several fails, which one.
fn name_in(mut refusal: Refusal, change: &Change, of: usize) -> Refusal {
    if of > 1 {
        refusal.message = format!("{}: {}", change.path, refusal.message);
    }
    refusal
}

fn changed() -> Refusal {
    Refusal::new(
        "changed",
        "a program changed it in the meantime, or has it open for writing; nothing was written",
    )
}

/// One file on its way.
struct Step {
    place: Place,
    was: Was,
    /// The new content, beside it.
    temporary: Option<(OsString, OwnedFd)>,
    stage: Stage,
}

/// How far it is.
enum Stage {
    /// Nothing has happened to the name.
    Prepared,
    /// A file is there that was not.
    Created,
    /// Temporary and file have changed places.
    Exchanged,
    /// It was replaced; what it was has this second name, where it could be given one.
    Replaced(Option<OsString>),
    /// It was taken away, to this name.
    Taken(OsString),
    /// It is as it was.
    Undone,
}

fn prepare(
    workspace: &Workspace,
    change: &Change,
    content: &mut dyn Read,
    done: &mut Done,
) -> Result<Step, Refusal> {
    let missing = if matches!(change.to, To::Gone) { Missing::Error } else { Missing::Make };
    let Some(place) = workspace.place(&named(&change.path)?, missing)? else {
        return Err(Errno::ISDIR.into());
    };
    let mut step = Step { place, was: change.was.clone(), temporary: None, stage: Stage::Prepared };
    match step.fill(change, content, done) {
        Ok(()) => Ok(step),
        Err(refusal) => {
            step.undo();
            Err(refusal)
        }
    }
}

impl Step {
    /// Looks at what is there, and writes what is to be.
    fn fill(&mut self, change: &Change, content: &mut dyn Read, done: &mut Done) -> Result<(), Refusal> {
        let before = match look(&self.place.folder, &self.place.name) {
            Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Some(stat),
                FileType::Directory => return Err(Errno::ISDIR.into()),
                _ => return Err(Errno::INVAL.into()),
            },
            Err(Errno::NOENT) => None,
            Err(e) => return Err(e.into()),
        };
        match (&self.was, &before) {
            (Was::Absent, Some(_)) => return Err(Refusal::new("exists", "it is there already")),
            (Was::Same { .. }, None) => return Err(changed()),
            (Was::Same { .. }, Some(_)) if !self.is_as_expected(&self.place.name) => return Err(changed()),
            (Was::Any | Was::Absent | Was::Same { .. }, _) => {}
        }
        let To::Content { bytes, executable } = &change.to else {
            return if before.is_some() { Ok(()) } else { Err(Errno::NOENT.into()) };
        };
        let (name, fd) = temporary(&self.place)?;
        self.temporary = Some((name, fd.try_clone()?));
        let mut file = File::from(fd);
        let wrote = match bytes {
            Some(bytes) => io::copy(&mut content.take(*bytes), &mut file)?,
            None => io::copy(content, &mut file)?,
        };
        if bytes.is_some_and(|bytes| bytes != wrote) {
            return Err(Refusal::new("content", "less content came than was announced"));
        }
        let mut mode = before.as_ref().map_or(0o644, |stat| stat.st_mode & 0o777);
        match executable {
            // For whom it can be read.
            Some(true) => mode |= (mode & 0o444) >> 2,
            Some(false) => mode &= !0o111,
            None => {}
        }
        if let Some(before) = &before {
            self.keep_what_it_had(before, &file);
        }
        fchmod(&file, Mode::from_raw_mode(mode))?;
        file.sync_all()?;
        done.bytes += wrote;
        done.created += u64::from(before.is_none());
        Ok(())
    }

    /// Owner and attributes, as far as this process may give them: who may not is told nothing, since he could not
    /// have changed them either.
    fn keep_what_it_had(&self, before: &Stat, file: &File) {
        if let Ok(now) = fstat(file)
            && (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid)
        {
            let ids = (Uid::from_raw(before.st_uid), Gid::from_raw(before.st_gid));
            fchown(file, Some(ids.0), Some(ids.1)).or_else(|_| fchown(file, None, Some(ids.1))).ok();
        }
        let Ok(old) = open_regular_in(&self.place.folder, &self.place.name) else { return };
        let mut list = vec![0; ATTRIBUTES];
        let Ok(length) = flistxattr(&old, &mut list[..]) else { return };
        let mut value = vec![0; ATTRIBUTES];
        for name in list[..length].split(|b| *b == 0).filter(|name| !name.is_empty()) {
            let name = OsStr::from_bytes(name);
            if let Ok(length) = fgetxattr(&old, name, &mut value[..]) {
                fsetxattr(file, name, &value[..length], XattrFlags::empty()).ok();
            }
        }
    }

    fn commit(&mut self) -> Result<(), Refusal> {
        let (folder, name) = (&self.place.folder, &self.place.name);
        let Some((temporary, _)) = &self.temporary else {
            let taken = spare(&self.place, |to| {
                renameat_with(folder, name, folder, to, RenameFlags::NOREPLACE)
                    .or_else(|e| if e == Errno::INVAL { renameat(folder, name, folder, to) } else { Err(e) })
            });
            let taken = taken.map_err(|e| if e == Errno::NOENT { changed() } else { e.into() })?;
            let expected = self.is_as_expected(&taken);
            self.stage = Stage::Taken(taken);
            return if expected { Ok(()) } else { Err(changed()) };
        };
        // A name that nobody has.
        match renameat_with(folder, temporary, folder, name, RenameFlags::NOREPLACE) {
            Ok(()) => {
                self.stage = Stage::Created;
                return if matches!(self.was, Was::Same { .. }) { Err(changed()) } else { Ok(()) };
            }
            Err(Errno::INVAL | Errno::NOSYS) => {
                match linkat(folder, temporary, folder, name, AtFlags::empty()) {
                    Ok(()) => {
                        unlinkat(folder, temporary, AtFlags::empty())?;
                        self.stage = Stage::Created;
                        return if matches!(self.was, Was::Same { .. }) { Err(changed()) } else { Ok(()) };
                    }
                    Err(Errno::EXIST) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        if matches!(self.was, Was::Absent) {
            return Err(changed());
        }
        let old = self.held()?;
        match renameat_with(folder, temporary, folder, name, RenameFlags::EXCHANGE) {
            Ok(()) => {
                let out = match &old {
                    Some((file, Lease::Held)) => {
                        is_unbroken(file)
                            && fstat(file).ok().map(|s| (s.st_dev, s.st_ino)) == identity(folder, temporary)
                    }
                    Some((_, Lease::Busy | Lease::None)) | None => self.is_as_expected(temporary),
                };
                self.stage = Stage::Exchanged;
                // Who waits for the old file gets it where it belongs.
                let back = if out { Ok(()) } else { Err(changed()) };
                if out || self.undo() {
                    back
                } else {
                    Err(Refusal::new("changed", "it changed, and could not be put back"))
                }
            }
            Err(Errno::INVAL | Errno::NOSYS) => self.replace(),
            Err(Errno::NOENT) => Err(changed()),
            Err(e) => Err(e.into()),
        }
    }

    /// The file as it is before it is exchanged, if it must be a certain one: compared once more, and kept from being
    /// opened for writing until that is done.
    fn held(&self) -> Result<Option<(File, Lease)>, Refusal> {
        let Was::Same { sha256, bytes } = &self.was else { return Ok(None) };
        let file = File::from(open_regular_in(&self.place.folder, &self.place.name)?);
        let lease = lease(&file);
        let found = digest_of(file.try_clone()?, *bytes)?;
        if lease == Lease::Busy || found != *sha256 {
            return Err(changed());
        }
        Ok(Some((file, lease)))
    }

    /// Where two names cannot be exchanged.
    fn replace(&mut self) -> Result<(), Refusal> {
        let (folder, name) = (&self.place.folder, &self.place.name);
        let Some((temporary, _)) = &self.temporary else { return Err(Errno::IO.into()) };
        let kept = spare(&self.place, |to| linkat(folder, name, folder, to, AtFlags::empty())).ok();
        if !self.is_as_expected(kept.as_deref().unwrap_or(name)) {
            if let Some(kept) = &kept {
                unlinkat(folder, kept, AtFlags::empty()).ok();
            }
            return Err(changed());
        }
        renameat(folder, temporary, folder, name)?;
        let expected = kept.as_ref().is_none_or(|kept| self.is_as_expected(kept));
        self.stage = Stage::Replaced(kept);
        if expected { Ok(()) } else { Err(changed()) }
    }

    /// Whether what is under this name now is what the change was made for.
    fn is_as_expected(&self, name: &OsStr) -> bool {
        let regular = || {
            let stat = look(&self.place.folder, name).ok()?;
            (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(stat)
        };
        match &self.was {
            // A folder or a link that came in the meantime is nobody's file to replace.
            Was::Any => regular().is_some(),
            Was::Absent => false,
            Was::Same { sha256, bytes } => {
                let same_size = regular().is_some_and(|s| u64::try_from(s.st_size) == Ok(*bytes));
                same_size && digest(&self.place.folder, name, *bytes).is_ok_and(|found| found == *sha256)
            }
        }
    }

    /// All of them are done: nothing is kept.
    fn end(&self) {
        let left = match &self.stage {
            Stage::Exchanged => self.temporary.as_ref().map(|(name, _)| name),
            Stage::Taken(name) => Some(name),
            Stage::Replaced(kept) => kept.as_ref(),
            Stage::Prepared | Stage::Created | Stage::Undone => None,
        };
        if let Some(name) = left {
            // Who took it away himself leaves nothing to remove.
            self.remove(name);
        }
    }

    /// Puts back what was, and says whether that went well.
    fn undo(&mut self) -> bool {
        let (folder, name) = (&self.place.folder, &self.place.name);
        let back = match (&self.stage, &self.temporary) {
            (Stage::Undone, _) => return true,
            (Stage::Prepared, None) => true,
            (Stage::Prepared, Some((temporary, _))) => self.remove(temporary),
            // What somebody put over it since is his.
            (Stage::Created, _) => !self.is_ours(name) || self.remove(name),
            (Stage::Exchanged, Some((temporary, _))) => self.exchange_back(temporary),
            (Stage::Replaced(Some(kept)), _) => {
                if self.is_ours(name) {
                    renameat(folder, kept, folder, name).is_ok()
                } else {
                    self.remove(kept)
                }
            }
            (Stage::Replaced(None), _) | (Stage::Exchanged, None) => false,
            (Stage::Taken(taken), _) => {
                match renameat_with(folder, taken, folder, name, RenameFlags::NOREPLACE) {
                    Ok(()) => true,
                    // There is a newer one.
                    Err(Errno::EXIST) => self.remove(taken),
                    Err(_) => renameat(folder, taken, folder, name).is_ok(),
                }
            }
        };
        self.stage = Stage::Undone;
        for (folder, name) in self.place.made.iter().rev() {
            // One that somebody uses by now stays.
            unlinkat(folder, name, AtFlags::REMOVEDIR).ok();
        }
        back
    }

    /// What came out of an exchange goes back in, unless somebody has put something over ours since: that is newer.
    fn exchange_back(&self, temporary: &OsStr) -> bool {
        let (folder, name) = (&self.place.folder, &self.place.name);
        let exchange = || renameat_with(folder, temporary, folder, name, RenameFlags::EXCHANGE);
        let old = identity(folder, temporary);
        for _ in 0..8 {
            match exchange() {
                Ok(()) if self.is_ours(temporary) => return self.remove(temporary),
                Ok(()) => {}
                // Who removed ours removed the file.
                Err(Errno::NOENT) => return self.remove(temporary),
                Err(_) => return false,
            }
            if exchange().is_err() {
                return false;
            }
            if identity(folder, temporary) == old {
                return self.remove(temporary);
            }
        }
        false
    }

    /// Whether the file under this name is the one that was written here.
    fn is_ours(&self, name: &OsStr) -> bool {
        let Some((_, ours)) = &self.temporary else { return false };
        fstat(ours).is_ok_and(|ours| identity(&self.place.folder, name) == Some((ours.st_dev, ours.st_ino)))
    }

    /// Whatever came out of an exchange, a folder too if it is empty.
    fn remove(&self, name: &OsStr) -> bool {
        let folder = &self.place.folder;
        match unlinkat(folder, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => unlinkat(folder, name, AtFlags::REMOVEDIR).is_ok(),
            Err(Errno::NOENT) => true,
            other => other.is_ok(),
        }
    }
}

/// What tells a file from others.
fn identity(folder: &OwnedFd, name: &OsStr) -> Option<(u64, u64)> {
    look(folder, name).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

fn digest(folder: &OwnedFd, name: &OsStr, bytes: u64) -> Result<String, Refusal> {
    digest_of(File::from(open_regular_in(folder, name)?), bytes)
}

fn digest_of(file: File, bytes: u64) -> Result<String, Refusal> {
    let mut file = file.take(bytes.saturating_add(1));
    let (mut sum, mut piece) = (Sha256::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut piece)? {
            0 => break,
            n => sum.update(&piece[..n]),
        }
    }
    Ok(sum.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

/// A new file of a name that nobody else uses, in the folder of the place.
fn temporary(place: &Place) -> Result<(OsString, OwnedFd), Refusal> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut made = None;
    let name = spare(place, |name| {
        made = Some(openat(&place.folder, name, flags, Mode::from_raw_mode(0o600))?);
        Ok(())
    })?;
    match made {
        Some(fd) => Ok((name, fd)),
        None => Err(Errno::IO.into()),
    }
}

/// Does something with a name that nobody has, until it succeeds.
fn spare(place: &Place, mut with: impl FnMut(&Path) -> Result<(), Errno>) -> Result<OsString, Errno> {
    let pid = rustix::process::getpid().as_raw_nonzero();
    for n in 0..NAMES {
        let name = format!(".write-{pid}-{n}.tmp");
        // Not every engine refuses to rename over what is there.
        if look(&place.folder, OsStr::new(&name)).is_ok() {
            continue;
        }
        match with(Path::new(&name)) {
            Ok(()) => return Ok(name.into()),
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Errno::EXIST)
}
