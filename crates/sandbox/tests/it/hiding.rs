//! Processes that hide from a look at `/proc`, or from their supervisor.

use std::time::Duration;

use policy::StoppedBy;
use sandbox::FileOp;

use crate::{Inside, on_every_tier, shell};

/// Its first thread ends at once; another goes on and writes ticks.
const WITHOUT_FIRST_THREAD: &str = "import ctypes,threading,time
def work():
    for _ in range(300):
        open('ticks','a').write('t'); time.sleep(0.1)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(60, 0)";

/// Forks and ends, again and again: no look at a list of processes is quick enough.
const CHAIN: &str = "import os,time
end, n = time.time()+30, 0
while time.time() < end:
    if os.fork(): os._exit(0)
    n += 1
    if n % 50 == 0: open('ticks','a').write('t')";

fn is_still(inside: &Inside) -> bool {
    let ticks = || inside.sh("stat -c %s ticks 2>/dev/null").out;
    let before = ticks();
    inside.sh("sleep 2");
    ticks() == before
}

fn hide(inside: &Inside, program: &str, then: &str) -> sandbox::Outcome {
    inside.file(FileOp::Write { path: "hide.py".to_owned() }, program.as_bytes());
    let line = format!("python3 hide.py & {then}");
    inside.call(shell(&line), b"", Duration::from_secs(2), 1 << 20).outcome
}

on_every_tier! {
    fn r29_a_process_without_its_first_thread_dies_with_the_timeout(inside: &Inside) {
        assert_eq!(hide(inside, WITHOUT_FIRST_THREAD, "sleep 60").stopped_by, StoppedBy::Timeout);
        assert!(is_still(inside));
    }

    fn w5_a_process_without_its_first_thread_that_holds_the_pipes_is_not_left(inside: &Inside) {
        assert_eq!(hide(inside, WITHOUT_FIRST_THREAD, "sleep 1").background, 0);
        assert!(is_still(inside));
    }

    fn r29_a_chain_of_short_lives_dies_with_the_timeout(inside: &Inside) {
        assert_eq!(hide(inside, CHAIN, "sleep 60").stopped_by, StoppedBy::Timeout);
        assert!(is_still(inside));
    }

    not_confined("no signal reaches above the call's own domain")
    fn a_guest_that_stops_its_supervisor_costs_itself_nothing_but_time(inside: &Inside) {
        let ran = inside.call(shell("kill -STOP $PPID"), b"", Duration::from_millis(500), 1 << 20);
        // Where init has an id of its own the signal is refused, and the call ends by itself.
        assert!(matches!(ran.outcome.stopped_by, StoppedBy::Timeout | StoppedBy::Exit), "{:?}", ran.outcome);
        assert_eq!(inside.sh("echo alive").out, "alive\n");
    }
}
