//! Names that a reader, or a model, takes for another one.

use std::collections::BTreeMap;

use super::claim::{Claim, Named};
use crate::{Guild, Tool};

/// Names of tools that the format has, whether or not this version does.
const FURTHER: [&str; 2] = ["fetch_url", "ask_human"];
/// A name shorter than this is near to too many others.
const LEAST: usize = 5;

/// What is named like something else: own tools like built-in ones or like each other, roles like each other.
pub(super) fn claims(guild: &Guild) -> Vec<Claim> {
    let built_in: Vec<&str> = Tool::ALL.into_iter().map(Tool::as_str).chain(FURTHER).collect();
    let mut found = Vec::new();
    for name in guild.tools.keys() {
        if let Some(like) = built_in.iter().find(|built_in| alike(name, built_in)) {
            found.push(Claim::Alias { what: Named::Tool, name: name.clone(), like: (*like).to_owned() });
        }
    }
    twins(Named::Tool, guild.tools.keys().map(String::as_str), &mut found);
    twins(Named::Role, guild.roles.keys().map(|role| role.as_str()), &mut found);
    found
}

/// Names of one kind that look the same: each is told with the first of them.
fn twins<'a>(what: Named, names: impl Iterator<Item = &'a str>, found: &mut Vec<Claim>) {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for name in names {
        let first = *seen.entry(skeleton(name)).or_insert(name);
        if first != name {
            found.push(Claim::Alias { what, name: name.to_owned(), like: first.to_owned() });
        }
    }
}

/// Whether they look the same, or are one slip of the pen apart.
fn alike(name: &str, built_in: &str) -> bool {
    let (ours, theirs) = (skeleton(name), skeleton(built_in));
    // The distance costs the product of the lengths, and is no less than what they differ by.
    let near = theirs.len() >= LEAST && ours.len().abs_diff(theirs.len()) <= 1;
    ours == theirs || (near && strsim::damerau_levenshtein(&ours, &theirs) <= 1)
}

/// A name without what the eye does not tell apart. Names are ASCII.
fn skeleton(name: &str) -> String {
    let folded: String = name
        .to_ascii_lowercase()
        .chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .map(|c| match c {
            '0' => 'o',
            '1' | 'i' | '!' => 'l',
            '5' => 's',
            c => c,
        })
        .collect();
    folded.replace("rn", "m").replace("vv", "w")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w8_names_that_look_like_a_built_in_tool_are_known() {
        for name in ["run_she11", "runshell", "Run__Shell", "run_shel", "read_flle", "flnish", "edit_files"] {
            assert!(Tool::ALL.into_iter().any(|tool| alike(name, tool.as_str())), "{name}");
        }
        for name in ["count_words", "lint", "format_code", "test", "glow", "run_tests", "list_todos"] {
            assert!(!Tool::ALL.into_iter().any(|tool| alike(name, tool.as_str())), "{name}");
        }
    }
}
