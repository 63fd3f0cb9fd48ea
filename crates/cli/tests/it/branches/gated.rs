//! The same branches through the whole gate: those that are weaker by their Guild alone never come to the attacks.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use agent::LoadedGuild;
use foundry::{Arena, Attacks, BranchId, Foundry, FoundryError, GateRecord, GateVerdict, Row, RowVerdict};
use policy::{Deployment, Grant, RoleName, Tier};

use super::{Branch, branches, opened, place};
use crate::attacked::terms;

/// Says that everything held, and counts how often something of a branch was to be run.
#[derive(Default)]
struct Counting(Cell<u32>);

impl Arena for Counting {
    async fn attack(
        &self,
        guild: &LoadedGuild,
        _: &Grant,
        _: &BTreeSet<RoleName>,
    ) -> Result<Attacks, FoundryError> {
        self.0.set(self.0.get() + 1);
        let row = Row {
            role: guild.guild.entry.to_string(),
            attack: "one".to_owned(),
            verdict: RowVerdict::Held,
            layer: "walls".to_owned(),
            detail: String::new(),
        };
        let (engine, corpus) = (String::new(), String::new());
        Ok(Attacks { tier: Tier::Gvisor, engine, corpus, rows: vec![row], duration_ms: 1 })
    }
}

/// Gates every branch of a kind that has no deployment of its own; what is wrong with which.
fn each(kind: &str, most: usize, wrong: impl Fn(&Branch, &GateRecord, u32) -> Option<String>) {
    let place = place();
    let text = opened("");
    let deployment = Deployment::parse("oubliette.toml", &text).unwrap();
    let terms = terms(&deployment, &text, String::new());
    let foundry = Foundry::make(&place.path("data")).unwrap();
    foundry.init(&place.path("old"), &terms).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let all = branches(kind);
    let all = all.iter().filter(|(_, branch)| branch.config.is_none() && branch.old_config.is_none());
    let (mut looked_at, mut all_wrong) = (0, Vec::new());
    for (name, branch) in all {
        let at = place.path("data/foundry/branches").join(name);
        fs::create_dir(&at).unwrap();
        branch.make(name, &at.join("guild"));
        let arena = Counting::default();
        let record = runtime.block_on(foundry.gate(&BranchId::parse(name).unwrap(), &terms, &arena)).unwrap();
        if let Some(wrong) = wrong(branch, &record, arena.0.get()) {
            all_wrong.push(format!("{name}: {wrong}: {:?} {}", record.verdict, record.reason));
        }
        fs::remove_dir_all(&at).unwrap();
        looked_at += 1;
    }
    assert!(all_wrong.is_empty(), "{}", all_wrong.join("\n"));
    assert!(looked_at >= most, "{looked_at}");
}

/// The code and place with which the gate refuses: its own for what is no Guild's folder, and for a fault that of the rules
/// of a Guild.
fn expected(branch: &Branch) -> (String, String) {
    let whole = branch.expect.clone().unwrap();
    let (code, place) = whole.split_once(' ').unwrap_or((&whole, ""));
    let odd = [
        ("W-TREE-LINK", branch.link.first().map(|link| &link.file)),
        ("W-TREE-SPECIAL", branch.fifo.first().map(|fifo| &fifo.file)),
        ("W-TREE-BYTES", branch.sparse.first().map(|sparse| &sparse.file)),
    ];
    match odd.iter().find_map(|(code, file)| Some((*code, (*file)?))) {
        Some((code, file)) => (code.to_owned(), file.clone()),
        None if code.starts_with("W-") => (code.to_owned(), place.to_owned()),
        None => (format!("W-GUILD-{}", code.to_uppercase()), place.to_owned()),
    }
}

/// W8, R28, R58, R61: refused for its own code, and the arena was never asked.
#[test]
fn r61_no_branch_that_is_weaker_by_its_guild_comes_to_the_attacks() {
    each("weaker", 90, |branch, record, asked| {
        let (code, at) = expected(branch);
        let is_it = |found: &serde_json::Value| {
            let (place, file) = (found["place"].as_str().unwrap(), found["file"].as_str().unwrap());
            found["code"] == code.as_str() && (place == at || Path::new(file) == Path::new(&at))
        };
        if asked != 0 || record.attacks.is_some() {
            Some(format!("it was attacked {asked} times"))
        } else if record.verdict != GateVerdict::Refused || !record.findings.iter().any(is_it) {
            Some(format!("wanted {code} {at}, told {:?}", record.findings))
        } else {
            None
        }
    });
}

/// The other way round: the same arena is asked once for what is no wider, so that it would have been seen.
#[test]
fn r61_a_branch_that_is_no_wider_comes_to_the_attacks_once() {
    each("neutral", 15, |_, record, asked| {
        (asked != 1 || record.verdict != GateVerdict::Passed).then(|| format!("attacked {asked} times"))
    });
}
