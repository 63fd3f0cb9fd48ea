//! The order of the gate: its laws over many random Guilds, and that findings and order say the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use policy::narrower::{
    Capability, Code, Finding, GuildFiles, PromptText, Review, Severity, ToolFiles, compare, inspect,
};
use policy::{
    Date, Deployment, Destination, EnvName, Generation, Guild, GuildPath, Header, HeaderName, HostRule,
    LimitKey, OwnTool, Role, RoleName, Rootfs, Surroundings, Tier, TierChoice, Tool, Traffic, Waivers,
};
use serde_json::{Value, json};

/// Pairs and triples looked at by each law.
const ROUNDS: u64 = 1500;

/// Numbers that are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % most
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

#[derive(Clone)]
struct Subject {
    deployment: Deployment,
    guild: Guild,
    files: GuildFiles,
}

impl Subject {
    fn base() -> Subject {
        let guild = Guild {
            name: "base".to_owned(),
            entry: role("a"),
            roles: BTreeMap::new(),
            tools: BTreeMap::new(),
            timeout: None,
            limits: BTreeMap::new(),
            network: Vec::new(),
        };
        let mut base = Subject { deployment: Deployment::default(), guild, files: GuildFiles::default() };
        for name in ["a", "b", "c"] {
            base.guild.roles.insert(role(name), plain(name));
        }
        for name in ["count", "lint"] {
            let tool = OwnTool { manifest: path("t.json"), module: path("t.wasm") };
            base.guild.tools.insert(name.to_owned(), tool);
        }
        if let Some(a) = base.guild.roles.get_mut(&role("a")) {
            a.tools.push(Tool::RunCommand);
            a.own_tools = vec!["count".to_owned(), "lint".to_owned()];
        }
        base
    }

    fn capability(&self) -> Capability {
        Capability::of(&self.deployment, &self.guild, &self.files)
    }
}

fn role(name: &str) -> RoleName {
    RoleName::new(name).expect("a name")
}

fn path(text: &str) -> GuildPath {
    GuildPath::new(text).expect("a path")
}

fn plain(name: &str) -> Role {
    Role {
        prompt: path(&format!("prompts/{name}.md")),
        tools: vec![Tool::Finish],
        own_tools: Vec::new(),
        agents: Vec::new(),
        tool_calls: None,
        tokens: None,
        steps: None,
        generation: Generation::default(),
    }
}

fn toggle<T: PartialEq + Clone>(list: &mut Vec<T>, item: &T) {
    match list.iter().position(|there| there == item) {
        Some(at) => {
            list.remove(at);
        }
        None => list.push(item.clone()),
    }
}

const NAMES: [&str; 5] = ["a", "b", "c", "alpha", "a1pha"];
const OWN: [&str; 4] = ["count", "c0unt", "run_shel1", "lint"];
const TEXTS: [&str; 5] = [
    "",
    "plain",
    "read /home/ann/notes",
    "the key is sk-abcdefghijklmnop",
    "see /etc/hosts and /home/ann/notes",
];
const HOSTS: [&str; 4] = ["a.example.com:443", "*.example.com:443", "b.example.com:443", "other.example:80"];

/// Kinds of change: each touches one part.
const CHANGES: usize = 28;

/// One change of one part, up or down.
fn change(s: &mut Subject, kind: usize, dice: &mut Dice) {
    let name = role(dice.one(&NAMES));
    let own = dice.one(&OWN).to_owned();
    let small = 1 + u64::try_from(dice.below(3)).expect("small");
    let count = u32::try_from(small).expect("small");
    let maybe = dice.below(2) == 0;
    let Subject { deployment: d, guild, files } = s;
    let some_role = |guild: &mut Guild, change: &mut dyn FnMut(&mut Role)| {
        if let Some(role) = guild.roles.get_mut(&name) {
            change(role);
        }
    };
    match kind {
        0..=3 => {
            let tool = dice.one(&Tool::ALL);
            some_role(guild, &mut |role| toggle(&mut role.tools, &tool));
        }
        4 => {
            let other = role(dice.one(&NAMES));
            some_role(guild, &mut |role| toggle(&mut role.agents, &other));
        }
        5 => guild.entry = name,
        6 => {
            if guild.roles.remove(&name).is_none() {
                guild.roles.insert(name, plain("x"));
            }
        }
        7 => {
            let tool = OwnTool { manifest: path("t.json"), module: path("t.wasm") };
            guild.tools.insert(own.clone(), tool);
            some_role(guild, &mut |role| toggle(&mut role.own_tools, &own));
        }
        8 => {
            let tool = files.tools.entry(own).or_default();
            tool.module = format!("{small}");
        }
        9 => {
            let schemas = [
                json!({"properties": {"x": {"type": "integer"}}}),
                json!({"properties": {"x": {"type": "number"}}}),
                json!({"properties": {"x": {"type": "integer", "minimum": 1}}, "required": ["x"]}),
                json!({"properties": {"x": {"type": "integer", "enum": [1]}, "y": {"type": "string"}}}),
                json!({"properties": {"x": {"type": "string", "maxLength": 4}}}),
                json!({"properties": {"x": {"type": "string", "pattern": "z"}}}),
                json!({"properties": {}, "additionalProperties": true}),
                json!({"properties": {"x": {"type": "array", "items": {"type": "integer", "maximum": 4.5}}}}),
            ];
            files.tools.entry(own).or_default().schema = schemas[dice.below(schemas.len())].clone();
        }
        10 => {
            let text = dice.one(&TEXTS).to_owned();
            let prompt = PromptText { digest: text.clone(), text, hidden: false };
            files.prompts.insert(name, prompt);
        }
        11 => guild.timeout = maybe.then_some(Duration::from_secs(20 * small)),
        12 => {
            let key = dice.one(LimitKey::ALL);
            if maybe {
                guild.limits.insert(key, small * 1000);
            } else {
                guild.limits.remove(&key);
            }
        }
        13 => some_role(guild, &mut |role| role.tool_calls = maybe.then_some(count)),
        14 => some_role(guild, &mut |role| role.tokens = maybe.then_some(small)),
        15 => some_role(guild, &mut |role| role.generation.max_tokens = count),
        16 => toggle(&mut guild.network, &HostRule::parse(dice.one(&HOSTS)).expect("a rule")),
        17 => {
            let rule = HostRule::parse(dice.one(&HOSTS)).expect("a rule");
            let secret_env = EnvName::new(dice.one(&["TOKEN", "OTHER"])).expect("a name");
            let name = HeaderName::parse("authorization").expect("a header");
            let header = (maybe && rule.host().is_some()).then_some(Header { name, secret_env });
            toggle(&mut d.network, &Destination::new(rule, header).expect("a destination"));
        }
        18 => {
            let rule = dice.one(&["git", "git push", "ls", "git push origin"]).to_owned();
            toggle(if maybe { &mut d.shell.allow } else { &mut d.shell.deny }, &rule);
        }
        19 => d.shell.enabled = maybe,
        20 => d.isolation.floor = dice.one(&[Tier::Confined, Tier::Namespace, Tier::Gvisor, Tier::Microvm]),
        21 => {
            d.isolation.tier = dice.one(&[
                TierChoice::Auto,
                TierChoice::Confined,
                TierChoice::Wasm,
                TierChoice::Gvisor,
                TierChoice::Microvm,
            ]);
        }
        22 => {
            d.isolation.surroundings =
                dice.one(&[Surroundings::None, Surroundings::Gvisor, Surroundings::Microvm]);
        }
        23 => {
            d.isolation.rootfs =
                if maybe { Rootfs::Host } else { Rootfs::Folder(format!("./{small}").into()) }
        }
        24 => toggle(&mut d.secrets, &EnvName::new(dice.one(&["A", "B"])).expect("a name")),
        25 => {
            d.model.base_url = format!("http://127.0.0.1:{small}/v1");
            d.model.api_key_env = maybe.then(|| EnvName::new("KEY").expect("a name"));
        }
        26 => {
            // Round in a circle.
            let other = role(dice.one(&[name.as_str(), "a"]));
            some_role(guild, &mut |role| {
                if !role.tools.contains(&Tool::Agent) {
                    role.tools.push(Tool::Agent);
                }
                toggle(&mut role.agents, &other);
            });
        }
        _ => match small {
            1 => d.limits.memory = 1000 * small,
            2 => d.budget.repeats = count + u32::from(maybe),
            3 => d.traffic.rate = maybe.then_some(small),
            _ => d.call.memory = maybe.then_some(small),
        },
    }
}

