//! A patch in git's style, written by us from bytes alone: no program ever looks at the tree.

use std::path::Path;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline, group_diff_ops};

use crate::quote::in_patch;

/// After this the difference of one file is no longer searched for the shortest, only for a right one.
const PATIENCE: Duration = Duration::from_secs(2);

/// One side of a change: git's mode, and the content (a link's is its target).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'a> {
    pub(crate) mode: u32,
    pub(crate) bytes: &'a [u8],
}

/// A file's part of the patch when it has another path now: with so much of it the same, in percent, and with the
/// contents where they differ.
pub(crate) fn renamed(from: &Path, to: &Path, old: Side<'_>, new: Side<'_>, same: u8) -> Vec<u8> {
    let (a, b) = (in_patch("a/", from), in_patch("b/", to));
    let mut head = format!("diff --git {a} {b}\n");
    if old.mode != new.mode {
        head.push_str(&format!("old mode {:06o}\nnew mode {:06o}\n", old.mode, new.mode));
    }
    head.push_str(&format!("similarity index {same}%\n"));
    head.push_str(&format!("rename from {}\nrename to {}\n", in_patch("", from), in_patch("", to)));
    with_hunks(head, (&a, &b), old.bytes, new.bytes)
}

/// One file's part of the patch. At least one side must be there.
pub(crate) fn file(path: &Path, old: Option<Side<'_>>, new: Option<Side<'_>>) -> Vec<u8> {
    let (a, b) = (in_patch("a/", path), in_patch("b/", path));
    let mut head = format!("diff --git {a} {b}\n");
    match (old, new) {
        (None, Some(new)) => head.push_str(&format!("new file mode {:06o}\n", new.mode)),
        (Some(old), None) => head.push_str(&format!("deleted file mode {:06o}\n", old.mode)),
        (Some(old), Some(new)) if old.mode != new.mode => {
            head.push_str(&format!("old mode {:06o}\nnew mode {:06o}\n", old.mode, new.mode));
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
    // GNU patch takes a change without lines only with this line; the hash of nothing is always the same.
    match (old, new) {
        (None, Some(Side { bytes: [], .. })) => head.push_str("index 0000000..e69de29\n"),
        (Some(Side { bytes: [], .. }), None) => head.push_str("index e69de29..0000000\n"),
        (None | Some(_), None | Some(_)) => {}
    }
    let a = if old.is_some() { &a } else { "/dev/null" };
    let b = if new.is_some() { &b } else { "/dev/null" };
    with_hunks(head, (a, b), old.map_or(&[], |s| s.bytes), new.map_or(&[], |s| s.bytes))
}

fn with_hunks(head: String, (a, b): (&str, &str), old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = head.into_bytes();
    let hunks = hunks(old, new);
    if !hunks.is_empty() {
        out.extend_from_slice(format!("--- {a}\n+++ {b}\n").as_bytes());
        out.extend_from_slice(&hunks);
    }
    out
}

fn hunks(old: &[u8], new: &[u8]) -> Vec<u8> {
    if old == new {
        return Vec::new();
    }
    let (a, b) = (lines(old), lines(new));
    let deadline = Instant::now().checked_add(PATIENCE);
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &a, &b, deadline);
    let mut out = Vec::new();
    for group in group_diff_ops(ops, 3) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let from = span(first.old_range().start, last.old_range().end);
        let to = span(first.new_range().start, last.new_range().end);
        out.extend_from_slice(format!("@@ -{from} +{to} @@\n").as_bytes());
        for op in &group {
            match op {
                DiffOp::Equal { .. } => put(&mut out, b' ', &a[op.old_range()]),
                DiffOp::Delete { .. } | DiffOp::Insert { .. } | DiffOp::Replace { .. } => {
                    put(&mut out, b'-', &a[op.old_range()]);
                    put(&mut out, b'+', &b[op.new_range()]);
                }
            }
        }
    }
    out
}

/// `start,count` as a hunk header counts: from 1, but from the line before when there is none.
fn span(start: usize, end: usize) -> String {
    match end - start {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        n => format!("{},{n}", start + 1),
    }
}

fn put(out: &mut Vec<u8>, sign: u8, lines: &[&[u8]]) {
    for line in lines {
        out.push(sign);
        out.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            out.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}

/// Lines end at a newline and nowhere else, whatever carriage returns a file holds.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|b| *b == b'\n').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(old: &str, new: &str) -> String {
        let side = |bytes: &'static [u8]| Side { mode: 0o100_644, bytes };
        let (old, new) = (old.to_owned().leak().as_bytes(), new.to_owned().leak().as_bytes());
        String::from_utf8(file(Path::new("f"), Some(side(old)), Some(side(new)))).unwrap()
    }

    #[test]
    fn a_change_is_shown_with_its_surroundings() {
        assert_eq!(
            text("a\nb\nc\n", "a\nB\nc"),
            "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n-c\n+B\n+c\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn a_carriage_return_alone_ends_no_line() {
        assert!(text("a\rb\n", "a\rc\n").contains("-a\rb\n+a\rc\n"));
    }

    #[test]
    fn an_empty_new_file_has_a_head_only() {
        let patch = file(Path::new("f"), None, Some(Side { mode: 0o100_755, bytes: b"" }));
        assert_eq!(patch, b"diff --git a/f b/f\nnew file mode 100755\nindex 0000000..e69de29\n");
    }
}
