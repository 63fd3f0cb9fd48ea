//! Bounds that every tier holds. Bombs are bounded.

use std::time::Duration;

use policy::StoppedBy;
use sandbox::Ended;

use crate::{Inside, on_every_tier, shell};

on_every_tier! {
    not_confined("`ps` needs /proc; `confined.rs` counts from outside")
    fn r39_a_fork_bomb_is_held_and_everything_of_it_dies(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.processes = 40);
        // Bounded: 400 sleepers at the most.
        let bomb = "i=0; while [ $i -lt 400 ]; do sleep 20 & i=$((i+1)); done; wait";
        let ran = inside.call(shell(bomb), b"", Duration::from_secs(15), 1 << 20);
        assert_ne!(ran.outcome.ended, Ended::Exit(0), "{:?}", ran.outcome);
        assert_eq!(inside.sh("ps ax | grep -c 'slee[p] 20'").out.trim(), "0");
    }

    not_confined("the private folder lies on the disk of the run and is bounded by file only")
    fn a_full_tmp_is_an_error_of_the_program_only(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.tmp = 16 << 20);
        let ran = inside.sh("head -c 64m /dev/zero > /tmp/big; wc -c < /tmp/big");
        assert!(ran.out.trim().parse::<u64>().unwrap() <= 16 << 20, "{}", ran.out);
        assert_eq!(inside.sh("echo alive").out, "alive\n");
    }

    /// A program that hears of the bound may go on; it has no process more than was said.
    not_confined("without a cgroup its bound is shared with all else of the same user")
    fn r39_a_fork_beyond_the_bound_is_refused_and_what_there_is_goes_on(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.processes = 24);
        let ran = inside.python("import os, signal, time
kids = []
try:
    while len(kids) < 500:
        pid = os.fork()
        if pid == 0: time.sleep(1000); os._exit(0)
        kids.append(pid)
except OSError as e: print(e.strerror)
print(len(kids) + 1)
for pid in kids: os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)");
        assert_eq!(ran.outcome.ended, Ended::Exit(0), "{:?} {} {}", ran.outcome, ran.out, ran.err);
        let (told, most) = ran.out.trim().split_once('\n').unwrap_or_default();
        assert_eq!(told, "Resource temporarily unavailable", "{}", ran.out);
        let most: u32 = most.parse().unwrap();
        assert!((20..=24).contains(&most), "{most} processes");
    }

    fn r37_a_guest_has_no_more_processors_than_allowed(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.cores = 1);
        // Two busy loops side by side, bounded; what the host gives them counts, not what an engine says.
        let burn = "for i in 1 2; do timeout 8 sh -c 'while :; do :; done' >/dev/null 2>&1 </dev/null & done";
        assert_eq!(inside.sh(burn).outcome.ended, Ended::Exit(0));
        let forker = inside.host.forker_id();
        let (began, before) = (std::time::Instant::now(), crate::teardown::ticks_below(forker));
        inside.sh("sleep 2");
        let busy = u128::from(crate::teardown::ticks_below(forker) - before) * 10;
        let wall = began.elapsed().as_millis();
        assert!(busy < wall * 13 / 10, "{busy} ms busy in {wall} ms");
        // What else the machine does may leave it little, and a container's share is one for all that is in it.
        assert!(busy > wall / 50, "the look from outside sees nothing: {busy} ms in {wall} ms");
    }

    /// With a cgroup or without one, on an engine that knows limits of data segments and on one that does not.
    fn r38_the_memory_of_many_processes_together_is_held(inside: &Inside) {
        let inside = &Inside::with(inside.tier, |plan| plan.limits.memory = 192 << 20);
        let bomb = "import os,sys,time
for _ in range(6):
    if os.fork()==0:
        b=bytearray(64<<20); time.sleep(1000); os._exit(0)
sys.exit(os.wait()[1] and 1)";
        let ran = inside.python(bomb);
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Memory, "{:?}", ran.outcome);
    }
}
