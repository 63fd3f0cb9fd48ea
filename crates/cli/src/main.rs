//! The `oubliette` command: parses, calls, prints, exits; decides nothing.
//!
//! `main` reads as the story: helpers first, because they must be single-threaded; then the forker, a copy of this
//! process while it knows nothing yet; then the arguments, one command, one exit code.

mod args;
mod cases;
mod command;
mod deploy;
mod diff_lines;
mod exit;
mod live;
mod proposal;
mod render;
mod review;
mod sarif;
mod scratch;
mod signal;

use std::process::ExitCode;

use args::{Args, Command};
use exit::Exit;

fn main() -> ExitCode {
    let first = runs::helper_main();
    // Only so can it be shown that nothing which is open here is open in a sandbox.
    let _open = first.as_ref().filter(|word| *word == "prove").map(|_| runs::leave_open());
    let host = first.as_ref().filter(|word| command::has_sandboxes(word)).map(|_| runs::Host::fork());
    let args = match Args::typed(first.as_deref()) {
        Ok(args) => args,
        // Help and version are no errors; everything else is one of usage, and may quote what somebody else has typed.
        Err(e) if e.use_stderr() => {
            render::note(e.render().to_string().trim_end());
            return Exit::Usage.into();
        }
        Err(e) => {
            return match e.print() {
                Ok(()) => Exit::Done.into(),
                Err(_) => Exit::Infrastructure.into(),
            };
        }
    };
    let done = match &args.command {
        Command::Run(run) => command::run::run(run, host),
        Command::Exec(exec) => command::exec::exec(exec, host),
        Command::Doctor(doctor) => command::doctor::doctor(doctor, host),
        Command::Prove(prove) => command::prove::prove(prove, host),
        Command::Guild(guild) => command::guild::guild(guild),
        Command::Foundry(foundry) => command::foundry::foundry(foundry),
        Command::Runs(runs) => command::runs::runs(runs),
        Command::Schema(schema) => command::schema::schema(schema),
    };
    match done {
        Ok(code) => code,
        Err(e) => {
            render::error(&e);
            Exit::of(&e).into()
        }
    }
}
