//! `oubliette prove --cases FILE`: rows of attacks, accidents and controls, played against this very program.
//!
//! A row is played by starting this same program as a child in a scratch folder of its own, so that exit codes, memory and
//! processes are really those of the product. The lines of a row's `setup` run on this machine, as the user: that is the
//! format, and such a file is run only by who would run it anyway.
//!
//! ```text
//! file ─ read.rs, format.rs   every line strictly; what is wrong is told with its line
//! row  ─ applicable.rs        does it mean anything here?
//!      ─ world.rs             a scratch folder, placeholders (fill.rs), a listener, the deployment (neutral.rs)
//!      ─ by_exec.rs           a command line         exec
//!      ─ by_run.rs, drive.rs  calls of a model       run, whose model (model.rs) waits for our word
//!      ─ by_file.rs           a configuration        refused or loaded
//!      ─ by_gate.rs           a change of one        refused, or no wider
//!      ─ by_request.rs        a destination          refused or reached
//!      ─ together.rs          many in one machine
//!      ─ judge.rs             every key of `expect`
//!      ─ process.rs           everything that is left is ended
//! ```

mod applicable;
mod by_exec;
mod by_file;
mod by_gate;
mod by_request;
mod by_run;
mod door;
mod drive;
mod fill;
mod format;
mod judge;
mod listener;
mod model;
mod neutral;

mod process;
mod read;
mod seen;
mod show;
mod together;
mod verdict;
mod world;

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use policy::Tier;
use runs::Cancel;
use serde_json::Value;

use self::applicable::Guest;
use self::format::{Outcome, Simulate};
use self::read::{Input, Row};
use self::seen::Seen;
use self::show::Shown;
use self::verdict::{Judged, Miss, Trouble, Verdict};
use self::world::World;
use crate::args::Prove;
use crate::command::prove::{Kept, tier};
use crate::exit::{Ended, Exit, usage};
use crate::scratch::{Folder, passable};
use crate::signal;

/// Tiers that are asked where none is named.
const TIERS: [Tier; 2] = [Tier::Gvisor, Tier::Namespace];

/// Plays the rows of a file, and says of each whether it held.
pub(crate) fn prove(args: &Prove, file: &Path) -> anyhow::Result<ExitCode> {
    let rows = chosen(args, read::rows(file)?)?;
    let kept = args.out.as_deref().map(Kept::open).transpose()?;
    let folder = Folder::make(args.data.as_deref())?;
    let cancel = signal::cancel()?;
    process::adopt()?;
    let wanted: Vec<Tier> = args.tier.iter().map(|name| tier(*name)).collect();
    let tiers = if wanted.is_empty() { &TIERS[..] } else { &wanted };
    let mut shown = Shown::new(args.json);
    for tier in tiers {
        let play = Play {
            tier: *tier,
            folder: &folder,
            cancel: &cancel,
            number: Cell::new(0),
            archives: OnceCell::new(),
        };
        let done = play.all(&rows, &mut shown);
        let swept = process::sweep();
        if done.is_err() || cancel.is_cancelled() {
            return Err(Ended { exit: Exit::Infrastructure, message: "cancelled".to_owned() }.into());
        }
        if !swept {
            shown.left_behind();
        }
    }
    shown.end(kept, file, &wanted)
}

/// The rows that were asked for.
fn chosen(args: &Prove, rows: Vec<Row>) -> anyhow::Result<Vec<Row>> {
    let exact: Vec<&String> =
        args.only.iter().filter(|only| rows.iter().any(|row| row.id == **only)).collect();
    let named = |row: &Row| {
        let by = |only: &String| {
            if exact.contains(&only) { row.id == *only } else { row.id.contains(only.as_str()) }
        };
        args.only.is_empty() || args.only.iter().any(by)
    };
    let of_class = |row: &Row| args.class.is_empty() || args.class.contains(&row.class);
    let keep: Vec<bool> = rows.iter().map(|row| named(row) && of_class(row)).collect();
    let chosen: Vec<Row> = rows.into_iter().zip(keep).filter_map(|(row, keep)| keep.then_some(row)).collect();
    if chosen.is_empty() {
        return Err(usage("there is no row of such a name and class"));
    }
    Ok(chosen)
}

