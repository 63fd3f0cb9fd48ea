//! Compiles and runs the module, in the process of a call, behind every wall.

use std::time::{Duration, Instant};

use wasmtime::{Config, Engine, Linker, OptLevel, Store, Trap};

use super::Struck;
use super::files::Files;
use super::limiter::Limiter;
use super::wasi::{self, Exit, Guest};

/// What is told of the engine.
pub(crate) const NAME: &str = "wasmtime 48";

/// Bytes of the stack of a module.
const STACK: usize = 512 << 10;
/// How soon after its deadline a module is ended.
const TICK: Duration = Duration::from_millis(5);

/// What a module is run with.
pub(crate) struct Order<'a> {
    /// Arguments, the name first.
    pub(crate) args: &'a [String],
    /// Variables, all of them.
    pub(crate) env: Vec<(String, String)>,
    /// Instructions, about.
    pub(crate) fuel: u64,
    /// Bytes of linear memory.
    pub(crate) memory: u64,
    /// Wall clock, compiling included.
    pub(crate) deadline: Duration,
}

/// How a module ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// By itself, with this status.
    Exit(u32),
    /// By a bound.
    Struck(Struck, String),
    /// By a trap: the signal that a program would have died of, and why.
    Trap(i32, String),
    /// It was never started.
    Refused(String),
}

/// An engine whose deadline runs; everything that needs a thread is done.
pub(crate) struct Ticking {
    engine: Engine,
    began: Instant,
    deadline: Duration,
}

impl Ticking {
    /// Makes the engine and the one thread that ends what runs too long.
    pub(crate) fn new(memory: u64, deadline: Duration) -> Result<Ticking, String> {
        let began = Instant::now();
        let engine = Engine::new(&config(memory)).map_err(|e| format!("the engine does not start: {e}"))?;
        let ticker = engine.clone();
        let tick = move || {
            std::thread::sleep(deadline);
            // Again and again: compiling may take longer than that, and what begins late must end too.
            loop {
                ticker.increment_epoch();
                std::thread::sleep(TICK);
            }
        };
        std::thread::Builder::new()
            .name("deadline".to_owned())
            .stack_size(64 << 10)
            .spawn(tick)
            .map_err(|e| format!("the deadline cannot be held: {e}"))?;
        Ok(Ticking { engine, began, deadline })
    }

    /// Compiles and runs.
    pub(crate) fn run(self, module: &[u8], order: &Order<'_>, files: Files) -> Verdict {
        let refused = |e: wasmtime::Error| Verdict::Refused(format!("{e:#}"));
        let module = match wasmtime::Module::from_binary(&self.engine, module) {
            Ok(module) => module,
            Err(e) => return refused(e),
        };
        let memory = usize::try_from(order.memory).unwrap_or(usize::MAX);
        let guest = Guest {
            files,
            args: order.args.iter().map(|arg| zero(arg)).collect(),
            env: order.env.iter().map(|(name, value)| zero(&format!("{name}={value}"))).collect(),
            began: self.began,
            deadline: self.deadline,
            limiter: Limiter { memory, refused: false },
        };
        let mut store = Store::new(&self.engine, guest);
        store.limiter(|guest| &mut guest.limiter);
        store.set_epoch_deadline(1);
        let mut linker = Linker::new(&self.engine);
        let ran = store
            .set_fuel(order.fuel)
            .and_then(|()| wasi::link(&mut linker))
            .and_then(|()| linker.instantiate(&mut store, &module))
            .and_then(|instance| instance.get_typed_func::<(), ()>(&mut store, "_start"))
            .and_then(|start| start.call(&mut store, ()));
        // Compiling is the module's own doing too.
        let late = self.began.elapsed() >= self.deadline;
        judge(ran, store.data().limiter.refused, late)
    }
}

fn judge(ran: wasmtime::Result<()>, refused: bool, late: bool) -> Verdict {
    let e = match ran {
        Ok(()) => return Verdict::Exit(0),
        Err(e) => e,
    };
    let exit = e.downcast_ref::<Exit>().map(|exit| exit.0);
    let trap = e.downcast_ref::<Trap>().copied();
    match (exit, trap) {
        // It ended itself: what it was refused before, it got over.
        (Some(status), _) => Verdict::Exit(status),
        (None, Some(Trap::OutOfFuel)) => {
            Verdict::Struck(Struck::Fuel, "it has used up its instructions".to_owned())
        }
        (None, Some(Trap::Interrupt)) if late => {
            Verdict::Struck(Struck::Time, "its deadline has passed".to_owned())
        }
        // It was refused memory, and did not get over it.
        _ if refused => {
            Verdict::Struck(Struck::Memory, "it asked for more memory than it may have".to_owned())
        }
        (None, Some(trap)) => Verdict::Trap(signal(trap), trap.to_string()),
        (None, None) => Verdict::Refused(format!("{e:#}")),
    }
}

/// The signal that a program would have died of.
fn signal(trap: Trap) -> i32 {
    match trap {
        Trap::UnreachableCodeReached => libc::SIGILL,
        Trap::IntegerOverflow | Trap::IntegerDivisionByZero | Trap::BadConversionToInteger => libc::SIGFPE,
        Trap::StackOverflow
        | Trap::MemoryOutOfBounds
        | Trap::TableOutOfBounds
        | Trap::IndirectCallToNull
        | Trap::BadSignature => libc::SIGSEGV,
        _ => libc::SIGABRT,
    }
}

fn zero(text: &str) -> Vec<u8> {
    // A zero in the middle would make two of one.
    text.bytes().filter(|b| *b != 0).chain([0]).collect()
}

fn config(memory: u64) -> Config {
    let mut config = Config::new();
    // A module is compiled for one call: little is gained by optimising, and there is less to be wrong.
    config.cranelift_opt_level(OptLevel::None);
    config.consume_fuel(true);
    config.epoch_interruption(true);
    config.max_wasm_stack(STACK);
    // As much address space as it may have, and a small gap: bounds are checked, not guessed from faults.
    config.memory_reservation(memory);
    config.memory_reservation_for_growth(0);
    config.memory_guard_size(64 << 10);
    config.memory_may_move(false);
    // Needs a memory file, which a sandbox may not be allowed to make.
    config.memory_init_cow(false);
    config.generate_address_map(false);
    config.wasm_backtrace_max_frames(None);
    config.wasm_memory64(false);
    config.wasm_multi_memory(false);
    config.wasm_relaxed_simd(false);
    config.wasm_tail_call(true);
    config.wasm_extended_const(true);
    config
}
