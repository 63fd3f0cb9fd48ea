//! The same program where nothing contains it: what an attack is worth that cannot succeed anywhere?
//!
//! It runs as an ordinary process of this machine, as a user without rights, and what it is after are things of its own:
//! a canary, a run, a neighbour and a process that were made for it alone, so that it may really change, stop and remove
//! them. Each control runs once, whatever number of tiers is asked about afterwards.
//!
//! What no ordinary user may do is done by the root of namespaces of its own, where it is about what these have for
//! themselves (`namespace`); or with the rights of who proves (`root`), where it only looks, opens and closes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::corpus::{self, Attack, Control};
use super::outside::{self, Outside};
use super::{Said, tries, way};
use crate::RunError;

const LONGEST: Duration = Duration::from_secs(20);
/// Who a control runs as where the executor is root and has no ids to give.
const NOBODY: u32 = 65534;

/// What came of an attack where nothing contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Without {
    /// Some of its tries succeeded: how many, and their names.
    Succeeds { some: usize, of: usize, tries: BTreeSet<String> },
    /// None did: something around this program holds it as well; by what answers.
    Refused { by: Vec<String> },
    /// It could not be run as it must be, and is not run otherwise.
    Untried { why: String },
}

impl Without {
    /// In words.
    pub(super) fn told(&self, by: &Control) -> String {
        let place = match by {
            Control::Namespace => "outside, in namespaces of its own,",
            Control::Root => "outside, with the rights of who proves,",
            Control::Host | Control::Inner | Control::Missing { .. } => "outside",
        };
        match self {
            Without::Succeeds { some, of, .. } => format!("{place} {some} of {of} succeed"),
            Without::Refused { .. } => format!("{place} nothing succeeds"),
            Without::Untried { .. } => format!("{place} not tried"),
        }
    }

    /// Of tries that were refused inside, those that did not succeed outside either, or were not made there.
    pub(super) fn unshown(&self, refused: &BTreeSet<String>) -> Vec<String> {
        match self {
            Without::Succeeds { tries, .. } => refused.difference(tries).cloned().collect(),
            // The verdict says it of all.
            Without::Refused { .. } | Without::Untried { .. } => Vec::new(),
        }
    }

    /// Why a refusal shows nothing of the layer, where it does not; with what a machine must have for it to.
    pub(super) fn around(&self, wants: Option<&str>) -> Option<String> {
        let why = match self {
            Without::Succeeds { .. } => return None,
            Without::Refused { by } if by.is_empty() => "also refused outside of any sandbox here".to_owned(),
            Without::Refused { by } => {
                format!("also refused outside of any sandbox here: {}", by.join(", "))
            }
            Without::Untried { why } => format!("not tried outside of any sandbox: {why}"),
        };
        Some(wants.map_or(why.clone(), |wants| format!("{why}; it takes {wants}")))
    }
}

/// The controls that run outside, each once.
#[derive(Debug)]
pub struct Controls {
    folder: PathBuf,
    done: Mutex<BTreeMap<String, Result<Without, String>>>,
}

impl Controls {
    /// None has run yet. `folder` is one that may be written to.
    pub fn new(folder: &Path) -> Controls {
        Controls { folder: folder.to_path_buf(), done: Mutex::default() }
    }

    /// What came of this attack's, which runs now if it has not; or why that is not known.
    pub(super) fn of(&self, attack: &Attack) -> Result<Without, String> {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = done.get(&attack.id) {
            return known.clone();
        }
        let came = self.run(attack).map_err(|e| e.to_string());
        done.insert(attack.id.clone(), came.clone());
        came
    }

    fn run(&self, attack: &Attack) -> Result<Without, RunError> {
        let user = match User::of_this_process() {
            _ if attack.control == Some(Control::Root) => User(None),
            Ok(user) => user,
            Err(why) => return Ok(Without::Untried { why }),
        };
        let folder = self.folder.join("control");
        let failed = RunError::io("prepare", &folder);
        let stand = match Stand::make(&folder, user) {
            Ok(stand) => stand,
            // Ids that this user namespace does not know.
            Err(StandError::Io(e)) if matches!(e.kind(), ErrorKind::InvalidInput) => {
                return Ok(Without::Untried { why: format!("nothing can be given to another user: {e}") });
            }
            Err(StandError::Io(e)) => return Err(failed(e)),
            Err(StandError::Run(e)) => return Err(e),
        };
        let aside = if attack.control == Some(Control::Namespace) { corpus::ASIDE } else { "" };
        let facts = stand.facts();
        let said = Said::of(&stand.play(&format!("{aside}\n{}", attack.program), &facts).map_err(failed)?);
        let (some, of) = (said.broken.len(), said.broken.len() + said.held.len());
        Ok(if let Some(why) = said.untried {
            Without::Untried { why: format!("there are no namespaces of its own to be had: {why}") }
        } else if some > 0 {
            Without::Succeeds { some, of, tries: tries(&said.broken, &facts) }
        } else {
            Without::Refused { by: said.answers().into_iter().map(str::to_owned).collect() }
        })
    }
}

