//! What ended a call is told apart, and it is told from causes, whatever the program prints or returns. Signals and exit
//! statuses, 137 among them, are in `calls.rs`.

use std::time::Duration;

use policy::StoppedBy;
use sandbox::Ended;

use crate::inside::LONG;
use crate::{Inside, on_every_tier, shell};

on_every_tier! {
    fn r38_memory_is_told_as_memory(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.memory = 192 << 20);
        let ran = inside.python("import os
for _ in range(3):
    if os.fork() == 0:
        b = bytearray(128 << 20)
        import time; time.sleep(1000); os._exit(0)
os._exit(os.wait()[1] and 1)");
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Memory, "{:?} {}", ran.outcome, ran.err);
    }

    /// Whoever started what was killed may go on and end well; the call had its bound struck all the same.
    fn r38_a_kill_for_memory_that_a_shell_survives_is_told_as_memory(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.memory = 192 << 20);
        let ran = inside.sh("python3 -c 'b = bytearray(1 << 30)
for i in range(0, len(b), 4096): b[i] = 1'; echo $?; exit 0");
        // Where no group holds it, the program is refused the memory and not killed.
        let refused = ran.out.trim() == "1" && ran.err.contains("MemoryError");
        let right = if refused { StoppedBy::Exit } else { StoppedBy::Memory };
        assert_eq!(ran.outcome.stopped_by, right, "{:?} {} {}", ran.outcome, ran.out, ran.err);
    }

    fn r39_processes_are_told_as_processes(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.processes = 24);
        let ran = inside.sh("for i in $(seq 60); do sleep 1000 & done; exit 3");
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Processes, "{:?} {}", ran.outcome, ran.err);
    }

    fn output_is_told_as_output(inside: &Inside) {
        let ran = inside.call(shell("yes"), b"", LONG, 1 << 16);
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Output, "{:?}", ran.outcome);
    }

    fn time_is_told_as_timeout(inside: &Inside) {
        let ran = inside.call(shell("sleep 1000"), b"", Duration::from_millis(800), 1 << 16);
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Timeout, "{:?}", ran.outcome);
    }

    fn processor_time_is_told_as_cpu(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.cpu = Duration::from_secs(1));
        let ran = inside.call(shell("while :; do :; done"), b"", LONG, 1 << 16);
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Cpu, "{:?}", ran.outcome);
    }

    fn a_file_beyond_the_bound_is_told_as_disk(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.disk = 32 << 20);
        let ran = inside.sh("exec head -c 64m /dev/zero > big");
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Disk, "{:?} {}", ran.outcome, ran.err);
    }

    fn a_kill_by_the_guest_itself_is_a_signal_and_no_bound(inside: &Inside) {
        let ran = inside.sh("kill -KILL $$");
        assert_eq!((ran.outcome.stopped_by, ran.outcome.ended), (StoppedBy::Signal, Ended::Signal(9)));
    }
}
