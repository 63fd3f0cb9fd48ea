//! From two vectors to findings: what the new one can do beyond the old one, and whatever else is different.
//!
//! There is a finding that is wider exactly where the order says so; a property test holds that for every part.

use std::collections::BTreeSet;

use super::behaviour::{Behaviour, RoleText, ToolText};
use super::bound::{Bound, worded};
use super::capability::{Binding, Capability, Power, Vector, guild_key};
use super::claim::{Claim, Named};
use super::code::Code;
use super::commands::Allowed;
use super::finding::{Finding, GUILD, OPERATOR, Spot, Told, list};
use super::order::Order;
use super::parameters::Parameter;
use super::plain::{ANSWER, is_written};
use super::quotes::has_key;
use super::rank::Rank;
use super::reach::{Bounds, Name, Reach, Source};
use crate::shown::{digest, named, whole};
use crate::{RoleName, Tool};

/// Everything that is different in `new`, what is wider first.
pub fn compare(old: &Capability, new: &Capability) -> Vec<Finding> {
    compared(old, new).all()
}

/// The same, for who has more to tell.
pub(super) fn compared(old: &Capability, new: &Capability) -> Told {
    let mut told = Told::default();
    vector(&old.vector, &new.vector, &mut told);
    plain(old, new, &mut told);
    entry(old, new, &mut told);
    let covers = [old, new].iter().all(|side| matches!(side.vector.allowed, Allowed::All));
    // Arguments of what could be called before and can be called now are in the vector.
    let bound = |tool: &str| [old, new].iter().all(|side| side.vector.tools.contains_key(tool));
    behaviour(&old.behaviour, &new.behaviour, covers, &bound, &mut told);
    told
}

/// What is to be said of one Guild alone: names that are taken for others, keys, paths of a machine, hidden characters,
/// files that nothing names.
pub fn inspect(guild: &Capability) -> Vec<Finding> {
    let mut told = Told::default();
    for claim in &guild.vector.claims {
        let of_guild = match claim {
            Claim::Alias { .. } | Claim::Key { .. } | Claim::HostPath { .. } => true,
            Claim::Header { .. }
            | Claim::Secret(_)
            | Claim::ModelKey(_)
            | Claim::Endpoint(_)
            | Claim::Rootfs(_) => false,
        };
        if of_guild {
            claimed(claim, None, &mut told);
        }
    }
    for (name, role) in &guild.behaviour.roles {
        if role.hidden {
            let spot = Spot { file: &role.path, role: Some(name) };
            told.add(Code::Hidden, spot, format!("roles.{name}.prompt"), "", "hidden characters");
        }
    }
    for (name, tool) in &guild.behaviour.tools {
        if tool.hidden {
            let place = format!("tools.{name}.manifest");
            told.add(Code::Hidden, Spot::in_file(&tool.manifest), place, "", "hidden characters");
        }
    }
    for (path, what) in &guild.behaviour.others {
        unnamed(path, None, Some(what), &mut told);
    }
    told.all()
}

fn vector(old: &Vector, new: &Vector, told: &mut Told) {
    let Vector {
        roles,
        plain: _,
        entry: _,
        tools,
        claims,
        bounds,
        asked,
        given,
        enabled,
        allowed: _,
        denied: _,
        floor,
        tier,
        surroundings,
    } = new;
    for (name, power) in roles {
        match old.roles.get(name) {
            Some(before) => role(name, (old, before), (new, power), told),
            None => new_role(name, (old, new), power, told),
        }
    }
    for (name, tool) in tools {
        if let Some(before) = old.tools.get(name) {
            binding(name, before, tool, told);
        }
    }
    for claim in claims.difference(&old.claims) {
        claimed(claim, Some(old), told);
    }
    for (key, bound) in bounds {
        // A call without a bound of its own has the sandbox's: told there.
        if is_derived(key, old) && is_derived(key, new) {
            continue;
        }
        if let Some(before) = old.bounds.get(key) {
            limit(key, *before, *bound, told);
        }
    }
    for (code, less, spot, old, new) in [
        (Code::NetworkAdded, Code::NetworkRemoved, GUILD, &old.asked, asked),
        (Code::NetworkGiven, Code::Tightened, OPERATOR, &old.given, given),
    ] {
        for rule in new.beyond(old) {
            let rule = rule.to_string();
            told.add(code, spot, named("network.allow", &rule), "", &rule);
        }
        for rule in old.beyond(new) {
            let rule = rule.to_string();
            told.add(less, spot, named("network.allow", &rule), &rule, "");
        }
    }
    if *enabled != old.enabled {
        let code = if *enabled { Code::ShellEnabled } else { Code::CommandsNarrowed };
        told.add(code, OPERATOR, "shell.enabled".to_owned(), &old.enabled.to_string(), &enabled.to_string());
    }
    commands(old, new, told);
    let rank = |rank: Rank| (rank, rank.word);
    ranked("isolation.floor", Code::FloorLowered, rank(old.floor), rank(*floor), told);
    ranked("isolation.tier", Code::TierLowered, (old.tier, old.tier.word), (*tier, tier.word), told);
    ranked("isolation.surroundings", Code::Surroundings, rank(old.surroundings), rank(*surroundings), told);
}

