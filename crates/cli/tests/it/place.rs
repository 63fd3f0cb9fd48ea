//! A folder of a test's own, with everything a run needs, and the program that works in it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{Reply, ScriptedModel};

/// User and group of nobody in particular.
const ORDINARY: u32 = 65534;

static NUMBER: AtomicU32 = AtomicU32::new(10_000);

/// Who starts the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Whoever runs the tests.
    Own,
    /// An ordinary user, when the tests are run by root.
    Ordinary,
}

pub(crate) struct Place {
    dir: TempDir,
    /// Where every user can start it.
    program: TempDir,
    pub(crate) tier: &'static str,
    who: Who,
    number: u32,
}

/// What one start of the program left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new(tier: &'static str, who: Who) -> Place {
        let dir = tempfile::Builder::new().prefix("oubliette-test-").tempdir().unwrap();
        let program = tempfile::Builder::new().prefix("oubliette-bin-").tempdir().unwrap();
        fs::set_permissions(program.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let (from, to) = (Path::new(env!("CARGO_BIN_EXE_oubliette")), program.path().join("oubliette"));
        if fs::hard_link(from, &to).is_err() {
            fs::copy(from, &to).unwrap();
        }
        let place = Place { dir, program, tier, who, number: NUMBER.fetch_add(1, Ordering::Relaxed) };
        if tier == "confined" {
            // It has no view of its own: its id walks through these folders as anybody would.
            for name in ["", "data", "data/runs"] {
                fs::create_dir_all(place.path(name)).unwrap();
                fs::set_permissions(place.path(name), PermissionsExt::from_mode(0o711)).unwrap();
            }
        }
        for name in ["source", "outside", "home"] {
            fs::create_dir(place.path(name)).unwrap();
        }
        place
    }

    /// One on the strongest tier, for claims that no tier changes.
    pub(crate) fn any() -> Place {
        Place::new("gvisor", Who::Own)
    }

    /// One on the fastest tier, for claims that no tier changes.
    pub(crate) fn quick() -> Place {
        Place::new("namespace", Who::Own)
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Seconds that no other place's guests are told to sleep.
    pub(crate) fn odd_number(&self) -> String {
        format!("{}.{}", 80_000 + std::process::id() % 10_000, self.number)
    }

    pub(crate) fn bin(&self) -> &Path {
        self.program.path()
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, name: impl AsRef<Path>) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn link(&self, name: &str, target: impl AsRef<Path>) {
        std::os::unix::fs::symlink(target, self.path(name)).unwrap();
    }

    /// A Guild of one role with these tools, in `guild`.
    pub(crate) fn guild(&self, tools: &[&str]) {
        let tools = json!(tools);
        self.write(
            "guild/guild.toml",
            format!(
                "schema = 1\nname = \"test\"\nentry = \"worker\"\n\n[roles.worker]\nprompt = \"prompts/worker.md\"\ntools = {tools}\n"
            ),
        );
        self.write("guild/prompts/worker.md", "You do what you are asked.\n");
    }

    /// The program, started here, with an environment of its own.
    pub(crate) fn oubliette<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.command(&self.program.path().join("oubliette"));
        command.args(args);
        command
    }

    #[expect(clippy::disallowed_methods, reason = "the program is started from outside")]
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("home"))
            .stdin(Stdio::null())
            .current_dir(self.dir.path());
        if self.who == Who::Ordinary && rustix::process::geteuid().is_root() {
            self.hand_over(self.dir.path());
            command.uid(ORDINARY).gid(ORDINARY);
        }
        command
    }

    /// Everything here becomes the ordinary user's, as if that user had made it.
    fn hand_over(&self, path: &Path) {
        std::os::unix::fs::lchown(path, Some(ORDINARY), Some(ORDINARY)).unwrap();
        if path.symlink_metadata().unwrap().is_dir() {
            for entry in fs::read_dir(path).unwrap() {
                self.hand_over(&entry.unwrap().path());
            }
        }
    }

    pub(crate) fn ran<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        ran(&mut self.oubliette(args))
    }

    /// `exec` of a command on this place's tier, with the options given before it.
    pub(crate) fn exec_with(&self, options: &[&str], argv: &[&str]) -> Ran {
        ran(&mut self.exec_command(options, argv))
    }

    pub(crate) fn exec_command(&self, options: &[&str], argv: &[&str]) -> Command {
        let mut command =
            self.oubliette(["exec", "--data", "data", "--tier", self.tier, "--floor", self.tier]);
        command.args(options).arg("--").args(argv);
        command
    }

    pub(crate) fn exec(&self, argv: &[&str]) -> Ran {
        self.exec_with(&[], argv)
    }

    pub(crate) fn sh(&self, line: &str) -> Ran {
        self.exec(&["sh", "-c", line])
    }

    /// `run` of the Guild on `source` against a server.
    pub(crate) fn run(&self, url: &str) -> Ran {
        ran(&mut self.run_command(url))
    }

    pub(crate) fn run_command(&self, url: &str) -> Command {
        self.oubliette(self.run_args(url))
    }

    pub(crate) fn run_args<'a>(&self, url: &'a str) -> [&'a str; 16] {
        [
            "run",
            "--guild",
            "guild",
            "--workspace",
            "source",
            "--task",
            "Do the work.",
            "--model-url",
            url,
            "--data",
            "data",
            "--tier",
            self.tier,
            "--floor",
            self.tier,
            "--json",
        ]
    }

    /// The ids of all runs here, oldest first.
    pub(crate) fn ids(&self) -> Vec<String> {
        let Ok(dir) = fs::read_dir(self.path("data/runs")) else { return Vec::new() };
        let mut ids: Vec<String> = dir
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|n| !n.starts_with('.'))
            .collect();
        ids.sort();
        ids
    }

    /// The folder of the newest run.
    pub(crate) fn newest(&self) -> PathBuf {
        self.path("data/runs").join(self.ids().last().expect("there is a run"))
    }

    /// The events of the newest run.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.newest().join("events.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The events of the newest run of one type.
    pub(crate) fn events_of(&self, kind: &str) -> Vec<Value> {
        self.events().into_iter().filter(|e| e["type"] == kind).collect()
    }

    pub(crate) fn file_of_run(&self, name: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(self.newest().join(name)).unwrap()).unwrap()
    }

    /// The newest run has a complete record for this reason.
    pub(crate) fn assert_whole(&self, stop: &str) {
        let id = self.ids().pop().expect("there is a run");
        let verified = self.ran(["runs", "verify", &id]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
        let events = self.events();
        let end = events.last().unwrap();
        assert_eq!((&end["type"], &end["stop"]), (&json!("run_end"), &json!(stop)), "{end}");
        assert_eq!(self.file_of_run("result.json")["stop"], stop);
    }

    /// Whether any file of the newest run holds these bytes, in content or name.
    pub(crate) fn run_folder_holds(&self, needle: &str) -> bool {
        holds(&self.newest(), needle.as_bytes())
    }
}

