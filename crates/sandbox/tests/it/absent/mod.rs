//! What is taken away is missed aloud: the executor is started where one thing it stands on is really gone, and
//! every tier is then refused with a reason and a remedy, or works and says which layer holds less. Never silence
//! (bug class D-20).
//!
//! `without.py` takes things away as kernels, containers and operators do it (filters of system calls, settings,
//! covered files, limits), and becomes the executor, which is the helper's `try`.

mod engines;
mod kernel;
mod limits;
mod places;

use std::path::Path;

use serde_json::Value;

use crate::{helper, own};

const WITHOUT: &str = include_str!("without.py");

pub(crate) const EPERM: i32 = libc::EPERM;
pub(crate) const ENOSYS: i32 = libc::ENOSYS;

/// What an executor said that lacked something.
pub(crate) struct Told(Vec<Value>);

/// A system call answers with an error.
pub(crate) fn no_call(number: i64, error: i32) -> String {
    format!("call:{number}:{error}")
}

/// User namespaces are refused as a container's default profile does it, which also denies that `clone3` exists.
pub(crate) fn no_user_namespaces() -> Vec<String> {
    let flag = libc::CLONE_NEWUSER;
    vec![
        format!("bits:{}:0:{flag}:{EPERM}", libc::SYS_clone),
        format!("bits:{}:0:{flag}:{EPERM}", libc::SYS_unshare),
        no_call(libc::SYS_clone3, ENOSYS),
    ]
}

/// Tries these tiers where that is gone.
pub(crate) fn without<S: AsRef<str>>(taken: &[S], tiers: &[&str]) -> Told {
    without_engine(taken, tiers, "")
}

/// The same with this `runsc`.
pub(crate) fn without_engine<S: AsRef<str>>(taken: &[S], tiers: &[&str], runsc: &str) -> Told {
    let folder = folder();
    let told = attempt(folder.path(), &folder.path().join("workspace"), taken, tiers, runsc);
    let taken: Vec<&str> = taken.iter().map(AsRef::as_ref).collect();
    for one in &told.0 {
        // The law of this file.
        let refused = text(one, "reason").len() > 20 && text(one, "remedy").len() > 20;
        let works = one["report"].is_object() && text(one, "said") == "works\n";
        assert!(refused != works, "{taken:?}: {one}");
        assert!(!text(one, "remedy").contains("oubliette doctor"), "in a circle: {one}");
    }
    told
}

/// A workspace beside a file that nothing inside may read.
pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    std::fs::write(folder.path().join("canary"), "secret").unwrap();
    let workspace = folder.path().join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    own(&workspace);
    folder
}

/// One try, judged by nobody.
pub(crate) fn attempt<S: AsRef<str>>(
    folder: &Path,
    workspace: &Path,
    taken: &[S],
    tiers: &[&str],
    runsc: &str,
) -> Told {
    let script = folder.join("without.py");
    std::fs::write(&script, WITHOUT).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the executor under test is a process of its own")]
    let mut command = std::process::Command::new("/usr/bin/python3");
    command.arg("-I").arg(script).args(taken.iter().map(AsRef::as_ref)).arg("--");
    command.arg(helper()).arg("try").arg(workspace).arg(runsc).args(tiers).current_dir("/");
    let out = command.output().unwrap();
    let (said, trouble) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let told: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    // An executor that cannot even start says so and fails; it told nothing, and nothing ran.
    let gone = told.is_empty() && !out.status.success() && !trouble.is_empty();
    assert!(gone || told.len() == tiers.len(), "{said}{trouble}");
    Told(told)
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}

impl Told {
    /// Whether the executor itself could not start.
    pub(crate) fn nothing(&self) -> bool {
        self.0.is_empty()
    }

    /// What was said of a tier.
    pub(crate) fn of(&self, tier: &str) -> &Value {
        self.0.iter().find(|one| one["asked"] == tier).unwrap()
    }

    /// It was refused, with these words as reason and as remedy.
    pub(crate) fn refused(&self, tier: &str, reason: &str, remedy: &str) {
        let one = self.of(tier);
        assert!(text(one, "reason").contains(reason) && text(one, "remedy").contains(remedy), "{one}");
    }

    /// It works, as this tier.
    pub(crate) fn works(&self, asked: &str, as_tier: &str) {
        assert_eq!(self.of(asked)["report"]["tier"], as_tier, "{}", self.of(asked));
    }

    /// It works, and this layer is told as less than full, in these words.
    pub(crate) fn weaker(&self, tier: &str, layer: &str, words: &str) {
        let (state, detail) = self.layer(tier, layer);
        assert!(state != "full" && detail.contains(words), "{}", self.of(tier));
    }

    /// State and detail of a layer.
    pub(crate) fn layer(&self, tier: &str, layer: &str) -> (&str, &str) {
        let layers = self.of(tier)["report"]["layers"].as_array();
        let layer = layers.into_iter().flatten().find(|l| l["name"] == layer);
        let layer = layer.unwrap_or_else(|| panic!("{}", self.of(tier)));
        (text(layer, "state"), text(layer, "detail"))
    }
}

/// Whether the executor under test is root.
pub(crate) fn root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The control of this file: with nothing taken away every tier works.
#[test]
fn with_nothing_taken_away_every_tier_works() {
    let told = without::<&str>(&[], &["confined", "namespace", "gvisor"]);
    for tier in ["confined", "namespace", "gvisor"] {
        told.works(tier, tier);
    }
    for layer in ["seccomp", "landlock", "crashes", "user-namespace"] {
        assert_eq!(told.layer("namespace", layer).0, "full", "{layer}");
    }
}
