//! The kernel proper out of a distribution's compressed image: Firecracker starts nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use super::{cache, image};
use crate::Host;
use crate::problem::Problem;

/// An ELF file begins so.
const ELF: &[u8] = b"\x7fELF";
/// How packed kernels begin, what unpacks them, and whether the unpacked size stands behind them.
const PACKERS: [(&[u8], &str, bool); 4] = [
    (b"\x02\x21\x4c\x18", "lz4", true),
    (b"\x28\xb5\x2f\xfd", "zstd", true),
    (b"\xfd7zXZ\0", "xz", true),
    (b"\x1f\x8b", "gzip", false),
];
/// More than any kernel.
const LARGEST: u64 = 1 << 30;

/// Unpacks it into the cache, or takes what was unpacked before. The tool runs in a sandbox of its own.
pub(super) async fn make(host: &Host, cache: &Path, packed: &Path) -> Result<PathBuf, Problem> {
    let failed = |e: std::io::Error| Problem::Machine(format!("unpack {}: {e}", packed.display()));
    let path = cache.join(format!("vmlinux-{}", cache::digest(&[cache::stamp(packed).as_bytes()])));
    if path.exists() {
        return Ok(path);
    }
    let whole = fs::read(packed).map_err(failed)?;
    if whole.starts_with(ELF) {
        return Ok(packed.to_path_buf());
    }
    let (payload, tool) = payload(&whole)
        .ok_or_else(|| Problem::Machine(format!("{} is packed in no known way", packed.display())))?;
    let given = cache::Scratch::new(cache).map_err(failed)?;
    // A folder of its own: the one around it is nobody else's to pass through.
    let folder = given.path().join("given");
    fs::create_dir(&folder).map_err(failed)?;
    fs::write(folder.join("payload"), payload).map_err(failed)?;
    cache::give(&folder.join("payload"), 0, 0o644).map_err(failed)?;
    let made = image::unpack(host, cache, &folder, tool, LARGEST).await?;
    let elf = made.path().join("out/image");
    // First: only what is a file is opened.
    cache::give(&elf, 0, 0o644).map_err(failed)?;
    let mut start = [0; 4];
    let read = fs::File::open(&elf).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut start));
    if read.is_err() || start != ELF {
        return Err(Problem::Machine(format!("{} holds no kernel", packed.display())));
    }
    fs::rename(&elf, &path).map_err(failed)?;
    cache::forget_old(cache, "vmlinux-", &path);
    Ok(path)
}

/// The packed kernel within a boot image, as the boot protocol describes it, and its tool.
fn payload(image: &[u8]) -> Option<(&[u8], &'static str)> {
    let number = |at: usize, size: usize| -> Option<usize> {
        let bytes = image.get(at..at.checked_add(size)?)?;
        bytes.iter().rev().try_fold(0_usize, |sum, b| sum.checked_mul(256)?.checked_add(usize::from(*b)))
    };
    // The place of the payload is told since version 2.08.
    if image.get(0x202..0x206)? != b"HdrS" || number(0x206, 2)? < 0x208 {
        return None;
    }
    let sectors = match number(0x1f1, 1)? {
        0 => 4,
        n => n,
    };
    let start = (sectors + 1).checked_mul(512)?.checked_add(number(0x248, 4)?)?;
    let payload = image.get(start..start.checked_add(number(0x24c, 4)?)?)?;
    let (_, tool, sized) = PACKERS.into_iter().find(|(magic, ..)| payload.starts_with(magic))?;
    Some((payload.get(..payload.len() - if sized { 4 } else { 0 })?, tool))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
        image[0x248..0x24c].copy_from_slice(&7_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        image.extend([0xee; 7]);
        image.extend(payload);
        image.extend([0xee; 9]);
        image
    }

    #[test]
    fn the_payload_is_found_without_the_size_behind_it() {
        let found = image(b"\x02\x21\x4c\x18packed\x01\x02\x03\x04");
        assert_eq!(payload(&found), Some((&b"\x02\x21\x4c\x18packed"[..], "lz4")));
        let found = image(b"\x1f\x8bpacked");
        assert_eq!(payload(&found), Some((&b"\x1f\x8bpacked"[..], "gzip")));
    }

    #[test]
    fn what_is_no_boot_image_has_no_payload() {
        let good = image(b"\x1f\x8bpacked");
        for cut in [0, 0x1f1, 0x203, 0x24f, 1024, good.len() - 10] {
            assert_eq!(payload(&good[..cut]), None, "{cut}");
        }
        for (at, byte) in [(0x203, b'x'), (0x207, 1), (0x24b, 0xff), (0x24f, 0xff)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(payload(&bad), None, "{at:#x}");
        }
        assert_eq!(payload(&image(b"rubbish")), None);
    }
}
