//! What a call prints, kept within bounds while it comes.
//!
//! The whole text (masked, up to a bound) goes to a file; the first and the last part of it stay in memory, so
//! that what is shown can be cut in the middle. Memory does not grow with the output.

use std::collections::VecDeque;

use crate::RunError;
use crate::clean::clean;
use crate::mask::{Mask, MaskStream};
use crate::record::{Record, Spool};

/// One stream of a call.
#[derive(Debug)]
pub(crate) struct Keeper {
    stream: MaskStream,
    mask: Mask,
    spool: Spool,
    /// Bytes that each end may hold.
    side: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    seen: u64,
    lines: u64,
    failed: Option<RunError>,
}

/// What may be shown of a stream, and where the rest is.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) artifact: Option<String>,
}

impl Keeper {
    /// `name` must be used once in a run; of the text `most` bytes are kept, and `shown` characters shown at most.
    pub(crate) fn new(record: &Record, name: &str, most: u64, shown: usize) -> Keeper {
        Keeper {
            stream: record.mask().stream(),
            mask: record.mask().clone(),
            spool: record.spool(name, most),
            // A character may take four bytes; of what is not kept, not more than what is.
            side: shown.saturating_mul(4).min(usize::try_from(most).unwrap_or(usize::MAX)),
            head: Vec::new(),
            tail: VecDeque::new(),
            seen: 0,
            lines: 0,
            failed: None,
        }
    }

    /// Takes a piece as it comes.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        let told = self.stream.push(piece);
        self.take(&told);
    }

    fn take(&mut self, bytes: &[u8]) {
        self.seen += count(bytes.len());
        self.lines += newlines(bytes);
        if self.failed.is_none() {
            self.failed = self.spool.push(bytes).err();
        }
        let room = self.side.saturating_sub(self.head.len()).min(bytes.len());
        let (front, rest) = bytes.split_at(room);
        self.head.extend_from_slice(front);
        let last = rest.len().saturating_sub(self.side);
        self.tail.extend(&rest[last..]);
        let over = self.tail.len().saturating_sub(self.side);
        self.tail.drain(..over);
    }

    /// The texts of both streams, `shown` characters together at most; a stream that needs less than half
    /// leaves its rest to the other.
    pub(crate) fn end(mut out: Keeper, mut err: Keeper, shown: usize) -> Result<(Shown, Shown), RunError> {
        let (a, b) = (out.whole()?, err.whole()?);
        let need = |text: &Option<String>| text.as_ref().map_or(usize::MAX, |t| t.chars().count());
        let (need_a, need_b) = (need(&a), need(&b));
        let room_a = shown.saturating_sub(need_b.min(shown / 2));
        let room_b = shown.saturating_sub(need_a.min(room_a));
        Ok((out.show(a, room_a)?, err.show(b, room_b)?))
    }

    /// The text when nothing of it was let go.
    fn whole(&mut self) -> Result<Option<String>, RunError> {
        let rest = self.stream.end();
        self.take(&rest);
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        let kept = count(self.head.len() + self.tail.len());
        Ok((kept == self.seen).then(|| {
            let bytes: Vec<u8> = self.head.iter().chain(&self.tail).copied().collect();
            self.cleaned(&bytes)
        }))
    }

    fn show(mut self, whole: Option<String>, room: usize) -> Result<Shown, RunError> {
        let (front, back) = match whole {
            Some(text) if text.chars().count() <= room => return Ok(Shown { text, artifact: None }),
            Some(text) => (first(&text, room / 2).to_owned(), last(&text, room / 2).to_owned()),
            None => {
                let tail: Vec<u8> = std::mem::take(&mut self.tail).into();
                // The cut may have struck within a character.
                let start = tail.iter().take(3).take_while(|b| **b & 0xc0 == 0x80).count();
                let (head, tail) = (self.cleaned(&self.head), self.cleaned(&tail[start..]));
                (first(&head, room / 2).to_owned(), last(&tail, room / 2).to_owned())
            }
        };
        let bytes = self.seen.saturating_sub(count(front.len() + back.len()));
        let lines = self.lines.saturating_sub(newlines(front.as_bytes()) + newlines(back.as_bytes()));
        let (id, part) = self.spool.keep()?;
        let what = part.map_or("full text".to_owned(), |n| format!("first {n} bytes"));
        let gap = if front.is_empty() || front.ends_with('\n') { "" } else { "\n" };
        let text =
            format!("{front}{gap}[... {bytes} bytes, {lines} lines left out; {what}: artifact {id}]\n{back}");
        Ok(Shown { text, artifact: Some(id) })
    }

    /// Masked once more: a value torn by control characters is whole again without them.
    fn cleaned(&self, bytes: &[u8]) -> String {
        self.mask.text(&clean(bytes))
    }
}

