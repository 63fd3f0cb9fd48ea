//! Modules: what is to run is read and judged here, and what a Guild brings along runs in a sandbox of its own.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use policy::{Rootfs, Surroundings, Tier, TierChoice};
use sandbox::{
    BadModule, Call, Cancel, Host, Job, Module, ModuleCall, Outcome, Plan, Report, SandboxError, Stream,
};
use serde_json::{Value, json};

use crate::{Code, Executed, ModuleUse, Opening, Run, RunError, read_beneath};

/// Bytes that are read at most: one more than a module may have.
const MOST: u64 = (32 << 20) + 1;

/// What a tool of the Guild's own needs beside the run's sandbox.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) host: Host,
    pub(crate) floor: Tier,
    pub(crate) surroundings: Surroundings,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) tools: Vec<(String, Module)>,
}

impl Beside {
    pub(crate) fn new(host: &Host, opening: &Opening<'_>) -> Beside {
        let isolation = &opening.grant.isolation;
        Beside {
            host: host.clone(),
            floor: isolation.floor,
            surroundings: isolation.surroundings,
            env: opening.secrets.clone(),
            tools: opening.tools.to_vec(),
        }
    }

    fn plan(&self, module: &Module, run: &Run) -> Result<Plan, RunError> {
        Ok(Plan {
            tier: TierChoice::Wasm,
            floor: self.floor,
            surroundings: self.surroundings,
            rootfs: Rootfs::Host,
            workspace: run.workspace.root().to_owned(),
            limits: run.limits.clone(),
            env: self.env.clone(),
            runsc: None,
            module: Some(module.clone()),
            held: run.held()?,
            // The role's commands have been in it.
            given: Some(run.workspace.given()),
            doors: sandbox::Doors::default(),
        })
    }

    /// One call in a sandbox that is made for it and destroyed after it.
    pub(crate) async fn run(
        &self,
        plan: Plan,
        call: &Call,
        cancel: &Cancel,
        on_output: &mut (dyn FnMut(Stream, &[u8]) + Send),
    ) -> Result<(Outcome, Option<Report>), SandboxError> {
        let running = plan.ready(&self.host).await?.start();
        let outcome = running.run(call, cancel, on_output).await;
        let report = running.destroy().await;
        Ok((outcome?, Some(report)))
    }
}

/// Reads a module and judges it.
pub(crate) fn read(code: &Code, workspace: &Path) -> Result<Module, RunError> {
    let (name, bytes) = match code {
        Code::Host(path) => (path.display().to_string(), of_host(path)),
        Code::Workspace(name) => {
            let beneath = name.strip_prefix("/workspace/").unwrap_or(name);
            (name.clone(), read_beneath(workspace, beneath, MOST))
        }
    };
    let bad = |reason: String| RunError::Module { name: name.clone(), reason };
    let bytes = bytes.map_err(|e| {
        let word = e.to_string().split(" (os error").next().unwrap_or_default().to_lowercase();
        bad(match code {
            Code::Host(_) => word,
            Code::Workspace(_) => {
                format!("{word}, in the workspace; a module of the host is named with `--module FILE`")
            }
        })
    })?;
    Module::check(bytes).map_err(|e| match e {
        BadModule::NotBuilt => RunError::Sandbox(SandboxError::Refused {
            reason: "this program was built without modules".to_owned(),
            remedy: "build `oubliette` with its feature `wasm`, which is on by default".to_owned(),
        }),
        other => bad(other.to_string()),
    })
}

/// A file that the user named: the way to it may hold links, and what is there must be a file.
fn of_host(path: &Path) -> std::io::Result<Vec<u8>> {
    let without_waiting = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A module in `meta.json`.
pub(crate) fn told(module: &Module) -> Value {
    json!({ "sha256": module.sha256(), "bytes": module.bytes().len() })
}

/// A module works on the workspace as it is outside, and a machine keeps its own copy until its end.
pub(crate) fn not_beside_a_machine() -> SandboxError {
    SandboxError::Refused {
        reason:
            "a role has tools of the Guild's own, which do not see the workspace while it is inside a machine"
                .to_owned(),
        remedy: "run it with `--tier gvisor`, or take those tools out of the Guild's roles".to_owned(),
    }
}

impl Run {
    /// Runs the module of this run's own sandbox: recorded before it starts and after it ended.
    ///
    /// # Errors
    /// [`RunError`] when the run has none, the sandbox is lost or the record cannot be written.
    pub async fn run_module(&self, call: ModuleUse, cancel: &Cancel) -> Result<Executed, RunError> {
        let Some(module) = &self.module else {
            return Err(RunError::Module { name: call.tool, reason: "this run has no module".to_owned() });
        };
        let job = self.module_job(module, &call);
        self.carry(call.tool, job, call.stdin, call.timeout, None, cancel).await
    }

    /// Runs a tool of the Guild's own in a single-use sandbox on the run's workspace: recorded like every other call.
    ///
    /// # Errors
    /// [`RunError`] when there is no such tool, the sandbox cannot be had or is lost, or the record cannot be written.
    pub async fn tool(&self, call: ModuleUse, cancel: &Cancel) -> Result<Executed, RunError> {
        let found = self.beside.as_ref().and_then(|beside| {
            let (_, module) = beside.tools.iter().find(|(name, _)| *name == call.tool)?;
            Some((module, beside.plan(module, self)))
        });
        let Some((module, plan)) = found else {
            return Err(RunError::Module {
                name: call.tool,
                reason: "the Guild has no such tool".to_owned(),
            });
        };
        let job = self.module_job(module, &call);
        self.carry(call.tool, job, call.stdin, call.timeout, Some(plan?), cancel).await
    }

    fn module_job(&self, module: &Module, call: &ModuleUse) -> Job {
        let timeout = call.timeout.map_or(self.bounds.timeout, |t| t.min(self.bounds.timeout));
        let cpu = self.bounds.cpu.map_or(self.limits.cpu, |c| c.min(self.limits.cpu));
        Job::Module(ModuleCall::new(module, call.args.clone(), cpu, timeout))
    }
}
