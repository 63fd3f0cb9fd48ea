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
    /// It may have read what somebody else wrote, and something that it reaches runs programs.
    pub(super) untrusted_exec: bool,
    /// The same with something that reaches the network.
    pub(super) untrusted_network: bool,
    /// The most that one conversation may take which it can have started, itself among them: of each bound the
    /// highest, and written only where each of them has it written.
    pub(super) bounds: Arc<Bounds>,
    /// Something that it can have started can have itself started again. Bounds hold for one conversation, so that
    /// is a power of its own.
    pub(super) restarts: bool,
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
    does: Does,
    bounds: Bounds,
    restarts: bool,
}

/// What a name can do, for the closure.
#[derive(Clone, Copy, Default)]
struct Does {
    reads: bool,
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
    let held: Vec<Held> = roles
        .iter()
        .zip(again)
        .map(|((name, role), restarts)| {
            let (tools, does) = held(role, open, &mut interned);
            Held { tools, does, bounds: bounds.get(name).cloned().unwrap_or_default(), restarts }
        })
        .collect();
    let untrusted = untrusted(&edges, held.iter().map(|role| role.does.reads).collect());
    let mut found = BTreeMap::new();
    let mut shared: BTreeMap<Vec<usize>, Shared> = BTreeMap::new();
    for ((n, name), roles) in names.into_iter().enumerate().zip(closure) {
        let Shared { reach, does, bounds, restarts } =
            shared.entry(roles).or_insert_with_key(|roles| together(roles, &held));
        let tools = held.get(n).map(|role| role.tools.clone()).unwrap_or_default();
        let reads = untrusted.get(n).is_some_and(|reads| *reads);
        found.insert(
            name.clone(),
            Reach {
                tools,
                reach: Arc::clone(reach),
                untrusted_exec: reads && does.runs,
                untrusted_network: reads && does.connects,
                bounds: Arc::clone(bounds),
                restarts: *restarts,
            },
        );
    }
    found
}

/// What several roles hold together.
fn together(roles: &[usize], held: &[Held]) -> Shared {
    let (mut reach, mut does) = (BTreeSet::new(), Does::default());
    let (mut most, mut again) = (Bounds::new(), false);
    for Held { tools, does: theirs, bounds, restarts } in roles.iter().filter_map(|role| held.get(*role)) {
        reach.extend(tools.iter().cloned());
        does.runs |= theirs.runs;
        does.connects |= theirs.connects;
        again |= restarts;
        for (key, bound) in bounds {
            most.entry(key).and_modify(|had| *had = had.join(bound)).or_insert(*bound);
        }
    }
    Shared { reach: Arc::new(reach), does, bounds: Arc::new(most), restarts: again }
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
    let mut name =
        |text: &str| Arc::clone(interned.entry(text.to_owned()).or_insert_with(|| Arc::from(text)));
    let (mut tools, mut does) = (BTreeSet::new(), Does::default());
    for tool in &role.tools {
        match tool.power() {
            // What a program prints is as foreign as a file.
            Power::Execute => {
                does.runs = true;
                does.reads = true;
                does.connects |= network;
            }
            Power::Read => does.reads = true,
            // A page is as foreign as a file.
            Power::Fetch => {
                does.reads = true;
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
    for own in &role.own_tools {
        // A module works on the workspace and says what it likes; it starts nothing.
        does.reads = true;
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

/// Roles that may have before them what somebody else wrote: they read it, or were told by a role that did. A task
/// goes to the role that is started, its result back.
fn untrusted(edges: &[Vec<usize>], reads: Vec<bool>) -> Vec<bool> {
    let mut both: Vec<Vec<usize>> = edges.to_vec();
    for (from, to) in edges.iter().enumerate() {
        for role in to {
            if let Some(back) = both.get_mut(*role) {
                back.push(from);
            }
        }
    }
    let mut told = vec![false; reads.len()];
    let mut left: Vec<usize> = (0..reads.len()).filter(|n| reads.get(*n) == Some(&true)).collect();
    while let Some(role) = left.pop() {
        if told.get_mut(role).is_none_or(|told| std::mem::replace(told, true)) {
            continue;
        }
        left.extend(both.get(role).into_iter().flatten().copied());
    }
    told
}
