//! Reading a record back. It may come from anywhere: nothing is believed, everything is bounded.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde_json::Value;

use crate::beneath::Folder;

/// Longer lines are not ours.
const LONGEST: u64 = 1 << 20;
/// Addresses of one answer that an event is read with; ours are not longer, those of older versions may be.
const ADDRESSES: usize = 32;
/// Lines longer than this are measured by what is held of them.
const HEAVY: usize = 8 << 10;
/// Of `meta.json` and `result.json`.
const LARGEST: u64 = 64 << 20;

/// A line as it stands in the file.
#[derive(Debug)]
pub(crate) struct Line {
    /// Without its newline.
    pub(super) bytes: Vec<u8>,
    pub(super) end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Newline,
    /// The file ends within the line.
    File,
    /// The line is longer than any of ours.
    Bound,
}

/// The lines of a record, one by one; none is held longer than it is looked at.
pub(crate) struct Lines(BufReader<File>);

impl Lines {
    pub(super) fn open(run: &Folder) -> io::Result<Lines> {
        Ok(Lines(BufReader::new(run.file(Path::new("events.jsonl"))?)))
    }
}

impl Iterator for Lines {
    type Item = io::Result<Line>;

    fn next(&mut self) -> Option<io::Result<Line>> {
        let mut bytes = Vec::new();
        match (&mut self.0).take(LONGEST).read_until(b'\n', &mut bytes) {
            Err(e) => return Some(Err(e)),
            Ok(0) => return None,
            Ok(_) => {}
        }
        let end = if bytes.pop_if(|b| *b == b'\n').is_some() {
            End::Newline
        } else if u64::try_from(bytes.len()).is_ok_and(|n| n >= LONGEST) {
            End::Bound
        } else {
            End::File
        };
        Some(Ok(Line { bytes, end }))
    }
}

/// Events that can be read, at most `most`; whatever cannot be read is left out.
pub(crate) fn events(run: &Folder, most: usize) -> io::Result<Vec<Value>> {
    let mut events = Vec::new();
    for line in Lines::open(run)?.take(most) {
        let line = line?;
        if let (End::Newline, Ok(value)) = (line.end, serde_json::from_slice(&line.bytes)) {
            events.push(lighter(value));
        }
    }
    Ok(events)
}

/// The same for who only looks: no more are held than come to `bytes`. Beside them the lines that were looked at.
pub(crate) fn events_within(run: &Folder, most: usize, bytes: usize) -> io::Result<(Vec<Value>, u64)> {
    let (mut events, mut left, mut looked_at) = (Vec::new(), bytes, 0);
    for line in Lines::open(run)?.take(most) {
        let line = line?;
        if let (End::Newline, Ok(value)) = (line.end, serde_json::from_slice(&line.bytes)) {
            let value = lighter(value);
            // What was left out of a line is not held.
            let holds = if line.bytes.len() > HEAVY { value.to_string().len() } else { line.bytes.len() };
            let Some(rest) = left.checked_sub(holds) else { break };
            left = rest;
            events.push(value);
        }
        looked_at += 1;
    }
    Ok((events, looked_at))
}

/// An event without addresses that nobody needs: those beyond the bound are counted in `more_addresses`.
fn lighter(mut event: Value) -> Value {
    if event["type"] != "egress" {
        return event;
    }
    let all = event.get_mut("addresses").and_then(Value::as_array_mut).filter(|all| all.len() > ADDRESSES);
    let Some(all) = all else { return event };
    let more = all.len() - ADDRESSES;
    all.truncate(ADDRESSES);
    all.shrink_to_fit();
    let before = event["more_addresses"].as_u64().unwrap_or_default();
    if let Some(fields) = event.as_object_mut() {
        let more = u64::try_from(more).unwrap_or(u64::MAX).saturating_add(before);
        fields.insert("more_addresses".to_owned(), more.into());
    }
    event
}

/// A whole small file of the run.
pub(super) fn small(run: &Folder, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    run.file(Path::new(name))?.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A JSON file of the run.
pub(crate) fn json(run: &Folder, name: &str) -> io::Result<Value> {
    Ok(serde_json::from_slice(&small(run, name)?)?)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::json;

    use super::*;

    /// A record may be of an older version, or of anybody.
    #[test]
    fn what_is_held_of_long_lines_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let answer: Vec<String> = (0..6000).map(|n| format!("10.1.{}.{}", n / 250, n % 250)).collect();
        let line = json!({"type": "egress", "event": "decided", "addresses": answer}).to_string();
        let mut text = String::new();
        for _ in 0..100 {
            writeln!(text, "{line}").unwrap();
        }
        std::fs::write(folder.path().join("events.jsonl"), &text).unwrap();
        let run = Folder::open(folder.path()).unwrap();
        let all = events(&run, 1000).unwrap();
        assert_eq!((all.len(), &all[99]["more_addresses"]), (100, &json!(6000 - ADDRESSES)));
        let (some, looked_at) = events_within(&run, 1000, 20_000).unwrap();
        assert_eq!(some.len(), usize::try_from(looked_at).unwrap());
        assert!((10..60).contains(&some.len()), "{}", some.len());
        let held: usize = some.iter().map(|event| event.to_string().len()).sum();
        assert!(held <= 20_000, "{held}");
    }
}
