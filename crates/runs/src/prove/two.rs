//! The two sandboxes that attacks are made in: one that is granted nothing, and a neighbour that is granted a way out
//! which leads nowhere.

use std::path::Path;

use policy::{Grant, StopReason};
use sandbox::{Cancel, Ended, Host};

use super::outside::{self, Outside};
use super::way::{self, Way};
use super::{not_ended, open};
use crate::{ProgramCall, Run, RunError};

pub(super) struct Two<'a> {
    host: &'a Host,
    store: &'a Path,
    /// Of the first; and the same with the way.
    grants: [Grant; 2],
    pub(super) way: Way,
    pub(super) run: Run,
    pub(super) neighbour: Run,
    ids: Vec<String>,
    /// Why runs could not be ended as they should.
    trouble: Vec<String>,
}

impl<'a> Two<'a> {
    pub(super) async fn open(
        host: &'a Host,
        grant: &Grant,
        store: &'a Path,
        outside: &Outside,
    ) -> Result<Two<'a>, RunError> {
        let way = Way::new(outside.port()).await?;
        let granted = Grant { network: way::destinations(outside.port())?, ..grant.clone() };
        // One after the other: two machines that start at once on a busy host may take longer than a start may take.
        let run = open(host, grant, store, None).await?;
        let mut neighbour = open(host, &granted, store, None).await?;
        way.open(&mut neighbour)?;
        let ids = vec![run.id().to_owned(), neighbour.id().to_owned()];
        Ok(Two {
            host,
            store,
            grants: [grant.clone(), granted],
            way,
            run,
            neighbour,
            ids,
            trouble: Vec::new(),
        })
    }

    /// Replaces what does not live any more: some attacks end the sandbox they are in, which is no way out of it.
    pub(super) async fn renew(&mut self) -> Result<(), RunError> {
        if !alive(&self.run).await {
            let next = open(self.host, &self.grants[0], self.store, None).await?;
            self.ids.push(next.id().to_owned());
            let lost = std::mem::replace(&mut self.run, next);
            self.trouble.extend(not_ended(lost.finish(StopReason::SandboxError, "", 0).await));
        }
        if !alive(&self.neighbour).await {
            let mut next = open(self.host, &self.grants[1], self.store, None).await?;
            self.way.open(&mut next)?;
            self.ids.push(next.id().to_owned());
            let lost = std::mem::replace(&mut self.neighbour, next);
            self.trouble.extend(not_ended(lost.finish(StopReason::SandboxError, "", 0).await));
        }
        Ok(())
    }

    /// Ends both; what is left is their names, the way that nobody comes to any more, and why one could not be ended.
    pub(super) async fn finish(self) -> (Vec<String>, Way, Vec<String>) {
        let Two { run, neighbour, ids, way, mut trouble, .. } = self;
        let (one, other) = tokio::join!(
            run.finish(StopReason::Finished, "", 0),
            neighbour.finish(StopReason::Finished, "", 0)
        );
        trouble.extend([one, other].into_iter().filter_map(not_ended));
        (ids, way, trouble)
    }

    /// What was left outside by whatever way.
    pub(super) async fn seen(&self, outside: &Outside) -> Vec<String> {
        let mut seen = outside.seen();
        seen.extend(self.way.seen().await);
        seen
    }

    /// What an attack is told: where everything is that it is after. With `granted` it is made in the neighbour.
    pub(super) fn facts(&self, tier: &str, granted: bool, outside: &Outside) -> serde_json::Value {
        let forker = self.host.forker_id();
        let mut facts = outside.facts();
        facts["where"] = tier.into();
        facts["host"] = rustix::system::uname().nodename().to_string_lossy().into();
        for (name, pids) in
            [("pids", vec![std::process::id(), forker]), ("neighbours", outside::below(forker))]
        {
            facts[format!("{name}_began")] = pids.iter().map(|pid| outside::began(*pid)).collect();
            facts[name] = serde_json::json!(pids);
        }
        let (own, other) = if granted { (&self.neighbour, &self.run) } else { (&self.run, &self.neighbour) };
        facts["run"] = serde_json::json!(own.dir());
        facts["neighbour"] = serde_json::json!(other.dir());
        facts["way"] = self.way.facts(self.neighbour.has_way_out());
        facts
    }
}

/// Whether a sandbox still answers.
async fn alive(run: &Run) -> bool {
    let call = ProgramCall {
        tool: "prove".to_owned(),
        argv: vec!["true".to_owned()],
        cwd: None,
        stdin: Vec::new(),
        terminal: false,
        timeout: None,
    };
    let (_keep, cancel) = Cancel::new();
    run.execute(call, &cancel).await.is_ok_and(|done| done.outcome.ended == Ended::Exit(0))
}