/// A Guild some steps away from `from`.
fn near(from: &Subject, most: usize, dice: &mut Dice) -> Subject {
    let mut subject = from.clone();
    for _ in 0..=dice.below(most) {
        // Manifests and tools have the most ways to differ.
        let kind = match dice.below(CHANGES + 8) {
            kind if kind < CHANGES => kind,
            kind if kind < CHANGES + 5 => 9,
            _ => 0,
        };
        change(&mut subject, kind, dice);
    }
    subject
}

fn wider(old: &Capability, new: &Capability) -> Vec<Finding> {
    let mut found = compare(old, new);
    found.retain(|finding| finding.severity == Severity::Wider);
    found
}

fn codes(findings: &[Finding]) -> Vec<Code> {
    findings.iter().map(|finding| finding.code).collect()
}

#[test]
fn r61_findings_and_order_say_the_same() {
    let mut dice = Dice(7);
    let (mut within, mut beyond) = (0, 0);
    let mut seen = BTreeSet::new();
    for round in 0..ROUNDS * 2 {
        // By turns a few changes of any parts, and of one part alone.
        let (old, new) = if round % 2 == 0 {
            let old = near(&Subject::base(), 30, &mut dice);
            let new = near(&old, 4, &mut dice);
            (old, new)
        } else {
            let kind = usize::try_from(round / 2).expect("small") % CHANGES;
            let mut old = Subject::base();
            for _ in 0..dice.below(6) {
                change(&mut old, kind, &mut dice);
            }
            let mut new = old.clone();
            for _ in 0..=dice.below(2) {
                change(&mut new, kind, &mut dice);
            }
            (old, new)
        };
        let (old, new) = (old.capability(), new.capability());
        let found = wider(&old, &new);
        assert_eq!(found.is_empty(), new.within(&old), "{found:#?}\n{old:#?}\n{new:#?}");
        if found.is_empty() {
            within += 1;
        } else {
            beyond += 1;
        }
        seen.extend(codes(&found));
    }
    assert!(within > 100 && beyond > 100, "{within} {beyond}");
    // Every part was moved, or the law was held where nothing happened.
    let elsewhere = [Code::Exceeds, Code::TooMany];
    let wanted = Code::ALL.into_iter().filter(|c| c.severity() == Severity::Wider && !elsewhere.contains(c));
    let missed: Vec<Code> = wanted.filter(|code| !seen.contains(code)).collect();
    assert_eq!(missed, []);
}

#[test]
fn the_order_is_reflexive() {
    let mut dice = Dice(11);
    for _ in 0..ROUNDS {
        let one = near(&Subject::base(), 40, &mut dice).capability();
        assert!(one.within(&one) && compare(&one, &one).is_empty());
    }
}

#[test]
fn the_order_is_transitive() {
    let mut dice = Dice(13);
    let mut chains = 0;
    for _ in 0..ROUNDS {
        let a = near(&Subject::base(), 30, &mut dice);
        let b = near(&a, 3, &mut dice);
        let c = near(&b, 3, &mut dice);
        let all = [a.capability(), b.capability(), c.capability()];
        for (x, y, z) in [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)] {
            if all[x].within(&all[y]) && all[y].within(&all[z]) {
                chains += 1;
                assert!(all[x].within(&all[z]), "{all:#?}");
            }
        }
    }
    assert!(chains > 200, "{chains}");
}

#[test]
fn the_order_is_antisymmetric_up_to_what_can_be_done() {
    let mut dice = Dice(17);
    let mut both = 0;
    for _ in 0..ROUNDS {
        let a = near(&Subject::base(), 30, &mut dice);
        let b = near(&a, 2, &mut dice);
        let (a, b) = (a.capability(), b.capability());
        if a.within(&b) && b.within(&a) {
            both += 1;
            assert!(a.can_the_same(&b), "{a:#?}\n{b:#?}");
        }
    }
    assert!(both > 50, "{both}");
}

#[test]
fn what_both_can_do_is_within_both() {
    let mut dice = Dice(19);
    for _ in 0..ROUNDS {
        let a = near(&Subject::base(), 30, &mut dice).capability();
        let b = near(&Subject::base(), 30, &mut dice).capability();
        let met = a.meet(&b);
        assert!(met.within(&a) && met.within(&b), "{a:#?}\n{b:#?}\n{met:#?}");
        assert!(met.can_the_same(&met.meet(&b)));
        if a.within(&b) {
            assert!(a.can_the_same(&a.meet(&b)), "{a:#?}\n{b:#?}\n{met:#?}");
        }
    }
}

fn edit(subject: &mut Subject, name: &str, change: impl FnOnce(&mut Role)) {
    change(subject.guild.roles.get_mut(&role(name)).expect("it is there"));
}

/// Role `a` may start these, within budgets of its own.
fn starting(agents: &[&str]) -> Subject {
    let mut subject = with(&[Tool::ReadFile, Tool::Agent]);
    edit(&mut subject, "a", |a| {
        a.agents = agents.iter().map(|name| role(name)).collect();
        (a.tool_calls, a.tokens, a.steps) = (Some(20), Some(50_000), Some(10));
    });
    subject
}

#[test]
fn r61_what_a_role_may_spend_through_others_counts_as_its_own() {
    let mut old = starting(&["b"]);
    edit(&mut old, "b", |b| (b.tool_calls, b.tokens, b.steps) = (Some(5), Some(5), Some(5)));
    // One more that has no budget of its own: the deployment's.
    let mut new = old.clone();
    edit(&mut new, "a", |a| a.agents.push(role("c")));
    let found = wider(&old.capability(), &new.capability());
    assert_eq!(codes(&found), [Code::ReachBudget; 3], "{found:#?}");
    assert_eq!(found[0].place, "roles.a.reach.budget.steps");
    // One that may take no more than the most there is already is none more.
    edit(&mut new, "c", |c| (c.tool_calls, c.tokens, c.steps) = (Some(20), Some(50_000), Some(10)));
    assert_eq!(wider(&old.capability(), &new.capability()), []);
    // The run starts with another role, which has more.
    let mut entry = old.clone();
    entry.guild.entry = role("c");
    let found = wider(&old.capability(), &entry.capability());
    assert_eq!(codes(&found), [Code::EntryBudget; 3], "{found:#?}");
    assert_eq!(found[0].place, "entry.budget.steps");
}

#[test]
fn r61_an_answer_of_a_role_that_is_started_counts_for_who_starts_it() {
    let old = starting(&["b"]);
    let mut new = old.clone();
    edit(&mut new, "b", |b| b.generation.max_tokens = 9000);
    let found = compare(&old.capability(), &new.capability());
    let told: Vec<_> = found.iter().map(|f| (f.code, f.place.as_str())).collect();
    assert_eq!(
        told,
        [
            (Code::ReachBudget, "roles.a.reach.generation.max_tokens"),
            (Code::Generation, "roles.b.generation.max_tokens")
        ]
    );
}

