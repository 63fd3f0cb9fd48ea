//! The attacks as data.

use std::collections::{BTreeMap, BTreeSet};

use policy::StoppedBy;
use serde::Deserialize;

/// What every program stands on.
const PRELUDE: &str = include_str!("attacks/prelude.py");
const SHIPPED: [(&str, &str); 8] = [
    ("files.toml", include_str!("attacks/files.toml")),
    ("processes.toml", include_str!("attacks/processes.toml")),
    ("network.toml", include_str!("attacks/network.toml")),
    ("way.toml", include_str!("attacks/way.toml")),
    ("kernel.toml", include_str!("attacks/kernel.toml")),
    ("machine.toml", include_str!("attacks/machine.toml")),
    ("neighbours.toml", include_str!("attacks/neighbours.toml")),
    ("modules.toml", include_str!("attacks/modules.toml")),
];

/// What goes before a control in namespaces of its own.
pub(super) const ASIDE: &str = include_str!("attacks/aside.py");
/// What every module stands on.
pub(super) const MODULES: &str = include_str!("attacks/prelude.wat");

/// Layers and what they answer a system call with that they refuse.
const LAYERS: &str = include_str!("attacks/layers.toml");

/// A list of attacks.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    attacks: Vec<Attack>,
    answers: BTreeMap<String, BTreeSet<String>>,
}

/// The words for a control.
const CONTROLS: &str = "`host`, `namespace`, `root`, `inner` or `none: WHY`";

/// What shows that an attack could succeed at all: else that it was refused means nothing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Control {
    /// `host`: the same program, run where nothing contains it. Only for what does no harm there as an ordinary user.
    Host,
    /// `namespace`: the same, by the root of namespaces of its own (users, mounts, network, names), gone with it. Only
    /// for what does no harm outside of them.
    Namespace,
    /// `root`: the same with the rights of who proves, which may be all. Only for what does no harm with any.
    Root,
    /// `inner`: what it does by `control`, in the same place, by the same calls.
    Inner,
    /// `none: WHY`: there is none.
    Missing {
        /// Why.
        why: String,
    },
}

impl TryFrom<String> for Control {
    type Error = String;

    fn try_from(text: String) -> Result<Control, String> {
        match (text.as_str(), text.strip_prefix("none: ").map(str::trim)) {
            ("host", _) => Ok(Control::Host),
            ("namespace", _) => Ok(Control::Namespace),
            ("root", _) => Ok(Control::Root),
            ("inner", _) => Ok(Control::Inner),
            (_, Some(why)) if !why.is_empty() => Ok(Control::Missing { why: why.to_owned() }),
            _ => Err(format!("`{text}` is no control: {CONTROLS}")),
        }
    }
}

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
    /// What shows that it could succeed at all. A program names it; a module always has it in itself.
    pub control: Option<Control>,
    /// What a machine must have for a control outside to succeed, where not every machine has it.
    pub wants: Option<String>,
    /// Bounds any of which may end it. A module that names one must be ended by it.
    #[serde(default)]
    pub struck_by: Vec<StoppedBy>,
    /// Its own time.
    pub seconds: Option<u64>,
    /// What runs in a second sandbox before.
    pub plant: Option<String>,
    /// It is made in that second one, which is granted a way out that leads nowhere.
    #[serde(default)]
    pub granted: bool,
    /// It has a terminal.
    #[serde(default)]
    pub terminal: bool,
    /// Calls behind it, in the same sandbox, each of which must succeed in all that it tries by `control`.
    #[serde(default)]
    pub after: Vec<String>,
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
struct Layers {
    answers: BTreeMap<String, BTreeSet<String>>,
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

impl Attack {
    /// Words for an end by what must not end it, where a bound must; else none.
    pub(super) fn not_struck(&self, by: StoppedBy) -> String {
        if self.struck_by.is_empty() || self.struck_by.contains(&by) || by == StoppedBy::Exit {
            return String::new();
        }
        let bounds: Vec<&str> = self.struck_by.iter().map(|by| by.as_str()).collect();
        format!(" where only {} may end it", bounds.join(" or "))
    }
}

impl Corpus {
    /// The attacks that come with this program.
    ///
    /// # Errors
    /// [`BadCorpus`]; a test shows that there is none.
    pub fn shipped() -> Result<Corpus, BadCorpus> {
        let format =
            |e: toml::de::Error| BadCorpus::Format { file: "layers.toml".to_owned(), message: e.to_string() };
        let layers: Layers = toml::from_str(LAYERS).map_err(format)?;
        let mut corpus = Corpus { answers: layers.answers, ..Corpus::default() };
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
        if let Some(bad) = read.attack.iter().find(|a| a.module.is_none() && a.control.is_none()) {
            let message = format!("the attack `{}` has no `control`: {CONTROLS}", bad.id);
            return Err(BadCorpus::Format { file: file.to_owned(), message });
        }
        let no_bound = |a: &Attack| a.struck_by.iter().copied().find(|by| !is_bound(*by));
        if let Some((bad, by)) = read.attack.iter().find_map(|a| Some((&a.id, no_bound(a)?))) {
            let message = format!("the attack `{bad}` is `struck_by` what is no bound: `{by}`");
            return Err(BadCorpus::Format { file: file.to_owned(), message });
        }
        self.attacks.extend(read.attack);
        let mut seen = BTreeSet::new();
        match self.attacks.iter().find(|a| !seen.insert(&a.id)) {
            Some(twice) => Err(BadCorpus::Twice { file: file.to_owned(), id: twice.id.clone() }),
            None => Ok(()),
        }
    }

