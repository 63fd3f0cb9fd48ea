//! The command line, exactly as typed.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

const CODES: &str = "Exit codes: 0 done; 1 the work failed (exec: the guest's own code); 2 usage or \
    configuration; 3 refused by policy or floor; 4 stopped by a limit or budget; 5 infrastructure.";

/// A safe executor: whatever runs, runs in a single-use sandbox that is destroyed afterwards.
#[derive(Debug, Parser)]
#[command(name = "oubliette", version, about, after_help = CODES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The one command that other programs call in a loop. All the others need not be made first to read it.
#[derive(Debug, Parser)]
#[command(name = "oubliette")]
struct Only {
    #[command(subcommand)]
    command: OnlyExec,
}

#[derive(Debug, Subcommand)]
enum OnlyExec {
    Exec(Exec),
}

impl Args {
    /// What was typed; `first` is the first word of it.
    pub(crate) fn typed(first: Option<&OsStr>) -> Result<Args, clap::Error> {
        if first == Some(OsStr::new("exec"))
            && let Ok(Only { command: OnlyExec::Exec(exec) }) = Only::try_parse()
        {
            return Ok(Args { command: Command::Exec(exec) });
        }
        // Also what is wrong with it, and what help it wants: in the words of the whole.
        Args::try_parse()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Let a Guild work on a copy of a workspace, and hand back a result card, a patch and a record.
    Run(Run),
    /// Run one command in one single-use sandbox, on a copy of a workspace.
    Exec(Exec),
    /// Say what this machine can hold, by running every tier, and what to install.
    Doctor(Doctor),
    /// Attack every tier that works here with a list of our own, or with rows of yours, and say what held.
    Prove(Prove),
    /// Look at a Guild.
    #[command(subcommand)]
    Guild(Guild),
    /// Change a Guild without letting it do more: branches, the gate, the baseline and the way back.
    #[command(subcommand)]
    Foundry(Foundry),
    /// Look at runs.
    #[command(subcommand)]
    Runs(Runs),
    /// Print the JSON Schema of a file.
    Schema(Schema),
}

/// Where the operator's decisions come from, and what may be said over them on the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Deploy {
    /// The deployment file [default: ./oubliette.toml where there is one, built-in defaults otherwise]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Tier to use.
    #[arg(long, value_name = "TIER")]
    pub(crate) tier: Option<TierName>,
    /// Weakest tier accepted; anything weaker is refused.
    #[arg(long, visible_alias = "require-tier", value_name = "TIER")]
    pub(crate) floor: Option<FloorName>,
    /// What you state the whole executor already runs in; goes into the record.
    #[arg(long, value_name = "TIER")]
    pub(crate) surroundings: Option<SurroundingsName>,
    /// Folder of records [default: `records.dir` of the deployment, `data`]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The Guild's folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) guild: PathBuf,
    /// What is to be done.
    #[arg(long, value_name = "TEXT", required_unless_present = "task_file", conflicts_with = "task_file")]
    pub(crate) task: Option<String>,
    /// A file that says what is to be done.
    #[arg(long, value_name = "FILE")]
    pub(crate) task_file: Option<PathBuf>,
    /// What to work on: a folder, a tar, tar.gz or zip archive, or one file; it is copied and never written. Nothing: an
    /// empty workspace.
    #[arg(long, value_name = "PATH")]
    pub(crate) workspace: Option<PathBuf>,
    /// What of a git repository's history a guest gets. Hooks, settings and remotes never come in.
    #[arg(long, value_name = "HISTORY", default_value = "one")]
    pub(crate) history: HistoryName,
    /// The model server, over the deployment's.
    #[arg(long, value_name = "URL")]
    pub(crate) model_url: Option<String>,
    /// The model's name, over the deployment's.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) deploy: Deploy,
    /// The result as JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
    /// Nothing but the result.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Exec {
    /// What to work on: a folder, a tar, tar.gz or zip archive, or one file; it is copied and never written. Nothing: an
    /// empty workspace.
    #[arg(long, value_name = "PATH")]
    pub(crate) workspace: Option<PathBuf>,
    /// What of a git repository's history a guest gets. Hooks, settings and remotes never come in.
    #[arg(long, value_name = "HISTORY", default_value = "one")]
    pub(crate) history: HistoryName,
    /// Seconds the command may take, at most the deployment's `call.timeout`.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
    /// Hand standard input on, up to 1 MiB; the command gets end-of-file otherwise.
    #[arg(long, short = 'i')]
    pub(crate) stdin: bool,
    /// A destination that may be reached beside those of the deployment, `host:port` or `*.label.tld:port`; may be given
    /// again. Nothing else is: neither other ports nor other names, and no name that leads to a private address.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) allow: Vec<String>,
    /// Give the command a terminal of its own, for programs that want one: all its output is standard output then,
    /// and what `--stdin` hands on is typed. Nobody sits in front of it. Not in the tier `confined`.
    #[arg(long, short = 't')]
    pub(crate) tty: bool,
    #[command(flatten)]
    pub(crate) deploy: Deploy,
    /// The outcome as JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
    /// A module of this machine to run (`--tier wasm`); all of ARGV are its arguments then. Without it ARGV names
    /// the module: in the workspace where there is one, on this machine where there is none.
    #[arg(long, value_name = "FILE")]
    pub(crate) module: Option<PathBuf>,
    /// The command and its arguments; no shell reads them.
    #[arg(last = true, required_unless_present = "module", value_name = "ARGV")]
    pub(crate) argv: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) deploy: Deploy,
    /// As JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Prove {
    /// Tiers to attack; each must be had [default: every one that works here; for rows gvisor and namespace]
    #[arg(long, value_name = "TIER")]
    pub(crate) tier: Vec<ProvenName>,
    /// More attacks, in the format of our own. Programs with `control = "host"` or `"namespace"` also run on this
    /// machine, as you (where you are root, as a user without rights): only for files that you would run yourself.
    #[arg(long, value_name = "FILE")]
    pub(crate) attacks: Vec<PathBuf>,
    /// Accept `control = "root"` in these files: such a program runs on this machine with all rights that you have.
    #[arg(long, requires = "attacks")]
    pub(crate) attacks_as_root: bool,
    /// Play the rows of this file instead: JSON Lines, in the form of `docs/guide/prove.md`. The lines of a row's
    /// `setup` run on this machine, as you, in a scratch folder: only for files that you would run yourself.
    #[arg(long, value_name = "FILE", conflicts_with = "attacks")]
    pub(crate) cases: Option<PathBuf>,
    /// Only attacks or rows whose name contains this, or the one that has exactly this name; may be given again for
    /// more.
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    /// Only rows of this class; may be given again for more.
    #[arg(long, value_name = "CLASS", requires = "cases")]
    pub(crate) class: Vec<String>,
    /// Folder to work in, made where there is none; what is put there is removed afterwards [default: the folder of
    /// temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Write the whole outcome there as well, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// As JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Guild {
    /// Check a Guild against the deployment, and say what it would be granted and what a reviewer should see.
    Check(GuildCheck),
    /// Compare two Guilds, an old and a new one: exit 3 where the new one is wider.
    Diff(GuildDiff),
    /// What a Guild can do: each role's tools, what it reaches through other roles, and every bound.
    Show {
        /// The Guild's folder.
        guild: PathBuf,
        #[command(flatten)]
        deploy: Deploy,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct GuildCheck {
    /// The Guild's folder.
    pub(crate) guild: PathBuf,
    #[command(flatten)]
    pub(crate) deploy: Deploy,
    #[command(flatten)]
    pub(crate) report: Reported,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GuildDiff {
    /// The folder of the Guild that was there.
    pub(crate) old: PathBuf,
    /// The folder of the Guild that is to come.
    pub(crate) new: PathBuf,
    #[command(flatten)]
    pub(crate) deploy: Deploy,
    /// The deployment of the old Guild, where it is another one [default: the same]
    #[arg(long, value_name = "FILE")]
    pub(crate) old_config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) report: Reported,
}

/// How findings are told, and which of them are meant.
#[derive(Debug, clap::Args)]
pub(crate) struct Reported {
    /// The operator's waivers [default: `foundry/foundry.toml` in the folder of records, where there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) waivers: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// As SARIF 2.1.0, for tools that review code.
    #[arg(long, conflicts_with = "json")]
    pub(crate) sarif: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Foundry {
    /// Make a Guild of yours the first baseline. Only a copy of it is kept.
    Init {
        /// The Guild's folder.
        guild: PathBuf,
        #[command(flatten)]
        terms: FoundryTerms,
    },
    /// Look whether a branch may do no more than the baseline, and then attack it as every role: exit 3 where it does not
    /// pass. What came of it is kept beside the branch.
    Gate {
        /// The branch, by its name in `foundry/branches` of the folder of records.
        branch: foundry::BranchId,
        /// Seconds that the attacks may take; a branch on which they take longer is refused.
        #[arg(long, value_name = "SECONDS", default_value_t = 1200, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        within: u64,
        #[command(flatten)]
        terms: FoundryTerms,
    },
    /// Make a branch that has passed the gate the baseline. The baseline before is kept.
    Promote {
        /// The branch.
        branch: foundry::BranchId,
        #[command(flatten)]
        terms: FoundryTerms,
    },
    /// Go back to the baseline before the present one.
    Rollback {
        /// Also where it may do more than the present one.
        #[arg(long)]
        wider: bool,
        #[command(flatten)]
        terms: FoundryTerms,
    },
    /// The baseline, all branches and how they stand, and what was kept.
    List {
        #[command(flatten)]
        terms: FoundryTerms,
    },
    /// A branch: what it claims, and what the gate said.
    Show {
        /// The branch.
        branch: foundry::BranchId,
        #[command(flatten)]
        terms: FoundryTerms,
    },
}

/// What the operator has decided, for the Foundry.
#[derive(Debug, clap::Args)]
pub(crate) struct FoundryTerms {
    #[command(flatten)]
    pub(crate) deploy: Deploy,
    /// The operator's waivers [default: `foundry/foundry.toml` in the folder of records, where there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) waivers: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// All runs, oldest first.
    List(Store),
    /// One run: what it was granted, what held, what happened.
    Show {
        /// The run.
        id: String,
        #[command(flatten)]
        store: Store,
    },
    /// Look at what a run has changed, and take it over: to the folder it came from, another one, or a new branch.
    Apply(Apply),
    /// What a run has made, as a file: the workspace (`--tar`) or the recorded patch (`--patch`).
    Export(Export),
    /// Go on with a run that was interrupted, behind the last thing that its record knows.
    Resume(Resume),
    /// End the records of runs that were interrupted, and remove what `[records]` keeps no longer.
    Gc {
        /// Say what would be done, and do nothing.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        store: Store,
    },
    /// Whether the record of a run is what the run wrote.
    Verify {
        /// The run.
        id: String,
        #[command(flatten)]
        store: Store,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Apply {
    /// The run.
    pub(crate) id: String,
    /// The folder to change, in place of the one that the run had taken in.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Make it a commit on a new branch of that folder's git repository; files and index stay as they are.
    #[arg(long, value_name = "NAME")]
    pub(crate) to_branch: Option<runs::BranchName>,
    /// Do not ask.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Take it over in spite of warnings that want a word of their own.
    #[arg(long)]
    pub(crate) accept_warnings: bool,
    /// Take it over though files that the change does not touch have changed since.
    #[arg(long)]
    pub(crate) accept_drift: bool,
    /// Show everything, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Show the whole patch, however long it is.
    #[arg(long)]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

#[derive(Debug, clap::Args)]
#[group(id = "what", required = true, multiple = false, args = ["tar", "patch"])]
pub(crate) struct Export {
    /// The run.
    pub(crate) id: String,
    /// The workspace as it was collected, as a tar archive; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) tar: Option<PathBuf>,
    /// The recorded patch; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) patch: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: Store,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Resume {
    /// The run.
    pub(crate) id: String,
    /// The Guild's folder [default: where it was when the run was started]
    #[arg(long, value_name = "DIR")]
    pub(crate) guild: Option<PathBuf>,
    /// The model server, over the deployment's.
    #[arg(long, value_name = "URL")]
    pub(crate) model_url: Option<String>,
    /// The model's name, over the deployment's.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) deploy: Deploy,
    /// The result as JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
    /// Nothing but the result.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Store {
    /// The deployment file [default: ./oubliette.toml where there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Folder of records.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Schema {
    /// Which file.
    pub(crate) kind: KindName,
    /// As JSON; it is JSON anyway.
    #[arg(long, hide = true)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum HistoryName {
    /// One fresh commit of the files it knew.
    One,
    /// All its objects and branches.
    Keep,
    /// The files alone.
    None,
}

impl From<HistoryName> for runs::History {
    fn from(name: HistoryName) -> Self {
        match name {
            HistoryName::One => runs::History::One,
            HistoryName::Keep => runs::History::Keep,
            HistoryName::None => runs::History::None,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum KindName {
    /// `oubliette.toml`
    Deployment,
    /// `guild.toml`
    Guild,
    /// `foundry.toml`
    Foundry,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TierName {
    /// The strongest that works.
    Auto,
    Confined,
    Namespace,
    Gvisor,
    Microvm,
    /// One module, for `exec`.
    Wasm,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FloorName {
    Confined,
    Namespace,
    Gvisor,
    Microvm,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ProvenName {
    Confined,
    Namespace,
    Gvisor,
    Microvm,
    Wasm,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SurroundingsName {
    None,
    Gvisor,
    Microvm,
}
