//! What a zip says. Its list at the end and the heads before each content must say the same, byte for byte where
//! it matters; contents may not lie over each other, and nothing may stand before the list, behind it or beside it.
//!
//! Read here and not by a library: those take the list's word and skip the heads, and hold the whole list.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::time::{Duration, SystemTime};

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

use super::unpack::{LONGEST_NAME, Refused, Unpack, broken, entry, unread};

/// Bytes of the list, all together.
const LONGEST_LIST: u64 = 64 << 20;
const END: usize = 22;
const LONGEST_COMMENT: usize = 0xffff;
const LOCATOR: usize = 20;
const WIDE_END: usize = 56;

/// Bits of an entry's flags.
const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
const SIZES_FOLLOW: u16 = 1 << 3;
const PATCH: u16 = 1 << 5;

pub(super) fn read(file: File, out: &mut Unpack<'_>) -> Result<(), Refused> {
    let mut file = BufReader::with_capacity(64 << 10, file);
    out.packed = file.get_ref().metadata().map_err(|e| unread(&e))?.len();
    let list = List::find(&mut file, out.packed)?;
    if list.entries > out.limits().files {
        let most = out.limits().files;
        return Err(Refused::Archive(format!("more than {most} files in all (`limits.files`)")));
    }
    let bytes = at(&mut file, list.start, list.size)?;
    let mut rest = Bytes(&bytes);
    let mut entries = Vec::new();
    for _ in 0..list.entries {
        entries.push(Said::read(&mut rest).ok_or_else(list_is_broken)??);
    }
    if !rest.0.is_empty() {
        return Err(list_is_broken());
    }
    // In the order in which they lie there, so that none can lie over another.
    entries.sort_by_key(|said| said.start);
    let mut free = 0;
    for said in &entries {
        if said.start < free {
            return Err(entry(said.name, "it lies over another entry"));
        }
        let content = said.content(&mut file)?;
        free = content
            .checked_add(said.packed)
            .filter(|end| *end <= list.start)
            .ok_or_else(|| entry(said.name, "its content does not lie in the archive"))?;
        said.unpack(&mut file, out)?;
    }
    Ok(())
}

fn list_is_broken() -> Refused {
    Refused::Archive("its list of entries cannot be read".to_owned())
}

fn at(file: &mut BufReader<File>, start: u64, size: u64) -> Result<Vec<u8>, Refused> {
    let size = usize::try_from(size).map_err(|_| list_is_broken())?;
    let mut bytes = vec![0; size];
    file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(&mut bytes)).map_err(|e| unread(&e))?;
    Ok(bytes)
}

/// Where the list is.
struct List {
    start: u64,
    size: u64,
    entries: u64,
}