    /// Keeps the attacks whose names `wanted` accepts.
    pub fn keep(&mut self, wanted: impl Fn(&str) -> bool) {
        self.attacks.retain(|a| wanted(&a.id));
    }

    /// SHA-256 over everything that is tried.
    pub fn digest(&self) -> String {
        let told: Vec<String> = self.attacks.iter().map(|attack| format!("{attack:?}")).collect();
        let base = [PRELUDE, ASIDE, MODULES, LAYERS].join("\n");
        crate::sha256(format!("{base}\n{}", told.join("\n")).as_bytes())
    }

    /// What a layer answers a call with that it refuses, by the names of errors; none where it has no answer of its own.
    pub(super) fn answers(&self, layer: &str) -> Option<&BTreeSet<String>> {
        self.answers.get(layer)
    }

    /// All of them.
    pub fn attacks(&self) -> &[Attack] {
        &self.attacks
    }
}

/// Whether an end by this may show a bound; a stack that is used up is a signal.
fn is_bound(by: StoppedBy) -> bool {
    match by {
        StoppedBy::Timeout
        | StoppedBy::Memory
        | StoppedBy::Processes
        | StoppedBy::Disk
        | StoppedBy::Output
        | StoppedBy::Cpu
        | StoppedBy::Signal => true,
        StoppedBy::Exit | StoppedBy::Denied | StoppedBy::Cancelled | StoppedBy::SandboxLost => false,
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
        assert!(corpus.attacks().len() >= 83, "{}", corpus.attacks().len());
        for attack in corpus.attacks().iter().filter(|a| a.module.is_none()) {
            assert!(INVARIANTS.contains(&attack.invariant.as_str()), "{}", attack.id);
            for tier in ["confined", "namespace", "gvisor", "microvm"] {
                let (layer, not) = (attack.layers.get(tier), attack.not.get(tier));
                assert!(layer.is_some() != not.is_some(), "{} on {tier}", attack.id);
            }
        }
    }

    /// What a bound of another kind ends has not shown its own.
    #[test]
    fn every_shipped_bomb_names_what_it_must_be_struck_by() {
        let corpus = Corpus::shipped().unwrap();
        for attack in corpus.attacks().iter().filter(|a| !a.struck_by.is_empty()) {
            assert_eq!(attack.invariant, "limits_hold", "{}", attack.id);
            let waits = attack.struck_by.contains(&StoppedBy::Timeout);
            assert_eq!(waits, attack.id == "ignores-its-end", "{}", attack.id);
        }
    }

    /// What no attack could do anywhere proves nothing of a wall.
    #[test]
    fn every_shipped_attack_has_a_control_or_says_why_it_has_none() {
        let corpus = Corpus::shipped().unwrap();
        let mut without = Vec::new();
        for attack in corpus.attacks() {
            match (&attack.control, &attack.module) {
                (None, Some(module)) => assert!(module.contains("(call $control "), "{}", attack.id),
                // By itself, or by what the way out gives.
                (Some(Control::Inner), None) => {
                    let own = ["control(", "say(\"control\""];
                    assert!(own.iter().any(|own| attack.program.contains(own)), "{}", attack.id);
                }
                (Some(Control::Host | Control::Namespace | Control::Root), None) => {}
                (Some(Control::Missing { why }), None) => {
                    assert!(why.len() > 30, "{}: {why}", attack.id);
                    without.push(attack.id.as_str());
                }
                (control, _) => panic!("{}: {control:?}", attack.id),
            }
        }
        assert_eq!(without, ["the-world", "rare-families", "clock"]);
    }

    #[test]
    fn a_control_is_one_of_five_and_one_that_is_missing_says_why() {
        let row = |control: &str| {
            let text = format!("[[attack]]\nid='x'\ninvariant='x'\nabout='x'\nprogram='pass'\n{control}\n");
            let mut corpus = Corpus::default();
            corpus.add("mine", &text).map(|()| corpus.attacks[0].control.clone().unwrap())
        };
        assert_eq!(row("control='host'").unwrap(), Control::Host);
        assert_eq!(row("control='namespace'").unwrap(), Control::Namespace);
        assert_eq!(row("control='root'").unwrap(), Control::Root);
        assert_eq!(row("control='inner'").unwrap(), Control::Inner);
        let why = "nobody can".to_owned();
        assert_eq!(row("control='none: nobody can'").unwrap(), Control::Missing { why });
        for bad in ["control='none: '", "control='none'", "control='some'"] {
            assert!(row(bad).unwrap_err().to_string().contains("is no control"), "{bad}");
        }
        assert!(row("").unwrap_err().to_string().contains("has no `control`"));
    }

    #[test]
    fn a_name_that_is_there_already_and_a_key_that_is_none_are_refused() {
        let mut corpus = Corpus::shipped().unwrap();
        let row = "[[attack]]\nid='bpf'\ninvariant='x'\nabout='x'\ncontrol='inner'\nprogram='pass'\n";
        assert!(corpus.add("mine", row).unwrap_err().to_string().contains("two attacks `bpf`"));
        for more in ["layer='x'", "struck = true", "struck_by = ['anything']"] {
            assert!(Corpus::default().add("mine", &format!("{row}{more}\n")).is_err(), "{more}");
        }
        for by in ["exit", "denied", "cancelled", "sandbox_lost"] {
            let bad = Corpus::default().add("mine", &format!("{row}struck_by = ['memory', '{by}']\n"));
            assert!(bad.unwrap_err().to_string().contains("no bound"), "{by}");
        }
    }
}