/// Whether a call's bound is that of the whole sandbox.
fn is_derived(key: &str, vector: &Vector) -> bool {
    let Some(of_call) = key.strip_prefix("call.") else { return false };
    let (call, sandbox) = (
        vector.bounds.get(key),
        vector.bounds.iter().find(|(k, _)| k.strip_prefix("limits.") == Some(of_call)),
    );
    matches!((call, sandbox), (Some(call), Some((_, sandbox))) if call.value == sandbox.value && !call.stated)
}

/// Another word of the same strength is told all the same.
fn ranked<T: Order + PartialEq>(
    key: &str,
    code: Code,
    (old, was): (T, &str),
    (new, now): (T, &str),
    told: &mut Told,
) {
    let code = match (new == old, new.within(&old)) {
        (true, _) if was == now => return,
        (true, _) => Code::Operator,
        (false, true) => Code::Tightened,
        (false, false) => code,
    };
    told.add(code, OPERATOR, key.to_owned(), was, now);
}

/// Tools of a role, with the shell's text form apart: from vectors to text is a step of its own.
fn role(name: &RoleName, (before, old): (&Vector, &Power), (now, new): (&Vector, &Power), told: &mut Told) {
    let Power { reach, bounds } = new;
    let spot = Spot::of(name);
    let direct: BTreeSet<&Name> = reach.tools.difference(&old.reach.tools).collect();
    for tool in &direct {
        if !now.is_implied(tool, &reach.tools) {
            tool_added(name, (tool, before, now), &old.reach.tools, told);
        }
    }
    let Reach { tools: _, reach: reached, untrusted_exec, untrusted_network, bounds: spent, restarts } =
        reach;
    for tool in reached.difference(&old.reach.reach).filter(|tool| !direct.contains(tool)) {
        if now.is_implied(tool, reached) || told.passes_over(Code::Reach) {
            continue;
        }
        told.add(Code::Reach, spot, named(&format!("roles.{name}.reach"), tool), "", tool);
    }
    for tool in old.reach.reach.difference(reached).filter(|tool| !before.is_implied(tool, &old.reach.reach))
    {
        if !old.reach.tools.contains(tool) && !told.passes_over(Code::ReachLost) {
            told.add(Code::ReachLost, spot, named(&format!("roles.{name}.reach"), tool), tool, "");
        }
    }
    untrusted(name, Some(&old.reach), (untrusted_exec, untrusted_network), told);
    for (key, bound) in bounds {
        let Some(before) = old.bounds.get(key) else { continue };
        let codes = [Code::BudgetRaised, Code::BudgetRemoved, Code::BudgetLowered];
        bounded(codes, spot, format!("roles.{name}.{key}"), *before, *bound, told);
    }
    let others = |key: &str| bounds.get(key) != spent.get(key);
    spends(Code::ReachBudget, spot, &format!("roles.{name}.reach"), &old.reach.bounds, spent, others, told);
    if *restarts && !old.reach.restarts {
        told.add(Code::Restart, spot, format!("roles.{name}.restart"), "", "starts itself again");
    }
}

/// What may be spent by reach. `others` says which keys have no finding of their own.
fn spends(
    code: Code,
    spot: Spot<'_>,
    place: &str,
    old: &Bounds,
    new: &Bounds,
    others: impl Fn(&str) -> bool,
    told: &mut Told,
) {
    for (key, bound) in new.iter().filter(|(key, _)| others(key)) {
        match old.get(key) {
            Some(before) if !bound.within(before) => {
                bounded([code; 3], spot, format!("{place}.{key}"), *before, *bound, told);
            }
            Some(_) => {}
            None => {
                let now = worded(key.rsplit('.').next().unwrap_or_default(), bound.value);
                told.add(code, spot, format!("{place}.{key}"), "", &now);
            }
        }
    }
}