fn first(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(at, _)| &text[..at])
}

fn last(text: &str, chars: usize) -> &str {
    match chars.checked_sub(1) {
        None => "",
        Some(back) => text.char_indices().rev().nth(back).map_or(text, |(at, _)| &text[at..]),
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    count(bytes.iter().filter(|b| **b == b'\n').count())
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunId;
    use serde_json::json;

    fn record(secret: &str) -> (tempfile::TempDir, Record) {
        let dir = tempfile::tempdir().unwrap();
        let id = RunId::new().unwrap();
        let mask = Mask::new([("KEY", secret)]);
        let record = Record::begin(dir.path(), &id, mask, 1 << 20, json!({})).unwrap();
        (dir, record)
    }

    fn shown(record: &Record, out: &[&[u8]], err: &[u8], most: u64, shown: usize) -> (Shown, Shown) {
        let mut a = Keeper::new(record, "1-out", most, shown);
        let mut b = Keeper::new(record, "1-err", most, shown);
        out.iter().for_each(|p| a.push(p));
        b.push(err);
        Keeper::end(a, b, shown).unwrap()
    }

    #[test]
    fn a_short_text_is_shown_whole_and_leaves_no_artifact() {
        let (dir, r) = record("none at all");
        let (out, err) = shown(&r, &[b"hello\n"], b"oops\n", 1000, 100);
        assert_eq!((out.text.as_str(), err.text.as_str()), ("hello\n", "oops\n"));
        assert_eq!(std::fs::read_dir(dir.path().join("artifacts")).unwrap().count(), 0);
    }

    #[test]
    fn w6_a_long_text_shows_head_and_tail_and_is_kept_by_hash() {
        let (dir, r) = record("none at all");
        let text: String = (0..10_000).map(|i| format!("line {i}\n")).collect();
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(997).collect();
        let (out, _) = shown(&r, &pieces, b"", 1 << 20, 200);
        assert!(out.text.starts_with("line 0\n") && out.text.ends_with("line 9999\n"), "{}", out.text);
        let id = out.artifact.unwrap();
        assert!(out.text.contains(&format!("lines left out; full text: artifact {id}]")));
        assert_eq!(std::fs::read_to_string(dir.path().join("artifacts").join(&id)).unwrap(), text);
        assert!(out.text.chars().count() < 400);
    }

    #[test]
    fn the_artifact_is_bounded_and_the_marker_says_so() {
        let (dir, r) = record("none at all");
        let (out, _) = shown(&r, &[&[b'x'; 5000]], b"", 1000, 100);
        assert!(out.text.contains("first 1000 bytes: artifact"));
        let path = dir.path().join("artifacts").join(out.artifact.unwrap());
        assert_eq!(std::fs::metadata(path).unwrap().len(), 1000);
    }

    #[test]
    fn memory_does_not_grow_with_the_output() {
        let (_dir, r) = record("none at all");
        let mut k = Keeper::new(&r, "1-out", 10, 100);
        for _ in 0..1000 {
            k.push(&[b'y'; 10_000]);
        }
        assert!(k.head.len() + k.tail.len() <= 800);
    }

    #[test]
    fn a_stream_with_little_to_say_leaves_its_room_to_the_other() {
        let (_dir, r) = record("none at all");
        let (out, err) = shown(&r, &[&[b'a'; 95]], b"tiny", 1000, 100);
        assert_eq!((out.text.len(), err.text.as_str()), (95, "tiny"));
        let (out, err) = shown(&r, &[b"tiny"], &[b'b'; 96], 1000, 100);
        assert_eq!((out.text.as_str(), err.text.len()), ("tiny", 96));
    }

    #[test]
    fn r58_a_secret_at_the_cut_or_torn_by_escapes_is_masked() {
        let (dir, r) = record("s3cret-value");
        let mut text = vec![b'x'; 395];
        text.extend_from_slice(b"s3cret-value");
        text.extend_from_slice(&[b'y'; 2000]);
        text.extend_from_slice(b"s3cr\x1b[0met-value");
        let (out, _) = shown(&r, &[&text], b"", 1 << 20, 100);
        assert!(!out.text.contains("s3cr") && out.text.ends_with("[masked:KEY]"), "{}", out.text);
        let kept = std::fs::read(dir.path().join("artifacts").join(out.artifact.unwrap())).unwrap();
        assert!(!kept.windows(12).any(|w| w == b"s3cret-value"));
    }

    #[test]
    fn a_cut_inside_a_character_is_mended() {
        let (_dir, r) = record("none at all");
        let text = "é".repeat(5000);
        let (out, _) = shown(&r, &[text.as_bytes()], b"", 1 << 20, 11);
        assert!(!out.text.contains('\u{fffd}'));
    }
}
