//! A module's memory, read and written within its bounds only.

use super::errno::Errno;

/// Pieces that one call may name.
const MAX_PIECES: u32 = 1024;

/// The linear memory during one call.
pub(super) struct Memory<'a>(pub(super) &'a mut [u8]);

impl Memory<'_> {
    pub(super) fn bytes(&self, at: u32, length: u32) -> Result<&[u8], Errno> {
        let (from, to) = range(at, length)?;
        self.0.get(from..to).ok_or(Errno::FAULT)
    }

    pub(super) fn bytes_mut(&mut self, at: u32, length: u32) -> Result<&mut [u8], Errno> {
        let (from, to) = range(at, length)?;
        self.0.get_mut(from..to).ok_or(Errno::FAULT)
    }

    pub(super) fn u8(&self, at: u32) -> Result<u8, Errno> {
        Ok(self.array::<1>(at)?[0])
    }

    pub(super) fn u16(&self, at: u32) -> Result<u16, Errno> {
        self.array(at).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&self, at: u32) -> Result<u32, Errno> {
        self.array(at).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&self, at: u32) -> Result<u64, Errno> {
        self.array(at).map(u64::from_le_bytes)
    }

    pub(super) fn put(&mut self, at: u32, bytes: &[u8]) -> Result<(), Errno> {
        let length = u32::try_from(bytes.len()).map_err(|_| Errno::FAULT)?;
        self.bytes_mut(at, length)?.copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn put_u32(&mut self, at: u32, value: u32) -> Result<(), Errno> {
        self.put(at, &value.to_le_bytes())
    }

    pub(super) fn put_u64(&mut self, at: u32, value: u64) -> Result<(), Errno> {
        self.put(at, &value.to_le_bytes())
    }

    /// The pieces of a scattered read or write: address and length.
    pub(super) fn pieces(&self, at: u32, count: u32) -> Result<Vec<(u32, u32)>, Errno> {
        if count > MAX_PIECES {
            return Err(Errno::INVAL);
        }
        (0..count)
            .map(|n| {
                let at = offset(at, n * 8)?;
                Ok((self.u32(at)?, self.u32(offset(at, 4)?)?))
            })
            .collect()
    }

    fn array<const N: usize>(&self, at: u32) -> Result<[u8; N], Errno> {
        let length = u32::try_from(N).map_err(|_| Errno::FAULT)?;
        self.bytes(at, length)?.try_into().map_err(|_| Errno::FAULT)
    }
}

/// An address further on, if there is one.
pub(super) fn offset(at: u32, by: u32) -> Result<u32, Errno> {
    at.checked_add(by).ok_or(Errno::FAULT)
}

fn range(at: u32, length: u32) -> Result<(usize, usize), Errno> {
    let from = usize::try_from(at).map_err(|_| Errno::FAULT)?;
    let length = usize::try_from(length).map_err(|_| Errno::FAULT)?;
    Ok((from, from.checked_add(length).ok_or(Errno::FAULT)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_beyond_the_memory_is_read_or_written() {
        let mut bytes = [0u8; 16];
        let mut memory = Memory(&mut bytes);
        assert_eq!(memory.u64(8), Ok(0));
        for at in [9, 16, u32::MAX] {
            assert_eq!(memory.u64(at), Err(Errno::FAULT));
            assert_eq!(memory.put_u64(at, 1), Err(Errno::FAULT));
        }
        assert_eq!(memory.bytes(16, 0), Ok(&[][..]));
        assert_eq!(memory.bytes(1, u32::MAX), Err(Errno::FAULT));
        assert_eq!(memory.pieces(0, u32::MAX), Err(Errno::INVAL));
        assert_eq!(memory.pieces(8, 2), Err(Errno::FAULT));
    }
}
