//! What a role holds, and what it reaches through the roles that it may start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::bound::Bound;
use super::order::Order;
use crate::{Power, RoleGrant, RoleName, Tool};

/// A tool's name; a Guild of many roles says each of them often.
pub(super) type Name = Arc<str>;
/// Bounds by their key.
pub(super) type Bounds = BTreeMap<&'static str, Bound>;

/// What a role can do, itself and by reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// Tools of its own list that give a power.
    pub(super) tools: BTreeSet<Name>,
    /// Those, and those of every role that it can have started. Roles that start each other share it.
    pub(super) reach: Arc<BTreeSet<Name>>,
    /// Kinds of foreign text that it may have had before it, where something that it reaches runs programs. No part of
    /// what it reaches: a reader that tells it something, as a role beside it does by the one that starts both, adds
    /// to this and to nothing else of it.
    pub(super) untrusted_exec: BTreeSet<Source>,
    /// The same where something that it reaches goes to the network.
    pub(super) untrusted_network: BTreeSet<Source>,
    /// The most that one conversation may take which it can have started, itself among them: of each bound the
    /// highest, and written only where each of them has it written.
    pub(super) bounds: Arc<Bounds>,
    /// Something that it can have started can have itself started again. Bounds hold for one conversation, so that
    /// is a power of its own.
    pub(super) restarts: bool,
}

/// Where text comes from that somebody else wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// Files of the workspace, and their names.
    Files,
    /// What programs print.
    Programs,
    /// Pages of the network.
    Pages,
    /// What a module of the Guild's own says.
    Modules,
}

impl Source {
    const ALL: [Source; 4] = [Source::Files, Source::Programs, Source::Pages, Source::Modules];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Source::Files => "files",
            Source::Programs => "programs",
            Source::Pages => "pages",
            Source::Modules => "modules",
        }
    }
}

/// What several roles have together.
struct Shared {
    reach: Arc<BTreeSet<Name>>,
    does: Does,
    bounds: Arc<Bounds>,
    restarts: bool,
}

/// What one role has.
struct Held {
    tools: BTreeSet<Name>,
    /// The same, a bit for each name that any role has: what many roles have together is found in few steps.
    bits: Vec<u64>,
    does: Does,
    bounds: Bounds,
    restarts: bool,
}

/// What a name can do, for the closure.
#[derive(Clone, Default)]
struct Does {
    reads: BTreeSet<Source>,
    runs: bool,
    connects: bool,
}

/// What there is of the deployment for a role to reach.
#[derive(Clone, Copy)]
pub(super) struct Open {
    /// Any destination is open at all.
    pub(super) network: bool,
    /// A shell's text may do whatever an argument vector may. Where commands are listed, texts and vectors are judged
    /// in two ways, of which neither is within the other.
    pub(super) shell_covers: bool,
}

