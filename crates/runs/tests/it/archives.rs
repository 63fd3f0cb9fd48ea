//! Archives from hostile hands: what no honest one has is refused by the name of the entry, and nothing is left.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use policy::Limits;
use runs::{RunError, Workspace};

use crate::{Place, collect, notes};

/// A tar, block by block.
#[derive(Default)]
struct Tar(Vec<u8>);

impl Tar {
    fn entry(self, kind: u8, name: &str, target: &str, content: &[u8]) -> Tar {
        let size = content.len();
        self.head(kind, name, target, &format!("{size:011o}\0"), "0000644\0").content(content)
    }

    fn file(self, name: &str, content: &str) -> Tar {
        self.entry(b'0', name, "", content.as_bytes())
    }

    fn head(mut self, kind: u8, name: &str, target: &str, size: &str, mode: &str) -> Tar {
        let mut head = [0u8; 512];
        let mut put = |at: usize, text: &[u8]| head[at..at + text.len()].copy_from_slice(text);
        put(0, name.as_bytes());
        put(100, mode.as_bytes());
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, size.as_bytes());
        put(136, b"14371573760\0");
        put(156, &[kind]);
        put(157, target.as_bytes());
        put(257, b"ustar\x0000");
        put(148, b"        ");
        let sum: u32 = head.iter().map(|b| u32::from(*b)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&head);
        self
    }

    fn content(mut self, content: &[u8]) -> Tar {
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// Extensions before the next entry.
    fn pax(self, lines: &[(&str, &str)]) -> Tar {
        self.entry(b'x', "pax", "", pax(lines).as_bytes())
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

fn pax(lines: &[(&str, &str)]) -> String {
    let line = |(key, value): &(&str, &str)| {
        let rest = key.len() + value.len() + 3;
        let length = (rest + 1..rest + 9).find(|n| n.to_string().len() + rest == *n).unwrap();
        format!("{length} {key}={value}\n")
    };
    lines.iter().map(line).collect()
}

/// An entry of a zip, and what its head says where that differs.
#[derive(Clone)]
struct Zipped<'a> {
    name: &'a str,
    head_name: Option<&'a str>,
    mode: u32,
    flags: u16,
    method: u16,
    size: u32,
    crc: Option<u32>,
    extra: Vec<u8>,
    content: Vec<u8>,
    start: Option<u32>,
}

fn zipped<'a>(name: &'a str, content: &[u8]) -> Zipped<'a> {
    Zipped {
        name,
        head_name: None,
        mode: 0o100_644,
        flags: 0,
        method: 0,
        size: content.len().try_into().unwrap(),
        crc: None,
        extra: Vec::new(),
        content: content.to_vec(),
        start: None,
    }
}

