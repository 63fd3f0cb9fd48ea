//! Where hunks go in a text, and the text with them.

use super::{Hunk, Line};

/// Comparisons of lines that are worth their time; a hostile patch could ask for billions.
const MAX_WORK: usize = 20_000_000;

/// How a hunk was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Where it says, or at the only place that has its lines.
    Exact { line: usize },
    /// At the only place that has its lines, which is not where it says.
    Moved { line: usize, said: usize },
    /// At the only place that has its lines up to white space.
    Loose { line: usize },
}

/// Why a patch does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Miss {
    /// Which hunk, from 1.
    pub(crate) hunk: usize,
    pub(crate) why: String,
    /// The lines that were looked for, where none were found.
    pub(crate) wanted: Option<String>,
}

impl Fit {
    /// In words.
    pub(crate) fn told(self) -> String {
        match self {
            Fit::Exact { line } => format!("line {line}"),
            Fit::Moved { line, said } => format!("line {line}, not {said} as the patch says"),
            Fit::Loose { line } => format!("line {line}, white space differs"),
        }
    }
}

/// The text with all hunks in their places, and how each was found.
pub(crate) fn apply(before: &str, hunks: &[Hunk]) -> Result<(String, Vec<Fit>), Miss> {
    let lines: Vec<&str> = before.split_inclusive('\n').collect();
    let return_too = lines.first().is_some_and(|line| line.ends_with("\r\n"));
    let (mut after, mut fits) = (String::with_capacity(before.len()), Vec::new());
    let (mut next, mut work) = (0, MAX_WORK);
    for (n, hunk) in hunks.iter().enumerate() {
        let miss = |(why, wanted)| Miss { hunk: n + 1, why, wanted };
        let (at, fit) = find(&lines, hunk, next, &mut work).map_err(miss)?;
        after.extend(lines[next..at].iter().copied());
        next = at;
        for line in &hunk.lines {
            match line {
                Line::Keep(_) => {
                    after.push_str(lines[next]);
                    next += 1;
                }
                Line::Cut(_) => next += 1,
                Line::Add(text) => {
                    if !after.is_empty() && !after.ends_with('\n') {
                        after.push_str(if return_too { "\r\n" } else { "\n" });
                    }
                    after.push_str(text);
                    after.push_str(if return_too && !text.ends_with('\r') { "\r\n" } else { "\n" });
                }
            }
        }
        if hunk.bare_new && next == lines.len() && after.ends_with('\n') {
            after.pop();
        }
        fits.push(fit);
    }
    after.extend(lines[next..].iter().copied());
    Ok((after, fits))
}

type Missed = (String, Option<String>);

/// The line where it begins, counted from 0, at `next` or behind it.
fn find(lines: &[&str], hunk: &Hunk, next: usize, work: &mut usize) -> Result<(usize, Fit), Missed> {
    let old = hunk.old();
    if old.is_empty() {
        return insert(lines, hunk, next).map_err(|why| (why, None));
    }
    let said = hunk.line.map(|line| line.saturating_sub(1));
    for loose in [false, true] {
        let places = places(lines, &old, next, loose, work).ok_or_else(|| {
            ("the file is too large to look for it; give the right line numbers".to_owned(), None)
        })?;
        let fit = |at: usize| match said {
            _ if loose => Fit::Loose { line: at + 1 },
            Some(said) if said != at => Fit::Moved { line: at + 1, said: said + 1 },
            Some(_) | None => Fit::Exact { line: at + 1 },
        };
        let chosen = match (places.as_slice(), said) {
            ([], _) => continue,
            (_, _) if hunk.at_end => {
                let last = lines.len().saturating_sub(old.len());
                places.contains(&last).then_some(last)
            }
            (_, Some(said)) if places.contains(&said) => Some(said),
            ([only], _) => Some(*only),
            (many, _) => {
                behind(lines, hunk, next).and_then(|from| many.iter().copied().find(|at| *at >= from))
            }
        };
        return match chosen {
            Some(at) => Ok((at, fit(at))),
            None if hunk.at_end => Err(("its lines are not at the end of the file".to_owned(), None)),
            None => {
                let told: Vec<String> = places.iter().take(10).map(|at| (at + 1).to_string()).collect();
                let told = told.join(", ");
                let count = places.len();
                let help = "give more lines around it";
                Err((format!("its lines are in the file {count} times (lines {told}); {help}"), None))
            }
        };
    }
    let wanted = old.join("\n");
    Err(("its old lines are not in the file".to_owned(), Some(wanted)))
}

/// All places that have these lines; none when that cannot be told in time.
fn places(lines: &[&str], old: &[&str], next: usize, loose: bool, work: &mut usize) -> Option<Vec<usize>> {
    let same = |have: &str, want: &str| match loose {
        false => have.strip_suffix('\n').unwrap_or(have) == want,
        true => have.trim() == want.trim(),
    };
    if loose && old.iter().all(|line| line.trim().is_empty()) {
        return Some(Vec::new());
    }
    let mut found = Vec::new();
    for at in next..(lines.len() + 1).saturating_sub(old.len()).max(next) {
        let equal = lines[at..].iter().zip(old).take_while(|(have, want)| same(have, want)).count();
        *work = work.checked_sub(equal + 1)?;
        if equal == old.len() {
            found.push(at);
        }
    }
    Some(found)
}

/// Behind the lines that an envelope names, each of which must be the only one of its kind there.
fn behind(lines: &[&str], hunk: &Hunk, next: usize) -> Option<usize> {
    if hunk.anchors.is_empty() {
        return None;
    }
    let mut from = next;
    for anchor in &hunk.anchors {
        let mut having = (from..lines.len()).filter(|at| lines[*at].trim() == anchor.as_str());
        let at = having.next()?;
        if having.next().is_some() {
            return None;
        }
        from = at + 1;
    }
    Some(from)
}

/// Where lines go that have none around them.
fn insert(lines: &[&str], hunk: &Hunk, next: usize) -> Result<(usize, Fit), String> {
    let at = match hunk.line {
        Some(line) => line,
        None if hunk.at_end || lines.is_empty() => lines.len(),
        None => behind(lines, hunk, next)
            .ok_or("it has no old lines; give one line above it, with a space before it")?,
    };
    if at > lines.len() || at < next {
        return Err(format!("there is no line {at} behind which it could go"));
    }
    Ok((at, Fit::Exact { line: at + 1 }))
}
