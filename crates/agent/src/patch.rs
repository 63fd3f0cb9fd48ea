//! Patches as models write them: a unified diff, or the Begin/End Patch envelope.
//!
//! ```text
//!   text ──parse──▶ FilePatch, one a file ──apply──▶ new text of each file, or what does not fit
//! ```
//!
//! Both forms are read strictly: what is not understood is an error that names its line, and nothing is done. Where a
//! hunk goes is found, never guessed: at its line, at the only place that has its lines, or at the only place that has
//! them up to white space; and the result says which.

mod apply;
mod envelope;
mod unified;

#[cfg(test)]
pub(crate) use apply::Fit;
pub(crate) use apply::apply;

/// Files that one patch may name.
const MAX_FILES: usize = 50;
/// Hunks of all of them.
const MAX_HUNKS: usize = 500;

/// What a patch does to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilePatch {
    /// As it was written, in the form of [`policy::quoted`].
    pub(crate) path: String,
    pub(crate) kind: Kind,
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is made.
    Create { text: String, executable: bool },
    /// It is removed. What a diff says of its content must be so.
    Delete { hunks: Vec<Hunk> },
    /// It is changed, or gets another name, or both.
    Update { hunks: Vec<Hunk>, to: Option<String>, executable: Option<bool> },
}

/// Lines in a row, of which some go and some come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// Where the old lines begin, from 1, as a diff says. A hunk without old lines stands behind that line.
    pub(crate) line: Option<usize>,
    /// Lines that come before it, in this order, as an envelope says.
    pub(crate) anchors: Vec<String>,
    /// Whether it ends with the file.
    pub(crate) at_end: bool,
    pub(crate) lines: Vec<Line>,
    /// The last old line, or the last new one, has no line feed.
    pub(crate) bare_old: bool,
    pub(crate) bare_new: bool,
}

/// A line of a hunk, without its line feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Keep(String),
    Cut(String),
    Add(String),
}

impl Hunk {
    /// The lines that must be there.
    pub(crate) fn old(&self) -> Vec<&str> {
        self.lines
            .iter()
            .filter_map(|line| match line {
                Line::Keep(text) | Line::Cut(text) => Some(text.as_str()),
                Line::Add(_) => None,
            })
            .collect()
    }
}

/// Reads a patch of either form, or says what is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Vec<FilePatch>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().find(|line| !line.trim().is_empty()).copied().unwrap_or_default();
    let files =
        if first.trim() == envelope::BEGIN { envelope::read(&lines)? } else { unified::read(&lines)? };
    if files.is_empty() {
        return Err("the patch changes no file".to_owned());
    }
    if files.len() > MAX_FILES {
        return Err(format!("the patch names {} files, more than {MAX_FILES}", files.len()));
    }
    let hunks = |file: &FilePatch| match &file.kind {
        Kind::Create { .. } => 0,
        Kind::Delete { hunks } | Kind::Update { hunks, .. } => hunks.len(),
    };
    if files.iter().map(hunks).sum::<usize>() > MAX_HUNKS {
        return Err(format!("the patch has more than {MAX_HUNKS} hunks"));
    }
    Ok(files)
}

/// A fault and its line, from 1.
fn at(index: usize, what: &str) -> String {
    format!("line {} of the patch: {what}", index + 1)
}

#[cfg(test)]
mod tests;
