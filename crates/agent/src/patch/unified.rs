//! The unified diff, as `diff -u` and git write it.

use super::{FilePatch, Hunk, Kind, Line, at};

/// What the lines before the hunks say.
#[derive(Default)]
struct Header {
    /// The names of `--- ` and `+++ `, as they stand there.
    names: Option<[Name; 2]>,
    renamed: [Option<String>; 2],
    /// Of `diff --git`, where nothing else says it (a change of the mode alone).
    git: Option<String>,
    mode: Option<bool>,
    created: Option<bool>,
    deleted: bool,
}

/// A name of a diff.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    /// `/dev/null`.
    None,
    /// As bytes, its quotes taken off.
    File(Vec<u8>),
}

pub(super) fn read(lines: &[&str]) -> Result<Vec<FilePatch>, String> {
    let (mut files, mut n) = (Vec::new(), 0);
    while n < lines.len() {
        if lines[n].trim().is_empty() {
            n += 1;
            continue;
        }
        let from = n;
        let header = header(lines, &mut n)?;
        let mut hunks = Vec::new();
        while n < lines.len() && lines[n].starts_with("@@ ") {
            hunks.push(hunk(lines, &mut n)?);
        }
        files.push(header.file(hunks).map_err(|what| at(from, &what))?);
    }
    Ok(files)
}

fn header(lines: &[&str], n: &mut usize) -> Result<Header, String> {
    let (mut header, from) = (Header::default(), *n);
    if let Some(names) = lines[*n].strip_prefix("diff --git ") {
        header.git = both(names);
        *n += 1;
        while *n < lines.len() && !starts(lines[*n]) {
            header.extended(lines[*n]).map_err(|what| at(*n, &what))?;
            *n += 1;
        }
    }
    if *n < lines.len()
        && let Some(old) = lines[*n].strip_prefix("--- ")
    {
        let new = lines.get(*n + 1).and_then(|line| line.strip_prefix("+++ "));
        let Some(new) = new else { return Err(at(*n + 1, "`--- ` is followed by `+++ `")) };
        let name = |text, n| name(text).ok_or_else(|| at(n, "the name cannot be read"));
        header.names = Some([name(old, *n)?, name(new, *n + 1)?]);
        *n += 2;
    }
    if *n == from {
        return Err(at(
            *n,
            "expected `--- a/FILE` and `+++ b/FILE`, or a patch that begins with `*** Begin Patch`",
        ));
    }
    Ok(header)
}

/// What ends the lines that `diff --git` brings.
fn starts(line: &str) -> bool {
    ["--- ", "@@ ", "diff --git "].iter().any(|s| line.starts_with(s)) || line.trim().is_empty()
}

impl Header {
    fn extended(&mut self, line: &str) -> Result<(), String> {
        let mode = |mode: &str| match mode.trim() {
            "100755" => Ok(true),
            "100644" | "100664" | "100600" => Ok(false),
            other => Err(format!("a file of mode {} is not made by a patch", crate::text::label(other, 20))),
        };
        let plain = |text: &str| unquoted(text).map(|name| policy::quoted(&name).into_owned());
        if let Some(new) = line.strip_prefix("new file mode ") {
            self.created = Some(mode(new)?);
        } else if let Some(new) = line.strip_prefix("new mode ") {
            self.mode = Some(mode(new)?);
        } else if line.starts_with("deleted file mode ") {
            self.deleted = true;
        } else if let Some(name) = line.strip_prefix("rename from ") {
            self.renamed[0] = plain(name);
        } else if let Some(name) = line.strip_prefix("rename to ") {
            self.renamed[1] = plain(name);
        } else if line.starts_with("GIT binary patch") || line.starts_with("Binary files ") {
            return Err("a binary file cannot be patched".to_owned());
        } else if !["old mode ", "index ", "similarity index ", "dissimilarity index "]
            .iter()
            .any(|known| line.starts_with(known))
        {
            return Err(format!("`{}` means nothing in a diff", crate::text::label(line, 60)));
        }
        Ok(())
    }

    fn file(self, hunks: Vec<Hunk>) -> Result<FilePatch, String> {
        let [old, new] = self.paths()?;
        let text = |path: &[u8]| policy::quoted(path).into_owned();
        match (old, new) {
            (None, None) => Err("both names are /dev/null".to_owned()),
            (None, Some(path)) => {
                let kind = Kind::Create { text: created(&hunks)?, executable: self.created == Some(true) };
                Ok(FilePatch { path: text(&path), kind })
            }
            (Some(path), None) => Ok(FilePatch { path: text(&path), kind: Kind::Delete { hunks } }),
            (Some(old), Some(new)) => {
                let to = (old != new).then(|| text(&new));
                if hunks.is_empty() && to.is_none() && self.mode.is_none() {
                    return Err("nothing is changed in this file".to_owned());
                }
                let kind = Kind::Update { hunks, to, executable: self.mode };
                Ok(FilePatch { path: text(&old), kind })
            }
        }
    }

