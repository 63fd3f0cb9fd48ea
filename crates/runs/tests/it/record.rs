//! What is written down, and what never is.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use policy::{Decision, StopReason};
use runs::{Checked, Event, Mask, Record, RunId, Standing};
use serde_json::{Value, json};

/// A record of a run in a store of its own.
pub(crate) struct Written {
    pub(crate) store: tempfile::TempDir,
    pub(crate) id: RunId,
    pub(crate) dir: PathBuf,
    pub(crate) record: Record,
}

impl Written {
    pub(crate) fn begin(mask: Mask) -> Written {
        let store = tempfile::tempdir().unwrap();
        let id = RunId::new().unwrap();
        let dir = store.path().join(id.as_str());
        fs::create_dir(&dir).unwrap();
        let record = Record::begin(&dir, &id, mask, 1 << 20, json!({"started": "now"})).unwrap();
        Written { store, id, dir, record }
    }

    /// A complete record with a call, an artifact and a patch.
    pub(crate) fn whole() -> Written {
        let w = Written::begin(Mask::new([]));
        w.call("echo");
        let patch_sha256 = w.record.patch(b"a patch\n").unwrap();
        let (refused, artifacts) = (Vec::new(), Vec::new());
        w.record
            .append(&Event::Collect {
                added: 0,
                changed: 0,
                deleted: 0,
                renamed: 0,
                refused,
                artifacts,
                patch_sha256,
                changes_artifact: None,
                base_artifact: None,
                took_us: 0,
            })
            .unwrap();
        w.end();
        assert_eq!(w.verify().standing, Standing::Whole, "{:?}", w.verify().findings);
        w
    }

    pub(crate) fn call(&self, word: &str) {
        let artifact = self.record.artifact(format!("output of {word}").as_bytes()).unwrap();
        let (tool, job) = ("exec".to_owned(), json!({"exec": {"argv": [word]}}));
        self.record
            .append(&Event::ToolStart {
                call: 1,
                tool,
                job,
                stdin_artifact: None,
                timeout_ms: 1,
                output_bytes: 1,
            })
            .unwrap();
        self.record
            .append(&Event::ToolEnd { call: 1, outcome: json!({}), artifacts: vec![artifact] })
            .unwrap();
    }

    pub(crate) fn end(&self) {
        let head = self.record.end(StopReason::Finished, "done", None).unwrap();
        self.record.result(&json!({"chain_head": head})).unwrap();
    }

    pub(crate) fn verify(&self) -> Checked {
        runs::verify(self.store.path(), self.id.as_str()).unwrap()
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.join("events.jsonl")).unwrap();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    /// Everything in the run's folder, in one heap.
    fn heap(&self) -> Vec<u8> {
        let mut heap = Vec::new();
        for dir in [self.dir.clone(), self.dir.join("artifacts")] {
            for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_file() {
                    heap.extend(fs::read(entry.path()).unwrap());
                }
            }
        }
        heap
    }
}

/// Whoever is late, a connection that is still closing for one, cannot break what is complete.
#[test]
fn nothing_is_written_behind_the_last_line() {
    let w = Written::whole();
    let late =
        Event::RunStart { run_id: w.id.to_string(), meta_sha256: String::new(), manifest_artifact: None };
    let refused = w.record.append(&late).unwrap_err();
    assert!(refused.to_string().contains("append to"), "{refused}");
    assert_eq!(w.verify().standing, Standing::Whole, "{:?}", w.verify().findings);
}

#[test]
fn every_line_carries_version_number_time_and_the_hash_before() {
    let w = Written::whole();
    let lines = w.lines();
    assert_eq!(lines[0]["type"], "run_start");
    assert_eq!(lines[0]["prev"], "0".repeat(64));
    for (i, line) in lines.iter().enumerate() {
        assert_eq!((&line["v"], &line["seq"]), (&json!(2), &json!(i + 1)));
        assert_eq!(line["ts"].as_str().unwrap().len(), "2026-01-01T00:00:00.000Z".len());
    }
    assert_eq!(lines.last().unwrap()["type"], "run_end");
}

