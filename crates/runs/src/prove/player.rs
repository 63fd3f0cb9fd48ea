//! Who makes an attack inside a run: this program itself, or somebody who has to ask for it as a model does.

use sandbox::Cancel;

use super::Shown;
use crate::{Executed, ProgramCall, Run, RunError};

/// What came of asking for a program.
#[derive(Debug)]
pub enum Played {
    /// It ran, and ended so.
    Done(Box<Executed>),
    /// It was not started, for this reason.
    Refused(String),
}

/// Somebody who has a program run inside.
pub trait Player {
    /// Has the program of an attack run, if that is let.
    fn play(
        &self,
        run: &Run,
        attack: &str,
        call: ProgramCall,
    ) -> impl Future<Output = Result<Played, RunError>>;

    /// Is told what came of an attack as soon as that is known: whoever ends all of it before its end has it still.
    fn shown(&self, _: &Shown) {}
}

/// This program itself: nothing is asked, everything is run.
#[derive(Clone, Copy, Debug)]
pub struct Directly;

impl Player for Directly {
    async fn play(&self, run: &Run, _: &str, call: ProgramCall) -> Result<Played, RunError> {
        let (_keep, cancel) = Cancel::new();
        Ok(Played::Done(Box::new(run.execute(call, &cancel).await?)))
    }
}
