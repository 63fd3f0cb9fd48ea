//! How calls end, and what is left of them.

use std::time::{Duration, Instant};

use policy::StoppedBy;
use sandbox::{Call, Cancel, Ended, Job};

use crate::inside::LONG;
use crate::{on_every_tier, shell};

/// Processes of a guest, as it sees them itself: the one that counts and its shell left out.
const OTHERS: &str = "for p in /proc/[0-9]*; do r=$(tr '\\0' ' ' <$p/cmdline 2>/dev/null); \
    case \"$r\" in *'for p in'*|*__init*|*__forker*|*__machine*|'') ;; *) echo \"$r\";; esac; done";

on_every_tier! {
    bubblewrap(holds)
    fn exit_status_and_both_streams_come_back_apart(inside: &Inside) {
        let ran = inside.sh("echo out; echo err >&2; exit 7");
        assert_eq!((ran.outcome.ended, ran.outcome.stopped_by), (Ended::Exit(7), StoppedBy::Exit));
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("out\n", "err\n"));
        assert_eq!((ran.outcome.stdout_bytes, ran.outcome.stderr_bytes), (4, 4));
    }

    bubblewrap(differs: "a signal is told as an exit of 128 and more")
    fn a_signal_is_told_as_a_signal(inside: &Inside) {
        let ran = inside.sh("kill -SEGV $$");
        assert_eq!((ran.outcome.ended, ran.outcome.stopped_by), (Ended::Signal(11), StoppedBy::Signal));
    }

    bubblewrap(holds)
    fn an_exit_status_of_137_is_not_taken_for_a_kill(inside: &Inside) {
        let ran = inside.sh("exit 137");
        assert_eq!((ran.outcome.ended, ran.outcome.stopped_by), (Ended::Exit(137), StoppedBy::Exit));
    }

    bubblewrap(differs: "it says so itself, with an exit status of 1")
    fn a_program_that_does_not_exist_is_told_like_a_shell_tells_it(inside: &Inside) {
        let argv = vec!["no-such-program".to_owned()];
        let job = Job::Exec { argv, env: Vec::new(), cwd: None, terminal: false };
        let ran = inside.call(job, b"", LONG, 1 << 20);
        assert_eq!(ran.outcome.ended, Ended::Exit(127));
        assert!(ran.err.contains("no-such-program: No such file"), "{}", ran.err);
    }

    bubblewrap(holds)
    fn standard_input_ends(inside: &Inside) {
        let ran = inside.sh("read -r a; echo \"got:[$a]\"; cat; echo eof");
        assert_eq!(ran.out, "got:[]\neof\n");
        let ran = inside.call(shell("cat"), b"given", LONG, 1 << 20);
        assert_eq!(ran.out, "given");
    }

    bubblewrap(holds)
    fn a_large_standard_input_that_nobody_reads_does_not_hang(inside: &Inside) {
        let ran = inside.call(shell("echo done"), &vec![b'x'; 1 << 20], LONG, 1 << 20);
        assert_eq!(ran.out, "done\n");
    }

    fn r29_a_timeout_kills_everything_the_call_started(inside: &Inside) {
        // A pipe holder, one that ignores signals, a new session, a double fork; all would write a file when told to.
        let line = "trap '' TERM HUP INT
            (trap '' TERM; until [ -e go ]; do sleep .1; done; touch late-1) &
            setsid sh -c 'until [ -e go ]; do sleep .1; done; touch late-2' </dev/null >/dev/null 2>&1 &
            (setsid sh -c '(until [ -e go ]; do sleep .1; done; touch late-3) &' &)
            while :; do sleep 1; done";
        let ran = inside.call(shell(line), b"", Duration::from_millis(1500), 1 << 20);
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Timeout);
        assert_eq!(inside.sh(OTHERS).out, "");
        assert_eq!(inside.sh("touch go; sleep 1; ls").out, "go\n");
    }

    not_confined("`/proc` is closed to the guest, so it cannot list processes; `confined.rs` looks from outside")
    fn w5_a_call_returns_when_its_process_ended_not_when_its_pipes_close(inside: &Inside) {
        let began = Instant::now();
        for line in ["sleep 1000 & echo started", "sleep 1000 </dev/null >/dev/null & echo started"] {
            let ran = inside.sh(line);
            assert_eq!((ran.out.as_str(), ran.outcome.ended), ("started\n", Ended::Exit(0)));
        }
        let ran = inside.sh("(setsid sh -c 'sleep 1000' &) ; exit 3");
        assert_eq!(ran.outcome.ended, Ended::Exit(3));
        assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
        assert_eq!(inside.sh(OTHERS).out, "");
    }

    not_confined("no socket can be made, loopback included")
    fn a_server_started_on_purpose_is_reachable_from_the_next_call(inside: &Inside) {
        let server = "echo hello > page; python3 -m http.server 8099 >server.log 2>&1 </dev/null &";
        let ran = inside.sh(server);
        assert_eq!((ran.outcome.ended, ran.outcome.background), (Ended::Exit(0), 1));
        let client = "import time,urllib.request
while True:
    try:
        print(urllib.request.urlopen('http://127.0.0.1:8099/page').read().decode()); break
    except OSError: time.sleep(0.1)";
        assert_eq!(inside.python(client).out.trim(), "hello");
    }

    fn a_guest_that_kills_its_supervisor_does_not_get_away(inside: &Inside) {
        let line = "setsid sh -c 'sleep 1000' & kill -KILL $PPID; sleep 1000";
        let ran = inside.call(shell(line), b"", Duration::from_secs(10), 1 << 20);
        assert!(matches!(ran.outcome.ended, Ended::Unknown | Ended::Signal(_)), "{:?}", ran.outcome);
        assert_eq!(inside.sh(OTHERS).out, "");
    }

    /// In a namespace PID 1 cannot be killed from inside; in gVisor it has an id of its own, where there is more
    /// than one. Where there is not, the guest ends its own sandbox and nothing else.
    not_confined("1 is the host's own init there; `confined.rs` shows that nothing above a call can be signalled")
    fn init_cannot_be_killed_or_stopped_from_inside(inside: &Inside) {
        let forker = inside.host.forker_id();
        let ran = inside.sh("kill -KILL 1; kill -STOP 1; kill -TERM 1; kill -KILL -1; echo on");
        if inside.tier == policy::Tier::Gvisor && sandbox::guest_owner().is_none() {
            assert_eq!(ran.outcome.stopped_by, StoppedBy::SandboxLost);
            return crate::teardown::wait_until_nothing_is_below(forker);
        }
        // The last one took the shell with it, or not; init is there all the same.
        assert!(ran.out.is_empty() || ran.out == "on\n", "{}", ran.out);
        assert_eq!(inside.sh("echo alive").out, "alive\n");
    }

    fn output_beyond_the_bound_ends_the_call_and_is_not_kept(inside: &Inside) {
        let ran = inside.call(shell("yes"), b"", LONG, 100_000);
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Output);
        assert_eq!(ran.out.len(), 100_000);
        assert_eq!(inside.sh(OTHERS).out, "");
    }

    fn a_cancelled_call_is_killed_and_told_as_cancelled(inside: &Inside) {
        let (give, cancel) = Cancel::new();
        let call =
            Call { job: shell("echo go; sleep 1000"), stdin: Vec::new(), timeout: LONG, output: 99, bounds: sandbox::CallBounds::default() };
        let outcome = inside.block_on(async {
            let mut give = Some(give);
            inside
                .running()
                .run(&call, &cancel, &mut |_, _| {
                    if let Some(give) = give.take() {
                        give.send(true).unwrap();
                        std::mem::forget(give);
                    }
                })
                .await
                .unwrap()
        });
        assert_eq!(outcome.stopped_by, StoppedBy::Cancelled);
        assert_eq!(inside.sh(OTHERS).out, "");
    }

    fn two_calls_run_side_by_side(inside: &Inside) {
        let (_give, cancel) = Cancel::new();
        let call = |line: &str| Call {
            job: shell(line),
            stdin: Vec::new(),
            timeout: LONG,
            output: 999,
bounds: sandbox::CallBounds::default(),
        };
        // Each waits for what the other makes.
        let (a, b) = (
            call("until [ -e b ]; do sleep 0.05; done; touch a"),
            call("touch b; until [ -e a ]; do sleep 0.05; done"),
        );
        let (mut no, mut nothing) = (|_, _: &[u8]| {}, |_, _: &[u8]| {});
        let (a, b) = inside.block_on(async {
            tokio::join!(
                inside.running().run(&a, &cancel, &mut no),
                inside.running().run(&b, &cancel, &mut nothing)
            )
        });
        assert_eq!((a.unwrap().ended, b.unwrap().ended), (Ended::Exit(0), Ended::Exit(0)));
    }

    /// A folder named by a descriptor of another process is none (bug class D-13); nor is one whose name only begins
    /// like the workspace's (D-14).
    fn the_folder_of_a_call_is_judged_like_a_path(inside: &Inside) {
        inside.sh("mkdir -p a/b; ln -s /etc out");
        let run = |cwd: &str| {
            let argv = vec!["pwd".to_owned()];
            let job = Job::Exec { argv, env: Vec::new(), cwd: Some(cwd.to_owned()), terminal: false };
            inside.call(job, b"", LONG, 1 << 20)
        };
        let top = inside.workspace_inside();
        assert_eq!(run("a/b").out, format!("{top}/a/b\n"));
        assert_eq!(run("/workspace/a").out, format!("{top}/a\n"));
        for outside in [
            "..", "/etc", "out", "a/../..", "/workspace-evil", "/proc/self/fd/3", "/proc/self/cwd", "/proc/self/root",
            "/proc/1/cwd", "/dev/fd/0",
        ] {
            assert_ne!(run(outside).outcome.ended, Ended::Exit(0), "{outside}");
        }
    }
}

