//! A terminal for programs that want one, and no other's.

use std::time::Duration;

use policy::StoppedBy;
use sandbox::{Ended, Job};

use crate::inside::{LONG, Ran};
use crate::{Inside, on_every_tier};

fn typed(inside: &Inside, program: &str, stdin: &[u8]) -> Ran {
    let argv = ["/usr/bin/python3", "-c", program].map(str::to_owned).to_vec();
    let job = Job::Exec { argv, env: Vec::new(), cwd: None, terminal: true };
    inside.call(job, stdin, LONG, 1 << 20)
}

on_every_tier! {
    not_confined("the host's terminals are not the guest's")
    fn the_three_streams_are_one_terminal_that_the_program_controls(inside: &Inside) {
        let ran = typed(inside, "
import os, sys
print([os.isatty(n) for n in range(3)], os.ttyname(0) == os.ttyname(1) == os.ttyname(2), tuple(os.get_terminal_size()))
print(os.getsid(0) == os.getpid() == os.tcgetpgrp(0), len(os.listdir('/proc/self/fd')))
try: print(open('/dev/tty', 'w').isatty())
except OSError as e: print(e.strerror)
print('error', file=sys.stderr)", b"");
        // gVisor has no such name for it.
        let named = if inside.tier == policy::Tier::Gvisor { "Input/output error" } else { "True" };
        let said = format!("[True, True, True] True (80, 24)\nTrue 4\n{named}\nerror\n");
        assert_eq!(ran.out, said, "{}", ran.err);
        assert_eq!((ran.err.as_str(), ran.outcome.ended), ("", Ended::Exit(0)));
    }

    not_confined("the host's terminals are not the guest's")
    fn what_is_typed_arrives_line_by_line_and_then_the_end_is_told(inside: &Inside) {
        let long = "x".repeat(9000);
        let ran = typed(inside, "
import sys
print(input('name? ')); print(len(sys.stdin.readline())); print(repr(sys.stdin.read()))
try: input()
except EOFError: print('over')", format!("ann\n{long}\nlast, without an end").as_bytes());
        assert!(ran.out.starts_with("name? ann\n") && ran.out.ends_with("over\n"), "{:?} {}", ran.out, ran.err);
        let all: usize = ran.out.matches('x').count() + ran.out.lines().filter_map(|l| l.parse::<usize>().ok()).sum::<usize>();
        assert!(all >= 9000, "{:?}", ran.out);
        assert!(ran.out.contains("last, without an end"), "{:?}", ran.out);
    }

    /// A program that asks for a password throws away what was typed before.
    not_confined("the host's terminals are not the guest's")
    fn who_forgets_its_input_is_told_the_end_again(inside: &Inside) {
        let ran = typed(inside, "
import termios, time
time.sleep(.3)
try: termios.tcflush(0, termios.TCIFLUSH)
except termios.error: pass
try: input('sure? ')
except EOFError: print('no')", b"");
        assert_eq!((ran.out.as_str(), ran.outcome.ended), ("sure? no\n", Ended::Exit(0)), "{}", ran.err);
    }

    /// However often it could have been told before it asks: each read that finds nothing is told, this one and the next.
    not_confined("the host's terminals are not the guest's")
    fn who_reads_late_is_told_the_end(inside: &Inside) {
        let ran = typed(inside, "
import sys, time
for _ in range(2):
    time.sleep(1.2)
    print(repr(sys.stdin.read()), flush=True)", b"last");
        assert_eq!((ran.out.as_str(), ran.outcome.ended), ("'last'\n''\n", Ended::Exit(0)), "{}", ran.err);
    }

    not_confined("the host's terminals are not the guest's")
    fn the_end_in_a_terminal_is_the_programs_own(inside: &Inside) {
        let ran = typed(inside, "print('x' * 300000); raise SystemExit(137)", b"");
        assert_eq!((ran.out.len(), ran.outcome.ended), (300_001, Ended::Exit(137)), "{}", ran.err);
        let ran = typed(inside, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", b"");
        assert_eq!(ran.outcome.ended, Ended::Signal(11));
        // Who has it open still does not hold the call.
        let ran = typed(inside, "import os, time
if os.fork() == 0: time.sleep(1000)
print('gone')", b"");
        assert_eq!((ran.out.as_str(), ran.outcome.ended), ("gone\n", Ended::Exit(0)));
        assert!(u128::from(ran.outcome.duration_ms) < LONG.as_millis(), "{:?}", ran.outcome);
        // Nor does who prints on it for ever.
        let ran = typed(inside, "import os, signal, time
name = os.ttyname(1)
if os.fork() == 0:
    os.setsid(); signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while True:
        try:
            with open(name, 'w') as out:
                while True: out.write('flood ' * 20); out.flush(); time.sleep(.0005)
        except OSError: pass
time.sleep(.5)
raise SystemExit(3)", b"");
        assert_eq!(ran.outcome.ended, Ended::Exit(3), "{:?}", ran.outcome);
    }

    not_confined("the host's terminals are not the guest's")
    fn r29_a_timeout_ends_what_has_a_terminal(inside: &Inside) {
        let argv = ["sh", "-c", "trap '' HUP TERM INT; setsid sleep 1000 & sleep 1000"].map(str::to_owned).to_vec();
        let job = Job::Exec { argv, env: Vec::new(), cwd: None, terminal: true };
        let ran = inside.call(job, b"", Duration::from_secs(1), 1 << 20);
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Timeout, "{:?}", ran.outcome);
        let left = inside.python("
import os
print([p for p in os.listdir('/proc') if p.isdigit() and open('/proc/%s/cmdline' % p).read().startswith('sleep')])");
        assert_eq!(left.out, "[]\n");
    }

    /// Nobody else's terminal can be typed into, the guest's own least of all from another session.
    not_confined("the host's terminals are not the guest's")
    fn words_cannot_be_put_into_a_terminal(inside: &Inside) {
        let ran = typed(inside, "
import fcntl, termios
for n in range(3):
    try: fcntl.ioctl(n, termios.TIOCSTI, b'x'); print('typed')
    except OSError: print('refused')", b"");
        assert_eq!(ran.out, "refused\nrefused\nrefused\n", "{}", ran.err);
    }
}

#[test]
fn where_there_is_no_terminal_it_is_said() {
    let inside = Inside::new(policy::Tier::Confined);
    let ran = typed(&inside, "print('ran')", b"");
    assert_eq!((ran.out.as_str(), ran.outcome.ended), ("", Ended::Exit(126)));
    assert!(ran.err.contains("a terminal: the tier `confined` has none"), "{}", ran.err);
}
