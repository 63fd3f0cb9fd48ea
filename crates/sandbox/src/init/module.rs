//! A call that runs the sandbox's module, and the proof that one can be run at all.
//!
//! ```text
//!   supervisor ──fork──▶ workspace opened ─▶ Landlock: the workspace alone ─▶ one thread for the deadline
//!                        ─▶ seccomp: no program, process, socket ─▶ compile ─▶ run ─▶ one byte of verdict
//! ```

use std::io;

use crate::ModuleCall;
use crate::launch::{Bounds, Place};
use crate::wasm::Proven;

/// Where a sandbox's module is kept: above everything that calls use.
pub(crate) const MODULE_FD: i32 = 1000;
/// Where the process of a call tells which bound struck.
pub(super) const VERDICT_FD: i32 = 3;

#[cfg(not(feature = "wasm"))]
pub(super) fn run(_: &ModuleCall, _: &[(String, String)], _: (&Bounds, &Place)) -> ! {
    crate::sys::exit_now(126)
}

#[cfg(not(feature = "wasm"))]
pub(super) fn prove(_: &Place) -> io::Result<Proven> {
    Ok(Proven::default())
}

#[cfg(feature = "wasm")]
pub(super) use with_engine::{prove, run};

#[cfg(feature = "wasm")]
mod with_engine {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::FileExt;
    use std::panic::AssertUnwindSafe;
    use std::time::Duration;

    use rustix::fs::{CWD, Mode, OFlags, openat};

    use super::*;
    use crate::launch::module_memory;
    use crate::sys::{self, Fork};
    use crate::wasm::Struck;
    use crate::wasm::engine::{NAME, Order, Ticking, Verdict};
    use crate::wasm::files::Files;
    use crate::{filter, rules};

    /// Bytes of memory of our own module.
    const SMALL: u64 = 1 << 20;

    /// `_start`: asks for 65535 pages; goes round for ever if they were refused, and ends if not.
    const ASKS_AND_LOOPS: &[u8] = b"\0asm\x01\0\0\0\
        \x01\x04\x01\x60\0\0\
        \x03\x02\x01\0\
        \x05\x03\x01\0\x01\
        \x07\x0a\x01\x06_start\0\0\
        \x0a\x15\x01\x13\0\x41\xff\xff\x03\x40\0\x41\x7f\x46\x04\x40\x03\x40\x0c\0\x0b\x0b\x0b\
        ";