/// Descriptors of one call must not live on in the helpers of another.
#[test]
fn standard_input_ends_while_another_call_runs() {
    let inside = crate::Inside::new(crate::TIERS[0]);
    let (_give, cancel) = Cancel::new();
    let call = |line: &str, stdin: Vec<u8>| Call {
        job: shell(line),
        stdin,
        timeout: LONG,
        output: 999,
        bounds: sandbox::CallBounds::default(),
    };
    // The first does not read until the second is there, and the second lives until the first is over.
    let a = call("until [ -e b ]; do sleep 0.05; done; wc -c; touch a", vec![b'x'; 1 << 20]);
    let b = call("touch b; until [ -e a ]; do sleep 0.05; done", Vec::new());
    let mut out = Vec::new();
    let mut nothing = |_, _: &[u8]| {};
    let (a, b) = inside.block_on(async {
        let mut first = |_, piece: &[u8]| out.extend_from_slice(piece);
        tokio::join!(
            inside.running().run(&a, &cancel, &mut first),
            inside.running().run(&b, &cancel, &mut nothing)
        )
    });
    assert_eq!((a.unwrap().stopped_by, b.unwrap().stopped_by), (StoppedBy::Exit, StoppedBy::Exit));
    assert_eq!(String::from_utf8_lossy(&out).trim(), "1048576");
}