/// Whether anything beneath `root` holds these bytes, in content, name or target of a link.
pub(crate) fn holds(root: &Path, needle: &[u8]) -> bool {
    let inside = |bytes: &[u8]| bytes.windows(needle.len()).any(|w| w == needle);
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let meta = path.symlink_metadata().unwrap();
        let content = if meta.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            Vec::new()
        } else if meta.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else if meta.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if inside(&content) || inside(name) {
            return true;
        }
    }
    false
}

pub(crate) fn ran(command: &mut Command) -> Ran {
    told(command.output().unwrap())
}

pub(crate) fn told(output: Output) -> Ran {
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(output.status.signal(), None, "the program was killed: {output:?}");
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("the program writes UTF-8"),
        err: String::from_utf8(output.stderr).expect("the program writes UTF-8"),
    }
}

/// Starts a command and feeds it.
pub(crate) fn fed(command: &mut Command, stdin: &[u8]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that does not read its input has ended before; its exit code tells why.
    child.stdin.take().unwrap().write_all(stdin).ok();
    told(child.wait_with_output().unwrap())
}

impl Ran {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("no JSON ({e}): {self:?}"))
    }

    /// The exit code, and a sentence on standard error.
    #[track_caller]
    pub(crate) fn assert_refused(&self, code: i32, sentence: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.contains(sentence), "{sentence:?} is not in {self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
    }
}

/// A call as a model's answer under a schema.
pub(crate) fn act(tool: &str, args: Value) -> Reply {
    Reply::Action(json!({"tool": tool, "args": args}))
}

pub(crate) fn sh(command: &str) -> Reply {
    act("run_shell", json!({"command": command}))
}

pub(crate) fn finish() -> Reply {
    act("finish", json!({"status": "done", "summary": "all good"}))
}

/// What the model was told last, in its n-th request.
pub(crate) fn told_in(server: &ScriptedModel, request: usize) -> String {
    let asked = server.asked();
    let messages = asked[request].body["messages"].as_array().unwrap();
    messages.last().unwrap()["content"].as_str().unwrap().to_owned()
}
