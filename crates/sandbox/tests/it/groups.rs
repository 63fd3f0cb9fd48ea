//! Back ends of bounds that this machine has. Those of cgroup v2 are shown by `scripts/cgroup-v2`, in a machine of that
//! kind.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::helper;

/// An ordinary user.
const NOBODY: u32 = 65534;

/// A group of v1 for each controller, handed to a user; removed at the end.
struct Handed(Vec<PathBuf>);

impl Handed {
    fn make() -> Option<Handed> {
        let name = format!("handed-{}", std::process::id());
        let places = ["memory", "pids", "cpu"].map(|c| Path::new("/sys/fs/cgroup").join(c));
        if !places.iter().all(|place| place.join("tasks").exists()) {
            return None;
        }
        let made = Handed(places.map(|place| place.join(&name)).to_vec());
        for folder in &made.0 {
            std::fs::create_dir(folder).unwrap();
            chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Some(made)
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        for folder in &self.0 {
            std::fs::remove_dir(folder).ok();
        }
    }
}

/// Who is no root, on a machine of v2 alone, or without any group, has nothing here to hand over.
#[test]
fn groups_of_v1_that_are_handed_to_a_user_hold_bounds_and_are_named() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let Some(handed) = Handed::make() else { return };
    let folder = crate::absent::folder();
    let program = folder.path().join("helper");
    std::fs::copy(helper(), &program).unwrap();
    chown(folder.path().join("workspace"), Some(NOBODY), Some(NOBODY)).unwrap();
    let enter: Vec<String> =
        handed.0.iter().map(|f| format!("echo 0 > {}/cgroup.procs", f.display())).collect();
    #[expect(clippy::disallowed_methods, reason = "the executor under test is a process of its own")]
    let out = std::process::Command::new("/bin/sh")
        .args([
            "-ec",
            &format!(
                "{}; exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups \"$@\"",
                enter.join("; ")
            ),
        ])
        .arg("sh")
        .arg(&program)
        .arg("try")
        .arg(folder.path().join("workspace"))
        .args(["", "namespace"])
        .current_dir("/")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let told: Value = serde_json::from_str(said.trim()).unwrap_or_else(|e| panic!("{e}: {said} {out:?}"));
    let layers = told["report"]["layers"].as_array().unwrap_or_else(|| panic!("{told}"));
    let groups = layers.iter().find(|l| l["name"] == "groups").unwrap();
    assert_eq!(groups["detail"], "cgroup v1 (delegated): memory, pids, cpu");
    assert_eq!(told["said"], "works\n");
    // Nothing of ours is left in them: else they could not be removed.
    for folder in &handed.0 {
        std::fs::remove_dir(folder).unwrap();
    }
}