/// What is written of roles without a power. One that has a power now is told as new, and what was written of it is
/// compared with what holds of it now: whoever lets the power pass is told of a bound that went with it.
fn plain(old: &Capability, new: &Capability, told: &mut Told) {
    let (before, now) = (&old.vector.plain.0, &new.vector.plain.0);
    for ((role, key), before) in before {
        let (spot, place) = (Spot::of(role), format!("roles.{role}.{key}"));
        match now.get(&(role.clone(), *key)) {
            Some(now) => {
                let codes = [Code::BudgetRaised, Code::BudgetRemoved, Code::BudgetLowered];
                bounded(codes, spot, place, *before, *now, told);
            }
            None if new.vector.roles.contains_key(role) => {
                let power = new.vector.roles.get(role).and_then(|power| power.bounds.get(key));
                if let Some(now) = power {
                    let now = Bound { value: now.value, stated: is_written(key, now) };
                    let codes = [Code::BudgetRaised, Code::BudgetRemoved, Code::BudgetLowered];
                    bounded(codes, spot, place, *before, now, told);
                }
            }
            None => {
                let was = worded(key.rsplit('.').next().unwrap_or_default(), before.value);
                told.add(Code::BudgetRemoved, spot, place, &was, "");
            }
        }
    }
    for ((role, key), now) in now.iter().filter(|(at, _)| !before.contains_key(*at)) {
        if !old.behaviour.roles.contains_key(role) {
            continue;
        }
        let now = worded(key.rsplit('.').next().unwrap_or_default(), now.value);
        told.add(Code::BudgetLowered, Spot::of(role), format!("roles.{role}.{key}"), "", &now);
    }
}

/// A tool of the Guild's own that nobody could call before is told with what it is: whoever waives it as it is now waives
/// no other module under its name, and no further argument.
fn tool_added(
    role: &RoleName,
    (tool, before, now): (&Name, &Vector, &Vector),
    old: &BTreeSet<Name>,
    told: &mut Told,
) {
    if told.passes_over(Code::ToolAdded) {
        return;
    }
    let place = named(&format!("roles.{role}.tools"), tool);
    let vectors = Tool::RunCommand.as_str();
    if &**tool == Tool::RunShell.as_str() && old.contains(vectors) {
        told.add(Code::ShellForm, Spot::of(role), place, vectors, tool);
    } else {
        let new = now.tools.get(&**tool).filter(|_| !before.tools.contains_key(&**tool));
        let is = new.map(|Binding { module, parameters }| {
            format!("{tool}, module {module}, arguments {}", digest(&parameters.to_string()))
        });
        told.add(Code::ToolAdded, Spot::of(role), place, "", is.as_deref().unwrap_or(tool));
    }
}

fn new_role(name: &RoleName, (old, now): (&Vector, &Vector), new: &Power, told: &mut Told) {
    let spot = Spot::of(name);
    let reach = &new.reach;
    let holds = format!("{}; {}", list(reach.reach.iter()), spending(&new.bounds));
    told.add(Code::RoleAdded, spot, format!("roles.{name}"), "", &holds);
    for tool in reach.tools.iter().filter(|tool| !now.is_implied(tool, &reach.tools)) {
        tool_added(name, (tool, old, now), &BTreeSet::new(), told);
    }
    for tool in reach.reach.difference(&reach.tools).filter(|tool| !now.is_implied(tool, &reach.reach)) {
        if told.passes_over(Code::Reach) {
            continue;
        }
        told.add(Code::Reach, spot, named(&format!("roles.{name}.reach"), tool), "", tool);
    }
    untrusted(name, None, (&reach.untrusted_exec, &reach.untrusted_network), told);
    // Its own are said with the role.
    let others = |key: &str| new.bounds.get(key) != reach.bounds.get(key);
    let place = format!("roles.{name}.reach");
    spends(Code::ReachBudget, spot, &place, &Bounds::new(), &reach.bounds, others, told);
    if reach.restarts {
        told.add(Code::Restart, spot, format!("roles.{name}.restart"), "", "starts itself again");
    }
}

