//! Appending to `events.jsonl`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Map, Value};

use super::VERSION;
use crate::RunError;
use crate::clean::cut;
use crate::manifest::sha256;

/// Bytes of a line, its newline included.
pub(super) const LONGEST_LINE: usize = 256 << 10;
/// What `prev` is in the first line.
pub(super) const NOTHING_BEFORE: &str = "0000000000000000000000000000000000000000000000000000000000000000";

const NOFOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    path: PathBuf,
    lines: u64,
    head: String,
    /// Why a line could not be written.
    broken: Option<String>,
    /// The last line is there.
    ended: bool,
}

impl Writer {
    pub(super) fn create(dir: &Path) -> Result<Writer, RunError> {
        let path = dir.join("events.jsonl");
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(RunError::io("create", &path))?;
        Ok(Writer { file, path, lines: 0, head: NOTHING_BEFORE.to_owned(), broken: None, ended: false })
    }

    /// Goes on behind the last whole line of a record that its run left unfinished; half a line behind it is taken
    /// off.
    pub(super) fn reopen(dir: &Path, lines: u64, head: String, bytes: u64) -> Result<Writer, RunError> {
        let path = dir.join("events.jsonl");
        let open = || {
            let file = OpenOptions::new().append(true).custom_flags(NOFOLLOW).open(&path)?;
            file.set_len(bytes)?;
            Ok(file)
        };
        let file = open().map_err(RunError::io("reopen", &path))?;
        Ok(Writer { file, path, lines, head, broken: None, ended: false })
    }

    pub(super) fn append(&mut self, event: &Value) -> Result<(), RunError> {
        if self.ended {
            // Whoever comes late is told so: a line behind the last one would break the record.
            let late = io::Error::other("its last line is written");
            return Err(RunError::io("append to", &self.path)(late));
        }
        let written = self.write(event);
        self.ended = written.is_ok() && event["type"] == "run_end";
        if let Err(e) = &written {
            self.broken.get_or_insert_with(|| e.to_string());
        }
        written.map_err(RunError::io("append to", &self.path))
    }

    /// The file once more, to be saved by somebody else.
    pub(super) fn file(&self) -> Result<File, RunError> {
        self.file.try_clone().map_err(RunError::io("save", &self.path))
    }

    /// Waits until the lines are on the disk.
    pub(super) fn save(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Hash of the last line.
    pub(super) fn head(&self) -> &str {
        &self.head
    }

    fn write(&mut self, event: &Value) -> io::Result<()> {
        if let Some(why) = &self.broken {
            // Half a line may stand there; another behind it would only look like a record.
            return Err(io::Error::other(format!("an earlier line could not be written: {why}")));
        }
        let mut line = Map::new();
        line.insert("v".to_owned(), VERSION.into());
        line.insert("seq".to_owned(), (self.lines + 1).into());
        let ts = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        line.insert("ts".to_owned(), ts.into());
        line.insert("prev".to_owned(), self.head.clone().into());
        if let Value::Object(fields) = event {
            line.extend(fields.clone());
        }
        let mut text = bounded(Value::Object(line))?;
        let head = sha256(&text);
        text.push(b'\n');
        // One write, straight to the system: nothing waits in a buffer of ours.
        self.file.write_all(&text)?;
        self.lines += 1;
        self.head = head;
        Ok(())
    }
}

/// The line's text; long strings and lists in it are cut, harder each time, until it fits.
fn bounded(mut line: Value) -> io::Result<Vec<u8>> {
    let mut strings = LONGEST_LINE / 4;
    loop {
        let text = serde_json::to_vec(&line)?;
        if text.len() < LONGEST_LINE {
            return Ok(text);
        }
        if strings < 64 {
            return Err(io::Error::other("an event does not fit into a line"));
        }
        line = shortened(line, strings);
        strings /= 2;
    }
}

fn shortened(value: Value, strings: usize) -> Value {
    match value {
        Value::String(s) if s.len() > strings => {
            let kept = cut(&s, strings);
            Value::String(format!("{kept}[... {} bytes left out]", s.len() - kept.len()))
        }
        Value::Array(items) => {
            let most = (strings / 16).max(4);
            let more = items.len().saturating_sub(most);
            let mut items: Vec<Value> = items.into_iter().take(most).map(|v| shortened(v, strings)).collect();
            if more > 0 {
                items.push(format!("[... {more} left out]").into());
            }
            Value::Array(items)
        }
        Value::Object(map) => {
            let most = (strings / 16).max(24);
            let more = map.len().saturating_sub(most);
            let mut map: Map<String, Value> = map
                .into_iter()
                .take(most)
                .map(|(k, v)| (cut(&k, strings).to_owned(), shortened(v, strings)))
                .collect();
            if more > 0 {
                map.insert("...".to_owned(), format!("{more} left out").into());
            }
            Value::Object(map)
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_never_grows_beyond_its_bound() {
        for big in [
            json!({"a": "é".repeat(1 << 20)}),
            json!({"a": vec!["x".repeat(1000); 5000]}),
            json!({"a": vec![vec!["y"; 300]; 300]}),
            json!({"a": (0..30_000).map(|i| (i.to_string(), json!(i))).collect::<Map<_, _>>()}),
        ] {
            let text = bounded(big).unwrap();
            assert!(text.len() < LONGEST_LINE);
            assert!(String::from_utf8(text).unwrap().contains("left out"));
        }
    }

    #[test]
    fn a_record_is_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        Writer::create(dir.path()).unwrap();
        assert!(Writer::create(dir.path()).is_err());
    }
}