impl List {
    fn find(file: &mut BufReader<File>, length: u64) -> Result<List, Refused> {
        let no = |why: &str| Refused::Archive(why.to_owned());
        let tail = length.min(u64::try_from(END + LONGEST_COMMENT + LOCATOR).unwrap_or(u64::MAX));
        let bytes = at(file, length - tail, tail)?;
        // The record whose comment reaches exactly to the end.
        let place = (0..(bytes.len() + 1).saturating_sub(END))
            .rev()
            .find(|i| {
                let comment =
                    bytes.get(i + 20..i + 22).map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])));
                bytes[*i..].starts_with(b"PK\x05\x06") && comment == Some(bytes.len() - i - END)
            })
            .ok_or_else(|| no("it is no zip, or was cut off"))?;
        let mut end = Bytes(&bytes[place + 4..]);
        let mut number = || end.u16().map(u64::from).ok_or_else(list_is_broken);
        let (disk, first, here, entries) = (number()?, number()?, number()?, number()?);
        let (size, start) = end.u32().zip(end.u32()).ok_or_else(list_is_broken)?;
        let end_start = length - tail + u64::try_from(place).unwrap_or(u64::MAX);
        let mut list = List { start: u64::from(start), size: u64::from(size), entries };
        let mut parts = (disk, first, here);
        let mut behind = end_start;
        let locator = place.checked_sub(LOCATOR).and_then(|i| bytes.get(i..place));
        if let Some(locator) = locator.filter(|l| l.starts_with(b"PK\x06\x07")) {
            let mut locator = Bytes(&locator[4..]);
            let (disk, wide_start, disks) = locator.wide_place().ok_or_else(list_is_broken)?;
            let expected = end_start.checked_sub(76);
            if disk != 0 || disks != 1 || Some(wide_start) != expected {
                return Err(no("its end cannot be read: in parts, or with something between"));
            }
            let wide = at(file, wide_start, u64::try_from(WIDE_END).unwrap_or(u64::MAX))?;
            let mut wide = Bytes(wide.strip_prefix(b"PK\x06\x06").ok_or_else(list_is_broken)?);
            let (narrow, other) = (list, wide.wide_end().ok_or_else(list_is_broken)?);
            let agree = |narrow: u64, most: u64, wide: u64| narrow == most || narrow == wide;
            if !agree(narrow.entries, 0xffff, other.1.entries)
                || !agree(narrow.size, 0xffff_ffff, other.1.size)
                || !agree(narrow.start, 0xffff_ffff, other.1.start)
            {
                return Err(no("its two ends do not say the same"));
            }
            (parts, list) = other;
            behind = wide_start;
        }
        if parts != (0, 0, list.entries) {
            return Err(no("it is in several parts"));
        }
        if list.start.checked_add(list.size) != Some(behind) {
            return Err(no("its list is not where it says: something was put before or behind it"));
        }
        if list.size > LONGEST_LIST {
            return Err(no("its list of entries is too long"));
        }
        Ok(list)
    }
}

/// What the list says of an entry.
struct Said<'a> {
    name: &'a [u8],
    /// From which the mode comes, if a Unix made it.
    mode: Option<u32>,
    flags: u16,
    method: u16,
    modified: Option<SystemTime>,
    crc: u32,
    packed: u64,
    size: u64,
    /// Where its head begins.
    start: u64,
}