/// What a role may spend by its own words: whoever waives it as it is now waives no more.
fn spending(bounds: &Bounds) -> String {
    let short = |key: &&'static str| key.rsplit('.').next().unwrap_or_default();
    let said = bounds.iter().filter(|(key, bound)| bound.stated || **key == ANSWER);
    let said: Vec<String> =
        said.map(|(key, bound)| format!("{} {}", short(key), worded(short(key), bound.value))).collect();
    said.join(", ")
}

fn untrusted(
    name: &RoleName,
    old: Option<&Reach>,
    (exec, network): (&BTreeSet<Source>, &BTreeSet<Source>),
    told: &mut Told,
) {
    let none = BTreeSet::new();
    let worded = |sources: &BTreeSet<Source>, what: &str| match sources.is_empty() {
        true => String::new(),
        false => format!("foreign text ({}) and {what}", list(sources.iter().map(|source| source.as_str()))),
    };
    for (now, before, code, what) in [
        (exec, old.map_or(&none, |old| &old.untrusted_exec), Code::UntrustedExec, "execution"),
        (network, old.map_or(&none, |old| &old.untrusted_network), Code::UntrustedNetwork, "network"),
    ] {
        if !now.within(before) {
            let place = format!("roles.{name}.untrusted.{what}");
            told.add(code, Spot::of(name), place, &worded(before, what), &worded(now, what));
        }
    }
}

/// The closure of the entry role. Where the role is the same and has a power, its own findings say it.
fn entry(old: &Capability, new: &Capability, told: &mut Told) {
    let same = old.behaviour.entry == new.behaviour.entry;
    let armed =
        |side: &Capability| side.vector.roles.keys().any(|role| role.as_str() == side.behaviour.entry);
    if same && armed(old) && armed(new) {
        return;
    }
    let (before, now) = (&old.vector.entry, &new.vector.entry);
    let more: Vec<&Name> = now
        .reach
        .difference(&before.reach)
        .filter(|tool| !same && !new.vector.is_implied(tool, &now.reach))
        .collect();
    for tool in more {
        told.add(Code::EntryReach, GUILD, named("entry.reach", tool), "", tool);
    }
    spends(Code::EntryBudget, GUILD, "entry", &before.bounds, &now.bounds, |_| true, told);
    if now.restarts && !before.restarts {
        told.add(Code::Restart, GUILD, "entry.restart".to_owned(), "", "starts itself again");
    }
}

fn binding(name: &str, old: &Binding, new: &Binding, told: &mut Told) {
    let Binding { module, parameters } = new;
    let table = named("tools", name);
    if *module != old.module {
        told.add(Code::ModuleChanged, GUILD, format!("{table}.module"), &old.module, module);
    }
    let place = |argument: &str| named(&format!("{table}.manifest.parameters"), argument);
    for (argument, spec) in &parameters.named {
        match old.parameters.named.get(argument) {
            None => told.add(Code::ParamAdded, GUILD, place(argument), "", &argued(argument, spec)),
            Some(before) => parameter(place(argument), before, spec, told),
        }
    }
    for (argument, spec) in
        old.parameters.named.iter().filter(|(name, _)| !parameters.named.contains_key(*name))
    {
        told.add(Code::ParamNarrowed, GUILD, place(argument), &argued(argument, spec), "");
    }
    if parameters.open != old.parameters.open {
        let code = if parameters.open { Code::ParamOpen } else { Code::ParamNarrowed };
        let word = |open: bool| if open { "any argument" } else { "named arguments" };
        let place = format!("{table}.manifest.parameters");
        told.add(code, GUILD, place, word(old.parameters.open), word(parameters.open));
    }
}

/// An argument with what it accepts: all that a model is told of it but its description.
fn argued(name: &str, spec: &Parameter) -> String {
    whole(&format!("{name}: {spec}"))
}

/// Characters beyond which what an argument accepts is no more seen at a glance.
const LONG: usize = 300;

