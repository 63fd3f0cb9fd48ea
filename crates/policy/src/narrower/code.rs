//! Every kind of finding: its stable name, the rule in words, and what would make it pass.

use serde::{Serialize, Serializer};

/// How a finding counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// More than was possible: refused, unless the operator waives it.
    Wider,
    /// Moves no bound, and may change what a model does.
    BehaviourOnly,
    /// Less, or nothing at all.
    Narrower,
}

/// A text that names no kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no finding of that name")]
pub struct UnknownCode;

/// A kind of finding; the text form is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// A role that was not there has tools.
    RoleAdded,
    /// A tool was added to a role's list.
    ToolAdded,
    /// From argument vectors to a text for a shell.
    ShellForm,
    /// A role reaches a tool through other roles.
    Reach,
    /// A role may spend more through other roles.
    ReachBudget,
    /// A role can have itself started again, or reaches one that can.
    Restart,
    /// The new entry role reaches more.
    EntryReach,
    /// What a run starts with may spend more.
    EntryBudget,
    /// Foreign text of a further kind comes to a role that reaches execution, or execution to what it reaches.
    UntrustedExec,
    /// The same with the network.
    UntrustedNetwork,
    /// A bound was raised.
    LimitRaised,
    /// A bound of the Guild's own was taken out.
    LimitRemoved,
    /// A budget was raised.
    BudgetRaised,
    /// A budget of a role was taken out.
    BudgetRemoved,
    /// The Guild asks for a further destination.
    NetworkAdded,
    /// The deployment opens a further destination.
    NetworkGiven,
    /// A command was added to the allow list.
    AllowGrown,
    /// The allow list was emptied or taken out.
    AllowDropped,
    /// A command was taken out of the deny list.
    DenyShrunk,
    /// Running programs was switched on.
    ShellEnabled,
    /// A further variable is handed into the sandbox.
    SecretPassed,
    /// A further variable is sent to a destination.
    HeaderGiven,
    /// The conversation goes to another server.
    Endpoint,
    /// Another key is sent to the model server.
    ModelKey,
    /// A weaker tier is accepted.
    FloorLowered,
    /// A weaker tier is asked for, or one by name that can be weaker than what `auto` took.
    TierLowered,
    /// More is claimed of the surroundings.
    Surroundings,
    /// The guest sees another system.
    Rootfs,
    /// A tool takes a further argument.
    ParamAdded,
    /// An argument accepts more.
    ParamRelaxed,
    /// An argument need not be given any more.
    ParamOptional,
    /// A tool takes arguments that its manifest does not name. The reader of manifests refuses such a one before it is
    /// compared; this is for whoever hands over schemas that were read elsewhere.
    ParamOpen,
    /// Another module under the same name.
    ModuleChanged,
    /// A tool's name is taken for another's.
    ToolAlias,
    /// A role's name is taken for another's.
    RoleAlias,
    /// A text of the Guild holds what looks like a key.
    KeyQuoted,
    /// A text of the Guild names a path of a machine.
    HostPath,
    /// The Guild asks for more than the deployment gives.
    Exceeds,
    /// More findings than are told.
    TooMany,
    /// A prompt was changed.
    Prompt,
    /// A text holds hidden characters.
    Hidden,
    /// What a manifest says of its tool was changed.
    Description,
    /// Sampling was changed.
    Generation,
    /// A name was changed.
    Name,
    /// A key of the deployment was changed and moves no bound.
    Operator,
    /// A file that nothing in the Guild names.
    File,
    /// A role was taken out.
    RoleRemoved,
    /// A role without a power was added.
    RolePlain,
    /// A tool was taken out of a role's list.
    ToolRemoved,
    /// A tool was added that gives no power.
    ToolCovered,
    /// A role reaches less.
    ReachLost,
    /// The roles that a role may start were changed.
    Agents,
    /// The entry role was changed.
    Entry,
    /// A bound was lowered or written out.
    LimitLowered,
    /// A budget was lowered or written out.
    BudgetLowered,
    /// A destination was taken out.
    NetworkRemoved,
    /// A tool takes less.
    ParamNarrowed,
    /// Fewer commands may be run.
    CommandsNarrowed,
    /// The deployment is tighter.
    Tightened,
    /// A file was moved inside the Guild.
    Moved,
    /// A tool that no role may call came, went or changed.
    OwnTools,
}

