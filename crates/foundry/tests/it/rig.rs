//! A Foundry of a test's own, with a baseline and branches.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use agent::LoadedGuild;
use foundry::{
    Arena, Attacks, BranchId, Foundry, FoundryError, GateRecord, GateVerdict, Kept, Refusal, Row, RowVerdict,
    Terms,
};
use policy::{Date, Deployment, Grant, RoleName, Tier};
use tempfile::TempDir;

pub(crate) struct Rig {
    pub(crate) dir: TempDir,
    pub(crate) deployment: Deployment,
    pub(crate) digest: String,
    pub(crate) waivers: Option<String>,
    /// What the gate attacks with today.
    pub(crate) attacks: String,
    pub(crate) arena: Said,
}

/// Attacks that were made and came to this, and how often that was asked for.
pub(crate) struct Said {
    pub(crate) verdict: RowVerdict,
    pub(crate) tier: Tier,
    pub(crate) asked: Cell<u32>,
}

impl Arena for Said {
    async fn attack(
        &self,
        guild: &LoadedGuild,
        _: &Grant,
        _: &BTreeSet<RoleName>,
    ) -> Result<Attacks, FoundryError> {
        self.asked.set(self.asked.get() + 1);
        Ok(one(guild, self.verdict, self.tier))
    }
}

/// What happens while a Guild is attacked of which these roles are changed, and what comes of that.
pub(crate) struct Meanwhile<F>(pub(crate) F);

impl<F: Fn(&LoadedGuild, &BTreeSet<RoleName>) -> Result<RowVerdict, FoundryError>> Arena for Meanwhile<F> {
    async fn attack(
        &self,
        guild: &LoadedGuild,
        _: &Grant,
        changed: &BTreeSet<RoleName>,
    ) -> Result<Attacks, FoundryError> {
        (self.0)(guild, changed).map(|verdict| one(guild, verdict, Tier::Gvisor))
    }
}

/// One attack as the role that begins, which came to this.
fn one(guild: &LoadedGuild, verdict: RowVerdict, tier: Tier) -> Attacks {
    let row = Row {
        role: guild.guild.entry.to_string(),
        attack: "one".to_owned(),
        verdict,
        layer: "walls".to_owned(),
        detail: String::new(),
    };
    let (engine, corpus) = ("none".to_owned(), "0".to_owned());
    Attacks { tier, engine, corpus, rows: vec![row], duration_ms: 1 }
}

pub(crate) const ROLE: &str = "worker";

impl Rig {
    /// With a baseline of one role that may read and finish.
    pub(crate) fn new() -> Rig {
        let rig = Rig::empty(tempfile::tempdir().unwrap());
        guild(&rig.path("start"), &["read_file", "finish"], "You read.");
        rig.make().init(&rig.path("start"), &rig.terms()).unwrap();
        rig
    }

    pub(crate) fn empty(dir: TempDir) -> Rig {
        Rig {
            dir,
            deployment: Deployment::default(),
            digest: "deployment".to_owned(),
            waivers: None,
            attacks: "0".to_owned(),
            arena: Said { verdict: RowVerdict::Held, tier: Tier::Gvisor, asked: Cell::new(0) },
        }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// In the folder of the Foundry.
    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path("data/foundry").join(name)
    }

    pub(crate) fn make(&self) -> Foundry {
        Foundry::make(&self.path("data")).unwrap()
    }

    pub(crate) fn terms(&self) -> Terms<'_> {
        Terms {
            deployment: &self.deployment,
            deployment_digest: self.digest.clone(),
            waivers: self.waivers.clone().map(|text| ("foundry.toml".to_owned(), text)),
            attacks: self.attacks.clone(),
            today: Date::parse("2026-11-30").unwrap(),
        }
    }

    /// A branch that says something else.
    pub(crate) fn branch(&self, id: &str, prompt: &str) {
        guild(&self.at("branches").join(id).join("guild"), &["read_file", "finish"], prompt);
    }

    pub(crate) fn gate(&self, id: &str) -> Result<GateRecord, FoundryError> {
        self.gate_in(id, &self.arena)
    }

    pub(crate) fn gate_in(&self, id: &str, arena: &impl Arena) -> Result<GateRecord, FoundryError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(self.make().gate(&self.id(id), &self.terms(), arena))
    }

    #[track_caller]
    pub(crate) fn gated(&self, id: &str, verdict: GateVerdict) -> GateRecord {
        let record = self.gate(id).unwrap();
        assert_eq!(record.verdict, verdict, "{record:?}");
        record
    }

    pub(crate) fn id(&self, id: &str) -> BranchId {
        BranchId::parse(id).unwrap()
    }

    pub(crate) fn promote(&self, id: &str) -> Result<Kept, FoundryError> {
        self.make().promote(&self.id(id), &self.terms(), &|_| {})
    }

    #[track_caller]
    pub(crate) fn not_promoted(&self, id: &str, refusal: Refusal) {
        let before = self.baseline();
        let e = self.promote(id).unwrap_err();
        assert_eq!(e.refusal(), Some(refusal), "{e}");
        assert_eq!(self.baseline(), before);
        assert!(!self.at(".next").exists());
    }

    /// What the baseline's role is told.
    pub(crate) fn baseline(&self) -> String {
        fs::read_to_string(self.at("baseline/prompts/worker.md")).unwrap()
    }

    /// The folders of the history.
    pub(crate) fn kept(&self) -> Vec<String> {
        let names = fs::read_dir(self.at("history")).unwrap();
        let mut names: Vec<String> = names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn link(&self, at: impl AsRef<Path>, target: &str) {
        symlink(target, self.at(at)).unwrap();
    }
}

/// A Guild of one role with these tools.
pub(crate) fn guild(at: &Path, tools: &[&str], prompt: &str) {
    fs::create_dir_all(at.join("prompts")).unwrap();
    let text = format!(
        "schema = 1\nname = \"test\"\nentry = \"{ROLE}\"\n\n[roles.{ROLE}]\nprompt = \"prompts/worker.md\"\ntools = {tools:?}\n"
    );
    fs::write(at.join("guild.toml"), text).unwrap();
    fs::write(at.join("prompts/worker.md"), prompt).unwrap();
}
