//! What becomes of a git repository on the way in.
//!
//! Its own `.git` never comes in as it is: hooks and settings run programs, remotes and settings hold credentials,
//! other branches hold what the files do not show. What a guest sees instead is one fresh commit of the files that
//! the repository knew, as they are now. We write its objects ourselves. Git inside the sandbox could make them too,
//! but only where a guest's system has one, at the price of a first call that nobody asked for, and from a `.git`
//! that had come in already; git outside would run what the tree tells it to.
//!
//! Whatever a guest writes into a `.git` afterwards stays there: it is told at the end and is not in the patch.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::Seal;
use super::copy::Made;
use super::index::{self, Known, Listed};
use super::pack::{Id, Object, Pack, packed};
use super::walk::Walk;
use crate::RunError;
use crate::beneath::{Folder, settle};
use crate::manifest::{Item, Kind, hex, sha256};

/// What of a repository's history a guest gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// One fresh commit of the files it knew.
    #[default]
    One,
    /// Its objects and branches, without hooks, settings, remotes and credentials.
    Keep,
    /// None: the files alone.
    None,
}

/// What a source that is a repository has become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "history")]
pub(crate) enum Repository {
    /// A commit of our own.
    One {
        commit: String,
        branch: String,
        files: usize,
    },
    Keep,
    None,
}

/// Read from somebody's repository, at most.
const LARGEST_INDEX: u64 = 256 << 20;
const LARGEST_SETTINGS: u64 = 1 << 20;
/// Files that are packed at once, with their bytes, and bytes of one that is packed by itself.
const AT_ONCE: usize = 64;
const TOGETHER: u64 = 8 << 20;
const LARGE: u64 = 4 << 20;
/// The fresh commit's time, so that the same files make the same commit: the first second of 2000.
const TIME: u64 = 946_684_800;
const WHO: &str = "Oubliette <oubliette@localhost>";
const GIT: &str = ".git";
const LEFT_OUT: &str = "hooks, settings, remotes, credentials and logs were left out";

/// What may be in a repository that is kept, beside settings of our own.
const KEPT: [&str; 7] = ["HEAD", "packed-refs", "index", "shallow", "objects", "refs", "reftable"];

