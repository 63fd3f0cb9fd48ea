//! Files that were only given another name, found among those that are gone and those that are new.
//!
//! The same content is the same file. Where none is the same, text of which at least half the bytes stand in both, line
//! by line, is taken for one file with edits, as git does by default. A guest decides how much there is to compare, and
//! so that ends at a bound: what is not found is told as one file less and one more, and the patch is as right.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};

/// A file that is gone or new.
pub(crate) struct Candidate<'a> {
    pub(crate) path: &'a Path,
    pub(crate) size: u64,
    pub(crate) sha256: &'a str,
}

/// A new name and the one before it, with how much is the same, in percent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) from: PathBuf,
    pub(crate) to: PathBuf,
    pub(crate) same: u8,
}

/// Files on each side whose lines are looked at, and how large they may be.
const MOST: usize = 200;
const LARGEST: u64 = 512 << 10;
/// Files of one content among which one of the same name is looked for.
const ALIKE: usize = 100;
/// Lines that are compared in all.
const PATIENCE: usize = 5_000_000;
const LEAST: u64 = 50;

/// Whether it was the old or the new side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Gone,
    New,
}

/// Pairs of names, each name once. `read` gives the content of a file, or none.
pub(crate) fn pairs(
    gone: &[Candidate<'_>],
    new: &[Candidate<'_>],
    read: &dyn Fn(Side, &Candidate<'_>) -> Option<Vec<u8>>,
) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut left: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
    for (n, file) in gone.iter().enumerate().filter(|(_, file)| file.size > 0) {
        left.entry(file.sha256).or_default().push_back(n);
    }
    let (mut paired_gone, mut paired_new) = (vec![false; gone.len()], vec![false; new.len()]);
    for (n, file) in new.iter().enumerate().filter(|(_, file)| file.size > 0) {
        let Some(same) = left.get_mut(file.sha256) else { continue };
        let named = |i: &usize| gone[*i].path.file_name() == file.path.file_name();
        let first = || same.iter().take(ALIKE);
        let at = first().position(|i| named(i) && apart(gone[*i].path, file.path));
        let at = at.or_else(|| first().position(|i| apart(gone[*i].path, file.path)));
        if let Some(i) = at.and_then(|at| same.remove(at)) {
            (paired_gone[i], paired_new[n]) = (true, true);
            pairs.push(Pair { from: gone[i].path.to_owned(), to: file.path.to_owned(), same: 100 });
        }
    }
    let rest = |files: &[Candidate<'_>], paired: &[bool]| -> Vec<usize> {
        let fits = |n: &usize| !paired[*n] && (1..=LARGEST).contains(&files[*n].size);
        (0..files.len()).filter(fits).collect()
    };
    let (old, young) = (rest(gone, &paired_gone), rest(new, &paired_new));
    if old.is_empty() || young.is_empty() || old.len() > MOST || young.len() > MOST {
        return pairs;
    }
    let lines = |side, files: &[Candidate<'_>], which: &[usize]| -> Vec<Lines> {
        which
            .iter()
            .map(|n| read(side, &files[*n]).map(|bytes| Lines::of(&bytes)).unwrap_or_default())
            .collect()
    };
    let (old_lines, young_lines) = (lines(Side::Gone, gone, &old), lines(Side::New, new, &young));
    let mut scores = Vec::new();
    let mut patience = PATIENCE;
    for (i, a) in old.iter().zip(&old_lines) {
        for (j, b) in young.iter().zip(&young_lines) {
            let Some(left) = patience.checked_sub(a.0.len() + b.0.len()) else { break };
            let same = a.same(b);
            patience = if same.is_some() { left } else { patience };
            if let Some(same) = same.filter(|same| *same >= LEAST && apart(gone[*i].path, new[*j].path)) {
                let renamed = gone[*i].path.file_name() != new[*j].path.file_name();
                scores.push((100 - same.min(99), renamed, *i, *j));
            }
        }
    }
    scores.sort_unstable();
    for (lost, _, i, j) in scores {
        if !paired_gone[i] && !paired_new[j] {
            (paired_gone[i], paired_new[j]) = (true, true);
            let same = u8::try_from(100 - lost).unwrap_or(0);
            pairs.push(Pair { from: gone[i].path.to_owned(), to: new[j].path.to_owned(), same });
        }
    }
    pairs
}

/// A file in the place of the folder it was in, or the other way round, is two steps for every patch tool.
fn apart(a: &Path, b: &Path) -> bool {
    !a.starts_with(b) && !b.starts_with(a)
}

/// How many bytes of each line a text has, in the order of their hashes.
#[derive(Default)]
struct Lines(Vec<(u64, u64)>, u64);

impl Lines {
    /// Nothing for what is no text.
    fn of(bytes: &[u8]) -> Lines {
        if bytes.contains(&0) {
            return Lines::default();
        }
        let mut lines: HashMap<u64, u64> = HashMap::new();
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            let mut hash = DefaultHasher::new();
            hash.write(line);
            *lines.entry(hash.finish()).or_default() += u64::try_from(line.len()).unwrap_or(0);
        }
        let mut lines: Vec<(u64, u64)> = lines.into_iter().collect();
        lines.sort_unstable();
        Lines(lines, u64::try_from(bytes.len()).unwrap_or(0))
    }

    /// Percent of the longer one that stand in both; none where the lengths alone say that it is too little.
    fn same(&self, other: &Lines) -> Option<u64> {
        let (short, long) = (self.1.min(other.1), self.1.max(other.1));
        if short == 0 || short * 100 < long * LEAST {
            return None;
        }
        let (mut i, mut j, mut both) = (0, 0, 0);
        while let (Some(a), Some(b)) = (self.0.get(i), other.0.get(j)) {
            if a.0 == b.0 {
                both += a.1.min(b.1);
            }
            i += usize::from(a.0 <= b.0);
            j += usize::from(b.0 <= a.0);
        }
        Some(both * 100 / long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<'a>(files: &'a [(&'a str, &'a str)], sums: &'a [String]) -> Vec<Candidate<'a>> {
        let one = |((path, text), sum): (&'a (&'a str, &'a str), &'a String)| Candidate {
            path: Path::new(*path),
            size: text.len().try_into().unwrap(),
            sha256: sum,
        };
        files.iter().zip(sums).map(one).collect()
    }

    fn found(gone: &[(&str, &str)], new: &[(&str, &str)]) -> Vec<(String, String, u8)> {
        let sums = |files: &[(&str, &str)]| -> Vec<String> {
            files.iter().map(|(_, text)| crate::sha256(text.as_bytes())).collect()
        };
        let (old_sums, new_sums) = (sums(gone), sums(new));
        let read = |side, file: &Candidate<'_>| {
            let files = if side == Side::Gone { gone } else { new };
            let found = files.iter().find(|(path, _)| Path::new(path) == file.path);
            found.map(|(_, text)| text.as_bytes().to_vec())
        };
        let pairs = pairs(&all(gone, &old_sums), &all(new, &new_sums), &read);
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        pairs.into_iter().map(|pair| (text(pair.from), text(pair.to), pair.same)).collect()
    }

    fn one(from: &str, to: &str, same: u8) -> (String, String, u8) {
        (from.to_owned(), to.to_owned(), same)
    }

    #[test]
    fn the_same_content_is_the_same_file_and_the_same_name_comes_first() {
        let pairs = found(&[("a/x", "1"), ("b/y", "1"), ("e", "")], &[("c/y", "1"), ("c/z", "1"), ("f", "")]);
        assert_eq!(pairs, [one("b/y", "c/y", 100), one("a/x", "c/z", 100)]);
    }

    /// As many files of one content as a run may have, each with another name: no more work than for as many others.
    #[test]
    fn many_files_of_one_content_are_no_work_beyond_measure() {
        let names = |side: &str| (0..50_000).map(|n| format!("{side}/{side}{n}")).collect::<Vec<_>>();
        let (gone, new) = (names("a"), names("b"));
        let files = |names: &'static [String]| -> Vec<Candidate<'static>> {
            names.iter().map(|name| Candidate { path: Path::new(name), size: 1, sha256: "x" }).collect()
        };
        let (gone, new) = (files(gone.leak()), files(new.leak()));
        let begun = std::time::Instant::now();
        assert_eq!(pairs(&gone, &new, &|_, _| None).len(), 50_000);
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
    }

    #[test]
    fn half_of_the_lines_make_it_the_same_file() {
        let pairs =
            found(&[("a", "1\n2\n3\n4\n")], &[("b", "1\n2\nx\ny\n"), ("c", "1\n2\n3\ny\n"), ("d", "1\nx\n")]);
        assert_eq!(pairs, [one("a", "c", 75)]);
        assert_eq!(found(&[("a", "1\n2\n3\n")], &[("b", "1\nx\ny\n")]), []);
        assert_eq!(found(&[("a", "1\n2\n\0")], &[("b", "1\n2\n\0\n")]), []);
    }

    #[test]
    fn a_file_in_the_place_of_its_folder_is_two_changes() {
        assert_eq!(found(&[("d/f", "1")], &[("d", "1")]), []);
    }
}