#[test]
fn r23_files_of_a_record_are_private() {
    let w = Written::whole();
    let mode = |name: &str| fs::metadata(w.dir.join(name)).unwrap().mode() & 0o777;
    for name in ["meta.json", "events.jsonl", "changes.patch", "result.json"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    assert_eq!(mode("artifacts"), 0o700);
}

#[test]
fn r58_a_key_is_nowhere_in_the_record_in_any_form() {
    let key = "sk-\"q/W7+9zX~abcdef";
    let w = Written::begin(Mask::new([("MODEL_KEY", key)]));
    let coded = json!({"inner": key}).to_string();
    let b64 = "c2stInEvVzcrOXpYfmFiY2RlZg==";
    let all = format!("{key} {coded} {b64}");
    w.record.artifact(all.as_bytes()).unwrap();
    w.record.patch(format!("+{all}\n").as_bytes()).unwrap();
    w.call(&all);
    w.record
        .append(&Event::Decision {
            call: 1,
            role: all.clone(),
            tool: all.clone(),
            decision: Decision::refuse("x", all.clone()),
            layer: "policy",
        })
        .unwrap();
    let head = w.record.end(StopReason::Finished, &all, None).unwrap();
    w.record.result(&json!({"chain_head": head, "summary": all, key: "as a key"})).unwrap();
    let heap = w.heap();
    let escaped = "sk-\\\"q/W7+9zX~abcdef";
    for needle in [key, escaped, "c2stInEvVzcrOXpYfmFiY2RlZ"] {
        assert!(!heap.windows(needle.len()).any(|w| w == needle.as_bytes()), "{needle}");
    }
    assert!(String::from_utf8_lossy(&heap).contains("[masked:MODEL_KEY]"));
    assert_eq!(w.verify().standing, Standing::Whole, "{:?}", w.verify().findings);
}

#[test]
fn a_short_secret_never_breaks_the_chain_of_hashes() {
    // The first digits of the SHA-256 of `x`, and words of the record itself.
    let w = Written::begin(Mask::new([("PIN", "2d71"), ("WORD", "request"), ("END", "run_end")]));
    let body_sha256 = w.record.artifact(b"x").unwrap();
    assert!(body_sha256.starts_with("2d71"));
    let (role, tools) = ("request 2d71".to_owned(), Vec::new());
    w.record.append(&Event::Request { role, step: 1, body_sha256, tools }).unwrap();
    w.end();
    assert_eq!(w.verify().standing, Standing::Whole, "{:?}", w.verify().findings);
    assert_eq!(w.lines()[1]["role"], "[masked:WORD] [masked:PIN]");
}

#[test]
fn an_event_too_long_for_a_line_is_cut_with_a_mark() {
    let w = Written::begin(Mask::new([]));
    let (tool, job) = ("exec".to_owned(), json!({"argv": ["x".repeat(3 << 20)]}));
    w.record
        .append(&Event::ToolStart {
            call: 1,
            tool,
            job,
            stdin_artifact: None,
            timeout_ms: 1,
            output_bytes: 1,
        })
        .unwrap();
    let text = fs::read_to_string(w.dir.join("events.jsonl")).unwrap();
    assert!(text.lines().all(|l| l.len() < 256 << 10));
    assert!(text.contains("bytes left out]"));
}

#[test]
fn an_artifact_too_large_is_cut_with_a_mark() {
    let w = Written::begin(Mask::new([]));
    let id = w.record.artifact(&vec![b'x'; 3 << 20]).unwrap();
    let kept = fs::read(w.dir.join("artifacts").join(id)).unwrap();
    assert!(kept.len() < (1 << 20) + 100 && kept.ends_with(b"bytes left out]\n"));
}

#[test]
fn two_records_never_share_a_folder() {
    let w = Written::whole();
    assert!(Record::begin(&w.dir, &w.id, Mask::new([]), 1, json!({})).is_err());
    assert_eq!(w.verify().standing, Standing::Whole);
}