impl Walk<'_> {
    /// Refuses what has no files to work on.
    pub(super) fn refuse_bare(&self, from: &Folder) -> Result<(), RunError> {
        let is = |name: &str, folder: bool| {
            from.look(OsStr::new(name)).is_ok_and(|meta| if folder { meta.is_dir() } else { meta.is_file() })
        };
        if is("HEAD", false) && is("objects", true) && is("refs", true) && branch(from).is_some() {
            let why = "it is a bare repository, or the inside of one, and holds no files to work on: clone it first";
            return Err(self.refusal(Path::new(""), why));
        }
        Ok(())
    }

    /// A `.git` of the source, whatever it is.
    pub(super) fn repository(&mut self, from: &Folder, to: &Made, path: &Path) -> Result<(), RunError> {
        let meta = from.look(OsStr::new(GIT)).map_err(|e| self.refuse(path, &e))?;
        let is_own = path == Path::new(GIT);
        match self.history {
            History::None => {
                if is_own {
                    self.taken.repository = Some(Repository::None);
                } else {
                    self.note(path, "left out: the history of a repository inside");
                }
            }
            History::One if is_own => self.fresh = true,
            History::One => {
                self.note(path, "left out: the history of a repository inside; its files came in")
            }
            History::Keep if meta.is_dir() => {
                self.keep(from, to, path)?;
                if is_own {
                    self.taken.repository = Some(Repository::Keep);
                }
                self.note(path, LEFT_OUT);
            }
            // A worktree or a submodule: the way leads out of the source.
            History::Keep if is_own => {
                let why = "it only leads to a repository elsewhere (a worktree or a submodule has such a one): take its \
                    files with a fresh commit (`--history one`), or clone it";
                return Err(self.refusal(path, why));
            }
            History::Keep => self.note(path, "left out: it leads to a repository elsewhere"),
        }
        Ok(())
    }

    fn keep(&mut self, from: &Folder, to: &Made, path: &Path) -> Result<(), RunError> {
        let from = Arc::new(from.folder(Path::new(GIT)).map_err(|e| self.refuse(path, &e))?);
        for borrowed in ["objects/info/alternates", "objects/info/http-alternates", "commondir"] {
            if from.file(Path::new(borrowed)).is_ok() {
                let why = "its objects are borrowed from a repository elsewhere: `git repack -a -d` and remove it, or take \
                    a fresh commit (`--history one`)";
                return Err(self.refusal(&path.join(borrowed), why));
            }
        }
        let folder = self.new_folder(&to.folder, OsStr::new(GIT), path)?;
        let made = Arc::new(Made { folder, like: None });
        let (names, _) = from.names(1000).map_err(|e| self.refuse(path, &e))?;
        for name in names {
            let kept = KEPT.iter().any(|kept| name == *kept) || name.as_bytes().starts_with(b"sharedindex.");
            if kept {
                // Repositories inside one another are folders inside folders.
                self.entry(&from, &made, &name, path, path.components().count())?;
            }
        }
        let made = &made.folder;
        self.info(&from, made, path)?;
        let settings = bounded(&from, "config", LARGEST_SETTINGS).unwrap_or_default();
        self.new_file(made, "config", &path.join("config"), &kept_settings(&settings))
    }

    /// What is ignored without standing in the files, and what a partial checkout shows.
    fn info(&mut self, from: &Folder, to: &Folder, path: &Path) -> Result<(), RunError> {
        let info = path.join("info");
        let found: Vec<(&str, Vec<u8>)> = ["exclude", "sparse-checkout"]
            .into_iter()
            .filter_map(|name| Some((name, bounded(from, &format!("info/{name}"), LARGEST_SETTINGS).ok()?)))
            .collect();
        if found.is_empty() {
            return Ok(());
        }
        let made = self.new_folder(to, OsStr::new("info"), &info)?;
        found.iter().try_for_each(|(name, content)| self.new_file(&made, name, &info.join(name), content))
    }

    /// One commit of what is in the workspace now.
    pub(super) fn fresh_commit(&mut self, from: &Folder, to: &Made) -> Result<(), RunError> {
        let to = &to.folder;
        let path = Path::new(GIT);
        // A worktree's or a submodule's is a file: what it leads to is not looked at, and everything is committed.
        let own = from.folder(path).ok();
        let known = own.as_ref().and_then(|own| bounded(own, "index", LARGEST_INDEX).ok());
        let known = known.and_then(|bytes| Known::read(&bytes));
        if known.is_none() {
            self.note(path, "its list of files could not be read: all files are in the fresh commit");
        }
        let branch = own.as_ref().and_then(branch).unwrap_or_else(|| "main".to_owned());
        let mut files: Vec<(PathBuf, u32, u64)> = Vec::new();
        for (path, item) in &self.taken.manifest {
            let named_git = path.components().any(|part| crate::collect::is_git(part.as_os_str()));
            let (mode, size) = match &item.kind {
                Kind::Folder => continue,
                Kind::File { size, .. } => {
                    (if item.mode & 0o100 == 0 { 0o100_644 } else { 0o100_755 }, *size)
                }
                Kind::Link { target } => (0o120_000, u64::try_from(target.len()).unwrap_or(u64::MAX)),
            };
            if !named_git && known.as_ref().is_none_or(|known| known.has(path)) {
                files.push((path.clone(), mode, size));
            }
        }
        files.sort_by(|a, b| a.0.as_os_str().as_bytes().cmp(b.0.as_os_str().as_bytes()));
        let made = self.new_folder(to, OsStr::new(GIT), path)?;
        let (commit, ids) = self.objects(to, &made, &files)?;
        if let Some(own) = &own {
            self.info(own, &made, path)?;
        }
        let mut listed = Vec::new();
        for ((file, mode, size), id) in files.iter().zip(&ids) {
            let sealed = self.taken.seals.get(file).map(Seal::modified);
            let modified = sealed.map_or_else(|| modified_of(to, file), Ok);
            let modified = modified.map_err(|e| self.refuse(file, &e))?;
            listed.push(Listed { path: file, mode: *mode, id: *id, size: *size, modified });
        }
        self.new_file(&made, "index", &path.join("index"), &index::written(&listed))?;
        self.new_file(&made, "HEAD", &path.join("HEAD"), format!("ref: refs/heads/{branch}\n").as_bytes())?;
        self.new_file(&made, "config", &path.join("config"), settings("").as_bytes())?;
        let (mut at, mut folder) = (path.to_owned(), made);
        let head = format!("refs/heads/{branch}");
        let mut parts = head.split('/').peekable();
        while let Some(part) = parts.next() {
            at.push(part);
            if parts.peek().is_none() {
                self.new_file(&folder, part, &at, format!("{commit}\n").as_bytes())?;
            } else {
                folder = self.new_folder(&folder, OsStr::new(part), &at)?;
            }
        }
        self.taken.repository = Some(Repository::One { commit, branch, files: files.len() });
        Ok(())
    }

    /// Writes all objects; the name of the commit and those of the files.
    fn objects(
        &mut self,
        root: &Folder,
        git: &Folder,
        files: &[(PathBuf, u32, u64)],
    ) -> Result<(String, Vec<Id>), RunError> {
        let at = Path::new(GIT).join("objects");
        let objects = self.new_folder(git, OsStr::new("objects"), &at)?;
        let at = at.join("pack");
        let folder = self.new_folder(&objects, OsStr::new("pack"), &at)?;
        let failed = |e: io::Error| refuse_copy(&at, e);
        let half = OsStr::new("half");
        let mut pack = folder.create(half, 0o600).and_then(Pack::begin).map_err(failed)?;
        let ids = self.blobs(root, files, &mut pack)?;
        let mut tree = Tree::default();
        for ((path, mode, _), id) in files.iter().zip(&ids) {
            tree.insert(path, *mode, *id);
        }
        let tree = tree.write(&mut pack).map_err(failed)?;
        let text = format!(
            "tree {}\nauthor {WHO} {TIME} +0000\ncommitter {WHO} {TIME} +0000\n\nTaken in by Oubliette\n",
            hex(&tree)
        );
        let commit = put(&mut pack, Object::Commit, text.as_bytes()).map_err(failed)?;
        let (mut file, list, name) = pack.end().map_err(failed)?;
        let (size, sum) = summed(&mut file).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        settle(&file, &meta, 0o444, self.owner).map_err(failed)?;
        let pack_name = format!("{name}.pack");
        folder.rename(half, &folder, OsStr::new(&pack_name)).map_err(failed)?;
        self.took(&at.join(&pack_name), Item { kind: Kind::File { size, sha256: sum }, mode: 0o444 }, size)?;
        self.new_file(&folder, &format!("{name}.idx"), &at.join(format!("{name}.idx")), &list)?;
        Ok((hex(&commit), ids))
    }

    /// Packs every file's content, some at a time on every processor, into the pack in the order of their names.
    fn blobs(
        &self,
        root: &Folder,
        files: &[(PathBuf, u32, u64)],
        pack: &mut Pack,
    ) -> Result<Vec<Id>, RunError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        let work = Mutex::new(some_at_once(files).into_iter().enumerate());
        let manifest = &self.taken.manifest;
        let mut ids = Vec::with_capacity(files.len());
        std::thread::scope(|scope| {
            let (send, done) = sync_channel::<(usize, io::Result<Vec<Packed>>)>(threads);
            for _ in 0..threads {
                let (send, work) = (send.clone(), &work);
                scope.spawn(move || {
                    loop {
                        let next = work.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
                        let Some((n, some)) = next else { break };
                        let some =
                            some.iter().map(|(path, _, size)| blob(root, path, &manifest[path].kind, *size));
                        if send.send((n, some.collect())).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(send);
            let mut waiting = BTreeMap::new();
            let mut next = 0;
            for (n, some) in &done {
                waiting.insert(n, some);
                while let Some(some) = waiting.remove(&next) {
                    for packed in some.map_err(|e| refuse_copy(Path::new(GIT), e))? {
                        let (path, _, size) = &files[ids.len()];
                        let added = match packed {
                            Packed::Small(id, bytes) => pack.add(id, &bytes).map(|()| Some(id)),
                            Packed::Large => {
                                root.file(path).and_then(|mut f| pack.stream(Object::Blob, *size, &mut f))
                            }
                        };
                        ids.push(added.and_then(whole).map_err(|e| refuse_copy(path, e))?);
                    }
                    next += 1;
                }
                if pack.len() > self.limits.disk.saturating_sub(self.copying.bytes()) {
                    return Err(self.too_big(&Path::new(GIT).join("objects")));
                }
                self.tell()?;
            }
            Ok(ids)
        })
    }

    fn new_folder(&mut self, to: &Folder, name: &OsStr, path: &Path) -> Result<Folder, RunError> {
        let made = to.create_folder(name).map_err(|e| refuse_copy(path, e))?;
        let meta = made.metadata().map_err(|e| refuse_copy(path, e))?;
        made.settle(&meta, 0o755, self.owner).map_err(|e| refuse_copy(path, e))?;
        self.took(path, Item { kind: Kind::Folder, mode: 0o755 }, 0)?;
        Ok(made)
    }

    fn new_file(&mut self, to: &Folder, name: &str, path: &Path, content: &[u8]) -> Result<(), RunError> {
        let write = || {
            let mut file = to.create(OsStr::new(name), 0o600)?;
            file.write_all(content)?;
            settle(&file, &file.metadata()?, 0o644, self.owner)
        };
        write().map_err(|e| refuse_copy(path, e))?;
        let size = u64::try_from(content.len()).unwrap_or(u64::MAX);
        self.took(path, Item { kind: Kind::File { size, sha256: sha256(content) }, mode: 0o644 }, size)
    }

    fn took(&mut self, path: &Path, item: Item, size: u64) -> Result<(), RunError> {
        if self.files >= self.limits.files {
            return Err(self.too_many(path));
        }
        if !self.copying.take(size) {
            return Err(self.too_big(path));
        }
        self.files += 1;
        self.taken.manifest.insert(path.to_owned(), item);
        Ok(())
    }
}

/// What one file has become.
enum Packed {
    Small(Id, Vec<u8>),
    /// To be packed on the way.
    Large,
}

/// Files in parts of which several are held in memory, packed.
fn some_at_once(mut files: &[(PathBuf, u32, u64)]) -> Vec<&[(PathBuf, u32, u64)]> {
    let mut parts = Vec::new();
    while !files.is_empty() {
        let (mut many, mut bytes) = (0, 0u64);
        for (_, _, size) in files.iter().take(AT_ONCE) {
            // A large one is not held.
            bytes += Some(*size).filter(|size| *size <= LARGE).unwrap_or(0);
            if many > 0 && bytes > TOGETHER {
                break;
            }
            many += 1;
        }
        let (part, rest) = files.split_at(many);
        parts.push(part);
        files = rest;
    }
    parts
}

fn blob(root: &Folder, path: &Path, kind: &Kind, size: u64) -> io::Result<Packed> {
    let mut bytes = Vec::new();
    let id = match kind {
        Kind::Link { target } => packed(Object::Blob, size, &mut Cursor::new(target.as_bytes()), &mut bytes)?,
        Kind::File { .. } if size > LARGE => return Ok(Packed::Large),
        Kind::File { .. } | Kind::Folder => packed(Object::Blob, size, &mut root.file(path)?, &mut bytes)?,
    };
    Ok(Packed::Small(whole(id)?, bytes))
}

fn whole(id: Option<Id>) -> io::Result<Id> {
    id.ok_or_else(|| io::Error::other("the copy was changed while it was read"))
}

fn put(pack: &mut Pack, object: Object, bytes: &[u8]) -> io::Result<Id> {
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let mut out = Vec::new();
    let id = whole(packed(object, size, &mut Cursor::new(bytes), &mut out)?)?;
    pack.add(id, &out).map(|()| id)
}

/// A folder in the making.
#[derive(Default)]
struct Tree(BTreeMap<Vec<u8>, Node>);

enum Node {
    File(u32, Id),
    Folder(Tree),
}

impl Tree {
    fn insert(&mut self, path: &Path, mode: u32, id: Id) {
        let mut at = self;
        let mut parts = path.iter().map(|part| part.as_bytes().to_vec()).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                at.0.insert(part, Node::File(mode, id));
                return;
            }
            let node = at.0.entry(part).or_insert_with(|| Node::Folder(Tree::default()));
            let Node::Folder(inner) = node else { return };
            at = inner;
        }
    }

    fn write(&self, pack: &mut Pack) -> io::Result<Id> {
        let mut lines = Vec::new();
        for (name, node) in &self.0 {
            let (mode, id, key) = match node {
                Node::File(mode, id) => (*mode, *id, name.clone()),
                Node::Folder(inner) => (0o040_000, inner.write(pack)?, [name.as_slice(), b"/"].concat()),
            };
            let line = [format!("{mode:o} ").as_bytes(), name, b"\0", &id].concat();
            lines.push((key, line));
        }
        // Git sorts a folder as if its name ended so.
        lines.sort();
        let text: Vec<u8> = lines.into_iter().flat_map(|(_, line)| line).collect();
        put(pack, Object::Tree, &text)
    }
}

