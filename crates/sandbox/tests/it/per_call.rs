//! Bounds of one call alone, within what the sandbox may: held for everything that it started.

use std::time::Duration;

use policy::StoppedBy;
use sandbox::{Call, CallBounds, Cancel, Ended};

use crate::inside::{LONG, Ran, left_running};
use crate::{Inside, on_every_tier, shell};

const MIB: u64 = 1 << 20;

/// Bombs of this file live longer than their call may: only the bound ends them in time.
fn bounded(inside: &Inside, line: &str, bounds: CallBounds) -> Ran {
    let call = Call { job: shell(line), stdin: Vec::new(), timeout: LONG, output: 1 << 20, bounds };
    inside.call_with(&call, &Cancel::new().1)
}

fn memory(mib: u64) -> CallBounds {
    CallBounds { memory: Some(mib * MIB), ..CallBounds::default() }
}

fn processes(most: u32) -> CallBounds {
    CallBounds { processes: Some(most), ..CallBounds::default() }
}

fn disk(mib: u64) -> CallBounds {
    CallBounds { disk: Some(mib * MIB), ..CallBounds::default() }
}

/// The sandbox is as it was, and the next call has its own.
fn goes_on(inside: &Inside) {
    let next = inside.sh("echo alive; exit 7");
    assert_eq!(
        (next.out.as_str(), next.outcome.stopped_by),
        ("alive\n", StoppedBy::Exit),
        "{:?}",
        next.outcome
    );
    assert_eq!((next.outcome.ended, next.outcome.leftovers), (Ended::Exit(7), None));
}

/// Holds so much in a grandchild that has a session of its own and no parent.
fn hides(mib: u64) -> String {
    format!(
        "(setsid python3 -c 'import time; b=b\"x\"*({mib}<<20); time.sleep(1000)' &) ; sleep 1000; echo all"
    )
}

/// `vfork(s)`: a child that has its parent's memory for so long, and ends.
const VFORK: &str = "import ctypes,os,time
l=ctypes.CDLL(None)
k=ctypes.create_string_buffer(1<<16)
def vfork(s):
    t=ctypes.c_void_p((ctypes.addressof(k)+(1<<16))&~15)
    p=l.clone(ctypes.cast(l.usleep,ctypes.c_void_p),t,0x4111,ctypes.c_void_p(int(s*1000000)))
    return os.waitstatus_to_exitcode(os.waitpid(p,0)[1])";

