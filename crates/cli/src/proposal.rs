//! What is judged has no say in how: the operator's files lie outside of it, and no way to them leads through it.
//!
//! A proposal may be a whole checkout, and who judges it may stand in it: then the file that is found first is the
//! proposal's own. So the way to a file is walked here part by part, links and all, and each part that is looked up
//! within the proposal is one that the proposal decides about.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::deploy;
use crate::exit::usage;

/// Links on one way, as the kernel counts them.
const MOST_LINKS: usize = 40;
/// Entries of a proposal that are compared with a file of several names.
const MOST_ENTRIES: usize = 50_000;

/// A folder that is judged.
pub(crate) struct Proposal<'a> {
    folder: &'a Path,
    /// In messages.
    what: &'static str,
    /// None where there is no such folder: whoever reads it says so.
    id: Option<Id>,
}

/// A file's own, whatever its names are.
type Id = (u64, u64);

fn id(meta: &Metadata) -> Id {
    (meta.dev(), meta.ino())
}

impl<'a> Proposal<'a> {
    pub(crate) fn of(folder: &'a Path, what: &'static str) -> Proposal<'a> {
        let id = fs::metadata(folder).ok().filter(Metadata::is_dir).map(|meta| id(&meta));
        Proposal { folder, what, id }
    }

    /// Refuses a deployment of the proposal's: the one that is named, or that is found where none is.
    pub(crate) fn has_not_deployment(&self, config: Option<&Path>) -> anyhow::Result<()> {
        let file = config.unwrap_or(Path::new(deploy::FILE));
        // Where none is found the built-in one holds, which is nobody's word.
        let none = config.is_none() && fs::symlink_metadata(file).is_err();
        let Some(what) = self.whose(file).filter(|_| !none) else { return Ok(()) };
        let name = file.display();
        Err(usage(format!(
            "{name} lies inside {what}, or the way to it leads through there: the deployment is the operator's; name \
             another one with `--config`"
        )))
    }

    /// Refuses a file of waivers of the proposal's.
    pub(crate) fn has_not_waivers(&self, file: &Path) -> anyhow::Result<()> {
        let Some(what) = self.whose(file) else { return Ok(()) };
        let name = file.display();
        Err(usage(format!(
            "{name} lies inside {what}, or the way to it leads through there: waivers are the operator's; name \
             another file with `--waivers`"
        )))
    }

    /// Refuses a file that nobody named and that was found in the checkout that the proposal came in, where what was
    /// there before lies in another: who made the proposal had a say in it as well. `name` is the option to name it by.
    pub(crate) fn brought_not(&self, found: &Path, before: &Path, name: &str) -> anyhow::Result<()> {
        let (new, old) = (checkouts(self.folder), checkouts(before));
        let one = |checkouts: &[Id]| checkouts.first().copied();
        if fs::symlink_metadata(found).is_err() || one(&new) == one(&old) {
            return Ok(());
        }
        let parent = found.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let of_old = one(&old).is_some() && [parent, found].iter().all(|at| one(&checkouts(at)) == one(&old));
        let in_new = |folder: &Path| fs::metadata(folder).is_ok_and(|meta| new.contains(&id(&meta)));
        if of_old || !leads_through(found, &in_new) {
            return Ok(());
        }
        Err(usage(format!(
            "{} was found in the checkout that the new Guild came in, and the old one lies in no part of that: name it \
             (`{name}`) if it is the operator's",
            found.display()
        )))
    }

    /// Refuses a deployment that nobody named and that was found in this folder, or in a checkout that it lies in: who
    /// made that would have decided what holds whatever comes with it.
    pub(crate) fn brought_no_deployment(&self, config: Option<&Path>) -> anyhow::Result<()> {
        self.found_not(config.is_none().then_some(Path::new(deploy::FILE)), "--config")
    }

    /// The same of any file that was found, and by which option it is named.
    pub(crate) fn found_not(&self, found: Option<&Path>, option: &str) -> anyhow::Result<()> {
        let Some(file) = found.filter(|file| fs::symlink_metadata(file).is_ok()) else { return Ok(()) };
        let own = checkouts(self.folder);
        let within = |folder: &Path| fs::metadata(folder).is_ok_and(|meta| own.contains(&id(&meta)));
        if !self.decides(file) && !leads_through(file, &within) {
            return Ok(());
        }
        Err(usage(format!(
            "{} was found in {}, or in the checkout that this lies in: name it (`{option} {0}`) if it is the operator's",
            file.display(),
            self.what
        )))
    }

    /// Where a file lies that is not the operator's.
    fn whose(&self, file: &Path) -> Option<&'static str> {
        if self.decides(file) {
            return Some(self.what);
        }
        among_branches(file).then_some("the branches")
    }

    /// Whether what a file holds is the proposal's to say.
    fn decides(&self, file: &Path) -> bool {
        let Some(own) = self.id else { return false };
        leads_through(file, &|folder| fs::metadata(folder).is_ok_and(|meta| id(&meta) == own))
            || self.has_name_of(file)
    }

    /// Whether a file of several names has one of them inside.
    fn has_name_of(&self, file: &Path) -> bool {
        let Ok(meta) = fs::metadata(file) else { return false };
        if meta.nlink() < 2 || !meta.is_file() {
            return false;
        }
        let (mut waiting, mut seen) = (vec![self.folder.to_path_buf()], 0);
        while let Some(folder) = waiting.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                seen += 1;
                // Never through a link. What is too much to look through may hold it.
                match entry.metadata() {
                    _ if seen > MOST_ENTRIES => return true,
                    Ok(inner) if inner.is_dir() => waiting.push(entry.path()),
                    Ok(inner) if id(&inner) == id(&meta) => return true,
                    Ok(_) | Err(_) => {}
                }
            }
        }
        false
    }
}