impl<'a> Said<'a> {
    /// None when it ends too early.
    fn read(bytes: &mut Bytes<'a>) -> Option<Result<Said<'a>, Refused>> {
        bytes.0 = bytes.0.strip_prefix(b"PK\x01\x02")?;
        let (made_by, _needs) = (bytes.u16()?, bytes.u16()?);
        let (flags, method) = (bytes.u16()?, bytes.u16()?);
        let (time, date) = (bytes.u16()?, bytes.u16()?);
        let crc = bytes.u32()?;
        let (packed, size) = (bytes.u32()?, bytes.u32()?);
        let lengths = [bytes.u16()?, bytes.u16()?, bytes.u16()?];
        let (disk, _text) = (bytes.u16()?, bytes.u16()?);
        let (attributes, start) = (bytes.u32()?, bytes.u32()?);
        let [name, extra, _comment] = lengths.map(|n| bytes.take(usize::from(n)));
        let (name, extra) = (name?, extra?);
        _comment?;
        let mut said = Said {
            name,
            mode: (made_by >> 8 == 3).then_some(attributes >> 16),
            flags,
            method,
            modified: dos_time(date, time),
            crc,
            packed: u64::from(packed),
            size: u64::from(size),
            start: u64::from(start),
        };
        let wide = [&mut said.size, &mut said.packed, &mut said.start];
        let checked = extras(name, extra, wide).and_then(|()| said.check(disk));
        Some(checked.map(|()| said))
    }

    fn check(&self, disk: u16) -> Result<(), Refused> {
        let name = self.name;
        let why = if disk != 0 {
            "it lies in another part"
        } else if self.flags & ENCRYPTED != 0 {
            "it is encrypted"
        } else if self.flags & PATCH != 0 {
            "it is a patch to another entry"
        } else if name.len() > LONGEST_NAME {
            "its name is too long"
        } else if name.contains(&b'\\') {
            // A folder for some readers, a part of the name for others.
            "its name has a backslash"
        } else if !matches!(self.method, 0 | 8) {
            return Err(entry(
                name,
                format_args!("it is packed in a way that is not read ({})", self.method),
            ));
        } else if self.method == 0 && self.packed != self.size {
            "two sizes for one entry"
        } else {
            return Ok(());
        };
        Err(entry(name, why))
    }

    /// Where its content begins, once its head has said the same as the list; the file stands there.
    fn content(&self, file: &mut BufReader<File>) -> Result<u64, Refused> {
        let differs = || entry(self.name, "its head and the archive's list do not say the same");
        let fixed = at(file, self.start, 30)?;
        let mut head = Bytes(fixed.strip_prefix(b"PK\x03\x04").ok_or_else(differs)?);
        let read = |head: &mut Bytes<'_>| {
            let (_needs, flags, method) = (head.u16()?, head.u16()?, head.u16()?);
            let (_time, _date) = (head.u16()?, head.u16()?);
            let sums = (head.u32()?, head.u32()?, head.u32()?);
            Some((flags, method, sums, head.u16()?, head.u16()?))
        };
        let (flags, method, (crc, packed, size), name, extra) = read(&mut head).ok_or_else(differs)?;
        let mut more = vec![0; usize::from(name) + usize::from(extra)];
        file.read_exact(&mut more).map_err(|e| entry(self.name, broken(&e)))?;
        let (name, extra) = more.split_at(usize::from(name));
        let (mut packed, mut size) = (u64::from(packed), u64::from(size));
        extras(self.name, extra, [&mut size, &mut packed, &mut 0])?;
        let sums = (crc, packed, size);
        let later = flags & SIZES_FOLLOW != 0 && sums == (0, 0, 0);
        if name != self.name
            || method != self.method
            || flags & (ENCRYPTED | PATCH | SIZES_FOLLOW) != self.flags & (ENCRYPTED | PATCH | SIZES_FOLLOW)
            || !(later || sums == (self.crc, self.packed, self.size))
        {
            return Err(differs());
        }
        self.start.checked_add(30 + u64::try_from(more.len()).unwrap_or(u64::MAX)).ok_or_else(differs)
    }

    fn unpack(&self, file: &mut BufReader<File>, out: &mut Unpack<'_>) -> Result<(), Refused> {
        let name = self.name;
        let kind = self.mode.map_or(0, |mode| mode & 0o170_000);
        let is_folder = name.ends_with(b"/");
        let mode = |usual| self.mode.map(|mode| mode & 0o7777).filter(|mode| *mode != 0).unwrap_or(usual);
        match kind {
            0o040_000 if is_folder => {}
            0 | 0o100_000 => {}
            0o120_000 if !is_folder => {
                let target = self.bytes(file, u64::try_from(LONGEST_NAME).unwrap_or(u64::MAX))?;
                return out.link(name, &target);
            }
            0o040_000 | 0o120_000 => return Err(entry(name, "its name and its kind do not fit")),
            _ => return Err(entry(name, "it is no file, folder or link")),
        }
        if is_folder {
            return match self.size {
                0 => out.folder(name, mode(0o755)),
                _ => Err(entry(name, "content in what holds none")),
            };
        }
        let (size, modified, mode) = (self.size, self.modified, mode(0o644));
        self.with(file, |content| out.file(name, (mode, modified), size, content))
    }

    fn bytes(&self, file: &mut BufReader<File>, most: u64) -> Result<Vec<u8>, Refused> {
        if self.size > most {
            return Err(entry(self.name, "a link that says nothing, or too much"));
        }
        let mut bytes = Vec::new();
        self.with(file, |content| {
            content
                .take(self.size)
                .read_to_end(&mut bytes)
                .map(drop)
                .map_err(|e| entry(self.name, broken(&e)))
        })?;
        Ok(bytes)
    }

