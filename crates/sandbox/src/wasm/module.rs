//! Whether bytes are a module that can run: judged by parsing alone, before anything is started.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use sha2::{Digest, Sha256};

/// Bytes of a module at most.
pub(super) const MAX_BYTES: usize = 32 << 20;

/// Values that the code of a module may take and leave for each of its bytes. Compilers need less than four; a few
/// bytes can be made to stand for a thousand, and whoever judges them is the executor.
#[cfg(feature = "wasm")]
const EFFORT: u64 = 16;
/// Characters of a reason: it may quote the module.
#[cfg(feature = "wasm")]
const LONGEST_REASON: usize = 200;

/// The only source of imports.
#[cfg(feature = "wasm")]
pub(super) const WASI: &str = "wasi_snapshot_preview1";
/// Everything that can be imported.
#[cfg(feature = "wasm")]
const NAMES: [&str; 46] = [
    "args_get",
    "args_sizes_get",
    "clock_res_get",
    "clock_time_get",
    "environ_get",
    "environ_sizes_get",
    "fd_advise",
    "fd_allocate",
    "fd_close",
    "fd_datasync",
    "fd_fdstat_get",
    "fd_fdstat_set_flags",
    "fd_fdstat_set_rights",
    "fd_filestat_get",
    "fd_filestat_set_size",
    "fd_filestat_set_times",
    "fd_pread",
    "fd_prestat_dir_name",
    "fd_prestat_get",
    "fd_pwrite",
    "fd_read",
    "fd_readdir",
    "fd_renumber",
    "fd_seek",
    "fd_sync",
    "fd_tell",
    "fd_write",
    "path_create_directory",
    "path_filestat_get",
    "path_filestat_set_times",
    "path_link",
    "path_open",
    "path_readlink",
    "path_remove_directory",
    "path_rename",
    "path_symlink",
    "path_unlink_file",
    "poll_oneoff",
    "proc_exit",
    "proc_raise",
    "random_get",
    "sched_yield",
    "sock_accept",
    "sock_recv",
    "sock_send",
    "sock_shutdown",
];

/// A sound module, ready to be handed into a sandbox.
#[derive(Clone, PartialEq, Eq)]
pub struct Module {
    bytes: Arc<[u8]>,
    sha256: String,
}

/// Why bytes are no module that can run here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadModule {
    /// This program has no engine.
    #[error("this program was built without modules; build it with the feature `wasm`")]
    NotBuilt,
    /// Too large.
    #[error("it has {bytes} bytes, more than the {} MiB of a module", MAX_BYTES >> 20)]
    TooLarge {
        /// How large.
        bytes: usize,
    },
    /// Not the format at all.
    #[error("it is not a WebAssembly module (it does not start with `\\0asm`)")]
    NotWasm,
    /// The other kind of WebAssembly file.
    #[error(
        "it is a WebAssembly component; build a core module for WASI preview 1 (`wasm32-wasip1`) instead"
    )]
    Component,
    /// It breaks a rule of the format.
    #[error("it is not a valid module: {reason}")]
    Invalid {
        /// Which, and where.
        reason: String,
    },
    /// It was made to keep whoever judges it busy.
    #[error("its code moves far more values about than its size allows: judging it would take minutes")]
    TooDear,
    /// It wants something that no module gets.
    #[error("it wants `{import}`, and a module gets nothing but WASI preview 1 (`wasi_snapshot_preview1`)")]
    Import {
        /// What it wants.
        import: String,
    },
    /// It is a library.
    #[error("it exports no function `_start` without parameters and results: it is not a program")]
    NoStart,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Module({} bytes, {})", self.bytes.len(), self.sha256)
    }
}

impl Module {
    /// Judges bytes by parsing them; nothing is compiled or run.
    ///
    /// # Errors
    /// [`BadModule`] says what is wrong with them.
    pub fn check(bytes: Vec<u8>) -> Result<Module, BadModule> {
        if bytes.len() > MAX_BYTES {
            return Err(BadModule::TooLarge { bytes: bytes.len() });
        }
        judge(&bytes)?;
        let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Module { bytes: bytes.into(), sha256 })
    }

    /// Its digest, in hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A file of its bytes that has no name and that nobody can change, to be handed into a sandbox.
    pub(crate) fn sealed(&self) -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(memfd_create("module", flags)?);
        file.write_all(&self.bytes)?;
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(file.into())
    }
}

#[cfg(not(feature = "wasm"))]
fn judge(_: &[u8]) -> Result<(), BadModule> {
    Err(BadModule::NotBuilt)
}