/// An ordinary user of this machine: who runs this program, or where that is root, the one that a guest would be.
#[derive(Clone, Copy, Debug)]
struct User(Option<(u32, u32)>);

impl User {
    fn of_this_process() -> Result<User, String> {
        if rustix::process::geteuid().is_root() {
            return Ok(User(Some(sandbox::guest_owner().unwrap_or((NOBODY, NOBODY)))));
        }
        // Rights that a process without the number 0 may have all the same.
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:")).map(str::trim);
        match rights {
            Some(none) if none.chars().all(|c| c == '0') => Ok(User(None)),
            _ => Err("this program has rights that ordinary users have not".to_owned()),
        }
    }

    fn owns(self, path: &Path) -> io::Result<()> {
        self.0.map_or(Ok(()), |(uid, gid)| chown(path, Some(uid), Some(gid)))
    }

    fn command(self, program: &str) -> Command {
        #[expect(
            clippy::disallowed_methods,
            reason = "a control is what runs outside every sandbox, on purpose"
        )]
        let mut command = Command::new(program);
        command.env_clear().stdin(Stdio::null()).stderr(Stdio::null());
        if let Some((uid, gid)) = self.0 {
            command.gid(gid).uid(uid);
        }
        command
    }
}

enum StandError {
    Io(io::Error),
    Run(RunError),
}

impl From<io::Error> for StandError {
    fn from(e: io::Error) -> StandError {
        StandError::Io(e)
    }
}

/// What one control is after: all of it made for it, and gone with it.
struct Stand {
    user: User,
    folder: PathBuf,
    outside: Outside,
    victim: Child,
}

