//! What a tier is good for, in a line each: the short form of docs/threats.md.

use policy::Tier;

/// What a tier stops, and what it does not.
pub(crate) fn of(tier: Tier) -> (&'static str, &'static str) {
    match tier {
        Tier::Microvm => (
            "everything that gvisor stops, with a kernel of the guest's own behind a few emulated devices",
            "side channels; faults of QEMU's devices, which then meet the wall of namespaces around it",
        ),
        Tier::Gvisor => (
            "everything that namespace stops, and faults of the host's kernel: system calls are gVisor's own affair",
            "side channels; faults of gVisor, which then meet the wall of namespaces around it",
        ),
        Tier::Namespace => (
            "reading and writing outside the workspace, any network, sight of the host, signals, bombs",
            "faults of the host's kernel: about 300 system calls reach it; side channels",
        ),
        Tier::Confined => (
            "reading and writing outside the workspace, any socket, signals and tracing, bombs",
            "sight of names, sizes and process numbers of the host; faults of its kernel; side channels",
        ),
        Tier::Wasm => (
            "everything but the bytes of the workspace: a module has no system calls, starts nothing, and asks nobody",
            "side channels; faults of the engine, whose process then meets rules of its own and the wall around it",
        ),
    }
}