    /// Hands out the content, and believes it only when it was all of it and of the right sum.
    fn with(
        &self,
        file: &mut BufReader<File>,
        then: impl FnOnce(&mut dyn Read) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let wrong = || entry(self.name, "its content is not what the archive says: another size or sum");
        let mut packed = file.take(self.packed);
        let mut inflated;
        let content: &mut dyn Read = if self.method == 0 {
            &mut packed
        } else {
            inflated = DeflateDecoder::new(&mut packed);
            &mut inflated
        };
        let mut summed = Summed { crc: Crc::new(), size: 0, content };
        then(&mut summed)?;
        // Where more comes out than was said, it is seen here.
        let over = summed.read(&mut [0]).map_err(|e| entry(self.name, broken(&e)))?;
        let seen = (over, summed.size, summed.crc.sum());
        if seen != (0, self.size, self.crc) || packed.limit() != 0 {
            return Err(wrong());
        }
        Ok(())
    }
}

struct Summed<'a> {
    crc: Crc,
    size: u64,
    content: &'a mut dyn Read,
}

impl Read for Summed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.content.read(buf)?;
        self.crc.update(buf.get(..n).unwrap_or(&[]));
        self.size = self.size.saturating_add(u64::try_from(n).unwrap_or(u64::MAX));
        Ok(n)
    }
}

/// The extensions of an entry: sizes that do not fit in 32 bits. Another name than its own is refused.
fn extras(name: &[u8], extra: &[u8], wide: [&mut u64; 3]) -> Result<(), Refused> {
    let broken = || entry(name, "its extensions cannot be read");
    let mut rest = Bytes(extra);
    let mut seen = false;
    let mut wide = Some(wide);
    // Some writers fill up with less than a head.
    while rest.0.len() >= 4 {
        let (id, length) = rest.u16().zip(rest.u16()).ok_or_else(broken)?;
        let mut value = Bytes(rest.take(usize::from(length)).ok_or_else(broken)?);
        match id {
            0x0001 => {
                for number in wide.take().ok_or_else(broken)? {
                    if *number == 0xffff_ffff {
                        *number = value.u64().ok_or_else(broken)?;
                    }
                }
            }
            0x7075 => {
                let same = value.0.get(5..) == Some(name);
                if std::mem::replace(&mut seen, true) || !same {
                    return Err(entry(name, "two names for one entry"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The clock of DOS, taken for UTC: two seconds to a step, since 1980.
fn dos_time(date: u16, time: u16) -> Option<SystemTime> {
    let (date, time) = (u64::from(date), u64::from(time));
    let (year, month, day) = (1980 + (date >> 9), (date >> 5) & 15, date & 31);
    if !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    // Years that begin in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1;
    // From the first of March of the year 0 to 1970.
    let days = days.checked_sub(719_468)?;
    let seconds = days * 86_400 + (time >> 11) * 3600 + ((time >> 5) & 63) * 60 + (time & 31) * 2;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Little-endian numbers, from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Behind its mark: part, place of the wide end, parts.
    fn wide_place(&mut self) -> Option<(u32, u64, u32)> {
        Some((self.u32()?, self.u64()?, self.u32()?))
    }

    /// Behind its mark: the parts, and the list.
    fn wide_end(&mut self) -> Option<((u64, u64, u64), List)> {
        // One that is longer than it must be would hold what nobody reads.
        if self.u64()? != 44 {
            return None;
        }
        let _versions = self.u32()?;
        let (disk, first) = (u64::from(self.u32()?), u64::from(self.u32()?));
        let (here, entries, size, start) = (self.u64()?, self.u64()?, self.u64()?, self.u64()?);
        Some(((disk, first, here), List { start, size, entries }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_dos_is_read() {
        let seconds = |date, time| {
            dos_time(date, time).unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
        };
        assert_eq!(seconds(0x21, 0), 315_532_800);
        // 2024-02-29 12:34:56
        assert_eq!(seconds((44 << 9) | (2 << 5) | 29, (12 << 11) | (34 << 5) | 28), 1_709_210_096);
        assert_eq!(dos_time(0, 0), None);
    }
}
