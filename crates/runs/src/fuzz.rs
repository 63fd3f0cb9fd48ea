//! What hostile bytes reach first, for fuzzing and for the same in small among the tests.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use policy::Limits;

use crate::archive::{self, Format};
use crate::patch::{self, Side};
use crate::{clean, import, manifest, quote};

/// Any bytes as each kind of archive, unpacked into folders in the empty folder `dir`, and there alone.
pub fn archive(bytes: &[u8], dir: &Path) {
    let limits = Limits { disk: 1 << 20, files: 64, ..Limits::default() };
    let (inside, beside) = (dir.join("inside"), dir.join("archive"));
    if std::fs::create_dir(&inside).is_err() || std::fs::write(&beside, bytes).is_err() {
        return;
    }
    for (name, format) in [("tar", Format::Tar), ("gz", Format::TarGzip), ("zip", Format::Zip)] {
        let folder = inside.join(name);
        if std::fs::create_dir(&folder).is_err() {
            continue;
        }
        if let Ok(file) = File::open(&beside)
            && let Err(e) = archive::unpack(Path::new("a"), format, file, &folder, &limits, &|_, _| true)
        {
            let said = e.to_string();
            assert!(said.len() < 4000 && clean(said.as_bytes()) == said, "{said:?}");
        }
    }
    let names = |dir: &Path| std::fs::read_dir(dir).map(Iterator::count).unwrap_or(0);
    assert_eq!((names(dir), names(&inside)), (2, 3), "something is beside the folders");
}

/// Two texts, parted by the first byte 255: the patch between them leads from one to the other.
pub fn patch(bytes: &[u8]) {
    let mut halves = bytes.splitn(2, |b| *b == 0xff);
    let (old, new) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
    let side = |bytes| Side { mode: 0o100_644, bytes };
    let made = patch::file(Path::new("f"), Some(side(old)), Some(side(new)));
    assert_eq!(applied(old, &made).as_deref(), Some(new));
}

/// Any bytes as a name, the target of a link, a list of git's, a manifest.
pub fn path(bytes: &[u8]) {
    let path = Path::new(OsStr::from_bytes(bytes));
    let shown = quote::in_text(path);
    assert!(clean(shown.as_bytes()) == shown, "{shown:?}");
    let named = quote::in_patch("a/", path);
    assert!(named.bytes().all(|b| (b' '..=b'~').contains(&b)), "{named:?}");
    if let Some(beneath) = archive::beneath(bytes) {
        assert!(beneath.components().all(|part| matches!(part, std::path::Component::Normal(_))));
    }
    if manifest::link_leaves(Path::new("d"), path).is_none() {
        assert!(!path.is_absolute() && !path.starts_with("../.."));
    }
    if let Some(read) = manifest::read(bytes) {
        assert_eq!(manifest::read(&manifest::written(&read)), Some(read));
    }
    import::read_index(bytes);
}

/// What a patch of one file makes of it, by the plainest reading there is.
fn applied(old: &[u8], patch: &[u8]) -> Option<Vec<u8>> {
    let old: Vec<&[u8]> = old.split_inclusive(|b| *b == b'\n').collect();
    let (mut out, mut at, mut lines) =
        (Vec::new(), 0, patch.split_inclusive(|b| *b == b'\n').skip(1).peekable());
    while lines.next_if(|line| !line.starts_with(b"@@ ")).is_some() {}
    while let Some(head) = lines.next() {
        let head = std::str::from_utf8(head).ok()?;
        let (from, _) = head.strip_prefix("@@ -")?.split_once(' ')?;
        let (start, count) = from.split_once(',').unwrap_or((from, "1"));
        let (start, count): (usize, usize) = (start.parse().ok()?, count.parse().ok()?);
        let start = if count == 0 { start } else { start.checked_sub(1)? };
        old.get(at..start)?.iter().for_each(|line| out.extend_from_slice(line));
        at = start;
        while let Some(line) = lines.next_if(|line| !line.starts_with(b"@@ ")) {
            let (sign, mut text) = line.split_first()?;
            if lines.next_if(|next| next.starts_with(b"\\ ")).is_some() {
                text = text.strip_suffix(b"\n")?;
            }
            if *sign != b'+' {
                (*old.get(at)? == text).then_some(())?;
                at += 1;
            }
            if *sign != b'-' {
                out.extend_from_slice(text);
            }
        }
    }
    old.get(at..)?.iter().for_each(|line| out.extend_from_slice(line));
    Some(out)
}

#[cfg(test)]
mod tests {
    use testkit::mutated;

    use super::*;

    /// Longest piece of a mutation.
    const PIECE: usize = 600;

    #[test]
    fn archives_of_any_bytes_touch_nothing_outside() {
        let seeds: [&[u8]; 5] = [
            include_bytes!("../../../fuzz/corpus/archive/gnu.tar"),
            include_bytes!("../../../fuzz/corpus/archive/pax.tar"),
            include_bytes!("../../../fuzz/corpus/archive/pax.tar.gz"),
            include_bytes!("../../../fuzz/corpus/archive/a.zip"),
            include_bytes!("../../../fuzz/corpus/archive/stream.zip"),
        ];
        mutated(&seeds, 1500, PIECE, |bytes| archive(bytes, tempfile::tempdir().unwrap().path()));
    }

    /// What ordinary programs write is read.
    #[test]
    fn the_seeds_are_archives() {
        let unpacked = |bytes: &[u8], format| {
            let dir = tempfile::tempdir().unwrap();
            let (file, into) = (dir.path().join("archive"), dir.path().join("into"));
            std::fs::write(&file, bytes).unwrap();
            std::fs::create_dir(&into).unwrap();
            let file = File::open(file).unwrap();
            archive::unpack(Path::new("a"), format, file, &into, &Limits::default(), &|_, _| true).unwrap();
            std::fs::read(into.join("top/hard")).unwrap()
        };
        for (bytes, format) in [
            (&include_bytes!("../../../fuzz/corpus/archive/gnu.tar")[..], Format::Tar),
            (include_bytes!("../../../fuzz/corpus/archive/pax.tar"), Format::Tar),
            (include_bytes!("../../../fuzz/corpus/archive/pax.tar.gz"), Format::TarGzip),
            (include_bytes!("../../../fuzz/corpus/archive/a.zip"), Format::Zip),
        ] {
            assert_eq!(unpacked(bytes, format), b"1\n2\n");
        }
    }

    #[test]
    fn a_patch_between_any_bytes_leads_from_one_to_the_other() {
        let seeds: [&[u8]; 4] = [
            include_bytes!("../../../fuzz/corpus/patch/one"),
            include_bytes!("../../../fuzz/corpus/patch/new"),
            b"@@ -1 +1 @@\n-a\n+b\n\\ no\n\xff--- a\n+++ b\n@@\n",
            b"\n\n\n\n\n\n\n\n\n\n\n\n\xff\n\n\n",
        ];
        mutated(&seeds, 20_000, PIECE, patch);
    }

    #[test]
    fn names_of_any_bytes_are_shown_clean_and_lead_nowhere() {
        let seeds: [&[u8]; 5] = [
            include_bytes!("../../../fuzz/corpus/path/name"),
            include_bytes!("../../../fuzz/corpus/path/up"),
            include_bytes!("../../../fuzz/corpus/path/manifest"),
            include_bytes!("../../../fuzz/corpus/path/index"),
            include_bytes!("../../../fuzz/corpus/path/index4"),
        ];
        mutated(&seeds, 20_000, PIECE, path);
    }
}
