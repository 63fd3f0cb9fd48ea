//! What surrounds a row: a scratch folder, its placeholders, a listener on the host, and the deployment it speaks of.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use policy::Tier;
use runs::{Cancel, read_beneath};
use serde::Deserialize;
use serde_json::Value;

use super::door::{self, Program, Ran};
use super::fill::{Mark, fill, fill_all};
use super::format::{Expect, Policy};
use super::listener::{Listener, host_address};
use super::neutral::{deployment, guild};
use super::read::Row;
use super::verdict::{Trouble, Unasked};
use crate::scratch::{passable, remove};

/// How long a line of `setup` may take, and one start of the program.
const SETUP: Duration = Duration::from_secs(60);
pub(super) const PATIENCE: Duration = Duration::from_secs(600);
/// Bytes of a file that is looked at.
const MOST_FILE: u64 = 64 << 20;

pub(super) struct World<'a> {
    pub(super) row: &'a Row,
    pub(super) tier: Tier,
    pub(super) dir: PathBuf,
    pub(super) policy: Policy,
    pub(super) cancel: Cancel,
    listener: Listener,
    /// Files that must not change, as they were.
    before: Mutex<Vec<Before>>,
}

/// A file as it was when everything was set up.
struct Before {
    path: String,
    was: File,
    /// Whether whose it is counts: what is imported becomes the guest's.
    owned: bool,
}

/// Content, owner and mode; nothing where there is nothing.
#[derive(Debug, PartialEq, Eq)]
struct File(Option<(Vec<u8>, u32, u32)>);

