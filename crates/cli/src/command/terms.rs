//! What a run has before it opens or goes on, the same for `run` and `runs resume`: what the operator's files grant,
//! keys and secrets from the environment, the model's client.

use std::path::{Path, PathBuf};

use agent::{Client, LoadedGuild};
use policy::Grant;
use runs::{Cancel, Granted, History, Module, Opening, Waiting};
use serde_json::{Map, Value};

use crate::deploy::Deployed;
use crate::exit::usage;
use crate::{deploy, live, render, signal};

pub(super) struct Terms {
    pub(super) grant: Grant,
    pub(super) cancel: Cancel,
    /// Tools of the Guild's own that some role has.
    tools: Vec<(String, Module)>,
    store: PathBuf,
    secrets: Vec<(String, String)>,
    key: Option<(String, String)>,
    /// What may be reached, and the values that go there in headers.
    granted: Vec<Granted>,
    headers: Vec<(String, String)>,
    quiet: bool,
}

impl Terms {
    /// Of a deployment and a Guild, which is in the folder `dir`; and the model's client.
    pub(super) fn of(
        deployed: &Deployed,
        guild: &LoadedGuild,
        dir: &Path,
        quiet: bool,
    ) -> anyhow::Result<(Terms, Client)> {
        let file = dir.join("guild.toml").display().to_string();
        let grant = Grant::new(&deployed.deployment, &guild.guild, &file)?;
        let key = deploy::model_key(&deployed.deployment)?;
        let secrets = deploy::secrets(&deployed.deployment)?;
        let (granted, headers) = deploy::granted(&grant.network)?;
        let client = Client::new(&deployed.deployment.model, key.clone().map(|(_, value)| value))
            .map_err(|e| usage(e.to_string()))?;
        let had = |name: &String| grant.roles.values().any(|role| role.own_tools.contains(name));
        let own = guild.tools.iter().filter(|(name, _)| had(name));
        let tools = own.map(|(name, tool)| (name.clone(), tool.module.clone())).collect();
        let (store, cancel) = (deployed.store.clone(), signal::cancel()?);
        let terms = Terms { grant, cancel, tools, store, secrets, key, granted, headers, quiet };
        terms.tell(&format!("model    {}", client.at()));
        Ok((terms, client))
    }

    /// A line for who looks on.
    pub(super) fn tell(&self, text: &str) {
        if !self.quiet {
            render::note(text);
        }
    }

    pub(super) fn opening<'a>(
        &'a self,
        source: Option<&'a Path>,
        history: History,
        meta: Map<String, Value>,
        progress: &'a (dyn Fn(u64, u64) -> bool + Sync),
        waiting: &'a (dyn Fn(&Waiting) -> bool + Sync),
    ) -> Opening<'a> {
        Opening {
            grant: &self.grant,
            store: &self.store,
            source,
            history,
            module: None,
            tools: &self.tools,
            secrets: self.secrets.clone(),
            mask: self.key.iter().cloned().chain(self.headers.clone()).collect(),
            granted: self.granted.clone(),
            meta,
            progress,
            waiting,
            cancel: &self.cancel,
            watch: (!self.quiet).then(live::watch),
        }
    }

    /// What was opened.
    pub(super) fn opened(&self, run: &runs::Run) {
        let report = run.report();
        self.tell(&format!("run      {}", run.id()));
        self.tell(&format!("tier     {} ({})", report.tier, render::shown(&report.engine)));
        if let Some(no_way) = no_way_out(&self.grant, run) {
            self.tell(&format!("network  none: {no_way}; of `network.allow` only `fetch_url` has anything"));
        }
    }
}

/// Why what is granted cannot be reached from inside; none where it can, or where nothing is granted.
pub(super) fn no_way_out(grant: &Grant, run: &runs::Run) -> Option<String> {
    let closed = !grant.network.is_empty() && !run.has_way_out();
    closed.then(|| format!("the tier `{}` has no way out", run.report().tier))
}
