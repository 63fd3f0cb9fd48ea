//! Objects of git in one pack, written by us: blobs of files, trees of folders, one commit.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use sha1::{Digest, Sha1};

/// The name of an object.
pub(super) type Id = [u8; 20];

/// What an object is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Object {
    Commit,
    Tree,
    Blob,
}

/// An object as it stands in a pack. None when `content` is not `size` bytes long.
pub(super) fn packed(
    object: Object,
    size: u64,
    content: &mut dyn Read,
    out: &mut dyn Write,
) -> io::Result<Option<Id>> {
    let (number, word) = match object {
        Object::Commit => (1u64, "commit"),
        Object::Tree => (2, "tree"),
        Object::Blob => (3, "blob"),
    };
    let byte = |n: u64| u8::try_from(n & 0xff).unwrap_or(0);
    let (mut low, mut rest) = (number << 4 | size & 15, size >> 4);
    while rest > 0 {
        out.write_all(&[byte(low | 0x80)])?;
        (low, rest) = (rest & 0x7f, rest >> 7);
    }
    out.write_all(&[byte(low)])?;
    let mut sum = Sha1::new();
    sum.update(format!("{word} {size}\0"));
    let mut packed = ZlibEncoder::new(out, Compression::fast());
    let mut piece = vec![0; 64 << 10];
    let mut seen = 0u64;
    loop {
        let n = content.read(&mut piece)?;
        let Some(bytes) = piece.get(..n).filter(|b| !b.is_empty()) else { break };
        seen += u64::try_from(n).unwrap_or(u64::MAX);
        sum.update(bytes);
        packed.write_all(bytes)?;
    }
    packed.finish()?;
    Ok((seen == size).then(|| sum.finalize().into()))
}

/// A pack that is being written.
pub(super) struct Pack {
    out: io::BufWriter<File>,
    /// Where each object is, and the sum of its bytes there.
    places: BTreeMap<Id, (u64, u32)>,
    end: u64,
}

impl Pack {
    pub(super) fn begin(file: File) -> io::Result<Pack> {
        let mut out = io::BufWriter::with_capacity(256 << 10, file);
        // How many there are is written when that is known.
        out.write_all(b"PACK\0\0\0\x02\0\0\0\0")?;
        Ok(Pack { out, places: BTreeMap::new(), end: 12 })
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.end
    }

    /// Adds what [`packed`] made.
    pub(super) fn add(&mut self, id: Id, bytes: &[u8]) -> io::Result<()> {
        if self.places.contains_key(&id) {
            return Ok(());
        }
        let mut sum = Crc::new();
        sum.update(bytes);
        self.out.write_all(bytes)?;
        self.places.insert(id, (self.end, sum.sum()));
        self.end += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Packs an object on the way. None as for [`packed`]; the pack is of no use then.
    pub(super) fn stream(
        &mut self,
        object: Object,
        size: u64,
        content: &mut dyn Read,
    ) -> io::Result<Option<Id>> {
        let mut through = Through { out: &mut self.out, sum: Crc::new(), size: 0 };
        let id = packed(object, size, content, &mut through)?;
        let (sum, size) = (through.sum.sum(), through.size);
        match id {
            Some(id) if self.places.contains_key(&id) => {
                self.out.seek(SeekFrom::Start(self.end))?;
                self.out.get_ref().set_len(self.end)?;
            }
            Some(id) => {
                self.places.insert(id, (self.end, sum));
                self.end += size;
            }
            None => {}
        }
        Ok(id)
    }

    /// Writes the end; hands back the file, the list of objects for it, and its name.
    pub(super) fn end(self) -> io::Result<(File, Vec<u8>, String)> {
        let objects = u32::try_from(self.places.len()).map_err(io::Error::other)?;
        let mut file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(8))?;
        file.write_all(&objects.to_be_bytes())?;
        file.seek(SeekFrom::Start(0))?;
        let mut sum = Sha1::new();
        let mut piece = vec![0; 256 << 10];
        loop {
            let n = file.read(&mut piece)?;
            let Some(bytes) = piece.get(..n).filter(|b| !b.is_empty()) else { break };
            sum.update(bytes);
        }
        let sum: Id = sum.finalize().into();
        file.write_all(&sum)?;
        Ok((file, list(&self.places, sum), format!("pack-{}", crate::manifest::hex(&sum))))
    }
}

struct Through<'a> {
    out: &'a mut dyn Write,
    sum: Crc,
    size: u64,
}

impl Write for Through<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write_all(bytes)?;
        self.sum.update(bytes);
        self.size += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The list of a pack's objects, version 2: names, sums, places.
fn list(places: &BTreeMap<Id, (u64, u32)>, pack: Id) -> Vec<u8> {
    let mut out = b"\xfftOc\0\0\0\x02".to_vec();
    let mut upto = [0u32; 256];
    for id in places.keys() {
        upto[usize::from(id[0])] += 1;
    }
    let mut sum = 0u32;
    for n in upto {
        sum += n;
        out.extend_from_slice(&sum.to_be_bytes());
    }
    places.keys().for_each(|id| out.extend_from_slice(id));
    places.values().for_each(|(_, sum)| out.extend_from_slice(&sum.to_be_bytes()));
    let mut far = Vec::new();
    for (place, _) in places.values() {
        let near = u32::try_from(*place).ok().filter(|place| place >> 31 == 0).unwrap_or_else(|| {
            far.extend_from_slice(&place.to_be_bytes());
            0x8000_0000 | u32::try_from(far.len() / 8 - 1).unwrap_or(0)
        });
        out.extend_from_slice(&near.to_be_bytes());
    }
    out.extend_from_slice(&far);
    out.extend_from_slice(&pack);
    let sum: Id = Sha1::digest(&out).into();
    out.extend_from_slice(&sum);
    out
}