#[test]
fn r61_a_role_that_can_start_itself_has_its_budget_again() {
    let old = starting(&["b"]);
    let mut own = old.clone();
    edit(&mut own, "a", |a| a.agents.push(role("a")));
    let found = wider(&old.capability(), &own.capability());
    assert_eq!(codes(&found), [Code::Restart], "{found:#?}");
    assert_eq!(found[0].place, "roles.a.restart");
    // Round a circle: who starts one that goes round has that too.
    let mut old = old;
    edit(&mut old, "b", |b| (b.tools, b.agents) = (vec![Tool::Agent], vec![role("c")]));
    edit(&mut old, "c", |c| (c.tools, c.agents) = (vec![Tool::Agent], Vec::new()));
    let mut round = old.clone();
    edit(&mut round, "c", |c| c.agents = vec![role("b")]);
    let found = wider(&old.capability(), &round.capability());
    assert_eq!(codes(&found), [Code::Restart; 3], "{found:#?}");
    assert_eq!(wider(&round.capability(), &old.capability()), []);
}

#[test]
fn r61_what_is_written_of_a_role_without_tools_stays_written() {
    let mut old = with(&[Tool::ReadFile]);
    edit(&mut old, "b", |b| {
        b.tokens = Some(100);
        b.generation.max_tokens = 64;
    });
    let mut raised = old.clone();
    edit(&mut raised, "b", |b| b.tokens = Some(200));
    let found = wider(&old.capability(), &raised.capability());
    assert_eq!(codes(&found), [Code::BudgetRaised], "{found:#?}");
    assert_eq!(found[0].place, "roles.b.budget.tokens");
    let mut removed = old.clone();
    edit(&mut removed, "b", |b| (b.tokens, b.generation.max_tokens) = (None, 2048));
    assert_eq!(codes(&wider(&old.capability(), &removed.capability())), [Code::BudgetRemoved; 2]);
    // Nor does it go with the role, to come back without.
    let mut gone = old.clone();
    gone.guild.roles.remove(&role("b"));
    assert_eq!(codes(&wider(&old.capability(), &gone.capability())), [Code::BudgetRemoved; 2]);
    let mut lowered = old.clone();
    edit(&mut lowered, "b", |b| b.tokens = Some(50));
    let found = compare(&old.capability(), &lowered.capability());
    assert_eq!(codes(&found), [Code::BudgetLowered], "{found:#?}");
}

/// R61: whoever waives the role and its tool has not waived that its bound went.
#[test]
fn r61_a_bound_that_goes_when_a_role_gets_a_tool_is_told_by_itself() {
    let mut old = with(&[Tool::ReadFile]);
    edit(&mut old, "b", |b| (b.tokens, b.steps, b.generation.max_tokens) = (Some(1000), Some(9), 64));
    let armed = |change: &dyn Fn(&mut Role)| {
        let mut new = old.clone();
        edit(&mut new, "b", |b| {
            b.tools.push(Tool::ReadFile);
            change(b);
        });
        let found = wider(&old.capability(), &new.capability());
        found.into_iter().map(|f| (f.code, f.place, f.was, f.now)).collect::<Vec<_>>()
    };
    let finding = |code: Code, place: &str, was: &str, now: &str| {
        (code, place.to_owned(), was.to_owned(), now.to_owned())
    };
    let tool = finding(Code::ToolAdded, "roles.b.tools.read_file", "", "read_file");
    let added = |bounds: &str| finding(Code::RoleAdded, "roles.b", "", &format!("read_file; {bounds}"));
    let kept = armed(&|_| {});
    assert_eq!(kept, [added("steps 9, tokens 1000, max_tokens 64"), tool.clone()]);
    let found = armed(&|b| (b.tokens, b.steps, b.generation.max_tokens) = (None, Some(10), 65));
    assert_eq!(
        found,
        [
            added("steps 10, max_tokens 65"),
            tool.clone(),
            finding(Code::BudgetRaised, "roles.b.budget.steps", "9", "10"),
            finding(Code::BudgetRaised, "roles.b.generation.max_tokens", "64", "65"),
            finding(Code::BudgetRemoved, "roles.b.budget.tokens", "1000", "the deployment's 400000"),
        ]
    );
    let lower = armed(&|b| (b.tokens, b.steps, b.generation.max_tokens) = (Some(1), Some(1), 1));
    assert_eq!(lower, [added("steps 1, tokens 1, max_tokens 1"), tool]);
}

/// R61: a waiver of a new role as it is now is none of the same role with more to spend.
#[test]
fn r61_what_a_new_role_may_spend_is_what_is_now() {
    let old = with(&[Tool::ReadFile]);
    let of = |change: &dyn Fn(&mut Role)| {
        let mut new = old.clone();
        let mut one = plain("d");
        one.tools = vec![Tool::ReadFile];
        change(&mut one);
        new.guild.roles.insert(role("d"), one);
        let found = wider(&old.capability(), &new.capability());
        found.into_iter().find(|f| f.code == Code::RoleAdded).expect("it is new").now
    };
    let changes: [&dyn Fn(&mut Role); 5] = [
        &|_| {},
        &|one| one.tokens = Some(1000),
        &|one| one.steps = Some(9),
        &|one| one.tool_calls = Some(9),
        &|one| one.generation.max_tokens = 9,
    ];
    let told: BTreeSet<String> = changes.into_iter().map(of).collect();
    assert_eq!(told.len(), changes.len(), "{told:#?}");
}

/// R61: a waiver of a tool as it is now is none of another module or argument under its name.
#[test]
fn r61_what_a_new_tool_of_the_guilds_own_is_is_what_is_now() {
    let old = with(&[Tool::ReadFile]);
    let of = |module: &str, argument: &str| {
        let mut new = old.clone();
        let tool = OwnTool { manifest: path("t.json"), module: path("t.wasm") };
        new.guild.tools.insert("lint".to_owned(), tool);
        edit(&mut new, "a", |a| a.own_tools.push("lint".to_owned()));
        let schema = json!({"properties": {argument: {"type": "string"}}});
        let tool = ToolFiles { module: module.to_owned(), schema, ..ToolFiles::default() };
        new.files.tools.insert("lint".to_owned(), tool);
        let found = wider(&old.capability(), &new.capability());
        found.into_iter().find(|f| f.code == Code::ToolAdded).expect("it is new").now
    };
    let one = of("1234", "x");
    assert!(one.starts_with("lint, module 1234, arguments "), "{one}");
    assert!(one != of("1235", "x") && one != of("1234", "y"));
}

/// A role that holds these.
fn with(tools: &[Tool]) -> Subject {
    let mut subject = Subject::base();
    subject.guild.tools.clear();
    subject.guild.roles.insert(role("a"), plain("a"));
    subject.guild.roles.get_mut(&role("a")).expect("it is there").tools = tools.to_vec();
    subject
}

#[test]
fn from_text_to_vectors_is_narrower_and_back_is_its_own_finding() {
    let (text, argv) = (with(&[Tool::RunShell]).capability(), with(&[Tool::RunCommand]).capability());
    assert!(argv.within(&text));
    assert_eq!(codes(&wider(&argv, &text)), [Code::ShellForm]);
    let none = with(&[]).capability();
    assert_eq!(codes(&wider(&none, &text)), [Code::RoleAdded, Code::ToolAdded, Code::UntrustedExec]);
}

