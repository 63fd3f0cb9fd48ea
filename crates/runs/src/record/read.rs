//! Reading a record back. It may come from anywhere: nothing is believed, everything is bounded.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde_json::Value;

use crate::beneath::Folder;

/// Longer lines are not ours.
const LONGEST: u64 = 1 << 20;
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
            events.push(value);
        }
    }
    Ok(events)
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