impl Stand {
    fn make(folder: &Path, user: User) -> Result<Stand, StandError> {
        let outside = Outside::new(&folder.join("canary")).map_err(StandError::Run)?;
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        let (run, neighbour) = (folder.join("run"), folder.join("neighbour"));
        for made in [&run.join("workspace"), &run.join("artifacts"), &neighbour.join("workspace")] {
            fs::create_dir_all(made)?;
            user.owns(made)?;
        }
        for made in [run.join("events.jsonl"), run.join("meta.json"), neighbour.join("workspace/mine")] {
            fs::write(&made, "{}\n")?;
            user.owns(&made)?;
        }
        for made in [&run, &neighbour] {
            user.owns(made)?;
        }
        let victim = user
            .command("/usr/bin/sleep")
            .arg("60")
            .env("SECRET", "of a victim")
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Stand { user, folder: folder.to_path_buf(), outside, victim })
    }

    fn facts(&self) -> Value {
        let mut facts = self.outside.facts();
        facts["where"] = "host".into();
        facts["host"] = rustix::system::uname().nodename().to_string_lossy().into();
        for name in ["pids", "neighbours"] {
            facts[name] = json!([self.victim.id()]);
            facts[format!("{name}_began")] = json!([outside::began(self.victim.id())]);
        }
        facts["run"] = json!(self.folder.join("run"));
        facts["neighbour"] = json!(self.folder.join("neighbour"));
        facts["way"] = way::closed();
        facts
    }

    /// What the program printed.
    fn play(&self, program: &str, facts: &Value) -> io::Result<String> {
        let workspace = self.folder.join("run/workspace");
        let mut child = self
            .user
            .command("/usr/bin/python3")
            .args(["-I", "-S", "-c", &corpus::program(program), &facts.to_string()])
            .env("TMPDIR", &workspace)
            .env("HOME", &workspace)
            .current_dir(&workspace)
            .stdout(Stdio::piped())
            .spawn()?;
        let began = Instant::now();
        while child.try_wait()?.is_none() {
            if began.elapsed() > LONGEST {
                child.kill()?;
                child.wait()?;
                return Err(ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut said = String::new();
        if let Some(out) = child.stdout.take() {
            out.take(1 << 20).read_to_string(&mut said)?;
        }
        Ok(said)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        // Whoever cannot be ended ends by himself, and the folder goes with the one that it lies in.
        self.victim.kill().ok();
        self.victim.wait().ok();
        crate::remove_tree(&self.folder).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::super::corpus::{Control, Corpus};
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
        folder
    }

    fn attack(program: &str) -> Attack {
        let text = format!(
            "[[attack]]\nid='mine'\ninvariant='x'\nabout='x'\ncontrol='host'\nprogram='''\n{program}\n'''\n"
        );
        let mut corpus = Corpus::default();
        corpus.add("mine", &text).unwrap();
        corpus.attacks()[0].clone()
    }

    #[test]
    fn a_control_runs_once_without_rights_and_leaves_nothing() {
        let folder = folder();
        let controls = Controls::new(folder.path());
        let tries = ["an_ordinary_user", "canary", "neighbour", "victim"].map(str::to_owned).into();
        let succeeds = Without::Succeeds { some: 4, of: 5, tries };
        let program = "rights = [l.split()[1] for l in open('/proc/self/status') if l.startswith('CapEff')]\n\
             say('broken' if os.getuid() and not int(rights[0], 16) else 'held', 'an ordinary user')\n\
             attempt('canary', lambda: os.remove(FACTS['canary']))\n\
             attempt('victim', lambda: os.kill(FACTS['pids'][0], signal.SIGKILL))\n\
             attempt('neighbour', lambda: write(FACTS['neighbour'] + '/workspace/mine'))\n\
             attempt('nothing', lambda: read('/nonexistent'))";
        assert_eq!(controls.of(&attack(program)).unwrap(), succeeds);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // Asked again, whatever it would be now.
        assert_eq!(controls.of(&attack("pass")).unwrap(), succeeds);
        let by = vec!["EAFNOSUPPORT".to_owned(), "ENOENT".to_owned()];
        let program =
            "attempt('x', lambda: socket.socket(200, 1, 0)); attempt('x', lambda: read('/nonexistent'))";
        assert_eq!(Controls::new(folder.path()).of(&attack(program)).unwrap(), Without::Refused { by });
    }

    /// An attack that succeeds nowhere shows nothing of a wall. These do succeed where there is none; which do not, and
    /// what they want of a machine, stands in the data.
    #[test]
    fn every_shipped_attack_succeeds_where_nothing_contains_it_or_says_what_it_wants() {
        let folder = folder();
        let _open = super::super::leave_open().unwrap();
        let controls = Controls::new(folder.path());
        let (mut succeed, mut not) = (0, Vec::new());
        for attack in Corpus::shipped().unwrap().attacks() {
            if let Some(Control::Host | Control::Namespace | Control::Root) = attack.control {
                match controls.of(attack).unwrap() {
                    Without::Succeeds { .. } => succeed += 1,
                    other => not.push((attack.clone(), other)),
                }
            }
        }
        let silent: Vec<String> = not
            .iter()
            .filter(|(attack, _)| attack.wants.is_none())
            .map(|(attack, came)| format!("{}: {came:?}", attack.id))
            .collect();
        assert!(silent.is_empty(), "{silent:#?}");
        assert!(succeed >= 45, "{succeed}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// A bound of somebody else's that comes far beyond the promised one is not what the row is about.
    #[test]
    fn a_bomb_that_something_else_stops_later_has_broken_its_bound() {
        let corpus = Corpus::shipped().unwrap();
        let bomb = corpus.attacks().iter().find(|a| a.id == "memory-bomb").unwrap();
        for (mib, word) in [(600, "broken"), (200, "held")] {
            let facts = json!({ "where": "namespace" }).to_string();
            let out = User(None)
                .command("/usr/bin/prlimit")
                .arg(format!("--as={}", mib << 20))
                .args(["/usr/bin/python3", "-I", "-S", "-c", &corpus::program(&bomb.program), &facts])
                .output()
                .unwrap();
            let said = Said::of(&String::from_utf8_lossy(&out.stdout));
            let told = if word == "broken" { &said.broken } else { &said.held };
            assert!(told.len() == 1 && told[0].starts_with("memory_"), "{mib} MiB: {said:?}");
        }
    }

    #[test]
    fn in_namespaces_of_its_own_it_is_root_of_these_alone() {
        let folder = folder();
        let mut attack = attack(
            "attempt('name', lambda: socket.sethostname('aside'))\n\
             attempt('root', lambda: os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY))\n\
             attempt('mount', lambda: [call('x', 165, b'x', os.environ['TMPDIR'].encode(), b'tmpfs', 0, 0), write('mine')])",
        );
        attack.control = Some(Control::Namespace);
        let before = rustix::system::uname().nodename().to_owned();
        let came = Controls::new(folder.path()).of(&attack).unwrap();
        let tries = ["mount", "name", "x"].map(str::to_owned).into();
        assert_eq!(came, Without::Succeeds { some: 3, of: 4, tries });
        assert_eq!(rustix::system::uname().nodename(), &*before);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
