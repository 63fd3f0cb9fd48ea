//! What a tar says. Its extensions are read here, not by the library: a name or a size that stands in two places
//! is what two readers read in two ways, and then one of them looks for something else than the other unpacks.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::time::{Duration, SystemTime};

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, Entry, EntryType};

use super::unpack::{Refused, Unpack, broken, entry, unread};

/// Of a long name, or a list of extensions.
const LONGEST_EXTENSION: u64 = 64 << 10;
/// What every entry may take beside its content: its own block, extensions, and what is filled up.
const BESIDE: u64 = 4096;
const SPARE: u64 = 16 << 20;

pub(super) fn read(file: File, gzip: bool, out: &mut Unpack<'_>) -> Result<(), Refused> {
    out.packed = file.metadata().map_err(|e| unread(&e))?.len();
    let most =
        out.limits().disk.saturating_add(out.limits().files.saturating_mul(BESIDE)).saturating_add(SPARE);
    let file = BufReader::with_capacity(64 << 10, file);
    let bytes: Box<dyn Read> = if gzip { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let mut bytes = Bounded { bytes, left: most, ended: false };
    entries(&mut bytes, out)?;
    if bytes.ended {
        return Err(Refused::Archive("it has no end: it was cut off".to_owned()));
    }
    only_zeros(&mut bytes)
}

fn entries(bytes: &mut dyn Read, out: &mut Unpack<'_>) -> Result<(), Refused> {
    let mut archive = Archive::new(bytes);
    let mut beside = Beside::default();
    for next in archive.entries().map_err(|e| unread(&e))?.raw(true) {
        let mut next = next.map_err(|e| unread(&e))?;
        match next.header().entry_type() {
            EntryType::GNULongName => once(&mut beside.long_name, name_in(&mut next)?, "two long names")?,
            EntryType::GNULongLink => once(&mut beside.long_link, name_in(&mut next)?, "two long targets")?,
            EntryType::XHeader => once(&mut beside.pax, Pax::read(&mut next)?, "two lists of extensions")?,
            EntryType::XGlobalHeader => {
                // `git archive` writes one with a comment. One that names or sizes every file is a trick.
                if Pax::read(&mut next)? != Pax::default() {
                    return Err(Refused::Archive("extensions for all entries name or size them".to_owned()));
                }
            }
            _ => one(&mut next, std::mem::take(&mut beside), out)?,
        }
    }
    if beside.is_empty() {
        Ok(())
    } else {
        Err(Refused::Archive("extensions of no entry at its end".to_owned()))
    }
}

/// What stands before an entry and is about it.
#[derive(Default)]
struct Beside {
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    pax: Option<Pax>,
}

impl Beside {
    fn is_empty(&self) -> bool {
        self.long_name.is_none() && self.long_link.is_none() && self.pax.is_none()
    }
}

fn once<T>(place: &mut Option<T>, value: T, what: &str) -> Result<(), Refused> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refused::Archive(format!("{what} for one entry"))),
    }
}

fn one<R: Read>(next: &mut Entry<'_, R>, beside: Beside, out: &mut Unpack<'_>) -> Result<(), Refused> {
    let header = next.header();
    let kind = header.entry_type();
    let pax = beside.pax.unwrap_or_default();
    let own = header.path_bytes().into_owned();
    let name = match (beside.long_name, pax.path) {
        (Some(_), Some(_)) => return Err(entry(&own, "two long names for one entry")),
        (Some(name), None) | (None, Some(name)) => name,
        (None, None) => own,
    };
    let target = match (beside.long_link, pax.target) {
        (Some(_), Some(_)) => return Err(entry(&name, "two long targets for one entry")),
        (Some(target), None) | (None, Some(target)) => target,
        (None, None) => header.link_name_bytes().map(|t| t.into_owned()).unwrap_or_default(),
    };
    let size = header.entry_size().map_err(|e| entry(&name, broken(&e)))?;
    if pax.sparse || kind == EntryType::GNUSparse {
        return Err(entry(&name, "a sparse file: pack it without `--sparse`"));
    }
    if pax.size.is_some_and(|other| other != size) {
        return Err(entry(&name, "two sizes for one entry"));
    }
    let mode = header.mode().map_err(|e| entry(&name, broken(&e)))?;
    let modified =
        header.mtime().ok().and_then(|s| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(s)));
    let empty = || if size == 0 { Ok(()) } else { Err(entry(&name, "content in what holds none")) };
    match kind {
        // Before there was a type for them, folders were files whose name ends so.
        EntryType::Regular if name.ends_with(b"/") => empty().and_then(|()| out.folder(&name, mode)),
        EntryType::Regular => out.file(&name, (mode, modified), size, next),
        EntryType::Directory => empty().and_then(|()| out.folder(&name, mode)),
        EntryType::Symlink => empty().and_then(|()| out.link(&name, &target)),
        EntryType::Link => empty().and_then(|()| out.hard_link(&name, &target)),
        EntryType::Char | EntryType::Block => Err(entry(&name, "it is a device")),
        EntryType::Fifo => Err(entry(&name, "it is a FIFO")),
        other => {
            let kind = char::from(other.as_byte()).escape_default().to_string();
            Err(entry(&name, format_args!("it is of the type `{kind}`, not a file, a folder or a link")))
        }
    }
}

