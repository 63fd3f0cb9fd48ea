//! The Begin/End Patch envelope.
//!
//! ```text
//!   *** Begin Patch
//!   *** Add File: new.py            every line of it begins with +
//!   *** Delete File: old.py
//!   *** Update File: app.py
//!   *** Move to: main.py            if it is to have another name
//!   @@ def greet():                 a line above the place, if its lines alone are not the only ones
//!    kept
//!   -cut
//!   +added
//!   *** End of File                 if that is where it ends
//!   *** End Patch
//! ```

use super::{FilePatch, Hunk, Kind, Line, at};

pub(super) const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File: ";
const DELETE: &str = "*** Delete File: ";
const UPDATE: &str = "*** Update File: ";
const MOVE: &str = "*** Move to: ";
const LAST: &str = "*** End of File";

pub(super) fn read(lines: &[&str]) -> Result<Vec<FilePatch>, String> {
    let blank = |line: &&&str| line.trim().is_empty();
    let begin = lines.iter().take_while(blank).count() + 1;
    let after = lines.iter().rev().take_while(blank).count();
    let end = lines.len() - after - 1;
    if end < begin || lines[end].trim() != END {
        return Err(format!("the patch does not end with `{END}`"));
    }
    let (mut files, mut n) = (Vec::new(), begin);
    while n < end {
        let line = lines[n];
        if let Some(path) = line.strip_prefix(ADD) {
            let from = n + 1;
            n = from + lines[from..end].iter().take_while(|l| !l.starts_with("*** ")).count();
            let mut text = String::new();
            for (n, line) in lines.iter().enumerate().take(n).skip(from) {
                let Some(added) = line.strip_prefix('+') else {
                    return Err(at(n, "every line of a new file begins with `+`"));
                };
                text.push_str(added);
                text.push('\n');
            }
            files.push(file(path, from - 1, Kind::Create { text, executable: false })?);
        } else if let Some(path) = line.strip_prefix(DELETE) {
            files.push(file(path, n, Kind::Delete { hunks: Vec::new() })?);
            n += 1;
        } else if let Some(path) = line.strip_prefix(UPDATE) {
            let from = n;
            n += 1;
            let to = lines[n].strip_prefix(MOVE).filter(|_| n < end).map(|to| to.trim().to_owned());
            n += usize::from(to.is_some());
            let hunks = hunks(lines, &mut n, end)?;
            if hunks.is_empty() && to.is_none() {
                return Err(at(from, "nothing is changed in this file"));
            }
            files.push(file(path, from, Kind::Update { hunks, to, executable: None })?);
        } else if line.trim().is_empty() {
            n += 1;
        } else {
            return Err(at(n, "expected `*** Add File: `, `*** Update File: ` or `*** Delete File: `"));
        }
    }
    Ok(files)
}

fn file(path: &str, n: usize, kind: Kind) -> Result<FilePatch, String> {
    match path.trim() {
        "" => Err(at(n, "the file has no name")),
        path => Ok(FilePatch { path: path.to_owned(), kind }),
    }
}

fn hunks(lines: &[&str], n: &mut usize, end: usize) -> Result<Vec<Hunk>, String> {
    let mut hunks = Vec::new();
    while *n < end && !(lines[*n].starts_with("*** ") && lines[*n] != LAST) {
        let (from, mut hunk) = (*n, Hunk::default());
        while *n < end
            && let Some(anchor) = lines[*n].strip_prefix("@@")
        {
            let anchor = anchor.trim();
            if !anchor.is_empty() {
                hunk.anchors.push(anchor.to_owned());
            }
            *n += 1;
        }
        while *n < end && !lines[*n].starts_with("@@") && !lines[*n].starts_with("*** ") {
            let line = lines[*n];
            hunk.lines.push(match line.as_bytes().first() {
                Some(b' ') => Line::Keep(line[1..].to_owned()),
                Some(b'-') => Line::Cut(line[1..].to_owned()),
                Some(b'+') => Line::Add(line[1..].to_owned()),
                None => Line::Keep(String::new()),
                Some(_) => {
                    return Err(at(*n, "a line of a change begins with a space, `-` or `+`"));
                }
            });
            *n += 1;
        }
        if *n < end && lines[*n] == LAST {
            hunk.at_end = true;
            *n += 1;
        }
        // Blank lines before the next header are the writer's, not the file's.
        let followed = !hunk.at_end && (*n >= end || lines[*n].starts_with("*** "));
        let blank = lines[from..*n].iter().rev().take_while(|line| followed && line.is_empty()).count();
        hunk.lines.truncate(hunk.lines.len().saturating_sub(blank));
        if hunk.lines.iter().all(|line| matches!(line, Line::Keep(_))) {
            return Err(at(from, "this change neither adds nor removes a line"));
        }
        hunks.push(hunk);
    }
    Ok(hunks)
}
