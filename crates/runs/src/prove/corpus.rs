//! The attacks as data.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// What every program stands on.
const PRELUDE: &str = include_str!("attacks/prelude.py");
const SHIPPED: [(&str, &str); 7] = [
    ("files.toml", include_str!("attacks/files.toml")),
    ("processes.toml", include_str!("attacks/processes.toml")),
    ("network.toml", include_str!("attacks/network.toml")),
    ("kernel.toml", include_str!("attacks/kernel.toml")),
    ("machine.toml", include_str!("attacks/machine.toml")),
    ("neighbours.toml", include_str!("attacks/neighbours.toml")),
    ("modules.toml", include_str!("attacks/modules.toml")),
];

/// A list of attacks.
#[derive(Clone, Debug, Default)]
pub struct Corpus(Vec<Attack>);

/// One attack.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attack {
    /// Its name.
    pub id: String,
    /// The invariant it attacks.
    pub invariant: String,
    /// What it does, for a person.
    pub about: String,
    /// Tier and the layer that must stop it there.
    #[serde(default)]
    pub layers: BTreeMap<String, String>,
    /// Tier and why it means nothing there.
    #[serde(default)]
    pub not: BTreeMap<String, String>,
    /// `host`: the same program must succeed where nothing contains it. Only for harmless ones.
    pub control: Option<String>,
    /// A bound may end it, and that is what must happen.
    #[serde(default)]
    pub struck: bool,
    /// Its own time.
    pub seconds: Option<u64>,
    /// What runs in a second sandbox before.
    pub plant: Option<String>,
    /// The program, in Python.
    #[serde(default)]
    pub program: String,
    /// What a module does instead, as text: it means nothing but in the tier `wasm`, and there nothing else does.
    pub module: Option<String>,
    /// Functions of that module.
    pub functions: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    attack: Vec<Attack>,
}

/// A file that is no list of attacks.
#[derive(Debug, thiserror::Error)]
pub enum BadCorpus {
    /// Not the format.
    #[error("{file}: {message}")]
    Format {
        /// Which file.
        file: String,
        /// What is wrong.
        message: String,
    },
    /// A second attack of the same name.
    #[error("{file}: there are two attacks `{id}`")]
    Twice {
        /// Which file.
        file: String,
        /// The name.
        id: String,
    },
}

impl Corpus {
    /// The attacks that come with this program.
    ///
    /// # Errors
    /// [`BadCorpus`]; a test shows that there is none.
    pub fn shipped() -> Result<Corpus, BadCorpus> {
        let mut corpus = Corpus::default();
        for (name, text) in SHIPPED {
            corpus.add(name, text)?;
        }
        Ok(corpus)
    }

    /// Adds the attacks of another file.
    ///
    /// # Errors
    /// [`BadCorpus`].
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), BadCorpus> {
        let read: File = toml::from_str(text)
            .map_err(|e| BadCorpus::Format { file: file.to_owned(), message: e.to_string() })?;
        if let Some(bad) = read.attack.iter().find(|a| a.program.is_empty() == a.module.is_none()) {
            let message = format!("the attack `{}` is a `program` or a `module`", bad.id);
            return Err(BadCorpus::Format { file: file.to_owned(), message });
        }
        self.0.extend(read.attack);
        let mut seen = BTreeSet::new();
        match self.0.iter().find(|a| !seen.insert(&a.id)) {
            Some(twice) => Err(BadCorpus::Twice { file: file.to_owned(), id: twice.id.clone() }),
            None => Ok(()),
        }
    }

    /// Keeps the attacks whose names `wanted` accepts.
    pub fn keep(&mut self, wanted: impl Fn(&str) -> bool) {
        self.0.retain(|a| wanted(&a.id));
    }

    /// SHA-256 over everything that is tried.
    pub fn digest(&self) -> String {
        let told: Vec<String> = self.0.iter().map(|attack| format!("{attack:?}")).collect();
        crate::sha256(format!("{PRELUDE}\n{}", told.join("\n")).as_bytes())
    }

    /// All of them.
    pub fn attacks(&self) -> &[Attack] {
        &self.0
    }
}

/// A program with what it stands on.
pub(super) fn program(body: &str) -> String {
    format!("{PRELUDE}\n{body}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVARIANTS: [&str; 7] = [
        "nothing_outside",
        "no_network_by_default",
        "no_secret_inside",
        "limits_hold",
        "nothing_survives",
        "fails_closed",
        "record_is_true",
    ];

    #[test]
    fn every_shipped_attack_names_an_invariant_and_answers_for_every_tier() {
        let corpus = Corpus::shipped().unwrap();
        assert!(corpus.attacks().len() >= 70, "{}", corpus.attacks().len());
        for attack in corpus.attacks().iter().filter(|a| a.module.is_none()) {
            assert!(INVARIANTS.contains(&attack.invariant.as_str()), "{}", attack.id);
            for tier in ["confined", "namespace", "gvisor", "microvm"] {
                let (layer, not) = (attack.layers.get(tier), attack.not.get(tier));
                assert!(layer.is_some() != not.is_some(), "{} on {tier}", attack.id);
            }
            assert!(attack.control.as_deref().is_none_or(|c| c == "host"), "{}", attack.id);
        }
    }

    #[test]
    fn a_name_that_is_there_already_and_a_key_that_is_none_are_refused() {
        let mut corpus = Corpus::shipped().unwrap();
        let row = "[[attack]]\nid='bpf'\ninvariant='x'\nabout='x'\nprogram='pass'\n";
        assert!(corpus.add("mine", row).unwrap_err().to_string().contains("two attacks `bpf`"));
        assert!(Corpus::default().add("mine", &format!("{row}layer='x'\n")).is_err());
    }
}
