//! What `.gitignore` files ignore, by git's rules: of the last rule that fits, in the nearest folder that has one.
//!
//! The files are the guest's: they are bounded, read through no link, and what cannot be understood of them is nothing.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};

use super::super::walk::open_regular_in;

/// Its name.
const NAME: &str = ".gitignore";
/// Bytes of such a file that are read.
const MOST_BYTES: u64 = 256 << 10;
/// Rules of such a file that count.
const MOST_RULES: usize = 4000;

/// The rules of one folder, and of those above it.
pub(super) struct Rules {
    above: Option<Arc<Rules>>,
    /// Bytes of a path that name its folder, the slash behind it included.
    base: usize,
    set: GlobSet,
    rules: Vec<Rule>,
}

struct Rule {
    /// `!`: what fits is not ignored.
    negated: bool,
    /// `/` at the end.
    folders: bool,
}

impl Rules {
    /// Reads those of a folder whose path has so many bytes; those above where it has none.
    pub(super) fn read(folder: &OwnedFd, path: &[u8], above: Option<Arc<Rules>>) -> Option<Arc<Rules>> {
        let text = || {
            let fd = open_regular_in(folder, OsStr::new(NAME)).ok()?;
            let mut bytes = Vec::new();
            File::from(fd).take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        };
        let base = if path.is_empty() { 0 } else { path.len() + 1 };
        match text().and_then(|text| Rules::parse(&text, base)) {
            Some(mut rules) => {
                rules.above = above;
                Some(Arc::new(rules))
            }
            None => above,
        }
    }

    fn parse(text: &[u8], base: usize) -> Option<Rules> {
        let (mut set, mut rules) = (GlobSetBuilder::new(), Vec::new());
        for line in text.split(|b| *b == b'\n').take(MOST_RULES) {
            let Some((pattern, rule)) = std::str::from_utf8(line).ok().and_then(rule) else { continue };
            let glob = GlobBuilder::new(&pattern).literal_separator(true).backslash_escape(true).build();
            if let Ok(glob) = glob {
                set.add(glob);
                rules.push(rule);
            }
        }
        if rules.is_empty() {
            return None;
        }
        Some(Rules { above: None, base, set: set.build().ok()?, rules })
    }

    /// Whether an entry of this path, from the workspace on, is ignored.
    pub(super) fn ignores(&self, path: &[u8], is_folder: bool) -> bool {
        let mut hits = Vec::new();
        let mut rules = Some(self);
        while let Some(here) = rules {
            let candidate = Candidate::new(Path::new(OsStr::from_bytes(&path[here.base.min(path.len())..])));
            here.set.matches_candidate_into(&candidate, &mut hits);
            let last = hits.iter().rev().map(|at| &here.rules[*at]).find(|rule| is_folder || !rule.folders);
            if let Some(rule) = last {
                return !rule.negated;
            }
            rules = here.above.as_deref();
        }
        false
    }
}

/// A line as a pattern of whole paths, if it is a rule.
fn rule(line: &str) -> Option<(String, Rule)> {
    let line = trimmed(line.strip_suffix('\r').unwrap_or(line));
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (negated, line) = match line.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (folders, line) = match line.strip_suffix('/') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let anchored = line.contains('/');
    let line = line.strip_prefix('/').unwrap_or(line);
    if line.is_empty() {
        return None;
    }
    let mut pattern = if anchored { String::new() } else { "**/".to_owned() };
    pattern.push_str(&without_braces(line));
    if line.ends_with("/**") {
        // What is in the folder, not the folder.
        pattern.push_str("/*");
    }
    Some((pattern, Rule { negated, folders }))
}

/// Without spaces at its end, unless a backslash keeps one.
fn trimmed(line: &str) -> &str {
    let bare = line.trim_end_matches(' ');
    let kept = bare.ends_with('\\') && bare.len() < line.len();
    if kept { &line[..=bare.len()] } else { bare }
}

/// Braces mean nothing to git.
fn without_braces(pattern: &str) -> String {
    let (mut out, mut chars) = (String::with_capacity(pattern.len()), pattern.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                out.push(c);
                out.extend(chars.next());
            }
            '{' | '}' => {
                out.push('\\');
                out.push(c);
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignores(text: &str, path: &str) -> bool {
        let (path, folder) = match path.strip_suffix('/') {
            Some(path) => (path, true),
            None => (path, false),
        };
        Rules::parse(text.as_bytes(), 0).is_some_and(|rules| rules.ignores(path.as_bytes(), folder))
    }

    #[test]
    fn rules_mean_what_they_mean_to_git() {
        for (text, path, wanted) in [
            ("*.log", "a/b.log", true),
            ("*.log", "b.logs", false),
            ("/build", "build/", true),
            ("/build", "a/build/", false),
            ("build/", "a/build/", true),
            ("build/", "a/build", false),
            ("a/b", "a/b", true),
            ("a/b", "x/a/b", false),
            ("a/*", "a/b", true),
            ("a/*", "a/b/c", false),
            ("**/x/y", "q/x/y", true),
            ("a/**", "a/b/c", true),
            ("a/**", "a/", false),
            ("a/**/z", "a/z", true),
            ("*.o\n!keep.o", "keep.o", false),
            ("!keep.o\n*.o", "keep.o", true),
            ("# no\n\\#yes", "#yes", true),
            ("\\!odd", "!odd", true),
            ("tail ", "tail", true),
            ("tail\\ ", "tail ", true),
            ("{a,b}", "a", false),
            ("{a,b}", "{a,b}", true),
            ("crlf\r\n", "crlf", true),
            ("[ab].c", "b.c", true),
            ("n?", "nx", true),
            // One byte, as to git.
            ("n?", "né", false),
            ("", "a", false),
            ("[", "[", false),
        ] {
            assert_eq!(ignores(text, path), wanted, "{text:?} {path}");
        }
    }

    #[test]
    fn the_nearest_folder_speaks_last() {
        let top = Arc::new(Rules::parse(b"*.gen", 0).unwrap());
        let mut below = Rules::parse(b"!kept.gen", "sub/".len()).unwrap();
        below.above = Some(top);
        assert!(!below.ignores(b"sub/kept.gen", false));
        assert!(below.ignores(b"sub/other.gen", false));
    }

    #[test]
    fn names_that_are_no_text_are_judged_too() {
        let rules = Rules::parse(b"*.log", 0).unwrap();
        assert!(rules.ignores(b"\xff.log", false));
    }
}