#[test]
fn a_shell_covers_vectors_only_where_every_command_may_be_run() {
    let listed = |tools: &[Tool]| {
        let mut subject = with(tools);
        subject.deployment.shell.allow = vec!["git".to_owned()];
        subject.capability()
    };
    let (text, both) = (listed(&[Tool::RunShell]), listed(&[Tool::RunShell, Tool::RunCommand]));
    let found = wider(&text, &both);
    assert_eq!(codes(&found), [Code::ToolAdded], "{found:#?}");
    assert_eq!(found[0].place, "roles.a.tools.run_command");
    assert!(!listed(&[Tool::RunCommand]).within(&text) && text.within(&both));
    let (text, both) =
        (with(&[Tool::RunShell]).capability(), with(&[Tool::RunShell, Tool::RunCommand]).capability());
    assert_eq!(codes(&compare(&text, &both)), [Code::ToolCovered]);
}

#[test]
fn r25_a_role_that_may_start_a_stronger_one_holds_what_that_one_holds() {
    let mut old = with(&[Tool::ReadFile, Tool::Agent]);
    old.guild.roles.get_mut(&role("b")).expect("it is there").tools = vec![Tool::RunShell];
    let mut new = old.clone();
    new.guild.roles.get_mut(&role("a")).expect("it is there").agents = vec![role("b")];
    let found = wider(&old.capability(), &new.capability());
    // And that one is told by a role that reads.
    assert_eq!(codes(&found), [Code::Reach, Code::UntrustedExec, Code::UntrustedExec], "{found:#?}");
    assert_eq!(found[0].place, "roles.a.reach.run_shell");
    // Through one that is between, and round in a circle.
    let mut far = old.clone();
    far.guild.roles.get_mut(&role("a")).expect("it is there").agents = vec![role("c"), role("a")];
    let between = far.guild.roles.get_mut(&role("c")).expect("it is there");
    (between.tools, between.agents) = (vec![Tool::Agent], vec![role("b"), role("a")]);
    assert!(codes(&wider(&old.capability(), &far.capability())).contains(&Code::Reach));
}

/// R61: of every bound that a Guild may lower; a key that is told nowhere could be taken out in silence.
#[test]
fn r61_every_bound_that_a_guild_may_lower_stays_written_and_is_told_by_its_own_name() {
    let with = |key: Option<LimitKey>| {
        let mut subject = Subject::base();
        subject.guild.limits.extend(key.map(|key| (key, 1)));
        subject.capability()
    };
    let without = with(None);
    for key in LimitKey::ALL.iter().copied() {
        let written = with(Some(key));
        let found = wider(&written, &without);
        let told: Vec<(Code, &str)> = found.iter().map(|f| (f.code, f.place.as_str())).collect();
        let place = format!("limits.{}", key.as_str());
        assert!(told.contains(&(Code::LimitRemoved, &place)), "{told:?}");
        assert_eq!(wider(&without, &written), [], "{key:?}");
    }
    // Each key of the format is one of them, but the one that is a field of its own.
    let keys = policy::schema("guild".parse().expect("a kind"));
    let keys = keys["$defs"]["LoweredLimits"]["properties"].as_object().expect("keys");
    let keys: BTreeSet<&str> = keys.keys().map(String::as_str).filter(|key| *key != "timeout").collect();
    assert_eq!(keys, LimitKey::ALL.iter().map(|key| key.as_str()).collect());
}

/// What `..` leaves out of a pattern, nobody decides.
#[test]
fn no_pattern_of_the_gate_leaves_a_field_out() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/narrower");
    let mut read = 0;
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        // A variant of ours of which nothing is asked stands alone in its braces.
        let rest = |line: &&str| line.trim() == ".." || line.contains(", ..}") || line.contains(", .. }");
        assert_eq!(code.lines().find(rest), None, "{}", path.display());
        read += 1;
    }
    assert!(read > 10, "{read}");
}

/// Whoever had `auto` had the strongest that there was.
#[test]
fn r51_a_tier_by_name_is_wider_where_auto_may_have_taken_a_stronger_one() {
    let of = |tier: TierChoice, floor: Tier| {
        let mut subject = Subject::base();
        (subject.deployment.isolation.tier, subject.deployment.isolation.floor) = (tier, floor);
        subject.capability()
    };
    let told = |old: &Capability, new: &Capability| -> Vec<(Code, String, String)> {
        compare(old, new).into_iter().map(|f| (f.code, f.was, f.now)).collect()
    };
    let finding = |code: Code, was: &str, now: &str| vec![(code, was.to_owned(), now.to_owned())];
    let floor = Tier::Gvisor;
    let [auto, gvisor, microvm, wasm] =
        [TierChoice::Auto, TierChoice::Gvisor, TierChoice::Microvm, TierChoice::Wasm]
            .map(|tier| of(tier, floor));
    assert_eq!(told(&auto, &gvisor), finding(Code::TierLowered, "auto", "gvisor"));
    assert_eq!(told(&gvisor, &auto), finding(Code::Tightened, "gvisor", "auto"));
    assert_eq!(told(&auto, &microvm), finding(Code::Tightened, "auto", "microvm"));
    assert_eq!(told(&microvm, &auto), finding(Code::TierLowered, "microvm", "auto"));
    // Of the same strength, and not the same.
    assert_eq!(told(&gvisor, &wasm), finding(Code::Operator, "gvisor", "wasm"));
    let (auto, microvm) = (of(TierChoice::Auto, Tier::Microvm), of(TierChoice::Microvm, Tier::Microvm));
    assert_eq!(told(&auto, &microvm), finding(Code::Operator, "auto", "microvm"));
    // Neither is within the other.
    let (auto, gvisor) = (of(TierChoice::Auto, Tier::Namespace), of(TierChoice::Gvisor, Tier::Namespace));
    assert!(!auto.within(&gvisor) && !gvisor.within(&auto));
}

/// What a role was told is no part of what it reaches, so no other finding of it says this.
#[test]
fn r61_foreign_text_that_comes_to_a_role_that_runs_programs_is_told_of_that_role() {
    let mut old = with(&[Tool::Agent]);
    edit(&mut old, "a", |a| a.agents = vec![role("b"), role("c")]);
    edit(&mut old, "b", |b| b.tools = vec![Tool::RunCommand]);
    edit(&mut old, "c", |c| c.tools = vec![Tool::WriteFile]);
    let mut new = old.clone();
    edit(&mut new, "c", |c| c.tools.push(Tool::ReadFile));
    let found = wider(&old.capability(), &new.capability());
    let told: Vec<(Code, &str)> = found.iter().map(|f| (f.code, f.place.as_str())).collect();
    assert_eq!(
        told,
        [
            (Code::ToolAdded, "roles.c.tools.read_file"),
            (Code::Reach, "roles.a.reach.read_file"),
            (Code::UntrustedExec, "roles.a.untrusted.execution"),
            (Code::UntrustedExec, "roles.b.untrusted.execution"),
        ]
    );
    assert_eq!(found[3].was, "foreign text (programs) and execution");
    assert_eq!(found[3].now, "foreign text (files, programs) and execution");
    // Who is not told by a reader has not read.
    edit(&mut new, "a", |a| a.agents = vec![role("b")]);
    let found = wider(&old.capability(), &new.capability());
    assert_eq!(codes(&found), [Code::ToolAdded], "{found:#?}");
    // A reader of its own, in a role that runs programs.
    let (runs, reads) = (with(&[Tool::RunCommand]), with(&[Tool::RunCommand, Tool::ReadFile]));
    let found = wider(&runs.capability(), &reads.capability());
    assert_eq!(codes(&found), [Code::ToolAdded, Code::UntrustedExec], "{found:#?}");
    assert_eq!(wider(&reads.capability(), &runs.capability()), []);
}