fn deflated<'a>(name: &'a str, content: &[u8]) -> Zipped<'a> {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    packed.write_all(content).unwrap();
    let crc = Some(crc(content));
    Zipped { method: 8, crc, content: packed.finish().unwrap(), ..zipped(name, content) }
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn zip(entries: &[Zipped<'_>]) -> Vec<u8> {
    let (mut out, mut list) = (Vec::new(), Vec::new());
    let short = |n: usize| u16::try_from(n).unwrap().to_le_bytes();
    let long = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
    for e in entries {
        let start = e.start.unwrap_or(u32::try_from(out.len()).unwrap());
        let crc = e.crc.unwrap_or_else(|| crc(&e.content));
        let sums = [crc.to_le_bytes(), long(e.content.len()), e.size.to_le_bytes()].concat();
        let head = e.head_name.unwrap_or(e.name);
        let common = |extra: usize, name: &str| {
            [
                &e.flags.to_le_bytes()[..],
                &e.method.to_le_bytes(),
                &[0; 4],
                &sums,
                &short(name.len()),
                &short(extra),
            ]
            .concat()
        };
        if e.start.is_none() {
            out.extend([b"PK\x03\x04\x14\0", &common(0, head)[..], head.as_bytes(), &e.content].concat());
        }
        list.extend([b"PK\x01\x02\x14\x03\x14\0", &common(e.extra.len(), e.name)[..], &[0; 6]].concat());
        list.extend(
            [&(e.mode << 16).to_le_bytes()[..], &start.to_le_bytes(), e.name.as_bytes(), &e.extra].concat(),
        );
    }
    let (start, count) = (out.len(), short(entries.len()));
    out.extend_from_slice(&list);
    out.extend(
        [&b"PK\x05\x06\0\0\0\0"[..], &count, &count, &long(list.len()), &long(start), &[0; 2]].concat(),
    );
    out
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn take(place: &Place, name: &str, bytes: &[u8], limits: &Limits) -> Result<Workspace, RunError> {
    let archive = place.source.join(name);
    fs::write(&archive, bytes).unwrap();
    Workspace::import(Some(&archive), &place.work, &place.store, limits, None, &|_, _| true)
}

/// The reason of a refusal, after which nothing may be left.
fn refused_with(name: &str, bytes: &[u8], limits: &Limits) -> String {
    let place = Place::new();
    let beside = place.work.parent().unwrap().to_owned();
    let reason = take(&place, name, bytes, limits).unwrap_err().to_string();
    let mut left: Vec<PathBuf> = fs::read_dir(&beside).unwrap().map(|e| e.unwrap().path()).collect();
    left.sort();
    assert_eq!(left, [place.source.clone(), place.store.clone()], "{reason}");
    assert_eq!(fs::read_dir(&place.source).unwrap().count(), 1, "{reason}");
    assert_eq!(fs::read_dir(&place.store).unwrap().count(), 0, "{reason}");
    reason
}

fn tar_refused(tar: Tar, why: &str) {
    let reason = refused_with("a.tar", &tar.end(), &Limits::default());
    assert!(reason.contains(why), "{reason}");
}

fn zip_refused(entries: &[Zipped<'_>], why: &str) {
    let reason = refused_with("a.zip", &zip(entries), &Limits::default());
    assert!(reason.contains(why), "{reason}");
}

fn text(place: &Place, name: &str) -> String {
    fs::read_to_string(place.work.join(name)).unwrap()
}

fn honest() -> Tar {
    Tar::default()
        .entry(b'g', "pax_global_header", "", pax(&[("comment", "of a commit")]).as_bytes())
        .entry(b'5', "top/", "", b"")
        .file("top/file", "1\n2\n")
        .head(b'0', "top/tool", "", "00000000001\0", "0000755\0")
        .content(b"x")
        .entry(b'2', "top/link", "file", b"")
        .entry(b'1', "top/hard", "top/file", b"")
        .pax(&[("path", &format!("top/{}", "long/".repeat(60))), ("mtime", "1.5")])
        .entry(b'5', "short", "", b"")
        .entry(b'L', "././@LongLink", "", &[b"top/", &[b'n'; 200][..], b"\0"].concat())
        .file("top/nnn", "long")
}

#[test]
fn a_tar_is_a_source_like_the_folder_it_was_made_of() {
    for (name, bytes) in [("a.tar", honest().end()), ("a.TGZ", gz(&honest().end()))] {
        let place = Place::new();
        let workspace = take(&place, name, &bytes, &Limits::default()).unwrap();
        assert_eq!(text(&place, "top/file"), "1\n2\n");
        assert_eq!(text(&place, "top/hard"), "1\n2\n");
        assert_eq!(text(&place, &format!("top/{}", "n".repeat(200))), "long");
        assert!(place.work.join("top").join("long/".repeat(60)).is_dir());
        assert_eq!(fs::read_link(place.work.join("top/link")).unwrap(), Path::new("file"));
        let meta = |name: &str| fs::metadata(place.work.join(name)).unwrap();
        assert_eq!((meta("top/tool").mode() & 0o777, meta("top/file").mode() & 0o777), (0o755, 0o644));
        assert_eq!((meta("top/file").nlink(), meta("top/hard").nlink()), (1, 1));
        assert_eq!(meta("top/file").mtime(), 0o14_371_573_760);
        assert!(notes(&workspace).is_empty());
        fs::write(place.work.join("top/file"), "1\n3\n").unwrap();
        let changes = collect(&workspace);
        assert_eq!(changes.summary.changed, ["top/file"]);
        let patch = String::from_utf8(changes.patch).unwrap();
        assert!(patch.ends_with("@@ -1,2 +1,2 @@\n 1\n-2\n+3\n"), "{patch}");
    }
}

#[test]
fn a_zip_is_a_source_like_the_folder_it_was_made_of() {
    let place = Place::new();
    let bytes = zip(&[
        Zipped { mode: 0o040_755, ..zipped("top/", b"") },
        deflated("top/file", &b"line\n".repeat(1000)),
        Zipped { mode: 0o100_755, ..zipped("top/deep/tool", b"x") },
        Zipped { mode: 0o120_777, ..zipped("top/link", b"file") },
        Zipped { mode: 0, ..zipped("plain", b"") },
    ]);
    let workspace = take(&place, "a.zip", &bytes, &Limits::default()).unwrap();
    assert_eq!(text(&place, "top/link"), "line\n".repeat(1000));
    let mode = |name: &str| fs::metadata(place.work.join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("top/deep/tool"), mode("plain")), (0o755, 0o644));
    assert!(notes(&workspace).is_empty());
    assert!(collect(&workspace).patch.is_empty());
}

#[test]
fn w7_no_name_in_a_tar_leads_out() {
    tar_refused(Tar::default().file("../evil", "x"), "../evil: its name leaves the archive");
    tar_refused(Tar::default().file("a/../../evil", "x"), "its name leaves the archive");
    tar_refused(Tar::default().file("/tmp/evil", "x"), "/tmp/evil: its name is absolute");
    tar_refused(Tar::default().entry(b'5', "a/..", "", b""), "its name leaves the archive");
    tar_refused(Tar::default().pax(&[("path", "../evil")]).file("good", "x"), "../evil: its name leaves");
    tar_refused(
        Tar::default().entry(b'L', "l", "", b"/evil\0").file("good", "x"),
        "/evil: its name is absolute",
    );
    tar_refused(Tar::default().file("./.", "x"), "it has no name");
    tar_refused(Tar::default().pax(&[("path", "a\0b")]).file("good", "x"), "its name has a zero byte");
    let deep = "d/".repeat(200);
    tar_refused(Tar::default().pax(&[("path", &deep)]).file("x", ""), "nested deeper than");
}

#[test]
fn w1_nothing_is_written_through_a_link_of_a_tar() {
    let place = Place::new();
    let outside = place.store.join("outside");
    let outside = outside.to_str().unwrap();
    let planted = || Tar::default().entry(b'2', "way", outside, b"");
    tar_refused(planted().file("way/evil", "x"), "way/evil: something that is no folder is in the way");
    tar_refused(planted().entry(b'5', "way/", "", b""), "way/: something that is no folder is in the way");
    tar_refused(planted().file("way", "x"), "way: it is there twice");
    tar_refused(planted().entry(b'1', "hard", "way", b""), "hard: a hard link to nothing that came");
    let dangling = Tar::default().entry(b'2', "a", "b/c", b"").file("a/x", "x");
    tar_refused(dangling, "a/x: something that is no folder is in the way");
}

#[test]
fn w7_links_of_an_archive_that_lead_out_do_not_come_in() {
    let place = Place::new();
    let tar = Tar::default().entry(b'2', "abs", "/etc/passwd", b"").entry(b'2', "d/up", "../../x", b"");
    let workspace = take(&place, "a.tar", &tar.end(), &Limits::default()).unwrap();
    assert_eq!(fs::read_dir(&place.work).unwrap().count(), 1);
    assert_eq!(
        notes(&workspace),
        ["abs: left out: a link with an absolute target", "d/up: left out: a link that leaves the workspace"]
    );
}

#[test]
fn w7_hard_links_of_a_tar_lead_only_to_its_own_files() {
    for target in ["/etc/passwd", "../secret", "nothing", "dir", "", "later"] {
        let tar =
            Tar::default().entry(b'5', "dir", "", b"").entry(b'1', "hard", target, b"").file("later", "x");
        tar_refused(tar, "hard: a hard link");
    }
}

#[test]
fn w7_devices_pipes_and_what_else_is_no_file_are_refused() {
    for (kind, why) in [
        (b'3', "it is a device"),
        (b'4', "it is a device"),
        (b'6', "it is a FIFO"),
        (b'S', "a sparse file"),
        (b'7', "it is of the type `7`"),
        (b'M', "it is of the type `M`"),
        (b'D', "it is of the type `D`"),
        (b'V', "it is of the type `V`"),
        (0xff, "it is of the type"),
    ] {
        tar_refused(Tar::default().entry(kind, "odd", "", b""), &format!("odd: {why}"));
    }
    let sparse = Tar::default().pax(&[("GNU.sparse.major", "1"), ("GNU.sparse.name", "x")]);
    tar_refused(sparse.file("giant", "x"), "giant: a sparse file");
}

#[test]
fn what_two_readers_of_a_tar_would_read_in_two_ways_is_refused() {
    let same = |content: &str| Tar::default().file("a", "x").file("./a", content);
    tar_refused(same("y"), "./a: it is there twice");
    tar_refused(Tar::default().file("a", "x").file("a/b", "y"), "a/b: something that is no folder");
    // A size that is told otherwise beside the head: one reader sees what follows, another sees content.
    let hidden = Tar::default().file("hidden", "evil").0;
    tar_refused(
        Tar::default().pax(&[("size", "0")]).entry(b'0', "a", "", &hidden),
        "a: two sizes for one entry",
    );
    tar_refused(
        Tar::default().pax(&[("size", "1024")]).entry(b'0', "a", "", b""),
        "a: two sizes for one entry",
    );
    tar_refused(
        Tar::default().pax(&[("path", "b"), ("path", "c")]).file("a", ""),
        "extensions that cannot be read",
    );
    tar_refused(Tar::default().pax(&[("path", "b")]).pax(&[("path", "c")]).file("a", ""), "two lists");
    let both = Tar::default().entry(b'L', "l", "", b"b\0").pax(&[("path", "c")]).file("a", "");
    tar_refused(both, "two long names for one entry");
    let global = Tar::default().entry(b'g', "g", "", pax(&[("path", "evil")]).as_bytes()).file("a", "");
    tar_refused(global, "extensions for all entries");
    tar_refused(Tar::default().file("a", "").entry(b'L', "l", "", b"b\0"), "extensions of no entry");
    tar_refused(Tar::default().entry(b'5', "d/", "", b"content"), "d/: content in what holds none");
    tar_refused(Tar::default().entry(b'2', "l", "t", b"content"), "l: content in what holds none");
    let behind = [Tar::default().file("a", "").end(), Tar::default().file("b", "").end()].concat();
    assert!(refused_with("a.tar", &behind, &Limits::default()).contains("something behind its end"));
}

#[test]
fn r44_an_extension_of_a_tar_is_bounded_before_it_is_read() {
    let long = Tar::default().head(b'L', "l", "", "77777777777\0", "0000644\0");
    tar_refused(long, "an extension of 8589934591 bytes");
    let long = Tar::default().head(b'x', "x", "", "00001000000\0", "0000644\0");
    tar_refused(long, "an extension of 262144 bytes");
}

#[test]
fn a_tar_that_was_cut_off_or_bent_is_refused() {
    let whole = honest().end();
    for cut in [whole.len() - 1024, 1000, 100] {
        let reason = refused_with("a.tar", &whole[..cut], &Limits::default());
        assert!(reason.contains("cut off") || reason.contains("cannot be read"), "{cut}: {reason}");
    }
    let packed = gz(&whole);
    let reason = refused_with("a.tar.gz", &packed[..packed.len() - 9], &Limits::default());
    assert!(reason.contains("cannot be read"), "{reason}");
    let mut bent = whole;
    bent[1024] ^= 1;
    assert!(refused_with("a.tar", &bent, &Limits::default()).contains("checksum"));
    assert!(refused_with("a.tgz", b"no gzip", &Limits::default()).contains("cannot be read"));
    assert!(refused_with("a.zip", b"no zip", &Limits::default()).contains("it is no zip, or was cut off"));
    assert!(refused_with("a.tar.xz", b"", &Limits::default()).contains("unpack it first"));
}

#[test]
fn r44_bombs_end_at_the_bounds_whatever_they_say() {
    let limits = Limits { disk: 1 << 20, files: 10, ..Limits::default() };
    let zeros = vec![0; 4 << 20];
    let tar = gz(&Tar::default().entry(b'0', "bomb", "", &zeros).end());
    assert!(
        refused_with("a.tgz", &tar, &limits).contains("bomb: more than 1048576 bytes in all (`limits.disk`)")
    );
    assert!(refused_with("a.zip", &zip(&[deflated("bomb", &zeros)]), &limits).contains("bomb: more than"));
    // It says it is small, and is not.
    let lie = Zipped { size: 10, ..deflated("lie", &zeros) };
    assert!(
        refused_with("a.zip", &zip(&[lie]), &limits)
            .contains("lie: its content is not what the archive says")
    );
    let many = (0..11).fold(Tar::default(), |tar, n| tar.file(&format!("f{n}"), ""));
    assert!(refused_with("a.tar", &many.end(), &limits).contains("f10: more than 10 files in all"));
    let folders = Tar::default().file("a/b/c/d/e/f/g/h/i/j/k", "");
    assert!(refused_with("a.tar", &folders.end(), &limits).contains("more than 10 files in all"));
    let many: Vec<_> = (0..11).map(|n| format!("f{n}")).collect();
    let many: Vec<_> = many.iter().map(|n| zipped(n, b"")).collect();
    assert!(refused_with("a.zip", &zip(&many), &limits).contains("more than 10 files in all"));
    // Hard links to one large file take as much as they say.
    let hard = Tar::default().entry(b'0', "f", "", &zeros[..600 << 10]).entry(b'1', "g", "f", b"");
    assert!(refused_with("a.tar", &hard.end(), &limits).contains("g: more than"));
    // Nothing but what is behind the end, or extensions.
    let endless = gz(&[Tar::default().file("a", "").end(), vec![0; 32 << 20]].concat());
    assert!(refused_with("a.tgz", &endless, &limits).contains("more than the limits allow"));
}

#[test]
fn r44_an_archive_that_unpacks_to_far_more_than_its_size_is_refused() {
    let zeros = vec![0; 80 << 20];
    let tar = gz(&Tar::default().entry(b'0', "bomb", "", &zeros).end());
    let reason = refused_with("a.tgz", &tar, &Limits::default());
    assert!(reason.contains("bomb: the archive unpacks to more than 200 times its size"), "{reason}");
}

#[test]
fn an_archive_inside_an_archive_is_a_file() {
    let place = Place::new();
    let inner = gz(&Tar::default().file("x", "x").end());
    let outer = Tar::default().entry(b'0', "inner.tgz", "", &inner);
    take(&place, "a.tar", &outer.end(), &Limits::default()).unwrap();
    assert_eq!(fs::read(place.work.join("inner.tgz")).unwrap(), inner);
}

#[test]
fn w7_no_name_in_a_zip_leads_out() {
    zip_refused(&[zipped("../evil", b"x")], "../evil: its name leaves the archive");
    zip_refused(&[zipped("/evil", b"x")], "/evil: its name is absolute");
    zip_refused(&[zipped("a\\..\\evil", b"x")], "its name has a backslash");
    zip_refused(&[zipped("a\0b", b"x")], "its name has a zero byte");
    let link = Zipped { mode: 0o120_777, ..zipped("way", b"/tmp") };
    zip_refused(
        &[link.clone(), zipped("way/evil", b"x")],
        "way/evil: something that is no folder is in the way",
    );
    zip_refused(&[link.clone(), zipped("way", b"x")], "way: it is there twice");
    zip_refused(
        &[Zipped { mode: 0o120_777, ..zipped("l", &[b'x'; 5000]) }],
        "l: a link that says nothing, or too",
    );
    zip_refused(&[Zipped { mode: 0o120_777, ..zipped("l", b"") }], "l: a link that says nothing, or too");
}

#[test]
fn w7_what_is_no_file_in_a_zip_is_refused() {
    for mode in [0o020_644, 0o060_644, 0o010_644, 0o140_644] {
        zip_refused(&[Zipped { mode, ..zipped("odd", b"") }], "odd: it is no file, folder or link");
    }
    zip_refused(&[Zipped { mode: 0o120_777, ..zipped("l/", b"x") }], "l/: its name and its kind do not fit");
    zip_refused(&[zipped("d/", b"x")], "d/: content in what holds none");
    for (flags, why) in [(1, "it is encrypted"), (1 << 6, "it is encrypted"), (1 << 5, "it is a patch")] {
        zip_refused(&[Zipped { flags, ..zipped("f", b"x") }], &format!("f: {why}"));
    }
    zip_refused(
        &[Zipped { method: 12, ..zipped("f", b"x") }],
        "f: it is packed in a way that is not read (12)",
    );
}

#[test]
fn what_two_readers_of_a_zip_would_read_in_two_ways_is_refused() {
    zip_refused(&[zipped("a", b"x"), zipped("a", b"y")], "a: it is there twice");
    let other = Zipped { head_name: Some("evil"), ..zipped("good", b"x") };
    zip_refused(&[other], "good: its head and the archive's list do not say the same");
    let named = |name: &str| {
        [&[0x75, 0x70, u8::try_from(5 + name.len()).unwrap(), 0][..], &[1; 5], name.as_bytes()].concat()
    };
    zip_refused(&[Zipped { extra: named("evil"), ..zipped("good", b"x") }], "good: two names for one entry");
    zip_refused(
        &[Zipped { crc: Some(7), ..zipped("f", b"x") }],
        "f: its content is not what the archive says",
    );
    zip_refused(&[Zipped { size: 9, ..zipped("f", b"x") }], "f: two sizes for one entry");
    zip_refused(&[Zipped { size: 9, ..deflated("f", b"x") }], "f: it ends before its size");
    // Fifield's bomb: one content for many names.
    let first = zipped("a", b"x");
    zip_refused(&[first.clone(), Zipped { start: Some(0), ..first }], "a: it lies over another entry");
    let limits = Limits::default();
    let whole = zip(&[zipped("a", b"x")]);
    let before = [b"#!/bin/sh\n".to_vec(), whole.clone()].concat();
    assert!(refused_with("a.zip", &before, &limits).contains("its list is not where it says"));
    let behind = [whole.clone(), b"evil".to_vec()].concat();
    assert!(refused_with("a.zip", &behind, &limits).contains("it is no zip, or was cut off"));
    let mut fewer = whole.clone();
    let end = fewer.len() - 22;
    fewer[end + 8..end + 12].copy_from_slice(&[0; 4]);
    assert!(refused_with("a.zip", &fewer, &limits).contains("its list of entries cannot be read"));
    let mut parts = whole;
    parts[end + 4] = 1;
    assert!(refused_with("a.zip", &parts, &limits).contains("in several parts"));
}

/// Sizes of 64 bits are read where they are needed, and both ends must say the same.
#[test]
fn a_zip_with_wide_sizes_is_read() {
    let sizes = [&[1, 0, 16, 0][..], &1u64.to_le_bytes(), &1u64.to_le_bytes()].concat();
    let entry = Zipped { extra: sizes, ..zipped("f", b"x") };
    let narrow = zip(&[entry]);
    let (list, end) = (32, narrow.len() - 22);
    let mut wide = narrow[..end].to_vec();
    wide[list + 20..list + 28].copy_from_slice(&[0xff; 8]);
    let size = u64::try_from(end - list).unwrap();
    wide.extend([&b"PK\x06\x06"[..], &44u64.to_le_bytes(), &[45, 3, 45, 0], &[0; 8]].concat());
    wide.extend([1, 1, size, 32].map(u64::to_le_bytes).concat());
    wide.extend(
        [&b"PK\x06\x07\0\0\0\0"[..], &u64::try_from(end).unwrap().to_le_bytes(), &1u32.to_le_bytes()]
            .concat(),
    );
    let mut last = narrow[end..].to_vec();
    last[8..20].copy_from_slice(&[0xff; 12]);
    let good = [wide.clone(), last.clone()].concat();
    let place = Place::new();
    take(&place, "a.zip", &good, &Limits::default()).unwrap();
    assert_eq!(text(&place, "f"), "x");
    last[8..12].copy_from_slice(&[2, 0, 2, 0]);
    let reason = refused_with("a.zip", &[wide, last].concat(), &Limits::default());
    assert!(reason.contains("its two ends do not say the same"), "{reason}");
}

#[test]
fn an_import_of_an_archive_ends_when_told_to_and_leaves_nothing() {
    let place = Place::new();
    let archive = place.source.join("a.tar");
    fs::write(&archive, honest().end()).unwrap();
    let ended =
        Workspace::import(Some(&archive), &place.work, &place.store, &Limits::default(), None, &|_, _| false);
    assert!(matches!(ended, Err(RunError::Cancelled)), "{ended:?}");
    assert!(!place.work.exists() && !place.work.with_file_name("originals").exists());
}

#[test]
fn r34_a_hostile_name_in_an_archive_cannot_drive_a_terminal() {
    let tar = Tar::default().file("\x1b[2J/../x", "x").end();
    assert!(!refused_with("a.tar", &tar, &Limits::default()).contains('\x1b'));
}