fn parameter(place: String, old: &Parameter, new: &Parameter, told: &mut Told) {
    let word = |required: bool| if required { "required" } else { "optional" };
    if old.required && !new.required {
        told.add(Code::ParamOptional, GUILD, place.clone(), word(true), word(false));
    }
    let demanded = new.required && !old.required;
    let code = if !new.accepts.within(&old.accepts) {
        Code::ParamRelaxed
    } else if new.accepts != old.accepts || demanded {
        Code::ParamNarrowed
    } else {
        return;
    };
    let all = |spec: &Parameter| if demanded { spec.to_string() } else { spec.accepts.to_string() };
    let (was, now) = (whole(&all(old)), whole(&all(new)));
    // Of a long list nobody sees what came: that is said first.
    let now = match new.accepts.listed_anew(&old.accepts) {
        Some(change) if now.len() > LONG => format!("{change}; now {now}"),
        Some(_) | None => now,
    };
    told.add(code, GUILD, place, &was, &now);
}

fn claimed(claim: &Claim, old: Option<&Vector>, told: &mut Told) {
    match claim {
        Claim::Alias { what, name, like } => {
            let (code, table) = match what {
                Named::Tool => (Code::ToolAlias, "tools"),
                Named::Role => (Code::RoleAlias, "roles"),
            };
            told.add(code, GUILD, named(table, name), "", &format!("{} for {}", whole(name), whole(like)));
        }
        // What it is stays untold.
        Claim::Key { file, place } => {
            told.add(Code::KeyQuoted, Spot::in_file(file), place.clone(), "", "a key");
        }
        Claim::HostPath { file, place, path } => {
            if told.passes_over(Code::HostPath) {
                return;
            }
            let (at, path) = (named(place, path), whole(path));
            told.add(Code::HostPath, Spot::in_file(file), at, "", &path);
        }
        Claim::Secret(name) => {
            told.add(Code::SecretPassed, OPERATOR, named("secrets.pass", name.as_str()), "", name.as_str());
        }
        Claim::Header { to, name, variable } => {
            let place = named("network.allow", to);
            told.add(Code::HeaderGiven, OPERATOR, place, "", &format!("{}: {variable}", name.as_str()));
        }
        Claim::ModelKey(name) => {
            told.add(Code::ModelKey, OPERATOR, "model.api_key_env".to_owned(), "", name.as_str());
        }
        Claim::Endpoint(url) => {
            let before = before(old, |claim| match claim {
                Claim::Endpoint(url) => Some(url),
                _ => None,
            });
            told.add(Code::Endpoint, OPERATOR, "model.base_url".to_owned(), &before, &whole(url));
        }
        Claim::Rootfs(path) => {
            let before = before(old, |claim| match claim {
                Claim::Rootfs(path) => Some(path),
                _ => None,
            });
            told.add(Code::Rootfs, OPERATOR, "isolation.rootfs".to_owned(), &before, &whole(path));
        }
    }
}

fn before<'a>(old: Option<&'a Vector>, of: impl Fn(&'a Claim) -> Option<&'a String>) -> String {
    old.into_iter().flat_map(|old| &old.claims).find_map(of).map(|text| whole(text)).unwrap_or_default()
}

fn limit(key: &str, old: Bound, new: Bound, told: &mut Told) {
    if old.stated || new.stated {
        let own = guild_key(key).unwrap_or(key);
        let codes = [Code::LimitRaised, Code::LimitRemoved, Code::LimitLowered];
        bounded(codes, GUILD, format!("limits.{own}"), old, new, told);
    } else {
        let raised = if key.starts_with("budget.") { Code::BudgetRaised } else { Code::LimitRaised };
        bounded([raised, Code::LimitRemoved, Code::LimitLowered], OPERATOR, key.to_owned(), old, new, told);
    }
}

fn bounded(codes: [Code; 3], spot: Spot<'_>, place: String, old: Bound, new: Bound, told: &mut Told) {
    let [raised, removed, lowered] = codes;
    if new == old {
        return;
    }
    let key = place.rsplit('.').next().unwrap_or_default().to_owned();
    let (was, now) = (worded(&key, old.value), worded(&key, new.value));
    if old.stated && !new.stated {
        told.add(removed, spot, place, &was, &format!("the deployment's {now}"));
    } else if new.value > old.value {
        told.add(raised, spot, place, &was, &now);
    } else {
        told.add(lowered, spot, place, &was, &now);
    }
}