    /// Runs the module in this process, the first of a call.
    pub(in crate::init) fn run(
        call: &ModuleCall,
        env: &[(String, String)],
        (bounds, place): (&Bounds, &Place),
    ) -> ! {
        let attempt = AssertUnwindSafe(|| attempt(call, env, bounds, place));
        let verdict = match std::panic::catch_unwind(attempt) {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(why)) => Verdict::Refused(why),
            // A fault of the engine or ours. It must not unwind into init's own code, nor be told as a status.
            Err(_) => Verdict::Trap(libc::SIGABRT, "the engine failed".to_owned()),
        };
        let name = call.args.first().map_or("module", String::as_str);
        let say = |why: &str| drop(writeln!(io::stderr(), "{name}: {why}"));
        match verdict {
            // A status that the system cannot carry must not become a good one.
            Verdict::Exit(status) => sys::exit_now(i32::try_from(status.min(255)).unwrap_or(255)),
            Verdict::Struck(struck, why) => {
                say(&why);
                let (byte, signal) = struck.code();
                let mut tell = File::from(sys::inherited(VERDICT_FD));
                drop(tell.write_all(&[byte]));
                die_of(signal)
            }
            Verdict::Trap(signal, why) => {
                say(&why);
                die_of(signal)
            }
            Verdict::Refused(why) => {
                say(&why);
                sys::exit_now(126)
            }
        }
    }

    /// Ends as a program would have: the engine's own handlers are gone first.
    fn die_of(signal: i32) -> ! {
        sys::default_signals();
        drop(sys::kill(rustix::process::getpid().as_raw_nonzero().get(), signal));
        sys::exit_now(128 + signal)
    }

    fn attempt(
        call: &ModuleCall,
        env: &[(String, String)],
        bounds: &Bounds,
        place: &Place,
    ) -> Result<Verdict, String> {
        let module = take_module().map_err(|e| format!("there is no module: {e}"))?;
        let order = Order {
            args: &call.args,
            env: env.iter().chain(&call.env).cloned().collect(),
            fuel: call.fuel,
            memory: module_memory(bounds),
            deadline: Duration::from_millis(call.deadline_ms),
        };
        let (ticking, files) = walled(place, &order)?;
        Ok(ticking.run(&module, &order, files))
    }

    /// From here on this process can reach the workspace and its own streams, and start nothing.
    fn walled(place: &Place, order: &Order<'_>) -> Result<(Ticking, Files), String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let workspace: OwnedFd = openat(CWD, &place.workspace, flags, Mode::empty())
            .map_err(|e| format!("the workspace cannot be opened: {e}"))?;
        rules::restrict_module(place).map_err(|e| format!("restrict by Landlock: {e}"))?;
        let ticking = Ticking::new(order.memory, order.deadline)?;
        filter::apply_module().map_err(|e| format!("install the seccomp filter: {e}"))?;
        let files = Files::new(&workspace).map_err(|e| format!("the streams cannot be taken: {e}"))?;
        Ok((ticking, files))
    }

    /// Everything of the module; its descriptor is gone afterwards.
    fn take_module() -> io::Result<Vec<u8>> {
        let file = File::from(sys::inherited(MODULE_FD));
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Runs a module of our own as a call would, twice, and says what was seen.
    pub(in crate::init) fn prove(place: &Place) -> io::Result<Proven> {
        let by_fuel = seen(place, 100_000, Duration::from_secs(20))?;
        if !by_fuel.problem.is_empty() {
            return Ok(by_fuel);
        }
        let by_deadline = seen(place, u64::MAX, Duration::from_millis(1))?;
        Ok(Proven { deadline: by_deadline.deadline, ..by_fuel })
    }

    fn seen(place: &Place, fuel: u64, deadline: Duration) -> io::Result<Proven> {
        let (mut read, mut write) = io::pipe()?;
        if let Fork::Child = sys::fork()? {
            drop(read);
            sys::default_signals();
            let told = serde_json::to_vec(&look(place, fuel, deadline)).unwrap_or_default();
            drop(write.write_all(&told));
            sys::exit_now(0)
        }
        drop(write);
        let mut told = Vec::new();
        read.read_to_end(&mut told)?;
        while sys::reap(true).is_some() {}
        let lost = |_| Proven { problem: "the engine does not survive here".to_owned(), ..Proven::default() };
        Ok(serde_json::from_slice(&told).unwrap_or_else(lost))
    }

    fn look(place: &Place, fuel: u64, deadline: Duration) -> Proven {
        let order = Order { args: &[], env: Vec::new(), fuel, memory: SMALL, deadline };
        let (ticking, files) = match walled(place, &order) {
            Ok(walled) => walled,
            Err(problem) => return Proven { problem, ..Proven::default() },
        };
        let closed = ["/", "/proc/self/status", "/dev/null", "/tmp", "/etc", "/usr"]
            .iter()
            .all(|path| openat(CWD, *path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).is_err());
        let alone = match sys::fork() {
            Ok(Fork::Child) => sys::exit_now(0),
            Ok(Fork::Parent(_)) => false,
            Err(_) => sys::no_sockets(),
        };
        let verdict = ticking.run(ASKS_AND_LOOPS, &order, files);
        // Either end of the loop says that it was entered, and so that the memory was refused.
        let (fuel, deadline, problem) = match verdict {
            Verdict::Struck(Struck::Fuel, _) => (true, false, String::new()),
            Verdict::Struck(Struck::Time, _) => (false, true, String::new()),
            other => (false, false, format!("a module of our own ended wrongly: {other:?}")),
        };
        Proven { engine: NAME.to_owned(), fuel, deadline, memory: fuel || deadline, closed, alone, problem }
    }
}