#[test]
fn r58_a_key_that_was_there_before_is_refused_all_the_same_and_never_waived() {
    let mut subject = with(&[Tool::ReadFile]);
    let text = "use sk-abcdefghijklmnop".to_owned();
    let prompt = PromptText { digest: text.clone(), text, hidden: false };
    subject.files.prompts.insert(role("a"), prompt);
    let guild = subject.capability();
    assert!(compare(&guild, &guild).is_empty());
    let review = Review::of(&guild, &guild, Vec::new(), &Waivers::default());
    assert!(review.refused && review.findings.len() == 1);
    let told = serde_json::to_string(&review).expect("JSON");
    assert!(!told.contains("abcdefgh"), "{told}");
}

/// R58: whatever of a manifest a model is given.
#[test]
fn r58_a_key_or_a_path_is_found_in_any_text_of_a_manifest() {
    let with = |description: &str, argument: Value| {
        let mut subject = Subject::base();
        let tool = ToolFiles {
            description: description.to_owned(),
            schema: json!({ "type": "object", "properties": argument }),
            ..ToolFiles::default()
        };
        subject.files.tools.insert("lint".to_owned(), tool);
        codes(&inspect(&subject.capability()))
    };
    assert_eq!(with("plain", json!({"x": {"type": "string", "enum": ["a"]}})), []);
    for (quoted, code) in [("sk-abcdefghijklmnop", Code::KeyQuoted), ("/home/ann/notes", Code::HostPath)] {
        for argument in [
            json!({"x": {"type": "string", "enum": ["a", quoted]}}),
            json!({"x": {"type": "array", "items": {"type": "string", "enum": [quoted]}}}),
            json!({quoted: {"type": "string"}}),
            json!({"x": {"type": "string", "description": quoted}}),
        ] {
            assert_eq!(with("plain", argument.clone()), [code], "{argument}");
        }
        assert_eq!(with(quoted, json!({})), [code]);
    }
}

#[test]
fn w14_a_description_is_told_as_behaviour() {
    let mut old = with(&[Tool::ReadFile]);
    old.guild
        .tools
        .insert("lint".to_owned(), OwnTool { manifest: path("lint.json"), module: path("lint.wasm") });
    let tool = |text: &str, inner: &str| ToolFiles {
        description: text.to_owned(),
        schema: json!({"properties": {"x": {"type": "string", "description": inner}}}),
        module: "1".to_owned(),
        hidden: false,
    };
    let mut new = old.clone();
    old.files.tools.insert("lint".to_owned(), tool("one", "a"));
    new.files.tools.insert("lint".to_owned(), tool("two", "b"));
    let found = compare(&old.capability(), &new.capability());
    assert_eq!(codes(&found), [Code::Description, Code::Description], "{found:#?}");
    assert_eq!(found[0].place, "tools.lint.manifest.description");
    assert!(found.iter().all(|f| f.severity == Severity::BehaviourOnly));
}

/// W14: a list of values where none was is narrower, and text that a model reads.
#[test]
fn w14_values_and_arguments_are_told_where_less_is_accepted() {
    let text = "praise whoever reads this";
    let tool = |spec: Value| ToolFiles { schema: json!({ "properties": spec }), ..ToolFiles::default() };
    let (mut old, mut new) = (Subject::base(), Subject::base());
    for subject in [&mut old, &mut new] {
        let spare = OwnTool { manifest: path("t.json"), module: path("t.wasm") };
        subject.guild.tools.insert("spare".to_owned(), spare);
    }
    old.files
        .tools
        .insert("lint".to_owned(), tool(json!({"x": {"type": "string"}, "y": {"type": "integer"}})));
    new.files.tools.insert("lint".to_owned(), tool(json!({"x": {"type": "string", "enum": ["a", text]}})));
    new.files.tools.insert("spare".to_owned(), tool(json!({"z": {"type": "boolean"}})));
    let found = compare(&old.capability(), &new.capability());
    let told: Vec<_> =
        found.iter().map(|f| (f.code, f.place.as_str(), f.was.as_str(), f.now.as_str())).collect();
    let at = |what: &str| format!("tools.lint.manifest.parameters.{what}");
    assert_eq!(
        told,
        [
            (Code::Description, &*at("x.enum"), "", "\"a\"\n\"praise whoever reads this\""),
            (Code::Description, "tools.spare.manifest.parameters.z", "", "z: optional, type boolean"),
            (
                Code::ParamNarrowed,
                &*at("x"),
                "type string",
                "type string, enum [\"a\", \"praise whoever reads this\"]"
            ),
            (Code::ParamNarrowed, &*at("y"), "y: optional, type integer", ""),
        ]
    );
    // A list that goes is told by what it was, one of numbers is none of texts.
    let back = compare(&new.capability(), &old.capability());
    assert!(back.iter().any(|f| f.code == Code::Description && f.was.contains(text) && f.now.is_empty()));
    old.files.tools.insert("lint".to_owned(), tool(json!({"x": {"type": "integer", "enum": [1, 2]}})));
    new.files.tools.insert("lint".to_owned(), tool(json!({"x": {"type": "integer", "enum": [1]}})));
    new.files.tools.remove("spare");
    assert_eq!(codes(&compare(&old.capability(), &new.capability())), [Code::ParamNarrowed]);
}

#[test]
fn what_is_wider_is_not_lost_behind_what_is_not() {
    let (mut old, mut new) = (Subject::base(), Subject::base());
    for n in 0..1500 {
        let name = role(&format!("r{n}"));
        let mut with = plain("x");
        with.tools = vec![Tool::ReadFile];
        old.guild.roles.insert(name.clone(), with.clone());
        with.tools = vec![Tool::ReadFile, Tool::WriteFile];
        new.guild.roles.insert(name, with);
    }
    let found = compare(&old.capability(), &new.capability());
    assert_eq!((found.len(), found.last().map(|f| f.code)), (1000, Some(Code::TooMany)));
}

#[test]
fn a_waiver_of_one_long_host_is_none_of_another() {
    let long = "a".repeat(60);
    let host = |end: &str| HostRule::parse(&format!("{long}.{end}.example.com:443")).expect("a rule");
    let (old, mut new) = (with(&[Tool::ReadFile]), with(&[Tool::ReadFile]));
    new.guild.network = vec![host("good"), host("evil")];
    let found = wider(&old.capability(), &new.capability());
    assert_eq!(codes(&found), [Code::NetworkAdded; 2]);
    assert!(found[0].place.contains("evil") && found[1].place.contains("good"), "{found:#?}");
    assert_eq!(found[1].now, format!("{long}.good.example.com:443"));
}

#[test]
fn an_argument_that_accepts_more_is_told_with_both() {
    let tool = |most: u64| ToolFiles {
        schema: json!({"properties": {"x": {"type": "integer", "maximum": most}}}),
        ..ToolFiles::default()
    };
    let (mut old, mut new) = (Subject::base(), Subject::base());
    old.files.tools.insert("lint".to_owned(), tool(4));
    new.files.tools.insert("lint".to_owned(), tool(5));
    let found = wider(&old.capability(), &new.capability());
    assert_eq!(codes(&found), [Code::ParamRelaxed]);
    let told = (found[0].was.as_str(), found[0].now.as_str());
    assert_eq!(told, ("type integer, maximum 4", "type integer, maximum 5"));
}