fn name_in<R: Read>(next: &mut Entry<'_, R>) -> Result<Vec<u8>, Refused> {
    let mut name = bounded(next)?;
    // GNU ends it with a zero byte.
    if name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

fn bounded<R: Read>(next: &mut Entry<'_, R>) -> Result<Vec<u8>, Refused> {
    let size = next.header().entry_size().map_err(|e| unread(&e))?;
    if size > LONGEST_EXTENSION {
        return Err(Refused::Archive(format!("an extension of {size} bytes")));
    }
    let mut bytes = Vec::new();
    next.read_to_end(&mut bytes).map_err(|e| unread(&e))?;
    if u64::try_from(bytes.len()).ok() == Some(size) {
        Ok(bytes)
    } else {
        Err(unread(&io::ErrorKind::UnexpectedEof.into()))
    }
}

/// What a list of extensions says that matters here.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pax {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    sparse: bool,
}

impl Pax {
    fn read<R: Read>(next: &mut Entry<'_, R>) -> Result<Pax, Refused> {
        Pax::parse(&bounded(next)?)
            .ok_or_else(|| Refused::Archive("extensions that cannot be read".to_owned()))
    }

    /// Lines of `length key=value\n`; each as long as it says, none of the keys twice.
    fn parse(mut rest: &[u8]) -> Option<Pax> {
        let mut pax = Pax::default();
        while !rest.is_empty() {
            let digits = rest.iter().position(|b| *b == b' ')?;
            let number = std::str::from_utf8(rest.get(..digits)?).ok()?;
            if number.is_empty() || number.len() > 6 || !number.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            let length: usize = number.parse().ok()?;
            let line = rest.get(digits + 1..length)?.strip_suffix(b"\n")?;
            rest = rest.get(length..)?;
            let equals = line.iter().position(|b| *b == b'=')?;
            let (key, value) = (line.get(..equals)?, line.get(equals + 1..)?);
            let fresh = match key {
                b"path" => pax.path.replace(value.to_vec()).is_none(),
                b"linkpath" => pax.target.replace(value.to_vec()).is_none(),
                b"size" => pax.size.replace(std::str::from_utf8(value).ok()?.parse().ok()?).is_none(),
                key if key.starts_with(b"GNU.sparse") => {
                    pax.sparse = true;
                    true
                }
                // Owners, times and attributes are not taken over.
                _ => true,
            };
            if !fresh {
                return None;
            }
        }
        Some(pax)
    }
}

/// What is behind the end is read by nobody, and so it must be nothing.
fn only_zeros(bytes: &mut dyn Read) -> Result<(), Refused> {
    let mut piece = vec![0; 64 << 10];
    loop {
        let n = bytes.read(&mut piece).map_err(|e| unread(&e))?;
        match piece.get(..n) {
            None | Some([]) => return Ok(()),
            Some(some) if some.iter().any(|b| *b != 0) => {
                return Err(Refused::Archive("there is something behind its end".to_owned()));
            }
            Some(_) => {}
        }
    }
}

/// A stream that gives no more than so much, whatever is packed in it.
struct Bounded<R> {
    bytes: R,
    left: u64,
    ended: bool,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.bytes.read(buf)?;
        self.ended |= n == 0 && !buf.is_empty();
        let room = self.left.checked_sub(u64::try_from(n).unwrap_or(u64::MAX));
        self.left = room.ok_or_else(|| io::Error::other("it unpacks to more than the limits allow"))?;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_read_by_their_lengths_and_each_but_once() {
        let pax = Pax::parse(b"12 path=a/b\n10 size=7\n24 comment=a=b c\n d e f\n").unwrap();
        assert_eq!((pax.path.as_deref(), pax.size, pax.sparse), (Some(&b"a/b"[..]), Some(7), false));
        for bad in [
            &b"12 path=a/b"[..],
            b"99 path=a/b\n",
            b"0 path=a/b\n",
            b"+12 path=a/b\n",
            b"8 path\nxx\n",
            b"9 path=a\n9 path=b\n",
            b"11 size=-1\n",
            b" ",
            b"99999999999999999999 path=a\n",
        ] {
            assert!(Pax::parse(bad).is_none(), "{bad:?}");
        }
        assert!(Pax::parse(b"25 GNU.sparse.realsize=9\n").unwrap().sparse);
    }
}