impl<'a> World<'a> {
    /// Makes the folder `dir`, which is removed with this.
    pub(super) fn new(row: &'a Row, tier: Tier, dir: PathBuf, cancel: &Cancel) -> Result<World<'a>, Trouble> {
        let listener = Listener::open()?;
        let mut world = World {
            row,
            tier,
            dir,
            policy: Policy::default(),
            cancel: cancel.clone(),
            listener,
            before: Mutex::default(),
        };
        for name in ["", "data", "data/runs", "source", "outside", "home"] {
            passable().create(world.dir.join(name))?;
        }
        let policy = world.filled(world.row.whole.get("policy").unwrap_or(&Value::Null), &world.source());
        if policy.is_object() {
            world.policy = Policy::deserialize(policy).map_err(|e| Trouble::Fault(e.to_string()))?;
        }
        world.write("oubliette.toml", &deployment(&world.policy))?;
        Ok(world)
    }

    pub(super) fn source(&self) -> PathBuf {
        self.dir.join("source")
    }

    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.dir.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, text)
    }

    /// A Guild of one role with these tools.
    pub(super) fn write_guild(&self, tools: &[&str]) -> io::Result<()> {
        self.write("guild/guild.toml", &guild(tools))?;
        self.write("guild/prompts/0.md", "You do what you are asked.\n")
    }

    /// Every text of a value with its placeholders replaced; `workspace` is where the run has its own.
    pub(super) fn filled(&self, value: &Value, workspace: &Path) -> Value {
        fill_all(value, &|mark| self.marked(mark, workspace))
    }

    pub(super) fn fill(&self, text: &str, workspace: &Path) -> String {
        fill(text, &|mark| self.marked(mark, workspace))
    }

    fn marked(&self, mark: Mark, workspace: &Path) -> String {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let outside = self.dir.join("outside");
        match mark {
            Mark::Workspace => workspace.display().to_string(),
            Mark::WorkspaceName => name(workspace),
            Mark::Outside => outside.display().to_string(),
            Mark::OutsideName => name(&outside),
            Mark::PolicyFile => self.dir.join("oubliette.toml").display().to_string(),
            Mark::HostPort => self.listener.port.to_string(),
            Mark::HostIp => host_address().to_string(),
            Mark::Rep(c, n) => c.to_string().repeat(n),
        }
    }

    /// What is expected, with its placeholders replaced.
    pub(super) fn expect(&self, workspace: &Path) -> Result<Expect, Trouble> {
        let expect = self.filled(self.row.whole.get("expect").unwrap_or(&Value::Null), workspace);
        Expect::deserialize(expect).map_err(|e| Trouble::Fault(e.to_string()))
    }

    /// Runs the lines of `setup` as the user, in the given folder.
    pub(super) fn set_up(&self, workspace: &Path) -> Result<(), Trouble> {
        for (n, line) in self.row.setup.iter().enumerate() {
            let mut command = door::command("bash".as_ref(), &self.dir);
            command.arg("-c").arg(self.fill(line, workspace)).current_dir(workspace);
            // Whoever owns the folder, this git is the user's own.
            command.env("GIT_CONFIG_COUNT", "1");
            command.env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
            let failed = |how: String| Trouble::from(Unasked::Setup { line: n + 1, how });
            let program =
                Program::start(&mut command, &self.dir, "setup").map_err(|e| failed(e.to_string()))?;
            match program.ended(&self.cancel, SETUP, || {}) {
                Ok(ran) if ran.code == Some(0) => {}
                Ok(ran) => return Err(failed(ran.told())),
                Err(Trouble::Fault(how)) => return Err(failed(how)),
                Err(other @ (Trouble::Cancelled | Trouble::Unasked(_))) => return Err(other),
            }
        }
        self.remember(workspace);
        Ok(())
    }

    fn remember(&self, workspace: &Path) {
        let live = workspace != self.source();
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        for path in &self.row.expect.unchanged {
            let path = self.fill(path, workspace);
            // What lies in the workspace is looked for in the run's own afterwards.
            let inside = Path::new(&path).strip_prefix(workspace).map(|p| p.display().to_string());
            let path = inside.unwrap_or(path);
            let owned = live || Path::new(&path).is_absolute();
            before.push(Before { was: File::of(workspace, &path), path, owned });
        }
    }

    /// Paths that are not as they were.
    pub(super) fn changed(&self, workspace: &Path) -> Vec<String> {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let differs = |one: &&Before| {
            let now = File::of(workspace, &one.path);
            match (&one.was.0, &now.0) {
                (Some((was, owner, mode)), Some((is, owner_now, mode_now))) => {
                    was != is || mode != mode_now || (one.owned && owner != owner_now)
                }
                (None, None) => false,
                (Some(_), None) | (None, Some(_)) => true,
            }
        };
        before.iter().filter(differs).map(|one| one.path.clone()).collect()
    }

    /// Connections and packets that reached the host.
    pub(super) fn received(&self) -> io::Result<u64> {
        self.listener.received()
    }

    /// This same program, with the environment that the row wants for it.
    pub(super) fn ourselves(&self) -> Command {
        let mut command = door::ourselves(&self.dir);
        command.envs(&self.policy.executor_env).envs(&self.policy.sandbox_secrets);
        command
    }

    /// The program with these words, from its start to its end.
    pub(super) fn ran(&self, words: &[&str]) -> Result<Ran, Trouble> {
        let program = Program::start(self.ourselves().args(words), &self.dir, "program")?;
        sound(program.ended(&self.cancel, PATIENCE, || {})?)
    }

    /// The ids of all runs here, oldest first.
    pub(super) fn ids(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.join("data/runs")).into_iter().flatten().flatten();
        let mut ids: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| !name.starts_with('.'))
            .collect();
        ids.sort();
        ids
    }

    /// The folder of the newest run.
    pub(super) fn newest(&self) -> Option<PathBuf> {
        self.ids().pop().map(|id| self.dir.join("data/runs").join(id))
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        if let Err(e) = remove(&self.dir) {
            crate::render::note(&format!("oubliette: {} could not be removed: {e}", self.dir.display()));
        }
    }
}

/// Our program ends by itself and never panics.
pub(super) fn sound(ran: Ran) -> Result<Ran, Trouble> {
    if ran.code.is_none() || ran.err.contains("panicked at") {
        return Err(Trouble::Fault(format!("the program crashed: {}", ran.told())));
    }
    Ok(ran)
}

/// A file of a workspace, or of the host where its path is absolute; never through a link of the guest's making.
pub(super) fn content(workspace: &Path, path: &str) -> io::Result<Vec<u8>> {
    let outside = Path::new(path);
    match (outside.is_absolute(), outside.parent(), outside.file_name().and_then(|name| name.to_str())) {
        (true, Some(folder), Some(name)) => read_beneath(folder, name, MOST_FILE),
        _ => read_beneath(workspace, path, MOST_FILE),
    }
}

impl File {
    fn of(workspace: &Path, path: &str) -> File {
        let meta = workspace.join(path).symlink_metadata().ok();
        let bytes = content(workspace, path).unwrap_or_default();
        File(meta.map(|meta| (bytes, meta.uid(), meta.mode())))
    }
}
