//! R61: branches of one baseline that are weaker are refused, each for its own code, and those that are not pass.
//!
//! A branch is a file in `tests/branches/weaker` or `neutral`: what is changed in a copy of `baseline`, and the code
//! and place that it must be told with; beside it the codes of all else that refuses it, and none more. A fault has many
//! causes under one code, so its line and a part of its message are there too: a branch that is broken in another way
//! than it says is no proof. Nothing of a branch is run, and nothing is written, whatever it holds.

mod gated;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use policy::narrower::{Code, Severity};
use serde::Deserialize;
use serde_json::Value;

use crate::place::{Place, ran};

const BRANCHES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/branches");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Branch {
    /// `CODE place`, or nothing at all.
    expect: Option<String>,
    /// Codes of what else refuses it: all of them, and each once.
    #[serde(default)]
    also: Vec<String>,
    /// Of a fault the line, where it has one, and a part of its message.
    line: Option<u64>,
    #[serde(default)]
    says: String,
    /// A part of what was, and of what is, in the finding that is expected.
    #[serde(default)]
    was: String,
    #[serde(default)]
    now: String,
    config: Option<String>,
    old_config: Option<String>,
    #[serde(default)]
    edit: Vec<Edit>,
    #[serde(default)]
    write: Vec<Written>,
    #[serde(default)]
    link: Vec<Link>,
    #[serde(default)]
    fifo: Vec<Named>,
    #[serde(default)]
    sparse: Vec<Sparse>,
    #[serde(default)]
    bytes: Vec<Bytes>,
    #[serde(default)]
    repeat: Vec<Repeat>,
}

#[derive(Debug, Deserialize)]
struct Edit {
    file: String,
    old: String,
    new: String,
}

#[derive(Debug, Deserialize)]
struct Written {
    file: String,
    text: String,
}

#[derive(Debug, Deserialize)]
struct Link {
    file: String,
    to: String,
}

#[derive(Debug, Deserialize)]
struct Named {
    file: String,
}

#[derive(Debug, Deserialize)]
struct Sparse {
    file: String,
    bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Bytes {
    file: String,
    hex: String,
}

#[derive(Debug, Deserialize)]
struct Repeat {
    file: String,
    text: String,
    times: usize,
}

fn branches(kind: &str) -> Vec<(String, Branch)> {
    let folder = Path::new(BRANCHES).join(kind);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let named = files.into_iter().map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let branch = toml::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        (name, branch)
    });
    named.collect()
}

/// A copy of the baseline; modules stand there as text.
fn copy(to: &Path) {
    for folder in ["", "prompts", "tools"] {
        fs::create_dir(to.join(folder)).unwrap();
        for entry in fs::read_dir(Path::new(BRANCHES).join("baseline").join(folder)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), to.join(folder).join(entry.file_name())).unwrap();
            }
        }
    }
}

/// Every module of text becomes one.
fn assemble(folder: &Path) {
    for entry in fs::read_dir(folder.join("tools")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "wat") {
            let text = fs::read_to_string(&path).unwrap();
            fs::write(path.with_extension("wasm"), wat::parse_str(text).unwrap()).unwrap();
            fs::remove_file(&path).unwrap();
        }
    }
}

impl Branch {
    fn make(&self, name: &str, folder: &Path) {
        copy(folder);
        for Edit { file, old, new } in &self.edit {
            let text = fs::read_to_string(folder.join(file)).unwrap();
            assert_eq!(text.matches(old.as_str()).count(), 1, "{name}: {old}");
            fs::write(folder.join(file), text.replace(old.as_str(), new)).unwrap();
        }
        for Written { file, text } in &self.write {
            fs::write(folder.join(file), text).unwrap();
        }
        for Repeat { file, text, times } in &self.repeat {
            let more: String = (0..*times).map(|n| text.replace("{n}", &n.to_string())).collect();
            let before = fs::read_to_string(folder.join(file)).unwrap();
            fs::write(folder.join(file), before + &more).unwrap();
        }
        for Bytes { file, hex } in &self.bytes {
            let digits: Vec<u8> = hex.bytes().collect();
            let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            fs::write(folder.join(file), digits.chunks(2).map(byte).collect::<Vec<u8>>()).unwrap();
        }
        let clear = |file: &str| {
            let path = folder.join(file);
            fs::remove_file(&path).ok();
            path
        };
        for Link { file, to } in &self.link {
            std::os::unix::fs::symlink(to, clear(file)).unwrap();
        }
        for Named { file } in &self.fifo {
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o644));
            rustix::fs::mknodat(rustix::fs::CWD, clear(file), kind, mode, 0).unwrap();
        }
        for Sparse { file, bytes } in &self.sparse {
            fs::File::create(clear(file)).unwrap().set_len(*bytes).unwrap();
        }
        assemble(folder);
    }
}

/// A deployment, which opens what the baseline asks for unless it says itself what it opens.
fn opened(config: &str) -> String {
    let network = "[network]\nallow = [\"*.example.com:443\"]\n";
    if config.contains("[network]") { config.to_owned() } else { format!("{config}{network}") }
}

/// What was told of a branch, and the exit code.
fn judged(place: &Place, name: &str, branch: &Branch) -> (Option<i32>, Value) {
    let folder = place.path(format!("new-{name}"));
    branch.make(name, &folder);
    let config = branch.config.clone().unwrap_or_default();
    place.write("new.toml", opened(&config));
    place.write("old.toml", opened(branch.old_config.as_ref().unwrap_or(&config)));
    let new = folder.to_string_lossy().into_owned();
    let ran = ran(&mut place.oubliette([
        "guild",
        "diff",
        "old",
        &new,
        "--config",
        "new.toml",
        "--old-config",
        "old.toml",
        "--json",
    ]));
    assert!(ran.err.is_empty(), "{name}: {}", ran.err);
    (ran.code, ran.json())
}