    /// The names without `a/` and `b/`, which stand for old and new where both are there.
    fn paths(&self) -> Result<[Option<Vec<u8>>; 2], String> {
        let bytes = |text: &String| policy::unquoted(text).map(|b| b.into_owned()).ok();
        let given = match (&self.names, &self.renamed, &self.git) {
            (_, [Some(from), Some(to)], _) => return Ok([bytes(from), bytes(to)]),
            (Some([old, new]), ..) => [old.clone(), new.clone()],
            (None, _, Some(path)) if self.created.is_some() => return Ok([None, bytes(path)]),
            (None, _, Some(path)) if self.deleted => return Ok([bytes(path), None]),
            (None, _, Some(path)) => return Ok([bytes(path), bytes(path)]),
            (None, _, None) => return Err("no file is named".to_owned()),
        };
        let begins = |name: &Name, with: &[u8]| match name {
            Name::None => true,
            Name::File(path) => path.starts_with(with),
        };
        let prefixed = begins(&given[0], b"a/") && begins(&given[1], b"b/");
        Ok(given.map(|name| match name {
            Name::None => None,
            Name::File(path) if prefixed => Some(path[2..].to_vec()),
            Name::File(path) => Some(path),
        }))
    }
}

/// The one path of `a/PATH b/PATH`.
fn both(names: &str) -> Option<String> {
    let path = if let Some(rest) = names.strip_prefix('"') {
        policy::from_quotes(rest)?.0.strip_prefix(b"a/")?.to_vec()
    } else {
        // As long as each other, with a space between.
        let (old, new) = (names.get(..names.len() / 2)?, names.get(names.len() / 2 + 1..)?);
        let path = old.strip_prefix("a/")?;
        (new.strip_prefix("b/")? == path).then(|| path.as_bytes().to_vec())?
    };
    Some(policy::quoted(&path).into_owned())
}

/// What stands behind `--- `: a name, and perhaps a tab and a date.
fn name(text: &str) -> Option<Name> {
    let path = unquoted(text)?;
    Some(if path == b"/dev/null" { Name::None } else { Name::File(path) })
}

fn unquoted(text: &str) -> Option<Vec<u8>> {
    let path = match text.strip_prefix('"') {
        Some(rest) => policy::from_quotes(rest)?.0,
        None => text.split('\t').next()?.trim_end().as_bytes().to_vec(),
    };
    (!path.is_empty()).then_some(path)
}

fn created(hunks: &[Hunk]) -> Result<String, String> {
    let mut text = String::new();
    for hunk in hunks {
        for line in &hunk.lines {
            let Line::Add(line) = line else {
                return Err("a new file has no old lines".to_owned());
            };
            text.push_str(line);
            text.push('\n');
        }
    }
    match hunks {
        [] => {}
        [hunk] if hunk.bare_new => {
            text.pop();
        }
        [_] => {}
        _ => return Err("a new file has one hunk".to_owned()),
    }
    Ok(text)
}

/// `@@ -line,count +line,count @@`, and the lines it announces.
fn hunk(lines: &[&str], n: &mut usize) -> Result<Hunk, String> {
    let from = *n;
    let Some([old, new]) = ranges(lines[from]) else {
        return Err(at(from, "expected `@@ -LINE,COUNT +LINE,COUNT @@`"));
    };
    let mut hunk = Hunk { line: Some(old.0), ..Hunk::default() };
    let (mut olds, mut news) = (old.1, new.1);
    *n += 1;
    while olds > 0 || news > 0 || lines.get(*n).is_some_and(|line| line.starts_with("\\ ")) {
        let miscounted = |n: usize| {
            at(
                from,
                &format!(
                    "the hunk announces {} old and {} new lines, but {} of its {} stand there; correct the \
                     counts, or use the Begin/End Patch form, which has none",
                    old.1,
                    new.1,
                    n - from - 1,
                    "lines"
                ),
            )
        };
        let Some(line) = lines.get(*n) else { return Err(miscounted(*n)) };
        let (old, new, line) = match line.as_bytes().first() {
            Some(b' ') => (1, 1, Line::Keep(line[1..].to_owned())),
            None => (1, 1, Line::Keep(String::new())),
            Some(b'-') => (1, 0, Line::Cut(line[1..].to_owned())),
            Some(b'+') => (0, 1, Line::Add(line[1..].to_owned())),
            Some(b'\\') => {
                match hunk.lines.last() {
                    Some(Line::Keep(_)) => (hunk.bare_old, hunk.bare_new) = (true, true),
                    Some(Line::Cut(_)) => hunk.bare_old = true,
                    Some(Line::Add(_)) => hunk.bare_new = true,
                    None => return Err(at(*n, "no line stands before this")),
                }
                *n += 1;
                continue;
            }
            Some(_) => return Err(miscounted(*n)),
        };
        if old > olds || new > news {
            return Err(miscounted(*n));
        }
        (olds, news) = (olds - old, news - new);
        hunk.lines.push(line);
        *n += 1;
    }
    let more = lines.get(*n).is_some_and(|line| matches!(line.as_bytes().first(), Some(b' ' | b'+' | b'-')));
    if more && !lines[*n].starts_with("--- ") {
        return Err(at(
            *n,
            "more lines than its hunk announces; correct the counts, or use the Begin/End Patch form",
        ));
    }
    if hunk.lines.iter().all(|line| matches!(line, Line::Keep(_))) {
        return Err(at(from, "this hunk neither adds nor removes a line"));
    }
    Ok(hunk)
}

fn ranges(line: &str) -> Option<[(usize, usize); 2]> {
    let mut words = line.strip_prefix("@@ ")?.split(' ');
    let range = |word: Option<&str>, sign: char| -> Option<(usize, usize)> {
        let word = word?.strip_prefix(sign)?;
        let number = |text: &str| text.parse::<usize>().ok().filter(|n| *n <= 100_000_000);
        match word.split_once(',') {
            Some((line, count)) => Some((number(line)?, number(count)?)),
            None => Some((number(word)?, 1)),
        }
    };
    let (old, new) = (range(words.next(), '-')?, range(words.next(), '+')?);
    (words.next()? == "@@").then_some([old, new])
}
