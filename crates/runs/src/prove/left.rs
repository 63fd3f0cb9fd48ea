//! What the runs left on the host when their sandboxes are gone.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// No file of a run is looked at further than this.
const LONGEST: u64 = 128 << 20;
/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;

/// Files of runs that hold what the canary holds, devices, and programs that make whoever starts them somebody
/// else. No link is followed.
pub(super) fn came_out(store: &Path, secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![store.to_path_buf()];
    while let Some(folder) = open.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries.flatten(),
            Err(e) => {
                found.push(format!("{} cannot be read: {e}", folder.display()));
                continue;
            }
        };
        for entry in entries {
            let path = entry.path();
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            let kind = meta.file_type();
            let mut note = |what: &str| found.push(format!("{} {what}", path.display()));
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_block_device() || kind.is_char_device() {
                note("is a device");
            } else if kind.is_file() {
                if meta.mode() & SET_ID != 0 && meta.mode() & 0o111 != 0 {
                    note("gives the rights of its owner");
                }
                if holds(&path, secret.as_bytes()) {
                    note("holds what is in the canary");
                }
            }
        }
    }
    found
}

/// How often these runs let a guest connect to something, by their records.
pub(super) fn let_out(store: &Path, ids: &[String]) -> u64 {
    let events = |id: &String| fs::read_to_string(store.join(id).join("events.jsonl")).unwrap_or_default();
    let allowed = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        event["event"] == "decided" && event["decision"]["verdict"] == "allowed"
    };
    ids.iter().map(|id| events(id).lines().filter(|line| allowed(line)).count()).sum::<usize>() as u64
}

fn holds(path: &Path, secret: &[u8]) -> bool {
    let mut bytes = Vec::new();
    // Nothing of a sandbox lives that could exchange it. One that cannot be read is nobody's to read.
    File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes)).is_ok()
        && bytes.windows(secret.len().max(1)).any(|w| w == secret)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_canary_in_a_file_and_a_program_with_rights_are_found_and_links_are_not_followed() {
        let store = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("canary"), "xxCANARY 1xx").unwrap();
        let run = store.path().join("run");
        fs::create_dir(&run).unwrap();
        std::os::unix::fs::symlink(outside.path().join("canary"), run.join("link")).unwrap();
        fs::write(run.join("plain"), "CANARY 2").unwrap();
        assert_eq!(came_out(store.path(), "CANARY 1"), Vec::<String>::new());

        fs::copy(outside.path().join("canary"), run.join("stolen")).unwrap();
        fs::write(run.join("program"), "").unwrap();
        fs::set_permissions(run.join("program"), fs::Permissions::from_mode(0o4755)).unwrap();
        let mut found = came_out(store.path(), "CANARY 1");
        found.sort();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].ends_with("program gives the rights of its owner"), "{found:?}");
        assert!(found[1].ends_with("stolen holds what is in the canary"), "{found:?}");
    }
}
