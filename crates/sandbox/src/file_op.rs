//! What the guest's init can do with files, for tools that are no programs.

use serde::{Deserialize, Serialize};

/// A file operation, done by the guest's init in a process of its own, beneath the workspace only.
///
/// Paths are relative to the workspace or start with `/workspace/`, and stand as [`policy::quoted`] writes them; so
/// does every name in an answer. Each operation answers on [`Stream::Stdout`](crate::Stream::Stdout) with one line
/// of JSON (`{"ok":...}` or `{"error":{"kind":...,"message":...}}`), followed for `Read` by the raw bytes. What comes
/// back is the guest's word: parse it as hostile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileOp {
    /// Bytes of a regular file. Answer: `{"ok":{"size":total,"read":n,"executable":bool}}` then `n` raw bytes.
    Read {
        /// The file.
        path: String,
        /// First byte.
        offset: u64,
        /// Bytes at most.
        limit: u64,
    },
    /// Create or replace a regular file, atomically, keeping the mode of a replaced one; missing parent folders
    /// are made. The content is the call's `stdin`. Answer: `{"ok":{"created":bool,"bytes":n}}`.
    Write {
        /// The file.
        path: String,
    },
    /// Change several files, all or none, each only if it still is what it is thought to be. The contents are the
    /// call's `stdin`, one behind the other. Answer: `{"ok":{"files":n}}`, or an error of the kind `changed`.
    Change {
        /// The files, each once.
        changes: Vec<Change>,
    },
    /// Names in a folder. Answer: `{"ok":{"entries":[{"name":..,"kind":"file|dir|link|other","size":n}],"more":n}}`.
    List {
        /// The folder; `.` is the workspace.
        path: String,
        /// Entries at most.
        limit: u32,
    },
    /// Paths that match a pattern; one without `/` is asked of names in every folder.
    /// Answer: `{"ok":{"paths":[..],"more":n,"ignored":n,"cut":bool}}`, folders with a `/` at their end.
    Glob {
        /// The pattern: `*`, `?`, `[a-z]`, `{a,b}` and `**`.
        pattern: String,
        /// The folder beneath which it is asked.
        path: String,
        /// Paths at most.
        limit: u32,
        /// Whether what `.gitignore` files ignore counts too.
        ignored: bool,
    },
    /// Lines that match a linear-time pattern. Answer:
    /// `{"ok":{"matches":[{"path":..,"line":n,"text":..}],"more":n,"files":n,"ignored":n,"cut":bool}}`.
    Search {
        /// The pattern, in the syntax of the `regex` crate.
        pattern: String,
        /// File or folder.
        path: String,
        /// Matches at most.
        limit: u32,
        /// Whether what `.gitignore` files ignore is searched too.
        ignored: bool,
    },
}

/// What is to become of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The file.
    pub path: String,
    /// What it must be now.
    pub was: Was,
    /// What it is afterwards.
    pub to: To,
}

/// What a file must be for its change to happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Was {
    /// Any regular file, or none.
    Any,
    /// None.
    Absent,
    /// A regular file of this content.
    Same {
        /// Digest of its bytes, in hexadecimal digits.
        sha256: String,
        /// How many there are.
        bytes: u64,
    },
}

/// What becomes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum To {
    /// These next bytes of the standard input.
    Content {
        /// How many; all that are left when none.
        bytes: Option<u64>,
        /// Whether it can be executed; as it was when none.
        executable: Option<bool>,
    },
    /// It is removed.
    Gone,
}
