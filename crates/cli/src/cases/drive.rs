//! A whole `oubliette run` whose model waits for our word, so that the host can be looked at between two calls.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use policy::Tier;
use runs::Cancel;
use serde_json::json;

use super::door::{Program, Ran};
use super::model::{Model, Reply};
use super::process::{Process, descendants, forker};
use super::verdict::{Trouble, Unasked};
use super::world::{PATIENCE, World, sound};

/// How often a look that said nothing is tried again.
const LOOKS: usize = 5;

pub(super) struct Drive {
    program: Program,
    model: Model,
    cancel: Cancel,
    pub(super) dir: PathBuf,
    /// Requests so far.
    asked: usize,
    /// Calls so far that only looked.
    pub(super) looks: usize,
    /// What each call told the model.
    pub(super) texts: Vec<String>,
    /// What ends the role.
    last: Vec<Reply>,
}

/// A run that has ended.
pub(super) struct Over {
    pub(super) ran: Ran,
    pub(super) dir: PathBuf,
    pub(super) texts: Vec<String>,
}

impl Drive {
    /// Starts the run and waits for its first request.
    pub(super) fn start(world: &World<'_>, tools: &[&str]) -> Result<Drive, Trouble> {
        world.write_guild(tools)?;
        let model = Model::start()?;
        let before = world.ids();
        let name = format!("run-{}", before.len());
        let program =
            Program::start(world.ourselves().args(words(world.tier, &model.base_url())), &world.dir, &name)?;
        // Who cannot finish ends by saying nothing more.
        let last = if tools.contains(&"finish") {
            let arguments = json!({"status": "done", "summary": "all done"}).to_string();
            vec![Reply::Calls(None, vec![("finish".to_owned(), arguments)])]
        } else {
            vec![Reply::Text("done".to_owned()); 2]
        };
        let cancel = world.cancel.clone();
        let (dir, texts) = (PathBuf::new(), Vec::new());
        let mut drive = Drive { program, model, cancel, dir, asked: 0, looks: 0, texts, last };
        if !drive.heard()? {
            let ran = drive.program.ended(&drive.cancel, PATIENCE, || {})?;
            return Err(Trouble::Fault(format!("the run did not begin: {}", ran.told())));
        }
        // What the first request tells is the task.
        drive.texts.clear();
        let id = world.ids().into_iter().find(|id| !before.contains(id));
        let id = id.ok_or_else(|| Trouble::Fault("a run without a folder".to_owned()))?;
        drive.dir = world.dir.join("data/runs").join(id);
        Ok(drive)
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.dir.join("workspace")
    }

    /// Gives an answer and waits for the next request. Says whether the run goes on.
    pub(super) fn say(&mut self, reply: Reply) -> Result<bool, Trouble> {
        self.model.say(reply);
        self.heard()
    }

    /// One call, in an answer of its own.
    pub(super) fn call(&mut self, name: String, arguments: String) -> Result<bool, Trouble> {
        self.say(Reply::Calls(None, vec![(name, arguments)]))
    }

    fn heard(&mut self) -> Result<bool, Trouble> {
        let began = Instant::now();
        while self.model.asked() <= self.asked {
            if self.program.has_ended()? {
                return Ok(false);
            }
            if self.cancel.is_cancelled() {
                return Err(Trouble::Cancelled);
            }
            if began.elapsed() > PATIENCE {
                return Err(Trouble::Fault("the run came to a halt".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.texts.push(self.model.news(self.asked));
        self.asked += 1;
        Ok(true)
    }

    /// Ends the run; one that has ended hears nothing.
    pub(super) fn end(self) -> Result<Over, Trouble> {
        let Drive { program, model, cancel, dir, texts, last, .. } = self;
        last.into_iter().for_each(|reply| model.say(reply));
        let ran = sound(program.ended(&cancel, PATIENCE, || {})?)?;
        Ok(Over { ran, dir, texts })
    }

    /// Processes of the run's sandboxes on the host.
    pub(super) fn on_host(&self) -> BTreeSet<Process> {
        forker(self.program.id).map(descendants).unwrap_or_default()
    }

    /// How many processes the guest sees.
    pub(super) fn inside(&mut self) -> Result<usize, Trouble> {
        let cannot = || Trouble::from(Unasked::NotMeasured { key: "survivors" });
        // A look has the time that the row gives to a call, which may be too short for it on a busy machine.
        for _ in 0..LOOKS {
            // Never the same call twice: it is no loop that a run has to be saved from.
            let count = "set -- /proc/[0-9]*; echo processes: $#";
            let count = json!({"argv": ["sh", "-c", count, self.asked.to_string()]}).to_string();
            if !self.call("run_command".to_owned(), count)? {
                return Err(cannot());
            }
            self.looks += 1;
            let told = self.texts.pop().unwrap_or_default();
            let number = told.split_once("processes: ").and_then(|(_, rest)| rest.split_whitespace().next());
            if let Some(number) = number.and_then(|number| number.parse().ok()) {
                return Ok(number);
            }
        }
        Err(cannot())
    }
}

pub(super) fn words(tier: Tier, url: &str) -> [&str; 16] {
    let tier = tier.as_str();
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
        tier,
        "--floor",
        tier,
        "--json",
    ]
}