fn commands(old: &Vector, new: &Vector, told: &mut Told) {
    match (&old.allowed, &new.allowed) {
        (Allowed::Only(_), Allowed::All) => {
            told.add(Code::AllowDropped, OPERATOR, "shell.allow".to_owned(), "a list", "every command");
        }
        (Allowed::All, Allowed::Only(_)) => {
            told.add(Code::CommandsNarrowed, OPERATOR, "shell.allow".to_owned(), "every command", "a list");
        }
        (Allowed::Only(before), Allowed::Only(now)) => {
            for rule in now.beyond(before) {
                told.add(Code::AllowGrown, OPERATOR, named("shell.allow", rule), "", rule);
            }
            for rule in before.beyond(now) {
                told.add(Code::CommandsNarrowed, OPERATOR, named("shell.allow", rule), rule, "");
            }
        }
        (Allowed::All, Allowed::All) => {}
    }
    for rule in old.denied.0.beyond(&new.denied.0) {
        told.add(Code::DenyShrunk, OPERATOR, named("shell.deny", rule), rule, "");
    }
    for rule in new.denied.0.beyond(&old.denied.0) {
        told.add(Code::CommandsNarrowed, OPERATOR, named("shell.deny", rule), "", rule);
    }
}

/// `covers` says whether a shell's text may do whatever an argument vector may, before and after; `bound` of which tools
/// the arguments have been compared.
fn behaviour(old: &Behaviour, new: &Behaviour, covers: bool, bound: &dyn Fn(&str) -> bool, told: &mut Told) {
    let Behaviour { name, entry, roles, tools, operator, others } = new;
    if *name != old.name {
        told.add(Code::Name, GUILD, "name".to_owned(), &old.name, name);
    }
    if *entry != old.entry {
        told.add(Code::Entry, GUILD, "entry".to_owned(), &old.entry, entry);
    }
    for (name, role) in roles {
        match old.roles.get(name) {
            Some(before) => role_text(name, before, role, covers, told),
            None => {
                // A text that was not there is read whole.
                prompt(name, &RoleText::default(), role, told);
                if role.is_plain() {
                    let tools = list(&role.tools);
                    told.add(Code::RolePlain, Spot::of(name), format!("roles.{name}"), "", &tools);
                }
            }
        }
    }
    for (name, role) in old.roles.iter().filter(|(name, _)| !roles.contains_key(*name)) {
        told.add(Code::RoleRemoved, Spot::of(name), format!("roles.{name}"), &list(&role.tools), "");
    }
    for (name, tool) in tools {
        match old.tools.get(name) {
            Some(before) => tool_text(name, before, tool, bound(name), told),
            None => {
                told.add(Code::OwnTools, GUILD, named("tools", name), "", &tool.module);
                described(name, &ToolText::default(), tool, false, told);
            }
        }
    }
    for (name, tool) in old.tools.iter().filter(|(name, _)| !tools.contains_key(*name)) {
        told.add(Code::OwnTools, GUILD, named("tools", name), &tool.module, "");
    }
    for (key, value) in operator {
        let before = old.operator.get(key).map(String::as_str).unwrap_or_default();
        if before != value {
            told.add(Code::Operator, OPERATOR, (*key).to_owned(), &whole(before), &whole(value));
        }
    }
    for path in others.keys().chain(old.others.keys()).collect::<BTreeSet<&String>>() {
        let (was, now) = (old.others.get(path), others.get(path));
        if was != now {
            unnamed(path, was, now, told);
        }
    }
}

/// A file that nothing names.
fn unnamed(path: &str, was: Option<&String>, now: Option<&String>, told: &mut Told) {
    if told.passes_over(Code::File) {
        return;
    }
    let text = |what: Option<&String>| what.map(String::as_str).unwrap_or_default().to_owned();
    // Anything may be in a name.
    let file = if has_key(path) { "(hidden)" } else { path };
    told.add(Code::File, Spot::in_file(file), named("files", path), &text(was), &text(now));
}

