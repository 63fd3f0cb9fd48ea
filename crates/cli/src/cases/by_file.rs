//! Rows that are a configuration: written as ours, and judged where it is loaded.

use super::door::Ran;
use super::format::Outcome;
use super::neutral::written;
use super::seen::Seen;
use super::verdict::Trouble;
use super::world::World;

/// A configuration of tables is loaded by `exec`, one of roles by `guild check`.
pub(super) fn loaded(world: &World<'_>, config: &str) -> Result<Seen, Trouble> {
    world.set_up(&world.source())?;
    let written = written(config);
    world.write("oubliette.toml", &written.deployment)?;
    let ran = match &written.guild {
        Some((guild, prompts)) => {
            world.write("guild/guild.toml", guild)?;
            for n in 0..*prompts {
                world.write(&format!("guild/prompts/{n}.md"), "You do what you are asked.\n")?;
            }
            world.ran(&["guild", "check", "guild"])?
        }
        None => {
            let tier = world.tier.as_str();
            world.ran(&["exec", "--data", "data", "--tier", tier, "--floor", tier, "--", "true"])?
        }
    };
    let mut faults = Vec::new();
    // Refused at its place in the file, before anything began.
    let outcome = match ran.code {
        Some(0) => Outcome::Ok,
        Some(3) => Outcome::Denied,
        Some(2) if names_a_place(&ran) => Outcome::Error,
        _ => {
            faults.push(format!("it is neither loaded nor refused at its place: {}", ran.told()));
            Outcome::Error
        }
    };
    if outcome != Outcome::Ok && !world.ids().is_empty() {
        faults.push(format!("a run began all the same: {}", ran.told()));
    }
    Ok(Seen { outcome: Some(outcome), texts: vec![ran.out], err: ran.err, faults, ..Seen::default() })
}

fn names_a_place(ran: &Ran) -> bool {
    ran.err.contains("oubliette.toml:") || ran.err.contains("guild.toml:")
}