/// Every checkout that a path lies in, the innermost first. It may bring along one of its own, so all of them count.
fn checkouts(path: &Path) -> Vec<Id> {
    let Ok(path) = path.canonicalize() else { return Vec::new() };
    let has = |folder: &&Path| fs::symlink_metadata(folder.join(".git")).is_ok();
    path.ancestors()
        .filter(has)
        .filter_map(|folder| fs::metadata(folder).ok())
        .map(|meta| id(&meta))
        .collect()
}

/// Whether a file lies beneath the branches of a Foundry, of whichever folder of records.
fn among_branches(file: &Path) -> bool {
    leads_through(file, &|folder| {
        // Somebody else's folder may have this name.
        folder.ends_with("foundry/branches")
            && ["../baseline", "../history", "../gated"].iter().any(|beside| folder.join(beside).is_dir())
    })
}

/// Whether some part of the way to a file is looked up in a folder of that kind, or beneath one. A way that goes nowhere,
/// or round and round, leads through everything.
fn leads_through(file: &Path, is: &dyn Fn(&Path) -> bool) -> bool {
    let Ok(mut at) = std::env::current_dir() else { return true };
    let mut parts: VecDeque<OsString> = parts(file);
    let mut links = 0;
    while let Some(part) = parts.pop_front() {
        if part == "/" {
            at = PathBuf::from("/");
        } else if part == ".." {
            at.pop();
        } else {
            if at.ancestors().any(is) {
                return true;
            }
            let next = at.join(&part);
            match fs::read_link(&next) {
                Ok(target) => {
                    links += 1;
                    if links > MOST_LINKS {
                        return true;
                    }
                    for part in self::parts(&target).into_iter().rev() {
                        parts.push_front(part);
                    }
                }
                Err(_) => at = next,
            }
        }
    }
    false
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |component: Component<'_>| match component {
        Component::CurDir => None,
        other => Some(other.as_os_str().to_owned()),
    };
    path.components().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn place() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["new/in", "new/foundry/branches/b", "operator"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("new/own.toml"), "own").unwrap();
        fs::write(dir.path().join("operator/good.toml"), "good").unwrap();
        dir
    }

    #[test]
    fn r61_no_file_is_the_operators_that_the_proposal_holds_or_leads_to() {
        let dir = place();
        let at = |name: &str| dir.path().join(name);
        symlink("../new/own.toml", at("operator/to-own")).unwrap();
        symlink("../operator", at("new/out")).unwrap();
        symlink("../operator/good.toml", at("new/to-good")).unwrap();
        symlink("new", at("other-name")).unwrap();
        symlink("loop", at("loop")).unwrap();
        fs::hard_link(at("operator/good.toml"), at("operator/twice.toml")).unwrap();
        fs::write(at("operator/both.toml"), "both").unwrap();
        fs::hard_link(at("operator/both.toml"), at("new/in/both")).unwrap();
        let new = at("new");
        let proposal = Proposal::of(&new, "the Guild");
        for own in [
            "new/own.toml",
            "new/in/../own.toml",
            "operator/../new/own.toml",
            "operator/to-own",
            "new/out/good.toml",
            "new/to-good",
            "other-name/own.toml",
            "other-name/../new/own.toml",
            "operator/both.toml",
            "loop",
            "new/not-there",
        ] {
            assert!(proposal.decides(&at(own)), "{own}");
            let said = proposal.has_not_deployment(Some(&at(own))).unwrap_err().to_string();
            assert!(said.contains("--config"), "{said}");
            assert!(proposal.has_not_waivers(&at(own)).is_err(), "{own}");
        }
        for good in ["operator/good.toml", "operator/twice.toml", "new/../operator/good.toml", "not-there"] {
            assert!(!proposal.decides(&at(good)), "{good}");
        }
        assert!(!Proposal::of(&at("nowhere"), "x").decides(&at("new/own.toml")));
    }

    #[test]
    fn waivers_beneath_branches_are_nobodys_word_whatever_is_judged() {
        let dir = place();
        let operator = dir.path().join("operator");
        let waivers = dir.path().join("new/foundry/branches/b/foundry.toml");
        fs::create_dir(dir.path().join("new/foundry/baseline")).unwrap();
        fs::write(&waivers, "").unwrap();
        symlink(&waivers, operator.join("link.toml")).unwrap();
        let proposal = Proposal::of(&operator, "x");
        assert!(proposal.has_not_waivers(&waivers).is_err());
        assert!(
            Proposal::of(&dir.path().join("new/in"), "x")
                .has_not_waivers(&operator.join("link.toml"))
                .is_err()
        );
        // A folder that only has the name is anybody's.
        fs::remove_dir(dir.path().join("new/foundry/baseline")).unwrap();
        assert!(proposal.has_not_waivers(&waivers).is_ok());
    }

    /// D-25: standing in somebody's checkout is not saying that its files are the operator's.
    #[test]
    fn what_a_checkout_brings_along_must_be_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["repo/.git", "repo/sub/.git", "repo/tree", "plain/tree"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["repo/o.toml", "repo/tree/o.toml", "plain/o.toml", "plain/tree/o.toml", "o.toml"] {
            fs::write(at(file), "").unwrap();
        }
        symlink("repo/o.toml", at("to-repo")).unwrap();
        let said = |folder: &str, file: &str| {
            Proposal::of(&at(folder), "the workspace").found_not(Some(&at(file)), "--config")
        };
        for (folder, file) in [
            ("repo", "repo/o.toml"),
            ("repo/tree", "repo/o.toml"),
            ("repo/tree", "repo/tree/o.toml"),
            // One that brings a checkout of its own making along.
            ("repo/sub", "repo/o.toml"),
            ("repo/tree", "to-repo"),
            ("plain/tree", "plain/tree/o.toml"),
        ] {
            let said = said(folder, file).unwrap_err().to_string();
            assert!(said.contains("`--config "), "{folder} {file}: {said}");
        }
        for (folder, file) in [
            ("repo/tree", "o.toml"),
            ("plain/tree", "plain/o.toml"),
            ("repo", "nothing"),
            ("nowhere", "o.toml"),
        ] {
            assert!(said(folder, file).is_ok(), "{folder} {file}");
        }
    }

    /// R61: what a checkout brings along beside the Guild is no more the operator's than what lies in it.
    #[test]
    fn r61_no_file_is_found_in_the_checkout_of_the_proposal_alone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in
            ["pr/.git", "pr/new/.git", "pr/old", "base/guild", "pr/base/guild", "plain/old", "plain/new"]
        {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in [
            "base/.git",
            "pr/base/.git",
            "pr/o.toml",
            "pr/base/o.toml",
            "base/o.toml",
            "o.toml",
            "plain/o.toml",
        ] {
            fs::write(at(file), "").unwrap();
        }
        symlink("../pr/o.toml", at("base/link.toml")).unwrap();
        let said = |new: &str, old: &str, file: &str| {
            Proposal::of(&at(new), "x")
                .brought_not(&at(file), &at(old), "--config")
                .map_err(|e| e.to_string())
        };
        // Also where the proposal brings a checkout of its own making along.
        for (old, file) in [
            ("base/guild", "pr/o.toml"),
            ("plain/old", "pr/o.toml"),
            // The other one checked out inside of it.
            ("pr/base/guild", "pr/o.toml"),
            ("base/guild", "base/link.toml"),
        ] {
            let said = said("pr/new", old, file).unwrap_err();
            assert!(said.contains("name it (`--config`)"), "{old} {file}: {said}");
        }
        fs::remove_dir(at("pr/new/.git")).unwrap();
        for (new, old, file) in [
            ("pr/new", "pr/old", "pr/o.toml"),
            ("pr/new", "base/guild", "base/o.toml"),
            ("pr/new", "pr/base/guild", "pr/base/o.toml"),
            ("pr/new", "base/guild", "o.toml"),
            ("pr/new", "base/guild", "pr/nothing.toml"),
            ("plain/new", "plain/old", "plain/o.toml"),
            ("plain/new", "base/guild", "plain/o.toml"),
        ] {
            assert_eq!(said(new, old, file), Ok(()), "{new} {old} {file}");
        }
        assert!(said("pr/new", "base/guild", "pr/o.toml").is_err());
    }
}