fn role_text(name: &RoleName, old: &RoleText, new: &RoleText, covers: bool, told: &mut Told) {
    let RoleText { path, digest, hidden, temperature, max_tokens, tools, agents } = new;
    let spot = Spot::of(name);
    if *digest != old.digest || *hidden != old.hidden {
        prompt(name, old, new, told);
    }
    if *path != old.path {
        let place = format!("roles.{name}.prompt");
        told.add(Code::Moved, spot, place, &whole(&old.path), &whole(path));
    }
    if temperature.to_bits() != old.temperature.to_bits() {
        let place = format!("roles.{name}.generation.temperature");
        told.add(Code::Generation, spot, place, &old.temperature.to_string(), &temperature.to_string());
    }
    // Of a role with a power it is a bound, told with the others.
    if *max_tokens != old.max_tokens && new.is_plain() {
        let place = format!("roles.{name}.{ANSWER}");
        told.add(Code::Generation, spot, place, &old.max_tokens.to_string(), &max_tokens.to_string());
    }
    let set = |list: &[String]| list.iter().cloned().collect::<BTreeSet<String>>();
    let (had, has) = (set(&old.tools), set(tools));
    for tool in old.tools.iter().filter(|tool| !has.contains(*tool)) {
        if told.passes_over(Code::ToolRemoved) {
            continue;
        }
        told.add(Code::ToolRemoved, spot, named(&format!("roles.{name}.tools"), tool), tool, "");
    }
    // What gives no power has no finding in the vector.
    for tool in tools.iter().filter(|tool| !had.contains(*tool)) {
        let covered = tool == Tool::Finish.as_str()
            || (covers
                && tool == Tool::RunCommand.as_str()
                && old.tools.iter().any(|had| had == Tool::RunShell.as_str()));
        if covered {
            told.add(Code::ToolCovered, spot, named(&format!("roles.{name}.tools"), tool), "", tool);
        }
    }
    if set(agents) != set(&old.agents) {
        told.add(Code::Agents, spot, format!("roles.{name}.agents"), &list(&old.agents), &list(agents));
    }
}

/// A prompt that is another one, or new.
fn prompt(name: &RoleName, old: &RoleText, new: &RoleText, told: &mut Told) {
    let spot = Spot { file: &new.path, role: Some(name) };
    let place = format!("roles.{name}.prompt");
    told.add(Code::Prompt, spot, place.clone(), &old.digest, &new.digest);
    if new.hidden {
        told.add(Code::Hidden, spot, place, "", "hidden characters");
    }
}

fn tool_text(name: &str, old: &ToolText, new: &ToolText, bound: bool, told: &mut Told) {
    let ToolText { manifest, path, module, hidden: _, texts: _, arguments: _ } = new;
    let table = named("tools", name);
    described(name, old, new, bound, told);
    for (key, now, was) in [("manifest", manifest, &old.manifest), ("module", path, &old.path)] {
        if now != was {
            told.add(Code::Moved, GUILD, format!("{table}.{key}"), &whole(was), &whole(now));
        }
    }
    if *module != old.module {
        told.add(Code::OwnTools, GUILD, table, &old.module, module);
    }
}

/// Everything that a manifest says in words; and of what no comparison of powers has told, its arguments.
fn described(name: &str, old: &ToolText, new: &ToolText, bound: bool, told: &mut Told) {
    let table = named("tools", name);
    let spot = Spot::in_file(&new.manifest);
    let place = |argument: &str| named(&format!("{table}.manifest.parameters"), argument);
    for key in new.texts.keys().chain(old.texts.keys()).collect::<BTreeSet<_>>() {
        let said = |tool: &ToolText| tool.texts.get(key).map(|text| prose(text)).unwrap_or_default();
        if new.texts.get(key) != old.texts.get(key) && !told.passes_over(Code::Description) {
            let place = match key {
                (None, keyword) => format!("{table}.manifest.{keyword}"),
                (Some(argument), keyword) => format!("{}.{keyword}", place(argument)),
            };
            told.add(Code::Description, spot, place, &said(old), &said(new));
        }
    }
    if !bound {
        let (was, now) = (&old.arguments.named, &new.arguments.named);
        for argument in now.keys().chain(was.keys()).collect::<BTreeSet<&String>>() {
            let said = |spec: Option<&Parameter>| spec.map(|spec| argued(argument, spec)).unwrap_or_default();
            let (was, now) = (was.get(argument), now.get(argument));
            if was != now && !told.passes_over(Code::Description) {
                told.add(Code::Description, spot, place(argument), &said(was), &said(now));
            }
        }
    }
    if new.hidden && (!old.hidden || new.texts != old.texts) {
        told.add(Code::Hidden, spot, format!("{table}.manifest"), "", "hidden characters");
    }
}

/// A text that a reviewer reads whole, but for a key.
fn prose(text: &str) -> String {
    if has_key(text) { "(hidden)".to_owned() } else { text.to_owned() }
}