/// Every role with what it reaches; `bounds` are each role's own.
pub(super) fn of(
    roles: &BTreeMap<RoleName, RoleGrant>,
    bounds: &BTreeMap<RoleName, Bounds>,
    open: Open,
) -> BTreeMap<RoleName, Reach> {
    let names: Vec<&RoleName> = roles.keys().collect();
    let number: BTreeMap<&RoleName, usize> = names.iter().enumerate().map(|(n, name)| (*name, n)).collect();
    let mut interned: BTreeMap<String, Name> = BTreeMap::new();
    let edges: Vec<Vec<usize>> = roles
        .values()
        .map(|role| {
            // The list starts nobody: the tool does.
            let starts = role.tools.contains(&Tool::Agent);
            let agents = role.agents.iter().filter(|_| starts);
            agents.filter_map(|agent| number.get(agent).copied()).collect()
        })
        .collect();
    let (closure, again): (Vec<Vec<usize>>, Vec<bool>) = (0..edges.len()).map(|n| started(&edges, n)).unzip();
    let mut held: Vec<Held> = roles
        .iter()
        .zip(again)
        .map(|((name, role), restarts)| {
            let (tools, does) = held(role, open, &mut interned);
            let bounds = bounds.get(name).cloned().unwrap_or_default();
            Held { tools, bits: Vec::new(), does, bounds, restarts }
        })
        .collect();
    let every: Vec<Name> = interned.into_values().collect();
    let bit: BTreeMap<&Name, usize> = every.iter().enumerate().map(|(n, name)| (name, n)).collect();
    for role in &mut held {
        role.bits = vec![0; every.len().div_ceil(64)];
        for n in role.tools.iter().filter_map(|name| bit.get(name)) {
            if let Some(word) = role.bits.get_mut(n / 64) {
                *word |= 1 << (n % 64);
            }
        }
    }
    let mut sets = Sets { every: &every, made: BTreeMap::new() };
    let untrusted = untrusted(&edges, &held);
    let mut found = BTreeMap::new();
    let mut shared: BTreeMap<Vec<usize>, Shared> = BTreeMap::new();
    for ((n, name), roles) in names.into_iter().enumerate().zip(closure) {
        let Shared { reach, does, bounds, restarts } =
            shared.entry(roles).or_insert_with_key(|roles| together(roles, &held, &mut sets));
        let tools = held.get(n).map(|role| role.tools.clone()).unwrap_or_default();
        let read = untrusted.get(n).cloned().unwrap_or_default();
        let where_it = |does: bool| if does { read.clone() } else { BTreeSet::new() };
        found.insert(
            name.clone(),
            Reach {
                tools,
                reach: Arc::clone(reach),
                untrusted_exec: where_it(does.runs),
                untrusted_network: where_it(does.connects),
                bounds: Arc::clone(bounds),
                restarts: *restarts,
            },
        );
    }
    found
}

/// Sets of names by their bits, each made once.
struct Sets<'a> {
    every: &'a [Name],
    made: BTreeMap<Vec<u64>, Arc<BTreeSet<Name>>>,
}

impl Sets<'_> {
    fn of(&mut self, bits: Vec<u64>) -> Arc<BTreeSet<Name>> {
        let made = self.made.entry(bits).or_insert_with_key(|bits| {
            let is_in = |n: &usize| bits.get(n / 64).is_some_and(|word| word >> (n % 64) & 1 == 1);
            let names = self.every.iter().enumerate().filter(|(n, _)| is_in(n));
            Arc::new(names.map(|(_, name)| Arc::clone(name)).collect())
        });
        Arc::clone(made)
    }
}

/// What several roles hold together.
fn together(roles: &[usize], held: &[Held], sets: &mut Sets<'_>) -> Shared {
    let (mut reach, mut does) = (Vec::new(), Does::default());
    let (mut most, mut again) = (Bounds::new(), false);
    for Held { tools: _, bits, does: theirs, bounds, restarts } in
        roles.iter().filter_map(|role| held.get(*role))
    {
        reach.resize(bits.len(), 0);
        for (all, word) in reach.iter_mut().zip(bits) {
            *all |= word;
        }
        does.runs |= theirs.runs;
        does.connects |= theirs.connects;
        again |= restarts;
        for (key, bound) in bounds {
            most.entry(key).and_modify(|had| *had = had.join(bound)).or_insert(*bound);
        }
    }
    Shared { reach: sets.of(reach), does, bounds: Arc::new(most), restarts: again }
}

impl Order for Reach {
    fn within(&self, other: &Self) -> bool {
        let Reach { tools, reach, untrusted_exec, untrusted_network, bounds, restarts } = self;
        tools.within(&other.tools)
            && reach.within(&other.reach)
            && untrusted_exec.within(&other.untrusted_exec)
            && untrusted_network.within(&other.untrusted_network)
            && bounds.within(&other.bounds)
            && restarts.within(&other.restarts)
    }

    fn meet(&self, other: &Self) -> Self {
        Reach {
            tools: self.tools.meet(&other.tools),
            reach: self.reach.meet(&other.reach),
            untrusted_exec: self.untrusted_exec.meet(&other.untrusted_exec),
            untrusted_network: self.untrusted_network.meet(&other.untrusted_network),
            bounds: self.bounds.meet(&other.bounds),
            restarts: self.restarts.meet(&other.restarts),
        }
    }
}