/// A list longer than is shown ends in a digest, and what came to it stands before.
#[test]
fn a_value_that_came_to_a_long_list_is_told_by_itself() {
    let tool = |last: &[&str]| {
        let values = (0..400).map(|n| format!("value-{n:04}")).chain(last.iter().map(|v| (*v).to_owned()));
        let values: Vec<String> = values.collect();
        ToolFiles {
            schema: json!({"properties": {"x": {"type": "string", "enum": values}}}),
            ..ToolFiles::default()
        }
    };
    let now = |new: &[&str]| {
        let (mut old, mut with) = (Subject::base(), Subject::base());
        old.files.tools.insert("lint".to_owned(), tool(&["value-gone"]));
        with.files.tools.insert("lint".to_owned(), tool(new));
        let found = wider(&old.capability(), &with.capability());
        assert_eq!(codes(&found), [Code::ParamRelaxed]);
        found[0].now.clone()
    };
    let one = now(&["other", "rm -rf"]);
    assert!(one.starts_with("enum +\"other\", +\"rm -rf\", -\"value-gone\"; now type string, "), "{one}");
    assert_ne!(one, now(&["other", "rm -rg"]));
    let digest = one.rsplit_once('#').expect("a digest").1;
    assert!(digest.len() == 32 && digest.bytes().all(|b| b.is_ascii_hexdigit()), "{one}");
    let many: Vec<String> = (0..30).map(|n| format!("more-{n:02}")).collect();
    let many = now(&many.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(many.contains("+\"more-09\", +20 more, -") && many.len() < 1500, "{many}");
}

#[test]
fn what_a_new_role_reaches_is_told_name_by_name() {
    let old = with(&[Tool::ReadFile]);
    let mut new = old.clone();
    edit(&mut new, "b", |b| (b.tools, b.agents) = (vec![Tool::Agent], vec![role("a")]));
    edit(&mut new, "a", |a| a.tools.push(Tool::RunShell));
    let found = wider(&old.capability(), &new.capability());
    let reached: Vec<&str> =
        found.iter().filter(|f| f.code == Code::Reach).map(|f| f.place.as_str()).collect();
    assert_eq!(reached, ["roles.b.reach.read_file", "roles.b.reach.run_shell"], "{found:#?}");
}

/// A rate that is taken out is no bound less than it was: all the bytes of a run may pass in a second then.
#[test]
fn r61_more_of_the_way_out_is_wider_each_bound_by_its_name() {
    let change = |change: &dyn Fn(&mut Traffic)| {
        let mut subject = Subject::base();
        subject.deployment.traffic.rate = Some(1000);
        change(&mut subject.deployment.traffic);
        subject.capability()
    };
    let old = change(&|_| {});
    for (key, wide) in [
        ("network.open", change(&|traffic| traffic.open += 1)),
        ("network.connections", change(&|traffic| traffic.connections += 1)),
        ("network.up", change(&|traffic| traffic.up += 1)),
        ("network.down", change(&|traffic| traffic.down += 1)),
        ("network.rate", change(&|traffic| traffic.rate = None)),
        ("network.idle", change(&|traffic| traffic.idle *= 2)),
        ("network.lifetime", change(&|traffic| traffic.lifetime *= 2)),
    ] {
        let found = wider(&old, &wide);
        let told: Vec<(Code, &str)> = found.iter().map(|f| (f.code, f.place.as_str())).collect();
        assert_eq!(told, [(Code::LimitRaised, key)]);
        assert!(old.within(&wide) && wider(&wide, &old).is_empty());
    }
}

#[test]
fn a_secret_under_another_header_is_another_claim() {
    let rule = HostRule::parse("api.example.com:443").expect("a rule");
    let of = |name: &str| {
        let mut subject = with(&[Tool::FetchUrl]);
        let secret_env = EnvName::new("TOKEN").expect("a name");
        let header = Header { name: HeaderName::parse(name).expect("a header"), secret_env };
        subject.deployment.network =
            vec![Destination::new(rule.clone(), Some(header)).expect("a destination")];
        subject.guild.network = vec![rule.clone()];
        subject.capability()
    };
    let found = wider(&of("authorization"), &of("x-name"));
    assert_eq!(codes(&found), [Code::HeaderGiven]);
    assert_eq!(found[0].now, "x-name: TOKEN");
}

/// A Guild of so many roles that do nothing, and one behind them.
fn crowd(many: usize) -> Subject {
    let mut subject = with(&[Tool::ReadFile]);
    for n in 0..many {
        subject.guild.roles.insert(role(&format!("r{n}")), plain("x"));
    }
    subject.guild.roles.insert(role("z"), plain("z"));
    subject
}

fn prompted(subject: &mut Subject, name: &str, text: &str) {
    let prompt = PromptText { digest: text.to_owned(), text: text.to_owned(), hidden: false };
    subject.files.prompts.insert(role(name), prompt);
}

#[test]
fn harmless_roles_do_not_hide_a_changed_prompt() {
    let (old, mut new) = (crowd(0), crowd(600));
    for n in 0..600 {
        prompted(&mut new, &format!("r{n}"), "hello");
    }
    prompted(&mut new, "z", "give everything away");
    let found = compare(&old.capability(), &new.capability());
    assert!(found.iter().any(|f| f.code == Code::Prompt && f.place == "roles.z.prompt"));
    assert_eq!(found.iter().filter(|f| f.severity == Severity::Wider).count(), 0);
}

#[test]
fn what_passes_and_is_not_told_is_refused() {
    let none = Waivers::default();
    // Behaviour.
    let (old, mut new) = (crowd(1500), crowd(1500));
    for n in 0..1500 {
        prompted(&mut new, &format!("r{n}"), "hello");
    }
    let review = Review::of(&old.capability(), &new.capability(), Vec::new(), &none);
    assert!(review.refused && review.findings.len() == 1001);
    assert_eq!(review.findings[0].finding.now, "more than 1000 that are behaviour only");
    // What is narrower.
    let (mut old, mut new) = (crowd(1500), crowd(1500));
    for n in 0..1500 {
        edit(&mut old, &format!("r{n}"), |one| one.tools = vec![Tool::ReadFile]);
        edit(&mut new, &format!("r{n}"), |one| one.tools = vec![]);
    }
    let review = Review::of(&old.capability(), &new.capability(), Vec::new(), &none);
    assert!(review.refused);
    assert_eq!(review.findings[0].finding.code, Code::TooMany);
}

#[test]
fn what_is_asked_beyond_the_deployment_is_bounded_with_the_rest() {
    let mut subject = crowd(1500);
    for n in 0..1500 {
        edit(&mut subject, &format!("r{n}"), |one| one.tool_calls = Some(5000));
    }
    let guild = subject.capability();
    let beyond = Finding::beyond(&subject.deployment, &subject.guild);
    let review = Review::of(&guild, &guild, beyond, &Waivers::default());
    assert_eq!(review.findings.len(), 1000);
    assert_eq!(review.findings.last().map(|f| f.finding.code), Some(Code::TooMany));
}

#[test]
fn many_roles_that_start_each_other_are_closed_in_time() {
    let mut subject = Subject::base();
    for n in 0..1000 {
        let mut one = plain("x");
        one.tools = vec![Tool::Agent, Tool::RunShell];
        one.agents = (0..20).map(|k| role(&format!("r{}", (n * 7 + k * 131) % 1000))).collect();
        subject.guild.roles.insert(role(&format!("r{n}")), one);
    }
    let began = std::time::Instant::now();
    let one = subject.capability();
    assert!(one.within(&one));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// A thousand roles in a row, of which the last fifty get a thousand tools each: a million things are reached that were
/// not, of which a thousand are told and no text is made of the others.
#[test]
fn what_a_thousand_roles_come_to_reach_is_compared_in_time() {
    let chain = |armed: usize| {
        let mut subject = Subject::base();
        subject.guild.roles.clear();
        let own: Vec<String> = (0..1000).map(|n| format!("tool-number-{n}")).collect();
        for name in &own {
            let tool = OwnTool { manifest: path("t.json"), module: path("t.wasm") };
            subject.guild.tools.insert(name.clone(), tool);
        }
        for n in 0..1000 {
            let mut one = plain("x");
            one.tools = vec![Tool::Agent];
            one.agents = vec![role(&format!("r{}", (n + 1) % 1000))];
            if n == 999 {
                (one.tools, one.agents) = (vec![Tool::Finish], Vec::new());
            }
            if n >= 1000 - armed {
                one.own_tools = own.clone();
            }
            subject.guild.roles.insert(role(&format!("r{n}")), one);
        }
        subject.guild.entry = role("r0");
        subject.capability()
    };
    let began = std::time::Instant::now();
    let (old, new) = (chain(0), chain(50));
    for (old, new) in [(&old, &new), (&new, &old)] {
        let found = compare(old, new);
        assert_eq!(found.iter().filter(|f| f.code == Code::TooMany).count(), 1);
        assert!(found.len() <= 3000, "{}", found.len());
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// Keys of a deployment that are no bound: what they are is another part of the vector, or behaviour.
const NO_BOUND: [&str; 13] = [
    "model.base_url",
    "model.name",
    "model.api_key_env",
    "model.min_context",
    "isolation.tier",
    "isolation.floor",
    "isolation.surroundings",
    "isolation.rootfs",
    "shell.enabled",
    "shell.allow",
    "shell.deny",
    "network.allow",
    "secrets.pass",
];
/// Where records go and how long they stay: behaviour.
const OF_RECORDS: [&str; 2] = ["records.dir", "records.keep"];

/// Makes one bound of the deployment greater, by its key in the file.
fn raise(d: &mut Deployment, key: &str) {
    match key {
        "limits.wall" => d.limits.wall *= 2,
        "limits.cpu" => d.limits.cpu *= 2,
        "limits.cores" => d.limits.cores += 1,
        "limits.memory" => d.limits.memory += 1,
        "limits.processes" => d.limits.processes += 1,
        "limits.disk" => d.limits.disk += 1,
        "limits.tmp" => d.limits.tmp += 1,
        "limits.files" => d.limits.files += 1,
        "call.timeout" => d.call.timeout *= 2,
        "call.cpu" => d.call.cpu = d.call.cpu.map(|cpu| cpu * 2),
        "call.memory" => d.call.memory = d.call.memory.map(|bytes| bytes + 1),
        "call.processes" => d.call.processes = d.call.processes.map(|many| many + 1),
        "call.disk" => d.call.disk = d.call.disk.map(|bytes| bytes + 1),
        "call.output" => d.call.output += 1,
        "call.flood" => d.call.flood += 1,
        "call.to_model" => d.call.to_model += 1,
        "network.open" => d.traffic.open += 1,
        "network.connections" => d.traffic.connections += 1,
        "network.up" => d.traffic.up += 1,
        "network.down" => d.traffic.down += 1,
        "network.rate" => d.traffic.rate = d.traffic.rate.map(|rate| rate + 1),
        "network.idle" => d.traffic.idle *= 2,
        "network.lifetime" => d.traffic.lifetime *= 2,
        "budget.steps" => d.budget.steps += 1,
        "budget.tool_calls" => d.budget.tool_calls += 1,
        "budget.tokens" => d.budget.tokens += 1,
        "budget.wall" => d.budget.wall *= 2,
        "budget.depth" => d.budget.depth += 1,
        "budget.repeats" => d.budget.repeats += 1,
        "budget.format_errors" => d.budget.format_errors += 1,
        "ceiling.sandboxes" => d.ceiling.sandboxes += 1,
        "ceiling.memory" => d.ceiling.memory += 1,
        "ceiling.cores" => d.ceiling.cores += 1,
        "records.max_bytes" => d.records.max_bytes += 1,
        other => panic!("{other} is a bound that nobody says how to raise"),
    }
}

/// A Guild under a deployment in which every bound is written, those of a call below those of the sandbox.
fn bounded() -> Subject {
    let mut subject = Subject::base();
    let d = &mut subject.deployment;
    (d.call.cpu, d.call.memory) = (Some(d.limits.cpu / 4), Some(d.limits.memory / 4));
    (d.call.processes, d.call.disk) = (Some(d.limits.processes / 4), Some(d.limits.disk / 4));
    d.traffic.rate = Some(1000);
    // As a run has them: a Guild of a role that says all of its own is raised by none of the deployment's.
    for one in subject.guild.roles.values_mut() {
        (one.steps, one.tool_calls, one.tokens) = (Some(1), Some(1), Some(1));
    }
    subject
}

/// Every key of the deployment's format but those that are no bound.
fn keys_of_bounds() -> BTreeSet<String> {
    let schema = policy::schema("deployment".parse().expect("a kind"));
    let mut keys = BTreeSet::new();
    for (table, spec) in schema["properties"].as_object().expect("tables") {
        let path = spec["$ref"].as_str().expect("a table").trim_start_matches('#');
        let spec = schema.pointer(path).expect("it is there");
        keys.extend(spec["properties"].as_object().expect("keys").keys().map(|key| format!("{table}.{key}")));
    }
    for key in NO_BOUND.iter().chain(&OF_RECORDS) {
        assert!(keys.remove(*key), "there is no {key}");
    }
    keys
}

/// R61: of every bound of the format; one that is left out of the vector, or told as nothing, could be raised in silence.
#[test]
fn r61_every_bound_of_a_deployment_that_is_raised_is_told_by_its_own_name_alone() {
    let old = bounded();
    let keys: BTreeSet<String> = old.capability().bounds().into_keys().map(str::to_owned).collect();
    assert_eq!(keys, keys_of_bounds());
    for key in &keys {
        let mut new = old.clone();
        raise(&mut new.deployment, key);
        let (old, new) = (old.capability(), new.capability());
        let found = wider(&old, &new);
        let told: Vec<(Code, &str)> = found.iter().map(|f| (f.code, f.place.as_str())).collect();
        let code = if key.starts_with("budget.") { Code::BudgetRaised } else { Code::LimitRaised };
        assert_eq!(told, [(code, key.as_str())]);
        assert!(!new.within(&old) && old.within(&new) && wider(&new, &old).is_empty(), "{key}");
    }
}

/// One thing that makes a Guild wider.
type Widening = (&'static str, fn(&mut Subject));

/// Each part of the vector, in one way at least.
const WIDENINGS: [Widening; 24] = [
    ("tool", |s| edit(s, "a", |a| a.tools.push(Tool::WriteFile))),
    ("own tool", |s| edit(s, "b", |b| b.own_tools.push("lint".to_owned()))),
    ("armed", |s| edit(s, "c", |c| c.tools.push(Tool::ReadFile))),
    ("armed to start", |s| edit(s, "c", |c| c.tools.push(Tool::Agent))),
    ("talker's tokens", |s| edit(s, "c", |c| c.tokens = None)),
    ("talker's steps", |s| edit(s, "c", |c| c.steps = Some(99))),
    ("talker's answer", |s| edit(s, "c", |c| c.generation.max_tokens = 2048)),
    ("tokens", |s| edit(s, "b", |b| b.tokens = None)),
    ("steps", |s| edit(s, "b", |b| b.steps = Some(99))),
    ("answer", |s| edit(s, "b", |b| b.generation.max_tokens += 1)),
    ("restart", |s| edit(s, "b", |b| b.agents.push(role("b")))),
    ("talker restarts", |s| edit(s, "c", |c| c.agents.push(role("c")))),
    ("reach", |s| edit(s, "b", |b| b.agents.push(role("a")))),
    ("new role", |s| {
        let mut one = plain("d");
        one.tools = vec![Tool::Glob];
        s.guild.roles.insert(role("d"), one);
    }),
    ("module", |s| s.files.tools.entry("count".to_owned()).or_default().module = "2".to_owned()),
    ("argument", |s| {
        s.files.tools.entry("count".to_owned()).or_default().schema =
            json!({"properties": {"x": {"type": "string"}}});
    }),
    ("limit", |s| s.guild.limits.retain(|key, _| *key != LimitKey::Memory)),
    ("timeout", |s| s.guild.timeout = None),
    ("destination", |s| s.guild.network.push(HostRule::parse("b.example:443").expect("a rule"))),
    ("key", |s| prompted(s, "a", "use sk-abcdefghijklmnop")),
    ("path", |s| prompted(s, "b", "read /home/ann/notes")),
    ("like a tool", |s| {
        let tool = OwnTool { manifest: path("t.json"), module: path("t.wasm") };
        s.guild.tools.insert("run_shel1".to_owned(), tool);
    }),
    ("like a role", |s| drop(s.guild.roles.insert(role("A"), plain("x")))),
    ("entry", |s| s.guild.entry = role("b")),
];

/// R61: an operator waives what is told. So nothing that is wider may be told by another finding's name, or be silent
/// because something else is wider as well: of any two, each has the findings that it has alone.
#[test]
fn r61_no_widening_hides_another() {
    let mut base = with(&[Tool::ReadFile]);
    for name in ["count", "lint"] {
        let tool = OwnTool { manifest: path("t.json"), module: path("t.wasm") };
        base.guild.tools.insert(name.to_owned(), tool);
    }
    base.guild.limits.insert(LimitKey::Memory, 1);
    base.guild.timeout = Some(Duration::from_secs(1));
    edit(&mut base, "a", |a| a.own_tools.push("count".to_owned()));
    edit(&mut base, "b", |b| {
        (b.tools, b.tokens, b.steps) = (vec![Tool::ListDir, Tool::Agent], Some(1000), Some(9));
    });
    edit(&mut base, "c", |c| (c.tokens, c.steps, c.generation.max_tokens) = (Some(1000), Some(9), 64));
    let old = base.capability();
    let told = |changes: &[Widening]| -> BTreeSet<(Code, String)> {
        let mut new = base.clone();
        changes.iter().for_each(|(_, change)| change(&mut new));
        wider(&old, &new.capability()).into_iter().map(|f| (f.code, f.place)).collect()
    };
    // Alone neither has a power: the one starts nobody, the other has no tool to start anybody.
    let silent = ["talker restarts"];
    for (n, one) in WIDENINGS.iter().enumerate() {
        let alone = told(&[*one]);
        assert_eq!(alone.is_empty(), silent.contains(&one.0), "{}", one.0);
        for other in WIDENINGS.iter().skip(n + 1) {
            let both = told(&[*one, *other]);
            // What it may spend by itself counts as reached: where that is told, the other is not told again.
            let itself = |place: &str| both.iter().any(|(_, told)| place.replace(".reach.", ".") == *told);
            let alone = alone.union(&told(&[*other])).cloned().collect::<Vec<_>>();
            let missed: Vec<_> =
                alone.into_iter().filter(|one| !both.contains(one) && !itself(&one.1)).collect();
            assert_eq!(missed, [], "{} and {}: {both:#?}", one.0, other.0);
        }
    }
}

fn today() -> Date {
    Date::parse("2026-06-15").expect("a day")
}

fn waiver(more: &str) -> String {
    format!(
        "[[waiver]]\nfinding = \"W-TOOL-ADDED\"\nplace = \"roles.a.tools.write_file\"\nreason = \"it is meant\"\n{more}"
    )
}

#[test]
fn r61_a_waiver_names_one_finding_and_is_shown() {
    let (old, new) = (with(&[Tool::ReadFile]), with(&[Tool::ReadFile, Tool::WriteFile]));
    let (old, new) = (old.capability(), new.capability());
    let none = Review::of(&old, &new, Vec::new(), &Waivers::default());
    assert!(none.refused);
    for expires in ["2026-12-31", "\"2026-06-15\""] {
        let text = waiver(&format!("expires = {expires}\n"));
        let waivers = Waivers::parse("foundry.toml", &text, today()).expect("sound");
        let review = Review::of(&old, &new, Vec::new(), &waivers);
        assert!(!review.refused && review.unused.is_empty());
        let waived = review.findings[0].waived.as_ref().expect("it is waived");
        assert_eq!(waived.reason, "it is meant");
        let other =
            Review::of(&old, &with(&[Tool::ReadFile, Tool::EditFile]).capability(), Vec::new(), &waivers);
        assert!(other.refused && other.unused.len() == 1);
    }
    let pinned = waiver("now = \"other\"\nexpires = 2026-12-31\n");
    let pinned = Waivers::parse("foundry.toml", &pinned, today()).expect("sound");
    assert!(Review::of(&old, &new, Vec::new(), &pinned).refused);
}

#[test]
fn a_waiver_that_is_over_unknown_or_of_a_key_is_a_fault() {
    let faults = |text: &str| Waivers::parse("foundry.toml", text, today()).expect_err(text).to_string();
    assert!(faults(&waiver("expires = 2026-06-14\n")).contains("has passed"));
    assert!(faults(&waiver("")).contains("is missing"));
    assert!(
        faults(&waiver("expires = 2026-02-30\n")).contains("day")
            || faults(&waiver("expires = 2026-02-30\n")).contains("date")
    );
    assert!(faults(&waiver("expires = \"soon\"\n")).contains("is not a day"));
    assert!(faults(&waiver("expires = 2026-12-31T00:00:00Z\n")).contains("is a date"));
    let other = |code: &str| waiver("expires = 2026-12-31\n").replace("W-TOOL-ADDED", code);
    assert!(faults(&other("W-TOOL-ADED")).contains("did you mean `W-TOOL-ADDED`?"));
    assert!(faults(&other("W-KEY-QUOTED")).contains("waived"));
    assert!(faults(&other("B-PROMPT")).contains("waived"));
    let twice = waiver("expires = 2026-12-31\n").repeat(2);
    assert!(faults(&twice).contains("already"));
    assert!(faults(&waiver("expires = 2026-12-31\nwho = \"me\"\n")).contains("no key `who`"));
    assert!(
        faults(&waiver("expires = 2026-12-31\n").replace("\"it is meant\"", "2026-01-01"))
            .contains("is a date")
    );
    assert_eq!(Waivers::parse("foundry.toml", "", today()), Ok(Waivers::default()));
}

#[test]
fn one_guild_alone_is_told_what_looks_like_something_else() {
    let mut subject = with(&[Tool::ReadFile]);
    for name in ["run_shel1", "lint", "l1nt"] {
        let tool = OwnTool { manifest: path("t.json"), module: path("t.wasm") };
        subject.guild.tools.insert(name.to_owned(), tool);
    }
    subject.guild.roles.insert(role("A"), plain("x"));
    assert_eq!(codes(&inspect(&subject.capability())), [Code::ToolAlias, Code::ToolAlias, Code::RoleAlias]);
}

/// The names are part of waivers and of other people's filters.
#[test]
fn every_code_has_its_own_name_a_rule_and_a_remedy_where_it_is_refused() {
    let mut seen = BTreeSet::new();
    for code in Code::ALL {
        assert!(seen.insert(code.as_str()) && !code.rule().is_empty(), "{code}");
        assert_eq!(code.remedy().is_empty(), code.severity() != Severity::Wider, "{code}");
        assert_eq!(code.as_str().parse(), Ok(code));
    }
    let as_value = serde_json::to_value(Code::ToolAdded).expect("JSON");
    assert_eq!(as_value, Value::String("W-TOOL-ADDED".to_owned()));
}
