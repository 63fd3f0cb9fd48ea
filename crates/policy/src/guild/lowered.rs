//! The bounds of a deployment that a Guild may lower: which there are, in one table.

use serde::{Serialize, Serializer};

/// Makes the closed list: a line is a bound's name in a Guild's `[limits]`, and its key in the deployment.
macro_rules! lowered {
    ($($variant:ident, $key:literal, $bound:literal, $doc:literal;)*) => {
        /// A bound that a Guild may lower. In the order of their names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum LimitKey {
            $(#[doc = $doc] $variant,)*
        }

        impl LimitKey {
            /// Every one.
            pub const ALL: &'static [LimitKey] = &[$(LimitKey::$variant,)*];

            /// Its name in a Guild's `[limits]`.
            pub fn as_str(self) -> &'static str {
                match self { $(LimitKey::$variant => $key,)* }
            }

            /// The key in the deployment of the bound that it lowers.
            pub(crate) fn bound(self) -> &'static str {
                match self { $(LimitKey::$variant => $bound,)* }
            }
        }
    };
}

lowered! {
    CallCpu, "call_cpu", "call.cpu", "Milliseconds of processor time of one call.";
    CallDisk, "call_disk", "call.disk", "Bytes by which one call may make the workspace grow.";
    CallMemory, "call_memory", "call.memory", "Bytes that one call holds.";
    CallProcesses, "call_processes", "call.processes", "Processes and threads of one call.";
    Cores, "cores", "limits.cores", "Processors that may be busy at the same time.";
    Cpu, "cpu", "limits.cpu", "Milliseconds of processor time of a sandbox.";
    Disk, "disk", "limits.disk", "Bytes in the workspace.";
    Files, "files", "limits.files", "Files in the workspace.";
    Memory, "memory", "limits.memory", "Bytes of memory of a sandbox.";
    Output, "output", "call.output", "Bytes of one call's output that are kept.";
    Processes, "processes", "limits.processes", "Processes and threads of a sandbox.";
    Tmp, "tmp", "limits.tmp", "Bytes in the temporary folders.";
    Wall, "wall", "limits.wall", "Milliseconds that a sandbox lives.";
}

impl Serialize for LimitKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