impl Code {
    /// Every code.
    pub const ALL: [Code; 61] = [
        Code::RoleAdded,
        Code::ToolAdded,
        Code::ShellForm,
        Code::Reach,
        Code::ReachBudget,
        Code::Restart,
        Code::EntryReach,
        Code::EntryBudget,
        Code::UntrustedExec,
        Code::UntrustedNetwork,
        Code::LimitRaised,
        Code::LimitRemoved,
        Code::BudgetRaised,
        Code::BudgetRemoved,
        Code::NetworkAdded,
        Code::NetworkGiven,
        Code::AllowGrown,
        Code::AllowDropped,
        Code::DenyShrunk,
        Code::ShellEnabled,
        Code::SecretPassed,
        Code::HeaderGiven,
        Code::Endpoint,
        Code::ModelKey,
        Code::FloorLowered,
        Code::TierLowered,
        Code::Surroundings,
        Code::Rootfs,
        Code::ParamAdded,
        Code::ParamRelaxed,
        Code::ParamOptional,
        Code::ParamOpen,
        Code::ModuleChanged,
        Code::ToolAlias,
        Code::RoleAlias,
        Code::KeyQuoted,
        Code::HostPath,
        Code::Exceeds,
        Code::TooMany,
        Code::Prompt,
        Code::Hidden,
        Code::Description,
        Code::Generation,
        Code::Name,
        Code::Operator,
        Code::File,
        Code::RoleRemoved,
        Code::RolePlain,
        Code::ToolRemoved,
        Code::ToolCovered,
        Code::ReachLost,
        Code::Agents,
        Code::Entry,
        Code::LimitLowered,
        Code::BudgetLowered,
        Code::NetworkRemoved,
        Code::ParamNarrowed,
        Code::CommandsNarrowed,
        Code::Tightened,
        Code::Moved,
        Code::OwnTools,
    ];