/// The powers of one role's own list. A shell does whatever an argument vector does, so who has the one has both:
/// from text to vector is narrower, the other way is wider. That is so as long as every command may be run.
fn held(role: &RoleGrant, open: Open, interned: &mut BTreeMap<String, Name>) -> (BTreeSet<Name>, Does) {
    let Open { network, shell_covers } = open;
    let RoleGrant { tools: built_in, own_tools, agents: _, budget: _, generation: _ } = role;
    let mut name =
        |text: &str| Arc::clone(interned.entry(text.to_owned()).or_insert_with(|| Arc::from(text)));
    let (mut tools, mut does) = (BTreeSet::new(), Does::default());
    for tool in built_in {
        match tool.power() {
            // What a program prints is as foreign as a file.
            Power::Execute => {
                does.runs = true;
                does.reads.insert(Source::Programs);
                does.connects |= network;
            }
            Power::Read => {
                does.reads.insert(Source::Files);
            }
            // A page is as foreign as a file.
            Power::Fetch => {
                does.reads.insert(Source::Pages);
                does.connects |= network;
            }
            Power::Write | Power::Delegate | Power::None => {}
        }
        match tool {
            // It ends the role, and that is all.
            Tool::Finish => {}
            Tool::RunShell => {
                tools.insert(name(Tool::RunShell.as_str()));
                if shell_covers {
                    tools.insert(name(Tool::RunCommand.as_str()));
                }
            }
            Tool::RunCommand
            | Tool::ReadFile
            | Tool::WriteFile
            | Tool::EditFile
            | Tool::ApplyPatch
            | Tool::ListDir
            | Tool::Glob
            | Tool::Search
            | Tool::ReadArtifact
            | Tool::FetchUrl
            | Tool::Agent => {
                tools.insert(name(tool.as_str()));
            }
        }
    }
    for own in own_tools {
        // A module works on the workspace and says what it likes; it starts nothing.
        does.reads.insert(Source::Modules);
        tools.insert(name(own));
    }
    (tools, does)
}

/// Roles that `from` can have started, by whatever way, itself among them, in order; and whether one of them starts
/// `from` again.
fn started(edges: &[Vec<usize>], from: usize) -> (Vec<usize>, bool) {
    let mut again = false;
    let mut seen = vec![false; edges.len()];
    let mut left = vec![from];
    while let Some(role) = left.pop() {
        if seen.get_mut(role).is_none_or(|seen| std::mem::replace(seen, true)) {
            continue;
        }
        let next = edges.get(role).map(Vec::as_slice).unwrap_or_default();
        again |= next.contains(&from);
        left.extend(next.iter().filter(|role| seen.get(**role) == Some(&false)));
    }
    (seen.iter().enumerate().filter(|(_, seen)| **seen).map(|(role, _)| role).collect(), again)
}

/// Of each role the kinds of foreign text that it may have before it: it reads them, or was told by a role that did. A
/// task goes to the role that is started, its result back.
fn untrusted(edges: &[Vec<usize>], held: &[Held]) -> Vec<BTreeSet<Source>> {
    let mut both: Vec<Vec<usize>> = edges.to_vec();
    for (from, to) in edges.iter().enumerate() {
        for role in to {
            if let Some(back) = both.get_mut(*role) {
                back.push(from);
            }
        }
    }
    let mut told = vec![BTreeSet::new(); held.len()];
    for source in Source::ALL {
        let reads = held.iter().enumerate().filter(|(_, role)| role.does.reads.contains(&source));
        let mut left: Vec<usize> = reads.map(|(n, _)| n).collect();
        while let Some(role) = left.pop() {
            if told.get_mut(role).is_some_and(|told| told.insert(source)) {
                left.extend(both.get(role).into_iter().flatten().copied());
            }
        }
    }
    told
}
