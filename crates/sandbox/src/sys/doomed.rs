//! Processes that are started to be killed: whether a kill really ends what one starts is seen, not taken for granted.

use std::io::{self, Read};
use std::os::fd::AsRawFd;

use super::{check, exit_now, kill, reap};
use crate::Ended;

/// Whether a process that this one starts is really ended by it. The caller has no other children.
pub(crate) fn ends_what_it_starts() -> io::Result<bool> {
    Ok(Doomed::start()?.was_killed())
}

/// A process that is started and killed for no other reason than to see that it is. It does nothing, so it has this
/// one's memory, of which nothing must be copied, and a stack of its own; and it dies while others go on.
pub(crate) struct Doomed {
    pid: i32,
    let_go: io::PipeWriter,
}

impl Doomed {
    /// Starts and kills it. Only for single-threaded callers.
    pub(crate) fn start() -> io::Result<Doomed> {
        const STACK: usize = 16 << 10;
        extern "C" fn wait(ends: *mut libc::c_void) -> libc::c_int {
            // SAFETY: the two numbers below, which nobody takes back or writes.
            let [hold, let_go] = unsafe { *ends.cast::<[libc::c_int; 2]>() };
            // SAFETY: closes its own copy of a descriptor, and reads one byte to its own stack.
            unsafe {
                libc::close(let_go);
                libc::read(hold, [0_u8].as_mut_ptr().cast(), 1);
            }
            0
        }
        let (hold, let_go) = io::pipe()?;
        let ends: &'static mut [libc::c_int; 2] = Box::leak(Box::new([hold.as_raw_fd(), let_go.as_raw_fd()]));
        // Never given back: nobody could say when it is done with it.
        let stack = Box::leak(Box::<[u128]>::new_uninit_slice(STACK / size_of::<u128>()));
        let flags = libc::CLONE_VM | libc::SIGCHLD;
        // SAFETY: the child has an aligned stack to itself, copies of all descriptors, and two calls to make that write
        // nothing else while they succeed.
        let pid =
            unsafe { libc::clone(wait, stack.as_mut_ptr_range().end.cast(), flags, (&raw mut *ends).cast()) };
        let pid = i32::try_from(check(i64::from(pid))?).unwrap_or(i32::MAX);
        // How it ended says whether this did anything.
        kill(pid, libc::SIGKILL).ok();
        Ok(Doomed { pid, let_go })
    }

    /// Whether that was its end. Other children are reaped as well.
    pub(crate) fn was_killed(self) -> bool {
        let Doomed { pid, let_go } = self;
        drop(let_go);
        ended_by_kill(pid)
    }
}

fn ended_by_kill(pid: i32) -> bool {
    let mut killed = false;
    while let Some(reaped) = reap(true) {
        killed |= reaped.pid == pid && matches!(reaped.ended, Ended::Signal(libc::SIGKILL));
    }
    killed
}

/// The end of a process, by the only one that started it: it waits for ever, is killed, and how it ended is seen.
pub(crate) struct Ending {
    hold: io::PipeReader,
    let_go: io::PipeWriter,
}

impl Ending {
    /// To be made before it is started.
    pub(crate) fn new() -> io::Result<Ending> {
        let (hold, let_go) = io::pipe()?;
        Ok(Ending { hold, let_go })
    }

    /// What it does at last: until it is killed, or its parent gave up.
    pub(crate) fn wait_for_it(self) -> ! {
        let Ending { mut hold, let_go } = self;
        drop(let_go);
        hold.read_exact(&mut [0]).ok();
        exit_now(0)
    }

    /// Kills it, and says whether that was its end. Other children are reaped as well.
    pub(crate) fn of(self, pid: i32) -> bool {
        // How it ended says whether this did anything.
        kill(pid, libc::SIGKILL).ok();
        drop(self);
        ended_by_kill(pid)
    }
}
