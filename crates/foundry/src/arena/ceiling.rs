//! What the attacks on one Guild may take together. It says how much there is to attack, so it has no say in how much
//! is too much.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often somebody looks.
const BETWEEN: Duration = Duration::from_millis(500);
/// Files and folders that may lie there.
const MOST_ENTRIES: usize = 200_000;

/// Bounds of the whole. Who meets one is refused with that as the reason, and never passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// Calls as all roles together.
    pub calls: usize,
    /// Wall clock.
    pub time: Duration,
    /// Bytes on the disk: the sandboxes' workspaces, and the records of the runs.
    pub bytes: u64,
}

impl Default for Ceiling {
    fn default() -> Self {
        Ceiling { calls: 50_000, time: Duration::from_secs(20 * 60), bytes: 512 << 20 }
    }
}

impl Ceiling {
    /// Bytes that a workspace may have: what a tool of a branch writes alone must not meet the ceiling.
    pub(super) fn disk(&self) -> u64 {
        self.bytes / 4
    }

    /// Whether so many calls may be made.
    pub(super) fn has_room(&self, calls: usize) -> Result<(), String> {
        let most = self.calls;
        if calls <= most {
            return Ok(());
        }
        Err(format!("its roles and tools make more than {most} calls of the attacks: it needs fewer of them"))
    }

    /// Returns when the time is over, or when more lies in the folder than may; why.
    pub(super) async fn met(&self, folder: &Path) -> String {
        let until = tokio::time::Instant::now() + self.time;
        loop {
            if tokio::time::timeout_at(until, tokio::time::sleep(BETWEEN)).await.is_err() {
                let time = humantime::format_duration(self.time);
                return format!(
                    "the attacks were not over after {time}: it needs fewer roles or tools, or faster ones, or more \
                     time (`--within`)"
                );
            }
            let folder = folder.to_owned();
            let most = self.bytes >> 20;
            match tokio::task::spawn_blocking(move || taken(folder)).await {
                Ok(Taken::Bytes(bytes)) if bytes <= self.bytes => {}
                Ok(Taken::Bytes(_)) => return format!("the attacks filled more than {most} MiB of the disk"),
                Ok(Taken::Entries) => {
                    return format!(
                        "the attacks left more than {MOST_ENTRIES} files and folders on the disk"
                    );
                }
                Ok(Taken::Unseen(why)) => {
                    return format!("what the attacks left on the disk cannot be counted: {why}");
                }
                Err(_) => return "what the attacks left on the disk was not counted".to_owned(),
            }
        }
    }
}

/// What everything in a folder takes on the disk.
#[derive(Debug, PartialEq, Eq)]
enum Taken {
    Bytes(u64),
    /// More of them than are counted.
    Entries,
    /// A guest has put something out of sight.
    Unseen(&'static str),
}

fn taken(folder: PathBuf) -> Taken {
    let (mut waiting, mut bytes, mut entries) = (vec![folder], 0u64, 0);
    while let Some(folder) = waiting.pop() {
        let inner = match std::fs::read_dir(folder) {
            Ok(inner) => inner,
            Err(e) => match e.kind() {
                ErrorKind::PermissionDenied => return Taken::Unseen("a folder is closed"),
                ErrorKind::InvalidFilename => {
                    return Taken::Unseen("folders are nested deeper than a path goes");
                }
                // What is removed meanwhile takes nothing.
                _ => continue,
            },
        };
        for entry in inner.flatten() {
            entries += 1;
            if entries > MOST_ENTRIES {
                return Taken::Entries;
            }
            let Ok(meta) = entry.metadata() else { continue };
            bytes = bytes.saturating_add(meta.blocks().saturating_mul(512));
            if meta.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    Taken::Bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(ceiling: Ceiling, folder: &Path) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(ceiling.met(folder))
    }

    #[test]
    fn who_takes_too_long_or_fills_the_disk_meets_it() {
        let dir = tempfile::tempdir().unwrap();
        let ceiling = Ceiling { calls: 1, time: Duration::from_millis(10), bytes: 1 << 20 };
        assert!(why(ceiling, dir.path()).contains("not over after 10ms"));
        assert!(why(ceiling, dir.path()).contains("`--within`"));
        std::fs::create_dir(dir.path().join("in")).unwrap();
        std::fs::write(dir.path().join("in/file"), vec![1; 3 << 20]).unwrap();
        let ceiling = Ceiling { time: Duration::from_secs(60), ..ceiling };
        assert!(why(ceiling, dir.path()).contains("more than 1 MiB"));
        assert!(ceiling.has_room(1).is_ok() && ceiling.has_room(2).is_err());
    }

    /// A link is counted as what it is, and leads nowhere.
    #[test]
    fn nothing_outside_the_folder_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("all")).unwrap();
        assert!(matches!(taken(dir.path().to_owned()), Taken::Bytes(bytes) if bytes < 1 << 20));
    }

    /// A guest that makes folders by descriptor is not bound by the length of a path.
    #[test]
    fn what_lies_deeper_than_a_path_goes_is_too_much() {
        let dir = tempfile::tempdir().unwrap();
        let mut at = runs::Folder::open(dir.path()).unwrap();
        for _ in 0..3_000 {
            at = at.create_folder(std::ffi::OsStr::new("a")).unwrap();
        }
        let ceiling = Ceiling { time: Duration::from_secs(60), ..Ceiling::default() };
        assert!(why(ceiling, dir.path()).contains("deeper than a path"));
        runs::remove_tree(&dir.path().join("a")).unwrap();
    }
}
