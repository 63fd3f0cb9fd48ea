//! Processes that hide from a look at `/proc`, or from their supervisor.

use std::time::Duration;

use policy::StoppedBy;
use sandbox::{Call, Cancel, Ended, FileOp};

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

/// Lives on beside later calls, and answers them.
const SERVER: &str =
    "(while :; do [ -e ask ] && mv ask answer; sleep 0.1; done) </dev/null >/dev/null 2>&1 &";

/// Ends only by an answer.
const ASK: &str = "touch ask; until [ -e answer ]; do sleep 0.1; done; rm answer; echo served";

/// A call that ends when one in the background has made itself such that nobody may look at it.
fn closed(then: &str) -> String {
    let close =
        "import ctypes,time; ctypes.CDLL(None).prctl(4,0,0,0,0); open(\"closed\",\"w\"); time.sleep(600)";
    format!("python3 -c '{close}' {then} & until [ -e closed ]; do sleep 0.1; done")
}

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

    /// So many that want to run at once leave whoever must end them little of a processor.
    fn what_earlier_calls_left_outlives_a_busy_call_that_is_killed(inside: &Inside) {
        assert!(inside.sh(SERVER).outcome.background > 0);
        let busy = "i=0; while [ $i -lt 200 ]; do (while :; do :; done) & i=$((i+1)); done; wait";
        let killed = inside.call(shell(busy), b"", Duration::from_secs(2), 1 << 20).outcome;
        assert_eq!((killed.stopped_by, killed.ended), (StoppedBy::Timeout, Ended::Signal(9)));
        assert_eq!(inside.sh(ASK).out, "served\n");
    }

    /// No look is quick enough for them, and each has a group of its own.
    fn what_earlier_calls_left_outlives_a_call_that_hides_and_is_killed(inside: &Inside) {
        assert!(inside.sh(SERVER).outcome.background > 0);
        let chain = CHAIN.replace("n += 1", "os.setsid(); n += 1");
        assert_eq!(hide(inside, &chain, "sleep 60").stopped_by, StoppedBy::Timeout);
        assert!(is_still(inside));
        assert_eq!(inside.sh(ASK).out, "served\n");
    }

    /// The places are taken by a call that is still there.
    fn what_earlier_calls_left_does_not_make_room_for_what_a_call_beside_takes(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.processes = 24);
        let server = "import os,time
while True:
    if os.path.exists('ask'): os.rename('ask','answer')
    time.sleep(0.1)";
        inside.file(FileOp::Write { path: "server.py".to_owned() }, server.as_bytes());
        assert_eq!(inside.sh("python3 server.py </dev/null >/dev/null 2>&1 &").outcome.background, 1);
        let (give, cancel) = Cancel::new();
        let (_keep, never) = Cancel::new();
        let call = |line: &str| Call {
            job: shell(line),
            stdin: Vec::new(),
            timeout: Duration::from_secs(60),
            output: 99,
            bounds: sandbox::CallBounds::default(),
        };
        let busy = call("i=0; while [ $i -lt 20 ]; do sleep 600 & i=$((i+1)); done; echo full; wait");
        let beside = call("true");
        let full = tokio::sync::Notify::new();
        let mut out = |_, _: &[u8]| full.notify_one();
        let mut nothing = |_, _: &[u8]| {};
        let (busy, beside) = inside.block_on(async {
            tokio::join!(inside.running().run(&busy, &cancel, &mut out), async {
                full.notified().await;
                let beside = inside.running().run(&beside, &never, &mut nothing).await;
                give.send(true).unwrap();
                beside
            })
        });
        assert_eq!(busy.unwrap().stopped_by, StoppedBy::Cancelled);
        assert_eq!(beside.unwrap().leftovers, None);
        assert_eq!(inside.sh(ASK).out, "served\n");
    }

    /// Though others of its call are not.
    fn a_server_whose_files_nobody_may_look_at_is_left(inside: &Inside) {
        let line = closed("</dev/null >/dev/null 2>&1 & sleep 600");
        let outcome = inside.sh(&line).outcome;
        assert_eq!((outcome.ended, outcome.background), (Ended::Exit(0), 1));
    }

    fn w5_a_process_whose_files_nobody_may_look_at_that_holds_the_pipes_is_not_left(inside: &Inside) {
        let outcome = inside.sh(&closed("")).outcome;
        assert_eq!((outcome.ended, outcome.background), (Ended::Exit(0), 0));
    }

    not_confined("no signal reaches above the call's own domain")
    fn a_guest_that_stops_its_supervisor_costs_itself_nothing_but_time(inside: &Inside) {
        let ran = inside.call(shell("kill -STOP $PPID"), b"", Duration::from_millis(500), 1 << 20);
        // Where init has an id of its own the signal is refused, and the call ends by itself.
        assert!(matches!(ran.outcome.stopped_by, StoppedBy::Timeout | StoppedBy::Exit), "{:?}", ran.outcome);
        assert_eq!(inside.sh("echo alive").out, "alive\n");
    }
}
