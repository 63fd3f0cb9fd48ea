//! Single facts that are there or not: each more is wider.

use crate::{EnvName, HeaderName};

/// What kind of thing has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Named {
    Tool,
    Role,
}

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claim {
    /// Something is named like something else.
    Alias { what: Named, name: String, like: String },
    /// A text of the Guild quotes a key.
    Key { file: String, place: String },
    /// A text of the Guild quotes a path of a machine.
    HostPath { file: String, place: String, path: String },
    /// A variable is handed into the sandbox.
    Secret(EnvName),
    /// A variable's value is sent to this destination, in this header.
    Header { to: String, name: HeaderName, variable: EnvName },
    /// A variable's value is sent to the model server.
    ModelKey(EnvName),
    /// The conversation goes to this server.
    Endpoint(String),
    /// The guest sees this as its system.
    Rootfs(String),
}
