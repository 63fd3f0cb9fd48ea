//! The one program that is started on the host by itself: git's plumbing, on the user's own repository, with nothing of
//! a run's tree in its hands but bytes on its standard input.
//!
//! No hook, no filter, no file-system monitor, no key, no network, and nothing of the user's own settings.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const SETTINGS: [&str; 10] = [
    // A folder that only looks like a repository may be a guest's.
    "safe.bareRepository=explicit",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.splitIndex=false",
    "core.untrackedCache=false",
    "commit.gpgSign=false",
    "protocol.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
];
const VARIABLES: [(&str, &str); 13] = [
    ("PATH", PATH),
    ("LC_ALL", "C"),
    ("HOME", "/nonexistent"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    // Over every setting of the repository's own, for a git that does not know the line before.
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_AUTHOR_NAME", "oubliette"),
    ("GIT_COMMITTER_NAME", "oubliette"),
];
const MAIL: &str = "oubliette@localhost";

/// Git on one repository.
pub(crate) struct Git<'a> {
    pub(crate) at: &'a Path,
    /// An index of our own: the repository's is never touched.
    pub(crate) index: &'a Path,
}

/// How it did not work: the system's word, or git's own.
#[derive(Debug)]
pub(crate) enum GitError {
    NotStarted(io::Error),
    Said(String),
}

impl Git<'_> {
    /// Runs a plumbing command with these words; its standard output. `feed` writes its standard input.
    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        words: &[S],
        feed: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<Vec<u8>, GitError> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that starts git, on the user's own repository"
        )]
        let mut command = Command::new("git");
        command.env_clear().envs(VARIABLES).env("GIT_AUTHOR_EMAIL", MAIL).env("GIT_COMMITTER_EMAIL", MAIL);
        command.env("GIT_INDEX_FILE", self.index).arg("-C").arg(self.at).arg("--literal-pathspecs");
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(GitError::NotStarted)?;
        // Each of the commands used reads all of its input before it says anything.
        let fed = match child.stdin.take() {
            Some(mut stdin) => feed(&mut stdin),
            None => Ok(()),
        };
        let done = child.wait_with_output().map_err(GitError::NotStarted)?;
        if !done.status.success() {
            return Err(GitError::Said(String::from_utf8_lossy(&done.stderr).trim().to_owned()));
        }
        fed.map_err(GitError::NotStarted)?;
        Ok(done.stdout)
    }

    /// The same without input.
    pub(crate) fn ask<S: AsRef<OsStr>>(&self, words: &[S]) -> Result<Vec<u8>, GitError> {
        self.run(words, |_| Ok(()))
    }
}