on_every_tier! {
    fn memory_of_one_call_is_bounded_wherever_it_hides(inside: &Inside) {
        let ran = bounded(inside, &hides(200), memory(128));
        assert_eq!((ran.outcome.stopped_by, ran.out.as_str()), (StoppedBy::Memory, ""), "{:?}", ran.outcome);
        goes_on(inside);
    }

    no_machine("init counts there as in `namespace`; each start of an emulated machine takes seconds")
    fn memory_of_many_processes_of_one_call_is_a_sum(inside: &Inside) {
        let each = "python3 -c 'import time; b=b\"x\"*(40<<20); time.sleep(1000)'";
        let ran = bounded(inside, &format!("for i in 1 2 3 4 5; do {each} & done; wait; echo all"), memory(128));
        assert_eq!((ran.outcome.stopped_by, ran.out.as_str()), (StoppedBy::Memory, ""), "{:?}", ran.outcome);
    }

    no_machine("init counts there as in `namespace`; each start of an emulated machine takes seconds")
    fn a_call_within_its_memory_is_left_alone(inside: &Inside) {
        let ran = bounded(inside, "python3 -c 'import time; b=b\"x\"*(40<<20); time.sleep(1); print(1)'", memory(128));
        assert_eq!((ran.out.as_str(), ran.outcome.stopped_by), ("1\n", StoppedBy::Exit), "{:?}", ran.outcome);
    }

    /// Until it starts a program it has the memory of its parent: that is there once, however often it is seen.
    no_machine("init counts there as in `namespace`; each start of an emulated machine takes seconds")
    fn memory_that_a_child_shares_until_it_starts_a_program_counts_once(inside: &Inside) {
        // Long enough for several looks; in gVisor it must be over before its share is believed no more.
        let line = format!("python3 -c '{VFORK}\nb=b\"x\"*(110<<20); print(vfork(0.4))'");
        let ran = bounded(inside, &line, memory(200));
        assert_eq!((ran.out.as_str(), ran.outcome.stopped_by), ("0\n", StoppedBy::Exit), "{:?} {}", ran.outcome, ran.err);
    }

    no_machine("init counts there as in `namespace`; each start of an emulated machine takes seconds")
    fn who_shares_memory_with_a_child_hides_none_of_another(inside: &Inside) {
        // The other one has filled its own before anything is shared.
        let other = "r,w=os.pipe()\nif os.fork()==0:\n    c=bytearray(b)\n    os.write(w,c[:1]); time.sleep(30); os._exit(0)\nos.read(r,1)";
        let line = format!("python3 -c '{VFORK}\nb=b\"x\"*(80<<20)\n{other}\nwhile True: vfork(1)'");
        let ran = bounded(inside, &line, memory(200));
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Memory, "{:?} {}", ran.outcome, ran.err);
    }

    fn processes_of_one_call_are_bounded_in_new_sessions_too(inside: &Inside) {
        let ran = bounded(inside, "for i in $(seq 20); do (setsid sleep 1000 &); done; sleep 1000; echo all", processes(12));
        assert_eq!((ran.outcome.stopped_by, ran.out.as_str()), (StoppedBy::Processes, ""), "{:?}", ran.outcome);
        goes_on(inside);
    }

    no_machine("init counts there as in `namespace`; each start of an emulated machine takes seconds")
    fn a_call_may_have_as_many_processes_as_its_bound_says(inside: &Inside) {
        let ran = bounded(inside, "for i in 1 2 3 4; do sleep 1 & done; wait; echo all", processes(6));
        assert_eq!((ran.out.as_str(), ran.outcome.stopped_by), ("all\n", StoppedBy::Exit), "{:?}", ran.outcome);
    }

    /// What an earlier call left running takes nothing of what a later one may.
    no_machine("init counts there as in `namespace`; each start of an emulated machine takes seconds")
    fn processes_of_an_earlier_call_do_not_count(inside: &Inside) {
        let left = inside.sh("for i in $(seq 9); do sleep 1000 </dev/null >/dev/null 2>&1 & done");
        assert_eq!(left.outcome.background, 9, "{:?}", left.outcome);
        let ran = bounded(inside, "sleep 1; echo done", processes(4));
        assert_eq!((ran.out.as_str(), ran.outcome.stopped_by), ("done\n", StoppedBy::Exit), "{:?}", ran.outcome);
        assert_eq!(ran.outcome.leftovers, None);
    }

    /// It is over and was told for what it was; what it left running is ended by its own bound.
    no_machine("init counts there as in `namespace`; each start of an emulated machine takes seconds")
    fn what_a_call_left_running_is_held_by_its_bound(inside: &Inside) {
        let later = "exec python3 -c 'import time; b=b\"x\"*(200<<20); time.sleep(1000)'";
        let left = bounded(inside, &left_running(later), memory(128));
        assert_eq!((left.out.as_str(), left.outcome.stopped_by), ("left\n", StoppedBy::Exit), "{:?}", left.outcome);
        let innocent = inside.sh("cat p; echo done");
        assert_eq!((innocent.out.as_str(), innocent.outcome.stopped_by), ("done\n", StoppedBy::Exit));
        assert_eq!(innocent.outcome.leftovers, Some(StoppedBy::Memory), "{:?}", innocent.outcome);
    }

    fn r38_what_one_call_adds_to_the_workspace_is_bounded(inside: &Inside) {
        inside.sh("head -c 30m /dev/urandom > before");
        let fill = "for i in $(seq 4096); do head -c 1m /dev/urandom > f$i; done; echo all";
        let ran = bounded(inside, &format!("(setsid sh -c '{fill}' &); sleep 1000; echo all"), disk(20));
        assert_eq!((ran.outcome.stopped_by, ran.out.as_str()), (StoppedBy::Disk, ""), "{:?}", ran.outcome);
        // The next one has as much again, and the sandbox is not full.
        let next = bounded(inside, "head -c 10m /dev/urandom > next && wc -c < next", disk(20));
        assert_eq!((next.out.trim(), next.outcome.stopped_by), ("10485760", StoppedBy::Exit), "{:?}", next.outcome);
    }

    /// Faster than anybody looks: told all the same, and the same each time.
    fn a_call_that_ended_with_more_than_it_may_add_is_told(inside: &Inside) {
        for n in 0..3 {
            let ran = bounded(inside, &format!("head -c 30m /dev/zero > f{n}"), disk(20));
            assert_eq!(ran.outcome.stopped_by, StoppedBy::Disk, "{:?}", ran.outcome);
        }
    }

    no_machine("init counts there as in `namespace`; each start of an emulated machine takes seconds")
    fn what_is_written_over_or_taken_away_adds_nothing(inside: &Inside) {
        inside.sh("head -c 30m /dev/urandom > big");
        let again = "for i in 1 2 3 4 5; do head -c 15m /dev/urandom > f; sleep 0.1; done; rm big; head -c 40m /dev/urandom > g; echo all";
        let ran = bounded(inside, again, disk(30));
        assert_eq!((ran.out.as_str(), ran.outcome.stopped_by), ("all\n", StoppedBy::Exit), "{:?}", ran.outcome);
    }

    no_machine("init counts there as in `namespace`; each start of an emulated machine takes seconds")
    fn files_that_an_earlier_call_goes_on_writing_are_not_told_of_a_later_one(inside: &Inside) {
        let later = "for i in $(seq 400); do head -c 1m /dev/urandom > g$i; sleep 0.02; done; sleep 1000";
        let left = bounded(inside, &left_running(later), disk(20));
        assert_eq!((left.out.as_str(), left.outcome.stopped_by), ("left\n", StoppedBy::Exit), "{:?}", left.outcome);
        let innocent = bounded(inside, "cat p; echo done; exit 3", disk(20));
        assert_eq!((innocent.out.as_str(), innocent.outcome.stopped_by), ("done\n", StoppedBy::Exit), "{:?}", innocent.outcome);
        assert_eq!(innocent.outcome.leftovers, Some(StoppedBy::Disk), "{:?}", innocent.outcome);
    }
}

/// Until its first process has started its program nobody may look at what that has open: then its table counts.
#[test]
fn the_first_process_of_a_call_has_a_small_table() {
    for tier in [policy::Tier::Confined, policy::Tier::Namespace] {
        let inside = Inside::new(tier);
        let (_give, cancel) = Cancel::new();
        let argv = ["/usr/bin/tail", "-f", "/dev/null"].map(str::to_owned).to_vec();
        let job = sandbox::Job::Exec { argv, env: Vec::new(), cwd: None, terminal: false };
        let (timeout, bounds) = (Duration::from_secs(60), CallBounds::default());
        let call = Call { job, stdin: Vec::new(), timeout, output: 1 << 20, bounds };
        let mut no = |_, _: &[u8]| {};
        let size = inside.block_on(async {
            let seen = async {
                loop {
                    for pid in crate::teardown::descendants(inside.host.forker_id()) {
                        let status =
                            std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                        let field = |name| status.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
                        if field("Name:") == Some("tail") {
                            return field("FDSize:").map(str::to_owned);
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                ran = inside.running().run(&call, &cancel, &mut no) => panic!("{ran:?}"),
                seen = seen => seen,
            }
        });
        assert_eq!(size.as_deref(), Some("64"), "{tier}");
    }
}