    /// The stable text form, as `W-TOOL-ADDED`.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::RoleAdded => "W-ROLE-ADDED",
            Code::ToolAdded => "W-TOOL-ADDED",
            Code::ShellForm => "W-SHELL-FORM",
            Code::Reach => "W-REACH",
            Code::ReachBudget => "W-REACH-BUDGET",
            Code::Restart => "W-RESTART",
            Code::EntryReach => "W-ENTRY-REACH",
            Code::EntryBudget => "W-ENTRY-BUDGET",
            Code::UntrustedExec => "W-UNTRUSTED-EXEC",
            Code::UntrustedNetwork => "W-UNTRUSTED-NETWORK",
            Code::LimitRaised => "W-LIMIT-RAISED",
            Code::LimitRemoved => "W-LIMIT-REMOVED",
            Code::BudgetRaised => "W-BUDGET-RAISED",
            Code::BudgetRemoved => "W-BUDGET-REMOVED",
            Code::NetworkAdded => "W-NETWORK-ADDED",
            Code::NetworkGiven => "W-NETWORK-GIVEN",
            Code::AllowGrown => "W-ALLOW-GROWN",
            Code::AllowDropped => "W-ALLOW-DROPPED",
            Code::DenyShrunk => "W-DENY-SHRUNK",
            Code::ShellEnabled => "W-SHELL-ENABLED",
            Code::SecretPassed => "W-SECRET-PASSED",
            Code::HeaderGiven => "W-HEADER-GIVEN",
            Code::Endpoint => "W-ENDPOINT",
            Code::ModelKey => "W-MODEL-KEY",
            Code::FloorLowered => "W-FLOOR-LOWERED",
            Code::TierLowered => "W-TIER-LOWERED",
            Code::Surroundings => "W-SURROUNDINGS",
            Code::Rootfs => "W-ROOTFS",
            Code::ParamAdded => "W-PARAM-ADDED",
            Code::ParamRelaxed => "W-PARAM-RELAXED",
            Code::ParamOptional => "W-PARAM-OPTIONAL",
            Code::ParamOpen => "W-PARAM-OPEN",
            Code::ModuleChanged => "W-MODULE-CHANGED",
            Code::ToolAlias => "W-TOOL-ALIAS",
            Code::RoleAlias => "W-ROLE-ALIAS",
            Code::KeyQuoted => "W-KEY-QUOTED",
            Code::HostPath => "W-HOST-PATH",
            Code::Exceeds => "W-EXCEEDS",
            Code::TooMany => "W-TOO-MANY",
            Code::Prompt => "B-PROMPT",
            Code::Hidden => "B-HIDDEN",
            Code::Description => "B-DESCRIPTION",
            Code::Generation => "B-GENERATION",
            Code::Name => "B-NAME",
            Code::Operator => "B-OPERATOR",
            Code::File => "B-FILE",
            Code::RoleRemoved => "N-ROLE-REMOVED",
            Code::RolePlain => "N-ROLE-PLAIN",
            Code::ToolRemoved => "N-TOOL-REMOVED",
            Code::ToolCovered => "N-TOOL-COVERED",
            Code::ReachLost => "N-REACH-LOST",
            Code::Agents => "N-AGENTS",
            Code::Entry => "N-ENTRY",
            Code::LimitLowered => "N-LIMIT-LOWERED",
            Code::BudgetLowered => "N-BUDGET-LOWERED",
            Code::NetworkRemoved => "N-NETWORK-REMOVED",
            Code::ParamNarrowed => "N-PARAM-NARROWED",
            Code::CommandsNarrowed => "N-COMMANDS",
            Code::Tightened => "N-TIGHTENED",
            Code::Moved => "N-MOVED",
            Code::OwnTools => "N-OWN-TOOLS",
        }
    }

    /// The rule in words, without a full stop.
    pub fn rule(self) -> &'static str {
        match self {
            Code::RoleAdded => "a role that was not there has tools",
            Code::ToolAdded => "a role may call only the tools that it could call before",
            Code::ShellForm => "a role that was given argument vectors gets no shell text",
            Code::Reach => "what a role reaches through the roles that it may start counts as its own",
            Code::ReachBudget => {
                "what a role may spend through the roles that it may start counts as its own"
            }
            Code::Restart => {
                "a role that can be started again by what it starts has its budget again each time"
            }
            Code::EntryReach => "the role that a run starts with reaches no more than the one before it",
            Code::EntryBudget => "what a run starts with may spend no more, itself and by reach",
            Code::UntrustedExec => {
                "foreign text and what runs programs come together in no role in which they did not before"
            }
            Code::UntrustedNetwork => {
                "foreign text and the network come together in no role in which they did not before"
            }
            Code::LimitRaised => "a bound may only be lowered",
            Code::LimitRemoved => {
                "a bound that was written stays written: without it the deployment's holds, whatever that is"
            }
            Code::BudgetRaised => "what may be spent may only be lowered",
            Code::BudgetRemoved => {
                "a budget that was written stays written: without it the run's holds, whatever that is"
            }
            Code::NetworkAdded => "a Guild asks for no destination that it did not ask for before",
            Code::NetworkGiven => "a deployment opens no destination that it did not open before",
            Code::AllowGrown => "the list of commands that may be run only shrinks",
            Code::AllowDropped => {
                "a list of commands that may be run stays: an empty one, or none, is every command"
            }
            Code::DenyShrunk => "the list of refused commands only grows",
            Code::ShellEnabled => "programs that could not be run stay so",
            Code::SecretPassed => "no further variable is handed into the sandbox",
            Code::HeaderGiven => "no further variable is sent to a destination in a header",
            Code::Endpoint => "the conversation goes to the server that it went to",
            Code::ModelKey => "no other key is sent to the model server",
            Code::FloorLowered => "the weakest tier accepted is not lowered",
            Code::TierLowered => "the tier that a run gets is on no machine weaker",
            Code::Surroundings => "nothing more is claimed of what the executor runs in",
            Code::Rootfs => "the guest sees the system that it saw",
            Code::ParamAdded => "a tool takes only the arguments that it took",
            Code::ParamRelaxed => "an argument accepts only what it accepted",
            Code::ParamOptional => "an argument that had to be given still has to",
            Code::ParamOpen => "a tool takes no arguments that its manifest does not name",
            Code::ModuleChanged => "a tool's name stays bound to the module that it was bound to",
            Code::ToolAlias => "no tool has a name that is taken for another's",
            Code::RoleAlias => "no role has a name that is taken for another's",
            Code::KeyQuoted => "no text of a Guild holds a key",
            Code::HostPath => "no text of a Guild names a path of a machine",
            Code::Exceeds => "a Guild asks for no more than the deployment gives",
            Code::TooMany => "there is more than is told",
            Code::Prompt => "a prompt moves no bound; a reviewer reads it",
            Code::Hidden => "a text holds characters that nobody sees, or that turn it around",
            Code::Description => {
                "what a manifest says of its tool is part of every prompt; a reviewer reads it"
            }
            Code::Generation => "sampling moves no bound",
            Code::Name => "a name moves no bound",
            Code::Operator => {
                "what the operator says of model and records, or a tier of the same strength, moves no bound"
            }
            Code::File => {
                "a file that nothing names is in no prompt and is never run, and comes along; a reviewer looks at it"
            }
            Code::RoleRemoved => "a role less",
            Code::RolePlain => "a role without a power",
            Code::ToolRemoved => "a tool less",
            Code::ToolCovered => "a tool that gives the role no power that it did not have",
            Code::ReachLost => "a role reaches less",
            Code::Agents => "which roles a role may start",
            Code::Entry => "which role a run starts with",
            Code::LimitLowered => "a bound was lowered, or written out",
            Code::BudgetLowered => "a budget was lowered, or written out",
            Code::NetworkRemoved => "a destination less",
            Code::ParamNarrowed => "a tool takes less",
            Code::CommandsNarrowed => "fewer commands may be run",
            Code::Tightened => "the deployment is tighter",
            Code::Moved => "the same content under another path",
            Code::OwnTools => "a tool that no role may call",
        }
    }

    /// What would make it pass; empty for what passes.
    pub fn remedy(self) -> &'static str {
        match self {
            Code::RoleAdded => "remove the role, or leave it no tool but `finish`",
            Code::ToolAdded => "remove the tool from the role's list",
            Code::ShellForm => "give the role `run_command` in place of `run_shell`",
            Code::Reach => "remove the role from its `agents`, or the tool from the role that has it",
            Code::ReachBudget => "remove the role from its `agents`, or write a lower `budget` for that role",
            Code::Restart => "remove the role that closes the circle from `agents`",
            Code::EntryReach => "let `entry` name the role that it named before",
            Code::EntryBudget => {
                "let `entry` name the role that it named before, or write its `budget` lower"
            }
            Code::UntrustedExec => {
                "keep reading and running apart: remove the one or the other from what the role reaches"
            }
            Code::UntrustedNetwork => "keep reading and the network apart",
            Code::LimitRaised => "write the bound that was there, or a lower one",
            Code::LimitRemoved => "write the bound again",
            Code::BudgetRaised => "write the budget that was there, or a lower one",
            Code::BudgetRemoved => "write the budget again",
            Code::NetworkAdded => "remove the destination",
            Code::NetworkGiven => "remove the destination",
            Code::AllowGrown => "remove the command from `shell.allow`",
            Code::AllowDropped => "write `shell.allow` again",
            Code::DenyShrunk => "write the command into `shell.deny` again",
            Code::ShellEnabled => "write `enabled = false` again",
            Code::SecretPassed => "remove it from `secrets.pass`",
            Code::HeaderGiven => "remove the header from `network.allow`, or do not ask for that destination",
            Code::Endpoint => "write the address that was there",
            Code::ModelKey => "write the variable's name that was there",
            Code::FloorLowered => "write the floor that was there",
            Code::TierLowered => "write the tier that was there",
            Code::Surroundings => "write the `surroundings` that were there",
            Code::Rootfs => "write the `rootfs` that was there",
            Code::ParamAdded => "remove the argument from the manifest",
            Code::ParamRelaxed => "write the type, list or bound that was there",
            Code::ParamOptional => "put it into `required` again",
            Code::ParamOpen => "write `additionalProperties` as `false`",
            Code::ModuleChanged => {
                "put the module that was there into its place, or give the new one a tool of another name"
            }
            Code::ToolAlias => "give it a name that looks like no other",
            Code::RoleAlias => "give it a name that looks like no other",
            Code::KeyQuoted => "take it out, and give the key out anew: whoever has the Guild has it",
            Code::HostPath => "name paths of the workspace, as in `src/main.rs`",
            Code::Exceeds => "lower it, or remove it",
            Code::TooMany => "make the change smaller",
            Code::Prompt
            | Code::Hidden
            | Code::Description
            | Code::File
            | Code::Generation
            | Code::Name
            | Code::Operator
            | Code::RoleRemoved
            | Code::RolePlain
            | Code::ToolRemoved
            | Code::ToolCovered
            | Code::ReachLost
            | Code::Agents
            | Code::Entry
            | Code::LimitLowered
            | Code::BudgetLowered
            | Code::NetworkRemoved
            | Code::ParamNarrowed
            | Code::CommandsNarrowed
            | Code::Tightened
            | Code::Moved
            | Code::OwnTools => "",
        }
    }

    /// How it counts.
    pub fn severity(self) -> Severity {
        match self.as_str().as_bytes() {
            [b'W', ..] => Severity::Wider,
            [b'B', ..] => Severity::BehaviourOnly,
            _ => Severity::Narrower,
        }
    }

    /// Whether the operator may waive it. A key is no matter of opinion, and what is not told cannot be judged.
    pub fn is_waivable(self) -> bool {
        self.severity() == Severity::Wider && !matches!(self, Code::KeyQuoted | Code::Exceeds | Code::TooMany)
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for Code {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Code, UnknownCode> {
        Code::ALL.into_iter().find(|code| code.as_str() == text).ok_or(UnknownCode)
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