/// The branch that is checked out, if it has a plain name.
fn branch(git: &Folder) -> Option<String> {
    let head = String::from_utf8(bounded(git, "HEAD", 4096).ok()?).ok()?;
    let head = head.trim_end_matches('\n');
    let Some(name) = head.strip_prefix("ref: refs/heads/") else {
        let is_id = matches!(head.len(), 40 | 64) && head.bytes().all(|b| b.is_ascii_hexdigit());
        return is_id.then(|| "main".to_owned());
    };
    let plain = |part: &str| {
        !part.is_empty()
            && part.len() <= 200
            && !part.starts_with(['.', '-'])
            && !part.ends_with('.')
            && !part.ends_with(".lock")
            && !part.contains("..")
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.+#".contains(&b))
    };
    Some(if name.len() <= 400 && name.split('/').all(plain) { name } else { "main" }.to_owned())
}

/// Settings of our own. Times and sizes are what can be compared from inside; owners look different there.
fn settings(more: &str) -> String {
    let version = u8::from(more.contains("[extensions]"));
    format!(
        "[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
         \tcheckStat = minimal\n\ttrustctime = false\n[user]\n\tname = Oubliette\n\temail = oubliette@localhost\n{more}"
    )
}

/// Of a repository's own settings, how its objects and branches are to be read.
fn kept_settings(theirs: &[u8]) -> Vec<u8> {
    let (mut section, mut extensions, mut sparse) = (String::new(), String::new(), false);
    for line in String::from_utf8_lossy(theirs).lines() {
        let line = line.trim().to_ascii_lowercase();
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').trim().to_owned();
        } else if let Some((key, value)) = line.split_once('=') {
            match (section.as_str(), key.trim(), value.trim()) {
                ("extensions", key @ "objectformat", value @ ("sha1" | "sha256"))
                | ("extensions", key @ "refstorage", value @ ("files" | "reftable")) => {
                    extensions.push_str(&format!("\t{key} = {value}\n"));
                }
                ("core", "sparsecheckout", "true") => sparse = true,
                _ => {}
            }
        }
    }
    let mut more = if sparse { "[core]\n\tsparseCheckout = true\n".to_owned() } else { String::new() };
    if !extensions.is_empty() {
        more.push_str(&format!("[extensions]\n{extensions}"));
    }
    settings(&more).into_bytes()
}

fn modified_of(root: &Folder, path: &Path) -> io::Result<i64> {
    let folder = root.folder(path.parent().unwrap_or(Path::new("")))?;
    Ok(folder.look(path.file_name().unwrap_or_default())?.mtime())
}

fn bounded(folder: &Folder, path: &str, most: u64) -> io::Result<Vec<u8>> {
    let file = folder.file(Path::new(path))?;
    if file.metadata()?.len() > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn summed(file: &mut std::fs::File) -> io::Result<(u64, String)> {
    file.seek(SeekFrom::Start(0))?;
    let (mut sum, mut size, mut piece) = (Sha256::new(), 0, vec![0; 256 << 10]);
    loop {
        let n = file.read(&mut piece)?;
        let Some(bytes) = piece.get(..n).filter(|b| !b.is_empty()) else { break };
        size += u64::try_from(n).unwrap_or(u64::MAX);
        sum.update(bytes);
    }
    Ok((size, hex(&sum.finalize())))
}

fn refuse_copy(path: &Path, source: io::Error) -> RunError {
    RunError::Io { doing: "write the copy of", path: path.to_owned(), source }
}