fn names(place: &Place) -> BTreeSet<String> {
    let entries = fs::read_dir(place.path("")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn place() -> Place {
    let place = Place::quick();
    copy(&place.path("old"));
    assemble(&place.path("old"));
    place.write("new.toml", "");
    place.write("old.toml", "");
    place
}

/// The codes and places of what is wider, and of faults.
fn told(json: &Value, severities: &[&str]) -> BTreeSet<String> {
    let findings = json["findings"].as_array().into_iter().flatten();
    let findings = findings.filter(|f| severities.contains(&text(&f["severity"])));
    let findings =
        findings.map(|f| format!("{} {}", text(&f["code"]), text(&f["place"])).trim_end().to_owned());
    let faults = json["faults"].as_array().into_iter().flatten();
    let faults = faults.map(|f| format!("{} {}", text(&f["code"]), text(&f["key"])).trim_end().to_owned());
    findings.chain(faults).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether the finding that is expected tells what was and what is.
fn tells(json: &Value, branch: &Branch) -> bool {
    let Branch { expect: Some(expect), was, now, .. } = branch else { return true };
    let mut findings = json["findings"].as_array().into_iter().flatten();
    (was.is_empty() && now.is_empty())
        || findings.any(|f| {
            *expect == format!("{} {}", text(&f["code"]), text(&f["place"])).trim_end()
                && text(&f["was"]).contains(was)
                && text(&f["now"]).contains(now)
        })
}

/// Whether the fault that is expected is that very one, by its line and by what it says.
fn is_that_fault(json: &Value, branch: &Branch, expect: &str) -> bool {
    let Branch { line, says, .. } = branch;
    let faults = json["faults"].as_array().into_iter().flatten();
    let mut faults =
        faults.filter(|f| format!("{} {}", text(&f["code"]), text(&f["key"])).trim_end() == expect);
    !says.is_empty()
        && faults.any(|f| f["place"]["line"].as_u64() == *line && text(&f["message"]).contains(says.as_str()))
}

/// The codes of what is told.
fn codes(told: &BTreeSet<String>) -> BTreeSet<&str> {
    told.iter().filter_map(|one| one.split(' ').next()).collect()
}

/// W8, R28, R58, R61: every component, and every disguise.
#[test]
fn r61_a_weaker_branch_is_refused_for_its_own_code_before_anything_runs() {
    let place = place();
    let all = branches("weaker");
    assert!(all.len() >= 90, "{}", all.len());
    let mut wrong = Vec::new();
    for (name, branch) in &all {
        let before = names(&place);
        let (code, json) = judged(&place, name, branch);
        let expect = branch.expect.clone().expect("what it is refused for");
        // A Guild that is not sound is bad input; one that is wider is refused.
        let exit = if expect.starts_with("W-") { 3 } else { 2 };
        let told = told(&json, &["wider"]);
        let own = expect.split(' ').next().into_iter();
        let wanted: BTreeSet<&str> = branch.also.iter().map(String::as_str).chain(own).collect();
        let is_that = tells(&json, branch) && (exit == 3 || is_that_fault(&json, branch, &expect));
        if code != Some(exit) || !told.contains(&expect) || codes(&told) != wanted || !is_that {
            let faults = &json["faults"];
            wrong.push(format!(
                "{name}: exit {code:?}, wanted {expect} and {wanted:?}, told {told:?} {faults}"
            ));
        }
        let mut after = names(&place);
        after.remove(&format!("new-{name}"));
        assert_eq!(before, after, "{name}: something was written");
        fs::remove_dir_all(place.path(format!("new-{name}"))).unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// No code of what is wider is without a branch that is refused for it, but one that no file reaches: the manifest's
/// reader refuses whatever is open, so `W-PARAM-OPEN` is for who compares manifests that were not read here.
#[test]
fn r61_every_code_of_what_is_wider_has_a_branch() {
    let all = branches("weaker");
    let own = |branch: &Branch| branch.expect.as_ref()?.split(' ').next().map(str::to_owned);
    let refused_for: BTreeSet<String> = all.iter().filter_map(|(_, branch)| own(branch)).collect();
    let wider = Code::ALL.into_iter().filter(|code| code.severity() == Severity::Wider);
    let missed: Vec<&str> = wider.map(Code::as_str).filter(|code| !refused_for.contains(*code)).collect();
    assert_eq!(missed, ["W-PARAM-OPEN"]);
}

/// R27, R61, W14: what is no wider passes, and is told.
#[test]
fn r61_a_neutral_or_tighter_branch_passes_and_is_told() {
    let place = place();
    let all = branches("neutral");
    assert!(all.len() >= 20, "{}", all.len());
    let mut wrong = Vec::new();
    for (name, branch) in &all {
        let (code, json) = judged(&place, name, branch);
        let wider = told(&json, &["wider"]);
        let others = told(&json, &["behaviour_only", "narrower"]);
        let as_expected = match &branch.expect {
            Some(expect) => others.contains(expect),
            None => others.is_empty(),
        };
        if code != Some(0) || !wider.is_empty() || !as_expected || !tells(&json, branch) {
            wrong.push(format!(
                "{name}: exit {code:?}, wanted {:?}, wider {wider:?}, {others:?}",
                branch.expect
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