#[cfg(feature = "wasm")]
fn judge(bytes: &[u8]) -> Result<(), BadModule> {
    use wasmparser::{Encoding, ExternalKind, Parser, Payload, TypeRef, ValidPayload, Validator};
    if !bytes.starts_with(b"\0asm") {
        return Err(BadModule::NotWasm);
    }
    // What it is comes before whether it is sound, for a better word about it.
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(invalid)? {
            Payload::Version { encoding: Encoding::Component, .. } => return Err(BadModule::Component),
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import.map_err(invalid)?;
                    let known = import.module == WASI && NAMES.contains(&import.name);
                    if !known || !matches!(import.ty, TypeRef::Func(_)) {
                        let import = plain(&format!("{}.{}", import.module, import.name));
                        return Err(BadModule::Import { import });
                    }
                }
            }
            _ => {}
        }
    }
    let mut validator = Validator::new_with_features(features());
    let mut parser = Parser::new(0);
    parser.set_features(features());
    let (mut code, mut types) = (Vec::new(), None);
    for payload in parser.parse_all(bytes) {
        match validator.payload(&payload.map_err(invalid)?).map_err(invalid)? {
            ValidPayload::Func(function, body) => code.push((function, body)),
            ValidPayload::End(end) => types = Some(end),
            ValidPayload::Ok | ValidPayload::Parser(_) => {}
        }
    }
    judge_code(code, effort(bytes))?;
    let Some(types) = types else { return Err(BadModule::NoStart) };
    let types = types.as_ref();
    for payload in Parser::new(0).parse_all(bytes) {
        let Payload::ExportSection(exports) = payload.map_err(invalid)? else { continue };
        for export in exports {
            let export = export.map_err(invalid)?;
            if export.name == "_start" && export.kind == ExternalKind::Func {
                let ty = &types[types.core_function_at(export.index)];
                let ty = ty.composite_type.unwrap_func();
                return match (ty.params(), ty.results()) {
                    ([], []) => Ok(()),
                    _ => Err(BadModule::NoStart),
                };
            }
        }
    }
    Err(BadModule::NoStart)
}

/// The same as the library's own judgement of all functions, which nothing would end.
#[cfg(feature = "wasm")]
fn judge_code(
    code: Vec<(wasmparser::FuncToValidate<wasmparser::ValidatorResources>, wasmparser::FunctionBody<'_>)>,
    mut left: u64,
) -> Result<(), BadModule> {
    use wasmparser::Operator;
    let mut room = wasmparser::FuncValidatorAllocations::default();
    for (function, body) in code {
        let mut judge = function.into_validator(room);
        // Its parameters.
        spend(&mut left, 1 + u64::from(judge.len_locals()))?;
        judge.read_locals(&mut body.get_binary_reader()).map_err(invalid)?;
        let mut operators = body.get_operators_reader().map_err(invalid)?;
        while !operators.eof() {
            let at = operators.original_position();
            let operator = operators.read().map_err(invalid)?;
            // Without an arity it is wrong, and told below.
            let (takes, leaves) = operator.operator_arity(&judge.visitor(at)).unwrap_or_default();
            let once = 1 + u64::from(takes) + u64::from(leaves);
            let effort = match &operator {
                // Each of its targets is looked at.
                Operator::BrTable { targets } => once * (u64::from(targets.len()) + 1),
                _ => once,
            };
            spend(&mut left, effort)?;
            judge.op(at, &operator).map_err(invalid)?;
        }
        operators.finish().map_err(invalid)?;
        room = judge.into_allocations();
    }
    Ok(())
}

#[cfg(feature = "wasm")]
fn spend(left: &mut u64, effort: u64) -> Result<(), BadModule> {
    *left = left.checked_sub(effort).ok_or(BadModule::TooDear)?;
    Ok(())
}

#[cfg(feature = "wasm")]
fn effort(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX).saturating_mul(EFFORT).saturating_add(1 << 20)
}

/// What the library says may quote names of any length.
#[cfg(feature = "wasm")]
fn invalid(e: wasmparser::BinaryReaderError) -> BadModule {
    let shown = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
    BadModule::Invalid { reason: e.to_string().chars().map(shown).take(LONGEST_REASON).collect() }
}

/// What of the language a module may use: what compilers make today, and nothing that is still moving.
#[cfg(feature = "wasm")]
fn features() -> wasmparser::WasmFeatures {
    use wasmparser::WasmFeatures as Is;
    Is::WASM2 | Is::TAIL_CALL | Is::EXTENDED_CONST
}

/// A name out of a hostile file, fit for a message.
#[cfg(feature = "wasm")]
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_graphic() { c } else { '?' }).take(100).collect()
}
