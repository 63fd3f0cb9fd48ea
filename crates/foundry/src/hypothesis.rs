//! What a branch claims: which change would make the Guild better, and why. Somebody's own words, proving nothing.
//!
//! A hypothesis may ask for anything, tools that the baseline has not and tools that no version has among it: it is
//! read, kept and shown like every other. What the branch's Guild may really do is for the gate to say.

use policy::narrower::{any_text, has_key};
use runs::Folder;
use serde::{Deserialize, Serialize};

use crate::store::{get, json, word};

pub(crate) const FILE: &str = "hypothesis.json";
/// Bytes of the file.
const MOST: u64 = 64 << 10;
/// Items of a list.
const MOST_ITEMS: usize = 100;

/// The file `hypothesis.json` of a branch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hypothesis {
    /// Of this format: 1.
    pub schema: u32,
    /// What would be better, and why.
    pub statement: String,
    /// The digest of the baseline that it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Who or what proposed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Tools that roles shall have, or have no longer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolChange>,
}

/// Tools of one role that a hypothesis wants changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolChange {
    /// Which role.
    pub role: String,
    /// Tools it shall have; also such as there are none of yet.
    #[serde(default)]
    pub add: Vec<String>,
    /// Tools it needs no longer.
    #[serde(default)]
    pub remove: Vec<String>,
}

/// The one of a branch; none where it has none.
pub(crate) fn read(branch: &Folder) -> Result<Option<Hypothesis>, String> {
    let bytes = match get(branch, FILE, MOST) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(e) => return Err(format!("it cannot be read ({})", word(&e))),
    };
    let secret = || "it holds what looks like a key; nothing of it is shown".to_owned();
    let value = json(&bytes).map_err(|why| if has_key(&why) { secret() } else { why })?;
    // It is shown wherever the branch is, text by text.
    if any_text(&value, &has_key) {
        return Err(secret());
    }
    if !value.is_object() {
        return Err("it is no object".to_owned());
    }
    let read: Hypothesis = serde_json::from_value(value).map_err(|e| e.to_string())?;
    if read.schema != 1 {
        return Err("it is of a format that is not known here; write \"schema\": 1".to_owned());
    }
    let lists = read.tools.iter().flat_map(|change| [change.add.len(), change.remove.len()]);
    if lists.chain([read.tools.len()]).any(|items| items > MOST_ITEMS) {
        return Err(format!("a list has more than {MOST_ITEMS} items"));
    }
    Ok(Some(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Option<Hypothesis>, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), text).unwrap();
        read(&Folder::open(dir.path()).unwrap())
    }

    /// R60
    #[test]
    fn r60_a_hypothesis_may_ask_for_tools_that_nobody_has() {
        let text = r#"{"schema": 1, "statement": "It should look things up.",
            "tools": [{"role": "coder", "add": ["fetch_url", "no_such_tool"], "remove": ["search"]}]}"#;
        let read = of(text).unwrap().unwrap();
        assert_eq!(read.tools[0].add, ["fetch_url", "no_such_tool"]);
    }

    #[test]
    fn anything_else_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "EOF"),
            ("[]", "no object"),
            ("[1, \"x\"]", "no object"),
            (r#"{"schema": 1}"#, "statement"),
            (r#"{"schema": 2, "statement": "x"}"#, "format"),
            (r#"{"schema": 1, "statement": "x", "verdict": "passed"}"#, "verdict"),
            (r#"{"schema": 1, "statement": "x", "statement": "y"}"#, "statement"),
            (r#"{"schema": 1, "statement": null}"#, "null"),
            (r#"{"schema": 1, "statement": "use \u0073k-abcdefghijklmnop"}"#, "looks like a key"),
            (r#"{"schema": 1, "statement": "use\nsk-abcdefghijklmnop"}"#, "looks like a key"),
            (r#"{"schema": 1, "statement": "use\tsk-abcdefghijklmnop"}"#, "looks like a key"),
            (r#"{"schema": 1, "statement": "use\rsk-abcdefghijklmnop"}"#, "looks like a key"),
            (r#"{"schema": 1, "statement": "use\u0000sk-abcdefghijklmnop"}"#, "looks like a key"),
            (r#"{"schema": 1, "statement": "sk-abc\u001b[0mdefghijklmnop"}"#, "looks like a key"),
            (r#"{"schema": 1, "statement": "Bearer\nabcdefgh01234567"}"#, "looks like a key"),
            (r#"{"schema": 1, "statement": "x", "author": "\"\nsk-abcdefghijklmnop"}"#, "looks like a key"),
            (
                r#"{"schema": 1, "statement": "x", "tools": [{"role": "\bsk-abcdefghijklmnop"}]}"#,
                "looks like a key",
            ),
            (r#"{"schema": 1, "statement": "x", "\fsk-abcdefghijklmnop": 1}"#, "looks like a key"),
            (r#"{"sk-abcdefghijklmnop": 1, "sk-abcdefghijklmnop": 2}"#, "looks like a key"),
        ] {
            let said = of(text).unwrap_err();
            assert!(!said.contains("sk-"), "{said}");
            assert!(said.contains(why), "{text}: {said}");
        }
        assert!(of(&" ".repeat(70_000)).unwrap_err().contains("longer"));
        assert!(of(&"[".repeat(50_000)).is_err());
    }
}
