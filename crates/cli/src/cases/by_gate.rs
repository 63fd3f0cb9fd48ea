//! Rows that are a change: both sides written as ours, and compared by `guild diff`.

use serde_json::Value;

use super::format::Outcome;
use super::neutral::{Side, side};
use super::seen::Seen;
use super::verdict::Trouble;
use super::world::World;

/// Refused, whether it is wider or no sound Guild at all; a baseline that is not sound is no question.
pub(super) fn judged(world: &World<'_>, baseline: &Value, proposal: &Value) -> Result<Seen, Trouble> {
    world.set_up(&world.source())?;
    for (name, config) in [("old", baseline), ("new", proposal)] {
        let Side { deployment, guild, prompts } = side(&world.filled(config, &world.source()).to_string());
        world.write(&format!("{name}.toml"), &deployment)?;
        world.write(&format!("{name}/guild.toml"), &guild)?;
        for (n, prompt) in prompts.iter().enumerate() {
            world.write(&format!("{name}/prompts/{n}.md"), prompt)?;
        }
    }
    let ran = world.ran(&[
        "guild",
        "diff",
        "old",
        "new",
        "--config",
        "new.toml",
        "--old-config",
        "old.toml",
        "--json",
    ])?;
    let told: Value = serde_json::from_str(&ran.out).unwrap_or_default();
    let faults = told["faults"].as_array().into_iter().flatten();
    let mut files = faults.filter_map(|fault| fault["file"].as_str());
    let mut faults = Vec::new();
    let outcome = match ran.code {
        Some(0) => Outcome::Ok,
        Some(3) => Outcome::Denied,
        Some(2) if files.any(|file| file.starts_with("new")) => Outcome::Denied,
        _ => {
            faults.push(format!("it is neither refused nor passed: {}", ran.told()));
            Outcome::Error
        }
    };
    if !world.ids().is_empty() {
        faults.push("something ran".to_owned());
    }
    Ok(Seen { outcome: Some(outcome), texts: vec![ran.out], err: ran.err, faults, ..Seen::default() })
}
