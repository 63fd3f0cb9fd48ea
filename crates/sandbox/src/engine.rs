//! What an engine is held by beside the wall around it, whatever it is: the seal that its parent puts on itself before it
//! starts it, and how that is seen from outside.

use std::fs;
use std::io;

pub(crate) use crate::filter::engine::Engine;
use crate::{filter, inside, sys};

/// Leaves this process, and all that it starts, with what the engine needs and nothing else.
pub(crate) fn seal(engine: Engine) -> io::Result<()> {
    // Nobody trusts an engine to end by itself: the way it is ended must be there. Init sees to that in its own kernel.
    if !sys::ends_what_it_starts()? {
        return Err(io::Error::other(
            "nothing that is started can be killed: Operation not permitted (os error 1)",
        ));
    }
    match engine {
        Engine::Qemu | Engine::Firecracker => inside::give_up_rights()?,
        Engine::Runsc => inside::give_up_rights_but_those_of_runsc()?,
    }
    let told = |e| io::Error::other(format!("install the seccomp filter: {e}"));
    filter::engine::apply(engine).map_err(told)
}

/// Which threads of an engine have a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filtered {
    /// Ours.
    pub(crate) ours: usize,
    /// One of its own on top.
    pub(crate) own: usize,
    /// How many there are.
    pub(crate) all: usize,
}

impl Filtered {
    /// Looks at everything below a wall's first process. That has our filter when it has more of them than this
    /// process, which may be in a container that brings one, and then the engine has it when it has as many.
    pub(crate) fn below(first: i32) -> Option<Filtered> {
        let ours = filters("self")?;
        let sealed = filters(&first.to_string())?;
        let mut seen = Filtered::default();
        for thread in threads_below(first) {
            // One that ended just now has no state.
            let Some(has) = filters(&thread) else { continue };
            seen.all += 1;
            seen.ours += usize::from(sealed > ours && has >= sealed);
            seen.own += usize::from(has > sealed);
        }
        Some(seen)
    }

    /// Whether no thread is without ours.
    pub(crate) fn holds(self) -> bool {
        self.all > 0 && self.ours == self.all
    }
}

/// The filters that a thread has one upon the other.
pub(crate) fn filters(thread: &str) -> Option<usize> {
    let status = sys::text(&format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("Seccomp_filters:"))?.trim().parse().ok()
}

/// Every thread of every process below one, as `PID/task/THREAD`.
fn threads_below(first: i32) -> Vec<String> {
    let mut threads = Vec::new();
    let mut open = vec![first];
    while let Some(pid) = open.pop() {
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            if pid != first {
                threads.push(format!("{pid}/task/{}", task.file_name().display()));
            }
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            open.extend(children.split_whitespace().filter_map(|child| child.parse::<i32>().ok()));
        }
    }
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever filters a container brought: those are not ours.
    #[test]
    fn a_process_that_was_not_sealed_is_told_as_without_our_filter() {
        #[expect(clippy::disallowed_methods, reason = "a process of the host stands for an engine")]
        let mut child = std::process::Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let seen = Filtered::below(std::process::id().try_into().unwrap()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen.all > 0 && seen.ours == 0 && !seen.holds(), "{seen:?}");
        assert!(!Filtered::default().holds(), "nothing there holds nothing");
    }
}
