//! Processor time of a whole sandbox as the host counts it: what its programs used, and what an engine used for
//! them.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::table;

/// It is looked at this often while a call runs.
pub(crate) const EVERY: Duration = Duration::from_millis(250);

/// Who counts it.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// A group of the kernel, by this file of it: everything that ever ran in it.
    Group(PathBuf),
    /// Nobody: what lives below this process is added up, and what died of it as far as it was waited for.
    Tree(i32),
}

impl Clock {
    /// What was used until now; nothing when the sandbox is gone.
    pub(crate) fn used(&self) -> Option<Duration> {
        match self {
            Clock::Group(file) => read(&fs::read_to_string(file).ok()?),
            Clock::Tree(first) => {
                let all = table::snapshot();
                let first = all.iter().find(|seen| seen.pid == *first)?;
                let below = table::below(&all, first.pid);
                let spent = below.iter().chain([first]).map(|seen| seen.own_us + seen.waited_us).sum();
                Some(Duration::from_micros(spent))
            }
        }
    }
}

/// `cpuacct.usage` is nanoseconds, `cpu.stat` has a line of microseconds.
fn read(text: &str) -> Option<Duration> {
    match text.lines().find_map(|line| line.strip_prefix("usage_usec ")) {
        Some(micros) => Some(Duration::from_micros(micros.trim().parse().ok()?)),
        None => Some(Duration::from_nanos(text.trim().parse().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_groups_are_read() {
        assert_eq!(read("1500000000\n"), Some(Duration::from_millis(1500)));
        assert_eq!(read("user_usec 5\nusage_usec 1500000\n"), Some(Duration::from_millis(1500)));
        assert_eq!(read(""), None);
    }

    #[test]
    fn the_processes_of_a_tree_are_added_up() {
        let own = i32::try_from(std::process::id()).unwrap();
        let before = Clock::Tree(own).used().unwrap();
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(200) {}
        // Others may have the processor meanwhile.
        assert!(Clock::Tree(own).used().unwrap() > before);
        assert!(Clock::Tree(i32::MAX).used().is_none());
    }
}
