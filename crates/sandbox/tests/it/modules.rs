//! Claims about modules: what one can reach, what ends one, and that it is told truly.
//!
//! The modules are text of our own. Each step of one prints the number that the call was answered with: 0 is
//! done, 8 no such open file, 57 no socket, 76 outside.

use std::fmt::Write;
use std::time::{Duration, Instant};

use policy::{StoppedBy, Tier};
use sandbox::{BadModule, Call, Cancel, Ended, Job, LayerState, Module, ModuleCall};

use crate::inside::{Ran, own};
use crate::{Inside, shell};

const PRELUDE: &str = r#"
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_renumber" (func $fd_renumber (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $fd_prestat_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_filestat_set_size" (func $fd_set_size (param i32 i64) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir"
    (func $fd_readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_link"
    (func $path_link (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_rename" (func $path_rename (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_symlink" (func $path_symlink (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_filestat_get"
    (func $path_stat (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory"
    (func $path_mkdir (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file" (func $path_unlink (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_accept" (func $sock_accept (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_send" (func $sock_send (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_shutdown" (func $sock_shutdown (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 4)
  (func $say (param $at i32) (param $n i32)
    (i32.store (i32.const 16) (local.get $at))
    (i32.store (i32.const 20) (local.get $n))
    (drop (call $fd_write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 24))))
  (func $tell (param $v i32)
    (i32.store8 (i32.const 35) (i32.add (i32.const 48) (i32.rem_u (local.get $v) (i32.const 10))))
    (i32.store8 (i32.const 34) (i32.add (i32.const 48)
      (i32.rem_u (i32.div_u (local.get $v) (i32.const 10)) (i32.const 10))))
    (i32.store8 (i32.const 36) (i32.const 10))
    (call $say (i32.const 34) (i32.const 3)))
"#;
/// Rights: read; read and write.
const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 1 | 1 << 6;
/// Follow a link at the end of a way; make what is missing; cut it short.
const FOLLOW: u32 = 1;
const CREATE: u32 = 1;
const TRUNCATE: u32 = 8;

/// A module that does one thing after the other.
#[derive(Default)]
struct Steps {
    data: String,
    code: String,
    more: String,
    used: usize,
}

impl Steps {
    /// Address and length of a text.
    fn text(&mut self, text: &str) -> String {
        let at = 1024 + self.used;
        self.used += text.len();
        writeln!(self.data, "(data (i32.const {at}) {text:?})").unwrap();
        format!("(i32.const {at}) (i32.const {})", text.len())
    }

    fn code(mut self, code: &str) -> Steps {
        self.code.push_str(code);
        self
    }

    /// Functions of its own.
    fn also(mut self, more: &str) -> Steps {
        self.more.push_str(more);
        self
    }

    /// Prints the answer of a call.
    fn tell(self, call: &str) -> Steps {
        self.code(&format!("(call $tell {call})\n"))
    }

    fn open(mut self, fd: u32, path: &str, how: u32, rights: u64) -> Steps {
        let path = self.text(path);
        self.tell(&format!(
            "(call $path_open (i32.const {fd}) (i32.const {FOLLOW}) {path} (i32.const {how}) (i64.const {rights}) \
             (i64.const 0) (i32.const 0) (i32.const 40))"
        ))
    }

    /// A call with a folder and a path as its first arguments.
    fn path(mut self, name: &str, path: &str, rest: &str) -> Steps {
        let path = self.text(path);
        self.tell(&format!("(call {name} (i32.const 3) {path} {rest})"))
    }

    fn two(mut self, name: &str, from: &str, to: &str) -> Steps {
        let (from, to) = (self.text(from), self.text(to));
        let look = if name == "$path_link" { "(i32.const 0)" } else { "" };
        self.tell(&format!("(call {name} (i32.const 3) {look} {from} (i32.const 3) {to})"))
    }

    fn symlink(mut self, target: &str, name: &str) -> Steps {
        let (target, name) = (self.text(target), self.text(name));
        self.tell(&format!("(call $path_symlink {target} (i32.const 3) {name})"))
    }

    /// Writes a text to the file opened last.
    fn write(mut self, text: &str) -> Steps {
        let at = 1024 + self.used;
        let length = text.len();
        self.text(text);
        self.tell(&format!(
            "(block (result i32) (i32.store (i32.const 48) (i32.const {at})) \
             (i32.store (i32.const 52) (i32.const {length})) \
             (call $fd_write (i32.load (i32.const 40)) (i32.const 48) (i32.const 1) (i32.const 56)))"
        ))
    }

    fn wat(&self) -> String {
        format!("(module {PRELUDE} {} {} (func (export \"_start\") {}))", self.data, self.more, self.code)
    }

    fn module(&self) -> Module {
        module(&self.wat())
    }
}

fn module(text: &str) -> Module {
    Module::check(wat::parse_str(text).unwrap()).unwrap()
}

fn steps() -> Steps {
    Steps::default()
}

/// A sandbox with this module in it.
fn sandbox(module: &Module) -> Inside {
    let module = module.clone();
    Inside::with(Tier::Wasm, |plan| plan.module = Some(module))
}

fn call(module: &Module, args: &[&str]) -> ModuleCall {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    ModuleCall::new(module, args, Duration::from_secs(60), Duration::from_secs(60))
}

fn run_in(inside: &Inside, call: ModuleCall) -> Ran {
    inside.call(Job::Module(call), b"", Duration::from_secs(60), 1 << 20)
}

/// Runs it in a sandbox of its own with nothing in the workspace.
fn run(module: &Module) -> Ran {
    run_in(&sandbox(module), call(module, &["m"]))
}

#[test]
fn r53_a_module_reads_and_writes_the_workspace_by_either_name() {
    let steps = steps()
        .open(3, "made", CREATE, WRITE)
        .write("by it")
        .open(4, "made", 0, READ)
        .path("$path_mkdir", "folder", "")
        .open(3, "folder/deep", CREATE, WRITE)
        .two("$path_rename", "folder/deep", "moved");
    let module = steps.module();
    let inside = sandbox(&module);
    let ran = run_in(&inside, call(&module, &["m"]));
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("00\n00\n00\n00\n00\n00\n", ""));
    assert_eq!(ran.outcome.stopped_by, StoppedBy::Exit);
    assert_eq!(std::fs::read_to_string(inside.workspace().join("made")).unwrap(), "by it");
    assert!(inside.workspace().join("moved").exists());
}

#[test]
fn r53_no_name_leads_out_of_the_workspace() {
    let steps = steps()
        .open(3, "/etc/passwd", 0, READ)
        .open(3, "/workspace/inside", 0, READ)
        .open(3, "..", 0, READ)
        .open(3, "../secret", 0, READ)
        .open(4, "folder/../../secret", 0, READ)
        .open(3, "folder/../inside", 0, READ)
        .open(3, "..inside", 0, READ)
        .open(3, "../made", CREATE, WRITE)
        .path("$path_mkdir", "../made", "")
        .path("$path_unlink", "../secret", "")
        .two("$path_rename", "inside", "../inside")
        .two("$path_rename", "../secret", "secret")
        .two("$path_link", "../secret", "secret")
        .two("$path_link", "inside", "../inside");
    let module = steps.module();
    let inside = sandbox(&module);
    std::fs::write(inside.outside().join("secret"), "x").unwrap();
    std::fs::create_dir(inside.workspace().join("folder")).unwrap();
    for name in ["inside", "..inside"] {
        std::fs::write(inside.workspace().join(name), "x").unwrap();
        own(&inside.workspace().join(name));
    }
    let ran = run_in(&inside, call(&module, &["m"]));
    assert_eq!(ran.out, "76\n76\n76\n76\n76\n00\n00\n76\n76\n76\n76\n76\n76\n76\n");
    let names: Vec<_> =
        std::fs::read_dir(inside.outside()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn r13_no_link_that_was_planted_or_made_leads_out() {
    let steps = steps()
        .open(3, "file", 0, READ)
        .open(3, "folder/passwd", 0, READ)
        .open(3, "dangling", CREATE, WRITE)
        .open(3, "up/secret", 0, READ)
        .open(3, "proc/environ", 0, READ)
        .path("$path_stat", "unused", "(i32.const 64)")
        .symlink("/etc", "absolute")
        .symlink("../..", "relative")
        .open(3, "relative/etc/passwd", 0, READ)
        .symlink("inside", "good")
        .open(3, "good", 0, READ)
        // A second name of a link is a link.
        .two("$path_link", "file", "file2")
        .open(3, "file2", 0, READ);
    let text = steps
        .wat()
        .replace("(call $path_stat (i32.const 3) ", "(call $path_stat (i32.const 3) (i32.const 1) ");
    let module = module(&text);
    let inside = sandbox(&module);
    std::fs::write(inside.outside().join("secret"), "x").unwrap();
    std::fs::write(inside.workspace().join("inside"), "x").unwrap();
    own(&inside.workspace().join("inside"));
    for (target, name) in [
        ("../secret", "file"),
        ("/etc", "folder"),
        ("../made", "dangling"),
        ("..", "up"),
        ("/proc/self", "proc"),
        ("/etc/passwd", "unused"),
    ] {
        std::os::unix::fs::symlink(target, inside.workspace().join(name)).unwrap();
        own(&inside.workspace().join(name));
    }
    let ran = run_in(&inside, call(&module, &["m"]));
    assert_eq!(ran.out, "76\n76\n76\n76\n76\n76\n76\n00\n76\n00\n00\n00\n76\n");
    assert!(!inside.outside().join("made").exists());
}

#[test]
fn what_is_no_file_or_folder_is_not_opened_and_not_waited_for() {
    let module = steps().open(3, "pipe", 0, READ).open(3, "pipe", 0, WRITE).module();
    let inside = sandbox(&module);
    let pipe = inside.workspace().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
    own(&pipe);
    assert_eq!(run_in(&inside, call(&module, &["m"])).out, "58\n58\n");
}

#[test]
fn numbers_that_were_not_given_are_nothing() {
    let tries = "(local $n i32) (local $found i32) (local.set $n (i32.const 5))
        (loop $next
          (i32.store (i32.const 48) (i32.const 2048)) (i32.store (i32.const 52) (i32.const 16))
          (if (i32.ne (call $fd_read (local.get $n) (i32.const 48) (i32.const 1) (i32.const 56)) (i32.const 8))
            (then (local.set $found (i32.add (local.get $found) (i32.const 1)))))
          (local.set $n (i32.add (local.get $n) (i32.const 1)))
          (br_if $next (i32.lt_u (local.get $n) (i32.const 2000))))
        (call $tell (local.get $found))";
    let module = steps()
        .code(tries)
        .tell("(call $fd_renumber (i32.const 1000) (i32.const 1))")
        .tell("(call $fd_renumber (i32.const 3) (i32.const 9))")
        .tell("(call $fd_renumber (i32.const -1) (i32.const 1))")
        // The workspace may take the place of standard input, and is the workspace still.
        .tell("(call $fd_renumber (i32.const 4) (i32.const 0))")
        .open(0, "../x", 0, READ)
        .open(4, "x", CREATE, WRITE)
        .module();
    assert_eq!(run(&module).out, "00\n08\n08\n08\n00\n76\n08\n");
}

#[test]
fn a_file_opened_for_reading_is_not_cut_or_written() {
    let module = steps()
        .open(3, "f", CREATE, WRITE)
        .open(3, "f", 0, READ)
        .tell("(call $fd_set_size (i32.load (i32.const 40)) (i64.const 0))")
        .write("x")
        .open(3, "f", TRUNCATE, READ)
        .module();
    assert_eq!(run(&module).out, "00\n00\n08\n08\n76\n");
}

#[test]
fn only_what_was_given_is_in_the_environment() {
    let module = steps()
        .code(
            "(drop (call $environ_sizes (i32.const 48) (i32.const 52)))
             (drop (call $environ_get (i32.const 4096) (i32.const 8192)))
             (call $say (i32.const 8192) (i32.load (i32.const 52)))
             (drop (call $args_sizes (i32.const 48) (i32.const 52)))
             (drop (call $args_get (i32.const 4096) (i32.const 8192)))
             (call $say (i32.const 8192) (i32.load (i32.const 52)))",
        )
        .module();
    let given = module.clone();
    let inside = Inside::with(Tier::Wasm, |plan| {
        plan.module = Some(given);
        plan.env = vec![("TOKEN".to_owned(), "t".to_owned())];
    });
    let call = ModuleCall { env: vec![("A".to_owned(), "b".to_owned())], ..call(&module, &["m", "x y"]) };
    assert_eq!(run_in(&inside, call).out, "TOKEN=t\0A=b\0m\0x y\0");
}

#[test]
fn r12_there_is_no_socket() {
    let module = steps()
        .tell("(call $sock_accept (i32.const 0) (i32.const 0) (i32.const 48))")
        .tell("(call $sock_send (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 48))")
        .tell("(call $sock_shutdown (i32.const 3) (i32.const 0))")
        .module();
    assert_eq!(run(&module).out, "57\n57\n57\n");
}

#[test]
fn a_clock_is_no_finer_than_a_millisecond() {
    let module = steps()
        .tell("(call $clock (i32.const 0) (i64.const 1) (i32.const 48))")
        .tell("(i32.wrap_i64 (i64.rem_u (i64.load (i32.const 48)) (i64.const 1000000)))")
        .tell("(call $clock (i32.const 2) (i64.const 1) (i32.const 48))")
        .module();
    assert_eq!(run(&module).out, "00\n00\n28\n");
}

const LOOP: &str = "(module (memory (export \"memory\") 1) (func (export \"_start\") (loop (br 0))))";

#[test]
fn r37_an_endless_loop_ends_with_its_fuel_and_says_so() {
    let module = module(LOOP);
    let ran = run_in(&sandbox(&module), ModuleCall { fuel: 1_000_000, ..call(&module, &["m"]) });
    assert_eq!(ran.outcome.stopped_by, StoppedBy::Cpu);
    assert_eq!(ran.err, "m: it has used up its instructions\n");
}

#[test]
fn r36_an_endless_loop_ends_at_its_deadline_and_says_so() {
    let module = module(LOOP);
    let call = ModuleCall { fuel: u64::MAX, deadline_ms: 200, ..call(&module, &["m"]) };
    let ran = run_in(&sandbox(&module), call);
    assert_eq!(ran.outcome.stopped_by, StoppedBy::Timeout);
    assert_eq!(ran.err, "m: its deadline has passed\n");
}

#[test]
fn r36_a_module_that_sleeps_is_ended_at_its_deadline() {
    // A subscription to a clock in a day's time.
    let module = steps()
        .code("(i64.store (i32.const 2072) (i64.const 86400000000000)) (i32.store (i32.const 2064) (i32.const 1))")
        .code("(loop (drop (call $poll (i32.const 2048) (i32.const 4096) (i32.const 1) (i32.const 48))) (br 0))")
        .module();
    let call = ModuleCall { deadline_ms: 200, ..call(&module, &["m"]) };
    assert_eq!(run_in(&sandbox(&module), call).outcome.stopped_by, StoppedBy::Timeout);
}

#[test]
fn r29_the_executors_own_timer_ends_a_module_too() {
    let module = module(LOOP);
    let inside = sandbox(&module);
    let job = Job::Module(ModuleCall { fuel: u64::MAX, ..call(&module, &["m"]) });
    let ran = inside.call(job, b"", Duration::from_millis(300), 1 << 20);
    assert_eq!(ran.outcome.stopped_by, StoppedBy::Timeout);
    assert_eq!(ran.outcome.background, 0);
}

#[test]
fn r38_memory_beyond_the_bound_is_refused_and_told() {
    let grow = "(local $n i32)
        (loop $more
          (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
          (memory.fill (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 65536))
            (i32.const 1) (i32.const 65536))
          (br $more))";
    let module = steps().code(grow).module();
    let given = module.clone();
    let inside = Inside::with(Tier::Wasm, |plan| {
        plan.module = Some(given);
        plan.limits.memory = 128 << 20;
    });
    let ran = run_in(&inside, call(&module, &["m"]));
    assert_eq!(ran.outcome.stopped_by, StoppedBy::Memory, "{}", ran.err);
    assert!(ran.outcome.usage.max_rss_kib < 200 << 10, "{:?}", ran.outcome.usage);
}

#[test]
fn r38_a_module_that_starts_with_too_much_memory_is_not_run() {
    let module = module("(module (memory (export \"memory\") 65536) (func (export \"_start\")))");
    assert_eq!(run(&module).outcome.stopped_by, StoppedBy::Memory);
}

#[test]
fn a_refusal_of_memory_that_a_module_gets_over_is_no_end() {
    let module = steps().tell("(i32.eq (memory.grow (i32.const 65000)) (i32.const -1))").module();
    let ran = run(&module);
    assert_eq!((ran.out.as_str(), ran.outcome.stopped_by), ("01\n", StoppedBy::Exit));
}

/// A status of its own is told, whatever it was refused before.
#[test]
fn a_module_that_ends_itself_is_not_told_as_ended_by_a_bound() {
    let module =
        steps().code("(drop (memory.grow (i32.const 65000))) (call $proc_exit (i32.const 3))").module();
    let ran = run(&module);
    assert_eq!((ran.outcome.ended, ran.outcome.stopped_by), (Ended::Exit(3), StoppedBy::Exit), "{}", ran.err);
}

#[test]
fn a_table_cannot_take_memory_without_a_bound() {
    let module = module(
        "(module (memory (export \"memory\") 1) (table $t 1 funcref)
           (func (export \"_start\")
             (if (i32.ne (table.grow $t (ref.null func) (i32.const 100000000)) (i32.const -1)) (then unreachable))))",
    );
    assert_eq!(run(&module).outcome.ended, Ended::Exit(0));
}

#[test]
fn r44_output_is_bounded() {
    let module = steps().code("(loop (call $say (i32.const 0) (i32.const 65536)) (br 0))").module();
    let inside = sandbox(&module);
    let job = Job::Module(call(&module, &["m"]));
    let ran = inside.call(job, b"", Duration::from_secs(60), 100_000);
    assert_eq!((ran.outcome.stopped_by, ran.out.len()), (StoppedBy::Output, 100_000));
}

#[test]
fn r44_a_file_is_bounded() {
    let module = steps()
        .open(3, "f", CREATE, WRITE)
        .code(
            "(i32.store (i32.const 48) (i32.const 0)) (i32.store (i32.const 52) (i32.const 65536))
             (loop
               (drop (call $fd_write (i32.load (i32.const 40)) (i32.const 48) (i32.const 1) (i32.const 56)))
               (br 0))",
        )
        .module();
    let given = module.clone();
    let inside = Inside::with(Tier::Wasm, |plan| {
        plan.module = Some(given);
        plan.limits.disk = 1 << 20;
    });
    assert_eq!(run_in(&inside, call(&module, &["m"])).outcome.stopped_by, StoppedBy::Disk);
    assert_eq!(std::fs::metadata(inside.workspace().join("f")).unwrap().len(), 1 << 20);
}

#[test]
fn a_trap_is_told_as_the_signal_that_a_program_would_have_died_of() {
    for (body, signal, why) in [
        ("unreachable", libc_signal::ILL, "unreachable"),
        ("(drop (i32.div_u (i32.const 1) (i32.const 0)))", libc_signal::FPE, "divide by zero"),
        ("(drop (i32.load (i32.const -4)))", libc_signal::SEGV, "out of bounds"),
        ("(call $deep)", libc_signal::SEGV, "stack exhausted"),
    ] {
        let module = steps().also("(func $deep (call $deep) (call $deep))").code(body).module();
        let ran = run(&module);
        assert_eq!(ran.outcome.ended, Ended::Signal(signal), "{body}: {}", ran.err);
        assert_eq!(ran.outcome.stopped_by, StoppedBy::Signal);
        assert!(ran.err.contains(why), "{}", ran.err);
    }
}

/// Numbers of signals, as Linux has them everywhere.
mod libc_signal {
    pub(super) const ILL: i32 = 4;
    pub(super) const FPE: i32 = 8;
    pub(super) const SEGV: i32 = 11;
}

#[test]
fn the_status_of_a_module_is_the_status_of_its_call() {
    for (status, seen) in [(0, 0), (7, 7), (255, 255), (256, 255), (-1, 255)] {
        let module = steps().code(&format!("(call $proc_exit (i32.const {status}))")).module();
        assert_eq!(run(&module).outcome.ended, Ended::Exit(seen), "{status}");
    }
}

#[test]
fn compiling_is_bounded_like_running() {
    // Many functions that are dear to compile.
    let body: String =
        (0..400).map(|n| format!("(local.set 0 (i64.mul (local.get 0) (i64.const {n})))")).collect();
    let function = format!("(func (param i64) (result i64) {body} (local.get 0))");
    let text = format!(
        "(module (memory (export \"memory\") 1) (func (export \"_start\")) {})",
        function.repeat(400)
    );
    let module = module(&text);
    assert!(module.bytes().len() > 1 << 20, "{}", module.bytes().len());
    let given = module.clone();
    let inside = Inside::with(Tier::Wasm, |plan| {
        plan.module = Some(given);
        plan.limits.memory = 512 << 20;
    });
    let began = Instant::now();
    let job = Job::Module(ModuleCall { deadline_ms: 500, ..call(&module, &["m"]) });
    let ran = inside.call(job, b"", Duration::from_secs(1), 1 << 20);
    assert!(matches!(ran.outcome.stopped_by, StoppedBy::Timeout), "{:?} {}", ran.outcome, ran.err);
    assert!(began.elapsed() < Duration::from_secs(60));
    assert!(ran.outcome.usage.max_rss_kib < 600 << 10);
}

#[test]
fn nothing_is_asked_of_a_module_but_that_it_is_one() {
    let check = |text: &str| Module::check(wat::parse_str(text).unwrap()).unwrap_err();
    assert_eq!(Module::check(b"#!/bin/sh\n".to_vec()), Err(BadModule::NotWasm));
    assert_eq!(Module::check(Vec::new()), Err(BadModule::NotWasm));
    assert_eq!(check("(component)"), BadModule::Component);
    assert_eq!(check("(module)"), BadModule::NoStart);
    assert_eq!(check("(module (func (export \"_start\") (param i32)))"), BadModule::NoStart);
    for import in
        ["\"env\" \"f\"", "\"wasi_unstable\" \"fd_write\"", "\"wasi_snapshot_preview1\" \"made_up\""]
    {
        let found = check(&format!("(module (import {import} (func)) (func (export \"_start\")))"));
        let BadModule::Import { import: told } = &found else { panic!("{found}") };
        assert_eq!(*told, import.replace("\" \"", ".").replace('"', ""));
    }
    let memory = check(
        "(module (import \"wasi_snapshot_preview1\" \"fd_write\" (memory 1)) (func (export \"_start\")))",
    );
    assert!(matches!(memory, BadModule::Import { .. }), "{memory}");
    let mut cut = wat::parse_str(LOOP).unwrap();
    cut.truncate(cut.len() - 3);
    assert!(matches!(Module::check(cut), Err(BadModule::Invalid { .. })));
    for moving in [
        "(module (memory i64 1) (func (export \"_start\")))",
        "(module (memory 1 2 shared) (func (export \"_start\")))",
        "(module (memory 1) (memory 1) (func (export \"_start\")))",
    ] {
        assert!(matches!(check(moving), BadModule::Invalid { .. }), "{moving}");
    }
}

/// The executor judges a module before anything bounds it: what is made to take minutes is refused at once.
#[test]
fn r33_a_module_made_to_be_dear_is_refused_before_it_is_judged() {
    let params = "i32 ".repeat(1000);
    let calls = "(call $f)".repeat(200_000);
    let many = "(func (type 0))".repeat(10_000);
    let branches = format!("(br_table {} (i32.const 0))", "0 ".repeat(500_000));
    for code in [
        format!("(type (func (param {params}))) {many} (func (export \"_start\"))"),
        format!("(func $f (param {params})) (func (export \"_start\") unreachable {calls})"),
        format!("(func (result {params}) unreachable {branches}) (func (export \"_start\"))"),
    ] {
        let bytes = wat::parse_str(format!("(module {code})")).unwrap();
        let began = Instant::now();
        assert_eq!(Module::check(bytes), Err(BadModule::TooDear));
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }
}

#[test]
fn what_is_wrong_with_a_module_is_told_in_few_plain_characters() {
    let name = "\\1b[2J".repeat(10_000);
    let export = format!("(export \"{name}\" (func 0))");
    let bytes = wat::parse_str(format!("(module (func) {export} {export})"));
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(e) => panic!("{e}"),
    };
    let told = Module::check(bytes).unwrap_err().to_string();
    assert!(told.len() < 300 && !told.contains('\u{1b}'), "{told}");
}

/// A wrong type of an import is no fault of the language, so it is found when it is linked.
#[test]
fn an_import_of_a_wrong_type_is_told() {
    let module = module(
        "(module (import \"wasi_snapshot_preview1\" \"fd_write\" (func)) (memory (export \"memory\") 1)
           (func (export \"_start\")))",
    );
    let ran = run(&module);
    assert_eq!(ran.outcome.ended, Ended::Exit(126));
    assert!(ran.err.contains("fd_write"), "{}", ran.err);
}

#[test]
fn a_module_without_a_memory_of_that_name_is_answered_with_a_fault() {
    let module = module(
        "(module (import \"wasi_snapshot_preview1\" \"fd_write\" (func $w (param i32 i32 i32 i32) (result i32)))
           (func (export \"_start\")
             (if (i32.ne (call $w (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 0)) (i32.const 21))
               (then unreachable))))",
    );
    assert_eq!(run(&module).outcome.ended, Ended::Exit(0));
}

#[test]
fn standard_input_reaches_a_module() {
    let module = steps()
        .code(
            "(i32.store (i32.const 48) (i32.const 2048)) (i32.store (i32.const 52) (i32.const 100))
             (drop (call $fd_read (i32.const 0) (i32.const 48) (i32.const 1) (i32.const 56)))
             (call $say (i32.const 2048) (i32.load (i32.const 56)))",
        )
        .module();
    let inside = sandbox(&module);
    let ran = inside.call(Job::Module(call(&module, &["m"])), b"{\"a\":1}", Duration::from_secs(30), 1 << 20);
    assert_eq!(ran.out, "{\"a\":1}");
}

#[test]
fn a_folder_is_listed_whole_and_in_pieces() {
    let list = "(local $cookie i64) (local $n i32) (local $count i32)
        (block $done (loop $next
          (br_if $done (call $fd_readdir (i32.const 3) (i32.const 4096) (i32.const 64) (local.get $cookie)
            (i32.const 56)))
          (br_if $done (i32.lt_u (i32.load (i32.const 56)) (i32.const 24)))
          (local.set $cookie (i64.load (i32.const 4096)))
          (local.set $count (i32.add (local.get $count) (i32.const 1)))
          (br $next)))
        (call $tell (local.get $count))";
    let module = steps().code(list).module();
    let inside = sandbox(&module);
    for n in 0..20 {
        std::fs::write(inside.workspace().join(format!("file{n}")), "").unwrap();
    }
    // And the folder itself, and the one above.
    assert_eq!(run_in(&inside, call(&module, &["m"])).out, "22\n");
}

#[test]
fn no_program_runs_where_modules_do() {
    let module = module(LOOP);
    let inside = sandbox(&module);
    let ran = inside.call(shell("echo out"), b"", Duration::from_secs(10), 1 << 10);
    assert_eq!((ran.out.as_str(), ran.outcome.ended), ("", Ended::Exit(126)));
}

#[test]
fn r53_the_report_names_the_walls_and_what_a_module_met() {
    let module = module(LOOP);
    let inside = sandbox(&module);
    let report = inside.running().report();
    assert_eq!(report.tier, Tier::Wasm);
    assert!(report.engine.starts_with("wasmtime"), "{}", report.engine);
    let full = |name: &str| report.layers.iter().any(|l| l.name == name && l.state == LayerState::Full);
    for name in
        ["module-memory", "module-files", "module-fuel", "module-deadline", "module-processes", "seccomp"]
    {
        assert!(full(name), "{name}: {:?}", report.layers);
    }
}

/// Where no namespace can be had, the walls are those of the confined tier, and the report says so.
#[test]
fn r57_without_namespaces_a_module_runs_behind_the_confined_walls() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    for (path, mode) in [(folder.path(), 0o777), (&workspace, 0o777)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    // The helper without namespaces: in one that gives no further ones, and with no capability over it.
    let wrapper = folder.path().join("wrapper");
    let text = format!(
        "#!/bin/sh\nexec unshare -U --map-user=1000 --map-group=1000 --keep-caps sh -c \
         'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps -all --inh-caps -all \
         --bounding-set -all \"$0\" \"$@\"' {} \"$@\"\n",
        crate::helper().display()
    );
    crate::inside::put_program(text.as_bytes(), &wrapper);
    let host = sandbox::Host::start_from(&wrapper).unwrap();
    let steps =
        steps().open(3, "made", CREATE, WRITE).open(3, "../wrapper", 0, READ).open(3, "/etc/passwd", 0, READ);
    let module = steps.module();
    let mut plan = crate::plan(Tier::Wasm, &workspace);
    plan.module = Some(module.clone());
    let (out, report) = crate::runtime().block_on(async {
        let running = plan.ready(&host).await.unwrap().start();
        let (_keep, cancel) = Cancel::new();
        let job = Job::Module(call(&module, &["m"]));
        let call = Call {
            job,
            stdin: Vec::new(),
            timeout: Duration::from_secs(60),
            output: 1 << 20,
            bounds: sandbox::CallBounds::default(),
        };
        let mut out = Vec::new();
        running.run(&call, &cancel, &mut |_, piece| out.extend_from_slice(piece)).await.unwrap();
        (String::from_utf8(out).unwrap(), running.destroy().await)
    });
    assert_eq!(out, "00\n76\n76\n");
    assert!(report.engine.contains("Landlock and seccomp"), "{}", report.engine);
    assert!(report.layers.iter().any(|l| l.name == "namespaces" && l.state == LayerState::None));
    assert!(report.layers.iter().any(|l| l.name == "module-files" && l.state == LayerState::Full));
}

#[test]
fn r29_a_cancelled_module_is_gone() {
    let module = module(LOOP);
    let inside = sandbox(&module);
    let (give, cancel) = Cancel::new();
    let job = Job::Module(ModuleCall { fuel: u64::MAX, ..call(&module, &["m"]) });
    let call = Call {
        job,
        stdin: Vec::new(),
        timeout: Duration::from_secs(60),
        output: 1 << 20,
        bounds: sandbox::CallBounds::default(),
    };
    let giver = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        give.send(true)
    });
    let ran = inside.call_with(&call, &cancel);
    giver.join().unwrap().unwrap();
    assert_eq!(ran.outcome.stopped_by, StoppedBy::Cancelled);
}
