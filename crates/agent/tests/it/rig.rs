//! A role tree, a bench and a scripted server, put together in one line.

use std::collections::BTreeMap;
use std::time::Duration;

use agent::{Client, Drive, LoadedGuild, Model, ModelError, Timing, drive, probe};
use policy::{
    Budget, Deployment, Generation, Grant, Guild, GuildPath, Role, RoleGrant, RoleName, Tool, Verdict,
};
use runs::{Cancel, Event};
use serde_json::{Value, json};
use testkit::{Reply, Script, ScriptedModel, Seen};

use crate::bench::Bench;

pub(crate) struct Rig {
    pub(crate) bench: Bench,
    pub(crate) grant: Grant,
    pub(crate) guild: LoadedGuild,
    pub(crate) key: Option<String>,
    pub(crate) timing: Timing,
}

/// What a drive left behind.
pub(crate) struct Ran {
    pub(crate) drive: Drive,
    pub(crate) server: ScriptedModel,
}

pub(crate) fn name(text: &str) -> RoleName {
    RoleName::new(text).unwrap()
}

/// A Guild of one role, `coder`.
pub(crate) fn rig(tools: &[Tool]) -> Rig {
    rig_of(&[("coder", tools, &[])])
}

/// A Guild of these roles; the first is the entry.
pub(crate) fn rig_of(roles: &[(&str, &[Tool], &[&str])]) -> Rig {
    let mut grant = Grant::without_guild(&Deployment::default());
    let (mut own, mut prompts) = (BTreeMap::new(), BTreeMap::new());
    for (role, tools, agents) in roles {
        let agents: Vec<RoleName> = agents.iter().map(|a| name(a)).collect();
        grant.roles.insert(
            name(role),
            RoleGrant {
                own_tools: Vec::new(),
                tools: tools.to_vec(),
                agents: agents.clone(),
                budget: Budget::default(),
                generation: Generation::default(),
            },
        );
        own.insert(
            name(role),
            Role {
                own_tools: Vec::new(),
                prompt: GuildPath::new("prompts/p.md").unwrap(),
                tools: tools.to_vec(),
                agents,
                tool_calls: None,
                tokens: None,
                steps: None,
                generation: Generation::default(),
            },
        );
        prompts.insert(name(role), format!("You are {role}."));
    }
    grant.entry = Some(name(roles[0].0));
    let guild = Guild {
        tools: BTreeMap::new(),
        name: "test".to_owned(),
        entry: name(roles[0].0),
        roles: own,
        timeout: None,
        limits: BTreeMap::new(),
        network: Vec::new(),
    };
    Rig {
        bench: Bench::new(),
        grant,
        guild: LoadedGuild {
            guild,
            text: String::new(),
            prompts,
            tools: BTreeMap::new(),
            digest: String::new(),
            others: BTreeMap::new(),
        },
        key: None,
        timing: Timing { backoff: Duration::from_millis(1), ..Timing::default() },
    }
}

impl Rig {
    /// Sets the budget of the run and of every role.
    pub(crate) fn budget(mut self, change: impl Fn(&mut Budget)) -> Rig {
        change(&mut self.grant.budget);
        for role in self.grant.roles.values_mut() {
            change(&mut role.budget);
        }
        self
    }

    pub(crate) fn client(&self, server: &ScriptedModel) -> Client {
        client(&server.base_url(), self.key.clone()).unwrap().with_timing(self.timing)
    }

    pub(crate) async fn run(&self, script: Script) -> Ran {
        let (_hand, cancel) = Cancel::new();
        self.run_until(script, &cancel).await
    }

    pub(crate) async fn run_until(&self, script: Script, cancel: &Cancel) -> Ran {
        let server = script.start();
        let client = self.client(&server);
        // What a test bounds is the exchange of its drive; what there is to speak with is found out before.
        let patient = Timing { backoff: self.timing.backoff, ..Timing::default() };
        let probe = probe(&self.client(&server).with_timing(patient), 0, cancel).await.unwrap();
        let model = Model { client, probe };
        let drive = drive(&self.bench, &self.grant, &self.guild, &model, "Fix calc.py", cancel).await;
        Ran { drive, server }
    }

    /// Decisions as (tool, verdict, rule).
    pub(crate) fn decisions(&self) -> Vec<(String, Verdict, &'static str)> {
        let events = self.bench.events.borrow();
        let decisions = events.iter().filter_map(|e| match e {
            Event::Decision { tool, decision, .. } => Some((tool.clone(), decision.verdict, decision.rule)),
            _ => None,
        });
        decisions.collect()
    }

    /// Events of a kind, as JSON.
    pub(crate) fn events(&self, kind: &str) -> Vec<Value> {
        let events = self.bench.events.borrow();
        events.iter().map(|e| serde_json::to_value(e).unwrap()).filter(|e| e["type"] == kind).collect()
    }
}

impl Ran {
    /// The newest message of the n-th request.
    pub(crate) fn told(&self, request: usize) -> String {
        last_message(&self.server.asked()[request])
    }
}

pub(crate) fn last_message(seen: &Seen) -> String {
    let messages = seen.body["messages"].as_array().unwrap();
    messages.last().unwrap()["content"].as_str().unwrap().to_owned()
}

pub(crate) fn client(base_url: &str, key: Option<String>) -> Result<Client, ModelError> {
    let mut model = Deployment::default().model;
    model.base_url = base_url.to_owned();
    Client::new(&model, key)
}

/// A call as the role's next answer under a schema.
pub(crate) fn act(tool: &str, args: Value) -> Reply {
    Reply::Action(json!({"tool": tool, "args": args}))
}

/// A native call.
pub(crate) fn native(tool: &str, args: Value) -> Reply {
    Reply::Calls(vec![(tool.to_owned(), args)])
}

pub(crate) fn finish() -> Reply {
    act("finish", json!({"status": "done", "summary": "all good"}))
}

/// A recorded answer of a real model.
pub(crate) fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/it/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}