/// The user asked for an end.
struct Cancelled;

/// Rows on one tier.
pub(super) struct Play<'a> {
    tier: Tier,
    folder: &'a Folder,
    cancel: &'a Cancel,
    number: Cell<usize>,
    archives: OnceCell<bool>,
}

/// What came of playing a row.
struct Asked {
    came: Result<(Option<Outcome>, Vec<Miss>), Trouble>,
    took: Duration,
}

impl Play<'_> {
    fn all(&self, rows: &[Row], shown: &mut Shown) -> Result<(), Cancelled> {
        let lacks = match self.guest() {
            Ok(Guest::Works { lacks }) => lacks,
            Ok(Guest::Absent { why }) => {
                shown.absent(self.tier, &why);
                return Ok(());
            }
            Err(Trouble::Cancelled) => return Err(Cancelled),
            Err(Trouble::Unasked(why)) => {
                shown.absent(self.tier, &why.to_string());
                return Ok(());
            }
            Err(Trouble::Fault(why)) => {
                shown.absent(self.tier, &why);
                return Ok(());
            }
        };
        shown.begin(self.tier);
        let mut asked: HashMap<usize, Asked> = HashMap::new();
        if self.tier == Tier::Microvm {
            asked = self.in_one_machine(rows, &lacks)?;
        }
        for (n, row) in rows.iter().enumerate() {
            if self.cancel.is_cancelled() {
                return Err(Cancelled);
            }
            let before = self.judged_before(row, &lacks);
            let judged = match before {
                Some(judged) => judged,
                None => {
                    let asked = asked.remove(&n).unwrap_or_else(|| self.asked(row));
                    self.judged(row, asked)?
                }
            };
            shown.row(judged);
        }
        Ok(())
    }

    fn guest(&self) -> Result<Guest, Trouble> {
        let scratch = self.scratch()?;
        let guest = applicable::guest(self.tier, &scratch, self.cancel);
        crate::scratch::remove(&scratch)?;
        guest
    }

    /// A folder for a start of the program that belongs to no row.
    fn scratch(&self) -> std::io::Result<std::path::PathBuf> {
        let scratch = self.next();
        for name in ["", "home", "data", "data/runs"] {
            passable().create(scratch.join(name))?;
        }
        Ok(scratch)
    }

    fn next(&self) -> std::path::PathBuf {
        self.number.set(self.number.get() + 1);
        self.folder.0.join(format!("{}-{}", self.tier, self.number.get()))
    }

    /// What surrounds a row.
    fn world<'r>(&self, row: &'r Row) -> Result<World<'r>, Trouble> {
        World::new(row, self.tier, self.next(), self.cancel)
    }

    fn in_one_machine(&self, rows: &[Row], lacks: &[String]) -> Result<HashMap<usize, Asked>, Cancelled> {
        let asked = rows.iter().enumerate().filter(|(_, row)| self.judged_before(row, lacks).is_none());
        let asked: Vec<(usize, &Row)> = asked.collect();
        match together::played(self, &asked) {
            Ok(played) => Ok(played),
            Err(Trouble::Cancelled) => Err(Cancelled),
            // Then each is asked in a machine of its own, and says itself what is wrong.
            Err(Trouble::Unasked(_) | Trouble::Fault(_)) => Ok(HashMap::new()),
        }
    }

    /// What can be said without playing the row.
    fn judged_before(&self, row: &Row, lacks: &[String]) -> Option<Judged> {
        let archives = || {
            *self.archives.get_or_init(|| {
                let scratch = self.scratch();
                scratch.is_ok_and(|scratch| applicable::archives(self.tier, &scratch, self.cancel))
            })
        };
        let said = |verdict, why: String| Judged {
            got: "nothing".to_owned(),
            why,
            ..self.about(row, verdict, Vec::new(), Duration::ZERO)
        };
        if let Some(why) = applicable::not_here(row, self.tier, &archives) {
            return Some(said(Verdict::NotApplicable, why.to_string()));
        }
        let why = applicable::unasked(row, lacks)?;
        Some(said(Verdict::CouldNotBeAsked, why.to_string()))
    }

    fn about(&self, row: &Row, verdict: Verdict, misses: Vec<Miss>, took: Duration) -> Judged {
        let right = [row.expect.outcome].into_iter().chain(row.expect.also_accept.iter().copied());
        let right: Vec<&str> = right.map(Outcome::as_str).collect();
        Judged {
            id: row.id.clone(),
            class: row.class.clone(),
            tier: self.tier.as_str(),
            expected: right.join(" or "),
            got: String::new(),
            verdict,
            why: String::new(),
            misses,
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn judged(&self, row: &Row, asked: Asked) -> Result<Judged, Cancelled> {
        match asked.came {
            Ok((got, misses)) => {
                let verdict = if misses.is_empty() { Verdict::Held } else { Verdict::Failed };
                let keys: Vec<&str> = misses.iter().map(|miss| miss.key).collect();
                let why = keys.join(", ");
                let got = got.map_or("nothing", Outcome::as_str).to_owned();
                Ok(Judged { got, why, ..self.about(row, verdict, misses, asked.took) })
            }
            Err(Trouble::Cancelled) => Err(Cancelled),
            Err(Trouble::Unasked(why)) => {
                let (got, why) = ("nothing".to_owned(), why.to_string());
                Ok(Judged { got, why, ..self.about(row, Verdict::CouldNotBeAsked, Vec::new(), asked.took) })
            }
            Err(Trouble::Fault(why)) => {
                let miss = Miss { key: "never", expected: "a sound end".to_owned(), got: why.clone() };
                let got = "no sound end".to_owned();
                Ok(Judged { got, why, ..self.about(row, Verdict::Failed, vec![miss], asked.took) })
            }
        }
    }

    /// Plays a row in a world of its own, of which nothing is left.
    fn asked(&self, row: &Row) -> Asked {
        let began = Instant::now();
        let came = self.world(row).and_then(|world| {
            let came =
                played(&world).and_then(|seen| Ok((judge::outcome(&seen), judge::judge(&world, &seen)?)));
            // What it left running goes before the folder that it may still write to.
            if process::sweep() {
                came
            } else {
                Err(Trouble::Fault("processes are left that nothing ends".to_owned()))
            }
        });
        Asked { came, took: began.elapsed() }
    }
}

fn played(world: &World<'_>) -> Result<Seen, Trouble> {
    if world.policy.simulate == Some(Simulate::SandboxUnavailable) {
        return by_run::refused(world);
    }
    let row = world.row;
    let later = row.expect.survivors.is_some() || row.expect.check_after_s.is_some();
    match &row.input {
        Input::Command(argv) if later => by_run::one_command(world, argv),
        Input::Command(argv) => by_exec::played(world, argv),
        Input::Calls { calls, then } => by_run::carried_out(world, calls, then.as_ref()),
        Input::Parallel(calls) => by_run::raced(world, calls),
        Input::Runs { runs, at_once } => by_run::several(world, runs, *at_once),
        Input::Turns(turns) => by_run::turned(world, turns),
        Input::ImportArchive { path } => by_exec::imported(world, path),
        Input::Config(config) => by_file::loaded(world, &in_source(world, config).to_string()),
        Input::ConfigRaw(raw) => by_file::loaded(world, &world.fill(raw, &world.source())),
        // Told before anything is played.
        Input::Generated => Err(verdict::Unasked::Generated.into()),
        Input::Gate { baseline, proposal } => by_gate::judged(world, baseline, proposal),
        Input::Request { request, answers } => by_request::asked(world, request, answers),
    }
}

fn in_source(world: &World<'_>, value: &Value) -> Value {
    world.filled(value, &world.source())
}
